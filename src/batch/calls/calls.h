/* The calls of a job: rows are sent to hosts, again until they have an outcome. On the loop's thread unless noted. */
#ifndef MR_BATCH_CALLS_H
#define MR_BATCH_CALLS_H

#include <stdatomic.h>

#include "batch/common/call.h"
#include "batch/common/credits.h"
#include "batch/hosts/hosts.h"
#include "batch/policy/call_rows.h"
#include "batch/policy/grow.h"
#include "batch/policy/readahead.h"

/** What calls report, all with `ctx`. */
struct calls_events {
    void *ctx;
    /** All rows of the extent have an outcome: takes it. */
    void (*settled)(void *ctx, struct extent *e);
    /** Calls are about to be made; more of them may be asked for. */
    void (*before_calls)(void *ctx);
    /** A host has answered rows of the job, as `rows` says. */
    void (*answered)(void *ctx, struct call *k, const struct row_range *of,
                     const struct mr_rows *rows);
    /** A call of calls_ask ended. */
    void (*asked)(void *ctx, struct call *k, const struct transport_answer *a);
    /** A call of calls_ask cannot be made, as its host is away. */
    void (*absent)(void *ctx, const struct work *w);
};

struct calls {
    const struct mr_batch_options *o;
    struct job_state *state;
    struct dialect_model *model;
    struct hosts *hosts;
    struct credits *credits;
    struct calls_events events;
    struct mr_timer wake;
    MR_VEC(struct extent *) open; /* extents with rows that have no outcome */
    bool is_read;                 /* the reader has come to the end */
    uint64_t read_rows;
    uint64_t dead_rows;          /* of this start, committed or not */
    _Atomic uint32_t batch_rows; /* as asked for last; the reader looks at it */
    struct figures figures;
    struct work_queue retries;
    bool retries_yield; /* hosts had no time for one of them: a new call goes before the next */
    MR_VEC(struct extent *) extents; /* with rows that are in no call yet, oldest first */
    uint64_t waiting;                /* such rows */
    uint64_t waiting_bytes;          /* of these extents */
    struct readahead readahead;
    int64_t waiting_ns;              /* they are too few for a call since then; 0: they are not */
    MR_VEC(struct call *) in_flight; /* by the index of struct mr_balance_call; NULL: none */
    uint64_t in_flight_count;
    struct call_rows rows;
    struct grow grow;
    struct retry_policy policy;
    struct work *fresh; /* cut, and not sent as no host was free */
    /** One row that succeeded and is small enough to be kept; NULL: none. */
    struct extent *known_good;
    /** Largest recent answer to a row; 0: none yet. For the reader; relaxed. */
    _Atomic uint64_t answer_bytes;
    _Atomic uint64_t request_bytes;    /* of a row beside the row itself; likewise */
    _Atomic uint64_t known_good_bytes; /* likewise */
    /** Results of about the last half second. For the reader; relaxed. */
    _Atomic uint64_t recent_rows;
    bool is_asking; /* the known-good row is on its way, as a probe */
    bool is_dropped;
    uint64_t sent;
    uint64_t hedged;
};
/** A new extent from the reader: rows that cannot be sent become dead letters. */
void calls_add(struct calls *c, struct extent *e);
/** Sends the one row of an extent to a host, for a trial; calls_events.asked or absent follows. */
void calls_ask(struct calls *c, struct extent *row, struct host *h, uint32_t trial,
               uint32_t ballot);
/** Sends what can be sent. */
void calls_pump(struct calls *c);
/** Five times a second. */
void calls_tick(struct calls *c);
/** Drops all that waits and is under way; later answers are ignored. */
void calls_drop(struct calls *c);
/** After the loop is gone. */
void calls_fini(struct calls *c);

#endif
