/* Certificates made for a test, and a blocking TLS client. */
#ifndef TLS_FIXTURE_H
#define TLS_FIXTURE_H

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include "net/tls.h"
#include "server_fixture.h"

struct identity {
    EVP_PKEY *key;
    X509 *cert;
};

static inline void add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;

    X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    assert_non_null(e);
    X509_add_ext(cert, e, -1);
    X509_EXTENSION_free(e);
}

/* issuer NULL: an authority. Valid from yesterday for `days` days. */
static inline struct identity identity_new(const char *name, const struct identity *issuer,
                                           int days)
{
    static long serial = 1;
    struct identity id = {EVP_EC_gen("P-256"), X509_new()};
    X509_NAME *subject = X509_get_subject_name(id.cert);

    X509_set_version(id.cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(id.cert), serial++);
    X509_gmtime_adj(X509_getm_notBefore(id.cert), -86400);
    X509_gmtime_adj(X509_getm_notAfter(id.cert), (days - 1) * 86400L);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_pubkey(id.cert, id.key);
    X509_set_issuer_name(id.cert, issuer ? X509_get_subject_name(issuer->cert) : subject);
    if (issuer) {
        add_extension(id.cert, issuer->cert, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
    } else {
        add_extension(id.cert, id.cert, NID_basic_constraints, "critical,CA:TRUE");
    }
    assert_true(X509_sign(id.cert, issuer ? issuer->key : id.key, EVP_sha256()) > 0);
    return id;
}

static inline void identity_free(struct identity *id)
{
    EVP_PKEY_free(id->key);
    X509_free(id->cert);
}

/* A folder with the files of a server: s.crt, s.key, ca.crt. */
struct tls_files {
    char dir[64];
    char cert[80];
    char key[80];
    char ca[80];
    struct identity authority;
    struct identity server;
};

static inline void write_cert(const char *path, X509 *cert)
{
    FILE *f = fopen(path, "w");
    assert_true(PEM_write_X509(f, cert));
    fclose(f);
}

static inline void write_key(const char *path, EVP_PKEY *key, const char *passphrase)
{
    FILE *f = fopen(path, "w");
    assert_true(PEM_write_PrivateKey(f, key, passphrase ? EVP_aes_128_cbc() : NULL,
                                     (const unsigned char *)passphrase,
                                     passphrase ? (int)strlen(passphrase) : 0, NULL, NULL));
    fclose(f);
    chmod(path, 0600);
}

static inline void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
}

static inline void files_make(struct tls_files *f)
{
    snprintf(f->dir, sizeof f->dir, "/tmp/mr_tls_XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->cert, sizeof f->cert, "%.60s/s.crt", f->dir);
    snprintf(f->key, sizeof f->key, "%.60s/s.key", f->dir);
    snprintf(f->ca, sizeof f->ca, "%.60s/ca.crt", f->dir);
    f->authority = identity_new("test authority", NULL, 10);
    f->server = identity_new("first", &f->authority, 10);
    write_cert(f->cert, f->server.cert);
    write_key(f->key, f->server.key, NULL);
    write_cert(f->ca, f->authority.cert);
}

static inline void files_free(struct tls_files *f)
{
    unlink(f->cert);
    unlink(f->key);
    unlink(f->ca);
    rmdir(f->dir);
    identity_free(&f->authority);
    identity_free(&f->server);
}

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
