/* gRPC over HTTP/2, server side: message framing, compression, status trailers, deadlines. A `struct mr_grpc_call`
 * wraps one mr_call whose is_grpc is true. */
#ifndef MR_NET_GRPC_H
#define MR_NET_GRPC_H

#include "net/grpc_status.h"
#include "net/http.h"

enum mr_grpc_compression { MR_GRPC_IDENTITY = 0, MR_GRPC_GZIP = 1, MR_GRPC_DEFLATE = 2 };

struct mr_grpc_call {
    struct mr_call *call;
    int64_t deadline_ns;               /* from grpc-timeout, monotonic, 0 = none */
    mr_str service_method;             /* the path: "/pkg.Service/Method" */
    enum mr_grpc_compression accepts;  /* the best that the peer accepts */
    enum mr_grpc_compression encoding; /* of the peer's messages */
    int64_t max_message_bytes;
    /* set by the handler: the option that sets max_message_bytes, for errors */
    const char *limit_name;
    /* set by the handler: limit for compressed messages, see mr_decompress_max */
    uint32_t max_ratio;
    bool keeps_packed; /* set by the handler: the handler unpacks, mr_grpc_feed does not */
    bool is_packed;    /* while on_message runs: that message is compressed */
    void *parser;      /* private */
};

/** Reads the gRPC request headers of a call into *g (arena of the call). An unacceptable call (bad timeout, unknown
 *  grpc-encoding → UNIMPLEMENTED with grpc-accept-encoding) is answered here; a negative status is then returned, and
 *  the call is gone. */
int mr_grpc_begin(struct mr_grpc_call *g, struct mr_call *call, int64_t max_message_bytes);

/** Unary and collected: takes the single message from call->body, decompressed if necessary (into a block owned by
 *  the call). Errors: MR_E_INVALID (framing, none, more than one), MR_E_TOO_LARGE, MR_E_UNSUPPORTED (compressed flag
 *  without encoding). */
int mr_grpc_message(struct mr_grpc_call *g, mr_bytes *out, struct mr_err *err);
/** What mr_grpc_message returns from then on; lives as long as the call. */
void mr_grpc_set_message(struct mr_grpc_call *g, mr_bytes message);
/** True if mr_grpc_message has to decompress: it should then be the work of a turn (base/turn.h). A second call of
 *  mr_grpc_message returns the result of the first. */
bool mr_grpc_is_packed(const struct mr_grpc_call *g);
/** Decompresses a message that mr_grpc_feed left packed into a block that `arena` keeps. May be the work of a turn. */
int mr_grpc_unpack(const struct mr_grpc_call *g, mr_bytes message, struct mr_arena *arena,
                   mr_bytes *out, struct mr_err *err);

/** Streaming: feed a piece from on_data; calls on_message for each complete message, in order. The
 *  message bytes are in *block (may be NULL: valid during the callback only) for as long as a
 *  reference is held. Errors as above; the caller then finishes the call with them. on_message may
 *  end the call: MR_E_CLOSED is then returned, the rest of `data` is ignored, and the call is gone. When on_message
 *  pauses the call, or its answers wait for the peer, a later on_data delivers the rest again. */
int mr_grpc_feed(struct mr_grpc_call *g, mr_bytes data,
                 void (*on_message)(void *ctx, mr_bytes message, struct mr_block *block), void *ctx,
                 struct mr_err *err);
/** True if the stream ended inside a message. */
bool mr_grpc_feed_incomplete(const struct mr_grpc_call *g);

/** Answer a unary call with one message (pieces concatenated) and OK; with an error if it is of 2 GiB or more. compress: use
 *  it if accepted. */
void mr_grpc_reply(struct mr_grpc_call *g, const struct mr_piece *pieces, size_t piece_count,
                   enum mr_grpc_compression compress);
/** Answers with a status only (trailers-only if nothing was sent before). Percent-encodes the message. grpc_status:
 *  enum mr_grpc_status. */
void mr_grpc_fail(struct mr_grpc_call *g, int grpc_status, mr_str message);
/** Streaming: one message of less than 2 GiB now (sends the headers the first time), and the end. */
void mr_grpc_send(struct mr_grpc_call *g, const struct mr_piece *pieces, size_t piece_count,
                  enum mr_grpc_compression compress);
void mr_grpc_finish(struct mr_grpc_call *g, int grpc_status, mr_str message);
#define MR_GRPC_TRAILERS_MAX 20
/** As mr_grpc_finish, with trailing metadata after the status, of which the first MR_GRPC_TRAILERS_MAX are sent. Names are in
 *  lower case and none of gRPC's own, values are printable ASCII. */
void mr_grpc_finish_with(struct mr_grpc_call *g, int grpc_status, mr_str message,
                         const struct mr_header *trailers, size_t trailer_count);

/** The same in two steps, for messages that take long to compress: the first step may be the work of a turn. */
struct mr_grpc_message {
    const struct mr_piece *pieces;
    size_t count;
    enum mr_grpc_compression packed;
};
/** Compresses *io if the peer accepts that: its pieces are then dropped, and the new ones lie in `arena`. Without
 *  memory *io stays uncompressed. Errors: MR_E_CANCELLED (the turn was ended; *io is unchanged), MR_E_TOO_LARGE (of 2 GiB or
 *  more, which no client can read; the same). */
int mr_grpc_pack(const struct mr_grpc_call *g, enum mr_grpc_compression compress,
                 struct mr_arena *arena, struct mr_grpc_message *io, struct mr_err *err);
/** compress: as given to mr_grpc_pack. */
void mr_grpc_send_message(struct mr_grpc_call *g, const struct mr_grpc_message *m,
                          enum mr_grpc_compression compress);

/** "grpc-timeout": 1 to 8 digits and a unit of H M S m u n. False for any other text. Thread: any. */
bool mr_grpc_timeout_parse(mr_str value, int64_t *out_ns);

/** Offset of the bytes of the first large LEN field `field_number` in the body of a gRPC message such as ModelInfer,
 *  for mr_http_handler.body_place. -1 = not found in `have`. */
int64_t mr_grpc_align_hint(mr_bytes have, uint32_t field_number);

#endif
