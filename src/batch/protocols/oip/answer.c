/* From answers to rows.
 *
 * An answer is believed only if it is what the model declared: nothing that a host sends may shift a row or put rubbish
 * into the table. Then its tensors are the columns: a tensor of numbers is used where the network put it. */
#include "answer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "bind.h"
#include "number.h"
#include "tensor/tensor.h"

struct output {
    const struct mr_oip_io *io;
    int first_dim; /* after that of the batch */
    bool is_scalar;
};

/* Columns that no table has to have: where a row is. */
enum { ROW_FILE = -1, ROW_NUMBER = -2 };

struct batch_outputs {
    struct mr_schema schema;
    int *carried; /* columns of the input table, ROW_FILE or ROW_NUMBER */
    size_t carried_count;
    struct output *outputs;
    size_t output_count;
    bool has_error; /* the last column of the schema */
    bool is_batched;
    bool allows_nan;
};

/* ---- schema ---- */

static void output_field(const struct output *o, int d, struct mr_field *f)
{
    const struct mr_oip_io *io = o->io;

    f->is_nullable = false;
    if (o->is_scalar || d == io->rank) {
        f->type = io->dtype == MR_DTYPE_BF16 ? MR_COLUMN_F32 : batch_type_of(io->dtype);
        return;
    }
    f->type = io->shape[d] < 0 ? MR_COLUMN_LIST : MR_COLUMN_FIXED_LIST;
    f->width = io->shape[d] < 0 ? 0 : (uint64_t)io->shape[d];
    f->item = MR_NEW(struct mr_field);
    f->item->name = mr_strndup("element", 7);
    output_field(o, d + 1, f->item);
}

static int output_add(struct batch_outputs *b, const struct mr_oip_io *io, struct mr_err *err)
{
    struct output *o = &b->outputs[b->output_count];
    struct mr_field f = {0};

    *o = (struct output){io, b->is_batched, true};
    for (int d = o->first_dim; d < io->rank; d++) {
        o->is_scalar = o->is_scalar && io->shape[d] == 1;
    }
    if (io->dtype == MR_DTYPE_INVALID || io->rank - o->first_dim > MR_FIELD_DEPTH - 1) {
        return MR_FAIL(err, MR_E_UNSUPPORTED,
                       "output '%.*s' has a type that is not known here, or too many dimensions",
                       (int)io->name.len, io->name.ptr);
    }
    if (mr_schema_find(&b->schema, io->name) >= 0) {
        return MR_FAIL(err, MR_E_INVALID, "the output table would have two columns '%.*s'",
                       (int)io->name.len, io->name.ptr);
    }
    f.name = mr_strndup(io->name.ptr, io->name.len);
    output_field(o, o->first_dim, &f);
    mr_schema_add(&b->schema, &f);
    mr_field_fini(&f);
    b->output_count++;
    return MR_OK;
}

static char place_file[] = "filename";
static char place_number[] = "file_row_number";
static const struct mr_field place[] = {{.name = place_file, .type = MR_COLUMN_STRING},
                                        {.name = place_number, .type = MR_COLUMN_I64}};

bool batch_outputs_has_place(const char *name)
{
    return strcmp(name, place_file) == 0 || strcmp(name, place_number) == 0;
}

/* What a kept column is; NULL: there is none of that name. */
static const struct mr_field *carried_find(const struct mr_schema *table, const char *name,
                                           int *out_column)
{
    *out_column = mr_schema_find(table, mr_str_c(name));
    if (*out_column >= 0) {
        return &table->fields[*out_column];
    }
    for (int i = 0; i < 2; i++) {
        if (strcmp(name, place[i].name) == 0) {
            *out_column = i == 0 ? ROW_FILE : ROW_NUMBER;
            return &place[i];
        }
    }
    return NULL;
}

static int carried_add(struct batch_outputs *b, const struct mr_schema *table,
                       const struct mr_schema *columns, const char *name, struct mr_err *err)
{
    int column;
    const struct mr_field *f = carried_find(table, name, &column);

    if (!f) {
        char hint[300];
        return MR_FAIL(err, MR_E_INVALID,
                       "column '%s' is to be kept, and the table has none of that name: %s", name,
                       mr_schema_hint(columns ? columns : table, hint, sizeof hint));
    }
    if (mr_schema_find(&b->schema, mr_str_c(name)) >= 0) {
        return MR_FAIL(err, MR_E_INVALID, "column '%s' is to be kept twice", name);
    }
    mr_schema_add(&b->schema, f);
    b->carried[b->carried_count++] = column;
    return MR_OK;
}

static int error_add(struct batch_outputs *b, const char *name, struct mr_err *err)
{
    if (mr_schema_find(&b->schema, mr_str_c(name)) >= 0) {
        return MR_FAIL(err, MR_E_INVALID, "the output table would have two columns '%s'", name);
    }
    mr_schema_add(&b->schema, &(struct mr_field){.name = (char *)(uintptr_t)name,
                                                 .type = MR_COLUMN_STRING,
                                                 .is_nullable = true});
    b->has_error = true;
    return MR_OK;
}

static const struct mr_oip_io *output_find(const struct mr_oip_metadata *m, const char *name)
{
    for (size_t i = 0; i < m->output_count; i++) {
        if (mr_str_eq_c(m->outputs[i].name, name)) {
            return &m->outputs[i];
        }
    }
    return NULL;
}

int batch_outputs_new(struct batch_outputs **out, const struct mr_oip_metadata *m,
                      const struct mr_schema *table, const struct batch_outputs_options *options,
                      struct mr_err *err)
{
    struct batch_outputs *b = MR_NEW(struct batch_outputs);
    const size_t count = options->output_count ? options->output_count : m->output_count;
    int rc = MR_OK;

    b->is_batched = batch_is_batched(m);
    b->allows_nan = options->allows_nan;
    b->carried = MR_NEW_ARRAY(int, options->carried_count + 1);
    b->outputs = MR_NEW_ARRAY(struct output, count + 1);
    for (size_t i = 0; i < options->carried_count && rc == MR_OK; i++) {
        rc = carried_add(b, table, options->columns, options->carried[i], err);
    }
    for (size_t i = 0; i < count && rc == MR_OK; i++) {
        const struct mr_oip_io *io =
            options->output_count ? output_find(m, options->outputs[i]) : &m->outputs[i];
        rc = io ? output_add(b, io, err)
                : MR_FAIL(err, MR_E_INVALID, "the model has no output '%s'", options->outputs[i]);
    }
    if (rc == MR_OK && options->error) {
        rc = error_add(b, options->error, err);
    }
    if (rc < 0) {
        batch_outputs_free(&b);
        return rc;
    }
    *out = b;
    return MR_OK;
}

static int column_add(struct batch_outputs *b, const struct mr_field *f, struct mr_err *err)
{
    if (mr_schema_find(&b->schema, mr_str_c(f->name)) >= 0) {
        return MR_FAIL(err, MR_E_INVALID, "the output table would have two columns '%s'", f->name);
    }
    mr_schema_add(&b->schema, f);
    return MR_OK;
}

int batch_outputs_of(struct batch_outputs **out, const struct mr_schema *columns,
                     const struct mr_schema *table, const struct batch_outputs_options *options,
                     struct mr_err *err)
{
    struct batch_outputs *b = MR_NEW(struct batch_outputs);
    int rc = MR_OK;

    b->carried = MR_NEW_ARRAY(int, options->carried_count + 1);
    for (size_t i = 0; i < options->carried_count && rc == MR_OK; i++) {
        rc = carried_add(b, table, options->columns, options->carried[i], err);
    }
    for (size_t i = 0; i < columns->count && rc == MR_OK; i++) {
        rc = column_add(b, &columns->fields[i], err);
    }
    rc = rc == MR_OK && options->error ? error_add(b, options->error, err) : rc;
    if (rc < 0) {
        batch_outputs_free(&b);
        return rc;
    }
    *out = b;
    return MR_OK;
}

void batch_outputs_free(struct batch_outputs **outputs)
{
    struct batch_outputs *b = *outputs;

    if (b) {
        mr_schema_fini(&b->schema);
        mr_free(b->carried);
        mr_free(b->outputs);
        mr_freep(outputs);
    }
}

const struct mr_schema *batch_outputs_schema(const struct batch_outputs *b)
{
    return &b->schema;
}

/* ---- checking ---- */

static const struct mr_oip_tensor *tensor_find(const struct mr_oip_response *answer, mr_str name)
{
    for (size_t i = 0; i < answer->output_count; i++) {
        if (mr_str_eq(answer->outputs[i].name, name)) {
            return &answer->outputs[i];
        }
    }
    return NULL;
}

/* Exponents of all ones: NaN or infinity. Loops that the compiler makes wide. */
static bool are_finite(const struct mr_tensor *t, uint64_t n)
{
    uint64_t bad = 0;

    switch (t->dtype) {
    case MR_DTYPE_FP32:
        for (uint64_t i = 0; i < n; i++) {
            bad += (((const uint32_t *)t->data)[i] & 0x7f800000) == 0x7f800000;
        }
        break;
    case MR_DTYPE_FP64:
        for (uint64_t i = 0; i < n; i++) {
            bad += (((const uint64_t *)t->data)[i] & UINT64_C(0x7ff0000000000000)) ==
                   UINT64_C(0x7ff0000000000000);
        }
        break;
    case MR_DTYPE_FP16:
        for (uint64_t i = 0; i < n; i++) {
            bad += (((const uint16_t *)t->data)[i] & 0x7c00) == 0x7c00;
        }
        break;
    case MR_DTYPE_BF16:
        for (uint64_t i = 0; i < n; i++) {
            bad += (((const uint16_t *)t->data)[i] & 0x7f80) == 0x7f80;
        }
        break;
    default: break;
    }
    return bad == 0;
}

/* The tensor's rank, without a last dimension of 1 that the model does not declare: some servers send a number a row as
 * [rows,1], whatever they say. */
static int rank_of(const struct mr_oip_io *io, const struct mr_tensor *t)
{
    return t->rank == io->rank + 1 && t->shape[io->rank] == 1 ? io->rank : t->rank;
}

static bool shape_fits(const struct output *o, const struct mr_tensor *t, bool is_batched,
                       uint64_t count)
{
    const struct mr_oip_io *io = o->io;
    const int rank = rank_of(io, t);

    if (rank < is_batched || (is_batched && t->shape[0] != (int64_t)count)) {
        return false;
    }
    if (rank != io->rank) { /* the same the other way round */
        return o->is_scalar && is_batched && rank == 1;
    }
    for (int d = is_batched; d < io->rank; d++) {
        if (io->shape[d] >= 0 && t->shape[d] != io->shape[d]) {
            return false;
        }
    }
    return true;
}

static int strings_check(const char *name, const struct mr_tensor *t, uint64_t n,
                         struct mr_err *err)
{
    mr_bytes rest = {t->data, t->bytes};
    mr_str s;
    int rc = mr_bytes_tensor_check(rest, n, err);

    if (rc < 0) {
        return MR_WRAP(err, rc, "output '%s'", name);
    }
    for (uint64_t i = 0; mr_bytes_tensor_next(&rest, &s); i++) {
        if (!mr_utf8_valid(s)) {
            return MR_FAIL(err, MR_E_INVALID, "output '%s': string %llu is not UTF-8", name,
                           (unsigned long long)i);
        }
    }
    return MR_OK;
}

static int output_check(const struct batch_outputs *b, const struct output *o,
                        const struct mr_oip_response *answer, uint64_t count, struct mr_err *err)
{
    const struct mr_oip_tensor *found = tensor_find(answer, o->io->name);
    char name[128];
    char have[128];
    char want[128];
    uint64_t n;
    uint64_t bytes;

    snprintf(name, sizeof name, "%.*s", (int)o->io->name.len, o->io->name.ptr);
    if (!found) {
        return MR_FAIL(err, MR_E_INVALID, "output '%s' is missing", name);
    }
    const struct mr_tensor *t = &found->tensor;
    if (t->dtype != o->io->dtype) {
        return MR_FAIL(err, MR_E_INVALID, "output '%s' has type %s, and the model declares %s",
                       name, mr_dtype_name(t->dtype), mr_dtype_name(o->io->dtype));
    }
    if (!shape_fits(o, t, b->is_batched, count)) {
        return MR_FAIL(
            err, MR_E_INVALID, "output '%s' has shape %s, and the model declares %s for %llu rows",
            name, mr_shape_text(t->shape, t->rank, have, sizeof have),
            mr_shape_text(o->io->shape, o->io->rank, want, sizeof want), (unsigned long long)count);
    }
    int rc = mr_shape_elements(t->shape, t->rank, &n, err);
    if (rc < 0) {
        return rc;
    }
    if (t->dtype == MR_DTYPE_BYTES) {
        return strings_check(name, t, n, err);
    }
    rc = mr_shape_bytes(t->dtype, t->shape, t->rank, &bytes, err);
    if (rc < 0 || bytes != t->bytes || (bytes > 0 && !t->data)) {
        return rc < 0 ? rc
                      : MR_FAIL(err, MR_E_INVALID, "output '%s' has %llu bytes instead of %llu",
                                name, (unsigned long long)t->bytes, (unsigned long long)bytes);
    }
    return b->allows_nan || are_finite(t, n)
               ? MR_OK
               : MR_FAIL(err, MR_E_INVALID, "output '%s' holds a NaN or an infinity", name);
}

int batch_answer_check(const struct batch_outputs *b, const struct mr_oip_response *answer,
                       uint64_t count, struct mr_err *err)
{
    for (size_t i = 0; i < b->output_count; i++) {
        int rc = output_check(b, &b->outputs[i], answer, count, err);
        if (rc < 0) {
            return rc;
        }
    }
    return MR_OK;
}

/* ---- rows ---- */

static uint64_t bits_bytes(uint64_t n)
{
    return n / 8 + 1;
}

/* A column's rows from `first` on. Only bits have to be moved. */
static bool column_slice(struct mr_rows *rows, const struct mr_field *f, const struct mr_column *c,
                         uint64_t first, uint64_t count, struct mr_column *out)
{
    *out = *c;
    out->count = count;
    out->nulls = 0;
    out->valid = NULL;
    if (c->nulls > 0) {
        uint8_t *valid = mr_rows_alloc(rows, bits_bytes(count));
        if (!valid) {
            return false;
        }
        memset(valid, 0, bits_bytes(count));
        for (uint64_t i = 0; i < count; i++) {
            const bool is_null = mr_column_is_null(c, first + i);
            valid[i / 8] |= (uint8_t)(!is_null << i % 8);
            out->nulls += is_null;
        }
        out->valid = out->nulls > 0 ? valid : NULL;
    }
    if (c->begin) {
        out->begin = c->begin + first;
        return true;
    }
    if (f->type != MR_COLUMN_FIXED_LIST) {
        out->values = (const uint8_t *)c->values + first * mr_column_type_bytes(f->type);
        return true;
    }
    out->item = mr_rows_alloc(rows, sizeof *out->item);
    return out->item &&
           column_slice(rows, f->item, c->item, first * f->width, count * f->width, out->item);
}

static void rows_drop(void *ctx)
{
    struct mr_rows *r = ctx;
    mr_rows_unref(&r);
}

static void block_drop(void *ctx)
{
    struct mr_block *b = ctx;
    mr_block_unref(&b);
}

/* Some rows of a tensor, whose first dimension is that of the rows. One row alone is all of it, and may have no such
 * dimension. */
static struct mr_tensor tensor_part(const struct mr_tensor *t, const struct batch_answer_part *p,
                                    int64_t shape[])
{
    struct mr_tensor part = *t;
    uint64_t elements = 1;
    mr_bytes rest = {t->data, t->bytes};
    mr_str s;

    if (p->count == p->of) {
        return part;
    }
    for (int d = 1; d < t->rank; d++) {
        elements *= (uint64_t)t->shape[d];
    }
    memcpy(shape, t->shape, (size_t)t->rank * sizeof *shape);
    shape[0] = (int64_t)p->count;
    part.shape = shape;
    if (t->dtype != MR_DTYPE_BYTES) {
        part.bytes = t->bytes / p->of * p->count;
        part.data = (uint8_t *)t->data + t->bytes / p->of * p->first;
        return part;
    }
    for (uint64_t i = 0; i < p->first * elements; i++) {
        mr_bytes_tensor_next(&rest, &s);
    }
    part.data = (uint8_t *)(uintptr_t)rest.ptr;
    for (uint64_t i = 0; i < p->count * elements; i++) {
        mr_bytes_tensor_next(&rest, &s);
    }
    part.bytes = (size_t)(rest.ptr - (const uint8_t *)part.data);
    return part;
}

/* The bytes of all strings, one after the other, and where they begin. */
static bool strings_make(struct mr_rows *rows, const struct mr_tensor *t, uint64_t n,
                         struct mr_column *c)
{
    mr_bytes rest = {t->data, t->bytes};
    uint64_t *begin = mr_rows_alloc(rows, (n + 1) * sizeof *begin);
    char *values = mr_rows_alloc(rows, t->bytes + 1);
    uint64_t at = 0;
    mr_str s;

    if (!begin || !values) {
        return false;
    }
    begin[0] = 0;
    for (uint64_t i = 0; i < n && mr_bytes_tensor_next(&rest, &s); i++) {
        if (s.len > 0) {
            memcpy(values + at, s.ptr, s.len);
        }
        at += s.len;
        begin[i + 1] = at;
    }
    c->begin = begin;
    c->values = values;
    return true;
}

/* Numbers that have the layout of a column: not BF16, and not BOOL, which may have other bytes than 0 and 1 in a tensor. */
static bool is_column(const struct mr_tensor *t)
{
    return t->dtype != MR_DTYPE_BF16 && t->dtype != MR_DTYPE_BOOL;
}

static bool values_make(struct mr_rows *rows, const struct mr_tensor *t, uint64_t n, bool is_kept,
                        struct mr_column *c)
{
    c->count = n;
    if (t->dtype == MR_DTYPE_BYTES) {
        return strings_make(rows, t, n, c);
    }
    if (is_column(t) && is_kept) {
        c->values = t->data;
        return true;
    }
    void *values =
        mr_rows_alloc(rows, t->dtype == MR_DTYPE_BF16 ? n * sizeof(float) : t->bytes + 1);
    if (!values) {
        return false;
    }
    if (is_column(t) && t->bytes > 0) {
        memcpy(values, t->data, t->bytes);
    }
    for (uint64_t i = 0; t->dtype == MR_DTYPE_BF16 && i < n; i++) {
        ((float *)values)[i] = mr_bf16_to_float(((const uint16_t *)t->data)[i]);
    }
    for (uint64_t i = 0; t->dtype == MR_DTYPE_BOOL && i < n; i++) {
        ((uint8_t *)values)[i] = ((const uint8_t *)t->data)[i] != 0;
    }
    c->values = values;
    return true;
}

/* One level of lists for each dimension. */
static bool tensor_column(struct mr_rows *rows, const struct output *o, const struct mr_tensor *t,
                          int d, uint64_t count, bool is_kept, struct mr_column *c)
{
    c->count = count;
    if (o->is_scalar || d == t->rank) {
        return values_make(rows, t, count, is_kept, c);
    }
    const uint64_t width = (uint64_t)t->shape[d];
    if (o->io->shape[d] < 0) {
        uint64_t *begin = mr_rows_alloc(rows, (count + 1) * sizeof *begin);
        for (uint64_t i = 0; begin && i <= count; i++) {
            begin[i] = i * width;
        }
        c->begin = begin;
    }
    c->item = mr_rows_alloc(rows, sizeof *c->item);
    if (!c->item || (o->io->shape[d] < 0 && !c->begin)) {
        return false;
    }
    memset(c->item, 0, sizeof *c->item);
    return tensor_column(rows, o, t, d + 1, count * width, is_kept, c->item);
}

static bool row_files_fill(struct mr_rows *rows, const struct mr_rows *input, struct mr_column *c)
{
    const char *path = input->file ? input->file : "";
    const size_t len = strlen(path);
    uint64_t *begin = mr_rows_alloc(rows, (rows->count + 1) * sizeof *begin);
    char *values = mr_rows_alloc(rows, rows->count * len + 1);

    if (!begin || !values) {
        return false;
    }
    for (uint64_t i = 0; i <= rows->count; i++) {
        begin[i] = i * len;
        memcpy(values + begin[i], path, i < rows->count ? len : 0);
    }
    *c = (struct mr_column){.count = rows->count, .begin = begin, .values = values};
    return true;
}

static bool row_numbers_fill(struct mr_rows *rows, uint64_t first, struct mr_column *c)
{
    int64_t *values = mr_rows_alloc(rows, rows->count * sizeof *values);

    for (uint64_t i = 0; values && i < rows->count; i++) {
        values[i] = (int64_t)(first + i);
    }
    *c = (struct mr_column){.count = rows->count, .values = values};
    return values;
}

static bool carried_column(const struct batch_outputs *b, size_t i, struct mr_rows *rows,
                           const struct mr_rows *input, uint64_t first)
{
    struct mr_column *to = &rows->columns[i];

    switch (b->carried[i]) {
    case ROW_FILE: return row_files_fill(rows, input, to);
    case ROW_NUMBER: return row_numbers_fill(rows, input->first + first, to);
    default:
        return column_slice(rows, &b->schema.fields[i], &input->columns[b->carried[i]], first,
                            rows->count, to);
    }
}

static bool carried_fill(const struct batch_outputs *b, struct mr_rows *rows, struct mr_rows *input,
                         uint64_t first)
{
    if (b->carried_count > 0 && !mr_rows_on_free(rows, 0, rows_drop, mr_rows_ref(input))) {
        return false;
    }
    for (size_t i = 0; i < b->carried_count; i++) {
        if (!carried_column(b, i, rows, input, first)) {
            return false;
        }
    }
    return true;
}

static bool nulls_fill(struct mr_rows *rows, struct mr_column *c)
{
    const uint64_t n = rows->count;
    uint8_t *valid = mr_rows_alloc(rows, bits_bytes(n));
    uint64_t *begin = mr_rows_alloc(rows, (n + 1) * sizeof *begin);

    if (!valid || !begin) {
        return false;
    }
    memset(valid, 0, bits_bytes(n));
    memset(begin, 0, (n + 1) * sizeof *begin);
    *c = (struct mr_column){.count = n, .nulls = n, .valid = valid, .begin = begin};
    return true;
}

static bool rows_fill(const struct batch_outputs *b, struct mr_rows *rows, struct mr_rows *input,
                      uint64_t first, const struct batch_answer_part *part)
{
    struct mr_block *body = part->body;
    const uint64_t count = rows->count;
    int64_t shape[MR_MAX_RANK];

    /* Parts share the body, and what it takes. */
    if (body && !mr_rows_on_free(rows, body->cap / part->of * part->count, block_drop,
                                 mr_block_ref(body))) {
        return false;
    }
    if (!carried_fill(b, rows, input, first) ||
        (b->has_error && !nulls_fill(rows, &rows->columns[b->schema.count - 1]))) {
        return false;
    }
    for (size_t i = 0; i < b->output_count; i++) {
        const struct output *o = &b->outputs[i];
        struct mr_tensor t =
            tensor_part(&tensor_find(part->answer, o->io->name)->tensor, part, shape);
        t.rank = rank_of(o->io, &t);
        /* What was parsed from text lies in memory of the message, not in its body. */
        const bool is_kept = body && (const uint8_t *)t.data >= body->data &&
                             (const uint8_t *)t.data < body->data + body->cap;
        if (!tensor_column(rows, o, &t, o->first_dim, count, is_kept,
                           &rows->columns[b->carried_count + i])) {
            return false;
        }
    }
    return true;
}

int batch_answer_rows(const struct batch_outputs *b, struct mr_rows *input, uint64_t first,
                      const struct batch_answer_part *part, struct mr_rows **out,
                      struct mr_err *err)
{
    struct mr_rows *rows = mr_rows_new(&b->schema);

    if (rows) {
        rows->count = part->count;
        if (rows_fill(b, rows, input, first, part)) {
            *out = rows;
            return MR_OK;
        }
    }
    mr_rows_unref(&rows);
    return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the answer to %llu rows",
                   (unsigned long long)part->count);
}

int batch_answer_built(const struct batch_outputs *b, struct mr_rows *input, uint64_t first,
                       uint64_t count, struct mr_column_builder *const *builders,
                       size_t builder_count, struct mr_rows **out, struct mr_err *err)
{
    struct mr_rows *rows = mr_rows_new(&b->schema);
    bool ok = rows != NULL;

    if (ok) {
        rows->count = count;
        ok = carried_fill(b, rows, input, first) &&
             (!b->has_error || nulls_fill(rows, &rows->columns[b->schema.count - 1]));
    }
    for (size_t i = 0; i < builder_count; i++) {
        ok = ok && mr_column_builder_finish(builders[i], rows, b->carried_count + i, err) == MR_OK;
        if (!ok) {
            mr_column_builder_reset(builders[i]);
        }
    }
    if (!ok) {
        mr_rows_unref(&rows);
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the answer to %llu rows",
                       (unsigned long long)count);
    }
    *out = rows;
    return MR_OK;
}

static bool none_fill(const struct batch_outputs *b, struct mr_rows *rows, struct mr_rows *input,
                      uint64_t row, const char *why)
{
    bool ok = carried_fill(b, rows, input, row);

    for (size_t i = b->carried_count; ok && i < b->schema.count; i++) {
        ok = nulls_fill(rows, &rows->columns[i]);
    }
    if (ok && b->has_error) {
        const size_t len = strlen(why);
        uint64_t *begin = mr_rows_alloc(rows, 2 * sizeof *begin);
        char *text = mr_rows_alloc(rows, len + 1);
        if (!begin || !text) {
            return false;
        }
        memcpy(text, why, len + 1);
        begin[0] = 0;
        begin[1] = len;
        rows->columns[b->schema.count - 1] =
            (struct mr_column){.count = 1, .begin = begin, .values = text};
    }
    return ok;
}

int batch_answer_none(const struct batch_outputs *b, struct mr_rows *input, uint64_t row,
                      const char *why, struct mr_rows **out, struct mr_err *err)
{
    struct mr_rows *rows = mr_rows_new(&b->schema);

    if (rows) {
        rows->count = 1;
        if (none_fill(b, rows, input, row, why)) {
            *out = rows;
            return MR_OK;
        }
    }
    mr_rows_unref(&rows);
    return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for a row without an answer");
}
