/* A connection of the server: a transport below, one of the protocols above, output between. */
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
#define MR_WANT_HUP   4 /* tell when the peer ends, though nothing is to be read */

/** What carries the bytes: a plain socket (transport.c) or TLS (tls.c). All but close may be called
 *  only before it. Results: bytes, 0 at the end of input, or a negative errno
 *  (-EAGAIN: not now). */
struct mr_transport {
    /** (optional) Called on every readiness until it returns 0; -EAGAIN: more is needed. 0 is also
     *  returned when it failed and the connection, made a plain one, has something left to say. */
    int (*handshake)(struct mr_conn *c);
    ssize_t (*read)(struct mr_conn *c, void *buf, size_t n);
    /** (optional) The same to several places, in order. */
    ssize_t (*readv)(struct mr_conn *c, const struct iovec *iov, int count);
    ssize_t (*write)(struct mr_conn *c, const struct iovec *iov, int count);
    /** Which MR_WANT_* shall lead to mr_conn_ready. */
    void (*want)(struct mr_conn *c, int events);
    /** No more output. */
    void (*end_output)(struct mr_conn *c);
    /** Give the descriptor back; mr_conn_gone(c) follows, at once or later. */
    void (*close)(struct mr_conn *c);
};

/** What the bytes mean. */
struct mr_proto {
    /** There may be input, or its end. */
    void (*input)(struct mr_conn *c);
    /** Go on with what waited (for output to leave, for answers of others) and put output into
     *  c->out. True: there is more to do when c->out has been written. */
    bool (*work)(struct mr_conn *c);
    bool (*wants_input)(const struct mr_conn *c);
    /** (optional) Bytes of a large body that will come before anything has to be said to the peer. */
    size_t (*coming)(const struct mr_conn *c);
    /** When to call `expired`, if nothing happens: 0 = never. Output that is stuck is conn.c's. */
    int64_t (*deadline)(const struct mr_conn *c);
    void (*expired)(struct mr_conn *c);
    /** The server drains: end as soon as the work at hand is done. */
    void (*drain)(struct mr_conn *c);
    /** It has waited for memory and need not any more; `work` follows. */
    void (*memory_back)(struct mr_conn *c);
    /** Input memory can be given back if there is nothing in it. */
    void (*rest)(struct mr_conn *c);
    /** The connection ends: let go of the calls. */
    void (*end)(struct mr_conn *c);
};

extern const struct mr_transport mr_transport_plain;
extern const struct mr_transport mr_transport_tls;
extern const struct mr_proto mr_proto_sniff;
extern const struct mr_proto mr_proto_http1;
extern const struct mr_proto mr_proto_http2;
extern const struct mr_proto mr_proto_linger;

/** Bytes received and not yet done with, for protocols that keep them. */
struct mr_input {
    char *ptr;
    size_t cap;
    size_t start; /* of the request at hand */
    size_t pos;   /* behind what was consumed of it */
    size_t end;   /* behind the last byte */
};

enum mr_h1_stage {
    MR_H1_HEAD,  /* waiting for a head, or between requests */
    MR_H1_BODY,  /* reading a body */
    MR_H1_WAIT,  /* all read, the answer is owed */
    MR_H1_DRAIN, /* answered, the rest of the body is thrown away */
};

struct mr_h1 {
    struct mr_call_impl *call; /* the request at hand, until it is answered */
    enum mr_h1_stage stage;
    struct mr_http1_scan scan;
    struct mr_http1_chunked chunked;
    size_t body_at;    /* where it begins in the input buffer */
    int64_t body_left; /* Content-Length not yet read */
    int64_t drained;
    int64_t head_start_ns; /* first byte of a head that is not complete, 0 = none */
    int64_t body_due_ns;   /* the body has to go on until then, see mr_due_moved */
    bool is_chunked;
    bool keep_alive;
    bool owes_continue;  /* 100-continue was asked for and not sent */
    bool chunked_answer; /* begun answer uses chunked coding */
    bool answer_to_head; /* begun answer has no body */
    bool processing;
};

/** tls.c */
struct mr_tls_conn {
    struct ssl_st *ssl;
    bool has_more;     /* behind the record that is being written */
    bool output_ended; /* what comes in is not looked at any more */
    uint8_t first_len;
    uint8_t first[13]; /* what the peer began with */
};

/** gather.c: how much has to come before a read. */
struct mr_gather {
    struct mr_timer timer;
    size_t bytes;     /* as the kernel was told */
    size_t most;      /* as far as the peer is fast enough */
    int64_t since_ns; /* the last read, or when it was begun */
    bool is_drained;  /* the last read took all that there was */
};

struct mr_conn {
    LIST_ENTRY(mr_conn) link; /* of the server part */
    struct mr_loop *loop;
    struct mr_server_part *part;
    const struct mr_transport *transport;
    const struct mr_proto *proto;
    uv_poll_t poll;
    int fd;
    int wanted; /* MR_WANT_* as told to the transport */
    int tag;
    bool over_unix;
    bool on_loopback; /* its listener is */
    bool handshaking;
    bool running;       /* a callback of ours is at work on it: no need to queue a flush */
    bool blocked;       /* the transport takes no more output now */
    bool yielding;      /* had its share of this iteration, goes on in the next */
    bool input_inside;  /* there is input that a poll will not tell of: the transport has read it */
    bool input_blocked; /* the transport has to write before it can read */
    bool peer_eof;
    bool peer_hup;   /* told by MR_WANT_HUP; bytes may still lie before the end */
    bool closing;    /* closed, memory waits for its handle */
    bool close_soon; /* when the output has left */
    bool lingers;    /* then throw away what the peer still sends, for a moment */
    bool draining;
    bool had_request;
    bool waits_memory; /* nothing is read meanwhile */
    TAILQ_ENTRY(mr_conn) memory_link;
    struct mr_flush flush;
    struct mr_deadline deadline;
    struct mr_gather gather;
    struct mr_tls_conn tls;
    struct mr_outq out;
    struct mr_input in;
    int64_t out_due_ns; /* output that is stuck has to go on until then, 0 = none is stuck */
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

/** What has to move has until `limit_ns` from now; 0 = no limit. */
static inline int64_t mr_due_start(int64_t now_ns, int64_t limit_ns)
{
    return limit_ns > 0 ? mr_ns_after(now_ns, limit_ns) : 0;
}
/** It has moved by n bytes, which buy the time that they take at the least rate allowed; but never more than the
 *  limit from now, so that a good start is no credit for standing still. */
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
/** Let it wait for memory; its protocol takes no input then. Again: nothing happens. */
void mr_memory_backpressure_add(struct mr_conn *c);
void mr_memory_backpressure_remove(struct mr_conn *c);

/** Give its socket a handle on the loop; negative (uv) when that fails: mr_conn_abandon it then. */
int mr_transport_plain_start(struct mr_conn *c);
/** The same, for mr_transport_tls. */
int mr_transport_tls_start(struct mr_conn *c, struct mr_tls *tls);
void mr_plain_want(struct mr_conn *c, int events);
/** Undo mr_conn_open of a connection whose transport has not started. */
void mr_conn_abandon(struct mr_conn *c);
/** Begin to wait for input. */
void mr_conn_start(struct mr_conn *c);
/** End it now: calls are cancelled, output is dropped. The struct stays until mr_conn_gone. */
void mr_conn_close(struct mr_conn *c);
/** Write what is queued, then end. linger: the peer may still be sending; read that for a moment
 *  and throw it away, as an early close would reset the connection and take the last answer with
 *  it. */
void mr_conn_close_soon(struct mr_conn *c, bool linger);
/** The same with linger, at once deaf to what the peer sends: for one whose handshake failed. */
void mr_conn_linger(struct mr_conn *c);
/** Tell the handler of a connection that came to nothing. */
void mr_conn_bad_start(struct mr_conn *c, const char *why);
/** So much memory waits for the peer to read its answers that no more of them are made: more than the option
 *  allows, or, while half of the byte budget is used, more than a peer that reads has waiting. */
bool mr_conn_is_backlogged(const struct mr_conn *c, size_t memory);
/** Called by transports: readiness (MR_WANT_*), and the end. */
void mr_conn_ready(struct mr_conn *c, int events);
void mr_conn_gone(struct mr_conn *c);
/** Let it work now, outside of its own callbacks. It may be closed then. */
void mr_conn_run(struct mr_conn *c);
/** Something was queued outside of the connection's own callbacks. */
void mr_conn_kick(struct mr_conn *c);
/** Read into memory of the caller. Counts; ends of input and errors are dealt with: > 0 bytes, or 0
 *  (nothing now, c->peer_eof, or c->closing). */
size_t mr_conn_read(struct mr_conn *c, void *buf, size_t n);
/** The same to several places, each full before the next has anything. */
size_t mr_conn_readv(struct mr_conn *c, const struct iovec *iov, int count);
/** Write out now, with `extra` (may be empty) behind the queue; returns bytes of extra that went.
 */
size_t mr_conn_write_through(struct mr_conn *c, mr_bytes extra);
const char *mr_conn_peer(struct mr_conn *c);

void mr_gather_init(struct mr_gather *g);
/** A read has given `got` of the `wanted` bytes. */
void mr_gather_note(struct mr_conn *c, size_t wanted, size_t got);
/** Before the connection waits: let `coming` bytes gather, as far as that pays and for a moment only. */
void mr_gather_settle(struct mr_conn *c, size_t coming);

/** Become HTTP/1 or HTTP/2, with what is in c->in as the first input. */
void mr_h1_start(struct mr_conn *c);
void mr_h2_start(struct mr_conn *c);

/** Input buffer of the connection: room for at least `room` bytes behind end (moving what is there
 *  to the front when nothing points into it). False without memory. */
bool mr_input_make_room(struct mr_conn *c, size_t room, bool can_move);
/** Drop what lies before the request at hand. */
void mr_input_to_front(struct mr_input *in);
void mr_input_release(struct mr_conn *c);
void mr_input_free(struct mr_loop *loop, char *ptr, size_t cap);
#define MR_INPUT_BYTES ((size_t)16 * 1024)

/** Before the first connection of a loop: sizes of the caches that connections use. A second call does nothing. */
void mr_conn_memory_init(struct mr_loop *loop);

#endif
