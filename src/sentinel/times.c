#include "times.h"

#include "base/mem.h"

static int size_of(int64_t rows)
{
    const int log = rows <= 1 ? 0 : 64 - __builtin_clzll((uint64_t)rows - 1);

    return MR_MIN(log, TIMES_SIZES - 1);
}

void times_note(struct times *t, int64_t rows, int64_t ns)
{
    _Atomic int64_t *most = &t->of[size_of(rows)].most_ns;
    _Atomic uint32_t *count = &t->of[size_of(rows)].count;
    const int64_t had = atomic_load_explicit(most, memory_order_relaxed);
    const uint32_t seen = atomic_load_explicit(count, memory_order_relaxed);

    /* The maximum, which decays slowly. */
    if (ns > had) {
        atomic_store_explicit(most, ns, memory_order_relaxed);
    } else if (had > 1024) {
        atomic_store_explicit(most, had - had / 1024, memory_order_relaxed);
    }
    if (seen < TIMES_KNOWN_AFTER) {
        atomic_store_explicit(count, seen + 1, memory_order_relaxed);
    }
}

/* 0 = not known. */
static int64_t known(const struct times *t, int size)
{
    return atomic_load_explicit(&t->of[size].count, memory_order_relaxed) >= TIMES_KNOWN_AFTER
               ? MR_MAX(atomic_load_explicit(&t->of[size].most_ns, memory_order_relaxed), 1)
               : 0;
}

int64_t times_most(const struct times *t, int64_t rows)
{
    const int own = size_of(rows);
    int64_t smaller = 0, at_least = 0;

    for (int k = 0; k < own; k++) {
        const int64_t ns = known(t, k);
        at_least = MR_MAX(at_least, ns);
        smaller = ns > 0 ? at_least : 2 * smaller;
    }
    for (int k = own; k < TIMES_SIZES; k++) {
        const int64_t ns = known(t, k);
        if (ns > 0) {
            return MR_MAX(ns, at_least);
        }
    }
    return 2 * smaller;
}
