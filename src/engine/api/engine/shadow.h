/* The shadow of an endpoint or of a node of a workflow: some requests run once more on another model when their answers have left, and the outputs are
 * compared. It takes one request at a time, never on a network thread, and drops what does not fit its queue. */
#ifndef MR_ENGINE_SHADOW_H
#define MR_ENGINE_SHADOW_H

#include "engine/engine.h"
#include "variant/config.h"

struct mr_shadow;
struct mr_shadow_job;

struct mr_shadow_stats {
    uint64_t requests; /* that were to be copied */
    uint64_t dropped;  /* of these: the queue or the memory was full */
    uint64_t failed;
    uint64_t compared;
    uint64_t different;
};

/** Copies what it needs of the configuration. */
struct mr_shadow *mr_shadow_new(struct mr_engine *engine, const struct mr_shadow_config *config);
/** Takes and starts nothing more. Thread: any. */
void mr_shadow_stop(struct mr_shadow *s);
/** Nothing waits or runs. Thread: any. */
bool mr_shadow_is_idle(struct mr_shadow *s);
/** It is idle. */
void mr_shadow_free(struct mr_shadow **s);
/** mr_shadow_stop; it is freed when what runs has ended and no job is on its way to mr_shadow_run. *s may be NULL. Thread:
 *  any. */
void mr_shadow_drop(struct mr_shadow **s);
struct mr_shadow_stats mr_shadow_stats(struct mr_shadow *s);

/** Copies the inputs of a request that was answered and refers to its outputs; NULL: it is dropped, or of a sequence, of which
 *  a model would miss the requests that are not copied. Before mr_infer_finish. Thread: the request's. */
struct mr_shadow_job *mr_shadow_take(struct mr_shadow *s, const struct mr_infer *r);
/** Takes the job; runs it when those before it are over. Thread: any. */
void mr_shadow_run(struct mr_shadow_job **job);
/** For the time until mr_shadow_run. */
struct mr_mail *mr_shadow_mail(struct mr_shadow_job *job);
struct mr_shadow_job *mr_shadow_of_mail(struct mr_mail *mail);

#endif
