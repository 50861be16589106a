#include "restart.h"

#include "base/mem.h"

#define FIRST_NS  (50 * MR_NS_PER_MS)
#define MOST_NS   (5 * MR_NS_PER_S)
#define DEVICE_NS MR_NS_PER_S

void restart_worked(struct restart *r)
{
    r->eighths = 0;
}

int64_t restart_died(struct restart *r, enum restart_cause cause, uint32_t dice)
{
    const int64_t least = cause == RESTART_DEVICE ? DEVICE_NS : 0;

    if (cause == RESTART_MODEL) {
        r->eighths = 8 * RESTART_LIMIT + 8;
    } else if (!restart_is_open(r)) {
        r->eighths += cause == RESTART_KILL ? 1 : 8;
    }
    if (r->eighths <= 8 && least == 0) {
        return 0;
    }
    const unsigned doubled = r->eighths <= 8 ? 0 : (r->eighths + 7) / 8 - 2;
    const int64_t ns = restart_is_open(r) ? MOST_NS : MR_MAX(FIRST_NS << doubled, least);
    /* a fifth more or less, so that workers that died together do not restart together */
    return ns - ns / 5 + (int64_t)((double)ns * 0.4 * dice / UINT32_MAX);
}
