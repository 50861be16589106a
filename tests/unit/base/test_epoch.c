/* Quiescence: a writer frees what it has swapped out while readers use it; a reader that was
 * offline is not waited for. A pointer freed too early shows in the ASan and TSan builds, and in
 * all builds by its contents. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread.h"

#define READERS 3
#define SWAPS   200
/* On a busy machine each swap waits until all readers have had the CPU: fewer will do. */
#define SWAPS_LEAST 20
#define ENOUGH_NS   (2 * MR_NS_PER_S)
#define ALIVE       UINT64_C(0x1234567890abcdef)

struct thing {
    uint64_t mark;
};

static struct mr_epoch epoch;
static _Atomic(struct thing *) current;
static _Atomic bool stop;
static _Atomic unsigned long reads;
static pthread_barrier_t start_line;

static void *read_always(void *arg)
{
    bool sleeps = arg != NULL;
    unsigned long count = 0;

    mr_epoch_online(&epoch);
    pthread_barrier_wait(&start_line);
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        struct thing *t = atomic_load_explicit(&current, memory_order_acquire);
        for (int i = 0; i < 10; i++) {
            if (t->mark != ALIVE) {
                abort();
            }
        }
        count++;
        if (sleeps && count % 16 == 0) {
            mr_epoch_offline(&epoch);
            if (count % 256 == 0) {
                nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
            }
            mr_epoch_online(&epoch);
        } else {
            mr_epoch_quiesce(&epoch);
        }
    }
    mr_epoch_offline(&epoch);
    atomic_fetch_add(&reads, count);
    return NULL;
}

static struct thing *thing_new(void)
{
    struct thing *t = MR_NEW(struct thing);

    t->mark = ALIVE;
    return t;
}

static void freed_only_when_nobody_reads(void **state)
{
    pthread_t threads[READERS];

    (void)state;
    mr_epoch_init(&epoch);
    atomic_store(&current, thing_new());
    pthread_barrier_init(&start_line, NULL, READERS + 1);
    for (uintptr_t i = 0; i < READERS; i++) {
        assert_int_equal(mr_thread_start(&threads[i], "reader", read_always, (void *)(i % 2), NULL),
                         MR_OK);
    }
    pthread_barrier_wait(&start_line);
    const int64_t begin = mr_now_ns();
    for (int i = 0; i < SWAPS_LEAST || (i < SWAPS && mr_now_ns() - begin < ENOUGH_NS); i++) {
        struct thing *old = atomic_exchange_explicit(&current, thing_new(), memory_order_acq_rel);
        mr_epoch_wait(&epoch);
        old->mark = 0;
        mr_free(old);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < READERS; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_true(reads > 0);
    pthread_barrier_destroy(&start_line);
    mr_free(atomic_load(&current));
}

static void nobody_online_means_no_wait(void **state)
{
    (void)state;
    mr_epoch_init(&epoch);
    mr_epoch_wait(&epoch);
    mr_epoch_online(&epoch);
    mr_epoch_offline(&epoch);
    mr_epoch_wait(&epoch);
}

static _Atomic int phase;

static void *hold(void *arg)
{
    (void)arg;
    mr_epoch_online(&epoch);
    const uint64_t begin = atomic_load(&epoch.now);
    atomic_store(&phase, 1);
    while (atomic_load(&epoch.now) == begin) { /* until the other waits */
        sched_yield();
    }
    atomic_store(&phase, 2);
    mr_epoch_quiesce(&epoch);
    while (atomic_load(&phase) != 3) {
        nanosleep(&(struct timespec){.tv_nsec = MR_NS_PER_MS}, NULL);
    }
    mr_epoch_offline(&epoch);
    return NULL;
}

static void waits_for_one_who_holds(void **state)
{
    pthread_t thread;

    (void)state;
    mr_epoch_init(&epoch);
    atomic_store(&phase, 0);
    assert_int_equal(mr_thread_start(&thread, "holder", hold, NULL, NULL), MR_OK);
    while (atomic_load(&phase) != 1) {
        nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
    }
    mr_epoch_wait(&epoch);
    assert_int_equal(atomic_load(&phase), 2);
    atomic_store(&phase, 3);
    pthread_join(thread, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_online_means_no_wait),
        cmocka_unit_test(waits_for_one_who_holds),
        cmocka_unit_test(freed_only_when_nobody_reads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
