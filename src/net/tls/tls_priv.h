/* TLS within net.
 *
 *   tls_pem.c      files to certificates and keys, with error texts
 *   tls_context.c  struct mr_tls and struct mr_tls_client: settings of OpenSSL, reload of files
 *   tls.c          the transport of server connections
 *   client_tls.c   the filter of client connections */
#ifndef MR_NET_TLS_PRIV_H
#define MR_NET_TLS_PRIV_H

#include <openssl/ssl.h>

#include "base/str.h"
#include "net/tls.h"

/* ---- tls_pem.c ---- */

/** Certificate, chain and key into ctx. key_file NULL: the key is in cert_file. *out_expires_s: first
 *  end of one of them; *out_key_mode: permissions of the key's file. Errors: as mr_tls_new. */
int mr_tls_use_pair(SSL_CTX *ctx, const char *cert_file, const char *key_file,
                    int64_t *out_expires_s, unsigned *out_key_mode, struct mr_err *err);
/** Sets the authorities for peers' certificates; is_server: clients are sent their names. */
int mr_tls_use_ca(SSL_CTX *ctx, const char *file, bool is_server, struct mr_err *err);
/** Writes the text of OpenSSL's last error on this thread to out; clears its queue. */
const char *mr_tls_last_error(char *out, size_t size);

/* ---- tls_context.c ---- */

/** A new connection with the current certificate; NULL without memory. Thread: any. */
SSL *mr_tls_accepting(struct mr_tls *t);
/** A new connection to `host`, which is verified unless is_insecure; NULL without memory. */
SSL *mr_tls_connecting(const struct mr_tls_client *t, const char *host, bool http2);

#endif
