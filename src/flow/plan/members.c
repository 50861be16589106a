/* The checks of a graph that need the models in it. For ensembles the texts are Triton's. */
#include "members.h"
#include "rows_node.h"

#include "base/buf.h"
#include "tensor/tensor.h"

/* What one of those that use a tensor says of it. */
struct view {
    mr_str who; /* a model */
    int32_t dtype;
    bool is_batching;
    int32_t rank; /* of dims, without the batch dimension */
    const int64_t *dims;
};

struct checks {
    struct plan *p;
    const struct plan_member *members;
    struct view *views; /* [tensor_count], who.ptr NULL: none yet */
    struct mr_err *err;
};

/* ---- types and shapes ---- */

static bool dims_agree(const int64_t *a, int32_t a_rank, const int64_t *b, int32_t b_rank)
{
    if (a_rank != b_rank) {
        return false;
    }
    for (int32_t i = 0; i < a_rank; i++) {
        if (a[i] >= 0 && b[i] >= 0 && a[i] != b[i]) {
            return false;
        }
    }
    return true;
}

static int32_t full_dims(const struct view *v, int64_t out[MR_MAX_RANK + 1])
{
    const int32_t lead = v->is_batching ? 1 : 0;

    out[0] = -1;
    memcpy(out + lead, v->dims, (size_t)v->rank * sizeof *out);
    return v->rank + lead;
}

static int agree(struct checks *k, uint32_t tensor, const struct view *now)
{
    struct view *first = &k->views[tensor];
    const mr_str name = k->p->tensors[tensor].name;
    const char *kind = k->p->is_workflow ? "workflow" : "ensemble";
    int64_t a[MR_MAX_RANK + 1], b[MR_MAX_RANK + 1];
    char a_text[256], b_text[256];

    if (!first->who.ptr) {
        *first = *now;
        return MR_OK;
    }
    if (first->dtype != now->dtype) {
        return MR_FAIL(k->err, MR_E_INVALID,
                       "in %s %.*s, %s tensor %.*s: inconsistent data type: %s is inferred from "
                       "model %.*s while %s is inferred from model %.*s",
                       kind, MR_STR_ARG(k->p->name), kind, MR_STR_ARG(name),
                       mr_dtype_config_name(first->dtype), MR_STR_ARG(first->who),
                       mr_dtype_config_name(now->dtype), MR_STR_ARG(now->who));
    }
    const int32_t a_rank = full_dims(first, a), b_rank = full_dims(now, b);
    if (dims_agree(first->dims, first->rank, now->dims, now->rank) ||
        dims_agree(a, a_rank, b, b_rank)) {
        return MR_OK;
    }
    return MR_FAIL(k->err, MR_E_INVALID,
                   "in %s %.*s, %s tensor %.*s: inconsistent shape: %s is inferred from model "
                   "%.*s while %s is inferred from model %.*s",
                   kind, MR_STR_ARG(k->p->name), kind, MR_STR_ARG(name),
                   mr_shape_text(a, a_rank, a_text, sizeof a_text), MR_STR_ARG(first->who),
                   mr_shape_text(b, b_rank, b_text, sizeof b_text), MR_STR_ARG(now->who));
}

/* What the model of a node says of the tensor of a port, which is more than the model's part if the node runs for rows. */
static int io_view(struct checks *k, const struct plan_node *node, bool is_output, uint32_t index,
                   const struct mr_version *v, const struct mr_model_io *io, struct view *out)
{
    *out = (struct view){v->model_name, io->dtype, v->max_batch_size > 0, io->rank, io->dims};
    return !node->rows ? MR_OK
                       : plan_rows_dims(k->p, node, is_output, index, &out->is_batching, io,
                                        &out->rank, &out->dims, k->err);
}

static int agree_io(struct checks *k, const struct plan_node *node, bool is_output, uint32_t index,
                    const struct mr_version *v, const struct mr_model_io *io)
{
    const struct plan_port *ports = is_output ? node->outputs : node->inputs;
    struct view view;
    const int rc = io_view(k, node, is_output, index, v, io, &view);

    return rc < 0 ? rc : agree(k, ports[index].tensor, &view);
}

/* ---- the model itself ---- */

static int own_check(struct checks *k, const Inference__ModelConfig *c)
{
    const struct plan *p = k->p;
    int rc = MR_OK;

    for (uint32_t i = 0; i < p->input_count && rc == MR_OK; i++) {
        const Inference__ModelInput *in = c->input[i];
        const struct view view = {p->name, (int32_t)in->data_type, p->max_batch_size > 0,
                                  (int32_t)in->n_dims, in->dims};
        rc = agree(k, p->inputs[i], &view);
    }
    for (uint32_t i = 0; i < p->output_count && rc == MR_OK; i++) {
        const Inference__ModelOutput *o = c->output[i];
        const struct view view = {p->name, (int32_t)o->data_type, p->max_batch_size > 0,
                                  (int32_t)o->n_dims, o->dims};
        rc = agree(k, p->outputs[i], &view);
    }
    return rc;
}

/* ---- the models in it ---- */

static const struct mr_model_io *io_find(const struct mr_model_io *list, uint32_t count,
                                         mr_str name)
{
    for (uint32_t i = 0; i < count; i++) {
        if (mr_str_eq(list[i].name, name)) {
            return &list[i];
        }
    }
    return NULL;
}

static int no_port(const struct checks *k, const struct plan_node *node,
                   const struct plan_port *port, const char *direction, const char *what)
{
    const char *kind = k->p->is_workflow ? "workflow" : "ensemble";

    return MR_FAIL(k->err, MR_E_INVALID,
                   "in %s %.*s, %s tensor %.*s is mapping %s non-existing %s %.*s in model %.*s",
                   kind, MR_STR_ARG(k->p->name), kind, MR_STR_ARG(k->p->tensors[port->tensor].name),
                   direction, what, MR_STR_ARG(port->name), MR_STR_ARG(node->model));
}

static int inputs_check(struct checks *k, const struct plan_node *node, const struct mr_version *v)
{
    for (uint32_t i = 0; i < node->input_count; i++) {
        const struct plan_port *port = &node->inputs[i];
        const struct mr_model_io *io = io_find(v->inputs, v->input_count, port->name);
        if (!io) {
            return no_port(k, node, port, "to", "input");
        }
        ((struct plan_port *)(uintptr_t)port)->is_optional =
            io->optional && (!node->is_copy || port->is_optional) &&
            !(node->rows && node->rows->divided[i]);
        int rc = agree_io(k, node, false, i, v, io);
        if (rc < 0) {
            return rc;
        }
    }
    return MR_OK;
}

static bool has_port(const struct plan_node *node, mr_str name)
{
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (mr_str_eq(node->inputs[i].name, name)) {
            return true;
        }
    }
    return false;
}

static int mapped_check(const struct checks *k, const struct plan_node *node,
                        const struct mr_version *v)
{
    const char *kind = k->p->is_workflow ? "workflow" : "ensemble";

    for (uint32_t i = 0; i < v->input_count; i++) {
        if (!v->inputs[i].optional && !has_port(node, v->inputs[i].name)) {
            return MR_FAIL(k->err, MR_E_INVALID,
                           "in %s %.*s, input %.*s in model %.*s is not mapped to any %s tensors",
                           kind, MR_STR_ARG(k->p->name), MR_STR_ARG(v->inputs[i].name),
                           MR_STR_ARG(node->model), kind);
        }
    }
    return MR_OK;
}

static int outputs_check(struct checks *k, const struct plan_node *node, const struct mr_version *v)
{
    for (uint32_t i = 0; i < node->output_count; i++) {
        const struct plan_port *port = &node->outputs[i];
        const struct mr_model_io *io = io_find(v->outputs, v->output_count, port->name);
        if (!io) {
            return no_port(k, node, port, "from", "output");
        }
        int rc = agree_io(k, node, true, i, v, io);
        if (rc < 0) {
            return rc;
        }
    }
    return MR_OK;
}

static int batch_check(const struct checks *k, const struct mr_version *v)
{
    const struct plan *p = k->p;

    if (v->max_batch_size == 0 || v->max_batch_size >= p->max_batch_size) {
        return MR_OK;
    }
    return MR_FAIL(k->err, MR_E_INVALID,
                   "%s %.*s allows maximum batch size %d, but it contains model %.*s which only "
                   "allows maximum batch size to be %d",
                   p->is_workflow ? "workflow" : "ensemble", MR_STR_ARG(p->name), p->max_batch_size,
                   MR_STR_ARG(v->model_name), v->max_batch_size);
}

/* ---- what operators may rely on ---- */

/* Notes what a writer makes. Of two, a node and its fallback, the sizes that they have in common. */
static int made_by(struct checks *k, uint32_t tensor, const struct view *v)
{
    struct plan_type *made = &k->p->tensors[tensor].made;
    int64_t *dims = MR_ARENA_ARRAY(&k->p->arena, int64_t, MR_MAX_RANK + 1);

    if (!dims) {
        return plan_no_memory(k->p, k->err);
    }
    const int32_t rank = full_dims(v, dims);
    if (made->dtype == MR_DTYPE_INVALID) {
        *made = (struct plan_type){v->dtype, rank, dims};
        return MR_OK;
    }
    for (int32_t i = 0; i < rank && made->rank == rank; i++) {
        dims[i] = made->dims[i] == dims[i] ? dims[i] : -1;
    }
    *made = (struct plan_type){v->dtype, made->rank == rank ? rank : -1, dims};
    return MR_OK;
}

static int outputs_made(struct checks *k, uint32_t n)
{
    const struct plan_node *node = &k->p->nodes[n];
    const struct mr_version *v = k->members[n].version;
    int rc = MR_OK;

    for (uint32_t i = 0; i < node->output_count && rc == MR_OK; i++) {
        const struct mr_model_io *io = io_find(v->outputs, v->output_count, node->outputs[i].name);
        struct view view;
        if (io) { /* otherwise node_check fails */
            rc = io_view(k, node, true, i, v, io, &view);
            rc = rc < 0 ? rc : made_by(k, node->outputs[i].tensor, &view);
        }
    }
    return rc;
}

/* ---- a node ---- */

/* What is mapped exists. */
static int ports_check(struct checks *k, const struct plan_node *node, const struct mr_version *v)
{
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (!io_find(v->inputs, v->input_count, node->inputs[i].name)) {
            return no_port(k, node, &node->inputs[i], "to", "input");
        }
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        if (!io_find(v->outputs, v->output_count, node->outputs[i].name)) {
            return no_port(k, node, &node->outputs[i], "from", "output");
        }
    }
    return MR_OK;
}

static int rows_settle(struct checks *k, uint32_t n, const struct mr_version *v)
{
    const int rc = ports_check(k, &k->p->nodes[n], v);

    if (rc == MR_OK && mr_config_sequences(v->config)) {
        return MR_FAIL(
            k->err, MR_E_UNSUPPORTED,
            "workflow '%.*s': node '%.*s' runs for rows, which have no order among them, "
            "and model '%.*s' has sequence_batching",
            MR_STR_ARG(k->p->name), MR_STR_ARG(k->p->nodes[n].name), MR_STR_ARG(v->model_name));
    }
    return rc < 0 ? rc : plan_rows_settle(k->p, n, v, k->err);
}

/* What asks a model more than once, or compares its one answer, has no use for several. */
static int stream_check(const struct checks *k, const struct plan_node *node,
                        const struct mr_version *v)
{
    const char *what = node->rows            ? "runs for rows"
                       : node->hedge_percent ? "has 'hedge'"
                       : node->shadow        ? "has 'shadow'"
                                             : NULL;

    return what
               ? MR_FAIL(k->err, MR_E_UNSUPPORTED,
                         "workflow '%.*s': node '%.*s' %s, and model '%.*s' is decoupled: it gives "
                         "any number of answers to a request",
                         MR_STR_ARG(k->p->name), MR_STR_ARG(node->name), what,
                         MR_STR_ARG(v->model_name))
               : MR_OK;
}

/* What Triton's texts do not have, as steps of its ensembles have no names. */
static int at_node(const struct checks *k, uint32_t n, int rc)
{
    return rc < 0 && k->p->is_workflow
               ? MR_WRAP(k->err, rc, "node '%.*s'", MR_STR_ARG(k->p->nodes[n].name))
               : rc;
}

static int model_check(struct checks *k, const struct plan_node *node, const struct mr_version *v)
{
    int rc;

    MR_TRY(node->rows ? MR_OK : batch_check(k, v)); /* for rows as many calls as they need */
    MR_TRY(inputs_check(k, node, v));
    MR_TRY(mapped_check(k, node, v));
    MR_TRY(outputs_check(k, node, v));
out:
    return rc;
}

static int node_check(struct checks *k, uint32_t n)
{
    const struct plan_node *node = &k->p->nodes[n];
    const struct mr_version *v = k->members[n].version;
    int rc;

    MR_TRY(node->rows ? rows_settle(k, n, v) : MR_OK);
    MR_TRY(at_node(k, n, model_check(k, node, v)));
    MR_TRY(mr_version_is_streaming(v) ? stream_check(k, node, v) : MR_OK);
    k->p->nodes[n].is_streaming = mr_version_is_streaming(v);
    k->p->is_decoupled |= mr_version_is_streaming(v);
    if (node->rows) {
        MR_TRY(outputs_made(k, n));
    }
out:
    return rc;
}

/* What is made by the client, and by models that do not run for rows: those that do are settled by it. */
static int known_made(struct checks *k, const Inference__ModelConfig *c)
{
    struct plan *p = k->p;
    int rc = MR_OK;

    for (uint32_t i = 0; i < p->input_count && rc == MR_OK; i++) {
        rc = made_by(k, p->inputs[i],
                     &(struct view){p->name, (int32_t)c->input[i]->data_type, p->max_batch_size > 0,
                                    (int32_t)c->input[i]->n_dims, c->input[i]->dims});
    }
    for (uint32_t n = 0; n < p->node_count && rc == MR_OK; n++) {
        rc = !p->nodes[n].model.len || p->nodes[n].rows ? MR_OK : outputs_made(k, n);
    }
    return rc;
}

/* Those of which no more is known. */
static int absent_fail(const struct checks *k)
{
    const struct plan *p = k->p;
    struct mr_map seen = {0};
    struct mr_buf names;

    mr_buf_init(&names, 512);
    for (uint32_t n = 0; n < p->node_count; n++) {
        if (!k->members[n].version && p->nodes[n].model.len && !k->members[n].failure &&
            !mr_map_put(&seen, p->nodes[n].model, &seen)) {
            mr_buf_printf(&names, "%s%.*s", names.len ? ", " : "",
                          MR_STR_ARG(mr_str_sub(p->nodes[n].model, 0, 128)));
        }
    }
    MR_FAIL(k->err, MR_E_INVALID,
            "%s %.*s contains models that are not available or ambiguous: %.300s",
            p->is_workflow ? "workflow" : "ensemble", MR_STR_ARG(p->name), mr_buf_cstr(&names));
    mr_buf_fini(&names);
    mr_map_fini(&seen);
    return MR_E_INVALID;
}

static int missing_fail(const struct checks *k, uint32_t node)
{
    const struct plan *p = k->p;
    const struct plan_member *member = &k->members[node];
    const mr_str model = mr_str_sub(p->nodes[node].model, 0, 128);
    const char *kind = p->is_workflow ? "workflow" : "ensemble";

    if (member->is_circular) {
        return MR_FAIL(k->err, MR_E_INVALID,
                       "circular dependency between ensembles: %.*s -> ... -> %.*s",
                       MR_STR_ARG(p->name), MR_STR_ARG(model));
    }
    if (member->has_other && !p->is_workflow) {
        return MR_FAIL(
            k->err, MR_E_INVALID,
            "ensemble '%.*s' depends on '%.*s' whose required version %.*s is not loaded.",
            MR_STR_ARG(p->name), MR_STR_ARG(model), MR_STR_ARG(p->nodes[node].version));
    }
    if (member->failure) {
        return MR_FAIL(k->err, MR_E_INVALID,
                       "%s '%.*s' depends on '%.*s' which has no loaded version. Model '%.*s' "
                       "loading failed with error: %.600s",
                       kind, MR_STR_ARG(p->name), MR_STR_ARG(model), MR_STR_ARG(model),
                       member->failure);
    }
    return absent_fail(k);
}

/* Returns the node whose missing model is reported, UINT32_MAX if none is missing. As in Triton a cycle comes first, then a model
 * that is not known, then one that did not load. */
static uint32_t missing_find(const struct checks *k)
{
    uint32_t found = UINT32_MAX;

    for (uint32_t n = 0; n < k->p->node_count; n++) {
        const struct plan_member *m = &k->members[n];

        if (m->version || !k->p->nodes[n].model.len) {
            continue;
        }
        if (m->is_circular) {
            return n;
        }
        if (found == UINT32_MAX || (k->members[found].failure && !m->failure)) {
            found = n;
        }
    }
    return found;
}

int plan_check_members(struct plan *p, const Inference__ModelConfig *c,
                       const struct plan_member *members, struct mr_err *err)
{
    struct checks k = {.p = p, .members = members, .err = err};
    int rc = MR_OK;

    const uint32_t missing = missing_find(&k);
    if (missing != UINT32_MAX) {
        return at_node(&k, missing, missing_fail(&k, missing));
    }
    k.views = MR_NEW_ARRAY(struct view, (size_t)p->tensor_count + 1);
    rc = own_check(&k, c);
    rc = rc < 0 ? rc : known_made(&k, c);
    for (uint32_t n = 0; n < p->node_count && rc == MR_OK; n++) {
        rc = !p->nodes[n].model.len ? MR_OK : node_check(&k, n);
    }
    for (uint32_t n = 0; n < p->node_count && rc == MR_OK; n++) {
        rc = p->nodes[n].split && p->nodes[n].rows ? plan_rows_settle_split(p, n, err) : MR_OK;
    }
    for (uint32_t t = 0; t < p->tensor_count; t++) {
        p->tensors[t].dtype = k.views[t].dtype;
        p->tensors[t].rank = k.views[t].rank;
        p->tensors[t].has_batch = k.views[t].is_batching;
        p->tensors[t].user =
            k.views[t].who.ptr ? mr_arena_str(&p->arena, k.views[t].who) : MR_STR("");
        int64_t *dims = MR_ARENA_ARRAY(&p->arena, int64_t, (size_t)k.views[t].rank + 1);
        if (dims && k.views[t].rank > 0) {
            memcpy(dims, k.views[t].dims, (size_t)k.views[t].rank * sizeof *dims);
        }
        p->tensors[t].dims = dims;
        rc = rc < 0 || dims ? rc : plan_no_memory(p, err);
    }
    mr_free(k.views);
    return rc;
}
