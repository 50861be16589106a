/* threshold: which elements compare as wanted with a value, and how many do. */
#include "builtin.h"
#include "util.h"

enum compare { GREATER_EQUAL, GREATER, LESS_EQUAL, LESS };

struct threshold {
    uint32_t in, mask, count;
    double value;
    int compare; /* enum compare */
    struct op_outputs outputs;
};

static void destroy(void *op)
{
    struct threshold *o = op;

    op_outputs_fini(&o->outputs);
    mr_free(o);
}

static int describe(struct threshold *o, const struct mr_op_desc *d, struct mr_err *err)
{
    static const char *const known[] = {"value", "compare", NULL};
    static const char *const words[] = {">=", ">", "<=", "<", NULL};
    static const int64_t one[] = {1};
    int rc;

    MR_TRY(op_known(d, known, err));
    MR_TRY(op_need(d, "value", err));
    MR_TRY(op_number(d, "value", &o->value, err));
    MR_TRY(op_choice(d, "compare", words, &o->compare, err));
    MR_TRY(op_input(d, "x", false, &o->in, err));
    MR_TRY(op_output(d, "mask", true, &o->mask, err));
    MR_TRY(op_output(d, "count", true, &o->count, err));
    MR_TRY(op_no_more(d, 1, (o->mask != UINT32_MAX) + (o->count != UINT32_MAX), err));
    MR_TRY(op_known_input(d, o->in, 0, err));
    const struct mr_op_io *in = &d->inputs[o->in];
    if (in->dtype == MR_DTYPE_BYTES) {
        return MR_FAIL(err, MR_E_INVALID, "input 'x' is BYTES, expected numbers");
    }
    if (o->mask != UINT32_MAX) {
        MR_TRY(op_outputs_set(&o->outputs, o->mask, MR_DTYPE_BOOL, in->rank, in->dims, err));
    }
    if (o->count != UINT32_MAX) {
        rc = op_outputs_set(&o->outputs, o->count, MR_DTYPE_INT64, 1, one, err);
    }
out:
    return rc;
}

static int create(const struct mr_op_desc *d, struct mr_op_node *node, struct mr_op_signature *out,
                  void **out_op, struct mr_err *err)
{
    struct threshold *o = MR_NEW(struct threshold);

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

static bool holds(const struct threshold *o, double v)
{
    switch (o->compare) {
    case GREATER_EQUAL: return v >= o->value;
    case GREATER: return v > o->value;
    case LESS_EQUAL: return v <= o->value;
    default: return v < o->value;
    }
}

static int run(void *op, struct mr_op_run *run, struct mr_err *err)
{
    static const int64_t one[] = {1};
    const struct threshold *o = op;
    const struct mr_tensor *in = &run->inputs[o->in];
    uint64_t elements = op_product(in->shape, 0, in->rank);
    void *mask = NULL, *count;
    int64_t n = 0;
    int rc = MR_OK;

    if (op_wants(run, o->mask)) {
        MR_TRY(
            builtin_host->output(run, o->mask, MR_DTYPE_BOOL, in->rank, in->shape, 0, &mask, err));
    }
    for (uint64_t i = 0; i < elements; i++) {
        bool is_set = holds(o, op_load(in, i));
        n += is_set;
        if (mask) {
            ((uint8_t *)mask)[i] = is_set;
        }
        if (i % 4096 == 4095) {
            MR_TRY(op_spend(run, 8192, err));
        }
    }
    if (op_wants(run, o->count)) {
        MR_TRY(builtin_host->output(run, o->count, MR_DTYPE_INT64, 1, one, 0, &count, err));
        memcpy(count, &n, sizeof n);
    }
out:
    return rc;
}

const struct mr_op_kind threshold_kind = {.size = sizeof(struct mr_op_kind),
                                          .name = "threshold",
                                          .create = create,
                                          .run = run,
                                          .destroy = destroy};
