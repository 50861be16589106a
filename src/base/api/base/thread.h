/* Threads with names, and slot numbers that index per-thread data.
 *
 * A slot is a small number that a thread holds until it ends. Counters and pins are arrays with one entry per slot,
 * each on its own cache line, so that no two threads write to the same line. Slot numbers are reused after the thread
 * ends; the next owner sees the last one's writes.
 *
 * Quiescence: `struct mr_epoch` lets a writer wait until no thread can hold a pointer that it read before a swap.
 * A reader thread is `online` while it may hold such pointers and calls mr_epoch_quiesce() at points where it holds
 * none (once per loop iteration), and is offline while it sleeps. Readers load the pointer with acquire, writers swap
 * it with release. */
#ifndef MR_BASE_THREAD_H
#define MR_BASE_THREAD_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"

#define MR_SLOT_MAX  256
#define MR_SLOT_NONE UINT_MAX

/** Starts a joinable thread named `name` (15 characters are kept). All signals but faults (SIGSEGV and the
 *  like) are blocked in it; its scheduling class is the ordinary one, not the caller's.
 *  Errors: MR_E_NOMEM, MR_E_EXHAUSTED. */
int mr_thread_start(pthread_t *out_thread, const char *name, void *(*fn)(void *), void *arg,
                    struct mr_err *err);

/** This thread's slot, 0..MR_SLOT_MAX-1; taken at the first call, released at thread exit. Aborts when all are taken.
 *  For kinds of threads whose number the options bound; a quarter of the slots is reserved for them. */
unsigned mr_slot(void);
/** The same for kinds of threads without a bound: MR_SLOT_NONE when three quarters of the slots are taken. */
unsigned mr_slot_try(void);
/** One more than the largest slot ever taken: the number of entries that a reader sums up. */
unsigned mr_slot_count(void);

/** CPUs that this process may use, at least 1: the affinity mask, or the CPU quota of its cgroup
 *  (version 2, parents included, rounded up) where that is less. Reads files. */
unsigned mr_cpu_count(void);

struct mr_epoch_slot {
    _Alignas(MR_CACHE_LINE) _Atomic uint64_t seen; /* 0 = offline */
};

/* Static, on the stack or from mr_alloc_aligned, as it needs cache-line alignment. */
struct mr_epoch {
    _Atomic uint64_t now; /* starts at 1 */
    struct mr_epoch_slot slots[MR_SLOT_MAX];
};

void mr_epoch_init(struct mr_epoch *e);
/** Thread: reader. It may hold protected pointers afterwards. */
void mr_epoch_online(struct mr_epoch *e);
/** Thread: reader, holding no protected pointer. */
void mr_epoch_quiesce(struct mr_epoch *e);
/** Thread: reader, holding no protected pointer, before it sleeps or ends. */
void mr_epoch_offline(struct mr_epoch *e);
/** Thread: writer, after the pointer swap (not an online reader). Blocks until every reader that
 *  was online has quiesced or gone offline; polls at 50 us .. 1 ms. */
void mr_epoch_wait(struct mr_epoch *e);

#endif
