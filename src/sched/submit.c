/* Submits a validated request: inline, or to the queue. Also removes requests from the queue that do not run:
 * cancellation and time-out, requested by the reply loop. */
#include "base/log.h"
#include "sequences.h"

/* The reader's own executor, opened at its first inline request. NULL: the backend refused, use the queue. */
static void *inline_instance(struct mr_sched *s, struct sched_slot *slot, unsigned epoch_slot)
{
    struct mr_err err = {0};

    if (slot->is_instance_tried) {
        return slot->instance;
    }
    slot->is_instance_tried = true;
    struct mr_instance_desc desc = sched_instance_desc(s, s->instance_count + epoch_slot);
    struct mr_executor *e = s->version->executor;
    if (e->ops->instance_open(e, &desc, &slot->instance, &err) < 0) {
        slot->instance = NULL;
        mr_log(MR_LOG_WARN, "sched.inline_instance", "model=%s %s; its requests are queued",
               MR_LOG_STR(s->version->model_name), err.msg);
    }
    return slot->instance;
}

/* A network thread runs models for this long in one round of its work, then queues the rest of the round: other work
 * of that thread (other models, health, metrics) waits no longer than this for inline executions, however many
 * requests came at once, and the limits of the queue apply to the rest. Only executions count: the other work of a
 * request stays on this thread in either case, and a hand-over costs more than a short execution. */
#define ROUND_NS (5 * MR_NS_PER_MS)

/* True if the round of the request has used its time. */
static bool is_round_spent(struct mr_reply_loop *reply_loop, const struct mr_infer *r)
{
    if (reply_loop->round_ns != r->round_ns) {
        reply_loop->round_ns = r->round_ns;
        reply_loop->inline_ns = 0;
        reply_loop->had_pause = false;
    }
    return r->round_ns && reply_loop->inline_ns > ROUND_NS;
}

/* If other programs need the CPU, the thread is sometimes preempted during an execution. That says nothing about the
 * following requests, and queueing them all would add load to a busy machine: the first such execution of a round
 * counts with its expected maximum. A second one may be a model that has become slow. */
static void round_add(struct mr_reply_loop *reply_loop, int64_t ns, int64_t most_ns)
{
    if (ns > ROUND_NS / 4 && ns > most_ns && !reply_loop->had_pause) {
        reply_loop->had_pause = true;
        ns = most_ns;
    }
    reply_loop->inline_ns += ns;
}

/* As many inline executions are pending as an instance may have. */
static bool is_inline_full(const struct mr_sched *s, const struct sched_slot *slot)
{
    /* acquire: what has ended did so before the next one begins (release in inline_done) */
    return slot->pending_begun - atomic_load_explicit(&slot->pending_ended, memory_order_acquire) >=
           s->max_pending;
}

/* An inline execution that was pending is over. */
static void inline_done(struct exec_run *run)
{
    struct mr_sched *s = run->s;
    struct mr_infer *r = run->items[0];
    struct sched_slot *slot = stats_slot_get(s, r->reply_loop->epoch_slot);

    instance_ending_begin(s);
    atomic_fetch_add_explicit(&slot->pending_ended, 1, memory_order_release);
    pthread_mutex_lock(&s->mutex);
    r->run = NULL;
    r->place = INFER_OUTSIDE;
    if (r->status == MR_OK) {
        stats_count_execution(s->shared, r, r->rows, MR_CLOSE_SINGLE, true);
    }
    pthread_mutex_unlock(&s->mutex);
    sched_deliver(r);
    instance_ending_end(s);
}

/* MR_SCHED_DONE: it ran; MR_OK: it is pending; negative: it is for the queue. */
static int try_inline(struct mr_sched *s, struct mr_infer *r)
{
    struct sched_slot *slot = stats_slot_get(s, r->reply_loop->epoch_slot);
    struct exec_run *run;
    void *instance;
    int64_t now;
    bool is_over;

    if (!cost_allows_inline(s, slot, r->input_bytes) || is_round_spent(r->reply_loop, r) ||
        is_inline_full(s, slot)) {
        return MR_E_UNAVAILABLE;
    }
    instance = inline_instance(s, slot, r->reply_loop->epoch_slot);
    run = instance ? MR_ARENA_NEW(r->arena, struct exec_run) : NULL;
    if (!run) {
        return MR_E_UNAVAILABLE;
    }
    r->times.queued = now = mr_now_ns();
    r->inline_item = r;
    run->s = s;
    run->items = &r->inline_item;
    run->count = 1;
    run->rows = r->rows;
    run->arena = r->arena;
    run->start = now;
    run->done = inline_done;
    r->place = INFER_RUNNING;
    is_over = exec_run(run, instance);
    if (!is_over) {
        slot->pending_begun++;
        pthread_mutex_lock(&s->mutex);
        if (r->place == INFER_RUNNING) {
            r->run = run;
        }
        pthread_mutex_unlock(&s->mutex);
        cost_add_inline(s, slot, r->input_bytes, mr_now_ns() - now);
        return MR_OK;
    }
    r->place = INFER_OUTSIDE;
    round_add(r->reply_loop, r->times.end - now, cost_most(slot, r->input_bytes));
    if (r->status == MR_OK) {
        cost_add_inline(s, slot, r->input_bytes, r->times.end - r->times.start);
        stats_count_execution(slot, r, r->rows, MR_CLOSE_SINGLE, true);
    }
    return MR_SCHED_DONE;
}

static void note_arrival(struct mr_sched *s, int64_t now_ns)
{
    int64_t gap = now_ns - s->last_arrival_ns;

    if (gap >= EXPECTED_ROWS_MEMORY_NS && s->empty_waits < EMPTY_WAITS_MAX) {
        /* Arrivals of a second ago say little: wait again as configured. */
        s->expected_rows = MR_MAX(s->expected_rows, (double)s->version->max_batch_size);
        s->gap_ns = 0;
    } else {
        gap = MR_MIN(gap, MR_NS_PER_S);
        s->gap_ns = s->gap_ns ? s->gap_ns + (gap - s->gap_ns) / 8 : MR_MAX(gap, 1);
    }
    s->last_arrival_ns = now_ns;
}

/* The batch that is being formed may be complete with this request, or has to go before it. */
static bool may_be_ready(const struct mr_sched *s, const struct mr_infer *r)
{
    const bool is_urgent =
        !s->options.has_exact_delay && instance_wait_limit(s, r) < s->forming_until_ns;

    return s->queued_rows >= s->wake_at_rows || is_urgent ||
           !instance_can_join(s, queue_front(s), r);
}

/* Wakes the thread that the new request concerns: the one whose batch it fills or closes, an idle one, or a new one.
 * If there is none, the request is removed from the queue. */
static int wake_for(struct mr_sched *s, struct mr_infer *r)
{
    struct mr_err err;

    if (s->is_forming) {
        if (may_be_ready(s, r)) {
            pthread_cond_signal(&s->filled);
        }
        return MR_OK;
    }
    if (instance_wake(s, &err) == MR_OK) {
        return MR_OK;
    }
    queue_withdraw(s, r);
    sched_fail(r, MR_E_UNAVAILABLE, "no thread to run the model on: %s", err.msg);
    r->err.flags = MR_ERR_RETRYABLE;
    return MR_E_UNAVAILABLE;
}

int mr_sched_submit(struct mr_infer *r)
{
    struct mr_sched *s = r->version->sched;
    const bool is_direct = s->is_direct;
    int64_t now;
    int rc;

    r->status = MR_OK;
    if (s->may_inline && r->reply_loop->epoch_slot != MR_EPOCH_SLOT_NONE &&
        (rc = try_inline(s, r)) >= 0) {
        return rc;
    }
    if ((r->status = sched_quarantine_check(s, r, &r->err)) < 0) {
        return r->status;
    }
    now = mr_now_ns();
    if (is_direct) {
        instance_ending_begin(
            s); /* the request, and the version with it, may end before this function returns */
    }
    pthread_mutex_lock(&s->mutex);
    if (s->sequences) {
        rc = sequences_push(s, r, now);
    } else if ((rc = queue_push(s, r, now)) == MR_OK) {
        note_arrival(s, now);
        if (is_direct) {
            if (!s->is_forming || may_be_ready(s, r)) {
                instance_run_direct(s);
            }
        } else {
            rc = wake_for(s, r);
        }
    }
    pthread_mutex_unlock(&s->mutex);
    if (is_direct) {
        instance_ending_end(s);
    }
    return rc;
}

bool mr_sched_cancel(struct mr_infer *r)
{
    struct mr_sched *s = r->version->sched;
    struct exec_run *run = NULL;
    struct mr_infer *others = NULL;
    struct mr_execution *again;
    bool was_queued;

    pthread_mutex_lock(&s->mutex);
    was_queued = r->place == INFER_QUEUED;
    if (was_queued) {
        if (s->sequences) {
            others = sequences_withdraw(s, r);
        } else {
            queue_withdraw(s, r);
        }
        sched_fail(r, MR_E_CANCELLED, "the request was cancelled");
    }
    if (!is_cancelled(r)) {
        /* seq_cst: before the check whether it runs; an execution that begins later finds the flag */
        atomic_store_explicit(&r->is_cancelled, true, memory_order_seq_cst);
        run = r->run;
    }
    if (s->waiting_responders > 0) {
        pthread_cond_broadcast(&s->freed);
    }
    if (run && !(exec_is_cancelled(run) && mr_execution_hold(&run->x))) {
        run = NULL;
    }
    again = sched_take_offer(s, r);
    pthread_mutex_unlock(&s->mutex);
    for (struct mr_infer *o = others; o; o = o->next) {
        sched_fail(o, MR_E_CANCELLED, "a request of the same sequence was cancelled");
    }
    sched_deliver_all(others);
    if (run) {
        mr_execution_cancel(&run->x);
    }
    sched_offer_again(s, again);
    return was_queued;
}

bool mr_sched_expire(struct mr_infer *r)
{
    struct mr_sched *s = r->version->sched;
    struct mr_infer *others = NULL;
    bool is_out = false;

    pthread_mutex_lock(&s->mutex);
    if (r->place == INFER_QUEUED && s->sequences) {
        is_out = sequences_expire_one(s, r, mr_now_ns(), &others);
    } else if (r->place == INFER_QUEUED) {
        is_out = queue_expire_one(s, r, mr_now_ns());
    }
    r->expire_ns = r->place == INFER_QUEUED ? r->due_ns : 0;
    pthread_mutex_unlock(&s->mutex);
    sched_deliver_all(others);
    return is_out;
}
