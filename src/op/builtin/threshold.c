/* threshold: which elements compare as wanted with a value, and how many do. */
#include "builtin.h"
#include "util.h"

enum compare { GREATER_EQUAL, GREATER, LESS_EQUAL, LESS };

struct threshold {
    uint32_t in, mask, count;
    double value;
    __int128 bound; /* of whole numbers of 64 bits, in place of `value` */
    int compare;    /* enum compare */
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
    if (!op_whole(d, "value", o->value, &o->bound) && op_is_int64(in->dtype)) {
        /* of whole numbers, >= 0.5 is > 0, and < 0.5 is <= 0 */
        o->compare = o->compare == GREATER_EQUAL ? GREATER
                     : o->compare == LESS        ? LESS_EQUAL
                                                 : o->compare;
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

static bool holds(const struct threshold *o, const struct mr_tensor *in, uint64_t i)
{
    bool is_less, is_greater, is_equal; /* none for NaN */

    if (op_is_int64(in->dtype)) {
        __int128 v = op_load_int(in, i);
        is_less = v < o->bound;
        is_greater = v > o->bound;
        is_equal = v == o->bound;
    } else {
        double v = op_load(in, i);
        is_less = v < o->value;
        is_greater = v > o->value;
        is_equal = v == o->value;
    }
    switch (o->compare) {
    case GREATER_EQUAL: return is_greater || is_equal;
    case GREATER: return is_greater;
    case LESS_EQUAL: return is_less || is_equal;
    default: return is_less;
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
        bool is_set = holds(o, in, i);
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
