/* Bytes from files and to files: windows, compression, copies. Private. */
#ifndef MR_TABLE_IO_H
#define MR_TABLE_IO_H

#include <stdatomic.h>
#include <sys/uio.h>

#include "base/buf.h"
#include "table/merge.h"
#include "table/rows/formats.h"

/* ---- reading ---- */

#define MR_WINDOW_BIG ((size_t)4 << 20)

/** A file read forwards through a window of memory: buf[begin, end) was read and is not used up. */
struct mr_input {
    const struct mr_source_file *file; /* borrowed; NULL: none is open */
    int fd;                            /* -1: of an object */
    struct mr_s3_reader *object;       /* NULL: a file */
    bool is_stream;                    /* fd is somebody else's; cancel_fd ends a wait for it */
    int cancel_fd;
    struct mr_unpacker *unpacker; /* NULL: the file is not compressed */
    char *buf;
    size_t begin;
    size_t end;
    size_t room;
    bool is_end; /* nothing follows buf[end) */
};

/** Errors: MR_E_IO, MR_E_INVALID (the file has changed since it was found; mr_input_more tells as well at its end). */
int mr_input_open(struct mr_input *in, const struct mr_source_file *file, struct mr_s3 *s3,
                  struct mr_err *err);
/** Errors: MR_E_EXHAUSTED. */
int mr_input_open_stream(struct mr_input *in, const struct mr_source_file *file,
                         const struct mr_source_stream *stream, int cancel_fd, struct mr_err *err);
/** Of a stream: can more be read, or its end, at once, or until then (INT64_MAX: some time)? Errors: MR_E_CANCELLED,
 *  MR_E_IO. */
int mr_input_wait(const struct mr_input *in, int64_t until_ns, bool *out, struct mr_err *err);
/** All-zero is fine as well. */
void mr_input_close(struct mr_input *in);
/** Reads more behind end, or sets is_end; what is there moves to the front of the window, which grows as needed. The
 *  caller sees to it that it does not grow without bound. Errors: MR_E_IO, MR_E_INVALID, MR_E_EXHAUSTED. */
int mr_input_more(struct mr_input *in, struct mr_err *err);
/** Gives back what it grew by for a long row. Pointers into it are not valid any more. */
void mr_input_trim(struct mr_input *in);
/** Unpacks all of a compressed file, to see whether it is damaged. One that is cut off is not: what is there is right.
 *  Errors: MR_E_INVALID (says where), MR_E_IO, MR_E_EXHAUSTED, MR_E_CANCELLED. */
int mr_input_check(const struct mr_source_file *file, struct mr_s3 *s3, const atomic_bool *stop,
                   struct mr_err *err);
/** The byte order mark, if the file begins with one. */
int mr_input_skip_mark(struct mr_input *in, struct mr_err *err);

struct mr_unpacker;
#define MR_UNPACKER_MARK  4 /* bytes that tell whether a file is compressed */
#define MR_UNPACKER_FIRST ((size_t)64 << 10)
/** Puts the next bytes of a file into `out`; *out_n 0: there are no more. */
typedef int(mr_raw_read_fn)(void *ctx, void *out, size_t room, size_t *out_n, struct mr_err *err);
/** What a file unpacks to. *out NULL: it is not compressed. `first` are its first bytes, MR_UNPACKER_MARK or all of a
 *  shorter file, at most MR_UNPACKER_FIRST; the rest comes from read(ctx). Borrows path and ctx. Errors: MR_E_INVALID (its
 *  name says that it is compressed, and it is not), MR_E_EXHAUSTED. */
int mr_unpacker_new(struct mr_unpacker **out, const char *path, mr_bytes first,
                    mr_raw_read_fn *read, void *ctx, struct mr_err *err);
void mr_unpacker_free(struct mr_unpacker **u);
/** The next bytes; *out_n 0: there are no more. Errors: MR_E_IO, MR_E_INVALID (damaged or cut off: says where),
 *  MR_E_EXHAUSTED. */
int mr_unpacker_read(struct mr_unpacker *u, void *out, size_t room, size_t *out_n,
                     struct mr_err *err);
/** Has the last read failed because the file ends too early? */
bool mr_unpacker_is_cut(const struct mr_unpacker *u);

/* ---- writing ---- */

struct mr_packer;
/** Compresses into a file as the options say. *out NULL: not with MR_COMPRESSION_NONE. Errors: MR_E_EXHAUSTED. */
int mr_packer_new(struct mr_packer **out, int fd, const struct mr_writer_options *options,
                  struct mr_err *err);
void mr_packer_free(struct mr_packer **p);
/** Errors: MR_E_IO, MR_E_EXHAUSTED. */
int mr_packer_write(struct mr_packer *p, mr_bytes data, bool is_last, struct mr_err *err);
uint64_t mr_packer_written(const struct mr_packer *p);

/** Text on its way to a file. Append to `text`; call mr_out_row between rows. */
struct mr_out {
    struct mr_buf text;
    int fd;
    struct mr_no_room no_room;
    struct mr_packer *packer; /* NULL: as it is */
    uint64_t written;
};

/** Errors: MR_E_EXHAUSTED; fini is fine then. */
int mr_out_init(struct mr_out *o, int fd, const struct mr_writer_options *options,
                struct mr_err *err);
void mr_out_fini(struct mr_out *o);
/** Writes what is held when it is much. Errors: MR_E_IO, MR_E_EXHAUSTED. */
int mr_out_row(struct mr_out *o, struct mr_err *err);
/** Writes what is held; the text goes on. */
int mr_out_flush(struct mr_out *o, struct mr_err *err);
/** Writes all that is left. */
int mr_out_finish(struct mr_out *o, struct mr_err *err);
/** Of the file, with what is held. */
uint64_t mr_out_bytes(const struct mr_out *o);

/** Writes all of it to fd. Errors: MR_E_EXHAUSTED (no room), MR_E_IO. */
int mr_fd_write(int fd, const void *data, size_t bytes, struct mr_err *err);
/** The same of several pieces; the array is used up. no_room may be NULL. */
int mr_fd_writev(int fd, struct iovec *pieces, int count, const struct mr_no_room *no_room,
                 struct mr_err *err);

/* ---- copying ---- */

/** A descriptor for reading. Errors: MR_E_IO. */
int mr_merge_open(const struct mr_merge_part *part, struct mr_err *err);
/** Copies bytes to the end of `out`; by the kernel where it can. Errors: MR_E_IO, MR_E_EXHAUSTED. */
int mr_merge_copy(const struct mr_merge_part *part, uint64_t from, uint64_t bytes, int out,
                  struct mr_err *err);
int mr_merge_size(int fd, const char *name, uint64_t *out, struct mr_err *err);

#endif
