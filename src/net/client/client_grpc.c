/* A unary gRPC call on the HTTP/2 client: frames the message, reads status and message of the answer.
 *
 * gRPC's own failures come three ways: as an HTTP status, as a grpc-status in the trailers, or in the
 * headers when there is nothing else (trailers-only). Compression is not asked for, so a compressed
 * message is an error. Source: gRPC over HTTP/2 (PROTOCOL-HTTP2.md). */
#include <stdio.h>

#include "client_priv.h"

#define FRAME_BYTES    5
#define TIMEOUT_DIGITS INT64_C(100000000) /* grpc-timeout has at most eight */

struct grpc_call {
    mr_client_done_fn *done;
    void *ctx;
    char *address;
};

/* The status that says what a gRPC code means; mr_status_grpc is not one to one. */
static int status_of_grpc(uint64_t code)
{
    static const int map[MR_GRPC_STATUSES] = {
        [MR_GRPC_OK] = MR_OK,
        [MR_GRPC_CANCELLED] = MR_E_CANCELLED,
        [MR_GRPC_UNKNOWN] = MR_E_UNKNOWN,
        [MR_GRPC_INVALID_ARGUMENT] = MR_E_INVALID,
        [MR_GRPC_DEADLINE_EXCEEDED] = MR_E_DEADLINE,
        [MR_GRPC_NOT_FOUND] = MR_E_NOT_FOUND,
        [MR_GRPC_ALREADY_EXISTS] = MR_E_EXISTS,
        [MR_GRPC_PERMISSION_DENIED] = MR_E_FORBIDDEN,
        [MR_GRPC_RESOURCE_EXHAUSTED] = MR_E_EXHAUSTED,
        [MR_GRPC_FAILED_PRECONDITION] = MR_E_INVALID,
        [MR_GRPC_ABORTED] = MR_E_UNAVAILABLE,
        [MR_GRPC_OUT_OF_RANGE] = MR_E_INVALID,
        [MR_GRPC_UNIMPLEMENTED] = MR_E_UNSUPPORTED,
        [MR_GRPC_INTERNAL] = MR_E_INTERNAL,
        [MR_GRPC_UNAVAILABLE] = MR_E_UNAVAILABLE,
        [MR_GRPC_DATA_LOSS] = MR_E_INTERNAL,
        [MR_GRPC_UNAUTHENTICATED] = MR_E_FORBIDDEN,
    };

    return code < MR_GRPC_STATUSES ? map[code] : MR_E_UNKNOWN;
}

/* What a server without grpc-status means by its HTTP status: http-grpc-status-mapping.md. */
static int status_of_http(int http)
{
    switch (http) {
    case 400: return MR_E_INTERNAL;
    case 401:
    case 403: return MR_E_FORBIDDEN;
    case 404: return MR_E_UNSUPPORTED;
    case 429:
    case 502:
    case 503:
    case 504: return MR_E_UNAVAILABLE;
    default: return MR_E_UNKNOWN;
    }
}

int mr_client_grpc_status(const char *address, const struct mr_client_response *r, int *out_code,
                          struct mr_err *err)
{
    mr_str status = mr_header_find(r->trailers, r->trailer_count, MR_STR("grpc-status"));
    mr_str message = mr_header_find(r->trailers, r->trailer_count, MR_STR("grpc-message"));
    char text[sizeof err->msg]; /* one byte more than fits, so that it is cut at a character */
    uint64_t code;

    *out_code = -1;
    if (!status.ptr) {
        status = mr_header_find(r->headers, r->header_count, MR_STR("grpc-status"));
        message = mr_header_find(r->headers, r->header_count, MR_STR("grpc-message"));
    }
    if (!status.ptr && r->status != 200) {
        return MR_FAIL(err, status_of_http(r->status), "%s answers with HTTP status %d", address,
                       r->status);
    }
    if (!mr_str_to_u64(status, &code)) {
        MR_FAIL(err, MR_E_INVALID, "%s answers without a grpc-status", address);
        return mr_client_blame(err);
    }
    int rc = status_of_grpc(code);
    *out_code = (int)MR_MIN(code, (uint64_t)INT32_MAX);
    if (rc == MR_OK) {
        return MR_OK;
    }
    size_t n = mr_percent_decode(message, text, sizeof text);
    return n ? MR_FAIL(err, rc, "%.*s", (int)n, text)
             : MR_FAIL(err, rc, "gRPC status %llu", (unsigned long long)code);
}

/* Exactly one uncompressed message; *io becomes its bytes. Errors are the server's fault. */
static int unframe(const struct grpc_call *g, mr_bytes *io, struct mr_err *err)
{
    if (io->len < FRAME_BYTES) {
        return MR_FAIL(err, MR_E_INVALID, "%s answers without a message", g->address);
    }
    uint32_t len = (uint32_t)io->ptr[1] << 24 | (uint32_t)io->ptr[2] << 16 |
                   (uint32_t)io->ptr[3] << 8 | io->ptr[4];
    if (io->ptr[0] != 0) {
        return MR_FAIL(err, MR_E_INVALID, "%s answers compressed, which was not asked for",
                       g->address);
    }
    if (len != io->len - FRAME_BYTES) {
        return MR_FAIL(err, MR_E_INVALID, "%s answers with a message of %u bytes in %zu",
                       g->address, len, io->len - FRAME_BYTES);
    }
    *io = (mr_bytes){io->ptr + FRAME_BYTES, len};
    return MR_OK;
}

static void on_answer(void *ctx, int rc, const struct mr_err *err,
                      const struct mr_client_response *response)
{
    struct grpc_call *g = ctx;
    struct mr_client_response message;
    struct mr_err own;

    if (rc == MR_OK) {
        message = *response;
        err = &own;
        memset(&own, 0, sizeof own);
        rc = mr_client_grpc_status(g->address, response, &message.grpc_status, &own);
        if (rc == MR_OK) {
            rc = unframe(g, &message.body, &own);
            rc = rc < 0 ? mr_client_blame(&own) : rc;
        }
    }
    g->done(g->ctx, rc, err, response ? &message : NULL);
    mr_free(g->address);
    mr_free(g);
}

/* "1500m"; seconds when milliseconds have too many digits. */
static mr_str timeout_text(int64_t timeout_ns, char out[24])
{
    const int64_t ms = (timeout_ns + MR_NS_PER_MS - 1) / MR_NS_PER_MS;
    const bool is_ms = ms < TIMEOUT_DIGITS;
    char *end = mr_i64_put(out, is_ms ? ms : MR_MIN(ms / 1000, TIMEOUT_DIGITS - 1));

    *end++ = is_ms ? 'm' : 'S';
    return mr_str_n(out, (size_t)(end - out));
}

/* The five bytes before the message; false when it is too large to be framed. */
static bool make_frame(const struct mr_piece *pieces, size_t count, bool is_packed,
                       uint8_t out[FRAME_BYTES])
{
    uint64_t total = 0;

    for (size_t i = 0; i < count; i++) {
        total += pieces[i].len;
    }
    out[0] = is_packed;
    for (int i = 0; i < 4; i++) {
        out[1 + i] = (uint8_t)(total >> (24 - 8 * i));
    }
    return total <= UINT32_MAX;
}

int mr_client_grpc_head(const struct mr_client_grpc_request *r, struct mr_arena *arena,
                        struct mr_client_request *out)
{
    struct mr_header *headers = MR_ARENA_ARRAY(arena, struct mr_header, r->metadata_count + 4);
    char timeout[24];
    size_t n = 0;

    *out = (struct mr_client_request){.method = "POST",
                                      .path = mr_str_c(r->path),
                                      .timeout_ns = r->timeout_ns,
                                      .never_repeat = r->never_repeat};
    if (!headers) {
        return MR_E_EXHAUSTED;
    }
    headers[n++] = (struct mr_header){MR_STR("content-type"), MR_STR("application/grpc")};
    headers[n++] = (struct mr_header){MR_STR("te"), MR_STR("trailers")};
    if (r->timeout_ns > 0) {
        headers[n++] = (struct mr_header){
            MR_STR("grpc-timeout"), mr_arena_str(arena, timeout_text(r->timeout_ns, timeout))};
    }
    if (r->encoding.ptr) {
        headers[n++] = (struct mr_header){MR_STR("grpc-encoding"), r->encoding};
    }
    for (size_t i = 0; i < r->metadata_count; i++) {
        headers[n++] = r->metadata[i];
    }
    out->headers = headers;
    out->header_count = n;
    return MR_OK;
}

struct mr_client_call *mr_client_grpc(struct mr_client *c, const struct mr_client_grpc_request *r,
                                      mr_client_done_fn *done, void *ctx)
{
    struct grpc_call *g = MR_NEW(struct grpc_call);
    struct mr_piece *framed = MR_NEW_ARRAY(struct mr_piece, r->piece_count + 1);
    uint8_t frame[FRAME_BYTES];
    struct mr_client_request request;
    struct mr_client_call *call;
    struct mr_arena arena;

    mr_arena_init(&arena, 1024, MR_CLIENT_HEAD_MAX);
    const bool has_head = mr_client_grpc_head(r, &arena, &request) == MR_OK;
    const bool fits = make_frame(r->pieces, r->piece_count, r->encoding.ptr != NULL, frame);
    framed[0] = (struct mr_piece){.ptr = frame, .len = FRAME_BYTES};
    if (r->piece_count) {
        memcpy(framed + 1, r->pieces, r->piece_count * sizeof *framed);
    }
    request.pieces = framed;
    request.piece_count = r->piece_count + 1;
    g->done = done;
    g->ctx = ctx;
    g->address = mr_strndup(c->address, strlen(c->address));
    if (!c->options.http2) {
        call = mr_client_refuse(c, &request, MR_E_INVALID, "gRPC needs HTTP/2", on_answer, g);
    } else if (!fits) {
        call = mr_client_refuse(c, &request, MR_E_TOO_LARGE, "a gRPC message has at most 4 GiB",
                                on_answer, g);
    } else if (!has_head) {
        call = mr_client_refuse(c, &request, MR_E_TOO_LARGE, "too much metadata", on_answer, g);
    } else {
        call = mr_client_send(c, &request, on_answer, g);
    }
    mr_free(framed);
    mr_arena_fini(&arena);
    return call;
}
