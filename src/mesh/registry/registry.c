/* Between a core and a kv. A reading goes page by page and is no snapshot; the watch begins after the revision of its first page, and what
 * it brings twice the view passes over. When the watch ends (the store was compacted, or lost its data) everything is read again.
 *
 * Callbacks of the kv carry a small block each, which knows the registry and the token; a registry that is freed takes itself out
 * of them. */
#include "registry.h"

#include <limits.h>
#include <stdio.h>

#include "base/log.h"
#include "base/rng.h"
#include "base/vec.h"

#define EPOCH_BYTES 8

struct pending {
    struct registry *r; /* NULL: it has been freed */
    uint64_t token;
    struct pending *prev, *next;
};

struct registry {
    struct mesh_core *core;
    struct registry_options o;
    struct mr_kv *kv;
    struct mr_kv *journal; /* may be NULL */
    struct mr_kv_watch *watch;
    struct pending all; /* ring */
    bool is_read, is_reading, is_granting, is_keeping, is_leaving;
    bool journal_is_read;
    struct mr_buf journal_after; /* as `after` */
    struct mr_buf own_key;
    int64_t taken_revision; /* of the last record there that another instance wrote */
    bool id_is_free;        /* it was when this instance came */
    int64_t lease, ttl_s;
    int64_t keep_ns, read_ns, grant_ns, journal_ns, epoch_ns; /* when; INT64_MAX: not */
    int64_t first_revision;
    int64_t seen;                         /* the newest revision */
    char epoch[2 * EPOCH_BYTES + 1];      /* id of what was read; empty: not known yet */
    char read_epoch[2 * EPOCH_BYTES + 1]; /* what the reading that goes on has found */
    bool is_lost;                         /* it is another one now */
    bool is_paging, starts_over;          /* a page is under way; another reading begins after it */
    struct mr_buf after;                  /* the last key of the page before */
    void (*left)(void *ctx);
};

static int64_t now_of(const struct registry *r)
{
    return r->o.now(r->o.ctx);
}

static void acted(struct registry *r)
{
    r->o.acted(r->o.ctx);
}

static void changed(struct registry *r, mr_str key)
{
    if (r->o.changed) {
        r->o.changed(r->o.ctx, key);
    }
}

static struct pending *pending_new(struct registry *r, uint64_t token)
{
    struct pending *p = MR_NEW(struct pending);

    *p = (struct pending){r, token, r->all.prev, &r->all};
    p->prev->next = p;
    r->all.prev = p;
    return p;
}

/* NULL: the registry is not there any more. */
static struct registry *pending_end(struct pending *p, uint64_t *out_token)
{
    struct registry *r = p->r;

    if (r) {
        p->prev->next = p->next;
        p->next->prev = p->prev;
        *out_token = p->token;
    }
    mr_free(p);
    return r;
}

struct registry *registry_new(struct mesh_core *core, const struct registry_options *options)
{
    struct registry *r = MR_NEW(struct registry);

    r->core = core;
    r->o = *options;
    r->o.lease_s = r->o.lease_s ? r->o.lease_s : 20;
    r->o.retry_ns = r->o.retry_ns ? r->o.retry_ns : 500000000;
    r->o.page = r->o.page ? r->o.page : 5000;
    r->all.prev = r->all.next = &r->all;
    r->keep_ns = r->read_ns = r->grant_ns = r->journal_ns = r->epoch_ns = INT64_MAX;
    mr_buf_init(&r->after, 0);
    mr_buf_init(&r->journal_after, 0);
    mr_buf_init(&r->own_key, 0);
    mesh_key_put(&r->own_key, MESH_KEY_INSTANCE, (mr_str){0}, r->o.id);
    return r;
}

void registry_free(struct registry **io_r)
{
    struct registry *r = *io_r;

    *io_r = NULL;
    if (!r) {
        return;
    }
    for (struct pending *p = r->all.next; p != &r->all; p = p->next) {
        p->r = NULL;
    }
    if (r->watch) {
        mr_kv_watch_stop(&r->watch);
    }
    mr_buf_fini(&r->after);
    mr_buf_fini(&r->journal_after);
    mr_buf_fini(&r->own_key);
    mr_free(r);
}

/* ---- the lease ---- */

static void on_granted(void *ctx, int rc, const struct mr_err *err, const struct mr_kv_reply *reply)
{
    uint64_t token;
    struct registry *r = pending_end(ctx, &token);

    (void)err;
    if (!r) {
        return;
    }
    r->is_granting = false;
    if (rc < 0) {
        r->grant_ns = now_of(r) + r->o.retry_ns;
        return;
    }
    r->lease = reply->lease;
    r->ttl_s = reply->ttl_s;
    r->keep_ns = now_of(r) + r->ttl_s * 1000000000 / 3;
    mesh_core_lease(r->core, now_of(r));
    acted(r);
}

static void grant(struct registry *r)
{
    r->grant_ns = INT64_MAX;
    if (!r->is_granting && !r->is_leaving) {
        r->is_granting = true;
        mr_kv_lease_grant(r->kv, r->o.lease_s, on_granted, pending_new(r, 0));
    }
}

static void on_kept(void *ctx, int rc, const struct mr_err *err, const struct mr_kv_reply *reply)
{
    uint64_t token;
    struct registry *r = pending_end(ctx, &token);

    (void)err;
    (void)reply;
    if (!r) {
        return;
    }
    r->is_keeping = false;
    if (rc == MR_E_NOT_FOUND) {
        grant(r);
        return;
    }
    int64_t wait = rc < 0 ? r->o.retry_ns : r->ttl_s * 1000000000 / 3;
    r->keep_ns = now_of(r) + wait;
}

static void keep(struct registry *r)
{
    r->keep_ns = INT64_MAX;
    if (!r->is_keeping && !r->is_leaving) {
        r->is_keeping = true;
        mr_kv_lease_keep(r->kv, r->lease, on_kept, pending_new(r, 0));
    }
}

/* ---- whether the id is this instance's alone ---- */

/* A record that an earlier process with the same address left counts as this instance's own. */
static bool is_taken(struct registry *r, const struct mr_kv_item *item)
{
    struct mesh_instance other;

    if (!mr_str_eq(item->key, mr_buf_view(&r->own_key)) ||
        mesh_instance_get(&other, item->value, NULL) < 0 ||
        mr_str_eq(other.address, r->o.address)) {
        return false;
    }
    if (!r->id_is_free && r->o.is_gone && r->o.is_gone(r->o.ctx, other.address)) {
        r->taken_revision = item->mod_revision;
        mr_log(MR_LOG_INFO, "mesh.id_left", "id=%s address=%s no process listens there any more",
               MR_LOG_STR(r->o.id), MR_LOG_STR(other.address));
        return false;
    }
    if (r->taken_revision != item->mod_revision) {
        r->taken_revision = item->mod_revision;
        mr_log(MR_LOG_ERROR, "mesh.id_taken", "id=%s address=%s %s", MR_LOG_STR(r->o.id),
               MR_LOG_STR(other.address),
               r->id_is_free ? "another server has this --mesh-id and has written over this one's "
                               "record: requests go astray, one of them has to end"
                             : "another server has this --mesh-id: this one joins when that has "
                               "left, or its lease has ended");
    }
    return true;
}

static void read_page(struct registry *r);

static void on_own(void *ctx, int rc, const struct mr_err *err, const struct mr_kv_reply *reply)
{
    uint64_t token;
    struct registry *r = pending_end(ctx, &token);

    (void)err;
    if (!r) {
        return;
    }
    r->is_paging = r->starts_over = false;
    if (rc < 0 || (reply->results[0].count > 0 && is_taken(r, &reply->results[0].items[0]))) {
        r->read_ns = now_of(r) + r->o.retry_ns;
        acted(r);
        return;
    }
    r->id_is_free = true; /* and a record of one that is gone is passed over */
    read_page(r);
}

/* ---- reading and watching ---- */

static void on_changes(void *ctx, int64_t revision, const struct mr_kv_change *changes,
                       size_t count)
{
    struct registry *r = ctx;

    r->seen = MR_MAX(r->seen, revision);
    for (size_t i = 0; i < count; i++) {
        const struct mr_kv_item *item = &changes[i].item;
        mr_bytes value = item->value.ptr ? item->value : (mr_bytes){(const uint8_t *)"", 0};
        mesh_core_record(r->core, item->key, changes[i].is_delete ? (mr_bytes){0} : value,
                         item->mod_revision, now_of(r));
        if (!changes[i].is_delete) {
            is_taken(r, item);
        }
        changed(r, item->key);
        acted(r);
    }
}

/* From the first page. */
static void read_again(struct registry *r)
{
    if (r->watch) {
        mr_kv_watch_stop(&r->watch);
    }
    mr_buf_reset(&r->after);
    r->is_reading = false;
    r->starts_over = r->is_paging;
    if (!r->is_paging) {
        read_page(r);
    }
}

static void on_resync(void *ctx, const struct mr_err *why)
{
    struct registry *r = ctx;

    (void)why;
    r->watch = NULL;
    read_again(r);
}

/* Copies the registry's id, which others may have written: any bytes. */
static void epoch_text(char out[2 * EPOCH_BYTES + 1], mr_bytes value)
{
    snprintf(out, 2 * EPOCH_BYTES + 1, "%.*s", (int)MR_MIN(value.len, 2 * EPOCH_BYTES), value.ptr);
}

static void page_read(struct registry *r, const struct mr_kv_reply *reply)
{
    static const struct mr_kv_watch_events events = {on_changes, on_resync};
    const struct mr_kv_result *page = &reply->results[0];

    if (!r->is_reading) {
        r->is_reading = true;
        r->read_epoch[0] = '\0';
        r->first_revision = reply->revision;
        if (reply->revision < r->seen || r->is_lost) {
            r->is_lost = false;
            mesh_core_registry_lost(r->core, now_of(r)); /* it began again, empty */
        }
        r->seen = reply->revision;
        mesh_core_read_begin(r->core, now_of(r));
    }
    for (size_t i = 0; i < page->count; i++) {
        const struct mr_kv_item *item = &page->items[i];
        mr_bytes value = item->value.ptr ? item->value : (mr_bytes){(const uint8_t *)"", 0};
        mesh_core_record(r->core, item->key, value, item->mod_revision, now_of(r));
        if (mr_str_eq(item->key, MR_STR(MESH_EPOCH_KEY))) {
            epoch_text(r->read_epoch, value);
        }
        is_taken(r, item);
        acted(r);
    }
    if (page->more && page->count > 0) {
        mr_buf_reset(&r->after);
        mr_buf_str(&r->after, page->items[page->count - 1].key);
        read_page(r);
        return;
    }
    r->is_reading = false;
    r->is_read = true;
    if (r->epoch[0] && strcmp(r->read_epoch, r->epoch) != 0) {
        mesh_core_registry_lost(r->core, now_of(r)); /* another one, at whatever revision */
    }
    mesh_core_read_end(r->core, now_of(r));
    changed(r, (mr_str){0});
    acted(r);
    r->watch = mr_kv_watch(r->kv, MR_STR(MESH_ROOT), r->first_revision + 1, &events, r);
}

static void on_page(void *ctx, int rc, const struct mr_err *err, const struct mr_kv_reply *reply)
{
    uint64_t token;
    struct registry *r = pending_end(ctx, &token);

    (void)err;
    if (!r) {
        return;
    }
    r->is_paging = false;
    if (r->starts_over) {
        read_again(r);
        return;
    }
    if (rc < 0) { /* from the first page again */
        r->is_reading = false;
        mr_buf_reset(&r->after);
        r->read_ns = now_of(r) + r->o.retry_ns;
        return;
    }
    page_read(r, reply);
}

static void read_page(struct registry *r)
{
    struct mr_kv_range range = {.key = MR_STR(MESH_ROOT),
                                .is_prefix = true,
                                .after = mr_buf_view(&r->after),
                                .limit = r->o.page};

    r->read_ns = INT64_MAX;
    r->is_paging = true;
    if (!r->id_is_free) {
        mr_kv_get(r->kv, mr_buf_view(&r->own_key), MR_KV_LINEARIZABLE, on_own, pending_new(r, 0));
        return;
    }
    mr_kv_range(r->kv, &range, on_page, pending_new(r, 0));
}

/* ---- whether it is the same registry ---- */

static void read_epoch(struct registry *r);

static void on_epoch_made(void *ctx, int rc, const struct mr_err *err,
                          const struct mr_kv_reply *reply)
{
    uint64_t token;
    struct registry *r = pending_end(ctx, &token);

    (void)err;
    (void)reply;
    if (r) {
        r->epoch_ns = now_of(r) + (rc < 0 ? r->o.retry_ns : 0);
    }
}

/* Another server may be quicker: it is read after this. */
static void make_epoch(struct registry *r)
{
    uint8_t bytes[EPOCH_BYTES];
    char text[2 * EPOCH_BYTES + 1];
    struct mr_kv_compare is_absent = {.key = MR_STR(MESH_EPOCH_KEY)};
    struct mr_kv_op put = {.kind = MR_KV_PUT,
                           .key = MR_STR(MESH_EPOCH_KEY),
                           .value = {(const uint8_t *)text, sizeof text - 1}};
    struct mr_kv_txn txn = {
        .compares = &is_absent, .compare_count = 1, .then = &put, .then_count = 1};

    mr_rng_system(bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) {
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    }
    mr_kv_txn(r->kv, &txn, on_epoch_made, pending_new(r, 0));
}

static void epoch_is(struct registry *r, mr_bytes value)
{
    char text[sizeof r->epoch];

    epoch_text(text, value);
    if (r->epoch[0] && strcmp(r->epoch, text) != 0) {
        r->is_lost = true;
        read_again(r);
    }
    memcpy(r->epoch, text, sizeof text);
    mesh_core_epoch(r->core, mr_str_c(r->epoch), now_of(r));
    mesh_core_registry(r->core, true, now_of(r));
    acted(r);
}

static void on_epoch(void *ctx, int rc, const struct mr_err *err, const struct mr_kv_reply *reply)
{
    uint64_t token;
    struct registry *r = pending_end(ctx, &token);

    (void)err;
    if (!r || mr_kv_state(r->kv) != MR_KV_READY) {
        return;
    }
    if (rc < 0) {
        r->epoch_ns = now_of(r) + r->o.retry_ns;
    } else if (reply->results[0].count == 0) {
        make_epoch(r);
    } else {
        epoch_is(r, reply->results[0].items[0].value);
    }
}

static void read_epoch(struct registry *r)
{
    r->epoch_ns = INT64_MAX;
    mr_kv_get(r->kv, MR_STR(MESH_EPOCH_KEY), MR_KV_LINEARIZABLE, on_epoch, pending_new(r, 0));
}

/* ---- the journal ---- */

static void read_journal(struct registry *r);

static void on_journal(void *ctx, int rc, const struct mr_err *err, const struct mr_kv_reply *reply)
{
    uint64_t token;
    struct registry *r = pending_end(ctx, &token);

    (void)err;
    if (!r) {
        return;
    }
    if (rc < 0) {
        r->journal_ns = now_of(r) + r->o.retry_ns;
        return;
    }
    const struct mr_kv_result *page = &reply->results[0];
    for (size_t i = 0; i < page->count; i++) {
        mesh_core_intent(r->core, page->items[i].key, page->items[i].value, now_of(r));
    }
    if (page->more && page->count > 0) {
        mr_buf_reset(&r->journal_after);
        mr_buf_str(&r->journal_after, page->items[page->count - 1].key);
        read_journal(r);
        return;
    }
    r->journal_is_read = true;
    registry_on_journal_state(r, mr_kv_state(r->journal));
}

static void read_journal(struct registry *r)
{
    struct mr_kv_range range = {
        .key = MR_STR(MESH_ROOT), .is_prefix = true, .after = mr_buf_view(&r->journal_after)};

    r->journal_ns = INT64_MAX;
    mr_kv_range(r->journal, &range, on_journal, pending_new(r, 0));
}

void registry_on_journal_state(struct registry *r, enum mr_kv_state state)
{
    if (r->journal_is_read) {
        mesh_core_journal(r->core, state == MR_KV_READY, now_of(r));
        acted(r);
    }
}

void registry_start(struct registry *r, struct mr_kv *kv, struct mr_kv *journal)
{
    r->kv = kv;
    r->journal = journal;
    grant(r);
    read_page(r);
    if (journal) {
        read_journal(r);
    }
}

int64_t registry_next(const struct registry *r)
{
    return MR_MIN(MR_MIN(r->keep_ns, r->read_ns),
                  MR_MIN(r->grant_ns, MR_MIN(r->journal_ns, r->epoch_ns)));
}

void registry_tick(struct registry *r, int64_t now)
{
    if (r->keep_ns <= now) {
        keep(r);
    }
    if (r->grant_ns <= now) {
        grant(r);
    }
    if (r->read_ns <= now) {
        read_page(r);
    }
    if (r->epoch_ns <= now) {
        read_epoch(r);
    }
    if (r->journal_ns <= now) {
        read_journal(r);
    }
}

bool registry_is_read(const struct registry *r)
{
    return r->is_read && r->epoch[0];
}

bool registry_is_behind(const struct registry *r, int64_t revision)
{
    return revision > r->seen;
}

void registry_learn(struct registry *r, int64_t revision, const struct mr_kv_result *page)
{
    if (!registry_is_behind(r, revision)) {
        return;
    }
    for (size_t i = 0; i < page->count; i++) {
        const struct mr_kv_item *item = &page->items[i];
        if (item->value.ptr) {
            mesh_core_record(r->core, item->key, item->value, item->mod_revision, now_of(r));
        }
    }
    acted(r);
}

/* ---- what the core wants ---- */

static void failed(struct registry *r, const struct mr_err *err)
{
    if (err) {
        mesh_core_why(r->core, mr_str_c(err->msg));
    }
}

static void on_written(void *ctx, int rc, const struct mr_err *err, const struct mr_kv_reply *reply)
{
    uint64_t token;
    struct registry *r = pending_end(ctx, &token);
    mr_bytes value = {0};

    if (!r) {
        return;
    }
    failed(r, err);
    if (rc == MR_OK && !reply->succeeded && reply->result_count > 0 &&
        reply->results[0].count > 0) {
        value = reply->results[0].items[0].value;
    }
    mesh_core_written(r->core, token, rc, rc == MR_OK && reply->succeeded, value, now_of(r));
    if (rc == MR_E_NOT_FOUND) {
        grant(r);
    }
    acted(r);
}

static void on_journalled(void *ctx, int rc, const struct mr_err *err,
                          const struct mr_kv_reply *reply)
{
    uint64_t token;
    struct registry *r = pending_end(ctx, &token);

    (void)reply;
    if (r) {
        failed(r, err);
        mesh_core_written(r->core, token, rc, rc == MR_OK, (mr_bytes){0}, now_of(r));
        acted(r);
    }
}

static void on_got(void *ctx, int rc, const struct mr_err *err, const struct mr_kv_reply *reply)
{
    uint64_t token;
    struct registry *r = pending_end(ctx, &token);

    (void)err;
    if (!r) {
        return;
    }
    mr_bytes value = {0};
    int64_t revision = 0;
    if (rc == MR_OK && reply->results[0].count > 0) {
        const struct mr_kv_item *item = &reply->results[0].items[0];
        value = item->value.ptr ? item->value : (mr_bytes){(const uint8_t *)"", 0};
        revision = item->mod_revision;
    }
    mesh_core_got(r->core, token, rc, value, revision, now_of(r));
    acted(r);
}

static void to_ops(const struct registry *r, struct mr_kv_op *to, const struct mesh_op *from,
                   size_t count)
{
    static const enum mr_kv_op_kind kinds[] = {
        [MESH_OP_PUT] = MR_KV_PUT, [MESH_OP_DELETE] = MR_KV_DELETE, [MESH_OP_GET] = MR_KV_GET};

    for (size_t i = 0; i < count; i++) {
        to[i] = (struct mr_kv_op){.kind = kinds[from[i].kind],
                                  .key = from[i].key,
                                  .value = from[i].value,
                                  .lease = from[i].is_leased ? r->lease : 0};
    }
}

static void act_txn(struct registry *r, const struct mesh_action *a)
{
    struct mr_kv_compare compares[MR_KV_OPS_MAX];
    struct mr_kv_op then[MR_KV_OPS_MAX];
    struct mr_kv_op otherwise[MR_KV_OPS_MAX];
    struct mr_kv_txn txn = {.compares = compares,
                            .compare_count = a->compare_count,
                            .then = then,
                            .then_count = a->then_count,
                            .otherwise = otherwise,
                            .otherwise_count = a->otherwise_count};

    MR_ASSERT(a->compare_count <= MR_KV_OPS_MAX && a->then_count <= MR_KV_OPS_MAX &&
              a->otherwise_count <= MR_KV_OPS_MAX); /* the core's own numbers */
    for (size_t i = 0; i < a->compare_count; i++) {
        compares[i] = (struct mr_kv_compare){a->compares[i].key, a->compares[i].revision};
    }
    to_ops(r, then, a->then, a->then_count);
    to_ops(r, otherwise, a->otherwise, a->otherwise_count);
    if (a->is_journal) {
        mr_kv_txn(r->journal, &txn, on_journalled, pending_new(r, a->token));
    } else {
        mr_kv_txn(r->kv, &txn, on_written, pending_new(r, a->token));
    }
}

void registry_act(struct registry *r, const struct mesh_action *a)
{
    if (a->kind == MESH_ACT_TXN) {
        act_txn(r, a);
    } else if (a->kind == MESH_ACT_GET) {
        mr_kv_get(r->kv, a->key, MR_KV_LINEARIZABLE, on_got, pending_new(r, a->token));
    }
}

static void tell_left(struct registry *r)
{
    void (*left)(void *ctx) = r->left;

    r->left = NULL;
    if (left) {
        left(r->o.ctx);
    }
}

static void on_left(void *ctx, int rc, const struct mr_err *err, const struct mr_kv_reply *reply)
{
    uint64_t token;
    struct registry *r = pending_end(ctx, &token);

    (void)rc;
    (void)err;
    (void)reply;
    if (r) {
        tell_left(r);
    }
}

void registry_leave(struct registry *r, void (*done)(void *ctx))
{
    r->is_leaving = true;
    r->left = done;
    r->keep_ns = r->grant_ns = INT64_MAX;
    if (mr_kv_state(r->kv) != MR_KV_READY) {
        tell_left(r); /* the lease ends by itself */
        return;
    }
    mr_kv_lease_revoke(r->kv, r->lease, on_left, pending_new(r, 0));
}

void registry_on_state(struct registry *r, enum mr_kv_state state)
{
    if (state == MR_KV_READY) {
        read_epoch(r);
    } else {
        r->epoch_ns = INT64_MAX;
        mesh_core_registry(r->core, false, now_of(r));
        acted(r);
    }
    if (state != MR_KV_READY && r->is_leaving) {
        tell_left(r);
    }
}
