/* The limit of calls at a time for one host, governed by the latency of successes (after TCP Vegas).
 *
 * Latency is taken per row and compared with the base of its size: what the host needs when we do not make it
 * wait. The base of each power of two of rows is kept apart, so that another batch size is not taken for
 * congestion. If answers take 1/(1-q) times the base, the share q of our calls waits at the host.
 *
 * A window is max(8, limit) answers. After each, by q of its median: below 10 % the limit grows by sqrt(limit)/2,
 * provided that it was reached, by twice as much the second time in a row and so on; above 30 % it shrinks by
 * sqrt(limit)/2, above 60 % it is halved. A new host begins with slow start: the limit doubles per round trip until
 * q is above 30 %, then comes down to what does not wait, and a little.
 *
 * The base is the least of the smoothed medians, rising by 0.2 % per window so that a host may grow slower.
 * (The least of plain medians of eight answers would be an outlier: a model whose time varies by a half would
 * seem congested for ever.) During slow start it is the mean. Two things keep it true:
 *   - As our own waiting calls hide it, every 64th window runs with 60 % of the limit and moves the base half the way
 *     to its median, up or down.
 *   - With limit 1 nothing of ours waits, so whatever is measured there is the base. */
#include "balance_priv.h"

#include <math.h>
#include <stdlib.h>

static uint32_t window_length(const struct balance_host *h)
{
    uint32_t limit = (uint32_t)h->limit;

    if (h->is_slow_start) {
        return MR_MAX(limit, (uint32_t)START_WINDOW_MIN);
    }
    return MR_MAX(limit, h->is_base_probe ? (uint32_t)BASE_PROBE_MIN : (uint32_t)WINDOW_MIN);
}

uint32_t limit_usable(const struct balance_host *h)
{
    double limit = h->limit;

    if (h->throttled_from_ns != 0) {
        return 1;
    }
    if (h->is_base_probe) {
        limit *= BASE_PROBE_SHARE;
    }
    return limit < 1 ? 1 : (uint32_t)limit;
}

static void window_begin(struct mr_balance *r, struct balance_host *h)
{
    h->window = h->window == UINT8_MAX ? 1 : (uint8_t)(h->window + 1);
    h->window_n = 0;
    h->window_from_ns = r->now_ns;
    h->was_full = h->in_flight + h->held >= limit_usable(h);
}

void limit_restart(struct mr_balance *r, struct balance_host *h, double limit)
{
    h->limit = r->is_limit_fixed ? (double)r->max_limit : MR_MIN(limit, (double)r->max_limit);
    h->is_slow_start = true;
    h->is_base_probe = false;
    h->windows = 0;
    window_begin(r, h);
}

static int float_order(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

float limit_median(float *v, uint32_t n)
{
    qsort(v, n, sizeof *v, float_order);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* What the samples of a window say about one size. */
struct reading {
    double median_ns; /* per row */
    uint32_t count;
};

static struct reading window_read(const struct balance_host *h, unsigned bucket)
{
    float v[SAMPLES];
    uint32_t n = 0;

    for (uint32_t i = 0; i < h->sample_n; i++) {
        const struct balance_sample *s = &h->samples[i];
        if (s->window == h->window && s->bucket == bucket) {
            v[n++] = s->row_ns;
        }
    }
    return (struct reading){.median_ns = n > 0 ? limit_median(v, n) : 0, .count = n};
}

/* The share of calls that waits at the host. A size without a base says nothing yet. */
static double window_queue(const struct balance_host *h, const struct reading got[BUCKETS])
{
    double sum = 0;
    uint32_t count = 0;

    for (unsigned b = 0; b < BUCKETS; b++) {
        if (got[b].count > 0) {
            sum += got[b].count * (h->base_ns[b] > 0 ? got[b].median_ns / h->base_ns[b] : 1);
            count += got[b].count;
        }
    }
    return count > 0 ? 1 - count / sum : 0;
}

static void approach(double *to, double value, double weight)
{
    *to = *to == 0 ? value : *to * pow(value / *to, weight);
}

static void base_update(struct balance_host *h, unsigned bucket, const struct reading *got)
{
    double *base = &h->base_ns[bucket], *smooth = &h->smooth_ns[bucket];

    if (*base == 0 || (!h->is_slow_start && limit_usable(h) == 1)) {
        *base = *smooth = got->median_ns;
    } else if (h->is_slow_start) {
        approach(base, got->median_ns, (double)got->count / h->sample_n);
        *smooth = *base;
    } else if (h->is_base_probe) {
        approach(base, got->median_ns, BASE_PROBE_WEIGHT);
    } else {
        approach(smooth, got->median_ns, BASE_SMOOTHING);
        *base = fmin(*base * BASE_DECAY, *smooth);
    }
}

static double growth_end(const struct mr_balance *r, const struct balance_host *h)
{
    double end = r->max_limit;

    if (r->now_ns < h->ceiling_until_ns) {
        end = fmin(end, h->ceiling * CEILING_SHARE);
    }
    return end;
}

static void slow_start_step(struct mr_balance *r, struct balance_host *h, double queue)
{
    double end = growth_end(r, h);

    if (queue > QUEUE_SHRINK) {
        h->limit = fmax(h->limit / 2, h->limit * (1 - queue) / (1 - QUEUE_SHRINK / 2));
        h->is_slow_start = false;
    } else if (h->was_full) {
        h->is_slow_start = h->limit * 2 < end;
        h->limit = fmax(h->limit, fmin(h->limit * 2, end));
    }
}

static void steady_step(struct mr_balance *r, struct balance_host *h, double queue)
{
    double step = sqrt(h->limit) / 2;

    h->grown = queue < QUEUE_GROW && h->was_full ? h->grown + 1 : 0;
    if (queue > QUEUE_HALVE) {
        h->limit /= 2;
    } else if (queue > QUEUE_SHRINK) {
        h->limit -= step;
    } else if (h->grown > 0) {
        step = fmin(fmax(step, 1) * h->grown, h->limit);
        h->limit = fmax(h->limit, fmin(h->limit + step, growth_end(r, h)));
    }
}

static void window_end(struct mr_balance *r, struct balance_host *h)
{
    struct reading got[BUCKETS];
    bool was_slow_start = h->is_slow_start, was_base_probe = h->is_base_probe;
    double queue;

    for (unsigned b = 0; b < BUCKETS; b++) {
        got[b] = window_read(h, b);
    }
    queue = window_queue(h, got);
    if (was_slow_start && queue > QUEUE_SHRINK && h->window_n < START_DOUBT) {
        return;
    }
    for (unsigned b = 0; b < BUCKETS; b++) {
        if (got[b].count > 0 && !(was_slow_start && queue > QUEUE_SHRINK)) {
            base_update(h, b, &got[b]);
        }
    }
    if (was_slow_start) {
        slow_start_step(r, h, queue);
    } else if (was_base_probe) {
        h->is_base_probe = false;
        h->windows = 0;
    } else {
        steady_step(r, h, queue);
        h->is_base_probe = ++h->windows >= BASE_PROBE_EVERY && h->limit >= 2;
    }
    h->limit = fmin(fmax(h->limit, 1), r->max_limit);
    window_begin(r, h);
}

void limit_answer(struct mr_balance *r, struct balance_host *h, const struct balance_flight *f)
{
    int64_t ns = MR_MAX(r->now_ns - f->start_ns, (int64_t)1);
    /* After a large change of the limit only answers to calls that began after it count. */
    bool counts = !(h->is_slow_start || h->is_base_probe) || f->start_ns >= h->window_from_ns;

    h->samples[h->sample_at] = (struct balance_sample){
        .raw_ns = (float)ns,
        .row_ns = (float)((double)ns / (double)f->rows),
        .bucket = (uint8_t)pick_rows_bucket(f->rows),
        .window = counts ? h->window : 0,
    };
    h->sample_at = (h->sample_at + 1) % SAMPLES;
    h->sample_n = MR_MIN(h->sample_n + 1, (uint32_t)SAMPLES);
    h->window_n += counts;
    if (h->window_n >= window_length(h) && !r->is_limit_fixed) {
        window_end(r, h);
    }
}

void limit_throttled(struct mr_balance *r, struct balance_host *h)
{
    if (r->is_limit_fixed) {
        return;
    }
    h->ceiling = h->limit;
    h->ceiling_until_ns = r->now_ns + CEILING_NS;
    h->limit = fmax(1, h->limit * THROTTLE_CUT);
    h->cut_ns = r->now_ns;
    h->is_slow_start = false;
    window_begin(r, h);
}

/* A call that was alone is refused as well: it was not the number of calls. */
void limit_forgive(struct mr_balance *r, struct balance_host *h)
{
    if (r->is_limit_fixed) {
        return;
    }
    h->limit = fmin(fmax(h->limit, h->ceiling), r->max_limit);
    h->ceiling = 0;
    h->ceiling_until_ns = 0;
}
