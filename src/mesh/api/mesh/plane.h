/* What is known of gRPC methods: where their requests name the model, and where the runtime wants its id. */
#ifndef MR_MESH_PLANE_H
#define MR_MESH_PLANE_H

#include "codec/splice.h"
#include "mesh/mesh.h"

struct mr_mesh_method {
    /* the configuration of the data plane, or the runtime, allows some methods only, and not this one */
    bool is_refused;
    bool is_vmodel;                /* the id at `extract` is that of a vmodel */
    struct mr_splice_path extract; /* depth 0: requests name their model in metadata */
    struct mr_splice_path inject;  /* depth 0: nowhere */
};

/** path: "/package.Service/Method". Thread: any. */
void mr_mesh_method(struct mr_mesh *m, mr_str path, struct mr_mesh_method *out);

/** The address for calls of the models that the runtime of this server has; NULL: the server has them. Thread: any, as what follows. */
const char *mr_mesh_runtime(const struct mr_mesh *m);

/** A model that the runtime has loaded. While a request uses it, it is not unloaded. Shared. Thread: any. */
struct mr_mesh_copy;
struct mr_mesh_copy *mr_mesh_copy_ref(struct mr_mesh_copy *c);
void mr_mesh_copy_unref(struct mr_mesh_copy **c);
/** False: it is to be unloaded, or is lost: the mesh has to be asked. True: until mr_mesh_copy_unuse the runtime has it. */
bool mr_mesh_copy_use(struct mr_mesh_copy *c);
void mr_mesh_copy_unuse(struct mr_mesh_copy *c);

enum mr_mesh_missing {
    MR_MESH_LOST,  /* it is taken for lost and will be loaded again: MR_MESH_NOT_HERE */
    MR_MESH_AGAIN, /* it has been loaded again: the runtime can be asked once more */
    MR_MESH_OWN    /* loading it again did not help: the answer is the model's own */
};
/** The runtime answered a request, which came in at came_ns and was sent to it at sent_ns, that it has not got a model which is loaded. */
enum mr_mesh_missing mr_mesh_runtime_missing(struct mr_mesh *m, mr_str id, int64_t came_ns,
                                             int64_t sent_ns);
/** A connection to the runtime broke under a request, which is MR_MESH_NOT_HERE then, or MR_MESH_BROKEN if it must not run twice: the runtime
 *  is asked whether it lives. */
void mr_mesh_runtime_broke(struct mr_mesh *m, mr_str id);

#endif
