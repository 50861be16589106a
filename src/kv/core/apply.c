#include "apply.h"

static int apply_range(const struct kv_state *s, const struct mr_kv_range *range,
                       struct mr_arena *arena, struct mr_kv_reply *out, struct mr_err *err)
{
    struct mr_kv_result *result = MR_ARENA_NEW(arena, struct mr_kv_result);
    int rc = result ? kv_state_range(s, range, arena, result, err)
                    : MR_FAIL(err, MR_E_NOMEM, "no memory for an answer of the registry");
    if (rc == MR_OK) {
        *out = (struct mr_kv_reply){.revision = s->revision, .results = result, .result_count = 1};
    }
    return rc;
}

static int apply_grant(struct kv_state *s, const struct kv_request *request, int64_t now_ns,
                       struct mr_rng *rng, struct mr_kv_reply *out, struct mr_err *err)
{
    int64_t id = request->lease;
    struct kv_lease *lease;

    while (id == 0 || (request->lease == 0 && kv_leases_find(&s->leases, id))) {
        id = (int64_t)(mr_rng_u64(rng) >> 1);
    }
    int rc = kv_leases_add(&s->leases, id, request->ttl_s, now_ns, &lease, err);
    if (rc == MR_OK) {
        *out = (struct mr_kv_reply){.revision = s->revision, .lease = id, .ttl_s = lease->ttl_s};
    }
    return rc;
}

static int apply_lease(struct kv_state *s, const struct kv_request *request, int64_t now_ns,
                       struct mr_kv_reply *out, struct mr_err *err)
{
    struct kv_lease *lease = kv_leases_find(&s->leases, request->lease);

    if (!lease) {
        return MR_FAIL(err, MR_E_NOT_FOUND, "there is no lease %llx",
                       (unsigned long long)request->lease);
    }
    *out = (struct mr_kv_reply){.lease = lease->id, .ttl_s = lease->ttl_s};
    if (request->ask == KV_ASK_KEEP) {
        kv_leases_keep(lease, now_ns);
    } else {
        kv_state_end_lease(s, lease);
        out->ttl_s = 0;
    }
    out->revision = s->revision;
    return MR_OK;
}

int kv_apply(struct kv_state *s, const struct kv_request *request, int64_t now_ns,
             struct mr_rng *rng, struct mr_arena *arena, struct mr_kv_reply *out,
             struct mr_err *err)
{
    struct mr_kv_txn one = {.then = &request->op, .then_count = 1};

    switch (request->ask) {
    case KV_ASK_RANGE: return apply_range(s, &request->range, arena, out, err);
    case KV_ASK_PUT:
    case KV_ASK_DELETE: return kv_state_txn(s, &one, arena, out, err);
    case KV_ASK_TXN: return kv_state_txn(s, &request->txn, arena, out, err);
    case KV_ASK_GRANT: return apply_grant(s, request, now_ns, rng, out, err);
    case KV_ASK_KEEP:
    case KV_ASK_REVOKE: return apply_lease(s, request, now_ns, out, err);
    }
    return MR_FAIL(err, MR_E_UNSUPPORTED, "request of kind %d to the registry", (int)request->ask);
}
