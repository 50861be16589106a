/* Health checks that the caller makes for us. They decide little: a host that answers checks and fails work is
 * bad, one that fails checks and does the work is fine. */
#include "balance_priv.h"

static bool wants_probe(const struct balance_host *h)
{
    switch (h->state) {
    case MR_BALANCE_STATE_READY:
    case MR_BALANCE_STATE_SUSPECT: return !h->is_probing;
    case MR_BALANCE_STATE_EJECTED: return !h->is_probing && h->is_ejected_refused;
    default: return false;
    }
}

int64_t probe_time(const struct balance_host *h)
{
    return wants_probe(h) ? h->probe_ns : INT64_MAX;
}

uint32_t mr_balance_probe(struct mr_balance *r, int64_t now_ns)
{
    balance_tick(r, now_ns);
    for (size_t i = 0; i < r->slots.len; i++) {
        struct balance_host *h = r->slots.at[i];
        if (h && probe_time(h) <= r->now_ns) {
            h->is_probing = true;
            return h->id;
        }
    }
    return 0;
}

void mr_balance_probed(struct mr_balance *r, int64_t now_ns, uint32_t host, bool is_ok)
{
    struct balance_host *h;

    balance_tick(r, now_ns);
    h = balance_host_find(r, host);
    if (!h || !h->is_probing) {
        return;
    }
    h->is_probing = false;
    h->probe_failures = is_ok ? 0 : h->probe_failures + 1;
    if (h->state == MR_BALANCE_STATE_READY && h->probe_failures >= PROBE_SUSPECT) {
        host_set(r, h, MR_BALANCE_STATE_SUSPECT, "failed %u health checks", h->probe_failures);
    } else if (h->state == MR_BALANCE_STATE_SUSPECT && is_ok && h->rounds < SUSPECT_ROUNDS) {
        host_set(r, h, MR_BALANCE_STATE_READY, "passes health checks again");
    } else if (h->state == MR_BALANCE_STATE_EJECTED && is_ok && h->is_ejected_refused) {
        host_set(r, h, MR_BALANCE_STATE_HALF_OPEN, "passes health checks again; one call tries it");
    }
    h->probe_ns =
        r->now_ns + host_jittered(r, h->state == MR_BALANCE_STATE_READY ? PROBE_NS : PROBE_SOON_NS,
                                  1 - JITTER, 1 + JITTER);
}
