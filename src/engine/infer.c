/* Requests by name. The state of a request that waits for the resolver is in its arena; nothing else is kept here. */
#include "engine_priv.h"

/* A request whose name is being resolved. */
struct call {
    struct mr_resolve resolve;
    struct mr_engine *engine;
    struct mr_infer *infer;
    const struct mr_infer_args *args;
    bool is_cancelled; /* after the resolver's answer */
};

/* The version is pinned. Negative: refused. */
static int bind(struct mr_engine *e, struct mr_infer *r, const struct mr_infer_args *args,
                struct mr_target *target)
{
    r->names_version = args->version.len > 0;
    if (args->has_sequence && !(args->sequence_flags & MR_SEQUENCE_START)) {
        mr_engine_follow(e, r, args->correlation_id, args->correlation_text, target);
    }
    r->version = target->version;
    const struct mr_version *v = r->version;
    if (mr_version_is_streaming(v) && !r->on_response) {
        return MR_FAIL(&r->err, MR_E_UNSUPPORTED,
                       "model '%.*s' gives any number of answers, and the caller takes one",
                       MR_STR_ARG(v->model_name));
    }
    return mr_infer_validate(r, args, &r->err);
}

/* The resolver has answered. */
static void on_resolved(struct mr_resolve *q)
{
    struct call *c = MR_CONTAINER_OF(q, struct call, resolve);
    struct mr_engine *e = c->engine;
    struct mr_infer *r = c->infer;
    struct mr_target target;
    int rc = q->status;

    if (rc < 0) {
        r->err = q->err;
    } else {
        rc = mr_engine_find(e, r->reply_loop, c->args->model, c->args->version, &target, &r->err);
    }
    if (rc == MR_OK) {
        rc = bind(e, r, c->args, &target);
    }
    pthread_mutex_lock(&e->mutex);
    r->resolving = NULL;
    const bool is_cancelled = c->is_cancelled;
    pthread_mutex_unlock(&e->mutex);
    if (is_cancelled) {
        rc = MR_FAIL(&r->err, MR_E_CANCELLED, "the request was cancelled");
    }
    if (rc == MR_OK) {
        rc = mr_engine_submit(e, r);
        if (rc == MR_OK) {
            return; /* r may be gone */
        }
    } else {
        r->status = rc;
    }
    r->on_done(r);
}

/* As mr_engine_find, or MR_PENDING. */
static int resolve(struct mr_engine *e, struct mr_infer *r, const struct mr_infer_args *args,
                   struct mr_target *out)
{
    struct call *c;

    if (!e->options.resolver.resolve) {
        return mr_engine_find(e, r->reply_loop, args->model, args->version, out, &r->err);
    }
    c = MR_ARENA_NEW(r->arena, struct call);
    if (!c) {
        return MR_ARENA_FAIL(&r->err);
    }
    *c = (struct call){.resolve = {.done = on_resolved}, .engine = e, .infer = r, .args = args};
    r->resolving = c;
    int rc =
        mr_engine_resolve(e, r->reply_loop, args->model, args->version, &c->resolve, out, &r->err);
    if (rc != MR_PENDING) {
        r->resolving = NULL;
    }
    return rc;
}

int mr_engine_infer(struct mr_engine *e, struct mr_infer *r, const struct mr_infer_args *args)
{
    struct mr_target target = {NULL};
    int rc;

    if (!r->reply_loop) {
        r->reply_loop = &e->no_loop;
    }
    r->status = MR_OK;
    rc = r->is_part && r->chain ? engine_part_begin(e, r, args->model) : MR_OK;
    rc = rc < 0 ? rc : resolve(e, r, args, &target);
    if (rc == MR_PENDING) {
        return MR_OK; /* r may be gone */
    }
    if (rc == MR_OK) {
        rc = bind(e, r, args, &target);
        rc = rc < 0 ? rc : mr_engine_submit(e, r);
    }
    if (rc == MR_SCHED_DONE) {
        engine_part_end(r);
    }
    if (rc < 0) {
        r->status = rc;
        mr_engine_end(r);
    }
    return rc;
}

bool mr_engine_cancel(struct mr_engine *e, struct mr_infer *r)
{
    bool was_waiting = false;

    pthread_mutex_lock(&e->mutex);
    struct call *c = r->resolving;
    if (c) {
        was_waiting = resolve_detach(e, &c->resolve);
        c->is_cancelled = !was_waiting;
    }
    pthread_mutex_unlock(&e->mutex);
    if (was_waiting) {
        r->resolving = NULL;
        r->status = MR_FAIL(&r->err, MR_E_CANCELLED, "the request was cancelled");
    } else {
        was_waiting = !c && r->version && mr_sched_cancel(r);
    }
    if (was_waiting) {
        engine_part_end(r);
    }
    return was_waiting;
}

bool mr_engine_expire(struct mr_engine *e, struct mr_infer *r)
{
    pthread_mutex_lock(&e->mutex);
    const bool is_resolving = r->resolving != NULL;
    pthread_mutex_unlock(&e->mutex);
    return !is_resolving && r->version && mr_sched_expire(r);
}

void mr_engine_end(struct mr_infer *r)
{
    engine_part_end(r);
    if (r->version) {
        mr_infer_finish(r, 0);
    }
}
