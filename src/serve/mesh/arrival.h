/* Requests for models that are not ready here: the engine's resolver makes them so before anything is decoded. On the
 * network thread of the call. */
#ifndef MR_SERVE_MESH_ARRIVAL_H
#define MR_SERVE_MESH_ARRIVAL_H

#include "serve/plane/ids.h"
#include "serve/state/loops.h"

struct hop;
struct serve_arrival;

/* Of a call in a mesh that names its model by an id in its metadata, or by a rule of the data plane. */
struct serve_route {
    mr_str id; /* of the model, or of the vmodel until the mesh has said which model that is */
    bool is_vmodel;
    struct plane_ids several; /* count 0: the call is for one model */
    /* ---- of a call that goes to a runtime ---- */
    bool is_for_runtime;
    /* for the runtime, set by `bind`; the framed message with the id in it */
    const struct mr_piece *body;
    size_t body_count;
    mr_str encoding;     /* of its messages; ptr NULL: none */
    int64_t message_max; /* of a stream: bytes of each message */
    int64_t deadline_ns; /* 0: none */
    /* Sets `body`, once `id` is that of a model; NULL: of a stream. */
    int (*bind)(struct serve_arrival *a, struct mr_err *err);
};

/* A request that waits for its model. In the call's memory until go or fail. */
struct serve_arrival {
    struct mr_call *call;
    void (*go)(struct serve_arrival *a); /* the model was ready a moment ago, or is not known */
    void (*fail)(struct serve_arrival *a, const struct mr_err *err);
    struct serve_route *route; /* NULL: by the name in the request. In the call's memory, too */
    bool may_be_vmodel;        /* the name may be that of a vmodel; then, in go: */
    mr_str model;              /* the model that it stands for; empty: it was that of a model */
    bool is_passed;            /* its answer comes piece by piece */
    bool is_stream;            /* gRPC: so do its requests, and its answers */
    struct mr_buf first;       /* what has come of them; freed by the wait */
    bool first_is_all;         /* and nothing more will */
    /* ---- private ---- */
    struct serve_pending pending;
    struct mr_resolve resolve;
    mr_str wanted, wanted_version;
    struct serve_loop *loop;
    bool is_cancelled;
    struct hop *hop; /* in a mesh */
};

/* Whether calls of this class may have to wait: inferences, metadata and configurations, and whether a version is ready, if there
 * is a resolver or a mesh. */
bool arrival_is_possible(const struct mr_server *s, enum mr_api api, bool asks_version_ready);
/* False: go on at once. True: go or fail is called, exactly once, perhaps before this returns. The names are those of
 * the request, where an endpoint stands for its main variant; without a model there is nothing to wait for. With owns_call, call->user is replaced until then, and a
 * call that ends early fails with MR_E_CANCELLED; without, the caller looks at that in go. */
bool arrival_wait(struct serve_arrival *a, mr_str model, mr_str version, bool owns_call);

#endif
