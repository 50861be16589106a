/* The records of this instance: what they are to be follows from its state, and what differs from what was written last is written again.
 * While the registry cannot be reached the differences wait, so no journal is needed, and nothing is written twice.
 *
 * Records of several models travel in one transaction. Only a claim compares: each record has one writer. */
#include "base/clock.h"
#include "core_priv.h"

#define WRITES_MAX 8 /* transactions under way */
#define PAUSE_NS   200000000ll
#define ITEMS_MAX  (sizeof((struct own_write *)0)->item / sizeof *((struct own_write *)0)->item)

static enum mesh_copy_state wanted(const struct mesh_core *c, const struct mesh_local *l)
{
    switch (l->state) {
    case LOCAL_QUEUED:
    case LOCAL_LOADING: return MESH_LOADING;
    case LOCAL_LOADED:
        if (l->is_leased_out) {
            return MESH_NO_COPY;
        }
        return c->is_draining && l->is_moving ? MESH_DRAINING : MESH_LOADED;
    case LOCAL_LEAVING:
    case LOCAL_UNLOADING: return MESH_NO_COPY;
    case LOCAL_NONE: break;
    }
    return l->fail_until ? MESH_FAILED : MESH_NO_COPY;
}

static void note_state(const struct mesh_core *c, struct mesh_local *l)
{
    enum mesh_copy_state now = wanted(c, l);

    if (now != l->in_state) {
        l->in_state = now;
        l->since_ms = c->o.wall_ns ? (uint64_t)(c->o.wall_ns() / MR_NS_PER_MS) : 0;
    }
}

/* The model may have gone since, or others have. */
static bool has_stat(const struct mesh_local *l)
{
    return l->stat_is_due && l->model->revision && l->model->units_measured;
}

static bool differs(const struct mesh_core *c, const struct mesh_local *l)
{
    enum mesh_copy_state want = wanted(c, l);

    return l->have_is_unknown || want != l->have || has_stat(l) ||
           (want == MESH_LOADED && l->have_units != l->units);
}

void own_sync(struct mesh_core *c, struct mesh_local *l)
{
    note_state(c, l);
    if (!l->is_dirty && l->claim != CLAIM_SENT && differs(c, l)) {
        l->is_dirty = true;
        l->dirty_next = c->dirty;
        c->dirty = l;
    }
}

static mr_bytes bytes_of(struct mesh_core *c, struct mr_buf *b)
{
    mr_str s = core_text(c, mr_buf_view(b));

    mr_buf_fini(b);
    return (mr_bytes){(const uint8_t *)s.ptr, s.len};
}

static struct mesh_op copy_op(struct mesh_core *c, struct mesh_local *l, enum mesh_copy_state state)
{
    note_state(c, l);
    struct mesh_op op = {.kind = MESH_OP_DELETE,
                         .key = core_key(c, MESH_KEY_COPY, view_id(l->model), c->o.id)};
    if (state != MESH_NO_COPY) {
        struct mr_buf b;
        struct mesh_copy r = {.state = state,
                              .size_bytes = (uint64_t)l->units * MESH_UNIT,
                              .fail = l->fail,
                              .keeps_state = l->keeps_state,
                              .time_ms = l->since_ms,
                              .reason = state == MESH_FAILED ? mr_str_c(l->reason) : (mr_str){0}};
        mr_buf_init(&b, 0);
        mesh_copy_put(&b, &r);
        op.kind = MESH_OP_PUT;
        op.value = bytes_of(c, &b);
        op.is_leased = true;
    }
    return op;
}

static struct mesh_op stat_op(struct mesh_core *c, const struct view_model *m)
{
    struct mr_buf b;

    mr_buf_init(&b, 0);
    mesh_stat_put(&b, &(struct mesh_stat){(uint64_t)m->units_measured * MESH_UNIT, m->load_ms});
    return (struct mesh_op){.kind = MESH_OP_PUT,
                            .key = core_key(c, MESH_KEY_STAT, view_id(m), (mr_str){0}),
                            .value = bytes_of(c, &b)};
}

static struct own_write *new_write(struct mesh_core *c)
{
    struct own_write *w = MR_NEW(struct own_write);

    w->token = ++c->seq;
    MR_VEC_PUSH(&c->writes, w);
    return w;
}

static void add_item(struct own_write *w, struct mesh_local *l, enum mesh_copy_state state)
{
    w->item[w->count].local = l;
    w->item[w->count].state = state;
    w->item[w->count].units = l->units;
    w->item[w->count].frees_claim = w->item[w->count].has_stat = false;
    w->count++;
    l->is_writing = true;
}

void own_claim(struct mesh_core *c, struct mesh_local *l)
{
    struct mesh_compare *compare = MR_ARENA_NEW(&c->arena, struct mesh_compare);
    struct mesh_op *ops = MR_ARENA_ARRAY(&c->arena, struct mesh_op, 3);

    if (!c->has_lease || !c->registry_is_there || l->is_writing || !compare || !ops) {
        own_sync(c, l);
        return;
    }
    mr_str claim = core_key(c, MESH_KEY_CLAIM, view_id(l->model), (mr_str){0});
    compare->key = claim;
    ops[0] = (struct mesh_op){.kind = MESH_OP_PUT,
                              .key = claim,
                              .value = {(const uint8_t *)c->o.id.ptr, c->o.id.len},
                              .is_leased = true};
    ops[1] = copy_op(c, l, MESH_LOADING);
    ops[2] = (struct mesh_op){.kind = MESH_OP_GET, .key = claim};
    struct own_write *w = new_write(c);
    w->is_claim = true;
    add_item(w, l, MESH_LOADING);
    l->claim = CLAIM_SENT;
    l->claim_due = c->now + c->o.claim_wait_ns;
    timers_add(&c->timers, l->claim_due, TIMER_CLAIM, l->handle, 0);
    struct mesh_action *a = core_act(c, MESH_ACT_TXN);
    a->token = w->token;
    a->compares = compare;
    a->compare_count = 1;
    a->then = ops;
    a->then_count = 2;
    a->otherwise = ops + 2;
    a->otherwise_count = 1;
}

static void write_self(struct mesh_core *c)
{
    struct mesh_op *op = MR_ARENA_NEW(&c->arena, struct mesh_op);
    struct mr_buf b;

    if (!op) {
        return;
    }
    mr_buf_init(&b, 0);
    struct mesh_instance self = c->o.self;
    self.draining = c->is_draining;
    mesh_instance_put(&b, &self);
    *op = (struct mesh_op){.kind = MESH_OP_PUT,
                           .key = core_key(c, MESH_KEY_INSTANCE, (mr_str){0}, c->o.id),
                           .value = bytes_of(c, &b),
                           .is_leased = true};
    c->self_is_written = true;
    c->self_is_writing = true;
    c->self_token = ++c->seq;
    struct mesh_action *a = core_act(c, MESH_ACT_TXN);
    a->token = c->self_token;
    a->then = op;
    a->then_count = 1;
}

/* Takes dirty copies into a transaction; those with a write under way are looked at again when that ends. */
static void write_some(struct mesh_core *c)
{
    struct mesh_op *ops = MR_ARENA_ARRAY(&c->arena, struct mesh_op, 3 * ITEMS_MAX);
    struct own_write *w = NULL;
    size_t count = 0;

    while (ops && c->dirty && (!w || w->count < ITEMS_MAX)) {
        struct mesh_local *l = c->dirty;
        c->dirty = l->dirty_next;
        l->is_dirty = false;
        if (l->is_writing || !differs(c, l)) {
            core_local_release(c, l);
            continue;
        }
        enum mesh_copy_state state = wanted(c, l);
        w = w ? w : new_write(c);
        ops[count++] = copy_op(c, l, state);
        add_item(w, l, state);
        if (l->claim == CLAIM_HELD && state != MESH_LOADING) {
            mr_str claim = core_key(c, MESH_KEY_CLAIM, view_id(l->model), (mr_str){0});
            ops[count++] = (struct mesh_op){.kind = MESH_OP_DELETE, .key = claim};
            l->claim = CLAIM_NONE;
            w->item[w->count - 1].frees_claim = true;
        }
        if (has_stat(l)) {
            ops[count++] = stat_op(c, l->model);
            w->item[w->count - 1].has_stat = true;
        }
        l->stat_is_due = false;
    }
    if (w) {
        struct mesh_action *a = core_act(c, MESH_ACT_TXN);
        a->token = w->token;
        a->then = ops;
        a->then_count = count;
    }
}

void own_flush(struct mesh_core *c)
{
    if (!c->is_read || !c->has_lease || !c->registry_is_there || c->write_pause > c->now) {
        return;
    }
    if (!c->self_is_written && !c->self_is_writing) {
        write_self(c);
    }
    while (c->dirty && c->writes.len < WRITES_MAX) {
        write_some(c);
    }
}

static bool is_for_this_process(const struct mesh_local *l)
{
    const struct mesh_req *r = l->first;

    while (r && !r->is_local) {
        r = r->next;
    }
    return r != NULL;
}

/* Another instance holds the claim. A load that has not begun is dropped, and its requests go to that instance. */
static void claim_lost(struct mesh_core *c, struct mesh_local *l, mr_bytes holder)
{
    struct view_peer *p = view_peer_find(&c->view, mr_str_n((const char *)holder.ptr, holder.len));
    const struct view_copy *copy = p ? view_copy_at(l->model, p) : NULL;
    bool will_load = p && p != c->me && core_peer_is_good(c, p) && !p->draining &&
                     !(copy && copy->state == MESH_FAILED);

    l->have_is_unknown = false;
    l->claim = p && p == c->me ? CLAIM_HELD : CLAIM_NONE; /* an earlier one whose answer was lost */
    if (l->state != LOCAL_QUEUED || !will_load || is_for_this_process(l)) {
        return; /* it goes on without one, as one more copy */
    }
    load_drop(c, l);
    request_placed(c, l, p);
}

static void item_written(struct mesh_core *c, const struct own_write *w, size_t i, int status,
                         bool succeeded, mr_bytes value)
{
    struct mesh_local *l = w->item[i].local;

    l->is_writing = false;
    if (status == MR_OK && succeeded) {
        l->have = w->item[i].state;
        l->have_units = w->item[i].units;
        l->have_is_unknown = false;
    } else if (status < 0) {
        l->have_is_unknown = true;
        l->stat_is_due |= w->item[i].has_stat;
    }
    /* Without an answer the claim may have been written, or not deleted: it counts as held. */
    bool is_unsure = status < 0 && status != MR_E_NOT_FOUND;
    if (w->item[i].frees_claim && is_unsure) {
        l->claim = CLAIM_HELD;
    }
    if (w->is_claim) {
        l->claim = is_unsure || (status == MR_OK && succeeded) ? CLAIM_HELD : CLAIM_NONE;
        if (status == MR_OK && !succeeded) {
            claim_lost(c, l, value);
        }
    }
    own_sync(c, l);
    core_local_release(c, l);
}

void own_written(struct mesh_core *c, uint64_t token, int status, bool succeeded, mr_bytes value)
{
    if (status < 0) {
        c->write_pause = c->now + PAUSE_NS;
        timers_add(&c->timers, c->write_pause, TIMER_WRITE, 0, 0);
    }
    if (status == MR_E_NOT_FOUND) {
        c->has_lease = false; /* it has ended; the driver gets another */
    }
    if (token == c->self_token) {
        c->self_is_writing = false;
        c->self_is_written = c->self_is_written && status == MR_OK;
        return;
    }
    for (size_t n = 0; n < c->writes.len; n++) {
        struct own_write *w = c->writes.at[n];
        if (w->token != token) {
            continue;
        }
        c->writes.at[n] = c->writes.at[--c->writes.len];
        for (size_t i = 0; i < w->count; i++) {
            item_written(c, w, i, status, succeeded, value);
        }
        mr_free(w);
        return;
    }
}

void own_again(struct mesh_core *c)
{
    c->self_is_written = false;
    for (struct mesh_local *l = c->first_local; l; l = l->next) {
        if (l->have != MESH_NO_COPY || l->is_writing) {
            l->have_is_unknown = true;
            l->claim = l->claim == CLAIM_HELD ? CLAIM_NONE : l->claim;
            own_sync(c, l);
        }
    }
}

/* Written when something is new: the first time, or a tenth apart. */
void own_measured(struct mesh_local *l, uint32_t load_ms)
{
    struct view_model *m = l->model;
    double known = m->units_measured;
    double now = l->units;

    if (known > 0 && now > known * 0.9 && now < known * 1.1) {
        return;
    }
    m->units_measured = MR_MAX(l->units, 1);
    m->load_ms = load_ms;
    l->stat_is_due = true;
}

void own_fini(struct mesh_core *c)
{
    for (size_t i = 0; i < c->writes.len; i++) {
        mr_free(c->writes.at[i]);
    }
    MR_VEC_FINI(&c->writes);
}
