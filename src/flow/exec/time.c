/* The time of a request: its one deadline, what each node has of it, and calls whose time is over. Thread: that of the walk. */
#include "exec.h"
#include "fan.h"

#include "base/clock.h"

/* Requests with a deadline after which the tails are computed anew. */
#define LOOK_EVERY 16u

void flow_time_begin(struct walk *w)
{
    struct flow *f = w->flow;
    const int64_t own = f->plan->deadline_ms * MR_NS_PER_MS;

    w->deadline_ns = w->asked->deadline_ns;
    if (own > 0) {
        const int64_t at = mr_ns_after(mr_now_ns(), own);
        w->deadline_ns = w->deadline_ns ? MR_MIN(w->deadline_ns, at) : at;
    }
    w->has_paces = w->deadline_ns != 0 || f->plan->has_quantiles;
    if (w->deadline_ns == 0) {
        return;
    }
    if (atomic_fetch_add_explicit(&f->looks, 1, memory_order_relaxed) % LOOK_EVERY == 0) {
        tail_update(&f->tails, f->paces, mr_now_ns());
    }
    /* nodes that this request does not need would count */
    w->has_tails = true;
    for (uint32_t i = 0; i < f->plan->output_count; i++) {
        w->has_tails = w->has_tails && w->x->exec.output_wanted[i];
    }
}

/* A fallback or branch runs for another node, and what follows that follows it. */
static int64_t tail_of(const struct call *c)
{
    const struct walk *w = c->walk;
    const uint32_t for_node = w->run.nodes[c->node].for_node;

    return w->has_tails ? tail_after(&w->flow->tails, for_node ? for_node - 1 : c->node) : 0;
}

int flow_time_of(struct call *c, struct mr_err *err)
{
    const struct walk *w = c->walk;
    const struct plan_node *node = &w->run.plan->nodes[c->node];
    const int64_t now = c->infer.times.received;
    int64_t at = w->deadline_ns;

    if (at && now >= at) { /* a model that runs at once has no queue that would refuse it */
        return MR_FAIL(err, MR_E_DEADLINE, "node '%.*s': Deadline Exceeded",
                       MR_STR_ARG(mr_str_sub(node->name, 0, 80)));
    }
    if (at) {
        const int64_t tail = tail_of(c);
        if (tail > 0 && now >= at - tail) {
            return MR_FAIL(
                err, MR_E_DEADLINE,
                "node '%.*s': Deadline Exceeded: the nodes after it usually take %lld ms, and "
                "%lld ms are left",
                MR_STR_ARG(mr_str_sub(node->name, 0, 80)), (long long)(tail / MR_NS_PER_MS),
                (long long)((at - now) / MR_NS_PER_MS));
        }
        at -= tail;
    }
    if (node->timeout_ms) {
        const int64_t from = c->fan ? c->fan->begun_ns : now;
        const int64_t own = mr_ns_after(from, node->timeout_ms * MR_NS_PER_MS);
        at = at ? MR_MIN(at, own) : own;
    }
    c->infer.deadline_ns = at;
    return MR_OK;
}

/* ---- calls whose time is over ---- */

void flow_call_timer(struct call *c, int64_t at_ns)
{
    const struct mr_reply_loop *loop = c->infer.reply_loop;

    if (loop && loop->set_timer) {
        loop->set_timer(loop->ctx, &c->timer, at_ns);
    }
}

/* What waits has its own time, in the queue; what runs is cancelled. */
static void time_watch(struct call *c)
{
    if (c->infer.expire_ns) {
        flow_call_timer(c, c->infer.expire_ns);
    } else if (c->infer.deadline_ns && !c->is_late) {
        flow_call_timer(c, c->infer.deadline_ns);
    }
}

static void on_timer(struct mr_reply_timer *t)
{
    struct call *c = MR_CONTAINER_OF(t, struct call, timer);

    if (c->infer.version && mr_sched_expire(&c->infer)) {
        flow_call_signal(c);
        return;
    }
    if (c->infer.expire_ns || mr_now_ns() < c->infer.deadline_ns) {
        time_watch(c);
        return;
    }
    c->is_late = true;
    if (mr_engine_cancel(c->walk->flow->engine, &c->infer)) {
        flow_call_signal(c);
    }
}

void flow_time_watch(struct call *c)
{
    c->timer.run = on_timer;
    if (c->infer.reply_loop->post) {
        time_watch(c);
    }
}

int flow_time_over(struct call *c)
{
    struct mr_infer *r = &c->infer;

    if (c->timer.run) { /* it was pending */
        flow_call_timer(c, 0);
    }
    return c->is_late && r->status == MR_E_CANCELLED
               ? MR_FAIL(&r->err, MR_E_DEADLINE, "Deadline Exceeded: the model was cancelled")
               : r->status;
}
