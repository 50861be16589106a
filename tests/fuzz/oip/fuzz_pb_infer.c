/* ModelInferRequest, ModelInferResponse and ModelStreamInferResponse: any bytes, read as each of them. */
#include "fuzz_oip.h"

static void fuzz_stream_response(mr_bytes message, struct mr_arena *arena)
{
    struct mr_oip_response response;
    bool is_final;
    mr_str error;

    if (mr_oip_pb_decode_stream_response(message, &fuzz_limits, arena, &response, &error, &is_final,
                                         NULL) == MR_OK) {
        fuzz_touch_tensors(response.outputs, response.output_count);
        REQUIRE(error.len <= message.len && (error.len == 0 || is_final));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mr_bytes message = {data, size};
    struct mr_arena arena;
    struct mr_oip_request request;
    struct mr_oip_response response;
    mr_arena_init(&arena, 8192, 8u << 20);
    struct mr_err err = {0};
    int rc = mr_oip_pb_decode_request(message, &fuzz_limits, &arena, &request, &err);
    REQUIRE((rc < 0) == (err.status < 0));
    if (rc == MR_OK) {
        fuzz_use_request(&request, &arena);
    }
    mr_arena_reset(&arena);
    rc = mr_oip_pb_decode_response(message, &fuzz_limits, &arena, &response, NULL);
    if (rc == MR_OK) {
        fuzz_touch_tensors(response.outputs, response.output_count);
        fuzz_touch_params(response.params, response.param_count);
        for (int as = FUZZ_JSON; as <= FUZZ_PROTOBUF; as++) {
            struct mr_buf buf;
            mr_buf_init(&buf, 16 << 20);
            fuzz_as_response(response.outputs, response.output_count, as, &buf, &arena);
            mr_buf_fini(&buf);
        }
    }
    mr_arena_reset(&arena);
    fuzz_stream_response(message, &arena);
    mr_arena_fini(&arena);
    REQUIRE(mr_block_get_stats().out_bytes == 0);
    return 0;
}
