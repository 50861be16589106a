/* Requests that run twice. A job is made on the request's loop, waits in the shadow's queue, and runs as a request without a
 * loop: the engine's shadow thread starts it, or the thread on which the job before it ended; its end, and the comparison, are on the thread
 * of the shadow's model. The mutex guards queue and counters; only requests that were chosen to be copied take it. */
#include "engine/shadow.h"

#include "base/log.h"
#include "base/thread.h"
#include "engine_priv.h"
#include "variant/compare.h"

#define JOB_ARENA_MAX ((size_t)4 << 20)
#define ALIGN         64u

struct column {
    mr_str name;
    struct mr_tensor tensor;
    struct mr_block *block;
};

struct mr_shadow_job {
    struct mr_mail mail;
    STAILQ_ENTRY(mr_shadow_job) link;
    struct mr_shadow *shadow;
    struct mr_arena arena;
    struct mr_infer infer;
    struct mr_infer_args args;
    struct column *outputs; /* of the answer that was sent */
    size_t output_count;
};

struct mr_shadow {
    struct mr_engine *engine;
    STAILQ_ENTRY(mr_shadow) link;   /* of engine_shadows.ready */
    struct mr_shadow_config config; /* its names are the shadow's */
    pthread_mutex_t mutex;          /* guards what follows */
    STAILQ_HEAD(, mr_shadow_job) queue;
    uint32_t waiting; /* in the queue, and those that are on their way to it */
    bool is_running;
    bool is_starting; /* a thread starts jobs, or is to do so */
    bool is_stopping;
    bool is_dropped; /* freed when it is idle */
    struct mr_shadow_stats stats;
};

static mr_str name_copy(mr_str name)
{
    return mr_str_n(mr_strndup(name.ptr, name.len), name.len);
}

struct mr_shadow *mr_shadow_new(struct mr_engine *engine, const struct mr_shadow_config *config)
{
    struct mr_shadow *s = MR_NEW(struct mr_shadow);

    s->engine = engine;
    s->config = *config;
    s->config.tag = MR_STR("");
    s->config.target.model = name_copy(config->target.model);
    s->config.target.version = name_copy(config->target.version);
    pthread_mutex_init(&s->mutex, NULL);
    STAILQ_INIT(&s->queue);
    return s;
}

/* The mutex is held. */
static bool is_idle(const struct mr_shadow *s)
{
    return s->waiting == 0 && !s->is_running && !s->is_starting;
}

bool mr_shadow_is_idle(struct mr_shadow *s)
{
    pthread_mutex_lock(&s->mutex);
    const bool is = is_idle(s);
    pthread_mutex_unlock(&s->mutex);
    return is;
}

void mr_shadow_free(struct mr_shadow **s)
{
    if (*s) {
        pthread_mutex_destroy(&(*s)->mutex);
        mr_free((char *)(uintptr_t)(*s)->config.target.model.ptr);
        mr_free((char *)(uintptr_t)(*s)->config.target.version.ptr);
    }
    mr_freep(s);
}

/* Releases the mutex; s may be gone then. */
static void unlock(struct mr_shadow *s)
{
    const bool is_last = s->is_dropped && is_idle(s);

    pthread_mutex_unlock(&s->mutex);
    if (is_last) {
        mr_shadow_free(&s);
    }
}

struct mr_shadow_stats mr_shadow_stats(struct mr_shadow *s)
{
    pthread_mutex_lock(&s->mutex);
    const struct mr_shadow_stats stats = s->stats;
    pthread_mutex_unlock(&s->mutex);
    return stats;
}

/* ---- jobs ---- */

static void job_free(struct mr_shadow_job *j)
{
    for (size_t i = 0; i < j->output_count; i++) {
        mr_block_unref(&j->outputs[i].block);
    }
    mr_arena_fini(&j->arena);
    mr_free(j);
}

/* A shape and a name in memory of the job. */
static bool copy_column(struct mr_shadow_job *j, mr_str name, const struct mr_tensor *t,
                        struct column *out)
{
    int64_t *shape = MR_ARENA_ARRAY(&j->arena, int64_t, t->rank > 0 ? (size_t)t->rank : 1u);

    out->name = mr_arena_str(&j->arena, name);
    out->tensor = *t;
    out->tensor.shape = shape;
    if (shape && t->rank > 0) {
        memcpy(shape, t->shape, (size_t)t->rank * sizeof *shape);
    }
    return shape && out->name.ptr;
}

static uint64_t padded(uint64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static bool copy_inputs(struct mr_shadow_job *j, const struct mr_infer *r)
{
    const struct mr_version *v = r->version;
    struct column *list = MR_ARENA_ARRAY(&j->arena, struct column, v->input_count + 1u);
    uint64_t bytes = 0, at = 0;
    size_t n = 0;

    for (uint32_t i = 0; i < v->input_count; i++) {
        bytes += r->inputs[i].dtype == MR_DTYPE_INVALID ? 0 : padded(r->inputs[i].bytes);
    }
    struct mr_block *block = list ? mr_block_new(bytes ? bytes : 1) : NULL;
    if (!block) {
        return false;
    }
    bool is_whole = mr_block_keep(block, &j->arena);
    for (uint32_t i = 0; is_whole && i < v->input_count; i++) {
        const struct mr_tensor *t = &r->inputs[i];
        if (t->dtype == MR_DTYPE_INVALID) {
            continue;
        }
        is_whole = copy_column(j, v->inputs[i].name, t, &list[n]);
        list[n].tensor.data = block->data + at;
        if (t->bytes) {
            memcpy(block->data + at, t->data, t->bytes);
        }
        at += padded(t->bytes);
        n++;
    }
    j->args.input_names = &list[0].name;
    j->args.input_tensors = &list[0].tensor;
    j->args.input_stride = sizeof *list;
    j->args.input_count = n;
    return is_whole;
}

/* Small outputs lie in the request's arena, others in blocks. */
static bool keep_output(struct mr_shadow_job *j, const struct mr_exec_output *o, struct column *out)
{
    if (o->block) {
        out->block = mr_block_ref(o->block);
        return true;
    }
    void *copy = mr_arena_try(&j->arena, o->tensor.bytes ? o->tensor.bytes : 1, ALIGN);
    if (copy && o->tensor.bytes) {
        memcpy(copy, o->tensor.data, o->tensor.bytes);
    }
    out->tensor.data = copy;
    return copy != NULL;
}

static bool keep_outputs(struct mr_shadow_job *j, const struct mr_infer *r)
{
    const struct mr_version *v = r->version;

    j->outputs = MR_ARENA_ARRAY(&j->arena, struct column, v->output_count + 1u);
    for (uint32_t i = 0; j->outputs && i < v->output_count; i++) {
        const struct mr_exec_output *o = r->wanted[i] ? mr_infer_output(r, i) : NULL;
        if (!o || !o->is_set) {
            continue;
        }
        struct column *c = &j->outputs[j->output_count];
        if (!copy_column(j, v->outputs[i].name, &o->tensor, c) || !keep_output(j, o, c)) {
            return false;
        }
        j->output_count++;
    }
    return j->outputs != NULL;
}

static bool copy_parameters(struct mr_shadow_job *j, const struct mr_infer *r)
{
    struct mr_setting *list = MR_ARENA_ARRAY(&j->arena, struct mr_setting, r->parameter_count + 1u);
    uint8_t *kinds = MR_ARENA_ARRAY(&j->arena, uint8_t, r->parameter_count + 1u);

    for (uint32_t i = 0; list && i < r->parameter_count; i++) {
        list[i].key = mr_arena_str(&j->arena, mr_str_c(r->parameters[i].key)).ptr;
        list[i].value = mr_arena_str(&j->arena, mr_str_c(r->parameters[i].value)).ptr;
        if (!list[i].key || !list[i].value) {
            return false;
        }
    }
    j->args.parameters = list;
    j->args.parameter_count = r->parameter_count;
    if (kinds && r->parameter_kinds) {
        j->args.parameter_kinds = memcpy(kinds, r->parameter_kinds, r->parameter_count);
    }
    return list && kinds;
}

static struct mr_shadow_job *job_new(struct mr_shadow *s, const struct mr_infer *r)
{
    struct mr_shadow_job *j = MR_NEW(struct mr_shadow_job);

    j->shadow = s;
    mr_arena_init(&j->arena, 4096, JOB_ARENA_MAX);
    j->args.model = s->config.target.model;
    j->args.version = s->config.target.version;
    j->infer.nested = r->nested;
    if (copy_inputs(j, r) && copy_parameters(j, r) &&
        (s->config.compare == MR_COMPARE_NONE || keep_outputs(j, r))) {
        return j;
    }
    job_free(j);
    return NULL;
}

struct mr_shadow_job *mr_shadow_take(struct mr_shadow *s, const struct mr_infer *r)
{
    struct mr_shadow_job *j = NULL;

    if (r->sequence) {
        return NULL;
    }
    pthread_mutex_lock(&s->mutex);
    const bool has_room = s->waiting < s->config.max_queue && !s->is_stopping;
    s->waiting += has_room;
    s->stats.requests++;
    s->stats.dropped += !has_room;
    pthread_mutex_unlock(&s->mutex);
    if (has_room) {
        j = job_new(s, r);
    }
    if (has_room && !j) {
        pthread_mutex_lock(&s->mutex);
        s->waiting--;
        s->stats.dropped++;
        unlock(s);
    }
    return j;
}

struct mr_mail *mr_shadow_mail(struct mr_shadow_job *job)
{
    return &job->mail;
}

struct mr_shadow_job *mr_shadow_of_mail(struct mr_mail *mail)
{
    return MR_CONTAINER_OF(mail, struct mr_shadow_job, mail);
}

/* ---- comparison ---- */

static const struct mr_tensor *output_of(const struct mr_infer *r, mr_str name)
{
    const struct mr_version *v = r->version;

    for (uint32_t i = 0; i < v->output_count; i++) {
        if (mr_str_eq(v->outputs[i].name, name)) {
            const struct mr_exec_output *o = mr_infer_output(r, i);
            return o->is_set ? &o->tensor : NULL;
        }
    }
    return NULL;
}

static bool agrees(const struct mr_shadow_job *j)
{
    for (size_t i = 0; i < j->output_count; i++) {
        const struct mr_tensor *t = output_of(&j->infer, j->outputs[i].name);
        if (!t || !mr_shadow_outputs_agree(&j->shadow->config, &j->outputs[i].tensor, t)) {
            return false;
        }
    }
    return true;
}

/* ---- running ---- */

static void start_jobs(struct mr_shadow *s);

static void finish(struct mr_shadow_job *j)
{
    struct mr_shadow *s = j->shadow;
    const bool is_ok = j->infer.status == MR_OK;
    const bool is_compared = is_ok && s->config.compare != MR_COMPARE_NONE;
    const bool is_different = is_compared && !agrees(j);

    if (!is_ok) {
        mr_log(MR_LOG_DEBUG, "shadow.failed", "model=%s %s", MR_LOG_STR(s->config.target.model),
               j->infer.err.msg);
    }
    if (is_different) {
        mr_log(MR_LOG_DEBUG, "shadow.different", "model=%s", MR_LOG_STR(s->config.target.model));
    }
    mr_engine_end(&j->infer);
    job_free(j);
    pthread_mutex_lock(&s->mutex);
    s->is_running = false;
    s->stats.failed += !is_ok;
    s->stats.compared += is_compared;
    s->stats.different += is_different;
    if (s->is_starting) { /* that thread goes on */
        pthread_mutex_unlock(&s->mutex);
    } else {
        s->is_starting = true;
        start_jobs(s);
    }
}

static void on_done(struct mr_infer *r)
{
    finish(r->user);
}

/* The engine may call on_done before it returns. */
static void start(struct mr_shadow_job *j)
{
    struct mr_infer *r = &j->infer;

    r->arena = &j->arena;
    r->protocol = MR_INFER_GRPC;
    r->on_done = on_done;
    r->user = j;
    const int rc = mr_engine_infer(j->shadow->engine, r, &j->args);
    if (rc != MR_OK) {
        /* refused, without a version any more; or done on this thread */
        r->version = rc < 0 ? NULL : r->version;
        finish(j);
    }
}

/* The mutex is held, and released at the end: s may be gone then. One thread at a time starts jobs, which has set is_starting, so
 * that one that ends at once comes back to that thread's loop instead of starting the next itself. */
static void start_jobs(struct mr_shadow *s)
{
    while (!s->is_running && !STAILQ_EMPTY(&s->queue)) {
        struct mr_shadow_job *j = STAILQ_FIRST(&s->queue);
        STAILQ_REMOVE_HEAD(&s->queue, link);
        s->waiting--;
        s->is_running = true;
        pthread_mutex_unlock(&s->mutex);
        start(j);
        pthread_mutex_lock(&s->mutex);
    }
    s->is_starting = false;
    unlock(s);
}

/* ---- the thread that starts them ---- */

static void *shadows_main(void *ctx)
{
    struct engine_shadows *all = ctx;
    struct mr_shadow *s;

    pthread_mutex_lock(&all->mutex);
    while ((s = STAILQ_FIRST(&all->ready)) || !all->is_ending) {
        if (s) {
            STAILQ_REMOVE_HEAD(&all->ready, link);
            pthread_mutex_unlock(&all->mutex);
            pthread_mutex_lock(&s->mutex);
            start_jobs(s);
            pthread_mutex_lock(&all->mutex);
        } else {
            pthread_cond_wait(&all->change, &all->mutex);
        }
    }
    pthread_mutex_unlock(&all->mutex);
    return NULL;
}

void engine_shadows_begin(struct engine_shadows *all)
{
    pthread_mutex_init(&all->mutex, NULL);
    pthread_cond_init(&all->change, NULL);
    STAILQ_INIT(&all->ready);
}

void engine_shadows_end(struct engine_shadows *all)
{
    pthread_mutex_lock(&all->mutex);
    all->is_ending = true;
    pthread_cond_signal(&all->change);
    pthread_mutex_unlock(&all->mutex);
    if (all->has_thread) {
        pthread_join(all->thread, NULL);
    }
    pthread_cond_destroy(&all->change);
    pthread_mutex_destroy(&all->mutex);
}

/* With the mutex of s. False: there is no such thread. */
static bool hand_over(struct mr_shadow *s)
{
    struct engine_shadows *all = &s->engine->shadows;
    struct mr_err err;

    pthread_mutex_lock(&all->mutex);
    if (!all->has_thread) {
        all->has_thread = mr_thread_start(&all->thread, "shadow", shadows_main, all, &err) == MR_OK;
    }
    const bool has_thread = all->has_thread;
    if (has_thread) {
        STAILQ_INSERT_TAIL(&all->ready, s, link);
        pthread_cond_signal(&all->change);
    }
    pthread_mutex_unlock(&all->mutex);
    return has_thread;
}

/* With the mutex of s. True: it was handed over, and the thread has not come to it. */
static bool take_back(struct mr_shadow *s)
{
    struct engine_shadows *all = &s->engine->shadows;
    struct mr_shadow *other;

    pthread_mutex_lock(&all->mutex);
    STAILQ_FOREACH(other, &all->ready, link)
    {
        if (other == s) {
            STAILQ_REMOVE(&all->ready, s, mr_shadow, link);
            break;
        }
    }
    pthread_mutex_unlock(&all->mutex);
    return other != NULL;
}

void mr_shadow_run(struct mr_shadow_job **job)
{
    struct mr_shadow_job *j = *job;
    struct mr_shadow *s = j->shadow;

    *job = NULL;
    pthread_mutex_lock(&s->mutex);
    const bool starts = !s->is_running && !s->is_starting;
    if (s->is_stopping || (starts && !hand_over(s))) {
        s->waiting--;
        s->stats.dropped++;
        unlock(s);
        job_free(j);
        return;
    }
    STAILQ_INSERT_TAIL(&s->queue, j, link);
    s->is_starting |= starts;
    pthread_mutex_unlock(&s->mutex);
}

void mr_shadow_stop(struct mr_shadow *s)
{
    struct mr_shadow_job *j;

    pthread_mutex_lock(&s->mutex);
    s->is_stopping = true;
    while ((j = STAILQ_FIRST(&s->queue)) != NULL) {
        STAILQ_REMOVE_HEAD(&s->queue, link);
        s->waiting--;
        s->stats.dropped++;
        job_free(j);
    }
    if (s->is_starting && take_back(s)) {
        s->is_starting = false;
    }
    pthread_mutex_unlock(&s->mutex);
}

void mr_shadow_drop(struct mr_shadow **shadow)
{
    struct mr_shadow *s = *shadow;

    *shadow = NULL;
    if (!s) {
        return;
    }
    mr_shadow_stop(s);
    pthread_mutex_lock(&s->mutex);
    if (s->stats.requests > 0) {
        mr_log(MR_LOG_INFO, "shadow.ended",
               "model=%s requests=%llu dropped=%llu failed=%llu compared=%llu different=%llu",
               MR_LOG_STR(s->config.target.model), (unsigned long long)s->stats.requests,
               (unsigned long long)s->stats.dropped, (unsigned long long)s->stats.failed,
               (unsigned long long)s->stats.compared, (unsigned long long)s->stats.different);
    }
    s->is_dropped = true;
    unlock(s);
}
