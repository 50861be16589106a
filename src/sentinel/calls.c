/* Calls of models in workers: to other models, and to load and unload them.
 *
 * A call arrives as a letter of the slot that its worker runs, on the thread that takes answers, which starts it; its answers
 * are posted as mail by the threads that have them. A long call, and a control request, which arrives as a frame, are
 * started by the watching thread; answers to the latter are frames, which that thread sends. It also handles what the worker
 * releases and ends. A call is freed after both its worker and the side that runs it have ended it. */
#include "base/map.h"
#include "ipc/call.h"
#include "ipc/control.h"
#include "ipc/message.h"
#include "sentinel_priv.h"
#include "shm/mail.h"

#define ARENA_FIRST 4096
#define ARENA_LIMIT ((size_t)16 << 20)
/* Of a worker, at once. It counts those that it has not ended, of which there are half as many; the others are on their way. */
#define CALLS_MAX 512u

/* An answer, until the worker has released it. */
struct call_answer {
    struct call_answer *next; /* in the list of answers to send; then in the call's */
    struct call *call;
    uint64_t number;
    struct mr_block *mail; /* NULL: it is a frame */
    struct mr_buf body;    /* of the frame */
    bool is_last;
};

/* What follows `answers` is guarded by the lock of the worker's calls. */
struct call {
    struct mr_worker_call base; /* first */
    TAILQ_ENTRY(call) link;
    struct call *next; /* in the list of calls to start */
    struct process_model *model;
    struct worker *worker;
    uint32_t process; /* of the worker */
    struct mr_ipc_call request;
    struct mr_control_args control;
    struct mr_buf body; /* of the frame with it, which has its files */
    struct mr_arena arena;
    uint64_t answers;          /* so far */
    bool has_frames;           /* among its answers; all later ones are */
    bool is_later;             /* the watching thread has to continue it */
    struct call_answer *taken; /* answers that the worker holds */
    bool has_mail;
    uint32_t mail;  /* the number of its latest answer that was posted, if has_mail */
    bool is_listed; /* the worker still takes answers */
    bool is_started, has_last;
    uint32_t holds;
};

static const struct mr_worker_caller *caller_of(const struct call *c)
{
    return c->model->sentinel->options.caller;
}

static void answer_free(struct call_answer *a)
{
    mr_block_unref(&a->mail);
    mr_buf_fini(&a->body);
    mr_free(a);
}

static void call_free(struct call *c)
{
    struct process_model *m = c->model;

    mr_ipc_call_drop(&c->request);
    mr_feed_unref(&c->base.feed);
    mr_buf_fini(&c->body);
    mr_arena_fini(&c->arena);
    mr_free(c);
    sentinel_model_unref(m);
}

/* ---- the list; lock of the worker's calls held ---- */

static void call_unlist(struct call *c)
{
    struct worker *w = c->worker;

    TAILQ_REMOVE(&w->calls, c, link);
    w->call_count--;
    c->is_listed = false;
}

/* True: neither side needs it, and the caller frees it (call_end). */
static bool call_is_over(const struct call *c)
{
    return c->has_last && !c->is_listed && c->holds == 0;
}

/* ---- without the lock ---- */

static void call_end(struct call *c)
{
    caller_of(c)->drop(caller_of(c)->ctx, &c->base);
    call_free(c);
}

static void call_release(struct call *c)
{
    struct worker *w = c->worker;

    pthread_mutex_lock(&w->calls_lock);
    c->holds--;
    const bool is_over = call_is_over(c);
    pthread_mutex_unlock(&w->calls_lock);
    if (is_over) {
        call_end(c);
    }
}

/* The worker has released an answer. The call is held, or not over. */
static void answer_end(struct call *c, struct call_answer *a)
{
    if (!a->is_last) {
        caller_of(c)->taken(caller_of(c)->ctx, &c->base);
    }
    answer_free(a);
}

/* The worker takes no more answers of the call, which is held. */
static void call_leave(struct call *c)
{
    struct worker *w = c->worker;
    struct call_answer *taken = NULL;
    bool is_unwanted = false;

    pthread_mutex_lock(&w->calls_lock);
    if (c->is_listed) {
        call_unlist(c);
        taken = c->taken;
        c->taken = NULL;
        is_unwanted = c->is_started && !c->has_last; /* otherwise its start finds it left */
    }
    pthread_mutex_unlock(&w->calls_lock);
    while (taken) {
        struct call_answer *a = taken;
        taken = a->next;
        answer_end(c, a);
    }
    if (is_unwanted) {
        caller_of(c)->cancel(caller_of(c)->ctx, &c->base);
    }
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

static struct call *call_new(struct worker *w, uint32_t process)
{
    struct process_model *m = w->model;
    struct call *c = MR_NEW(struct call);

    mr_arena_init(&c->arena, ARENA_FIRST, ARENA_LIMIT);
    c->model = m;
    c->worker = w;
    c->process = process;
    c->base.model = m->base.model;
    sentinel_model_ref(m);
    return c;
}

/* The worker has ended it already. Lock of the worker's calls held. */
static bool has_ended_early(const struct call *c)
{
    const struct worker *w = c->worker;
    const uint32_t count = MR_MIN(w->ended_early_count, ENDED_EARLY_MAX);
    uint32_t i = 0;

    while (i < count && w->ended_early[i] != c->request.number) {
        i++;
    }
    return i < count;
}

/* The call is held then. False: its process has ended in between or has ended the call, or has too many calls. */
static bool call_join(struct call *c)
{
    struct worker *w = c->worker;

    pthread_mutex_lock(&w->calls_lock);
    const bool is_in =
        w->takes_calls &&
        c->process == atomic_load_explicit(&w->process_number, memory_order_relaxed) &&
        w->call_count < CALLS_MAX && !has_ended_early(c);
    if (is_in) {
        c->is_listed = true;
        c->holds = 1;
        w->call_count++;
        TAILQ_INSERT_TAIL(&w->calls, c, link);
    }
    pthread_mutex_unlock(&w->calls_lock);
    return is_in;
}

/* Ends the hold of call_join. */
static void call_start(struct call *c)
{
    struct worker *w = c->worker;

    caller_of(c)->start(caller_of(c)->ctx, &c->base);
    pthread_mutex_lock(&w->calls_lock);
    c->is_started = true;
    const bool is_unwanted = !c->is_listed && !c->has_last;
    pthread_mutex_unlock(&w->calls_lock);
    if (is_unwanted) {
        caller_of(c)->cancel(caller_of(c)->ctx, &c->base);
    }
    call_release(c);
}

/* For the watching thread to start, or to continue. */
static void call_hand_over(struct call *c)
{
    struct mr_sentinel *s = c->model->sentinel;

    c->next = atomic_load_explicit(&s->begun, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&s->begun, &c->next, c, memory_order_release,
                                                  memory_order_relaxed)) {
    }
    sentinel_wake(s);
}

static int call_read(struct call *c, const struct mr_shm_slot *slot, const struct mr_execution *x,
                     struct mr_err *err)
{
    struct process_model *m = c->model;
    int rc;

    MR_TRY(mr_ipc_call_read(m->shm, slot, &c->arena, &c->request, err));
    MR_TRY(chain_extend(&c->base.chain, x->chain, m->base.model, err));
    c->base.args = &c->request.args;
    c->base.execution = x;
    c->base.feed = mr_feed_ref(x->feed);
    c->base.runs = x->chain;
    c->base.instances = m->instance_count;
    c->base.blocks = c->request.blocks;
out:
    return rc;
}

void call_take(struct process_model *m, const struct mr_shm_slot *slot,
               const struct mr_execution *x)
{
    const bool is_short = mr_shm_is_posted(slot) && !home_is_here(HOME_SENTINEL);
    struct call *c = call_new(&m->workers[slot->worker], slot->process);
    struct mr_err err;

    mr_err_clear(&err);
    const int rc = m->sentinel->options.caller
                       ? call_read(c, slot, x, &err)
                       : MR_FAIL(&err, MR_E_UNSUPPORTED, "this server takes no calls of models");
    if (!m->sentinel->options.caller || !call_join(c)) {
        call_free(c);
    } else if (rc < 0) {
        const struct mr_worker_answer failure = {.status = rc, .message = err.msg, .is_last = true};
        mr_worker_answer_send(mr_worker_answer_make(&c->base, &failure));
        call_release(c);
    } else if (is_short) {
        c->base.loop = x->loop;
        call_start(c);
    } else {
        c->base.loop = MR_NO_LOOP;
        call_hand_over(c);
    }
}

void mr_worker_call_later(struct mr_worker_call *base)
{
    struct call *c = (struct call *)base;

    c->is_later = true;
    call_hand_over(c);
}

void calls_join(struct mr_sentinel *s)
{
    struct call *c = atomic_exchange_explicit(&s->begun, NULL, memory_order_acquire);
    struct call *next;

    /* The newest call comes first, so that the list is in order again. */
    for (; c; c = next) {
        next = c->next;
        c->next = s->joined;
        s->joined = c;
    }
}

void calls_start(struct mr_sentinel *s)
{
    while (s->joined) {
        struct call *c = s->joined;
        s->joined = c->next;
        if (c->is_later) {
            caller_of(c)->later(caller_of(c)->ctx, &c->base);
        } else {
            call_start(c);
        }
    }
}

/* ---- answers ---- */

/* Without shared memory it becomes a failure, which is a frame if need be. */
static void answer_write(struct call_answer *a, struct mr_ipc_call_answer *frame,
                         const struct mr_exec *outputs)
{
    struct call *c = a->call;
    struct mr_err err;
    int rc = c->base.control || c->has_frames
                 ? MR_E_EXHAUSTED
                 : mr_ipc_call_mail_write(c->model->shm, frame, outputs, &a->mail, &err);

    if (rc < 0 && outputs) {
        frame->status = rc;
        frame->message = c->has_frames ? "no shared memory for an earlier answer" : err.msg;
        frame->count = frame->parameters.count = 0;
        rc =
            c->has_frames ? rc : mr_ipc_call_mail_write(c->model->shm, frame, NULL, &a->mail, &err);
    }
    if (rc < 0) {
        c->has_frames = true;
        mr_ipc_call_answer_pack(&a->body, frame);
    }
}

struct call_answer *mr_worker_answer_make(struct mr_worker_call *base,
                                          const struct mr_worker_answer *said)
{
    struct call *c = (struct call *)base;
    struct call_answer *a = MR_NEW(struct call_answer);
    const struct mr_exec_request request = {.id = "", .correlation_text = ""};
    const struct mr_exec outputs = {.size = sizeof outputs,
                                    .input_count = said->count,
                                    .request_count = 1,
                                    .inputs = said->outputs,
                                    .requests = &request,
                                    .request_size = sizeof request};
    struct mr_ipc_call_answer frame = {.call = c->request.number,
                                       .number = c->answers++,
                                       .status = said->status,
                                       .is_last = said->is_last,
                                       .message = said->message ? said->message : "",
                                       .value = said->value,
                                       .count = said->count,
                                       .names = said->names,
                                       .parameters = said->parameters};

    a->call = c;
    a->number = frame.number;
    a->is_last = said->is_last;
    mr_buf_init(&a->body, 0);
    answer_write(a, &frame, said->count > 0 ? &outputs : NULL);
    return a;
}

/* For the watching thread to send. */
static void answer_hand_over(struct call_answer *a)
{
    struct mr_sentinel *s = a->call->model->sentinel;

    a->next = atomic_load_explicit(&s->call_answers, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&s->call_answers, &a->next, a,
                                                  memory_order_release, memory_order_relaxed)) {
    }
    sentinel_wake(s);
}

/* The worker keeps it until it releases it. Lock of the calls held. */
static void answer_keep(struct call *c, struct call_answer *a)
{
    a->next = c->taken;
    c->taken = a;
}

static void answer_post(struct call_answer *a)
{
    struct call *c = a->call;
    struct worker *w = c->worker;
    struct process_model *m = c->model;
    const bool is_kept = mr_ipc_call_mail_is_kept(a->mail, a->is_last);

    sentinel_model_ref(m); /* the call may be freed as soon as the lock is */
    pthread_mutex_lock(&w->calls_lock);
    const bool is_wanted = c->is_listed;
    if (is_wanted) {
        c->mail = mr_shm_mail_post(m->shm, w->index, mr_block_ref(a->mail));
        c->has_mail = true;
    }
    if (is_wanted && is_kept) {
        answer_keep(c, a);
    }
    if (a->is_last) {
        c->has_last = true;                            /* it is on its way */
        if (is_wanted && !is_kept && a->number == 0) { /* the worker ends other calls itself */
            call_unlist(c);
        }
    }
    const bool is_over = call_is_over(c);
    pthread_mutex_unlock(&w->calls_lock);
    if (is_wanted) {
        mr_shm_mail_ring(m->shm, w->index);
    }
    if (!is_wanted) {
        answer_end(c, a);
    } else if (!is_kept) {
        answer_free(a);
    }
    if (is_over) {
        call_end(c);
    }
    sentinel_model_unref(m);
}

void mr_worker_answer_send(struct call_answer *a)
{
    if (a->mail) {
        answer_post(a);
    } else {
        answer_hand_over(a);
    }
}

/* As a frame. */
static void answer_send(struct call_answer *a)
{
    struct call *c = a->call;
    struct worker *w = c->worker;

    pthread_mutex_lock(&w->calls_lock);
    const bool is_wanted = c->is_listed;
    if (is_wanted) {
        mr_frame_append(&w->out, MR_FRAME_ANSWER,
                        (mr_bytes){(const uint8_t *)a->body.ptr, a->body.len});
    }
    const bool is_kept = is_wanted && !a->is_last;
    if (is_kept) {
        answer_keep(c, a);
    }
    if (a->is_last) {
        c->has_last = true;
    }
    const bool is_over = call_is_over(c);
    pthread_mutex_unlock(&w->calls_lock);
    if (is_wanted) {
        worker_flush(w);
    }
    if (!is_kept) {
        answer_end(c, a);
    }
    if (is_over) {
        call_end(c);
    }
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

/* The call is held. NULL: it has ended here; one that has not come yet, and which the worker ends, will not begin. */
static struct call *call_find(struct worker *w, uint64_t number, bool is_end)
{
    struct call *c;

    pthread_mutex_lock(&w->calls_lock);
    TAILQ_FOREACH (c, &w->calls, link) {
        if (c->request.number == number) {
            c->holds++;
            break;
        }
    }
    if (!c && is_end) {
        w->ended_early[w->ended_early_count++ % ENDED_EARLY_MAX] = number;
    }
    pthread_mutex_unlock(&w->calls_lock);
    return c;
}

static void on_taken(struct call *c, uint64_t number)
{
    struct call_answer **at = &c->taken, *a;

    pthread_mutex_lock(&c->worker->calls_lock);
    while (*at && (*at)->number != number) {
        at = &(*at)->next;
    }
    a = *at;
    if (a) {
        *at = a->next;
    }
    pthread_mutex_unlock(&c->worker->calls_lock);
    if (a) {
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
    struct call *c = call_new(w, atomic_load_explicit(&w->process_number, memory_order_relaxed));
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
    const bool is_end = f->type == MR_FRAME_CALL_END;
    struct call *c = call_find(w, number, is_end);
    if (!c) {
        return MR_OK;
    }
    if (is_end) {
        call_leave(c);
    } else {
        on_taken(c, answer);
    }
    call_release(c);
    return MR_OK;
}

void calls_begin(struct worker *w, uint32_t process)
{
    mr_shm_mail_begin(w->model->shm, w->index);
    pthread_mutex_lock(&w->calls_lock);
    w->takes_calls = true;
    atomic_store_explicit(&w->process_number, process, memory_order_relaxed);
    atomic_store_explicit(&w->answered, 0, memory_order_relaxed);
    w->ended_early_count = 0;
    pthread_mutex_unlock(&w->calls_lock);
}

void calls_end(struct worker *w)
{
    struct call *c;

    pthread_mutex_lock(&w->calls_lock);
    w->takes_calls = false;
    while ((c = TAILQ_FIRST(&w->calls))) {
        c->holds++;
        pthread_mutex_unlock(&w->calls_lock);
        call_leave(c);
        call_release(c);
        pthread_mutex_lock(&w->calls_lock);
    }
    pthread_mutex_unlock(&w->calls_lock);
}

void calls_expire(struct worker *w)
{
    struct call *open[CALLS_MAX], *c;
    uint32_t count = 0;

    pthread_mutex_lock(&w->calls_lock);
    TAILQ_FOREACH (c, &w->calls, link) {
        if (c->is_started && !c->has_last) {
            c->holds++;
            open[count++] = c;
        }
    }
    pthread_mutex_unlock(&w->calls_lock);
    for (uint32_t i = 0; i < count; i++) {
        caller_of(open[i])->expire(caller_of(open[i])->ctx, &open[i]->base);
        call_release(open[i]);
    }
}

bool calls_wait(struct worker *w)
{
    struct call *c;

    pthread_mutex_lock(&w->calls_lock);
    TAILQ_FOREACH (c, &w->calls, link) {
        if (!c->has_last &&
            (!c->has_mail || mr_shm_mail_is_read(w->model->shm, w->index, c->mail))) {
            break;
        }
    }
    pthread_mutex_unlock(&w->calls_lock);
    return c != NULL;
}
