/* select: the rows of a tensor where a mask is true, in their order. */
#include "builtin.h"
#include "util.h"

struct select_op {
    uint32_t in, mask, out;
    struct op_outputs outputs;
};

static void destroy(void *op)
{
    struct select_op *o = op;

    op_outputs_fini(&o->outputs);
    mr_free(o);
}

static int describe(struct select_op *o, const struct mr_op_desc *d, struct mr_err *err)
{
    static const char *const known[] = {NULL};
    static const int bools[] = {MR_DTYPE_BOOL, 0};
    int64_t dims[MR_MAX_RANK];
    int rc;

    MR_TRY(op_known(d, known, err));
    MR_TRY(op_input(d, "x", false, &o->in, err));
    MR_TRY(op_input(d, "mask", false, &o->mask, err));
    MR_TRY(op_output(d, "x", false, &o->out, err));
    MR_TRY(op_no_more(d, 2, 1, err));
    MR_TRY(op_known_input(d, o->in, 1, err));
    MR_TRY(op_known_input(d, o->mask, 1, err));
    MR_TRY(op_input_types(d, o->mask, bools, err));
    const struct mr_op_io *in = &d->inputs[o->in];
    memcpy(dims, in->dims, (size_t)in->rank * sizeof *dims);
    dims[0] = -1;
    rc = op_outputs_set(&o->outputs, o->out, in->dtype, in->rank, dims, err);
out:
    return rc;
}

static int create(const struct mr_op_desc *d, struct mr_op_node *node, struct mr_op_signature *out,
                  void **out_op, struct mr_err *err)
{
    struct select_op *o = MR_NEW(struct select_op);

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

/* Where rows begin, rows + 1 offsets: those of BYTES are walked to. */
static int row_offsets(const struct mr_tensor *in, uint64_t **out, struct mr_err *err)
{
    uint64_t rows = (uint64_t)in->shape[0], per_row = op_product(in->shape, 1, in->rank);
    uint64_t *offsets;
    int rc;

    if (in->dtype == MR_DTYPE_BYTES && per_row > 0) {
        rc = op_bytes_offsets(in, rows * per_row, &offsets, err);
        for (uint64_t i = 0; rc == MR_OK && i <= rows; i++) {
            offsets[i] = offsets[i * per_row];
        }
        *out = rc == MR_OK ? offsets : NULL;
        return rc;
    }
    offsets = rows < UINT32_MAX ? mr_try_alloc((rows + 1) * sizeof *offsets) : NULL;
    if (!offsets) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for %llu rows", (unsigned long long)rows);
    }
    for (uint64_t i = 0; i <= rows; i++) { /* BYTES without elements: 0 */
        offsets[i] = i * per_row * mr_dtype_size(in->dtype);
    }
    *out = offsets;
    return MR_OK;
}

static int copy_rows(const struct select_op *o, struct mr_op_run *run, const uint64_t *offsets,
                     struct mr_err *err)
{
    const struct mr_tensor *in = &run->inputs[o->in];
    uint64_t rows = (uint64_t)in->shape[0], bytes = 0, kept = 0;
    uint8_t *mask = mr_try_alloc(rows + 1); /* a copy: a process that made it may still write it */
    int64_t shape[MR_MAX_RANK];
    void *to;
    int rc;

    if (!mask) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for %llu rows", (unsigned long long)rows);
    }
    if (rows > 0) {
        memcpy(mask, run->inputs[o->mask].data, rows);
    }
    for (uint64_t i = 0; i < rows; i++) {
        kept += mask[i] != 0;
        bytes += mask[i] ? offsets[i + 1] - offsets[i] : 0;
    }
    memcpy(shape, in->shape, (size_t)in->rank * sizeof *shape);
    shape[0] = (int64_t)kept;
    MR_TRY(builtin_host->output(run, o->out, in->dtype, in->rank, shape, bytes, &to, err));
    char *p = to;
    for (uint64_t i = 0; i < rows; i++) {
        size_t n = mask[i] ? offsets[i + 1] - offsets[i] : 0;
        if (n > 0) {
            memcpy(p, (const char *)in->data + offsets[i], n);
        }
        p += n;
        MR_TRY(op_spend(run, 1 + n / 8, err));
    }
out:
    mr_free(mask);
    return rc;
}

static int run(void *op, struct mr_op_run *run, struct mr_err *err)
{
    const struct select_op *o = op;
    const struct mr_tensor *in = &run->inputs[o->in];
    const struct mr_tensor *mask = &run->inputs[o->mask];
    uint64_t *offsets;

    if (op_product(mask->shape, 0, mask->rank) != (uint64_t)in->shape[0]) {
        return MR_FAIL(err, MR_E_INVALID, "a mask of %llu elements for %lld rows",
                       (unsigned long long)op_product(mask->shape, 0, mask->rank),
                       (long long)in->shape[0]);
    }
    int rc = row_offsets(in, &offsets, err);
    if (rc < 0) {
        return rc;
    }
    rc = copy_rows(o, run, offsets, err);
    mr_free(offsets);
    return rc;
}

const struct mr_op_kind select_kind = {.size = sizeof(struct mr_op_kind),
                                       .name = "select",
                                       .create = create,
                                       .run = run,
                                       .destroy = destroy};
