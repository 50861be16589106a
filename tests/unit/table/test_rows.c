/* Rows and builders: layout, nulls, cutting back, ownership, no memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "table/rows.h"
#include "table/table.h"

static struct mr_field item = {.name = (char *)"element", .type = MR_COLUMN_F32};

static struct mr_field list(enum mr_column_type type, uint64_t width)
{
    return (struct mr_field){
        .name = (char *)"l", .type = type, .is_nullable = true, .width = width, .item = &item};
}

static struct mr_rows *rows_of(const struct mr_schema *s, struct mr_column_builder *b)
{
    struct mr_rows *r = mr_rows_new(s);
    struct mr_err err;

    assert_non_null(r);
    r->count = b->count;
    assert_int_equal(mr_column_builder_finish(b, r, 0, &err), MR_OK);
    assert_int_equal(mr_rows_check(r, &err), MR_OK);
    return r;
}

static void numbers_and_nulls(void **state)
{
    struct mr_schema s = {0};
    struct mr_column_builder b;

    (void)state;
    mr_schema_add(&s, &(struct mr_field){.name = (char *)"n", .type = MR_COLUMN_I32});
    mr_column_builder_init(&b, &s.fields[0]);
    for (int32_t i = 0; i < 100; i++) {
        if (i % 10 == 9) {
            mr_column_add_null(&b);
        } else {
            mr_column_add(&b, &i);
        }
    }
    struct mr_rows *r = rows_of(&s, &b);
    assert_int_equal(r->columns[0].nulls, 10);
    for (int32_t i = 0; i < 100; i++) {
        assert_int_equal(mr_column_is_null(&r->columns[0], (uint64_t)i), i % 10 == 9);
        assert_int_equal(((const int32_t *)r->columns[0].values)[i], i % 10 == 9 ? 0 : i);
    }
    mr_rows_unref(&r);
    /* The builder starts again, without nulls and without bits. */
    memcpy(mr_column_room(&b, 3), (int32_t[]){7, 8, 9}, 12);
    mr_column_took(&b, 3);
    r = rows_of(&s, &b);
    assert_null(r->columns[0].valid);
    assert_int_equal(r->columns[0].count, 3);
    mr_rows_unref(&r);
    mr_column_builder_fini(&b);
    mr_schema_fini(&s);
}

static void strings(void **state)
{
    struct mr_schema s = {0};
    struct mr_column_builder b;

    (void)state;
    mr_schema_add(&s, &(struct mr_field){.name = (char *)"s", .type = MR_COLUMN_STRING});
    mr_column_builder_init(&b, &s.fields[0]);
    mr_column_add_bytes(&b, mr_str_c("one"));
    mr_column_add_null(&b);
    mr_column_add_bytes(&b, mr_str_c(""));
    mr_column_add_bytes(&b, mr_str_c("wrong"));
    mr_column_cut(&b, 3);
    mr_column_add_bytes(&b, mr_str_c("four"));
    struct mr_rows *r = rows_of(&s, &b);
    const struct mr_column *c = &r->columns[0];
    assert_int_equal(c->nulls, 1);
    assert_memory_equal(mr_column_bytes(c, 0).ptr, "one", 3);
    assert_int_equal(mr_column_bytes(c, 1).len, 0);
    assert_int_equal(mr_column_bytes(c, 2).len, 0);
    assert_int_equal(mr_column_bytes(c, 3).len, 4);
    assert_memory_equal(mr_column_bytes(c, 3).ptr, "four", 4);
    mr_rows_unref(&r);
    /* None at all still has its one offset. */
    r = rows_of(&s, &b);
    assert_int_equal(r->columns[0].begin[0], 0);
    mr_rows_unref(&r);
    mr_column_builder_fini(&b);
    mr_schema_fini(&s);
}

static void add_list(struct mr_column_builder *b, int n)
{
    for (int i = 0; i < n; i++) {
        mr_column_add(b->item, &(float){(float)(10 * n + i)});
    }
    mr_column_end_list(b);
}

static void lists(void **state)
{
    struct mr_schema s = {0};
    struct mr_column_builder b;

    (void)state;
    struct mr_field f = list(MR_COLUMN_LIST, 0);
    mr_schema_add(&s, &f);
    mr_column_builder_init(&b, &s.fields[0]);
    add_list(&b, 2);
    mr_column_add_null(&b);
    add_list(&b, 0);
    add_list(&b, 5);
    mr_column_cut(&b, 3);
    add_list(&b, 1);
    struct mr_rows *r = rows_of(&s, &b);
    const struct mr_column *c = &r->columns[0];
    assert_int_equal(c->count, 4);
    assert_int_equal(c->nulls, 1);
    assert_memory_equal(c->begin, ((uint64_t[]){0, 2, 2, 2, 3}), 40);
    assert_memory_equal(c->item->values, ((float[]){20, 21, 10}), 12);
    mr_rows_unref(&r);
    mr_column_builder_fini(&b);
    mr_schema_fini(&s);
}

static void fixed_lists(void **state)
{
    struct mr_schema s = {0};
    struct mr_column_builder b;

    (void)state;
    struct mr_field f = list(MR_COLUMN_FIXED_LIST, 2);
    mr_schema_add(&s, &f);
    mr_column_builder_init(&b, &s.fields[0]);
    add_list(&b, 2);
    mr_column_add_null(&b);
    add_list(&b, 2);
    add_list(&b, 2);
    mr_column_cut(&b, 3);
    struct mr_rows *r = rows_of(&s, &b);
    const struct mr_column *c = &r->columns[0];
    assert_int_equal(c->count, 3);
    assert_int_equal(c->item->count, 6);
    assert_int_equal(c->item->nulls, 2);
    assert_memory_equal(c->item->values, ((float[]){20, 21, 0, 0, 20, 21}), 24);
    mr_rows_unref(&r);
    mr_column_builder_fini(&b);
    mr_schema_fini(&s);
}

static void faults_are_found(void **state)
{
    struct mr_schema s = {0};

    (void)state;
    struct mr_rows *r = mr_rows_new(&s);
    for (uint64_t i = 3; i < 100; i += 7) {
        assert_true(mr_rows_fault(r, i, i == 10 ? "column 'x': not a number" : "other"));
    }
    assert_string_equal(mr_rows_fault_of(r, 10), "column 'x': not a number");
    assert_string_equal(mr_rows_fault_of(r, 94), "other");
    assert_null(mr_rows_fault_of(r, 11));
    assert_null(mr_rows_fault_of(r, 1000));
    mr_rows_unref(&r);
}

static void bad_rows_are_refused(void **state)
{
    struct mr_schema s = {0};
    struct mr_err err;

    (void)state;
    mr_schema_add(&s, &(struct mr_field){.name = (char *)"s", .type = MR_COLUMN_STRING});
    struct mr_rows *r = mr_rows_new(&s);
    r->count = 2;
    assert_int_equal(mr_rows_check(r, &err), MR_E_INVALID); /* no column yet */
    r->columns[0] = (struct mr_column){.count = 2, .begin = (uint64_t[]){0, 5, 4}};
    assert_int_equal(mr_rows_check(r, &err), MR_E_INVALID);
    r->columns[0].begin = (uint64_t[]){0, 5, 5};
    assert_int_equal(mr_rows_check(r, &err), MR_OK);
    r->columns[0].valid = (uint8_t[]){1};
    assert_int_equal(mr_rows_check(r, &err), MR_E_INVALID); /* one null, none counted */
    r->columns[0].nulls = 1;
    assert_int_equal(mr_rows_check(r, &err), MR_OK);
    mr_rows_unref(&r);
    mr_schema_fini(&s);
}

/* At any failed allocation the builder reports it, and nothing is lost or leaked (sanitizers check). */
static void no_memory(void **state)
{
    struct mr_schema s = {0};
    struct mr_field f = list(MR_COLUMN_LIST, 0);
    struct mr_err err;
    int ended = 0;

    (void)state;
    mr_schema_add(&s, &f);
    for (uint64_t n = 1; !ended; n++) {
        struct mr_column_builder b;
        mr_column_builder_init(&b, &s.fields[0]);
        mr_mem_fail_after(n);
        for (int i = 0; i < 50; i++) {
            if (i % 3 == 1) {
                mr_column_add_null(&b);
            } else {
                add_list(&b, 3);
            }
        }
        struct mr_rows *r = mr_rows_new(&s);
        if (r) {
            r->count = 50;
            int rc = mr_column_builder_finish(&b, r, 0, &err);
            ended = rc == MR_OK;
            assert_true(ended || rc == MR_E_EXHAUSTED);
            assert_true(!ended || mr_rows_check(r, &err) == MR_OK);
        }
        mr_mem_fail_after(0);
        mr_rows_unref(&r);
        mr_column_builder_fini(&b);
    }
    mr_schema_fini(&s);
}

/* Text, lists, lists of one width and numbers, in JSON as they are in rows 0, 1, 2 … */
static void copies_of_some_rows(void **state)
{
    struct mr_field fields[] = {{.name = (char *)"n", .type = MR_COLUMN_I32},
                                {.name = (char *)"s", .type = MR_COLUMN_STRING},
                                list(MR_COLUMN_LIST, 0),
                                list(MR_COLUMN_FIXED_LIST, 2)};
    struct mr_schema s = {.fields = fields, .count = 4};
    struct mr_column_builder b[4];
    struct mr_rows *r = mr_rows_new(&s);
    struct mr_buf want;
    struct mr_buf have;
    struct mr_buf left;
    struct mr_err err;

    (void)state;
    fields[3].name = (char *)"f";
    for (size_t i = 0; i < 4; i++) {
        mr_column_builder_init(&b[i], &fields[i]);
    }
    for (int32_t i = 0; i < 40; i++) {
        if (i % 7 == 3) {
            for (size_t k = 0; k < 3; k++) {
                mr_column_add_null(&b[k]);
            }
        } else {
            mr_column_add(&b[0], &i);
            mr_column_add_bytes(&b[1], mr_str_sub(MR_STR("abcdefghij"), 0, (size_t)i % 5));
            add_list(&b[2], i % 4);
        }
        add_list(&b[3], 2);
    }
    r->count = 40;
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(mr_column_builder_finish(&b[i], r, i, &err), MR_OK);
        mr_column_builder_fini(&b[i]);
    }
    struct mr_rows *copy = mr_rows_copy(r, 9, 20);
    assert_non_null(copy);
    assert_int_equal(mr_rows_check(copy, &err), MR_OK);
    assert_int_equal(copy->count, 20);
    mr_buf_init(&want, 0);
    mr_buf_init(&have, 0);
    mr_buf_init(&left, 0);
    for (uint64_t i = 0; i < 20; i++) {
        mr_row_put_json(&want, r, 9 + i, 1000, &left);
        mr_row_put_json(&have, copy, i, 1000, &left);
    }
    mr_rows_unref(&r); /* the copy needs nothing of it */
    assert_string_equal(mr_buf_cstr(&have), mr_buf_cstr(&want));
    mr_rows_unref(&copy);
    mr_buf_fini(&want);
    mr_buf_fini(&have);
    mr_buf_fini(&left);
}

static void texts_and_copies(void **state)
{
    struct mr_field f = list(MR_COLUMN_FIXED_LIST, 64);
    struct mr_field copy;
    char text[64];

    (void)state;
    assert_string_equal(mr_field_text(&f, text, sizeof text), "FIXED_LIST<F32>[64]");
    assert_string_equal(mr_field_text(&f, text, 6), "FIXED");
    mr_field_copy(&copy, &f);
    assert_true(mr_field_equals(&copy, &f));
    copy.width = 63;
    assert_false(mr_field_equals(&copy, &f));
    mr_field_fini(&copy);
}

static bool no_room_seen(void *count, const struct mr_err *err)
{
    assert_int_equal(err->status, MR_E_EXHAUSTED);
    return ++*(int *)count < 3;
}

/* Whatever is written first, the owner of a full disk is asked whether to try again. */
static void full_disk(void **state)
{
    static const enum mr_table_format formats[] = {MR_TABLE_CSV, MR_TABLE_ARROW, MR_TABLE_PARQUET};
    const int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    struct mr_schema schema = {0};

    (void)state;
    mr_schema_add(&schema, &(struct mr_field){.name = (char *)"a", .type = MR_COLUMN_I64});
    for (size_t i = 0; i < 2 * sizeof formats / sizeof *formats; i++) { /* each as a stream, too */
        int count = 0;
        const struct mr_writer_options options = {
            .format = formats[i / 2], .is_stream = i % 2, .on_no_room = {no_room_seen, &count}};
        struct mr_writer *w = NULL;
        int rc = mr_writer_new(&w, fd, &schema, &options, NULL);
        rc = rc < 0 ? rc : mr_writer_finish(w, NULL);
        mr_writer_free(&w);
        assert_int_equal(rc, MR_E_EXHAUSTED);
        assert_int_equal(count, 3);
    }
    mr_schema_fini(&schema);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_and_nulls),
        cmocka_unit_test(strings),
        cmocka_unit_test(lists),
        cmocka_unit_test(fixed_lists),
        cmocka_unit_test(faults_are_found),
        cmocka_unit_test(bad_rows_are_refused),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(copies_of_some_rows),
        cmocka_unit_test(texts_and_copies),
        cmocka_unit_test(full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
