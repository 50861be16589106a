/* HTTP server: HTTP/1.1 and HTTP/2 behind one request interface. Which of the two a connection
 * speaks is told by its first bytes. gRPC (net/grpc.h) sits on top.
 *
 * A request is a `struct mr_call`. Its life: on_head headers are complete. The handler may set
 *   call->body_limit, call->body_align_at, ask
 *              for streaming, or reply at once (the rest of the body is then drained within bounds
 *              or the connection closed).
 *   on_body (collect mode) the whole body is in call->body; also when there is none.
 *   on_data (streaming mode) a piece of the body; `last` with the final one, which may be empty.
 *   on_cancel  the peer is gone or reset the stream before the answer; at most once. A peer that
 *              has only ended its sending is told of in the same way: an answer still reaches it.
 * The handler replies exactly once, in any of these or later, on the loop's thread. The call and
 * all it points to live until the reply was given, whatever the connection does; after on_cancel
 * the reply is still owed and (but for the case above) goes nowhere. The reply may be given within
 * on_cancel. Replying ends the call: nothing of it may be touched afterwards.
 *
 * HTTP/1.1: one call at a time per connection, pipelined requests wait in the buffer in order. The
 * connection is watched for its end meanwhile. HTTP/2: calls of one connection run concurrently.
 *
 * Strictness (RFC 9112, 9113): both Content-Length and Transfer-Encoding, unequal duplicates, bare
 * CR, obs-fold, white space before the colon, bad chunk sizes, unknown transfer codings, missing or
 * double Host: 400 and close. */
#ifndef MR_NET_HTTP_H
#define MR_NET_HTTP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/mailbox.h"
#include "base/pool.h"
#include "base/str.h"
#include "net/loop.h"

struct mr_http_server;
struct mr_call;
struct mr_tls;

struct mr_header {
    mr_str name;  /* lower case, also for HTTP/1 */
    mr_str value; /* trimmed */
};

enum mr_call_version { MR_CALL_HTTP10 = 10, MR_CALL_HTTP11 = 11, MR_CALL_HTTP2 = 20 };

/** One request. Fields are set by net and read by the handler, except where said. */
struct mr_call {
    struct mr_loop *loop;
    struct mr_arena *arena; /* dies with the call; net leaves it alone from on_body to the reply */
    enum mr_call_version version;
    bool head_only; /* HEAD: the reply's body is counted but not sent */
    bool is_grpc;   /* HTTP/2 POST with content-type application/grpc[+proto] */
    bool cancelled; /* the peer is gone */
    bool over_unix; /* came over a Unix-domain socket */
    mr_str method;
    mr_str path;  /* without query, as sent, not percent-decoded */
    mr_str query; /* behind '?', may be empty */
    const struct mr_header
        *headers; /* pseudo headers and Host (as "host") left out of it or in, see find */
    size_t header_count;
    const char *head; /* where names point into, and what was sent there, with keep_head_case; */
    const char *head_sent; /* NULL = not kept */
    size_t head_len;
    int64_t content_length; /* -1 when not known (chunked, HTTP/2 without) */
    int64_t recv_start_ns;  /* first byte of the request seen */
    int64_t recv_end_ns;    /* body complete */
    /** Collect mode: the body. body_block is set when the body has a block of its own: a handler
     *  that wants to keep parts beyond the reply takes a reference; NULL when the bytes die with
     *  the call. */
    mr_bytes body;
    struct mr_block *body_block;

    /* ---- set by the handler in on_head ---- */
    int64_t body_limit;    /* more bytes than this: on_body is not called, body_too_large is */
    int64_t body_align_at; /* >= 0: let this offset of the body be 64-byte aligned (best effort) */
    bool streaming;        /* deliver on_data instead of collecting */
    void *user;            /* the handler's own */
};

struct mr_http_handler {
    void (*on_head)(void *ctx, struct mr_call *call);
    void (*on_body)(void *ctx, struct mr_call *call);
    void (*on_data)(void *ctx, struct mr_call *call, mr_bytes data,
                    bool last);                         /* if ever streaming */
    void (*on_cancel)(void *ctx, struct mr_call *call); /* (optional) */
    /** (optional) After mr_call_when_room. */
    void (*on_room)(void *ctx, struct mr_call *call);
    /** The body passed body_limit, its declared length is larger, or (status MR_E_EXHAUSTED) the
     *  byte budget is used up. The handler replies. */
    void (*on_body_refused)(void *ctx, struct mr_call *call, int status);
    /** (optional) When the first `have` bytes of a collected body are there but not all: where in
     *  the body is the offset that should be 64-byte aligned? -1 = do not care. Only for bodies >
     *  64 KiB, when body_align_at is -1. */
    int64_t (*body_align)(void *ctx, struct mr_call *call, mr_bytes have);
    /** (optional) A connection came to nothing: its TLS handshake failed, or it speaks TLS where none
     *  is spoken. For a log: `why` holds nothing that the peer chose. */
    void (*on_bad_start)(void *ctx, int tag, const char *peer, const char *why);
    void *ctx;
};

/** Value of a header (lower-case name), or a slice with ptr NULL. The first one if there are
 *  several. */
mr_str mr_call_header(const struct mr_call *call, const char *lower_name);
/** The name of a header of the call in the case in which an HTTP/1 peer sent it, with
 *  options.keep_head_case; otherwise as it is. Lives as long as the call. */
mr_str mr_call_name_sent(const struct mr_call *call, const struct mr_header *header);

struct mr_reply {
    int status;
    /* content-type and so on; content-length, date, server, connection are net's. A header with a
     * control character in its value is left out. */
    const struct mr_header *headers;
    size_t header_count;
    const struct mr_piece *pieces; /* base/pool.h */
    size_t piece_count;
    bool close; /* HTTP/1: close the connection after this answer */
};

/** Answer and end the call; `call` is gone afterwards. Thread: loop. */
void mr_call_reply(struct mr_call *call, const struct mr_reply *reply);

/** Answer in parts (streams, gRPC): begin, any number of writes, end with trailers (HTTP/2 only;
 *  may be NULL). HTTP/1.1 uses chunked coding. After end the call is gone. Thread: loop. */
void mr_call_begin(struct mr_call *call, int status, const struct mr_header *headers,
                   size_t header_count);
void mr_call_write(struct mr_call *call, const struct mr_piece *pieces, size_t piece_count);
void mr_call_end(struct mr_call *call, const struct mr_header *trailers, size_t trailer_count);
/** Streaming mode: stop and resume delivery of on_data (flow control towards the peer). While the connection's
 *  answers wait for a slow reader (max_output_backlog) there is none in any case. */
void mr_call_pause(struct mr_call *call, bool paused);
/** Streaming: the memory that the handler has for what it took of this call and has not answered grows or (negative)
 *  shrinks by so much. It counts as memory of answers that wait. */
void mr_call_hold(struct mr_call *call, int64_t bytes);
/** Something that waits until the client has read (mr_call_wait_read). Zeroed before. */
struct mr_call_wait {
    void (*run)(struct mr_call_wait *w); /* the client has read; w waits no more */
    /* ---- net's own ---- */
    TAILQ_ENTRY(mr_call_wait) link;
    struct mr_call_waits *list; /* NULL: does not wait */
};
/** True while answers that the client of the call has not read take more than an eighth of the byte budget and more
 *  than max_output_backlog, until half of that is left: requests of its connection that were taken before should not run.
 *  HTTP/2 only: on an HTTP/1 connection nothing is taken before. Lives as long as the call. Thread of the flag: any;
 *  relaxed, a hint. */
const _Atomic bool *mr_call_is_unread(const struct mr_call *call);
/** Wait until that is over; in order. False: it is over, or the connection is gone. The handler ends the wait when the
 *  call is cancelled. Thread: loop. */
bool mr_call_wait_read(struct mr_call *call, struct mr_call_wait *w);
/** Nothing happens when it does not wait. */
void mr_call_wait_end(struct mr_call_wait *w);
/** The connection's answers that wait for a slow reader take as much memory as they may: what makes more of them should
 *  stop until on_room. False for a peer that is gone. */
bool mr_call_is_backlogged(const struct mr_call *call);
/** Let on_room be called once, when the backlog is gone. */
void mr_call_when_room(struct mr_call *call);
/** Reset without answer (HTTP/2 RST_STREAM with this error code; HTTP/1 closes). */
void mr_call_abort(struct mr_call *call, uint32_t h2_error);

/* ---- server ---- */

struct mr_http_options {
    int64_t max_connections;   /* per process, 0 = no limit; one more is answered 503 and closed */
    int64_t max_header_bytes;  /* 431 past it; default 65536 */
    int64_t max_headers;       /* default 100 */
    int64_t max_body_bytes;    /* default limit for calls that do not set their own; -1 = none */
    int64_t max_arena_bytes;   /* most memory of one call's arena; default 64 MiB */
    int64_t header_timeout_ns; /* from first byte to complete head: 408 and close; default 10 s */
    int64_t body_timeout_ns;   /* without any body byte: 408 and close; default 30 s */
    int64_t idle_timeout_ns;   /* keep-alive without request; default 0 = never */
    int64_t write_timeout_ns;  /* a peer that takes nothing; default 30 s */
    int64_t min_rate; /* bytes/s: a body, or an answer that is stuck, which moves slower than this
                                * for longer than its timeout counts as not moving; default 1024, 0 = any */
    int64_t
        max_output_backlog; /* memory of answers that wait for a slow reader before its requests wait; default
                                 * 4 MiB. While half of the byte budget is used: 64 KiB */
    uint32_t h2_max_streams;  /* default 256 */
    uint32_t h2_window_bytes; /* stream window; default 1 MiB; connection window 16 times that */
    uint32_t h2_max_resets; /* RST_STREAMs per 30 s before the connection is closed; default 1000 */
    int64_t h2_ping_interval_ns; /* our keep-alive pings, 0 = off */
    const char *server_name;     /* "server" header, NULL = none */
    bool keep_head_case;         /* for mr_call_name_sent; default false */
    /** Refuse requests of web pages that have no business here (403, PERMISSION_DENIED): with an Origin that is neither
     *  allowed nor the request's own Host; and with a Host that is neither an address, "localhost" nor an allowed name,
     *  on loopback listeners, or on all TCP listeners when names are given. Allowed origins are answered by the rules of
     *  CORS. The lists and their texts are borrowed until the server is gone. Default false. */
    bool refuse_foreign;
    const char *const *allowed_hosts; /* as mr_http_check_host wants them */
    size_t allowed_host_count;
    const char *const *allowed_origins; /* as mr_http_check_origin wants them */
    size_t allowed_origin_count;
};
/** A host's name without port, or "*" for any. Errors: MR_E_INVALID. Thread: any. */
int mr_http_check_host(mr_str name, struct mr_err *err);
/** scheme://host[:port], "null" (pages without an origin), or "*" for any. Errors: MR_E_INVALID. Thread: any. */
int mr_http_check_origin(mr_str origin, struct mr_err *err);
/** Defaults as said above; 0 connections, 64 MiB body. */
void mr_http_options_init(struct mr_http_options *o);

/** One server object per process: shared limits, one handler; its listeners are spread over loops.
 */
int mr_http_server_new(struct mr_http_server **out, const struct mr_http_options *options,
                       const struct mr_http_handler *handler, struct mr_err *err);
/** Listen on "host:port", "[v6]:port" (port 0 = any free one), or "unix:/path" on all the loops.
 *  Not yet running loops are fine. *out_port: the port bound (0 for unix). `tag` is given to every
 *  call's listener for metrics: 0 http, 1 grpc, 2 metrics. Errors: MR_E_INVALID (address), MR_E_IO
 *  (in use...). Unix: an existing socket nobody listens on is replaced, anything else is refused.
 *  Thread: boot. */
int mr_http_listen(struct mr_http_server *s, struct mr_loop *const *loops, size_t loop_count,
                   const char *address, int tag, bool reuse_port, uint16_t *out_port,
                   struct mr_err *err);
/** The same over TLS; `tls` is borrowed until the server's connections are closed. */
int mr_http_listen_tls(struct mr_http_server *s, struct mr_loop *const *loops, size_t loop_count,
                       const char *address, int tag, bool reuse_port, struct mr_tls *tls,
                       uint16_t *out_port, struct mr_err *err);
int mr_call_listener_tag(const struct mr_call *call);
/** The peer as text, for logs: "127.0.0.1:4711", "unix". Static per connection. */
const char *mr_call_peer(const struct mr_call *call);

/** Draining: stop listening, close idle connections, `Connection: close` / GOAWAY on the others as
 *  their calls end. Thread: any. */
void mr_http_server_drain(struct mr_http_server *s);
/** Connections open now. Thread: any. */
int64_t mr_http_server_connections(const struct mr_http_server *s);
/** Close everything at once on every loop (the loops must still be running, or have not been
 *  started). `done` is called on the last loop. Thread: any. */
void mr_http_server_close(struct mr_http_server *s, void (*done)(void *ctx), void *ctx);
/** Let go of the server: its memory goes with its last listener and connection, so this may be
 *  called before `done`. A server that listened must have been closed. Thread: any. */
void mr_http_server_free(struct mr_http_server **s);

#endif
