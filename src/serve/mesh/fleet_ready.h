/* Whether models that are not ready here are ready for the fleet of a mesh. On the network thread of the call. */
#ifndef MR_SERVE_MESH_FLEET_READY_H
#define MR_SERVE_MESH_FLEET_READY_H

#include "mesh/mesh.h"
#include "serve/state/state.h"

/* A question. The caller's memory, with `name` borrowed, until `done`. */
struct fleet_ready {
    void (*done)(struct fleet_ready *q, bool is_ready);
    mr_str name;    /* of a model, a vmodel, or an endpoint, which stands for its main variant */
    bool is_vmodel; /* of a vmodel only */
    /* ---- private ---- */
    struct mr_mesh_admin admin;
};

/* The server is in a mesh. The answer is what this server knows of the registry; nothing is loaded for it, and no use is counted. Always
 * `done`, later, on this thread. */
void fleet_ready_ask(struct mr_server *s, struct fleet_ready *q);

#endif
