/* Reports and changes of endpoints. The mutex of the endpoints is held while a message is built, whose texts are copies. */
#include "control.h"

#include <math.h>

#include "engine/shadow.h"
#include "exec/exec.h"

typedef Millrace__EndpointStatus status_message;
typedef Millrace__EndpointStatus__Variant variant_message;
typedef Millrace__EndpointStatus__Event event_message;

static int no_room(struct mr_err *err)
{
    return MR_FAIL(err, MR_E_EXHAUSTED, "the report is larger than the server allows");
}

static char *text_of(struct mr_arena *a, mr_str s)
{
    return (char *)(uintptr_t)mr_arena_str(a, s).ptr;
}

static double number_or_0(double v)
{
    return isfinite(v) ? v : 0;
}

/* ---- reports ---- */

static bool target_is_ready(struct endpoints *es, const struct mr_variant_target *t)
{
    struct mr_version *v;
    struct mr_err ignored;

    if (mr_models_acquire(es->models, t->model, t->version, &v, &ignored) < 0) {
        return false;
    }
    const bool is_ready = mr_executor_is_ready(v->executor);
    mr_version_unpin(v, MR_EPOCH_SLOT_NONE);
    return is_ready;
}

static variant_message *variant_of(struct endpoints *es, const struct endpoint *e, size_t i,
                                   struct mr_arena *a)
{
    const struct mr_variant_config *c = &e->config->variants[i];
    const struct mr_variant_sums *s = &es->sums[i];
    variant_message *m = MR_ARENA_NEW(a, variant_message);
    double sum = 0;

    if (!m) {
        return NULL;
    }
    millrace__endpoint_status__variant__init(m);
    for (size_t k = 0; k < e->rollout.count; k++) {
        sum += e->rollout.weights[k];
    }
    m->tag = text_of(a, c->tag);
    m->model = text_of(a, c->target.model);
    m->version = text_of(a, c->target.version);
    m->weight = e->rollout.weights[i];
    m->share = m->weight / sum;
    m->ready = target_is_ready(es, &c->target);
    m->requests = s->count;
    m->errors = s->errors;
    m->server_errors = s->server_errors;
    m->mean_ms = number_or_0(mr_variant_sums_mean_ms(s));
    m->p50_ms = number_or_0(mr_variant_sums_quantile_ms(s, 0.5));
    m->p99_ms = number_or_0(mr_variant_sums_quantile_ms(s, 0.99));
    return m->tag && m->model && m->version ? m : NULL;
}

static bool add_variants(struct endpoints *es, const struct endpoint *e, struct mr_arena *a,
                         status_message *to)
{
    const size_t count = e->config->variant_count;

    to->variants = MR_ARENA_ARRAY(a, variant_message *, count);
    endpoint_sums(es, e, es->sums);
    for (size_t i = 0; to->variants && i < count; i++) {
        to->variants[i] = variant_of(es, e, i, a);
        if (!to->variants[i]) {
            return false;
        }
        to->n_variants++;
    }
    return to->variants != NULL;
}

static bool add_ramp(const struct endpoint *e, struct mr_arena *a, status_message *to)
{
    const struct mr_ramp *ramp = e->config->ramp;

    if (!ramp) {
        return true;
    }
    to->ramp = MR_ARENA_NEW(a, Millrace__EndpointStatus__Ramp);
    if (!to->ramp) {
        return false;
    }
    millrace__endpoint_status__ramp__init(to->ramp);
    to->ramp->tag = text_of(a, e->config->variants[ramp->variant].tag);
    to->ramp->state = (char *)(uintptr_t)mr_ramp_state_name(e->rollout.state);
    to->ramp->to = ramp->to;
    to->ramp->step = ramp->step;
    to->ramp->every_s = (double)ramp->every_ns / 1e9;
    to->ramp->guard = text_of(a, mr_str_c(ramp->has_guard ? ramp->guard.text : ""));
    to->ramp->on_breach =
        (char *)(uintptr_t)(ramp->on_breach == MR_RAMP_HOLD ? "HOLD" : "ROLLBACK");
    to->ramp->min_samples = ramp->min_samples;
    return to->ramp->tag && to->ramp->guard;
}

static bool add_shadow(const struct endpoint *e, struct mr_arena *a, status_message *to)
{
    const struct mr_shadow_config *c = e->config->shadow;

    if (!c) {
        return true;
    }
    to->shadow = MR_ARENA_NEW(a, Millrace__EndpointStatus__Shadow);
    if (!to->shadow) {
        return false;
    }
    const struct mr_shadow_stats s = mr_shadow_stats(e->shadow);
    millrace__endpoint_status__shadow__init(to->shadow);
    to->shadow->tag = text_of(a, c->tag);
    to->shadow->model = text_of(a, c->target.model);
    to->shadow->version = text_of(a, c->target.version);
    to->shadow->percent = c->percent;
    to->shadow->requests = s.requests;
    to->shadow->dropped = s.dropped;
    to->shadow->failed = s.failed;
    to->shadow->compared = s.compared;
    to->shadow->different = s.different;
    return to->shadow->tag && to->shadow->model && to->shadow->version;
}

static event_message *event_of(const struct endpoint *e, const struct mr_rollout_event *from,
                               struct mr_arena *a)
{
    event_message *m = MR_ARENA_NEW(a, event_message);

    if (!m) {
        return NULL;
    }
    millrace__endpoint_status__event__init(m);
    m->kind = (char *)(uintptr_t)mr_rollout_event_name(from->kind);
    m->unix_ns = from->wall_ns;
    m->by_hand = from->by_hand;
    m->n_weights = e->rollout.count;
    m->weights = MR_ARENA_ARRAY(a, double, m->n_weights);
    m->reason = text_of(a, mr_str_c(from->reason));
    if (m->weights) {
        memcpy(m->weights, from->weights, m->n_weights * sizeof *m->weights);
    }
    return m->weights && m->reason ? m : NULL;
}

static bool add_history(const struct endpoint *e, struct mr_arena *a, status_message *to)
{
    const uint64_t end = e->rollout.event_count;
    const uint64_t begin = end > MR_ROLLOUT_HISTORY ? end - MR_ROLLOUT_HISTORY : 0;

    to->history = MR_ARENA_ARRAY(a, event_message *, MR_ROLLOUT_HISTORY);
    for (uint64_t i = begin; to->history && i < end; i++) {
        event_message *m = event_of(e, &e->rollout.history[i % MR_ROLLOUT_HISTORY], a);
        if (!m) {
            return false;
        }
        to->history[to->n_history++] = m;
    }
    return to->history != NULL;
}

static char *sticky_of(const struct endpoint *e, struct mr_arena *a)
{
    const struct mr_endpoint_config *c = e->config;

    return c->sticky == MR_STICKY_NONE
               ? text_of(a, MR_STR(""))
               : (char *)(uintptr_t)mr_arena_printf(
                     a, "%s:%s", c->sticky == MR_STICKY_HEADER ? "header" : "parameter", c->key.ptr)
                     .ptr;
}

static status_message *status_of(struct endpoints *es, const struct endpoint *e, struct mr_arena *a)
{
    status_message *m = MR_ARENA_NEW(a, status_message);

    if (!m) {
        return NULL;
    }
    millrace__endpoint_status__init(m);
    m->name = text_of(a, e->config->name);
    m->sticky = sticky_of(e, a);
    const bool is_whole = m->name && m->sticky && add_variants(es, e, a, m) && add_ramp(e, a, m) &&
                          add_shadow(e, a, m) && add_history(e, a, m);
    return is_whole ? m : NULL;
}

/* The mutex is held. */
static struct endpoint *find(struct endpoints *es, mr_str name)
{
    struct endpoint *e;

    SLIST_FOREACH(e, &es->all, link)
    {
        if (e->is_listed && mr_str_eq(e->config->name, name)) {
            return e;
        }
    }
    return NULL;
}

static int unknown(mr_str name, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_NOT_FOUND, "there is no endpoint '%.*s'",
                   MR_STR_ARG(mr_str_sub(name, 0, 255)));
}

static int report(struct endpoints *es, mr_str name, struct mr_arena *a,
                  Millrace__EndpointsResponse *out, struct mr_err *err)
{
    struct endpoint *e;
    size_t count = 0;

    SLIST_FOREACH(e, &es->all, link)
    {
        count += e->is_listed;
    }
    out->endpoints = MR_ARENA_ARRAY(a, status_message *, count + 1);
    SLIST_FOREACH(e, &es->all, link)
    {
        if (!e->is_listed || (name.len && !mr_str_eq(e->config->name, name))) {
            continue;
        }
        status_message *m = out->endpoints ? status_of(es, e, a) : NULL;
        if (!m) {
            return no_room(err);
        }
        out->endpoints[out->n_endpoints++] = m;
    }
    return name.len && out->n_endpoints == 0 ? unknown(name, err) : MR_OK;
}

int endpoints_status(struct endpoints *es, mr_str name, struct mr_arena *arena,
                     Millrace__EndpointsResponse *out, struct mr_err *err)
{
    millrace__endpoints_response__init(out);
    if (!es) {
        return name.len ? unknown(name, err) : MR_OK;
    }
    pthread_mutex_lock(&es->mutex);
    const int rc = report(es, name, arena, out, err);
    pthread_mutex_unlock(&es->mutex);
    return rc;
}

/* ---- changes ---- */

static int find_tag(const struct endpoint *e, const char *tag, size_t *out, struct mr_err *err)
{
    for (size_t i = 0; i < e->config->variant_count; i++) {
        if (mr_str_eq_c(e->config->variants[i].tag, tag)) {
            *out = i;
            return MR_OK;
        }
    }
    return MR_FAIL(err, MR_E_INVALID, "endpoint '%s' has no variant '%.64s'", e->config->name.ptr,
                   tag);
}

static int set_weights(struct endpoint *e, const Millrace__EndpointChangeRequest *q,
                       struct mr_err *err)
{
    double weights[MR_VARIANTS_MAX];
    mr_str tags[MR_VARIANTS_MAX];
    size_t at;
    int rc;

    if (q->n_weights == 0) {
        return MR_FAIL(err, MR_E_INVALID, "no weights: {\"weights\": {TAG: WEIGHT, …}} is needed");
    }
    memcpy(weights, e->rollout.weights, sizeof weights);
    for (size_t i = 0; i < q->n_weights; i++) {
        MR_TRY(find_tag(e, q->weights[i]->key, &at, err));
        weights[at] = q->weights[i]->value;
    }
    for (size_t i = 0; i < e->config->variant_count; i++) {
        tags[i] = e->config->variants[i].tag;
    }
    rc = mr_rollout_set(&e->rollout, weights, tags, endpoints_now(), err);
out:
    return rc;
}

static int resume(struct endpoints *es, struct endpoint *e, struct mr_err *err)
{
    double declared[MR_VARIANTS_MAX];

    for (size_t i = 0; i < e->config->variant_count; i++) {
        declared[i] = e->config->variants[i].weight;
    }
    endpoint_sums(es, e, es->sums);
    return mr_rollout_resume(&e->rollout, declared, endpoints_now(), es->sums, err);
}

static int change(struct endpoints *es, struct endpoint *e,
                  const Millrace__EndpointChangeRequest *q, struct mr_err *err)
{
    size_t at;
    int rc;

    switch (q->action) {
    case MILLRACE__ENDPOINT_CHANGE_REQUEST__ACTION__WEIGHTS: return set_weights(e, q, err);
    case MILLRACE__ENDPOINT_CHANGE_REQUEST__ACTION__PROMOTE:
        rc = find_tag(e, q->tag, &at, err);
        return rc < 0 ? rc : mr_rollout_promote(&e->rollout, (unsigned)at, endpoints_now(), err);
    case MILLRACE__ENDPOINT_CHANGE_REQUEST__ACTION__ROLLBACK:
        return mr_rollout_back(&e->rollout, endpoints_now(), err);
    case MILLRACE__ENDPOINT_CHANGE_REQUEST__ACTION__RESUME: return resume(es, e, err);
    default: return MR_FAIL(err, MR_E_INVALID, "action %d is not known", (int)q->action);
    }
}

int endpoints_change(struct endpoints *es, const Millrace__EndpointChangeRequest *q,
                     struct mr_arena *arena, Millrace__EndpointsResponse *out, struct mr_err *err)
{
    const mr_str name = mr_str_c(q->name);
    int rc;

    millrace__endpoints_response__init(out);
    if (!es) {
        return unknown(name, err);
    }
    pthread_mutex_lock(&es->mutex);
    struct endpoint *e = find(es, name);
    rc = e ? change(es, e, q, err) : unknown(name, err);
    if (rc == MR_OK) {
        endpoint_apply(e);
        rc = report(es, name, arena, out, err);
    }
    pthread_mutex_unlock(&es->mutex);
    return rc;
}

/* ---- for metrics ---- */

void endpoints_count(struct endpoints *es, struct endpoint_metrics *out)
{
    struct endpoint *e;

    pthread_mutex_lock(&es->mutex);
    *out =
        (struct endpoint_metrics){.reloads = es->reloads, .reload_failures = es->reload_failures};
    SLIST_FOREACH(e, &es->all, link)
    {
        out->endpoints += e->is_listed;
    }
    pthread_mutex_unlock(&es->mutex);
}

void endpoints_visit(struct endpoints *es,
                     void (*each)(void *ctx, const struct endpoint *e,
                                  const struct mr_variant_sums *sums),
                     void *ctx)
{
    struct endpoint *e;

    pthread_mutex_lock(&es->mutex);
    SLIST_FOREACH(e, &es->all, link)
    {
        if (e->is_listed) {
            endpoint_sums(es, e, es->sums);
            each(ctx, e, es->sums);
        }
    }
    pthread_mutex_unlock(&es->mutex);
}
