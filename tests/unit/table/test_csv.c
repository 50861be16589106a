/* CSV: quotes and ends of lines, types guessed and wanted, rows that are wrong, ranges in any order, no memory; and back
 * to text. */
#include "table_test.h"

static void assert_reads(const char *path, const struct mr_source_options *options,
                         const char *types, const char *expected)
{
    struct mr_source *s = source_open(path, options);
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

static void assert_reads_as(const char *text, const char *types, const char *expected)
{
    assert_reads(file_text("t.csv", text), NULL, types, expected);
}

static void quotes_and_ends_of_lines(void **state)
{
    (void)state;
    assert_reads_as("a,b\n1,\"x \"\"y\"\", z\"\n2,\"one\ntwo\r\n\"\n3,a\"b\"c\n4,\"\"\"\"\n",
                    "a I64, b STRING",
                    "{\"a\":1,\"b\":\"x \\\"y\\\", z\"}\n{\"a\":2,\"b\":\"one\\ntwo\\r\\n\"}\n"
                    "{\"a\":3,\"b\":\"a\\\"b\\\"c\"}\n{\"a\":4,\"b\":\"\\\"\"}\n");
    /* A mark, CR LF, lines without anything, no end of the last line. */
    assert_reads_as("\xef\xbb\xbf\"a\",b\r\n\r\n1,x\r\n\n2,\"y\"\r\n3,", "a I64, b STRING",
                    "{\"a\":1,\"b\":\"x\"}\n{\"a\":2,\"b\":\"y\"}\n{\"a\":3,\"b\":null}\n");
    assert_reads_as("a,b\n1,x\r\n2,y\r", "a I64, b STRING",
                    "{\"a\":1,\"b\":\"x\"}\n{\"a\":2,\"b\":\"y\"}\n");
    /* Nulls and empty texts; a table of one column. */
    assert_reads_as("a,b\n,\n\"\",x\n", "a STRING, b STRING",
                    "{\"a\":null,\"b\":null}\n{\"a\":\"\",\"b\":\"x\"}\n");
    assert_reads_as("a\n1\n\n\r\n3", "a I64", "{\"a\":1}\n{\"a\":null}\n{\"a\":null}\n{\"a\":3}\n");
    /* Columns without a name, and a table without names. */
    assert_reads_as(",b,\n1,2,3\n", "column0 I64, b I64, column2 I64",
                    "{\"column0\":1,\"b\":2,\"column2\":3}\n");
    assert_reads(file_text("t.csv", "\nx,2\n"), &(struct mr_source_options){.has_no_header = true},
                 "column0 STRING, column1 I64", "{\"column0\":\"x\",\"column1\":2}\n");
    assert_reads(file_text("t.tsv", "a\tb\n1,5\t2\n"), NULL, "a STRING, b I64",
                 "{\"a\":\"1,5\",\"b\":2}\n");
    assert_reads(file_text("t.csv", "a;b\n1,5;2\n"), &(struct mr_source_options){.delimiter = ';'},
                 "a STRING, b I64", "{\"a\":\"1,5\",\"b\":2}\n");
}

static void types_are_guessed(void **state)
{
    (void)state;
    assert_reads_as("a,b,c,d,e,f\n1,1.5,true,x,\"[1,2]\",\n-2, 2 ,FALSE,1,[],\n,nan,,,\"[3]\",\n",
                    "a I64, b F64, c BOOL, d STRING, e LIST<I64>, f STRING",
                    "{\"a\":1,\"b\":1.5,\"c\":true,\"d\":\"x\",\"e\":[1,2],\"f\":null}\n"
                    "{\"a\":-2,\"b\":2,\"c\":false,\"d\":\"1\",\"e\":[],\"f\":null}\n"
                    "{\"a\":null,\"b\":NaN,\"c\":null,\"d\":null,\"e\":[3],\"f\":null}\n");
    /* Keys keep their digits and zeros; what begins like a list may be a text. */
    assert_reads_as("a,b,c,d,e\n007,18446744073709551617,[1,1.,[2]\n1,2,x,1e3,true\n",
                    "a STRING, b STRING, c STRING, d F64, e STRING",
                    "{\"a\":\"007\",\"b\":\"18446744073709551617\",\"c\":\"[1\",\"d\":1,\"e\":"
                    "\"[2]\"}\n{\"a\":\"1\",\"b\":\"2\",\"c\":\"x\",\"d\":1000,\"e\":\"true\"}\n");
    assert_reads_as("a,b\n9007199254740993,9007199254740992\nnan,nan\n", "a STRING, b F64",
                    "{\"a\":\"9007199254740993\",\"b\":9007199254740992}\n"
                    "{\"a\":\"nan\",\"b\":NaN}\n");
    /* A fraction keeps its digits, unless they are those of a double: of the shortest text, or of a longer one. */
    assert_reads_as("a,b,c\n1234.123456789012345678,0.30000000000000004,1.428571428571428492e-01\n"
                    "1,1.10,0.1000000000000000055511151231257827\n",
                    "a STRING, b F64, c F64",
                    "{\"a\":\"1234.123456789012345678\",\"b\":0.30000000000000004,"
                    "\"c\":0.14285714285714285}\n{\"a\":\"1\",\"b\":1.1,\"c\":0.1}\n");
    /* A header alone, and nothing at all. */
    struct mr_source *s = source_open(file_text("t.csv", "a,b"), NULL);
    assert_types(s, "a STRING, b STRING");
    assert_null(rows_get(s, 0, 0, 10));
    mr_source_close(&s);
    s = source_open(file_text("t.csv", "\n\r\n"), NULL);
    assert_int_equal(mr_source_schema(s)->count, 0);
    assert_null(rows_get(s, 0, 0, 10));
    mr_source_close(&s);
}

/* What comes after the rows from which types are guessed. */
static void later_rows_keep_their_digits(void **state)
{
    static const char *const rows[] = {
        "0,0,,",
        "02134,,,",
        "-02,,,",
        "3.0,007.5,,",
        ",9007199254740993,,",
        ",18446744073709551616,,",
        ",1.00000000000000001,,",
        ",-9007199254740992,02,true",
        ",0.30000000000000004,9007199254740993,",
    };
    static const char *const wrong[] = {
        NULL,
        "column 'a' (I64): '02134' has digits that this type, guessed from the first rows, loses",
        "'-02' has digits",
        "column 'b' (F64): '007.5' has digits",
        "'9007199254740993' has digits",
        "'18446744073709551616' has digits",
        "'1.00000000000000001' has digits",
        NULL,
        NULL,
    };
    struct mr_field wanted = {.name = (char *)"c", .type = MR_COLUMN_F64};
    struct mr_buf b;

    (void)state;
    mr_buf_init(&b, 0);
    mr_buf_printf(&b, "a,b,c,d\n");
    for (int i = 0; i < 1000; i++) {
        mr_buf_printf(&b, "1,0.5,1,true\n");
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mr_buf_printf(&b, "%s\n", rows[i]);
    }
    struct mr_source *s =
        source_open(file_put("t.csv", b.ptr, b.len),
                    &(struct mr_source_options){.wanted = &(struct mr_schema){&wanted, 1}});
    assert_types(s, "a I64, b F64, c F64, d BOOL");
    struct mr_rows *got = rows_get(s, 0, 1000, 100);
    assert_int_equal(got->count, sizeof rows / sizeof *rows);
    for (uint64_t i = 0; i < got->count; i++) {
        if (wrong[i]) {
            assert_fault(got, i, wrong[i]);
        } else {
            assert_null(mr_rows_fault_of(got, i));
        }
    }
    mr_rows_unref(&got);
    mr_source_close(&s);
    mr_buf_fini(&b);
}

static void nulls_in_lists(void **state)
{
    struct mr_field item = {.name = (char *)"element", .type = MR_COLUMN_F32, .is_nullable = true};
    struct mr_field wanted = {
        .name = (char *)"a", .type = MR_COLUMN_FIXED_LIST, .width = 2, .item = &item};

    (void)state;
    assert_reads(file_text("t.csv", "a,b\n\"[1,null]\",\"[null,7]\"\n"),
                 &(struct mr_source_options){.wanted = &(struct mr_schema){&wanted, 1}},
                 "a FIXED_LIST<F32>[2], b LIST<I64>", "{\"a\":[1,null],\"b\":[null,7]}\n");
}

static void integers_written_as_fractions(void **state)
{
    struct mr_field wanted[] = {{.name = (char *)"a", .type = MR_COLUMN_I64},
                                {.name = (char *)"b", .type = MR_COLUMN_U8}};

    (void)state;
    assert_reads(file_text("t.csv", "a,b\n3.0,\n,2e0\n"),
                 &(struct mr_source_options){.wanted = &(struct mr_schema){wanted, 2}},
                 "a I64, b U8", "{\"a\":3,\"b\":null}\n{\"a\":null,\"b\":2}\n");
}

static void wrong_rows_are_faults(void **state)
{
    struct mr_field item = {.name = (char *)"element", .type = MR_COLUMN_F32};
    struct mr_field wanted[] = {
        {.name = (char *)"i", .type = MR_COLUMN_I8},
        {.name = (char *)"m", .type = MR_COLUMN_FIXED_LIST, .width = 2, .item = &item},
        {.name = (char *)"f", .type = MR_COLUMN_F32},
        {.name = (char *)"b", .type = MR_COLUMN_BOOL},
        {.name = (char *)"x", .type = MR_COLUMN_BINARY},
    };
    (void)state;
    struct mr_source *s = source_open(
        file_text("t.csv",
                  "i,m,f,b,x,s\n1,\"[1,2]\",0.5,1,\xff,ok\n300,,,,,\nx,,,,,\n,\"[1]\",,,,\n"
                  ",\"[1,2] 3\",,,,\n,,1.5x,,,\n,,,yes,,\n,,,,,\xff\n1,2\n1,2,3,4,5,6,7\n"
                  ",,,,,\"x\"y\n\"\",,,,,\n,\"[1,null]\",,,,\n9,,,,,\"never closed\n1,,,,,\n"),
        &(struct mr_source_options){.wanted = &(struct mr_schema){wanted, 5}});
    assert_types(s, "i I8, m FIXED_LIST<F32>[2], f F32, b BOOL, x BINARY, s STRING");
    struct mr_rows *rows = rows_get(s, 0, 0, 100);
    assert_int_equal(rows->count, 14);
    assert_int_equal(rows->fault_count, 13);
    assert_fault(rows, 1, "column 'i' (I8): '300' is not a value of this type");
    assert_fault(rows, 2, "column 'i' (I8): 'x' is not a value of this type");
    assert_fault(rows, 3, "column 'm' (FIXED_LIST<F32>[2]): expected 2 items, found 1");
    assert_fault(rows, 4, "column 'm' (FIXED_LIST<F32>[2]): expected the end of the text");
    assert_fault(rows, 5, "column 'f' (F32): '1.5x' is not a value of this type");
    assert_fault(rows, 6, "column 'b' (BOOL): 'yes' is not a value of this type");
    assert_fault(rows, 7, "column 's' (STRING): the text is not valid UTF-8");
    assert_fault(rows, 8, "not a row of CSV: expected 6 cells, found 2");
    assert_fault(rows, 9, "not a row of CSV: expected 6 cells, found 7");
    assert_fault(rows, 10, "column 's' (STRING): text after the closing quote");
    assert_fault(rows, 11, "column 'i' (I8): '' is not a value of this type");
    assert_fault(rows, 12, "column 'm' (FIXED_LIST<F32>[2]): ");
    assert_fault(rows, 13, "the file ends within a quoted cell");
    assert_memory_equal(mr_column_bytes(&rows->columns[4], 0).ptr, "\xff", 1);
    assert_int_equal(rows->columns[1].item->count, 28);
    mr_rows_unref(&rows);
    assert_int_equal(mr_source_file(s, 0).rows, 14);
    mr_source_close(&s);
}

static void what_is_no_table(void **state)
{
    (void)state;
    source_refused(file_text("t.csv", "a,b\n1\n1,2,3\n"), NULL, MR_E_INVALID,
                   "t.csv' is no table of CSV: its first 2 rows are all wrong; row 0: expected 2 "
                   "cells, found 1");
    source_refused(file_text("t.csv", "a,b,a\n1,2,3\n"), NULL, MR_E_INVALID,
                   "two columns are named 'a'");
    source_refused(file_text("t.csv", "a,\"b\n1,2\n"), NULL, MR_E_INVALID,
                   "in its first line: the file ends within a quoted cell");
    source_refused(file_text("t.csv", "a,\"b\"c\n1,2\n"), NULL, MR_E_INVALID,
                   "in its first line: cell 1: text after the closing quote");
    source_refused(file_text("t.csv", "a,\xff\n1,2\n"), NULL, MR_E_INVALID,
                   "the name of column 1 is not UTF-8");
    source_refused(path_of("t.csv"), &(struct mr_source_options){.delimiter = '"'}, MR_E_INVALID,
                   "cannot be the delimiter");
    struct mr_buf b;
    mr_buf_init(&b, 0);
    for (int i = 0; i < 20000; i++) {
        mr_buf_printf(&b, "%sc%d", i ? "," : "", i);
    }
    source_refused(file_put("t.csv", b.ptr, b.len), NULL, MR_E_UNSUPPORTED,
                   "more than 16384 columns");
    mr_buf_fini(&b);
}

/* A cell of n bytes in row 1 of 3, in a column that is wanted or not, quoted or not. */
static void long_cell(size_t n, bool is_wanted, bool is_quoted, bool is_fault)
{
    const char *wanted[] = {"k", "t"};
    struct mr_buf b;

    mr_buf_init(&b, 0);
    mr_buf_printf(&b, "k,t,u\n1,a,b\n2,%s", is_quoted ? "\"" : "");
    for (size_t i = 0; i < n; i++) {
        mr_buf_char(&b, is_quoted && i % 100 == 50 ? '\n' : 'x');
    }
    mr_buf_printf(&b, "%s,c\r\n3,d,e\n", is_quoted ? "\"" : "");
    struct mr_source *s = source_open(
        file_put("t.csv", b.ptr, b.len),
        &(struct mr_source_options){.max_cell_bytes = 400000,
                                    .memory_bytes = 2 << 20, /* a megabyte is the window */
                                    .columns = wanted,
                                    .column_count = is_wanted ? 2 : 1});
    struct mr_rows *rows = rows_get(s, 0, 0, 100);
    assert_int_equal(rows->count, 3);
    assert_int_equal(rows->fault_count, is_fault);
    if (is_fault) {
        assert_fault(rows, 1,
                     is_wanted ? "column 't' (STRING): a cell of more than 400000 bytes"
                               : "not a row of CSV: cell 1: a cell of more than 400000 bytes");
    } else {
        assert_int_equal(((const int64_t *)rows->columns[0].values)[1], 2);
    }
    assert_int_equal(((const int64_t *)rows->columns[0].values)[2], 3);
    mr_rows_unref(&rows);
    mr_source_close(&s);
    mr_buf_fini(&b);
}

static void long_cells_are_passed_over(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        long_cell(400000, i & 1, i & 2, false);
        long_cell(400001, i & 1, i & 2, true);
        long_cell(3000000, i & 1, i & 2, true);
    }
    /* Many cells, none too long, in a row that is. */
    struct mr_buf b;
    mr_buf_init(&b, 0);
    mr_buf_c(&b, "k,t\n1,x\n2");
    for (int i = 0; i < 300000; i++) {
        mr_buf_c(&b, ",yy");
    }
    mr_buf_c(&b, "\n3,z\n");
    struct mr_source *s = source_open(file_put("t.csv", b.ptr, b.len),
                                      &(struct mr_source_options){.memory_bytes = 1 << 20});
    struct mr_rows *rows = rows_get(s, 0, 0, 100);
    assert_int_equal(rows->count, 3);
    assert_fault(rows, 1, "a row of more than 524288 bytes");
    mr_rows_unref(&rows);
    mr_source_close(&s);
    mr_buf_fini(&b);
}

/* Records of all lengths, some of several lines, some wrong, lines between them. */
static const char *many_rows(int count)
{
    struct mr_buf b;

    mr_buf_init(&b, 0);
    mr_buf_c(&b, "id,v,t\n");
    for (int i = 0; i < count; i++) {
        mr_buf_printf(&b, "%s%d,\"[%d.5,%d]\",\"%0*d\"\"\n,\"%s", i % 7 ? "" : "\n\r\n", i, i, i,
                      i * 37 % 3000, i, i % 5 ? "\n" : "\r\n");
        if (i % 11 == 3) {
            mr_buf_c(&b, "wrong,\"\n\",\"\"x\n");
        }
    }
    const char *path = file_put("many.csv", b.ptr, b.len);
    mr_buf_fini(&b);
    return path;
}

static void ranges_in_any_order(void **state)
{
    struct mr_source *s = source_open(many_rows(1000), NULL);
    struct mr_rows *all = rows_get(s, 0, 0, 100000);
    unsigned seed = 1;

    (void)state;
    assert_types(s, "id I64, v LIST<F64>, t STRING");
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

static void no_memory(void **state)
{
    const char *path = many_rows(300);
    struct mr_source *s = source_open(path, NULL);

    (void)state;
    assert_no_memory_is_told(s, 300 + 27);
    mr_source_close(&s);
}

/* What is written is read as the same. */
static void there_and_back(void **state)
{
    static const char text[] =
        "{\"a\":1,\"b\":\"x,\\\"y\\\"\\r\\n\",\"c\":[1.5,2],\"d\":[[\"p,\\\"q\",null],[]]}\n"
        "{\"a\":null,\"b\":\"\",\"c\":null,\"d\":[]}\n"
        "{\"a\":3,\"b\":null,\"c\":[],\"d\":null}\n";
    struct mr_source *s = source_open(file_text("t.jsonl", text), NULL);
    struct mr_rows *rows = rows_get(s, 0, 0, 10);

    (void)state;
    char *csv = rows_text(rows, MR_TABLE_CSV);
    assert_string_equal(csv, "a,b,c,d\n1,\"x,\"\"y\"\"\r\n\",\"[1.5,2]\",\"[[\"\"p,\\\"\"q\"\","
                             "null],[]]\"\n,\"\",,[]\n3,,[],\n");
    assert_reads_as(csv, "a I64, b STRING, c LIST<F64>, d LIST<LIST<STRING>>", text);
    mr_free(csv);
    mr_rows_unref(&rows);
    mr_source_close(&s);
    struct mr_writer *w;
    struct mr_err err;
    const struct mr_writer_options options = {.format = MR_TABLE_CSV, .delimiter = '.'};
    assert_int_equal(mr_writer_new(&w, -1, &(struct mr_schema){0}, &options, &err), MR_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quotes_and_ends_of_lines),
        cmocka_unit_test(types_are_guessed),
        cmocka_unit_test(later_rows_keep_their_digits),
        cmocka_unit_test(nulls_in_lists),
        cmocka_unit_test(integers_written_as_fractions),
        cmocka_unit_test(wrong_rows_are_faults),
        cmocka_unit_test(what_is_no_table),
        cmocka_unit_test(long_cells_are_passed_over),
        cmocka_unit_test(ranges_in_any_order),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(there_and_back),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_drop);
}
