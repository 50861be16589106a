/* A change of a model or vmodel that waits in a server's journal until the registry is back: as bytes, and what becomes of it then. Pure.
 *
 * An intent knows which definition it was made for. One that finds another definition is older than that, and has no effect. In a
 * registry that has lost its data that is one that a server has restored; one that a call has made there is newer. */
#ifndef MESH_RECORDS_INTENT_H
#define MESH_RECORDS_INTENT_H

#include "record.h"

struct mesh_intent {
    bool is_delete;
    bool was_sent;       /* the registry may have taken it, its answer was lost */
    int64_t base;        /* revision of the definition that there was; 0: none */
    mr_str epoch;        /* of the registry that it was made for */
    struct mesh_def def; /* that is to be; of a deletion it means nothing */
    struct mesh_def was; /* that there was, or may be as was_sent says */
    /* ---- of a vmodel, which has neither base nor definitions ---- */
    struct mesh_vmodel v; /* as its server shows it until then; owner: as the call had it */
    mr_str was_target;    /* that there was; empty: there was no such vmodel */
    mr_str may_target;    /* that an earlier change may have given it; empty: none */
    bool force;           /* the target answers at once */
};

void mesh_intent_put(struct mr_buf *b, const struct mesh_intent *i);
/** Texts point into value. Errors: MR_E_INVALID. */
int mesh_intent_get(struct mesh_intent *out, mr_bytes value, struct mr_err *err);

/** What the registry has. */
struct mesh_intent_known {
    int64_t revision; /* of the definition; 0: there is none */
    struct mesh_def def;
    mr_str epoch; /* of the registry */
};

enum mesh_intent_step {
    MESH_INTENT_DONE,    /* nothing is to be changed */
    MESH_INTENT_WRITE,   /* with the known revision as compare */
    MESH_INTENT_OUTDATED /* the registry has a newer definition */
};

enum mesh_intent_step mesh_intent_step(const struct mesh_intent *i,
                                       const struct mesh_intent_known *known);
/** The same of a vmodel. known: as the registry has it, its target empty if there is no such vmodel. */
enum mesh_intent_step mesh_intent_step_vmodel(const struct mesh_intent *i,
                                              const struct mesh_vmodel *known, mr_str epoch);

#endif
