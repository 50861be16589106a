/* A table of gRPC methods, with a path of field numbers for each: of the data plane's configuration (--mesh-dataplane-config), or of
 * a runtime. The configuration is ModelMesh's:
 *
 *   {"rpcConfigs": {"package.Service/Method": {"idExtractionPath": [1, 1], "vModelId": true}}, "allowOtherRpcs": true}
 */
#ifndef MESH_PLANE_METHODS_H
#define MESH_PLANE_METHODS_H

#include "base/map.h"
#include "codec/splice.h"

#define MESH_METHODS_MAX 4096

struct mesh_method {
    bool is_vmodel;
    struct mr_splice_path path; /* depth 0: none */
};

struct mesh_methods {
    struct mr_map all; /* "package.Service/Method" -> struct mesh_method */
    bool allows_others;
};

/** Free with mesh_methods_fini. Errors: MR_E_INVALID (with the place), MR_E_TOO_LARGE. */
int mesh_methods_parse(struct mesh_methods *out, mr_str json, struct mr_err *err);
/** Of the same name: the later one counts. Beyond MESH_METHODS_MAX: without effect. */
void mesh_methods_add(struct mesh_methods *ms, mr_str name, const struct mesh_method *method);
/** NULL: not in the table. */
const struct mesh_method *mesh_methods_find(const struct mesh_methods *ms, mr_str name);
void mesh_methods_fini(struct mesh_methods *ms);

#endif
