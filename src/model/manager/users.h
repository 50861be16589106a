/* Ensembles go with the models that they ask, as in Triton: they are unloaded before such a model, or when an update of it no
 * longer fits, and loaded again once what they ask is ready. Workflows are asked on: they have nodes for what fails. So
 * are all graphs of a mesh, which brings a model when it is asked. */
#ifndef MR_MODEL_USERS_H
#define MR_MODEL_USERS_H

#include "model/records/job.h"

/** Lock held: a graph that serves is unloaded with the models that it asks. */
bool mr_user_goes_along(const struct mr_models *m, const struct mr_model *graph);
/** Lock held: a graph that goes along serves and asks the model. */
bool mr_users_serve(struct mr_models *m, const struct mr_model *model);
/** Before the model is unloaded: unloads such graphs. True: there are some, and the job ends with MR_PENDING until
 *  they are unloaded. Thread: loader. */
bool mr_users_unload(struct mr_models *m, struct mr_job *job);
/** Lock held, at the end of the unload of an ensemble because of a model: it is loaded again when a model that it asks is
 *  ready, unless a newer request comes before. */
void mr_users_return_later(struct mr_models *m, const struct mr_job *job);
/** After an update: unloads such graphs that the model does not fit any longer. Thread: loader; blocks. */
void mr_users_check(struct mr_models *m, const struct mr_model *model);

#endif
