/* One that is cold counts as ready, as for ModelMesh's controller, which calls it available. */
#include "fleet_ready.h"

#include "serve/endpoints/route.h"
#include "serve/state/loops.h"

static void done(struct mr_mesh_admin *a)
{
    struct fleet_ready *q = MR_CONTAINER_OF(a, struct fleet_ready, admin);
    bool is_ready = a->status == MR_OK && a->is_ready;

    mr_arena_fini(&a->arena);
    q->done(q, is_ready);
}

void fleet_ready_ask(struct mr_server *s, struct fleet_ready *q)
{
    mr_str model = q->name, version = {0};
    struct mr_err ignored;

    if (q->is_vmodel || route_main(s->endpoints, &model, &version, &ignored) < 0) {
        model = q->name;
    }
    q->admin = (struct mr_mesh_admin){.kind = MR_MESH_READY,
                                      .id = model,
                                      .is_vmodel = q->is_vmodel,
                                      .done = done,
                                      .post = serve_here()->reply_loop.post,
                                      .post_ctx = serve_here()};
    mr_mesh_admin(s->mesh, &q->admin);
}
