/* Confidence intervals of percentiles.
 *
 * The number of samples below a true percentile is binomial if the samples are independent, which gives ranks
 * between which the percentile lies, whatever the distribution. Latencies are not independent: a slow moment
 * makes many of them slow. So the variance of the share of samples beyond the percentile is taken from how it
 * varies between the seconds of the run (a cluster sample), and the ranks move apart by as much as that
 * exceeds the binomial variance. */
#include "interval.h"

#include <math.h>

#define PARTS_MIN 5
#define Z95       1.959964

static void halve(struct mr_perf_result *r)
{
    for (size_t i = 0; i < MR_PERF_PARTS / 2; i++) {
        struct mr_perf_part sum = r->parts[2 * i];
        sum.total += r->parts[2 * i + 1].total;
        for (size_t b = 0; b < MR_HIST_BUCKETS; b++) {
            sum.count[b] += r->parts[2 * i + 1].count[b];
        }
        r->parts[i] = sum;
    }
    memset(r->parts + MR_PERF_PARTS / 2, 0, MR_PERF_PARTS / 2 * sizeof *r->parts);
    r->part_count = MR_PERF_PARTS / 2;
    r->part_filled = r->part_seconds *= 2;
}

void perf_parts_add(struct mr_perf_result *r, const struct mr_hdr_histogram *second)
{
    if (!r->parts) {
        r->parts = MR_NEW_ARRAY(struct mr_perf_part, MR_PERF_PARTS);
        r->part_seconds = r->part_filled = 1;
    }
    if (r->part_filled == r->part_seconds) {
        if (r->part_count == MR_PERF_PARTS) {
            halve(r);
        }
        r->part_count++;
        r->part_filled = 0;
    }
    struct mr_perf_part *part = &r->parts[r->part_count - 1];
    r->part_filled++;
    part->total += second->total;
    for (unsigned i = 0; second->total && i <= mr_hdr_bucket(second->max); i++) {
        if (second->count[i]) {
            part->count[mr_hist_bucket(mr_hdr_upper(i))] += (uint32_t)second->count[i];
        }
    }
}

/* Samples of a part in the bucket `from` and above. */
static double beyond(const struct mr_perf_part *part, unsigned from)
{
    double n = 0;

    for (unsigned b = from; b < MR_HIST_BUCKETS; b++) {
        n += part->count[b];
    }
    return n;
}

/* How many times the variance of independent samples the share beyond `from` has; at least 1. */
static double design_effect(const struct mr_perf_result *r, unsigned from)
{
    double n = 0;
    double above = 0;
    double squares = 0;
    double k = (double)r->part_count;

    for (size_t i = 0; i < r->part_count; i++) {
        n += (double)r->parts[i].total;
        above += beyond(&r->parts[i], from);
    }
    double p = n > 0 ? above / n : 0;
    if (p <= 0 || p >= 1) {
        return 1;
    }
    for (size_t i = 0; i < r->part_count; i++) {
        double d = beyond(&r->parts[i], from) - p * (double)r->parts[i].total;
        squares += d * d;
    }
    return fmax(1, k / (k - 1) * squares / (n * p * (1 - p)));
}

/* Student's factor for 95 %, by Cornish and Fisher's expansion. */
static double student(double df)
{
    double z3 = Z95 * Z95 * Z95;
    double z5 = z3 * Z95 * Z95;

    return Z95 + (z3 + Z95) / (4 * df) + (5 * z5 + 16 * z3 + 3 * Z95) / (96 * df * df);
}

void mr_perf_get_interval(const struct mr_perf_result *r, double q, struct mr_perf_interval *out)
{
    double n = (double)r->latency.total;
    unsigned bucket = mr_hist_bucket(mr_hdr_quantile(&r->latency, q));
    double factor = Z95;
    double effect = 1;

    *out = (struct mr_perf_interval){0, UINT64_MAX, r->part_count < PARTS_MIN};
    if (n < 1) {
        return;
    }
    if (!out->is_rough) {
        /* The edges of the coarse bucket that the percentile lies in. */
        effect = fmax(design_effect(r, bucket), design_effect(r, bucket + 1));
        factor = student((double)r->part_count - 1);
    }
    double reach = factor * sqrt(effect * n * q * (1 - q));
    double low = floor(n * q - reach);
    double high = ceil(n * q + reach) + 1;
    out->low_ns = low >= 1 ? mr_hdr_at_rank(&r->latency, (uint64_t)low) : 0;
    out->high_ns = high <= n ? mr_hdr_at_rank(&r->latency, (uint64_t)high) : UINT64_MAX;
}
