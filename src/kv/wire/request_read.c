#include "request_read.h"

#include "codec/pb.h"
#include "fields.h"
#include "kv/state/check.h"

static int bad(struct mr_err *err, const char *what)
{
    return MR_FAIL(err, MR_E_INVALID, "the request is not valid: %s", what);
}

static int unsupported(struct mr_err *err, const char *what)
{
    return MR_FAIL(err, MR_E_UNSUPPORTED, "the registry of a file does not support %s", what);
}

static int next(mr_bytes *io, struct mr_pb_field *f, struct mr_err *err)
{
    int more = mr_pb_next(io, f);
    return more < 0 ? bad(err, "it is no protobuf message") : more;
}

static bool is_int(const struct mr_pb_field *f, uint32_t number)
{
    return f->number == number && f->wire == MR_PB_VARINT;
}

static bool is_bytes(const struct mr_pb_field *f, uint32_t number)
{
    return f->number == number && f->wire == MR_PB_LEN;
}

static mr_str text(const struct mr_pb_field *f)
{
    return mr_str_n((const char *)f->bytes.ptr, f->bytes.len);
}

/* ---- ranges ---- */

struct extent {
    mr_str key;
    mr_str end; /* empty: the key alone */
};

static const mr_str last_end = MR_STR_INIT("\0"); /* of a range that goes to the end of all keys */

/** Whether `end` is what follows all keys that begin with `prefix`. */
static bool is_prefix_end(mr_str prefix, mr_str end)
{
    while (prefix.len && (uint8_t)prefix.ptr[prefix.len - 1] == 0xff) {
        prefix.len--;
    }
    if (!prefix.len) {
        return mr_str_eq(end, last_end);
    }
    size_t last = prefix.len - 1;
    return end.len == prefix.len && memcmp(end.ptr, prefix.ptr, last) == 0 &&
           (uint8_t)end.ptr[last] == (uint8_t)prefix.ptr[last] + 1;
}

/** The keys from `key` on that are before `end`, which is what follows the keys that begin with a prefix. The prefix
 *  is `end` with a last byte less by one; as that is no text of the message, it is cut from `key`, which begins with
 *  it. */
static int read_after(struct extent e, mr_str *out_prefix, mr_str *out_after, struct mr_err *err)
{
    mr_str prefix = mr_str_sub(e.key, 0, mr_str_eq(e.end, last_end) ? 0 : e.end.len);

    if (!is_prefix_end(prefix, e.end) || e.key.len < 2 || e.key.ptr[e.key.len - 1] != '\0') {
        return unsupported(err,
                           "ranges other than keys, prefixes and what follows a key in a prefix");
    }
    *out_prefix = prefix;
    *out_after = mr_str_sub(e.key, 0, e.key.len - 1);
    return MR_OK;
}

static int read_extent(struct extent e, mr_str *out_key, bool *out_is_prefix, mr_str *out_after,
                       struct mr_err *err)
{
    *out_is_prefix = e.end.len > 0;
    *out_after = MR_STR("");
    *out_key = e.key;
    if (!e.end.len) {
        return MR_OK;
    }
    if (mr_str_eq(e.key, last_end) && mr_str_eq(e.end, last_end)) {
        *out_key = MR_STR(""); /* all keys */
        return MR_OK;
    }
    return is_prefix_end(e.key, e.end) ? MR_OK : read_after(e, out_key, out_after, err);
}

static int read_range(mr_bytes m, struct mr_kv_range *out, struct mr_err *err)
{
    struct mr_kv_range range = {0};
    struct extent extent = {0};
    struct mr_pb_field f;
    uint64_t limit = 0;
    int rc;

    while ((rc = next(&m, &f, err)) == 1) {
        if (is_bytes(&f, RANGE_KEY)) {
            extent.key = text(&f);
        } else if (is_bytes(&f, RANGE_END)) {
            extent.end = text(&f);
        } else if (is_int(&f, RANGE_LIMIT)) {
            limit = f.value;
        } else if (is_int(&f, RANGE_SERIALIZABLE)) {
            range.read = f.value ? MR_KV_LOCAL : MR_KV_LINEARIZABLE;
        } else if (is_int(&f, RANGE_KEYS_ONLY)) {
            range.keys_only = f.value;
        } else {
            return unsupported(err, "ranges of the past, sorted, counted or filtered");
        }
    }
    if (rc < 0 || (rc = read_extent(extent, &range.key, &range.is_prefix, &range.after, err)) < 0) {
        return rc;
    }
    range.limit = (uint32_t)(limit && limit < MR_KV_PAGE_MAX ? limit : MR_KV_PAGE_MAX);
    *out = range;
    return kv_check_range(out, err);
}

/* ---- changes ---- */

static int read_put(mr_bytes m, struct mr_kv_op *out, struct mr_err *err)
{
    struct mr_pb_field f;
    int rc;

    *out = (struct mr_kv_op){.kind = MR_KV_PUT};
    while ((rc = next(&m, &f, err)) == 1) {
        if (is_bytes(&f, PUT_KEY)) {
            out->key = text(&f);
        } else if (is_bytes(&f, PUT_VALUE)) {
            out->value = f.bytes;
        } else if (is_int(&f, PUT_LEASE)) {
            out->lease = (int64_t)f.value;
        } else {
            return unsupported(err, "puts that keep or return something of the key before");
        }
    }
    return rc;
}

static int read_delete(mr_bytes m, struct mr_kv_op *out, struct mr_err *err)
{
    struct extent extent = {0};
    struct mr_pb_field f;
    mr_str after;
    int rc;

    *out = (struct mr_kv_op){.kind = MR_KV_DELETE};
    while ((rc = next(&m, &f, err)) == 1) {
        if (is_bytes(&f, RANGE_KEY)) {
            extent.key = text(&f);
        } else if (is_bytes(&f, RANGE_END)) {
            extent.end = text(&f);
        } else {
            return unsupported(err, "deletes that return what they delete");
        }
    }
    if (rc < 0 || (rc = read_extent(extent, &out->key, &out->is_prefix, &after, err)) < 0) {
        return rc;
    }
    return after.len ? unsupported(err, "deletes of a part of a prefix") : MR_OK;
}

static int read_get(mr_bytes m, struct mr_kv_op *out, struct mr_err *err)
{
    struct mr_kv_range range;
    int rc = read_range(m, &range, err);

    if (rc == MR_OK && (range.after.len || range.keys_only)) {
        rc = unsupported(err, "pages in a transaction");
    }
    if (rc == MR_OK) {
        *out = (struct mr_kv_op){.kind = MR_KV_GET, .key = range.key, .is_prefix = range.is_prefix};
    }
    return rc;
}

static int read_op(mr_bytes m, struct mr_kv_op *out, struct mr_err *err)
{
    struct mr_pb_field f;

    if (mr_pb_next(&m, &f) != 1 || f.wire != MR_PB_LEN) {
        return bad(err, "an operation of a transaction is empty");
    }
    switch (f.number) {
    case OP_RANGE: return read_get(f.bytes, out, err);
    case OP_PUT: return read_put(f.bytes, out, err);
    case OP_DELETE: return read_delete(f.bytes, out, err);
    default: return unsupported(err, "transactions in transactions");
    }
}

static int read_compare(mr_bytes m, struct mr_kv_compare *out, struct mr_err *err)
{
    uint64_t result = 0, target = 0;
    struct mr_pb_field f;
    int rc;

    *out = (struct mr_kv_compare){0};
    while ((rc = next(&m, &f, err)) == 1) {
        if (is_int(&f, COMPARE_RESULT)) {
            result = f.value;
        } else if (is_int(&f, COMPARE_TARGET)) {
            target = f.value;
        } else if (is_bytes(&f, COMPARE_KEY)) {
            out->key = text(&f);
        } else if (is_int(&f, COMPARE_MOD_REVISION)) {
            out->mod_revision = (int64_t)f.value;
        } else {
            result = 1;
        }
    }
    if (rc == MR_OK && (result != 0 || target != COMPARE_TARGET_MOD)) {
        rc = unsupported(err, "compares other than of a revision that is to be equal");
    }
    return rc;
}

struct counts {
    size_t of[4]; /* by field */
};

static int count_parts(mr_bytes m, struct counts *out, struct mr_err *err)
{
    struct mr_pb_field f;
    int rc;

    *out = (struct counts){0};
    while ((rc = next(&m, &f, err)) == 1) {
        if (f.number > TXN_FAILURE || f.wire != MR_PB_LEN) {
            return bad(err, "a part of a transaction is not known");
        }
        if (++out->of[f.number] > MR_KV_OPS_MAX) {
            return bad(err, "a transaction has more than 128 compares or operations");
        }
    }
    return rc;
}

static int read_txn(mr_bytes m, struct mr_arena *arena, struct mr_kv_txn *out, struct mr_err *err)
{
    struct counts n;
    int rc = count_parts(m, &n, err);
    if (rc < 0) {
        return rc;
    }
    struct mr_kv_compare *compares =
        MR_ARENA_ARRAY(arena, struct mr_kv_compare, n.of[TXN_COMPARE] + 1);
    struct mr_kv_op *then = MR_ARENA_ARRAY(arena, struct mr_kv_op, n.of[TXN_SUCCESS] + 1);
    struct mr_kv_op *otherwise = MR_ARENA_ARRAY(arena, struct mr_kv_op, n.of[TXN_FAILURE] + 1);
    struct mr_pb_field f;

    if (!compares || !then || !otherwise) {
        return MR_FAIL(err, MR_E_NOMEM, "no memory for a transaction");
    }
    *out = (struct mr_kv_txn){compares,          n.of[TXN_COMPARE], then,
                              n.of[TXN_SUCCESS], otherwise,         n.of[TXN_FAILURE]};
    while (rc == MR_OK && mr_pb_next(&m, &f) == 1) {
        rc = f.number == TXN_COMPARE   ? read_compare(f.bytes, compares++, err)
             : f.number == TXN_SUCCESS ? read_op(f.bytes, then++, err)
                                       : read_op(f.bytes, otherwise++, err);
    }
    return rc;
}

/** Up to two numbers, fields 1 and 2. */
static int read_numbers(mr_bytes m, int64_t *first, int64_t *second, struct mr_err *err)
{
    struct mr_pb_field f;
    int rc;

    while ((rc = next(&m, &f, err)) == 1) {
        if (is_int(&f, 1)) {
            *first = (int64_t)f.value;
        } else if (is_int(&f, 2)) {
            *second = (int64_t)f.value;
        }
    }
    return rc;
}

/* ---- all ---- */

static int read_by_kind(mr_bytes m, struct mr_arena *arena, struct kv_request *out,
                        struct mr_err *err)
{
    int64_t unused;

    switch (out->ask) {
    case KV_ASK_RANGE: return read_range(m, &out->range, err);
    case KV_ASK_PUT: return read_put(m, &out->op, err);
    case KV_ASK_DELETE: return read_delete(m, &out->op, err);
    case KV_ASK_TXN: return read_txn(m, arena, &out->txn, err);
    case KV_ASK_GRANT: return read_numbers(m, &out->ttl_s, &out->lease, err);
    case KV_ASK_KEEP:
    case KV_ASK_REVOKE: return read_numbers(m, &out->lease, &unused, err);
    }
    return bad(err, "its kind is not known");
}

static int check(const struct kv_request *r, struct mr_err *err)
{
    struct mr_kv_txn one = {.then = &r->op, .then_count = 1};

    switch (r->ask) {
    case KV_ASK_PUT:
    case KV_ASK_DELETE: return kv_check_txn(&one, err);
    case KV_ASK_TXN: return kv_check_txn(&r->txn, err);
    case KV_ASK_GRANT: return kv_check_ttl(r->ttl_s, err);
    default: return MR_OK;
    }
}

int kv_wire_read_request(mr_bytes message, enum kv_ask ask, struct mr_arena *arena,
                         struct kv_request *out, struct mr_err *err)
{
    struct kv_request request = {.ask = ask};
    int rc = read_by_kind(message, arena, &request, err);

    if (rc == MR_OK && (rc = check(&request, err)) == MR_OK) {
        *out = request;
    }
    return rc;
}

static int read_create(mr_bytes m, struct kv_wire_watch_request *out, struct mr_err *err)
{
    struct extent extent = {0};
    struct mr_pb_field f;
    bool is_prefix;
    mr_str after;
    int rc;

    *out = (struct kv_wire_watch_request){.kind = KV_WATCH_CREATE};
    while ((rc = next(&m, &f, err)) == 1) {
        if (is_bytes(&f, RANGE_KEY)) {
            extent.key = text(&f);
        } else if (is_bytes(&f, RANGE_END)) {
            extent.end = text(&f);
        } else if (is_int(&f, CREATE_START)) {
            out->from = (int64_t)f.value;
        }
    }
    if (rc < 0 || (rc = read_extent(extent, &out->prefix, &is_prefix, &after, err)) < 0) {
        return rc;
    }
    if (!is_prefix || after.len || out->from < 0 || out->prefix.len > MR_KV_KEY_MAX) {
        return unsupported(err, "watches other than of a prefix");
    }
    return MR_OK;
}

int kv_wire_read_watch(mr_bytes message, struct kv_wire_watch_request *out, struct mr_err *err)
{
    struct mr_pb_field f;
    int rc = next(&message, &f, err);

    if (rc == 1 && is_bytes(&f, WATCH_CREATE)) {
        return read_create(f.bytes, out, err);
    }
    *out = (struct kv_wire_watch_request){.kind = KV_WATCH_OTHER};
    return rc < 0 ? rc : MR_OK;
}

int kv_wire_read_compact(mr_bytes message, int64_t *out, struct mr_err *err)
{
    int64_t revision = 0, unused;
    int rc = read_numbers(message, &revision, &unused, err);
    if (rc == MR_OK) {
        *out = revision;
    }
    return rc;
}
