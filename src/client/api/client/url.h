/* Addresses of servers as users write them. Any thread. */
#ifndef MR_CLIENT_URL_H
#define MR_CLIENT_URL_H

#include "base/err.h"

struct mr_url {
    bool has_scheme;
    bool is_grpc;  /* grpc://, grpcs:// */
    bool is_tls;   /* https://, grpcs:// */
    bool has_port; /* or is the path of a socket */
    char address
        [256]; /* for mr_client_new: "host:port", "[v6]:port" or "unix:/path"; without a port that was not given */
    char path[256]; /* what follows the host, as in "/v1"; "" for nothing or a slash */
};

/** [SCHEME://]HOST[:PORT][/PATH] or [SCHEME://]unix:/SOCKET; SCHEME is http, https, grpc or grpcs. Errors: MR_E_INVALID. */
int mr_url_parse(const char *text, struct mr_url *out, struct mr_err *err);
/** Reads the scheme alone, into an *out without address; returns what follows it. */
const char *mr_url_scheme(const char *text, struct mr_url *out);
/** Adds the port to an address that has none. Errors: MR_E_INVALID (too long). */
int mr_url_default_port(struct mr_url *url, int port, struct mr_err *err);

#endif
