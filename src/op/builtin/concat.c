/* concat: tensors one after the other along an axis. */
#include "builtin.h"
#include "util.h"

struct concat {
    int axis;
    struct op_outputs outputs;
};

static void destroy(void *op)
{
    struct concat *o = op;

    op_outputs_fini(&o->outputs);
    mr_free(o);
}

/* Dims that the inputs share, in `dims`; that of the axis is the sum, -1 if one is not known. */
static int join_dims(const struct concat *o, const struct mr_op_desc *d, int64_t *dims,
                     struct mr_err *err)
{
    const struct mr_op_io *first = &d->inputs[0];

    memcpy(dims, first->dims, (size_t)first->rank * sizeof *dims);
    for (uint32_t k = 1; k < d->input_count; k++) {
        const struct mr_op_io *io = &d->inputs[k];
        int rc = op_known_input(d, k, 1, err);
        if (rc < 0) {
            return rc;
        }
        if (io->dtype != first->dtype || io->rank != first->rank) {
            return MR_FAIL(err, MR_E_INVALID,
                           "input '%.60s' is %s of %d dimensions, input '%.60s' is %s of %d",
                           io->name, mr_dtype_name(io->dtype), io->rank, first->name,
                           mr_dtype_name(first->dtype), first->rank);
        }
        for (int i = 0; i < io->rank; i++) {
            if (i == o->axis) {
                dims[i] = dims[i] < 0 || io->dims[i] < 0 ? -1 : dims[i] + io->dims[i];
            } else if (dims[i] < 0) {
                dims[i] = io->dims[i];
            } else if (io->dims[i] >= 0 && io->dims[i] != dims[i]) {
                return MR_FAIL(err, MR_E_INVALID,
                               "dimension %d of input '%.60s' is %lld, of others %lld", i, io->name,
                               (long long)io->dims[i], (long long)dims[i]);
            }
        }
    }
    return MR_OK;
}

static int describe(struct concat *o, const struct mr_op_desc *d, struct mr_err *err)
{
    static const char *const known[] = {"axis", NULL};
    int64_t dims[MR_MAX_RANK];
    int64_t axis = 0;
    int rc;

    MR_TRY(op_known(d, known, err));
    MR_TRY(op_int(d, "axis", -MR_MAX_RANK, MR_MAX_RANK - 1, &axis, err));
    if (d->input_count == 0 || d->output_count != 1) {
        return MR_FAIL(err, MR_E_INVALID, "needs inputs and one output");
    }
    MR_TRY(op_known_input(d, 0, 1, err));
    MR_TRY(op_axis(axis, d->inputs[0].rank, &o->axis, err));
    if (d->inputs[0].dtype == MR_DTYPE_BYTES && o->axis != 0) {
        return MR_FAIL(err, MR_E_INVALID, "BYTES are joined along axis 0 only");
    }
    MR_TRY(join_dims(o, d, dims, err));
    rc = op_outputs_set(&o->outputs, 0, d->inputs[0].dtype, d->inputs[0].rank, dims, err);
out:
    return rc;
}

static int create(const struct mr_op_desc *d, struct mr_op_node *node, struct mr_op_signature *out,
                  void **out_op, struct mr_err *err)
{
    struct concat *o = MR_NEW(struct concat);

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

/* The shape of the result, and its bytes if BYTES. */
static int join_shapes(const struct concat *o, const struct mr_op_run *run, int64_t *shape,
                       uint64_t *out_bytes, struct mr_err *err)
{
    const struct mr_tensor *first = &run->inputs[0];

    *out_bytes = first->bytes;
    memcpy(shape, first->shape, (size_t)first->rank * sizeof *shape);
    for (uint32_t k = 1; k < run->input_count; k++) {
        const struct mr_tensor *t = &run->inputs[k];
        for (int i = 0; i < t->rank; i++) {
            if (i != o->axis && t->shape[i] != shape[i]) {
                return MR_FAIL(err, MR_E_INVALID,
                               "dimension %d of input %u is %lld, of others %lld", i, k,
                               (long long)t->shape[i], (long long)shape[i]);
            }
        }
        shape[o->axis] += t->shape[o->axis];
        *out_bytes += t->bytes;
    }
    return MR_OK;
}

static int run(void *op, struct mr_op_run *run, struct mr_err *err)
{
    const struct concat *o = op;
    const struct mr_tensor *first = &run->inputs[0];
    int64_t shape[MR_MAX_RANK];
    uint64_t bytes;
    void *data;
    int rc;

    MR_TRY(join_shapes(o, run, shape, &bytes, err));
    MR_TRY(builtin_host->output(run, 0, first->dtype, first->rank, shape, bytes, &data, err));
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

const struct mr_op_kind concat_kind = {.size = sizeof(struct mr_op_kind),
                                       .name = "concat",
                                       .create = create,
                                       .run = run,
                                       .destroy = destroy};
