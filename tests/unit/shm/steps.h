/* Forced in before the sources of shm that test_interleave explores: each access to a shared word, each futex, each
 * eventfd and the mutex become a point where the explorer may let another thread run (explore.h). What runs is
 * sequentially consistent; whether the memory orders suffice is for ThreadSanitizer and the reader. */
#ifndef SHM_STEPS_H
#define SHM_STEPS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/clock.h"

void steps_at(const volatile void *word);
void steps_lock(pthread_mutex_t *m);
void steps_unlock(pthread_mutex_t *m);

#define STEPS_OF(T)                                                                                \
    static inline T##_t steps_load_##T(const _Atomic T##_t *p)                                     \
    {                                                                                              \
        steps_at(p);                                                                               \
        return atomic_load(p);                                                                     \
    }                                                                                              \
    static inline void steps_store_##T(_Atomic T##_t *p, T##_t v)                                  \
    {                                                                                              \
        steps_at(p);                                                                               \
        atomic_store(p, v);                                                                        \
    }                                                                                              \
    static inline T##_t steps_exchange_##T(_Atomic T##_t *p, T##_t v)                              \
    {                                                                                              \
        steps_at(p);                                                                               \
        return atomic_exchange(p, v);                                                              \
    }                                                                                              \
    static inline T##_t steps_add_##T(_Atomic T##_t *p, T##_t v)                                   \
    {                                                                                              \
        steps_at(p);                                                                               \
        return atomic_fetch_add(p, v);                                                             \
    }                                                                                              \
    static inline T##_t steps_or_##T(_Atomic T##_t *p, T##_t v)                                    \
    {                                                                                              \
        steps_at(p);                                                                               \
        return atomic_fetch_or(p, v);                                                              \
    }                                                                                              \
    static inline T##_t steps_and_##T(_Atomic T##_t *p, T##_t v)                                   \
    {                                                                                              \
        steps_at(p);                                                                               \
        return atomic_fetch_and(p, v);                                                             \
    }                                                                                              \
    static inline _Bool steps_cas_##T(_Atomic T##_t *p, T##_t *seen, T##_t v)                      \
    {                                                                                              \
        steps_at(p);                                                                               \
        return atomic_compare_exchange_strong(p, seen, v);                                         \
    }
STEPS_OF(uint32)
STEPS_OF(uint64)

#define STEPS_OP(op, p)                                                                            \
    _Generic(*(p), uint32_t : steps_##op##_uint32, uint64_t : steps_##op##_uint64)

#undef atomic_load
#undef atomic_store
#undef atomic_exchange
#undef atomic_fetch_add
#undef atomic_fetch_sub
#undef atomic_fetch_or
#undef atomic_fetch_and
#undef atomic_compare_exchange_strong
#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_exchange_explicit
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub_explicit
#undef atomic_fetch_or_explicit
#undef atomic_fetch_and_explicit
#undef atomic_compare_exchange_strong_explicit
#undef atomic_compare_exchange_weak
#undef atomic_compare_exchange_weak_explicit

#define atomic_load(p)                          STEPS_OP(load, p)(p)
#define atomic_store(p, v)                      STEPS_OP(store, p)(p, v)
#define atomic_exchange(p, v)                   STEPS_OP(exchange, p)(p, v)
#define atomic_fetch_add(p, v)                  STEPS_OP(add, p)(p, v)
#define atomic_fetch_or(p, v)                   STEPS_OP(or, p)(p, v)
#define atomic_fetch_and(p, v)                  STEPS_OP(and, p)(p, v)
#define atomic_compare_exchange_strong(p, s, v) STEPS_OP(cas, p)(p, s, v)
#define atomic_load_explicit(p, o)              atomic_load(p)
#define atomic_store_explicit(p, v, o)          atomic_store(p, v)
#define atomic_fetch_add_explicit(p, v, o)      atomic_fetch_add(p, v)
#define atomic_fetch_sub_explicit(p, v, o)      atomic_fetch_add(p, 0u - (v))
#define atomic_compare_exchange_strong_explicit(p, s, v, yes, no)                                  \
    atomic_compare_exchange_strong(p, s, v)

#define pthread_mutex_lock(m)   steps_lock(m)
#define pthread_mutex_unlock(m) steps_unlock(m)
/* Time does not advance: no thread spins. */
#define mr_now_ns() INT64_C(1)

#endif
