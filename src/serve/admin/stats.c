/* Statistics of models as the protobuf message that gRPC sends and REST prints. Everything lives in the set's
 * arena; a set that ran out of memory is marked and answered as such. */
#include "stats.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "sched/sched.h"
#include "serve/state/state.h"

#define STATS_ARENA_MAX (256u << 20)

void stats_set_init(struct stats_set *set)
{
    memset(set, 0, sizeof *set);
    inference__model_statistics_response__init(&set->response);
    mr_arena_init(&set->arena, 16384, STATS_ARENA_MAX);
}

void stats_set_fini(struct stats_set *set)
{
    mr_free(set->response.model_stats);
    mr_arena_fini(&set->arena);
}

static Inference__StatisticDuration *duration(struct stats_set *set, const struct mr_duration *d)
{
    Inference__StatisticDuration *out = MR_ARENA_NEW(&set->arena, Inference__StatisticDuration);

    if (!out) {
        set->failed = true;
        return NULL;
    }
    inference__statistic_duration__init(out);
    out->count = mr_count_get(&d->count);
    out->ns = mr_count_get(&d->ns);
    return out;
}

static Inference__InferStatistics *infer_stats(struct stats_set *set,
                                               const struct mr_sched_stats *st)
{
    Inference__InferStatistics *out = MR_ARENA_NEW(&set->arena, Inference__InferStatistics);
    static const struct mr_duration none;

    if (!out) {
        return NULL;
    }
    inference__infer_statistics__init(out);
    out->success = duration(set, &st->success);
    out->fail = duration(set, &st->fail);
    out->queue = duration(set, &st->queue);
    out->compute_input = duration(set, &st->compute_input);
    out->compute_infer = duration(set, &st->compute_infer);
    out->compute_output = duration(set, &st->compute_output);
    out->cache_hit = duration(set, &none);
    out->cache_miss = duration(set, &none);
    return out;
}

static Inference__InferBatchStatistics *batch_stats(struct stats_set *set, uint32_t size,
                                                    const struct mr_batch_stat *b)
{
    Inference__InferBatchStatistics *out =
        MR_ARENA_NEW(&set->arena, Inference__InferBatchStatistics);

    if (!out) {
        return NULL;
    }
    inference__infer_batch_statistics__init(out);
    out->batch_size = size;
    out->compute_input = duration(set, &b->compute_input);
    out->compute_infer = duration(set, &b->compute_infer);
    out->compute_output = duration(set, &b->compute_output);
    return out;
}

static void add_batches(struct stats_set *set, Inference__ModelStatistics *m,
                        const struct mr_version *v)
{
    uint32_t max = mr_sched_batch_max(v);
    struct mr_batch_stat b;

    m->batch_stats = MR_ARENA_ARRAY(&set->arena, Inference__InferBatchStatistics *, max);
    for (uint32_t size = 1; m->batch_stats && size <= max; size++) {
        if (!mr_sched_batch_stat(v, size, &b)) {
            continue;
        }
        Inference__InferBatchStatistics *one = batch_stats(set, size, &b);
        if (one) {
            m->batch_stats[m->n_batch_stats++] = one;
        }
    }
}

static void add_memory(struct stats_set *set, Inference__ModelStatistics *m,
                       const struct mr_version *v)
{
    Inference__MemoryUsage *u = MR_ARENA_NEW(&set->arena, Inference__MemoryUsage);

    m->memory_usage = MR_ARENA_ARRAY(&set->arena, Inference__MemoryUsage *, 1);
    if (!u || !m->memory_usage) {
        return;
    }
    inference__memory_usage__init(u);
    u->type = (char *)(uintptr_t) "CPU";
    u->byte_size = v->executor->ops->bytes(v->executor);
    m->memory_usage[m->n_memory_usage++] = u;
}

static char *cstr(struct stats_set *set, mr_str s)
{
    mr_str copy = mr_arena_str(&set->arena, s);

    if (!copy.ptr) {
        set->failed = true;
    }
    return (char *)(uintptr_t)copy.ptr;
}

static bool reserve(struct stats_set *set)
{
    Inference__ModelStatisticsResponse *r = &set->response;

    if (r->n_model_stats < set->capacity) {
        return true;
    }
    set->capacity = set->capacity ? set->capacity * 2 : 16;
    r->model_stats = mr_realloc_array(r->model_stats, set->capacity, sizeof *r->model_stats);
    return true;
}

void stats_set_add(struct stats_set *set, const struct mr_version *v)
{
    Inference__ModelStatistics *m = MR_ARENA_NEW(&set->arena, Inference__ModelStatistics);
    struct mr_sched_stats st;

    if (!m || !reserve(set)) {
        set->failed = true;
        return;
    }
    mr_sched_stats_sum(v, &st);
    inference__model_statistics__init(m);
    m->name = cstr(set, v->model_name);
    m->version = cstr(set, v->number_text);
    m->last_inference =
        (uint64_t)(atomic_load_explicit(&st.last_wall_ns, memory_order_relaxed) / MR_NS_PER_MS);
    m->inference_count = mr_count_get(&st.inference_count);
    m->execution_count = mr_count_get(&st.execution_count);
    m->inference_stats = infer_stats(set, &st);
    add_batches(set, m, v);
    add_memory(set, m, v);
    if (set->failed || !m->inference_stats) {
        set->failed = true;
        return;
    }
    set->response.model_stats[set->response.n_model_stats++] = m;
}

static void add_each(void *ctx, const struct mr_model_report *r)
{
    if (r->v && r->state == MR_VERSION_READY) {
        stats_set_add(ctx, r->v);
    }
}

static int by_version(const void *a, const void *b)
{
    const Inference__ModelStatistics *x = *(Inference__ModelStatistics *const *)a;
    const Inference__ModelStatistics *y = *(Inference__ModelStatistics *const *)b;
    const int order = strcmp(x->name, y->name);

    return order ? order : strverscmp(x->version, y->version);
}

void stats_set_add_all(struct stats_set *set, struct mr_models *models)
{
    mr_models_visit(models, add_each, set);
    if (set->response.n_model_stats > 1) {
        qsort(set->response.model_stats, set->response.n_model_stats,
              sizeof *set->response.model_stats, by_version);
    }
}

int stats_set_add_model(struct stats_set *set, struct mr_models *models, mr_str model,
                        mr_str version, struct mr_err *err)
{
    const struct mr_version *all[256];
    struct mr_version *v;
    size_t n = 1;

    int rc = mr_models_find(models, model, version, &v, err);
    if (rc == MR_E_INVALID) {
        return rc; /* no version's text at all */
    }
    if (rc < 0) {
        return MR_FAIL(err, MR_E_INVALID,
                       mr_models_ready_versions(models, model, all, 1)
                           ? "requested model version is not available for model '%.*s'"
                           : "requested model '%.*s' is not available",
                       MR_STR_ARG(model));
    }
    all[0] = v;
    if (version.len == 0) {
        n = mr_models_ready_versions(models, model, all, 256);
    }
    for (size_t i = 0; i < n; i++) {
        stats_set_add(set, all[i]);
    }
    return set->failed ? MR_FAIL(err, MR_E_EXHAUSTED, "the statistics need too much memory")
                       : MR_OK;
}
