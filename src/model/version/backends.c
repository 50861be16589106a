/* Backend libraries: each is opened at its first use and stays open until the manager is freed.
 *
 * Opening one may take a second (it maps a run-time and starts its threads), so it happens outside
 * the lock; loaders that need the same library wait for it, others go on. A library that failed to
 * open is tried again at the next load. Thread: loaders; may block. */
#include "backends.h"

#include "base/log.h"
#include "model/interpreter/interpreter.h"
#include "model/records/job.h"
#include "model/records/load_history.h"
#include "placement.h"
#include "plugin/plugin.h"
#include "process/confine.h"
#include "sentinel/sentinel.h"

struct mr_model_backend {
    struct mr_model_backend *next;
    char *name;
    struct mr_plugin *plugin; /* NULL while one thread opens it */
};

#define ARENA_LIMIT ((size_t)4 << 20) /* of a command and its environment */

static struct mr_model_backend **backend_find(struct mr_models *m, const char *name)
{
    struct mr_model_backend **at = &m->backends;

    while (*at && strcmp((*at)->name, name) != 0) {
        at = &(*at)->next;
    }
    return at;
}

static const struct mr_setting *settings_of(const struct mr_models_options *o, const char *name,
                                            size_t *out_count)
{
    const struct mr_setting *settings = NULL;

    *out_count = 0;
    for (size_t i = 0; i < o->backend_setting_name_count; i++) {
        if (strcmp(o->backend_setting_names[i], name) == 0) {
            settings = o->backend_settings[i];
            *out_count = o->backend_setting_counts[i];
        }
    }
    return settings;
}

static int backend_open(struct mr_models *m, const char *name, struct mr_plugin **out,
                        struct mr_err *err)
{
    const struct mr_models_options *o = &m->o;
    size_t setting_count;
    const struct mr_setting *settings = settings_of(o, name, &setting_count);

    return mr_plugin_open(out, mr_str_c(name), o->backend_dirs, o->backend_dir_count, settings,
                          setting_count, err);
}

static int backend_get(struct mr_models *m, const char *name, struct mr_plugin **out,
                       struct mr_err *err)
{
    struct mr_plugin *plugin = NULL;

    pthread_mutex_lock(&m->backends_lock);
    struct mr_model_backend *b = *backend_find(m, name);
    while (b && !b->plugin) {
        pthread_cond_wait(&m->backend_opened, &m->backends_lock);
        b = *backend_find(m, name); /* gone if it failed */
    }
    if (b) {
        *out = b->plugin;
        pthread_mutex_unlock(&m->backends_lock);
        return MR_OK;
    }
    b = MR_NEW(struct mr_model_backend);
    b->name = mr_strndup(name, strlen(name));
    b->next = m->backends;
    m->backends = b;
    pthread_mutex_unlock(&m->backends_lock);

    int rc = backend_open(m, name, &plugin, err);

    pthread_mutex_lock(&m->backends_lock);
    if (rc == MR_OK) {
        b->plugin = plugin;
        *out = plugin;
    } else {
        *backend_find(m, name) = b->next;
        mr_free(b->name);
        mr_free(b);
    }
    pthread_cond_broadcast(&m->backend_opened);
    pthread_mutex_unlock(&m->backends_lock);
    return rc;
}

static uint32_t instance_count(const Inference__ModelConfig *c)
{
    uint64_t count = 0;

    for (size_t i = 0; i < c->n_instance_group; i++) {
        count += (uint64_t)MR_MAX(c->instance_group[i]->count, 1);
    }
    return (uint32_t)MR_MAX(1, MR_MIN(count, MR_WORKERS_MAX + 1)); /* more are refused later */
}

/* Whether the model may know a sequence from one request to the next, which the server then does not. */
static bool may_keep_state(const Inference__ModelConfig *c)
{
    const Inference__ModelSequenceBatching *q = mr_config_sequences(c);

    return q && q->n_state == 0;
}

#define STANDBY "worker_standby"

static int standby_count(const Inference__ModelConfig *c, struct mr_sentinel_model_args *args,
                         struct mr_err *err)
{
    const char *text = mr_config_parameter(c, STANDBY);
    const uint32_t most =
        args->instance_count < MR_WORKERS_MAX ? MR_WORKERS_MAX - args->instance_count : 0;
    uint64_t count = 0;

    if (text && (!mr_str_to_u64(mr_str_c(text), &count) || count > most)) {
        return MR_FAIL(err, MR_E_INVALID, "parameter " STANDBY " is '%.64s', allowed are 0 to %u",
                       text, most);
    }
    if (count > 0 && args->may_keep_state) {
        return MR_FAIL(err, MR_E_INVALID,
                       "parameter " STANDBY ": a worker that keeps sequences has no substitute");
    }
    args->standby_count = (uint32_t)count;
    return MR_OK;
}

/* The place of the load, which it leaves while an environment is being made. */
struct place {
    struct mr_models *m;
    struct mr_job *job;
};

static void place_on_wait(void *ctx, bool is_over)
{
    const struct place *p = ctx;

    pthread_mutex_lock(&p->m->lock);
    if (is_over) {
        mr_load_place_take(p->m, p->job);
    } else {
        mr_load_place_leave(p->m, p->job);
    }
    pthread_mutex_unlock(&p->m->lock);
}

/* A Python model: its worker is the interpreter. */
static int python_prepare(struct mr_sentinel_model_args *args, struct mr_arena *arena,
                          struct mr_models *m, const Inference__ModelConfig *c,
                          struct mr_version_private *p, struct mr_err *err)
{
    struct place place = {m, p->entry->job};
    const struct interpreter_args find = {.options = &m->o,
                                          .cache = m->cache,
                                          .config = c,
                                          .desc = args->desc,
                                          .top = p->archive ? p->archive->top : NULL,
                                          .on_wait = place_on_wait,
                                          .ctx = &place};
    struct interpreter found;
    const int rc = interpreter_find(&found, arena, &find, err);

    if (rc == MR_OK) {
        p->environment = found.held;
        args->command = found.command;
        args->environment = found.environment;
        args->may_wait = true;
        args->confine_less =
            m->o.worker_confine_is_chosen ? 0 : MR_CONFINE_LANDLOCK | MR_CONFINE_SECCOMP;
    }
    return rc;
}

int mr_backend_model_open(struct mr_models *m, const Inference__ModelConfig *c,
                          enum mr_placement placement, const struct mr_model_desc *desc,
                          struct mr_version_private *p, struct mr_err *err)
{
    struct mr_executor **out = &p->v.executor;
    const char *backend = c->backend;
    struct mr_plugin *plugin = NULL;
    struct mr_sentinel *sentinel = NULL;
    struct mr_arena arena;
    int rc;

    if (placement == MR_PLACEMENT_THREAD) {
        rc = backend_get(m, backend, &plugin, err);
        return rc < 0 ? rc : mr_plugin_model_open(out, plugin, desc, err);
    }
    struct mr_sentinel_model_args args = {.backend = backend,
                                          .backend_dirs = m->o.backend_dirs,
                                          .backend_dir_count = m->o.backend_dir_count,
                                          .desc = desc,
                                          .may_keep_state = may_keep_state(c),
                                          .instance_count = instance_count(c)};
    mr_arena_init(&arena, 4096, ARENA_LIMIT);
    MR_TRY(standby_count(c, &args, err));
    args.settings = settings_of(&m->o, backend, &args.setting_count);
    MR_TRY(mr_plugin_find(mr_str_c(backend), m->o.backend_dirs, m->o.backend_dir_count, err));
    if (interpreter_is_needed(backend)) {
        MR_TRY(python_prepare(&args, &arena, m, c, p, err));
    }
    MR_TRY(mr_models_sentinel(m, &sentinel, err));
    MR_TRY(mr_sentinel_model_open(out, sentinel, &args, err));
out:
    mr_arena_fini(&arena);
    return rc;
}

/* Those of Triton, whose command lines have settings for them. */
static bool is_tritons(const char *name)
{
    static const char *const names[] = {"armnn_tflite", "dali",        "ensemble", "fil",
                                        "hugectr",      "identity",    "openvino", "python",
                                        "pytorch",      "repeat",      "square",   "tensorflow",
                                        "tensorflow1",  "tensorflow2", "tensorrt", "tensorrtllm",
                                        "tensorrt_llm", "torch_aoti",  "vllm"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static int name_check(const struct mr_models_options *o, const char *option, const char *name,
                      struct mr_err *err)
{
    int rc = mr_plugin_find(mr_str_c(name), o->backend_dirs, o->backend_dir_count, err);

    if (rc == MR_E_NOT_FOUND && is_tritons(name)) {
        mr_log(MR_LOG_WARN, "backend.absent", "backend=%s --%s has no effect: %s",
               MR_LOG_STR(mr_str_c(name)), option, err->msg);
        return MR_OK;
    }
    return rc < 0 ? MR_WRAP(err, MR_E_INVALID,
                            "--%s=%.64s: `millrace doctor` lists the backends that there are",
                            option, name)
                  : MR_OK;
}

int mr_backends_check(const struct mr_models_options *o, struct mr_err *err)
{
    int rc = MR_OK;

    for (size_t i = 0; i < o->backend_setting_name_count && rc == MR_OK; i++) {
        rc = name_check(o, "backend-config", o->backend_setting_names[i], err);
    }
    for (size_t i = 0; i < o->allowed_backend_count && rc == MR_OK; i++) {
        rc = name_check(o, "allow-backend", o->allowed_backends[i], err);
    }
    return rc < 0 ? rc : mr_placements_check(o, err);
}

bool mr_backend_is_open(struct mr_models *m, const char *name)
{
    pthread_mutex_lock(&m->backends_lock);
    const struct mr_model_backend *b = *backend_find(m, name);
    bool is_open = b && b->plugin;
    pthread_mutex_unlock(&m->backends_lock);
    return is_open;
}

void mr_backends_close(struct mr_models *m)
{
    struct mr_sentinel *sentinel = atomic_load_explicit(&m->sentinel, memory_order_acquire);

    mr_sentinel_free(&sentinel);
    while (m->backends) {
        struct mr_model_backend *b = m->backends;
        m->backends = b->next;
        mr_plugin_close(&b->plugin);
        mr_free(b->name);
        mr_free(b);
    }
}
