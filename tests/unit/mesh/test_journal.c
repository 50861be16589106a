/* Changes of models and vmodels while the registry is away: kept in the journal of the server that took them, and made when it is back. */
#include "mesh/core/core_priv.h"
#include "mesh/records/intent.h"
#include "sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

/* ---- what becomes of an intent ---- */

static const struct mesh_def one = {.type = MR_STR_INIT("t"), .path = MR_STR_INIT("/1")},
                             two = {.type = MR_STR_INIT("t"), .path = MR_STR_INIT("/2")},
                             restored = {.type = MR_STR_INIT("t"),
                                         .path = MR_STR_INIT("/1"),
                                         .restored = true};
static const mr_str same = MR_STR_INIT("a"), other = MR_STR_INIT("b");

static enum mesh_intent_step step(const struct mesh_intent *i, int64_t revision,
                                  const struct mesh_def *def, uint32_t refs, mr_str epoch)
{
    struct mesh_intent_known known = {.revision = revision, .epoch = epoch};

    if (def) {
        known.def = *def;
        known.def.refs = refs;
    }
    return mesh_intent_step(i, &known);
}

static void registration_is_made_if_there_is_no_other(void **state)
{
    struct mesh_intent i = {.epoch = same, .def = one};
    (void)state;

    assert_int_equal(step(&i, 0, NULL, 0, same), MESH_INTENT_WRITE);
    assert_int_equal(step(&i, 0, NULL, 0, other), MESH_INTENT_WRITE); /* it has lost its data */
    assert_int_equal(step(&i, 60, &one, 0, same), MESH_INTENT_DONE);
    assert_int_equal(step(&i, 60, &two, 0, same), MESH_INTENT_OUTDATED);
    assert_int_equal(step(&i, 3, &two, 0, other), MESH_INTENT_OUTDATED);
    i = (struct mesh_intent){
        .epoch = same, .base = 40, .was = one, .def = two}; /* in place of one */
    assert_int_equal(step(&i, 40, &one, 0, same), MESH_INTENT_WRITE);
    assert_int_equal(step(&i, 55, &one, 0, same),
                     MESH_INTENT_OUTDATED); /* registered again since */
    assert_int_equal(step(&i, 3, &restored, 0, other),
                     MESH_INTENT_WRITE); /* another server wrote it again */
    assert_int_equal(step(&i, 3, &one, 0, other), MESH_INTENT_OUTDATED);
}

static void deletion_is_made_of_what_it_meant(void **state)
{
    struct mesh_intent i = {.is_delete = true, .epoch = same, .base = 40, .was = one};
    (void)state;

    assert_int_equal(step(&i, 40, &one, 0, same), MESH_INTENT_WRITE);
    assert_int_equal(step(&i, 40, &one, 1, same), MESH_INTENT_OUTDATED); /* a vmodel has it */
    assert_int_equal(step(&i, 55, &one, 0, same), MESH_INTENT_OUTDATED);
    assert_int_equal(step(&i, 0, NULL, 0, same), MESH_INTENT_DONE);
    assert_int_equal(step(&i, 3, &restored, 0, other), MESH_INTENT_WRITE);
    assert_int_equal(step(&i, 3, &restored, 1, other), MESH_INTENT_OUTDATED);
    assert_int_equal(step(&i, 3, &one, 0, other), MESH_INTENT_OUTDATED); /* registered again */
    assert_int_equal(step(&i, 3, &two, 0, other), MESH_INTENT_OUTDATED);
    i = (struct mesh_intent){.is_delete = true, .was_sent = true, .epoch = same, .was = one};
    assert_int_equal(step(&i, 55, &one, 0, same), MESH_INTENT_WRITE); /* its own registration */
    assert_int_equal(step(&i, 55, &two, 0, same), MESH_INTENT_OUTDATED);
}

static void record_is_read_as_it_was_written(void **state)
{
    struct mesh_intent out,
        i = {.is_delete = true, .was_sent = true, .base = 7, .epoch = same, .was = one};
    struct mr_buf b;
    (void)state;

    mr_buf_init(&b, 0);
    mesh_intent_put(&b, &i);
    assert_int_equal(mesh_intent_get(&out, (mr_bytes){(const uint8_t *)b.ptr, b.len}, NULL), MR_OK);
    assert_true(out.is_delete && out.was_sent && out.base == 7 && mr_str_eq(out.epoch, same));
    assert_true(mr_str_eq(out.was.path, one.path) && out.def.type.len == 0);
    mr_buf_reset(&b);
    i = (struct mesh_intent){.def = two};
    mesh_intent_put(&b, &i);
    assert_int_equal(mesh_intent_get(&out, (mr_bytes){(const uint8_t *)b.ptr, b.len}, NULL), MR_OK);
    assert_true(!out.is_delete && mr_str_eq(out.def.path, two.path) && out.was.type.len == 0);
    assert_int_equal(mesh_intent_get(&out, (mr_bytes){(const uint8_t *)b.ptr, b.len - 1}, NULL),
                     MR_E_INVALID);
    assert_int_equal(mesh_intent_get(&out, (mr_bytes){(const uint8_t *)"", 0}, NULL), MR_E_INVALID);
    mr_buf_fini(&b);
}

/* ---- fleets ---- */

static void begin(struct sim *s)
{
    sim_init(s, 1);
    s->has_journals = true;
    sim_add_many(s, 3, 100 * MIB, 4);
    for (unsigned i = 0; i < 8; i++) {
        s->models[i] =
            (struct sim_model){.bytes = MIB, .load_ns = 20 * MS, .run_ns = MS, .unload_ns = MS};
    }
    sim_run(s, S);
}

static void cut_all(struct sim *s, bool is_cut)
{
    for (unsigned i = 0; i < s->peer_count; i++) {
        if (s->peers[i].is_up) {
            mr_kv_memory_cut(s->peers[i].kv, is_cut);
        }
    }
    sim_run(s, S);
}

static struct mesh_call call_of(enum mesh_call_kind kind, const char *id,
                                const struct mesh_def *def)
{
    struct mesh_call c = {.kind = kind, .id = mr_str_c(id)};

    if (def) {
        c.def = *def;
    }
    return c;
}

static const struct sim_answer *change(struct sim *s, unsigned peer, const struct mesh_call *call)
{
    const struct sim_answer *a = sim_manage(s, peer, call);

    for (unsigned i = 0; i < 2000 && !a->is_done; i++) {
        sim_run(s, 10 * MS);
    }
    assert_true(a->is_done);
    return a;
}

static void is_taken(struct sim *s, unsigned peer, struct mesh_call *c, bool is_pending)
{
    const struct sim_answer *a = change(s, peer, c);

    assert_int_equal(a->status, MR_OK);
    assert_int_equal(a->is_pending, is_pending);
}

static void registers(struct sim *s, unsigned peer, const char *id, const struct mesh_def *def,
                      bool is_pending)
{
    struct mesh_call c = call_of(MESH_CALL_REGISTER, id, def);

    is_taken(s, peer, &c, is_pending);
}

static void unregisters(struct sim *s, unsigned peer, const char *id, bool is_pending)
{
    struct mesh_call c = call_of(MESH_CALL_UNREGISTER, id, NULL);

    is_taken(s, peer, &c, is_pending);
}

/* The path of the model as the peer sees it; NULL: there is none. */
static const char *path_at(const struct sim *s, unsigned peer, const char *id)
{
    static char text[64];
    const struct view_model *m = view_find(mesh_core_view(s->peers[peer].core), mr_str_c(id));

    if (!m || m->revision == 0) {
        return NULL;
    }
    snprintf(text, sizeof text, "%.*s%s", MR_STR_ARG(view_path(m)),
             m->is_pending ? " pending" : "");
    return text;
}

/* All peers see it so, and nothing waits any more. path NULL: it is not there. */
static void all_see(const struct sim *s, const char *id, const char *path)
{
    for (unsigned i = 0; i < s->peer_count; i++) {
        if (!s->peers[i].is_up) {
            continue;
        }
        const char *seen = path_at(s, i, id);
        if (path) {
            assert_non_null(seen);
            assert_string_equal(seen, path);
        } else {
            assert_null(seen);
        }
        assert_int_equal(s->peers[i].core->intents.len, 0);
        assert_int_equal(s->peers[i].core->intent_bytes, 0);
    }
}

static void registration_is_kept_and_loads_at_once(void **state)
{
    struct sim s;
    (void)state;

    begin(&s);
    cut_all(&s, true);
    registers(&s, 0, "model-0", &one, true);
    registers(&s, 0, "model-0", &one, true); /* the same again */
    struct mesh_call again = call_of(MESH_CALL_REGISTER, "model-0", &two);
    assert_int_equal(change(&s, 0, &again)->status, MR_E_EXISTS);
    struct sim_call *c = sim_call(&s, 0, 0);
    assert_true(sim_settle(&s, 5 * S));
    assert_int_equal(c->status, MR_OK);
    assert_int_equal(s.peers[0].in_runtime[0], 2);
    assert_null(path_at(&s, 1, "model-0"));
    sim_run(&s, 60 * S);
    cut_all(&s, false);
    sim_run(&s, 5 * S);
    all_see(&s, "model-0", "/1");
    c = sim_call(&s, 1, 0);
    assert_true(sim_settle(&s, 5 * S));
    assert_int_equal(c->status, MR_OK);
    assert_int_equal(sim_loads(&s), 1); /* where it was loaded first */
    sim_fini(&s);
}

static void all_that_wait_are_made_once(void **state)
{
    struct sim s;
    char id[24];
    (void)state;

    begin(&s);
    cut_all(&s, true);
    for (unsigned i = 0; i < 500; i++) {
        sim_id(id, i);
        registers(&s, i % 2, id, &one, true);
    }
    cut_all(&s, false);
    sim_run(&s, 5 * S);
    for (unsigned i = 0; i < 500; i++) {
        sim_id(id, i);
        all_see(&s, id, "/1");
    }
    sim_fini(&s);
}

static void unregistration_is_kept(void **state)
{
    struct sim s;
    (void)state;

    begin(&s);
    registers(&s, 0, "model-0", &one, false);
    struct sim_call *c = sim_call(&s, 1, 0);
    assert_true(sim_settle(&s, 5 * S));
    sim_run(&s, S);
    cut_all(&s, true);
    unregisters(&s, 2, "model-0", true);
    assert_null(path_at(&s, 2, "model-0"));
    assert_non_null(path_at(&s, 1, "model-0"));
    cut_all(&s, false);
    sim_run(&s, 5 * S);
    all_see(&s, "model-0", NULL);
    c = sim_call(&s, 1, 0);
    assert_true(sim_settle(&s, 5 * S));
    assert_int_equal(c->status, MR_E_NOT_FOUND);
    assert_int_equal(sim_copies(&s, 0), 0);
    sim_fini(&s);
}

static void later_changes_take_the_place_of_earlier_ones(void **state)
{
    struct sim s;
    (void)state;

    begin(&s);
    registers(&s, 0, "model-0", &one, false);
    cut_all(&s, true);
    unregisters(&s, 0, "model-0", true);
    registers(&s, 0, "model-0", &two, true); /* with another path */
    registers(&s, 0, "model-1", &one, true);
    unregisters(&s, 0, "model-1", false); /* the registry has never known it */
    assert_int_equal(s.peers[0].core->intents.len, 1);
    cut_all(&s, false);
    sim_run(&s, 5 * S);
    all_see(&s, "model-0", "/2");
    all_see(&s, "model-1", NULL);
    sim_fini(&s);
}

/* The copy of the older definition goes as well. */
static void newer_definition_stays(void **state)
{
    struct sim s;
    (void)state;

    begin(&s);
    registers(&s, 0, "model-1", &one, false);
    mr_kv_memory_cut(s.peers[0].kv, true);
    sim_run(&s, S);
    registers(&s, 0, "model-0", &one, true);
    unregisters(&s, 0, "model-1", true);
    sim_call(&s, 0, 0);
    assert_true(sim_settle(&s, 5 * S));
    registers(&s, 1, "model-0", &two, false); /* others have the registry */
    unregisters(&s, 1, "model-1", false);
    registers(&s, 1, "model-1", &one, false);
    mr_kv_memory_cut(s.peers[0].kv, false);
    sim_run(&s, 5 * S);
    all_see(&s, "model-0", "/2");
    all_see(&s, "model-1", "/1");
    assert_int_equal(sim_copies(&s, 0), 0);
    sim_fini(&s);
}

static void killed_server_makes_them_when_it_is_back(void **state)
{
    struct sim s;
    (void)state;

    begin(&s);
    registers(&s, 0, "model-1", &one, false);
    cut_all(&s, true);
    registers(&s, 0, "model-0", &one, true);
    unregisters(&s, 0, "model-1", true);
    sim_kill(&s, 0);
    sim_run(&s, S);
    cut_all(&s, false);
    sim_run(&s, 30 * S);
    assert_null(path_at(&s, 1, "model-0"));
    sim_restart(&s, 0);
    sim_run(&s, 5 * S);
    all_see(&s, "model-0", "/1");
    all_see(&s, "model-1", NULL);
    sim_fini(&s);
}

static void registry_that_lost_its_data_gets_them(void **state)
{
    struct sim s;
    (void)state;

    for (unsigned kill = 0; kill < 2; kill++) {
        begin(&s);
        for (unsigned i = 1; i < 8; i++) {
            char id[24];
            sim_id(id, i);
            registers(&s, 0, id, &one, false);
        }
        cut_all(&s, true);
        registers(&s, 0, "model-0", &one, true);
        for (unsigned i = 1; i < 8; i++) {
            char id[24];
            sim_id(id, i);
            unregisters(&s, 0, id, true);
        }
        registers(&s, 0, "model-7", &two, true);
        mr_kv_memory_erase(s.store);
        if (kill) {
            sim_kill(&s, 0);
        }
        mr_kv_memory_cut(s.peers[kill].kv,
                         false); /* the others come later, and write their models again */
        sim_run(&s, 5 * S);
        if (kill) {
            sim_restart(&s, 0);
            sim_run(&s, 2 * S);
        }
        cut_all(&s, false);
        sim_run(&s, 15 * S);
        registers(&s, 0, "model-1", &two, false); /* while the others are deleted again */
        registers(&s, 1, "model-2", &one, false); /* as it was, which the other one deleted */
        sim_run(&s, 120 * S);
        all_see(&s, "model-0", "/1");
        all_see(&s, "model-1", "/2");
        all_see(&s, "model-2", "/1");
        for (unsigned i = 3; i < 7; i++) {
            char id[24];
            sim_id(id, i);
            all_see(&s, id, NULL);
        }
        all_see(&s, "model-7", "/2");
        sim_fini(&s);
    }
}

static void full_journal_refuses(void **state)
{
    struct sim s;
    (void)state;

    sim_init(&s, 1);
    s.has_journals = true;
    s.options.max_intents = 2;
    sim_add_many(&s, 1, 100 * MIB, 4);
    sim_run(&s, S);
    cut_all(&s, true);
    registers(&s, 0, "model-0", &one, true);
    registers(&s, 0, "model-1", &one, true);
    struct mesh_call c = call_of(MESH_CALL_REGISTER, "model-2", &one);
    const struct sim_answer *a = change(&s, 0, &c);
    assert_int_equal(a->status, MR_E_UNAVAILABLE);
    assert_non_null(strstr(a->text, "2 changes of 2"));
    unregisters(&s, 0, "model-0", false); /* makes room */
    registers(&s, 0, "model-2", &one, true);
    cut_all(&s, false);
    sim_run(&s, 5 * S);
    all_see(&s, "model-0", NULL);
    all_see(&s, "model-2", "/1");
    sim_fini(&s);
}

static void journal_that_cannot_be_written_refuses(void **state)
{
    struct sim s;
    (void)state;

    begin(&s);
    cut_all(&s, true);
    mr_kv_memory_cut(s.peers[0].journal, true);
    struct mesh_call c = call_of(MESH_CALL_REGISTER, "model-0", &one);
    const struct sim_answer *a = sim_manage(&s, 0, &c); /* before it is known */
    sim_run(&s, 20 * S);
    assert_true(a->is_done);
    assert_int_equal(a->status, MR_E_UNAVAILABLE);
    a = change(&s, 0, &c); /* waits for the registry, as without a journal */
    assert_int_equal(a->status, MR_E_UNAVAILABLE);
    assert_null(path_at(&s, 0, "model-0"));
    mr_kv_memory_cut(s.peers[0].journal, false);
    sim_run(&s, S);
    registers(&s, 0, "model-0", &one, true);
    cut_all(&s, false);
    sim_run(&s, 5 * S);
    all_see(&s, "model-0", "/1");
    sim_fini(&s);
}

/* Its answer is lost with the connection: it is made once, whether the registry had taken it or not. */
static void change_whose_answer_was_lost_is_made_once(void **state)
{
    struct sim s;
    (void)state;

    for (unsigned when = 0; when < 8; when++) {
        begin(&s);
        mr_kv_memory_set_delay(s.peers[0].kv, 10 * MS);
        struct mesh_call c = call_of(MESH_CALL_REGISTER, "model-0", &one);
        const struct sim_answer *a = sim_manage(&s, 0, &c);
        sim_run(&s, when * 4 * MS);
        cut_all(&s, true);
        sim_run(&s, 10 * S);
        assert_true(a->is_done);
        assert_int_equal(a->status, MR_OK);
        if (when % 2) { /* and taken back */
            struct mesh_call back = call_of(MESH_CALL_UNREGISTER, "model-0", NULL);
            assert_int_equal(change(&s, 0, &back)->status, MR_OK);
        }
        cut_all(&s, false);
        sim_run(&s, 5 * S);
        all_see(&s, "model-0", when % 2 ? NULL : "/1");
        sim_fini(&s);
    }
}

static void registry_that_returns_while_the_journal_is_written(void **state)
{
    struct sim s;
    (void)state;

    begin(&s);
    cut_all(&s, true);
    registers(&s, 0, "model-0", &one, true);
    mr_kv_memory_set_delay(s.peers[0].journal, 300 * MS);
    mr_kv_memory_step(s.peers[0].disk, s.now);
    struct mesh_call back = call_of(MESH_CALL_UNREGISTER, "model-0", NULL);
    const struct sim_answer *a = sim_manage(&s, 0, &back);
    sim_run(&s, 10 * MS);
    cut_all(&s, false);
    sim_run(&s, 5 * S);
    assert_true(a->is_done);
    assert_int_equal(a->status, MR_OK);
    all_see(&s, "model-0", NULL);
    sim_fini(&s);
}

/* The registry comes and goes while they are made; changes go on, at two servers. What is at the end is what was said last. */
static void registry_that_comes_and_goes(void **state)
{
    (void)state;

    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct sim s;
        const struct mesh_def *last[8] = {0};
        begin(&s);
        mr_rng_seed(&s.rng, seed);
        for (unsigned round = 0; round < 60; round++) {
            unsigned i = (unsigned)(mr_rng_u64(&s.rng) % 8);
            char id[24];
            sim_id(id, i);
            mr_kv_memory_cut(s.peers[0].kv, mr_rng_u64(&s.rng) % 2 == 0);
            sim_run(&s, (int64_t)(mr_rng_u64(&s.rng) % 40) * MS);
            struct mesh_call c = last[i] ? call_of(MESH_CALL_UNREGISTER, id, NULL)
                                         : call_of(MESH_CALL_REGISTER, id, round % 3 ? &one : &two);
            const struct sim_answer *a = change(&s, 0, &c);
            assert_int_equal(a->status, MR_OK);
            last[i] = last[i] ? NULL : round % 3 ? &one : &two;
            if (mr_rng_u64(&s.rng) % 8 == 0) {
                sim_kill(&s, 0);
                sim_run(&s, (int64_t)(mr_rng_u64(&s.rng) % 100) * MS);
                sim_restart(&s, 0);
                sim_run(&s, S); /* it has read the registry */
            }
        }
        mr_kv_memory_cut(s.peers[0].kv, false);
        sim_run(&s, 30 * S);
        for (unsigned i = 0; i < 8; i++) {
            char id[24];
            sim_id(id, i);
            all_see(&s, id, last[i] ? last[i]->path.ptr : NULL);
        }
        sim_fini(&s);
    }
}

/* ---- vmodels ---- */

static struct mesh_call sets(const char *id, const char *target, const struct mesh_def *def)
{
    struct mesh_call c = call_of(MESH_CALL_SET_VMODEL, id, def);

    c.target = mr_str_c(target);
    c.has_def = def != NULL;
    return c;
}

static void sets_vmodel(struct sim *s, unsigned peer, const char *id, const char *target,
                        const struct mesh_def *def, bool is_pending)
{
    struct mesh_call c = sets(id, target, def);

    is_taken(s, peer, &c, is_pending);
}

static void deletes_vmodel(struct sim *s, unsigned peer, const char *id, bool is_pending)
{
    struct mesh_call c = call_of(MESH_CALL_DELETE_VMODEL, id, NULL);

    is_taken(s, peer, &c, is_pending);
}

/* NULL: there is no such vmodel. */
static const char *target_at(const struct sim *s, unsigned peer, const char *id)
{
    static char text[64];
    const struct view_vmodel *vm =
        view_vmodel_find(mesh_core_view(s->peers[peer].core), mr_str_c(id));

    if (!vm) {
        return NULL;
    }
    snprintf(text, sizeof text, "%.*s%s", MR_STR_ARG(vm->target), vm->is_pending ? " pending" : "");
    return text;
}

/* All peers see it so, nothing waits, and models have as many references as there are vmodels that have them. */
static void all_have(const struct sim *s, const char *id, const char *target)
{
    for (unsigned i = 0; i < s->peer_count; i++) {
        const struct mesh_view *v = mesh_core_view(s->peers[i].core);
        const char *seen = target_at(s, i, id);
        struct mr_map_slot *slot;
        uint32_t refs = 0;
        if (target) {
            assert_non_null(seen);
            assert_string_equal(seen, target);
        } else {
            assert_null(seen);
        }
        assert_int_equal(s->peers[i].core->vmodel_intents.len, 0);
        for (size_t k = 0; (slot = mr_map_next(&v->vmodels, &k));) {
            const struct view_vmodel *vm = slot->value;
            refs += mr_str_eq(vm->active, vm->target) ? 1 : 2;
        }
        for (size_t k = 0; k < v->cap; k++) {
            refs -= v->models[k] && v->models[k]->revision ? v->models[k]->refs : 0;
        }
        assert_int_equal(refs, 0);
    }
}

static void vmodels_are_set_and_deleted_when_the_registry_is_back(void **state)
{
    struct sim s;
    (void)state;

    begin(&s);
    registers(&s, 0, "model-0", &one, false);
    registers(&s, 0, "model-1", &one, false);
    sets_vmodel(&s, 0, "v", "model-0", NULL, false);
    sets_vmodel(&s, 0, "gone", "model-0", NULL, false);
    sim_run(&s, S);
    cut_all(&s, true);
    sets_vmodel(&s, 1, "v", "model-1", NULL, true);
    sets_vmodel(&s, 1, "v", "model-1", NULL, true);   /* the same again */
    sets_vmodel(&s, 1, "new", "model-2", &two, true); /* registers its model */
    sets_vmodel(&s, 1, "brief", "model-1", NULL, true);
    deletes_vmodel(&s, 1, "brief", false); /* the registry has never known it */
    deletes_vmodel(&s, 1, "gone", true);
    assert_string_equal(target_at(&s, 1, "v"), "model-1 pending");
    assert_string_equal(target_at(&s, 1, "new"), "model-2 pending");
    assert_string_equal(target_at(&s, 2, "v"), "model-0");
    assert_null(target_at(&s, 1, "gone"));
    assert_int_equal(sim_call_vmodel(&s, 1, "gone")->status, MR_E_NOT_FOUND); /* there at once */
    assert_int_equal(sim_call_vmodel(&s, 2, "brief")->status, MR_E_UNAVAILABLE);
    struct mesh_call c = sets("other", "model-7", NULL);
    assert_int_equal(change(&s, 1, &c)->status, MR_E_NOT_FOUND);
    c = call_of(MESH_CALL_UNREGISTER, "model-1", NULL);
    const struct sim_answer *a = change(&s, 1, &c);
    assert_int_equal(a->status, MR_E_INVALID);
    assert_non_null(strstr(a->text, "waits for the registry"));
    cut_all(&s, false);
    sim_run(&s, 10 * S);
    all_have(&s, "v", "model-1");
    all_have(&s, "new", "model-2");
    all_have(&s, "brief", NULL);
    all_have(&s, "gone", NULL);
    all_see(&s, "model-2", "/2");
    sim_fini(&s);
}

static void newer_target_of_a_vmodel_stays(void **state)
{
    struct sim s;
    (void)state;

    begin(&s);
    for (unsigned i = 0; i < 3; i++) {
        char id[24];
        sim_id(id, i);
        registers(&s, 0, id, &one, false);
    }
    sets_vmodel(&s, 0, "v", "model-0", NULL, false);
    sets_vmodel(&s, 0, "w", "model-0", NULL, false);
    sim_run(&s, S);
    mr_kv_memory_cut(s.peers[0].kv, true);
    sim_run(&s, S);
    sets_vmodel(&s, 0, "v", "model-1", NULL, true);
    deletes_vmodel(&s, 0, "w", true);
    sets_vmodel(&s, 1, "v", "model-2", NULL, false); /* others have the registry */
    sets_vmodel(&s, 1, "w", "model-2", NULL, false);
    mr_kv_memory_cut(s.peers[0].kv, false);
    sim_run(&s, 10 * S);
    all_have(&s, "v", "model-2");
    all_have(&s, "w", "model-2");
    sim_fini(&s);
}

/* The server is killed before the registry is back, or that comes back without its data, or both. */
static void changes_of_vmodels_outlive_server_and_registry(void **state)
{
    (void)state;

    for (unsigned n = 1; n < 4; n++) {
        struct sim s;
        begin(&s);
        registers(&s, 0, "model-0", &one, false);
        registers(&s, 0, "model-1", &one, false);
        sets_vmodel(&s, 0, "v", "model-0", NULL, false);
        sets_vmodel(&s, 0, "gone", "model-0", NULL, false);
        sim_run(&s, S);
        cut_all(&s, true);
        sets_vmodel(&s, 0, "v", "model-1", NULL, true);
        sets_vmodel(&s, 0, "new", "model-2", &two, true);
        deletes_vmodel(&s, 0, "gone", true);
        if (n & 1) {
            sim_kill(&s, 0);
        }
        if (n & 2) {
            mr_kv_memory_erase(s.store);
        }
        cut_all(&s, false);
        sim_run(&s, 30 * S);
        if (n & 1) {
            sim_restart(&s, 0);
        } else { /* what was deleted, while it is deleted again if a server restores it */
            sets_vmodel(&s, 1, "gone", "model-0", NULL, false);
        }
        sim_run(&s, 120 * S);
        all_have(&s, "v", "model-1");
        all_have(&s, "new", "model-2");
        all_have(&s, "gone", n & 1 ? NULL : "model-0");
        all_see(&s, "model-2", "/2");
        sim_fini(&s);
    }
}

/* Its answer is lost with the connection, and another one follows. */
static void vmodel_whose_answer_was_lost_is_changed_again(void **state)
{
    (void)state;

    for (unsigned n = 0; n < 24; n++) {
        struct sim s;
        bool deletes = n % 3 == 2;
        begin(&s);
        for (unsigned i = 0; i < 4; i++) {
            char id[24];
            sim_id(id, i);
            registers(&s, 0, id, &one, false);
        }
        sets_vmodel(&s, 0, "v", "model-0", NULL, false);
        sim_run(&s, S);
        mr_kv_memory_set_delay(s.peers[0].kv, 10 * MS);
        struct mesh_call c = sets("v", "model-1", NULL);
        const struct sim_answer *a = sim_manage(&s, 0, &c);
        sim_run(&s, n / 3 * 4 * MS);
        cut_all(&s, true);
        sim_run(&s, 10 * S);
        assert_true(a->is_done);
        assert_int_equal(a->status, MR_OK);
        for (unsigned more = 0; more < n % 3; more++) {
            c = sets("v", more ? "model-3" : "model-2", NULL);
            assert_int_equal(change(&s, 0, &c)->status, MR_OK);
        }
        if (deletes) {
            c = call_of(MESH_CALL_DELETE_VMODEL, "v", NULL);
            assert_int_equal(change(&s, 0, &c)->status, MR_OK);
        }
        cut_all(&s, false);
        sim_run(&s, 20 * S);
        all_have(&s, "v", deletes ? NULL : n % 3 ? "model-2" : "model-1");
        sim_fini(&s);
    }
}

static void vmodels_while_the_registry_comes_and_goes(void **state)
{
    static const char *const targets[] = {"model-0", "model-1", "model-2"};
    (void)state;

    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct sim s;
        const char *last[3] = {0};
        begin(&s);
        for (unsigned i = 0; i < 3; i++) {
            registers(&s, 0, targets[i], &one, false);
        }
        mr_rng_seed(&s.rng, seed);
        for (unsigned round = 0; round < 40; round++) {
            unsigned i = (unsigned)(mr_rng_u64(&s.rng) % 3);
            const char *id = (const char *[]){"a", "b", "c"}[i];
            mr_kv_memory_cut(s.peers[0].kv, mr_rng_u64(&s.rng) % 2 == 0);
            sim_run(&s, (int64_t)(mr_rng_u64(&s.rng) % 40) * MS);
            bool deletes = last[i] && mr_rng_u64(&s.rng) % 3 == 0;
            last[i] = deletes ? NULL : targets[mr_rng_u64(&s.rng) % 3];
            struct mesh_call c =
                deletes ? call_of(MESH_CALL_DELETE_VMODEL, id, NULL) : sets(id, last[i], NULL);
            const struct sim_answer *a = change(&s, 0, &c);
            assert_int_equal(a->status, MR_OK);
            if (mr_rng_u64(&s.rng) % 8 == 0) {
                sim_kill(&s, 0);
                sim_run(&s, (int64_t)(mr_rng_u64(&s.rng) % 100) * MS);
                sim_restart(&s, 0);
                sim_run(&s, S); /* it has read the registry */
            }
        }
        mr_kv_memory_cut(s.peers[0].kv, false);
        sim_run(&s, 60 * S);
        for (unsigned i = 0; i < 3; i++) {
            all_have(&s, (const char *[]){"a", "b", "c"}[i], last[i]);
        }
        sim_fini(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(registration_is_made_if_there_is_no_other),
        cmocka_unit_test(deletion_is_made_of_what_it_meant),
        cmocka_unit_test(record_is_read_as_it_was_written),
        cmocka_unit_test(registration_is_kept_and_loads_at_once),
        cmocka_unit_test(all_that_wait_are_made_once),
        cmocka_unit_test(unregistration_is_kept),
        cmocka_unit_test(later_changes_take_the_place_of_earlier_ones),
        cmocka_unit_test(newer_definition_stays),
        cmocka_unit_test(killed_server_makes_them_when_it_is_back),
        cmocka_unit_test(registry_that_lost_its_data_gets_them),
        cmocka_unit_test(full_journal_refuses),
        cmocka_unit_test(journal_that_cannot_be_written_refuses),
        cmocka_unit_test(change_whose_answer_was_lost_is_made_once),
        cmocka_unit_test(registry_that_returns_while_the_journal_is_written),
        cmocka_unit_test(registry_that_comes_and_goes),
        cmocka_unit_test(vmodels_are_set_and_deleted_when_the_registry_is_back),
        cmocka_unit_test(newer_target_of_a_vmodel_stays),
        cmocka_unit_test(changes_of_vmodels_outlive_server_and_registry),
        cmocka_unit_test(vmodel_whose_answer_was_lost_is_changed_again),
        cmocka_unit_test(vmodels_while_the_registry_comes_and_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
