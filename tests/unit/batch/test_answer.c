/* Answers as rows: a part of an answer is the rows that it answers, with their own input. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/pool.h"
#include "batch/protocols/oip/answer.h"
#include "tensor/tensor.h"

struct fixture {
    struct mr_oip_io input;
    struct mr_oip_io outputs[4];
    struct mr_oip_metadata m;
    struct mr_schema schema;
    struct mr_rows *rows; /* key 0, 10, 20, … */
    struct batch_outputs *made;
    struct mr_block *body;
    int64_t shapes[4][3];
    struct mr_oip_tensor tensors[4];
    struct mr_oip_response answer;
    struct mr_err err;
};

static void output(struct fixture *f, size_t i, const char *name, int dtype, int64_t width,
                   void *data, uint64_t bytes)
{
    const int rank = width ? 2 : 1;

    f->outputs[i] = (struct mr_oip_io){
        .name = mr_str_c(name), .dtype = dtype, .rank = rank, .shape = {-1, width}};
    memcpy(f->shapes[i], ((int64_t[]){4, width}), sizeof(int64_t[2]));
    f->tensors[i] = (struct mr_oip_tensor){
        .name = mr_str_c(name),
        .tensor = {
            .dtype = dtype, .rank = rank, .shape = f->shapes[i], .data = data, .bytes = bytes}};
}

/* Four rows: y lies in the body, z elsewhere, s has two strings a row, and the bytes of t are not only 0 and 1. */
static void init(struct fixture *f)
{
    static const float y[8] = {0, 1, 10, 11, 20, 21, 30, 31};
    static int64_t z[4] = {5, 6, 7, 8};
    static char s[] = "\1\0\0\0a\0\0\0\0\2\0\0\0bb\1\0\0\0c\3\0\0\0ddd\0\0\0\0\1\0\0\0e\1\0\0\0f";
    static uint8_t t[4] = {2, 0, 1, 255};
    struct mr_column_builder b;
    const struct mr_field key = {.name = (char *)(uintptr_t) "key", .type = MR_COLUMN_I64};
    const char *const kept[] = {"key"};
    const struct batch_outputs_options o = {.carried = kept, .carried_count = 1};

    memset(f, 0, sizeof *f);
    f->body = mr_block_new(1024);
    memcpy(f->body->data, y, sizeof y);
    f->input = (struct mr_oip_io){
        .name = MR_STR("key"), .dtype = MR_DTYPE_INT64, .rank = 1, .shape = {-1}};
    output(f, 0, "y", MR_DTYPE_FP32, 2, f->body->data, sizeof y);
    output(f, 1, "z", MR_DTYPE_INT64, 0, z, sizeof z);
    output(f, 2, "s", MR_DTYPE_BYTES, 2, s, sizeof s - 1);
    output(f, 3, "t", MR_DTYPE_BOOL, 0, t, sizeof t);
    f->answer = (struct mr_oip_response){.outputs = f->tensors, .output_count = 4};
    f->m = (struct mr_oip_metadata){
        .inputs = &f->input, .input_count = 1, .outputs = f->outputs, .output_count = 4};
    mr_schema_add(&f->schema, &key);
    mr_column_builder_init(&b, &f->schema.fields[0]);
    for (int64_t i = 0; i < 6; i++) {
        mr_column_add(&b, &(int64_t){10 * i});
    }
    f->rows = mr_rows_new(&f->schema);
    f->rows->count = 6;
    assert_int_equal(mr_column_builder_finish(&b, f->rows, 0, &f->err), MR_OK);
    mr_column_builder_fini(&b);
    assert_int_equal(batch_outputs_new(&f->made, &f->m, &f->schema, &o, &f->err), MR_OK);
    assert_int_equal(batch_answer_check(f->made, &f->answer, 4, &f->err), MR_OK);
}

static void fini(struct fixture *f)
{
    batch_outputs_free(&f->made);
    mr_rows_unref(&f->rows);
    mr_block_unref(&f->body);
    mr_schema_fini(&f->schema);
}

/* Rows [first, first + count) of the answer to rows of the input from `input` on. */
static struct mr_rows *part(struct fixture *f, bool is_kept, uint64_t first, uint64_t count,
                            uint64_t input)
{
    const struct batch_answer_part p = {&f->answer, is_kept ? f->body : NULL, first, count, 4};
    struct mr_rows *rows = NULL;

    assert_int_equal(batch_answer_rows(f->made, f->rows, input, &p, &rows, &f->err), MR_OK);
    assert_int_equal(rows->count, count);
    assert_int_equal(mr_rows_check(rows, &f->err), MR_OK);
    return rows;
}

static void parts_are_their_rows(void **state)
{
    static const char *const strings[] = {"a", "", "bb", "c", "ddd", "", "e", "f"};
    struct fixture f;

    (void)state;
    init(&f);
    for (int is_kept = 0; is_kept < 2; is_kept++) {
        for (uint64_t first = 0; first < 4; first++) {
            for (uint64_t count = 1; first + count <= 4; count++) {
                struct mr_rows *rows = part(&f, is_kept, first, count, 1);
                for (uint64_t i = 0; i < count; i++) {
                    const struct mr_column *c = rows->columns;
                    const float *y = (const float *)c[1].item->values + 2 * i;
                    assert_int_equal(((const int64_t *)c[0].values)[i], 10 * (1 + i));
                    assert_true(y[0] == (float)(10 * (first + i)) && y[1] == y[0] + 1);
                    assert_int_equal(((const int64_t *)c[2].values)[i], 5 + first + i);
                    assert_int_equal(((const uint8_t *)c[4].values)[i], first + i != 1);
                    for (uint64_t k = 0; k < 2; k++) {
                        const mr_bytes s = mr_column_bytes(c[3].item, 2 * i + k);
                        const char *want = strings[2 * (first + i) + k];
                        assert_int_equal(s.len, strlen(want));
                        assert_memory_equal(s.ptr, want, s.len);
                    }
                }
                mr_rows_unref(&rows);
            }
        }
    }
    fini(&f);
}

/* A part keeps the body alive, and all parts together account for all of it. */
static void parts_share_the_body(void **state)
{
    struct fixture f;

    (void)state;
    init(&f);
    struct mr_rows *whole = part(&f, true, 0, 4, 0);
    struct mr_rows *one = part(&f, true, 0, 1, 0);
    struct mr_rows *three = part(&f, true, 1, 3, 1);
    assert_ptr_equal(three->columns[1].item->values, (const float *)(void *)f.body->data + 2);
    assert_true(one->bytes < whole->bytes && three->bytes < whole->bytes);
    assert_true(whole->bytes - one->bytes >= f.body->cap / 2);
    mr_rows_unref(&whole);
    mr_rows_unref(&one);
    mr_block_unref(&f.body);
    assert_true(((const float *)three->columns[1].item->values)[5] == 31);
    mr_rows_unref(&three);
    fini(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_their_rows),
        cmocka_unit_test(parts_share_the_body),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
