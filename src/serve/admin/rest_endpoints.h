/* REST handlers of endpoints (http/routes.c), and their metrics. */
#ifndef MR_SERVE_ADMIN_REST_ENDPOINTS_H
#define MR_SERVE_ADMIN_REST_ENDPOINTS_H

#include "serve/state/state.h"

/* One endpoint, or all of them if the path has no name. */
void rest_endpoints(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_endpoint_weights(struct mr_server *s, struct mr_call *call,
                           const struct mr_oip_path *path);
void rest_endpoint_promote(struct mr_server *s, struct mr_call *call,
                           const struct mr_oip_path *path);
void rest_endpoint_rollback(struct mr_server *s, struct mr_call *call,
                            const struct mr_oip_path *path);
void rest_endpoint_resume(struct mr_server *s, struct mr_call *call,
                          const struct mr_oip_path *path);

/* metrics_endpoints.c. Thread: administration. */
void metrics_endpoints(struct mr_server *s, struct mr_buf *b);

#endif
