/* TLS of the server against OpenSSL's client: what is spoken, what is refused, peers that misbehave. */
#include <netinet/tcp.h>
#include <signal.h>

#include "tls_fixture.h"

static struct tls_files files;
static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};

static int setup(void **state)
{
    (void)state;
    files_make(&files);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    files_free(&files);
    return 0;
}

/* A server with one loop and the usual limits, and a client's settings. */
struct pair {
    struct mr_tls *tls;
    struct server s;
    SSL_CTX *ctx;
};

static void pair_start(struct pair *p, int version, const struct mr_http_options *options)
{
    struct mr_http_options usual;

    mr_http_options_init(&usual);
    p->tls = files_open(&files, false, false);
    p->ctx = client_context(&files, version, NULL);
    server_start_tls(&p->s, options ? options : &usual, 1, "127.0.0.1:0", p->tls);
}

static void pair_stop(struct pair *p)
{
    server_stop(&p->s);
    mr_tls_free(&p->tls);
    SSL_CTX_free(p->ctx);
}

static void expect_works(struct pair *p)
{
    struct client c = tls_dial(&p->s, p->ctx, NULL);

    assert_non_null(c.tls);
    assert_true(say(&c, "GET /x HTTP/1.1\r\nhost: x\r\n\r\n"));
    expect_response(&c, 200, "GET /x?");
    tls_hang_up(&c);
}

/* ---- what is spoken ---- */

static void test_http1(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(versions); i++) {
        struct pair p;
        pair_start(&p, versions[i], NULL);
        struct client c = tls_dial(&p.s, p.ctx, "\x08http/1.1");
        assert_non_null(c.tls);
        assert_int_equal(SSL_version(c.tls), versions[i]);
        for (int k = 0; k < 3; k++) {
            assert_true(say(&c, "GET /a HTTP/1.1\r\nhost: x\r\n\r\n"));
            expect_response(&c, 200, "GET /a?");
        }
        /* Two in one record, and one in two. */
        assert_true(
            say(&c, "GET /b HTTP/1.1\r\nhost: x\r\n\r\nGET /c HTTP/1.1\r\nhost: x\r\n\r\n"));
        expect_response(&c, 200, "GET /b?");
        expect_response(&c, 200, "GET /c?");
        assert_true(say(&c, "GET /d HTTP/1.1\r\nho"));
        assert_true(say(&c, "st: x\r\nconnection: close\r\n\r\n"));
        expect_response(&c, 200, "GET /d?");
        assert_false(hear(&c));
        assert_int_equal(SSL_get_shutdown(c.tls) & SSL_RECEIVED_SHUTDOWN, SSL_RECEIVED_SHUTDOWN);
        tls_hang_up(&c);
        pair_stop(&p);
    }
}

/* The first frame of an HTTP/2 server. */
static void expect_settings(struct client *c)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";

    assert_true(send_all(c, preface, sizeof preface - 1));
    assert_true(hear_bytes(c, 9));
    assert_int_equal(c->buf[3], 4);
}

static void test_alpn(void **state)
{
    const unsigned char *chosen;
    unsigned len;
    struct pair p;

    (void)state;
    pair_start(&p, TLS1_3_VERSION, NULL);
    struct client c = tls_dial(&p.s, p.ctx, "\x08http/1.1\x02h2");
    SSL_get0_alpn_selected(c.tls, &chosen, &len);
    assert_int_equal(len, 2);
    expect_settings(&c);
    tls_hang_up(&c);

    /* Nothing chosen: the first bytes decide. */
    c = tls_dial(&p.s, p.ctx, NULL);
    expect_settings(&c);
    tls_hang_up(&c);

    /* What was chosen holds. */
    c = tls_dial(&p.s, p.ctx, "\x08http/1.1");
    assert_true(say(&c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
    struct response r;
    hear_response(&c, &r, false);
    assert_in_range(r.status, 400, 505);
    free(r.body);
    tls_hang_up(&c);

    c = tls_dial(&p.s, p.ctx,
                 "\x03"
                 "foo");
    assert_null(c.tls);
    assert_int_equal(ERR_GET_REASON(ERR_peek_last_error()),
                     SSL_AD_REASON_OFFSET + SSL_AD_NO_APPLICATION_PROTOCOL);
    tls_hang_up(&c);
    pair_stop(&p);
}

static void test_large_bodies(void **state)
{
    size_t n = (size_t)9 * 1000 * 1000 + 7;
    char *body = malloc(n);
    char head[200];

    (void)state;
    fill_pattern(body, n);
    for (size_t i = 0; i < COUNT(versions); i++) {
        struct pair p;
        pair_start(&p, versions[i], NULL);
        struct client c = tls_dial(&p.s, p.ctx, NULL);
        snprintf(head, sizeof head, "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: %zu\r\n\r\n",
                 n);
        assert_true(say(&c, head));
        assert_true(send_all(&c, body, n));
        struct response r;
        hear_response(&c, &r, false);
        assert_int_equal(r.status, 200);
        assert_int_equal(r.len, n);
        assert_memory_equal(r.body, body, n);
        free(r.body);
        for (int parts = -1; parts < 40; parts += 20) {
            snprintf(head, sizeof head,
                     "GET /bytes HTTP/1.1\r\nhost: x\r\nx-bytes: 3000001\r\nx-parts: %d\r\n\r\n",
                     parts);
            assert_true(say(&c, head));
            hear_response(&c, &r, false);
            assert_int_equal(r.len, 3000001);
            for (size_t k = 0; k < r.len; k += 997) {
                assert_int_equal(r.body[k], 'a' + k % 26);
            }
            free(r.body);
        }
        tls_hang_up(&c);
        pair_stop(&p);
    }
    free(body);
}

/* A reader with little room that lets everything wait: records are taken in parts. */
static void test_slow_reader(void **state)
{
    struct pair p;
    int small = 65536;

    (void)state;
    pair_start(&p, TLS1_3_VERSION, NULL);
    for (int parts = -1; parts < 9; parts += 3) {
        char head[200];
        struct client c = tls_dial(&p.s, p.ctx, NULL);
        setsockopt(c.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        snprintf(head, sizeof head,
                 "GET /bytes HTTP/1.1\r\nhost: x\r\nx-bytes: 7000003\r\nx-parts: %d\r\n\r\n"
                 "GET /z HTTP/1.1\r\nhost: x\r\n\r\n",
                 parts);
        assert_true(say(&c, head));
        usleep(20000);
        struct response r;
        hear_response(&c, &r, false);
        assert_int_equal(r.len, 7000003);
        for (size_t k = 0; k < r.len; k += 991) {
            assert_int_equal(r.body[k], 'a' + k % 26);
        }
        free(r.body);
        expect_response(&c, 200, "GET /z?");
        tls_hang_up(&c);
    }
    pair_stop(&p);
}

/* Input that OpenSSL holds while the reader does not read: the socket would not report it. */
static void test_paused_reader(void **state)
{
    struct pair p;
    size_t n = 300000;
    char *body = calloc(1, n);
    char expected[64];
    char head[100];

    (void)state;
    fill_pattern(body, n);
    snprintf(expected, sizeof expected, "bytes=%zu sum=%zx", n, sum_on(0, body, n));
    pair_start(&p, TLS1_3_VERSION, NULL);
    struct client c = tls_dial(&p.s, p.ctx, NULL);
    for (int i = 0; i < 3; i++) {
        snprintf(head, sizeof head,
                 "POST /pause HTTP/1.1\r\nhost: x\r\ncontent-length: %zu\r\n\r\n", n);
        assert_true(say(&c, head));
        assert_true(send_all(&c, body, n));
        expect_response(&c, 200, expected);
    }
    tls_hang_up(&c);
    free(body);
    pair_stop(&p);
}

/* More requests than the connection's buffer holds, in full records, while the first one waits. */
static void test_pipeline_behind_a_wait(void **state)
{
    static const char one[] = "GET /p HTTP/1.1\r\nhost: x\r\n\r\n";
    enum { MANY = 3000 };
    char *all = malloc(MANY * sizeof one);
    size_t len = 0;
    struct pair p;

    (void)state;
    pair_start(&p, TLS1_3_VERSION, NULL);
    struct client c = tls_dial(&p.s, p.ctx, NULL);
    for (int i = 0; i < MANY; i++) {
        memcpy(all + len, one, sizeof one - 1);
        len += sizeof one - 1;
    }
    assert_true(say(&c, "GET /later HTTP/1.1\r\nhost: x\r\n\r\n"));
    assert_true(wait_until(&p.s.pending_count, 1));
    assert_true(send_all(&c, all, len));
    release_later(&p.s);
    expect_response(&c, 200, "late");
    for (int i = 0; i < MANY; i++) {
        expect_response(&c, 200, "GET /p?");
    }
    tls_hang_up(&c);
    free(all);
    pair_stop(&p);
}

static void test_half_close(void **state)
{
    struct pair p;

    (void)state;
    pair_start(&p, TLS1_3_VERSION, NULL);
    for (int i = 0; i < 20; i++) {
        struct client c = tls_dial(&p.s, p.ctx, NULL);
        int on = 1;
        /* Corked, so that the server reads both at once. */
        setsockopt(c.fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on);
        assert_true(say(&c, "GET /h HTTP/1.1\r\nhost: x\r\n\r\n"));
        SSL_shutdown(c.tls);
        on = 0;
        setsockopt(c.fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on);
        expect_response(&c, 200, "GET /h?");
        assert_false(hear(&c));
        assert_int_equal(SSL_get_shutdown(c.tls) & SSL_RECEIVED_SHUTDOWN, SSL_RECEIVED_SHUTDOWN);
        tls_hang_up(&c);
    }
    pair_stop(&p);
}

static void test_new_keys_and_renegotiation(void **state)
{
    struct pair p;

    (void)state;
    pair_start(&p, TLS1_3_VERSION, NULL);
    struct client c = tls_dial(&p.s, p.ctx, NULL);
    for (int i = 0; i < 5; i++) {
        SSL_key_update(c.tls, SSL_KEY_UPDATE_REQUESTED);
        assert_true(say(&c, "GET /k HTTP/1.1\r\nhost: x\r\n\r\n"));
        expect_response(&c, 200, "GET /k?");
    }
    tls_hang_up(&c);
    pair_stop(&p);

    pair_start(&p, TLS1_2_VERSION, NULL);
    c = tls_dial(&p.s, p.ctx, NULL);
    SSL_renegotiate(c.tls);
    assert_int_not_equal(SSL_do_handshake(c.tls), 1);
    tls_hang_up(&c);
    expect_works(&p);
    pair_stop(&p);
}

/* ---- bytes in pieces ---- */

/* A client whose ciphertext goes through our hands. */
static SSL *memory_client(struct pair *p)
{
    SSL *ssl = SSL_new(p->ctx);

    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_connect_state(ssl);
    return ssl;
}

/* What it has to send: in two pieces (cut > 0), byte by byte (0), or at once (-1). */
static void pump_out(SSL *ssl, int fd, long cut)
{
    char *data;
    long n = BIO_get_mem_data(SSL_get_wbio(ssl), &data);

    for (long at = 0; at < n;) {
        long part = cut < 0 ? n : cut == 0 ? 1 : at == 0 && cut < n ? cut : n - at;
        assert_int_equal(send(fd, data + at, (size_t)part, MSG_NOSIGNAL), part);
        at += part;
        if (at < n && cut > 0) {
            usleep(300);
        }
    }
    (void)BIO_reset(SSL_get_wbio(ssl));
}

static void pump_in(SSL *ssl, int fd)
{
    char buf[4096];
    ssize_t n = recv(fd, buf, sizeof buf, 0);

    assert_true(n > 0);
    BIO_write(SSL_get_rbio(ssl), buf, (int)n);
}

static void talk_in_pieces(struct pair *p, long hello_cut, long request_cut)
{
    int fd = dial_raw(p->s.port);
    SSL *ssl = memory_client(p);
    char answer[512];
    int on = 1;
    int n;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    while (SSL_do_handshake(ssl) != 1) {
        pump_out(ssl, fd, hello_cut);
        pump_in(ssl, fd);
    }
    pump_out(ssl, fd, hello_cut);
    SSL_write(ssl, "GET /i HTTP/1.1\r\nhost: x\r\n\r\n", 28);
    pump_out(ssl, fd, request_cut);
    while ((n = SSL_read(ssl, answer, sizeof answer - 1)) <= 0) {
        assert_int_equal(SSL_get_error(ssl, n), SSL_ERROR_WANT_READ);
        pump_in(ssl, fd);
    }
    answer[n] = '\0';
    assert_memory_equal(answer, "HTTP/1.1 200", 12);
    SSL_free(ssl);
    close(fd);
}

static void test_every_boundary(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(versions); i++) {
        struct pair p;
        pair_start(&p, versions[i], NULL);
        talk_in_pieces(&p, 0, 0);
        for (long cut = 1; cut < 60; cut++) {
            talk_in_pieces(&p, cut * 5, cut);
        }
        pair_stop(&p);
    }
}

/* ---- peers that misbehave ---- */

static void reset(int fd)
{
    struct linger now = {1, 0};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(fd);
}

/* The first bytes of a client, into buf; returns their number. */
static long client_hello(struct pair *p, char *buf, size_t size)
{
    SSL *ssl = memory_client(p);
    char *data;

    SSL_do_handshake(ssl);
    long n = BIO_get_mem_data(SSL_get_wbio(ssl), &data);
    assert_true(n > 20 && (size_t)n <= size);
    memcpy(buf, data, (size_t)n);
    SSL_free(ssl);
    return n;
}

static void test_vanishing(void **state)
{
    struct pair p;
    char hello[4096];
    int count = 0;

    (void)state;
    pair_start(&p, TLS1_3_VERSION, NULL);
    long n = client_hello(&p, hello, sizeof hello);
    for (long part = 1; part <= n; part += part < n && part + 37 > n ? n - part : 37) {
        for (int hard = 0; hard < 2; hard++) {
            int fd = dial_raw(p.s.port);
            assert_int_equal(send(fd, hello, (size_t)part, MSG_NOSIGNAL), part);
            if (part == n) {
                char byte;
                assert_int_equal(recv(fd, &byte, 1, 0), 1);
            }
            hard ? reset(fd) : close(fd);
            count++;
        }
    }
    /* A reset may take the bytes with it before they are seen; an end does not, but for the last one,
     * which leaves bytes of the server unread. */
    assert_true(wait_until(&p.s.bad_starts, count / 2 - 1));
    expect_bad_start(&p.s, "the client has gone in the middle of it");
    expect_works(&p);
    pair_stop(&p);
}

static void test_handshake_timeout(void **state)
{
    struct mr_http_options o;
    struct pair p;
    char hello[4096];

    (void)state;
    mr_http_options_init(&o);
    o.header_timeout_ns = 3 * MR_NS_PER_S;
    pair_start(&p, TLS1_3_VERSION, &o);
    long n = client_hello(&p, hello, sizeof hello);
    struct client silent = dial(&p.s);
    struct client half = dial(&p.s);
    struct client whole = dial(&p.s);
    assert_true(send_all(&half, hello, (size_t)n / 2));
    assert_true(send_all(&whole, hello, (size_t)n));
    assert_false(hear(&silent));
    assert_false(hear(&half));
    assert_true(hear(&whole)); /* the server's flight, and nothing after it */
    while (hear(&whole)) {
    }
    assert_int_equal(mr_count_get(&mr_loop_stats(p.s.loops[0])->timeouts), 3);
    hang_up(&silent);
    hang_up(&half);
    hang_up(&whole);
    expect_works(&p);
    pair_stop(&p);
}

static void test_plain_http(void **state)
{
    static const char *const starts[] = {"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
                                         "OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n",
                                         "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"};
    struct pair p;

    (void)state;
    pair_start(&p, TLS1_3_VERSION, NULL);
    for (size_t i = 0; i < COUNT(starts); i++) {
        struct client c = dial(&p.s);
        assert_true(say(&c, starts[i]));
        expect_response(&c, 400, "{\"error\":\"this port speaks TLS: use https\"}\n");
        expect_end(&c);
        hang_up(&c);
        expect_bad_start(&p.s, "the client speaks HTTP without TLS");
    }
    assert_int_equal(p.s.bad_starts, COUNT(starts));
    expect_works(&p);
    pair_stop(&p);
}

static void test_garbage(void **state)
{
    struct pair p;
    uint32_t x = 12345;
    char hello[4096];

    (void)state;
    pair_start(&p, TLS1_3_VERSION, NULL);
    long n = client_hello(&p, hello, sizeof hello);
    for (int i = 0; i < 150; i++) {
        struct client c = dial(&p.s);
        char bytes[4096];
        memcpy(bytes, hello, (size_t)n);
        for (int k = 0; k < 1 + i % 7; k++) {
            x = x * 1664525 + 1013904223;
            bytes[(x >> 8) % (uint32_t)n] = (char)x;
        }
        if (i % 3 == 0) {
            memset(bytes, 0xa5 + i, (size_t)n);
        }
        assert_true(send_all(&c, bytes, (size_t)n));
        shutdown(c.fd, SHUT_WR);
        while (hear(&c)) {
        }
        hang_up(&c);
    }
    expect_works(&p);

    /* A record that is damaged after the handshake ends that connection only. */
    struct client c = tls_dial(&p.s, p.ctx, NULL);
    static const char damaged[] = "\x17\x03\x03\x00\x20 this is no ciphertext, is it? no";
    assert_int_equal(send(c.fd, damaged, sizeof damaged - 1, MSG_NOSIGNAL), sizeof damaged - 1);
    assert_false(hear(&c));
    tls_hang_up(&c);
    expect_works(&p);
    pair_stop(&p);
}

static void test_tls_on_a_plain_port(void **state)
{
    struct server s;
    SSL_CTX *ctx = client_context(&files, TLS1_3_VERSION, NULL);

    (void)state;
    server_start(&s);
    struct client c = tls_dial(&s, ctx, NULL);
    assert_null(c.tls);
    tls_hang_up(&c);
    assert_int_equal(s.bad_starts, 1);
    expect_bad_start(&s, "the client speaks TLS, which this port does not");
    SSL_CTX_free(ctx);
    server_stop(&s);
}

static void test_too_many_connections(void **state)
{
    struct mr_http_options o;
    struct pair p;

    (void)state;
    mr_http_options_init(&o);
    o.max_connections = 1;
    pair_start(&p, TLS1_3_VERSION, &o);
    struct client first = tls_dial(&p.s, p.ctx, NULL);
    assert_non_null(first.tls);
    struct client second = tls_dial(&p.s, p.ctx, NULL);
    assert_null(second.tls);
    assert_int_equal(ERR_GET_REASON(ERR_peek_last_error()),
                     SSL_AD_REASON_OFFSET + SSL_AD_INTERNAL_ERROR);
    tls_hang_up(&second);
    tls_hang_up(&first);
    pair_stop(&p);
}

/* ---- who may come in ---- */

static void test_mutual(void **state)
{
    struct mr_tls *tls = files_open(&files, true, false);
    struct identity stranger_ca = identity_new("other authority", NULL, 10);
    struct identity good = identity_new("good", &files.authority, 10);
    struct identity old = identity_new("old", &files.authority, 0);
    struct identity stranger = identity_new("stranger", &stranger_ca, 10);
    const struct identity *bad[] = {NULL, &old, &stranger};
    const char *why[] = {"peer did not return a certificate", "expired", "unable to get"};
    struct mr_http_options o;
    struct server s;

    (void)state;
    mr_http_options_init(&o);
    server_start_tls(&s, &o, 1, "127.0.0.1:0", tls);
    for (size_t v = 0; v < COUNT(versions); v++) {
        for (size_t i = 0; i < COUNT(bad); i++) {
            SSL_CTX *ctx = client_context(&files, versions[v], bad[i]);
            struct client c = tls_dial(&s, ctx, NULL);
            assert_true(is_refused(&c));
            assert_true(wait_until(&s.bad_starts, (int)(v * COUNT(bad) + i + 1)));
            expect_bad_start(&s, why[i]);
            SSL_CTX_free(ctx);
        }
        SSL_CTX *ctx = client_context(&files, versions[v], &good);
        struct client c = tls_dial(&s, ctx, NULL);
        assert_true(say(&c, "GET /m HTTP/1.1\r\nhost: x\r\n\r\n"));
        expect_response(&c, 200, "GET /m?");
        tls_hang_up(&c);
        SSL_CTX_free(ctx);
    }
    assert_int_equal(atomic_load(&s.bodies), COUNT(versions));
    server_stop(&s);
    mr_tls_free(&tls);
    identity_free(&stranger_ca);
    identity_free(&good);
    identity_free(&old);
    identity_free(&stranger);
}

static void test_old_and_weak(void **state)
{
    static const char *const weak[] = {"AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-SHA", "AES256-SHA",
                                       "ECDHE-ECDSA-NULL-SHA", "AECDH-AES128-SHA"};
    struct mr_tls *only_13 = files_open(&files, false, true);
    struct mr_http_options o;
    struct server s;
    struct pair p;

    (void)state;
    pair_start(&p, TLS1_1_VERSION, NULL);
    struct client c = tls_dial(&p.s, p.ctx, NULL);
    assert_true(is_refused(&c));
    for (size_t i = 0; i < COUNT(weak); i++) {
        SSL_CTX *ctx = client_context(&files, TLS1_2_VERSION, NULL);
        assert_int_equal(SSL_CTX_set_cipher_list(ctx, weak[i]), 1);
        c = tls_dial(&p.s, ctx, NULL);
        assert_true(is_refused(&c));
        SSL_CTX_free(ctx);
    }
    pair_stop(&p);

    mr_http_options_init(&o);
    server_start_tls(&s, &o, 1, "127.0.0.1:0", only_13);
    for (size_t i = 0; i < COUNT(versions); i++) {
        SSL_CTX *ctx = client_context(&files, versions[i], NULL);
        c = tls_dial(&s, ctx, NULL);
        assert_int_equal(is_refused(&c), versions[i] != TLS1_3_VERSION);
        SSL_CTX_free(ctx);
    }
    server_stop(&s);
    mr_tls_free(&only_13);
}

static SSL_SESSION *kept;

static int keep_session(SSL *ssl, SSL_SESSION *session)
{
    (void)ssl;
    SSL_SESSION_free(kept);
    kept = session;
    return 1;
}

static void test_resumption_on_any_loop(void **state)
{
    struct mr_tls *tls = files_open(&files, true, false);
    struct identity own = identity_new("client", &files.authority, 10);
    struct mr_http_options o;
    struct server s;

    (void)state;
    mr_http_options_init(&o);
    server_start_tls(&s, &o, 2, "127.0.0.1:0", tls);
    for (size_t v = 0; v < COUNT(versions); v++) {
        SSL_CTX *ctx = client_context(&files, versions[v], &own);
        SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
        SSL_CTX_sess_set_new_cb(ctx, keep_session);
        for (int i = 0; i < 12; i++) {
            int fd = dial_raw(s.port);
            SSL *ssl = SSL_new(ctx);
            SSL_set_fd(ssl, fd);
            if (kept) {
                SSL_set_session(ssl, kept);
            }
            assert_int_equal(SSL_connect(ssl), 1);
            assert_int_equal(SSL_session_reused(ssl), i > 0);
            struct client c = over_ssl(fd, ssl);
            assert_true(say(&c, "GET /r HTTP/1.1\r\nhost: x\r\n\r\n"));
            expect_response(&c, 200, "GET /r?");
            tls_hang_up(&c);
        }
        SSL_SESSION_free(kept);
        kept = NULL;
        SSL_CTX_free(ctx);
    }
    uint64_t resumed = mr_count_get(&mr_loop_stats(s.loops[0])->tls_resumed) +
                       mr_count_get(&mr_loop_stats(s.loops[1])->tls_resumed);
    assert_int_equal(resumed, 11 * COUNT(versions));
    server_stop(&s);
    mr_tls_free(&tls);
    identity_free(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_http1),
        cmocka_unit_test(test_alpn),
        cmocka_unit_test(test_large_bodies),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_paused_reader),
        cmocka_unit_test(test_pipeline_behind_a_wait),
        cmocka_unit_test(test_half_close),
        cmocka_unit_test(test_new_keys_and_renegotiation),
        cmocka_unit_test(test_every_boundary),
        cmocka_unit_test(test_vanishing),
        cmocka_unit_test(test_handshake_timeout),
        cmocka_unit_test(test_plain_http),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_tls_on_a_plain_port),
        cmocka_unit_test(test_too_many_connections),
        cmocka_unit_test(test_mutual),
        cmocka_unit_test(test_old_and_weak),
        cmocka_unit_test(test_resumption_on_any_loop),
    };
    signal(SIGPIPE, SIG_IGN); /* of the client */
    return cmocka_run_group_tests(tests, setup, teardown);
}
