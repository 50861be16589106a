/* What both inference fuzz targets do with a message that was decoded: look at every byte of it, encode
 * it again as request and as answer, in each encoding, and compare what comes back. */
#ifndef MR_FUZZ_OIP_H
#define MR_FUZZ_OIP_H

#include "fuzz.h"

#include "base/arena.h"
#include "base/buf.h"
#include "oip/oip.h"
#include "tensor/tensor.h"

static const struct mr_oip_limits fuzz_limits = {
    .max_json_bytes = 1 << 20,
    .max_json_depth = 20,
    .max_tensors = 40,
    .size_option = "--http-max-input-size",
};

static volatile uint64_t fuzz_sink;

static inline void fuzz_touch(const void *data, uint64_t len)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < len; i++) {
        sum += ((const uint8_t *)data)[i];
    }
    fuzz_sink += sum;
}

static inline void fuzz_touch_params(const struct mr_oip_param *params, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        fuzz_touch(params[i].key.ptr, params[i].key.len);
        if (params[i].kind == MR_OIP_STRING) {
            fuzz_touch(params[i].s.ptr, params[i].s.len);
        }
        for (size_t k = 0; k < i; k++) {
            REQUIRE(!mr_str_eq(params[i].key, params[k].key));
        }
    }
}

static inline void fuzz_touch_tensors(const struct mr_oip_tensor *tensors, size_t count)
{
    REQUIRE(count <= fuzz_limits.max_tensors);
    for (size_t i = 0; i < count; i++) {
        const struct mr_tensor *t = &tensors[i].tensor;
        fuzz_touch(tensors[i].name.ptr, tensors[i].name.len);
        fuzz_touch(tensors[i].shm.region.ptr, tensors[i].shm.region.len);
        fuzz_touch_params(tensors[i].params, tensors[i].param_count);
        REQUIRE(t->data || t->bytes == 0);
        REQUIRE(t->rank >= 0 && t->rank <= MR_MAX_RANK);
        fuzz_touch(t->data, t->bytes);
        size_t size = mr_dtype_size(t->dtype);
        REQUIRE(size <= 1 || (uintptr_t)t->data % size == 0);
        uint64_t elements;
        REQUIRE(t->dtype == MR_DTYPE_INVALID ||
                mr_shape_elements(t->shape, t->rank, &elements, NULL) == MR_OK);
    }
}

/* The pieces as one allocation, without their references. */
static inline mr_bytes fuzz_join(const struct mr_oip_encoded *e)
{
    uint8_t *all = malloc(e->bytes ? (size_t)e->bytes : 1);
    size_t len = 0;
    for (size_t i = 0; i < e->piece_count; i++) {
        struct mr_piece piece = e->pieces[i];
        memcpy(all + len, piece.ptr, piece.len);
        len += piece.len;
        mr_block_unref(&piece.block);
    }
    REQUIRE(len == e->bytes);
    return (mr_bytes){all, len};
}

/* NaN has many bit patterns and one JSON word, so floats compare by size there. */
static inline void fuzz_compare(const struct mr_oip_tensor *a, const struct mr_oip_tensor *b,
                                size_t count, bool is_json)
{
    for (size_t i = 0; i < count; i++) {
        const struct mr_tensor *x = &a[i].tensor;
        const struct mr_tensor *y = &b[i].tensor;
        REQUIRE(x->dtype == y->dtype && x->rank == y->rank);
        REQUIRE(x->rank == 0 || memcmp(x->shape, y->shape, (size_t)x->rank * 8) == 0);
        bool is_text = is_json && (x->dtype >= MR_DTYPE_FP16 || x->dtype == MR_DTYPE_BOOL);
        if (a[i].shm.region.ptr || (is_json && x->dtype == MR_DTYPE_BYTES)) {
            continue; /* bytes that are not UTF-8 are replaced */
        }
        REQUIRE(x->bytes == y->bytes);
        REQUIRE(is_text || x->bytes == 0 || memcmp(x->data, y->data, (size_t)x->bytes) == 0);
    }
}

enum { FUZZ_JSON, FUZZ_BINARY, FUZZ_PROTOBUF };

static inline void fuzz_as_response(struct mr_oip_tensor *tensors, size_t count, int as,
                                    struct mr_buf *buf, struct mr_arena *arena)
{
    struct mr_oip_response response = {
        .model_name = MR_STR("m"), .outputs = tensors, .output_count = count};
    struct mr_oip_response got;
    struct mr_oip_encoded e;
    bool is_whole = true;
    for (size_t i = 0; i < count; i++) {
        tensors[i].binary = as == FUZZ_BINARY;
        is_whole &= tensors[i].shm.region.ptr || mr_tensor_is_whole(&tensors[i].tensor);
    }
    int rc = as == FUZZ_PROTOBUF ? mr_oip_pb_encode_response(&response, false, buf, arena, &e, NULL)
                                 : mr_oip_rest_encode_response(&response, buf, arena, &e, NULL);
    if (rc < 0) {
        return; /* data that does not fit its shape */
    }
    mr_bytes body = fuzz_join(&e);
    rc = as == FUZZ_PROTOBUF
             ? mr_oip_pb_decode_response(body, NULL, arena, &got, NULL)
             : mr_oip_rest_decode_response(body, e.header_length, NULL, arena, &got, NULL);
    REQUIRE(is_whole ? rc == MR_OK || rc == MR_E_EXHAUSTED : rc < 0);
    if (rc == MR_OK) {
        REQUIRE(got.output_count == count);
        fuzz_compare(tensors, got.outputs, count, as == FUZZ_JSON);
    }
    free((void *)body.ptr);
}

static inline void fuzz_as_request(struct mr_oip_request *r, int as, struct mr_buf *buf,
                                   struct mr_arena *arena)
{
    struct mr_oip_request got;
    struct mr_oip_encoded e;
    for (size_t i = 0; i < r->input_count; i++) {
        r->inputs[i].binary = as == FUZZ_BINARY;
    }
    int rc = as == FUZZ_PROTOBUF ? mr_oip_pb_encode_request(r, buf, arena, &e, NULL)
                                 : mr_oip_rest_encode_request(r, buf, arena, &e, NULL);
    if (rc < 0) {
        return;
    }
    mr_bytes body = fuzz_join(&e);
    rc = as == FUZZ_PROTOBUF ? mr_oip_pb_decode_request(body, NULL, arena, &got, NULL)
                             : mr_oip_rest_decode_request(body, e.header_length, MR_STR("m"), NULL,
                                                          arena, &got, NULL);
    /* The other wire may know a key that is the model's own on this one, or refuse a value. */
    if (rc == MR_OK) {
        REQUIRE(got.input_count == r->input_count && got.output_count == r->output_count);
        fuzz_compare(r->inputs, got.inputs, got.input_count, as == FUZZ_JSON);
        REQUIRE(got.priority == r->priority && got.sequence_start == r->sequence_start);
    }
    free((void *)body.ptr);
}

static inline void fuzz_use_request(struct mr_oip_request *r, struct mr_arena *arena)
{
    struct mr_buf buf;
    mr_buf_init(&buf, 16 << 20);
    fuzz_touch_tensors(r->inputs, r->input_count);
    fuzz_touch_params(r->params, r->param_count);
    fuzz_touch(r->id.ptr, r->id.len);
    fuzz_touch(r->model_name.ptr, r->model_name.len);
    for (size_t i = 0; i < r->output_count; i++) {
        fuzz_touch(r->outputs[i].name.ptr, r->outputs[i].name.len);
        fuzz_touch_params(r->outputs[i].params, r->outputs[i].param_count);
    }
    for (int as = FUZZ_JSON; as <= FUZZ_PROTOBUF; as++) {
        if (!r->raw_binary) {
            fuzz_as_request(r, as, &buf, arena);
            fuzz_as_response(r->inputs, r->input_count, as, &buf, arena);
        }
    }
    for (size_t i = 0; i < r->input_count && !r->raw_binary; i++) {
        struct mr_tensor top;
        struct mr_oip_tensor in = r->inputs[i];
        in.classification = 3;
        in.batched = i % 2 == 1;
        if (!in.shm.region.ptr && mr_oip_classify(&in, arena, &top, NULL) == MR_OK) {
            fuzz_touch(top.data, top.bytes);
        }
    }
    mr_buf_fini(&buf);
}

#endif
