/* Calls of models in workers: to other models, and to load and unload them.
 *
 * A call arrives as an answer of the slot that its worker runs, on the thread that takes answers; a control request arrives
 * as a frame, on the watching thread. The watching thread adds it to its worker's list, starts it, sends its answers, and
 * handles its end; other threads only make the answers, and pass them through a lock-free list. A call is freed after both
 * its worker and the side that runs it have ended it. */
#include "base/map.h"
#include "ipc/call.h"
#include "ipc/control.h"
#include "ipc/message.h"
#include "sentinel_priv.h"

#define ARENA_FIRST 4096
#define ARENA_LIMIT ((size_t)16 << 20)
#define CALLS_MAX   256u /* of a worker, at once */

/* An answer, until the worker has released it. */
struct call_answer {
    struct call_answer *next; /* in the list of answers to send; then in the call's */
    struct call *call;
    uint64_t number;
    struct mr_buf body; /* of the frame */
    struct mr_block *memory;
    bool is_last;
};

struct call {
    struct mr_worker_call base; /* first */
    TAILQ_ENTRY(call) link;
    struct call *next; /* in the list of calls to start */
    struct process_model *model;
    struct worker *worker;
    uint64_t life; /* of the worker's memory, when the call began */
    struct mr_ipc_call request;
    struct mr_control_args control;
    struct mr_buf body; /* of the frame with it, which has its files */
    struct mr_arena arena;
    uint64_t answers;          /* so far */
    struct call_answer *taken; /* answers that the worker holds */
    bool is_listed;            /* the worker still takes answers */
    bool is_started, has_last;
};

static const struct mr_worker_caller *caller_of(const struct call *c)
{
    return c->model->sentinel->options.caller;
}

static void answer_free(struct call_answer *a)
{
    mr_block_unref(&a->memory);
    mr_buf_fini(&a->body);
    mr_free(a);
}

static void call_free(struct call *c)
{
    struct process_model *m = c->model;

    mr_ipc_call_drop(&c->request);
    mr_buf_fini(&c->body);
    mr_arena_fini(&c->arena);
    mr_free(c);
    sentinel_model_unref(m);
}

/* Frees a call that neither side needs. */
static void call_try_end(struct call *c)
{
    if (c->has_last && !c->is_listed) {
        if (c->is_started) {
            caller_of(c)->drop(caller_of(c)->ctx, &c->base);
        }
        call_free(c);
    }
}

/* The worker has released an answer. */
static void answer_end(struct call *c, struct call_answer *a)
{
    if (!a->is_last) {
        caller_of(c)->taken(caller_of(c)->ctx, &c->base);
    }
    answer_free(a);
}

/* The worker takes no more answers. */
static void call_leave(struct call *c)
{
    TAILQ_REMOVE(&c->worker->calls, c, link);
    c->worker->call_count--;
    c->worker->waiting_count -= !c->has_last;
    c->is_listed = false;
    while (c->taken) {
        struct call_answer *a = c->taken;
        c->taken = a->next;
        answer_end(c, a);
    }
    if (!c->has_last && c->is_started) {
        caller_of(c)->cancel(caller_of(c)->ctx, &c->base);
    }
    call_try_end(c);
}

/* ---- begin ---- */

static int chain_extend(struct mr_call_chain *chain, const struct mr_call_chain *from,
                        const char *model, struct mr_err *err)
{
    *chain = from ? *from : (struct mr_call_chain){0};
    if (chain->depth == MR_CALL_DEPTH_MAX) {
        return MR_FAIL(
            err, MR_E_INVALID,
            "model '%s' calls a model, and was called by %d models one within the other: "
            "no more are allowed",
            model, MR_CALL_DEPTH_MAX);
    }
    chain->models[chain->depth++] = mr_hash(mr_str_c(model));
    return MR_OK;
}

static struct call *call_new(struct worker *w)
{
    struct process_model *m = w->model;
    struct call *c = MR_NEW(struct call);

    mr_arena_init(&c->arena, ARENA_FIRST, ARENA_LIMIT);
    c->model = m;
    c->worker = w;
    c->life = mr_shm_worker_life(m->shm, w->index);
    c->base.model = m->base.model;
    sentinel_model_ref(m);
    return c;
}

int call_take(struct process_model *m, const struct mr_shm_slot *slot, const struct mr_execution *x,
              struct mr_err *err)
{
    struct mr_sentinel *s = m->sentinel;
    struct call *c;
    int rc;

    if (!s->options.caller) {
        return MR_FAIL(err, MR_E_UNSUPPORTED, "this server takes no calls of models");
    }
    c = call_new(&m->workers[slot->worker]);
    MR_TRY(chain_extend(&c->base.chain, x->chain, m->base.model, err));
    MR_TRY(mr_ipc_call_read(m->shm, slot, &c->arena, &c->request, err));
    c->base.args = &c->request.args;
    c->base.execution = x;
    c->base.runs = x->chain;
    c->base.instances = m->instance_count;
    c->base.blocks = c->request.blocks;
    c->next = atomic_load_explicit(&s->begun, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&s->begun, &c->next, c, memory_order_release,
                                                  memory_order_relaxed)) {
    }
    sentinel_wake(s);
    return MR_OK;
out:
    call_free(c);
    return rc;
}

/* False: its worker has ended in between, or has too many calls. */
static bool call_join(struct call *c)
{
    struct worker *w = c->worker;

    if (!w->is_running || w->call_count == CALLS_MAX ||
        c->life != mr_shm_worker_life(c->model->shm, w->index)) {
        return false;
    }
    c->is_listed = c->is_started = true;
    w->call_count++;
    w->waiting_count++;
    TAILQ_INSERT_TAIL(&w->calls, c, link);
    return true;
}

void calls_join(struct mr_sentinel *s)
{
    struct call *c = atomic_exchange_explicit(&s->begun, NULL, memory_order_acquire);
    struct call *next;

    /* The newest call comes first, so that the list of calls to start is in order again. */
    for (; c; c = next) {
        next = c->next;
        if (call_join(c)) {
            c->next = s->joined;
            s->joined = c;
        } else {
            call_free(c);
        }
    }
}

void calls_start(struct mr_sentinel *s)
{
    while (s->joined) {
        struct call *c = s->joined;
        s->joined = c->next;
        s->options.caller->start(s->options.caller->ctx, &c->base);
    }
}

/* ---- answers ---- */

static int outputs_keep(struct call_answer *a, const struct mr_worker_answer *said,
                        uint64_t *out_offset, uint64_t *out_bytes, struct mr_err *err)
{
    const struct mr_exec_request request = {.id = "", .correlation_text = ""};
    const struct mr_exec exec = {.size = sizeof exec,
                                 .input_count = said->count,
                                 .request_count = 1,
                                 .inputs = said->outputs,
                                 .requests = &request,
                                 .request_size = sizeof request};

    if (said->count == 0) {
        return MR_OK;
    }
    return mr_ipc_exec_keep(a->call->model->shm, &exec, &a->memory, out_offset, out_bytes, err);
}

struct call_answer *mr_worker_answer_make(struct mr_worker_call *base,
                                          const struct mr_worker_answer *said)
{
    struct call *c = (struct call *)base;
    struct call_answer *a = MR_NEW(struct call_answer);
    struct mr_ipc_call_answer frame = {.call = c->request.number,
                                       .number = c->answers++,
                                       .status = said->status,
                                       .is_last = said->is_last,
                                       .message = said->message ? said->message : "",
                                       .value = said->value,
                                       .count = said->count,
                                       .names = said->names,
                                       .parameters = said->parameters};
    struct mr_err err;

    mr_err_clear(&err);
    a->call = c;
    a->number = frame.number;
    a->is_last = said->is_last;
    mr_buf_init(&a->body, 0);
    const int rc = outputs_keep(a, said, &frame.offset, &frame.bytes, &err);
    if (rc < 0) {
        frame.status = rc;
        frame.message = err.msg;
        frame.count = frame.parameters.count = 0;
    }
    mr_ipc_call_answer_pack(&a->body, &frame);
    return a;
}

void mr_worker_answer_send(struct call_answer *a)
{
    struct mr_sentinel *s = a->call->model->sentinel;

    a->next = atomic_load_explicit(&s->call_answers, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&s->call_answers, &a->next, a,
                                                  memory_order_release, memory_order_relaxed)) {
    }
    sentinel_wake(s);
}

static void answer_send(struct call_answer *a)
{
    struct call *c = a->call;
    struct worker *w = c->worker;

    if (a->is_last) {
        c->has_last = true;
        w->waiting_count -= c->is_listed;
    }
    if (!c->is_listed) {
        answer_end(c, a);
        call_try_end(c);
        return;
    }
    mr_frame_append(&w->out, MR_FRAME_ANSWER,
                    (mr_bytes){(const uint8_t *)a->body.ptr, a->body.len});
    mr_buf_fini(&a->body);
    if (a->memory || !a->is_last) {
        a->next = c->taken;
        c->taken = a;
    } else {
        answer_free(a);
    }
    worker_flush(w);
}

void calls_answer(struct mr_sentinel *s)
{
    struct call_answer *a = atomic_exchange_explicit(&s->call_answers, NULL, memory_order_acquire);
    struct call_answer *first = NULL, *next;

    for (; a; a = next) {
        next = a->next;
        a->next = first;
        first = a;
    }
    for (a = first; a; a = next) {
        next = a->next;
        answer_send(a);
    }
}

/* ---- frames of the worker ---- */

static struct call *call_find(struct worker *w, uint64_t number)
{
    struct call *c;

    TAILQ_FOREACH (c, &w->calls, link) {
        if (c->request.number == number) {
            return c;
        }
    }
    return NULL;
}

static void on_taken(struct call *c, uint64_t number)
{
    struct call_answer **at = &c->taken;

    while (*at && (*at)->number != number) {
        at = &(*at)->next;
    }
    if (*at) {
        struct call_answer *a = *at;
        *at = a->next;
        answer_end(c, a);
    }
}

/* An answer that needs no execution. */
static void answer_now(struct worker *w, uint64_t number, int64_t value, const struct mr_err *err)
{
    const struct mr_ipc_call_answer frame = {.call = number,
                                             .status = err->status,
                                             .is_last = true,
                                             .message = err->status < 0 ? err->msg : "",
                                             .value = value};
    struct mr_buf body;

    mr_buf_init(&body, 0);
    mr_ipc_call_answer_pack(&body, &frame);
    mr_frame_append(&w->out, MR_FRAME_ANSWER, (mr_bytes){(const uint8_t *)body.ptr, body.len});
    mr_buf_fini(&body);
    worker_flush(w);
}

static int on_metric(struct worker *w, mr_bytes body, struct mr_err *err)
{
    struct mr_metric_args args;
    struct mr_arena arena;
    uint64_t number, cell = 0;
    struct mr_err refusal;

    mr_err_clear(&refusal);
    mr_arena_init(&arena, ARENA_FIRST, ARENA_LIMIT);
    const int rc = mr_ipc_metric_unpack(body, &arena, &number, &args, err);
    if (rc == MR_OK) {
        mr_metrics_add(w->model->sentinel->metrics, w->model, &args, &cell, &refusal);
        answer_now(w, number, (int64_t)cell, &refusal);
    }
    mr_arena_fini(&arena);
    return rc;
}

static int on_control(struct worker *w, mr_bytes body, struct mr_err *err)
{
    struct mr_sentinel *s = w->model->sentinel;
    struct call *c = call_new(w);
    struct mr_err refusal;
    int rc;

    mr_buf_init(&c->body, MR_FRAME_MAX);
    mr_buf_append(&c->body, body.ptr, body.len);
    MR_TRY(mr_ipc_control_unpack((mr_bytes){(const uint8_t *)c->body.ptr, c->body.len}, &c->arena,
                                 &c->request.number, &c->control, err));
    c->base.control = &c->control;
    c->base.is_loading = w->step != STEP_READY && !w->was_ready;
    if (!s->options.caller || !call_join(c)) { /* it has too many */
        rc = MR_FAIL(&refusal, MR_E_UNAVAILABLE,
                     "this server takes no control requests of models now");
        answer_now(w, c->request.number, 0, &refusal);
        call_free(c);
        return MR_OK;
    }
    c->next = s->joined;
    s->joined = c;
    return MR_OK;
out:
    call_free(c);
    return rc;
}

int call_on_control(struct worker *w, const struct mr_frame *f, struct mr_err *err)
{
    if (!w->model->command) {
        return MR_FAIL(err, MR_E_INVALID, "it sent message %u, which is for models in Python",
                       f->type);
    }
    return f->type == MR_FRAME_METRIC ? on_metric(w, f->body, err) : on_control(w, f->body, err);
}

int call_on_frame(struct worker *w, const struct mr_frame *f, struct mr_err *err)
{
    struct mr_arena none;

    mr_arena_init(&none, 64, 64);
    struct mr_unpack u = mr_unpack_begin(f->body, &none);
    const uint64_t number = mr_unpack_u64(&u), answer = mr_unpack_u64(&u);
    mr_arena_fini(&none);
    if (u.failed) {
        return MR_FAIL(err, MR_E_INVALID, "it sent a message %u that is damaged", f->type);
    }
    struct call *c = call_find(w, number);
    if (c && f->type == MR_FRAME_CALL_END) {
        call_leave(c);
    } else if (c) {
        on_taken(c, answer);
    }
    return MR_OK; /* otherwise the call has already ended here */
}

void calls_end(struct worker *w)
{
    struct call *c;

    while ((c = TAILQ_FIRST(&w->calls))) {
        call_leave(c);
    }
}
