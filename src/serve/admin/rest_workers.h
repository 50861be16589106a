/* REST handler of worker processes (http/routes.c). */
#ifndef MR_SERVE_ADMIN_REST_WORKERS_H
#define MR_SERVE_ADMIN_REST_WORKERS_H

#include "serve/state/state.h"

void rest_workers(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);

#endif
