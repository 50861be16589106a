/* Unknown fields are passed over, as protobuf has it; known ones of another wire type make the message invalid. */
#include "reply_read.h"

#include "codec/pb.h"
#include "fields.h"

static int bad(struct mr_err *err, const char *what)
{
    return MR_FAIL(err, MR_E_INVALID, "etcd's answer is not valid: %s", what);
}

static int no_room(struct mr_err *err)
{
    return MR_FAIL(err, MR_E_NOMEM, "no memory for an answer of etcd");
}

/** The next field: 1, 0 at the end, MR_E_INVALID. */
static int next(mr_bytes *io, struct mr_pb_field *f, struct mr_err *err)
{
    int more = mr_pb_next(io, f);
    return more < 0 ? bad(err, "it is no protobuf message") : more;
}

/** False, with *io_rc set, if a field that is known has another wire type. */
static bool is_field(const struct mr_pb_field *f, uint32_t number, enum mr_pb_wire wire, int *io_rc,
                     struct mr_err *err)
{
    if (f->number != number) {
        return false;
    }
    if (f->wire != wire) {
        *io_rc = bad(err, "a field has another type");
        return false;
    }
    return true;
}
#define IS_INT(f, number)   is_field((f), (number), MR_PB_VARINT, &rc, err)
#define IS_BYTES(f, number) is_field((f), (number), MR_PB_LEN, &rc, err)

/** How many LEN fields of that number there are. */
static size_t count_fields(mr_bytes message, uint32_t number)
{
    struct mr_pb_field f;
    size_t count = 0;
    while (mr_pb_next(&message, &f) == 1) {
        count += f.number == number && f.wire == MR_PB_LEN;
    }
    return count;
}

static int read_header(mr_bytes m, struct kv_wire_header *out, struct mr_err *err)
{
    struct mr_pb_field f;
    int rc;

    while ((rc = next(&m, &f, err)) == 1) {
        if (IS_INT(&f, HEADER_CLUSTER)) {
            out->cluster = f.value;
        } else if (IS_INT(&f, HEADER_REVISION)) {
            out->revision = (int64_t)f.value;
        } else if (IS_INT(&f, HEADER_TERM)) {
            out->term = f.value;
        }
        if (rc < 0) {
            return rc;
        }
    }
    return rc;
}

static int read_item(mr_bytes m, mr_str root, struct mr_kv_item *out, struct mr_err *err)
{
    struct mr_kv_item item = {0};
    struct mr_pb_field f;
    int rc;

    while ((rc = next(&m, &f, err)) == 1) {
        if (IS_BYTES(&f, KV_KEY)) {
            item.key = (mr_str){(const char *)f.bytes.ptr, f.bytes.len};
        } else if (IS_BYTES(&f, KV_VALUE)) {
            item.value = f.bytes;
        } else if (IS_INT(&f, KV_CREATE_REVISION)) {
            item.create_revision = (int64_t)f.value;
        } else if (IS_INT(&f, KV_MOD_REVISION)) {
            item.mod_revision = (int64_t)f.value;
        } else if (IS_INT(&f, KV_VERSION)) {
            item.version = (int64_t)f.value;
        } else if (IS_INT(&f, KV_LEASE)) {
            item.lease = (int64_t)f.value;
        }
        if (rc < 0) {
            return rc;
        }
    }
    if (rc == MR_OK && (item.key.len <= root.len || !mr_str_starts(item.key, root))) {
        return bad(err, "a key is not below the root");
    }
    item.key = mr_str_sub(item.key, root.len, item.key.len);
    *out = item;
    return rc;
}

/** What a result of an operation is read for. */
struct reading {
    mr_str root;
    struct mr_arena *arena;
    struct kv_wire_header *header; /* NULL: not read */
    size_t max_items;
};

static int read_header_field(const struct reading *r, const struct mr_pb_field *f,
                             struct mr_err *err)
{
    return r->header ? read_header(f->bytes, r->header, err) : MR_OK;
}

static int read_ranged(mr_bytes m, const struct reading *r, struct mr_kv_result *out,
                       struct mr_err *err)
{
    size_t count = count_fields(m, RANGED_KVS), at = 0;
    struct mr_kv_item *items;
    struct mr_pb_field f;
    bool more = false;
    int rc;

    if (count > r->max_items) {
        return bad(err, "it has more keys than were asked for");
    }
    if (!(items = MR_ARENA_ARRAY(r->arena, struct mr_kv_item, count + 1))) {
        return no_room(err);
    }
    while ((rc = next(&m, &f, err)) == 1) {
        if (IS_BYTES(&f, RESPONSE_HEADER)) {
            rc = read_header_field(r, &f, err);
        } else if (IS_BYTES(&f, RANGED_KVS)) {
            rc = read_item(f.bytes, r->root, &items[at++], err);
        } else if (IS_INT(&f, RANGED_MORE)) {
            more = f.value != 0;
        }
        if (rc < 0) {
            return rc;
        }
    }
    *out = (struct mr_kv_result){.items = items, .count = count, .more = more};
    return rc;
}

/** PutResponse and DeleteRangeResponse. */
static int read_changed(mr_bytes m, const struct reading *r, struct mr_kv_result *out,
                        struct mr_err *err)
{
    struct mr_pb_field f;
    int rc;

    *out = (struct mr_kv_result){0};
    while ((rc = next(&m, &f, err)) == 1) {
        if (IS_BYTES(&f, RESPONSE_HEADER)) {
            rc = read_header_field(r, &f, err);
        } else if (f.number == DELETED_COUNT && f.wire == MR_PB_VARINT) {
            out->count = f.value; /* of a put, the field is another one, which was not asked for */
        }
        if (rc < 0) {
            return rc;
        }
    }
    return rc;
}

static int read_result(mr_bytes m, const struct reading *r, enum mr_kv_op_kind kind,
                       struct mr_kv_result *out, struct mr_err *err)
{
    return kind == MR_KV_GET ? read_ranged(m, r, out, err) : read_changed(m, r, out, err);
}

/** A ResponseOp, which has to be that of the operation. */
static int read_op(mr_bytes m, const struct reading *r, const struct mr_kv_op *op,
                   struct mr_kv_result *out, struct mr_err *err)
{
    static const uint32_t kinds[] = {
        [MR_KV_GET] = OP_RANGE, [MR_KV_PUT] = OP_PUT, [MR_KV_DELETE] = OP_DELETE};
    struct reading inner = *r;
    struct mr_pb_field f;

    inner.header = NULL;
    inner.max_items = op->is_prefix ? MR_KV_PAGE_MAX : 1;
    if (mr_pb_next(&m, &f) != 1 || f.wire != MR_PB_LEN || f.number != kinds[op->kind]) {
        return bad(err, "a result is not that of its operation");
    }
    return read_result(f.bytes, &inner, op->kind, out, err);
}

static int read_txned_head(mr_bytes m, const struct reading *r, struct mr_kv_reply *out,
                           struct mr_err *err)
{
    struct mr_pb_field f;
    int rc;

    while ((rc = next(&m, &f, err)) == 1) {
        if (IS_BYTES(&f, RESPONSE_HEADER)) {
            rc = read_header_field(r, &f, err);
        } else if (IS_INT(&f, TXNED_SUCCEEDED)) {
            out->succeeded = f.value != 0;
        }
        if (rc < 0) {
            return rc;
        }
    }
    return rc;
}

static int read_txned(mr_bytes m, const struct reading *r, const struct mr_kv_txn *txn,
                      struct mr_kv_reply *out, struct mr_err *err)
{
    size_t count = count_fields(m, TXNED_RESPONSES), at = 0;
    int rc = read_txned_head(m, r, out, err);
    const struct mr_kv_op *ops = out->succeeded ? txn->then : txn->otherwise;
    struct mr_kv_result *results;
    struct mr_pb_field f;

    if (rc < 0) {
        return rc;
    }
    if (count != (out->succeeded ? txn->then_count : txn->otherwise_count)) {
        return bad(err, "it has not a result for each operation");
    }
    if (!(results = MR_ARENA_ARRAY(r->arena, struct mr_kv_result, count + 1))) {
        return no_room(err);
    }
    while (rc == MR_OK && mr_pb_next(&m, &f) == 1) {
        if (f.number == TXNED_RESPONSES && f.wire == MR_PB_LEN) {
            rc = read_op(f.bytes, r, &ops[at], &results[at], err);
            at++;
        }
    }
    out->results = results;
    out->result_count = count;
    return rc;
}

static int read_leased(mr_bytes m, const struct reading *r, struct mr_kv_reply *out,
                       struct mr_err *err)
{
    struct mr_pb_field f;
    int rc;

    while ((rc = next(&m, &f, err)) == 1) {
        if (IS_BYTES(&f, RESPONSE_HEADER)) {
            rc = read_header_field(r, &f, err);
        } else if (IS_INT(&f, LEASED_ID)) {
            out->lease = (int64_t)f.value;
        } else if (IS_INT(&f, LEASED_TTL)) {
            out->ttl_s = (int64_t)f.value;
        }
        if (rc < 0) {
            return rc;
        }
    }
    return rc;
}

/** An answer that is one result. */
static int read_one(mr_bytes m, const struct reading *r, enum mr_kv_op_kind kind,
                    struct mr_kv_reply *out, struct mr_err *err)
{
    struct mr_kv_result *result = MR_ARENA_NEW(r->arena, struct mr_kv_result);
    if (!result) {
        return no_room(err);
    }
    out->results = result;
    out->result_count = 1;
    return read_result(m, r, kind, result, err);
}

int kv_wire_reply(mr_bytes message, mr_str root, const struct kv_request *asked,
                  struct mr_arena *arena, struct kv_wire_header *out_header,
                  struct mr_kv_reply *out, struct mr_err *err)
{
    struct kv_wire_header header = {0};
    struct mr_kv_reply reply = {0};
    struct reading r = {root, arena, &header, asked->range.limit};
    int rc = MR_OK;

    switch (asked->ask) {
    case KV_ASK_RANGE: rc = read_one(message, &r, MR_KV_GET, &reply, err); break;
    case KV_ASK_PUT: rc = read_one(message, &r, MR_KV_PUT, &reply, err); break;
    case KV_ASK_DELETE: rc = read_one(message, &r, MR_KV_DELETE, &reply, err); break;
    case KV_ASK_TXN: rc = read_txned(message, &r, &asked->txn, &reply, err); break;
    case KV_ASK_GRANT:
    case KV_ASK_KEEP: rc = read_leased(message, &r, &reply, err); break;
    case KV_ASK_REVOKE:
        rc = read_leased(message, &r, &reply, err);
        reply.lease = asked->lease;
        break;
    }
    if (rc < 0) {
        return rc;
    }
    if (asked->ask == KV_ASK_KEEP && reply.ttl_s <= 0) {
        return MR_FAIL(err, MR_E_NOT_FOUND, "there is no lease %llx",
                       (unsigned long long)asked->lease);
    }
    reply.revision = header.revision;
    *out_header = header;
    *out = reply;
    return MR_OK;
}

/* ---- watches ---- */

static int read_event(mr_bytes m, mr_str root, struct mr_kv_change *out, struct mr_err *err)
{
    bool has_item = false;
    struct mr_pb_field f;
    int rc;

    while ((rc = next(&m, &f, err)) == 1) {
        if (IS_INT(&f, EVENT_TYPE)) {
            out->is_delete = f.value == EVENT_TYPE_DELETE;
        } else if (IS_BYTES(&f, EVENT_KV)) {
            has_item = true;
            rc = read_item(f.bytes, root, &out->item, err);
        }
        if (rc < 0) {
            return rc;
        }
    }
    return rc < 0 || has_item ? rc : bad(err, "a change has no key");
}

static int read_events(mr_bytes m, mr_str root, struct mr_arena *arena, struct kv_wire_watched *out,
                       struct mr_err *err)
{
    size_t count = count_fields(m, WATCHED_EVENTS), at = 0;
    struct mr_kv_change *changes = MR_ARENA_ARRAY(arena, struct mr_kv_change, count + 1);
    struct mr_pb_field f;
    int rc = changes ? MR_OK : no_room(err);

    while (rc == MR_OK && mr_pb_next(&m, &f) == 1) {
        if (f.number == WATCHED_EVENTS && f.wire == MR_PB_LEN) {
            rc = read_event(f.bytes, root, &changes[at], err);
            if (at > 0 && changes[at].item.mod_revision < changes[at - 1].item.mod_revision) {
                rc = bad(err, "changes are not in the order of their revisions");
            }
            at++;
        }
    }
    out->changes = changes;
    out->count = count;
    return rc;
}

static int read_watched_field(const struct mr_pb_field *f, struct kv_wire_watched *out,
                              struct mr_err *err)
{
    int rc = MR_OK;

    if (IS_BYTES(f, RESPONSE_HEADER)) {
        rc = read_header(f->bytes, &out->header, err);
    } else if (IS_INT(f, WATCHED_CREATED)) {
        out->is_created = f->value != 0;
    } else if (IS_INT(f, WATCHED_CANCELED)) {
        out->is_canceled = f->value != 0;
    } else if (IS_INT(f, WATCHED_COMPACT_REVISION)) {
        out->compact_revision = (int64_t)f->value;
    } else if (IS_BYTES(f, WATCHED_CANCEL_REASON)) {
        out->reason = mr_str_n((const char *)f->bytes.ptr, f->bytes.len);
    }
    return rc;
}

int kv_wire_watched(mr_bytes message, mr_str root, struct mr_arena *arena,
                    struct kv_wire_watched *out, struct mr_err *err)
{
    struct kv_wire_watched w = {0};
    struct mr_pb_field f;
    mr_bytes m = message;
    int rc;

    while ((rc = next(&m, &f, err)) == 1) {
        if ((rc = read_watched_field(&f, &w, err)) < 0) {
            return rc;
        }
    }
    if (rc == MR_OK && (rc = read_events(message, root, arena, &w, err)) == MR_OK) {
        *out = w;
    }
    return rc;
}

/* ---- others ---- */

int kv_wire_status(mr_bytes message, struct kv_wire_status *out, struct mr_err *err)
{
    struct kv_wire_status status = {0};
    struct mr_pb_field f;
    int rc;

    while ((rc = next(&message, &f, err)) == 1) {
        if (IS_BYTES(&f, RESPONSE_HEADER)) {
            rc = read_header(f.bytes, &status.header, err);
        } else if (IS_INT(&f, STATUS_LEADER)) {
            status.leader = f.value;
        }
        if (rc < 0) {
            return rc;
        }
    }
    if (rc == MR_OK) {
        *out = status;
    }
    return rc;
}

int kv_wire_token(mr_bytes message, mr_str *out, struct mr_err *err)
{
    struct mr_pb_field f;
    mr_str token = {0};
    int rc;

    while ((rc = next(&message, &f, err)) == 1) {
        if (IS_BYTES(&f, AUTHED_TOKEN)) {
            token = mr_str_n((const char *)f.bytes.ptr, f.bytes.len);
        }
        if (rc < 0) {
            return rc;
        }
    }
    if (rc == MR_OK && (token.len == 0 || token.len > 8192)) {
        return bad(err, "its token has no usable length");
    }
    if (rc == MR_OK) {
        *out = token;
    }
    return rc;
}
