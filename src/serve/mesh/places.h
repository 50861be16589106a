/* Where models were a moment ago, so that not every request has to ask the mesh. On the network thread of the call. */
#ifndef MR_SERVE_MESH_PLACES_H
#define MR_SERVE_MESH_PLACES_H

#include "serve/state/state.h"

/* The address of a server that has the model; NULL: not known. Valid until places_put or places_forget. */
const char *places_find(struct serve_loop *l, mr_str model);
void places_put(struct serve_loop *l, mr_str model, const char *address);
void places_forget(struct serve_loop *l, mr_str model);

#endif
