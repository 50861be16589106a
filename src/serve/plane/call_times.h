/* How long calls for models took in a mesh, and how large they were, by method and status: what a ModelMesh measures. Of each network thread one
 * table, which it alone writes. */
#ifndef MR_SERVE_PLANE_CALL_TIMES_H
#define MR_SERVE_PLANE_CALL_TIMES_H

#include "base/hist.h"
#include "net/http.h"

#define CALL_TIMES_METHODS 32 /* further ones count as "other" */

enum call_times_kind {
    CALL_TIMES_API,      /* ns: calls of clients, from their first byte to their end */
    CALL_TIMES_INVOKE,   /* ns: runs of models here, or in the runtime */
    CALL_TIMES_REQUEST,  /* bytes of clients' requests */
    CALL_TIMES_RESPONSE, /* bytes of the answers of those that succeeded */
    CALL_TIMES_KINDS
};

struct call_times {
    struct call_times_method {
        char name[64]; /* ModelInfer, without its service */
        /* NULL: there were none */
        _Atomic(struct mr_hist *) of[CALL_TIMES_KINDS][MR_GRPC_STATUSES];
    } methods[CALL_TIMES_METHODS];
    _Atomic unsigned count;  /* of methods */
    struct mr_hist queue_ns; /* runs of models here, before an instance took them */
};

/* A client's call that ends. status: as mr_call.ended has it. Thread: the table's. */
void call_times_ended(struct call_times *t, const struct mr_call *call, int status);
/* A run of the model of this process took so long to be taken from its queue. t NULL: no effect. Thread: the table's. */
void call_times_queued(struct call_times *t, int64_t ns);
/* A run of the call's model that has ended. t NULL: no effect. Thread: the table's. */
void call_times_ran(struct call_times *t, const struct mr_call *call, int grpc_status, int64_t ns);
/* Adds all of `from`, which its thread may write to. */
void call_times_merge(struct call_times *into, const struct call_times *from);
void call_times_fini(struct call_times *t);

#endif
