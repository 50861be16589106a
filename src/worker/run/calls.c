/* A call is in the list from its start to its end. Answers come as mail, which one of the waiting threads sleeps for; it puts
 * them into the queues of their calls, and wakes the threads that wait for those. Some come as frames, which the thread that
 * reads frames puts there, also while it waits itself. For calls that no thread waits for, a descriptor is written to
 * (call_notify); one thread of this file sleeps for the mail of all of them. One mutex guards everything, held for short; another
 * one is held while a frame is sent. */
#include "calls.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/queue.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "control.h"
#include "ipc/message.h"
#include "ipc/setup.h"

#define ARENA_FIRST 1024
#define ARENA_LIMIT ((size_t)8 << 20)
#define CALLS_MAX   256u /* of a worker, at once */
/* The longest sleep for mail: the end of the process may come between the check for it and the sleep. */
#define MAIL_WAIT_NS (100 * MR_NS_PER_MS)
#define READER_NS                                                                                  \
    (20 * MR_NS_PER_MS) /* its longest wait for a frame, as it looks for mail as well */

struct answer {
    struct mr_call_answer base; /* first */
    TAILQ_ENTRY(answer) link;
    struct mr_arena arena;
    uint64_t call, number;
    bool is_kept; /* the server keeps it until it knows that this has been dropped */
};

struct mr_model_call {
    uint64_t number;
    TAILQ_ENTRY(mr_model_call) link;
    TAILQ_HEAD(, answer) answers;
    pthread_cond_t moved;
    bool is_waiting;  /* a thread, on `moved` */
    bool has_frames;  /* its answers are frames */
    bool has_ended;   /* the server has ended it: its only answer has come, and is not kept */
    bool is_taken;    /* its last answer */
    bool is_notified; /* the token is to be written when there is an answer */
    int fd;
    uint64_t token;
};

static struct {
    struct mr_shm_view *view;
    worker_call_submit_fn *submit;
    worker_pump_fn *pump;
    pthread_t reader;
    pthread_mutex_t lock; /* guards what follows */
    bool is_watched;      /* a thread waits for mail */
    pthread_condattr_t clock;
    TAILQ_HEAD(, mr_model_call) list;
    uint64_t next;
    uint32_t count;
    bool is_stopped;
    uint32_t notified_count; /* calls with is_notified */
    pthread_cond_t notified;
    bool has_notifier;
    pthread_t notifier;
    pthread_mutex_t sending;
} calls = {.lock = PTHREAD_MUTEX_INITIALIZER,
           .notified = PTHREAD_COND_INITIALIZER,
           .sending = PTHREAD_MUTEX_INITIALIZER};

int worker_frame_send(enum mr_frame_type type, mr_bytes body, struct mr_err *err)
{
    pthread_mutex_lock(&calls.sending);
    const int rc = mr_frame_send(MR_WORKER_FD_SOCKET, type, body, err);
    pthread_mutex_unlock(&calls.sending);
    return rc;
}

static void say(enum mr_frame_type type, uint64_t call, uint64_t answer)
{
    struct mr_buf body;
    struct mr_err ignored;

    mr_buf_init(&body, 0);
    mr_pack_u64(&body, call);
    mr_pack_u64(&body, answer);
    worker_frame_send(type, (mr_bytes){(const uint8_t *)body.ptr, body.len}, &ignored);
    mr_buf_fini(&body);
}

static void answer_free(struct answer *a)
{
    mr_arena_fini(&a->arena);
    mr_free(a);
}

void worker_call_answer_drop(struct mr_call_answer **answer)
{
    struct answer *a = (struct answer *)*answer;

    *answer = NULL;
    if (a->is_kept) {
        say(MR_FRAME_TAKEN, a->call, a->number);
    }
    answer_free(a);
}

static bool is_reader(void)
{
    return pthread_equal(pthread_self(), calls.reader);
}

int worker_call_new(struct mr_model_call **out, uint64_t *out_number, struct mr_err *err)
{
    struct mr_model_call *c = MR_NEW(struct mr_model_call);

    TAILQ_INIT(&c->answers);
    pthread_cond_init(&c->moved, &calls.clock);
    pthread_mutex_lock(&calls.lock);
    const bool is_full = calls.count == CALLS_MAX;
    if (!is_full) {
        calls.count++;
        *out_number = c->number = ++calls.next;
        TAILQ_INSERT_TAIL(&calls.list, c, link);
    }
    pthread_mutex_unlock(&calls.lock);
    if (is_full) {
        pthread_cond_destroy(&c->moved);
        mr_free(c);
        return MR_FAIL(err, MR_E_EXHAUSTED,
                       "the model has %u calls to other models, more may not run at once",
                       CALLS_MAX);
    }
    *out = c;
    return MR_OK;
}

/* Lock held. */
static void notified_set(struct mr_model_call *c, bool is_notified)
{
    calls.notified_count += is_notified - c->is_notified;
    c->is_notified = is_notified;
}

/* Lock held, so that no token is written after the call has ended. */
static void notify(struct mr_model_call *c)
{
    if (c->is_notified) {
        notified_set(c, false);
        (void)!write(c->fd, &c->token, sizeof c->token);
    }
}

static void call_free(struct mr_model_call *c)
{
    struct answer *a;

    pthread_mutex_lock(&calls.lock);
    notified_set(c, false);
    TAILQ_REMOVE(&calls.list, c, link);
    calls.count--;
    pthread_mutex_unlock(&calls.lock);
    while ((a = TAILQ_FIRST(&c->answers))) {
        TAILQ_REMOVE(&c->answers, a, link);
        struct mr_call_answer *base = &a->base;
        worker_call_answer_drop(&base);
    }
    pthread_cond_destroy(&c->moved);
    mr_free(c);
}

static int begin(struct mr_execution *x, const struct mr_call_args *args,
                 struct mr_model_call **out, struct mr_err *err)
{
    struct mr_model_call *c = NULL;
    uint64_t number;
    int rc = worker_call_new(&c, &number, err);

    if (rc < 0) {
        return rc;
    }
    rc = calls.submit(x, number, args, err);
    if (rc < 0) {
        call_free(c);
        return rc;
    }
    *out = c;
    return MR_OK;
}

int worker_call_send(struct mr_model_call **call, enum mr_frame_type type,
                     const struct mr_buf *body, struct mr_err *err)
{
    pthread_mutex_lock(&calls.lock);
    (*call)->has_frames = true;
    pthread_mutex_unlock(&calls.lock);
    int rc = body->failed
                 ? MR_FAIL(err, MR_E_TOO_LARGE, "a request to the server has more than %zu MiB",
                           MR_FRAME_MAX >> 20)
                 : MR_OK;

    if (rc == MR_OK) {
        rc = worker_frame_send(type, (mr_bytes){(const uint8_t *)body->ptr, body->len}, err);
    }
    if (rc < 0) {
        call_free(*call);
        *call = NULL;
    }
    return rc;
}

void worker_call_end(struct mr_model_call **call)
{
    struct mr_model_call *c = *call;

    *call = NULL;
    if (!c->has_ended) {
        say(MR_FRAME_CALL_END, c->number, 0);
    }
    call_free(c);
}

/* ---- waiting; lock held, and released while a thread sleeps ---- */

static void mail_take(void);

/* Another waiting thread becomes the one that waits for mail. */
static void watch_pass_on(void)
{
    struct mr_model_call *c;

    TAILQ_FOREACH (c, &calls.list, link) {
        if (c->is_waiting && !c->has_frames) {
            pthread_cond_signal(&c->moved);
            return;
        }
    }
    if (calls.notified_count > 0) {
        pthread_cond_signal(&calls.notified);
    }
}

static int64_t wait_ns(int64_t until_ns, int64_t most_ns)
{
    return until_ns > 0 ? MR_MAX(1, MR_MIN(most_ns, until_ns - mr_now_ns())) : most_ns;
}

/* The thread that reads frames looks for mail now and then: it seldom waits, while the model is loaded or closed. */
static int reader_wait(int64_t until_ns, struct mr_err *err)
{
    pthread_mutex_unlock(&calls.lock);
    const int rc = calls.pump(wait_ns(until_ns, READER_NS), err);
    pthread_mutex_lock(&calls.lock);
    if (!calls.is_watched) {
        mail_take();
    }
    return rc < 0 && rc != MR_E_DEADLINE ? MR_E_CLOSED : MR_OK;
}

static void mail_wait(int64_t until_ns)
{
    calls.is_watched = true;
    pthread_mutex_unlock(&calls.lock);
    mr_shm_mail_wait(calls.view, wait_ns(until_ns, MAIL_WAIT_NS));
    pthread_mutex_lock(&calls.lock);
    mail_take();
    calls.is_watched = false;
}

static void moved_wait(struct mr_model_call *c, int64_t until_ns)
{
    const struct timespec at = {until_ns / MR_NS_PER_S, until_ns % MR_NS_PER_S};

    c->is_waiting = true;
    if (until_ns == 0) {
        pthread_cond_wait(&c->moved, &calls.lock);
    } else {
        pthread_cond_timedwait(&c->moved, &calls.lock, &at);
    }
    c->is_waiting = false;
}

/* Until there may be an answer. Errors: MR_E_DEADLINE, MR_E_CLOSED. */
static int answer_wait(struct mr_model_call *c, int64_t until_ns, struct mr_err *err)
{
    int rc = MR_OK;

    if (is_reader()) {
        rc = reader_wait(until_ns, err);
    } else if (calls.is_stopped) {
        return MR_E_CLOSED;
    } else if (c->has_frames || calls.is_watched) {
        moved_wait(c, until_ns);
    } else {
        mail_wait(until_ns);
    }
    return rc == MR_OK && until_ns > 0 && mr_now_ns() >= until_ns ? MR_E_DEADLINE : rc;
}

int worker_call_next(struct mr_model_call *c, int64_t timeout_ns, struct mr_call_answer **out,
                     struct mr_err *err)
{
    const int64_t until_ns = timeout_ns > 0 ? mr_now_ns() + timeout_ns : 0;
    struct answer *a;
    int rc = MR_OK;

    pthread_mutex_lock(&calls.lock);
    while (!(a = TAILQ_FIRST(&c->answers)) && rc == MR_OK) {
        rc = c->is_taken ? MR_E_CLOSED : answer_wait(c, until_ns, err);
    }
    if (a) {
        TAILQ_REMOVE(&c->answers, a, link);
        c->is_taken = a->base.is_last;
    }
    if (!calls.is_watched) {
        watch_pass_on();
    }
    pthread_mutex_unlock(&calls.lock);
    if (a) {
        *out = &a->base;
        return MR_OK;
    }
    return rc == MR_E_CLOSED ? MR_FAIL(err, MR_E_CLOSED, "the call has no more answers")
                             : MR_FAIL(err, MR_E_DEADLINE, "no answer in time");
}

/* ---- calls that no thread waits for ---- */

/* Sleeps for mail while there are such calls and no other thread does; once there are none, a thread that waits does. */
static void *notifier_main(void *arg)
{
    pthread_mutex_lock(&calls.lock);
    while (!calls.is_stopped) {
        if (calls.notified_count > 0 && !calls.is_watched) {
            mail_wait(0);
            continue;
        }
        if (!calls.is_watched) {
            watch_pass_on();
        }
        pthread_cond_wait(&calls.notified, &calls.lock);
    }
    pthread_mutex_unlock(&calls.lock);
    return arg;
}

/* Lock held. */
static int notifier_start(struct mr_err *err)
{
    if (!calls.has_notifier) {
        const int rc = mr_thread_start(&calls.notifier, "answers", notifier_main, NULL, err);
        calls.has_notifier = rc == MR_OK;
        return rc;
    }
    return MR_OK;
}

int worker_call_notify(struct mr_model_call *c, int fd, uint64_t token, struct mr_err *err)
{
    int rc;

    pthread_mutex_lock(&calls.lock);
    if (!calls.is_watched) {
        mail_take();
    }
    rc = !TAILQ_EMPTY(&c->answers) || c->is_taken || calls.is_stopped ? 1 : notifier_start(err);
    if (rc == MR_OK) {
        c->fd = fd;
        c->token = token;
        notified_set(c, true);
        pthread_cond_signal(&calls.notified);
    }
    pthread_mutex_unlock(&calls.lock);
    return rc;
}

/* ---- incoming answers ---- */

static struct mr_model_call *call_find(uint64_t number)
{
    struct mr_model_call *c;

    TAILQ_FOREACH (c, &calls.list, link) {
        if (c->number == number) {
            return c;
        }
    }
    return NULL;
}

static struct answer *answer_new(void)
{
    struct answer *a = MR_NEW(struct answer);

    mr_arena_init(&a->arena, ARENA_FIRST, ARENA_LIMIT);
    return a;
}

static void answer_set(struct answer *a, const struct mr_ipc_call_answer *said)
{
    a->call = said->call;
    a->number = said->number;
    a->base = (struct mr_call_answer){.size = sizeof a->base,
                                      .status = said->status,
                                      .is_last = said->is_last || said->status < 0,
                                      .message = said->message,
                                      .value = said->value,
                                      .parameters = said->parameters.list,
                                      .parameter_kinds = said->parameters.kinds,
                                      .parameter_count = said->parameters.count};
}

/* Lock held. False: the call has ended in between, and the answer is the caller's. */
static bool answer_queue(struct answer *a, bool has_ended)
{
    struct mr_model_call *c = call_find(a->call);

    if (c) {
        c->has_ended = has_ended;
        TAILQ_INSERT_TAIL(&c->answers, a, link);
        if (c->is_waiting) {
            pthread_cond_signal(&c->moved);
        }
        notify(c);
    }
    return c != NULL;
}

static int mail_read(uint64_t offset, struct answer *a, struct mr_err *err)
{
    struct mr_ipc_call_answer said;
    struct mr_exec outputs;
    int rc;

    MR_TRY(mr_ipc_call_mail_read(calls.view, offset, &a->arena, &said, &outputs, &a->is_kept, err));
    if (outputs.input_count != said.count) {
        rc = MR_FAIL(err, MR_E_INVALID, "an answer to a call that is damaged");
        goto out;
    }
    answer_set(a, &said);
    a->base.output_count = said.count;
    a->base.outputs = outputs.inputs;
    a->base.names = said.names;
out:
    return rc;
}

/* Puts all mail into the queues of its calls. Lock held. */
static void mail_take(void)
{
    uint64_t offset;
    struct mr_err err;

    while (mr_shm_mail_next(calls.view, &offset)) {
        struct answer *a = answer_new();
        if (mail_read(offset, a, &err) < 0) {
            fprintf(stderr, "%s\n", err.msg);
            _exit(MR_WORKER_EXIT_MEMORY); /* a caller would wait for ever */
        }
        mr_shm_mail_taken(calls.view);
        if (!answer_queue(a, !a->is_kept && a->number == 0)) {
            struct mr_call_answer *base = &a->base;
            worker_call_answer_drop(&base);
        }
    }
}

int worker_calls_on_answer(mr_bytes body, struct mr_err *err)
{
    struct answer *a = answer_new();
    struct mr_ipc_call_answer said;
    const int rc = mr_ipc_call_answer_unpack(body, &a->arena, &said, err);

    if (rc == MR_OK) {
        answer_set(a, &said);
        a->is_kept = !said.is_last;
        pthread_mutex_lock(&calls.lock);
        const bool is_wanted = answer_queue(a, false);
        pthread_mutex_unlock(&calls.lock);
        if (is_wanted) {
            return MR_OK;
        }
    }
    answer_free(a);
    return rc;
}

/* ---- life ---- */

void worker_calls_start(struct mr_shm_view *v, worker_call_submit_fn *submit, worker_pump_fn *pump)
{
    static const struct mr_plugin_calls ops = {.begin = begin,
                                               .next = worker_call_next,
                                               .notify = worker_call_notify,
                                               .drop = worker_call_answer_drop,
                                               .end = worker_call_end,
                                               .control = worker_control,
                                               .metric_new = worker_metric_new,
                                               .metric_add = mr_metric_add,
                                               .metric_set = mr_metric_set,
                                               .metric_value = mr_metric_value,
                                               .metric_drop = worker_metric_drop};
    calls.view = v;
    calls.submit = submit;
    calls.pump = pump;
    calls.reader = pthread_self();
    TAILQ_INIT(&calls.list);
    pthread_condattr_init(&calls.clock);
    pthread_condattr_setclock(&calls.clock, CLOCK_MONOTONIC);
    mr_plugin_set_calls(&ops);
}

void worker_calls_stop(void)
{
    struct mr_model_call *c;

    pthread_mutex_lock(&calls.lock);
    calls.is_stopped = true;
    if (calls.view) {
        TAILQ_FOREACH (c, &calls.list, link) {
            pthread_cond_signal(&c->moved);
            notify(c);
        }
        mr_shm_mail_wake(calls.view);
    }
    pthread_cond_signal(&calls.notified);
    pthread_mutex_unlock(&calls.lock);
    if (calls.has_notifier) {
        pthread_join(calls.notifier, NULL);
        calls.has_notifier = false;
    }
}
