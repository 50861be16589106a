/* REST handler of the versions of a model (http/routes.c). */
#ifndef MR_SERVE_ADMIN_REST_VERSIONS_H
#define MR_SERVE_ADMIN_REST_VERSIONS_H

#include "serve/state/state.h"

void rest_versions(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);

#endif
