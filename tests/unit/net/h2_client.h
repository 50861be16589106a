/* A blocking HTTP/2 client on nghttp2, and raw frames for what nghttp2 would not send. */
#ifndef H2_CLIENT_H
#define H2_CLIENT_H

#include <nghttp2/nghttp2.h>

#include "server_fixture.h"

#define H2_STREAMS 600

struct h2_stream {
    int32_t id;
    int status;
    int interim;        /* 1xx answers before it */
    char headers[1024]; /* "name: value\n" of head and trailers */
    uint8_t *body;
    size_t len;
    size_t cap;
    bool closed;
    uint32_t error;
    const uint8_t *send; /* request body */
    size_t send_left;
    bool send_open; /* more will be set */
};

struct h2_client {
    int fd;
    nghttp2_session *session;
    struct h2_stream *streams;
    size_t count;
    size_t closed;
    bool ended;        /* the server closed the connection */
    uint32_t goaway;   /* error of a GOAWAY + 1, 0 = none */
    size_t pings;      /* of the server */
    bool hold_windows; /* never open them: a slow reader */
    bool large_frames;
};

static inline struct h2_stream *h2_find(struct h2_client *c, int32_t id)
{
    for (size_t i = 0; i < c->count; i++) {
        if (c->streams[i].id == id) {
            return &c->streams[i];
        }
    }
    return NULL;
}

static inline int h2_on_header(nghttp2_session *session, const nghttp2_frame *frame,
                               const uint8_t *name, size_t name_len, const uint8_t *value,
                               size_t value_len, uint8_t flags, void *user)
{
    struct h2_stream *s = h2_find(user, frame->hd.stream_id);

    (void)session;
    (void)name_len;
    (void)value_len;
    (void)flags;
    if (s && strcmp((const char *)name, ":status") == 0) {
        s->interim += s->status > 0;
        s->status = atoi((const char *)value);
    } else if (s) {
        size_t n = strlen(s->headers);
        snprintf(s->headers + n, sizeof s->headers - n, "%s: %s\n", name, value);
    }
    return 0;
}

static inline int h2_on_data(nghttp2_session *session, uint8_t flags, int32_t id,
                             const uint8_t *data, size_t len, void *user)
{
    struct h2_client *c = user;
    struct h2_stream *s = h2_find(c, id);

    (void)flags;
    if (s) {
        if (s->len + len + 1 > s->cap) {
            s->cap = (s->len + len + 1) * 2;
            s->body = realloc(s->body, s->cap);
        }
        memcpy(s->body + s->len, data, len);
        s->len += len;
        s->body[s->len] = 0;
    }
    if (!c->hold_windows) {
        nghttp2_session_consume(session, id, len);
    }
    return 0;
}

static inline int h2_on_close(nghttp2_session *session, int32_t id, uint32_t error, void *user)
{
    struct h2_client *c = user;
    struct h2_stream *s = h2_find(c, id);

    (void)session;
    if (s && !s->closed) {
        s->closed = true;
        s->error = error;
        c->closed++;
    }
    return 0;
}

static inline int h2_on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct h2_client *c = user;

    (void)session;
    if (frame->hd.type == NGHTTP2_GOAWAY) {
        c->goaway = frame->goaway.error_code + 1;
    }
    c->pings += frame->hd.type == NGHTTP2_PING && !(frame->hd.flags & NGHTTP2_FLAG_ACK);
    return 0;
}

/* Frames as large as the server lets us. */
static inline ssize_t h2_read_length(nghttp2_session *session, uint8_t type, int32_t id,
                                     int32_t session_window, int32_t stream_window,
                                     uint32_t frame_max, void *user)
{
    struct h2_client *c = user;
    int32_t n = session_window < stream_window ? session_window : stream_window;
    int32_t limit = c->large_frames ? (int32_t)frame_max : 16384;

    (void)session;
    (void)type;
    (void)id;
    return n < limit ? n : limit;
}

static inline ssize_t h2_read(nghttp2_session *session, int32_t id, uint8_t *buf, size_t length,
                              uint32_t *data_flags, nghttp2_data_source *source, void *user)
{
    struct h2_stream *s = h2_find(user, id);
    size_t n = s->send_left < length ? s->send_left : length;

    (void)session;
    (void)source;
    if (n == 0 && s->send_open) {
        return NGHTTP2_ERR_DEFERRED;
    }
    if (n) {
        memcpy(buf, s->send, n);
    }
    s->send += n;
    s->send_left -= n;
    if (s->send_left == 0 && !s->send_open) {
        *data_flags |= NGHTTP2_DATA_FLAG_EOF;
    }
    return (ssize_t)n;
}

static inline bool h2_send(struct h2_client *c, const uint8_t *data, size_t n)
{
    while (n > 0) {
        ssize_t done = send(c->fd, data, n, MSG_NOSIGNAL);
        if (done <= 0) {
            return false;
        }
        data += done;
        n -= (size_t)done;
    }
    return true;
}

/* Send what there is, in as few segments as it fits. */
static inline void h2_flush(struct h2_client *c)
{
    static _Thread_local uint8_t buf[65536];
    const uint8_t *data;
    ssize_t n = 1;

    while (!c->ended && n > 0) {
        size_t have = 0;
        while (have + 17000 < sizeof buf && (n = nghttp2_session_mem_send(c->session, &data)) > 0) {
            if ((size_t)n > sizeof buf - have) {
                /* A frame larger than usual goes by itself. */
                c->ended = c->ended || !h2_send(c, buf, have) || !h2_send(c, data, (size_t)n);
                have = 0;
                continue;
            }
            memcpy(buf + have, data, (size_t)n);
            have += (size_t)n;
        }
        c->ended = c->ended || !h2_send(c, buf, have);
    }
}

/* Read once, at most `ms` long; false when nothing came. */
static inline bool h2_turn(struct h2_client *c, int ms)
{
    uint8_t buf[65536];
    struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

    h2_flush(c);
    setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    ssize_t n = recv(c->fd, buf, sizeof buf, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN)) {
        c->ended = true;
    }
    if (n <= 0) {
        return false;
    }
    assert_true(nghttp2_session_mem_recv(c->session, buf, (size_t)n) == n);
    h2_flush(c);
    return true;
}

static inline void h2_wait_closed(struct h2_client *c, size_t closed)
{
    while (c->closed < closed && !c->ended && h2_turn(c, 300000)) {
    }
    assert_int_equal(c->closed, closed);
}

static inline struct h2_client *h2_dial_window(const struct server *s, uint32_t window)
{
    struct h2_client *c = calloc(1, sizeof *c);
    nghttp2_session_callbacks *cb;
    nghttp2_option *option;
    nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window}};

    c->fd = dial_raw(s->port);
    c->streams = calloc(H2_STREAMS, sizeof *c->streams);
    nghttp2_session_callbacks_new(&cb);
    nghttp2_option_new(&option);
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_max_send_header_block_length(option, 1 << 20);
    nghttp2_session_callbacks_set_on_header_callback(cb, h2_on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, h2_on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, h2_on_close);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, h2_on_frame);
    nghttp2_session_callbacks_set_data_source_read_length_callback(cb, h2_read_length);
    nghttp2_session_client_new2(&c->session, cb, c, option);
    nghttp2_submit_settings(c->session, 0, settings, 1);
    nghttp2_session_set_local_window_size(c->session, 0, 0, 64 << 20);
    nghttp2_session_callbacks_del(cb);
    nghttp2_option_del(option);
    return c;
}

static inline struct h2_client *h2_dial(const struct server *s)
{
    return h2_dial_window(s, 1 << 20);
}

static inline void h2_hang_up(struct h2_client **io_c)
{
    struct h2_client *c = *io_c;

    *io_c = NULL;
    nghttp2_session_del(c->session);
    for (size_t i = 0; i < c->count; i++) {
        free(c->streams[i].body);
    }
    free(c->streams);
    if (c->fd >= 0) {
        close(c->fd);
    }
    free(c);
}

/* extra: pairs of name and value, NULL at the end; may be NULL. body NULL: END_STREAM on the head.
 */
static inline struct h2_stream *h2_request(struct h2_client *c, const char *method,
                                           const char *path, const char *const *extra,
                                           const void *body, size_t len)
{
    const char *fixed[] = {":method", method,  ":scheme", "http", ":authority",
                           "x",       ":path", path,      NULL};
    nghttp2_nv nv[32];
    size_t n = 0;
    struct h2_stream *s = &c->streams[c->count];
    nghttp2_data_provider provider = {.read_callback = h2_read};

    assert_true(c->count < H2_STREAMS);
    for (const char *const *p = fixed; *p; p += 2) {
        nv[n++] = (nghttp2_nv){(uint8_t *)p[0], (uint8_t *)p[1], strlen(p[0]), strlen(p[1]), 0};
    }
    for (const char *const *p = extra; p && *p; p += 2) {
        nv[n++] = (nghttp2_nv){(uint8_t *)p[0], (uint8_t *)p[1], strlen(p[0]), strlen(p[1]), 0};
    }
    s->send = body;
    s->send_left = len;
    s->id = nghttp2_submit_request(c->session, NULL, nv, n, body ? &provider : NULL, NULL);
    assert_true(s->id > 0);
    c->count++;
    return s;
}

/* ---- raw frames ----------------------------------------------------------------------------- */

#define H2_PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

static inline size_t h2_frame(uint8_t *out, uint8_t type, uint8_t flags, uint32_t id,
                              const void *payload, size_t len)
{
    uint8_t head[9] = {
        (uint8_t)(len >> 16), (uint8_t)(len >> 8), (uint8_t)len,       type,       flags,
        (uint8_t)(id >> 24),  (uint8_t)(id >> 16), (uint8_t)(id >> 8), (uint8_t)id};

    memcpy(out, head, 9);
    if (len) {
        memcpy(out + 9, payload, len);
    }
    return 9 + len;
}

/* Preface and SETTINGS on a fresh connection. */
static inline void h2_raw_hello(struct client *c)
{
    uint8_t frame[9];

    assert_true(say(c, H2_PREFACE));
    h2_frame(frame, 4, 0, 0, NULL, 0);
    assert_true(send_all(c, frame, 9));
}

/* Read frames until one of `type` comes; its payload in out. False at the end of the connection. */
static inline bool h2_raw_wait(struct client *c, uint8_t type, uint8_t *out, size_t max,
                               size_t *out_len)
{
    for (;;) {
        if (!hear_bytes(c, 9)) {
            return false;
        }
        const uint8_t *h = (const uint8_t *)c->buf;
        size_t len = (size_t)h[0] << 16 | (size_t)h[1] << 8 | h[2];
        uint8_t got = h[3];
        if (!hear_bytes(c, 9 + len)) {
            return false;
        }
        if (got == type) {
            *out_len = len < max ? len : max;
            memcpy(out, c->buf + 9, *out_len);
        }
        drop(c, 9 + len);
        if (got == type) {
            return true;
        }
    }
}

/* The connection ends with a GOAWAY of this error. */
static inline void h2_raw_expect_goaway(struct client *c, uint32_t error)
{
    uint8_t payload[8] = {0};
    size_t len = 0;

    assert_true(h2_raw_wait(c, 7, payload, sizeof payload, &len));
    assert_int_equal(len, 8);
    assert_int_equal((uint32_t)payload[4] << 24 | (uint32_t)payload[5] << 16 |
                         (uint32_t)payload[6] << 8 | payload[7],
                     error);
    while (hear(c)) {
        c->len = 0;
    }
}

#endif
