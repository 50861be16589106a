/* The view's table of models, and how records change it. Peers and vmodels: peers.c, vmodels.c.
 *
 * The table is open addressing over pointers with linear probing and a keyed hash (ids come from outside), at most three quarters full;
 * a removal moves those that follow back, so that there are no tombstones. */
#include "view.h"

#include <stdio.h>

#include "view_priv.h"

void view_init(struct mesh_view *v)
{
    *v = (struct mesh_view){0};
}

static size_t place_of(const struct mesh_view *v, mr_str id)
{
    size_t at = mr_hash(id) & (v->cap - 1);

    while (v->models[at] && !mr_str_eq(view_id(v->models[at]), id)) {
        at = (at + 1) & (v->cap - 1);
    }
    return at;
}

struct view_model *view_find(const struct mesh_view *v, mr_str id)
{
    return v->cap ? v->models[place_of(v, id)] : NULL;
}

static void grow(struct mesh_view *v)
{
    struct view_model **old = v->models;
    size_t old_cap = v->cap;

    v->cap = old_cap ? old_cap * 2 : 1024;
    v->models = MR_NEW_ARRAY(struct view_model *, v->cap);
    v->bytes += (v->cap - old_cap) * sizeof *v->models;
    for (size_t i = 0; i < old_cap; i++) {
        if (old[i]) {
            v->models[place_of(v, view_id(old[i]))] = old[i];
        }
    }
    mr_free(old);
}

/* What the allocator takes for a number of bytes, about. */
static uint64_t heap_bytes(size_t bytes)
{
    return (bytes + 8 + 15) / 16 * 16;
}

static void count_text(struct mesh_view *v, const struct view_model *m, int sign)
{
    size_t len = (size_t)m->id_len + m->type_len + m->path_len + m->key_len + 1;
    v->bytes += (uint64_t)sign * heap_bytes(len);
}

#define SLAB_MODELS 1023

struct view_slab {
    struct view_slab *next;
    struct view_model models[SLAB_MODELS];
};

static struct view_model *new_model(struct mesh_view *v)
{
    if (!v->unused) {
        struct view_slab *slab = MR_NEW(struct view_slab);
        slab->next = v->slabs;
        v->slabs = slab;
        v->bytes += sizeof *slab;
        for (size_t i = 0; i < SLAB_MODELS; i++) {
            slab->models[i].local = (struct mesh_local *)v->unused;
            v->unused = &slab->models[i];
        }
    }
    struct view_model *m = v->unused;
    v->unused = (struct view_model *)m->local;
    *m = (struct view_model){.heat = -1e30f};
    return m;
}

struct view_model *view_hold(struct mesh_view *v, mr_str id)
{
    struct view_model *m = view_find(v, id);

    if (m) {
        return m;
    }
    if (v->count + v->count / 3 >= v->cap) {
        grow(v);
    }
    m = new_model(v);
    m->text = mr_strndup(id.ptr, id.len);
    m->id_len = (uint16_t)id.len;
    v->models[place_of(v, id)] = m;
    v->count++;
    count_text(v, m, 1);
    return m;
}

/* Those that follow and whose place is not after the hole move into it. */
static void close_hole(struct mesh_view *v, size_t hole)
{
    size_t mask = v->cap - 1;

    for (size_t at = (hole + 1) & mask; v->models[at]; at = (at + 1) & mask) {
        size_t home = mr_hash(view_id(v->models[at])) & mask;
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            v->models[hole] = v->models[at];
            v->models[at] = NULL;
            hole = at;
        }
    }
}

static void count_copies(struct mesh_view *v, const struct view_model *m, int sign)
{
    if (m->copy_count) {
        v->bytes += (uint64_t)sign * heap_bytes(m->copy_count * sizeof *m->copies);
    }
}

void view_release(struct mesh_view *v, struct view_model **io_m)
{
    struct view_model *m = *io_m;

    *io_m = NULL;
    if (m->local || m->revision || m->copy_count || m->units_measured) {
        return;
    }
    size_t at = place_of(v, view_id(m));
    v->models[at] = NULL;
    close_hole(v, at);
    v->count--;
    count_text(v, m, -1);
    mr_free(m->text);
    m->local = (struct mesh_local *)v->unused;
    v->unused = m;
}

static bool is_loaded(const struct view_copy *c)
{
    return c->state == MESH_LOADED || c->state == MESH_DRAINING;
}

static bool has_failed(const struct view_copy *c)
{
    return c->state == MESH_FAILED;
}

/* 1 if this copy of the model is the only one of that kind. */
static size_t only(const struct view_model *m, const struct view_copy *c,
                   bool (*is_such)(const struct view_copy *c))
{
    if (!is_such(c)) {
        return 0;
    }
    for (size_t i = 0; i < m->copy_count; i++) {
        if (&m->copies[i] != c && is_such(&m->copies[i])) {
            return 0;
        }
    }
    return 1;
}

static void sum(struct mesh_view *v, const struct view_model *m, const struct view_copy *c,
                bool is_added)
{
    struct view_peer *p = v->peers[c->peer];
    bool holds = c->state != MESH_FAILED;
    uint64_t units = holds ? c->units : 0;
    uint64_t device = holds ? view_device(m) : 0;
    uint32_t one = holds;
    uint32_t loading = c->state == MESH_LOADING;

    v->loaded += is_added ? only(m, c, is_loaded) : -only(m, c, is_loaded);
    v->failed += is_added ? only(m, c, has_failed) : -only(m, c, has_failed);
    if (is_added) {
        p->sums.used += units;
        p->sums.device += device;
        p->sums.copies += one;
        p->sums.loading += loading;
        p->sums.all++;
    } else {
        p->sums.used -= units;
        p->sums.device -= device;
        p->sums.copies -= one;
        p->sums.loading -= loading;
        p->sums.all--;
    }
}

static void set_texts(struct mesh_view *v, struct view_model *m, const struct mesh_def *d)
{
    mr_str id = view_id(m);
    size_t len = id.len + d->type.len + d->path.len + d->key.len;
    uint32_t device = mesh_units(d->device_bytes);
    char *text = mr_alloc(len + (device ? sizeof device : 1));
    char *p = text;

    memcpy(p, id.ptr, id.len);
    p += id.len;
    const mr_str parts[] = {d->type, d->path, d->key};
    for (size_t i = 0; i < 3; i++) {
        memcpy(p, parts[i].len ? parts[i].ptr : "", parts[i].len);
        p += parts[i].len;
    }
    if (device) {
        memcpy(p, &device, sizeof device);
    }
    for (size_t i = 0; i < m->copy_count; i++) {
        sum(v, m, &m->copies[i], false);
    }
    count_text(v, m, -1);
    mr_free(m->text);
    m->text = text;
    m->has_device = device > 0;
    m->type_len = (uint16_t)d->type.len;
    m->path_len = (uint16_t)d->path.len;
    m->key_len = (uint16_t)d->key.len;
    count_text(v, m, 1);
    for (size_t i = 0; i < m->copy_count; i++) {
        sum(v, m, &m->copies[i], true);
    }
}

static void apply_def(struct mesh_view *v, const struct mesh_key *key, mr_bytes value,
                      int64_t revision, struct view_change *out)
{
    struct mesh_def d;

    if (mesh_def_get(&d, value, NULL) < 0) {
        v->ignored++;
        return;
    }
    struct view_model *m = view_hold(v, key->id);
    m->is_seen = true;
    if (m->revision >= revision && !v->is_reading) {
        return;
    }
    out->is_other = !mr_str_eq(view_type(m), d.type) || !mr_str_eq(view_path(m), d.path) ||
                    !mr_str_eq(view_model_key(m), d.key);
    if (out->is_other || view_device(m) != mesh_units(d.device_bytes)) {
        set_texts(v, m, &d);
    }
    m->revision = revision;
    m->is_pending = false;
    m->units_declared = mesh_units(d.size_bytes);
    m->refs = d.refs;
    v->with_minimum += (size_t)(d.min_copies > 0) - (m->min_copies > 0);
    m->min_copies = (uint8_t)d.min_copies;
    m->max_copies = (uint8_t)d.max_copies;
    m->pinned = d.pinned;
    m->auto_delete = d.auto_delete;
    m->restored = d.restored;
    out->kind = VIEW_MODEL;
    out->model = m;
}

static void delete_def(struct mesh_view *v, struct view_model *m, int64_t revision,
                       struct view_change *out)
{
    if (m->revision == 0 || (revision && revision < m->revision)) {
        return;
    }
    m->revision = 0;
    m->refs = 0;
    v->with_minimum -= m->min_copies > 0;
    m->min_copies = m->max_copies = 0;
    m->pinned = m->auto_delete = m->is_pending = false;
    m->units_declared = 0;
    out->kind = VIEW_NO_MODEL;
    view_release(v, &m);
    out->model = view_find(v, out->id);
}

static void apply_stat(struct mesh_view *v, const struct mesh_key *key, mr_bytes value)
{
    struct mesh_stat s;

    if (mesh_stat_get(&s, value, NULL) < 0) {
        v->ignored++;
        return;
    }
    struct view_model *m = view_hold(v, key->id);
    m->stat_is_seen = true;
    m->units_measured = MR_MAX(mesh_units(s.size_bytes), 1);
    m->load_ms = s.load_ms;
}

struct view_copy *view_copy_at(const struct view_model *m, const struct view_peer *p)
{
    for (size_t i = 0; i < m->copy_count; i++) {
        if (m->copies[i].peer == p->index) {
            return &m->copies[i];
        }
    }
    return NULL;
}

static void end_copy(struct view_copy *c)
{
    if (c->state == MESH_FAILED) {
        mr_free(c->failure);
    }
}

static void set_copy(struct view_copy *c, const struct mesh_copy *r)
{
    c->state = (uint8_t)r->state;
    if (r->state == MESH_FAILED) {
        c->failure = mr_alloc(sizeof *c->failure + r->reason.len + 1);
        c->failure->time_ms = r->time_ms;
        memcpy(c->failure->reason, r->reason.len ? r->reason.ptr : "", r->reason.len);
    } else {
        c->time_ms = r->time_ms;
    }
}

static struct view_copy *add_copy(struct mesh_view *v, struct view_model *m, struct view_peer *p)
{
    if (m->copy_count == VIEW_COPIES_MAX) {
        return NULL;
    }
    count_copies(v, m, -1);
    m->copies = mr_realloc_array(m->copies, m->copy_count + 1u, sizeof *m->copies);
    struct view_copy *c = &m->copies[m->copy_count++];
    count_copies(v, m, 1);
    *c = (struct view_copy){.peer = p->index};
    return c;
}

static void remove_copy(struct mesh_view *v, struct view_model *m, struct view_copy *c)
{
    count_copies(v, m, -1);
    sum(v, m, c, false);
    end_copy(c);
    size_t at = (size_t)(c - m->copies);
    memmove(c, c + 1, (m->copy_count - at - 1) * sizeof *c);
    m->copy_count--;
    if (m->copy_count == 0) {
        mr_freep(&m->copies);
    }
    count_copies(v, m, 1);
}

static void apply_copy(struct mesh_view *v, const struct mesh_key *key, mr_bytes value,
                       int64_t revision, struct view_change *out)
{
    struct mesh_copy r;
    struct view_peer *p =
        mesh_copy_get(&r, value, NULL) == MR_OK ? view_peer_hold(v, key->instance) : NULL;

    if (!p) {
        v->ignored++;
        return;
    }
    struct view_model *m = view_hold(v, key->id);
    struct view_copy *c = view_copy_at(m, p);
    if (!c && !(c = add_copy(v, m, p))) {
        v->ignored++;
        view_release(v, &m);
        return;
    }
    c->is_seen = true;
    if (c->revision >= revision && !v->is_reading) {
        return;
    }
    out->before = (enum mesh_copy_state)c->state;
    if (c->state != MESH_NO_COPY) {
        sum(v, m, c, false);
    }
    end_copy(c);
    *c = (struct view_copy){.revision = revision,
                            .units = mesh_units(r.size_bytes),
                            .peer = p->index,
                            .fail = (uint8_t)r.fail & 0x3f,
                            .keeps_state = r.keeps_state,
                            .is_seen = true};
    set_copy(c, &r);
    sum(v, m, c, true);
    out->kind = VIEW_COPY;
    out->after = r.state;
    out->model = m;
    out->peer = p;
}

static void delete_copy(struct mesh_view *v, struct view_model *m, struct view_peer *p,
                        int64_t revision, struct view_change *out)
{
    struct view_copy *c = p ? view_copy_at(m, p) : NULL;

    if (!c || (revision && revision < c->revision)) {
        return;
    }
    out->kind = VIEW_COPY;
    out->before = (enum mesh_copy_state)c->state;
    out->after = MESH_NO_COPY;
    out->peer = p;
    remove_copy(v, m, c);
    view_release(v, &m);
    out->model = view_find(v, out->id);
}

static void delete_key(struct mesh_view *v, const struct mesh_key *key, int64_t revision,
                       struct view_change *out)
{
    struct view_model *m = key->id.len ? view_find(v, key->id) : NULL;

    switch (key->kind) {
    case MESH_KEY_MODEL:
        if (m) {
            delete_def(v, m, revision, out);
        }
        break;
    case MESH_KEY_STAT:
        if (m) {
            m->units_measured = 0;
            view_release(v, &m);
        }
        break;
    case MESH_KEY_COPY:
        if (m) {
            delete_copy(v, m, view_peer_find(v, key->instance), revision, out);
        }
        break;
    case MESH_KEY_INSTANCE: peers_delete(v, key->instance, revision, out); break;
    case MESH_KEY_VMODEL: vmodels_delete(v, key->id, out); break;
    case MESH_KEY_CLAIM:
    case MESH_KEY_EPOCH:
    case MESH_KEY_OTHER: break;
    }
}

void view_apply(struct mesh_view *v, mr_str text, mr_bytes value, int64_t revision,
                struct view_change *out)
{
    struct mesh_key key = mesh_key_parse(text);
    uint64_t ignored = v->ignored;

    *out = (struct view_change){.kind = VIEW_NOTHING, .id = key.id};
    if (!value.ptr) {
        delete_key(v, &key, revision, out);
        return;
    }
    switch (key.kind) {
    case MESH_KEY_MODEL: apply_def(v, &key, value, revision, out); break;
    case MESH_KEY_STAT: apply_stat(v, &key, value); break;
    case MESH_KEY_COPY: apply_copy(v, &key, value, revision, out); break;
    case MESH_KEY_INSTANCE: peers_apply(v, key.instance, value, revision, out); break;
    case MESH_KEY_VMODEL: vmodels_apply(v, key.id, value, revision, out); break;
    case MESH_KEY_CLAIM:
    case MESH_KEY_EPOCH: break;
    case MESH_KEY_OTHER: v->ignored++; break;
    }
    if (v->ignored > ignored) {
        snprintf(v->ignored_key, sizeof v->ignored_key, "%.*s", MR_STR_ARG(text));
    }
}

void view_read_begin(struct mesh_view *v)
{
    v->is_reading = true;
    v->sweep_at = 0;
    for (size_t i = 0; i < v->cap; i++) {
        struct view_model *m = v->models[i];
        if (!m) {
            continue;
        }
        m->is_seen = m->stat_is_seen = false;
        for (size_t c = 0; c < m->copy_count; c++) {
            m->copies[c].is_seen = false;
        }
    }
    peers_unsee(v);
    vmodels_unsee(v);
}

/* Puts the key of one record of m that the reading has not seen. */
static bool unseen_key(const struct mesh_view *v, const struct view_model *m, struct mr_buf *key)
{
    for (size_t c = 0; c < m->copy_count; c++) {
        if (!m->copies[c].is_seen) {
            mesh_key_put(key, MESH_KEY_COPY, view_id(m), v->peers[m->copies[c].peer]->id);
            return true;
        }
    }
    if (m->revision && !m->is_seen) {
        mesh_key_put(key, MESH_KEY_MODEL, view_id(m), (mr_str){0});
        return true;
    }
    if (m->units_measured && !m->stat_is_seen) {
        mesh_key_put(key, MESH_KEY_STAT, view_id(m), (mr_str){0});
        return true;
    }
    return false;
}

/* A removal may move a later model into the place that was just looked at, so the place is looked at again. */
bool view_sweep(struct mesh_view *v, struct mr_buf *key, struct view_change *out)
{
    mr_buf_reset(key);
    bool found = peers_unseen(v, key) || vmodels_unseen(v, key);
    while (!found && v->sweep_at < v->cap) {
        struct view_model *m = v->models[v->sweep_at];
        found = m && unseen_key(v, m, key);
        if (!found) {
            v->sweep_at++;
        }
    }
    if (!found) {
        v->is_reading = false;
        return false;
    }
    view_apply(v, mr_buf_view(key), (mr_bytes){0}, 0, out);
    return true;
}

static void free_model(struct mesh_view *v, struct view_model *m)
{
    for (size_t c = 0; c < m->copy_count; c++) {
        sum(v, m, &m->copies[c], false);
        end_copy(&m->copies[c]);
    }
    mr_free(m->copies);
    mr_free(m->text);
}

void view_fini(struct mesh_view *v)
{
    for (size_t i = 0; i < v->cap; i++) {
        if (v->models[i]) {
            MR_ASSERT(!v->models[i]->local);
            free_model(v, v->models[i]);
        }
    }
    mr_free(v->models);
    for (struct view_slab *next; v->slabs; v->slabs = next) {
        next = v->slabs->next;
        mr_free(v->slabs);
    }
    peers_fini(v);
    vmodels_fini(v);
    *v = (struct mesh_view){0};
}
