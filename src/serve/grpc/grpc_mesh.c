/* Calls that name their model by an id, as ModelMesh's clients do: in metadata, or in a field of the message that the configuration of
 * the data plane names, which counts more. The id goes into the message, where our methods have the model's name, before anything
 * else reads it. On network threads. */
#include "mesh/plane.h"
#include "methods_priv.h"
#include "serve/mesh/hop.h"
#include "serve/plane/ids.h"
#include "serve/state/grpc_reply.h"
#include "serve/state/loops.h"
#include "serve/state/state.h"

static const struct mr_splice_path model_name = {1, {1}}; /* in all messages with a model */

static int find_in_message(const struct mr_mesh_method *rule, mr_bytes message, mr_str *out,
                           struct mr_err *err)
{
    int rc = rule->extract.depth ? mr_splice_find(message, &rule->extract, out, err) : 0;

    return rc > 0 && out->len == 0 ? 0 : rc;
}

/* Other servers send the id in metadata, and have looked at the rules. */
static struct mr_mesh_method rule_of(struct mr_server *s, const struct mr_call *call)
{
    struct mr_mesh_method rule;

    mr_mesh_method(s->mesh, call->path, &rule);
    if (mr_call_listener_tag(call) == LISTEN_MESH) {
        rule.is_refused = false;
        rule.extract.depth = 0;
    }
    return rule;
}

static int find_id(const struct mr_mesh_method *rule, const struct mr_call *call, mr_bytes message,
                   struct serve_route *out, struct mr_err *err)
{
    struct plane_ids ids = {0};
    mr_str id;
    int rc;

    if (rule->is_refused) {
        return MR_FAIL(err, MR_E_UNSUPPORTED,
                       "the configuration of the data plane, or the runtime, does not allow this "
                       "method");
    }
    MR_TRY(find_in_message(rule, message, &id, err));
    if (rc > 0) {
        *out = (struct serve_route){.id = id, .is_vmodel = rule->is_vmodel};
        return 1;
    }
    MR_TRY(plane_ids_read(call, &ids, err));
    if (ids.count) {
        *out = (struct serve_route){.id = ids.at[0], .is_vmodel = ids.is_vmodel};
        out->several = ids.count > 1 ? ids : (struct plane_ids){0};
        rc = 1;
    }
out:
    return rc;
}

int grpc_find_id(struct mr_server *s, struct mr_grpc_call *g, mr_bytes message,
                 struct serve_route *out, struct mr_err *err)
{
    struct mr_mesh_method rule = rule_of(s, g->call);

    return find_id(&rule, g->call, message, out, err);
}

int grpc_put_model(struct mr_grpc_call *g, mr_str id, struct mr_err *err)
{
    struct mr_splice s;
    mr_bytes message;
    mr_str known = {0};
    int rc;

    MR_TRY(mr_grpc_message(g, &message, err));
    MR_TRY(mr_splice_find(message, &model_name, &known, err));
    if (rc > 0 && mr_str_eq(known, id)) {
        return MR_OK;
    }
    MR_TRY(mr_splice_put(message, &model_name, id, &s, err));
    struct mr_block *block = mr_block_new(s.len);
    if (!block || !mr_block_keep(block, g->call->arena)) {
        return MR_ARENA_FAIL(err);
    }
    size_t at = 0;
    for (size_t i = 0; i < s.count; i++) {
        memcpy(block->data + at, s.pieces[i].ptr, s.pieces[i].len);
        at += s.pieces[i].len;
    }
    mr_grpc_set_message(g, (mr_bytes){block->data, s.len});
out:
    return rc;
}

/* ---- calls for a runtime ---- */

struct passed_call {
    struct serve_arrival arrival;
    struct serve_route route;
    struct mr_grpc_call *g;
    struct mr_splice_path inject;
    mr_bytes message; /* of a call that is collected */
    bool is_by_name;  /* which may be that of a vmodel */
};

static bool is_ours(const struct mr_call *call)
{
    return mr_str_starts(call->path, MR_STR("/inference.GRPCInferenceService/"));
}

bool grpc_pass_collects(struct mr_server *s, const struct mr_call *call)
{
    struct mr_mesh_method rule = rule_of(s, call);
    struct plane_ids ids = {0};

    if (rule.extract.depth || rule.inject.depth ||
        (is_ours(call) && !mr_str_ends(call->path, MR_STR("/ModelStreamInfer")))) {
        return true;
    }
    plane_ids_read(call, &ids, NULL); /* one that is wrong is refused later */
    return ids.count > 1;
}

/* A piece of the message; those of the body are sent by reference. */
static struct mr_piece piece_of(const struct mr_call *call, mr_bytes bytes)
{
    const uint8_t *body = call->body.ptr;
    bool is_in_body = call->body_block && bytes.ptr >= body && bytes.ptr < body + call->body.len;

    return (struct mr_piece){bytes.ptr, bytes.len, is_in_body ? call->body_block : NULL};
}

static void set_prefix(uint8_t prefix[5], size_t len)
{
    const uint8_t bytes[5] = {0, (uint8_t)(len >> 24), (uint8_t)(len >> 16), (uint8_t)(len >> 8),
                              (uint8_t)len};

    memcpy(prefix, bytes, sizeof bytes);
}

/* The message with the id in it, in a new frame. */
static int bind(struct serve_arrival *a, struct mr_err *err)
{
    struct passed_call *p = MR_CONTAINER_OF(a, struct passed_call, arrival);
    struct mr_call *call = a->call;
    struct mr_splice *s = MR_ARENA_NEW(call->arena, struct mr_splice);
    struct mr_piece *pieces =
        MR_ARENA_ARRAY(call->arena, struct mr_piece, MR_SPLICE_PIECES_MAX + 1);
    uint8_t *prefix = mr_arena_try(call->arena, 5, 1);
    int rc;

    if (!s || !pieces || !prefix) {
        return MR_ARENA_FAIL(err);
    }
    if (p->inject.depth) {
        MR_TRY(mr_splice_put(p->message, &p->inject, p->route.id, s, err));
    } else {
        *s = (struct mr_splice){.pieces = {p->message}, .count = 1, .len = p->message.len};
    }
    if (s->len > (size_t)p->g->max_message_bytes) {
        return MR_FAIL(err, MR_E_TOO_LARGE,
                       "with the id of its model the message is larger than %lld bytes (%s)",
                       (long long)p->g->max_message_bytes, p->g->limit_name);
    }
    set_prefix(prefix, s->len);
    pieces[0] = (struct mr_piece){prefix, 5, NULL};
    for (size_t i = 0; i < s->count; i++) {
        pieces[i + 1] = piece_of(call, s->pieces[i]);
    }
    p->route.body = pieces;
    p->route.body_count = s->count + 1;
    rc = MR_OK;
out:
    return rc;
}

static void not_passed(struct serve_arrival *a, const struct mr_err *err)
{
    grpc_fail_err(MR_CONTAINER_OF(a, struct passed_call, arrival)->g, err);
}

/* The names in messages of the inference protocol count, where nothing else names the model. */
static int name_model(struct mr_server *s, struct passed_call *p, struct mr_err *err)
{
    struct mr_grpc_call *g = p->g;
    struct mr_mesh_method rule = rule_of(s, g->call);
    mr_str name = {0};
    int rc = MR_OK;

    if (!g->call->streaming) {
        MR_TRY(mr_grpc_message(g, &p->message, err));
    }
    p->inject = rule.inject;
    MR_TRY(find_id(&rule, g->call, p->message, &p->route, err));
    if (rc == 0 && is_ours(g->call)) {
        MR_TRY(mr_splice_find(p->message, &model_name, &name, err));
        p->route.id = name;
        p->is_by_name = true;
    }
    if (p->route.id.len == 0) {
        return MR_FAIL(err, MR_E_INVALID,
                       "the request names no model: metadata mm-model-id or mm-vmodel-id, or "
                       "--mesh-dataplane-config, does");
    }
out:
    return rc;
}

void grpc_pass(struct mr_server *s, struct mr_grpc_call *g)
{
    struct passed_call *p = MR_ARENA_NEW(g->call->arena, struct passed_call);
    struct mr_err err;

    if (!p) {
        MR_ARENA_FAIL(&err);
        grpc_fail_err(g, &err);
        return;
    }
    p->g = g;
    if (name_model(s, p, &err) < 0) {
        grpc_fail_err(g, &err);
        return;
    }
    if (p->route.several.count) {
        grpc_multi(s, g, &p->route.several);
        return;
    }
    p->arrival = (struct serve_arrival){.call = g->call,
                                        .fail = not_passed,
                                        .route = &p->route,
                                        .loop = serve_here(),
                                        .may_be_vmodel = p->is_by_name,
                                        .is_passed = true,
                                        .is_stream = g->call->streaming};
    mr_buf_init(&p->arrival.first, 0);
    p->route.is_for_runtime = true;
    p->route.deadline_ns = g->deadline_ns;
    if (g->call->streaming) {
        p->route.encoding = mr_call_header(g->call, "grpc-encoding");
        p->route.message_max = g->max_message_bytes;
    } else {
        p->route.bind = bind;
    }
    hop_begin(&p->arrival, p->route.id, (mr_str){0});
}
