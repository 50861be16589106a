/* The model in this process as a host. The loop's thread is no reader of the model table: the model is loaded once
 * and never replaced. Executions run on the scheduler's instance threads, never inline, as the loop also checks the
 * answers of other hosts. */
#include "local.h"

#include <stdio.h>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/wire.h"

#define QUEUE_MOST   65536 /* the host's limit bounds it */
#define STOP_MOST_NS (60 * MR_NS_PER_S)

struct local_call {
    struct mr_infer infer;
    struct mr_infer_args args;
    struct mr_oip_request request;
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
    struct mr_engine *engine;
    struct mr_version *version; /* pinned */
    struct mr_reply_loop reply_loop;
    struct local_call *calls;
    bool is_closing;
};

/* ---- the model ---- */

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
    struct mr_engine_options engine = {
        .sched = {.max_queue_size = QUEUE_MOST, .records = &mr_wire_records}};
    struct mr_models_options *models = &engine.models;
    struct mr_target target;
    struct local *l = MR_NEW(struct local);
    struct reason why = {""};
    struct mr_err reason;
    size_t failed = 0;
    int rc;

    *l = (struct local){
        .loop = loop, .reply_loop = {.post = post, .ctx = loop, .epoch_slot = MR_EPOCH_SLOT_NONE}};
    mr_models_options_init(models);
    models->repositories = &o->hosts.repository;
    models->repository_count = 1;
    models->control = MR_MODEL_CONTROL_EXPLICIT;
    models->load_models = &o->model.name;
    models->load_model_count = 1;
    models->backend_dirs = o->hosts.backend_dirs;
    models->backend_dir_count = o->hosts.backend_dir_count;
    models->maker = o->hosts.maker ? *o->hosts.maker : models->maker;
    MR_TRY(mr_engine_new(&l->engine, &engine, err));
    MR_TRY(mr_models_start(mr_engine_models(l->engine), &failed, err));
    rc = mr_engine_find(l->engine, &l->reply_loop, mr_str_c(o->model.name),
                        mr_str_c(o->model.version ? o->model.version : ""), &target, &reason);
    if (rc < 0) {
        mr_models_report(mr_engine_models(l->engine), reason_take, &why);
        rc = MR_FAIL(err, rc, "model '%s' of %s: %s", o->model.name, o->hosts.repository,
                     why.text[0] ? why.text : reason.msg);
        goto out;
    }
    l->version = target.version;
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
        mr_version_unpin(l->version, l->reply_loop.epoch_slot);
    }
    if (l->engine) {
        mr_engine_stop(l->engine, STOP_MOST_NS);
        mr_engine_free(&l->engine);
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
    mr_engine_end(&c->infer);
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

    *c = (struct local_call){.local = l, .request = *request, .done = done, .ctx = ctx};
    mr_arena_init(&c->arena, 1024, SIZE_MAX);
    c->infer.arena = &c->arena;
    c->infer.reply_loop = &l->reply_loop;
    c->infer.protocol = MR_INFER_GRPC;
    c->infer.on_done = on_done;
    c->infer.user = c;
    c->infer.times.received = mr_now_ns();
    int rc = mr_wire_args(&c->request, &c->arena, &c->args, &c->infer.err);
    c->args.model = l->version->model_name;
    c->args.version = l->version->number_text;
    rc = rc < 0 ? rc : mr_engine_infer(l->engine, &c->infer, &c->args);
    c->next = l->calls;
    if (c->next) {
        c->next->before = c;
    }
    l->calls = c;
    if (rc < 0) {
        c->infer.status = rc;
        c->is_over = true;
        c->later.run = on_later;
        mr_loop_post(l->loop, &c->later);
    }
}

int local_response(const struct mr_infer *r, struct mr_oip_response *out, struct mr_err *err)
{
    const struct local_call *c = r->user;

    return mr_wire_response(r, &c->request, out, err);
}

void local_close(struct local *l)
{
    struct local_call *next;

    for (struct local_call *c = l->calls; c; c = next) {
        next = c->next;
        if (!c->is_over && mr_engine_cancel(l->engine, &c->infer)) {
            call_end(c);
        }
    }
    if (l->calls) {
        l->is_closing = true;
        mr_loop_run(l->loop);
    }
}
