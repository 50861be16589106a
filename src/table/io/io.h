/* Reading and writing files: windows, compression, copies. Private. */
#ifndef MR_TABLE_IO_H
#define MR_TABLE_IO_H

#include <stdatomic.h>
#include <sys/uio.h>

#include "base/buf.h"
#include "table/merge.h"
#include "table/rows/formats.h"

/* ---- reading ---- */

#define MR_WINDOW_BIG ((size_t)4 << 20)

/** A file read forwards through a window of memory: buf[begin, end) has been read and not consumed. */
struct mr_input {
    const struct mr_source_file *file; /* borrowed; NULL: not open */
    int fd;                            /* -1: an object */
    struct mr_s3_reader *object;       /* NULL: a file */
    bool is_stream;                    /* fd is borrowed; cancel_fd ends a wait for it */
    int cancel_fd;
    struct mr_unpacker *unpacker; /* NULL: the file is not compressed */
    char *buf;
    size_t begin;
    size_t end;
    size_t room;
    bool is_end; /* the file ends at buf[end) */
};

/** Errors: MR_E_IO, MR_E_INVALID (the file has changed since it was found; mr_input_more reports that too at its
 *  end). */
int mr_input_open(struct mr_input *in, const struct mr_source_file *file, struct mr_s3 *s3,
                  struct mr_err *err);
/** Errors: MR_E_EXHAUSTED. */
int mr_input_open_stream(struct mr_input *in, const struct mr_source_file *file,
                         const struct mr_source_stream *stream, int cancel_fd, struct mr_err *err);
/** For a stream: waits until until_ns (INT64_MAX: without limit) for data or the end; *out is false if
 *  neither came. Errors: MR_E_CANCELLED, MR_E_IO. */
int mr_input_wait(const struct mr_input *in, int64_t until_ns, bool *out, struct mr_err *err);
/** Accepts an all-zero struct. */
void mr_input_close(struct mr_input *in);
/** Reads more data after end, or sets is_end. Moves the content to the front of the window, which grows as needed;
 *  the caller must bound its growth. Errors: MR_E_IO, MR_E_INVALID, MR_E_EXHAUSTED. */
int mr_input_more(struct mr_input *in, struct mr_err *err);
/** Frees the memory that was added for a long row. Pointers into the window become invalid. */
void mr_input_trim(struct mr_input *in);
/** Decompresses all of a file to check it for damage. A truncated file is not an error.
 *  Errors: MR_E_INVALID (names the place), MR_E_IO, MR_E_EXHAUSTED, MR_E_CANCELLED. */
int mr_input_check(const struct mr_source_file *file, struct mr_s3 *s3, const atomic_bool *stop,
                   struct mr_err *err);
/** Skips the byte order mark, if the file begins with one. */
int mr_input_skip_mark(struct mr_input *in, struct mr_err *err);

enum packing { PLAIN, GZIP, ZSTD };
/** By the end of a file's name. */
enum packing mr_packing_named(mr_str name);

struct mr_unpacker;
#define MR_UNPACKER_MARK  4 /* bytes that show whether a file is compressed */
#define MR_UNPACKER_FIRST ((size_t)64 << 10)
/** Reads the next bytes of a file into `out`; *out_n 0: the end. */
typedef int(mr_raw_read_fn)(void *ctx, void *out, size_t room, size_t *out_n, struct mr_err *err);
/** A decompressor for a file. *out NULL: the file is not compressed. `first` are its first bytes, at least
 *  MR_UNPACKER_MARK (or all of a shorter file), at most MR_UNPACKER_FIRST; read(ctx) returns the rest. Borrows path
 *  and ctx. Errors: MR_E_INVALID (not compressed despite its name), MR_E_EXHAUSTED. */
int mr_unpacker_new(struct mr_unpacker **out, const char *path, mr_bytes first,
                    mr_raw_read_fn *read, void *ctx, struct mr_err *err);
void mr_unpacker_free(struct mr_unpacker **u);
/** The next bytes; *out_n 0: the end. Errors: MR_E_IO, MR_E_INVALID (damaged or truncated; names the place),
 *  MR_E_EXHAUSTED. */
int mr_unpacker_read(struct mr_unpacker *u, void *out, size_t room, size_t *out_n,
                     struct mr_err *err);
/** True if the last read failed because the file is truncated. */
bool mr_unpacker_is_cut(const struct mr_unpacker *u);

/* ---- writing ---- */

struct mr_packer;
/** A compressor into a file by the options. *out NULL with MR_COMPRESSION_NONE. Errors: MR_E_EXHAUSTED. */
int mr_packer_new(struct mr_packer **out, int fd, const struct mr_writer_options *options,
                  struct mr_err *err);
void mr_packer_free(struct mr_packer **p);
/** Errors: MR_E_IO, MR_E_EXHAUSTED. */
int mr_packer_write(struct mr_packer *p, mr_bytes data, bool is_last, struct mr_err *err);
uint64_t mr_packer_written(const struct mr_packer *p);

/** Buffered text for a file. Append to `text`; call mr_out_row between rows. */
struct mr_out {
    struct mr_buf text;
    int fd;
    struct mr_no_room no_room;
    struct mr_packer *packer; /* NULL: not compressed */
    uint64_t written;
};

/** Errors: MR_E_EXHAUSTED; fini is allowed after it. */
int mr_out_init(struct mr_out *o, int fd, const struct mr_writer_options *options,
                struct mr_err *err);
void mr_out_fini(struct mr_out *o);
/** Writes the buffer if it is large. Errors: MR_E_IO, MR_E_EXHAUSTED. */
int mr_out_row(struct mr_out *o, struct mr_err *err);
/** Writes the buffer; more text may follow. */
int mr_out_flush(struct mr_out *o, struct mr_err *err);
/** Writes the rest. */
int mr_out_finish(struct mr_out *o, struct mr_err *err);
/** Bytes of the file, buffered ones included. */
uint64_t mr_out_bytes(const struct mr_out *o);

/** Writes all of it to fd. Errors: MR_E_EXHAUSTED (no room), MR_E_IO. */
int mr_fd_write(int fd, const void *data, size_t bytes, struct mr_err *err);
/** The same for several pieces; modifies the array. no_room may be NULL. */
int mr_fd_writev(int fd, struct iovec *pieces, int count, const struct mr_no_room *no_room,
                 struct mr_err *err);

/* ---- copying ---- */

/** A descriptor for reading. Errors: MR_E_IO. */
int mr_merge_open(const struct mr_merge_part *part, struct mr_err *err);
/** Copies bytes to the end of `out`, in the kernel if possible. Errors: MR_E_IO, MR_E_EXHAUSTED. */
int mr_merge_copy(const struct mr_merge_part *part, uint64_t from, uint64_t bytes, int out,
                  struct mr_err *err);
int mr_merge_size(int fd, const char *name, uint64_t *out, struct mr_err *err);

#endif
