/* KServe's InferenceGraph. Each of its nodes becomes a workflow: the root under the name of the graph, others under
 * GRAPH-NODE, which the steps that lead to them use as models.
 *
 *   Sequence  nodes one after the other; $response is what the step before it answered
 *   Switch    a switch over the steps
 *   Splitter  a split by weight
 *   Ensemble  all steps at once; outputs are named STEP_OUTPUT, as the answer of the graph has the steps' names
 *
 * The graph passes JSON on and a workflow tensors: those of a step are given to the next one by name, or whatever
 * their names are if each has one. */
#include "condition.h"
#include "import_priv.h"

#define NODES_MAX 1000

struct step {
    struct step *next;
    const struct doc *doc;
    struct doc_at at;
    mr_str name;
    mr_str model, remote;
    struct signature signature;
    bool is_soft; /* the request goes on without it if it fails */
};

struct node {
    struct node *next;
    const struct doc *doc;
    struct doc_at at;
    struct flow flow;
    struct step *steps;
    bool is_open, is_done;
};

struct graph {
    struct mr_import *im;
    mr_str name;
    struct node *nodes;
};

static int compile(struct graph *g, struct node *n, struct mr_err *err);

static const char *printed(struct graph *g, const char *what, mr_str name)
{
    const mr_str s = mr_arena_printf(&g->im->arena, "%s '%.*s'", what, MR_STR_ARG(name));

    return s.ptr ? s.ptr : what;
}

/* ---- what a step leads to ---- */

/* http://HOST/v2/models/NAME/infer, which a call can be made of. */
static int url_step(struct graph *g, struct step *s, mr_str url, struct mr_err *err)
{
    const ptrdiff_t at = mr_str_find_str(url, MR_STR("/v2/models/"));
    const mr_str tail = MR_STR("/infer");

    if (at <= 0 ||
        (!mr_str_starts(url, MR_STR("http://")) && !mr_str_starts(url, MR_STR("https://"))) ||
        !mr_str_ends(url, tail)) {
        return DOC_FAIL(err, MR_E_UNSUPPORTED, &s->at, doc_get(s->doc, "serviceUrl"),
                        "serviceUrl '%.128s' is no http://HOST/v2/models/NAME/infer", url.ptr);
    }
    const mr_str model = mr_str_sub(url, (size_t)at + strlen("/v2/models/"), url.len - tail.len);
    s->model = mr_arena_str(&g->im->arena, model);
    s->remote = mr_arena_str(&g->im->arena, mr_str_sub(url, 0, (size_t)at));
    return s->model.ptr && s->remote.ptr ? MR_OK : import_no_memory(err);
}

static int node_step(struct graph *g, struct step *s, mr_str name, struct mr_err *err)
{
    struct node *n = g->nodes;

    while (n && !mr_str_eq(n->doc->key, name)) {
        n = n->next;
    }
    if (!n) {
        return DOC_FAIL(err, MR_E_INVALID, &s->at, doc_get(s->doc, "nodeName"),
                        "there is no node '%.64s'", name.ptr);
    }
    int rc = compile(g, n, err);
    s->model = n->flow.name;
    s->signature = (struct signature){.inputs = n->flow.inputs,
                                      .outputs = n->flow.outputs,
                                      .max_batch_size = n->flow.max_batch_size,
                                      .is_known = true};
    return rc;
}

static int step_target(struct graph *g, struct step *s, struct mr_err *err)
{
    mr_str service, url, node;
    int rc;

    MR_TRY(doc_text(s->doc, "serviceName", false, &s->at, &service, err));
    MR_TRY(doc_text(s->doc, "serviceUrl", false, &s->at, &url, err));
    MR_TRY(doc_text(s->doc, "nodeName", false, &s->at, &node, err));
    if ((service.len > 0) + (url.len > 0) + (node.len > 0) != 1) {
        return DOC_FAIL(err, MR_E_INVALID, &s->at, s->doc,
                        "one of serviceName, serviceUrl and nodeName is needed");
    }
    if (node.len > 0) {
        return node_step(g, s, node, err);
    }
    if (url.len > 0) {
        MR_TRY(url_step(g, s, url, err));
    } else {
        s->model = service;
        for (const struct node *o = g->nodes; o; o = o->next) {
            if (mr_str_eq(o->flow.name, service)) {
                return DOC_FAIL(err, MR_E_INVALID, &s->at, doc_get(s->doc, "serviceName"),
                                "the workflow of the graph's node '%.64s' has the name of this "
                                "service",
                                o->doc->key.ptr);
            }
        }
    }
    MR_TRY(import_check_name(&s->at, s->doc, s->model, err));
    MR_TRY(import_signature(g->im, s->model, &s->signature, err));
out:
    return rc;
}

static int read_dependency(struct step *s, struct mr_err *err)
{
    mr_str dependency;
    int rc = doc_text(s->doc, "dependency", false, &s->at, &dependency, err);

    if (rc < 0) {
        return rc;
    }
    s->is_soft = mr_str_eq_c(dependency, "Soft");
    return dependency.len == 0 || s->is_soft || mr_str_eq_c(dependency, "Hard")
               ? MR_OK
               : DOC_FAIL(err, MR_E_INVALID, &s->at, doc_get(s->doc, "dependency"),
                          "dependency is '%.40s', allowed are Hard and Soft", dependency.ptr);
}

static int read_step(struct graph *g, struct node *n, const struct doc *d, size_t index,
                     struct mr_err *err)
{
    static const char *const keys[] = {"serviceName", "serviceUrl", "nodeName",   "name", "data",
                                       "weight",      "condition",  "dependency", NULL};
    struct step *s = MR_ARENA_NEW(&g->im->arena, struct step);
    int rc;

    if (!s) {
        return import_no_memory(err);
    }
    *s = (struct step){.doc = d, .at = {.file = g->im->file, .what = n->at.what}};
    MR_TRY(doc_only(d, &s->at, keys, err));
    MR_TRY(doc_text(d, "name", false, &s->at, &s->name, err));
    if (s->name.len == 0) {
        const struct doc *target = doc_get(d, "serviceName");
        target = target ? target : doc_get(d, "nodeName");
        s->name = target ? target->text : mr_arena_printf(&g->im->arena, "step%zu", index);
    }
    for (const struct step *other = n->steps; other; other = other->next) {
        if (mr_str_eq(other->name, s->name)) {
            s->name = mr_arena_printf(&g->im->arena, "%.*s_%zu", MR_STR_ARG(s->name), index);
            break;
        }
    }
    if (!s->name.ptr) {
        return import_no_memory(err);
    }
    s->at.what = printed(g, "step", s->name);
    MR_TRY(read_dependency(s, err));
    MR_TRY(step_target(g, s, err));
    FLOW_ADD(n->steps, s);
out:
    return rc;
}

/* ---- steps as nodes of a workflow ---- */

static int add_node(struct graph *g, struct node *n, const struct step *s, struct flow_node **out,
                    struct mr_err *err)
{
    struct flow_node *f = MR_ARENA_NEW(&g->im->arena, struct flow_node);
    int rc;

    if (!f) {
        return import_no_memory(err);
    }
    *f = (struct flow_node){.name = s->name,
                            .model = s->model,
                            .remote = s->remote,
                            .version = -1,
                            .skips = s->is_soft,
                            .line = s->doc->line};
    rc = import_count(
        g->im, flow_tensor_count(s->signature.inputs) + flow_tensor_count(s->signature.outputs),
        &s->at, s->doc, err);
    if (rc < 0) {
        return rc;
    }
    n->flow.max_batch_size = n->flow.nodes
                                 ? MR_MIN(n->flow.max_batch_size, s->signature.max_batch_size)
                                 : s->signature.max_batch_size;
    FLOW_ADD(n->flow.nodes, f);
    *out = f;
    return MR_OK;
}

/* The step takes tensors of the request, which the workflow has as inputs. */
static int take_request(struct graph *g, struct node *n, const struct step *s, struct flow_node *f,
                        struct mr_err *err)
{
    for (const struct flow_tensor *t = s->signature.inputs; t; t = t->next) {
        const struct flow_tensor *there = flow_tensor_find(n->flow.inputs, t->name);
        if (there && there->dtype != t->dtype) {
            return DOC_FAIL(err, MR_E_INVALID, &s->at, s->doc,
                            "input '%.64s' has another data type than for the steps before",
                            t->name.ptr);
        }
        if (!flow_tensor_add(&n->flow.inputs, t, t->name, &g->im->arena) ||
            !flow_pair_add(&f->inputs, t->name, t->name, &g->im->arena)) {
            return import_no_memory(err);
        }
    }
    return MR_OK;
}

static const struct flow_pair *pair_of(const struct flow_pair *list, mr_str of)
{
    while (list && !mr_str_eq(list->of, of)) {
        list = list->next;
    }
    return list;
}

static int take_response(struct graph *g, const struct step *s, const struct step *before,
                         const struct flow_node *from, struct flow_node *f, struct mr_err *err)
{
    const bool is_one = flow_tensor_count(s->signature.inputs) == 1 &&
                        flow_tensor_count(before->signature.outputs) == 1;

    for (const struct flow_tensor *t = s->signature.inputs; t; t = t->next) {
        const struct flow_pair *p = is_one ? from->outputs : pair_of(from->outputs, t->name);
        if (!p) {
            return DOC_FAIL(err, MR_E_INVALID, &s->at, s->doc,
                            "its input '%.64s' is no output of step '%.64s'", t->name.ptr,
                            before->name.ptr);
        }
        if (!flow_pair_add(&f->inputs, t->name, p->name, &g->im->arena)) {
            return import_no_memory(err);
        }
    }
    return MR_OK;
}

/* Outputs under names of their own; `prefix`: always the step's and the output's. */
static int give_outputs(struct graph *g, struct node *n, const struct step *s, struct flow_node *f,
                        bool has_prefix, bool is_answer, struct mr_err *err)
{
    for (const struct flow_tensor *t = s->signature.outputs; t; t = t->next) {
        const mr_str name = has_prefix ? mr_arena_printf(&g->im->arena, "%.*s_%.*s",
                                                         MR_STR_ARG(s->name), MR_STR_ARG(t->name))
                                       : import_tensor_name(g->im, &n->flow, s->name, t->name);
        if (!name.ptr || !flow_pair_add(&f->outputs, t->name, name, &g->im->arena) ||
            (is_answer && !flow_tensor_add(&n->flow.outputs, t, name, &g->im->arena))) {
            return import_no_memory(err);
        }
    }
    return MR_OK;
}

/* The answer is that of the last step, under the names that it has there. */
static int keep_answers(struct graph *g, struct node *n, struct mr_err *err)
{
    const struct step *last = n->steps;
    int rc = MR_OK;

    while (last->next) {
        last = last->next;
    }
    for (const struct flow_tensor *t = last->signature.outputs; t && rc == MR_OK; t = t->next) {
        rc = import_answer(g->im, &n->flow, last->name, t->name, err);
    }
    return rc;
}

static int compile_sequence(struct graph *g, struct node *n, struct mr_err *err)
{
    const struct step *before = NULL;
    struct flow_node *from = NULL;
    int rc = keep_answers(g, n, err);

    for (const struct step *s = n->steps; s && rc == MR_OK; s = s->next) {
        struct flow_node *f;
        mr_str data;
        MR_TRY(doc_text(s->doc, "data", false, &s->at, &data, err));
        if (data.len > 0 && !mr_str_eq_c(data, "$request") && !mr_str_eq_c(data, "$response")) {
            return DOC_FAIL(err, MR_E_INVALID, &s->at, doc_get(s->doc, "data"),
                            "data is '%.40s', allowed are $request and $response", data.ptr);
        }
        MR_TRY(add_node(g, n, s, &f, err));
        if (before && mr_str_eq_c(data, "$response")) {
            MR_TRY(take_response(g, s, before, from, f, err));
        } else {
            MR_TRY(take_request(g, n, s, f, err));
            if (from) { /* the step before has no tensor for it, but comes first */
                struct flow_text *after = MR_ARENA_NEW(&g->im->arena, struct flow_text);
                if (!after) {
                    return import_no_memory(err);
                }
                after->text = before->name;
                FLOW_ADD(f->after, after);
            }
        }
        MR_TRY(give_outputs(g, n, s, f, false, !s->next, err));
        before = s;
        from = f;
    }
out:
    return rc;
}

static int compile_ensemble(struct graph *g, struct node *n, struct mr_err *err)
{
    int rc = MR_OK;

    for (const struct step *s = n->steps; s; s = s->next) {
        struct flow_node *f;
        MR_TRY(add_node(g, n, s, &f, err));
        MR_TRY(take_request(g, n, s, f, err));
        MR_TRY(give_outputs(g, n, s, f, true, true, err));
    }
out:
    return rc;
}

/* All steps have the same tensors, as the answer is that of any of them. */
static int check_same(const struct node *n, struct mr_err *err)
{
    const struct signature *a = &n->steps->signature;

    for (const struct step *s = n->steps->next; s; s = s->next) {
        const struct flow_tensor *x = a->inputs, *y = s->signature.inputs;
        while (x && y && mr_str_eq(x->name, y->name) && x->dtype == y->dtype) {
            x = x->next;
            y = y->next;
        }
        if (!x && !y) {
            x = a->outputs;
            y = s->signature.outputs;
            while (x && y && mr_str_eq(x->name, y->name) && x->dtype == y->dtype) {
                x = x->next;
                y = y->next;
            }
        }
        if (x || y) {
            return DOC_FAIL(err, MR_E_INVALID, &s->at, s->doc,
                            "its tensors differ from those of step '%.64s'", n->steps->name.ptr);
        }
    }
    return MR_OK;
}

static bool is_input(void *ctx, mr_str name)
{
    return flow_tensor_find(ctx, name) != NULL;
}

static int add_case(struct graph *g, struct node *n, const struct step *s, struct mr_err *err)
{
    struct flow_case *c = MR_ARENA_NEW(&g->im->arena, struct flow_case);
    const struct doc *condition = doc_get(s->doc, "condition");
    int rc = MR_OK;

    if (!c) {
        return import_no_memory(err);
    }
    c->node = s->name;
    if (condition) {
        rc = condition_translate(condition->text, is_input, n->flow.inputs, MR_STR(""),
                                 &g->im->arena, &c->when, err);
    } else if (s->next) {
        return DOC_FAIL(err, MR_E_INVALID, &s->at, s->doc,
                        "a step without a condition has to be the last one of a Switch");
    }
    if (rc < 0) {
        return MR_WRAP(err, rc, "%s:%u: %s", s->at.file, condition->line, s->at.what);
    }
    FLOW_ADD(n->flow.cases, c);
    return MR_OK;
}

static int compile_switch(struct graph *g, struct node *n, struct mr_err *err)
{
    int rc = check_same(n, err);

    n->flow.switch_name = MR_STR("route");
    for (const struct step *s = n->steps; s && rc == MR_OK; s = s->next) {
        struct flow_node *f;
        MR_TRY(add_node(g, n, s, &f, err));
        MR_TRY(take_request(g, n, s, f, err));
        for (const struct flow_tensor *t = s->signature.outputs; t; t = t->next) {
            if (!flow_pair_add(&f->outputs, t->name, t->name, &g->im->arena) ||
                !flow_tensor_add(&n->flow.outputs, t, t->name, &g->im->arena)) {
                return import_no_memory(err);
            }
        }
        MR_TRY(add_case(g, n, s, err));
    }
out:
    return rc;
}

static int compile_splitter(struct graph *g, struct node *n, struct mr_err *err)
{
    const struct step *first = n->steps;
    struct flow_node *f;
    int64_t sum = 0;
    int rc;

    MR_TRY(check_same(n, err));
    MR_TRY(add_node(g, n, first, &f, err));
    f->name = MR_STR("split");
    f->line = n->doc->line;
    MR_TRY(take_request(g, n, first, f, err));
    MR_TRY(give_outputs(g, n, first, f, false, true, err));
    for (const struct step *s = n->steps; s; s = s->next) {
        struct flow_variant *v = MR_ARENA_NEW(&g->im->arena, struct flow_variant);
        if (!v) {
            return import_no_memory(err);
        }
        *v = (struct flow_variant){
            .tag = s->name, .model = s->model, .remote = s->remote, .line = s->doc->line};
        MR_TRY(doc_int(s->doc, "weight", -1, 0, 100, &s->at, &v->weight, err));
        if (v->weight < 0) {
            return DOC_FAIL(err, MR_E_INVALID, &s->at, s->doc,
                            "a step of a Splitter needs a weight");
        }
        if (s->is_soft != first->is_soft) {
            return DOC_FAIL(err, MR_E_UNSUPPORTED, &s->at, s->doc,
                            "its dependency differs from that of step '%.64s'", first->name.ptr);
        }
        sum += v->weight;
        FLOW_ADD(f->variants, v);
    }
    if (sum != 100) {
        return DOC_FAIL(err, MR_E_INVALID, &n->at, n->doc, "the weights sum up to %lld, not to 100",
                        (long long)sum);
    }
out:
    return rc;
}

/* ---- nodes ---- */

static int read_steps(struct graph *g, struct node *n, struct mr_err *err)
{
    const struct doc *steps;
    size_t index = 0;
    int rc = doc_list(n->doc, "steps", true, &n->at, &steps, err);

    if (rc == MR_OK && !steps->first) {
        return DOC_FAIL(err, MR_E_INVALID, &n->at, steps, "it has no steps");
    }
    for (const struct doc *d = rc == MR_OK ? steps->first : NULL; d && rc == MR_OK; d = d->next) {
        rc = index == NODES_MAX ? DOC_FAIL(err, MR_E_TOO_LARGE, &n->at, d, "more than 1000 steps")
                                : read_step(g, n, d, index++, err);
    }
    return rc;
}

/* Refuses the keys of steps that only other kinds of nodes read. */
static int check_keys(const struct node *n, const char *kind, const char *own, struct mr_err *err)
{
    static const char *const keys[] = {"data", "weight", "condition"};

    for (const struct step *s = n->steps; s; s = s->next) {
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            const struct doc *d = strcmp(keys[i], own) != 0 ? doc_get(s->doc, keys[i]) : NULL;
            const bool says_nothing = d && i == 0 && mr_str_eq_c(d->text, "$request");
            if (d && !says_nothing) {
                return DOC_FAIL(err, MR_E_UNSUPPORTED, &s->at, d,
                                "the %s of a step has no counterpart in a node of type %s", keys[i],
                                kind);
            }
        }
    }
    return MR_OK;
}

static int compile_kind(struct graph *g, struct node *n, mr_str kind, struct mr_err *err)
{
    static const struct {
        const char *name, *key; /* of steps, which others have not */
        int (*compile)(struct graph *g, struct node *n, struct mr_err *err);
    } kinds[] = {{"Sequence", "data", compile_sequence},
                 {"Splitter", "weight", compile_splitter},
                 {"Ensemble", "", compile_ensemble},
                 {"Switch", "condition", compile_switch}};

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (mr_str_eq_c(kind, kinds[i].name)) {
            const int rc = check_keys(n, kinds[i].name, kinds[i].key, err);
            return rc < 0 ? rc : kinds[i].compile(g, n, err);
        }
    }
    return DOC_FAIL(err, MR_E_UNSUPPORTED, &n->at, doc_get(n->doc, "routerType"),
                    "routerType is '%.40s', allowed are Sequence, Splitter, Ensemble and Switch",
                    kind.ptr);
}

/* The node as a workflow, after those that it leads to. The depth is bounded by the number of nodes of a graph. */
static int compile(struct graph *g, struct node *n, struct mr_err *err)
{
    static const char *const keys[] = {"routerType", "steps", NULL};
    mr_str kind;
    int rc = MR_OK;

    if (n->is_done) {
        return MR_OK;
    }
    if (n->is_open) {
        return DOC_FAIL(err, MR_E_INVALID, &n->at, n->doc, "it leads back to itself");
    }
    n->is_open = true;
    MR_TRY(doc_only(n->doc, &n->at, keys, err));
    MR_TRY(doc_text(n->doc, "routerType", true, &n->at, &kind, err));
    MR_TRY(read_steps(g, n, err));
    MR_TRY(compile_kind(g, n, kind, err));
    MR_TRY(import_add_flow(g->im, &n->flow, err));
    n->is_done = true;
out:
    return rc;
}

static int add_graph_node(struct graph *g, const struct doc *d, struct mr_err *err)
{
    struct node *n = MR_ARENA_NEW(&g->im->arena, struct node);
    const bool is_root = mr_str_eq_c(d->key, "root");

    if (!n) {
        return import_no_memory(err);
    }
    n->doc = d;
    n->at = (struct doc_at){.file = g->im->file, .what = printed(g, "node", d->key)};
    n->flow.line = d->line;
    n->flow.name = is_root ? g->name
                           : mr_arena_printf(&g->im->arena, "%.*s-%.*s", MR_STR_ARG(g->name),
                                             MR_STR_ARG(d->key));
    n->flow.comment =
        mr_arena_printf(&g->im->arena, "From KServe's InferenceGraph '%.*s', node '%.*s'.",
                        MR_STR_ARG(g->name), MR_STR_ARG(d->key));
    if (!n->flow.name.ptr || !n->flow.comment.ptr) {
        return import_no_memory(err);
    }
    FLOW_ADD(g->nodes, n);
    return import_check_name(&n->at, d, n->flow.name, err);
}

/* How the graph is deployed there says nothing of what it answers. */
#define DEPLOYMENT                                                                                 \
    "resources", "affinity", "tolerations", "nodeSelector", "nodeName", "serviceAccountName",      \
        "minReplicas", "maxReplicas", "scaleTarget", "scaleMetric"

static int warn_deployment(struct mr_import *im, const struct doc *spec, struct mr_err *err)
{
    static const char *const keys[] = {DEPLOYMENT};
    int rc = MR_OK;

    for (size_t i = 0; i < sizeof keys / sizeof *keys && rc == MR_OK; i++) {
        const struct doc *d = doc_get(spec, keys[i]);
        rc = d ? import_warn(im, err, "%s:%u: '%s' is of the deployment, and without effect here",
                             im->file, d->line, keys[i])
               : MR_OK;
    }
    return rc;
}

static int import_graph(struct mr_import *im, const struct doc *doc, struct mr_err *err)
{
    static const char *const top[] = {"apiVersion", "kind", "metadata", "spec", "status", NULL};
    static const char *const known[] = {"nodes", "timeout", DEPLOYMENT, NULL};
    struct graph g = {.im = im};
    const struct doc_at at = {.file = im->file};
    const struct doc *metadata, *spec, *nodes;
    mr_str kind;
    int64_t timeout_s;
    int rc, count = 0;

    MR_TRY(doc_only(doc, &at, top, err));
    MR_TRY(doc_text(doc, "kind", true, &at, &kind, err));
    if (!mr_str_eq_c(kind, "InferenceGraph")) {
        return DOC_FAIL(err, MR_E_UNSUPPORTED, &at, doc_get(doc, "kind"),
                        "kind is '%.40s', allowed is InferenceGraph", kind.ptr);
    }
    MR_TRY(doc_map(doc, "metadata", true, &at, &metadata, err));
    MR_TRY(doc_text(metadata, "name", true, &at, &g.name, err));
    MR_TRY(doc_map(doc, "spec", true, &at, &spec, err));
    MR_TRY(doc_only(spec, &at, known, err));
    MR_TRY(warn_deployment(im, spec, err));
    MR_TRY(doc_int(spec, "timeout", 0, 1, UINT32_MAX / 1000, &at, &timeout_s, err));
    MR_TRY(doc_map(spec, "nodes", true, &at, &nodes, err));
    for (const struct doc *d = nodes->first; d; d = d->next) {
        if (++count > NODES_MAX) {
            return DOC_FAIL(err, MR_E_TOO_LARGE, &at, d, "more than 1000 nodes");
        }
        MR_TRY(add_graph_node(&g, d, err));
    }
    if (!doc_get(nodes, "root")) {
        return DOC_FAIL(err, MR_E_INVALID, &at, nodes, "there is no node 'root'");
    }
    for (struct node *n = g.nodes; n; n = n->next) {
        n->flow.deadline_ms = mr_str_eq_c(n->doc->key, "root") ? timeout_s * 1000 : 0;
        MR_TRY(compile(&g, n, err));
    }
out:
    return rc;
}

int import_kserve(struct mr_import *im, const struct doc *doc, struct mr_err *err)
{
    int rc = MR_OK;

    for (bool is_skipped; doc && rc == MR_OK; doc = doc->next) {
        rc = import_skip(im, doc, "InferenceService", &is_skipped, err);
        rc = rc < 0 || is_skipped ? rc : import_graph(im, doc, err);
    }
    return rc;
}
