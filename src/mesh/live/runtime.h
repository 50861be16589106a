/* A runtime: another process that holds the models of this instance and speaks mmesh.ModelRuntime. All on the mesh's thread. */
#ifndef MESH_LIVE_RUNTIME_H
#define MESH_LIVE_RUNTIME_H

#include "live.h"

/** Thread: boot. Errors: MR_E_INVALID (the address). */
int live_runtime_new(struct live_runtime **out, struct mr_mesh *m, const char *address,
                     struct mr_err *err);
/** Borrowed; NULL: it is not loaded, or bounds the requests at once. */
struct mr_mesh_copy *live_runtime_copy(struct live_runtime *r, mr_str id);
/** Asks for its state until it is ready; live_join is called then. */
void live_runtime_start(struct live_runtime *r);
/** Why it is not ready, by its last answer; empty: it is, or has not answered yet. Valid until the loop goes on. */
const char *live_runtime_why(const struct live_runtime *r);
/** Calls under way end without a word to the core. */
void live_runtime_free(struct live_runtime **r);

#endif
