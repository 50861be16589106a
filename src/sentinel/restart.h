/* When a worker that died is started again. Pure: the caller has the clock and the dice.
 *
 * Deaths count while nothing is answered in between. The first restarts at once, later ones wait twice as long each
 * time; after RESTART_LIMIT of them the breaker is open: the model counts as not ready, and one attempt is made every
 * five seconds. Eight that came from outside (SIGKILL) count as one: the model is seldom to blame, but a system that is
 * short of memory kills again and again. After the failure of a device there is always a second to wait.
 *
 * While the breaker is open, the workers of a model come back one after the other: the next one is started when the one
 * before has answered something, or has had nothing to do for PROBE_NS. */
#ifndef SENTINEL_RESTART_H
#define SENTINEL_RESTART_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

#define RESTART_LIMIT 5u
#define PROBE_NS      (60 * MR_NS_PER_S)

struct restart {
    uint32_t eighths; /* of deaths without an answer in between */
};

/* The worker has answered. */
void restart_worked(struct restart *r);
enum restart_cause { RESTART_FAULT, RESTART_KILL, RESTART_DEVICE };
/* It died. Nanoseconds to wait before the next start. dice: 0 .. UINT32_MAX. */
int64_t restart_died(struct restart *r, enum restart_cause cause, uint32_t dice);
static inline bool restart_is_open(const struct restart *r)
{
    return r->eighths > 8 * RESTART_LIMIT;
}

#endif
