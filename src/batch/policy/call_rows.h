/* How many rows a call has.
 *
 * As many as the options say, or as hosts have shown to take by refusing more (413, 400). But hosts also fail because a call
 * is too large: without memory for it, or with a model for single rows. This cannot be distinguished from an outage.
 * So while no host works, trial calls have one row; each success doubles the rows of the next calls up to the
 * previous number, or until that many fail again. Then calls have half as many, and one in 32, then 64 ... 4096
 * tries more.
 *
 * Thread: the loop's. */
#ifndef MR_BATCH_CALL_ROWS_H
#define MR_BATCH_CALL_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#define CALL_ROWS_TRIAL_LEAST 32
#define CALL_ROWS_TRIAL_MOST  4096

struct call_rows {
    uint64_t most;    /* >= 1 */
    uint64_t now;     /* 1 ... most */
    uint64_t bad;     /* this many have failed where fewer did not; 0: none */
    uint32_t good;    /* calls of `now` rows that succeeded since the last trial */
    uint32_t every;   /* as many before the next one */
    bool is_careful;  /* since no host was well, until a call of `most` rows succeeds */
    bool is_on_trial; /* a call of more than `now` rows is under way */
};

/** Starts with this many rows, without history. */
void call_rows_set(struct call_rows *r, uint64_t most);
/** Calls may have more than they could: one of twice as many is tried soon. */
void call_rows_raise(struct call_rows *r, uint64_t most);
/** Hosts take no more than that. */
void call_rows_limit(struct call_rows *r, uint64_t most);
/** Of the next call: more than `now` when it is to be a trial, which it is when it gets as many. */
uint64_t call_rows_next(const struct call_rows *r);
/** A call of this many rows was cut. True: it is the trial. */
bool call_rows_cut(struct call_rows *r, uint64_t rows);
/** The trial was divided and is inconclusive: another one follows. */
void call_rows_untried(struct call_rows *r);
void call_rows_ok(struct call_rows *r, uint64_t rows);
/** is_doubtful: no host works. True: calls are now reduced to one row. */
bool call_rows_failed(struct call_rows *r, uint64_t rows, bool is_doubtful);

#endif
