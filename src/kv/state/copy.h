/* Copies of answers and changes into an arena. */
#ifndef MR_KV_STATE_COPY_H
#define MR_KV_STATE_COPY_H

#include "base/arena.h"
#include "kv/kv.h"

/** Errors of all: MR_E_NOMEM; *out is not written then. */
int kv_item_copy(const struct mr_kv_item *item, struct mr_arena *arena, struct mr_kv_item *out,
                 struct mr_err *err);
int kv_result_copy(const struct mr_kv_result *result, struct mr_arena *arena,
                   struct mr_kv_result *out, struct mr_err *err);
int kv_reply_copy(const struct mr_kv_reply *reply, struct mr_arena *arena, struct mr_kv_reply *out,
                  struct mr_err *err);
/** A transaction. */
int kv_txn_copy(const struct mr_kv_txn *txn, struct mr_arena *arena, struct mr_kv_txn *out,
                struct mr_err *err);

#endif
