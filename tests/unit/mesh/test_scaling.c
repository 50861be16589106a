/* Fleets in the simulator: how many copies there are and where, and what happens to them when instances come and go. */
#include "sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void second_copy_comes_with_a_use_in_its_window(void **state)
{
    static const int64_t uses[] = {0, 1, 12};
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    s.options.second_min_ns = 4 * S;
    s.options.second_max_ns = 10 * S;
    sim_add_many(&s, 3, 100 * MIB, 4);
    sim_register(&s, 0, 1, MIB, 20 * MS);
    int64_t begin = s.now;
    for (unsigned i = 0; i < 3; i++) {
        sim_run(&s, begin + uses[i] * S - s.now);
        sim_call(&s, 0, 0);
        assert_true(sim_settle(&s, S));
    }
    sim_run(&s, S);
    assert_int_equal(sim_copies(&s, 0), 1);
    sim_run(&s, begin + 17 * S - s.now);
    sim_call(&s, 0, 0);
    sim_run(&s, S);
    assert_int_equal(sim_copies(&s, 0), 2);
    sim_fini(&s);
}

static void second_copy_comes_under_steady_use(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    s.options.second_min_ns = 4 * S;
    s.options.second_max_ns = 10 * S;
    sim_add_many(&s, 3, 100 * MIB, 4);
    sim_register(&s, 0, 1, MIB, 20 * MS);
    for (unsigned i = 0; i < 60; i++) {
        sim_call(&s, i % 3, 0);
        sim_run(&s, S);
    }
    assert_int_equal(sim_copies(&s, 0), 2);
    sim_fini(&s);
}

static void model_that_keeps_state_has_one_copy(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    s.options.second_min_ns = 4 * S;
    s.options.second_max_ns = 10 * S;
    sim_add_many(&s, 4, 100 * MIB, 4);
    sim_register(&s, 0, 1, MIB, 20 * MS);
    s.models[0].keeps_state = true;
    for (unsigned i = 0; i < 60; i++) {
        for (unsigned k = 0; k < 100; k++) { /* far more than a copy's share */
            sim_call(&s, k % 4, 0);
        }
        sim_run(&s, S);
    }
    assert_true(sim_settle(&s, S));
    assert_int_equal(sim_loads(&s), 1);
    for (size_t i = 0; i < s.calls.len; i++) {
        assert_int_equal(s.calls.at[i]->status, MR_OK);
        assert_int_equal(s.calls.at[i]->ran_at, s.calls.at[0]->ran_at);
    }
    sim_fini(&s);
}

/* Its load takes longer than the time between two looks for copies that are missing. */
static void model_that_keeps_state_has_one_copy_whatever_its_minimum(void **state)
{
    struct mesh_def def = {.type = MR_STR("t"), .min_copies = 3};
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 4, 100 * MIB, 4);
    sim_register(&s, 0, 2, MIB, 30 * S);
    s.models[0].keeps_state = true;
    sim_define(&s, 0, &def);
    sim_define(&s, 1, &def);
    sim_run(&s, 180 * S);
    assert_int_equal(sim_copies(&s, 0), 1);
    assert_int_equal(s.models[0].loads, 1);
    assert_int_equal(sim_copies(&s, 1), 3);
    sim_fini(&s);
}

/* Others are for what needs them in their processes. */
static void model_that_keeps_state_uses_one_of_its_copies(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 4, 100 * MIB, 4);
    sim_register(&s, 0, 1, MIB, 20 * MS);
    s.models[0].keeps_state = true;
    for (unsigned i = 0; i < 3; i++) {
        sim_call_local(&s, i, 0);
        assert_true(sim_settle(&s, S));
        sim_run(&s, S);
    }
    assert_int_equal(sim_copies(&s, 0), 3);
    for (unsigned i = 0; i < 40; i++) {
        sim_call(&s, i % 4, 0);
        sim_run(&s, 10 * MS);
    }
    assert_true(sim_settle(&s, S));
    for (size_t i = 0; i < s.calls.len; i++) {
        assert_int_equal(s.calls.at[i]->status, MR_OK);
        assert_int_equal(s.calls.at[i]->ran_at, s.calls.at[i < 3 ? i : 3]->ran_at);
    }
    sim_fini(&s);
}

static void zones_get_a_copy_each(void **state)
{
    (void)state;
    for (unsigned model = 0; model < 8; model++) {
        struct sim s;
        sim_init(&s, model);
        s.options.second_min_ns = 2 * S;
        s.options.second_max_ns = 60 * S;
        sim_add(&s, 100 * MIB, 4, "a", "");
        sim_add(&s, 100 * MIB, 4, "a", "");
        sim_add(&s, 100 * MIB, 4, "a", "");
        sim_add(&s, 100 * MIB, 4, "b", "");
        sim_run(&s, 100 * MS);
        sim_register(&s, 0, 8, MIB, 20 * MS);
        for (unsigned i = 0; i < 10; i++) {
            sim_call(&s, 0, model);
            sim_run(&s, S);
        }
        assert_int_equal(sim_copies(&s, model), 2);
        assert_int_equal(s.peers[3].in_runtime[model], 2);
        sim_fini(&s);
    }
}

static void labels_decide_where_a_type_may_be(void **state)
{
    static const mr_str gpu = MR_STR_INIT("gpu");
    static const mr_str none = MR_STR_INIT("none");
    static const struct mesh_constraint rules[] = {
        {.type = MR_STR_INIT("t"), .required = &gpu, .required_count = 1},
        {.type = MR_STR_INIT("other"), .preferred = &gpu, .preferred_count = 1},
        {.type = MR_STR_INIT("_default"), .required = &none, .required_count = 1}};
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    s.options.constraints = rules;
    s.options.constraint_count = 3;
    sim_add(&s, 100 * MIB, 4, "", "");
    sim_add(&s, 100 * MIB, 4, "", "gpu");
    sim_add(&s, 100 * MIB, 4, "", "");
    sim_run(&s, 100 * MS);
    sim_register(&s, 0, 12, MIB, 20 * MS);
    for (unsigned i = 8; i < 12; i++) {
        sim_define(&s, i, &(struct mesh_def){.type = i < 11 ? MR_STR("other") : MR_STR("new")});
    }
    sim_run(&s, 10 * MS);
    for (unsigned i = 0; i < 11; i++) {
        struct sim_call *c = sim_call(&s, i % 3, i);
        assert_true(sim_settle(&s, S));
        assert_int_equal(c->status, MR_OK);
        assert_int_equal(s.peers[1].in_runtime[i], 2);
    }
    struct sim_call *c = sim_call(&s, 0, 11);
    assert_true(sim_settle(&s, S));
    assert_int_equal(c->status, MR_E_UNAVAILABLE);
    assert_non_null(strstr(c->text, "[none]"));
    sim_fini(&s);
}

/* So many requests a minute, at peer 0. */
static void load(struct sim *s, unsigned model, unsigned per_minute, int64_t ns)
{
    int64_t end = s->now + ns;

    while (s->now < end) {
        sim_call(s, 0, model);
        sim_run(s, 60 * S / per_minute);
    }
}

static void copies_follow_the_rate_and_the_last_one_stays(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    s.sizes_are_declared = true;
    sim_add_many(&s, 3, 10 * MIB, 4);
    sim_register(&s, 0, 40, MIB, 20 * MS);
    sim_run(&s, 10 * MS);
    load(&s, 0, 6000, 21 * S); /* two windows */
    assert_int_equal(sim_copies(&s, 0), 3);
    sim_run(&s, 3600 * S); /* there is room: nothing goes */
    assert_int_equal(sim_copies(&s, 0), 3);
    for (unsigned i = 1; i < 25; i++) { /* it is full now, and the hot one is old */
        sim_call(&s, i % 3, i);
    }
    assert_true(sim_settle(&s, 10 * S));
    for (unsigned i = 0; i < 20; i++) {
        sim_run(&s, 360 * S);
        assert_true(sim_copies(&s, 0) >= 1);
    }
    assert_int_equal(sim_copies(&s, 0), 1);
    sim_fini(&s);
}

static void slow_requests_scale_by_how_many_run(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 3, 100 * MIB, 4);
    sim_register(&s, 0, 1, MIB, 20 * MS);
    s.models[0].run_ns = 10 * S;
    sim_run(&s, 10 * MS);
    load(&s, 0, 300, 25 * S); /* 50 run at once */
    assert_true(sim_copies(&s, 0) >= 2);
    assert_true(sim_settle(&s, 60 * S));
    sim_fini(&s);
}

static void minimum_of_copies_is_kept_and_not_evicted(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    s.sizes_are_declared = true;
    s.options.janitor_ns = 10 * S;
    sim_add_many(&s, 3, 10 * MIB, 4);
    sim_register(&s, 1, 60, MIB, 5 * MS);
    s.models[0] = s.models[1];
    sim_define(&s, 0, &(struct mesh_def){.type = MR_STR("t"), .size_bytes = MIB, .min_copies = 2});
    sim_run(&s, 25 * S);
    assert_int_equal(sim_copies(&s, 0), 2);
    for (unsigned i = 0; i < 600; i++) {
        sim_call(&s, i % 3, 1 + i % 60);
        sim_run(&s, 10 * MS);
    }
    assert_true(sim_settle(&s, 10 * S));
    assert_int_equal(sim_copies(&s, 0), 2);
    assert_int_equal(s.models[0].loads, 2);
    for (unsigned i = 0; i < 3; i++) {
        if (s.peers[i].in_runtime[0]) {
            sim_kill(&s, i);
            break;
        }
    }
    sim_run(&s, 60 * S); /* its lease ends, and there is another */
    assert_int_equal(sim_copies(&s, 0), 2);
    sim_fini(&s);
}

static void draining_fails_nobody_and_delays_nobody(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 3, 100 * MIB, 4);
    sim_register(&s, 0, 20, MIB, 5 * S); /* slow to load */
    for (unsigned i = 0; i < 20; i++) {
        sim_call(&s, i % 3, i);
    }
    assert_true(sim_settle(&s, 60 * S));
    sim_run(&s, S);
    size_t before = s.calls.len;
    sim_drain(&s, 1);
    for (unsigned i = 0; i < 6000 && !s.peers[1].is_drained; i++) {
        sim_call(&s, i % 3, i % 20);
        sim_run(&s, 10 * MS);
    }
    assert_true(s.peers[1].is_drained);
    sim_run(&s, S);
    sim_kill(&s, 1);
    for (unsigned i = 0; i < 100; i++) {
        sim_call(&s, i % 2 * 2, i % 20);
        sim_run(&s, 10 * MS);
    }
    assert_true(sim_settle(&s, 10 * S));
    for (size_t i = before; i < s.calls.len; i++) {
        const struct sim_call *c = s.calls.at[i];
        assert_int_equal(c->status, MR_OK);
        assert_true(c->end_ns - c->begin_ns < 50 * MS); /* never had to wait for a load */
    }
    sim_fini(&s);
}

static void copies_spread_to_an_instance_that_comes_back(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 3, 100 * MIB, 4);
    sim_register(&s, 0, 150, MIB, 20 * MS);
    for (unsigned i = 0; i < 150; i++) {
        sim_call(&s, i % 3, i);
    }
    assert_true(sim_settle(&s, 60 * S));
    sim_drain(&s, 2);
    for (unsigned i = 0; i < 600 && !s.peers[2].is_drained; i++) {
        sim_run(&s, 100 * MS);
    }
    assert_true(s.peers[2].is_drained);
    sim_kill(&s, 2);
    sim_restart(&s, 2);
    size_t before = s.calls.len;
    for (unsigned i = 0; i < 600; i++) {
        sim_call(&s, i % 3, i % 150);
        sim_run(&s, 200 * MS);
    }
    assert_true(sim_settle(&s, 10 * S));
    for (size_t i = before; i < s.calls.len; i++) {
        assert_int_equal(s.calls.at[i]->status, MR_OK);
    }
    assert_true(sim_copies_at(&s, 2) >= 25);
    sim_fini(&s);
}

/* Those that were to move have failed elsewhere. An hour later each gets a second copy, and keeps the first. */
static void move_that_came_to_nothing_is_forgotten(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 1, 100 * MIB, 4);
    sim_register(&s, 0, 50, MIB, 20 * MS);
    for (unsigned i = 0; i < 50; i++) {
        s.models[i].fail_at = 2;
        sim_call(&s, 0, i);
    }
    assert_true(sim_settle(&s, 60 * S));
    sim_add_many(&s, 1, 100 * MIB, 4);
    sim_run(&s, 60 * S);
    assert_true(s.peers[1].loads > 0);
    sim_run(&s, 3600 * S);
    for (unsigned i = 0; i < 50; i++) {
        s.models[i].fail_at = 0;
        sim_define(&s, i,
                   &(struct mesh_def){.type = MR_STR("t"), .path = MR_STR("/m"), .min_copies = 2});
    }
    sim_run(&s, 600 * S);
    for (unsigned i = 0; i < 50; i++) {
        assert_int_equal(sim_copies(&s, i), 2);
    }
    assert_int_equal(s.peers[0].unloads, 0);
    sim_fini(&s);
}

/* Copies that wait for their load at the other instance for longer than a move lasts. */
static void slow_moves_leave_one_copy(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 1, 100 * MIB, 8);
    sim_register(&s, 0, 40, 2 * MIB, 30 * S);
    for (unsigned i = 0; i < 40; i++) {
        sim_call(&s, 0, i);
    }
    assert_true(sim_settle(&s, 600 * S));
    sim_add_many(&s, 1, 100 * MIB, 1);
    sim_run(&s, 2400 * S);
    assert_true(s.peers[1].loads >
                4); /* the last of them more than two minutes after they were asked for */
    for (unsigned i = 0; i < 40; i++) {
        assert_int_equal(sim_copies(&s, i), 1);
    }
    sim_fini(&s);
}

static void several_that_drain_at_once_leave_all_loaded(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 5, 100 * MIB, 4);
    sim_register(&s, 0, 10, MIB, 20 * MS);
    for (unsigned i = 0; i < 10; i++) {
        sim_call(&s, i % 5, i);
    }
    assert_true(sim_settle(&s, S));
    for (unsigned p = 0; p < 3; p++) {
        sim_drain(&s, p);
    }
    sim_run(&s, 3 * S);
    for (unsigned p = 0; p < 3; p++) {
        assert_true(s.peers[p].is_drained);
        sim_kill(&s, p);
    }
    for (unsigned i = 0; i < 10; i++) {
        assert_true(sim_copies(&s, i) >= 1);
    }
    sim_fini(&s);
}

static void draining_without_the_registry_ends_soon(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 3, 100 * MIB, 4);
    sim_register(&s, 0, 60, MIB, 20 * MS);
    for (unsigned i = 0; i < 60; i++) {
        sim_call(&s, i % 3, i);
    }
    assert_true(sim_settle(&s, 5 * S));
    sim_run(&s, S);
    unsigned had = sim_copies_at(&s, 1);
    for (unsigned i = 0; i < 3; i++) {
        mr_kv_memory_cut(s.peers[i].kv, true);
    }
    sim_run(&s, 10 * S);
    sim_drain(&s, 1);
    sim_run(&s, 6 * S);
    assert_true(s.peers[1].is_drained);
    assert_true(had > 8);
    assert_int_equal(sim_loads(&s), 60 + had); /* others have them, though nothing shows it */
    sim_fini(&s);
}

static void draining_goes_on_when_the_registry_comes_back(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 2, 100 * MIB, 1);
    sim_register(&s, 0, 20, MIB, 2 * S);
    for (unsigned i = 0; i < 20; i++) {
        sim_call(&s, i % 2, i);
    }
    assert_true(sim_settle(&s, 60 * S));
    sim_run(&s, S);
    sim_drain(&s, 1);
    sim_run(&s, S);
    mr_kv_memory_cut(s.peers[1].kv, true);
    sim_run(&s, 3 * S);
    mr_kv_memory_cut(s.peers[1].kv, false);
    for (unsigned i = 0; i < 60 && !s.peers[1].is_drained; i++) {
        sim_run(&s, S);
    }
    assert_true(s.peers[1].is_drained);
    sim_kill(&s, 1);
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(sim_copies(&s, i), 1);
    }
    sim_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(second_copy_comes_with_a_use_in_its_window),
        cmocka_unit_test(second_copy_comes_under_steady_use),
        cmocka_unit_test(model_that_keeps_state_has_one_copy),
        cmocka_unit_test(model_that_keeps_state_has_one_copy_whatever_its_minimum),
        cmocka_unit_test(model_that_keeps_state_uses_one_of_its_copies),
        cmocka_unit_test(zones_get_a_copy_each),
        cmocka_unit_test(labels_decide_where_a_type_may_be),
        cmocka_unit_test(copies_follow_the_rate_and_the_last_one_stays),
        cmocka_unit_test(slow_requests_scale_by_how_many_run),
        cmocka_unit_test(minimum_of_copies_is_kept_and_not_evicted),
        cmocka_unit_test(draining_fails_nobody_and_delays_nobody),
        cmocka_unit_test(several_that_drain_at_once_leave_all_loaded),
        cmocka_unit_test(draining_without_the_registry_ends_soon),
        cmocka_unit_test(draining_goes_on_when_the_registry_comes_back),
        cmocka_unit_test(copies_spread_to_an_instance_that_comes_back),
        cmocka_unit_test(move_that_came_to_nothing_is_forgotten),
        cmocka_unit_test(slow_moves_leave_one_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
