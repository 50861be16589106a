#include "loop_fixture.h"

static void memory_is_stepped_by_the_loop(void **state)
{
    struct kv_fixture *f = kvt_loop_new();
    struct got g;
    (void)state;

    kvt_open(f, 0, "memory:");
    int64_t revision = kvt_put(f, "k", "v");
    kvt_get(f, 0, "k", &g);
    assert_int_equal(g.item->mod_revision, revision);
    kvt_fini(&g);
    assert_int_equal(f->state[0], MR_KV_READY);
    kvt_loop_free(f);
}

static void memory_ends_leases_by_the_loops_clock(void **state)
{
    struct kv_fixture *f = kvt_loop_new();
    struct seen s;
    (void)state;

    kvt_open(f, 0, "memory:");
    int64_t lease = kvt_grant(f, 1);
    kvt_watch(f, 0, "k", kvt_put_in(f, 0, "k", "v", lease), &s);
    kvt_wait_changes(f, &s, 2);
    kvt_change(&s, 1, "k", NULL);
    kvt_seen_fini(&s);
    kvt_loop_free(f);
}

static void other_texts_are_refused(void **state)
{
    static const char *const wrong[] = {"", "memory", "memory:x", "http://x", "x:"};
    struct mr_err err;
    (void)state;

    for (size_t i = 0; i < COUNT(wrong); i++) {
        assert_int_equal(mr_kv_check(mr_str_c(wrong[i]), &err), MR_E_INVALID);
        assert_true(strstr(err.msg, "registry"));
    }
    assert_int_equal(mr_kv_check(MR_STR("memory:"), &err), MR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_stepped_by_the_loop),
        cmocka_unit_test(memory_ends_leases_by_the_loops_clock),
        cmocka_unit_test(other_texts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
