/* Certificates made for a test. */
#ifndef IDENTITY_H
#define IDENTITY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

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

#endif
