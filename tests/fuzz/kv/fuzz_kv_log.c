/* The file of a registry. The first byte says what the rest is: 0: the file; otherwise entries, each after its
 * length in two bytes, which are put into frames that are whole. What was read is written as a whole and read again:
 * it is the same. */
#include "fuzz.h"

#include "base/buf.h"
#include "base/crc32c.h"
#include "kv/file/log.h"

static void put_frame(struct mr_buf *b, const uint8_t *payload, uint32_t len)
{
    uint8_t frame[8] = {(uint8_t)len, (uint8_t)(len >> 8)};
    uint32_t crc = mr_crc32c(mr_crc32c(0, frame, 4), payload, len);

    for (int i = 0; i < 4; i++) {
        frame[4 + i] = (uint8_t)(crc >> (8 * i));
    }
    mr_buf_append(b, frame, sizeof frame);
    mr_buf_append(b, payload, len);
}

static void put_entries(struct mr_buf *b, const uint8_t *data, size_t size)
{
    kv_log_put_header(b, 4711);
    while (size >= 2) {
        size_t len = data[0] | (size_t)data[1] << 8;
        len = len < size - 2 ? len : size - 2;
        put_frame(b, data + 2, (uint32_t)len);
        data += 2 + len;
        size -= 2 + len;
    }
}

/* All that the state has, as a file that begins with it. */
static void put_whole(struct mr_buf *b, const struct kv_state *s)
{
    struct kv_log_entry entry = {.revision = s->revision, .is_old = true};
    struct mr_map_slot *slot;

    kv_log_put_header(b, 4711);
    for (size_t i = 0; (slot = mr_map_next(&s->leases.by_id, &i));) {
        entry.granted = slot->value;
        kv_log_put(b, &entry);
    }
    entry.granted = NULL;
    for (const struct kv_node *n = s->keys.first[0]; n; n = kv_keys_next(n)) {
        struct kv_record *const record = n->record;
        entry.records = &record;
        entry.record_count = 1;
        kv_log_put(b, &entry);
    }
    entry.record_count = 0;
    kv_log_put(b, &entry);
}

static void require_same(const struct kv_state *a, const struct kv_state *b)
{
    const struct kv_node *x = a->keys.first[0], *y = b->keys.first[0];

    REQUIRE(a->revision == b->revision && a->keys.count == b->keys.count);
    REQUIRE(a->leases.by_id.len == b->leases.by_id.len);
    for (; x && y; x = kv_keys_next(x), y = kv_keys_next(y)) {
        const struct kv_record *p = x->record, *q = y->record;
        REQUIRE(p->key_len == q->key_len && p->value_len == q->value_len);
        REQUIRE(memcmp(p->data, q->data, p->key_len + p->value_len) == 0);
        REQUIRE(p->mod_revision == q->mod_revision && p->lease == q->lease);
        REQUIRE(p->create_revision == q->create_revision && p->version == q->version);
    }
    REQUIRE(!x && !y);
}

static void read_again(const struct kv_state *s)
{
    struct kv_log_found found;
    struct kv_state again;
    struct mr_buf b;

    mr_buf_init(&b, 0);
    put_whole(&b, s);
    kv_state_init(&again, NULL);
    mr_bytes file = {(uint8_t *)b.ptr, b.len};
    REQUIRE(kv_log_read(file, 0, &again, &found, NULL) == MR_OK);
    REQUIRE(found.id == 4711 && found.bytes == b.len && found.base == b.len);
    require_same(s, &again);
    kv_state_fini(&again);
    mr_buf_fini(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kv_log_found found;
    struct kv_state s;
    struct mr_buf b;
    struct mr_err err = {0};

    if (size < 1) {
        return 0;
    }
    mr_buf_init(&b, 0);
    if (data[0]) {
        put_entries(&b, data + 1, size - 1);
    } else {
        mr_buf_append(&b, data + 1, size - 1);
    }
    kv_state_init(&s, &(struct kv_state_options){.history_events = 8, .history_bytes = 1024});
    mr_bytes file = {(uint8_t *)b.ptr, b.len};
    int rc = kv_log_read(file, 0, &s, &found, &err);
    REQUIRE(rc == MR_OK || (rc == err.status && err.msg[0]));
    if (rc == MR_OK) {
        REQUIRE(found.base <= found.bytes && found.bytes <= file.len);
        read_again(&s);
    }
    kv_state_fini(&s);
    mr_buf_fini(&b);
    return 0;
}
