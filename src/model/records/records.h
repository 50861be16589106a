/* The record of each version: its state, and what is reported about its changes. The lock is held unless said otherwise. */
#ifndef MR_MODEL_RECORDS_H
#define MR_MODEL_RECORDS_H

#include "state.h"

/** The model of that name, made if there is none. NULL: there are MR_MODELS_MAX. */
struct mr_model *mr_model_get(struct mr_models *m, mr_str name);
/** Forgets a model without records, jobs and draining versions. */
void mr_model_forget_if_empty(struct mr_models *m, struct mr_model *model);
/** No lock: frees a model that is in no table any more. */
void mr_model_free(void *model);
/** Lock held: a version of the model is ready. */
bool mr_model_serves(const struct mr_model *model);
struct mr_version_record *mr_record_find(struct mr_model *model, int64_t number);
struct mr_version_record *mr_record_get(struct mr_model *model, int64_t number);
void mr_record_remove(struct mr_model *model, size_t index);
/** Sets state and reason ("" = none) and queues the change for the hook. */
void mr_record_set(struct mr_models *m, struct mr_model *model, struct mr_version_record *r,
                   enum mr_version_state state, const char *reason);
/** Records a failed reload of a version that serves. */
void mr_record_warn(struct mr_models *m, struct mr_model *model, struct mr_version_record *r,
                    const char *warning);
/** Sets the failure of the model as a whole. NULL: it did not fail; its versions have their own reasons. */
void mr_model_set_error(struct mr_models *m, struct mr_model *model, const char *reason);
/** Clears the failure of a model that was unloaded. */
void mr_model_clear_error(struct mr_models *m, struct mr_model *model);
/** To be called after any change of records: adjusts m->unready. */
void mr_model_count_unready(struct mr_models *m, struct mr_model *model);
/** Lock held: forgets which models a graph asks. */
void mr_members_clear(struct mr_model *model);
/** Lock not held: calls the hook for each change queued so far, in order, and returns when all are
 *  reported. */
void mr_changes_report(struct mr_models *m);

#endif
