/* Reads the places of columns from a footer of any writer. Anything unusual ends it, as the caller can do without. */
#include "parquet_chunks.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "parquet_read.h"

enum { META_GROUPS = 4 };
enum { GROUP_CHUNKS = 1, GROUP_ROWS = 3 };
enum { CHUNK_FILE = 1, CHUNK_META = 3 };
enum { META_PATH = 3, META_SIZE = 7, META_DATA = 9, META_INDEX = 10, META_DICTIONARY = 11 };

struct chunks {
    const char *const *names;
    bool *seen; /* of the names */
    size_t count;
    uint64_t data_end;
    uint64_t first_row;
    uint64_t row;                       /* the group's first row */
    MR_VEC(struct parquet_range) group; /* its ranges */
    struct parquet_ranges *out;
};

uint32_t parquet_footer_bytes(const uint8_t tail[PARQUET_TAIL_BYTES])
{
    uint32_t len;

    memcpy(&len, tail, sizeof len);
    return memcmp(tail + 4, "PAR1", 4) == 0 ? len : 0;
}

/* The first part of a path, the name of a column. */
static mr_str path_first(const struct thrift_field *f, struct thrift_in *parent)
{
    struct thrift_in in = parquet_read_inside(f);
    int type = 0;
    const uint64_t parts = f->type == THRIFT_LIST ? parquet_read_list(&in, &type) : 0;

    parent->failed |= parts == 0 || type != THRIFT_BINARY;
    if (parent->failed) {
        return mr_str_n(NULL, 0);
    }
    return parquet_read_text(&in);
}

static bool is_wanted(struct chunks *c, mr_str name)
{
    for (size_t i = 0; i < c->count; i++) {
        if (mr_str_ieq(name, mr_str_c(c->names[i]))) {
            c->seen[i] = true;
            return true;
        }
    }
    return false;
}

static void meta_read(struct chunks *c, const struct thrift_field *meta, struct thrift_in *parent)
{
    struct thrift_in in = parquet_read_inside(meta);
    struct thrift_field f;
    int64_t places[META_DICTIONARY + 1] = {0};
    mr_str name = {0};
    int16_t id = 0;

    in.failed |= meta->type != THRIFT_STRUCT;
    while (parquet_read_field(&in, &id, &f)) {
        if (f.id == META_PATH) {
            name = path_first(&f, &in);
        } else if (f.id == META_SIZE || f.id == META_DATA || f.id == META_DICTIONARY) {
            places[f.id] = parquet_read_number(&f, &in);
        }
    }
    int64_t first = places[META_DATA];
    if (places[META_DICTIONARY] > 0 && places[META_DICTIONARY] < first) {
        first = places[META_DICTIONARY];
    }
    const int64_t size = places[META_SIZE];
    in.failed |= first < PARQUET_HEAD_BYTES || size < 0 || (uint64_t)first > c->data_end ||
                 (uint64_t)size > c->data_end - (uint64_t)first;
    parent->failed |= in.failed;
    if (!in.failed && is_wanted(c, name) && size > 0) {
        MR_VEC_PUSH(&c->group, ((struct parquet_range){(uint64_t)first, (uint64_t)(first + size)}));
    }
}

static void chunk_read(struct chunks *c, struct thrift_in *in)
{
    struct thrift_field f;
    int16_t id = 0;
    bool has_meta = false;

    while (parquet_read_field(in, &id, &f)) {
        in->failed |= f.id == CHUNK_FILE; /* the data is in another file */
        if (f.id == CHUNK_META) {
            meta_read(c, &f, in);
            has_meta = true;
        }
    }
    in->failed |= !has_meta;
}

static void group_read(struct chunks *c, struct thrift_in *in)
{
    struct thrift_field f;
    int16_t id = 0;
    int64_t rows = -1;

    c->group.len = 0;
    while (parquet_read_field(in, &id, &f)) {
        if (f.id == GROUP_ROWS) {
            rows = parquet_read_number(&f, in);
        } else if (f.id == GROUP_CHUNKS) {
            struct thrift_in chunks = parquet_read_inside(&f);
            int type = 0;
            uint64_t n = f.type == THRIFT_LIST ? parquet_read_list(&chunks, &type) : 0;
            chunks.failed |= type != THRIFT_STRUCT;
            for (; n > 0 && !chunks.failed; n--) {
                chunk_read(c, &chunks);
            }
            in->failed |= chunks.failed;
        }
    }
    in->failed |= rows < 0 || __builtin_add_overflow(c->row, (uint64_t)rows, &c->row);
    for (size_t i = 0; !in->failed && c->row > c->first_row && i < c->group.len; i++) {
        MR_VEC_PUSH(&c->out->at, c->group.at[i]);
    }
}

static int range_cmp(const void *a, const void *b)
{
    const struct parquet_range *x = a;
    const struct parquet_range *y = b;

    return x->first < y->first ? -1 : x->first > y->first;
}

static void ranges_join(struct parquet_ranges *r, uint64_t gap)
{
    size_t kept = 0;

    if (r->at.len == 0) {
        return;
    }
    qsort(r->at.at, r->at.len, sizeof *r->at.at, range_cmp);
    for (size_t i = 1; i < r->at.len; i++) {
        struct parquet_range *last = &r->at.at[kept];
        const struct parquet_range next = r->at.at[i];
        if (next.first <= last->end || next.first - last->end < gap) {
            last->end = MR_MAX(last->end, next.end);
        } else {
            r->at.at[++kept] = next;
        }
    }
    r->at.len = kept + 1;
}

static void groups_read(struct chunks *c, const struct thrift_field *f, struct thrift_in *parent)
{
    struct thrift_in groups = parquet_read_inside(f);
    int type = 0;
    uint64_t n = f->type == THRIFT_LIST ? parquet_read_list(&groups, &type) : 0;

    groups.failed |= n > 0 && type != THRIFT_STRUCT;
    for (; n > 0 && !groups.failed; n--) {
        group_read(c, &groups);
    }
    parent->failed |= groups.failed;
}

/* Stores the ranges, if they are complete. */
static bool chunks_end(struct chunks *c, bool is_read, uint64_t gap)
{
    for (size_t i = 0; i < c->count && c->row > 0; i++) {
        is_read &= c->seen[i];
    }
    mr_free(c->seen);
    MR_VEC_FINI(&c->group);
    if (!is_read) {
        c->out->at.len = 0;
        return false;
    }
    ranges_join(c->out, gap);
    return true;
}

bool parquet_chunks_find(mr_bytes footer, uint64_t data_end, const char *const *names, size_t count,
                         uint64_t first_row, uint64_t gap, struct parquet_ranges *out)
{
    struct chunks c = {.names = names,
                       .count = count,
                       .seen = MR_NEW_ARRAY(bool, count + 1),
                       .data_end = data_end,
                       .first_row = first_row,
                       .out = out};
    struct thrift_in in = {footer.ptr, footer.ptr + footer.len, false};
    struct thrift_field f;
    bool has_groups = false;
    int16_t id = 0;

    while (parquet_read_field(&in, &id, &f)) {
        if (f.id == META_GROUPS) {
            groups_read(&c, &f, &in);
            has_groups = true;
        }
    }
    return chunks_end(&c, has_groups && !in.failed, gap);
}

bool parquet_group_find(mr_bytes group, uint64_t data_end, const char *const *names, size_t count,
                        struct parquet_ranges *out)
{
    struct chunks c = {.names = names,
                       .count = count,
                       .seen = MR_NEW_ARRAY(bool, count + 1),
                       .data_end = data_end,
                       .out = out};
    struct thrift_in in = {group.ptr, group.ptr + group.len, false};

    group_read(&c, &in);
    return chunks_end(&c, !in.failed, 0);
}
