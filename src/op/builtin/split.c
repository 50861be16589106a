/* split: a tensor into parts along an axis; along axis 0 without a copy. */
#include "builtin.h"
#include "util.h"

#define PARTS_MAX OP_NUMBERS_MAX

struct split {
    int axis;
    int64_t sizes[PARTS_MAX]; /* 0: equal parts */
    struct op_outputs outputs;
};

static void destroy(void *op)
{
    struct split *o = op;

    op_outputs_fini(&o->outputs);
    mr_free(o);
}

static int parse_sizes(struct split *o, const struct mr_op_desc *d, struct mr_err *err)
{
    double sizes[OP_NUMBERS_MAX];
    size_t count;
    int rc = op_numbers(d, "sizes", sizes, &count, err);

    if (rc < 0) {
        return rc;
    }
    if (d->output_count == 0 || d->output_count > PARTS_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "%u outputs; 1 to %d are possible", d->output_count,
                       PARTS_MAX);
    }
    if (count > 0 && count != d->output_count) {
        return MR_FAIL(err, MR_E_INVALID, "parameter 'sizes' has %zu numbers for %u outputs", count,
                       d->output_count);
    }
    for (size_t i = 0; i < count; i++) {
        if (!(sizes[i] >= 1 && sizes[i] < 0x1p53) || (double)(int64_t)sizes[i] != sizes[i]) {
            return MR_FAIL(err, MR_E_INVALID,
                           "parameter 'sizes' must have whole numbers from 1 on");
        }
        o->sizes[i] = (int64_t)sizes[i];
    }
    return MR_OK;
}

/* The size of each part of `total`; out[] -1 if total is. */
static int part_sizes(const struct split *o, uint32_t count, int64_t total, int64_t *out,
                      struct mr_err *err)
{
    int64_t sum = 0;

    for (uint32_t i = 0; i < count; i++) {
        out[i] = o->sizes[i] ? o->sizes[i] : total < 0 ? -1 : total / count;
        if (out[i] >= 0 && __builtin_add_overflow(sum, out[i], &sum)) {
            sum = INT64_MAX;
        }
    }
    if (total >= 0 && sum != total) {
        return MR_FAIL(err, MR_E_INVALID, "a dimension of %lld cannot be split into %u%s parts",
                       (long long)total, count, o->sizes[0] ? " such" : " equal");
    }
    return MR_OK;
}

static int describe(struct split *o, const struct mr_op_desc *d, struct mr_err *err)
{
    static const char *const known[] = {"axis", "sizes", NULL};
    int64_t dims[MR_MAX_RANK], parts[PARTS_MAX];
    int64_t axis = 0;
    int rc;

    MR_TRY(op_known(d, known, err));
    MR_TRY(op_int(d, "axis", -MR_MAX_RANK, MR_MAX_RANK - 1, &axis, err));
    MR_TRY(parse_sizes(o, d, err));
    if (d->input_count != 1) {
        return MR_FAIL(err, MR_E_INVALID, "needs one input");
    }
    MR_TRY(op_known_input(d, 0, 1, err));
    const struct mr_op_io *in = &d->inputs[0];
    MR_TRY(op_axis(axis, in->rank, &o->axis, err));
    if (in->dtype == MR_DTYPE_BYTES && o->axis != 0) {
        return MR_FAIL(err, MR_E_INVALID, "BYTES are split along axis 0 only");
    }
    MR_TRY(part_sizes(o, d->output_count, in->dims[o->axis], parts, err));
    memcpy(dims, in->dims, (size_t)in->rank * sizeof *dims);
    for (uint32_t i = 0; i < d->output_count; i++) {
        dims[o->axis] = parts[i];
        MR_TRY(op_outputs_set(&o->outputs, i, in->dtype, in->rank, dims, err));
    }
out:
    return rc;
}

static int create(const struct mr_op_desc *d, struct mr_op_node *node, struct mr_op_signature *out,
                  void **out_op, struct mr_err *err)
{
    struct split *o = MR_NEW(struct split);

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

/* Parts along axis 0 lie one after the other. */
static int split_rows(struct mr_op_run *run, const int64_t *parts, struct mr_err *err)
{
    const struct mr_tensor *in = &run->inputs[0];
    uint64_t per_row = op_product(in->shape, 1, in->rank);
    uint64_t begin = 0, end = 0, row = 0;
    int64_t shape[MR_MAX_RANK];
    uint64_t *offsets = NULL;
    int rc = MR_OK;

    if (in->dtype == MR_DTYPE_BYTES) {
        MR_TRY(op_bytes_offsets(in, op_product(in->shape, 0, in->rank), &offsets, err));
    }
    memcpy(shape, in->shape, (size_t)in->rank * sizeof *shape);
    for (uint32_t i = 0; i < run->output_count; i++) {
        row += (uint64_t)parts[i];
        end = offsets ? offsets[row * per_row] : row * per_row * mr_dtype_size(in->dtype);
        shape[0] = parts[i];
        if (op_wants(run, i)) {
            MR_TRY(builtin_host->output_view(run, i, 0, begin, in->dtype, in->rank, shape,
                                             end - begin, err));
        }
        begin = end;
    }
out:
    mr_free(offsets);
    return rc;
}

/* Part `i`, which begins `skip` along the axis, out of each of the outer parts. */
static int copy_part(const struct split *o, struct mr_op_run *run, uint32_t i, int64_t skip,
                     int64_t size, struct mr_err *err)
{
    const struct mr_tensor *in = &run->inputs[0];
    uint64_t outer = op_product(in->shape, 0, o->axis);
    uint64_t inner = op_product(in->shape, o->axis + 1, in->rank) * mr_dtype_size(in->dtype);
    uint64_t row = (uint64_t)in->shape[o->axis] * inner;
    size_t n = (uint64_t)size * inner;
    int64_t shape[MR_MAX_RANK];
    void *to;
    int rc;

    memcpy(shape, in->shape, (size_t)in->rank * sizeof *shape);
    shape[o->axis] = size;
    MR_TRY(builtin_host->output(run, i, in->dtype, in->rank, shape, 0, &to, err));
    for (uint64_t k = 0; k < outer && n > 0; k++) {
        memcpy((char *)to + k * n, (const char *)in->data + k * row + (uint64_t)skip * inner, n);
        MR_TRY(op_spend(run, 1 + n / 8, err));
    }
out:
    return rc;
}

static int run(void *op, struct mr_op_run *run, struct mr_err *err)
{
    const struct split *o = op;
    int64_t parts[PARTS_MAX];
    int64_t skip = 0;
    int rc = part_sizes(o, run->output_count, run->inputs[0].shape[o->axis], parts, err);

    if (rc < 0 || o->axis == 0) {
        return rc < 0 ? rc : split_rows(run, parts, err);
    }
    for (uint32_t i = 0; i < run->output_count && rc == MR_OK; i++) {
        if (op_wants(run, i)) {
            rc = copy_part(o, run, i, skip, parts[i], err);
        }
        skip += parts[i];
    }
    return rc;
}

const struct mr_op_kind split_kind = {.size = sizeof(struct mr_op_kind),
                                      .name = "split",
                                      .create = create,
                                      .run = run,
                                      .destroy = destroy};
