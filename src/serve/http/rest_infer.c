/* POST .../infer: decode, run, encode. The request path of REST; nothing here allocates from the heap for a small
 * request, except when it is compressed. */
#include "rest_infer.h"

#include "codec/json.h"
#include "net/compress.h"
#include "serve/state/client_memory.h"
#include "serve/state/infer.h"
#include "serve/state/loops.h"
#include "serve/state/message.h"
#include "serve/state/reply.h"
#include "serve/state/state.h"

struct rest_infer {
    struct serve_infer si;
    mr_str model;
    mr_str version;
    enum mr_coding accepts; /* what the answer may be compressed with */
    struct mr_oip_encoded answer;
    struct message_answer message; /* of a model that takes messages; answer is its body */
};

static struct rest_infer *of_turn(struct mr_turn *t)
{
    return MR_CONTAINER_OF(t, struct rest_infer, si.turn);
}

static enum mr_coding coding_of(const struct mr_call *call, const char *header,
                                enum mr_coding (*read)(mr_str value))
{
    mr_str value = mr_call_header(call, header);

    return value.ptr ? read(value) : MR_CODING_IDENTITY;
}

bool rest_is_packed(const struct mr_call *call)
{
    return coding_of(call, "content-encoding", mr_coding_from_name) != MR_CODING_IDENTITY;
}

int rest_plain_body(struct serve_infer *si, mr_bytes *out, struct mr_err *err)
{
    const struct mr_server_options *o = &si->loop->server->options;
    struct mr_call *call = si->call;
    const enum mr_coding coding = coding_of(call, "content-encoding", mr_coding_from_name);
    struct mr_block *block;
    size_t len;

    *out = call->body;
    if (coding == MR_CODING_IDENTITY) {
        return MR_OK;
    }
    if (coding == MR_CODING_UNKNOWN) {
        return MR_FAIL(err, MR_E_UNSUPPORTED, "Unsupported compression type");
    }
    uint64_t max =
        mr_decompress_max(call->body.len, o->http_max_input_bytes, o->max_decompression_ratio);
    int rc = mr_decompress(coding, call->body, max, &block, &len, err);
    if (rc == MR_E_TOO_LARGE && max < o->http_max_input_bytes) {
        return mr_decompress_ratio_error(o->max_decompression_ratio, err);
    }
    if (rc == MR_E_TOO_LARGE) {
        return MR_FAIL(err, rc,
                       "decompressed request exceeds the maximum allowed value of %llu bytes. Use "
                       "--http-max-input-size to increase the limit.",
                       (unsigned long long)o->http_max_input_bytes);
    }
    if (rc < 0) {
        return rc;
    }
    if (!mr_block_keep(block, call->arena)) {
        return MR_ARENA_FAIL(err);
    }
    *out = (mr_bytes){block->data, len};
    return MR_OK;
}

int rest_header_length(const struct mr_call *call, size_t body_len, int64_t *out,
                       struct mr_err *err)
{
    mr_str text = {NULL, 0};

    *out = -1;
    for (size_t i = 0; i < call->header_count; i++) {
        const struct mr_header *h = &call->headers[i];
        if (!mr_str_eq(h->name, MR_STR("inference-header-content-length"))) {
            continue;
        }
        /* A proxy may go by the other one. */
        if (text.ptr && !mr_str_eq(text, h->value)) {
            return MR_FAIL(err, MR_E_INVALID,
                           "Inference-Header-Content-Length is given twice, as %.*s and as %.*s",
                           MR_STR_ARG(mr_str_sub(text, 0, 64)),
                           MR_STR_ARG(mr_str_sub(h->value, 0, 64)));
        }
        text = h->value;
    }
    if (!text.ptr) {
        return MR_OK;
    }
    if (!mr_str_to_i64(text, out) || *out > INT32_MAX || *out < INT32_MIN) {
        return MR_FAIL(err, MR_E_INVALID,
                       "Unable to parse Inference-Header-Content-Length, got: %.*s",
                       MR_STR_ARG(mr_str_sub(text, 0, 64)));
    }
    if (*out < 0 || (uint64_t)*out > body_len) {
        return MR_FAIL(err, MR_E_INVALID,
                       "inference header size should be in range (0, %zu), got: %lld", body_len,
                       (long long)*out);
    }
    return MR_OK;
}

static void drop_pieces(struct mr_oip_encoded *e)
{
    for (size_t i = 0; i < e->piece_count; i++) {
        mr_block_unref(&e->pieces[i].block);
    }
}

static int compress_answer(struct rest_infer *ri, struct mr_err *err)
{
    struct mr_oip_encoded *e = &ri->answer;
    struct mr_piece *packed = NULL;
    size_t count = 0;
    int rc = mr_compress(ri->accepts, 1, e->pieces, e->piece_count, ri->si.call->arena, &packed,
                         &count, err);

    drop_pieces(e);
    e->pieces = packed;
    e->piece_count = count;
    return rc;
}

/* The work of a turn, or done at once. */
static void encode(struct mr_turn *t)
{
    struct rest_infer *ri = of_turn(t);
    struct mr_infer *r = &ri->si.infer;
    struct mr_oip_response response;
    int rc;

    infer_encode_begins(&ri->si);
    if (ri->si.message_kind) {
        MR_TRY(message_answer(&ri->si, &ri->message, &r->err));
        ri->answer = ri->message.body;
    } else {
        MR_TRY(mr_wire_response(r, &ri->si.request, &response, &r->err));
        MR_TRY(client_memory_write(&ri->si, &response));
        MR_TRY(infer_answer_params(&ri->si, NULL, &response));
        MR_TRY(mr_oip_rest_encode_response(&response, infer_buf(&ri->si), r->arena, &ri->answer,
                                           &r->err));
    }
    if (ri->accepts != MR_CODING_IDENTITY) {
        MR_TRY(compress_answer(ri, &r->err));
    }
out:
    r->status = rc;
}

/* {"error": …}, and what a graph says besides when it was asked for a trace. */
static void error_write(const struct mr_infer *r, struct mr_buf *b)
{
    mr_buf_reset(b);
    mr_oip_rest_error(b, mr_str_c(r->err.msg));
    if (r->answer.count == 0 || r->answer.kinds) {
        return;
    }
    b->len--; /* the brace */
    MR_BUF_LIT(b, ",\"parameters\":{");
    for (uint32_t i = 0; i < r->answer.count; i++) {
        MR_BUF_LIT(b, ",");
        b->len -= i == 0;
        mr_json_put_string(b, mr_str_c(r->answer.list[i].key));
        MR_BUF_LIT(b, ":");
        mr_json_put_string(b, mr_str_c(r->answer.list[i].value));
    }
    MR_BUF_LIT(b, "}}");
}

static void fail(struct rest_infer *ri)
{
    struct mr_call *call = ri->si.call;
    struct mr_buf *b = mr_loop_scratch(call->loop);
    const int status = mr_status_http(ri->si.infer.status);

    error_write(&ri->si.infer, b);
    infer_log_failure(&ri->si);
    infer_end(&ri->si);
    mr_buf_fini(&ri->si.text);
    reply_buf(call, status, b);
}

static void send_answer(struct rest_infer *ri)
{
    const struct mr_oip_encoded *e = &ri->answer;
    struct mr_buf text = ri->si.text; /* outlives the call, as pieces point into it */
    struct mr_header headers[MESSAGE_HEADERS_MAX + 4];
    char length[MR_I64_TEXT];
    char tag[ROUTE_TAG_MAX + 1];
    size_t n = ri->message.header_count;

    if (n > 0) {
        memcpy(headers, ri->message.headers, n * sizeof *headers);
    } else {
        headers[n++] = (struct mr_header){MR_STR("content-type"),
                                          e->header_length >= 0 ? MR_STR("application/octet-stream")
                                                                : MR_STR("application/json")};
    }
    if (e->header_length >= 0) {
        headers[n++] = (struct mr_header){
            MR_STR("inference-header-content-length"),
            mr_str_n(length, (size_t)(mr_i64_put(length, e->header_length) - length))};
    }
    if (ri->accepts != MR_CODING_IDENTITY) {
        headers[n++] =
            (struct mr_header){MR_STR("content-encoding"),
                               ri->accepts == MR_CODING_GZIP ? MR_STR("gzip") : MR_STR("deflate")};
    }
    if (ri->si.route.endpoint) {
        headers[n++] = (struct mr_header){MR_STR(ROUTE_HEADER), route_copy_tag(&ri->si.route, tag)};
    }
    message_judge(&ri->si, &ri->message);
    infer_end(&ri->si);
    struct mr_reply reply = {.status = ri->message.header_count ? ri->message.http_status : 200,
                             .headers = headers,
                             .header_count = n,
                             .pieces = e->pieces,
                             .piece_count = e->piece_count};
    mr_call_reply(ri->si.call, &reply);
    mr_buf_fini(&text);
}

static void encoded(struct mr_turn *t)
{
    struct rest_infer *ri = of_turn(t);
    bool is_made = ri->si.infer.status == MR_OK && ri->answer.pieces;

    infer_turned(&ri->si);
    if (ri->si.infer.status == MR_OK) {
        send_answer(ri);
        return;
    }
    if (is_made) {
        drop_pieces(&ri->answer);
    }
    fail(ri);
}

static void reply_rest(struct serve_infer *si)
{
    struct rest_infer *ri = MR_CONTAINER_OF(si, struct rest_infer, si);

    if (si->infer.status < 0) {
        fail(ri);
    } else if (infer_is_long_answer(si)) {
        infer_turn(si, encode, encoded, false);
    } else {
        encode(&si->turn);
        encoded(&si->turn);
    }
}

static void cancel_rest(struct serve_pending *p)
{
    infer_cancel(MR_CONTAINER_OF(p, struct serve_infer, pending));
}

/* What the model's requests are like: messages that are not decoded, or matrices. Of an endpoint, those of its main variant. */
static int form_of(struct rest_infer *ri, bool *is_message, bool *is_matrix)
{
    struct mr_server *s = ri->si.loop->server;
    mr_str model = ri->model, version = ri->version;
    int rc = route_main(s->endpoints, &model, &version, &ri->si.infer.err);

    *is_message = ri->si.message_kind || mr_models_takes_messages(s->models, model, version);
    *is_matrix = mr_models_reads_matrix(s->models, model, version);
    return rc;
}

static int message_decode(struct rest_infer *ri, mr_bytes body, int64_t head)
{
    if (head >= 0) {
        return MR_FAIL(&ri->si.infer.err, MR_E_INVALID,
                       "model '%.*s' is one of MLServer's, which takes no binary tensors over REST",
                       MR_STR_ARG(mr_str_sub(ri->model, 0, 128)));
    }
    ri->si.message = body;
    ri->si.message_kind = ri->si.message_kind ? ri->si.message_kind : "infer";
    return infer_bind(&ri->si, ri->model, ri->version);
}

/* The work of a turn, or done at once. */
static void decode(struct mr_turn *t)
{
    struct rest_infer *ri = of_turn(t);
    struct mr_infer *r = &ri->si.infer;
    bool is_message, is_matrix;
    mr_bytes body;
    int64_t head;
    int rc;

    MR_TRY(rest_plain_body(&ri->si, &body, &r->err));
    MR_TRY(rest_header_length(ri->si.call, body.len, &head, &r->err));
    MR_TRY(form_of(ri, &is_message, &is_matrix));
    if (is_message) {
        rc = message_decode(ri, body, head);
        goto out;
    }
    struct mr_oip_limits limits = ri->si.loop->server->http_limits;
    limits.null_is_nan = is_matrix;
    rc = mr_oip_rest_decode_request(body, head, ri->model, &limits, r->arena, &ri->si.request,
                                    &r->err);
    if (rc < 0) {
        ri->si.request.id = mr_oip_rest_find_id(body, head, r->arena);
    } else {
        rc = infer_bind(&ri->si, ri->model, ri->version);
    }
out:
    ri->si.request.model_name = ri->model;
    r->status = rc;
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

static void decoded(struct mr_turn *t)
{
    struct rest_infer *ri = of_turn(t);
    struct mr_infer *r = &ri->si.infer;

    infer_turned(&ri->si);
    if (r->status == MR_OK) {
        infer_run(&ri->si);
        return;
    }
    infer_refuse(&ri->si, r->status);
    infer_log_failure(&ri->si);
    infer_end(&ri->si);
    reply_prepare_error(ri->si.call, &r->err);
}

/* kind: what is asked of a model that takes messages; NULL: an inference, of any model. */
static void begin(struct mr_call *call, const struct mr_oip_path *path, const char *kind)
{
    struct rest_infer *ri = MR_ARENA_NEW(call->arena, struct rest_infer);

    if (!ri) {
        reply_error_text(call, MR_E_EXHAUSTED, "the request needs more memory than it may use");
        return;
    }
    infer_init(&ri->si, call, call->arena, MR_INFER_REST);
    ri->si.reply = reply_rest;
    ri->si.pending.cancel = cancel_rest;
    ri->si.message_kind = kind;
    ri->si.no_decoupled = "HTTP end point doesn't support models with decoupled transaction policy";
    ri->model = path->model;
    ri->version = path->version;
    ri->accepts = coding_of(call, "accept-encoding", mr_coding_accept);
    if (rest_is_packed(call) || infer_is_long_body(call->body.len) ||
        client_memory_is_there(&ri->si)) {
        infer_turn(&ri->si, decode, decoded, true);
    } else {
        decode(&ri->si.turn);
        decoded(&ri->si.turn);
    }
}

void rest_infer(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    (void)s;
    begin(call, path, NULL);
}

void rest_ask(struct mr_call *call, const struct mr_oip_path *path, const char *kind)
{
    begin(call, path, kind);
}
