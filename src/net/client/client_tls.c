/* TLS of client connections: a filter between libuv's stream and HTTP.
 *
 * OpenSSL reads from and writes to memory: what the socket gave goes into one BIO, what is to be sent
 * is taken out of the other. The handshake belongs to connecting and shares its time limit. HTTP hands
 * over what it wants to send in portions and gets them back encrypted (mr_client_tls_seal), so that at
 * most one portion lies about twice. */
#include <openssl/err.h>

#include "client_priv.h"
#include "net/tls/tls_priv.h"

struct output {
    struct mr_client_write write;
    struct mr_buf bytes;
};

static void take_output(struct mr_client_conn *conn, struct mr_buf *out)
{
    BIO *bio = SSL_get_wbio(conn->ssl);
    char *data = NULL;
    long n = BIO_get_mem_data(bio, &data);

    mr_buf_append(out, data, n > 0 ? (size_t)n : 0);
    (void)BIO_reset(bio);
}

static void on_written(struct mr_client_write *w, int status)
{
    struct output *o = MR_CONTAINER_OF(w, struct output, write);

    (void)status; /* reading reports it as well */
    mr_buf_fini(&o->bytes);
    mr_free(o);
}

/* Of OpenSSL's own: handshakes, new keys. */
static void send_own(struct mr_client_conn *conn)
{
    if (BIO_pending(SSL_get_wbio(conn->ssl)) == 0) {
        return;
    }
    struct output *o = MR_NEW(struct output);
    mr_buf_init(&o->bytes, 0);
    take_output(conn, &o->bytes);
    uv_buf_t buf = uv_buf_init(o->bytes.ptr, (unsigned)o->bytes.len);
    o->write.pass_fd = -1;
    if (mr_client_conn_write(conn, &o->write, &buf, 1, on_written) != 0) {
        on_written(&o->write, 0);
    }
}

static const char *describe(const struct mr_client_conn *conn, char *out, size_t size)
{
    unsigned long code = ERR_peek_last_error();
    long verify = SSL_get_verify_result(conn->ssl);
    char reason[128];

    if (!conn->is_tls_open && verify != X509_V_OK) {
        snprintf(out, size, "the server's certificate is not trusted: %s",
                 X509_verify_cert_error_string(verify));
    } else if (ERR_GET_REASON(code) == SSL_R_WRONG_VERSION_NUMBER) {
        snprintf(out, size, "the server does not speak TLS");
    } else {
        bool is_alert = ERR_GET_REASON(code) > SSL_AD_REASON_OFFSET;
        snprintf(out, size, "TLS: %s%s", is_alert ? "the server says: " : "",
                 mr_tls_last_error(reason, sizeof reason));
    }
    ERR_clear_error();
    return out;
}

/* True when it is over and the connection can be used. */
static bool shake(struct mr_client_conn *conn)
{
    char why[192];

    ERR_clear_error();
    int rc = SSL_do_handshake(conn->ssl);
    int what = SSL_get_error(conn->ssl, rc);
    if (rc != 1 && what != SSL_ERROR_WANT_READ) {
        describe(conn, why, sizeof why);
        mr_client_conn_connect_failed(conn, why);
        return false;
    }
    send_own(conn);
    if (rc != 1) {
        return false;
    }
    conn->is_tls_open = true;
    mr_client_conn_usable(conn);
    return conn->state == MR_CONN_OPEN;
}

int mr_client_tls_begin(struct mr_client_conn *conn)
{
    const struct mr_client *c = conn->client;

    conn->ssl =
        mr_tls_connecting(c->options.tls, c->is_unix ? "localhost" : c->host, c->options.http2);
    BIO *in = conn->ssl ? BIO_new(BIO_s_mem()) : NULL;
    BIO *out = in ? BIO_new(BIO_s_mem()) : NULL;
    if (!out) {
        BIO_free(in);
        return UV_ENOMEM;
    }
    SSL_set_bio(conn->ssl, in, out);
    shake(conn);
    return 0;
}

void mr_client_tls_read(struct mr_client_conn *conn, mr_bytes data)
{
    size_t n = 0;
    int rc = 1;
    char why[192];

    BIO_write(SSL_get_rbio(conn->ssl), data.ptr, (int)data.len);
    if (!conn->is_tls_open && !shake(conn)) {
        return;
    }
    while (rc == 1 && conn->state == MR_CONN_OPEN) {
        uv_buf_t to;
        mr_client_conn_room(conn, &to); /* the ciphertext that may lie there has been copied */
        ERR_clear_error();
        rc = SSL_read_ex(conn->ssl, to.base, to.len, &n);
        if (rc == 1) {
            mr_client_conn_deliver(conn, (mr_bytes){(const uint8_t *)to.base, n});
        }
    }
    if (conn->state != MR_CONN_OPEN) {
        return;
    }
    switch (SSL_get_error(conn->ssl, rc)) {
    case SSL_ERROR_WANT_READ: send_own(conn); break;
    case SSL_ERROR_ZERO_RETURN: mr_client_conn_ended(conn, true); break;
    default:
        describe(conn, why, sizeof why);
        mr_client_conn_fail_later(conn, MR_E_UNAVAILABLE, why);
    }
}

bool mr_client_tls_seal(struct mr_client_conn *conn, struct mr_buf *io)
{
    size_t done = 0;
    size_t part = 0;

    ERR_clear_error();
    while (done < io->len && SSL_write_ex(conn->ssl, io->ptr + done, io->len - done, &part) == 1) {
        done += part;
    }
    bool is_done = done == io->len;
    mr_buf_reset(io);
    take_output(conn, io);
    return is_done && !io->failed;
}

void mr_client_tls_end(struct mr_client_conn *conn)
{
    struct mr_buf last;

    if (!conn->is_tls_open || !conn->has_handle || uv_is_closing(&conn->uv.handle)) {
        return;
    }
    mr_buf_init(&last, 0);
    ERR_clear_error();
    SSL_shutdown(conn->ssl);
    take_output(conn, &last);
    if (last.len > 0) {
        mr_client_conn_write_now(conn, (mr_bytes){(const uint8_t *)last.ptr, last.len});
    }
    mr_buf_fini(&last);
}
