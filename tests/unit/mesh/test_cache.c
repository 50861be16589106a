/* What is evicted: seeded traces against a plain LRU and the best fixed choice. */
#include "mesh/cache/cache.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"

#define MODELS 10000
#define ROOM   1000
#define USES   400000

struct model {
    struct cache_entry entry;
    bool is_in;
    unsigned last; /* of the LRU */
};

static struct model models[MODELS];
static double cumulative[MODELS];

static void make_zipf(double s)
{
    double sum = 0;

    for (unsigned i = 0; i < MODELS; i++) {
        sum += 1 / pow(i + 1, s);
        cumulative[i] = sum;
    }
    for (unsigned i = 0; i < MODELS; i++) {
        cumulative[i] /= sum;
    }
}

static unsigned draw(struct mr_rng *rng)
{
    double u = mr_rng_unit(rng);
    unsigned low = 0;
    unsigned high = MODELS - 1;

    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (cumulative[middle] < u) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Every `scan`-th use is the next model of a pass over all; 0: none. `shift`: the ranks move by so many in the middle. */
static unsigned next_model(struct mr_rng *rng, unsigned use, unsigned scan, unsigned shift)
{
    if (scan && use % scan == 0) {
        return (use / scan) % MODELS;
    }
    return (draw(rng) + (use > USES / 2 ? shift : 0)) % MODELS;
}

static double ours(unsigned scan, unsigned shift)
{
    struct mesh_cache c;
    struct mr_rng rng;
    unsigned hits = 0;
    unsigned counted = 0;

    cache_init(&c);
    mr_rng_seed(&rng, 7);
    for (unsigned i = 0; i < MODELS; i++) {
        models[i] = (struct model){.entry = {.heat = CACHE_COLD, .pos = CACHE_OUT}};
    }
    for (unsigned use = 0; use < USES; use++) {
        struct model *m = &models[next_model(&rng, use, scan, shift)];
        bool is_scan = scan && use % scan == 0;
        if (use >= USES / 4 && !is_scan) {
            counted++;
            hits += m->is_in;
        }
        cache_touch(&c, &m->entry);
        if (m->is_in) {
            continue;
        }
        if (c.heap.len == ROOM) {
            struct model *victim = (struct model *)cache_victim(&c, NULL);
            victim->is_in = false;
            cache_remove(&c, &victim->entry);
        }
        m->is_in = true;
        cache_insert(&c, &m->entry, 1, 1);
    }
    cache_fini(&c);
    return (double)hits / counted;
}

/* Che's approximation would do for the plain trace; this is exact, by the number of other models since the last use. */
static double lru(unsigned scan, unsigned shift)
{
    static unsigned tree[USES + 2];
    struct mr_rng rng;
    unsigned hits = 0;
    unsigned counted = 0;

    memset(tree, 0, sizeof tree);
    mr_rng_seed(&rng, 7);
    for (unsigned i = 0; i < MODELS; i++) {
        models[i].last = 0;
    }
    for (unsigned use = 1; use <= USES; use++) {
        struct model *m = &models[next_model(&rng, use - 1, scan, shift)];
        bool is_scan = scan && (use - 1) % scan == 0;
        unsigned between = 0;
        for (unsigned i = use; i > 0; i -= i & -i) {
            between += tree[i];
        }
        for (unsigned i = m->last; i > 0; i -= i & -i) {
            between -= tree[i];
        }
        if (use - 1 >= USES / 4 && !is_scan) {
            counted++;
            hits += m->last && between < ROOM;
        }
        for (unsigned i = m->last; i > 0 && i <= USES; i += i & -i) {
            tree[i]--;
        }
        for (unsigned i = use; i <= USES; i += i & -i) {
            tree[i]++;
        }
        m->last = use;
    }
    return (double)hits / counted;
}

static void zipf_hits_more_than_an_lru(void **state)
{
    (void)state;
    make_zipf(0.9);
    double plain = lru(0, 0);
    double hits = ours(0, 0);
    print_message("zipf 0.9: LRU %.3f, ours %.3f, best fixed %.3f\n", plain, hits,
                  cumulative[ROOM - 1]);
    assert_true(plain > 0.54 &&
                plain < 0.57); /* the trace is the one that others were measured with */
    assert_true(hits > plain + 0.06);
}

static void scan_displaces_little(void **state)
{
    (void)state;
    make_zipf(0.9);
    double quiet = ours(0, 0);
    double plain = lru(3, 0);
    double hits = ours(3, 0);
    print_message("zipf and scan: LRU %.3f, ours %.3f, without the scan %.3f\n", plain, hits,
                  quiet);
    assert_true(hits > plain + 0.08);
    assert_true(hits > quiet - 0.04);
}

static void another_working_set_takes_over(void **state)
{
    (void)state;
    make_zipf(0.9);
    double plain = lru(0, MODELS / 2);
    double hits = ours(0, MODELS / 2);
    print_message("zipf that shifts: LRU %.3f, ours %.3f\n", plain, hits);
    assert_true(hits > plain);
}

static void what_is_dear_to_load_or_small_stays(void **state)
{
    struct mesh_cache c;
    struct cache_entry slow = {.heat = CACHE_COLD};
    struct cache_entry large = {.heat = CACHE_COLD};
    struct cache_entry plain = {.heat = CACHE_COLD};
    (void)state;

    cache_init(&c);
    cache_touch(&c, &slow);
    cache_touch(&c, &large);
    cache_touch(&c, &plain);
    cache_insert(&c, &slow, 1000, 10);
    cache_insert(&c, &large, 100, 100);
    cache_insert(&c, &plain, 100, 10);
    assert_ptr_equal(cache_victim(&c, NULL), &large);
    cache_remove(&c, &large);
    assert_ptr_equal(cache_victim(&c, NULL), &plain);
    cache_remove(&c, &plain);
    assert_ptr_equal(cache_victim(&c, NULL), &slow);
    cache_remove(&c, &slow);
    assert_null(cache_victim(&c, NULL));
    cache_fini(&c);
}

static const struct cache_entry *busy;

static bool is_busy(const struct cache_entry *e)
{
    return !busy || e == busy;
}

static void busy_entries_go_last(void **state)
{
    struct mesh_cache c;
    struct cache_entry first = {.heat = CACHE_COLD};
    struct cache_entry second = {.heat = CACHE_COLD};
    (void)state;

    cache_init(&c);
    cache_touch(&c, &first);
    cache_insert(&c, &first, 1, 1);
    cache_touch(&c, &second);
    cache_insert(&c, &second, 1, 1);
    assert_ptr_equal(cache_victim(&c, is_busy), &first); /* all are busy: the lowest */
    busy = &first;
    assert_ptr_equal(cache_victim(&c, is_busy), &second);
    assert_int_equal(c.heap.len, 2);
    cache_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zipf_hits_more_than_an_lru),
        cmocka_unit_test(scan_displaces_little),
        cmocka_unit_test(another_working_set_takes_over),
        cmocka_unit_test(what_is_dear_to_load_or_small_stays),
        cmocka_unit_test(busy_entries_go_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
