/* What a definition says of its copies, in the simulator: at least, at most, never evicted. */
#include "sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* In any runtime of a peer that is up, loaded or on its way. */
static unsigned present(const struct sim *s, unsigned model)
{
    unsigned n = 0;

    for (unsigned i = 0; i < s->peer_count; i++) {
        n += s->peers[i].is_up &&
             (s->peers[i].in_runtime[model] == 1 || s->peers[i].in_runtime[model] == 2);
    }
    return n;
}

static unsigned holder(const struct sim *s, unsigned model)
{
    for (unsigned i = 0; i < s->peer_count; i++) {
        if (s->peers[i].is_up && s->peers[i].in_runtime[model] == 2) {
            return i;
        }
    }
    fail();
    return 0;
}

static void define(struct sim *s, unsigned model, uint32_t min, uint32_t max, bool pinned)
{
    s->models[model] =
        (struct sim_model){.bytes = MIB, .load_ns = 20 * MS, .unload_ns = 5 * MS, .run_ns = MS};
    sim_define(s, model,
               &(struct mesh_def){.type = MR_STR("t"),
                                  .size_bytes = MIB,
                                  .min_copies = min,
                                  .max_copies = max,
                                  .pinned = pinned});
}

/* Requests at all peers in turn, so many a second; the model has `most` copies at any time. */
static void ask(struct sim *s, unsigned model, unsigned per_second, int64_t ns, unsigned most)
{
    int64_t end = s->now + ns;

    for (unsigned i = 0; s->now < end; i++) {
        unsigned peer = i % s->peer_count;
        if (s->peers[peer].is_up && !s->peers[peer].is_stopped) {
            sim_call(s, peer, model);
        }
        sim_run(s, S / per_second);
        assert_true(present(s, model) <= most);
    }
}

static void all_were_answered(const struct sim *s)
{
    for (size_t i = 0; i < s->calls.len; i++) {
        assert_true(s->calls.at[i]->has_ended);
        assert_int_equal(s->calls.at[i]->status, MR_OK);
    }
}

static void maximum_holds_under_any_rate(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 5; seed++) {
        struct sim s;
        sim_init(&s, seed);
        sim_add_many(&s, 4, 100 * MIB, 4);
        sim_run(&s, 100 * MS);
        define(&s, 0, 0, 2, false);
        sim_run(&s, 10 * MS);
        ask(&s, 0, 400, 60 * S, 2); /* 24,000 a minute: enough for twelve copies */
        assert_int_equal(present(&s, 0), 2);
        assert_true(sim_settle(&s, 10 * S));
        all_were_answered(&s);
        sim_fini(&s);
    }
}

static void only_copy_that_hangs_gets_no_second_one(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 3, 100 * MIB, 4);
    sim_run(&s, 100 * MS);
    define(&s, 0, 0, 1, false);
    sim_run(&s, 10 * MS);
    sim_call(&s, 0, 0);
    assert_true(sim_settle(&s, S));
    unsigned first = holder(&s, 0);
    sim_stop(&s, first);
    ask(&s, 0, 20, 5 * S, 1);
    sim_continue(&s, first);
    assert_true(sim_settle(&s, 20 * S));
    assert_int_equal(s.models[0].loads, 1);
    all_were_answered(&s);
    sim_kill(&s, first); /* one that is dead is replaced */
    sim_run(&s, 30 * S);
    struct sim_call *c = sim_call(&s, (first + 1) % 3, 0);
    assert_true(sim_settle(&s, 10 * S));
    assert_int_equal(c->status, MR_OK);
    sim_fini(&s);
}

static void copies_beyond_a_new_maximum_go(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 4, 100 * MIB, 4);
    sim_run(&s, 100 * MS);
    define(&s, 0, 4, 0, false);
    sim_run(&s, 60 * S);
    assert_int_equal(present(&s, 0), 4);
    define(&s, 0, 0, 2, false);
    sim_run(&s, 60 * S);
    assert_int_equal(present(&s, 0), 2);
    sim_fini(&s);
}

static void minimum_is_restored_soon_after_a_death(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 4, 100 * MIB, 4);
    sim_run(&s, 100 * MS);
    define(&s, 0, 3, 0, false);
    sim_run(&s, 60 * S);
    assert_int_equal(present(&s, 0), 3);
    sim_kill(&s, holder(&s, 0));
    sim_run(&s, 45 * S); /* a lease, and a window of rates: much less than the janitor's 6 min */
    assert_int_equal(present(&s, 0), 3);
    sim_fini(&s);
}

/* However little it was used: it would be loaded again at once. */
static void drain_moves_what_has_a_minimum_or_a_pin(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 2, 100 * MIB, 4);
    sim_run(&s, 100 * MS);
    define(&s, 0, 1, 0, false);
    define(&s, 1, 0, 0, true);
    define(&s, 2, 0, 0, false);
    sim_run(&s, 30 * S);
    sim_call(&s, 0, 1);
    sim_call(&s, 0, 2);
    assert_true(sim_settle(&s, S));
    sim_run(&s, 7200 * S);
    for (unsigned i = 0; i < 2; i++) { /* there and back again, as one of them has none at first */
        sim_drain(&s, i);
        sim_run(&s, 30 * S);
        assert_true(s.peers[i].is_drained);
        sim_kill(&s, i);
        assert_true(s.peers[!i].in_runtime[0] == 2 && s.peers[!i].in_runtime[1] == 2);
        sim_restart(&s, i);
        sim_run(&s, 30 * S);
    }
    sim_fini(&s);
}

static void pinned_is_not_evicted(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    s.sizes_are_declared = true;
    sim_add_many(&s, 2, 10 * MIB, 4);
    sim_register(&s, 1, 60, MIB, 5 * MS);
    define(&s, 0, 0, 0, true);
    sim_run(&s, 10 * MS);
    sim_call(&s, 0, 0);
    for (unsigned i = 0; i < 1200; i++) {
        sim_call(&s, i % 2, 1 + i % 60);
        sim_run(&s, 10 * MS);
        assert_true(i < 10 || present(&s, 0) >= 1);
    }
    assert_true(sim_settle(&s, 10 * S));
    assert_int_equal(s.models[0].loads, 1);
    all_were_answered(&s);
    sim_fini(&s);
}

/* Pins fill an instance: others get a clear answer, and what is not pinned is not evicted in vain. */
static void pins_that_fill_the_fleet_are_said(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    s.sizes_are_declared = true;
    sim_add(&s, 10 * MIB, 4, "", "");
    sim_run(&s, 100 * MS);
    for (unsigned i = 0; i < 9; i++) {
        define(&s, i, 0, 0, i < 8);
    }
    define(&s, 9, 0, 0, false);
    s.models[9].bytes = 3 * MIB;
    sim_define(&s, 9, &(struct mesh_def){.type = MR_STR("t"), .size_bytes = 3 * MIB});
    sim_run(&s, 10 * MS);
    for (unsigned i = 0; i < 9; i++) {
        sim_call(&s, 0, i);
        assert_true(sim_settle(&s, S));
    }
    struct sim_call *c = sim_call(&s, 0, 9);
    assert_true(sim_settle(&s, 10 * S));
    assert_int_not_equal(c->status, MR_OK);
    assert_non_null(strstr(c->text, "may not be evicted"));
    for (unsigned i = 0; i < 9; i++) {
        assert_int_equal(s.models[i].loads, 1);
        assert_int_equal(present(&s, i), 1);
    }
    sim_fini(&s);
}

static void models_with_a_minimum_are_counted(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 2, 100 * MIB, 4);
    sim_register(&s, 0, 3, MIB, 20 * MS);
    const struct mesh_view *v = mesh_core_view(s.peers[0].core);
    for (unsigned n = 0; n < 3; n++) {
        sim_define(&s, 0, &(struct mesh_def){.type = MR_STR("t"), .min_copies = n});
        sim_define(&s, 1, &(struct mesh_def){.type = MR_STR("t"), .min_copies = 2 - n});
        sim_run(&s, S);
        assert_int_equal(v->with_minimum, n == 1 ? 2 : 1);
    }
    sim_unregister(&s, 0);
    sim_run(&s, S);
    assert_int_equal(v->with_minimum, 0);
    sim_fini(&s);
}

/* ---- requests of a copy ---- */

static unsigned with_status(const struct sim *s, size_t from, int status)
{
    unsigned n = 0;

    for (size_t i = from; i < s->calls.len; i++) {
        n += s->calls.at[i]->status == status;
    }
    return n;
}

/* One runs, sixteen wait in their order, the next is refused with a hint, and none of it loads another copy. */
static void copy_takes_as_many_as_it_says(void **state)
{
    struct sim s;
    (void)state;

    for (unsigned asked = 0; asked < 2; asked++) { /* where it is, and elsewhere */
        sim_init(&s, 1);
        sim_add_many(&s, 2, 100 * MIB, 4);
        sim_register(&s, 0, 1, MIB, 20 * MS);
        s.models[0].max_running = 1;
        s.models[0].run_ns = 50 * MS;
        sim_call(&s, 0, 0);
        assert_true(sim_settle(&s, 5 * S));
        unsigned at = s.calls.at[0]->ran_at;
        sim_run(&s, 100 * MS);
        for (unsigned i = 0; i < 20; i++) {
            sim_call(&s, asked ? !at : at, 0);
        }
        assert_true(sim_settle(&s, 5 * S));
        assert_int_equal(with_status(&s, 1, MR_OK), 17);
        assert_int_equal(with_status(&s, 1, MR_E_EXHAUSTED), 3);
        for (size_t i = 1; i < s.calls.len; i++) {
            bool is_refused = s.calls.at[i]->status == MR_E_EXHAUSTED;
            assert_true(!is_refused || (s.calls.at[i]->retry_ns > 0 &&
                                        strstr(s.calls.at[i]->text, "wait for the model")));
        }
        assert_int_equal(s.peers[at].most_running[0], 1);
        assert_int_equal(sim_loads(&s), 1);
        for (size_t i = 2; !asked && i <= 17; i++) { /* delays of the way to it differ */
            assert_true(s.calls.at[i]->end_ns >= s.calls.at[i - 1]->end_ns);
        }
        sim_fini(&s);
    }
}

static void full_queue_sends_to_another_copy_once(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 3, 100 * MIB, 4);
    struct mesh_def d = {.type = MR_STR("t"), .path = MR_STR("/m"), .min_copies = 2};
    sim_register(&s, 0, 1, MIB, 20 * MS);
    sim_define(&s, 0, &d);
    s.models[0].max_running = 1;
    s.models[0].run_ns = 50 * MS;
    sim_run(&s, 30 * S);
    assert_int_equal(sim_copies(&s, 0), 2);
    for (unsigned i = 0; i < 40; i++) {
        sim_call(&s, i % 3, 0);
    }
    assert_true(sim_settle(&s, 10 * S));
    assert_int_equal(with_status(&s, 0, MR_OK), 2 * 17);
    assert_int_equal(with_status(&s, 0, MR_E_EXHAUSTED), 40 - 2 * 17);
    assert_int_equal(sim_copies(&s, 0), 2);
    sim_fini(&s);
}

/* What waits is not lost with its copy: it goes where the model is next. */
static void those_that_wait_outlive_the_copy(void **state)
{
    struct sim s;
    (void)state;

    for (unsigned how = 0; how < 3; how++) {
        sim_init(&s, 1);
        sim_add_many(&s, 2, 100 * MIB, 4);
        sim_register(&s, 0, 1, MIB, 20 * MS);
        s.models[0].max_running = 1;
        s.models[0].run_ns = 50 * MS;
        sim_call(&s, 0, 0);
        assert_true(sim_settle(&s, 5 * S));
        unsigned at = s.calls.at[0]->ran_at;
        sim_run(&s, 100 * MS);
        for (unsigned i = 0; i < 10; i++) {
            sim_call(&s, !at, 0);
        }
        sim_run(&s, 70 * MS);
        if (how == 0) { /* the runtime has lost the model */
            s.peers[at].in_runtime[0] = 0;
            s.peers[at].resident = 0;
        } else if (how == 1) {
            sim_kill(&s, at);
        } else {
            sim_unregister(&s, 0);
        }
        assert_true(sim_settle(&s, 20 * S));
        if (how < 2) {
            assert_int_equal(with_status(&s, 0, MR_OK), 11);
        } else {
            assert_true(with_status(&s, 0, MR_E_NOT_FOUND) >= 8);
            assert_int_equal(with_status(&s, 0, MR_OK) + with_status(&s, 0, MR_E_NOT_FOUND), 11);
        }
        sim_fini(&s);
    }
}

static void copy_that_is_always_busy_gets_another(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 2, 100 * MIB, 4);
    sim_register(&s, 0, 1, MIB, 20 * MS);
    s.models[0].max_running = 2;
    s.models[0].run_ns = 100 * MS;
    for (unsigned i = 0; i < 1000; i++) { /* more than two run at a time could take */
        sim_call(&s, 0, 0);
        sim_run(&s, 40 * MS);
    }
    assert_true(sim_settle(&s, 10 * S));
    assert_int_equal(sim_copies(&s, 0), 2);
    sim_fini(&s);
}

/* It is an answer like any other: it goes back as it is, and is no reason to go elsewhere. */
static void error_of_the_model_is_the_answer(void **state)
{
    static const mr_str gpu = MR_STR_INIT("gpu");
    static const struct mesh_constraint rule = {
        .type = MR_STR_INIT("t"), .required = &gpu, .required_count = 1};
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    s.options.constraints = &rule;
    s.options.constraint_count = 1;
    for (unsigned i = 0; i < 3; i++) {
        sim_add(&s, 100 * MIB, 4, "", i == 1 ? "gpu" : "");
    }
    sim_run(&s, 100 * MS);
    sim_register(&s, 0, 1, MIB, 20 * MS);
    s.models[0].error = "X";
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < 3; i++) {
            struct sim_call *c = sim_call(&s, i, 0);
            assert_true(sim_settle(&s, 5 * S));
            assert_int_equal(c->status, MR_E_UNAVAILABLE);
            assert_string_equal(c->text, "X");
            assert_int_equal(c->runs, 1);
        }
    }
    sim_run(&s, 60 * S);
    assert_int_equal(sim_copies(&s, 0), 1);
    assert_int_equal(sim_loads(&s), 1);
    sim_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maximum_holds_under_any_rate),
        cmocka_unit_test(only_copy_that_hangs_gets_no_second_one),
        cmocka_unit_test(copies_beyond_a_new_maximum_go),
        cmocka_unit_test(minimum_is_restored_soon_after_a_death),
        cmocka_unit_test(drain_moves_what_has_a_minimum_or_a_pin),
        cmocka_unit_test(pinned_is_not_evicted),
        cmocka_unit_test(pins_that_fill_the_fleet_are_said),
        cmocka_unit_test(models_with_a_minimum_are_counted),
        cmocka_unit_test(copy_takes_as_many_as_it_says),
        cmocka_unit_test(full_queue_sends_to_another_copy_once),
        cmocka_unit_test(those_that_wait_outlive_the_copy),
        cmocka_unit_test(copy_that_is_always_busy_gets_another),
        cmocka_unit_test(error_of_the_model_is_the_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
