/* Strategies: what a call costs on a host, in a unit that each of them has for itself.
 *
 *   in turn   stride scheduling: a call moves its host's turn on by 1 / share, and the host whose turn is the least gets the
 *             next one. A host without room stays where it is and catches up by no more than one call, as its turn is moved
 *             to that of the latest call at least.
 *   by share  of exponential variables with the rates of the shares, the least is that of a host with the probability of
 *             its share.
 *   HASH      the same with a variable that follows from key and host (weighted rendezvous hashing). */
#include "balance_priv.h"

#include <math.h>

static const struct {
    const char *name;
    const char *other[2];
} names[MR_BALANCE_STRATEGIES] = {
    [MR_BALANCE_PEAK_EWMA] = {"peak_ewma", {NULL, NULL}},
    [MR_BALANCE_P2C] = {"p2c", {NULL, NULL}},
    [MR_BALANCE_LEAST_REQUEST] = {"least_request", {"la", NULL}},
    [MR_BALANCE_ROUND_ROBIN] = {"round_robin", {"rr", NULL}},
    [MR_BALANCE_WEIGHTED_ROBIN] = {"weighted_round_robin", {"wrr", NULL}},
    [MR_BALANCE_RANDOM] = {"random", {NULL, NULL}},
    [MR_BALANCE_WEIGHTED_RANDOM] = {"weighted_random", {"wr", NULL}},
    [MR_BALANCE_HASH] = {"hash", {"c_murmurhash", "c_md5"}},
};

bool mr_balance_strategy_parse(mr_str name, enum mr_balance_strategy *out)
{
    for (unsigned i = 0; i < MR_BALANCE_STRATEGIES; i++) {
        if (mr_str_eq_c(name, names[i].name) ||
            (names[i].other[0] && mr_str_eq_c(name, names[i].other[0])) ||
            (names[i].other[1] && mr_str_eq_c(name, names[i].other[1]))) {
            *out = (enum mr_balance_strategy)i;
            return true;
        }
    }
    return false;
}

/* murmur3's fmix64. */
static uint64_t mix(uint64_t h)
{
    h = (h ^ h >> 33) * UINT64_C(0xff51afd7ed558ccd);
    h = (h ^ h >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return h ^ h >> 33;
}

uint64_t mr_balance_hash(mr_str s)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < s.len; i++) {
        h = (h ^ (unsigned char)s.ptr[i]) * UINT64_C(0x100000001b3);
    }
    h = mix(h);
    return h ? h : 1; /* 0 stands for none */
}

void mr_balance_set_share(struct mr_balance *r, uint32_t host, double share, uint64_t identity)
{
    struct balance_host *h = balance_host_find(r, host);

    if (h && share > 0) {
        h->share = share;
        h->identity = identity;
    }
}

/* unit: [0, 1) */
static double exponential(double unit, double share)
{
    return -log1p(-unit) / share;
}

static double hash_cost(struct mr_balance *r, uint64_t key, const struct balance_host *h)
{
    if (key == 0) {
        return exponential(mr_rng_unit(&r->rng), h->share);
    }
    return exponential((double)(mix(key ^ h->identity) >> 11) * 0x1p-53, h->share);
}

double strategy_cost(struct mr_balance *r, const struct mr_balance_ask *ask,
                     const struct balance_host *h)
{
    if (r->strategy == MR_BALANCE_HASH || ask->is_sticky) {
        return hash_cost(r, ask->key, h);
    }
    if (h->state == MR_BALANCE_STATE_HALF_OPEN) {
        return -1;
    }
    switch (r->strategy) {
    case MR_BALANCE_LEAST_REQUEST: return (h->in_flight + h->held + 1) / h->share;
    case MR_BALANCE_ROUND_ROBIN:
    case MR_BALANCE_WEIGHTED_ROBIN: return h->turn;
    case MR_BALANCE_RANDOM: return mr_rng_unit(&r->rng);
    case MR_BALANCE_WEIGHTED_RANDOM: return exponential(mr_rng_unit(&r->rng), h->share);
    default: return pick_expected(r, h);
    }
}

void strategy_taken(struct mr_balance *r, struct balance_host *h)
{
    const double stride = r->strategy == MR_BALANCE_WEIGHTED_ROBIN ? 1 / h->share : 1;

    r->turn = MR_MAX(r->turn, h->turn);
    h->turn = MR_MAX(h->turn, r->turn - stride) + stride;
}
