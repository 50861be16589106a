/* What is known of gRPC methods: where their requests name the model, and where the runtime wants its id. */
#ifndef MR_MESH_PLANE_H
#define MR_MESH_PLANE_H

#include "codec/splice.h"
#include "mesh/mesh.h"

struct mr_mesh_method {
    bool
        is_refused; /* the configuration of the data plane, or the runtime, allows some methods only, and not this one */
    bool is_listed; /* the configuration of the data plane names it */
    bool is_vmodel; /* the id at `extract` is that of a vmodel */
    struct mr_splice_path extract; /* depth 0: requests name their model in metadata */
    struct mr_splice_path inject;  /* depth 0: nowhere */
};

/** path: "/package.Service/Method". Thread: any. */
void mr_mesh_method(struct mr_mesh *m, mr_str path, struct mr_mesh_method *out);

#endif
