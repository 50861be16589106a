/* Files of class labels of an output. */
#ifndef MR_MODEL_LABELS_H
#define MR_MODEL_LABELS_H

#include "base/arena.h"
#include "base/err.h"

int mr_labels_read(struct mr_arena *arena, const char *path, const mr_str **out, size_t *out_count,
                   struct mr_err *err);

#endif
