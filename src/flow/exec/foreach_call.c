/* Nodes with `foreach`: one fan of calls for all rows of the tensors, and a gather, which puts the dimension of the rows
 * elsewhere.
 *
 * Thread: that of the walk. */
#include "fan.h"

#include "base/mem.h"
#include "flow/plan/rows_node.h"
#include "tensor/tensor.h"

#define NAME(s) MR_STR_ARG(mr_str_sub((s), 0, 80))

static const struct run_value *value_of(const struct walk *w, const struct plan_port *port)
{
    return &w->run.values[port->tensor];
}

static mr_str tensor_name(const struct walk *w, const struct plan_port *port)
{
    return mr_str_sub(w->run.plan->tensors[port->tensor].name, 0, 80);
}

/* ---- rows of tensors ---- */

/* Dimensions 0 to `dim` of a tensor, which is to have `rank`, as one. A batch dimension of 1 that is one too many is left
 * out. */
static int rows_flatten(struct walk *w, struct mr_tensor *t, int32_t rank, uint32_t dim,
                        struct mr_tensor *out, const int64_t **out_lead, struct mr_err *err)
{
    int64_t *shape = MR_ARENA_ARRAY(&w->arena, int64_t, (size_t)rank + 1);
    char text[256];
    uint64_t rows;
    int rc;

    if (!shape) {
        return MR_ARENA_FAIL(err);
    }
    MR_TRY(mr_tensor_fit(t, rank, false, &w->arena, err));
    if (t->rank != rank) {
        return MR_FAIL(err, MR_E_INVALID, "its shape is %s, and the rows need %d dimensions",
                       mr_shape_text(t->shape, t->rank, text, sizeof text), rank);
    }
    rc = mr_shape_elements(t->shape, (int)dim + 1, &rows, err);
    if (rc < 0) {
        return rc;
    }
    shape[0] = (int64_t)rows;
    memcpy(shape + 1, t->shape + dim + 1, (size_t)(t->rank - (int32_t)dim - 1) * sizeof *shape);
    *out = *t;
    out->shape = shape;
    out->rank = t->rank - (int32_t)dim;
    *out_lead = t->shape;
out:
    return rc;
}

int flow_foreach_max(const struct walk *w, uint32_t node, uint64_t rows, struct mr_err *err)
{
    const struct plan_node *n = &w->run.plan->nodes[node];
    uint32_t i = 0;

    if (rows <= n->rows->max) {
        return MR_OK;
    }
    while (!n->rows->divided[i]) {
        i++;
    }
    return MR_FAIL(err, MR_E_INVALID,
                   "node '%.*s': tensor '%.*s' has %llu rows, and foreach has a 'max' of %u",
                   NAME(n->name), MR_STR_ARG(tensor_name(w, &n->inputs[i])),
                   (unsigned long long)rows, n->rows->max);
}

static int rows_differ(const struct walk *w, uint32_t node, const struct plan_port *port,
                       uint64_t rows, uint64_t expected, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_INVALID, "node '%.*s': tensor '%.*s' has %llu rows, others have %llu",
                   NAME(w->run.plan->nodes[node].name), MR_STR_ARG(tensor_name(w, port)),
                   (unsigned long long)rows, (unsigned long long)expected);
}

/* ---- foreach ---- */

struct foreach_call {
    struct fan fan;
    const int64_t *lead; /* [dim + 1] of the tensors, together the rows */
};

int flow_foreach_whole(struct walk *w, const int64_t *lead, uint32_t dim, struct mr_tensor *io,
                       struct mr_err *err)
{
    if (dim == 0) {
        return MR_OK;
    }
    if (io->rank + (int32_t)dim > MR_MAX_RANK) {
        return MR_FAIL(err, MR_E_INVALID, "a tensor has at most %d dimensions", MR_MAX_RANK);
    }
    int64_t *shape = MR_ARENA_ARRAY(&w->arena, int64_t, (size_t)io->rank + dim + 1);
    if (!shape) {
        return MR_ARENA_FAIL(err);
    }
    memcpy(shape, lead, (dim + (size_t)1) * sizeof *shape);
    memcpy(shape + dim + 1, io->shape + 1, (size_t)(io->rank - 1) * sizeof *shape);
    io->shape = shape;
    io->rank += (int32_t)dim;
    return MR_OK;
}

static int foreach_take(struct foreach_call *f, struct mr_err *err)
{
    struct walk *w = f->fan.walk;
    const struct plan_node *n = &w->run.plan->nodes[f->fan.node];
    struct mr_tensor t;
    struct mr_block *block;
    int rc = MR_OK;

    for (uint32_t i = 0; i < n->output_count && rc == MR_OK; i++) {
        if (fan_output_of(&f->fan, i, &t, &block)) {
            rc = flow_foreach_whole(w, f->lead, n->rows->dim, &t, err);
            if (rc == MR_OK) {
                run_set(&w->run, n->outputs[i].tensor, &t, block);
            }
        }
    }
    return rc;
}

static void foreach_done(struct fan *fan)
{
    struct foreach_call *f = MR_CONTAINER_OF(fan, struct foreach_call, fan);
    struct walk *w = fan->walk;
    struct mr_err err = fan->err;
    int rc = fan->status;

    if (rc == MR_OK) {
        mr_err_clear(&err);
        rc = foreach_take(f, &err);
    }
    fan_fini(fan);
    run_ended(&w->run, fan->node, rc, &err);
}

int64_t flow_foreach_length(const struct plan *p, uint32_t node, uint32_t output, int32_t i)
{
    const struct plan_rows *rows = p->nodes[node].rows;
    const struct plan_tensor *t = &p->tensors[p->nodes[node].outputs[output].tensor];
    const int32_t lead = (int32_t)rows->dim + 1, batch = t->has_batch ? 1 : 0;
    int64_t length = rows->made[output].dims[i - lead];

    if (length < 0 && t->rank + batch == rows->made[output].rank + lead) {
        length = t->dims[i - batch];
    }
    return length < 0 ? 1 : length;
}

int flow_foreach_made(struct walk *w, uint32_t node, uint32_t output, const int64_t *lead,
                      struct mr_tensor *out, struct mr_err *err)
{
    const struct plan_rows *rows = w->run.plan->nodes[node].rows;
    const struct plan_type *row = &rows->made[output];
    int64_t *shape = MR_ARENA_ARRAY(&w->arena, int64_t, (size_t)row->rank + rows->dim + 1);

    if (!shape) {
        return MR_ARENA_FAIL(err);
    }
    memcpy(shape, lead, (rows->dim + (size_t)1) * sizeof *shape);
    for (int32_t k = (int32_t)rows->dim + 1; k <= row->rank + (int32_t)rows->dim; k++) {
        shape[k] = flow_foreach_length(w->run.plan, node, output, k);
    }
    *out = (struct mr_tensor){
        .dtype = row->dtype, .rank = row->rank + (int32_t)rows->dim + 1, .shape = shape};
    return MR_OK;
}

/* Without any row: outputs without rows. */
static int foreach_empty(struct walk *w, uint32_t node, const int64_t *lead, struct mr_err *err)
{
    const struct plan_node *n = &w->run.plan->nodes[node];
    int rc = MR_OK;

    if (n->rows->skips_empty) {
        run_note(&w->run, node, RUN_SKIPPED);
        return MR_OK;
    }
    for (uint32_t i = 0; i < n->output_count && rc == MR_OK; i++) {
        struct mr_tensor t;
        rc = flow_foreach_made(w, node, i, lead, &t, err);
        if (rc == MR_OK) {
            run_set(&w->run, n->outputs[i].tensor, &t, NULL);
        }
    }
    return rc;
}

int flow_foreach_input(struct walk *w, uint32_t node, uint32_t i, uint64_t *io_rows,
                       struct mr_tensor *io, const int64_t **out_lead, struct mr_err *err)
{
    const struct plan_node *n = &w->run.plan->nodes[node];
    const struct plan_port *port = &n->inputs[i];
    struct mr_tensor whole = *io;
    int rc = rows_flatten(w, &whole, n->rows->ranks[i], n->rows->dim, io, out_lead, err);

    if (rc < 0) {
        return MR_WRAP(err, rc, "node '%.*s': rows of tensor '%.*s'", NAME(n->name),
                       MR_STR_ARG(tensor_name(w, port)));
    }
    const uint64_t rows = (uint64_t)io->shape[0];
    if (*io_rows != UINT64_MAX && *io_rows != rows) {
        return rows_differ(w, node, port, rows, *io_rows, err);
    }
    *io_rows = rows;
    return MR_OK;
}

int flow_foreach_shape(struct walk *w, uint32_t node, uint32_t tensor, struct mr_tensor *out,
                       struct mr_err *err)
{
    const struct plan_node *n = &w->run.plan->nodes[node];
    uint64_t rows = UINT64_MAX;
    const int64_t *lead = NULL;
    uint32_t output = 0;
    int rc = MR_OK;

    while (n->outputs[output].tensor != tensor) {
        output++;
    }
    for (uint32_t i = 0; i < n->input_count && rc == MR_OK; i++) {
        struct mr_tensor t = value_of(w, &n->inputs[i])->tensor;
        if (n->rows->divided[i] && value_of(w, &n->inputs[i])->state == RUN_VALUE) {
            rc = flow_foreach_input(w, node, i, &rows, &t, &lead, err);
        }
    }
    const bool is_skipped = w->run.nodes[node].outcome == RUN_SKIPPED;
    if (is_skipped && (rc < 0 || rows > PLAN_FOREACH_MAX)) {
        return MR_OK; /* it does not run, so its rows are no reason to refuse the request */
    }
    if (rc < 0 || !lead || rows == 0) {
        return rc;
    }
    struct mr_tensor made;
    MR_TRY(is_skipped ? MR_OK : flow_foreach_max(w, node, rows, err));
    MR_TRY(flow_foreach_made(w, node, output, lead, &made, err));
    out->shape = made.shape;
    out->rank = made.rank;
out:
    return rc;
}

int flow_foreach_start(struct walk *w, uint32_t node, struct mr_err *err)
{
    const struct plan_node *n = &w->run.plan->nodes[node];
    struct foreach_call *f = MR_ARENA_NEW(&w->arena, struct foreach_call);
    struct mr_tensor *inputs = MR_ARENA_ARRAY(&w->arena, struct mr_tensor, n->input_count + 1u);
    uint64_t rows = UINT64_MAX;
    int rc = MR_OK;

    if (!f || !inputs) {
        return MR_ARENA_FAIL(err);
    }
    for (uint32_t i = 0; i < n->input_count && rc == MR_OK; i++) {
        inputs[i] = value_of(w, &n->inputs[i])->tensor;
        if (n->rows->divided[i]) {
            rc = flow_foreach_input(w, node, i, &rows, &inputs[i], &f->lead, err);
        }
    }
    rc = rc < 0 ? rc : flow_foreach_max(w, node, rows, err);
    if (rc < 0 || rows == 0) {
        return rc < 0 ? rc : foreach_empty(w, node, f->lead, err);
    }
    MR_TRY(fan_init(&f->fan, w, node, rows, err));
    f->fan.done = foreach_done;
    for (uint32_t i = 0; i < n->input_count; i++) {
        if (value_of(w, &n->inputs[i])->state == RUN_VALUE) {
            fan_input(&f->fan, i, &inputs[i], value_of(w, &n->inputs[i])->block);
        }
    }
    rc = fan_start(&f->fan, err);
    if (rc != MR_PENDING) {
        rc = rc < 0 ? rc : foreach_take(f, err);
        fan_fini(&f->fan);
    }
out:
    return rc;
}
