/* What the first worker of a model leaves to the next ones: sealed files in memory, held by descriptor. */
#ifndef SENTINEL_KEPT_H
#define SENTINEL_KEPT_H

#include "base/err.h"
#include "ipc/frame.h"
#include "millrace/backend.h"

struct kept {
    struct mr_model_kept files;
    uint64_t bytes; /* of all of them */
};

/* Takes the descriptors (all of them, also on failure). Errors: MR_E_INVALID (one of them is no memory, or could still
 * be changed). */
int kept_take(struct kept *k, struct mr_frame_fds *fds, struct mr_err *err);
void kept_close(struct kept *k);
void kept_fds_close(struct mr_frame_fds *fds);

#endif
