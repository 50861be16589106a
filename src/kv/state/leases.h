/* Leases: when they end, and which keys end with them. */
#ifndef MR_KV_STATE_LEASES_H
#define MR_KV_STATE_LEASES_H

#include "base/map.h"
#include "keys.h"

#define KV_LEASES_MAX 1000000

struct kv_lease {
    int64_t id; /* > 0 */
    int64_t ttl_s;
    int64_t ends_ns;
    struct kv_nodes nodes; /* its keys */
};

struct kv_leases {
    struct mr_map by_id;
    int64_t next_ns; /* no lease ends earlier */
};

void kv_leases_init(struct kv_leases *l);
void kv_leases_fini(struct kv_leases *l);
struct kv_lease *kv_leases_find(const struct kv_leases *l, int64_t id);
/** A checked time to live. Errors: MR_E_EXISTS, MR_E_INVALID (the id), MR_E_EXHAUSTED. */
int kv_leases_add(struct kv_leases *l, int64_t id, int64_t ttl_s, int64_t now_ns,
                  struct kv_lease **out, struct mr_err *err);
/** It ends a whole time to live after this. */
void kv_leases_keep(struct kv_lease *lease, int64_t now_ns);
/** All of them do: after a restart, when the time that has passed is not known. */
void kv_leases_keep_all(struct kv_leases *l, int64_t now_ns);
/** The lease must have no keys left. */
void kv_leases_remove(struct kv_leases *l, struct kv_lease *lease);
/** One that has ended by now, or NULL. */
struct kv_lease *kv_leases_ended(struct kv_leases *l, int64_t now_ns);

#endif
