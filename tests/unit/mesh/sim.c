#include "sim.h"

#include "mesh/core/core_priv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum {
    EV_MESSAGE, /* of a peer: text */
    EV_ARRIVE, /* a request that was sent on: flag = load_here, call, attempt, request = the sender's handle */
    EV_RESULT, /* its end, back at the sender: status = enum mesh_result */
    EV_RAN,    /* a runtime has run it: request */
    EV_LOADED,
    EV_UNLOADED,
    EV_CALL
};

/* The `user` of a request in a core: a call of a client, or one that came from a peer. */
struct hop {
    struct sim_call *call;
    bool is_sent_on, load_here;
    unsigned from, from_epoch, attempt;
    uint64_t from_request;
};

static bool is_before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->seq < b->seq);
}

static void add_event(struct sim *s, struct sim_event e)
{
    e.seq = s->seq++;
    MR_VEC_PUSH(&s->events, e);
    size_t at = s->events.len - 1;
    while (at > 0 && is_before(&e, &s->events.at[(at - 1) / 2])) {
        s->events.at[at] = s->events.at[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    s->events.at[at] = e;
}

static struct sim_event take_event(struct sim *s)
{
    struct sim_event first = s->events.at[0];
    struct sim_event last = s->events.at[--s->events.len];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < s->events.len; at = child) {
        if (child + 1 < s->events.len &&
            is_before(&s->events.at[child + 1], &s->events.at[child])) {
            child++;
        }
        if (!is_before(&s->events.at[child], &last)) {
            break;
        }
        s->events.at[at] = s->events.at[child];
    }
    if (s->events.len) {
        s->events.at[at] = last;
    }
    return first;
}

void sim_id(char out[24], unsigned model)
{
    snprintf(out, 24, "model-%u", model);
}

static unsigned model_of(mr_str id)
{
    char text[24] = {0};
    char expected[24];

    snprintf(text, sizeof text, "%.*s", MR_STR_ARG(id));
    unsigned model = (unsigned)strtoul(text + sizeof "model-" - 1, NULL, 10);
    sim_id(expected, model);
    assert_string_equal(text, expected);
    return model;
}

static int64_t transit(struct sim *s)
{
    return s->now + s->delay_ns + (int64_t)((double)s->delay_ns * mr_rng_unit(&s->rng));
}

static struct sim_peer *peer_by_id(struct sim *s, mr_str id)
{
    for (unsigned i = 0; i < s->peer_count; i++) {
        if (mr_str_eq_c(id, s->peers[i].id)) {
            return &s->peers[i];
        }
    }
    fail_msg("there is no peer '%.*s'", MR_STR_ARG(id));
    return NULL;
}

static void send_result(struct sim *s, const struct hop *h, unsigned at, enum mesh_result result,
                        int fail_status, mr_str text)
{
    add_event(s, (struct sim_event){.at_ns = transit(s),
                                    .kind = EV_RESULT,
                                    .peer = h->from,
                                    .from = at,
                                    .epoch = h->from_epoch,
                                    .attempt = h->attempt,
                                    .request = h->from_request,
                                    .status = (int)result,
                                    .fail_status = fail_status,
                                    .text = text.len ? mr_strndup(text.ptr, text.len) : NULL,
                                    .text_len = text.len,
                                    .call = h->call});
}

/* ---- actions of a core ---- */

static void act_reply(struct sim_peer *p, const struct mesh_action *a)
{
    static const enum mesh_result results[] = {[MESH_WHY_NONE] = MESH_REFUSED,
                                               [MESH_WHY_NOT_HERE] = MESH_NOT_HERE,
                                               [MESH_WHY_REFUSED] = MESH_REFUSED,
                                               [MESH_WHY_LOAD_FAILED] = MESH_LOAD_FAILED};
    struct hop *h = a->user;

    if (h->is_sent_on) {
        h->call->not_here[p->index][h->load_here] += a->why == MESH_WHY_NOT_HERE;
        send_result(p->sim, h, p->index, results[a->why], a->status, a->text);
    } else {
        h->call->has_ended = true;
        h->call->end_ns = p->sim->now;
        h->call->status = a->status;
        h->call->retry_ns = a->retry_ns;
        snprintf(h->call->text, sizeof h->call->text, "%.*s", MR_STR_ARG(a->text));
    }
    mr_free(h);
}

static void act_run(struct sim_peer *p, const struct mesh_action *a)
{
    unsigned model = model_of(a->id);

    p->running[model]++;
    p->most_running[model] = MR_MAX(p->most_running[model], p->running[model]);
    add_event(p->sim, (struct sim_event){.at_ns = p->sim->now + p->sim->models[model].run_ns,
                                         .kind = EV_RAN,
                                         .peer = p->index,
                                         .epoch = p->epoch,
                                         .model = model,
                                         .request = a->request,
                                         .attempt = a->attempt});
}

static void act_forward(struct sim_peer *p, const struct mesh_action *a)
{
    struct sim_peer *to = peer_by_id(p->sim, a->instance);
    struct hop *h = a->user;

    assert_false(h->is_sent_on); /* one hop */
    p->sim->hops++;
    add_event(p->sim, (struct sim_event){.at_ns = transit(p->sim),
                                         .kind = EV_ARRIVE,
                                         .peer = to->index,
                                         .epoch = to->epoch,
                                         .from = p->index,
                                         .model = model_of(a->id),
                                         .flag = a->load_here,
                                         .attempt = a->attempt,
                                         .request = a->request,
                                         .call = h->call,
                                         .status = (int)p->epoch});
}

static void act_load(struct sim_peer *p, const struct mesh_action *a)
{
    unsigned model = model_of(a->id);
    struct sim_model *m = &p->sim->models[model];

    assert_int_equal(p->in_runtime[model], 0);
    p->in_runtime[model] = 1;
    p->path_end[model] = a->path.len ? a->path.ptr[a->path.len - 1] : '\0';
    p->loading++;
    p->loads++;
    assert_true(p->loading <= p->loaders);
    bool fails = (m->fail_at >> p->index & 1) || m->loads < m->fails_first;
    m->loads++;
    if (!fails) {
        p->resident += m->bytes;
        p->most_resident = MR_MAX(p->most_resident, p->resident);
    }
    add_event(p->sim, (struct sim_event){.at_ns = p->sim->now + m->load_ns,
                                         .kind = EV_LOADED,
                                         .peer = p->index,
                                         .epoch = p->epoch,
                                         .model = model,
                                         .flag = fails});
}

static void act_unload(struct sim_peer *p, const struct mesh_action *a)
{
    unsigned model = model_of(a->id);

    assert_int_equal(p->in_runtime[model], 2);
    p->in_runtime[model] = 3;
    p->unloads++;
    add_event(p->sim, (struct sim_event){.at_ns = p->sim->now + p->sim->models[model].unload_ns,
                                         .kind = EV_UNLOADED,
                                         .peer = p->index,
                                         .epoch = p->epoch,
                                         .model = model});
}

static void act_send(struct sim_peer *p, const struct mesh_action *a)
{
    struct sim_peer *to = peer_by_id(p->sim, a->instance);

    if (mr_rng_unit(&p->sim->rng) < p->sim->loss || to->side != p->side) {
        return;
    }
    add_event(p->sim,
              (struct sim_event){.at_ns = transit(p->sim),
                                 .kind = EV_MESSAGE,
                                 .peer = to->index,
                                 .epoch = to->epoch,
                                 .from = p->index,
                                 .text = mr_strndup((const char *)a->bytes.ptr, a->bytes.len),
                                 .text_len = a->bytes.len});
}

static void act_answer(const struct mesh_action *a)
{
    struct sim_answer *answer = a->user;

    answer->is_done = true;
    answer->status = a->status;
    answer->is_precondition = a->is_precondition;
    answer->is_pending = a->is_pending;
    snprintf(answer->text, sizeof answer->text, "%.*s", MR_STR_ARG(a->text));
}

static void act(struct sim_peer *p, const struct mesh_action *a)
{
    switch (a->kind) {
    case MESH_ACT_RUN: act_run(p, a); break;
    case MESH_ACT_FORWARD: act_forward(p, a); break;
    case MESH_ACT_CANCEL: break; /* a late result is passed over */
    case MESH_ACT_REPLY: act_reply(p, a); break;
    case MESH_ACT_SEND: act_send(p, a); break;
    case MESH_ACT_TXN:
    case MESH_ACT_GET: registry_act(p->registry, a); break;
    case MESH_ACT_LOAD: act_load(p, a); break;
    case MESH_ACT_UNLOAD: act_unload(p, a); break;
    case MESH_ACT_ANSWER: act_answer(a); break;
    case MESH_ACT_DRAINED: p->is_drained = true; break;
    case MESH_ACT_RECONCILED: break;
    }
}

static void acted(void *ctx)
{
    struct sim_peer *p = ctx;
    struct mesh_action a;

    while (mesh_core_take(p->core, &a)) {
        act(p, &a);
    }
}

static int64_t now_of(void *ctx)
{
    return ((struct sim_peer *)ctx)->sim->now;
}

static void on_state(void *ctx, enum mr_kv_state state, const struct mr_err *why)
{
    struct sim_peer *p = ctx;

    (void)why;
    registry_on_state(p->registry, state);
}

static void on_journal_state(void *ctx, enum mr_kv_state state, const struct mr_err *why)
{
    struct sim_peer *p = ctx;

    (void)why;
    registry_on_journal_state(p->registry, state);
}

/* ---- peers ---- */

static void start(struct sim_peer *p)
{
    struct sim *s = p->sim;
    struct registry_options o = {.id = mr_str_c(p->id),
                                 .address = s->options.self.address,
                                 .now = now_of,
                                 .acted = acted,
                                 .ctx = p};

    s->options.id = mr_str_c(p->id);
    assert_int_equal(mesh_core_new(&p->core, &s->options, s->now, NULL), MR_OK);
    p->registry = registry_new(p->core, &o);
    p->kv = mr_kv_memory_open(s->store, &(struct mr_kv_options){.on_state = on_state, .ctx = p});
    p->is_up = true;
    p->is_stopped = p->is_draining = p->is_drained = false;
    p->loading = 0;
    p->resident = 0;
    memset(p->in_runtime, 0, sizeof p->in_runtime);
    memset(p->running, 0, sizeof p->running);
    if (s->has_journals && !p->disk) {
        p->disk = mr_kv_memory_new(&(struct mr_kv_memory_options){.now_ns = s->now});
    }
    if (p->disk) {
        p->journal = mr_kv_memory_open(
            p->disk, &(struct mr_kv_options){.on_state = on_journal_state, .ctx = p});
    }
    registry_start(p->registry, p->kv, p->journal);
}

unsigned sim_add(struct sim *s, uint64_t capacity, uint32_t loaders, const char *zone,
                 const char *label)
{
    struct sim_peer *p = &s->peers[s->peer_count];

    p->sim = s;
    p->index = s->peer_count++;
    p->loaders = loaders;
    p->capacity = capacity;
    snprintf(p->id, sizeof p->id, "peer-%u", p->index);
    s->options.self = (struct mesh_instance){.address = MR_STR("sim:1"),
                                             .zone = mr_str_c(zone),
                                             .labels = {mr_str_c(label)},
                                             .label_count = label[0] != '\0',
                                             .capacity_bytes = capacity,
                                             .device_bytes = s->device_bytes,
                                             .loaders = loaders};
    start(p);
    return p->index;
}

void sim_add_many(struct sim *s, unsigned count, uint64_t capacity, uint32_t loaders)
{
    for (unsigned i = 0; i < count; i++) {
        sim_add(s, capacity, loaders, "", "");
    }
    sim_run(s, 100 * MS);
}

/* Who sent its requests on sees the connection break. */
static void break_requests(struct sim_peer *p)
{
    for (size_t i = 0; i < p->core->reqs.all.len; i++) {
        struct mesh_req *r = p->core->reqs.all.at[i].ptr;
        struct hop *h = r ? r->user : NULL;
        if (h && h->is_sent_on) {
            send_result(p->sim, h, p->index, MESH_BROKEN, MR_OK, (mr_str){0});
        }
        mr_free(h);
    }
}

void sim_kill(struct sim *s, unsigned peer)
{
    struct sim_peer *p = &s->peers[peer];

    p->is_up = false;
    p->epoch++;
    for (size_t i = 0; i < s->calls.len; i++) {
        struct sim_call *c = s->calls.at[i];
        if (!c->has_ended && c->peer == peer) {
            c->has_ended = true;
            c->status = MR_E_CLOSED;
            c->end_ns = s->now;
        }
    }
    break_requests(p);
    registry_free(&p->registry);
    mr_kv_free(&p->kv);
    if (p->journal) {
        mr_kv_free(&p->journal);
    }
    mesh_core_free(&p->core);
}

void sim_restart(struct sim *s, unsigned peer)
{
    struct sim_peer *p = &s->peers[peer];

    s->options.self = (struct mesh_instance){
        .address = MR_STR("sim:1"), .capacity_bytes = p->capacity, .loaders = p->loaders};
    start(p);
}

void sim_stop(struct sim *s, unsigned peer)
{
    s->peers[peer].is_stopped = true;
    mr_kv_memory_cut(s->peers[peer].kv, true);
}

void sim_continue(struct sim *s, unsigned peer)
{
    s->peers[peer].is_stopped = false;
    mr_kv_memory_cut(s->peers[peer].kv, false);
}

void sim_drain(struct sim *s, unsigned peer)
{
    s->peers[peer].is_draining = true;
    mesh_core_drain(s->peers[peer].core, s->now);
    acted(&s->peers[peer]);
}

void sim_init(struct sim *s, uint64_t seed)
{
    mr_hash_fix();
    memset(s, 0, sizeof *s);
    mr_rng_seed(&s->rng, seed);
    s->now = S;
    s->delay_ns = 200000;
    s->store = mr_kv_memory_new(&(struct mr_kv_memory_options){.now_ns = s->now});
}

void sim_fini(struct sim *s)
{
    for (unsigned i = 0; i < s->peer_count; i++) {
        if (s->peers[i].is_up) {
            sim_kill(s, i);
        }
        if (s->peers[i].disk) {
            mr_kv_memory_free(&s->peers[i].disk);
        }
    }
    for (size_t i = 0; i < s->events.len; i++) {
        mr_free(s->events.at[i].text);
    }
    for (size_t i = 0; i < s->calls.len; i++) {
        mr_free(s->calls.at[i]);
    }
    for (size_t i = 0; i < s->answers.len; i++) {
        mr_free(s->answers.at[i]);
    }
    MR_VEC_FINI(&s->answers);
    MR_VEC_FINI(&s->events);
    MR_VEC_FINI(&s->calls);
    mr_kv_memory_free(&s->store);
}

/* ---- the store, by hand ---- */

struct hand {
    bool is_done;
    int rc;
};

static void by_hand(void *ctx, int rc, const struct mr_err *err, const struct mr_kv_reply *reply)
{
    (void)err;
    (void)reply;
    *(struct hand *)ctx = (struct hand){true, rc};
}

static void change(struct sim *s, mr_str key, const struct mr_buf *value)
{
    struct mr_kv *kv = mr_kv_memory_open(s->store, &(struct mr_kv_options){0});
    struct hand h = {0};

    if (value) {
        mr_kv_put(kv, key, (mr_bytes){(const uint8_t *)value->ptr, value->len}, 0, by_hand, &h);
    } else {
        mr_kv_delete(kv, key, false, by_hand, &h);
    }
    while (!h.is_done) {
        mr_kv_memory_step(s->store, s->now);
    }
    assert_int_equal(h.rc, MR_OK);
    mr_kv_free(&kv);
}

void sim_put(struct sim *s, const char *key, mr_bytes value)
{
    struct mr_buf b;

    mr_buf_init(&b, 0);
    mr_buf_append(&b, value.ptr, value.len);
    change(s, mr_str_c(key), &b);
    mr_buf_fini(&b);
}

void sim_define(struct sim *s, unsigned model, const struct mesh_def *d)
{
    struct mr_buf key;
    struct mr_buf value;
    char id[24];

    sim_id(id, model);
    mr_buf_init(&key, 0);
    mr_buf_init(&value, 0);
    mesh_key_put(&key, MESH_KEY_MODEL, mr_str_c(id), (mr_str){0});
    mesh_def_put(&value, d);
    change(s, mr_buf_view(&key), &value);
    mr_buf_fini(&key);
    mr_buf_fini(&value);
}

void sim_register(struct sim *s, unsigned first, unsigned count, uint64_t bytes, int64_t load_ns)
{
    for (unsigned i = first; i < first + count; i++) {
        s->models[i] = (struct sim_model){
            .bytes = bytes, .load_ns = load_ns, .unload_ns = 5 * MS, .run_ns = MS};
        sim_define(s, i,
                   &(struct mesh_def){.type = MR_STR("t"),
                                      .path = MR_STR("/m"),
                                      .size_bytes = s->sizes_are_declared ? bytes : 0});
    }
}

void sim_unregister(struct sim *s, unsigned model)
{
    char key[48];

    snprintf(key, sizeof key, "mesh/m/model-%u", model);
    change(s, mr_str_c(key), NULL);
}

/* ---- requests ---- */

static void begin_request(struct sim_peer *p, unsigned model, bool load_here, struct hop *h,
                          uint64_t *out_handle)
{
    char id[24];

    sim_id(id, model);
    struct mesh_ask ask = {.id = mr_str_c(id),
                           .is_from_peer = h->is_sent_on,
                           .load_here = load_here,
                           .is_safe = true,
                           .user = h};
    uint64_t handle = mesh_core_request(p->core, &ask, p->sim->now);
    if (out_handle) {
        *out_handle = handle;
    }
    acted(p);
}

struct sim_call *sim_call(struct sim *s, unsigned peer, unsigned model)
{
    struct sim_call *c = MR_NEW(struct sim_call);
    struct hop *h = MR_NEW(struct hop);

    c->peer = peer;
    c->model = model;
    c->is_at_draining = s->peers[peer].is_draining;
    c->begin_ns = s->now;
    h->call = c;
    MR_VEC_PUSH(&s->calls, c);
    begin_request(&s->peers[peer], model, false, h, &c->handle);
    return c;
}

static struct sim_call *call_alias(struct sim *s, unsigned peer, struct mesh_ask ask)
{
    struct sim_call *c = MR_NEW(struct sim_call);
    struct hop *h = MR_NEW(struct hop);

    ask.is_safe = true;
    ask.user = h;
    c->peer = peer;
    c->begin_ns = s->now;
    h->call = c;
    MR_VEC_PUSH(&s->calls, c);
    c->handle = mesh_core_request(s->peers[peer].core, &ask, s->now);
    acted(&s->peers[peer]);
    return c;
}

void sim_found(struct sim *s, unsigned peer, unsigned model)
{
    struct sim_peer *p = &s->peers[peer];
    const struct mesh_loaded what = {.bytes = s->models[model].bytes};
    char id[24];

    p->resident += p->in_runtime[model] == 2 ? 0 : what.bytes;
    p->in_runtime[model] = 2;
    sim_id(id, model);
    mesh_core_found(p->core, mr_str_c(id), &what, s->now);
    acted(p);
}

struct sim_call *sim_call_local(struct sim *s, unsigned peer, unsigned model)
{
    char id[24];

    sim_id(id, model);
    struct sim_call *c = call_alias(
        s, peer,
        (struct mesh_ask){
            .id = mr_str_c(id), .is_from_peer = true, .load_here = true, .is_local = true});
    c->model = model;
    return c;
}

struct sim_call *sim_call_vmodel(struct sim *s, unsigned peer, const char *id)
{
    return call_alias(s, peer, (struct mesh_ask){.id = mr_str_c(id), .is_vmodel = true});
}

struct sim_call *sim_call_name(struct sim *s, unsigned peer, const char *name)
{
    return call_alias(s, peer, (struct mesh_ask){.id = mr_str_c(name), .may_be_vmodel = true});
}

const struct sim_answer *sim_manage(struct sim *s, unsigned peer, const struct mesh_call *call)
{
    struct sim_answer *a = MR_NEW(struct sim_answer);
    struct mesh_call c = *call;

    MR_VEC_PUSH(&s->answers, a);
    c.user = a;
    mesh_core_call(s->peers[peer].core, &c, s->now);
    acted(&s->peers[peer]);
    return a;
}

static void on_arrive(struct sim *s, const struct sim_event *e)
{
    struct sim_peer *p = &s->peers[e->peer];
    struct hop here = {e->call,    true,      e->flag, e->from, (unsigned)e->status,
                       e->attempt, e->request};

    if (!p->is_up || p->epoch != e->epoch) {
        send_result(s, &here, e->peer, MESH_UNREACHABLE, MR_OK, (mr_str){0});
        return;
    }
    struct hop *h = MR_NEW(struct hop);
    *h = here;
    begin_request(p, e->model, e->flag, h, NULL);
}

/* By the model; error empty: well. */
static void answered(const struct sim *s, struct sim_call *call, mr_str error)
{
    call->has_ended = true;
    call->end_ns = s->now;
    if (error.len) {
        call->status = MR_E_UNAVAILABLE;
        snprintf(call->text, sizeof call->text, "%.*s", MR_STR_ARG(error));
    }
}

static void on_ran(struct sim *s, const struct sim_event *e)
{
    struct sim_peer *p = &s->peers[e->peer];
    bool has_it = p->in_runtime[e->model] == 2;

    if (!p->is_up || p->epoch != e->epoch) {
        return; /* kill told who waits */
    }
    p->running[e->model]--;
    struct mesh_req *r = slots_get(&p->core->reqs, e->request);
    if (!r || !r->attempt[e->attempt].is_active) {
        return; /* another attempt was quicker */
    }
    struct hop *h = r->user;
    struct hop copy = *h;
    if (has_it) {
        copy.call->runs++;
        copy.call->ran_at = e->peer;
        copy.call->model = e->model;
        mr_free(h);
    }
    mesh_core_result(p->core, e->request, e->attempt, has_it ? MESH_ENDED : MESH_NOT_HERE, MR_OK,
                     (mr_str){0}, s->now);
    acted(p);
    const char *error = s->models[e->model].error;
    if (has_it && copy.is_sent_on) {
        send_result(s, &copy, e->peer, MESH_ENDED, MR_OK, error ? mr_str_c(error) : (mr_str){0});
    } else if (has_it) {
        answered(s, copy.call, error ? mr_str_c(error) : (mr_str){0});
    }
}

static void on_result(struct sim *s, const struct sim_event *e)
{
    struct sim_peer *p = &s->peers[e->peer];

    if (!p->is_up || p->epoch != e->epoch) {
        return;
    }
    struct mesh_req *r = slots_get(&p->core->reqs, e->request);
    if (r && e->status == MESH_ENDED && r->attempt[e->attempt].is_active) {
        answered(s, e->call, mr_str_n(e->text, e->text_len));
        mr_free(r->user);
    }
    mesh_core_result(p->core, e->request, e->attempt, (enum mesh_result)e->status, e->fail_status,
                     mr_str_n(e->text, e->text_len), s->now);
    acted(p);
}

static void on_loaded(struct sim *s, const struct sim_event *e)
{
    struct sim_peer *p = &s->peers[e->peer];
    const char *text = s->models[e->model].fails_with;
    char id[24];

    sim_id(id, e->model);
    p->loading--;
    p->in_runtime[e->model] = e->flag ? 0 : 2;
    if (e->flag) {
        mesh_core_load_failed(p->core, mr_str_c(id), s->models[e->model].fail,
                              mr_str_c(text ? text : "boom"), s->now);
    } else {
        struct mesh_loaded what = {s->models[e->model].bytes, s->models[e->model].keeps_state,
                                   s->models[e->model].max_running};
        mesh_core_loaded(p->core, mr_str_c(id), &what, s->now);
    }
    acted(p);
}

static void on_unloaded(struct sim *s, const struct sim_event *e)
{
    struct sim_peer *p = &s->peers[e->peer];
    char id[24];

    sim_id(id, e->model);
    p->in_runtime[e->model] = 0;
    p->resident -= s->models[e->model].bytes;
    mesh_core_unloaded(p->core, mr_str_c(id), s->now);
    acted(p);
}

/* ---- time ---- */

/* What crosses a partition, or is for a stopped process, waits, as in TCP. */
static bool is_held_up(struct sim *s, struct sim_event *e)
{
    const struct sim_peer *p = &s->peers[e->peer];
    bool crosses = e->kind == EV_MESSAGE || e->kind == EV_ARRIVE || e->kind == EV_RESULT;
    bool is_cut = crosses && s->peers[e->from].side != p->side;

    if ((p->is_up && p->is_stopped) || is_cut) {
        e->at_ns = s->now + 20 * MS;
        return true;
    }
    return false;
}

static void run_event(struct sim *s, struct sim_event *e)
{
    const struct sim_peer *p = &s->peers[e->peer];

    if (is_held_up(s, e)) {
        add_event(s, *e);
        return;
    }
    bool is_gone = !p->is_up || p->epoch != e->epoch;
    switch (e->kind) {
    case EV_MESSAGE:
        if (!is_gone) {
            mesh_core_message(p->core, mr_str_c(s->peers[e->from].id),
                              (mr_bytes){(const uint8_t *)e->text, e->text_len}, s->now);
            acted(&s->peers[e->peer]);
        }
        break;
    case EV_ARRIVE: on_arrive(s, e); break;
    case EV_RESULT: on_result(s, e); break;
    case EV_RAN: on_ran(s, e); break;
    case EV_LOADED:
        if (!is_gone) {
            on_loaded(s, e);
        }
        break;
    case EV_UNLOADED:
        if (!is_gone) {
            on_unloaded(s, e);
        }
        break;
    default: break;
    }
    mr_free(e->text);
}

static int64_t next_ns(const struct sim *s)
{
    int64_t next =
        MR_MIN(s->events.len ? s->events.at[0].at_ns : INT64_MAX, mr_kv_memory_next_ns(s->store));

    for (unsigned i = 0; i < s->peer_count; i++) {
        const struct sim_peer *p = &s->peers[i];
        if (p->disk) {
            next = MR_MIN(next, mr_kv_memory_next_ns(p->disk));
        }
        if (p->is_up && !p->is_stopped) {
            next = MR_MIN(next, MR_MIN(mesh_core_next(p->core), registry_next(p->registry)));
        }
    }
    return next;
}

static void step(struct sim *s)
{
    while (s->events.len && s->events.at[0].at_ns <= s->now) {
        struct sim_event e = take_event(s);
        run_event(s, &e);
    }
    for (unsigned i = 0; i < s->peer_count; i++) {
        struct sim_peer *p = &s->peers[i];
        if (p->is_up && !p->is_stopped) {
            registry_tick(p->registry, s->now);
            mesh_core_tick(p->core, s->now);
            acted(p);
        }
        if (p->disk) {
            mr_kv_memory_step(p->disk, s->now);
        }
    }
    mr_kv_memory_step(s->store, s->now);
    sim_check(s);
}

void sim_run(struct sim *s, int64_t ns)
{
    int64_t end = s->now + ns;

    for (int64_t next; (next = next_ns(s)) <= end;) {
        s->now = MR_MAX(s->now, next);
        step(s);
    }
    s->now = end;
}

static bool all_ended(const struct sim *s)
{
    for (size_t i = 0; i < s->calls.len; i++) {
        if (!s->calls.at[i]->has_ended) {
            return false;
        }
    }
    return true;
}

bool sim_settle(struct sim *s, int64_t ns)
{
    int64_t end = s->now + ns;

    while (!all_ended(s)) {
        int64_t next = next_ns(s);
        if (next > end) {
            return false;
        }
        s->now = MR_MAX(s->now, next);
        step(s);
    }
    return true;
}

/* ---- what is looked at ---- */

unsigned sim_copies(const struct sim *s, unsigned model)
{
    unsigned n = 0;

    for (unsigned i = 0; i < s->peer_count; i++) {
        n += s->peers[i].is_up && s->peers[i].in_runtime[model] == 2;
    }
    return n;
}

unsigned sim_copies_at(const struct sim *s, unsigned peer)
{
    unsigned n = 0;

    for (unsigned i = 0; i < SIM_MODELS; i++) {
        n += s->peers[peer].in_runtime[i] == 2 || s->peers[peer].in_runtime[i] == 1;
    }
    return n;
}

unsigned sim_loads(const struct sim *s)
{
    unsigned n = 0;

    for (unsigned i = 0; i < SIM_MODELS; i++) {
        n += s->models[i].loads;
    }
    return n;
}

void sim_check(const struct sim *s)
{
    for (unsigned i = 0; i < s->peer_count; i++) {
        const struct sim_peer *p = &s->peers[i];
        if (p->is_up && s->sizes_are_declared && p->resident > p->capacity) {
            fail_msg("%s has %llu MiB of %llu", p->id, (unsigned long long)(p->resident / MIB),
                     (unsigned long long)(p->capacity / MIB));
        }
    }
    for (size_t i = s->calls.len > 64 ? s->calls.len - 64 : 0; i < s->calls.len; i++) {
        for (unsigned p = 0; p < s->peer_count; p++) {
            assert_true(s->calls.at[i]->not_here[p][0] <= 1);
            assert_true(s->calls.at[i]->not_here[p][1] <= 1);
        }
    }
}
