/* What is sent for each tensor of a message: the tensor itself, or its top classes.
 *
 * Outputs come from backends, so their data is compared with their shapes here, before a loop walks
 * them: a wrong size must become an error of this request and not a read past the end. Any thread. */
#include "oip_priv.h"

/* A wrong output is the backend's fault, a wrong input the caller's. */
static int view_status(const char *word)
{
    return word[0] == 'i' ? MR_E_INVALID : MR_E_INTERNAL;
}

static int view_mismatch(const struct mr_oip_tensor *t, const char *word, struct mr_err *err)
{
    return MR_FAIL(err, view_status(word), "%s tensor shape does not match size of %s for '%.*s'",
                   word, word, MR_STR_ARG(t->name));
}

static int view_check(const struct mr_oip_tensor *t, const char *word, struct mr_oip_view *view,
                      struct mr_err *err)
{
    const struct mr_tensor *data = &t->tensor;
    if (mr_shape_elements(data->shape, data->rank, &view->elements, NULL) < 0) {
        return MR_FAIL(err, view_status(word), "%s '%.*s' has an invalid shape", word,
                       MR_STR_ARG(t->name));
    }
    if (data->dtype <= MR_DTYPE_INVALID || data->dtype >= MR_DTYPE_COUNT) {
        return MR_FAIL(err, view_status(word), "Invalid data type for %s tensor '%.*s'", word,
                       MR_STR_ARG(t->name));
    }
    if (t->shm.region.ptr) {
        return MR_OK;
    }
    if (data->bytes > 0 && !data->data) {
        return view_mismatch(t, word, err);
    }
    if (data->dtype == MR_DTYPE_BYTES) {
        mr_bytes encoded = {data->data, (size_t)data->bytes};
        if (mr_bytes_tensor_check(encoded, view->elements, NULL) < 0) {
            return view_mismatch(t, word, err);
        }
        return MR_OK;
    }
    size_t size = mr_dtype_size(data->dtype);
    if (view->elements > SIZE_MAX / size || data->bytes != view->elements * size) {
        return view_mismatch(t, word, err);
    }
    return MR_OK;
}

int mr_oip_views_new(const struct mr_oip_tensor *tensors, size_t count, const char *word,
                     struct mr_arena *arena, struct mr_oip_view **out, struct mr_err *err)
{
    struct mr_oip_view *views = MR_ARENA_ARRAY(arena, struct mr_oip_view, MR_MAX(count, 1));
    if (!views) {
        return mr_oip_no_memory(err);
    }
    for (size_t i = 0; i < count; i++) {
        const struct mr_oip_tensor *t = &tensors[i];
        int rc = view_check(t, word, &views[i], err);
        if (rc < 0) {
            return rc;
        }
        views[i].tensor = t->tensor;
        views[i].block = t->block;
        if (t->classification > 0 && !t->shm.region.ptr) {
            rc = mr_oip_classify(t, arena, &views[i].tensor, err);
            if (rc < 0) {
                return rc;
            }
            views[i].block = NULL;
            rc = mr_shape_elements(views[i].tensor.shape, views[i].tensor.rank, &views[i].elements,
                                   err);
            if (rc < 0) {
                return rc;
            }
        }
    }
    *out = views;
    return MR_OK;
}
