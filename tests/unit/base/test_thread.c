/* Threads and slots: names, signal masks, and that slots are distinct while held and come back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <string.h>

#include "base/thread.h"

#define THREADS 20

static void *report(void *arg)
{
    char *name = arg;
    sigset_t mask;

    pthread_getname_np(pthread_self(), name, 16);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    return (void *)(uintptr_t)(sigismember(&mask, SIGTERM) == 1 &&
                               sigismember(&mask, SIGUSR1) == 1);
}

static void named_and_deaf_to_signals(void **state)
{
    pthread_t thread;
    char name[16] = "";
    void *is_masked;
    sigset_t before;
    sigset_t after;

    (void)state;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(mr_thread_start(&thread, "a-name-that-is-too-long", report, name, NULL),
                     MR_OK);
    pthread_join(thread, &is_masked);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_string_equal(name, "a-name-that-is-");
    assert_non_null(is_masked);
    assert_int_equal(sigismember(&before, SIGTERM), sigismember(&after, SIGTERM));
}

static void failing_memory(void **state)
{
    struct mr_err err = {0};
    pthread_t thread;

    (void)state;
    mr_mem_fail_after(1);
    assert_int_equal(mr_thread_start(&thread, "x", report, NULL, &err), MR_E_NOMEM);
    assert_int_equal(err.status, MR_E_NOMEM);
}

static pthread_barrier_t barrier;
static _Atomic unsigned holders[MR_SLOT_MAX];
/* Not atomic: each owner of a slot must see what the owner before it wrote. */
static unsigned uses[MR_SLOT_MAX];

static void *hold_slot(void *arg)
{
    unsigned slot = mr_slot();

    (void)arg;
    assert_true(slot < MR_SLOT_MAX && slot < mr_slot_count());
    assert_int_equal(mr_slot(), slot);
    assert_int_equal(atomic_fetch_add(&holders[slot], 1), 0);
    uses[slot]++;
    pthread_barrier_wait(&barrier);
    atomic_fetch_sub(&holders[slot], 1);
    return NULL;
}

static void slots_are_distinct_and_come_back(void **state)
{
    pthread_t threads[THREADS];
    unsigned total = 0;

    (void)state;
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int round = 0; round < 30; round++) {
        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(mr_thread_start(&threads[i], "slot", hold_slot, NULL, NULL), MR_OK);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
        }
    }
    pthread_barrier_destroy(&barrier);
    /* 600 threads, and yet: */
    assert_true(mr_slot_count() <= THREADS + 1);
    for (unsigned i = 0; i < MR_SLOT_MAX; i++) {
        total += uses[i];
    }
    assert_int_equal(total, 30 * THREADS);
}

static void *use_slot_briefly(void *arg)
{
    (void)arg;
    for (int i = 0; i < 3; i++) {
        uses[mr_slot()]++;
    }
    return NULL;
}

/* Threads that come and go without a common clock hand slots to each other. */
static void slots_change_hands(void **state)
{
    pthread_t threads[4];

    (void)state;
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 4; i++) {
            assert_int_equal(mr_thread_start(&threads[i], "slot", use_slot_briefly, NULL, NULL),
                             MR_OK);
        }
        for (int i = 0; i < 4; i++) {
            pthread_join(threads[i], NULL);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(named_and_deaf_to_signals),
        cmocka_unit_test(failing_memory),
        cmocka_unit_test(slots_are_distinct_and_come_back),
        cmocka_unit_test(slots_change_hands),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
