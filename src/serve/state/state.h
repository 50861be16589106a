/* The server and its loops, and whether it is ready. */
#ifndef MR_SERVE_STATE_STATE_H
#define MR_SERVE_STATE_STATE_H

#include <pthread.h>
#include <sys/queue.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "net/grpc.h"
#include "net/http.h"
#include "net/tls.h"
#include "oip/oip.h"
#include "sched/sched.h"
#include "serve/endpoints/endpoints.h"
#include "serve/server.h"

/* mr_http_listen tags */
enum listener_tag { LISTEN_HTTP = 0, LISTEN_GRPC = 1, LISTEN_METRICS = 2, LISTEN_MESH = 3 };

/* Values of enum mr_status without the sign; unknown ones of backends count as the first */
#define SERVE_STATUSES (-MR_E_CLOSED + 1)

/* Most bytes of a request that carries neither tensors nor files: those are read in one piece. */
#define SERVE_SMALL_BODY ((uint64_t)1 << 20)
/* Most files of a load request */
#define SERVE_LOAD_FILES 1024

enum server_state { SERVER_STARTING = 0, SERVER_READY, SERVER_EXITING };

struct admin;
struct call_times;
struct stream_item;
struct serve_pending;

/* One network thread. Members belong to it unless noted. */
struct serve_loop {
    struct mr_server *server;
    struct mr_loop *loop;
    pthread_t thread;
    _Atomic bool is_started; /* loader threads ask */
    unsigned epoch_slot;
    struct mr_reply_loop reply_loop;
    LIST_HEAD(, serve_pending) open; /* calls without an end of their own */
    struct stream_item *free_items;  /* recycled requests of streams */
    unsigned free_item_count;
    /** Inferences that reached no version. */
    _Atomic uint64_t refused[MR_INFER_PROTOCOLS][SERVE_STATUSES];
    struct mr_map peers;           /* address -> struct mr_client, of other servers of the mesh */
    struct mr_client *runtime;     /* of the mesh; NULL: not connected to yet */
    _Atomic uint64_t direct;       /* requests that went there without asking the mesh */
    struct call_times *call_times; /* NULL: there is no mesh */
    /* Pinned until the loop sleeps: the version that was seen ready last in a mesh, which may unload it before the request that asked looks it up. */
    struct mr_version *found;
    struct mr_map places;        /* model -> where it is (places.c) */
    struct mr_map active;        /* vmodel -> what it stands for (places.c) */
    struct mr_timer exit_timer;  /* ends long requests at exit */
    struct mr_timer check_timer; /* see take_done */
    struct mr_mail changed;      /* posted when readiness may have changed */
    _Atomic bool is_change_posted;
};

enum serve_tls_kind { SERVE_TLS_HTTP, SERVE_TLS_GRPC, SERVE_TLS_MESH, SERVE_TLS_KINDS };

/* TLS of one listener; the thread that watches files owns it, but for the counters. */
struct serve_tls {
    const char *name; /* "http" */
    const struct mr_serve_tls *options;
    struct mr_tls *tls; /* NULL: off */
    int64_t remind_ns;  /* time of the next log line about the end of the certificate */
    _Atomic uint64_t reloads;
    _Atomic uint64_t reload_failures;
};

struct serve_tls_watch {
    pthread_t thread;
    pthread_mutex_t mutex; /* guards is_asked and is_stopping */
    pthread_cond_t wake;
    bool is_asked;
    bool is_stopping;
    bool is_started;
};

struct mr_server {
    struct mr_server_options options;
    struct mr_http_server *http;
    struct mr_engine *engine;
    struct mr_models *models;       /* the engine's */
    struct mr_mesh *mesh;           /* NULL: none */
    struct mr_tls_client *mesh_tls; /* of connections to its other servers; NULL: none */
    struct endpoints *endpoints;    /* NULL: none */
    struct serve_loop *loops;
    /* [loop_count] of the loops, for worker processes; NULL = there are none */
    struct mr_shm_door *doors;
    unsigned loop_count;
    struct admin *admin; /* NULL: not started */
    struct serve_tls tls[SERVE_TLS_KINDS];
    struct serve_tls_watch tls_watch;
    uint16_t http_port;
    uint16_t grpc_port;
    uint16_t metrics_port;
    uint16_t mesh_port;
    char mesh_address[300]; /* at which others reach it */
    _Atomic int state;      /* enum server_state */
    _Atomic bool is_closed; /* every connection and listener, at the end */
    int64_t start_wall_ns;
    struct mr_oip_limits http_limits;
    struct mr_oip_limits grpc_limits;
};

/* Thread: any, as the next one. */
bool serve_is_exiting(const struct mr_server *s);
bool serve_is_ready(struct mr_server *s);
/* Whether a runtime of the mesh has the models: calls for them go there. */
bool serve_has_runtime(const struct mr_server *s);

#endif
