/* /v2/mesh: what a mesh has and does, and changes of its registry, answers of Millrace's own. On network threads; the mesh's thread does the
 * work. Ids in paths and queries are percent-decoded, as those of a ModelMesh may have any character. */
#include "rest_mesh.h"

#include "codec/pbtext.h"
#include "mesh/mesh.h"
#include "serve/state/loops.h"
#include "serve/state/reply.h"

#define BODY_MAX ((size_t)64 << 20)

struct mesh_job {
    struct mr_mesh_admin admin;
    struct mr_call *call;
    ProtobufCMessage *body; /* its texts are those of `admin`; may be NULL */
};

/* ---- answers ---- */

static bool is_not_found(const ProtobufCMessage *m)
{
    if (m->descriptor == &millrace__mesh_model__descriptor) {
        return ((const Millrace__MeshModel *)m)->status == MILLRACE__MESH_STATUS__NOT_FOUND;
    }
    return m->descriptor == &millrace__mesh_vmodel__descriptor &&
           ((const Millrace__MeshVModel *)m)->status == MILLRACE__MESH_VMODEL__STATUS__NOT_FOUND;
}

static void answer(struct mesh_job *j)
{
    struct mr_mesh_admin *a = &j->admin;
    struct mr_buf body;

    if (a->status < 0 && (a->is_precondition || a->status == MR_E_EXISTS)) {
        reply_status_text(j->call, 409, a->err.msg);
    } else if (a->status < 0) {
        reply_error(j->call, &a->err);
    } else if (!a->message) {
        reply_empty(j->call, 200);
    } else if (is_not_found(a->message) && !a->is_pending) {
        reply_error_text(j->call, MR_E_NOT_FOUND, "'%.*s' is not in the mesh",
                         MR_STR_ARG(mr_str_sub(a->id, 0, 200)));
    } else {
        mr_buf_init(&body, BODY_MAX);
        mr_pbjson_print(a->message, true, &body);
        reply_buf(j->call, a->is_pending ? 202 : 200, &body);
        mr_buf_fini(&body);
    }
}

static void job_free(struct mesh_job *j)
{
    if (j->body) {
        protobuf_c_message_free_unpacked(j->body, NULL);
    }
    mr_free(j);
}

static void done(struct mr_mesh_admin *a)
{
    struct mesh_job *j = MR_CONTAINER_OF(a, struct mesh_job, admin);

    answer(j);
    mr_arena_fini(&a->arena);
    job_free(j);
}

/* ---- questions ---- */

/* Percent-decoded, in the call's arena. */
static mr_str decode(struct mr_call *call, mr_str s)
{
    char *out = mr_arena_try(call->arena, s.len + 1, 1);

    return out ? (mr_str){out, mr_percent_decode(s, out, s.len)} : (mr_str){0};
}

mr_str rest_mesh_query(struct mr_call *call, const char *name)
{
    mr_str rest = call->query, part;

    while (mr_str_split(&rest, '&', &part)) {
        ptrdiff_t at = mr_str_find(part, '=');
        if (at >= 0 && mr_str_eq_c(mr_str_sub(part, 0, (size_t)at), name)) {
            return decode(call, mr_str_sub(part, (size_t)at + 1, part.len));
        }
    }
    return (mr_str){0};
}

/* NULL: the call is answered. */
static struct mesh_job *begin(struct mr_server *s, struct mr_call *call, mr_str id)
{
    if (!s->mesh) {
        reply_error_text(call, MR_E_UNSUPPORTED, REST_MESH_NONE);
        return NULL;
    }
    struct mesh_job *j = MR_NEW(struct mesh_job);
    j->call = call;
    j->admin.id = decode(call, id);
    j->admin.done = done;
    j->admin.post = serve_here()->reply_loop.post;
    j->admin.post_ctx = serve_here();
    return j;
}

/* The same, with the message of the body, which may be empty. */
static struct mesh_job *begin_with(struct mr_server *s, struct mr_call *call, mr_str id,
                                   const ProtobufCMessageDescriptor *desc)
{
    struct mesh_job *j = begin(s, call, id);
    struct mr_err err = {0};

    if (!j) {
        return NULL;
    }
    mr_str text = mr_str_trim(mr_str_n((const char *)call->body.ptr, call->body.len));
    if (mr_pbjson_parse(desc, text.len ? text : MR_STR("{}"), &j->body, &err) < 0) {
        reply_error(call, &err);
        job_free(j);
        return NULL;
    }
    return j;
}

static void submit(struct mr_server *s, struct mesh_job *j, enum mr_mesh_admin_kind kind)
{
    if (j) {
        j->admin.kind = kind;
        mr_mesh_admin(s->mesh, &j->admin);
    }
}

void rest_mesh(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    submit(s, begin(s, call, path->model), MR_MESH_STATE);
}

void rest_mesh_drain(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    submit(s, begin(s, call, path->model), MR_MESH_DRAIN);
}

static void list(struct mr_server *s, struct mr_call *call, enum mr_mesh_admin_kind kind)
{
    struct mesh_job *j = begin(s, call, (mr_str){0});
    uint64_t n = MR_MESH_PAGE_MAX;

    if (!j) {
        return;
    }
    mr_str limit = rest_mesh_query(call, "limit");
    if (limit.len && (!mr_str_to_u64(limit, &n) || n < 1 || n > MR_MESH_PAGE_MAX)) {
        reply_error_text(call, MR_E_INVALID, "limit: must be 1 to %d", MR_MESH_PAGE_MAX);
        job_free(j);
        return;
    }
    j->admin.id = rest_mesh_query(call, "prefix");
    j->admin.after = rest_mesh_query(call, "after");
    j->admin.limit = (uint32_t)n;
    submit(s, j, kind);
}

void rest_mesh_models(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    (void)path;
    list(s, call, MR_MESH_MODELS);
}

void rest_mesh_vmodels(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    (void)path;
    list(s, call, MR_MESH_VMODELS);
}

void rest_mesh_model(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    submit(s, begin(s, call, path->model), MR_MESH_MODEL);
}

void rest_mesh_register(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    struct mesh_job *j = begin_with(s, call, path->model, &millrace__mesh_register__descriptor);

    if (j) {
        const Millrace__MeshRegister *q = (const Millrace__MeshRegister *)j->body;
        j->admin.type = mr_str_c(q->type);
        j->admin.path = mr_str_c(q->path);
        j->admin.key = mr_str_c(q->key);
        j->admin.size_bytes = q->size_bytes;
        j->admin.device_bytes = q->device_bytes;
        j->admin.min_copies = q->min_copies;
        j->admin.max_copies = q->max_copies;
        j->admin.pinned = q->pinned;
        j->admin.load_now = q->load_now;
        j->admin.sync = q->sync;
    }
    submit(s, j, MR_MESH_REGISTER);
}

void rest_mesh_unregister(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    submit(s, begin(s, call, path->model), MR_MESH_UNREGISTER);
}

void rest_mesh_load(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    struct mesh_job *j = begin(s, call, path->model);

    if (j) {
        j->admin.sync = !mr_str_eq_c(rest_mesh_query(call, "sync"), "false");
    }
    submit(s, j, MR_MESH_LOAD);
}

/* One that is another owner's is not there. */
static void owned(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path,
                  enum mr_mesh_admin_kind kind)
{
    struct mesh_job *j = begin(s, call, path->model);

    if (j) {
        j->admin.owner = rest_mesh_query(call, "owner");
    }
    submit(s, j, kind);
}

void rest_mesh_vmodel(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    owned(s, call, path, MR_MESH_VMODEL);
}

void rest_mesh_vmodel_set(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    struct mesh_job *j = begin_with(s, call, path->model, &millrace__mesh_vmodel_set__descriptor);

    if (j) {
        const Millrace__MeshVModelSet *q = (const Millrace__MeshVModelSet *)j->body;
        j->admin.has_def = q->type[0] || q->path[0] || q->key[0];
        j->admin.type = mr_str_c(q->type);
        j->admin.path = mr_str_c(q->path);
        j->admin.key = mr_str_c(q->key);
        j->admin.target = mr_str_c(q->target);
        j->admin.expected = mr_str_c(q->expected);
        j->admin.owner = mr_str_c(q->owner);
        j->admin.auto_delete = q->auto_delete;
        j->admin.update_only = q->update_only;
        j->admin.load_now = q->load_now;
        j->admin.force = q->force;
        j->admin.sync = q->sync;
    }
    submit(s, j, MR_MESH_SET_VMODEL);
}

void rest_mesh_vmodel_delete(struct mr_server *s, struct mr_call *call,
                             const struct mr_oip_path *path)
{
    owned(s, call, path, MR_MESH_DELETE_VMODEL);
}
