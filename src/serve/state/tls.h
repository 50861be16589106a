/* TLS of the listeners, and the thread that watches its files. */
#ifndef MR_SERVE_STATE_TLS_H
#define MR_SERVE_STATE_TLS_H

#include "state.h"

int serve_tls_open(struct mr_server *s, struct mr_err *err);
int serve_tls_start(struct mr_server *s, struct mr_err *err);
void serve_tls_stop(struct mr_server *s);
void serve_tls_free(struct mr_server *s);
bool serve_tls_is_on(const struct mr_server *s); /* on any listener */
/* NULL: that listener is a plain one */
struct mr_tls *serve_tls_for(const struct mr_server *s, enum listener_tag tag);
void serve_tls_bad_start(void *ctx, int tag, const char *peer, const char *why);

#endif
