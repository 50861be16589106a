/* HTTP/2: large bodies are read to their final place.
 *
 * A body comes in frames, each after a head of nine bytes. Peers cut a large body into frames of one length, so one
 * read is scattered over the predicted places of several payloads and of the heads between them. nghttp2 then gets
 * heads and payloads in place, and only the kernel copies the body's bytes. If a head differs from the prediction,
 * the data after it is reassembled, and fewer frames are predicted for this peer.
 *
 * Thread: loop. */
#include "http2.h"

#define HEAD_BYTES   9
#define FRAMES_MAX   16
#define LEAST_BYTES  ((size_t)4096) /* smaller reads do not pay */
#define READS_A_TURN 2

/* One read. Heads are at odd places or at even ones, payloads between them. */
struct plan {
    struct iovec iov[2 * FRAMES_MAX + 1];
    uint8_t heads[FRAMES_MAX][HEAD_BYTES];
    size_t lengths[FRAMES_MAX]; /* predicted lengths of the frames that begin */
    int count;
    int first_head; /* in iov */
    int frames;
    int32_t stream;
    size_t bytes;
};

static void add(struct plan *p, void *at, size_t n)
{
    p->iov[p->count++] = (struct iovec){at, n};
    p->bytes += n;
}

/* Adds the predicted frames for `want` bytes of the body from `at` on. */
static void add_frames(struct plan *p, const struct mr_h2 *h, uint8_t *at, size_t want)
{
    size_t trusted = MR_MIN((size_t)FRAMES_MAX, 2 * (size_t)h->steady);
    size_t have = h->walk_have;

    p->first_head = p->count;
    while (want > 0 && (size_t)p->frames < trusted &&
           p->bytes + HEAD_BYTES + LEAST_BYTES < MR_READ_BUF_BYTES) {
        size_t length = MR_MIN(want, h->body_frame);
        size_t part = MR_MIN(length, MR_READ_BUF_BYTES - p->bytes - HEAD_BYTES);
        uint8_t *head = p->heads[p->frames];
        memcpy(head, h->walk_head, have);
        add(p, head + have, HEAD_BYTES - have);
        add(p, at, part);
        p->lengths[p->frames++] = length;
        at += part;
        want -= part;
        have = 0;
        if (part < length) {
            return;
        }
    }
}

/* False: nothing can be read in place. */
static bool make_plan(struct plan *p, const struct mr_h2 *h, struct mr_call_impl *call)
{
    const struct mr_body *b = &call->body;
    size_t left = h->walk_skip; /* of the current frame of any type */
    size_t room = 0;
    uint8_t *at = mr_body_room(call, &room);

    if (!at || (left > 0 && (left != h->frame_left || h->frame_stream != call->stream_id))) {
        return false;
    }
    size_t want = b->expect >= 0 ? (size_t)b->expect - MR_MIN(b->len, (size_t)b->expect) : left;
    want = MR_MIN(want, room);
    if (want < LEAST_BYTES) {
        return false;
    }
    p->stream = call->stream_id;
    if (left > 0) {
        add(p, at, MR_MIN(left, want));
    }
    if (left < want) {
        add_frames(p, h, at + left, want - left);
    }
    return p->bytes >= LEAST_BYTES;
}

static bool is_as_thought(const struct plan *p, int frame)
{
    const uint8_t *head = p->heads[frame];
    size_t length = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
    int32_t stream = (int32_t)((uint32_t)(head[5] & 0x7f) << 24 | (uint32_t)head[6] << 16 |
                               (uint32_t)head[7] << 8 | head[8]);

    return head[3] == NGHTTP2_DATA && !(head[4] & NGHTTP2_FLAG_PADDED) && stream == p->stream &&
           length == p->lengths[frame];
}

/* Copies n bytes from piece `i` on into one buffer. NULL without memory. */
static uint8_t *gather(struct mr_conn *c, const struct plan *p, int i, size_t n)
{
    uint8_t *all = mr_loop_read_buf(c->loop);
    size_t at = 0;

    for (; all && at < n; i++) {
        size_t part = MR_MIN(n - at, p->iov[i].iov_len);
        memcpy(all + at, p->iov[i].iov_base, part);
        at += part;
    }
    return all;
}

/* Gives the n bytes read to nghttp2. */
static void take(struct mr_conn *c, const struct plan *p, size_t n)
{
    for (int i = 0; n > 0 && !c->closing; i++) {
        const struct iovec *v = &p->iov[i];
        size_t part = MR_MIN(n, v->iov_len);
        bool is_head = i >= p->first_head && (i - p->first_head) % 2 == 0;
        n -= part;
        if (!is_head || part < v->iov_len || is_as_thought(p, (i - p->first_head) / 2)) {
            mr_h2_feed(c, v->iov_base, part);
            continue;
        }
        c->h2->steady = 0;
        uint8_t *rest = gather(c, p, i + 1, n);
        if (!rest) {
            mr_conn_close(c);
            return;
        }
        mr_h2_feed(c, v->iov_base, part);
        if (!c->closing) {
            mr_h2_feed(c, rest, n);
        }
        return;
    }
}

static struct mr_call_impl *collecting_call(const struct mr_h2 *h)
{
    struct mr_call_impl *call =
        h->body_stream ? mr_h2_stream_call(h->session, h->body_stream) : NULL;

    return call && call->is_collecting && !call->refused && call->held.bytes == 0 &&
                   call->body.block
               ? call
               : NULL;
}

size_t mr_h2_coming(const struct mr_conn *c)
{
    struct mr_h2 *h = c->h2;
    struct mr_call_impl *call = collecting_call(h);

    /* Answers that wait for windows need other frames of the peer. */
    if (!call || h->pending > 0 || call->body.expect <= (int64_t)call->body.len) {
        return 0;
    }
    int32_t window =
        MR_MIN(nghttp2_session_get_local_window_size(h->session),
               nghttp2_session_get_stream_local_window_size(h->session, call->stream_id));
    return MR_MIN((size_t)call->body.expect - call->body.len, (size_t)MR_MAX(window, 0));
}

bool mr_h2_read_direct(struct mr_conn *c)
{
    bool has_read = false;
    size_t n;

    for (int i = 0; i < READS_A_TURN; i++) {
        struct plan p = {0};
        struct mr_call_impl *call = c->h2 ? collecting_call(c->h2) : NULL;
        if (!call || !mr_proto_http2.wants_input(c) || !make_plan(&p, c->h2, call)) {
            break;
        }
        /* The data given to nghttp2 may end the call, and lies in its block. */
        struct mr_block *block = mr_block_ref(call->body.block);
        n = mr_conn_readv(c, p.iov, p.count);
        has_read = true;
        if (n > 0) {
            take(c, &p, n);
        }
        mr_block_unref(&block);
        if (n < p.bytes || c->closing) {
            break;
        }
    }
    return has_read;
}
