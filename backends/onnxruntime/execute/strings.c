/* BYTES tensors (each element a 4-byte little-endian length and that many bytes) and ONNX Runtime's
 * string tensors. Elements may hold any bytes, zero included. Thread: any. */
#include "onnxruntime/session/onnx.h"

static uint32_t length_read(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void length_write(uint8_t *p, uint32_t n)
{
    p[0] = (uint8_t)n;
    p[1] = (uint8_t)(n >> 8);
    p[2] = (uint8_t)(n >> 16);
    p[3] = (uint8_t)(n >> 24);
}

static int elements_fill(OrtValue *value, const struct mr_tensor *t, uint64_t count,
                         struct mr_err *err)
{
    const uint8_t *p = t->data;
    uint64_t left = t->bytes;
    int rc = MR_OK;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t n = left >= 4 ? length_read(p) : 0;
        char *to = NULL;
        if (left < 4 || n > left - 4) {
            return mr_backend_fail(err, MR_E_INVALID, "a BYTES input ends inside element %llu",
                                   (unsigned long long)i);
        }
        ONNX_TRY(GetResizedStringTensorElementBuffer(value, i, n, &to));
        if (n > 0) {
            memcpy(to, p + 4, n);
        }
        p += 4 + n;
        left -= 4 + n;
    }
    if (left > 0) {
        rc = mr_backend_fail(err, MR_E_INVALID, "a BYTES input has %llu bytes after its elements",
                             (unsigned long long)left);
    }
out:
    return rc;
}

int onnx_strings_in(struct onnx_backend *b, const struct mr_tensor *t, OrtValue **out,
                    struct mr_err *err)
{
    OrtValue *value = NULL;
    uint64_t count = 0;
    int rc;
    if (!onnx_shape_bytes(t->shape, t->rank, 1, &count) || count > t->bytes / 4) {
        return mr_backend_fail(err, MR_E_INVALID, "a BYTES input is shorter than its shape says");
    }
    ONNX_TRY(CreateTensorAsOrtValue(b->allocator, t->shape, (size_t)t->rank,
                                    ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING, &value));
    rc = elements_fill(value, t, count, err);
    if (rc == MR_OK) {
        *out = value;
        value = NULL;
    }
out:
    if (value) {
        onnx_api->ReleaseValue(value);
    }
    return rc;
}

static int offsets_reserve(struct onnx_instance *inst, uint64_t count, struct mr_err *err)
{
    if (count <= inst->offset_cap) {
        return MR_OK;
    }
    size_t *grown = reallocarray(inst->offsets, count, sizeof *grown);
    if (!grown) {
        return mr_backend_fail(err, MR_E_NOMEM, "out of memory");
    }
    inst->offsets = grown;
    inst->offset_cap = count;
    return MR_OK;
}

/* The texts are contiguous after room for all lengths; moving them forward one by one encodes them in place: element
 * i never moves past the start of element i + 1. */
static int elements_spread(uint8_t *data, const size_t *offsets, uint64_t count,
                           uint64_t text_bytes, struct mr_err *err)
{
    const uint8_t *texts = data + 4 * count;
    uint8_t *to = data;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t end = i + 1 < count ? offsets[i + 1] : text_bytes;
        const uint64_t n = end - offsets[i];
        if (n > UINT32_MAX) {
            return mr_backend_fail(err, MR_E_TOO_LARGE, "an output string has more than 4 GiB");
        }
        memmove(to + 4, texts + offsets[i], n);
        length_write(to, (uint32_t)n);
        to += 4 + n;
    }
    return MR_OK;
}

int onnx_strings_out(struct onnx_instance *inst, struct mr_exec *exec, uint32_t index,
                     const OrtValue *value, int32_t rank, const int64_t *dims, struct mr_err *err)
{
    uint64_t count = 0;
    size_t text_bytes = 0;
    void *data = NULL;
    int rc;
    if (!onnx_shape_bytes(dims, rank, 1, &count)) {
        return mr_backend_fail(err, MR_E_INTERNAL, "a string output has an impossible shape");
    }
    ONNX_TRY(GetStringTensorDataLength(value, &text_bytes));
    if ((rc = offsets_reserve(inst, count, err)) < 0) {
        goto out;
    }
    rc = onnx_host->output(exec, index, MR_DTYPE_BYTES, rank, dims, text_bytes + 4 * count, &data,
                           err);
    if (rc < 0 || count == 0) {
        goto out;
    }
    ONNX_TRY(GetStringTensorContent(value, (uint8_t *)data + 4 * count, text_bytes, inst->offsets,
                                    count));
    rc = elements_spread(data, inst->offsets, count, text_bytes, err);
out:
    return rc;
}
