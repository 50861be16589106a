/* The life of endpoints: file to table, ramps, and the end. On the thread "endpoints", but for open, stop and free. */
#include "endpoints.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "codec/json.h"
#include "engine/shadow.h"
#include "names.h"

#define TICK_NS      (MR_NS_PER_S / 2)
#define REMOTE_TICKS 4 /* between tries to load models of other servers */

/* ---- the file ---- */

static int read_file(const char *path, struct mr_buf *out, struct mr_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = -1;
    char part[4096];

    if (fd < 0) {
        return MR_FAIL(err, errno == ENOENT ? MR_E_NOT_FOUND : MR_E_IO, "%s: %s", path,
                       strerror(errno));
    }
    while (out->len <= MR_SERVICE_FILE_MAX && (n = read(fd, part, sizeof part)) > 0) {
        mr_buf_append(out, part, (size_t)n);
    }
    const int why = errno;
    close(fd);
    if (n < 0) {
        return MR_FAIL(err, MR_E_IO, "%s: %s", path, strerror(why));
    }
    return out->failed ? MR_FAIL(err, MR_E_EXHAUSTED, "%s: no memory", path) : MR_OK;
}

static int load_file(struct endpoints *es, struct mr_service_file **out,
                     struct endpoint_remotes *out_remotes, struct mr_err *err)
{
    struct mr_service_file *f = NULL;
    struct mr_buf text;
    int rc;

    mr_buf_init(&text, 0);
    MR_TRY(read_file(es->path, &text, err));
    rc = mr_service_file_parse(mr_buf_view(&text), &f, err);
    MR_TRY(rc < 0 ? MR_WRAP(err, rc, "%s", es->path) : MR_OK);
    rc = endpoint_names_check(f, es->models, err);
    rc = rc < 0 ? rc : endpoint_remotes_settle(f, out_remotes, err);
    MR_TRY(rc < 0 ? MR_WRAP(err, rc, "%s", es->path) : MR_OK);
    *out = f;
    f = NULL;
out:
    mr_service_file_free(&f);
    mr_buf_fini(&text);
    return rc;
}

/* The mutex is held, or nothing else runs yet. */
static void file_unref(struct endpoint_file **file)
{
    struct endpoint_file *f = *file;

    *file = NULL;
    if (--f->refs == 0) {
        mr_service_file_free(&f->content);
        mr_free(f);
    }
}

/* ---- endpoints ---- */

struct mr_rollout_time endpoints_now(void)
{
    return (struct mr_rollout_time){mr_now_ns(), mr_wall_ns()};
}

static struct endpoint *endpoint_new(struct endpoints *es, struct endpoint_file *file,
                                     const struct mr_endpoint_config *c)
{
    struct endpoint *e = MR_NEW(struct endpoint);
    double weights[MR_VARIANTS_MAX];

    e->config = c;
    e->file = file;
    file->refs++;
    e->cells = mr_alloc_array(es->loop_count, sizeof *e->cells);
    if (c->shadow) {
        e->shadow = mr_shadow_new(es->engine, c->shadow);
    }
    for (size_t i = 0; i < c->variant_count; i++) {
        weights[i] = c->variants[i].weight;
    }
    memset(es->sums, 0, sizeof es->sums);
    mr_rollout_init(&e->rollout, weights, c->variant_count, c->ramp, endpoints_now(), es->sums);
    mr_variant_table_set(&e->weights, weights, c->variant_count);
    SLIST_INSERT_HEAD(&es->all, e, link);
    return e;
}

static void endpoint_free(struct endpoints *es, struct endpoint *e)
{
    for (unsigned i = 0; i < es->loop_count; i++) {
        mr_free(atomic_load_explicit(&e->cells[i], memory_order_relaxed));
    }
    mr_free(e->cells);
    mr_shadow_free(&e->shadow);
    mr_rollout_fini(&e->rollout);
    file_unref(&e->file);
    mr_free(e);
}

static bool endpoint_is_idle(const struct endpoints *es, const struct endpoint *e)
{
    int64_t open = 0;

    for (unsigned i = 0; i < es->loop_count; i++) {
        /* acquire: what the loop did before it closed its last request */
        struct endpoint_cell *c = atomic_load_explicit(&e->cells[i], memory_order_acquire);
        open += c ? atomic_load_explicit(&c->open, memory_order_acquire) : 0;
    }
    return open == 0 && (!e->shadow || mr_shadow_is_idle(e->shadow));
}

void endpoint_sums(const struct endpoints *es, const struct endpoint *e,
                   struct mr_variant_sums *out)
{
    memset(out, 0, e->config->variant_count * sizeof *out);
    for (unsigned i = 0; i < es->loop_count; i++) {
        const struct endpoint_cell *c = atomic_load_explicit(&e->cells[i], memory_order_acquire);
        for (size_t k = 0; c && k < e->config->variant_count; k++) {
            mr_variant_sums_add(&out[k], &c->variants[k]);
        }
    }
}

void endpoint_apply(struct endpoint *e)
{
    const struct mr_rollout_event *last = mr_rollout_last(&e->rollout);
    struct mr_buf b;

    mr_variant_table_set(&e->weights, e->rollout.weights, e->rollout.count);
    mr_buf_init(&b, 0);
    for (size_t i = 0; i < e->rollout.count; i++) {
        mr_buf_printf(&b, "%s%s:", i ? "," : "", e->config->variants[i].tag.ptr);
        mr_json_put_double(&b, e->rollout.weights[i]);
    }
    mr_log(last->reason[0] ? MR_LOG_WARN : MR_LOG_INFO, "endpoint.weights",
           "endpoint=%s change=%s by=%s weights=%.*s %s", MR_LOG_STR(e->config->name),
           mr_rollout_event_name(last->kind), last->by_hand ? "hand" : "ramp",
           MR_STR_ARG(mr_buf_view(&b)), last->reason);
    mr_buf_fini(&b);
}

/* ---- tables ---- */

static void table_free(struct endpoint_table **table)
{
    struct endpoint_table *t = *table;

    *table = NULL;
    if (t) {
        mr_map_fini(&t->endpoints);
        mr_map_fini(&t->services);
        file_unref(&t->file);
        mr_free(t);
    }
}

/* The present endpoint of this name, if its entry is the same: it keeps weights, counters and history. */
static struct endpoint *keep_or_make(struct endpoints *es, const struct endpoint_table *old,
                                     struct endpoint_file *file, const struct mr_endpoint_config *c)
{
    struct endpoint *e = old ? mr_map_find(&old->endpoints, c->name) : NULL;

    return e && mr_str_eq(e->config->text, c->text) ? e : endpoint_new(es, file, c);
}

static struct endpoint_table *table_new(struct endpoints *es, const struct endpoint_table *old,
                                        struct mr_service_file *content,
                                        const struct endpoint_remotes *remotes)
{
    struct endpoint_table *t = MR_NEW(struct endpoint_table);
    struct endpoint *e;

    t->file = MR_NEW(struct endpoint_file);
    *t->file = (struct endpoint_file){content, *remotes, 1};
    SLIST_FOREACH(e, &es->all, link)
    {
        e->is_listed = false;
    }
    for (size_t i = 0; i < content->endpoint_count; i++) {
        e = keep_or_make(es, old, t->file, &content->endpoints[i]);
        e->is_listed = true;
        mr_map_put(&t->endpoints, content->endpoints[i].name, e);
    }
    for (size_t i = 0; i < content->service_count; i++) {
        mr_map_put(&t->services, content->services[i].name,
                   (void *)(uintptr_t)&content->services[i]);
    }
    return t;
}

static void take_file(struct endpoints *es, struct mr_service_file *content,
                      const struct endpoint_remotes *remotes)
{
    struct endpoint_table *old = atomic_load_explicit(&es->table, memory_order_relaxed);

    pthread_mutex_lock(&es->mutex);
    struct endpoint_table *t = table_new(es, old, content, remotes);
    /* release: a loop that finds the table sees what is in it */
    atomic_store_explicit(&es->table, t, memory_order_release);
    pthread_mutex_unlock(&es->mutex);
    mr_log(MR_LOG_INFO, "endpoints.read", "file=%s endpoints=%zu services=%zu", es->path,
           content->endpoint_count, content->service_count);
    es->ticks = 0;
    if (old) {
        mr_epoch_wait(mr_models_epoch(es->models));
        pthread_mutex_lock(&es->mutex);
        table_free(&old);
        pthread_mutex_unlock(&es->mutex);
    }
}

/* ---- the thread ---- */

static void reload(struct endpoints *es)
{
    struct mr_service_file *f;
    struct endpoint_remotes remotes;
    struct mr_err err = {0};
    const int rc = load_file(es, &f, &remotes, &err);

    pthread_mutex_lock(&es->mutex);
    es->reloads += rc == MR_OK;
    es->reload_failures += rc < 0;
    pthread_mutex_unlock(&es->mutex);
    if (rc < 0) {
        mr_log(MR_LOG_ERROR, "endpoints.failed", "%s: what was read before stays", err.msg);
    } else {
        take_file(es, f, &remotes);
    }
}

/* A model of an endpoint's name that came later, in a repository that is watched. */
static void warn_of_model(struct endpoints *es, struct endpoint *e)
{
    struct mr_version *v;
    struct mr_err ignored;

    if (e->has_warned ||
        mr_models_acquire(es->models, e->config->name, MR_STR(""), &v, &ignored) < 0) {
        return;
    }
    mr_version_unpin(v, MR_EPOCH_SLOT_NONE);
    e->has_warned = true;
    mr_log(MR_LOG_WARN, "endpoint.hides_model",
           "endpoint=%s a model of this name is loaded, and requests go to the endpoint",
           MR_LOG_STR(e->config->name));
}

/* The mutex is held. */
static void tick(struct endpoints *es)
{
    struct endpoint *e, *next;

    if (es->ticks++ % REMOTE_TICKS == 0) {
        endpoint_remotes_ask(&atomic_load_explicit(&es->table, memory_order_relaxed)->file->remotes,
                             es->models);
    }
    for (e = SLIST_FIRST(&es->all); e; e = next) {
        next = SLIST_NEXT(e, link);
        if (!e->is_listed) {
            if (endpoint_is_idle(es, e)) {
                SLIST_REMOVE(&es->all, e, endpoint, link);
                endpoint_free(es, e);
            }
            continue;
        }
        warn_of_model(es, e);
        if (!mr_rollout_is_active(&e->rollout)) {
            continue;
        }
        const uint64_t events = e->rollout.event_count;
        endpoint_sums(es, e, es->sums);
        mr_rollout_tick(&e->rollout, endpoints_now(), es->sums);
        if (e->rollout.event_count != events) {
            endpoint_apply(e);
        }
    }
}

/* Whether the file or its rights have changed since the last look. */
static bool has_changed(const char *path, struct stat *last)
{
    struct stat now;

    if (stat(path, &now) != 0) {
        return false; /* while an editor replaces it */
    }
    const bool is_same = now.st_ino == last->st_ino && now.st_size == last->st_size &&
                         now.st_ctim.tv_sec == last->st_ctim.tv_sec &&
                         now.st_ctim.tv_nsec == last->st_ctim.tv_nsec;
    *last = now;
    return !is_same;
}

static void *run(void *arg)
{
    struct endpoints *es = arg;
    struct stat seen = {0};
    struct timespec until;

    has_changed(es->path, &seen);
    pthread_mutex_lock(&es->mutex);
    while (!es->is_stopping) {
        const bool is_asked = es->is_reload_asked;
        es->is_reload_asked = false;
        tick(es);
        pthread_mutex_unlock(&es->mutex);
        if (has_changed(es->path, &seen) || is_asked) {
            reload(es);
        }
        clock_gettime(CLOCK_MONOTONIC, &until);
        const int64_t at = (int64_t)until.tv_nsec + TICK_NS;
        until.tv_sec += at / MR_NS_PER_S;
        until.tv_nsec = at % MR_NS_PER_S;
        pthread_mutex_lock(&es->mutex);
        if (!es->is_stopping && !es->is_reload_asked) {
            pthread_cond_timedwait(&es->wake, &es->mutex, &until);
        }
    }
    pthread_mutex_unlock(&es->mutex);
    return NULL;
}

static void ask(struct endpoints *es, bool *what)
{
    pthread_mutex_lock(&es->mutex);
    *what = true;
    pthread_cond_signal(&es->wake);
    pthread_mutex_unlock(&es->mutex);
}

void endpoints_reload(struct endpoints *es)
{
    ask(es, &es->is_reload_asked);
}

int endpoints_open(struct endpoints **out, struct mr_engine *engine, const char *path,
                   unsigned loop_count, struct mr_err *err)
{
    struct endpoints *es = MR_NEW(struct endpoints);
    struct mr_service_file *f;
    struct endpoint_remotes remotes;
    pthread_condattr_t clock;
    int rc;

    es->engine = engine;
    es->models = mr_engine_models(engine);
    es->path = path;
    es->loop_count = loop_count;
    pthread_mutex_init(&es->mutex, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&es->wake, &clock);
    pthread_condattr_destroy(&clock);
    MR_TRY(load_file(es, &f, &remotes, err));
    take_file(es, f, &remotes);
    MR_TRY(mr_thread_start(&es->thread, "endpoints", run, es, err));
    es->is_started = true;
    *out = es;
    es = NULL;
out:
    endpoints_free(&es);
    return rc;
}

void endpoints_stop(struct endpoints *es)
{
    struct endpoint *e;

    if (!es || !es->is_started) {
        return;
    }
    ask(es, &es->is_stopping);
    pthread_join(es->thread, NULL);
    es->is_started = false;
    SLIST_FOREACH(e, &es->all, link)
    {
        if (e->shadow) {
            mr_shadow_stop(e->shadow);
        }
    }
}

void endpoints_free(struct endpoints **endpoints)
{
    struct endpoints *es = *endpoints;
    struct endpoint *e;

    *endpoints = NULL;
    if (!es) {
        return;
    }
    endpoints_stop(es);
    struct endpoint_table *t = atomic_load_explicit(&es->table, memory_order_relaxed);
    table_free(&t);
    while ((e = SLIST_FIRST(&es->all)) != NULL) {
        SLIST_REMOVE_HEAD(&es->all, link);
        if (e->shadow && !mr_shadow_is_idle(e->shadow)) {
            continue; /* cut off: its model still runs, and the process is about to end */
        }
        endpoint_free(es, e);
    }
    pthread_cond_destroy(&es->wake);
    pthread_mutex_destroy(&es->mutex);
    mr_free(es);
}
