/* Loads that administrators ask for, in the simulator: what no request waits for is seen to as well. */
#include "mesh/live/live.h"

#include "sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static void begin(struct sim *s, unsigned peers)
{
    sim_init(s, 1);
    sim_add_many(s, peers, 100 * MIB, 4);
    for (unsigned i = 0; i < 32; i++) {
        s->models[i] =
            (struct sim_model){.bytes = MIB, .load_ns = 20 * MS, .run_ns = MS, .unload_ns = MS};
    }
}

static const struct sim_answer *ask(struct sim *s, unsigned peer, unsigned model,
                                    enum mesh_call_kind kind)
{
    char id[24];

    sim_id(id, model);
    return sim_manage(s, peer,
                      &(struct mesh_call){.kind = kind,
                                          .id = mr_str_c(id),
                                          .def = {.type = MR_STR("t")},
                                          .load_now = kind == MESH_CALL_REGISTER});
}

/* No peer sees to it any longer. */
static void assert_ended(const struct sim *s, unsigned models)
{
    char id[24];

    for (unsigned i = 0; i < models; i++) {
        sim_id(id, i);
        for (unsigned p = 0; p < s->peer_count; p++) {
            assert_false(mesh_core_is_wanted(s->peers[p].core, mr_str_c(id)));
        }
    }
}

/* As long as a load may follow. */
static void assert_not_said_to_have_failed(const struct sim *s, unsigned models)
{
    static struct mr_mesh mesh;
    char id[24];

    for (unsigned i = 0; i < models; i++) {
        sim_id(id, i);
        for (unsigned p = 0; p < s->peer_count; p++) {
            mesh.core = s->peers[p].core;
            assert_true(!mesh_core_is_wanted(mesh.core, mr_str_c(id)) ||
                        live_model_status(&mesh, mr_str_c(id)) !=
                            MILLRACE__MESH_STATUS__LOADING_FAILED);
        }
    }
}

static void load_that_fails_here_is_tried_there(void **state)
{
    struct sim s;
    (void)state;

    begin(&s, 3);
    s.delay_ns = 5 * MS; /* it shows that it has failed here before it begins there */
    for (unsigned i = 0; i < 6; i++) {
        s.models[i].fail_at = 3; /* peers 0 and 1 */
        ask(&s, i % 3, i, MESH_CALL_REGISTER);
    }
    for (unsigned i = 0; i < 3000; i++) {
        sim_run(&s, MS);
        assert_not_said_to_have_failed(&s, 6);
    }
    for (unsigned i = 0; i < 6; i++) {
        assert_int_equal(s.peers[2].in_runtime[i], 2);
        assert_int_equal(sim_copies(&s, i), 1);
        assert_true(s.models[i].loads <= 3);
    }
    assert_ended(&s, 6);
    sim_fini(&s);
}

static void load_that_fails_everywhere_ends_after_three(void **state)
{
    (void)state;
    for (unsigned peers = 2; peers < 6; peers++) {
        struct sim s;
        begin(&s, peers);
        s.models[0].fail_at = 0x1f;
        s.models[0].fail = MESH_FAIL_INVALID;
        ask(&s, 0, 0, MESH_CALL_REGISTER);
        sim_run(&s, S);
        assert_int_equal(s.models[0].loads, MR_MIN(peers, 3));
        assert_ended(&s, 1);
        assert_int_equal(ask(&s, 1, 0, MESH_CALL_ENSURE)->status, MR_OK);
        sim_run(&s, S);
        assert_int_equal(s.models[0].loads, MR_MIN(peers, 3)); /* the failures are remembered */
        assert_ended(&s, 1);
        sim_fini(&s);
    }
}

static void lost_messages_do_not_lose_it(void **state)
{
    struct sim s;
    (void)state;

    begin(&s, 4);
    s.loss = 1;
    for (unsigned i = 0; i < 16; i++) {
        ask(&s, i % 4, i, MESH_CALL_REGISTER);
    }
    sim_run(&s, 300 * MS);
    s.loss = 0;
    sim_run(&s, 5 * S);
    for (unsigned i = 0; i < 16; i++) {
        assert_int_equal(sim_copies(&s, i), 1);
    }
    assert_ended(&s, 16);
    sim_fini(&s);
}

/* A peer that is cut off from the registry owns its share of the models that come then. */
static void owner_behind_the_registry_stops_no_load(void **state)
{
    struct sim s;
    (void)state;

    begin(&s, 4);
    mr_kv_memory_cut(s.peers[1].kv, true);
    for (unsigned i = 0; i < 16; i++) {
        ask(&s, 0, i, MESH_CALL_REGISTER);
        ask(&s, 2, 16 + i, MESH_CALL_REGISTER);
    }
    sim_run(&s, 100 * MS);
    for (unsigned i = 16; i < 32; i++) {
        sim_call(&s, i % 2 ? 0 : 3, i);
    }
    assert_true(sim_settle(&s, S));
    for (size_t i = 0; i < s.calls.len; i++) {
        assert_int_equal(s.calls.at[i]->status, MR_OK);
    }
    sim_run(&s, 5 * S);
    for (unsigned i = 0; i < 32; i++) {
        assert_int_equal(sim_copies(&s, i), 1);
    }
    assert_ended(&s, 32);
    sim_fini(&s);
}

/* While the registry is away, no peer sees what others load; what it has loaded itself it waits for no longer. */
static void registry_that_is_away_makes_no_second_copy(void **state)
{
    char id[24];
    struct sim s;
    (void)state;

    begin(&s, 4);
    for (unsigned i = 0; i < 16; i++) {
        sim_define(&s, i, &(struct mesh_def){.type = MR_STR("t")});
    }
    sim_run(&s, 100 * MS);
    for (unsigned p = 0; p < 4; p++) {
        mr_kv_memory_cut(s.peers[p].kv, true);
    }
    sim_run(&s, 100 * MS);
    for (unsigned i = 0; i < 16; i++) {
        ask(&s, i % 4, i, MESH_CALL_ENSURE);
    }
    sim_run(&s, 15 * S);
    for (unsigned i = 0; i < 16; i++) {
        assert_int_equal(s.models[i].loads, 1);
        sim_id(id, i);
        assert_true(s.peers[i % 4].in_runtime[i] != 2 ||
                    !mesh_core_is_wanted(s.peers[i % 4].core, mr_str_c(id)));
    }
    for (unsigned p = 0; p < 4; p++) {
        mr_kv_memory_cut(s.peers[p].kv, false);
    }
    sim_run(&s, 5 * S);
    for (unsigned i = 0; i < 16; i++) {
        assert_int_equal(s.models[i].loads, 1);
    }
    assert_ended(&s, 16);
    sim_fini(&s);
}

/* The one that is asked learns late of what it has written. */
static void load_waits_for_the_registration(void **state)
{
    struct sim s;
    (void)state;

    begin(&s, 2);
    mr_kv_memory_set_delay(s.peers[0].kv, 200 * MS);
    ask(&s, 0, 0, MESH_CALL_REGISTER);
    sim_run(&s, 3 * S);
    assert_int_equal(sim_copies(&s, 0), 1);
    sim_fini(&s);
}

static void model_that_may_be_nowhere_is_said_so(void **state)
{
    static const mr_str labels[] = {MR_STR_INIT("gpu"), MR_STR_INIT("big")};
    static const struct mesh_constraint both = {
        .type = MR_STR_INIT("t"), .required = labels, .required_count = 2};
    static const struct mesh_constraint one = {
        .type = MR_STR_INIT("t"), .required = labels, .required_count = 1};
    char text[MESH_WHY_MAX];
    struct sim s;
    (void)state;

    begin(&s, 2);
    for (unsigned i = 0; i < 2; i++) {
        mesh_core_constraints(s.peers[i].core, &both, 1);
    }
    ask(&s, 0, 0, MESH_CALL_REGISTER);
    sim_run(&s, 100 * MS);
    assert_ended(&s, 1);
    assert_false(mesh_core_is_nowhere(s.peers[0].core, MR_STR("model-1"), text));
    assert_true(mesh_core_is_nowhere(s.peers[1].core, MR_STR("model-0"), text));
    assert_string_equal(
        text,
        "There are no running instances that meet the label requirements of type t: [gpu, big]");
    for (unsigned i = 0; i < 2; i++) {
        mesh_core_constraints(s.peers[i].core, &one, 1);
    }
    s.options.constraints = &one;
    s.options.constraint_count = 1;
    sim_add(&s, 100 * MIB, 4, "", "gpu");
    sim_run(&s, S);
    assert_false(mesh_core_is_nowhere(s.peers[1].core, MR_STR("model-0"), text));
    ask(&s, 0, 0, MESH_CALL_ENSURE);
    sim_run(&s, S);
    assert_int_equal(s.peers[2].in_runtime[0], 2);
    sim_fini(&s);
}

static const struct view_vmodel *vmodel(const struct sim *s)
{
    return view_vmodel_find(mesh_core_view(s->peers[0].core), MR_STR("v"));
}

static void set(struct sim *s, unsigned target, bool load_now)
{
    char id[24];

    sim_id(id, target);
    sim_manage(s, 0,
               &(struct mesh_call){.kind = MESH_CALL_SET_VMODEL,
                                   .id = MR_STR("v"),
                                   .target = mr_str_c(id),
                                   .has_def = true,
                                   .def = {.type = MR_STR("t")},
                                   .load_now = load_now});
    sim_run(s, 100 * MS);
}

static void vmodel_set_again_loads_its_model(void **state)
{
    struct sim s;
    (void)state;

    begin(&s, 3);
    set(&s, 0, false);
    sim_run(&s, S);
    assert_int_equal(sim_copies(&s, 0), 0);
    set(&s, 0, true);
    sim_run(&s, S);
    assert_int_equal(sim_copies(&s, 0), 1);
    sim_fini(&s);
}

/* The active model has three copies; its target may have two, or is damaged on a peer. */
static void transition_takes_the_copies_that_it_can_get(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct sim s;
        begin(&s, 3);
        sim_define(&s, 0, &(struct mesh_def){.type = MR_STR("t"), .min_copies = 3});
        sim_define(&s, 1, &(struct mesh_def){.type = MR_STR("t"), .max_copies = i ? 0 : 2});
        s.models[1].fail_at = i;
        s.models[1].fail = MESH_FAIL_INVALID;
        sim_run(&s, 60 * S);
        assert_int_equal(sim_copies(&s, 0), 3);
        set(&s, 0, false);
        set(&s, 1, false);
        sim_run(&s, 10 * S);
        assert_true(mr_str_eq_c(vmodel(&s)->active, "model-1"));
        assert_int_equal(sim_copies(&s, 1), 2);
        sim_fini(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(load_that_fails_here_is_tried_there),
        cmocka_unit_test(load_that_fails_everywhere_ends_after_three),
        cmocka_unit_test(lost_messages_do_not_lose_it),
        cmocka_unit_test(owner_behind_the_registry_stops_no_load),
        cmocka_unit_test(registry_that_is_away_makes_no_second_copy),
        cmocka_unit_test(load_waits_for_the_registration),
        cmocka_unit_test(model_that_may_be_nowhere_is_said_so),
        cmocka_unit_test(vmodel_set_again_loads_its_model),
        cmocka_unit_test(transition_takes_the_copies_that_it_can_get),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
