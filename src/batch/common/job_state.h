/* How far a job is, and how it ends. All parts of a job have it. On the loop's thread. */
#ifndef MR_BATCH_JOB_STATE_H
#define MR_BATCH_JOB_STATE_H

#include <stdatomic.h>

#include "base/clock.h"
#include "base/err.h"

/** How long the probe of a plan takes at most, waiting for the first host included. */
#define JOB_PLAN_NS (10 * MR_NS_PER_S)

enum job_phase { JOB_ASKING, JOB_RUNNING, JOB_ENDING };

struct job_state {
    /** Something may have ended: the job begins its next phase, or ends. */
    void (*advance)(struct job_state *s);
    struct mr_loop *loop;     /* the same in every start */
    const _Atomic int *stops; /* requests to stop; of the batch, from any thread */
    enum job_phase phase;
    bool is_plan; /* a probe, whose results are dropped */
    bool pauses;  /* instead of ending at a problem that needs attention */
    int64_t begin_ns;
    int64_t resumed_ns; /* 0: never */
    bool may_go_on;     /* it ends, and can start again */
    bool begins_again;  /* it is, at once */
    int rc;             /* why the loop was left */
    struct mr_err err;
    /** The members below are kept when the job starts again in this process. */
    bool is_paused;
    bool is_stopped;        /* by a problem that needs attention */
    bool has_answers;       /* a host has served rows */
    char pause_reason[480]; /* "": on request */
};
/** The loop ends with this; the first reason counts. */
void job_fail(struct job_state *s, int rc, const struct mr_err *err);
/** Reports a problem that needs attention: the job stops or pauses, by the options. */
void job_stop(struct job_state *s, const struct mr_err *err);
/** The loop ends. */
void job_end(struct job_state *s);
/** Calls `advance`. */
void job_advance(struct job_state *s);

#endif
