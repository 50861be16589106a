/* A worker's side of the memory that it shares with the server (shm/plane.h): it takes the oldest slot, reads its message,
 * writes its room and extents, and completes it. One thread takes, runs and completes; mr_shm_task_is_cancelled may be
 * called from any. */
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

/** Maps the segments; the descriptors stay the caller's. worker: the number that the server has assigned. Errors:
 *  MR_E_INVALID (segments of another kind), MR_E_IO. */
int mr_shm_view_open(struct mr_shm_view **out, const struct mr_shm_view_fds *fds, uint32_t worker,
                     struct mr_err *err);
void mr_shm_view_close(struct mr_shm_view **v);

/** A slot that this worker runs. */
struct mr_shm_task {
    uint32_t slot;
    uint32_t home;
    uint64_t generation;
    uint64_t word; /* its value while this worker runs it */
    const uint8_t *message;
    size_t message_bytes;
    uint8_t *room;
    size_t room_bytes;
    uint64_t room_offset; /* in the output segment */
    uint32_t posted;      /* letters */
};

/** Memory for outputs. */
struct mr_shm_range {
    uint8_t *data;
    uint64_t offset; /* in the output segment */
    uint64_t bytes;
};

/** Takes the oldest slot. False: there is none. */
bool mr_shm_claim(struct mr_shm_view *v, struct mr_shm_task *out);
/** Waits until there may be one: spins if that has been effective recently and this process, when it opened the view, might use
 *  more than one CPU, then sleeps; at most max_ns. */
void mr_shm_wait(struct mr_shm_view *v, int64_t max_ns);
/** Wakes all workers of the model that sleep in mr_shm_wait. Thread: any. */
void mr_shm_view_wake(struct mr_shm_view *v);
/** Extent number `index` that the server gave for outputs, besides the room. False: there are no more. */
bool mr_shm_task_extent(struct mr_shm_view *v, const struct mr_shm_task *t, uint32_t index,
                        struct mr_shm_range *out);
/** Requests an extent of at least `bytes` from the server and waits for it; it is then the last one of mr_shm_task_extent.
 *  False: the server has no memory now. */
bool mr_shm_task_need(struct mr_shm_view *v, struct mr_shm_task *t, uint64_t bytes,
                      struct mr_shm_range *out);
/** Hands over one of several answers, which lies in room and extents, and blocks until the server has taken it, which it
 *  does not do while the client leaves earlier ones unread. Room and extents are free afterwards; mr_shm_task_extent starts
 *  from the first one. Letters are settled before. Thread: any, one at a time. Errors: the server's; MR_E_CANCELLED (it has withdrawn the slot). */
int mr_shm_task_answer(struct mr_shm_view *v, const struct mr_shm_task *t, struct mr_err *err);
/** Room for a letter of at most out->bytes, which is posted without a wait for what becomes of it; blocks while the server
 *  has not read 16 earlier ones. Thread: as mr_shm_task_answer. False: the server has withdrawn the slot. */
bool mr_shm_task_letter(struct mr_shm_view *v, const struct mr_shm_task *t,
                        struct mr_shm_range *out);
/** Posts the letter that lies there. False: the server has withdrawn the slot. */
bool mr_shm_task_post(struct mr_shm_view *v, struct mr_shm_task *t);
/** Waits until the server has read all letters: they lie in the room, which is free for other uses afterwards. False: as
 *  above. */
bool mr_shm_task_settle(struct mr_shm_view *v, const struct mr_shm_task *t);
/** True if the execution is cancelled. Thread: any. */
bool mr_shm_task_is_cancelled(const struct mr_shm_view *v, const struct mr_shm_task *t);
/** Completes the slot, and wakes its home if that sleeps. False: the server has withdrawn the slot. */
bool mr_shm_complete(struct mr_shm_view *v, const struct mr_shm_task *t);
/** The same, but while other slots wait one wake-up of the home may serve several: the next completion makes it, or
 *  mr_shm_claim when it finds none. For executions that take less time than a wake-up. */
bool mr_shm_complete_with_next(struct mr_shm_view *v, const struct mr_shm_task *t);
/** mr_shm_complete for a slot that another thread than the executing one ends. */
bool mr_shm_complete_apart(const struct mr_shm_view *v, const struct mr_shm_task *t);
/** A slot is pending, `by` 1, or ends, -1: the time until its end says nothing about the executing thread. Thread: any. */
void mr_shm_count_pending(const struct mr_shm_view *v, int by);
/** Reports the progress of the load. Thread: one at a time. */
void mr_shm_load_progress(struct mr_shm_view *v, const char *step, uint64_t done, uint64_t total);
/** True if the server has cancelled the load. Thread: any; cheap. */
bool mr_shm_load_is_unwanted(const struct mr_shm_view *v);
/** The oldest message of the server (shm/mail.h): its offset in the input segment. It lies there until mr_shm_mail_taken, or as
 *  long as the server otherwise says. False: there is none. Thread: one at a time, as the next two. */
bool mr_shm_mail_next(struct mr_shm_view *v, uint64_t *out_offset);
/** That message has been read. */
void mr_shm_mail_taken(struct mr_shm_view *v);
/** Sleeps until there is a message; at most max_ns. */
void mr_shm_mail_wait(struct mr_shm_view *v, int64_t max_ns);
/** Wakes the thread in mr_shm_mail_wait, if it sleeps already. Thread: any. */
void mr_shm_mail_wake(struct mr_shm_view *v);
/** Records progress of this thread, from which the server detects hangs. The first call also reports the thread's id. */
void mr_shm_progress(struct mr_shm_view *v);
/** The bytes [offset, offset + bytes) of the input segment. NULL: they exceed its end. */
const uint8_t *mr_shm_input(const struct mr_shm_view *v, uint64_t offset, uint64_t bytes);

#endif
