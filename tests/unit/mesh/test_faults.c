/* Fleets in the simulator while something is wrong: loads that fail, runtimes that forget, peers and stores that are away. */
#include "sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "mesh/core/core_priv.h"

static unsigned failed(const struct sim *s)
{
    unsigned n = 0;

    for (size_t i = 0; i < s->calls.len; i++) {
        n += s->calls.at[i]->status != MR_OK;
    }
    return n;
}

static void load_that_fails_everywhere_is_tried_on_three(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 5, 100 * MIB, 4);
    sim_register(&s, 0, 1, MIB, 20 * MS);
    s.models[0].fail_at = 0x1f;
    s.models[0].fail = MESH_FAIL_INVALID;
    struct sim_call *c = sim_call(&s, 0, 0);
    assert_true(sim_settle(&s, 5 * S));
    assert_int_equal(c->status, MR_E_INTERNAL);
    assert_string_equal(c->text, "boom");
    assert_int_equal(s.models[0].loads, 3);
    sim_run(&s, 100 * MS);
    c = sim_call(&s, 3, 0); /* at once, from any peer, with the same text */
    assert_true(sim_settle(&s, 5 * S));
    assert_string_equal(c->text, "boom");
    assert_int_equal(s.models[0].loads, 3);
    sim_fini(&s);
}

static void texts_of_failures_reach_every_peer(void **state)
{
    char texts[3][5000] = {"\xff is no UTF-8"};
    struct sim s;
    (void)state;

    for (size_t i = 0; i + 1 < sizeof texts[0]; i++) {
        texts[1][i] = "\xc3\xa9"[i % 2]; /* any odd limit is within a character */
        texts[2][i] = i ? texts[1][i - 1] : 'x';
    }
    sim_init(&s, 1);
    sim_add_many(&s, 5, 100 * MIB, 4);
    sim_register(&s, 0, 3, MIB, 20 * MS);
    for (unsigned i = 0; i < 3; i++) {
        s.models[i].fail_at = 0x1f;
        s.models[i].fail = MESH_FAIL_INVALID;
        s.models[i].fails_with = texts[i];
        for (unsigned peer = 0; peer < 5; peer++) {
            struct sim_call *c = sim_call(&s, peer, i);
            assert_true(sim_settle(&s, 5 * S));
            assert_int_equal(c->status, MR_E_INTERNAL);
            assert_memory_equal(c->text, i ? texts[i] : "? is no UTF-8", 14);
            sim_run(&s, 100 * MS);
        }
        assert_int_equal(s.models[i].loads, 3);
    }
    sim_fini(&s);
}

static void load_that_fails_here_succeeds_there(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 3, 100 * MIB, 4);
    sim_register(&s, 0, 6, MIB, 20 * MS);
    for (unsigned i = 0; i < 6; i++) {
        s.models[i].fail_at = 3; /* peers 0 and 1 */
        sim_call(&s, i % 3, i);
    }
    assert_true(sim_settle(&s, 5 * S));
    assert_int_equal(failed(&s), 0);
    for (unsigned i = 0; i < 6; i++) {
        assert_int_equal(s.peers[2].in_runtime[i], 2);
    }
    sim_fini(&s);
}

/* Whoever is asked, whether the load failed for this request or before it, and whether the registry shows it yet. */
static void failure_has_the_same_status_at_any_peer(void **state)
{
    static const int statuses[MESH_FAIL_COUNT] = {
        [MESH_FAIL_OTHER] = MR_E_INTERNAL,     [MESH_FAIL_TRANSIENT] = MR_E_UNAVAILABLE,
        [MESH_FAIL_RESOURCE] = MR_E_EXHAUSTED, [MESH_FAIL_MISSING] = MR_E_INTERNAL,
        [MESH_FAIL_INVALID] = MR_E_INTERNAL,   [MESH_FAIL_TOO_LARGE] = MR_E_TOO_LARGE};
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 3, 100 * MIB, 4);
    sim_register(&s, 0, 3 * MESH_FAIL_COUNT, MIB, 20 * MS);
    for (unsigned i = 0; i < 3 * MESH_FAIL_COUNT; i++) {
        s.models[i].fail_at = 7;
        s.models[i].fail = (enum mesh_fail)(i / 3);
    }
    for (unsigned i = 0; i < 3; i++) {
        mr_kv_memory_set_delay(s.peers[i].kv, 300 * MS);
    }
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 3 * MESH_FAIL_COUNT; i++) {
            sim_call(&s, (i + round) % 3, i);
        }
        assert_true(sim_settle(&s, 5 * S));
    }
    for (size_t i = 0; i < s.calls.len; i++) {
        assert_int_equal(s.calls.at[i]->status, statuses[s.calls.at[i]->model / 3]);
        assert_string_equal(s.calls.at[i]->text, "boom");
    }
    sim_fini(&s);
}

static void failures_are_forgotten_by_their_kind(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 1, 100 * MIB, 4);
    sim_register(&s, 0, 2, MIB, 20 * MS);
    s.models[0].fails_first = s.models[1].fails_first = 1;
    s.models[0].fail = MESH_FAIL_TRANSIENT;
    s.models[1].fail = MESH_FAIL_INVALID;
    sim_call(&s, 0, 0);
    sim_call(&s, 0, 1);
    assert_true(sim_settle(&s, 5 * S));
    assert_int_equal(failed(&s), 2);
    sim_run(&s, 20 * S);
    struct sim_call *transient = sim_call(&s, 0, 0);
    struct sim_call *invalid = sim_call(&s, 0, 1);
    assert_true(sim_settle(&s, 5 * S));
    assert_int_equal(transient->status, MR_OK);
    assert_int_equal(invalid->status, MR_E_INTERNAL);
    sim_run(&s, 900 * S);
    invalid = sim_call(&s, 0, 1);
    assert_true(sim_settle(&s, 5 * S));
    assert_int_equal(invalid->status, MR_OK);
    sim_fini(&s);
}

static void runtime_that_lost_the_model_loads_it_again(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 2, 100 * MIB, 4);
    sim_register(&s, 0, 1, MIB, 20 * MS);
    for (unsigned i = 0; i < 3; i++) {
        struct sim_call *c = sim_call(&s, 0, 0);
        assert_true(sim_settle(&s, 5 * S));
        assert_int_equal(c->status, MR_OK);
        for (unsigned p = 0; p < 2; p++) {
            if (s.peers[p].in_runtime[0]) {
                s.peers[p].in_runtime[0] = 0;
                s.peers[p].resident = 0;
            }
        }
    }
    assert_int_equal(s.models[0].loads, 3);
    sim_fini(&s);
}

static void killed_peer_costs_only_what_it_ran(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 3, 100 * MIB, 4);
    sim_register(&s, 0, 9, MIB, 20 * MS);
    for (unsigned i = 0; i < 9; i++) {
        sim_call(&s, i % 3, i);
    }
    assert_true(sim_settle(&s, S));
    sim_kill(&s, 1);
    size_t before = s.calls.len;
    for (unsigned i = 0; i < 9; i++) {
        sim_call(&s, i % 2 * 2, i);
    }
    assert_true(sim_settle(&s, S)); /* long before its lease ends */
    for (size_t i = before; i < s.calls.len; i++) {
        assert_int_equal(s.calls.at[i]->status, MR_OK);
    }
    sim_run(&s, 30 * S); /* its records go with its lease */
    assert_null(view_copy_at(view_find(mesh_core_view(s.peers[0].core), MR_STR("model-0")),
                             view_peer_find(mesh_core_view(s.peers[0].core), MR_STR("peer-1"))));
    sim_fini(&s);
}

static void hung_peer_costs_one_hedge_delay(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 3, 100 * MIB, 4);
    sim_register(&s, 0, 12, MIB, 20 * MS);
    for (unsigned i = 0; i < 12; i++) {
        sim_call(&s, i % 3, i);
    }
    assert_true(sim_settle(&s, S));
    sim_stop(&s, 1);
    size_t before = s.calls.len;
    for (unsigned i = 0; i < 12; i++) {
        sim_call(&s, i % 2 * 2, i);
    }
    assert_true(sim_settle(&s, S));
    for (size_t i = before; i < s.calls.len; i++) {
        const struct sim_call *c = s.calls.at[i];
        assert_int_equal(c->status, MR_OK);
        assert_true(c->end_ns - c->begin_ns < 700 * MS); /* probe twice, ask the next owner, load */
    }
    before = s.calls.len;
    for (unsigned i = 0; i < 12; i++) {
        sim_call(&s, i % 2 * 2, i);
    }
    assert_true(sim_settle(&s, S));
    for (size_t i = before; i < s.calls.len; i++) { /* it is passed over from now on */
        assert_true(s.calls.at[i]->end_ns - s.calls.at[i]->begin_ns < 50 * MS);
    }
    sim_continue(&s, 1);
    sim_run(&s, 5 * S);
    struct sim_call *c = sim_call(&s, 1, 0);
    assert_true(sim_settle(&s, S));
    assert_int_equal(c->status, MR_OK);
    sim_fini(&s);
}

static void silent_peer_is_asked_if_nobody_else_can(void **state)
{
    static const mr_str gpu = MR_STR_INIT("gpu");
    static const struct mesh_constraint rule = {
        .type = MR_STR_INIT("t"), .required = &gpu, .required_count = 1};
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    s.options.constraints = &rule;
    s.options.constraint_count = 1;
    sim_add(&s, 100 * MIB, 4, "", "gpu");
    sim_add(&s, 100 * MIB, 4, "", "");
    sim_run(&s, 100 * MS);
    sim_register(&s, 0, 1, MIB, 20 * MS);
    sim_run(&s, 10 * MS);
    sim_call(&s, 1, 0);
    assert_true(sim_settle(&s, S));
    sim_stop(&s, 0);
    sim_call(&s, 1, 0); /* finds out */
    sim_run(&s, 2 * S);
    sim_call(&s, 1, 0); /* knows it, and waits all the same */
    sim_run(&s, 2 * S);
    sim_continue(&s, 0);
    assert_true(sim_settle(&s, 5 * S));
    assert_int_equal(failed(&s), 0);
    sim_fini(&s);
}

/* Its holder hangs, and then dies: requests wait or fail, and none runs twice or elsewhere. */
static void requests_of_a_model_that_keeps_state_do_not_run_twice(void **state)
{
    struct sim s;
    unsigned fails = 0;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 3, 100 * MIB, 4);
    sim_register(&s, 0, 1, MIB, 20 * MS);
    s.models[0].keeps_state = true;
    sim_call(&s, 0, 0);
    assert_true(sim_settle(&s, S));
    sim_run(&s, S);
    unsigned holder = s.calls.at[0]->ran_at;
    unsigned other = (holder + 1) % 3;
    s.models[0].run_ns = 2 * S;
    sim_call(&s, other, 0);
    sim_run(&s, 100 * MS);
    sim_stop(&s, holder);
    sim_run(&s, 5 * S);
    sim_call(&s, other, 0);
    sim_run(&s, 5 * S);
    assert_int_equal(sim_loads(&s), 1);
    sim_continue(&s, holder);
    assert_true(sim_settle(&s, 10 * S));
    assert_int_equal(failed(&s), 0);
    sim_call(&s, other, 0);
    sim_run(&s, 100 * MS);
    sim_kill(&s, holder);
    sim_run(&s, S);
    sim_call(&s, other, 0); /* its record is still there */
    assert_true(sim_settle(&s, S));
    for (size_t i = 0; i < s.calls.len; i++) {
        assert_true(s.calls.at[i]->runs <= 1);
        fails += s.calls.at[i]->status == MR_E_UNAVAILABLE;
    }
    assert_int_equal(fails, 2);
    assert_int_equal(sim_loads(&s), 1);
    sim_run(&s, 60 * S); /* and when it has gone, it is loaded elsewhere */
    struct sim_call *c = sim_call(&s, other, 0);
    assert_true(sim_settle(&s, 10 * S));
    assert_int_equal(c->status, MR_OK);
    sim_fini(&s);
}

/* Its record cannot be deleted, and says that it is loaded. */
static void evicted_copy_that_keeps_state_is_loaded_again_without_the_registry(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    s.sizes_are_declared = true;
    sim_add_many(&s, 1, 10 * MIB, 1);
    sim_register(&s, 0, 20, MIB, 20 * MS);
    s.models[0].keeps_state = true;
    sim_call(&s, 0, 0);
    assert_true(sim_settle(&s, S));
    sim_run(&s, S);
    mr_kv_memory_cut(s.peers[0].kv, true);
    for (unsigned i = 1; i < 20; i++) {
        sim_call(&s, 0, i);
        assert_true(sim_settle(&s, S));
    }
    assert_int_equal(s.peers[0].in_runtime[0], 0);
    sim_call(&s, 0, 0);
    assert_true(sim_settle(&s, S));
    assert_int_equal(failed(&s), 0);
    assert_int_equal(s.models[0].loads, 2);
    sim_fini(&s);
}

static void slow_model_is_not_hedged(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 2, 100 * MIB, 4);
    sim_register(&s, 0, 1, MIB, 20 * MS);
    s.models[0].run_ns = 30 * S;
    struct sim_call *a = sim_call(&s, 0, 0);
    struct sim_call *b = sim_call(&s, 1, 0);
    assert_true(sim_settle(&s, 40 * S));
    assert_int_equal(a->runs, 1);
    assert_int_equal(b->runs, 1);
    assert_int_equal(s.models[0].loads, 1);
    sim_fini(&s);
}

static void registry_away_stops_nobody(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 3, 100 * MIB, 4);
    sim_register(&s, 0, 20, MIB, 20 * MS);
    for (unsigned i = 0; i < 10; i++) {
        sim_call(&s, i % 3, i);
    }
    assert_true(sim_settle(&s, S));
    for (unsigned i = 0; i < 3; i++) {
        mr_kv_memory_cut(s.peers[i].kv, true);
    }
    sim_run(&s, 45 * S); /* longer than a lease */
    for (unsigned i = 0; i < 60; i++) {
        sim_call(&s, i % 3, i % 20); /* half of them are not loaded yet */
    }
    assert_true(sim_settle(&s, 10 * S));
    assert_int_equal(failed(&s), 0);
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(s.models[i].loads, 1);
    }
    for (unsigned i = 0; i < 3; i++) {
        mr_kv_memory_cut(s.peers[i].kv, false);
    }
    sim_run(&s, 30 * S);
    for (unsigned i = 0; i < 20; i++) { /* all of it is in the registry, once */
        char id[24];
        sim_id(id, i);
        const struct view_model *m = view_find(mesh_core_view(s.peers[2].core), mr_str_c(id));
        assert_int_equal(m->copy_count, 1);
        assert_int_equal(m->copies[0].state, MESH_LOADED);
        assert_int_equal(m->units_measured, MIB / MESH_UNIT);
        assert_int_equal(s.models[i].loads, 1);
    }
    sim_fini(&s);
}

static void history_that_is_gone_is_read_again(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 2, 100 * MIB, 4);
    sim_register(&s, 0, 5, MIB, 20 * MS);
    sim_call(&s, 1, 0);
    assert_true(sim_settle(&s, S));
    mr_kv_memory_cut(s.peers[0].kv, true);
    sim_unregister(&s, 1);
    sim_register(&s, 5, 5, MIB, 20 * MS);
    sim_run(&s, 2 * S);
    mr_kv_memory_compact(s.store, 1000000);
    mr_kv_memory_cut(s.peers[0].kv, false);
    sim_run(&s, 5 * S);
    const struct mesh_view *v = mesh_core_view(s.peers[0].core);
    assert_null(view_find(v, MR_STR("model-1")));
    assert_non_null(view_find(v, MR_STR("model-9")));
    assert_int_equal(view_find(v, MR_STR("model-0"))->copy_count, 1);
    sim_fini(&s);
}

static int64_t wall_ns;

static int64_t wall(void)
{
    return wall_ns;
}

static void registry_that_lost_its_data_gets_it_again(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    s.options.wall_ns = wall;
    wall_ns = 1000 * S;
    sim_add_many(&s, 3, 100 * MIB, 4);
    sim_register(&s, 0, 20, MIB, 20 * MS);
    for (unsigned i = 0; i < 10; i++) {
        sim_call(&s, i % 3, i);
    }
    assert_true(sim_settle(&s, S));
    sim_run(&s, S);
    mr_kv_memory_erase(s.store);
    wall_ns = 2000 * S; /* which says nothing of copies that are as they were */
    sim_run(&s, 30 * S);
    assert_int_equal(sim_loads(&s), 10);
    for (unsigned p = 0; p < 3; p++) {
        for (unsigned i = 0; i < 20; i++) {
            char id[24];
            sim_id(id, i);
            const struct view_model *m = view_find(mesh_core_view(s.peers[p].core), mr_str_c(id));
            assert_non_null(m);
            assert_true(m->revision > 0);
            assert_int_equal(m->copy_count, sim_copies(&s, i));
            assert_true(m->copy_count == 0 || m->copies[0].time_ms == 1000 * 1000);
        }
    }
    unsigned late = sim_add(&s, 100 * MIB, 4, "", ""); /* it has it from the registry alone */
    sim_run(&s, S);
    struct sim_call *c = sim_call(&s, late, 15);
    assert_true(sim_settle(&s, 5 * S));
    assert_int_equal(c->status, MR_OK);
    const struct mesh_view *v = mesh_core_view(s.peers[late].core);
    assert_int_equal(view_find(v, MR_STR("model-0"))->units_measured, MIB / MESH_UNIT);
    sim_fini(&s);
}

static void registry_that_is_another_at_a_later_revision_gets_it_again(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 3, 100 * MIB, 4);
    sim_register(&s, 0, 20, MIB, 20 * MS);
    for (unsigned i = 0; i < 10; i++) {
        sim_call(&s, i % 3, i);
    }
    assert_true(sim_settle(&s, S));
    sim_run(&s, S);
    for (unsigned i = 0; i < 3; i++) {
        mr_kv_memory_cut(s.peers[i].kv, true);
    }
    mr_kv_memory_erase(s.store);
    for (unsigned i = 0; i < 1000; i++) {
        sim_put(&s, "other/key", (mr_bytes){(const uint8_t *)"", 0});
    }
    for (unsigned i = 0; i < 3; i++) {
        mr_kv_memory_cut(s.peers[i].kv, false);
    }
    sim_run(&s, 30 * S);
    assert_int_equal(sim_loads(&s), 10);
    for (unsigned i = 0; i < 20; i++) {
        char id[24];
        sim_id(id, i);
        const struct view_model *m = view_find(mesh_core_view(s.peers[0].core), mr_str_c(id));
        assert_non_null(m);
        assert_true(m->revision > 0);
        assert_int_equal(m->copy_count, sim_copies(&s, i));
    }
    sim_fini(&s);
}

static void two_owners_do_not_load_twice(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        struct sim s;
        sim_init(&s, seed);
        sim_add_many(&s, 4, 100 * MIB, 4);
        sim_register(&s, 0, 8, MIB, 100 * MS);
        sim_run(&s, 10 * MS);
        /* peers 2 and 3 take each other for dead: both sides have an owner for each model */
        s.peers[2].side = s.peers[3].side = 1;
        sim_call(&s, 0, 0); /* finds out */
        sim_call(&s, 2, 0);
        sim_settle(&s, 5 * S);
        sim_run(&s, 3 * S);
        s.peers[2].side = s.peers[3].side = 0;
        for (unsigned i = 0; i < 40; i++) {
            sim_call(&s, i % 4, i % 8);
        }
        assert_true(sim_settle(&s, 10 * S));
        for (unsigned i = 1; i < 8; i++) {
            assert_int_equal(s.models[i].loads, 1);
        }
        sim_fini(&s);
    }
}

static void note_count(void *ctx, int rc, const struct mr_err *err, const struct mr_kv_reply *reply)
{
    (void)err;
    assert_int_equal(rc, MR_OK);
    *(size_t *)ctx = reply->results[0].count;
}

static size_t claims(struct sim *s)
{
    struct mr_kv *kv = mr_kv_memory_open(s->store, &(struct mr_kv_options){0});
    size_t count = 99;

    mr_kv_get(kv, MR_STR(MESH_ROOT "l/model-0"), MR_KV_LINEARIZABLE, note_count, &count);
    sim_run(s, 10 * MS);
    mr_kv_free(&kv);
    assert_true(count < 2);
    return count;
}

static void claim_whose_answer_was_lost_is_deleted(void **state)
{
    (void)state;

    for (unsigned when = 0; when < 8; when++) {
        struct sim s;
        sim_init(&s, 1);
        sim_add_many(&s, 1, 100 * MIB, 4);
        sim_register(&s, 0, 1, MIB, S);
        sim_run(&s, S);
        mr_kv_memory_set_delay(s.peers[0].kv, 10 * MS);
        mr_kv_memory_step(s.store, s.now); /* the delay begins with what is sent after this */
        sim_call(&s, 0, 0);
        sim_run(&s, when * 4 * MS);
        mr_kv_memory_cut(s.peers[0].kv, true);
        sim_run(&s, 10 * MS);
        mr_kv_memory_cut(s.peers[0].kv, false);
        assert_true(sim_settle(&s, 5 * S));
        sim_run(&s, S);
        assert_int_equal(claims(&s), 0);
        sim_fini(&s);
    }
}

static void restarted_peer_forgets_what_it_had(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 2, 100 * MIB, 4);
    sim_register(&s, 0, 6, MIB, 20 * MS);
    for (unsigned i = 0; i < 6; i++) {
        sim_call(&s, i % 2, i);
    }
    assert_true(sim_settle(&s, S));
    sim_kill(&s, 0);
    sim_restart(&s, 0); /* its old lease still lives, with its old records */
    sim_run(&s, S);
    size_t before = s.calls.len;
    for (unsigned i = 0; i < 12; i++) {
        sim_call(&s, i % 2, i % 6);
    }
    assert_true(sim_settle(&s, 5 * S));
    for (size_t i = before; i < s.calls.len; i++) {
        assert_int_equal(s.calls.at[i]->status, MR_OK);
    }
    sim_run(&s, 40 * S); /* the old lease has ended: what is loaded is still in the registry */
    for (unsigned i = 0; i < 6; i++) {
        char id[24];
        sim_id(id, i);
        const struct view_model *m = view_find(mesh_core_view(s.peers[1].core), mr_str_c(id));
        assert_int_equal(m->copy_count, sim_copies(&s, i));
    }
    sim_fini(&s);
}

static void unregistered_model_is_unloaded_everywhere(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 2, 100 * MIB, 4);
    sim_register(&s, 0, 2, MIB, 100 * MS);
    sim_run(&s, 10 * MS);
    sim_call(&s, 0, 0);
    assert_true(sim_settle(&s, S));
    struct sim_call *loading = sim_call(&s, 0, 1);
    sim_run(&s, 50 * MS);
    sim_unregister(&s, 0);
    sim_unregister(&s, 1);
    assert_true(sim_settle(&s, S));
    assert_int_equal(loading->status, MR_E_NOT_FOUND);
    sim_run(&s, S);
    assert_int_equal(sim_copies(&s, 0) + sim_copies(&s, 1), 0);
    struct sim_call *c = sim_call(&s, 1, 0);
    assert_true(sim_settle(&s, S));
    assert_int_equal(c->status, MR_E_NOT_FOUND);
    sim_fini(&s);
}

static void define_path(struct sim *s, unsigned model, const char *path)
{
    sim_define(s, model, &(struct mesh_def){.type = MR_STR("t"), .path = mr_str_c(path)});
}

/* The call is answered by what the path of the definition then was: its last letter. */
static void is_answered_by(struct sim *s, struct sim_call *c, char path_end)
{
    assert_true(sim_settle(s, 2 * S));
    assert_int_equal(c->status, MR_OK);
    assert_int_equal(s->peers[c->ran_at].path_end[c->model], path_end);
    assert_int_equal(s->peers[c->ran_at].in_runtime[c->model], 2);
}

static void another_definition_is_loaded_anew(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 1, 100 * MIB, 4);
    sim_register(&s, 0, 4, MIB, 100 * MS);
    s.models[2].run_ns = 500 * MS;
    sim_run(&s, 10 * MS);
    /* while it loads */
    struct sim_call *loading = sim_call(&s, 0, 0);
    sim_run(&s, 50 * MS);
    sim_unregister(&s, 0);
    define_path(&s, 0, "/n");
    sim_run(&s, 10 * MS);
    assert_int_equal(loading->status, MR_E_NOT_FOUND);
    is_answered_by(&s, sim_call(&s, 0, 0), 'n');
    assert_int_equal(s.models[0].loads, 2);
    /* the same again while it loads: that load counts */
    loading = sim_call(&s, 0, 1);
    sim_run(&s, 50 * MS);
    sim_unregister(&s, 1);
    define_path(&s, 1, "/m");
    sim_run(&s, 10 * MS);
    is_answered_by(&s, sim_call(&s, 0, 1), 'm');
    assert_int_equal(s.models[1].loads, 1);
    /* while a request runs */
    struct sim_call *running = sim_call(&s, 0, 2);
    sim_run(&s, 200 * MS);
    sim_unregister(&s, 2);
    define_path(&s, 2, "/n");
    sim_run(&s, 10 * MS);
    is_answered_by(&s, sim_call(&s, 0, 2), 'n');
    assert_int_equal(running->status, MR_OK);
    /* without a deletion between, as a server sees it that has been cut off; a request waits */
    struct sim_call *waiting = sim_call(&s, 0, 3);
    sim_run(&s, 50 * MS);
    define_path(&s, 3, "/n");
    is_answered_by(&s, waiting, 'n');
    define_path(&s, 3, "/o");
    sim_run(&s, 10 * MS);
    is_answered_by(&s, sim_call(&s, 0, 3), 'o');
    sim_check(&s);
    sim_fini(&s);
}

/* So is one that the registry was asked for, as the watch had not brought it yet. */
static void definition_that_was_asked_for_is_loaded_anew(void **state)
{
    struct sim s;
    struct mr_buf value;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 1, 100 * MIB, 4);
    sim_register(&s, 0, 1, MIB, 100 * MS);
    sim_run(&s, 10 * MS);
    sim_call(&s, 0, 0);
    sim_run(&s, 50 * MS);
    sim_unregister(&s, 0);
    sim_run(&s, 10 * MS);
    struct sim_call *c = sim_call(&s, 0, 0);
    const struct view_model *m = view_find(mesh_core_view(s.peers[0].core), MR_STR("model-0"));
    assert_true(m && m->local && m->local->asks_registry);
    mr_buf_init(&value, 0);
    mesh_def_put(&value, &(struct mesh_def){.type = MR_STR("t"), .path = MR_STR("/n")});
    mesh_core_got(s.peers[0].core, m->local->handle, MR_OK,
                  (mr_bytes){(const uint8_t *)value.ptr, value.len}, 2, s.now);
    mr_buf_fini(&value);
    define_path(&s, 0, "/n");
    is_answered_by(&s, c, 'n');
    assert_int_equal(s.models[0].loads, 2);
    sim_fini(&s);
}

static void put_copy(struct sim *s, unsigned model, const char *peer)
{
    char key[64];
    struct mr_buf b;

    snprintf(key, sizeof key, "mesh/c/model-%u/%s", model, peer);
    mr_buf_init(&b, 0);
    mesh_copy_put(&b, &(struct mesh_copy){.state = MESH_LOADED, .size_bytes = MIB});
    sim_put(s, key, (mr_bytes){(const uint8_t *)b.ptr, b.len});
    mr_buf_fini(&b);
}

static void peer_that_has_not_what_its_record_says_is_asked_once(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 3, 100 * MIB, 4);
    sim_register(&s, 0, 10, MIB, 20 * MS);
    for (unsigned i = 0; i < 10; i++) {
        put_copy(&s, i, "peer-1");
    }
    sim_run(&s, 100 * MS);
    for (unsigned i = 0; i < 60; i++) {
        sim_call(&s, i % 3, i % 10);
        sim_run(&s, 20 * MS);
    }
    assert_true(sim_settle(&s, 5 * S));
    assert_int_equal(failed(&s), 0);
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(s.models[i].loads, 1);
    }
    sim_fini(&s);
}

static void damaged_records_harm_nobody_else(void **state)
{
    struct sim s;
    static const char *const keys[] = {"mesh/m/x",       "mesh/m/model-0",        "mesh/s/model-1",
                                       "mesh/v/v",       "mesh/c/model-2/peer-0", "mesh/i/nobody",
                                       "mesh/l/model-3", "mesh/z/later",          "mesh/i/peer-9"};
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 2, 100 * MIB, 4);
    sim_register(&s, 0, 6, MIB, 20 * MS);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        sim_put(&s, keys[i], (mr_bytes){(const uint8_t *)"\x0a\xff\xff", 3});
    }
    sim_run(&s, S);
    for (unsigned i = 0; i < 12; i++) {
        sim_call(&s, i % 2, i % 6);
    }
    assert_true(sim_settle(&s, 5 * S));
    assert_int_equal(failed(&s), 0);                   /* model-0 as it was before */
    unsigned late = sim_add(&s, 100 * MIB, 4, "", ""); /* has read nothing else */
    sim_run(&s, S);
    for (unsigned i = 1; i < 6; i++) {
        sim_call(&s, late, i);
    }
    assert_true(sim_settle(&s, 5 * S));
    assert_int_equal(failed(&s), 0);
    assert_int_equal(mesh_core_view(s.peers[late].core)->peer_count, 3);
    sim_fini(&s);
}

static void messages_that_cannot_be_read_change_nothing(void **state)
{
    struct sim s;
    uint8_t bytes[64];
    (void)state;

    sim_init(&s, 5);
    sim_add_many(&s, 2, 100 * MIB, 4);
    sim_register(&s, 0, 2, MIB, 20 * MS);
    sim_run(&s, 10 * MS);
    for (unsigned i = 0; i < 20000; i++) {
        size_t n = (size_t)(mr_rng_u64(&s.rng) % sizeof bytes);
        for (size_t k = 0; k < n; k++) {
            bytes[k] = (uint8_t)mr_rng_u64(&s.rng);
        }
        bytes[0] = i % 2 ? bytes[0] : 8; /* field 1: the kind */
        mesh_core_message(s.peers[0].core, i % 3 ? MR_STR("peer-1") : MR_STR("nobody"),
                          (mr_bytes){bytes, n}, s.now);
        struct mesh_action a;
        while (mesh_core_take(s.peers[0].core, &a)) {
            assert_int_equal(a.kind, MESH_ACT_SEND); /* a PONG, or a refusal */
        }
    }
    struct sim_call *c = sim_call(&s, 0, 1);
    assert_true(sim_settle(&s, 5 * S));
    assert_int_equal(c->status, MR_OK);
    assert_int_equal(sim_loads(&s), 1);
    sim_fini(&s);
}

static void size_measured_before_a_restart_decides_the_place(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add(&s, 50 * MIB, 4, "", "");
    sim_add(&s, 200 * MIB, 4, "", "");
    sim_run(&s, 100 * MS);
    sim_register(&s, 0, 8, 60 * MIB, 20 * MS); /* nothing says so before the first load */
    sim_run(&s, 10 * MS);
    for (unsigned i = 0; i < 8; i++) {
        sim_call(&s, i % 2, i);
    }
    assert_true(sim_settle(&s, 10 * S));
    sim_run(&s, S);
    sim_kill(&s, 0);
    sim_kill(&s, 1);
    sim_run(&s, 40 * S);
    sim_restart(&s, 0);
    sim_restart(&s, 1);
    sim_run(&s, S);
    s.peers[1].most_resident = 0;
    unsigned before = sim_loads(&s);
    for (unsigned i = 0; i < 8; i++) {
        sim_call(&s, i % 2, i);
        assert_true(sim_settle(&s, 10 * S));
    }
    assert_int_equal(failed(&s), 0);
    assert_int_equal(sim_loads(&s), before + 8); /* never where it has no room */
    assert_true(s.peers[1].most_resident <= 200 * MIB);
    sim_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(load_that_fails_everywhere_is_tried_on_three),
        cmocka_unit_test(texts_of_failures_reach_every_peer),
        cmocka_unit_test(load_that_fails_here_succeeds_there),
        cmocka_unit_test(failure_has_the_same_status_at_any_peer),
        cmocka_unit_test(failures_are_forgotten_by_their_kind),
        cmocka_unit_test(runtime_that_lost_the_model_loads_it_again),
        cmocka_unit_test(killed_peer_costs_only_what_it_ran),
        cmocka_unit_test(hung_peer_costs_one_hedge_delay),
        cmocka_unit_test(silent_peer_is_asked_if_nobody_else_can),
        cmocka_unit_test(slow_model_is_not_hedged),
        cmocka_unit_test(requests_of_a_model_that_keeps_state_do_not_run_twice),
        cmocka_unit_test(evicted_copy_that_keeps_state_is_loaded_again_without_the_registry),
        cmocka_unit_test(registry_away_stops_nobody),
        cmocka_unit_test(history_that_is_gone_is_read_again),
        cmocka_unit_test(registry_that_lost_its_data_gets_it_again),
        cmocka_unit_test(registry_that_is_another_at_a_later_revision_gets_it_again),
        cmocka_unit_test(two_owners_do_not_load_twice),
        cmocka_unit_test(claim_whose_answer_was_lost_is_deleted),
        cmocka_unit_test(restarted_peer_forgets_what_it_had),
        cmocka_unit_test(unregistered_model_is_unloaded_everywhere),
        cmocka_unit_test(another_definition_is_loaded_anew),
        cmocka_unit_test(definition_that_was_asked_for_is_loaded_anew),
        cmocka_unit_test(peer_that_has_not_what_its_record_says_is_asked_once),
        cmocka_unit_test(damaged_records_harm_nobody_else),
        cmocka_unit_test(messages_that_cannot_be_read_change_nothing),
        cmocka_unit_test(size_measured_before_a_restart_decides_the_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
