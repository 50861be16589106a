/* Runs operators. A short one runs at once, on the thread that had its last input; one that may be long gets a turn of the reply
 * loop, if there is one, so that the loop serves others in between.
 *
 * Thread: that of the walk. */
#include "exec.h"
#include "fan.h"

#include "base/turn.h"
#include "op/op.h"

/* Inputs of more bytes make any operator long. */
#define LONG_BYTES 32768
#define LONG_LOOP  (UINT64_C(1) << 32)

/* One run of a node. */
struct op_work {
    struct call call; /* first: the walk frees it with its calls */
    struct mr_turn turn;
    struct mr_op_call op;
    struct mr_tensor *inputs;
    struct mr_block **blocks;
    uint8_t *may_write, *wanted;
    struct mr_exec_output *outputs;
    int status;
    struct mr_err err;
};

static bool is_cancelled(void *ctx)
{
    const struct op_work *w = ctx;

    return w->call.walk->run.status < 0 ||
           atomic_load_explicit(&w->call.walk->is_cancelled, memory_order_relaxed);
}

static const struct plan_node *node_of(const struct op_work *w)
{
    return &w->call.walk->run.plan->nodes[w->call.node];
}

static int arrays_make(struct op_work *w, const struct plan_node *node, struct mr_err *err)
{
    struct mr_arena *a = &w->call.walk->arena;

    w->inputs = MR_ARENA_ARRAY(a, struct mr_tensor, node->input_count + 1u);
    w->blocks = MR_ARENA_ARRAY(a, struct mr_block *, node->input_count + 1u);
    w->may_write = MR_ARENA_ARRAY(a, uint8_t, node->input_count + 1u);
    w->wanted = MR_ARENA_ARRAY(a, uint8_t, node->output_count + 1u);
    w->outputs = MR_ARENA_ARRAY(a, struct mr_exec_output, node->output_count + 1u);
    return w->inputs && w->blocks && w->may_write && w->wanted && w->outputs ? MR_OK
                                                                             : MR_ARENA_FAIL(err);
}

/* Input i, which may be rows of a tensor. False: it has no value. */
static bool input_make(struct op_work *w, uint32_t i)
{
    const struct run *r = &w->call.walk->run;
    const struct run_value *v = &r->values[node_of(w)->inputs[i].tensor];

    if (w->call.fan) {
        return fan_call_whole(&w->call, i, &w->inputs[i], &w->blocks[i]);
    }
    if (v->state != RUN_VALUE) {
        return false;
    }
    w->inputs[i] = v->tensor;
    w->blocks[i] = v->block;
    /* the plan has proved that no node reads it any more; views of it, other requests of its batch have references; */
    /* and while a model gives answers the node runs for each of them, all from the same tensor */
    w->may_write[i] = node_of(w)->may_write[i] && !w->call.walk->streams && v->block &&
                      mr_block_refs(v->block) == 1;
    return true;
}

/* Of a tensor; of one without elements, whose dimensions may be anything, how often a loop over all other dimensions runs. */
static uint64_t bytes_of(const struct mr_tensor *t)
{
    uint64_t turns = 1;

    for (int i = 0; t->bytes == 0 && i < t->rank && turns < LONG_LOOP; i++) {
        turns *= t->shape[i] > 0 ? MR_MIN((uint64_t)t->shape[i], LONG_LOOP) : 1;
    }
    return t->bytes > 0 ? t->bytes : turns;
}

/* *out_bytes: of all inputs. False: one has no value, so that the node makes nothing. */
static bool inputs_make(struct op_work *w, const struct plan_node *node, uint64_t *out_bytes)
{
    *out_bytes = 0;
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (input_make(w, i)) {
            *out_bytes += bytes_of(&w->inputs[i]);
        } else if (!node->inputs[i].is_optional) {
            return false;
        }
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        w->wanted[i] = 1;
    }
    return true;
}

static void op_run(struct op_work *w)
{
    w->op = (struct mr_op_call){.inputs = w->inputs,
                                .blocks = w->blocks,
                                .may_write = w->may_write,
                                .wanted = w->wanted,
                                .outputs = w->outputs,
                                .arena = &w->call.walk->arena,
                                .is_cancelled = is_cancelled,
                                .ctx = w};
    mr_err_clear(&w->err);
    w->status = mr_op_run(node_of(w)->op, &w->op, &w->err);
}

/* The outputs become tensors of the walk. */
static int op_end(struct op_work *w, struct mr_err *err)
{
    const struct plan_node *node = node_of(w);
    struct flow_op_runs *count = &w->call.walk->flow->op_runs[w->call.node];

    atomic_fetch_add_explicit(&count->runs, 1, memory_order_relaxed);
    if (w->status < 0) {
        atomic_fetch_add_explicit(&count->failed, 1, memory_order_relaxed);
        *err = w->err;
        return MR_WRAP(err, w->status, "node '%.*s'", MR_STR_ARG(mr_str_sub(node->name, 0, 80)));
    }
    int rc = MR_OK;
    for (uint32_t i = 0; i < node->output_count; i++) {
        if (rc == MR_OK) {
            rc = flow_call_output(&w->call, i, &w->outputs[i].tensor, w->outputs[i].block, err);
        }
        mr_block_unref(&w->outputs[i].block);
    }
    return rc;
}

/* ---- in a turn ---- */

static void turn_work(struct mr_turn *t)
{
    op_run(MR_CONTAINER_OF(t, struct op_work, turn));
}

static void turn_done(struct mr_turn *t)
{
    struct op_work *w = MR_CONTAINER_OF(t, struct op_work, turn);

    if (t->status < 0 && w->status >= 0) {
        for (uint32_t i = 0; i < node_of(w)->output_count; i++) {
            mr_block_unref(&w->outputs[i].block);
        }
        w->status =
            MR_FAIL(&w->err, t->status, "the operator was ended (%s)", mr_status_text(t->status));
    }
    flow_walk_signal(w->call.walk, &w->call);
}

static void turn_take(struct call *c)
{
    struct op_work *w = MR_CONTAINER_OF(c, struct op_work, call);
    struct mr_err err;

    mr_err_clear(&err);
    const int rc = op_end(w, &err);
    flow_call_ended(c, rc, &err);
}

struct call *flow_op_new(struct walk *walk, uint32_t node)
{
    struct op_work *w = MR_NEW(struct op_work);

    w->call.walk = walk;
    w->call.node = node;
    w->call.take = turn_take;
    w->call.next = walk->calls;
    walk->calls = &w->call;
    mr_arena_init(&w->call.arena, 0, 0);
    return &w->call;
}

int flow_op_ask(struct call *c, struct mr_err *err)
{
    struct op_work *w = MR_CONTAINER_OF(c, struct op_work, call);
    const struct plan_node *n = node_of(w);
    const struct mr_reply_loop *loop = c->walk->asked->reply_loop;
    uint64_t bytes;
    const int rc = arrays_make(w, n, err);

    if (rc < 0 || !inputs_make(w, n, &bytes)) {
        return rc;
    }
    const bool is_long = (mr_op_flags(n->op) & MR_OP_LONG) || bytes > LONG_BYTES;
    if (!is_long || !loop || !loop->turns || mr_turn_now) {
        op_run(w);
        return op_end(w, err);
    }
    w->call.is_pending = true;
    w->turn.work = turn_work;
    w->turn.done = turn_done;
    mr_turns_add(loop->turns, &w->turn); /* may end it at once */
    return MR_PENDING;
}
