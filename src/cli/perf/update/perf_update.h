/* `millrace perf update`: updates of a model while one is measured, between its files.
 *
 *   perf_update.c         the run: windows in turn, updates, what was seen of each
 *   perf_update_report.c  sums over the windows and phases
 *   perf_update_print.c   for people
 *   perf_update_json.c    for programs
 *   perf_update_html.c    a page with plots
 *   perf_control.c        the calls
 *   perf_facts.c          what the system counts */
#ifndef MR_CLI_PERF_UPDATE_H
#define MR_CLI_PERF_UPDATE_H

#include "cli/perf/setup/perf.h"
#include "perf/spans.h"
#include "perf_control.h"
#include "perf_facts.h"

/** Stretches of an update. Only a server that tells the states of its loads shows more than unload, load and
 *  after. */
enum perf_phase {
    PERF_PHASE_UNLOAD,  /* the call */
    PERF_PHASE_LOAD,    /* files are read; without states: the call */
    PERF_PHASE_WARM,    /* instances are made and warmed up */
    PERF_PHASE_PUBLISH, /* from when requests reach it */
    PERF_PHASE_DRAIN,   /* the old one's last requests */
    PERF_PHASE_RELEASE, /* the old one's memory */
    PERF_PHASE_AFTER,   /* the second behind all that */
    PERF_PHASES
};
extern const char *const perf_phase_names[PERF_PHASES];

/** A stretch of the run with an update in it, or without. Times as mr_now_ns. */
struct perf_window_row {
    bool is_update;
    struct mr_perf_span span;
    struct mr_perf_span phases[PERF_PHASES]; /* end 0: there was none */
    int rc;                                  /* of the update */
    char problem[200];
    int64_t shift_ns; /* of the server's clock, when it cannot be the same as ours */
    double steal;     /* share of the machine's CPUs that others took */
    bool has_facts;
    uint64_t rss_before;
    uint64_t rss_after;
    uint64_t maps_after;
    struct perf_thread_list threads; /* counts in it, by name */
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
    MR_VEC(int64_t) versions; /* loaded in turn; empty: another way */
    struct mr_buf config;     /* with versions: what is changed */
    int64_t window_ns;
    struct mr_perf_load load;
    struct mr_perf_result *result;
    MR_VEC(struct perf_window_row) windows;
    /* between the thread that updates and the one that measures */
    atomic_bool runs;
    atomic_bool is_over;
    int rc; /* of the first update, which is not counted, and of all that is no update */
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

/** The whole command behind its options; returns the exit code. The target and one load are made. */
int perf_update_run(struct perf *p, const struct mr_perf_load *load, const char *program);
/** "1,2,3": versions from 1. Errors: MR_E_INVALID. */
int perf_parse_versions(const char *text, struct perf_update *out, struct mr_err *err);
/** When the phases were, as the server tells it of loads that entered states after `mark_wall_ns`, into `row`,
 *  whose phases say when the calls were; wall_to_mono_ns is what to add to our wall clock. */
void perf_update_phases(const struct perf_lives *lives, int64_t mark_wall_ns,
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
