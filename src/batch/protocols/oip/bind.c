/* From columns to inputs.
 *
 * The items of a row of a list, however deep, lie together, and so do those of rows that follow each other. So a call of
 * rows without nulls, whose column has the input's own type, is sent from where the source put it. All else is
 * cast into a block, and so are the rows of a call that come from several places, once.
 *
 * What must be right per row is looked at per row: two rows whose lengths are wrong and cancel out would shift every
 * value between them, and no check of the whole would see it. */
#include "bind.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "number.h"
#include "tensor/tensor.h"

#define WHY_ROOM    256
#define CHUNK       256 /* values that are cast at once to see whether they fit */
#define COLUMNS_MAX 65536

struct input {
    const struct mr_oip_io *io;
    int *columns; /* of the schema; none: a constant */
    bool fits_null_value;
    size_t column_count;
    struct batch_number constant;
    int dynamic;       /* the dimension that each row may choose, -1 = none */
    uint64_t elements; /* of a row, without that dimension */
    bool is_mask;      /* 1 for a value, 0 for a null */
};

struct batch_bind {
    const struct mr_schema *schema;
    const struct mr_schema *columns; /* for messages */
    struct input *inputs;
    size_t input_count;
    bool is_batched;
    bool has_null_value;
    struct batch_number null_value; /* 0 without one */
    bool *is_masked;                /* by column of the schema: a mask reports its nulls */
};

bool batch_is_batched(const struct mr_oip_metadata *m)
{
    for (size_t i = 0; i < m->input_count; i++) {
        if (m->inputs[i].rank == 0 || m->inputs[i].shape[0] != -1) {
            return false;
        }
    }
    for (size_t i = 0; i < m->output_count; i++) {
        if (m->outputs[i].rank == 0 || m->outputs[i].shape[0] != -1) {
            return false;
        }
    }
    return m->input_count > 0;
}

/* ---- expressions ---- */

/* What a map says, taken apart: the names of columns, or a constant. */
struct from {
    mr_str *names;
    size_t count;
    mr_str number; /* of the constant */
    struct batch_number constant;
    bool is_mask;
};

static mr_str trim(mr_str s)
{
    while (s.len > 0 && (s.ptr[0] == ' ' || s.ptr[0] == '\t')) {
        s.ptr++;
        s.len--;
    }
    while (s.len > 0 && (s.ptr[s.len - 1] == ' ' || s.ptr[s.len - 1] == '\t')) {
        s.len--;
    }
    return s;
}

/* The inside of name(…); false if the text is not of that form. */
static bool call_of(mr_str text, const char *name, mr_str *out_inside)
{
    const size_t n = strlen(name);

    if (text.len < n + 2 || memcmp(text.ptr, name, n) != 0 || text.ptr[n] != '(' ||
        text.ptr[text.len - 1] != ')') {
        return false;
    }
    *out_inside = (mr_str){text.ptr + n + 1, text.len - n - 2};
    return true;
}

static int from_parse(const char *input, mr_str text, struct from *out, struct mr_err *err)
{
    mr_str inside;

    *out = (struct from){0};
    text = trim(text);
    if (call_of(text, "const", &inside)) {
        out->number = trim(inside);
        return batch_number_parse(inside, &out->constant)
                   ? MR_OK
                   : MR_FAIL(err, MR_E_INVALID, "input '%s': '%.*s' is not const(NUMBER)", input,
                             (int)text.len, text.ptr);
    }
    out->is_mask = call_of(text, "mask", &inside);
    const bool is_list = out->is_mask || call_of(text, "stack", &inside);
    mr_str rest = is_list ? inside : text;
    while (out->count < COLUMNS_MAX) {
        const char *comma = is_list ? memchr(rest.ptr, ',', rest.len) : NULL;
        const size_t n = comma ? (size_t)(comma - rest.ptr) : rest.len;
        const mr_str name = trim((mr_str){rest.ptr, n});
        if (name.len == 0) {
            break;
        }
        out->names = mr_realloc_array(out->names, out->count + 1, sizeof *out->names);
        out->names[out->count++] = name;
        if (!comma) {
            return MR_OK;
        }
        rest = (mr_str){comma + 1, rest.len - n - 1};
    }
    mr_freep(&out->names);
    return MR_FAIL(err, MR_E_INVALID,
                   "input '%s': '%.*s' is no column, stack(COLUMN,…), mask(COLUMN,…) or "
                   "const(NUMBER)",
                   input, (int)text.len, text.ptr);
}

static int from_find(const struct batch_bind_options *o, const struct mr_oip_io *io,
                     struct from *out, struct mr_err *err)
{
    char name[256];

    snprintf(name, sizeof name, "%.*s", (int)io->name.len, io->name.ptr);
    for (size_t i = 0; i < o->map_count; i++) {
        if (mr_str_eq_c(io->name, o->maps[i].input)) {
            return from_parse(name, mr_str_c(o->maps[i].from), out, err);
        }
    }
    *out = (struct from){.names = MR_NEW(mr_str), .count = 1};
    out->names[0] = io->name;
    return MR_OK;
}

static int maps_check(const struct mr_oip_metadata *m, const struct batch_bind_options *o,
                      struct mr_err *err)
{
    for (size_t i = 0; i < o->map_count; i++) {
        if (!mr_oip_find_input(m, mr_str_c(o->maps[i].input))) {
            return MR_FAIL(err, MR_E_INVALID, "the model has no input '%s'", o->maps[i].input);
        }
    }
    return MR_OK;
}

/* ---- shapes ---- */

/* Elements of a row without the dimension that is left to it. */
static int shape_read(const struct mr_oip_io *io, bool is_batched, int *out_dynamic,
                      uint64_t *out_elements, struct mr_err *err)
{
    uint64_t n = 1;

    *out_dynamic = -1;
    for (int d = is_batched; d < io->rank; d++) {
        if (io->shape[d] < 0 && *out_dynamic >= 0) {
            return MR_FAIL(err, MR_E_UNSUPPORTED,
                           "input '%.*s' leaves more than one dimension of a row open, which "
                           "columns cannot show",
                           (int)io->name.len, io->name.ptr);
        }
        if (io->shape[d] < 0) {
            *out_dynamic = d;
        } else if (__builtin_mul_overflow(n, (uint64_t)io->shape[d], &n) || n > UINT32_MAX) {
            return MR_FAIL(err, MR_E_UNSUPPORTED, "input '%.*s' is too large", (int)io->name.len,
                           io->name.ptr);
        }
    }
    *out_elements = n;
    return MR_OK;
}

/* The shape of a row, for text, where it may be written as lists in lists. */
static void dims_note(const struct mr_oip_io *io, bool is_batched, struct mr_field *f)
{
    const int rank = io->rank - is_batched;

    for (int d = 0; d < rank && rank <= MR_FIELD_DEPTH; d++) {
        const int64_t dim = io->shape[is_batched + d];
        f->dims[d] = dim > INT32_MAX ? INT32_MAX : (int32_t)MR_MAX(dim, INT64_C(-1));
        f->dim_count = (uint8_t)rank;
    }
}

static int wanted_add(const struct mr_oip_io *io, bool is_batched, const struct from *from,
                      struct mr_schema *out, struct mr_err *err)
{
    enum mr_column_type type = batch_type_of(io->dtype);
    struct mr_field item = {.name = (char *)(uintptr_t) "element", .is_nullable = true};
    struct mr_field field = {.is_nullable = true};
    uint64_t elements;
    int dynamic;
    int rc = shape_read(io, is_batched, &dynamic, &elements, err);

    if (rc < 0) {
        return rc;
    }
    type = type == MR_COLUMN_NONE ? MR_COLUMN_F32 : type;
    if (from->count > 1 || (dynamic < 0 && elements == 1)) {
        field.type = type;
    } else {
        item.type = type;
        field.type = dynamic < 0 ? MR_COLUMN_FIXED_LIST : MR_COLUMN_LIST;
        field.width = dynamic < 0 ? elements : 0;
        field.item = &item;
        dims_note(io, is_batched, &field);
    }
    for (size_t i = 0; i < from->count; i++) {
        if (mr_schema_find(out, from->names[i]) < 0) {
            field.name = mr_strndup(from->names[i].ptr, from->names[i].len);
            mr_schema_add(out, &field);
            mr_free(field.name);
        }
    }
    return MR_OK;
}

/* A column that only a mask looks at is read as it is found. */
static void wanted_add_masked(const struct from *from, struct mr_schema *out)
{
    for (size_t i = 0; i < from->count; i++) {
        if (mr_schema_find(out, from->names[i]) < 0) {
            struct mr_field field = {.is_nullable = true};
            field.name = mr_strndup(from->names[i].ptr, from->names[i].len);
            mr_schema_add(out, &field);
            mr_free(field.name);
        }
    }
}

int batch_bind_wanted(const struct mr_oip_metadata *m, const struct batch_bind_options *options,
                      struct mr_schema *out, struct mr_err *err)
{
    const bool is_batched = batch_is_batched(m);
    int rc = maps_check(m, options, err);

    for (int masks = 0; masks < 2; masks++) { /* these have no say in the types */
        for (size_t i = 0; i < m->input_count && rc == MR_OK; i++) {
            struct from from;
            rc = from_find(options, &m->inputs[i], &from, err);
            if (rc == MR_OK && !masks && !from.is_mask) {
                rc = wanted_add(&m->inputs[i], is_batched, &from, out, err);
            } else if (rc == MR_OK && masks && from.is_mask) {
                wanted_add_masked(&from, out);
            }
            mr_free(from.names);
        }
    }
    if (rc < 0) {
        mr_schema_fini(out);
    }
    return rc;
}

/* ---- binding ---- */

static const struct mr_field *leaf_of(const struct mr_field *f)
{
    while (f->item) {
        f = f->item;
    }
    return f;
}

static int column_bind(const struct batch_bind *b, struct input *in, mr_str name,
                       struct mr_err *err)
{
    const struct mr_oip_io *io = in->io;
    const int column = mr_schema_find(b->schema, name);
    char text[128];

    if (column < 0) {
        char hint[250];
        return MR_FAIL(err, MR_E_INVALID, "input '%.*s': the table has no column '%.*s'; %s%s",
                       (int)io->name.len, io->name.ptr, (int)name.len, name.ptr,
                       mr_schema_hint(b->columns, hint, sizeof hint),
                       mr_str_eq(io->name, name) ? "; --map INPUT=COLUMN names another one" : "");
    }
    const struct mr_field *f = &b->schema->fields[column];
    b->is_masked[column] = b->is_masked[column] || in->is_mask;
    if (!in->is_mask && !batch_can_cast(leaf_of(f), io->dtype)) {
        return MR_FAIL(err, MR_E_INVALID, "column '%s' (%s) cannot become input '%.*s' (%s)",
                       f->name, mr_field_text(f, text, sizeof text), (int)io->name.len,
                       io->name.ptr, mr_dtype_name(io->dtype));
    }
    if (in->column_count > 0 && f->item) {
        return MR_FAIL(err, MR_E_INVALID,
                       "input '%.*s': columns that are stacked must be scalars, and '%s' is %s",
                       (int)io->name.len, io->name.ptr, f->name,
                       mr_field_text(f, text, sizeof text));
    }
    in->columns = mr_realloc_array(in->columns, in->column_count + 1, sizeof *in->columns);
    in->columns[in->column_count++] = column;
    return MR_OK;
}

/* No rounding but that of floating-point numbers, and no infinity that was none. */
static bool fits(const struct batch_number *v, int dtype)
{
    const double most = dtype == MR_DTYPE_FP16                             ? 65504
                        : dtype == MR_DTYPE_FP32 || dtype == MR_DTYPE_BF16 ? (double)FLT_MAX
                                                                           : (double)INFINITY;
    double wide;
    uint64_t one;

    batch_cast(&v->field, &v->i, MR_DTYPE_FP64, &wide, 1);
    if (isfinite(wide) && fabs(wide) > most) {
        return false;
    }
    return dtype == MR_DTYPE_BYTES || dtype == MR_DTYPE_BOOL ||
           batch_cast(&v->field, &v->i, dtype, &one, 1) == SIZE_MAX;
}

static int input_bind(const struct batch_bind *b, struct input *in, const struct from *from,
                      struct mr_err *err)
{
    const struct mr_oip_io *io = in->io;
    int rc = shape_read(io, b->is_batched, &in->dynamic, &in->elements, err);

    in->is_mask = from->is_mask;
    if (rc == MR_OK && in->is_mask && io->dtype == MR_DTYPE_BYTES) {
        rc =
            MR_FAIL(err, MR_E_UNSUPPORTED, "mask() makes numbers, which input '%.*s' does not take",
                    (int)io->name.len, io->name.ptr);
    }
    for (size_t i = 0; i < from->count && rc == MR_OK; i++) {
        rc = column_bind(b, in, from->names[i], err);
    }
    in->constant = from->constant;
    in->fits_null_value = fits(&b->null_value, io->dtype);
    if (rc < 0) {
        return rc;
    }
    if (from->count > 1 && (b->schema->fields[in->columns[0]].item || in->dynamic >= 0 ||
                            in->elements != from->count)) {
        return MR_FAIL(err, MR_E_INVALID,
                       "input '%.*s' takes %llu values a row, and %llu scalar columns are stacked",
                       (int)io->name.len, io->name.ptr, (unsigned long long)in->elements,
                       (unsigned long long)from->count);
    }
    if (from->count == 0 && (io->dtype == MR_DTYPE_BYTES || io->dtype == MR_DTYPE_BOOL)) {
        return MR_FAIL(err, MR_E_UNSUPPORTED,
                       "const() makes numbers, which input '%.*s' does not take", (int)io->name.len,
                       io->name.ptr);
    }
    if (from->count == 0 && !fits(&from->constant, io->dtype)) {
        return MR_FAIL(err, MR_E_INVALID, "const(%.*s) does not fit %s of input '%.*s'",
                       (int)from->number.len, from->number.ptr, mr_dtype_name(io->dtype),
                       (int)io->name.len, io->name.ptr);
    }
    return MR_OK;
}

int batch_bind_new(struct batch_bind **out, const struct mr_oip_metadata *m,
                   const struct mr_schema *schema, const struct batch_bind_options *options,
                   struct mr_err *err)
{
    struct batch_bind *b = MR_NEW(struct batch_bind);
    const char *null_value = options->null_value;
    int rc = maps_check(m, options, err);

    if (rc == MR_OK &&
        !batch_number_parse(mr_str_c(null_value ? null_value : "0"), &b->null_value)) {
        rc =
            MR_FAIL(err, MR_E_INVALID, "what nulls are sent as, '%.64s', is no number", null_value);
    }
    b->schema = schema;
    b->columns = options->columns ? options->columns : schema;
    b->is_batched = batch_is_batched(m);
    b->has_null_value = null_value;
    b->inputs = MR_NEW_ARRAY(struct input, m->input_count + 1);
    b->is_masked = MR_NEW_ARRAY(bool, schema->count + 1);
    for (size_t i = 0; i < m->input_count && rc == MR_OK; i++) {
        struct from from;
        b->inputs[i].io = &m->inputs[i];
        b->input_count++;
        if (m->inputs[i].dtype == MR_DTYPE_INVALID) {
            rc = MR_FAIL(err, MR_E_UNSUPPORTED, "input '%.*s' has a type that is not known here",
                         (int)m->inputs[i].name.len, m->inputs[i].name.ptr);
            break;
        }
        rc = from_find(options, &m->inputs[i], &from, err);
        if (rc == MR_OK) {
            rc = input_bind(b, &b->inputs[i], &from, err);
            mr_free(from.names);
        }
    }
    if (rc < 0) {
        batch_bind_free(&b);
        return rc;
    }
    *out = b;
    return MR_OK;
}

void batch_bind_free(struct batch_bind **bind)
{
    struct batch_bind *b = *bind;

    if (b) {
        for (size_t i = 0; i < b->input_count; i++) {
            mr_free(b->inputs[i].columns);
        }
        mr_free(b->inputs);
        mr_free(b->is_masked);
        mr_freep(bind);
    }
}

/* ---- rows ---- */

/* The innermost values of some rows, which lie together. */
struct leaf {
    const struct mr_column *column;
    uint64_t begin;
    uint64_t end;
};

static struct leaf leaf_find(const struct mr_field *f, const struct mr_column *c, uint64_t first,
                             uint64_t count)
{
    uint64_t begin = first;
    uint64_t end = first + count;

    for (; f->item; f = f->item, c = c->item) {
        begin = f->type == MR_COLUMN_LIST ? c->begin[begin] : begin * f->width;
        end = f->type == MR_COLUMN_LIST ? c->begin[end] : end * f->width;
    }
    return (struct leaf){c, begin, end};
}

/* A list within the row's list is null. */
static bool has_inner_null(const struct mr_field *f, const struct mr_column *c, uint64_t row)
{
    uint64_t begin = row;
    uint64_t end = row + 1;

    while (f->item && f->item->item) {
        begin = f->type == MR_COLUMN_LIST ? c->begin[begin] : begin * f->width;
        end = f->type == MR_COLUMN_LIST ? c->begin[end] : end * f->width;
        f = f->item;
        c = c->item;
        for (uint64_t i = begin; c->nulls > 0 && i < end; i++) {
            if (mr_column_is_null(c, i)) {
                return true;
            }
        }
    }
    return false;
}

static bool values_are_bad(const struct input *in, const struct mr_field *f, struct leaf leaf,
                           char *why)
{
    uint64_t scratch[CHUNK];
    const struct mr_field *from = leaf_of(f);
    const size_t bytes = mr_column_type_bytes(from->type);

    for (uint64_t at = leaf.begin; at < leaf.end; at += CHUNK) {
        const size_t n = (size_t)MR_MIN(leaf.end - at, (uint64_t)CHUNK);
        const size_t bad = batch_cast(from, (const uint8_t *)leaf.column->values + at * bytes,
                                      in->io->dtype, scratch, n);
        if (bad != SIZE_MAX) {
            snprintf(why, WHY_ROOM, "column '%s': value %llu does not fit %s of input '%.*s'",
                     f->name, (unsigned long long)(at + bad - leaf.begin),
                     mr_dtype_name(in->io->dtype), (int)in->io->name.len, in->io->name.ptr);
            return true;
        }
    }
    return false;
}

/* Values are taken as they are, or rounded. */
static bool is_sure_cast(const struct input *in, const struct mr_field *f)
{
    const int to = in->io->dtype;

    return in->is_mask || to == MR_DTYPE_BYTES || batch_type_of(to) == leaf_of(f)->type ||
           to == MR_DTYPE_FP16 || to == MR_DTYPE_BF16 || to == MR_DTYPE_FP32 || to == MR_DTYPE_FP64;
}

/* Nulls of strings and booleans stay faults of the row, unless a mask marks them; so do those whose value would be
 * another one. */
static bool takes_nulls(const struct batch_bind *b, const struct input *in, int column)
{
    const bool is_number = in->io->dtype != MR_DTYPE_BYTES && in->io->dtype != MR_DTYPE_BOOL;

    return in->fits_null_value && (b->is_masked[column] || (b->has_null_value && is_number));
}

/* A row that is null, instead of its values, has the length that the model asks for. */
static bool takes_null_row(const struct batch_bind *b, const struct input *in, int column)
{
    const bool is_list = b->schema->fields[column].item;

    return takes_nulls(b, in, column) && in->dynamic < 0 &&
           !(is_list && in->io->dtype == MR_DTYPE_BYTES);
}

static bool count_is_bad(const struct input *in, uint64_t n, const char *name, char *why)
{
    char shape[128];

    if (in->dynamic < 0 ? n == in->elements : in->elements > 0 && n % in->elements == 0) {
        return false;
    }
    snprintf(why, WHY_ROOM, "column '%s' has %llu values, and input '%.*s' has shape %s", name,
             (unsigned long long)n, (int)in->io->name.len, in->io->name.ptr,
             mr_shape_text(in->io->shape, in->io->rank, shape, sizeof shape));
    return true;
}

static uint64_t list_length(const struct mr_field *f, const struct mr_column *c, uint64_t i)
{
    return f->type == MR_COLUMN_LIST ? c->begin[i + 1] - c->begin[i] : f->width;
}

/* Lists of a level that are not all as long as the model's dimension says, where each level is one, or as the first of
 * them: short and long ones that cancel out would shift every value between them. */
static bool lists_are_bad(const struct batch_bind *b, const struct input *in,
                          const struct mr_field *f, const struct mr_column *c, uint64_t row,
                          char *why)
{
    const char *name = f->name;
    const int64_t *dim = in->io->shape + b->is_batched;
    const int levels = (int)mr_field_levels(f);
    uint64_t begin = row;
    uint64_t end = row + 1;

    const bool is_shaped = levels == in->io->rank - b->is_batched;
    for (int level = 0; levels > 1 && level < levels && begin < end; level++) {
        const uint64_t n = list_length(f, c, begin);
        const uint64_t want = is_shaped && dim[level] >= 0 ? (uint64_t)dim[level] : n;
        for (uint64_t i = begin; i < end && (i == begin || f->type == MR_COLUMN_LIST); i++) {
            if (list_length(f, c, i) != want) {
                snprintf(why, WHY_ROOM,
                         "column '%s': a list of %llu items at level %d, not %llu as %s", name,
                         (unsigned long long)list_length(f, c, i), level + 1,
                         (unsigned long long)want,
                         is_shaped && dim[level] >= 0 ? "the model asks for" : "the first one has");
                return true;
            }
        }
        begin = f->type == MR_COLUMN_LIST ? c->begin[begin] : begin * f->width;
        end = f->type == MR_COLUMN_LIST ? c->begin[end] : end * f->width;
        f = f->item;
        c = c->item;
    }
    return false;
}

static bool column_is_bad(const struct batch_bind *b, const struct input *in, int column,
                          const struct mr_rows *rows, uint64_t row, char *why)
{
    const struct mr_field *f = &b->schema->fields[column];
    const struct mr_column *c = &rows->columns[column];

    if (mr_column_is_null(c, row)) {
        snprintf(why, WHY_ROOM, "column '%s' is null", f->name);
        return !takes_null_row(b, in, column);
    }
    if (has_inner_null(f, c, row)) {
        snprintf(why, WHY_ROOM, "column '%s' holds a null list", f->name);
        return true;
    }
    if (lists_are_bad(b, in, f, c, row, why)) {
        return true;
    }
    const struct leaf leaf = leaf_find(f, c, row, 1);
    if (in->column_count == 1 && count_is_bad(in, leaf.end - leaf.begin, f->name, why)) {
        return true;
    }
    const bool checks = leaf.column->nulls > 0 && !takes_nulls(b, in, column);
    for (uint64_t i = leaf.begin; checks && i < leaf.end; i++) {
        if (mr_column_is_null(leaf.column, i)) {
            snprintf(why, WHY_ROOM, "column '%s': value %llu is null", f->name,
                     (unsigned long long)(i - leaf.begin));
            return true;
        }
    }
    return !is_sure_cast(in, f) && values_are_bad(in, f, leaf, why);
}

bool batch_bind_is_bad(const struct batch_bind *b, const struct mr_rows *rows, uint64_t row,
                       char *why)
{
    for (size_t i = 0; i < b->input_count; i++) {
        for (size_t k = 0; k < b->inputs[i].column_count; k++) {
            if (column_is_bad(b, &b->inputs[i], b->inputs[i].columns[k], rows, row, why)) {
                return true;
            }
        }
    }
    return false;
}

/* Neither nulls nor lengths that differ, nor lists in lists, whatever the values. */
static bool column_is_regular(const struct mr_field *f, const struct mr_column *c,
                              uint64_t *out_elements)
{
    uint64_t n = 1;

    if (f->item && f->item->item) {
        return false;
    }
    for (;; f = f->item, c = c->item) {
        if (c->nulls > 0 || f->type == MR_COLUMN_LIST) {
            return false;
        }
        if (!f->item) {
            *out_elements = n;
            return true;
        }
        if (__builtin_mul_overflow(n, f->width, &n)) {
            return false;
        }
    }
}

bool batch_bind_all_good(const struct batch_bind *b, const struct mr_rows *rows)
{
    for (size_t i = 0; i < b->input_count; i++) {
        const struct input *in = &b->inputs[i];
        for (size_t k = 0; k < in->column_count; k++) {
            const struct mr_field *f = &b->schema->fields[in->columns[k]];
            uint64_t n;
            if (!is_sure_cast(in, f) || !column_is_regular(f, &rows->columns[in->columns[k]], &n) ||
                (in->column_count == 1 && (in->dynamic >= 0 || n != in->elements))) {
                return false;
            }
        }
    }
    return true;
}

/* ---- calls ---- */

static uint64_t row_elements(const struct batch_bind *b, const struct input *in,
                             const struct mr_rows *rows, uint64_t row)
{
    if (in->dynamic < 0 || in->column_count == 0) {
        return in->elements;
    }
    const struct leaf leaf =
        leaf_find(&b->schema->fields[in->columns[0]], &rows->columns[in->columns[0]], row, 1);
    return leaf.end - leaf.begin;
}

uint64_t batch_bind_together(const struct batch_bind *b, const struct mr_rows *rows, uint64_t first,
                             uint64_t most)
{
    uint64_t together = b->is_batched ? most : MR_MIN(most, (uint64_t)1);

    for (size_t i = 0; i < b->input_count; i++) {
        const struct input *in = &b->inputs[i];
        if (in->dynamic < 0 || in->column_count == 0) {
            continue;
        }
        const uint64_t n = row_elements(b, in, rows, first);
        uint64_t same = 1;
        while (same < together && row_elements(b, in, rows, first + same) == n) {
            same++;
        }
        together = MR_MIN(together, same);
    }
    return together;
}

bool batch_bind_joins(const struct batch_bind *b, const struct mr_rows *rows, uint64_t row,
                      const struct mr_rows *others, uint64_t other)
{
    for (size_t i = 0; i < b->input_count; i++) {
        if (row_elements(b, &b->inputs[i], rows, row) !=
            row_elements(b, &b->inputs[i], others, other)) {
            return false;
        }
    }
    return b->is_batched;
}

static void *data_new(struct mr_oip_tensor *t, uint64_t bytes, struct mr_arena *arena)
{
    struct mr_block *block = mr_block_new(MR_MAX(bytes, (uint64_t)1));

    if (!block || !mr_block_keep(block, arena)) {
        return NULL;
    }
    t->block = block;
    t->tensor.data = block->data;
    t->tensor.bytes = bytes;
    return block->data;
}

static void fill(int dtype, const struct batch_number *v, void *to, uint64_t n)
{
    const size_t bytes = mr_dtype_size(dtype);
    double wide;
    uint64_t one = 0;

    if (dtype == MR_DTYPE_BOOL) {
        batch_cast(&v->field, &v->i, MR_DTYPE_FP64, &wide, 1);
        one = wide != 0;
    } else {
        batch_cast(&v->field, &v->i, dtype, &one, 1);
    }
    for (uint64_t i = 0; i < n; i++) {
        memcpy((uint8_t *)to + i * bytes, &one, bytes);
    }
}

static const struct batch_number mask_of[] = {{.field.type = MR_COLUMN_I64, .i = 0},
                                              {.field.type = MR_COLUMN_I64, .i = 1}};

/* Which values of a row are there. */
static void row_mask(const struct batch_bind *b, const struct input *in, int column,
                     const struct mr_rows *rows, uint64_t row, uint8_t *to)
{
    const struct mr_column *c = &rows->columns[column];
    const size_t bytes = mr_dtype_size(in->io->dtype);

    if (mr_column_is_null(c, row)) {
        fill(in->io->dtype, &mask_of[false], to, in->column_count > 1 ? 1 : in->elements);
        return;
    }
    const struct leaf leaf = leaf_find(&b->schema->fields[column], c, row, 1);
    fill(in->io->dtype, &mask_of[true], to, leaf.end - leaf.begin);
    for (uint64_t i = leaf.begin; leaf.column->nulls > 0 && i < leaf.end; i++) {
        if (mr_column_is_null(leaf.column, i)) {
            fill(in->io->dtype, &mask_of[false], to + (i - leaf.begin) * bytes, 1);
        }
    }
}

/* The values of a row, each null replaced. */
static void row_cast(const struct batch_bind *b, const struct input *in, int column,
                     const struct mr_rows *rows, uint64_t row, uint8_t *to)
{
    const struct mr_column *c = &rows->columns[column];
    const size_t bytes = mr_dtype_size(in->io->dtype);

    if (mr_column_is_null(c, row)) {
        fill(in->io->dtype, &b->null_value, to, in->column_count > 1 ? 1 : in->elements);
        return;
    }
    const struct mr_field *f = &b->schema->fields[column];
    const struct mr_field *from = leaf_of(f);
    const struct leaf leaf = leaf_find(f, c, row, 1);
    const uint64_t n = leaf.end - leaf.begin;
    batch_cast(from,
               (const uint8_t *)leaf.column->values + leaf.begin * mr_column_type_bytes(from->type),
               in->io->dtype, to, (size_t)n);
    for (uint64_t i = 0; leaf.column->nulls > 0 && i < n; i++) {
        if (mr_column_is_null(leaf.column, leaf.begin + i)) {
            fill(in->io->dtype, &b->null_value, to + i * bytes, 1);
        }
    }
}

/* Of the column's own type and without nulls: as the model takes them. */
static bool is_plain(const struct batch_bind *b, const struct input *in, const struct mr_rows *rows,
                     struct leaf *out, uint64_t first, uint64_t count)
{
    if (in->is_mask || in->column_count != 1) {
        return false;
    }
    const struct mr_field *f = &b->schema->fields[in->columns[0]];
    const struct mr_column *c = &rows->columns[in->columns[0]];
    if (leaf_of(f)->type != batch_type_of(in->io->dtype)) {
        return false;
    }
    *out = leaf_find(f, c, first, count);
    return c->nulls == 0 && out->column->nulls == 0;
}

/* The values of a range in sequence. */
static void range_cast(const struct batch_bind *b, const struct input *in,
                       const struct batch_row_range *s, uint64_t elements, uint8_t *to)
{
    const size_t bytes = mr_dtype_size(in->io->dtype);
    struct leaf leaf;

    if (in->column_count == 0) {
        fill(in->io->dtype, &in->constant, to, s->count * elements);
        return;
    }
    if (is_plain(b, in, s->rows, &leaf, s->first, s->count)) {
        memcpy(to, (const uint8_t *)leaf.column->values + leaf.begin * bytes,
               (leaf.end - leaf.begin) * bytes);
        return;
    }
    for (uint64_t r = 0; r < s->count; r++) {
        for (size_t k = 0; k < in->column_count; k++) {
            (in->is_mask ? row_mask : row_cast)(b, in, in->columns[k], s->rows, s->first + r,
                                                to + (r * elements + k) * bytes);
        }
    }
}

/* A call's ranges, and what is the same for all of its inputs. */
struct making {
    const struct batch_bind *b;
    const struct batch_row_range *ranges;
    size_t range_count;
    uint64_t count; /* of rows */
    struct mr_arena *arena;
};

static bool make_values(const struct making *m, const struct input *in, uint64_t elements,
                        struct mr_oip_tensor *t)
{
    const size_t bytes = mr_dtype_size(in->io->dtype);
    const struct batch_row_range *s = m->ranges;
    struct leaf leaf;

    if (m->range_count == 1 && is_plain(m->b, in, s->rows, &leaf, s->first, s->count)) {
        /* Encoders read only. */
        t->tensor.data = (uint8_t *)(uintptr_t)leaf.column->values + leaf.begin * bytes;
        t->tensor.bytes = (leaf.end - leaf.begin) * bytes;
        return true;
    }
    uint8_t *to = data_new(t, m->count * elements * bytes, m->arena);
    for (size_t i = 0; to && i < m->range_count; i++, s++) {
        range_cast(m->b, in, s, elements, to);
        to += s->count * elements * bytes;
    }
    return to;
}

/* The strings of a row into `to`; NULL: only their bytes are counted. Stacked columns alternate. */
static uint64_t row_bytes(const struct batch_bind *b, const struct input *in,
                          const struct mr_rows *rows, uint64_t row, uint8_t *to)
{
    uint64_t bytes = 0;

    for (size_t k = 0; k < in->column_count; k++) {
        const int column = in->columns[k];
        const struct leaf leaf =
            leaf_find(&b->schema->fields[column], &rows->columns[column], row, 1);
        for (uint64_t i = leaf.begin; i < leaf.end; i++) {
            const mr_bytes v = mr_column_bytes(leaf.column, i);
            const uint32_t len = (uint32_t)v.len;
            if (to) {
                memcpy(to + bytes, &len, sizeof len);
                memcpy(to + bytes + sizeof len, v.ptr, v.len);
            }
            bytes += sizeof len + v.len;
        }
    }
    return bytes;
}

static bool make_bytes(const struct making *m, const struct input *in, struct mr_oip_tensor *t)
{
    uint64_t bytes = 0;

    for (const struct batch_row_range *s = m->ranges; s < m->ranges + m->range_count; s++) {
        for (uint64_t r = s->first; r < s->first + s->count; r++) {
            bytes += row_bytes(m->b, in, s->rows, r, NULL);
        }
    }
    uint8_t *to = data_new(t, bytes, m->arena);
    for (const struct batch_row_range *s = m->ranges; to && s < m->ranges + m->range_count; s++) {
        for (uint64_t r = s->first; r < s->first + s->count; r++) {
            to += row_bytes(m->b, in, s->rows, r, to);
        }
    }
    return to;
}

static bool input_make(const struct making *m, const struct input *in, struct mr_oip_tensor *t)
{
    const uint64_t elements = row_elements(m->b, in, m->ranges[0].rows, m->ranges[0].first);
    int64_t *shape = MR_ARENA_ARRAY(m->arena, int64_t, (size_t)in->io->rank + 1);

    if (!shape) {
        return false;
    }
    for (int d = 0; d < in->io->rank; d++) {
        shape[d] = d == in->dynamic ? (int64_t)(elements / in->elements) : in->io->shape[d];
    }
    if (m->b->is_batched) {
        shape[0] = (int64_t)m->count;
    }
    *t = (struct mr_oip_tensor){
        .name = in->io->name,
        .binary = true,
        .tensor = {.dtype = in->io->dtype, .rank = in->io->rank, .shape = shape}};
    return in->io->dtype == MR_DTYPE_BYTES ? make_bytes(m, in, t) : make_values(m, in, elements, t);
}

int batch_bind_make(const struct batch_bind *b, const struct batch_row_range *ranges,
                    size_t range_count, struct mr_arena *arena, struct mr_oip_tensor *tensors,
                    struct mr_err *err)
{
    struct making m = {.b = b, .ranges = ranges, .range_count = range_count, .arena = arena};

    for (size_t i = 0; i < range_count; i++) {
        m.count += ranges[i].count;
    }
    for (size_t i = 0; i < b->input_count; i++) {
        if (!input_make(&m, &b->inputs[i], &tensors[i])) {
            return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for input '%.*s' of %llu rows",
                           (int)b->inputs[i].io->name.len, b->inputs[i].io->name.ptr,
                           (unsigned long long)m.count);
        }
    }
    return MR_OK;
}
