/* Periods of a run. Everything here happens after the run, on its samples. */
#include "perf/periods.h"

#include <math.h>
#include <stdlib.h>

#include "interval.h"

static int by_due(const void *a, const void *b)
{
    const struct mr_perf_sample *x = a;
    const struct mr_perf_sample *y = b;

    return (x->due_ns > y->due_ns) - (x->due_ns < y->due_ns);
}

static int by_end(const void *a, const void *b)
{
    const struct mr_perf_period *x = a;
    const struct mr_perf_period *y = b;

    return (x->end_ns > y->end_ns) - (x->end_ns < y->end_ns);
}

/* Between two successive ends, requests waited from the first end on, or from the time when the earliest of those
 * that ended later was due. */
static void find_stalls(struct mr_perf_log *log)
{
    size_t n = log->count;
    struct mr_perf_period *ends = MR_NEW_ARRAY(struct mr_perf_period, n + 1);
    int64_t first_due = INT64_MAX;

    for (size_t i = 0; i < n; i++) {
        const struct mr_perf_sample *s = &log->samples[i];
        ends[i] = (struct mr_perf_period){s->due_ns, s->due_ns + (int64_t)s->took_ns};
    }
    qsort(ends, n, sizeof *ends, by_end);
    for (size_t i = n; i-- > 0;) {
        first_due = MR_MIN(first_due, ends[i].begin_ns);
        struct mr_perf_period stall = {first_due, ends[i].end_ns};
        if (i > 0) {
            stall.begin_ns = MR_MAX(first_due, ends[i - 1].end_ns);
        }
        if (stall.end_ns > stall.begin_ns) {
            MR_VEC_PUSH(&log->stalls, stall);
        }
    }
    mr_free(ends);
}

void mr_perf_log_init(struct mr_perf_log *log, struct mr_perf_result *r)
{
    *log = (struct mr_perf_log){.samples = r->samples.at, .count = r->samples.len};
    if (log->count) {
        qsort(r->samples.at, r->samples.len, sizeof *r->samples.at, by_due);
        find_stalls(log);
    }
}

void mr_perf_log_fini(struct mr_perf_log *log)
{
    MR_VEC_FINI(&log->stalls);
}

/* The first sample that was due then or later. */
static size_t find_due(const struct mr_perf_log *log, int64_t ns)
{
    size_t low = 0;
    size_t high = log->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (log->samples[middle].due_ns < ns) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

void mr_perf_log_add(const struct mr_perf_log *log, struct mr_perf_period period,
                     struct mr_perf_result *into)
{
    struct mr_hdr_histogram *part = MR_NEW(struct mr_hdr_histogram);

    for (size_t i = find_due(log, period.begin_ns);
         i < log->count && log->samples[i].due_ns < period.end_ns; i++) {
        const struct mr_perf_sample *s = &log->samples[i];
        into->sent++;
        into->failed += s->is_failed;
        into->answered += !s->is_failed;
        into->late += s->is_late;
        if (s->is_latency) {
            mr_hdr_add(part, s->took_ns);
        }
    }
    into->seconds += (double)MR_MAX(period.end_ns - period.begin_ns, INT64_C(0)) / 1e9;
    mr_hdr_merge(&into->latency, part);
    perf_parts_add(into, part);
    mr_free(part);
}

int64_t mr_perf_log_stall(const struct mr_perf_log *log, struct mr_perf_period period)
{
    int64_t longest = 0;

    for (size_t i = 0; i < log->stalls.len; i++) {
        const struct mr_perf_period *s = &log->stalls.at[i];
        int64_t part = MR_MIN(s->end_ns, period.end_ns) - MR_MAX(s->begin_ns, period.begin_ns);
        longest = MR_MAX(longest, part);
    }
    return longest;
}

uint64_t mr_perf_above(const struct mr_perf_result *r, uint64_t limit_ns)
{
    uint64_t n = 0;

    for (unsigned i = mr_hdr_bucket(limit_ns) + 1; i < MR_HDR_BUCKETS; i++) {
        n += r->latency.count[i];
    }
    return n;
}

void mr_perf_get_added(const struct mr_perf_result *r, const struct mr_perf_result *quiet, double q,
                       struct mr_perf_added *out)
{
    double value = (double)mr_hdr_quantile(&r->latency, q);
    double base = (double)mr_hdr_quantile(&quiet->latency, q);
    struct mr_perf_interval i;
    struct mr_perf_interval k;

    mr_perf_get_interval(r, q, &i);
    mr_perf_get_interval(quiet, q, &k);
    *out = (struct mr_perf_added){value - base, -INFINITY, INFINITY};
    /* Zou and Donner's recovery of variances from two intervals. */
    if (i.low_ns != 0 && k.high_ns != UINT64_MAX) {
        out->low_ns = out->ns - hypot(value - (double)i.low_ns, (double)k.high_ns - base);
    }
    if (i.high_ns != UINT64_MAX && k.low_ns != 0) {
        out->high_ns = out->ns + hypot((double)i.high_ns - value, base - (double)k.low_ns);
    }
}
