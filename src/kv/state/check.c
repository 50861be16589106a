#include "check.h"

static int check_key(mr_str key, size_t least, struct mr_err *err)
{
    if (key.len < least || key.len > MR_KV_KEY_MAX) {
        return MR_FAIL(err, MR_E_INVALID,
                       "a key of the registry has %zu bytes, must have %zu to %d", key.len, least,
                       MR_KV_KEY_MAX);
    }
    return MR_OK;
}

int kv_check_range(const struct mr_kv_range *range, struct mr_err *err)
{
    if (range->limit > MR_KV_PAGE_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "a page of %u keys is asked for, must be 0 to %d",
                       (unsigned)range->limit, MR_KV_PAGE_MAX);
    }
    int rc = check_key(range->after, 0, err);
    return rc < 0 ? rc : check_key(range->key, range->is_prefix ? 0 : 1, err);
}

static int check_op(const struct mr_kv_op *op, struct mr_err *err)
{
    if (op->kind == MR_KV_PUT && op->value.len > MR_KV_VALUE_MAX) {
        return MR_FAIL(err, MR_E_INVALID,
                       "a value for the registry has %zu bytes, must have 0 to %d", op->value.len,
                       MR_KV_VALUE_MAX);
    }
    return check_key(op->key, 1, err);
}

/** Whether both change the same key. */
static bool is_clash(const struct mr_kv_op *put, const struct mr_kv_op *other)
{
    if (put->kind != MR_KV_PUT || other->kind == MR_KV_GET) {
        return false;
    }
    return other->kind == MR_KV_DELETE && other->is_prefix ? mr_str_starts(put->key, other->key)
                                                           : mr_str_eq(put->key, other->key);
}

static int check_ops(const struct mr_kv_op *ops, size_t count, struct mr_err *err)
{
    if (count > MR_KV_OPS_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "a transaction has %zu operations, must have 0 to %d",
                       count, MR_KV_OPS_MAX);
    }
    for (size_t i = 0; i < count; i++) {
        int rc = check_op(&ops[i], err);
        if (rc < 0) {
            return rc;
        }
        for (size_t k = 0; k < count; k++) {
            if (k != i && is_clash(&ops[i], &ops[k])) {
                return MR_FAIL(err, MR_E_INVALID, "a transaction changes the key '%.*s' twice",
                               MR_STR_ARG(mr_str_sub(ops[i].key, 0, 200)));
            }
        }
    }
    return MR_OK;
}

int kv_check_txn(const struct mr_kv_txn *txn, struct mr_err *err)
{
    if (txn->compare_count > MR_KV_OPS_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "a transaction has %zu compares, must have 0 to %d",
                       txn->compare_count, MR_KV_OPS_MAX);
    }
    for (size_t i = 0; i < txn->compare_count; i++) {
        int rc = check_key(txn->compares[i].key, 1, err);
        if (rc < 0) {
            return rc;
        }
    }
    int rc = check_ops(txn->then, txn->then_count, err);
    return rc < 0 ? rc : check_ops(txn->otherwise, txn->otherwise_count, err);
}

int kv_check_ttl(int64_t ttl_s, struct mr_err *err)
{
    if (ttl_s < 1 || ttl_s > MR_KV_TTL_MAX_S) {
        return MR_FAIL(err, MR_E_INVALID, "time to live of a lease: %lld s, must be 1 to %lld",
                       (long long)ttl_s, (long long)MR_KV_TTL_MAX_S);
    }
    return MR_OK;
}
