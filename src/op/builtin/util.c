#include "util.h"

#include <math.h>

#include "codec/json.h"

const struct mr_op_host *builtin_host;

/* ---- parameters ---- */

int op_known(const struct mr_op_desc *d, const char *const *names, struct mr_err *err)
{
    for (uint32_t i = 0; i < d->parameter_count; i++) {
        size_t k = 0;
        while (names[k] && strcmp(names[k], d->parameters[i].key) != 0) {
            k++;
        }
        if (!names[k]) {
            return MR_FAIL(err, MR_E_INVALID, "unknown parameter '%.80s'", d->parameters[i].key);
        }
    }
    return MR_OK;
}

const char *op_text(const struct mr_op_desc *d, const char *key)
{
    for (uint32_t i = 0; i < d->parameter_count; i++) {
        if (strcmp(d->parameters[i].key, key) == 0) {
            return d->parameters[i].value;
        }
    }
    return NULL;
}

int op_need(const struct mr_op_desc *d, const char *key, struct mr_err *err)
{
    return op_text(d, key) ? MR_OK : MR_FAIL(err, MR_E_INVALID, "parameter '%s' is missing", key);
}

int op_int(const struct mr_op_desc *d, const char *key, int64_t min, int64_t max, int64_t *out,
           struct mr_err *err)
{
    const char *text = op_text(d, key);
    int64_t v;

    if (!text) {
        return MR_OK;
    }
    if (!mr_str_to_i64(mr_str_c(text), &v) || v < min || v > max) {
        return MR_FAIL(err, MR_E_INVALID,
                       "parameter '%s' is '%.80s', expected a whole number %lld..%lld", key, text,
                       (long long)min, (long long)max);
    }
    *out = v;
    return MR_OK;
}

int op_bool(const struct mr_op_desc *d, const char *key, bool *out, struct mr_err *err)
{
    const char *text = op_text(d, key);

    if (text && !mr_str_to_bool(mr_str_c(text), out)) {
        return MR_FAIL(err, MR_E_INVALID, "parameter '%s' is '%.80s', expected true or false", key,
                       text);
    }
    return MR_OK;
}

int op_numbers(const struct mr_op_desc *d, const char *key, double out[OP_NUMBERS_MAX],
               size_t *out_count, struct mr_err *err)
{
    const char *text = op_text(d, key);
    mr_str rest = mr_str_c(text);
    mr_str piece;
    size_t n = 0;

    while (text && mr_str_split(&rest, ',', &piece)) {
        if (n == OP_NUMBERS_MAX) {
            return MR_FAIL(err, MR_E_INVALID, "parameter '%s' has more than %d numbers", key,
                           OP_NUMBERS_MAX);
        }
        if (!mr_text_double(mr_str_trim(piece), &out[n]) || !isfinite(out[n])) {
            return MR_FAIL(err, MR_E_INVALID, "parameter '%s': '%.*s' is no number", key,
                           MR_STR_ARG(mr_str_sub(piece, 0, 80)));
        }
        n++;
    }
    *out_count = n;
    return MR_OK;
}

int op_number(const struct mr_op_desc *d, const char *key, double *out, struct mr_err *err)
{
    double list[OP_NUMBERS_MAX];
    size_t n;
    int rc = op_numbers(d, key, list, &n, err);

    if (rc < 0) {
        return rc;
    }
    if (n > 1) {
        return MR_FAIL(err, MR_E_INVALID, "parameter '%s' must be one number", key);
    }
    if (n == 1) {
        *out = list[0];
    }
    return MR_OK;
}

bool op_whole(const struct mr_op_desc *d, const char *key, double v, __int128 *out)
{
    const __int128 most = (__int128)(~(unsigned __int128)0 >> 1);
    const char *text = op_text(d, key);
    mr_str number = mr_str_trim(mr_str_c(text));
    double whole = floor(v);
    uint64_t u;
    int64_t i;

    if (mr_str_to_u64(number, &u)) {
        *out = u;
    } else if (mr_str_to_i64(number, &i)) {
        *out = i;
    } else if (fabs(whole) < 0x1p127) {
        *out = (__int128)whole;
    } else {
        *out = whole < 0 ? -most - 1 : most;
    }
    return whole == v;
}

int op_choice(const struct mr_op_desc *d, const char *key, const char *const *words, int *out,
              struct mr_err *err)
{
    const char *text = op_text(d, key);
    char list[200] = "";

    for (int i = 0; text && words[i]; i++) {
        if (strcmp(text, words[i]) == 0) {
            *out = i;
            return MR_OK;
        }
        strncat(list, i ? ", " : "", sizeof list - strlen(list) - 1);
        strncat(list, words[i], sizeof list - strlen(list) - 1);
    }
    return text ? MR_FAIL(err, MR_E_INVALID, "parameter '%s' is '%.80s', expected one of %s", key,
                          text, list)
                : MR_OK;
}

int op_dtype(const struct mr_op_desc *d, const char *key, int *out, struct mr_err *err)
{
    const char *text = op_text(d, key);
    int dtype = text ? mr_dtype_from_name(mr_str_c(text)) : *out;

    if (text && dtype == MR_DTYPE_INVALID) {
        return MR_FAIL(err, MR_E_INVALID, "parameter '%s' is '%.80s', expected a type such as FP32",
                       key, text);
    }
    *out = dtype;
    return MR_OK;
}

/* ---- inputs and outputs of a node ---- */

static int find(const struct mr_op_io *list, uint32_t count, const char *what, const char *name,
                bool is_optional, uint32_t *out, struct mr_err *err)
{
    *out = UINT32_MAX;
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(list[i].name, name) == 0) {
            *out = i;
            return MR_OK;
        }
    }
    return is_optional ? MR_OK : MR_FAIL(err, MR_E_INVALID, "%s_map has no '%s'", what, name);
}

int op_input(const struct mr_op_desc *d, const char *name, bool is_optional, uint32_t *out,
             struct mr_err *err)
{
    return find(d->inputs, d->input_count, "input", name, is_optional, out, err);
}

int op_output(const struct mr_op_desc *d, const char *name, bool is_optional, uint32_t *out,
              struct mr_err *err)
{
    return find(d->outputs, d->output_count, "output", name, is_optional, out, err);
}

int op_no_more(const struct mr_op_desc *d, uint32_t inputs, uint32_t outputs, struct mr_err *err)
{
    if (d->input_count != inputs) {
        return MR_FAIL(err, MR_E_INVALID, "input_map has %u names, the op knows %u of them",
                       d->input_count, inputs);
    }
    if (d->output_count != outputs) {
        return MR_FAIL(err, MR_E_INVALID, "output_map has %u names, the op knows %u of them",
                       d->output_count, outputs);
    }
    return MR_OK;
}

int op_known_input(const struct mr_op_desc *d, uint32_t input, int min_rank, struct mr_err *err)
{
    const struct mr_op_io *io = &d->inputs[input];

    if (io->dtype == MR_DTYPE_INVALID || io->rank < 0 || (io->rank > 0 && !io->dims)) {
        return MR_FAIL(err, MR_E_INVALID, "type and shape of input '%.80s' must be known",
                       io->name);
    }
    if (io->rank < min_rank) {
        return MR_FAIL(err, MR_E_INVALID, "input '%.80s' has %d dimensions, expected at least %d",
                       io->name, io->rank, min_rank);
    }
    return MR_OK;
}

int op_input_types(const struct mr_op_desc *d, uint32_t input, const int *types, struct mr_err *err)
{
    char list[160] = "";

    for (int i = 0; types[i]; i++) {
        if (types[i] == d->inputs[input].dtype) {
            return MR_OK;
        }
        strncat(list, i ? ", " : "", sizeof list - strlen(list) - 1);
        strncat(list, mr_dtype_name(types[i]), sizeof list - strlen(list) - 1);
    }
    return MR_FAIL(err, MR_E_INVALID, "input '%.80s' is %s, expected %s", d->inputs[input].name,
                   mr_dtype_name(d->inputs[input].dtype), list);
}

void op_outputs_init(struct op_outputs *o, const struct mr_op_desc *d)
{
    o->count = d->output_count;
    o->list = MR_NEW_ARRAY(struct mr_op_io, MR_MAX(o->count, 1));
    o->dims = mr_alloc_array(MR_MAX(o->count, 1), sizeof *o->dims);
    for (uint32_t i = 0; i < o->count; i++) {
        o->list[i] = (struct mr_op_io){.name = d->outputs[i].name, .rank = -1};
    }
}

void op_outputs_fini(struct op_outputs *o)
{
    mr_freep(&o->list);
    mr_freep(&o->dims);
}

int op_outputs_set(struct op_outputs *o, uint32_t index, int dtype, int rank, const int64_t *dims,
                   struct mr_err *err)
{
    if (rank > MR_MAX_RANK) {
        return MR_FAIL(err, MR_E_INVALID,
                       "output '%.80s' would have %d dimensions; at most %d are allowed",
                       o->list[index].name, rank, MR_MAX_RANK);
    }
    for (int i = 0; i < rank; i++) {
        o->dims[index][i] = dims ? dims[i] : -1;
    }
    o->list[index].dtype = dtype;
    o->list[index].rank = rank;
    o->list[index].dims = o->dims[index];
    return MR_OK;
}

/* ---- in run ---- */

uint64_t op_product(const int64_t *shape, int from, int to)
{
    uint64_t n = 1;

    for (int i = from; i < to; i++) {
        n *= (uint64_t)shape[i];
    }
    return n;
}

int op_axis(int64_t axis, int rank, int *out, struct mr_err *err)
{
    if (axis < -rank || axis >= rank) {
        return MR_FAIL(err, MR_E_INVALID, "axis %lld of %d dimensions", (long long)axis, rank);
    }
    *out = (int)(axis < 0 ? axis + rank : axis);
    return MR_OK;
}

int op_bytes_offsets(const struct mr_tensor *t, uint64_t count, uint64_t **out, struct mr_err *err)
{
    mr_bytes rest = {t->data, t->bytes};
    uint64_t *offsets = count < UINT32_MAX ? mr_try_alloc((count + 1) * sizeof *offsets) : NULL;
    mr_str element;

    if (!offsets) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the places of %llu strings",
                       (unsigned long long)count);
    }
    for (uint64_t i = 0; i < count; i++) {
        offsets[i] = t->bytes - rest.len;
        if (!mr_bytes_tensor_next(&rest, &element)) {
            mr_free(offsets);
            return MR_FAIL(err, MR_E_INVALID, "a BYTES tensor with less elements than its shape");
        }
    }
    offsets[count] = t->bytes - rest.len;
    *out = offsets;
    return MR_OK;
}

#define GET(type) (((const type *)t->data)[i])

double op_load(const struct mr_tensor *t, uint64_t i)
{
    switch (t->dtype) {
    case MR_DTYPE_BOOL: return GET(uint8_t) != 0;
    case MR_DTYPE_UINT8: return GET(uint8_t);
    case MR_DTYPE_UINT16: return GET(uint16_t);
    case MR_DTYPE_UINT32: return GET(uint32_t);
    case MR_DTYPE_UINT64: return (double)GET(uint64_t);
    case MR_DTYPE_INT8: return GET(int8_t);
    case MR_DTYPE_INT16: return GET(int16_t);
    case MR_DTYPE_INT32: return GET(int32_t);
    case MR_DTYPE_INT64: return (double)GET(int64_t);
    case MR_DTYPE_FP16: return (double)mr_fp16_to_float(GET(uint16_t));
    case MR_DTYPE_BF16: return (double)mr_bf16_to_float(GET(uint16_t));
    case MR_DTYPE_FP32: return (double)GET(float);
    case MR_DTYPE_FP64: return GET(double);
    default: return 0;
    }
}

__int128 op_load_int(const struct mr_tensor *t, uint64_t i)
{
    switch (t->dtype) {
    case MR_DTYPE_INT64: return GET(int64_t);
    case MR_DTYPE_UINT64: return GET(uint64_t);
    default: return (int64_t)op_load(t, i);
    }
}

/* As a C conversion where that is defined. `max` is one more than the largest value, which is a double exactly. */
static double saturate(double v, double min, double end)
{
    return isnan(v) ? 0 : v < min ? min : v >= end ? nextafter(end, 0) : v;
}

#define PUT(type, v) (((type *)data)[i] = (type)(v))

void op_store(int dtype, void *data, uint64_t i, double v)
{
    switch (dtype) {
    case MR_DTYPE_BOOL: PUT(uint8_t, v != 0); break;
    case MR_DTYPE_UINT8: PUT(uint8_t, saturate(v, 0, 0x1p8)); break;
    case MR_DTYPE_UINT16: PUT(uint16_t, saturate(v, 0, 0x1p16)); break;
    case MR_DTYPE_UINT32: PUT(uint32_t, saturate(v, 0, 0x1p32)); break;
    case MR_DTYPE_UINT64:
        PUT(uint64_t, v >= 0x1p64 ? UINT64_MAX : (uint64_t)saturate(v, 0, 0x1p64));
        break;
    case MR_DTYPE_INT8: PUT(int8_t, saturate(v, -0x1p7, 0x1p7)); break;
    case MR_DTYPE_INT16: PUT(int16_t, saturate(v, -0x1p15, 0x1p15)); break;
    case MR_DTYPE_INT32: PUT(int32_t, saturate(v, -0x1p31, 0x1p31)); break;
    case MR_DTYPE_INT64:
        PUT(int64_t, v >= 0x1p63 ? INT64_MAX : (int64_t)saturate(v, -0x1p63, 0x1p63));
        break;
    case MR_DTYPE_FP16: PUT(uint16_t, mr_fp16_from_double(v)); break;
    case MR_DTYPE_BF16: PUT(uint16_t, mr_bf16_from_double(v)); break;
    case MR_DTYPE_FP32: PUT(float, v); break;
    default: PUT(double, v); break;
    }
}

void op_store_int(int dtype, void *data, uint64_t i, __int128 v)
{
    switch (dtype) {
    case MR_DTYPE_UINT64: PUT(uint64_t, v < 0 ? 0 : MR_MIN(v, (__int128)UINT64_MAX)); break;
    case MR_DTYPE_INT64:
        PUT(int64_t, MR_MAX(MR_MIN(v, (__int128)INT64_MAX), (__int128)INT64_MIN));
        break;
    default: op_store(dtype, data, i, (double)v); break;
    }
}
