/* Options of `millrace perf`. */
#include <math.h>

#include "base/clock.h"
#include "cli/common/cli.h"
#include "codec/json.h"
#include "perf.h"

const char perf_usage[] =
    "usage: millrace perf -m MODEL [--concurrency N | --rate R] [options]\n"
    "       millrace perf update -m MODEL --rate R [--update MODEL] [options]\n\n"
    "Sends inference requests and reports the latency. With --concurrency, N requests are under "
    "way "
    "at any\n"
    "time (closed loop). With --rate, each request is due at a time of its own, whether earlier "
    "ones have\n"
    "been answered or not, and its latency counts from that time (open loop), as users of a busy "
    "server see it.\n\n"
    "Inputs that -i does not give get random values of the type and shape that the model "
    "reports.\n\n"
    "With 'update', a model is updated again and again while MODEL is measured, and the latency "
    "is shown for each\n"
    "phase of the updates beside that of quiet windows.\n";

const char perf_notes[] =
    "Exit status: 0 measured, 1 no request was answered or --max-errors was "
    "exceeded, 2 the command\n"
    "line is wrong. docs/perf.md says how to read the figures.\n"
    "Examples:\n"
    "  millrace perf -m iris\n"
    "  millrace perf -m iris --protocol grpc --rate 2000 --poisson "
    "--duration 60s --json iris.json\n"
    "  millrace perf -m digits --concurrency 1:16:5 -i image=@digit.npy\n"
    "  millrace perf update -m iris --rate 500 --update digits --versions 1,2\n";

#define AT(member) MR_OPTION_AT(struct perf_options, member)
#define CLI        .flags = MR_OPTION_CLI_ONLY

#define CONCURRENCY_MAX 65536
#define RATE_MIN        0.001
#define RATE_MAX        10e6
#define RANGE_MAX       1000
#define RATE_STEPS      10 /* of a range of rates without STEP */

static const char *const protocols[] = {"rest", "binary", "grpc", "grpc-stream", NULL};
static const char *const data_kinds[] = {"random", "zeros", NULL};
static const char *const control_protocols[] = {"auto", "rest", "grpc", NULL};

const struct mr_option perf_table[] = {
    {.name = "Load", .kind = MR_OPTION_GROUP},
    {.name = "concurrency",
     .letter = 'c',
     .kind = MR_OPTION_STRING,
     CLI,
     AT(concurrency),
     .value = "N[:TO[:STEP]]",
     .help = "closed loop: N requests at a time, 1 if no load is given; or one run for each "
             "of N, N + STEP, ... TO; STEP is 1 if not given"},
    {.name = "rate",
     .letter = 'r',
     .kind = MR_OPTION_STRING,
     CLI,
     AT(rate),
     .value = "R[:TO[:STEP]|..TO]",
     .help = "open loop: R requests per second; or one run for each of R, R + STEP, ... TO, "
             "in ten steps if STEP is not given; or, as R..TO, one run in which the rate goes "
             "evenly from R to TO"},
    {.name = "poisson",
     .kind = MR_OPTION_BOOL,
     CLI,
     AT(poisson),
     .help = "with --rate: random gaps, as of many users independent of each other, instead of "
             "equal ones"},
    {.name = "duration",
     .letter = 'd',
     .kind = MR_OPTION_DURATION,
     CLI,
     AT(duration_ns),
     .fallback = "10s",
     .max = 86400,
     .scale = MR_NS_PER_S,
     .value = "TIME",
     .help = "how long each run measures"},
    {.name = "requests",
     .letter = 'n',
     .kind = MR_OPTION_INT,
     CLI,
     AT(requests),
     .fallback = "0",
     .max = 1000000000000,
     .value = "N",
     .help = "measure exactly N requests per run instead; 0 goes by --duration"},
    {.name = "warmup",
     .kind = MR_OPTION_DURATION,
     CLI,
     AT(warmup_ns),
     .fallback = "1s",
     .max = 3600,
     .scale = MR_NS_PER_S,
     .value = "TIME",
     .help = "the same load before each run, not measured"},
    {.name = "connections",
     .kind = MR_OPTION_INT,
     CLI,
     AT(connections),
     .fallback = "0",
     .max = CONCURRENCY_MAX,
     .value = "N",
     .help = "connections at the start; 0: one per request at a time, with HTTP/2 up to 16, with "
             "--rate 32 and 4"},
    {.name = "max-connections",
     .kind = MR_OPTION_INT,
     CLI,
     AT(max_connections),
     .fallback = "4096",
     .min = 1,
     .max = CONCURRENCY_MAX,
     .value = "N",
     .help = "with --rate: more are made up to N while all are busy"},
    {.name = "threads",
     .kind = MR_OPTION_INT,
     CLI,
     AT(threads),
     .fallback = "1",
     .min = 1,
     .max = 64,
     .value = "N",
     .help = "sending threads"},
    {.name = "objective",
     .kind = MR_OPTION_STRING,
     CLI,
     AT(objective),
     .value = "PXX=TIME",
     .help = "search the range of --rate or --concurrency for the highest load that holds this, as "
             "p99=5ms"},
    {.name = "windows",
     .kind = MR_OPTION_INT,
     CLI,
     AT(windows),
     .fallback = "3",
     .min = 1,
     .max = 99,
     .value = "N",
     .help = "with --objective: measure a load up to N times, the majority decides"},
    {.name = "Request", .kind = MR_OPTION_GROUP},
    {.name = "model",
     .letter = 'm',
     .kind = MR_OPTION_STRING,
     CLI,
     AT(model),
     .value = "MODEL",
     .help = "the model"},
    {.name = "model-version",
     .kind = MR_OPTION_STRING,
     CLI,
     AT(version),
     .value = "N",
     .help = "which version; the newest if not given"},
    {.name = "input",
     .letter = 'i',
     .kind = MR_OPTION_LIST,
     CLI,
     AT(inputs),
     .value = "NAME=VALUE",
     .help = "an input, as for 'millrace infer': JSON, @FILE.npy, @FILE.json"},
    {.name = "want",
     .letter = 'o',
     .kind = MR_OPTION_LIST,
     CLI,
     AT(outputs),
     .value = "NAME",
     .help = "an output to ask for; all if none is given"},
    {.name = "parameter",
     .letter = 'p',
     .kind = MR_OPTION_LIST,
     CLI,
     AT(parameters),
     .value = "KEY=VALUE",
     .help = "a request parameter: priority, timeout (us) or the model's own"},
    {.name = "shape",
     .kind = MR_OPTION_LIST,
     CLI,
     AT(shapes),
     .value = "NAME:DIM,DIM,...",
     .help = "dimensions of a made-up input where the model leaves them open; the batch dimension "
             "may be left out"},
    {.name = "batch",
     .letter = 'b',
     .kind = MR_OPTION_INT,
     CLI,
     AT(batch),
     .fallback = "1",
     .min = 1,
     .max = 1000000,
     .value = "N",
     .help = "the first dimension of made-up inputs where the model leaves it open"},
    {.name = "rows",
     .kind = MR_OPTION_BOOL,
     CLI,
     AT(rows),
     .help = "what -i gives are rows, such as a table in a .npy file or a JSON list: each request "
             "has the next --batch of them"},
    {.name = "data",
     .kind = MR_OPTION_CHOICE,
     CLI,
     AT(data),
     .fallback = "random",
     .choices = data_kinds,
     .value = "KIND",
     .help = "made-up values"},
    {.name = "seed",
     .kind = MR_OPTION_INT,
     CLI,
     AT(seed),
     .fallback = "1",
     .max = UINT32_MAX,
     .value = "N",
     .help = "of random values and of --poisson; the same seed makes the same"},
    {.name = "variants",
     .kind = MR_OPTION_INT,
     CLI,
     AT(variants),
     .fallback = "0",
     .max = 100000,
     .value = "N",
     .help =
         "different requests with random values, sent in turn; 0: 16, fewer when they are large"},
    {.name = "check",
     .kind = MR_OPTION_BOOL,
     CLI,
     AT(check),
     .help = "compare the outputs of each answer with the first to the same request, bit by bit; "
             "costs the client time"},
    {.name = "expect",
     .kind = MR_OPTION_LIST,
     CLI,
     AT(expect),
     .value = "NAME=VALUE",
     .help = "compare an output with this value instead: JSON, @FILE.npy, @FILE.json"},
    {.name = "Server", .kind = MR_OPTION_GROUP},
    MR_REMOTE_URL_ROW(struct perf_options, "8000, for gRPC 8001,"),
    MR_REMOTE_PROTOCOL_ROW(struct perf_options, protocols,
                           ", grpc-stream many requests on one stream per connection"),
    {.name = "http2",
     .kind = MR_OPTION_BOOL,
     CLI,
     AT(http2),
     .help = "REST over HTTP/2, without TLS by prior knowledge"},
    {.name = "timeout",
     .letter = 't',
     .kind = MR_OPTION_DURATION,
     AT(timeout_ns),
     .fallback = "10s",
     .max = 3600,
     .scale = MR_NS_PER_S,
     .value = "TIME",
     .help = "time limit of a request, more than 0"},
    MR_REMOTE_ACCESS_ROWS(struct perf_options),
    {.name = "Updates",
     .kind = MR_OPTION_GROUP,
     .help = "with 'millrace perf update'; the server's models must be under explicit control"},
    {.name = "update",
     .kind = MR_OPTION_STRING,
     CLI,
     AT(update),
     .value = "MODEL",
     .help = "which model to update; the one that is measured if not given"},
    {.name = "updates",
     .kind = MR_OPTION_INT,
     CLI,
     AT(updates),
     .fallback = "10",
     .min = 1,
     .max = 10000,
     .value = "N",
     .help =
         "how many, each beside a quiet window; one more comes before and is not counted, two with "
         "--versions"},
    {.name = "versions",
     .kind = MR_OPTION_STRING,
     CLI,
     AT(versions),
     .value = "N,M,...",
     .help = "load these versions of it in turn, by a configuration that serves that one only"},
    {.name = "command",
     .kind = MR_OPTION_STRING,
     CLI,
     AT(command),
     .value = "COMMAND",
     .help = "run this by the shell before each update, such as to put a new version into the "
             "repository, then load; $MILLRACE_UPDATE counts from 0. With neither, the model is "
             "unloaded and loaded"},
    {.name = "window",
     .kind = MR_OPTION_DURATION,
     CLI,
     AT(window_ns),
     .fallback = "0",
     .max = 3600,
     .scale = MR_NS_PER_S,
     .value = "TIME",
     .help = "length of the windows, quiet ones and those with an update; 0: a little more than "
             "the first update took"},
    {.name = "control-url",
     .kind = MR_OPTION_STRING,
     CLI,
     AT(control_url),
     .value = "ADDRESS",
     .help = "where models are loaded; --url if not given"},
    {.name = "control-protocol",
     .kind = MR_OPTION_CHOICE,
     CLI,
     AT(control_protocol),
     .fallback = "auto",
     .choices = control_protocols,
     .value = "PROTOCOL",
     .help = "rest or grpc; auto: as --protocol"},
    {.name = "pid",
     .kind = MR_OPTION_INT,
     CLI,
     AT(pid),
     .fallback = "0",
     .max = INT32_MAX,
     .value = "PID",
     .help = "the server's process on this machine: count its page faults, switches and memory"},
    {.name = "leave-out-doubtful",
     .kind = MR_OPTION_BOOL,
     CLI,
     AT(clean),
     .help = "sums without the windows in which the client was late or its CPU taken away"},
    {.name = "Report", .kind = MR_OPTION_GROUP},
    {.name = "json",
     .kind = MR_OPTION_STRING,
     CLI,
     AT(json),
     .value = "FILE",
     .help = "write everything as JSON; '-' for standard output, instead of the text"},
    {.name = "html",
     .kind = MR_OPTION_STRING,
     CLI,
     AT(html),
     .value = "FILE",
     .help = "write a page with plots, which fetches nothing; '-' for standard output, instead of "
             "the text"},
    {.name = "against",
     .kind = MR_OPTION_STRING,
     CLI,
     AT(against),
     .value = "FILE",
     .help = "compare with an earlier report, made by --json, of runs with the same load"},
    {.name = "max-errors",
     .kind = MR_OPTION_INT,
     CLI,
     AT(max_errors),
     .fallback = "-1",
     .min = -1,
     .max = INT64_MAX,
     .value = "N",
     .help = "fail when more requests than N do; -1: only when none was answered"},
};

const size_t perf_table_len = sizeof perf_table / sizeof *perf_table;

/* ---- ranges ---- */

static int bad_range(const char *option, const char *text, double min, double max, bool whole,
                     struct mr_err *err)
{
    char lo[32];
    char hi[32];

    lo[mr_double_text(min, lo)] = '\0';
    snprintf(hi, sizeof hi, "%.0f", max);
    return MR_FAIL(
        err, MR_E_INVALID,
        "--%s '%.60s': expected a%s number from %s to %s, or FROM:TO[:STEP] of such, with "
        "at most %d values",
        option, text, whole ? " whole" : "", lo, hi, RANGE_MAX);
}

int perf_parse_range(const char *option, const char *text, double min, double max, bool whole,
                     struct perf_range *out, struct mr_err *err)
{
    mr_str rest = mr_str_c(text);
    mr_str item;
    double v[3];
    size_t n = 0;

    while (mr_str_split(&rest, ':', &item)) {
        if (n == 3 || !mr_text_double(item, &v[n]) || !isfinite(v[n]) ||
            (whole && v[n] != floor(v[n]))) {
            return bad_range(option, text, min, max, whole, err);
        }
        n++;
    }
    struct perf_range r = {.from = v[0], .to = n > 1 ? v[1] : v[0], .step = n == 3 ? v[2] : 1};
    if (n == 2 && !whole && r.to > r.from) {
        r.step = (r.to - r.from) / RATE_STEPS;
    }
    if (n > 1 && r.to < r.from) {
        return MR_FAIL(err, MR_E_INVALID, "--%s '%.60s': FROM is larger than TO; a range goes up",
                       option, text);
    }
    if (n == 0 || r.from < min || r.to > max || r.step <= 0 ||
        (r.to - r.from) / r.step >= RANGE_MAX) {
        return bad_range(option, text, min, max, whole, err);
    }
    *out = r;
    return MR_OK;
}

int perf_parse_ramp(const char *text, double min, double max, struct perf_range *out,
                    struct mr_err *err)
{
    const char *dots = strstr(text, "..");
    double from;
    double to;

    if (!dots || !mr_text_double(mr_str_n(text, (size_t)(dots - text)), &from) ||
        !mr_text_double(mr_str_c(dots + 2), &to) || !(from >= min && from <= max) ||
        !(to >= min && to <= max)) {
        return MR_FAIL(err, MR_E_INVALID,
                       "--rate %.40s: expected FROM..TO, both from %g to %.10g, for a run in which "
                       "the rate goes from one to the other",
                       text, min, max);
    }
    *out = (struct perf_range){.from = from, .to = from, .step = 1, .ramp_to = to};
    return MR_OK;
}

size_t perf_range_count(const struct perf_range *r)
{
    return (size_t)((r->to - r->from) / r->step + 1e-9) + 1;
}

double perf_range_at(const struct perf_range *r, size_t i)
{
    return r->from + (double)i * r->step;
}

int perf_parse_objective(const char *text, struct perf_objective *out, struct mr_err *err)
{
    static const struct {
        const char *unit;
        double ns;
    } units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
    const char *equals = strchr(text, '=');
    mr_str name = mr_str_n(text, equals ? (size_t)(equals - text) : 0);
    mr_str time = mr_str_c(equals ? equals + 1 : "");
    double percent = 0;
    double value = 0;
    double limit = 0;

    if (mr_str_eq_c(name, "max")) {
        percent = 100;
    } else if (name.len < 2 || name.ptr[0] != 'p' || name.len >= sizeof out->name ||
               !mr_text_double(mr_str_sub(name, 1, name.len), &percent)) {
        percent = 0;
    }
    for (size_t i = 0; i < sizeof units / sizeof *units && limit == 0; i++) {
        size_t n = strlen(units[i].unit);
        if (mr_str_ends(time, mr_str_c(units[i].unit)) &&
            mr_text_double(mr_str_sub(time, 0, time.len - n), &value)) {
            limit = value * units[i].ns;
        }
    }
    if (!(percent > 0 && percent <= 100) || !(limit >= 1 && limit <= 60e9)) {
        return MR_FAIL(
            err, MR_E_INVALID,
            "--objective '%.60s': expected a percentile and a time from 1ns to 60s, such "
            "as p99=5ms, p99.9=800us or max=1s",
            text);
    }
    *out = (struct perf_objective){.q = percent / 100, .limit_ns = (uint64_t)limit};
    snprintf(out->name, sizeof out->name, "%.*s", MR_STR_ARG(name));
    return MR_OK;
}

int perf_parse_versions(const char *text, struct perf *out, struct mr_err *err)
{
    mr_str rest = mr_str_c(text);
    mr_str item;
    int64_t v;

    while (mr_str_split(&rest, ',', &item)) {
        if (!mr_str_to_i64(item, &v) || v < 1) {
            return MR_FAIL(err, MR_E_INVALID, "--versions '%.60s': expected versions such as 1,2",
                           text);
        }
        MR_VEC_PUSH(&out->versions, v);
    }
    return MR_OK;
}

static bool is_ramp(const struct perf_options *o)
{
    return o->rate && strstr(o->rate, "..");
}

bool perf_control_is_grpc(const struct perf_options *o)
{
    bool is_automatic = o->control_protocol == PERF_CONTROL_AUTO;
    bool is_grpc = o->control_url && mr_remote_is_grpc(o->control_url);

    return o->control_protocol == PERF_CONTROL_GRPC ||
           (is_automatic && (o->protocol >= PERF_GRPC || is_grpc));
}

bool perf_is_to_stdout(const struct perf_options *o)
{
    return (o->json && strcmp(o->json, "-") == 0) || (o->html && strcmp(o->html, "-") == 0);
}

static bool has_update_option(const struct perf_options *o)
{
    return o->update || o->versions || o->command || o->window_ns || o->control_url ||
           o->control_protocol || o->pid || o->clean;
}

static int check_update(struct perf *p, struct mr_err *err)
{
    const struct perf_options *o = &p->opt;
    struct mr_url url;
    bool is_same = !o->update || strcmp(o->update, o->model) == 0;

    if (!o->updates_models) {
        return has_update_option(o)
                   ? MR_FAIL(err, MR_E_INVALID,
                             "--update, --versions, --command, --window, --control-..., --pid "
                             "and --leave-out-doubtful go with 'millrace perf update'")
                   : MR_OK;
    }
    if (!o->rate || strchr(o->rate, ':') || is_ramp(o)) {
        return MR_FAIL(err, MR_E_INVALID, "update needs one load with --rate R");
    }
    if (o->requests || o->objective || o->against) {
        return MR_FAIL(err, MR_E_INVALID,
                       "--requests, --objective and --against do not go with update");
    }
    if (o->versions && o->command) {
        return MR_FAIL(err, MR_E_INVALID, "--versions and --command exclude each other");
    }
    if (is_same && !o->versions && !o->command) {
        return MR_FAIL(err, MR_E_INVALID,
                       "unloading the model that is measured fails its requests: give --versions, "
                       "--command, or another model with --update");
    }
    int rc = o->versions ? perf_parse_versions(o->versions, p, err) : MR_OK;
    return rc < 0 || !o->control_url ? rc : mr_remote_url(o->control_url, 1, &url, err);
}

static int check_load(const struct perf_options *o, struct mr_err *err)
{
    if (!o->model) {
        return MR_FAIL(err, MR_E_INVALID, "no model: give -m MODEL");
    }
    if (o->rate && o->concurrency) {
        return MR_FAIL(err, MR_E_INVALID, "--rate and --concurrency exclude each other");
    }
    if (o->poisson && !o->rate) {
        return MR_FAIL(err, MR_E_INVALID, "--poisson goes with --rate only");
    }
    if (o->duration_ns <= 0) {
        return MR_FAIL(err, MR_E_INVALID, "--duration: expected more than 0");
    }
    if (o->timeout_ns <= 0) {
        return MR_FAIL(err, MR_E_INVALID, "--timeout: expected more than 0");
    }
    if (o->objective && !strchr(o->rate ? o->rate : o->concurrency ? o->concurrency : "", ':')) {
        return MR_FAIL(err, MR_E_INVALID,
                       "--objective needs a range to search: --rate FROM:TO, or --concurrency");
    }
    if (is_ramp(o) && o->requests) {
        return MR_FAIL(err, MR_E_INVALID,
                       "--requests: a ramp (--rate FROM..TO) goes by --duration");
    }
    return MR_OK;
}

int perf_check(struct perf *p, struct perf_range *out, struct mr_err *err)
{
    const struct perf_options *o = &p->opt;
    int rc = check_load(o, err);

    if (rc < 0) {
        return rc;
    }
    if (o->json && o->html && strcmp(o->json, "-") == 0 && strcmp(o->html, "-") == 0) {
        return MR_FAIL(err, MR_E_INVALID, "--json and --html cannot both go to standard output");
    }
    if (o->http2 && o->protocol >= PERF_GRPC) {
        return MR_FAIL(err, MR_E_INVALID, "--http2 is for REST; gRPC is always over HTTP/2");
    }
    rc = check_update(p, err);
    if (rc == MR_OK && o->objective) {
        rc = perf_parse_objective(o->objective, &p->objective, err);
    }
    if (rc < 0) {
        return rc;
    }
    if (is_ramp(o)) {
        return perf_parse_ramp(o->rate, RATE_MIN, RATE_MAX, out, err);
    }
    if (o->rate) {
        return perf_parse_range("rate", o->rate, RATE_MIN, RATE_MAX, false, out, err);
    }
    return perf_parse_range("concurrency", o->concurrency ? o->concurrency : "1", 1,
                            CONCURRENCY_MAX, true, out, err);
}
