/* Dispatch of calls to REST and gRPC. */
#ifndef MR_SERVE_HTTP_HTTP_H
#define MR_SERVE_HTTP_HTTP_H

#include "net/http.h"

extern const struct mr_http_handler serve_handler;

#endif
