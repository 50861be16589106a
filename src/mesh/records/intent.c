/* A definition is known by its revision. A registry of another epoch has lost its data, and what is in it was written again by servers: there
 * a definition is known by what it says. */
#include "intent.h"

#include "codec/pb.h"

static void put_def(struct mr_buf *b, uint32_t field, const struct mesh_def *d)
{
    struct mr_buf def;

    mr_buf_init(&def, 0);
    if (d->type.len) {
        mesh_def_put(&def, d);
        mr_pb_put_str(b, field, mr_buf_view(&def));
    }
    mr_buf_fini(&def);
}

void mesh_intent_put(struct mr_buf *b, const struct mesh_intent *i)
{
    mr_pb_put_bool(b, 1, i->is_delete);
    mr_pb_put_bool(b, 2, i->was_sent);
    mr_pb_put_u64(b, 3, (uint64_t)i->base);
    mr_pb_put_str(b, 4, i->epoch);
    put_def(b, 5, &i->def);
    put_def(b, 6, &i->was);
    if (i->v.target.len) {
        struct mr_buf v;
        mr_buf_init(&v, 0);
        mesh_vmodel_put(&v, &i->v);
        mr_pb_put_str(b, 7, mr_buf_view(&v));
        mr_buf_fini(&v);
        mr_pb_put_str(b, 8, i->was_target);
        mr_pb_put_bool(b, 9, i->force);
        mr_pb_put_str(b, 10, i->may_target);
    }
}

static int64_t revision_of(const struct mr_pb_field *f)
{
    return f->wire == MR_PB_VARINT ? (int64_t)MR_MIN(f->value, (uint64_t)INT64_MAX) : 0;
}

/* What an intent has of other records; ptr NULL: it has none. */
struct parts {
    mr_bytes def, was, v;
};

static void take_field(const struct mr_pb_field *f, struct mesh_intent *i, struct parts *p)
{
    mr_str text = mr_pb_text(f);
    mr_bytes bytes = {(const uint8_t *)text.ptr, text.len};
    bool flag = f->wire == MR_PB_VARINT && f->value;

    switch (f->number) {
    case 1: i->is_delete = flag; break;
    case 2: i->was_sent = flag; break;
    case 3: i->base = revision_of(f); break;
    case 4: i->epoch = text; break;
    case 5: p->def = bytes; break;
    case 6: p->was = bytes; break;
    case 7: p->v = bytes; break;
    case 8: i->was_target = text; break;
    case 9: i->force = flag; break;
    case 10: i->may_target = text; break;
    default: break;
    }
}

static bool read_parts(struct mesh_intent *i, const struct parts *p)
{
    if (!i->is_delete && !p->def.ptr && !p->v.ptr) {
        return false;
    }
    return (!p->def.ptr || mesh_def_get(&i->def, p->def, NULL) == MR_OK) &&
           (!p->was.ptr || mesh_def_get(&i->was, p->was, NULL) == MR_OK) &&
           (!p->v.ptr || mesh_vmodel_get(&i->v, p->v, NULL) == MR_OK);
}

int mesh_intent_get(struct mesh_intent *out, mr_bytes value, struct mr_err *err)
{
    struct mesh_intent i = {0};
    struct parts parts = {0};
    struct mr_pb_field f;
    int rc;

    while ((rc = mr_pb_next(&value, &f)) > 0) {
        take_field(&f, &i, &parts);
    }
    if (rc < 0 || !read_parts(&i, &parts)) {
        return MR_FAIL(err, MR_E_INVALID, "a change in the journal cannot be read");
    }
    *out = i;
    return MR_OK;
}

static bool is_same(const struct mesh_def *a, const struct mesh_def *b)
{
    return mr_str_eq(a->type, b->type) && mr_str_eq(a->path, b->path) && mr_str_eq(a->key, b->key);
}

enum mesh_intent_step mesh_intent_step(const struct mesh_intent *i,
                                       const struct mesh_intent_known *known)
{
    bool is_lost = !mr_str_eq(known->epoch, i->epoch);
    bool is_base = known->revision == i->base && !is_lost;

    if (known->revision == 0) {
        return i->is_delete ? MESH_INTENT_DONE : MESH_INTENT_WRITE;
    }
    if (!i->is_delete && is_same(&known->def, &i->def)) {
        return MESH_INTENT_DONE;
    }
    bool may_be = is_lost ? known->def.restored : i->was_sent;
    bool is_meant = is_base || (may_be && is_same(&known->def, &i->was));
    bool is_in_use = i->is_delete && known->def.refs > 0;
    return is_meant && !is_in_use ? MESH_INTENT_WRITE : MESH_INTENT_OUTDATED;
}

enum mesh_intent_step mesh_intent_step_vmodel(const struct mesh_intent *i,
                                              const struct mesh_vmodel *known, mr_str epoch)
{
    mr_str target = known->target;
    bool is_lost = !mr_str_eq(epoch, i->epoch);
    bool is_meant = mr_str_eq(target, i->was_target) || mr_str_eq(target, i->may_target);

    if (target.len == 0) {
        return i->is_delete ? MESH_INTENT_DONE : MESH_INTENT_WRITE;
    }
    if (i->is_delete && is_lost && !known->restored) {
        return MESH_INTENT_OUTDATED; /* set again since */
    }
    if (!i->is_delete && mr_str_eq(target, i->v.target)) {
        is_meant = true; /* another active model, or nothing to be changed */
    }
    return is_meant ? MESH_INTENT_WRITE : MESH_INTENT_OUTDATED;
}
