/* Where columns lie, by the footer of a file that pyarrow wrote: three row groups of 100 rows with the columns id, x (a
 * list) and name; not compressed, data up to byte 6901. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "table/parquet/parquet_chunks.h"

#define DATA_END 6901

static uint8_t footer[4096];
static size_t footer_len;

static int footer_read(void **state)
{
    char path[4096];

    (void)state;
    snprintf(path, sizeof path, "%s/tests/fuzz/corpus/parquet_chunks/plain",
             getenv("MR_SOURCE_DIR") ? getenv("MR_SOURCE_DIR") : ".");
    FILE *f = fopen(path, "rb");
    if (!f) {
        return -1;
    }
    footer_len = fread(footer, 1, sizeof footer, f);
    fclose(f);
    return 0;
}

static void finds(const char *const *names, size_t count, uint64_t first_row, uint64_t gap,
                  const struct parquet_range *want, size_t want_count)
{
    struct parquet_ranges found = {0};

    assert_true(parquet_chunks_find((mr_bytes){footer, footer_len}, DATA_END, names, count,
                                    first_row, gap, &found));
    assert_int_equal(found.at.len, want_count);
    for (size_t i = 0; i < want_count; i++) {
        assert_int_equal(found.at.at[i].first, want[i].first);
        assert_int_equal(found.at.at[i].end, want[i].end);
    }
    MR_VEC_FINI(&found.at);
}

static void columns_and_rows(void **state)
{
    static const char *const numbers[] = {"ID", "x"}; /* as SQL, without regard to case */
    static const char *const text[] = {"name"};

    (void)state;
    finds(numbers, 2, 0, 1, (struct parquet_range[]){{4, 1764}, {2303, 4063}, {4602, 6362}}, 3);
    finds(numbers, 2, 0, 600, (struct parquet_range[]){{4, 6362}}, 1);
    finds(text, 1, 0, 1, (struct parquet_range[]){{1764, 2303}, {4063, 4602}, {6362, 6901}}, 3);
    finds(text, 1, 99, 1, (struct parquet_range[]){{1764, 2303}, {4063, 4602}, {6362, 6901}}, 3);
    finds(text, 1, 100, 1, (struct parquet_range[]){{4063, 4602}, {6362, 6901}}, 2);
    finds(text, 1, 300, 1, NULL, 0);
    finds(NULL, 0, 0, 1, NULL, 0);
}

static void refused(const uint8_t *bytes, size_t len, const char *name, uint64_t data_end)
{
    struct parquet_ranges found = {0};

    assert_false(parquet_chunks_find((mr_bytes){bytes, len}, data_end, &name, 1, 0, 1, &found));
    assert_int_equal(found.at.len, 0);
    MR_VEC_FINI(&found.at);
}

static void what_cannot_be_told(void **state)
{
    (void)state;
    refused(footer, footer_len, "nope", DATA_END);
    refused(footer, footer_len, "name", DATA_END - 1); /* a chunk that extends into the footer */
    for (size_t len = 0; len < footer_len; len += 7) {
        refused(footer, len, "nope", DATA_END);
    }
    refused((const uint8_t *)"\x00", 1, "id", DATA_END);
    refused((const uint8_t *)"\xff\xff\xff\xff", 4, "id", DATA_END);
}

static void tails(void **state)
{
    (void)state;
    assert_int_equal(parquet_footer_bytes((const uint8_t *)"\x01\x02\x00\x00PAR1"), 513);
    assert_int_equal(parquet_footer_bytes((const uint8_t *)"\x01\x02\x00\x00PARE"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_and_rows),
        cmocka_unit_test(what_cannot_be_told),
        cmocka_unit_test(tails),
    };

    return cmocka_run_group_tests(tests, footer_read, NULL);
}
