/* Files of TLS: faults in them, and reloads while connections are served. */
#include <signal.h>

#include "tls_fixture.h"

static struct tls_files files;
static struct identity second;

static int setup(void **state)
{
    (void)state;
    files_make(&files);
    second = identity_new("second", &files.authority, 10);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    identity_free(&second);
    files_free(&files);
    return 0;
}

/* As renaming does it: the content of `path` changes from one moment to the next. */
static void replace_pair(const struct identity *id)
{
    char path[100];

    snprintf(path, sizeof path, "%s.new", files.cert);
    write_cert(path, id->cert);
    rename(path, files.cert);
    snprintf(path, sizeof path, "%s.new", files.key);
    write_key(path, id->key, NULL);
    rename(path, files.key);
}

/* ---- what is wrong with files ---- */

static void expect_error(struct mr_tls_options o, int status, const char *file, const char *what)
{
    struct mr_tls *t = NULL;
    struct mr_err err;

    assert_int_equal(mr_tls_new(&t, &o, &err), status);
    assert_null(t);
    if (!strstr(err.msg, file) || !strstr(err.msg, what)) {
        fail_msg("'%s' does not say '%s' of %s", err.msg, what, file);
    }
    assert_null(strstr(err.msg, "BEGIN"));
}

static void test_bad_files(void **state)
{
    struct mr_tls_options o = {files.cert, files.key, NULL, false};
    char path[100];

    (void)state;
    snprintf(path, sizeof path, "%s/x.pem", files.dir);
    struct mr_tls_options bad_cert = {path, files.key, NULL, false};
    struct mr_tls_options bad_key = {files.cert, path, NULL, false};
    struct mr_tls_options bad_ca = {files.cert, files.key, path, false};
    expect_error(bad_cert, MR_E_NOT_FOUND, path, "No such file");
    expect_error(bad_key, MR_E_NOT_FOUND, path, "No such file");
    expect_error(bad_ca, MR_E_NOT_FOUND, path, "No such file");
    write_text(path, "");
    expect_error(bad_cert, MR_E_INVALID, path, "is empty");
    write_text(path, "secret words\n");
    expect_error(bad_cert, MR_E_INVALID, path, "there is no certificate in it");
    expect_error(bad_key, MR_E_INVALID, path, "there is no private key in it");
    expect_error(bad_ca, MR_E_INVALID, path, "there is no certificate in it");
    write_text(path, "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n");
    expect_error(bad_cert, MR_E_INVALID, path, "is damaged");
    expect_error(bad_ca, MR_E_INVALID, path, "is damaged");
    write_key(path, second.key, NULL);
    expect_error(bad_key, MR_E_INVALID, path, "is not the key of the certificate");
    write_key(path, files.server.key, "a passphrase");
    expect_error(bad_key, MR_E_INVALID, path, "is encrypted");
    unlink(path);
    o.cert_file = files.dir;
    expect_error(o, MR_E_INVALID, files.dir, "is not a file");
}

static void test_info(void **state)
{
    struct mr_tls_info info;
    int64_t now_s = mr_wall_ns() / MR_NS_PER_S;

    (void)state;
    struct mr_tls *t = files_open(&files, false, false);
    mr_tls_get_info(t, &info);
    assert_string_equal(info.subject, "CN = first");
    assert_in_range(info.expires_s, now_s + 8 * 86400, now_s + 10 * 86400);
    assert_false(info.is_key_open);
    mr_tls_free(&t);
    chmod(files.key, 0644);
    t = files_open(&files, false, false);
    mr_tls_get_info(t, &info);
    assert_true(info.is_key_open);
    mr_tls_free(&t);
    chmod(files.key, 0600);
}

/* ---- files that change ---- */

static void expect_subject(struct mr_tls *t, const char *subject)
{
    struct mr_tls_info info;

    mr_tls_get_info(t, &info);
    assert_string_equal(info.subject, subject);
}

/* In a way that can be seen: the time of a change may be that of the clock's last tick. */
static void change_rights(const char *path)
{
    struct stat before, now;

    assert_int_equal(stat(path, &before), 0);
    do {
        assert_int_equal(chmod(path, 0640), 0);
        assert_int_equal(stat(path, &now), 0);
    } while (memcmp(&now.st_ctim, &before.st_ctim, sizeof now.st_ctim) == 0);
}

static void test_refresh(void **state)
{
    struct mr_tls *t = files_open(&files, false, false);
    struct identity expired = identity_new("expired", &files.authority, 0);
    struct mr_err err;

    (void)state;
    assert_int_equal(mr_tls_refresh(t, false, &err), 0);
    /* Seen once it may still be in the making; seen twice the same it is taken. */
    replace_pair(&second);
    assert_int_equal(mr_tls_refresh(t, false, &err), 0);
    expect_subject(t, "CN = first");
    assert_int_equal(mr_tls_refresh(t, false, &err), 1);
    expect_subject(t, "CN = second");
    assert_int_equal(mr_tls_refresh(t, false, &err), 0);

    /* A certificate without its key is reported once, and the old pair stays in force. */
    write_cert(files.cert, files.server.cert);
    assert_int_equal(mr_tls_refresh(t, false, &err), 0);
    assert_int_equal(mr_tls_refresh(t, false, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "is not the key of the certificate"));
    assert_int_equal(mr_tls_refresh(t, false, &err), 0);
    expect_subject(t, "CN = second");
    /* The key follows. */
    write_key(files.key, files.server.key, NULL);
    assert_int_equal(mr_tls_refresh(t, false, &err), 0);
    assert_int_equal(mr_tls_refresh(t, false, &err), 1);
    expect_subject(t, "CN = first");

    replace_pair(&expired);
    assert_int_equal(mr_tls_refresh(t, true, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "has expired"));
    unlink(files.cert);
    assert_int_equal(mr_tls_refresh(t, true, &err), MR_E_NOT_FOUND);
    expect_subject(t, "CN = first");
    replace_pair(&files.server);
    assert_int_equal(mr_tls_refresh(t, true, &err), 1);
    change_rights(files.key);
    assert_int_equal(mr_tls_refresh(t, false, &err), 0);
    assert_int_equal(mr_tls_refresh(t, false, &err), 1);
    chmod(files.key, 0600);
    identity_free(&expired);
    mr_tls_free(&t);
}

/* As Kubernetes shows secrets: the names lead through a link that is exchanged. */
static void test_link_swap(void **state)
{
    const struct identity *ids[] = {&files.server, &second};
    char names[3][100];
    char text[120];
    struct mr_tls *t = NULL;
    struct mr_err err;

    (void)state;
    snprintf(names[0], sizeof names[0], "%s/data", files.dir);
    for (int i = 0; i < 2; i++) {
        snprintf(names[i + 1], sizeof names[i + 1], "%s/v%d", files.dir, i);
        mkdir(names[i + 1], 0700);
        snprintf(text, sizeof text, "%s/tls.crt", names[i + 1]);
        write_cert(text, ids[i]->cert);
        snprintf(text, sizeof text, "%s/tls.key", names[i + 1]);
        write_key(text, ids[i]->key, NULL);
    }
    assert_int_equal(symlink("v0", names[0]), 0);
    char cert[120];
    char key[120];
    snprintf(cert, sizeof cert, "%s/tls.crt", names[0]);
    snprintf(key, sizeof key, "%s/tls.key", names[0]);
    struct mr_tls_options o = {cert, key, NULL, false};
    assert_int_equal(mr_tls_new(&t, &o, &err), MR_OK);
    expect_subject(t, "CN = first");
    snprintf(text, sizeof text, "%s.new", names[0]);
    assert_int_equal(symlink("v1", text), 0);
    assert_int_equal(rename(text, names[0]), 0);
    assert_int_equal(mr_tls_refresh(t, false, &err), 0);
    assert_int_equal(mr_tls_refresh(t, false, &err), 1);
    expect_subject(t, "CN = second");
    mr_tls_free(&t);
    unlink(names[0]);
    for (int i = 1; i < 3; i++) {
        snprintf(text, sizeof text, "%s/tls.crt", names[i]);
        unlink(text);
        snprintf(text, sizeof text, "%s/tls.key", names[i]);
        unlink(text);
        rmdir(names[i]);
    }
}

static long serial_of(struct client *c)
{
    X509 *cert = SSL_get1_peer_certificate(c->tls);
    long serial = ASN1_INTEGER_get(X509_get_serialNumber(cert));

    X509_free(cert);
    return serial;
}

static void ask(struct client *c)
{
    assert_true(say(c, "GET /q HTTP/1.1\r\nhost: x\r\n\r\n"));
    expect_response(c, 200, "GET /q?");
}

struct traffic {
    struct server *s;
    pthread_t thread;
    _Atomic bool stop;
    _Atomic int failures;
    _Atomic int connections;
};

/* A connection after the other, each with some requests. Asserts belong to the main thread. */
static void *traffic_run(void *arg)
{
    struct traffic *t = arg;
    SSL_CTX *ctx = client_context(&files, TLS1_3_VERSION, NULL);
    char answer[512];

    while (!atomic_load(&t->stop)) {
        struct client c = tls_dial(t->s, ctx, NULL);
        bool ok = c.tls != NULL;
        for (int i = 0; ok && i < 5; i++) {
            ok = say(&c, "GET /q HTTP/1.1\r\nhost: x\r\n\r\n") &&
                 SSL_read(c.tls, answer, sizeof answer) > 0 && memcmp(answer + 9, "200", 3) == 0;
        }
        atomic_fetch_add(&t->failures, !ok);
        atomic_fetch_add(&t->connections, 1);
        tls_hang_up(&c);
    }
    SSL_CTX_free(ctx);
    return NULL;
}

static void test_reload_during_traffic(void **state)
{
    struct mr_tls *tls = files_open(&files, false, false);
    SSL_CTX *ctx = client_context(&files, TLS1_3_VERSION, NULL);
    struct mr_http_options o;
    struct traffic t[2] = {0};
    struct server s;
    struct mr_err err;

    (void)state;
    mr_http_options_init(&o);
    server_start_tls(&s, &o, 2, "127.0.0.1:0", tls);
    struct client old = tls_dial(&s, ctx, NULL);
    long first = serial_of(&old);
    for (size_t i = 0; i < COUNT(t); i++) {
        t[i].s = &s;
        pthread_create(&t[i].thread, NULL, traffic_run, &t[i]);
    }
    for (int i = 1; i <= 30; i++) {
        replace_pair(i % 2 ? &second : &files.server);
        assert_int_equal(mr_tls_refresh(tls, true, &err), 1);
        ask(&old);
        struct client c = tls_dial(&s, ctx, NULL);
        assert_non_null(c.tls);
        assert_int_equal(serial_of(&c) == first, i % 2 == 0);
        ask(&c);
        tls_hang_up(&c);
    }
    for (size_t i = 0; i < COUNT(t); i++) {
        assert_true(wait_until(&t[i].connections, 5));
        atomic_store(&t[i].stop, true);
        pthread_join(t[i].thread, NULL);
        assert_int_equal(atomic_load(&t[i].failures), 0);
    }
    assert_int_equal(serial_of(&old), first);
    ask(&old);
    tls_hang_up(&old);
    server_stop(&s);
    mr_tls_free(&tls);
    SSL_CTX_free(ctx);
}

/* A withdrawn authority counts for no new connection, resumed or not. */
static void test_new_authority(void **state)
{
    struct mr_tls *tls = files_open(&files, true, false);
    struct identity other = identity_new("other authority", NULL, 10);
    struct identity own = identity_new("client", &files.authority, 10);
    SSL_CTX *ctx = client_context(&files, TLS1_2_VERSION, &own);
    struct mr_http_options o;
    struct server s;
    struct mr_err err;

    (void)state;
    mr_http_options_init(&o);
    server_start_tls(&s, &o, 1, "127.0.0.1:0", tls);
    struct client c = tls_dial(&s, ctx, NULL);
    ask(&c);
    SSL_SESSION *session = SSL_get1_session(c.tls);
    write_cert(files.ca, other.cert);
    assert_int_equal(mr_tls_refresh(tls, true, &err), 1);
    ask(&c);
    tls_hang_up(&c);
    int fd = dial_raw(s.port);
    SSL *ssl = SSL_new(ctx);
    SSL_set_fd(ssl, fd);
    SSL_set_session(ssl, session);
    assert_int_not_equal(SSL_connect(ssl), 1);
    SSL_free(ssl);
    close(fd);
    SSL_SESSION_free(session);
    write_cert(files.ca, files.authority.cert);
    server_stop(&s);
    mr_tls_free(&tls);
    SSL_CTX_free(ctx);
    identity_free(&other);
    identity_free(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_info),
        cmocka_unit_test(test_refresh),
        cmocka_unit_test(test_link_swap),
        cmocka_unit_test(test_reload_during_traffic),
        cmocka_unit_test(test_new_authority),
    };
    signal(SIGPIPE, SIG_IGN); /* of the client */
    return cmocka_run_group_tests(tests, setup, teardown);
}
