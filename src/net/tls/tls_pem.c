/* PEM files to certificates and keys.
 *
 * A file is read once, as a whole, and parsed from memory, so that a file that is being replaced is either the old or
 * the new one. Error texts name the file and the error, and never contain its content. Bytes of keys are wiped. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "base/mem.h"
#include "tls_priv.h"

#define FILE_MAX ((off_t)1024 * 1024)

struct text {
    char *ptr;
    size_t len;
    unsigned mode;
};

static void text_fini(struct text *t)
{
    if (t->ptr) {
        OPENSSL_cleanse(t->ptr, t->len);
        mr_free(t->ptr);
    }
    *t = (struct text){0};
}

const char *mr_tls_last_error(char *out, size_t size)
{
    unsigned long code = ERR_peek_last_error();
    const char *reason = code ? ERR_reason_error_string(code) : NULL;

    snprintf(out, size, "%s", reason ? reason : "unknown error");
    ERR_clear_error();
    return out;
}

static int read_all(int fd, const char *file, struct text *out, struct mr_err *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        return MR_FAIL(err, MR_E_INVALID, "%s: is not a file", file);
    }
    if (st.st_size == 0 || st.st_size > FILE_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "%s: %s", file, st.st_size ? "is too large" : "is empty");
    }
    out->mode = st.st_mode & 07777;
    out->ptr = mr_alloc((size_t)st.st_size);
    while (out->len < (size_t)st.st_size) {
        ssize_t n = read(fd, out->ptr + out->len, (size_t)st.st_size - out->len);
        if (n == 0 || (n < 0 && errno != EINTR)) {
            return MR_FAIL(err, MR_E_IO, "%s: cannot be read: %s", file,
                           n == 0 ? "it became shorter" : strerror(errno));
        }
        out->len += n > 0 ? (size_t)n : 0;
    }
    return MR_OK;
}

static int read_file(const char *file, struct text *out, struct mr_err *err)
{
    /* NONBLOCK: a pipe of that name must not block the server. */
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    *out = (struct text){0};
    if (fd < 0) {
        return MR_FAIL(err, errno == ENOENT ? MR_E_NOT_FOUND : MR_E_IO, "%s: %s", file,
                       strerror(errno));
    }
    int rc = read_all(fd, file, out, err);
    close(fd);
    if (rc < 0) {
        text_fini(out);
    }
    return rc;
}

/* "FILE: what is wrong: OpenSSL's reason" */
static int fail_ssl(struct mr_err *err, const char *file, const char *what)
{
    char why[128];

    return MR_FAIL(err, MR_E_INVALID, "%s: %s: %s", file, what, mr_tls_last_error(why, sizeof why));
}

/* Called for the passphrase of an encrypted key: there is none. */
static int no_passphrase(char *buf, int size, int writing, void *asked)
{
    (void)buf;
    (void)size;
    (void)writing;
    *(bool *)asked = true;
    return -1;
}

/* ---- certificates --------------------------------------------------------------------------- */

static int64_t expiry_of(const X509 *cert)
{
    struct tm tm;

    if (!ASN1_TIME_to_tm(X509_get0_notAfter(cert), &tm)) {
        return 0;
    }
    return (int64_t)timegm(&tm);
}

static int add_certificate(SSL_CTX *ctx, const char *file, X509 *cert, bool is_first,
                           struct mr_err *err)
{
    /* The first one is the server's own; the others are sent along with it. */
    int ok = is_first ? SSL_CTX_use_certificate(ctx, cert) : SSL_CTX_add1_chain_cert(ctx, cert);

    return ok == 1 ? MR_OK : fail_ssl(err, file, "its certificate cannot be used");
}

static int use_chain(SSL_CTX *ctx, const char *file, const struct text *t, int64_t *out_expires_s,
                     struct mr_err *err)
{
    BIO *bio = BIO_new_mem_buf(t->ptr, (int)t->len);
    int64_t first_end = INT64_MAX;
    size_t count = 0;
    int rc = MR_OK;
    X509 *cert;

    while (rc == MR_OK && (cert = PEM_read_bio_X509(bio, NULL, NULL, NULL))) {
        rc = add_certificate(ctx, file, cert, count++ == 0, err);
        first_end = MR_MIN(first_end, expiry_of(cert));
        X509_free(cert);
    }
    BIO_free(bio);
    unsigned long code = ERR_peek_last_error();
    if (rc == MR_OK && ERR_GET_REASON(code) != PEM_R_NO_START_LINE) {
        rc = fail_ssl(err, file, "a certificate in it is damaged");
    } else if (rc == MR_OK && count == 0) {
        rc = MR_FAIL(err, MR_E_INVALID, "%s: there is no certificate in it (PEM)", file);
    }
    ERR_clear_error();
    if (rc == MR_OK) {
        *out_expires_s = first_end;
    }
    return rc;
}

static int use_key(SSL_CTX *ctx, const char *file, const struct text *t, const char *cert_file,
                   struct mr_err *err)
{
    BIO *bio = BIO_new_mem_buf(t->ptr, (int)t->len);
    bool is_encrypted = false;
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, &is_encrypted);
    int rc = MR_OK;

    BIO_free(bio);
    if (!key && is_encrypted) {
        rc = MR_FAIL(err, MR_E_INVALID,
                     "%s: the key is encrypted; a key without passphrase is needed", file);
    } else if (!key) {
        rc = fail_ssl(err, file, "there is no private key in it that can be read (PEM)");
    } else if (EVP_PKEY_eq(X509_get0_pubkey(SSL_CTX_get0_certificate(ctx)), key) != 1) {
        rc = MR_FAIL(err, MR_E_INVALID, "%s: is not the key of the certificate in %s", file,
                     cert_file);
    } else if (SSL_CTX_use_PrivateKey(ctx, key) != 1) {
        rc = fail_ssl(err, file, "its key cannot be used");
    }
    EVP_PKEY_free(key);
    ERR_clear_error();
    return rc;
}

int mr_tls_use_pair(SSL_CTX *ctx, const char *cert_file, const char *key_file,
                    int64_t *out_expires_s, unsigned *out_key_mode, struct mr_err *err)
{
    struct text cert = {0};
    struct text key = {0};
    int rc;

    key_file = key_file ? key_file : cert_file;
    MR_TRY(read_file(cert_file, &cert, err));
    MR_TRY(read_file(key_file, &key, err));
    MR_TRY(use_chain(ctx, cert_file, &cert, out_expires_s, err));
    MR_TRY(use_key(ctx, key_file, &key, cert_file, err));
    *out_key_mode = key.mode;
out:
    text_fini(&cert);
    text_fini(&key);
    return rc;
}

static int add_authority(SSL_CTX *ctx, const char *file, X509 *cert, bool is_server,
                         struct mr_err *err)
{
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), cert) != 1 ||
        (is_server && SSL_CTX_add_client_CA(ctx, cert) != 1)) {
        return fail_ssl(err, file, "a certificate in it cannot be used");
    }
    return MR_OK;
}

int mr_tls_use_ca(SSL_CTX *ctx, const char *file, bool is_server, struct mr_err *err)
{
    struct text t;
    size_t count = 0;
    X509 *cert;
    int rc = read_file(file, &t, err);

    if (rc < 0) {
        return rc;
    }
    BIO *bio = BIO_new_mem_buf(t.ptr, (int)t.len);
    while (rc == MR_OK && (cert = PEM_read_bio_X509(bio, NULL, NULL, NULL))) {
        rc = add_authority(ctx, file, cert, is_server, err);
        X509_free(cert);
        count++;
    }
    BIO_free(bio);
    if (rc == MR_OK && ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE) {
        rc = fail_ssl(err, file, "a certificate in it is damaged");
    } else if (rc == MR_OK && count == 0) {
        rc = MR_FAIL(err, MR_E_INVALID, "%s: there is no certificate in it (PEM)", file);
    }
    ERR_clear_error();
    text_fini(&t);
    return rc;
}
