/* The inside of a call. It belongs to the handler until that has answered and to its connection
 * until the answer has left (HTTP/2: until the stream is closed); the later of the two recycles it.
 */
#ifndef MR_NET_CALL_H
#define MR_NET_CALL_H

#include "conn.h"
#include "net/http.h"

struct mr_call_impl;

TAILQ_HEAD(mr_call_waits, mr_call_wait);

#define MR_ICALL_ARENA_BYTES                                                                       \
    ((size_t)8 * 1024) /* the first chunk of a call's arena, which it keeps */

/** How a protocol answers. The connection is there when these are called. */
struct mr_call_ops {
    void (*reply)(struct mr_call_impl *call, const struct mr_reply *reply);
    void (*begin)(struct mr_call_impl *call, int status, const struct mr_header *headers,
                  size_t count);
    void (*write)(struct mr_call_impl *call, const struct mr_piece *pieces, size_t count);
    void (*end)(struct mr_call_impl *call, const struct mr_header *trailers, size_t count);
    bool (*is_backlogged)(const struct mr_call_impl *call);
    struct mr_call_waits *(*waits)(struct mr_call_impl *call); /* (optional) */
    void (*pause)(struct mr_call_impl *call, bool paused);
    void (*hold)(struct mr_call_impl *call, int64_t bytes); /* (optional) */
    void (*want_room)(struct mr_call_impl *call);           /* (optional) wants_room was set */
    void (*abort)(struct mr_call_impl *call, uint32_t h2_error);
};

/** A body being collected: in the arena while it is small, in a block when not (body.c). */
struct mr_body {
    struct mr_block *block;
    uint8_t *base; /* the body begins here */
    size_t len;
    size_t cap;
    int64_t expect;   /* length as far as is known, a hint; -1 = unknown */
    int64_t align_at; /* offset to align, -1 = none */
    bool asked_align;
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
    const char *peer_text; /* kept when the connection went first */
    int tag;
    /* of every answer, beside the handler's (origin.c); as long as the call */
    const struct mr_header *own_headers;
    size_t own_header_count;
    bool owes; /* the handler has still to answer */
    bool told_cancel;
    bool begun; /* mr_call_begin was called */
    bool body_done;
    bool refused; /* on_body_refused was called: the body is thrown away */
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
    bool deferred;  /* data provider has paused for want of data */
    bool end_stream_seen;
    bool is_collecting; /* counted in mr_h2.collecting */
    bool is_zombie;     /* counted in mr_h2.zombies */
    bool waits;         /* on_body held back, see h2_release_waiting */
    int32_t stream_id;
    int32_t window; /* of the stream, 0 = that of all */
    size_t header_cap;
    size_t header_bytes;
    uint32_t turn;         /* mr_h2.turn when it was given what it held */
    int64_t handler_bytes; /* mr_call_hold */
    size_t put_back;       /* of the data that is being delivered, see mr_call_impl_put_back */
    int64_t body_due_ns;
    int64_t out_due_ns;  /* while there is anything in `out`: it has to go on until then */
    struct mr_outq out;  /* body of the answer, not framed yet */
    struct mr_outq held; /* input of a paused stream */
    struct mr_header *trailers;
    size_t trailer_count;
    TAILQ_ENTRY(mr_call_impl) waiting; /* while waits */
};

void mr_call_impl_cache_init(struct mr_cache *cache, uint32_t max);
/** A call with an empty arena, pub.loop, .arena and limits set. NULL without memory. */
struct mr_call_impl *mr_call_impl_new(struct mr_conn *c, const struct mr_call_ops *ops);
/** Recycle: nobody knows it any more. */
void mr_call_impl_free(struct mr_call_impl *call);
/** The connection or stream ends: tells the handler if it has not answered. The call is detached.
 */
void mr_call_impl_detach(struct mr_call_impl *call);
/** Only tell that the peer is gone (on_cancel at most once). */
void mr_call_impl_cancel(struct mr_call_impl *call);

/** An answer of HTTP, not of gRPC, is sent. */
void mr_http_count(struct mr_loop *loop, int status);
/** Say that the head is complete. False when the call was answered in on_head and is gone, or the
 *  connection is. Also refuses a declared length over the limit (mr_call_impl.refused). */
bool mr_call_impl_head(struct mr_call_impl *call);
/** The body is complete: on_body. */
void mr_call_impl_body(struct mr_call_impl *call);
/** Is more of a stream's input welcome: it is not paused, and its connection takes answers? */
bool mr_call_impl_is_ready(const struct mr_call_impl *call);
/** The backlog is gone: on_room. */
void mr_call_impl_room(struct mr_call_impl *call);
/** HTTP/2, within on_data: the last n bytes of the data are not taken. They come again when the call is ready. */
void mr_call_impl_put_back(struct mr_call_impl *call, size_t n);
/** Tell the handler that the body will not come to it. */
void mr_call_impl_refuse(struct mr_call_impl *call, int status);

/** `more` bytes would need a block, the call has none yet, and memory is scarce. */
bool mr_body_should_wait(const struct mr_call_impl *call, size_t more);
/** Append received bytes. MR_OK, MR_E_TOO_LARGE or MR_E_EXHAUSTED. */
int mr_body_append(struct mr_call_impl *call, const void *data, size_t n);
/** Where the next bytes of a body in a block can be read to, *out_room of them: NULL when appending
 *  is the way. */
uint8_t *mr_body_room(struct mr_call_impl *call, size_t *out_room);
/** Set call->pub.body from what was collected. */
void mr_body_publish(struct mr_call_impl *call);
/** Bytes `data` lie in foreign memory that stays as long as the call: use them in place if they are
 *  aligned as asked, else copy. */
int mr_body_in_place(struct mr_call_impl *call, mr_bytes data);

/** Put pieces into a queue: blocks by reference, the rest copied. */
void mr_pieces_append(struct mr_outq *q, const struct mr_piece *pieces, size_t count);
/** Drop the references of pieces that go nowhere. */
void mr_pieces_drop(const struct mr_piece *pieces, size_t count);
size_t mr_pieces_bytes(const struct mr_piece *pieces, size_t count);

#endif
