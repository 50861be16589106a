/* HTTP/2 against a real server, by an nghttp2 client and by raw frames: many streams, flow control
 * both ways, resets and floods, the end of connections. */
#include "h2_client.h"

static int setup(void **state)
{
    *state = malloc(sizeof(struct server));
    server_start(*state);
    return 0;
}

static int teardown(void **state)
{
    server_stop(*state);
    free(*state);
    return 0;
}

static void test_requests(void **state)
{
    struct h2_client *c = h2_dial(*state);

    for (int i = 0; i < 100; i++) {
        h2_request(c, "GET", "/a?b=1", NULL, NULL, 0);
        h2_request(c, "POST", "/echo", NULL, "hello", 5);
    }
    h2_wait_closed(c, 200);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(c->streams[i].status, 200);
        assert_string_equal((char *)c->streams[i].body, i % 2 ? "hello" : "GET /a?b=1");
        assert_int_equal(c->streams[i].error, 0);
    }
    assert_non_null(strstr(c->streams[0].headers, "content-type: text/plain\n"));
    assert_non_null(strstr(c->streams[0].headers, "content-length: 10\n"));
    assert_non_null(strstr(c->streams[0].headers, "date: "));
    h2_hang_up(&c);
}

static void test_preface_in_bytes(void **state)
{
    struct client c = dial(*state);
    uint8_t frames[64];
    uint8_t payload[64];
    size_t n = h2_frame(frames, 4, 0, 0, NULL, 0);
    size_t len;

    n += h2_frame(frames + n, 6, 0, 0, "pingpong", 8);
    static const char preface[] = H2_PREFACE;
    for (size_t i = 0; i < sizeof preface - 1; i++) {
        assert_true(send_all(&c, &preface[i], 1));
        usleep(200);
    }
    for (size_t i = 0; i < n; i++) {
        assert_true(send_all(&c, frames + i, 1));
        usleep(200);
    }
    assert_true(h2_raw_wait(&c, 6, payload, sizeof payload, &len));
    assert_memory_equal(payload, "pingpong", 8);
    hang_up(&c);
}

static void test_methods(void **state)
{
    struct h2_client *c = h2_dial(*state);

    struct h2_stream *head = h2_request(c, "HEAD", "/abc", NULL, NULL, 0);
    struct h2_stream *early = h2_request(c, "POST", "/early", NULL, "body", 4);
    struct h2_stream *abort = h2_request(c, "GET", "/abort", NULL, NULL, 0);
    const char *parts[] = {"x-parts", "3", NULL};
    struct h2_stream *trailer = h2_request(c, "GET", "/bytes", parts, NULL, 0);
    h2_wait_closed(c, 4);
    assert_int_equal(head->status, 200);
    assert_non_null(strstr(head->headers, "content-length: 10\n"));
    assert_int_equal(head->len, 0);
    assert_int_equal(early->status, 403);
    assert_int_equal(abort->error, 11);
    assert_string_equal((char *)trailer->body, "abcdefghij");
    assert_non_null(strstr(trailer->headers, "x-trailer: end\n"));
    h2_hang_up(&c);
}

static void big_bodies(struct server *server, bool large_frames)
{
    static const size_t sizes[] = {1, 4000, 4096, 5000, 70000, 1 << 20, 9 * 1000 * 1000};
    struct h2_client *c = h2_dial(server);
    uint8_t *body = malloc(sizes[COUNT(sizes) - 1]);

    fill_pattern((char *)body, sizes[COUNT(sizes) - 1]);
    c->large_frames = large_frames;
    h2_turn(c, 1000);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        char length[24];
        snprintf(length, sizeof length, "%zu", sizes[i]);
        const char *extra[] = {"content-length", length, NULL};
        h2_request(c, "POST", "/echo", NULL, body, sizes[i]);
        h2_request(c, "POST", "/echo", extra, body, sizes[i]);
    }
    h2_wait_closed(c, COUNT(sizes) * 2);
    for (size_t i = 0; i < COUNT(sizes) * 2; i++) {
        assert_int_equal(c->streams[i].len, sizes[i / 2]);
        assert_memory_equal(c->streams[i].body, body, sizes[i / 2]);
    }
    free(body);
    h2_hang_up(&c);
}

static void test_big_bodies(void **state)
{
    big_bodies(*state, false);
    big_bodies(*state, true);
}

static void test_large_copies(void **state)
{
    static const char *const sizes[] = {"16384", "16385", "100000", "12000000"};
    struct h2_client *c = h2_dial(*state);

    for (size_t i = 0; i < COUNT(sizes); i++) {
        const char *extra[] = {"x-bytes", sizes[i], "x-parts", "-1", NULL};
        h2_request(c, "GET", "/bytes", extra, NULL, 0);
    }
    h2_wait_closed(c, COUNT(sizes));
    for (size_t i = 0; i < COUNT(sizes); i++) {
        assert_int_equal(c->streams[i].len, atoi(sizes[i]));
        for (size_t at = 0; at < c->streams[i].len; at++) {
            if (c->streams[i].body[at] != 'a' + at % 26) {
                fail_msg("%s bytes: byte %zu", sizes[i], at);
            }
        }
    }
    h2_hang_up(&c);
}

/* A piece of an answer that finds no memory ends its stream, though the handler goes on. */
static void test_no_memory(void **state)
{
    struct h2_client *c = h2_dial(*state);
    const char *bytes[] = {"x-bytes", "12000000", "x-parts", "1", "x-open", "1", NULL};

    mr_block_set_budget(20 << 20, 0);
    struct h2_stream *s = h2_request(c, "GET", "/bytes", bytes, NULL, 0);
    h2_wait_closed(c, 1);
    mr_block_set_budget(0, 1 << 28);
    assert_int_equal(s->error, NGHTTP2_ENHANCE_YOUR_CALM);
    h2_hang_up(&c);
}

static void test_alignment(void **state)
{
    static const size_t sizes[] = {200, 3000, 6000, 100000};
    struct h2_client *c = h2_dial(*state);
    uint8_t *body = calloc(1, 100000);

    for (size_t i = 0; i < COUNT(sizes); i++) {
        const char *extra[] = {"x-align", "37", NULL};
        h2_request(c, "POST", "/report", extra, body, sizes[i]);
    }
    h2_wait_closed(c, COUNT(sizes));
    for (size_t i = 0; i < COUNT(sizes); i++) {
        assert_non_null(strstr((char *)c->streams[i].body, "aligned=1"));
    }
    free(body);
    h2_hang_up(&c);
}

static void test_async_and_cancel(void **state)
{
    struct server *s = *state;
    struct h2_client *c = h2_dial(s);

    for (int i = 0; i < 16; i++) {
        h2_request(c, "POST", "/later", NULL, "x", 1);
    }
    h2_flush(c);
    assert_true(wait_until(&s->pending_count, 16));
    for (int i = 0; i < 8; i++) {
        nghttp2_submit_rst_stream(c->session, 0, c->streams[i].id, NGHTTP2_CANCEL);
    }
    h2_flush(c);
    assert_true(wait_until(&s->cancels, 8));
    release_later(s);
    h2_wait_closed(c, 16);
    for (int i = 8; i < 16; i++) {
        assert_string_equal((char *)c->streams[i].body, "late");
    }
    /* The whole connection, with 16 requests in flight, many times. */
    h2_hang_up(&c);
    for (int round = 0; round < 20; round++) {
        int before = atomic_load(&s->cancels);
        c = h2_dial(s);
        for (int i = 0; i < 16; i++) {
            h2_request(c, "POST", "/later", NULL, "x", 1);
        }
        h2_flush(c);
        assert_true(wait_until(&s->pending_count, 16));
        h2_hang_up(&c);
        assert_true(wait_until(&s->cancels, before + 16));
        release_later(s);
    }
}

static void test_half_close(void **state)
{
    struct server *s = *state;
    struct h2_client *c = h2_dial(s);

    h2_request(c, "POST", "/later", NULL, "x", 1);
    while (nghttp2_session_get_remote_settings(c->session,
                                               NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS) != 256) {
        h2_turn(c, 1000);
    }
    h2_flush(c);
    assert_true(wait_until(&s->pending_count, 1));
    shutdown(c->fd, SHUT_WR);
    assert_true(wait_until(&s->cancels, 1));
    release_later(s);
    h2_wait_closed(c, 1);
    assert_string_equal((char *)c->streams[0].body, "late");
    while (!c->ended && h2_turn(c, 300000)) {
    }
    assert_true(c->ended);
    h2_hang_up(&c);
}

static void test_streaming_in(void **state)
{
    struct h2_client *c = h2_dial(*state);
    size_t n = 3 * 1000 * 1000;
    uint8_t *body = malloc(n);
    char expected[128];

    fill_pattern((char *)body, n);
    snprintf(expected, sizeof expected, "bytes=%zu sum=%zx", n, sum_on(0, body, n));
    h2_request(c, "POST", "/streamin", NULL, body, n);
    h2_request(c, "POST", "/pause", NULL, body, n);
    h2_request(c, "POST", "/pause", NULL, body, n);
    h2_request(c, "POST", "/streamin", NULL, NULL, 0);
    h2_wait_closed(c, 4);
    for (int i = 0; i < 3; i++) {
        assert_string_equal((char *)c->streams[i].body, expected);
    }
    assert_string_equal((char *)c->streams[3].body, "bytes=0 sum=0");
    /* Reset in the middle of a body, also while paused. */
    struct h2_stream *a = h2_request(c, "POST", "/streamin", NULL, body, 1000);
    struct h2_stream *b = h2_request(c, "POST", "/pause", NULL, body, 1000);
    a->send_open = b->send_open = true;
    h2_turn(c, 100);
    nghttp2_submit_rst_stream(c->session, 0, a->id, NGHTTP2_CANCEL);
    nghttp2_submit_rst_stream(c->session, 0, b->id, NGHTTP2_CANCEL);
    h2_turn(c, 100);
    assert_true(wait_until(&((struct server *)*state)->cancels, 2));
    free(body);
    h2_hang_up(&c);
}

static void test_limits(void **state)
{
    struct server *s = *state;
    const struct mr_loop_stats *stats = mr_loop_stats(s->loops[0]);
    struct h2_client *c = h2_dial(s);
    char *long_value = malloc(70001);
    uint8_t body[2000] = {0};

    memset(long_value, 'v', 70000);
    long_value[40000] = '\0';
    const char *much[] = {"x-a", long_value, "x-b", long_value, NULL};
    const char *grpc[] = {"content-type", "application/grpc", "x-a", long_value,
                          "x-b",          long_value,         NULL};
    const char *limit[] = {"x-limit", "1000", NULL};
    const char *declared[] = {"x-limit", "1000", "content-length", "2000", NULL};
    struct h2_stream *head = h2_request(c, "GET", "/x", much, NULL, 0);
    struct h2_stream *large = h2_request(c, "POST", "/echo", limit, body, sizeof body);
    struct h2_stream *claim = h2_request(c, "POST", "/echo", declared, body, sizeof body);
    struct h2_stream *fits = h2_request(c, "POST", "/echo", limit, body, 1000);
    struct h2_stream *call = h2_request(c, "POST", "/a.B/C", grpc, "", 0);
    h2_wait_closed(c, 5);
    assert_int_equal(head->status, 431);
    assert_non_null(strstr(call->headers, "grpc-status: 8\n"));
    assert_int_equal(mr_count_get(&stats->grpc_answers[MR_GRPC_RESOURCE_EXHAUSTED]), 1);
    assert_int_equal(mr_count_get(&stats->http_answers[200 - MR_HTTP_STATUS_FIRST]), 1);
    assert_int_equal(large->status, 413);
    assert_int_equal(claim->status, 413);
    assert_int_equal(fits->status, 200);
    assert_int_equal(atomic_load(&s->refusals), 2);
    free(long_value);
    h2_hang_up(&c);
}

static void test_continue(void **state)
{
    struct h2_client *c = h2_dial(*state);
    const char *expect[] = {"expect", "100-Continue", NULL};
    const char *other[] = {"expect", "200-ok", NULL};
    struct h2_stream *waits = h2_request(c, "POST", "/echo", expect, "", 0);
    struct h2_stream *early = h2_request(c, "POST", "/early", expect, "x", 1);
    struct h2_stream *none = h2_request(c, "GET", "/none", expect, NULL, 0);
    struct h2_stream *unknown = h2_request(c, "POST", "/echo", other, "x", 1);

    waits->send_open = true;
    h2_wait_closed(c, 3);
    assert_int_equal(waits->status, 100);
    waits->send = (const uint8_t *)"hello";
    waits->send_left = 5;
    waits->send_open = false;
    nghttp2_session_resume_data(c->session, waits->id);
    h2_wait_closed(c, 4);
    assert_int_equal(waits->status, 200);
    assert_int_equal(waits->interim, 1);
    assert_string_equal((char *)waits->body, "hello");
    assert_int_equal(early->status, 403);
    assert_int_equal(none->status, 200);
    assert_int_equal(early->interim + none->interim, 0);
    assert_int_equal(unknown->status, 417);
    h2_hang_up(&c);
}

static void test_answer_before_body(void **state)
{
    /* Answered early with the request still open: the server asks to stop sending. */
    struct h2_client *c = h2_dial(*state);
    struct h2_stream *s = h2_request(c, "POST", "/early", NULL, "x", 1);

    s->send_open = true;
    h2_wait_closed(c, 1);
    assert_int_equal(s->status, 403);
    assert_int_equal(s->error, NGHTTP2_NO_ERROR);
    h2_hang_up(&c);
}

static void test_slow_reader(void **state)
{
    /* Windows that never open: work stops at the backlog limit; others are served. */
    struct server *s = *state;
    struct h2_client *slow = h2_dial_window(s, 1000);
    const char *bytes[] = {"x-bytes", "1000000", NULL};

    slow->hold_windows = true;
    for (int i = 0; i < 100; i++) {
        h2_request(slow, "GET", "/bytes", bytes, NULL, 0);
    }
    while (h2_turn(slow, 200)) {
    }
    assert_true(atomic_load(&s->bodies) < 10);
    struct h2_client *other = h2_dial(s);
    h2_request(other, "GET", "/o", NULL, NULL, 0);
    h2_wait_closed(other, 1);
    h2_hang_up(&other);
    /* It gets everything once it reads. */
    slow->hold_windows = false;
    for (int i = 0; i < 100; i++) {
        nghttp2_session_set_local_window_size(slow->session, 0, slow->streams[i].id, 1 << 20);
    }
    nghttp2_submit_window_update(slow->session, 0, 0, 1 << 20);
    h2_wait_closed(slow, 100);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(slow->streams[i].len, 1000000);
    }
    h2_hang_up(&slow);
}

/* ---- raw frames ----------------------------------------------------------------------------- */

/* GET /later with the static table and literals: ":method GET", ":scheme http", ":path",
 * ":authority". */
static const uint8_t head_later[] = "\x82\x86\x04\x06/later\x01\x01x";
static const uint8_t head_get[] = "\x82\x86\x84\x01\x01x";

static void test_rapid_reset(void **state)
{
    struct server *s = *state;
    struct client c = dial(s);
    uint8_t frames[128];

    h2_raw_hello(&c);
    uint32_t id = 1;
    for (int i = 0; i < 5000; i++, id += 2) {
        size_t n = h2_frame(frames, 1, 5, id, head_later, sizeof head_later - 1);
        n += h2_frame(frames + n, 3, 0, id, "\0\0\0\x08", 4);
        if (!send_all(&c, frames, n)) {
            break;
        }
    }
    h2_raw_expect_goaway(&c, NGHTTP2_ENHANCE_YOUR_CALM);
    hang_up(&c);
    /* All that reached the handler was cancelled, and no more than one set of streams ran beside.
     */
    int started = atomic_load(&s->pending_count);
    assert_true(started <= 2 * 256);
    assert_true(wait_until(&s->cancels, started));
    release_later(s);
}

static void test_floods(void **state)
{
    static const struct {
        uint8_t type;
        uint32_t id;
        const char *payload;
        size_t len;
    } rows[] = {
        {6, 0, "12345678", 8},       /* PING */
        {4, 0, "\0\3\0\0\0\x64", 6}, /* SETTINGS */
        {2, 3, "\0\0\0\0\0", 5},     /* PRIORITY */
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        struct client c = dial(*state);
        uint8_t frame[64];
        struct timeval tv = {.tv_usec = 1};
        bool ended = false;
        h2_raw_hello(&c);
        for (int k = 0; k < 40000 && !ended; k++) {
            size_t n = h2_frame(frame, rows[i].type, 0, rows[i].id, rows[i].payload, rows[i].len);
            ended = !send_all(&c, frame, n);
            if (k % 100 == 0) {
                setsockopt(c.fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
                hear(&c);
                c.len = 0;
            }
        }
        /* The server ended it, one way or the other. */
        tv.tv_sec = PATIENCE_NS / MR_NS_PER_S;
        setsockopt(c.fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
        errno = 0;
        while (hear(&c)) {
            c.len = 0;
            errno = 0;
        }
        if (!ended && errno == EAGAIN) {
            fail_msg("row %zu goes on", i);
        }
        hang_up(&c);
    }
}

#define PINGS ((size_t)850) /* nghttp2 takes 1000 of which none is answered yet */

static void send_pings(struct client *c, uint8_t flags, int rounds)
{
    static uint8_t frames[PINGS * 17];
    size_t n = 0;
    uint8_t payload[8];
    size_t len;

    for (size_t i = 0; i < PINGS; i++) {
        n += h2_frame(frames + n, 6, flags, 0, "12345678", 8);
    }
    for (int round = 0; round < rounds; round++) {
        assert_true(send_all(c, frames, n));
        for (size_t i = 0; i < PINGS && !flags; i++) {
            assert_true(h2_raw_wait(c, 6, payload, sizeof payload, &len));
        }
    }
}

/* Answers to the server's pings, and pings of a client that measures while it receives. */
static void test_useful_pings(void **state)
{
    struct client c = dial(*state);
    uint8_t frames[64];
    uint8_t data[16];
    size_t len = 0;

    assert_true(say(&c, H2_PREFACE));
    size_t n = h2_frame(frames, 4, 0, 0, "\0\4\0\0\0\4", 6); /* a window of 4 bytes */
    n += h2_frame(frames + n, 1, 5, 1, head_get, sizeof head_get - 1);
    assert_true(send_all(&c, frames, n));
    send_pings(&c, 1, 15);
    n = h2_frame(frames, 8, 0, 1, "\0\0\0\1", 4);
    for (int i = 0; i < 2; i++) {
        assert_true(h2_raw_wait(&c, 0, data, sizeof data, &len));
        assert_int_equal(len, i == 0 ? 4 : 1);
        send_pings(&c, 0, 7);
        assert_true(send_all(&c, frames, n));
    }
    assert_true(h2_raw_wait(&c, 0, data, sizeof data, &len));
    hang_up(&c);
}

static void test_bad_frames(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        uint32_t goaway;
    } rows[] = {
#define ROW(bytes, error) {bytes, sizeof(bytes) - 1, error}
        ROW("\0\0\1\0\0\0\0\0\0x", NGHTTP2_PROTOCOL_ERROR),                   /* DATA on stream 0 */
        ROW("\0\0\0\1\5\0\0\0\2", NGHTTP2_PROTOCOL_ERROR),                    /* even stream */
        ROW("\0\0\7\6\0\0\0\0\0pingpin", NGHTTP2_FRAME_SIZE_ERROR),           /* short PING */
        ROW("\xff\xff\xff\0\0\0\0\0\1", NGHTTP2_FRAME_SIZE_ERROR),            /* far too long */
        ROW("\0\0\5\4\0\0\0\0\0\0\0\0\0\0", NGHTTP2_FRAME_SIZE_ERROR),        /* torn SETTINGS */
        ROW("\0\0\4\1\5\0\0\0\1\xff\xff\xff\xff", NGHTTP2_COMPRESSION_ERROR), /* bad HPACK */
        ROW("\0\0\4\x08\0\0\0\0\0\0\0\0\0", NGHTTP2_PROTOCOL_ERROR), /* WINDOW_UPDATE of 0 */
#undef ROW
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        struct client c = dial(*state);
        h2_raw_hello(&c);
        assert_true(send_all(&c, rows[i].bytes, rows[i].n));
        h2_raw_expect_goaway(&c, rows[i].goaway);
        hang_up(&c);
    }
}

static void test_bad_heads(void **state)
{
    /* Malformed requests are stream errors: the connection lives. */
    static const char *const rows[][2] = {
        {"connection", "close"}, {"transfer-encoding", "chunked"},
        {"te", "gzip"},          {"X-Upper", "v"},
        {":late", "v"},          {"content-length", "abc"},
        {"bad name", "v"},
    };
    struct client c = dial(*state);
    uint32_t id = 1;

    h2_raw_hello(&c);
    for (size_t i = 0; i < COUNT(rows); i++, id += 2) {
        uint8_t head[128];
        uint8_t frame[256];
        uint8_t payload[16];
        size_t len = 0;
        size_t n = sizeof head_get - 1;
        size_t name = strlen(rows[i][0]);
        size_t value = strlen(rows[i][1]);
        memcpy(head, head_get, n);
        head[n++] = 0;
        head[n++] = (uint8_t)name;
        memcpy(head + n, rows[i][0], name);
        n += name;
        head[n++] = (uint8_t)value;
        memcpy(head + n, rows[i][1], value);
        n += value;
        assert_true(send_all(&c, frame, h2_frame(frame, 1, 5, id, head, n)));
        assert_true(h2_raw_wait(&c, 3, payload, sizeof payload, &len));
        assert_int_equal(payload[3], NGHTTP2_PROTOCOL_ERROR);
    }
    /* content-length that is not what comes */
    uint8_t frames[256];
    uint8_t payload[16];
    size_t len = 0;
    static const uint8_t post[] = "\x83\x86\x84\x01\x01x\x0f\x0d\x01"
                                  "5";
    size_t n = h2_frame(frames, 1, 4, id, post, sizeof post - 1);
    n += h2_frame(frames + n, 0, 1, id, "abc", 3);
    assert_true(send_all(&c, frames, n));
    assert_true(h2_raw_wait(&c, 3, payload, sizeof payload, &len));
    assert_int_equal(atomic_load(&((struct server *)*state)->bodies), 0);
    n = h2_frame(frames, 6, 0, 0, "12345678", 8);
    assert_true(send_all(&c, frames, n));
    assert_true(h2_raw_wait(&c, 6, payload, sizeof payload, &len));
    hang_up(&c);
}

static void test_stream_limit(void **state)
{
    struct server *s = *state;
    struct client c = dial(s);
    uint8_t frame[64];
    uint8_t payload[16];
    size_t len = 0;

    h2_raw_hello(&c);
    for (uint32_t i = 0; i < 257; i++) {
        assert_true(send_all(&c, frame,
                             h2_frame(frame, 1, 5, i * 2 + 1, head_later, sizeof head_later - 1)));
    }
    assert_true(h2_raw_wait(&c, 3, payload, sizeof payload, &len));
    assert_int_equal(payload[3], NGHTTP2_REFUSED_STREAM);
    assert_true(wait_until(&s->pending_count, 256));
    assert_int_equal(atomic_load(&s->pending_count), 256);
    hang_up(&c);
    assert_true(wait_until(&s->cancels, 256));
    release_later(s);
}

/* Another server sends the requests of many clients over one connection: limits of a client are not for it. */
static void test_relay(void **state)
{
    struct mr_http_options o;
    struct server s;

    (void)state;
    mr_http_options_init(&o);
    o.relay_tag = 1;
    o.h2_max_streams = o.h2_max_resets = 4;
    server_start_with(&s, &o, 1, "127.0.0.1:0");
    struct h2_client *c = h2_dial(&s);
    h2_request(c, "GET", "/a", NULL, NULL, 0);
    h2_wait_closed(c, 1);
    assert_true(nghttp2_session_get_remote_settings(
                    c->session, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS) > 1000);
    for (int i = 0; i < 16; i++) {
        h2_request(c, "POST", "/later", NULL, "x", 1);
    }
    h2_flush(c);
    assert_true(wait_until(&s.pending_count, 16));
    for (int i = 1; i <= 16; i++) {
        nghttp2_submit_rst_stream(c->session, 0, c->streams[i].id, NGHTTP2_CANCEL);
    }
    h2_request(c, "GET", "/b", NULL, NULL, 0);
    h2_wait_closed(c, 18);
    assert_int_equal(c->streams[17].status, 200);
    assert_int_equal(atomic_load(&s.cancels), 16);
    release_later(&s);
    h2_hang_up(&c);
    server_stop(&s);
}

static void test_gone_in_answer(void **state)
{
    struct server *s = *state;
    const char *bytes[] = {"x-bytes", "8000000", NULL};

    for (int i = 0; i < 20; i++) {
        struct h2_client *c = h2_dial(s);
        h2_request(c, "GET", "/bytes", bytes, NULL, 0);
        h2_request(c, "GET", "/bytes", bytes, NULL, 0);
        for (int k = 0; k <= i; k++) {
            h2_turn(c, 1000);
        }
        h2_hang_up(&c);
    }
    assert_true(wait_connections(s, 0));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_requests),     TEST(test_preface_in_bytes), TEST(test_methods),
        TEST(test_big_bodies),   TEST(test_large_copies),     TEST(test_no_memory),
        TEST(test_alignment),    TEST(test_async_and_cancel), TEST(test_half_close),
        TEST(test_streaming_in), TEST(test_limits),           TEST(test_answer_before_body),
        TEST(test_slow_reader),  TEST(test_rapid_reset),      TEST(test_floods),
        TEST(test_useful_pings), TEST(test_bad_frames),       TEST(test_bad_heads),
        TEST(test_stream_limit), TEST(test_gone_in_answer),   cmocka_unit_test(test_relay),
        TEST(test_continue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
