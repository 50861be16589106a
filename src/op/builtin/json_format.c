/* json.format: tensors as JSON texts, objects with a member for each input: one text [1], or one for each row [rows, 1]. */
#include "builtin.h"
#include "util.h"

#include <math.h>
#include <stdio.h>

#include "codec/json.h"

/* A text of more is refused: the parser of whoever reads it has limits too. */
#define TEXT_BYTES_MAX (64u << 20)

struct json_format {
    uint32_t inputs;
    char **keys; /* [inputs] */
    bool by_row, is_scalar;
    struct op_outputs outputs;
};

static void destroy(void *op)
{
    struct json_format *o = op;

    for (uint32_t i = 0; i < o->inputs && o->keys; i++) {
        mr_free(o->keys[i]);
    }
    mr_free(o->keys);
    op_outputs_fini(&o->outputs);
    mr_free(o);
}

/* Parameters are rows, scalar and <input>.key. */
static int parse(struct json_format *o, const struct mr_op_desc *d, struct mr_err *err)
{
    uint32_t known = (op_text(d, "rows") != NULL) + (op_text(d, "scalar") != NULL);
    char name[300];
    int rc;

    MR_TRY(op_bool(d, "rows", &o->by_row, err));
    MR_TRY(op_bool(d, "scalar", &o->is_scalar, err));
    for (uint32_t i = 0; i < d->input_count; i++) {
        snprintf(name, sizeof name, "%.250s.key", d->inputs[i].name);
        const char *key = op_text(d, name);
        known += key != NULL;
        key = key ? key : d->inputs[i].name;
        o->keys[i] = mr_strndup(key, strlen(key));
    }
    if (known != d->parameter_count) {
        return MR_FAIL(err, MR_E_INVALID,
                       "unknown parameter (there are rows, scalar and <input>.key)");
    }
out:
    return rc;
}

static int describe(struct json_format *o, const struct mr_op_desc *d, struct mr_err *err)
{
    int64_t dims[2] = {1, 1};
    uint32_t out;
    int rc;

    MR_TRY(op_output(d, "json", false, &out, err));
    if (d->output_count != 1 || d->input_count == 0) {
        return MR_FAIL(err, MR_E_INVALID, "needs inputs and the output 'json'");
    }
    MR_TRY(parse(o, d, err));
    for (uint32_t i = 0; i < d->input_count; i++) {
        MR_TRY(op_known_input(d, i, o->by_row ? 1 : 0, err));
    }
    if (o->by_row) {
        dims[0] = d->inputs[0].dims[0];
    }
    rc = op_outputs_set(&o->outputs, out, MR_DTYPE_BYTES, o->by_row ? 2 : 1, dims, err);
out:
    return rc;
}

static int create(const struct mr_op_desc *d, struct mr_op_node *node, struct mr_op_signature *out,
                  void **out_op, struct mr_err *err)
{
    struct json_format *o = MR_NEW(struct json_format);

    (void)node;
    o->inputs = d->input_count;
    o->keys = MR_NEW_ARRAY(char *, MR_MAX(d->input_count, 1));
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

/* JSON has no NaN and no infinities: null. */
static void put_number(struct mr_buf *b, const struct mr_tensor *t, uint64_t i)
{
    switch (t->dtype) {
    case MR_DTYPE_BOOL: mr_buf_c(b, ((const uint8_t *)t->data)[i] ? "true" : "false"); return;
    case MR_DTYPE_UINT64: mr_buf_u64(b, ((const uint64_t *)t->data)[i]); return;
    case MR_DTYPE_FP64:
    case MR_DTYPE_FP32:
    case MR_DTYPE_FP16:
    case MR_DTYPE_BF16: break;
    default: mr_buf_i64(b, (int64_t)op_load_int(t, i)); return;
    }
    double v = op_load(t, i);
    if (!isfinite(v)) {
        MR_BUF_LIT(b, "null");
    } else if (t->dtype == MR_DTYPE_FP64) {
        mr_json_put_double(b, v);
    } else {
        mr_json_put_float(b, (float)v);
    }
}

/* Where the elements of an input go on. */
struct cursor {
    const struct mr_tensor *t;
    uint64_t element;
    mr_bytes rest; /* of BYTES */
};

static void put_element(struct mr_buf *b, struct cursor *c)
{
    mr_str s;

    if (c->t->dtype != MR_DTYPE_BYTES) {
        put_number(b, c->t, c->element);
    } else if (mr_bytes_tensor_next(&c->rest, &s)) {
        mr_json_put_string(b, s);
    }
    c->element++;
}

static int too_large(struct mr_err *err)
{
    return MR_FAIL(err, MR_E_TOO_LARGE, "a JSON text of more than %u bytes", TEXT_BYTES_MAX);
}

/* Elements [.., dim, ..] from dimension `dim` on as nested arrays; the depth is the rank, 32 at most. */
static int put_nested(struct mr_op_run *run, struct mr_buf *b, struct cursor *c, int dim,
                      struct mr_err *err)
{
    if (dim >= c->t->rank) {
        put_element(b, c);
        return b->failed ? too_large(err) : op_spend(run, 16, err);
    }
    mr_buf_char(b, '[');
    for (int64_t i = 0; i < c->t->shape[dim]; i++) {
        if (i > 0) {
            mr_buf_char(b, ',');
        }
        int rc = put_nested(run, b, c, dim + 1, err);
        if (rc < 0) {
            return rc;
        }
    }
    mr_buf_char(b, ']');
    return b->failed ? too_large(err) : op_spend(run, 1, err);
}

static int put_member(const struct json_format *o, struct mr_op_run *run, struct mr_buf *b,
                      struct cursor *c, struct mr_err *err)
{
    int first = o->by_row ? 1 : 0;

    if (c->t->dtype == MR_DTYPE_INVALID) {
        MR_BUF_LIT(b, "null");
        return MR_OK;
    }
    if (o->is_scalar && op_product(c->t->shape, first, c->t->rank) == 1) {
        put_element(b, c);
        return MR_OK;
    }
    return put_nested(run, b, c, first, err);
}

/* Texts one after the other, each with its length before it. */
static int put_texts(const struct json_format *o, struct mr_op_run *run, uint64_t texts,
                     struct cursor *cursors, struct mr_buf *b, struct mr_err *err)
{
    for (uint64_t row = 0; row < texts; row++) {
        size_t begin = b->len;
        mr_buf_append(b, "\0\0\0\0{", 5);
        for (uint32_t i = 0; i < o->inputs; i++) {
            if (i > 0) {
                mr_buf_char(b, ',');
            }
            mr_json_put_string(b, mr_str_c(o->keys[i]));
            mr_buf_char(b, ':');
            int rc = put_member(o, run, b, &cursors[i], err);
            if (rc < 0) {
                return rc;
            }
        }
        mr_buf_char(b, '}');
        if (b->failed) {
            return MR_FAIL(err, MR_E_TOO_LARGE, "JSON texts of more than %u bytes", TEXT_BYTES_MAX);
        }
        uint32_t len = (uint32_t)(b->len - begin - 4);
        memcpy(b->ptr + begin, &len, 4);
    }
    return MR_OK;
}

static int row_count(const struct json_format *o, const struct mr_op_run *run, int64_t *out,
                     struct mr_err *err)
{
    *out = o->by_row ? -1 : 1;
    for (uint32_t i = 0; i < o->inputs && o->by_row; i++) {
        const struct mr_tensor *t = &run->inputs[i];
        if (t->dtype == MR_DTYPE_INVALID) {
            continue;
        }
        if (*out >= 0 && t->shape[0] != *out) {
            return MR_FAIL(err, MR_E_INVALID, "input %u has %lld rows, others %lld", i,
                           (long long)t->shape[0], (long long)*out);
        }
        *out = t->shape[0];
    }
    *out = *out < 0 ? 1 : *out;
    return MR_OK;
}

static int run(void *op, struct mr_op_run *run, struct mr_err *err)
{
    const struct json_format *o = op;
    struct cursor *cursors =
        mr_alloc_array(o->inputs, sizeof *cursors); /* as many as the node has inputs */
    struct mr_buf b;
    int64_t shape[2] = {1, 1};
    void *to;
    int rc;

    mr_buf_init(&b, TEXT_BYTES_MAX);
    for (uint32_t i = 0; i < o->inputs; i++) {
        cursors[i] = (struct cursor){.t = &run->inputs[i],
                                     .rest = {run->inputs[i].data, run->inputs[i].bytes}};
    }
    MR_TRY(row_count(o, run, &shape[0], err));
    MR_TRY(put_texts(o, run, (uint64_t)shape[0], cursors, &b, err));
    MR_TRY(builtin_host->output(run, 0, MR_DTYPE_BYTES, o->by_row ? 2 : 1, shape, b.len, &to, err));
    if (b.len > 0) {
        memcpy(to, b.ptr, b.len);
    }
out:
    mr_buf_fini(&b);
    mr_free(cursors);
    return rc;
}

const struct mr_op_kind json_format_kind = {.size = sizeof(struct mr_op_kind),
                                            .name = "json.format",
                                            .create = create,
                                            .run = run,
                                            .destroy = destroy};
