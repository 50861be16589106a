/* Replies of REST. On network threads. */
#ifndef MR_SERVE_STATE_REPLY_H
#define MR_SERVE_STATE_REPLY_H

#include "base/err.h"
#include "net/http.h"

void reply_json(struct mr_call *call, int http_status, mr_str body);
void reply_buf(struct mr_call *call, int http_status, const struct mr_buf *b);
void reply_empty(struct mr_call *call, int http_status);
/* What a 503 says in Retry-After, and gRPC's RESOURCE_EXHAUSTED in grpc-retry-pushback-ms: the call's retry_ms, a second
 * without one. */
uint32_t reply_retry_ms(const struct mr_call *call);
/* {"error": ...} with the status that Triton gives it; 503 carries Retry-After. */
void reply_error(struct mr_call *call, const struct mr_err *err);
void reply_error_text(struct mr_call *call, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void reply_status_text(struct mr_call *call, int http_status, const char *text);
/* 405. allowed: the methods that may be used, a list for the header Allow. */
void reply_method(struct mr_call *call, mr_str allowed, mr_str json);

#endif
