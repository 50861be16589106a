/* Joining files: what is refused, and footers that are not what they should be. That readers agree about the result is
 * for the tests of whole jobs. */
#include "table_test.h"

#include "table/merge.h"

/* Makes a file from lines of JSON. */
static const char *table_put(const char *name, const char *lines, enum mr_table_format format)
{
    struct mr_source *s = source_open(file_text("from.jsonl", lines), NULL);
    struct mr_rows *rows = rows_get(s, 0, 0, 1000);
    char *text = rows_text(rows, format);
    size_t len;

    mr_free(text);
    text = file_get(path_of("written"), &len);
    const char *path = file_put(name, text, len);
    mr_free(text);
    mr_rows_unref(&rows);
    mr_source_close(&s);
    return path;
}

static const char *parquet_put(const char *name, const char *lines)
{
    return table_put(name, lines, MR_TABLE_PARQUET);
}

/* The status of joining two files into "out"; a failure names one of them. */
static int merge_two(const char *a, const char *b, struct mr_err *err)
{
    const struct mr_merge_part parts[2] = {{AT_FDCWD, a}, {AT_FDCWD, b}};
    const int out = open(path_of("out"), O_RDWR | O_CREAT | O_TRUNC, 0600);

    *err = (struct mr_err){0};
    int rc = mr_table_merge(parts, 2, out, err);
    if (rc < 0 && !strstr(err->msg, a) && !strstr(err->msg, b)) {
        fail_msg("names no file: '%s'", err->msg);
    }
    close(out);
    return rc;
}

static void refused(const char *a, const char *b, int status, const char *part)
{
    struct mr_err err;

    assert_int_equal(merge_two(a, b, &err), status);
    if (!strstr(err.msg, part)) {
        fail_msg("'%s' is not in '%s'", part, err.msg);
    }
}

static void what_is_refused(void **state)
{
    char one[128];
    size_t len;

    (void)state;
    snprintf(one, sizeof one, "%s", parquet_put("1.parquet", "{\"a\":1,\"b\":\"x\"}\n"));
    refused(one, parquet_put("2.parquet", "{\"a\":1,\"c\":\"x\"}\n"), MR_E_INVALID,
            "2.parquet has other columns than");
    refused(one, file_text("3.parquet", "PAR1"), MR_E_INVALID, "3.parquet is no Parquet file");
    refused(one, file_text("4.jsonl", "{}\n"), MR_E_INVALID, "of two formats");
    refused(file_text("4.jsonl.gz", ""), file_text("4.jsonl.zst", ""), MR_E_INVALID,
            "of two formats");
    refused(file_text("5.csv.gz", ""), file_text("6.csv.gz", ""), MR_E_UNSUPPORTED, "5.csv.gz");
    refused(file_text("5.csv", "a,b\n1,2\n"), file_text("6.csv", "a,c\n1,2\n"), MR_E_INVALID,
            "6.csv has other columns");
    refused(file_text("5.csv", "a,b\n1,2\n"), file_text("6.csv", "\"a\n"), MR_E_INVALID, "6.csv");
    /* As if of another program. */
    char *text = file_get(one, &len);
    char *maker = memmem(text, len, "millrace 0", 10);
    assert_non_null(maker);
    maker[0] = 'M';
    refused(one, file_put("7.parquet", text, len), MR_E_UNSUPPORTED,
            "7.parquet was written by another program");
    mr_free(text);
}

static void what_is_refused_of_arrow(void **state)
{
    char one[128];
    size_t len;

    (void)state;
    snprintf(one, sizeof one, "%s",
             table_put("1.arrow", "{\"a\":1,\"b\":\"x\"}\n", MR_TABLE_ARROW));
    refused(one, table_put("2.arrow", "{\"a\":1,\"c\":\"x\"}\n", MR_TABLE_ARROW), MR_E_INVALID,
            "2.arrow has other columns than");
    refused(one, table_put("2.arrow", "{\"a\":1,\"b\":2}\n", MR_TABLE_ARROW), MR_E_INVALID,
            "2.arrow has other columns than");
    refused(one, file_text("3.arrow", "ARROW1"), MR_E_INVALID, "3.arrow' is cut off");
    char *text = file_get(one, &len);
    refused(one, file_put("4.arrow", text, len - 1), MR_E_INVALID, "4.arrow' is cut off");
    text[6] = 1; /* after the magic, where this writer has zeros: as if of another program */
    refused(one, file_put("5.arrow", text, len), MR_E_UNSUPPORTED,
            "5.arrow was written by another program");
    mr_free(text);
}

static void heads_of_csv(void **state)
{
    struct mr_err err;
    size_t len;

    (void)state;
    assert_int_equal(merge_two(file_text("1.csv", "\"a\nb\",c\n1,2\n"),
                               file_text("2.csv", "\"a\nb\",c\n3,\"\n\"\n"), &err),
                     MR_OK);
    char *text = file_get(path_of("out"), &len);
    assert_int_equal(len, strlen("\"a\nb\",c\n1,2\n3,\"\n\"\n"));
    assert_memory_equal(text, "\"a\nb\",c\n1,2\n3,\"\n\"\n", len);
    mr_free(text);
}

/* For any footer the result is a file or an error. */
static void damage(void **state)
{
    char one[128];
    struct mr_err err;
    size_t len;

    (void)state;
    snprintf(one, sizeof one, "%s",
             parquet_put("1.parquet", "{\"a\":1,\"b\":[\"x\"]}\n{\"a\":2,\"b\":[]}\n"));
    char *text = file_get(one, &len);
    assert_int_equal(merge_two(one, one, &err), MR_OK);
    for (size_t n = 0; n < len; n++) {
        assert_true(merge_two(one, file_put("2.parquet", text, n), &err) < 0);
    }
    uint32_t footer;
    memcpy(&footer, text + len - 8, sizeof footer);
    for (size_t at = len - 8 - footer; at < len; at++) {
        for (int bit = 0; bit < 8; bit += 3) {
            text[at] = (char)(text[at] ^ 1 << bit);
            merge_two(one, file_put("2.parquet", text, len), &err);
            merge_two(path_of("2.parquet"), one, &err);
            text[at] = (char)(text[at] ^ 1 << bit);
        }
    }
    mr_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_refused, folder_make, folder_drop),
        cmocka_unit_test_setup_teardown(what_is_refused_of_arrow, folder_make, folder_drop),
        cmocka_unit_test_setup_teardown(heads_of_csv, folder_make, folder_drop),
        cmocka_unit_test_setup_teardown(damage, folder_make, folder_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
