/* Repositories made for a test, a manager over them, and waiting for what it does.
 *
 * A fixture owns a temporary folder with up to two repositories in it and at most one manager. The
 * test's thread is reader 0 and online only inside look(). */
#ifndef MR_TEST_MODEL_HARNESS_H
#define MR_TEST_MODEL_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "model/manager/jobs.h"
#include "model/records/records.h"

/* What comes at all comes sooner, on a machine that has much else to do as well. */
#define PATIENCE_NS (300 * MR_NS_PER_S)

#define IO_TEXT                                                                                    \
    "input [ { name: \"INPUT0\" data_type: TYPE_INT32 dims: [ 4 ] } ]\n"                           \
    "output [ { name: \"OUTPUT0\" data_type: TYPE_INT32 dims: [ 4 ] } ]\n"
#define IDENTITY_TEXT "backend: \"identity\"\nmax_batch_size: 4\n" IO_TEXT
#define FAULT_TEXT(key, value)                                                                     \
    "backend: \"fault\"\nparameters { key: \"" key "\" value { string_value: \"" value             \
    "\" } }\n" IO_TEXT

struct change {
    char model[64];
    char reason[512];
    int64_t version;
    enum mr_version_state state;
};

struct fixture {
    char *dir;
    char repo[2][PATH_MAX / 2];
    const char *repos[2];
    char backends[2][PATH_MAX / 2];
    const char *backend_dirs[2];
    struct mr_models_options o;
    struct mr_models *m;
    size_t failed;            /* of start */
    _Atomic int serve_status; /* what hooks.serve returns */
    const char *_Atomic hold; /* hooks.serve waits while this is the model's name */
    _Atomic int held;         /* calls that wait so */
    _Atomic int served;
    _Atomic int unserved;
    _Atomic bool holds;       /* what hooks.holds returns */
    _Atomic int64_t hastened; /* the last version for which hooks.hasten was called */
    pthread_mutex_t lock;
    struct change changes[1000];
    size_t change_count;
    pthread_cond_t changed; /* CLOCK_MONOTONIC */
    uint64_t changes_seen;  /* all calls of hooks.changed */
};

/* ---- files ---- */

static inline void fx_path(char out[PATH_MAX], const struct fixture *f, int repo, const char *path)
{
    snprintf(out, PATH_MAX, "%s/%s", f->repo[repo], path);
}

/* Folders on the way included. */
static inline void fx_write(struct fixture *f, int repo, const char *path, const char *text)
{
    char full[PATH_MAX];
    fx_path(full, f, repo, path);
    for (char *p = full + strlen(f->repo[repo]) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        assert_true(mkdir(full, 0755) == 0 || errno == EEXIST);
        *p = '/';
    }
    if (full[strlen(full) - 1] == '/') {
        return;
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    fclose(file);
}

static inline int fx_remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static inline void fx_remove(struct fixture *f, int repo, const char *path)
{
    char full[PATH_MAX];
    fx_path(full, f, repo, path);
    nftw(full, fx_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void fx_link(struct fixture *f, int repo, const char *target, const char *path)
{
    char full[PATH_MAX];
    fx_path(full, f, repo, path);
    assert_int_equal(symlink(target, full), 0);
}

/* From the second repository to the first, whole at once. */
static inline void fx_move(struct fixture *f, const char *path)
{
    char from[PATH_MAX];
    char to[PATH_MAX];
    fx_path(from, f, 1, path);
    fx_path(to, f, 0, path);
    assert_int_equal(rename(from, to), 0);
}

/* As a disk that is not mounted any more. */
static inline void fx_take_away(struct fixture *f, int repo)
{
    char to[PATH_MAX];
    snprintf(to, sizeof to, "%s.away", f->repo[repo]);
    assert_int_equal(rename(f->repo[repo], to), 0);
}

/* A model with a config and one version folder. */
static inline void fx_model(struct fixture *f, int repo, const char *name, const char *config,
                            int version)
{
    char path[256];
    if (config) {
        snprintf(path, sizeof path, "%s/config.pbtxt", name);
        fx_write(f, repo, path, config);
    }
    snprintf(path, sizeof path, "%s/%d/weights.bin", name, version);
    fx_write(f, repo, path, "weights");
}

/* ---- hooks ---- */

static inline int fx_serve(void *ctx, struct mr_version *v, struct mr_err *err)
{
    struct fixture *f = ctx;
    assert_int_equal(atomic_load(&v->state), MR_VERSION_WARMING);
    assert_null(v->sched);
    atomic_fetch_add(&f->held, 1);
    for (const char *hold; (hold = atomic_load(&f->hold)) && mr_str_eq_c(v->model_name, hold);) {
        usleep(1000);
    }
    atomic_fetch_sub(&f->held, 1);
    if (f->serve_status < 0) {
        return MR_FAIL(err, f->serve_status, "warm-up failed as configured");
    }
    v->sched = f;
    atomic_fetch_add(&f->served, 1);
    return MR_OK;
}

static inline void fx_unserve(void *ctx, struct mr_version *v)
{
    struct fixture *f = ctx;
    assert_ptr_equal(v->sched, f);
    v->sched = NULL;
    atomic_fetch_add(&f->unserved, 1);
}

static inline bool fx_holds(void *ctx, const struct mr_version *v)
{
    struct fixture *f = ctx;
    (void)v;
    return f->holds;
}

static inline void fx_hasten(void *ctx, struct mr_version *v)
{
    struct fixture *f = ctx;
    f->hastened = v->number;
}

static inline void fx_changed(void *ctx, const struct mr_version_change *change)
{
    struct fixture *f = ctx;
    pthread_mutex_lock(&f->lock);
    if (f->change_count < sizeof f->changes / sizeof *f->changes) {
        struct change *c = &f->changes[f->change_count++];
        snprintf(c->model, sizeof c->model, "%.*s", MR_STR_ARG(change->model));
        snprintf(c->reason, sizeof c->reason, "%.*s", MR_STR_ARG(change->reason));
        c->version = change->version;
        c->state = change->state;
    }
    f->changes_seen++;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

/* "m:1 LOADING,m:1 WARMING,m:1 READY" since the last call. */
static inline const char *fx_changes(struct fixture *f)
{
    static char text[8192];
    size_t used = 0;
    text[0] = '\0';
    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; i < f->change_count; i++) {
        const struct change *c = &f->changes[i];
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s:%lld %s", i ? "," : "",
                                 c->model, (long long)c->version, mr_version_state_name(c->state));
    }
    f->change_count = 0;
    pthread_mutex_unlock(&f->lock);
    return text;
}

/* ---- life of the fixture ---- */

static inline int fx_setup(void **state)
{
    struct fixture *f = mr_alloc(sizeof *f);
    const char *build = getenv("MR_BUILD_DIR");
    f->dir = mr_path_join("/tmp", MR_STR("millrace-test-XXXXXX"));
    assert_non_null(mkdtemp(f->dir));
    for (int i = 0; i < 2; i++) {
        snprintf(f->repo[i], sizeof f->repo[i], "%s/repo%d", f->dir, i);
        assert_int_equal(mkdir(f->repo[i], 0755), 0);
        f->repos[i] = f->repo[i];
    }
    for (int i = 0; i < 2; i++) {
        snprintf(f->backends[i], sizeof f->backends[i], "%s/%s", build ? build : ".",
                 i == 0 ? "lib/millrace" : "tests/unit/model_backends");
        f->backend_dirs[i] = f->backends[i];
    }
    pthread_mutex_init(&f->lock, NULL);
    f->changes_seen = 0;
    pthread_condattr_t by_monotonic;
    pthread_condattr_init(&by_monotonic);
    pthread_condattr_setclock(&by_monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&f->changed, &by_monotonic);
    pthread_condattr_destroy(&by_monotonic);
    mr_models_options_init(&f->o);
    f->o.repositories = f->repos;
    f->o.repository_count = 1;
    f->o.backend_dirs = f->backend_dirs;
    f->o.backend_dir_count = 2;
    f->o.reader_count = 4;
    f->o.control = MR_MODEL_CONTROL_EXPLICIT;
    mr_log_set_enabled(MR_LOG_WARN, false);
    mr_log_set_enabled(MR_LOG_INFO, false);
    *state = f;
    return 0;
}

static inline void fx_start(struct fixture *f)
{
    const struct mr_model_hooks hooks = {.serve = fx_serve,
                                         .unserve = fx_unserve,
                                         .changed = fx_changed,
                                         .holds = fx_holds,
                                         .hasten = fx_hasten,
                                         .ctx = f};
    struct mr_err err = {0};
    if (mr_models_new(&f->m, &f->o, &hooks, &err) < 0 ||
        mr_models_start(f->m, &f->failed, &err) < 0) {
        fail_msg("%s", err.msg);
    }
}

static inline void fx_stop(struct fixture *f)
{
    if (f->m) {
        atomic_store(&f->hold, NULL);
        assert_int_equal(mr_models_stop(f->m, PATIENCE_NS), 0);
        mr_models_free(&f->m);
        assert_null(f->m);
        assert_int_equal(atomic_load(&f->served), atomic_load(&f->unserved));
    }
}

static inline int fx_teardown(void **state)
{
    struct fixture *f = *state;
    fx_stop(f);
    nftw(f->dir, fx_remove_one, 16, FTW_DEPTH | FTW_PHYS);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    mr_free(f->dir);
    mr_free(f);
    return 0;
}

/* ---- control ---- */

struct answer {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool is_there;
    int rc;
    struct mr_err err;
};

static inline void answer_init(struct answer *a)
{
    *a = (struct answer){0};
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->cond, NULL);
}

static inline void answer_take(void *ctx, int rc, const struct mr_err *err)
{
    struct answer *a = ctx;
    pthread_mutex_lock(&a->lock);
    assert_false(a->is_there);
    a->is_there = true;
    a->rc = rc;
    a->err = *err;
    pthread_cond_signal(&a->cond);
    pthread_mutex_unlock(&a->lock);
}

static inline int answer_wait(struct answer *a)
{
    pthread_mutex_lock(&a->lock);
    while (!a->is_there) {
        pthread_cond_wait(&a->cond, &a->lock);
    }
    pthread_mutex_unlock(&a->lock);
    return a->rc;
}

static inline int fx_load_with(struct fixture *f, mr_str name, const char *json,
                               const struct mr_load_file *files, size_t count, struct mr_err *err)
{
    struct answer a;
    answer_init(&a);
    const struct mr_load_request q = {
        .config_json = json ? mr_str_c(json) : (mr_str){0}, .files = files, .file_count = count};
    mr_models_load(f->m, name, &q, answer_take, &a);
    int rc = answer_wait(&a);
    *err = a.err;
    return rc;
}

static inline int fx_load(struct fixture *f, const char *name, struct mr_err *err)
{
    return fx_load_with(f, mr_str_c(name), NULL, NULL, 0, err);
}

/* Loads and insists. */
static inline void fx_must_load(struct fixture *f, const char *name)
{
    struct mr_err err = {0};
    if (fx_load(f, name, &err) < 0) {
        fail_msg("%s: %s", name, err.msg);
    }
}

static inline int fx_unload(struct fixture *f, const char *name)
{
    struct answer a;
    answer_init(&a);
    mr_models_unload(f->m, mr_str_c(name), false, answer_take, &a);
    return answer_wait(&a);
}

/* ---- looking ---- */

static inline int fx_find(struct fixture *f, const char *name, const char *version, int64_t *number,
                          struct mr_err *err)
{
    struct mr_version *v = NULL;
    mr_epoch_online(mr_models_epoch(f->m));
    int rc = mr_models_find(f->m, mr_str_c(name), mr_str_c(version), &v, err);
    if (rc == MR_OK) {
        *number = v->number;
    }
    mr_epoch_offline(mr_models_epoch(f->m));
    return rc;
}

/* The newest ready version, 0 = none. */
static inline int64_t fx_newest(struct fixture *f, const char *name)
{
    int64_t number = 0;
    return fx_find(f, name, "", &number, NULL) == MR_OK ? number : 0;
}

/* "1,2" */
static inline const char *fx_ready(struct fixture *f, const char *name)
{
    static char text[256];
    const struct mr_version *list[16];
    size_t used = 0;
    text[0] = '\0';
    mr_epoch_online(mr_models_epoch(f->m));
    size_t n = mr_models_ready_versions(f->m, mr_str_c(name), list, 16);
    for (size_t i = 0; i < n; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%.*s", i ? "," : "",
                                 MR_STR_ARG(list[i]->number_text));
    }
    mr_epoch_offline(mr_models_epoch(f->m));
    return text;
}

struct index_text {
    char text[16384];
    size_t used;
};

static inline void index_add(void *ctx, const struct mr_model_report *r)
{
    struct index_text *t = ctx;
    t->used += (size_t)snprintf(t->text + t->used, sizeof t->text - t->used, "%s%.*s",
                                t->used ? "; " : "", MR_STR_ARG(r->name));
    if (r->never_loaded) {
        return;
    }
    t->used += (size_t)snprintf(t->text + t->used, sizeof t->text - t->used, ":%lld %s",
                                (long long)r->version, mr_version_state_triton(r->state));
    if (r->reason.len) {
        t->used += (size_t)snprintf(t->text + t->used, sizeof t->text - t->used, " (%.*s)",
                                    MR_STR_ARG(r->reason));
    }
    if (r->warning.len) {
        t->used += (size_t)snprintf(t->text + t->used, sizeof t->text - t->used, " !%.*s",
                                    MR_STR_ARG(r->warning));
    }
}

/* "a:1 READY; b:0 UNAVAILABLE (reason); c" */
static inline const char *fx_index(struct fixture *f)
{
    static struct index_text t;
    t = (struct index_text){0};
    pthread_mutex_lock(&f->m->lock);
    f->m->names_ns = 0; /* no second's wait for new folders */
    pthread_mutex_unlock(&f->m->lock);
    mr_models_report(f->m, index_add, &t);
    return t.text;
}

/* How often hooks.changed was called. What it tells is in the table before. */
static inline uint64_t fx_seen(struct fixture *f)
{
    pthread_mutex_lock(&f->lock);
    const uint64_t seen = f->changes_seen;
    pthread_mutex_unlock(&f->lock);
    return seen;
}

/* Waits for a change after the first `seen` ones. False: there is none. */
static inline bool fx_wait_change(struct fixture *f, uint64_t seen)
{
    const int64_t until = mr_now_ns() + PATIENCE_NS;
    const struct timespec ts = {until / MR_NS_PER_S, until % MR_NS_PER_S};
    int rc = 0;
    pthread_mutex_lock(&f->lock);
    while (f->changes_seen == seen && rc == 0) {
        rc = pthread_cond_timedwait(&f->changed, &f->lock, &ts);
    }
    pthread_mutex_unlock(&f->lock);
    return rc == 0;
}

static inline void fx_wait_newest(struct fixture *f, const char *name, int64_t number)
{
    for (uint64_t seen = fx_seen(f); fx_newest(f, name) != number; seen = fx_seen(f)) {
        if (!fx_wait_change(f, seen)) {
            fail_msg("%s: waited for %lld, has %lld; %s", name, (long long)number,
                     (long long)fx_newest(f, name), fx_index(f));
        }
    }
}

/* Looks every 5 ms: the index also changes without a call of hooks.changed, when a model is forgotten or a model that
 * serves gets an error. */
static inline void fx_wait_index(struct fixture *f, const char *part)
{
    int64_t until = mr_now_ns() + PATIENCE_NS;
    while (!strstr(fx_index(f), part)) {
        if (mr_now_ns() > until) {
            fail_msg("waited for '%s' in '%s'", part, fx_index(f));
        }
        usleep(5000);
    }
}

/* Waits until no job is open and no retired version is left. */
static inline void fx_drained(struct fixture *f)
{
    mr_jobs_wait(f->m, INT64_MAX);
    pthread_mutex_lock(&f->m->lock);
    while (f->m->draining > 0) {
        pthread_cond_wait(&f->m->idle, &f->m->lock);
    }
    pthread_mutex_unlock(&f->m->lock);
    mr_changes_report(f->m);
}

#define fx_test(name) cmocka_unit_test_setup_teardown(name, fx_setup, fx_teardown)

#endif
