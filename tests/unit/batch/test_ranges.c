/* Ranges against an array of bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/rng.h"
#include "batch/manifest/ranges.h"

#define ROWS 200

static void edges(void **state)
{
    struct mr_ranges r = {0};
    struct mr_range gap;
    struct mr_err err;

    (void)state;
    assert_true(mr_ranges_gap(&r, 0, 10, &gap));
    assert_true(gap.first == 0 && gap.end == 10);
    assert_false(mr_ranges_gap(&r, 10, 10, &gap));
    assert_int_equal(mr_ranges_add(&r, 5, 5, &err), MR_E_INVALID);
    assert_int_equal(mr_ranges_add(&r, UINT64_MAX - 1, UINT64_MAX, &err), MR_OK);
    assert_int_equal(mr_ranges_add(&r, 10, 20, &err), MR_OK);
    assert_int_equal(mr_ranges_add(&r, 19, 21, &err), MR_E_EXISTS);
    assert_string_equal(err.msg, "rows 19 to 19 are done already");
    assert_int_equal(mr_ranges_add(&r, 9, 11, &err), MR_E_EXISTS);
    assert_int_equal(mr_ranges_add(&r, 0, UINT64_MAX, &err), MR_E_EXISTS);
    assert_int_equal(mr_ranges_add(&r, 20, 30, &err), MR_OK);
    assert_int_equal(r.len, 2);
    assert_int_equal(r.rows, 21);
    assert_int_equal(mr_ranges_remove(&r, 29, 31, &err), MR_E_NOT_FOUND);
    assert_int_equal(mr_ranges_remove(&r, 15, 16, &err), MR_OK);
    assert_int_equal(r.len, 3);
    assert_true(mr_ranges_gap(&r, 12, 40, &gap));
    assert_true(gap.first == 15 && gap.end == 16);
    assert_true(mr_ranges_gap(&r, 16, UINT64_MAX, &gap));
    assert_true(gap.first == 30 && gap.end == UINT64_MAX - 1);
    mr_ranges_fini(&r);
    assert_null(r.at);
}

static bool all_are(const bool *bits, uint64_t first, uint64_t end, bool value)
{
    for (uint64_t i = first; i < end; i++) {
        if (bits[i] != value) {
            return false;
        }
    }
    return true;
}

/* The array gives the expected ranges, and their least number. */
static void check(const struct mr_ranges *r, const bool *bits)
{
    uint64_t rows = 0;
    size_t runs = 0;

    for (uint64_t i = 0; i < ROWS; i++) {
        struct mr_range gap;
        uint64_t end;
        rows += bits[i];
        runs += bits[i] && (i == 0 || !bits[i - 1]);
        for (end = i; end < ROWS && bits[end]; end++) {
        }
        assert_int_equal(mr_ranges_gap(r, i, ROWS, &gap), end < ROWS);
        if (end < ROWS) {
            assert_int_equal(gap.first, end);
            assert_true(all_are(bits, gap.first, gap.end, false));
            assert_true(gap.end == ROWS || bits[gap.end]);
        }
    }
    assert_int_equal(r->rows, rows);
    assert_int_equal(r->len, runs);
}

static void as_an_array_of_bits(void **state)
{
    struct mr_ranges r = {0};
    bool bits[ROWS] = {0};
    struct mr_rng rng;

    (void)state;
    mr_rng_seed(&rng, 3);
    for (int step = 0; step < 20000; step++) {
        const uint64_t first = mr_rng_u64(&rng) % ROWS;
        const uint64_t end = first + 1 + mr_rng_u64(&rng) % (step % 2 ? 4 : 20);
        if (end > ROWS) {
            continue;
        }
        assert_int_equal(mr_ranges_contains(&r, first, end), all_are(bits, first, end, true));
        if (mr_rng_u64(&rng) % 2) {
            const bool may = all_are(bits, first, end, false);
            assert_int_equal(mr_ranges_add(&r, first, end, NULL), may ? MR_OK : MR_E_EXISTS);
            memset(bits + first, may ? true : bits[first], may ? end - first : 1);
        } else {
            const bool may = all_are(bits, first, end, true);
            assert_int_equal(mr_ranges_remove(&r, first, end, NULL), may ? MR_OK : MR_E_NOT_FOUND);
            memset(bits + first, may ? false : bits[first], may ? end - first : 1);
        }
        if (step % 16 == 0) {
            check(&r, bits);
        }
    }
    mr_ranges_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edges),
        cmocka_unit_test(as_an_array_of_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
