/* A running server, seen from a command: one call at a time, and the program waits for it. */
#ifndef MR_CLI_REMOTE_H
#define MR_CLI_REMOTE_H

#include "net/client.h"

struct mr_remote {
    struct mr_loop *loop;
    struct mr_client *client;
    char address[256]; /* for texts */
    int64_t timeout_ns;
};

/** One answer; the body stays until mr_remote_reply_fini. */
struct mr_remote_reply {
    int status; /* HTTP */
    mr_bytes body;
    struct mr_block *block;
    int64_t header_length; /* Inference-Header-Content-Length, -1 = none */
    int64_t took_ns;
};

/** url: host, host:port, http://host:port, grpc://host:port, unix:/path. Nothing is connected yet.
 *  Errors: MR_E_INVALID. */
int mr_remote_open(struct mr_remote *r, const char *url, int default_port, bool http2,
                   int64_t timeout_ns, struct mr_err *err);
void mr_remote_close(struct mr_remote *r);

/** One HTTP request. An HTTP status of 400 and more is an error with the server's text. References of the pieces
 *  are taken over. */
int mr_remote_http(struct mr_remote *r, const struct mr_client_request *request,
                   struct mr_remote_reply *out, struct mr_err *err);
/** GET, or POST of a text when body is not NULL. */
int mr_remote_text(struct mr_remote *r, const char *path, const struct mr_buf *body,
                   struct mr_remote_reply *out, struct mr_err *err);
/** One unary gRPC call. References of the pieces are taken over. */
int mr_remote_grpc(struct mr_remote *r, const char *path, const struct mr_piece *pieces,
                   size_t piece_count, struct mr_remote_reply *out, struct mr_err *err);
void mr_remote_reply_fini(struct mr_remote_reply *reply);

/** Rewrites a URL to an address for mr_client_new: "host:port" or "unix:/path". */
int mr_remote_address(const char *url, int default_port, char *out, size_t size,
                      struct mr_err *err);

#endif
