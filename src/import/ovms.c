/* pipeline_config_list of OpenVINO Model Server.
 *
 * Nodes refer to each other's outputs by alias. A node with demultiply_count splits what it gives out along the first
 * dimension, and a pipeline with it its inputs: nodes after it run for each row (foreach), until a node gathers, which takes the
 * rows together as they are. Nodes of type "custom" are libraries of that server and have no counterpart. */
#include "import_priv.h"

#define NODES_MAX 1000

struct output {
    struct output *next;
    mr_str item, alias;
    struct flow_tensor tensor; /* of the pipeline: with all rows */
};

struct node {
    struct node *next;
    const struct doc *doc;
    struct doc_at at;
    struct flow_node *flow;
    struct signature signature;
    struct output *outputs;
    int64_t demultiply;  /* of what it gives out; 0: none, -1: any number */
    mr_str gathers_from; /* "": nothing */
    mr_str rows_of;      /* the node whose rows it runs for; "": once */
    enum {
        ROW_UNKNOWN,
        ROW_WHOLE,
        ROW_INNER
    } row; /* a row's dimension: 1 for the model, or left out */
    bool is_open, is_done;
};

struct pipeline {
    struct mr_import *im;
    struct flow flow;
    struct node *nodes;
    struct node request; /* the inputs, whose rows may be split as those of a node */
};

static int connect(struct pipeline *p, struct node *n, struct mr_err *err);

static struct node *node_find(const struct pipeline *p, mr_str name)
{
    struct node *n = p->nodes;

    while (n && !mr_str_eq(n->flow->name, name)) {
        n = n->next;
    }
    return n;
}

/* ---- reading ---- */

static int read_outputs(struct pipeline *p, struct node *n, struct mr_err *err)
{
    static const char *const keys[] = {"data_item", "alias", NULL};
    const struct doc *list;
    int rc = doc_list(n->doc, "outputs", true, &n->at, &list, err);

    for (const struct doc *d = rc == MR_OK ? list->first : NULL; d && rc == MR_OK; d = d->next) {
        struct output *o = MR_ARENA_NEW(&p->im->arena, struct output);
        if (!o) {
            return import_no_memory(err);
        }
        MR_TRY(doc_only(d, &n->at, keys, err));
        MR_TRY(doc_text(d, "data_item", true, &n->at, &o->item, err));
        MR_TRY(doc_text(d, "alias", false, &n->at, &o->alias, err));
        o->alias = o->alias.len > 0 ? o->alias : o->item;
        FLOW_ADD(n->outputs, o);
    }
out:
    return rc;
}

/* 0 is the older form of "any number". */
static int read_demultiply(const struct doc *d, const struct doc_at *at, int64_t *out,
                           struct mr_err *err)
{
    int rc = doc_int(d, "demultiply_count", 0, -1, 10000, at, out, err);

    if (rc == MR_OK && *out == 0 && doc_get(d, "demultiply_count")) {
        *out = -1;
    }
    return rc;
}

static int read_kind(struct node *n, mr_str *out_model, struct mr_err *err)
{
    mr_str type;
    int rc;

    MR_TRY(doc_text(n->doc, "type", true, &n->at, &type, err));
    if (!mr_str_eq_c(type, "DL model")) {
        return DOC_FAIL(err, MR_E_UNSUPPORTED, &n->at, doc_get(n->doc, "type"),
                        "nodes of type '%.40s' have no counterpart here", type.ptr);
    }
    MR_TRY(doc_text(n->doc, "model_name", true, &n->at, out_model, err));
    MR_TRY(doc_int(n->doc, "version", -1, -1, INT64_MAX, &n->at, &n->flow->version, err));
    MR_TRY(read_demultiply(n->doc, &n->at, &n->demultiply, err));
    MR_TRY(doc_text(n->doc, "gather_from_node", false, &n->at, &n->gathers_from, err));
    MR_TRY(import_check_name(&n->at, n->doc, *out_model, err));
    if (n->flow->version == 0) {
        n->flow->version = -1; /* the newest */
    }
out:
    return rc;
}

static int read_node(struct pipeline *p, const struct doc *d, struct mr_err *err)
{
    static const char *const keys[] = {"name",   "type",    "model_name",       "version",
                                       "inputs", "outputs", "demultiply_count", "gather_from_node",
                                       NULL};
    struct node *n = MR_ARENA_NEW(&p->im->arena, struct node);
    struct flow_node *f = MR_ARENA_NEW(&p->im->arena, struct flow_node);
    mr_str name;
    int rc;

    if (!n || !f) {
        return import_no_memory(err);
    }
    *n = (struct node){.doc = d, .flow = f, .at = {.file = p->im->file}};
    MR_TRY(doc_text(d, "name", true, &n->at, &name, err));
    n->at.what = mr_arena_printf(&p->im->arena, "node '%.*s'", MR_STR_ARG(name)).ptr;
    if (mr_str_eq_c(name, "request") || mr_str_eq_c(name, "response") || node_find(p, name)) {
        return DOC_FAIL(err, MR_E_INVALID, &n->at, d, "the name is taken");
    }
    f->name = name;
    f->line = d->line;
    MR_TRY(read_kind(n, &f->model, err));
    MR_TRY(doc_only(d, &n->at, keys, err));
    MR_TRY(read_outputs(p, n, err));
    MR_TRY(import_signature(p->im, f->model, &n->signature, err));
    FLOW_ADD(p->nodes, n);
out:
    return rc;
}

/* ---- connections ---- */

/* The tensor of a model; of one without a configuration, whatever the file names. */
static struct flow_tensor tensor_of(const struct flow_tensor *list, bool is_known, mr_str name)
{
    const struct flow_tensor *t = is_known ? flow_tensor_find(list, name) : NULL;

    return t ? *t : (struct flow_tensor){.dtype = MR_DTYPE_FP32, .rank = 1, .dims = {-1}};
}

static mr_str value_name(struct pipeline *p, mr_str node, mr_str alias)
{
    return mr_arena_printf(&p->im->arena, "%.*s_%.*s", MR_STR_ARG(node), MR_STR_ARG(alias));
}

/* Adds a tensor that the node runs for rows of, once. */
static int rows_add(struct pipeline *p, struct node *n, mr_str value, struct mr_err *err)
{
    struct flow_text *over = n->flow->foreach_over;

    while (over && !mr_str_eq(over->text, value)) {
        over = over->next;
    }
    if (over) {
        return MR_OK;
    }
    over = MR_ARENA_NEW(&p->im->arena, struct flow_text);
    if (!over) {
        return import_no_memory(err);
    }
    over->text = value;
    FLOW_ADD(n->flow->foreach_over, over);
    return MR_OK;
}

/* A node whose rows are split, or that runs for such rows, makes its successors run for rows. o: NULL for the request, whose rows
 * lose their dimension. */
static int take_rows(struct pipeline *p, struct node *n, const struct node *from,
                     const struct output *o, mr_str value, const struct doc *d, struct mr_err *err)
{
    const struct flow_tensor *input = flow_tensor_find(n->signature.inputs, d->key);
    const mr_str rows_of = from->demultiply != 0 ? from->flow->name : from->rows_of;

    if (rows_of.len == 0 || mr_str_eq(rows_of, n->gathers_from)) {
        return MR_OK;
    }
    if (from->demultiply != 0 && from->rows_of.len > 0) {
        return DOC_FAIL(err, MR_E_UNSUPPORTED, &n->at, d,
                        "rows that are split again have no counterpart here");
    }
    if (n->rows_of.len > 0 && !mr_str_eq(n->rows_of, rows_of)) {
        return DOC_FAIL(err, MR_E_UNSUPPORTED, &n->at, d,
                        "rows of two nodes at once have no counterpart here");
    }
    if (!n->flow->foreach_over) {
        n->flow->foreach_max = from->demultiply > 0 ? from->demultiply : 0;
    }
    if (n->signature.is_known && input && (!o || from->signature.is_known)) {
        n->row = o && input->rank == o->tensor.rank ? ROW_WHOLE : ROW_INNER;
    }
    n->rows_of = rows_of;
    return rows_add(p, n, value, err);
}

static int take_node(struct pipeline *p, struct node *n, const struct doc *d, mr_str node,
                     mr_str item, mr_str *out_value, struct mr_err *err)
{
    struct node *from = node_find(p, node);
    const struct output *o;
    int rc = from ? connect(p, from, err)
                  : DOC_FAIL(err, MR_E_INVALID, &n->at, d, "there is no node '%.64s'", node.ptr);

    if (rc < 0) {
        return rc;
    }
    for (o = from->outputs; o && !mr_str_eq(o->alias, item); o = o->next) {
    }
    if (!o) {
        return DOC_FAIL(err, MR_E_INVALID, &n->at, d, "node '%.64s' gives out no '%.64s'", node.ptr,
                        item.ptr);
    }
    *out_value = value_name(p, node, item);
    return out_value->ptr ? take_rows(p, n, from, o, *out_value, d, err) : import_no_memory(err);
}

static void rows_before(struct flow_tensor *t)
{
    if (t->rank < MR_MAX_RANK) {
        memmove(t->dims + 1, t->dims, t->rank * sizeof *t->dims);
        t->dims[0] = -1;
        t->rank++;
    }
}

/* An input of the pipeline is what the model that reads it takes, or rows of that. */
static int take_request(struct pipeline *p, struct node *n, const struct doc *d, mr_str item,
                        struct mr_err *err)
{
    struct flow_tensor t = tensor_of(n->signature.inputs, n->signature.is_known, d->key);
    struct flow_tensor *there =
        (struct flow_tensor *)(uintptr_t)flow_tensor_find(p->flow.inputs, item);
    int rc = MR_OK;

    if (!there) {
        return DOC_FAIL(err, MR_E_INVALID, &n->at, d, "the pipeline has no input '%.64s'",
                        item.ptr);
    }
    if (p->request.demultiply != 0) {
        rc = take_rows(p, n, &p->request, NULL, item, d, err);
        if (n->rows_of.len > 0 && n->signature.is_known) {
            rows_before(&t);
        }
    }
    t.next = there->next;
    t.name = there->name;
    *there = t;
    return rc;
}

/* One input: {"NAME": {"node_name": …, "data_item": …}}. */
static int take_input(struct pipeline *p, struct node *n, const struct doc *d, struct mr_err *err)
{
    static const char *const keys[] = {"node_name", "data_item", NULL};
    const struct doc *from = d->kind == DOC_MAP ? d->first : NULL;
    mr_str node, item, value = MR_STR("");
    int rc;

    if (!from || from->next || from->kind != DOC_MAP) {
        return DOC_FAIL(err, MR_E_INVALID, &n->at, d, "an input is {\"NAME\": {\"node_name\": …}}");
    }
    MR_TRY(doc_only(from, &n->at, keys, err));
    MR_TRY(doc_text(from, "node_name", true, &n->at, &node, err));
    MR_TRY(doc_text(from, "data_item", true, &n->at, &item, err));
    if (n->signature.is_known && !flow_tensor_find(n->signature.inputs, from->key)) {
        return DOC_FAIL(err, MR_E_INVALID, &n->at, from, "the model has no input '%.64s'",
                        from->key.ptr);
    }
    if (mr_str_eq_c(node, "request")) {
        MR_TRY(take_request(p, n, from, item, err));
        value = item;
    } else {
        MR_TRY(take_node(p, n, from, node, item, &value, err));
    }
    rc = flow_pair_add(&n->flow->inputs, from->key, value, &p->im->arena) ? MR_OK
                                                                          : import_no_memory(err);
out:
    return rc;
}

/* What a node that runs for rows gives out: as many as there are rows, in a dimension before those of a row, or in the place of
 * the first one, if the model takes a row with its dimension. */
static struct flow_tensor rows_of_tensor(const struct node *n, struct flow_tensor t)
{
    const bool has_row = n->signature.max_batch_size == 0 && t.rank > 0 &&
                         (n->row == ROW_WHOLE || (n->row == ROW_UNKNOWN && t.dims[0] == 1));

    if (!n->flow->foreach_over || !n->signature.is_known || (!has_row && t.rank == MR_MAX_RANK)) {
        return t;
    }
    if (!has_row) {
        rows_before(&t);
    }
    t.dims[0] = -1;
    return t;
}

static int give(struct pipeline *p, struct node *n, struct mr_err *err)
{
    for (struct output *o = n->outputs; o; o = o->next) {
        const mr_str name = value_name(p, n->flow->name, o->alias);
        o->tensor =
            rows_of_tensor(n, tensor_of(n->signature.outputs, n->signature.is_known, o->item));
        if (n->signature.is_known && !flow_tensor_find(n->signature.outputs, o->item)) {
            return DOC_FAIL(err, MR_E_INVALID, &n->at, n->doc, "the model has no output '%.64s'",
                            o->item.ptr);
        }
        if (!name.ptr || !flow_pair_add(&n->flow->outputs, o->item, name, &p->im->arena)) {
            return import_no_memory(err);
        }
    }
    return MR_OK;
}

static int connect(struct pipeline *p, struct node *n, struct mr_err *err)
{
    const struct doc *inputs;
    int rc = MR_OK;

    if (n->is_done) {
        return MR_OK;
    }
    if (n->is_open) {
        return DOC_FAIL(err, MR_E_INVALID, &n->at, n->doc, "it depends on itself");
    }
    n->is_open = true;
    MR_TRY(doc_list(n->doc, "inputs", true, &n->at, &inputs, err));
    if (n->gathers_from.len > 0 && !node_find(p, n->gathers_from) &&
        !(p->request.demultiply != 0 && mr_str_eq_c(n->gathers_from, "request"))) {
        return DOC_FAIL(err, MR_E_INVALID, &n->at, doc_get(n->doc, "gather_from_node"),
                        "there is no node '%.64s'", n->gathers_from.ptr);
    }
    for (const struct doc *d = inputs->first; d; d = d->next) {
        MR_TRY(take_input(p, n, d, err));
    }
    MR_TRY(give(p, n, err));
    FLOW_ADD(p->flow.nodes, n->flow);
    n->is_done = true;
out:
    return rc;
}

/* ---- pipelines ---- */

static int declare_inputs(struct pipeline *p, const struct doc *spec, const struct doc_at *at,
                          struct mr_err *err)
{
    const struct doc *list;
    int rc = doc_list(spec, "inputs", true, at, &list, err);

    for (const struct doc *d = rc == MR_OK ? list->first : NULL; d; d = d->next) {
        const struct flow_tensor t = {.dtype = MR_DTYPE_FP32, .rank = 1, .dims = {-1}};
        if (d->kind != DOC_SCALAR || d->text.len == 0) {
            return DOC_FAIL(err, MR_E_INVALID, at, d, "the name of an input is needed");
        }
        if (!flow_tensor_add(&p->flow.inputs, &t, d->text, &p->im->arena)) {
            return import_no_memory(err);
        }
    }
    return rc;
}

/* One output: {"LABEL": {"node_name": …, "data_item": …}}; the node's tensor gets the name LABEL. */
static int take_output(struct pipeline *p, const struct doc *d, const struct doc_at *at,
                       struct mr_err *err)
{
    static const char *const keys[] = {"node_name", "data_item", NULL};
    const struct doc *from = d->kind == DOC_MAP ? d->first : NULL;
    mr_str node, item;
    int rc;

    if (!from || from->next || from->kind != DOC_MAP) {
        return DOC_FAIL(err, MR_E_INVALID, at, d, "an output is {\"NAME\": {\"node_name\": …}}");
    }
    MR_TRY(doc_only(from, at, keys, err));
    MR_TRY(doc_text(from, "node_name", true, at, &node, err));
    MR_TRY(doc_text(from, "data_item", true, at, &item, err));
    struct node *n = node_find(p, node);
    const struct output *o = n ? n->outputs : NULL;
    while (o && !mr_str_eq(o->alias, item)) {
        o = o->next;
    }
    if (!o) {
        return DOC_FAIL(err, MR_E_INVALID, at, from,
                        "there is no node '%.64s' that gives out '%.64s'", node.ptr, item.ptr);
    }
    const mr_str value = value_name(p, node, item);
    if (!value.ptr || !flow_tensor_add(&p->flow.outputs, &o->tensor, from->key, &p->im->arena)) {
        return import_no_memory(err);
    }
    for (struct flow_node *f = p->flow.nodes; f; f = f->next) {
        for (struct flow_pair *in = f->inputs; in; in = in->next) {
            in->name = mr_str_eq(in->name, value) ? from->key : in->name;
        }
        for (struct flow_pair *to = f->outputs; to; to = to->next) {
            to->name = mr_str_eq(to->name, value) ? from->key : to->name;
        }
        for (struct flow_text *over = f->foreach_over; over; over = over->next) {
            over->text = mr_str_eq(over->text, value) ? from->key : over->text;
        }
    }
out:
    return rc;
}

static int read_pipeline(struct mr_import *im, const struct doc *spec, struct mr_err *err)
{
    static const char *const keys[] = {"name",    "inputs",           "nodes",
                                       "outputs", "demultiply_count", NULL};
    struct flow_node request = {.name = MR_STR("request")};
    struct pipeline p = {.im = im, .request = {.flow = &request}};
    struct doc_at at = {.file = im->file};
    const struct doc *nodes, *outputs;
    int rc, count = 0;

    MR_TRY(doc_text(spec, "name", true, &at, &p.flow.name, err));
    MR_TRY(import_check_name(&at, spec, p.flow.name, err));
    at.what = mr_arena_printf(&im->arena, "pipeline '%.*s'", MR_STR_ARG(p.flow.name)).ptr;
    MR_TRY(doc_only(spec, &at, keys, err));
    MR_TRY(read_demultiply(spec, &at, &p.request.demultiply, err));
    p.flow.line = spec->line;
    p.flow.comment = mr_arena_printf(
        &im->arena, "From the pipeline '%.*s' of OpenVINO Model Server.", MR_STR_ARG(p.flow.name));
    MR_TRY(declare_inputs(&p, spec, &at, err));
    MR_TRY(doc_list(spec, "nodes", true, &at, &nodes, err));
    for (const struct doc *d = nodes->first; d; d = d->next) {
        if (++count > NODES_MAX) {
            return DOC_FAIL(err, MR_E_TOO_LARGE, &at, d, "more than 1000 nodes");
        }
        MR_TRY(read_node(&p, d, err));
    }
    for (struct node *n = p.nodes; n; n = n->next) {
        MR_TRY(connect(&p, n, err));
    }
    MR_TRY(doc_list(spec, "outputs", true, &at, &outputs, err));
    for (const struct doc *d = outputs->first; d; d = d->next) {
        MR_TRY(take_output(&p, d, &at, err));
    }
    if (!p.flow.nodes || !p.flow.outputs) {
        return DOC_FAIL(err, MR_E_INVALID, &at, spec, "it has no nodes or no outputs");
    }
    MR_TRY(import_add_flow(im, &p.flow, err));
out:
    return rc;
}

int import_ovms(struct mr_import *im, const struct doc *doc, struct mr_err *err)
{
    static const char *const keys[] = {"model_config_list", "pipeline_config_list",
                                       "custom_node_library_config_list", "monitoring", NULL};
    const struct doc_at at = {.file = im->file};
    const struct doc *list;
    int rc;

    MR_TRY(doc_only(doc, &at, keys, err));
    MR_TRY(doc_list(doc, "pipeline_config_list", true, &at, &list, err));
    if (!list->first) {
        return DOC_FAIL(err, MR_E_INVALID, &at, list, "pipeline_config_list is empty");
    }
    for (const struct doc *d = list->first; d; d = d->next) {
        MR_TRY(read_pipeline(im, d, err));
    }
out:
    return rc;
}
