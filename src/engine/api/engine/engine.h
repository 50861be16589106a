/* The engine: the models of a process and the schedulers of their versions, with one way in.
 *
 * A caller on a thread that reads the model table (a network thread, model/model.h) sets that thread's loop as the
 * reply loop of its requests; fast models run on it at once. A caller on any other thread needs no reply loop: its
 * requests are queued, and on_done is called on the thread that has the answer.
 *
 *   mr_engine_infer    finds the version, checks the request, and submits it
 *   mr_engine_find     the first step alone, for callers that do the others by sched/sched.h
 *   mr_engine_resolve  the first step, which may take time: a resolver makes models available that are not ready here
 *
 * Models are loaded, listed and unloaded through mr_engine_models. */
#ifndef MR_ENGINE_ENGINE_H
#define MR_ENGINE_ENGINE_H

#include "sched/sched.h"

struct mr_engine;
struct mr_ops;
struct mr_engine_wait;

/** Makes models available for requests, for example by loading a cold one. */
struct mr_resolver {
    /** `model` in `version` ("": any) is not ready here. MR_OK: it is ready now. MR_PENDING: mr_engine_resolved is
     *  called once, perhaps before this returns. Negative: the request's error. Thread: a request's; must not block. */
    int (*resolve)(void *ctx, mr_str model, mr_str version, struct mr_engine_wait *wait,
                   struct mr_err *err);
    void *ctx;
};

struct mr_engine_options {
    /** reader_count applies to the schedulers as well; maker.ctx becomes the engine. */
    struct mr_models_options models;
    /** Of each version; reader_count and warmup_budget are set by the engine. */
    struct mr_sched_options sched;
    /** Time for generated requests of all versions that the start waits for; 0 = none. */
    int64_t start_warmup_ns;
    /** Folders of libraries with operators (op/op.h), besides the built-in ones. */
    const char *const *op_dirs;
    size_t op_dir_count;
    struct mr_resolver resolver; /* resolve NULL: models that are not here are not found */
    uint32_t max_resolving;      /* requests that wait for the resolver, 0 = 4096 */
    /** (may be NULL) As mr_model_hooks.changed. */
    void (*changed)(void *ctx, const struct mr_version_change *change);
    void (*ready_changed)(void *ctx); /* (may be NULL) as mr_model_hooks.ready_changed */
    void *ctx;
};

/** Options are copied, except for those that mr_models_new borrows. Loads nothing: mr_models_start does that.
 *  Errors: those of mr_models_new and mr_ops_open. Thread: boot. */
int mr_engine_new(struct mr_engine **out, const struct mr_engine_options *options,
                  struct mr_err *err);
/** Ends loads (mr_models_loads_end) and answers requests that wait for the resolver with MR_E_UNAVAILABLE, as well as
 *  later ones. Loaded versions keep serving. Thread: any. */
void mr_engine_drain(struct mr_engine *e);
/** mr_engine_drain and mr_models_stop. Thread: not a reader. */
size_t mr_engine_stop(struct mr_engine *e, int64_t timeout_ns);
/** As mr_models_free. The resolver has answered everything. */
void mr_engine_free(struct mr_engine **e);
/** Lives as long as the engine. */
struct mr_models *mr_engine_models(struct mr_engine *e);
/** The operators that nodes of workflows may run. Lives as long as the engine. */
const struct mr_ops *mr_engine_ops(const struct mr_engine *e);

/* ---- versions ---- */

/** Where an inference can run. */
struct mr_target {
    struct mr_version *version; /* in this process, pinned with the reply loop's epoch slot */
};

/** The version that is ready here, pinned. Errors: as mr_models_find. Thread: the reply loop's; any with
 *  MR_EPOCH_SLOT_NONE. */
int mr_engine_find(struct mr_engine *e, const struct mr_reply_loop *reply_loop, mr_str model,
                   mr_str version, struct mr_target *out, struct mr_err *err);

/** The memory in which the model takes a request's body without a copy; NULL: any memory, or there is no such model here.
 *  Valid until the reply loop's next event. Thread: the reply loop's, a reader. */
const struct mr_block_provider *mr_engine_body_provider(struct mr_engine *e,
                                                        const struct mr_reply_loop *reply_loop,
                                                        mr_str model, mr_str version);

/** For a request that continues a sequence, a number if text.ptr is NULL: replaces the target by the version that has the
 *  sequence, pinned. This may be a version that the target's has replaced and that is kept for its sequences, of the same
 *  number if r->names_version; otherwise also another ready version, if the sequence began there without naming it.
 *  r->reply_loop is set. Thread: as mr_engine_find. */
void mr_engine_follow(struct mr_engine *e, const struct mr_infer *r, uint64_t number, mr_str text,
                      struct mr_target *io);
/** mr_sched_submit. A request that begins a sequence, or may when it is sent again, ends the one of the same id in the
 *  versions where mr_engine_follow would look for it. */
int mr_engine_submit(struct mr_engine *e, struct mr_infer *r);

/** A name that is being resolved. The caller's memory, where it stays until `done`. */
struct mr_resolve {
    /** status: MR_OK, mr_engine_find returns the version now if it is still there; or the failure, described by err.
     *  Thread: the reply loop's; if that has no post, the resolver's. */
    void (*done)(struct mr_resolve *q);
    int status;
    struct mr_err err;
    /* ---- private ---- */
    const struct mr_reply_loop *reply_loop;
    struct mr_engine_wait *wait;
    struct mr_mail mail;
    void (*seen)(void *ctx);
    void *seen_ctx;
};
/** As mr_engine_find; asks the resolver for a model that is not ready here. MR_PENDING: q->done will be called, perhaps
 *  before this returns if the reply loop has no post. Errors: the resolver's, MR_E_UNAVAILABLE (too many wait). */
int mr_engine_resolve(struct mr_engine *e, const struct mr_reply_loop *reply_loop, mr_str model,
                      mr_str version, struct mr_resolve *q, struct mr_target *out,
                      struct mr_err *err);
/** True: the wait has ended, and done is not called. False: done was called or will be. Thread: as mr_engine_find. */
bool mr_engine_resolve_cancel(struct mr_engine *e, struct mr_resolve *q);
/** For resolvers: answers a wait and sets *wait to NULL. err may be NULL with MR_OK. Thread: any. */
void mr_engine_resolved(struct mr_engine_wait **wait, int status, const struct mr_err *err);
/** The same with MR_OK, for a model that may soon be unloaded again: `seen` is called, once, after done, which may look it up, or when the
 *  request has gone. Thread: any; that of `seen`: done's, or the caller's. */
void mr_engine_resolved_until(struct mr_engine_wait **wait, void (*seen)(void *ctx), void *ctx);

/* ---- requests ---- */

/** An inference by name. The caller sets r->arena, on_done, and the other fields that sched.h lists as the caller's,
 *  but not the version. r->reply_loop NULL: the calling thread does not read the model table, see mr_reply_loop.
 *  Borrows `args` and all that it refers to until the request ends.
 *
 *  MR_OK: on_done will be called, perhaps before this returns if the reply loop has no post. MR_SCHED_DONE: the request
 *  ran on this thread, on_done is not called. In both cases r->status is its result, and the caller calls mr_engine_end.
 *  Negative: refused, r->err says why, nothing is held. A model of several answers requires r->on_response.
 *  A full queue or resolver: MR_E_UNAVAILABLE. A model waits while its answers are not taken (mr_infer_response_end).
 *
 *  Without a reply loop, a request past its deadline is answered when an instance takes it from the queue, or by
 *  mr_engine_expire. */
int mr_engine_infer(struct mr_engine *e, struct mr_infer *r, const struct mr_infer_args *args);
/** Cancels a request. True: it was removed before it ran, r->status is MR_E_CANCELLED, on_done is not called, and the
 *  caller calls mr_engine_end. False: on_done was called or will be. Thread: the reply loop's; if that has no post, any,
 *  but not during mr_engine_end. */
bool mr_engine_cancel(struct mr_engine *e, struct mr_infer *r);
/** Takes a request out of the queue of its model if its time is over, as mr_sched_expire. True: r->status says so, on_done is
 *  not called, and the caller calls mr_engine_end. Thread: as mr_engine_cancel. */
bool mr_engine_expire(struct mr_engine *e, struct mr_infer *r);
/** Counts the request and releases its outputs and version. */
void mr_engine_end(struct mr_infer *r);

#endif
