/* The state machine of an endpoint's weights. No clock, no lock, no I/O: tests run days of it in a loop. */
#include "variant/rollout.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "codec/json.h"

const char *mr_ramp_state_name(enum mr_ramp_state state)
{
    static const char *const names[] = {
        [MR_RAMP_NONE] = "none",         [MR_RAMP_RUNNING] = "running",
        [MR_RAMP_DONE] = "done",         [MR_RAMP_HELD] = "held",
        [MR_RAMP_STOPPED] = "stopped",   [MR_RAMP_ROLLED_BACK] = "rolled_back",
        [MR_RAMP_PROMOTED] = "promoted",
    };
    return names[state];
}

const char *mr_rollout_event_name(enum mr_rollout_event_kind kind)
{
    static const char *const names[] = {
        [MR_ROLLOUT_START] = "start",       [MR_ROLLOUT_STEP] = "step",
        [MR_ROLLOUT_DONE] = "done",         [MR_ROLLOUT_HOLD] = "hold",
        [MR_ROLLOUT_ROLLBACK] = "rollback", [MR_ROLLOUT_PROMOTE] = "promote",
        [MR_ROLLOUT_SET] = "set",           [MR_ROLLOUT_RESUME] = "resume",
    };
    return names[kind];
}

static double sum_of(const double *weights, size_t count)
{
    double sum = 0;

    for (size_t i = 0; i < count; i++) {
        sum += weights[i];
    }
    return sum;
}

int mr_ramp_check(const struct mr_ramp *ramp, const double *weights, size_t count,
                  struct mr_err *err)
{
    const double sum = sum_of(weights, count);
    char to[32], low[32], high[32];

    if (sum - weights[ramp->variant] <= 0) {
        return MR_FAIL(err, MR_E_INVALID,
                       "a ramp needs another variant whose weight is above 0, which it takes from");
    }
    if (!(ramp->to >= weights[ramp->variant] && ramp->to <= sum)) {
        return MR_FAIL(
            err, MR_E_INVALID,
            "ramp.to is %.*s, possible is %.*s (the weight of the variant) to %.*s (the sum of "
            "all weights)",
            (int)mr_double_text(ramp->to, to), to, (int)mr_double_text(weights[ramp->variant], low),
            low, (int)mr_double_text(sum, high), high);
    }
    if (!(ramp->step > 0 && ramp->step <= MR_VARIANT_WEIGHT_MAX)) {
        return MR_FAIL(err, MR_E_INVALID, "ramp.step is %.*s, possible is above 0 to %.0f",
                       (int)mr_double_text(ramp->step, to), to, MR_VARIANT_WEIGHT_MAX);
    }
    if (ramp->every_ns < MR_NS_PER_S) {
        return MR_FAIL(err, MR_E_INVALID, "ramp.every_s has to be 1 or more");
    }
    return MR_OK;
}

/* ---- history ---- */

static struct mr_rollout_event *add_event(struct mr_rollout *r, enum mr_rollout_event_kind kind,
                                          struct mr_rollout_time t, bool by_hand)
{
    struct mr_rollout_event *e = &r->history[r->event_count++ % MR_ROLLOUT_HISTORY];

    *e = (struct mr_rollout_event){.wall_ns = t.wall_ns, .kind = kind, .by_hand = by_hand};
    memcpy(e->weights, r->weights, sizeof e->weights);
    return e;
}

const struct mr_rollout_event *mr_rollout_last(const struct mr_rollout *r)
{
    return r->event_count ? &r->history[(r->event_count - 1) % MR_ROLLOUT_HISTORY] : NULL;
}

/* ---- weights ---- */

/* The others share the rest in the proportions of `base`. */
static void set_weight(struct mr_rollout *r, double weight)
{
    const unsigned of = r->ramp->variant;
    const double sum = sum_of(r->base, r->count);
    const double others = sum - r->base[of];

    for (size_t i = 0; i < r->count; i++) {
        r->weights[i] = i == of ? weight : r->base[i] / others * MR_MAX(sum - weight, 0);
    }
}

static void open_window(struct mr_rollout *r, int64_t now_ns, const struct mr_variant_sums *sums)
{
    r->step_start_ns = now_ns;
    if (r->window_base && sums) {
        memcpy(r->window_base, sums, r->count * sizeof *sums);
    }
}

void mr_rollout_init(struct mr_rollout *r, const double *weights, size_t count,
                     const struct mr_ramp *ramp, struct mr_rollout_time t,
                     const struct mr_variant_sums *sums)
{
    *r = (struct mr_rollout){.count = count, .ramp = ramp};
    r->history = MR_NEW_ARRAY(struct mr_rollout_event, MR_ROLLOUT_HISTORY);
    memcpy(r->weights, weights, count * sizeof *weights);
    memcpy(r->previous, weights, count * sizeof *weights);
    if (!ramp) {
        return;
    }
    memcpy(r->base, weights, count * sizeof *weights);
    if (ramp->has_guard) {
        r->window_base = MR_NEW_ARRAY(struct mr_variant_sums, count);
        r->last_window = MR_NEW_ARRAY(struct mr_variant_sums, count);
    }
    r->state = MR_RAMP_RUNNING;
    open_window(r, t.now_ns, sums);
    add_event(r, MR_ROLLOUT_START, t, false);
}

void mr_rollout_fini(struct mr_rollout *r)
{
    mr_freep(&r->window_base);
    mr_freep(&r->last_window);
    mr_freep(&r->history);
}

/* ---- the ramp ---- */

bool mr_rollout_is_active(const struct mr_rollout *r)
{
    return r->state == MR_RAMP_RUNNING || (r->state == MR_RAMP_DONE && r->ramp->has_guard);
}

static bool breach(struct mr_rollout *r, struct mr_rollout_time t, const char *reason)
{
    const bool goes_back = r->ramp->on_breach == MR_RAMP_ROLLBACK;

    if (goes_back) {
        set_weight(r, 0);
    }
    r->state = goes_back ? MR_RAMP_ROLLED_BACK : MR_RAMP_HELD;
    struct mr_rollout_event *e =
        add_event(r, goes_back ? MR_ROLLOUT_ROLLBACK : MR_ROLLOUT_HOLD, t, false);
    snprintf(e->reason, sizeof e->reason, "%s", reason);
    return goes_back;
}

static bool go_on(struct mr_rollout *r, struct mr_rollout_time t,
                  const struct mr_variant_sums *sums)
{
    const struct mr_ramp *ramp = r->ramp;
    const double next = r->weights[ramp->variant] + ramp->step;
    const bool is_last = next >= ramp->to;

    open_window(r, t.now_ns, sums);
    if (r->state == MR_RAMP_DONE) {
        return false;
    }
    set_weight(r, is_last ? ramp->to : next);
    r->state = is_last ? MR_RAMP_DONE : MR_RAMP_RUNNING;
    add_event(r, is_last ? MR_ROLLOUT_DONE : MR_ROLLOUT_STEP, t, false);
    return true;
}

/* The window of each variant into `out`. False: there are too few requests to judge by. */
static bool window_of(struct mr_rollout *r, const struct mr_variant_sums *sums,
                      struct mr_variant_sums *out)
{
    const uint64_t enough = MR_MAX(r->ramp->min_samples, 1u);
    bool is_enough = true;

    for (size_t i = 0; i < r->count; i++) {
        if (!(r->ramp->guard.uses >> i & 1)) {
            continue;
        }
        mr_variant_sums_since(&out[i], &sums[i], &r->window_base[i]);
        if (out[i].count >= enough) {
            r->last_window[i] = out[i];
        } else if (r->weights[i] == 0 && r->last_window[i].count > 0) {
            out[i] = r->last_window[i]; /* at the end of a ramp to all: it gets no more requests */
        } else {
            is_enough = false;
        }
    }
    return is_enough;
}

static enum mr_guard_verdict judge(struct mr_rollout *r, const struct mr_variant_sums *sums,
                                   char reason[MR_GUARD_REASON])
{
    enum mr_guard_verdict v = MR_GUARD_UNKNOWN;

    if (!r->ramp->has_guard) {
        return MR_GUARD_HOLDS;
    }
    struct mr_variant_sums *window = MR_NEW_ARRAY(struct mr_variant_sums, r->count);
    if (window_of(r, sums, window)) {
        v = mr_guard_eval(&r->ramp->guard, window, reason);
    }
    mr_free(window);
    return v;
}

bool mr_rollout_tick(struct mr_rollout *r, struct mr_rollout_time t,
                     const struct mr_variant_sums *sums)
{
    char reason[MR_GUARD_REASON];

    if (!mr_rollout_is_active(r)) {
        return false;
    }
    const enum mr_guard_verdict v = judge(r, sums, reason);
    if (v == MR_GUARD_BROKEN) {
        return breach(r, t, reason);
    }
    /* With too few requests it stays at this step, and the window goes on. */
    const bool is_over = t.now_ns - r->step_start_ns >= r->ramp->every_ns;
    return v == MR_GUARD_HOLDS && is_over && go_on(r, t, sums);
}

/* ---- by hand ---- */

/* The same weights once more, as a client that repeats its call sends them, are no change: what was before stays. Of a ramp the
 * others share by these weights what it gives back. */
static void change_by_hand(struct mr_rollout *r, const double *weights)
{
    double before[MR_VARIANTS_MAX];

    memcpy(before, r->weights, sizeof before);
    for (size_t i = 0; i < r->count; i++) {
        r->weights[i] = weights[i] == 0 ? 0 : weights[i]; /* not -0 */
    }
    if (memcmp(before, r->weights, sizeof before) != 0) {
        memcpy(r->previous, before, sizeof before);
    }
    if (r->ramp && sum_of(weights, r->count) - weights[r->ramp->variant] > 0) {
        memcpy(r->base, r->weights, sizeof r->base);
    }
}

int mr_rollout_set(struct mr_rollout *r, const double *weights, const mr_str *tags,
                   struct mr_rollout_time t, struct mr_err *err)
{
    double asked[MR_VARIANTS_MAX];

    for (size_t i = 0; i < r->count;
         i++) { /* a promotion may have given a variant more than one may ask for */
        asked[i] =
            weights[i] == r->weights[i] ? MR_MIN(weights[i], MR_VARIANT_WEIGHT_MAX) : weights[i];
    }
    int rc = mr_variant_weights_check(asked, tags, r->count, err);

    if (rc < 0) {
        return rc;
    }
    change_by_hand(r, weights);
    r->state = r->ramp ? MR_RAMP_STOPPED : MR_RAMP_NONE;
    add_event(r, MR_ROLLOUT_SET, t, true);
    return MR_OK;
}

int mr_rollout_promote(struct mr_rollout *r, unsigned variant, struct mr_rollout_time t,
                       struct mr_err *err)
{
    double weights[MR_VARIANTS_MAX] = {0};

    if (variant >= r->count) {
        return MR_FAIL(err, MR_E_INVALID, "there is no variant %u of %zu", variant, r->count);
    }
    weights[variant] = sum_of(r->weights, r->count);
    change_by_hand(r, weights);
    r->state = r->ramp ? MR_RAMP_PROMOTED : MR_RAMP_NONE;
    add_event(r, MR_ROLLOUT_PROMOTE, t, true);
    return MR_OK;
}

int mr_rollout_back(struct mr_rollout *r, struct mr_rollout_time t, struct mr_err *err)
{
    if (r->ramp) {
        double before[MR_VARIANTS_MAX];
        memcpy(before, r->weights, sizeof before);
        set_weight(r, 0);
        memcpy(r->previous, before, sizeof before);
        r->state = MR_RAMP_ROLLED_BACK;
    } else if (memcmp(r->previous, r->weights, sizeof r->weights) == 0) {
        return MR_FAIL(err, MR_E_INVALID,
                       "there is nothing to go back to: the weights have not been changed");
    } else {
        double to[MR_VARIANTS_MAX];
        memcpy(to, r->previous, sizeof to);
        change_by_hand(r, to);
    }
    add_event(r, MR_ROLLOUT_ROLLBACK, t, true);
    return MR_OK;
}

int mr_rollout_resume(struct mr_rollout *r, const double *declared, struct mr_rollout_time t,
                      const struct mr_variant_sums *sums, struct mr_err *err)
{
    const bool is_waiting = r->state == MR_RAMP_HELD || r->state == MR_RAMP_ROLLED_BACK ||
                            r->state == MR_RAMP_STOPPED || r->state == MR_RAMP_PROMOTED;

    if (!r->ramp || !is_waiting) {
        return MR_FAIL(err, MR_E_INVALID, "there is no ramp that could go on: its state is '%s'",
                       mr_ramp_state_name(r->state));
    }
    const unsigned of = r->ramp->variant;
    const double sum = sum_of(r->weights, r->count);
    const bool has_others = sum - r->weights[of] > 0;
    /* the weights of a step add up to the sum but for their rounding */
    const bool fits = r->weights[of] <= r->ramp->to && r->ramp->to <= sum * (1 + 1e-9);
    if (r->weights[of] <= 0 || !fits || !has_others) {
        change_by_hand(r, declared);
    }
    memcpy(r->base, r->weights, sizeof r->base);
    r->state = MR_RAMP_RUNNING;
    open_window(r, t.now_ns, sums);
    add_event(r, MR_ROLLOUT_RESUME, t, true);
    return MR_OK;
}
