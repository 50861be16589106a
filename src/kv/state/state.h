/* A registry's keys, leases and history as a state machine: no clock, no I/O, no thread. The memory store and the
 * file store are made of it. */
#ifndef MR_KV_STATE_STATE_H
#define MR_KV_STATE_STATE_H

#include "base/arena.h"
#include "history.h"
#include "leases.h"

struct kv_state {
    int64_t revision; /* of the last change; 1 when empty */
    struct kv_keys keys;
    struct kv_leases leases;
    struct kv_history history;
    size_t max_bytes; /* of keys */
};

struct kv_state_options {
    size_t history_events; /* 0: 65536 */
    size_t history_bytes;  /* 0: 32 MiB */
    size_t max_bytes;      /* 0: 4 GiB */
};

void kv_state_init(struct kv_state *s, const struct kv_state_options *options);
void kv_state_fini(struct kv_state *s);

/** A page, of MR_KV_PAGE_MAX items and about 8 MiB at most. The items are in the arena; what they point to is valid
 *  until the next change. Errors: MR_E_NOMEM. */
int kv_state_range(const struct kv_state *s, const struct mr_kv_range *range,
                   struct mr_arena *arena, struct mr_kv_result *out, struct mr_err *err);
/** Carries a checked transaction out (kv_check_txn), or nothing of it. The reply as that of kv_state_range.
 *  Errors: MR_E_NOT_FOUND (a lease), MR_E_EXHAUSTED, MR_E_NOMEM (for a read: the changes are made then). */
int kv_state_txn(struct kv_state *s, const struct mr_kv_txn *txn, struct mr_arena *arena,
                 struct mr_kv_reply *out, struct mr_err *err);
/** Ends a lease and deletes its keys, as one change. */
void kv_state_end_lease(struct kv_state *s, struct kv_lease *lease);
/** A record as it was stored once, of a snapshot or a log, later ones of a key after earlier ones. Takes the
 *  reference. is_new: it also becomes history. Its lease must be there. */
void kv_state_restore(struct kv_state *s, struct kv_record *r, bool is_new);

#endif
