/* Templates: every type of column as text, escapes, and what is wrong with one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/mem.h"
#include "batch/protocols/openai/template.h"

struct fixture {
    struct mr_schema schema;
    struct mr_rows *rows;
    struct mr_err err;
};

static void field(struct fixture *f, const char *name, enum mr_column_type type, bool is_json)
{
    mr_schema_add(&f->schema, &(struct mr_field){.name = (char *)(uintptr_t)name,
                                                 .type = type,
                                                 .is_json = is_json,
                                                 .is_nullable = true});
}

/* Two rows: s is "a{{" and null, n 7 and -1, d a date, j JSON: a text and an object. */
static void init(struct fixture *f)
{
    struct mr_column_builder b[4];

    memset(f, 0, sizeof *f);
    field(f, "s", MR_COLUMN_STRING, false);
    field(f, "n", MR_COLUMN_I64, false);
    field(f, "a date", MR_COLUMN_DATE, false);
    field(f, "j", MR_COLUMN_STRING, true);
    f->rows = mr_rows_new(&f->schema);
    f->rows->count = 2;
    for (size_t i = 0; i < 4; i++) {
        mr_column_builder_init(&b[i], &f->schema.fields[i]);
    }
    mr_column_add_bytes(&b[0], MR_STR("a{{"));
    mr_column_add_null(&b[0]);
    mr_column_add(&b[1], &(int64_t){7});
    mr_column_add(&b[1], &(int64_t){-1});
    mr_column_add(&b[2], &(int32_t){0});
    mr_column_add(&b[2], &(int32_t){1});
    mr_column_add_bytes(&b[3], MR_STR("\"x\\ny\""));
    mr_column_add_bytes(&b[3], MR_STR("{\"k\":1.0}"));
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(mr_column_builder_finish(&b[i], f->rows, i, &f->err), MR_OK);
    }
}

static void fini(struct fixture *f)
{
    mr_rows_unref(&f->rows);
    mr_schema_fini(&f->schema);
}

static void gives(const char *text, uint64_t row, const char *want)
{
    struct fixture f;
    struct template *t;
    struct mr_buf b;

    init(&f);
    mr_buf_init(&b, 0);
    assert_int_equal(template_new(&t, text, &f.err), MR_OK);
    assert_int_equal(template_bind(t, &f.schema, &f.schema, &f.err), MR_OK);
    template_put(t, &b, f.rows, row, MR_STR("none"));
    assert_string_equal(mr_buf_cstr(&b), want);
    template_free(&t);
    mr_buf_fini(&b);
    fini(&f);
}

static void test_text(void **state)
{
    (void)state;
    gives("", 0, "");
    gives("no column }}", 0, "no column }}");
    gives("{{s}}", 0, "a{{"); /* what a value holds is text */
    gives("<{{s}}>{{ n }}{{n}}", 1, "<none>-1-1");
    gives("{{a date}}|{{j}}", 0, "1970-01-01|x\ny");
    gives("{{j}}", 1, "{\"k\":1.0}");
    gives("\\{{n}} {{n}} \\{{", 0, "{{n}} 7 {{");
    gives("{\"a\":{\"b\":{{n}}}}", 0, "{\"a\":{\"b\":7}}");
}

static void test_wrong(void **state)
{
    static const char *const texts[] = {"{{", "a {{n", "{{}}", "{{  }}", "{{n}} {{", "{{\n}"};
    struct template *t = NULL;
    struct fixture f;

    (void)state;
    init(&f);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_int_equal(template_new(&t, texts[i], &f.err), MR_E_INVALID);
        assert_non_null(strstr(f.err.msg, "{{"));
    }
    assert_int_equal(template_new(&t, "{{N}}", &f.err), MR_OK);
    assert_int_equal(template_bind(t, &f.schema, &f.schema, &f.err), MR_E_INVALID);
    assert_non_null(strstr(f.err.msg, "{{N}}"));
    assert_non_null(strstr(f.err.msg, "s, n, a date, j"));
    template_free(&t);
    fini(&f);
}

static void test_nulls(void **state)
{
    struct template *t;
    struct fixture f;

    (void)state;
    init(&f);
    assert_int_equal(template_new(&t, "{{n}}{{s}}", &f.err), MR_OK);
    assert_int_equal(template_bind(t, &f.schema, &f.schema, &f.err), MR_OK);
    assert_null(template_null_in(t, f.rows, 0));
    assert_string_equal(template_null_in(t, f.rows, 1), "s");
    assert_false(template_has_all(t, f.rows));
    template_free(&t);
    fini(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_nulls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
