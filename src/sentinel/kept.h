/* Sealed files in memory, held by descriptor, that the first worker of a model leaves to later ones. */
#ifndef SENTINEL_KEPT_H
#define SENTINEL_KEPT_H

#include "base/err.h"
#include "ipc/frame.h"
#include "millrace/backend.h"

struct kept {
    struct mr_model_kept files;
    uint64_t bytes; /* of all of them */
};

/* Takes the descriptors (all of them, also on failure). Errors: MR_E_INVALID (one of them is not memory, or is not
 * sealed). */
int kept_take(struct kept *k, struct mr_frame_fds *fds, struct mr_err *err);
void kept_close(struct kept *k);
void kept_fds_close(struct mr_frame_fds *fds);

#endif
