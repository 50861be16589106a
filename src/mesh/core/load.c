/* The copies of this instance: a queue of loads, room for them, what is evicted.
 *
 * Loads wait in the order in which they came, those of requests before others. None is refused because the cache is in turmoil: only a
 * queue that is full refuses. Of the capacity, `limit` is for models that are loaded or loading; the rest lets loads begin while
 * evicted models are still being unloaded. What is evicted counts as room to come, so that one load never evicts twice, and
 * loads wait until held and leaving models together fit into the capacity. */
#include "base/clock.h"
#include "core_priv.h"

#define PUMP_LOOK 16             /* loads that are looked at after one that waits for its claim */
#define LEAVE_NS  120000000000ll /* most that an unload waits for requests */

/* ---- the queue ---- */

static void queue_add(struct mesh_core *c, struct mesh_local *l, enum mesh_purpose purpose)
{
    l->purpose = purpose;
    l->queue_next = NULL;
    l->queue_prev = c->queue_last[purpose];
    if (l->queue_prev) {
        l->queue_prev->queue_next = l;
    } else {
        c->queue_first[purpose] = l;
    }
    c->queue_last[purpose] = l;
    c->queued++;
}

static void queue_remove(struct mesh_core *c, struct mesh_local *l)
{
    if (l->queue_prev) {
        l->queue_prev->queue_next = l->queue_next;
    } else {
        c->queue_first[l->purpose] = l->queue_next;
    }
    if (l->queue_next) {
        l->queue_next->queue_prev = l->queue_prev;
    } else {
        c->queue_last[l->purpose] = l->queue_prev;
    }
    c->queued--;
}

int64_t load_wait_ns(const struct mesh_core *c)
{
    double loads = (double)c->queued + c->loading;
    return (int64_t)(c->load_ns * (1 + loads / c->o.self.loaders));
}

uint32_t load_age_s(const struct mesh_core *c)
{
    /* looks only, but puts the heap in order */
    struct cache_entry *e = cache_victim(&((struct mesh_core *)(uintptr_t)c)->cache, NULL);

    const struct mesh_local *l = (const struct mesh_local *)(const void *)e;

    if (!l || (c->held * 100 < c->limit * 90 && c->held + l->units <= c->limit)) {
        return UINT32_MAX;
    }
    int64_t age_ns = c->now - l->used_ns;
    return (uint32_t)MR_MIN(age_ns / 1000000000, UINT32_MAX - 1);
}

static uint32_t predicted(const struct mesh_core *c, const struct view_model *m)
{
    uint32_t units = view_units(m);
    return units ? units : mesh_units(c->o.default_bytes);
}

static void set_failed(struct mesh_core *c, struct mesh_local *l, enum mesh_fail kind,
                       mr_str reason)
{
    mr_free(l->reason);
    l->reason = reason.len ? mr_strndup(reason.ptr, reason.len) : NULL;
    l->fail = kind;
    l->fail_until = c->now + c->o.fail_ns[kind];
    timers_add(&c->timers, l->fail_until, TIMER_FAIL, l->handle, 0);
    own_sync(c, l);
}

static bool is_pinned(const struct mesh_local *l)
{
    return l->model->pinned || l->model->min_copies > 0;
}

/* ---- what it takes ---- */

static void hold(struct mesh_core *c, const struct mesh_local *l, int sign)
{
    c->held += (uint64_t)sign * l->units;
    c->held_device += (uint64_t)sign * l->device;
}

static void leave(struct mesh_core *c, const struct mesh_local *l, int sign)
{
    c->leaving += (uint64_t)sign * l->units;
    c->leaving_device += (uint64_t)sign * l->device;
}

static bool device_is_over(const struct mesh_core *c, uint64_t units)
{
    return c->me->device && units > c->me->device;
}

static void set_evictable(struct mesh_core *c, struct mesh_local *l, bool is)
{
    if (is == (l->entry.pos != CACHE_OUT)) {
        return;
    }
    c->evictable += (uint64_t)(is ? 1 : -1) * l->units;
    c->evictable_device += (uint64_t)(is ? 1 : -1) * l->device;
    if (is) {
        double cost = l->model->load_ms ? l->model->load_ms : c->load_ns / 1e6;
        cache_insert(&c->cache, &l->entry, cost + 1, l->units);
    } else {
        cache_remove(&c->cache, &l->entry);
    }
}

/* ---- going ---- */

static void start_unload(struct mesh_core *c, struct mesh_local *l)
{
    l->state = LOCAL_UNLOADING;
    struct mesh_action *a = core_act(c, MESH_ACT_UNLOAD);
    a->id = core_text(c, view_id(l->model)); /* another definition may follow in the same event */
}

void load_evict(struct mesh_core *c, struct mesh_local *l)
{
    set_evictable(c, l, false);
    hold(c, l, -1);
    leave(c, l, 1);
    c->report.evictions++;
    if (c->o.times) {
        mr_hist_add(&c->o.times->evicted_ms, (uint64_t)(c->now - l->used_ns) / MR_NS_PER_MS);
    }
    l->state = LOCAL_LEAVING;
    l->is_moving = false;
    l->outside = 0;
    own_sync(c, l);
    if (l->running == 0) {
        start_unload(c, l);
    } else {
        l->leave_ns = c->now;
        timers_add(&c->timers, c->now + LEAVE_NS, TIMER_LEAVE, l->handle, (uint64_t)l->leave_ns);
    }
}

void load_leave_due(struct mesh_core *c, struct mesh_local *l, uint64_t check)
{
    if (l->state == LOCAL_LEAVING && (uint64_t)l->leave_ns == check) {
        start_unload(c, l);
    }
}

static bool is_busy(const struct cache_entry *e)
{
    const struct mesh_local *l = (const struct mesh_local *)(const void *)e;

    return l->running + l->outside > 0;
}

/* Of those that take device memory, what is worth least; busy ones last. */
static struct cache_entry *device_victim(struct mesh_core *c)
{
    struct cache_entry *best = NULL;

    for (size_t i = 0; i < c->cache.heap.len; i++) {
        struct cache_entry *e = c->cache.heap.at[i];
        bool takes_some = ((const struct mesh_local *)(const void *)e)->device > 0;
        bool is_less = !best || is_busy(e) < is_busy(best) ||
                       (is_busy(e) == is_busy(best) && e->heat + e->bias < best->heat + best->bias);
        if (takes_some && is_less) {
            best = e;
        }
    }
    return best;
}

/* Until that much has room, or nothing else may go. */
static void evict_for(struct mesh_core *c, uint64_t need, uint64_t device)
{
    for (;;) {
        bool is_device = device_is_over(c, c->held_device + device);
        if (!is_device && c->held + need <= c->limit) {
            return;
        }
        struct cache_entry *e = is_device ? device_victim(c) : cache_victim(&c->cache, is_busy);
        if (!e) {
            return;
        }
        load_evict(c, (struct mesh_local *)(void *)e);
    }
}

/* False: what may be evicted is not enough, and stays. */
static bool make_room(struct mesh_core *c, const struct mesh_local *l)
{
    if (c->held - c->evictable + l->units > c->limit ||
        device_is_over(c, c->held_device - c->evictable_device + l->device)) {
        return false;
    }
    evict_for(c, l->units, l->device);
    return true;
}

/* ---- coming ---- */

static void set_loaded(struct mesh_core *c, struct mesh_local *l)
{
    l->state = LOCAL_LOADED;
    l->again = false;
    if (l->entry.heat < c->cache.axis) {
        l->entry.heat = c->cache.axis; /* not the first to go again before it was used */
    }
    load_pin(c, l);
    own_sync(c, l);
}

void load_pin(struct mesh_core *c, struct mesh_local *l)
{
    if (l->state != LOCAL_LOADED) {
        return;
    }
    set_evictable(c, l, false);
    set_evictable(c, l, !is_pinned(l));
}

static bool has_other_copy(const struct mesh_core *c, const struct mesh_local *l)
{
    for (size_t i = 0; i < l->model->copy_count; i++) {
        const struct view_copy *copy = &l->model->copies[i];
        if (copy->peer != c->me->index && copy->state != MESH_FAILED &&
            core_peer_is_good(c, c->view.peers[copy->peer])) {
            return true;
        }
    }
    return false;
}

static int enqueue(struct mesh_core *c, struct mesh_local *l, enum mesh_purpose purpose)
{
    if (c->is_draining) {
        return MR_E_CLOSED;
    }
    if (l->fail_until > c->now) {
        return MR_E_INTERNAL;
    }
    if (predicted(c, l->model) > c->limit) {
        set_failed(c, l, MESH_FAIL_TOO_LARGE,
                   MR_STR("the model is larger than this instance's capacity"));
        return MR_E_TOO_LARGE;
    }
    if (device_is_over(c, view_device(l->model))) {
        set_failed(c, l, MESH_FAIL_TOO_LARGE,
                   MR_STR("the model takes more device memory than this instance has"));
        return MR_E_TOO_LARGE;
    }
    if (c->queued >= c->o.max_queue) {
        return MR_E_EXHAUSTED;
    }
    l->fail_until = 0;
    l->units = predicted(c, l->model);
    l->device = view_device(l->model);
    l->state = LOCAL_QUEUED;
    l->queued_ns = c->now;
    l->is_leased_out = l->is_moving = l->is_counted = false;
    queue_add(c, l, purpose);
    if (purpose == MESH_FOR_REQUEST && !has_other_copy(c, l)) {
        own_claim(c, l);
    } else {
        own_sync(c, l);
    }
    return MR_OK;
}

/* When what is there has gone. */
static int want_again(struct mesh_core *c, struct mesh_local *l, enum mesh_purpose purpose)
{
    if (c->is_draining) {
        return MR_E_CLOSED;
    }
    l->purpose = l->again ? MR_MIN(l->purpose, purpose) : purpose;
    l->again = true;
    return MR_OK;
}

int load_want(struct mesh_core *c, struct mesh_local *l, enum mesh_purpose purpose)
{
    if (l->is_outdated && (l->state == LOCAL_LOADING || l->state == LOCAL_LEAVING)) {
        return want_again(c, l, purpose);
    }
    switch (l->state) {
    case LOCAL_LOADING:
    case LOCAL_LOADED: return MR_OK;
    case LOCAL_QUEUED:
        if (purpose < l->purpose) {
            queue_remove(c, l);
            queue_add(c, l, purpose);
        }
        return MR_OK;
    case LOCAL_LEAVING:
        if (l->again) { /* some wait for the load that follows */
            return want_again(c, l, purpose);
        }
        leave(c, l, -1);
        hold(c, l, 1);
        set_loaded(c, l);
        evict_for(c, 0, 0);
        /* there may be nothing else to evict: then this one is evicted, and loaded again */
        return l->state == LOCAL_LOADED ? MR_OK : want_again(c, l, purpose);
    case LOCAL_UNLOADING: return want_again(c, l, purpose);
    case LOCAL_NONE: break;
    }
    return enqueue(c, l, purpose);
}

void load_drop(struct mesh_core *c, struct mesh_local *l)
{
    if (l->state == LOCAL_QUEUED) {
        queue_remove(c, l);
        l->state = LOCAL_NONE;
        own_sync(c, l);
    }
}

static bool waits_for_claim(const struct mesh_core *c, const struct mesh_local *l)
{
    return l->claim == CLAIM_SENT && c->now < l->claim_due && c->registry_is_there;
}

static struct mesh_local *next_load(struct mesh_core *c)
{
    unsigned looked = 0;

    for (int p = 0; p < MESH_PURPOSES; p++) {
        for (struct mesh_local *l = c->queue_first[p]; l && looked < PUMP_LOOK;
             l = l->queue_next, looked++) {
            if (!waits_for_claim(c, l)) {
                return l;
            }
        }
    }
    return NULL;
}

static void begin_load(struct mesh_core *c, struct mesh_local *l)
{
    queue_remove(c, l);
    l->state = LOCAL_LOADING;
    l->is_outdated = false;
    l->started_ns = c->now;
    if (c->o.times) {
        mr_hist_add(&c->o.times->queue_ns, (uint64_t)(c->now - l->queued_ns));
    }
    c->loading++;
    hold(c, l, 1);
    c->report.loads += !l->is_counted;
    l->is_counted = false;
    struct mesh_action *a = core_act(c, MESH_ACT_LOAD);
    a->id = core_text(c, view_id(l->model));
    a->type = core_text(c, view_type(l->model));
    a->path = core_text(c, view_path(l->model));
    a->key = core_text(c, view_model_key(l->model));
}

static void fail_queued(struct mesh_core *c, struct mesh_local *l, enum mesh_fail kind,
                        mr_str reason)
{
    l->holds++;
    load_drop(c, l);
    set_failed(c, l, kind, reason);
    request_not_loaded(c, l, MESH_WHY_LOAD_FAILED, reason);
    l->holds--;
    core_local_release(c, l);
}

static bool waits_for_unload(const struct mesh_core *c, const struct mesh_local *l)
{
    bool is_over = c->held + c->leaving + l->units > c->me->capacity ||
                   device_is_over(c, c->held_device + c->leaving_device + l->device);

    return is_over && c->leaving;
}

void load_pump(struct mesh_core *c)
{
    struct mesh_local *l;

    while (c->loading < c->o.self.loaders && (l = next_load(c))) {
        if (!make_room(c, l)) {
            if (c->loading || c->leaving) {
                return; /* there will be room, or it will be clear that there is none */
            }
            fail_queued(c, l, MESH_FAIL_RESOURCE,
                        MR_STR("there is no room: what is loaded may not be evicted"));
            continue;
        }
        if (waits_for_unload(c, l)) {
            return;
        }
        begin_load(c, l);
    }
}

/* ---- what the runtime says ---- */

static struct mesh_local *find(struct mesh_core *c, mr_str id)
{
    struct view_model *m = view_find(&c->view, id);
    return m ? m->local : NULL;
}

/* Loaded, and not to stay. */
static void take_back(struct mesh_core *c, struct mesh_local *l)
{
    hold(c, l, -1);
    leave(c, l, 1);
    start_unload(c, l);
    own_sync(c, l);
}

static void settle(struct mesh_core *c, struct mesh_local *l, uint64_t bytes)
{
    evict_for(c, 0, 0); /* it was larger than predicted; it is no victim yet itself */
    l->loaded_ns = l->used_ns = c->now;
    if (c->o.times) {
        mr_hist_add_size(&c->o.times->bytes, bytes ? bytes : l->units * (uint64_t)MESH_UNIT);
    }
    set_loaded(c, l);
    request_loaded(c, l);
    c->drain_is_due = c->is_draining;
}

static void keep(struct mesh_core *c, struct mesh_local *l, uint64_t bytes)
{
    int64_t took_ns = c->now - l->started_ns;

    c->load_ns += 0.2 * ((double)took_ns - c->load_ns);
    if (bytes) {
        c->held = c->held - l->units + mesh_units(bytes);
        l->units = mesh_units(bytes);
    }
    own_measured(l, (uint32_t)MR_MIN(took_ns / 1000000, UINT32_MAX));
    if (l->units > c->limit) {
        mr_str reason = MR_STR("the model is larger than this instance's capacity");
        take_back(c, l);
        set_failed(c, l, MESH_FAIL_TOO_LARGE, reason);
        request_not_loaded(c, l, MESH_WHY_LOAD_FAILED, reason);
        return;
    }
    settle(c, l, bytes);
}

void load_done(struct mesh_core *c, mr_str id, const struct mesh_loaded *what)
{
    struct mesh_local *l = find(c, id);

    if (!l || l->state != LOCAL_LOADING) {
        return;
    }
    c->loading--;
    l->holds++;
    if (l->is_outdated || !l->model->revision) {
        take_back(c, l);
    } else {
        l->keeps_state = what->keeps_state;
        l->max_running = what->max_running;
        keep(c, l, what->bytes);
    }
    l->holds--;
}

void load_found(struct mesh_core *c, struct mesh_local *l, const struct mesh_loaded *what)
{
    const uint32_t units = what->bytes ? mesh_units(what->bytes) : predicted(c, l->model);

    l->holds++;
    if (l->state == LOCAL_NONE && !c->is_draining && units <= c->limit &&
        !device_is_over(c, view_device(l->model)) && !place_forbids(c, l)) {
        l->fail_until = 0;
        l->is_outdated = l->is_leased_out = l->is_moving = l->keeps_state = false;
        l->units = units;
        l->device = view_device(l->model);
        l->max_running = what->max_running;
        hold(c, l, 1);
        settle(c, l, what->bytes);
    }
    l->holds--;
    core_local_release(c, l);
}

/* Puts a load that has begun back into the queue. */
static void requeue(struct mesh_core *c, struct mesh_local *l)
{
    c->loading--;
    l->is_counted = true;
    if (l->is_outdated) { /* the next one is of the later registration */
        l->units = predicted(c, l->model);
        l->device = view_device(l->model);
        l->again = false;
    }
    l->state = LOCAL_QUEUED;
    l->queued_ns = c->now;
    queue_add(c, l, l->purpose);
    own_sync(c, l);
}

enum mesh_room load_predicted(struct mesh_core *c, mr_str id, uint64_t bytes)
{
    struct mesh_local *l = find(c, id);
    uint32_t units = mesh_units(bytes);

    if (units > c->limit) {
        return MESH_ROOM_NEVER;
    }
    if (!l || l->state != LOCAL_LOADING || units <= l->units) {
        return MESH_ROOM_NOW;
    }
    hold(c, l, -1);
    l->units = units;
    bool has_room = make_room(c, l) && !waits_for_unload(c, l);
    if (l->model->revision && !has_room) {
        requeue(c, l);
        return MESH_ROOM_LATER;
    }
    hold(c, l, 1);
    return MESH_ROOM_NOW;
}

/* What was there has gone. */
static void load_again(struct mesh_core *c, struct mesh_local *l)
{
    if (!l->again) {
        return;
    }
    l->again = false;
    int rc = l->model->revision ? load_want(c, l, l->purpose) : MR_E_NOT_FOUND;
    if (rc < 0) {
        request_not_loaded(c, l, MESH_WHY_REFUSED, MR_STR("the model cannot be loaded again"));
    }
}

/* A runtime's text as valid UTF-8, as peers ignore records with any other. The caller frees it. */
static char *text_of(mr_str said)
{
    mr_str s = mr_str_sub(said, 0, MESH_TEXT_MAX);
    size_t len = mr_utf8_whole(s);
    char *text = mr_strndup(s.ptr, len);
    bool is_valid = mr_utf8_valid(mr_str_n(text, len));

    for (size_t i = 0; i < len && !is_valid; i++) {
        text[i] = (uint8_t)text[i] < 0x80 ? text[i] : '?';
    }
    return text;
}

void load_failed(struct mesh_core *c, mr_str id, enum mesh_fail kind, mr_str reason)
{
    struct mesh_local *l = find(c, id);

    if (!l || l->state != LOCAL_LOADING) {
        return;
    }
    c->loading--;
    hold(c, l, -1);
    l->state = LOCAL_NONE;
    l->holds++;
    if (l->is_outdated) {
        load_again(c, l);
    } else if (l->model->revision) {
        char *text = text_of(reason);
        set_failed(c, l, kind, mr_str_c(text));
        request_not_loaded(c, l, MESH_WHY_LOAD_FAILED, mr_str_c(text));
        mr_free(text);
    }
    own_sync(c, l);
    l->holds--;
    core_local_release(c, l);
}

void load_unloaded(struct mesh_core *c, mr_str id)
{
    struct mesh_local *l = find(c, id);

    if (!l || l->state != LOCAL_UNLOADING) {
        return;
    }
    leave(c, l, -1);
    l->state = LOCAL_NONE;
    l->holds++;
    load_again(c, l);
    own_sync(c, l);
    l->holds--;
    core_local_release(c, l);
}

void load_lost(struct mesh_core *c, struct mesh_local *l)
{
    if (l->state == LOCAL_LOADED) {
        set_evictable(c, l, false);
        hold(c, l, -1);
    } else if (l->state == LOCAL_LEAVING) {
        leave(c, l, -1);
    } else {
        return;
    }
    l->state = LOCAL_NONE;
    l->outside = 0;
    l->holds++;
    load_again(c, l);
    own_sync(c, l);
    l->holds--;
}

void load_unregistered(struct mesh_core *c, struct mesh_local *l)
{
    l->fail_until = 0;
    l->again = false;
    load_drop(c, l);
    if (l->state == LOCAL_LOADED) {
        load_evict(c, l);
    }
    own_sync(c, l);
}

void load_outdated(struct mesh_core *c, struct mesh_local *l)
{
    l->fail_until = 0;
    l->is_outdated = true;
    if (l->state == LOCAL_LOADED) {
        load_evict(c, l);
    } else if (l->state == LOCAL_LOADING && l->first) {
        l->again = true; /* requests wait for it */
    }
    own_sync(c, l);
}

void load_busy(struct mesh_core *c, struct mesh_local *l)
{
    l->busy_ns += (int64_t)(l->running + l->outside) * (c->now - l->busy_since);
    l->busy_since = c->now;
}

void load_use(struct mesh_core *c, struct mesh_local *l, bool is_begin)
{
    load_busy(c, l);
    if (is_begin) {
        l->running++;
        c->running++;
        l->used_ns = c->now;
        l->window_uses++;
        cache_touch(&c->cache, &l->entry);
        scale_used(c, l);
        return;
    }
    l->running--;
    c->running--;
    if (l->state == LOCAL_LEAVING && l->running == 0) {
        start_unload(c, l);
    }
}

#define TOUCHES_MAX 64 /* more of them at once change the order of nothing */

void load_used(struct mesh_core *c, struct mesh_local *l, uint32_t count, uint32_t running)
{
    if (l->state != LOCAL_LOADED) {
        return;
    }
    load_busy(c, l);
    l->outside = running;
    if (count == 0) {
        return;
    }
    l->used_ns = c->now;
    l->window_uses += count;
    for (uint32_t i = 0; i < MR_MIN(count, TOUCHES_MAX); i++) {
        cache_touch(&c->cache, &l->entry);
    }
    scale_used(c, l);
}
