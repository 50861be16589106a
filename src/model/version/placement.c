/* Where a model runs: in threads of the server, or in worker processes.
 *
 * Its configuration says so, or the option of its backend; without either, the backends that come with the server run
 * in threads, and all others, whose code is foreign, in processes. A backend of the latter is not loaded into the server
 * at all. Thread: loaders. */
#include "placement.h"

#include "model/interpreter/interpreter.h"
#include "sentinel/sentinel.h"

#define PARAMETER "execution_placement"

static const char *const shipped[] = {"fault", "identity", "lightgbm", "onnxruntime", "xgboost"};

static bool is_shipped(const char *backend)
{
    for (size_t i = 0; i < sizeof shipped / sizeof *shipped; i++) {
        if (strcmp(shipped[i], backend) == 0) {
            return true;
        }
    }
    return false;
}

static bool parse(const char *text, enum mr_placement *out)
{
    *out = strcmp(text, "process") == 0 ? MR_PLACEMENT_PROCESS : MR_PLACEMENT_THREAD;
    return *out == MR_PLACEMENT_PROCESS || strcmp(text, "thread") == 0;
}

/* What the option says of the backend. False: nothing. */
static bool option_of(const struct mr_models_options *o, const char *backend,
                      enum mr_placement *out)
{
    const size_t len = strlen(backend);
    bool found = false;

    for (size_t i = 0; i < o->backend_placement_count; i++) {
        const char *text = o->backend_placements[i];
        if (strncmp(text, backend, len) == 0 && text[len] == '=') {
            found = parse(text + len + 1, out);
        }
    }
    return found;
}

int mr_placements_check(const struct mr_models_options *o, struct mr_err *err)
{
    for (size_t i = 0; i < o->backend_placement_count; i++) {
        const char *equals = strchr(o->backend_placements[i], '=');
        enum mr_placement ignored;
        if (!equals || equals == o->backend_placements[i] || !parse(equals + 1, &ignored)) {
            return MR_FAIL(err, MR_E_INVALID,
                           "--backend-placement=%.128s: NAME=thread or NAME=process is needed",
                           o->backend_placements[i]);
        }
    }
    return MR_OK;
}

/* The interpreter is a program of its own. */
static int python_placement(const struct mr_models *m, bool wants_thread, enum mr_placement *out,
                            struct mr_err *err)
{
    if (wants_thread) {
        return MR_FAIL(err, MR_E_INVALID,
                       "parameter " PARAMETER " is 'thread': Python models run in processes");
    }
    *out = MR_PLACEMENT_PROCESS;
    return m->o.worker_program ? MR_OK
                               : MR_FAIL(err, MR_E_UNSUPPORTED,
                                         "Python models run in processes, which this command does "
                                         "not start; `millrace serve` does");
}

int mr_placement_of(const struct mr_models *m, const Inference__ModelConfig *c,
                    enum mr_placement *out, struct mr_err *err)
{
    const char *asked = mr_config_parameter(c, PARAMETER);

    if (asked && !parse(asked, out)) {
        return MR_FAIL(err, MR_E_INVALID,
                       "parameter " PARAMETER " is '%.64s', allowed are thread and process", asked);
    }
    if (interpreter_is_needed(c->backend)) {
        return python_placement(m, asked && *out == MR_PLACEMENT_THREAD, out, err);
    }
    if (!asked && !option_of(&m->o, c->backend, out)) {
        *out = is_shipped(c->backend) ? MR_PLACEMENT_THREAD : MR_PLACEMENT_PROCESS;
    }
    if (!m->o.worker_program) {
        *out = MR_PLACEMENT_THREAD; /* this command has no workers */
    }
    return MR_OK;
}

int mr_models_sentinel(struct mr_models *m, struct mr_sentinel **out, struct mr_err *err)
{
    const struct mr_sentinel_options o = {.worker_program = m->o.worker_program,
                                          .hang_ns = m->o.worker_hang_ns,
                                          .confine_steps = m->o.worker_confine,
                                          .memory_bytes = m->o.worker_memory,
                                          .cpu_hundredths = m->o.worker_cpu_hundredths,
                                          .cgroup = m->o.worker_cgroup,
                                          .user = m->o.worker_user,
                                          .write_dirs = m->o.worker_dirs,
                                          .ready_changed = m->hooks.ready_changed,
                                          .ready_ctx = m->hooks.ctx,
                                          .caller = m->o.worker_caller,
                                          .loop_doors = m->o.reader_doors,
                                          .loop_count = m->o.reader_doors ? m->o.reader_count : 0};
    int rc = MR_OK;

    pthread_mutex_lock(&m->backends_lock);
    *out = atomic_load_explicit(&m->sentinel, memory_order_relaxed);
    if (!*out && (rc = mr_sentinel_new(out, &o, err)) == MR_OK) {
        atomic_store_explicit(&m->sentinel, *out, memory_order_release);
    }
    pthread_mutex_unlock(&m->backends_lock);
    return rc;
}

size_t mr_models_take(struct mr_models *m, unsigned epoch_slot, bool *out_is_pending)
{
    struct mr_sentinel *s = atomic_load_explicit(&m->sentinel, memory_order_acquire);
    const size_t count = s ? mr_sentinel_take(s, epoch_slot) : 0;

    *out_is_pending = s && mr_sentinel_has_pending(s, epoch_slot);
    return count;
}

void mr_models_awake(struct mr_models *m, unsigned epoch_slot)
{
    struct mr_sentinel *s = atomic_load_explicit(&m->sentinel, memory_order_acquire);

    if (s) {
        mr_sentinel_awake(s, epoch_slot);
    }
}

void mr_models_metrics_print(struct mr_models *m, struct mr_buf *b)
{
    struct mr_sentinel *s = atomic_load_explicit(&m->sentinel, memory_order_acquire);

    if (s) {
        mr_metrics_print(mr_sentinel_metrics(s), b);
    }
}
