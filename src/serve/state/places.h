/* Where models were a moment ago, and for which of them vmodels stood, so that not every request has to ask the mesh. On the network thread of
 * the call. */
#ifndef MR_SERVE_STATE_PLACES_H
#define MR_SERVE_STATE_PLACES_H

#include "mesh/plane.h"
#include "state.h"

struct place {
    int64_t until_ns;
    struct mr_mesh_copy *copy; /* at the runtime of this server; NULL: at the server with this */
    char address[];
};

/* NULL: not known. Valid until places_put or places_forget. */
const struct place *places_find(struct serve_loop *l, mr_str model);
/* copy: NULL, or the address is "". */
void places_put(struct serve_loop *l, mr_str model, struct mr_mesh_copy *copy, const char *address);
void places_forget(struct serve_loop *l, mr_str model);

/* The model that the vmodel stands for; ptr NULL: not known. by_name: it may have been the name of a model as well. Valid as a place. */
mr_str places_active(struct serve_loop *l, mr_str vmodel, bool by_name);
/* names: mr_mesh_names when this was looked up. */
void places_put_active(struct serve_loop *l, mr_str vmodel, bool by_name, mr_str model,
                       uint64_t names);

/* Takes v, which is ready: it stays pinned until the loop sleeps or finds another one. */
void places_put_found(struct serve_loop *l, struct mr_version *v);
/* The version of the model that was found last, if it is the one; it may have been unloaded since. Borrowed. */
struct mr_version *places_found(const struct serve_loop *l, mr_str model, mr_str version);

void places_fini(struct serve_loop *l);

#endif
