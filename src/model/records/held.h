/* Versions that were replaced and still hold sequences. */
#ifndef MR_MODEL_HELD_H
#define MR_MODEL_HELD_H

#include "state.h"

/** Lock held: v retires because another takes its place. */
void mr_held_add(struct mr_models *m, struct mr_model *model, struct mr_version *v);
enum mr_held {
    MR_HELD_NOT,
    MR_HELD_UNTIL_NOW, /* readers may have found it until now, but find it no more */
    MR_HELD_STILL
};
/** Calls hooks.hasten for a retired version that does not stay for its sequences. Thread: reaper. */
void mr_held_hasten(struct mr_models *m, struct mr_version_private *p);
/** Whether a retired version has to stay; lets go of it when it need not. Thread: reaper. */
enum mr_held mr_held_check(struct mr_models *m, struct mr_version_private *p);

#endif
