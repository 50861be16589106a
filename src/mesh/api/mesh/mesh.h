/* The mesh: servers that share a registry are one cache of models. Any of them takes a request for any model; one that is not loaded
 * here is asked for at a server that has it, or is loaded where there is room.
 *
 * `struct mr_mesh` is this server's part: one thread with a loop, on which the decisions are made. Requests for models that are ready here do
 * not pass through it. Others get a ticket, whose events say what to do with the request: run it here, send it to another
 * server, or answer it. */
#ifndef MR_MESH_MESH_H
#define MR_MESH_MESH_H

#include "base/arena.h"
#include "base/hist.h"
#include "engine/engine.h"
#include "mesh.pb-c.h"
#include "net/tls.h"

struct mr_mesh;
struct mr_mesh_copy;

/** Zero members: the default. Texts are borrowed until mr_mesh_free. */
struct mr_mesh_options {
    const char *registry; /* as mr_kv_open takes it */
    const char *prefix;   /* keys in an etcd are below it, after its own prefix; NULL: none */
    const char *id;       /* of this instance: letters, digits, '.', '_', '-'; unique */
    const char *zone;     /* copies are spread over zones */
    const char *const *labels;
    size_t label_count;        /* 16 at most */
    uint64_t capacity_bytes;   /* of all loaded models; a quarter of mr_machine_memory() */
    uint64_t device_bytes;     /* the same of device memory; 0: it is not looked at */
    uint32_t loaders;          /* loads at once; 4 */
    struct mr_tls_client *tls; /* of messages to other servers; NULL: none */
    const char *
        runtime; /* "host:port" or "unix:/path" of the process that has the models; NULL: this one has them */
    const char *runtime_inference; /* the same, for calls of models; NULL: `runtime` */
    const char *dataplane;   /* which methods name their model where: JSON, or the name of a file */
    const char *constraints; /* rules for types of models: JSON, or the name of a file of it */
    uint32_t min_copies,
        max_copies; /* of models in this server's repositories that do not say it themselves; 0, no limit */
    const char *vmodel_owner; /* of vmodels that are made by calls without an owner; NULL: none */
    uint32_t scale_up_rate; /* requests of a copy in a minute above which there is another; 2000 */
    /* within it the registry must have been reached; 0: it is waited for, ready or not */
    int64_t start_timeout_ns;
    const char *
        models; /* a folder: registered paths that are not absolute lead from there; NULL: this server loads none by path */
    const char *
        journal; /* a file: changes of models while the registry is away; of this instance alone; NULL: none are taken then */
    int64_t lease_s; /* after which the others take this instance for dead; 20 */
};

/** Errors: MR_E_INVALID (the registry, the id, too many labels, the rules, more copies at least than at most, the owner), MR_E_IO. Thread: boot. */
int mr_mesh_new(struct mr_mesh **out, const struct mr_mesh_options *options, struct mr_err *err);
/** Loads the model here for whoever needs it in this process: streams, nodes of workflows. */
struct mr_resolver mr_mesh_resolver(struct mr_mesh *m);
/** Joins. address: "host:port" at which other servers reach this one; models as the engine has them, control mode explicit; those in its
 *  repositories are registered. Blocks until the registry has been reached. Errors: MR_E_IO, MR_E_EXHAUSTED, MR_E_UNAVAILABLE (it
 *  was not, in start_timeout_ns). Thread: boot. */
int mr_mesh_start(struct mr_mesh *m, struct mr_models *models, const char *address,
                  struct mr_err *err);
/** Whether the registry has been read and this instance is in it. Thread: any. */
bool mr_mesh_is_joined(const struct mr_mesh *m);
/** Whether clients should come here: it has joined, no other instance was draining at some time since (waited for 3 minutes at most), so that
 *  rolling updates replace one after the other; and not three models failed to load here in the first 3 minutes which others have
 *  loaded, so that they end with the first instance that is not fit. Thread: any. */
bool mr_mesh_is_ready(const struct mr_mesh *m);

/** Figures, two seconds old at most. */
struct mr_mesh_stats {
    bool is_joined;         /* otherwise nothing of the fleet is known yet */
    uint64_t peers;         /* instances in the registry */
    uint64_t models;        /* definitions that are known */
    uint64_t models_loaded; /* that some instance has loaded */
    uint64_t models_failed; /* that failed to load somewhere, which is not forgotten yet */
    uint64_t pending;       /* changes that wait in the journal */
    uint64_t loaded, loading, queued; /* models here */
    uint64_t used_bytes, capacity_bytes;
    uint64_t fleet_used_bytes,
        fleet_capacity_bytes; /* of all instances that answer and do not drain */
    uint64_t fleet_queued;    /* loads that wait or run, as each last said */
    uint64_t loads, load_failures, evictions, requests,
        misses;                       /* since the start; misses had to wait for a load */
    uint64_t unload_failures;         /* models treated as unloaded although no answer said so */
    uint64_t unload_attempt_failures; /* attempts to unload that failed */
    /* the least of all instances: since the last use of what would be evicted next; -1: there is room */
    int64_t lru_age_s;
    int64_t own_lru_age_s; /* of this instance */
    /* of all instances by its id, so that one of them reports what is the same for all */
    bool is_first;
};
void mr_mesh_stats(struct mr_mesh *m, struct mr_mesh_stats *out);
/** How long things took here, and how large they were, since the start. */
struct mr_mesh_times {
    const struct mr_hist *load_ns;   /* loads that brought a model */
    const struct mr_hist *unload_ns; /* unloads, also of what a failed load may have left */
    const struct mr_hist *sizing_ns; /* the runtime's answers to modelSize */
    const struct mr_hist *queue_ns;  /* loads, before they began */
    const struct mr_hist *miss_ns;   /* requests that waited for a load here, until they ran */
    const struct mr_hist *turn_ns;   /* requests that waited as a copy here ran as many as it may */
    const struct mr_hist *evicted_ms; /* since the last use of models that were evicted */
    const struct mr_hist *bytes;      /* models that were loaded: mr_hist_add_size */
};
/** Thread: any. */
struct mr_mesh_times mr_mesh_times(const struct mr_mesh *m);
/** Has the models that are in use loaded elsewhere, while requests go on, and leaves. False: the time was not enough. Blocks. Thread:
 *  boot. */
bool mr_mesh_drain(struct mr_mesh *m, int64_t timeout_ns);
/** Ends the thread. Tickets get their last event. The models have ended their loads. Thread: boot. */
void mr_mesh_stop(struct mr_mesh *m);
void mr_mesh_free(struct mr_mesh **m);

/** A message of another server, as it came. Thread: any. */
void mr_mesh_message(struct mr_mesh *m, mr_str from, mr_bytes bytes);

/* ---- requests ---- */

enum mr_mesh_event_kind {
    MR_MESH_RUN,     /* the model is ready here: run it, then mr_mesh_result with MR_MESH_ENDED */
    MR_MESH_FORWARD, /* send it to `address`, with load_here; then mr_mesh_result */
    MR_MESH_CANCEL,  /* the attempt is not wanted any more */
    MR_MESH_REPLY,   /* answer it; the last event */
    MR_MESH_CLOSED   /* the last event of a request that was answered or cancelled */
};

/** Why a request that another server sent is not answered here. */
enum mr_mesh_why {
    MR_MESH_NO_REASON,
    MR_MESH_IS_NOT_HERE,
    MR_MESH_IS_REFUSED,
    MR_MESH_HAS_FAILED /* the load */
};

struct mr_mesh_event {
    enum mr_mesh_event_kind kind;
    unsigned attempt; /* 0 or 1 */
    bool load_here;
    bool is_plain; /* FORWARD: other requests for the model may go there as well, for a moment */
    const char *address;
    mr_str id;      /* RUN, FORWARD: of the model, also if the request names a vmodel */
    uint64_t names; /* the same: mr_mesh_names when that was looked up */
    /** RUN, (may be NULL) of a model of the runtime: others may use it without asking. Borrowed; see mesh/plane.h */
    struct mr_mesh_copy *copy;
    int status; /* REPLY: enum mr_status */
    enum mr_mesh_why why;
    const char *text;
    int64_t retry_ns;
};

enum mr_mesh_result {
    MR_MESH_ENDED,       /* answered, by the model */
    MR_MESH_NOT_HERE,    /* the server has not got it */
    MR_MESH_REFUSED,     /* the server cannot load it now */
    MR_MESH_LOAD_FAILED, /* status and text say why */
    MR_MESH_UNREACHABLE, /* nothing of it was sent */
    MR_MESH_BROKEN,      /* the connection broke */
    MR_MESH_ANSWERING /* the answer has begun: the request is not tried again; another result follows */
};

/** A request on its way. The caller's memory, from mr_mesh_begin until the last event has been given. */
struct mr_mesh_ticket {
    mr_str id;          /* of the model; borrowed until the last event */
    bool is_from_peer;  /* another server sent it: it is not sent on */
    bool load_here;     /* and says that it is to be loaded here */
    bool is_local;      /* or what asks is in this process, and no other server will do */
    bool is_safe;       /* may run twice */
    bool is_vmodel;     /* id is that of a vmodel */
    bool may_be_vmodel; /* id is that of a model or, if there is no such model, of a vmodel */
    bool is_sequence;   /* one of several that must reach the same copy of the model */
    /** It was sent to the server at that address already, as attempt 0, and waits for an answer; ptr NULL: not. Borrowed until the
     *  last event. */
    mr_str sent_to;
    /** Thread: that of `post`, or the mesh's without one. */
    void (*event)(struct mr_mesh_ticket *t, const struct mr_mesh_event *e);
    /** (may be NULL) Has the mail run on the caller's thread. Thread: any. */
    void (*post)(void *ctx, struct mr_mail *mail);
    void *post_ctx;
    /* ---- private ---- */
    struct mr_mail mail;
    struct mr_mesh *mesh;
    uint64_t request; /* in the core; 0: none. By the mesh's thread, as what follows */
    bool is_final;
    struct mr_mesh_ticket *prev, *next;
    /* of this ticket that are under way. By the ticket's thread, as what follows */
    unsigned sayings;
    struct mr_mail *held; /* the last event, which waits for them */
};

/** While this number is the same, names stand for the models that they stood for: no vmodel has changed, as far as this server knows. Thread:
 *  any. */
uint64_t mr_mesh_names(const struct mr_mesh *m);

/** Thread: the ticket's, as the next two. Without `post`: any. */
void mr_mesh_begin(struct mr_mesh *m, struct mr_mesh_ticket *t);
/** status: of MR_MESH_LOAD_FAILED. */
void mr_mesh_result(struct mr_mesh_ticket *t, unsigned attempt, enum mr_mesh_result result,
                    int status, mr_str text);
/** The client has gone. CLOSED follows, unless a last event is on its way. */
void mr_mesh_cancel(struct mr_mesh_ticket *t);

/* ---- administration ---- */

enum mr_mesh_admin_kind {
    MR_MESH_STATE,  /* Millrace__MeshState */
    MR_MESH_MODELS, /* Millrace__MeshModels: a page, by id */
    MR_MESH_MODEL,  /* Millrace__MeshModel */
    /** no message, but is_there, and is_ready: whether a request for the model or vmodel of that id would be answered, by what this server sees */
    MR_MESH_READY,
    MR_MESH_VMODELS,       /* Millrace__MeshVModels: a page, by id */
    MR_MESH_VMODEL,        /* Millrace__MeshVModel */
    MR_MESH_REGISTER,      /* Millrace__MeshModel */
    MR_MESH_UNREGISTER,    /* no message */
    MR_MESH_LOAD,          /* Millrace__MeshModel */
    MR_MESH_SET_VMODEL,    /* Millrace__MeshVModel */
    MR_MESH_DELETE_VMODEL, /* no message */
    /** Millrace__MeshState: this server has its models loaded elsewhere and leaves the mesh, while it serves on */
    MR_MESH_DRAIN,
    /** Millrace__MeshChanges: waits for one for 15 s at most. MR_E_EXHAUSTED: MR_MESH_WATCHES_MAX others wait */
    MR_MESH_CHANGES
};

#define MR_MESH_PAGE_MAX    1000 /* models or vmodels of a page */
#define MR_MESH_WATCHES_MAX 256  /* questions of MR_MESH_CHANGES at a time */

/** A question or a change, for the whole mesh. The caller's memory until `done`. Zero members: nothing. */
struct mr_mesh_admin {
    enum mr_mesh_admin_kind kind;
    mr_str id;      /* of the model or vmodel; of lists and changes: what ids begin with */
    bool is_vmodel; /* of MR_MESH_READY: a model of that name does not count */
    uint64_t since; /* of changes: `next` of the answer before; 0: none, it is answered at once */
    mr_str after;   /* of lists: ids greater than this one only */
    uint32_t limit; /* of lists; 0: MR_MESH_PAGE_MAX, which is the most */
    /** of MR_MESH_REGISTER; of MR_MESH_SET_VMODEL with has_def, for a target that may have to be registered */
    mr_str type, path, key;
    uint64_t size_bytes, device_bytes;
    uint32_t min_copies, max_copies;
    bool pinned, load_now;
    bool sync; /* answered when the load or the transition has ended, or after four minutes */
    mr_str target, expected, owner; /* of vmodels */
    bool has_def, auto_delete, update_only, force;
    /** The end. Thread: that of `post`. */
    void (*done)(struct mr_mesh_admin *a);
    void (*post)(void *ctx, struct mr_mail *mail); /* as that of a ticket, not NULL */
    void *post_ctx;

    /* ---- the answer ---- */
    int status; /* MR_OK; MR_E_INVALID, MR_E_EXISTS, MR_E_NOT_FOUND, MR_E_UNAVAILABLE (the registry), MR_E_EXHAUSTED */
    bool is_ready;        /* of MR_MESH_READY */
    bool is_there;        /* of MR_MESH_READY: there is such a model or vmodel */
    bool is_precondition; /* of an error: the state of other records forbids it */
    /** Without an error: the registry is away, and the change is in the journal of this server, which makes it when the registry is
     *  back. MR_MESH_UNREGISTER and MR_MESH_DELETE_VMODEL have a message then, as what they undo. */
    bool is_pending;
    struct mr_err err;
    struct mr_arena arena; /* the caller ends it after `done` */
    /** In `arena`. A model or vmodel that is not there, or a vmodel of another owner, has the status NOT_FOUND. */
    ProtobufCMessage *message;
    /** In `arena`: of MR_MESH_VMODEL and MR_MESH_SET_VMODEL; NULL: there is no such vmodel. */
    Millrace__MeshModel *active_model, *target_model;
    /* ---- private ---- */
    struct mr_mail mail;
    struct mr_mesh *mesh;
    struct mr_mesh_admin *prev, *next;
    int64_t until_ns;
    bool waits, has_values;
};

/** Thread: any. */
void mr_mesh_admin(struct mr_mesh *m, struct mr_mesh_admin *a);

#endif
