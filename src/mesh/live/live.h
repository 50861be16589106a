/* Between the files of the running mesh. All of it belongs to the mesh's thread, unless noted. */
#ifndef MESH_LIVE_LIVE_H
#define MESH_LIVE_LIVE_H

#include <pthread.h>
#include <sys/stat.h>

#include "base/map.h"
#include "base/vec.h"
#include "kv/open.h"
#include "mesh/core/core.h"
#include "mesh/mesh.h"
#include "mesh/plane.h"
#include "mesh/plane/methods.h"
#include "mesh/registry/registry.h"
#include "mesh/rules/rules.h"
#include "mesh/view/view.h"
#include "net/client.h"
#include "net/loop.h"
#include "sched/sched.h"

#define LIVE_MESSAGE_PATH "/v2/mesh/message"
#define UNFIT_MOST        3
#define CHANGES_MAX       4096

/* The last keys that changed in the registry: number i, counted from 1, is at i % CHANGES_MAX. */
struct live_changes {
    mr_str at[CHANGES_MAX]; /* owned; ptr NULL: given up */
    uint64_t next;
    uint64_t first; /* what is before is not known any more */
};

struct live_runtime;

/* What loads models for the core. Carries out MESH_ACT_LOAD and MESH_ACT_UNLOAD and reports their ends; `sample` reports what was used
 * without passing through the core. */
struct live_loader {
    void (*load)(struct mr_mesh *m, const struct mesh_action *a);
    void (*unload)(struct mr_mesh *m, const struct mesh_action *a);
    void (*sample)(struct mr_mesh *m);
};

struct mr_mesh {
    struct mr_mesh_options o;
    char *id;
    char *address;
    struct mesh_rules rules;
    struct stat rules_seen;  /* their file, as it was read */
    struct stat config_seen; /* the file of `config` */
    struct mr_models *models;
    const struct live_loader *loader;
    struct live_runtime *runtime; /* NULL: the models are this process's */
    uint64_t default_bytes;       /* of a model of the runtime */
    struct mr_loop *loop;
    pthread_t thread;
    struct mesh_core *core;
    struct registry *registry;
    struct mr_kv *kv;
    struct mr_kv *journal;  /* NULL: there is none */
    struct mr_timer tick;   /* what the core and the registry wait for */
    struct mr_timer sample; /* uses of models */
    struct mr_map clients;  /* address -> struct mr_client */
    struct mr_map uses;     /* model -> struct model_uses */
    struct mr_map by_path;  /* models that were loaded here by a path: the values mean nothing */
    struct mr_mesh_ticket tickets; /* ring */
    struct mr_mesh_admin admins;   /* ring: those under way */
    struct live_changes changes;
    uint64_t samples, load_failures;
    uint64_t unload_failures, unload_attempt_failures;
    struct mr_hist load_ns, unload_ns, sizing_ns;
    struct mesh_core_times times;
    uint32_t registering;       /* models whose registration is not answered yet */
    MR_VEC(char *) to_register; /* names of models of the repositories */
    uint64_t ignored;           /* unreadable records that have been logged */
    bool is_acting, has_registered;
    bool was_refused; /* the registry has not taken all registrations of the last round */
    bool is_ending;   /* it has left the mesh, or given that up, and ends */
    _Atomic bool is_started, is_joined, is_stopping, is_ready;
    _Atomic uint64_t names; /* mesh_core_names, for other threads */
    int64_t started_ns, joined_ns;
    uint64_t unfit
        [UNFIT_MOST]; /* hashes of models that failed to load here in the first minutes, and that others have */
    size_t unfit_count;
    _Atomic int loads; /* that the models carry out for this */
    struct mr_mail stop, drain, end, check;
    _Atomic bool is_check_posted;

    pthread_mutex_t lock; /* guards what follows, for other threads; the first two are waited for */
    pthread_cond_t changed;
    bool is_gone;    /* drained, and out of the registry */
    bool is_reached; /* the registry, once */
    struct mr_err lost;
    struct mr_mesh_stats stats;
    struct mesh_methods config; /* of the data plane */
    struct mesh_methods runtime_methods;
    struct mr_map reloads; /* id -> struct live_reload */
};

/* live.c */
int64_t live_now(void *ctx);
/** Carries out what the core wants. */
void live_acted(void *ctx);

/** Reads the registry, and takes part from then on. Errors: MR_E_IO, MR_E_EXHAUSTED. */
int live_join(struct mr_mesh *m, struct mr_err *err);

/* models.c */
extern const struct live_loader live_own_loader;
/** Of an enum mr_status. */
enum mesh_fail live_fail_of(int rc);
/** Reports uses to the core, and every few samples registers models that are new. */
void live_models_sample(struct mr_mesh *m);
/** Registers what is new in the repositories, some at a time. */
void live_models_register(struct mr_mesh *m);
/** Goes on after the answer of one. */
void live_models_register_more(struct mr_mesh *m);
void live_models_fini(struct mr_mesh *m);

/* ready.c */
/** The first minutes are over sooner or later: a load of the model failed here. */
void live_ready_failed(struct mr_mesh *m, mr_str id);
/** Looks whether it is ready; takes the figures. */
void live_ready_sample(struct mr_mesh *m);

/* copies.c */
/** A model that the runtime has loaded, with a reference for the caller. */
struct mr_mesh_copy *live_copy_new(struct mr_mesh *m);
/** No request begins to use it any more. False: some still do, and `idle` (may be NULL) is called on the mesh's thread when the last one
 *  has ended, also after the mesh has stopped. Once. */
bool live_copy_close(struct mr_mesh_copy *c, void (*idle)(void *ctx), void *ctx);
/** How often requests began to use it, and how many do now. */
uint64_t live_copy_uses(const struct mr_mesh_copy *c, uint32_t *out_running);

/* peers.c */
void live_peers_send(struct mr_mesh *m, const struct mesh_action *a);
void live_peers_fini(struct mr_mesh *m);
/** For registry_options.is_gone: the address is of this machine, and no process listens there. */
bool live_peer_is_gone(void *ctx, mr_str address);

/* plane.c */
/** Reads the configuration. Thread: boot. */
int live_plane_start(struct mr_mesh *m, struct mr_err *err);
void live_plane_sample(struct mr_mesh *m);
/** Takes what `methods` has. */
void live_plane_set_runtime(struct mr_mesh *m, struct mesh_methods *methods);
/** Whether the model is loaded because the runtime seemed to have lost it; asked once per load. */
bool live_plane_reloads(struct mr_mesh *m, mr_str id);
/** The model is no longer loaded; id ptr NULL: none is. */
void live_plane_forget(struct mr_mesh *m, mr_str id);
/** Likewise the rules for types. */
int live_rules_start(struct mr_mesh *m, struct mr_err *err);
void live_rules_sample(struct mr_mesh *m);
void live_plane_fini(struct mr_mesh *m);

/* admin.c */
/** The end of a call of the core that has an administrator. */
void live_admin_answer(struct mr_mesh *m, const struct mesh_action *a);
/** Answers those that wait for a load or a transition, if it has ended or their time has. */
void live_admin_settle(struct mr_mesh *m);
void live_admin_fini(struct mr_mesh *m);

/* changes.c */
void live_changes_init(struct mr_mesh *m);
/** registry_options.changed */
void live_changes_add(void *ctx, mr_str key);
/** Whether there is an answer to the question. Moves a->since over what it does not ask for. */
bool live_changes_has(const struct mr_mesh *m, struct mr_mesh_admin *a);
/** As live_report. */
bool live_changes_report(struct mr_mesh *m, struct mr_mesh_admin *a);
void live_changes_fini(struct mr_mesh *m);

/* report.c */
/** The message of an answer, in a->arena. False: no memory. */
bool live_report(struct mr_mesh *m, struct mr_mesh_admin *a);
/** Of a page that the registry has given. */
bool live_report_page(struct mr_mesh *m, struct mr_mesh_admin *a, const struct mr_kv_result *page);
/** The last id of a page; ptr NULL: no key there is of a model or vmodel. Borrowed from the page. */
mr_str live_report_last(const struct mr_kv_result *page);
/** Whether all of a list's page is known here. */
bool live_report_has(const struct mr_mesh *m, const struct mr_mesh_admin *a,
                     const struct mr_kv_result *page);
/** Of one, in the arena, as this server sees it. owner: that it must have; empty: any. NULL: no memory. */
Millrace__MeshModel *live_report_model(const struct mr_mesh *m, mr_str id, struct mr_arena *a);
Millrace__MeshVModel *live_report_vmodel(const struct mr_mesh *m, mr_str id, mr_str owner,
                                         struct mr_arena *a);
Millrace__MeshStatus live_model_status(const struct mr_mesh *m, mr_str id);

/* runtime.c, see runtime.h */
extern const struct live_loader live_runtime_loader;
/** A connection to it broke: it is asked whether it lives. */
void live_runtime_check(struct mr_mesh *m);

/* tickets.c */
void live_tickets_act(struct mr_mesh *m, const struct mesh_action *a);
void live_tickets_fini(struct mr_mesh *m);

#endif
