/* Dispatch of calls: by listener, protocol and path. A wrong method is 405, an unknown path 404. On network threads. */
#include "http.h"

#include <stdio.h>

#include "rest_infer.h"
#include "rest_meta.h"
#include "routes_priv.h"
#include "serve/admin/metrics.h"
#include "serve/admin/rest_repo.h"
#include "serve/grpc/methods_priv.h"
#include "serve/mesh/arrival.h"
#include "serve/mesh/hop.h"
#include "serve/plane/call_times.h"
#include "serve/plane/ids.h"
#include "serve/state/grpc_reply.h"
#include "serve/state/infer.h"
#include "serve/state/loops.h"
#include "serve/state/message.h"
#include "serve/state/reply.h"
#include "serve/state/restrict.h"
#include "serve/state/state.h"
#include "serve/state/tls.h"

/* The target of call->user until the body is complete: it gives the answer that a call needs which ends before. */
static struct serve_pending in_body;

/* Whether a model has a handler for the path, which is none of the server's. */
static bool custom_find(const struct mr_server *s, const struct mr_call *call, mr_str *out_model)
{
    return mr_models_find_route(s->models, call->method, call->path, out_model);
}

/* Only inferences and loads carry tensors and files. */
static uint64_t rest_body_limit(const struct mr_server *s, const struct mr_call *call)
{
    uint64_t most = s->options.http_max_input_bytes;
    bool is_small = call->content_length >= 0 && (uint64_t)call->content_length <= SERVE_SMALL_BODY;

    if (most <= SERVE_SMALL_BODY || is_small) {
        return most;
    }
    struct mr_oip_path path;
    const struct rest_route *route = route_find(call->path, &path);
    mr_str model;

    return (route ? route->body != REST_SMALL : custom_find(s, call, &model)) ? most
                                                                              : SERVE_SMALL_BODY;
}

/* MR_API_COUNT: no endpoint, nothing to restrict. */
static enum mr_api api_of(const struct mr_server *s, const struct mr_call *call)
{
    struct mr_oip_path path;
    mr_str model;

    if (call->is_grpc) {
        const struct grpc_method *m = grpc_method_for(s, call->path);
        return m ? m->api : MR_API_COUNT;
    }
    const struct rest_route *route = route_find(call->path, &path);

    return route ? route->api : custom_find(s, call, &model) ? MR_API_INFERENCE : MR_API_COUNT;
}

static bool asks_model_ready(const struct mr_server *s, const struct mr_call *call)
{
    struct mr_oip_path path;

    if (call->is_grpc) {
        const struct grpc_method *m = grpc_method_for(s, call->path);
        return m && m->handle == grpc_model_ready;
    }
    const struct rest_route *route = route_find(call->path, &path);
    return route && route->handle == rest_model_ready;
}

/* What other servers of the mesh may ask for: clients were checked where they came in. True: it was answered. */
static bool refuse_peer(struct mr_server *s, struct mr_call *call)
{
    enum mr_api api = api_of(s, call);
    bool is_known = api == MR_API_INFERENCE || api == MR_API_METADATA ||
                    api == MR_API_MODEL_CONFIG || asks_model_ready(s, call) ||
                    mr_str_eq_c(call->path, HOP_MESSAGE);

    if (!is_known) {
        reply_status_text(call, 404, "Not Found");
    }
    return !is_known;
}

/* Whether a call of the class model-repository is more than a question. */
static bool is_change(const struct mr_server *s, const struct mr_call *call)
{
    struct mr_oip_path path;

    if (call->is_grpc) {
        return grpc_is_change(grpc_method_for(s, call->path));
    }
    return mr_str_eq(call->method, MR_STR("POST")) &&
           route_find(call->path, &path)->handle != rest_index;
}

static void on_ended(struct mr_call *call, int status)
{
    call_times_ended(serve_here()->call_times, call, status);
}

/* True: it was answered. */
static bool refuse(struct mr_server *s, struct mr_call *call)
{
    const int tag = mr_call_listener_tag(call);

    if (tag == LISTEN_MESH) {
        return refuse_peer(s, call);
    }
    enum mr_api api = s->mesh || serve_has_restrictions(s) || serve_guards_changes(s)
                          ? api_of(s, call)
                          : MR_API_COUNT;
    if (s->mesh && tag != LISTEN_METRICS && api == MR_API_INFERENCE) {
        call->ended = on_ended;
    }
    if (serve_has_restrictions(s) && serve_refuse_restricted(s, call, api)) {
        return true;
    }
    return api == MR_API_MODEL_REPOSITORY && tag != LISTEN_METRICS && serve_guards_changes(s) &&
           is_change(s, call) && serve_refuse_remote(s, call);
}

static void on_head(void *ctx, struct mr_call *call)
{
    struct mr_server *s = ctx;
    const char *why;
    int64_t align;

    if (refuse(s, call)) {
        return;
    }
    call->user = &in_body;
    call->body_align_at = -1;
    if (call->is_grpc) {
        const struct grpc_method *m = grpc_method_for(s, call->path);
        call->body_limit = (int64_t)grpc_message_limit(s, m, &why) + 5;
        bool is_passed = m && m->kind == GRPC_PASSED && !grpc_pass_collects(s, call);
        bool needs_no_body = !m || grpc_is_stream(m) || is_passed;
        if (needs_no_body && mr_call_listener_tag(call) != LISTEN_METRICS) {
            call->streaming = true;
            grpc_dispatch(s, call, m);
        }
        return;
    }
    call->body_limit = (int64_t)rest_body_limit(s, call);
    if (rest_header_length(call, SIZE_MAX, &align, NULL) == MR_OK) {
        call->body_align_at = align; /* wrong ones are refused with the body */
    }
}

/* A request whose model has to be made ready. */
struct rest_arrival {
    struct serve_arrival arrival;
    const struct rest_route *route;
    struct mr_oip_path path;
};

static void arrived(struct serve_arrival *a)
{
    struct rest_arrival *ra = MR_CONTAINER_OF(a, struct rest_arrival, arrival);

    ra->path.model = a->model.len ? a->model : ra->path.model;
    ra->route->handle(a->loop->server, a->call, &ra->path);
}

/* What another server of the mesh sent on counts there. */
static void refuse_early(struct mr_call *call, const struct rest_route *route, mr_str model,
                         const struct mr_err *err)
{
    if (route->api == MR_API_INFERENCE && mr_call_listener_tag(call) != LISTEN_MESH) {
        infer_count_refused(call, model, err);
    }
    reply_error(call, err);
}

static void not_arrived(struct serve_arrival *a, const struct mr_err *err)
{
    const struct rest_arrival *ra = MR_CONTAINER_OF(a, struct rest_arrival, arrival);

    refuse_early(a->call, ra->route, ra->path.model, err);
}

/* Another server says which model it is where the path names a vmodel. False: the call is answered. */
static bool take_id(struct mr_call *call, struct mr_oip_path *io_path)
{
    struct plane_ids ids = {0};
    struct mr_err err;

    if (mr_call_listener_tag(call) != LISTEN_MESH) {
        return true;
    }
    if (plane_ids_read(call, &ids, &err) < 0) {
        reply_error(call, &err);
        return false;
    }
    io_path->model = ids.count ? ids.at[0] : io_path->model;
    return true;
}

static void handle(struct mr_server *s, struct mr_call *call, const struct rest_route *route,
                   const struct mr_oip_path *path)
{
    struct rest_arrival *ra = NULL;
    struct mr_err err;

    if (serve_has_runtime(s) &&
        (route->api == MR_API_INFERENCE || route->api == MR_API_METADATA ||
         route->api == MR_API_MODEL_CONFIG) &&
        path->model.len) {
        MR_FAIL(
            &err, MR_E_UNSUPPORTED,
            "the models of this server are in a runtime (--mesh-runtime), which takes gRPC only");
        refuse_early(call, route, path->model, &err);
        return;
    }
    bool asks_version_ready = route->handle == rest_model_ready && path->version.len;
    if (arrival_is_possible(s, route->api, asks_version_ready)) {
        ra = MR_ARENA_NEW(call->arena, struct rest_arrival);
    }
    if (!ra) {
        route->handle(s, call, path);
        return;
    }
    ra->arrival = (struct serve_arrival){.call = call,
                                         .go = arrived,
                                         .fail = not_arrived,
                                         .is_passed = route_is_stream(route),
                                         .may_be_vmodel = true};
    ra->route = route;
    ra->path = *path;
    if (take_id(call, &ra->path) &&
        !arrival_wait(&ra->arrival, ra->path.model, ra->path.version, true)) {
        route->handle(s, call, &ra->path);
    }
}

static void on_body(void *ctx, struct mr_call *call)
{
    struct mr_server *s = ctx;
    const struct rest_route *route;
    struct mr_oip_path path;

    call->user = NULL;
    if (mr_call_listener_tag(call) == LISTEN_METRICS) {
        metrics_rest(s, call);
        return;
    }
    if (call->is_grpc) {
        grpc_dispatch(s, call, grpc_method_for(s, call->path));
        return;
    }
    if (mr_call_listener_tag(call) == LISTEN_MESH && mr_str_eq_c(call->path, HOP_MESSAGE)) {
        hop_message(s, call);
        return;
    }
    route = route_find(call->path, &path);
    if (!route && custom_find(s, call, &path.model)) {
        path.model = mr_arena_str(call->arena, path.model); /* the call may outlive the model */
        rest_ask(call, &path, MESSAGE_CUSTOM);
    } else if (!route && s->options.mlserver_errors) {
        reply_json(call, 404, MR_STR("{\"detail\":\"Not Found\"}"));
    } else if (!route) {
        reply_status_text(call, 404, "Not Found");
    } else if (!route_allows(route, call->method)) {
        route_refuse_method(s, call, route);
    } else if (call->body.len > 0 && rest_is_packed(call) && route->api != MR_API_INFERENCE) {
        reply_error_text(call, MR_E_INVALID, REST_PACKED,
                         MR_STR_ARG(mr_str_sub(mr_call_header(call, "content-encoding"), 0, 64)));
    } else {
        handle(s, call, route, &path);
    }
}

static void on_data(void *ctx, struct mr_call *call, mr_bytes data, bool last)
{
    struct serve_pending *p = call->user;

    (void)ctx;
    if (p && p->data) {
        p->data(p, data, last);
    }
}

static void on_cancel(void *ctx, struct mr_call *call)
{
    struct serve_pending *p = call->user;

    (void)ctx;
    if (p == &in_body) {
        reply_empty(call, 400); /* goes nowhere, and ends the call */
    } else if (p && p->cancel) {
        p->cancel(p);
    }
}

static void on_room(void *ctx, struct mr_call *call)
{
    struct serve_pending *p = call->user;

    (void)ctx;
    if (p && p->room) {
        p->room(p);
    }
}

/* Clients look for these texts. Without a length of its JSON part, a body is all JSON. */
static void describe_too_large(const struct mr_server *s, const struct mr_call *call,
                               struct mr_err *err)
{
    bool is_json = call->body_align_at < 0;
    char size[32] = "more";

    if (call->content_length >= 0) {
        snprintf(size, sizeof size, "%lld", (long long)call->content_length);
    }
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
static void count_body_refused(const struct mr_server *s, struct mr_call *call,
                               const struct mr_err *err)
{
    struct mr_oip_path path = {0};
    const struct grpc_method *method = call->is_grpc ? grpc_method_for(s, call->path) : NULL;
    const struct rest_route *route = call->is_grpc ? NULL : route_find(call->path, &path);

    if (method  ? method->kind == GRPC_INFER
        : route ? route->api == MR_API_INFERENCE
                : !call->is_grpc && custom_find(s, call, &path.model)) {
        infer_count_refused(call, path.model, err);
    }
}

static void on_body_refused(void *ctx, struct mr_call *call, int status)
{
    struct mr_server *s = ctx;
    struct mr_err err = {.status = status};
    struct mr_grpc_call g;
    const char *why;
    uint64_t most = grpc_message_limit(s, grpc_method_for(s, call->path), &why);

    call->user = NULL;
    if (status != MR_E_TOO_LARGE) {
        snprintf(
            err.msg, sizeof err.msg,
            "the server's memory for requests in flight is used up (--memory-budget), try later");
    } else if (call->is_grpc) {
        snprintf(err.msg, sizeof err.msg, "Received message larger than max (%llu bytes, %s)",
                 (unsigned long long)most, why);
    } else {
        describe_too_large(s, call, &err);
    }
    count_body_refused(s, call, &err);
    if (!call->is_grpc) {
        reply_error(call, &err);
    } else if (mr_grpc_begin(&g, call, (int64_t)most) == MR_OK) {
        grpc_fail_err(&g, &err);
    }
}

static const struct mr_block_provider *provider_of(struct mr_server *s, mr_str model,
                                                   mr_str version)
{
    struct mr_err ignored;

    if (route_main(s->endpoints, &model, &version, &ignored) < 0) {
        return NULL;
    }
    return mr_engine_body_provider(s->engine, &serve_here()->reply_loop, model, version);
}

/* Of a ModelInfer whose first bytes are there: clients send the model's name before the tensors. */
static const struct mr_block_provider *grpc_body_provider(struct mr_server *s,
                                                          const struct mr_call *call, mr_bytes have)
{
    const struct grpc_method *m = grpc_method_for(s, call->path);
    struct mr_oip_request q;

    if (!m || m->kind != GRPC_INFER) {
        return NULL;
    }
    mr_oip_pb_find_names((mr_bytes){have.ptr + 5, have.len - 5}, &q);
    return provider_of(s, q.model_name, q.model_version);
}

/* Binary tensors are received where the model takes them without a copy. What is compressed is unpacked elsewhere. */
static void body_place(void *ctx, struct mr_call *call, mr_bytes have)
{
    struct mr_server *s = ctx;
    struct mr_oip_path path;

    if (call->is_grpc) {
        call->body_align_at = mr_grpc_align_hint(have, 7);
        if (call->body_align_at >= 0) {
            call->body_provider = grpc_body_provider(s, call, have);
        }
        return;
    }
    const struct rest_route *route = route_find(call->path, &path);
    if (call->body_align_at >= 0 && route && route->handle == rest_infer &&
        !mr_call_header(call, "content-encoding").ptr) {
        call->body_provider = provider_of(s, path.model, path.version);
    }
}

const struct mr_http_handler serve_handler = {
    .on_head = on_head,
    .on_body = on_body,
    .on_data = on_data,
    .on_cancel = on_cancel,
    .on_room = on_room,
    .on_body_refused = on_body_refused,
    .body_place = body_place,
    .on_bad_start = serve_tls_bad_start,
};
