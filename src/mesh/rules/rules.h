/* Rules for types of models: which labels an instance must have, or should have, to load them. JSON, as ModelMesh's MM_TYPE_CONSTRAINTS:
 *
 *   {"TYPE": {"required": ["LABEL", …], "preferred": ["LABEL", …]}, "_default": {…}}
 *
 * Both members may be absent; other members have no effect. */
#ifndef MESH_RULES_RULES_H
#define MESH_RULES_RULES_H

#include "base/buf.h"
#include "mesh/core/core.h"

#define MESH_RULES_MAX       4096 /* types */
#define MESH_RULES_BYTES_MAX (1 << 20)

struct mesh_rules {
    struct mesh_constraint *at;
    size_t len;
    void *memory; /* of the texts */
};

/** text: JSON if it begins with '{', otherwise the name of a file, whose text *out gets. Errors: those of mr_file_read,
 *  MR_E_TOO_LARGE. */
int mesh_rules_text(struct mr_buf *out, const char *text, struct mr_err *err);
/** text: as above. Free with mesh_rules_fini. Errors: those, and MR_E_INVALID. */
int mesh_rules_read(struct mesh_rules *out, const char *text, struct mr_err *err);
void mesh_rules_fini(struct mesh_rules *r);

#endif
