/* GET /v2/mesh/watch: the changes of a mesh's models and vmodels, as server-sent events (routes.c). */
#ifndef MR_SERVE_REST_MESH_WATCH_H
#define MR_SERVE_REST_MESH_WATCH_H

#include "serve/state/state.h"

/* What ids begin with: `prefix` in the query. */
void rest_mesh_watch(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);

#endif
