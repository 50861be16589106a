/* Joins Parquet files of Millrace's writer: the data between head and footer is copied unchanged, and the new footer
 * describes all row groups, with their offsets adjusted.
 *
 * Only fields that the writer writes (parquet_footer.c) are accepted. Anything else, in a file of another program or
 * a damaged one, is an error, as it might be an offset that needs adjustment.
 * Source: apache/parquet-format, parquet.thrift; thrift/doc/specs/thrift-compact-protocol.md. */
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "parquet.h"
#include "parquet_read.h"
#include "parquet_thrift.h"
#include "table/io/io.h"

#define MAGIC      "PAR1"
#define HEAD_BYTES 4
#define TAIL_BYTES 8 /* length of the footer, magic */
#define CREATED_BY "millrace "

/* ---- row groups, moved ---- */

struct merge {
    struct mr_buf groups;
    uint64_t group_count;
    uint64_t rows;
    uint64_t at; /* offset of the next part in the new file */
};

/* The adjustment of a part's offsets, and their limit. */
struct move {
    uint64_t shift;
    uint64_t end; /* of the data in the old file */
};

static void field_copy(struct parquet_thrift *t, const struct thrift_field *f)
{
    parquet_thrift_raw(t, f->id, f->type, f->value.ptr, f->value.len);
}

static void offset_move(struct parquet_thrift *t, const struct thrift_field *f,
                        struct thrift_in *in, const struct move *m)
{
    const int64_t at = parquet_read_number(f, in);

    in->failed |= at < HEAD_BYTES || (uint64_t)at > m->end;
    parquet_thrift_i64(t, f->id, at + (int64_t)m->shift);
}

static void chunk_data_move(struct parquet_thrift *t, const struct thrift_field *data,
                            struct thrift_in *parent, const struct move *m)
{
    struct thrift_in in = parquet_read_inside(data);
    struct thrift_field f;
    int16_t id = 0;

    in.failed |= data->type != THRIFT_STRUCT;
    parquet_thrift_begin(t, data->id);
    while (parquet_read_field(&in, &id, &f)) {
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

static void chunk_move(struct parquet_thrift *t, struct thrift_in *in, const struct move *m)
{
    struct thrift_field f;
    int16_t id = 0;

    parquet_thrift_element(t);
    while (parquet_read_field(in, &id, &f)) {
        if (f.id == 3) {
            chunk_data_move(t, &f, in, m);
        } else {
            in->failed |= f.id != 2 || parquet_read_number(&f, in) != 0;
            field_copy(t, &f);
        }
    }
    parquet_thrift_end(t);
}

static void chunks_move(struct parquet_thrift *t, const struct thrift_field *chunks,
                        struct thrift_in *parent, const struct move *m)
{
    struct thrift_in in = parquet_read_inside(chunks);
    int type = 0;
    const uint64_t count = chunks->type == THRIFT_LIST ? parquet_read_list(&in, &type) : 0;

    in.failed |= type != THRIFT_STRUCT;
    parquet_thrift_list(t, chunks->id, PARQUET_THRIFT_STRUCT, count);
    for (uint64_t i = 0; i < count && !in.failed; i++) {
        chunk_move(t, &in, m);
    }
    parent->failed |= in.failed;
}

static void group_move(struct merge *g, struct thrift_in *in, const struct move *m)
{
    struct parquet_thrift t = {.out = &g->groups};
    struct thrift_field f;
    int16_t id = 0;

    parquet_thrift_element(&t);
    while (parquet_read_field(in, &id, &f)) {
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

static void groups_move(struct merge *g, const struct thrift_field *groups,
                        struct thrift_in *parent, const struct move *m)
{
    struct thrift_in in = parquet_read_inside(groups);
    int type = 0;
    const uint64_t count = groups->type == THRIFT_LIST ? parquet_read_list(&in, &type) : 0;

    in.failed |= count > 0 && type != THRIFT_STRUCT;
    for (uint64_t i = 0; i < count && !in.failed; i++) {
        group_move(g, &in, m);
    }
    parent->failed |= in.failed;
}

/* ---- footers ---- */

enum { VERSION = 1, SCHEMA, ROWS, GROUPS, NOTES, MAKER, ORDERS, FIELDS };

struct footer {
    struct mr_buf text;
    struct thrift_field fields[FIELDS]; /* by their ids; type 0: not there */
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
    const struct thrift_field *maker = &f->fields[MAKER];
    struct thrift_in in = parquet_read_inside(maker);

    if (maker->type != THRIFT_BINARY || parquet_read_varint(&in) < strlen(CREATED_BY)) {
        return false;
    }
    return memcmp(in.at, CREATED_BY, strlen(CREATED_BY)) == 0;
}

static int footer_read(const struct mr_merge_part *part, struct footer *out, uint64_t *out_at,
                       struct mr_err *err)
{
    struct thrift_field f;
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
    struct thrift_in in = {text, text + out->text.len, false};
    while (parquet_read_field(&in, &id, &f)) {
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
    const struct thrift_field *x = &a->fields[id];
    const struct thrift_field *y = &b->fields[id];

    return x->type == y->type && x->value.len == y->value.len &&
           (x->value.len == 0 || memcmp(x->value.ptr, y->value.ptr, x->value.len) == 0);
}

/* Takes the row groups of a part; its data follows that of the previous parts. */
static int part_take(struct merge *g, const struct mr_merge_part *part, const struct footer *f,
                     uint64_t data_end, struct mr_err *err)
{
    const struct move m = {g->at - HEAD_BYTES, data_end};
    struct thrift_in in = {0};
    const int64_t rows = parquet_read_number(&f->fields[ROWS], &in);

    groups_move(g, &f->fields[GROUPS], &in, &m);
    if (in.failed || rows < 0) {
        return MR_FAIL(err, MR_E_INVALID, "%s: its footer is damaged, or of another program",
                       part->name);
    }
    g->rows += (uint64_t)rows;
    g->at += data_end - HEAD_BYTES;
    return g->groups.failed
               ? MR_FAIL(err, MR_E_EXHAUSTED, "no memory for a footer of this many row groups")
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
    rc = out.failed ? MR_FAIL(err, MR_E_EXHAUSTED, "no memory for a footer of this many row groups")
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
