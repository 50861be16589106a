/* Shared by the files of `millrace mesh`. */
#ifndef MR_CLI_MESH_H
#define MR_CLI_MESH_H

#include "cli/common/remote.h"
#include "codec/pbtext.h"
#include "mesh.pb-c.h"

enum mesh_form { MESH_AUTO, MESH_TABLE, MESH_PLAIN, MESH_JSON };

struct mesh_options {
    const char *url;
    struct mr_remote_access access;
    int64_t timeout_ns;
    int form; /* enum mesh_form */
    bool json;
    const char *type, *path, *key;
    uint64_t size_bytes;
    uint32_t min_copies, max_copies;
    bool pinned, load, wait;
    const char *owner, *expected;
    bool auto_delete, update_only, force;
    int64_t interval_ns;
    uint32_t count;
};

struct mesh_run {
    struct mesh_options opt;
    struct mr_remote remote;
    const char *const *args; /* after the verb */
    size_t arg_count;
    bool waits;      /* the answer comes when the load or the change has ended, and says how */
    bool is_pending; /* the last answer: the registry is away */
    int form;        /* never MESH_AUTO */
};

/* mesh_call.c: calls of the server */
/** A path below /v2/mesh: `what`, then `id` percent-encoded, then `verb`; NULL: left out. */
void mesh_path(struct mr_buf *out, const char *what, const char *id, const char *verb);
/** Appends name=value to the query of a path. */
void mesh_path_query(struct mr_buf *out, const char *name, const char *value);
/** POST of the message as JSON, or GET if it is NULL. */
int mesh_ask(struct mesh_run *r, struct mr_buf *path, const ProtobufCMessage *body,
             struct mr_remote_reply *out, struct mr_err *err);
/** The same as a message of that type; free with protobuf_c_message_free_unpacked. */
int mesh_read(mr_bytes body, const ProtobufCMessageDescriptor *d, ProtobufCMessage **out,
              struct mr_err *err);
/** Asks for a page after the other of models (is_models) or vmodels whose ids begin with `prefix`. each: returns an error to stop. */
int mesh_pages(struct mesh_run *r, bool is_models, const char *prefix,
               int (*each)(void *ctx, const ProtobufCMessage *page, mr_bytes json), void *ctx,
               struct mr_err *err);

/* mesh_print.c */
void mesh_print_state(const struct mesh_run *r, const Millrace__MeshState *m);
void mesh_print_models(const struct mesh_run *r, const Millrace__MeshModels *m);
void mesh_print_model(const struct mesh_run *r, const Millrace__MeshModel *m);
void mesh_print_vmodels(const struct mesh_run *r, const Millrace__MeshVModels *m);
void mesh_print_vmodel(const struct mesh_run *r, const Millrace__MeshVModel *m);
const char *mesh_status_name(Millrace__MeshStatus s);
const char *mesh_copy_name(Millrace__MeshCopy__State s);
/** Text from outside on the terminal. */
void mesh_print_text(const char *text);

/* mesh_watch.c, mesh_top.c: until they are interrupted, or with --count */
int mesh_run_watch(struct mesh_run *r, struct mr_err *err);
int mesh_run_top(struct mesh_run *r, struct mr_err *err);
/** Sleeps for --interval. */
void mesh_pause(const struct mesh_run *r);

#endif
