/* Output queues: order, references, partial consumption, movement, against a plain model. */
#include "net/loop/outq.h"

#include "base/rng.h"
#include "net/loop/loop_priv.h"
#include "net_test.h"

struct fixture {
    struct mr_loop *loop;
    struct mr_outq q;
    uint8_t model[1 << 20];
    size_t from; /* of the model: consumed before */
    size_t to;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_int_equal(mr_loop_new(&f->loop, NULL, NULL), MR_OK);
    mr_outq_init(&f->q, f->loop);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    mr_outq_fini(&f->q);
    mr_loop_free(&f->loop);
    free(f);
    return 0;
}

static void check(struct fixture *f, const struct mr_outq *q)
{
    static struct iovec iov[100000];
    int n = mr_outq_iov(q, iov, (int)COUNT(iov));
    size_t at = f->from;

    assert_int_equal(q->bytes, f->to - f->from);
    assert_true(q->memory >= q->bytes);
    for (int i = 0; i < n; i++) {
        assert_true(iov[i].iov_len > 0);
        assert_memory_equal(iov[i].iov_base, f->model + at, iov[i].iov_len);
        at += iov[i].iov_len;
    }
    assert_int_equal(at, f->to);
}

static uint8_t *grow_model(struct fixture *f, struct mr_rng *r, size_t n)
{
    uint8_t *p = f->model + f->to;

    for (size_t i = 0; i < n; i++) {
        p[i] = (uint8_t)mr_rng_u64(r);
    }
    f->to += n;
    return p;
}

/* One random addition to q and the model. */
static void add_something(struct fixture *f, struct mr_outq *q, struct mr_rng *r)
{
    size_t n = (size_t)(mr_rng_u64(r) % 3000);

    switch (mr_rng_u64(r) % 4) {
    case 0: mr_outq_append(q, grow_model(f, r, n), n); break;
    case 1: mr_outq_append_large(q, grow_model(f, r, n * 9), n * 9); break;
    case 2: {
        struct mr_block *block = mr_block_new(n + 1);
        memcpy(block->data + 1, grow_model(f, r, n), n);
        mr_outq_append_block(q, block->data + 1, n, block);
        break;
    }
    default: {
        n = n % MR_OUTQ_RESERVE_MAX;
        char *p = mr_outq_reserve(q, n + 1);
        assert_non_null(p);
        memcpy(p, grow_model(f, r, n), n);
        mr_outq_commit(q, n);
        break;
    }
    }
}

static void test_random(void **state)
{
    struct fixture *f = *state;
    struct mr_rng r;

    mr_rng_seed(&r, 1);
    while (f->to < sizeof f->model - 30000) {
        add_something(f, &f->q, &r);
        check(f, &f->q);
        size_t n = (size_t)(mr_rng_u64(&r) % (f->q.bytes / 2 + 1));
        mr_outq_consume(&f->q, n);
        f->from += n;
        check(f, &f->q);
    }
    mr_outq_consume(&f->q, f->q.bytes);
    assert_null(f->q.first);
    assert_int_equal(f->q.memory, 0);
    assert_int_equal(mr_outq_front(&f->q).len, 0);
}

static void test_move(void **state)
{
    struct fixture *f = *state;
    struct mr_outq from;
    struct mr_rng r;

    mr_rng_seed(&r, 2);
    mr_outq_init(&from, f->loop);
    while (f->to < sizeof f->model - 30000) {
        add_something(f, &from, &r);
        mr_outq_move(&f->q, &from, (size_t)(mr_rng_u64(&r) % (from.bytes + 1)));
    }
    mr_outq_move(&f->q, &from, from.bytes);
    check(f, &f->q);
    assert_int_equal(from.bytes, 0);
    assert_int_equal(from.memory, 0);
    mr_outq_fini(&from);
}

static void test_references(void **state)
{
    struct fixture *f = *state;
    struct mr_block *block = mr_block_new(100000);
    struct mr_outq from;

    memset(block->data, 7, 100000);
    mr_outq_init(&from, f->loop);
    mr_outq_append_block(&from, block->data, 100000, mr_block_ref(block));
    mr_outq_move(&f->q, &from, 40000);
    assert_ptr_equal(mr_outq_front(&f->q).ptr, block->data);
    assert_int_equal(atomic_load(&block->refs), 3);
    mr_outq_fini(&from);
    assert_int_equal(atomic_load(&block->refs), 2);
    mr_outq_consume(&f->q, 40000);
    assert_int_equal(atomic_load(&block->refs), 1);
    mr_block_unref(&block);
}

static void test_memory(void **state)
{
    /* A piece of a block counts for what it keeps from being used again. */
    struct fixture *f = *state;
    struct mr_block *block = mr_block_new(1 << 20);
    struct mr_outq from;

    mr_outq_init(&from, f->loop);
    mr_outq_append_block(&from, block->data, 1000, mr_block_ref(block));
    assert_int_equal(from.memory, MR_CHUNK_BYTES + (1 << 19)); /* one of two references */
    mr_outq_append_block(&from, block->data, 1 << 20, block);  /* the other */
    assert_int_equal(from.memory, MR_CHUNK_BYTES + (1 << 19) + (1 << 20));
    mr_outq_move(&f->q, &from, 1000 + 300000);
    assert_int_equal(f->q.memory, MR_CHUNK_BYTES + (1 << 19) + 300000);
    assert_int_equal(from.memory, MR_CHUNK_BYTES + (1 << 20) - 300000);
    mr_outq_consume(&f->q, 999);
    assert_int_equal(f->q.memory, MR_CHUNK_BYTES + (1 << 19) + 300000);
    mr_outq_consume(&f->q, 1);
    assert_int_equal(f->q.memory, MR_CHUNK_BYTES + 300000);
    mr_outq_fini(&from);
    assert_int_equal(from.memory, 0);
}

static void test_budget(void **state)
{
    /* Copies are counted, whatever they are copied to, and small ones are not refused. */
    struct fixture *f = *state;
    static char bytes[100000];

    mr_block_set_budget(1 << 20, 0);
    for (int i = 0; i < 80000; i++) {
        mr_outq_append(&f->q, bytes, 100);
    }
    assert_false(f->q.failed);
    uint64_t out = mr_block_get_stats().out_bytes;
    assert_true(out + (256 << 10) >= f->q.memory); /* but for the loop's own slab */
    mr_outq_append_large(&f->q, bytes, 60000);
    assert_false(f->q.failed);
    assert_int_equal(f->q.bytes, 8000000 + 60000);
    mr_outq_append_large(&f->q, bytes, sizeof bytes);
    assert_true(f->q.failed);
    mr_outq_fini(&f->q);
    assert_int_equal(mr_block_get_stats().out_bytes, 0);
    mr_block_set_budget(0, 256 << 20);
}

static void test_no_memory(void **state)
{
    struct fixture *f = *state;
    char bytes[100] = {0};

    mr_outq_append(&f->q, bytes, sizeof bytes);
    mr_block_trim();
    mr_mem_fail_after(1);
    for (int i = 0; i < 2000; i++) {
        mr_outq_append(&f->q, bytes, sizeof bytes);
    }
    mr_mem_fail_after(0);
    assert_true(f->q.failed);
    mr_outq_append(&f->q, bytes, sizeof bytes);
    assert_null(mr_outq_reserve(&f->q, 10));
    struct mr_block *block = mr_block_new(1000);
    mr_outq_append_block(&f->q, block->data, 1000, mr_block_ref(block));
    assert_int_equal(atomic_load(&block->refs), 1);
    mr_block_unref(&block);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_random, setup, teardown),
        cmocka_unit_test_setup_teardown(test_move, setup, teardown),
        cmocka_unit_test_setup_teardown(test_references, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_budget, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_memory, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
