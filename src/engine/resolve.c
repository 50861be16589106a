/* From a name to a version: here, or once the resolver has made it available.
 *
 * A wait ties a request's mr_resolve to the resolver's answer. It has two references, one of the call that asks and
 * one of the resolver, as either may finish first. Its request leaves it under the mutex, once: by the answer, a
 * cancel or a drain; the thread that took it out of the list informs the request. An answer to a wait without a
 * request is dropped. */
#include "base/mem.h"
#include "engine_priv.h"

struct mr_engine_wait {
    struct mr_engine *engine;
    struct mr_resolve *q; /* NULL: it has left */
    LIST_ENTRY(mr_engine_wait) link;
    unsigned refs;
};

int mr_engine_find(struct mr_engine *e, const struct mr_reply_loop *reply_loop, mr_str model,
                   mr_str version, struct mr_target *out, struct mr_err *err)
{
    struct mr_version *v;

    if (reply_loop->epoch_slot == MR_EPOCH_SLOT_NONE) {
        return mr_models_acquire(e->models, model, version, &out->version, err);
    }
    int rc = mr_models_find(e->models, model, version, &v, err);
    if (rc == MR_OK) {
        mr_version_pin(v, reply_loop->epoch_slot);
        out->version = v;
    }
    return rc;
}

const struct mr_block_provider *mr_engine_body_provider(struct mr_engine *e,
                                                        const struct mr_reply_loop *reply_loop,
                                                        mr_str model, mr_str version)
{
    struct mr_version *v;
    struct mr_err ignored;

    mr_err_clear(&ignored);
    if (reply_loop->epoch_slot == MR_EPOCH_SLOT_NONE ||
        mr_models_find(e->models, model, version, &v, &ignored) < 0) {
        return NULL;
    }
    return v->executor->bodies;
}

/* ---- other versions, and their sequences ---- */

/* A sequence, as another version may have it: one that was replaced, or that is ready beside the one of the request. */
struct sought_sequence {
    uint64_t number;
    mr_str text;
    int64_t only; /* this version, 0 = any */
};

/* Requests that name no version do not reach those that a client has begun in a version by its name. */
static bool is_open(const struct sought_sequence *q, const struct mr_version *other)
{
    /* Relaxed: from then on no request can name it. */
    const bool is_ready = !atomic_load_explicit(&other->retiring, memory_order_relaxed);

    return (q->only == 0 || q->only == other->number) &&
           mr_sched_has_sequence(other, q->number, q->text, is_ready);
}

static bool is_in(void *ctx, struct mr_version *other)
{
    return is_open(ctx, other);
}

static bool leave(void *ctx, struct mr_version *other)
{
    const struct sought_sequence *q = ctx;

    if (is_open(q, other)) {
        mr_sched_leave_sequence(other, q->number, q->text);
    }
    return false;
}

void mr_engine_follow(struct mr_engine *e, const struct mr_infer *r, uint64_t number, mr_str text,
                      struct mr_target *io)
{
    struct sought_sequence q = {number, text, r->names_version ? io->version->number : 0};
    const unsigned slot = r->reply_loop->epoch_slot;

    if (!mr_version_has_others(io->version) ||
        mr_sched_has_sequence(io->version, number, text, !r->names_version)) {
        return;
    }
    struct mr_version *v = mr_models_visit_others(e->models, io->version, slot, is_in, &q);
    if (v) {
        mr_version_unpin(io->version, slot);
        io->version = v;
    }
}

int mr_engine_submit(struct mr_engine *e, struct mr_infer *r)
{
    struct mr_version *v = r->version;
    const unsigned slot = r->reply_loop->epoch_slot;
    char text[MR_SEQUENCE_TEXT_MAX];

    if (!r->sequence || !(r->sequence->flags & MR_SEQUENCE_START) || !mr_version_has_others(v)) {
        return mr_sched_submit(r);
    }
    struct sought_sequence q = {r->sequence->number, r->sequence->text,
                                r->names_version ? v->number : 0};
    if (q.text.len) { /* r may be gone afterwards */
        memcpy(text, q.text.ptr, q.text.len);
        q.text.ptr = text;
    }
    mr_version_pin(v, slot);
    int rc = mr_sched_submit(r);
    /* It has begun, or may when it is sent again. */
    if (rc >= 0 || rc == MR_E_UNAVAILABLE || rc == MR_E_EXHAUSTED) {
        mr_models_visit_others(e->models, v, slot, leave, &q);
    }
    mr_version_unpin(v, slot);
    return rc;
}

/* Mutex held. True: w is gone. */
static bool wait_unref(struct mr_engine_wait *w, unsigned refs)
{
    w->refs -= refs;
    if (w->refs > 0) {
        return false;
    }
    mr_free(w);
    return true;
}

bool resolve_detach(struct mr_engine *e, struct mr_resolve *q)
{
    struct mr_engine_wait *w = q->wait;

    if (!w) {
        return false;
    }
    q->wait = NULL;
    w->q = NULL;
    LIST_REMOVE(w, link);
    e->wait_count--;
    return true;
}

bool mr_engine_resolve_cancel(struct mr_engine *e, struct mr_resolve *q)
{
    pthread_mutex_lock(&e->mutex);
    bool was_waiting = resolve_detach(e, q);
    pthread_mutex_unlock(&e->mutex);
    return was_waiting;
}

/* ---- answers ---- */

static void run_done(struct mr_mail *mail)
{
    struct mr_resolve *q = MR_CONTAINER_OF(mail, struct mr_resolve, mail);
    void (*seen)(void *ctx) = q->seen;
    void *ctx = q->seen_ctx;

    q->done(q); /* which may end q */
    if (seen) {
        seen(ctx);
    }
}

static void report(struct mr_resolve *q)
{
    q->mail.run = run_done;
    if (!q->reply_loop->post) {
        run_done(&q->mail);
        return;
    }
    q->reply_loop->post(q->reply_loop->ctx, &q->mail);
}

/* The request that waits; NULL: it has gone. */
static struct mr_resolve *end_wait(struct mr_engine_wait **wait)
{
    struct mr_engine_wait *w = *wait;
    struct mr_engine *e = w->engine;

    *wait = NULL;
    pthread_mutex_lock(&e->mutex);
    struct mr_resolve *q = w->q;
    if (q) {
        resolve_detach(e, q);
    }
    wait_unref(w, 1);
    pthread_mutex_unlock(&e->mutex);
    return q;
}

void mr_engine_resolved_until(struct mr_engine_wait **wait, void (*seen)(void *ctx), void *ctx)
{
    struct mr_resolve *q = end_wait(wait);

    if (!q) {
        seen(ctx);
        return;
    }
    q->status = MR_OK;
    q->seen = seen;
    q->seen_ctx = ctx;
    report(q);
}

void mr_engine_resolved(struct mr_engine_wait **wait, int status, const struct mr_err *err)
{
    struct mr_resolve *q = end_wait(wait);

    if (!q) {
        return;
    }
    q->status = status;
    if (status < 0 && err) {
        q->err = *err;
    }
    report(q);
}

void resolve_drain(struct mr_engine *e)
{
    struct mr_resolve *q;

    do {
        pthread_mutex_lock(&e->mutex);
        e->is_draining = true;
        struct mr_engine_wait *w = LIST_FIRST(&e->waits);
        q = w ? w->q : NULL;
        if (q) {
            resolve_detach(e, q);
        }
        pthread_mutex_unlock(&e->mutex);
        if (q) {
            q->status = MR_FAIL(&q->err, MR_E_UNAVAILABLE,
                                "the server is exiting, and the model is not loaded");
            report(q);
        }
    } while (q);
}

/* ---- questions ---- */

/* NULL: it may not wait, see *err. */
static struct mr_engine_wait *wait_new(struct mr_engine *e, struct mr_resolve *q,
                                       struct mr_err *err)
{
    struct mr_engine_wait *w = mr_try_alloc(sizeof *w);

    pthread_mutex_lock(&e->mutex);
    const bool is_full = e->wait_count >= e->options.max_resolving;
    if (w && !is_full && !e->is_draining) {
        *w = (struct mr_engine_wait){.engine = e, .q = q, .refs = 2};
        q->wait = w;
        LIST_INSERT_HEAD(&e->waits, w, link);
        e->wait_count++;
        pthread_mutex_unlock(&e->mutex);
        return w;
    }
    /* While draining, the error is that of the look-up. */
    if (!e->is_draining && is_full) {
        MR_FAIL(err, MR_E_UNAVAILABLE,
                "%u requests wait for models to be loaded, more may not (max_resolving)",
                e->options.max_resolving);
    } else if (!e->is_draining) {
        MR_FAIL(err, MR_E_EXHAUSTED, "no memory for a request that waits for its model");
    }
    pthread_mutex_unlock(&e->mutex);
    mr_free(w);
    return NULL;
}

int mr_engine_resolve(struct mr_engine *e, const struct mr_reply_loop *reply_loop, mr_str model,
                      mr_str version, struct mr_resolve *q, struct mr_target *out,
                      struct mr_err *err)
{
    const struct mr_resolver *resolver = &e->options.resolver;
    struct mr_err why;
    int rc = mr_engine_find(e, reply_loop, model, version, out, &why);

    if (rc == MR_OK) {
        return rc;
    }
    *err = why;
    if (!resolver->resolve || (rc != MR_E_NOT_FOUND && rc != MR_E_UNAVAILABLE)) {
        return rc;
    }
    q->reply_loop = reply_loop;
    q->status = MR_OK;
    q->seen = NULL;
    struct mr_engine_wait *w = wait_new(e, q, err);
    if (!w) {
        return err->status;
    }
    rc = resolver->resolve(resolver->ctx, model, version, w, err);
    pthread_mutex_lock(&e->mutex);
    /* Without a request, a drain has answered it in the meantime through q->done, whatever the resolver returned. */
    const bool has_answer = !w->q;
    if (rc != MR_PENDING && !has_answer) {
        resolve_detach(e, q);
    }
    wait_unref(w, rc == MR_PENDING ? 1 : 2);
    pthread_mutex_unlock(&e->mutex);
    if (rc == MR_PENDING || has_answer) {
        return MR_PENDING;
    }
    return rc == MR_OK ? mr_engine_find(e, reply_loop, model, version, out, err) : rc;
}
