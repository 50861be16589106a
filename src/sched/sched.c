/* Making and ending the scheduler of a version. On loader threads only. */
#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "sequences.h"
#include "warmup.h"

static uint32_t instance_count(const Inference__ModelConfig *c)
{
    int64_t n = 0;

    for (size_t i = 0; i < c->n_instance_group; i++) {
        n += MR_MAX(0, c->instance_group[i]->count);
    }
    return n < 1 ? 1 : (uint32_t)MR_MIN(n, 1024);
}

struct mr_instance_desc sched_instance_desc(const struct mr_sched *s, uint32_t index)
{
    const Inference__ModelConfig *c = s->version->config;
    struct mr_instance_desc d = {.size = sizeof d, .index = index, .name = ""};
    int64_t left = index < s->instance_count ? index : 0;

    for (size_t i = 0; i < c->n_instance_group; i++) {
        const Inference__ModelInstanceGroup *g = c->instance_group[i];
        d.kind = (int32_t)g->kind;
        d.device_id = g->n_gpus ? g->gpus[0] : 0;
        d.name = g->name;
        if (left < g->count) {
            break;
        }
        left -= MR_MAX(0, g->count);
    }
    return d;
}

static void level_policy(struct queue_level *l, const Inference__ModelQueuePolicy *p)
{
    if (!p) {
        return;
    }
    l->timeout_us = (int64_t)MR_MIN(p->default_timeout_microseconds, (uint64_t)INT64_MAX);
    l->max_size = p->max_queue_size;
    l->delay_on_timeout = p->timeout_action == INFERENCE__MODEL_QUEUE_POLICY__TIMEOUT_ACTION__DELAY;
    l->allow_override = p->allow_timeout_override;
}

static int compare_sizes(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

void sched_sort_sizes(int32_t *sizes, size_t count)
{
    qsort(sizes, count, sizeof *sizes, compare_sizes);
}

static int configure_levels(struct mr_sched *s, const Inference__ModelDynamicBatching *d,
                            struct mr_err *err)
{
    uint64_t levels = d && d->priority_levels > 0 ? d->priority_levels : 1;

    if (levels > PRIORITY_LEVELS_MAX) {
        return MR_FAIL(err, MR_E_INVALID,
                       "dynamic_batching.priority_levels is %llu, at most %u are possible",
                       (unsigned long long)levels, PRIORITY_LEVELS_MAX);
    }
    s->level_count = (uint32_t)levels;
    s->default_level = d && d->default_priority_level ? (uint32_t)d->default_priority_level : 1;
    s->levels = MR_NEW_ARRAY(struct queue_level, levels + 1);
    for (uint32_t i = 1; i <= s->level_count; i++) {
        TAILQ_INIT(&s->levels[i].ready);
        TAILQ_INIT(&s->levels[i].delayed);
        if (d) {
            level_policy(&s->levels[i], d->default_queue_policy);
        }
    }
    for (size_t i = 0; d && i < d->n_priority_queue_policy; i++) {
        uint64_t key = d->priority_queue_policy[i]->key;
        if (key >= 1 && key <= levels) {
            level_policy(&s->levels[key], d->priority_queue_policy[i]->value);
        }
    }
    return MR_OK;
}

static int configure(struct mr_sched *s, struct mr_err *err)
{
    const struct mr_version *v = s->version;
    const Inference__ModelDynamicBatching *d = mr_config_dynamic_batching(v->config);
    uint32_t inline_flags = v->backend_flags & (MR_BACKEND_CHEAP_INSTANCES | MR_BACKEND_NO_INLINE);

    s->max_pending = MR_MAX(1, v->executor->signature->max_pending);
    s->is_batching = d != NULL && v->max_batch_size > 0;
    s->may_inline = !s->is_batching && !mr_config_sequences(v->config) &&
                    !mr_version_is_streaming(v) && inline_flags == MR_BACKEND_CHEAP_INSTANCES &&
                    s->options.inline_threshold_ns > 0 && s->options.hold_until_queued == 0;
    s->batch_stat_count = (uint32_t)MR_MIN(MR_MAX(1, v->max_batch_size), (int32_t)BATCH_STAT_MAX);
    s->expected_rows = v->max_batch_size;
    s->next_expire_ns = INT64_MAX;
    s->is_released = s->options.hold_until_queued == 0;
    if (d) {
        int64_t us = (int64_t)MR_MIN(d->max_queue_delay_microseconds, (uint64_t)INT64_MAX / 1000);
        s->max_delay_ns = us * 1000;
        s->preserve_order = d->preserve_ordering && !mr_version_is_streaming(v);
        s->preferred_count = d->n_preferred_batch_size;
        s->preferred = MR_NEW_ARRAY(int32_t, s->preferred_count + 1);
        for (size_t i = 0; i < s->preferred_count; i++) {
            s->preferred[i] = d->preferred_batch_size[i];
        }
        sched_sort_sizes(s->preferred, s->preferred_count);
    }
    return configure_levels(s, d, err);
}

static int open_instances(struct mr_sched *s, struct mr_err *err)
{
    struct mr_executor *e = s->version->executor;
    struct warmup warmup;
    int rc = MR_OK;

    warmup_begin(&warmup, s);
    s->instance_count = instance_count(s->version->config);
    s->instances = MR_NEW_ARRAY(struct sched_instance, s->instance_count);
    MR_TRY(sequence_config_open(s, err));
    for (uint32_t i = 0; i < s->instance_count; i++) {
        struct sched_instance *in = &s->instances[i];
        in->sched = s;
        in->index = i;
        struct mr_instance_desc desc = sched_instance_desc(s, i);
        MR_TRY(e->ops->instance_open(e, &desc, &in->instance, err));
        in->life = s->sequences && e->ops->life ? e->ops->life(e, in->instance) : 0;
        MR_TRY(warmup_run(&warmup, in->instance, s->instance_count - i, err));
    }
    if (e->ops->warmed) {
        e->ops->warmed(e);
    }
    s->is_batching &= !s->version->cannot_batch;
    if (s->sequences) {
        s->sequences->is_apart |= s->version->cannot_batch;
    }
    s->is_direct = e->hands_over && !s->sequences && s->options.hold_until_queued == 0;
out:
    return rc;
}

static void init_sync(struct mr_sched *s)
{
    pthread_condattr_t attr;

    pthread_mutex_init(&s->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->work, &attr);
    pthread_cond_init(&s->filled, &attr);
    pthread_cond_init(&s->freed, &attr);
    pthread_condattr_destroy(&attr);
}

int mr_sched_open(struct mr_version *v, const struct mr_sched_options *o, struct mr_err *err)
{
    struct mr_sched *s = mr_alloc_aligned(sizeof *s);
    int rc;

    s->version = v;
    s->options = *o;
    init_sync(s);
    v->sched = s;
    MR_TRY(configure(s, err));
    s->slots = mr_alloc_array(o->reader_count, sizeof *s->slots);
    s->shared = stats_slot_new(s);
    MR_TRY(open_instances(s, err));
    /* The old version's requests move to this one: no network thread should create a thread for them, which maps
     * memory. */
    if (v->is_update && !s->may_inline && !s->is_direct) {
        instance_start_early(s);
    }
out:
    if (rc < 0) {
        mr_sched_close(v);
    }
    return rc;
}

static void stop_threads(struct mr_sched *s)
{
    pthread_mutex_lock(&s->mutex);
    s->is_stopping = true;
    pthread_cond_broadcast(&s->work);
    pthread_cond_broadcast(&s->filled);
    pthread_cond_broadcast(&s->freed);
    if (s->sequences) {
        sequences_wake_all(s);
    }
    pthread_mutex_unlock(&s->mutex);
    for (uint32_t i = 0; i < s->instance_count; i++) {
        if (s->instances[i].is_started) {
            pthread_join(s->instances[i].thread, NULL);
        }
    }
}

static void close_instances(struct mr_sched *s)
{
    for (uint32_t i = 0; i < s->instance_count; i++) {
        struct sched_instance *in = &s->instances[i];
        mr_executor_instance_close(s->version->executor, &in->instance);
        instance_fini(in);
    }
    for (uint32_t i = 0; s->slots && i < s->options.reader_count; i++) {
        struct sched_slot *slot = atomic_load_explicit(&s->slots[i], memory_order_acquire);
        if (slot) {
            mr_executor_instance_close(s->version->executor, &slot->instance);
        }
        mr_free(slot);
    }
}

/* Executions that were pending have been answered, but the threads that answered them may still be in the scheduler. */
static void wait_for_endings(struct mr_sched *s)
{
    const struct timespec step = {0, 100000};

    while (atomic_load_explicit(&s->endings, memory_order_acquire) > 0) {
        nanosleep(&step, NULL);
    }
}

void mr_sched_close(struct mr_version *v)
{
    struct mr_sched *s = v->sched;

    if (!s) {
        return;
    }
    wait_for_endings(s);
    stop_threads(s);
    record_close(s);
    sequence_config_close(s);
    close_instances(s);
    pthread_cond_destroy(&s->freed);
    pthread_cond_destroy(&s->filled);
    pthread_cond_destroy(&s->work);
    pthread_mutex_destroy(&s->mutex);
    sched_quarantine_free(s);
    mr_free(s->slots);
    mr_free(s->shared);
    mr_free(s->instances);
    mr_free(s->levels);
    mr_free(s->preferred);
    mr_free(s);
    v->sched = NULL;
}
