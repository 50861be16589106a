/* The buddy allocator against a model that knows for each unit of 64 KiB whose it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/rng.h"
#include "segment.h"
#include "shm/heap.h"

#define UNITS  87u /* no power of two: 64 + 16 + 4 + 2 + 1 */
#define BLOCKS 40u
#define ROUNDS 20000
#define FIRST  (3u * MR_SHM_UNIT) /* of the heap, in the segment */

struct model {
    struct shm_segment segment;
    struct mr_shm_heap heap;
    uint8_t owner[UNITS]; /* 0 = free, else 1 + number of the block */
    struct mr_block *blocks[BLOCKS];
    uint8_t tags[BLOCKS];
    uint64_t refused;
};

static void setup_model(struct model *m)
{
    struct mr_err err;

    *m = (struct model){0};
    assert_int_equal(
        shm_segment_new(&m->segment, "heap", FIRST + UNITS * MR_SHM_UNIT, SHM_SHARED, &err), MR_OK);
    mr_shm_heap_init(&m->heap, m->segment.fd, m->segment.data, FIRST,
                     UNITS * MR_SHM_UNIT + MR_SHM_UNIT / 2);
    assert_int_equal(mr_shm_heap_get_stats(&m->heap).bytes, UNITS * MR_SHM_UNIT);
}

static void teardown_model(struct model *m)
{
    mr_shm_heap_fini(&m->heap);
    shm_segment_close(&m->segment);
}

static unsigned units_for(size_t bytes)
{
    unsigned units = 1;

    while ((size_t)units * MR_SHM_UNIT < bytes) {
        units *= 2;
    }
    return units;
}

/* True if there is a free extent of that many units where a buddy of that size may begin. */
static bool has_room(const struct model *m, unsigned units)
{
    for (unsigned at = 0; at + units <= UNITS; at += units) {
        unsigned n = 0;
        while (n < units && m->owner[at + n] == 0) {
            n++;
        }
        if (n == units) {
            return true;
        }
    }
    return false;
}

static void model_give(struct model *m, unsigned i)
{
    for (unsigned u = 0; u < UNITS; u++) {
        if (m->owner[u] == i + 1) {
            m->owner[u] = 0;
        }
    }
}

/* Block i has the extent of a request for `bytes`, and shares none of it. */
static void model_take(struct model *m, unsigned i, size_t bytes)
{
    const struct mr_block *b = m->blocks[i];
    const unsigned units = units_for(bytes);
    uint64_t offset;
    int fd;

    assert_true(b->cap >= bytes && b->cap <= (size_t)units * MR_SHM_UNIT);
    assert_true(mr_block_in_file(b, b->data, &fd, &offset));
    assert_int_equal(fd, m->segment.fd);
    assert_ptr_equal(b->data, m->segment.data + offset);
    assert_true(offset >= FIRST && (offset - FIRST) % ((uint64_t)units * MR_SHM_UNIT) == 0);
    const unsigned at = (unsigned)((offset - FIRST) / MR_SHM_UNIT);
    assert_true(at + units <= UNITS);
    for (unsigned u = at; u < at + units; u++) {
        assert_int_equal(m->owner[u], 0);
        m->owner[u] = (uint8_t)(i + 1);
    }
}

static void fill(struct model *m, unsigned i, uint8_t tag)
{
    m->tags[i] = tag;
    memset(m->blocks[i]->data, tag, 64);
    memset(m->blocks[i]->data + m->blocks[i]->cap - 64, tag, 64);
}

static void check_content(const struct model *m, unsigned i, size_t cap)
{
    for (unsigned k = 0; k < 64; k++) {
        assert_int_equal(m->blocks[i]->data[k], m->tags[i]);
        assert_int_equal(m->blocks[i]->data[cap - 64 + k], m->tags[i]);
    }
}

static void step_new(struct model *m, unsigned i, size_t bytes, uint8_t tag)
{
    const bool has = has_room(m, units_for(bytes));

    m->blocks[i] = mr_block_new_in(&m->heap.provider, bytes);
    assert_int_equal(m->blocks[i] != NULL, has);
    if (has) {
        model_take(m, i, bytes);
        fill(m, i, tag);
    } else {
        m->refused++;
    }
}

/* In place, at another place, or not at all; the content stays. */
static void step_grow(struct model *m, unsigned i, size_t bytes, uint8_t tag)
{
    const size_t cap = m->blocks[i]->cap;
    const uint8_t *data = m->blocks[i]->data;
    const bool is_in_place = bytes <= units_for(cap) * (size_t)MR_SHM_UNIT;
    const bool has = is_in_place || has_room(m, units_for(bytes));

    assert_int_equal(mr_block_grow(&m->blocks[i], cap, bytes), has);
    check_content(m, i, cap);
    if (!has) {
        m->refused++;
        assert_int_equal(m->blocks[i]->cap, cap);
        return;
    }
    assert_int_equal(m->blocks[i]->data == data, is_in_place);
    model_give(m, i);
    model_take(m, i, bytes);
    fill(m, i, tag);
}

static void step_give(struct model *m, unsigned i)
{
    check_content(m, i, m->blocks[i]->cap);
    model_give(m, i);
    mr_block_unref(&m->blocks[i]);
}

static size_t random_size(struct mr_rng *rng)
{
    const size_t most = (size_t)MR_SHM_UNIT << (mr_rng_u64(rng) % 6);

    return 1 + mr_rng_u64(rng) % most;
}

static uint64_t sum_of_caps(const struct model *m)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < BLOCKS; i++) {
        sum += m->blocks[i] ? m->blocks[i]->cap : 0;
    }
    return sum;
}

static void test_like_its_model(void **state)
{
    struct model m;
    struct mr_rng rng;

    (void)state;
    setup_model(&m);
    mr_rng_seed(&rng, 7);
    for (int round = 0; round < ROUNDS; round++) {
        const unsigned i = (unsigned)(mr_rng_u64(&rng) % BLOCKS);
        const uint8_t tag = (uint8_t)mr_rng_u64(&rng);
        if (!m.blocks[i]) {
            step_new(&m, i, random_size(&rng), tag);
        } else if (mr_rng_u64(&rng) % 4 == 0) {
            step_grow(&m, i, m.blocks[i]->cap + random_size(&rng), tag);
        } else {
            step_give(&m, i);
        }
        const struct mr_shm_heap_stats s = mr_shm_heap_get_stats(&m.heap);
        assert_int_equal(s.used_bytes, sum_of_caps(&m));
        assert_int_equal(s.refused, m.refused);
    }
    assert_true(m.refused > 0);
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (m.blocks[i]) {
            step_give(&m, i);
        }
    }
    /* what was cut is whole again */
    step_new(&m, 0, (size_t)64 * MR_SHM_UNIT, 1);
    assert_non_null(m.blocks[0]);
    step_give(&m, 0);
    teardown_model(&m);
}

/* An extent has the place that it will need, though not the memory; where there is no such place, it is none. */
static void test_room_to_grow(void **state)
{
    const size_t most = (size_t)16 * MR_SHM_UNIT;
    struct mr_block *blocks[5];
    struct model m;

    (void)state;
    setup_model(&m);
    for (int i = 0; i < 5; i++) {
        blocks[i] = mr_block_new_growing(&m.heap.provider, 100, most);
        assert_non_null(blocks[i]);
        assert_int_equal(blocks[i]->cap, 4096);
        memset(blocks[i]->data, i, 100);
    }
    assert_null(mr_block_new_growing(&m.heap.provider, 100, most));
    assert_int_equal(mr_shm_heap_get_stats(&m.heap).used_bytes, 5 * 4096);
    for (int i = 0; i < 5; i++) {
        const uint8_t *data = blocks[i]->data;
        assert_true(mr_block_grow(&blocks[i], 100, most));
        assert_ptr_equal(blocks[i]->data, data);
        assert_int_equal(data[99], i);
        memset(blocks[i]->data, i, most);
    }
    for (int i = 0; i < 5; i++) {
        for (size_t at = 0; at < most; at++) {
            assert_int_equal(blocks[i]->data[at], i);
        }
        mr_block_unref(&blocks[i]);
    }
    teardown_model(&m);
}

static void test_what_cannot_be(void **state)
{
    struct model m;

    (void)state;
    setup_model(&m);
    assert_null(mr_block_new_in(&m.heap.provider, (size_t)65 * MR_SHM_UNIT));
    assert_null(mr_block_new_in(&m.heap.provider, (size_t)MR_SHM_UNIT << MR_SHM_ORDERS));
    assert_null(mr_block_new_in(&m.heap.provider, SIZE_MAX / 2));
    assert_int_equal(mr_shm_heap_get_stats(&m.heap).refused, 3);
    teardown_model(&m);
}

static void count(void *ctx)
{
    ++*(unsigned *)ctx;
}

static uint64_t present_bytes(const struct model *m)
{
    struct stat st;

    assert_int_equal(fstat(m->segment.fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

/* What is free goes back to the system, what is not stays until its last reference. */
static void test_close(void **state)
{
    struct model m;
    struct mr_block *first, *second;
    unsigned drained = 0;

    (void)state;
    setup_model(&m);
    for (unsigned i = 0; i < 20; i++) {
        step_new(&m, i, MR_SHM_UNIT, (uint8_t)i);
    }
    for (unsigned i = 0; i < 20; i++) {
        if (i != 3 && i != 10) {
            step_give(&m, i);
        }
    }
    first = m.blocks[3];
    second = m.blocks[10];
    assert_true(present_bytes(&m) > 20 * 4096);
    mr_shm_heap_close(&m.heap, count, &drained);
    assert_int_equal(drained, 0);
    assert_true(present_bytes(&m) <= 4 * 4096);
    assert_null(mr_block_new_in(&m.heap.provider, 1));
    check_content(&m, 3, first->cap);
    mr_block_unref(&first);
    assert_int_equal(drained, 0);
    check_content(&m, 10, second->cap);
    mr_block_unref(&second);
    assert_int_equal(drained, 1);
    assert_int_equal(present_bytes(&m), 0);
    teardown_model(&m);
}

static void test_close_of_an_empty_one(void **state)
{
    struct model m;
    unsigned drained = 0;

    (void)state;
    setup_model(&m);
    mr_shm_heap_close(&m.heap, count, &drained);
    assert_int_equal(drained, 1);
    teardown_model(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_close),          cmocka_unit_test(test_close_of_an_empty_one),
        cmocka_unit_test(test_like_its_model), cmocka_unit_test(test_room_to_grow),
        cmocka_unit_test(test_what_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
