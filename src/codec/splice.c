/* Two passes: the first finds the chain of fields that leads to the string, or as far towards it as there are fields; the second puts new
 * lengths, and the string, between the parts of the message that stay. */
#include "codec/splice.h"

#include "base/mem.h"
#include "codec/pb.h"

/* A field on the way. */
struct link {
    const uint8_t *len; /* its length as sent, after the tag */
    mr_bytes payload;
};

struct chain {
    struct link at[MR_SPLICE_DEPTH_MAX];
    unsigned depth;
};

struct search {
    const struct mr_splice_path *path;
    struct chain here, best;
    uint32_t left; /* fields that may still be read */
};

/* Keeps the deepest chain; of equals the last. */
static void keep(struct search *s, unsigned depth)
{
    if (depth >= s->best.depth) {
        s->best = s->here;
        s->best.depth = depth;
    }
}

/* The length of a field that was read begins after its tag. */
static const uint8_t *behind_tag(mr_bytes field)
{
    uint64_t tag;

    mr_pb_varint(&field, &tag);
    return field.ptr;
}

static int search(struct search *s, mr_bytes message, unsigned level, struct mr_err *err)
{
    mr_bytes rest = message, field = rest;
    struct mr_pb_field f;
    int rc;

    while ((rc = mr_pb_next(&rest, &f)) > 0) {
        if (s->left-- == 0) {
            return MR_FAIL(err, MR_E_INVALID, "the message has more than %d fields",
                           MR_SPLICE_FIELDS_MAX);
        }
        if (f.number == s->path->field[level] && f.wire == MR_PB_LEN) {
            s->here.at[level] = (struct link){behind_tag(field), f.bytes};
            keep(s, level + 1);
            if (level + 1 < s->path->depth) { /* as deep as the path */
                MR_TRY(search(s, f.bytes, level + 1, err));
            }
        }
        field = rest;
    }
    if (rc < 0) {
        return MR_FAIL(err, MR_E_INVALID, "the message is not valid protobuf");
    }
out:
    return rc;
}

static int find_chain(struct search *s, mr_bytes message, const struct mr_splice_path *path,
                      struct mr_err *err)
{
    *s = (struct search){.path = path, .left = MR_SPLICE_FIELDS_MAX};
    return search(s, message, 0, err);
}

int mr_splice_find(mr_bytes message, const struct mr_splice_path *path, mr_str *out,
                   struct mr_err *err)
{
    struct search s;
    int rc;

    MR_TRY(find_chain(&s, message, path, err));
    if (s.best.depth == path->depth) {
        mr_bytes found = s.best.at[path->depth - 1].payload;
        *out = mr_str_n((const char *)found.ptr, found.len);
        rc = 1;
    }
out:
    return rc;
}

/* ---- put ---- */

static void add(struct mr_splice *out, const uint8_t *from, size_t len)
{
    if (len > 0) {
        out->pieces[out->count++] = (mr_bytes){from, len};
        out->len += len;
    }
}

/* Where the next byte of out->text goes; what is added becomes a piece by add_text. */
static uint8_t *put_varint(uint8_t *to, uint64_t v)
{
    for (; v >= 0x80; v >>= 7) {
        *to++ = (uint8_t)(v | 0x80);
    }
    *to++ = (uint8_t)v;
    return to;
}

struct plan {
    size_t inner[MR_SPLICE_DEPTH_MAX]; /* new lengths of the payloads on the path */
};

/* From the inside out: those that are not there first, then those that change. */
static struct plan plan_of(const struct search *s, size_t string_len)
{
    const struct mr_splice_path *path = s->path;
    unsigned have = s->best.depth;
    struct plan p;
    size_t more; /* that the payload around has in addition; wraps if it has less */

    p.inner[path->depth - 1] = string_len;
    for (unsigned k = path->depth - 1; k > have; k--) {
        p.inner[k - 1] = mr_pb_len_size(path->field[k], p.inner[k]);
    }
    more = have < path->depth ? mr_pb_len_size(path->field[have], p.inner[have]) : 0;
    for (unsigned k = have; k > 0; k--) {
        const struct link *l = &s->best.at[k - 1];
        bool is_string = k == path->depth;
        p.inner[k - 1] = is_string ? string_len : l->payload.len + more;
        more = p.inner[k - 1] + mr_pb_varint_size(p.inner[k - 1]) - l->payload.len -
               (size_t)(l->payload.ptr - l->len);
    }
    return p;
}

int mr_splice_put(mr_bytes message, const struct mr_splice_path *path, mr_str string,
                  struct mr_splice *out, struct mr_err *err)
{
    const uint8_t *end = message.ptr ? message.ptr + message.len : NULL, *at = message.ptr;
    uint8_t *text = out->text;
    struct search s;
    int rc;

    MR_TRY(find_chain(&s, message, path, err));
    struct plan p = plan_of(&s, string.len);
    out->count = out->len = 0;
    for (unsigned k = 0; k < s.best.depth; k++) {
        const struct link *l = &s.best.at[k];
        uint8_t *from = text;
        add(out, at, (size_t)(l->len - at));
        text = put_varint(text, p.inner[k]);
        add(out, from, (size_t)(text - from));
        at = l->payload.ptr;
    }
    mr_bytes last = s.best.depth ? s.best.at[s.best.depth - 1].payload : message;
    uint8_t *from = text;
    if (s.best.depth < path->depth) {
        add(out, at, last.len);
    }
    for (unsigned k = s.best.depth; k < path->depth; k++) {
        text = put_varint(text, (uint64_t)path->field[k] << 3 | MR_PB_LEN);
        text = put_varint(text, p.inner[k]);
    }
    add(out, from, (size_t)(text - from));
    add(out, (const uint8_t *)string.ptr, string.len);
    if (end) {
        at = last.ptr + last.len;
        add(out, at, (size_t)(end - at));
    }
out:
    return rc;
}
