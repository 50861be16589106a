#include "rows.h"

#include "base/mem.h"

bool rows_short(struct rows *r, int64_t rows)
{
    const uint32_t had = atomic_load_explicit(r->limit, memory_order_relaxed);
    const uint32_t limit = (uint32_t)MR_MIN(MR_MAX(rows / 2, 1), INT32_MAX);

    if (rows <= 1 || (had > 0 && limit >= had)) {
        return false;
    }
    if (had == 0) {
        atomic_store_explicit(&r->full, (uint32_t)MR_MIN(rows, INT32_MAX), memory_order_relaxed);
    }
    atomic_store_explicit(&r->worked, 0, memory_order_relaxed);
    atomic_store_explicit(r->limit, limit, memory_order_relaxed);
    return true;
}

bool rows_worked(struct rows *r, int64_t rows)
{
    const uint32_t limit = atomic_load_explicit(r->limit, memory_order_relaxed);

    if (limit == 0 || rows < limit ||
        atomic_fetch_add_explicit(&r->worked, 1, memory_order_relaxed) + 1 != ROWS_AGAIN) {
        return false;
    }
    const uint32_t full = atomic_load_explicit(&r->full, memory_order_relaxed);
    atomic_store_explicit(&r->worked, 0, memory_order_relaxed);
    atomic_store_explicit(r->limit, 2 * limit >= full ? 0 : 2 * limit, memory_order_relaxed);
    return true;
}
