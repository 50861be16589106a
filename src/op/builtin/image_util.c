#include "image_util.h"

bool image_spend(void *run, uint64_t units)
{
    return builtin_host->spend(run, units) != 0;
}

int image_target_parse(const struct mr_op_desc *d, bool is_needed, struct image_target *out,
                       struct mr_err *err)
{
    static const char *const methods[] = {"nearest", "bilinear", NULL};
    struct image_target t = {0};
    bool is_antialias = true;
    int method = 1;
    int rc;

    t.is_set = op_text(d, "width") || op_text(d, "height");
    if (is_needed || t.is_set) {
        MR_TRY(op_need(d, "width", err));
        MR_TRY(op_need(d, "height", err));
    }
    MR_TRY(op_int(d, "width", 1, IMAGE_SIDE_MAX, &t.width, err));
    MR_TRY(op_int(d, "height", 1, IMAGE_SIDE_MAX, &t.height, err));
    MR_TRY(op_choice(d, "method", methods, &method, err));
    MR_TRY(op_bool(d, "antialias", &is_antialias, err));
    t.method = method == 0 ? RESAMPLE_NEAREST : is_antialias ? RESAMPLE_AREA : RESAMPLE_BILINEAR;
    *out = t;
out:
    return rc;
}

int image_target_run(const struct image_target *t, struct mr_op_run *run, struct image_size from,
                     size_t channels, bool is_float, const void *in, void *out, struct mr_err *err)
{
    struct resample_axis x = {from.width, (uint32_t)t->width, 0, from.width};
    struct resample_axis y = {from.height, (uint32_t)t->height, 0, from.height};
    struct resample_plan *plan = resample_plan(t->method, &x, &y);
    bool is_ok = plan && resample_run(plan, in, out, channels, is_float, image_spend, run);

    mr_free(plan);
    if (is_ok) {
        return MR_OK;
    }
    return builtin_host->spend(run, 0)
               ? MR_FAIL(err, MR_E_EXHAUSTED, "no memory to resize an image")
               : MR_FAIL(err, MR_E_CANCELLED, "cancelled");
}
