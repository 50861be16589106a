#include "fields.h"

#include <string.h>
#include <unistd.h>

static int byte_next(struct onnx_reader *r, struct onnx_slice *s, uint8_t *out)
{
    if (s->at >= s->end) {
        return 0;
    }
    if (s->at < r->base || s->at - r->base >= r->have) {
        ssize_t n = pread(r->fd, r->window, sizeof r->window, (off_t)s->at);
        r->base = s->at;
        r->have = n > 0 ? (uint64_t)n : 0;
        if (n <= 0) {
            return 0;
        }
    }
    *out = r->window[s->at++ - r->base];
    return 1;
}

int onnx_varint_read(struct onnx_reader *r, struct onnx_slice *s, uint64_t *out)
{
    uint64_t v = 0;
    uint8_t b;
    for (int shift = 0; shift < 64 && byte_next(r, s, &b); shift += 7) {
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) {
            *out = v;
            return 1;
        }
    }
    return 0;
}

int onnx_field_next(struct onnx_reader *r, struct onnx_slice *s, struct onnx_field *f)
{
    uint64_t tag;
    uint64_t n = 0;

    f->whole.at = s->at;
    f->value = 0;
    /* Readers that keep only 32 bits of a longer tag would see another field. */
    if (!onnx_varint_read(r, s, &tag) || tag > UINT32_MAX || tag >> 3 == 0) {
        return 0;
    }
    f->number = (uint32_t)tag >> 3;
    f->has_bytes = (tag & 7) == 2;
    switch (tag & 7) {
    case 0:
        if (!onnx_varint_read(r, s, &f->value)) {
            return 0;
        }
        break;
    case 1: n = 8; break;
    case 2:
        if (!onnx_varint_read(r, s, &n)) {
            return 0;
        }
        break;
    case 5: n = 4; break;
    default: return 0;
    }
    if (n > s->end - s->at) {
        return 0;
    }
    f->bytes = (struct onnx_slice){s->at, s->at + n};
    s->at += n;
    f->whole.end = s->at;
    return 1;
}

int onnx_text_read(struct onnx_reader *r, struct onnx_slice s, char *out, size_t room)
{
    uint64_t n = s.end - s.at;
    if (n >= room) {
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        if (!byte_next(r, &s, (uint8_t *)&out[i]) || !out[i]) {
            return 0;
        }
    }
    out[n] = '\0';
    return 1;
}
