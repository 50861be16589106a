/* Dispatch of calls: by listener, protocol and path. REST routes are Triton's; a wrong method is 405, an unknown
 * path 404. On network threads. */
#include <stdio.h>

#include "net/compress.h"
#include "serve/state/serve_priv.h"

/* What call->user points to until the body is there: a call that ends before has nobody else to give the answer
 * that it is owed. */
static struct serve_pending in_body;

/* Only inferences and loads carry tensors and files. */
static uint64_t rest_body_limit(const struct mr_server *s, const struct mr_call *call)
{
    uint64_t most = s->options.http_max_input_bytes;
    bool is_small = call->content_length >= 0 && (uint64_t)call->content_length <= SERVE_SMALL_BODY;

    if (most <= SERVE_SMALL_BODY || is_small)
        return most;
    struct mr_oip_path path = mr_oip_path_parse(call->path);
    bool has_data = path.route == MR_ROUTE_MODEL_INFER || path.route == MR_ROUTE_MODEL_GENERATE ||
                    path.route == MR_ROUTE_MODEL_GENERATE_STREAM ||
                    path.route == MR_ROUTE_REPO_LOAD;
    return has_data ? most : SERVE_SMALL_BODY;
}

static void on_head(void *ctx, struct mr_call *call)
{
    struct mr_server *s = ctx;
    const char *why;
    int64_t align;

    if (serve_refuse_restricted(s, call))
        return;
    call->user = &in_body;
    call->body_align_at = -1;
    if (call->is_grpc) {
        call->body_limit = (int64_t)grpc_message_limit(s, call->path, &why) + 5;
        if (grpc_is_streaming(call->path) && mr_call_listener_tag(call) != LISTEN_METRICS) {
            call->streaming = true;
            grpc_stream_begin(s, call);
        }
        return;
    }
    call->body_limit = (int64_t)rest_body_limit(s, call);
    if (mr_str_to_i64(mr_call_header(call, "inference-header-content-length"), &align) &&
        align >= 0)
        call->body_align_at = align;
}

static void shared_memory(struct mr_call *call, const struct mr_oip_path *path)
{
    const char *kind = path->route == MR_ROUTE_CUDA_SHM ? "cuda" : "system";

    if (mr_str_eq_c(path->action, "status") && path->region.len)
        reply_error_text(call, MR_E_NOT_FOUND, "Unable to find %s shared memory region: '%.*s'",
                         kind, MR_STR_ARG(mr_str_sub(path->region, 0, 200)));
    else if (mr_str_eq_c(path->action, "status"))
        reply_json(call, 200, MR_STR("[]"));
    else
        reply_error_text(call, MR_E_UNSUPPORTED,
                         "Client shared memory is disabled: the shared-memory extension is not "
                         "available in this "
                         "version");
}

/* Which methods a route has: bit 0 GET (and HEAD), bit 1 POST. */
static unsigned route_methods(const struct mr_oip_path *p)
{
    switch (p->route) {
    case MR_ROUTE_MODEL_INFER:
    case MR_ROUTE_MODEL_GENERATE:
    case MR_ROUTE_MODEL_GENERATE_STREAM:
    case MR_ROUTE_REPO_INDEX:
    case MR_ROUTE_REPO_LABEL:
    case MR_ROUTE_REPO_ROLLBACK:
    case MR_ROUTE_REPO_LOAD:
    case MR_ROUTE_REPO_UNLOAD: return 2;
    case MR_ROUTE_SYSTEM_SHM:
    case MR_ROUTE_CUDA_SHM: return mr_str_eq_c(p->action, "status") ? 1 : 2;
    case MR_ROUTE_TRACE:
    case MR_ROUTE_MODEL_TRACE:
    case MR_ROUTE_REPO_RECORD:
    case MR_ROUTE_LOGGING: return 3;
    default: return 1;
    }
}

static bool is_method_allowed(const struct mr_call *call, const struct mr_oip_path *p)
{
    unsigned methods = route_methods(p);

    if (mr_str_eq_c(call->method, "GET") || mr_str_eq_c(call->method, "HEAD"))
        return methods & 1;
    return mr_str_eq_c(call->method, "POST") && (methods & 2);
}

static void dispatch_route(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *p)
{
    switch (p->route) {
    case MR_ROUTE_MODEL_INFER: rest_infer(s, call, p); return;
    case MR_ROUTE_LIVE: rest_live(s, call); return;
    case MR_ROUTE_READY: rest_ready(s, call); return;
    case MR_ROUTE_SERVER_METADATA: rest_server_metadata(s, call); return;
    case MR_ROUTE_MODEL_METADATA: rest_model_metadata(s, call, p); return;
    case MR_ROUTE_MODEL_READY: rest_model_ready(s, call, p); return;
    case MR_ROUTE_MODEL_CONFIG: rest_model_config(s, call, p); return;
    case MR_ROUTE_MODEL_STATS: rest_stats(s, call, p->model, p->version); return;
    case MR_ROUTE_ALL_STATS: rest_stats(s, call, MR_STR(""), MR_STR("")); return;
    case MR_ROUTE_MODEL_VERSIONS: rest_versions(s, call, p); return;
    case MR_ROUTE_REPO_INDEX: rest_index(s, call); return;
    case MR_ROUTE_REPO_LOAD: rest_load(s, call, p); return;
    case MR_ROUTE_REPO_UNLOAD: rest_unload(s, call, p); return;
    case MR_ROUTE_REPO_LABEL: rest_label(s, call, p); return;
    case MR_ROUTE_REPO_ROLLBACK: rest_rollback(s, call, p); return;
    case MR_ROUTE_REPO_RECORD: rest_record(s, call, p); return;
    case MR_ROUTE_LOGGING: rest_logging(s, call); return;
    case MR_ROUTE_DOCS: rest_docs(call, p); return;
    case MR_ROUTE_SYSTEM_SHM:
    case MR_ROUTE_CUDA_SHM: shared_memory(call, p); return;
    case MR_ROUTE_TRACE:
    case MR_ROUTE_MODEL_TRACE:
        reply_error_text(call, MR_E_UNSUPPORTED,
                         "the trace extension is not available in this version");
        return;
    case MR_ROUTE_MODEL_GENERATE:
    case MR_ROUTE_MODEL_GENERATE_STREAM: rest_generate(s, call, p); return;
    case MR_ROUTE_NONE: break;
    }
    reply_status_text(call, 404, "Not Found");
}

static bool is_packed(const struct mr_call *call)
{
    mr_str coding = mr_call_header(call, "content-encoding");

    return call->body.len > 0 && coding.len > 0 &&
           mr_coding_from_name(coding) != MR_CODING_IDENTITY;
}

static void on_body(void *ctx, struct mr_call *call)
{
    struct mr_server *s = ctx;
    struct mr_oip_path path;

    call->user = NULL;
    if (mr_call_listener_tag(call) == LISTEN_METRICS) {
        rest_metrics(s, call);
        return;
    }
    if (call->is_grpc) {
        grpc_dispatch(s, call);
        return;
    }
    path = mr_oip_path_parse(call->path);
    if (path.route != MR_ROUTE_NONE && !is_method_allowed(call, &path))
        reply_status_text(call, 405, "Method Not Allowed");
    else if (path.route != MR_ROUTE_MODEL_INFER && is_packed(call))
        reply_error_text(call, MR_E_INVALID,
                         "Content-Encoding '%.*s': only the bodies of inference requests may be "
                         "compressed",
                         MR_STR_ARG(mr_str_sub(mr_call_header(call, "content-encoding"), 0, 64)));
    else
        dispatch_route(s, call, &path);
}

static void on_data(void *ctx, struct mr_call *call, mr_bytes data, bool last)
{
    struct serve_pending *p = call->user;

    (void)ctx;
    if (p && p->data)
        p->data(p, data, last);
}

static void on_cancel(void *ctx, struct mr_call *call)
{
    struct serve_pending *p = call->user;

    (void)ctx;
    if (p == &in_body)
        reply_empty(call, 400); /* goes nowhere, and ends the call */
    else if (p && p->cancel)
        p->cancel(p);
}

static void on_room(void *ctx, struct mr_call *call)
{
    struct serve_pending *p = call->user;

    (void)ctx;
    if (p && p->room)
        p->room(p);
}

/* Clients look for these texts. Without a length of its JSON part, a body is all JSON. */
static void describe_too_large(const struct mr_server *s, const struct mr_call *call,
                               struct mr_err *err)
{
    bool is_json = !mr_call_header(call, "inference-header-content-length").len;
    char size[32] = "more";

    if (call->content_length >= 0)
        snprintf(size, sizeof size, "%lld", (long long)call->content_length);
    if ((uint64_t)call->body_limit < s->options.http_max_input_bytes) {
        snprintf(err->msg, sizeof err->msg,
                 "request body of %s bytes exceeds the %lld bytes that an endpoint takes which is "
                 "neither infer nor load",
                 size, (long long)call->body_limit);
        return;
    }
    snprintf(err->msg, sizeof err->msg,
             "%s of %s bytes exceeds the maximum allowed %s of %lld bytes. Use "
             "--http-max-input-size to increase the limit.",
             is_json ? "request JSON size" : "Request body size", size,
             is_json ? "input size" : "value", (long long)call->body_limit);
}

/* An inference counts as one although its body never came here. */
static void log_body_refused(struct mr_call *call, const struct mr_err *err)
{
    struct mr_oip_path path = mr_oip_path_parse(call->path);
    struct serve_infer si = {.infer.err = *err};

    if (call->is_grpc ? !grpc_is_infer(call->path) : path.route != MR_ROUTE_MODEL_INFER)
        return;
    infer_init(&si, call, call->arena, call->is_grpc ? MR_INFER_GRPC : MR_INFER_REST);
    si.request.model_name = call->is_grpc ? MR_STR("") : path.model;
    infer_refuse(&si, err->status);
    infer_log_failure(&si);
    infer_end(&si);
}

static void on_body_refused(void *ctx, struct mr_call *call, int status)
{
    struct mr_server *s = ctx;
    struct mr_err err = {.status = status};
    struct mr_grpc_call g;
    const char *why;
    uint64_t most = grpc_message_limit(s, call->path, &why);

    call->user = NULL;
    if (status != MR_E_TOO_LARGE)
        snprintf(
            err.msg, sizeof err.msg,
            "the server's memory for requests in flight is used up (--memory-budget), try later");
    else if (call->is_grpc)
        snprintf(err.msg, sizeof err.msg, "Received message larger than max (%llu bytes, %s)",
                 (unsigned long long)most, why);
    else
        describe_too_large(s, call, &err);
    log_body_refused(call, &err);
    if (!call->is_grpc)
        reply_error(call, &err);
    else if (mr_grpc_begin(&g, call, (int64_t)most) == MR_OK)
        grpc_fail_err(&g, &err);
}

static int64_t body_align(void *ctx, struct mr_call *call, mr_bytes have)
{
    (void)ctx;
    return call->is_grpc ? mr_grpc_align_hint(have, 7) : -1;
}

const struct mr_http_handler serve_handler = {
    .on_head = on_head,
    .on_body = on_body,
    .on_data = on_data,
    .on_cancel = on_cancel,
    .on_room = on_room,
    .on_body_refused = on_body_refused,
    .body_align = body_align,
    .on_bad_start = serve_tls_bad_start,
};
