/* The implementation of a call. The handler owns it until it has answered, its connection until the answer has been
 * sent (HTTP/2: until the stream is closed); the later of the two recycles it.
 */
#ifndef MR_NET_CALL_H
#define MR_NET_CALL_H

#include "conn.h"
#include "net/http.h"

struct mr_call_impl;

TAILQ_HEAD(mr_call_waits, mr_call_wait);

#define MR_ICALL_ARENA_BYTES                                                                       \
    ((size_t)8 * 1024) /* the first chunk of a call's arena, which it keeps */

/** The answer functions of a protocol. Called only while the connection exists. */
struct mr_call_ops {
    void (*reply)(struct mr_call_impl *call, const struct mr_reply *reply);
    void (*begin)(struct mr_call_impl *call, int status, const struct mr_header *headers,
                  size_t count);
    void (*write)(struct mr_call_impl *call, const struct mr_piece *pieces, size_t count);
    void (*end)(struct mr_call_impl *call, const struct mr_header *trailers, size_t count);
    /* with_input: what handlers hold for unanswered input counts like unread output */
    bool (*is_backlogged)(const struct mr_call_impl *call, bool with_input);
    struct mr_call_waits *(*waits)(struct mr_call_impl *call); /* (optional) */
    void (*pause)(struct mr_call_impl *call, bool paused);
    void (*unread)(struct mr_call_impl *call, mr_bytes data); /* (optional) */
    void (*hold)(struct mr_call_impl *call, int64_t bytes);   /* (optional) */
    void (*want_room)(struct mr_call_impl *call);             /* (optional) wants_room was set */
    void (*abort)(struct mr_call_impl *call, uint32_t h2_error);
};

/** A body being collected: in the arena while it is small, later in a block (body.c). */
struct mr_body {
    struct mr_block *block;
    uint8_t *base; /* the body begins here */
    size_t len;
    size_t cap;
    int64_t expect;   /* expected length, a hint; -1 = unknown */
    int64_t align_at; /* offset to align, -1 = none */
    bool asked_place;
};

struct mr_call_impl {
    struct mr_call pub;
    struct mr_arena arena;
    struct mr_conn *conn; /* NULL: gone */
    const struct mr_call_ops *ops;
    LIST_ENTRY(mr_call_impl) link; /* of the connection (HTTP/2) */
    struct mr_body body;
    char *held_input; /* input buffer that outlived its connection */
    size_t held_cap;
    const char *peer_text; /* a copy, if the connection was closed first */
    int tag;
    /* added to the handler's headers in every answer (origin.c); valid as long as the call */
    const struct mr_header *own_headers;
    size_t own_header_count;
    uint64_t streamed_bytes; /* given to on_data */
    uint64_t answer_bytes;   /* given by the handler */
    int status;              /* of an HTTP answer that has begun */
    bool owes;               /* the handler still has to answer */
    bool told_cancel;
    bool begun; /* mr_call_begin was called */
    bool body_done;
    bool refused; /* on_body_refused was called: the body is dropped */
    bool paused;
    _Atomic bool is_unread; /* mr_call_is_unread */
    bool wants_room;        /* mr_call_when_room */
    /* ---- HTTP/2 ---- */
    bool on_stream; /* nghttp2 still knows the stream */
    bool head_done;
    bool head_too_large;
    bool head_lost; /* no memory to keep it */
    bool submitted; /* response headers given to nghttp2 */
    bool ended;     /* no more output will be queued */
    bool deferred;  /* data provider has paused without data */
    bool end_stream_seen;
    bool is_collecting; /* counted in mr_h2.collecting */
    bool is_zombie;     /* counted in mr_h2.zombies */
    bool waits;         /* on_body is delayed, see release_waiting */
    int32_t stream_id;
    int32_t window; /* of the stream, 0 = the common one */
    size_t header_cap;
    size_t header_bytes;
    uint32_t turn;         /* mr_h2.turn when its held input was delivered */
    int64_t handler_bytes; /* mr_call_hold */
    size_t put_back;       /* of the data being delivered, see mr_call_impl_put_back */
    int64_t body_due_ns;
    int64_t out_due_ns;  /* while `out` is not empty: output must make progress until then */
    struct mr_outq out;  /* body of the answer, not framed yet */
    struct mr_outq held; /* input of a paused stream */
    size_t unread_bytes; /* of them, at the front: given before (mr_call_unread) */
    struct mr_header *trailers;
    size_t trailer_count;
    TAILQ_ENTRY(mr_call_impl) waiting; /* if `waits` */
};

void mr_call_impl_cache_init(struct mr_free_list *cache, uint32_t max);
/** A call with an empty arena, pub.loop, .arena and limits set. NULL without memory. */
struct mr_call_impl *mr_call_impl_new(struct mr_conn *c, const struct mr_call_ops *ops);
/** Recycles a call that is no longer referenced. */
void mr_call_impl_free(struct mr_call_impl *call);
/** The connection or stream ends: detaches the call, and informs the handler if it has not answered.
 *  / */
void mr_call_impl_detach(struct mr_call_impl *call);
/** Calls on_cancel, at most once: the peer is gone. */
void mr_call_impl_cancel(struct mr_call_impl *call);

/** Counts an HTTP answer that is not gRPC's. */
void mr_http_count(struct mr_loop *loop, int status);
/** Calls on_head. False if the call was answered in it, or if the connection is gone. Also refuses a declared length
 *  over the limit (mr_call_impl.refused). */
bool mr_call_impl_head(struct mr_call_impl *call);
/** Calls on_body. */
void mr_call_impl_body(struct mr_call_impl *call);
/** True if the stream takes more input: it is not paused, and not backlogged. */
bool mr_call_impl_is_ready(const struct mr_call_impl *call);
/** Calls on_room. */
void mr_call_impl_room(struct mr_call_impl *call);
/** HTTP/2, within on_data: leaves the last n bytes of the data. They are delivered again when the call is ready. */
void mr_call_impl_put_back(struct mr_call_impl *call, size_t n);
/** Calls on_body_refused: the body is refused. */
void mr_call_impl_refuse(struct mr_call_impl *call, int status);

/** True if `more` bytes would need a block, the call has none yet, and memory is scarce. */
bool mr_body_should_wait(const struct mr_call_impl *call, size_t more);
/** Append received bytes. MR_OK, MR_E_TOO_LARGE or MR_E_EXHAUSTED. */
int mr_body_append(struct mr_call_impl *call, const void *data, size_t n);
/** The place in a block for the next *out_room bytes of the body. NULL: use mr_body_append. */
uint8_t *mr_body_room(struct mr_call_impl *call, size_t *out_room);
/** Sets call->pub.body to the collected body. */
void mr_body_publish(struct mr_call_impl *call);
/** `data` is memory that is valid as long as the call: used in place if aligned as requested, else copied. */
int mr_body_in_place(struct mr_call_impl *call, mr_bytes data);

/** Put pieces into a queue: blocks by reference, the rest copied. */
void mr_pieces_append(struct mr_outq *q, const struct mr_piece *pieces, size_t count);
/** Drops the references of pieces that are not sent. */
void mr_pieces_drop(const struct mr_piece *pieces, size_t count);
size_t mr_pieces_bytes(const struct mr_piece *pieces, size_t count);

#endif
