/* Shared by the files of `millrace perf update`: updates of a model while one is measured.
 *
 *   perf_update.c         the run: alternating windows, updates, and the record of each
 *   perf_update_report.c  sums over the windows and phases
 *   perf_update_print.c   as text
 *   perf_update_json.c    as JSON
 *   perf_update_html.c    a page with plots
 *   perf_control.c        the calls
 *   perf_counters.c          the system's counters */
#ifndef MR_CLI_PERF_UPDATE_H
#define MR_CLI_PERF_UPDATE_H

#include "cli/perf/setup/perf.h"
#include "perf/periods.h"
#include "perf_control.h"
#include "perf_counters.h"

/** Phases of an update. Only a server that reports the states of its loads has more than unload, load and after. */
enum perf_phase {
    PERF_PHASE_UNLOAD,  /* the call */
    PERF_PHASE_LOAD,    /* files are read; without states: the call */
    PERF_PHASE_WARM,    /* instances are made and warmed up */
    PERF_PHASE_PUBLISH, /* requests reach the new version */
    PERF_PHASE_DRAIN,   /* the old one's last requests */
    PERF_PHASE_RELEASE, /* the old one's memory */
    PERF_PHASE_AFTER,   /* the second after that */
    PERF_PHASES
};
extern const char *const perf_phase_names[PERF_PHASES];

/** A window of the run with or without an update. Times as mr_now_ns. */
struct perf_window_row {
    bool is_update;
    struct mr_perf_period period;
    struct mr_perf_period phases[PERF_PHASES]; /* end 0: none */
    int rc;                                    /* of the update */
    char problem[200];
    int64_t shift_ns; /* of the server's clock, if it differs from the local one */
    double steal;     /* share of the machine's CPU time taken by other guests */
    bool has_counters;
    uint64_t rss_before;
    uint64_t rss_after;
    uint64_t maps_after;
    struct perf_thread_list threads; /* its counters, by name */
    /* perf_update_report.c: */
    uint64_t sent;
    uint64_t failed;
    uint64_t late;
    int64_t stall_ns;
    uint64_t at[PERF_PERCENTILES];
    uint64_t max_ns;
    bool is_doubtful; /* the client was late, or its CPU taken away */
};

/** All windows of a kind, or all phases. */
struct perf_update_sum {
    const char *name;
    struct mr_perf_result *result;
    unsigned count; /* of them */
    int64_t stall_ns;
    uint64_t above; /* latencies above twice the quiet p99.9 */
};

struct perf_update {
    struct perf *p;
    struct perf_control control;
    bool tells_states;
    struct mr_buf config; /* with versions: the configuration to change */
    int64_t window_ns;
    struct mr_perf_load load;
    struct mr_perf_result *result;
    MR_VEC(struct perf_window_row) windows;
    /* shared by the updating and the measuring thread */
    atomic_bool runs;
    atomic_bool is_over;
    int rc; /* of the first update, which is not counted, and of the run itself */
    struct mr_err err;
    /* perf_update_report.c: */
    struct perf_update_sum quiet;
    struct perf_update_sum updates;
    struct perf_update_sum phases[PERF_PHASES];
    struct perf_thread_list quiet_threads;
    struct perf_thread_list update_threads;
    unsigned doubtful;
    unsigned failed_updates;
};

/* perf_update.c */

/** Runs the command after its options were parsed; returns the exit code. The target and one load must be set. */
int perf_update_run(struct perf *p, const struct mr_perf_load *load, const char *program);
/** Sets the phases of `row`, which has the times of the calls, from the server's report on loads that entered states
 *  after `mark_wall_ns`; wall_to_mono_ns is the difference from the wall clock to the monotonic clock. */
void perf_update_phases(const struct perf_load_history *history, int64_t mark_wall_ns,
                        int64_t wall_to_mono_ns, struct perf_window_row *row);

/* perf_update_report.c */

void perf_update_sum_up(struct perf_update *u);
void perf_update_fini_sums(struct perf_update *u);

/* perf_update_print.c, perf_update_json.c, perf_update_html.c */

void perf_update_print_head(const struct perf_update *u, FILE *out);
void perf_update_print(const struct perf_update *u, FILE *out);
int perf_update_write_html(const struct perf_update *u, const char *path, struct mr_err *err);
int perf_update_write_json(const struct perf_update *u, const char *path, struct mr_err *err);

#endif
