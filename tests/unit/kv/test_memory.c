#include "base/clock.h"
#include "conformance.h"
#include "kv/memory.h"

static void pump(struct kv_fixture *f)
{
    int64_t next = mr_kv_memory_next_ns(f->own);
    assert_true(next != INT64_MAX); /* otherwise nothing would ever happen */
    mr_kv_memory_step(f->own, next);
}

static void compact(struct kv_fixture *f, int64_t revision)
{
    mr_kv_memory_compact(f->own, revision);
}

static int setup_with(void **state, const struct mr_kv_memory_options *options)
{
    struct kv_fixture *f = calloc(1, sizeof *f);

    f->own = mr_kv_memory_new(options);
    f->pump = pump;
    f->compact = compact;
    for (int i = 0; i < 2; i++) {
        struct mr_kv_options o = {.on_state = kvt_on_state, .ctx = &f->state[i]};
        f->kv[i] = mr_kv_memory_open(f->own, &o);
    }
    *state = f;
    return 0;
}

static int setup(void **state)
{
    return setup_with(state, NULL);
}

static int setup_small(void **state)
{
    return setup_with(state, &(struct mr_kv_memory_options){
                                 .now_ns = 100, .history_events = 4, .history_bytes = 4096});
}

static int setup_slow(void **state)
{
    setup(state);
    struct kv_fixture *f = *state;
    mr_kv_memory_set_delay(f->kv[0], 3 * MR_NS_PER_MS);
    mr_kv_memory_set_delay(f->kv[1], 70 * MR_NS_PER_MS);
    return 0;
}

static int teardown(void **state)
{
    struct kv_fixture *f = *state;
    struct mr_kv_memory *m = f->own;

    mr_kv_free(&f->kv[0]);
    mr_kv_free(&f->kv[1]);
    mr_kv_memory_free(&m);
    assert_null(m);
    free(f);
    return 0;
}

static void a_delay_is_the_time_there_and_back(void **state)
{
    struct kv_fixture *f = *state;
    struct got g = {0};

    mr_kv_memory_step(f->own, 1000);
    mr_kv_memory_set_delay(f->kv[0], 500);
    mr_kv_get(f->kv[0], MR_STR("k"), MR_KV_LOCAL, kvt_done, &g);
    assert_int_equal(mr_kv_memory_next_ns(f->own), 1500);
    mr_kv_memory_step(f->own, 1999);
    assert_false(g.done);
    assert_int_equal(mr_kv_memory_next_ns(f->own), 2000);
    assert_int_equal(mr_kv_memory_step(f->own, 2000), 1);
    assert_true(g.done);
    kvt_fini(&g);
}

struct chain {
    struct kv_fixture *f;
    int left;
};

static void again(void *ctx, int rc, const struct mr_err *err, const struct mr_kv_reply *reply)
{
    struct chain *c = ctx;
    assert_int_equal(rc, MR_OK);
    (void)err;
    (void)reply;
    if (c->left-- > 0) {
        mr_kv_get(c->f->kv[0], MR_STR("k"), MR_KV_LOCAL, again, c);
    }
}

static void a_step_ends_although_callbacks_start_calls(void **state)
{
    struct chain c = {*state, 5};
    again(&c, MR_OK, NULL, NULL);
    for (int left = 4; left >= 0; left--) {
        assert_int_equal(c.left, left);
        mr_kv_memory_step(c.f->own, 0);
    }
}

static void a_lease_ends_at_its_time(void **state)
{
    struct kv_fixture *f = *state;
    int64_t lease = kvt_grant(f, 10);
    struct got g = {0};

    kvt_put_in(f, 0, "l", "v", lease);
    mr_kv_memory_step(f->own, 7 * MR_NS_PER_S);
    mr_kv_lease_keep(f->kv[0], lease, kvt_done, &g);
    kvt_ok(f, &g);
    kvt_fini(&g);
    mr_kv_memory_step(f->own, 17 * MR_NS_PER_S - 1);
    kvt_has(f, "l", "v");
    mr_kv_memory_step(f->own, 17 * MR_NS_PER_S);
    kvt_has(f, "l", NULL);
}

static void a_cut_connection_waits_and_goes_on(void **state)
{
    struct kv_fixture *f = *state;
    struct got read = {0}, sent = {0}, waits = {0};
    struct seen s;

    kvt_put(f, "k", "1");
    kvt_watch(f, 0, "", 0, &s);
    kvt_put(f, "k", "2");
    kvt_wait_changes(f, &s, 1);
    mr_kv_get(f->kv[0], MR_STR("k"), MR_KV_LINEARIZABLE, kvt_done, &read);
    mr_kv_put(f->kv[0], MR_STR("sent"), kvt_bytes("x"), 0, kvt_done, &sent);
    mr_kv_memory_cut(f->kv[0], true);
    kvt_fails(f, &sent, MR_E_UNAVAILABLE);
    assert_int_equal(f->state[0], MR_KV_LOST);
    mr_kv_put(f->kv[0], MR_STR("waits"), kvt_bytes("x"), 0, kvt_done, &waits);
    kvt_put_in(f, 1, "k", "3", 0);
    kvt_put_in(f, 1, "k", "4", 0);
    assert_false(read.done || waits.done);
    mr_kv_memory_cut(f->kv[0], false);
    kvt_ok(f, &read);
    assert_memory_equal(read.item->value.ptr, "4", 1);
    kvt_ok(f, &waits);
    kvt_wait_changes(f, &s, 4);
    kvt_change(&s, 1, "k", "3");
    kvt_change(&s, 2, "k", "4");
    kvt_change(&s, 3, "waits", "x");
    assert_int_equal(f->state[0], MR_KV_READY);
    kvt_has(f, "sent", NULL);
    kvt_fini(&read);
    kvt_fini(&waits);
    kvt_seen_fini(&s);
}

static void an_answer_that_is_lost_leaves_its_change(void **state)
{
    struct kv_fixture *f = *state;
    struct got g = {0};

    mr_kv_memory_set_delay(f->kv[0], 100);
    mr_kv_put(f->kv[0], MR_STR("k"), kvt_bytes("x"), 0, kvt_done, &g);
    mr_kv_memory_step(f->own, mr_kv_memory_next_ns(f->own));
    mr_kv_memory_step(f->own, 150);
    mr_kv_memory_cut(f->kv[0], true);
    kvt_fails(f, &g, MR_E_UNAVAILABLE);
    kvt_has(f, "k", "x");
}

static void a_call_ends_at_its_deadline(void **state)
{
    struct kv_fixture *f = *state;
    struct got g = {0}, slow = {0};

    mr_kv_memory_cut(f->kv[0], true);
    mr_kv_get(f->kv[0], MR_STR("k"), MR_KV_LOCAL, kvt_done, &g);
    mr_kv_memory_set_delay(f->kv[1], 100 * MR_NS_PER_S);
    mr_kv_put(f->kv[1], MR_STR("k"), kvt_bytes("x"), 0, kvt_done, &slow);
    mr_kv_memory_step(f->own, 5 * MR_NS_PER_S - 1);
    assert_false(g.done || slow.done);
    mr_kv_memory_step(f->own, 5 * MR_NS_PER_S);
    assert_true(g.done && slow.done);
    kvt_fails(f, &g, MR_E_DEADLINE);
    kvt_fails(f, &slow, MR_E_DEADLINE);
    mr_kv_memory_step(f->own, 300 * MR_NS_PER_S); /* and is carried out all the same */
    mr_kv_memory_set_delay(f->kv[1], 0);
    kvt_has(f, "k", "x");
}

static void an_erased_store_begins_again(void **state)
{
    struct kv_fixture *f = *state;
    struct seen near, far;

    kvt_put(f, "k", "1");
    kvt_watch(f, 0, "", 0, &near);
    kvt_watch(f, 1, "", 0, &far);
    kvt_put(f, "k", "2");
    kvt_wait_changes(f, &near, 1);
    kvt_wait_changes(f, &far, 1);
    mr_kv_memory_cut(f->kv[1], true);
    mr_kv_memory_erase(f->own);
    kvt_wait(f, &near.resync);
    assert_false(far.resync);
    for (int i = 0; i < 10; i++) {
        kvt_put(f, "other", "x"); /* revisions beyond those before */
    }
    mr_kv_memory_cut(f->kv[1], false);
    kvt_wait(f, &far.resync);
    assert_int_equal(far.changes.len, 1);
    kvt_has(f, "k", NULL);
    kvt_seen_fini(&near);
    kvt_seen_fini(&far);
}

static void history_is_bounded(void **state)
{
    struct kv_fixture *f = *state;
    struct seen old, kept;
    char value[2] = "0";
    int64_t first = kvt_put(f, "k", "first");

    for (int i = 0; i < 8; i++) {
        value[0]++;
        kvt_put(f, "k", value);
    }
    kvt_watch(f, 0, "k", first, &old);
    kvt_watch(f, 1, "k", first + 5, &kept);
    kvt_wait(f, &old.resync);
    kvt_wait_changes(f, &kept, 4);
    kvt_change(&kept, 0, "k", "5");
    kvt_seen_fini(&old);
    kvt_seen_fini(&kept);
}

static void a_watch_without_changes_has_progress(void **state)
{
    struct kv_fixture *f = *state;
    struct seen s;
    char key[16];

    kvt_watch(f, 1, "quiet", 0, &s);
    for (int i = 0; i < 200; i++) {
        snprintf(key, sizeof key, "k%d", i);
        kvt_put(f, key, "");
    }
    while (!s.calls.len) {
        pump(f);
    }
    assert_int_equal(s.changes.len, 0);
    assert_true(s.calls.at[0] >= 64);
    kvt_seen_fini(&s);
}

static void stop_itself(void *ctx, int64_t revision, const struct mr_kv_change *changes,
                        size_t count)
{
    struct seen *s = ctx;
    kvt_on_changes(ctx, revision, changes, count);
    mr_kv_watch_stop(&s->watch);
}

static void a_watch_may_stop_itself(void **state)
{
    struct kv_fixture *f = *state;
    static const struct mr_kv_watch_events events = {stop_itself, kvt_on_resync};
    struct seen s = {0};

    mr_arena_init(&s.arena, 0, SIZE_MAX);
    s.watch = mr_kv_watch(f->kv[0], MR_STR("k"), 0, &events, &s);
    kvt_put(f, "k", "1");
    kvt_put(f, "k", "2");
    kvt_wait_changes(f, &s, 1);
    kvt_put(f, "k", "3");
    assert_int_equal(s.changes.len, 1);
    kvt_seen_fini(&s);
}

#define OWN(test)   cmocka_unit_test_setup_teardown(test, setup, teardown)
#define SMALL(test) cmocka_unit_test_setup_teardown(test, setup_small, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONFORMANCE_TABLE(setup, teardown),
        OWN(a_delay_is_the_time_there_and_back),
        OWN(a_step_ends_although_callbacks_start_calls),
        OWN(a_lease_ends_at_its_time),
        OWN(a_cut_connection_waits_and_goes_on),
        OWN(an_answer_that_is_lost_leaves_its_change),
        OWN(a_call_ends_at_its_deadline),
        OWN(an_erased_store_begins_again),
        OWN(a_watch_without_changes_has_progress),
        OWN(a_watch_may_stop_itself),
        SMALL(history_is_bounded),
    };
    const struct CMUnitTest slow[] = {CONFORMANCE_TABLE(setup_slow, teardown)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + cmocka_run_group_tests_name("slow", slow, NULL, NULL);
}
