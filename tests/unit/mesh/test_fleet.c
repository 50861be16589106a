/* Fleets in the simulator: loads, forwards, owners, queues, room. Names follow what a user would see. */
#include "sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void unknown_model_is_not_found(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 2, 100 * MIB, 4);
    struct sim_call *c = sim_call(&s, 0, 7);
    assert_true(sim_settle(&s, S));
    assert_int_equal(c->status, MR_E_NOT_FOUND);
    c = sim_call(&s, 0, 7);
    assert_true(c->has_ended); /* remembered */
    assert_int_equal(c->status, MR_E_NOT_FOUND);
    sim_fini(&s);
}

static void flood_of_unknown_ids_does_not_reach_the_registry(void **state)
{
    struct sim s;
    struct mesh_core_report report;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 1, 100 * MIB, 4);
    for (unsigned i = 0; i < 1000; i++) {
        char id[24];
        sim_id(id, i);
        if (i % 3) {
            (i % 3 == 1 ? sim_call_vmodel : sim_call_name)(&s, 0, id);
        } else {
            sim_call(&s, 0, i);
        }
        sim_run(&s, MS);
    }
    assert_true(sim_settle(&s, S));
    mesh_core_report(s.peers[0].core, &report);
    assert_true(report.unknown_reads <= 11); /* 5 at first and 5 a second */
    assert_int_equal(report.requests, 0);
    sim_fini(&s);
}

static void model_registered_a_moment_ago_is_found(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 2, 100 * MIB, 4);
    mr_kv_memory_set_delay(s.peers[0].kv, 3 * MS); /* its watch is behind */
    sim_register(&s, 0, 1, MIB, 10 * MS);
    struct sim_call *c = sim_call(&s, 0, 0);
    assert_true(sim_settle(&s, S));
    assert_int_equal(c->status, MR_OK);
    sim_fini(&s);
}

static void put_vmodel(struct sim *s, const char *key, const char *model)
{
    struct mesh_vmodel v = {.active = mr_str_c(model), .target = mr_str_c(model)};
    struct mr_buf b;

    mr_buf_init(&b, 0);
    mesh_vmodel_put(&b, &v);
    sim_put(s, key, (mr_bytes){(const uint8_t *)b.ptr, b.len});
    mr_buf_fini(&b);
}

/* By its id and by a name that may be a model's, and so is the model that it stands for. */
static void vmodel_set_a_moment_ago_is_found(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct sim s;
        sim_init(&s, 1);
        sim_add_many(&s, 2, 100 * MIB, 4);
        mr_kv_memory_set_delay(s.peers[0].kv, 3 * MS); /* its watch is behind */
        sim_register(&s, 0, 1, MIB, 10 * MS);
        put_vmodel(&s, "mesh/v/v", "model-0");
        for (unsigned k = 0; k < 3; k++) {
            (i ? sim_call_name : sim_call_vmodel)(&s, 0, "v");
        }
        assert_true(sim_settle(&s, S));
        for (unsigned k = 0; k < 3; k++) {
            assert_int_equal(s.calls.at[k]->status, MR_OK);
            assert_int_equal(s.calls.at[k]->runs, 1);
        }
        sim_fini(&s);
    }
}

static void unknown_vmodel_is_not_found(void **state)
{
    struct sim s;
    struct mesh_core_report report;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 2, 100 * MIB, 4);
    sim_put(&s, "mesh/v/damaged", (mr_bytes){(const uint8_t *)"\xff", 1});
    const struct mesh_ask left = {.id = MR_STR("left"), .is_vmodel = true};
    uint64_t handle = mesh_core_request(s.peers[0].core, &left, s.now);
    struct sim_call *c[] = {sim_call_vmodel(&s, 0, "v"), sim_call_name(&s, 0, "w"),
                            sim_call_vmodel(&s, 0, "damaged")};
    mesh_core_cancel(s.peers[0].core, handle, s.now);
    assert_true(sim_settle(&s, S));
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(c[i]->status, MR_E_NOT_FOUND);
    }
    assert_string_equal(c[0]->text, "vmodel not found");
    assert_string_equal(c[1]->text, "model not found");
    assert_true(sim_call_vmodel(&s, 0, "v")->has_ended); /* remembered */
    assert_true(sim_call_name(&s, 0, "w")->has_ended);
    assert_false(sim_call_name(&s, 0, "v")->has_ended); /* there may be such a model */
    mesh_core_report(s.peers[0].core, &report);
    assert_int_equal(report.unknown_reads, 5);
    assert_true(sim_settle(&s, S));
    mr_kv_memory_cut(s.peers[0].kv, true);
    sim_run(&s, 100 * MS);
    struct sim_call *away = sim_call_vmodel(&s, 0, "x");
    assert_true(sim_settle(&s, S));
    assert_int_equal(away->status, MR_E_UNAVAILABLE);
    mesh_core_report(s.peers[0].core, &report);
    assert_int_equal(report.requests, 0);
    sim_fini(&s);
}

/* One that went straight to a server, which the core hears of after its model, or vmodel, has gone. */
static void request_that_was_sent_is_waited_for_without_its_model(void **state)
{
    struct sim s;
    struct mesh_core_report report;
    struct mesh_action a;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 2, 100 * MIB, 4);
    sim_register(&s, 0, 1, MIB, 10 * MS); /* of the vmodel's name */
    sim_run(&s, 100 * MS);
    struct mesh_core *core = s.peers[0].core;
    for (unsigned i = 0; i < 4; i++) {
        const struct mesh_ask ask = {.id = i < 2 ? MR_STR("gone") : MR_STR("model-0"),
                                     .is_vmodel = i >= 2,
                                     .is_safe = true,
                                     .sent_to = MR_STR("sim:1")};
        uint64_t handle = mesh_core_request(core, &ask, s.now);
        assert_false(mesh_core_take(core, &a));
        mesh_core_result(core, handle, 0, i % 2 ? MESH_BROKEN : MESH_ENDED, MR_OK, (mr_str){0},
                         s.now);
        assert_int_equal(mesh_core_take(core, &a), i % 2);
        if (i % 2) {
            assert_int_equal(a.kind, MESH_ACT_REPLY);
            assert_int_equal(a.status, MR_E_NOT_FOUND);
        }
        mesh_core_report(core, &report);
        assert_int_equal(report.requests, 0);
    }
    sim_fini(&s);
}

static void cold_model_is_loaded_and_answers(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 3, 100 * MIB, 4);
    sim_register(&s, 0, 1, MIB, 100 * MS);
    sim_run(&s, 10 * MS);
    struct sim_call *c = sim_call(&s, 1, 0);
    assert_true(sim_settle(&s, S));
    assert_int_equal(c->status, MR_OK);
    assert_int_equal(c->runs, 1);
    assert_true(c->end_ns - c->begin_ns < 120 * MS);
    sim_run(&s, 100 * MS);
    for (unsigned i = 0; i < 3; i++) { /* everybody sees it, with its state and size */
        const struct view_model *m = view_find(mesh_core_view(s.peers[i].core), MR_STR("model-0"));
        assert_int_equal(m->copy_count, 1);
        assert_int_equal(m->copies[0].state, MESH_LOADED);
        assert_int_equal(m->copies[0].units, MIB / MESH_UNIT);
        assert_int_equal(m->units_measured, MIB / MESH_UNIT);
    }
    sim_fini(&s);
}

static void other_peers_forward_to_the_copy(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 3, 100 * MIB, 4);
    sim_register(&s, 0, 1, MIB, 100 * MS);
    sim_call(&s, 0, 0);
    assert_true(sim_settle(&s, S));
    for (unsigned i = 0; i < 200; i++) {
        struct sim_call *c = sim_call(&s, i % 3, 0);
        assert_true(sim_settle(&s, S));
        assert_int_equal(c->status, MR_OK);
    }
    assert_int_equal(sim_loads(&s), 1);
    sim_fini(&s);
}

static void model_that_the_runtime_has_loaded_by_itself_is_a_copy(void **state)
{
    struct sim s;
    struct mesh_core_report report;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 2, 100 * MIB, 4);
    for (unsigned i = 0; i < 3; i++) {
        s.models[i] =
            (struct sim_model){.bytes = 40 * MIB, .load_ns = MS, .unload_ns = MS, .run_ns = MS};
        sim_define(&s, i, &(struct mesh_def){.type = MR_STR("t")});
    }
    sim_define(&s, 8, &(struct mesh_def){.type = MR_STR("t"), .path = MR_STR("/elsewhere")});
    sim_run(&s, 100 * MS);
    sim_found(&s, 0, 0);
    sim_found(&s, 0, 7); /* it is not registered */
    sim_found(&s, 0, 8); /* the one that is registered is elsewhere */
    sim_found(&s, 0, 1);
    sim_run(&s, 100 * MS);
    struct sim_call *call = sim_call(&s, 1, 0);
    sim_run(&s, 100 * MS);
    assert_true(call->has_ended && call->status == MR_OK && call->ran_at == 0);
    assert_int_equal(sim_loads(&s), 0);
    sim_found(&s, 0, 0); /* it is known */
    mesh_core_report(s.peers[0].core, &report);
    assert_int_equal(report.held_units, 80 * MIB / MESH_UNIT);
    sim_found(&s, 0, 2); /* the three do not fit: the one that was never used goes */
    sim_run(&s, 100 * MS);
    assert_int_equal(s.peers[0].in_runtime[0], 2);
    assert_int_equal(s.peers[0].unloads, 1);
    mesh_core_report(s.peers[0].core, &report);
    assert_int_equal(report.held_units, 80 * MIB / MESH_UNIT);
    sim_fini(&s);
}

/* One of them has the claim; the others load a copy more. Beside them clients ask, whose requests may go anywhere. */
static void what_several_processes_need_at_once_is_loaded_by_each(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 20; seed++) {
        struct sim s;
        struct sim_call *local[4];
        sim_init(&s, seed);
        sim_add_many(&s, 4, 1024 * MIB, 6);
        sim_register(&s, 0, 1, 50 * MIB, 20 * MS);
        for (unsigned i = 0; i < 4; i++) {
            sim_call(&s, i, 0);
            local[i] = sim_call_local(&s, i, 0);
            sim_run(&s, (int64_t)(seed % 4) * MS);
        }
        assert_true(sim_settle(&s, 10 * S));
        for (unsigned i = 0; i < 4; i++) {
            assert_int_equal(local[i]->status, MR_OK);
            assert_int_equal(local[i]->ran_at, i);
        }
        for (size_t i = 0; i < s.calls.len; i++) {
            assert_int_equal(s.calls.at[i]->status, MR_OK);
        }
        sim_fini(&s);
    }
}

static void thousand_callers_on_ten_peers_are_one_load(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 5; seed++) {
        struct sim s;
        sim_init(&s, seed);
        sim_add_many(&s, 10, 100 * MIB, 4);
        sim_register(&s, 0, 20, MIB, 300 * MS);
        sim_run(&s, 10 * MS);
        unsigned model = (unsigned)seed * 3;
        for (unsigned i = 0; i < 1000; i++) {
            sim_call(&s, i % 10, model);
        }
        assert_true(sim_settle(&s, 2 * S));
        for (size_t i = 0; i < s.calls.len; i++) {
            assert_int_equal(s.calls.at[i]->status, MR_OK);
            assert_int_equal(s.calls.at[i]->runs, 1);
        }
        assert_int_equal(s.models[model].loads, 1);
        sim_fini(&s);
    }
}

static void fifty_cold_models_spread_over_ten_idle_peers(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 5; seed++) {
        struct sim s;
        sim_init(&s, seed);
        sim_add_many(&s, 10, 100 * MIB, 4);
        sim_register(&s, 0, 300, MIB, 300 * MS);
        sim_run(&s, 10 * MS);
        for (unsigned i = 0; i < 50; i++) {
            sim_call(&s, (unsigned)(mr_rng_u64(&s.rng) % 10), (unsigned)seed * 50 + i);
        }
        assert_true(sim_settle(&s, 5 * S));
        for (unsigned i = 0; i < 10; i++) {
            assert_true(sim_copies_at(&s, i) <= 10);
        }
        assert_int_equal(sim_loads(&s), 50);
        sim_fini(&s);
    }
}

static void nineteenth_model_evicts_the_one_that_is_worth_least(void **state)
{
    struct sim s;
    struct mesh_core_report report;
    (void)state;

    sim_init(&s, 1);
    s.options.default_bytes = 50 * MIB;
    sim_add_many(&s, 1, 1024 * MIB, 6);
    sim_register(&s, 0, 20, 50 * MIB, 20 * MS);
    mesh_core_report(s.peers[0].core, &report);
    assert_int_equal(report.limit_units,
                     949 * MIB / MESH_UNIT); /* 75 are kept for loads beside unloads */
    for (unsigned i = 0; i < 18; i++) {
        sim_call(&s, 0, i);
        sim_run(&s, 100 * MS);
    }
    assert_int_equal(s.peers[0].unloads, 0);
    sim_call(&s, 0, 18);
    sim_run(&s, 100 * MS);
    assert_int_equal(s.peers[0].unloads, 1);
    assert_int_equal(s.peers[0].in_runtime[0], 0); /* the oldest of equals */
    assert_int_equal(s.peers[0].in_runtime[18], 2);
    sim_fini(&s);
}

static void loads_begin_while_evicted_models_are_still_unloaded(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    s.options.default_bytes = 50 * MIB;
    sim_add_many(&s, 1, 1024 * MIB, 6);
    sim_register(&s, 0, 22, 50 * MIB, 20 * MS);
    for (unsigned i = 0; i < 22; i++) {
        s.models[i].unload_ns = S;
    }
    for (unsigned i = 0; i < 18; i++) {
        sim_call(&s, 0, i);
        sim_run(&s, 100 * MS);
    }
    struct sim_call *c[3];
    for (unsigned i = 0; i < 3; i++) {
        c[i] = sim_call(&s, 0, 18 + i);
    }
    assert_true(sim_settle(&s, 5 * S));
    assert_true(c[0]->end_ns - c[0]->begin_ns < 100 * MS);
    /* 18 and one that loads are 950 with what leaves; there is room for 74 more, so for one */
    assert_true(c[1]->end_ns - c[1]->begin_ns < 100 * MS);
    assert_true(c[2]->end_ns - c[2]->begin_ns >= S && c[2]->end_ns - c[2]->begin_ns < 1300 * MS);
    assert_int_equal(s.peers[0].unloads, 3);
    assert_true(s.peers[0].most_resident <= 1024 * MIB);
    sim_fini(&s);
}

static void request_that_is_stuck_does_not_hold_up_loads(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    s.sizes_are_declared = true;
    sim_add_many(&s, 1, 10 * MIB, 1);
    sim_register(&s, 0, 3, 8 * MIB, 20 * MS);
    s.models[0].run_ns = 1000 * S;
    struct sim_call *stuck = sim_call(&s, 0, 0);
    sim_run(&s, 5 * S);
    s.models[0].run_ns = MS;
    struct sim_call *c = sim_call(&s, 0, 1);
    sim_run(&s, 100 * S);
    assert_false(c->has_ended);
    sim_run(&s, 25 * S);
    assert_true(c->has_ended);
    assert_int_equal(c->status, MR_OK);
    sim_call(&s, 0, 2);
    sim_run(&s, 5 * S);
    assert_int_equal(s.peers[0].unloads, 2);
    assert_true(sim_settle(&s, 1000 * S)); /* it does not find its model, which is loaded again */
    assert_int_equal(stuck->status, MR_OK);
    assert_int_equal(s.peers[0].unloads, 3);
    sim_fini(&s);
}

static void larger_model_than_predicted_evicts_as_much_and_no_more(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    s.options.default_bytes = 50 * MIB;
    sim_add_many(&s, 1, 1024 * MIB, 6);
    sim_register(&s, 0, 20, 50 * MIB, 20 * MS);
    s.models[18].bytes = 160 * MIB;
    for (unsigned i = 0; i < 19; i++) {
        sim_call(&s, 0, i);
        sim_run(&s, 100 * MS);
    }
    assert_int_equal(s.peers[0].unloads, 3); /* one for what was predicted, two for the rest */
    assert_int_equal(s.peers[0].in_runtime[18], 2);
    assert_int_equal(s.peers[0].in_runtime[3], 2);
    sim_fini(&s);
}

static void model_larger_than_the_capacity_is_said_so(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 2, 100 * MIB, 4);
    sim_register(&s, 0, 1, 300 * MIB, 20 * MS);
    struct sim_call *c = sim_call(&s, 0, 0);
    assert_true(sim_settle(&s, 5 * S));
    assert_int_equal(c->status, MR_E_TOO_LARGE);
    sim_run(&s, S);
    unsigned loads = s.models[0].loads;
    c = sim_call(&s, 1, 0); /* its size is known now: it is not tried again */
    assert_true(sim_settle(&s, 5 * S));
    assert_int_equal(c->status, MR_E_TOO_LARGE);
    assert_int_equal(s.models[0].loads, loads);
    sim_fini(&s);
}

/* Once its size is known. A peer that keeps more of its capacity refuses it, and the next one is asked. */
static void model_of_almost_the_capacity_is_loaded_again(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 2, 100 * MIB, 4);
    sim_register(&s, 0, 1, 95 * MIB, 20 * MS);
    sim_call(&s, 0, 0);
    assert_true(sim_settle(&s, 5 * S));
    assert_int_equal(sim_copies(&s, 0), 1);
    unsigned first = s.peers[1].in_runtime[0] == 2;
    sim_drain(&s, first);
    sim_run(&s, 30 * S);
    assert_int_equal(s.peers[!first].in_runtime[0], 2);
    s.options.default_bytes = 100 * MIB; /* so that it keeps a tenth of its capacity */
    unsigned third = sim_add(&s, 101 * MIB, 4, "", "");
    sim_kill(&s, first);
    sim_kill(&s, !first);
    sim_run(&s, 30 * S);
    struct sim_call *c = sim_call(&s, third, 0);
    assert_true(sim_settle(&s, 5 * S));
    assert_int_equal(c->status, MR_E_TOO_LARGE);
    s.options.default_bytes = MIB;
    unsigned fourth = sim_add(&s, 96 * MIB, 4, "", "");
    sim_run(&s, S);
    c = sim_call(&s, fourth, 0);
    assert_true(sim_settle(&s, 5 * S));
    assert_int_equal(c->status, MR_OK);
    assert_int_equal(s.peers[fourth].in_runtime[0], 2);
    assert_int_equal(s.peers[third].loads, 0);
    assert_int_equal(mesh_core_copy(s.peers[third].core, MR_STR("model-0")), MESH_FAILED);
    sim_fini(&s);
}

static void request_goes_before_a_preload(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 1, 100 * MIB, 1);
    sim_register(&s, 0, 1, MIB, 100 * MS);
    for (unsigned i = 1; i < 4; i++) {
        sim_register(&s, i, 1, MIB, 100 * MS);
        sim_define(&s, i, &(struct mesh_def){.type = MR_STR("t"), .min_copies = 1});
    }
    sim_run(&s, 361 * S); /* the janitor preloads 1, 2, 3, one after the other */
    sim_run(&s, 120 * MS);
    struct sim_call *c = sim_call(&s, 0, 0);
    assert_true(sim_settle(&s, S));
    assert_int_equal(c->status, MR_OK);
    sim_run(&s, S);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(sim_copies(&s, i), 1);
    }
    sim_fini(&s);
}

static void working_set_over_the_capacity_fails_nobody(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 3);
    s.sizes_are_declared = true;
    sim_add_many(&s, 2, 20 * MIB, 4);
    sim_register(&s, 0, 400, MIB, 5 * MS);
    sim_run(&s, 10 * MS);
    for (unsigned i = 0; i < 3000; i++) {
        double u = mr_rng_unit(&s.rng);
        sim_call(&s, i % 2, (unsigned)(400 * u * u * u));
        sim_run(&s, 2 * MS);
    }
    assert_true(sim_settle(&s, 60 * S));
    for (size_t i = 0; i < s.calls.len; i++) {
        assert_int_equal(s.calls.at[i]->status, MR_OK);
    }
    sim_fini(&s);
}

static void full_queue_refuses_with_a_hint(void **state)
{
    struct sim s;
    unsigned refused = 0;
    (void)state;

    sim_init(&s, 1);
    s.options.max_queue = 8;
    sim_add_many(&s, 1, 100 * MIB, 2);
    sim_register(&s, 0, 30, MIB, 100 * MS);
    sim_run(&s, 10 * MS);
    for (unsigned i = 0; i < 30; i++) {
        sim_call(&s, 0, i);
    }
    assert_true(sim_settle(&s, 10 * S));
    for (size_t i = 0; i < s.calls.len; i++) {
        struct sim_call *c = s.calls.at[i];
        if (c->status != MR_OK) {
            refused++;
            assert_int_equal(c->status, MR_E_EXHAUSTED);
            assert_true(c->retry_ns >= 100 * MS);
        }
    }
    assert_true(refused >= 18 && refused <= 22);
    sim_fini(&s);
}

static void concurrent_loads_evict_one_each(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    s.options.default_bytes = 50 * MIB;
    s.sizes_are_declared = true;
    sim_add_many(&s, 1, 1024 * MIB, 6);
    sim_register(&s, 0, 28, 50 * MIB, 20 * MS);
    for (unsigned i = 0; i < 18; i++) {
        sim_call(&s, 0, i);
        sim_run(&s, 100 * MS);
    }
    for (unsigned i = 18; i < 28; i++) {
        sim_call(&s, 0, i);
    }
    for (unsigned i = 0; i < 5; i++) { /* some of those that are about to be evicted */
        sim_unregister(&s, 2 * i);
    }
    assert_true(sim_settle(&s, 10 * S));
    sim_run(&s, S);
    for (unsigned i = 0; i < 28; i++) {
        assert_int_equal(sim_copies(&s, i), i >= 10); /* the ten oldest of equals have gone */
    }
    for (size_t i = 0; i < s.calls.len; i++) {
        assert_int_equal(s.calls.at[i]->status, MR_OK);
    }
    assert_int_equal(s.peers[0].unloads, 10);
    sim_fini(&s);
}

static void models_used_again_outlive_those_that_are_not(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    s.options.default_bytes = 50 * MIB;
    sim_add_many(&s, 1, 1024 * MIB, 6);
    sim_register(&s, 0, 21, 50 * MIB, 20 * MS);
    for (unsigned i = 0; i < 18 + 3 + 3; i++) { /* the first three come twice */
        sim_call(&s, 0, i < 18 ? i : i < 21 ? i - 18 : i - 3);
        sim_run(&s, 100 * MS);
    }
    for (unsigned i = 0; i < 21; i++) {
        assert_int_equal(sim_copies(&s, i), i < 3 || i >= 6);
    }
    sim_fini(&s);
}

static void loads_of_requests_begin_in_their_order(void **state)
{
    struct sim s;
    struct mesh_call ensure = {.kind = MESH_CALL_ENSURE};
    struct sim_call *c[6];
    char id[24];
    (void)state;

    sim_init(&s, 1);
    sim_add_many(&s, 1, 100 * MIB, 1);
    sim_register(&s, 0, 10, MIB, 100 * MS);
    sim_run(&s, 10 * MS);
    for (unsigned i = 6; i < 10; i++) { /* 6 loads, 7, 8 and 9 wait and nobody waits for them */
        sim_id(id, i);
        ensure.id = mr_str_c(id);
        sim_manage(&s, 0, &ensure);
        sim_run(&s, 5 * MS);
    }
    for (unsigned i = 0; i < 6; i++) { /* 0, 8, 1, 2, 3, 4 */
        c[i] = sim_call(&s, 0, i == 0 ? 0 : i == 1 ? 8 : i - 1);
    }
    assert_true(sim_settle(&s, 5 * S));
    for (unsigned i = 1; i < 6; i++) {
        assert_true(c[i]->end_ns > c[i - 1]->end_ns);
    }
    assert_int_equal(sim_copies(&s, 6), 1);
    assert_int_equal(sim_copies(&s, 7) + sim_copies(&s, 9), 0);
    sim_run(&s, S);
    assert_int_equal(sim_copies(&s, 7) + sim_copies(&s, 9), 2);
    sim_fini(&s);
}

/* Models first..first+count-1, with device memory. */
static void register_on_device(struct sim *s, unsigned first, unsigned count, uint64_t bytes)
{
    sim_register(s, first, count, MIB, 20 * MS);
    for (unsigned i = first; i < first + count; i++) {
        sim_define(s, i, &(struct mesh_def){.type = MR_STR("t"), .device_bytes = bytes});
    }
    sim_run(s, 10 * MS);
}

static void models_go_where_their_device_memory_fits(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    s.device_bytes = 8 * MIB;
    sim_add_many(&s, 2, 500 * MIB, 4);
    s.device_bytes = 40 * MIB;
    unsigned large = sim_add(&s, 500 * MIB, 4, "", "");
    sim_run(&s, 100 * MS);
    register_on_device(&s, 0, 8, 10 * MIB);
    for (unsigned i = 0; i < 8; i++) {
        struct sim_call *c = sim_call(&s, i % 3, i);
        assert_true(sim_settle(&s, 5 * S));
        assert_int_equal(c->status, MR_OK);
        sim_run(&s, S);
    }
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(s.models[i].loads, 1);
        assert_int_equal(s.peers[large].in_runtime[i], i < 4 ? 0 : 2); /* four have room */
    }
    register_on_device(&s, 8, 1, 100 * MIB);
    struct sim_call *c = sim_call(&s, 0, 8);
    assert_true(sim_settle(&s, 5 * S));
    assert_int_equal(c->status, MR_E_TOO_LARGE);
    assert_non_null(strstr(c->text, "100 MiB of device memory"));
    sim_fini(&s);
}

static void full_device_memory_evicts_only_what_takes_some(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    s.device_bytes = 40 * MIB;
    sim_add_many(&s, 1, 500 * MIB, 4);
    sim_register(&s, 0, 20, MIB, 20 * MS);
    register_on_device(&s, 20, 7, 10 * MIB);
    for (unsigned i = 20; i < 27; i++) {
        s.models[i].unload_ns = S; /* its memory is not free before */
    }
    for (unsigned i = 0; i < 24; i++) {
        sim_call(&s, 0, i);
        sim_run(&s, 50 * MS);
    }
    assert_int_equal(s.peers[0].unloads, 0);
    struct sim_call *c = sim_call(&s, 0, 24);
    assert_true(sim_settle(&s, 5 * S));
    assert_true(c->end_ns - c->begin_ns >= S);
    sim_call(&s, 0, 25);
    sim_call(&s, 0, 26);
    assert_true(sim_settle(&s, 5 * S));
    unsigned on_device = 0;
    for (unsigned i = 0; i < 27; i++) {
        assert_true(i >= 20 || sim_copies(&s, i) == 1);
        on_device += i >= 20 && sim_copies(&s, i) == 1;
    }
    assert_int_equal(on_device, 4);
    assert_int_equal(s.peers[0].unloads, 3);
    sim_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_model_is_not_found),
        cmocka_unit_test(flood_of_unknown_ids_does_not_reach_the_registry),
        cmocka_unit_test(model_registered_a_moment_ago_is_found),
        cmocka_unit_test(vmodel_set_a_moment_ago_is_found),
        cmocka_unit_test(unknown_vmodel_is_not_found),
        cmocka_unit_test(request_that_was_sent_is_waited_for_without_its_model),
        cmocka_unit_test(cold_model_is_loaded_and_answers),
        cmocka_unit_test(other_peers_forward_to_the_copy),
        cmocka_unit_test(model_that_the_runtime_has_loaded_by_itself_is_a_copy),
        cmocka_unit_test(what_several_processes_need_at_once_is_loaded_by_each),
        cmocka_unit_test(thousand_callers_on_ten_peers_are_one_load),
        cmocka_unit_test(fifty_cold_models_spread_over_ten_idle_peers),
        cmocka_unit_test(nineteenth_model_evicts_the_one_that_is_worth_least),
        cmocka_unit_test(loads_begin_while_evicted_models_are_still_unloaded),
        cmocka_unit_test(request_that_is_stuck_does_not_hold_up_loads),
        cmocka_unit_test(larger_model_than_predicted_evicts_as_much_and_no_more),
        cmocka_unit_test(model_larger_than_the_capacity_is_said_so),
        cmocka_unit_test(model_of_almost_the_capacity_is_loaded_again),
        cmocka_unit_test(request_goes_before_a_preload),
        cmocka_unit_test(concurrent_loads_evict_one_each),
        cmocka_unit_test(models_used_again_outlive_those_that_are_not),
        cmocka_unit_test(loads_of_requests_begin_in_their_order),
        cmocka_unit_test(models_go_where_their_device_memory_fits),
        cmocka_unit_test(full_device_memory_evicts_only_what_takes_some),
        cmocka_unit_test(working_set_over_the_capacity_fails_nobody),
        cmocka_unit_test(full_queue_refuses_with_a_hint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
