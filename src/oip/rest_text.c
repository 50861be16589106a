/* Tensor elements as JSON text.
 *
 * One loop per type writes straight into reserved room, a block of elements at a time, so that the
 * buffer's limit is asked once per block and a large tensor does not reserve for the worst case of all
 * its elements. Between blocks the turn may end and long text leaves the buffer. Floats come out as the shortest text that reads back the same and does not look like an
 * integer; FP16 and BF16 as the float they are. Any thread. */
#include <math.h>

#include "codec/json.h"
#include "oip_priv.h"

#define BLOCK_ELEMENTS 256
#define STRING_PART    ((size_t)16 * 1024) /* of a long string, written without a look at the turn */
#define INT_TEXT_MAX   21                  /* a 64-bit integer with sign, and the comma */
#define FLOAT_TEXT_MAX 35                  /* 32, ".0" and the comma */

static char *bool_text(char *p, uint8_t v)
{
    memcpy(p, v ? "true" : "false", 5);
    return p + (v ? 4 : 5);
}

static char *word_text(char *p, double v)
{
    const char *word = isnan(v) ? "NaN" : v > 0 ? "Infinity" : "-Infinity";
    size_t len = strlen(word);
    memcpy(p, word, len);
    return p + len;
}

/* "2" becomes "2.0": many clients take the type of an element from its text, as Triton's may. */
static char *point_add(char *begin, char *end)
{
    for (const char *at = begin; at < end; at++) {
        if (*at == '.' || *at == 'e') {
            return end;
        }
    }
    memcpy(end, ".0", 2);
    return end + 2;
}

static char *float_text(char *p, float v)
{
    return isfinite(v) ? point_add(p, p + mr_float_text(v, p)) : word_text(p, v);
}

static char *double_text(char *p, double v)
{
    return isfinite(v) ? point_add(p, p + mr_double_text(v, p)) : word_text(p, v);
}

static char *half_text(char *p, uint16_t v)
{
    return float_text(p, mr_fp16_to_float(v));
}

static char *bfloat_text(char *p, uint16_t v)
{
    return float_text(p, mr_bf16_to_float(v));
}

/* n elements, each followed by a comma. */
#define TEXT_LOOP(name, type, element_text)                                                        \
    static char *name(char *p, const void *data, uint64_t n)                                       \
    {                                                                                              \
        const type *at = data;                                                                     \
        for (uint64_t i = 0; i < n; i++) {                                                         \
            p = element_text(p, at[i]);                                                            \
            *p++ = ',';                                                                            \
        }                                                                                          \
        return p;                                                                                  \
    }
TEXT_LOOP(bools_text, uint8_t, bool_text)
TEXT_LOOP(u8s_text, uint8_t, mr_u64_put)
TEXT_LOOP(u16s_text, uint16_t, mr_u64_put)
TEXT_LOOP(u32s_text, uint32_t, mr_u64_put)
TEXT_LOOP(u64s_text, uint64_t, mr_u64_put)
TEXT_LOOP(i8s_text, int8_t, mr_i64_put)
TEXT_LOOP(i16s_text, int16_t, mr_i64_put)
TEXT_LOOP(i32s_text, int32_t, mr_i64_put)
TEXT_LOOP(i64s_text, int64_t, mr_i64_put)
TEXT_LOOP(halves_text, uint16_t, half_text)
TEXT_LOOP(floats_text, float, float_text)
TEXT_LOOP(doubles_text, double, double_text)
TEXT_LOOP(bfloats_text, uint16_t, bfloat_text)

/* Where to cut a string so that no character is: before the bytes that only continue one. */
static const char *part_end(const char *p, const char *end)
{
    if ((size_t)(end - p) <= STRING_PART) {
        return end;
    }
    const char *cut = p + STRING_PART;
    for (int i = 0; i < 3 && ((unsigned char)*cut & 0xc0) == 0x80; i++) {
        cut--;
    }
    return cut;
}

static void string_text(struct mr_oip_out *o, mr_str s)
{
    const char *p = s.ptr;
    const char *end = s.ptr + s.len;
    mr_buf_char(o->buf, '"');
    while (p < end) {
        const char *cut = part_end(p, end);
        mr_json_put_part(o->buf, p, cut);
        if (!mr_oip_out_spill(o, (uint64_t)(cut - p))) {
            return;
        }
        p = cut;
    }
    mr_buf_char(o->buf, '"');
}

static void strings_text(struct mr_oip_out *o, const struct mr_tensor *t)
{
    mr_bytes rest = {t->data, (size_t)t->bytes};
    mr_str element;
    bool first = true;
    while (mr_bytes_tensor_next(&rest, &element) && mr_oip_out_spill(o, 16)) {
        if (!first) {
            mr_buf_char(o->buf, ',');
        }
        first = false;
        string_text(o, element);
    }
}

void mr_oip_text_elements(struct mr_oip_out *o, const struct mr_tensor *t, uint64_t elements)
{
    typedef char *(text_fn)(char *p, const void *data, uint64_t n);
    static text_fn *const loops[MR_DTYPE_COUNT] = {
        [MR_DTYPE_BOOL] = bools_text,   [MR_DTYPE_UINT8] = u8s_text,
        [MR_DTYPE_UINT16] = u16s_text,  [MR_DTYPE_UINT32] = u32s_text,
        [MR_DTYPE_UINT64] = u64s_text,  [MR_DTYPE_INT8] = i8s_text,
        [MR_DTYPE_INT16] = i16s_text,   [MR_DTYPE_INT32] = i32s_text,
        [MR_DTYPE_INT64] = i64s_text,   [MR_DTYPE_FP16] = halves_text,
        [MR_DTYPE_FP32] = floats_text,  [MR_DTYPE_FP64] = doubles_text,
        [MR_DTYPE_BF16] = bfloats_text,
    };
    if (t->dtype == MR_DTYPE_BYTES) {
        strings_text(o, t);
        return;
    }
    bool is_float = t->dtype >= MR_DTYPE_FP16; /* FP16, FP32, FP64, BF16 */
    size_t size = mr_dtype_size(t->dtype);
    const char *data = t->data;
    while (elements > 0) {
        uint64_t n = MR_MIN(elements, (uint64_t)BLOCK_ELEMENTS);
        char *p = mr_buf_reserve(o->buf, (size_t)n * (is_float ? FLOAT_TEXT_MAX : INT_TEXT_MAX));
        if (!p) {
            return;
        }
        elements -= n;
        char *end = loops[t->dtype](p, data, n);
        o->buf->len += (size_t)(end - p) - (elements == 0); /* no comma after the last one */
        data += n * size;
        if (!mr_oip_out_spill(o, n * 32)) {
            return;
        }
    }
}
