/* Small files of a job's folder, written so that they survive a crash. Private to the manifest. */
#ifndef MR_BATCH_FILE_H
#define MR_BATCH_FILE_H

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

#define MR_FILE_TMP ".tmp-"

/** Error of the last system call (errno): "cannot <verb> <name>: …". */
int batch_file_fail(struct mr_err *err, const char *verb, const char *name);
/** Write all of it at an offset. After an error a part of it may be there. */
int batch_file_write(int fd, const void *data, size_t bytes, uint64_t offset, const char *name,
                     struct mr_err *err);
/** Data and size of a file are on disk; with a folder, its names. */
int batch_file_sync(int fd, const char *name, struct mr_err *err);
/** Append the whole file to `out`. */
int batch_file_read(int dir, const char *name, struct mr_buf *out, struct mr_err *err);
/** Size and CRC-32C of an open file. */
int batch_file_checksum(int fd, const char *name, uint64_t *out_bytes, uint32_t *out_crc,
                        struct mr_err *err);
/** Write the next content of a file beside it, on disk when this returns. Gives a descriptor for reading and
 *  writing, or an error. */
int batch_file_prepare(int dir, const char *name, mr_str content, struct mr_err *err);
/** Put what was prepared in the place of what may be there, at once: readers and crashes see the old or
 *  the new one. It is on disk when this returns MR_OK. */
int batch_file_place(int dir, const char *name, struct mr_err *err);
/** Both. */
int batch_file_put(int dir, const char *name, mr_str content, struct mr_err *err);
/** The absolute path without links, or a copy of the path if nothing is there; the caller's. */
char *batch_file_real(const char *path);
/** True, or false with MR_OK when there is no such name. */
int batch_file_exists(int dir, const char *name, bool *out, struct mr_err *err);
typedef void(batch_file_fn)(void *ctx, const char *name);
/** Calls fn for every name in a folder but "." and "..". */
int batch_file_each(int dir, const char *name, batch_file_fn *fn, void *ctx, struct mr_err *err);
/** Make a folder and those above it; their names are on disk. Gives a descriptor, or an error. */
int batch_file_make_folders(const char *path, struct mr_err *err);
/** How many bytes of the path name a folder that is there already. */
size_t batch_file_folders_there(const char *path);
/** Removes the folder and those above it, as long as they are empty and their path is longer than `keep` bytes. */
void batch_file_remove_folders(const char *path, size_t keep);

#endif
