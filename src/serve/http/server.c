/* Start, drain and stop. On the thread that called, never on a network thread.
 *
 * Start: bind first (a port in use is reported before a model is loaded), load models, then run the loops: a client
 * that gets through to the port gets an answer. Stop: readiness false, no new connections, wait for the open
 * ones to finish, then models, loops, memory, in this order. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/machine.h"
#include "base/thread.h"
#include "engine/wire.h"
#include "flow/flow.h"
#include "http.h"
#include "serve/admin/admin.h"
#include "serve/grpc/grpc_stream.h"
#include "serve/plane/call_times.h"
#include "serve/state/loops.h"
#include "serve/state/state.h"
#include "serve/state/tls.h"

#define LOOPS_MAX 64u
#define LOOPS_NS  MR_NS_PER_S /* loops that are not in a model take less to come to a mail */

void mr_server_options_init(struct mr_server_options *o)
{
    memset(o, 0, sizeof *o);
    o->id = "triton";
    mr_models_options_init(&o->models);
    o->allow_http = o->allow_grpc = o->allow_metrics = true;
    o->http_address = o->grpc_address = "127.0.0.1";
    o->http_port = 8000;
    o->grpc_port = 8001;
    o->metrics_port = 8002;
    o->http_max_input_bytes = 64u << 20;
    o->grpc_max_message_bytes = INT32_MAX;
    o->max_decompression_ratio = 100;
    o->json_max_depth = 100;
    mr_http_options_init(&o->http);
    o->http.refuse_foreign = true;
    o->inline_threshold_ns = 100 * MR_NS_PER_US;
    o->default_warmup_ns = MR_NS_PER_S;
    o->start_warmup_ns = 50 * MR_NS_PER_MS;
    o->recorded_warmup_ns = 30 * MR_NS_PER_S;
    o->grpc_restricted.is_grpc = true;
    o->exit_on_error = o->strict_readiness = true;
    o->exit_timeout_ns = 30 * MR_NS_PER_S;
    o->model_runtime_timeout_ns = 90 * MR_NS_PER_S;
    o->mesh_address = "127.0.0.1:0";
}

const char *mr_server_metrics_address(const struct mr_server_options *o)
{
    const char *address = o->metrics_address ? o->metrics_address : o->http_address;

    return !o->metrics_address && strncmp(address, "unix:", 5) == 0 ? "127.0.0.1" : address;
}

/* ---- changes of models ---- */

static double seconds_of(const struct mr_version_change *c, enum mr_version_state state)
{
    return (double)c->spent_ns[state] / 1e9;
}

/* One line for each change that an operator would look for; times are those of the phases that are over. */
static void log_change_line(const struct mr_version_change *c, struct mr_log_site *site)
{
    const char *event = c->state == MR_VERSION_LOADING    ? "model.loading"
                        : c->state == MR_VERSION_READY    ? "model.ready"
                        : c->state == MR_VERSION_DRAINING ? "model.draining"
                                                          : "model.unloaded";
    if (c->state == MR_VERSION_READY) {
        mr_log_line(site, MR_LOG_INFO, MR_HERE, event,
                    "model=%s version=%lld load_s=%.3f warm_s=%.3f bytes=%llu",
                    MR_LOG_STR(c->model), (long long)c->version, seconds_of(c, MR_VERSION_LOADING),
                    seconds_of(c, MR_VERSION_WARMING), (unsigned long long)c->file_bytes);
    } else if (c->state == MR_VERSION_UNLOADED) {
        mr_log_line(site, MR_LOG_INFO, MR_HERE, event,
                    "model=%s version=%lld served_s=%.3f drain_s=%.3f", MR_LOG_STR(c->model),
                    (long long)c->version, seconds_of(c, MR_VERSION_READY),
                    seconds_of(c, MR_VERSION_DRAINING));
    } else {
        mr_log_line(site, MR_LOG_INFO, MR_HERE, event, "model=%s version=%lld",
                    MR_LOG_STR(c->model), (long long)c->version);
    }
}

static void hook_changed(void *ctx, const struct mr_version_change *c)
{
    static struct mr_log_site failed, changed;
    struct mr_server *s = ctx;
    /* Each of these lines is about another version, and an operator needs them all; but where clients load
     * models, they could fill the disk with them. */
    bool is_asked = s->options.models.control == MR_MODEL_CONTROL_EXPLICIT &&
                    atomic_load_explicit(&s->state, memory_order_relaxed) == SERVER_READY;

    if (c->state == MR_VERSION_FAILED && mr_log_enabled(MR_LOG_ERROR)) {
        mr_log_line(is_asked ? &failed : NULL, MR_LOG_ERROR, MR_HERE, "model.failed",
                    "model=%s version=%lld %.*s", MR_LOG_STR(c->model), (long long)c->version,
                    MR_STR_ARG(c->reason));
    } else if (c->state != MR_VERSION_WARMING &&
               (c->reason.len == 0 || c->state == MR_VERSION_UNLOADED) &&
               mr_log_enabled(MR_LOG_INFO)) {
        log_change_line(c, is_asked ? &changed : NULL);
    }
    serve_notify(s);
}

static void hook_ready_changed(void *ctx)
{
    serve_notify(ctx);
}

/* ---- start ---- */

static int listen_one(struct mr_server *s, const char *address, uint16_t port,
                      enum listener_tag tag, bool reuse, uint16_t *out_port, struct mr_err *err)
{
    struct mr_loop *loops[LOOPS_MAX];
    bool is_unix = strncmp(address, "unix:", 5) == 0;
    char text[512];

    for (unsigned i = 0; i < s->loop_count; i++) {
        loops[i] = s->loops[i].loop;
    }
    if (is_unix) {
        snprintf(text, sizeof text, "%s", address);
    } else if (strchr(address, ':') && address[0] != '[') {
        snprintf(text, sizeof text, "[%s]:%u", address, port);
    } else {
        snprintf(text, sizeof text, "%s:%u", address, port);
    }
    static const char *const names[] = {"http", "grpc", "metrics"};
    int rc = mr_http_listen_tls(s->http, loops, s->loop_count, text, (int)tag, reuse,
                                serve_tls_for(s, tag), out_port, err);
    return rc == MR_E_INVALID ? MR_WRAP(err, rc, "--%s-address", names[tag]) : rc;
}

static int listen_all(struct mr_server *s, struct mr_err *err)
{
    const struct mr_server_options *o = &s->options;
    int rc = MR_OK;

    if (o->allow_http) {
        MR_TRY(listen_one(s, o->http_address, o->http_port, LISTEN_HTTP, o->reuse_http_port,
                          &s->http_port, err));
    }
    if (o->allow_grpc) {
        MR_TRY(listen_one(s, o->grpc_address, o->grpc_port, LISTEN_GRPC, o->reuse_grpc_port,
                          &s->grpc_port, err));
    }
    if (o->allow_metrics) {
        MR_TRY(listen_one(s, mr_server_metrics_address(o), o->metrics_port, LISTEN_METRICS, false,
                          &s->metrics_port, err));
    }
out:
    return rc;
}

static int listen_mesh(struct mr_server *s, struct mr_err *err)
{
    struct mr_loop *loops[LOOPS_MAX];
    const char *address = s->options.mesh_address;

    if (!s->mesh_tls && !mr_http_is_local(address)) {
        return MR_FAIL(err, MR_E_INVALID,
                       "--mesh-address '%s': without --mesh-tls-cert, --mesh-tls-key and "
                       "--mesh-tls-ca it must be a loopback address with a port, or unix:/path",
                       address);
    }
    if (strncmp(address, "0.0.0.0:", 8) == 0 || strncmp(address, "[::]:", 5) == 0) {
        return MR_FAIL(err, MR_E_INVALID,
                       "--mesh-address '%s': other servers connect to this address, so it must be "
                       "one of this machine's own",
                       address);
    }
    for (unsigned i = 0; i < s->loop_count; i++) {
        loops[i] = s->loops[i].loop;
    }
    return mr_http_listen_tls(s->http, loops, s->loop_count, address, LISTEN_MESH, false,
                              serve_tls_for(s, LISTEN_MESH), &s->mesh_port, err);
}

/* Before the models: the engine asks it for those that are not here. */
static int open_mesh(struct mr_server *s, struct mr_err *err)
{
    struct mr_server_options *o = &s->options;
    int rc;

    if (s->tls[SERVE_TLS_MESH].tls) {
        MR_TRY(mr_tls_client_of(&s->mesh_tls, s->tls[SERVE_TLS_MESH].tls, err));
    }
    o->mesh.tls = s->mesh_tls;
    MR_TRY(mr_mesh_new(&s->mesh, &o->mesh, err));
    o->resolver = mr_mesh_resolver(s->mesh);
    o->models.control = MR_MODEL_CONTROL_EXPLICIT;
    o->models.graphs_stay = true;
    o->models.update_threads = o->mesh.loaders ? o->mesh.loaders : 4;
    o->models.load_threads = MR_MAX(o->models.load_threads, o->models.update_threads);
    rc = listen_mesh(s, err);
out:
    return rc;
}

static int join_mesh(struct mr_server *s, struct mr_err *err)
{
    const char *own = s->options.mesh_address;

    if (strncmp(own, "unix:", 5) == 0) {
        snprintf(s->mesh_address, sizeof s->mesh_address, "%s", own);
    } else {
        snprintf(s->mesh_address, sizeof s->mesh_address, "%.*s:%u", (int)(strrchr(own, ':') - own),
                 own, s->mesh_port);
    }
    return mr_mesh_start(s->mesh, s->models, s->mesh_address, err);
}

static void set_limits(struct mr_server *s)
{
    const struct mr_server_options *o = &s->options;

    mr_block_set_budget(o->memory_budget_bytes ? o->memory_budget_bytes : mr_machine_memory() / 4,
                        256u << 20);
    s->http_limits = (struct mr_oip_limits){.max_json_bytes = o->http_max_input_bytes,
                                            .max_json_depth = o->json_max_depth,
                                            .max_tensors = 1024,
                                            .depth_hint = " (--json-max-depth)",
                                            .size_option = "--http-max-input-size"};
    s->grpc_limits = s->http_limits;
    s->grpc_limits.max_json_bytes = o->grpc_max_message_bytes;
    s->grpc_limits.size_option = "--grpc-max-message-size";
}

static struct mr_sched_options sched_options(const struct mr_server_options *o)
{
    const char *hold = getenv("TRITONSERVER_DELAY_SCHEDULER");
    uint64_t hold_count = 0;
    struct mr_sched_options sched = {.inline_threshold_ns = o->inline_threshold_ns,
                                     .has_exact_delay = o->batching_delay == MR_SERVE_DELAY_EXACT,
                                     .default_warmup_ns = o->default_warmup_ns,
                                     .recorded_warmup_ns = o->recorded_warmup_ns,
                                     .records = &mr_wire_records,
                                     .max_queue_size =
                                         o->max_queue_size ? o->max_queue_size : 4096};

    if (hold && mr_str_to_u64(mr_str_c(hold), &hold_count)) {
        sched.hold_until_queued = (uint32_t)MR_MIN(hold_count, 1u << 20);
    }
    return sched;
}

static int start_models(struct mr_server *s, struct mr_err *err)
{
    size_t failed = 0;
    int rc;

    s->options.models.reader_count = s->loop_count;
    if (s->options.models.worker_program) {
        s->options.models.reader_doors = s->doors = loops_doors(s);
    }
    s->options.models.maker.open = mr_flow_open;
    s->options.models.strict_readiness = s->options.strict_readiness;
    s->options.models.may_miss_repositories = !s->options.exit_on_error;
    s->options.models.mlserver_errors = s->options.mlserver_errors;
    const struct mr_engine_options o = {.models = s->options.models,
                                        .sched = sched_options(&s->options),
                                        .start_warmup_ns = s->options.start_warmup_ns,
                                        .op_dirs = s->options.op_dirs,
                                        .op_dir_count = s->options.op_dir_count,
                                        .resolver = s->options.resolver,
                                        .max_resolving = s->options.max_resolving,
                                        .changed = hook_changed,
                                        .ready_changed = hook_ready_changed,
                                        .ctx = s};
    MR_TRY(mr_engine_new(&s->engine, &o, err));
    s->models = mr_engine_models(s->engine);
    MR_TRY(mr_models_start(s->models, &failed, err));
    if (failed > 0 && s->options.exit_on_error) {
        const mr_str why = mr_str_trim(mr_str_c(err->msg));
        const bool ends = why.len > 0 && why.ptr[why.len - 1] == ';';
        /* The hint comes through whole, however long the reason is. */
        rc = MR_FAIL(
            err, MR_E_INVALID,
            "%.*s (%zu of the models failed to load; --exit-on-error=false serves the others)",
            (int)MR_MIN(why.len - ends, sizeof err->msg - 100), why.ptr, failed);
    }
out:
    return rc;
}

int mr_server_start(struct mr_server **out, const struct mr_server_options *o, struct mr_err *err)
{
    struct mr_server *s = MR_NEW(struct mr_server);
    int rc;

    s->options = *o;
    s->start_wall_ns = mr_wall_ns();
    s->loop_count = MR_MIN(o->loop_threads ? o->loop_threads : mr_cpu_count(), LOOPS_MAX);
    s->loops = MR_NEW_ARRAY(struct serve_loop, s->loop_count);
    set_limits(s);
    MR_TRY(loops_open(s, err));
    struct mr_http_handler handler = serve_handler;
    handler.ctx = s;
    s->options.http.relay_tag = LISTEN_MESH;
    MR_TRY(mr_http_server_new(&s->http, &s->options.http, &handler, err));
    MR_TRY(serve_tls_open(s, err));
    MR_TRY(listen_all(s, err));
    if (o->mesh.registry) {
        MR_TRY(open_mesh(s, err));
    }
    MR_TRY(start_models(s, err));
    if (o->endpoints) {
        MR_TRY(endpoints_open(&s->endpoints, s->engine, o->endpoints, s->loop_count, err));
    }
    MR_TRY(admin_start(&s->admin, err));
    /* release: a loop that sees READY sees everything set up above (thread creation orders it as well) */
    atomic_store_explicit(&s->state, SERVER_READY, memory_order_release);
    MR_TRY(loops_start(s, err));
    MR_TRY(serve_tls_start(s, err));
    if (s->mesh) {
        MR_TRY(join_mesh(s, err));
    }
    *out = s;
    return MR_OK;
out:
    mr_server_stop(s);
    mr_server_free(&s);
    return rc;
}

uint16_t mr_server_http_port(const struct mr_server *s)
{
    return s->http_port;
}

uint16_t mr_server_grpc_port(const struct mr_server *s)
{
    return s->grpc_port;
}

uint16_t mr_server_metrics_port(const struct mr_server *s)
{
    return s->metrics_port;
}

uint16_t mr_server_mesh_port(const struct mr_server *s)
{
    return s->mesh_port;
}

const char *mr_server_mesh_address(const struct mr_server *s)
{
    return s->mesh_address;
}

struct mr_models *mr_server_models(struct mr_server *s)
{
    return s->models;
}

/* ---- stop ---- */

/* Thread: the loop that closed last. */
static void on_closed(void *ctx)
{
    struct mr_server *s = ctx;

    /* release: pairs with the acquire in is_closed */
    atomic_store_explicit(&s->is_closed, true, memory_order_release);
}

static bool is_closed(const struct mr_server *s)
{
    return atomic_load_explicit(&s->is_closed, memory_order_acquire);
}

static bool is_deaf(const struct mr_server *s)
{
    return !mr_http_server_listens(s->http);
}

static bool has_no_connections(const struct mr_server *s)
{
    return mr_http_server_connections(s->http) == 0;
}

/* False: not before the deadline. */
static bool wait_until(bool (*is_so)(const struct mr_server *s), const struct mr_server *s,
                       int64_t deadline_ns)
{
    const struct timespec step = {0, 5 * MR_NS_PER_MS};

    while (!is_so(s)) {
        if (mr_now_ns() >= deadline_ns) {
            return false;
        }
        nanosleep(&step, NULL);
    }
    return true;
}

/* Connections that still wait for answers finish; what is left at the deadline is cut off. */
static bool drain(struct mr_server *s, int64_t deadline_ns)
{
    mr_http_server_drain(s->http);
    return wait_until(is_deaf, s, mr_ns_after(deadline_ns, LOOPS_NS)) &&
           wait_until(has_no_connections, s, deadline_ns);
}

/* False: a loop does not come to it, as it is in a model that does not come back. */
static bool close_all(struct mr_server *s, int64_t deadline_ns)
{
    /* Loops that do not run cannot be waited for: freeing them closes what is left. */
    if (!s->loops[s->loop_count - 1].is_started) {
        mr_http_server_close(s->http, NULL, NULL);
        return true;
    }
    mr_http_server_close(s->http, on_closed, s);
    return wait_until(is_closed, s, mr_ns_after(deadline_ns, LOOPS_NS));
}

int mr_server_stop(struct mr_server *s)
{
    int64_t deadline = mr_ns_after(mr_now_ns(), s->options.exit_timeout_ns);
    bool is_clean = true, loops_end = true;

    if (s->mesh) { /* requests go on while models move to other servers */
        mr_mesh_drain(s->mesh, s->options.exit_timeout_ns / 2);
    }
    atomic_store_explicit(&s->state, SERVER_EXITING, memory_order_release);
    if (s->engine) {
        /* otherwise this would wait for requests that wait for a load */
        mr_engine_drain(s->engine);
    }
    if (s->http) {
        serve_notify(s);
        if (s->loops[s->loop_count - 1].is_started) {
            is_clean = drain(s, deadline);
        }
        loops_end = close_all(s, deadline);
    }
    serve_tls_stop(s);
    admin_stop(&s->admin);
    if (loops_end) {
        endpoints_stop(s->endpoints); /* it may wait for all loops */
    } else {
        mr_log(MR_LOG_WARN, "model.left",
               "a model has not come back to its network thread, whose memory is left alone");
    }
    /* Before the loops: the execution of a client that has gone may still run, and its version is let go of on
     * the loop that the request came from. */
    if (s->engine && mr_engine_stop(s->engine, MR_MAX(0, deadline - mr_now_ns())) > 0) {
        is_clean = false;
    }
    if (s->mesh) {
        mr_mesh_stop(s->mesh);
    }
    if (loops_end) {
        loops_stop(s);
    }
    return is_clean && loops_end ? MR_OK : MR_E_DEADLINE;
}

void mr_server_reload_endpoints(struct mr_server *s)
{
    if (s->endpoints) {
        endpoints_reload(s->endpoints);
    }
}

void mr_server_free(struct mr_server **ps)
{
    struct mr_server *s = *ps;

    if (!s) {
        return;
    }
    /* What was cut off still runs: a load or an execution that will post to its loop, for a call, when it ends. */
    bool is_left = s->engine && mr_engine_stop(s->engine, 0) > 0;
    if (s->loops[0].is_started) { /* it could not be stopped, and all of the server is its */
        *ps = NULL;
        return;
    }
    if (!is_left) {
        mr_http_server_free(&s->http);
        endpoints_free(&s->endpoints);
    }
    mr_engine_free(&s->engine);
    s->models = NULL;
    mr_mesh_free(&s->mesh);
    if (is_left) {
        *ps = NULL;
        return;
    }
    for (unsigned i = 0; i < s->loop_count; i++) {
        stream_items_free(&s->loops[i]);
        call_times_fini(s->loops[i].call_times);
        mr_free(s->loops[i].call_times);
        mr_loop_free(&s->loops[i].loop);
    }
    mr_free(s->loops);
    mr_free(s->doors);
    serve_tls_free(s);
    mr_freep(ps);
}
