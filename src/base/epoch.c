/* Quiescent-state reclamation.
 *
 * A reader's `seen` is the epoch that it saw when it last held no protected pointer, or 0 while it
 * is offline. A writer swaps its pointer, begins a new epoch and waits until every `seen` is 0 or
 * new.
 *
 * Why that is enough. A reader that quiesces with the new epoch has read it with acquire, and the
 * writer's increment released the swap before it: what the reader loads from then on is new, and
 * its release store of `seen` puts its uses of the old pointer before the writer's acquire load.
 * Going online is the hard case: the reader writes `seen` and then reads the pointer; the writer
 * writes the pointer and then reads `seen`. Acquire and release let both read the old value, as
 * stores may pass later loads. The two sequentially consistent fences forbid it: whichever fence is
 * second in their single order, its thread sees the other's store. */
#include "base/thread.h"

#include <time.h>

#include "base/clock.h"

#define POLL_FIRST_NS (50 * MR_NS_PER_US)
#define POLL_MOST_NS  MR_NS_PER_MS

/* ThreadSanitizer does not model fences, and gcc warns of it. The warning does not matter here: the acquire and
 * release accesses also order every race that it can see. */
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#    pragma GCC diagnostic ignored "-Wtsan"
#endif

static void full_fence(void)
{
    atomic_thread_fence(memory_order_seq_cst);
}

void mr_epoch_init(struct mr_epoch *e)
{
    atomic_init(&e->now, 1);
    for (unsigned i = 0; i < MR_SLOT_MAX; i++) {
        atomic_init(&e->slots[i].seen, 0);
    }
}

void mr_epoch_online(struct mr_epoch *e)
{
    uint64_t now = atomic_load_explicit(&e->now, memory_order_acquire);

    atomic_store_explicit(&e->slots[mr_slot()].seen, now, memory_order_relaxed);
    /* Pairs with the fence in mr_epoch_wait. */
    full_fence();
}

void mr_epoch_quiesce(struct mr_epoch *e)
{
    _Atomic uint64_t *seen = &e->slots[mr_slot()].seen;
    /* Acquire: pairs with the increment in mr_epoch_wait. */
    uint64_t now = atomic_load_explicit(&e->now, memory_order_acquire);

    /* Usually nothing has changed, and nothing is written. */
    if (atomic_load_explicit(seen, memory_order_relaxed) != now) {
        /* Release: pairs with the acquire in is_past. */
        atomic_store_explicit(seen, now, memory_order_release);
    }
}

void mr_epoch_offline(struct mr_epoch *e)
{
    /* Release: pairs with the acquire in is_past. */
    atomic_store_explicit(&e->slots[mr_slot()].seen, 0, memory_order_release);
}

static bool is_past(struct mr_epoch *e, unsigned slot, uint64_t target)
{
    /* Acquire: pairs with the releases in mr_epoch_quiesce and mr_epoch_offline. */
    uint64_t seen = atomic_load_explicit(&e->slots[slot].seen, memory_order_acquire);

    return seen == 0 || seen >= target;
}

void mr_epoch_wait(struct mr_epoch *e)
{
    /* Release: the swap before it. Acquire: writers one after the other. */
    uint64_t target = atomic_fetch_add_explicit(&e->now, 1, memory_order_acq_rel) + 1;
    int64_t pause_ns = POLL_FIRST_NS;

    /* Pairs with the fence in mr_epoch_online. */
    full_fence();
    for (unsigned slot = 0; slot < MR_SLOT_MAX; slot++) {
        while (!is_past(e, slot, target)) {
            struct timespec ts = {.tv_sec = 0, .tv_nsec = pause_ns};
            nanosleep(&ts, NULL);
            pause_ns = MR_MIN(pause_ns * 2, POLL_MOST_NS);
        }
    }
}
