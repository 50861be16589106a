/* gRPC calls: opened, unpacked, and given to their method. On network threads. */
#include "codec/splice.h"
#include "methods_priv.h"
#include "serve/mesh/arrival.h"
#include "serve/mesh/hop.h"
#include "serve/mesh/stream_arrival.h"
#include "serve/state/grpc_reply.h"
#include "serve/state/infer.h"
#include "serve/state/loops.h"
#include "serve/state/state.h"

static struct mr_grpc_call *open_call(struct mr_server *s, struct mr_call *call,
                                      const struct grpc_method *m)
{
    struct mr_grpc_call *g = MR_ARENA_NEW(call->arena, struct mr_grpc_call);
    const char *why;
    uint64_t most = grpc_message_limit(s, m, &why);

    if (!g) {
        mr_call_abort(call, 11); /* ENHANCE_YOUR_CALM: its headers alone used up the arena */
        return NULL;
    }
    if (mr_grpc_begin(g, call, (int64_t)most) < 0) {
        return NULL;
    }
    g->limit_name = why;
    g->max_ratio = s->options.max_decompression_ratio;
    return g;
}

/* A call whose model has to be made ready. */
struct grpc_arrival {
    struct serve_arrival arrival;
    struct serve_route route;
    struct mr_grpc_call *g;
    const struct grpc_method *method;
    mr_str model; /* the name in the message */
};

/* What another server of the mesh sent on counts there. */
static void refuse_early(struct mr_grpc_call *g, const struct grpc_method *m, mr_str model,
                         const struct mr_err *err)
{
    if (m->kind == GRPC_INFER && mr_call_listener_tag(g->call) != LISTEN_MESH) {
        infer_count_refused(g->call, model, err);
    }
    grpc_fail_err(g, err);
}

static void arrived(struct serve_arrival *a)
{
    struct grpc_arrival *ga = MR_CONTAINER_OF(a, struct grpc_arrival, arrival);
    struct mr_err err;

    mr_str id = a->route ? a->route->id : a->model;
    if (id.len && grpc_put_model(ga->g, id, &err) < 0) {
        refuse_early(ga->g, ga->method, id, &err);
        return;
    }
    ga->method->handle(a->loop->server, ga->g);
}

static void not_arrived(struct serve_arrival *a, const struct mr_err *err)
{
    const struct grpc_arrival *ga = MR_CONTAINER_OF(a, struct grpc_arrival, arrival);

    refuse_early(ga->g, ga->method, a->route ? a->route->id : ga->model, err);
}

/* In a mesh: a call that names its model by an id. False: it does not. */
static bool waits_by_id(struct mr_server *s, struct grpc_arrival *ga, mr_bytes message)
{
    struct mr_err err;
    int rc = grpc_find_id(s, ga->g, message, &ga->route, &err);

    if (rc < 0) {
        refuse_early(ga->g, ga->method, ga->model, &err);
    } else if (rc > 0 && ga->route.several.count) {
        grpc_multi(s, ga->g, &ga->route.several);
    } else if (rc > 0) {
        ga->arrival.route = &ga->route;
        ga->arrival.loop = serve_here();
        if (!hop_begin(&ga->arrival, ga->route.id, (mr_str){0})) {
            arrived(&ga->arrival);
        }
    }
    return rc != 0;
}

/* In a mesh. The name need not be at the beginning of the message. False: the call is answered. */
static bool find_name(struct mr_grpc_call *g, const struct grpc_method *m, mr_bytes message,
                      mr_str *io_name)
{
    static const struct mr_splice_path model_name = {1, {1}};
    struct mr_err err;

    if (!io_name->len) {
        mr_splice_find(message, &model_name, io_name, &err); /* the method says what is wrong */
    }
    if (io_name->len || m->handle == grpc_server_metadata) {
        return true;
    }
    MR_FAIL(&err, MR_E_INVALID, GRPC_NO_MODEL);
    refuse_early(g, m, MR_STR(""), &err);
    return false;
}

static bool waits(struct mr_server *s, struct mr_grpc_call *g, const struct grpc_method *m)
{
    struct grpc_arrival *ga = MR_ARENA_NEW(g->call->arena, struct grpc_arrival);
    struct mr_oip_request names = {0};
    struct mr_err ignored;
    mr_bytes message;

    if (!ga || mr_grpc_message(g, &message, &ignored) < 0) {
        return false; /* the method says what is wrong */
    }
    mr_oip_pb_find_names(message,
                         &names); /* all these messages have the names in the same fields */
    if (m->handle == grpc_model_ready && !names.model_version.len) {
        return false; /* the mesh knows it */
    }
    ga->arrival = (struct serve_arrival){.call = g->call, .go = arrived, .fail = not_arrived};
    ga->g = g;
    ga->method = m;
    ga->model = names.model_name;
    if (s->mesh && (waits_by_id(s, ga, message) || !find_name(g, m, message, &ga->model))) {
        return true;
    }
    ga->arrival.may_be_vmodel = true;
    return arrival_wait(&ga->arrival, ga->model, names.model_version, true);
}

static bool may_wait(const struct mr_server *s, const struct grpc_method *m)
{
    return arrival_is_possible(s, m->api, m->handle == grpc_model_ready);
}

static void handle(struct mr_server *s, struct mr_grpc_call *g, const struct grpc_method *m)
{
    if (m->kind == GRPC_PASSED) {
        m->handle(s, g);
    } else if (m->kind == GRPC_TENSORS && s->mesh) {
        stream_arrive(s, g, m->handle);
    } else if (grpc_is_stream(m) || !may_wait(s, m) || !waits(s, g, m)) {
        m->handle(s, g);
    }
}

/* A compressed message, but for inferences, whatever it asks for: unpacked in turns, before anything looks at it. */
struct packed_call {
    struct serve_pending pending;
    struct mr_turn turn;
    struct mr_server *server;
    struct mr_grpc_call *g;
    const struct grpc_method *method;
    mr_bytes message;
    struct mr_err err;
};

static void unpack_work(struct mr_turn *t)
{
    struct packed_call *p = MR_CONTAINER_OF(t, struct packed_call, turn);

    mr_err_clear(&p->err);
    mr_grpc_message(p->g, &p->message, &p->err);
}

static void unpack_done(struct mr_turn *t)
{
    struct packed_call *p = MR_CONTAINER_OF(t, struct packed_call, turn);

    p->g->call->user = NULL;
    if (t->status < 0) {
        serve_turn_error(t, &p->err);
    }
    if (p->err.status < 0) {
        refuse_early(p->g, p->method, MR_STR(""), &p->err);
    } else {
        handle(p->server, p->g, p->method);
    }
}

static void unpack_cancel(struct serve_pending *pending)
{
    mr_turn_end(&MR_CONTAINER_OF(pending, struct packed_call, pending)->turn, MR_E_CANCELLED);
}

static void unpack_first(struct mr_server *s, struct mr_grpc_call *g, const struct grpc_method *m)
{
    struct packed_call *p = MR_ARENA_NEW(g->call->arena, struct packed_call);

    if (!p) {
        mr_grpc_fail(g, MR_GRPC_RESOURCE_EXHAUSTED,
                     MR_STR("the request needs more memory than it may use"));
        return;
    }
    p->server = s;
    p->g = g;
    p->method = m;
    p->pending.cancel = unpack_cancel;
    p->turn = (struct mr_turn){.work = unpack_work, .done = unpack_done, .may_refuse = true};
    g->call->user = &p->pending;
    mr_turns_add(mr_loop_turns(g->call->loop), &p->turn);
}

void grpc_dispatch(struct mr_server *s, struct mr_call *call, const struct grpc_method *m)
{
    struct mr_grpc_call *g = open_call(s, call, m);

    if (!g) {
        return;
    }
    if (!m) {
        mr_grpc_fail(g, MR_GRPC_UNIMPLEMENTED, MR_STR("unknown service or method"));
    } else if (!call->streaming && mr_grpc_is_packed(g) &&
               (m->kind != GRPC_INFER || may_wait(s, m))) {
        unpack_first(s, g, m);
    } else {
        handle(s, g, m);
    }
}
