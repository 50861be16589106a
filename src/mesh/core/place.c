/* Where a model is, or is to be. Its owner decides: peers ask it, it answers with an instance and has that load the model. What
 * it has placed and the registry does not show yet counts as if it were there, so that models which are cold at the same time
 * spread. If an owner does not answer, the next one by hash is asked, and for one that has not heard of
 * the model yet whoever asks decides; the claim in the registry keeps two owners from two loads.
 *
 * The choice is the cheapest of all instances that may have it. The costs are in loads: what waits there already, no room (the more,
 * the more recently used what would have to go), a zone that has a copy, labels that are not preferred. Equals are distinguished by hash, which
 * differs from model to model. */
#include "core_priv.h"

#include <stdio.h>

#define PLACED_NS 5000000000ll
#define ASK_TRIES 4

struct excluded {
    const struct view_peer *peer[MESH_EXCLUDE_MAX];
    size_t count;
};

static void exclude(struct excluded *x, const struct view_peer *p)
{
    for (size_t i = 0; i < x->count; i++) {
        if (x->peer[i] == p) {
            return;
        }
    }
    if (p && x->count < MESH_EXCLUDE_MAX) {
        x->peer[x->count++] = p;
    }
}

static bool is_excluded(const struct excluded *x, const struct view_peer *p)
{
    for (size_t i = 0; i < x->count; i++) {
        if (x->peer[i] == p) {
            return true;
        }
    }
    return false;
}

void mesh_core_constraints(struct mesh_core *c, const struct mesh_constraint *at, size_t count)
{
    c->o.constraints = at;
    c->o.constraint_count = count;
}

static const struct mesh_constraint *constraint_of(const struct mesh_core *c, mr_str type)
{
    const struct mesh_constraint *usual = NULL;

    for (size_t i = 0; i < c->o.constraint_count; i++) {
        const struct mesh_constraint *k = &c->o.constraints[i];
        if (mr_str_eq(k->type, type)) {
            return k;
        }
        if (mr_str_eq_c(k->type, "_default")) {
            usual = k;
        }
    }
    return usual;
}

static bool has_label(const struct view_peer *p, mr_str label)
{
    for (size_t i = 0; i < p->label_count; i++) {
        if (mr_str_eq(p->labels[i], label)) {
            return true;
        }
    }
    return false;
}

static bool has_required(const struct mesh_constraint *k, const struct view_peer *p)
{
    for (size_t i = 0; k && i < k->required_count; i++) {
        if (!has_label(p, k->required[i])) {
            return false;
        }
    }
    return true;
}

static bool has_preferred(const struct mesh_constraint *k, const struct view_peer *p)
{
    for (size_t i = 0; k && i < k->preferred_count; i++) {
        if (has_label(p, k->preferred[i])) {
            return true;
        }
    }
    return !k || k->preferred_count == 0;
}

static uint32_t units_of(const struct mesh_core *c, const struct view_model *m)
{
    uint32_t units = view_units(m);
    return units ? units : mesh_units(c->o.default_bytes);
}

/* A peer reserves at least a hundredth of its capacity; one that reserves more refuses the load itself. */
bool place_fits(const struct mesh_core *c, const struct view_peer *p, const struct view_model *m)
{
    uint64_t most = p == c->me ? c->limit : p->capacity - p->capacity / 100;

    return has_required(constraint_of(c, view_type(m)), p) && units_of(c, m) <= most &&
           (!p->device || view_device(m) <= p->device);
}

static bool zone_has_copy(const struct mesh_core *c, const struct view_model *m,
                          const struct view_peer *p)
{
    for (size_t i = 0; i < m->copy_count; i++) {
        const struct view_peer *other = c->view.peers[m->copies[i].peer];
        if (m->copies[i].state != MESH_FAILED && view_peer_is_there(other) &&
            mr_str_eq(other->zone, p->zone)) {
            return true;
        }
    }
    return false;
}

static double cost_at(const struct mesh_core *c, const struct view_model *m,
                      const struct view_peer *p)
{
    double loads = (double)p->sums.loading + p->reserved_loads;
    double used = (double)p->sums.used + (double)p->reserved;
    double capacity = MR_MAX(p->capacity, 1);
    double device = (double)(p == c->me ? c->held_device : p->sums.device) +
                    (double)p->reserved_device + view_device(m);

    if (p == c->me) {
        loads = MR_MAX(loads, (double)c->queued + c->loading + p->reserved_loads);
        used = MR_MAX(used, (double)(c->held + p->reserved));
    } else {
        loads = MR_MAX(loads, (double)p->queued);
    }
    double cost = loads / p->loaders + 0.5 * used / capacity;
    bool is_device_full = p->device && view_device(m) && device > p->device;
    if (used + units_of(c, m) > capacity * 0.95 || is_device_full) {
        double age_s = p == c->me ? load_age_s(c) : p->age_s;
        cost += 1 + 1 / (1 + age_s / 60);
    }
    cost += m->copy_count && zone_has_copy(c, m, p) ? 1 : 0;
    cost += has_preferred(constraint_of(c, view_type(m)), p) ? 0 : 0.75;
    cost += 0.25 * MR_MIN(p->in_flight, 64u) / 64;
    return cost + 1e-3 * (double)(mesh_hash(view_id(m), p->id) >> 32) / 4294967296.0;
}

/* A copy that is leaving is none: it may come back, and there may be no other server that can have the model. */
static bool has_here(const struct mesh_local *l)
{
    return l->state == LOCAL_QUEUED || l->state == LOCAL_LOADING || l->state == LOCAL_LOADED ||
           l->fail_until;
}

static bool may_have(const struct mesh_core *c, const struct mesh_local *l,
                     const struct view_peer *p, const struct excluded *x)
{
    bool drains = p == c->me ? c->is_draining : p->draining;
    bool has_it = p == c->me ? has_here(l) : view_copy_at(l->model, p) != NULL;

    return core_peer_is_good(c, p) && !drains && !has_it && !is_excluded(x, p) &&
           (p == c->me || !l->model->is_pending) && place_fits(c, p, l->model);
}

bool place_may_have(const struct mesh_core *c, const struct mesh_local *l,
                    const struct view_peer *p)
{
    return may_have(c, l, p, &(struct excluded){0});
}

static struct view_peer *cheapest(const struct mesh_core *c, const struct mesh_local *l,
                                  const struct excluded *x)
{
    struct view_peer *best = NULL;
    double best_cost = 0;

    for (size_t i = 0; i < c->view.peer_count; i++) {
        struct view_peer *p = c->view.peers[i];
        if (may_have(c, l, p, x)) {
            double cost = cost_at(c, l->model, p);
            if (!best || cost < best_cost) {
                best = p;
                best_cost = cost;
            }
        }
    }
    return best;
}

void place_forget(struct mesh_core *c, struct mesh_local *l)
{
    if (l->is_placed) {
        struct view_peer *p = core_peer(c, l->placed_peer);
        l->is_placed = false;
        p->reserved -= l->placed_units;
        p->reserved_device -= l->placed_device;
        p->reserved_loads--;
    }
}

static void reserve(struct mesh_core *c, struct mesh_local *l, struct view_peer *p)
{
    place_forget(c, l);
    l->is_placed = true;
    l->placed_peer = p->index;
    l->placed_units = units_of(c, l->model);
    l->placed_device = view_device(l->model);
    l->placed_until = c->now + PLACED_NS;
    p->reserved += l->placed_units;
    p->reserved_device += l->placed_device;
    p->reserved_loads++;
    timers_add(&c->timers, l->placed_until, TIMER_PLACED, l->handle, (uint64_t)l->placed_until);
}

/* One that has it, or is about to. */
static struct view_peer *holder(struct mesh_core *c, struct mesh_local *l, const struct excluded *x)
{
    struct view_peer *loading = NULL;

    if (!is_excluded(x, c->me) && l->state >= LOCAL_QUEUED && l->state <= LOCAL_LOADED) {
        return c->me;
    }
    for (size_t i = 0; i < l->model->copy_count; i++) {
        const struct view_copy *copy = &l->model->copies[i];
        struct view_peer *p = core_peer(c, copy->peer);
        if (p == c->me || !core_peer_is_good(c, p) || is_excluded(x, p)) {
            continue;
        }
        if (copy->state == MESH_LOADED) {
            return p;
        }
        if (copy->state == MESH_LOADING) {
            loading = p;
        }
    }
    if (!loading && l->is_placed) {
        struct view_peer *p = core_peer(c, l->placed_peer);
        return core_peer_is_good(c, p) && !is_excluded(x, p) ? p : NULL;
    }
    return loading;
}

/* Copies that count for the model's maximum: loaded or loading, whether their instances answer or not. Those that drain, or are to
 * move from an excluded instance, make place for another. */
static uint32_t held_copies(struct mesh_core *c, const struct mesh_local *l,
                            const struct excluded *moves)
{
    uint32_t n = l->is_placed && !core_peer(c, l->placed_peer)->draining;

    for (size_t i = 0; i < l->model->copy_count; i++) {
        const struct view_copy *copy = &l->model->copies[i];
        const struct view_peer *p = core_peer(c, copy->peer);
        n += (copy->state == MESH_LOADED || copy->state == MESH_LOADING) && p != c->me &&
             view_peer_is_there(p) && !p->draining && !(moves && is_excluded(moves, p));
    }
    return n + (l->state >= LOCAL_QUEUED && l->state <= LOCAL_LOADED && !c->is_draining &&
                !(moves && is_excluded(moves, c->me)));
}

static bool has_most(struct mesh_core *c, const struct mesh_local *l, const struct excluded *moves)
{
    return l->model->max_copies && held_copies(c, l, moves) >= l->model->max_copies;
}

#define HAS_MOST "the model has the most copies that it may have, and they do not answer here"

const char *place_forbids(struct mesh_core *c, const struct mesh_local *l)
{
    if (!has_required(constraint_of(c, view_type(l->model)), c->me)) {
        return "this instance has not the labels that models of this type need";
    }
    return has_most(c, l, NULL) ? "other instances have the most copies that the model may have"
                                : NULL;
}

struct decision {
    struct view_peer *at; /* NULL: status and text */
    bool is_new;
    int status;
    char text[MESH_WHY_MAX];
};

static void say_failed(struct mesh_core *c, const struct mesh_local *l, struct decision *d)
{
    const struct view_copy *last = NULL;

    for (size_t i = 0; i < l->model->copy_count; i++) {
        const struct view_copy *copy = &l->model->copies[i];
        if (copy->state == MESH_FAILED && core_peer_is_good(c, core_peer(c, copy->peer)) &&
            (!last || copy->revision > last->revision)) {
            last = copy;
        }
    }
    if (last) {
        d->status = request_fail_status((enum mesh_fail)last->fail);
        const char *reason = last->failure->reason;
        mr_str text =
            mr_str_sub(mr_str_c(reason[0] ? reason : "the load failed"), 0, sizeof d->text - 1);
        snprintf(d->text, sizeof d->text, "%.*s", (int)mr_utf8_whole(text), text.ptr);
    }
}

static uint32_t failures(struct mesh_core *c, const struct mesh_local *l)
{
    uint32_t n = 0;

    for (size_t i = 0; i < l->model->copy_count; i++) {
        n += l->model->copies[i].state == MESH_FAILED &&
             core_peer_is_good(c, core_peer(c, l->model->copies[i].peer));
    }
    return n;
}

/* ModelMesh's controller knows the text. */
static void say_labels(const struct mesh_constraint *k, mr_str type, char text[MESH_WHY_MAX])
{
    type = mr_str_sub(type, 0, 100); /* so that there is room for the labels */
    int at = snprintf(text, MESH_WHY_MAX,
                      "There are no running instances that meet the label requirements of type "
                      "%.*s: [",
                      (int)mr_utf8_whole(type), type.ptr);

    for (size_t i = 0; i < k->required_count; i++) {
        int left = MESH_WHY_MAX - at - 5; /* what follows them */
        const char *before = i ? ", " : "";
        if ((int)(strlen(before) + k->required[i].len) > left) {
            at += snprintf(text + at, (size_t)(MESH_WHY_MAX - at), "…");
            break;
        }
        at += snprintf(text + at, (size_t)(MESH_WHY_MAX - at), "%s%.*s", before,
                       MR_STR_ARG(k->required[i]));
    }
    snprintf(text + at, (size_t)(MESH_WHY_MAX - at), "]");
}

/* What no instance that is there may ever load: the status of its requests. MR_OK: one may. */
static int never(const struct mesh_core *c, const struct view_model *m, char text[MESH_WHY_MAX])
{
    const struct mesh_constraint *k = constraint_of(c, view_type(m));
    bool has_labels = false;

    for (size_t i = 0; i < c->view.peer_count; i++) {
        const struct view_peer *p = c->view.peers[i];
        if (p == c->me || view_peer_is_there(p)) {
            if (place_fits(c, p, m)) {
                return MR_OK;
            }
            has_labels = has_labels || has_required(k, p);
        }
    }
    if (!has_labels && k && k->required_count) {
        say_labels(k, view_type(m), text);
        return MR_E_UNAVAILABLE;
    }
    snprintf(text, MESH_WHY_MAX,
             "the model takes %llu MiB and %llu MiB of device memory, more than any instance has",
             (unsigned long long)units_of(c, m) * MESH_UNIT >> 20,
             (unsigned long long)view_device(m) * MESH_UNIT >> 20);
    return MR_E_TOO_LARGE;
}

bool mesh_core_is_nowhere(const struct mesh_core *c, mr_str id, char text[MESH_WHY_MAX])
{
    const struct view_model *m = view_find(&c->view, id);

    return m && m->revision && never(c, m, text) < 0;
}

/* Why there is no instance for it. */
static void say_nowhere(struct mesh_core *c, const struct mesh_local *l, struct decision *d)
{
    unsigned draining = 0;
    unsigned silent = 0;

    d->status = never(c, l->model, d->text);
    if (d->status < 0) {
        return;
    }
    for (size_t i = 0; i < c->view.peer_count; i++) {
        const struct view_peer *p = c->view.peers[i];
        draining += p == c->me ? c->is_draining : view_peer_is_there(p) && p->draining;
        silent += view_peer_is_there(p) && !core_peer_is_good(c, p);
    }
    d->status = MR_E_UNAVAILABLE;
    snprintf(d->text, sizeof d->text,
             "no instance can load the model now: %u drain, %u do not answer, the others were "
             "tried or have it",
             draining, silent);
    say_failed(c, l, d);
}

/* is_more: another one, whoever has it. */
static void decide(struct mesh_core *c, struct mesh_local *l, const struct excluded *x,
                   bool is_more, struct decision *d)
{
    *d = (struct decision){0};
    if (!is_more && (d->at = holder(c, l, x))) {
        return;
    }
    if (failures(c, l) >= c->o.max_failures) {
        say_failed(c, l, d);
        return;
    }
    if (has_most(c, l, is_more ? x : NULL)) {
        d->status = MR_E_UNAVAILABLE;
        snprintf(d->text, sizeof d->text, HAS_MOST);
        return;
    }
    if ((d->at = cheapest(c, l, x))) {
        d->is_new = true;
        reserve(c, l, d->at);
        return;
    }
    say_nowhere(c, l, d);
}

static void send_load(struct mesh_core *c, struct mesh_local *l, struct view_peer *at,
                      enum mesh_purpose purpose)
{
    if (at == c->me) {
        place_forget(c, l);
        load_want(c, l, purpose);
        return;
    }
    core_send(c, at,
              &(struct mesh_message){
                  .kind = MESH_MSG_LOAD, .model = view_id(l->model), .purpose = purpose});
}

/* ---- the one who asks ---- */

/* Instances that a waiting request has been refused by, and those that do not answer here. */
static void excluded_of(struct mesh_core *c, const struct mesh_local *l, struct excluded *x)
{
    for (const struct mesh_req *r = l->first; r; r = r->next) {
        for (size_t i = 0; i < r->tried_count; i++) {
            if (r->tried[i].what & (TRIED_LOAD | TRIED_FAILED)) {
                exclude(x, core_peer(c, r->tried[i].peer));
            }
        }
    }
    for (size_t i = 0; i < c->view.peer_count; i++) {
        struct view_peer *p = core_peer(c, (uint16_t)i);
        if (view_peer_is_there(p) && !core_peer_is_good(c, p)) {
            exclude(x, p);
        }
    }
}

static void settle(struct mesh_core *c, struct mesh_local *l, struct view_peer *at, int status,
                   mr_str text)
{
    l->ask_seq = 0;
    l->ask_tries = 0;
    if (at) {
        request_placed(c, l, at);
    } else {
        request_waiting_fail(c, l, status, text, status == MR_E_UNAVAILABLE ? 1000000000 : 0);
    }
}

static void decide_here(struct mesh_core *c, struct mesh_local *l)
{
    struct excluded x = {0};
    struct decision d;

    excluded_of(c, l, &x);
    decide(c, l, &x, false, &d);
    if (d.at && d.is_new && d.at != c->me) {
        send_load(c, l, d.at, MESH_FOR_REQUEST);
    } else if (d.at == c->me) {
        place_forget(c, l);
    }
    settle(c, l, d.at, d.status, mr_str_c(d.text));
}

void place_ask(struct mesh_core *c, struct mesh_local *l)
{
    if (l->ask_seq) {
        return;
    }
    const struct view_peer *not_this = l->ask_tries ? core_peer(c, l->ask_peer) : NULL;
    struct view_peer *owner = core_model_owner(c, l->model, not_this);
    l->ask_tries++;
    if (owner == c->me || l->ask_tries > ASK_TRIES) {
        decide_here(c, l);
        return;
    }
    struct excluded x = {0};
    excluded_of(c, l, &x);
    struct mesh_message m = {.kind = MESH_MSG_PLACE,
                             .seq = l->ask_seq = ++c->seq,
                             .model = view_id(l->model),
                             .purpose = MESH_FOR_REQUEST};
    for (size_t i = 0; i < x.count; i++) {
        m.exclude[m.exclude_count++] = x.peer[i]->id;
    }
    l->ask_peer = owner->index;
    core_send(c, owner, &m);
    timers_add(&c->timers, c->now + c->o.place_wait_ns, TIMER_ASK, l->handle, l->ask_seq);
}

/* The owner did not answer: it is passed over until it is heard of again. */
void place_ask_timeout(struct mesh_core *c, struct mesh_local *l, uint64_t seq)
{
    if (l->ask_seq != seq) {
        return;
    }
    l->ask_seq = 0;
    struct view_peer *p = core_peer(c, l->ask_peer);
    if (p->heard_ns <= c->now - c->o.place_wait_ns) {
        core_suspect(c, p);
    }
    if (l->first) {
        place_ask(c, l);
    }
}

void place_answered(struct mesh_core *c, const struct mesh_message *m)
{
    struct view_model *model = view_find(&c->view, m->model);
    struct mesh_local *l = model ? model->local : NULL;

    if (!l || l->ask_seq == 0 || l->ask_seq != m->seq) {
        return; /* late */
    }
    struct view_peer *at = m->instance.len ? view_peer_find(&c->view, m->instance) : NULL;
    l->holds++;
    if (m->status == MR_E_NOT_FOUND) {
        decide_here(c, l);
    } else if (m->instance.len && !at) {
        settle(c, l, NULL, MR_E_UNAVAILABLE,
               MR_STR("the instance that has the model is not known yet"));
    } else {
        settle(c, l, at, m->status ? m->status : MR_E_UNAVAILABLE, m->text);
    }
    l->holds--;
    core_local_release(c, l);
}

/* ---- the owner ---- */

static uint32_t live_copies(struct mesh_core *c, const struct mesh_local *l,
                            const struct excluded *x)
{
    uint32_t n = l->is_placed;

    for (size_t i = 0; i < l->model->copy_count; i++) {
        const struct view_copy *copy = &l->model->copies[i];
        const struct view_peer *p = core_peer(c, copy->peer);
        n += (copy->state == MESH_LOADED || copy->state == MESH_LOADING) && p != c->me &&
             core_peer_is_good(c, p) && !p->draining && !is_excluded(x, p);
    }
    return n + (l->state >= LOCAL_QUEUED && l->state <= LOCAL_LOADED && !c->is_draining &&
                !is_excluded(x, c->me));
}

bool place_keeps_state(const struct mesh_local *l)
{
    bool keeps = l->keeps_state;

    for (size_t i = 0; i < l->model->copy_count && !keeps; i++) {
        keeps = l->model->copies[i].keeps_state;
    }
    return keeps;
}

bool place_may_grow(struct mesh_core *c, const struct mesh_local *l, uint32_t loaded)
{
    const struct excluded none = {0};

    return live_copies(c, l, &none) > loaded ||
           (!place_keeps_state(l) && failures(c, l) < c->o.max_failures && !has_most(c, l, NULL) &&
            cheapest(c, l, &none));
}

bool place_is_hopeless(struct mesh_core *c, const struct mesh_local *l)
{
    const struct excluded none = {0};
    uint32_t failed = failures(c, l);
    char text[MESH_WHY_MAX];

    return live_copies(c, l, &none) == 0 &&
           (failed >= c->o.max_failures || (failed > 0 && !cheapest(c, l, &none)) ||
            never(c, l->model, text) < 0);
}

bool mesh_core_may_serve(struct mesh_core *c, mr_str id)
{
    struct view_model *m = view_find(&c->view, id);

    if (!m || m->revision == 0) {
        return false;
    }
    struct mesh_local *l = core_local(c, m);
    bool may = !place_is_hopeless(c, l);
    core_local_release(c, l);
    return may;
}

/* One at a time: whoever still wants more asks again. Whether the model keeps state, and so has one copy, shows once that is loaded. True: a
 * load begins, or may begin then. */
static bool decide_more(struct mesh_core *c, struct mesh_local *l, const struct excluded *x,
                        enum mesh_purpose purpose, uint32_t copies)
{
    uint32_t has = live_copies(c, l, x);
    bool is_loaded = l->state == LOCAL_LOADED || drain_others(c, l) > 0;
    struct decision d;

    if (has >= copies || l->is_placed || (has > 0 && place_keeps_state(l))) {
        return false;
    }
    if (has > 0 && !is_loaded && purpose == MESH_FOR_PRELOAD) {
        return true;
    }
    decide(c, l, x, true, &d);
    if (d.at) {
        send_load(c, l, d.at, purpose);
    }
    return d.at != NULL;
}

bool place_more(struct mesh_core *c, struct mesh_local *l, enum mesh_purpose purpose,
                uint32_t copies)
{
    struct view_peer *owner = core_model_owner(c, l->model, NULL);
    struct excluded x = {0};

    if (purpose == MESH_FOR_MOVE) {
        exclude(&x, c->me);
    }
    if (owner == c->me) {
        return decide_more(c, l, &x, purpose, copies);
    }
    struct mesh_message m = {
        .kind = MESH_MSG_PLACE, .model = view_id(l->model), .purpose = purpose, .copies = copies};
    if (purpose == MESH_FOR_MOVE) {
        m.exclude[m.exclude_count++] = c->o.id;
    }
    core_send(c, owner, &m);
    return false;
}

void place_asked(struct mesh_core *c, struct view_peer *from, const struct mesh_message *m)
{
    struct view_model *model = view_find(&c->view, m->model);
    struct mesh_message answer = {.kind = MESH_MSG_PLACED, .seq = m->seq, .model = m->model};
    struct excluded x = {0};
    struct decision d = {.status = MR_E_NOT_FOUND};

    for (size_t i = 0; i < m->exclude_count; i++) {
        exclude(&x, view_peer_find(&c->view, m->exclude[i]));
    }
    if (model && model->revision) {
        struct mesh_local *l = core_local(c, model);
        l->holds++;
        if (m->purpose != MESH_FOR_REQUEST) {
            decide_more(c, l, &x, m->purpose, m->copies);
        } else {
            decide(c, l, &x, false, &d);
            if (d.at && d.is_new && d.at != from) {
                send_load(c, l, d.at, MESH_FOR_REQUEST);
            }
        }
        l->holds--;
        core_local_release(c, l);
    }
    if (m->seq) {
        answer.instance = d.at ? d.at->id : (mr_str){0};
        answer.status = d.at ? MR_OK : d.status;
        answer.text = mr_str_c(d.at ? "" : d.text);
        core_send(c, from, &answer);
    }
}
