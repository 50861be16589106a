/* Random faults under random load, many seeds: what sim_check holds at each step, and what must be true when all is well again.
 * MR_SIM_SEEDS: how many (default 40); MR_SIM_FIRST: the first, to look at one that failed; MR_SIM_SAY: what became of each call. */
#include "sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define MODELS 40

static unsigned pick(struct sim *s, unsigned n)
{
    return (unsigned)(mr_rng_u64(&s->rng) % n);
}

/* Those that may load something. */
static unsigned up(const struct sim *s)
{
    unsigned n = 0;

    for (unsigned i = 0; i < s->peer_count; i++) {
        n += s->peers[i].is_up && !s->peers[i].is_stopped && !s->peers[i].is_draining;
    }
    return n;
}

static bool works(const struct sim_peer *p)
{
    return p->is_up && !p->is_stopped;
}

/* Ends one, or has it make room for its end. */
static void drain(struct sim *s, struct sim_peer *p)
{
    if (p->is_up && p->is_drained) {
        sim_kill(s, p->index);
    } else if (works(p) && !p->is_draining && up(s) > 2) {
        sim_drain(s, p->index);
    }
}

static void fault_of_process(struct sim *s, struct sim_peer *p)
{
    switch (pick(s, 4)) {
    case 0:
        if (p->is_up && up(s) > 1) {
            sim_kill(s, p->index);
        }
        break;
    case 1:
        if (!p->is_up) {
            sim_restart(s, p->index);
        }
        break;
    case 2:
        if (works(p) && up(s) > 1) {
            sim_stop(s, p->index);
        }
        break;
    default: drain(s, p); break;
    }
}

static void fault(struct sim *s)
{
    struct sim_peer *p = &s->peers[pick(s, s->peer_count)];

    switch (pick(s, 9)) {
    case 0:
        if (!p->is_up) {
            sim_restart(s, p->index);
        }
        break;
    case 1:
        if (p->is_up && p->is_stopped) {
            sim_continue(s, p->index);
        }
        break;
    case 2: p->side = !p->side; break;
    case 3:
        if (works(p)) {
            mr_kv_memory_cut(p->kv, pick(s, 2));
        }
        break;
    case 4: mr_kv_memory_compact(s->store, INT64_MAX); break;
    default: fault_of_process(s, p); break;
    }
}

static void heal(struct sim *s)
{
    s->loss = 0;
    for (unsigned i = 0; i < s->peer_count; i++) {
        struct sim_peer *p = &s->peers[i];
        p->side = 0;
        if (p->is_up && p->is_stopped) {
            sim_continue(s, i);
        }
        if (p->is_up) {
            mr_kv_memory_cut(p->kv, false);
        }
        if (p->is_up && p->is_draining) {
            sim_kill(s, i);
        }
        if (!p->is_up) {
            sim_restart(s, i);
        }
    }
}

static void set_up(struct sim *s, uint64_t seed)
{
    sim_init(s, seed);
    s->sizes_are_declared = true;
    sim_add_many(s, 3 + pick(s, 4), (8 + pick(s, 30)) * MIB, 1 + pick(s, 4));
    sim_register(s, 0, MODELS, MIB, 5 * MS);
    for (unsigned i = 0; i < MODELS; i++) {
        s->models[i].load_ns = (1 + pick(s, 300)) * MS;
        s->models[i].run_ns = (1 + pick(s, 50)) * MS;
        s->models[i].unload_ns = (1 + pick(s, 100)) * MS;
        s->models[i].max_running = pick(s, 4) ? 0 : 1 + pick(s, 3);
        s->models[i].fails_first = pick(s, 10) == 0;
        s->models[i].fail = MESH_FAIL_TRANSIENT;
    }
    s->loss = pick(s, 2) * 0.05;
    sim_run(s, S);
}

static void disturb(struct sim *s)
{
    for (unsigned i = 0; i < 150; i++) {
        unsigned peer = pick(s, s->peer_count);
        if (pick(s, 8) == 0) {
            fault(s);
        }
        if (s->peers[peer].is_up && !s->peers[peer].is_stopped) {
            double u = mr_rng_unit(&s->rng);
            sim_call(s, peer, (unsigned)(MODELS * u * u));
        }
        sim_run(s, (int64_t)(mr_rng_unit(&s->rng) * 200) * MS);
    }
}

/* What each peer has of a model, and sees of it. */
static void say(const struct sim *s, unsigned model)
{
    static const char *const states[] = {"NONE", "LOADING", "LOADED", "DRAINING", "FAILED"};
    char id[24];

    sim_id(id, model);
    for (unsigned p = 0; p < s->peer_count; p++) {
        const struct mesh_view *v = mesh_core_view(s->peers[p].core);
        const struct view_model *m = view_find(v, mr_str_c(id));
        print_message("peer-%u: in the runtime %u, in the core %s; sees", p,
                      s->peers[p].in_runtime[model],
                      states[mesh_core_copy(s->peers[p].core, mr_str_c(id))]);
        for (unsigned k = 0; m && k < m->copy_count; k++) {
            print_message(" %s at peer-%u", states[m->copies[k].state], m->copies[k].peer);
        }
        print_message("\n");
    }
}

/* The registry shows what the runtimes have, to everybody, and every model answers. */
static void check_quiet(struct sim *s)
{
    for (unsigned i = 0; i < MODELS; i++) {
        struct sim_call *c = sim_call(s, pick(s, s->peer_count), i);
        assert_true(sim_settle(s, 60 * S));
        if (c->status != MR_OK) {
            fail_msg("model-%u: %d %s", i, c->status, c->text);
        }
    }
    sim_run(s, 5 * S);
    for (unsigned i = 0; i < MODELS; i++) {
        char id[24];
        sim_id(id, i);
        for (unsigned p = 0; p < s->peer_count; p++) {
            const struct view_model *m = view_find(mesh_core_view(s->peers[p].core), mr_str_c(id));
            assert_non_null(m);
            unsigned loaded = 0;
            for (unsigned k = 0; k < m->copy_count; k++) {
                loaded += m->copies[k].state == MESH_LOADED;
            }
            if (loaded != sim_copies(s, i)) {
                say(s, i);
                fail_msg("peer-%u sees %u loaded copies of model-%u", p, loaded, i);
            }
        }
    }
}

static void check_calls(const struct sim *s)
{
    unsigned answered = 0, due = 0;

    for (size_t i = 0; i < s->calls.len; i++) {
        const struct sim_call *c = s->calls.at[i];
        assert_true(c->has_ended);
        answered += c->status == MR_OK;
        due +=
            c->status == MR_OK || !c->is_at_draining; /* that may be cut off, and loads nothing */
        assert_true(c->status == MR_OK || c->status == MR_E_CLOSED ||
                    c->status == MR_E_UNAVAILABLE || c->status == MR_E_EXHAUSTED);
    }
    if (getenv("MR_SIM_SAY")) {
        for (size_t i = 0; i < s->calls.len; i++) {
            const struct sim_call *c = s->calls.at[i];
            print_message("%.3f peer-%u model-%u %d %.3f s %s\n", (double)c->begin_ns / 1e9,
                          c->peer, c->model, c->status, (double)(c->end_ns - c->begin_ns) / 1e9,
                          c->text);
        }
    }
    assert_true(answered * 2 > due);
    assert_true(sim_loads(s) < 4 * s->calls.len + MODELS); /* no storm of loads */
}

static void random_faults_break_no_promise(void **state)
{
    const char *seeds = getenv("MR_SIM_SEEDS");
    const char *first = getenv("MR_SIM_FIRST");
    unsigned count = seeds ? (unsigned)strtoul(seeds, NULL, 10) : 40;
    unsigned begin = first ? (unsigned)strtoul(first, NULL, 10) : 1;
    (void)state;

    for (unsigned seed = begin; seed < begin + count; seed++) {
        struct sim s;
        print_message("seed %u\n", seed);
        set_up(&s, seed);
        disturb(&s);
        heal(&s);
        sim_settle(&s, 300 * S);
        sim_run(&s, 60 * S); /* failures, leases and reservations end */
        check_calls(&s);
        check_quiet(&s);
        sim_fini(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_faults_break_no_promise)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
