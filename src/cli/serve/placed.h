/* --model-runtime, --mesh-models, --allow-model-url: where the models may be that a ModelMesh, the server's own mesh, or a load request names by their paths or addresses.
 * Thread: boot. */
#ifndef CLI_SERVE_PLACED_H
#define CLI_SERVE_PLACED_H

#include "opt_serve.h"

/** Stays until placed_fini. Zeroed at first. */
struct placed {
    char *folder; /* of links to them */
    MR_VEC(const char *) link_dirs;
};

/** Makes the folder, and lets links of the server lead where the models may be, if one of the options is given.
 *  Errors: MR_E_INVALID (no such folder), MR_E_IO. */
int placed_open(struct mr_serve_options *s, struct placed *out, struct mr_err *err);
/** Removes the folder, when the server has ended. */
void placed_fini(struct placed *p);

#endif
