/* gRPC: which method does what. On network threads. */
#include "serve/state/serve_priv.h"

#define SERVICE "/inference.GRPCInferenceService/"
#define OURS    "/millrace.ModelControl/"

static const char *const stream_methods[] = {
    SERVICE "ModelStreamInfer",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
};

bool grpc_is_infer(mr_str path)
{
    return mr_str_eq(path, MR_STR(SERVICE "ModelInfer"));
}

bool grpc_is_streaming(mr_str path)
{
    for (size_t i = 0; i < sizeof stream_methods / sizeof *stream_methods; i++)
        if (mr_str_eq_c(path, stream_methods[i]))
            return true;
    return false;
}

uint64_t grpc_message_limit(const struct mr_server *s, mr_str path, const char **out_why)
{
    uint64_t most = s->options.grpc_max_message_bytes;
    bool has_data = grpc_is_infer(path) || mr_str_eq_c(path, stream_methods[0]) ||
                    mr_str_eq(path, MR_STR(SERVICE "RepositoryModelLoad"));
    bool is_small = !has_data && most > SERVE_SMALL_BODY;

    *out_why = is_small ? "the most that this method takes" : "--grpc-max-message-size";
    return is_small ? SERVE_SMALL_BODY : most;
}

static struct mr_grpc_call *open_call(struct mr_server *s, struct mr_call *call)
{
    struct mr_grpc_call *g = MR_ARENA_NEW(call->arena, struct mr_grpc_call);
    const char *why;
    uint64_t most = grpc_message_limit(s, call->path, &why);

    if (!g) {
        mr_call_abort(call, 11); /* ENHANCE_YOUR_CALM: its headers alone used up the arena */
        return NULL;
    }
    if (mr_grpc_begin(g, call, (int64_t)most) < 0)
        return NULL;
    g->limit_name = why;
    g->max_ratio = s->options.max_decompression_ratio;
    return g;
}

void grpc_stream_begin(struct mr_server *s, struct mr_call *call)
{
    struct mr_grpc_call *g = open_call(s, call);

    if (!g)
        return;
    if (mr_str_eq_c(call->path, stream_methods[0]))
        grpc_stream_infer_open(s, g);
    else
        grpc_reflect_open(s, g);
}

static void route(struct mr_server *s, struct mr_grpc_call *g)
{
    struct mr_call *call = g->call;
    mr_str service = MR_STR(SERVICE), ours = MR_STR(OURS);

    if (grpc_is_infer(call->path))
        grpc_model_infer(s, g);
    else if (mr_str_starts(call->path, service))
        grpc_meta_dispatch(s, g, mr_str_sub(call->path, service.len, call->path.len));
    else if (mr_str_starts(call->path, ours))
        grpc_models_dispatch(s, g, mr_str_sub(call->path, ours.len, call->path.len));
    else if (mr_str_eq_c(call->path, "/grpc.health.v1.Health/Check"))
        grpc_health_check(s, g);
    else if (mr_str_eq_c(call->path, "/grpc.health.v1.Health/Watch"))
        grpc_health_watch(s, g);
    else
        mr_grpc_fail(g, 12, MR_STR("unknown service or method"));
}

/* A compressed message, but for inferences, whatever it asks for: unpacked in turns, before anything looks at it. */
struct packed_call {
    struct serve_pending pending;
    struct mr_turn turn;
    struct mr_server *server;
    struct mr_grpc_call *g;
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
    if (t->status < 0)
        serve_turn_error(t, &p->err);
    if (p->err.status < 0)
        grpc_fail_err(p->g, &p->err);
    else
        route(p->server, p->g);
}

static void unpack_cancel(struct serve_pending *pending)
{
    mr_turn_end(&MR_CONTAINER_OF(pending, struct packed_call, pending)->turn, MR_E_CANCELLED);
}

static void unpack_first(struct mr_server *s, struct mr_grpc_call *g)
{
    struct packed_call *p = MR_ARENA_NEW(g->call->arena, struct packed_call);

    if (!p) {
        mr_grpc_fail(g, 8, MR_STR("the request needs more memory than it may use"));
        return;
    }
    p->server = s;
    p->g = g;
    p->pending.cancel = unpack_cancel;
    p->turn = (struct mr_turn){.work = unpack_work, .done = unpack_done, .may_refuse = true};
    g->call->user = &p->pending;
    mr_turns_add(mr_loop_turns(g->call->loop), &p->turn);
}

void grpc_dispatch(struct mr_server *s, struct mr_call *call)
{
    struct mr_grpc_call *g = open_call(s, call);

    if (g && mr_grpc_is_packed(g) && !grpc_is_infer(call->path))
        unpack_first(s, g);
    else if (g)
        route(s, g);
}
