/* BYTES tensors: elements one after the other, each a 4-byte little-endian length and that many
 * bytes (Open Inference Protocol, "Binary Tensor Data Extension"). The data comes from peers and backends and is not
 * trusted. */
#include <inttypes.h>

#include "base/turn.h"
#include "tensor/tensor.h"

#define LENGTH_BYTES  4
#define STEP_ELEMENTS 512 /* walked between two calls of mr_turn_spend */

bool mr_bytes_tensor_next(mr_bytes *io_rest, mr_str *out_element)
{
    const uint8_t *p = io_rest->ptr;

    if (io_rest->len < LENGTH_BYTES) {
        return false;
    }
    uint32_t len =
        (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    if (len > io_rest->len - LENGTH_BYTES) {
        return false;
    }
    *out_element = mr_str_n((const char *)p + LENGTH_BYTES, len);
    io_rest->ptr += LENGTH_BYTES + (size_t)len;
    io_rest->len -= LENGTH_BYTES + (size_t)len;
    return true;
}

int mr_bytes_tensor_check(mr_bytes data, uint64_t elements, struct mr_err *err)
{
    mr_bytes rest = data;
    mr_str element;
    uint64_t count = 0;

    while (count < elements && mr_bytes_tensor_next(&rest, &element)) {
        count++;
        if (count % STEP_ELEMENTS == 0 && !mr_turn_spend((uint64_t)8 * STEP_ELEMENTS)) {
            return MR_FAIL(err, MR_E_CANCELLED, "ended");
        }
    }
    if (count < elements) {
        return MR_FAIL(
            err, MR_E_INVALID,
            "BYTES data holds %" PRIu64 " whole elements in %zu bytes, expected %" PRIu64 "%s",
            count, data.len, elements, rest.len ? ": an element's length passes the end" : "");
    }
    if (rest.len) {
        return MR_FAIL(err, MR_E_INVALID,
                       "BYTES data has %zu bytes too many after its %" PRIu64 " elements", rest.len,
                       elements);
    }
    return MR_OK;
}

bool mr_tensor_is_whole(const struct mr_tensor *t)
{
    uint64_t elements, bytes;

    if (t->dtype == MR_DTYPE_BYTES) {
        return mr_shape_elements(t->shape, t->rank, &elements, NULL) == MR_OK &&
               mr_bytes_tensor_check((mr_bytes){t->data, (size_t)t->bytes}, elements, NULL) ==
                   MR_OK;
    }
    return mr_shape_bytes(t->dtype, t->shape, t->rank, &bytes, NULL) == MR_OK && bytes == t->bytes;
}
