/* Reports about models, for the index, the metrics and the page.
 *
 * A report runs under the lock, so that the versions in it stay valid: the reaper
 * removes a version from its record under the same lock before it closes it. The callback
 * must be quick and must not call back into this module. Thread: any, not on the request path. */
#include <sched.h>
#include <stdlib.h>

#include "base/clock.h"
#include "model/records/names.h"
#include "sentinel/sentinel.h"

#define NAMES_MAX_AGE_NS MR_NS_PER_S
#define SLICE_NS         (200 * MR_NS_PER_US)

struct reporting {
    void (*each)(void *ctx, const struct mr_model_report *r);
    void *ctx;
};

static mr_str text_of(const char *s)
{
    return mr_str_c(s);
}

static void record_report(const struct reporting *to, const struct mr_model *model,
                          const struct mr_version_record *r)
{
    bool shows = r->state == MR_VERSION_READY || r->state == MR_VERSION_DRAINING;
    struct mr_model_report report = {.name = model->name,
                                     .version = r->number,
                                     .given = r->given ? mr_str_c(r->given) : (mr_str){NULL, 0},
                                     .state = r->state,
                                     .reason = text_of(r->reason),
                                     .warning = text_of(r->warning),
                                     .since_wall_ns = r->since_wall_ns,
                                     .load_ns = r->load_ns,
                                     .file_bytes = r->file_bytes,
                                     .model_bytes = r->model_bytes,
                                     .v = shows ? r->v : NULL};

    to->each(to->ctx, &report);
}

/* A model of which only the name, or only a failure, is known. */
static void name_report(const struct reporting *to, mr_str name, const char *error,
                        int64_t since_wall_ns)
{
    struct mr_model_report report = {.name = name,
                                     .state = error ? MR_VERSION_FAILED : MR_VERSION_START,
                                     .never_loaded = !error,
                                     .reason = text_of(error),
                                     .warning = text_of(NULL),
                                     .since_wall_ns = since_wall_ns};

    to->each(to->ctx, &report);
}

static void model_report(const struct reporting *to, const struct mr_model *model)
{
    for (size_t i = 0; i < model->records.len; i++) {
        record_report(to, model, &model->records.at[i]);
    }
    if (model->error) {
        name_report(to, model->name, model->error, model->error_wall_ns);
    }
}

/* A folder without a model that says more. */
static void folder_report(const struct reporting *to, const struct mr_name *folder)
{
    name_report(to, mr_str_c(folder->name),
                folder->count > 1 ? "model appears in two or more repositories" : NULL, 0);
}

static bool says_something(const struct mr_model *model)
{
    return model->records.len > 0 || model->error;
}

static int by_name(const void *a, const void *b)
{
    return mr_str_cmp((*(struct mr_model *const *)a)->name, (*(struct mr_model *const *)b)->name);
}

/* Models with something to say, sorted; free with mr_free. Lock held. */
static struct mr_model **models_sorted(struct mr_models *m, size_t *out_count)
{
    struct mr_model **list = MR_NEW_ARRAY(struct mr_model *, m->models.len + 1);
    struct mr_map_slot *slot;
    size_t n = 0;

    for (size_t i = 0; (slot = mr_map_next(&m->models, &i));) {
        struct mr_model *model = slot->value;
        if (says_something(model)) {
            list[n++] = model;
        }
    }
    qsort(list, n, sizeof *list, by_name);
    *out_count = n;
    return list;
}

void mr_models_report(struct mr_models *m, void (*each)(void *ctx, const struct mr_model_report *r),
                      void *ctx)
{
    const struct reporting to = {each, ctx};
    struct mr_err ignored;
    size_t count;
    size_t f = 0;

    /* Poll mode keeps the names fresh by itself. A repository that cannot be read now leaves the
     * names as they were. */
    if (m->o.control != MR_MODEL_CONTROL_POLL) {
        mr_names_refresh(m, NAMES_MAX_AGE_NS, &ignored);
    }
    pthread_mutex_lock(&m->lock);
    struct mr_model **list = models_sorted(m, &count);
    for (size_t i = 0; i < count; i++) {
        for (; f < m->names.len; f++) {
            int order = mr_str_cmp(mr_str_c(m->names.at[f].name), list[i]->name);
            if (order > 0) {
                break;
            }
            if (order < 0) {
                folder_report(&to, &m->names.at[f]);
            }
        }
        model_report(&to, list[i]);
    }
    for (; f < m->names.len; f++) {
        folder_report(&to, &m->names.at[f]);
    }
    pthread_mutex_unlock(&m->lock);
    mr_free(list);
}

/* Copies: a model may be gone when its turn comes. Lock held. */
static size_t names_copy(struct mr_models *m, struct mr_arena *arena, mr_str **out)
{
    mr_str *names = MR_ARENA_ARRAY(arena, mr_str, m->models.len + 1);
    struct mr_map_slot *slot;
    size_t n = 0;

    for (size_t i = 0; names && (slot = mr_map_next(&m->models, &i));) {
        const struct mr_model *model = slot->value;
        if (says_something(model)) {
            names[n] = mr_arena_str(arena, model->name);
            n += names[n].ptr != NULL;
        }
    }
    *out = names;
    return n;
}

void mr_models_visit(struct mr_models *m, void (*each)(void *ctx, const struct mr_model_report *r),
                     void *ctx)
{
    const struct reporting to = {each, ctx};
    struct mr_arena arena;
    mr_str *names;

    mr_arena_init(&arena, 0, SIZE_MAX);
    pthread_mutex_lock(&m->lock);
    size_t count = names_copy(m, &arena, &names);
    pthread_mutex_unlock(&m->lock);
    for (size_t i = 0; i < count;) {
        int64_t until_ns = mr_now_ns() + SLICE_NS;
        pthread_mutex_lock(&m->lock);
        do {
            const struct mr_model *model = mr_map_find(&m->models, names[i++]);
            if (model) {
                model_report(&to, model);
            }
        } while (i < count && mr_now_ns() < until_ns);
        pthread_mutex_unlock(&m->lock);
        sched_yield();
    }
    mr_arena_fini(&arena);
}

bool mr_models_ready(struct mr_models *m)
{
    /* Relaxed: see mr_model_count_unready. Which models a missing repository has is not known. */
    bool is_whole = atomic_load_explicit(&m->unready, memory_order_relaxed) == 0 &&
                    atomic_load_explicit(&m->missing_count, memory_order_relaxed) == 0;

    const struct mr_sentinel *sentinel = atomic_load_explicit(&m->sentinel, memory_order_acquire);
    if (sentinel && mr_sentinel_unready(sentinel) > 0) {
        is_whole = false; /* a model that serves has no worker process */
    }

    return is_whole || !m->o.strict_readiness;
}

enum mr_model_control mr_models_control(const struct mr_models *m)
{
    return m->o.control;
}

struct mr_epoch *mr_models_epoch(struct mr_models *m)
{
    return &m->epoch;
}
