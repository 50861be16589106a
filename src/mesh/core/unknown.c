/* Ids that the registry does not know. This peer's view may lack a model that was registered a moment ago, so the registry is asked,
 * but only so often a second, and an id that it did not know is not asked for again for a while: a flood of made-up ids does not
 * reach it. */
#include "core_priv.h"

#define REMEMBERED_NS 5000000000ll

bool unknown_is_cached(const struct mesh_core *c, mr_str id)
{
    uint64_t hash = mr_hash(id);
    size_t at = hash % UNKNOWN_SLOTS;

    return c->unknown[at].hash == hash && c->unknown[at].until > c->now;
}

void unknown_remember(struct mesh_core *c, mr_str id)
{
    uint64_t hash = mr_hash(id);
    size_t at = hash % UNKNOWN_SLOTS;

    c->unknown[at].hash = hash;
    c->unknown[at].until = c->now + REMEMBERED_NS;
}

bool unknown_may_ask(struct mesh_core *c)
{
    double rate = c->o.unknown_per_s;

    c->unknown_tokens += rate * (double)(c->now - c->unknown_at) / 1e9;
    c->unknown_tokens = MR_MIN(c->unknown_tokens, rate);
    c->unknown_at = c->now;
    if (c->unknown_tokens < 1) {
        return false;
    }
    c->unknown_tokens -= 1;
    c->report.unknown_reads++;
    return true;
}
