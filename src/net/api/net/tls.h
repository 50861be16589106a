/* TLS: certificates of listeners and clients, and the checks that each makes of its peer.
 *
 * Versions below 1.2, compression, renegotiation and ciphers without forward secrecy or
 * authentication are off. A listener offers HTTP/2 and HTTP/1.1 by ALPN; the first bytes of a client that sends no
 * ALPN decide, as without TLS. */
#ifndef MR_NET_TLS_H
#define MR_NET_TLS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct mr_tls;
struct mr_tls_client;

/** Files are PEM. Strings are borrowed until mr_tls_free. */
struct mr_tls_options {
    const char *cert_file; /* the certificate, then those that lead to its authority */
    const char *key_file;  /* its private key, without passphrase */
    /* authorities for required client certificates; NULL: clients need none */
    const char *client_ca_file;
    bool only_13; /* TLS 1.3 and later */
};

/** Errors: MR_E_NOT_FOUND, MR_E_IO (a file), MR_E_INVALID (its content; both name the file, never its content).
 *  Thread: any. */
int mr_tls_new(struct mr_tls **out, const struct mr_tls_options *options, struct mr_err *err);
/** Its connections continue. Its listeners must be closed. Thread: any. */
void mr_tls_free(struct mr_tls **t);

/** Loads the files for future connections if they have changed. A change is loaded when two calls have found the same
 *  files, so that a replacement is complete; `now` loads them at once, changed or not. Returns 1 if files were
 *  loaded, 0 if not, or an error, once per change, and then keeps the previous ones. An expired certificate is an
 *  error. Thread: any, one at a time. */
int mr_tls_refresh(struct mr_tls *t, bool now, struct mr_err *err);

struct mr_tls_info {
    int64_t expires_s; /* earliest expiry of a certificate of the chain, seconds since the epoch */
    int64_t lasts_s;   /* validity period of the certificate itself */
    bool is_key_open;  /* users other than the owner and its group may read the key */
    char subject[128]; /* of the certificate, printable */
};
/** The certificate in use. Thread: any. */
void mr_tls_get_info(struct mr_tls *t, struct mr_tls_info *out);

/** All NULL: the system's authorities, no client certificate. Strings are borrowed until mr_tls_client_free. */
struct mr_tls_client_options {
    const char *ca_file;   /* authorities for the server's certificate */
    const char *cert_file; /* the client certificate, for servers that ask for one */
    const char *key_file;  /* its key; NULL: in cert_file */
    /* name that the server's certificate must have; NULL: the host of the connection */
    const char *server_name;
    bool is_insecure; /* accept any certificate */
};
/** Errors: as mr_tls_new. Thread: any. */
int mr_tls_client_new(struct mr_tls_client **out, const struct mr_tls_client_options *options,
                      struct mr_err *err);
/** A client that shows the certificate of `t` and trusts its client authorities, as they are at each connect: for servers that
 *  call each other. `t` is borrowed until mr_tls_client_free. Errors: MR_E_INVALID (`t` has no client_ca_file). Thread: any. */
int mr_tls_client_of(struct mr_tls_client **out, struct mr_tls *t, struct mr_err *err);
/** The clients that use it must have been freed. */
void mr_tls_client_free(struct mr_tls_client **t);

#endif
