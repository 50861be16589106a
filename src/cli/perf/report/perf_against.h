/* An earlier report of `millrace perf`, read back, and the comparison with it. */
#ifndef MR_CLI_PERF_AGAINST_H
#define MR_CLI_PERF_AGAINST_H

#include "cli/perf/setup/perf.h"

/** A value with its confidence interval; high UINT64_MAX: no bound. */
struct perf_estimate {
    uint64_t value;
    uint64_t low;
    uint64_t high;
};

struct perf_old_run {
    double concurrency; /* 0: open loop */
    double rate;        /* slots per second */
    double rate_to;     /* mr_perf_load's */
    bool poisson;
    double answers; /* per second */
    struct perf_estimate at[PERF_PERCENTILES];
};

struct perf_old {
    MR_VEC(struct perf_old_run) runs;
};

/** Errors: MR_E_IO, MR_E_INVALID (not such a report). Release with perf_old_fini, also after an error. */
int perf_old_read(const char *path, struct perf_old *out, struct mr_err *err);
int perf_old_parse(mr_str text, struct perf_old *out, struct mr_err *err);
void perf_old_fini(struct perf_old *old);
/** The run with that load; NULL: none. */
const struct perf_old_run *perf_old_find(const struct perf_old *old,
                                         const struct mr_perf_load *load);

struct perf_ratio {
    double value;
    double low;
    double high; /* INFINITY: no bound */
    int verdict; /* -1 less, 1 more, 0 no difference beyond noise */
};
/** The ratio new / old. */
struct perf_ratio perf_ratio_of(const struct perf_estimate *new, const struct perf_estimate *old);
struct perf_estimate perf_estimate_of(const struct mr_perf_result *r, double q);

void perf_print_against(const struct perf *p, const struct perf_old *old, FILE *out);

#endif
