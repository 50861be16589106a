/* Rows are cut off the inputs one call after the other, as views, and what a call gives is copied to its place among the outputs
 * as soon as it is there, so that its memory serves the next call: however many rows there are, there are no more calls than can be
 * under way. A single call for all rows is the exception: its outputs are taken as they are.
 *
 * BYTES have no place before all of them are there: each call's are kept, and joined at the end. */
#include "fan.h"

#include "base/clock.h"
#include "base/mem.h"
#include "tensor/rows.h"
#include "tensor/tensor.h"

struct fan_input {
    struct mr_tensor rest; /* that no call has; of one that is not divided, all of it */
    int64_t shape[MR_MAX_RANK];
    struct mr_block *block; /* the owner, borrowed; NULL: the request or a call */
    bool is_set;
};

/* What a call gave of a BYTES output. */
struct piece {
    struct mr_block *block;
    uint64_t bytes;
};

struct fan_output {
    struct mr_tensor tensor; /* dtype INVALID: no call has given it */
    struct mr_block *block;
    int64_t *shape;       /* of the tensor, [rank] */
    uint64_t row_bytes;   /* 0: BYTES */
    struct piece *pieces; /* of BYTES, [calls] */
    uint64_t calls;       /* that have given it */
};

static const struct plan_node *node_of(const struct fan *f)
{
    return &f->walk->run.plan->nodes[f->node];
}

static const struct plan_rows *rows_of(const struct fan *f)
{
    return node_of(f)->rows;
}

static mr_str tensor_name(const struct fan *f, const struct plan_port *port)
{
    return mr_str_sub(f->walk->run.plan->tensors[port->tensor].name, 0, 80);
}

#define NODE(f)        MR_STR_ARG(mr_str_sub(node_of(f)->name, 0, 80))
#define OUTPUT(f, i)   MR_STR_ARG(tensor_name((f), &node_of(f)->outputs[i]))
#define CALLS_OF(f)    (((f)->rows + rows_of(f)->per_call - 1) / rows_of(f)->per_call)
#define IS_SINGLE(f)   (CALLS_OF(f) == 1)
#define INDEX_OF(f, c) ((c)->row / rows_of(f)->per_call)

int fan_init(struct fan *f, struct walk *w, uint32_t node, uint64_t rows, struct mr_err *err)
{
    const struct plan_node *n = &w->run.plan->nodes[node];

    *f = (struct fan){
        .walk = w, .node = node, .rows = rows, .begun_ns = n->timeout_ms ? mr_now_ns() : 0};
    f->inputs = MR_ARENA_ARRAY(&w->arena, struct fan_input, n->input_count + 1u);
    f->outputs = MR_ARENA_ARRAY(&w->arena, struct fan_output, n->output_count + 1u);
    if (!f->inputs || !f->outputs) {
        return MR_ARENA_FAIL(err);
    }
    for (uint32_t i = 0; i < n->input_count; i++) {
        f->inputs[i].is_set = false;
    }
    memset(f->outputs, 0, n->output_count * sizeof *f->outputs);
    return MR_OK;
}

void fan_input(struct fan *f, uint32_t input, const struct mr_tensor *t, struct mr_block *block)
{
    struct fan_input *in = &f->inputs[input];

    in->is_set = true;
    in->block = block;
    in->rest = *t;
    memcpy(in->shape, t->shape, (size_t)t->rank * sizeof *in->shape);
    in->rest.shape = in->shape;
}

/* ---- inputs ---- */

/* Cuts the first rows off the input. */
static int rows_cut(struct call *c, struct fan_input *in, enum plan_form form,
                    struct mr_tensor *out, struct mr_err *err)
{
    int64_t *shape = MR_ARENA_ARRAY(&c->arena, int64_t, (size_t)in->rest.rank + 1);
    int rc;

    if (!shape) {
        return MR_ARENA_FAIL(err);
    }
    MR_TRY(mr_rows_view(&in->rest, 0, c->rows, shape, out, err));
    in->shape[0] -= (int64_t)c->rows;
    in->rest.bytes -= out->bytes;
    in->rest.data = out->bytes ? (char *)in->rest.data + out->bytes : in->rest.data;
    if (form == PLAN_ROW) {
        out->shape++;
        out->rank--;
    }
out:
    return rc;
}

static int input_make(struct call *c, uint32_t i, struct call_input *out, struct mr_err *err)
{
    struct fan *f = c->fan;
    struct fan_input *in = &f->inputs[i];
    const enum plan_form form = (enum plan_form)rows_of(f)->inputs[i];
    int rc = MR_OK;

    out->name = node_of(f)->inputs[i].name;
    out->tensor = in->rest;
    if (form != PLAN_WHOLE) {
        rc = rows_cut(c, in, form, &out->tensor, err);
    }
    return rc < 0 ? MR_WRAP(err, rc, "node '%.*s': rows of tensor '%.*s'", NODE(f),
                            MR_STR_ARG(tensor_name(f, &node_of(f)->inputs[i])))
                  : MR_OK;
}

int fan_call_inputs(struct call *c, struct mr_err *err)
{
    struct fan *f = c->fan;
    struct call_input *list =
        MR_ARENA_ARRAY(&c->arena, struct call_input, node_of(f)->input_count + 1u);
    int rc = list ? MR_OK : MR_ARENA_FAIL(err);

    c->inputs = list;
    c->input_count = 0;
    for (uint32_t i = 0; i < node_of(f)->input_count && rc == MR_OK; i++) {
        if (f->inputs[i].is_set) {
            rc = input_make(c, i, &list[c->input_count++], err);
        }
    }
    return rc;
}

bool fan_call_whole(const struct call *c, uint32_t input, struct mr_tensor *out,
                    struct mr_block **out_block)
{
    const struct fan_input *in = &c->fan->inputs[input];

    *out = in->rest;
    *out_block = in->block;
    return in->is_set;
}

/* ---- outputs ---- */

/* The first call's output decides what the rows are. */
static int output_open(struct fan *f, uint32_t i, const struct mr_tensor *t, bool is_row,
                       struct mr_err *err)
{
    struct fan_output *o = &f->outputs[i];
    const int32_t lead = is_row ? 1 : 0;
    uint64_t elements;
    int rc;

    if (t->rank + lead > MR_MAX_RANK || t->rank + lead == 0) {
        return MR_FAIL(err, MR_E_INVALID, "%d dimensions, which rows cannot have", t->rank);
    }
    o->shape = MR_ARENA_ARRAY(&f->walk->arena, int64_t, (size_t)(t->rank + lead));
    if (!o->shape) {
        return MR_ARENA_FAIL(err);
    }
    memcpy(o->shape + lead, t->shape, (size_t)t->rank * sizeof *o->shape);
    o->shape[0] = (int64_t)f->rows;
    MR_TRY(mr_shape_elements(o->shape, t->rank + lead, &elements, err));
    o->tensor = (struct mr_tensor){.rank = t->rank + lead, .shape = o->shape};
    if (t->dtype == MR_DTYPE_BYTES) {
        o->pieces = IS_SINGLE(f) ? NULL : mr_try_alloc(CALLS_OF(f) * sizeof *o->pieces);
        rc = o->pieces || IS_SINGLE(f) ? MR_OK : MR_FAIL(err, MR_E_EXHAUSTED, "no memory for rows");
        if (o->pieces) {
            memset(o->pieces, 0, CALLS_OF(f) * sizeof *o->pieces);
        }
    } else {
        MR_TRY(mr_shape_bytes(t->dtype, o->shape, o->tensor.rank, &o->tensor.bytes, err));
        o->row_bytes = o->tensor.bytes / f->rows;
        o->block = IS_SINGLE(f) ? NULL : mr_block_new(MR_MAX(o->tensor.bytes, (uint64_t)1));
        rc = o->block || IS_SINGLE(f) ? MR_OK : MR_FAIL(err, MR_E_EXHAUSTED, "no memory for rows");
        o->tensor.data = o->block ? o->block->data : NULL;
    }
    o->tensor.dtype = rc < 0 ? MR_DTYPE_INVALID : t->dtype;
out:
    return rc;
}

/* Type and shape are those of the first call, and there is one row for each that was asked for. */
static int output_check(const struct call *c, const struct fan_output *o, const struct mr_tensor *t,
                        bool is_row, struct mr_err *err)
{
    const int32_t lead = is_row ? 1 : 0;
    char a[128], b[128];

    if (!is_row && (t->rank == 0 || (uint64_t)t->shape[0] != c->rows)) {
        return MR_FAIL(err, MR_E_INVALID, "the model gave %lld rows for %llu",
                       t->rank ? (long long)t->shape[0] : 0, (unsigned long long)c->rows);
    }
    if (t->dtype != o->tensor.dtype) {
        return MR_FAIL(err, MR_E_INVALID, "row %llu is %s, others are %s",
                       (unsigned long long)c->row, mr_dtype_name(t->dtype),
                       mr_dtype_name(o->tensor.dtype));
    }
    if (t->rank + lead != o->tensor.rank ||
        memcmp(t->shape + 1 - lead, o->shape + 1,
               (size_t)(o->tensor.rank - 1) * sizeof *o->shape) != 0) {
        return MR_FAIL(err, MR_E_INVALID, "row %llu has the shape %s, others have %s",
                       (unsigned long long)c->row,
                       mr_shape_text(t->shape + 1 - lead, t->rank - 1 + lead, a, sizeof a),
                       mr_shape_text(o->shape + 1, o->tensor.rank - 1, b, sizeof b));
    }
    return MR_OK;
}

static int piece_keep(struct piece *p, const struct mr_tensor *t, struct mr_block *block,
                      struct mr_err *err)
{
    (void)block; /* it may hold much more than the tensor */
    p->bytes = t->bytes;
    p->block = mr_block_new(MR_MAX(t->bytes, (uint64_t)1));
    if (!p->block) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for rows");
    }
    if (t->bytes) {
        memcpy(p->block->data, t->data, t->bytes);
    }
    return MR_OK;
}

static int output_take(struct call *c, uint32_t i, const struct mr_tensor *t,
                       struct mr_block *block, struct mr_err *err)
{
    struct fan *f = c->fan;
    struct fan_output *o = &f->outputs[i];
    const bool is_row = rows_of(f)->outputs[i] == PLAN_ROW;
    int rc = MR_OK;

    if (o->tensor.dtype == MR_DTYPE_INVALID) {
        MR_TRY(output_open(f, i, t, is_row, err));
    }
    MR_TRY(output_check(c, o, t, is_row, err));
    o->calls++;
    if (IS_SINGLE(f)) {
        o->tensor.data = t->data;
        o->tensor.bytes = t->bytes;
        o->block = block ? mr_block_ref(block) : NULL;
    } else if (o->pieces) {
        rc = piece_keep(&o->pieces[INDEX_OF(f, c)], t, block, err);
    } else if (t->bytes) {
        memcpy(o->block->data + c->row * o->row_bytes, t->data, t->bytes);
    }
out:
    return rc;
}

int fan_call_output(struct call *c, uint32_t output, const struct mr_tensor *t,
                    struct mr_block *block, struct mr_err *err)
{
    const int rc = output_take(c, output, t, block, err);

    return rc < 0 ? MR_WRAP(err, rc, "node '%.*s': tensor '%.*s'", NODE(c->fan),
                            OUTPUT(c->fan, output))
                  : MR_OK;
}

/* ---- the end ---- */

static void pieces_free(const struct fan *f, struct fan_output *o)
{
    for (uint64_t i = 0; o->pieces && i < CALLS_OF(f); i++) {
        mr_block_unref(&o->pieces[i].block);
    }
    mr_free(o->pieces);
    o->pieces = NULL;
}

static int pieces_join(struct fan *f, struct fan_output *o, struct mr_err *err)
{
    uint64_t bytes = 0;

    for (uint64_t i = 0; i < CALLS_OF(f); i++) {
        bytes += o->pieces[i].bytes;
    }
    o->block = mr_block_new(MR_MAX(bytes, (uint64_t)1));
    if (!o->block) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "node '%.*s': no memory for its rows", NODE(f));
    }
    o->tensor.data = o->block->data;
    o->tensor.bytes = bytes;
    bytes = 0;
    for (uint64_t i = 0; i < CALLS_OF(f); i++) {
        memcpy(o->block->data + bytes, o->pieces[i].block->data, o->pieces[i].bytes);
        bytes += o->pieces[i].bytes;
    }
    pieces_free(f, o);
    return MR_OK;
}

/* All calls have ended well. An output that some of them gave and others did not has no rows to join. */
static int outputs_close(struct fan *f, struct mr_err *err)
{
    int rc = MR_OK;

    for (uint32_t i = 0; i < node_of(f)->output_count && rc == MR_OK; i++) {
        struct fan_output *o = &f->outputs[i];
        if (o->calls > 0 && o->calls < CALLS_OF(f)) {
            return MR_FAIL(err, MR_E_INVALID,
                           "node '%.*s': tensor '%.*s': the model gave it for some rows only",
                           NODE(f), OUTPUT(f, i));
        }
        rc = o->pieces ? pieces_join(f, o, err) : MR_OK;
    }
    return rc;
}

bool fan_output_of(const struct fan *f, uint32_t output, struct mr_tensor *out,
                   struct mr_block **out_block)
{
    const struct fan_output *o = &f->outputs[output];

    *out = o->tensor;
    *out_block = o->block;
    return o->calls > 0;
}

void fan_fini(struct fan *f)
{
    for (uint32_t i = 0; i < node_of(f)->output_count; i++) {
        pieces_free(f, &f->outputs[i]);
        mr_block_unref(&f->outputs[i].block);
    }
}

/* ---- calls ---- */

struct call *fan_call_new(struct fan *f)
{
    struct call *c = f->idle;

    if (node_of(f)->op) {
        return flow_op_new(f->walk, f->node);
    }
    if (!c) {
        return flow_call_new(f->walk, f->node, 1);
    }
    f->idle = c->next_end;
    flow_call_reset(c);
    return c;
}

static struct call *call_take(struct fan *f)
{
    struct call *c = fan_call_new(f);

    c->fan = f;
    c->row = f->next;
    c->rows = MR_MIN(f->rows - f->next, (uint64_t)rows_of(f)->per_call);
    f->next += c->rows;
    return c;
}

/* Its memory, and that of its other attempts, serves the next ones, unless the outputs are in it. */
static void call_leave(struct fan *f, struct call *c)
{
    while (c->repeats) {
        c = c->repeats;
    }
    for (; c && !IS_SINGLE(f); c = c->again) {
        c->next_end = f->idle;
        f->idle = c;
    }
}

static void status_note(struct fan *f, int rc, const struct mr_err *err)
{
    if (f->status == MR_OK && rc < 0) {
        f->status = rc;
        f->err = *err;
    }
}

static void waiting_cancel(struct fan *f)
{
    const bool was_busy = f->is_busy;

    f->is_busy = true;
    for (struct call *c = f->walk->calls; c && f->pending > 0; c = c->next) {
        if (c->fan == f) {
            flow_call_cancel(c);
        }
    }
    f->is_busy = was_busy;
}

static int result_of(struct fan *f)
{
    struct mr_err err;

    mr_err_clear(&err);
    if (f->status == MR_OK && f->next < f->rows) {
        status_note(f, MR_FAIL(&err, MR_E_CANCELLED, "the request has failed"), &err);
    } else if (f->status == MR_OK) {
        status_note(f, outputs_close(f, &err), &err);
    }
    flow_split_end(f->walk, f->node, f->status);
    return f->status;
}

/* Begins calls, as many as may be under way. MR_PENDING, or the end. */
static int calls_begin(struct fan *f)
{
    struct mr_err err;

    f->is_busy = true;
    while (f->status == MR_OK && f->next < f->rows && f->pending < FAN_CALLS_MAX &&
           f->walk->run.status == MR_OK) {
        struct call *c = call_take(f);
        mr_err_clear(&err);
        const int rc = node_of(f)->op ? flow_op_ask(c, &err) : f->walk->flow->ask(c, &err);
        if (rc == MR_PENDING) {
            f->pending++;
        } else {
            call_leave(f, c);
            status_note(f, rc, &err);
        }
    }
    if (f->status < 0) {
        waiting_cancel(f);
    }
    f->is_busy = false;
    return f->pending > 0 ? MR_PENDING : result_of(f);
}

int fan_start(struct fan *f, struct mr_err *err)
{
    if (f->walk->trace && !f->walk->trace[f->node].start_ns) {
        flow_trace_begin(f->walk, f->node);
    }
    const int rc = calls_begin(f);

    if (rc < 0) {
        *err = f->err;
    }
    return rc;
}

void fan_call_ended(struct call *c, int rc, const struct mr_err *err)
{
    struct fan *f = c->fan;

    f->pending--;
    call_leave(f, c);
    status_note(f, rc, err);
    if (!f->is_busy && calls_begin(f) != MR_PENDING) {
        f->done(f);
    }
}

void fan_cancel(struct fan *f)
{
    struct mr_err err;

    mr_err_clear(&err);
    status_note(f, MR_FAIL(&err, MR_E_CANCELLED, "the request has failed"), &err);
    waiting_cancel(f);
    if (f->pending == 0 && !f->is_busy) {
        result_of(f);
        f->done(f);
    }
}
