/* Requests that are joined, and an answer that is cut apart. Input: three lines, two requests and a response, all JSON, followed
 * by the binary data of the response.
 *
 * A joined request has the rows of both and their data one after the other; the parts of an answer lie within it. */
#include "fuzz.h"

#include "batch/requests/join.h"

#define ARENA_MOST ((size_t)64 << 20)

static bool line_take(mr_str *rest, mr_str *out)
{
    const ptrdiff_t end = mr_str_find(*rest, '\n');

    if (end < 0) {
        return false;
    }
    *out = mr_str_sub(*rest, 0, (size_t)end);
    *rest = mr_str_sub(*rest, (size_t)end + 1, rest->len);
    return true;
}

static int64_t joined_check(const struct mr_oip_request *a, const struct mr_oip_request *b,
                            struct mr_arena *arena)
{
    const struct mr_oip_request *const both[] = {a, b};
    struct mr_oip_request joined;
    struct mr_oip_encoded encoded;
    struct mr_buf buf;
    struct mr_err err;

    if (!join_fits(a, b) || join_requests(both, 2, arena, &joined, &err) < 0) {
        return -1;
    }
    for (size_t i = 0; i < joined.input_count; i++) {
        const struct mr_tensor *x = &a->inputs[i].tensor;
        const struct mr_tensor *y = &b->inputs[i].tensor;
        const struct mr_tensor *z = &joined.inputs[i].tensor;
        REQUIRE(z->bytes == x->bytes + y->bytes && z->shape[0] == x->shape[0] + y->shape[0]);
        REQUIRE(x->bytes == 0 || memcmp(z->data, x->data, x->bytes) == 0);
        REQUIRE(y->bytes == 0 || memcmp((char *)z->data + x->bytes, y->data, y->bytes) == 0);
    }
    mr_buf_init(&buf, ARENA_MOST);
    mr_oip_rest_encode_request(&joined, &buf, arena, &encoded, &err);
    mr_buf_fini(&buf);
    REQUIRE(join_rows(&joined) == join_rows(a) + join_rows(b));
    return join_rows(a);
}

static void part_check(const struct mr_oip_response *r, int64_t all, int64_t first, int64_t rows,
                       struct mr_arena *arena)
{
    struct mr_oip_response part;
    struct mr_oip_encoded encoded;
    struct mr_buf buf;
    struct mr_err err;

    if (join_cut(r, all, first, rows, arena, &part, &err) < 0) {
        return;
    }
    for (size_t i = 0; i < part.output_count; i++) {
        const struct mr_tensor *t = &part.outputs[i].tensor;
        const struct mr_tensor *whole = &r->outputs[i].tensor;
        REQUIRE(t->bytes <= whole->bytes);
        REQUIRE(t->bytes == 0 ||
                ((char *)t->data >= (char *)whole->data &&
                 (char *)t->data + t->bytes <= (char *)whole->data + whole->bytes));
    }
    mr_buf_init(&buf, ARENA_MOST);
    mr_oip_rest_encode_response(&part, &buf, arena, &encoded, &err);
    mr_buf_fini(&buf);
}

static void input_check(mr_str rest, struct mr_arena *arena)
{
    const struct mr_oip_limits limits = {.max_json_bytes = 1 << 20};
    struct mr_oip_request a;
    struct mr_oip_request b;
    struct mr_oip_response r;
    struct mr_err err;
    mr_str one;
    mr_str two;
    mr_str three;

    if (!line_take(&rest, &one) || !line_take(&rest, &two) || !line_take(&rest, &three) ||
        mr_oip_rest_decode_request((mr_bytes){(const uint8_t *)one.ptr, one.len}, -1, MR_STR("m"),
                                   &limits, arena, &a, &err) < 0 ||
        mr_oip_rest_decode_request((mr_bytes){(const uint8_t *)two.ptr, two.len}, -1, MR_STR("m"),
                                   &limits, arena, &b, &err) < 0) {
        return;
    }
    const int64_t rows = joined_check(&a, &b, arena);
    const mr_bytes body = {(const uint8_t *)three.ptr, three.len + 1 + rest.len};
    const int64_t length = rest.len > 0 ? (int64_t)three.len + 1 : -1;
    if (mr_oip_rest_decode_response(body, length, &limits, arena, &r, &err) < 0) {
        return;
    }
    const int64_t all = rows < 1 ? 4 : rows + join_rows(&b);
    part_check(&r, all, 0, MR_MAX(rows, INT64_C(1)), arena);
    part_check(&r, all, MR_MAX(rows, INT64_C(1)), all - MR_MAX(rows, INT64_C(1)), arena);
    part_check(&r, all, 0, all, arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mr_arena arena;
    uint8_t *copy = mr_alloc(size + 1); /* aligned, and with nothing after it */

    memcpy(copy, data, size);
    mr_arena_init(&arena, 0, ARENA_MOST);
    input_check(mr_str_n((const char *)copy, size), &arena);
    mr_arena_fini(&arena);
    mr_free(copy);
    return 0;
}
