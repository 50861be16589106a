/* Loading and unloading of models for models in worker processes. */
#include "base/mem.h"
#include "engine_priv.h"

struct asked {
    struct mr_engine *engine;
    struct mr_worker_call *call;
    uint64_t load; /* that asks */
};

static void answer(struct mr_worker_call *c, int status, const char *message, int64_t value)
{
    const struct mr_worker_answer a = {
        .status = status, .message = message, .is_last = true, .value = value};

    mr_worker_answer_send(mr_worker_answer_make(c, &a));
}

static void on_done(void *ctx, int rc, const struct mr_err *err)
{
    struct asked *a = ctx;
    struct mr_worker_call *c = a->call;

    if (c->is_loading) {
        mr_models_ask_end(a->engine->models, mr_str_c(c->model), a->load);
    }
    mr_free(a);
    answer(c, rc, rc < 0 ? err->msg : "", 0);
}

static void ready_say(struct mr_engine *e, struct mr_worker_call *c)
{
    struct mr_version *v;
    struct mr_err ignored;
    bool is_ready = false;

    if (mr_models_acquire(e->models, mr_str_c(c->control->model), mr_str_c(c->control->version), &v,
                          &ignored) == MR_OK) {
        is_ready = mr_executor_is_ready(v->executor);
        mr_version_unpin(v, MR_EPOCH_SLOT_NONE);
    }
    answer(c, MR_OK, "", is_ready);
}

static void change(struct mr_engine *e, struct mr_worker_call *c, uint64_t load_id)
{
    const struct mr_control_args *q = c->control;
    const mr_str name = mr_str_c(q->model);
    struct asked *a = MR_NEW(struct asked);

    *a = (struct asked){e, c, load_id};
    if (q->kind == MR_CONTROL_UNLOAD) {
        mr_models_unload(e->models, name, q->flags & MR_CONTROL_DEPENDENTS, on_done, a);
        return;
    }
    struct mr_load_file *files = MR_NEW_ARRAY(struct mr_load_file, q->file_count + 1);
    for (uint32_t i = 0; i < q->file_count; i++) {
        files[i] = (struct mr_load_file){mr_str_c(q->files[i].path),
                                         {q->files[i].data, q->files[i].bytes}};
    }
    const struct mr_load_request load = {.config_json =
                                             q->config ? mr_str_c(q->config) : (mr_str){0},
                                         .files = files,
                                         .file_count = q->file_count};
    mr_models_load(e->models, name, &load, on_done, a);
    mr_free(files);
}

void engine_control(struct mr_engine *e, struct mr_worker_call *c)
{
    struct mr_err err;
    uint64_t load = 0;
    int rc = MR_OK;

    if (c->control->kind == MR_CONTROL_READY) {
        ready_say(e, c);
        return;
    }
    if (strcmp(c->control->model, c->model) == 0) {
        rc = MR_FAIL(&err, MR_E_INVALID, "model '%.128s' cannot load or unload itself", c->model);
    } else if (c->is_loading) {
        rc = mr_models_ask_begin(e->models, mr_str_c(c->model), &load, &err);
    }
    if (rc < 0) {
        answer(c, rc, err.msg, 0);
        return;
    }
    const bool is_loading = c->is_loading; /* it may be answered and freed */
    change(e, c, load);
    if (is_loading) {
        mr_models_asked(e->models);
    }
}
