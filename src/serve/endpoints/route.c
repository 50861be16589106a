/* The choice of variants; see route.h. */
#include "route.h"

#include <stdio.h>

#include "exec/exec.h"

/* The table is valid for this iteration of the loop. */
static const struct endpoint_table *table_of(const struct endpoints *es)
{
    return atomic_load_explicit(&((struct endpoints *)(uintptr_t)es)->table, memory_order_acquire);
}

bool route_is_taken(struct endpoints *es, mr_str name)
{
    return es && (mr_map_find(&table_of(es)->endpoints, name) ||
                  mr_map_find(&table_of(es)->services, name));
}

int route_refuse_model(mr_str name, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_INVALID,
                   "'%.*s' is the name of an endpoint, and no model of this name could be asked",
                   MR_STR_ARG(mr_str_sub(name, 0, 255)));
}

mr_str route_tag(const struct route *r)
{
    return r->endpoint->config->variants[r->variant].tag;
}

mr_str route_copy_tag(const struct route *r, char out[ROUTE_TAG_MAX + 1])
{
    const mr_str tag = mr_str_sub(route_tag(r), 0, ROUTE_TAG_MAX);

    memcpy(out, tag.ptr, tag.len);
    out[tag.len] = '\0';
    return mr_str_n(out, tag.len);
}

static int find_tag(const struct endpoint *e, mr_str tag, unsigned *out, struct mr_err *err)
{
    for (unsigned i = 0; i < e->config->variant_count; i++) {
        if (mr_str_eq(e->config->variants[i].tag, tag)) {
            *out = i;
            return MR_OK;
        }
    }
    return MR_FAIL(err, MR_E_NOT_FOUND,
                   "endpoint '%s' has no variant '%.*s': its versions are the tags of its variants",
                   e->config->name.ptr, MR_STR_ARG(mr_str_sub(tag, 0, 64)));
}

static void use(const struct endpoint *e, unsigned variant, mr_str *model, mr_str *version)
{
    const struct mr_variant_target *t = &e->config->variants[variant].target;

    *model = t->model;
    *version = t->version;
}

int route_main(struct endpoints *es, mr_str *model, mr_str *version, struct mr_err *err)
{
    unsigned variant = 0;
    int rc = MR_OK;

    if (!es) {
        return MR_OK;
    }
    const struct endpoint_table *t = table_of(es);
    const struct mr_service_config *s = mr_map_find(&t->services, *model);
    if (s) {
        *model = s->otherwise.len ? s->otherwise : s->cases[0].model;
    }
    const struct endpoint *e = mr_map_find(&t->endpoints, *model);
    if (!e) {
        return MR_OK;
    }
    if (version->len) {
        MR_TRY(find_tag(e, *version, &variant, err));
    } else {
        variant = mr_variant_biggest(&e->weights);
    }
    use(e, variant, model, version);
out:
    return rc;
}

/* ---- requests ---- */

/* The value of a request's parameter as text; ptr NULL: it has none. */
static mr_str parameter_of(const struct mr_oip_request *q, mr_str name,
                           char number[MR_OIP_PARAM_TEXT])
{
    for (size_t i = 0; i < q->param_count; i++) {
        const struct mr_oip_param *p = &q->params[i];
        if (mr_str_eq(p->key, name)) {
            return mr_oip_param_text(p, number);
        }
    }
    return (mr_str){NULL, 0};
}

/* Requests of a sequence belong together. */
static mr_str sequence_of(const struct mr_oip_request *q, char number[MR_OIP_PARAM_TEXT])
{
    if (!q->has_sequence_id) {
        return (mr_str){NULL, 0};
    }
    return q->sequence_id_str.len
               ? q->sequence_id_str
               : mr_str_n(number, (size_t)(mr_u64_put(number, q->sequence_id) - number));
}

static mr_str key_of(const struct endpoint *e, const struct mr_call *call,
                     const struct mr_oip_request *q, char number[MR_OIP_PARAM_TEXT])
{
    mr_str key = {NULL, 0};

    if (e->config->sticky == MR_STICKY_HEADER) {
        key = mr_call_header(call, e->config->key.ptr);
    } else if (e->config->sticky == MR_STICKY_PARAMETER) {
        key = parameter_of(q, e->config->key, number);
    }
    return key.ptr ? key : sequence_of(q, number);
}

/* Without a key, of an endpoint that has one: what an earlier answer said. */
static bool replay(const struct endpoint *e, const struct mr_call *call, unsigned *out)
{
    mr_str tag = e->config->sticky ? mr_call_header(call, ROUTE_HEADER) : (mr_str){NULL, 0};
    struct mr_err ignored;

    return tag.ptr && find_tag(e, tag, out, &ignored) == MR_OK &&
           mr_variant_is_used(&e->weights, *out);
}

static unsigned choose(const struct endpoint *e, struct endpoint_cell *cell,
                       const struct mr_call *call, const struct mr_oip_request *q)
{
    char number[MR_OIP_PARAM_TEXT];
    const mr_str key = key_of(e, call, q, number);
    unsigned variant;

    if (key.ptr) {
        return mr_variant_of(&e->weights, mr_variant_bucket(e->config->salt, key));
    }
    if (replay(e, call, &variant)) {
        return variant;
    }
    return mr_variant_of(&e->weights, mr_variant_spread(&cell->spread));
}

static struct endpoint_cell *cell_of(struct endpoint *e, unsigned slot)
{
    struct endpoint_cell *c = atomic_load_explicit(&e->cells[slot], memory_order_relaxed);

    if (!c) {
        c = mr_alloc_aligned(sizeof *c + e->config->variant_count * sizeof c->variants[0]);
        /* release: who sums up sees zeros or more */
        atomic_store_explicit(&e->cells[slot], c, memory_order_release);
    }
    return c;
}

static int through_service(const struct mr_service_config *s, const struct mr_oip_request *q,
                           mr_str *model, struct mr_err *err)
{
    char number[MR_OIP_PARAM_TEXT];
    const mr_str value = parameter_of(q, s->parameter, number);

    for (size_t i = 0; value.ptr && i < s->case_count; i++) {
        if (mr_str_eq(s->cases[i].value, value)) {
            *model = s->cases[i].model;
            return MR_OK;
        }
    }
    if (s->otherwise.len) {
        *model = s->otherwise;
        return MR_OK;
    }
    return MR_FAIL(err, MR_E_INVALID, "service '%s' has no workflow for %s '%.*s' of the request",
                   s->name.ptr, s->parameter.ptr, MR_STR_ARG(mr_str_sub(value, 0, 64)));
}

int route_begin(struct endpoints *es, unsigned slot, const struct mr_call *call,
                const struct mr_oip_request *q, mr_str *model, mr_str *version, struct route *out,
                struct mr_err *err)
{
    const struct endpoint_table *t = table_of(es);
    const struct mr_service_config *s = mr_map_find(&t->services, *model);
    const mr_str asked = *model;
    unsigned variant;
    int rc = MR_OK;

    if (s) {
        MR_TRY(through_service(s, q, model, err));
        out->asked = asked;
    }
    struct endpoint *e = mr_map_find(&t->endpoints, *model);
    if (!e) {
        goto out;
    }
    struct endpoint_cell *cell = cell_of(e, slot);
    if (version->len) {
        MR_TRY(find_tag(e, *version, &variant, err));
    } else {
        variant = choose(e, cell, call, q);
    }
    use(e, variant, model, version);
    *out = (struct route){.endpoint = e, .cell = cell, .variant = variant, .asked = asked};
    if (e->config->shadow) {
        out->is_shadowed =
            mr_variant_spread(&cell->shadow_spread) < e->config->shadow->percent * 100;
    }
    atomic_store_explicit(&cell->open, atomic_load_explicit(&cell->open, memory_order_relaxed) + 1,
                          memory_order_relaxed);
out:
    return rc;
}

void route_end(struct route *r, int status, int64_t latency_ns)
{
    struct endpoint_cell *c = r->cell;

    mr_variant_cell_add(&c->variants[r->variant], status, latency_ns);
    r->endpoint = NULL;
    /* release: pairs with endpoint_is_idle, which frees the cell */
    atomic_store_explicit(&c->open, atomic_load_explicit(&c->open, memory_order_relaxed) - 1,
                          memory_order_release);
}

size_t route_tags(struct endpoints *es, mr_str name, mr_str asked, mr_str *out, size_t max)
{
    const struct endpoint *e = mr_map_find(&table_of(es)->endpoints, name);
    size_t n = 0;

    for (size_t i = 0; e && i < e->config->variant_count && n < max; i++) {
        if (asked.len == 0 || mr_str_eq(asked, e->config->variants[i].tag)) {
            out[n++] = e->config->variants[i].tag;
        }
    }
    return n;
}

/* ---- readiness ---- */

static bool target_is_ready(struct endpoints *es, mr_str model, mr_str version)
{
    struct mr_version *v;
    struct mr_err ignored;

    return mr_models_find(es->models, model, version, &v, &ignored) == MR_OK &&
           mr_executor_is_ready(v->executor);
}

static bool name_is_ready(struct endpoints *es, mr_str name)
{
    const struct endpoint *e = mr_map_find(&table_of(es)->endpoints, name);

    if (!e) {
        return target_is_ready(es, name, MR_STR(""));
    }
    for (unsigned i = 0; i < e->config->variant_count; i++) {
        const struct mr_variant_target *t = &e->config->variants[i].target;
        if (mr_variant_is_used(&e->weights, i) && !target_is_ready(es, t->model, t->version)) {
            return false;
        }
    }
    return true;
}

bool route_is_ready(struct endpoints *es, mr_str name, mr_str version)
{
    const struct endpoint_table *t = table_of(es);
    const struct mr_service_config *s = mr_map_find(&t->services, name);
    struct mr_err ignored;

    if (!s && version.len) {
        return route_main(es, &name, &version, &ignored) == MR_OK &&
               target_is_ready(es, name, version);
    }
    if (!s) {
        return name_is_ready(es, name);
    }
    for (size_t i = 0; i < s->case_count; i++) {
        if (!name_is_ready(es, s->cases[i].model)) {
            return false;
        }
    }
    return s->otherwise.len == 0 || name_is_ready(es, s->otherwise);
}
