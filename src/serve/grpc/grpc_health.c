/* grpc.health.v1: Check and Watch. Services: "" (the server), "inference.GRPCInferenceService", and each model by
 * its name: NOT_SERVING while it loads, failed, is unloaded or has no worker process. In a mesh Check of a model that is not loaded here is for
 * the fleet, as ModelReady; Watch is of this server. A watcher gets the status at once and then each change. */
#include "exec/exec.h"
#include "health.pb-c.h"
#include "methods_priv.h"
#include "serve/endpoints/route.h"
#include "serve/mesh/fleet_ready.h"
#include "serve/state/grpc_reply.h"
#include "serve/state/loops.h"
#include "serve/state/state.h"

struct watcher {
    struct serve_pending pending;
    struct mr_server *server;
    struct mr_grpc_call *g;
    mr_str service;
    int last; /* status that was sent, -1 none */
};

static Grpc__Health__V1__HealthCheckResponse__ServingStatus status_of(struct mr_server *s,
                                                                      mr_str service)
{
    struct mr_version *v;
    struct mr_err ignored = {0};
    bool is_serving;

    if (service.len == 0 || mr_str_eq_c(service, "inference.GRPCInferenceService")) {
        is_serving = serve_is_ready(s);
    } else if (route_is_taken(s->endpoints, service)) {
        is_serving = !serve_is_exiting(s) && route_is_ready(s->endpoints, service, MR_STR(""));
    } else if (mr_models_is_known(s->models, service)) {
        is_serving = !serve_is_exiting(s) &&
                     mr_models_find(s->models, service, MR_STR(""), &v, &ignored) == MR_OK &&
                     mr_executor_is_ready(v->executor);
    } else {
        return GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN;
    }
    return is_serving ? GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
                      : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING;
}

static void reply_status(struct mr_grpc_call *g,
                         Grpc__Health__V1__HealthCheckResponse__ServingStatus status)
{
    Grpc__Health__V1__HealthCheckResponse r = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;

    r.status = status;
    if (status == GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN) {
        mr_grpc_fail(g, MR_GRPC_NOT_FOUND, MR_STR("unknown service"));
    } else {
        grpc_reply_message(g, &r.base);
    }
}

/* In a mesh: a model that is not loaded here. In the call's arena. */
struct elsewhere {
    struct fleet_ready fleet;
    struct mr_grpc_call *g;
    Grpc__Health__V1__HealthCheckResponse__ServingStatus here;
};

static void fleet_said(struct fleet_ready *q, bool is_ready)
{
    struct elsewhere *e = MR_CONTAINER_OF(q, struct elsewhere, fleet);

    if (is_ready) {
        e->here = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING;
    } else if (q->admin.status < 0 || q->admin.is_there) {
        e->here = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING;
    }
    reply_status(e->g, e->here);
}

static bool may_be_elsewhere(struct mr_server *s, mr_str service)
{
    struct mr_version *v;
    struct mr_err ignored;

    return s->mesh && !serve_is_exiting(s) && service.len > 0 &&
           !mr_str_eq_c(service, "inference.GRPCInferenceService") &&
           mr_models_find(s->models, service, MR_STR(""), &v, &ignored) < 0;
}

void grpc_health_check(struct mr_server *s, struct mr_grpc_call *g)
{
    Grpc__Health__V1__HealthCheckRequest *q =
        grpc_request(g, &grpc__health__v1__health_check_request__descriptor);
    struct elsewhere *e = NULL;

    if (!q) {
        return;
    }
    mr_str service = mr_str_c(q->service);
    if (may_be_elsewhere(s, service)) {
        e = MR_ARENA_NEW(g->call->arena, struct elsewhere);
    }
    if (!e) {
        reply_status(g, status_of(s, service));
        return;
    }
    *e = (struct elsewhere){
        .fleet = {.done = fleet_said, .name = service}, .g = g, .here = status_of(s, service)};
    fleet_ready_ask(s, &e->fleet);
}

static void send_status(struct watcher *w)
{
    Grpc__Health__V1__HealthCheckResponse r = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    uint8_t bytes[16];

    r.status = status_of(w->server, w->service);
    if ((int)r.status == w->last) {
        return;
    }
    w->last = (int)r.status;
    struct mr_piece piece = {bytes, grpc__health__v1__health_check_response__pack(&r, bytes), NULL};
    mr_grpc_send(w->g, &piece, 1, MR_GRPC_IDENTITY);
}

static void end_watch(struct watcher *w, int grpc_status, mr_str message)
{
    serve_closed(&w->pending);
    w->g->call->user = NULL;
    mr_grpc_finish(w->g, grpc_status, message);
}

static void on_cancel(struct serve_pending *p)
{
    end_watch(MR_CONTAINER_OF(p, struct watcher, pending), MR_GRPC_CANCELLED, MR_STR("cancelled"));
}

/* A server that exits ends its watches, so that they do not hold the drain. */
static void on_changed(struct serve_pending *p)
{
    struct watcher *w = MR_CONTAINER_OF(p, struct watcher, pending);

    send_status(w);
    if (serve_is_exiting(w->server)) {
        end_watch(w, MR_GRPC_UNAVAILABLE, MR_STR("the server is exiting"));
    }
}

void grpc_health_watch(struct mr_server *s, struct mr_grpc_call *g)
{
    Grpc__Health__V1__HealthCheckRequest *q =
        grpc_request(g, &grpc__health__v1__health_check_request__descriptor);
    struct watcher *w;

    if (!q) {
        return;
    }
    w = MR_ARENA_NEW(g->call->arena, struct watcher);
    if (!w) {
        mr_grpc_fail(g, MR_GRPC_RESOURCE_EXHAUSTED,
                     MR_STR("the call needs more memory than it may use"));
        return;
    }
    w->server = s;
    w->g = g;
    w->service = mr_str_c(q->service);
    w->last = -1;
    w->pending.cancel = on_cancel;
    w->pending.changed = on_changed;
    serve_open(&w->pending);
    g->call->user = &w->pending;
    on_changed(&w->pending);
}
