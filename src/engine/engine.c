/* Making and ending an engine: its models, with schedulers for their versions. */
#include "engine_priv.h"

#include "base/mem.h"

#define RESOLVING_MAX 4096

/* ---- hooks of the models, on loader threads ---- */

static int hook_serve(void *ctx, struct mr_version *v, struct mr_err *err)
{
    struct mr_engine *e = ctx;
    struct mr_sched_options o = e->options.sched;

    o.reader_count = e->options.models.reader_count;
    o.warmup_budget = v->is_first ? &e->start_warmup : NULL;
    return mr_sched_open(v, &o, err);
}

static void hook_unserve(void *ctx, struct mr_version *v)
{
    (void)ctx;
    mr_sched_close(v);
}

static bool hook_holds(void *ctx, const struct mr_version *v)
{
    (void)ctx;
    return mr_sched_sequences(v) > 0;
}

static void hook_hasten(void *ctx, struct mr_version *v)
{
    (void)ctx;
    mr_sched_hasten(v);
}

static void hook_changed(void *ctx, const struct mr_version_change *change)
{
    struct mr_engine *e = ctx;

    if (e->options.changed) {
        e->options.changed(e->options.ctx, change);
    }
}

static void hook_ready_changed(void *ctx)
{
    struct mr_engine *e = ctx;

    if (e->options.ready_changed) {
        e->options.ready_changed(e->options.ctx);
    }
}

/* ---- life ---- */

int mr_engine_new(struct mr_engine **out, const struct mr_engine_options *options,
                  struct mr_err *err)
{
    struct mr_engine *e = MR_NEW(struct mr_engine);
    const struct mr_model_hooks hooks = {.serve = hook_serve,
                                         .unserve = hook_unserve,
                                         .changed = hook_changed,
                                         .ready_changed = hook_ready_changed,
                                         .holds = hook_holds,
                                         .hasten = hook_hasten,
                                         .ctx = e};

    e->options = *options;
    e->options.max_resolving = options->max_resolving ? options->max_resolving : RESOLVING_MAX;
    e->no_loop = (struct mr_reply_loop){.epoch_slot = MR_EPOCH_SLOT_NONE};
    atomic_init(&e->start_warmup.left_ns, options->start_warmup_ns);
    pthread_mutex_init(&e->mutex, NULL);
    deadlock_init(&e->deadlock);
    engine_shadows_begin(&e->shadows);
    LIST_INIT(&e->waits);
    e->caller = engine_caller(e);
    e->options.models.worker_caller = &e->caller;
    e->options.models.maker.ctx = e;
    int rc = mr_ops_open(options->op_dirs, options->op_dir_count, &e->ops, err);
    if (rc == MR_OK) {
        rc = mr_models_new(&e->models, &e->options.models, &hooks, err);
    }
    if (rc < 0) {
        mr_engine_free(&e);
        return rc;
    }
    *out = e;
    return MR_OK;
}

void mr_engine_drain(struct mr_engine *e)
{
    resolve_drain(e);
    mr_models_loads_end(e->models);
}

size_t mr_engine_stop(struct mr_engine *e, int64_t timeout_ns)
{
    mr_engine_drain(e);
    return mr_models_stop(e->models, timeout_ns);
}

void mr_engine_free(struct mr_engine **engine)
{
    struct mr_engine *e = *engine;

    if (!e) {
        return;
    }
    if (e->models && mr_engine_stop(e, 0) > 0) {
        mr_models_free(&e->models);
        *engine = NULL; /* versions in use may still use the engine */
        return;
    }
    engine_shadows_end(&e->shadows);
    mr_models_free(&e->models);
    mr_ops_close(&e->ops);
    pthread_mutex_destroy(&e->mutex);
    deadlock_fini(&e->deadlock);
    mr_freep(engine);
}

struct mr_models *mr_engine_models(struct mr_engine *e)
{
    return e->models;
}

const struct mr_ops *mr_engine_ops(const struct mr_engine *e)
{
    return e->ops;
}
