#include "copy.h"

static int no_room(struct mr_err *err)
{
    return MR_FAIL(err, MR_E_NOMEM, "no memory for what the registry is asked or answers");
}

static bool copy_str(mr_str s, struct mr_arena *arena, mr_str *out)
{
    return (*out = mr_arena_str(arena, s)).ptr;
}

static bool copy_bytes(mr_bytes b, struct mr_arena *arena, mr_bytes *out)
{
    mr_str s;
    if (!copy_str((mr_str){(const char *)b.ptr, b.len}, arena, &s)) {
        return false;
    }
    *out = (mr_bytes){(const uint8_t *)s.ptr, s.len};
    return true;
}

int kv_item_copy(const struct mr_kv_item *item, struct mr_arena *arena, struct mr_kv_item *out,
                 struct mr_err *err)
{
    struct mr_kv_item copy = *item;
    if (!copy_str(item->key, arena, &copy.key) || !copy_bytes(item->value, arena, &copy.value)) {
        return no_room(err);
    }
    *out = copy;
    return MR_OK;
}

int kv_result_copy(const struct mr_kv_result *result, struct mr_arena *arena,
                   struct mr_kv_result *out, struct mr_err *err)
{
    if (!result->items) {
        *out = *result;
        return MR_OK;
    }
    struct mr_kv_item *items = MR_ARENA_ARRAY(arena, struct mr_kv_item, result->count + 1);
    int rc = items ? MR_OK : no_room(err);
    for (size_t i = 0; rc == MR_OK && i < result->count; i++) {
        rc = kv_item_copy(&result->items[i], arena, &items[i], err);
    }
    if (rc == MR_OK) {
        *out = (struct mr_kv_result){.items = items, .count = result->count, .more = result->more};
    }
    return rc;
}

int kv_reply_copy(const struct mr_kv_reply *reply, struct mr_arena *arena, struct mr_kv_reply *out,
                  struct mr_err *err)
{
    size_t count = reply->result_count;
    struct mr_kv_result *results = MR_ARENA_ARRAY(arena, struct mr_kv_result, count + 1);
    int rc = results ? MR_OK : no_room(err);

    for (size_t i = 0; rc == MR_OK && i < count; i++) {
        rc = kv_result_copy(&reply->results[i], arena, &results[i], err);
    }
    if (rc == MR_OK) {
        *out = *reply;
        out->results = results;
    }
    return rc;
}

static int ops_copy(const struct mr_kv_op *ops, size_t count, struct mr_arena *arena,
                    const struct mr_kv_op **out, struct mr_err *err)
{
    struct mr_kv_op *copy = MR_ARENA_ARRAY(arena, struct mr_kv_op, count + 1);
    if (!copy) {
        return no_room(err);
    }
    for (size_t i = 0; i < count; i++) {
        copy[i] = ops[i];
        if (!copy_str(ops[i].key, arena, &copy[i].key) ||
            !copy_bytes(ops[i].value, arena, &copy[i].value)) {
            return no_room(err);
        }
    }
    *out = copy;
    return MR_OK;
}

static int compares_copy(const struct mr_kv_txn *txn, struct mr_arena *arena, struct mr_kv_txn *out,
                         struct mr_err *err)
{
    size_t count = txn->compare_count;
    struct mr_kv_compare *copy = MR_ARENA_ARRAY(arena, struct mr_kv_compare, count + 1);
    if (!copy) {
        return no_room(err);
    }
    for (size_t i = 0; i < count; i++) {
        copy[i].mod_revision = txn->compares[i].mod_revision;
        if (!copy_str(txn->compares[i].key, arena, &copy[i].key)) {
            return no_room(err);
        }
    }
    out->compares = copy;
    return MR_OK;
}

int kv_txn_copy(const struct mr_kv_txn *txn, struct mr_arena *arena, struct mr_kv_txn *out,
                struct mr_err *err)
{
    struct mr_kv_txn copy = *txn;
    int rc = compares_copy(txn, arena, &copy, err);

    if (rc == MR_OK) {
        rc = ops_copy(txn->then, txn->then_count, arena, &copy.then, err);
    }
    if (rc == MR_OK) {
        rc = ops_copy(txn->otherwise, txn->otherwise_count, arena, &copy.otherwise, err);
    }
    if (rc == MR_OK) {
        *out = copy;
    }
    return rc;
}
