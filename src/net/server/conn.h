/* A connection of the server: a transport below, a protocol above, an output queue between them. */
#ifndef MR_NET_CONN_H
#define MR_NET_CONN_H

#include <netinet/in.h>
#include <sys/un.h>

#include "net/frame/http1_parse.h"
#include "net/loop/loop_priv.h"
#include "net/loop/outq.h"

struct mr_conn;
struct mr_call_impl;
struct mr_server_part;
struct mr_h2;
struct mr_tls;

#define MR_WANT_READ  1
#define MR_WANT_WRITE 2
#define MR_WANT_HUP   4 /* report the peer's end, without reading */

/** Carries the bytes: a plain socket (transport.c) or TLS (tls.c). Nothing is called after close. Results: number of
 *  bytes, 0 at the end of input, or a negative errno (-EAGAIN: not now). */
struct mr_transport {
    /** (optional) Called on every readiness until it returns 0; -EAGAIN: more is needed. Also returns 0 if it failed
     *  and the connection, now a plain one, still has something to send. */
    int (*handshake)(struct mr_conn *c);
    ssize_t (*read)(struct mr_conn *c, void *buf, size_t n);
    /** (optional) Reads to several places, in order. */
    ssize_t (*readv)(struct mr_conn *c, const struct iovec *iov, int count);
    ssize_t (*write)(struct mr_conn *c, const struct iovec *iov, int count);
    /** Sets the MR_WANT_* events that call mr_conn_ready. */
    void (*want)(struct mr_conn *c, int events);
    /** Ends the output. */
    void (*end_output)(struct mr_conn *c);
    /** Closes the descriptor; mr_conn_gone(c) follows, at once or later. */
    void (*close)(struct mr_conn *c);
};

/** A protocol: interprets the bytes. */
struct mr_proto {
    /** Input, or its end, may be available. */
    void (*input)(struct mr_conn *c);
    /** Continues work that waited (for output to be sent, for other answers) and puts output into c->out. True: there
     *  is more to do once c->out has been written. */
    bool (*work)(struct mr_conn *c);
    bool (*wants_input)(const struct mr_conn *c);
    /** (optional) Bytes of a large body that the peer can send without any output to it. */
    size_t (*coming)(const struct mr_conn *c);
    /** When to call `expired`, if nothing happens: 0 = never. conn.c handles blocked output. */
    int64_t (*deadline)(const struct mr_conn *c);
    void (*expired)(struct mr_conn *c);
    /** The server drains: end as soon as the work at hand is done. */
    void (*drain)(struct mr_conn *c);
    /** Memory for which it waited is available; `work` follows. */
    void (*memory_back)(struct mr_conn *c);
    /** Frees empty input memory. */
    void (*rest)(struct mr_conn *c);
    /** The connection ends: detaches the calls. */
    void (*end)(struct mr_conn *c);
};

extern const struct mr_transport mr_transport_plain;
extern const struct mr_transport mr_transport_tls;
extern const struct mr_proto mr_proto_sniff;
extern const struct mr_proto mr_proto_http1;
extern const struct mr_proto mr_proto_http2;
extern const struct mr_proto mr_proto_linger;

/** Bytes received and still in use, for protocols that keep them. */
struct mr_conn_input {
    char *ptr;
    size_t cap;
    size_t start; /* of the current request */
    size_t pos;   /* after its consumed part */
    size_t end;   /* after the last byte */
};

enum mr_h1_stage {
    MR_H1_HEAD,  /* waiting for a head, or between requests */
    MR_H1_BODY,  /* reading a body */
    MR_H1_WAIT,  /* all read, waiting for the answer */
    MR_H1_DRAIN, /* answered, the rest of the body is dropped */
};

struct mr_h1 {
    struct mr_call_impl *call; /* the current request, until it is answered */
    enum mr_h1_stage stage;
    struct mr_http1_scan scan;
    struct mr_http1_chunked chunked;
    size_t body_at;    /* where the body begins in the input buffer */
    int64_t body_left; /* Content-Length not yet read */
    int64_t drained;
    int64_t head_start_ns; /* first byte of a head that is not complete, 0 = none */
    int64_t body_due_ns;   /* the body must make progress until then, see mr_due_moved */
    bool is_chunked;
    bool had_output; /* when it last came to rest */
    bool keep_alive;
    bool owes_continue;  /* 100-continue was requested and not sent */
    bool chunked_answer; /* the started answer uses chunked coding */
    bool answer_to_head; /* the started answer has no body */
};

/** tls.c */
struct mr_tls_conn {
    struct ssl_st *ssl;
    bool has_more;     /* after the record being written */
    bool output_ended; /* input is ignored */
    uint8_t first_len;
    uint8_t first[13]; /* the peer's first bytes */
};

/** gather.c: how much data has to arrive before a read. */
struct mr_gather {
    struct mr_timer timer;
    size_t bytes;     /* as set in the kernel */
    size_t most;      /* limit, by the speed of the peer */
    int64_t since_ns; /* the last read, or the start */
    bool is_drained;  /* the last read took all available data */
};

struct mr_conn {
    LIST_ENTRY(mr_conn) link; /* of the server part */
    struct mr_loop *loop;
    struct mr_server_part *part;
    const struct mr_transport *transport;
    const struct mr_proto *proto;
    uv_poll_t poll;
    int fd;
    int passed_fd; /* memory of the client, see mr_http_options.takes_memory; -1: none */
    uint64_t passed_bytes;
    int wanted; /* MR_WANT_* as set in the transport */
    int tag;
    bool over_unix;
    bool on_loopback; /* its listener is on loopback */
    bool handshaking;
    bool running;       /* one of its callbacks runs: no need to queue a flush */
    bool blocked;       /* the transport takes no more output now */
    bool yielding;      /* has had its share of this iteration, continues in the next */
    bool input_inside;  /* the transport holds input that it has read: a poll does not report it */
    bool input_blocked; /* the transport has to write before it can read */
    bool peer_eof;
    bool peer_hup;   /* reported by MR_WANT_HUP; unread bytes may precede the end */
    bool closing;    /* closed, freed with its handle */
    bool close_soon; /* close when the output has been sent */
    bool lingers;    /* then read and drop the peer's input for a moment */
    bool draining;
    bool waits_memory; /* nothing is read while it waits */
    TAILQ_ENTRY(mr_conn) memory_link;
    struct mr_flush flush;
    struct mr_deadline deadline;
    struct mr_gather gather;
    struct mr_tls_conn tls;
    struct mr_outq out;
    struct mr_conn_input in;
    int64_t out_due_ns; /* blocked output must make progress until then, 0 = none is blocked */
    int64_t idle_since_ns;
    int64_t lingered;
    int64_t linger_until_ns;
    union {
        struct mr_h1 h1;
        struct mr_h2 *h2;
    };
    struct sockaddr_in6 peer; /* family AF_INET: a sockaddr_in; 0: no address */
    char peer_text[64];
};

/** Starts a progress deadline `limit_ns` from now; 0 = no limit. */
static inline int64_t mr_due_start(int64_t now_ns, int64_t limit_ns)
{
    return limit_ns > 0 ? mr_ns_after(now_ns, limit_ns) : 0;
}
/** Extends the deadline after a progress of n bytes by their time at the minimum rate; at most to the limit from now,
 *  so that a fast start gives no credit for a later stop. */
static inline int64_t mr_due_moved(int64_t due_ns, int64_t now_ns, size_t n, int64_t limit_ns,
                                   int64_t min_rate)
{
    int64_t most_ns = mr_due_start(now_ns, limit_ns);
    double bought_ns = min_rate > 0 ? (double)n * 1e9 / (double)min_rate : 1e19;

    return bought_ns >= (double)limit_ns ? most_ns : MR_MIN(due_ns + (int64_t)bought_ns, most_ns);
}

/** A connection over an accepted socket (takes fd always). NULL without memory. */
struct mr_conn *mr_conn_open(struct mr_server_part *part, const struct mr_transport *transport,
                             int fd, int tag, bool over_unix, const struct sockaddr_in6 *peer);
/** Lets it wait for memory; its protocol then takes no input. No effect if it waits already. */
void mr_memory_backpressure_add(struct mr_conn *c);
void mr_memory_backpressure_remove(struct mr_conn *c);

/** Makes a handle on the loop for its socket; negative (uv) on failure: call mr_conn_abandon then. */
int mr_transport_plain_start(struct mr_conn *c);
/** The same, for mr_transport_tls. */
int mr_transport_tls_start(struct mr_conn *c, struct mr_tls *tls);
void mr_plain_want(struct mr_conn *c, int events);
/** Lets go of passed_fd. */
void mr_conn_drop_passed(struct mr_conn *c);
/** Undoes mr_conn_open if the transport has not started. */
void mr_conn_abandon(struct mr_conn *c);
/** Starts to wait for input. */
void mr_conn_start(struct mr_conn *c);
/** Ends it now: calls are cancelled, output is dropped. The struct stays valid until mr_conn_gone. */
void mr_conn_close(struct mr_conn *c);
/** Sends the queued output, then ends. linger: the peer may still be sending; its data is read and dropped for a
 *  moment, as an early close would reset the connection and lose the last answer. */
void mr_conn_close_soon(struct mr_conn *c, bool linger);
/** The same with linger, and drops all further input: after a failed handshake. */
void mr_conn_linger(struct mr_conn *c);
/** Reports a connection that failed at its start to the handler (on_bad_start). */
void mr_conn_bad_start(struct mr_conn *c, const char *why);
/** True if unread answers take so much memory that no more are made: more than the option allows, or, while half of
 *  the byte budget is used, more than a peer that reads ever has waiting. */
bool mr_conn_is_backlogged(const struct mr_conn *c, size_t memory);
/** Called by transports: readiness (MR_WANT_*), and the end. */
void mr_conn_ready(struct mr_conn *c, int events);
void mr_conn_gone(struct mr_conn *c);
/** Runs its work now, outside of its own callbacks. May close it. */
void mr_conn_run(struct mr_conn *c);
/** Called after output was queued outside of the connection's own callbacks. */
void mr_conn_kick(struct mr_conn *c);
/** Reads into memory of the caller. Counts bytes and handles the end of input and errors. Returns > 0 bytes, or 0
 *  (nothing now, c->peer_eof, or c->closing). */
size_t mr_conn_read(struct mr_conn *c, void *buf, size_t n);
/** The same to several places, filled in order. */
size_t mr_conn_readv(struct mr_conn *c, const struct iovec *iov, int count);
/** Sends the queue and then `extra` (may be empty) now; returns the bytes of extra that were sent.
 */
size_t mr_conn_write_through(struct mr_conn *c, mr_bytes extra);
const char *mr_conn_peer(struct mr_conn *c);
/** True if the peer has an address of this machine. */
bool mr_conn_is_of_machine(const struct mr_conn *c);

void mr_gather_init(struct mr_gather *g);
/** Records that a read returned `got` of the `wanted` bytes. */
void mr_gather_note(struct mr_conn *c, size_t wanted, size_t got);
/** Called before the connection waits: lets up to `coming` bytes gather for a moment, if that pays. */
void mr_gather_settle(struct mr_conn *c, size_t coming);

/** Starts HTTP/1 or HTTP/2, with the content of c->in as the first input. */
void mr_h1_start(struct mr_conn *c);
void mr_h2_start(struct mr_conn *c);

/** Input buffer of the connection: makes room for at least `room` bytes after end (moving the content to the front if
 *  nothing points into it). False without memory. */
bool mr_conn_input_make_room(struct mr_conn *c, size_t room, bool can_move);
/** Drops everything before the current request. */
void mr_conn_input_to_front(struct mr_conn_input *in);
void mr_conn_input_release(struct mr_conn *c);
void mr_conn_input_free(struct mr_loop *loop, char *ptr, size_t cap);
#define MR_CONN_INPUT_BYTES ((size_t)16 * 1024)

/** Sets the sizes of the caches for connections, before a loop's first connection. A second call has no effect. */
void mr_conn_memory_init(struct mr_loop *loop);

#endif
