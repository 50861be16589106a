/* REST handlers of the mesh (http/routes.c). */
#ifndef MR_SERVE_ADMIN_REST_MESH_H
#define MR_SERVE_ADMIN_REST_MESH_H

#include "serve/state/state.h"

#define REST_MESH_NONE "this server is in no mesh (--mesh)"

/* The value in the query, decoded, in the call's arena; empty: there is none. */
mr_str rest_mesh_query(struct mr_call *call, const char *name);

void rest_mesh(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_mesh_drain(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
/* Lists take `prefix`, `after` and `limit` from the query. */
void rest_mesh_models(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_mesh_model(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_mesh_register(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_mesh_unregister(struct mr_server *s, struct mr_call *call,
                          const struct mr_oip_path *path);
/* Answers when the load has ended, unless the query has sync=false. */
void rest_mesh_load(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_mesh_vmodels(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_mesh_vmodel(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_mesh_vmodel_set(struct mr_server *s, struct mr_call *call,
                          const struct mr_oip_path *path);
void rest_mesh_vmodel_delete(struct mr_server *s, struct mr_call *call,
                             const struct mr_oip_path *path);

#endif
