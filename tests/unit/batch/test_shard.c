/* Which rows a shard takes: whatever the table is, each row belongs to one shard. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "batch/common/shard.h"

#define FILES_MOST 64
#define ROWS_MOST  20000

struct table {
    size_t files;
    int64_t counted[FILES_MOST]; /* as the source reports them: -1 where they are unknown */
    uint64_t rows[FILES_MOST];
};

/* Marks what a shard takes of a file, of which `done` is done; returns how many rows that are. */
static uint64_t take(const struct shard *s, const struct table *t, uint32_t file,
                     const struct mr_ranges *done, uint8_t *marks)
{
    struct mr_range gap;
    uint64_t at = 0;
    uint64_t taken = 0;

    while (shard_gap(s, file, done, at, &gap) && gap.first < t->rows[file]) {
        assert_true(gap.first >= at && gap.first < gap.end);
        for (at = gap.first; at < gap.end && at < t->rows[file]; at++) {
            marks[at]++;
            taken++;
        }
    }
    return taken;
}

/* Each row once over all shards, some of them done before; *most and *least: rows of a shard. */
static void divide(const struct table *t, uint32_t count, uint64_t *most, uint64_t *least)
{
    uint8_t *marks = mr_alloc(FILES_MOST * ROWS_MOST);
    struct mr_ranges done = {0};

    *most = 0;
    *least = UINT64_MAX;
    for (size_t i = 0; i < FILES_MOST * ROWS_MOST; i++) {
        marks[i] = 0;
    }
    assert_int_equal(mr_ranges_add(&done, 5000, 6000, NULL), MR_OK);
    for (uint32_t i = 0; i < count; i++) {
        struct shard s;
        uint64_t taken = 0;
        shard_begin(&s, i, count, t->counted, t->files);
        for (uint32_t f = 0; f < t->files; f++) {
            taken += take(&s, t, f, &done, marks + (size_t)f * ROWS_MOST);
        }
        shard_fini(&s);
        *most = MR_MAX(*most, taken);
        *least = MR_MIN(*least, taken);
    }
    for (size_t f = 0; f < t->files; f++) {
        for (uint64_t row = 0; row < ROWS_MOST; row++) {
            const bool is_done = row >= 5000 && row < 6000;
            assert_int_equal(marks[f * ROWS_MOST + row], row < t->rows[f] && !is_done);
        }
    }
    mr_ranges_fini(&done);
    mr_free(marks);
}

static void each_row_once(void **state)
{
    static const struct table tables[] = {
        {.files = 1, .counted = {17}, .rows = {17}},
        {.files = 3, .counted = {20000, 0, 7}, .rows = {20000, 0, 7}},
        {.files = 1, .counted = {-1}, .rows = {19999}},
        {.files = 3, .counted = {-1, -1, -1}, .rows = {1, 20000, 4096}},
        {.files = 4, .counted = {300, -1, 4000, -1}, .rows = {300, 5000, 4000, 12000}},
    };
    uint64_t most;
    uint64_t least;
    (void)state;

    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        for (uint32_t count = 1; count <= 9; count++) {
            divide(&tables[i], count, &most, &least);
        }
    }
}

static void parts_are_equal(void **state)
{
    struct table many = {.files = 40};
    uint64_t most;
    uint64_t least;
    (void)state;

    divide(&(struct table){.files = 2, .counted = {4000, 1003}, .rows = {4000, 1003}}, 7, &most,
           &least);
    assert_in_range(most - least, 0, 1);
    divide(&(struct table){.files = 1, .counted = {-1}, .rows = {20000}}, 2, &most, &least);
    assert_in_range(most - least, 0, 4096 + 1000);
    /* Enough files: each whole with one shard, which reads nothing of the others. */
    for (size_t i = 0; i < many.files; i++) {
        many.counted[i] = -1;
        many.rows[i] = 3000;
    }
    divide(&many, 5, &most, &least);
    assert_int_equal(most, 8 * 3000);
    assert_int_equal(least, 8 * 3000);
    divide(&many, 6, &most, &least); /* 40 files are too few for that */
}

static void large_numbers(void **state)
{
    const int64_t rows[] = {INT64_MAX / 2, INT64_MAX / 2};
    struct mr_ranges none = {0};
    struct mr_range first;
    struct mr_range second;
    struct shard s;
    (void)state;

    shard_begin(&s, 9998, 9999, rows, 2);
    assert_false(shard_gap(&s, 0, &none, 0, &first));
    assert_true(shard_gap(&s, 1, &none, 0, &second));
    assert_int_equal(second.end, INT64_MAX / 2);
    shard_fini(&s);
    shard_begin(&s, 0, 2, (const int64_t[]){-1}, 1);
    assert_false(shard_gap(&s, 0, &none, INT64_MAX - 4096, &first) &&
                 first.first < INT64_MAX - 4096);
    shard_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_row_once),
        cmocka_unit_test(parts_are_equal),
        cmocka_unit_test(large_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
