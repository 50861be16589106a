/* Reading and writing FlatBuffers.
 *
 * Reading checks each access against the message; an error is remembered, and the caller checks once at the end.
 * Tables may share parts or point to themselves, so code that walks them must count its visits. */
#include "arrow_flat.h"

#include <string.h>

/* ---- reading ---- */

static bool is_inside(struct flat *in, size_t at, size_t bytes)
{
    if (at <= in->all.len && bytes <= in->all.len - at) {
        return true;
    }
    in->is_bad = true;
    return false;
}

static uint64_t word(struct flat *in, size_t at, unsigned bytes)
{
    uint64_t v = 0;

    if (is_inside(in, at, bytes)) {
        memcpy(&v, in->all.ptr + at, bytes); /* little-endian, like the machine */
    }
    return v;
}

static struct flat_table table_at(struct flat *in, size_t at)
{
    struct flat_table t = {.in = in, .at = at};
    const int32_t back = (int32_t)word(in, at, 4);
    const int64_t vtable = (int64_t)at - back;

    if (at == 0 || vtable < 0 || !is_inside(in, (size_t)vtable, 4)) {
        in->is_bad = true;
        return (struct flat_table){.in = in};
    }
    t.vtable = (size_t)vtable;
    t.vtable_bytes = (uint16_t)word(in, t.vtable, 2);
    return is_inside(in, t.vtable, t.vtable_bytes) ? t : (struct flat_table){.in = in};
}

struct flat_table flat_root(struct flat *in)
{
    return table_at(in, (size_t)word(in, 0, 4));
}

/* The place of a field, 0: missing. */
static size_t field_at(const struct flat_table *t, unsigned field)
{
    const size_t entry = 4 + 2 * (size_t)field;

    if (t->at == 0 || entry + 2 > t->vtable_bytes) {
        return 0;
    }
    const size_t offset = (size_t)word(t->in, t->vtable + entry, 2);
    return offset ? t->at + offset : 0;
}

int64_t flat_int(const struct flat_table *t, unsigned field, unsigned bytes, int64_t missing)
{
    const size_t at = field_at(t, field);
    const unsigned shift = 64 - 8 * bytes;

    return at ? (int64_t)(word(t->in, at, bytes) << shift) >> shift : missing;
}

/* The target of a field, 0: missing. */
static size_t target_of(const struct flat_table *t, unsigned field)
{
    const size_t at = field_at(t, field);

    return at ? at + (size_t)word(t->in, at, 4) : 0;
}

struct flat_table flat_child(const struct flat_table *t, unsigned field)
{
    const size_t at = target_of(t, field);

    return at ? table_at(t->in, at) : (struct flat_table){.in = t->in};
}

struct flat_vector flat_list(const struct flat_table *t, unsigned field, uint32_t step)
{
    const size_t at = target_of(t, field);
    struct flat_vector v = {.in = t->in, .at = at + 4, .step = step};

    if (at) {
        const uint32_t count = (uint32_t)word(t->in, at, 4);
        v.count = is_inside(t->in, v.at, (size_t)count * step) ? count : 0;
    }
    return v;
}

mr_str flat_text(const struct flat_table *t, unsigned field)
{
    const struct flat_vector v = flat_list(t, field, 1);

    return v.count ? mr_str_n((const char *)t->in->all.ptr + v.at, v.count) : MR_STR("");
}

struct flat_table flat_list_table(const struct flat_vector *v, uint32_t i)
{
    const size_t at = v->at + 4 * (size_t)i;

    return table_at(v->in, at + (size_t)word(v->in, at, 4));
}

int64_t flat_list_i64(const struct flat_vector *v, uint32_t i, uint32_t offset)
{
    return (int64_t)word(v->in, v->at + (size_t)i * v->step + offset, 8);
}

/* ---- writing ---- */

static size_t zeros_put(struct mr_buf *b, size_t bytes)
{
    const size_t at = b->len;
    char *to = mr_buf_reserve(b, bytes);

    if (to) {
        memset(to, 0, bytes);
        b->len += bytes;
    }
    return at;
}

static void word_put(struct mr_buf *b, size_t at, uint64_t value, unsigned bytes)
{
    if (!b->failed) {
        memcpy(b->ptr + at, &value, bytes);
    }
}

void flat_pad(struct mr_buf *b, size_t to)
{
    zeros_put(b, (to - b->len % to) % to);
}

size_t flat_put_table(struct flat_out *t, struct mr_buf *b, const uint8_t *sizes, unsigned count)
{
    *t = (struct flat_out){.b = b};
    flat_pad(b, 4);
    const size_t vtable = zeros_put(b, 4 + 2 * (size_t)count);
    flat_pad(b, 4);
    const size_t table = zeros_put(b, 4);
    for (unsigned i = 0; i < count; i++) {
        if (sizes[i]) {
            flat_pad(b, sizes[i]);
            t->at[i] = zeros_put(b, sizes[i]);
            word_put(b, vtable + 4 + 2 * (size_t)i, t->at[i] - table, 2);
        }
    }
    word_put(b, vtable, 4 + 2 * (uint64_t)count, 2);
    word_put(b, vtable + 2, b->len - table, 2);
    word_put(b, table, table - vtable, 4);
    return table;
}

void flat_put_int(const struct flat_out *t, unsigned field, unsigned bytes, int64_t value)
{
    word_put(t->b, t->at[field], (uint64_t)value, bytes);
}

void flat_link(struct mr_buf *b, size_t from, size_t to)
{
    word_put(b, from, to - from, 4);
}

void flat_put_link(const struct flat_out *t, unsigned field, size_t to)
{
    flat_link(t->b, t->at[field], to);
}

size_t flat_put_list(struct mr_buf *b, uint32_t count, uint32_t step)
{
    flat_pad(b, 4);
    if (step == 8 || step == 16 || step == 24) { /* the items must be aligned */
        zeros_put(b, b->len % 8 == 0 ? 4 : 0);
    }
    const size_t at = zeros_put(b, 4);
    word_put(b, at, count, 4);
    zeros_put(b, (size_t)count * step);
    return at;
}

size_t flat_put_text(struct mr_buf *b, mr_str text)
{
    const size_t at = flat_put_list(b, (uint32_t)text.len, 1);

    if (!b->failed) {
        memcpy(b->ptr + at + 4, text.ptr ? text.ptr : "", text.len);
    }
    zeros_put(b, 1);
    return at;
}
