/* Files read as a whole, which are not trusted to be what their names say. */
#ifndef MR_BASE_FILE_H
#define MR_BASE_FILE_H

#include <stddef.h>

#include "base/err.h"

/** Fails with "<path>: <text of errno>" and the matching status. */
int mr_path_errno(const char *path, int error, struct mr_err *err);
/** Reads a regular file of at most max bytes, NUL-terminated; never waits for a FIFO. Free *out with mr_free. Errors: MR_E_NOT_FOUND,
 *  MR_E_FORBIDDEN, MR_E_INVALID (not a regular file), MR_E_TOO_LARGE, MR_E_NOMEM, MR_E_IO. Thread: any; blocks on the disk. */
int mr_file_read(const char *path, size_t max, char **out, size_t *out_len, struct mr_err *err);

#endif
