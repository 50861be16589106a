/* Requests and replies of gRPC as protobuf messages. On network threads. */
#ifndef MR_SERVE_STATE_GRPC_REPLY_H
#define MR_SERVE_STATE_GRPC_REPLY_H

#include "state.h"

/* Errors that a later try may not have, MR_E_EXHAUSTED, say when: in a trailer that gRPC's clients know. */
void grpc_fail_err(struct mr_grpc_call *g, const struct mr_err *err);
/* With more trailers, [count + 1], the last one unused. */
void grpc_fail_with(struct mr_grpc_call *g, const struct mr_err *err, struct mr_header *trailers,
                    size_t count);
void grpc_reply_message(struct mr_grpc_call *g, const ProtobufCMessage *m);
/* Unpacks the request into the call's arena; on failure it answers the call and returns NULL. */
void *grpc_request(struct mr_grpc_call *g, const ProtobufCMessageDescriptor *desc);
enum mr_grpc_compression grpc_compression(const struct mr_server *s);

#endif
