#include "state.h"

#include "base/mem.h"
#include "copy.h"

#define PAGE_BYTES (8 * 1024 * 1024)

void kv_state_init(struct kv_state *s, const struct kv_state_options *options)
{
    size_t events = options && options->history_events ? options->history_events : 65536;
    size_t bytes = options && options->history_bytes ? options->history_bytes : 32 << 20;

    *s = (struct kv_state){.revision = 1};
    s->max_bytes = options && options->max_bytes ? options->max_bytes : (size_t)4 << 30;
    kv_keys_init(&s->keys);
    kv_leases_init(&s->leases);
    kv_history_init(&s->history, events, bytes, 0);
}

void kv_state_fini(struct kv_state *s)
{
    kv_keys_fini(&s->keys);
    kv_leases_fini(&s->leases);
    kv_history_fini(&s->history);
}

/* ---- reads ---- */

static int out_of_memory(struct mr_err *err)
{
    return MR_FAIL(err, MR_E_NOMEM, "no memory for an answer of the registry");
}

static bool is_within(const struct kv_node *n, mr_str key, bool is_prefix)
{
    if (!n) {
        return false;
    }
    mr_str at = kv_record_key(n->record);
    return is_prefix ? mr_str_starts(at, key) : mr_str_eq(at, key);
}

/** Where a page begins. */
static const struct kv_node *range_first(const struct kv_state *s, const struct mr_kv_range *r)
{
    bool is_after = r->is_prefix && r->after.len && mr_str_cmp(r->after, r->key) >= 0;
    return kv_keys_from(&s->keys, is_after ? r->after : r->key, is_after);
}

int kv_state_range(const struct kv_state *s, const struct mr_kv_range *range,
                   struct mr_arena *arena, struct mr_kv_result *out, struct mr_err *err)
{
    const struct kv_node *first = range_first(s, range), *n = first;
    size_t limit = range->limit ? MR_MIN(range->limit, MR_KV_PAGE_MAX) : MR_KV_PAGE_MAX;
    size_t count = 0, bytes = 0;

    while (count < limit && bytes < PAGE_BYTES && is_within(n, range->key, range->is_prefix)) {
        bytes += range->keys_only ? n->record->key_len : kv_record_size(n->record);
        count++;
        n = kv_keys_next(n);
    }
    struct mr_kv_item *items = MR_ARENA_ARRAY(arena, struct mr_kv_item, count ? count : 1);
    if (!items) {
        return out_of_memory(err);
    }
    n = first;
    for (size_t i = 0; i < count; i++, n = kv_keys_next(n)) {
        items[i] = kv_record_item(n->record);
        if (range->keys_only) {
            items[i].value = (mr_bytes){0};
        }
    }
    *out = (struct mr_kv_result){
        .items = items,
        .count = count,
        .more = range->is_prefix && is_within(n, range->key, true),
    };
    return MR_OK;
}

/* ---- changes ---- */

static void lease_unlink(struct kv_state *s, struct kv_node *n)
{
    if (n->record->lease) {
        struct kv_lease *lease = kv_leases_find(&s->leases, n->record->lease);
        TAILQ_REMOVE(&lease->nodes, n, lease_link);
    }
}

static void lease_link(struct kv_state *s, struct kv_node *n)
{
    if (n->record->lease) {
        struct kv_lease *lease = kv_leases_find(&s->leases, n->record->lease);
        TAILQ_INSERT_TAIL(&lease->nodes, n, lease_link);
    }
}

/** Makes the record the key's newest. Takes the reference. */
static void set_record(struct kv_state *s, struct kv_record *r)
{
    struct kv_node *n = kv_keys_find(&s->keys, kv_record_key(r));

    if (n) {
        lease_unlink(s, n);
        kv_keys_replace(&s->keys, n, r);
    } else {
        n = kv_keys_add(&s->keys, r);
    }
    lease_link(s, n);
}

static struct kv_record *put_record(const struct kv_state *s, const struct mr_kv_op *op)
{
    const struct kv_node *n = kv_keys_find(&s->keys, op->key);
    struct mr_kv_item item = {
        .key = op->key,
        .value = op->value,
        .create_revision = n ? n->record->create_revision : s->revision + 1,
        .mod_revision = s->revision + 1,
        .version = n ? n->record->version + 1 : 1,
        .lease = op->lease,
    };
    return kv_record_new(&item);
}

static void delete_node(struct kv_state *s, struct kv_node *n)
{
    struct kv_record *r = kv_record_new_delete(kv_record_key(n->record), s->revision + 1);

    kv_history_add(&s->history, r);
    kv_record_unref(r);
    lease_unlink(s, n);
    kv_keys_remove(&s->keys, n);
}

static size_t delete_keys(struct kv_state *s, const struct mr_kv_op *op)
{
    struct kv_node *n = kv_keys_from(&s->keys, op->key, false);
    size_t count = 0;

    while (is_within(n, op->key, op->is_prefix)) {
        struct kv_node *next = kv_keys_next(n);
        delete_node(s, n);
        count++;
        n = next;
    }
    return count;
}

/** The changes since `before` become one revision. */
static void end_change(struct kv_state *s, size_t before)
{
    if (s->history.end != before) {
        s->revision++;
        kv_history_trim(&s->history);
    }
}

static bool compares_hold(const struct kv_state *s, const struct mr_kv_txn *txn)
{
    for (size_t i = 0; i < txn->compare_count; i++) {
        const struct kv_node *n = kv_keys_find(&s->keys, txn->compares[i].key);
        if ((n ? n->record->mod_revision : 0) != txn->compares[i].mod_revision) {
            return false;
        }
    }
    return true;
}

/** What can fail for other reasons than memory is looked at before the first operation. */
static int check_room(const struct kv_state *s, const struct mr_kv_op *ops, size_t count,
                      struct mr_err *err)
{
    size_t bytes = s->keys.bytes;
    for (size_t i = 0; i < count; i++) {
        if (ops[i].kind != MR_KV_PUT) {
            continue;
        }
        if (ops[i].lease && !kv_leases_find(&s->leases, ops[i].lease)) {
            return MR_FAIL(err, MR_E_NOT_FOUND, "there is no lease %llx",
                           (unsigned long long)ops[i].lease);
        }
        bytes += ops[i].key.len + ops[i].value.len + sizeof(struct kv_record);
    }
    if (bytes > s->max_bytes && bytes > s->keys.bytes) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "the registry has reached its limit of %zu bytes",
                       s->max_bytes);
    }
    return MR_OK;
}

/** The records of all puts, in the arena, so that nothing that needs much memory is left when changes begin. No
 *  other operation touches their keys. */
static int make_records(const struct kv_state *s, const struct mr_kv_op *ops, size_t count,
                        struct kv_record **records, struct mr_err *err)
{
    for (size_t i = 0; i < count; i++) {
        if (ops[i].kind == MR_KV_PUT && !(records[i] = put_record(s, &ops[i]))) {
            while (i-- > 0) {
                kv_record_unref(records[i]);
            }
            return out_of_memory(err);
        }
    }
    return MR_OK;
}

/** A read in a transaction: copied, as later operations may change what it found. */
static int txn_get(const struct kv_state *s, const struct mr_kv_op *op, struct mr_arena *arena,
                   struct mr_kv_result *out, struct mr_err *err)
{
    struct mr_kv_range range = {.key = op->key, .is_prefix = op->is_prefix};
    struct mr_kv_result found;
    int rc = kv_state_range(s, &range, arena, &found, err);
    return rc < 0 ? rc : kv_result_copy(&found, arena, out, err);
}

/** Takes the records. Every change is made, whatever becomes of the reads. */
static int run_ops(struct kv_state *s, const struct mr_kv_op *ops, size_t count,
                   struct kv_record *const *records, struct mr_arena *arena,
                   struct mr_kv_result *results, struct mr_err *err)
{
    size_t before = s->history.end;
    int rc = MR_OK;

    for (size_t i = 0; i < count; i++) {
        switch (ops[i].kind) {
        case MR_KV_GET:
            if (rc == MR_OK) {
                rc = txn_get(s, &ops[i], arena, &results[i], err);
            }
            break;
        case MR_KV_PUT:
            kv_history_add(&s->history, records[i]);
            set_record(s, records[i]);
            break;
        case MR_KV_DELETE: results[i].count = delete_keys(s, &ops[i]); break;
        }
    }
    end_change(s, before);
    return rc;
}

int kv_state_txn(struct kv_state *s, const struct mr_kv_txn *txn, struct mr_arena *arena,
                 struct mr_kv_reply *out, struct mr_err *err)
{
    bool succeeded = compares_hold(s, txn);
    const struct mr_kv_op *ops = succeeded ? txn->then : txn->otherwise;
    size_t count = succeeded ? txn->then_count : txn->otherwise_count;
    struct mr_kv_result *results = MR_ARENA_ARRAY(arena, struct mr_kv_result, count + 1);
    struct kv_record **records = MR_ARENA_ARRAY(arena, struct kv_record *, count + 1);
    int rc = results && records ? check_room(s, ops, count, err) : out_of_memory(err);

    if (rc < 0 || (rc = make_records(s, ops, count, records, err)) < 0 ||
        (rc = run_ops(s, ops, count, records, arena, results, err)) < 0) {
        return rc;
    }
    *out = (struct mr_kv_reply){
        .revision = s->revision, .succeeded = succeeded, .results = results, .result_count = count};
    return MR_OK;
}

void kv_state_end_lease(struct kv_state *s, struct kv_lease *lease)
{
    size_t before = s->history.end;
    struct kv_node *n;

    while ((n = TAILQ_FIRST(&lease->nodes))) {
        delete_node(s, n);
    }
    end_change(s, before);
    kv_leases_remove(&s->leases, lease);
}

void kv_state_restore(struct kv_state *s, struct kv_record *r, bool is_new)
{
    struct kv_node *n;

    if (is_new) {
        kv_history_add(&s->history, r);
        kv_history_trim(&s->history);
    }
    s->revision = MR_MAX(s->revision, r->mod_revision);
    if (!r->is_delete) {
        set_record(s, r);
        return;
    }
    if ((n = kv_keys_find(&s->keys, kv_record_key(r)))) {
        lease_unlink(s, n);
        kv_keys_remove(&s->keys, n);
    }
    kv_record_unref(r);
}
