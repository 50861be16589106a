/* One thread takes slots and executes them one after the other. An execution that is pending ends on another thread, which
 * sends the reply; mr_signature.max_pending executions may be pending, then the thread waits. Warm-ups run on the same thread:
 * models may keep what belongs to it. */
#include "serve.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread.h"
#include "calls.h"
#include "ipc/call.h"
#include "ipc/message.h"
#include "ipc/reply.h"
#include "room.h"

#define ARENA_FIRST 16384
#define ARENA_LIMIT ((size_t)64 << 20)
#define JOBS_MAX    256u
/* Poll interval of an idle worker. A submission wakes a worker; if a wake-up is lost, the server's sweep wakes all. */
#define IDLE_NS MR_NS_PER_S
/* Interval of wake-ups for a thread that has to end, as it may be about to sleep, and of one that waits for a job. */
#define POLL_NS (20 * MR_NS_PER_MS)
/* The approximate cost of waking the thread of an execution: completions of shorter executions share a wake-up. */
#define WAKE_NS (10 * MR_NS_PER_US)

/* An execution, from its slot to its reply. */
struct job {
    struct worker_serve *serve;
    struct mr_arena arena;
    bool is_used, is_running, is_warm_up; /* under the lock; running: can be cancelled */
    bool has_ended;                       /* its execution, on another thread; under the lock */
    bool is_counted;                      /* as pending; under the lock */
    /* held while an answer is posted, or a long one is in the room and its client reads */
    pthread_mutex_t answering;
    /* From here on zeroed for each slot. */
    struct mr_shm_task task;
    struct mr_execution x;
    struct worker_room room;
    struct mr_err err;
    uint64_t nonce;
    struct mr_ipc_failure *failures; /* these three under the lock until the execution has ended */
    uint32_t failure_count;
    bool is_short; /* of memory for a failure, so that the execution fails */
    int64_t begin_ns;
    /** Time that it waited for clients; under `answering` until the execution has ended. */
    int64_t unread_ns;
};

struct worker_serve {
    struct mr_shm_view *view;
    struct mr_executor *executor;
    void *instance;
    int64_t run_ns; /* longest recent execution that was not pending: rises at once, falls slowly */
    const struct worker_warmup *warmups;
    uint32_t warmup_count;
    pthread_t thread;
    bool is_started;
    _Atomic bool is_stopping;
    /** Guards what follows; held for a few instructions. */
    pthread_mutex_t lock;
    pthread_cond_t ended; /* a pending execution; or has_begun */
    bool has_begun;       /* slots may be taken */
    uint32_t job_count;   /* max_pending of the model */
    struct job *jobs;
};

static struct job *job_of(const struct mr_execution *x)
{
    return MR_CONTAINER_OF((struct mr_execution *)(uintptr_t)x, struct job, x);
}

static struct timespec time_in(int64_t ns)
{
    struct timespec at;

    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_nsec += ns;
    at.tv_sec += at.tv_nsec / MR_NS_PER_S;
    at.tv_nsec %= MR_NS_PER_S;
    return at;
}

static bool is_cancelled(const struct mr_execution *x, uint32_t request)
{
    const struct job *j = job_of(x);

    (void)request; /* the server cancels whole executions only */
    return mr_shm_task_is_cancelled(j->serve->view, &j->task);
}

/* Lock held. NULL: it has not failed. */
static struct mr_ipc_failure *failure_of(const struct job *j, uint32_t request)
{
    for (uint32_t i = 0; i < j->failure_count; i++) {
        if (j->failures[i].request == request) {
            return &j->failures[i];
        }
    }
    return NULL;
}

/* The last failure of a request counts. */
static void fail_request(struct mr_execution *x, uint32_t request, int status, const char *message)
{
    struct job *j = job_of(x);
    struct mr_err err;

    (void)MR_FAIL(&err, status, "%s", message); /* as much of it as an error may have */
    const mr_str copy = mr_arena_str(&j->arena, mr_str_c(err.msg));
    struct mr_ipc_failure *list =
        j->failures ? j->failures
                    : MR_ARENA_ARRAY(&j->arena, struct mr_ipc_failure, x->exec.request_count);
    pthread_mutex_lock(&j->serve->lock);
    j->failures = list;
    j->is_short |= !list || !copy.ptr;
    if (list && copy.ptr) {
        struct mr_ipc_failure *f = failure_of(j, request);
        f = f ? f : &list[j->failure_count++];
        *f = (struct mr_ipc_failure){request, status, copy.ptr};
    }
    pthread_mutex_unlock(&j->serve->lock);
}

static bool has_failed(struct job *j, uint32_t request)
{
    pthread_mutex_lock(&j->serve->lock);
    bool has = failure_of(j, request) != NULL;
    pthread_mutex_unlock(&j->serve->lock);
    return has;
}

/* Posts the answer without a wait for what becomes of it. MR_E_EXHAUSTED: it is too long for a letter. Lock held. */
static int answer_post(struct job *j, const struct mr_response *response, struct mr_err *err)
{
    struct mr_shm_view *v = j->serve->view;
    struct mr_shm_task at = j->task;
    struct mr_shm_range letter;
    struct worker_room room;
    int rc;

    if (mr_shm_task_is_cancelled(v, &j->task)) {
        return MR_FAIL(err, MR_E_CANCELLED, "no one waits for the answer");
    }
    const int64_t begin = mr_now_ns();
    const bool is_there = mr_shm_task_letter(v, &j->task, &letter);
    j->unread_ns += mr_now_ns() - begin;
    if (!is_there) {
        return MR_FAIL(err, MR_E_CANCELLED, "no one waits for the answer");
    }
    worker_room_letter(&room, &at, &letter);
    rc = letter.bytes < MR_IPC_REPLY_BYTES
             ? MR_E_EXHAUSTED
             : mr_ipc_answer_write(&at, j->nonce, &room.provider, &j->x, response, err);
    if (rc == MR_OK && !mr_shm_task_post(v, &j->task)) {
        rc = MR_FAIL(err, MR_E_CANCELLED, "no one waits for the answer");
    }
    return rc;
}

/* Hands the answer over and waits until the server has taken it. Lock held. */
static int answer_hand_over(struct job *j, const struct mr_response *response, struct mr_err *err)
{
    struct worker_serve *s = j->serve;
    int rc;

    worker_room_begin(&j->room, s->view, &j->task);
    MR_TRY(mr_ipc_answer_write(&j->task, j->nonce, &j->room.provider, &j->x, response, err));
    const int64_t begin = mr_now_ns();
    rc = mr_shm_task_answer(s->view, &j->task, err);
    j->unread_ns += mr_now_ns() - begin;
out:
    return rc;
}

static int respond(struct mr_execution *x, struct mr_response *response, struct mr_err *err)
{
    struct job *j = job_of(x);

    if (has_failed(j, response->request)) {
        return MR_FAIL(err, MR_E_INVALID, "request %u is final, no answer to it can follow",
                       response->request);
    }
    pthread_mutex_lock(&j->answering);
    int rc = answer_post(j, response, err);
    if (rc == MR_E_EXHAUSTED) {
        rc = answer_hand_over(j, response, err);
    }
    if (rc == MR_OK) {
        mr_response_free(&response);
    }
    pthread_mutex_unlock(&j->answering);
    return rc;
}

/* As answer_post. */
static int call_post(struct job *j, uint64_t number, const struct mr_call_args *args,
                     struct mr_err *err)
{
    struct mr_shm_view *v = j->serve->view;
    struct mr_shm_task at = j->task;
    struct mr_shm_range letter;
    struct worker_room room;

    if (!mr_shm_task_letter(v, &j->task, &letter)) {
        return MR_FAIL(err, MR_E_CANCELLED, "no one waits for the execution that calls");
    }
    worker_room_letter(&room, &at, &letter);
    int rc = letter.bytes < MR_IPC_REPLY_BYTES
                 ? MR_E_EXHAUSTED
                 : mr_ipc_call_write(&at, j->nonce, &room.provider, number, args, err);
    if (rc == MR_OK && !mr_shm_task_post(v, &j->task)) {
        rc = MR_FAIL(err, MR_E_CANCELLED, "no one waits for the execution that calls");
    }
    return rc;
}

static int call_hand_over(struct job *j, uint64_t number, const struct mr_call_args *args,
                          struct mr_err *err)
{
    int rc;

    worker_room_begin(&j->room, j->serve->view, &j->task);
    MR_TRY(mr_ipc_call_write(&j->task, j->nonce, &j->room.provider, number, args, err));
    MR_TRY(mr_shm_task_answer(j->serve->view, &j->task, err));
out:
    return rc;
}

int worker_serve_call(struct mr_execution *x, uint64_t number, const struct mr_call_args *args,
                      struct mr_err *err)
{
    struct job *j = job_of(x);

    if (!j->task.room) {
        return MR_FAIL(err, MR_E_UNSUPPORTED, "a model calls no others while it is warmed up");
    }
    pthread_mutex_lock(&j->answering);
    int rc = call_post(j, number, args, err);
    if (rc == MR_E_EXHAUSTED) {
        rc = call_hand_over(j, number, args, err);
    }
    worker_room_begin(&j->room, j->serve->view, &j->task); /* for the outputs */
    pthread_mutex_unlock(&j->answering);
    return rc;
}

/* ---- one job ---- */

static struct job *job_take(struct worker_serve *s)
{
    struct job *j = NULL;

    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < s->job_count && !j; i++) {
        j = s->jobs[i].is_used ? NULL : &s->jobs[i];
    }
    if (j) {
        j->is_used = true;
    }
    pthread_mutex_unlock(&s->lock);
    return j;
}

static void job_give(struct job *j)
{
    struct worker_serve *s = j->serve;

    mr_arena_reset(&j->arena);
    memset(&j->task, 0, sizeof *j - offsetof(struct job, task));
    pthread_mutex_lock(&s->lock);
    if (j->is_counted) {
        mr_shm_count_pending(s->view, -1);
    }
    j->is_used = j->is_running = j->is_counted = false;
    pthread_cond_broadcast(&s->ended);
    pthread_mutex_unlock(&s->lock);
}

/* Sends the reply. begin_ns: of the execution. */
static void job_reply(struct job *j, int64_t begin_ns, bool is_apart, int rc, struct mr_err *err)
{
    struct worker_serve *s = j->serve;

    if (rc == MR_OK && j->is_short) {
        rc = MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the error of a request");
    }
    if (j->x.exec.flags & MR_EXEC_DECOUPLED) {
        worker_room_begin(&j->room, s->view, &j->task); /* it held answers */
    }
    mr_shm_task_settle(s->view, &j->task); /* false: the reply is not wanted */
    const int64_t end = mr_now_ns(), run_ns = end - begin_ns - j->unread_ns;
    if (j->x.exec.infer_end_ns == 0) { /* the backend has not set the times */
        j->x.exec.infer_start_ns = begin_ns;
        j->x.exec.infer_end_ns = end;
    }
    mr_ipc_reply_write(&j->task, j->nonce, &j->room.provider, &j->x, j->failures, j->failure_count,
                       run_ns, rc, err);
    if (rc == MR_OK) {
        mr_exec_outputs_drop(&j->x.outputs);
    }
    if (is_apart) {
        mr_shm_complete_apart(s->view, &j->task);
        return;
    }
    s->run_ns = MR_MAX(run_ns, s->run_ns - s->run_ns / 64);
    if (s->run_ns < WAKE_NS) {
        mr_shm_complete_with_next(s->view, &j->task);
    } else {
        mr_shm_complete(s->view, &j->task);
    }
}

/* The end of a pending execution. */
static void on_done(struct mr_execution *x)
{
    struct job *j = job_of(x);
    struct worker_serve *s = j->serve;

    pthread_mutex_lock(&s->lock);
    j->is_running = false;
    j->has_ended = true;
    const bool is_warm_up = j->is_warm_up;
    pthread_cond_broadcast(&s->ended);
    pthread_mutex_unlock(&s->lock);
    if (!is_warm_up) {
        job_reply(j, j->begin_ns, true, x->status, &j->err);
        job_give(j);
    }
}

static void job_set_running(struct job *j, bool is_running)
{
    pthread_mutex_lock(&j->serve->lock);
    j->is_running = is_running;
    pthread_mutex_unlock(&j->serve->lock);
}

static int job_execute(struct job *j, struct mr_err *err)
{
    struct worker_serve *s = j->serve;
    struct mr_execution *x = &j->x;
    int rc;

    x->outputs.list =
        MR_ARENA_ARRAY(&j->arena, struct mr_exec_output, s->executor->signature->output_count + 1u);
    if (!x->outputs.list) {
        return MR_FAIL(err, MR_E_NOMEM, "no memory for an execution");
    }
    x->outputs.arena = &j->arena;
    x->instance = s->instance;
    x->err = &j->err;
    x->fail_request = fail_request;
    x->respond = respond;
    x->on_done = on_done;
    job_set_running(j, true);
    rc = mr_executor_execute(s->executor, x, err);
    if (rc != MR_PENDING) { /* otherwise the job may be another one's already */
        job_set_running(j, false);
    }
    return rc;
}

static int job_run(struct job *j, struct mr_err *err)
{
    struct worker_serve *s = j->serve;
    int rc;

    MR_TRY(mr_ipc_exec_read(s->view, &j->task, &j->arena, &j->x.exec, &j->nonce, err));
    j->x.outputs.provider = &j->room.provider;
    j->x.is_cancelled = is_cancelled;
    rc = job_execute(j, err);
out:
    return rc;
}

/* It may have ended already, on another thread; only this one uses the job for another slot. */
static void pending_count(struct worker_serve *s, struct job *j)
{
    pthread_mutex_lock(&s->lock);
    if (!j->has_ended) {
        j->is_counted = true;
        mr_shm_count_pending(s->view, 1);
    }
    pthread_mutex_unlock(&s->lock);
}

static void job_do(struct job *j, const struct mr_shm_task *task)
{
    struct worker_serve *s = j->serve;
    struct mr_err err;

    mr_err_clear(&err);
    j->task = *task;
    j->has_ended = false;
    worker_room_begin(&j->room, s->view, &j->task);
    j->begin_ns = mr_now_ns();
    const int rc = job_run(j, &err);
    if (rc == MR_PENDING) {
        pending_count(s, j);
    } else {
        job_reply(j, j->begin_ns, false, rc, &err);
        job_give(j);
    }
}

/* ---- the thread ---- */

static bool is_stopping(const struct worker_serve *s)
{
    /* relaxed: a flag that is polled */
    return atomic_load_explicit(&s->is_stopping, memory_order_relaxed);
}

/* The execution of a job has ended, but the other thread, which needs a CPU, has not given the job back. The server may not count it
 * any more, so this thread shows that it does not hang. Lock held. */
static void job_await(struct worker_serve *s)
{
    struct timespec until = time_in(POLL_NS);

    pthread_cond_timedwait(&s->ended, &s->lock, &until);
    mr_shm_progress(s->view);
}

/* Waits until `count` jobs are free, or, with fewer than all, until the thread has to stop. */
static void jobs_wait(struct worker_serve *s, uint32_t count)
{
    pthread_mutex_lock(&s->lock);
    for (;;) {
        uint32_t free_count = 0, ended_count = 0;
        for (uint32_t i = 0; i < s->job_count; i++) {
            free_count += !s->jobs[i].is_used;
            ended_count += s->jobs[i].is_used && s->jobs[i].has_ended;
        }
        if (free_count >= count || (count < s->job_count && is_stopping(s))) {
            break;
        }
        if (ended_count > 0) {
            job_await(s);
        } else {
            pthread_cond_wait(&s->ended, &s->lock);
        }
    }
    pthread_mutex_unlock(&s->lock);
}

static void warm(struct worker_serve *s, const struct worker_warmup *w)
{
    struct job *j = job_take(s);
    struct mr_err err;

    mr_err_clear(&err);
    j->is_warm_up = true;
    j->has_ended = false;
    int rc = mr_ipc_exec_read_kept(s->view, w->offset, w->bytes, &j->arena, &j->x.exec, &err);
    rc = rc < 0 ? rc : job_execute(j, &err);
    if (rc == MR_PENDING) {
        pthread_mutex_lock(&s->lock);
        while (!j->has_ended) {
            pthread_cond_wait(&s->ended, &s->lock);
        }
        pthread_mutex_unlock(&s->lock);
        rc = j->x.status;
    }
    if (rc == MR_OK) {
        mr_exec_outputs_drop(&j->x.outputs);
    }
    j->is_warm_up = false;
    job_give(j);
}

/* Returns when slots may be taken, or the thread has to stop. */
static void warm_up(struct worker_serve *s)
{
    struct mr_err ignored; /* the server has ended */

    for (uint32_t i = 0; i < s->warmup_count && !is_stopping(s); i++) {
        warm(s, &s->warmups[i]);
    }
    worker_frame_send(MR_FRAME_WARMED, (mr_bytes){NULL, 0}, &ignored);
    pthread_mutex_lock(&s->lock);
    while (!s->has_begun && !is_stopping(s)) {
        pthread_cond_wait(&s->ended, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
}

static void *serve_main(void *arg)
{
    struct worker_serve *s = arg;
    struct job *j = NULL;
    struct mr_shm_task task;
    sigset_t set;

    /* What the model forks inherits the mask, and has to end by SIGTERM and the like. Faults are blocked, so that one
     * kills the process even if the model has installed a handler. */
    sigemptyset(&set);
    sigaddset(&set, SIGSEGV);
    sigaddset(&set, SIGBUS);
    sigaddset(&set, SIGFPE);
    sigaddset(&set, SIGILL);
    pthread_sigmask(SIG_SETMASK, &set, NULL);
    warm_up(s);
    while (!is_stopping(s)) {
        if (!j && !(j = job_take(s))) {
            jobs_wait(s, 1);
        } else if (mr_shm_claim(s->view, &task)) {
            job_do(j, &task);
            j = NULL;
        } else {
            mr_shm_wait(s->view, IDLE_NS);
            mr_shm_progress(s->view);
        }
    }
    if (j) {
        job_give(j);
    }
    jobs_wait(s, s->job_count);
    return NULL;
}

struct worker_serve *worker_serve_new(struct mr_shm_view *v, struct mr_executor *e, void *instance)
{
    struct worker_serve *s = MR_NEW(struct worker_serve);

    s->view = v;
    s->executor = e;
    s->instance = instance;
    s->job_count = MR_MIN(MR_MAX(1, e->signature->max_pending), JOBS_MAX);
    s->jobs = MR_NEW_ARRAY(struct job, s->job_count);
    for (uint32_t i = 0; i < s->job_count; i++) {
        s->jobs[i].serve = s;
        mr_arena_init(&s->jobs[i].arena, ARENA_FIRST, ARENA_LIMIT);
        pthread_mutex_init(&s->jobs[i].answering, NULL);
    }
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->ended, NULL);
    return s;
}

int worker_serve_start(struct worker_serve *s, const struct worker_warmup *warmups, uint32_t count,
                       struct mr_err *err)
{
    s->warmups = warmups;
    s->warmup_count = count;
    const int rc = mr_thread_start(&s->thread, "execute", serve_main, s, err);

    s->is_started = rc == MR_OK;
    return rc;
}

void worker_serve_begin(struct worker_serve *s)
{
    pthread_mutex_lock(&s->lock);
    s->has_begun = true;
    pthread_cond_broadcast(&s->ended);
    pthread_mutex_unlock(&s->lock);
}

void worker_serve_cancel(struct worker_serve *s, uint32_t slot, uint64_t generation)
{
    struct mr_execution *x = NULL;

    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < s->job_count && !x; i++) {
        struct job *j = &s->jobs[i];
        if (j->is_running && j->task.slot == slot && j->task.generation == generation &&
            mr_execution_hold(&j->x)) {
            x = &j->x;
        }
    }
    pthread_mutex_unlock(&s->lock);
    if (x) {
        mr_execution_cancel(x); /* the hold keeps the execution, and so the job, from ending */
    }
}

void worker_serve_stop(struct worker_serve **io)
{
    struct worker_serve *s = *io;

    if (!s) {
        return;
    }
    atomic_store_explicit(&s->is_stopping, true, memory_order_relaxed);
    pthread_mutex_lock(&s->lock);
    pthread_cond_broadcast(&s->ended);
    pthread_mutex_unlock(&s->lock);
    while (s->is_started) {
        mr_shm_view_wake(s->view);
        const struct timespec until = time_in(POLL_NS);
        s->is_started = pthread_timedjoin_np(s->thread, NULL, &until) == ETIMEDOUT;
    }
    pthread_cond_destroy(&s->ended);
    pthread_mutex_destroy(&s->lock);
    for (uint32_t i = 0; i < s->job_count; i++) {
        pthread_mutex_destroy(&s->jobs[i].answering);
        mr_arena_fini(&s->jobs[i].arena);
    }
    mr_free(s->jobs);
    mr_freep(io);
}
