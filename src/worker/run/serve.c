/* One execution at a time. The thread waits for a pending execution, while the server sends others to other workers. */
#include "serve.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread.h"
#include "ipc/call.h"
#include "ipc/message.h"
#include "ipc/reply.h"
#include "room.h"

#define ARENA_FIRST  16384
#define ARENA_LIMIT  ((size_t)64 << 20)
#define FAILURES_MAX 65536u
/* Poll interval of an idle worker. A submission wakes a worker; if a wake-up is lost, the server's sweep wakes all. */
#define IDLE_NS MR_NS_PER_S
/* Interval of wake-ups for a thread that has to end, as it may be about to sleep. */
#define STOP_LOOK_NS (20 * MR_NS_PER_MS)
/* The approximate cost of waking the thread of an execution: completions of shorter executions share a wake-up. */
#define WAKE_NS (10 * MR_NS_PER_US)

/* An execution, from its slot to its reply. */
struct job {
    struct worker_serve *serve;
    struct mr_shm_task task;
    struct mr_execution x;
    struct worker_room room;
    struct mr_err err;
    uint64_t nonce;
    struct mr_ipc_failure *failures;
    uint32_t failure_count;
    /** Time that it waited for clients; under `answering` until the execution has ended. */
    int64_t unread_ns;
};

struct worker_serve {
    struct mr_shm_view *view;
    struct mr_executor *executor;
    void *instance;
    struct mr_arena arena;
    int64_t run_ns; /* longest recent execution: rises at once, falls slowly */
    pthread_t thread;
    bool is_started;
    _Atomic bool is_stopping;
    /** Held while one of several answers is in the room and its client reads. */
    pthread_mutex_t answering;
    /** Guards what follows; held for a few instructions, and while a backend is notified of a cancel. */
    pthread_mutex_t lock;
    pthread_cond_t ended; /* a pending execution */
    bool has_ended;
    struct job *running; /* NULL: none that can be cancelled */
};

static struct job *job_of(const struct mr_execution *x)
{
    return MR_CONTAINER_OF((struct mr_execution *)(uintptr_t)x, struct job, x);
}

static bool is_cancelled(const struct mr_execution *x, uint32_t request)
{
    const struct job *j = job_of(x);

    (void)request; /* the server cancels whole executions only */
    return mr_shm_task_is_cancelled(j->serve->view, &j->task);
}

static void fail_request(struct mr_execution *x, uint32_t request, int status, const char *message)
{
    struct job *j = job_of(x);
    const mr_str copy = mr_arena_str(&j->serve->arena, mr_str_c(message));

    if (!j->failures) {
        j->failures =
            MR_ARENA_ARRAY(&j->serve->arena, struct mr_ipc_failure, x->exec.request_count);
    }
    if (j->failures && copy.ptr && j->failure_count < x->exec.request_count) {
        j->failures[j->failure_count++] = (struct mr_ipc_failure){request, status, copy.ptr};
    }
}

static int respond(struct mr_execution *x, struct mr_response *response, struct mr_err *err)
{
    struct job *j = job_of(x);
    struct worker_serve *s = j->serve;
    int rc;

    pthread_mutex_lock(&s->answering);
    worker_room_begin(&j->room, s->view, &j->task);
    MR_TRY(mr_ipc_answer_write(&j->task, j->nonce, &j->room.provider, x, response, err));
    const int64_t begin = mr_now_ns();
    rc = mr_shm_task_answer(s->view, &j->task, err);
    j->unread_ns += mr_now_ns() - begin;
    if (rc == MR_OK) {
        mr_response_free(&response);
    }
out:
    pthread_mutex_unlock(&s->answering);
    return rc;
}

int worker_serve_call(struct mr_execution *x, uint64_t number, const struct mr_call_args *args,
                      struct mr_err *err)
{
    struct job *j = job_of(x);
    struct worker_serve *s = j->serve;
    int rc;

    if (!j->task.room) {
        return MR_FAIL(err, MR_E_UNSUPPORTED, "a model calls no others while it is warmed up");
    }
    pthread_mutex_lock(&s->answering);
    worker_room_begin(&j->room, s->view, &j->task);
    MR_TRY(mr_ipc_call_write(&j->task, j->nonce, &j->room.provider, number, args, err));
    MR_TRY(mr_shm_task_answer(s->view, &j->task, err));
out:
    worker_room_begin(&j->room, s->view, &j->task); /* for the outputs */
    pthread_mutex_unlock(&s->answering);
    return rc;
}

static void on_done(struct mr_execution *x)
{
    struct worker_serve *s = job_of(x)->serve;

    pthread_mutex_lock(&s->lock);
    s->has_ended = true;
    pthread_cond_signal(&s->ended);
    pthread_mutex_unlock(&s->lock);
}

static void job_set_running(struct worker_serve *s, struct job *j)
{
    pthread_mutex_lock(&s->lock);
    s->running = j;
    s->has_ended = false;
    pthread_mutex_unlock(&s->lock);
}

static int pending_wait(struct worker_serve *s, struct job *j)
{
    pthread_mutex_lock(&s->lock);
    while (!s->has_ended) {
        pthread_cond_wait(&s->ended, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return j->x.status;
}

static int job_execute(struct worker_serve *s, struct job *j, struct mr_err *err)
{
    struct mr_execution *x = &j->x;
    int rc;

    x->outputs.list =
        MR_ARENA_ARRAY(&s->arena, struct mr_exec_output, s->executor->signature->output_count + 1u);
    if (!x->outputs.list) {
        return MR_FAIL(err, MR_E_NOMEM, "no memory for an execution");
    }
    x->outputs.arena = &s->arena;
    x->instance = s->instance;
    x->err = &j->err;
    x->fail_request = fail_request;
    x->respond = respond;
    x->on_done = on_done;
    job_set_running(s, j);
    rc = mr_executor_execute(s->executor, x, err);
    if (rc == MR_PENDING) {
        rc = pending_wait(s, j);
        if (rc < 0) {
            *err = j->err;
        }
    }
    job_set_running(s, NULL);
    return rc;
}

static int job_run(struct worker_serve *s, struct job *j, struct mr_err *err)
{
    int rc;

    MR_TRY(mr_ipc_exec_read(s->view, &j->task, &s->arena, &j->x.exec, &j->nonce, err));
    j->x.outputs.provider = &j->room.provider;
    j->x.is_cancelled = is_cancelled;
    rc = job_execute(s, j, err);
out:
    return rc;
}

static void job_do(struct worker_serve *s, struct job *j)
{
    struct mr_err err;

    mr_err_clear(&err);
    worker_room_begin(&j->room, s->view, &j->task);
    const int64_t begin = mr_now_ns();
    const int rc = job_run(s, j, &err);
    if (j->x.exec.flags & MR_EXEC_DECOUPLED) {
        worker_room_begin(&j->room, s->view, &j->task); /* it has held answers */
    }
    const int64_t end = mr_now_ns(), run_ns = end - begin - j->unread_ns;
    if (j->x.exec.infer_end_ns == 0) { /* the backend has made no marks */
        j->x.exec.infer_start_ns = begin;
        j->x.exec.infer_end_ns = end;
    }
    s->run_ns = MR_MAX(run_ns, s->run_ns - s->run_ns / 64);
    mr_ipc_reply_write(&j->task, j->nonce, &j->room.provider, &j->x, j->failures, j->failure_count,
                       run_ns, rc, &err);
    if (rc == MR_OK) {
        mr_exec_outputs_drop(&j->x.outputs);
    }
    if (s->run_ns < WAKE_NS) {
        mr_shm_complete_with_next(s->view, &j->task);
    } else {
        mr_shm_complete(s->view, &j->task);
    }
    mr_arena_reset(&s->arena);
}

static void *serve_main(void *arg)
{
    struct worker_serve *s = arg;

    /* relaxed: a flag that is polled */
    while (!atomic_load_explicit(&s->is_stopping, memory_order_relaxed)) {
        struct mr_shm_task task;
        if (mr_shm_claim(s->view, &task)) {
            struct job j = {.serve = s, .task = task};
            job_do(s, &j);
        } else {
            mr_shm_wait(s->view, IDLE_NS);
            mr_shm_progress(s->view);
        }
    }
    return NULL;
}

struct worker_serve *worker_serve_new(struct mr_shm_view *v, struct mr_executor *e, void *instance)
{
    struct worker_serve *s = MR_NEW(struct worker_serve);

    s->view = v;
    s->executor = e;
    s->instance = instance;
    mr_arena_init(&s->arena, ARENA_FIRST, ARENA_LIMIT);
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->answering, NULL);
    pthread_cond_init(&s->ended, NULL);
    return s;
}

void worker_serve_warm(struct worker_serve *s, uint64_t offset, uint64_t bytes)
{
    struct job j = {.serve = s};
    struct mr_err err;

    mr_err_clear(&err);
    if (mr_ipc_exec_read_kept(s->view, offset, bytes, &s->arena, &j.x.exec, &err) == MR_OK &&
        job_execute(s, &j, &err) == MR_OK) {
        mr_exec_outputs_drop(&j.x.outputs);
    }
    mr_arena_reset(&s->arena);
}

int worker_serve_start(struct worker_serve *s, struct mr_err *err)
{
    const int rc = mr_thread_start(&s->thread, "execute", serve_main, s, err);

    s->is_started = rc == MR_OK;
    return rc;
}

void worker_serve_cancel(struct worker_serve *s, uint32_t slot, uint64_t generation)
{
    struct mr_execution *x = NULL;

    pthread_mutex_lock(&s->lock);
    if (s->running && s->running->task.slot == slot && s->running->task.generation == generation &&
        mr_execution_hold(&s->running->x)) {
        x = &s->running->x;
    }
    pthread_mutex_unlock(&s->lock);
    if (x) {
        mr_execution_cancel(x); /* the hold keeps the execution, and with it the job, alive */
    }
}

void worker_serve_stop(struct worker_serve **io)
{
    struct worker_serve *s = *io;
    struct timespec until;

    if (!s) {
        return;
    }
    atomic_store_explicit(&s->is_stopping, true, memory_order_relaxed);
    while (s->is_started) {
        mr_shm_view_wake(s->view);
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += STOP_LOOK_NS;
        until.tv_sec += until.tv_nsec / MR_NS_PER_S;
        until.tv_nsec %= MR_NS_PER_S;
        s->is_started = pthread_timedjoin_np(s->thread, NULL, &until) == ETIMEDOUT;
    }
    pthread_cond_destroy(&s->ended);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->answering);
    mr_arena_fini(&s->arena);
    mr_freep(io);
}
