/* Rules of vmodels, the aliases of models, as transactions over records of the registry. Pure.
 *
 * A vmodel has an active model, which answers, and a target, which is to. Both are the same unless it is in transition. It holds a
 * reference to each of them; a model whose references become 0 is deleted with the same transaction if it is auto_delete. */
#ifndef MESH_VMODEL_VMODEL_H
#define MESH_VMODEL_VMODEL_H

#include "mesh/records/record.h"

/** A definition as the registry has it; revision 0: there is none. */
struct vmodel_model {
    mr_str id;
    int64_t revision;
    struct mesh_def def;
};

/** What a transaction looks at. Models that are the same are given the same way. */
struct vmodel_state {
    mr_str id;
    int64_t revision; /* of the vmodel; 0: there is none, and v means nothing */
    struct mesh_vmodel v;
    struct vmodel_model active, target; /* of v */
    uint32_t active_copies;             /* loaded */
    struct vmodel_model wanted;         /* of vmodel_set */
    bool wanted_is_loaded;
};

struct vmodel_set {
    mr_str target;
    bool has_def;
    struct mesh_def def; /* of a target that may have to be made */
    bool update_only;    /* the vmodel must be there */
    bool force;          /* the target answers at once, loaded or not */
    mr_str expected;     /* if not empty: what the target is, unless it is the new one already */
    mr_str owner;        /* empty: any */
    mr_str new_owner;    /* of a vmodel that is made, if owner is empty */
};

#define VMODEL_WRITES_MAX 4

/** A transaction. Texts are the caller's. */
struct vmodel_plan {
    struct {
        enum mesh_key_kind kind; /* MESH_KEY_MODEL or MESH_KEY_VMODEL */
        mr_str id;
        int64_t revision; /* as it must be still */
        bool is_delete;
        struct mesh_def def;
        struct mesh_vmodel v;
    } write[VMODEL_WRITES_MAX];
    size_t count;         /* 0: nothing is to be changed */
    bool is_precondition; /* of an error: the state forbids it */
};

/** Errors: MR_E_NOT_FOUND (the vmodel with update_only; the target, and no definition of it), MR_E_EXISTS (another owner, another
 *  definition of the target), MR_E_INVALID (with is_precondition: another target than expected). */
int vmodel_plan_set(const struct vmodel_set *set, const struct vmodel_state *s,
                    struct vmodel_plan *out, struct mr_err *err);
/** A vmodel that is not there, or of another owner: nothing to be changed. */
void vmodel_plan_delete(mr_str owner, const struct vmodel_state *s, struct vmodel_plan *out);
/** The target becomes the active one. */
void vmodel_plan_promote(const struct vmodel_state *s, struct vmodel_plan *out);
/** Whether the target can be loaded. */
void vmodel_plan_failed(const struct vmodel_state *s, bool failed, struct vmodel_plan *out);
/** Whether both would be loaded the same way. */
bool vmodel_def_is_same(const struct mesh_def *a, const struct mesh_def *b);

#endif
