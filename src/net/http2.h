/* The two halves of HTTP/2 over nghttp2: http2.c runs sessions and reads requests, http2_answer.c
 * submits answers. */
#ifndef MR_NET_HTTP2_H
#define MR_NET_HTTP2_H

#include <nghttp2/nghttp2.h>

#include "call.h"

enum mr_h2_drain { MR_H2_SERVING, MR_H2_NOTICED, MR_H2_LAST };

struct mr_h2 {
    nghttp2_session *session;
    struct mr_conn *conn;
    struct mr_icall *calls;   /* all that nobody has let go of */
    struct mr_icall *reading; /* whose head is coming in */
    struct mr_icall *waiting; /* complete, held back while the peer takes no output; oldest first */
    struct mr_icall *waiting_last;
    size_t streams;    /* calls that nghttp2 still knows */
    size_t zombies;    /* calls whose stream is closed, but whose handler is still at work */
    size_t collecting; /* calls in collect mode whose body is not complete */
    size_t pending;    /* bytes of answers that are not framed yet */
    bool must_deliver; /* a paused stream was resumed */
    bool pack_again;   /* framing stopped because the queue was long */
    bool failed;       /* memory ran out in a callback */
    enum mr_h2_drain drain;
    size_t frame_left; /* of the DATA frame at hand */
    int32_t frame_stream;
    uint32_t resets; /* in the period */
    uint32_t junk;   /* frames without use since the last useful one */
    int64_t resets_since_ns;
    int64_t body_check_ns;
    int64_t progress_ns;  /* output was last framed */
    int64_t heard_ns;     /* input was last seen */
    int64_t ping_sent_ns; /* 0 = none is out */
    int64_t drain_ns;     /* when the notice was sent */
};

extern const struct mr_call_ops mr_h2_call_ops;

/** nghttp2's allocator on the loop's caches. */
nghttp2_mem mr_h2mem(struct mr_loop *loop);

/** The handler is done with the call, or the stream is closed: recycle when both. */
void mr_h2_settle_call(struct mr_icall *call);
/** The call's body needs no more room. */
void mr_h2_stop_collecting(struct mr_icall *call);
/** Drop what was not framed. */
void mr_h2_drop_output(struct mr_icall *call);
/** An answer of our own to a call that no handler has seen: {"error":"text"}. */
void mr_h2_error(struct mr_icall *call, int status, const char *text);
/** nghttp2 callbacks of the sending side. */
int mr_h2_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *framehd,
                    size_t length, nghttp2_data_source *source, void *user_data);

#endif
