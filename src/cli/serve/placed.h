/* --model-runtime, --mesh-models, --allow-model-url: where the models may be that a ModelMesh, the server's own mesh, or a load request names by their paths or addresses.
 * Thread: boot. */
#ifndef CLI_SERVE_PLACED_H
#define CLI_SERVE_PLACED_H

#include "opt_serve.h"

/** Stays until placed_fini. Zeroed at first. */
struct placed {
    MR_VEC(const char *) link_dirs;
};

/** Lets links of the server's options lead there, if one of them is given. Errors: MR_E_INVALID (no such folder). */
int placed_open(struct mr_serve_options *s, struct placed *out, struct mr_err *err);
void placed_fini(struct placed *p);

#endif
