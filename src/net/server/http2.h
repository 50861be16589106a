/* The two halves of HTTP/2 over nghttp2: http2.c runs sessions and reads requests, http2_answer.c
 * submits answers. */
#ifndef MR_NET_HTTP2_H
#define MR_NET_HTTP2_H

#include <nghttp2/nghttp2.h>

#include "call.h"

#define MR_H2_ENDED   16
#define MR_H2_DROPPED 64

enum mr_h2_drain { MR_H2_SERVING, MR_H2_NOTICED, MR_H2_LAST };

#define MR_H2REGION_BYTES ((size_t)28 * 1024) /* pages for what nghttp2 takes for a session */

/** What is left of a region: [front, back), and [late, late_end) for small pieces of the first calls. */
struct mr_h2region {
    char *base;
    char *front;
    char *back;
    char *late;
    char *late_end;
    bool is_clean; /* all of it between front and back is zero */
};

/** Where a session's memory comes from (h2mem.c). */
struct mr_h2mem {
    struct mr_loop *loop;
    struct mr_h2region region;
};

struct mr_h2 {
    struct mr_h2mem mem;
    nghttp2_session *session;
    struct mr_conn *conn;
    LIST_HEAD(, mr_call_impl) calls; /* all that nobody has let go of */
    struct mr_call_impl *reading;    /* whose head is coming in */
    /* complete, held back while the peer takes no output; oldest first */
    TAILQ_HEAD(, mr_call_impl) waiting;
    struct mr_call_waits readers; /* what waits until the peer has read */
    size_t streams;               /* calls that nghttp2 still knows */
    size_t zombies;        /* calls whose stream is closed, but whose handler is still at work */
    size_t collecting;     /* calls in collect mode whose body is not complete */
    size_t answered;       /* calls that are answered and whose stream is not closed */
    int64_t handler_bytes; /* of all calls */
    size_t pending;        /* memory of answers that are not framed yet */
    size_t held;           /* bytes of paused streams */
    size_t owed;       /* bytes of input for which the connection's window was not opened again */
    uint32_t turn;     /* counts streams that were given what they held */
    bool is_unread;    /* as in its calls */
    bool must_deliver; /* a stream that was paused may go on */
    bool wants_room;   /* a call may want it (mr_call_impl.wants_room) */
    bool is_untidy;    /* streams have been there since mr_h2region_tidy */
    bool pack_again;   /* framing stopped because the queue was long */
    bool failed;       /* memory ran out; the connection is closed as soon as may be */
    enum mr_h2_drain drain;
    int32_t body_stream; /* of the last DATA frame */
    uint32_t steady;     /* DATA frames as long as the one before, since one was not as thought */
    size_t body_frame;   /* length of the last DATA frame but for short ones */
    bool has_large_body; /* one came lately: others may, and are better not read through a buffer */
    size_t frame_left;   /* of the DATA frame at hand */
    size_t frame_bytes;  /* its length */
    int32_t frame_stream;
    int32_t ended[MR_H2_ENDED]; /* streams that the peer has ended, a ring; 0 = none */
    uint32_t ended_at;
    int32_t dropped[MR_H2_DROPPED]; /* streams that we have reset, a ring */
    uint32_t dropped_at;
    int32_t last_stream; /* the highest that the peer has opened */
    uint8_t walk_head[9];
    uint8_t walk_have;
    size_t walk_skip;
    bool has_large_frames; /* the peer was told that it may send them */
    uint32_t resets;       /* in the period */
    uint32_t junk;         /* frames without use since the last useful one */
    uint32_t
        strange; /* in the input at hand: frames of extensions, which nghttp2 passes over in silence */
    int64_t resets_since_ns;
    int64_t body_check_ns;
    int64_t head_due_ns;  /* a head has begun and has to be complete until then, 0 = none has */
    int64_t out_due_ns;   /* answers that wait for the peer's window have to go on until then */
    int64_t out_check_ns; /* when each answer that waits is looked at */
    int64_t heard_ns;     /* input was last seen */
    int64_t ping_sent_ns; /* 0 = none is out */
    int64_t drain_ns;     /* when the notice was sent */
};

extern const struct mr_call_ops mr_h2_call_ops;

/** A zeroed session object with a region, NULL without memory; frees it, its session and region. */
struct mr_h2 *mr_h2_new(struct mr_loop *loop);
void mr_h2_free(struct mr_h2 *h);
/** h->session, on memory of the region and of the loop's caches; 0 or an error of nghttp2. */
int mr_h2_open_session(struct mr_h2 *h);

/** h2region.c: an empty region (base NULL, nothing fits) when there is no memory for one. */
void mr_h2region_take(struct mr_loop *loop, struct mr_h2region *out);
void mr_h2region_give(struct mr_loop *loop, struct mr_h2region *region);
/** The session has had no stream for a while: what of the region is zero costs no memory from now on. */
void mr_h2region_tidy(const struct mr_h2region *region);

/** Callbacks and options of all sessions; 0 or an error of nghttp2. */
int mr_h2_session_new(struct mr_h2 *h, nghttp2_mem *mem);
/** The call of a stream, NULL when there is none (any more). */
struct mr_call_impl *mr_h2_stream_call(nghttp2_session *session, int32_t stream_id);
/** So much waits for the peer to read its answers that no more of them are made. */
bool mr_h2_is_backlogged(const struct mr_conn *c);
/** Input that was read: nghttp2 sees it. The connection may be closed then. */
void mr_h2_feed(struct mr_conn *c, const uint8_t *data, size_t n);
/** Reads bytes of a large body to where they stay, and what comes between them. False: there is none under way, and
 *  nothing was read. (http2_direct.c) */
bool mr_h2_read_direct(struct mr_conn *c);
/** As mr_proto.coming. */
size_t mr_h2_coming(const struct mr_conn *c);
/** on_data; returns how many of the last bytes the handler has put back (mr_call_impl_put_back). */
size_t mr_h2_deliver(struct mr_call_impl *call, mr_bytes data, bool is_last);
/** Opens the connection's window for what was taken in, if nothing speaks against more of it. */
void mr_h2_open_window(struct mr_conn *c);
/** Drop what a paused stream holds. */
void mr_h2_drop_held(struct mr_call_impl *call);
/** End the connection with an error; 0, or NGHTTP2_ERR_CALLBACK_FAILURE. */
int mr_h2_go_away(struct mr_h2 *h, uint32_t error);
/** Frames that are of no use; as mr_h2_go_away when there are too many. */
int mr_h2_count_junk(struct mr_h2 *h, uint32_t frames);
/** Had the peer ended this stream (of the last few)? */
bool mr_h2_is_ended(const struct mr_h2 *h, int32_t stream_id);
void mr_h2_unlink_waiting(struct mr_h2 *h, struct mr_call_impl *call);
/** More waits for the peer to read, or less: tell the calls when that is too much, or not any more. */
void mr_h2_judge_unread(struct mr_conn *c);

/** The handler is done with the call, or the stream is closed: recycle when both. */
void mr_h2_settle_call(struct mr_call_impl *call);
/** The call's body needs no more room. */
void mr_h2_stop_collecting(struct mr_call_impl *call);
/** Drop what was not framed. */
void mr_h2_drop_output(struct mr_call_impl *call);
/** There is memory for what was held for want of it. */
void mr_h2_memory_back(struct mr_conn *c);
/** Input has to be read again, whatever memory there is: what is held gets it or is refused. */
void mr_h2_wait_no_more(struct mr_conn *c);
/** Refuse what is held if it has waited for too long; false when it has not. */
bool mr_h2_refuse_held(struct mr_conn *c);
/** End the call's stream. Where there is no memory to tell, the connection ends: the client waits for nothing. */
void mr_h2_reset(struct mr_call_impl *call, uint32_t h2_error);
/** An answer of our own to a call that no handler has seen: {"error":"text"}. */
void mr_h2_error(struct mr_call_impl *call, int status, const char *text);
/** nghttp2 callbacks of the sending side. */
int mr_h2_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *framehd,
                    size_t length, nghttp2_data_source *source, void *user_data);

/* ---- memory of a loop ---- */

void mr_h2mem_init(struct mr_loop *loop);
void mr_h2mem_fini(struct mr_loop *loop);
void mr_h2regions_fini(struct mr_h2regions *r);

#endif
