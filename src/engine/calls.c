/* Requests of models in worker processes to models of this engine (mr_worker_caller), control requests but for control.c.
 *
 * A request is shared by the sentinel's call and the scheduler, and freed after both. Its lock holds a cancel
 * or time-out and the end of the request apart; it is taken again by the thread that has it when a cancel ends the request
 * at once. */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/mem.h"
#include "engine_priv.h"
#include "sentinel/sentinel.h"
#include "tensor/tensor.h"

#define ARENA_FIRST 4096

struct input {
    mr_str name;
    struct mr_tensor tensor;
    struct mr_block *block;
};

struct nested {
    struct mr_infer infer;
    struct mr_infer_args args;
    struct mr_arena arena;
    struct mr_engine *engine;
    struct mr_worker_call *call;
    struct deadlock_call waits;
    struct mr_reply_loop reply_loop; /* none, but near that of the model that asks */
    pthread_mutex_t lock;            /* guards what follows; recursive */
    struct mr_response *untaken;     /* answers that the worker has, the oldest first */
    bool is_done, is_withdrawing;
    _Atomic uint32_t refs;
};

static void nested_unref(struct nested *n)
{
    if (atomic_fetch_sub_explicit(&n->refs, 1, memory_order_acq_rel) == 1) {
        pthread_mutex_destroy(&n->lock);
        mr_arena_fini(&n->arena);
        mr_free(n);
    }
}

static void fail(struct nested *n, int status, const char *message)
{
    const struct mr_worker_answer a = {.status = status, .message = message, .is_last = true};

    mr_worker_answer_send(mr_worker_answer_make(n->call, &a));
}

/* ---- answers ---- */

/* An answer of those outputs, by position in the backend's order, that are set. */
static struct call_answer *answer_of(struct nested *n, const struct mr_exec_output *outputs,
                                     const struct mr_answer_parameters *parameters, bool is_last)
{
    const struct mr_version *v = n->infer.version;
    const char **names = MR_NEW_ARRAY(const char *, v->output_count + 1);
    struct mr_tensor *tensors = MR_NEW_ARRAY(struct mr_tensor, v->output_count + 1);
    struct mr_worker_answer a = {.is_last = is_last, .names = names, .outputs = tensors};

    if (parameters->kinds) { /* those of a graph are reports for clients */
        a.parameters = *parameters;
    }

    for (uint32_t i = 0; outputs && i < v->output_count; i++) {
        const struct mr_exec_output *o = &outputs[v->outputs[i].backend_index];
        if (o->is_set && n->infer.wanted[i]) {
            names[a.count] = v->outputs[i].name.ptr;
            tensors[a.count++] = o->tensor;
        }
    }
    struct call_answer *made = mr_worker_answer_make(n->call, &a);
    mr_free(tensors);
    mr_free(names);
    return made;
}

static void on_response(struct mr_infer *r, struct mr_response *response)
{
    struct nested *n = r->user;
    struct mr_response **at = &n->untaken;

    if (!response->outputs.list) {
        mr_infer_response_end(r, &response);
        return;
    }
    response->next = NULL;
    pthread_mutex_lock(&n->lock);
    while (*at) {
        at = &(*at)->next;
    }
    *at = response;
    mr_worker_answer_send(answer_of(n, response->outputs.list, &response->parameters, false));
    pthread_mutex_unlock(&n->lock);
}

static struct mr_response *untaken_pop(struct nested *n)
{
    struct mr_response *first;

    pthread_mutex_lock(&n->lock);
    first = n->untaken;
    if (first) {
        n->untaken = first->next;
    }
    pthread_mutex_unlock(&n->lock);
    return first;
}

/* Bytes of outputs that are copied on a loop. */
#define LOOP_BYTES ((uint64_t)256 << 10)

static bool is_long(const struct nested *n)
{
    const struct mr_infer *r = &n->infer;
    uint64_t bytes = 0;

    for (uint32_t i = 0; r->status >= 0 && r->outputs && i < r->version->output_count; i++) {
        bytes += r->outputs[i].is_set ? r->outputs[i].tensor.bytes : 0;
    }
    return bytes > LOOP_BYTES;
}

/* The request has ended: the last answer. Answers that the worker has are copies. */
static void conclude(struct nested *n)
{
    struct mr_infer *r = &n->infer;
    struct mr_response *response;

    deadlock_leave(&n->engine->deadlock, &n->waits);
    while ((response = untaken_pop(n))) {
        mr_infer_response_end(r, &response);
    }
    const struct mr_worker_answer failure = {
        .status = r->status, .message = r->err.msg, .is_last = true};
    struct call_answer *last = r->status < 0 ? mr_worker_answer_make(n->call, &failure)
                                             : answer_of(n, r->outputs, &r->answer, true);
    mr_engine_end(r); /* which may look at what the call owns */
    mr_worker_answer_send(last);
    nested_unref(n);
}

static void on_done(struct mr_infer *r)
{
    struct nested *n = r->user;

    pthread_mutex_lock(&n->lock);
    n->is_done = true;
    const bool is_withdrawing = n->is_withdrawing;
    pthread_mutex_unlock(&n->lock);
    if (!is_withdrawing && n->reply_loop.near > 0 && is_long(n)) {
        mr_worker_call_later(n->call);
    } else if (!is_withdrawing) {
        conclude(n);
    }
}

static void later(void *engine, struct mr_worker_call *c)
{
    (void)engine;
    if (engine_is_feed(c)) {
        engine_feed_answer(c);
    } else {
        conclude(c->user);
    }
}

/* ---- what the sentinel asks ---- */

static uint64_t instances_of(const struct mr_version *v)
{
    uint64_t count = 0;

    for (size_t i = 0; i < v->config->n_instance_group; i++) {
        count += (uint64_t)MR_MAX(v->config->instance_group[i]->count, 1);
    }
    return MR_MAX(count, 1);
}

/* A model all of whose instances wait for this call would never run it. A sequence has one instance, and one request at a
 * time. */
static int cycle_check(const struct nested *n, struct mr_err *err)
{
    const struct mr_call_chain *chain = &n->call->chain;
    const uint64_t model = mr_hash(n->args.model);
    struct mr_target target;
    uint64_t waiting = 0;
    int rc;

    for (uint32_t i = 0; i < chain->depth; i++) {
        waiting += chain->models[i] == model;
    }
    if (waiting == 0) {
        return MR_OK;
    }
    rc = mr_engine_find(n->engine, &n->engine->no_loop, n->args.model, n->args.version, &target,
                        err);
    if (rc < 0) {
        return rc;
    }
    const uint64_t instances = instances_of(target.version);
    const bool has_sequences = mr_config_sequences(target.version->config) != NULL;
    mr_version_unpin(target.version, n->engine->no_loop.epoch_slot);
    if (has_sequences) {
        return MR_FAIL(err, MR_E_INVALID,
                       "model '%.*s' would wait for itself: it has sequences, and a request of one "
                       "already waits for this call",
                       MR_STR_ARG(n->args.model));
    }
    if (waiting < instances) {
        return MR_OK;
    }
    return MR_FAIL(err, MR_E_INVALID,
                   "model '%.*s' would wait for itself: its %llu instance%s already wait%s for "
                   "this call",
                   MR_STR_ARG(n->args.model), (unsigned long long)instances,
                   instances == 1 ? "" : "s", instances == 1 ? "s" : "");
}

static int deadlock_check(struct nested *n, struct mr_err *err)
{
    const struct mr_worker_call *c = n->call;

    n->waits = (struct deadlock_call){.caller = mr_hash(mr_str_c(c->model)),
                                      .target = mr_hash(n->args.model),
                                      .caller_instances = c->instances,
                                      .execution = c->execution,
                                      .runs = c->runs,
                                      .identity = &c->chain};
    return deadlock_enter(&n->engine->deadlock, &n->waits)
               ? MR_OK
               : MR_FAIL(err, MR_E_INVALID,
                         "model '%s' would wait for itself: all instances of model '%.*s' wait for "
                         "calls that need one of them",
                         c->model, MR_STR_ARG(n->args.model));
}

static const mr_str *names_make(struct mr_arena *arena, const char *const *list, uint32_t count)
{
    mr_str *out = MR_ARENA_ARRAY(arena, mr_str, count + 1);

    for (uint32_t i = 0; out && i < count; i++) {
        out[i] = mr_str_c(list[i]);
    }
    return out;
}

static int args_make(struct nested *n, struct mr_err *err)
{
    const struct mr_call_args *a = n->call->args;
    struct input *inputs = MR_ARENA_ARRAY(&n->arena, struct input, a->input_count + 1);
    const mr_str *outputs = names_make(&n->arena, a->outputs, a->output_count);

    if (!inputs || !outputs) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for a call, try later");
    }
    for (uint32_t i = 0; i < a->input_count; i++) {
        const struct mr_tensor *t = &a->inputs[i].tensor;
        if (t->dtype == MR_DTYPE_BYTES && !mr_tensor_is_whole(t)) {
            return MR_FAIL(err, MR_E_INVALID,
                           "input '%s': the elements of BYTES do not fit the shape",
                           a->inputs[i].name);
        }
        inputs[i] =
            (struct input){mr_str_c(a->inputs[i].name), a->inputs[i].tensor, n->call->blocks[i]};
    }
    n->args = (struct mr_infer_args){.model = mr_str_c(a->model),
                                     .version = mr_str_c(a->version),
                                     .id = mr_str_c(a->id),
                                     .input_names = &inputs[0].name,
                                     .input_tensors = &inputs[0].tensor,
                                     .input_blocks = &inputs[0].block,
                                     .input_stride = sizeof *inputs,
                                     .input_count = a->input_count,
                                     .output_names = outputs,
                                     .output_stride = sizeof *outputs,
                                     .output_count = a->output_count,
                                     .parameters = a->parameters,
                                     .parameter_count = a->parameter_count,
                                     .parameter_kinds = a->parameter_kinds,
                                     .priority = a->priority,
                                     .timeout_us = a->timeout_us,
                                     .correlation_id = a->correlation_id,
                                     .sequence_flags = a->sequence_flags};
    if (a->correlation_text[0]) {
        n->args.correlation_text = mr_str_c(a->correlation_text);
    }
    n->args.has_sequence = a->correlation_id || a->correlation_text[0] || a->sequence_flags;
    return MR_OK;
}

static void request_start(struct mr_engine *engine, struct mr_worker_call *c)
{
    struct nested *n = MR_NEW(struct nested);
    struct mr_infer *r = &n->infer;
    pthread_mutexattr_t recursive;

    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&n->lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    mr_arena_init(&n->arena, ARENA_FIRST, SIZE_MAX);
    atomic_init(&n->refs, 2);
    n->engine = engine;
    n->call = c;
    c->user = n;
    r->arena = &n->arena;
    r->protocol = MR_INFER_GRPC;
    r->chain = &c->chain;
    n->reply_loop.epoch_slot = MR_EPOCH_SLOT_NONE;
    n->reply_loop.near = c->loop == MR_NO_LOOP ? 0 : c->loop + 1;
    r->reply_loop = &n->reply_loop;
    r->on_done = on_done;
    r->on_response = on_response;
    r->user = n;
    r->times.received = mr_now_ns();
    mr_err_clear(&r->err);
    int rc = args_make(n, &r->err);
    rc = rc < 0 ? rc : cycle_check(n, &r->err);
    rc = rc < 0 ? rc : deadlock_check(n, &r->err);
    rc = rc < 0 ? rc : mr_engine_infer(n->engine, r, &n->args);
    if (rc < 0) { /* refused, and nothing is held */
        deadlock_leave(&engine->deadlock, &n->waits);
        pthread_mutex_lock(&n->lock);
        n->is_done = true;
        pthread_mutex_unlock(&n->lock);
        fail(n, rc, r->err.msg);
        nested_unref(n);
    }
}

static void start(void *engine, struct mr_worker_call *c)
{
    if (c->control) {
        engine_control(engine, c);
    } else if (engine_is_feed(c)) {
        engine_feed_start(c);
    } else {
        request_start(engine, c);
    }
}

/* Ends the request if `take_out` removes it before it runs. */
static void withdraw(struct nested *n, bool (*take_out)(struct mr_engine *e, struct mr_infer *r))
{
    bool has_ended = false;

    pthread_mutex_lock(&n->lock);
    if (!n->is_done) {
        n->is_withdrawing = true;
        has_ended = take_out(n->engine, &n->infer) || n->is_done;
        n->is_done |= has_ended;
        n->is_withdrawing = false;
    }
    pthread_mutex_unlock(&n->lock);
    if (has_ended) {
        conclude(n);
    }
}

static void cancel(void *engine, struct mr_worker_call *c)
{
    (void)engine;
    if (engine_is_feed(c)) {
        engine_feed_cancel(c);
    } else if (c->user) { /* what has been asked to be loaded is loaded */
        withdraw(c->user, mr_engine_cancel);
    }
}

static void expire(void *engine, struct mr_worker_call *c)
{
    (void)engine;
    if (c->user) {
        withdraw(c->user, mr_engine_expire);
    }
}

static void taken(void *engine, struct mr_worker_call *c)
{
    struct nested *n = c->user;
    struct mr_response *response = untaken_pop(n);

    (void)engine;
    if (response) {
        mr_infer_response_end(&n->infer, &response);
    }
}

static void drop(void *engine, struct mr_worker_call *c)
{
    (void)engine;
    if (c->user) {
        nested_unref(c->user);
    }
}

struct mr_worker_caller engine_caller(struct mr_engine *e)
{
    return (struct mr_worker_caller){start, cancel, expire, taken, later, drop, e};
}
