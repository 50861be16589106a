/* A worker's side of the memory that it shares with the server (shm/plane.h): take the oldest slot, read its message,
 * write its room and extents, say that it is done. One thread takes, runs and completes; mr_shm_task_is_cancelled may be asked from any. */
#ifndef MR_SHM_WORKER_H
#define MR_SHM_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct mr_shm_view;

struct mr_shm_view_fds {
    int control, input, output, homes;
    const int *home_fds; /* [home_count], copied */
    uint32_t home_count;
};

/** Maps the segments; the descriptors stay the caller's. worker: the number that the server gave. Errors: MR_E_INVALID
 *  (not such segments), MR_E_IO. */
int mr_shm_view_open(struct mr_shm_view **out, const struct mr_shm_view_fds *fds, uint32_t worker,
                     struct mr_err *err);
void mr_shm_view_close(struct mr_shm_view **v);

/** A slot that this worker runs. */
struct mr_shm_task {
    uint32_t slot;
    uint32_t home;
    uint64_t generation;
    uint64_t word; /* as it is while this worker runs it */
    const uint8_t *message;
    size_t message_bytes;
    uint8_t *room;
    size_t room_bytes;
    uint64_t room_offset; /* in the output segment */
};

/** Memory for outputs. */
struct mr_shm_span {
    uint8_t *data;
    uint64_t offset; /* in the output segment */
    uint64_t bytes;
};

/** Takes the oldest slot. False: there is none. */
bool mr_shm_claim(struct mr_shm_view *v, struct mr_shm_task *out);
/** Waits until there may be one: spins while that has been worth it lately, then sleeps; at most max_ns. */
void mr_shm_wait(struct mr_shm_view *v, int64_t max_ns);
/** Ends the sleep of all workers of the model that are in mr_shm_wait. Thread: any. */
void mr_shm_view_wake(struct mr_shm_view *v);
/** Extent number `index` that the server gave for outputs, besides the room. False: there are no more. */
bool mr_shm_task_extent(struct mr_shm_view *v, const struct mr_shm_task *t, uint32_t index,
                        struct mr_shm_span *out);
/** Asks the server for an extent of at least `bytes` and waits for it; it is then the last of mr_shm_task_extent.
 *  False: the server has no memory now. */
bool mr_shm_task_need(struct mr_shm_view *v, struct mr_shm_task *t, uint64_t bytes,
                      struct mr_shm_span *out);
/** Hands over one of several answers, which lies in room and extents, and waits until the server has taken it: as long
 *  as its client leaves earlier ones unread. Room and extents are free then; mr_shm_task_extent begins anew. Thread: any
 *  one at a time. Errors: the server's; MR_E_CANCELLED (it has taken the slot back). */
int mr_shm_task_answer(struct mr_shm_view *v, const struct mr_shm_task *t, struct mr_err *err);
/** Nobody waits for the answer. Thread: any. */
bool mr_shm_task_is_cancelled(const struct mr_shm_view *v, const struct mr_shm_task *t);
/** Hands the slot back to the server and wakes its home if that sleeps. False: the server has taken it back. */
bool mr_shm_complete(struct mr_shm_view *v, const struct mr_shm_task *t);
/** The same, but when other slots wait the home may be woken for several together: by the next that is completed, or by
 *  mr_shm_claim when it finds nothing. For executions that take less than a wake-up. */
bool mr_shm_complete_with_next(struct mr_shm_view *v, const struct mr_shm_task *t);
/** How far the load of the model has come, for reports. Thread: one at a time. */
void mr_shm_load_progress(struct mr_shm_view *v, const char *step, uint64_t done, uint64_t total);
/** Whether the server does not want the model any more. Thread: any; cheap. */
bool mr_shm_load_is_unwanted(const struct mr_shm_view *v);
/** This thread gets on: for the server's judgement whether it hangs. The first call also says which thread it is. */
void mr_shm_progress(struct mr_shm_view *v);
/** The bytes [offset, offset + bytes) of the input segment. NULL: beyond its end. */
const uint8_t *mr_shm_input(const struct mr_shm_view *v, uint64_t offset, uint64_t bytes);

#endif
