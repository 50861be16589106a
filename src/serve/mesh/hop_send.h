/* What goes to another server, and what of its answer goes to the client. On the network thread of the call. */
#ifndef MR_SERVE_MESH_HOP_SEND_H
#define MR_SERVE_MESH_HOP_SEND_H

#include "mesh/mesh.h"
#include "net/client.h"
#include "serve/state/state.h"

#define HOP_LOAD                                                                                   \
    "mr-mesh-load" /* header of a request that was sent on: "1": the model is to be loaded here */
#define HOP_PART                                                                                   \
    "mr-mesh-part" /* header of a request of the server to itself: it is as one of a client */
#define HOP_WHY "mr-mesh-why" /* header of its answer: why it is not answered here */
#define HOP_STATUS                                                                                 \
    "mr-mesh-status" /* header beside it, if the load failed: the name of the status; INTERNAL */

/* The thread's connections to that server; NULL: no address. */
struct mr_client *hop_client(struct serve_loop *l, const char *address);
/* The request as it came, in the call's arena, without a body, and room for two more headers. id: of the model, in place of those that the client sent; empty: it is in the
 * request. False without memory. */
bool hop_request(struct mr_call *call, mr_str id, bool load_here, struct mr_client_request *out);
/* Adds how long ago the call came. False without memory. */
bool hop_spent(const struct mr_call *call, struct mr_client_request *io);
/* Whether the server itself refuses a request; false: it is the model's answer. status: of MR_MESH_LOAD_FAILED. */
bool hop_refuses(const struct mr_client_response *r, enum mr_mesh_result *out_why, int *out_status);

/* An answer as the client gets it. */
struct hop_answer {
    struct mr_header *headers;
    size_t count;
    struct mr_header *trailers;
    size_t trailer_count;
};
/* In the call's arena, texts borrowed from r. False without memory. */
bool hop_answer(struct mr_call *call, const struct mr_client_response *r, struct hop_answer *out);

#endif
