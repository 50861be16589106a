/* The load history of a model: what became of each load of a version, when, and for how long.
 *
 * A record (records.c) holds the present state of a version number. An entry belongs to one load of one
 * version: a reload in place begins a second entry beside the first, whose version serves until the
 * new one is ready. The last 16 entries of ended versions are kept for reports.
 *
 * Everything here needs the manager's lock, but for mr_models_versions and mr_models_totals, which
 * take it. */
#include "load_history.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mailbox.h"
#include "job.h"
#include "table.h"
#include "version_labels.h"

#define ENDED_KEPT 16

static bool is_over(const struct mr_load_entry *l)
{
    return l->state == MR_VERSION_UNLOADED || l->state == MR_VERSION_FAILED;
}

static void entry_free(struct mr_load_entry *l)
{
    mr_free(l->memory_reason);
    mr_free(l->reason);
    mr_free(l);
}

void mr_load_history_free(struct mr_model *model)
{
    for (size_t i = 0; i < model->load_history.len; i++) {
        entry_free(model->load_history.at[i]);
    }
    MR_VEC_FINI(&model->load_history);
}

/* An entry has ended: frees the one that ended first, if more than ENDED_KEPT have. */
static void ended_trim(struct mr_model *model)
{
    struct mr_load_entry **at = model->load_history.at;
    size_t ended = 0;
    size_t first = 0;

    for (size_t i = 0; i < model->load_history.len; i++) {
        if (is_over(at[i])) {
            first = ended == 0 || at[i]->entered_ns < at[first]->entered_ns ? i : first;
            ended++;
        }
    }
    if (ended > ENDED_KEPT) {
        entry_free(at[first]);
        memmove(at + first, at + first + 1, (model->load_history.len - first - 1) * sizeof(*at));
        model->load_history.len--;
    }
}

bool mr_load_entry_is_unwanted(const struct mr_load_entry *l)
{
    return l->job && mr_job_is_unwanted(l->m, l->job);
}

static bool loading_is_unwanted(const struct mr_loading *loading)
{
    return mr_load_entry_is_unwanted(MR_CONTAINER_OF(loading, struct mr_load_entry, loading));
}

struct mr_load_entry *mr_load_entry_begin(struct mr_models *m, struct mr_model *model,
                                          struct mr_job *job, int64_t number, uint64_t file_bytes)
{
    struct mr_load_entry *l = MR_NEW(struct mr_load_entry);

    l->loading.is_unwanted = loading_is_unwanted;
    l->memory.grown_bytes = l->memory.released_bytes = MR_MEMORY_UNKNOWN;
    l->m = m;
    l->job = job;
    l->number = number;
    l->file_bytes = file_bytes;
    l->state = MR_VERSION_START;
    l->entered_ns = mr_now_ns();
    l->entered_wall_ns[MR_VERSION_START] = mr_wall_ns();
    MR_VEC_PUSH(&model->load_history, l);
    return l;
}

const struct mr_load_entry *mr_load_entry_latest(const struct mr_model *model, int64_t number)
{
    for (size_t i = model->load_history.len; i-- > 0;) {
        if (model->load_history.at[i]->number == number) {
            return model->load_history.at[i];
        }
    }
    return NULL;
}

static void totals_add(struct mr_load_totals *t, const struct mr_load_entry *l,
                       enum mr_version_state next, int64_t now_ns)
{
    t->spent[l->state].count++;
    t->spent[l->state].ns += (uint64_t)(now_ns - l->entered_ns);
    t->ready += next == MR_VERSION_READY;
    t->failed += next == MR_VERSION_FAILED;
    /* An entry that ends without READY or FAILED was cancelled. */
    t->cancelled += next == MR_VERSION_UNLOADED && l->entered_wall_ns[MR_VERSION_READY] == 0;
}

void mr_load_entry_set(struct mr_models *m, struct mr_model *model, struct mr_load_entry *l,
                       enum mr_version_state state, const char *reason)
{
    int64_t now_ns = mr_now_ns();

    totals_add(&m->totals, l, state, now_ns);
    l->spent_ns[l->state] += now_ns - l->entered_ns;
    l->state = state;
    l->job = is_over(l) || state == MR_VERSION_READY ? NULL : l->job;
    l->entered_ns = now_ns;
    l->entered_wall_ns[state] = mr_wall_ns();
    mr_free(l->reason);
    l->reason = reason && reason[0] ? mr_strndup(reason, strlen(reason)) : NULL;
    if (is_over(l)) {
        ended_trim(model);
    }
}

/* ---- what others see ---- */

void mr_load_entry_spent(const struct mr_load_entry *l, int64_t out_ns[MR_VERSION_STATES])
{
    memcpy(out_ns, l->spent_ns, sizeof l->spent_ns);
    if (!is_over(l)) {
        out_ns[l->state] += mr_now_ns() - l->entered_ns;
    }
}

void mr_load_entry_memory(struct mr_load_entry *l, const struct mr_executor *executor,
                          int64_t grown_bytes)
{
    const struct mr_model_memory reported = executor->ops->memory(executor);

    l->memory = (struct mr_memory_view){.is_known = reported.size > 0,
                                        .is_apart = reported.is_apart != 0,
                                        .mapped_bytes = reported.mapped_bytes,
                                        .kept_bytes = reported.kept_bytes,
                                        .pool_bytes = reported.packed_bytes,
                                        .heap_bytes = reported.heap_bytes,
                                        .resident_bytes = reported.resident_bytes,
                                        .grown_bytes = grown_bytes,
                                        .released_bytes = MR_MEMORY_UNKNOWN};
    l->memory_reason =
        reported.reason[0] ? mr_strndup(reported.reason, strlen(reported.reason)) : NULL;
}

static void progress_view(const struct mr_load_entry *l, struct mr_progress_view *out)
{
    const int64_t since_ns = mr_now_ns() - l->entered_ns;

    /* Relaxed: figures for people, which need not belong together. */
    const uint64_t total = atomic_load_explicit(&l->loading.total, memory_order_relaxed);
    const uint64_t done = atomic_load_explicit(&l->loading.done, memory_order_relaxed);
    out->step = atomic_load_explicit(&l->loading.step, memory_order_relaxed);
    out->total_bytes = total;
    out->done_bytes = MR_MIN(done, total);
    out->left_ns = -1;
    if (out->done_bytes > 0 && since_ns > 0) {
        out->bytes_per_second = (uint64_t)((double)out->done_bytes * 1e9 / (double)since_ns);
        out->left_ns = (int64_t)((double)(total - out->done_bytes) * (double)since_ns /
                                 (double)out->done_bytes);
    }
}

static void entry_view(const struct mr_load_entry *l, struct mr_load_view *out)
{
    *out = (struct mr_load_view){.version = l->number,
                                 .state = l->state,
                                 .reason = mr_str_c(l->reason),
                                 .file_bytes = l->file_bytes,
                                 .model_bytes = l->model_bytes,
                                 .release_ns = l->release_ns};
    memcpy(out->entered_wall_ns, l->entered_wall_ns, sizeof l->entered_wall_ns);
    mr_load_entry_spent(l, out->spent_ns);
    out->memory = l->memory;
    out->memory.reason = mr_str_c(l->memory_reason);
    if (l->state == MR_VERSION_LOADING) {
        progress_view(l, &out->progress);
    }
}

static void model_view(const struct mr_model *model, mr_model_view_fn *see, void *ctx)
{
    struct mr_load_view *loads = MR_NEW_ARRAY(struct mr_load_view, model->load_history.len + 1);
    struct mr_label_view *labels = MR_NEW_ARRAY(struct mr_label_view, model->labels.len + 1);
    const struct mr_version_set *set = atomic_load_explicit(&model->set, memory_order_relaxed);
    struct mr_model_view view = {.name = model->name,
                                 .error = mr_str_c(model->error),
                                 .default_version =
                                     set && set->default_version ? set->default_version->number : 0,
                                 .pinned = model->pinned,
                                 .labels = labels,
                                 .label_count = model->labels.len,
                                 .loads = loads,
                                 .load_count = model->load_history.len};

    for (size_t i = 0; i < model->load_history.len; i++) {
        entry_view(model->load_history.at[i], &loads[i]);
    }
    for (size_t i = 0; i < model->labels.len; i++) {
        const struct mr_version_label *l = &model->labels.at[i];
        labels[i] = (struct mr_label_view){mr_str_c(l->name), l->number};
    }
    see(ctx, &view);
    mr_free(labels);
    mr_free(loads);
}

static int by_name(const void *key, const void *name)
{
    return mr_str_cmp(*(const mr_str *)key, mr_str_c(((const struct mr_name *)name)->name));
}

static bool is_folder(const struct mr_models *m, mr_str name)
{
    return m->names.len > 0 &&
           bsearch(&name, m->names.at, m->names.len, sizeof *m->names.at, by_name);
}

int mr_models_versions(struct mr_models *m, mr_str name, mr_model_view_fn *see, void *ctx,
                       struct mr_err *err)
{
    const struct mr_model_view never_loaded = {.name = name};
    int rc = MR_OK;

    pthread_mutex_lock(&m->lock);
    const struct mr_model *model = mr_map_find(&m->models, name);
    if (model) {
        model_view(model, see, ctx);
    } else if (is_folder(m, name)) {
        see(ctx, &never_loaded);
    } else {
        rc = MR_FAIL(err, MR_E_NOT_FOUND, "Request for unknown model: '%.*s' is not found",
                     MR_STR_ARG(mr_str_sub(name, 0, 200)));
    }
    pthread_mutex_unlock(&m->lock);
    return rc;
}

bool mr_models_size(struct mr_models *m, mr_str name, uint64_t *out)
{
    uint64_t bytes = 0;
    bool is_ready = false;

    pthread_mutex_lock(&m->lock);
    const struct mr_model *model = mr_map_find(&m->models, name);
    for (size_t i = 0; model && i < model->records.len; i++) {
        const struct mr_version_record *r = &model->records.at[i];
        if (r->state == MR_VERSION_READY) {
            bytes += MR_MAX(r->file_bytes, r->model_bytes);
            is_ready = true;
        }
    }
    pthread_mutex_unlock(&m->lock);
    if (is_ready) {
        *out = bytes;
    }
    return is_ready;
}

bool mr_models_is_as_folder(struct mr_models *m, mr_str name)
{
    pthread_mutex_lock(&m->lock);
    const struct mr_model *model = mr_map_find(&m->models, name);
    bool is = model && model->is_in_folder && !model->pinned;
    for (size_t i = 0; is && i < model->records.len; i++) {
        const struct mr_version_record *r = &model->records.at[i];
        is =
            r->state != MR_VERSION_READY || (!r->config_json && !mr_version_private_of(r->v)->temp);
    }
    pthread_mutex_unlock(&m->lock);
    return is;
}

bool mr_models_has_sequences(struct mr_models *m, mr_str name)
{
    bool has = false;

    pthread_mutex_lock(&m->lock);
    const struct mr_model *model = mr_map_find(&m->models, name);
    for (size_t i = 0; model && i < model->records.len; i++) {
        const struct mr_version_record *r = &model->records.at[i];
        has = has || (r->state == MR_VERSION_READY && mr_config_sequences(r->v->config));
    }
    pthread_mutex_unlock(&m->lock);
    return has;
}

void mr_models_totals(struct mr_models *m, struct mr_load_totals *out)
{
    pthread_mutex_lock(&m->lock);
    *out = m->totals;
    pthread_mutex_unlock(&m->lock);
}
