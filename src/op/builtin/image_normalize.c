/* image.normalize: (pixel * scale - mean) / std per channel, as float, in the layout that the model wants. */
#include "builtin.h"
#include "util.h"

struct normalize {
    uint32_t in, out;
    double scale;
    double mean[OP_NUMBERS_MAX], std[OP_NUMBERS_MAX];
    size_t mean_count, std_count; /* 0, 1 or the channels */
    bool is_chw;
    int dtype;
    struct op_outputs outputs;
};

static void destroy(void *op)
{
    struct normalize *o = op;

    op_outputs_fini(&o->outputs);
    mr_free(o);
}

static int parse(struct normalize *o, const struct mr_op_desc *d, struct mr_err *err)
{
    static const char *const known[] = {"scale", "mean", "std", "layout", "dtype", NULL};
    static const char *const layouts[] = {"HWC", "CHW", NULL};
    int layout = 0;
    int rc;

    MR_TRY(op_known(d, known, err));
    MR_TRY(op_number(d, "scale", &o->scale, err));
    MR_TRY(op_numbers(d, "mean", o->mean, &o->mean_count, err));
    MR_TRY(op_numbers(d, "std", o->std, &o->std_count, err));
    MR_TRY(op_choice(d, "layout", layouts, &layout, err));
    MR_TRY(op_dtype(d, "dtype", &o->dtype, err));
    o->is_chw = layout == 1;
    if (o->dtype != MR_DTYPE_FP32 && o->dtype != MR_DTYPE_FP16 && o->dtype != MR_DTYPE_BF16) {
        return MR_FAIL(err, MR_E_INVALID, "parameter 'dtype' is %s, expected FP32, FP16 or BF16",
                       mr_dtype_name(o->dtype));
    }
    for (size_t i = 0; i < o->std_count; i++) {
        if (o->std[i] == 0) {
            return MR_FAIL(err, MR_E_INVALID, "parameter 'std' has a 0");
        }
    }
out:
    return rc;
}

static int check_channels(const struct normalize *o, int64_t channels, struct mr_err *err)
{
    const size_t counts[] = {o->mean_count, o->std_count};

    for (size_t i = 0; i < 2; i++) {
        if (counts[i] > 1 && channels >= 0 && (int64_t)counts[i] != channels) {
            return MR_FAIL(err, MR_E_INVALID, "parameter '%s' has %zu numbers for %lld channels",
                           i ? "std" : "mean", counts[i], (long long)channels);
        }
    }
    return MR_OK;
}

static int describe(struct normalize *o, const struct mr_op_desc *d, struct mr_err *err)
{
    static const int types[] = {MR_DTYPE_UINT8, MR_DTYPE_FP32, MR_DTYPE_FP16, MR_DTYPE_UINT16, 0};
    int64_t dims[MR_MAX_RANK];
    int rc;

    MR_TRY(op_input(d, "image", false, &o->in, err));
    MR_TRY(op_output(d, "image", false, &o->out, err));
    MR_TRY(op_no_more(d, 1, 1, err));
    MR_TRY(op_known_input(d, o->in, 3, err));
    MR_TRY(op_input_types(d, o->in, types, err));
    const struct mr_op_io *in = &d->inputs[o->in];
    int r = in->rank;
    MR_TRY(check_channels(o, in->dims[r - 1], err));
    memcpy(dims, in->dims, (size_t)r * sizeof *dims);
    if (o->is_chw) {
        dims[r - 3] = in->dims[r - 1];
        dims[r - 2] = in->dims[r - 3];
        dims[r - 1] = in->dims[r - 2];
    }
    rc = op_outputs_set(&o->outputs, o->out, o->dtype, r, dims, err);
out:
    return rc;
}

static int create(const struct mr_op_desc *d, struct mr_op_node *node, struct mr_op_signature *out,
                  void **out_op, struct mr_err *err)
{
    struct normalize *o = MR_NEW(struct normalize);
    int rc;

    (void)node;
    o->scale = 1;
    o->dtype = MR_DTYPE_FP32;
    op_outputs_init(&o->outputs, d);
    MR_TRY(parse(o, d, err));
    MR_TRY(describe(o, d, err));
    out->outputs = o->outputs.list;
    *out_op = o;
    return MR_OK;
out:
    destroy(o);
    return rc;
}

/* value * a + b of channel c */
static void channel_line(const struct normalize *o, size_t c, double *a, double *b)
{
    double mean = o->mean_count == 0 ? 0 : o->mean[o->mean_count == 1 ? 0 : c];
    double std = o->std_count == 0 ? 1 : o->std[o->std_count == 1 ? 0 : c];

    *a = o->scale / std;
    *b = -mean / std;
}

/* One channel of one image: pixels `from + i * stride` to `to + i * to_stride`. */
static void run_channel(const struct mr_tensor *in, uint64_t from, uint64_t stride, int dtype,
                        void *out, uint64_t to, uint64_t to_stride, uint64_t n, double a, double b)
{
    if (in->dtype == MR_DTYPE_UINT8 && dtype == MR_DTYPE_FP32) {
        const uint8_t *p = (const uint8_t *)in->data + from;
        float *q = (float *)out + to;
        for (uint64_t i = 0; i < n; i++) {
            q[i * to_stride] = (float)p[i * stride] * (float)a + (float)b;
        }
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        op_store(dtype, out, to + i * to_stride, op_load(in, from + i * stride) * a + b);
    }
}

#define PART 16384u /* pixels between questions whether time is over */

/* Pixels from `at` on of the image whose elements begin at `base`. */
static void run_part(const struct normalize *o, const struct mr_tensor *in, void *out,
                     uint64_t base, uint64_t at, uint64_t pixels, uint64_t channels)
{
    for (uint64_t c = 0; c < channels; c++) {
        double a, b;
        channel_line(o, c, &a, &b);
        run_channel(in, base + at * channels + c, channels, o->dtype, out,
                    base + (o->is_chw ? c * pixels + at : at * channels + c),
                    o->is_chw ? 1 : channels, MR_MIN(PART, pixels - at), a, b);
    }
}

static int run(void *op, struct mr_op_run *run, struct mr_err *err)
{
    const struct normalize *o = op;
    const struct mr_tensor *in = &run->inputs[o->in];
    int r = in->rank;
    uint64_t channels = (uint64_t)in->shape[r - 1];
    uint64_t images = op_product(in->shape, 0, r - 3), pixels = op_product(in->shape, r - 3, r - 1);
    int64_t shape[MR_MAX_RANK];
    void *out;
    int rc;

    MR_TRY(check_channels(o, in->shape[r - 1], err));
    memcpy(shape, in->shape, (size_t)r * sizeof *shape);
    if (o->is_chw) {
        shape[r - 3] = in->shape[r - 1];
        shape[r - 2] = in->shape[r - 3];
        shape[r - 1] = in->shape[r - 2];
    }
    if (!o->is_chw &&
        in->dtype == o->dtype) { /* each element from itself: the input's memory serves */
        MR_TRY(builtin_host->output_in_place(run, o->out, o->in, o->dtype, r, shape, &out, err));
    } else {
        MR_TRY(builtin_host->output(run, o->out, o->dtype, r, shape, 0, &out, err));
    }
    for (uint64_t i = 0; pixels > 0 && channels > 0 && i < images; i++) {
        for (uint64_t at = 0; at < pixels; at += PART) {
            run_part(o, in, out, i * pixels * channels, at, pixels, channels);
            MR_TRY(op_spend(run, MR_MIN(PART, pixels - at) * channels, err));
        }
    }
out:
    return rc;
}

const struct mr_op_kind image_normalize_kind = {.size = sizeof(struct mr_op_kind),
                                                .name = "image.normalize",
                                                .create = create,
                                                .run = run,
                                                .destroy = destroy};
