/* Rows and their schema.
 *
 * Rows own memory in two ways: pieces of their own (mr_rows_alloc), and callbacks for foreign memory, run when the
 * rows are freed, by which builders and answers hand over memory. Both are on one list. Only the reference count is
 * written by several threads. */
#include "table/rows.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define ALIGN       64
#define FAULTS_MOST 1000000

struct note {
    struct note *next;
    void (*fn)(void *ctx);
    void *ctx;
};

struct mr_rows_owner {
    _Atomic uint32_t refs;
    struct note *notes;
    uint64_t fault_room;
};

/* ---- types ---- */

static const struct {
    const char *name;
    uint8_t bytes;
} types[MR_COLUMN_TYPES] = {
    [MR_COLUMN_NONE] = {"NONE", 0},
    [MR_COLUMN_BOOL] = {"BOOL", 1},
    [MR_COLUMN_I8] = {"I8", 1},
    [MR_COLUMN_I16] = {"I16", 2},
    [MR_COLUMN_I32] = {"I32", 4},
    [MR_COLUMN_I64] = {"I64", 8},
    [MR_COLUMN_U8] = {"U8", 1},
    [MR_COLUMN_U16] = {"U16", 2},
    [MR_COLUMN_U32] = {"U32", 4},
    [MR_COLUMN_U64] = {"U64", 8},
    [MR_COLUMN_F16] = {"F16", 2},
    [MR_COLUMN_F32] = {"F32", 4},
    [MR_COLUMN_F64] = {"F64", 8},
    [MR_COLUMN_DATE] = {"DATE", 4},
    [MR_COLUMN_TIMESTAMP] = {"TIMESTAMP", 8},
    [MR_COLUMN_DECIMAL] = {"DECIMAL", 16},
    [MR_COLUMN_STRING] = {"STRING", 0},
    [MR_COLUMN_BINARY] = {"BINARY", 0},
    [MR_COLUMN_LIST] = {"LIST", 0},
    [MR_COLUMN_FIXED_LIST] = {"FIXED_LIST", 0},
};

size_t mr_column_type_bytes(enum mr_column_type type)
{
    return (unsigned)type < MR_COLUMN_TYPES ? types[type].bytes : 0;
}

/* Appends to the *n characters of the text, as far as there is room; *n counts all. */
static void text_add(char *buf, size_t room, size_t *n, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static void text_add(char *buf, size_t room, size_t *n, const char *fmt, ...)
{
    const size_t at = MR_MIN(*n, room);
    va_list args;

    va_start(args, fmt);
    *n += (size_t)vsnprintf(buf + at, room - at, fmt, args);
    va_end(args);
}

static void field_text(const struct mr_field *f, char *buf, size_t room, size_t *n)
{
    const bool is_known = (unsigned)f->type < MR_COLUMN_TYPES;

    text_add(buf, room, n, "%s", is_known ? types[f->type].name : "NONE");
    if (f->type == MR_COLUMN_DECIMAL) {
        text_add(buf, room, n, "(%u,%u)", f->precision, f->scale);
    }
    if (f->item) {
        text_add(buf, room, n, "<");
        field_text(f->item, buf, room, n);
        text_add(buf, room, n, ">");
    }
    if (f->type == MR_COLUMN_FIXED_LIST) {
        text_add(buf, room, n, "[%llu]", (unsigned long long)f->width);
    }
}

char *mr_field_text(const struct mr_field *f, char *buf, size_t room)
{
    size_t n = 0;

    field_text(f, buf, room, &n);
    return buf;
}

void mr_field_copy(struct mr_field *to, const struct mr_field *from)
{
    *to = *from;
    to->name = mr_strndup(from->name, strlen(from->name));
    if (from->item) {
        to->item = MR_NEW(struct mr_field);
        mr_field_copy(to->item, from->item);
    }
}

void mr_field_fini(struct mr_field *f)
{
    if (f->item) {
        mr_field_fini(f->item);
        mr_freep(&f->item);
    }
    mr_freep(&f->name);
}

size_t mr_field_levels(const struct mr_field *f)
{
    size_t n = 0;

    for (; f->item; f = f->item) {
        n++;
    }
    return n;
}

bool mr_field_equals(const struct mr_field *a, const struct mr_field *b)
{
    if (a->type != b->type || a->is_nullable != b->is_nullable || strcmp(a->name, b->name) != 0 ||
        (a->type == MR_COLUMN_FIXED_LIST && a->width != b->width) ||
        (a->type == MR_COLUMN_DECIMAL && (a->precision != b->precision || a->scale != b->scale)) ||
        !a->item != !b->item) {
        return false;
    }
    return !a->item || mr_field_equals(a->item, b->item);
}

void mr_schema_add(struct mr_schema *s, const struct mr_field *f)
{
    s->fields = mr_realloc_array(s->fields, s->count + 1, sizeof *s->fields);
    mr_field_copy(&s->fields[s->count++], f);
}

void mr_schema_fini(struct mr_schema *s)
{
    for (size_t i = 0; i < s->count; i++) {
        mr_field_fini(&s->fields[i]);
    }
    mr_freep(&s->fields);
    s->count = 0;
}

/* The delimiter that a line of names seems to have. */
static char delimiter_in(const char *name)
{
    const char *at = strpbrk(name, ";\t|");
    return at ? *at : '\0';
}

char *mr_schema_hint(const struct mr_schema *s, char *buf, size_t room)
{
    struct mr_buf b;
    size_t n = 0;

    mr_buf_init(&b, 0);
    MR_BUF_LIT(&b, "it has ");
    for (; n < s->count && b.len + strlen(s->fields[n].name) < room - 20; n++) {
        mr_buf_printf(&b, "%s%s", n ? ", " : "", s->fields[n].name);
    }
    mr_buf_c(&b, n < s->count ? ", ..." : s->count == 0 ? "none" : "");
    const char delimiter = s->count == 1 ? delimiter_in(s->fields[0].name) : '\0';
    if (delimiter) {
        mr_buf_printf(&b, " (--delimiter %s?)",
                      delimiter == '\t'  ? "$'\\t'"
                      : delimiter == ';' ? "';'"
                                         : "'|'");
    }
    snprintf(buf, room, "%s", mr_buf_cstr(&b));
    mr_buf_fini(&b);
    return buf;
}

int mr_schema_find(const struct mr_schema *s, mr_str name)
{
    for (size_t i = 0; i < s->count; i++) {
        if (mr_str_eq(mr_str_c(s->fields[i].name), name)) {
            return (int)i;
        }
    }
    return -1;
}

/* ---- rows ---- */

struct mr_rows *mr_rows_new(const struct mr_schema *schema)
{
    const size_t bytes = sizeof(struct mr_rows) + sizeof(struct mr_rows_owner) +
                         schema->count * sizeof(struct mr_column);
    struct mr_rows *r = mr_try_alloc(bytes);

    if (!r) {
        return NULL;
    }
    memset(r, 0, bytes);
    r->schema = schema;
    r->owner = (struct mr_rows_owner *)(r + 1);
    r->columns = (struct mr_column *)(r->owner + 1);
    r->bytes = bytes;
    atomic_init(&r->owner->refs, 1);
    return r;
}

struct mr_rows *mr_rows_ref(struct mr_rows *r)
{
    /* Relaxed: the holder of a reference may make another one. */
    atomic_fetch_add_explicit(&r->owner->refs, 1, memory_order_relaxed);
    return r;
}

void mr_rows_unref(struct mr_rows **rows)
{
    struct mr_rows *r = *rows;

    *rows = NULL;
    /* Release this thread's uses, acquire the others', before the rows are freed. */
    if (!r || atomic_fetch_sub_explicit(&r->owner->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    for (uint64_t i = 0; i < r->fault_count; i++) {
        mr_free(r->faults[i].text);
    }
    mr_free(r->faults);
    for (struct note *n = r->owner->notes; n;) {
        struct note *next = n->next;
        n->fn(n->ctx);
        mr_free(n);
        n = next;
    }
    mr_free(r);
}

bool mr_rows_on_free(struct mr_rows *r, uint64_t bytes, void (*fn)(void *ctx), void *ctx)
{
    struct note *n = mr_try_alloc(sizeof *n);

    if (!n) {
        fn(ctx);
        return false;
    }
    *n = (struct note){r->owner->notes, fn, ctx};
    r->owner->notes = n;
    r->bytes += bytes + sizeof *n;
    return true;
}

void *mr_rows_alloc(struct mr_rows *r, size_t bytes)
{
    size_t whole;
    uint8_t *p = mr_size_add(bytes, ALIGN, &whole) ? mr_try_alloc(whole) : NULL;

    if (!p || !mr_rows_on_free(r, whole, mr_free, p)) {
        return NULL;
    }
    return p + (ALIGN - (uintptr_t)p % ALIGN) % ALIGN;
}

bool mr_rows_fault(struct mr_rows *r, uint64_t row, const char *text)
{
    if (r->fault_count == FAULTS_MOST) {
        return false;
    }
    if (r->fault_count == r->owner->fault_room) {
        const uint64_t room = r->fault_count ? 2 * r->fault_count : 8;
        struct mr_row_fault *more = mr_try_realloc(r->faults, room * sizeof *more);
        if (!more) {
            return false;
        }
        r->faults = more;
        r->owner->fault_room = room;
    }
    r->faults[r->fault_count++] = (struct mr_row_fault){row, mr_strndup(text, strlen(text))};
    r->bytes += sizeof *r->faults + strlen(text) + 1;
    return true;
}

const char *mr_rows_fault_of(const struct mr_rows *r, uint64_t row)
{
    uint64_t low = 0;
    uint64_t high = r->fault_count;

    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (r->faults[middle].row < row) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < r->fault_count && r->faults[low].row == row ? r->faults[low].text : NULL;
}

/* ---- checking ---- */

static uint64_t nulls_count(const struct mr_column *c)
{
    uint64_t nulls = 0;

    for (uint64_t i = 0; i < c->count; i++) {
        nulls += mr_column_is_null(c, i);
    }
    return nulls;
}

static int column_check(const struct mr_field *f, const struct mr_column *c, const char *name,
                        struct mr_err *err)
{
    if (c->nulls != (c->valid ? nulls_count(c) : 0)) {
        return MR_FAIL(err, MR_E_INVALID, "column '%s': the count of nulls is wrong", name);
    }
    if (c->begin) {
        for (uint64_t i = 0; i < c->count; i++) {
            if (c->begin[i + 1] < c->begin[i]) {
                return MR_FAIL(err, MR_E_INVALID, "column '%s': row %llu ends before it begins",
                               name, (unsigned long long)i);
            }
        }
    } else if (c->count > 0 && (f->type == MR_COLUMN_STRING || f->type == MR_COLUMN_BINARY ||
                                f->type == MR_COLUMN_LIST)) {
        return MR_FAIL(err, MR_E_INVALID, "column '%s' has no offsets", name);
    }
    if (!f->item) {
        return MR_OK;
    }
    uint64_t items;
    if (f->type == MR_COLUMN_LIST) {
        items = c->count > 0 ? c->begin[c->count] : 0;
    } else if (__builtin_mul_overflow(c->count, f->width, &items)) {
        items = UINT64_MAX;
    }
    if (!c->item || c->item->count < items) {
        return MR_FAIL(err, MR_E_INVALID, "column '%s' has fewer items than its rows say", name);
    }
    return column_check(f->item, c->item, name, err);
}

int mr_rows_check(const struct mr_rows *r, struct mr_err *err)
{
    for (size_t i = 0; i < r->schema->count; i++) {
        const char *name = r->schema->fields[i].name;
        if (r->columns[i].count != r->count) {
            return MR_FAIL(err, MR_E_INVALID, "column '%s' has %llu rows, others %llu", name,
                           (unsigned long long)r->columns[i].count, (unsigned long long)r->count);
        }
        int rc = column_check(&r->schema->fields[i], &r->columns[i], name, err);
        if (rc < 0) {
            return rc;
        }
    }
    return MR_OK;
}
