#include "log.h"

#include "base/crc32c.h"
#include "codec/pb.h"
#include "kv/state/check.h"
#include "kv/wire/fields.h"
#include "kv/wire/reply_write.h"

#define FRAME_BYTES  8
#define REVISION_MAX (INT64_MAX / 2)

enum { ENTRY_REVISION = 1, ENTRY_EVENT = 2, ENTRY_GRANTED = 3, ENTRY_ENDED = 4, ENTRY_OLD = 5 };

static const char magic[8] = {'M', 'R', 'K', 'V', 'L', 'O', 'G', '1'};

static void store32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) {
        p[i] = (uint8_t)(v >> (8 * i));
    }
}

static uint32_t load32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

void kv_log_put_header(struct mr_buf *b, uint64_t id)
{
    uint8_t header[KV_LOG_HEADER_BYTES] = {0};

    memcpy(header, magic, sizeof magic);
    store32(header + 8, (uint32_t)id);
    store32(header + 12, (uint32_t)(id >> 32));
    store32(header + 20, mr_crc32c(0, header, 20));
    mr_buf_append(b, header, sizeof header);
}

void kv_log_put(struct mr_buf *b, const struct kv_log_entry *entry)
{
    size_t at = b->len;
    uint8_t frame[FRAME_BYTES] = {0};

    mr_buf_append(b, frame, sizeof frame);
    mr_pb_put_i64(b, ENTRY_REVISION, entry->revision);
    mr_pb_put_bool(b, ENTRY_OLD, entry->is_old);
    if (entry->granted) {
        size_t mark = mr_pb_begin(b, ENTRY_GRANTED);
        mr_pb_put_i64(b, 1, entry->granted->id);
        mr_pb_put_i64(b, 2, entry->granted->ttl_s);
        mr_pb_end(b, mark);
    }
    for (size_t i = 0; i < entry->record_count; i++) {
        const struct kv_record *r = entry->records[i];
        struct mr_kv_change change = {r->is_delete, kv_record_item(r)};
        kv_wire_put_event(b, ENTRY_EVENT, &change);
    }
    mr_pb_put_i64(b, ENTRY_ENDED, entry->ended);
    if (b->failed) {
        return;
    }
    uint8_t *p = (uint8_t *)b->ptr + at;
    store32(p, (uint32_t)(b->len - at - FRAME_BYTES));
    uint32_t crc = mr_crc32c(mr_crc32c(0, p, 4), p + FRAME_BYTES, b->len - at - FRAME_BYTES);
    store32(p + 4, crc);
}

/* ---- reading ---- */

static int bad(struct mr_err *err, const char *what)
{
    return MR_FAIL(err, MR_E_INVALID, "the file of the registry is not valid: %s", what);
}

static int read_header(mr_bytes file, uint64_t *out_id, struct mr_err *err)
{
    if (file.len < KV_LOG_HEADER_BYTES || memcmp(file.ptr, magic, sizeof magic) != 0) {
        return bad(err, "it does not begin as one of this version");
    }
    if (load32(file.ptr + 20) != mr_crc32c(0, file.ptr, 20) || load32(file.ptr + 16) != 0) {
        return bad(err, "its header is damaged");
    }
    *out_id = load32(file.ptr + 8) | (uint64_t)load32(file.ptr + 12) << 32;
    return MR_OK;
}

/** Cuts the next entry off; false: there is no whole one. */
static bool next_entry(mr_bytes *io, mr_bytes *out)
{
    if (io->len < FRAME_BYTES) {
        return false;
    }
    uint32_t len = load32(io->ptr);
    if (len > io->len - FRAME_BYTES) {
        return false;
    }
    uint32_t crc = mr_crc32c(mr_crc32c(0, io->ptr, 4), io->ptr + FRAME_BYTES, len);
    if (crc != load32(io->ptr + 4)) {
        return false;
    }
    *out = (mr_bytes){io->ptr + FRAME_BYTES, len};
    io->ptr += FRAME_BYTES + len;
    io->len -= FRAME_BYTES + len;
    return true;
}

static bool set_int(const struct mr_pb_field *f, uint32_t number, int64_t *out)
{
    bool is_it = f->number == number && f->wire == MR_PB_VARINT;
    if (is_it) {
        *out = (int64_t)f->value;
    }
    return is_it;
}

static int read_item(mr_bytes m, struct mr_kv_item *out, struct mr_err *err)
{
    struct mr_pb_field f;
    int more;

    while ((more = mr_pb_next(&m, &f)) == 1) {
        if (f.number == KV_KEY && f.wire == MR_PB_LEN) {
            out->key = mr_str_n((const char *)f.bytes.ptr, f.bytes.len);
        } else if (f.number == KV_VALUE && f.wire == MR_PB_LEN) {
            out->value = f.bytes;
        } else if (!set_int(&f, KV_CREATE_REVISION, &out->create_revision) &&
                   !set_int(&f, KV_MOD_REVISION, &out->mod_revision) &&
                   !set_int(&f, KV_VERSION, &out->version) && !set_int(&f, KV_LEASE, &out->lease)) {
            return bad(err, "a key has an unknown field");
        }
    }
    if (more < 0 || !out->key.len || out->key.len > MR_KV_KEY_MAX ||
        out->value.len > MR_KV_VALUE_MAX) {
        return bad(err, "a key or a value is none");
    }
    return MR_OK;
}

static int read_event(mr_bytes m, bool *out_is_delete, struct mr_kv_item *out, struct mr_err *err)
{
    struct mr_pb_field f;
    bool has_item = false;
    int64_t type = 0;
    int more, rc = MR_OK;

    *out = (struct mr_kv_item){0};
    while (rc == MR_OK && (more = mr_pb_next(&m, &f)) != 0) {
        if (more < 0) {
            rc = bad(err, "a change is no message");
        } else if (f.number == EVENT_KV && f.wire == MR_PB_LEN && !has_item) {
            has_item = true;
            rc = read_item(f.bytes, out, err);
        } else if (!set_int(&f, EVENT_TYPE, &type)) {
            rc = bad(err, "a change has an unknown field");
        }
    }
    if (rc == MR_OK && (!has_item || type < 0 || type > EVENT_TYPE_DELETE)) {
        rc = bad(err, "a change has no key, or another type");
    }
    *out_is_delete = type == EVENT_TYPE_DELETE;
    return rc;
}

/** What the entry that is being read needs. */
struct replay {
    struct kv_state *state;
    int64_t now_ns;
    int64_t revision;
    bool is_old;
};

static int replay_event(struct replay *r, mr_bytes m, struct mr_err *err)
{
    struct mr_kv_item item;
    bool is_delete;
    int rc = read_event(m, &is_delete, &item, err);

    if (rc < 0) {
        return rc;
    }
    if (r->is_old ? item.mod_revision > r->revision || is_delete
                  : item.mod_revision != r->revision) {
        return bad(err, "a change is not of the revision of its entry");
    }
    if (item.mod_revision < 1 || item.version < 0 || item.version > REVISION_MAX ||
        (item.lease && !kv_leases_find(&r->state->leases, item.lease))) {
        return bad(err, "a key has a lease that is not there, or no possible revision");
    }
    struct kv_record *record =
        is_delete ? kv_record_new_delete(item.key, item.mod_revision) : kv_record_new(&item);
    if (!record) {
        return MR_FAIL(err, MR_E_NOMEM, "no memory for the keys of the registry");
    }
    kv_state_restore(r->state, record, !r->is_old);
    return MR_OK;
}

static int replay_grant(struct replay *r, mr_bytes m, struct mr_err *err)
{
    int64_t id = 0, ttl_s = 0;
    struct mr_pb_field f;
    struct kv_lease *lease;
    int more;

    while ((more = mr_pb_next(&m, &f)) == 1) {
        if (!set_int(&f, 1, &id) && !set_int(&f, 2, &ttl_s)) {
            return bad(err, "a lease has an unknown field");
        }
    }
    int rc = more < 0 ? bad(err, "a lease is no message") : kv_check_ttl(ttl_s, err);
    return rc < 0 ? rc : kv_leases_add(&r->state->leases, id, ttl_s, r->now_ns, &lease, err);
}

static int replay_end(struct replay *r, int64_t id, struct mr_err *err)
{
    struct kv_lease *lease = kv_leases_find(&r->state->leases, id);
    if (!lease || !TAILQ_EMPTY(&lease->nodes)) {
        return bad(err, "a lease ends that is not there, or still has keys");
    }
    kv_leases_remove(&r->state->leases, lease);
    return MR_OK;
}

static int replay_field(struct replay *r, const struct mr_pb_field *f, struct mr_err *err)
{
    int64_t value = 0;

    if (set_int(f, ENTRY_REVISION, &value)) {
        r->revision = value;
        return value >= r->state->revision && value <= REVISION_MAX
                   ? MR_OK
                   : bad(err, "a revision is less than one before, or impossible");
    }
    if (set_int(f, ENTRY_OLD, &value)) {
        r->is_old = value;
        return MR_OK;
    }
    if (set_int(f, ENTRY_ENDED, &value)) {
        return replay_end(r, value, err);
    }
    if (f->wire == MR_PB_LEN && f->number == ENTRY_EVENT) {
        return replay_event(r, f->bytes, err);
    }
    if (f->wire == MR_PB_LEN && f->number == ENTRY_GRANTED) {
        return replay_grant(r, f->bytes, err);
    }
    return bad(err, "an entry has an unknown field");
}

static int replay_entry(struct replay *r, mr_bytes m, struct mr_err *err)
{
    struct mr_pb_field f;
    int more, rc = MR_OK;

    r->revision = r->state->revision;
    r->is_old = false;
    while (rc == MR_OK && (more = mr_pb_next(&m, &f)) != 0) {
        rc = more < 0 ? bad(err, "an entry is no message") : replay_field(r, &f, err);
    }
    if (rc == MR_OK) {
        r->state->revision = r->revision;
        if (r->is_old) {
            kv_history_compact(&r->state->history, r->revision);
        }
    }
    return rc;
}

int kv_log_read(mr_bytes file, int64_t now_ns, struct kv_state *io_state, struct kv_log_found *out,
                struct mr_err *err)
{
    struct replay r = {.state = io_state, .now_ns = now_ns};
    struct kv_log_found found = {.base = KV_LOG_HEADER_BYTES};
    mr_bytes rest = file, entry;
    int rc = read_header(file, &found.id, err);

    if (rc < 0) {
        return rc;
    }
    rest.ptr += KV_LOG_HEADER_BYTES;
    rest.len -= KV_LOG_HEADER_BYTES;
    while (rc == MR_OK && next_entry(&rest, &entry)) {
        rc = replay_entry(&r, entry, err);
        found.base = r.is_old ? file.len - rest.len : found.base;
    }
    if (rc == MR_OK) {
        found.bytes = file.len - rest.len;
        *out = found;
    }
    return rc;
}
