/* vmodels: the rules as transactions, and transitions in the simulator. */
#include "sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "mesh/core/core_priv.h"
#include "mesh/vmodel/vmodel.h"

static struct vmodel_model model(const char *id, int64_t revision, uint32_t refs, bool auto_delete)
{
    return (struct vmodel_model){
        .id = mr_str_c(id),
        .revision = revision,
        .def = {.type = MR_STR("t"), .refs = refs, .auto_delete = auto_delete}};
}

/* Refs that a plan gives a model: -1: it is not written; -2: it is deleted. */
static int refs_of(const struct vmodel_plan *p, const char *id)
{
    for (size_t i = 0; i < p->count; i++) {
        if (p->write[i].kind == MESH_KEY_MODEL && mr_str_eq_c(p->write[i].id, id)) {
            return p->write[i].is_delete ? -2 : (int)p->write[i].def.refs;
        }
    }
    return -1;
}

static const struct mesh_vmodel *vmodel_of(const struct vmodel_plan *p)
{
    for (size_t i = 0; i < p->count; i++) {
        if (p->write[i].kind == MESH_KEY_VMODEL && !p->write[i].is_delete) {
            return &p->write[i].v;
        }
    }
    return NULL;
}

static struct vmodel_state stable(void)
{
    return (struct vmodel_state){
        .id = MR_STR("v"),
        .revision = 5,
        .v = {.active = MR_STR("a"), .target = MR_STR("a"), .owner = MR_STR("me")},
        .active = model("a", 3, 1, true),
        .target = model("a", 3, 1, true),
        .active_copies = 2,
        .wanted = model("b", 4, 0, false)};
}

static void first_definition_is_active_at_once(void **state)
{
    struct vmodel_state s = {.id = MR_STR("v"), .wanted = model("a", 3, 0, false)};
    struct vmodel_set set = {.target = MR_STR("a"), .owner = MR_STR("me")};
    struct vmodel_plan p;
    (void)state;

    assert_int_equal(vmodel_plan_set(&set, &s, &p, NULL), MR_OK);
    assert_true(mr_str_eq_c(vmodel_of(&p)->active, "a"));
    assert_true(mr_str_eq_c(vmodel_of(&p)->owner, "me"));
    assert_int_equal(refs_of(&p, "a"), 1);
    set.new_owner = MR_STR("all");
    assert_int_equal(vmodel_plan_set(&set, &s, &p, NULL), MR_OK);
    assert_true(mr_str_eq_c(vmodel_of(&p)->owner, "me"));
    set.owner = (mr_str){0};
    assert_int_equal(vmodel_plan_set(&set, &s, &p, NULL), MR_OK);
    assert_true(mr_str_eq_c(vmodel_of(&p)->owner, "all"));
    set.update_only = true;
    assert_int_equal(vmodel_plan_set(&set, &s, &p, NULL), MR_E_NOT_FOUND);
}

static void target_that_is_not_there_needs_a_definition(void **state)
{
    struct vmodel_state s = {.id = MR_STR("v"), .wanted = model("a", 0, 0, false)};
    struct vmodel_set set = {.target = MR_STR("a")};
    struct vmodel_plan p;
    (void)state;

    assert_int_equal(vmodel_plan_set(&set, &s, &p, NULL), MR_E_NOT_FOUND);
    set.has_def = true;
    set.def = (struct mesh_def){.type = MR_STR("t"), .path = MR_STR("/x"), .auto_delete = true};
    assert_int_equal(vmodel_plan_set(&set, &s, &p, NULL), MR_OK);
    assert_int_equal(refs_of(&p, "a"), 1);
    s.wanted = model("a", 9, 0, false); /* another path */
    assert_int_equal(vmodel_plan_set(&set, &s, &p, NULL), MR_E_EXISTS);
}

static void new_target_is_a_transition_while_copies_serve(void **state)
{
    struct vmodel_state s = stable();
    struct vmodel_set set = {.target = MR_STR("b")};
    struct vmodel_plan p;
    (void)state;

    assert_int_equal(vmodel_plan_set(&set, &s, &p, NULL), MR_OK);
    assert_true(mr_str_eq_c(vmodel_of(&p)->active, "a"));
    assert_true(mr_str_eq_c(vmodel_of(&p)->target, "b"));
    assert_int_equal(refs_of(&p, "b"), 1);
    assert_int_equal(refs_of(&p, "a"), -1);
    s.active_copies = 1;
    assert_int_equal(vmodel_plan_set(&set, &s, &p, NULL), MR_OK);
    assert_true(mr_str_eq_c(vmodel_of(&p)->active, "a"));
    s.wanted_is_loaded = true;
    assert_int_equal(vmodel_plan_set(&set, &s, &p, NULL), MR_OK);
    assert_true(mr_str_eq_c(vmodel_of(&p)->active, "b"));
    assert_int_equal(refs_of(&p, "a"), -2); /* auto_delete, and nobody else's */
    s.active_copies = 3;
    set.force = true;
    assert_int_equal(vmodel_plan_set(&set, &s, &p, NULL), MR_OK);
    assert_true(mr_str_eq_c(vmodel_of(&p)->active, "b"));
}

static void transition_can_be_turned_and_taken_back(void **state)
{
    struct vmodel_state s = stable();
    struct vmodel_set set = {.target = MR_STR("c")};
    struct vmodel_plan p;
    (void)state;

    s.v.target = MR_STR("b");
    s.target = model("b", 4, 1, false);
    s.wanted = model("c", 8, 0, false);
    assert_int_equal(vmodel_plan_set(&set, &s, &p, NULL), MR_OK);
    assert_int_equal(refs_of(&p, "c"), 1);
    assert_int_equal(refs_of(&p, "b"), 0);
    assert_int_equal(refs_of(&p, "a"), -1);
    set.target = MR_STR("a");
    s.wanted = s.active;
    assert_int_equal(vmodel_plan_set(&set, &s, &p, NULL), MR_OK);
    assert_true(mr_str_eq_c(vmodel_of(&p)->target, "a"));
    assert_int_equal(refs_of(&p, "b"), 0);
    assert_int_equal(refs_of(&p, "a"), -1);
}

static void same_again_changes_nothing(void **state)
{
    struct vmodel_state s = stable();
    struct vmodel_set set = {.target = MR_STR("a"), .expected = MR_STR("a")};
    struct vmodel_plan p;
    (void)state;

    s.wanted = s.active;
    assert_int_equal(vmodel_plan_set(&set, &s, &p, NULL), MR_OK);
    assert_int_equal(p.count, 0);
}

static void expected_target_and_owner_are_checked(void **state)
{
    struct vmodel_state s = stable();
    struct vmodel_set set = {.target = MR_STR("b"), .expected = MR_STR("x")};
    struct vmodel_plan p;
    (void)state;

    assert_int_equal(vmodel_plan_set(&set, &s, &p, NULL), MR_E_INVALID);
    assert_true(p.is_precondition);
    set.expected = MR_STR("a");
    assert_int_equal(vmodel_plan_set(&set, &s, &p, NULL), MR_OK);
    set.new_owner = MR_STR("you"); /* of others than that, which is there */
    assert_int_equal(vmodel_plan_set(&set, &s, &p, NULL), MR_OK);
    assert_true(mr_str_eq_c(vmodel_of(&p)->owner, "me"));
    set.owner = MR_STR("you");
    assert_int_equal(vmodel_plan_set(&set, &s, &p, NULL), MR_E_EXISTS);
    struct vmodel_state none = {.id = MR_STR("v"), .wanted = model("b", 4, 0, false)};
    set = (struct vmodel_set){.target = MR_STR("b"), .expected = MR_STR("b")};
    assert_int_equal(vmodel_plan_set(&set, &none, &p, NULL), MR_OK); /* it may be absent then */
    set.expected = MR_STR("a");
    assert_int_equal(vmodel_plan_set(&set, &none, &p, NULL), MR_E_INVALID);
    assert_true(p.is_precondition);
    assert_int_equal(vmodel_plan_set(&set, &s, &p, NULL), MR_OK);
    s.v.target = set.target;
    s.target = s.wanted;
    assert_int_equal(vmodel_plan_set(&set, &s, &p, NULL), MR_OK); /* the same call again */
    assert_int_equal(p.count, 0);
    set.target = MR_STR("c");
    assert_int_equal(vmodel_plan_set(&set, &s, &p, NULL), MR_E_INVALID);
    set.expected = set.target; /* no exception where there is another one */
    assert_int_equal(vmodel_plan_set(&set, &s, &p, NULL), MR_E_INVALID);
}

static void delete_and_promote_release_references(void **state)
{
    struct vmodel_state s = stable();
    struct vmodel_plan p;
    (void)state;

    s.v.target = MR_STR("b");
    s.v.failed = true;
    s.target = model("b", 4, 1, false);
    vmodel_plan_delete(MR_STR("you"), &s, &p);
    assert_int_equal(p.count, 0);
    vmodel_plan_delete(MR_STR("me"), &s, &p);
    assert_int_equal(refs_of(&p, "a"), -2);
    assert_int_equal(refs_of(&p, "b"), 0);
    vmodel_plan_promote(&s, &p);
    assert_true(mr_str_eq_c(vmodel_of(&p)->active, "b"));
    assert_false(vmodel_of(&p)->failed);
    assert_int_equal(refs_of(&p, "a"), -2);
    assert_int_equal(refs_of(&p, "b"), -1);
    vmodel_plan_failed(&s, true, &p);
    assert_int_equal(p.count, 0);
    vmodel_plan_failed(&s, false, &p);
    assert_false(vmodel_of(&p)->failed);
}

/* ---- in a fleet ---- */

static const struct sim_answer *call(struct sim *s, unsigned peer, const struct mesh_call *c)
{
    const struct sim_answer *a = sim_manage(s, peer, c);

    for (unsigned i = 0; i < 300 && !a->is_done; i++) {
        sim_run(s, 10 * MS);
    }
    assert_true(a->is_done);
    return a;
}

static const struct view_vmodel *seen(struct sim *s, unsigned peer)
{
    return view_vmodel_find(mesh_core_view(s->peers[peer].core), MR_STR("v"));
}

static void begin(struct sim *s)
{
    sim_init(s, 1);
    s->options.second_min_ns = 2 * S;
    s->options.second_max_ns = 60 * S;
    sim_add_many(s, 3, 100 * MIB, 4);
    for (unsigned i = 0; i < 4; i++) {
        s->models[i] =
            (struct sim_model){.bytes = MIB, .load_ns = 200 * MS, .run_ns = MS, .unload_ns = MS};
    }
}

static void registration_is_idempotent_and_refuses_other_attributes(void **state)
{
    struct sim s;
    (void)state;

    begin(&s);
    struct mesh_call c = {.kind = MESH_CALL_REGISTER,
                          .id = MR_STR("model-0"),
                          .def = {.type = MR_STR("t"), .key = MR_STR("foo")}};
    assert_int_equal(call(&s, 0, &c)->status, MR_OK);
    assert_int_equal(call(&s, 1, &c)->status, MR_OK);
    c.def.key = MR_STR("bar");
    assert_int_equal(call(&s, 2, &c)->status, MR_E_EXISTS);
    const struct view_model *m = view_find(mesh_core_view(s.peers[2].core), MR_STR("model-0"));
    assert_true(mr_str_eq_c(view_model_key(m), "foo"));
    c = (struct mesh_call){.kind = MESH_CALL_REGISTER, .id = MR_STR("x")};
    assert_int_equal(call(&s, 0, &c)->status, MR_E_INVALID); /* no type */
    c = (struct mesh_call){.kind = MESH_CALL_ENSURE, .id = MR_STR("model-0")};
    assert_int_equal(call(&s, 0, &c)->status, MR_OK);
    sim_run(&s, S);
    assert_int_equal(sim_copies(&s, 0), 1);
    c.kind = MESH_CALL_UNREGISTER;
    assert_int_equal(call(&s, 0, &c)->status, MR_OK);
    assert_int_equal(call(&s, 0, &c)->status, MR_OK);
    sim_run(&s, S);
    assert_int_equal(sim_copies(&s, 0), 0);
    sim_fini(&s);
}

/* The registry goes away before it has heard of what another one has answered. */
static void server_without_a_registry_denies_nothing_at_once(void **state)
{
    struct mesh_def def = {.type = MR_STR("t")};
    struct mesh_call add = {.kind = MESH_CALL_REGISTER, .id = MR_STR("model-0"), .def = def};
    struct mesh_call see = {.kind = MESH_CALL_SEE_MODEL, .id = MR_STR("model-0")};
    struct mesh_call load = {.kind = MESH_CALL_ENSURE, .id = MR_STR("model-0")};
    struct mesh_call gone = {.kind = MESH_CALL_UNREGISTER, .id = MR_STR("model-0")};
    struct mesh_call never = {.kind = MESH_CALL_UNREGISTER, .id = MR_STR("never")};
    struct mesh_call see_never = {.kind = MESH_CALL_SEE_MODEL, .id = MR_STR("never")};
    struct sim s;
    (void)state;

    begin(&s);
    sim_run(&s, S);
    for (unsigned i = 0; i < 2; i++) { /* known to be away, or not yet */
        mr_kv_memory_set_delay(s.peers[1].kv, 200 * MS);
        assert_int_equal(call(&s, 0, &add)->status, MR_OK);
        const struct sim_answer *early = sim_manage(&s, 1, &see);
        mr_kv_memory_cut(s.peers[1].kv, true);
        sim_run(&s, i * 100 * MS);
        const struct sim_answer *late = sim_manage(&s, 1, &see);
        const struct sim_answer *loaded = sim_manage(&s, 1, &load);
        sim_run(&s, S);
        assert_false(early->is_done || late->is_done || loaded->is_done);
        mr_kv_memory_set_delay(s.peers[1].kv, 0);
        mr_kv_memory_cut(s.peers[1].kv, false);
        sim_run(&s, 900 * MS);
        assert_true(early->is_done && late->is_done && loaded->is_done);
        assert_int_equal(loaded->status, MR_OK);
        assert_true(view_find(mesh_core_view(s.peers[1].core), see.id)->revision > 0);
        assert_int_equal(call(&s, 0, &gone)->status, MR_OK);
        sim_run(&s, S);
    }
    mr_kv_memory_cut(s.peers[1].kv, true);
    sim_run(&s, 100 * MS);
    const struct sim_answer *seen_never = sim_manage(&s, 1, &see_never);
    const struct sim_answer *gone_never = sim_manage(&s, 1, &never);
    sim_run(&s, 3 * S);
    assert_true(seen_never->is_done && !gone_never->is_done);
    assert_int_equal(seen_never->status, MR_OK);
    sim_run(&s, 8 * S);
    assert_int_equal(gone_never->status, MR_E_UNAVAILABLE);
    sim_fini(&s);
}

/* Another one answers a call, and the next one comes to a server that has not heard of it yet. */
static void server_that_is_behind_the_registry_asks_it(void **state)
{
    struct mesh_def one = {.type = MR_STR("t"), .key = MR_STR("1")};
    struct mesh_def two = {.type = MR_STR("t"), .key = MR_STR("2")};
    struct mesh_call add = {.kind = MESH_CALL_REGISTER, .id = MR_STR("model-0"), .def = one};
    struct mesh_call gone = {.kind = MESH_CALL_UNREGISTER, .id = MR_STR("model-0")};
    struct mesh_call load = {.kind = MESH_CALL_ENSURE, .id = MR_STR("model-0")};
    struct mesh_call set = {.kind = MESH_CALL_SET_VMODEL,
                            .id = MR_STR("v"),
                            .target = MR_STR("model-0"),
                            .update_only = true};
    struct mesh_call drop = {.kind = MESH_CALL_DELETE_VMODEL, .id = MR_STR("v")};
    struct mesh_call see = {.kind = MESH_CALL_SEE_MODEL, .id = MR_STR("model-0")};
    struct mesh_call see_v = {.kind = MESH_CALL_SEE_VMODEL, .id = MR_STR("v")};
    struct sim s;
    (void)state;

    begin(&s);
    sim_run(&s, S);
    mr_kv_memory_set_delay(s.peers[1].kv, 200 * MS);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(call(&s, 0, &add)->status, MR_OK);
        assert_int_equal(call(&s, 1, &see)->status, MR_OK);
        assert_true(view_find(mesh_core_view(s.peers[1].core), see.id)->revision > 0);
        assert_int_equal(call(&s, 1, &load)->status, MR_OK);
        assert_int_equal(call(&s, 0, &gone)->status, MR_OK);
        assert_int_equal(call(&s, 1, &add)->status, MR_OK); /* it is written again */
        assert_int_equal(call(&s, 0, &gone)->status, MR_OK);
        add.def = two;
        assert_int_equal(call(&s, 1, &add)->status, MR_OK); /* the other one is no more */
        set.update_only = false;
        assert_int_equal(call(&s, 0, &set)->status, MR_OK);
        assert_int_equal(call(&s, 1, &see_v)->status, MR_OK);
        assert_non_null(seen(&s, 1));
        set.update_only = true;
        assert_int_equal(call(&s, 1, &set)->status, MR_OK);
        assert_true(call(&s, 1, &gone)->is_precondition);
        assert_int_equal(call(&s, 0, &drop)->status, MR_OK);
        assert_int_equal(call(&s, 1, &gone)->status, MR_OK); /* no vmodel has it any more */
        assert_int_equal(call(&s, 1, &load)->status, MR_E_NOT_FOUND);
        assert_int_equal(call(&s, 0, &add)->status, MR_OK);
        assert_int_equal(call(&s, 1, &gone)->status, MR_OK);
        assert_int_equal(call(&s, 0, &load)->status, MR_E_NOT_FOUND);
        set.update_only = false;
        set.has_def = true;
        set.def = one;
        assert_int_equal(call(&s, 0, &set)->status, MR_OK);
        assert_int_equal(call(&s, 1, &drop)->status, MR_OK);
        assert_null(seen(&s, 2));
        assert_int_equal(call(&s, 1, &gone)->status, MR_OK);
        set.has_def = false;
        add.def = one;
    }
    sim_fini(&s);
}

static struct mesh_call sets_v_to_0(void)
{
    return (struct mesh_call){.kind = MESH_CALL_SET_VMODEL,
                              .id = MR_STR("v"),
                              .target = MR_STR("model-0"),
                              .has_def = true,
                              .def = {.type = MR_STR("t")}};
}

/* What no server could read is not written. */
static void texts_of_a_vmodel_are_checked(void **state)
{
    static char text[4097];
    struct mesh_call c = sets_v_to_0();
    struct sim s;
    (void)state;

    begin(&s);
    memset(text, 'o', sizeof text);
    c.owner = (mr_str){text, sizeof text};
    assert_int_equal(call(&s, 0, &c)->status, MR_E_INVALID);
    c.owner = MR_STR("\xff");
    assert_int_equal(call(&s, 0, &c)->status, MR_E_INVALID);
    c.def.type = c.owner = (mr_str){0};
    assert_int_equal(call(&s, 0, &c)->status, MR_E_INVALID);
    c.def.type = MR_STR("t");
    c.owner = (mr_str){text, sizeof text - 1};
    assert_int_equal(call(&s, 0, &c)->status, MR_OK);
    assert_non_null(seen(&s, 0));
    sim_fini(&s);
}

/* The server that is asked says so, and does nothing. */
static void record_of_a_vmodel_that_cannot_be_read_is_said(void **state)
{
    struct mesh_call c = sets_v_to_0();
    struct sim s;
    (void)state;

    begin(&s);
    sim_put(&s, "mesh/v/v", (mr_bytes){(const uint8_t *)"\xff", 1});
    sim_run(&s, S);
    const struct sim_answer *a = sim_manage(&s, 0, &c);
    c.kind = MESH_CALL_SEE_VMODEL;
    const struct sim_answer *see = sim_manage(&s, 0, &c);
    sim_run(&s, 3 * S);
    assert_true(see->is_done && see->status == MR_OK && !a->is_done);
    sim_run(&s, 8 * S);
    assert_true(a->is_done && a->status == MR_E_UNAVAILABLE);
    assert_non_null(strstr(a->text, "cannot be read"));
    sim_fini(&s);
}

static void changes_wait_a_while_for_a_registry_that_is_away(void **state)
{
    struct sim s;
    (void)state;

    begin(&s);
    sim_run(&s, S);
    mr_kv_memory_cut(s.peers[0].kv, true);
    sim_run(&s, S);
    struct mesh_call c = {
        .kind = MESH_CALL_REGISTER, .id = MR_STR("model-0"), .def = {.type = MR_STR("t")}};
    const struct sim_answer *late = sim_manage(&s, 0, &c);
    const struct sim_answer *again = sim_manage(&s, 0, &c);
    assert_int_equal(call(&s, 1, &c)->status, MR_OK); /* another one is quicker */
    c.id = MR_STR("model-1");
    const struct sim_answer *only = sim_manage(&s, 0, &c);
    sim_run(&s, 5 * S);
    assert_false(late->is_done || again->is_done || only->is_done);
    mr_kv_memory_cut(s.peers[0].kv, false);
    sim_run(&s, 4 * S);
    assert_true(late->is_done && again->is_done && only->is_done);
    assert_true(late->status == MR_OK && again->status == MR_OK && only->status == MR_OK);
    assert_non_null(view_find(mesh_core_view(s.peers[2].core), MR_STR("model-1")));
    mr_kv_memory_cut(s.peers[0].kv, true);
    sim_run(&s, S);
    c.id = MR_STR("model-2");
    late = sim_manage(&s, 0, &c);
    sim_run(&s, 11 * S);
    assert_true(late->is_done);
    assert_int_equal(late->status, MR_E_UNAVAILABLE);
    mr_kv_memory_cut(s.peers[0].kv, false);
    sim_run(&s, 30 * S); /* nothing of it was kept */
    assert_null(view_find(mesh_core_view(s.peers[0].core), MR_STR("model-2")));
    sim_fini(&s);
}

static void transition_matches_the_copies_before_the_switch(void **state)
{
    struct sim s;
    (void)state;

    begin(&s);
    struct mesh_call c = {.kind = MESH_CALL_SET_VMODEL,
                          .id = MR_STR("v"),
                          .target = MR_STR("model-0"),
                          .has_def = true,
                          .def = {.type = MR_STR("t"), .auto_delete = true}};
    assert_int_equal(call(&s, 0, &c)->status, MR_OK);
    for (unsigned i = 0; i < 10; i++) {
        sim_call_vmodel(&s, i % 3, "v");
        sim_run(&s, S);
    }
    assert_int_equal(sim_copies(&s, 0), 2);
    c.target = MR_STR("model-1");
    assert_int_equal(call(&s, 1, &c)->status, MR_OK);
    struct mesh_call un = {.kind = MESH_CALL_UNREGISTER, .id = MR_STR("model-1")};
    const struct sim_answer *a = call(&s, 2, &un);
    assert_int_equal(a->status, MR_E_INVALID);
    assert_true(a->is_precondition);
    for (unsigned i = 0; i < 300 && !mr_str_eq_c(seen(&s, 2)->active, "model-1"); i++) {
        sim_call_vmodel(&s, i % 3, "v");
        sim_run(&s, 10 * MS);
    }
    assert_true(mr_str_eq_c(seen(&s, 2)->active, "model-1"));
    assert_true(sim_copies(&s, 1) >= 2); /* as many as the old one had */
    assert_true(sim_settle(&s, S));
    for (size_t i = 0; i < s.calls.len; i++) {
        assert_int_equal(s.calls.at[i]->status, MR_OK);
    }
    sim_run(&s, 2 * S);
    assert_int_equal(sim_copies(&s, 0), 0); /* auto_delete */
    assert_null(view_find(mesh_core_view(s.peers[0].core), MR_STR("model-0")));
    sim_fini(&s);
}

static void target_that_keeps_state_takes_over_with_one_copy(void **state)
{
    struct mesh_call c = sets_v_to_0();
    struct sim s;
    (void)state;

    begin(&s);
    s.models[1].keeps_state = true;
    s.models[1].load_ns = 20 * MS;
    c.def.min_copies = 2;
    assert_int_equal(call(&s, 0, &c)->status, MR_OK);
    sim_run(&s, 30 * S);
    assert_int_equal(sim_copies(&s, 0), 2);
    c.target = MR_STR("model-1");
    c.def.min_copies = 0;
    assert_int_equal(call(&s, 0, &c)->status, MR_OK);
    sim_run(&s, 10 * S);
    assert_true(mr_str_eq_c(seen(&s, 0)->active, "model-1"));
    sim_run(&s, 10 * S);
    assert_int_equal(s.models[1].loads, 1);
    sim_fini(&s);
}

/* The target is another one, which is loaded nowhere, when the registry is asked to make the one before it active. */
static void promotion_is_of_the_target_it_was_decided_for(void **state)
{
    const struct mesh_vmodel other = {
        .active = MR_STR("model-0"), .target = MR_STR("model-2"), .owner = {0}};
    struct mesh_call c = sets_v_to_0();
    struct mr_buf value;
    struct sim s;
    (void)state;

    begin(&s);
    s.models[2].load_ns = 2 * S;
    sim_define(&s, 2, &(struct mesh_def){.type = MR_STR("t"), .refs = 1});
    assert_int_equal(call(&s, 0, &c)->status, MR_OK);
    sim_call_vmodel(&s, 0, "v");
    sim_run(&s, S);
    c.target = MR_STR("model-1");
    assert_int_equal(call(&s, 0, &c)->status, MR_OK);
    unsigned owner = 3;
    for (unsigned i = 0; i < 300 && owner == 3; i++) {
        sim_call_vmodel(&s, 0, "v");
        sim_run(&s, 10 * MS);
        for (owner = 0; owner < 3 && s.peers[owner].core->manages.len == 0; owner++) {
            mr_kv_memory_set_delay(s.peers[owner].kv, 20 * MS);
        }
    }
    assert_int_not_equal(owner, 3);
    mr_buf_init(&value, 0);
    mesh_vmodel_put(&value, &other);
    sim_put(&s, "mesh/v/v", (mr_bytes){(const uint8_t *)value.ptr, value.len});
    mr_buf_fini(&value);
    for (unsigned i = 0; i < 500; i++) {
        sim_run(&s, 10 * MS);
        assert_true(mr_str_eq_c(seen(&s, owner)->active, "model-0") || sim_copies(&s, 2) > 0);
    }
    assert_true(mr_str_eq_c(seen(&s, owner)->active, "model-2"));
    sim_fini(&s);
}

static void target_that_fails_is_said_so_and_recovers(void **state)
{
    struct sim s;
    (void)state;

    begin(&s);
    s.models[1].fail_at = 7;
    s.models[1].fail = MESH_FAIL_TRANSIENT;
    struct mesh_call c = sets_v_to_0();
    assert_int_equal(call(&s, 0, &c)->status, MR_OK);
    sim_call_vmodel(&s, 0, "v");
    assert_true(sim_settle(&s, S));
    c.target = MR_STR("model-1");
    assert_int_equal(call(&s, 0, &c)->status, MR_OK);
    for (unsigned i = 0; i < 1000 && !seen(&s, 0)->failed; i++) {
        sim_run(&s, 10 * MS);
    }
    assert_true(seen(&s, 0)->failed);
    struct sim_call *old = sim_call_vmodel(&s, 1, "v");
    assert_true(sim_settle(&s, S));
    assert_int_equal(old->status, MR_OK);
    assert_int_equal(old->model, 0);
    s.models[1].fail_at = 0;
    sim_run(&s, 60 * S);
    assert_true(mr_str_eq_c(seen(&s, 0)->active, "model-1"));
    assert_false(seen(&s, 0)->failed);
    sim_fini(&s);
}

/* The registry is empty, and another server is the first to set the vmodel, to another model: what was known of references is wrong. */
static void references_after_a_loss_are_those_of_the_vmodels(void **state)
{
    static const char *const ids[] = {"model-0", "model-1"};
    const struct mesh_vmodel other = {
        .active = MR_STR("model-1"), .target = MR_STR("model-1"), .owner = {0}};
    struct mesh_call c = sets_v_to_0();
    struct mr_buf value;
    struct sim s;
    (void)state;

    begin(&s);
    sim_run(&s, S);
    assert_int_equal(call(&s, 0, &c)->status, MR_OK);
    sim_run(&s, S);
    for (unsigned round = 0; round < 2; round++) { /* in the second one all is restored as it was */
        mr_kv_memory_erase(s.store);
        if (round == 0) {
            mr_buf_init(&value, 0);
            mesh_vmodel_put(&value, &other);
            sim_put(&s, "mesh/v/v", (mr_bytes){(const uint8_t *)value.ptr, value.len});
            mr_buf_fini(&value);
            sim_define(&s, 1, &(struct mesh_def){.type = MR_STR("t"), .refs = 1});
        }
        sim_run(&s, 60 * S);
        for (unsigned p = 0; p < 3; p++) {
            assert_true(mr_str_eq_c(seen(&s, p)->target, "model-1"));
            for (unsigned m = 0; m < 2; m++) {
                const struct view_model *model =
                    view_find(mesh_core_view(s.peers[p].core), mr_str_c(ids[m]));
                assert_non_null(model);
                assert_int_equal(model->refs, m);
            }
        }
    }
    sim_fini(&s);
}

static void transition_ends_whichever_server_dies(void **state)
{
    (void)state;
    for (unsigned dies = 0; dies < 3; dies++) {
        struct sim s;
        begin(&s);
        s.models[1].load_ns = 2 * S;
        struct mesh_call c = sets_v_to_0();
        assert_int_equal(call(&s, dies, &c)->status, MR_OK);
        sim_call_vmodel(&s, 0, "v");
        assert_true(sim_settle(&s, S));
        c.target = MR_STR("model-1");
        assert_int_equal(call(&s, dies, &c)->status, MR_OK);
        sim_run(&s, S); /* its load is half done */
        sim_kill(&s, dies);
        unsigned lives = (dies + 1) % 3;
        sim_run(&s, 30 * S); /* its records have gone */
        for (unsigned i = 0; i < 60 && !mr_str_eq_c(seen(&s, lives)->active, "model-1"); i++) {
            sim_call_vmodel(&s, lives, "v");
            sim_run(&s, S);
        }
        assert_true(mr_str_eq_c(seen(&s, lives)->active, "model-1"));
        struct sim_call *last = sim_call_vmodel(&s, lives, "v");
        assert_true(sim_settle(&s, 10 * S));
        assert_int_equal(last->status, MR_OK);
        assert_int_equal(last->model, 1);
        sim_fini(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_definition_is_active_at_once),
        cmocka_unit_test(target_that_is_not_there_needs_a_definition),
        cmocka_unit_test(new_target_is_a_transition_while_copies_serve),
        cmocka_unit_test(transition_can_be_turned_and_taken_back),
        cmocka_unit_test(same_again_changes_nothing),
        cmocka_unit_test(expected_target_and_owner_are_checked),
        cmocka_unit_test(delete_and_promote_release_references),
        cmocka_unit_test(registration_is_idempotent_and_refuses_other_attributes),
        cmocka_unit_test(server_without_a_registry_denies_nothing_at_once),
        cmocka_unit_test(server_that_is_behind_the_registry_asks_it),
        cmocka_unit_test(texts_of_a_vmodel_are_checked),
        cmocka_unit_test(record_of_a_vmodel_that_cannot_be_read_is_said),
        cmocka_unit_test(changes_wait_a_while_for_a_registry_that_is_away),
        cmocka_unit_test(transition_matches_the_copies_before_the_switch),
        cmocka_unit_test(target_that_keeps_state_takes_over_with_one_copy),
        cmocka_unit_test(promotion_is_of_the_target_it_was_decided_for),
        cmocka_unit_test(target_that_fails_is_said_so_and_recovers),
        cmocka_unit_test(references_after_a_loss_are_those_of_the_vmodels),
        cmocka_unit_test(transition_ends_whichever_server_dies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
