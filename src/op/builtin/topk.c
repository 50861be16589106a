/* topk: the largest values of the last dimension, where they were, and their labels.
 *
 * Equal values keep their order; NaN comes last. k is small in practice: a list of k is kept sorted by insertion. */
#include "builtin.h"
#include "labels.h"

#include <math.h>

#define K_MAX 1000

struct topk {
    uint32_t in, values, indices, labels_out; /* outputs: UINT32_MAX = not mapped */
    int64_t k;
    int index_dtype;
    struct labels labels;
    struct op_outputs outputs;
};

static void destroy(void *op)
{
    struct topk *o = op;

    labels_fini(&o->labels);
    op_outputs_fini(&o->outputs);
    mr_free(o);
}

static int parse(struct topk *o, const struct mr_op_desc *d, struct mr_op_node *node,
                 struct mr_err *err)
{
    static const char *const known[] = {"k",           "index_dtype", "labels",
                                        "labels_file", "default",     NULL};
    int rc;

    MR_TRY(op_known(d, known, err));
    MR_TRY(op_int(d, "k", 1, K_MAX, &o->k, err));
    MR_TRY(op_dtype(d, "index_dtype", &o->index_dtype, err));
    if (o->index_dtype != MR_DTYPE_INT32 && o->index_dtype != MR_DTYPE_INT64) {
        return MR_FAIL(err, MR_E_INVALID, "parameter 'index_dtype' is %s, expected INT32 or INT64",
                       mr_dtype_name(o->index_dtype));
    }
    MR_TRY(op_output(d, "labels", true, &o->labels_out, err));
    rc = labels_parse(&o->labels, d, node, o->labels_out != UINT32_MAX, err);
out:
    return rc;
}

static int describe(struct topk *o, const struct mr_op_desc *d, struct mr_err *err)
{
    int64_t dims[MR_MAX_RANK];
    int rc;

    MR_TRY(op_input(d, "scores", false, &o->in, err));
    MR_TRY(op_output(d, "values", true, &o->values, err));
    MR_TRY(op_output(d, "indices", true, &o->indices, err));
    MR_TRY(op_no_more(d, 1,
                      (o->values != UINT32_MAX) + (o->indices != UINT32_MAX) +
                          (o->labels_out != UINT32_MAX),
                      err));
    MR_TRY(op_known_input(d, o->in, 1, err));
    const struct mr_op_io *in = &d->inputs[o->in];
    if (in->dtype == MR_DTYPE_BYTES) {
        return MR_FAIL(err, MR_E_INVALID, "input 'scores' is BYTES, expected numbers");
    }
    int64_t classes = in->dims[in->rank - 1];
    if (classes >= 0 && classes < o->k) {
        return MR_FAIL(err, MR_E_INVALID, "k is %lld, input 'scores' has %lld in a row",
                       (long long)o->k, (long long)classes);
    }
    memcpy(dims, in->dims, (size_t)in->rank * sizeof *dims);
    dims[in->rank - 1] = o->k;
    const uint32_t outs[] = {o->values, o->indices, o->labels_out};
    const int types[] = {in->dtype, o->index_dtype, MR_DTYPE_BYTES};
    for (int i = 0; i < 3; i++) {
        if (outs[i] != UINT32_MAX) {
            MR_TRY(op_outputs_set(&o->outputs, outs[i], types[i], in->rank, dims, err));
        }
    }
out:
    return rc;
}

static int create(const struct mr_op_desc *d, struct mr_op_node *node, struct mr_op_signature *out,
                  void **out_op, struct mr_err *err)
{
    struct topk *o = MR_NEW(struct topk);
    int rc;

    o->k = 1;
    o->index_dtype = MR_DTYPE_INT64;
    op_outputs_init(&o->outputs, d);
    MR_TRY(parse(o, d, node, err));
    MR_TRY(describe(o, d, err));
    out->outputs = o->outputs.list;
    *out_op = o;
    return MR_OK;
out:
    destroy(o);
    return rc;
}

/* Whether element `i` is larger than element `k`. NaN is less than everything. */
static bool is_larger(const struct mr_tensor *in, uint64_t i, uint64_t k)
{
    const void *data = in->data;

    if (in->dtype == MR_DTYPE_INT64) {
        return ((const int64_t *)data)[i] > ((const int64_t *)data)[k];
    }
    if (in->dtype == MR_DTYPE_UINT64) {
        return ((const uint64_t *)data)[i] > ((const uint64_t *)data)[k];
    }
    double a = op_load(in, i), b = op_load(in, k);
    return a > b || (isnan(b) && !isnan(a));
}

/* The k largest of row `row`, by index, into `best`. */
static void best_of_row(const struct mr_tensor *in, uint64_t row, uint64_t classes, int64_t k,
                        int64_t *best)
{
    uint64_t first = row * classes;
    int64_t n = 0;

    for (uint64_t i = 0; i < classes; i++) {
        if (n == k && !is_larger(in, first + i, first + (uint64_t)best[k - 1])) {
            continue;
        }
        int64_t at = n < k ? n++ : k - 1;
        for (; at > 0 && is_larger(in, first + i, first + (uint64_t)best[at - 1]); at--) {
            best[at] = best[at - 1];
        }
        best[at] = (int64_t)i;
    }
}

static int find_best(const struct topk *o, struct mr_op_run *run, const struct mr_tensor *in,
                     uint64_t rows, uint64_t classes, int64_t *best, struct mr_err *err)
{
    for (uint64_t row = 0; row < rows; row++) {
        best_of_row(in, row, classes, o->k, best + row * (uint64_t)o->k);
        int rc = op_spend(run, 2 * classes, err);
        if (rc < 0) {
            return rc;
        }
    }
    return MR_OK;
}

static int put_outputs(const struct topk *o, struct mr_op_run *run, const struct mr_tensor *in,
                       const int64_t *shape, const int64_t *best, struct mr_err *err)
{
    uint64_t count = op_product(shape, 0, in->rank), k = (uint64_t)o->k;
    size_t size = mr_dtype_size(in->dtype);
    struct mr_tensor numbers = {.dtype = MR_DTYPE_INT64,
                                .rank = in->rank,
                                .shape = shape,
                                .data = (void *)(uintptr_t)best,
                                .bytes = count * sizeof *best};
    void *to;
    int rc = MR_OK;

    if (op_wants(run, o->values)) {
        MR_TRY(builtin_host->output(run, o->values, in->dtype, in->rank, shape, 0, &to, err));
        for (uint64_t i = 0; i < count; i++) {
            uint64_t from = i / k * (uint64_t)in->shape[in->rank - 1] + (uint64_t)best[i];
            memcpy((char *)to + i * size, (const char *)in->data + from * size, size);
        }
    }
    if (op_wants(run, o->indices)) {
        MR_TRY(builtin_host->output(run, o->indices, o->index_dtype, in->rank, shape, 0, &to, err));
        for (uint64_t i = 0; i < count; i++) {
            op_store(o->index_dtype, to, i, (double)best[i]);
        }
    }
    if (op_wants(run, o->labels_out)) {
        rc = labels_output(&o->labels, run, o->labels_out, &numbers, in->rank, shape, err);
    }
out:
    return rc;
}

static int run(void *op, struct mr_op_run *run, struct mr_err *err)
{
    const struct topk *o = op;
    const struct mr_tensor *in = &run->inputs[o->in];
    uint64_t rows = op_product(in->shape, 0, in->rank - 1),
             classes = (uint64_t)in->shape[in->rank - 1];
    int64_t shape[MR_MAX_RANK];

    if (classes < (uint64_t)o->k) {
        return MR_FAIL(err, MR_E_INVALID, "k is %lld, a row has %llu scores", (long long)o->k,
                       (unsigned long long)classes);
    }
    memcpy(shape, in->shape, (size_t)in->rank * sizeof *shape);
    shape[in->rank - 1] = o->k;
    int64_t *best =
        rows < UINT32_MAX ? mr_try_alloc((rows * (uint64_t)o->k + 1) * sizeof *best) : NULL;
    if (!best) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for %llu rows of %lld",
                       (unsigned long long)rows, (long long)o->k);
    }
    int rc = find_best(o, run, in, rows, classes, best, err);
    if (rc == MR_OK) {
        rc = put_outputs(o, run, in, shape, best, err);
    }
    mr_free(best);
    return rc;
}

const struct mr_op_kind topk_kind = {.size = sizeof(struct mr_op_kind),
                                     .name = "topk",
                                     .create = create,
                                     .run = run,
                                     .destroy = destroy};
