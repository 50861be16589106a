/* `millrace perf`: load on a server of the Open Inference Protocol, and its latency. Gets the model's metadata, makes
 * the requests, runs one load after the other (by src/perf), and prints the results. */
#include <signal.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "cli/common/cli.h"
#include "cli/common/term.h"
#include "cli/perf/report/perf_against.h"
#include "cli/perf/update/perf_update.h"

/* ---- the load ---- */

#define STREAMS_MAX 32

static uint32_t default_connections(const struct perf *p, uint32_t concurrency)
{
    if (concurrency == 0) {
        return p->target.http2 ? 4 : 32;
    }
    /* Servers accept about a hundred concurrent requests on one connection. */
    return p->target.http2 ? MR_MAX(MR_MIN(concurrency, 16u), concurrency / 64) : concurrency;
}

static int make_load(const struct perf *p, double value, struct mr_perf_load *out,
                     struct mr_err *err)
{
    const struct perf_options *o = &p->opt;
    struct mr_perf_load l = {.poisson = o->poisson,
                             .seed = o->seed,
                             .warmup_ns = o->warmup_ns,
                             .duration_ns = o->duration_ns,
                             .requests = o->requests,
                             .max_connections = o->max_connections,
                             .streams = p->target.http2 ? STREAMS_MAX : 1};

    if (o->rate) {
        l.rate = value;
        l.rate_to = p->ramp_to;
    } else {
        l.concurrency = (uint32_t)value;
    }
    l.connections = o->connections ? o->connections : default_connections(p, l.concurrency);
    if (l.concurrency) {
        if (!p->target.http2 && l.connections < l.concurrency) {
            return MR_FAIL(err, MR_E_INVALID,
                           "--connections %u: HTTP/1.1 needs one for each of --concurrency %u",
                           l.connections, l.concurrency);
        }
        l.connections = MR_MIN(l.connections, l.concurrency);
        l.max_connections = l.connections;
    } else if (l.connections > l.max_connections) {
        if (o->connections) {
            return MR_FAIL(err, MR_E_INVALID, "--connections %u: more than --max-connections %u",
                           l.connections, l.max_connections);
        }
        l.connections = l.max_connections;
    }
    l.threads = MR_MIN(o->threads, l.connections);
    *out = l;
    return MR_OK;
}

/* ---- while it runs ---- */

static void on_interrupt(int signal)
{
    (void)signal;
    atomic_store(&perf_interrupted, true);
}

/* The first Ctrl-C ends the run with a report, a second one ends the program. */
static void catch_interrupt(void)
{
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESETHAND};

    sigaction(SIGINT, &action, NULL);
}

static void on_second(void *ctx, const struct mr_perf_second *s)
{
    char p50[32];
    char p99[32];
    char max[32];

    (void)ctx;
    mr_text_duration(p50, (double)s->p50_ns);
    mr_text_duration(p99, (double)s->p99_ns);
    mr_text_duration(max, (double)s->max_ns);
    fprintf(stderr, "\r%5.0f s  %.0f/s  p50 %s  p99 %s  max %s  failed %llu\033[K",
            s->begin_s + s->length_s, s->length_s > 0 ? (double)s->answered / s->length_s : 0, p50,
            p99, max, (unsigned long long)s->failed);
    fflush(stderr);
}

/* Gets the server's own counts, or the reason why there are none. */
static bool get_stats(struct perf *p, struct mr_stats_row *out)
{
    struct mr_err err;

    if (p->stats_problem[0]) {
        return false;
    }
    if (mr_stats_get(&p->infer.remote, p->target.grpc, p->opt.model, p->opt.version, out, &err) <
        0) {
        snprintf(p->stats_problem, sizeof p->stats_problem, "%.190s", err.msg);
        return false;
    }
    return true;
}

static int run_level(struct perf *p, double value, struct mr_err *err)
{
    struct mr_stats_row before;
    struct mr_stats_row after;
    struct mr_perf_hooks hooks = {.progress = p->shows ? on_second : NULL,
                                  .stop = &perf_interrupted};
    struct perf_row row = {.result = NULL};
    int rc = make_load(p, value, &row.load, err);

    if (rc < 0) {
        return rc;
    }
    row.result = MR_NEW(struct mr_perf_result);
    row.has_server = get_stats(p, &before);
    rc = mr_perf_run(&p->target, &row.load, &hooks, row.result, err);
    if (p->shows) {
        fprintf(stderr, "\r\033[K");
    }
    if (rc < 0) {
        mr_free(row.result);
        return rc;
    }
    row.has_server = row.has_server && get_stats(p, &after);
    if (row.has_server) {
        row.server = mr_stats_since(&before, &after);
    }
    row.holds = p->objective.q > 0 && perf_holds(&p->objective, row.result);
    MR_VEC_PUSH(&p->rows, row);
    return MR_OK;
}

/* ---- the command ---- */

static int open_target(struct perf *p, struct mr_err *err)
{
    const struct perf_options *o = &p->opt;
    struct infer *x = &p->infer;
    bool grpc = o->protocol >= PERF_GRPC;
    mr_str path;
    int rc;

    x->opt = (struct infer_options){.model = o->model,
                                    .version = o->version,
                                    .url = o->url,
                                    .protocol = grpc ? INFER_GRPC : o->protocol,
                                    .inputs = o->inputs,
                                    .outputs = o->outputs,
                                    .parameters = o->parameters};
    p->target.grpc = grpc;
    p->target.http2 = grpc || o->http2;
    MR_TRY(mr_remote_open(&x->remote, o->url, grpc ? 8001 : 8000, p->target.http2, o->timeout_ns,
                          &o->access, err));
    p->target.address = x->remote.address;
    p->target.tls = x->remote.tls ? &o->access.tls : NULL;
    p->target.headers = o->access.headers.at;
    p->target.header_count = o->access.headers.len;
    p->target.timeout_ns = o->timeout_ns;
    if (grpc) {
        p->target.streams = o->protocol == PERF_GRPC_STREAM;
        p->target.path = p->target.streams ? "/inference.GRPCInferenceService/ModelStreamInfer"
                                           : "/inference.GRPCInferenceService/ModelInfer";
        return MR_OK;
    }
    const struct mr_endpoint e = infer_endpoint(x);
    MR_TRY(mr_endpoint_names_check(&e, err));
    path = mr_endpoint_path(&e, "/infer", &x->arena);
    p->target.path = path.ptr;
    rc = path.ptr ? MR_OK : MR_FAIL(err, MR_E_TOO_LARGE, "the model's name is too long");
out:
    return rc;
}

/* As many descriptors as connections may need. */
static void raise_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

struct probe {
    struct perf *p;
    const struct perf_range *range;
};

static int probe_load(void *ctx, size_t i, struct mr_err *err)
{
    const struct probe *probe = ctx;
    struct perf *p = probe->p;

    if (atomic_load(&perf_interrupted)) {
        return MR_FAIL(err, MR_E_CANCELLED, "the search was interrupted");
    }
    int rc = run_level(p, perf_range_at(probe->range, i), err);
    return rc < 0 ? rc : p->rows.at[p->rows.len - 1].holds;
}

static int run_levels(struct perf *p, const struct perf_range *range, struct mr_err *err)
{
    size_t count = perf_range_count(range);
    struct probe probe = {p, range};
    int64_t best;
    int rc = MR_OK;

    if (p->objective.q > 0) {
        rc = perf_search(count, p->opt.windows, probe_load, &probe, &best, err);
        p->best = rc == MR_OK && best >= 0 ? perf_range_at(range, (size_t)best) : 0;
        return rc == MR_E_CANCELLED && p->rows.len ? MR_OK : rc;
    }
    for (size_t i = 0; i < count && rc == MR_OK && !atomic_load(&perf_interrupted); i++) {
        rc = run_level(p, perf_range_at(range, i), err);
    }
    return rc;
}

/* Prepares target and requests, and checks that the largest load is possible. *out_code: the exit code on failure. */
static int prepare(struct perf *p, const struct perf_range *range, struct mr_perf_load *out_largest,
                   int *out_code, struct mr_err *err)
{
    int rc;

    *out_code = MR_EXIT_FAILED;
    MR_TRY(open_target(p, err));
    MR_TRY(infer_meta_get(&p->infer, err));
    *out_code = MR_EXIT_USAGE;
    MR_TRY(perf_make_bodies(p, err));
    p->target.bodies = p->bodies;
    p->target.body_count = p->body_count;
    if (p->opt.check || p->opt.expect.len) {
        MR_TRY(perf_checker_new(p, err));
    }
    MR_TRY(make_load(p, range->to, out_largest, err));
    raise_descriptors();
    catch_interrupt();
    p->shows = mr_term_of(stderr).has_color;
out:
    return rc;
}

/* Everything after the preparations. */
static int run(struct perf *p, const struct perf_range *range, const struct perf_old *old,
               struct mr_err *err)
{
    bool to_stdout = perf_is_to_stdout(&p->opt);
    int rc;

    if (!to_stdout) {
        perf_print_head(p, stdout);
    }
    MR_TRY(run_levels(p, range, err));
    if (!to_stdout) {
        perf_print(p, stdout);
    }
    if (!to_stdout && p->opt.against) {
        perf_print_against(p, old, stdout);
    }
    if (p->opt.json) {
        MR_TRY(perf_write_json(p, p->opt.json, err));
    }
    if (p->opt.html) {
        MR_TRY(perf_write_html(p, p->opt.html, err));
    }
out:
    return rc;
}

static int judge(const struct perf *p, const char *program)
{
    uint64_t answered = 0;
    uint64_t failed = 0;
    char text[128];

    for (size_t i = 0; i < p->rows.len; i++) {
        answered += p->rows.at[i].result->answered;
        failed += p->rows.at[i].result->failed + p->rows.at[i].result->warmup_failed;
    }
    if (answered == 0) {
        return mr_cli_fail(program, MR_EXIT_FAILED, "no request was answered");
    }
    if (p->objective.q > 0 && atomic_load(&perf_interrupted)) {
        return mr_cli_fail(program, MR_EXIT_FAILED, "interrupted before the search had ended");
    }
    if (p->objective.q > 0 && p->best <= 0) {
        return mr_cli_fail(program, MR_EXIT_FAILED, "no load of the range holds --objective");
    }
    if (p->opt.max_errors >= 0 && failed > (uint64_t)p->opt.max_errors) {
        snprintf(text, sizeof text, "%llu requests failed; --max-errors allows %lld",
                 (unsigned long long)failed, (long long)p->opt.max_errors);
        return mr_cli_fail(program, MR_EXIT_FAILED, text);
    }
    return MR_EXIT_OK;
}

static void perf_fini(struct perf *p)
{
    for (size_t i = 0; i < p->rows.len; i++) {
        mr_perf_result_fini(p->rows.at[i].result);
        mr_free(p->rows.at[i].result);
    }
    MR_VEC_FINI(&p->rows);
    MR_VEC_FINI(&p->versions);
    perf_free_bodies(p);
    perf_checker_free(&p->checker);
    infer_fini(&p->infer);
}

/* Returns the exit code. */
static int run_command(struct perf *p, const struct perf_range *range, const char *program)
{
    struct perf_old old = {0};
    struct mr_perf_load load;
    struct mr_err err = {0};
    int code = MR_EXIT_USAGE;
    int rc = MR_OK;

    p->ramp_to = range->ramp_to;
    if (p->opt.against) {
        MR_TRY(perf_old_read(p->opt.against, &old, &err));
    }
    MR_TRY(prepare(p, range, &load, &code, &err));
    code = MR_EXIT_FAILED;
    if (p->opt.updates_models) {
        return perf_update_run(p, &load, program);
    }
    MR_TRY(run(p, range, &old, &err));
out:
    perf_old_fini(&old);
    return rc < 0 ? mr_cli_fail(program, code, err.msg) : judge(p, program);
}

/* The one word that may follow. */
static int take_word(const struct mr_options *o, struct perf_options *opt, struct mr_err *err)
{
    if (o->args.len && strcmp(o->args.at[0], "update") != 0) {
        return MR_FAIL(err, MR_E_INVALID, "'%.60s': expected options, or 'update'", o->args.at[0]);
    }
    opt->updates_models = o->args.len > 0;
    return MR_OK;
}

int mr_cli_perf(int argc, char **argv, char **env)
{
    struct perf p = {.opt.seed = 1};
    struct mr_options o;
    struct perf_range range;
    struct mr_err err = {0};

    mr_options_init(&o, "millrace perf", perf_table, perf_table_len, &p.opt);
    o.max_args = 1;
    infer_setup(&p.infer);
    int code = mr_cli_parse(&o, argc, argv, env, perf_usage, perf_notes);
    if (code < 0 && (take_word(&o, &p.opt, &err) < 0 ||
                     mr_remote_protocol(p.opt.url, &p.opt.protocol, &err) < 0 ||
                     perf_check(&p, &range, &err) < 0)) {
        code = mr_cli_fail(o.program, MR_EXIT_USAGE, err.msg);
    }
    if (code < 0) {
        code = run_command(&p, &range, o.program);
    }
    perf_fini(&p);
    mr_options_fini(&o);
    return code;
}
