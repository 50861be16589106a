/* The engine: the models of a process and the schedulers of their versions, behind one way in.
 *
 * A caller on a thread that reads the model table (a network thread, model/model.h) gives its requests that thread as
 * home; what runs fast runs there at once. A caller on any other thread needs none of this: without a home its requests are
 * queued, and answers come on the thread that has them.
 *
 *   mr_engine_infer    finds the version, checks the request, and submits it
 *   mr_engine_find     the first step alone, for callers that do the others by sched/sched.h
 *   mr_engine_resolve  the first step, which may take a while: a resolver makes models available that are not here
 *
 * Models are loaded, listed and unloaded through mr_engine_models. */
#ifndef MR_ENGINE_ENGINE_H
#define MR_ENGINE_ENGINE_H

#include "sched/sched.h"

struct mr_engine;
struct mr_engine_wait;

/** Makes models available that requests ask for: loads one that is cold, say. */
struct mr_resolver {
    /** `model` in `version` ("": any) is not ready here. MR_OK: it is now. MR_PENDING: the answer comes by
     *  mr_engine_resolved, once, perhaps before this returns. Negative: the request's error. Thread: that of a
     *  request; must not block. */
    int (*resolve)(void *ctx, mr_str model, mr_str version, struct mr_engine_wait *wait,
                   struct mr_err *err);
    void *ctx;
};

struct mr_engine_options {
    struct mr_models_options models; /* reader_count is that of the schedulers, too */
    struct mr_sched_options
        sched; /* of each version; reader_count and warmup_budget are set by the engine */
    int64_t
        start_warmup_ns; /* made-up requests of all versions that the start waits for; 0 = none of them */
    struct mr_resolver resolver; /* resolve NULL: what is not here is not found */
    uint32_t max_resolving;      /* requests that wait for the resolver, 0 = 4096 */
    /** (may be NULL) As mr_model_hooks.changed. */
    void (*changed)(void *ctx, const struct mr_version_change *change);
    void *ctx;
};

/** Options are copied, but for what mr_models_new says of its own. Nothing is loaded: mr_models_start does that. Errors: those of
 *  mr_models_new. Thread: boot. */
int mr_engine_new(struct mr_engine **out, const struct mr_engine_options *options,
                  struct mr_err *err);
/** Loads end (mr_models_loads_end), requests that wait for the resolver are answered MR_E_UNAVAILABLE, and no more
 *  wait. What is loaded serves. Thread: any. */
void mr_engine_drain(struct mr_engine *e);
/** mr_engine_drain and mr_models_stop. Thread: not a reader. */
size_t mr_engine_stop(struct mr_engine *e, int64_t timeout_ns);
/** As mr_models_free. The resolver has answered everything. */
void mr_engine_free(struct mr_engine **e);
/** Lives as long as the engine. */
struct mr_models *mr_engine_models(struct mr_engine *e);

/* ---- versions ---- */

/** Where an inference can run. */
struct mr_target {
    struct mr_version *version; /* in this process, pinned by the home's reader */
};

/** The version that is ready here, pinned. Errors: as mr_models_find. Thread: the home's; any with MR_READER_NONE. */
int mr_engine_find(struct mr_engine *e, const struct mr_infer_home *home, mr_str model,
                   mr_str version, struct mr_target *out, struct mr_err *err);

/** The memory where the model takes a body that comes from a client without a copy; NULL: any, or no such model is here.
 *  Valid until the home's thread goes on to its next event. Thread: the home's, a reader. */
const struct mr_block_provider *mr_engine_body_provider(struct mr_engine *e,
                                                        const struct mr_infer_home *home,
                                                        mr_str model, mr_str version);

/** A request of a sequence that it does not start: the version that has the sequence, which may be one that the target's
 *  took the place of (mr_sched_version_of), in place of the target's, pinned. Callers that are no readers stay with the
 *  target. Thread: the home's. */
void mr_engine_follow(const struct mr_infer_home *home, uint64_t number, mr_str text,
                      bool any_number, struct mr_target *io);

/** A name that is being resolved. The caller's memory, where it stays until `done`. */
struct mr_resolve {
    /** status: MR_OK, mr_engine_find gives the version now if it is still there; or the failure, which err tells. Thread:
     *  the home's; without a post of the home the resolver's. */
    void (*done)(struct mr_resolve *q);
    int status;
    struct mr_err err;
    /* ---- private ---- */
    const struct mr_infer_home *home;
    struct mr_engine_wait *wait;
    struct mr_mail mail;
};
/** As mr_engine_find; what is not ready here is asked of the resolver. MR_PENDING: q->done comes, without a post of the
 *  home perhaps before this returns. Errors: the resolver's, MR_E_UNAVAILABLE (too many wait). */
int mr_engine_resolve(struct mr_engine *e, const struct mr_infer_home *home, mr_str model,
                      mr_str version, struct mr_resolve *q, struct mr_target *out,
                      struct mr_err *err);
/** True: it does not wait any more, and done is not called. False: done is on its way, or was called. Thread: as
 *  mr_engine_find. */
bool mr_engine_resolve_cancel(struct mr_engine *e, struct mr_resolve *q);
/** For resolvers: the answer to a wait, which is gone. err may be NULL with MR_OK. Thread: any. */
void mr_engine_resolved(struct mr_engine_wait **wait, int status, const struct mr_err *err);

/* ---- requests ---- */

/** An inference by name. Set before: r->arena, on_done, and what else sched.h says is the caller's, but the version; r->home NULL:
 *  a caller that is no reader, see mr_infer_home. `args`, and all that it refers to, lives until the end.
 *
 *  MR_OK: on_done comes, without a post of the home perhaps before this returns. MR_SCHED_DONE: it ran on this thread,
 *  on_done is not called. After both r->status says how it ended, and mr_engine_end is due. Negative: refused, r->err
 *  says why, nothing is held. A model of several answers is refused without r->on_response. When the queue or the resolver have
 *  enough: MR_E_UNAVAILABLE; a model waits while its answers are not taken (mr_infer_response_end).
 *
 *  Without a thread of its own a request that is past its deadline is answered when an instance comes to it. */
int mr_engine_infer(struct mr_engine *e, struct mr_infer *r, const struct mr_infer_args *args);
/** Cancels a request. True: it has not run and is out, r->status is MR_E_CANCELLED, on_done is not called;
 *  mr_engine_end is due. False: on_done comes, or has. Thread: the home's; without a post of the home any, not beside
 *  mr_engine_end. */
bool mr_engine_cancel(struct mr_engine *e, struct mr_infer *r);
/** The outputs are not needed any more: counts the request, lets go of outputs and version. */
void mr_engine_end(struct mr_infer *r);

#endif
