/* Where a request goes: to a copy, here or elsewhere; to one that is being loaded, where it waits; to the instance that the owner
 * chooses. A request that came from a peer is never sent on.
 *
 * An attempt that fails is followed by another at an instance that has not been tried for this request, as long as that is safe: nothing
 * was sent, or the request may run twice. A peer that is silent while it has a request is asked whether it lives; if it stays
 * silent, a second attempt goes elsewhere, and the first that is answered counts.
 *
 * Requests of sequences, and those of a model that keeps state, go to one copy and nowhere else, and none is tried again after it was
 * sent. */
#include "request_priv.h"

#define REFUSALS_MAX 2
#define PROBE_MAX_NS 1000000000ll
#define QUEUE_FULL   "too many requests wait for the model"

static bool needs_one(const struct mesh_req *r);
static void refused_by_queue(struct mesh_core *c, struct mesh_req *r, struct view_peer *by,
                             mr_str text);

/* ---- the waiting list of a model ---- */

void request_wait_add(struct mesh_local *l, struct mesh_req *r)
{
    r->is_waiting = true;
    r->next = NULL;
    r->prev = l->last;
    if (l->last) {
        l->last->next = r;
    } else {
        l->first = r;
    }
    l->last = r;
}

static void turn_add(const struct mesh_core *c, struct mesh_local *l, struct mesh_req *r)
{
    r->is_waiting = r->waits_for_turn = true;
    r->turn_ns = c->now;
    r->next = NULL;
    r->prev = l->turn_last;
    if (l->turn_last) {
        l->turn_last->next = r;
    } else {
        l->turn_first = r;
    }
    l->turn_last = r;
    l->turns++;
}

void request_wait_remove(struct mesh_req *r)
{
    struct mesh_local *l = r->local;

    if (!r->is_waiting) {
        return;
    }
    if (r->prev) {
        r->prev->next = r->next;
    } else {
        *(r->waits_for_turn ? &l->turn_first : &l->first) = r->next;
    }
    if (r->next) {
        r->next->prev = r->prev;
    } else {
        *(r->waits_for_turn ? &l->turn_last : &l->last) = r->prev;
    }
    l->turns -= r->waits_for_turn;
    r->is_waiting = r->waits_for_load = r->waits_for_turn = false;
}

/* ---- begin and end ---- */

static void free_req(struct mesh_core *c, struct mesh_req *r)
{
    struct mesh_local *l = r->local;

    request_wait_remove(r);
    slots_remove(&c->reqs, r->handle);
    c->request_count--;
    mr_free(r->text);
    mr_free(r);
    if (l) {
        l->holds--;
        core_local_release(c, l);
    }
}

void request_reply(struct mesh_core *c, struct mesh_req *r, int status, enum mesh_why why,
                   mr_str text, int64_t retry_ns)
{
    mr_str copy = core_text(c, text);
    mr_str id = r->local ? core_text(c, view_id(r->local->model)) : (mr_str){0};
    struct mesh_action *a = core_act(c, MESH_ACT_REPLY);

    a->request = r->handle;
    a->user = r->user;
    a->id = id;
    a->status = status;
    a->why = why;
    a->text = copy;
    a->retry_ns = retry_ns;
    free_req(c, r);
}

static bool has_attempt(const struct mesh_req *r)
{
    return r->attempt[0].is_active || r->attempt[1].is_active;
}

void request_give_up(struct mesh_core *c, struct mesh_req *r, int status, mr_str text,
                     int64_t retry_ns)
{
    if (has_attempt(r)) {
        request_wait_remove(r);
        return;
    }
    enum mesh_why why = r->is_from_peer ? MESH_WHY_REFUSED : MESH_WHY_NONE;
    if (r->status < 0 && status != MR_E_NOT_FOUND) {
        status = r->status;
    }
    if (r->refusals > 0 &&
        status != MR_E_NOT_FOUND) { /* an instance would have loaded it if it had less to do */
        status = MR_E_EXHAUSTED;
        retry_ns = MR_MAX(retry_ns, load_wait_ns(c));
    }
    request_reply(c, r, status, why, r->text ? mr_str_c(r->text) : text, retry_ns);
}

int request_fail_status(enum mesh_fail fail)
{
    switch (fail) {
    case MESH_FAIL_TRANSIENT: return MR_E_UNAVAILABLE;
    case MESH_FAIL_RESOURCE: return MR_E_EXHAUSTED;
    case MESH_FAIL_TOO_LARGE: return MR_E_TOO_LARGE;
    default: return MR_E_INTERNAL;
    }
}

/* ---- attempts ---- */

static uint64_t probe_check(const struct attempt *a, unsigned n, unsigned phase)
{
    return (uint64_t)a->sent_ns << 2 | n << 1 | phase;
}

static void start_now(struct mesh_core *c, struct mesh_req *r, struct view_peer *p, bool load_here)
{
    unsigned n = r->attempt[0].is_active;
    struct attempt *at = &r->attempt[n];
    bool waited = r->waits_for_load;

    request_wait_remove(r);
    *at = (struct attempt){p->index, true, load_here, c->now};
    p->outstanding++;
    struct mesh_action *a = core_act(c, p == c->me ? MESH_ACT_RUN : MESH_ACT_FORWARD);
    a->request = r->handle;
    a->user = r->user;
    a->attempt = n;
    a->id = view_id(r->local->model);
    a->names = c->names;
    if (p == c->me) {
        if (waited && c->o.times) {
            mr_hist_add(&c->o.times->miss_ns, (uint64_t)(c->now - r->begun_ns));
        }
        load_use(c, r->local, true);
        return;
    }
    r->attempts++;
    a->load_here = load_here;
    a->instance = p->id;
    a->address = p->address;
    const struct view_copy *copy = view_copy_at(r->local->model, p);
    a->is_plain = copy && copy->state == MESH_LOADED && !p->draining && !needs_one(r);
    timers_add(&c->timers, c->now + c->o.probe_ns, TIMER_PROBE, r->handle, probe_check(at, n, 0));
}

static bool is_full(const struct mesh_local *l)
{
    return l->max_running && l->running >= l->max_running;
}

/* A copy here that runs as many as it may has a queue. */
static void start(struct mesh_core *c, struct mesh_req *r, struct view_peer *p, bool load_here)
{
    struct mesh_local *l = r->local;

    if (p != c->me || !is_full(l)) {
        start_now(c, r, p, load_here);
    } else if (l->turns < MR_MAX(8 * l->max_running, 16)) {
        request_wait_remove(r);
        turn_add(c, l, r);
    } else {
        refused_by_queue(c, r, c->me, MR_STR(QUEUE_FULL));
    }
}

/* One has ended here, or the copy has gone. */
static void next_turn(struct mesh_core *c, struct mesh_local *l)
{
    while (l->turn_first && (l->state != LOCAL_LOADED || !is_full(l))) {
        struct mesh_req *r = l->turn_first;
        request_wait_remove(r);
        if (l->state == LOCAL_LOADED) {
            if (c->o.times) {
                mr_hist_add(&c->o.times->turn_ns, (uint64_t)(c->now - r->turn_ns));
            }
            start_now(c, r, c->me, false);
        } else {
            request_send_on(c, r);
        }
    }
}

static void stop(struct mesh_core *c, struct mesh_req *r, unsigned n)
{
    struct attempt *at = &r->attempt[n];
    struct view_peer *p = core_peer(c, at->peer);

    at->is_active = false;
    p->outstanding--;
    if (p == c->me) {
        load_use(c, r->local, false);
    }
}

static void cancel_attempt(struct mesh_core *c, struct mesh_req *r, unsigned n)
{
    if (r->attempt[n].is_active) {
        struct mesh_action *a = core_act(c, MESH_ACT_CANCEL);
        a->request = r->handle;
        a->user = r->user;
        a->attempt = n;
        stop(c, r, n);
    }
}

static uint8_t tried(const struct mesh_req *r, const struct view_peer *p)
{
    uint8_t what = 0;

    for (size_t i = 0; i < r->tried_count; i++) {
        what |= r->tried[i].peer == p->index ? r->tried[i].what : 0;
    }
    return what;
}

static void set_tried(struct mesh_req *r, const struct view_peer *p, uint8_t what)
{
    if (r->tried_count < TRIED_MAX) {
        r->tried[r->tried_count].peer = p->index;
        r->tried[r->tried_count].what = what;
        r->tried_count++;
    }
}

static void set_failure(struct mesh_req *r, int status, mr_str text)
{
    r->status = status;
    if (text.len) {
        mr_free(r->text);
        r->text = mr_strndup(text.ptr, text.len);
    }
}

void request_adopt(struct mesh_core *c, struct mesh_req *r, mr_str address)
{
    struct attempt *at = &r->attempt[0];

    for (size_t i = 0; i < c->view.peer_count; i++) {
        struct view_peer *p = c->view.peers[i];
        if (p && p != c->me && mr_str_eq(p->address, address)) {
            *at = (struct attempt){p->index, true, false, c->now};
            p->outstanding++;
            r->attempts++;
            timers_add(&c->timers, c->now, TIMER_PROBE, r->handle, probe_check(at, 0, 0));
            return;
        }
    }
    request_reply(c, r, MR_E_UNAVAILABLE, MESH_WHY_NONE,
                  MR_STR("the instance that it was sent to has left the mesh"), RETRY_NS);
}

/* ---- choice ---- */

/* Lower is better: loaded, then draining, then loading; among equals the one with the fewest of our requests. */
static uint64_t rank_of(const struct mesh_core *c, const struct view_copy *copy,
                        const struct view_peer *p)
{
    static const uint64_t by_state[] = {[MESH_LOADED] = 1, [MESH_DRAINING] = 2, [MESH_LOADING] = 3};
    uint64_t state = by_state[copy->state] + (copy->state == MESH_LOADED && p->draining);

    return state << 48 | (uint64_t)p->outstanding << 16 | (uint16_t)(p->index + c->seq);
}

static struct view_peer *best_copy(struct mesh_core *c, const struct mesh_req *r,
                                   bool may_be_silent, uint64_t *out_rank)
{
    const struct view_model *m = r->local->model;
    struct view_peer *best = NULL;

    *out_rank = UINT64_MAX;
    for (size_t i = 0; i < m->copy_count; i++) {
        struct view_peer *p = core_peer(c, m->copies[i].peer);
        bool is_usable = core_peer_is_good(c, p) || (may_be_silent && view_peer_is_there(p));
        if (p == c->me || m->copies[i].state == MESH_FAILED || !is_usable || tried(r, p)) {
            continue;
        }
        uint64_t rank = rank_of(c, &m->copies[i], p);
        if (rank < *out_rank) {
            *out_rank = rank;
            best = p;
        }
    }
    return best;
}

static bool needs_one(const struct mesh_req *r)
{
    return r->is_sequence || place_keeps_state(r->local);
}

static bool may_repeat(const struct mesh_req *r)
{
    return r->is_safe && !r->is_answering && !needs_one(r);
}

/* The copy that all requests of sequences go to: the one whose record is the oldest, whether its instance answers or not. One that this
 * instance has just loaded, or gives up, counts only if there is no other; of one that has left it the record, which may wait for the
 * registry, does not count. */
static struct view_peer *the_copy(struct mesh_core *c, const struct mesh_req *r)
{
    const struct view_model *m = r->local->model;
    struct view_peer *best = r->local->state == LOCAL_LOADED ? c->me : NULL;
    int64_t oldest = INT64_MAX;

    for (size_t i = 0; i < m->copy_count; i++) {
        struct view_peer *p = core_peer(c, m->copies[i].peer);
        bool is_loaded = m->copies[i].state == MESH_LOADED || m->copies[i].state == MESH_DRAINING;
        bool has_left = p == c->me && r->local->state != LOCAL_LOADED;
        if (is_loaded && !has_left && view_peer_is_there(p) && !(tried(r, p) & TRIED_HIT) &&
            m->copies[i].revision < oldest) {
            oldest = m->copies[i].revision;
            best = p;
        }
    }
    return best;
}

/* False: there is no copy yet. */
static bool route_to_one(struct mesh_core *c, struct mesh_req *r)
{
    struct view_peer *p = the_copy(c, r);

    if (!p) {
        return false;
    }
    if (tried(r, p)) {
        request_give_up(c, r, MR_E_UNAVAILABLE,
                        MR_STR("the instance that has its sequences cannot be reached"), RETRY_NS);
    } else {
        start(c, r, p, false);
    }
    return true;
}

#define HERE_MORE                                                                                  \
    8 /* requests that run here are preferred to a hop, up to twice as many and this many more */

static void wait_here(struct mesh_core *c, struct mesh_req *r)
{
    if (!r->is_waiting) {
        request_wait_add(r->local, r);
    }
    r->waits_for_load = true;
    load_want(c, r->local, MESH_FOR_REQUEST); /* if it was only a preload */
}

static void route_out(struct mesh_core *c, struct mesh_req *r)
{
    struct mesh_local *l = r->local;
    uint64_t rank;
    bool may_here = !tried(r, c->me);

    if (r->attempts >= c->o.max_attempts) {
        request_give_up(c, r, MR_E_UNAVAILABLE,
                        MR_STR("the model was not found where it should be"), RETRY_NS);
        return;
    }
    if (needs_one(r) && route_to_one(c, r)) {
        return;
    }
    struct view_peer *p = best_copy(c, r, false, &rank);
    bool is_loaded_there = p && rank >> 48 == 1;
    uint32_t p_outstanding = p ? p->outstanding : 0;
    bool is_busy = is_full(l) ? l->running + l->turns > p_outstanding
                              : l->running > 2 * p_outstanding + HERE_MORE;
    if (may_here && l->state == LOCAL_LOADED && (!is_loaded_there || !is_busy)) {
        start(c, r, c->me, false);
        return;
    }
    bool loads_here = may_here && (l->state == LOCAL_QUEUED || l->state == LOCAL_LOADING);
    if (p && (rank >> 48 < 3 || !loads_here)) {
        start(c, r, p, false);
        return;
    }
    c->report.missed += !r->is_missed;
    r->is_missed = true;
    if (loads_here) {
        wait_here(c, r);
    } else {
        if (!r->is_waiting) {
            request_wait_add(l, r);
        }
        r->waits_for_load = false;
        place_ask(c, l);
    }
}

/* A copy has too many that wait: another one may take it, once; no further copy is loaded for that. */
static void refused_by_queue(struct mesh_core *c, struct mesh_req *r, struct view_peer *by,
                             mr_str text)
{
    struct mesh_local *l = r->local;
    uint64_t rank;

    request_wait_remove(r);
    if (r->is_from_peer) {
        request_reply(c, r, MR_E_EXHAUSTED, MESH_WHY_REFUSED, text, RETRY_NS);
        return;
    }
    set_tried(r, by, TRIED_LOAD);
    set_failure(r, MR_E_EXHAUSTED, text);
    bool may_again = ++r->refusals < REFUSALS_MAX && !needs_one(r);
    struct view_peer *p = may_again ? best_copy(c, r, false, &rank) : NULL;
    if (p && rank >> 48 == 1) {
        start(c, r, p, false);
    } else if (may_again && l->state == LOCAL_LOADED && !tried(r, c->me)) {
        start(c, r, c->me, false);
    } else {
        request_give_up(c, r, MR_E_EXHAUSTED, text, RETRY_NS);
    }
}

static enum mesh_why why_of(int rc)
{
    return rc == MR_E_INTERNAL || rc == MR_E_TOO_LARGE ? MESH_WHY_LOAD_FAILED : MESH_WHY_REFUSED;
}

static int status_of(const struct mesh_local *l, int rc)
{
    return why_of(rc) == MESH_WHY_LOAD_FAILED ? request_fail_status(l->fail) : rc;
}

static mr_str text_of(const struct mesh_local *l, int rc)
{
    switch (rc) {
    case MR_E_EXHAUSTED: return MR_STR("too many models wait to be loaded");
    case MR_E_CLOSED: return MR_STR("the instance is draining");
    default: return l->reason ? mr_str_c(l->reason) : MR_STR("the load failed");
    }
}

static void route_in(struct mesh_core *c, struct mesh_req *r)
{
    struct mesh_local *l = r->local;
    bool is_coming = l->state == LOCAL_QUEUED || l->state == LOCAL_LOADING || l->again;

    if (l->state == LOCAL_LOADED) {
        start(c, r, c->me, false);
        return;
    }
    if (r->is_local && r->attempts >= c->o.max_attempts) {
        request_reply(c, r, MR_E_UNAVAILABLE, MESH_WHY_NONE,
                      MR_STR("the model was unloaded each time that it was loaded"), RETRY_NS);
        return;
    }
    if (!is_coming && !r->load_here) {
        request_reply(c, r, MR_E_NOT_FOUND, MESH_WHY_NOT_HERE,
                      MR_STR("the model is not loaded here"), 0);
        return;
    }
    const char *forbidden = l->state == LOCAL_NONE ? place_forbids(c, l) : NULL;
    if (forbidden) {
        request_reply(c, r, MR_E_UNAVAILABLE, MESH_WHY_REFUSED, mr_str_c(forbidden), 0);
        return;
    }
    int rc = load_want(c, l, MESH_FOR_REQUEST);
    if (rc < 0) {
        int64_t retry = rc == MR_E_EXHAUSTED ? load_wait_ns(c) : 0;
        request_reply(c, r, status_of(l, rc), why_of(rc), text_of(l, rc), retry);
    } else if (l->state == LOCAL_LOADED) {
        start(c, r, c->me, false);
    } else if (!r->is_waiting) {
        request_wait_add(l, r);
        r->waits_for_load = true;
    }
}

void request_send_on(struct mesh_core *c, struct mesh_req *r)
{
    if (r->is_from_peer) {
        route_in(c, r);
    } else if (r->is_vmodel || r->local->model->revision == 0) { /* it has gone since */
        request_give_up(c, r, MR_E_NOT_FOUND, request_none_of(r), 0);
    } else {
        route_out(c, r);
    }
}

/* ---- what wakes those that wait ---- */

/* The list may change under each step, so those that wait now are counted first. */
static size_t waiting_count(const struct mesh_local *l)
{
    size_t n = 0;

    for (const struct mesh_req *r = l->first; r; r = r->next) {
        n++;
    }
    return n;
}

void request_waiting_wake(struct mesh_core *c, struct mesh_local *l)
{
    l->holds++;
    for (size_t n = waiting_count(l); n > 0 && l->first; n--) {
        struct mesh_req *r = l->first;
        bool waits_for_load = r->waits_for_load;
        request_wait_remove(r);
        if (waits_for_load) {
            request_wait_add(l, r);
            r->waits_for_load = true;
        } else {
            request_send_on(c, r);
        }
    }
    l->holds--;
}

static void not_here(struct mesh_core *c, struct mesh_req *r, int status, enum mesh_why why,
                     mr_str text)
{
    request_wait_remove(r);
    set_failure(r, status, text);
    set_tried(r, c->me, why == MESH_WHY_LOAD_FAILED ? TRIED_FAILED : TRIED_LOAD);
    r->attempts++;
    r->refusals += status == MR_E_EXHAUSTED && why == MESH_WHY_REFUSED;
    if (r->refusals >= REFUSALS_MAX) {
        request_give_up(c, r, MR_E_EXHAUSTED, text, load_wait_ns(c));
    } else {
        request_send_on(c, r);
    }
}

void request_placed(struct mesh_core *c, struct mesh_local *l, struct view_peer *at)
{
    int rc = at == c->me ? load_want(c, l, MESH_FOR_REQUEST) : MR_OK;

    l->holds++;
    for (size_t n = waiting_count(l); n > 0 && l->first; n--) {
        struct mesh_req *r = l->first;
        if (at == c->me && rc < 0) {
            not_here(c, r, status_of(l, rc), why_of(rc), text_of(l, rc));
        } else if (at == c->me && l->state == LOCAL_LOADED) {
            start(c, r, c->me, false);
        } else if (at == c->me || r->is_local) {
            request_wait_remove(r);
            request_wait_add(l, r);
            r->waits_for_load = true;
        } else if (r->is_from_peer) {
            request_reply(c, r, MR_E_NOT_FOUND, MESH_WHY_NOT_HERE,
                          MR_STR("another instance loads the model"), 0);
        } else if (tried(r, at) & ~TRIED_HIT) {
            request_wait_remove(r); /* asked before it was refused there: it asks again */
            r->attempts++;
            request_send_on(c, r);
        } else {
            start(c, r, at, true);
        }
    }
    l->holds--;
}

/* A copy at a peer that does not answer is better than none: it may only be slow. */
static bool start_at_silent(struct mesh_core *c, struct mesh_req *r, int status)
{
    uint64_t rank;
    struct view_peer *p = NULL;

    if (status != MR_E_NOT_FOUND && !has_attempt(r) && !r->is_from_peer &&
        r->attempts < c->o.max_attempts) {
        p = best_copy(c, r, true, &rank);
    }
    if (p) {
        start(c, r, p, false);
    }
    return p != NULL;
}

void request_waiting_fail(struct mesh_core *c, struct mesh_local *l, int status, mr_str text,
                          int64_t retry_ns)
{
    l->holds++;
    while (status == MR_E_NOT_FOUND && l->turn_first) {
        struct mesh_req *r = l->turn_first;
        if (r->is_from_peer) {
            request_reply(c, r, status, MESH_WHY_NOT_HERE, text, retry_ns);
        } else {
            request_give_up(c, r, status, text, retry_ns);
        }
    }
    for (size_t n = waiting_count(l); n > 0 && l->first; n--) {
        struct mesh_req *r = l->first;
        if (r->waits_for_load && status != MR_E_NOT_FOUND) {
            request_wait_remove(r);
            request_wait_add(l, r);
            r->waits_for_load = true;
        } else if (!start_at_silent(c, r, status)) {
            request_give_up(c, r, status, text, retry_ns);
        }
    }
    l->holds--;
}

void request_loaded(struct mesh_core *c, struct mesh_local *l)
{
    l->holds++;
    while (l->first && l->state == LOCAL_LOADED) {
        start(c, l->first, c->me, false);
    }
    next_turn(c, l);
    l->holds--;
}

void request_not_loaded(struct mesh_core *c, struct mesh_local *l, enum mesh_why why, mr_str text)
{
    int status = why == MESH_WHY_LOAD_FAILED ? request_fail_status(l->fail) : MR_E_UNAVAILABLE;

    l->holds++;
    for (size_t n = waiting_count(l); n > 0 && l->first; n--) {
        struct mesh_req *r = l->first;
        if (!r->waits_for_load) {
            request_wait_remove(r);
            request_wait_add(l, r);
        } else if (r->is_from_peer) {
            request_reply(c, r, status, why, text, 0);
        } else {
            not_here(c, r, status, why, text);
        }
    }
    l->holds--;
}

/* ---- the interface ---- */

uint64_t request_begin(struct mesh_core *c, const struct mesh_ask *ask)
{
    struct mesh_req *r = MR_NEW(struct mesh_req);
    uint64_t handle = r->handle = slots_add(&c->reqs, r);

    c->request_count++;
    r->begun_ns = c->now;
    r->user = ask->user;
    r->is_from_peer = ask->is_from_peer;
    r->is_local = ask->is_local;
    r->load_here = ask->load_here;
    r->is_safe = ask->is_safe;
    c->report.asked += !ask->is_from_peer;
    r->is_sequence = ask->is_sequence;
    request_find(c, r, ask);
    return handle;
}

void request_answering(struct mesh_core *c, uint64_t handle, unsigned n)
{
    struct mesh_req *r = slots_get(&c->reqs, handle);

    if (r && n < 2 && r->attempt[n].is_active) {
        core_heard(c, core_peer(c, r->attempt[n].peer));
        r->is_answering = true;
        request_wait_remove(r);
        cancel_attempt(c, r, !n);
        next_turn(c, r->local);
    }
}

/* Whether the request may be tried elsewhere. */
static bool after_failure(struct mesh_core *c, struct mesh_req *r, struct view_peer *p,
                          bool asked_to_load, enum mesh_result result, int status, mr_str text)
{
    switch (result) {
    case MESH_NOT_HERE:
        if (p == c->me) {
            load_lost(c, r->local);
            r->attempts += 3; /* it is loaded again twice at most */
        } else {
            set_tried(r, p, asked_to_load ? TRIED_LOAD : TRIED_HIT);
        }
        return true;
    case MESH_REFUSED:
        set_tried(r, p, TRIED_LOAD);
        set_failure(r, MR_E_EXHAUSTED, text);
        return ++r->refusals < REFUSALS_MAX;
    case MESH_LOAD_FAILED:
        set_tried(r, p, TRIED_FAILED);
        set_failure(r, status, text);
        return true;
    case MESH_UNREACHABLE:
    case MESH_BROKEN:
        core_suspect(c, p);
        set_tried(r, p, TRIED_LOAD);
        return result == MESH_UNREACHABLE || may_repeat(r);
    case MESH_ENDED: break;
    }
    return false;
}

/* So that a refusal can only mean its queue. */
static bool has_loaded(const struct mesh_local *l, const struct view_peer *p)
{
    const struct view_copy *copy = view_copy_at(l->model, p);

    return copy && copy->state == MESH_LOADED;
}

void request_result(struct mesh_core *c, uint64_t handle, unsigned n, enum mesh_result result,
                    int status, mr_str text)
{
    struct mesh_req *r = slots_get(&c->reqs, handle);

    if (!r || n > 1 || !r->attempt[n].is_active) {
        return;
    }
    struct view_peer *p = core_peer(c, r->attempt[n].peer);
    if (result != MESH_UNREACHABLE && result != MESH_BROKEN) {
        core_heard(c, p);
    }
    r->local->holds++;
    struct mesh_local *l = r->local;
    stop(c, r, n);
    if (result == MESH_ENDED) {
        cancel_attempt(c, r, !n);
        free_req(c, r);
    } else if (result == MESH_REFUSED && !has_attempt(r) && has_loaded(l, p)) {
        refused_by_queue(c, r, p, text);
    } else if (after_failure(c, r, p, r->attempt[n].load_here, result, status, text)) {
        if (!has_attempt(r) && !r->is_waiting) {
            request_send_on(c, r);
        }
    } else if (result == MESH_REFUSED) {
        request_give_up(c, r, MR_E_EXHAUSTED, text, load_wait_ns(c));
    } else {
        set_failure(r, MR_E_UNAVAILABLE,
                    MR_STR("the connection to the instance that ran the request broke"));
        request_give_up(c, r, r->status, mr_str_c(r->text), 0);
    }
    next_turn(c, l);
    l->holds--;
    core_local_release(c, l);
}

void request_cancel(struct mesh_core *c, uint64_t handle)
{
    struct mesh_req *r = slots_get(&c->reqs, handle);

    if (r && !r->local) { /* the registry is asked which model it is for */
        free_req(c, r);
    } else if (r) {
        struct mesh_local *l = r->local;
        l->holds++;
        cancel_attempt(c, r, 0);
        cancel_attempt(c, r, 1);
        free_req(c, r);
        next_turn(c, l);
        l->holds--;
        core_local_release(c, l);
    }
}

static void probe_again(struct mesh_core *c, struct mesh_req *r, unsigned n, unsigned phase,
                        int64_t wait_ns)
{
    timers_add(&c->timers, c->now + wait_ns, TIMER_PROBE, r->handle,
               probe_check(&r->attempt[n], n, phase));
}

void request_probe(struct mesh_core *c, struct mesh_req *r, uint64_t check)
{
    unsigned n = check >> 1 & 1;
    unsigned phase = check & 1;
    struct attempt *a = &r->attempt[n];

    if (!a->is_active || probe_check(a, n, phase) != check) {
        return;
    }
    struct view_peer *p = core_peer(c, a->peer);
    if (p->heard_ns > c->now - c->o.probe_ns) {
        probe_again(c, r, n, 0,
                    MR_MIN(MR_MAX((c->now - a->sent_ns) / 2, c->o.probe_ns), PROBE_MAX_NS));
        return;
    }
    if (phase == 0) {
        if (p->pinged_ns <= c->now - c->o.probe_ns / 2) {
            p->pinged_ns = c->now;
            core_send(c, p, &(struct mesh_message){.kind = MESH_MSG_PING});
        }
        probe_again(c, r, n, 1, c->o.probe_ns);
        return;
    }
    core_suspect(c, p);
    if (may_repeat(r) && !r->attempt[!n].is_active && !r->is_waiting) {
        set_tried(r, p, TRIED_LOAD);
        request_send_on(c, r);
    }
    if (a->is_active) {
        probe_again(c, r, n, 0, PROBE_MAX_NS);
    }
}

void request_fini(struct mesh_core *c)
{
    for (size_t i = 0; i < c->reqs.all.len; i++) {
        struct mesh_req *r = c->reqs.all.at[i].ptr;
        if (r) {
            mr_free(r->text);
            mr_free(r);
        }
    }
}
