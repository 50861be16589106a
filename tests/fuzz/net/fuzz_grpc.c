/* Messages of gRPC, server side: the five-byte prefix, compressed and plain messages, collected and as
 * they come; and what is made of a compressed body of REST.
 *
 *   byte 0   bits 0 and 1: encoding of the messages (3: none is named); bit 2: the input is plain and is
 *            framed here, so that valid frames are common; bit 3: one byte of them is changed after that;
 *            bits 4 to 7: not 0 = an allocation fails, the later the larger
 *   byte 1   how input is cut: 0 = at once, else pieces of that many bytes
 *
 * Input that is framed here: messages of [length, flag, bytes…]; without damage they must come out again. */
#include "fuzz.h"

#include "../unit/net/pack.h"
#include "base/mem.h"
#include "net/compress.h"
#include "net/frame/grpc_frame.h"
#include "net/server/call.h"

#define MESSAGE_MAX 5000

struct got {
    size_t count;
    uint64_t sum;
};

static uint64_t add(uint64_t sum, mr_bytes b)
{
    for (size_t i = 0; i < b.len; i++) {
        sum = sum * 31 + b.ptr[i] + 1;
    }
    return sum * 31 + b.len;
}

static void on_message(void *ctx, mr_bytes message, struct mr_block *block)
{
    struct got *g = ctx;

    (void)block;
    REQUIRE(message.len <= MESSAGE_MAX);
    g->count++;
    g->sum = add(g->sum, message);
}

/* The input as frames. */
static struct got frame(const uint8_t *data, size_t size, enum mr_coding coding, struct mr_buf *out)
{
    struct got want = {0};

    while (size >= 2) {
        bool compressed = data[1] & 1 && coding != MR_CODING_IDENTITY;
        size_t len = data[0] < size - 2 ? data[0] : size - 2;
        mr_bytes plain = {data + 2, len};
        uint8_t prefix[MR_GRPC_PREFIX_BYTES] = {0};
        size_t at = out->len;
        mr_buf_append(out, prefix, sizeof prefix);
        if (compressed) {
            struct mr_piece piece = {.ptr = plain.ptr, .len = plain.len};
            REQUIRE(pack_into(coding, 1, &piece, 1, out));
        } else {
            mr_buf_append(out, plain.ptr, plain.len);
        }
        REQUIRE(!out->failed);
        mr_grpc_prefix_write((uint8_t *)out->ptr + at, compressed,
                             (uint32_t)(out->len - at - MR_GRPC_PREFIX_BYTES));
        on_message(&want, plain, NULL);
        data += 2 + len;
        size -= 2 + len;
    }
    return want;
}

static bool open_call(struct mr_call_impl *call, struct mr_header *encoding, struct mr_grpc_call *g)
{
    *call = (struct mr_call_impl){.owes = true};
    mr_arena_init(&call->arena, 1024, 1 << 20);
    call->pub.arena = &call->arena;
    call->pub.is_grpc = true;
    call->pub.headers = encoding;
    call->pub.header_count = encoding->value.len ? 1 : 0;
    /* begin answers the call when it cannot take it; here it would have no peer to answer. */
    return mr_grpc_begin(g, &call->pub, MESSAGE_MAX) == MR_OK;
}

static int stream(struct mr_grpc_call *g, mr_bytes in, size_t step, struct got *got)
{
    struct mr_err err = {0};
    int rc = MR_OK;

    while (in.len > 0 && rc == MR_OK) {
        size_t n = MR_MIN(in.len, step ? step : SIZE_MAX);
        uint8_t *piece = malloc(n); /* of its own, so that ASan sees one byte too many */
        memcpy(piece, in.ptr, n);
        rc = mr_grpc_feed(g, (mr_bytes){piece, n}, on_message, got, &err);
        REQUIRE(rc == MR_OK || err.status == rc);
        free(piece);
        in.ptr += n;
        in.len -= n;
    }
    return rc;
}

static void decompress(mr_bytes in)
{
    for (int coding = MR_CODING_GZIP; coding <= MR_CODING_DEFLATE; coding++) {
        struct mr_block *block = NULL;
        size_t len = 0;
        struct mr_err err = {0};
        int rc = mr_decompress((enum mr_coding)coding, in, MESSAGE_MAX, &block, &len, &err);
        REQUIRE(rc == err.status && (rc == MR_OK) == (block != NULL) && len <= MESSAGE_MAX);
        mr_block_unref(&block);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const mr_str names[] = {MR_STR_INIT("identity"), MR_STR_INIT("gzip"),
                                   MR_STR_INIT("deflate"), MR_STR_INIT("")};
    static const enum mr_coding codings[] = {MR_CODING_IDENTITY, MR_CODING_GZIP, MR_CODING_DEFLATE,
                                             MR_CODING_IDENTITY};

    if (size < 2) {
        return 0;
    }
    struct mr_header encoding = {MR_STR("grpc-encoding"), names[data[0] & 3]};
    bool framed = data[0] & 4;
    bool damaged = data[0] & 8;
    uint64_t failing = data[0] >> 4;
    struct mr_call_impl call;
    struct mr_grpc_call g;
    struct mr_buf frames;
    struct got got = {0}, want = {0};
    mr_bytes in = {data + 2, size - 2};

    mr_buf_init(&frames, 0);
    if (framed) {
        want = frame(in.ptr, in.len, codings[data[0] & 3], &frames);
        in = (mr_bytes){(const uint8_t *)frames.ptr, frames.len};
        if (damaged && in.len > 0) {
            frames.ptr[data[1] * 251u % in.len] ^= (char)(1 + data[1] % 255);
        }
    }
    if (open_call(&call, &encoding, &g)) {
        mr_mem_fail_after(failing);
        int rc = stream(&g, in, data[1], &got);
        mr_mem_fail_after(0);
        REQUIRE(!framed || damaged || failing ||
                (rc == MR_OK && got.count == want.count && got.sum == want.sum &&
                 !mr_grpc_feed_incomplete(&g)));
    }
    mr_arena_fini(&call.arena);
    if (open_call(&call, &encoding, &g)) {
        mr_bytes message = {0};
        struct got single = {0};
        call.pub.body = in;
        mr_mem_fail_after(failing);
        int rc = mr_grpc_message(&g, &message, NULL);
        mr_mem_fail_after(0);
        if (rc == MR_OK) {
            on_message(&single, message, NULL);
            REQUIRE(failing || (got.count == 1 && got.sum == single.sum));
        }
    }
    mr_arena_fini(&call.arena);
    decompress(in);
    mr_buf_fini(&frames);
    REQUIRE(mr_block_get_stats().out_bytes == 0);
    return 0;
}
