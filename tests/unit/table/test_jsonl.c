/* JSON lines: types guessed and wanted, rows that are wrong, ranges in any order, no memory; and back to text. */
#include "table_test.h"

static struct mr_field f32_item = {.name = (char *)"element", .type = MR_COLUMN_F32};

/* What was read comes back as JSON with all columns, so this shows types and values at once. */
static void assert_reads_as(const char *text, const char *types, const char *expected)
{
    struct mr_source *s = source_open(file_text("t.jsonl", text), NULL);
    struct mr_rows *rows = rows_get(s, 0, 0, 1000);

    assert_types(s, types);
    assert_non_null(rows);
    assert_int_equal(rows->fault_count, 0);
    char *got = rows_text(rows, MR_TABLE_JSONL);
    assert_string_equal(got, expected);
    mr_free(got);
    mr_rows_unref(&rows);
    mr_source_close(&s);
}

static void types_are_guessed(void **state)
{
    (void)state;
    assert_reads_as(
        "{\"a\":1,\"b\":1.5,\"c\":true,\"d\":\"x\",\"e\":[1,2],\"f\":null,\"g\":[[1.5],[]]}\n",
        "a I64, b F64, c BOOL, d STRING, e LIST<I64>, f STRING, g LIST<LIST<F64>>",
        "{\"a\":1,\"b\":1.5,\"c\":true,\"d\":\"x\",\"e\":[1,2],\"f\":null,\"g\":[[1.5],[]]}\n");
    assert_reads_as("{\"a\":1}\n{\"a\":2e0,\"b\":[]}\n{\"b\":[null,\"x\"]}\n",
                    "a F64, b LIST<STRING>",
                    "{\"a\":1,\"b\":null}\n{\"a\":2,\"b\":[]}\n{\"a\":null,\"b\":[null,\"x\"]}\n");
    assert_reads_as(
        "{\"a\":1,\"b\":{\"c\":[1, 2]}}\n{\"a\":\"x\\n\",\"b\":false}\n{\"a\":[1],\"b\":null}\n",
        "a STRING, b STRING",
        "{\"a\":\"1\",\"b\":\"{\\\"c\\\":[1, 2]}\"}\n{\"a\":\"x\\n\",\"b\":\"false\"}\n"
        "{\"a\":\"[1]\",\"b\":null}\n");
    /* Keys of more than 64 bits keep their digits. */
    assert_reads_as("{\"a\":1}\n{\"a\":18446744073709551617}\n", "a STRING",
                    "{\"a\":\"1\"}\n{\"a\":\"18446744073709551617\"}\n");
    /* So do keys that a fraction would round, and those in lists. */
    assert_reads_as("{\"a\":-9007199254740993,\"b\":[9007199254740993]}\n{\"a\":1.5,\"b\":[]}\n",
                    "a STRING, b LIST<I64>",
                    "{\"a\":\"-9007199254740993\",\"b\":[9007199254740993]}\n"
                    "{\"a\":\"1.5\",\"b\":[]}\n");
    assert_reads_as("{\"a\":[1,null],\"b\":[[null,true],[]]}\n{\"a\":[2.5],\"b\":null}\n",
                    "a LIST<F64>, b LIST<LIST<BOOL>>",
                    "{\"a\":[1,null],\"b\":[[null,true],[]]}\n{\"a\":[2.5],\"b\":null}\n");
    assert_reads_as("{\"a\":NaN}\n{\"a\":-Infinity}\n", "a F64",
                    "{\"a\":NaN}\n{\"a\":-Infinity}\n");
}

/* What comes after the lines from which types are guessed. */
static void later_lines_keep_their_digits(void **state)
{
    struct mr_buf b;

    (void)state;
    mr_buf_init(&b, 0);
    for (int i = 0; i < 1000; i++) {
        mr_buf_printf(&b, "{\"a\":0.5}\n");
    }
    mr_buf_printf(&b, "{\"a\": 9007199254740993 }\n{\"a\":1234.123456789012345678}\n"
                      "{\"a\":9007199254740992}\n{\"a\":0.30000000000000004}\n");
    struct mr_source *s = source_open(file_put("t.jsonl", b.ptr, b.len), NULL);
    assert_types(s, "a F64");
    struct mr_rows *rows = rows_get(s, 0, 1000, 100);
    assert_int_equal(rows->count, 4);
    assert_int_equal(rows->fault_count, 2);
    assert_fault(rows, 0,
                 "column 'a' (F64): '9007199254740993' has digits that this type, guessed "
                 "from the first rows, loses");
    assert_fault(rows, 1, "'1234.123456789012345678' has digits");
    mr_rows_unref(&rows);
    mr_source_close(&s);
    mr_buf_fini(&b);
}

static void lines_of_all_kinds(void **state)
{
    (void)state;
    /* A mark, blanks, CR LF, no line feed at the end. */
    assert_reads_as("\xef\xbb\xbf{\"a\":1}\r\n\r\n  \t\n{\"a\" : 2 }\n\n{\"a\":3}", "a I64",
                    "{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n");
    assert_reads_as("{\"a\":\"h\xc3\xa4\\u00e4\\ud83d\\ude00\"}", "a STRING",
                    "{\"a\":\"h\xc3\xa4\xc3\xa4\xf0\x9f\x98\x80\"}\n");
    /* Members in any order, some unknown when the columns were guessed. */
    assert_reads_as(
        "{\"a\":1,\"b\":2}\n{\"b\":3,\"a\":4}\n{}\n{\"b\":5}\n", "a I64, b I64",
        "{\"a\":1,\"b\":2}\n{\"a\":4,\"b\":3}\n{\"a\":null,\"b\":null}\n{\"a\":null,\"b\":5}\n");
}

static void types_are_wanted(void **state)
{
    struct mr_schema wanted = {0};
    struct mr_field fixed = f32_item;
    struct mr_field flat = {
        .name = (char *)"m", .type = MR_COLUMN_FIXED_LIST, .width = 2, .item = &fixed};
    struct mr_field deep = {
        .name = (char *)"element", .type = MR_COLUMN_FIXED_LIST, .width = 1, .item = &fixed};

    (void)state;
    mr_schema_add(&wanted, &(struct mr_field){.name = (char *)"i", .type = MR_COLUMN_I32});
    mr_schema_add(&wanted, &(struct mr_field){.name = (char *)"b", .type = MR_COLUMN_BINARY});
    mr_schema_add(&wanted, &(struct mr_field){.name = (char *)"h", .type = MR_COLUMN_F16});
    mr_schema_add(&wanted, &flat);
    mr_schema_add(&wanted,
                  &(struct mr_field){.name = (char *)"d", .type = MR_COLUMN_LIST, .item = &deep});
    mr_schema_add(&wanted, &(struct mr_field){.name = (char *)"none", .type = MR_COLUMN_I8});
    struct mr_source *s = source_open(
        file_text("t.jsonl",
                  "{\"i\":7,\"b\":\"abc\",\"h\":2049.0000001,\"m\":[1,2],\"d\":[[1],[2]],\"x\":1}\n"
                  "{\"i\":3000000000}\n{\"m\":[1]}\n{\"m\":[1,2,3]}\n{\"m\":[1,null]}\n"
                  "{\"d\":[[1,2]]}\n{\"d\":[null]}\n{\"m\":[[1,2]]}\n{\"b\":5}\n{\"i\":null}\n"),
        &(struct mr_source_options){.wanted = &wanted});
    assert_types(s,
                 "i I32, b BINARY, h F16, m FIXED_LIST<F32>[2], d LIST<FIXED_LIST<F32>[1]>, x I64");
    struct mr_rows *rows = rows_get(s, 0, 0, 100);
    assert_int_equal(rows->count, 10);
    assert_int_equal(rows->fault_count, 8);
    assert_fault(rows, 1, "column 'i' (I32): value 3000000000 is out of range");
    assert_fault(rows, 2, "column 'm' (FIXED_LIST<F32>[2]): expected 2 items, found 1");
    assert_fault(rows, 3, "expected 2 items, found 3");
    assert_fault(rows, 4, "found null");
    assert_fault(rows, 5, "column 'd' (LIST<FIXED_LIST<F32>[1]>): expected 1 items, found 2");
    assert_fault(rows, 6, "found null");
    assert_fault(rows, 7, "expected a flat list of numbers");
    assert_fault(rows, 8, "column 'b' (BINARY): expected a string, found a number");
    assert_null(mr_rows_fault_of(rows, 9));
    char *got = rows_text(rows, MR_TABLE_JSONL);
    assert_memory_equal(got,
                        "{\"i\":7,\"b\":\"YWJj\",\"h\":2050,\"m\":[1,2],\"d\":[[1],[2]],\"x\":1}\n",
                        strchr(got, '\n') - got);
    mr_free(got);
    mr_rows_unref(&rows);
    mr_source_close(&s);
    wanted.fields[0].type = MR_COLUMN_DATE;
    source_refused(path_of("t.jsonl"), &(struct mr_source_options){.wanted = &wanted},
                   MR_E_UNSUPPORTED, "column 'i': text cannot be read as DATE");
    mr_schema_fini(&wanted);
}

static void integers_written_as_fractions(void **state)
{
    struct mr_field item = {.name = (char *)"element", .type = MR_COLUMN_I32, .is_nullable = true};
    struct mr_field wanted[] = {{.name = (char *)"a", .type = MR_COLUMN_I64},
                                {.name = (char *)"b", .type = MR_COLUMN_U8},
                                {.name = (char *)"c", .type = MR_COLUMN_LIST, .item = &item}};

    (void)state;
    struct mr_source *s = source_open(
        file_text("t.jsonl", "{\"a\":-3.0,\"b\":25e1,\"c\":[1.0,null,2E0]}\n{\"b\":300.0}\n"
                             "{\"c\":[0.5]}\n{\"a\":9007199254740993.0}\n{\"a\":1.}\n"),
        &(struct mr_source_options){.wanted = &(struct mr_schema){wanted, 3}});
    struct mr_rows *rows = rows_get(s, 0, 0, 100);
    assert_fault(rows, 1, "column 'b' (U8): value 300 is not an integer of this type");
    assert_fault(rows, 2, "column 'c' (LIST<I32>): value 0.5 is not an integer of this type");
    assert_fault(rows, 3, "column 'a' (I64)");
    assert_fault(rows, 4, "column 'a' (I64)");
    char *got = rows_text(rows, MR_TABLE_JSONL);
    static const char first[] = "{\"a\":-3,\"b\":250,\"c\":[1,null,2]}\n";
    assert_int_equal(strncmp(got, first, sizeof first - 1), 0);
    mr_free(got);
    mr_rows_unref(&rows);
    mr_source_close(&s);
}

static void wrong_rows_are_faults(void **state)
{
    struct mr_field item = {.name = (char *)"element", .type = MR_COLUMN_F64};
    struct mr_field wanted[] = {{.name = (char *)"a", .type = MR_COLUMN_I64},
                                {.name = (char *)"b", .type = MR_COLUMN_LIST, .item = &item}};

    (void)state;
    struct mr_source *s = source_open(
        file_text("t.jsonl",
                  "{\"a\":1,\"b\":[1.5],\"s\":\"x\"}\n[1]\n{\"a\":1,\"a\":2}\n{\"a\":1.5}\n"
                  "{\"b\":[1,\"x\"]}\n{\"s\":\"\xff\"}\n{\"a\":1} x\n{\"a\":1,}\n7\n"
                  "{\"a\":2,\"b\":[2],\"s\":\"y\"}\n{\"a\":3,\"b\":[3],\"s\":\"tru"),
        &(struct mr_source_options){.wanted = &(struct mr_schema){wanted, 2}});
    struct mr_rows *rows = rows_get(s, 0, 0, 100);
    assert_int_equal(rows->count, 11);
    assert_int_equal(rows->fault_count, 9);
    assert_fault(rows, 1, "not a row of JSON lines: expected an object, found an array");
    assert_fault(rows, 2, "column 'a' (I64): the name is there twice");
    assert_fault(rows, 3, "column 'a' (I64)");
    assert_fault(rows, 4, "column 'b' (LIST<F64>)");
    assert_fault(rows, 5, "column 's' (STRING): string is not valid UTF-8");
    assert_fault(rows, 6, "found 'x'");
    assert_fault(rows, 7, "expected a member name");
    assert_fault(rows, 8, "found a number");
    assert_fault(rows, 10, "string without closing quote");
    /* Values of a faulty row are dropped. */
    assert_int_equal(rows->columns[1].item->count, 2);
    assert_int_equal(((const int64_t *)rows->columns[0].values)[9], 2);
    mr_rows_unref(&rows);
    assert_int_equal(mr_source_file(s, 0).rows, 11);
    mr_source_close(&s);
    source_refused(file_text("t.jsonl", "id,name\n1,x\n"), NULL, MR_E_INVALID,
                   "its first 2 rows are all wrong; row 0: expected an object");
}

static void long_cells_are_passed_over(void **state)
{
    struct mr_buf b;

    (void)state;
    mr_buf_init(&b, 0);
    mr_buf_c(&b, "{\"a\":\"x\",\"t\":\"y\"}\n{\"a\":\"\",\"t\":\"{\\\"");
    for (int i = 0; i < 3000000; i++) { /* a megabyte is the window here: never held as a whole */
        mr_buf_char(&b, (char)('a' + i % 26));
    }
    mr_buf_c(&b, "\",\"u\":1}\n{\"a\":\"");
    for (int i = 0; i < 2000; i++) {
        mr_buf_char(&b, 'z');
    }
    mr_buf_c(&b, "\"}\n{\"a\":\"last\"}\n");
    struct mr_source *s =
        source_open(file_put("t.jsonl", b.ptr, b.len),
                    &(struct mr_source_options){.max_cell_bytes = 1000, .memory_bytes = 2 << 20});
    struct mr_rows *rows = rows_get(s, 0, 0, 100);
    assert_int_equal(rows->count, 4);
    assert_int_equal(rows->fault_count, 2);
    assert_fault(rows, 1, "column 't': a cell of more than 1000 bytes");
    assert_fault(rows, 2, "a cell of more than 1000 bytes");
    assert_true(rows->bytes < 10000);
    mr_rows_unref(&rows);
    mr_source_close(&s);
    /* Many cells, none too long, in a line that is. */
    mr_buf_reset(&b);
    mr_buf_c(&b, "{\"k\":1}\n{");
    for (int i = 0; i < 100000; i++) {
        mr_buf_printf(&b, "%s\"c%d\":1", i ? "," : "", i);
    }
    mr_buf_c(&b, "}\n{\"k\":3}\n");
    s = source_open(file_put("t.jsonl", b.ptr, b.len),
                    &(struct mr_source_options){.max_cell_bytes = 1000, .memory_bytes = 1 << 20});
    rows = rows_get(s, 0, 0, 100);
    assert_int_equal(rows->count, 3);
    assert_fault(rows, 1, "a line of more than 524288 bytes");
    mr_rows_unref(&rows);
    mr_source_close(&s);
    mr_buf_fini(&b);
}

/* Lines of all lengths, some wrong, some blank; the window does not fit any of them well. */
static const char *many_rows(int count)
{
    struct mr_buf b;

    mr_buf_init(&b, 0);
    for (int i = 0; i < count; i++) {
        mr_buf_printf(&b, "%s{\"id\":%d,\"v\":[%d.5,%d],\"t\":\"%0*d\"}%s", i % 7 ? "" : "\n \n", i,
                      i, i, i * 37 % 3000, i, i % 5 ? "\n" : "\r\n");
        if (i % 11 == 3) {
            mr_buf_c(&b, "{\"id\":\"wrong\n");
        }
    }
    const char *path = file_put("many.jsonl", b.ptr, b.len);
    mr_buf_fini(&b);
    return path;
}

static void ranges_in_any_order(void **state)
{
    struct mr_source *s = source_open(many_rows(1000), NULL);
    struct mr_rows *all = rows_get(s, 0, 0, 100000);
    unsigned seed = 1;

    (void)state;
    assert_int_equal(all->count, 1000 + 91);
    assert_int_equal(all->fault_count, 91);
    for (int i = 0; i < 60; i++) {
        const uint64_t first = (unsigned)rand_r(&seed) % (all->count + 20);
        const uint64_t count = 1 + (unsigned)rand_r(&seed) % 100;
        assert_rows_are(s, all, first, count);
    }
    mr_rows_unref(&all);
    mr_source_close(&s);
}

static void ranges_end_by_bytes(void **state)
{
    struct mr_source *s = source_open(many_rows(1000), NULL);
    struct mr_rows *rows;
    struct mr_err err;
    uint64_t row = 0;

    (void)state;
    for (;;) {
        assert_int_equal(mr_source_read(s, 0, row, 1000000, 100000, &rows, &err), MR_OK);
        if (!rows) {
            break;
        }
        assert_in_range(rows->count, 1, 200);
        assert_true(rows->columns[2].begin[rows->count] < 110000);
        row += rows->count;
        mr_rows_unref(&rows);
    }
    assert_int_equal(row, 1091);
    mr_source_close(&s);
}

static void a_file_that_changes_is_told(void **state)
{
    const char *path = many_rows(1000);
    struct mr_source *s = source_open(path, NULL);
    struct mr_rows *rows = rows_get(s, 0, 0, 10);
    struct mr_err err;

    (void)state;
    mr_rows_unref(&rows);
    assert_int_equal(truncate(path, 700000), 0);
    assert_int_equal(mr_source_read(s, 0, 10, 10000, UINT64_MAX, &rows, &err), MR_E_IO);
    assert_non_null(strstr(err.msg, "many.jsonl' has changed since it was opened"));
    assert_int_equal(mr_source_read(s, 0, 0, 10, UINT64_MAX, &rows, &err), MR_E_IO);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mr_source_read(s, 0, 0, 10, UINT64_MAX, &rows, &err), MR_E_IO);
    mr_source_close(&s);
}

/* A file that cannot be read may be whole. */
static void only_damage_is_left_out(void **state)
{
    const struct mr_source_options options = {.skips_bad_files = true};

    (void)state;
    assert_int_equal(mkdir(path_of("set"), 0700), 0);
    file_text("set/a.jsonl", "{\"x\":1}\n");
    const char *damaged = file_text("set/b.jsonl", "no table\n");
    struct mr_source *s = source_open(path_of("set"), &options);
    assert_int_equal(mr_source_file_count(s), 2);
    assert_null(mr_source_file(s, 0).bad);
    assert_non_null(mr_source_file(s, 1).bad);
    mr_source_close(&s);
    assert_int_equal(symlink("/proc/self/mem", path_of("set/c.jsonl")), 0); /* an I/O error */
    source_refused(path_of("set"), &options, MR_E_INVALID, "2 of 3 files cannot be used");
    assert_int_equal(unlink(damaged), 0);
    source_refused(path_of("set"), &options, MR_E_IO, "c.jsonl'");
}

static void no_memory(void **state)
{
    const char *path = many_rows(300);
    struct mr_source *s = source_open(path, NULL);

    (void)state;
    assert_no_memory_is_told(s, 300 + 27);
    mr_source_close(&s);
}

static void all_types_as_text(void **state)
{
    const struct {
        enum mr_column_type type;
        const void *value;
        const char *text;
    } cases[] = {
        {MR_COLUMN_BOOL, &(uint8_t){1}, "true"},
        {MR_COLUMN_I8, &(int8_t){-128}, "-128"},
        {MR_COLUMN_I16, &(int16_t){-300}, "-300"},
        {MR_COLUMN_I32, &(int32_t){INT32_MIN}, "-2147483648"},
        {MR_COLUMN_I64, &(int64_t){INT64_MIN}, "-9223372036854775808"},
        {MR_COLUMN_U8, &(uint8_t){255}, "255"},
        {MR_COLUMN_U16, &(uint16_t){65535}, "65535"},
        {MR_COLUMN_U32, &(uint32_t){UINT32_MAX}, "4294967295"},
        {MR_COLUMN_U64, &(uint64_t){UINT64_MAX}, "18446744073709551615"},
        {MR_COLUMN_F16, &(uint16_t){0x3e00}, "1.5"},
        {MR_COLUMN_F32, &(float){0.1F}, "0.1"},
        {MR_COLUMN_F64, &(double){1e300}, "1e+300"},
        {MR_COLUMN_DATE, &(int32_t){0}, "\"1970-01-01\""},
        {MR_COLUMN_DATE, &(int32_t){-1}, "\"1969-12-31\""},
        {MR_COLUMN_DATE, &(int32_t){11016}, "\"2000-02-29\""},
        {MR_COLUMN_DATE, &(int32_t){-719528}, "\"0000-01-01\""},
        {MR_COLUMN_DATE, &(int32_t){20089}, "\"2025-01-01\""},
        {MR_COLUMN_TIMESTAMP, &(int64_t){-1}, "\"1969-12-31T23:59:59.999999Z\""},
        {MR_COLUMN_TIMESTAMP, &(int64_t){1735689600000000}, "\"2025-01-01T00:00:00Z\""},
        {MR_COLUMN_DECIMAL, &(__int128){-5}, "\"-0.05\""},
        {MR_COLUMN_DECIMAL, &(__int128){1234567}, "\"12345.67\""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mr_schema s = {
            &(struct mr_field){
                .name = (char *)"a\"", .type = cases[i].type, .precision = 9, .scale = 2},
            1};
        struct mr_column_builder b;
        struct mr_err err;
        char expected[64];
        mr_column_builder_init(&b, &s.fields[0]);
        mr_column_add(&b, cases[i].value);
        mr_column_add_null(&b);
        struct mr_rows *rows = mr_rows_new(&s);
        rows->count = 2;
        assert_int_equal(mr_column_builder_finish(&b, rows, 0, &err), MR_OK);
        mr_column_builder_fini(&b);
        char *text = rows_text(rows, MR_TABLE_JSONL);
        snprintf(expected, sizeof expected, "{\"a\\\"\":%s}\n{\"a\\\"\":null}\n", cases[i].text);
        assert_string_equal(text, expected);
        mr_free(text);
        mr_rows_unref(&rows);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_are_guessed),
        cmocka_unit_test(later_lines_keep_their_digits),
        cmocka_unit_test(lines_of_all_kinds),
        cmocka_unit_test(types_are_wanted),
        cmocka_unit_test(integers_written_as_fractions),
        cmocka_unit_test(wrong_rows_are_faults),
        cmocka_unit_test(long_cells_are_passed_over),
        cmocka_unit_test(ranges_in_any_order),
        cmocka_unit_test(ranges_end_by_bytes),
        cmocka_unit_test(a_file_that_changes_is_told),
        cmocka_unit_test(only_damage_is_left_out),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(all_types_as_text),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_drop);
}
