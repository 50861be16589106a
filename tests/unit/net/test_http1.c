/* HTTP/1 against a real server over loopback: requests of every shape, what a peer may do wrong,
 * and what a connection's end means for the calls on it. */
#include "server_fixture.h"

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

static void test_keep_alive(void **state)
{
    struct client c = dial(*state);

    for (int i = 0; i < 50; i++) {
        assert_true(say(&c, "POST /a?b=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"));
        expect_response(&c, 200, "POST /a?b=1");
    }
    assert_true(say(&c, "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
    expect_response(&c, 200, "GET /a?");
    expect_end(&c);
    hang_up(&c);
}

static void test_pipelined(void **state)
{
    struct client c = dial(*state);
    char text[16384];
    size_t n = 0;

    for (int i = 0; i < 100; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n,
                              "POST /%d HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%.*s", i,
                              i % 50, i % 50, "01234567890123456789012345678901234567890123456789");
    }
    assert_true(send_all(&c, text, n));
    for (int i = 0; i < 100; i++) {
        char expected[32];
        snprintf(expected, sizeof expected, "POST /%d?", i);
        expect_response(&c, 200, expected);
    }
    hang_up(&c);
}

static void test_split_everywhere(void **state)
{
    static const char text[] =
        "\r\nPOST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        "3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: v\r\n\r\n"
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nwxyz";
    struct client c = dial(*state);

    for (size_t cut = 1; cut < sizeof text - 1; cut++) {
        assert_true(send_all(&c, text, cut));
        usleep(cut % 8 == 0 ? 300 : 0);
        assert_true(send_all(&c, text + cut, sizeof text - 1 - cut));
        expect_response(&c, 200, "abcde");
        expect_response(&c, 200, "wxyz");
    }
    for (size_t i = 0; i < sizeof text - 1; i++) {
        assert_true(send_all(&c, text + i, 1));
        usleep(100);
    }
    expect_response(&c, 200, "abcde");
    expect_response(&c, 200, "wxyz");
    hang_up(&c);
}

static void test_head_and_versions(void **state)
{
    struct client c = dial(*state);
    struct response r;

    assert_true(say(&c, "HEAD /abc HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n"));
    hear_response(&c, &r, true);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.head, "content-length: 10\r\n"));
    free(r.body);
    expect_response(&c, 200, "GET /2?");
    /* HEAD of an answer in parts. */
    assert_true(say(
        &c,
        "HEAD /bytes HTTP/1.1\r\nHost: x\r\nx-parts: 3\r\n\r\nGET /3 HTTP/1.1\r\nHost: x\r\n\r\n"));
    hear_response(&c, &r, true);
    free(r.body);
    expect_response(&c, 200, "GET /3?");
    /* HTTP/1.0: kept only when asked for. */
    assert_true(say(&c, "GET /4 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
    hear_response(&c, &r, false);
    assert_non_null(strstr(r.head, "connection: keep-alive\r\n"));
    assert_string_equal(r.body, "GET /4?");
    free(r.body);
    assert_true(say(&c, "GET /bytes HTTP/1.0\r\nConnection: keep-alive\r\nx-parts: 2\r\n\r\n"));
    hear_response(&c, &r, false);
    assert_null(strstr(r.head, "chunked"));
    assert_string_equal(r.body, "abcdefghij");
    free(r.body);
    hang_up(&c);
    c = dial(*state);
    assert_true(say(&c, "GET /5 HTTP/1.0\r\n\r\n"));
    expect_response(&c, 200, "GET /5?");
    expect_end(&c);
    hang_up(&c);
}

static void test_continue(void **state)
{
    struct client c = dial(*state);

    assert_true(say(
        &c, "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"));
    expect_response(&c, 100, NULL);
    assert_true(say(&c, "hello"));
    expect_response(&c, 200, "hello");
    /* The body came along: no 100. */
    assert_true(say(
        &c,
        "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi"));
    expect_response(&c, 200, "hi");
    /* Answered at once: no 100, and no way to go on. */
    assert_true(say(
        &c,
        "POST /early HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"));
    struct response r;
    hear_response(&c, &r, false);
    assert_int_equal(r.status, 403);
    assert_true(r.close);
    free(r.body);
    shutdown(c.fd, SHUT_WR);
    expect_end(&c);
    hang_up(&c);
    c = dial(*state);
    assert_true(
        say(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 200-ok\r\nContent-Length: 5\r\n\r\n"));
    expect_response(&c, 417, NULL);
    hang_up(&c);
}

static void big_body_to(struct server *s, const char *path, size_t n, const char *headers)
{
    struct client c = dial(s);
    char *body = malloc(n);
    char head[512];
    struct response r;

    fill_pattern(body, n);
    for (int i = 0; i < 2; i++) {
        snprintf(head, sizeof head, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n%s\r\n",
                 path, n, headers);
        assert_true(say(&c, head) && send_all(&c, body, n));
        hear_response(&c, &r, false);
        assert_int_equal(r.status, 200);
        assert_int_equal(r.len, n);
        assert_memory_equal(r.body, body, n);
        free(r.body);
    }
    free(body);
    hang_up(&c);
}

static void big_body(struct server *s, size_t n, const char *headers)
{
    big_body_to(s, "/echo", n, headers);
}

/* Bodies are received into the provider's file, large ones into an extent that grows: if it cannot, into other memory. */
static void test_provided_bodies(void **state)
{
    static const struct {
        size_t bytes;
        bool grows;
        int takes;
    } rows[] = {{300000, false, 1},
                {7 * 1024 * 1024, false, 1},
                {20 * 1000 * 1000, true, 1},
                {20 * 1000 * 1000, false, 0}};
    struct server *s = *state;
    struct memfd_provider all[COUNT(rows)]; /* the loop may still write to the last one */

    for (size_t i = 0; i < COUNT(rows); i++) {
        struct memfd_provider *m = &all[i];
        assert_true(memfd_open(m, (size_t)64 << 20, rows[i].grows));
        atomic_store(&s->provider, m);
        big_body_to(s, "/shared", rows[i].bytes, "x-align: 24\r\n");
        assert_int_equal(m->takes, 2 * rows[i].takes); /* two requests */
        assert_true(wait_connections(s, 0));
        assert_int_equal(m->out, 0);
        memfd_close(m);
    }
}

static void test_provider_without_room(void **state)
{
    struct server *s = *state;
    struct memfd_provider m;

    assert_true(memfd_open(&m, 4096, true));
    atomic_store(&s->provider, &m);
    big_body_to(s, "/shared", 300000, "");
    assert_int_equal(m.takes, 0);
    memfd_close(&m);
}

static void test_big_bodies(void **state)
{
    static const size_t sizes[] = {1,
                                   15000,
                                   16000,
                                   16384,
                                   17000,
                                   70000,
                                   300000,
                                   8 * 1024 * 1024,
                                   8 * 1024 * 1024 + 1,
                                   20 * 1000 * 1000};

    for (size_t i = 0; i < COUNT(sizes); i++) {
        big_body(*state, sizes[i], "");
    }
}

static void test_big_chunked(void **state)
{
    size_t n = 3 * 1000 * 1000;
    char *body = malloc(n);
    struct client c = dial(*state);
    size_t at = 0;
    struct response r;

    fill_pattern(body, n);
    assert_true(say(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"));
    for (size_t step = 1; at < n; step = step * 2 + 1) {
        char line[32];
        size_t part = at + step < n ? step : n - at;
        snprintf(line, sizeof line, "%zx\r\n", part);
        assert_true(say(&c, line) && send_all(&c, body + at, part) && say(&c, "\r\n"));
        at += part;
    }
    assert_true(say(&c, "0\r\n\r\n"));
    hear_response(&c, &r, false);
    assert_int_equal(r.len, n);
    assert_memory_equal(r.body, body, n);
    free(r.body);
    free(body);
    hang_up(&c);
}

static void test_alignment(void **state)
{
    static const size_t sizes[] = {100, 1000, 5000, 15000, 40000, 9 * 1024 * 1024};
    static const int offsets[] = {0, 1, 37, 64, 99};
    struct client c = dial(*state);
    char *body = calloc(1, sizes[COUNT(sizes) - 1]);

    for (size_t i = 0; i < COUNT(sizes); i++) {
        for (size_t k = 0; k < COUNT(offsets); k++) {
            char head[256];
            struct response r;
            snprintf(
                head, sizeof head,
                "POST /report HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\nx-align: %d\r\n\r\n",
                sizes[i], offsets[k]);
            assert_true(say(&c, head) && send_all(&c, body, sizes[i]));
            hear_response(&c, &r, false);
            assert_non_null(strstr(r.body, "aligned=1"));
            free(r.body);
        }
    }
    free(body);
    hang_up(&c);
}

static void test_pipelined_bodies(void **state)
{
    /* Requests whose bodies straddle the end of the input buffer in all ways. */
    struct client c = dial(*state);
    size_t cap = 3 * 1000 * 1000;
    char *text = malloc(cap);
    size_t n = 0;
    int count = 0;

    for (size_t len = 0; len < 20000; len += 173) {
        n += (size_t)snprintf(
            text + n, cap - n,
            "POST /report HTTP/1.1\r\nHost: x\r\nx-align: 3\r\nContent-Length: %zu\r\n\r\n", len);
        memset(text + n, 'b', len);
        n += len;
        count++;
    }
    /* The answers are small, so none has to be read while this is sent. */
    assert_true(send_all(&c, text, n));
    for (int i = 0; i < count; i++) {
        char expected[32];
        struct response r;
        hear_response(&c, &r, false);
        snprintf(expected, sizeof expected, "len=%d aligned=1", i * 173);
        if (i > 0) {
            assert_memory_equal(r.body, expected, strlen(expected));
        }
        free(r.body);
    }
    free(text);
    hang_up(&c);
}

static void test_async(void **state)
{
    struct server *s = *state;
    struct client c = dial(s);

    assert_true(
        say(&c, "GET /later HTTP/1.1\r\nHost: x\r\n\r\nGET /next HTTP/1.1\r\nHost: x\r\n\r\n"));
    assert_true(wait_until(&s->pending_count, 1));
    assert_int_equal(atomic_load(&s->bodies), 1); /* the second waits for its turn */
    release_later(s);
    expect_response(&c, 200, "late");
    expect_response(&c, 200, "GET /next?");
    hang_up(&c);
}

static void test_cancel(void **state)
{
    struct server *s = *state;
    struct client c = dial(s);

    assert_true(say(&c, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n"));
    assert_true(wait_until(&s->pending_count, 1));
    hang_up(&c);
    assert_true(wait_until(&s->cancels, 1));
    release_later(s);
    /* By a reset. */
    c = dial(s);
    assert_true(say(&c, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n"));
    assert_true(wait_until(&s->pending_count, 1));
    struct linger linger = {1, 0};
    setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    hang_up(&c);
    assert_true(wait_until(&s->cancels, 2));
    release_later(s);
    /* Followed by a full buffer of pipelined requests. */
    char *flood = malloc(100000);
    memset(flood, 'a', 100000);
    c = dial(s);
    assert_true(say(&c, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n"));
    assert_true(wait_until(&s->pending_count, 1));
    send(c.fd, flood, 100000, MSG_DONTWAIT | MSG_NOSIGNAL);
    hang_up(&c);
    assert_true(wait_until(&s->cancels, 3));
    release_later(s);
    free(flood);
}

static void test_half_close(void **state)
{
    struct server *s = *state;
    struct client c = dial(s);

    /* Two requests and the end: both are answered. */
    assert_true(say(&c, "GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n"));
    shutdown(c.fd, SHUT_WR);
    expect_response(&c, 200, "GET /1?");
    expect_response(&c, 200, "GET /2?");
    expect_end(&c);
    hang_up(&c);
    /* The end while the handler works: a hint, and the answer still comes. */
    c = dial(s);
    assert_true(say(&c, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n"));
    shutdown(c.fd, SHUT_WR);
    assert_true(wait_until(&s->cancels, 1));
    release_later(s);
    expect_response(&c, 200, "late");
    expect_end(&c);
    hang_up(&c);
}

static void test_streaming_in(void **state)
{
    struct client c = dial(*state);
    size_t n = 500000;
    char *body = malloc(n);
    char head[256];
    char expected[128];
    static const char *const paths[] = {"/streamin", "/pause"};

    fill_pattern(body, n);
    snprintf(expected, sizeof expected, "bytes=%zu sum=%zx", n, sum_on(0, body, n));
    for (size_t i = 0; i < COUNT(paths); i++) {
        snprintf(head, sizeof head, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n",
                 paths[i], n);
        assert_true(say(&c, head) && send_all(&c, body, n));
        expect_response(&c, 200, expected);
        snprintf(head, sizeof head,
                 "POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", paths[i]);
        assert_true(say(&c, head));
        for (size_t at = 0; at < n; at += 5000) {
            assert_true(say(&c, "1388\r\n") && send_all(&c, body + at, 5000) && say(&c, "\r\n"));
        }
        assert_true(say(&c, "0\r\n\r\n"));
        expect_response(&c, 200, expected);
        snprintf(head, sizeof head, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
                 paths[i]);
        assert_true(say(&c, head));
        expect_response(&c, 200, "bytes=0 sum=0");
    }
    /* Gone in the middle. */
    assert_true(say(&c, "POST /streamin HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc"));
    usleep(20000);
    hang_up(&c);
    assert_true(wait_until(&((struct server *)*state)->cancels, 1));
    free(body);
}

static void test_parts_out(void **state)
{
    struct client c = dial(*state);
    struct response r;

    for (int parts = 1; parts <= 64; parts *= 4) {
        char head[256];
        snprintf(head, sizeof head,
                 "GET /bytes HTTP/1.1\r\nHost: x\r\nx-bytes: 200000\r\nx-parts: %d\r\n\r\n", parts);
        assert_true(say(&c, head));
        hear_response(&c, &r, false);
        assert_int_equal(r.len, 200000);
        for (size_t i = 0; i < r.len; i++) {
            assert_int_equal(r.body[i], 'a' + i % 26);
        }
        free(r.body);
    }
    hang_up(&c);
}

static void test_large_copies(void **state)
{
    static const int sizes[] = {16384, 16385, 100000, 12000000};
    struct client c = dial(*state);

    for (size_t i = 0; i < COUNT(sizes); i++) {
        char head[256];
        snprintf(head, sizeof head,
                 "GET /bytes HTTP/1.1\r\nHost: x\r\nx-bytes: %d\r\nx-parts: -1\r\n\r\n", sizes[i]);
        assert_true(say(&c, head) && say(&c, head));
        usleep(20000);
        for (int k = 0; k < 2; k++) {
            struct response r;
            hear_response(&c, &r, false);
            assert_int_equal(r.len, sizes[i]);
            for (size_t at = 0; at < r.len; at++) {
                if (r.body[at] != (char)('a' + at % 26)) {
                    fail_msg("%d bytes: byte %zu", sizes[i], at);
                }
            }
            free(r.body);
        }
    }
    hang_up(&c);
}

static void test_early_answer(void **state)
{
    struct client c = dial(*state);
    char *body = calloc(1, 1 << 20);
    struct response r;

    /* A short rest is read and thrown away, and the connection lives. */
    assert_true(say(&c, "POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"));
    expect_response(&c, 403, "early");
    assert_true(send_all(&c, body, 100000));
    /* As much as is read to the end, beside what has come with the head. */
    char head[12000] = "POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 273000\r\n\r\n";
    const size_t rest = 273000 + strlen(head) - sizeof head;
    assert_true(send_all(&c, head, sizeof head));
    expect_response(&c, 403, "early");
    assert_true(send_all(&c, body, rest - 1));
    assert_true(send_all(&c, body, 1));
    assert_true(say(&c, "POST /early HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"));
    expect_response(&c, 403, "early");
    assert_true(say(&c, "3\r\nabc\r\n0\r\n\r\nGET /on HTTP/1.1\r\nHost: x\r\n\r\n"));
    expect_response(&c, 200, "GET /on?");
    /* A long one is not worth it; the answer arrives though all of it is sent. */
    assert_true(say(&c, "POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n"));
    assert_true(send_all(&c, body, 1 << 20));
    hear_response(&c, &r, false);
    assert_int_equal(r.status, 403);
    assert_true(r.close);
    free(r.body);
    expect_end(&c);
    hang_up(&c);
    free(body);
}

static void test_body_limit(void **state)
{
    struct server *s = *state;
    struct client c = dial(s);
    char body[2001] = {0};

    assert_true(
        say(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nx-limit: 1000\r\nContent-Length: 1000\r\n\r\n"));
    assert_true(send_all(&c, body, 1000));
    expect_response(&c, 200, NULL);
    assert_true(
        say(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nx-limit: 1000\r\nContent-Length: 1001\r\n\r\n"));
    assert_true(send_all(&c, body, 1001));
    expect_response(&c, 413, "refused");
    assert_true(say(
        &c, "POST /echo HTTP/1.1\r\nHost: x\r\nx-limit: 1000\r\nTransfer-Encoding: chunked\r\n\r\n"
            "7d0\r\n"));
    assert_true(send_all(&c, body, 2000) && say(&c, "\r\n0\r\n\r\n"));
    expect_response(&c, 413, "refused");
    assert_true(say(&c, "GET /on HTTP/1.1\r\nHost: x\r\n\r\n"));
    expect_response(&c, 200, "GET /on?");
    /* A claim of an exbyte costs nothing but its refusal. */
    assert_true(
        say(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1152921504606846976\r\n\r\n"));
    expect_response(&c, 413, "refused");
    hang_up(&c);
    assert_int_equal(atomic_load(&s->refusals), 3);
}

static void test_budget(void **state)
{
    struct server *s = *state;
    struct client c = dial(s);

    mr_block_set_budget(1 << 20, 0);
    assert_true(say(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nx-align: 0\r\n"
                        "Content-Length: 4000000\r\n\r\nabc"));
    expect_response(&c, 503, "refused");
    hang_up(&c);
    mr_block_set_budget(0, 1 << 28);
    assert_int_equal(atomic_load(&s->refusals), 1);
}

static void test_errors(void **state)
{
    static const struct {
        const char *text;
        int status;
    } rows[] = {
        {"GET / HTTP/1.1\r\nX : y\r\n\r\n", 400},
        {"GET / HTTP/1.1\nHost: x\r\n\r\n", 400},
        {"\x16\x03\x01\x02", 400},
        {"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", 505},
        {"GET / HTTP/3.0\r\nHost: x\r\n\r\n", 505},
        {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501},
        {"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400},
        {"POST /streamin HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
         400},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        struct client c = dial(*state);
        struct response r;
        assert_true(say(&c, rows[i].text));
        hear_response(&c, &r, false);
        assert_int_equal(r.status, rows[i].status);
        assert_true(r.close);
        assert_memory_equal(r.body, "{\"error\":\"", 10);
        free(r.body);
        shutdown(c.fd, SHUT_WR);
        expect_end(&c);
        hang_up(&c);
    }
}

static void test_header_limits(void **state)
{
    struct client c = dial(*state);
    char *big = malloc(70000);

    memset(big, 'a', 70000);
    /* More than one input buffer, less than the limit. */
    assert_true(say(&c, "GET /ok HTTP/1.1\r\nHost: x\r\nX: "));
    assert_true(send_all(&c, big, 60000) && say(&c, "\r\n\r\n"));
    expect_response(&c, 200, "GET /ok?");
    assert_true(say(&c, "GET /ok HTTP/1.1\r\nHost: x\r\nX: "));
    assert_true(send_all(&c, big, 66000));
    expect_response(&c, 431, NULL);
    hang_up(&c);
    c = dial(*state);
    assert_true(say(&c, "GET /ok HTTP/1.1\r\nHost: x\r\n"));
    for (int i = 0; i < 120; i++) {
        say(&c, "X: y\r\n");
    }
    say(&c, "\r\n");
    expect_response(&c, 431, NULL);
    hang_up(&c);
    free(big);
}

static void test_close_and_abort(void **state)
{
    struct client c = dial(*state);

    assert_true(
        say(&c, "GET /close HTTP/1.1\r\nHost: x\r\n\r\nGET /not HTTP/1.1\r\nHost: x\r\n\r\n"));
    expect_response(&c, 200, "bye");
    shutdown(c.fd, SHUT_WR);
    expect_end(&c);
    hang_up(&c);
    c = dial(*state);
    assert_true(say(&c, "GET /abort HTTP/1.1\r\nHost: x\r\n\r\n"));
    assert_false(hear(&c));
    hang_up(&c);
}

static void test_slow_reader(void **state)
{
    /* A peer that asks for much and reads nothing stops the server from working for it, not from
     * working for others; when it reads, it gets all. */
    struct server *s = *state;
    struct client slow = dial(s);
    struct client other = dial(s);
    int count = 64;

    for (int i = 0; i < count; i++) {
        assert_true(say(&slow, "GET /bytes HTTP/1.1\r\nHost: x\r\nx-bytes: 1000000\r\n\r\n"));
    }
    usleep(300000);
    int done = atomic_load(&s->bodies);
    assert_true(done < 20);
    assert_true(say(&other, "GET /o HTTP/1.1\r\nHost: x\r\n\r\n"));
    expect_response(&other, 200, "GET /o?");
    for (int i = 0; i < count; i++) {
        struct response r;
        hear_response(&slow, &r, false);
        assert_int_equal(r.len, 1000000);
        free(r.body);
    }
    hang_up(&slow);
    hang_up(&other);
}

static void test_gone_in_answer(void **state)
{
    struct server *s = *state;

    for (int i = 0; i < 20; i++) {
        struct client c = dial(s);
        assert_true(say(
            &c, i % 2
                    ? "GET /bytes HTTP/1.1\r\nHost: x\r\nx-bytes: 8000000\r\n\r\n"
                    : "GET /bytes HTTP/1.1\r\nHost: x\r\nx-bytes: 8000000\r\nx-parts: 9\r\n\r\n"));
        hear(&c);
        hang_up(&c);
    }
    assert_true(wait_connections(s, 0));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_keep_alive),
        TEST(test_pipelined),
        TEST(test_split_everywhere),
        TEST(test_head_and_versions),
        TEST(test_continue),
        TEST(test_big_bodies),
        TEST(test_big_chunked),
        TEST(test_alignment),
        TEST(test_pipelined_bodies),
        TEST(test_async),
        TEST(test_cancel),
        TEST(test_half_close),
        TEST(test_streaming_in),
        TEST(test_parts_out),
        TEST(test_large_copies),
        TEST(test_early_answer),
        TEST(test_body_limit),
        TEST(test_budget),
        TEST(test_errors),
        TEST(test_header_limits),
        TEST(test_close_and_abort),
        TEST(test_slow_reader),
        TEST(test_gone_in_answer),
        TEST(test_provided_bodies),
        TEST(test_provider_without_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
