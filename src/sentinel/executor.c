/* A model in processes as the scheduler sees it: open, configure, one instance for each worker, close. Callers block here
 * until the watching thread has done the work. */
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "exec/exec.h"
#include "process/confine.h"
#include "process/folder.h"
#include "sentinel_priv.h"

#define ARENA_FIRST   4096
#define ARENA_LIMIT   ((size_t)256 << 20)
#define SLOTS         256u
#define MESSAGE_BYTES 65536u
#define ROOM_BYTES    65536u
/* Address space for large inputs and outputs; memory is taken as it is used, and counted in the budget. */
#define INPUT_BYTES  ((uint64_t)8 << 30)
#define BODY_BYTES   ((uint64_t)8 << 30)
#define OUTPUT_BYTES ((uint64_t)16 << 30)
#define POLL_NS      (20 * MR_NS_PER_MS)
#define UNWANTED_NS  MR_NS_PER_S

/* Waits for the progress of a worker, for a bounded time, as the load may be cancelled. Lock held. */
static void wait_moved(struct mr_sentinel *s)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += POLL_NS;
    if (until.tv_nsec >= MR_NS_PER_S) {
        until.tv_sec++;
        until.tv_nsec -= MR_NS_PER_S;
    }
    pthread_cond_timedwait(&s->moved, &s->lock, &until);
}

/* A copy that lives as long as the sentinel; NULL: there are too many. Lock held. */
static const char *step_keep(struct mr_sentinel *s, const char *text)
{
    uint32_t i = 0;

    while (i < s->step_count && strcmp(s->steps[i], text) != 0) {
        i++;
    }
    if (i == STEPS) {
        return NULL;
    }
    if (i == s->step_count) {
        memcpy(s->steps[s->step_count++], text, strlen(text) + 1);
    }
    return s->steps[i];
}

/* The load step that its process reports. Lock held. */
static void note_load(const struct worker *w)
{
    struct process_model *m = w->model;
    const struct mr_shm_load load = mr_shm_worker_load(m->shm, w->index);
    const char *step = load.step[0] ? step_keep(m->sentinel, load.step) : NULL;

    if (m->loading && step) {
        atomic_store_explicit(&m->loading->done, load.done, memory_order_relaxed);
        atomic_store_explicit(&m->loading->total, load.total, memory_order_relaxed);
        atomic_store_explicit(&m->loading->step, step, memory_order_relaxed);
    }
}

/* True if a cancelled load has ended; its backend gets time to notice the cancel. Lock held. */
static bool is_given_up(struct worker *w, int64_t *io_since_ns)
{
    const struct mr_loading *l = w->model->loading;

    if (*io_since_ns == 0 && l && l->is_unwanted && l->is_unwanted(l)) {
        *io_since_ns = mr_now_ns();
        mr_shm_set_unwanted(w->model->shm);
        w->goal = STEP_NONE; /* its end does not count as a fault */
    }
    return *io_since_ns > 0 && (!w->is_running || mr_now_ns() - *io_since_ns > UNWANTED_NS);
}

/* Waits until the worker has reached the step. */
static int reach(struct worker *w, enum step goal, struct mr_err *err)
{
    struct process_model *m = w->model;
    struct mr_sentinel *s = m->sentinel;
    int64_t unwanted_ns = 0;
    int rc = MR_OK;

    pthread_mutex_lock(&s->lock);
    w->goal = goal;
    if (w->is_running) {
        worker_advance(w);
    } else {
        w->start_at_ns = 1;
        sentinel_wake(s);
    }
    while (w->step < goal && !w->is_failed) {
        if (is_given_up(w, &unwanted_ns)) {
            rc = MR_FAIL(err, MR_E_CANCELLED, "the load is not wanted any more");
            break;
        }
        wait_moved(s);
        note_load(w);
    }
    if (rc == MR_OK && w->step < goal) {
        rc = w->err.status < 0 ? w->err.status : MR_E_INTERNAL;
        if (err) {
            *err = w->err;
        }
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

/* Lock held. */
static bool any_runs(const struct process_model *m, uint32_t first, uint32_t count)
{
    bool any = false;

    for (uint32_t i = first; i < first + count; i++) {
        any |= m->workers[i].is_running;
    }
    return any;
}

/* Waits until the workers have no processes. */
static void stop(struct process_model *m, uint32_t first, uint32_t count)
{
    struct mr_sentinel *s = m->sentinel;

    pthread_mutex_lock(&s->lock);
    for (uint32_t i = first; i < first + count; i++) {
        worker_stop(&m->workers[i], mr_now_ns());
    }
    sentinel_wake(s);
    while (any_runs(m, first, count)) {
        wait_moved(s);
    }
    pthread_mutex_unlock(&s->lock);
}

static void model_free(struct process_model *m)
{
    for (uint32_t i = 0; i < MR_SHM_WORKERS_MAX; i++) {
        pthread_mutex_destroy(&m->workers[i].calls_lock);
    }
    warmups_drop(&m->warmups);
    mr_shm_free(&m->shm);
    mr_free((void *)(uintptr_t)m->base.signature);
    mr_buf_fini(&m->configured);
    kept_close(&m->kept);
    mr_arena_fini(&m->arena);
    mr_free(m->homes);
    mr_free(m);
}

void sentinel_model_ref(struct process_model *m)
{
    atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
}

void sentinel_model_unref(struct process_model *m)
{
    if (atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) == 1) {
        model_free(m);
    }
}

/* A place for the temporary folders of its workers, if they can write nowhere else. Lock held. */
static void temporary_begin(struct process_model *m)
{
    struct mr_sentinel *s = m->sentinel;
    struct mr_err err;

    mr_err_clear(&err);
    if (!(m->open.confine_steps & mr_confine_probe() & MR_CONFINE_LANDLOCK)) {
        return;
    }
    if (!s->temp_dir) {
        mr_folder_new_locked(&s->temp_dir, &s->temp_lock, &err);
    }
    if (s->temp_dir) {
        const char *path = mr_arena_printf(&m->arena, "%s/%u", s->temp_dir, s->temp_count++).ptr;
        m->temp_dir = path && mr_folder_make(path, NULL, &err) == MR_OK ? path : NULL;
    }
    if (!m->temp_dir) {
        mr_log(MR_LOG_ERROR, "worker.start", "model=%s no temporary folder: %s",
               MR_LOG_STR(mr_str_c(m->base.model)), err.msg);
    }
}

/* Its workers have ended. */
static void model_leave(struct process_model *m)
{
    struct mr_sentinel *s = m->sentinel;

    if (m->temp_dir) {
        mr_folder_remove(m->temp_dir);
    }

    pthread_mutex_lock(&s->lock);
    TAILQ_REMOVE(&s->models, m, link);
    pthread_mutex_unlock(&s->lock);
    mr_metrics_leave(s->metrics, m);
    sentinel_model_unref(m);
}

/* All executions have ended. All workers are asked to end, so that those that take long to do so are waited for together. */
static bool wind_down(struct mr_executor *e)
{
    struct process_model *m = process_model_of(e);
    struct mr_sentinel *s = m->sentinel;

    pthread_mutex_lock(&s->lock);
    m->is_closing = true;
    sentinel_set_unready(m, false);
    for (uint32_t i = 0; i < m->worker_count; i++) {
        worker_stop(&m->workers[i], mr_now_ns());
    }
    const bool any = any_runs(m, 0, m->worker_count);
    pthread_mutex_unlock(&s->lock);
    sentinel_wake(s);
    return !any;
}

static void model_close(struct mr_executor *e)
{
    struct process_model *m = process_model_of(e);

    wind_down(e);
    stop(m, 0, m->worker_count);
    model_leave(m);
}

static int model_configure(struct mr_executor *e, const struct mr_signature *s, struct mr_err *err)
{
    struct process_model *m = process_model_of(e);
    struct mr_signature *copy = NULL;
    struct mr_buf packed;
    int rc;

    if (!e->signature->from_config) {
        return MR_FAIL(err, MR_E_INVALID,
                       "model '%s': backend '%s' knows its inputs and outputs by itself", e->model,
                       e->backend);
    }
    mr_buf_init(&packed, 0);
    MR_TRY(mr_signature_copy(&copy, s, e->signature->flags, MR_E_INVALID, "config", err));
    mr_ipc_signature_pack(&packed, copy);
    pthread_mutex_lock(&m->sentinel->lock);
    mr_buf_fini(&m->configured);
    m->configured = packed;
    pthread_mutex_unlock(&m->sentinel->lock);
    mr_buf_init(&packed, 0);
    MR_TRY(reach(&m->workers[0], STEP_CONFIGURED, err));
    copy->from_config = 1;
    copy->max_pending = e->signature->max_pending;
    mr_free((void *)(uintptr_t)e->signature);
    e->signature = copy;
    copy = NULL;
out:
    mr_free(copy);
    mr_buf_fini(&packed);
    return rc;
}

static uint64_t model_bytes(const struct mr_executor *e)
{
    const struct process_model *m = process_model_of(e);

    return m->kept.bytes + m->opened.bytes * MR_MAX(m->worker_count, 1);
}

static struct mr_model_memory model_memory(const struct mr_executor *e)
{
    return process_model_of(e)->opened.memory;
}

/* From here on it is not ready when it has no worker. Starts the standby workers, which are not waited for: they run copies of
 * the warm-ups. */
static void warmed(struct mr_executor *e)
{
    struct process_model *m = process_model_of(e);
    struct mr_sentinel *s = m->sentinel;

    pthread_mutex_lock(&s->lock);
    const uint32_t first = m->worker_count;
    m->worker_count += m->standby_count;
    for (uint32_t i = first; i < m->worker_count; i++) {
        m->workers[i].instance = m->workers[0].instance;
        worker_stand_by(&m->workers[i]);
        m->workers[i].start_at_ns = 1;
    }
    m->is_warmed = true;
    sentinel_note_ready(m, mr_now_ns());
    pthread_mutex_unlock(&s->lock);
    sentinel_wake(s);
}

static int instance_open(struct mr_executor *e, const struct mr_instance_desc *desc, void **out,
                         struct mr_err *err)
{
    struct process_model *m = process_model_of(e);
    struct mr_sentinel *s = m->sentinel;
    int rc;

    if (desc->index >= MR_SHM_WORKERS_MAX) {
        return MR_FAIL(err, MR_E_INVALID,
                       "instance_group: at most %u instances are possible in processes, model '%s' "
                       "asks for more",
                       MR_SHM_WORKERS_MAX, e->model);
    }
    struct worker *w = &m->workers[desc->index];
    for (uint32_t i = 0; i < e->signature->output_count; i++) {
        m->has_strings |= e->signature->outputs[i].dtype == MR_DTYPE_BYTES;
    }
    pthread_mutex_lock(&s->lock);
    w->instance = *desc;
    w->instance.name = mr_arena_str(&m->arena, mr_str_c(desc->name)).ptr;
    m->worker_count = MR_MAX(m->worker_count, desc->index + 1);
    pthread_mutex_unlock(&s->lock);
    rc = reach(w, STEP_READY, err);
    if (rc < 0) {
        stop(m, desc->index, 1);
        return rc;
    }
    *out = w;
    return MR_OK;
}

static void instance_close(struct mr_executor *e, void *instance)
{
    const struct worker *w = instance;

    wind_down(e); /* instances are closed together */
    stop(process_model_of(e), w->index, 1);
}

static bool is_ready(const struct mr_executor *e)
{
    return !atomic_load_explicit(&process_model_of(e)->is_unready, memory_order_relaxed);
}

static bool has_place(const struct mr_executor *e, const struct mr_tensor *input)
{
    uint64_t offset;

    return mr_shm_input_at(process_model_of(e)->shm, input->data, input->bytes, &offset);
}

static uint64_t life(const struct mr_executor *e, const void *instance)
{
    const struct process_model *m = process_model_of(e);
    const struct worker *w = instance;

    return m->keeps_state ? mr_shm_worker_life(m->shm, w->index) : 0;
}

static const struct mr_executor_ops ops = {.close = model_close,
                                           .configure = model_configure,
                                           .bytes = model_bytes,
                                           .memory = model_memory,
                                           .instance_open = instance_open,
                                           .instance_close = instance_close,
                                           .warmed = warmed,
                                           .execute = run_execute,
                                           .is_ready = is_ready,
                                           .life = life,
                                           .cancel = run_cancel,
                                           .wind_down = wind_down,
                                           .has_place = has_place};

/* ---- opening ---- */

static const char *text_keep(struct process_model *m, const char *text)
{
    return text ? mr_arena_str(&m->arena, mr_str_c(text)).ptr : NULL;
}

static const struct mr_setting *settings_keep(struct process_model *m,
                                              const struct mr_setting *list, size_t count)
{
    struct mr_setting *copy = MR_ARENA_ARRAY(&m->arena, struct mr_setting, count + 1);

    for (size_t i = 0; copy && i < count; i++) {
        copy[i] = (struct mr_setting){text_keep(m, list[i].key), text_keep(m, list[i].value)};
    }
    return copy;
}

static const char *const *texts_keep(struct process_model *m, const char *const *list, size_t count)
{
    const char **copy = MR_ARENA_ARRAY(&m->arena, const char *, count + 1);

    for (size_t i = 0; copy && i < count; i++) {
        copy[i] = text_keep(m, list[i]);
    }
    return copy;
}

static size_t texts_count(const char *const *list)
{
    size_t n = 0;

    while (list && list[n]) {
        n++;
    }
    return n;
}

/* A copy of the load request of the workers, which lives as long as the model. */
static void open_keep(struct process_model *m, const struct mr_sentinel_model_args *args)
{
    const struct mr_model_desc *d = args->desc;
    struct mr_ipc_open *o = &m->open;

    *o = (struct mr_ipc_open){.backend = text_keep(m, args->backend),
                              .setting_count = (uint32_t)args->setting_count,
                              .home_count = m->sentinel->home_count,
                              .confine_steps =
                                  m->sentinel->options.confine_steps & ~args->confine_less,
                              .memory_bytes = m->sentinel->options.memory_bytes,
                              .user = m->sentinel->options.user,
                              .write_dirs = m->sentinel->options.write_dirs,
                              .model = *d};
    o->backend_dirs = texts_keep(m, args->backend_dirs, args->backend_dir_count);
    o->settings = settings_keep(m, args->settings, args->setting_count);
    o->model.name = text_keep(m, d->name);
    o->model.model_dir = text_keep(m, d->model_dir);
    o->model.version_dir = text_keep(m, d->version_dir);
    o->model.model_file = text_keep(m, d->model_file);
    o->model.config_json = text_keep(m, d->config_json);
    o->model.settings = settings_keep(m, d->settings, d->setting_count);
    o->model.repository_dir = text_keep(m, d->repository_dir);
    o->model.link_dirs = texts_keep(m, d->link_dirs, texts_count(d->link_dirs));
    o->model.loading = NULL;
    if (args->command) {
        m->command = texts_keep(m, args->command, texts_count(args->command));
        m->environment = texts_keep(m, args->environment, texts_count(args->environment));
        o->has_control = true;
    }
}

static int signature_take(struct process_model *m, bool may_keep_state, struct mr_err *err)
{
    struct mr_signature *copy;
    int rc;

    /* Its instances are processes: they never run on a network thread, and together have fewer executions than there are
     * slots. Those that keep state run one at a time. */
    const uint32_t most = may_keep_state ? 1 : MR_MAX(1, SLOTS / 2 / m->instance_count);
    const uint32_t at_once = MR_MAX(1, m->opened.signature.max_pending);
    m->opened.signature.flags &= ~(uint32_t)MR_BACKEND_CHEAP_INSTANCES;
    m->opened.signature.max_pending = MR_MIN(at_once, most);
    mr_shm_set_at_once(m->shm, at_once);
    m->may_pend = m->may_wait && at_once > 1;
    m->keeps_state =
        may_keep_state && !(m->opened.signature.flags & (uint32_t)MR_BACKEND_DETERMINISTIC);
    rc = mr_signature_copy(&copy, &m->opened.signature, MR_BACKEND_NO_INLINE, MR_E_INTERNAL,
                           "the worker process", err);
    if (rc == MR_OK) {
        m->base.signature = copy;
    }
    return rc;
}

int mr_sentinel_model_open(struct mr_executor **out, struct mr_sentinel *s,
                           const struct mr_sentinel_model_args *args, struct mr_err *err)
{
    struct process_model *m = mr_alloc_aligned(sizeof *m);
    const struct mr_shm_options shm = {.name = args->desc->name,
                                       .slots = SLOTS,
                                       .message_bytes = MESSAGE_BYTES,
                                       .room_bytes = ROOM_BYTES,
                                       .input_bytes = INPUT_BYTES,
                                       .body_bytes = BODY_BYTES,
                                       .output_bytes = OUTPUT_BYTES,
                                       .homes = s->homes,
                                       .has_bound =
                                           args->instance_count > 1 || args->may_keep_state};
    int rc;

    m->sentinel = s;
    m->has_bound = shm.has_bound;
    mr_arena_init(&m->arena, ARENA_FIRST, ARENA_LIMIT);
    mr_buf_init(&m->configured, 0);
    open_keep(m, args);
    m->base.ops = &ops;
    m->base.backend = m->open.backend;
    m->base.model = m->open.model.name;
    m->base.hands_over = true;
    m->rows.limit = &m->base.rows_max;
    m->loading = args->desc->loading;
    m->may_wait = args->may_wait;
    m->worker_count = 1;
    m->instance_count = args->instance_count;
    m->standby_count = args->standby_count;
    for (uint32_t i = 0; i < MR_SHM_WORKERS_MAX; i++) {
        worker_init(&m->workers[i], m, i);
    }
    atomic_init(&m->refs, 1);
    m->homes = MR_NEW_ARRAY(struct model_home, s->home_count);
    for (uint32_t i = 0; i < s->home_count; i++) {
        m->homes[i].model = m;
    }
    rc = mr_shm_new(&m->shm, &shm, err);
    if (rc < 0) {
        model_free(m);
        return rc;
    }
    m->base.inputs = &mr_shm_inputs(m->shm)->provider;
    m->base.bodies = &mr_shm_bodies(m->shm)->provider;
    pthread_mutex_lock(&s->lock);
    TAILQ_INSERT_TAIL(&s->models, m, link);
    temporary_begin(m);
    pthread_mutex_unlock(&s->lock);
    MR_TRY(reach(&m->workers[0], STEP_OPENED, err));
    MR_TRY(signature_take(m, args->may_keep_state, err));
    *out = &m->base;
    return MR_OK;
out:
    stop(m, 0, 1);
    model_leave(m);
    return rc;
}

/* ---- reports ---- */

bool mr_sentinel_is_executor(const struct mr_executor *e)
{
    return e->ops == &ops;
}

/* Its first answer may be read before its word that it is ready. */
static bool takes_executions(const struct worker *w)
{
    return w->step == STEP_READY || atomic_load_explicit(&w->answered, memory_order_relaxed) > 0;
}

static enum mr_worker_state state_of(const struct worker *w)
{
    if (w->goal == STEP_NONE) {
        return MR_WORKER_STOPPED;
    }
    if (w->is_running && w->is_standby && w->step == w->goal) {
        return MR_WORKER_STANDBY;
    }
    if (w->is_running) {
        return takes_executions(w) ? MR_WORKER_READY : MR_WORKER_STARTING;
    }
    return w->is_failed ? MR_WORKER_FAILED : MR_WORKER_WAITING;
}

void mr_sentinel_sum(const struct mr_executor *e, struct mr_workers_report *out)
{
    struct process_model *m = process_model_of(e);

    *out = (struct mr_workers_report){
        .worker_count = m->worker_count,
        .ready_count = atomic_load_explicit(&m->ready, memory_order_relaxed),
        .requeued = atomic_load_explicit(&m->requeued, memory_order_relaxed),
        .quarantined = atomic_load_explicit(&m->quarantined, memory_order_relaxed),
        .copied_bytes = atomic_load_explicit(&m->copied_bytes, memory_order_relaxed),
        .wakes = mr_shm_get_stats(m->shm).wakes};
    for (int f = 0; f < MR_WORKER_FAULTS; f++) {
        out->restarts[f] = atomic_load_explicit(&m->restarts[f], memory_order_relaxed);
        durations_get(&m->detection[f], &out->detection[f]);
        durations_get(&m->replacement[f], &out->replacement[f]);
    }
}

void mr_sentinel_pids(const struct mr_executor *e, int out[MR_WORKERS_MAX])
{
    for (uint32_t i = 0; i < MR_WORKERS_MAX; i++) {
        out[i] = atomic_load_explicit(&process_model_of(e)->workers[i].pid, memory_order_relaxed);
    }
}

uint32_t mr_sentinel_report(const struct mr_executor *e, struct mr_worker_report *out,
                            uint32_t count)
{
    struct process_model *m = process_model_of(e);

    pthread_mutex_lock(&m->sentinel->lock);
    for (uint32_t i = 0; i < MR_MIN(count, m->worker_count); i++) {
        const struct worker *w = &m->workers[i];
        struct mr_process_usage usage = {0};
        if (w->is_running) {
            mr_process_get_usage(&w->process, 0, &usage);
        }
        out[i] = (struct mr_worker_report){.index = i,
                                           .state = state_of(w),
                                           .pid = w->is_running ? (int)w->process.pid : 0,
                                           .since_ns = w->since_ns,
                                           .resident_bytes = usage.resident_bytes,
                                           .cpu_ns = usage.cpu_ns};
        memcpy(out[i].restarts, w->restarts, sizeof out[i].restarts);
        memcpy(out[i].last_fault, w->last_fault, sizeof out[i].last_fault);
    }
    const uint32_t n = m->worker_count;
    pthread_mutex_unlock(&m->sentinel->lock);
    return n;
}

const char *mr_worker_state_name(enum mr_worker_state s)
{
    static const char *const names[] = {"starting", "ready",   "waiting",
                                        "failed",   "stopped", "standby"};

    return names[s];
}

const char *mr_worker_fault_name(enum mr_worker_fault f)
{
    static const char *const names[] = {"crash", "hang", "sick", "damage"};

    return names[f];
}
