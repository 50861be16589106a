/* Blocks: sizes, reuse, the budget, the cache limit, foreign memory, many threads, failing
 * memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../memfd_provider.h"
#include "base/arena.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"
#include "base/thread.h"
#include "base_priv.h"

#define KIB ((size_t)1024)
#define MIB ((size_t)1024 * 1024)

static int setup(void **state)
{
    (void)state;
    mr_block_trim();
    mr_block_set_budget(0, 256 * MIB);
    assert_int_equal(mr_block_get_stats().out_bytes, 0);
    return 0;
}

static void sizes_fit_and_waste_little(void **state)
{
    (void)state;
    for (size_t bytes = 1; bytes <= 40 * MIB; bytes += bytes / 9 + 1) {
        struct mr_block *b = mr_block_new(bytes);
        assert_non_null(b);
        assert_true(b->cap >= bytes);
        assert_true(bytes <= 4 * KIB ? b->cap == 4 * KIB : b->cap <= bytes + bytes / 4);
        assert_int_equal((uintptr_t)b->data % 64, 0);
        if (b->cap >= 2 * MIB) {
            assert_int_equal((uintptr_t)b->data % (2 * MIB), 0);
        }
        b->data[0] = 1;
        b->data[b->cap - 1] = 2;
        mr_block_unref(&b);
        assert_null(b);
    }
    mr_block_unref(&(struct mr_block *){NULL});
}

static void grown_keeps_content_and_is_counted(void **state)
{
    (void)state;
    struct mr_block *b = NULL;
    size_t used = 0;

    for (size_t bytes = 3 * KIB; bytes <= 200 * MIB; bytes *= 2) {
        assert_true(mr_block_grow(&b, used, bytes));
        assert_true(b->cap >= bytes);
        assert_int_equal(mr_block_get_stats().out_bytes, b->cap);
        for (size_t at = 0; at < used; at += KIB) {
            assert_int_equal(b->data[at], (uint8_t)(at / KIB * 7));
        }
        for (; used < bytes; used += KIB) {
            b->data[used] = (uint8_t)(used / KIB * 7);
        }
    }
    uint8_t *data = b->data;
    assert_true(mr_block_grow(&b, used, b->cap)); /* large enough */
    assert_ptr_equal(b->data, data);
    mr_block_unref(&b);
    assert_int_equal(mr_block_get_stats().out_bytes, 0);
}

/* The sanitizers' notes of memory are memory too. */
#if !defined(MR_WITH_ASAN) && !defined(__SANITIZE_THREAD__)
#    define COUNTS_FAULTS
#endif

#ifdef COUNTS_FAULTS
/* Page faults of this thread: a copy into new memory takes some. */
static long fault_count(void)
{
    struct rusage usage;

    assert_int_equal(getrusage(RUSAGE_THREAD, &usage), 0);
    return usage.ru_minflt;
}

static void much_is_not_copied_to_grow(void **state)
{
    (void)state;
    struct mr_block *b = mr_block_new(64 * MIB);

    assert_non_null(b);
    memset(b->data, 1, 64 * MIB);
    mr_block_trim();
    long before = fault_count();
    assert_true(mr_block_grow(&b, 64 * MIB, 128 * MIB));
    assert_in_range(fault_count() - before, 0, 8);
    assert_int_equal(b->data[64 * MIB - 1], 1);
    mr_block_unref(&b);
}

#endif

static void assert_in_file(const struct mr_block *b, size_t at, char value)
{
    uint64_t offset;
    char found = 0;
    int fd;

    assert_true(mr_block_in_file(b, b->data + at, &fd, &offset));
    assert_int_equal(pread(fd, &found, 1, (off_t)offset), 1);
    assert_int_equal(found, value);
}

static void a_provider_gives_memory(void **state)
{
    (void)state;
    for (int grows = 0; grows < 2; grows++) {
        struct memfd_provider m;
        assert_true(memfd_open(&m, MIB, grows));
        struct mr_block *first = mr_block_new_in(&m.provider, 100);
        struct mr_block *b = mr_block_new_in(&m.provider, 10 * KIB);
        assert_non_null(first);
        assert_non_null(b);
        assert_int_equal(b->cap, 12 * KIB);
        assert_int_equal(mr_block_get_stats().out_bytes, 16 * KIB);
        b->data[9999] = 'x';
        assert_in_file(b, 9999, 'x');
        assert_true(mr_block_grow(&b, 10 * KIB, 100 * KIB));
        assert_int_equal(b->cap, 100 * KIB);
        assert_in_file(b, 9999, 'x');
        assert_int_equal(m.takes, grows ? 2 : 3);
        assert_int_equal(m.growths, grows ? 1 : 0);
        assert_int_equal(mr_block_get_stats().out_bytes, 104 * KIB);

        struct mr_block *shared = mr_block_ref(b);
        assert_true(mr_block_grow(&b, 10 * KIB, 200 * KIB)); /* the other holder's stays */
        assert_ptr_not_equal(b, shared);
        assert_in_file(b, 9999, 'x');
        assert_in_file(shared, 9999, 'x');
        mr_block_unref(&shared);
        mr_block_unref(&first);
        mr_block_unref(&b);
        assert_int_equal(m.out, 0);
        assert_int_equal(mr_block_get_stats().out_bytes, 0);
        memfd_close(&m);
    }
}

static void a_provider_may_have_none(void **state)
{
    struct memfd_provider m;
    uint64_t offset;
    int fd;

    (void)state;
    assert_true(memfd_open(&m, MIB, true));
    assert_null(mr_block_new_in(&m.provider, 2 * MIB));
    assert_null(mr_block_new_in(&m.provider, SIZE_MAX));
    mr_mem_fail_after(1);
    assert_null(mr_block_new_in(&m.provider, KIB));
    mr_mem_fail_after(0);
    struct mr_block *b = mr_block_new_in(&m.provider, 600 * KIB);
    assert_non_null(b);
    assert_false(mr_block_grow(&b, 600 * KIB, 2 * MIB));
    assert_int_equal(b->cap, 600 * KIB);
    mr_block_set_budget(MIB, 0);
    assert_false(mr_block_grow(&b, 600 * KIB, 700 * KIB)); /* has no room for both */
    assert_null(mr_block_new_in(&m.provider, 500 * KIB));
    assert_int_equal(mr_block_get_stats().out_bytes, 600 * KIB);
    mr_block_set_budget(0, 256 * MIB);
    mr_block_unref(&b);
    assert_int_equal(m.out, 0);
    memfd_close(&m);

    b = mr_block_new_in(NULL, KIB);
    assert_non_null(b);
    assert_false(mr_block_in_file(b, b->data, &fd, &offset));
    mr_block_unref(&b);
}

static void growing_may_be_refused(void **state)
{
    (void)state;
    static const size_t rows[] = {MIB, 8 * MIB};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct mr_block *b = mr_block_new(rows[i]);
        assert_non_null(b);
        uint8_t *data = b->data;
        mr_block_set_budget(rows[i] + MIB / 2, 0);
        assert_false(mr_block_grow(&b, rows[i], 2 * rows[i]));
        assert_ptr_equal(b->data, data);
        assert_int_equal(b->cap, rows[i]);
        assert_int_equal(mr_block_get_stats().out_bytes, rows[i]);
        mr_block_set_budget(0, 256 * MIB);
        mr_mem_fail_after(1);
        assert_false(mr_block_grow(&b, rows[i], 2 * rows[i]));
        mr_mem_fail_after(0);
        assert_int_equal(mr_block_get_stats().out_bytes, rows[i]);
        mr_block_unref(&b);
    }
}

static void what_others_hold_does_not_move(void **state)
{
    (void)state;
    struct mr_block *b = mr_block_new(8 * MIB);

    assert_non_null(b);
    struct mr_block *other = mr_block_ref(b);
    memset(b->data, 3, 8 * MIB);
    assert_true(mr_block_grow(&b, 8 * MIB, 16 * MIB));
    assert_ptr_not_equal(b, other);
    assert_int_equal(b->data[8 * MIB - 1], 3);
    assert_int_equal(other->data[8 * MIB - 1], 3);
    mr_block_unref(&b);
    mr_block_unref(&other);
}

/* Seen by the pool in place of the C library's. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const void *watched;
    bool is_gone;
    pthread_t by;
} unmapped = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, false, 0};

int munmap(void *at, size_t bytes)
{
    pthread_mutex_lock(&unmapped.lock);
    if (at == unmapped.watched) {
        unmapped.is_gone = true;
        unmapped.by = pthread_self();
        pthread_cond_signal(&unmapped.changed);
    }
    pthread_mutex_unlock(&unmapped.lock);
    return (int)syscall(SYS_munmap, at, bytes);
}

static void another_thread_unmaps_what_is_huge(void **state)
{
    (void)state;
    mr_block_set_budget(0, 0);
    for (int i = 0; i < 3; i++) {
        struct mr_block *b = mr_block_new(64 * MIB);
        assert_non_null(b);
        pthread_mutex_lock(&unmapped.lock);
        unmapped.watched = b->data;
        unmapped.is_gone = false;
        pthread_mutex_unlock(&unmapped.lock);
        mr_block_unref(&b);
        pthread_mutex_lock(&unmapped.lock);
        while (!unmapped.is_gone) {
            pthread_cond_wait(&unmapped.changed, &unmapped.lock);
        }
        unmapped.watched = NULL;
        pthread_mutex_unlock(&unmapped.lock);
        assert_false(pthread_equal(unmapped.by, pthread_self()));
    }
}

static void class_edges(void **state)
{
    static const struct {
        size_t bytes;
        size_t cap;
    } rows[] = {
        {0, 4 * KIB},
        {4 * KIB, 4 * KIB},
        {4 * KIB + 1, 5 * KIB},
        {5 * KIB, 5 * KIB},
        {5 * KIB + 1, 6 * KIB},
        {7 * KIB, 7 * KIB},
        {8 * KIB, 8 * KIB},
        {8 * KIB + 1, 10 * KIB},
        {64 * KIB, 64 * KIB},
        {64 * KIB + 1, 80 * KIB},
        {2 * MIB, 2 * MIB},
        {2 * MIB + 1, 2560 * KIB},
        {1024 * MIB, 1024 * MIB},
        {1024 * MIB + 1, 1024 * MIB + 4 * KIB},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mr_block *b = mr_block_new(rows[i].bytes);
        assert_non_null(b);
        assert_int_equal(b->cap, rows[i].cap);
        assert_int_equal(mr_block_get_stats().out_bytes, rows[i].cap);
        mr_block_unref(&b);
        assert_int_equal(mr_block_get_stats().out_bytes, 0);
    }
    assert_null(mr_block_new(SIZE_MAX));
    assert_null(mr_block_new(SIZE_MAX / 4));
    assert_int_equal(mr_block_get_stats().out_bytes, 0);
}

static void warm_blocks_come_from_the_cache(void **state)
{
    static const size_t sizes[] = {4 * KIB, 60 * KIB, 100 * KIB, 3 * MIB};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct mr_block *b = mr_block_new(sizes[i]);
        struct mr_block *before = b;
        mr_block_unref(&b);
        assert_true(mr_block_get_stats().cached_bytes >= sizes[i]);
        mr_mem_fail_after(1);
        b = mr_block_new(sizes[i]);
        mr_mem_fail_after(0);
        assert_ptr_equal(b, before);
        b->data[0] = 1;
        mr_block_unref(&b);
    }
    mr_block_trim();
    assert_int_equal(mr_block_get_stats().cached_bytes, 0);
}

static void take_and_let_go(size_t bytes, int count)
{
    struct mr_block *b[16];

    for (int i = 0; i < count; i++) {
        b[i] = mr_block_new(bytes);
        assert_non_null(b[i]);
    }
    for (int i = 0; i < count; i++) {
        mr_block_unref(&b[i]);
    }
}

/* What a peak has left goes back by halves; what is needed again and again stays. */
static void unneeded_blocks_age(void **state)
{
    static const struct {
        size_t bytes;
        uint64_t cap;
    } sizes[] = {{96 * KIB, 96 * KIB}, {3 * MIB, 3 * MIB}};
    static const unsigned left[] = {16, 10, 7, 5, 4, 4};

    (void)state;
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        take_and_let_go(sizes[k].bytes, 16);
        for (size_t i = 0; i < sizeof left / sizeof left[0]; i++) {
            mr_block_age();
            assert_int_equal(mr_block_get_stats().cached_bytes, left[i] * sizes[k].cap);
            take_and_let_go(sizes[k].bytes, 4);
        }
        for (int i = 0; i < 3; i++) {
            mr_block_age();
        }
        mr_block_age();
        assert_int_equal(mr_block_get_stats().cached_bytes, 0);
    }
}

/* What a thread keeps for itself, too: to the shared cache first, and from there to the system. */
static void a_threads_unneeded_blocks_age(void **state)
{
    (void)state;
    take_and_let_go(16 * KIB, 8);
    assert_int_equal(mr_block_get_stats().cached_bytes, 8 * 16 * KIB);
    for (int i = 0; i < 8; i++) {
        mr_block_age();
        take_and_let_go(16 * KIB, 2);
    }
    assert_in_range(mr_block_get_stats().cached_bytes, 2 * 16 * KIB, 3 * 16 * KIB);
    for (int i = 0; i < 12; i++) {
        mr_block_age();
        take_and_let_go(4 * KIB, 1);
    }
    assert_in_range(mr_block_get_stats().cached_bytes, 4 * KIB, 8 * KIB);
}

static void the_thread_cache_is_bounded(void **state)
{
    struct mr_block *b[100];

    (void)state;
    mr_block_set_budget(0, 64 * KIB);
    for (int i = 0; i < 100; i++) {
        b[i] = mr_block_new(4 * KIB);
        assert_non_null(b[i]);
    }
    assert_int_equal(mr_block_get_stats().out_bytes, 400 * KIB);
    for (int i = 0; i < 100; i++) {
        mr_block_unref(&b[i]);
    }
    struct mr_block_stats stats = mr_block_get_stats();
    assert_int_equal(stats.out_bytes, 0);
    assert_true(stats.cached_bytes <= 64 * KIB + 8 * 4 * KIB);
    /* The shared cache gives back what the thread's cache lacks. */
    mr_mem_fail_after(1);
    for (int i = 0; i < 16; i++) {
        b[i] = mr_block_new(4 * KIB);
        assert_non_null(b[i]);
    }
    mr_mem_fail_after(0);
    for (int i = 0; i < 16; i++) {
        mr_block_unref(&b[i]);
    }
}

static void the_cache_limit_drops_what_is_stale(void **state)
{
    struct mr_block *old[4];
    struct mr_block *b;

    (void)state;
    mr_block_set_budget(0, 10 * MIB);
    for (int i = 0; i < 4; i++) {
        old[i] = mr_block_new(2 * MIB);
    }
    for (int i = 0; i < 4; i++) {
        mr_block_unref(&old[i]);
    }
    assert_int_equal(mr_block_get_stats().cached_bytes, 8 * MIB);
    b = mr_block_new(8 * MIB);
    struct mr_block *fresh = b;
    mr_block_unref(&b);
    assert_true(mr_block_get_stats().cached_bytes <= 10 * MIB);
    /* The unused sizes were freed, the new one stayed. */
    b = mr_block_new(8 * MIB);
    assert_ptr_equal(b, fresh);
    mr_block_unref(&b);
    mr_block_set_budget(0, 0);
    assert_int_equal(mr_block_get_stats().cached_bytes, 0);
}

static void the_budget_refuses(void **state)
{
    struct mr_block *big[3];
    struct mr_block *small[300];
    int n = 0;

    (void)state;
    mr_block_set_budget(MIB, 16 * MIB);
    uint64_t refused = mr_block_get_stats().refused;
    big[0] = mr_block_new(512 * KIB);
    big[1] = mr_block_new(512 * KIB);
    assert_non_null(big[0]);
    assert_non_null(big[1]);
    assert_null(mr_block_new(512 * KIB));
    assert_null(mr_block_new(4 * KIB));
    assert_int_equal(mr_block_get_stats().refused, refused + 2);
    assert_int_equal(mr_block_get_stats().out_bytes, MIB);
    mr_block_unref(&big[1]);
    big[1] = mr_block_new(512 * KIB);
    assert_non_null(big[1]);
    mr_block_unref(&big[0]);
    while (n < 300 && (small[n] = mr_block_new(4 * KIB))) {
        n++;
    }
    assert_int_equal(n, 128);
    assert_null(mr_block_new(100 * KIB));
    for (int i = 0; i < 8; i++) {
        mr_block_unref(&small[--n]);
    }
    /* What lies in a thread's cache does not count as out. */
    big[0] = mr_block_new(4 * KIB);
    assert_non_null(big[0]);
    mr_block_unref(&big[0]);
    while (n > 0) {
        mr_block_unref(&small[--n]);
    }
    mr_block_unref(&big[1]);
    big[2] = mr_block_new(MIB);
    assert_non_null(big[2]);
    mr_block_unref(&big[2]);
    assert_int_equal(mr_block_get_stats().out_bytes, 0);
    assert_int_equal(mr_block_get_stats().budget_bytes, MIB);
}

static void failing_memory_charges_nothing(void **state)
{
    (void)state;
    mr_mem_fail_after(1);
    assert_null(mr_block_new(4 * KIB));
    mr_mem_fail_after(1);
    assert_null(mr_block_new(100 * KIB));
    mr_mem_fail_after(1);
    assert_null(mr_block_new(4 * MIB));
    mr_mem_fail_after(2);
    assert_null(mr_block_new(4 * MIB));
    mr_mem_fail_after(1);
    assert_null(mr_block_wrap(NULL, 0, NULL, NULL));
    mr_mem_fail_after(0);
    assert_int_equal(mr_block_get_stats().out_bytes, 0);
}

static void count_release(void *ctx, void *data)
{
    assert_string_equal(data, "foreign");
    ++*(int *)ctx;
}

static void foreign_memory(void **state)
{
    char text[] = "foreign";
    int released = 0;
    struct mr_block *a = mr_block_wrap(text, sizeof text, count_release, &released);
    struct mr_block *b = mr_block_ref(a);

    (void)state;
    assert_ptr_equal(a, b);
    assert_ptr_equal(a->data, text);
    assert_int_equal(a->cap, sizeof text);
    assert_int_equal(mr_block_get_stats().out_bytes, 0);
    mr_block_unref(&a);
    assert_int_equal(released, 0);
    mr_block_unref(&b);
    assert_int_equal(released, 1);
    a = mr_block_wrap(text, 1, NULL, NULL);
    mr_block_unref(&a);
}

/* Allocated memory is counted, whatever the budget. */
static void adopted_memory(void **state)
{
    char text[] = "foreign";
    int released = 0;
    uint64_t refused = mr_block_get_stats().refused;

    (void)state;
    mr_block_set_budget(8 * MIB, 0);
    assert_int_equal(mr_block_share(), MIB);
    struct mr_block *a = mr_block_adopt(text, 8 * MIB, count_release, &released);
    assert_int_equal(mr_block_get_stats().out_bytes, 8 * MIB);
    assert_true(mr_block_may_adopt());
    struct mr_block *b = mr_block_adopt(text, 1, count_release, &released);
    assert_int_equal(mr_block_get_stats().out_bytes, 8 * MIB + 1);
    assert_false(mr_block_may_adopt());
    assert_null(mr_block_new(100 * KIB));
    assert_int_equal(mr_block_get_stats().refused, refused + 2);
    mr_block_unref(&a);
    assert_true(mr_block_may_adopt());
    mr_block_unref(&b);
    assert_int_equal(released, 2);
    assert_int_equal(mr_block_get_stats().out_bytes, 0);
}

#ifdef MR_WITH_ASAN
static void free_blocks_are_poisoned(void **state)
{
    static const size_t sizes[] = {4 * KIB, 100 * KIB, 2 * MIB};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct mr_block *b = mr_block_new(sizes[i]);
        uint8_t *data = b->data;
        mr_block_unref(&b);
        assert_true(__asan_address_is_poisoned(data));
        b = mr_block_new(sizes[i]);
        assert_ptr_equal(b->data, data);
        assert_false(__asan_address_is_poisoned(data + sizes[i] - 1));
        mr_block_unref(&b);
    }
}
#endif

#define THREADS 3
#define ROUNDS  3000
#define PLACES  64

/* Threads put blocks into common places and let go of what they find there, so that blocks are
 * freed on other threads than they came from. */
static _Atomic(struct mr_block *) places[PLACES];

static void *exchange_blocks(void *arg)
{
    struct mr_rng rng;

    mr_rng_seed(&rng, (uintptr_t)arg);
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t r = mr_rng_u64(&rng);
        struct mr_block *b = mr_block_new(r % 50 ? 4 * KIB << (r >> 8) % 6 : MIB);
        if (!b) {
            continue;
        }
        memset(b->data, (int)(uintptr_t)arg, 64);
        struct mr_block *mine = mr_block_ref(b);
        b = atomic_exchange_explicit(&places[(r >> 16) % PLACES], b, memory_order_acq_rel);
        if (b) {
            /* The owner before us wrote all of it alike. */
            assert_int_equal(b->data[0], b->data[63]);
        }
        mr_block_unref(&b);
        assert_int_equal(mine->data[63], (uint8_t)(uintptr_t)arg);
        mr_block_unref(&mine);
        if (r % 1000 == 0) {
            mr_block_trim();
        }
    }
    return NULL;
}

static void many_threads(void **state)
{
    pthread_t threads[THREADS];

    (void)state;
    mr_block_set_budget(6 * MIB, MIB);
    for (uintptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(
            mr_thread_start(&threads[i], "blocks", exchange_blocks, (void *)(i + 1), NULL), MR_OK);
    }
    for (int i = 0; i < 50; i++) {
        assert_true(mr_block_get_stats().out_bytes < 16 * MIB);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < PLACES; i++) {
        struct mr_block *b = atomic_exchange(&places[i], NULL);
        mr_block_unref(&b);
    }
    assert_int_equal(mr_block_get_stats().out_bytes, 0);
}

static pthread_barrier_t all_there;

static void *hold_blocks(void *arg)
{
    struct mr_block *b = mr_block_new(4 * KIB);
    struct mr_block *mine = mr_block_new(4 * KIB);

    (void)arg;
    assert_true(b && mine);
    b = atomic_exchange(&places[0], b);
    mr_block_unref(&b);
    pthread_barrier_wait(&all_there);
    mr_block_unref(&mine);
    return NULL;
}

/* Many models that are busy at once have more threads than there are slots. */
static void more_threads_than_slots(void **state)
{
    static pthread_t threads[MR_SLOT_MAX + 20];
    unsigned count = sizeof threads / sizeof threads[0];

    (void)state;
    pthread_barrier_init(&all_there, NULL, count + 1);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(mr_thread_start(&threads[i], "blocks", hold_blocks, NULL, NULL), MR_OK);
    }
    pthread_barrier_wait(&all_there);
    for (unsigned i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
    }
    struct mr_block *last = atomic_exchange(&places[0], NULL);
    mr_block_unref(&last);
    assert_int_equal(mr_block_get_stats().out_bytes, 0);
    /* What the threads cached is shared now, and can be had back. */
    mr_block_trim();
    assert_int_equal(mr_block_get_stats().cached_bytes, 0);
}

/* The arena's reset gives the block back once; an arena without room gives it back at once. */
static void kept_by_an_arena(void **state)
{
    struct mr_arena arena;
    int released = 0;
    char data[8] = "foreign";
    (void)state;

    mr_arena_init(&arena, 256, 4096);
    assert_true(mr_block_keep(mr_block_wrap(data, 8, count_release, &released), &arena));
    assert_int_equal(released, 0);
    mr_arena_reset(&arena);
    assert_int_equal(released, 1);
    mr_arena_fini(&arena);
    assert_int_equal(released, 1);

    mr_arena_init(&arena, 1, 1);
    assert_false(mr_block_keep(mr_block_wrap(data, 8, count_release, &released), &arena));
    assert_int_equal(released, 2);
    mr_arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(sizes_fit_and_waste_little, setup),
        cmocka_unit_test_setup(class_edges, setup),
        cmocka_unit_test_setup(grown_keeps_content_and_is_counted, setup),
#ifdef COUNTS_FAULTS
        cmocka_unit_test_setup(much_is_not_copied_to_grow, setup),
#endif
        cmocka_unit_test_setup(a_provider_gives_memory, setup),
        cmocka_unit_test_setup(a_provider_may_have_none, setup),
        cmocka_unit_test_setup(growing_may_be_refused, setup),
        cmocka_unit_test_setup(what_others_hold_does_not_move, setup),
        cmocka_unit_test_setup(another_thread_unmaps_what_is_huge, setup),
        cmocka_unit_test_setup(warm_blocks_come_from_the_cache, setup),
        cmocka_unit_test_setup(unneeded_blocks_age, setup),
        cmocka_unit_test_setup(a_threads_unneeded_blocks_age, setup),
        cmocka_unit_test_setup(the_thread_cache_is_bounded, setup),
        cmocka_unit_test_setup(the_cache_limit_drops_what_is_stale, setup),
        cmocka_unit_test_setup(the_budget_refuses, setup),
        cmocka_unit_test_setup(failing_memory_charges_nothing, setup),
        cmocka_unit_test_setup(foreign_memory, setup),
        cmocka_unit_test_setup(adopted_memory, setup),
        cmocka_unit_test_setup(kept_by_an_arena, setup),
#ifdef MR_WITH_ASAN
        cmocka_unit_test_setup(free_blocks_are_poisoned, setup),
#endif
        cmocka_unit_test_setup(many_threads, setup),
        cmocka_unit_test_setup(more_threads_than_slots, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
