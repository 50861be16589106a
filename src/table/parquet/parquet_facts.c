/* A footer's schema and row groups, and the checksums of pages.
 *
 * Pages are read through a window, so that their size does not matter; pages without a checksum are skipped. */
#include "parquet_facts.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/mem.h"
#include "parquet_chunks.h"
#include "parquet_read.h"

#define DIGITS_MOST  38
#define BYTES_MOST   16 /* longer decimals are unsupported */
#define WINDOW_BYTES ((size_t)256 << 10)
#define HEADER_MOST  ((size_t)16 << 20) /* of a page header, which may hold values in statistics */

enum { META_SCHEMA = 2, META_GROUPS = 4 };
enum {
    ELEMENT_BYTES = 2,
    ELEMENT_NAME = 4,
    ELEMENT_CHILDREN = 5,
    ELEMENT_CONVERTED = 6,
    ELEMENT_PRECISION = 8,
    ELEMENT_LOGICAL = 10
};
enum { LOGICAL_DECIMAL = 5, DECIMAL_PRECISION = 2, CONVERTED_DECIMAL = 5 };
enum { GROUP_ROWS = 3 };
enum { PAGE_PLAIN_BYTES = 2, PAGE_BYTES = 3, PAGE_CRC = 4 };

/* ---- schema ---- */

struct element {
    mr_str name;
    uint64_t children;
    bool is_wide;
};

/* The precision in the union LogicalType; 0: not a decimal. */
static int64_t logical_precision(const struct thrift_field *logical)
{
    struct thrift_in in = parquet_read_inside(logical);
    struct thrift_field f;
    int64_t precision = 0;
    int16_t id = 0;

    while (parquet_read_field(&in, &id, &f)) {
        struct thrift_in decimal = parquet_read_inside(&f);
        struct thrift_field part;
        int16_t part_id = 0;
        while (f.id == LOGICAL_DECIMAL && parquet_read_field(&decimal, &part_id, &part)) {
            if (part.id == DECIMAL_PRECISION) {
                precision = parquet_read_number(&part, &decimal);
            }
        }
    }
    return precision;
}

static struct element element_read(struct thrift_in *in)
{
    struct element e = {0};
    struct thrift_field f;
    int64_t numbers[ELEMENT_PRECISION + 1] = {[ELEMENT_CONVERTED] = -1};
    int64_t precision = 0;
    int16_t id = 0;

    while (parquet_read_field(in, &id, &f)) {
        if (f.id == ELEMENT_NAME) {
            struct thrift_in text = parquet_read_inside(&f);
            in->failed |= f.type != THRIFT_BINARY;
            e.name = parquet_read_text(&text);
        } else if (f.id == ELEMENT_LOGICAL) {
            precision = logical_precision(&f);
        } else if (f.id == ELEMENT_BYTES || f.id == ELEMENT_CHILDREN || f.id == ELEMENT_CONVERTED ||
                   f.id == ELEMENT_PRECISION) {
            numbers[f.id] = parquet_read_number(&f, in);
        }
    }
    const bool is_decimal = precision > 0 || numbers[ELEMENT_CONVERTED] == CONVERTED_DECIMAL;
    precision = MR_MAX(precision, numbers[ELEMENT_PRECISION]);
    e.is_wide = is_decimal && (precision > DIGITS_MOST || numbers[ELEMENT_BYTES] > BYTES_MOST);
    e.children = (uint64_t)MR_MAX(numbers[ELEMENT_CHILDREN], INT64_C(0));
    return e;
}

static void schema_read(struct parquet_facts *l, const struct thrift_field *f,
                        struct thrift_in *parent)
{
    struct thrift_in in = parquet_read_inside(f);
    int type = 0;
    uint64_t left = f->type == THRIFT_LIST ? parquet_read_list(&in, &type) : 0;

    in.failed |= left == 0 || type != THRIFT_STRUCT;
    if (!in.failed) {
        element_read(&in); /* the root */
        left--;
    }
    while (left > 0 && !in.failed) {
        struct parquet_column c = {0};
        uint64_t below = 1;
        for (; below > 0 && left > 0 && !in.failed; left--) {
            const struct element e = element_read(&in);
            c.name = c.name ? c.name : mr_strndup(e.name.ptr, e.name.len);
            c.is_wide |= e.is_wide;
            in.failed |= e.children > left;
            below += e.children - 1;
        }
        in.failed |= below > 0;
        MR_VEC_PUSH(&l->columns, c);
    }
    parent->failed |= in.failed;
}

/* ---- row groups ---- */

static void groups_read(struct parquet_facts *l, const struct thrift_field *f,
                        struct thrift_in *parent)
{
    struct thrift_in in = parquet_read_inside(f);
    struct thrift_field part;
    uint64_t row = 0;
    int type = 0;

    for (uint64_t n = f->type == THRIFT_LIST ? parquet_read_list(&in, &type) : 0;
         n > 0 && !in.failed; n--) {
        int16_t id = 0;
        int64_t rows = -1;
        const uint8_t *begin = in.at;
        in.failed |= type != THRIFT_STRUCT;
        while (parquet_read_field(&in, &id, &part)) {
            if (part.id == GROUP_ROWS) {
                rows = parquet_read_number(&part, &in);
            }
        }
        in.failed |= rows < 0 || __builtin_add_overflow(row, (uint64_t)rows, &row);
        const mr_bytes text = {begin, (size_t)(in.at - begin)};
        MR_VEC_PUSH(&l->groups, ((struct parquet_group){row, text, false}));
    }
    parent->failed |= in.failed;
}

static void known_drop(struct parquet_facts *l)
{
    for (size_t i = 0; i < l->columns.len; i++) {
        mr_free(l->columns.at[i].name);
    }
    MR_VEC_FINI(&l->columns);
    MR_VEC_FINI(&l->groups);
}

static void footer_parse(struct parquet_facts *l)
{
    struct thrift_in in = {(const uint8_t *)l->footer.ptr,
                           (const uint8_t *)l->footer.ptr + l->footer.len, false};
    struct thrift_field f;
    int16_t id = 0;

    while (parquet_read_field(&in, &id, &f)) {
        if (f.id == META_SCHEMA && l->columns.len == 0) {
            schema_read(l, &f, &in);
        } else if (f.id == META_GROUPS && l->groups.len == 0) {
            groups_read(l, &f, &in);
        }
    }
    if (in.failed) {
        known_drop(l);
    }
}

/* ---- the file ---- */

void parquet_facts_init(struct parquet_facts *l)
{
    *l = (struct parquet_facts){.fd = -1};
    mr_buf_init(&l->footer, UINT32_MAX);
}

void parquet_facts_fini(struct parquet_facts *l)
{
    if (l->fd >= 0) {
        close(l->fd);
    }
    known_drop(l);
    mr_free(l->path);
    mr_buf_fini(&l->footer);
    parquet_facts_init(l);
}

static int bytes_read(const struct parquet_facts *l, uint64_t at, void *out, size_t n,
                      struct mr_err *err)
{
    for (size_t done = 0; done < n;) {
        const ssize_t got = pread(l->fd, (uint8_t *)out + done, n - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return MR_FAIL(err, MR_E_IO, "cannot read '%s': %s", l->path,
                           got < 0 ? strerror(errno) : "it became shorter");
        }
        done += (size_t)got;
    }
    return MR_OK;
}

int parquet_facts_open(struct parquet_facts *l, const char *path, const char *name,
                       struct mr_err *err)
{
    uint8_t tail[PARQUET_TAIL_BYTES];
    struct stat st;
    int rc;

    l->path = mr_strndup(name, strlen(name));
    l->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (l->fd < 0 || fstat(l->fd, &st) < 0) {
        return MR_FAIL(err, MR_E_IO, "cannot open '%s': %s", name, strerror(errno));
    }
    const uint64_t bytes = (uint64_t)st.st_size;
    if (bytes < PARQUET_HEAD_BYTES + PARQUET_TAIL_BYTES) {
        return MR_OK;
    }
    MR_TRY(bytes_read(l, bytes - sizeof tail, tail, sizeof tail, err));
    const uint32_t len = parquet_footer_bytes(tail);
    if (len == 0 || len > bytes - PARQUET_HEAD_BYTES - PARQUET_TAIL_BYTES) {
        return MR_OK; /* the library will report the error */
    }
    l->data_end = bytes - PARQUET_TAIL_BYTES - len;
    char *room = mr_buf_reserve(&l->footer, len);
    if (!room) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the footer of '%s'", name);
    }
    MR_TRY(bytes_read(l, l->data_end, room, len, err));
    l->footer.len = len;
    footer_parse(l);
out:
    return rc;
}

size_t parquet_facts_group(const struct parquet_facts *l, uint64_t row)
{
    size_t low = 0;
    size_t high = l->groups.len;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (l->groups.at[middle].end > row) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low < l->groups.len ? low : SIZE_MAX;
}

/* ---- pages ---- */

struct window {
    const struct parquet_facts *facts;
    uint8_t *bytes;
    size_t room;
    uint64_t at;
    size_t len;
};

/* Moves the window to `at`: at least one byte, and at least `least` if the data is long enough. */
static int window_move(struct window *w, uint64_t at, size_t least, mr_bytes *out,
                       struct mr_err *err)
{
    const uint64_t left = w->facts->data_end - at;

    if (at < w->at || at >= w->at + w->len || MR_MIN(left, (uint64_t)least) > w->at + w->len - at) {
        if (least > w->room) {
            uint8_t *more = mr_try_realloc(w->bytes, least);
            if (!more) {
                return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for a page's header");
            }
            w->bytes = more;
            w->room = least;
        }
        w->len = 0;
        const size_t n = (size_t)MR_MIN(left, (uint64_t)w->room);
        int rc = bytes_read(w->facts, at, w->bytes, n, err);
        if (rc < 0) {
            return rc;
        }
        w->at = at;
        w->len = n;
    }
    *out = (mr_bytes){w->bytes + (at - w->at), (size_t)(w->at + w->len - at)};
    return MR_OK;
}

struct page {
    size_t header;
    uint64_t bytes;
    bool has_crc;
    uint32_t crc;
};

static bool header_parse(mr_bytes from, struct page *out)
{
    struct thrift_in in = {from.ptr, from.ptr + from.len, false};
    struct thrift_field f;
    int64_t bytes = -1;
    int16_t id = 0;

    *out = (struct page){0};
    while (parquet_read_field(&in, &id, &f)) {
        if (f.id == PAGE_BYTES) {
            bytes = parquet_read_number(&f, &in);
        } else if (f.id == PAGE_CRC) {
            out->crc = (uint32_t)parquet_read_number(&f, &in);
            out->has_crc = true;
        }
    }
    out->header = (size_t)(in.at - from.ptr);
    out->bytes = (uint64_t)bytes;
    return !in.failed && bytes >= 0;
}

static int crc_of(struct window *w, uint64_t at, uint64_t bytes, uint32_t *out, struct mr_err *err)
{
    uLong crc = 0;
    mr_bytes part;

    for (uint64_t done = 0; done < bytes; done += part.len) {
        int rc = window_move(w, at + done, 1, &part, err);
        if (rc < 0) {
            return rc;
        }
        part.len = (size_t)MR_MIN((uint64_t)part.len, bytes - done);
        crc = crc32_z(crc, part.ptr, part.len);
    }
    *out = (uint32_t)crc;
    return MR_OK;
}

static int page_check(struct window *w, uint64_t at, uint64_t *out_end, struct mr_err *err)
{
    const uint64_t data_end = w->facts->data_end;
    const char *wrong = NULL;
    struct page p = {0};
    mr_bytes from;
    size_t want = 1024;
    int rc;

    MR_TRY(window_move(w, at, want, &from, err));
    while (!header_parse(from, &p) && from.len < data_end - at && want < HEADER_MOST) {
        want = MR_MAX(2 * want, 2 * from.len);
        MR_TRY(window_move(w, at, want, &from, err));
    }
    if (!header_parse(from, &p) || p.bytes > data_end - at - p.header) {
        wrong = "has a header that is none";
    } else if (p.has_crc) {
        uint32_t crc;
        MR_TRY(crc_of(w, at + p.header, p.bytes, &crc, err));
        wrong = crc == p.crc ? NULL : "has another checksum than its header says";
    }
    if (wrong) {
        return MR_FAIL(err, MR_E_INVALID, "'%s' is damaged: the page at byte %llu %s",
                       w->facts->path, (unsigned long long)at, wrong);
    }
    *out_end = at + p.header + p.bytes;
out:
    return rc;
}

static const char **names_known(const struct parquet_facts *l, const char *const *names,
                                size_t count, size_t *out_count)
{
    const char **known = MR_NEW_ARRAY(const char *, count + 1);
    size_t n = 0;

    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < l->columns.len; k++) {
            if (strcmp(l->columns.at[k].name, names[i]) == 0) {
                known[n++] = names[i];
                break;
            }
        }
    }
    *out_count = n;
    return known;
}

int parquet_facts_check(struct parquet_facts *l, size_t group, const char *const *names,
                        size_t count, struct mr_err *err)
{
    struct parquet_ranges ranges = {0};
    struct window w = {.facts = l, .room = WINDOW_BYTES};
    size_t known_count;
    int rc = MR_OK;

    struct parquet_group *g = &l->groups.at[group];
    if (g->is_sound) {
        return MR_OK;
    }
    const char **known = names_known(l, names, count, &known_count);
    const uint64_t first = group > 0 ? g[-1].end : 0;
    if (first < g->end && parquet_group_find(g->text, l->data_end, known, known_count, &ranges) &&
        ranges.at.len > 0) {
        w.bytes = mr_try_alloc(w.room);
        rc = w.bytes ? MR_OK : MR_FAIL(err, MR_E_EXHAUSTED, "no memory to check pages");
    }
    for (size_t i = 0; i < ranges.at.len && rc == MR_OK; i++) {
        for (uint64_t at = ranges.at.at[i].first; at < ranges.at.at[i].end && rc == MR_OK;) {
            rc = page_check(&w, at, &at, err);
        }
    }
    if (rc == MR_E_INVALID) {
        rc = mr_err_set(err, rc, MR_HERE, "%s; it belongs to rows %llu to %llu", err->msg,
                        (unsigned long long)first, (unsigned long long)g->end - 1);
    }
    g->is_sound = rc == MR_OK;
    mr_free(w.bytes);
    mr_free(known);
    MR_VEC_FINI(&ranges.at);
    return rc;
}
