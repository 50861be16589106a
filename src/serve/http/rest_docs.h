/* REST handlers of pages and the API's description (routes.c). */
#ifndef MR_SERVE_HTTP_REST_DOCS_H
#define MR_SERVE_HTTP_REST_DOCS_H

#include "serve/state/state.h"

void rest_docs(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_mesh_page(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_openapi(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);

#endif
