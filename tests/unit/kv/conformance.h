/* The semantics of registries, as tests that each store runs. The including file says how a fixture is made:
 * CONFORMANCE_TABLE lists the tests for its own setup and teardown, which leave a `struct kv_fixture *` in *state.
 * Keys are empty at first; revisions are not, as stores may be shared by tests one after the other. */
#ifndef KV_CONFORMANCE_H
#define KV_CONFORMANCE_H

#include "kv_test.h"

static void puts_and_gets_count_versions_and_revisions(void **state)
{
    struct kv_fixture *f = *state;
    int64_t r1 = kvt_put(f, "k", "one"), r2 = kvt_put(f, "other", "x"), r3 = kvt_put(f, "k", "two");
    struct got g;

    assert_true(r1 < r2 && r2 < r3);
    kvt_get(f, 1, "k", &g);
    assert_true(g.reply.revision >= r3);
    assert_int_equal(g.result->count, 1);
    assert_false(g.result->more);
    assert_int_equal(g.item->create_revision, r1);
    assert_int_equal(g.item->mod_revision, r3);
    assert_int_equal(g.item->version, 2);
    assert_int_equal(g.item->lease, 0);
    assert_memory_equal(g.item->value.ptr, "two", 3);
    kvt_fini(&g);
}

static void a_key_that_is_not_there_has_no_item(void **state)
{
    struct kv_fixture *f = *state;
    struct got g;
    kvt_get(f, 0, "nothing", &g);
    assert_int_equal(g.result->count, 0);
    assert_false(g.result->more);
    kvt_fini(&g);
    kvt_has(f, "nothing", NULL);
}

static void a_local_read_is_answered(void **state)
{
    struct kv_fixture *f = *state;
    struct got g = {0};
    kvt_put(f, "k", "v");
    mr_kv_get(f->kv[0], MR_STR("k"), MR_KV_LOCAL, kvt_done, &g);
    kvt_ok(f, &g);
    assert_int_equal(g.result->count, 1);
    kvt_fini(&g);
}

static void keys_and_values_are_any_bytes(void **state)
{
    struct kv_fixture *f = *state;
    static const char key[] = "\0\xff/\n\x80z", value[] = "\xff\0\0\x01";
    struct got g = {0};

    mr_kv_put(f->kv[0], mr_str_n(key, 6), (mr_bytes){(const uint8_t *)value, 4}, 0, kvt_done, &g);
    kvt_ok(f, &g);
    kvt_fini(&g);
    mr_kv_get(f->kv[1], mr_str_n(key, 6), MR_KV_LINEARIZABLE, kvt_done, &g);
    kvt_ok(f, &g);
    assert_int_equal(g.item->key.len, 6);
    assert_memory_equal(g.item->key.ptr, key, 6);
    assert_int_equal(g.item->value.len, 4);
    assert_memory_equal(g.item->value.ptr, value, 4);
    kvt_fini(&g);
    kvt_put(f, "empty", "");
    kvt_has(f, "empty", "");
}

static void a_value_of_the_largest_size_is_kept(void **state)
{
    struct kv_fixture *f = *state;
    uint8_t *value = malloc(MR_KV_VALUE_MAX);
    struct got g = {0};

    for (size_t i = 0; i < MR_KV_VALUE_MAX; i++) {
        value[i] = (uint8_t)(i * 7 >> 3);
    }
    mr_kv_put(f->kv[0], MR_STR("large"), (mr_bytes){value, MR_KV_VALUE_MAX}, 0, kvt_done, &g);
    kvt_ok(f, &g);
    kvt_fini(&g);
    kvt_get(f, 1, "large", &g);
    assert_int_equal(g.item->value.len, MR_KV_VALUE_MAX);
    assert_memory_equal(g.item->value.ptr, value, MR_KV_VALUE_MAX);
    kvt_fini(&g);
    free(value);
}

static void what_is_beyond_the_limits_is_refused(void **state)
{
    struct kv_fixture *f = *state;
    static char key[MR_KV_KEY_MAX + 1];
    uint8_t *value = calloc(1, MR_KV_VALUE_MAX + 1);
    struct mr_kv_range range = {.is_prefix = true, .limit = MR_KV_PAGE_MAX + 1};
    struct got g = {0};

    memset(key, 'k', sizeof key);
    mr_kv_put(f->kv[0], MR_STR(""), kvt_bytes("v"), 0, kvt_done, &g);
    assert_false(g.done);
    kvt_fails(f, &g, MR_E_INVALID);
    mr_kv_get(f->kv[0], mr_str_n(key, sizeof key), MR_KV_LOCAL, kvt_done, &g);
    kvt_fails(f, &g, MR_E_INVALID);
    mr_kv_put(f->kv[0], MR_STR("k"), (mr_bytes){value, MR_KV_VALUE_MAX + 1}, 0, kvt_done, &g);
    kvt_fails(f, &g, MR_E_INVALID);
    mr_kv_delete(f->kv[0], MR_STR(""), true, kvt_done, &g);
    kvt_fails(f, &g, MR_E_INVALID);
    mr_kv_range(f->kv[0], &range, kvt_done, &g);
    kvt_fails(f, &g, MR_E_INVALID);
    mr_kv_lease_grant(f->kv[0], 0, kvt_done, &g);
    kvt_fails(f, &g, MR_E_INVALID);
    mr_kv_lease_grant(f->kv[0], MR_KV_TTL_MAX_S + 1, kvt_done, &g);
    kvt_fails(f, &g, MR_E_INVALID);
    assert_null(mr_kv_watch(f->kv[0], mr_str_n(key, sizeof key), 0, NULL, NULL));
    assert_null(mr_kv_watch(f->kv[0], MR_STR("p"), -1, NULL, NULL));
    mr_kv_put(f->kv[0], mr_str_n(key, MR_KV_KEY_MAX), kvt_bytes("v"), 0, kvt_done, &g);
    kvt_ok(f, &g);
    kvt_fini(&g);
    free(value);
}

/* ---- ranges ---- */

static void a_prefix_is_read_in_pages(void **state)
{
    struct kv_fixture *f = *state;
    char key[16], last[16] = "";
    struct mr_kv_range range = {.key = MR_STR("p/"), .is_prefix = true, .limit = 7};
    size_t total = 0;

    kvt_put(f, "p", "before");
    kvt_put(f, "p0", "after");
    for (int i = 24; i >= 0; i--) {
        snprintf(key, sizeof key, "p/%02d", i);
        kvt_put(f, key, key);
    }
    for (bool more = true; more;) {
        struct got g = {0};
        range.after = mr_str_c(last);
        mr_kv_range(f->kv[1], &range, kvt_done, &g);
        kvt_ok(f, &g);
        for (size_t i = 0; i < g.result->count; i++, total++) {
            snprintf(key, sizeof key, "p/%02zu", total);
            assert_true(mr_str_eq_c(g.result->items[i].key, key));
            assert_int_equal(g.result->items[i].value.len, 4);
        }
        more = g.result->more;
        assert_int_equal(g.result->count, more ? 7 : 4);
        memcpy(last, key, sizeof last);
        kvt_fini(&g);
    }
    assert_int_equal(total, 25);
}

static void a_page_can_be_of_keys_alone_and_of_all(void **state)
{
    struct kv_fixture *f = *state;
    struct mr_kv_range all = {.is_prefix = true, .keys_only = true};
    struct got g = {0};

    kvt_put(f, "a", "1");
    kvt_put(f, "b", "2");
    kvt_put(f, "\xff\xff", "3");
    mr_kv_range(f->kv[0], &all, kvt_done, &g);
    kvt_ok(f, &g);
    assert_int_equal(g.result->count, 3);
    assert_int_equal(g.item->value.len, 0);
    assert_true(g.item->mod_revision > 0);
    kvt_fini(&g);
    all.key = MR_STR("\xff");
    mr_kv_range(f->kv[0], &all, kvt_done, &g);
    kvt_ok(f, &g);
    assert_int_equal(g.result->count, 1);
    kvt_fini(&g);
    all.key = MR_STR("\xff\xff");
    all.after = MR_STR("a"); /* before the prefix */
    mr_kv_range(f->kv[0], &all, kvt_done, &g);
    kvt_ok(f, &g);
    assert_int_equal(g.result->count, 1);
    kvt_fini(&g);
}

static void deletes_count_what_they_delete(void **state)
{
    struct kv_fixture *f = *state;
    kvt_put(f, "d/1", "x");
    kvt_put(f, "d/2", "x");
    kvt_put(f, "d", "x");
    int64_t before = kvt_put(f, "e", "x");
    assert_int_equal(kvt_delete(f, "d/0", false, 0), before);
    assert_int_equal(kvt_delete(f, "none", true, 0), before);
    assert_int_equal(kvt_delete(f, "d/", true, 2), before + 1);
    assert_int_equal(kvt_delete(f, "d", false, 1), before + 2);
    kvt_has(f, "d/1", NULL);
    kvt_has(f, "e", "x");
    /* A key that comes back begins again. */
    int64_t again = kvt_put(f, "d", "y");
    struct got g;
    kvt_get(f, 0, "d", &g);
    assert_int_equal(g.item->version, 1);
    assert_int_equal(g.item->create_revision, again);
    kvt_fini(&g);
}

/* ---- transactions ---- */

static void a_key_is_created_once(void **state)
{
    struct kv_fixture *f = *state;
    struct mr_kv_compare absent = {MR_STR("c"), 0};
    struct mr_kv_op put = {.kind = MR_KV_PUT, .key = MR_STR("c"), .value = kvt_bytes("first")};
    struct mr_kv_op get = {.kind = MR_KV_GET, .key = MR_STR("c")};
    struct mr_kv_txn txn = {&absent, 1, &put, 1, &get, 1};
    struct got g = {0};

    mr_kv_txn(f->kv[0], &txn, kvt_done, &g);
    kvt_ok(f, &g);
    int64_t created = g.reply.revision;
    assert_true(g.reply.succeeded);
    assert_int_equal(g.reply.result_count, 1);
    kvt_fini(&g);
    put.value = kvt_bytes("second");
    mr_kv_txn(f->kv[1], &txn, kvt_done, &g);
    kvt_ok(f, &g);
    assert_false(g.reply.succeeded);
    assert_int_equal(g.reply.revision, created);
    assert_int_equal(g.item->mod_revision, created);
    assert_memory_equal(g.item->value.ptr, "first", 5);
    kvt_fini(&g);
}

static void a_compare_holds_for_one_revision(void **state)
{
    struct kv_fixture *f = *state;
    int64_t old = kvt_put(f, "c", "1"), now = kvt_put(f, "c", "2");
    struct mr_kv_compare compares[] = {{MR_STR("c"), old}, {MR_STR("absent"), 0}};
    struct mr_kv_op put = {.kind = MR_KV_PUT, .key = MR_STR("c"), .value = kvt_bytes("3")};
    struct mr_kv_txn txn = {compares, 2, &put, 1, NULL, 0};
    struct got g = {0};

    mr_kv_txn(f->kv[0], &txn, kvt_done, &g);
    kvt_ok(f, &g);
    assert_false(g.reply.succeeded);
    assert_int_equal(g.reply.result_count, 0);
    kvt_fini(&g);
    compares[0].mod_revision = now;
    mr_kv_txn(f->kv[0], &txn, kvt_done, &g);
    kvt_ok(f, &g);
    assert_true(g.reply.succeeded);
    kvt_fini(&g);
    kvt_has(f, "c", "3");
}

static void a_transaction_is_one_revision_and_sees_itself(void **state)
{
    struct kv_fixture *f = *state;
    kvt_put(f, "t/a", "old");
    kvt_put(f, "t/gone", "x");
    struct mr_kv_op ops[] = {
        {.kind = MR_KV_GET, .key = MR_STR("t/a")},
        {.kind = MR_KV_PUT, .key = MR_STR("t/a"), .value = kvt_bytes("new")},
        {.kind = MR_KV_PUT, .key = MR_STR("t/b"), .value = kvt_bytes("b")},
        {.kind = MR_KV_DELETE, .key = MR_STR("t/gone")},
        {.kind = MR_KV_GET, .key = MR_STR("t/"), .is_prefix = true},
    };
    struct mr_kv_txn txn = {.then = ops, .then_count = COUNT(ops)};
    struct got g = {0};

    mr_kv_txn(f->kv[0], &txn, kvt_done, &g);
    kvt_ok(f, &g);
    int64_t revision = g.reply.revision;
    assert_true(g.reply.succeeded);
    assert_int_equal(g.reply.result_count, COUNT(ops));
    assert_memory_equal(g.reply.results[0].items[0].value.ptr, "old", 3);
    assert_int_equal(g.reply.results[3].count, 1);
    assert_int_equal(g.reply.results[4].count, 2);
    assert_memory_equal(g.reply.results[4].items[0].value.ptr, "new", 3);
    assert_int_equal(g.reply.results[4].items[0].mod_revision, revision);
    assert_int_equal(g.reply.results[4].items[1].mod_revision, revision);
    kvt_fini(&g);
    assert_int_equal(kvt_put(f, "t/c", "c"), revision + 1);
}

static void a_transaction_changes_a_key_once(void **state)
{
    struct kv_fixture *f = *state;
    struct mr_kv_op twice[] = {
        {.kind = MR_KV_PUT, .key = MR_STR("t/a"), .value = kvt_bytes("1")},
        {.kind = MR_KV_PUT, .key = MR_STR("t/a"), .value = kvt_bytes("2")},
    };
    struct mr_kv_txn txn = {.then = twice, .then_count = 2};
    static struct mr_kv_op many[MR_KV_OPS_MAX + 1];
    struct got g = {0};

    mr_kv_txn(f->kv[0], &txn, kvt_done, &g);
    kvt_fails(f, &g, MR_E_INVALID);
    twice[1] = (struct mr_kv_op){.kind = MR_KV_DELETE, .key = MR_STR("t/"), .is_prefix = true};
    mr_kv_txn(f->kv[0], &txn, kvt_done, &g);
    kvt_fails(f, &g, MR_E_INVALID);
    for (size_t i = 0; i < COUNT(many); i++) {
        many[i] = (struct mr_kv_op){.kind = MR_KV_GET, .key = MR_STR("x")};
    }
    txn = (struct mr_kv_txn){.then = many, .then_count = COUNT(many)};
    mr_kv_txn(f->kv[0], &txn, kvt_done, &g);
    kvt_fails(f, &g, MR_E_INVALID);
    txn.then_count--;
    mr_kv_txn(f->kv[0], &txn, kvt_done, &g);
    kvt_ok(f, &g);
    kvt_fini(&g);
    kvt_has(f, "t/a", NULL);
}

/* ---- leases ---- */

static void keys_end_with_their_lease_as_one_change(void **state)
{
    struct kv_fixture *f = *state;
    int64_t lease = kvt_grant(f, 60);
    struct seen s;
    struct got g = {0};

    kvt_put_in(f, 0, "l/a", "1", lease);
    kvt_put_in(f, 1, "l/b", "2", lease);
    kvt_put_in(f, 0, "l/c", "3", lease);
    int64_t from = kvt_put(f, "l/c", "stays") + 1; /* without the lease from now on */
    kvt_get(f, 1, "l/a", &g);
    assert_int_equal(g.item->lease, lease);
    kvt_fini(&g);
    kvt_watch(f, 1, "l/", from, &s);
    mr_kv_lease_keep(f->kv[1], lease, kvt_done, &g);
    kvt_ok(f, &g);
    assert_int_equal(g.reply.lease, lease);
    assert_true(g.reply.ttl_s >= 60);
    kvt_fini(&g);
    mr_kv_lease_revoke(f->kv[0], lease, kvt_done, &g);
    kvt_ok(f, &g);
    kvt_fini(&g);
    kvt_wait_changes(f, &s, 2);
    kvt_change(&s, 0, "l/a", NULL);
    kvt_change(&s, 1, "l/b", NULL);
    assert_int_equal(s.changes.at[0].item.mod_revision, s.changes.at[1].item.mod_revision);
    assert_int_equal(s.last_count, 2);
    kvt_has(f, "l/c", "stays");
    mr_kv_lease_keep(f->kv[0], lease, kvt_done, &g);
    kvt_fails(f, &g, MR_E_NOT_FOUND);
    mr_kv_lease_revoke(f->kv[0], lease, kvt_done, &g);
    kvt_fails(f, &g, MR_E_NOT_FOUND);
    kvt_seen_fini(&s);
}

static void a_put_needs_its_lease(void **state)
{
    struct kv_fixture *f = *state;
    struct mr_kv_op ops[] = {
        {.kind = MR_KV_PUT, .key = MR_STR("x"), .value = kvt_bytes("1")},
        {.kind = MR_KV_PUT, .key = MR_STR("y"), .value = kvt_bytes("1"), .lease = 4711},
    };
    struct mr_kv_txn txn = {.then = ops, .then_count = 2};
    struct got g = {0};

    mr_kv_put(f->kv[0], MR_STR("x"), kvt_bytes("1"), 4711, kvt_done, &g);
    kvt_fails(f, &g, MR_E_NOT_FOUND);
    mr_kv_txn(f->kv[0], &txn, kvt_done, &g);
    kvt_fails(f, &g, MR_E_NOT_FOUND);
    kvt_has(f, "x", NULL);
}

static void a_lease_that_is_not_kept_ends(void **state)
{
    struct kv_fixture *f = *state;
    int64_t before = kvt_put(f, "before", ""), lease = kvt_put_short_lived(f, "l", "1");
    struct seen s;
    struct got g = {0};

    kvt_watch(f, 1, "l", before + 1, &s);
    kvt_wait_changes(f, &s, 2);
    kvt_change(&s, 0, "l", "1");
    kvt_change(&s, 1, "l", NULL);
    kvt_seen_fini(&s);
    mr_kv_lease_keep(f->kv[0], lease, kvt_done, &g);
    kvt_fails(f, &g, MR_E_NOT_FOUND);
}

/* ---- watches ---- */

static void a_watch_sees_its_prefix_in_order(void **state)
{
    struct kv_fixture *f = *state;
    struct seen s, past;

    int64_t first = kvt_put(f, "w/a", "0");
    kvt_watch(f, 0, "w/", first + 1, &s);
    kvt_put_in(f, 0, "w/a", "1", 0);
    kvt_put_in(f, 1, "v", "other", 0);
    kvt_put_in(f, 1, "w/b", "2", 0);
    kvt_delete(f, "w/", true, 2);
    kvt_wait_changes(f, &s, 4);
    kvt_change(&s, 0, "w/a", "1");
    kvt_change(&s, 1, "w/b", "2");
    kvt_change(&s, 2, "w/a", NULL);
    kvt_change(&s, 3, "w/b", NULL);
    assert_int_equal(s.changes.at[0].item.version, 2);
    assert_int_equal(s.changes.at[0].item.create_revision, first);
    for (size_t i = 1; i < s.calls.len; i++) {
        assert_true(s.calls.at[i] > s.calls.at[i - 1]);
    }
    /* The same again, by one that comes later. */
    kvt_watch(f, 1, "w/", first, &past);
    kvt_wait_changes(f, &past, 5);
    kvt_change(&past, 0, "w/a", "0");
    kvt_change(&past, 4, "w/b", NULL);
    kvt_seen_fini(&s);
    kvt_put(f, "w/c", "3"); /* seen by the other one only */
    kvt_wait_changes(f, &past, 6);
    kvt_seen_fini(&past);
}

static void a_watch_of_all_keys_sees_all(void **state)
{
    struct kv_fixture *f = *state;
    struct seen s;
    kvt_watch(f, 1, "", kvt_put(f, "a", "1"), &s);
    kvt_put(f, "z", "2");
    kvt_wait_changes(f, &s, 2);
    kvt_change(&s, 0, "a", "1");
    kvt_change(&s, 1, "z", "2");
    kvt_seen_fini(&s);
}

static void changes_of_a_transaction_come_together(void **state)
{
    struct kv_fixture *f = *state;
    static struct mr_kv_op ops[100];
    static char keys[100][8];
    struct mr_kv_txn txn = {.then = ops, .then_count = COUNT(ops)};
    struct seen s;
    struct got g = {0};

    for (size_t i = 0; i < COUNT(ops); i++) {
        snprintf(keys[i], sizeof keys[i], "t/%03zu", i);
        ops[i] =
            (struct mr_kv_op){.kind = MR_KV_PUT, .key = mr_str_c(keys[i]), .value = kvt_bytes("v")};
    }
    kvt_watch(f, 1, "t/", kvt_put(f, "before", "") + 1, &s);
    mr_kv_txn(f->kv[0], &txn, kvt_done, &g);
    kvt_ok(f, &g);
    kvt_fini(&g);
    kvt_wait_changes(f, &s, COUNT(ops));
    assert_int_equal(s.last_count, COUNT(ops));
    kvt_seen_fini(&s);
}

static void a_watch_of_dropped_changes_has_to_read_again(void **state)
{
    struct kv_fixture *f = *state;
    struct seen s;
    int64_t first = kvt_put(f, "w", "1");

    kvt_put(f, "w", "2");
    int64_t last = kvt_put(f, "w", "3");
    f->compact(f, last);
    kvt_watch(f, 1, "w", first, &s);
    kvt_wait(f, &s.resync);
    assert_int_equal(s.changes.len, 0);
    assert_null(s.watch);
    kvt_seen_fini(&s);
    kvt_has(f, "w", "3");
    kvt_watch(f, 1, "w", last + 1, &s); /* what comes now is not affected */
    kvt_put(f, "w", "4");
    kvt_wait_changes(f, &s, 1);
    kvt_seen_fini(&s);
}

/* ---- calls ---- */

static void a_cancelled_call_says_so(void **state)
{
    struct kv_fixture *f = *state;
    struct got g = {0}, next = {0};
    struct mr_kv_call *call = mr_kv_get(f->kv[0], MR_STR("k"), MR_KV_LINEARIZABLE, kvt_done, &g);

    mr_kv_cancel(call);
    assert_false(g.done);
    kvt_fails(f, &g, MR_E_CANCELLED);
    mr_kv_get(f->kv[0], MR_STR("k"), MR_KV_LINEARIZABLE, kvt_done, &next);
    kvt_ok(f, &next);
    kvt_fini(&next);
}

static void many_calls_are_answered(void **state)
{
    struct kv_fixture *f = *state;
    static struct got got[1000];
    char key[16];
    struct mr_kv_range all = {.key = MR_STR("m/"), .is_prefix = true, .keys_only = true};
    struct got g = {0};

    for (size_t i = 0; i < COUNT(got); i++) {
        got[i] = (struct got){0};
        snprintf(key, sizeof key, "m/%zu", i);
        mr_kv_put(f->kv[i % 2], mr_str_c(key), kvt_bytes(key), 0, kvt_done, &got[i]);
    }
    for (size_t i = 0; i < COUNT(got); i++) {
        kvt_ok(f, &got[i]);
        kvt_fini(&got[i]);
    }
    mr_kv_range(f->kv[0], &all, kvt_done, &g);
    kvt_ok(f, &g);
    assert_int_equal(g.result->count, COUNT(got));
    kvt_fini(&g);
}

static void a_freed_connection_ends_its_calls(void **state)
{
    struct kv_fixture *f = *state;
    struct got g = {0};
    struct seen s;

    kvt_watch(f, 0, "k", 0, &s);
    mr_kv_get(f->kv[0], MR_STR("k"), MR_KV_LINEARIZABLE, kvt_done, &g);
    mr_kv_free(&f->kv[0]);
    assert_null(f->kv[0]);
    assert_true(g.done);
    assert_int_equal(g.rc, MR_E_CANCELLED);
    s.watch = NULL;
    kvt_seen_fini(&s);
    struct got other = {0};
    mr_kv_get(f->kv[1], MR_STR("k"), MR_KV_LINEARIZABLE, kvt_done, &other);
    kvt_ok(f, &other);
    kvt_fini(&other);
}

static void the_state_is_reported(void **state)
{
    struct kv_fixture *f = *state;
    while (f->state[0] != MR_KV_READY || f->state[1] != MR_KV_READY) {
        f->pump(f);
    }
    assert_int_equal(mr_kv_state(f->kv[0]), MR_KV_READY);
    assert_true(strlen(mr_kv_name(f->kv[0])) > 0);
}

#define CONFORMANCE_ROW(test, setup, teardown)                                                     \
    cmocka_unit_test_setup_teardown(test, setup, teardown)
#define CONFORMANCE_TABLE(S, T)                                                                    \
    CONFORMANCE_ROW(puts_and_gets_count_versions_and_revisions, S, T),                             \
        CONFORMANCE_ROW(a_key_that_is_not_there_has_no_item, S, T),                                \
        CONFORMANCE_ROW(a_local_read_is_answered, S, T),                                           \
        CONFORMANCE_ROW(keys_and_values_are_any_bytes, S, T),                                      \
        CONFORMANCE_ROW(a_value_of_the_largest_size_is_kept, S, T),                                \
        CONFORMANCE_ROW(what_is_beyond_the_limits_is_refused, S, T),                               \
        CONFORMANCE_ROW(a_prefix_is_read_in_pages, S, T),                                          \
        CONFORMANCE_ROW(a_page_can_be_of_keys_alone_and_of_all, S, T),                             \
        CONFORMANCE_ROW(deletes_count_what_they_delete, S, T),                                     \
        CONFORMANCE_ROW(a_key_is_created_once, S, T),                                              \
        CONFORMANCE_ROW(a_compare_holds_for_one_revision, S, T),                                   \
        CONFORMANCE_ROW(a_transaction_is_one_revision_and_sees_itself, S, T),                      \
        CONFORMANCE_ROW(a_transaction_changes_a_key_once, S, T),                                   \
        CONFORMANCE_ROW(keys_end_with_their_lease_as_one_change, S, T),                            \
        CONFORMANCE_ROW(a_put_needs_its_lease, S, T),                                              \
        CONFORMANCE_ROW(a_lease_that_is_not_kept_ends, S, T),                                      \
        CONFORMANCE_ROW(a_watch_sees_its_prefix_in_order, S, T),                                   \
        CONFORMANCE_ROW(a_watch_of_all_keys_sees_all, S, T),                                       \
        CONFORMANCE_ROW(changes_of_a_transaction_come_together, S, T),                             \
        CONFORMANCE_ROW(a_watch_of_dropped_changes_has_to_read_again, S, T),                       \
        CONFORMANCE_ROW(a_cancelled_call_says_so, S, T),                                           \
        CONFORMANCE_ROW(many_calls_are_answered, S, T),                                            \
        CONFORMANCE_ROW(a_freed_connection_ends_its_calls, S, T),                                  \
        CONFORMANCE_ROW(the_state_is_reported, S, T)

#endif
