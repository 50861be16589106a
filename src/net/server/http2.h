/* The two halves of HTTP/2 over nghttp2: http2.c runs sessions and reads requests, http2_answer.c
 * submits answers. */
#ifndef MR_NET_HTTP2_H
#define MR_NET_HTTP2_H

#include <nghttp2/nghttp2.h>

#include "call.h"

#define MR_H2_ENDED   16
#define MR_H2_DROPPED 64

enum mr_h2_drain { MR_H2_SERVING, MR_H2_NOTICED, MR_H2_LAST };

#define MR_H2REGION_BYTES ((size_t)28 * 1024) /* for nghttp2's memory of a session */

/** The free parts of a region: [front, back), and [late, late_end) for small pieces of the first calls. */
struct mr_h2region {
    char *base;
    char *front;
    char *back;
    char *late;
    char *late_end;
    bool is_clean; /* the part between front and back is zero */
};

/** The memory of a session (h2mem.c). */
struct mr_h2mem {
    struct mr_loop *loop;
    struct mr_h2region region;
};

/** Frames of a kind within a period, which begins anew when it is over. */
struct mr_h2_tally {
    uint32_t count;
    int64_t since_ns;
};

struct mr_h2 {
    struct mr_h2mem mem;
    nghttp2_session *session;
    struct mr_conn *conn;
    LIST_HEAD(, mr_call_impl) calls; /* all calls in use */
    struct mr_call_impl *reading;    /* the call whose head is being read */
    /* complete, delayed while the peer takes no output; oldest first */
    TAILQ_HEAD(, mr_call_impl) waiting;
    struct mr_call_waits readers; /* waiters of mr_call_wait_read */
    size_t streams;               /* calls with a stream in nghttp2 */
    size_t zombies;        /* calls whose stream is closed and whose handler has not answered */
    size_t collecting;     /* calls in collect mode whose body is not complete */
    size_t answered;       /* answered calls whose stream is not closed */
    int64_t handler_bytes; /* of all calls */
    size_t pending;        /* memory of answers not framed yet */
    size_t complete;       /* of it, of calls that are answered: these cannot be stopped */
    size_t owed;           /* bytes of input that is done with, not yet given back */
    uint32_t turn;         /* counts deliveries of held input */
    bool is_unread;        /* as in its calls */
    bool must_deliver;     /* a stream that was paused may go on */
    bool wants_room;       /* a call may want it (mr_call_impl.wants_room) */
    bool is_untidy;        /* there were streams since mr_h2region_tidy */
    bool pack_again;       /* framing stopped as the queue was long */
    bool failed;           /* memory ran out; the connection is closed as soon as possible */
    enum mr_h2_drain drain;
    int32_t body_stream; /* of the last DATA frame */
    uint32_t steady;     /* DATA frames of equal length since the last unexpected one */
    size_t body_frame;   /* length of the last DATA frame, short ones excluded */
    bool has_large_body; /* one came recently: further ones should be read without a buffer */
    size_t frame_left;   /* of the current DATA frame */
    size_t frame_bytes;  /* its length */
    int32_t frame_stream;
    int32_t ended[MR_H2_ENDED]; /* streams that the peer has ended, a ring; 0 = none */
    uint32_t ended_at;
    int32_t dropped[MR_H2_DROPPED]; /* streams reset by this side, a ring */
    uint32_t dropped_at;
    int32_t last_stream; /* the highest stream that the peer has opened */
    uint8_t walk_head[9];
    uint8_t walk_have;
    size_t walk_skip;
    bool has_large_frames; /* the peer was allowed to send them */
    struct mr_h2_tally resets;
    struct mr_h2_tally junk; /* useless frames since the last useful one, in either direction */
    /* extension frames in the current input, which nghttp2 skips silently */
    uint32_t strange;
    int64_t body_check_ns;
    int64_t head_due_ns; /* a started head must be complete until then, 0 = none */
    int64_t out_due_ns;  /* answers that wait for the peer's window must make progress until then */
    int64_t out_check_ns; /* when the waiting answers are next checked one by one */
    int64_t heard_ns;     /* the last input */
    int64_t ping_sent_ns; /* 0 = the peer was heard after the last one */
    int64_t drain_ns;     /* when the drain notice was sent */
};

extern const struct mr_call_ops mr_h2_call_ops;

/** A zeroed session object with a region, NULL without memory; frees it, its session and region. */
struct mr_h2 *mr_h2_new(struct mr_loop *loop);
void mr_h2_free(struct mr_h2 *h);
/** h->session, on memory of the region and of the loop's caches; 0 or an error of nghttp2. */
int mr_h2_open_session(struct mr_h2 *h);

/** h2region.c: takes a region; an empty one (base NULL, no room) without memory. */
void mr_h2region_take(struct mr_loop *loop, struct mr_h2region *out);
void mr_h2region_give(struct mr_loop *loop, struct mr_h2region *region);
/** Called when the session had no stream for a while: returns the zero pages of the region to the system. */
void mr_h2region_tidy(const struct mr_h2region *region);

/** Callbacks and options of all sessions; 0 or an error of nghttp2. */
int mr_h2_session_new(struct mr_h2 *h, nghttp2_mem *mem);
/** How many streams the peer may have at once. */
uint32_t mr_h2_max_streams(const struct mr_conn *c);
/** The call of a stream, or NULL. */
struct mr_call_impl *mr_h2_stream_call(nghttp2_session *session, int32_t stream_id);
/** True if too many complete answers wait for the peer to read; no more are made. */
bool mr_h2_is_backlogged(const struct mr_conn *c);
/** True if the call should make no more of its answer: as above, or too much waits on all streams and some of it on its own.
 *  with_input: whether it should get no more input, for which what handlers hold counts as well. */
bool mr_h2_call_is_backlogged(const struct mr_call_impl *call, bool with_input);
/** True if input of a stream has not been delivered. */
bool mr_h2_has_input(const struct mr_call_impl *call);
/** Less of the call waits: what it has stopped may go on when the connection works next. */
void mr_h2_note_room(struct mr_call_impl *call);
/** Gives input to nghttp2. May close the connection. */
void mr_h2_feed(struct mr_conn *c, const uint8_t *data, size_t n);
/** Reads a large body to its final place, and the frames around it. False: no such body, nothing was read.
 *  (http2_direct.c) */
bool mr_h2_read_direct(struct mr_conn *c);
/** As mr_proto.coming. */
size_t mr_h2_coming(const struct mr_conn *c);
/** Calls on_data; returns how many of the last bytes the handler has put back (mr_call_impl_put_back). */
size_t mr_h2_deliver(struct mr_call_impl *call, mr_bytes data, bool is_last);
/** Opens the connection's window by the input that is done with, unless input should wait. */
void mr_h2_open_window(struct mr_conn *c);
/** The first `n` bytes of the held input of a stream are done with. */
void mr_h2_held_is_done(struct mr_call_impl *call, size_t n);
/** Drops the held input of a paused stream. */
void mr_h2_drop_held(struct mr_call_impl *call);
/** End the connection with an error; 0, or NGHTTP2_ERR_CALLBACK_FAILURE. */
int mr_h2_go_away(struct mr_h2 *h, uint32_t error);
/** Counts useless frames; as mr_h2_go_away if there are too many. */
int mr_h2_count_junk(struct mr_h2 *h, uint32_t frames);
/** True if the peer had ended this stream (of the last few). */
bool mr_h2_is_ended(const struct mr_h2 *h, int32_t stream_id);
void mr_h2_unlink_waiting(struct mr_h2 *h, struct mr_call_impl *call);
/** Updates the calls' is_unread flags after a change of the unread amount. */
void mr_h2_judge_unread(struct mr_conn *c);

/** Called when the handler has answered or the stream is closed: recycles the call when both are true. */
void mr_h2_settle_call(struct mr_call_impl *call);
/** Called when the call's body needs no more room. */
void mr_h2_stop_collecting(struct mr_call_impl *call);
/** Drops output that is not framed yet. */
void mr_h2_drop_output(struct mr_call_impl *call);
/** Memory is available: takes in the input that waited for it. */
void mr_h2_memory_back(struct mr_conn *c);
/** Input must be read again even if memory is scarce: held input gets memory or is refused. */
void mr_h2_wait_no_more(struct mr_conn *c);
/** Refuses held input if it has waited too long; false if not. */
bool mr_h2_refuse_held(struct mr_conn *c);
/** Resets the call's stream. Without memory for that the connection is closed, so that the client does not wait in
 *  vain. */
void mr_h2_reset(struct mr_call_impl *call, uint32_t h2_error);
/** Says that the body may come, to a client that waits for that. Nothing of the answer has been given yet. */
void mr_h2_send_continue(struct mr_call_impl *call);
/** Answers a call that no handler has seen; of gRPC, whose clients take any such status for UNKNOWN, with RESOURCE_EXHAUSTED.
 *  text: goes into JSON as it is. */
void mr_h2_refuse_head(struct mr_call_impl *call, int status, const char *text);
/** nghttp2 callbacks of the sending side. */
int mr_h2_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *framehd,
                    size_t length, nghttp2_data_source *source, void *user_data);

/* ---- memory of a loop ---- */

void mr_h2mem_init(struct mr_loop *loop);
void mr_h2mem_fini(struct mr_loop *loop);
void mr_h2regions_fini(struct mr_h2regions *r);

#endif
