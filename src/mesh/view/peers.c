/* Instances in the view. A slot stays as long as the registry has a record of the instance or of one of its copies; then it may be
 * given to another. Indices are what copies refer to. */
#include "view_priv.h"

struct view_peer *view_peer_find(const struct mesh_view *v, mr_str id)
{
    return mr_map_find(&v->peers_by_id, id);
}

static void set_texts(struct view_peer *p, mr_str id, const struct mesh_instance *r)
{
    size_t len = id.len + r->address.len + r->zone.len;

    for (size_t i = 0; i < r->label_count; i++) {
        len += r->labels[i].len;
    }
    char *text = mr_alloc(len + 1);
    char *at = text;
#define TAKE(to, from)                                                                             \
    do {                                                                                           \
        memcpy(at, (from).len ? (from).ptr : "", (from).len);                                      \
        (to) = (mr_str){at, (from).len};                                                           \
        at += (from).len;                                                                          \
    } while (0)
    TAKE(p->id, id);
    TAKE(p->address, r->address);
    TAKE(p->zone, r->zone);
    for (size_t i = 0; i < r->label_count; i++) {
        TAKE(p->labels[i], r->labels[i]);
    }
#undef TAKE
    p->label_count = r->label_count;
    mr_free(p->text);
    p->text = text;
}

/* A slot that nothing refers to any more; the core has no requests there either. */
static struct view_peer *unused_slot(struct mesh_view *v)
{
    for (size_t i = 0; i < v->peer_count; i++) {
        struct view_peer *p = v->peers[i];
        if (!view_peer_is_there(p) && p->sums.all == 0 && p->outstanding == 0 &&
            p->reserved_loads == 0) {
            return p;
        }
    }
    return NULL;
}

struct view_peer *view_peer_hold(struct mesh_view *v, mr_str id)
{
    struct view_peer *p = view_peer_find(v, id);

    if (p) {
        return p;
    }
    if (v->peer_count >= VIEW_PEERS_MAX / 2 && (p = unused_slot(v))) {
        uint16_t index = p->index;
        mr_map_remove(&v->peers_by_id, p->id);
        mr_free(p->text);
        *p = (struct view_peer){.index = index};
    } else if (v->peer_count < VIEW_PEERS_MAX) {
        p = MR_NEW(struct view_peer);
        p->index = (uint16_t)v->peer_count;
        v->peers[v->peer_count++] = p;
    } else {
        return NULL;
    }
    p->age_s = UINT32_MAX;
    set_texts(p, id, &(struct mesh_instance){0});
    mr_map_put(&v->peers_by_id, id, p);
    return p;
}

void peers_apply(struct mesh_view *v, mr_str id, mr_bytes value, int64_t revision,
                 struct view_change *out)
{
    struct mesh_instance r;
    struct view_peer *p =
        mesh_instance_get(&r, value, NULL) == MR_OK ? view_peer_hold(v, id) : NULL;

    if (!p) {
        v->ignored++;
        return;
    }
    p->is_seen = true;
    if (p->revision >= revision && !v->is_reading) {
        return;
    }
    char *old = p->text; /* id may point into it */
    p->text = NULL;
    set_texts(p, id, &r);
    mr_free(old);
    if (!view_peer_is_there(p)) {
        p->is_suspect = false;
    }
    p->revision = revision;
    p->capacity = mesh_units(r.capacity_bytes);
    p->device = mesh_units(r.device_bytes);
    p->loaders = r.loaders;
    p->draining = r.draining;
    out->kind = VIEW_PEER;
    out->peer = p;
}

void peers_delete(struct mesh_view *v, mr_str id, int64_t revision, struct view_change *out)
{
    struct view_peer *p = view_peer_find(v, id);

    if (!p || !view_peer_is_there(p) || (revision && revision < p->revision)) {
        return;
    }
    p->revision = 0;
    p->in_flight = p->queued = 0;
    out->kind = VIEW_NO_PEER;
    out->peer = p;
}

void peers_unsee(struct mesh_view *v)
{
    for (size_t i = 0; i < v->peer_count; i++) {
        v->peers[i]->is_seen = false;
    }
}

bool peers_unseen(const struct mesh_view *v, struct mr_buf *key)
{
    for (size_t i = 0; i < v->peer_count; i++) {
        if (view_peer_is_there(v->peers[i]) && !v->peers[i]->is_seen) {
            mesh_key_put(key, MESH_KEY_INSTANCE, (mr_str){0}, v->peers[i]->id);
            return true;
        }
    }
    return false;
}

void peers_fini(struct mesh_view *v)
{
    for (size_t i = 0; i < v->peer_count; i++) {
        mr_free(v->peers[i]->text);
        mr_free(v->peers[i]);
    }
    mr_map_fini(&v->peers_by_id);
}
