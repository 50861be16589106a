/* The record of loads, over REST and gRPC. */
#ifndef MR_SERVE_ADMIN_RECORD_H
#define MR_SERVE_ADMIN_RECORD_H

#include "serve/state/state.h"

void record_rest(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void record_grpc(struct mr_server *s, struct mr_grpc_call *g);

#endif
