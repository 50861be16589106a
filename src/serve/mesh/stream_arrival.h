/* The first look at a stream of gRPC requests in a mesh. On the network thread of the call. */
#ifndef MR_SERVE_MESH_STREAM_ARRIVAL_H
#define MR_SERVE_MESH_STREAM_ARRIVAL_H

#include "net/grpc.h"
#include "serve/state/state.h"

/* Calls handle for the whole stream if the model of its first request is here, or not known; otherwise the stream goes to
 * another server, or waits. */
void stream_arrive(struct mr_server *s, struct mr_grpc_call *g,
                   void (*handle)(struct mr_server *s, struct mr_grpc_call *g));

#endif
