/* image.decode: JPEG and PNG as bytes to pixels.
 *
 * One image per element. Images of one request that differ in size need the parameters width and height, as a tensor has one. */
#include "builtin.h"
#include "image_util.h"

#define MAX_PIXELS_DEFAULT 16777216
#define MAX_PIXELS_LIMIT   268435456

struct decode {
    uint32_t in, out;
    int rank;        /* of the images before height, width and channels */
    bool drops_last; /* the input's last dimension, which is 1 */
    struct image_options options;
    struct image_target target;
    struct op_outputs outputs;
};

static int parse(struct decode *o, const struct mr_op_desc *d, struct mr_err *err)
{
    static const char *const known[] = {"channels", "order",  "max_pixels", "width",
                                        "height",   "method", "antialias",  NULL};
    static const char *const orders[] = {"RGB", "BGR", NULL};
    int64_t channels = 3, max_pixels = MAX_PIXELS_DEFAULT;
    int order = 0;
    int rc;

    MR_TRY(op_known(d, known, err));
    MR_TRY(op_int(d, "channels", 1, 4, &channels, err));
    MR_TRY(op_choice(d, "order", orders, &order, err));
    MR_TRY(op_int(d, "max_pixels", 1, MAX_PIXELS_LIMIT, &max_pixels, err));
    MR_TRY(image_target_parse(d, false, &o->target, err));
    if (channels == 2) {
        return MR_FAIL(err, MR_E_INVALID, "parameter 'channels' is '2', expected 1, 3 or 4");
    }
    o->options = (struct image_options){.channels = (int)channels,
                                        .is_bgr = order == 1,
                                        .max_pixels = (uint64_t)max_pixels,
                                        .spend = image_spend};
out:
    return rc;
}

static int describe(struct decode *o, const struct mr_op_desc *d, struct mr_err *err)
{
    static const int types[] = {MR_DTYPE_BYTES, 0};
    int64_t dims[MR_MAX_RANK];
    int rc;

    MR_TRY(op_input(d, "bytes", false, &o->in, err));
    MR_TRY(op_output(d, "image", false, &o->out, err));
    MR_TRY(op_no_more(d, 1, 1, err));
    MR_TRY(op_known_input(d, o->in, 0, err));
    MR_TRY(op_input_types(d, o->in, types, err));
    const struct mr_op_io *in = &d->inputs[o->in];
    o->drops_last = in->rank > 0 && in->dims[in->rank - 1] == 1;
    o->rank = in->rank - (o->drops_last ? 1 : 0);
    if (o->rank + 3 > MR_MAX_RANK) {
        return MR_FAIL(err, MR_E_INVALID, "input 'bytes' has %d dimensions", in->rank);
    }
    for (int i = 0; i < o->rank; i++) {
        dims[i] = in->dims[i];
    }
    dims[o->rank] = o->target.is_set ? o->target.height : -1;
    dims[o->rank + 1] = o->target.is_set ? o->target.width : -1;
    dims[o->rank + 2] = o->options.channels;
    rc = op_outputs_set(&o->outputs, o->out, MR_DTYPE_UINT8, o->rank + 3, dims, err);
out:
    return rc;
}

static void destroy(void *op)
{
    struct decode *o = op;

    op_outputs_fini(&o->outputs);
    mr_free(o);
}

static int create(const struct mr_op_desc *d, struct mr_op_node *node, struct mr_op_signature *out,
                  void **out_op, struct mr_err *err)
{
    struct decode *o = MR_NEW(struct decode);
    int rc;

    (void)node;
    op_outputs_init(&o->outputs, d);
    MR_TRY(parse(o, d, err));
    MR_TRY(describe(o, d, err));
    out->outputs = o->outputs.list;
    out->flags = MR_OP_LONG;
    *out_op = o;
    return MR_OK;
out:
    destroy(o);
    return rc;
}

/* Image `i` decoded into `to`, or, through a buffer, in the target's size. */
static int decode_one(const struct decode *o, struct mr_op_run *run, mr_bytes data,
                      struct image_size size, uint8_t *to, struct mr_err *err)
{
    struct image_options options = o->options;
    size_t channels = (size_t)options.channels;
    int rc;

    options.ctx = run;
    if (!o->target.is_set) {
        return image_read(data, &options, size, to, err);
    }
    uint8_t *buffer = mr_try_alloc((size_t)size.width * size.height * channels);
    if (!buffer) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for an image of %u x %u", size.width,
                       size.height);
    }
    rc = image_read(data, &options, size, buffer, err);
    if (rc == MR_OK) {
        rc = image_target_run(&o->target, run, size, channels, false, buffer, to, err);
    }
    mr_free(buffer);
    return rc;
}

/* The size that all images of a request share. */
static int probe_all(const struct decode *o, const struct mr_tensor *in, uint64_t count,
                     struct image_size *out, struct mr_err *err)
{
    mr_bytes rest = {in->data, in->bytes};
    struct image_size size;
    mr_str element;

    for (uint64_t i = 0; i < count && mr_bytes_tensor_next(&rest, &element); i++) {
        mr_bytes data = {(const uint8_t *)element.ptr, element.len};
        int rc = image_probe(data, &o->options, &size, err);
        if (rc < 0) {
            return count > 1 ? MR_WRAP(err, rc, "image %llu", (unsigned long long)i) : rc;
        }
        if (i == 0) {
            *out = size;
        } else if (size.width != out->width || size.height != out->height) {
            return MR_FAIL(err, MR_E_INVALID,
                           "image %llu is %u x %u, image 0 is %u x %u; parameters width and height "
                           "of the node make them equal",
                           (unsigned long long)i, size.width, size.height, out->width, out->height);
        }
    }
    return MR_OK;
}

static int decode_all(const struct decode *o, struct mr_op_run *run, uint64_t count,
                      struct image_size size, uint8_t *to, struct mr_err *err)
{
    const struct mr_tensor *in = &run->inputs[o->in];
    mr_bytes rest = {in->data, in->bytes};
    size_t step = (size_t)size.width * size.height * (size_t)o->options.channels;
    mr_str element;

    for (uint64_t i = 0; i < count && mr_bytes_tensor_next(&rest, &element); i++) {
        mr_bytes data = {(const uint8_t *)element.ptr, element.len};
        struct image_size own = size;
        int rc = o->target.is_set ? image_probe(data, &o->options, &own, err) : MR_OK;
        if (rc == MR_OK) {
            rc = decode_one(o, run, data, own, to + i * step, err);
        }
        if (rc < 0) {
            return count > 1 ? MR_WRAP(err, rc, "image %llu", (unsigned long long)i) : rc;
        }
    }
    return MR_OK;
}

static int run(void *op, struct mr_op_run *run, struct mr_err *err)
{
    const struct decode *o = op;
    const struct mr_tensor *in = &run->inputs[o->in];
    uint64_t count = op_product(in->shape, 0, in->rank);
    struct image_size size = {(uint32_t)o->target.width, (uint32_t)o->target.height};
    int64_t shape[MR_MAX_RANK];
    void *to;
    int rc;

    if (!o->target.is_set) {
        MR_TRY(probe_all(o, in, count, &size, err));
    }
    for (int i = 0; i < o->rank; i++) {
        shape[i] = in->shape[i];
    }
    shape[o->rank] = size.height;
    shape[o->rank + 1] = size.width;
    shape[o->rank + 2] = o->options.channels;
    MR_TRY(builtin_host->output(run, o->out, MR_DTYPE_UINT8, o->rank + 3, shape, 0, &to, err));
    rc = decode_all(o, run, count, size, to, err);
out:
    return rc;
}

const struct mr_op_kind image_decode_kind = {.size = sizeof(struct mr_op_kind),
                                             .name = "image.decode",
                                             .create = create,
                                             .run = run,
                                             .destroy = destroy};
