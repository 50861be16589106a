/* Whether what a registry is asked for is within its limits, wherever the question comes from. */
#ifndef MR_KV_STATE_CHECK_H
#define MR_KV_STATE_CHECK_H

#include "kv/kv.h"

/** Errors of all: MR_E_INVALID. */
int kv_check_range(const struct mr_kv_range *range, struct mr_err *err);
int kv_check_txn(const struct mr_kv_txn *txn, struct mr_err *err);
int kv_check_ttl(int64_t ttl_s, struct mr_err *err);

#endif
