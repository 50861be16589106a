/* The HTTP client as its own files see it.
 *
 *   client.c       struct mr_client: which connection takes which call, timeouts, the end
 *   client_call.c  a call: what it sends, what has come of its response, its end
 *   client_conn.c  one connection: name look-up, connecting, reading, closing
 *   client_h1.c    HTTP/1.1 on a connection: writes one request, reads one response
 *   client_h2.c    HTTP/2 on a connection: an nghttp2 session, many calls
 *   client_write.c what is written on a connection
 *   client_tls.c   TLS between a connection and its socket
 *   client_grpc.c  a unary gRPC call on top
 *   client_stream.c  a gRPC stream on top
 *
 * A call is waiting (in the client's list), or active (in its connection's list), or failed (its timer
 * is about to say so). It ends in exactly one place, mr_client_call_end. A connection's memory goes in
 * the close callback of libuv, so code that was interrupted by an end may still look at `state`. */
#ifndef MR_NET_CLIENT_PRIV_H
#define MR_NET_CLIENT_PRIV_H

#include <nghttp2/nghttp2.h>
#include <uv.h>

#include "base/arena.h"
#include "base/buf.h"
#include "net/client.h"
#include "net/frame/http1_parse.h"
#include "net/loop/loop_priv.h"

#define MR_CLIENT_HEAD_MAX    ((size_t)64 * 1024)
#define MR_CLIENT_HEADERS_MAX 128
/* At least as many as the server sends: MR_GRPC_TRAILERS_MAX and the status. */
#define MR_CLIENT_TRAILERS_MAX 24

/** What has come of a response so far. */
struct mr_client_answer {
    int status; /* 0 = nothing yet */
    size_t header_count;
    size_t trailer_count;
    struct mr_block *body;
    size_t body_len;
    size_t body_declared; /* content-length; 0: none */
    /* As many as were counted; the rest of them is never written. */
    struct mr_header headers[MR_CLIENT_HEADERS_MAX];
    struct mr_header trailers[MR_CLIENT_TRAILERS_MAX];
};

struct mr_client_call {
    TAILQ_ENTRY(mr_client_call) link; /* of its connection, or of the client */
    struct mr_client *client;
    struct mr_client_conn *conn; /* NULL unless active */
    struct mr_timer timer;
    mr_client_done_fn *done;
    void *ctx;
    int64_t timeout_ns;
    bool is_head;
    bool never_repeat; /* by the request: it may have been done once it was sent */
    bool was_retried;
    bool got_bytes; /* of the response */
    int failed_rc;  /* of a call that failed before it began */
    struct mr_err failed_err;
    /* request; arena and references of its own */
    mr_str method;
    mr_str path;
    struct mr_header *headers;
    size_t header_count;
    struct mr_piece *pieces; /* each with a block */
    size_t piece_count;
    uint64_t body_bytes;
    struct mr_client_memory memory;
    /* HTTP/2 */
    int32_t stream_id;
    bool in_trailers;
    bool is_answered;                /* to its end: END_STREAM came */
    struct mr_client_stream *stream; /* NULL: one message each way */
    size_t sent_piece;
    size_t sent_offset;
    struct mr_arena arena;
    struct mr_client_answer answer; /* the last member: its end is not zeroed */
};

TAILQ_HEAD(mr_call_list, mr_client_call);

enum mr_client_conn_state { MR_CONN_CONNECTING, MR_CONN_OPEN, MR_CONN_CLOSING };

enum mr_client_h1_state {
    MR_CLIENT_H1_HEAD,
    MR_CLIENT_H1_SIZED,
    MR_CLIENT_H1_TO_END,
    MR_CLIENT_H1_CHUNKED,
    MR_CLIENT_H1_DONE
};

/** Reading of one HTTP/1.1 response. */
struct mr_client_h1 {
    enum mr_client_h1_state state;
    struct mr_http1_scan scan;
    struct mr_buf lines; /* an incomplete head, or the trailers */
    struct mr_http1_chunked chunked;
    int64_t remaining; /* of a body of known length */
    bool keep_alive;
};

struct mr_client_write;
/** What was handed over is written (0), or will not be (negative, of uv). */
typedef void(mr_client_written_fn)(struct mr_client_write *w, int status);

/** Something that is being written; zeroed but for pass_fd. The rest is client_write.c's. */
struct mr_client_write {
    int pass_fd; /* goes with the first byte; -1: none */
    STAILQ_ENTRY(mr_client_write) link;
    struct iovec *iov; /* `few`, or its own */
    struct iovec few[4];
    size_t at;
    size_t count;
    mr_client_written_fn *done;
};

struct mr_client_conn {
    LIST_ENTRY(mr_client_conn) link;
    struct mr_client *client;
    enum mr_client_conn_state state;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    bool has_handle; /* uv is open or closing */
    uv_connect_t connect_req;
    uv_getaddrinfo_t resolve_req;
    bool is_resolving;
    struct addrinfo *addresses;
    const struct addrinfo *next_address;
    struct mr_timer timer; /* connecting takes too long, or fail_rc is to be reported */
    int fail_rc;
    struct mr_err fail_err;
    int connect_error; /* of the last address tried */

    struct ssl_st *ssl; /* NULL: none */
    bool is_tls_open;   /* the handshake is done */

    struct mr_call_list calls; /* HTTP/1: one at most */
    bool has_served;           /* a call ended well on it before */
    struct mr_client_h1 h1;
    nghttp2_session *h2;
    bool is_heard;    /* HTTP/2: the peer has begun to speak it */
    int64_t heard_ns; /* HTTP/2: when the peer last said something */
    int64_t asked_ns; /* and when it was first asked after that */
    bool is_draining; /* HTTP/2: takes no new calls, and ends with the last one */
    bool is_writing;
    struct mr_flush flush;
    STAILQ_HEAD(, mr_client_write) writes; /* that wait for the socket */
    uv_poll_t poll;                        /* for them */
    int write_fd;                          /* its descriptor */
    bool has_poll;                         /* poll is open or closing */
    uint64_t memory_id;                    /* mr_client_memory that the server has; 0: none */
};

struct mr_client {
    struct mr_loop *loop;
    struct mr_client_options options;
    char *address;   /* as given, for texts */
    char *authority; /* for the Host header: without the port where it is the usual one */
    char *host;      /* or the path of a Unix socket */
    char port[8];
    int port_number;
    bool is_unix;
    bool is_closing;
    struct mr_header *headers; /* of options.headers; they point into header_lines */
    char **header_lines;
    size_t header_count;
    LIST_HEAD(, mr_client_conn) conns;
    struct mr_call_list waiting;
    size_t waiting_count;
    struct mr_call_list failed; /* each will say so by its timer */
};

/* ---- client_call.c ---- */

/** A call, in no list yet, with its own copy of the request; failed_rc says whether the request was fit. Takes over the
 *  references of the pieces. */
struct mr_client_call *mr_client_call_new(struct mr_client *c, const struct mr_client_request *r,
                                          mr_client_done_fn *done, void *ctx);
/** Appended to those that wait for a connection. */
void mr_client_call_wait(struct mr_client_call *call);
/** Out of whichever list it is in. */
void mr_client_call_unlink(struct mr_client_call *call);
/** Without CR, LF and NUL. */
bool mr_client_is_clean(mr_str s);
/** Removes it from its list, calls done and frees it. err may be NULL when rc is MR_OK. */
void mr_client_call_end(struct mr_client_call *call, int rc, const struct mr_err *err);
/** Marks an error as MR_ERR_PEER; returns its status. */
static inline int mr_client_blame(struct mr_err *err)
{
    err->flags |= MR_ERR_PEER;
    return err->status;
}
/** The call on a broken connection: once more if that is harmless, else its end. */
void mr_client_call_broken(struct mr_client_call *call, int rc, const struct mr_err *err);
/** The server says that it has done nothing for the call: once more, else its end as MR_E_UNAVAILABLE. */
void mr_client_call_refused(struct mr_client_call *call, const struct mr_err *err);
/** Room for at least one and about `want` more bytes of body. Errors: MR_E_TOO_LARGE, MR_E_EXHAUSTED. */
int mr_client_body_reserve(struct mr_client_call *call, size_t want, struct mr_err *err);
int mr_client_body_append(struct mr_client_call *call, const void *data, size_t len,
                          struct mr_err *err);
/** Copies name (made lower case) and value. Errors: MR_E_TOO_LARGE. */
int mr_client_add_header(struct mr_client_call *call, bool trailer, mr_str name, mr_str value,
                         struct mr_err *err);

/** The value of the Host header or of :authority: the caller's if set, for a gateway that routes by name;
 *  otherwise the address. */
mr_str mr_client_host(const struct mr_client_call *call);

/* ---- client_headers.c ---- */

/** Reads options.headers into the client. Errors: MR_E_INVALID; mr_client_headers_fini is due then as well. */
int mr_client_headers_read(struct mr_client *c, struct mr_err *err);
void mr_client_headers_fini(struct mr_client *c);

/* ---- client.c ---- */

/** What mr_client_send does with the call that it has made. */
void mr_client_call_start(struct mr_client *c, struct mr_client_call *call);

/** Give waiting calls to connections. */
void mr_client_pump(struct mr_client *c);
/** No connection could be made. */
void mr_client_connect_failed(struct mr_client *c, const struct mr_err *err);
/** Frees the client when its last connection is gone. */
void mr_client_conn_gone(struct mr_client *c, struct mr_client_conn *conn);

/** As mr_client_send, for a call that cannot be made: done gets the error. */
struct mr_client_call *mr_client_refuse(struct mr_client *c, const struct mr_client_request *r,
                                        int rc, const char *why, mr_client_done_fn *done,
                                        void *ctx);

/* ---- client_conn.c ---- */

/** Begin to connect; the outcome comes later. */
void mr_client_conn_start(struct mr_client *c);
/** Closes it and ends its calls; for use inside the loop's callbacks only. */
void mr_client_conn_fail(struct mr_client_conn *conn, int rc, const struct mr_err *err);
/** The same in the next iteration, for use anywhere. */
void mr_client_conn_fail_later(struct mr_client_conn *conn, int rc, const char *what);
/** Whether the kept connection can take no request: the system has its end, or, with HTTP/1.1, bytes that belong to no answer, which
 *  the loop may not have read yet. One system call. */
bool mr_client_conn_is_stale(struct mr_client_conn *conn);
/** Close it; it has no calls. */
void mr_client_conn_close(struct mr_client_conn *conn);
/** Connected, and through the TLS handshake if there is one: calls may come. */
void mr_client_conn_usable(struct mr_client_conn *conn);
void mr_client_conn_connect_failed(struct mr_client_conn *conn, const char *why);
/** Where the next bytes for HTTP may be put, and what to do with them. */
void mr_client_conn_room(struct mr_client_conn *conn, uv_buf_t *out);
void mr_client_conn_deliver(struct mr_client_conn *conn, mr_bytes data);
/** The peer has ended its side. is_declared: it said so, which with TLS distinguishes an end from a cut. */
void mr_client_conn_ended(struct mr_client_conn *conn, bool is_declared);

/* ---- client_write.c ---- */

/** Writes in order. 1: all is written, and `done` is not called; 0: `done` will be, later, the bytes being borrowed until then;
 *  negative (uv): nothing more will happen. */
int mr_client_conn_write(struct mr_client_conn *conn, struct mr_client_write *w,
                         const uv_buf_t *bufs, size_t count, mr_client_written_fn *done);
/** As much as the socket takes, if nothing waits for it: for a close notice, which may be lost. */
void mr_client_conn_write_now(struct mr_client_conn *conn, mr_bytes data);
/** Closes has_poll's handle; `closed` follows. */
void mr_client_conn_writes_stop(struct mr_client_conn *conn, uv_close_cb closed);
/** The connection is gone: all `done` are called. */
void mr_client_conn_writes_end(struct mr_client_conn *conn);

/* ---- client_grpc.c ---- */

/** What the answer as a whole says: MR_OK, or the status that fits with the server's words. *out_code: the server's
 *  own number, -1 without one. */
int mr_client_grpc_status(const char *address, const struct mr_client_response *r, int *out_code,
                          struct mr_err *err);
/** The request of HTTP that carries a call of gRPC, without a body; its headers are in `arena`. */
int mr_client_grpc_head(const struct mr_client_grpc_request *r, struct mr_arena *arena,
                        struct mr_client_request *out);

/* ---- client_stream.c ---- */

/** The next bytes to be sent, 0: none are there yet. *out_end: and none follow them. */
size_t mr_client_stream_read(struct mr_client_stream *s, uint8_t *out, size_t max, bool *out_end);
/** The answer is complete: what still waits to be sent is not wanted. */
void mr_client_stream_answered(struct mr_client_stream *s);
/** The head of the answer is there. May cancel. */
void mr_client_stream_head(struct mr_client_stream *s);
/** Whether its body is sent from the stream. */
bool mr_client_stream_has_body(const struct mr_client_stream *s);
/** Bytes that came, for which the window is to be opened again now; 0: not before the stream goes on. */
size_t mr_client_stream_taken(struct mr_client_stream *s, size_t bytes);
/** Bytes that came. Errors: MR_E_INVALID, MR_E_TOO_LARGE, MR_E_EXHAUSTED. */
int mr_client_stream_feed(struct mr_client_stream *s, mr_bytes data, struct mr_err *err);

/* ---- client_tls.c ---- */

/** Begin the handshake on a connected socket. Negative (uv) without memory. */
int mr_client_tls_begin(struct mr_client_conn *conn);
/** Bytes from the socket. May close the connection. */
void mr_client_tls_read(struct mr_client_conn *conn, mr_bytes data);
/** Replace what is in *io by its ciphertext; false when that is impossible. To be written in this order. */
bool mr_client_tls_seal(struct mr_client_conn *conn, struct mr_buf *io);
/** Sends the end to the peer, before the handle is closed. */
void mr_client_tls_end(struct mr_client_conn *conn);

/** Describes what a peer speaks that does not begin like HTTP/1.1 or HTTP/2: "it answered 'SSH-2.0-…'". Returns `text`. */
const char *mr_client_stranger(mr_bytes data, char *text, size_t room);

/* ---- client_h1.c ---- */

bool mr_client_h1_is_idle(const struct mr_client_conn *conn);
/** Write the request of a call that was just made the connection's own. */
void mr_client_h1_start(struct mr_client_conn *conn, struct mr_client_call *call);
/** Bytes that came. May close the connection. */
void mr_client_h1_read(struct mr_client_conn *conn, mr_bytes data);
/** The peer has closed its side. */
void mr_client_h1_eof(struct mr_client_conn *conn);
/** Where the next bytes may be read to without a copy; false: anywhere. */
bool mr_client_h1_direct(struct mr_client_conn *conn, uv_buf_t *out);

/* ---- client_h2.c ---- */

int mr_client_h2_open(struct mr_client_conn *conn, struct mr_err *err);
bool mr_client_h2_can_take(const struct mr_client_conn *conn);
void mr_client_h2_start(struct mr_client_conn *conn, struct mr_client_call *call);
void mr_client_h2_read(struct mr_client_conn *conn, mr_bytes data);
void mr_client_h2_flush(struct mr_flush *f);
/** The call is given up: reset its stream. */
void mr_client_h2_cancel(struct mr_client_conn *conn, struct mr_client_call *call);

#endif
