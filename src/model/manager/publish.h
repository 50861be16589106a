/* The end of a load: its versions are published, or taken back; unloads. Thread: loader. */
#ifndef MR_MODEL_PUBLISH_H
#define MR_MODEL_PUBLISH_H

#include "load.h"

/** Switch policy `resource`: ends the versions that the load replaces or drops, before any is made.
 *  Errors: MR_E_DEADLINE (their requests do not end), MR_E_UNAVAILABLE. */
int mr_load_retire_first(struct mr_load *l, struct mr_err *err);
/** Publishes all versions that were made at once, and retires those that they replace. False: the load was cancelled,
 *  and nothing was done. */
bool mr_load_publish(struct mr_load *l);
/** Ends a load of which a version failed: the versions that it made are closed, and those that served go on. */
void mr_load_take_back(struct mr_load *l);
/** After a load that failed, or would: retires ready versions whose folders are gone, if another one stays. False: there
 *  was nothing to do. */
bool mr_load_retire_gone(struct mr_load *l);
/** Ends a load that failed before any version was made. */
void mr_load_fail(struct mr_load *l, const char *reason);
/** Makes the model known to requests, also without a version: they get "has no available versions". */
void mr_load_show(struct mr_load *l);

int mr_unload_run(struct mr_models *m, struct mr_model *model, struct mr_err *err);
/** Lock held: takes a version out of service; the reaper closes it. The caller publishes afterwards. */
void mr_version_retire(struct mr_models *m, struct mr_model *model, struct mr_version *v);

#endif
