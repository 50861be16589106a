/* Shared by the files of `millrace perf`. */
#ifndef MR_CLI_PERF_H
#define MR_CLI_PERF_H

#include "base/rng.h"
#include "base/vec.h"
#include "cli/common/stats.h"
#include "cli/infer/infer.h"
#include "perf/perf.h"

/** The protocols of infer, and streams. */
enum perf_protocol {
    PERF_REST = INFER_REST,
    PERF_BINARY = INFER_BINARY,
    PERF_GRPC = INFER_GRPC,
    PERF_GRPC_STREAM
};
enum perf_data { PERF_RANDOM, PERF_ZEROS };

struct perf_options {
    const char *model;
    const char *version;
    const char *url;
    struct mr_remote_access access;
    int protocol; /* enum perf_protocol */
    bool http2;
    struct mr_option_list inputs;
    struct mr_option_list outputs;
    struct mr_option_list parameters;
    struct mr_option_list shapes;
    uint32_t batch;
    int data; /* enum perf_data */
    uint64_t seed;
    uint32_t variants; /* 0: not given */
    bool rows;
    const char *concurrency;
    const char *rate;
    bool poisson;
    int64_t duration_ns;
    uint64_t requests;
    int64_t warmup_ns;
    uint32_t connections; /* 0: not given */
    uint32_t max_connections;
    uint32_t threads;
    int64_t timeout_ns;
    int64_t max_errors; /* -1: any number */
    bool check;
    struct mr_option_list expect;
    const char *objective;
    uint32_t windows;
    const char *json;
    const char *html;
    const char *against;
    /* perf update */
    bool updates_models; /* the word after `perf` */
    const char *update;  /* NULL: the model that is measured */
    uint32_t updates;
    const char *versions;
    const char *command;
    int64_t window_ns; /* 0: as long as updates take */
    const char *control_url;
    int control_protocol; /* enum perf_control_protocol */
    int64_t pid;          /* 0: none */
    bool clean;
};

enum perf_control_protocol { PERF_CONTROL_AUTO, PERF_CONTROL_REST, PERF_CONTROL_GRPC };

/** Values of --concurrency or --rate: from, from + step, ... up to `to`. */
struct perf_range {
    double from;
    double to;
    double step;
    double ramp_to; /* one run, in which the rate goes from `from` to this; 0: none */
};

/** An objective: a limit for a percentile of the latency. */
struct perf_objective {
    char name[16]; /* "p99.9" */
    double q;
    uint64_t limit_ns;
};

/** One measured level. */
struct perf_row {
    struct mr_perf_load load;
    struct mr_perf_result *result;
    bool has_server; /* the server reports statistics */
    struct mr_stats_row server;
    bool holds; /* the objective */
};

/** The correct answers, one per request; private to perf_check.c. */
struct perf_checker;

/** One run of the command. */
struct perf {
    struct perf_options opt;
    struct infer infer; /* metadata, inputs, the connection for queries */
    struct mr_perf_body *bodies;
    size_t body_count;
    struct mr_perf_target target;
    struct perf_checker *checker;    /* NULL: answers are not checked */
    char stats_problem[200];         /* why the server reports no statistics */
    struct perf_objective objective; /* q 0: none */
    MR_VEC(int64_t) versions;        /* of --versions */
    double best;                     /* highest load that meets it; 0: none */
    double ramp_to;                  /* perf_range's */
    bool shows;                      /* progress, on a terminal */
    MR_VEC(struct perf_row) rows;
};

/* perf_search.c */

/** Set by Ctrl-C: the results so far are reported. */
extern atomic_bool perf_interrupted;

/* perf_options.c */

extern const char perf_usage[];
extern const char perf_notes[];
extern const struct mr_option perf_table[];
extern const size_t perf_table_len;
/** True if models are loaded and unloaded over gRPC. */
bool perf_control_is_grpc(const struct perf_options *o);
/** True if a report replaces the text. */
bool perf_is_to_stdout(const struct perf_options *o);
/** Checks the options and their combinations, and reads the objective and the versions; *out is the load. Errors: MR_E_INVALID. */
int perf_check(struct perf *p, struct perf_range *out, struct mr_err *err);
/** "1,2,3": versions from 1, into those of *out. Errors: MR_E_INVALID. */
int perf_parse_versions(const char *text, struct perf *out, struct mr_err *err);
/** "p99=5ms", "p99.9=800us", "max=1s", "mean" is none. Errors: MR_E_INVALID. */
int perf_parse_objective(const char *text, struct perf_objective *out, struct mr_err *err);
/** "A" or "A:B:STEP", every value from `min` to `max`, whole numbers only if `whole`. At most 1000 values.
 *  Errors: MR_E_INVALID, naming the option and the range. */
int perf_parse_range(const char *option, const char *text, double min, double max, bool whole,
                     struct perf_range *out, struct mr_err *err);
/** "A..B". Errors: as perf_parse_range. */
int perf_parse_ramp(const char *text, double min, double max, struct perf_range *out,
                    struct mr_err *err);
size_t perf_range_count(const struct perf_range *r);
double perf_range_at(const struct perf_range *r, size_t i);

/* perf_input.c */

/** The requests to be sent, from options and metadata. */
int perf_make_bodies(struct perf *p, struct mr_err *err);
void perf_free_bodies(struct perf *p);
/** Fills inputs that were not given; random values depend on the generator only. */
int perf_fill(struct mr_array *a, int data, struct mr_rng *rng, struct mr_err *err);

/* perf_check.c */

/** Compares answers with the first to the same request, or with --expect. Errors: MR_E_INVALID, MR_E_IO, as for
 *  inputs. */
int perf_checker_new(struct perf *p, struct mr_err *err);
void perf_checker_free(struct perf_checker **io_c);

/* perf_search.c */

/** Probes load number `i`: 1 if it meets the objective, 0 if not, negative: an error, which ends the search. */
typedef int(perf_probe_fn)(void *ctx, size_t i, struct mr_err *err);
/** The highest of `count` loads that meets the objective, each probed at most `windows` times and decided by the
 *  majority, assuming that all loads above a failing one fail; *out is -1 if none does. */
int perf_search(size_t count, uint32_t windows, perf_probe_fn *probe, void *ctx, int64_t *out,
                struct mr_err *err);
/** True if a run met the objective: no failures, and the percentile within the limit. */
bool perf_holds(const struct perf_objective *objective, const struct mr_perf_result *r);

/* perf_print.c */

const char *perf_protocol_text(const struct perf *p);
void perf_print_head(const struct perf *p, FILE *out);
/** The table of all rows, errors and doubts. */
void perf_print(const struct perf *p, FILE *out);
/** Means in ns of the server's own counts. */
double perf_server_queue(const struct mr_stats_row *s);
double perf_server_compute(const struct mr_stats_row *s);
/** Answers of the server to other clients during the run. */
uint64_t perf_foreign(const struct perf_row *row);
/** "16 at a time", "1000/s". */
void perf_load_text(const struct mr_perf_load *load, char out[64]);

/* perf_json.c */

/** Writes to the file, or to standard output for "-". Errors: MR_E_IO. */
int perf_write_html(const struct perf *p, const char *path, struct mr_err *err);
int perf_write_file(const char *path, const struct mr_buf *text, struct mr_err *err);
int perf_write_json(const struct perf *p, const char *path, struct mr_err *err);

/** The reported percentiles, "p50" and so on. */
struct perf_percentile {
    const char *name;
    double q;
};
#define PERF_PERCENTILES 6
extern const struct perf_percentile perf_percentiles[PERF_PERCENTILES];

#endif
