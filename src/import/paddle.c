/* Paddle Serving's server files. An engine becomes a model for ONNX Runtime, a workflow a workflow, and a service one that
 * has the workflows of the service as nodes.
 *
 *   GeneralReaderOp     the inputs: the feed variables of the engines that read from it, by their alias names
 *   GeneralInferOp      a node with the engine of its name
 *   GeneralResponseOp   the outputs: the fetch variables of the engines that it waits for
 *   GeneralRemoteOp     a node with the model of its name on another server; an engine of that name says its tensors
 *   Sequence            each node waits for the one before it in the file as well
 *
 * All other ops are code of that server. Models are run from an ONNX file in or beside the engine's model_dir. */
#include "paddle_config.h"

#define NODES_MAX 1000u

struct build {
    struct mr_import *im;
    struct paddle_config config;
};

/** A node of a Paddle workflow, and what it hands on. */
struct op {
    const Paddle__DAGNode *node;
    const struct paddle_engine *engine; /* of a node that infers */
    struct flow_node *flow;
    enum { OP_READER, OP_INFER, OP_RESPONSE } kind;
    bool is_open, is_done;
};

struct dag {
    struct build *b;
    const Paddle__Workflow *workflow;
    struct op *ops;
    struct flow flow;
};

/* `at`: what is wrong of the node, or all of it. */
#define DAG_FAIL_AT(err, status, g, node, at, fmt, ...)                                            \
    PADDLE_FAIL(err, status, &(g)->b->config, (g)->b->config.workflow_file, at,                    \
                "workflow '%.64s': node '%.64s': " fmt, (g)->workflow->name, (node)->name,         \
                ##__VA_ARGS__)
#define DAG_FAIL(err, status, g, node, fmt, ...)                                                   \
    DAG_FAIL_AT(err, status, g, node, node, fmt, ##__VA_ARGS__)

/* ---- engines ---- */

static int32_t dtype_of(int32_t paddle_type)
{
    static const struct {
        int32_t paddle, dtype;
    } types[] = {{0, MR_DTYPE_INT64}, {1, MR_DTYPE_FP32}, {2, MR_DTYPE_INT32}, {3, MR_DTYPE_FP64},
                 {4, MR_DTYPE_INT16}, {5, MR_DTYPE_FP16}, {6, MR_DTYPE_BF16},  {7, MR_DTYPE_UINT8},
                 {8, MR_DTYPE_INT8},  {9, MR_DTYPE_BOOL}, {20, MR_DTYPE_BYTES}};

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (types[i].paddle == paddle_type) {
            return types[i].dtype;
        }
    }
    return MR_DTYPE_INVALID;
}

/** A feed or fetch variable. */
struct variable {
    const void *message;
    const char *name, *alias;
    bool is_lod;
    int32_t type;
    size_t rank;
    const int32_t *shape;
};

static struct variable feed(const struct paddle_engine *e, size_t i)
{
    const Paddle__FeedVar *v = e->tensors->feed_var[i];

    return (struct variable){v,          v->name, v->alias_name, v->is_lod_tensor, v->feed_type,
                             v->n_shape, v->shape};
}

static struct variable fetch(const struct paddle_engine *e, size_t i)
{
    const Paddle__FetchVar *v = e->tensors->fetch_var[i];

    return (struct variable){v,          v->name, v->alias_name, v->is_lod_tensor, v->fetch_type,
                             v->n_shape, v->shape};
}

static bool is_batching(const struct paddle_engine *e)
{
    return e->desc->runtime_thread_num > 0;
}

/* The variable as a tensor named as in the model, or by its alias. The dimensions include that of the batch unless the
 * engine batches. */
static int to_tensor(struct build *b, const struct paddle_engine *e, const struct variable *v,
                     bool by_alias, struct flow_tensor *out, struct mr_err *err)
{
    struct flow_tensor t = {.dtype = dtype_of(v->type)};

    if (v->is_lod) {
        return PADDLE_FAIL(
            err, MR_E_UNSUPPORTED, &b->config, e->tensors_file, v->message,
            "variable '%.64s': is_lod_tensor: ragged tensors have no counterpart here", v->name);
    }
    if (t.dtype == MR_DTYPE_INVALID || v->rank + 1 > MR_MAX_RANK) {
        return PADDLE_FAIL(err, MR_E_INVALID, &b->config, e->tensors_file, v->message,
                           "variable '%.64s': type %d or its %zu dimensions are not known here",
                           v->name, v->type, v->rank);
    }
    t.name = mr_str_c(by_alias && v->alias[0] ? v->alias : v->name);
    if (!is_batching(e)) {
        t.dims[t.rank++] = -1;
    }
    for (size_t i = 0; i < v->rank; i++) {
        t.dims[t.rank++] = v->shape[i] > 0 ? v->shape[i] : -1;
    }
    *out = t;
    return MR_OK;
}

static int emit_variables(struct build *b, const struct paddle_engine *e, struct emit *text,
                          struct mr_err *err)
{
    struct flow_tensor *inputs = NULL, *outputs = NULL, t;
    struct mr_arena arena;
    int rc = MR_OK;

    mr_arena_init(&arena, 0, 16u << 20);
    for (size_t i = 0; i < e->tensors->n_feed_var; i++) {
        const struct variable v = feed(e, i);
        MR_TRY(to_tensor(b, e, &v, false, &t, err));
        rc = flow_tensor_add(&inputs, &t, t.name, &arena) ? MR_OK : import_no_memory(err);
    }
    for (size_t i = 0; i < e->tensors->n_fetch_var; i++) {
        const struct variable v = fetch(e, i);
        MR_TRY(to_tensor(b, e, &v, false, &t, err));
        rc = flow_tensor_add(&outputs, &t, t.name, &arena) ? MR_OK : import_no_memory(err);
    }
    flow_emit_tensors("input", inputs, text);
    flow_emit_tensors("output", outputs, text);
out:
    mr_arena_fini(&arena);
    return rc;
}

static int add_engine(struct build *b, const struct paddle_engine *e, struct mr_err *err)
{
    const Paddle__EngineDesc *d = e->desc;
    const int batch = d->batch_infer_size > 0 ? d->batch_infer_size : 32;
    struct emit text;
    int rc = MR_OK;

    emit_init(&text);
    emit_comment(&text, MR_STR("From an engine of Paddle Serving."));
    emit_str(&text, "name", mr_str_c(d->name));
    emit_str(&text, "backend", MR_STR("onnxruntime"));
    emit_int(&text, "max_batch_size", is_batching(e) ? batch : 0);
    if (e->tensors) {
        MR_TRY(emit_variables(b, e, &text, err));
    }
    if (is_batching(e)) {
        emit_open(&text, "dynamic_batching");
        emit_close(&text);
    }
    emit_open(&text, "instance_group");
    emit_int(&text, "count", is_batching(e) ? d->runtime_thread_num : 1);
    emit_word(&text, "kind", "KIND_CPU");
    emit_close(&text);
    if (!e->model_file) {
        MR_TRY(
            import_warn(b->im, err,
                        "%s:%u: engine '%.64s': there is no ONNX file in or beside '%.128s'; "
                        "Paddle's own format is not run here, paddle2onnx makes an ONNX file of it",
                        e->file, mr_pbtext_line_of(&b->config.lines, d), d->name, d->model_dir));
    }
    if (d->encrypted_model || d->enable_dist_model ||
        d->sparse_param_service_type != PADDLE__ENGINE_DESC__SPARSE_PARAM_SERVICE_TYPE__NONE) {
        rc =
            PADDLE_FAIL(err, MR_E_UNSUPPORTED, &b->config, e->file, d,
                        "engine '%.64s': encrypted and distributed models, and those with a sparse "
                        "parameter service, have no counterpart here",
                        d->name);
        goto out;
    }
    rc = import_add(b->im, mr_str_c(d->name), &text, e->model_file ? e->model_file : "", err);
    if (rc < 0) {
        MR_WRAP(err, rc, "%s:%u", e->file, mr_pbtext_line_of(&b->config.lines, d));
    }
out:
    emit_fini(&text);
    return rc;
}

/* ---- workflows ---- */

static struct op *op_find(struct dag *g, const char *name)
{
    for (size_t i = 0; i < g->workflow->n_nodes; i++) {
        if (strcmp(g->workflow->nodes[i]->name, name) == 0) {
            return &g->ops[i];
        }
    }
    return NULL;
}

/* Each call goes to one of them. */
static int read_addresses(struct dag *g, const Paddle__DAGNode *n, mr_str *out, struct mr_err *err)
{
    struct mr_buf b;

    if (n->n_address == 0) {
        return DAG_FAIL(err, MR_E_INVALID, g, n, "it has no address");
    }
    mr_buf_init(&b, 0);
    for (size_t i = 0; i < n->n_address; i++) {
        mr_buf_printf(&b, "%sgrpc://%s", i ? ";" : "", n->address[i]);
    }
    *out = mr_arena_str(&g->b->im->arena, mr_buf_view(&b));
    mr_buf_fini(&b);
    return out->ptr ? MR_OK : import_no_memory(err);
}

static int read_op(struct dag *g, size_t i, struct mr_err *err)
{
    const Paddle__DAGNode *n = g->workflow->nodes[i];
    struct op *op = &g->ops[i];
    const mr_str type = mr_str_c(n->type);
    const bool is_remote = mr_str_eq_c(type, "GeneralRemoteOp");

    op->node = n;
    if (op_find(g, n->name) != op) {
        return DAG_FAIL(err, MR_E_INVALID, g, n, "the name is there twice");
    }
    if (mr_str_eq_c(type, "GeneralReaderOp")) {
        op->kind = OP_READER;
        return MR_OK;
    }
    if (mr_str_eq_c(type, "GeneralResponseOp")) {
        op->kind = OP_RESPONSE;
        return MR_OK;
    }
    if (!is_remote && !mr_str_eq_c(type, "GeneralInferOp")) {
        return DAG_FAIL(err, MR_E_UNSUPPORTED, g, n, "the op '%.64s' has no counterpart here",
                        n->type);
    }
    op->kind = OP_INFER;
    op->engine = paddle_engine_find(&g->b->config, n->name);
    op->flow = MR_ARENA_NEW(&g->b->im->arena, struct flow_node);
    if (!op->engine || !op->engine->tensors) {
        return DAG_FAIL(err, MR_E_INVALID, g, n,
                        "an engine of that name, with a general_model that says its tensors, is "
                        "needed in resource.prototxt");
    }
    if (!op->flow) {
        return import_no_memory(err);
    }
    *op->flow = (struct flow_node){.name = mr_str_c(n->name),
                                   .model = mr_str_c(n->name),
                                   .version = -1,
                                   .line = mr_pbtext_line_of(&g->b->config.lines, n)};
    if (is_remote) {
        return read_addresses(g, n, &op->flow->remote, err);
    }
    return MR_OK;
}

static const struct flow_pair *handed_on(const struct op *from, const struct variable *want,
                                         bool is_one)
{
    for (const struct flow_pair *p = from->flow->outputs; p; p = p->next) {
        if (is_one || mr_str_eq_c(p->of, want->name)) {
            return p;
        }
    }
    for (size_t i = 0; i < from->engine->tensors->n_fetch_var; i++) {
        const struct variable v = fetch(from->engine, i);
        if (want->alias[0] && strcmp(v.alias, want->alias) == 0) {
            for (const struct flow_pair *p = from->flow->outputs; p; p = p->next) {
                if (mr_str_eq_c(p->of, v.name)) {
                    return p;
                }
            }
        }
    }
    return NULL;
}

/* The feed variables of a node, from the request or from the engine before it. */
static int take(struct dag *g, struct op *op, const struct op *from, struct mr_err *err)
{
    const size_t count = op->engine->tensors->n_feed_var;
    const bool is_one =
        count == 1 && from->kind == OP_INFER && from->engine->tensors->n_fetch_var == 1;

    for (size_t i = 0; i < count; i++) {
        const struct variable v = feed(op->engine, i);
        struct flow_tensor t;
        int rc = to_tensor(g->b, op->engine, &v, true, &t, err);
        if (rc < 0) {
            return rc;
        }
        mr_str value = t.name;
        if (from->kind == OP_INFER) {
            const struct flow_pair *p = handed_on(from, &v, is_one);
            if (!p) {
                return DAG_FAIL(err, MR_E_INVALID, g, op->node,
                                "its variable '%.64s' is not fetched by '%.64s'", v.name,
                                from->node->name);
            }
            value = p->name;
        } else if (!flow_tensor_add(&g->flow.inputs, &t, value, &g->b->im->arena)) {
            return import_no_memory(err);
        }
        if (!flow_pair_add(&op->flow->inputs, mr_str_c(v.name), value, &g->b->im->arena)) {
            return import_no_memory(err);
        }
    }
    return MR_OK;
}

static mr_str alias_of(const struct op *op, size_t i, struct variable *out)
{
    *out = fetch(op->engine, i);
    return mr_str_c(out->alias[0] ? out->alias : out->name);
}

/* What a GeneralResponseOp answers with keeps its aliases. */
static int keep_answers(struct dag *g, const struct op *response, struct mr_err *err)
{
    const struct doc_at at = {.file = g->b->config.workflow_file};
    int rc = MR_OK;

    for (size_t k = 0; k < response->node->n_dependencies && rc == MR_OK; k++) {
        const struct op *op = op_find(g, response->node->dependencies[k]->name);
        const size_t count = op && op->kind == OP_INFER ? op->engine->tensors->n_fetch_var : 0;
        rc = import_count(g->b->im, count + 1, &at,
                          PADDLE_DOC(&g->b->config, response->node->dependencies[k]), err);
        for (size_t i = 0; i < count && rc == MR_OK; i++) {
            struct variable v;
            rc = import_answer(g->b->im, &g->flow, op->flow->name, alias_of(op, i, &v), err);
        }
    }
    return rc;
}

static int give(struct dag *g, struct op *op, struct mr_err *err)
{
    for (size_t i = 0; i < op->engine->tensors->n_fetch_var; i++) {
        struct variable v;
        const mr_str alias = alias_of(op, i, &v);
        const mr_str name = import_tensor_name(g->b->im, &g->flow, op->flow->name, alias);
        if (!name.ptr ||
            !flow_pair_add(&op->flow->outputs, mr_str_c(v.name), name, &g->b->im->arena)) {
            return import_no_memory(err);
        }
    }
    return MR_OK;
}

static int answer_with(struct dag *g, const struct op *from, struct mr_err *err)
{
    const struct flow_pair *p = from->flow->outputs;

    for (size_t i = 0; i < from->engine->tensors->n_fetch_var; i++, p = p->next) {
        const struct variable v = fetch(from->engine, i);
        struct flow_tensor t;
        int rc = to_tensor(g->b, from->engine, &v, true, &t, err);
        if (rc < 0) {
            return rc;
        }
        if (!flow_tensor_add(&g->flow.outputs, &t, p->name, &g->b->im->arena)) {
            return import_no_memory(err);
        }
    }
    return MR_OK;
}

static int connect(struct dag *g, struct op *op, struct mr_err *err);

static int depend(struct dag *g, struct op *op, const Paddle__DAGNodeDependency *d,
                  struct mr_err *err)
{
    static const struct op request = {.kind = OP_READER};
    struct op *from = op_find(g, d->name);
    int rc = MR_OK;

    if (strcmp(d->mode, "RO") != 0 && strcmp(d->mode, "RW") != 0) {
        return DAG_FAIL_AT(err, MR_E_INVALID, g, op->node, d,
                           "mode is '%.16s', allowed are RO and RW", d->mode);
    }
    if (!from && strcmp(d->name, "startup_op") != 0) {
        return DAG_FAIL_AT(err, MR_E_INVALID, g, op->node, d, "there is no node '%.64s'", d->name);
    }
    if (from && (rc = connect(g, from, err)) < 0) {
        return rc;
    }
    if (op->kind == OP_INFER && (!from || from->kind != OP_RESPONSE)) {
        return take(g, op, from ? from : &request, err);
    }
    if (op->kind == OP_RESPONSE && from && from->kind == OP_INFER) {
        return answer_with(g, from, err);
    }
    return op->kind == OP_READER && !from
               ? MR_OK
               : DAG_FAIL_AT(err, MR_E_UNSUPPORTED, g, op->node, d,
                             "it cannot take what '%.64s' gives", d->name);
}

/* Connects a node after those that it depends on. The depth is bounded by the number of nodes. */
static int connect(struct dag *g, struct op *op, struct mr_err *err)
{
    const struct doc_at at = {.file = g->b->config.workflow_file};
    int rc = MR_OK;

    if (op->is_done) {
        return MR_OK;
    }
    if (op->is_open) {
        return DAG_FAIL(err, MR_E_INVALID, g, op->node, "it depends on itself");
    }
    op->is_open = true;
    if (op->kind == OP_INFER && op->node->n_dependencies != 1) {
        return DAG_FAIL(err, MR_E_INVALID, g, op->node, "it has %zu dependencies, one is needed",
                        op->node->n_dependencies);
    }
    if (op->kind == OP_INFER) {
        MR_TRY(import_count(g->b->im,
                            op->engine->tensors->n_feed_var + op->engine->tensors->n_fetch_var, &at,
                            PADDLE_DOC(&g->b->config, op->node), err));
    }
    for (size_t i = 0; i < op->node->n_dependencies; i++) {
        MR_TRY(depend(g, op, op->node->dependencies[i], err));
    }
    if (op->kind == OP_INFER) {
        MR_TRY(give(g, op, err));
        FLOW_ADD(g->flow.nodes, op->flow);
    }
    op->is_done = true;
out:
    return rc;
}

/* One node after the other, in the order that they have come to. */
static int in_order(struct dag *g, struct mr_err *err)
{
    for (struct flow_node *n = g->flow.nodes; n && n->next; n = n->next) {
        struct flow_text *after = MR_ARENA_NEW(&g->b->im->arena, struct flow_text);
        if (!after) {
            return import_no_memory(err);
        }
        after->text = n->name;
        FLOW_ADD(n->next->after, after);
    }
    return MR_OK;
}

static int check_batching(struct dag *g, struct mr_err *err)
{
    const struct op *first = NULL;

    for (size_t i = 0; i < g->workflow->n_nodes; i++) {
        const struct op *op = &g->ops[i];
        if (op->kind != OP_INFER) {
            continue;
        }
        first = first ? first : op;
        const int64_t batch = !is_batching(op->engine) ? 0
                              : op->engine->desc->batch_infer_size > 0
                                  ? op->engine->desc->batch_infer_size
                                  : 32;
        if (is_batching(first->engine) != is_batching(op->engine)) {
            return DAG_FAIL(err, MR_E_UNSUPPORTED, g, op->node,
                            "runtime_thread_num is set for some engines of the workflow only");
        }
        g->flow.max_batch_size = first == op ? batch : MR_MIN(batch, g->flow.max_batch_size);
    }
    return MR_OK;
}

static int add_workflow(struct build *b, const Paddle__Workflow *w, struct flow **out,
                        struct mr_err *err)
{
    struct dag g = {.b = b,
                    .workflow = w,
                    .flow = {.name = mr_str_c(w->name),
                             .file = b->config.workflow_file,
                             .line = mr_pbtext_line_of(&b->config.lines, w)}};
    const struct doc_at at = {.file = b->config.workflow_file};
    const bool is_parallel = strcmp(w->workflow_type, "Parallel") == 0;
    int rc;

    MR_TRY(import_check_name(&at, PADDLE_DOC(&b->config, w), g.flow.name, err));
    if (!is_parallel && strcmp(w->workflow_type, "Sequence") != 0) {
        return PADDLE_FAIL(
            err, MR_E_INVALID, &b->config, at.file, w,
            "workflow '%.64s': workflow_type is '%.40s', allowed are Sequence and Parallel",
            w->name, w->workflow_type);
    }
    g.ops = MR_ARENA_ARRAY(&b->im->arena, struct op, MR_MAX(w->n_nodes, (size_t)1));
    *out = MR_ARENA_NEW(&b->im->arena, struct flow);
    if (w->n_nodes > NODES_MAX || !g.ops || !*out) {
        return PADDLE_FAIL(err, MR_E_TOO_LARGE, &b->config, at.file, w,
                           "workflow '%.64s' has more than %u nodes", w->name, NODES_MAX);
    }
    for (size_t i = 0; i < w->n_nodes; i++) {
        MR_TRY(read_op(&g, i, err));
    }
    for (size_t i = 0; i < w->n_nodes; i++) {
        MR_TRY(g.ops[i].kind == OP_RESPONSE ? keep_answers(&g, &g.ops[i], err) : MR_OK);
    }
    MR_TRY(check_batching(&g, err));
    for (size_t i = 0; i < w->n_nodes; i++) {
        MR_TRY(connect(&g, &g.ops[i], err));
    }
    if (!g.flow.outputs) {
        return PADDLE_FAIL(err, MR_E_INVALID, &b->config, at.file, w,
                           "workflow '%.64s' has no GeneralResponseOp with outputs", w->name);
    }
    MR_TRY(is_parallel ? MR_OK : in_order(&g, err));
    g.flow.comment = MR_STR("From a workflow of Paddle Serving.");
    **out = g.flow;
    MR_TRY(import_add_flow(b->im, &g.flow, err));
out:
    return rc;
}

/* ---- services ---- */

struct workflows {
    struct flow **at;
    size_t count;
};

static const struct flow *workflow_find(const struct workflows *w, mr_str name)
{
    for (size_t i = 0; i < w->count; i++) {
        if (mr_str_eq(w->at[i]->name, name)) {
            return w->at[i];
        }
    }
    return NULL;
}

#define SERVICE_FAIL(err, status, b, service, at, fmt, ...)                                        \
    PADDLE_FAIL(err, status, &(b)->config, (b)->config.service_file, at, "service '%.64s': " fmt,  \
                (service)->name, ##__VA_ARGS__)

/* `at`: the string that names it. */
static int no_workflow(struct build *b, const Paddle__InferService *s, mr_str name, const char *at,
                       struct mr_err *err)
{
    return SERVICE_FAIL(err, MR_E_INVALID, b, s, at, "there is no workflow '%.*s'",
                        MR_STR_ARG(mr_str_sub(name, 0, 128)));
}

static bool has_node(const struct flow *f, mr_str name, size_t *out_count)
{
    bool has = false;

    *out_count = 0;
    for (const struct flow_node *n = f->nodes; n; n = n->next) {
        has |= mr_str_eq(n->name, name);
        ++*out_count;
    }
    return has;
}

/* The workflow's name, with a number if there is a node of that name. */
static int part_name(struct build *b, const struct flow *f, mr_str workflow, const char *at,
                     mr_str *out, struct mr_err *err)
{
    size_t count;

    *out = workflow;
    for (size_t i = 1; has_node(f, *out, &count); i++) {
        *out = mr_arena_printf(&b->im->arena, "%.*s-%zu", MR_STR_ARG(workflow), count + i);
        if (!out->ptr) {
            return import_no_memory(err);
        }
    }
    return count < NODES_MAX ? MR_OK
                             : PADDLE_FAIL(err, MR_E_INVALID, &b->config, b->config.service_file,
                                           at, "service '%.*s': more than %u workflows",
                                           MR_STR_ARG(f->name), NODES_MAX);
}

/* A node with a workflow as its model, which the string `named` names. Outputs keep their names where they can (merger
 * "default"), or always. */
static int add_part(struct build *b, struct flow *f, const struct flow *w, bool same_outputs,
                    const char *named, struct mr_err *err)
{
    struct mr_arena *arena = &b->im->arena;
    struct flow_node *n = MR_ARENA_NEW(arena, struct flow_node);
    const struct doc_at at = {.file = b->config.service_file};
    bool has_room = n != NULL;
    mr_str part;
    int rc;

    MR_TRY(part_name(b, f, w->name, named, &part, err));
    MR_TRY(import_count(b->im, flow_tensor_count(w->inputs) + flow_tensor_count(w->outputs), &at,
                        PADDLE_DOC(&b->config, named), err));
    if (n) {
        *n = (struct flow_node){.name = part,
                                .model = w->name,
                                .version = -1,
                                .line = mr_pbtext_line_of(&b->config.lines, named)};
    }
    for (const struct flow_tensor *t = w->inputs; t && has_room; t = t->next) {
        has_room = flow_tensor_add(&f->inputs, t, t->name, arena) &&
                   flow_pair_add(&n->inputs, t->name, t->name, arena);
    }
    for (const struct flow_tensor *t = w->outputs; t && has_room; t = t->next) {
        const mr_str name = same_outputs ? t->name : import_tensor_name(b->im, f, part, t->name);
        has_room = name.ptr && flow_tensor_add(&f->outputs, t, name, arena) &&
                   flow_pair_add(&n->outputs, t->name, name, arena);
    }
    if (!has_room) {
        return import_no_memory(err);
    }
    f->max_batch_size = f->nodes ? MR_MIN(f->max_batch_size, w->max_batch_size) : w->max_batch_size;
    FLOW_ADD(f->nodes, n);
out:
    return rc;
}

/* "w1, w2" side by side. A list of one is that workflow; of several, a workflow of its own. */
static int add_list(struct build *b, const Paddle__InferService *s, const struct workflows *all,
                    const char *text, mr_str name, const struct flow **out, struct mr_err *err)
{
    struct flow *f = MR_ARENA_NEW(&b->im->arena, struct flow);
    const mr_str list = mr_str_c(text);
    mr_str piece, rest = list;
    int rc = MR_OK;

    if (mr_str_find(list, ',') < 0) {
        *out = workflow_find(all, mr_str_trim(list));
        return *out ? MR_OK : no_workflow(b, s, list, text, err);
    }
    if (!f) {
        return import_no_memory(err);
    }
    f->name = name;
    f->file = b->config.service_file;
    f->line = mr_pbtext_line_of(&b->config.lines, text);
    while (mr_str_split(&rest, ',', &piece)) {
        const struct flow *w = workflow_find(all, mr_str_trim(piece));
        if (!w) {
            return no_workflow(b, s, piece, text, err);
        }
        MR_TRY(add_part(b, f, w, false, text, err));
    }
    MR_TRY(import_add_flow(b->im, f, err));
    *out = f;
out:
    return rc;
}

static bool has_outputs(const struct flow *f, const struct flow *w)
{
    size_t count = 0;

    for (const struct flow_tensor *t = w->outputs; t; t = t->next) {
        count += flow_tensor_find(f->outputs, t->name) != NULL;
    }
    return count == flow_tensor_count(f->outputs) && count == flow_tensor_count(w->outputs);
}

/* The case of a value: one more of the workflow's, or a new one with the workflow as its node. */
static int add_value(struct build *b, const Paddle__InferService *s, struct flow *f,
                     const struct flow *w, const Paddle__InferService__ValueMappedWorkflow *m,
                     struct mr_err *err)
{
    const char *value = m->request_field_value;
    struct mr_arena *arena = &b->im->arena;
    struct flow_case *c = f->cases;
    int rc = MR_OK;

    while (c && !mr_str_eq(c->node, w->name)) {
        c = c->next;
    }
    if (!c && f->cases && !has_outputs(f, w)) {
        return SERVICE_FAIL(err, MR_E_UNSUPPORTED, b, s, m,
                            "the workflows of its values have different outputs: those of '%.*s' "
                            "and of '%.*s'",
                            MR_STR_ARG(w->name), MR_STR_ARG(f->cases->node));
    }
    if (!c) {
        c = MR_ARENA_NEW(arena, struct flow_case);
        if (!c) {
            return import_no_memory(err);
        }
        MR_TRY(add_part(b, f, w, true, m->workflow, err));
        *c = (struct flow_case){.node = w->name};
        c->when =
            mr_arena_printf(arena, "parameter(\"%s\") in [\"%s\"]", s->request_field_key, value);
        FLOW_ADD(f->cases, c);
    } else {
        c->when =
            mr_arena_printf(arena, "%.*s, \"%s\"]", (int)(c->when.len - 1), c->when.ptr, value);
    }
    rc = c->when.ptr ? MR_OK : import_no_memory(err);
out:
    return rc;
}

static int add_mapped(struct build *b, const Paddle__InferService *s, const struct workflows *all,
                      struct flow *f, struct mr_err *err)
{
    struct mr_arena *arena = &b->im->arena;
    int rc = MR_OK;

    if (!s->request_field_key[0] || strpbrk(s->request_field_key, "\"\\")) {
        return SERVICE_FAIL(err, MR_E_INVALID, b, s, s, "request_field_key '%.64s' is no name",
                            s->request_field_key);
    }
    f->switch_name = MR_STR("request");
    for (size_t i = 0; i < s->n_value_mapped_workflows; i++) {
        const Paddle__InferService__ValueMappedWorkflow *m = s->value_mapped_workflows[i];
        const struct flow *w;
        const mr_str name = mr_arena_printf(arena, "%s-%zu", s->name, i);
        if (!name.ptr || strpbrk(m->request_field_value, "\"\\")) {
            return SERVICE_FAIL(err, MR_E_INVALID, b, s, m, "a value with a quote");
        }
        MR_TRY(add_list(b, s, all, m->workflow, name, &w, err));
        MR_TRY(add_value(b, s, f, w, m, err));
    }
out:
    return rc;
}

static int add_service(struct build *b, const Paddle__InferService *s, const struct workflows *all,
                       struct mr_err *err)
{
    struct flow f = {.name = mr_str_c(s->name),
                     .file = b->config.service_file,
                     .line = mr_pbtext_line_of(&b->config.lines, s),
                     .comment = MR_STR("From a service of Paddle Serving.")};
    const struct doc_at at = {.file = b->config.service_file};
    int rc;

    MR_TRY(import_check_name(&at, PADDLE_DOC(&b->config, s), f.name, err));
    if (s->merger[0] && strcmp(s->merger, "default") != 0) {
        return SERVICE_FAIL(err, MR_E_UNSUPPORTED, b, s, s->merger,
                            "the merger '%.64s' has no counterpart here", s->merger);
    }
    if (s->enable_map_request_to_workflow) {
        MR_TRY(add_mapped(b, s, all, &f, err));
    }
    for (size_t i = 0; i < s->n_workflows && !s->enable_map_request_to_workflow; i++) {
        const struct flow *w = workflow_find(all, mr_str_c(s->workflows[i]));
        if (!w) {
            return no_workflow(b, s, mr_str_c(s->workflows[i]), s->workflows[i], err);
        }
        MR_TRY(add_part(b, &f, w, false, s->workflows[i], err));
    }
    if (!f.nodes) {
        return SERVICE_FAIL(err, MR_E_INVALID, b, s, s, "it has no workflows");
    }
    MR_TRY(import_add_flow(b->im, &f, err));
out:
    return rc;
}

/* Engines of remote nodes say what the tensors are, and are run elsewhere. */
static bool is_remote(const struct build *b, const struct paddle_engine *e)
{
    const Paddle__WorkflowConf *w = b->config.workflows;

    for (size_t i = 0; i < w->n_workflows; i++) {
        for (size_t k = 0; k < w->workflows[i]->n_nodes; k++) {
            const Paddle__DAGNode *n = w->workflows[i]->nodes[k];
            if (strcmp(n->type, "GeneralRemoteOp") == 0 && strcmp(n->name, e->desc->name) == 0) {
                return true;
            }
        }
    }
    return false;
}

static int build_all(struct build *b, struct mr_err *err)
{
    const Paddle__WorkflowConf *w = b->config.workflows;
    struct workflows all = {.count = 0};
    int rc = MR_OK;

    all.at = MR_ARENA_ARRAY(&b->im->arena, struct flow *, MR_MAX(w->n_workflows, (size_t)1));
    if (!all.at || w->n_workflows == 0) {
        return MR_FAIL(err, MR_E_INVALID, "%s:1: there are no workflows", b->config.workflow_file);
    }
    for (size_t i = 0; i < b->config.engines.len; i++) {
        if (!is_remote(b, &b->config.engines.at[i])) {
            MR_TRY(add_engine(b, &b->config.engines.at[i], err));
        }
    }
    for (; all.count < w->n_workflows; all.count++) {
        MR_TRY(add_workflow(b, w->workflows[all.count], &all.at[all.count], err));
    }
    for (size_t i = 0; b->config.services && i < b->config.services->n_services; i++) {
        MR_TRY(add_service(b, b->config.services->services[i], &all, err));
    }
out:
    return rc;
}

int import_paddle(struct mr_import *im, mr_str text, struct mr_err *err)
{
    struct build b = {.im = im};
    int rc = paddle_config_read(im, text, &b.config, err);

    if (rc == MR_OK) {
        rc = build_all(&b, err);
    }
    paddle_config_free(&b.config);
    return rc;
}
