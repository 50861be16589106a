/* A model in the process of the job itself, through the scheduler: no server, no network. Private.
 *
 * Thread: that of the loop, but for local_new and local_free, which block and may run when the loop does not. */
#ifndef MR_BATCH_LOCAL_H
#define MR_BATCH_LOCAL_H

#include "batch/batch.h"
#include "net/loop.h"
#include "oip/oip.h"
#include "sched/sched.h"

struct local;

/** Loads the model of the options from their repository and waits for it. Errors: the model's. */
int local_new(struct local **out, struct mr_loop *loop, const struct mr_batch_options *o,
              struct mr_err *err);
/** Ends waiting calls and waits for running ones; `done` is called for all of them. */
void local_close(struct local *l);
/** After local_close. Unloads the model. NULL is allowed. */
void local_free(struct local **l);
/** Names are the model's, and live as long as it. Errors: MR_E_EXHAUSTED. */
int local_metadata(const struct local *l, struct mr_arena *arena, struct mr_oip_metadata *out,
                   struct mr_err *err);

typedef void(local_done_fn)(void *ctx, const struct mr_infer *infer);
/** `done` is called once, never from within this; what infer has lives until it returns. What the request
 *  refers to must live until then. infer->status: MR_OK, MR_E_INVALID (the model does not take it), MR_E_UNAVAILABLE (its queue is full),
 *  MR_E_CANCELLED (local_close), or the model's. */
void local_send(struct local *l, const struct mr_oip_request *request, local_done_fn *done,
                void *ctx);
/** The outputs of a call that succeeded, valid until `done` returns. Errors: MR_E_EXHAUSTED. */
int local_response(const struct mr_infer *infer, struct mr_oip_response *out, struct mr_err *err);

#endif
