/* The weights of an endpoint over time: a ramp that raises a variant's share step by step while a guard holds, and takes it
 * back when it does not; changes by hand; the history of all of them.
 *
 * A pure state machine: time and counters come from the caller, who applies the weights (mr_variant_table_set) after each
 * change. One thread at a time. */
#ifndef MR_VARIANT_ROLLOUT_H
#define MR_VARIANT_ROLLOUT_H

#include "variant/guard.h"

enum mr_ramp_breach { MR_RAMP_ROLLBACK, MR_RAMP_HOLD };

struct mr_ramp {
    unsigned variant;
    double to;        /* the weight that it ends with; the sum of all weights stays what it is */
    double step;      /* above 0 */
    int64_t every_ns; /* time between steps; at the end, the time over which the guard judges */
    /* requests of each variant that the guard uses, before it judges; at least 1. One that has no share any more is judged by
       its last window that had as many. */
    uint64_t min_samples;
    enum mr_ramp_breach on_breach;
    bool has_guard;
    struct mr_guard guard;
};

enum mr_ramp_state {
    MR_RAMP_NONE,
    MR_RAMP_RUNNING,
    MR_RAMP_DONE, /* at `to`, and still guarded */
    MR_RAMP_HELD,
    MR_RAMP_ROLLED_BACK,
    MR_RAMP_PROMOTED,
    MR_RAMP_STOPPED /* by weights that were set by hand */
};
/** "running", … */
const char *mr_ramp_state_name(enum mr_ramp_state state);

enum mr_rollout_event_kind {
    MR_ROLLOUT_START,
    MR_ROLLOUT_STEP,
    MR_ROLLOUT_DONE,
    MR_ROLLOUT_HOLD,
    MR_ROLLOUT_ROLLBACK,
    MR_ROLLOUT_PROMOTE,
    MR_ROLLOUT_SET,
    MR_ROLLOUT_RESUME
};
/** "start", … */
const char *mr_rollout_event_name(enum mr_rollout_event_kind kind);

struct mr_rollout_event {
    int64_t wall_ns;
    enum mr_rollout_event_kind kind;
    bool by_hand;
    double weights[MR_VARIANTS_MAX]; /* afterwards */
    char reason[MR_GUARD_REASON];    /* "": none */
};

#define MR_ROLLOUT_HISTORY 64u

struct mr_rollout {
    size_t count;
    double weights[MR_VARIANTS_MAX];
    double previous[MR_VARIANTS_MAX]; /* before the last change by hand */
    double base
        [MR_VARIANTS_MAX]; /* when the ramp began or weights were set by hand: what the others share, and in which proportions */
    const struct mr_ramp *ramp; /* NULL: none */
    enum mr_ramp_state state;
    int64_t step_start_ns;
    /* [count] at the beginning of the window; NULL: no guard */
    struct mr_variant_sums *window_base;
    /* [count] of the last window that was enough to judge by; NULL: no guard */
    struct mr_variant_sums *last_window;
    struct mr_rollout_event *history; /* [MR_ROLLOUT_HISTORY], a ring */
    uint64_t event_count;             /* ever; event n is history[n % MR_ROLLOUT_HISTORY] */
};

/** A time, twice: steps follow the monotonic one, the history shows the other. */
struct mr_rollout_time {
    int64_t now_ns;
    int64_t wall_ns;
};

/** `weights` and `ramp` have passed mr_variant_weights_check and mr_ramp_check; `ramp` (may be NULL) is borrowed for the
 *  rollout's life. `sums` [count] may be NULL without a guard. Release with mr_rollout_fini. */
void mr_rollout_init(struct mr_rollout *r, const double *weights, size_t count,
                     const struct mr_ramp *ramp, struct mr_rollout_time t,
                     const struct mr_variant_sums *sums);
void mr_rollout_fini(struct mr_rollout *r);
/** Errors: MR_E_INVALID: a number out of its range, or no other variant that has a weight. */
int mr_ramp_check(const struct mr_ramp *ramp, const double *weights, size_t count,
                  struct mr_err *err);

/** True: a ramp is under way that wants mr_rollout_tick from time to time. */
bool mr_rollout_is_active(const struct mr_rollout *r);
/** A look at the guard and the clock. `sums` [count]: of all time; NULL without a guard. True: the weights have changed. */
bool mr_rollout_tick(struct mr_rollout *r, struct mr_rollout_time t,
                     const struct mr_variant_sums *sums);

/** Weights by hand, which stops a ramp; one that stays as it is may be the sum of several. Errors: mr_variant_weights_check. */
int mr_rollout_set(struct mr_rollout *r, const double *weights, const mr_str *tags,
                   struct mr_rollout_time t, struct mr_err *err);
/** All requests to one variant. */
int mr_rollout_promote(struct mr_rollout *r, unsigned variant, struct mr_rollout_time t,
                       struct mr_err *err);
/** The ramp's variant gets weight 0; without a ramp, the weights before the last change by hand. Errors: MR_E_INVALID:
 *  there is nothing to go back to. */
int mr_rollout_back(struct mr_rollout *r, struct mr_rollout_time t, struct mr_err *err);
/** A ramp that is held, rolled back or stopped goes on from the weights of now, or, where it could not from these (its
 *  variant has weight 0 or all of it, or ramp.to is out of their range), from the declared ones. `sums` as of mr_rollout_tick. Errors: MR_E_INVALID: there is none. */
int mr_rollout_resume(struct mr_rollout *r, const double *declared, struct mr_rollout_time t,
                      const struct mr_variant_sums *sums, struct mr_err *err);
/** The newest event; NULL: none. */
const struct mr_rollout_event *mr_rollout_last(const struct mr_rollout *r);

#endif
