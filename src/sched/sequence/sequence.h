/* The sequences of one model version, as a state machine: which sequence has which place of which instance, which ones
 * wait for a place, and what an instance may run now.
 *
 * A sequence begins with a request that is marked as its start and ends when one that is marked as its end has run.
 * From its first request on it has a place in an instance, or waits for one in the backlog, first come, first
 * served. Its requests run in order, one at a time, on that instance. A sequence without a request for max_idle_ns
 * is ended.
 *
 * Two strategies form batches. Direct: the place of a sequence is its row in every batch of the instance, and rows
 * between are empty. Oldest: the sequences whose requests wait longest, at most max_rows of them, in that order.
 *
 * Pure: no lock, no clock, no thread. Times are arguments, in ns of one clock that does not go back. Thread: one at a
 * time for a set and its requests. */
#ifndef MR_SCHED_SEQUENCE_H
#define MR_SCHED_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/str.h"
#include "sched/sched.h"

struct seq;
struct seq_set;

/** No instance. */
#define SEQ_NONE UINT32_MAX

/** One request of a sequence; its owner's memory, from sequence_admit until sequence_done or sequence_end returns
 *  it. */
struct seq_request {
    bool is_start; /* set by the owner, as is_end and is_named */
    bool is_end;
    bool is_named;      /* it names the version */
    uint32_t row;       /* in its batch; set by sequence_form */
    int64_t arrived_ns; /* set by sequence_admit */
    int64_t due_ns;     /* set by the owner: until when it waits for a place, 0 = for ever */
    struct seq *seq;    /* while it waits or runs, otherwise NULL */
    TAILQ_ENTRY(seq_request) link;
};
TAILQ_HEAD(seq_requests, seq_request);

struct seq_options {
    uint32_t instances;   /* >= 1 */
    uint32_t places;      /* of each instance, >= 1 */
    uint32_t max_rows;    /* of a batch, >= 1; direct: places */
    int64_t max_idle_ns;  /* > 0 */
    int64_t max_delay_ns; /* how long a batch waits for more rows, 0 = not at all */
    bool is_direct;       /* otherwise oldest */
    /** Direct: this share of the places closes a batch early; 0 = no waiting. */
    float min_utilization;
    const int32_t *preferred; /* oldest: row counts that close a batch early, ascending; borrowed */
    size_t preferred_count;
    /** Whether two waiting requests may run in one batch. */
    bool (*can_join)(void *ctx, const struct seq_request *first, const struct seq_request *r);
    /** (may be NULL) A sequence that had data set has ended. */
    void (*drop)(void *ctx, void *data);
    void *ctx;
};

/** Never NULL. Options are copied. Free with sequence_set_free. */
struct seq_set *sequence_set_new(const struct seq_options *o);
/** Ends all sequences and sets *s to NULL. No request waits or runs. NULL: nothing. */
void sequence_set_free(struct seq_set **s);

enum seq_admitted {
    SEQ_PLACED,  /* its instance may have something to run */
    SEQ_BACKLOG, /* its sequence waits for a place */
    SEQ_NO_START /* refused: no such sequence goes on, and the request does not start one */
};
/** Adds a request to the sequence `key` (not empty). A start while that sequence is open restarts it in its place,
 *  after its waiting requests. *out_instance is written for SEQ_PLACED only. */
enum seq_admitted sequence_admit(struct seq_set *s, mr_str key, struct seq_request *r,
                                 int64_t now_ns, uint32_t *out_instance);

/** The next batch of an instance. */
struct seq_plan {
    uint32_t count; /* 0: nothing */
    uint32_t rows;  /* including empty ones */
    enum mr_close_reason reason;
    int64_t wait_until_ns; /* with count 0: when to ask again if nothing comes, INT64_MAX = never */
};
/** Chooses and takes a batch for an instance: its requests, by row, run, each until sequence_done. `out`
 *  has room for the set's max_rows. max_rows: oldest: this batch has no more than that; >= 1. */
void sequence_form(struct seq_set *s, uint32_t instance, uint32_t max_rows, int64_t now_ns,
                   struct seq_request **out, struct seq_plan *plan);

/** A request has run. Its instance may have more to run. */
void sequence_done(struct seq_set *s, struct seq_request *r, int64_t now_ns);
/** Ends the sequence of a waiting or running request early: those of its requests that wait, this one included if it does,
 *  are appended to `out` in order. What belongs to an earlier or a later start of the same key continues, as does a
 *  running request; if no start follows, the place is free when they are done. Returns its instance, SEQ_NONE if it
 *  had none. */
uint32_t sequence_end(struct seq_set *s, struct seq_request *r, struct seq_requests *out);
/** No further request joins the sequence `key`, if it is open: it ends when nothing of it waits or runs, at once if nothing
 *  does. Returns the instance that may have something else to run then, SEQ_NONE if there is none. */
uint32_t sequence_leave(struct seq_set *s, mr_str key);
/** Ends those sequences of an instance of which a request has run, or runs: the state of the instance is lost. Their
 *  waiting requests go to the end of `out`, except from a start on, where the sequence starts again. Running ones
 *  continue. */
void sequence_lose(struct seq_set *s, uint32_t instance, struct seq_requests *out);
/** Ends one sequence that has been idle for too long and returns its instance, where another one may have got its
 *  place; SEQ_NONE: there is no such sequence. */
uint32_t sequence_reap(struct seq_set *s, int64_t now_ns);
/** Ends the idle time: while a sequence waits for a place, sequence_reap finds each idle one, however short it has been idle. */
void sequence_hasten(struct seq_set *s);
/** When sequence_reap may find the next one; INT64_MAX = never as things are. */
int64_t sequence_next_idle_ns(const struct seq_set *s);

/** A request of a sequence that waits for a place, and whose time is over. NULL: none; *out_next_ns is when the next one's is, if no
 *  other comes, INT64_MAX = never. */
struct seq_request *sequence_overdue(const struct seq_set *s, int64_t now_ns, int64_t *out_next_ns);

/** Whether the sequence of a waiting or running request has a place. */
bool sequence_is_placed(const struct seq_request *r);
/** Whether a sequence has a place of the instance. */
bool sequence_is_used(const struct seq_set *s, uint32_t instance);
/** True if a sequence of this key is open. */
bool sequence_is_known(const struct seq_set *s, mr_str key);
/** True if it is, and its last start was is_named. */
bool sequence_is_named(const struct seq_set *s, mr_str key);
/** True if a sequence waits for a place. */
bool sequence_has_backlog(const struct seq_set *s);
/** Sequences that have not ended. */
uint32_t sequence_count(const struct seq_set *s);
/** The owner's data of the sequence of a waiting or running request, NULL at first; given to `drop`. */
void **sequence_data(struct seq_request *r);

#endif
