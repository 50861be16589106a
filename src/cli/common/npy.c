/* .npy reading. A file begins with a magic, a version, the length of a header, and the header, which is
 * the text of a Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
 * Files are not trusted, so sizes are computed with overflow checks and compared with the file's size before an
 * allocation. */
#include "npy.h"

#include <string.h>

struct header {
    char kind; /* b i u f S U */
    size_t width;
    bool swap;
    bool fortran;
    int rank;
    int64_t shape[MR_MAX_RANK];
};

void mr_array_init(struct mr_array *a)
{
    memset(a, 0, sizeof *a);
    mr_buf_init(&a->data, (size_t)8 << 30);
}

void mr_array_fini(struct mr_array *a)
{
    mr_buf_fini(&a->data);
}

void mr_array_add_bytes(struct mr_array *a, const void *data, size_t len)
{
    uint32_t n = (uint32_t)len;

    mr_buf_append(&a->data, &n, sizeof n);
    mr_buf_append(&a->data, data, len);
}

/* ---- header ---- */

struct scan {
    mr_str rest;
    struct mr_err *err;
};

static int bad(struct scan *s, const char *what)
{
    return MR_FAIL(s->err, MR_E_INVALID, "not a .npy file: %s", what);
}

static void skip_blanks(struct scan *s)
{
    s->rest = mr_str_trim(s->rest);
}

static bool take(struct scan *s, char c)
{
    skip_blanks(s);
    if (s->rest.len == 0 || s->rest.ptr[0] != c) {
        return false;
    }
    s->rest = mr_str_sub(s->rest, 1, s->rest.len);
    return true;
}

static int take_string(struct scan *s, mr_str *out)
{
    skip_blanks(s);
    if (s->rest.len < 2 || (s->rest.ptr[0] != '\'' && s->rest.ptr[0] != '"')) {
        return bad(s, "header: string expected");
    }
    char quote = s->rest.ptr[0];
    mr_str inside = mr_str_sub(s->rest, 1, s->rest.len);
    ptrdiff_t end = mr_str_find(inside, quote);
    if (end < 0) {
        return bad(s, "header: unfinished string");
    }
    *out = mr_str_sub(inside, 0, (size_t)end);
    s->rest = mr_str_sub(inside, (size_t)end + 1, inside.len);
    return MR_OK;
}

static mr_str take_word(struct scan *s)
{
    size_t n = 0;

    skip_blanks(s);
    while (n < s->rest.len && ((s->rest.ptr[n] | 32) >= 'a' && (s->rest.ptr[n] | 32) <= 'z')) {
        n++;
    }
    mr_str word = mr_str_sub(s->rest, 0, n);
    s->rest = mr_str_sub(s->rest, n, s->rest.len);
    return word;
}

static int take_dim(struct scan *s, int64_t *out)
{
    size_t n = 0;

    skip_blanks(s);
    while (n < s->rest.len && s->rest.ptr[n] >= '0' && s->rest.ptr[n] <= '9') {
        n++;
    }
    if (!mr_str_to_i64(mr_str_sub(s->rest, 0, n), out)) {
        return bad(s, "header: bad shape");
    }
    s->rest = mr_str_sub(s->rest, n, s->rest.len);
    take(s, 'L'); /* the suffix of long numbers in Python 2 */
    return MR_OK;
}

static int take_shape(struct scan *s, struct header *h)
{
    int rc;

    if (!take(s, '(')) {
        return bad(s, "header: bad shape");
    }
    h->rank = 0;
    while (!take(s, ')')) {
        if (h->rank == MR_MAX_RANK) {
            return MR_FAIL(s->err, MR_E_UNSUPPORTED, "an array of more than %d dimensions",
                           MR_MAX_RANK);
        }
        if ((rc = take_dim(s, &h->shape[h->rank])) < 0) {
            return rc;
        }
        h->rank++;
        if (!take(s, ',') && !(s->rest.len && s->rest.ptr[0] == ')')) {
            return bad(s, "header: bad shape");
        }
    }
    return MR_OK;
}

/* '<f4', '|u1', '>i8', '<U12' */
static int parse_descr(struct scan *s, mr_str descr, struct header *h)
{
    uint64_t width;

    if (descr.len < 3 || !mr_str_to_u64(mr_str_sub(descr, 2, descr.len), &width) ||
        width > (1u << 30)) {
        return MR_FAIL(s->err, MR_E_UNSUPPORTED, "arrays of type '%.*s' are not read",
                       MR_STR_ARG(mr_str_sub(descr, 0, 60)));
    }
    h->kind = descr.ptr[1];
    h->width = (size_t)width;
    h->swap = descr.ptr[0] == '>';
    return MR_OK;
}

static int parse_member(struct scan *s, mr_str key, struct header *h)
{
    mr_str descr;
    int rc;

    if (mr_str_eq_c(key, "descr")) {
        rc = take_string(s, &descr);
        return rc < 0 ? MR_FAIL(s->err, MR_E_UNSUPPORTED, "arrays of structures are not read")
                      : parse_descr(s, descr, h);
    }
    if (mr_str_eq_c(key, "fortran_order")) {
        mr_str word = take_word(s);
        h->fortran = mr_str_eq_c(word, "True");
        return h->fortran || mr_str_eq_c(word, "False") ? MR_OK : bad(s, "header: bad order");
    }
    if (mr_str_eq_c(key, "shape")) {
        return take_shape(s, h);
    }
    return bad(s, "header: unknown key");
}

static int parse_header(mr_str text, struct header *h, struct mr_err *err)
{
    struct scan s = {text, err};
    mr_str key;
    int found = 0;
    int rc = MR_OK;

    if (!take(&s, '{')) {
        return bad(&s, "no header");
    }
    while (!take(&s, '}')) {
        MR_TRY(take_string(&s, &key));
        if (!take(&s, ':')) {
            return bad(&s, "header: ':' expected");
        }
        MR_TRY(parse_member(&s, key, h));
        found++;
        if (!take(&s, ',') && !(s.rest.len && s.rest.ptr[0] == '}')) {
            return bad(&s, "header: ',' expected");
        }
    }
    rc = found == 3 ? MR_OK : bad(&s, "header: descr, fortran_order and shape expected");
out:
    return rc;
}

/* ---- data ---- */

static int dtype_of(const struct header *h)
{
    static const struct {
        char kind;
        size_t width;
        int dtype;
    } map[] = {
        {'b', 1, MR_DTYPE_BOOL},   {'u', 1, MR_DTYPE_UINT8},  {'u', 2, MR_DTYPE_UINT16},
        {'u', 4, MR_DTYPE_UINT32}, {'u', 8, MR_DTYPE_UINT64}, {'i', 1, MR_DTYPE_INT8},
        {'i', 2, MR_DTYPE_INT16},  {'i', 4, MR_DTYPE_INT32},  {'i', 8, MR_DTYPE_INT64},
        {'f', 2, MR_DTYPE_FP16},   {'f', 4, MR_DTYPE_FP32},   {'f', 8, MR_DTYPE_FP64},
    };

    if (h->kind == 'S' || h->kind == 'U') {
        return MR_DTYPE_BYTES;
    }
    for (size_t i = 0; i < sizeof map / sizeof *map; i++) {
        if (map[i].kind == h->kind && map[i].width == h->width) {
            return map[i].dtype;
        }
    }
    return MR_DTYPE_INVALID;
}

static void put_utf8(struct mr_buf *b, uint32_t c)
{
    if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) {
        c = 0xFFFD;
    }
    if (c < 0x80) {
        mr_buf_char(b, (char)c);
    } else if (c < 0x800) {
        mr_buf_char(b, (char)(0xC0 | c >> 6));
        mr_buf_char(b, (char)(0x80 | (c & 0x3F)));
    } else if (c < 0x10000) {
        mr_buf_char(b, (char)(0xE0 | c >> 12));
        mr_buf_char(b, (char)(0x80 | (c >> 6 & 0x3F)));
        mr_buf_char(b, (char)(0x80 | (c & 0x3F)));
    } else {
        mr_buf_char(b, (char)(0xF0 | c >> 18));
        mr_buf_char(b, (char)(0x80 | (c >> 12 & 0x3F)));
        mr_buf_char(b, (char)(0x80 | (c >> 6 & 0x3F)));
        mr_buf_char(b, (char)(0x80 | (c & 0x3F)));
    }
}

/* Adds one element of a string array, without the NULs that pad it. */
static void add_text(struct mr_array *out, const struct header *h, const uint8_t *p,
                     struct mr_buf *scratch)
{
    size_t n = h->width;

    if (h->kind == 'S') {
        while (n > 0 && p[n - 1] == 0) {
            n--;
        }
        mr_array_add_bytes(out, p, n);
        return;
    }
    mr_buf_reset(scratch);
    for (size_t i = 0; i < n; i++, p += 4) {
        uint32_t c = h->swap
                         ? (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]
                         : (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
        put_utf8(scratch, c);
    }
    while (scratch->len > 0 && scratch->ptr[scratch->len - 1] == '\0') {
        scratch->len--;
    }
    mr_array_add_bytes(out, scratch->ptr, scratch->len);
}

static void add_number(struct mr_array *out, const struct header *h, const uint8_t *p)
{
    uint8_t bytes[8];

    for (size_t i = 0; i < h->width; i++) {
        bytes[i] = p[h->swap ? h->width - 1 - i : i];
    }
    if (out->dtype == MR_DTYPE_BOOL) {
        bytes[0] = bytes[0] != 0;
    }
    mr_buf_append(&out->data, bytes, h->width);
}

/* Copies the elements in row-major order, whatever their order in the file. */
static void copy_elements(struct mr_array *out, const struct header *h, const uint8_t *data,
                          uint64_t count, size_t step)
{
    int64_t index[MR_MAX_RANK] = {0};
    uint64_t stride[MR_MAX_RANK];
    uint64_t at = 1;
    struct mr_buf scratch;

    for (int i = 0; i < h->rank; i++) {
        int d = h->fortran ? i : h->rank - 1 - i;
        stride[d] = at;
        at *= (uint64_t)h->shape[d];
    }
    mr_buf_init(&scratch, 0);
    for (uint64_t n = 0; n < count; n++) {
        uint64_t element = 0;
        for (int d = 0; d < h->rank; d++) {
            element += (uint64_t)index[d] * stride[d];
        }
        const uint8_t *p = data + element * step;
        if (out->dtype == MR_DTYPE_BYTES) {
            add_text(out, h, p, &scratch);
        } else {
            add_number(out, h, p);
        }
        for (int d = h->rank - 1; d >= 0 && ++index[d] == h->shape[d]; d--) {
            index[d] = 0;
        }
    }
    mr_buf_fini(&scratch);
}

static int read_data(const struct header *h, mr_bytes data, struct mr_array *out,
                     struct mr_err *err)
{
    uint64_t count;
    size_t bytes = 0;
    size_t step = h->kind == 'U' ? h->width * 4 : h->width;
    int rc = mr_shape_elements(h->shape, h->rank, &count, err);

    if (rc < 0) {
        return rc;
    }
    out->dtype = dtype_of(h);
    if (out->dtype == MR_DTYPE_INVALID) {
        return MR_FAIL(err, MR_E_UNSUPPORTED, "arrays of type '%c%zu' are not read", h->kind,
                       h->width);
    }
    if (!mr_size_mul(count, step, &bytes) || bytes > data.len) {
        return MR_FAIL(err, MR_E_INVALID,
                       "damaged .npy file: %zu bytes of data, fewer than its shape says", data.len);
    }
    if (bytes == 0 && count > data.len + 1) {
        return MR_FAIL(err, MR_E_INVALID, "damaged .npy file: elements without size");
    }
    out->rank = h->rank;
    memcpy(out->shape, h->shape, sizeof out->shape);
    bool plain =
        !h->swap && !h->fortran && out->dtype != MR_DTYPE_BYTES && out->dtype != MR_DTYPE_BOOL;
    if (plain) {
        mr_buf_append(&out->data, data.ptr, bytes);
    } else {
        copy_elements(out, h, data.ptr, count, step);
    }
    return out->data.failed ? MR_FAIL(err, MR_E_TOO_LARGE, "the array is too large") : MR_OK;
}

int mr_npy_parse(mr_bytes file, struct mr_array *out, struct mr_err *err)
{
    static const uint8_t magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
    struct header h = {0};
    struct scan s = {{NULL, 0}, err};
    size_t prefix;
    size_t len;
    int rc;

    if (file.len < 12 || memcmp(file.ptr, magic, sizeof magic) != 0) {
        return bad(&s, "no magic");
    }
    if (file.ptr[6] == 1) {
        prefix = 10;
        len = (size_t)file.ptr[8] | (size_t)file.ptr[9] << 8;
    } else if (file.ptr[6] == 2 || file.ptr[6] == 3) {
        prefix = 12;
        len = (size_t)file.ptr[8] | (size_t)file.ptr[9] << 8 | (size_t)file.ptr[10] << 16 |
              (size_t)file.ptr[11] << 24;
    } else {
        return MR_FAIL(err, MR_E_UNSUPPORTED, ".npy version %u is not known", file.ptr[6]);
    }
    if (len > file.len - prefix) {
        return bad(&s, "its header is longer than the file");
    }
    rc = parse_header(mr_str_n((const char *)file.ptr + prefix, len), &h, err);
    if (rc < 0) {
        return rc;
    }
    return read_data(&h, (mr_bytes){file.ptr + prefix + len, file.len - prefix - len}, out, err);
}
