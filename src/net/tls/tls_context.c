/* Shared by connections: the settings of OpenSSL, certificates, keys, authorities.
 *
 * A server's SSL_CTX is never changed once connections use it. When the files have changed, a new one replaces it;
 * connections hold references to the one that they started with. The lock guards that exchange: it is held while a
 * pointer is copied, once per new connection.
 *
 * Session tickets are the only way to resume (no cache, no lock between loops): they are encrypted with keys in the
 * SSL_CTX, so a session can be resumed on every loop, but not after a reload, which matters when a client authority
 * was withdrawn. As recorded TLS 1.2 sessions could be decrypted with these keys, the SSL_CTX is replaced once a day. */
#include <arpa/inet.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <openssl/err.h>
#include <openssl/x509v3.h>

#include "base/clock.h"
#include "base/mem.h"
#include "tls_priv.h"

#define KEYS_LAST_NS (24 * 3600 * MR_NS_PER_S)
/* Two records and their heads: a large body takes half as many reads as with OpenSSL's default size. */
#define READ_AHEAD_BYTES ((size_t)34 * 1024)
/* Authenticated encryption and forward secrecy; those of TLS 1.3 have both. */
#define CIPHERS_12 "ECDHE+AESGCM:ECDHE+CHACHA20"

enum { FILE_CERT, FILE_KEY, FILE_CA, FILES };

/* Identifies the content of a file and its rights without reading it. All zero: no such file. */
struct stamp {
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec changed;
};

struct stamps {
    struct stamp of[FILES];
};

struct mr_tls {
    struct mr_tls_options options;
    struct stamps seen;  /* at the last check */
    struct stamps tried; /* at the last load, successful or not */
    int64_t made_ns;
    pthread_mutex_t lock; /* guards ctx and info, for as long as it takes to copy them */
    SSL_CTX *ctx;
    struct mr_tls_info info;
};

struct mr_tls_client {
    SSL_CTX *ctx;
    struct mr_tls *of; /* whose context is used, ctx NULL; NULL: ctx */
    const char *server_name;
    bool is_insecure;
};

/* ---- settings ------------------------------------------------------------------------------- */

static const unsigned char alpn[] = "\x02h2\x08http/1.1";

static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                           const unsigned char *in, unsigned in_len, void *arg)
{
    (void)ssl;
    (void)arg;
    return SSL_select_next_proto((unsigned char **)(uintptr_t)out, out_len, alpn, sizeof alpn - 1,
                                 in, in_len) == OPENSSL_NPN_NEGOTIATED
               ? SSL_TLSEXT_ERR_OK
               : SSL_TLSEXT_ERR_ALERT_FATAL;
}

static SSL_CTX *context_new(bool only_13)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_method());

    if (!ctx) {
        return NULL;
    }
    SSL_CTX_set_min_proto_version(ctx, only_13 ? TLS1_3_VERSION : TLS1_2_VERSION);
    SSL_CTX_set_cipher_list(ctx, CIPHERS_12);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                              SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    return ctx;
}

static void set_server(SSL_CTX *ctx)
{
    static const unsigned char id[] = "millrace";

    /* HTTP detects truncated requests; TLS need not report them too. */
    SSL_CTX_set_options(ctx, SSL_OP_IGNORE_UNEXPECTED_EOF);
    /* Client authorities are not part of the server's chain. */
    SSL_CTX_set_mode(ctx, SSL_MODE_NO_AUTO_CHAIN);
    SSL_CTX_set_read_ahead(ctx, 1);
    SSL_CTX_set_default_read_buffer_len(ctx, READ_AHEAD_BYTES);
    SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
    SSL_CTX_set_session_id_context(ctx, id, sizeof id - 1);
}

static int fail_new(struct mr_err *err)
{
    char why[128];

    return MR_FAIL(err, MR_E_INTERNAL, "OpenSSL: %s", mr_tls_last_error(why, sizeof why));
}

/* ---- a server's files ----------------------------------------------------------------------- */

static void describe(SSL_CTX *ctx, struct mr_tls_info *info)
{
    const X509 *cert = SSL_CTX_get0_certificate(ctx);
    BIO *bio = BIO_new(BIO_s_mem());
    char *text = NULL;
    int days = 0;
    int seconds = 0;

    X509_NAME_print_ex(bio, X509_get_subject_name(cert), 0,
                       XN_FLAG_ONELINE & ~ASN1_STRFLGS_ESC_MSB);
    long len = BIO_get_mem_data(bio, &text);
    snprintf(info->subject, sizeof info->subject, "%.*s", len > 0 ? (int)len : 0,
             len > 0 ? text : "");
    BIO_free(bio);
    ASN1_TIME_diff(&days, &seconds, X509_get0_notBefore(cert), X509_get0_notAfter(cert));
    info->lasts_s = days * INT64_C(86400) + seconds;
}

static int load(const struct mr_tls_options *o, SSL_CTX **out, struct mr_tls_info *info,
                struct mr_err *err)
{
    SSL_CTX *ctx = context_new(o->only_13);
    unsigned key_mode = 0;
    int rc;

    if (!ctx) {
        return fail_new(err);
    }
    set_server(ctx);
    *info = (struct mr_tls_info){0};
    MR_TRY(mr_tls_use_pair(ctx, o->cert_file, o->key_file, &info->expires_s, &key_mode, err));
    if (o->client_ca_file) {
        MR_TRY(mr_tls_use_ca(ctx, o->client_ca_file, true, err));
        SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    }
    info->is_key_open = (key_mode & 07) != 0;
    describe(ctx, info);
    *out = ctx;
    return MR_OK;
out:
    SSL_CTX_free(ctx);
    return rc;
}

static struct stamps stamps_read(const struct mr_tls *t)
{
    const char *files[FILES] = {t->options.cert_file, t->options.key_file,
                                t->options.client_ca_file};
    struct stamps s;

    memset(&s, 0, sizeof s); /* padding too: they are compared as bytes */
    for (int i = 0; i < FILES; i++) {
        struct stat st;
        if (files[i] && stat(files[i], &st) == 0) {
            s.of[i].dev = st.st_dev;
            s.of[i].ino = st.st_ino;
            s.of[i].size = st.st_size;
            s.of[i].changed = st.st_ctim;
        }
    }
    return s;
}

static bool is_same(const struct stamps *a, const struct stamps *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

int mr_tls_new(struct mr_tls **out, const struct mr_tls_options *options, struct mr_err *err)
{
    struct mr_tls *t = MR_NEW(struct mr_tls);

    t->options = *options;
    t->seen = t->tried = stamps_read(t);
    t->made_ns = mr_now_ns();
    int rc = load(&t->options, &t->ctx, &t->info, err);
    if (rc < 0) {
        mr_free(t);
        return rc;
    }
    pthread_mutex_init(&t->lock, NULL);
    *out = t;
    return MR_OK;
}

void mr_tls_free(struct mr_tls **io_t)
{
    struct mr_tls *t = *io_t;

    *io_t = NULL;
    if (t) {
        SSL_CTX_free(t->ctx);
        pthread_mutex_destroy(&t->lock);
        mr_free(t);
    }
}

static int take(struct mr_tls *t, struct mr_err *err)
{
    struct mr_tls_info info;
    SSL_CTX *ctx = NULL;
    int rc = load(&t->options, &ctx, &info, err);

    if (rc < 0) {
        return rc;
    }
    if (info.expires_s < mr_wall_ns() / MR_NS_PER_S) {
        SSL_CTX_free(ctx);
        return MR_FAIL(err, MR_E_INVALID, "%s: the certificate has expired", t->options.cert_file);
    }
    pthread_mutex_lock(&t->lock);
    SSL_CTX *old = t->ctx;
    t->ctx = ctx;
    t->info = info;
    pthread_mutex_unlock(&t->lock);
    SSL_CTX_free(old);
    t->made_ns = mr_now_ns();
    return MR_OK;
}

int mr_tls_refresh(struct mr_tls *t, bool now, struct mr_err *err)
{
    struct stamps found = stamps_read(t);
    bool rests = is_same(&found, &t->seen);
    bool is_new = !is_same(&found, &t->tried);

    t->seen = found;
    if (!now && is_new && !rests) {
        return 0;
    }
    if (now || is_new) {
        t->tried = found;
        int rc = take(t, err);
        return rc < 0 ? rc : 1;
    }
    if (mr_now_ns() - t->made_ns > KEYS_LAST_NS && take(t, NULL) < 0) {
        t->made_ns =
            mr_now_ns(); /* the error was reported at the change; the next attempt is tomorrow */
    }
    return 0;
}

void mr_tls_get_info(struct mr_tls *t, struct mr_tls_info *out)
{
    pthread_mutex_lock(&t->lock);
    *out = t->info;
    pthread_mutex_unlock(&t->lock);
}

static SSL *connection_new(struct mr_tls *t)
{
    pthread_mutex_lock(&t->lock);
    SSL_CTX *ctx = t->ctx;
    SSL_CTX_up_ref(ctx);
    pthread_mutex_unlock(&t->lock);
    SSL *ssl = SSL_new(ctx);
    SSL_CTX_free(ctx);
    return ssl;
}

SSL *mr_tls_accepting(struct mr_tls *t)
{
    SSL *ssl = connection_new(t);

    if (ssl) {
        SSL_set_accept_state(ssl);
    }
    return ssl;
}

/* ---- a client's ----------------------------------------------------------------------------- */

static int set_client(struct mr_tls_client *t, const struct mr_tls_client_options *o,
                      struct mr_err *err)
{
    int64_t expires_s;
    unsigned key_mode;
    int rc = MR_OK;

    if (o->ca_file) {
        MR_TRY(mr_tls_use_ca(t->ctx, o->ca_file, false, err));
    } else if (SSL_CTX_set_default_verify_paths(t->ctx) != 1) {
        return fail_new(err);
    }
    if (o->cert_file) {
        MR_TRY(mr_tls_use_pair(t->ctx, o->cert_file, o->key_file, &expires_s, &key_mode, err));
    } else if (o->key_file) {
        return MR_FAIL(err, MR_E_INVALID, "%s: a key needs the certificate that it belongs to",
                       o->key_file);
    }
    SSL_CTX_set_verify(t->ctx, o->is_insecure ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
out:
    return rc;
}

int mr_tls_client_new(struct mr_tls_client **out, const struct mr_tls_client_options *options,
                      struct mr_err *err)
{
    struct mr_tls_client *t = MR_NEW(struct mr_tls_client);

    t->server_name = options->server_name;
    t->is_insecure = options->is_insecure;
    t->ctx = context_new(false);
    int rc = t->ctx ? set_client(t, options, err) : fail_new(err);
    if (rc < 0) {
        mr_tls_client_free(&t);
        return rc;
    }
    *out = t;
    return MR_OK;
}

int mr_tls_client_of(struct mr_tls_client **out, struct mr_tls *t, struct mr_err *err)
{
    if (!t->options.client_ca_file) {
        return MR_FAIL(err, MR_E_INVALID, "%s: the authorities of the other servers are not given",
                       t->options.cert_file);
    }
    struct mr_tls_client *c = MR_NEW(struct mr_tls_client);
    c->of = t;
    *out = c;
    return MR_OK;
}

void mr_tls_client_free(struct mr_tls_client **io_t)
{
    struct mr_tls_client *t = *io_t;

    *io_t = NULL;
    if (t) {
        SSL_CTX_free(t->ctx);
        mr_free(t);
    }
}

static bool is_address(const char *name)
{
    struct in6_addr a;

    return inet_pton(AF_INET, name, &a) == 1 || inet_pton(AF_INET6, name, &a) == 1;
}

/* Sets the name that the certificate must have. An address is not sent as SNI (RFC 6066 section 3). */
static bool expect_name(SSL *ssl, const char *name, bool is_checked)
{
    X509_VERIFY_PARAM *p = SSL_get0_param(ssl);

    if (is_address(name)) {
        return !is_checked || X509_VERIFY_PARAM_set1_ip_asc(p, name) == 1;
    }
    X509_VERIFY_PARAM_set_hostflags(p, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set_tlsext_host_name(ssl, name) == 1 &&
           (!is_checked || X509_VERIFY_PARAM_set1_host(p, name, 0) == 1);
}

SSL *mr_tls_connecting(const struct mr_tls_client *t, const char *host, bool http2)
{
    SSL *ssl = t->of ? connection_new(t->of) : SSL_new(t->ctx);
    const unsigned char *offer = http2 ? alpn : alpn + 3;
    unsigned offer_len = http2 ? 3 : sizeof alpn - 1 - 3;

    if (!ssl) {
        return NULL;
    }
    if (!expect_name(ssl, t->server_name ? t->server_name : host, !t->is_insecure) ||
        SSL_set_alpn_protos(ssl, offer, offer_len) != 0) {
        SSL_free(ssl);
        return NULL;
    }
    SSL_set_connect_state(ssl);
    return ssl;
}
