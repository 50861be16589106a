/* What holds of the buckets of each histogram. */
#ifndef MR_TEST_HIST_CHECK_H
#define MR_TEST_HIST_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct hist_buckets {
    unsigned (*bucket)(uint64_t value);
    uint64_t (*upper)(unsigned bucket);
    unsigned count;
    uint64_t end; /* above the last bucket's upper edge */
    double error; /* of a value, as a share of it */
};

/* Each begins where the one before ends, and what is too large goes to the last. */
static inline void check_buckets(const struct hist_buckets *h)
{
    uint64_t next = 0;

    for (unsigned b = 0; b < h->count; b++) {
        uint64_t upper = h->upper(b);
        assert_true(upper >= next);
        assert_int_equal(h->bucket(next), b);
        assert_int_equal(h->bucket(upper), b);
        next = upper + 1;
    }
    assert_true(next == h->end);
    assert_int_equal(h->bucket(next), h->count - 1);
    assert_int_equal(h->bucket(UINT64_MAX), h->count - 1);
}

static inline void check_error(const struct hist_buckets *h)
{
    for (uint64_t v = 1; v < h->end; v += v / 3000 + 1) {
        uint64_t upper = h->upper(h->bucket(v));
        assert_true(upper >= v);
        assert_true((double)(upper - v) < h->error * (double)v);
    }
}

#endif
