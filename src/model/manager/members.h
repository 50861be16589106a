/* Models that a graph asks: their loads come first, their unloads last. */
#ifndef MR_MODEL_MEMBERS_H
#define MR_MODEL_MEMBERS_H

#include "model/records/job.h"

struct mr_load;
/** Notes the models that a graph asks, and asks for those to be loaded where the mode wants that. True: its load has to wait
 *  for others, and ends with MR_PENDING. Thread: loader. */
bool mr_members_wait(struct mr_load *l);
/** Lock held: keeps a load that waits. */
void mr_members_defer(struct mr_models *m, struct mr_job *job);
/** Lock held: takes it out. */
void mr_members_take(struct mr_models *m, struct mr_job *job);
/** Lock held: takes one out that waits no longer; NULL: there is none. */
struct mr_job *mr_members_next(struct mr_models *m);
/** Lock held: a model is ready, and failed loads of graphs that ask it are worth another try. */
void mr_members_hasten(struct mr_models *m, const struct mr_model *ready);
/** Lock held: a version of the graph that serves asks the model. */
bool mr_members_ask(const struct mr_model *graph, const struct mr_model *model);
/** Lock held: all models that a graph asks serve, by the list of its last load or unload. */
bool mr_members_are_ready(struct mr_models *m, const struct mr_model *graph);
/** Before an unload; notes what the model asks. Errors: MR_E_INTERNAL, a graph that serves and is not unloaded with the model
 *  (mr_user_goes_along) needs it. Thread: loader. */
int mr_members_check_unload(struct mr_models *m, const struct mr_job *job, struct mr_err *err);
/** Before an unload. True: a graph that stays is being opened and asks the model, and the job ends with MR_PENDING until that is over.
 *  Thread: loader. */
bool mr_members_await_open(struct mr_models *m, struct mr_job *job);
/** A graph was unloaded: unloads what it asked and no other graph asks, if that was wanted. Takes job->done if so. Thread:
 *  loader. */
void mr_members_unload(struct mr_models *m, struct mr_job *job);

#endif
