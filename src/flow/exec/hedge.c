/* Second calls: when the first call of a node's model takes too long, the model is asked once more, the first good answer is
 * taken, and the other call is cancelled.
 *
 * A call that was cancelled may still run, and the answer does not wait for it: the call leaves its walk and ends alone. So
 * whatever a call of such a node refers to is its own: data of the client are copied, tensors of nodes are referenced, and
 * the version of the workflow stays pinned until the call ends.
 *
 * Only for requests with a reply loop that has timers, so that everything is on one thread; not for requests of sequences,
 * which a model must see once. */
#include "hedge.h"

#include "base/clock.h"
#include "fan.h"

#define ALIGN 64u

/* The columns of mr_infer_args. */
struct own_input {
    mr_str name;
    struct mr_tensor tensor;
    struct mr_block *block; /* referenced by the walk, until the request has its own reference */
};

struct hedge {
    struct mr_reply_timer timer;
    struct call *call;
    struct call *other; /* the first or second call for the same, NULL: none, or it has ended */
    struct mr_version *version; /* of the workflow: pinned for a call that has left its walk */
    struct mr_reply_loop *loop;
    bool is_second;
    bool is_lost;      /* the other one has answered */
    bool is_signalled; /* it has ended, and the walk has been notified */
    bool has_left;     /* its walk, which may be gone */
};

static const struct plan_node *node_of(const struct call *c)
{
    return &c->walk->run.plan->nodes[c->node];
}

/* ---- what a call refers to ---- */

static bool is_possible(const struct call *c)
{
    const struct mr_infer *asked = c->walk->asked;

    return node_of(c)->hedge_percent > 0 && asked->reply_loop && asked->reply_loop->post &&
           asked->reply_loop->set_timer && !asked->sequence;
}

static int texts_own(struct call *c, struct mr_err *err)
{
    struct mr_infer_args *a = &c->args;
    struct mr_setting *list = MR_ARENA_ARRAY(&c->arena, struct mr_setting, a->parameter_count + 1u);
    uint8_t *kinds = MR_ARENA_ARRAY(&c->arena, uint8_t, a->parameter_count + 1u);
    bool is_whole = list && kinds;

    for (uint32_t i = 0; is_whole && i < a->parameter_count; i++) {
        list[i].key = mr_arena_str(&c->arena, mr_str_c(a->parameters[i].key)).ptr;
        list[i].value = mr_arena_str(&c->arena, mr_str_c(a->parameters[i].value)).ptr;
        is_whole = list[i].key && list[i].value;
    }
    if (a->id.len) {
        a->id = mr_arena_str(&c->arena, a->id);
        is_whole = is_whole && a->id.ptr;
    }
    if (c->infer.chain) {
        struct mr_call_chain *chain = MR_ARENA_NEW(&c->arena, struct mr_call_chain);
        is_whole = is_whole && chain;
        if (chain) {
            *chain = *c->infer.chain;
            c->infer.chain = chain;
        }
    }
    a->parameters = list;
    if (is_whole && a->parameter_kinds) {
        a->parameter_kinds = memcpy(kinds, a->parameter_kinds, a->parameter_count);
    }
    c->infer.header = NULL; /* they are gone with the request */
    return is_whole ? MR_OK : MR_ARENA_FAIL(err);
}

/* Data without a block lie in memory of the client's request. */
static int input_own(struct call *c, struct own_input *in, struct mr_err *err)
{
    const size_t rank = in->tensor.rank > 0 ? (size_t)in->tensor.rank : 0;
    int64_t *shape = MR_ARENA_ARRAY(&c->arena, int64_t, rank + 1);

    if (!shape) {
        return MR_ARENA_FAIL(err);
    }
    if (rank) {
        memcpy(shape, in->tensor.shape, rank * sizeof *shape);
    }
    in->tensor.shape = shape;
    if (in->block || in->tensor.bytes == 0) {
        return MR_OK;
    }
    struct mr_block *copy = mr_block_new(in->tensor.bytes);
    if (!copy || !mr_block_keep(copy, &c->arena)) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for a request, try later");
    }
    memcpy(copy->data, in->tensor.data, in->tensor.bytes);
    in->tensor.data = copy->data;
    return MR_OK;
}

/* The owner of an input; that of parts of tensors, for rows, is not known. */
static struct mr_block *owner_of(const struct call *c, const struct plan_port *port)
{
    return c->fan ? NULL : c->walk->run.values[port->tensor].block;
}

static int inputs_own(struct call *c, struct mr_err *err)
{
    const struct plan_node *node = node_of(c);
    struct own_input *list = MR_ARENA_ARRAY(&c->arena, struct own_input, node->input_count + 1u);
    uint32_t count = 0;
    int rc = list ? MR_OK : MR_ARENA_FAIL(err);

    for (uint32_t i = 0; i < node->input_count && count < c->input_count && rc == MR_OK; i++) {
        if (mr_str_eq(node->inputs[i].name, c->inputs[count].name)) {
            list[count] = (struct own_input){c->inputs[count].name, c->inputs[count].tensor,
                                             owner_of(c, &node->inputs[i])};
            rc = input_own(c, &list[count++], err);
        }
    }
    if (rc == MR_OK) {
        c->args.input_names = &list[0].name;
        c->args.input_tensors = &list[0].tensor;
        c->args.input_blocks = &list[0].block;
        c->args.input_stride = sizeof *list;
        c->args.input_count = count;
    }
    return rc;
}

/* ---- the end of one of two ---- */

static void timer_stop(struct hedge *h)
{
    if (h->timer.run) {
        h->loop->set_timer(h->loop->ctx, &h->timer, 0);
    }
}

static void leave(struct call *c)
{
    struct walk *w = c->walk;
    struct call **at = &w->calls;

    while (*at != c) {
        at = &(*at)->next;
    }
    *at = c->next;
    c->hedge->version = w->asked->version;
    c->hedge->has_left = true;
    mr_version_pin(c->hedge->version, c->hedge->loop->epoch_slot);
    c->walk = NULL;
}

/* The other one has answered. */
static void lose(struct call *c)
{
    struct hedge *h = c->hedge;

    h->is_lost = true;
    h->other = NULL;
    timer_stop(h);
    flow_call_timer(c, 0);
    if (h->is_signalled) {
        return; /* flow_hedge_lost */
    }
    if (mr_engine_cancel(c->walk->flow->engine, &c->infer)) {
        c->is_pending = false;
        mr_engine_end(&c->infer);
        return;
    }
    leave(c);
}

bool flow_hedge_done(struct call *c)
{
    struct hedge *h = c->hedge;

    if (!h->has_left) {
        h->is_signalled = true;
        return false;
    }
    struct mr_version *version = h->version;
    const unsigned slot = h->loop->epoch_slot;
    mr_engine_end(&c->infer);
    flow_call_free(c);
    mr_version_unpin(version, slot);
    return true;
}

bool flow_hedge_lost(struct call *c)
{
    if (c->hedge->is_lost) {
        mr_engine_end(&c->infer);
    }
    return c->hedge->is_lost;
}

bool flow_hedge_waits(struct call *c, int rc)
{
    struct hedge *h = c->hedge;
    struct call *other = h->other;

    timer_stop(h);
    h->other = NULL;
    if (!other) {
        return false;
    }
    other->hedge->other = NULL;
    if (rc < 0) {
        return true;
    }
    if (h->is_second) {
        atomic_fetch_add_explicit(&c->walk->flow->hedges[c->node].won, 1, memory_order_relaxed);
    }
    lose(other);
    return false;
}

/* ---- the second call ---- */

static bool may_begin(struct call *c)
{
    struct flow_hedges *k = &c->walk->flow->hedges[c->node];
    /* relaxed: a share that is about right */
    const uint64_t runs = atomic_load_explicit(&k->runs, memory_order_relaxed);
    const uint64_t extra = atomic_load_explicit(&k->extra, memory_order_relaxed);

    if (!c->is_pending || c->hedge->is_signalled || c->walk->run.status < 0) {
        return false;
    }
    if (extra * 100 >= (runs + 10) * node_of(c)->hedge_percent) {
        atomic_fetch_add_explicit(&k->refused, 1, memory_order_relaxed);
        return false;
    }
    atomic_fetch_add_explicit(&k->extra, 1, memory_order_relaxed);
    return true;
}

static void take_now(struct call *c)
{
    struct mr_err err;

    mr_err_clear(&err);
    flow_call_ended(c, MR_OK, &err);
}

static void second_begin(struct mr_reply_timer *t)
{
    struct hedge *h = MR_CONTAINER_OF(t, struct hedge, timer);
    struct call *c = h->call;
    struct mr_err err;

    if (!may_begin(c)) {
        return;
    }
    struct call *second = flow_call_new(c->walk, c->node, c->attempt);
    second->inputs = c->inputs;
    second->input_count = c->input_count;
    second->fan = c->fan;
    second->row = c->row;
    second->rows = c->rows;
    second->first = c;
    mr_err_clear(&err);
    const int rc = flow_call_try(second, &err);
    if (rc < 0) {
        h->other = NULL; /* it was refused, and the first one goes on */
    } else if (rc == MR_OK) {
        flow_hedge_waits(second, rc);
        second->take = take_now;
        flow_walk_signal(second->walk, second);
    }
}

int flow_hedge_make(struct call *c, struct mr_err *err)
{
    int rc;

    if (!is_possible(c)) {
        return MR_OK;
    }
    struct hedge *h = MR_ARENA_NEW(&c->arena, struct hedge);
    if (!h) {
        return MR_ARENA_FAIL(err);
    }
    *h = (struct hedge){.call = c, .loop = c->walk->asked->reply_loop, .is_second = c->first};
    MR_TRY(texts_own(c, err));
    MR_TRY(inputs_own(c, err));
    c->hedge = h;
    if (c->first) {
        h->other = c->first;
        c->first->hedge->other = c;
    } else {
        atomic_fetch_add_explicit(&c->walk->flow->hedges[c->node].runs, 1, memory_order_relaxed);
    }
out:
    return rc;
}

void flow_hedge_begun(struct call *c)
{
    const struct plan_node *node = node_of(c);
    struct hedge *h = c->hedge;
    int64_t ns = node->hedge_ms * MR_NS_PER_MS;

    if (h->is_second) {
        return;
    }
    if (node->hedge_quantile > 0) {
        ns = pace_quantile(&c->walk->flow->paces[c->node], node->hedge_quantile);
    }
    if (ns > 0) {
        h->timer.run = second_begin;
        h->loop->set_timer(h->loop->ctx, &h->timer, mr_ns_after(c->infer.times.received, ns));
    }
}
