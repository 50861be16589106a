/* TLS: what a listener shows and asks of its clients, and what a client asks of its server.
 *
 * Versions below 1.2, compression, renegotiation and ciphers without forward secrecy or
 * authentication are off. A listener takes HTTP/2 and HTTP/1.1 by ALPN; a client that sends no ALPN
 * is told by its first bytes, as without TLS. */
#ifndef MR_NET_TLS_H
#define MR_NET_TLS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct mr_tls;
struct mr_tls_client;

/** Files are PEM. Strings are borrowed until mr_tls_free. */
struct mr_tls_options {
    const char *cert_file;      /* the certificate, then those that lead to its authority */
    const char *key_file;       /* its private key, without passphrase */
    const char *client_ca_file; /* clients must have a certificate of these; NULL: they need none */
    bool only_13;               /* TLS 1.3 and later */
};

/** Errors: MR_E_NOT_FOUND, MR_E_IO (a file), MR_E_INVALID (its content; both name the file, never what
 *  is in it). Thread: any. */
int mr_tls_new(struct mr_tls **out, const struct mr_tls_options *options, struct mr_err *err);
/** Connections that were made with it go on. Its listeners must be closed. Thread: any. */
void mr_tls_free(struct mr_tls **t);

/** See whether the files have changed, and take what is there for connections to come. A change is
 *  taken when two calls have found it the same, so that files that are being replaced come to rest;
 *  `now` takes what is there at once, changed or not. Returns 1 when something new was taken, 0 when
 *  not, or an error, once per change: what was in force stays. A certificate that has expired is not
 *  taken. Thread: any, one at a time. */
int mr_tls_refresh(struct mr_tls *t, bool now, struct mr_err *err);

struct mr_tls_info {
    int64_t expires_s; /* first end of a certificate of the chain, seconds since the epoch */
    int64_t lasts_s;   /* of the certificate itself, from begin to end */
    bool is_key_open;  /* users other than the owner and its group may read the key */
    char subject[128]; /* of the certificate, printable */
};
/** What is in force. Thread: any. */
void mr_tls_get_info(struct mr_tls *t, struct mr_tls_info *out);

/** All NULL: the system's authorities, no certificate of our own. Strings are borrowed until
 *  mr_tls_client_free. */
struct mr_tls_client_options {
    const char *ca_file;   /* authorities that servers are checked against */
    const char *cert_file; /* our certificate, for servers that ask for one */
    const char *key_file;  /* its key; NULL: in cert_file */
    const char
        *server_name; /* whom the certificate must name; NULL: the host that is connected to */
    bool is_insecure; /* take any certificate */
};
/** Errors: as mr_tls_new. Thread: any. */
int mr_tls_client_new(struct mr_tls_client **out, const struct mr_tls_client_options *options,
                      struct mr_err *err);
/** After the clients that use it. */
void mr_tls_client_free(struct mr_tls_client **t);

#endif
