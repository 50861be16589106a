/* image.crop_resize: a part of an image for each box, all in one size.
 *
 * Boxes are cut at the image's borders; one that has no area there gives a black image, so that a detector's odd box does not fail the
 * request. */
#include "builtin.h"
#include "image_util.h"

#include <math.h>

enum box_format { BOX_XYXY, BOX_XYWH, BOX_YXYX };

struct crop {
    uint32_t image, boxes, out;
    struct image_target target;
    int format; /* enum box_format */
    bool is_normalized;
    int64_t max_boxes;
    struct op_outputs outputs;
};

static void destroy(void *op)
{
    struct crop *o = op;

    op_outputs_fini(&o->outputs);
    mr_free(o);
}

static int parse(struct crop *o, const struct mr_op_desc *d, struct mr_err *err)
{
    static const char *const known[] = {"width",  "height",      "method",    "antialias",
                                        "format", "coordinates", "max_boxes", NULL};
    static const char *const formats[] = {"xyxy", "xywh", "yxyx", NULL};
    static const char *const coordinates[] = {"pixel", "normalized", NULL};
    int kind = 0;
    int rc;

    MR_TRY(op_known(d, known, err));
    MR_TRY(image_target_parse(d, true, &o->target, err));
    MR_TRY(op_choice(d, "format", formats, &o->format, err));
    MR_TRY(op_choice(d, "coordinates", coordinates, &kind, err));
    MR_TRY(op_int(d, "max_boxes", 1, 1000000, &o->max_boxes, err));
    o->is_normalized = kind == 1;
out:
    return rc;
}

static int describe(struct crop *o, const struct mr_op_desc *d, struct mr_err *err)
{
    static const int pixels[] = {MR_DTYPE_UINT8, MR_DTYPE_FP32, 0};
    static const int numbers[] = {MR_DTYPE_FP32,  MR_DTYPE_FP64,  MR_DTYPE_FP16,
                                  MR_DTYPE_INT32, MR_DTYPE_INT64, 0};
    int64_t dims[MR_MAX_RANK];
    int rc;

    MR_TRY(op_input(d, "image", false, &o->image, err));
    MR_TRY(op_input(d, "boxes", false, &o->boxes, err));
    MR_TRY(op_output(d, "crops", false, &o->out, err));
    MR_TRY(op_no_more(d, 2, 1, err));
    MR_TRY(op_known_input(d, o->image, 3, err));
    MR_TRY(op_known_input(d, o->boxes, 2, err));
    MR_TRY(op_input_types(d, o->image, pixels, err));
    MR_TRY(op_input_types(d, o->boxes, numbers, err));
    const struct mr_op_io *image = &d->inputs[o->image];
    const struct mr_op_io *boxes = &d->inputs[o->boxes];
    int64_t last = boxes->dims[boxes->rank - 1];
    if (boxes->rank - 2 != image->rank - 3 || (last != -1 && last != 4)) {
        return MR_FAIL(err, MR_E_INVALID,
                       "boxes must be [..., N, 4] for images [..., height, width, channels]");
    }
    int n = boxes->rank - 1;
    memcpy(dims, boxes->dims, (size_t)n * sizeof *dims);
    dims[n] = o->target.height;
    dims[n + 1] = o->target.width;
    dims[n + 2] = image->dims[image->rank - 1];
    rc = op_outputs_set(&o->outputs, o->out, image->dtype, n + 3, dims, err);
out:
    return rc;
}

static int create(const struct mr_op_desc *d, struct mr_op_node *node, struct mr_op_signature *out,
                  void **out_op, struct mr_err *err)
{
    struct crop *o = MR_NEW(struct crop);
    int rc;

    (void)node;
    o->max_boxes = 1024;
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

/* Box `i` in pixels, cut at the borders. False: nothing of it is there. */
static bool box_axes(const struct crop *o, const struct mr_tensor *boxes, uint64_t i,
                     struct image_size size, struct resample_axis *x, struct resample_axis *y)
{
    double v[4];

    for (uint64_t k = 0; k < 4; k++) {
        v[k] = op_load(boxes, 4 * i + k);
    }
    bool is_yx = o->format == BOX_YXYX;
    double left = v[is_yx ? 1 : 0], top = v[is_yx ? 0 : 1], right = v[is_yx ? 3 : 2],
           bottom = v[is_yx ? 2 : 3];
    if (o->format == BOX_XYWH) {
        right += left;
        bottom += top;
    }
    double across = o->is_normalized ? size.width : 1, down = o->is_normalized ? size.height : 1;
    *x = (struct resample_axis){size.width, (uint32_t)o->target.width, fmax(left * across, 0),
                                fmin(right * across, size.width)};
    *y = (struct resample_axis){size.height, (uint32_t)o->target.height, fmax(top * down, 0),
                                fmin(bottom * down, size.height)};
    return isfinite(left) && isfinite(top) && isfinite(right) && isfinite(bottom) &&
           x->end > x->begin && y->end > y->begin;
}

static int crop_one(const struct crop *o, struct mr_op_run *run, const void *image,
                    struct image_size size, size_t channels, bool is_float, uint64_t box, char *to,
                    struct mr_err *err)
{
    struct resample_axis x, y;

    if (!box_axes(o, &run->inputs[o->boxes], box, size, &x, &y)) {
        memset(to, 0, (size_t)(o->target.width * o->target.height) * channels * (is_float ? 4 : 1));
        return op_spend(run, 1000, err);
    }
    struct resample_plan *plan = resample_plan(o->target.method, &x, &y);
    bool is_ok = plan && resample_run(plan, image, to, channels, is_float, image_spend, run);
    mr_free(plan);
    if (is_ok) {
        return MR_OK;
    }
    int rc = op_spend(run, 0, err);
    return rc < 0 ? rc : MR_FAIL(err, MR_E_EXHAUSTED, "no memory to resize an image");
}

static int check_shapes(const struct crop *o, const struct mr_tensor *image,
                        const struct mr_tensor *boxes, struct mr_err *err)
{
    int n = boxes->rank - 2;

    if (boxes->shape[n + 1] != 4) {
        return MR_FAIL(err, MR_E_INVALID, "boxes of %lld numbers; a box has 4",
                       (long long)boxes->shape[n + 1]);
    }
    if (boxes->shape[n] > o->max_boxes) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "%lld boxes; at most %lld are allowed (max_boxes)",
                       (long long)boxes->shape[n], (long long)o->max_boxes);
    }
    for (int i = 0; i < n; i++) {
        if (image->shape[i] != boxes->shape[i]) {
            return MR_FAIL(err, MR_E_INVALID, "%lld images and boxes for %lld",
                           (long long)image->shape[i], (long long)boxes->shape[i]);
        }
    }
    for (int i = n; i < n + 2; i++) {
        if (image->shape[i] < 1 || image->shape[i] > UINT32_MAX) {
            return MR_FAIL(err, MR_E_INVALID, "an image of %lld x %lld pixels",
                           (long long)image->shape[n + 1], (long long)image->shape[n]);
        }
    }
    return MR_OK;
}

static int run(void *op, struct mr_op_run *run, struct mr_err *err)
{
    const struct crop *o = op;
    const struct mr_tensor *image = &run->inputs[o->image];
    const struct mr_tensor *boxes = &run->inputs[o->boxes];
    int n = boxes->rank - 1;
    int64_t shape[MR_MAX_RANK];
    void *to;
    int rc = check_shapes(o, image, boxes, err);

    if (rc < 0) {
        return rc;
    }
    memcpy(shape, boxes->shape, (size_t)n * sizeof *shape);
    shape[n] = o->target.height;
    shape[n + 1] = o->target.width;
    shape[n + 2] = image->shape[n + 1];
    rc = builtin_host->output(run, o->out, image->dtype, n + 3, shape, 0, &to, err);
    bool is_float = image->dtype == MR_DTYPE_FP32;
    uint64_t per_image = (uint64_t)boxes->shape[n - 1];
    size_t size = is_float ? 4 : 1;
    size_t image_bytes = op_product(image->shape, n - 1, n + 2) * size;
    size_t crop_bytes = op_product(shape, n, n + 3) * size;
    uint64_t count = op_product(boxes->shape, 0, n);
    struct image_size from = {(uint32_t)image->shape[n], (uint32_t)image->shape[n - 1]};
    for (uint64_t i = 0; i < count && rc == MR_OK && crop_bytes > 0; i++) {
        rc = crop_one(o, run, (const char *)image->data + i / per_image * image_bytes, from,
                      (size_t)shape[n + 2], is_float, i, (char *)to + i * crop_bytes, err);
    }
    return rc;
}

const struct mr_op_kind image_crop_resize_kind = {.size = sizeof(struct mr_op_kind),
                                                  .name = "image.crop_resize",
                                                  .create = create,
                                                  .run = run,
                                                  .destroy = destroy};
