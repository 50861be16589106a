/* Long work in turns, on a thread that others wait for.
 *
 * Requests choose how much work they are: a message that unpacks to a thousand times its size, an answer of fifty
 * million numbers as text. A `struct mr_turn` does such work on a stack of its own. In its inner loops the work calls
 * mr_turn_spend; when its time is over, that switches back to the thread's own stack, and the work goes on from there
 * at its next turn. So the code of the work stays straight, whatever it nests, and costs others no more than a slice.
 *
 * A `struct mr_turns` is the line of one thread: turns go round, each for a slice. What is new gets its first turn at
 * once while the round's time lasts, so that work which turns out to be short never stands behind long work.
 *
 * Why not a thread pool: work of thirty kilobytes would pay two wake-ups, a pool needs a policy against the very
 * requests that fill it, and the network threads would have to share the CPUs with it; here the share of long work
 * is what the loop says. Why not a state machine for each kind of work: there would be one for each nesting of JSON,
 * protobuf, zlib and text, each with its own errors.
 *
 * Thread: everything of one line on one thread. */
#ifndef MR_BASE_TURN_H
#define MR_BASE_TURN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct mr_turns;
struct mr_turn_stack;

/** One piece of long work. The struct is the caller's memory, zeroed, and stays until `done`. */
struct mr_turn {
    /** The work. It holds no lock, nothing that ends with the callback it began in, and starts no other turn. Not
     *  called at all when the work was ended before its first turn. */
    void (*work)(struct mr_turn *t);
    /** Called exactly once, on the thread's own stack: `work` has returned, or was never begun (status < 0). The
     *  struct may be freed within. */
    void (*done)(struct mr_turn *t);
    /** MR_OK, or why it was ended early (mr_turn_end; MR_E_EXHAUSTED: no memory for a stack). What `work` has made is
     *  not to be used then. */
    int status;
    bool may_refuse; /* mr_turns_refuse ends it */

    /* ---- private ---- */
    TAILQ_ENTRY(mr_turn) link;
    struct mr_turns *line; /* NULL: not in one */
    struct mr_turn_stack *stack;
    int64_t until_ns;
    int64_t left; /* to be spent before the clock is looked at */
    bool is_waiting;
};

TAILQ_HEAD(mr_turn_list, mr_turn);

struct mr_turns {
    struct mr_turn_list round;   /* whose turn is next stands first */
    struct mr_turn_list waiting; /* for a place in the round */
    size_t count;                /* in the round */
    int64_t slice_ns;
    int64_t used_ns; /* of this round's time for what is new */
    int refusal;
    struct mr_turn_stack *stacks; /* kept for the next */
    size_t stack_count;
    uint64_t turns; /* given in rounds, ever */
};

void mr_turns_init(struct mr_turns *line, int64_t slice_ns);
/** Ends all that is in it (MR_E_CLOSED) and calls their `done`. */
void mr_turns_end(struct mr_turns *line);
/** Frees what it keeps; it must be empty. */
void mr_turns_fini(struct mr_turns *line);

/** Let the work begin: now, if the round has time left, otherwise when its turn comes. `done` may be called within. */
void mr_turns_add(struct mr_turns *line, struct mr_turn *t);
/** One round: a slice for whoever is next, and for more while it lasts. To be called once per iteration of a loop,
 *  after everything else. */
void mr_turns_run(struct mr_turns *line);
/** Ends work with may_refuse with `status`: what is in the line at once, what comes later when it is added. */
void mr_turns_refuse(struct mr_turns *line, int status);
static inline bool mr_turns_is_empty(const struct mr_turns *line)
{
    return TAILQ_EMPTY(&line->round);
}

/** Gives the result up: the work ends at its next mr_turn_spend, `done` follows in the next round.
 *  Nothing happens when it is not in a line, or was ended before. */
void mr_turn_end(struct mr_turn *t, int status);
/** Between mr_turns_add and `done`. */
static inline bool mr_turn_is_open(const struct mr_turn *t)
{
    return t->line != NULL;
}

/* ---- within the work ---- */

/** The turn that the thread is inside of, or NULL. */
extern _Thread_local struct mr_turn *mr_turn_now;
bool mr_turn_pause(struct mr_turn *t);
#define MR_TURN_LOOK 16384

/** So much was done, in units of about a nanosecond (a byte of text, say); at MR_TURN_LOOK and more the clock is looked
 *  at. May switch to other work. False: come to an end, the result is not wanted. Outside of a turn: true, at
 *  the price of a load. */
static inline bool mr_turn_spend(uint64_t units)
{
    struct mr_turn *t = mr_turn_now;

    if (!t) {
        return true;
    }
    t->left -= (int64_t)(units < MR_TURN_LOOK ? units : MR_TURN_LOOK);
    return t->left > 0 || mr_turn_pause(t);
}
/** memcpy of any size; false as above, with `to` filled in part. */
bool mr_turn_copy(void *to, const void *from, size_t n);

#endif
