/* The two halves of HTTP/1: http1.c reads requests, http1_answer.c writes answers. */
#ifndef MR_NET_HTTP1_H
#define MR_NET_HTTP1_H

#include "call.h"

extern const struct mr_call_ops mr_h1_call_ops;

/** Answers {"error":"text"} and closes. Cancels the current call. */
void mr_h1_error(struct mr_conn *c, int status, const char *text);
/** "HTTP/1.1 100 Continue". */
void mr_h1_send_continue(struct mr_conn *c);
/** Detaches the current request from the connection (it was answered, or the connection ends). */
struct mr_call_impl *mr_h1_take_call(struct mr_conn *c);
/** Called when the answer is queued: continues with the next request, or closes. */
void mr_h1_answered(struct mr_conn *c, bool keep_alive);
/** True if the connection can be kept after an answer given now. */
bool mr_h1_can_keep(const struct mr_conn *c, bool wants_close);

#endif
