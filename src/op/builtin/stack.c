/* stack: tensors of one shape along a new axis. */
#include "builtin.h"
#include "util.h"

struct stack_op {
    int axis;
    struct op_outputs outputs;
};

static void destroy(void *op)
{
    struct stack_op *o = op;

    op_outputs_fini(&o->outputs);
    mr_free(o);
}

/* Dims of all inputs, -1 where none is known. */
static int same_dims(const struct mr_op_desc *d, int64_t *dims, struct mr_err *err)
{
    const struct mr_op_io *first = &d->inputs[0];

    memset(dims, -1, MR_MAX_RANK * sizeof *dims);
    for (uint32_t k = 0; k < d->input_count; k++) {
        const struct mr_op_io *io = &d->inputs[k];
        int rc = op_known_input(d, k, 0, err);
        if (rc < 0) {
            return rc;
        }
        bool is_same = io->dtype == first->dtype && io->rank == first->rank;
        for (int i = 0; is_same && i < io->rank; i++) {
            dims[i] = dims[i] < 0 ? io->dims[i] : dims[i];
            is_same = io->dims[i] < 0 || io->dims[i] == dims[i];
        }
        if (!is_same) {
            return MR_FAIL(err, MR_E_INVALID,
                           "input '%.60s' has another type or shape than input '%.60s'", io->name,
                           first->name);
        }
    }
    return MR_OK;
}

static int describe(struct stack_op *o, const struct mr_op_desc *d, struct mr_err *err)
{
    static const char *const known[] = {"axis", NULL};
    int64_t dims[MR_MAX_RANK + 1];
    int64_t axis = 0;
    int rc;

    MR_TRY(op_known(d, known, err));
    MR_TRY(op_int(d, "axis", -MR_MAX_RANK, MR_MAX_RANK - 1, &axis, err));
    if (d->input_count == 0 || d->output_count != 1) {
        return MR_FAIL(err, MR_E_INVALID, "needs inputs and one output");
    }
    MR_TRY(same_dims(d, dims, err));
    int rank = d->inputs[0].rank;
    MR_TRY(op_axis(axis, rank + 1, &o->axis, err));
    if (d->inputs[0].dtype == MR_DTYPE_BYTES && o->axis != 0) {
        return MR_FAIL(err, MR_E_INVALID, "BYTES are stacked along axis 0 only");
    }
    memmove(dims + o->axis + 1, dims + o->axis, (size_t)(rank - o->axis) * sizeof *dims);
    dims[o->axis] = d->input_count;
    rc = op_outputs_set(&o->outputs, 0, d->inputs[0].dtype, rank + 1, dims, err);
out:
    return rc;
}

static int create(const struct mr_op_desc *d, struct mr_op_node *node, struct mr_op_signature *out,
                  void **out_op, struct mr_err *err)
{
    struct stack_op *o = MR_NEW(struct stack_op);

    (void)node;
    op_outputs_init(&o->outputs, d);
    int rc = describe(o, d, err);
    if (rc < 0) {
        destroy(o);
        return rc;
    }
    out->outputs = o->outputs.list;
    *out_op = o;
    return MR_OK;
}

static int run(void *op, struct mr_op_run *run, struct mr_err *err)
{
    const struct stack_op *o = op;
    const struct mr_tensor *first = &run->inputs[0];
    int64_t shape[MR_MAX_RANK + 1];
    uint64_t bytes = 0;
    void *data;
    int rc;

    for (uint32_t k = 0; k < run->input_count; k++) {
        const struct mr_tensor *t = &run->inputs[k];
        if (t->rank != first->rank ||
            (t->rank > 0 && memcmp(t->shape, first->shape, (size_t)t->rank * sizeof *shape) != 0)) {
            return MR_FAIL(err, MR_E_INVALID, "input %u has another shape than input 0", k);
        }
        bytes += t->bytes;
    }
    for (int i = 0; i <= first->rank; i++) {
        shape[i] = i < o->axis    ? first->shape[i]
                   : i == o->axis ? (int64_t)run->input_count
                                  : first->shape[i - 1];
    }
    MR_TRY(builtin_host->output(run, 0, first->dtype, first->rank + 1, shape, bytes, &data, err));
    char *to = data;
    uint64_t outer = op_product(shape, 0, o->axis);
    for (uint64_t i = 0; bytes > 0 && i < outer;
         i++) { /* without elements any dimension may be huge */
        for (uint32_t k = 0; k < run->input_count; k++) {
            size_t n = run->inputs[k].bytes / outer;
            if (n > 0) {
                memcpy(to, (const char *)run->inputs[k].data + i * n, n);
            }
            to += n;
            MR_TRY(op_spend(run, 1 + n / 8, err));
        }
    }
out:
    return rc;
}

const struct mr_op_kind stack_kind = {.size = sizeof(struct mr_op_kind),
                                      .name = "stack",
                                      .create = create,
                                      .run = run,
                                      .destroy = destroy};
