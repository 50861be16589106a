/* The delay before a worker that died restarts. Pure: the caller passes the time and random numbers.
 *
 * What counts are the deaths since the last process that had answered, or had been ready for PROBE_NS. The first restart
 * is immediate, and each further delay is twice as long. After RESTART_LIMIT deaths the breaker is open: the model counts
 * as not ready, and there is one attempt every five seconds. Eight kills from outside (SIGKILL) count as one death: the
 * model is seldom the cause, but a system that is short of memory kills repeatedly. After the failure of a device the
 * delay is at least a second. A successor that says that it cannot load the model opens the breaker at once.
 *
 * While the breaker is open, the workers of a model restart one after the other: the next one starts when its predecessor
 * has answered an execution, or has been idle for PROBE_NS. */
#ifndef SENTINEL_RESTART_H
#define SENTINEL_RESTART_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

#define RESTART_LIMIT 5u
#define PROBE_NS      (60 * MR_NS_PER_S)

struct restart {
    uint32_t eighths; /* of deaths that count */
};

/* The worker has answered, or has been ready for PROBE_NS. */
void restart_worked(struct restart *r);
enum restart_cause { RESTART_FAULT, RESTART_KILL, RESTART_DEVICE, RESTART_MODEL };
/* It died. Returns the delay before the next start in nanoseconds. dice: random, 0 .. UINT32_MAX. */
int64_t restart_died(struct restart *r, enum restart_cause cause, uint32_t dice);
static inline bool restart_is_open(const struct restart *r)
{
    return r->eighths > 8 * RESTART_LIMIT;
}

#endif
