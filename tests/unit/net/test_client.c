/* The HTTP client against a server with the replies of the test: a thread with canned bytes for
 * HTTP/1.1 and its faults, and net's own server for HTTP/2 and gRPC (test_client_h2.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "net/client.h"

/* What comes at all comes sooner, on a machine that has much else to do as well. */
#define PATIENCE_NS (300 * MR_NS_PER_S)

/* ---- the canned server ---- */

#define STEPS_MAX 8

/* One answer: sent after a whole request (with a body of content-length). */
struct step {
    const char *answer; /* NULL: send nothing */
    size_t bytes;       /* of it; 0: to its NUL */
    size_t split;       /* > 0: send in pieces of this many bytes */
    bool close;         /* close the connection after it */
    bool waits;         /* before it closes, for a sign of the test */
    size_t filler;      /* that many 'x' after the answer */
};

struct canned {
    int listener;
    char address[128];
    struct step steps[STEPS_MAX];
    _Atomic size_t step_count; /* 0: stop */
    _Atomic size_t at;         /* next step, over all connections */
    _Atomic int connections;   /* accepted */
    _Atomic int signs;
    _Atomic int closed;
    char request[4096]; /* the last one's head */
    size_t body_bytes;  /* of the last one */
    pthread_t thread;
};

static void send_all(int fd, const char *p, size_t len, size_t split)
{
    while (len > 0) {
        size_t part = split && split < len ? split : len;
        ssize_t n = send(fd, p, part, MSG_NOSIGNAL);
        if (n <= 0) {
            return;
        }
        p += n;
        len -= (size_t)n;
        if (split) {
            usleep(200);
        }
    }
}

/* Head into s->request, body counted; false at the end of the connection. */
static bool read_request(struct canned *s, int fd)
{
    size_t have = 0;
    char *end = NULL;

    while (!end) {
        ssize_t n = recv(fd, s->request + have, sizeof s->request - 1 - have, 0);
        if (n <= 0) {
            return false;
        }
        have += (size_t)n;
        s->request[have] = '\0';
        end = strstr(s->request, "\r\n\r\n");
    }
    const char *length = strstr(s->request, "content-length: ");
    size_t want = length && length < end ? strtoul(length + 16, NULL, 10) : 0;
    size_t got = have - (size_t)(end + 4 - s->request);
    while (got < want) {
        char sink[65536];
        ssize_t n = recv(fd, sink, sizeof sink, 0);
        if (n <= 0) {
            return false;
        }
        got += (size_t)n;
    }
    s->body_bytes = got;
    return true;
}

static void serve_connection(struct canned *s, int fd)
{
    while (read_request(s, fd) && s->at < s->step_count) {
        const struct step *step = &s->steps[s->at++];
        if (step->answer) {
            send_all(fd, step->answer, step->bytes ? step->bytes : strlen(step->answer),
                     step->split);
        }
        for (size_t left = step->filler; left > 0;) {
            static const char x[] =
                "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
            size_t part = left < 64 ? left : 64;
            send_all(fd, x, part, 0);
            left -= part;
        }
        while (step->waits && s->signs < s->connections) {
            sched_yield();
        }
        if (step->close) {
            break;
        }
    }
    close(fd);
    s->closed++;
}

static void *canned_run(void *arg)
{
    struct canned *s = arg;
    int fd;

    while (s->at < s->step_count && (fd = accept(s->listener, NULL, NULL)) >= 0) {
        s->connections++;
        serve_connection(s, fd);
    }
    return NULL;
}

static void canned_listen(struct canned *s)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof in;

    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&in, sizeof in), 0);
    assert_int_equal(getsockname(s->listener, (struct sockaddr *)&in, &len), 0);
    assert_int_equal(listen(s->listener, 8), 0);
    snprintf(s->address, sizeof s->address, "127.0.0.1:%d", ntohs(in.sin_port));
}

static void canned_start(struct canned *s, const struct step *steps, size_t count)
{
    memset(s, 0, sizeof *s);
    memcpy(s->steps, steps, count * sizeof *steps);
    s->step_count = count;
    canned_listen(s);
    assert_int_equal(pthread_create(&s->thread, NULL, canned_run, s), 0);
}

static void canned_stop(struct canned *s)
{
    s->step_count = 0;
    shutdown(s->listener, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->listener);
}

/* ---- the client side ---- */

struct outcome {
    struct mr_loop *loop;
    int left; /* calls to come; the loop stops at 0 */
    int rc;
    struct mr_err err;
    int status;
    size_t body_len;
    char body[256];
    char header[256]; /* "x-test" */
    char trailer[256];
};

static void on_done(void *ctx, int rc, const struct mr_err *err, const struct mr_client_response *r)
{
    struct outcome *o = ctx;

    o->rc = rc;
    o->err = *err;
    assert_true((rc == MR_OK) == (r != NULL));
    if (r) {
        o->status = r->status;
        o->body_len = r->body.len;
        snprintf(o->body, sizeof o->body, "%.*s", (int)(r->body.len > 255 ? 255 : r->body.len),
                 r->body.len ? (const char *)r->body.ptr : "");
        for (size_t i = 0; i < r->header_count; i++) {
            if (mr_str_eq_c(r->headers[i].name, "x-test")) {
                snprintf(o->header, sizeof o->header, "%.*s", MR_STR_ARG(r->headers[i].value));
            }
        }
        if (r->trailer_count) {
            snprintf(o->trailer, sizeof o->trailer, "%.*s", MR_STR_ARG(r->trailers[0].value));
        }
    }
    if (--o->left == 0) {
        mr_loop_stop(o->loop);
    }
}

static void send_as(struct mr_client *c, struct outcome *o, struct mr_client_request r)
{
    struct mr_piece piece = {.ptr = "hello", .len = 5};

    r.pieces = &piece;
    r.piece_count = strcmp(r.method, "POST") == 0;
    o->left++;
    mr_client_send(c, &r, on_done, o);
}

static void send_one(struct mr_client *c, struct outcome *o, const char *method, const char *path,
                     int64_t timeout_ns)
{
    send_as(c, o,
            (struct mr_client_request){
                .method = method, .path = mr_str_c(path), .timeout_ns = timeout_ns});
}

static void call_once(struct outcome *o, const char *address, const char *method,
                      const struct mr_client_options *options, int64_t timeout_ns)
{
    struct mr_client *c = NULL;
    struct mr_err err;

    memset(o, 0, sizeof *o);
    assert_int_equal(mr_loop_new(&o->loop, NULL, &err), MR_OK);
    assert_int_equal(mr_client_new(&c, o->loop, address, options, &err), MR_OK);
    send_one(c, o, method, "/x", timeout_ns);
    mr_loop_run(o->loop);
    mr_client_free(&c);
    mr_loop_free(&o->loop);
}

/* One step, one GET. */
static void get_step(struct outcome *o, struct step step)
{
    struct canned s;

    canned_start(&s, &step, 1);
    call_once(o, s.address, "GET", NULL, PATIENCE_NS);
    canned_stop(&s);
}

static void get_answer(struct outcome *o, const char *answer)
{
    get_step(o, (struct step){.answer = answer, .close = true});
}

/* ---- tests ---- */

static void content_length(void **state)
{
    (void)state;
    struct outcome o;

    get_answer(&o, "HTTP/1.1 200 OK\r\nX-Test:  a b \r\nContent-Length: 4\r\n\r\nbody");
    assert_int_equal(o.rc, MR_OK);
    assert_int_equal(o.status, 200);
    assert_string_equal(o.body, "body");
    assert_string_equal(o.header, "a b");
}

static void chunked(void **state)
{
    (void)state;
    struct outcome o;
    const char *text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                       "3\r\nabc\r\n10;x=y\r\n0123456789abcdef\r\n0\r\nX-Sum: 19\r\n\r\n";

    for (size_t split = 0; split < 4; split++) {
        get_step(&o, (struct step){.answer = text, .split = split});
        assert_int_equal(o.rc, MR_OK);
        assert_string_equal(o.body, "abc0123456789abcdef");
        assert_string_equal(o.trailer, "19");
    }
}

static void other_bodies(void **state)
{
    (void)state;
    struct outcome o;

    get_answer(&o, "HTTP/1.0 200 OK\r\n\r\nto the end");
    assert_int_equal(o.rc, MR_OK);
    assert_string_equal(o.body, "to the end");
    get_answer(&o, "HTTP/1.1 204 No Content\r\n\r\n");
    assert_int_equal(o.status, 204);
    assert_int_equal(o.body_len, 0);
    get_answer(&o, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404\r\nContent-Length: 0\r\n\r\n");
    assert_int_equal(o.status, 404);
}

static void large_body(void **state)
{
    (void)state;
    struct outcome o;
    struct mr_client_options small = {.max_response_bytes = 1000};
    struct canned s;
    struct step step = {.answer = "HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n",
                        .filler = 5000000};

    get_step(&o, step);
    assert_int_equal(o.rc, MR_OK);
    assert_int_equal(o.body_len, 5000000);
    assert_memory_equal(o.body, "xxxxxxxx", 8);

    step.filler = 0;
    canned_start(&s, &step, 1);
    call_once(&o, s.address, "GET", &small, PATIENCE_NS);
    canned_stop(&s);
    assert_int_equal(o.rc, MR_E_TOO_LARGE);
    assert_false(o.err.flags & MR_ERR_PEER); /* the limit is this side's */

    step = (struct step){.answer = "HTTP/1.1 200 OK\r\n\r\n", .filler = 2000, .close = true};
    canned_start(&s, &step, 1);
    call_once(&o, s.address, "GET", &small, PATIENCE_NS);
    canned_stop(&s);
    assert_int_equal(o.rc, MR_E_TOO_LARGE);
}

static void bad_responses(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "SSH-2.0-OpenSSH\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabX\r\n",
        "HTTP/1.1 200 OK\r\nNo colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nname : x\r\n\r\n",
        "HTTP/1.1 101 Switching\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nno colon\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    };
    struct outcome o;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        get_answer(&o, rows[i]);
        if (o.rc != MR_E_INVALID) {
            print_error("row %zu: %d %s\n", i, o.rc, o.err.msg);
        }
        assert_int_equal(o.rc, MR_E_INVALID);
        assert_true(o.err.flags & MR_ERR_PEER);
        assert_non_null(strstr(o.err.msg, "does not speak HTTP/1.1"));
    }
}

/* A server of another protocol, which then waits for more: reported at once, with its output. */
static void other_protocols(void **state)
{
    (void)state;
    static const struct {
        bool http2;
        struct step step;
        int rc;
        const char *told;
    } rows[] = {
        {true,
         {.answer = "HTTP/1.1 400 Bad Request\r\n\r\n"},
         MR_E_INVALID,
         "does not speak HTTP/2: it answered 'HTTP/1.1 400 Bad Request'"},
        {true,
         {.answer = "SSH-2.0-OpenSSH\r\n"},
         MR_E_INVALID,
         "does not speak HTTP/2: it answered 'SSH-2.0-OpenSSH'"},
        {true,
         {.answer = "\1\2\3\5\6\7"},
         MR_E_INVALID,
         "does not speak HTTP/2: it answered in bytes of another protocol"},
        {true,
         {.answer = "\0\0\1\4\0\0\0\0\0x", .bytes = 10},
         MR_E_INVALID,
         "does not speak HTTP/2: it broke a rule of the protocol"},
        {true, {.close = true}, MR_E_UNAVAILABLE, "closed by the server before it spoke HTTP/2"},
        {false,
         {.answer = "\0\0\6\4\0\0\0\0\0", .bytes = 9},
         MR_E_INVALID,
         "does not speak HTTP/1.1: it answered in HTTP/2, as servers of gRPC do"},
        {false,
         {.answer = "SSH-2.0-OpenSSH\r\n"},
         MR_E_INVALID,
         "does not speak HTTP/1.1: it answered 'SSH-2.0-OpenSSH'"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct mr_client_options options = {.http2 = rows[i].http2};
        struct outcome o;
        struct canned s;
        canned_start(&s, &rows[i].step, 1);
        call_once(&o, s.address, "GET", &options, PATIENCE_NS);
        canned_stop(&s);
        if (o.rc != rows[i].rc || !strstr(o.err.msg, rows[i].told)) {
            print_error("row %zu: %d %s\n", i, o.rc, o.err.msg);
        }
        assert_int_equal(o.rc, rows[i].rc);
        assert_int_equal((o.err.flags & MR_ERR_PEER) != 0, o.rc == MR_E_INVALID);
        assert_non_null(strstr(o.err.msg, rows[i].told));
    }
}

static void endless_head(void **state)
{
    (void)state;
    struct outcome o;

    get_step(&o, (struct step){.answer = "HTTP/1.1 200 OK\r\nx: ", .filler = 100000});
    assert_int_equal(o.rc, MR_E_TOO_LARGE);
    assert_true(o.err.flags & MR_ERR_PEER);
}

static void broken_off(void **state)
{
    (void)state;
    struct outcome o;

    get_answer(&o, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbody");
    assert_int_equal(o.rc, MR_E_UNAVAILABLE);
    assert_non_null(strstr(o.err.msg, "closed the connection in the middle of its answer"));
    get_answer(&o, "");
    assert_int_equal(o.rc, MR_E_UNAVAILABLE);
    assert_non_null(strstr(o.err.msg, "closed the connection without an answer"));
}

static void request_head(void **state)
{
    (void)state;
    struct outcome o;
    struct canned s;
    struct step step = {.answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"};
    char host[160];

    canned_start(&s, &step, 1);
    call_once(&o, s.address, "POST", NULL, PATIENCE_NS);
    canned_stop(&s);
    assert_int_equal(o.rc, MR_OK);
    assert_memory_equal(s.request, "POST /x HTTP/1.1\r\n", 18);
    snprintf(host, sizeof host, "\r\nhost: %s\r\n", s.address);
    assert_non_null(strstr(s.request, host));
    assert_non_null(strstr(s.request, "\r\ncontent-length: 5\r\n"));
    assert_int_equal(s.body_bytes, 5);
}

static void head_method(void **state)
{
    (void)state;
    struct outcome o;
    struct canned s;
    struct step step = {.answer = "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"};

    canned_start(&s, &step, 1);
    call_once(&o, s.address, "HEAD", NULL, PATIENCE_NS);
    canned_stop(&s);
    assert_int_equal(o.rc, MR_OK);
    assert_int_equal(o.body_len, 0);
}

#define OK_ANSWER "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

/* Calls one after the other, `count` in all, on one client. */
static void call_again_with(struct outcome *o, const char *address, int count,
                            const struct mr_client_options *options)
{
    struct mr_client *c = NULL;

    memset(o, 0, sizeof *o);
    assert_int_equal(mr_loop_new(&o->loop, NULL, NULL), MR_OK);
    assert_int_equal(mr_client_new(&c, o->loop, address, options, NULL), MR_OK);
    for (int i = 0; i < count; i++) {
        send_one(c, o, "POST", "/x", PATIENCE_NS);
        mr_loop_run(o->loop);
        if (o->rc < 0) {
            break;
        }
        usleep(20000); /* for the server's FIN, where it closes */
    }
    mr_client_free(&c);
    mr_loop_free(&o->loop);
}

static void call_again(struct outcome *o, const char *address, int count)
{
    call_again_with(o, address, count, NULL);
}

static void keep_alive(void **state)
{
    (void)state;
    struct outcome o;
    struct canned s;
    struct step steps[] = {{.answer = OK_ANSWER}, {.answer = OK_ANSWER}, {.answer = OK_ANSWER}};

    canned_start(&s, steps, 3);
    call_again(&o, s.address, 3);
    canned_stop(&s);
    assert_int_equal(o.rc, MR_OK);
    assert_int_equal(s.connections, 1);
}

/* The server closes after each answer without announcing it: the next call finds a dead connection. */
static void stale_connection(void **state)
{
    (void)state;
    struct outcome o;
    struct canned s;
    struct step steps[] = {{.answer = OK_ANSWER, .close = true},
                           {.answer = OK_ANSWER, .close = true},
                           {.answer = OK_ANSWER, .close = true}};

    canned_start(&s, steps, 3);
    call_again(&o, s.address, 3);
    canned_stop(&s);
    assert_int_equal(o.rc, MR_OK);
    assert_int_equal(s.connections, 3);
}

/* It dies on a connection that has served: the call is repeated; it dies again: an error. */
static void retried_once(void **state)
{
    (void)state;
    struct outcome o;
    struct canned s;
    struct step steps[] = {{.answer = OK_ANSWER},
                           {.answer = "", .close = true},
                           {.answer = "", .close = true},
                           {.answer = OK_ANSWER}};

    canned_start(&s, steps, 4);
    call_again(&o, s.address, 2);
    assert_int_equal(s.at, 3);
    canned_stop(&s);
    assert_int_equal(o.rc, MR_E_UNAVAILABLE);
}

static void never_repeated(void **state)
{
    (void)state;
    struct outcome o;
    struct canned s;
    struct step steps[] = {
        {.answer = OK_ANSWER}, {.answer = "", .close = true}, {.answer = OK_ANSWER}};
    struct mr_client_options options = {.never_repeat = true};

    canned_start(&s, steps, 3);
    call_again_with(&o, s.address, 2, &options);
    assert_int_equal(s.at, 2);
    canned_stop(&s);
    assert_int_equal(o.rc, MR_E_UNAVAILABLE);
}

/* Requests that must not be sent twice, one after the other on one client. The server closes after the answers with `waits`
 * when they were read. */
static void post_once_each(struct outcome *o, struct canned *s, int count)
{
    const struct mr_client_request once = {
        .method = "POST", .path = MR_STR("/x"), .timeout_ns = PATIENCE_NS, .never_repeat = true};
    struct mr_client_options options = {.max_connections = 1};
    struct mr_client *c = NULL;

    memset(o, 0, sizeof *o);
    assert_int_equal(mr_loop_new(&o->loop, NULL, NULL), MR_OK);
    assert_int_equal(mr_client_new(&c, o->loop, s->address, &options, NULL), MR_OK);
    for (int i = 0; i < count && o->rc == MR_OK; i++) {
        send_as(c, o, once);
        mr_loop_run(o->loop);
        s->signs += s->steps[i].waits;
        while (o->rc == MR_OK && s->closed < s->signs) {
            sched_yield();
        }
    }
    mr_client_free(&c);
    mr_loop_free(&o->loop);
}

/* The server has read the request when it closes: it may have done what was asked. */
static void request_never_repeated(void **state)
{
    (void)state;
    struct outcome o;
    struct canned s;
    struct step steps[] = {
        {.answer = OK_ANSWER}, {.answer = "", .close = true}, {.answer = OK_ANSWER}};

    canned_start(&s, steps, 3);
    post_once_each(&o, &s, 2);
    assert_int_equal(s.at, 2);
    canned_stop(&s);
    assert_int_equal(o.rc, MR_E_UNAVAILABLE);
}

/* A connection that the server has closed since is no reason to fail. */
static void request_never_repeated_after_a_pause(void **state)
{
    (void)state;
    struct outcome o;
    struct canned s;
    struct step steps[] = {{.answer = OK_ANSWER, .close = true, .waits = true},
                           {.answer = OK_ANSWER, .close = true, .waits = true},
                           {.answer = OK_ANSWER, .close = true, .waits = true}};

    canned_start(&s, steps, 3);
    post_once_each(&o, &s, 3);
    canned_stop(&s);
    assert_string_equal(o.err.msg, "");
    assert_int_equal(s.connections, 3);
}

static void closing_server(void **state)
{
    (void)state;
    struct outcome o;
    struct canned s;
    struct step steps[] = {
        {.answer = "HTTP/1.1 200 OK\r\nConnection: Keep-Alive, close\r\nContent-Length: 0\r\n\r\n",
         .close = true},
        {.answer = OK_ANSWER}};

    canned_start(&s, steps, 2);
    call_again(&o, s.address, 2);
    canned_stop(&s);
    assert_int_equal(o.rc, MR_OK);
    assert_int_equal(s.connections, 2);
}

/* More calls than connections: the others wait their turn. */
static void pool_limit(void **state)
{
    (void)state;
    struct outcome o = {0};
    struct canned s;
    struct step steps[] = {{.answer = OK_ANSWER}, {.answer = OK_ANSWER}, {.answer = OK_ANSWER}};
    struct mr_client_options options = {.max_connections = 1};
    struct mr_client *c = NULL;

    canned_start(&s, steps, 3);
    assert_int_equal(mr_loop_new(&o.loop, NULL, NULL), MR_OK);
    assert_int_equal(mr_client_new(&c, o.loop, s.address, &options, NULL), MR_OK);
    for (int i = 0; i < 3; i++) {
        send_one(c, &o, "POST", "/x", PATIENCE_NS);
    }
    mr_loop_run(o.loop);
    mr_client_free(&c);
    mr_loop_free(&o.loop);
    canned_stop(&s);
    assert_int_equal(o.rc, MR_OK);
    assert_int_equal(s.connections, 1);
}

static void timeouts(void **state)
{
    (void)state;
    struct outcome o;
    struct canned s;
    struct step step = {.answer = NULL};

    canned_start(&s, &step, 1);
    call_once(&o, s.address, "GET", NULL, 30 * MR_NS_PER_MS);
    canned_stop(&s);
    assert_int_equal(o.rc, MR_E_DEADLINE);
    assert_non_null(strstr(o.err.msg, "no answer from 127.0.0.1:"));
    assert_non_null(strstr(o.err.msg, "within 0.03 s"));
}

static void refused(void **state)
{
    (void)state;
    struct outcome o;
    struct canned s = {0};
    char text[256];

    canned_listen(&s); /* a port that is surely free once it is closed */
    close(s.listener);
    call_once(&o, s.address, "GET", NULL, 0);
    snprintf(text, sizeof text, "cannot connect to %s: Connection refused", s.address);
    assert_int_equal(o.rc, MR_E_UNAVAILABLE);
    assert_string_equal(o.err.msg, text);
    call_once(&o, "unix:/nonexistent/s", "GET", NULL, 0);
    assert_int_equal(o.rc, MR_E_UNAVAILABLE);
    assert_string_equal(o.err.msg,
                        "cannot connect to unix:/nonexistent/s: No such file or directory");
    call_once(&o, "no-such-host.invalid:80", "GET", NULL, 0);
    assert_int_equal(o.rc, MR_E_UNAVAILABLE);
    assert_memory_equal(o.err.msg, "cannot connect to no-such-host.invalid:80: ", 43);
}

static void by_name(void **state)
{
    (void)state;
    struct outcome o;
    struct canned s;
    struct step step = {.answer = OK_ANSWER};
    char address[160];

    canned_start(&s, &step, 1);
    /* ::1 may come first, without a listener. */
    snprintf(address, sizeof address, "localhost%s", strchr(s.address, ':'));
    call_once(&o, address, "GET", NULL, PATIENCE_NS);
    canned_stop(&s);
    assert_string_equal(o.err.msg, "");
    assert_string_equal(o.body, "ok");
}

static void unix_socket(void **state)
{
    (void)state;
    struct outcome o;
    struct canned s = {.step_count = 1, .steps = {{.answer = OK_ANSWER}}};
    struct sockaddr_un un = {.sun_family = AF_UNIX};

    snprintf(un.sun_path, sizeof un.sun_path, "/tmp/test_client.%d", getpid());
    snprintf(s.address, sizeof s.address, "unix:%s", un.sun_path);
    unlink(un.sun_path);
    s.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s.listener, (struct sockaddr *)&un, sizeof un), 0);
    assert_int_equal(listen(s.listener, 8), 0);
    assert_int_equal(pthread_create(&s.thread, NULL, canned_run, &s), 0);
    call_once(&o, s.address, "GET", NULL, PATIENCE_NS);
    canned_stop(&s);
    unlink(un.sun_path);
    assert_string_equal(o.err.msg, "");
    assert_string_equal(o.body, "ok");
    assert_non_null(strstr(s.request, "\r\nhost: localhost\r\n"));
}

static void bad_addresses(void **state)
{
    (void)state;
    static const char *const rows[] = {"",        "localhost", ":80",    "a:0",
                                       "a:65536", "a:b",       "::1:80", "a:-1",
                                       "unix:",   "a\r\nb:80", "[::1",   "host:80/x"};
    struct mr_loop *loop = NULL;
    struct mr_client *c = NULL;

    assert_int_equal(mr_loop_new(&loop, NULL, NULL), MR_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(mr_client_new(&c, loop, rows[i], NULL, NULL), MR_E_INVALID);
    }
    mr_loop_free(&loop);
}

static void bad_requests(void **state)
{
    (void)state;
    struct outcome o = {0};
    struct mr_client *c = NULL;
    struct mr_header evil = {MR_STR("x"), MR_STR("a\r\nb: c")};
    struct mr_client_request r = {
        .method = "GET", .path = MR_STR("/x"), .headers = &evil, .header_count = 1};

    assert_int_equal(mr_loop_new(&o.loop, NULL, NULL), MR_OK);
    assert_int_equal(mr_client_new(&c, o.loop, "127.0.0.1:1", NULL, NULL), MR_OK);
    o.left = 1;
    mr_client_send(c, &r, on_done, &o);
    assert_int_equal(o.left, 1); /* never from within */
    mr_loop_run(o.loop);
    assert_int_equal(o.rc, MR_E_INVALID);
    assert_false(o.err.flags & MR_ERR_PEER);
    send_one(c, &o, "GET", "/a b", 0);
    mr_loop_run(o.loop);
    assert_int_equal(o.rc, MR_E_INVALID);
    assert_string_equal(o.err.msg, "'/a b' is not a request path");
    o.left = 1;
    mr_client_grpc(c, &(struct mr_client_grpc_request){.path = "/a/b"}, on_done, &o);
    mr_loop_run(o.loop);
    assert_string_equal(o.err.msg, "gRPC needs HTTP/2");
    mr_client_free(&c);
    mr_loop_free(&o.loop);
}

static void dates(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t s; /* -1: it is none */
    } rows[] = {
        {"Sun, 06 Nov 1994 08:49:37 GMT", 784111777},
        {"Thu, 01 Jan 1970 00:00:00 GMT", 0},
        {"Fri, 29 Feb 2036 23:59:59 GMT", 2087942399},
        {"", -1},
        {"120", -1},
        {"Sun, 06 Nov 1994 08:49:37 UTC", -1},
        {"Sun, 06 Nov 1994 08:49:37 GMT ", -1},
        {"Sun, 06 Nom 1994 08:49:37 GMT", -1},
        {"Sun, 6  Nov 1994 08:49:37 GMT", -1},
        {"Sun, 06 Nov 1894 08:49:37 GMT", -1},
        {"Sunday, 06-Nov-94 08:49:37 GMT", -1},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int64_t ns = mr_http_date_ns(mr_str_c(rows[i].text));
        if (ns != (rows[i].s < 0 ? -1 : rows[i].s * MR_NS_PER_S)) {
            fail_msg("'%s': %lld ns", rows[i].text, (long long)ns);
        }
    }
}

/* All of a path of a socket counts: the first 107 bytes of a longer one may be that of another server. */
static void long_socket_paths(void **state)
{
    (void)state;
    char address[5 + 108 + 1] = "unix:";
    struct mr_err err;

    memset(address + 5, 'a', 108);
    address[5] = '/';
    assert_int_equal(mr_client_address_check(address, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "108 bytes, and at most 107 fit"));
    address[5 + 107] = '\0';
    assert_int_equal(mr_client_address_check(address, &err), MR_OK);
}

/* Calls that wait, connect, run and have failed, when the client goes. */
static void freed_early(void **state)
{
    (void)state;
    struct outcome o = {0};
    struct canned s;
    struct step step = {.answer = NULL};
    struct mr_client_options options = {.max_connections = 2};
    struct mr_client *c = NULL;

    canned_start(&s, &step, 1);
    assert_int_equal(mr_loop_new(&o.loop, NULL, NULL), MR_OK);
    assert_int_equal(mr_client_new(&c, o.loop, s.address, &options, NULL), MR_OK);
    o.left = 100;
    for (int i = 0; i < 4; i++) {
        send_one(c, &o, "POST", "/x", 0);
    }
    send_one(c, &o, "GET", "no path", 0);
    mr_client_free(&c);
    assert_int_equal(o.left, 100);
    assert_null(c);
    mr_loop_free(&o.loop);
    canned_stop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(content_length),
        cmocka_unit_test(chunked),
        cmocka_unit_test(other_bodies),
        cmocka_unit_test(large_body),
        cmocka_unit_test(bad_responses),
        cmocka_unit_test(endless_head),
        cmocka_unit_test(other_protocols),
        cmocka_unit_test(broken_off),
        cmocka_unit_test(request_head),
        cmocka_unit_test(head_method),
        cmocka_unit_test(keep_alive),
        cmocka_unit_test(stale_connection),
        cmocka_unit_test(retried_once),
        cmocka_unit_test(never_repeated),
        cmocka_unit_test(closing_server),
        cmocka_unit_test(pool_limit),
        cmocka_unit_test(timeouts),
        cmocka_unit_test(refused),
        cmocka_unit_test(by_name),
        cmocka_unit_test(unix_socket),
        cmocka_unit_test(bad_addresses),
        cmocka_unit_test(bad_requests),
        cmocka_unit_test(long_socket_paths),
        cmocka_unit_test(dates),
        cmocka_unit_test(freed_early),
        cmocka_unit_test(request_never_repeated),
        cmocka_unit_test(request_never_repeated_after_a_pause),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
