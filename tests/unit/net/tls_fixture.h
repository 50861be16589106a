/* A listener's certificates, and a blocking TLS client. */
#ifndef TLS_FIXTURE_H
#define TLS_FIXTURE_H

#include "identity.h"
#include "net/tls.h"
#include "server_fixture.h"

static inline struct mr_tls *files_open(const struct tls_files *f, bool mutual, bool only_13)
{
    struct mr_tls_options o = {f->cert, f->key, mutual ? f->ca : NULL, only_13};
    struct mr_tls *t = NULL;
    struct mr_err err;

    if (mr_tls_new(&t, &o, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    return t;
}

/* ---- the client ---- */

static inline SSL_CTX *client_context(const struct tls_files *f, int version,
                                      const struct identity *own)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());

    SSL_CTX_set_security_level(ctx, 0);
    SSL_CTX_set_min_proto_version(ctx, version);
    SSL_CTX_set_max_proto_version(ctx, version);
    X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), f->authority.cert);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_mode(ctx, SSL_MODE_AUTO_RETRY);
    if (own) {
        SSL_CTX_use_certificate(ctx, own->cert);
        SSL_CTX_use_PrivateKey(ctx, own->key);
    }
    return ctx;
}

static inline ssize_t ssl_send(void *ssl, const void *p, size_t n)
{
    return SSL_write(ssl, p, (int)MR_MIN(n, (size_t)1 << 30));
}

static inline ssize_t ssl_recv(void *ssl, void *p, size_t n)
{
    ERR_clear_error();
    return SSL_read(ssl, p, (int)n);
}

static inline struct client over_ssl(int fd, SSL *ssl)
{
    return (struct client){.fd = fd, .tls = ssl, .tls_send = ssl_send, .tls_recv = ssl_recv};
}

/* alpn as on the wire, or NULL. `tls` of the result is NULL when the handshake failed. */
static inline struct client tls_dial(const struct server *s, SSL_CTX *ctx, const char *alpn)
{
    int fd = dial_raw(s->port);
    SSL *ssl = SSL_new(ctx);

    SSL_set_fd(ssl, fd);
    if (alpn) {
        SSL_set_alpn_protos(ssl, (const unsigned char *)alpn, (unsigned)strlen(alpn));
    }
    if (SSL_connect(ssl) != 1) {
        SSL_free(ssl);
        return (struct client){.fd = fd};
    }
    return over_ssl(fd, ssl);
}

static inline void tls_hang_up(struct client *c)
{
    ERR_clear_error();
    if (c->tls) {
        SSL_shutdown(c->tls);
        SSL_free(c->tls);
    }
    hang_up(c);
}

/* True if the handshake has failed, or with TLS 1.3 the server has refused our certificate. */
static inline bool is_refused(struct client *c)
{
    char byte;
    bool refused =
        !c->tls || (say(c, "GET / HTTP/1.1\r\nhost: x\r\n\r\n"), SSL_read(c->tls, &byte, 1) <= 0);

    tls_hang_up(c);
    return refused;
}

#endif
