/* HTTP client on a loop: HTTP/1.1 and HTTP/2 (prior knowledge), gRPC calls and streams on top. One `struct mr_client`
 * per host keeps its connections. Thread: loop, or any while the loop is not running yet.
 *
 * A request that meets a kept connection which the server just closed, and has not got one byte of its
 * response, is sent once more on a new one, unless never_repeat is set. So is one that a server of HTTP/2 has not
 * begun, as it says (REFUSED_STREAM, or GOAWAY), whatever the request's never_repeat. Nothing else is repeated. */
#ifndef MR_NET_CLIENT_H
#define MR_NET_CLIENT_H

#include "net/grpc_status.h"
#include "net/http.h"

struct mr_client;
struct mr_tls_client;

/** All-zero means defaults. */
struct mr_client_options {
    bool http2;                 /* HTTP/2 (with prior knowledge, or ALPN); otherwise HTTP/1.1 */
    struct mr_tls_client *tls;  /* NULL: no TLS; borrowed until the client is gone */
    int64_t connect_timeout_ns; /* name look-up included; default 5 s */
    int64_t max_response_bytes; /* default 1 GiB */
    uint32_t max_connections;   /* HTTP/1.1: default 64; HTTP/2: 1 */
    bool never_repeat; /* every failure is reported, also one that a second attempt might avoid */
    /** "Name: value", sent with every request and gRPC call, in place of a header of that name in the request. `host`
     *  also replaces the authority of HTTP/2. Copied; never in a text of an error or a log. */
    const char *const *headers;
    size_t header_count; /* at most 64 */
    /** The other way round: a header of the request is sent in place of one of `headers`. */
    bool headers_are_defaults;
};

/** A memfd of the caller for a server on the same host. */
struct mr_client_memory {
    int fd;      /* open until `done` was called */
    uint64_t id; /* another one for each memfd of the process, > 0; 0: none */
};

struct mr_client_request {
    const char *method;
    mr_str path; /* with query */
    /** Names in lower case; content-length and user-agent are net's. */
    const struct mr_header *headers;
    size_t header_count;
    const struct mr_piece *pieces; /* copied or referenced as for replies */
    size_t piece_count;
    int64_t timeout_ns; /* of the whole call, waiting and connecting included; 0 = none */
    /** HTTP/1.1 over a Unix socket without TLS: the connection passes it (SCM_RIGHTS), unless it was the last that it passed. */
    struct mr_client_memory memory;
    /** The server must not get it twice: a connection that breaks under it is its end. */
    bool never_repeat;
};

struct mr_client_response {
    int status;                      /* HTTP status */
    const struct mr_header *headers; /* names lower case; valid until done returns */
    size_t header_count;
    const struct mr_header *trailers;
    size_t trailer_count;
    mr_bytes body;
    struct mr_block *body_block; /* take a reference to keep the body */
    int grpc_status; /* of a gRPC call, as the server gave it (enum mr_grpc_status); -1: it gave none */
};

/** How long the server wants to be left alone, by its answer: Retry-After, in seconds or as a date, or
 *  grpc-retry-pushback-ms. At most a day; 0: it does not say, or the date is past. Source: RFC 9110 section 10.2.3. */
int64_t mr_client_retry_after_ns(const struct mr_client_response *response);
/** "Sun, 06 Nov 1994 08:49:37 GMT" in ns since the epoch; -1: it is no such date. Source: RFC 9110 section 5.6.7. */
int64_t mr_http_date_ns(mr_str text);

/** A call under way. Valid until its `done` is called. */
struct mr_client_call;

/** Flag of an error of this client: the server broke the protocol, and nothing is wrong with the request. */
#define MR_ERR_PEER 0x10000000u

/** rc: MR_OK whatever the HTTP status, or MR_E_UNAVAILABLE (connect, reset), MR_E_DEADLINE, MR_E_TOO_LARGE,
 *  MR_E_EXHAUSTED (no memory), MR_E_INVALID (bad request, or, with MR_ERR_PEER, the peer breaks the protocol), MR_E_CANCELLED;
 *  response NULL then. Called exactly once, never from within mr_client_send. */
typedef void(mr_client_done_fn)(void *ctx, int rc, const struct mr_err *err,
                                const struct mr_client_response *response);

/** address: "host:port", "[v6]:port" or "unix:/path"; names are looked up at each connect. The path has at
 *  most 107 bytes (unix(7)). Errors: MR_E_INVALID (the address, or a header that is malformed or the client's own, such as content-length). */
int mr_client_new(struct mr_client **out, struct mr_loop *loop, const char *address,
                  const struct mr_client_options *options, struct mr_err *err);
/** Whether mr_client_new would take the address. Thread: any. Errors: MR_E_INVALID. */
int mr_client_address_check(const char *address, struct mr_err *err);
/** Whether a "Name: value" line is fit for mr_client_options.headers. Thread: any. Errors: MR_E_INVALID. */
int mr_client_header_check(mr_str line, struct mr_err *err);
/** The header in such a line, which *out points into: its name becomes lower case there. Thread: any. Errors: MR_E_INVALID. */
int mr_client_header_read(char *text, struct mr_header *out, struct mr_err *err);
struct mr_client_call *mr_client_send(struct mr_client *c, const struct mr_client_request *request,
                                      mr_client_done_fn *done, void *ctx);
/** Gives a call up: a stream of HTTP/2 is reset, a connection of HTTP/1.1 that has the call is closed, and a call that
 *  still waits for a connection is never sent. `done` gets MR_E_CANCELLED, after this has returned. */
void mr_client_cancel(struct mr_client_call *call);
/** Another max_response_bytes, > 0, for responses that begin later. */
void mr_client_set_response_max(struct mr_client *c, int64_t bytes);
/** Fails what is pending with MR_E_CANCELLED, now; the object goes when its handles are closed, for which
 *  the loop must run (mr_loop_free does). A name look-up that hangs keeps them until it is over. */
void mr_client_free(struct mr_client **c);

struct mr_client_grpc_request {
    const char *path;                 /* /service/method */
    const struct mr_header *metadata; /* names in lower case */
    size_t metadata_count;
    const struct mr_piece *pieces; /* of the message */
    size_t piece_count;
    mr_str encoding;    /* the message is compressed so ("gzip", "deflate"); ptr NULL: it is not */
    int64_t timeout_ns; /* also goes to the server; 0 = none */
    bool never_repeat;  /* as of mr_client_request */
};

/** gRPC unary: sends the message, checks grpc-status. On a non-zero grpc-status rc is the matching mr_status, with
 *  grpc-message in err; `done` gets the response as well, whose grpc_status is exact. `body` of the response is the message. */
struct mr_client_call *mr_client_grpc(struct mr_client *c,
                                      const struct mr_client_grpc_request *request,
                                      mr_client_done_fn *done, void *ctx);

/** A gRPC stream of messages both ways. Freed after on_end has returned. */
struct mr_client_stream;
struct mr_client_stream_events {
    /** A message came; its bytes are valid until this returns. May send, pause and cancel, may not free the client. */
    void (*on_message)(void *ctx, mr_bytes message);
    /** The server has ended the stream (MR_OK: well, once both sides have), or it broke; as mr_client_grpc says it, without a
     *  body. Called exactly once, never from within mr_client_grpc_stream. */
    mr_client_done_fn *on_end;
};
/** Only path and metadata of the request are used. */
struct mr_client_stream *mr_client_grpc_stream(struct mr_client *c,
                                               const struct mr_client_grpc_request *request,
                                               const struct mr_client_stream_events *events,
                                               void *ctx);
/** What comes of an exchange that is passed on as it is. */
struct mr_client_pass_events {
    /** Status and headers, which are valid until on_end returns; *head until this does. */
    void (*on_head)(void *ctx, const struct mr_client_response *head);
    /** Some of the body, after on_head. May send, pause and cancel, as on_head may; may not free the client. */
    void (*on_data)(void *ctx, mr_bytes data);
    /** rc and response as of mr_client_send, without the body, trailers included. Called exactly once, never from within
     *  mr_client_pass. */
    void (*on_end)(void *ctx, int rc, const struct mr_err *err,
                   const struct mr_client_response *response);
    /** (optional) More than MR_CLIENT_ROOM bytes waited to be sent, and less than half of that still do. */
    void (*on_room)(void *ctx);
};
#define MR_CLIENT_ROOM ((size_t)256 * 1024)
/** A request over HTTP/2 whose answer is given as it comes, whatever it is. is_open: its body, which `request` must not have then,
 *  is sent piece by piece with mr_client_stream_send, without framing, until mr_client_stream_end. */
struct mr_client_stream *mr_client_pass(struct mr_client *c,
                                        const struct mr_client_request *request, bool is_open,
                                        const struct mr_client_pass_events *events, void *ctx);

/** A message, sent when there is a connection and the server has room. Takes over the references of the pieces, also when
 *  it fails; copies the others. Errors: MR_E_CLOSED (ended), MR_E_TOO_LARGE. */
int mr_client_stream_send(struct mr_client_stream *s, const struct mr_piece *pieces, size_t count,
                          struct mr_err *err);
/** Bytes of messages that wait for the server to take them. A sender that stops at a limit of its own bounds them. */
size_t mr_client_stream_backlog(const struct mr_client_stream *s);
/** Opens or closes the window in which the server sends. Up to a window (16 MiB) may still come after it was closed. */
void mr_client_stream_pause(struct mr_client_stream *s, bool is_paused);
/** No more messages from here. */
void mr_client_stream_end(struct mr_client_stream *s);
/** Resets the stream. on_end gets MR_E_CANCELLED, after this has returned; no message comes before it. */
void mr_client_stream_cancel(struct mr_client_stream *s);

#endif
