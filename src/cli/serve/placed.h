/* --model-runtime, --mesh-models, --allow-model-url: the folder of links to the models that a ModelMesh, the server's own mesh, or a load request names by their paths or addresses.
 * Thread: boot. */
#ifndef CLI_SERVE_PLACED_H
#define CLI_SERVE_PLACED_H

#include "opt_serve.h"

/** Stays until placed_fini. Zeroed at first. */
struct placed {
    char *folder;
    MR_VEC(const char *) repositories; /* of the server, the folder after the others */
    MR_VEC(const char *) link_dirs;
};

/** Makes the folder and adds it to the server's options, if one of them is given. Errors: MR_E_INVALID (no such folder),
 *  MR_E_IO. */
int placed_open(struct mr_serve_options *s, struct placed *out, struct mr_err *err);
/** Removes the folder, when the server has ended. */
void placed_fini(struct placed *p);

#endif
