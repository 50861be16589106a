/* Streams of requests. */
#ifndef MR_SERVE_GRPC_GRPC_STREAM_H
#define MR_SERVE_GRPC_GRPC_STREAM_H

#include "serve/state/state.h"

void stream_items_free(struct serve_loop *here);

#endif
