/* image.resize: images in another size. */
#include "builtin.h"
#include "image_util.h"

struct resize {
    uint32_t in, out;
    struct image_target target;
    struct op_outputs outputs;
};

static void destroy(void *op)
{
    struct resize *o = op;

    op_outputs_fini(&o->outputs);
    mr_free(o);
}

static int describe(struct resize *o, const struct mr_op_desc *d, struct mr_err *err)
{
    static const int types[] = {MR_DTYPE_UINT8, MR_DTYPE_FP32, 0};
    static const char *const known[] = {"width", "height", "method", "antialias", NULL};
    int64_t dims[MR_MAX_RANK];
    int rc;

    MR_TRY(op_known(d, known, err));
    MR_TRY(image_target_parse(d, true, &o->target, err));
    MR_TRY(op_input(d, "image", false, &o->in, err));
    MR_TRY(op_output(d, "image", false, &o->out, err));
    MR_TRY(op_no_more(d, 1, 1, err));
    MR_TRY(op_known_input(d, o->in, 3, err));
    MR_TRY(op_input_types(d, o->in, types, err));
    const struct mr_op_io *in = &d->inputs[o->in];
    memcpy(dims, in->dims, (size_t)in->rank * sizeof *dims);
    dims[in->rank - 3] = o->target.height;
    dims[in->rank - 2] = o->target.width;
    rc = op_outputs_set(&o->outputs, o->out, in->dtype, in->rank, dims, err);
out:
    return rc;
}

static int create(const struct mr_op_desc *d, struct mr_op_node *node, struct mr_op_signature *out,
                  void **out_op, struct mr_err *err)
{
    struct resize *o = MR_NEW(struct resize);

    (void)node;
    op_outputs_init(&o->outputs, d);
    int rc = describe(o, d, err);
    if (rc < 0) {
        destroy(o);
        return rc;
    }
    out->outputs = o->outputs.list;
    out->flags = MR_OP_LONG;
    *out_op = o;
    return MR_OK;
}

static int run(void *op, struct mr_op_run *run, struct mr_err *err)
{
    const struct resize *o = op;
    const struct mr_tensor *in = &run->inputs[o->in];
    int r = in->rank;
    uint64_t count = op_product(in->shape, 0, r - 3);
    size_t channels = (size_t)in->shape[r - 1];
    int64_t shape[MR_MAX_RANK];
    void *to;

    memcpy(shape, in->shape, (size_t)r * sizeof *shape);
    shape[r - 3] = o->target.height;
    shape[r - 2] = o->target.width;
    int rc = builtin_host->output(run, o->out, in->dtype, r, shape, 0, &to, err);
    if (rc < 0 || count == 0 || channels == 0) {
        return rc;
    }
    if (in->shape[r - 3] < 1 || in->shape[r - 2] < 1 || in->shape[r - 3] > UINT32_MAX ||
        in->shape[r - 2] > UINT32_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "an image of %lld x %lld pixels",
                       (long long)in->shape[r - 2], (long long)in->shape[r - 3]);
    }
    size_t size = in->dtype == MR_DTYPE_FP32 ? 4 : 1;
    size_t from_step = op_product(in->shape, r - 3, r) * size;
    size_t to_step = op_product(shape, r - 3, r) * size;
    struct image_size from = {(uint32_t)in->shape[r - 2], (uint32_t)in->shape[r - 3]};
    for (uint64_t i = 0; i < count && rc == MR_OK; i++) {
        rc =
            image_target_run(&o->target, run, from, channels, size == 4,
                             (const char *)in->data + i * from_step, (char *)to + i * to_step, err);
    }
    return rc;
}

const struct mr_op_kind image_resize_kind = {.size = sizeof(struct mr_op_kind),
                                             .name = "image.resize",
                                             .create = create,
                                             .run = run,
                                             .destroy = destroy};
