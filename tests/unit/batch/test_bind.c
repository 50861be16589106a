/* Columns as inputs: every fault of a row is reported for that row, and the sent values equal those of the table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "batch/protocols/oip/bind.h"
#include "batch/protocols/oip/number.h"

static struct mr_oip_io io(const char *name, int dtype, int rank, int64_t d1, int64_t d2)
{
    return (struct mr_oip_io){
        .name = mr_str_c(name), .dtype = dtype, .rank = rank, .shape = {-1, d1, d2}};
}

struct fixture {
    struct mr_oip_io inputs[2];
    struct mr_oip_io output;
    struct mr_oip_metadata m;
    struct mr_schema schema;
    struct batch_bind *bind;
    struct mr_rows *rows;
    struct mr_arena arena;
    struct mr_oip_tensor tensors[2];
    struct mr_err err;
};

static void init(struct fixture *f, struct mr_oip_io input)
{
    memset(f, 0, sizeof *f);
    f->inputs[0] = input;
    f->output = io("y", MR_DTYPE_FP32, 1, 0, 0);
    f->m = (struct mr_oip_metadata){
        .inputs = f->inputs, .input_count = 1, .outputs = &f->output, .output_count = 1};
    mr_arena_init(&f->arena, 1024, SIZE_MAX);
}

static void column(struct fixture *f, const char *name, enum mr_column_type type,
                   enum mr_column_type item, uint64_t width)
{
    struct mr_field e = {.name = (char *)"element", .type = item, .is_nullable = true};
    struct mr_field field = {.name = (char *)(uintptr_t)name,
                             .type = type,
                             .width = width,
                             .is_nullable = true,
                             .item = item ? &e : NULL};
    mr_schema_add(&f->schema, &field);
}

static int bind(struct fixture *f, const char *from)
{
    const struct mr_batch_map map = {"x", from};
    const struct batch_bind_options o = {.maps = &map, .map_count = from ? 1 : 0};
    return batch_bind_new(&f->bind, &f->m, &f->schema, &o, &f->err);
}

static void give(struct fixture *f, struct mr_column_builder *b, size_t count)
{
    f->rows = mr_rows_new(&f->schema);
    f->rows->count = b[0].count;
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(mr_column_builder_finish(&b[i], f->rows, i, &f->err), MR_OK);
        mr_column_builder_fini(&b[i]);
    }
    assert_int_equal(mr_rows_check(f->rows, &f->err), MR_OK);
}

static int make(struct fixture *f, uint64_t first, uint64_t count)
{
    return batch_bind_make(f->bind, &(struct batch_row_range){f->rows, first, count}, 1, &f->arena,
                           f->tensors, &f->err);
}

/* Rows 2 and 3, then row 0, as if of different places. */
static int make_joined(struct fixture *f)
{
    const struct batch_row_range ranges[] = {{f->rows, 2, 2}, {f->rows, 0, 1}};

    return batch_bind_make(f->bind, ranges, 2, &f->arena, f->tensors, &f->err);
}

static void fini(struct fixture *f)
{
    mr_arena_fini(&f->arena);
    mr_rows_unref(&f->rows);
    batch_bind_free(&f->bind);
    mr_schema_fini(&f->schema);
}

static void list_add(struct mr_column_builder *b, int n, float from)
{
    for (int i = 0; i < n; i++) {
        mr_column_add(b->item, &(float){from + (float)i});
    }
    mr_column_end_list(b);
}

/* One row too short and one too long cancel out in the flattened values. */
static void lengths_that_cancel_out(void **state)
{
    struct fixture f;
    struct mr_column_builder b;
    char why[256];

    (void)state;
    init(&f, io("x", MR_DTYPE_FP32, 2, 4, 0));
    column(&f, "x", MR_COLUMN_LIST, MR_COLUMN_F32, 0);
    mr_column_builder_init(&b, &f.schema.fields[0]);
    list_add(&b, 4, 0);
    list_add(&b, 3, 10);
    list_add(&b, 5, 20);
    list_add(&b, 4, 30);
    give(&f, &b, 1);
    assert_int_equal(bind(&f, NULL), MR_OK);
    assert_false(batch_bind_all_good(f.bind, f.rows));
    assert_false(batch_bind_is_bad(f.bind, f.rows, 0, why));
    assert_true(batch_bind_is_bad(f.bind, f.rows, 1, why));
    assert_string_equal(why, "column 'x' has 3 values, and input 'x' has shape [-1,4]");
    assert_true(batch_bind_is_bad(f.bind, f.rows, 2, why));
    assert_false(batch_bind_is_bad(f.bind, f.rows, 3, why));
    fini(&f);
}

static void numbers_are_sent_from_where_they_lie(void **state)
{
    struct fixture f;
    struct mr_column_builder b;

    (void)state;
    init(&f, io("x", MR_DTYPE_FP32, 2, 2, 0));
    column(&f, "x", MR_COLUMN_FIXED_LIST, MR_COLUMN_F32, 2);
    mr_column_builder_init(&b, &f.schema.fields[0]);
    for (int i = 0; i < 5; i++) {
        list_add(&b, 2, (float)(10 * i));
    }
    give(&f, &b, 1);
    assert_int_equal(bind(&f, NULL), MR_OK);
    assert_true(batch_bind_all_good(f.bind, f.rows));
    assert_int_equal(make(&f, 1, 3), MR_OK);
    assert_ptr_equal(f.tensors[0].tensor.data, (const float *)f.rows->columns[0].item->values + 2);
    assert_int_equal(f.tensors[0].tensor.bytes, 24);
    assert_int_equal(f.tensors[0].tensor.shape[0], 3);
    assert_int_equal(f.tensors[0].tensor.shape[1], 2);

    assert_true(batch_bind_joins(f.bind, f.rows, 3, f.rows, 0));
    assert_int_equal(make_joined(&f), MR_OK);
    assert_int_equal(f.tensors[0].tensor.shape[0], 3);
    assert_int_equal(f.tensors[0].tensor.bytes, 24);
    assert_memory_equal(f.tensors[0].tensor.data, ((float[]){20, 21, 30, 31, 0, 1}), 24);
    fini(&f);
}

static void casts_and_their_limits(void **state)
{
    struct fixture f;
    struct mr_column_builder b;
    char why[256];

    (void)state;
    init(&f, io("x", MR_DTYPE_INT8, 1, 0, 0));
    column(&f, "x", MR_COLUMN_F64, MR_COLUMN_NONE, 0);
    mr_column_builder_init(&b, &f.schema.fields[0]);
    for (int i = 0; i < 4; i++) {
        mr_column_add(&b, (double[]){-128, 127.5, 128, 7} + i);
    }
    give(&f, &b, 1);
    assert_int_equal(bind(&f, NULL), MR_OK);
    assert_false(batch_bind_is_bad(f.bind, f.rows, 0, why));
    assert_true(batch_bind_is_bad(f.bind, f.rows, 1, why));
    assert_true(batch_bind_is_bad(f.bind, f.rows, 2, why));
    assert_string_equal(why, "column 'x': value 0 does not fit INT8 of input 'x'");
    assert_int_equal(make(&f, 3, 1), MR_OK);
    assert_int_equal(*(int8_t *)f.tensors[0].tensor.data, 7);
    fini(&f);
}

static void nulls(void **state)
{
    const struct batch_bind_options o = {.null_value = "-1"};
    struct fixture f;
    struct mr_column_builder b;
    char why[256];

    (void)state;
    init(&f, io("x", MR_DTYPE_FP32, 2, 2, 0));
    column(&f, "x", MR_COLUMN_LIST, MR_COLUMN_F32, 0);
    mr_column_builder_init(&b, &f.schema.fields[0]);
    list_add(&b, 2, 1);
    mr_column_add_null(&b);
    mr_column_add(b.item, &(float){5});
    mr_column_add_null(b.item);
    mr_column_end_list(&b);
    give(&f, &b, 1);
    assert_int_equal(bind(&f, NULL), MR_OK);
    assert_true(batch_bind_is_bad(f.bind, f.rows, 1, why));
    assert_string_equal(why, "column 'x' is null");
    assert_true(batch_bind_is_bad(f.bind, f.rows, 2, why));
    assert_string_equal(why, "column 'x': value 1 is null");
    batch_bind_free(&f.bind);
    assert_int_equal(batch_bind_new(&f.bind, &f.m, &f.schema, &o, &f.err), MR_OK);
    for (uint64_t r = 0; r < 3; r++) {
        assert_false(batch_bind_is_bad(f.bind, f.rows, r, why));
    }
    assert_int_equal(make(&f, 0, 3), MR_OK);
    assert_memory_equal(f.tensors[0].tensor.data, ((float[]){1, 2, -1, -1, 5, -1}), 24);
    const struct batch_row_range ranges[] = {{f.rows, 2, 1}, {f.rows, 0, 2}};
    assert_int_equal(batch_bind_make(f.bind, ranges, 2, &f.arena, f.tensors, &f.err), MR_OK);
    assert_memory_equal(f.tensors[0].tensor.data, ((float[]){5, -1, 1, 2, -1, -1}), 24);
    fini(&f);
}

/* A mask marks the nulls of a column, which are then not faults of their rows. */
static void masks(void **state)
{
    const struct mr_batch_map maps[] = {{"k", "mask(x)"}};
    const struct batch_bind_options o = {.maps = maps, .map_count = 1};
    struct fixture f;
    struct mr_column_builder b;
    struct mr_schema wanted = {0};
    char why[256];

    (void)state;
    init(&f, io("x", MR_DTYPE_FP32, 2, 2, 0));
    f.inputs[1] = io("k", MR_DTYPE_BOOL, 2, 2, 0);
    f.m.input_count = 2;
    assert_int_equal(batch_bind_wanted(&f.m, &o, &wanted, &f.err), MR_OK);
    assert_int_equal(wanted.count, 1);
    assert_int_equal(wanted.fields[0].item->type, MR_COLUMN_F32);
    mr_schema_fini(&wanted);
    column(&f, "x", MR_COLUMN_LIST, MR_COLUMN_F32, 0);
    mr_column_builder_init(&b, &f.schema.fields[0]);
    list_add(&b, 2, 1);
    mr_column_add_null(&b);
    mr_column_add(b.item, &(float){5});
    mr_column_add_null(b.item);
    mr_column_end_list(&b);
    list_add(&b, 3, 1);
    give(&f, &b, 1);
    assert_int_equal(batch_bind_new(&f.bind, &f.m, &f.schema, &o, &f.err), MR_OK);
    assert_false(batch_bind_all_good(f.bind, f.rows));
    for (uint64_t r = 0; r < 3; r++) {
        assert_false(batch_bind_is_bad(f.bind, f.rows, r, why));
    }
    assert_true(batch_bind_is_bad(f.bind, f.rows, 3, why));
    assert_int_equal(make(&f, 0, 3), MR_OK);
    assert_memory_equal(f.tensors[0].tensor.data, ((float[]){1, 2, 0, 0, 5, 0}), 24);
    assert_memory_equal(f.tensors[1].tensor.data, ((bool[]){1, 1, 0, 0, 1, 0}), 6);
    fini(&f);
}

static void masks_of_several_columns(void **state)
{
    const struct mr_batch_map maps[] = {{"x", "stack(a,b)"}, {"k", "mask(a, text)"}};
    const struct batch_bind_options o = {.maps = maps, .map_count = 2, .null_value = "7"};
    struct mr_schema wanted = {0};
    struct fixture f;
    struct mr_column_builder b[3];

    (void)state;
    init(&f, io("x", MR_DTYPE_FP32, 2, 2, 0));
    f.inputs[1] = io("k", MR_DTYPE_FP16, 2, 2, 0);
    f.m.input_count = 2;
    assert_int_equal(batch_bind_wanted(&f.m, &o, &wanted, &f.err), MR_OK);
    assert_int_equal(wanted.count, 3);
    assert_int_equal(wanted.fields[2].type, MR_COLUMN_NONE);
    mr_schema_fini(&wanted);
    column(&f, "a", MR_COLUMN_I64, MR_COLUMN_NONE, 0);
    column(&f, "b", MR_COLUMN_I64, MR_COLUMN_NONE, 0);
    column(&f, "text", MR_COLUMN_STRING, MR_COLUMN_NONE, 0);
    for (size_t i = 0; i < 3; i++) {
        mr_column_builder_init(&b[i], &f.schema.fields[i]);
    }
    mr_column_add_null(&b[0]);
    mr_column_add(&b[1], &(int64_t){4});
    mr_column_add_bytes(&b[2], MR_STR("a text"));
    mr_column_add(&b[0], &(int64_t){5});
    mr_column_add_null(&b[1]);
    mr_column_add_null(&b[2]);
    give(&f, b, 3);
    assert_int_equal(batch_bind_new(&f.bind, &f.m, &f.schema, &o, &f.err), MR_OK);
    assert_int_equal(make(&f, 0, 2), MR_OK);
    assert_memory_equal(f.tensors[0].tensor.data, ((float[]){7, 4, 5, 7}), 16);
    assert_memory_equal(f.tensors[1].tensor.data, ((uint16_t[]){0, 0x3c00, 0x3c00, 0}), 8);
    fini(&f);

    init(&f, io("x", MR_DTYPE_BYTES, 1, 0, 0));
    assert_int_equal(bind(&f, "mask(text)"), MR_E_UNSUPPORTED);
    assert_string_equal(f.err.msg, "mask() makes numbers, which input 'x' does not take");
    fini(&f);
}

static void stacked_columns_and_constants(void **state)
{
    struct fixture f;
    struct mr_column_builder b[2];

    (void)state;
    init(&f, io("x", MR_DTYPE_FP32, 2, 2, 0));
    f.inputs[1] = io("k", MR_DTYPE_INT32, 2, 1, 0);
    f.m.input_count = 2;
    column(&f, "a", MR_COLUMN_I64, MR_COLUMN_NONE, 0);
    column(&f, "b", MR_COLUMN_I64, MR_COLUMN_NONE, 0);
    for (size_t i = 0; i < 2; i++) {
        mr_column_builder_init(&b[i], &f.schema.fields[i]);
        mr_column_add(&b[i], &(int64_t){(int64_t)i});
        mr_column_add(&b[i], &(int64_t){10 + (int64_t)i});
    }
    give(&f, b, 2);
    const struct mr_batch_map maps[] = {{"x", " stack( a , b )"}, {"k", "const(3)"}};
    const struct batch_bind_options o = {.maps = maps, .map_count = 2};
    assert_int_equal(batch_bind_new(&f.bind, &f.m, &f.schema, &o, &f.err), MR_OK);
    assert_int_equal(make(&f, 0, 2), MR_OK);
    assert_memory_equal(f.tensors[0].tensor.data, ((float[]){0, 1, 10, 11}), 16);
    assert_memory_equal(f.tensors[1].tensor.data, ((int32_t[]){3, 3}), 8);
    const struct batch_row_range ranges[] = {{f.rows, 1, 1}, {f.rows, 0, 1}};
    assert_int_equal(batch_bind_make(f.bind, ranges, 2, &f.arena, f.tensors, &f.err), MR_OK);
    assert_memory_equal(f.tensors[0].tensor.data, ((float[]){10, 11, 0, 1}), 16);
    assert_memory_equal(f.tensors[1].tensor.data, ((int32_t[]){3, 3}), 8);
    fini(&f);
}

static void stacked_columns_of_several_types(void **state)
{
    struct fixture f;
    struct mr_column_builder b[2];
    char why[256];

    (void)state;
    init(&f, io("x", MR_DTYPE_INT32, 2, 2, 0));
    column(&f, "a", MR_COLUMN_I32, MR_COLUMN_NONE, 0);
    column(&f, "b", MR_COLUMN_F64, MR_COLUMN_NONE, 0);
    for (size_t i = 0; i < 2; i++) {
        mr_column_builder_init(&b[i], &f.schema.fields[i]);
    }
    mr_column_add(&b[0], &(int32_t){1});
    mr_column_add(&b[1], &(double){2});
    mr_column_add(&b[0], &(int32_t){3});
    mr_column_add(&b[1], &(double){0.5});
    give(&f, b, 2);
    assert_int_equal(bind(&f, "stack(a,b)"), MR_OK);
    assert_false(batch_bind_all_good(f.bind, f.rows));
    assert_false(batch_bind_is_bad(f.bind, f.rows, 0, why));
    assert_true(batch_bind_is_bad(f.bind, f.rows, 1, why));
    assert_string_equal(why, "column 'b': value 0 does not fit INT32 of input 'x'");
    assert_int_equal(make(&f, 0, 1), MR_OK);
    assert_memory_equal(f.tensors[0].tensor.data, ((int32_t[]){1, 2}), 8);
    fini(&f);
}

static void rows_of_unlike_shape_go_apart(void **state)
{
    struct fixture f;
    struct mr_column_builder b;

    (void)state;
    init(&f, io("x", MR_DTYPE_FP32, 2, -1, 0));
    column(&f, "x", MR_COLUMN_LIST, MR_COLUMN_F32, 0);
    mr_column_builder_init(&b, &f.schema.fields[0]);
    const int widths[] = {3, 3, 3, 1, 1, 0};
    for (int i = 0; i < 6; i++) {
        list_add(&b, widths[i], (float)i);
    }
    give(&f, &b, 1);
    assert_int_equal(bind(&f, NULL), MR_OK);
    assert_int_equal(batch_bind_together(f.bind, f.rows, 0, 6), 3);
    assert_int_equal(batch_bind_together(f.bind, f.rows, 0, 2), 2);
    assert_int_equal(batch_bind_together(f.bind, f.rows, 3, 3), 2);
    assert_int_equal(batch_bind_together(f.bind, f.rows, 5, 1), 1);
    assert_int_equal(make(&f, 3, 2), MR_OK);
    assert_int_equal(f.tensors[0].tensor.shape[1], 1);
    assert_memory_equal(f.tensors[0].tensor.data, ((float[]){3, 4}), 8);
    assert_true(batch_bind_joins(f.bind, f.rows, 0, f.rows, 2));
    assert_false(batch_bind_joins(f.bind, f.rows, 0, f.rows, 3));
    fini(&f);
}

static void strings(void **state)
{
    struct fixture f;
    struct mr_column_builder b;

    (void)state;
    init(&f, io("x", MR_DTYPE_BYTES, 2, 1, 0));
    column(&f, "x", MR_COLUMN_STRING, MR_COLUMN_NONE, 0);
    mr_column_builder_init(&b, &f.schema.fields[0]);
    mr_column_add_bytes(&b, mr_str_c("ab"));
    mr_column_add_bytes(&b, mr_str_c(""));
    give(&f, &b, 1);
    assert_int_equal(bind(&f, NULL), MR_OK);
    assert_int_equal(make(&f, 0, 2), MR_OK);
    assert_int_equal(f.tensors[0].tensor.bytes, 10);
    assert_memory_equal(f.tensors[0].tensor.data, "\2\0\0\0ab\0\0\0\0", 10);
    const struct batch_row_range ranges[] = {{f.rows, 1, 1}, {f.rows, 0, 1}};
    assert_int_equal(batch_bind_make(f.bind, ranges, 2, &f.arena, f.tensors, &f.err), MR_OK);
    assert_int_equal(f.tensors[0].tensor.shape[0], 2);
    assert_memory_equal(f.tensors[0].tensor.data, "\0\0\0\0\2\0\0\0ab", 10);
    fini(&f);
}

static void what_cannot_be_bound(void **state)
{
    static const struct {
        const char *from;
        const char *text;
    } cases[] = {
        {"none", "input 'x': the table has no column 'none'; it has a, s"},
        {"s", "column 's' (STRING) cannot become input 'x' (FP32)"},
        {"stack(a,)",
         "input 'x': 'stack(a,)' is no column, stack(COLUMN,…), mask(COLUMN,…) or const(NUMBER)"},
        {"const(a)", "input 'x': 'const(a)' is not const(NUMBER)"},
        {"stack(a,a,a)", "input 'x' takes 2 values a row, and 3 scalar columns are stacked"},
        {"", "input 'x': '' is no column, stack(COLUMN,…), mask(COLUMN,…) or const(NUMBER)"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        init(&f, io("x", MR_DTYPE_FP32, 2, 2, 0));
        column(&f, "a", MR_COLUMN_F32, MR_COLUMN_NONE, 0);
        column(&f, "s", MR_COLUMN_STRING, MR_COLUMN_NONE, 0);
        int rc = bind(&f, cases[i].from);
        assert_true(rc < 0);
        assert_string_equal(f.err.msg, cases[i].text);
        fini(&f);
    }
}

/* An integer input would get another number than was written. */
static void numbers_that_do_not_fit(void **state)
{
    static const struct {
        const char *from;
        int dtype;
        bool is_right;
    } cases[] = {
        {"const(300)", MR_DTYPE_UINT8, false},
        {"const(-1)", MR_DTYPE_UINT8, false},
        {"const(0.5)", MR_DTYPE_UINT8, false},
        {"const(nan)", MR_DTYPE_UINT8, false},
        {"const(-1e39)", MR_DTYPE_FP32, false},
        {"const(65520)", MR_DTYPE_FP16, false},
        {"const(65504)", MR_DTYPE_FP16, true},
        {"const(1e38)", MR_DTYPE_FP32, true},
        {"const(-1e39)", MR_DTYPE_FP64, true},
        {"const(18446744073709551616)", MR_DTYPE_UINT64, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        init(&f, io("x", cases[i].dtype, 1, 0, 0));
        column(&f, "a", MR_COLUMN_F32, MR_COLUMN_NONE, 0);
        const int rc = bind(&f, cases[i].from);
        assert_int_equal(rc, cases[i].is_right ? MR_OK : MR_E_INVALID);
        assert_true(rc == MR_OK || strstr(f.err.msg, " does not fit "));
        fini(&f);
    }
}

/* Whole numbers that no double is. */
static void numbers_keep_their_digits(void **state)
{
    const struct mr_batch_map maps[] = {{"k", "const(18446744073709551615)"}};
    const struct batch_bind_options o = {
        .maps = maps, .map_count = 1, .null_value = "-9007199254740993"};
    struct fixture f;
    struct mr_column_builder b;

    (void)state;
    init(&f, io("x", MR_DTYPE_INT64, 1, 0, 0));
    f.inputs[1] = io("k", MR_DTYPE_UINT64, 1, 0, 0);
    f.m.input_count = 2;
    column(&f, "x", MR_COLUMN_I64, MR_COLUMN_NONE, 0);
    mr_column_builder_init(&b, &f.schema.fields[0]);
    mr_column_add_null(&b);
    give(&f, &b, 1);
    assert_int_equal(batch_bind_new(&f.bind, &f.m, &f.schema, &o, &f.err), MR_OK);
    assert_int_equal(make(&f, 0, 1), MR_OK);
    assert_memory_equal(f.tensors[0].tensor.data, &(int64_t){-9007199254740993}, 8);
    assert_memory_equal(f.tensors[1].tensor.data, &(uint64_t){UINT64_MAX}, 8);
    fini(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_that_cancel_out),
        cmocka_unit_test(numbers_are_sent_from_where_they_lie),
        cmocka_unit_test(casts_and_their_limits),
        cmocka_unit_test(nulls),
        cmocka_unit_test(masks),
        cmocka_unit_test(masks_of_several_columns),
        cmocka_unit_test(stacked_columns_and_constants),
        cmocka_unit_test(stacked_columns_of_several_types),
        cmocka_unit_test(rows_of_unlike_shape_go_apart),
        cmocka_unit_test(strings),
        cmocka_unit_test(what_cannot_be_bound),
        cmocka_unit_test(numbers_that_do_not_fit),
        cmocka_unit_test(numbers_keep_their_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
