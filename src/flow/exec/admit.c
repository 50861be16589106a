/* Admission by credits, before the first node: a number of requests, and of bytes. A walk waits in a list without a thread; the
 * end of another one admits it, by a signal on its own loop.
 *
 * Bytes are those of the inputs and of what the nodes have made. What a new walk will make is not known: it is taken to be what
 * walks made lately, and is counted from the beginning. One walk is always admitted, however large.
 *
 * Nothing deadlocks: an admitted walk never waits here again, but for requests of other workflows, which cannot lead back to
 * this one; a request that a model made may lead back, so it is counted and never waits. */
#include "admit.h"

#include "base/clock.h"

struct flow_admit *flow_admit_new(const struct plan *p)
{
    if (p->admission.max_open == 0 && p->admission.max_bytes == 0) {
        return NULL;
    }
    struct flow_admit *a = MR_NEW(struct flow_admit);
    pthread_mutex_init(&a->lock, NULL);
    TAILQ_INIT(&a->waiting);
    return a;
}

void flow_admit_free(struct flow_admit **a)
{
    if (*a) {
        pthread_mutex_destroy(&(*a)->lock);
    }
    mr_freep(a);
}

/* ---- under the lock ---- */

static bool fits(const struct flow_admit *a, const struct walk *w)
{
    const struct plan_admission *limit = &w->flow->plan->admission;
    const uint64_t bytes = a->bytes + w->asked->input_bytes + a->expects;

    return a->open == 0 || ((limit->max_open == 0 || a->open < limit->max_open) &&
                            (limit->max_bytes == 0 || bytes <= limit->max_bytes));
}

static void take(struct flow_admit *a, struct walk *w)
{
    a->open++;
    w->credit_bytes = w->asked->input_bytes + a->expects;
    a->bytes += w->credit_bytes;
}

/* ---- a walk that waits ---- */

static void unpark(struct walk *w)
{
    w->gate->is_pending = false;
    w->is_parked = false;
    w->run.pending--;
    flow_call_timer(w->gate, 0);
}

/* The end of the gate, which is among the calls of the walk: it has been admitted, or its time is over. */
static void gate_take(struct call *c)
{
    struct walk *w = c->walk;

    unpark(w);
    w->is_admitted = c->infer.status == MR_OK;
    if (c->infer.status < 0) {
        run_fail(&w->run, c->infer.status, &c->infer.err);
    }
}

static void leave(struct flow_admit *a, struct walk *w)
{
    TAILQ_REMOVE(&a->waiting, w, in_waiting);
    w->is_waiting = false;
    a->waiting_count--;
}

static bool leave_if_waiting(struct walk *w)
{
    struct flow_admit *a = w->flow->admit;

    pthread_mutex_lock(&a->lock);
    const bool was_waiting = w->is_waiting;
    if (was_waiting) {
        leave(a, w);
    }
    pthread_mutex_unlock(&a->lock);
    return was_waiting;
}

static void on_deadline(struct mr_reply_timer *t)
{
    struct call *gate = MR_CONTAINER_OF(t, struct call, timer);

    if (leave_if_waiting(gate->walk)) {
        gate->infer.status = MR_FAIL(&gate->infer.err, MR_E_DEADLINE,
                                     "Deadline Exceeded: the request waited for others to end");
        flow_walk_signal(gate->walk, gate);
    }
}

static void on_mail(struct mr_mail *mail)
{
    struct call *gate = MR_CONTAINER_OF(mail, struct call, infer.mail);

    flow_walk_signal(gate->walk, gate);
}

static void wake(struct call *gate)
{
    const struct mr_reply_loop *loop = gate->walk->asked->reply_loop;

    if (loop && loop->post) {
        gate->infer.mail.run = on_mail;
        loop->post(loop->ctx, &gate->infer.mail);
    } else {
        flow_walk_signal(gate->walk, gate);
    }
}

static void park(struct walk *w)
{
    struct call *gate = flow_call_new(w, 0, 1);

    w->gate = gate;
    gate->take = gate_take;
    gate->timer.run = on_deadline;
    gate->infer.reply_loop = w->asked->reply_loop;
    gate->is_pending = true;
    w->is_parked = true;
    w->run.pending++;
    if (w->deadline_ns) {
        flow_call_timer(gate, w->deadline_ns);
    }
}

/* ---- the beginning and the end ---- */

static int refuse(const struct flow_admit *a, const struct walk *w, struct mr_err *err)
{
    const bool rejects = w->flow->plan->admission.rejects;

    return MR_FAIL(err, MR_E_EXHAUSTED,
                   "as many requests %s as its admission allows (%u); try later",
                   rejects ? "are under way" : "wait", rejects ? a->open : a->waiting_count);
}

/* MR_PENDING: it has to wait. */
static int admit_or_refuse(struct flow_admit *a, struct walk *w, struct mr_err *err)
{
    const struct plan_admission *limit = &w->flow->plan->admission;

    if (w->asked->chain || (TAILQ_EMPTY(&a->waiting) && fits(a, w))) {
        take(a, w);
        return MR_OK;
    }
    if (limit->rejects || a->waiting_count >= limit->max_queue) {
        a->refused++;
        return refuse(a, w, err);
    }
    return MR_PENDING;
}

int flow_admit_begin(struct walk *w, struct mr_err *err)
{
    struct flow_admit *a = w->flow->admit;

    pthread_mutex_lock(&a->lock);
    int rc = admit_or_refuse(a, w, err);
    pthread_mutex_unlock(&a->lock);
    w->is_admitted = rc == MR_OK;
    if (rc != MR_PENDING) {
        return rc;
    }
    park(w); /* as soon as it is in the list, its signal may come */
    pthread_mutex_lock(&a->lock);
    rc = admit_or_refuse(a, w, err);
    if (rc == MR_PENDING) {
        TAILQ_INSERT_TAIL(&a->waiting, w, in_waiting);
        w->is_waiting = true;
        a->waiting_count++;
        a->waited++;
    }
    pthread_mutex_unlock(&a->lock);
    if (rc != MR_PENDING) {
        unpark(w);
        w->is_admitted = rc == MR_OK;
    }
    return rc;
}

void flow_admit_grow(struct walk *w)
{
    struct flow_admit *a = w->flow->admit;
    const uint64_t now = w->asked->input_bytes + w->run.made_bytes;

    if (w->is_admitted && now > w->credit_bytes) {
        pthread_mutex_lock(&a->lock);
        a->bytes += now - w->credit_bytes;
        pthread_mutex_unlock(&a->lock);
        w->credit_bytes = now;
    }
}

void flow_admit_cancel(struct walk *w)
{
    if (w->is_parked && leave_if_waiting(w)) {
        unpark(w);
    }
}

void flow_admit_end(struct walk *w)
{
    struct flow_admit *a = w->flow->admit;
    TAILQ_HEAD(, walk) admitted = TAILQ_HEAD_INITIALIZER(admitted);
    struct walk *next;

    if (!w->is_admitted) {
        return;
    }
    pthread_mutex_lock(&a->lock);
    a->open--;
    a->bytes -= w->credit_bytes;
    a->expects -= a->expects / 64;
    a->expects = MR_MAX(a->expects, w->run.made_bytes);
    while ((next = TAILQ_FIRST(&a->waiting)) && fits(a, next)) {
        leave(a, next);
        take(a, next);
        TAILQ_INSERT_TAIL(&admitted, next, in_waiting);
    }
    pthread_mutex_unlock(&a->lock);
    while ((next = TAILQ_FIRST(&admitted))) {
        TAILQ_REMOVE(&admitted, next, in_waiting);
        wake(next->gate); /* next may be gone */
    }
}
