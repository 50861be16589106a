/* The server's side of the memory that it shares with the workers of one model.
 *
 * The server is the only one that allocates and takes back. It fills a slot's message, submits the slot, and gets it
 * back with what the worker wrote into the slot's room, or because the worker died. Workers pull: whoever is idle takes
 * the oldest. A slot's one word says its generation, owner, attempts and state; taking a slot is the compare-and-swap
 * that records the owner, so that no death leaves a slot that belongs to nobody.
 *
 * Nothing that a worker can write is believed: it can spoil the answers of its own model, and has this noticed
 * (MR_SHM_DAMAGED), nothing else. Functions may be called from any thread unless they say otherwise; a model's slots
 * are guarded by one mutex, held for a few dozen instructions. */
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
    uint32_t
        slots; /* executions that may be with the workers at once; rounded up to a power of two, at most 1,024 */
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
    const uint8_t *room; /* written by the worker: copy, check, use */
    size_t room_bytes;
    uint64_t room_offset; /* in the output segment */
    uint32_t attempts;    /* times that a worker died with it */
    uint32_t worker;      /* of the last outcome but WAITING */
    /* Set by the caller before the first submission: the worker that has to take it, or MR_SHM_ANY, and in which life,
     * 0 = any. */
    uint32_t bound;
    uint64_t life;
    void *user;       /* the caller's */
    int64_t rows;     /* the caller's, for mr_shm_worker_state; set before it is submitted */
    bool is_unwanted; /* answers MR_SHM_WAITING */
};

int mr_shm_new(struct mr_shm **out, const struct mr_shm_options *o, struct mr_err *err);
/** No worker lives and no slot is taken. Blocks of its heaps may be left, at clients that read or write slowly: they keep
 *  their memory, and no more are made. */
void mr_shm_free(struct mr_shm **p);

/** What a worker is given, besides the homes: descriptors, borrowed. */
struct mr_shm_fds {
    int control, input, output;
};
struct mr_shm_fds mr_shm_get_fds(const struct mr_shm *p);

/** Where large inputs and outputs live. Blocks of the first two can be read by the workers, of the third written. The
 *  second is for inputs that clients send at their pace, who may take all of it. */
struct mr_shm_heap *mr_shm_inputs(struct mr_shm *p);
struct mr_shm_heap *mr_shm_bodies(struct mr_shm *p);
struct mr_shm_heap *mr_shm_outputs(struct mr_shm *p);
/** Whether workers find those bytes in the input segment, in a block of the first two heaps that the caller holds, and
 *  at which offset. */
bool mr_shm_input_at(const struct mr_shm *p, const void *data, uint64_t bytes,
                     uint64_t *out_offset);

/* ---- slots ---- */

/** A free slot. NULL: there is none. */
struct mr_shm_slot *mr_shm_take(struct mr_shm *p);
/** Puts the slot into the line, behind all others, or before all that are new (is_again). `message_bytes` of its message
 *  are set. home: whose mr_shm_poll gets it. Its output extents are kept from an earlier submission. False: it is bound to
 *  a life that is over, and still the caller's. */
bool mr_shm_submit(struct mr_shm *p, struct mr_shm_slot *s, size_t message_bytes, uint32_t home,
                   bool is_again);
/** The same, but nobody is woken: mr_shm_ring has to follow, soon. */
bool mr_shm_submit_quietly(struct mr_shm *p, struct mr_shm_slot *s, size_t message_bytes,
                           uint32_t home, bool is_again);
/** Wakes workers that sleep, up to `count`. */
void mr_shm_ring(struct mr_shm *p, uint32_t count);
/** Lets the worker put outputs of up to bytes there, besides the room. False: no memory now, or the slot has as many as
 *  it can have. The slot is the caller's (not submitted). */
bool mr_shm_add_extent(struct mr_shm *p, struct mr_shm_slot *s, size_t bytes);
/** Takes back a submitted slot that no worker has taken. False: one has. */
bool mr_shm_withdraw(struct mr_shm *p, struct mr_shm_slot *s);
/** The worker's is_cancelled says true from now on. For a slot that is submitted, or between two answers. */
void mr_shm_cancel(struct mr_shm *p, struct mr_shm_slot *s);
/** For somebody who does not own the slot and may come late: takes it back as mr_shm_withdraw, or else does what
 *  mr_shm_cancel does. Nothing happens unless the slot is submitted and its `user` is that one. True: it is the caller's. */
bool mr_shm_cancel_of(struct mr_shm *p, struct mr_shm_slot *s, const void *user);
/** A slot that a worker runs is cancelled. generation: the worker's number for this submission. */
typedef void(mr_shm_cancelled_fn)(void *ctx, uint32_t worker, uint32_t slot, uint64_t generation);
/** Names those that have been cancelled since the last call. The function calls nothing of mr_shm. */
void mr_shm_cancelled(struct mr_shm *p, mr_shm_cancelled_fn *fn, void *ctx);
/** A block that holds the bytes [offset, offset + bytes) of the output segment, which lie in an extent of the slot, and
 *  their address. The block is the slot's: take a reference. NULL with *out_data set: they lie in the room. False: they
 *  lie in neither. */
bool mr_shm_output_at(struct mr_shm *p, const struct mr_shm_slot *s, uint64_t offset,
                      uint64_t bytes, const uint8_t **out_data, struct mr_block **out_block);
/** Whether it was given more than the room for its outputs. */
bool mr_shm_has_extents(const struct mr_shm_slot *s);
/** The slot is free; its extents are dropped. */
void mr_shm_give(struct mr_shm *p, struct mr_shm_slot *s);

enum mr_shm_outcome {
    MR_SHM_DONE,    /* the room has the worker's answer */
    MR_SHM_ANSWER,  /* it has one of several, and the worker waits for mr_shm_go_on */
    MR_SHM_LOST,    /* its worker died; submit it again, or give it back */
    MR_SHM_DAMAGED, /* its word makes no sense: a worker of this model writes where it must not */
    MR_SHM_WAITING, /* by mr_shm_sweep only: no worker has taken it yet, and it is not the caller's */
    MR_SHM_WITHDRAWN /* it waited, and was unwanted */
};
/** After MR_SHM_ANSWER: the worker goes on, and learns what came of its answer. why: of a status below 0. Extents that
 *  the answer still refers to stay, others take their place. The slot is not the caller's any more. False: the worker
 *  has died meanwhile, as with MR_SHM_LOST. */
bool mr_shm_go_on(struct mr_shm *p, struct mr_shm_slot *s, int status, const char *why);

/** The slot is the caller's again, but with MR_SHM_WAITING: this is told with the lock of the slots held, as otherwise the
 *  slot might be another request's by then. The function then calls nothing of mr_shm; it sets s->is_unwanted if the
 *  slot is to be taken out of the line, which MR_SHM_WITHDRAWN confirms. */
typedef void(mr_shm_outcome_fn)(void *ctx, struct mr_shm_slot *s, enum mr_shm_outcome outcome);

/** Hands out what is done and belongs to the home; gives extents to workers that need them. Returns the number of
 *  outcomes. Thread: the home. */
size_t mr_shm_poll(struct mr_shm *p, uint32_t home, mr_shm_outcome_fn *fn, void *ctx);
/** Slots of a home that are submitted, or between two answers. Thread: any; a snapshot. */
uint32_t mr_shm_pending(struct mr_shm *p, uint32_t home);

/* ---- workers ---- */

/** Worker `worker` (0..63) is about to start, and may own slots. */
void mr_shm_worker_begin(struct mr_shm *p, uint32_t worker);
/** A number for what a worker keeps between slots that are bound to it: another one says that it died, and that this is
 *  lost. Thread: any. */
uint64_t mr_shm_worker_life(const struct mr_shm *p, uint32_t worker);
/** It is dead: no thread of it runs any more. What it had is handed out as LOST (or DONE, if it was), what it had taken
 *  out of the line without recording itself is put back. */
void mr_shm_worker_end(struct mr_shm *p, uint32_t worker, mr_shm_outcome_fn *fn, void *ctx);

#define MR_SHM_STEP_BYTES 48

/** How far a worker has come with the model, in its own words. */
struct mr_shm_load {
    uint64_t done, total;
    char step[MR_SHM_STEP_BYTES]; /* printable ASCII; "": it has said nothing */
};
/** Thread: any. */
struct mr_shm_load mr_shm_worker_load(const struct mr_shm *p, uint32_t worker);
/** Workers that load the model learn that it is not wanted any more. Thread: any. */
void mr_shm_set_unwanted(struct mr_shm *p);

/** What a worker does. */
struct mr_shm_worker_state {
    struct mr_shm_slot *slot; /* that it runs; NULL = none */
    int64_t rows;             /* of the slot */
    int64_t since_ns;         /* the first look that saw it so */
    uint64_t progress;        /* its counter */
    uint32_t thread;          /* its word for its executing thread, 0 = none: not to be trusted */
};
/** To be called every few tens of milliseconds from one thread: heals what a careless or hostile worker can do to the
 *  line, hands out as DAMAGED what makes no sense, names what waits, and says what each worker does
 *  ([MR_SHM_WORKERS_MAX]). */
void mr_shm_sweep(struct mr_shm *p, int64_t now_ns, struct mr_shm_worker_state *out_states,
                  mr_shm_outcome_fn *fn, void *ctx);

struct mr_shm_stats {
    uint64_t submitted;
    uint64_t wakes;   /* system calls that woke a worker */
    uint64_t needs;   /* extents asked for by workers */
    uint64_t no_slot; /* mr_shm_take without one */
    uint64_t requeued;
    uint64_t damaged;
    uint32_t slots_used;
    uint32_t slots;
};
struct mr_shm_stats mr_shm_get_stats(struct mr_shm *p);

#endif
