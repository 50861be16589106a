/* Keys and values of the registry. Pure. A member of a record that has the wrong wire type is treated as unknown: it cannot come
 * from a peer, and what matters is checked after the whole record is read. */
#include "record.h"

#include "codec/pb.h"

static const char kind_letters[] = {
    [MESH_KEY_OTHER] = 0,    [MESH_KEY_MODEL] = 'm', [MESH_KEY_STAT] = 's',
    [MESH_KEY_COPY] = 'c',   [MESH_KEY_CLAIM] = 'l', [MESH_KEY_INSTANCE] = 'i',
    [MESH_KEY_VMODEL] = 'v', [MESH_KEY_EPOCH] = 'e'};

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

bool mesh_instance_id_is_valid(mr_str id)
{
    for (size_t i = 0; i < id.len; i++) {
        if (!is_plain(id.ptr[i])) {
            return false;
        }
    }
    return id.len > 0 && id.len <= MESH_INSTANCE_MAX;
}

int mesh_id_check(mr_str id, struct mr_err *err)
{
    if (id.len == 0) {
        return MR_FAIL(err, MR_E_INVALID, "the id is empty");
    }
    if (id.len > MESH_ID_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "the id has %zu bytes, more than %d", id.len,
                       MESH_ID_MAX);
    }
    for (size_t i = 0; i < id.len; i++) {
        if ((unsigned char)id.ptr[i] < 0x20 || id.ptr[i] == 0x7f) {
            return MR_FAIL(err, MR_E_INVALID, "the id has a control character");
        }
    }
    if (!mr_utf8_valid(id)) {
        return MR_FAIL(err, MR_E_INVALID, "the id is not UTF-8");
    }
    return MR_OK;
}

/* The id of an instance has no '/', that of a model may have some. */
static struct mesh_key parse_copy(mr_str rest)
{
    size_t at = rest.len;

    while (at > 0 && rest.ptr[at - 1] != '/') {
        at--;
    }
    if (at == 0) {
        return (struct mesh_key){MESH_KEY_OTHER, {0}, {0}};
    }
    return (struct mesh_key){MESH_KEY_COPY, mr_str_sub(rest, 0, at - 1),
                             mr_str_sub(rest, at, rest.len)};
}

struct mesh_key mesh_key_parse(mr_str key)
{
    struct mesh_key k = {MESH_KEY_OTHER, {0}, {0}};
    size_t root = sizeof MESH_ROOT - 1;

    if (!mr_str_starts(key, MR_STR(MESH_ROOT)) || key.len < root + 3 || key.ptr[root + 1] != '/') {
        return k;
    }
    mr_str rest = mr_str_sub(key, root + 2, key.len);
    for (unsigned kind = MESH_KEY_MODEL; kind < sizeof kind_letters; kind++) {
        if (kind_letters[kind] == key.ptr[root]) {
            k.kind = (enum mesh_key_kind)kind;
        }
    }
    if (k.kind == MESH_KEY_COPY) {
        k = parse_copy(rest);
    } else if (k.kind == MESH_KEY_INSTANCE) {
        k.instance = rest;
    } else {
        k.id = rest;
    }
    bool has_instance = k.kind == MESH_KEY_COPY || k.kind == MESH_KEY_INSTANCE;
    bool has_id = k.kind != MESH_KEY_INSTANCE;
    if ((has_instance && !mesh_instance_id_is_valid(k.instance)) ||
        (has_id && mesh_id_check(k.id, NULL) < 0)) {
        k.kind = MESH_KEY_OTHER;
    }
    return k;
}

void mesh_key_put(struct mr_buf *b, enum mesh_key_kind kind, mr_str id, mr_str instance)
{
    MR_BUF_LIT(b, MESH_ROOT);
    mr_buf_char(b, kind_letters[kind]);
    mr_buf_char(b, '/');
    if (kind == MESH_KEY_INSTANCE) {
        mr_buf_str(b, instance);
        return;
    }
    mr_buf_str(b, id);
    if (kind == MESH_KEY_COPY) {
        mr_buf_char(b, '/');
        mr_buf_str(b, instance);
    }
}

void mesh_def_put(struct mr_buf *b, const struct mesh_def *d)
{
    mr_pb_put_str(b, 1, d->type);
    mr_pb_put_str(b, 2, d->path);
    mr_pb_put_str(b, 3, d->key);
    mr_pb_put_u64(b, 4, d->size_bytes);
    mr_pb_put_u64(b, 5, d->min_copies);
    mr_pb_put_u64(b, 6, d->max_copies);
    mr_pb_put_u64(b, 7, d->refs);
    mr_pb_put_bool(b, 8, d->pinned);
    mr_pb_put_bool(b, 9, d->auto_delete);
    mr_pb_put_u64(b, 10, d->device_bytes);
    mr_pb_put_bool(b, 11, d->restored);
}

void mesh_stat_put(struct mr_buf *b, const struct mesh_stat *s)
{
    mr_pb_put_u64(b, 1, s->size_bytes);
    mr_pb_put_u64(b, 2, s->load_ms);
}

void mesh_copy_put(struct mr_buf *b, const struct mesh_copy *c)
{
    mr_pb_put_u64(b, 1, c->state);
    mr_pb_put_u64(b, 2, c->size_bytes);
    mr_pb_put_u64(b, 3, c->fail);
    mr_pb_put_str(b, 4, mr_str_sub(c->reason, 0, MESH_TEXT_MAX));
    mr_pb_put_bool(b, 5, c->keeps_state);
    mr_pb_put_u64(b, 6, c->time_ms);
}

void mesh_instance_put(struct mr_buf *b, const struct mesh_instance *i)
{
    mr_pb_put_str(b, 1, i->address);
    mr_pb_put_str(b, 2, i->zone);
    for (size_t l = 0; l < i->label_count; l++) {
        mr_pb_set_str(b, 3, i->labels[l]);
    }
    mr_pb_put_u64(b, 4, i->capacity_bytes);
    mr_pb_put_u64(b, 5, i->loaders);
    mr_pb_put_bool(b, 6, i->draining);
    mr_pb_put_u64(b, 7, i->device_bytes);
}

void mesh_vmodel_put(struct mr_buf *b, const struct mesh_vmodel *v)
{
    mr_pb_put_str(b, 1, v->active);
    mr_pb_put_str(b, 2, v->target);
    mr_pb_put_str(b, 3, v->owner);
    mr_pb_put_bool(b, 4, v->failed);
    mr_pb_put_bool(b, 5, v->restored);
}

static uint64_t number_of(const struct mr_pb_field *f)
{
    return f->wire == MR_PB_VARINT ? f->value : 0;
}

static uint32_t number32_of(const struct mr_pb_field *f)
{
    return (uint32_t)MR_MIN(number_of(f), UINT32_MAX);
}

static int ended(int rc, const char *what, bool is_valid, struct mr_err *err)
{
    if (rc < 0) {
        return MR_FAIL(err, MR_E_INVALID, "%s is no protobuf message", what);
    }
    if (!is_valid) {
        return MR_FAIL(err, MR_E_INVALID, "%s has a member beyond its limits", what);
    }
    return MR_OK;
}

static bool is_text(mr_str s)
{
    return s.len <= MESH_TEXT_MAX && mr_utf8_valid(s);
}

int mesh_def_check(const struct mesh_def *d, struct mr_err *err)
{
    const mr_str texts[] = {d->type, d->path, d->key};
    static const char *const names[] = {"type", "path", "key"};

    for (size_t i = 0; i < 3; i++) {
        if (!is_text(texts[i])) {
            return MR_FAIL(err, MR_E_INVALID, "the %s of a model must be UTF-8 of %d bytes at most",
                           names[i], MESH_TEXT_MAX);
        }
    }
    if (d->min_copies > MESH_COPIES_MAX || d->max_copies > MESH_COPIES_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "min_copies and max_copies must be 0 to %d",
                       MESH_COPIES_MAX);
    }
    if (d->max_copies && d->min_copies > d->max_copies) {
        return MR_FAIL(err, MR_E_INVALID, "min_copies is %u, more than max_copies, %u",
                       d->min_copies, d->max_copies);
    }
    return MR_OK;
}

int mesh_owner_check(mr_str owner, struct mr_err *err)
{
    return is_text(owner)
               ? MR_OK
               : MR_FAIL(err, MR_E_INVALID,
                         "the owner of a vmodel must be UTF-8 of %d bytes at most", MESH_TEXT_MAX);
}

int mesh_def_get(struct mesh_def *out, mr_bytes value, struct mr_err *err)
{
    struct mesh_def d = {0};
    struct mr_pb_field f;
    int rc;

    while ((rc = mr_pb_next(&value, &f)) > 0) {
        switch (f.number) {
        case 1: d.type = mr_pb_text(&f); break;
        case 2: d.path = mr_pb_text(&f); break;
        case 3: d.key = mr_pb_text(&f); break;
        case 4: d.size_bytes = number_of(&f); break;
        case 5: d.min_copies = number32_of(&f); break;
        case 6: d.max_copies = number32_of(&f); break;
        case 7: d.refs = number32_of(&f); break;
        case 8: d.pinned = number_of(&f) != 0; break;
        case 9: d.auto_delete = number_of(&f) != 0; break;
        case 10: d.device_bytes = number_of(&f); break;
        case 11: d.restored = number_of(&f) != 0; break;
        default: break;
        }
    }
    if ((rc = ended(rc, "the record of a model", mesh_def_check(&d, NULL) == MR_OK, err)) ==
        MR_OK) {
        *out = d;
    }
    return rc;
}

int mesh_stat_get(struct mesh_stat *out, mr_bytes value, struct mr_err *err)
{
    struct mesh_stat s = {0};
    struct mr_pb_field f;
    int rc;

    while ((rc = mr_pb_next(&value, &f)) > 0) {
        if (f.number == 1) {
            s.size_bytes = number_of(&f);
        } else if (f.number == 2) {
            s.load_ms = number32_of(&f);
        }
    }
    if ((rc = ended(rc, "the record of a model's size", true, err)) == MR_OK) {
        *out = s;
    }
    return rc;
}

int mesh_copy_get(struct mesh_copy *out, mr_bytes value, struct mr_err *err)
{
    struct mesh_copy c = {0};
    uint64_t state = 0;
    uint64_t fail = 0;
    struct mr_pb_field f;
    int rc;

    while ((rc = mr_pb_next(&value, &f)) > 0) {
        switch (f.number) {
        case 1: state = number_of(&f); break;
        case 2: c.size_bytes = number_of(&f); break;
        case 3: fail = number_of(&f); break;
        case 4: c.reason = mr_pb_text(&f); break;
        case 5: c.keeps_state = number_of(&f) != 0; break;
        case 6: c.time_ms = number_of(&f); break;
        default: break;
        }
    }
    bool is_valid = state >= MESH_LOADING && state <= MESH_FAILED && is_text(c.reason);
    if ((rc = ended(rc, "the record of a copy", is_valid, err)) == MR_OK) {
        c.state = (enum mesh_copy_state)state;
        c.fail = fail < MESH_FAIL_COUNT ? (enum mesh_fail)fail : MESH_FAIL_OTHER;
        *out = c;
    }
    return rc;
}

int mesh_instance_get(struct mesh_instance *out, mr_bytes value, struct mr_err *err)
{
    struct mesh_instance i = {0};
    bool is_valid = true;
    struct mr_pb_field f;
    int rc;

    while ((rc = mr_pb_next(&value, &f)) > 0) {
        switch (f.number) {
        case 1: i.address = mr_pb_text(&f); break;
        case 2: i.zone = mr_pb_text(&f); break;
        case 3:
            if (i.label_count == MESH_LABELS_MAX || !is_text(mr_pb_text(&f))) {
                is_valid = false;
                break;
            }
            i.labels[i.label_count++] = mr_pb_text(&f);
            break;
        case 4: i.capacity_bytes = number_of(&f); break;
        case 5: i.loaders = number32_of(&f); break;
        case 6: i.draining = number_of(&f) != 0; break;
        case 7: i.device_bytes = number_of(&f); break;
        default: break;
        }
    }
    is_valid = is_valid && is_text(i.address) && is_text(i.zone) && i.loaders > 0;
    if ((rc = ended(rc, "the record of an instance", is_valid, err)) == MR_OK) {
        *out = i;
    }
    return rc;
}

int mesh_vmodel_get(struct mesh_vmodel *out, mr_bytes value, struct mr_err *err)
{
    struct mesh_vmodel v = {0};
    struct mr_pb_field f;
    int rc;

    while ((rc = mr_pb_next(&value, &f)) > 0) {
        switch (f.number) {
        case 1: v.active = mr_pb_text(&f); break;
        case 2: v.target = mr_pb_text(&f); break;
        case 3: v.owner = mr_pb_text(&f); break;
        case 4: v.failed = number_of(&f) != 0; break;
        case 5: v.restored = number_of(&f) != 0; break;
        default: break;
        }
    }
    bool is_valid = mesh_id_check(v.active, NULL) == MR_OK &&
                    mesh_id_check(v.target, NULL) == MR_OK && is_text(v.owner);
    if ((rc = ended(rc, "the record of a vmodel", is_valid, err)) == MR_OK) {
        *out = v;
    }
    return rc;
}

static uint64_t fold(uint64_t h, mr_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        h = (h ^ (uint8_t)s.ptr[i]) * UINT64_C(0x100000001b3);
    }
    return h;
}

/* FNV-1a of both texts with a byte that neither may have in between, then mixed, as rendezvous hashing compares the upper bits. */
uint64_t mesh_hash(mr_str a, mr_str b)
{
    uint64_t h = fold(UINT64_C(0xcbf29ce484222325), a);

    h = fold((h ^ 0xff) * UINT64_C(0x100000001b3), b);
    h = (h ^ (h >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    h = (h ^ (h >> 27)) * UINT64_C(0x94d049bb133111eb);
    return h ^ (h >> 31);
}
