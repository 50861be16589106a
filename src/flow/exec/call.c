/* A node's request to its model, by mr_engine_infer on the reply loop of the request that the walk is for. */
#include "exec.h"
#include "fan.h"
#include "hedge.h"
#include "stream_call.h"

#include "base/clock.h"

#define ARENA_FIRST 2048
#define ARENA_LIMIT ((size_t)64 << 20)

void flow_call_free(struct call *c)
{
    mr_arena_fini(&c->arena);
    mr_free(c);
}

void flow_call_signal(struct call *c)
{
    if (!c->hedge || !flow_hedge_done(c)) {
        flow_walk_signal(c->walk, c);
    }
}

static void on_done(struct mr_infer *r)
{
    flow_call_signal(r->user);
}

/* ---- the request ---- */

/* The inputs that have a value. */
static int inputs_make(struct call *c, struct mr_err *err)
{
    const struct run *r = &c->walk->run;
    const struct plan_node *node = &r->plan->nodes[c->node];
    struct call_input *list = MR_ARENA_ARRAY(&c->arena, struct call_input, node->input_count + 1u);

    if (!list) {
        return MR_ARENA_FAIL(err);
    }
    c->inputs = list;
    for (uint32_t i = 0; i < node->input_count; i++) {
        const struct run_value *v = &r->values[node->inputs[i].tensor];
        if (v->state == RUN_VALUE) {
            list[c->input_count++] = (struct call_input){node->inputs[i].name, v->tensor};
        }
    }
    return MR_OK;
}

/* A repetition has those of the first attempt. */
static int inputs_take(struct call *c, struct mr_err *err)
{
    const int rc = c->inputs ? MR_OK : c->fan ? fan_call_inputs(c, err) : inputs_make(c, err);

    if (rc == MR_OK) {
        c->args.input_names = &c->inputs[0].name;
        c->args.input_tensors = &c->inputs[0].tensor;
        c->args.input_stride = sizeof *c->inputs;
        c->args.input_count = c->input_count;
    }
    return rc;
}

static void args_make(struct call *c)
{
    const struct plan_node *node = &c->walk->run.plan->nodes[c->node];
    const struct mr_infer *asked = c->walk->asked;
    struct mr_infer_args *a = &c->args;

    const struct plan_node *from = flow_split_choose(c);
    a->model = from->model;
    a->version = from->version;
    a->fits_batch = true;
    a->id = asked->id;
    a->output_names = &node->outputs[0].name;
    a->output_stride = sizeof *node->outputs;
    a->output_count = node->output_count;
    a->parameters = asked->parameters;
    a->parameter_count = asked->parameter_count;
    a->parameter_kinds = asked->parameter_kinds;
    a->priority = asked->priority;
    a->timeout_us = asked->timeout_us;
    if (asked->sequence) {
        a->has_sequence = true;
        a->correlation_id = asked->sequence->number;
        a->sequence_flags = asked->sequence->flags;
        if (asked->sequence->text.len) {
            a->correlation_text = asked->sequence->text;
        }
    }
}

/* A walk that goes on later, as calls end, shares the rounds of others: it may have any number of rows to ask for. */
static int64_t round_of(const struct walk *w)
{
    const struct mr_reply_loop *loop = w->asked->reply_loop;

    return !w->is_begun ? w->asked->round_ns : loop && loop->round ? loop->round(loop->ctx) : 0;
}

static void infer_make(struct call *c)
{
    const struct mr_infer *asked = c->walk->asked;
    struct mr_infer *r = &c->infer;

    r->arena = &c->arena;
    r->reply_loop = asked->reply_loop;
    r->protocol = asked->protocol;
    r->round_ns = round_of(c->walk);
    r->chain = asked->chain;
    r->header = asked->header;
    r->header_ctx = asked->header_ctx;
    r->is_part = true;
    r->nested = asked->nested + 1;
    r->on_done = on_done;
    r->user = c;
    r->times.received = mr_now_ns();
    mr_err_clear(&r->err);
}

int flow_call_output(struct call *c, uint32_t output, const struct mr_tensor *t,
                     struct mr_block *block, struct mr_err *err)
{
    struct run *run = &c->walk->run;

    if (c->fan) {
        return fan_call_output(c, output, t, block, err);
    }
    run_set(run, run->plan->nodes[c->node].outputs[output].tensor, t, block);
    return MR_OK;
}

int flow_call_outputs(struct call *c, const struct mr_exec_output *list, struct mr_err *err)
{
    const struct mr_version *v = c->infer.version;
    const struct plan_node *node = &c->walk->run.plan->nodes[c->node];
    int rc = MR_OK;

    for (uint32_t i = 0; list && i < v->output_count && rc == MR_OK; i++) {
        const struct mr_exec_output *o = &list[v->outputs[i].backend_index];
        for (uint32_t k = 0; k < node->output_count && rc == MR_OK; k++) {
            if (o->is_set && mr_str_eq(node->outputs[k].name, v->outputs[i].name)) {
                rc = flow_call_output(c, k, &o->tensor, o->block, err);
            }
        }
    }
    return rc;
}

/* The failure of the call's inference, or its refusal, as that of the node. Returns status. */
static int failure_of(const struct call *c, int status, struct mr_err *err)
{
    const struct plan *p = c->walk->run.plan;

    *err = c->infer.err;
    if (p->is_workflow) {
        MR_FAIL(err, status, "node '%.*s': %s", MR_STR_ARG(p->nodes[c->node].name),
                c->infer.err.msg);
    }
    return status;
}

/* The outputs as tensors of the walk, which keep the blocks; what lives in the call's arena stays until the walk ends. */
static int outputs_take(struct call *c, int status, struct mr_err *err)
{
    return status < 0 ? failure_of(c, status, err) : flow_call_outputs(c, c->infer.outputs, err);
}

int flow_call_finish(struct call *c, struct mr_err *err)
{
    const int rc = outputs_take(c, flow_time_over(c), err);
    if (rc == MR_OK && c->walk->has_paces) {
        const struct mr_infer_times *t = &c->infer.times;
        pace_add(&c->walk->flow->paces[c->node], t->end - t->received, t->end);
    }
    if (c->walk->trace) {
        flow_trace_call(c);
    }
    if (c->walk->flow->shadows) {
        flow_shadow_take(c);
    }
    mr_engine_end(&c->infer);
    return rc;
}

/* ---- repetitions ---- */

static bool may_repeat(const struct call *c, int rc)
{
    const struct walk *w = c->walk;
    const struct plan_node *node = &w->run.plan->nodes[c->node];
    struct flow_retries *k = &w->flow->retries[c->node];
    const uint32_t reason = rc == MR_E_UNAVAILABLE ? PLAN_RETRY_UNAVAILABLE
                            : rc == MR_E_DEADLINE  ? PLAN_RETRY_TIMEOUT
                                                   : 0;

    if (c->attempt >= node->attempts || !(node->retry_on & reason) || w->run.status < 0 ||
        w->asked->sequence) { /* a model must see it once */
        return false;
    }
    /* relaxed: a share that is about right */
    const uint64_t runs = atomic_load_explicit(&k->runs, memory_order_relaxed);
    const uint64_t repeats = atomic_load_explicit(&k->repeats, memory_order_relaxed);
    if (repeats * 100 >= (runs + 10) * node->retry_percent) {
        return false;
    }
    atomic_fetch_add_explicit(&k->repeats, 1, memory_order_relaxed);
    return true;
}

struct call *flow_call_new(struct walk *w, uint32_t node, uint32_t attempt)
{
    struct call *c = MR_NEW(struct call);

    c->walk = w;
    c->node = node;
    c->attempt = attempt;
    c->next = w->calls;
    w->calls = c;
    mr_arena_init(&c->arena, ARENA_FIRST, ARENA_LIMIT);
    return c;
}

void flow_call_reset(struct call *c)
{
    mr_arena_reset(&c->arena);
    memset(&c->infer, 0, sizeof c->infer);
    memset(&c->args, 0, sizeof c->args);
    c->attempt = 1;
    c->repeats = c->again = c->first = NULL;
    c->hedge = NULL;
    c->take = NULL;
    c->is_late = false;
    c->inputs = NULL;
    c->input_count = 0;
}

static struct call *call_again(struct call *of)
{
    struct call *c =
        of->fan ? fan_call_new(of->fan) : flow_call_new(of->walk, of->node, of->attempt + 1);

    c->attempt = of->attempt + 1;
    c->inputs = of->inputs;
    c->input_count = of->input_count;
    c->fan = of->fan;
    c->row = of->row;
    c->rows = of->rows;
    c->repeats = of;
    of->again = c;
    return c;
}

/* MR_OK: it has ended; MR_PENDING; or its failure. */
int flow_call_try(struct call *c, struct mr_err *err)
{
    int rc;

    infer_make(c);
    MR_TRY(flow_time_of(c, err));
    args_make(c);
    MR_TRY(inputs_take(c, err));
    MR_TRY(flow_hedge_make(c, err));
    if (c->walk->trace) {
        c->walk->trace[c->node].calls++;
    }
    if (c->walk->run.plan->nodes[c->node].is_streaming) {
        MR_TRY(flow_stream_begin(c, err));
    }
    c->is_pending = true;
    rc = mr_engine_infer(c->walk->flow->engine, &c->infer, &c->args);
    if (rc == MR_OK) {
        flow_time_watch(c);
        if (c->hedge) {
            flow_hedge_begun(c);
        }
        return MR_PENDING;
    }
    c->is_pending = false;
    if (rc == MR_SCHED_DONE && c->stream && flow_stream_ended(c)) {
        return MR_PENDING; /* its answers are there */
    }
    if (rc == MR_SCHED_DONE) {
        return flow_call_finish(c, err);
    }
    if (c->stream) {
        flow_stream_drop(c);
    }
    rc = failure_of(c, rc, err);
out:
    return rc;
}

int flow_call_repeat(struct call *c, int rc, struct mr_err *err)
{
    while (rc < 0 && may_repeat(c, rc)) {
        c = call_again(c);
        mr_err_clear(err);
        rc = flow_call_try(c, err);
    }
    return rc;
}

int flow_call_ask(struct call *c, struct mr_err *err)
{
    if (c->walk->run.plan->nodes[c->node].attempts > 1) {
        atomic_fetch_add_explicit(&c->walk->flow->retries[c->node].runs, 1, memory_order_relaxed);
    }
    return flow_call_repeat(c, flow_call_try(c, err), err);
}

static int model_start(struct walk *w, uint32_t node, struct mr_err *err)
{
    const int rc = w->flow->ask(flow_call_new(w, node, 1), err);

    if (rc != MR_PENDING) {
        flow_split_end(w, node, rc);
    }
    return rc;
}

static int start(struct walk *w, uint32_t node, struct mr_err *err)
{
    const struct plan_node *n = &w->run.plan->nodes[node];

    if (n->is_by_row) {
        return flow_switch_start(w, node, err);
    }
    if (n->is_gather) {
        return flow_gather_start(w, node, err);
    }
    if (n->rows) {
        return flow_foreach_start(w, node, err);
    }
    if (n->op) {
        return flow_op_ask(flow_op_new(w, node), err);
    }
    return model_start(w, node, err);
}

int flow_call_start(struct run *r, uint32_t node, struct mr_err *err)
{
    struct walk *w = MR_CONTAINER_OF(r, struct walk, run);

    if (!w->trace) {
        return start(w, node, err);
    }
    flow_trace_begin(w, node);
    const int rc = start(w, node, err);
    if (rc != MR_PENDING) {
        flow_trace_end(w, node);
    }
    return rc;
}

static void call_end(struct call *c)
{
    struct mr_err err;

    if (c->take) {
        c->take(c);
        return;
    }
    if (c->stream && flow_stream_ended(c)) {
        return;
    }
    if (c->hedge && flow_hedge_lost(c)) {
        return;
    }
    mr_err_clear(&err);
    int rc = flow_call_finish(c, &err);
    if (c->hedge && flow_hedge_waits(c, rc)) {
        return;
    }
    rc = flow_call_repeat(c, rc, &err);
    if (rc != MR_PENDING) {
        flow_call_ended(c, rc, &err);
    }
}

void flow_call_ended(struct call *c, int rc, const struct mr_err *err)
{
    if (c->fan) {
        fan_call_ended(c, rc, err);
    } else {
        flow_split_end(c->walk, c->node, rc);
        run_ended(&c->walk->run, c->node, rc, err);
    }
}

void flow_call_take(struct call *c)
{
    c->is_pending = false;
    if (c->walk->trace) {
        flow_trace_end(c->walk, c->node);
    }
    call_end(c);
}

void flow_call_cancel(struct call *c)
{
    if (c->is_pending && !c->take && mr_engine_cancel(c->walk->flow->engine, &c->infer)) {
        flow_call_take(c);
    }
}
