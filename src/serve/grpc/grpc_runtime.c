/* mmesh.ModelRuntime: this server as the one that holds the models of a ModelMesh, which alone says what is loaded. Only with
 * --model-runtime, as a caller names files of this machine, in the folder that the option allows. Requests name the model
 * by its id, which the mesh writes into them. Loads run on loader threads, reports on the administration thread. */
#include <stdio.h>

#include "base/machine.h"
#include "methods_priv.h"
#include "model/place.h"
#include "model_runtime.pb-c.h"
#include "serve/admin/admin.h"
#include "serve/state/grpc_reply.h"
#include "serve/state/loops.h"
#include "serve/state/state.h"

#define NAMES_MAX    256u /* models that one question about the state unloads */
#define DEFAULT_SIZE (16u << 20)

/* A load, or a question about the sizes or the names of models. */
struct runtime_call {
    struct admin_job job;
    struct mr_server *server;
    struct mr_grpc_call *g;
    mr_str model;
    uint64_t bytes;
    size_t loaded;
    char *names[NAMES_MAX];
    struct mr_err err;
};

static void *request(struct mr_server *s, struct mr_grpc_call *g,
                     const ProtobufCMessageDescriptor *desc)
{
    if (!s->options.models.placed || s->mesh) {
        mr_grpc_fail(g, MR_GRPC_UNIMPLEMENTED,
                     MR_STR("this server is not the runtime of a ModelMesh (--model-runtime)"));
        return NULL;
    }
    return grpc_request(g, desc);
}

static struct runtime_call *call_new(struct mr_server *s, struct mr_grpc_call *g, const char *model)
{
    struct runtime_call *c = MR_ARENA_NEW(g->call->arena, struct runtime_call);

    if (!c) {
        mr_grpc_fail(g, MR_GRPC_RESOURCE_EXHAUSTED,
                     MR_STR("the call needs more memory than it may use"));
        return NULL;
    }
    c->server = s;
    c->g = g;
    c->job.loop = serve_here();
    c->model = mr_str_c(model); /* in the call's arena */
    return c;
}

/* ---- sizes ---- */

static void size_find(struct admin_job *job)
{
    struct runtime_call *c = MR_CONTAINER_OF(job, struct runtime_call, job);

    if (mr_models_size(c->server->models, c->model, &c->bytes)) {
        c->bytes = MR_MAX(c->bytes, 1); /* 0 would have the mesh ask again */
    } else {
        MR_FAIL(&c->err, MR_E_NOT_FOUND, "model '%.*s' is not loaded",
                MR_STR_ARG(mr_str_sub(c->model, 0, 128)));
    }
}

static void size_answer(struct admin_job *job)
{
    struct runtime_call *c = MR_CONTAINER_OF(job, struct runtime_call, job);
    Mmesh__ModelSizeResponse m = MMESH__MODEL_SIZE_RESPONSE__INIT;

    m.sizeinbytes = c->bytes;
    if (c->bytes) {
        grpc_reply_message(c->g, &m.base);
    } else {
        grpc_fail_err(c->g, &c->err);
    }
}

void grpc_runtime_size(struct mr_server *s, struct mr_grpc_call *g)
{
    const Mmesh__ModelSizeRequest *q = request(s, g, &mmesh__model_size_request__descriptor);
    struct runtime_call *c = q ? call_new(s, g, q->modelid) : NULL;

    if (c) {
        c->job.run = size_find;
        c->job.done = size_answer;
        admin_submit(s, &c->job);
    }
}

void grpc_runtime_predict(struct mr_server *s, struct mr_grpc_call *g)
{
    if (request(s, g, &mmesh__predict_model_size_request__descriptor)) {
        mr_grpc_fail(g, MR_GRPC_UNIMPLEMENTED, MR_STR("sizes are measured when a model is loaded"));
    }
}

/* ---- loads ---- */

static void load_answer(struct admin_job *job)
{
    struct runtime_call *c = MR_CONTAINER_OF(job, struct runtime_call, job);
    Mmesh__LoadModelResponse m = MMESH__LOAD_MODEL_RESPONSE__INIT;

    m.sizeinbytes = c->bytes;
    grpc_reply_message(c->g, &m.base);
}

static void load_ended(struct mr_mail *mail)
{
    struct runtime_call *c = MR_CONTAINER_OF(mail, struct runtime_call, job.mail);

    if (c->err.status < 0) {
        grpc_fail_err(c->g, &c->err);
        return;
    }
    c->job.run = size_find;
    c->job.done = load_answer;
    admin_submit(c->server, &c->job);
}

/* On a loader thread. */
static void load_done(void *ctx, int rc, const struct mr_err *err)
{
    struct runtime_call *c = ctx;

    if (rc < 0 && err) {
        c->err = *err;
    }
    c->err.status = rc;
    c->job.mail.run = load_ended;
    mr_loop_post(c->job.loop->loop, &c->job.mail);
}

void grpc_runtime_load(struct mr_server *s, struct mr_grpc_call *g)
{
    const Mmesh__LoadModelRequest *q = request(s, g, &mmesh__load_model_request__descriptor);
    struct runtime_call *c = q ? call_new(s, g, q->modelid) : NULL;

    if (c) {
        mr_str type =
            mr_model_type_of(mr_str_c(q->modeltype), mr_str_c(q->modelkey), g->call->arena);
        mr_models_place(s->models, c->model, mr_str_c(q->modelpath), type, load_done, c);
    }
}

void grpc_runtime_unload(struct mr_server *s, struct mr_grpc_call *g)
{
    const Mmesh__UnloadModelRequest *q = request(s, g, &mmesh__unload_model_request__descriptor);
    struct grpc_control *c = q ? grpc_control_new(g, "") : NULL;

    if (c) {
        mr_models_unload(s->models, mr_str_c(q->modelid), false, grpc_control_done, c);
    }
}

/* ---- the state ---- */

static void see_loaded(void *ctx, const struct mr_model_report *r)
{
    struct runtime_call *c = ctx;

    if (r->state == MR_VERSION_UNLOADED || r->state == MR_VERSION_FAILED) {
        return;
    }
    if (c->loaded < NAMES_MAX) {
        c->names[c->loaded] = mr_strndup(r->name.ptr, r->name.len);
    }
    c->loaded++;
}

static void unloaded(void *ctx, int rc, const struct mr_err *err)
{
    (void)ctx, (void)rc, (void)err;
}

/* A mesh asks when it starts: it knows nothing of what an earlier one has loaded. */
static void purge(struct admin_job *job)
{
    struct runtime_call *c = MR_CONTAINER_OF(job, struct runtime_call, job);

    mr_models_visit(c->server->models, see_loaded, c);
    for (size_t i = 0; i < MR_MIN(c->loaded, NAMES_MAX); i++) {
        mr_models_unload(c->server->models, mr_str_c(c->names[i]), false, unloaded, NULL);
        mr_free(c->names[i]);
    }
}

/* The memory that models may use: half of what there is, where no option says it. */
static uint64_t capacity_of(const struct mr_server_options *o)
{
    return o->models.memory_budget ? o->models.memory_budget : mr_machine_memory() / 2;
}

static void state_answer(struct admin_job *job)
{
    static const char *const names[] = {
        "inference.GRPCInferenceService/ModelInfer", "inference.GRPCInferenceService/ModelMetadata",
        "inference.GRPCInferenceService/ModelConfig", "inference.GRPCInferenceService/ModelReady"};
    enum { COUNT = sizeof names / sizeof *names };
    struct runtime_call *c = MR_CONTAINER_OF(job, struct runtime_call, job);
    const struct mr_server_options *o = &c->server->options;
    Mmesh__RuntimeStatusResponse m = MMESH__RUNTIME_STATUS_RESPONSE__INIT;
    Mmesh__RuntimeStatusResponse__MethodInfo info =
        MMESH__RUNTIME_STATUS_RESPONSE__METHOD_INFO__INIT;
    Mmesh__RuntimeStatusResponse__MethodInfosEntry entries[COUNT], *list[COUNT];
    uint32_t path[] = {1};

    info.n_idinjectionpath = 1;
    info.idinjectionpath = path;
    for (int i = 0; i < COUNT; i++) {
        mmesh__runtime_status_response__method_infos_entry__init(&entries[i]);
        entries[i].key = (char *)(uintptr_t)names[i];
        entries[i].value = &info;
        list[i] = &entries[i];
    }
    m.status = c->loaded ? MMESH__RUNTIME_STATUS_RESPONSE__STATUS__STARTING
                         : MMESH__RUNTIME_STATUS_RESPONSE__STATUS__READY;
    m.capacityinbytes = capacity_of(o);
    m.maxloadingconcurrency = o->models.update_threads ? o->models.update_threads : 1;
    m.modelloadingtimeoutms = o->model_runtime_timeout_ns / MR_NS_PER_MS;
    m.defaultmodelsizeinbytes = MR_MIN(DEFAULT_SIZE, m.capacityinbytes / 16);
    m.runtimeversion = (char *)(uintptr_t) "millrace " MR_VERSION;
    m.n_methodinfos = COUNT;
    m.methodinfos = list;
    grpc_reply_message(c->g, &m.base);
}

void grpc_runtime_state(struct mr_server *s, struct mr_grpc_call *g)
{
    struct runtime_call *c =
        request(s, g, &mmesh__runtime_status_request__descriptor) ? call_new(s, g, "") : NULL;

    if (c) {
        c->job.run = purge;
        c->job.done = state_answer;
        admin_submit(s, &c->job);
    }
}
