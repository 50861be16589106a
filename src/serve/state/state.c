/* Whether the server is ready, and whether it is about to end. Any thread. */
#include "state.h"

#include "mesh/plane.h"

bool serve_is_exiting(const struct mr_server *s)
{
    return atomic_load_explicit(&s->state, memory_order_relaxed) == SERVER_EXITING;
}

bool serve_is_ready(struct mr_server *s)
{
    return atomic_load_explicit(&s->state, memory_order_relaxed) == SERVER_READY &&
           mr_models_ready(s->models) && (!s->mesh || mr_mesh_is_ready(s->mesh));
}

bool serve_has_runtime(const struct mr_server *s)
{
    return s->mesh && mr_mesh_runtime(s->mesh);
}
