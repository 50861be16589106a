/* REST inference bodies, with and without binary data, as a server and as a client read them, and as requests of
 * generate. The first two bytes of the input choose the header length: 0xffff means none was sent, anything else is taken
 * modulo the length of the body plus two, so that one too many is among the choices. */
#include "fuzz_oip.h"

/* What generate makes of a body is a request, with which the decoder may find fault, but not with its JSON. */
static void generate(mr_bytes body, struct mr_arena *arena)
{
    static const struct mr_oip_io inputs[] = {
        {.name = MR_STR_INIT("A"), .dtype = MR_DTYPE_FP32, .rank = 2, .shape = {-1, -1}},
        {.name = MR_STR_INIT("B"), .dtype = MR_DTYPE_BYTES, .rank = 2, .shape = {-1, 1}},
        {.name = MR_STR_INIT("C"), .dtype = MR_DTYPE_BOOL, .rank = 3, .shape = {-1, 2, -1}},
    };
    struct mr_oip_request request;
    struct mr_err err = {0};
    struct mr_buf out;

    mr_buf_init(&out, 0);
    int rc = mr_oip_generate_request(body, inputs, 3, arena, &out, &err);
    REQUIRE((rc < 0) == (err.status < 0));
    if (rc == MR_OK) {
        rc = mr_oip_rest_decode_request((mr_bytes){(uint8_t *)out.ptr, out.len}, -1, MR_STR("m"),
                                        &fuzz_limits, arena, &request, &err);
        REQUIRE(!strstr(err.msg, "failed to parse"));
    }
    if (rc == MR_OK) {
        fuzz_use_request(&request, arena);
    }
    mr_buf_fini(&out);
    mr_arena_reset(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    mr_bytes body = {data + 2, size - 2};
    unsigned choice = data[0] | (unsigned)data[1] << 8;
    int64_t header_length = choice == 0xffff ? -1 : (int64_t)(choice % (body.len + 2));
    struct mr_arena arena;
    struct mr_oip_request request;
    struct mr_oip_response response;
    mr_arena_init(&arena, 8192, 8u << 20);
    int rc = mr_oip_rest_decode_request(body, header_length, MR_STR("m"), &fuzz_limits, &arena,
                                        &request, NULL);
    if (rc == MR_OK) {
        fuzz_use_request(&request, &arena);
    }
    mr_arena_reset(&arena);
    generate(body, &arena);
    struct mr_err err = {0};
    rc = mr_oip_rest_decode_response(body, header_length, &fuzz_limits, &arena, &response, &err);
    REQUIRE((rc < 0) == (err.status < 0));
    if (rc == MR_OK) {
        fuzz_touch_tensors(response.outputs, response.output_count);
        fuzz_touch_params(response.params, response.param_count);
    }
    mr_arena_fini(&arena);
    REQUIRE(mr_block_get_stats().out_bytes == 0);
    return 0;
}
