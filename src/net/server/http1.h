/* The two halves of HTTP/1: http1.c reads requests, http1_answer.c writes answers. */
#ifndef MR_NET_HTTP1_H
#define MR_NET_HTTP1_H

#include "call.h"

extern const struct mr_call_ops mr_h1_call_ops;

/** Answer by ourselves and close: {"error":"text"}. A call at hand is cancelled. */
void mr_h1_error(struct mr_conn *c, int status, const char *text);
/** "HTTP/1.1 100 Continue". */
void mr_h1_send_continue(struct mr_conn *c);
/** The request at hand leaves the connection (it was answered, or the connection ends). */
struct mr_call_impl *mr_h1_take_call(struct mr_conn *c);
/** The answer is queued: on to the next request, or close. */
void mr_h1_answered(struct mr_conn *c, bool keep_alive);
/** Can the connection go on after an answer given now? */
bool mr_h1_can_keep(const struct mr_conn *c, bool wants_close);

#endif
