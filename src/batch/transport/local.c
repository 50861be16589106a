/* The loop's thread is the one reader of the manager, and stays online: the model is loaded once and never replaced.
 * Executions run on the scheduler's instance threads, never inline: the loop has the answers of others to judge. */
#include "local.h"

#include <stdio.h>

#include "base/clock.h"
#include "engine/wire.h"
#include "model/model.h"

#define QUEUE_MOST   65536 /* the route's limit is what bounds it */
#define STOP_MOST_NS (60 * MR_NS_PER_S)

struct local_call {
    struct mr_infer infer;
    struct mr_arena arena; /* its results */
    struct mr_mail later;  /* when it ended at once */
    bool is_over;          /* that */
    struct local *local;
    local_done_fn *done;
    void *ctx;
    struct local_call *next; /* of those that are not done */
    struct local_call *before;
};

struct local {
    struct mr_loop *loop;
    struct mr_models *models;
    struct mr_version *version; /* pinned */
    struct mr_infer_home home;
    struct local_call *calls;
    bool is_online;
    bool is_closing;
};

/* ---- the model ---- */

static int hook_serve(void *ctx, struct mr_version *v, struct mr_err *err)
{
    const struct mr_sched_options o = {
        .reader_count = 1, .max_queue_size = QUEUE_MOST, .records = &mr_wire_records};

    (void)ctx;
    return mr_sched_open(v, &o, err);
}

static void hook_unserve(void *ctx, struct mr_version *v)
{
    (void)ctx;
    mr_sched_close(v);
}

static void post(void *ctx, struct mr_mail *mail)
{
    mr_loop_post(ctx, mail);
}

struct reason {
    char text[400];
};

static void reason_take(void *ctx, const struct mr_model_report *r)
{
    struct reason *why = ctx;

    if (r->reason.len > 0) {
        snprintf(why->text, sizeof why->text, "%.*s", MR_STR_ARG(r->reason));
    }
}

int local_new(struct local **out, struct mr_loop *loop, const struct mr_batch_options *o,
              struct mr_err *err)
{
    const struct mr_model_hooks hooks = {.serve = hook_serve, .unserve = hook_unserve};
    struct mr_models_options models;
    struct local *l = MR_NEW(struct local);
    struct reason why = {""};
    struct mr_err reason;
    size_t failed = 0;
    int rc;

    *l = (struct local){.loop = loop, .home = {.post = post, .ctx = loop}};
    mr_models_options_init(&models);
    models.repositories = &o->repository;
    models.repository_count = 1;
    models.control = MR_MODEL_CONTROL_EXPLICIT;
    models.load_models = &o->model;
    models.load_model_count = 1;
    models.backend_dirs = o->backend_dirs;
    models.backend_dir_count = o->backend_dir_count;
    models.reader_count = 1;
    MR_TRY(mr_models_new(&l->models, &models, &hooks, err));
    MR_TRY(mr_models_start(l->models, &failed, err));
    mr_epoch_online(mr_models_epoch(l->models));
    l->is_online = true;
    rc = mr_models_find(l->models, mr_str_c(o->model), mr_str_c(o->version ? o->version : ""),
                        &l->version, &reason);
    if (rc < 0) {
        l->version = NULL;
        mr_models_report(l->models, reason_take, &why);
        rc = MR_FAIL(err, rc, "model '%s' of %s: %s", o->model, o->repository,
                     why.text[0] ? why.text : reason.msg);
        goto out;
    }
    mr_version_pin(l->version, 0);
    *out = l;
out:
    if (rc < 0) {
        local_free(&l);
    }
    return rc;
}

void local_free(struct local **local)
{
    struct local *l = *local;

    if (!l) {
        return;
    }
    if (l->version) {
        mr_version_unpin(l->version, 0);
    }
    if (l->is_online) {
        mr_epoch_offline(mr_models_epoch(l->models));
    }
    if (l->models) {
        mr_models_stop(l->models, STOP_MOST_NS);
        mr_models_free(&l->models);
    }
    mr_freep(local);
}

/* ---- metadata ---- */

static int ios_make(const struct mr_version *v, const struct mr_model_io *from, uint32_t count,
                    struct mr_arena *arena, struct mr_oip_io **out, struct mr_err *err)
{
    const int batch = v->max_batch_size > 0;

    *out = MR_ARENA_ARRAY(arena, struct mr_oip_io, count + 1);
    if (!*out) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the model's metadata");
    }
    for (uint32_t i = 0; i < count; i++) {
        struct mr_oip_io *io = &(*out)[i];
        *io = (struct mr_oip_io){
            .name = from[i].name, .dtype = from[i].dtype, .rank = from[i].rank + batch};
        io->shape[0] = -1;
        for (int d = 0; d < from[i].rank; d++) {
            io->shape[d + batch] = from[i].dims[d];
        }
    }
    return MR_OK;
}

int local_metadata(const struct local *l, struct mr_arena *arena, struct mr_oip_metadata *out,
                   struct mr_err *err)
{
    const struct mr_version *v = l->version;
    int rc;

    *out = (struct mr_oip_metadata){.name = v->model_name,
                                    .version = v->number_text,
                                    .input_count = v->input_count,
                                    .output_count = v->output_count};
    MR_TRY(ios_make(v, v->inputs, v->input_count, arena, &out->inputs, err));
    MR_TRY(ios_make(v, v->outputs, v->output_count, arena, &out->outputs, err));
out:
    return rc;
}

/* ---- calls ---- */

static void call_end(struct local_call *c)
{
    struct local *l = c->local;

    if (c->before) {
        c->before->next = c->next;
    } else {
        l->calls = c->next;
    }
    if (c->next) {
        c->next->before = c->before;
    }
    c->done(c->ctx, &c->infer);
    mr_infer_finish(&c->infer, 0);
    mr_arena_fini(&c->arena);
    mr_free(c);
    if (l->is_closing && !l->calls) {
        mr_loop_stop(l->loop);
    }
}

static void on_done(struct mr_infer *r)
{
    call_end(r->user);
}

static void on_later(struct mr_mail *mail)
{
    call_end(MR_CONTAINER_OF(mail, struct local_call, later));
}

void local_send(struct local *l, const struct mr_oip_request *request, local_done_fn *done,
                void *ctx)
{
    struct local_call *c = MR_NEW(struct local_call);
    struct mr_infer_args args;

    *c = (struct local_call){.local = l, .done = done, .ctx = ctx};
    c->infer.version = l->version;
    mr_arena_init(&c->arena, 1024, SIZE_MAX);
    c->infer.arena = &c->arena;
    c->infer.home = &l->home;
    c->infer.protocol = MR_INFER_GRPC;
    c->infer.on_done = on_done;
    c->infer.user = c;
    c->infer.times.received = mr_now_ns();
    mr_version_pin(l->version, 0);
    int rc = mr_wire_args(request, &c->arena, &args, &c->infer.err);
    rc = rc < 0 ? rc : mr_infer_bind(&c->infer, &args, &c->infer.err);
    rc = rc < 0 ? rc : mr_sched_submit(&c->infer);
    c->next = l->calls;
    if (c->next) {
        c->next->before = c;
    }
    l->calls = c;
    if (rc != MR_OK) {
        c->infer.status = rc < 0 ? rc : c->infer.status;
        c->is_over = true;
        c->later.run = on_later;
        mr_loop_post(l->loop, &c->later);
    }
}

int local_response(const struct mr_infer *r, struct mr_oip_response *out, struct mr_err *err)
{
    const struct mr_version *v = r->version;
    struct mr_oip_tensor *t = MR_ARENA_ARRAY(r->arena, struct mr_oip_tensor, v->output_count + 1);
    size_t n = 0;

    if (!t) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for an answer");
    }
    for (uint32_t i = 0; i < v->output_count; i++) {
        if (r->wanted[i]) {
            t[n++] = (struct mr_oip_tensor){.name = v->outputs[i].name,
                                            .tensor = mr_infer_output(r, i)->tensor,
                                            .block = mr_infer_output(r, i)->block};
        }
    }
    *out = (struct mr_oip_response){.model_name = v->model_name,
                                    .model_version = v->number_text,
                                    .outputs = t,
                                    .output_count = n};
    return MR_OK;
}

void local_close(struct local *l)
{
    struct local_call *next;

    for (struct local_call *c = l->calls; c; c = next) {
        next = c->next;
        if (!c->is_over && mr_sched_cancel(&c->infer)) {
            call_end(c);
        }
    }
    if (l->calls) {
        l->is_closing = true;
        mr_loop_run(l->loop);
    }
}
