/* Counters of variants; pure. */
#include "variant/stats.h"

#include <math.h>
#include <stdbool.h>

#include "millrace/status.h"

/* Statuses by which a server says that the request is at fault. */
static bool is_of_client(int status)
{
    return status == MR_E_INVALID || status == MR_E_NOT_FOUND || status == MR_E_UNSUPPORTED ||
           status == MR_E_TOO_LARGE;
}

void mr_variant_cell_add(struct mr_variant_cell *cell, int status, int64_t latency_ns)
{
    if (status == MR_E_CANCELLED) {
        mr_count_add(&cell->cancelled, 1);
        return;
    }
    if (status < 0) {
        mr_count_add(&cell->errors, 1);
        mr_count_add(&cell->server_errors, !is_of_client(status));
    } else {
        mr_hist_add(&cell->latency_ns, latency_ns > 0 ? (uint64_t)latency_ns : 0);
    }
    mr_count_add(&cell->count, 1);
}

static void add(_Atomic uint64_t *c, uint64_t n)
{
    atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}

void mr_variant_cell_add_shared(struct mr_variant_cell *cell, int status, int64_t latency_ns)
{
    const uint64_t ns = latency_ns > 0 ? (uint64_t)latency_ns : 0;

    if (status == MR_E_CANCELLED) {
        add(&cell->cancelled, 1);
        return;
    }
    if (status < 0) {
        add(&cell->errors, 1);
        add(&cell->server_errors, !is_of_client(status));
    } else {
        add(&cell->latency_ns.count[mr_hist_bucket(ns)], 1);
        add(&cell->latency_ns.sum, ns);
    }
    add(&cell->count, 1);
}

void mr_variant_sums_add(struct mr_variant_sums *io, const struct mr_variant_cell *cell)
{
    io->count += mr_count_get(&cell->count);
    io->errors += mr_count_get(&cell->errors);
    io->server_errors += mr_count_get(&cell->server_errors);
    io->cancelled += mr_count_get(&cell->cancelled);
    io->latency_sum_ns += mr_count_get(&cell->latency_ns.sum);
    for (unsigned i = 0; i < MR_HIST_BUCKETS; i++) {
        io->latency[i] += mr_count_get(&cell->latency_ns.count[i]);
    }
}

void mr_variant_sums_since(struct mr_variant_sums *out, const struct mr_variant_sums *now,
                           const struct mr_variant_sums *before)
{
    out->count = now->count - before->count;
    out->errors = now->errors - before->errors;
    out->server_errors = now->server_errors - before->server_errors;
    out->cancelled = now->cancelled - before->cancelled;
    out->latency_sum_ns = now->latency_sum_ns - before->latency_sum_ns;
    for (unsigned i = 0; i < MR_HIST_BUCKETS; i++) {
        out->latency[i] = now->latency[i] - before->latency[i];
    }
}

static uint64_t answered(const struct mr_variant_sums *s)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < MR_HIST_BUCKETS; i++) {
        n += s->latency[i];
    }
    return n;
}

double mr_variant_sums_quantile_ms(const struct mr_variant_sums *s, double q)
{
    const double rank = fmin(fmax(q, 0), 1) * (double)answered(s);
    double seen = 0;

    if (answered(s) == 0) {
        return NAN;
    }
    for (unsigned i = 0; i < MR_HIST_BUCKETS; i++) {
        const double n = (double)s->latency[i];
        if (n > 0 && seen + n >= rank) {
            const double low = i ? (double)mr_hist_upper(i - 1) + 1 : 0;
            const double high = (double)mr_hist_upper(i) + 1;
            return (low + (high - low) * (rank - seen) / n) / 1e6;
        }
        seen += n;
    }
    return NAN;
}

double mr_variant_sums_mean_ms(const struct mr_variant_sums *s)
{
    const uint64_t n = answered(s);

    return n ? (double)s->latency_sum_ns / (double)n / 1e6 : NAN;
}
