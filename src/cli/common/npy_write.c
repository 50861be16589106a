/* .npy writing. The header is padded so that the data begin at a multiple of 64 bytes, which lets NumPy
 * map them. */
#include <string.h>

#include "npy.h"

#define ALIGNMENT 64
#define PREFIX_1  10
#define PREFIX_2  12

/* The width of the elements of a string array: code points for U, bytes for S. */
static int measure_text(const struct mr_tensor *t, bool *out_utf8, size_t *out_width,
                        struct mr_err *err)
{
    mr_bytes rest = {t->data, t->bytes};
    mr_str element;
    size_t points = 0;
    size_t bytes = 0;

    *out_utf8 = true;
    while (mr_bytes_tensor_next(&rest, &element)) {
        size_t n = 0;
        for (size_t i = 0; i < element.len; i++) {
            n += ((unsigned char)element.ptr[i] & 0xC0) != 0x80;
        }
        *out_utf8 = *out_utf8 && mr_utf8_valid(element);
        points = MR_MAX(points, n);
        bytes = MR_MAX(bytes, element.len);
    }
    if (rest.len) {
        return MR_FAIL(err, MR_E_INVALID, "a BYTES tensor is broken");
    }
    /* NumPy has no strings of width 0. */
    *out_width = MR_MAX(*out_utf8 ? points : bytes, (size_t)1);
    return MR_OK;
}

static const char *numeric_descr(int dtype)
{
    static const char *const names[MR_DTYPE_COUNT] = {
        [MR_DTYPE_BOOL] = "|b1",   [MR_DTYPE_UINT8] = "|u1",  [MR_DTYPE_UINT16] = "<u2",
        [MR_DTYPE_UINT32] = "<u4", [MR_DTYPE_UINT64] = "<u8", [MR_DTYPE_INT8] = "|i1",
        [MR_DTYPE_INT16] = "<i2",  [MR_DTYPE_INT32] = "<i4",  [MR_DTYPE_INT64] = "<i8",
        [MR_DTYPE_FP16] = "<f2",   [MR_DTYPE_FP32] = "<f4",   [MR_DTYPE_FP64] = "<f8",
        [MR_DTYPE_BF16] = "<f4",
    };

    return dtype > 0 && dtype < MR_DTYPE_COUNT ? names[dtype] : NULL;
}

static void put_header(const struct mr_tensor *t, const char *descr, struct mr_buf *out)
{
    struct mr_buf text;
    uint8_t prefix[PREFIX_2] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

    mr_buf_init(&text, 1 << 20);
    mr_buf_printf(&text, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (int i = 0; i < t->rank; i++) {
        mr_buf_printf(&text, "%lld%s", (long long)t->shape[i],
                      t->rank == 1      ? ","
                      : i + 1 < t->rank ? ", "
                                        : "");
    }
    MR_BUF_LIT(&text, "), }");
    bool is_long = text.len + ALIGNMENT + 1 > 65535;
    size_t fixed = is_long ? PREFIX_2 : PREFIX_1;
    while ((fixed + text.len + 1) % ALIGNMENT != 0) {
        mr_buf_char(&text, ' ');
    }
    mr_buf_char(&text, '\n');
    prefix[6] = is_long ? 2 : 1;
    for (size_t i = 0; i < fixed - 8; i++) {
        prefix[8 + i] = (uint8_t)(text.len >> (8 * i));
    }
    mr_buf_append(out, prefix, fixed);
    mr_buf_append(out, text.ptr, text.len);
    mr_buf_fini(&text);
}

/* One code point of valid UTF-8. */
static uint32_t next_point(mr_str s, size_t *io_at)
{
    const unsigned char *p = (const unsigned char *)s.ptr + *io_at;
    int more = p[0] < 0x80 ? 0 : p[0] < 0xE0 ? 1 : p[0] < 0xF0 ? 2 : 3;
    uint32_t c = more == 0 ? p[0] : p[0] & (0x3Fu >> more);

    for (int i = 1; i <= more; i++) {
        c = c << 6 | (p[i] & 0x3F);
    }
    *io_at += (size_t)more + 1;
    return c;
}

static void put_text(mr_str element, bool utf8, size_t width, struct mr_buf *out)
{
    size_t n = 0;

    if (!utf8) {
        mr_buf_append(out, element.ptr, element.len);
        for (n = element.len; n < width; n++) {
            mr_buf_char(out, '\0');
        }
        return;
    }
    for (size_t at = 0; at < element.len; n++) {
        uint32_t c = next_point(element, &at);
        mr_buf_append(out, &c, sizeof c);
    }
    for (uint32_t zero = 0; n < width; n++) {
        mr_buf_append(out, &zero, sizeof zero);
    }
}

static int write_text(const struct mr_tensor *t, struct mr_buf *out, struct mr_err *err)
{
    mr_bytes rest = {t->data, t->bytes};
    mr_str element;
    bool utf8;
    size_t width = 1;
    char descr[32];
    int rc = measure_text(t, &utf8, &width, err);

    if (rc < 0) {
        return rc;
    }
    snprintf(descr, sizeof descr, utf8 ? "<U%zu" : "|S%zu", width);
    put_header(t, descr, out);
    while (mr_bytes_tensor_next(&rest, &element)) {
        put_text(element, utf8, width, out);
    }
    return MR_OK;
}

int mr_npy_write(const struct mr_tensor *t, struct mr_buf *out, struct mr_err *err)
{
    const char *descr = numeric_descr(t->dtype);
    int rc = MR_OK;

    if (t->dtype == MR_DTYPE_BYTES) {
        rc = write_text(t, out, err);
    } else if (!descr) {
        return MR_FAIL(err, MR_E_INVALID, "a tensor without type");
    } else {
        put_header(t, descr, out);
        if (t->dtype == MR_DTYPE_BF16) {
            for (uint64_t i = 0; i + 2 <= t->bytes; i += 2) {
                uint16_t h;
                memcpy(&h, (const char *)t->data + i, sizeof h);
                float f = mr_bf16_to_float(h);
                mr_buf_append(out, &f, sizeof f);
            }
        } else {
            mr_buf_append(out, t->data, t->bytes);
        }
    }
    if (rc == MR_OK && out->failed) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "the array is too large");
    }
    return rc;
}
