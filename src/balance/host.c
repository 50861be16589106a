/* The states of a host, and the stalled set.
 *
 *   ready <-> suspect -> ejected -> half-open -> ready
 *     any -> cordoned -> half-open     any -> draining -> gone
 *
 * While no host is ready or suspect, times of ejection do not count: one host after the other, that which waits
 * longest first, becomes half-open, at growing distances of time. The first success brings all of them back,
 * as what ended was probably an outage of something that they have in common. */
#include "balance_priv.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int64_t host_jittered(struct mr_balance *r, int64_t ns, double low, double high)
{
    return (int64_t)((double)ns * (low + (high - low) * mr_rng_unit(&r->rng)));
}

static void stall_update(struct mr_balance *r)
{
    const uint32_t *n = r->state_count;
    bool works = n[MR_BALANCE_STATE_READY] + n[MR_BALANCE_STATE_SUSPECT] > 0;

    if (works && r->is_stalled) {
        for (size_t i = 0; i < r->slots.len; i++) {
            struct balance_host *h = r->slots.at[i];
            if (h && h->state == MR_BALANCE_STATE_EJECTED) {
                h->ejected_until_ns = r->now_ns;
            }
        }
    } else if (!works && !r->is_stalled) {
        r->stall_step_ns = STALL_MIN_NS;
        r->stall_try_ns = r->now_ns + host_jittered(r, STALL_MIN_NS, 1 - JITTER, 1 + JITTER);
    }
    r->is_stalled = !works;
}

static void __attribute__((format(printf, 4, 0)))
state_set(struct mr_balance *r, struct balance_host *h, enum mr_balance_state s, const char *fmt,
          va_list ap)
{
    vsnprintf(h->reason, sizeof h->reason, fmt, ap);
    if (h->state == s) {
        return;
    }
    r->state_count[h->state]--;
    r->state_count[s]++;
    h->state = s;
    h->since_ns = r->now_ns;
    stall_update(r);
}

void host_set(struct mr_balance *r, struct balance_host *h, enum mr_balance_state s,
              const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    state_set(r, h, s, fmt, ap);
    va_end(ap);
}

void host_eject(struct mr_balance *r, struct balance_host *h, const char *fmt, ...)
{
    int64_t ns;
    va_list ap;

    if (!r->is_stalled) {
        h->ejections++;
    }
    ns = MR_MIN(EJECT_NS * MR_MAX(h->ejections, 1u), EJECT_MAX_NS);
    h->ejected_until_ns = r->now_ns + host_jittered(r, ns, 1 - JITTER, 1 + JITTER);
    call_holds_drop(r, h);
    va_start(ap, fmt);
    state_set(r, h, MR_BALANCE_STATE_EJECTED, fmt, ap);
    va_end(ap);
}

void host_refresh(struct mr_balance *r, struct balance_host *h)
{
    if (h->state == MR_BALANCE_STATE_EJECTED && !r->is_stalled &&
        h->ejected_until_ns <= r->now_ns) {
        host_set(r, h, MR_BALANCE_STATE_HALF_OPEN, "one call tries it after an ejection");
    }
}

void host_drop_if_done(struct mr_balance *r, struct balance_host *h)
{
    if (h->state != MR_BALANCE_STATE_DRAINING || h->in_flight > 0) {
        return;
    }
    r->state_count[MR_BALANCE_STATE_DRAINING]--;
    r->host_count--;
    r->slots.at[h->id & 0xffff] = NULL;
    mr_free(h);
}

const char *mr_balance_state_name(enum mr_balance_state s)
{
    static const char *const names[] = {"ready",     "suspect",  "ejected",
                                        "half-open", "cordoned", "draining"};
    return (unsigned)s < sizeof names / sizeof names[0] ? names[s] : "unknown";
}
