/* Executes ensembles and workflows: opens the graph, and walks it for each request.
 *
 * A walk begins on the thread that submits the request and goes on wherever one of its calls ends. With a reply loop that is
 * always the loop's thread. Without one it may be any: the thread that raises `signals` from 0 handles what has happened; the
 * others leave it to that thread. */
#include "admit.h"
#include "exec.h"
#include "pins.h"
#include "stream_call.h"

#include <sched.h>

#include "base/clock.h"
#include "base/log.h"
#include "flow/flow.h"
#include "flow/plan/limits.h"
#include "flow/plan/members.h"
#include "flow/plan/ops.h"
#include "flow/plan/proof.h"
#include "flow/remote/remote.h"
#include "flow/where.h"

#define ARENA_FIRST 4096
#define ARENA_LIMIT ((size_t)64 << 20)
/* Requests under way: their number is limited where they come from. */
#define PENDING_MAX (1u << 20)

/* ---- the end of a walk ---- */

static void walk_free(struct walk *w)
{
    struct call *c;

    while ((c = w->calls) != NULL) {
        w->calls = c->next;
        flow_call_free(c);
    }
    mr_arena_fini(&w->arena);
    mr_free(w);
}

static int no_output(const struct walk *w, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_INVALID,
                   "unexpected deadlock, at least one output is not set while no more %s steps can "
                   "be made",
                   w->flow->plan->is_workflow ? "workflow" : "ensemble");
}

int flow_walk_output(struct walk *w, struct mr_exec_outputs *o, uint32_t index, struct mr_err *err)
{
    const struct run_value *v = &w->run.values[w->flow->plan->outputs[index]];

    return v->state == RUN_VALUE || v->state == RUN_FILLED
               ? flow_tensor_output(w->flow, o, index, v, err)
               : no_output(w, err);
}

static int outputs_set(struct walk *w, struct mr_err *err)
{
    const struct plan *p = w->flow->plan;

    if (w->run.status < 0) {
        *err = w->run.err;
        return w->run.status;
    }
    int rc = p->is_workflow ? run_defaults(&w->run, err) : MR_OK;
    for (uint32_t i = 0; i < p->output_count && rc == MR_OK && !w->has_ended; i++) {
        if (w->x->exec.output_wanted[i]) {
            rc = flow_walk_output(w, &w->x->outputs, i, err);
        }
    }
    return rc;
}

/* The result of a walk that is over, whose memory this releases. */
static int walk_end(struct walk *w, struct mr_err *err)
{
    const struct plan *p = w->flow->plan;
    int rc = outputs_set(w, err);

    if (rc < 0) {
        const uint32_t flags = err->flags;
        MR_FAIL(err, rc, "in %s '%.*s', %s", p->is_workflow ? "workflow" : "ensemble",
                MR_STR_ARG(p->name), err->msg);
        err->flags |= flags;
    }
    if (!w->has_ended && (rc == MR_OK || w->trace)) {
        flow_answer_set(w, w->asked->arena, &w->asked->answer);
    }
    flow_shadows_run(w);
    if (w->flow->admit) {
        flow_admit_end(w);
    }
    if (w->run.odd_count > 0) {
        flow_outcomes_count(w, NULL);
    }
    run_fini(&w->run);
    pthread_mutex_lock(&w->flow->handles);
    atomic_store_explicit(&w->x->handle, NULL, memory_order_relaxed);
    pthread_mutex_unlock(&w->flow->handles);
    walk_free(w);
    return rc;
}

/* ---- what happens on a walk ---- */

static void ended_take(struct walk *w)
{
    struct call *c = atomic_exchange_explicit(&w->ended, NULL, memory_order_acquire);

    while (c) {
        struct call *next = c->next_end;
        w->taken++;
        flow_call_take(c);
        c = next;
    }
}

/* What waits is not run, and what runs is cancelled. */
static void calls_cancel(struct walk *w)
{
    w->has_cancelled = true;
    for (struct call *c = w->calls; c; c = c->next) {
        flow_call_cancel(c);
    }
    if (w->flow->admit) {
        flow_admit_cancel(w);
    }
}

static void run_cancel(struct walk *w)
{
    struct mr_err err;

    run_fail(&w->run, MR_FAIL(&err, MR_E_CANCELLED, "the request was cancelled"), &err);
    calls_cancel(w);
}

/* The thread that ends a call puts it into `ended` and then raises `signals`, its last access to the walk, which must still exist. With a
 * reply loop it is this thread. */
static void signals_wait(struct walk *w)
{
    while ((int32_t)((uint32_t)(w->seen + atomic_load_explicit(&w->signals, memory_order_acquire)) -
                     (uint32_t)(w->taken + 1)) < 0) {
        sched_yield();
    }
}

/* Deals with `signals`, which the caller has raised from 0. True: the walk is over, and the caller owns it. */
static bool walk_go(struct walk *w)
{
    uint64_t seen;

    do {
        seen = atomic_load_explicit(&w->signals, memory_order_acquire);
        ended_take(w);
        /* relaxed: the signal that follows it is acquired */
        if (!w->has_cancelled && atomic_load_explicit(&w->is_cancelled, memory_order_relaxed)) {
            run_cancel(w);
        }
        if (!w->is_parked) {
            run_go(&w->run);
            flow_streams_go(w);
        }
        if (w->run.status < 0 && !w->has_cancelled && (w->run.plan->is_workflow || w->streams)) {
            calls_cancel(w); /* the others' work is for nothing */
            flow_streams_go(w);
        }
        if (w->is_admitted) {
            flow_admit_grow(w);
        }
        if (run_is_over(&w->run) && !flow_streams_wait(w)) {
            signals_wait(w);
            return true;
        }
        w->seen += seen;
    } while (atomic_fetch_sub_explicit(&w->signals, seen, memory_order_acq_rel) != seen);
    return false;
}

static void signal_with(struct walk *w, uint64_t reason)
{
    struct mr_execution *x = w->x;
    struct mr_err err;

    if (atomic_fetch_add_explicit(&w->signals, reason, memory_order_acq_rel) > 0) {
        return;
    }
    w->is_begun = true;
    if (!walk_go(w)) {
        return;
    }
    mr_err_clear(&err);
    const int rc = walk_end(w, &err);
    mr_execution_complete(x, rc, &err);
}

void flow_walk_signal(struct walk *w, struct call *c)
{
    c->next_end = atomic_load_explicit(&w->ended, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&w->ended, &c->next_end, c, memory_order_release,
                                                  memory_order_relaxed)) {
    }
    signal_with(w, 1);
}

void flow_walk_nudge(struct walk *w)
{
    signal_with(w, FLOW_NUDGE);
}

/* ---- its beginning ---- */

static bool walk_is_cancelled(const struct run *r)
{
    const struct walk *w = MR_CONTAINER_OF(r, struct walk, run);

    return atomic_load_explicit(&w->is_cancelled, memory_order_relaxed);
}

static const struct run_ops run_with = {flow_call_start, flow_when, flow_value, walk_is_cancelled};

static int walk_new(struct flow *f, struct mr_execution *x, struct walk **out, struct mr_err *err)
{
    struct walk *w;

    if (x->infers[0]->nested >= MR_CALL_DEPTH_MAX) {
        return MR_FAIL(
            err, MR_E_INVALID,
            "model '%s' is asked by %d ensembles or workflows one within the other, which "
            "is as many as may be",
            f->model, MR_CALL_DEPTH_MAX);
    }
    w = mr_try_alloc(sizeof *w);
    if (!w) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for a request, try later");
    }
    memset(w, 0, sizeof *w);
    w->flow = f;
    w->x = x;
    w->asked = x->infers[0];
    flow_time_begin(w);
    atomic_init(&w->signals, 1);
    mr_arena_init(&w->arena, ARENA_FIRST, ARENA_LIMIT);
    int rc = run_begin(&w->run, f->plan, x->exec.output_wanted, &run_with, &w->arena, err);
    if (rc == MR_OK &&
        ((rc = flow_splits_begin(w, err)) < 0 || (rc = flow_asked_read(w, err)) < 0)) {
        run_fini(&w->run);
    }
    if (rc < 0) {
        walk_free(w);
        return rc;
    }
    for (uint32_t i = 0; i < f->plan->input_count; i++) {
        const struct mr_tensor *t = &x->exec.inputs[i];
        run_set(&w->run, f->plan->inputs[i], t->dtype == MR_DTYPE_INVALID ? NULL : t, NULL);
    }
    *out = w;
    return MR_OK;
}

static int flow_execute(struct mr_executor *e, struct mr_execution *x, struct mr_err *err)
{
    struct flow *f = MR_CONTAINER_OF(e, struct flow, executor);
    struct walk *w = NULL;
    int rc = walk_new(f, x, &w, err);

    if (rc < 0) {
        return rc;
    }
    /* release: a cancel finds it whole */
    atomic_store_explicit(&x->handle, w, memory_order_release);
    rc = f->admit ? flow_admit_begin(w, err) : MR_OK;
    if (rc < 0) {
        run_fail(&w->run, rc, err);
    }
    if (walk_go(w)) {
        return walk_end(w, err);
    }
    return MR_PENDING; /* it may be over by now */
}

static void flow_cancel(struct mr_executor *e, struct mr_execution *x)
{
    struct flow *f = MR_CONTAINER_OF(e, struct flow, executor);

    pthread_mutex_lock(&f->handles);
    struct walk *w = atomic_load_explicit(&x->handle, memory_order_acquire);
    const bool is_first =
        w && !atomic_exchange_explicit(&w->is_cancelled, true, memory_order_relaxed);
    const bool is_mine =
        is_first && atomic_fetch_add_explicit(&w->signals, FLOW_NUDGE, memory_order_acq_rel) == 0;
    pthread_mutex_unlock(&f->handles);
    if (is_mine && walk_go(w)) {
        struct mr_err err;
        mr_err_clear(&err);
        const int rc = walk_end(w, &err);
        mr_execution_complete(x, rc, &err);
    }
}

/* ---- the model ---- */

static void flow_close(struct mr_executor *e)
{
    struct flow *f = MR_CONTAINER_OF(e, struct flow, executor);

    flow_shadows_close(f);
    flow_admit_free(&f->admit);
    tail_fini(&f->tails);
    plan_free(&f->plan);
    mr_config_free(&f->config);
    mr_free(f->retries);
    mr_free(f->hedges);
    mr_free(f->outcomes);
    mr_free(f->op_runs);
    mr_free(f->paces);
    mr_free(f->signature);
    mr_free(f->model);
    pthread_mutex_destroy(&f->handles);
    mr_free(f);
}

static int flow_configure(struct mr_executor *e, const struct mr_signature *s, struct mr_err *err)
{
    struct flow *f = MR_CONTAINER_OF(e, struct flow, executor);
    struct mr_signature mine = *s;
    struct mr_signature *copy;

    mine.max_pending = PENDING_MAX;
    int rc = mr_signature_copy(&copy, &mine, f->signature->flags, MR_E_INVALID, "model", err);
    if (rc == MR_OK) {
        mr_free(f->signature);
        f->signature = copy;
        f->executor.signature = copy;
    }
    return rc;
}

static uint64_t flow_bytes(const struct mr_executor *e)
{
    (void)e; /* what it asks is counted where it is */
    return 0;
}

static struct mr_model_memory flow_memory(const struct mr_executor *e)
{
    (void)e;
    return (struct mr_model_memory){.reason = ""};
}

static int flow_instance_open(struct mr_executor *e, const struct mr_instance_desc *desc,
                              void **out, struct mr_err *err)
{
    (void)desc;
    (void)err;
    *out = e; /* it keeps nothing */
    return MR_OK;
}

static void flow_instance_close(struct mr_executor *e, void *instance)
{
    (void)e;
    (void)instance;
}

static bool flow_has_place(const struct mr_executor *e, const struct mr_tensor *input)
{
    (void)e;
    (void)input;
    return true;
}

const struct mr_executor_ops flow_executor_ops = {.close = flow_close,
                                                  .configure = flow_configure,
                                                  .bytes = flow_bytes,
                                                  .memory = flow_memory,
                                                  .instance_open = flow_instance_open,
                                                  .instance_close = flow_instance_close,
                                                  .execute = flow_execute,
                                                  .cancel = flow_cancel,
                                                  .has_place = flow_has_place};

/* The models of the nodes while the graph is checked. */
static int members_check(struct plan *p, struct mr_engine *engine, const Inference__ModelConfig *c,
                         const struct mr_model_desc *desc, struct mr_err *err)
{
    const struct plan_ops_from from = {mr_engine_ops(engine), desc->model_dir, desc->version_dir};
    struct plan_member *members = pins_take(p, mr_engine_models(engine));
    int rc = plan_check_members(p, c, members, err);
    if (rc == MR_OK) {
        rc = p->is_workflow ? plan_workflow_finish(p, c, &from, err) : plan_proof_streams(p, err);
    }
    pins_release(members, p->node_count);
    return rc;
}

static int signature_make(struct flow *f, struct mr_err *err)
{
    const struct mr_signature empty = {.size = sizeof empty, .from_config = 1, .batchable = -1};
    const uint32_t flags = MR_BACKEND_NO_WARMUP | MR_BACKEND_NO_INLINE |
                           (f->plan->is_decoupled ? MR_BACKEND_DECOUPLED : 0);
    int rc = mr_signature_copy(&f->signature, &empty, flags, MR_E_INVALID, "model", err);

    f->executor.signature = f->signature;
    return rc;
}

/* Takes the plan on success. */
static int flow_make(struct plan *p, struct mr_engine *engine, const struct mr_model_desc *desc,
                     struct mr_executor **out, struct mr_err *err)
{
    struct flow *f = MR_NEW(struct flow);

    pthread_mutex_init(&f->handles, NULL);
    f->plan = p;
    f->engine = engine;
    f->ask = flow_call_ask;
    f->model = mr_strndup(desc->name, strlen(desc->name));
    f->retries = MR_NEW_ARRAY(struct flow_retries, (size_t)p->node_count + 1);
    f->op_runs = MR_NEW_ARRAY(struct flow_op_runs, (size_t)p->node_count + 1);
    f->outcomes = MR_NEW_ARRAY(struct flow_outcomes, (size_t)p->node_count + 1);
    f->hedges = MR_NEW_ARRAY(struct flow_hedges, (size_t)p->node_count + 1);
    f->paces = MR_NEW_ARRAY(struct pace, (size_t)p->node_count + 1);
    f->executor =
        (struct mr_executor){.ops = &flow_executor_ops,
                             .backend = p->is_workflow ? MR_CONFIG_WORKFLOW : MR_CONFIG_ENSEMBLE,
                             .model = f->model,
                             .hands_over = true};
    int rc = signature_make(f, err);
    if (rc < 0) {
        f->plan = NULL; /* and there are no shadows */
        flow_close(&f->executor);
        return rc;
    }
    flow_shadows_open(f);
    f->admit = flow_admit_new(p);
    tail_init(&f->tails, p);
    *out = &f->executor;
    return MR_OK;
}

/* An ensemble is decoupled if a model in it is, as in Triton. */
static void decoupled_set(Inference__ModelConfig *c)
{
    if (!c->model_transaction_policy) {
        c->model_transaction_policy = MR_NEW(Inference__ModelTransactionPolicy);
        inference__model_transaction_policy__init(c->model_transaction_policy);
    }
    c->model_transaction_policy->decoupled = true;
}

void mr_flow_warning(const struct mr_executor *e, struct mr_buf *out)
{
    if (e->ops == &flow_executor_ops) {
        plan_deadline_check(
            MR_CONTAINER_OF((struct mr_executor *)(uintptr_t)e, struct flow, executor)->plan, out);
    }
}

static void log_warning(const struct mr_executor *e, const char *model)
{
    struct mr_buf text;

    mr_buf_init(&text, 0);
    mr_flow_warning(e, &text);
    if (text.len > 0) {
        mr_log(MR_LOG_WARN, "workflow.deadline", "model=%s %s", MR_LOG_STR(mr_str_c(model)),
               mr_buf_cstr(&text));
    }
    mr_buf_fini(&text);
}

int mr_flow_open_bare(void *engine, Inference__ModelConfig *c, const struct mr_model_desc *desc,
                      struct mr_executor **out, struct mr_err *err)
{
    Inference__ModelConfig *kept = NULL;
    struct plan *p = NULL;
    int rc;

    if (mr_config_is_remote(c)) {
        return remote_open(desc, out, err);
    }
    MR_TRY(mr_config_copy(c, &kept, err));
    MR_TRY(mr_config_is_workflow(c) ? plan_workflow(&p, kept, err) : plan_ensemble(&p, kept, err));
    MR_TRY(members_check(p, engine, kept, desc, err));
    if (p->is_decoupled) {
        decoupled_set(c);
    }
    MR_TRY(flow_make(p, engine, desc, out, err));
    MR_CONTAINER_OF(*out, struct flow, executor)->config = kept;
    log_warning(*out, desc->name);
    return MR_OK;
out:
    plan_free(&p);
    mr_config_free(&kept);
    return rc;
}

int mr_flow_open(void *engine, Inference__ModelConfig *c, const struct mr_model_desc *desc,
                 struct mr_executor **out, struct mr_err *err)
{
    const int rc = mr_flow_open_bare(engine, c, desc, out, err);

    if (rc < 0 && err && mr_config_is_workflow(c)) {
        mr_flow_where_add(desc->model_dir, c, err);
    }
    return rc;
}
