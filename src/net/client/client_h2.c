/* HTTP/2 of the client, by prior knowledge: one nghttp2 session per connection, a stream per call.
 *
 * Output is made in the loop's flush step, so that the requests of one iteration leave together and
 * no callback runs within mr_client_send (nghttp2 calls back while it sends, too). At most one
 * write is under way; the next is made when it is done, which bounds what waits for a slow server.
 *
 * nghttp2 keeps what exceeds the server's stream limit waiting, and ends
 * streams that a GOAWAY leaves out with REFUSED_STREAM; those are sent again on a new connection. */
#include <stdio.h>

#include "client_priv.h"

#ifndef MR_VERSION
#    define MR_VERSION "0"
#endif

#define STREAM_WINDOW     (16 * 1024 * 1024)
#define CONNECTION_WINDOW (64 * 1024 * 1024)
#define WRITE_BYTES       ((size_t)256 * 1024)
#define PSEUDO_HEADERS    4
#define HEAD_MAX          ((size_t)32 << 20) /* of a request, packed: more than servers take */

struct output {
    struct mr_client_write write;
    struct mr_client_conn *conn;
    struct mr_buf bytes;
};

static void not_h2(struct mr_client_conn *conn, const char *why)
{
    struct mr_err err;

    mr_err_set(&err, MR_E_INVALID, MR_HERE, "%s does not speak HTTP/2: %s", conn->client->address,
               why);
    mr_client_blame(&err);
    mr_client_conn_fail(conn, MR_E_INVALID, &err);
}

/* NULL if the stream's call is gone. A callback may have closed the connection, and with it
 * all calls, while nghttp2 goes on through the bytes that it has. */
static struct mr_client_call *call_of(const struct mr_client_conn *conn, int32_t stream_id)
{
    return conn->state == MR_CONN_OPEN ? nghttp2_session_get_stream_user_data(conn->h2, stream_id)
                                       : NULL;
}

/* ---- callbacks of the session ---- */

/* The call ends with `err`; its stream is reset and dropped. */
static void give_up(struct mr_client_conn *conn, struct mr_client_call *call,
                    const struct mr_err *err)
{
    struct mr_err copy = *err;

    mr_client_h2_cancel(conn, call);
    mr_client_call_end(call, copy.status, &copy);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct mr_client_call *call = call_of(user, frame->hd.stream_id);

    (void)session;
    if (call && frame->hd.type == NGHTTP2_HEADERS) {
        /* Unless a :status follows, as in a final response after a 1xx. */
        call->in_trailers = frame->headers.cat == NGHTTP2_HCAT_HEADERS;
    }
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user)
{
    struct mr_client_conn *conn = user;
    struct mr_client_call *call = call_of(conn, frame->hd.stream_id);
    mr_str n = {(const char *)name, name_len};
    mr_str v = {(const char *)value, value_len};
    struct mr_err err;
    uint64_t status;

    (void)session;
    (void)flags;
    if (!call || frame->hd.type != NGHTTP2_HEADERS) {
        return 0;
    }
    call->got_bytes = true;
    if (mr_str_eq_c(n, ":status")) {
        /* nghttp2 has checked it: three digits, once, first. A second one follows a 1xx. */
        call->answer.status = mr_str_to_u64(v, &status) ? (int)status : 0;
        call->answer.header_count = 0;
        call->in_trailers = false;
        return 0;
    }
    if (mr_client_add_header(call, call->in_trailers, n, v, &err) < 0) {
        give_up(conn, call, &err);
    }
    return 0;
}

static int take_data(struct mr_client_call *call, mr_bytes data, struct mr_err *err)
{
    return call->stream ? mr_client_stream_feed(call->stream, data, err)
                        : mr_client_body_append(call, data.ptr, data.len, err);
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream_id, const uint8_t *data,
                   size_t len, void *user)
{
    struct mr_client_conn *conn = user;
    struct mr_client_call *call = call_of(conn, stream_id);
    struct mr_err err;

    (void)flags;
    /* Before the call can end: who reads opens the window again, but for a stream that is paused. */
    size_t open = call && call->stream ? mr_client_stream_taken(call->stream, len) : len;
    nghttp2_session_consume_connection(session, len);
    nghttp2_session_consume_stream(session, stream_id, open);
    if (call) {
        call->got_bytes = true;
        int rc = take_data(call, (mr_bytes){data, len}, &err);
        if (rc < 0) {
            give_up(conn, call, &err);
        }
    }
    return 0;
}

static void on_stream_frame(struct mr_client_call *call, bool is_headers, bool is_last)
{
    struct mr_client_stream *s = call->stream;
    bool is_head = is_headers && !call->in_trailers && call->answer.status >= 200;

    if (is_last) {
        mr_client_stream_answered(s);
    }
    if (is_head) {
        mr_client_stream_head(s);
    }
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct mr_client_conn *conn = user;

    (void)session;
    if (frame->hd.type == NGHTTP2_GOAWAY) {
        conn->is_draining = true;
    }
    if (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) {
        struct mr_client_call *call = call_of(conn, frame->hd.stream_id);
        bool is_last = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
        if (call && is_last) {
            call->is_answered = true;
        }
        if (call && call->stream) {
            on_stream_frame(call, frame->hd.type == NGHTTP2_HEADERS, is_last);
        }
    }
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream_id, uint32_t code, void *user)
{
    struct mr_client_conn *conn = user;
    struct mr_client_call *call = call_of(conn, stream_id);
    struct mr_err err;

    if (!call) {
        return 0;
    }
    nghttp2_session_set_stream_user_data(session, stream_id, NULL);
    if (code == NGHTTP2_NO_ERROR && call->answer.status >= 200 && call->is_answered) {
        conn->has_served = true;
        mr_client_call_end(call, MR_OK, NULL);
        return 0;
    }
    mr_err_set(&err, MR_E_UNAVAILABLE, MR_HERE, "%s reset the request (%s)", conn->client->address,
               code != NGHTTP2_NO_ERROR  ? nghttp2_http2_strerror(code)
               : call->answer.status > 0 ? "the answer was cut off"
                                         : "no answer");
    if (code == NGHTTP2_REFUSED_STREAM) { /* nothing was done: RFC 9113 section 8.7 */
        mr_client_call_refused(call, &err);
    } else {
        mr_client_call_end(call, MR_E_UNAVAILABLE, &err);
    }
    return 0;
}

/* ---- requests ---- */

static ssize_t read_stream(struct mr_client_stream *s, uint8_t *out, size_t max, uint32_t *flags)
{
    bool is_end;
    size_t n = mr_client_stream_read(s, out, max, &is_end);

    if (is_end) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    }
    return n || is_end ? (ssize_t)n : NGHTTP2_ERR_DEFERRED;
}

static ssize_t read_body(nghttp2_session *session, int32_t stream_id, uint8_t *out, size_t max,
                         uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct mr_client_call *call = call_of(user, stream_id);
    size_t n = 0;

    (void)session;
    (void)source;
    if (!call) {
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    if (call->stream && call->piece_count == 0) {
        return read_stream(call->stream, out, max, flags);
    }
    while (n < max && call->sent_piece < call->piece_count) {
        const struct mr_piece *p = &call->pieces[call->sent_piece];
        size_t part = MR_MIN(max - n, p->len - call->sent_offset);
        memcpy(out + n, (const char *)p->ptr + call->sent_offset, part);
        n += part;
        call->sent_offset += part;
        if (call->sent_offset == p->len) {
            call->sent_piece++;
            call->sent_offset = 0;
        }
    }
    if (call->sent_piece == call->piece_count) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    }
    return (ssize_t)n;
}

static nghttp2_nv make_nv(mr_str name, mr_str value)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name.ptr, (uint8_t *)(uintptr_t)value.ptr, name.len,
                        value.len, NGHTTP2_NV_FLAG_NONE};
}

static int submit(struct mr_client_conn *conn, struct mr_client_call *call)
{
    nghttp2_data_provider body = {.read_callback = read_body};
    const struct mr_client *c = conn->client;
    size_t n = 0;
    char length[24];
    nghttp2_nv *nv = MR_NEW_ARRAY(nghttp2_nv, call->header_count + PSEUDO_HEADERS + 2);

    nv[n++] = make_nv(MR_STR(":method"), call->method);
    nv[n++] = make_nv(MR_STR(":scheme"), c->options.tls ? MR_STR("https") : MR_STR("http"));
    nv[n++] = make_nv(MR_STR(":authority"), mr_client_host(call));
    nv[n++] = make_nv(MR_STR(":path"), call->path);
    nv[n++] = make_nv(MR_STR("user-agent"), MR_STR("millrace/" MR_VERSION));
    if (call->body_bytes) {
        const size_t len = (size_t)(mr_u64_put(length, call->body_bytes) - length);
        nv[n++] = make_nv(MR_STR("content-length"), mr_str_n(length, len));
    }
    for (size_t i = 0; i < call->header_count; i++) {
        if (!mr_str_eq_c(call->headers[i].name, "host")) {
            nv[n++] = make_nv(call->headers[i].name, call->headers[i].value);
        }
    }
    bool has_body = call->body_bytes || (call->stream && mr_client_stream_has_body(call->stream));
    int32_t id = nghttp2_submit_request(conn->h2, NULL, nv, n, has_body ? &body : NULL, call);
    mr_free(nv);
    if (id > 0) {
        call->stream_id = id;
    }
    return id;
}

void mr_client_h2_start(struct mr_client_conn *conn, struct mr_client_call *call)
{
    int id = submit(conn, call);

    if (id < 0) {
        mr_client_conn_fail_later(conn, MR_E_UNAVAILABLE, nghttp2_strerror(id));
        return;
    }
    if (conn->asked_ns <= conn->heard_ns) {
        conn->asked_ns = mr_loop_now_ns(conn->client->loop);
    }
    conn->is_draining |=
        !nghttp2_session_check_request_allowed(conn->h2); /* that was the last id */
    mr_flush_queue(conn->client->loop, &conn->flush);
}

void mr_client_h2_cancel(struct mr_client_conn *conn, struct mr_client_call *call)
{
    int32_t id = call->stream_id;

    nghttp2_session_set_stream_user_data(conn->h2, id, NULL);
    nghttp2_submit_rst_stream(conn->h2, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL);
    if (conn->state == MR_CONN_OPEN) {
        mr_flush_queue(conn->client->loop, &conn->flush);
    }
}

bool mr_client_h2_can_take(const struct mr_client_conn *conn)
{
    return !conn->is_draining && conn->fail_rc == 0 &&
           nghttp2_session_check_request_allowed(conn->h2);
}

/* ---- bytes in and out ---- */

/* Nothing more to say or to hear, on a connection that takes no new calls. */
static bool is_over(const struct mr_client_conn *conn)
{
    return TAILQ_EMPTY(&conn->calls) && !conn->is_writing &&
           (conn->is_draining ||
            (!nghttp2_session_want_read(conn->h2) && !nghttp2_session_want_write(conn->h2)));
}

/* nghttp2 has said GOAWAY for a fault of the peer's, and goes on with no stream. */
static bool is_given_up(const struct mr_client_conn *conn)
{
    return !TAILQ_EMPTY(&conn->calls) && !conn->is_writing &&
           !nghttp2_session_want_read(conn->h2) && !nghttp2_session_want_write(conn->h2);
}

static void after_session(struct mr_client_conn *conn)
{
    struct mr_client *c = conn->client;

    if (conn->state != MR_CONN_OPEN) {
        return;
    }
    if (is_over(conn)) {
        mr_client_conn_close(conn);
    } else if (is_given_up(conn)) {
        not_h2(conn, "it broke a rule of the protocol");
        return;
    }
    if (!c->is_closing) {
        mr_client_pump(c);
    }
}

void mr_client_h2_read(struct mr_client_conn *conn, mr_bytes data)
{
    if (!conn->is_heard && data.len >= 4 && data.ptr[3] != NGHTTP2_SETTINGS) {
        char text[128];
        not_h2(conn, mr_client_stranger(data, text, sizeof text));
        return;
    }
    conn->is_heard = true;
    conn->heard_ns = mr_loop_now_ns(conn->client->loop);
    ssize_t n = nghttp2_session_mem_recv(conn->h2, data.ptr, data.len);
    if (conn->state != MR_CONN_OPEN) {
        return;
    }
    if (n < 0) {
        not_h2(conn, nghttp2_strerror((int)n));
        return;
    }
    mr_flush_queue(conn->client->loop, &conn->flush);
    after_session(conn);
}

static void on_written(struct mr_client_write *w, int status)
{
    struct output *o = MR_CONTAINER_OF(w, struct output, write);
    struct mr_client_conn *conn = o->conn;
    struct mr_err err;

    mr_loop_resume(conn->client->loop);
    mr_buf_fini(&o->bytes);
    mr_free(o);
    conn->is_writing = false;
    if (conn->state != MR_CONN_OPEN) {
        return;
    }
    if (status < 0) {
        mr_err_set(&err, MR_E_UNAVAILABLE, MR_HERE, "%s: %s", conn->client->address,
                   uv_strerror(status));
        mr_client_conn_fail(conn, MR_E_UNAVAILABLE, &err);
        return;
    }
    mr_flush_queue(conn->client->loop, &conn->flush);
}

/* Frames up to WRITE_BYTES into o->bytes; negative when the session is broken. */
static ssize_t collect(struct mr_client_conn *conn, struct output *o)
{
    const uint8_t *frame;
    ssize_t n = 0;

    while (o->bytes.len < WRITE_BYTES && conn->state == MR_CONN_OPEN &&
           (n = nghttp2_session_mem_send(conn->h2, &frame)) > 0) {
        mr_buf_append(&o->bytes, frame, (size_t)n);
    }
    return o->bytes.failed ? NGHTTP2_ERR_NOMEM : n;
}

static void output_free(struct output *o)
{
    mr_buf_fini(&o->bytes);
    mr_free(o);
}

void mr_client_h2_flush(struct mr_flush *f)
{
    struct mr_client_conn *conn = MR_CONTAINER_OF(f, struct mr_client_conn, flush);

    if (conn->state != MR_CONN_OPEN || conn->is_writing) {
        return;
    }
    struct output *o = MR_NEW(struct output);
    o->conn = conn;
    mr_buf_init(&o->bytes, 0);
    ssize_t n = collect(conn, o);
    if (conn->state != MR_CONN_OPEN || n < 0 || o->bytes.len == 0) {
        output_free(o);
        if (conn->state == MR_CONN_OPEN && n < 0) {
            not_h2(conn, nghttp2_strerror((int)n));
        } else {
            after_session(conn);
        }
        return;
    }
    if (conn->ssl && !mr_client_tls_seal(conn, &o->bytes)) {
        output_free(o);
        mr_client_conn_fail_later(conn, MR_E_UNAVAILABLE, "TLS: cannot write");
        return;
    }
    uv_buf_t buf = uv_buf_init(o->bytes.ptr, (unsigned)o->bytes.len);
    o->write.pass_fd = -1;
    int rc = mr_client_conn_write(conn, &o->write, &buf, 1, on_written);
    conn->is_writing = rc == 0;
    if (rc == 0) {
        return;
    }
    output_free(o);
    if (rc < 0) {
        mr_client_conn_fail_later(conn, MR_E_UNAVAILABLE, uv_strerror(rc));
    } else {
        mr_flush_queue(conn->client->loop, &conn->flush); /* there may be more */
    }
}

/* ---- opening ---- */

static int new_session(struct mr_client_conn *conn)
{
    nghttp2_session_callbacks *cb = NULL;
    nghttp2_option *option = NULL;
    int rc = nghttp2_session_callbacks_new(&cb);

    if (rc == 0) {
        rc = nghttp2_option_new(&option);
    }
    if (rc != 0) {
        nghttp2_session_callbacks_del(cb);
        return rc;
    }
    nghttp2_option_set_no_auto_window_update(option, 1); /* on_data does it */
    nghttp2_option_set_max_send_header_block_length(option, HEAD_MAX);
    /* As the server does: gRPC leaves blanks around metadata to the receiver. */
    nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation(option, 1);
    nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
    rc = nghttp2_session_client_new2(&conn->h2, cb, conn, option);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(cb);
    return rc;
}

int mr_client_h2_open(struct mr_client_conn *conn, struct mr_err *err)
{
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, MR_CLIENT_HEAD_MAX},
    };
    int rc = new_session(conn);

    if (rc == 0) {
        rc = nghttp2_submit_settings(conn->h2, NGHTTP2_FLAG_NONE, settings,
                                     sizeof settings / sizeof *settings);
    }
    if (rc == 0) {
        rc = nghttp2_session_set_local_window_size(conn->h2, NGHTTP2_FLAG_NONE, 0,
                                                   CONNECTION_WINDOW);
    }
    if (rc != 0) {
        return MR_FAIL(err, MR_E_INTERNAL, "HTTP/2: %s", nghttp2_strerror(rc));
    }
    mr_flush_queue(conn->client->loop, &conn->flush);
    return MR_OK;
}
