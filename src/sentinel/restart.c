#include "restart.h"

#include "base/clock.h"

#define FIRST_NS (50 * MR_NS_PER_MS)
#define MOST_NS  (5 * MR_NS_PER_S)

void restart_worked(struct restart *r)
{
    r->eighths = 0;
}

int64_t restart_died(struct restart *r, bool was_killed, uint32_t dice)
{
    if (!restart_is_open(r)) {
        r->eighths += was_killed ? 1 : 8;
    }
    if (r->eighths <= 8) {
        return 0;
    }
    const int64_t ns = restart_is_open(r) ? MOST_NS : FIRST_NS << ((r->eighths + 7) / 8 - 2);
    /* a fifth more or less, so that those that died together do not come back together */
    return ns - ns / 5 + (int64_t)((double)ns * 0.4 * dice / UINT32_MAX);
}
