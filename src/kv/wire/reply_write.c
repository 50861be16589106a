#include "reply_write.h"

#include "codec/pb.h"
#include "fields.h"

static void put_header(struct mr_buf *b, const struct kv_wire_header *header)
{
    size_t mark = mr_pb_begin(b, RESPONSE_HEADER);

    mr_pb_put_u64(b, HEADER_CLUSTER, header->cluster);
    mr_pb_put_u64(b, HEADER_MEMBER, 1);
    mr_pb_put_i64(b, HEADER_REVISION, header->revision);
    mr_pb_put_u64(b, HEADER_TERM, header->term);
    mr_pb_end(b, mark);
}

static size_t item_size(const struct mr_kv_item *item)
{
    const int64_t numbers[] = {item->create_revision, item->mod_revision, item->version,
                               item->lease};
    size_t size = item->key.len ? mr_pb_len_size(KV_KEY, item->key.len) : 0;

    size += item->value.len ? mr_pb_len_size(KV_VALUE, item->value.len) : 0;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        size += numbers[i] ? 1 + mr_pb_varint_size((uint64_t)numbers[i]) : 0;
    }
    return size;
}

void kv_wire_put_item(struct mr_buf *b, uint32_t number, const struct mr_kv_item *item)
{
    mr_pb_put_len(b, number, item_size(item));
    mr_pb_put_str(b, KV_KEY, item->key);
    mr_pb_put_i64(b, KV_CREATE_REVISION, item->create_revision);
    mr_pb_put_i64(b, KV_MOD_REVISION, item->mod_revision);
    mr_pb_put_i64(b, KV_VERSION, item->version);
    mr_pb_put_str(b, KV_VALUE, mr_str_n((const char *)item->value.ptr, item->value.len));
    mr_pb_put_i64(b, KV_LEASE, item->lease);
}

void kv_wire_put_event(struct mr_buf *b, uint32_t number, const struct mr_kv_change *change)
{
    size_t type = change->is_delete ? 2 : 0;

    mr_pb_put_len(b, number, type + mr_pb_len_size(EVENT_KV, item_size(&change->item)));
    if (change->is_delete) {
        mr_pb_set_u64(b, EVENT_TYPE, EVENT_TYPE_DELETE);
    }
    kv_wire_put_item(b, EVENT_KV, &change->item);
}

static void put_result(struct mr_buf *b, enum mr_kv_op_kind kind, const struct mr_kv_result *r)
{
    if (kind == MR_KV_GET) {
        for (size_t i = 0; i < r->count; i++) {
            kv_wire_put_item(b, RANGED_KVS, &r->items[i]);
        }
        mr_pb_put_bool(b, RANGED_MORE, r->more);
        mr_pb_put_u64(b, RANGED_COUNT, r->count);
    } else if (kind == MR_KV_DELETE) {
        mr_pb_put_u64(b, DELETED_COUNT, r->count);
    }
}

static void put_txned(struct mr_buf *b, const struct mr_kv_txn *txn,
                      const struct mr_kv_reply *reply)
{
    static const uint32_t kinds[] = {
        [MR_KV_GET] = OP_RANGE, [MR_KV_PUT] = OP_PUT, [MR_KV_DELETE] = OP_DELETE};
    const struct mr_kv_op *ops = reply->succeeded ? txn->then : txn->otherwise;

    mr_pb_put_bool(b, TXNED_SUCCEEDED, reply->succeeded);
    for (size_t i = 0; i < reply->result_count; i++) {
        size_t outer = mr_pb_begin(b, TXNED_RESPONSES), inner = mr_pb_begin(b, kinds[ops[i].kind]);
        put_result(b, ops[i].kind, &reply->results[i]);
        mr_pb_end(b, inner);
        mr_pb_end(b, outer);
    }
}

void kv_wire_put_reply(struct mr_buf *b, const struct kv_wire_header *header,
                       const struct kv_request *asked, const struct mr_kv_reply *reply)
{
    put_header(b, header);
    switch (asked->ask) {
    case KV_ASK_RANGE: put_result(b, MR_KV_GET, &reply->results[0]); break;
    case KV_ASK_PUT: break;
    case KV_ASK_DELETE: put_result(b, MR_KV_DELETE, &reply->results[0]); break;
    case KV_ASK_TXN: put_txned(b, &asked->txn, reply); break;
    case KV_ASK_GRANT:
    case KV_ASK_KEEP:
        mr_pb_put_i64(b, LEASED_ID, reply->lease);
        mr_pb_put_i64(b, LEASED_TTL, reply->ttl_s);
        break;
    case KV_ASK_REVOKE: break;
    }
}

void kv_wire_put_watched(struct mr_buf *b, const struct kv_wire_watched *watched)
{
    put_header(b, &watched->header);
    mr_pb_put_bool(b, WATCHED_CREATED, watched->is_created);
    mr_pb_put_bool(b, WATCHED_CANCELED, watched->is_canceled);
    mr_pb_put_i64(b, WATCHED_COMPACT_REVISION, watched->compact_revision);
    for (size_t i = 0; i < watched->count; i++) {
        kv_wire_put_event(b, WATCHED_EVENTS, &watched->changes[i]);
    }
}

void kv_wire_put_status(struct mr_buf *b, const struct kv_wire_header *header)
{
    put_header(b, header);
    mr_pb_put_str(b, STATUS_VERSION, MR_STR("3.4"));
    mr_pb_put_u64(b, STATUS_LEADER, 1);
}
