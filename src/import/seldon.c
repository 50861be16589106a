/* Pipeline and Experiment of Seldon Core 2.
 *
 *   Pipeline    a node for each step; `inputs` names tensors of the pipeline or of other steps, tensorMap renames
 *               them, `triggers` put the step after others
 *   Experiment  one node with a split over the candidates, and a shadow for the mirror
 *
 * Joins other than `inner`, and steps that run again (cycles), have no counterpart. The tensors of a model without a
 * configuration are those that the file names. */
#include "import_priv.h"

#define STEPS_MAX 1000

/** "NAME", "NAME.inputs", "NAME.outputs.TENSOR", … */
struct reference {
    struct reference *next;
    const struct doc *doc;
    mr_str whole, name, tensor; /* tensor "": all of them */
    bool of_inputs;
    mr_str to; /* of an entry of tensorMap: the input that it becomes */
    bool is_used;
};

struct step {
    struct step *next;
    const struct doc *doc;
    struct doc_at at;
    struct reference *inputs, *triggers;
    struct reference *map; /* tensorMap */
    struct signature signature;
    struct flow_node *node;
    bool is_open, is_done;
    bool is_guessed; /* the outputs are those that references name */
};

struct pipeline {
    struct mr_import *im;
    mr_str name;
    struct flow flow;
    struct step *steps;
    struct reference *outputs;
};

static int connect(struct pipeline *p, struct step *s, struct mr_err *err);

/* ---- references ---- */

static int read_reference(struct pipeline *p, const struct doc *d, mr_str text,
                          const struct doc_at *at, struct reference **list, struct mr_err *err)
{
    struct reference *r = MR_ARENA_NEW(&p->im->arena, struct reference);
    mr_str rest = text, side;

    if (!r) {
        return import_no_memory(err);
    }
    r->doc = d;
    r->whole = text;
    r->to = d->text;
    if (d->kind != DOC_SCALAR || !mr_str_split(&rest, '.', &r->name) || r->name.len == 0) {
        return DOC_FAIL(err, MR_E_INVALID, at, d, "the name of a step is needed");
    }
    if (mr_str_split(&rest, '.', &side)) {
        r->of_inputs = mr_str_eq_c(side, "inputs");
        if (!r->of_inputs && !mr_str_eq_c(side, "outputs")) {
            return DOC_FAIL(err, MR_E_INVALID, at, d, "'%.128s' is no NAME.inputs or NAME.outputs",
                            text.ptr);
        }
        r->tensor = rest.ptr ? rest : MR_STR("");
    } else {
        r->of_inputs = mr_str_eq(r->name, p->name);
    }
    r->name = mr_arena_str(&p->im->arena, r->name);
    r->tensor = mr_arena_str(&p->im->arena, r->tensor);
    if (!r->name.ptr || !r->tensor.ptr) {
        return import_no_memory(err);
    }
    if (mr_str_find(r->tensor, '`') >= 0) { /* it may become a part of an expression */
        return DOC_FAIL(err, MR_E_INVALID, at, d, "'%.128s' is no name of a tensor", text.ptr);
    }
    FLOW_ADD(*list, r);
    return import_count(p->im, 1, at, d, err);
}

static int read_references(struct pipeline *p, const struct doc *of, const char *key,
                           const struct doc_at *at, struct reference **list, struct mr_err *err)
{
    const struct doc *d;
    int rc = doc_list(of, key, false, at, &d, err);

    for (d = rc == MR_OK && d ? d->first : NULL; d && rc == MR_OK; d = d->next) {
        rc = read_reference(p, d, d->text, at, list, err);
    }
    return rc;
}

static struct step *step_find(const struct pipeline *p, mr_str name)
{
    struct step *s = p->steps;

    while (s && !mr_str_eq(s->node->name, name)) {
        s = s->next;
    }
    return s;
}

static int no_step(const struct reference *r, const struct doc_at *at, struct mr_err *err)
{
    return DOC_FAIL(err, MR_E_INVALID, at, r->doc, "there is no step '%.64s'", r->name.ptr);
}

/* ---- steps ---- */

static int check_join(const struct doc *of, const char *key, const struct doc_at *at,
                      struct mr_err *err)
{
    const struct doc *d = doc_get(of, key);

    return !d || mr_str_eq_c(d->text, "inner")
               ? MR_OK
               : DOC_FAIL(err, MR_E_UNSUPPORTED, at, d, "the join '%.40s' has no counterpart here",
                          d->text.ptr);
}

static int read_map(struct pipeline *p, struct step *s, struct mr_err *err)
{
    const struct doc *map;
    int rc = doc_map(s->doc, "tensorMap", false, &s->at, &map, err);

    for (const struct doc *d = rc == MR_OK && map ? map->first : NULL; d && rc == MR_OK;
         d = d->next) {
        if (d->kind != DOC_SCALAR || d->text.len == 0) {
            return DOC_FAIL(err, MR_E_INVALID, &s->at, d,
                            "tensorMap: '%.128s' needs the name of a tensor", d->key.ptr);
        }
        rc = read_reference(p, d, d->key, &s->at, &s->map, err);
    }
    return rc;
}

static int read_step(struct pipeline *p, const struct doc *d, struct mr_err *err)
{
    static const char *const keys[] = {
        "name",         "inputs",         "tensorMap",        "triggers",
        "joinWindowMs", "inputsJoinType", "triggersJoinType", NULL};
    struct step *s = MR_ARENA_NEW(&p->im->arena, struct step);
    struct flow_node *n = MR_ARENA_NEW(&p->im->arena, struct flow_node);
    mr_str name;
    int rc;

    if (!s || !n) {
        return import_no_memory(err);
    }
    *s = (struct step){.doc = d, .node = n, .at = {.file = p->im->file}};
    MR_TRY(doc_text(d, "name", true, &s->at, &name, err));
    s->at.what = mr_arena_printf(&p->im->arena, "step '%.*s'", MR_STR_ARG(name)).ptr;
    MR_TRY(import_check_name(&s->at, d, name, err));
    MR_TRY(doc_only(d, &s->at, keys, err));
    MR_TRY(check_join(d, "inputsJoinType", &s->at, err));
    MR_TRY(check_join(d, "triggersJoinType", &s->at, err));
    MR_TRY(read_map(p, s, err));
    MR_TRY(read_references(p, d, "inputs", &s->at, &s->inputs, err));
    MR_TRY(read_references(p, d, "triggers", &s->at, &s->triggers, err));
    MR_TRY(import_signature(p->im, name, &s->signature, err));
    if (mr_str_eq(name, p->name) || step_find(p, name)) {
        return DOC_FAIL(err, MR_E_INVALID, &s->at, d, "the name is there twice");
    }
    *n = (struct flow_node){.name = name, .model = name, .version = -1, .line = d->line};
    FLOW_ADD(p->steps, s);
out:
    return rc;
}

/* Of a model without a configuration, the outputs that some reference names. */
static int guess_outputs(struct pipeline *p, const struct reference *list, struct mr_err *err)
{
    for (const struct reference *r = list; r; r = r->next) {
        struct step *s = r->of_inputs ? NULL : step_find(p, r->name);
        if (!s || s->signature.is_known || r->tensor.len == 0) {
            continue;
        }
        if (!s->is_guessed) {
            s->signature.outputs = NULL; /* what stood for them */
            s->is_guessed = true;
        }
        const struct flow_tensor t = {.dtype = MR_DTYPE_FP32, .rank = 1, .dims = {-1}};
        if (!flow_tensor_add(&s->signature.outputs, &t, r->tensor, &p->im->arena)) {
            return import_no_memory(err);
        }
    }
    return MR_OK;
}

static bool is_of_request(const struct pipeline *p, const struct reference *r)
{
    return r->of_inputs && r->tensor.len > 0 && mr_str_eq(r->name, p->name);
}

/* Of a model without a configuration, the inputs that its tensorMap makes of tensors of the request. */
static int guess_inputs(struct pipeline *p, struct step *s, struct mr_err *err)
{
    const struct flow_tensor t = {.dtype = MR_DTYPE_FP32, .rank = 1, .dims = {-1}};
    struct flow_tensor *inputs = NULL;

    for (const struct reference *m = s->signature.is_known ? NULL : s->map; m; m = m->next) {
        if (is_of_request(p, m) && !flow_tensor_add(&inputs, &t, m->to, &p->im->arena)) {
            return import_no_memory(err);
        }
    }
    s->signature.inputs = inputs ? inputs : s->signature.inputs;
    return MR_OK;
}

/* ---- connections ---- */

/* The entry of the step's tensorMap for a tensor; NULL: there is none. */
static struct reference *mapping(const struct step *s, const struct reference *r, mr_str tensor)
{
    struct reference *m = s->map;

    while (m && !(mr_str_eq(m->name, r->name) && m->of_inputs == r->of_inputs &&
                  mr_str_eq(m->tensor, tensor))) {
        m = m->next;
    }
    return m;
}

/* The name of a tensor in the model that takes it. */
static mr_str mapped(const struct step *s, const struct reference *r, mr_str tensor)
{
    const struct reference *m = mapping(s, r, tensor);

    return m ? m->to : tensor;
}

/* The tensor of the request that becomes an input of the step. */
static mr_str request_name(const struct pipeline *p, const struct step *s, mr_str input)
{
    const struct reference *m = s->map;

    while (m && !(is_of_request(p, m) && mr_str_eq(m->to, input))) {
        m = m->next;
    }
    return m ? m->tensor : input;
}

/* An entry of a tensorMap that names nothing that the step gets. */
static int check_map(const struct step *s, struct mr_err *err)
{
    for (const struct reference *m = s->map; m; m = m->next) {
        if (!m->is_used) {
            return DOC_FAIL(err, MR_E_INVALID, &s->at, m->doc,
                            "tensorMap: '%.128s' is no tensor that the step gets, or '%.64s' no "
                            "input of its model",
                            m->whole.ptr, m->to.ptr);
        }
    }
    return MR_OK;
}

/* Gives the step a tensor, if it has an input of that name or might have. */
static int offer(struct pipeline *p, struct step *s, const struct reference *r,
                 const struct flow_tensor *t, mr_str value, struct mr_err *err)
{
    struct reference *m = mapping(s, r, t->name);
    const mr_str name = m ? m->to : t->name;

    if (s->signature.is_known && !flow_tensor_find(s->signature.inputs, name)) {
        return r->tensor.len == 0 ? MR_OK
                                  : DOC_FAIL(err, MR_E_INVALID, &s->at, r->doc,
                                             "the model has no input '%.64s'", name.ptr);
    }
    for (const struct flow_pair *there = s->node->inputs; there; there = there->next) {
        if (mr_str_eq(there->of, name)) {
            return DOC_FAIL(err, MR_E_INVALID, &s->at, r->doc, "input '%.64s' is given twice",
                            name.ptr);
        }
    }
    if (m) {
        m->is_used = true;
    }
    return flow_pair_add(&s->node->inputs, name, value, &p->im->arena)
               ? import_count(p->im, 1, &s->at, r->doc, err)
               : import_no_memory(err);
}

/* Tensors of the request. Which there are is known by what steps take. */
static int offer_request(struct pipeline *p, struct step *s, const struct reference *r,
                         struct mr_err *err)
{
    int rc = MR_OK;

    if (r->tensor.len > 0) {
        const struct flow_tensor *known =
            flow_tensor_find(s->signature.inputs, mapped(s, r, r->tensor));
        struct flow_tensor t = {.dtype = MR_DTYPE_FP32, .rank = 1, .dims = {-1}};
        t = known ? *known : t;
        t.name = r->tensor;
        return flow_tensor_add(&p->flow.inputs, &t, r->tensor, &p->im->arena)
                   ? offer(p, s, r, &t, r->tensor, err)
                   : import_no_memory(err);
    }
    for (const struct flow_tensor *t = s->signature.inputs; t && rc == MR_OK; t = t->next) {
        struct flow_tensor as = *t;
        as.name = request_name(p, s, t->name);
        rc = flow_tensor_add(&p->flow.inputs, t, as.name, &p->im->arena)
                 ? offer(p, s, r, &as, as.name, err)
                 : import_no_memory(err);
    }
    return rc;
}

static const struct flow_pair *output_of(const struct step *s, mr_str tensor)
{
    const struct flow_pair *o = s->node->outputs;

    while (o && !mr_str_eq(o->of, tensor)) {
        o = o->next;
    }
    return o;
}

/* The other step that a reference names, connected, with the output that it names. */
static int find_source(struct pipeline *p, const struct step *s, const struct reference *r,
                       const struct step **out, struct mr_err *err)
{
    struct step *from = step_find(p, r->name);
    int rc = from ? connect(p, from, err) : no_step(r, &s->at, err);

    if (rc < 0) {
        return rc;
    }
    if (r->of_inputs) {
        return DOC_FAIL(
            err, MR_E_UNSUPPORTED, &s->at, r->doc,
            "the inputs of another step have no counterpart here; name the tensors that it "
            "gets");
    }
    if (r->tensor.len > 0 && !output_of(from, r->tensor)) {
        return DOC_FAIL(err, MR_E_INVALID, &s->at, r->doc, "step '%.64s' has no output '%.64s'",
                        r->name.ptr, r->tensor.ptr);
    }
    *out = from;
    return MR_OK;
}

static int offer_step(struct pipeline *p, struct step *s, const struct reference *r,
                      struct mr_err *err)
{
    const struct step *from;
    int rc = find_source(p, s, r, &from, err);

    if (rc < 0) {
        return rc;
    }
    const bool is_one = r->tensor.len == 0 && !s->map &&
                        flow_tensor_count(from->signature.outputs) == 1 &&
                        flow_tensor_count(s->signature.inputs) == 1 && !s->inputs->next;
    for (const struct flow_tensor *t = from->signature.outputs; t && rc == MR_OK; t = t->next) {
        struct flow_tensor as = *t;
        if (r->tensor.len > 0 && !mr_str_eq(t->name, r->tensor)) {
            continue;
        }
        as.name = is_one ? s->signature.inputs->name : t->name;
        rc = offer(p, s, r, &as, output_of(from, t->name)->name, err);
    }
    return rc;
}

static int connect_triggers(struct pipeline *p, struct step *s, struct mr_err *err)
{
    for (const struct reference *r = s->triggers; r; r = r->next) {
        const struct step *from;
        struct flow_text *after = MR_ARENA_NEW(&p->im->arena, struct flow_text);
        int rc = find_source(p, s, r, &from, err);
        if (rc < 0) {
            return rc;
        }
        const struct flow_pair *o = r->tensor.len > 0 ? output_of(from, r->tensor) : NULL;
        if (o) {
            s->node->when =
                mr_arena_printf(&p->im->arena, "%.*s%spresent(`%.*s`)", MR_STR_ARG(s->node->when),
                                s->node->when.len > 0 ? " and " : "", MR_STR_ARG(o->name));
        }
        if (!after || (o && !s->node->when.ptr)) {
            return import_no_memory(err);
        }
        after->text = r->name;
        FLOW_ADD(s->node->after, after);
    }
    return MR_OK;
}

static int connect_outputs(struct pipeline *p, struct step *s, struct mr_err *err)
{
    for (const struct flow_tensor *t = s->signature.outputs; t; t = t->next) {
        const mr_str name = import_tensor_name(p->im, &p->flow, s->node->name, t->name);
        if (!name.ptr || !flow_pair_add(&s->node->outputs, t->name, name, &p->im->arena)) {
            return import_no_memory(err);
        }
    }
    return MR_OK;
}

/* Connects a step after those that it gets tensors of. The depth is bounded by the number of steps. */
static int connect(struct pipeline *p, struct step *s, struct mr_err *err)
{
    const struct reference whole = {.doc = s->doc, .name = p->name, .of_inputs = true};
    int rc = MR_OK;

    if (s->is_done) {
        return MR_OK;
    }
    if (s->is_open) {
        return DOC_FAIL(err, MR_E_UNSUPPORTED, &s->at, s->doc, "it depends on itself");
    }
    s->is_open = true;
    for (const struct reference *r = s->inputs ? s->inputs : &whole; r && rc == MR_OK;
         r = r->next) {
        rc = mr_str_eq(r->name, p->name) ? offer_request(p, s, r, err) : offer_step(p, s, r, err);
    }
    MR_TRY(rc);
    MR_TRY(check_map(s, err));
    MR_TRY(connect_triggers(p, s, err));
    for (const struct flow_tensor *t = s->signature.inputs; s->signature.is_known && t;
         t = t->next) {
        const struct flow_pair *i = s->node->inputs;
        while (i && !mr_str_eq(i->of, t->name)) {
            i = i->next;
        }
        if (!i) {
            return DOC_FAIL(err, MR_E_INVALID, &s->at, s->doc, "its input '%.64s' is not given",
                            t->name.ptr);
        }
    }
    MR_TRY(connect_outputs(p, s, err));
    p->flow.max_batch_size = p->flow.nodes
                                 ? MR_MIN(p->flow.max_batch_size, s->signature.max_batch_size)
                                 : s->signature.max_batch_size;
    FLOW_ADD(p->flow.nodes, s->node);
    s->is_done = true;
out:
    return rc;
}

/* Outputs of the pipeline have the names that the steps' models give them. */
static int keep_answers(struct pipeline *p, const struct doc_at *at, struct mr_err *err)
{
    int rc = MR_OK;

    for (const struct reference *r = p->outputs; r; r = r->next) {
        const struct step *s = r->of_inputs ? NULL : step_find(p, r->name);
        for (const struct flow_tensor *t = s ? s->signature.outputs : NULL; t && rc == MR_OK;
             t = t->next) {
            if (r->tensor.len == 0 || mr_str_eq(t->name, r->tensor)) {
                MR_TRY(import_count(p->im, 1, at, r->doc, err));
                rc = import_answer(p->im, &p->flow, s->node->name, t->name, err);
            }
        }
    }
out:
    return rc;
}

static int take_answer(struct pipeline *p, const struct doc_at *at, struct mr_err *err)
{
    for (const struct reference *r = p->outputs; r; r = r->next) {
        const struct step *s = r->of_inputs ? NULL : step_find(p, r->name);
        bool is_there = false;
        if (!s) {
            return no_step(r, at, err);
        }
        for (const struct flow_tensor *t = s->signature.outputs; t; t = t->next) {
            if (r->tensor.len > 0 && !mr_str_eq(t->name, r->tensor)) {
                continue;
            }
            is_there = true;
            if (!flow_tensor_add(&p->flow.outputs, t, output_of(s, t->name)->name, &p->im->arena)) {
                return import_no_memory(err);
            }
        }
        if (!is_there) {
            return DOC_FAIL(err, MR_E_INVALID, at, r->doc, "step '%.64s' has no output '%.64s'",
                            r->name.ptr, r->tensor.ptr);
        }
    }
    return MR_OK;
}

static int read_pipeline(struct pipeline *p, const struct doc *spec, const struct doc_at *at,
                         struct mr_err *err)
{
    static const char *const keys[] = {"steps", "output", NULL};
    static const char *const output_keys[] = {"steps", "stepsJoin", NULL};
    const struct doc *steps, *output;
    int rc, count = 0;

    MR_TRY(doc_only(spec, at, keys, err));
    MR_TRY(doc_list(spec, "steps", true, at, &steps, err));
    MR_TRY(doc_map(spec, "output", true, at, &output, err));
    MR_TRY(doc_only(output, at, output_keys, err));
    MR_TRY(check_join(output, "stepsJoin", at, err));
    MR_TRY(read_references(p, output, "steps", at, &p->outputs, err));
    for (const struct doc *d = steps->first; d; d = d->next) {
        if (++count > STEPS_MAX) {
            return DOC_FAIL(err, MR_E_TOO_LARGE, at, d, "more than 1000 steps");
        }
        MR_TRY(read_step(p, d, err));
    }
    if (!p->outputs || !p->steps) {
        return DOC_FAIL(err, MR_E_INVALID, at, output, "there are no steps to answer with");
    }
    MR_TRY(guess_outputs(p, p->outputs, err));
    for (struct step *s = p->steps; s; s = s->next) {
        MR_TRY(guess_outputs(p, s->inputs, err));
        MR_TRY(guess_outputs(p, s->triggers, err));
        MR_TRY(guess_outputs(p, s->map, err));
        MR_TRY(guess_inputs(p, s, err));
    }
    MR_TRY(keep_answers(p, at, err));
    for (struct step *s = p->steps; s; s = s->next) {
        MR_TRY(connect(p, s, err));
    }
    MR_TRY(take_answer(p, at, err));
    MR_TRY(import_add_flow(p->im, &p->flow, err));
out:
    return rc;
}

/* ---- experiments ---- */

static int read_candidates(struct pipeline *p, const struct doc *spec, const struct doc_at *at,
                           struct flow_node *n, struct mr_err *err)
{
    static const char *const keys[] = {"name", "weight", NULL};
    const struct doc *list;
    int rc = doc_list(spec, "candidates", true, at, &list, err);

    for (const struct doc *d = rc == MR_OK ? list->first : NULL; d && rc == MR_OK; d = d->next) {
        struct flow_variant *v = MR_ARENA_NEW(&p->im->arena, struct flow_variant);
        if (!v) {
            return import_no_memory(err);
        }
        MR_TRY(doc_only(d, at, keys, err));
        MR_TRY(doc_text(d, "name", true, at, &v->model, err));
        MR_TRY(import_check_name(at, d, v->model, err));
        MR_TRY(doc_int(d, "weight", 1, 0, 1000000, at, &v->weight, err));
        v->tag = v->model;
        v->line = d->line;
        FLOW_ADD(n->variants, v);
    }
    if (rc == MR_OK && !n->variants) {
        rc = DOC_FAIL(err, MR_E_INVALID, at, list, "there are no candidates");
    }
out:
    return rc;
}

static int read_mirror(const struct doc *spec, const struct doc_at *at, struct flow_node *n,
                       struct mr_err *err)
{
    static const char *const keys[] = {"name", "percent", NULL};
    const struct doc *mirror;
    int rc = doc_map(spec, "mirror", false, at, &mirror, err);

    if (rc == MR_OK && mirror) {
        MR_TRY(doc_only(mirror, at, keys, err));
        MR_TRY(doc_text(mirror, "name", true, at, &n->shadow, err));
        MR_TRY(import_check_name(at, mirror, n->shadow, err));
        MR_TRY(doc_int(mirror, "percent", 100, 0, 100, at, &n->shadow_percent, err));
    }
out:
    return rc;
}

static int read_experiment(struct pipeline *p, const struct doc *spec, const struct doc_at *at,
                           struct mr_err *err)
{
    static const char *const keys[] = {"default", "candidates", "mirror", "resourceType", NULL};
    struct flow_node *n = MR_ARENA_NEW(&p->im->arena, struct flow_node);
    struct signature s;
    int rc;

    if (!n) {
        return import_no_memory(err);
    }
    n->name = MR_STR("split");
    n->version = -1;
    n->line = spec->line;
    MR_TRY(doc_only(spec, at, keys, err));
    MR_TRY(read_candidates(p, spec, at, n, err));
    MR_TRY(read_mirror(spec, at, n, err));
    MR_TRY(import_signature(p->im, n->variants->model, &s, err));
    for (const struct flow_tensor *t = s.inputs; t; t = t->next) {
        if (!flow_pair_add(&n->inputs, t->name, t->name, &p->im->arena)) {
            return import_no_memory(err);
        }
    }
    p->flow.inputs = s.inputs;
    p->flow.max_batch_size = s.max_batch_size;
    for (const struct flow_tensor *t = s.outputs; t; t = t->next) {
        const mr_str name = import_tensor_name(p->im, &p->flow, n->name, t->name);
        if (!name.ptr || !flow_pair_add(&n->outputs, t->name, name, &p->im->arena) ||
            !flow_tensor_add(&p->flow.outputs, t, name, &p->im->arena)) {
            return import_no_memory(err);
        }
    }
    p->flow.nodes = n;
    MR_TRY(import_add_flow(p->im, &p->flow, err));
out:
    return rc;
}

static int import_one(struct mr_import *im, const struct doc *doc, struct mr_err *err)
{
    static const char *const top[] = {"apiVersion", "kind", "metadata", "spec", "status", NULL};
    struct pipeline p = {.im = im};
    const struct doc_at at = {.file = im->file};
    const struct doc *metadata, *spec;
    mr_str kind;
    int rc;

    MR_TRY(doc_only(doc, &at, top, err));
    MR_TRY(doc_text(doc, "kind", true, &at, &kind, err));
    MR_TRY(doc_map(doc, "metadata", true, &at, &metadata, err));
    MR_TRY(doc_text(metadata, "name", true, &at, &p.name, err));
    MR_TRY(import_check_name(&at, metadata, p.name, err));
    MR_TRY(doc_map(doc, "spec", true, &at, &spec, err));
    p.flow.name = p.name;
    p.flow.line = metadata->line;
    p.flow.comment = mr_arena_printf(&im->arena, "From Seldon's %.*s '%.*s'.", MR_STR_ARG(kind),
                                     MR_STR_ARG(p.name));
    if (!p.flow.comment.ptr) {
        return import_no_memory(err);
    }
    if (mr_str_eq_c(kind, "Experiment")) {
        return read_experiment(&p, spec, &at, err);
    }
    if (mr_str_eq_c(kind, "Pipeline")) {
        return read_pipeline(&p, spec, &at, err);
    }
    return DOC_FAIL(err, MR_E_UNSUPPORTED, &at, doc_get(doc, "kind"),
                    "kind is '%.40s', allowed are Pipeline and Experiment", kind.ptr);
out:
    return rc;
}

int import_seldon(struct mr_import *im, const struct doc *doc, struct mr_err *err)
{
    int rc = MR_OK;

    for (bool is_skipped; doc && rc == MR_OK; doc = doc->next) {
        rc = import_skip(im, doc, "Model", &is_skipped, err);
        rc = rc < 0 || is_skipped ? rc : import_one(im, doc, err);
    }
    return rc;
}
