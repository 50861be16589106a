/* mmesh.ModelMesh: the management of models and vmodels of a mesh as controllers of ModelMesh know it. Works with --mesh. Copies are
 * reported as what they are, LOADING and LOADED included, which a ModelMesh calls UNKNOWN. The mesh's thread does the work. */
#include "mesh/mesh.h"
#include "methods_priv.h"
#include "model_mesh.pb-c.h"
#include "serve/state/grpc_reply.h"
#include "serve/state/loops.h"
#include "serve/state/state.h"

static char pending_text[] =
    "the registry is away: the change is kept at this server, which makes it "
    "when the registry is back; other servers do not know of it yet";

/* A call under way. */
struct mesh_call {
    struct mr_mesh_admin admin;
    struct mr_grpc_call *g;
};

/* ---- answers ---- */

static Mmesh__ModelStatusInfo__ModelStatus status_of(Millrace__MeshStatus s)
{
    return (Mmesh__ModelStatusInfo__ModelStatus)s; /* the same numbers */
}

static Mmesh__ModelStatusInfo__ModelStatus status_of_copy(Millrace__MeshCopy__State state)
{
    switch (state) {
    case MILLRACE__MESH_COPY__STATE__LOADING:
        return MMESH__MODEL_STATUS_INFO__MODEL_STATUS__LOADING;
    case MILLRACE__MESH_COPY__STATE__FAILED:
        return MMESH__MODEL_STATUS_INFO__MODEL_STATUS__LOADING_FAILED;
    default: return MMESH__MODEL_STATUS_INFO__MODEL_STATUS__LOADED;
    }
}

static bool put_model(Mmesh__ModelStatusInfo *to, const Millrace__MeshModel *from, bool is_pending,
                      struct mr_arena *a)
{
    mmesh__model_status_info__init(to);
    to->status = status_of(from->status);
    to->modelcopyinfos =
        MR_ARENA_ARRAY(a, Mmesh__ModelStatusInfo__ModelCopyInfo *, from->n_copies + 1);
    to->errors = MR_ARENA_ARRAY(a, char *, from->n_copies + 2);
    if (!to->modelcopyinfos || !to->errors) {
        return false;
    }
    if (is_pending) {
        to->errors[to->n_errors++] = pending_text;
    }
    if (from->reason[0]) {
        to->errors[to->n_errors++] = from->reason;
    }
    for (size_t i = 0; i < from->n_copies; i++) {
        Mmesh__ModelStatusInfo__ModelCopyInfo *c =
            MR_ARENA_NEW(a, Mmesh__ModelStatusInfo__ModelCopyInfo);
        if (!c) {
            return false;
        }
        mmesh__model_status_info__model_copy_info__init(c);
        c->location = from->copies[i]->instance;
        c->copystatus = status_of_copy(from->copies[i]->state);
        c->time = from->copies[i]->time_ms;
        to->modelcopyinfos[to->n_modelcopyinfos++] = c;
        if (from->copies[i]->reason[0]) {
            to->errors[to->n_errors++] = from->copies[i]->reason;
        }
    }
    return true;
}

static void no_memory(struct mesh_call *c)
{
    mr_grpc_fail(c->g, MR_GRPC_RESOURCE_EXHAUSTED, MR_STR("no memory for the answer"));
}

static void answer_model(struct mesh_call *c)
{
    const struct mr_mesh_admin *a = &c->admin;
    const Millrace__MeshModel *from = (const Millrace__MeshModel *)a->message;
    Mmesh__ModelStatusInfo m;

    if (put_model(&m, from, from->pending, &c->admin.arena)) {
        grpc_reply_message(c->g, &m.base);
    } else {
        no_memory(c);
    }
}

static void answer_vmodel(struct mesh_call *c)
{
    struct mr_mesh_admin *a = &c->admin;
    const Millrace__MeshVModel *from = (const Millrace__MeshVModel *)a->message;
    Mmesh__VModelStatusInfo m = MMESH__VMODEL_STATUS_INFO__INIT;
    Mmesh__ModelStatusInfo active, target;

    m.status = (Mmesh__VModelStatusInfo__VModelStatus)from->status; /* the same numbers */
    if (a->active_model) {
        if (!put_model(&active, a->active_model, from->pending, &a->arena) ||
            !put_model(&target, a->target_model, false, &a->arena)) {
            no_memory(c);
            return;
        }
        target.status = status_of(from->target_status);
        m.activemodelid = from->active;
        m.targetmodelid = from->target;
        m.owner = from->owner;
        m.activemodelstatus = &active;
        m.targetmodelstatus = strcmp(from->active, from->target) != 0 ? &target : NULL;
    }
    grpc_reply_message(c->g, &m.base);
}

static void answer_nothing(struct mesh_call *c)
{
    Mmesh__UnregisterModelResponse m = MMESH__UNREGISTER_MODEL_RESPONSE__INIT;

    grpc_reply_message(c->g, &m.base); /* DeleteVModelResponse is as empty */
}

static void done(struct mr_mesh_admin *a)
{
    struct mesh_call *c = MR_CONTAINER_OF(a, struct mesh_call, admin);

    if (a->status < 0 && a->is_precondition) {
        mr_grpc_fail(c->g, MR_GRPC_FAILED_PRECONDITION, mr_str_c(a->err.msg));
    } else if (a->status < 0) {
        grpc_fail_err(c->g, &a->err);
    } else if (!a->message || a->kind == MR_MESH_UNREGISTER || a->kind == MR_MESH_DELETE_VMODEL) {
        answer_nothing(c);
    } else if (a->message->descriptor == &millrace__mesh_model__descriptor) {
        answer_model(c);
    } else {
        answer_vmodel(c);
    }
    mr_arena_fini(&a->arena);
    mr_free(c);
}

/* ---- questions ---- */

/* NULL: the call is answered. *out is the request, in the call's arena. */
static struct mesh_call *begin(struct mr_server *s, struct mr_grpc_call *g,
                               const ProtobufCMessageDescriptor *desc, void *out)
{
    void *q;

    if (!s->mesh) {
        mr_grpc_fail(g, MR_GRPC_UNIMPLEMENTED, MR_STR("this server is in no mesh (--mesh)"));
        return NULL;
    }
    q = grpc_request(g, desc);
    if (!q) {
        return NULL;
    }
    memcpy(out, &q, sizeof q);
    struct mesh_call *c = MR_NEW(struct mesh_call);
    c->g = g;
    c->admin.done = done;
    c->admin.post = serve_here()->reply_loop.post;
    c->admin.post_ctx = serve_here();
    return c;
}

static void put_info(struct mr_mesh_admin *a, const Mmesh__ModelInfo *info)
{
    if (info) {
        a->has_def = true;
        a->type = mr_str_c(info->type);
        a->path = mr_str_c(info->path);
        a->key = mr_str_c(info->key);
    }
}

static void submit(struct mr_server *s, struct mesh_call *c, enum mr_mesh_admin_kind kind,
                   const char *id)
{
    c->admin.kind = kind;
    c->admin.id = mr_str_c(id);
    mr_mesh_admin(s->mesh, &c->admin);
}

void grpc_mesh_register(struct mr_server *s, struct mr_grpc_call *g)
{
    const Mmesh__RegisterModelRequest *q;
    struct mesh_call *c = begin(s, g, &mmesh__register_model_request__descriptor, &q);

    if (c) {
        put_info(&c->admin, q->modelinfo);
        c->admin.load_now = q->loadnow;
        c->admin.sync = q->sync;
        submit(s, c, MR_MESH_REGISTER, q->modelid);
    }
}

void grpc_mesh_unregister(struct mr_server *s, struct mr_grpc_call *g)
{
    const Mmesh__UnregisterModelRequest *q;
    struct mesh_call *c = begin(s, g, &mmesh__unregister_model_request__descriptor, &q);

    if (c) {
        submit(s, c, MR_MESH_UNREGISTER, q->modelid);
    }
}

void grpc_mesh_status(struct mr_server *s, struct mr_grpc_call *g)
{
    const Mmesh__GetStatusRequest *q;
    struct mesh_call *c = begin(s, g, &mmesh__get_status_request__descriptor, &q);

    if (c) {
        submit(s, c, MR_MESH_MODEL, q->modelid);
    }
}

void grpc_mesh_ensure(struct mr_server *s, struct mr_grpc_call *g)
{
    const Mmesh__EnsureLoadedRequest *q;
    struct mesh_call *c = begin(s, g, &mmesh__ensure_loaded_request__descriptor, &q);

    if (c) {
        c->admin.sync = q->sync;
        submit(s, c, MR_MESH_LOAD, q->modelid);
    }
}

void grpc_mesh_set_vmodel(struct mr_server *s, struct mr_grpc_call *g)
{
    const Mmesh__SetVModelRequest *q;
    struct mesh_call *c = begin(s, g, &mmesh__set_vmodel_request__descriptor, &q);

    if (c) {
        put_info(&c->admin, q->modelinfo);
        c->admin.target = mr_str_c(q->targetmodelid);
        c->admin.expected = mr_str_c(q->expectedtargetmodelid);
        c->admin.owner = mr_str_c(q->owner);
        c->admin.update_only = q->updateonly;
        c->admin.auto_delete = q->autodeletetargetmodel;
        c->admin.load_now = q->loadnow;
        c->admin.force = q->force;
        c->admin.sync = q->sync;
        submit(s, c, MR_MESH_SET_VMODEL, q->vmodelid);
    }
}

void grpc_mesh_delete_vmodel(struct mr_server *s, struct mr_grpc_call *g)
{
    const Mmesh__DeleteVModelRequest *q;
    struct mesh_call *c = begin(s, g, &mmesh__delete_vmodel_request__descriptor, &q);

    if (c) {
        c->admin.owner = mr_str_c(q->owner);
        submit(s, c, MR_MESH_DELETE_VMODEL, q->vmodelid);
    }
}

void grpc_mesh_vmodel_status(struct mr_server *s, struct mr_grpc_call *g)
{
    const Mmesh__GetVModelStatusRequest *q;
    struct mesh_call *c = begin(s, g, &mmesh__get_vmodel_status_request__descriptor, &q);

    if (c) {
        c->admin.owner = mr_str_c(q->owner);
        submit(s, c, MR_MESH_VMODEL, q->vmodelid);
    }
}
