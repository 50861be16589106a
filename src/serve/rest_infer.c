/* POST .../infer: decode, run, encode. The request path of REST; nothing here allocates from the heap for a small
 * request, except when it is compressed. */
#include "net/compress.h"
#include "serve_private.h"

struct rest_infer {
    struct serve_infer si;
    enum mr_coding accepts; /* what the answer may be compressed with */
};

/* The body as sent, or decompressed into a block that lives with the call. */
static int plain_body(struct mr_server *s, struct mr_call *call, mr_bytes *out, struct mr_err *err)
{
    mr_str name = mr_call_header(call, "content-encoding");
    enum mr_coding coding = name.ptr ? mr_coding_from_name(name) : MR_CODING_IDENTITY;
    struct mr_block *block;
    size_t len;
    int rc;

    *out = call->body;
    if (coding == MR_CODING_IDENTITY)
        return MR_OK;
    if (coding == MR_CODING_UNKNOWN)
        return MR_FAIL(err, MR_E_UNSUPPORTED, "Unsupported compression type");
    rc = mr_decompress(coding, call->body, s->options.http_max_input_bytes, &block, &len, err);
    if (rc == MR_E_TOO_LARGE)
        return MR_FAIL(err, rc,
                       "decompressed request exceeds the maximum allowed value of %llu bytes. Use "
                       "--http-max-input-size to increase the limit.",
                       (unsigned long long)s->options.http_max_input_bytes);
    if (rc < 0)
        return rc;
    if (!mr_block_keep(block, call->arena))
        return MR_FAIL(err, MR_E_EXHAUSTED, "the request needs more memory than it may use");
    *out = (mr_bytes){block->data, len};
    return MR_OK;
}

static int header_length(const struct mr_call *call, size_t body_len, int64_t *out,
                         struct mr_err *err)
{
    mr_str text = mr_call_header(call, "inference-header-content-length");

    *out = -1;
    if (!text.ptr)
        return MR_OK;
    if (!mr_str_to_i64(text, out) || *out > INT32_MAX || *out < INT32_MIN)
        return MR_FAIL(err, MR_E_INVALID,
                       "Unable to parse Inference-Header-Content-Length, got: %.*s",
                       MR_STR_ARG(mr_str_sub(text, 0, 64)));
    if (*out < 0 || (uint64_t)*out > body_len)
        return MR_FAIL(err, MR_E_INVALID,
                       "inference header size should be in range (0, %zu), got: %lld", body_len,
                       (long long)*out);
    return MR_OK;
}

/* Compressed answers are built in one piece; only for clients that ask. */
static int compress_body(struct rest_infer *ri, struct mr_oip_encoded *e, struct mr_buf *out,
                         struct mr_err *err)
{
    mr_bytes *parts = MR_ARENA_ARRAY(ri->si.call->arena, mr_bytes, e->piece_count);

    if (!parts)
        return MR_FAIL(err, MR_E_EXHAUSTED, "the answer needs more memory than a request may use");
    for (size_t i = 0; i < e->piece_count; i++)
        parts[i] = (mr_bytes){e->pieces[i].ptr, e->pieces[i].len};
    return mr_compress(ri->accepts, 1, parts, e->piece_count, out, err);
}

static void drop_pieces(struct mr_oip_encoded *e)
{
    for (size_t i = 0; i < e->piece_count; i++)
        mr_block_unref(&e->pieces[i].block);
}

static void send_compressed(struct rest_infer *ri, struct mr_oip_encoded *e,
                            struct mr_header *headers, size_t n)
{
    struct mr_call *call = ri->si.call;
    struct mr_err err = {0};
    struct mr_buf packed;
    int rc;

    mr_buf_init(&packed, 0);
    rc = compress_body(ri, e, &packed, &err);
    drop_pieces(e);
    infer_end(&ri->si);
    if (rc < 0) {
        reply_error(call, &err);
    } else {
        headers[n++] =
            (struct mr_header){MR_STR("content-encoding"),
                               ri->accepts == MR_CODING_GZIP ? MR_STR("gzip") : MR_STR("deflate")};
        struct mr_piece piece = {packed.ptr, packed.len, NULL};
        struct mr_reply reply = {.status = 200,
                                 .headers = headers,
                                 .header_count = n,
                                 .pieces = &piece,
                                 .piece_count = 1};
        mr_call_reply(call, &reply);
    }
    mr_buf_fini(&packed);
}

static int encode(struct rest_infer *ri, struct mr_oip_encoded *e, struct mr_err *err)
{
    struct mr_oip_response response;
    int rc = infer_response(&ri->si, &response, err);

    if (rc < 0)
        return rc;
    return mr_oip_rest_encode_response(&response, mr_loop_scratch(ri->si.call->loop),
                                       ri->si.call->arena, e, err);
}

static void fail(struct rest_infer *ri)
{
    struct mr_call *call = ri->si.call;
    struct mr_err err = ri->si.infer.err;

    err.status = ri->si.infer.status;
    infer_log_failure(&ri->si);
    infer_end(&ri->si);
    reply_error(call, &err);
}

static void reply_rest(struct serve_infer *si)
{
    struct rest_infer *ri = MR_CONTAINER_OF(si, struct rest_infer, si);
    struct mr_call *call = si->call;
    struct mr_oip_encoded e;
    struct mr_header headers[3];
    char length[MR_I64_TEXT];
    size_t n = 0;

    if (si->infer.status == MR_OK) {
        si->encode_start_ns = mr_now_ns();
        si->infer.status = encode(ri, &e, &si->infer.err);
    }
    if (si->infer.status < 0) {
        fail(ri);
        return;
    }
    headers[n++] = (struct mr_header){MR_STR("content-type"),
                                      e.header_length >= 0 ? MR_STR("application/octet-stream")
                                                           : MR_STR("application/json")};
    if (e.header_length >= 0)
        headers[n++] = (struct mr_header){
            MR_STR("inference-header-content-length"),
            mr_str_n(length, (size_t)(mr_i64_put(length, e.header_length) - length))};
    if (ri->accepts != MR_CODING_IDENTITY) {
        send_compressed(ri, &e, headers, n);
        return;
    }
    infer_end(si);
    struct mr_reply reply = {.status = 200,
                             .headers = headers,
                             .header_count = n,
                             .pieces = e.pieces,
                             .piece_count = e.piece_count};
    mr_call_reply(call, &reply);
}

static void cancel_rest(struct serve_pending *p)
{
    infer_cancel(MR_CONTAINER_OF(p, struct serve_infer, pending));
}

static int prepare(struct mr_server *s, struct rest_infer *ri, const struct mr_oip_path *path,
                   struct mr_err *err)
{
    struct mr_call *call = ri->si.call;
    mr_bytes body;
    int64_t head;
    int rc;

    MR_TRY(plain_body(s, call, &body, err));
    MR_TRY(header_length(call, body.len, &head, err));
    MR_TRY(mr_oip_rest_decode_request(body, head, path->model, &s->http_limits, call->arena,
                                      &ri->si.request, err));
    MR_TRY(infer_forward_headers(&ri->si, err));
    mr_str accept = mr_call_header(call, "accept-encoding");
    ri->accepts = accept.ptr ? mr_coding_accept(accept) : MR_CODING_IDENTITY;
    if (ri->accepts == MR_CODING_UNKNOWN)
        ri->accepts = MR_CODING_IDENTITY;
out:
    return rc;
}

/* A compression that is not known is answered with those that are. */
static void reply_prepare_error(struct mr_call *call, const struct mr_err *err)
{
    static const struct mr_header headers[] = {
        {MR_STR_INIT("content-type"), MR_STR_INIT("application/json")},
        {MR_STR_INIT("accept-encoding"), MR_STR_INIT("gzip, deflate")},
    };
    struct mr_buf *b = mr_loop_scratch(call->loop);

    if (err->status != MR_E_UNSUPPORTED || !mr_call_header(call, "content-encoding").ptr) {
        reply_error(call, err);
        return;
    }
    mr_buf_reset(b);
    mr_oip_rest_error(b, mr_str_c(err->msg));
    if (b->failed) {
        reply_buf(call, 503, b);
        return;
    }
    struct mr_piece piece = {b->ptr, b->len, NULL};
    struct mr_reply reply = {
        .status = 501, .headers = headers, .header_count = 2, .pieces = &piece, .piece_count = 1};
    mr_call_reply(call, &reply);
}

void rest_infer(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    struct rest_infer *ri = MR_ARENA_NEW(call->arena, struct rest_infer);
    struct mr_err err;
    int rc;

    mr_err_clear(&err);
    if (!ri) {
        reply_error_text(call, MR_E_EXHAUSTED, "the request needs more memory than it may use");
        return;
    }
    infer_init(&ri->si, call, call->arena, MR_INFER_REST);
    ri->si.reply = reply_rest;
    ri->si.pending.cancel = cancel_rest;
    rc = prepare(s, ri, path, &err);
    if (rc < 0) {
        if (err.status == MR_OK)
            err.status = rc;
        reply_prepare_error(call, &err);
        return;
    }
    infer_run(&ri->si, path->model, path->version);
}
