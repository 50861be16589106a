/* gRPC: the pure parts by tables, calls over an nghttp2 client, streams fed in pieces. */
#include "h2_client.h"
#include "net/compress.h"
#include "net/frame/grpc_frame.h"
#include "pack.h"

/* ---- pure parts ----------------------------------------------------------------------------- */

static void test_timeout(void **state)
{
    static const struct {
        const char *text;
        int64_t ns; /* -1: refused */
    } rows[] = {
        {"1H", 3600 * MR_NS_PER_S},
        {"2M", 120 * MR_NS_PER_S},
        {"3S", 3 * MR_NS_PER_S},
        {"4m", 4 * MR_NS_PER_MS},
        {"5u", 5 * MR_NS_PER_US},
        {"6n", 6},
        {"0S", 0},
        {"99999999n", 99999999},
        {"99999999S", 99999999 * MR_NS_PER_S},
        {"99999999H", INT64_MAX},
        {"100000000n", -1},
        {"", -1},
        {"S", -1},
        {"1", -1},
        {"1s", -1},
        {"-1S", -1},
        {"+1S", -1},
        {"1.5S", -1},
        {" 1S", -1},
        {"1S ", -1},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        int64_t ns = -1;
        bool ok = mr_grpc_timeout_parse(mr_str_c(rows[i].text), &ns);
        if (ok != (rows[i].ns >= 0) || (ok && ns != rows[i].ns)) {
            fail_msg("'%s': %d %lld", rows[i].text, ok, (long long)ns);
        }
    }
}

static void test_percent(void **state)
{
    char out[64];
    mr_str in = MR_STR("a b%\n\xc3\xa9~\x7f");

    (void)state;
    size_t n = mr_grpc_percent_encode(in, out);
    assert_true(n <= MR_GRPC_ENCODED_MAX(in.len));
    assert_str(mr_str_n(out, n), "a b%25%0A%C3%A9~%7F");
    n = mr_grpc_percent_encode(MR_STR(" a b "), out);
    assert_str(mr_str_n(out, n), "%20a b%20");
    assert_int_equal(mr_grpc_percent_encode(MR_STR(" "), out), 3);
}

static const struct mr_piece beyond_2_gib[] = {{NULL, INT32_MAX, NULL}, {NULL, 1, NULL}};

static void test_message_beyond_2_gib(void **state)
{
    struct mr_grpc_message m = {.pieces = beyond_2_gib, .count = 2};
    struct mr_err err;

    (void)state;
    assert_int_equal(mr_grpc_pack(NULL, MR_GRPC_IDENTITY, NULL, &m, &err), MR_E_TOO_LARGE);
    assert_non_null(strstr(err.msg, "2147483648 bytes"));
}

static void test_encodings(void **state)
{
    enum mr_grpc_compression c;

    (void)state;
    assert_true(mr_grpc_encoding_parse(MR_STR("gzip"), &c) && c == MR_GRPC_GZIP);
    assert_true(mr_grpc_encoding_parse(MR_STR(""), &c) && c == MR_GRPC_IDENTITY);
    assert_false(mr_grpc_encoding_parse(MR_STR("snappy"), &c));
    assert_int_equal(mr_grpc_accept_parse(MR_STR("identity,deflate, gzip,zstd")), 7);
    assert_int_equal(mr_grpc_accept_parse((mr_str){NULL, 0}), 1);
    assert_int_equal(mr_grpc_accept_parse(MR_STR(",,deflate")), 5);
}

static void test_align_hint(void **state)
{
    uint8_t m[400] = {0};
    size_t n = 5;

    (void)state;
    /* field 1: "name"; field 3: varint; field 4: fixed64; field 6: fixed32; field 7: 200 bytes */
    memcpy(m + n, "\x0a\x04name", 6);
    n += 6;
    memcpy(m + n, "\x18\xff\x01", 3);
    n += 3;
    memcpy(m + n, "\x21\1\2\3\4\5\6\7\x08", 9);
    n += 9;
    memcpy(m + n, "\x35\1\2\3\4", 5);
    n += 5;
    memcpy(m + n, "\x3a\xc8\x01", 3);
    n += 3;
    assert_int_equal(mr_grpc_align_hint((mr_bytes){m, n + 200}, 7), n);
    /* All that is needed is the beginning. */
    assert_int_equal(mr_grpc_align_hint((mr_bytes){m, n}, 7), n);
    for (size_t cut = 0; cut < n; cut++) {
        assert_int_equal(mr_grpc_align_hint((mr_bytes){m, cut}, 7), -1);
    }
    assert_int_equal(mr_grpc_align_hint((mr_bytes){m, n + 200}, 9), -1);
    m[0] = 1; /* compressed */
    assert_int_equal(mr_grpc_align_hint((mr_bytes){m, n + 200}, 7), -1);
    /* Garbage ends the search. */
    m[0] = 0;
    memset(m + 5, 0xff, sizeof m - 5);
    assert_int_equal(mr_grpc_align_hint((mr_bytes){m, sizeof m}, 7), -1);
}

/* ---- unary calls ---------------------------------------------------------------------------- */

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

#define GRPC_TYPE "content-type", "application/grpc", "te", "trailers"

static struct h2_stream *grpc(struct h2_client *c, const char *const *headers, const char *frame,
                              size_t n)
{
    static const char *const plain[] = {GRPC_TYPE, NULL};

    return h2_request(c, "POST", "/p.S/M", headers ? headers : plain, frame, n);
}

static void expect_status(const struct h2_stream *s, const char *status, const char *message)
{
    char line[128];

    assert_int_equal(s->status, 200);
    snprintf(line, sizeof line, "grpc-status: %s\n", status);
    if (!strstr(s->headers, line)) {
        fail_msg("no %s in\n%s", line, s->headers);
    }
    if (message && !strstr(s->headers, message)) {
        fail_msg("no %s in\n%s", message, s->headers);
    }
    assert_non_null(strstr(s->headers, "content-type: application/grpc\n"));
    assert_null(strstr(s->headers, "content-length"));
}

static void test_unary(void **state)
{
    struct h2_client *c = h2_dial(*state);
    static const char *const timeout[] = {GRPC_TYPE, "grpc-timeout", "3S", NULL};
    static const char *const proto[] = {"content-type", "application/grpc+proto", NULL};

    struct h2_stream *a = grpc(c, NULL, "\0\0\0\0\5hello", 10);
    struct h2_stream *b = grpc(c, timeout, "\0\0\0\0\0", 5);
    struct h2_stream *d = grpc(c, proto, "\0\0\0\0\2hi", 7);
    h2_wait_closed(c, 3);
    expect_status(a, "0", "grpc-accept-encoding: identity,deflate,gzip\n");
    assert_int_equal(a->len, 10);
    assert_memory_equal(a->body, "\0\0\0\0\5hello", 10);
    expect_status(b, "0", NULL);
    assert_int_equal(b->len, 5);
    expect_status(d, "0", NULL);
    h2_hang_up(&c);
}

static void test_unary_errors(void **state)
{
    static const struct {
        const char *header;
        const char *value;
        const char *frame;
        size_t n;
        const char *status;
        const char *message;
    } rows[] = {
        {NULL, NULL, "", 0, "3", "grpc-message: the request holds no"},
        {NULL, NULL, "\0\0\0", 3, "3", NULL},
        {NULL, NULL, "\0\0\0\0\5hell", 9, "3", "cut short"},
        {NULL, NULL, "\0\0\0\0\5hello!", 11, "3", "more than one"},
        {NULL, NULL, "\2\0\0\0\5hello", 10, "3", "flag 2"},
        {NULL, NULL, "\0\0\x20\0\0hello", 10, "8",
         "larger than max (2097152 vs. 1048576, --grpc-max-message-size)"},
        {NULL, NULL, "\0\xff\xff\xff\xff", 5, "8", NULL},
        {NULL, NULL, "\1\0\0\0\5hello", 10, "13", NULL},
        {"grpc-encoding", "snappy", "\0\0\0\0\5hello", 10, "12", "grpc-accept-encoding: identity"},
        {"grpc-encoding", "gzip", "\1\0\0\0\5hello", 10, "3", "damaged"},
        {"grpc-timeout", "soon", "\0\0\0\0\5hello", 10, "13", "grpc-message: Bad grpc-timeout"},
    };
    struct h2_client *c = h2_dial(*state);

    for (size_t i = 0; i < COUNT(rows); i++) {
        const char *headers[] = {GRPC_TYPE, rows[i].header, rows[i].value, NULL};
        grpc(c, headers, rows[i].frame, rows[i].n);
    }
    h2_wait_closed(c, COUNT(rows));
    for (size_t i = 0; i < COUNT(rows); i++) {
        expect_status(&c->streams[i], rows[i].status, rows[i].message);
        assert_int_equal(c->streams[i].len, 0);
    }
    h2_hang_up(&c);
}

static void test_compressed(void **state)
{
    static const enum mr_coding codings[] = {MR_CODING_GZIP, MR_CODING_DEFLATE};
    static const char *const names[] = {"gzip", "deflate"};
    struct h2_client *c = h2_dial(*state);
    char text[5000];

    memset(text, 'c', sizeof text);
    for (size_t i = 0; i < 2; i++) {
        struct mr_piece piece = {.ptr = text, .len = sizeof text};
        const char *headers[] = {
            GRPC_TYPE, "grpc-encoding", names[i], "grpc-accept-encoding", "gzip, deflate", NULL};
        const char *deaf[] = {GRPC_TYPE, "grpc-encoding", names[i], NULL};
        struct mr_buf b;
        struct mr_block *block = NULL;
        size_t len;
        mr_buf_init(&b, 0);
        mr_buf_append(&b, "\1\0\0\0\0", 5);
        assert_true(pack_into(codings[i], 6, &piece, 1, &b));
        mr_grpc_prefix_write((uint8_t *)b.ptr, true, (uint32_t)b.len - 5);
        struct h2_stream *a = grpc(c, headers, b.ptr, b.len);
        struct h2_stream *d = grpc(c, deaf, b.ptr, b.len);
        h2_wait_closed(c, 2 * i + 2);
        char line[64];
        snprintf(line, sizeof line, "grpc-encoding: %s\n", names[i]);
        expect_status(a, "0", line);
        assert_int_equal(a->body[0], 1);
        assert_int_equal(mr_decompress(codings[i], (mr_bytes){a->body + 5, a->len - 5}, 10000,
                                       &block, &len, NULL),
                         MR_OK);
        assert_int_equal(len, sizeof text);
        mr_block_unref(&block);
        /* A peer that has not announced an encoding gets it uncompressed. */
        expect_status(d, "0", NULL);
        assert_int_equal(d->len, 5 + sizeof text);
        assert_int_equal(d->body[0], 0);
        mr_buf_fini(&b);
    }
    h2_hang_up(&c);
}

static void test_large(void **state)
{
    struct h2_client *c = h2_dial(*state);
    size_t n = 1 << 20;
    uint8_t *frame = malloc(n + 5);

    mr_grpc_prefix_write(frame, false, (uint32_t)n);
    fill_pattern((char *)frame + 5, n);
    for (int i = 0; i < 20; i++) {
        grpc(c, NULL, (char *)frame, n + 5);
    }
    h2_wait_closed(c, 20);
    for (int i = 0; i < 20; i++) {
        expect_status(&c->streams[i], "0", NULL);
        assert_int_equal(c->streams[i].len, n + 5);
        assert_memory_equal(c->streams[i].body, frame, n + 5);
    }
    free(frame);
    h2_hang_up(&c);
}

static void test_not_grpc(void **state)
{
    /* Other content types are requests like any other. */
    static const char *const json[] = {"content-type", "application/grpc+json", NULL};
    static const char *const web[] = {"content-type", "application/grpc-web", NULL};
    struct h2_client *c = h2_dial(*state);

    grpc(c, json, "x", 1);
    grpc(c, web, "x", 1);
    h2_wait_closed(c, 2);
    assert_string_equal((char *)c->streams[0].body, "POST /p.S/M?");
    assert_string_equal((char *)c->streams[1].body, "POST /p.S/M?");
    h2_hang_up(&c);
}

/* ---- streams -------------------------------------------------------------------------------- */

/* Echoes each message of a stream; "end" ends it at once with status 7, "long" with an answer that is too long. */
struct echo_stream {
    struct mr_grpc_call g;
};

static void echo_message(void *ctx, mr_bytes message, struct mr_block *block)
{
    struct echo_stream *st = ctx;
    struct mr_piece piece = {message.ptr, message.len, block ? mr_block_ref(block) : NULL};

    if (message.len == 3 && memcmp(message.ptr, "end", 3) == 0) {
        mr_grpc_finish(&st->g, 7, MR_STR("ended"));
    } else if (message.len == 4 && memcmp(message.ptr, "long", 4) == 0) {
        mr_grpc_reply(&st->g, beyond_2_gib, 2, MR_GRPC_GZIP);
    } else {
        mr_grpc_send(&st->g, &piece, 1, MR_GRPC_GZIP);
        return;
    }
    mr_block_unref(&piece.block);
}

static void stream_on_head(void *ctx, struct mr_call *call)
{
    struct echo_stream *st = MR_ARENA_NEW(call->arena, struct echo_stream);

    (void)ctx;
    call->user = st;
    call->streaming = true;
    mr_grpc_begin(&st->g, call, 100000);
}

static void stream_on_data(void *ctx, struct mr_call *call, mr_bytes data, bool last)
{
    struct echo_stream *st = call->user;
    struct mr_err err;

    (void)ctx;
    int rc = mr_grpc_feed(&st->g, data, echo_message, st, &err);
    if (rc == MR_E_CLOSED) {
        return;
    }
    if (rc < 0) {
        mr_grpc_finish(&st->g, mr_status_grpc(rc), mr_str_c(err.msg));
    } else if (last && mr_grpc_feed_incomplete(&st->g)) {
        mr_grpc_finish(&st->g, 3, MR_STR("cut short"));
    } else if (last) {
        mr_grpc_finish(&st->g, 0, MR_STR(""));
    }
}

static void stream_on_cancel(void *ctx, struct mr_call *call)
{
    (void)ctx;
    mr_call_abort(call, 8);
}

static int stream_setup(void **state)
{
    struct server *s = calloc(1, sizeof *s);
    struct mr_http_handler handler = {
        .on_head = stream_on_head, .on_data = stream_on_data, .on_cancel = stream_on_cancel};

    mr_http_options_init(&s->options);
    s->loop_count = 1;
    assert_int_equal(mr_loop_new(&s->loops[0], NULL, NULL), MR_OK);
    assert_int_equal(mr_http_server_new(&s->http, &s->options, &handler, NULL), MR_OK);
    assert_int_equal(mr_http_listen(s->http, s->loops, 1, "127.0.0.1:0", 1, false, &s->port, NULL),
                     MR_OK);
    pthread_create(&s->threads[0], NULL, loop_thread, s->loops[0]);
    *state = s;
    return 0;
}

static void test_stream(void **state)
{
    struct h2_client *c = h2_dial(*state);
    char *frames = malloc(100000);
    size_t n = 0;
    static const char *const gzip[] = {GRPC_TYPE, "grpc-accept-encoding", "gzip", NULL};

    for (uint32_t i = 0; i < 100; i++) {
        mr_grpc_prefix_write((uint8_t *)frames + n, false, i * 10);
        memset(frames + n + 5, 'm', i * 10);
        n += 5 + i * 10;
    }
    struct h2_stream *all = grpc(c, NULL, frames, n);
    struct h2_stream *packed = grpc(c, gzip, frames, n);
    h2_wait_closed(c, 2);
    expect_status(all, "0", NULL);
    assert_int_equal(all->len, n);
    assert_memory_equal(all->body, frames, n);
    expect_status(packed, "0", "grpc-encoding: gzip\n");
    assert_true(packed->len < n / 3);
    /* In pieces of one byte. */
    struct h2_stream *slow = grpc(c, NULL, frames, 1);
    slow->send_open = true;
    for (size_t i = 1; i < 600; i++) {
        h2_flush(c);
        slow->send = (uint8_t *)frames + i;
        slow->send_left = 1;
        nghttp2_session_resume_data(c->session, slow->id);
        if (i % 100 == 0) {
            h2_turn(c, 2);
        }
    }
    h2_flush(c);
    slow->send = (uint8_t *)frames + 600;
    slow->send_left = n - 600;
    slow->send_open = false;
    nghttp2_session_resume_data(c->session, slow->id);
    h2_wait_closed(c, 3);
    expect_status(slow, "0", NULL);
    assert_int_equal(slow->len, n);
    assert_memory_equal(slow->body, frames, n);
    free(frames);
    h2_hang_up(&c);
}

static void test_stream_errors(void **state)
{
    static const struct {
        const char *frame;
        size_t n;
        const char *status;
    } rows[] = {
        {"\0\0\0\0\5hell", 9, "3"},
        {"\0\0\0", 3, "3"},
        {"\0\0\0\0\3end\0\0\0\0\2no", 15, "7"},
        {"\0\0\0\0\4long", 9, "8"},
        {"\0\0\0\0\1a\7", 7, "3"},
        {"\0\0\0\0\1a\7\0\0\0\0", 11, "3"},
        {"\0\0\2\0\0x", 6, "8"},
        {"\1\0\0\0\1a", 6, "13"},
        {"", 0, "0"},
    };
    struct h2_client *c = h2_dial(*state);

    for (size_t i = 0; i < COUNT(rows); i++) {
        grpc(c, NULL, rows[i].frame, rows[i].n);
    }
    h2_wait_closed(c, COUNT(rows));
    for (size_t i = 0; i < COUNT(rows); i++) {
        char line[32];
        snprintf(line, sizeof line, "grpc-status: %s\n", rows[i].status);
        if (!strstr(c->streams[i].headers, line)) {
            fail_msg("row %zu: %s", i, c->streams[i].headers);
        }
    }
    h2_hang_up(&c);
}

static void test_stream_cancel(void **state)
{
    for (int i = 0; i < 10; i++) {
        struct h2_client *c = h2_dial(*state);
        for (int k = 0; k < 10; k++) {
            struct h2_stream *s = grpc(c, NULL, "\0\0\0\0\5hello\0\0\1\0\0hel", 18);
            s->send_open = true;
        }
        h2_turn(c, 20);
        h2_hang_up(&c);
    }
}

static void test_wrong_type(void **state)
{
    static const char *const json[] = {"content-type", "application/json", NULL};
    struct h2_client *c = h2_dial(*state);

    struct h2_stream *s = grpc(c, json, "{}", 2);
    h2_wait_closed(c, 1);
    assert_int_equal(s->status, 415);
    h2_hang_up(&c);
}

#define TEST(name)   cmocka_unit_test_setup_teardown(name, setup, teardown)
#define STREAM(name) cmocka_unit_test_setup_teardown(name, stream_setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_percent),
        cmocka_unit_test(test_message_beyond_2_gib),
        cmocka_unit_test(test_encodings),
        cmocka_unit_test(test_align_hint),
        TEST(test_unary),
        TEST(test_unary_errors),
        TEST(test_compressed),
        TEST(test_large),
        TEST(test_not_grpc),
        STREAM(test_stream),
        STREAM(test_stream_errors),
        STREAM(test_stream_cancel),
        STREAM(test_wrong_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
