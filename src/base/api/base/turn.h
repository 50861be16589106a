/* Long work in time slices, on a thread that also serves others.
 *
 * A request determines the amount of its work: a message may unpack to a thousand times its size, an answer may be
 * fifty million numbers as text. A `struct mr_turn` does such work on a stack of its own. The inner loops of the work
 * call mr_turn_spend; when the slice is used up, it switches to the thread's own stack, and the work continues there
 * at its next turn. So the work is written as straight code, and delays others by at most one slice.
 *
 * A `struct mr_turns` is the queue of one thread: turns run round-robin, each for a slice. New work gets its first
 * turn at once while the round's time lasts, so that short work does not wait for long work.
 *
 * Why not a thread pool: work on thirty kilobytes would cost two wake-ups, a pool needs a policy against requests
 * that fill it, and it would compete with the network threads for CPUs; here the loop sets the share of long work.
 * Why not a state machine for each kind of work: each nesting of JSON, protobuf, zlib and text would need one, with
 * its own errors.
 *
 * Thread: all calls for one `struct mr_turns` on one thread. */
#ifndef MR_BASE_TURN_H
#define MR_BASE_TURN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/arena.h"

struct mr_turns;
struct mr_turn_stack;

/** One piece of long work. The struct is the caller's memory, zeroed, and stays until `done`. */
struct mr_turn {
    /** The work. It must not hold a lock or anything that ends with the callback in which it was added, and must not
     *  start another turn. Not called if the work was ended before its first turn. */
    void (*work)(struct mr_turn *t);
    /** Called exactly once, on the thread's own stack, after `work` has returned or if it was never called (status <
     *  0). May free the struct. */
    void (*done)(struct mr_turn *t);
    /** MR_OK, or the reason for an early end (mr_turn_end; MR_E_EXHAUSTED: no memory for a stack). The results of
     *  `work` must not be used then. */
    int status;
    bool may_refuse; /* mr_turns_refuse ends it */

    /* ---- private ---- */
    TAILQ_ENTRY(mr_turn) link;
    struct mr_turns *line; /* NULL: not queued */
    struct mr_turn_stack *stack;
    int64_t until_ns;
    int64_t left; /* units to spend before the clock is read */
    bool is_waiting;
};

TAILQ_HEAD(mr_turn_list, mr_turn);

struct mr_turns {
    struct mr_turn_list round;   /* the next turn is the first */
    struct mr_turn_list waiting; /* for room in the round */
    size_t count;                /* in the round */
    int64_t slice_ns;
    int64_t used_ns; /* of this round's time for new work */
    int refusal;
    struct mr_turn_stack *stacks; /* kept for the next */
    size_t stack_count;
    uint64_t turns; /* run so far */
};

void mr_turns_init(struct mr_turns *line, int64_t slice_ns);
/** Ends all its turns (MR_E_CLOSED) and calls their `done`. */
void mr_turns_end(struct mr_turns *line);
/** Frees the kept stacks. All turns must have ended. */
void mr_turns_fini(struct mr_turns *line);

/** Starts the work: now if the round has time left, otherwise at its turn. May call `done`. */
void mr_turns_add(struct mr_turns *line, struct mr_turn *t);
/** Runs one round: the next turn for a slice, and further ones if time is left. The loop calls it once per iteration,
 *  after everything else. */
void mr_turns_run(struct mr_turns *line);
/** Ends all queued work that has may_refuse with `status`, and later such work as it is added. */
void mr_turns_refuse(struct mr_turns *line, int status);
static inline bool mr_turns_is_empty(const struct mr_turns *line)
{
    return TAILQ_EMPTY(&line->round);
}

/** Cancels the work: it ends at its next mr_turn_spend, `done` follows in the next round. No effect if it is not
 *  queued or was ended before. */
void mr_turn_end(struct mr_turn *t, int status);
/** True between mr_turns_add and `done`. */
static inline bool mr_turn_is_open(const struct mr_turn *t)
{
    return t->line != NULL;
}

/* ---- within the work ---- */

/** The turn that runs on this thread, or NULL. */
extern _Thread_local struct mr_turn *mr_turn_now;
bool mr_turn_pause(struct mr_turn *t);
#define MR_TURN_STEP 16384

/** Reports work done, in units of about a nanosecond (one byte of text, for example); every MR_TURN_STEP units it
 *  reads the clock. May switch to other work. False: the work was cancelled and should return. Outside of a turn it
 *  returns true and costs one load. */
static inline bool mr_turn_spend(uint64_t units)
{
    struct mr_turn *t = mr_turn_now;

    if (!t) {
        return true;
    }
    t->left -= (int64_t)(units < MR_TURN_STEP ? units : MR_TURN_STEP);
    return t->left > 0 || mr_turn_pause(t);
}
/** memcpy of any size. False as above, with `to` partly filled. */
bool mr_turn_copy(void *to, const void *from, size_t n);
/** A copy of any size in an arena, with a terminator. ptr NULL: no memory, or false as above. */
mr_str mr_turn_str(struct mr_arena *a, mr_str s);

#endif
