/* The TLS transport of server connections: OpenSSL between the socket and the connection.
 *
 * Reading: OpenSSL takes as much from the socket as it has room for (one system call for a small
 * request) and decrypts into the reader's memory. A poll does not report data that OpenSSL holds because the reader
 * has no room: c->input_inside does.
 *
 * Writing: as few and as large records as possible, straight from the queue's memory if the bytes fill a record, else
 * gathered in a buffer of the loop. A record that the socket did not take stays inside OpenSSL and counts as not
 * written; the next call offers the same bytes, perhaps with more after them, as the queue of a connection only grows
 * at its end.
 *
 * A handshake that fails leaves a plain connection: OpenSSL's alert has been sent, or an HTTP answer follows for a
 * client that does not speak TLS; the peer's input is read and dropped for a moment, as otherwise the answer would be
 * lost.
 *
 * Thread: loop. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include <openssl/err.h>

#include "net/tls/tls_priv.h"
#include "server.h"

#define RECORD_BYTES ((size_t)16 * 1024)
/* Read at once, as more may arrive during the reads. */
#define READ_BYTES_MAX ((size_t)256 * 1024)

/* ---- the socket, as OpenSSL sees it --------------------------------------------------------- */

static int sock_read(BIO *bio, char *buf, size_t n, size_t *out)
{
    struct mr_conn *c = BIO_get_data(bio);
    ssize_t got = recv(c->fd, buf, n, 0);

    BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY | BIO_FLAGS_IN_EOF);
    if (got > 0) {
        size_t room = sizeof c->tls.first - c->tls.first_len;
        size_t copy = MR_MIN(room, (size_t)got);
        memcpy(c->tls.first + c->tls.first_len, buf, copy);
        c->tls.first_len = (uint8_t)(c->tls.first_len + copy);
        *out = (size_t)got;
        return 1;
    }
    if (got == 0) {
        BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
    } else if (errno == EAGAIN || errno == EINTR) {
        BIO_set_retry_read(bio);
    }
    return 0;
}

static int sock_write(BIO *bio, const char *buf, size_t n, size_t *out)
{
    struct mr_conn *c = BIO_get_data(bio);
    ssize_t done = send(c->fd, buf, n, MSG_NOSIGNAL | (c->tls.has_more ? MSG_MORE : 0));

    BIO_clear_retry_flags(bio);
    if (done >= 0) {
        *out = (size_t)done;
        return 1;
    }
    if (errno == EAGAIN || errno == EINTR) {
        BIO_set_retry_write(bio);
    }
    return 0;
}

static long sock_ctrl(BIO *bio, int command, long number, void *arg)
{
    (void)number;
    (void)arg;
    switch (command) {
    case BIO_CTRL_FLUSH: return 1;
    case BIO_CTRL_EOF: return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0;
    default: return 0;
    }
}

static BIO_METHOD *sock_method;
static pthread_once_t sock_once = PTHREAD_ONCE_INIT;

static void sock_method_free(void)
{
    BIO_meth_free(sock_method);
}

static void sock_method_make(void)
{
    sock_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "connection");
    BIO_meth_set_read_ex(sock_method, sock_read);
    BIO_meth_set_write_ex(sock_method, sock_write);
    BIO_meth_set_ctrl(sock_method, sock_ctrl);
    atexit(sock_method_free);
}

int mr_transport_tls_start(struct mr_conn *c, struct mr_tls *tls)
{
    pthread_once(&sock_once, sock_method_make);
    SSL *ssl = mr_tls_accepting(tls);
    BIO *bio = ssl ? BIO_new(sock_method) : NULL;

    if (!bio) {
        SSL_free(ssl);
        return UV_ENOMEM;
    }
    BIO_set_data(bio, c);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    int rc = mr_transport_plain_start(c);
    if (rc < 0) {
        SSL_free(ssl);
        return rc;
    }
    c->tls.ssl = ssl;
    return 0;
}

/* ---- handshake ------------------------------------------------------------------------------ */

/* Describes the failure for the operator. */
static void describe_failure(const struct mr_conn *c, bool is_http, char *out, size_t size)
{
    unsigned long code = ERR_peek_last_error();
    long verify = SSL_get_verify_result(c->tls.ssl);
    char reason[128];

    if (is_http) {
        snprintf(out, size, "the client speaks HTTP without TLS");
    } else if (code == 0) {
        snprintf(out, size, "the client has gone in the middle of it");
    } else if (verify != X509_V_OK) {
        snprintf(out, size, "the client's certificate is refused: %s",
                 X509_verify_cert_error_string(verify));
    } else {
        /* Reasons above the offset are alerts of the peer. */
        bool is_alert = ERR_GET_REASON(code) > SSL_AD_REASON_OFFSET;
        snprintf(out, size, "%s%s", is_alert ? "the client says: " : "",
                 mr_tls_last_error(reason, sizeof reason));
    }
}

static void answer_http(struct mr_conn *c)
{
    static const char answer[] = "HTTP/1.1 400 Bad Request\r\n"
                                 "content-type: application/json\r\n"
                                 "content-length: 44\r\n"
                                 "connection: close\r\n\r\n"
                                 "{\"error\":\"this port speaks TLS: use https\"}\n";

    mr_outq_append(&c->out, answer, sizeof answer - 1);
}

/* Continues as a plain connection that only ends. */
static int refuse(struct mr_conn *c, bool is_gone)
{
    bool is_http =
        c->tls.first_len > 0 && mr_http1_is_plausible((const char *)c->tls.first, c->tls.first_len);
    bool was_silent = c->tls.first_len == 0; /* a probe of the port */
    char why[192];

    if (!was_silent) {
        mr_count_add(&c->loop->stats.tls_failures, 1);
        describe_failure(c, is_http, why, sizeof why);
        mr_conn_bad_start(c, why);
    }
    ERR_clear_error();
    if (was_silent || is_gone) {
        return -ECONNRESET;
    }
    SSL_free(c->tls.ssl);
    c->tls.ssl = NULL;
    c->transport = &mr_transport_plain;
    if (is_http) {
        answer_http(c);
    }
    mr_conn_linger(c);
    return 0;
}

static void choose_protocol(struct mr_conn *c)
{
    const unsigned char *name = NULL;
    unsigned len = 0;

    SSL_get0_alpn_selected(c->tls.ssl, &name, &len);
    if (len == 2) {
        mr_h2_start(c);
    } else if (len > 0) {
        mr_h1_start(c);
    }
}

static int tls_handshake(struct mr_conn *c)
{
    ERR_clear_error();
    int rc = SSL_do_handshake(c->tls.ssl);

    if (rc == 1) {
        mr_count_add(&c->loop->stats.tls_handshakes, 1);
        mr_count_add(&c->loop->stats.tls_resumed, (uint64_t)SSL_session_reused(c->tls.ssl));
        c->idle_since_ns = c->loop->now_ns;
        choose_protocol(c);
        return 0;
    }
    switch (SSL_get_error(c->tls.ssl, rc)) {
    case SSL_ERROR_WANT_WRITE: c->input_blocked = true; return -EAGAIN;
    case SSL_ERROR_WANT_READ: return -EAGAIN;
    case SSL_ERROR_SSL: return refuse(c, false);
    default: return refuse(c, true);
    }
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static ssize_t read_result(struct mr_conn *c, int rc)
{
    switch (SSL_get_error(c->tls.ssl, rc)) {
    case SSL_ERROR_WANT_WRITE: c->input_blocked = true; return -EAGAIN;
    case SSL_ERROR_WANT_READ: return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN: return 0;
    default: return -EPROTO;
    }
}

static ssize_t tls_read(struct mr_conn *c, void *buf, size_t n)
{
    SSL *ssl = c->tls.ssl;
    size_t room = MR_MIN(n, READ_BYTES_MAX);
    size_t got = 0;
    size_t part = 0;

    if (c->tls.output_ended) {
        return mr_transport_plain.read(c, buf, n); /* only to be dropped */
    }
    ERR_clear_error();
    do {
        int rc = SSL_read_ex(ssl, (char *)buf + got, room - got, &part);
        if (rc != 1) {
            ssize_t failed = read_result(c, rc);
            /* The next call reports an end or an error after these bytes. */
            c->input_inside = got > 0 && failed != -EAGAIN;
            return got > 0 ? (ssize_t)got : failed;
        }
        got += part;
        c->input_inside = SSL_has_pending(ssl) == 1;
    } while (c->input_inside && got < room);
    return (ssize_t)got;
}

/* The next `n` bytes of the queue in one piece: in place, or gathered. NULL without memory. */
static const void *in_one_piece(struct mr_conn *c, const struct iovec *iov, size_t at, size_t n)
{
    size_t have = 0;

    if (iov->iov_len - at >= n) {
        return (const char *)iov->iov_base + at;
    }
    if (!c->loop->record_buf && !(c->loop->record_buf = mr_try_alloc(RECORD_BYTES))) {
        return NULL;
    }
    for (; have < n; iov++, at = 0) {
        size_t part = MR_MIN(iov->iov_len - at, n - have);
        memcpy(c->loop->record_buf + have, (const char *)iov->iov_base + at, part);
        have += part;
    }
    return c->loop->record_buf;
}

static ssize_t write_result(struct mr_conn *c, size_t done)
{
    switch (SSL_get_error(c->tls.ssl, 0)) {
    case SSL_ERROR_WANT_WRITE: return done > 0 ? (ssize_t)done : -EAGAIN;
    default: return -EPROTO;
    }
}

static ssize_t tls_write(struct mr_conn *c, const struct iovec *iov, int count)
{
    size_t left = 0;
    size_t done = 0;
    size_t at = 0; /* in *iov */

    for (int i = 0; i < count; i++) {
        left += iov[i].iov_len;
    }
    ERR_clear_error();
    while (left > 0) {
        size_t n = MR_MIN(left, RECORD_BYTES);
        size_t put = 0;
        const void *piece = in_one_piece(c, iov, at, n);
        if (!piece) {
            return -ENOMEM;
        }
        c->tls.has_more = left > n;
        int rc = SSL_write_ex(c->tls.ssl, piece, n, &put);
        c->tls.has_more = false;
        if (rc != 1) {
            return write_result(c, done);
        }
        done += put;
        left -= put;
        for (at += put; left > 0 && at >= iov->iov_len; iov++) {
            at -= iov->iov_len;
        }
    }
    return (ssize_t)done;
}

/* ---- the end -------------------------------------------------------------------------------- */

/* Sends close_notify, if the state of the connection allows it. */
static void say_end(struct mr_conn *c)
{
    if (!c->handshaking && !c->tls.output_ended) {
        ERR_clear_error();
        SSL_shutdown(c->tls.ssl);
        ERR_clear_error();
    }
    c->tls.output_ended = true;
}

static void tls_end_output(struct mr_conn *c)
{
    say_end(c);
    c->input_inside = false;
    mr_transport_plain.end_output(c);
}

static void tls_close(struct mr_conn *c)
{
    say_end(c);
    SSL_free(c->tls.ssl);
    c->tls.ssl = NULL;
    mr_transport_plain.close(c);
}

const struct mr_transport mr_transport_tls = {
    .handshake = tls_handshake,
    .read = tls_read,
    .write = tls_write,
    .want = mr_plain_want,
    .end_output = tls_end_output,
    .close = tls_close,
};
