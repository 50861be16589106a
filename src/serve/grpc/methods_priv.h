/* The gRPC methods. On network threads; constant. */
#ifndef MR_SERVE_METHODS_PRIV_H
#define MR_SERVE_METHODS_PRIV_H

#include "serve/mesh/arrival.h"
#include "serve/state/state.h"

enum grpc_kind {
    GRPC_SMALL,   /* messages of up to SERVE_SMALL_BODY */
    GRPC_DATA,    /* tensors or files, up to --grpc-max-message-size */
    GRPC_INFER,   /* the same, and the handler unpacks what is compressed */
    GRPC_STREAM,  /* small messages, taken as they come */
    GRPC_TENSORS, /* a stream of tensors */
    GRPC_PASSED   /* any service's: for the runtime of the mesh */
};

struct grpc_method {
    mr_str path;
    enum mr_api api; /* its class for --grpc-restricted-protocol */
    enum grpc_kind kind;
    /* Of a stream: after its head; of others: when the message is there. */
    void (*handle)(struct mr_server *s, struct mr_grpc_call *g);
};

/* NULL for an unknown path. */
const struct grpc_method *grpc_method_find(mr_str path);
/* The same, but where a runtime has the models: what is for models, and all that is not known, is passed on to it. */
const struct grpc_method *grpc_method_for(const struct mr_server *s, mr_str path);
bool grpc_is_stream(const struct grpc_method *m);
/* Whether a method of the class model-repository is more than a question. */
bool grpc_is_change(const struct grpc_method *m);
/* Most bytes that a message of a method (NULL: unknown) may have, as sent and unpacked; *out_why is what bounds it,
 * for errors. */
uint64_t grpc_message_limit(const struct mr_server *s, const struct grpc_method *m,
                            const char **out_why);
/* Call the handler. Streams after on_head, others after on_body; an unknown method is answered. */
void grpc_dispatch(struct mr_server *s, struct mr_call *call, const struct grpc_method *m);

/* The handlers. */
void grpc_model_infer(struct mr_server *s, struct mr_grpc_call *g);
void grpc_model_stream_infer(struct mr_server *s, struct mr_grpc_call *g);
void grpc_server_live(struct mr_server *s, struct mr_grpc_call *g);
void grpc_server_ready(struct mr_server *s, struct mr_grpc_call *g);
void grpc_server_metadata(struct mr_server *s, struct mr_grpc_call *g);
void grpc_model_ready(struct mr_server *s, struct mr_grpc_call *g);
void grpc_model_metadata(struct mr_server *s, struct mr_grpc_call *g);
void grpc_model_config(struct mr_server *s, struct mr_grpc_call *g);
void grpc_model_statistics(struct mr_server *s, struct mr_grpc_call *g);
void grpc_repository_index(struct mr_server *s, struct mr_grpc_call *g);
void grpc_model_load(struct mr_server *s, struct mr_grpc_call *g);
void grpc_model_unload(struct mr_server *s, struct mr_grpc_call *g);
void grpc_log_settings(struct mr_server *s, struct mr_grpc_call *g);
void grpc_system_shm_status(struct mr_server *s, struct mr_grpc_call *g);
void grpc_cuda_shm_status(struct mr_server *s, struct mr_grpc_call *g);
void grpc_no_shm(struct mr_server *s, struct mr_grpc_call *g);
void grpc_no_trace(struct mr_server *s, struct mr_grpc_call *g);
void grpc_model_versions(struct mr_server *s, struct mr_grpc_call *g);
void grpc_model_label(struct mr_server *s, struct mr_grpc_call *g);
void grpc_model_rollback(struct mr_server *s, struct mr_grpc_call *g);
void grpc_mesh_register(struct mr_server *s, struct mr_grpc_call *g);
void grpc_mesh_unregister(struct mr_server *s, struct mr_grpc_call *g);
void grpc_mesh_status(struct mr_server *s, struct mr_grpc_call *g);
void grpc_mesh_ensure(struct mr_server *s, struct mr_grpc_call *g);
void grpc_mesh_set_vmodel(struct mr_server *s, struct mr_grpc_call *g);
void grpc_mesh_delete_vmodel(struct mr_server *s, struct mr_grpc_call *g);
void grpc_mesh_vmodel_status(struct mr_server *s, struct mr_grpc_call *g);
void grpc_runtime_load(struct mr_server *s, struct mr_grpc_call *g);
void grpc_runtime_unload(struct mr_server *s, struct mr_grpc_call *g);
void grpc_runtime_predict(struct mr_server *s, struct mr_grpc_call *g);
void grpc_runtime_size(struct mr_server *s, struct mr_grpc_call *g);
void grpc_runtime_state(struct mr_server *s, struct mr_grpc_call *g);
void grpc_endpoints(struct mr_server *s, struct mr_grpc_call *g);
void grpc_endpoint_change(struct mr_server *s, struct mr_grpc_call *g);
void grpc_health_check(struct mr_server *s, struct mr_grpc_call *g);
void grpc_health_watch(struct mr_server *s, struct mr_grpc_call *g);
void grpc_reflect(struct mr_server *s, struct mr_grpc_call *g);

/* Answers a call with what a model that takes messages (mr_version.has_messages) says when it is asked for `kind`. */
void grpc_ask(struct mr_grpc_call *g, mr_str model, mr_str version, const char *kind);

#define GRPC_NO_MODEL                                                                              \
    "the request names no model, nor does its metadata (mm-model-id or mm-vmodel-id)"

/* In a mesh. Returns 1 and the id of the model or vmodel that the call names, not by its name in the message alone; 0: it does not. Errors: MR_E_INVALID,
 * MR_E_UNSUPPORTED (the configuration of the data plane does not allow the method). */
int grpc_find_id(struct mr_server *s, struct mr_grpc_call *g, mr_bytes message,
                 struct serve_route *out, struct mr_err *err);
/* A call for several models: one call for each, and their answers joined, in the order of the ids. */
void grpc_multi(struct mr_server *s, struct mr_grpc_call *g, const struct plane_ids *ids);
/* A call for the runtime that has the model. */
void grpc_pass(struct mr_server *s, struct mr_grpc_call *g);
/* Whether the one message of a call for a runtime is collected first: the id is in it or goes there, or it is one of the inference protocol's. The
 * messages of other calls are passed on as they come. */
bool grpc_pass_collects(struct mr_server *s, const struct mr_call *call);
/* Makes it the name of the model in the call's message. Errors: MR_E_INVALID, MR_E_EXHAUSTED. */
int grpc_put_model(struct mr_grpc_call *g, mr_str id, struct mr_err *err);

/* A load, unload or rollback under way; `done` is for mr_models_*. NULL: the call was answered. */
struct grpc_control {
    struct serve_loop *loop;
    struct mr_grpc_call *g;
    struct mr_mail mail;
    struct mr_err err;
    int rc;
};
struct grpc_control *grpc_control_new(struct mr_grpc_call *g, const char *repository);
void grpc_control_done(void *ctx, int rc, const struct mr_err *err);

#endif
