#include "request_write.h"

#include "codec/pb.h"
#include "fields.h"

const char *kv_wire_method(enum kv_ask ask)
{
    static const char *const methods[] = {
        [KV_ASK_RANGE] = ETCD_RANGE,  [KV_ASK_PUT] = ETCD_PUT,     [KV_ASK_DELETE] = ETCD_DELETE,
        [KV_ASK_TXN] = ETCD_TXN,      [KV_ASK_GRANT] = ETCD_GRANT, [KV_ASK_KEEP] = ETCD_KEEP,
        [KV_ASK_REVOKE] = ETCD_REVOKE};
    return methods[ask];
}

static void put_key(struct mr_buf *b, uint32_t field, mr_str root, mr_str key)
{
    mr_pb_put_len(b, field, root.len + key.len);
    mr_buf_str(b, root);
    mr_buf_str(b, key);
}

/** The first key after all that begin with root and prefix: the last byte that can be is made greater, what follows
 *  it is cut off. A single zero byte, if there is no such key, stands for the end of all keys. */
static void put_prefix_end(struct mr_buf *b, mr_str root, mr_str prefix)
{
    mr_str parts[] = {root, prefix};
    size_t len = root.len + prefix.len;

    while (len > 0) {
        size_t at = len - 1;
        char last = at < parts[0].len ? parts[0].ptr[at] : parts[1].ptr[at - parts[0].len];
        if ((uint8_t)last != 0xff) {
            mr_pb_put_len(b, RANGE_END, len);
            mr_buf_str(b, mr_str_sub(parts[0], 0, at));
            mr_buf_str(b, mr_str_sub(parts[1], 0, at > parts[0].len ? at - parts[0].len : 0));
            mr_buf_char(b, (char)(last + 1));
            return;
        }
        len = at;
    }
    mr_pb_set_str(b, RANGE_END, mr_str_n("", 1));
}

/** Key and end of a key, or of a prefix after `after`. */
static void put_extent(struct mr_buf *b, mr_str root, mr_str key, bool is_prefix, mr_str after)
{
    if (is_prefix && after.len && mr_str_cmp(after, key) >= 0) {
        mr_pb_put_len(b, RANGE_KEY, root.len + after.len + 1);
        mr_buf_str(b, root);
        mr_buf_str(b, after);
        mr_buf_char(b, '\0');
    } else if (root.len + key.len == 0) {
        mr_pb_set_str(b, RANGE_KEY, mr_str_n("", 1)); /* all keys */
    } else {
        put_key(b, RANGE_KEY, root, key);
    }
    if (is_prefix) {
        put_prefix_end(b, root, key);
    }
}

static void put_range(struct mr_buf *b, mr_str root, const struct mr_kv_range *range)
{
    put_extent(b, root, range->key, range->is_prefix, range->after);
    mr_pb_put_u64(b, RANGE_LIMIT, range->limit);
    mr_pb_put_bool(b, RANGE_SERIALIZABLE, range->read == MR_KV_LOCAL);
    mr_pb_put_bool(b, RANGE_KEYS_ONLY, range->keys_only);
}

static void put_put(struct mr_buf *b, mr_str root, const struct mr_kv_op *op)
{
    put_key(b, PUT_KEY, root, op->key);
    mr_pb_put_str(b, PUT_VALUE, mr_str_n((const char *)op->value.ptr, op->value.len));
    mr_pb_put_i64(b, PUT_LEASE, op->lease);
}

static void put_op(struct mr_buf *b, uint32_t field, mr_str root, const struct mr_kv_op *op)
{
    static const uint32_t kinds[] = {
        [MR_KV_GET] = OP_RANGE, [MR_KV_PUT] = OP_PUT, [MR_KV_DELETE] = OP_DELETE};
    struct mr_kv_range range = {
        .key = op->key, .is_prefix = op->is_prefix, .limit = op->is_prefix ? MR_KV_PAGE_MAX : 1};
    size_t outer = mr_pb_begin(b, field), inner = mr_pb_begin(b, kinds[op->kind]);

    switch (op->kind) {
    case MR_KV_GET: put_range(b, root, &range); break;
    case MR_KV_PUT: put_put(b, root, op); break;
    case MR_KV_DELETE: put_extent(b, root, op->key, op->is_prefix, MR_STR("")); break;
    }
    mr_pb_end(b, inner);
    mr_pb_end(b, outer);
}

static void put_txn(struct mr_buf *b, mr_str root, const struct mr_kv_txn *txn)
{
    for (size_t i = 0; i < txn->compare_count; i++) {
        size_t mark = mr_pb_begin(b, TXN_COMPARE);
        mr_pb_set_u64(b, COMPARE_TARGET, COMPARE_TARGET_MOD);
        put_key(b, COMPARE_KEY, root, txn->compares[i].key);
        mr_pb_set_i64(b, COMPARE_MOD_REVISION, txn->compares[i].mod_revision);
        mr_pb_end(b, mark);
    }
    for (size_t i = 0; i < txn->then_count; i++) {
        put_op(b, TXN_SUCCESS, root, &txn->then[i]);
    }
    for (size_t i = 0; i < txn->otherwise_count; i++) {
        put_op(b, TXN_FAILURE, root, &txn->otherwise[i]);
    }
}

void kv_wire_request(struct mr_buf *b, mr_str root, const struct kv_request *request)
{
    switch (request->ask) {
    case KV_ASK_RANGE: put_range(b, root, &request->range); break;
    case KV_ASK_PUT: put_put(b, root, &request->op); break;
    case KV_ASK_DELETE:
        put_extent(b, root, request->op.key, request->op.is_prefix, MR_STR(""));
        break;
    case KV_ASK_TXN: put_txn(b, root, &request->txn); break;
    case KV_ASK_GRANT:
        mr_pb_put_i64(b, GRANT_TTL, request->ttl_s);
        mr_pb_put_i64(b, GRANT_ID, request->lease);
        break;
    case KV_ASK_KEEP:
    case KV_ASK_REVOKE: mr_pb_put_i64(b, LEASE_ID, request->lease); break;
    }
}

void kv_wire_watch(struct mr_buf *b, mr_str root, mr_str prefix, int64_t from)
{
    size_t mark = mr_pb_begin(b, WATCH_CREATE);

    put_extent(b, root, prefix, true, MR_STR(""));
    mr_pb_put_i64(b, CREATE_START, from);
    mr_pb_put_bool(b, CREATE_PROGRESS, true);
    mr_pb_end(b, mark);
}

void kv_wire_authenticate(struct mr_buf *b, mr_str name, mr_str password)
{
    mr_pb_put_str(b, AUTH_NAME, name);
    mr_pb_put_str(b, AUTH_PASSWORD, password);
}
