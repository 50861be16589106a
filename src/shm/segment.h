/* Anonymous sealed memory, accessible by descriptor only. */
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
    SHM_SHARED,   /* every holder of the descriptor may write */
    SHM_READ_ONLY /* only this mapping may write */
};

/* Creates a segment of a fixed size. Pages are allocated when they are touched. name: for /proc only. Errors: MR_E_NOMEM,
 * MR_E_UNSUPPORTED (a kernel without the seal). */
int shm_segment_new(struct shm_segment *out, const char *name, size_t bytes, enum shm_rights rights,
                    struct mr_err *err);
/* Maps a segment by its descriptor, which stays the caller's. Errors: MR_E_IO; MR_E_INVALID (its size is not sealed). */
int shm_segment_map(struct shm_segment *out, int fd, enum shm_rights rights, struct mr_err *err);
/* Unmaps it, and closes the descriptor that shm_segment_new made. Accepts a segment that was never made. */
void shm_segment_close(struct shm_segment *s);
void shm_segment_unmap(struct shm_segment *s);
/* Returns pages of a segment to the system; they are zero when they are touched again. Without support of the kernel they
 * stay as they are. */
void shm_discard(int fd, uint64_t offset, uint64_t bytes);

#endif
