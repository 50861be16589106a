/* A call is in the list from its start to its end; the thread that reads frames puts answers into its queue, and the
 * waiting thread takes them. A thread that reads frames reads them also while it waits. One mutex guards everything, held
 * for a few instructions; another one is held while a frame is sent. */
#include "calls.h"

#include <errno.h>
#include <pthread.h>
#include <sys/queue.h>

#include "base/clock.h"
#include "base/mem.h"
#include "control.h"
#include "ipc/message.h"
#include "ipc/setup.h"

#define ARENA_FIRST 1024
#define ARENA_LIMIT ((size_t)8 << 20)
#define CALLS_MAX   256u /* of a worker, at once */

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
    bool has_ended; /* its last answer has come */
    bool is_taken;  /* and has been taken */
};

static struct {
    struct mr_shm_view *view;
    worker_call_submit_fn *submit;
    worker_pump_fn *pump;
    pthread_t reader;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t moved;
    TAILQ_HEAD(, mr_model_call) list;
    uint64_t next;
    uint32_t count;
    bool is_stopped;
    pthread_mutex_t sending;
} calls = {.lock = PTHREAD_MUTEX_INITIALIZER, .sending = PTHREAD_MUTEX_INITIALIZER};

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
    pthread_mutex_lock(&calls.lock);
    const bool is_full = calls.count == CALLS_MAX;
    if (!is_full) {
        calls.count++;
        *out_number = c->number = ++calls.next;
        TAILQ_INSERT_TAIL(&calls.list, c, link);
    }
    pthread_mutex_unlock(&calls.lock);
    if (is_full) {
        mr_free(c);
        return MR_FAIL(err, MR_E_EXHAUSTED,
                       "the model has %u calls to other models, more may not run at once",
                       CALLS_MAX);
    }
    *out = c;
    return MR_OK;
}

static void call_free(struct mr_model_call *c)
{
    struct answer *a;

    pthread_mutex_lock(&calls.lock);
    TAILQ_REMOVE(&calls.list, c, link);
    calls.count--;
    pthread_mutex_unlock(&calls.lock);
    while ((a = TAILQ_FIRST(&c->answers))) {
        TAILQ_REMOVE(&c->answers, a, link);
        struct mr_call_answer *base = &a->base;
        worker_call_answer_drop(&base);
    }
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
    say(MR_FRAME_CALL_END, c->number, 0);
    call_free(c);
}

/* Lock held, and released while it waits. Errors: MR_E_DEADLINE, MR_E_CLOSED. */
static int moved_wait(int64_t until_ns, struct mr_err *err)
{
    const struct timespec at = {until_ns / MR_NS_PER_S, until_ns % MR_NS_PER_S};
    int rc = 0;

    if (is_reader()) {
        pthread_mutex_unlock(&calls.lock);
        rc = calls.pump(until_ns > 0 ? MR_MAX(1, until_ns - mr_now_ns()) : 0, err);
        pthread_mutex_lock(&calls.lock);
        if (rc < 0) {
            return rc == MR_E_DEADLINE ? rc : MR_E_CLOSED;
        }
    } else if (calls.is_stopped) {
        return MR_E_CLOSED;
    } else if (until_ns == 0) {
        pthread_cond_wait(&calls.moved, &calls.lock);
    } else {
        rc = pthread_cond_timedwait(&calls.moved, &calls.lock, &at) == ETIMEDOUT;
    }
    return rc > 0 || (until_ns > 0 && mr_now_ns() >= until_ns) ? MR_E_DEADLINE : MR_OK;
}

int worker_call_next(struct mr_model_call *c, int64_t timeout_ns, struct mr_call_answer **out,
                     struct mr_err *err)
{
    const int64_t until_ns = timeout_ns > 0 ? mr_now_ns() + timeout_ns : 0;
    struct answer *a;
    int rc = MR_OK;

    pthread_mutex_lock(&calls.lock);
    while (!(a = TAILQ_FIRST(&c->answers)) && rc == MR_OK) {
        rc = c->is_taken ? MR_E_CLOSED : moved_wait(until_ns, err);
    }
    if (a) {
        TAILQ_REMOVE(&c->answers, a, link);
        c->is_taken = a->base.is_last;
    }
    pthread_mutex_unlock(&calls.lock);
    if (a) {
        *out = &a->base;
        return MR_OK;
    }
    return rc == MR_E_CLOSED ? MR_FAIL(err, MR_E_CLOSED, "the call has no more answers")
                             : MR_FAIL(err, MR_E_DEADLINE, "no answer in time");
}

/* ---- incoming frames ---- */

static int outputs_read(struct answer *a, const struct mr_ipc_call_answer *said, struct mr_err *err)
{
    struct mr_exec exec;
    int rc;

    a->is_kept = said->bytes > 0 || !said->is_last;
    if (said->bytes == 0) {
        return MR_OK;
    }
    rc = mr_ipc_exec_read_kept(calls.view, said->offset, said->bytes, &a->arena, &exec, err);
    if (rc == MR_OK && exec.input_count != said->count) {
        rc = MR_FAIL(err, MR_E_INVALID, "an answer to a call that is damaged");
    }
    if (rc == MR_OK) {
        a->base.output_count = said->count;
        a->base.outputs = exec.inputs;
        a->base.names = said->names;
    }
    return rc;
}

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

static void answer_queue(struct answer *a)
{
    struct mr_call_answer *base = &a->base;

    pthread_mutex_lock(&calls.lock);
    struct mr_model_call *c = call_find(a->call);
    if (c) {
        c->has_ended |= a->base.is_last;
        TAILQ_INSERT_TAIL(&c->answers, a, link);
        pthread_cond_broadcast(&calls.moved);
    }
    pthread_mutex_unlock(&calls.lock);
    if (!c) {
        worker_call_answer_drop(&base); /* the call has ended in between */
    }
}

int worker_calls_on_answer(mr_bytes body, struct mr_err *err)
{
    struct answer *a = MR_NEW(struct answer);
    struct mr_ipc_call_answer said;
    int rc;

    mr_arena_init(&a->arena, ARENA_FIRST, ARENA_LIMIT);
    MR_TRY(mr_ipc_call_answer_unpack(body, &a->arena, &said, err));
    a->call = said.call;
    a->number = said.number;
    a->base = (struct mr_call_answer){.size = sizeof a->base,
                                      .status = said.status,
                                      .is_last = said.is_last || said.status < 0,
                                      .message = said.message,
                                      .value = said.value,
                                      .parameters = said.parameters.list,
                                      .parameter_kinds = said.parameters.kinds,
                                      .parameter_count = said.parameters.count};
    MR_TRY(outputs_read(a, &said, err));
    answer_queue(a);
    return MR_OK;
out:
    answer_free(a);
    return rc;
}

/* ---- life ---- */

void worker_calls_start(struct mr_shm_view *v, worker_call_submit_fn *submit, worker_pump_fn *pump)
{
    static const struct mr_plugin_calls ops = {.begin = begin,
                                               .next = worker_call_next,
                                               .drop = worker_call_answer_drop,
                                               .end = worker_call_end,
                                               .control = worker_control,
                                               .metric_new = worker_metric_new,
                                               .metric_add = mr_metric_add,
                                               .metric_set = mr_metric_set,
                                               .metric_value = mr_metric_value,
                                               .metric_drop = worker_metric_drop};
    pthread_condattr_t clock;

    calls.view = v;
    calls.submit = submit;
    calls.pump = pump;
    calls.reader = pthread_self();
    TAILQ_INIT(&calls.list);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&calls.moved, &clock);
    pthread_condattr_destroy(&clock);
    mr_plugin_set_calls(&ops);
}

void worker_calls_stop(void)
{
    pthread_mutex_lock(&calls.lock);
    calls.is_stopped = true;
    if (calls.view) {
        pthread_cond_broadcast(&calls.moved);
    }
    pthread_mutex_unlock(&calls.lock);
}
