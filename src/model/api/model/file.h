/* Files of models and of settings, which are not trusted to be what their names say. */
#ifndef MR_MODEL_FILE_H
#define MR_MODEL_FILE_H

#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

/** A model's name, which is that of its folder: 1..255 bytes of UTF-8 without '/', "..", control characters; not ".". */
int mr_model_name_check(mr_str name, struct mr_err *err);
/** Reads a regular file of at most max bytes, NUL-terminated; never waits for a FIFO. Free *out with mr_free. Errors: MR_E_NOT_FOUND,
 *  MR_E_FORBIDDEN, MR_E_INVALID (not a regular file), MR_E_TOO_LARGE, MR_E_NOMEM, MR_E_IO. Thread: any; blocks on the disk. */
int mr_file_read(const char *path, size_t max, char **out, size_t *out_len, struct mr_err *err);

#endif
