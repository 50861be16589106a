/* The server's side of the memory that it shares with the workers of one model.
 *
 * Only the server allocates and frees. It fills a slot's message, submits the slot, and gets it back with the worker's data
 * in the slot's room, or because the worker has died. Workers pull: an idle worker takes the oldest slot. One word of a
 * slot holds its generation, owner, attempts and state; a worker takes a slot with the compare-and-swap that records it as
 * the owner, so no death leaves a slot without an owner.
 *
 * Nothing that a worker can write is trusted: it can corrupt the answers of its own model, which is detected
 * (MR_SHM_DAMAGED), and nothing else. Functions may be called from any thread unless they say otherwise; one mutex, held
 * for a few dozen instructions, guards a model's slots. */
#ifndef MR_SHM_PLANE_H
#define MR_SHM_PLANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/pool.h"
#include "shm/heap.h"
#include "shm/homes.h"

#define MR_SHM_WORKERS_MAX 64u
#define MR_SHM_ANY         UINT32_MAX /* no worker in particular */

struct mr_shm;

struct mr_shm_options {
    const char *name; /* of the model, for /proc */
    uint32_t slots; /* executions submitted at once; rounded up to a power of two, at most 1,024 */
    uint32_t message_bytes; /* per slot; multiple of 4,096 */
    uint32_t room_bytes;    /* per slot; multiple of 4,096 */
    /* of the heaps for large inputs, bodies and outputs: address space, not memory */
    uint64_t input_bytes, body_bytes, output_bytes;
    struct mr_shm_homes *homes; /* borrowed */
    bool has_bound;             /* slots may be bound to a worker */
};

/** One slot, from mr_shm_take to mr_shm_give. */
struct mr_shm_slot {
    uint32_t index;
    uint8_t *message; /* for the worker to read */
    size_t message_cap;
    const uint8_t *room;   /* written by the worker: copy, check, use */
    const uint8_t *letter; /* in the room: the one of mr_shm_next_letter */
    size_t room_bytes;
    uint64_t room_offset; /* in the output segment */
    uint32_t attempts;    /* number of workers that died with it */
    uint32_t worker;      /* of the last outcome but WAITING */
    uint32_t process;     /* which of that worker's (mr_shm_worker_begin) */
    /* Set by the caller before the first submission: the worker that has to take it, or MR_SHM_ANY, and the life of that
     * worker, 0 = any. */
    uint32_t bound;
    uint64_t life;
    void *user; /* the caller's */
    /* The caller's, for mr_shm_worker_state; set before it is submitted. */
    int64_t rows;
    bool is_last;     /* it does not run again if its worker ends */
    bool is_unwanted; /* the answer to MR_SHM_WAITING */
};

int mr_shm_new(struct mr_shm **out, const struct mr_shm_options *o, struct mr_err *err);
/** All workers have ended and no slot is taken. Blocks of its heaps may remain with clients that read or write slowly: they
 *  keep their memory, and new ones are refused. */
void mr_shm_free(struct mr_shm **p);

/** The descriptors that a worker gets besides those of the homes. Borrowed. */
struct mr_shm_fds {
    int control, input, output;
};
struct mr_shm_fds mr_shm_get_fds(const struct mr_shm *p);

/** The heaps of large inputs and outputs. Workers can read blocks of the first two, and write blocks of the third. The
 *  second one is for inputs that clients send at their own pace, as slow clients may take all of it. */
struct mr_shm_heap *mr_shm_inputs(struct mr_shm *p);
struct mr_shm_heap *mr_shm_bodies(struct mr_shm *p);
struct mr_shm_heap *mr_shm_outputs(struct mr_shm *p);
/** True if those bytes lie in the input segment, in a block of the first two heaps that the caller holds; also gives their
 *  offset. */
bool mr_shm_input_at(const struct mr_shm *p, const void *data, uint64_t bytes,
                     uint64_t *out_offset);

/* ---- slots ---- */

/** A free slot. NULL: there is none. */
struct mr_shm_slot *mr_shm_take(struct mr_shm *p);
/** Adds the slot to the queue, at its end, or before all new ones (is_again). `message_bytes` of its message are set.
 *  home: the one whose mr_shm_poll returns it. Output extents of an earlier submission are kept. False: it is bound to a
 *  life that has ended, and stays the caller's. */
bool mr_shm_submit(struct mr_shm *p, struct mr_shm_slot *s, size_t message_bytes, uint32_t home,
                   bool is_again);
/** The same without a wake-up: mr_shm_ring has to follow soon. */
bool mr_shm_submit_quietly(struct mr_shm *p, struct mr_shm_slot *s, size_t message_bytes,
                           uint32_t home, bool is_again);
/** Wakes workers that sleep, up to `count`. */
void mr_shm_ring(struct mr_shm *p, uint32_t count);
/** Adds an extent for outputs of up to `bytes`, besides the room. False: no memory now, or the slot has the most extents.
 *  The slot is the caller's (not submitted). */
bool mr_shm_add_extent(struct mr_shm *p, struct mr_shm_slot *s, size_t bytes);
/** Withdraws a submitted slot that no worker has taken. False: one has taken it. */
bool mr_shm_withdraw(struct mr_shm *p, struct mr_shm_slot *s);
/** Makes the worker's is_cancelled return true. For a slot that is submitted, or between two answers. */
void mr_shm_cancel(struct mr_shm *p, struct mr_shm_slot *s);
/** For a caller that does not own the slot, which may have been reused: acts as mr_shm_withdraw, or else as mr_shm_cancel,
 *  if the slot is submitted and its `user` is that one. True: the slot is the caller's. */
bool mr_shm_cancel_of(struct mr_shm *p, struct mr_shm_slot *s, const void *user);
/** Reports a cancelled slot that a worker runs. generation: the worker's number for this submission. */
typedef void(mr_shm_cancelled_fn)(void *ctx, uint32_t worker, uint32_t slot, uint64_t generation);
/** Reports the slots that have been cancelled since the last call. The function calls nothing of mr_shm. */
void mr_shm_cancelled(struct mr_shm *p, mr_shm_cancelled_fn *fn, void *ctx);
/** A block that holds the bytes [offset, offset + bytes) of the output segment, which lie in an extent of the slot, and
 *  their address. The slot owns the block: take a reference. NULL with *out_data set: they lie in the room. False: they
 *  lie in neither. */
bool mr_shm_output_at(struct mr_shm *p, const struct mr_shm_slot *s, uint64_t offset,
                      uint64_t bytes, const uint8_t **out_data, struct mr_block **out_block);
/** True if it has extents for outputs besides the room. */
bool mr_shm_has_extents(const struct mr_shm_slot *s);
/** Frees the slot and drops its extents. */
void mr_shm_give(struct mr_shm *p, struct mr_shm_slot *s);

enum mr_shm_outcome {
    MR_SHM_DONE,    /* the room holds the worker's answer */
    MR_SHM_ANSWER,  /* it holds letters (mr_shm_next_letter), until mr_shm_go_on */
    MR_SHM_LOST,    /* its worker died; submit it again, or give it back */
    MR_SHM_DAMAGED, /* its word is invalid: a worker of this model has corrupted it */
    MR_SHM_WAITING, /* by mr_shm_sweep only: no worker has taken it yet, and it is not the caller's */
    MR_SHM_WITHDRAWN /* it waited, and was unwanted */
};
/** After MR_SHM_ANSWER: s->letter is the next letter that the worker has left. False: mr_shm_go_on has to follow. */
bool mr_shm_next_letter(struct mr_shm *p, struct mr_shm_slot *s);
/** The worker has posted its letters, and not waited for what becomes of them. */
bool mr_shm_is_posted(const struct mr_shm_slot *s);
/** After the letters: the worker continues, with that status of its letter if it waits. why: the reason of a status below
 *  0. Extents that are still referenced are replaced. The slot is not the caller's any more. False: the worker has died in
 *  between, as with MR_SHM_LOST. */
bool mr_shm_go_on(struct mr_shm *p, struct mr_shm_slot *s, int status, const char *why);

/** Returns the slot to the caller, except with MR_SHM_WAITING: that one is called with the lock of the slots held, so that
 *  the slot cannot be reused in between. The function then calls nothing of mr_shm, and sets s->is_unwanted to withdraw the
 *  slot, which MR_SHM_WITHDRAWN confirms. */
typedef void(mr_shm_outcome_fn)(void *ctx, struct mr_shm_slot *s, enum mr_shm_outcome outcome);

/** Hands out the completed slots of the home, and gives extents to workers that need them. Returns the number of outcomes.
 *  Thread: the home. */
size_t mr_shm_poll(struct mr_shm *p, uint32_t home, mr_shm_outcome_fn *fn, void *ctx);
/** Slots of a home that are submitted, or between two answers. Thread: any; a snapshot. */
uint32_t mr_shm_pending(struct mr_shm *p, uint32_t home);

/* ---- workers ---- */

/** The number of slots that a worker runs at once, at first 1: more are damage. Before the first submission. */
void mr_shm_set_at_once(struct mr_shm *p, uint32_t count);
/** Registers a process of worker `worker` (0..63), which is about to start and may then own slots. Returns its number among that
 *  worker's. */
uint32_t mr_shm_worker_begin(struct mr_shm *p, uint32_t worker);
/** The number of the worker's life. A change means that it has died and has lost the state that it keeps between slots bound
 *  to it. Thread: any. */
uint64_t mr_shm_worker_life(const struct mr_shm *p, uint32_t worker);
/** Handles the death of the worker, after the end of all of its threads. Its slots are returned as LOST (or as DONE); a slot
 *  that it has removed from the queue without recording itself as the owner is queued again. */
void mr_shm_worker_end(struct mr_shm *p, uint32_t worker, mr_shm_outcome_fn *fn, void *ctx);

#define MR_SHM_STEP_BYTES 48

/** The load progress that a worker reports. */
struct mr_shm_load {
    uint64_t done, total;
    char step[MR_SHM_STEP_BYTES]; /* printable ASCII; "": it has said nothing */
};
/** Thread: any. */
struct mr_shm_load mr_shm_worker_load(const struct mr_shm *p, uint32_t worker);
/** Informs workers that load the model that the load is cancelled. Thread: any. */
void mr_shm_set_unwanted(struct mr_shm *p);

/** The state of a worker. */
struct mr_shm_worker_state {
    struct mr_shm_slot *slot; /* that it runs; NULL = none */
    uint32_t running;         /* number of those that it runs */
    /* number of these that its executing thread has left to end later, untrusted */
    uint32_t pending;
    int64_t rows; /* of the slot, and is_last */
    bool is_last;
    /* time of the first sweep that saw the oldest of them, or saw it again after an answer; 0 = none runs, or all wait for the
     * caller */
    int64_t oldest_ns;
    uint64_t progress; /* changes while its executing thread gets on, and when mail is read */
    uint32_t thread;   /* the id of its executing thread as it reports it, untrusted; 0 = none */
};
/** Repairs damage that a faulty or hostile worker can do to the queue, returns invalid slots as DAMAGED, reports waiting
 *  slots, and gives the state of each worker ([MR_SHM_WORKERS_MAX]). Called every few tens of milliseconds from one
 *  thread. */
void mr_shm_sweep(struct mr_shm *p, int64_t now_ns, struct mr_shm_worker_state *out_states,
                  mr_shm_outcome_fn *fn, void *ctx);

struct mr_shm_stats {
    uint64_t submitted;
    uint64_t wakes;   /* system calls that woke a worker */
    uint64_t needs;   /* extents asked for by workers */
    uint64_t no_slot; /* failed calls of mr_shm_take */
    uint64_t requeued;
    uint64_t damaged;
    uint32_t slots_used;
    uint32_t slots;
};
struct mr_shm_stats mr_shm_get_stats(struct mr_shm *p);

#endif
