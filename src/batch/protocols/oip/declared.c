#include "declared.h"

#include "tensor/tensor.h"

/* "-1,64]" */
static bool dims_read(mr_str text, struct mr_oip_io *out)
{
    if (!mr_str_ends(text, MR_STR("]"))) {
        return false;
    }
    text.len--;
    while (out->rank < MR_MAX_RANK) {
        const char *comma = memchr(text.ptr, ',', text.len);
        const size_t n = comma ? (size_t)(comma - text.ptr) : text.len;
        int64_t *dim = &out->shape[out->rank++];
        if (!mr_str_to_i64(mr_str_trim(mr_str_sub(text, 0, n)), dim) || *dim < -1) {
            return false;
        }
        if (!comma) {
            return true;
        }
        text = mr_str_sub(text, n + 1, SIZE_MAX);
    }
    return false;
}

/* "NAME=TYPE[DIMS]" */
static int io_read(const char *text, struct mr_oip_io *out, struct mr_err *err)
{
    const char *equals = strchr(text, '=');
    const char *bracket = equals ? strchr(equals, '[') : NULL;

    *out = (struct mr_oip_io){0};
    if (bracket && equals > text) {
        out->name = mr_str_n(text, (size_t)(equals - text));
        out->dtype = mr_dtype_from_name(mr_str_n(equals + 1, (size_t)(bracket - equals) - 1));
    }
    if (out->dtype == MR_DTYPE_INVALID || !dims_read(mr_str_c(bracket + 1), out)) {
        return MR_FAIL(err, MR_E_INVALID,
                       "'%s' is no tensor: expected NAME=TYPE[DIMS], such as x=FP32[-1,64], with 1 "
                       "to %d dimensions",
                       text, MR_MAX_RANK);
    }
    return MR_OK;
}

static int ios_read(const char *const *texts, size_t count, struct mr_arena *arena,
                    struct mr_oip_io **out, size_t *out_count, struct mr_err *err)
{
    struct mr_oip_io *ios = MR_ARENA_ARRAY(arena, struct mr_oip_io, count + 1);
    int rc = ios ? MR_OK : MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the model's metadata");

    for (size_t i = 0; i < count && rc == MR_OK; i++) {
        rc = io_read(texts[i], &ios[i], err);
        for (size_t k = 0; k < i && rc == MR_OK; k++) {
            if (mr_str_eq(ios[k].name, ios[i].name)) {
                rc = MR_FAIL(err, MR_E_INVALID, "tensor '%.*s' is declared twice",
                             MR_STR_ARG(ios[i].name));
            }
        }
    }
    if (rc == MR_OK) {
        *out = ios;
        *out_count = count;
    }
    return rc;
}

int declared_fill(const struct mr_batch_options *o, struct mr_arena *arena,
                  struct mr_oip_metadata *m, struct mr_err *err)
{
    int rc = MR_OK;

    if (m->input_count == 0) {
        rc = ios_read(o->model.inputs, o->model.input_count, arena, &m->inputs, &m->input_count,
                      err);
    }
    if (rc == MR_OK && m->output_count == 0) {
        rc = ios_read(o->model.outputs, o->model.output_count, arena, &m->outputs, &m->output_count,
                      err);
    }
    return rc;
}
