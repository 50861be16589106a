/* Packed weights that processes share: what a later one finds is used where it has packed the same bytes, and only there.
 * Every block is checked against what was written to it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "onnxruntime/weights/parameters.h"

#define KB     UINT64_C(1024)
#define ROOM   (64 * 1024 * KB)
#define BLOCKS 12
#define SEALS  (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static const uint64_t sizes[BLOCKS] = {300 * KB, 100,       1024 * KB, 200 * KB,
                                       256 * KB, 4096 * KB, 257 * KB,  999 * KB,
                                       512 * KB, 256 * KB,  300 * KB,  2048 * KB};
struct process {
    struct onnx_packed *packed;
    uint8_t *at[BLOCKS];
    unsigned seed[BLOCKS]; /* of what was written */
};

static uint8_t byte(unsigned seed, uint64_t i)
{
    return (uint8_t)((i * 2654435761u >> 13) + seed * 97 + i);
}

static void block_write(struct process *p, int n, unsigned seed)
{
    for (uint64_t i = 0; i < sizes[n]; i++) {
        p->at[n][i] = byte(seed, i);
    }
    p->seed[n] = seed;
}

static void begin(struct process *p, int found)
{
    struct mr_err err;

    *p = (struct process){.packed = onnx_packed_new(found, ROOM, &err)};
    assert_non_null(p->packed);
}

static void block_get(struct process *p, int n)
{
    p->at[n] = onnx_packed_alloc(p->packed, sizes[n]);
    assert_non_null(p->at[n]);
    assert_int_equal((uintptr_t)p->at[n] % 64, 0);
}

static void check(const struct process *p)
{
    for (int n = 0; n < BLOCKS; n++) {
        for (uint64_t i = 0; p->at[n] && i < sizes[n]; i++) {
            if (p->at[n][i] != byte(p->seed[n], i)) {
                fail_msg("block %d, byte %llu", n, (unsigned long long)i);
            }
        }
    }
}

/* Requests and writes one block after the other, block n with the number n. `odd` gets another number; -1: none. */
static int pack(struct process *p, int found, int odd)
{
    begin(p, found);
    for (int n = 0; n < BLOCKS; n++) {
        block_get(p, n);
        block_write(p, n, n == odd ? 100 : (unsigned)n);
    }
    const int made = onnx_packed_finish(p->packed);
    check(p);
    return made;
}

/* The pages of a block that can be shared. */
static uint64_t pages(int n)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    return sizes[n] >= 256 * KB ? (sizes[n] + 64 + page - 1) / page * page : 0;
}

static uint64_t all_pages(void)
{
    uint64_t sum = 0;

    for (int n = 0; n < BLOCKS; n++) {
        sum += pages(n);
    }
    return sum;
}

static void the_first_one_leaves_a_sealed_file(void **state)
{
    struct process p;
    const int made = pack(&p, -1, -1);

    (void)state;
    assert_true(made >= 0);
    assert_int_equal(fcntl(made, F_GET_SEALS) & SEALS, SEALS);
    assert_true(onnx_packed_shared(p.packed) >= all_pages());
    block_write(&p, 0, 55); /* in a page of its own */
    check(&p);
    struct process q;
    assert_int_equal(pack(&q, made, -1), -1);
    assert_int_equal(onnx_packed_shared(q.packed), all_pages());
    onnx_packed_free(&p.packed);
    check(&q); /* the file outlives its maker */
    onnx_packed_free(&q.packed);
    assert_null(q.packed);
    close(made);
}

static void a_block_that_differs_is_not_taken(void **state)
{
    struct process p;
    struct process q;
    const int made = pack(&p, -1, -1);

    (void)state;
    for (int odd = 0; odd < BLOCKS; odd++) {
        pack(&q, made, odd);
        assert_int_equal(onnx_packed_shared(q.packed), all_pages() - pages(odd));
        onnx_packed_free(&q.packed);
    }
    onnx_packed_free(&p.packed);
    close(made);
}

/* All requested before the first is written: those that are compared until the end are shared. */
static void blocks_are_written_late(void **state)
{
    struct process p;
    struct process q;
    const int made = pack(&p, -1, -1);

    (void)state;
    begin(&q, made);
    for (int n = 0; n < BLOCKS; n++) {
        block_get(&q, n);
        memset(q.at[n], 0xee, sizes[n]);
    }
    for (int n = BLOCKS; n-- > 0;) {
        block_write(&q, n, (unsigned)n);
    }
    onnx_packed_finish(q.packed);
    check(&q);
    assert_in_range(onnx_packed_shared(q.packed), 1, all_pages() - 1);
    onnx_packed_free(&q.packed);
    onnx_packed_free(&p.packed);
    close(made);
}

/* Written again after it was shared: by this process alone. */
static void a_shared_block_is_written(void **state)
{
    struct process p;
    struct process q;
    const int made = pack(&p, -1, -1);

    (void)state;
    pack(&q, made, -1);
    block_write(&q, 5, 77);
    check(&q);
    check(&p);
    onnx_packed_free(&q.packed);
    pack(&q, made, -1);
    assert_int_equal(onnx_packed_shared(q.packed), all_pages());
    onnx_packed_free(&q.packed);
    onnx_packed_free(&p.packed);
    close(made);
}

/* Another order of blocks, some of them written twice, with a file that may be empty. */
static void any_order(void **state)
{
    struct process p;
    struct process q;
    struct mr_err err;
    const int made = pack(&p, -1, -1);
    int empty = memfd_create("empty", MFD_CLOEXEC);

    (void)state;
    srand(1);
    for (int round = 0; round < 30; round++) {
        begin(&q, round % 5 == 4 ? empty : made);
        for (int i = 0; i < BLOCKS; i++) {
            const int n = round % 3 == 0 ? i : rand() % BLOCKS;
            if (!q.at[n]) {
                block_get(&q, n);
            }
            block_write(&q, n, (unsigned)(rand() % 5 > 0 ? n : rand() % 50));
        }
        assert_int_equal(onnx_packed_finish(q.packed), -1);
        check(&q);
        if (round % 5 == 4) {
            assert_int_equal(onnx_packed_shared(q.packed), 0);
        }
        onnx_packed_free(&q.packed);
    }
    onnx_packed_free(&p.packed);
    close(empty);
    close(made);
    assert_null(onnx_packed_new(made, ROOM, &err)); /* no file */
}

static void the_room_ends(void **state)
{
    struct process p;
    uint64_t bytes = 0;

    (void)state;
    begin(&p, -1);
    assert_null(onnx_packed_alloc(p.packed, ROOM));
    assert_null(onnx_packed_alloc(p.packed, UINT64_MAX));
    for (uint8_t *at; (at = onnx_packed_alloc(p.packed, 1024 * KB)); bytes += 1024 * KB) {
        assert_true(onnx_range_has(onnx_packed_range(p.packed), at + 1024 * KB - 1));
    }
    assert_in_range(bytes, ROOM - 2048 * KB, ROOM);
    close(onnx_packed_finish(p.packed));
    onnx_packed_free(&p.packed);
    begin(&p, -1);
    assert_int_equal(onnx_packed_finish(p.packed), -1); /* nothing was packed */
    onnx_packed_free(&p.packed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_one_leaves_a_sealed_file),
        cmocka_unit_test(a_block_that_differs_is_not_taken),
        cmocka_unit_test(blocks_are_written_late),
        cmocka_unit_test(a_shared_block_is_written),
        cmocka_unit_test(any_order),
        cmocka_unit_test(the_room_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
