/* The client over TLS against our own server: HTTP/1.1 and HTTP/2, large bodies, whom it trusts. */
#include <signal.h>

#include "net/client.h"
#include "tls_fixture.h"

static struct tls_files files;

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

struct answer {
    struct mr_loop *loop;
    int rc;
    int status;
    struct mr_err err;
    size_t len;
    bool is_same;
    const char *expected; /* what the body should be; NULL: anything */
};

static void on_done(void *ctx, int rc, const struct mr_err *err, const struct mr_client_response *r)
{
    struct answer *a = ctx;

    a->rc = rc;
    a->err = rc < 0 ? *err : (struct mr_err){0};
    if (r) {
        a->status = r->status;
        a->len = r->body.len;
        a->is_same = !a->expected || memcmp(r->body.ptr, a->expected, a->len) == 0;
    }
    mr_loop_stop(a->loop);
}

/* One request over a client of its own, `times` times. */
static struct answer ask(const struct server *s, struct mr_tls_client_options o, bool http2,
                         const char *path, const char *body, size_t len, int times)
{
    struct mr_tls_client *tls = NULL;
    struct mr_client *c = NULL;
    struct answer a = {.expected = body};
    struct mr_err err;
    char address[64];

    o.ca_file = o.ca_file ? o.ca_file : files.ca;
    assert_int_equal(mr_tls_client_new(&tls, &o, &err), MR_OK);
    assert_int_equal(mr_loop_new(&a.loop, NULL, &err), MR_OK);
    snprintf(address, sizeof address, "localhost:%u", s->port);
    struct mr_client_options options = {.http2 = http2, .tls = tls};
    assert_int_equal(mr_client_new(&c, a.loop, address, &options, &err), MR_OK);
    for (int i = 0; i < times && a.rc == MR_OK; i++) {
        struct mr_piece piece = {body, len, NULL};
        struct mr_client_request r = {.method = body ? "POST" : "GET",
                                      .path = mr_str_c(path),
                                      .pieces = &piece,
                                      .piece_count = body != NULL,
                                      .timeout_ns = 30 * MR_NS_PER_S};
        mr_client_send(c, &r, on_done, &a);
        mr_loop_run(a.loop);
    }
    mr_client_free(&c);
    mr_loop_free(&a.loop);
    mr_tls_client_free(&tls);
    return a;
}

static void test_requests(void **state)
{
    size_t n = 5000011;
    char *body = malloc(n);
    struct mr_tls *tls = files_open(&files, false, false);
    struct mr_tls_client_options none = {0};
    struct mr_http_options o;
    struct server s;

    (void)state;
    fill_pattern(body, n);
    mr_http_options_init(&o);
    server_start_tls(&s, &o, 1, "127.0.0.1:0", tls);
    for (int http2 = 0; http2 < 2; http2++) {
        struct answer a = ask(&s, none, http2, "/x", NULL, 0, 5);
        assert_int_equal(a.rc, MR_OK);
        assert_int_equal(a.status, 200);
        a = ask(&s, none, http2, "/echo", body, n, 2);
        assert_int_equal(a.rc, MR_OK);
        assert_int_equal(a.len, n);
        assert_true(a.is_same);
    }
    /* Connections were kept. */
    assert_int_equal(mr_count_get(&mr_loop_stats(s.loops[0])->accepted), 4);
    server_stop(&s);
    mr_tls_free(&tls);
    free(body);
}

static void test_trust(void **state)
{
    struct identity other = identity_new("other authority", NULL, 10);
    struct mr_tls *tls = files_open(&files, true, false);
    struct identity own = identity_new("client", &files.authority, 10);
    char path[100];
    struct mr_http_options o;
    struct server s;

    (void)state;
    snprintf(path, sizeof path, "%s/other.crt", files.dir);
    write_cert(path, other.cert);
    char pair[100];
    snprintf(pair, sizeof pair, "%s/own.pem", files.dir);
    FILE *f = fopen(pair, "w");
    PEM_write_X509(f, own.cert);
    PEM_write_PrivateKey(f, own.key, NULL, NULL, 0, NULL, NULL);
    fclose(f);
    mr_http_options_init(&o);
    server_start_tls(&s, &o, 1, "127.0.0.1:0", tls);
    const struct {
        struct mr_tls_client_options o;
        const char *said; /* NULL: works */
    } rows[] = {
        {{.cert_file = pair}, NULL},
        {{.cert_file = pair, .server_name = "127.0.0.1"}, NULL},
        {{.cert_file = pair, .ca_file = path, .is_insecure = true, .server_name = "any"}, NULL},
        {{.cert_file = pair, .ca_file = path}, "not trusted: unable to get local issuer"},
        {{.cert_file = pair, .server_name = "elsewhere"}, "not trusted: hostname mismatch"},
        {{.cert_file = pair, .server_name = "127.0.0.2"}, "not trusted: IP address mismatch"},
        {{0}, "certificate required"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        for (int http2 = 0; http2 < 2; http2++) {
            struct answer a = ask(&s, rows[i].o, http2, "/x", NULL, 0, 1);
            if (!rows[i].said) {
                assert_int_equal(a.rc, MR_OK);
                continue;
            }
            assert_int_equal(a.rc, MR_E_UNAVAILABLE);
            if (!strstr(a.err.msg, rows[i].said)) {
                fail_msg("'%s' does not say '%s'", a.err.msg, rows[i].said);
            }
        }
    }
    server_stop(&s);
    server_start(&s);
    struct answer a = ask(&s, rows[0].o, false, "/x", NULL, 0, 1);
    assert_non_null(strstr(a.err.msg, "the server does not speak TLS"));
    server_stop(&s);
    mr_tls_free(&tls);
    unlink(path);
    unlink(pair);
    identity_free(&other);
    identity_free(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_requests),
                                       cmocka_unit_test(test_trust)};

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, setup, teardown);
}
