/* cast and scale: elements in another type; x * multiply + add, cut to [min, max].
 *
 * Both go element by element through a double, except for whole numbers of 64 bits, which a double cannot hold: these are computed
 * as whole numbers where the parameters are whole, too, as those of cast are. */
#include "builtin.h"
#include "util.h"

#include <math.h>

struct scale {
    uint32_t in, out;
    int dtype;
    bool is_cast;
    double multiply, add, min, max;
    bool is_whole;
    __int128 whole_multiply, whole_add, whole_min, whole_max; /* if is_whole */
    struct op_outputs outputs;
};

static void destroy(void *op)
{
    struct scale *o = op;

    op_outputs_fini(&o->outputs);
    mr_free(o);
}

static bool is_integer(int dtype)
{
    return dtype != MR_DTYPE_BOOL && dtype != MR_DTYPE_FP16 && dtype != MR_DTYPE_BF16 &&
           dtype != MR_DTYPE_FP32 && dtype != MR_DTYPE_FP64;
}

/* A product with a whole number of 64 bits, signed, and a sum with one of 64 bits are of 128 bits. */
static bool is_whole(struct scale *o, const struct mr_op_desc *d)
{
    int from = d->inputs[o->in].dtype;

    return (op_is_int64(from) || (op_is_int64(o->dtype) && is_integer(from))) &&
           op_whole(d, "multiply", o->multiply, &o->whole_multiply) &&
           op_whole(d, "add", o->add, &o->whole_add) && op_whole(d, "min", o->min, &o->whole_min) &&
           op_whole(d, "max", o->max, &o->whole_max) && o->whole_multiply >= INT64_MIN &&
           o->whole_multiply <= INT64_MAX && o->whole_add >= INT64_MIN &&
           o->whole_add <= UINT64_MAX;
}

static int parse(struct scale *o, const struct mr_op_desc *d, struct mr_err *err)
{
    static const char *const of_cast[] = {"dtype", NULL};
    static const char *const of_scale[] = {"dtype", "multiply", "add", "min", "max", NULL};
    int rc;

    MR_TRY(op_known(d, o->is_cast ? of_cast : of_scale, err));
    MR_TRY(op_input(d, "x", false, &o->in, err));
    MR_TRY(op_output(d, "x", false, &o->out, err));
    MR_TRY(op_no_more(d, 1, 1, err));
    MR_TRY(op_known_input(d, o->in, 0, err));
    o->dtype = d->inputs[o->in].dtype;
    if (o->is_cast) {
        MR_TRY(op_need(d, "dtype", err));
    }
    MR_TRY(op_dtype(d, "dtype", &o->dtype, err));
    MR_TRY(op_number(d, "multiply", &o->multiply, err));
    MR_TRY(op_number(d, "add", &o->add, err));
    MR_TRY(op_number(d, "min", &o->min, err));
    MR_TRY(op_number(d, "max", &o->max, err));
    if (o->dtype == MR_DTYPE_BYTES || d->inputs[o->in].dtype == MR_DTYPE_BYTES) {
        return MR_FAIL(err, MR_E_INVALID,
                       "BYTES are no numbers (json.parse and json.format convert texts)");
    }
    o->is_whole = is_whole(o, d);
    if (o->min > o->max || (o->is_whole && o->whole_min > o->whole_max)) {
        return MR_FAIL(err, MR_E_INVALID, "parameter 'min' is larger than 'max'");
    }
    rc = op_outputs_set(&o->outputs, o->out, o->dtype, d->inputs[o->in].rank, d->inputs[o->in].dims,
                        err);
out:
    return rc;
}

static int create(bool is_cast, const struct mr_op_desc *d, struct mr_op_signature *out,
                  void **out_op, struct mr_err *err)
{
    struct scale *o = MR_NEW(struct scale);

    o->is_cast = is_cast;
    o->multiply = 1;
    o->min = -INFINITY;
    o->max = INFINITY;
    op_outputs_init(&o->outputs, d);
    int rc = parse(o, d, err);
    if (rc < 0) {
        destroy(o);
        return rc;
    }
    out->outputs = o->outputs.list;
    *out_op = o;
    return MR_OK;
}

static int create_cast(const struct mr_op_desc *d, struct mr_op_node *node,
                       struct mr_op_signature *out, void **out_op, struct mr_err *err)
{
    (void)node;
    return create(true, d, out, out_op, err);
}

static int create_scale(const struct mr_op_desc *d, struct mr_op_node *node,
                        struct mr_op_signature *out, void **out_op, struct mr_err *err)
{
    (void)node;
    return create(false, d, out, out_op, err);
}

static void run_part(const struct scale *o, const struct mr_tensor *in, void *out, uint64_t begin,
                     uint64_t end)
{
    for (uint64_t i = begin; i < end; i++) {
        if (o->is_whole) {
            __int128 v = op_load_int(in, i) * o->whole_multiply + o->whole_add;
            v = v < o->whole_min ? o->whole_min : v > o->whole_max ? o->whole_max : v;
            op_store_int(o->dtype, out, i, v);
            continue;
        }
        double v = op_load(in, i);
        if (!o->is_cast) {
            v = v * o->multiply + o->add;
            v = v < o->min ? o->min : v > o->max ? o->max : v;
        }
        op_store(o->dtype, out, i, v);
    }
}

static int run(void *op, struct mr_op_run *run, struct mr_err *err)
{
    enum { PART = 4096 };
    const struct scale *o = op;
    const struct mr_tensor *in = &run->inputs[o->in];
    uint64_t elements = op_product(in->shape, 0, in->rank);
    void *out;
    int rc;

    if (o->is_cast && in->dtype == o->dtype) {
        return builtin_host->output_view(run, o->out, o->in, 0, o->dtype, in->rank, in->shape,
                                         in->bytes, err);
    }
    if (mr_dtype_size(in->dtype) ==
        mr_dtype_size(o->dtype)) { /* each element from itself: the input's memory serves */
        MR_TRY(builtin_host->output_in_place(run, o->out, o->in, o->dtype, in->rank, in->shape,
                                             &out, err));
    } else {
        MR_TRY(builtin_host->output(run, o->out, o->dtype, in->rank, in->shape, 0, &out, err));
    }
    for (uint64_t i = 0; i < elements; i += PART) {
        run_part(o, in, out, i, MR_MIN(i + PART, elements));
        MR_TRY(op_spend(run, 2 * PART, err));
    }
out:
    return rc;
}

const struct mr_op_kind cast_kind = {.size = sizeof(struct mr_op_kind),
                                     .name = "cast",
                                     .create = create_cast,
                                     .run = run,
                                     .destroy = destroy};
const struct mr_op_kind scale_kind = {.size = sizeof(struct mr_op_kind),
                                      .name = "scale",
                                      .create = create_scale,
                                      .run = run,
                                      .destroy = destroy};
