/* The HTTP/2 client against a server that sends frames of the test's choice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <nghttp2/nghttp2.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/client.h"

#define PATIENCE_NS (300 * MR_NS_PER_S)
#define COUNT(a)    (sizeof(a) / sizeof *(a))
#define PREFACE     24
#define HEAD        9

/* ---- the server ---- */

struct frame {
    uint8_t type;
    uint8_t flags;
    bool is_of_connection; /* stream 0; otherwise that of the request */
    const char *bytes;
    uint8_t len;
};

/* To one request. Its frames end with the first one without bytes. */
struct answer {
    struct frame frames[5];
    bool close; /* the connection, afterwards */
};

struct server {
    int listener;
    char address[64];
    const struct answer *answers;
    size_t count;
    _Atomic size_t asked; /* requests, over all connections */
    pthread_t thread;
};

#define STATUS_200 "\x88" /* the static table's (RFC 7541 appendix A) */
#define SETTINGS                                                                                   \
    {                                                                                              \
        NGHTTP2_SETTINGS, 0, true, "", 0                                                           \
    }
#define HEADERS(flags)                                                                             \
    {                                                                                              \
        NGHTTP2_HEADERS, (flags) | NGHTTP2_FLAG_END_HEADERS, false, STATUS_200, 1                  \
    }
#define DATA(flags, text)                                                                          \
    {                                                                                              \
        NGHTTP2_DATA, (flags), false, (text), sizeof(text) - 1                                     \
    }
#define RESET(code)                                                                                \
    {                                                                                              \
        NGHTTP2_RST_STREAM, 0, false, "\0\0\0" code, 4                                             \
    }
/* No stream was begun. */
#define GOAWAY                                                                                     \
    {                                                                                              \
        NGHTTP2_GOAWAY, 0, true, "\0\0\0\0\0\0\0\0", 8                                             \
    }
#define OK_ANSWER                                                                                  \
    {                                                                                              \
        SETTINGS, HEADERS(0), DATA(NGHTTP2_FLAG_END_STREAM, "ok")                                  \
    }

static bool read_all(int fd, uint8_t *out, size_t len)
{
    while (len > 0) {
        ssize_t n = recv(fd, out, len, 0);
        if (n <= 0) {
            return false;
        }
        out += n;
        len -= (size_t)n;
    }
    return true;
}

/* The frames up to one that ends a request, whose stream is written to `stream`. */
static bool read_request(int fd, uint8_t stream[4])
{
    uint8_t head[HEAD], payload[16384];

    do {
        if (!read_all(fd, head, HEAD)) {
            return false;
        }
        const size_t len = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
        if (len > sizeof payload || !read_all(fd, payload, len)) {
            return false;
        }
    } while (head[3] > NGHTTP2_HEADERS || !(head[4] & NGHTTP2_FLAG_END_STREAM));
    memcpy(stream, head + 5, 4);
    return true;
}

static void answer_send(int fd, const struct answer *a, const uint8_t stream[4])
{
    for (size_t i = 0; i < COUNT(a->frames) && a->frames[i].bytes; i++) {
        const struct frame *f = &a->frames[i];
        uint8_t out[HEAD + 255] = {0, 0, f->len, f->type, f->flags};
        if (!f->is_of_connection) {
            memcpy(out + 5, stream, 4);
        }
        memcpy(out + HEAD, f->bytes, f->len);
        send(fd, out, HEAD + (size_t)f->len, MSG_NOSIGNAL);
    }
}

static void serve_connection(struct server *s, int fd)
{
    uint8_t preface[PREFACE], stream[4];

    if (!read_all(fd, preface, PREFACE)) {
        return;
    }
    while (read_request(fd, stream) && s->asked < s->count) {
        const struct answer *a = &s->answers[s->asked++];
        answer_send(fd, a, stream);
        if (a->close) {
            return;
        }
    }
}

static void *server_run(void *arg)
{
    struct server *s = arg;
    int fd;

    while ((fd = accept(s->listener, NULL, NULL)) >= 0) {
        serve_connection(s, fd);
        close(fd);
    }
    return NULL;
}

static void server_start(struct server *s, const struct answer *answers, size_t count)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof in;

    memset(s, 0, sizeof *s);
    s->answers = answers;
    s->count = count;
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&in, sizeof in), 0);
    assert_int_equal(getsockname(s->listener, (struct sockaddr *)&in, &len), 0);
    assert_int_equal(listen(s->listener, 8), 0);
    snprintf(s->address, sizeof s->address, "127.0.0.1:%d", ntohs(in.sin_port));
    assert_int_equal(pthread_create(&s->thread, NULL, server_run, s), 0);
}

static void server_stop(struct server *s)
{
    shutdown(s->listener, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->listener);
}

/* ---- the client ---- */

struct outcome {
    struct mr_loop *loop;
    int rc;
    struct mr_err err;
    size_t body_len;
    size_t header_count;
};

static void on_done(void *ctx, int rc, const struct mr_err *err, const struct mr_client_response *r)
{
    struct outcome *o = ctx;

    o->rc = rc;
    o->err = *err;
    o->body_len = r ? r->body.len : 0;
    o->header_count = r ? r->header_count : 0;
    mr_loop_stop(o->loop);
}

/* Requests one after the other, as long as they are answered. Returns how many the server got. */
static size_t ask(struct outcome *o, const struct answer *answers, size_t answer_count, int count,
                  bool never_repeat)
{
    const struct mr_client_options options = {.http2 = true};
    const struct mr_client_request request = {.method = "GET",
                                              .path = MR_STR("/x"),
                                              .timeout_ns = PATIENCE_NS,
                                              .never_repeat = never_repeat};
    struct mr_client *c = NULL;
    struct server s;

    server_start(&s, answers, answer_count);
    memset(o, 0, sizeof *o);
    assert_int_equal(mr_loop_new(&o->loop, NULL, NULL), MR_OK);
    assert_int_equal(mr_client_new(&c, o->loop, s.address, &options, NULL), MR_OK);
    for (int i = 0; i < count && o->rc == MR_OK; i++) {
        mr_client_send(c, &request, on_done, o);
        mr_loop_run(o->loop);
    }
    mr_client_free(&c);
    mr_loop_free(&o->loop);
    server_stop(&s);
    return s.asked;
}

/* ---- tests ---- */

/* On a connection that has served, the server reads a request and closes. */
static void repeated_where_it_may_be(void **state)
{
    (void)state;
    static const struct answer answers[] = {
        {.frames = OK_ANSWER}, {.close = true}, {.frames = OK_ANSWER}};
    struct outcome o;

    assert_int_equal(ask(&o, answers, COUNT(answers), 2, false), 3);
    assert_string_equal(o.err.msg, "");
    assert_int_equal(ask(&o, answers, COUNT(answers), 2, true), 2);
    assert_int_equal(o.rc, MR_E_UNAVAILABLE);
}

/* What the server has not begun is sent again, though it must not be done twice. */
static void repeated_when_nothing_was_done(void **state)
{
    (void)state;
    static const struct answer rows[][2] = {
        {{.frames = {SETTINGS, RESET("\7")}}, {.frames = OK_ANSWER}}, /* REFUSED_STREAM */
        {{.frames = {SETTINGS, GOAWAY}, .close = true}, {.frames = OK_ANSWER}},
    };
    static const struct answer twice[] = {{.frames = {SETTINGS, RESET("\7")}},
                                          {.frames = {SETTINGS, RESET("\7")}},
                                          {.frames = OK_ANSWER}};
    struct outcome o;

    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(ask(&o, rows[i], 2, 1, true), 2);
        assert_string_equal(o.err.msg, "");
        assert_int_equal(o.body_len, 2);
    }
    assert_int_equal(ask(&o, twice, COUNT(twice), 1, true), 2);
    assert_int_equal(o.rc, MR_E_UNAVAILABLE);
}

/* RST_STREAM(NO_ERROR) says that the rest of the request is not wanted, and only after the answer (RFC 9113 section 8.1). */
static void cut_off_without_an_error(void **state)
{
    (void)state;
    static const struct {
        struct answer answer;
        const char *told; /* "": it is whole */
    } rows[] = {
        {{.frames = {SETTINGS, HEADERS(0), DATA(0, "o"), RESET("\0")}}, "the answer was cut off"},
        {{.frames = {SETTINGS, HEADERS(0), RESET("\0")}}, "the answer was cut off"},
        {{.frames = {SETTINGS, RESET("\0")}}, "no answer"},
        {{.frames = {SETTINGS, HEADERS(0), DATA(NGHTTP2_FLAG_END_STREAM, "ok"), RESET("\0")}}, ""},
        {{.frames = {SETTINGS, HEADERS(NGHTTP2_FLAG_END_STREAM), RESET("\0")}}, ""},
    };
    struct outcome o;

    for (size_t i = 0; i < COUNT(rows); i++) {
        ask(&o, &rows[i].answer, 1, 1, false);
        if (!strstr(o.err.msg, rows[i].told) || (o.rc == MR_OK) != !rows[i].told[0]) {
            fail_msg("row %zu: %d %s", i, o.rc, o.err.msg);
        }
        assert_true(o.rc == MR_OK || o.rc == MR_E_UNAVAILABLE);
    }
}

/* nghttp2 would drop the header, and gRPC allows it. */
static void blanks_around_a_value(void **state)
{
    (void)state;
    static const struct answer answer = {
        .frames = {SETTINGS,
                   {NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | NGHTTP2_FLAG_END_STREAM, false,
                    STATUS_200 "\0\1a\3 v ", 8}}};
    struct outcome o;

    ask(&o, &answer, 1, 1, false);
    assert_int_equal(o.rc, MR_OK);
    assert_int_equal(o.header_count, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repeated_where_it_may_be),
        cmocka_unit_test(repeated_when_nothing_was_done),
        cmocka_unit_test(cut_off_without_an_error),
        cmocka_unit_test(blanks_around_a_value),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
