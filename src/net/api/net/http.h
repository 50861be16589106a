/* HTTP server: one request interface for HTTP/1.1 and HTTP/2. The first bytes of a connection show which of the two
 * it speaks. gRPC (net/grpc.h) is built on top.
 *
 * A request is a `struct mr_call`. Its life cycle: on_head headers are complete. The handler may set
 *   call->body_limit, call->body_align_at, ask
 *              for streaming, or reply at once (the rest of the body is then drained within bounds
 *              or the connection closed).
 *   on_body (collect mode) the whole body is in call->body; also when there is none.
 *   on_data (streaming mode) a piece of the body; `last` with the final one, which may be empty.
 *   on_cancel  the peer has closed the connection or reset the stream before the answer; at most once. A peer that
 *              has only ended its sending side also causes it: that peer can still receive the answer.
 * The handler replies exactly once, in any of these or later, on the loop's thread. The call and all it points to
 * stay valid until the reply, whatever happens to the connection; after on_cancel the handler must still reply, and
 * (except in the case above) the reply is dropped. on_cancel may reply. Replying ends the call: it must not be
 * accessed afterwards.
 *
 * HTTP/1.1: one call at a time per connection, pipelined requests wait in the buffer in order, and the end of the
 * connection is noticed during a call. HTTP/2: calls of one connection run concurrently.
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

/** Value of the first header of that name, which is lower case; ptr NULL: there is none. */
static inline mr_str mr_header_find(const struct mr_header *list, size_t count, mr_str name)
{
    for (size_t i = 0; i < count; i++) {
        if (mr_str_eq(list[i].name, name)) {
            return list[i].value;
        }
    }
    return (mr_str){NULL, 0};
}

enum mr_call_version { MR_CALL_HTTP10 = 10, MR_CALL_HTTP11 = 11, MR_CALL_HTTP2 = 20 };

/** One request. Fields are set by net and read by the handler, except where said. */
struct mr_call {
    struct mr_loop *loop;
    struct mr_arena *arena; /* freed with the call; net does not use it from on_body to the reply */
    enum mr_call_version version;
    bool head_only; /* HEAD: the reply's body is counted but not sent */
    bool is_grpc;   /* HTTP/2 POST with content-type application/grpc[+proto] */
    bool cancelled; /* the peer has gone */
    bool over_unix; /* came over a Unix-domain socket */
    mr_str method;
    mr_str path;  /* without query, as sent, not percent-decoded */
    mr_str query; /* after '?', may be empty */
    /* without pseudo headers; HTTP/2's :authority is "host" */
    const struct mr_header *headers;
    size_t header_count;
    const char *head;      /* with keep_head_case: the head into which names point, */
    const char *head_sent; /* and the head as sent; NULL = not kept */
    size_t head_len;
    int64_t content_length; /* -1 = unknown (chunked, or HTTP/2 without the header) */
    int64_t recv_start_ns;  /* first byte of the request received */
    int64_t recv_end_ns;    /* body complete */
    /** Collect mode: the body. body_block is set if the body has a block of its own: a handler that keeps parts of it
     *  beyond the reply takes a reference. NULL: the bytes are freed with the call. */
    mr_bytes body;
    struct mr_block *body_block;

    /* ---- set by the handler in on_head ---- */
    int64_t body_limit;    /* for more bytes on_body_refused is called instead of on_body */
    int64_t body_align_at; /* >= 0: let this offset of the body be 64-byte aligned (best effort) */
    bool streaming;        /* deliver on_data instead of collecting */
    /** (set in body_place) Memory for the body, used before the loop goes on; NULL: the pool's, which it also gets when
     *  the provider has none. */
    const struct mr_block_provider *body_provider;
    /** (optional) Runs once, as the handler ends the call, which is whole until it returns. status: gRPC's of a gRPC
     *  call, HTTP's of others; -1: the answer was cut off, or says none. */
    void (*ended)(struct mr_call *call, int status);
    void *user;        /* for the handler */
    uint32_t retry_ms; /* for the handler: what a refusal says about a later try; 0: its default */
};

struct mr_http_handler {
    void (*on_head)(void *ctx, struct mr_call *call);
    void (*on_body)(void *ctx, struct mr_call *call);
    void (*on_data)(void *ctx, struct mr_call *call, mr_bytes data,
                    bool last);                         /* needed for streaming */
    void (*on_cancel)(void *ctx, struct mr_call *call); /* (optional) */
    /** (optional) After mr_call_when_room. */
    void (*on_room)(void *ctx, struct mr_call *call);
    /** The body passed body_limit, its declared length is larger, or (status MR_E_EXHAUSTED) the
     *  byte budget is used up. The handler replies. */
    void (*on_body_refused)(void *ctx, struct mr_call *call, int status);
    /** (optional) Called when the first bytes `have` of a collected body of more than 64 KiB have arrived: may set
     *  body_align_at and, if the length of the body is known, body_provider. */
    void (*body_place)(void *ctx, struct mr_call *call, mr_bytes have);
    /** (optional) A connection failed at its start: its TLS handshake failed, or it sent TLS to a plain listener. For
     *  a log: `why` holds no text from the peer. */
    void (*on_bad_start)(void *ctx, int tag, const char *peer, const char *why);
    void *ctx;
};

/** Bytes of the body and of the answer's that was given, as sent; of gRPC without the prefix of the first message. A streamed
 *  body is what has come of it; of one that is collected there is nothing until it is whole. Thread: loop. */
struct mr_call_bytes {
    uint64_t in, out;
};
struct mr_call_bytes mr_call_bytes(const struct mr_call *call);

/** Value of a header (lower-case name), or a slice with ptr NULL. The first one if there are
 *  several. */
mr_str mr_call_header(const struct mr_call *call, const char *lower_name);
/** The name of a header of the call in the case in which an HTTP/1 peer sent it, with options.keep_head_case;
 *  otherwise in lower case. Valid as long as the call. */
mr_str mr_call_name_sent(const struct mr_call *call, const struct mr_header *header);

struct mr_reply {
    int status;
    /* content-type and so on; net adds content-length, date, server, connection. A header with a control character in
     * its value is left out. */
    const struct mr_header *headers;
    size_t header_count;
    const struct mr_piece *pieces; /* base/pool.h */
    size_t piece_count;
    bool close; /* HTTP/1: close the connection after this answer */
};

/** Answers and ends the call; `call` is gone afterwards. Thread: loop. */
void mr_call_reply(struct mr_call *call, const struct mr_reply *reply);

/** Answer in parts (streams, gRPC): begin, any number of writes, end with trailers (HTTP/2 only;
 *  may be NULL). HTTP/1.1 uses chunked coding. After end the call is gone. Thread: loop. */
void mr_call_begin(struct mr_call *call, int status, const struct mr_header *headers,
                   size_t header_count);
void mr_call_write(struct mr_call *call, const struct mr_piece *pieces, size_t piece_count);
void mr_call_end(struct mr_call *call, const struct mr_header *trailers, size_t trailer_count);
/** Streaming mode: stops or resumes on_data (flow control towards the peer). While the call is backlogged
 *  (mr_call_is_backlogged), on_data is not called in any case. */
void mr_call_pause(struct mr_call *call, bool paused);
/** Streaming, HTTP/2: what on_data has given already is given again, before what comes. Not within on_data. */
void mr_call_unread(struct mr_call *call, mr_bytes data);
/** Streaming: adds `bytes` (may be negative) to the memory that the handler holds for unanswered input of this call.
 *  While it is much, on_data is not called; answers leave all the same, as they are what ends it. */
void mr_call_hold(struct mr_call *call, int64_t bytes);
/** A waiter for mr_call_wait_read. Zeroed before its first use. */
struct mr_call_wait {
    void (*run)(struct mr_call_wait *w); /* the client has read; w no longer waits */
    /* ---- private ---- */
    TAILQ_ENTRY(mr_call_wait) link;
    struct mr_call_waits *list; /* NULL: does not wait */
};
/** A flag that is true while unread answers of the call's connection take more than an eighth of the byte budget and
 *  more than max_output_backlog, until half of that is left: queued requests of the connection should then not run.
 *  HTTP/2 only: an HTTP/1 connection has no queued requests. Valid as long as the call. Thread of the flag: any;
 *  relaxed, a hint. */
const _Atomic bool *mr_call_is_unread(const struct mr_call *call);
/** Waits until that flag is false; in order. False: there is nothing to wait for, or the connection is gone. The
 *  handler ends the wait when the call is cancelled. Thread: loop. */
bool mr_call_wait_read(struct mr_call *call, struct mr_call_wait *w);
/** No effect if w does not wait. */
void mr_call_wait_end(struct mr_call_wait *w);
/** True if the connection's answers that wait for a slow reader have reached their memory limit: the handler should
 *  make no more until on_room. HTTP/2: not for what other streams have unread, while it is at most 64 KiB of this call.
 *  False for a peer that is gone. */
bool mr_call_is_backlogged(const struct mr_call *call);
/** Requests one call of on_room when the backlog is gone. */
void mr_call_when_room(struct mr_call *call);
/** With options.takes_memory: the memory that the client has passed on this connection, a socket file's without TLS, by the
 *  latest SCM_RIGHTS; a memfd whose size cannot change, of at most 1 GiB. The client writes to it at any time: bytes are copied
 *  out by pread and checked afterwards. Borrowed until the loop goes on, as another may take its place. -1: there is none. */
int mr_call_passed_memory(const struct mr_call *call, uint64_t *out_bytes);
/** Reset without answer (HTTP/2 RST_STREAM with this error code; HTTP/1 closes). */
void mr_call_abort(struct mr_call *call, uint32_t h2_error);

/* ---- server ---- */

struct mr_http_options {
    int64_t max_connections;  /* per process, 0 = no limit; further ones get 503 and are closed */
    int64_t max_header_bytes; /* 431 past it; default 65536 */
    int64_t max_headers;      /* default 100 */
    /** Listeners with this tag are for other servers, which send the requests of all their clients on over one connection;
     *  default 0: none is. They take a few headers more, 100000 streams, any number of resets, and over TLS, whose
     *  certificates then tell who asks, any Host. */
    int relay_tag;
    int64_t max_body_bytes;    /* default limit for calls that do not set their own; -1 = none */
    int64_t max_arena_bytes;   /* most memory of one call's arena; default 64 MiB */
    int64_t header_timeout_ns; /* from first byte to complete head: 408 and close; default 10 s */
    int64_t body_timeout_ns;   /* without any body byte: 408 and close; default 30 s */
    int64_t idle_timeout_ns;   /* keep-alive without request; default 0 = never */
    int64_t write_timeout_ns;  /* for a peer that reads nothing; default 30 s */
    /* bytes/s: a body or a blocked answer that is slower than this for longer than its timeout
     * counts as stopped; default 1024, 0 = any */
    int64_t min_rate;
    /* memory of answers waiting for a slow reader at which its further requests wait; default 4
     * MiB. While half of the byte budget is used: 64 KiB */
    int64_t max_output_backlog;
    uint32_t h2_max_streams;  /* default 256 */
    uint32_t h2_window_bytes; /* stream window; default 1 MiB; connection window 16 times that */
    uint32_t h2_max_resets; /* RST_STREAMs per 30 s before the connection is closed; default 1000 */
    int64_t h2_ping_interval_ns; /* keep-alive pings, 0 = off */
    const char *server_name;     /* "server" header, NULL = none */
    bool keep_head_case;         /* for mr_call_name_sent; default false */
    bool takes_memory;           /* for mr_call_passed_memory; default false */
    /** Refuses requests of foreign web pages (403, PERMISSION_DENIED): with an Origin that is neither allowed nor the
     *  request's own Host; and with a Host that is neither an address, "localhost" nor an allowed name, on loopback
     *  listeners, or on all TCP listeners if names are given. Allowed origins are answered by the rules of CORS. The
     *  lists and their texts are borrowed until the server is freed. Default false. */
    bool refuse_foreign;
    const char *const *allowed_hosts; /* see mr_http_check_host */
    size_t allowed_host_count;
    const char *const *allowed_origins; /* see mr_http_check_origin */
    size_t allowed_origin_count;
};
/** A host's name without port, or "*" for any. Errors: MR_E_INVALID. Thread: any. */
int mr_http_check_host(mr_str name, struct mr_err *err);
/** scheme://host[:port], "null" (pages without an origin), or "*" for any. Errors: MR_E_INVALID. Thread: any. */
int mr_http_check_origin(mr_str origin, struct mr_err *err);
/** Sets the defaults given above; 0 connections, 64 MiB body. */
void mr_http_options_init(struct mr_http_options *o);

/** One server object per process: shared limits, one handler; its listeners are spread over loops.
 */
int mr_http_server_new(struct mr_http_server **out, const struct mr_http_options *options,
                       const struct mr_http_handler *handler, struct mr_err *err);
/** Listen on "host:port", "[v6]:port" (port 0 = any free one), or "unix:/path" on all the loops.
 *  The loops need not run yet. *out_port: the port bound (0 for unix). `tag` is given to every call's listener for
 *  metrics: 0 http, 1 grpc, 2 metrics. Errors: MR_E_INVALID (address), MR_E_IO (in use...). Unix: an existing socket
 *  without a listener is replaced, any other file is an error.
 *  Thread: boot. */
int mr_http_listen(struct mr_http_server *s, struct mr_loop *const *loops, size_t loop_count,
                   const char *address, int tag, bool reuse_port, uint16_t *out_port,
                   struct mr_err *err);
/** The same over TLS; `tls` is borrowed until the server's connections are closed. */
int mr_http_listen_tls(struct mr_http_server *s, struct mr_loop *const *loops, size_t loop_count,
                       const char *address, int tag, bool reuse_port, struct mr_tls *tls,
                       uint16_t *out_port, struct mr_err *err);
/** True if no process listens at this Unix socket or loopback address of this machine ("127.x.y.z:port", "[::1]:port"). False if one
 *  does, if the address is another machine's or a name, or if the system does not say so at once. Thread: any. */
bool mr_http_is_unused(const char *address);
/** True for an address that only this machine reaches: a loopback address with a port ("127.x.y.z:port", "[::1]:port",
 *  "localhost:port") or "unix:/path". Other names may lead anywhere. Thread: any. */
bool mr_http_is_local(const char *address);
/** True for a numeric address without a port: "127.0.0.1", "::1", "[::1]", "fe80::1%eth0". Thread: any. */
bool mr_http_is_address(mr_str host);
int mr_call_listener_tag(const struct mr_call *call);
/** The peer as text, for logs: "127.0.0.1:4711", "unix". Static per connection. */
const char *mr_call_peer(const struct mr_call *call);
/** True if no other machine can read or change the call: it came over TLS, over a Unix-domain socket or from this machine. False for a
 *  cancelled call. Thread: the call's loop. */
bool mr_call_is_private(const struct mr_call *call);

/** Draining: stops listening, closes idle connections, and sends `Connection: close` / GOAWAY on the others as their
 *  calls end. Connections that wait to be accepted are among the others if they have sent a request. Thread: any. */
void mr_http_server_drain(struct mr_http_server *s);
/** False: every loop drains, and has accepted its last connection. Thread: any. */
bool mr_http_server_listens(const struct mr_http_server *s);
/** Connections open now. Thread: any. */
int64_t mr_http_server_connections(const struct mr_http_server *s);
/** Close everything at once on every loop (the loops must still be running, or have not been
 *  started). `done` is called on the last loop. Thread: any. */
void mr_http_server_close(struct mr_http_server *s, void (*done)(void *ctx), void *ctx);
/** Drops the owner's reference: the memory is freed with the last listener and connection, so this may be called
 *  before `done`. A server that listened must have been closed. Thread: any. */
void mr_http_server_free(struct mr_http_server **s);

#endif
