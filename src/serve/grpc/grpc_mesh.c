/* Calls that name their model by an id, as ModelMesh's clients do: in metadata, or in a field of the message that the configuration of
 * the data plane names, which counts more. The id goes into the message, where our methods have the model's name, before anything
 * else reads it. On network threads. */
#include "mesh/plane.h"
#include "methods_priv.h"
#include "serve/plane/ids.h"
#include "serve/state/state.h"

static const struct mr_splice_path model_name = {1, {1}}; /* in all messages with a model */

static int find_in_message(const struct mr_mesh_method *rule, mr_bytes message, mr_str *out,
                           struct mr_err *err)
{
    int rc = rule->extract.depth ? mr_splice_find(message, &rule->extract, out, err) : 0;

    return rc > 0 && out->len == 0 ? 0 : rc;
}

int grpc_find_id(struct mr_server *s, struct mr_grpc_call *g, mr_bytes message,
                 struct serve_route *out, struct mr_err *err)
{
    struct mr_mesh_method rule = {0};
    struct plane_ids ids = {0};
    mr_str id;
    int rc;

    if (mr_call_listener_tag(g->call) != LISTEN_MESH) {
        mr_mesh_method(s->mesh, g->service_method, &rule);
    }
    if (rule.is_refused) {
        return MR_FAIL(err, MR_E_UNSUPPORTED,
                       "the configuration of the data plane does not allow this method");
    }
    MR_TRY(find_in_message(&rule, message, &id, err));
    if (rc > 0) {
        *out = (struct serve_route){id, rule.is_vmodel};
        return 1;
    }
    MR_TRY(plane_ids_read(g->call, &ids, err));
    if (ids.count) {
        *out = (struct serve_route){ids.at[0], ids.is_vmodel};
        rc = 1;
    }
out:
    return rc;
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
        return MR_FAIL(err, MR_E_EXHAUSTED, "the request needs more memory than it may use");
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
