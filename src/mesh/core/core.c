/* The core's ends: events come in, actions go out, timers, peers, and the table of what this peer does with which model. What
 * is decided: request.c (where a request goes), place.c (where a copy goes), load.c (queue, room, eviction), own.c (this instance's
 * records), scale.c, drain.c. */
#include "core_priv.h"

#include <limits.h>
#include <stdio.h>

#define ARENA_MAX (64u << 20)

static int64_t or_default(int64_t given, int64_t usual)
{
    return given > 0 ? given : usual;
}

static void set_defaults(struct mesh_core_options *o)
{
    static const int64_t fail_s[MESH_FAIL_COUNT] = {
        [MESH_FAIL_OTHER] = 120,   [MESH_FAIL_TRANSIENT] = 15, [MESH_FAIL_RESOURCE] = 60,
        [MESH_FAIL_MISSING] = 120, [MESH_FAIL_INVALID] = 900,  [MESH_FAIL_TOO_LARGE] = 900};

    o->default_bytes = o->default_bytes ? o->default_bytes : 1u << 20;
    o->max_queue = o->max_queue ? o->max_queue : 1024;
    o->max_requests = o->max_requests ? o->max_requests : 65536;
    o->max_failures = o->max_failures ? o->max_failures : 3;
    o->max_attempts = o->max_attempts ? o->max_attempts : 8;
    o->unknown_per_s = o->unknown_per_s ? o->unknown_per_s : 5;
    o->max_intents = o->max_intents ? o->max_intents : 10000;
    o->max_intent_bytes = o->max_intent_bytes ? o->max_intent_bytes : (size_t)16 << 20;
    o->claim_wait_ns = or_default(o->claim_wait_ns, 100 * 1000000ll);
    o->place_wait_ns = or_default(o->place_wait_ns, 200 * 1000000ll);
    o->probe_ns = or_default(o->probe_ns, 100 * 1000000ll);
    o->state_ns = or_default(o->state_ns, 1000000000ll);
    o->rate_ns = or_default(o->rate_ns, 10 * 1000000000ll);
    o->janitor_ns = or_default(o->janitor_ns, 360 * 1000000000ll);
    for (int i = 0; i < MESH_FAIL_COUNT; i++) {
        o->fail_ns[i] = or_default(o->fail_ns[i], fail_s[i] * 1000000000ll);
    }
    o->scale_per_minute = o->scale_per_minute ? o->scale_per_minute : 2000;
    o->scale_busy = o->scale_busy > 0 ? o->scale_busy : 8;
    o->second_min_ns = or_default(o->second_min_ns, 420 * 1000000000ll);
    o->second_max_ns = or_default(o->second_max_ns, 2400 * 1000000000ll);
    o->move_parallel = o->move_parallel ? o->move_parallel : 8;
    o->move_idle_ns = or_default(o->move_idle_ns, 3600 * 1000000000ll);
}

/* The options' texts into one block. */
static void copy_texts(struct mesh_core *c)
{
    mr_str *texts[4 + MESH_LABELS_MAX] = {&c->o.id, &c->o.self.address, &c->o.self.zone,
                                          &c->o.vmodel_owner};
    size_t count = 4;
    size_t bytes = 1;

    for (size_t i = 0; i < c->o.self.label_count; i++) {
        texts[count++] = &c->o.self.labels[i];
    }
    for (size_t i = 0; i < count; i++) {
        bytes += texts[i]->len;
    }
    char *at = c->texts = mr_alloc(bytes);
    for (size_t i = 0; i < count; i++) {
        memcpy(at, texts[i]->len ? texts[i]->ptr : "", texts[i]->len);
        *texts[i] = mr_str_n(at, texts[i]->len);
        at += texts[i]->len;
    }
}

/* Some of the capacity is kept for loads that begin while evicted models are still being unloaded, so that these do not make
 * more room than is needed. */
static uint64_t reserve_of(const struct mesh_core_options *o)
{
    uint64_t capacity = mesh_units(o->self.capacity_bytes);
    uint64_t loads = (uint64_t)o->self.loaders * mesh_units(o->default_bytes);
    uint64_t reserve = loads / (o->self.loaders <= 2 ? 2 : 4);

    return MR_MIN(MR_MAX(reserve, capacity / 100), capacity / 10);
}

int mesh_core_new(struct mesh_core **out, const struct mesh_core_options *options, int64_t now,
                  struct mr_err *err)
{
    if (!mesh_instance_id_is_valid(options->id)) {
        return MR_FAIL(err, MR_E_INVALID,
                       "the id of an instance has 1 to %d letters, digits, '.', '_' and '-'",
                       MESH_INSTANCE_MAX);
    }
    if (options->self.loaders == 0 || options->self.label_count > MESH_LABELS_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "an instance has 1 loader at least and %d labels at most",
                       MESH_LABELS_MAX);
    }
    struct mesh_core *c = MR_NEW(struct mesh_core);
    c->o = *options;
    set_defaults(&c->o);
    copy_texts(c);
    c->now = now;
    c->limit = mesh_units(c->o.self.capacity_bytes) - reserve_of(&c->o);
    c->load_ns = 1e8;
    c->unknown_tokens = c->o.unknown_per_s;
    c->unknown_at = now;
    view_init(&c->view);
    c->me = view_peer_hold(&c->view, c->o.id);
    c->me->capacity = mesh_units(c->o.self.capacity_bytes);
    c->me->device = mesh_units(c->o.self.device_bytes);
    c->me->loaders = c->o.self.loaders;
    cache_init(&c->cache);
    intent_init(c);
    mr_arena_init(&c->arena, 16384, ARENA_MAX);
    timers_add(&c->timers, now + c->o.state_ns, TIMER_STATE, 0, 0);
    timers_add(&c->timers, now + c->o.rate_ns, TIMER_RATE, 0, 0);
    timers_add(&c->timers, now + c->o.janitor_ns, TIMER_JANITOR, 0, 0);
    *out = c;
    return MR_OK;
}

static void free_local(struct mesh_core *c, struct mesh_local *l)
{
    if (l->prev) {
        l->prev->next = l->next;
    } else {
        c->first_local = l->next;
    }
    if (l->next) {
        l->next->prev = l->prev;
    } else {
        c->last_local = l->prev;
    }
    c->local_count--;
    slots_remove(&c->locals, l->handle);
    mr_free(l->reason);
    l->model->heat = (float)l->entry.heat;
    l->model->local = NULL;
    view_release(&c->view, &l->model);
    mr_free(l);
}

void mesh_core_free(struct mesh_core **io_c)
{
    struct mesh_core *c = *io_c;

    *io_c = NULL;
    if (!c) {
        return;
    }
    request_fini(c);
    unknown_fini(c);
    own_fini(c);
    manage_fini(c);
    intent_fini(c);
    while (c->first_local) {
        free_local(c, c->first_local);
    }
    slots_fini(&c->reqs);
    slots_fini(&c->locals);
    timers_fini(&c->timers);
    cache_fini(&c->cache);
    view_fini(&c->view);
    MR_VEC_FINI(&c->actions);
    mr_arena_fini(&c->arena);
    mr_free(c->texts);
    mr_free(c);
}

static void begin(struct mesh_core *c, int64_t now)
{
    c->now = MR_MAX(c->now, now);
    if (c->taken == c->actions.len) {
        c->taken = c->actions.len = 0;
        mr_arena_reset(&c->arena);
    }
}

static void finish(struct mesh_core *c)
{
    if (c->transitions_are_due && c->is_read) {
        c->transitions_are_due = false;
        manage_transitions(c);
    }
    load_pump(c);
    if (c->drain_is_due) {
        drain_pump(c);
    }
    own_flush(c);
}

struct mesh_action *core_act(struct mesh_core *c, enum mesh_action_kind kind)
{
    MR_VEC_PUSH(&c->actions, (struct mesh_action){.kind = kind});
    return &c->actions.at[c->actions.len - 1];
}

bool mesh_core_take(struct mesh_core *c, struct mesh_action *out)
{
    if (c->taken == c->actions.len) {
        return false;
    }
    *out = c->actions.at[c->taken++];
    return true;
}

mr_str core_text(struct mesh_core *c, mr_str s)
{
    return s.len ? mr_arena_str(&c->arena, s) : (mr_str){0};
}

mr_str core_key(struct mesh_core *c, enum mesh_key_kind kind, mr_str id, mr_str instance)
{
    struct mr_buf b;

    mr_buf_init(&b, 0);
    mesh_key_put(&b, kind, id, instance);
    mr_str key = core_text(c, mr_buf_view(&b));
    mr_buf_fini(&b);
    return key;
}

void core_send(struct mesh_core *c, struct view_peer *to, const struct mesh_message *m)
{
    struct mr_buf b;

    mr_buf_init(&b, 0);
    mesh_message_put(&b, m);
    mr_str bytes = core_text(c, mr_buf_view(&b));
    mr_buf_fini(&b);
    if (!bytes.ptr) {
        return; /* out of room for actions: as if it were lost on its way */
    }
    struct mesh_action *a = core_act(c, MESH_ACT_SEND);
    a->instance = to->id;
    a->address = to->address;
    a->bytes = (mr_bytes){(const uint8_t *)bytes.ptr, bytes.len};
}

struct mesh_local *core_local(struct mesh_core *c, struct view_model *m)
{
    if (m->local) {
        return m->local;
    }
    struct mesh_local *l = MR_NEW(struct mesh_local);
    l->core = c;
    l->model = m;
    l->entry.heat = (double)m->heat;
    l->entry.pos = CACHE_OUT;
    l->uses_at = -1;
    l->handle = slots_add(&c->locals, l);
    l->prev = c->last_local;
    if (l->prev) {
        l->prev->next = l;
    } else {
        c->first_local = l;
    }
    c->last_local = l;
    c->local_count++;
    m->local = l;
    return l;
}

struct mesh_local *core_local_of(struct mesh_core *c, uint64_t handle)
{
    return slots_get(&c->locals, handle);
}

void core_local_release(struct mesh_core *c, struct mesh_local *l)
{
    bool is_used = l->holds || l->first || l->turn_first || l->ask_seq || l->asks_registry ||
                   l->is_placed || l->wanted_until || l->state != LOCAL_NONE || l->running ||
                   l->fail_until || l->have != MESH_NO_COPY || l->have_is_unknown ||
                   l->is_writing || l->is_dirty;

    if (!is_used) {
        free_local(c, l);
    }
}

struct view_peer *core_peer(struct mesh_core *c, uint16_t index)
{
    return c->view.peers[index];
}

bool core_peer_is_good(const struct mesh_core *c, const struct view_peer *p)
{
    return p == c->me || (view_peer_is_there(p) && !p->is_suspect);
}

void core_suspect(struct mesh_core *c, struct view_peer *p)
{
    if (p != c->me) {
        p->is_suspect = true;
    }
}

void core_heard(struct mesh_core *c, struct view_peer *p)
{
    p->heard_ns = c->now;
    p->is_suspect = false;
}

struct view_peer *core_owner(struct mesh_core *c, mr_str id, const struct view_peer *not_this)
{
    struct view_peer *best = NULL;
    uint64_t best_hash = 0;

    for (size_t i = 0; i < c->view.peer_count; i++) {
        struct view_peer *p = c->view.peers[i];
        bool drains = p == c->me ? c->is_draining : p->draining;
        if (!core_peer_is_good(c, p) || drains || p == not_this) {
            continue;
        }
        uint64_t hash = mesh_hash(id, p->id);
        if (!best || hash > best_hash) {
            best = p;
            best_hash = hash;
        }
    }
    return best ? best : c->me;
}

struct view_peer *core_model_owner(struct mesh_core *c, const struct view_model *m,
                                   const struct view_peer *not_this)
{
    return m->is_pending ? c->me : core_owner(c, view_id(m), not_this);
}

/* ---- what the registry says ---- */

static void on_model(struct mesh_core *c, const struct view_change *ch)
{
    struct mesh_local *l = ch->model ? ch->model->local : NULL;

    if (!l) {
        return;
    }
    l->holds++;
    if (ch->kind == VIEW_MODEL) {
        if (ch->is_other) {
            load_outdated(c, l);
        }
        load_pin(c, l);
        if (l->asks_registry) {
            l->asks_registry = false;
            request_waiting_wake(c, l);
        }
    } else if (!l->asks_registry) {
        request_waiting_fail(c, l, MR_E_NOT_FOUND, MR_STR("the model was unregistered"), 0);
        load_unregistered(c, l);
    }
    l->holds--;
    core_local_release(c, l);
}

static void on_copy(struct mesh_core *c, const struct view_change *ch)
{
    struct mesh_local *l = ch->model ? ch->model->local : NULL;

    if (!l) {
        return;
    }
    l->holds++;
    if (l->is_placed && l->placed_peer == ch->peer->index && ch->after != MESH_NO_COPY) {
        place_forget(c, l);
    }
    if (ch->peer == c->me && ch->after == MESH_NO_COPY && !l->is_writing) {
        l->have = MESH_NO_COPY; /* it was deleted, or the lease has ended */
        own_sync(c, l);
    }
    c->drain_is_due = c->drain_is_due || c->is_draining;
    if (ch->after == MESH_FAILED && ch->peer != c->me) {
        l->moved_ns = INT64_MIN / 2; /* if it was to move there, it goes elsewhere now */
    }
    if (ch->peer != c->me && ch->after != MESH_NO_COPY && ch->after != MESH_FAILED) {
        request_waiting_wake(c, l);
        drain_copied(c, l);
    }
    want_see(c, l);
    l->holds--;
    core_local_release(c, l);
}

/* Copies and instances that go take copies away, new ones have room. */
static bool concerns_minimum(const struct view_change *ch)
{
    bool is_of_model =
        ch->kind == VIEW_MODEL ||
        (ch->kind == VIEW_COPY && ch->after != MESH_LOADING && ch->after != MESH_LOADED);

    return ch->kind == VIEW_PEER || ch->kind == VIEW_NO_PEER ||
           (is_of_model && ch->model && ch->model->min_copies > 0);
}

static void on_change(struct mesh_core *c, const struct view_change *ch)
{
    c->minimum_is_due |= concerns_minimum(ch);
    switch (ch->kind) {
    case VIEW_MODEL:
    case VIEW_NO_MODEL:
        c->names += view_vmodel_find(&c->view, ch->id) != NULL;
        on_model(c, ch);
        break;
    case VIEW_COPY: on_copy(c, ch); break;
    case VIEW_NO_PEER:
        if (ch->peer == c->me) {
            c->self_is_written = false;
        }
        break;
    case VIEW_VMODEL:
        c->names++;
        c->transitions_are_due = true;
        break;
    case VIEW_PEER:
        if (ch->peer->heard_ns == 0) {
            ch->peer->heard_ns = c->now;
        }
        break;
    case VIEW_NOTHING: break;
    }
}

void core_apply(struct mesh_core *c, mr_str key, mr_bytes value, int64_t revision)
{
    struct view_change ch;

    view_apply(&c->view, key, value, revision, &ch);
    on_change(c, &ch);
}

void mesh_core_record(struct mesh_core *c, mr_str key, mr_bytes value, int64_t revision,
                      int64_t now)
{
    begin(c, now);
    intent_meet(c, key, value);
    core_apply(c, key, value, revision);
    finish(c);
}

void mesh_core_registry_lost(struct mesh_core *c, int64_t now)
{
    begin(c, now);
    c->has_lost_registry = true;
}

void mesh_core_read_begin(struct mesh_core *c, int64_t now)
{
    begin(c, now);
    view_read_begin(&c->view);
}

/* Copies that the registry shows here and that are not: of an earlier process with the same id. */
static void drop_foreign_copies(struct mesh_core *c)
{
    for (size_t i = 0; i < c->view.cap; i++) {
        struct view_model *m = c->view.models[i];
        struct view_copy *copy = m ? view_copy_at(m, c->me) : NULL;
        if (copy && (!m->local || m->local->have == MESH_NO_COPY)) {
            struct mesh_local *l = core_local(c, m);
            l->have = (enum mesh_copy_state)copy->state;
            own_sync(c, l);
        }
    }
}

/* Copies that are here and that the registry does not show: it has lost its data, or the lease ended. */
static void find_lost_records(struct mesh_core *c)
{
    for (struct mesh_local *l = c->first_local; l; l = l->next) {
        if (l->have != MESH_NO_COPY && !l->is_writing && !view_copy_at(l->model, c->me)) {
            l->have = MESH_NO_COPY;
            own_sync(c, l);
        }
    }
    if (!view_peer_is_there(c->me)) {
        c->self_is_written = false;
    }
}

void mesh_core_read_end(struct mesh_core *c, int64_t now)
{
    struct view_change ch;
    struct mr_buf key;

    begin(c, now);
    mr_buf_init(&key, 0);
    intent_read(c);
    if (c->has_lost_registry || c->restore_ns) {
        c->has_lost_registry = false;
        restore_begin(c);
    }
    while (view_sweep(&c->view, &key, &ch)) {
        on_change(c, &ch);
    }
    mr_buf_fini(&key);
    c->is_read = true;
    intent_wake(c);
    find_lost_records(c);
    drop_foreign_copies(c);
    finish(c);
}

void mesh_core_lease(struct mesh_core *c, int64_t now)
{
    begin(c, now);
    c->has_lease = true;
    own_again(c);
    finish(c);
}

void mesh_core_epoch(struct mesh_core *c, mr_str epoch, int64_t now)
{
    begin(c, now);
    c->epoch_len = MR_MIN(epoch.len, sizeof c->epoch);
    memcpy(c->epoch, epoch.ptr, c->epoch_len);
}

void mesh_core_registry(struct mesh_core *c, bool is_there, int64_t now)
{
    begin(c, now);
    if (c->registry_is_there && !is_there) {
        c->away_ns = c->now;
    }
    bool is_back = is_there && !c->registry_is_there;
    c->registry_is_there = is_there;
    c->write_pause = 0;
    if (is_back) {
        manage_wake(c);
    }
    finish(c);
}

void mesh_core_why(struct mesh_core *c, mr_str why)
{
    snprintf(c->why, sizeof c->why, "%.*s", MR_STR_ARG(why));
}

void mesh_core_written(struct mesh_core *c, uint64_t token, int status, bool succeeded,
                       mr_bytes value, int64_t now)
{
    begin(c, now);
    if (!intent_written(c, token, status, succeeded) &&
        !manage_written(c, token, status, succeeded)) {
        own_written(c, token, status, succeeded, value);
    }
    finish(c);
}

void mesh_core_got(struct mesh_core *c, uint64_t token, int status, mr_bytes value,
                   int64_t revision, int64_t now)
{
    begin(c, now);
    bool is_of_other = intent_got(c, token, status, value, revision) ||
                       unknown_got(c, token, status, value, revision);
    struct mesh_local *l = is_of_other ? NULL : core_local_of(c, token);
    if (l && l->asks_registry) {
        mr_str key = core_key(c, MESH_KEY_MODEL, view_id(l->model), (mr_str){0});
        l->holds++;
        if (status == MR_OK && value.ptr) {
            core_apply(c, key, value, revision); /* wakes what waits, if it can be read */
        } else if (status == MR_OK) {
            unknown_remember(c, key);
        }
        if (l->asks_registry && status == MR_OK) {
            l->asks_registry = false;
            request_unknown(c, l);
        } else if (l->asks_registry) {
            l->asks_registry = false;
            request_waiting_fail(c, l, MR_E_UNAVAILABLE, MR_STR("the registry does not answer"),
                                 1000000000);
        }
        l->holds--;
        core_local_release(c, l);
    }
    finish(c);
}

void mesh_core_intent(struct mesh_core *c, mr_str key, mr_bytes value, int64_t now)
{
    struct mesh_key k = mesh_key_parse(key);

    begin(c, now);
    if (k.kind == MESH_KEY_MODEL || k.kind == MESH_KEY_VMODEL) {
        intent_add(c, k.kind == MESH_KEY_VMODEL, k.id, value);
    }
    finish(c);
}

void mesh_core_journal(struct mesh_core *c, bool is_there, int64_t now)
{
    begin(c, now);
    c->journal_is_there = is_there;
    manage_wake(c);
    finish(c);
}

/* ---- peers and time ---- */

void mesh_core_message(struct mesh_core *c, mr_str from, mr_bytes bytes, int64_t now)
{
    struct mesh_message m;
    struct view_peer *p = view_peer_find(&c->view, from);

    begin(c, now);
    if (!p || p == c->me || mesh_message_get(&m, bytes, NULL) < 0) {
        return;
    }
    core_heard(c, p);
    switch (m.kind) {
    case MESH_MSG_PING: core_send(c, p, &(struct mesh_message){.kind = MESH_MSG_PONG}); break;
    case MESH_MSG_PONG: break;
    case MESH_MSG_PLACE: place_asked(c, p, &m); break;
    case MESH_MSG_PLACED: place_answered(c, &m); break;
    case MESH_MSG_LOAD: {
        struct view_model *model = view_find(&c->view, m.model);
        if (model && model->revision) {
            struct mesh_local *l = core_local(c, model);
            load_want(c, l, m.purpose);
            core_local_release(c, l);
        }
        break;
    }
    case MESH_MSG_STATE:
        p->in_flight = m.in_flight;
        p->queued = m.queued;
        p->age_s = m.age_s;
        break;
    }
    finish(c);
}

#define STATE_PEERS 64 /* at a time */
#define SILENT      5  /* rounds without a word of a peer, after which it is not counted on */

/* Also how a peer that is suspected gets to answer. */
static void send_state(struct mesh_core *c)
{
    struct mesh_message m = {.kind = MESH_MSG_STATE,
                             .in_flight = c->running,
                             .queued = c->queued + c->loading,
                             .age_s = load_age_s(c)};
    c->me->in_flight = m.in_flight;
    c->me->queued = m.queued;
    c->me->age_s = m.age_s;
    size_t count = c->view.peer_count;
    int64_t round_ns = c->o.state_ns * (int64_t)(1 + count / STATE_PEERS);

    for (size_t i = 0; i < MR_MIN(count, STATE_PEERS); i++) {
        struct view_peer *p = c->view.peers[(c->seq + i) % count];
        if (p == c->me || !view_peer_is_there(p)) {
            continue;
        }
        if (p->heard_ns < c->now - SILENT * round_ns) {
            core_suspect(c, p);
        }
        if (p->is_suspect) {
            core_send(c, p, &(struct mesh_message){.kind = MESH_MSG_PING});
        } else {
            core_send(c, p, &m);
        }
    }
    c->seq += MR_MIN(count, STATE_PEERS);
}

static void on_local_timer(struct mesh_core *c, const struct timer *t, struct mesh_local *l)
{
    l->holds++;
    switch (t->kind) {
    case TIMER_ASK: place_ask_timeout(c, l, t->check); break;
    case TIMER_FAIL:
        if (l->fail_until && l->fail_until <= c->now) {
            l->fail_until = 0;
            own_sync(c, l);
        }
        break;
    case TIMER_PLACED:
        if (l->is_placed && (uint64_t)l->placed_until == t->check) {
            place_forget(c, l);
        }
        break;
    case TIMER_WANT: want_due(c, l, t->check); break;
    case TIMER_LEAVE: load_leave_due(c, l, t->check); break;
    default: break; /* TIMER_CLAIM: load_pump looks */
    }
    l->holds--;
    core_local_release(c, l);
}

static void on_timer(struct mesh_core *c, const struct timer *t)
{
    struct mesh_local *l;
    struct mesh_req *r;

    switch (t->kind) {
    case TIMER_STATE:
        send_state(c);
        c->transitions_are_due = c->view.vmodels.len > 0;
        c->drain_is_due = c->is_draining;
        timers_add(&c->timers, c->now + c->o.state_ns, TIMER_STATE, 0, 0);
        break;
    case TIMER_RATE:
        scale_rates(c);
        timers_add(&c->timers, c->now + c->o.rate_ns, TIMER_RATE, 0, 0);
        break;
    case TIMER_JANITOR:
        scale_janitor(c);
        timers_add(&c->timers, c->now + c->o.janitor_ns, TIMER_JANITOR, 0, 0);
        break;
    case TIMER_PROBE:
        if ((r = slots_get(&c->reqs, t->arg))) {
            request_probe(c, r, t->check);
        }
        break;
    case TIMER_WRITE: break; /* own_flush looks */
    case TIMER_MANAGE: manage_tick(c); break;
    default:
        if ((l = core_local_of(c, t->arg))) {
            on_local_timer(c, t, l);
        }
        break;
    }
}

int64_t mesh_core_next(const struct mesh_core *c)
{
    return timers_next(&c->timers);
}

void mesh_core_tick(struct mesh_core *c, int64_t now)
{
    struct timer t;

    begin(c, now);
    while (timers_due(&c->timers, c->now, &t)) {
        on_timer(c, &t);
    }
    finish(c);
}

void mesh_core_drain(struct mesh_core *c, int64_t now)
{
    begin(c, now);
    if (!c->is_draining) {
        c->is_draining = c->drain_is_due = true;
        c->drain_ns = c->now;
        c->self_is_written = false;
    }
    finish(c);
}

/* ---- reports ---- */

const struct mesh_view *mesh_core_view(const struct mesh_core *c)
{
    return &c->view;
}

void mesh_core_report(const struct mesh_core *c, struct mesh_core_report *out)
{
    *out = c->report;
    out->held_units = c->held;
    out->limit_units = c->limit;
    out->capacity_units = c->me->capacity;
    out->queued = c->queued;
    out->loading = c->loading;
    out->requests = (uint32_t)c->request_count;
    out->models = c->view.count;
    out->intents = c->intents.len + c->vmodel_intents.len;
    out->age_s = load_age_s(c);
    out->loaded = 0;
    for (const struct mesh_local *l = c->first_local; l; l = l->next) {
        out->loaded += l->state == LOCAL_LOADED;
    }
}

enum mesh_copy_state mesh_core_copy(const struct mesh_core *c, mr_str id)
{
    const struct view_model *m = view_find(&c->view, id);
    const struct mesh_local *l = m ? m->local : NULL;

    switch (l ? l->state : LOCAL_NONE) {
    case LOCAL_QUEUED:
    case LOCAL_LOADING: return MESH_LOADING;
    case LOCAL_LOADED: return MESH_LOADED;
    case LOCAL_LEAVING:
    case LOCAL_UNLOADING: return MESH_DRAINING;
    default: return l && l->fail_until ? MESH_FAILED : MESH_NO_COPY;
    }
}

/* ---- requests and calls ---- */

void mesh_core_call(struct mesh_core *c, const struct mesh_call *call, int64_t now)
{
    begin(c, now);
    manage_call(c, call);
    finish(c);
}

uint64_t mesh_core_request(struct mesh_core *c, const struct mesh_ask *ask, int64_t now)
{
    begin(c, now);
    uint64_t handle = request_begin(c, ask);
    finish(c);
    return handle;
}

void mesh_core_answering(struct mesh_core *c, uint64_t request, unsigned attempt, int64_t now)
{
    begin(c, now);
    request_answering(c, request, attempt);
    finish(c);
}

void mesh_core_result(struct mesh_core *c, uint64_t request, unsigned attempt,
                      enum mesh_result result, int status, mr_str text, int64_t now)
{
    begin(c, now);
    request_result(c, request, attempt, result, status, text);
    finish(c);
}

void mesh_core_cancel(struct mesh_core *c, uint64_t request, int64_t now)
{
    begin(c, now);
    request_cancel(c, request);
    finish(c);
}

/* ---- the runtime ---- */

void mesh_core_loaded(struct mesh_core *c, mr_str id, const struct mesh_loaded *what, int64_t now)
{
    begin(c, now);
    load_done(c, id, what);
    finish(c);
}

void mesh_core_load_failed(struct mesh_core *c, mr_str id, enum mesh_fail kind, mr_str reason,
                           int64_t now)
{
    begin(c, now);
    load_failed(c, id, kind, reason);
    finish(c);
}

void mesh_core_unloaded(struct mesh_core *c, mr_str id, int64_t now)
{
    begin(c, now);
    load_unloaded(c, id);
    finish(c);
}

void mesh_core_used(struct mesh_core *c, mr_str id, uint32_t count, uint32_t running, int64_t now)
{
    begin(c, now);
    struct view_model *m = view_find(&c->view, id);
    if (m && m->local) {
        load_used(c, m->local, count, running);
    }
    finish(c);
}

enum mesh_room mesh_core_predicted(struct mesh_core *c, mr_str id, uint64_t bytes, int64_t now)
{
    begin(c, now);
    enum mesh_room room = load_predicted(c, id, bytes);
    finish(c);
    return room;
}

void mesh_core_found(struct mesh_core *c, mr_str id, const struct mesh_loaded *what, int64_t now)
{
    begin(c, now);
    struct view_model *m = view_find(&c->view, id);
    if (m && m->revision && !view_path(m).len && !what->keeps_state) {
        load_found(c, core_local(c, m), what);
    }
    finish(c);
}

void mesh_core_lost(struct mesh_core *c, mr_str id, int64_t now)
{
    begin(c, now);
    struct view_model *m = view_find(&c->view, id);
    if (m && m->local) {
        load_lost(c, m->local);
    }
    finish(c);
}

uint64_t mesh_core_names(const struct mesh_core *c)
{
    return c->names;
}
