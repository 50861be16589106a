/* What calls are expected to take, and how many more than one per piece of work may be made.
 *
 * Latency is kept per row and power of two of rows, per host and for all hosts together. A host's pace is its
 * latency in terms of all hosts' for the same size; it predicts sizes that the host has not had yet. */
#include "balance_priv.h"

#include <math.h>

static void smooth(double *to, double sample, double weight)
{
    *to = *to == 0 ? sample : *to + weight * (sample - *to);
}

static double peak_kept(const struct mr_balance *r, const struct balance_host *h)
{
    return exp(-(double)(r->now_ns - h->peak_ns) / PEAK_TAU_NS);
}

double budget_peak_now(const struct mr_balance *r, const struct balance_host *h)
{
    return h->peak * peak_kept(r, h);
}

void budget_latency_add(struct mr_balance *r, struct balance_host *h, int64_t rows, int64_t ns)
{
    unsigned bucket = pick_rows_bucket(rows);
    double row_ns = (double)ns / (double)rows, ratio;

    smooth(&h->row_ns[bucket], row_ns, LATENCY_WEIGHT);
    smooth(&r->row_ns[bucket], row_ns, LATENCY_WEIGHT / 2);
    ratio = row_ns / r->row_ns[bucket];
    smooth(&h->pace, ratio, LATENCY_WEIGHT);
    if (ratio < h->peak) {
        double keep = peak_kept(r, h);
        ratio = h->peak * keep + ratio * (1 - keep);
    }
    h->peak = ratio;
    h->peak_ns = r->now_ns;
}

void budget_latency_at_least(struct mr_balance *r, struct balance_host *h, int64_t rows, int64_t ns)
{
    double known = r->row_ns[pick_rows_bucket(rows)] * (double)rows;

    if (known > 0 && (double)ns / known > budget_peak_now(r, h)) {
        h->peak = (double)ns / known;
        h->peak_ns = r->now_ns;
    }
}

/* From the nearest size that is known. A larger one's whole call is taken, as small calls do not cost in
 * proportion; a smaller one's time grows with the rows. */
static double expected_of_all(const struct mr_balance *r, int64_t rows)
{
    int bucket = (int)pick_rows_bucket(rows);

    for (int d = 0; d < BUCKETS; d++) {
        if (bucket + d < BUCKETS && r->row_ns[bucket + d] > 0) {
            return r->row_ns[bucket + d] * fmax((double)rows, d ? (double)(1u << (bucket + d)) : 1);
        }
        if (bucket - d >= 0 && r->row_ns[bucket - d] > 0) {
            return r->row_ns[bucket - d] * (double)rows;
        }
    }
    return 0;
}

double budget_expected_ns(const struct mr_balance *r, const struct balance_host *h, int64_t rows)
{
    double row_ns = h->row_ns[pick_rows_bucket(rows)];

    if (row_ns > 0) {
        return row_ns * (double)rows;
    }
    return expected_of_all(r, rows) * (h->pace > 0 ? h->pace : 1);
}

int64_t budget_timeout_ns(const struct mr_balance *r, const struct balance_host *h, int64_t rows)
{
    uint32_t most = h->state == MR_BALANCE_STATE_HALF_OPEN ? PATIENCE_TRIAL : PATIENCE_MAX;
    double ns = budget_expected_ns(r, h, rows) * TIMEOUT_FACTOR;

    ns = fmax(ns > 0 ? ns : (double)TIMEOUT_FIRST_NS, (double)r->min_timeout_ns);
    ns *= MR_MIN(h->patience, most);
    return ns < (double)r->max_timeout_ns ? (int64_t)ns : r->max_timeout_ns;
}

void budget_earn(struct mr_balance *r)
{
    r->retry_share += RETRY_SHARE;
    r->hedge_tokens = fmin(r->hedge_tokens + HEDGE_SHARE, HEDGE_KEEP);
}

bool mr_balance_may_retry(struct mr_balance *r, int64_t now_ns, int64_t *out_again_ns)
{
    double s, lack;

    balance_tick(r, now_ns);
    s = (double)(r->now_ns - r->retry_ns) / (double)MR_NS_PER_S;
    r->retry_ns = r->now_ns;
    r->retry_share *= exp(-s / RETRY_KEEP_S);
    r->retry_floor = fmin(r->retry_floor + s * RETRY_PER_S, RETRY_PER_S * RETRY_KEEP_S);
    if (r->retry_share >= 1) {
        r->retry_share -= 1;
        return true;
    }
    lack = 1 - r->retry_floor;
    if (lack <= 0) {
        r->retry_floor -= 1;
        return true;
    }
    if (out_again_ns) {
        *out_again_ns = r->now_ns + (int64_t)ceil(lack / RETRY_PER_S * (double)MR_NS_PER_S) + 1;
    }
    return false;
}

int64_t mr_balance_backoff_ns(struct mr_balance *r, uint32_t tries)
{
    uint32_t doublings = MR_MIN(MR_MAX(tries, 1u) - 1, 20u);

    return host_jittered(r, MR_MIN(BACKOFF_NS << doublings, BACKOFF_MAX_NS), 0, 1);
}
