/* What the tests of registries share: a store with two connections, calls that wait for their answer, watches that
 * keep what they see. How time passes is the store's: `pump` waits for the next thing to happen. */
#ifndef KV_TEST_H
#define KV_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/rng.h"
#include "base/vec.h"
#include "kv/kv.h"
#include "kv/state/copy.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

struct kv_fixture {
    struct mr_kv *kv[2];
    void (*pump)(struct kv_fixture *f);
    void (*compact)(struct kv_fixture *f, int64_t revision);
    enum mr_kv_state state[2]; /* as reported */
    unsigned lost;
    void *own;
};

static inline void kvt_on_state(void *ctx, enum mr_kv_state state, const struct mr_err *why)
{
    enum mr_kv_state *out = ctx;
    assert_int_equal(why != NULL, state == MR_KV_LOST);
    *out = state;
}

struct got {
    bool done;
    int rc;
    struct mr_err err;
    struct mr_arena arena;
    struct mr_kv_reply reply;
    const struct mr_kv_result *result; /* the first one */
    const struct mr_kv_item *item;     /* its first item, or NULL */
};

static inline void kvt_done(void *ctx, int rc, const struct mr_err *err,
                            const struct mr_kv_reply *reply)
{
    struct got *g = ctx;

    assert_false(g->done);
    assert_int_equal(rc == MR_OK, reply != NULL);
    assert_int_equal(rc == MR_OK, err == NULL);
    g->done = true;
    g->rc = rc;
    if (err) {
        assert_int_equal(err->status, rc);
        g->err = *err;
        return;
    }
    mr_arena_init(&g->arena, 0, SIZE_MAX);
    assert_int_equal(kv_reply_copy(reply, &g->arena, &g->reply, NULL), MR_OK);
    g->result = g->reply.result_count ? &g->reply.results[0] : NULL;
    g->item = g->result && g->result->items && g->result->count ? &g->result->items[0] : NULL;
}

static inline void kvt_fini(struct got *g)
{
    if (g->done && g->rc == MR_OK) {
        mr_arena_fini(&g->arena);
    }
    *g = (struct got){0};
}

static inline void kvt_wait(struct kv_fixture *f, const bool *flag)
{
    while (!*flag) {
        f->pump(f);
    }
}

/* Waits for the answer, which has to be a success. */
static inline void kvt_ok(struct kv_fixture *f, struct got *g)
{
    kvt_wait(f, &g->done);
    if (g->rc != MR_OK) {
        print_error("%s: %s\n", mr_status_name(g->rc), g->err.msg);
    }
    assert_int_equal(g->rc, MR_OK);
}

static inline void kvt_fails(struct kv_fixture *f, struct got *g, int rc)
{
    kvt_wait(f, &g->done);
    assert_int_equal(g->rc, rc);
    assert_true(g->err.msg[0]);
    kvt_fini(g);
}

static inline mr_bytes kvt_bytes(const char *text)
{
    return (mr_bytes){(const uint8_t *)text, strlen(text)};
}

/* Returns the revision. */
static inline int64_t kvt_put_in(struct kv_fixture *f, unsigned conn, const char *key,
                                 const char *value, int64_t lease)
{
    struct got g = {0};
    mr_kv_put(f->kv[conn], mr_str_c(key), kvt_bytes(value), lease, kvt_done, &g);
    kvt_ok(f, &g);
    int64_t revision = g.reply.revision;
    kvt_fini(&g);
    return revision;
}

static inline int64_t kvt_put(struct kv_fixture *f, const char *key, const char *value)
{
    return kvt_put_in(f, 0, key, value, 0);
}

static inline int64_t kvt_delete(struct kv_fixture *f, const char *key, bool is_prefix,
                                 size_t count)
{
    struct got g = {0};
    mr_kv_delete(f->kv[0], mr_str_c(key), is_prefix, kvt_done, &g);
    kvt_ok(f, &g);
    assert_int_equal(g.reply.result_count, 1);
    assert_int_equal(g.result->count, count);
    int64_t revision = g.reply.revision;
    kvt_fini(&g);
    return revision;
}

static inline void kvt_get(struct kv_fixture *f, unsigned conn, const char *key, struct got *g)
{
    *g = (struct got){0};
    mr_kv_get(f->kv[conn], mr_str_c(key), MR_KV_LINEARIZABLE, kvt_done, g);
    kvt_ok(f, g);
    assert_int_equal(g->reply.result_count, 1);
}

/* The key has that value; NULL: there is none. */
static inline void kvt_has(struct kv_fixture *f, const char *key, const char *value)
{
    struct got g;
    kvt_get(f, 1, key, &g);
    assert_int_equal(g.item != NULL, value != NULL);
    if (value) {
        assert_int_equal(g.result->count, 1);
        assert_int_equal(g.item->value.len, strlen(value));
        assert_memory_equal(g.item->value.ptr, value, strlen(value));
    }
    kvt_fini(&g);
}

static inline int64_t kvt_grant(struct kv_fixture *f, int64_t ttl_s)
{
    struct got g = {0};
    mr_kv_lease_grant(f->kv[0], ttl_s, kvt_done, &g);
    kvt_ok(f, &g);
    assert_true(g.reply.lease > 0);
    assert_true(g.reply.ttl_s >= ttl_s);
    int64_t lease = g.reply.lease;
    kvt_fini(&g);
    return lease;
}

/* Puts a key with a lease that ends soon: of a second, or of more on a machine so slow that it ends before the key
 * is there. */
static inline int64_t kvt_put_short_lived(struct kv_fixture *f, const char *key, const char *value)
{
    for (int64_t ttl_s = 1;; ttl_s *= 2) {
        struct got g = {0};
        int64_t lease = kvt_grant(f, ttl_s);
        mr_kv_put(f->kv[0], mr_str_c(key), kvt_bytes(value), lease, kvt_done, &g);
        kvt_wait(f, &g.done);
        bool is_there = g.rc == MR_OK;
        assert_true(is_there || g.rc == MR_E_NOT_FOUND);
        kvt_fini(&g);
        if (is_there) {
            return lease;
        }
    }
}

/* ---- watches ---- */

struct seen {
    struct mr_kv_watch *watch;
    struct mr_arena arena;
    MR_VEC(struct mr_kv_change) changes;
    MR_VEC(int64_t) calls; /* revision of each */
    size_t last_count;     /* changes of the last call */
    bool resync;
    struct mr_err why;
};

static inline void kvt_on_changes(void *ctx, int64_t revision, const struct mr_kv_change *changes,
                                  size_t count)
{
    struct seen *s = ctx;

    assert_false(s->resync);
    for (size_t i = 0; i < count; i++) {
        struct mr_kv_change copy = changes[i];
        assert_true(copy.item.mod_revision <= revision);
        assert_int_equal(kv_item_copy(&changes[i].item, &s->arena, &copy.item, NULL), MR_OK);
        MR_VEC_PUSH(&s->changes, copy);
    }
    MR_VEC_PUSH(&s->calls, revision);
    s->last_count = count;
}

static inline void kvt_on_resync(void *ctx, const struct mr_err *why)
{
    struct seen *s = ctx;
    assert_false(s->resync);
    s->resync = true;
    s->why = *why;
    s->watch = NULL;
}

static inline void kvt_watch(struct kv_fixture *f, unsigned conn, const char *prefix, int64_t from,
                             struct seen *s)
{
    static const struct mr_kv_watch_events events = {kvt_on_changes, kvt_on_resync};
    *s = (struct seen){0};
    mr_arena_init(&s->arena, 0, SIZE_MAX);
    s->watch = mr_kv_watch(f->kv[conn], mr_str_c(prefix), from, &events, s);
    assert_non_null(s->watch);
}

static inline void kvt_seen_fini(struct seen *s)
{
    mr_kv_watch_stop(&s->watch);
    mr_arena_fini(&s->arena);
    MR_VEC_FINI(&s->changes);
    MR_VEC_FINI(&s->calls);
}

static inline void kvt_wait_changes(struct kv_fixture *f, const struct seen *s, size_t count)
{
    while (s->changes.len < count) {
        assert_false(s->resync);
        f->pump(f);
    }
    assert_int_equal(s->changes.len, count);
}

/* Change number i is a put of that value, NULL: a delete. */
static inline void kvt_change(const struct seen *s, size_t i, const char *key, const char *value)
{
    const struct mr_kv_change *c = &s->changes.at[i];
    assert_int_equal(c->is_delete, value == NULL);
    assert_int_equal(c->item.key.len, strlen(key));
    assert_memory_equal(c->item.key.ptr, key, strlen(key));
    assert_int_equal(c->item.value.len, value ? strlen(value) : 0);
    if (value) {
        assert_memory_equal(c->item.value.ptr, value, strlen(value));
    }
}

#endif
