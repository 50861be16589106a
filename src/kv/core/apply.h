/* Requests carried out on the state of a registry, for the stores that have one. */
#ifndef MR_KV_CORE_APPLY_H
#define MR_KV_CORE_APPLY_H

#include "conn.h"
#include "kv/state/state.h"

/** Carries out a checked request at that time. What the reply's items point to is valid until the next change. `rng`
 *  chooses ids of leases. Errors: those of the calls in kv/kv.h. */
int kv_apply(struct kv_state *s, const struct kv_request *request, int64_t now_ns,
             struct mr_rng *rng, struct mr_arena *arena, struct mr_kv_reply *out,
             struct mr_err *err);

#endif
