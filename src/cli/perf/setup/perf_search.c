/* The search for the highest load that holds an objective: bisection over the loads of the range. As one window is
 * noisy, each load is measured until the majority of its windows agree. */
#include "perf.h"

atomic_bool perf_interrupted;

bool perf_holds(const struct perf_objective *objective, const struct mr_perf_result *r)
{
    return r->answered > 0 && r->failed == 0 &&
           mr_hdr_quantile(&r->latency, objective->q) <= objective->limit_ns;
}

/* 1 or 0 by the majority of the windows. */
static int vote(size_t i, uint32_t windows, perf_probe_fn *probe, void *ctx, struct mr_err *err)
{
    uint32_t yes = 0;
    uint32_t no = 0;

    while (yes <= windows / 2 && no <= (windows - 1) / 2) {
        int rc = probe(ctx, i, err);
        if (rc < 0) {
            return rc;
        }
        yes += rc > 0;
        no += rc == 0;
    }
    return yes > windows / 2;
}

int perf_search(size_t count, uint32_t windows, perf_probe_fn *probe, void *ctx, int64_t *out,
                struct mr_err *err)
{
    int64_t fine = -1;
    int64_t bad = (int64_t)count;

    while (bad - fine > 1) {
        int64_t middle = fine + (bad - fine) / 2;
        int rc = vote((size_t)middle, windows, probe, ctx, err);
        if (rc < 0) {
            return rc;
        }
        if (rc) {
            fine = middle;
        } else {
            bad = middle;
        }
    }
    *out = fine;
    return MR_OK;
}
