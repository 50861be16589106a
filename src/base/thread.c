/* Threads and slots.
 *
 * Slots are bits of a small bitmap. A thread takes one at its first mr_slot(), keeps it in a thread-local variable,
 * and releases it in a pthread key's destructor, which also runs in threads started by others. What a slot's owner
 * wrote in its per-slot data is visible to the slot's next owner. */
#include "base/thread.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base_priv.h"

#define BITS 64

static _Atomic uint64_t taken[MR_SLOT_MAX / BITS];
static _Atomic unsigned slot_count;
static pthread_key_t exit_key;
static pthread_once_t exit_key_once = PTHREAD_ONCE_INIT;
/* Slot + 1; 0 = none yet. Initial-exec: one load instead of a call, also in a shared library. */
static _Thread_local unsigned my_slot __attribute__((tls_model("initial-exec")));

static void give_back(void *slot_plus_one)
{
    unsigned slot = (unsigned)(uintptr_t)slot_plus_one - 1;

    mr_pool_slot_end(slot);
    my_slot = 0;
    /* Release: pairs with the acquire in take_bit, for the per-slot data. */
    atomic_fetch_and_explicit(&taken[slot / BITS], ~(UINT64_C(1) << (slot % BITS)),
                              memory_order_release);
}

static void make_exit_key(void)
{
    MR_ASSERT(pthread_key_create(&exit_key, give_back) == 0);
}

/* A free bit of word w, or -1. */
static int take_bit(unsigned w)
{
    uint64_t bits = atomic_load_explicit(&taken[w], memory_order_relaxed);

    while (bits != UINT64_MAX) {
        int bit = __builtin_ctzll(~bits);
        /* Acquire: pairs with the release in give_back. */
        if (atomic_compare_exchange_weak_explicit(&taken[w], &bits, bits | (UINT64_C(1) << bit),
                                                  memory_order_acquire, memory_order_relaxed)) {
            return bit;
        }
    }
    return -1;
}

static unsigned slot_take(unsigned words)
{
    for (unsigned w = 0; w < words; w++) {
        int bit = take_bit(w);
        if (bit >= 0) {
            return w * BITS + (unsigned)bit;
        }
    }
    return MR_SLOT_NONE;
}

static __attribute__((noinline)) unsigned slot_first_use(unsigned words)
{
    pthread_once(&exit_key_once, make_exit_key);
    unsigned slot = slot_take(words);
    if (slot == MR_SLOT_NONE) {
        return slot;
    }
    unsigned most = atomic_load_explicit(&slot_count, memory_order_relaxed);
    /* Release: pairs with the acquire in mr_slot_count. */
    while (most <= slot &&
           !atomic_compare_exchange_weak_explicit(&slot_count, &most, slot + 1,
                                                  memory_order_release, memory_order_relaxed)) {
    }
    MR_ASSERT(pthread_setspecific(exit_key, (void *)(uintptr_t)(slot + 1)) == 0);
    my_slot = slot + 1;
    return slot;
}

unsigned mr_slot(void)
{
    if (__builtin_expect(my_slot != 0, 1)) {
        return my_slot - 1;
    }
    unsigned slot = slot_first_use(MR_SLOT_MAX / BITS);
    MR_ASSERT(slot != MR_SLOT_NONE);
    return slot;
}

unsigned mr_slot_try(void)
{
    return __builtin_expect(my_slot != 0, 1) ? my_slot - 1 : slot_first_use(MR_SLOT_MAX / BITS - 1);
}

unsigned mr_slot_count(void)
{
    /* Acquire: pairs with the release in slot_first_use. */
    return atomic_load_explicit(&slot_count, memory_order_acquire);
}

struct start {
    void *(*fn)(void *);
    void *arg;
    char name[16];
};

static void *thread_main(void *arg)
{
    struct start start = *(struct start *)arg;

    mr_free(arg);
    pthread_setname_np(pthread_self(), start.name);
    return start.fn(start.arg);
}

/* A blocked fault kills the process before a handler can report it. */
static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};

int mr_thread_start(pthread_t *out_thread, const char *name, void *(*fn)(void *), void *arg,
                    struct mr_err *err)
{
    struct start *start = mr_try_alloc(sizeof *start);
    const struct sched_param priority = {0};
    pthread_attr_t attr;
    sigset_t all;
    sigset_t before;

    if (!start) {
        return MR_FAIL(err, MR_E_NOMEM, "no memory to start thread %s", name);
    }
    start->fn = fn;
    start->arg = arg;
    snprintf(start->name, sizeof start->name, "%s", name);
    /* Not the creator's scheduling class: the creator may be a thread that loads models. */
    pthread_attr_init(&attr);
    pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
    pthread_attr_setschedpolicy(&attr, SCHED_OTHER);
    pthread_attr_setschedparam(&attr, &priority);
    /* A new thread inherits the mask, so there is no moment at which a signal could hit it. */
    sigfillset(&all);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        sigdelset(&all, faults[i]);
    }
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(out_thread, &attr, thread_main, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (failed) {
        char text[128];
        mr_free(start);
        return MR_FAIL(err, MR_E_EXHAUSTED, "cannot start thread %s: %s", name,
                       strerror_r(failed, text, sizeof text));
    }
    return MR_OK;
}
