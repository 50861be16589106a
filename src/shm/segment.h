/* Anonymous sealed memory, found by descriptor only. */
#ifndef MR_SHM_SEGMENT_H
#define MR_SHM_SEGMENT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct shm_segment {
    int fd; /* -1: none */
    uint8_t *data;
    size_t bytes;
};

enum shm_rights {
    SHM_SHARED,   /* whoever has the descriptor may write */
    SHM_READ_ONLY /* only this mapping may write */
};

/* Pages come when they are touched. Its size cannot change. name: for /proc only. Errors: MR_E_NOMEM,
 * MR_E_UNSUPPORTED (a kernel without the seal). */
int shm_segment_new(struct shm_segment *out, const char *name, size_t bytes, enum shm_rights rights,
                    struct mr_err *err);
/* Map one that came by descriptor, which stays the caller's. Errors: MR_E_IO; MR_E_INVALID (it could change its size). */
int shm_segment_map(struct shm_segment *out, int fd, enum shm_rights rights, struct mr_err *err);
/* Unmaps; closes what shm_segment_new made. Accepts one that was never made. */
void shm_segment_close(struct shm_segment *s);
void shm_segment_unmap(struct shm_segment *s);
/* Gives pages of a segment back to the system; they are zero when they are touched again. Kernels and filters without it
 * keep them as they are. */
void shm_discard(int fd, uint64_t offset, uint64_t bytes);

#endif
