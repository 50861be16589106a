/* json.parse: values of JSON texts as tensors, each by its path.
 *
 * For each output `name` the parameters name.path, name.dtype (FP32), name.dims (1) and name.default say what it is. A text is read
 * twice for each output: once for the number of values, then into their place. */
#include "builtin.h"
#include "json_path.h"
#include "util.h"

#include <stdio.h>

struct value {
    struct json_path path;
    int dtype;
    int rank;
    int64_t dims[MR_MAX_RANK];
    int free_dim;         /* the one that is -1; -1: none */
    uint64_t fixed;       /* product of the others */
    const char *fallback; /* JSON; NULL: the value must be there */
    char *fallback_text;
};

struct json_parse {
    uint32_t in;
    int lead; /* the input's dimensions that the outputs begin with */
    uint32_t count;
    struct value *values;
    struct op_outputs outputs;
};

static void destroy(void *op)
{
    struct json_parse *o = op;

    for (uint32_t i = 0; i < o->count; i++) {
        json_path_fini(&o->values[i].path);
        mr_free(o->values[i].fallback_text);
    }
    mr_free(o->values);
    op_outputs_fini(&o->outputs);
    mr_free(o);
}

/* ---- a value in a text ---- */

/* Where it is, and how much. */
struct place {
    struct mr_json at; /* before the value */
    uint64_t count, bytes;
    struct mr_arena arena;
};

/* The text of a leaf of a BYTES output: a string, or the JSON of anything else. */
static int leaf_text(struct mr_json *j, mr_str *out)
{
    return mr_json_peek(j) == MR_JSON_STRING ? mr_json_string(j, out) : mr_json_skip(j, out);
}

static int count_leaf(struct place *p, const struct value *v, struct mr_json *j)
{
    mr_str text;
    int rc = v->dtype == MR_DTYPE_BYTES ? leaf_text(j, &text) : mr_json_skip(j, NULL);

    if (rc == MR_OK) {
        p->count++;
        p->bytes += v->dtype == MR_DTYPE_BYTES ? 4 + text.len : 0;
    }
    return rc;
}

static int count_leaves(struct place *p, const struct value *v)
{
    struct mr_json j = p->at;
    int level = 0;

    if (mr_json_peek(&j) != MR_JSON_ARRAY) {
        return count_leaf(p, v, &j);
    }
    while (mr_json_next_leaf(&j, &level)) {
        if (count_leaf(p, v, &j) < 0) {
            break;
        }
    }
    return j.status;
}

/* Whether there is a value, checking the whole text: what follows it may be broken, too. */
static int place_find(struct place *p, const struct value *v, mr_str text, bool *out_found,
                      struct mr_err *err)
{
    struct mr_json whole;
    int rc;

    mr_json_init(&whole, text, &p->arena, 0, err);
    MR_TRY(mr_json_skip(&whole, NULL));
    MR_TRY(mr_json_finish(&whole));
    mr_json_init(&p->at, text, &p->arena, 0, err);
    rc = json_path_seek(&v->path, &p->at, out_found);
out:
    return rc;
}

static int place_open(struct place *p, const struct value *v, mr_str text, struct mr_err *err)
{
    bool is_found;
    int rc;

    p->count = p->bytes = 0;
    mr_arena_init(&p->arena, 0, 2 * (text.len + mr_str_c(v->fallback).len) + 65536);
    MR_TRY(place_find(p, v, text, &is_found, err));
    if (!is_found) {
        if (!v->fallback) {
            return MR_FAIL(err, MR_E_INVALID, "there is no '%.*s' in the JSON",
                           MR_STR_ARG(mr_str_sub(v->path.text, 0, 200)));
        }
        mr_json_init(&p->at, mr_str_c(v->fallback), &p->arena, 0, err);
    }
    rc = count_leaves(p, v);
out:
    return rc;
}

static void place_close(struct place *p)
{
    mr_arena_fini(&p->arena);
}

static enum mr_json_fill fill_of(int dtype)
{
    switch (dtype) {
    case MR_DTYPE_BOOL: return MR_JSON_FILL_BOOL;
    case MR_DTYPE_UINT8: return MR_JSON_FILL_U8;
    case MR_DTYPE_UINT16: return MR_JSON_FILL_U16;
    case MR_DTYPE_UINT32: return MR_JSON_FILL_U32;
    case MR_DTYPE_UINT64: return MR_JSON_FILL_U64;
    case MR_DTYPE_INT8: return MR_JSON_FILL_I8;
    case MR_DTYPE_INT16: return MR_JSON_FILL_I16;
    case MR_DTYPE_INT32: return MR_JSON_FILL_I32;
    case MR_DTYPE_INT64: return MR_JSON_FILL_I64;
    case MR_DTYPE_FP64: return MR_JSON_FILL_F64;
    default: return MR_JSON_FILL_F32;
    }
}

static int fill_strings(struct mr_json *j, char *to)
{
    bool is_array = mr_json_peek(j) == MR_JSON_ARRAY;
    int level = 0;
    mr_str text;

    while (is_array ? mr_json_next_leaf(j, &level) : level++ == 0) {
        if (leaf_text(j, &text) < 0) {
            break;
        }
        uint32_t len = (uint32_t)text.len;
        memcpy(to, &len, 4);
        memcpy(to + 4, text.ptr, text.len);
        to += 4 + text.len;
    }
    return j->status;
}

/* A number or bool alone is read as an array of one: the text of the value in brackets. */
static int fill_scalar(struct mr_json *j, enum mr_json_fill kind, void *to, struct mr_arena *arena)
{
    struct mr_json one;
    uint64_t count;
    mr_str text;
    int rc = mr_json_skip(j, &text);

    if (rc < 0) {
        return rc;
    }
    char *array = mr_arena_try(arena, text.len + 2, 1);
    if (!array) {
        return MR_FAIL(j->err, MR_E_NOMEM, "no memory for a number");
    }
    array[0] = '[';
    memcpy(array + 1, text.ptr, text.len);
    array[text.len + 1] = ']';
    mr_json_init(&one, mr_str_n(array, text.len + 2), arena, 0, j->err);
    return mr_json_fill(&one, kind, to, 1, &count);
}

static int place_fill(struct place *p, const struct value *v, void *to)
{
    struct mr_json j = p->at;
    uint64_t count;

    if (v->dtype == MR_DTYPE_BYTES) {
        return fill_strings(&j, to);
    }
    if (mr_json_peek(&j) != MR_JSON_ARRAY) {
        return fill_scalar(&j, fill_of(v->dtype), to, &p->arena);
    }
    return mr_json_fill(&j, fill_of(v->dtype), to, p->count, &count);
}

/* The dims of a value of `count` elements. */
static int settle_dims(const struct value *v, uint64_t count, int64_t *dims, struct mr_err *err)
{
    memcpy(dims, v->dims, (size_t)v->rank * sizeof *dims);
    if (v->free_dim >= 0 && count % v->fixed == 0) {
        dims[v->free_dim] = (int64_t)(count / v->fixed);
        return MR_OK;
    }
    if (v->free_dim < 0 && count == v->fixed) {
        return MR_OK;
    }
    char text[128];
    return MR_FAIL(err, MR_E_INVALID, "'%.*s' has %llu elements, which %s does not",
                   MR_STR_ARG(mr_str_sub(v->path.text, 0, 200)), (unsigned long long)count,
                   mr_shape_text(v->dims, v->rank, text, sizeof text));
}

/* ---- at load ---- */

/* A default is read as a request that needs it reads it, and is one value to its end. */
static int check_default(const struct value *v, struct mr_err *err)
{
    int64_t dims[MR_MAX_RANK];
    struct mr_json whole;
    void *data = NULL;
    struct place p;
    int rc;

    MR_TRY(place_open(&p, v, MR_STR("null"), err));
    whole = p.at;
    MR_TRY(mr_json_skip(&whole, NULL));
    MR_TRY(mr_json_finish(&whole));
    MR_TRY(settle_dims(v, p.count, dims, err));
    data = mr_try_alloc(1 + p.bytes + p.count * mr_dtype_size(v->dtype));
    rc = data ? place_fill(&p, v, data) : MR_FAIL(err, MR_E_NOMEM, "no memory for a default");
out:
    place_close(&p);
    mr_free(data);
    return rc;
}

/* Parameters are "<output>.<word>". */
static int check_parameters(const struct mr_op_desc *d, struct mr_err *err)
{
    static const char *const words[] = {".path", ".dtype", ".dims", ".default"};

    for (uint32_t i = 0; i < d->parameter_count; i++) {
        mr_str key = mr_str_c(d->parameters[i].key);
        bool is_known = false;
        for (uint32_t k = 0; k < d->output_count * 4 && !is_known; k++) {
            mr_str name = mr_str_c(d->outputs[k / 4].name);
            is_known = mr_str_starts(key, name) &&
                       mr_str_eq_c(mr_str_sub(key, name.len, key.len), words[k % 4]);
        }
        if (!is_known) {
            return MR_FAIL(
                err, MR_E_INVALID,
                "unknown parameter '%.80s' (there are <output>.path, .dtype, .dims, .default)",
                d->parameters[i].key);
        }
    }
    return MR_OK;
}

static const char *word_of(const struct mr_op_desc *d, uint32_t output, const char *word,
                           char key[300])
{
    snprintf(key, 300, "%.250s.%s", d->outputs[output].name, word);
    return op_text(d, key);
}

static int parse_dims(struct value *v, const double *dims, size_t count, struct mr_err *err)
{
    v->rank = (int)count;
    v->free_dim = -1;
    v->fixed = 1;
    for (int i = 0; i < v->rank; i++) {
        bool is_free = dims[i] == -1;
        if (!is_free && !(dims[i] >= 1 && dims[i] <= 1e9 && (double)(int64_t)dims[i] == dims[i])) {
            return MR_FAIL(err, MR_E_INVALID, "dims must be whole numbers from 1 on, or -1");
        }
        if (is_free && v->free_dim >= 0) {
            return MR_FAIL(err, MR_E_INVALID, "only one of dims may be -1");
        }
        v->dims[i] = (int64_t)dims[i];
        v->free_dim = is_free ? i : v->free_dim;
        if (!is_free && (__builtin_mul_overflow(v->fixed, (uint64_t)dims[i], &v->fixed) ||
                         v->fixed > INT32_MAX)) {
            return MR_FAIL(err, MR_E_INVALID, "dims of too many elements");
        }
    }
    return MR_OK;
}

static int parse_value(struct value *v, const struct mr_op_desc *d, uint32_t output,
                       struct mr_err *err)
{
    double dims[OP_NUMBERS_MAX] = {1};
    size_t count = 0;
    char key[300];
    const char *path = word_of(d, output, "path", key);
    const char *fallback = word_of(d, output, "default", key);
    int rc;

    v->dtype = MR_DTYPE_FP32;
    if (fallback) {
        v->fallback = v->fallback_text = mr_strndup(fallback, strlen(fallback));
    }
    word_of(d, output, "dtype", key);
    MR_TRY(op_dtype(d, key, &v->dtype, err));
    word_of(d, output, "dims", key);
    MR_TRY(op_numbers(d, key, dims, &count, err));
    if (count > MR_MAX_RANK) {
        return MR_FAIL(err, MR_E_INVALID, "parameter '%.80s' has %zu dimensions", key, count);
    }
    rc = parse_dims(v, dims, count ? count : 1, err);
    if (rc < 0) {
        return MR_WRAP(err, rc, "parameter '%.80s'", key);
    }
    if (v->dtype == MR_DTYPE_FP16 || v->dtype == MR_DTYPE_BF16) {
        return MR_FAIL(err, MR_E_INVALID,
                       "output '%.80s' cannot be %s; take FP32 and a cast after it",
                       d->outputs[output].name, mr_dtype_name(v->dtype));
    }
    MR_TRY(
        json_path_parse(&v->path, path ? mr_str_c(path) : mr_str_c(d->outputs[output].name), err));
    rc = fallback ? check_default(v, err) : MR_OK;
    if (rc < 0) {
        word_of(d, output, "default", key);
        return MR_WRAP(err, rc, "parameter '%.80s'", key);
    }
out:
    return rc;
}

static int describe(struct json_parse *o, const struct mr_op_desc *d, struct mr_err *err)
{
    static const int bytes[] = {MR_DTYPE_BYTES, 0};
    int64_t dims[2 * MR_MAX_RANK];
    int rc;

    MR_TRY(op_input(d, "json", false, &o->in, err));
    MR_TRY(op_no_more(d, 1, d->output_count, err));
    MR_TRY(op_known_input(d, o->in, 0, err));
    MR_TRY(op_input_types(d, o->in, bytes, err));
    MR_TRY(check_parameters(d, err));
    const struct mr_op_io *in = &d->inputs[o->in];
    o->lead = in->rank - (in->rank > 0 && in->dims[in->rank - 1] == 1);
    for (uint32_t i = 0; i < o->count; i++) {
        struct value *v = &o->values[i];
        MR_TRY(parse_value(v, d, i, err));
        memcpy(dims, in->dims, (size_t)o->lead * sizeof *dims);
        memcpy(dims + o->lead, v->dims, (size_t)v->rank * sizeof *dims);
        MR_TRY(op_outputs_set(&o->outputs, i, v->dtype, o->lead + v->rank, dims, err));
    }
out:
    return rc;
}

static int create(const struct mr_op_desc *d, struct mr_op_node *node, struct mr_op_signature *out,
                  void **out_op, struct mr_err *err)
{
    struct json_parse *o = MR_NEW(struct json_parse);

    (void)node;
    o->count = d->output_count;
    o->values = MR_NEW_ARRAY(struct value, MR_MAX(o->count, 1));
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

/* ---- in run ---- */

static int next_text(mr_bytes *io_rest, uint64_t i, mr_str *out, struct mr_err *err)
{
    return mr_bytes_tensor_next(io_rest, out)
               ? MR_OK
               : MR_FAIL(err, MR_E_INVALID, "text %llu is missing", (unsigned long long)i);
}

/* Dims and, of BYTES, the size of a value over all texts. */
static int measure(const struct json_parse *o, const struct value *v, const struct mr_tensor *in,
                   int64_t *shape, uint64_t *out_bytes, struct mr_err *err)
{
    uint64_t texts = op_product(in->shape, 0, in->rank);
    mr_bytes rest = {in->data, in->bytes};
    int64_t dims[MR_MAX_RANK];
    struct place p;
    mr_str text;

    *out_bytes = 0;
    memcpy(shape, in->shape, (size_t)o->lead * sizeof *shape);
    int64_t *own = shape + o->lead;
    memcpy(own, v->dims, (size_t)v->rank * sizeof *own);
    for (uint64_t i = 0; i < texts; i++) {
        int rc = next_text(&rest, i, &text, err);
        if (rc < 0) {
            return rc;
        }
        rc = place_open(&p, v, text, err);
        rc = rc < 0 ? rc : settle_dims(v, p.count, i == 0 ? own : dims, err);
        *out_bytes += p.bytes;
        place_close(&p);
        if (rc == MR_OK && i > 0 && memcmp(dims, own, (size_t)v->rank * sizeof *own) != 0) {
            rc = MR_FAIL(err, MR_E_INVALID, "'%.*s' has another number of elements than in text 0",
                         MR_STR_ARG(mr_str_sub(v->path.text, 0, 200)));
        }
        if (rc < 0) {
            return texts > 1 ? MR_WRAP(err, rc, "text %llu", (unsigned long long)i) : rc;
        }
    }
    if (texts == 0 && v->free_dim >= 0) {
        own[v->free_dim] = 0;
    }
    return MR_OK;
}

static int fill(const struct value *v, const struct mr_tensor *in, char *to, struct mr_err *err)
{
    uint64_t texts = op_product(in->shape, 0, in->rank);
    mr_bytes rest = {in->data, in->bytes};
    struct place p;
    mr_str text;

    for (uint64_t i = 0; i < texts; i++) {
        int rc = next_text(&rest, i, &text, err);
        if (rc < 0) {
            return rc;
        }
        rc = place_open(&p, v, text, err);
        rc = rc < 0 ? rc : place_fill(&p, v, to);
        to += v->dtype == MR_DTYPE_BYTES ? p.bytes : p.count * mr_dtype_size(v->dtype);
        place_close(&p);
        if (rc < 0) {
            return MR_WRAP(err, rc, "'%.*s'", MR_STR_ARG(mr_str_sub(v->path.text, 0, 200)));
        }
    }
    return MR_OK;
}

static int run(void *op, struct mr_op_run *run, struct mr_err *err)
{
    const struct json_parse *o = op;
    const struct mr_tensor *in = &run->inputs[o->in];
    int64_t shape[2 * MR_MAX_RANK];
    uint64_t bytes;
    void *to;
    int rc = MR_OK;

    for (uint32_t i = 0; i < o->count; i++) {
        const struct value *v = &o->values[i];
        if (!op_wants(run, i)) {
            continue;
        }
        MR_TRY(measure(o, v, in, shape, &bytes, err));
        MR_TRY(builtin_host->output(run, i, v->dtype, o->lead + v->rank, shape, bytes, &to, err));
        MR_TRY(fill(v, in, to, err));
        MR_TRY(op_spend(run, in->bytes, err));
    }
out:
    return rc;
}

const struct mr_op_kind json_parse_kind = {.size = sizeof(struct mr_op_kind),
                                           .name = "json.parse",
                                           .create = create,
                                           .run = run,
                                           .destroy = destroy};
