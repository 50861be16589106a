/* The watching thread: handles ends, messages and output of workers, completed executions, hangs and restarts. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"
#include "process/cgroup.h"
#include "sentinel_priv.h"
#include "shm/excess.h"

#define SWEEP_NS      (20 * MR_NS_PER_MS)
#define FLUSH_NS      (2 * MR_NS_PER_MS) /* retry interval for a full socket */
#define REST_AFTER_NS MR_NS_PER_S        /* without anything submitted */
#define UNREADY_NS    (50 * MR_NS_PER_MS)
#define LATE_NS       (500 * MR_NS_PER_MS) /* of a timer */
#define EVENTS_MAX    64
#define PROBE_POLL_NS (100 * MR_NS_PER_MS)
#define HANG_NS       (10 * MR_NS_PER_S)
#define EXCESS_BYTES  ((uint64_t)256 << 20)
#define OVERFLOWS_MAX 3u
#define WORKER_TASKS  1024u

void sentinel_wake(struct mr_sentinel *s)
{
    const uint64_t one = 1;

    while (write(s->door.server, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

/* An eventfd (w is NULL) is reported once for each write, and is never read. */
int sentinel_watch(struct mr_sentinel *s, int fd, struct watch *w, struct mr_err *err)
{
    struct epoll_event e = {.events = EPOLLIN | (w ? 0 : EPOLLET), .data.ptr = w};

    return epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &e) < 0
               ? MR_FAIL(err, MR_E_EXHAUSTED, "cannot watch a worker process: %s", strerror(errno))
               : MR_OK;
}

void sentinel_unwatch(struct mr_sentinel *s, int fd)
{
    if (fd >= 0) {
        (void)epoll_ctl(s->epoll, EPOLL_CTL_DEL, fd, NULL); /* fails for what is not watched */
    }
}

static void event_handle(const struct watch *w, int64_t now_ns)
{
    switch (w->kind) {
    case WATCH_END: worker_on_end(w->worker, false, now_ns); break;
    case WATCH_SOCKET: worker_on_socket(w->worker, now_ns); break;
    case WATCH_OUTPUT: worker_on_output(w->worker); break;
    }
}

/* ---- hangs ---- */

/* What exceeded that limit. */
static const char *hang_text(const struct hang_sample *sample, bool is_computing, int64_t limit_ns,
                             char out[120])
{
    const char *does = is_computing ? "computes" : "stands still";
    const long long ms = (long long)(limit_ns / MR_NS_PER_MS);

    if (!sample->is_running) {
        return "it does not take what waits";
    }
    if (limit_ns < sample->most_ns) {
        snprintf(out, 120,
                 "an execution %s for more than %lld ms, at least four times what earlier ones "
                 "took",
                 does, ms);
    } else {
        snprintf(out, 120, "an execution takes longer than %lld ms (--worker-hang-timeout)", ms);
    }
    return out;
}

/* How long a thread may compute at least. Where another worker can run the execution again, a wrong judgement costs a new
 * process: so it has the time that this takes, and the whole limit when it runs again. The first execution of a process
 * may prepare what later ones have. */
static int64_t compute_limit(const struct worker *w, bool is_last)
{
    const struct process_model *m = w->model;
    const int64_t most = m->sentinel->options.hang_ns;
    const bool has_answered = atomic_load_explicit(&w->answered, memory_order_relaxed) > 0;

    return is_last || !has_answered ? most : MR_MIN(most, m->load_ns);
}

static void sample_judge(struct worker *w, struct hang *h, const struct hang_sample *sample)
{
    char why[120];
    const int64_t limit = w->fault == MR_WORKER_FAULTS ? hang_judge(h, sample) : 0;

    if (limit > 0) {
        worker_kill_hung(w, hang_text(sample, h->is_computing, limit, why), h->since_ns,
                         sample->now_ns);
    }
}

/* The oldest of the executions that its executing thread has left to other threads, of which only the time is known. */
static void pending_judge(struct worker *w, const struct mr_shm_worker_state *state, int64_t gap_ns,
                          int64_t now_ns)
{
    const struct process_model *m = w->model;
    const struct hang_sample sample = {.now_ns = now_ns,
                                       .gap_ns = gap_ns,
                                       .has_work = state->pending > 0 && state->oldest_ns > 0 &&
                                                   !m->may_pend && !calls_wait(w),
                                       .is_running = true,
                                       .progress = (uint64_t)state->oldest_ns,
                                       .may_wait = true,
                                       .typical_ns = times_most(&m->times, state->rows),
                                       .most_ns = m->sentinel->options.hang_ns};

    sample_judge(w, &w->pending_hang, &sample);
}

static void thread_judge(struct worker *w, const struct mr_shm_worker_state *state, bool is_waiting,
                         int64_t gap_ns, int64_t now_ns)
{
    struct process_model *m = w->model;
    struct mr_process_usage usage;
    /* False: all its executions end on other threads, and its executing thread may take what waits if there is room. While it
     * waits for another model, that model is judged instead. */
    const bool is_running = state->running > state->pending;
    struct hang_sample sample = {
        .now_ns = now_ns,
        .gap_ns = gap_ns,
        .has_work = is_running ? !calls_wait(w)
                               : is_waiting && state->running < m->opened.signature.max_pending,
        .is_running = is_running,
        .is_starting = state->thread == 0,
        .progress = state->progress,
        .may_wait = m->may_wait,
        .most_ns = m->sentinel->options.hang_ns,
        .compute_ns = compute_limit(w, state->is_last)};

    if (sample.has_work) {
        mr_process_get_usage(&w->process, state->thread, &usage);
        sample.cpu_ns = usage.thread_cpu_ns;
        sample.delay_ns = usage.thread_delay_ns;
        sample.is_runnable = usage.thread_state == 'R';
        sample.typical_ns = times_most(&m->times, state->rows);
    }
    sample_judge(w, &w->hang, &sample);
}

struct sweep {
    struct process_model *model;
    bool is_damaged;
    bool is_waiting;
};

static void on_sweep(void *ctx, struct mr_shm_slot *s, enum mr_shm_outcome outcome)
{
    struct sweep *w = ctx;

    w->is_damaged |= outcome == MR_SHM_DAMAGED;
    w->is_waiting |= outcome == MR_SHM_WAITING;
    run_outcome(w->model, s, outcome);
}

/* True if its workers take memory that they were not given, again and again. What a block leaves when it is freed may
 * be more than was counted, once. */
static bool is_overflowing(struct process_model *m)
{
    if (mr_shm_excess(m->shm) <= EXCESS_BYTES) {
        m->overflows = 0;
        return false;
    }
    mr_shm_excess_drop(m->shm);
    return ++m->overflows >= OVERFLOWS_MAX;
}

/* Any worker of the model may have done it. */
static void damage_kill(struct worker *w, const char *why)
{
    w->shares_damage = true;
    worker_kill(w, MR_WORKER_DAMAGED, why);
}

static void workers_kill(struct process_model *m, const char *why)
{
    for (uint32_t i = 0; i < m->worker_count; i++) {
        damage_kill(&m->workers[i], why);
    }
}

static void model_sweep(struct process_model *m, int64_t gap_ns, int64_t now_ns)
{
    struct mr_shm_worker_state states[MR_SHM_WORKERS_MAX];
    struct sweep sweep = {.model = m};

    mr_shm_sweep(m->shm, now_ns, states, on_sweep, &sweep);
    if (is_overflowing(m)) {
        workers_kill(m, "its workers write to memory that they were not given");
        return;
    }
    for (uint32_t i = 0; i < m->worker_count; i++) {
        struct worker *w = &m->workers[i];
        if (w->step != STEP_READY || w->is_stopping) {
            continue;
        }
        if (sweep.is_damaged) {
            damage_kill(w, "the shared words of its model make no sense");
        } else {
            thread_judge(w, &states[i], sweep.is_waiting, gap_ns, now_ns);
            pending_judge(w, &states[i], gap_ns, now_ns);
        }
        calls_expire(w);
    }
}

/* ---- readiness ---- */

void sentinel_set_unready(struct process_model *m, bool is_unready)
{
    if (atomic_load_explicit(&m->is_unready, memory_order_relaxed) == is_unready) {
        return;
    }
    atomic_store_explicit(&m->is_unready, is_unready, memory_order_relaxed);
    atomic_fetch_add_explicit(&m->sentinel->unready, is_unready ? 1 : UINT32_MAX,
                              memory_order_relaxed);
    if (!m->is_closing) {
        mr_log(is_unready ? MR_LOG_ERROR : MR_LOG_INFO, is_unready ? "worker.none" : "worker.back",
               "model=%s %s", MR_LOG_STR(mr_str_c(m->base.model)),
               is_unready ? "no worker process is ready" : "a worker process is ready again");
        if (m->sentinel->options.ready_changed) {
            m->sentinel->options.ready_changed(m->sentinel->options.ready_ctx);
        }
    }
}

void sentinel_note_ready(struct process_model *m, int64_t now_ns)
{
    if (atomic_load_explicit(&m->ready, memory_order_relaxed) > 0) {
        m->none_since_ns = 0;
        sentinel_set_unready(m, false);
    } else if (m->is_warmed && m->none_since_ns == 0) {
        m->none_since_ns = now_ns;
    }
}

/* Returns the time of the next change, INT64_MAX = never. */
static int64_t unready_check(struct process_model *m, int64_t now_ns)
{
    if (m->none_since_ns == 0 || m->is_closing ||
        atomic_load_explicit(&m->is_unready, memory_order_relaxed)) {
        return INT64_MAX;
    }
    if (now_ns - m->none_since_ns < UNREADY_NS) {
        return m->none_since_ns + UNREADY_NS;
    }
    sentinel_set_unready(m, true);
    return INT64_MAX;
}

uint32_t mr_sentinel_unready(const struct mr_sentinel *s)
{
    return atomic_load_explicit(&s->unready, memory_order_relaxed);
}

/* ---- the loop ---- */

/* A replacement process that has not loaded the model in time. */
static void loading_check(struct worker *w, int64_t now_ns)
{
    if (now_ns - w->ready_by_ns > LATE_NS) {
        worker_set_ready_by(w, now_ns); /* the server itself did not run */
    } else if (now_ns >= w->ready_by_ns) {
        w->ready_by_ns = 0;
        worker_kill_hung(w, "it does not finish loading the model in time (--worker-hang-timeout)",
                         w->started_ns, now_ns);
    }
}

/* As timers_run, for a worker with a process. */
static int64_t running_timers_run(struct worker *w, int64_t now_ns)
{
    int64_t next = INT64_MAX;

    if (w->out.len > 0) {
        worker_flush(w);
        next = now_ns + FLUSH_NS;
    }
    if (w->is_stopping) {
        if (now_ns >= w->stop_by_ns) {
            mr_process_kill(&w->process, SIGKILL);
        }
        next = MR_MIN(next, w->stop_by_ns);
    } else if (w->ready_by_ns > 0) {
        loading_check(w, now_ns);
        next = w->ready_by_ns > 0 ? MR_MIN(next, w->ready_by_ns) : next;
    }
    return next;
}

static bool is_busy(struct process_model *m)
{
    return mr_shm_get_stats(m->shm).slots_used > 0;
}

/* True if it is the first worker to restart after all have died, and has not answered yet. One that stands by is not to
 * answer. */
static bool is_probing(const struct worker *w, int64_t now_ns)
{
    const bool stands_by = w->is_standby && w->step == w->goal;

    return w->is_running && !stands_by && restart_is_open(&w->restart) &&
           atomic_load_explicit(&w->answered, memory_order_relaxed) == 0 &&
           (w->step != STEP_READY || now_ns - w->since_ns < PROBE_NS || is_busy(w->model));
}

/* Starts it if it is due. Returns the time of the next check. */
static int64_t start_timer_run(struct worker *w, int64_t now_ns)
{
    const struct process_model *m = w->model;

    if (w->start_at_ns > now_ns || w->is_running) {
        return w->start_at_ns;
    }
    for (uint32_t i = 0; restart_is_open(&w->restart) && i < m->worker_count; i++) {
        if (is_probing(&m->workers[i], now_ns)) {
            return now_ns + PROBE_POLL_NS;
        }
    }
    worker_start(w, now_ns);
    return w->start_at_ns > 0 ? w->start_at_ns : INT64_MAX;
}

static void on_cancelled(void *ctx, uint32_t worker, uint32_t slot, uint64_t generation)
{
    struct process_model *m = ctx;

    worker_cancel(&m->workers[worker], slot, generation);
}

/* Performs starts and ends that are due. Returns the time of the next one, INT64_MAX = never. */
static int64_t timers_run(struct process_model *m, int64_t now_ns)
{
    int64_t next = INT64_MAX;

    for (uint32_t i = 0; i < m->worker_count; i++) {
        struct worker *w = &m->workers[i];
        if (w->start_at_ns > 0) {
            next = MR_MIN(next, start_timer_run(w, now_ns));
        }
        if (w->is_running) {
            next = MR_MIN(next, running_timers_run(w, now_ns));
        }
    }
    return next;
}

static bool is_any_busy(struct mr_sentinel *s)
{
    struct process_model *m;

    TAILQ_FOREACH (m, &s->models, link) {
        if (is_busy(m)) {
            return true;
        }
    }
    return false;
}

/* Dekker's pattern: the thread sets that it rests, then checks for work once more; a submitter submits, then checks whether
 * the thread rests (after the fence in home_submit). */
void sentinel_note_busy(struct mr_sentinel *s)
{
    if (atomic_load_explicit(&s->is_resting, memory_order_relaxed) &&
        atomic_exchange(&s->is_resting, false)) {
        sentinel_wake(s);
    }
}

#if defined(__GNUC__) && !defined(__clang__) && defined(__SANITIZE_THREAD__)
#    pragma GCC diagnostic ignored "-Wtsan" /* the fence: what it orders is atomic as well */
#endif

/* The longest wait when there is nothing to do but sweeps. */
static int64_t until_sweep(struct mr_sentinel *s, int64_t now_ns)
{
    if (now_ns - s->busy_ns < REST_AFTER_NS) {
        return s->last_sweep_ns + SWEEP_NS;
    }
    atomic_store(&s->is_resting, true);
    atomic_thread_fence(memory_order_seq_cst);
    if (is_any_busy(s)) {
        atomic_store(&s->is_resting, false);
        return s->last_sweep_ns + SWEEP_NS;
    }
    return INT64_MAX;
}

/* One round with the lock held. Returns the longest wait before the next one. */
static int64_t round_run(struct mr_sentinel *s)
{
    const int64_t now = mr_now_ns();
    const bool is_due = now - s->last_sweep_ns >= SWEEP_NS;
    const int64_t gap = MR_MAX(0, now - s->last_sweep_ns - 2 * SWEEP_NS);
    int64_t next = INT64_MAX;
    struct process_model *m;
    bool any = false;

    run_late(s);
    home_take(s, HOME_SENTINEL);
    calls_join(s);
    calls_answer(s);
    TAILQ_FOREACH (m, &s->models, link) {
        if (atomic_exchange_explicit(&m->has_cancelled, false, memory_order_acquire)) {
            mr_shm_cancelled(m->shm, on_cancelled, m);
        }
        next = MR_MIN(next, timers_run(m, now));
        next = MR_MIN(next, unready_check(m, now));
        if (is_busy(m)) {
            any = true;
            if (is_due) {
                model_sweep(m, s->was_busy ? gap : 0, now);
            }
        }
    }
    if (is_due) {
        s->last_sweep_ns = now;
        s->was_busy = any;
    }
    if (any && is_due) {
        mr_shm_homes_relieve(s->homes);
    }
    if (any) {
        s->busy_ns = now;
    }
    next = MR_MIN(next, until_sweep(s, now));
    return next == INT64_MAX ? MR_NS_PER_S : MR_MAX(0, next - now);
}

static void events_handle(const struct epoll_event *events, int count)
{
    const int64_t now = mr_now_ns();

    /* Ends come last, so that messages sent before an end are handled before it. */
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < count; i++) {
            const struct watch *w = events[i].data.ptr;
            if (w && (w->kind == WATCH_END) == (pass == 1)) {
                event_handle(w, now);
            }
        }
    }
}

static void *sentinel_main(void *arg)
{
    struct mr_sentinel *s = arg;
    struct epoll_event events[EVENTS_MAX];

    pthread_mutex_lock(&s->lock);
    while (!s->is_stopping) {
        const int64_t wait = round_run(s);
        pthread_mutex_unlock(&s->lock);
        calls_start(s);
        home_ring(s, HOME_SENTINEL); /* for what this round has submitted */
        const int count = epoll_wait(s->epoll, events, EVENTS_MAX,
                                     (int)((wait + MR_NS_PER_MS - 1) / MR_NS_PER_MS));
        s->woken_ns = mr_now_ns();
        mr_shm_home_wake(s->homes, HOME_SENTINEL);
        atomic_store_explicit(&s->is_resting, false, memory_order_relaxed);
        pthread_mutex_lock(&s->lock);
        calls_join(s);
        events_handle(events, count);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static int descriptors_open(struct mr_sentinel *s, struct mr_err *err)
{
    struct mr_shm_door doors[MR_SHM_HOMES_MAX];
    int rc;

    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    s->door.server = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->door.workers = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->epoll < 0 || s->door.server < 0 || s->door.workers < 0) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no descriptor for worker processes: %s",
                       strerror(errno));
    }
    const uint32_t loops = MR_MIN(s->options.loop_count, MR_SHM_HOMES_MAX - 1);
    MR_TRY(mr_metrics_new(&s->metrics, err));
    doors[HOME_SENTINEL] = s->door;
    for (uint32_t i = 0; i < loops; i++) {
        doors[HOME_SENTINEL + 1 + i] = s->options.loop_doors[i];
    }
    MR_TRY(mr_shm_homes_new(&s->homes, doors, 1 + loops, err));
    s->home_count = 1 + loops;
    s->home_list = mr_alloc_aligned(s->home_count * sizeof *s->home_list);
    MR_TRY(sentinel_watch(s, s->door.server, NULL, err));
    MR_TRY(sentinel_watch(s, s->door.workers, NULL, err));
out:
    return rc;
}

static void write_dirs_copy(struct mr_sentinel *s, const char *const *dirs)
{
    size_t count = 0;

    while (dirs && dirs[count]) {
        count++;
    }
    s->write_dirs = MR_NEW_ARRAY(char *, count + 1);
    for (size_t i = 0; i < count; i++) {
        s->write_dirs[i] = mr_strndup(dirs[i], strlen(dirs[i]));
    }
    s->options.write_dirs = (const char *const *)s->write_dirs;
}

static int cgroups_begin(struct mr_sentinel *s, const struct mr_sentinel_options *o,
                         struct mr_err *err)
{
    const struct mr_cgroup_limits limits = {o->memory_bytes, o->cpu_hundredths, WORKER_TASKS};
    int rc = MR_OK;

    if (o->cgroup) {
        MR_TRY(mr_cgroups_open(&s->cgroups, o->cgroup, &limits, err));
        if (mr_cgroups_lacks(s->cgroups)[0]) {
            mr_log(MR_LOG_WARN, "worker.cgroup", "%.300s does not have the controllers: %s",
                   o->cgroup, mr_cgroups_lacks(s->cgroups));
        }
    }
out:
    return rc;
}

int mr_sentinel_new(struct mr_sentinel **out, const struct mr_sentinel_options *o,
                    struct mr_err *err)
{
    struct mr_sentinel *s = MR_NEW(struct mr_sentinel);
    uint64_t seed;
    int rc;

    s->options = *o;
    s->options.hang_ns = o->hang_ns > 0 ? o->hang_ns : HANG_NS;
    s->program = mr_strndup(o->worker_program, strlen(o->worker_program));
    s->options.worker_program = s->program;
    s->user = o->user ? mr_strndup(o->user, strlen(o->user)) : NULL;
    s->options.user = s->user;
    write_dirs_copy(s, o->write_dirs);
    s->epoll = s->door.server = s->door.workers = -1;
    mr_rng_system(&seed, sizeof seed);
    mr_rng_seed(&s->rng, seed);
    TAILQ_INIT(&s->models);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->moved, NULL);
    MR_TRY(cgroups_begin(s, o, err));
    MR_TRY(descriptors_open(s, err));
    MR_TRY(mr_thread_start(&s->thread, "sentinel", sentinel_main, s, err));
    s->is_started = true;
    *out = s;
    return MR_OK;
out:
    mr_sentinel_free(&s);
    return rc;
}

static void fd_close(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

void mr_sentinel_free(struct mr_sentinel **io)
{
    struct mr_sentinel *s = *io;

    if (!s) {
        return;
    }
    MR_ASSERT(TAILQ_EMPTY(&s->models));
    if (s->is_started) {
        pthread_mutex_lock(&s->lock);
        s->is_stopping = true;
        pthread_mutex_unlock(&s->lock);
        sentinel_wake(s);
        pthread_join(s->thread, NULL);
        calls_join(s);
        calls_answer(s);
    }
    mr_cgroups_close(&s->cgroups);
    homes_drop(s);
    mr_shm_homes_free(&s->homes);
    mr_metrics_free(&s->metrics);
    mr_free(s->home_list);
    fd_close(s->epoll);
    fd_close(s->door.server);
    fd_close(s->door.workers);
    pthread_cond_destroy(&s->moved);
    pthread_mutex_destroy(&s->lock);
    for (size_t i = 0; s->write_dirs[i]; i++) {
        mr_free(s->write_dirs[i]);
    }
    mr_free(s->write_dirs);
    if (s->temp_dir) {
        rmdir(s->temp_dir);
        close(s->temp_lock);
    }
    mr_free(s->temp_dir);
    mr_free(s->program);
    mr_free(s->user);
    mr_freep(io);
}

struct mr_metrics *mr_sentinel_metrics(struct mr_sentinel *s)
{
    return s->metrics;
}
