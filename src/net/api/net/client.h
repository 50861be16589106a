/* HTTP client on a loop: HTTP/1.1 and HTTP/2 (prior knowledge), gRPC unary on top. One `struct mr_client`
 * per host keeps its connections. Thread: loop. */
#ifndef MR_NET_CLIENT_H
#define MR_NET_CLIENT_H

#include "net/http.h"

struct mr_client;

struct mr_client_options {
    bool http2;              /* HTTP/2 with prior knowledge; otherwise HTTP/1.1 */
    int64_t connect_timeout_ns; /* default 5 s */
    int64_t max_response_bytes; /* default 1 GiB */
    uint32_t max_connections;   /* HTTP/1.1: default 64; HTTP/2: 1 */
};

struct mr_client_request {
    const char *method;
    mr_str path; /* with query */
    const struct mr_header *headers;
    size_t header_count;
    const struct mr_piece *pieces; /* copied or referenced as for replies */
    size_t piece_count;
    int64_t timeout_ns; /* 0 = none */
};

struct mr_client_response {
    int status; /* HTTP status */
    const struct mr_header *headers;
    size_t header_count;
    const struct mr_header *trailers; /* HTTP/2 */
    size_t trailer_count;
    mr_bytes body;
    struct mr_block *body_block; /* take a reference to keep the body */
};

/** rc: MR_OK, or MR_E_UNAVAILABLE (connect, reset), MR_E_DEADLINE, MR_E_TOO_LARGE, MR_E_INVALID (peer
 *  breaks the protocol); response NULL then. Called exactly once, never from within mr_client_send. */
typedef void(mr_client_done_fn)(void *ctx, int rc, const struct mr_err *err,
                                const struct mr_client_response *response);

/** address: "host:port" or "unix:/path". */
int mr_client_new(struct mr_client **out, struct mr_loop *loop, const char *address,
                  const struct mr_client_options *options, struct mr_err *err);
void mr_client_send(struct mr_client *c, const struct mr_client_request *request,
                    mr_client_done_fn *done, void *ctx);
/** Fails what is pending with MR_E_CANCELLED; the object goes when its handles are closed. */
void mr_client_free(struct mr_client **c);

/** gRPC unary: sends the message to /service/method, checks grpc-status. On a non-zero grpc-status rc is the
 *  matching mr_status, with grpc-message in err. `body` of the response is the message. */
void mr_client_grpc(struct mr_client *c, const char *path, const struct mr_piece *pieces, size_t piece_count,
                    int64_t timeout_ns, mr_client_done_fn *done, void *ctx);

#endif
