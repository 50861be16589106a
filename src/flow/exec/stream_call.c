#include "stream_call.h"

#include "base/mem.h"

struct stream {
    struct call *call;
    struct stream *outer;               /* whose answer it belongs to */
    _Atomic(struct mr_response *) came; /* the last one first */
    struct mr_response *next;           /* in their order */
    struct mr_response *current;        /* for which what follows the node runs */
    bool is_sent; /* the graph's answer for `current` has left, or inner ones have it */
    bool is_last; /* `current` is final */
    bool is_over; /* the call has ended */
    bool has_answered;
    /* while `current` is there this is the walk's, and the walk has the stream's */
    struct mr_arena arena;
};

#define ARENA_FIRST 4096

static bool is_decoupled(const struct walk *w)
{
    return (w->x->exec.flags & MR_EXEC_DECOUPLED) != 0;
}

/* ---- answers of the model ---- */

static void on_response(struct mr_infer *r, struct mr_response *q)
{
    struct call *c = r->user;
    struct stream *s = c->stream;
    struct walk *w = c->walk;

    q->next = atomic_load_explicit(&s->came, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&s->came, &q->next, q, memory_order_release,
                                                  memory_order_relaxed)) {
    }
    flow_walk_nudge(w);
}

/* NULL: none. */
static struct mr_response *answer_take(struct stream *s)
{
    struct mr_response *q = s->next;

    if (!q) {
        q = atomic_exchange_explicit(&s->came, NULL, memory_order_acquire);
        while (q) { /* turned round */
            struct mr_response *before = q->next;
            q->next = s->next;
            s->next = q;
            q = before;
        }
        q = s->next;
    }
    if (q) {
        s->next = q->next;
    }
    return q;
}

static void answer_end(struct stream *s, struct mr_response **q)
{
    mr_infer_response_end(&s->call->infer, q);
}

/* ---- begin and end of a call ---- */

int flow_stream_begin(struct call *c, struct mr_err *err)
{
    struct walk *w = c->walk;
    struct stream *s = MR_ARENA_NEW(&c->arena, struct stream);

    if (!w->marks) {
        w->marks = MR_ARENA_ARRAY(&w->arena, uint8_t, w->run.plan->node_count);
    }
    if (!s || !w->marks) {
        return MR_ARENA_FAIL(err);
    }
    *s = (struct stream){.call = c, .outer = w->streams};
    mr_arena_init(&s->arena, ARENA_FIRST, w->arena.limit);
    if (s->outer) {
        s->outer->is_sent = true;
    }
    c->stream = w->streams = s;
    c->infer.on_response = on_response;
    w->stream_count++;
    w->has_streamed = true;
    return MR_OK;
}

void flow_stream_drop(struct call *c)
{
    struct walk *w = c->walk;
    struct stream *s = c->stream;

    mr_arena_fini(&s->arena);
    w->streams = s->outer; /* no other one has begun since */
    w->stream_count--;
    c->stream = NULL;
    w->has_streamed = s->outer != NULL;
    if (s->outer) {
        s->outer->is_sent = false;
    }
}

bool flow_stream_ended(struct call *c)
{
    const struct mr_version *v = c->infer.version;

    if (v && mr_version_is_streaming(v)) {
        c->stream->is_over = true;
        return true;
    }
    flow_stream_drop(c);
    return false;
}

/* The calls of nodes that have run for an answer. A second call whose end is not dealt with yet has to stay. */
static void calls_free(struct walk *w)
{
    for (struct call **at = &w->calls; *at;) {
        struct call *c = *at;
        if (w->marks[c->node] && !c->is_pending) {
            *at = c->next;
            flow_call_free(c);
        } else {
            at = &c->next;
        }
    }
}

/* What is allocated in the walk's arena until then is not used after the answer. */
static void arenas_swap(struct walk *w, struct stream *s)
{
    const struct mr_arena arena = w->arena;

    w->arena = s->arena;
    s->arena = arena;
}

static void answer_forget(struct walk *w, struct stream *s)
{
    flow_shadows_run(w);
    run_marks(&w->run, s->call->node, w->marks);
    if (w->run.odd_count > 0) {
        flow_outcomes_count(w, w->marks);
    }
    flow_trace_forget(w, w->marks);
    flow_splits_forget(w, w->marks);
    run_rewind(&w->run, s->call->node, w->marks);
    calls_free(w);
    arenas_swap(w, s);
    mr_arena_reset(&s->arena);
    answer_end(s, &s->current);
}

/* The innermost one has no further answer. */
static void stream_end(struct walk *w)
{
    struct stream *s = w->streams;
    struct call *c = s->call;
    struct mr_response *q;
    struct mr_err err;

    if (s->current) {
        answer_forget(w, s);
    }
    while ((q = answer_take(s))) {
        answer_end(s, &q);
    }
    mr_err_clear(&err);
    int rc = flow_call_finish(c, &err);
    if (rc == MR_OK || s->has_answered) {
        mr_arena_fini(&s->arena);
        w->streams = s->outer;
        w->stream_count--;
        flow_split_end(w, c->node, rc);
        run_over(&w->run, c->node, rc, &err);
        return;
    }
    flow_stream_drop(c); /* it fails like any other node */
    rc = flow_call_repeat(c, rc, &err);
    if (rc != MR_PENDING) {
        flow_call_ended(c, rc, &err);
        run_go(&w->run);
    }
}

/* ---- answers of the graph ---- */

static void room_take(struct walk *w)
{
    atomic_store_explicit(&w->waits_for_room, false, memory_order_relaxed);
    flow_walk_nudge(w);
}

static void on_room_mail(struct mr_mail *mail)
{
    room_take(MR_CONTAINER_OF(mail, struct walk, room));
}

static void on_room(struct mr_execution *x)
{
    struct walk *w = atomic_load_explicit(&x->handle, memory_order_acquire);
    const struct mr_reply_loop *loop = w->asked->reply_loop;

    if (loop && loop->post) {
        w->room.run = on_room_mail;
        loop->post(loop->ctx, &w->room);
    } else {
        room_take(w);
    }
}

static int answer_make(struct walk *w, struct mr_err *err)
{
    const struct plan *p = w->run.plan;
    int rc = mr_response_new(w->x, 0, &w->held, err);

    if (rc == MR_OK && p->is_workflow) {
        rc = run_defaults(&w->run, err);
    }
    for (uint32_t i = 0; i < p->output_count && rc == MR_OK; i++) {
        if (w->x->exec.output_wanted[i]) {
            rc = flow_walk_output(w, &w->held->outputs, i, err);
        }
    }
    if (rc < 0) {
        mr_response_free(&w->held);
        return rc;
    }
    flow_answer_set(w, &w->held->arena, &w->held->parameters);
    return MR_OK;
}

/* MR_PENDING: again when there is room. */
static int answer_send(struct walk *w, bool has_outputs, bool is_last, struct mr_err *err)
{
    int rc;

    if (has_outputs && !w->held) {
        MR_TRY(answer_make(w, err));
    }
    w->x->on_room = on_room;
    /* before: it may be called before this returns. Relaxed: the signal that follows it is acquired. */
    atomic_store_explicit(&w->waits_for_room, true, memory_order_relaxed);
    rc = mr_execution_respond(w->x, 0, &w->held, is_last ? MR_RESPONSE_FINAL : 0, err);
    if (rc != MR_PENDING) {
        atomic_store_explicit(&w->waits_for_room, false, memory_order_relaxed);
        w->has_ended = is_last;
    }
out:
    return rc;
}

static bool is_last(const struct walk *w)
{
    bool is_last = true;

    for (const struct stream *s = w->streams; s && is_last; s = s->outer) {
        is_last = s->is_last;
    }
    return is_last;
}

/* ---- the walk ---- */

static void fail(struct walk *w, int rc, const struct mr_err *err)
{
    run_fail(&w->run, rc, err);
}

/* What follows the node runs for `q`. */
static void answer_begin(struct walk *w, struct stream *s, struct mr_response *q)
{
    struct mr_err err;

    s->current = q;
    s->is_sent = false;
    s->is_last = q->is_final;
    s->has_answered = true;
    mr_err_clear(&err);
    int rc = w->run.plan->is_workflow ? run_defaults(&w->run, &err) : MR_OK;
    arenas_swap(w, s);
    rc = rc < 0 ? rc : flow_call_outputs(s->call, q->outputs.list, &err);
    if (rc < 0) {
        fail(w, rc, &err);
    } else {
        run_answered(&w->run, s->call->node);
        run_go(&w->run);
    }
}

/* One step. False: there is none now. */
static bool stream_step(struct walk *w)
{
    struct stream *s = w->streams;
    struct mr_response *q;
    struct mr_err err;

    mr_err_clear(&err);
    if (s->current && !s->is_sent) {
        const int rc = answer_send(w, true, is_last(w), &err);
        s->is_sent = rc == MR_OK;
        if (rc < 0) {
            fail(w, rc, &err);
        }
        return rc != MR_PENDING;
    }
    if (s->current) {
        answer_forget(w, s);
        return true;
    }
    q = answer_take(s);
    if (q && q->outputs.list) {
        answer_begin(w, s, q);
        return true;
    }
    if (q) { /* says only that it is the last one */
        answer_end(s, &q);
        return true;
    }
    if (s->is_over) {
        stream_end(w);
        return true;
    }
    return false;
}

/* All nodes have run. False: the walk goes on when there is room. */
static bool last_step(struct walk *w)
{
    struct mr_err err;

    if (w->has_ended) {
        return true;
    }
    mr_err_clear(&err);
    const int rc = answer_send(w, !w->has_streamed, true, &err);
    if (rc < 0) {
        fail(w, rc, &err);
    }
    return rc != MR_PENDING;
}

static void failed_step(struct walk *w)
{
    mr_response_free(&w->held);
    while (w->streams && w->streams->is_over) {
        stream_end(w);
    }
}

void flow_streams_go(struct walk *w)
{
    struct run *r = &w->run;

    while (is_decoupled(w) && r->pending == w->stream_count && r->ready_count == 0) {
        if (atomic_load_explicit(&w->waits_for_room, memory_order_relaxed)) {
            return;
        }
        if (r->status < 0) {
            failed_step(w);
            return;
        }
        if (w->streams ? !stream_step(w) : last_step(w)) {
            return;
        }
    }
}

bool flow_streams_wait(const struct walk *w)
{
    return atomic_load_explicit(&((struct walk *)(uintptr_t)w)->waits_for_room,
                                memory_order_relaxed) ||
           (is_decoupled(w) && w->run.status == MR_OK && !w->has_ended);
}
