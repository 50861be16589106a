#include "leases.h"

#include "base/clock.h"
#include "base/mem.h"

/* The key of a lease in the map. */
static mr_str id_key(const int64_t *id)
{
    return mr_str_n((const char *)id, sizeof *id);
}

void kv_leases_init(struct kv_leases *l)
{
    *l = (struct kv_leases){.next_ns = INT64_MAX};
}

void kv_leases_fini(struct kv_leases *l)
{
    struct mr_map_slot *slot;
    for (size_t i = 0; (slot = mr_map_next(&l->by_id, &i));) {
        mr_free(slot->value);
    }
    mr_map_fini(&l->by_id);
    kv_leases_init(l);
}

struct kv_lease *kv_leases_find(const struct kv_leases *l, int64_t id)
{
    return mr_map_find(&l->by_id, id_key(&id));
}

int kv_leases_add(struct kv_leases *l, int64_t id, int64_t ttl_s, int64_t now_ns,
                  struct kv_lease **out, struct mr_err *err)
{
    if (id < 1) {
        return MR_FAIL(err, MR_E_INVALID, "id of a lease: %lld, must be above 0", (long long)id);
    }
    if (kv_leases_find(l, id)) {
        return MR_FAIL(err, MR_E_EXISTS, "lease %llx exists already", (unsigned long long)id);
    }
    if (l->by_id.len >= KV_LEASES_MAX) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "the registry has %d leases, which is the limit",
                       KV_LEASES_MAX);
    }
    struct kv_lease *lease = MR_NEW(struct kv_lease);
    lease->id = id;
    lease->ttl_s = ttl_s;
    TAILQ_INIT(&lease->nodes);
    mr_map_put(&l->by_id, id_key(&id), lease);
    kv_leases_keep(lease, now_ns);
    l->next_ns = MR_MIN(l->next_ns, lease->ends_ns);
    *out = lease;
    return MR_OK;
}

void kv_leases_keep(struct kv_lease *lease, int64_t now_ns)
{
    lease->ends_ns = mr_ns_after(now_ns, lease->ttl_s * MR_NS_PER_S);
}

void kv_leases_keep_all(struct kv_leases *l, int64_t now_ns)
{
    struct mr_map_slot *slot;
    l->next_ns = INT64_MAX;
    for (size_t i = 0; (slot = mr_map_next(&l->by_id, &i));) {
        struct kv_lease *lease = slot->value;
        kv_leases_keep(lease, now_ns);
        l->next_ns = MR_MIN(l->next_ns, lease->ends_ns);
    }
}

void kv_leases_remove(struct kv_leases *l, struct kv_lease *lease)
{
    mr_map_remove(&l->by_id, id_key(&lease->id));
    mr_free(lease);
}

/* The ones that end at the same time in the order of their ids, so that a simulation repeats: the map's order is
 * random. */
static bool ends_before(const struct kv_lease *a, const struct kv_lease *b)
{
    return !b || a->ends_ns < b->ends_ns || (a->ends_ns == b->ends_ns && a->id < b->id);
}

struct kv_lease *kv_leases_ended(struct kv_leases *l, int64_t now_ns)
{
    struct kv_lease *first = NULL;
    struct mr_map_slot *slot;

    if (now_ns < l->next_ns) {
        return NULL;
    }
    for (size_t i = 0; (slot = mr_map_next(&l->by_id, &i));) {
        if (ends_before(slot->value, first)) {
            first = slot->value;
        }
    }
    l->next_ns = first ? first->ends_ns : INT64_MAX;
    return first && first->ends_ns <= now_ns ? first : NULL;
}
