/* Parquet files of our own writer joined: what lies between head and footer is copied as it is, and the new footer
 * describes all row groups, with their offsets moved by what lies before them now.
 *
 * Of a footer this reads what the writer writes (parquet_footer.c). Anything else, in a file of another program or a
 * damaged one, is an error, as it might be an offset that would have to be moved.
 * Source: apache/parquet-format, parquet.thrift; thrift/doc/specs/thrift-compact-protocol.md. */
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "merge_parts.h"
#include "parquet_thrift.h"

#define MAGIC      "PAR1"
#define HEAD_BYTES 4
#define TAIL_BYTES 8 /* length of the footer, magic */
#define DEPTH_MOST 16
#define CREATED_BY "millrace "

/* ---- the compact protocol, read ---- */

enum { TRUE_ = 1, FALSE_, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT };

struct in {
    const uint8_t *at;
    const uint8_t *end;
    bool failed;
};

static uint8_t byte_read(struct in *in)
{
    in->failed |= in->at == in->end;
    return in->failed ? 0 : *in->at++;
}

static uint64_t varint_read(struct in *in)
{
    uint64_t v = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        const uint8_t b = byte_read(in);
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) {
            return v;
        }
    }
    in->failed = true;
    return 0;
}

static int64_t zigzag_read(struct in *in)
{
    const uint64_t v = varint_read(in);
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

static void bytes_skip(struct in *in, uint64_t n)
{
    in->failed |= n > (uint64_t)(in->end - in->at);
    in->at += in->failed ? 0 : n;
}

/* An element takes a byte at least, so that their number is bounded by what is there. */
static uint64_t list_read(struct in *in, int *out_type)
{
    const uint8_t head = byte_read(in);
    const uint64_t count = head >> 4 == 15 ? varint_read(in) : head >> 4;

    in->failed |= count > (uint64_t)(in->end - in->at);
    *out_type = head & 15;
    return in->failed ? 0 : count;
}

struct field {
    int16_t id;
    int type;
    mr_bytes value;
};

static bool field_read(struct in *in, int16_t *io_id, struct field *out, int depth);

static void value_skip(struct in *in, int type, bool is_element, int depth)
{
    struct field f;
    int16_t id = 0;
    int of;

    switch (depth < DEPTH_MOST ? type : 0) {
    case TRUE_:
    case FALSE_: bytes_skip(in, is_element); break;
    case BYTE: bytes_skip(in, 1); break;
    case I16:
    case I32:
    case I64: varint_read(in); break;
    case DOUBLE: bytes_skip(in, 8); break;
    case BINARY: bytes_skip(in, varint_read(in)); break;
    case LIST:
    case SET:
        for (uint64_t n = list_read(in, &of); n > 0 && !in->failed; n--) {
            value_skip(in, of, true, depth + 1);
        }
        break;
    case STRUCT:
        while (field_read(in, &id, &f, depth + 1)) {
        }
        break;
    default: in->failed = true; /* a map, which Parquet has none of */
    }
}

/* The next field of a struct; false: there is none, or in->failed. */
static bool field_read(struct in *in, int16_t *io_id, struct field *out, int depth)
{
    const uint8_t head = byte_read(in);

    if (in->failed || head == 0) {
        return false;
    }
    *io_id = (int16_t)(head >> 4 ? *io_id + (head >> 4) : zigzag_read(in));
    out->id = *io_id;
    out->type = head & 15;
    out->value.ptr = in->at;
    value_skip(in, out->type, false, depth);
    out->value.len = (size_t)(in->at - out->value.ptr);
    return !in->failed;
}

static struct in inside(const struct field *f)
{
    return (struct in){f->value.ptr, f->value.ptr + f->value.len, false};
}

static int64_t number_of(const struct field *f, struct in *parent)
{
    struct in in = inside(f);

    parent->failed |= f->type != I16 && f->type != I32 && f->type != I64;
    return parent->failed ? 0 : zigzag_read(&in);
}

/* ---- row groups, moved ---- */

struct merge {
    struct mr_buf groups;
    uint64_t group_count;
    uint64_t rows;
    uint64_t at; /* where the next part's bytes come in the new file */
};

/* What a part's offsets are moved by, and what they are within. */
struct move {
    uint64_t shift;
    uint64_t end; /* of the data in the old file */
};

static void field_copy(struct parquet_thrift *t, const struct field *f)
{
    parquet_thrift_raw(t, f->id, f->type, f->value.ptr, f->value.len);
}

static void offset_move(struct parquet_thrift *t, const struct field *f, struct in *in,
                        const struct move *m)
{
    const int64_t at = number_of(f, in);

    in->failed |= at < HEAD_BYTES || (uint64_t)at > m->end;
    parquet_thrift_i64(t, f->id, at + (int64_t)m->shift);
}

static void chunk_data_move(struct parquet_thrift *t, const struct field *data, struct in *parent,
                            const struct move *m)
{
    struct in in = inside(data);
    struct field f;
    int16_t id = 0;

    in.failed |= data->type != STRUCT;
    parquet_thrift_begin(t, data->id);
    while (field_read(&in, &id, &f, 0)) {
        if (f.id == 9) {
            offset_move(t, &f, &in, m);
        } else {
            /* Type, encodings, path, codec, counts and sizes, statistics. */
            in.failed |= (f.id < 1 || f.id > 7) && f.id != 12;
            field_copy(t, &f);
        }
    }
    parquet_thrift_end(t);
    parent->failed |= in.failed;
}

static void chunk_move(struct parquet_thrift *t, struct in *in, const struct move *m)
{
    struct field f;
    int16_t id = 0;

    parquet_thrift_element(t);
    while (field_read(in, &id, &f, 0)) {
        if (f.id == 3) {
            chunk_data_move(t, &f, in, m);
        } else {
            in->failed |= f.id != 2 || number_of(&f, in) != 0;
            field_copy(t, &f);
        }
    }
    parquet_thrift_end(t);
}

static void chunks_move(struct parquet_thrift *t, const struct field *chunks, struct in *parent,
                        const struct move *m)
{
    struct in in = inside(chunks);
    int type = 0;
    const uint64_t count = chunks->type == LIST ? list_read(&in, &type) : 0;

    in.failed |= type != STRUCT;
    parquet_thrift_list(t, chunks->id, PARQUET_THRIFT_STRUCT, count);
    for (uint64_t i = 0; i < count && !in.failed; i++) {
        chunk_move(t, &in, m);
    }
    parent->failed |= in.failed;
}

static void group_move(struct merge *g, struct in *in, const struct move *m)
{
    struct parquet_thrift t = {.out = &g->groups};
    struct field f;
    int16_t id = 0;

    parquet_thrift_element(&t);
    while (field_read(in, &id, &f, 0)) {
        switch (f.id) {
        case 1: chunks_move(&t, &f, in, m); break;
        case 5: offset_move(&t, &f, in, m); break;
        case 7:
            if (g->group_count <= INT16_MAX) {
                parquet_thrift_i16(&t, 7, (int16_t)g->group_count);
            }
            break;
        default:
            in->failed |= f.id != 2 && f.id != 3 && f.id != 6; /* sizes and rows */
            field_copy(&t, &f);
        }
    }
    parquet_thrift_end(&t);
    g->group_count++;
}

static void groups_move(struct merge *g, const struct field *groups, struct in *parent,
                        const struct move *m)
{
    struct in in = inside(groups);
    int type = 0;
    const uint64_t count = groups->type == LIST ? list_read(&in, &type) : 0;

    in.failed |= count > 0 && type != STRUCT;
    for (uint64_t i = 0; i < count && !in.failed; i++) {
        group_move(g, &in, m);
    }
    parent->failed |= in.failed;
}

/* ---- footers ---- */

enum { VERSION = 1, SCHEMA, ROWS, GROUPS, NOTES, MAKER, ORDERS, FIELDS };

struct footer {
    struct mr_buf text;
    struct field fields[FIELDS]; /* by their ids; type 0: not there */
};

static int footer_load(int fd, const char *name, struct footer *out, uint64_t *out_at,
                       struct mr_err *err)
{
    char head[HEAD_BYTES];
    char tail[TAIL_BYTES];
    uint64_t bytes;
    uint32_t len;
    int rc = mr_merge_size(fd, name, &bytes, err);

    if (rc < 0) {
        return rc;
    }
    if (bytes < HEAD_BYTES + TAIL_BYTES || pread(fd, head, sizeof head, 0) != sizeof head ||
        pread(fd, tail, sizeof tail, (off_t)(bytes - sizeof tail)) != sizeof tail ||
        memcmp(head, MAGIC, HEAD_BYTES) != 0 || memcmp(tail + 4, MAGIC, HEAD_BYTES) != 0) {
        return MR_FAIL(err, MR_E_INVALID, "%s is no Parquet file", name);
    }
    memcpy(&len, tail, sizeof len);
    if (len > bytes - HEAD_BYTES - TAIL_BYTES) {
        return MR_FAIL(err, MR_E_INVALID, "%s: its footer is longer than the file", name);
    }
    const uint64_t at = bytes - TAIL_BYTES - len;
    char *room = mr_buf_reserve(&out->text, len);
    if (!room || pread(fd, room, len, (off_t)at) != (ssize_t)len) {
        return MR_FAIL(err, room ? MR_E_IO : MR_E_EXHAUSTED, "cannot read the footer of %s", name);
    }
    out->text.len = len;
    *out_at = at;
    return MR_OK;
}

static bool footer_is_ours(const struct footer *f)
{
    const struct field *maker = &f->fields[MAKER];
    struct in in = inside(maker);

    if (maker->type != BINARY || varint_read(&in) < strlen(CREATED_BY)) {
        return false;
    }
    return memcmp(in.at, CREATED_BY, strlen(CREATED_BY)) == 0;
}

static int footer_read(const struct mr_merge_part *part, struct footer *out, uint64_t *out_at,
                       struct mr_err *err)
{
    struct field f;
    int16_t id = 0;
    bool is_known = true;
    const int fd = mr_merge_open(part, err);

    if (fd < 0) {
        return fd;
    }
    mr_buf_reset(&out->text);
    memset(out->fields, 0, sizeof out->fields);
    int rc = footer_load(fd, part->name, out, out_at, err);
    close(fd);
    if (rc < 0) {
        return rc;
    }
    const uint8_t *text = (const uint8_t *)out->text.ptr;
    struct in in = {text, text + out->text.len, false};
    while (field_read(&in, &id, &f, 0)) {
        if (f.id >= VERSION && f.id < FIELDS) {
            out->fields[f.id] = f;
        } else {
            is_known = false;
        }
    }
    if (in.failed) {
        return MR_FAIL(err, MR_E_INVALID, "%s: its footer is damaged", part->name);
    }
    return is_known && footer_is_ours(out)
               ? MR_OK
               : MR_FAIL(err, MR_E_UNSUPPORTED, "%s was written by another program", part->name);
}

static bool field_equals(const struct footer *a, const struct footer *b, int id)
{
    const struct field *x = &a->fields[id];
    const struct field *y = &b->fields[id];

    return x->type == y->type && x->value.len == y->value.len &&
           (x->value.len == 0 || memcmp(x->value.ptr, y->value.ptr, x->value.len) == 0);
}

/* The row groups of a part; its data follows that of the parts before. */
static int part_take(struct merge *g, const struct mr_merge_part *part, const struct footer *f,
                     uint64_t data_end, struct mr_err *err)
{
    const struct move m = {g->at - HEAD_BYTES, data_end};
    struct in in = {0};
    const int64_t rows = number_of(&f->fields[ROWS], &in);

    groups_move(g, &f->fields[GROUPS], &in, &m);
    if (in.failed || rows < 0) {
        return MR_FAIL(err, MR_E_INVALID, "%s: its footer is damaged, or of another program",
                       part->name);
    }
    g->rows += (uint64_t)rows;
    g->at += data_end - HEAD_BYTES;
    return g->groups.failed ? MR_FAIL(err, MR_E_EXHAUSTED, "a footer for so many row groups")
                            : MR_OK;
}

static int footer_write(const struct merge *g, const struct footer *first, int fd,
                        struct mr_err *err)
{
    struct mr_buf out;
    struct parquet_thrift t = {.out = &out};
    int rc;

    mr_buf_init(&out, INT32_MAX);
    field_copy(&t, &first->fields[VERSION]);
    field_copy(&t, &first->fields[SCHEMA]);
    parquet_thrift_i64(&t, ROWS, (int64_t)g->rows);
    parquet_thrift_list(&t, GROUPS, PARQUET_THRIFT_STRUCT, g->group_count);
    mr_buf_append(&out, g->groups.ptr, g->groups.len);
    for (int id = NOTES; id < FIELDS; id++) {
        if (first->fields[id].type) {
            field_copy(&t, &first->fields[id]);
        }
    }
    parquet_thrift_end(&t);
    const uint32_t len = (uint32_t)out.len;
    mr_buf_append(&out, &len, sizeof len);
    MR_BUF_LIT(&out, MAGIC);
    rc = out.failed ? MR_FAIL(err, MR_E_EXHAUSTED, "a footer for so many row groups")
                    : mr_fd_write(fd, out.ptr, out.len, err);
    mr_buf_fini(&out);
    return rc;
}

int parquet_merge(const struct mr_merge_part *parts, size_t count, int out, struct mr_err *err)
{
    struct merge g = {.at = HEAD_BYTES};
    struct footer first = {0};
    struct footer next = {0};
    uint64_t *ends = MR_NEW_ARRAY(uint64_t, count + 1);
    int rc = MR_OK;

    mr_buf_init(&g.groups, INT32_MAX);
    mr_buf_init(&first.text, INT32_MAX);
    mr_buf_init(&next.text, INT32_MAX);
    for (size_t i = 0; i < count; i++) {
        struct footer *f = i ? &next : &first;
        MR_TRY(footer_read(&parts[i], f, &ends[i], err));
        if (!field_equals(&first, f, SCHEMA) || !field_equals(&first, f, NOTES)) {
            rc = MR_FAIL(err, MR_E_INVALID, "%s has other columns than %s", parts[i].name,
                         parts[0].name);
            goto out;
        }
        MR_TRY(part_take(&g, &parts[i], f, ends[i], err));
    }
    MR_TRY(mr_fd_write(out, MAGIC, HEAD_BYTES, err));
    for (size_t i = 0; i < count; i++) {
        MR_TRY(mr_merge_copy(&parts[i], HEAD_BYTES, ends[i] - HEAD_BYTES, out, err));
    }
    rc = footer_write(&g, &first, out, err);
out:
    mr_buf_fini(&g.groups);
    mr_buf_fini(&first.text);
    mr_buf_fini(&next.text);
    mr_free(ends);
    return rc;
}
