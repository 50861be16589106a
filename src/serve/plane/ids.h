/* Ids of models in the metadata of gRPC calls, as ModelMesh has them: mm-model-id, mm-vmodel-id, each with -bin as well, and the older
 * tas-model-id. Thread: any. */
#ifndef MR_SERVE_PLANE_IDS_H
#define MR_SERVE_PLANE_IDS_H

#include "net/http.h"

#define PLANE_IDS_MAX 256
#define PLANE_ID      "mm-model-id-bin" /* under which servers and runtimes get the id */

struct plane_ids {
    const mr_str *at; /* in the call's arena or among its headers */
    size_t count;     /* 0: none; more than one: a call of several models */
    bool is_vmodel;
    bool requires_all; /* mm-required: all */
};

/** Errors: MR_E_INVALID: models and vmodels at once, an empty id, one that is no base64, too many. */
int plane_ids_read(const struct mr_call *call, struct plane_ids *out, struct mr_err *err);
/** Whether the header is one of those: it stays out of what is sent on. */
bool plane_is_id_header(mr_str name);
/** The header that carries the id to another server or to a runtime. value ptr NULL: no memory. */
struct mr_header plane_id_header(struct mr_arena *arena, mr_str id);

#endif
