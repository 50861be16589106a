/* The shadow of an endpoint: some requests run once more on another model when their answers have left, and the outputs are
 * compared. It takes one request at a time, never on a network thread, and drops what does not fit its queue. */
#ifndef MR_SERVE_ENDPOINTS_SHADOW_H
#define MR_SERVE_ENDPOINTS_SHADOW_H

#include "engine/engine.h"
#include "variant/config.h"

struct shadow;
struct shadow_job;

struct shadow_stats {
    uint64_t requests; /* that were to be copied */
    uint64_t dropped;  /* of these: the queue or the memory was full */
    uint64_t failed;
    uint64_t compared;
    uint64_t different;
};

/* Borrows both. */
struct shadow *shadow_new(struct mr_engine *engine, const struct mr_shadow_config *config);
/* Takes and starts nothing more. Thread: any. */
void shadow_stop(struct shadow *s);
/* Nothing waits or runs. Thread: any. */
bool shadow_is_idle(struct shadow *s);
/* It is idle. */
void shadow_free(struct shadow **s);
struct shadow_stats shadow_stats(struct shadow *s);

/* Copies the inputs of a request that was answered and refers to its outputs; NULL: it is dropped. Before mr_infer_finish.
 * Thread: the request's. */
struct shadow_job *shadow_take(struct shadow *s, const struct mr_infer *r);
/* Takes the job; runs it when those before it are over. Thread: any. */
void shadow_run(struct shadow_job **job);
/* For the time until shadow_run. */
struct mr_mail *shadow_mail(struct shadow_job *job);
struct shadow_job *shadow_of_mail(struct mr_mail *mail);

/* Whether two outputs are the same, for `config`. Pure. */
bool shadow_outputs_agree(const struct mr_shadow_config *config, const struct mr_tensor *a,
                          const struct mr_tensor *b);

#endif
