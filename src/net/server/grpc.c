/* gRPC calls, server side, on top of mr_call: request headers, messages in, messages and status
 * out.
 *
 * A call answers in one of three shapes: trailers-only (mr_grpc_fail before anything was sent), one
 * message (mr_grpc_reply), or a stream (mr_grpc_send … mr_grpc_finish). Messages are framed as they are sent: the
 * five-byte prefix is copied, blocks are sent by reference.
 *
 * Thread: loop. */
#include "net/frame/grpc_frame.h"

#include <stdio.h>

#include "base/clock.h"
#include "call.h"
#include "net/compress.h"

#define MESSAGE_TEXT_MAX ((size_t)2048) /* of grpc-message, before encoding: peers limit headers */
#define COMPRESS_LEVEL   1              /* the network is rarely slower than higher levels */
#define ASSEMBLE_FIRST   ((size_t)64 * 1024)
#define ASSEMBLE_BELIEF  8 /* a message's memory, in multiples of the bytes received */

/* Allocated in the call's arena. */
struct grpc_state {
    unsigned accept_mask;
    enum mr_grpc_compression sends; /* grpc-encoding of the answer */
    bool has_begun;
    bool *gone; /* set when the call ends while mr_grpc_feed runs */
    uint8_t prefix[MR_GRPC_PREFIX_BYTES];
    size_t prefix_len;
    struct mr_grpc_prefix head; /* valid when prefix_len is 5 */
    struct mr_block *part;      /* a message received in pieces */
    size_t part_len;
    /* the unary message, if it is not that of the body; ptr NULL: it is, or not yet unpacked */
    mr_bytes unpacked;
};

static enum mr_coding coding_of(enum mr_grpc_compression c)
{
    return c == MR_GRPC_GZIP      ? MR_CODING_GZIP
           : c == MR_GRPC_DEFLATE ? MR_CODING_DEFLATE
                                  : MR_CODING_IDENTITY;
}

/* ---- request headers ------------------------------------------------------------------------ */

static const struct mr_header accept_header = {MR_STR_INIT("grpc-accept-encoding"),
                                               MR_STR_INIT("identity,deflate,gzip")};
static const struct mr_header type_header = {MR_STR_INIT("content-type"),
                                             MR_STR_INIT("application/grpc")};

/* Sends a status without any message, in one block of headers: clients may repeat only such calls. */
static void trailers_only(struct mr_call *call, int grpc_status, mr_str message,
                          const struct mr_header *more, size_t more_count)
{
    char encoded[MR_GRPC_ENCODED_MAX(MESSAGE_TEXT_MAX)];

    message.len = MR_MIN(message.len, MESSAGE_TEXT_MAX);
    size_t n = mr_grpc_percent_encode(message, encoded);
    char number[12];
    int digits = snprintf(number, sizeof number, "%d", grpc_status);
    struct mr_header headers[4 + MR_GRPC_TRAILERS_MAX] = {
        type_header,
        accept_header,
        {MR_STR("grpc-status"), mr_str_n(number, (size_t)digits)},
        {MR_STR("grpc-message"), mr_str_n(encoded, n)},
    };
    const size_t count = n > 0 ? 4 : 3;
    if (more_count > 0) {
        memcpy(headers + count, more, more_count * sizeof *more);
    }
    struct mr_reply reply = {.status = 200, .headers = headers, .header_count = count + more_count};

    mr_call_reply(call, &reply);
}

static void state_free(void *ctx)
{
    struct grpc_state *st = ctx;

    mr_block_unref(&st->part);
    if (st->gone) {
        *st->gone = true;
    }
}

static struct grpc_state *state_new(struct mr_call *call)
{
    struct grpc_state *st = MR_ARENA_NEW(call->arena, struct grpc_state);

    return st && mr_arena_on_free(call->arena, state_free, st) ? st : NULL;
}

static int refuse(struct mr_call *call, int grpc_status, mr_str text, int status)
{
    trailers_only(call, grpc_status, text, NULL, 0);
    return status;
}

int mr_grpc_begin(struct mr_grpc_call *g, struct mr_call *call, int64_t max_message_bytes)
{
    mr_str timeout = mr_call_header(call, "grpc-timeout");
    int64_t timeout_ns = 0;

    if (!call->is_grpc) {
        struct mr_reply reply = {.status = 415};
        mr_call_reply(call, &reply);
        return MR_E_UNSUPPORTED;
    }
    *g = (struct mr_grpc_call){
        .call = call,
        .service_method = call->path,
        .max_message_bytes = max_message_bytes,
        .limit_name = "--grpc-max-message-size",
    };
    struct grpc_state *st = state_new(call);
    if (!st) {
        return refuse(call, mr_status_grpc(MR_E_NOMEM), MR_STR("out of memory"), MR_E_NOMEM);
    }
    g->parser = st;
    if (timeout.ptr && !mr_grpc_timeout_parse(timeout, &timeout_ns)) {
        return refuse(call, MR_GRPC_INTERNAL, MR_STR("Bad grpc-timeout header"), MR_E_INVALID);
    }
    if (timeout.ptr) {
        g->deadline_ns = mr_ns_after(call->recv_start_ns, timeout_ns);
    }
    if (!mr_grpc_encoding_parse(mr_call_header(call, "grpc-encoding"), &g->encoding)) {
        return refuse(call, MR_GRPC_UNIMPLEMENTED,
                      MR_STR("grpc-encoding is not supported; use identity, deflate or gzip"),
                      MR_E_UNSUPPORTED);
    }
    st->accept_mask = mr_grpc_accept_parse(mr_call_header(call, "grpc-accept-encoding"));
    g->accepts = st->accept_mask & (1u << MR_GRPC_GZIP)      ? MR_GRPC_GZIP
                 : st->accept_mask & (1u << MR_GRPC_DEFLATE) ? MR_GRPC_DEFLATE
                                                             : MR_GRPC_IDENTITY;
    return MR_OK;
}

/* ---- messages in ---------------------------------------------------------------------------- */

static int unpack(const struct mr_grpc_call *g, mr_bytes message, struct mr_block **out,
                  size_t *out_len, struct mr_err *err)
{
    uint64_t max = mr_decompress_max(message.len, (uint64_t)g->max_message_bytes, g->max_ratio);
    int rc = mr_decompress(coding_of(g->encoding), message, max, out, out_len, err);

    if (rc == MR_E_TOO_LARGE && max < (uint64_t)g->max_message_bytes) {
        return mr_decompress_ratio_error(g->max_ratio, err);
    }
    if (rc == MR_E_TOO_LARGE) {
        return MR_FAIL(err, rc, "Received message larger than max when decompressed (%lld, %s)",
                       (long long)g->max_message_bytes, g->limit_name);
    }
    return rc;
}

static int check_prefix(const struct mr_grpc_call *g, const uint8_t *p, struct mr_grpc_prefix *out,
                        struct mr_err *err)
{
    if (!mr_grpc_prefix_parse(p, out)) {
        return MR_FAIL(err, MR_E_INVALID, "invalid gRPC message flag %u", p[0]);
    }
    if ((int64_t)out->length > g->max_message_bytes) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "Received message larger than max (%u vs. %lld, %s)",
                       out->length, (long long)g->max_message_bytes, g->limit_name);
    }
    if (out->is_compressed && g->encoding == MR_GRPC_IDENTITY) {
        return MR_FAIL(err, MR_E_INTERNAL, /* as gRPC's compression.md has it */
                       "compressed message without a grpc-encoding to read it by");
    }
    return MR_OK;
}

int mr_grpc_unpack(const struct mr_grpc_call *g, mr_bytes message, struct mr_arena *arena,
                   mr_bytes *out, struct mr_err *err)
{
    struct mr_block *block = NULL;
    size_t len = 0;
    int rc = unpack(g, message, &block, &len, err);

    if (rc < 0) {
        return rc;
    }
    if (!mr_block_keep(block, arena)) {
        return MR_FAIL(err, MR_E_NOMEM, "out of memory");
    }
    *out = (mr_bytes){block->data, len};
    return MR_OK;
}

void mr_grpc_set_message(struct mr_grpc_call *g, mr_bytes message)
{
    struct grpc_state *st = g->parser;

    st->unpacked = message;
}

bool mr_grpc_is_packed(const struct mr_grpc_call *g)
{
    mr_bytes body = g->call->body;

    return body.len > MR_GRPC_PREFIX_BYTES && body.ptr[0] == 1 && g->encoding != MR_GRPC_IDENTITY &&
           !((const struct grpc_state *)g->parser)->unpacked.ptr;
}

int mr_grpc_message(struct mr_grpc_call *g, mr_bytes *out, struct mr_err *err)
{
    struct grpc_state *st = g->parser;
    mr_bytes body = g->call->body;
    struct mr_grpc_prefix prefix = {0};

    if (st->unpacked.ptr) {
        *out = st->unpacked;
        return MR_OK;
    }
    if (body.len < MR_GRPC_PREFIX_BYTES) {
        return MR_FAIL(err, MR_E_INVALID, "the request holds no gRPC message");
    }
    int rc = check_prefix(g, body.ptr, &prefix, err);
    if (rc < 0) {
        return rc;
    }
    mr_bytes message = {body.ptr + MR_GRPC_PREFIX_BYTES, body.len - MR_GRPC_PREFIX_BYTES};
    if (prefix.length > message.len) {
        return MR_FAIL(err, MR_E_INVALID, "the gRPC message is cut short");
    }
    if (prefix.length < message.len) {
        return MR_FAIL(err, MR_E_INVALID, "the request holds more than one gRPC message");
    }
    if (!prefix.is_compressed) {
        *out = message;
        return MR_OK;
    }
    rc = mr_grpc_unpack(g, message, g->call->arena, &st->unpacked, err);
    *out = st->unpacked;
    return rc;
}

/* Keeps a piece of an incomplete message. */
static int part_append(struct grpc_state *st, const uint8_t *data, size_t n)
{
    size_t need = st->part_len + n;

    if (!st->part || need > st->part->cap) {
        size_t cap = MR_MAX(ASSEMBLE_FIRST, need * ASSEMBLE_BELIEF);
        cap = MR_MIN(cap, MR_MAX((size_t)st->head.length, (size_t)1));
        if (!mr_block_grow(&st->part, st->part_len, cap)) {
            return MR_E_EXHAUSTED;
        }
    }
    memcpy(st->part->data + st->part_len, data, n);
    st->part_len = need;
    return MR_OK;
}

typedef void(on_message_fn)(void *ctx, mr_bytes message, struct mr_block *block);

/* One whole message. `block` (may be NULL) holds it; the reference is the caller's. */
static int emit(struct mr_grpc_call *g, bool is_compressed, mr_bytes message,
                struct mr_block *block, on_message_fn *on_message, void *ctx, struct mr_err *err)
{
    struct mr_block *plain = NULL;
    size_t len = 0;

    g->is_packed = is_compressed;
    if (!is_compressed || g->keeps_packed) {
        on_message(ctx, message, block);
        return MR_OK;
    }
    int rc = unpack(g, message, &plain, &len, err);
    if (rc < 0) {
        return rc;
    }
    on_message(ctx, (mr_bytes){plain->data, len}, plain);
    mr_block_unref(&plain);
    return MR_OK;
}

/* Take bytes of the prefix; true when it is complete. */
static bool take_prefix(struct grpc_state *st, mr_bytes *io_data)
{
    size_t n = MR_MIN(MR_GRPC_PREFIX_BYTES - st->prefix_len, io_data->len);

    if (n > 0) {
        memcpy(st->prefix + st->prefix_len, io_data->ptr, n);
        st->prefix_len += n;
        io_data->ptr += n;
        io_data->len -= n;
    }
    return st->prefix_len == MR_GRPC_PREFIX_BYTES;
}

/* Takes a message or a part of one off the front of *io_data. */
static int feed_step(struct mr_grpc_call *g, mr_bytes *io_data, on_message_fn *on_message,
                     void *ctx, struct mr_err *err)
{
    struct grpc_state *st = g->parser;
    bool had_prefix = st->prefix_len == MR_GRPC_PREFIX_BYTES;

    if (!take_prefix(st, io_data)) {
        return MR_OK;
    }
    if (!had_prefix) {
        int rc = check_prefix(g, st->prefix, &st->head, err);
        if (rc < 0) {
            return rc;
        }
    }
    struct mr_grpc_prefix head = st->head;
    size_t n = MR_MIN((size_t)head.length - st->part_len, io_data->len);
    mr_bytes run = {io_data->ptr, n};
    io_data->ptr += n;
    io_data->len -= n;
    if (n == head.length) {
        /* A message in one piece is not copied. The state is reset before the callback. */
        st->prefix_len = 0;
        return emit(g, head.is_compressed, run, NULL, on_message, ctx, err);
    }
    if (part_append(st, run.ptr, n) < 0) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for a gRPC message of %u bytes",
                       head.length);
    }
    if (st->part_len < head.length) {
        return MR_OK;
    }
    struct mr_block *block = st->part;
    st->part = NULL;
    st->part_len = st->prefix_len = 0;
    int rc = emit(g, head.is_compressed, (mr_bytes){block->data, head.length}, block, on_message,
                  ctx, err);
    mr_block_unref(&block);
    return rc;
}

int mr_grpc_feed(struct mr_grpc_call *g, mr_bytes data,
                 void (*on_message)(void *ctx, mr_bytes message, struct mr_block *block), void *ctx,
                 struct mr_err *err)
{
    struct mr_call_impl *call = MR_CONTAINER_OF(g->call, struct mr_call_impl, pub);
    struct grpc_state *st = g->parser;
    bool gone = false;
    int rc = MR_OK;

    st->gone = &gone;
    while (rc == MR_OK && data.len > 0) {
        if (!mr_call_impl_is_ready(call)) {
            mr_call_impl_put_back(call, data.len);
            break;
        }
        rc = feed_step(g, &data, on_message, ctx, err);
        if (gone) {
            return MR_E_CLOSED;
        }
        /* Ended, but kept alive by its stream. */
        if (!call->owes) {
            rc = MR_E_CLOSED;
        }
    }
    st->gone = NULL;
    return rc;
}

bool mr_grpc_feed_incomplete(const struct mr_grpc_call *g)
{
    const struct grpc_state *st = g->parser;

    return st->prefix_len > 0;
}

/* ---- messages out --------------------------------------------------------------------------- */

static void begin(struct mr_grpc_call *g, enum mr_grpc_compression compress)
{
    struct grpc_state *st = g->parser;
    struct mr_header headers[3] = {type_header, accept_header};
    size_t n = 2;

    if (st->has_begun) {
        return;
    }
    st->has_begun = true;
    st->sends = st->accept_mask & (1u << compress) ? compress : MR_GRPC_IDENTITY;
    if (st->sends != MR_GRPC_IDENTITY) {
        headers[n++] =
            (struct mr_header){MR_STR("grpc-encoding"), mr_grpc_encoding_name(st->sends)};
    }
    mr_call_begin(g->call, 200, headers, n);
}

#define PIECES_STACK 16

/* Writes a message after its prefix. */
static void write_framed(struct mr_call *call, bool is_packed, const struct mr_piece *pieces,
                         size_t count)
{
    struct mr_piece framed[PIECES_STACK];
    uint8_t prefix[MR_GRPC_PREFIX_BYTES];

    mr_grpc_prefix_write(prefix, is_packed, (uint32_t)mr_pieces_bytes(pieces, count));
    framed[0] = (struct mr_piece){.ptr = prefix, .len = sizeof prefix};
    if (count < PIECES_STACK) {
        if (count > 0) {
            memcpy(framed + 1, pieces, count * sizeof *pieces);
        }
        mr_call_write(call, framed, count + 1);
        return;
    }
    mr_call_write(call, framed, 1);
    mr_call_write(call, pieces, count);
}

int mr_grpc_pack(const struct mr_grpc_call *g, enum mr_grpc_compression compress,
                 struct mr_arena *arena, struct mr_grpc_message *io, struct mr_err *err)
{
    const size_t bytes = mr_pieces_bytes(io->pieces, io->count);

    if (bytes > INT32_MAX) {
        return MR_FAIL(err, MR_E_TOO_LARGE,
                       "an answer of %zu bytes is larger than a message of gRPC may be (%d bytes)",
                       bytes, INT32_MAX);
    }
    const struct grpc_state *st = g->parser;
    bool is_accepted =
        st->has_begun ? st->sends == compress : (st->accept_mask & (1u << compress)) != 0;
    struct mr_piece *packed;
    size_t count;

    io->packed = MR_GRPC_IDENTITY;
    if (compress == MR_GRPC_IDENTITY || !is_accepted || bytes == 0) {
        return MR_OK;
    }
    int rc = mr_compress(coding_of(compress), COMPRESS_LEVEL, io->pieces, io->count, arena, &packed,
                         &count, err);
    if (rc == MR_E_CANCELLED) {
        return rc;
    }
    if (rc == MR_OK) {
        mr_pieces_drop(io->pieces, io->count);
        *io = (struct mr_grpc_message){packed, count, compress};
    }
    return MR_OK; /* without memory it is sent uncompressed */
}

void mr_grpc_send_message(struct mr_grpc_call *g, const struct mr_grpc_message *m,
                          enum mr_grpc_compression compress)
{
    begin(g, compress);
    write_framed(g->call, m->packed != MR_GRPC_IDENTITY, m->pieces, m->count);
}

/* Errors: as of mr_grpc_pack; then nothing is sent and the pieces are dropped. */
static int pack_and_send(struct mr_grpc_call *g, const struct mr_piece *pieces, size_t piece_count,
                         enum mr_grpc_compression compress, struct mr_err *err)
{
    struct mr_grpc_message m = {.pieces = pieces, .count = piece_count};
    const int rc = mr_grpc_pack(g, compress, g->call->arena, &m, err);

    if (rc < 0) {
        mr_pieces_drop(m.pieces, m.count);
    } else {
        mr_grpc_send_message(g, &m, compress);
    }
    return rc;
}

void mr_grpc_send(struct mr_grpc_call *g, const struct mr_piece *pieces, size_t piece_count,
                  enum mr_grpc_compression compress)
{
    const int rc = pack_and_send(g, pieces, piece_count, compress, NULL);

    MR_ASSERT(rc == MR_OK);
}

void mr_grpc_finish(struct mr_grpc_call *g, int grpc_status, mr_str message)
{
    mr_grpc_finish_with(g, grpc_status, message, NULL, 0);
}

void mr_grpc_finish_with(struct mr_grpc_call *g, int grpc_status, mr_str message,
                         const struct mr_header *more, size_t more_count)
{
    struct grpc_state *st = g->parser;
    char encoded[MR_GRPC_ENCODED_MAX(MESSAGE_TEXT_MAX)];
    char number[12];

    more_count = MR_MIN(more_count, (size_t)MR_GRPC_TRAILERS_MAX);
    if (!st->has_begun && grpc_status != MR_GRPC_OK) {
        trailers_only(g->call, grpc_status, message, more, more_count);
        return;
    }
    begin(g, MR_GRPC_IDENTITY);
    message.len = MR_MIN(message.len, MESSAGE_TEXT_MAX);
    size_t n = mr_grpc_percent_encode(message, encoded);
    int digits = 1;
    number[0] = '0';
    if (grpc_status != MR_GRPC_OK) {
        digits = snprintf(number, sizeof number, "%d", grpc_status);
    }
    struct mr_header trailers[2 + MR_GRPC_TRAILERS_MAX] = {
        {MR_STR("grpc-status"), mr_str_n(number, (size_t)digits)},
        {MR_STR("grpc-message"), mr_str_n(encoded, n)},
    };
    size_t count = n > 0 ? 2 : 1;
    if (more_count > 0) {
        memcpy(trailers + count, more, more_count * sizeof *more);
    }
    mr_call_end(g->call, trailers, count + more_count);
}

void mr_grpc_reply(struct mr_grpc_call *g, const struct mr_piece *pieces, size_t piece_count,
                   enum mr_grpc_compression compress)
{
    struct mr_err err;
    const int rc = pack_and_send(g, pieces, piece_count, compress, &err);

    if (rc < 0) {
        mr_grpc_fail(g, mr_status_grpc(rc), mr_str_c(err.msg));
    } else {
        mr_grpc_finish(g, MR_GRPC_OK, (mr_str){NULL, 0});
    }
}

void mr_grpc_fail(struct mr_grpc_call *g, int grpc_status, mr_str message)
{
    mr_grpc_finish(g, grpc_status, message);
}
