/* From windows and samples to sums. A window in which the client was late or its machine lost CPU time is doubtful;
 * it is left out of the sums if an option says so. */
#include "perf_update.h"

#define LATE_MAX  0.01
#define STEAL_MAX 0.02

static void sum_init(struct perf_update_sum *s, const char *name)
{
    s->name = name;
    s->result = MR_NEW(struct mr_perf_result);
}

static void sum_add(struct perf_update_sum *s, const struct mr_perf_log *log,
                    struct mr_perf_period period)
{
    mr_perf_log_add(log, period, s->result);
    s->stall_ns = MR_MAX(s->stall_ns, mr_perf_log_stall(log, period));
    s->count++;
}

/* Computes a window's own figures. */
static void check(const struct mr_perf_log *log, struct perf_window_row *w)
{
    struct mr_perf_result *r = MR_NEW(struct mr_perf_result);

    mr_perf_log_add(log, w->period, r);
    w->sent = r->sent;
    w->failed = r->failed;
    w->late = r->late;
    w->stall_ns = mr_perf_log_stall(log, w->period);
    for (size_t k = 0; k < PERF_PERCENTILES; k++) {
        w->at[k] = mr_hdr_quantile(&r->latency, perf_percentiles[k].q);
    }
    w->max_ns = r->latency.max;
    w->is_doubtful = (double)w->late > LATE_MAX * (double)w->sent || w->steal > STEAL_MAX;
    mr_perf_result_fini(r);
    mr_free(r);
}

static void add_window(struct perf_update *u, const struct mr_perf_log *log,
                       const struct perf_window_row *w)
{
    sum_add(w->is_update ? &u->updates : &u->quiet, log, w->period);
    for (int k = 0; k < PERF_PHASES; k++) {
        if (w->phases[k].end_ns) {
            sum_add(&u->phases[k], log, w->phases[k]);
        }
    }
    perf_threads_add(w->is_update ? &u->update_threads : &u->quiet_threads, &w->threads);
}

void perf_update_sum_up(struct perf_update *u)
{
    struct mr_perf_log log;

    mr_perf_log_init(&log, u->result);
    sum_init(&u->quiet, "quiet");
    sum_init(&u->updates, "update");
    for (int k = 0; k < PERF_PHASES; k++) {
        sum_init(&u->phases[k], perf_phase_names[k]);
    }
    for (size_t i = 0; i < u->windows.len; i++) {
        struct perf_window_row *w = &u->windows.at[i];
        check(&log, w);
        u->doubtful += w->is_doubtful;
        u->failed_updates += w->is_update && w->rc < 0;
        if (!w->is_doubtful || !u->p->opt.clean) {
            add_window(u, &log, w);
        }
    }
    uint64_t limit = 2 * mr_hdr_quantile(&u->quiet.result->latency, 0.999);
    u->quiet.above = mr_perf_above(u->quiet.result, limit);
    u->updates.above = mr_perf_above(u->updates.result, limit);
    for (int k = 0; k < PERF_PHASES; k++) {
        u->phases[k].above = mr_perf_above(u->phases[k].result, limit);
    }
    mr_perf_log_fini(&log);
}

static void sum_fini(struct perf_update_sum *s)
{
    if (s->result) {
        mr_perf_result_fini(s->result);
        mr_freep(&s->result);
    }
}

void perf_update_fini_sums(struct perf_update *u)
{
    sum_fini(&u->quiet);
    sum_fini(&u->updates);
    for (int k = 0; k < PERF_PHASES; k++) {
        sum_fini(&u->phases[k]);
    }
    MR_VEC_FINI(&u->quiet_threads);
    MR_VEC_FINI(&u->update_threads);
}
