/* The server: loops, endpoints, models and metrics put together. One per process. */
#ifndef MR_SERVE_SERVER_H
#define MR_SERVE_SERVER_H

#include <regex.h>

#include "base/err.h"
#include "base/log.h"
#include "engine/engine.h"
#include "mesh/mesh.h"
#include "model/model.h"
#include "net/http.h"
#include "serve/restrict.h"

struct mr_server;

/** TLS of a listener; files as in net/tls.h. */
struct mr_serve_tls {
    bool on;
    bool mutual; /* clients need a certificate of `ca`; implies on */
    const char *cert;
    const char *key;
    const char *ca;
};

/** Everything that can be set; strings are borrowed until mr_server_free. mr_server_options_init gives the
 *  defaults said here. The command line (cli/serve/opt_serve.c) maps options onto these. */
struct mr_server_options {
    const char *id; /* --id: "name" of GET /v2; "triton", because clients look for it */
    struct mr_models_options models;
    const char *const *op_dirs; /* libraries with operators of workflows */
    size_t op_dir_count;
    const char *endpoints; /* a file of endpoints, proto/service.proto; NULL = none */
    /** resolve NULL, the default: requests for models that are not ready here are refused at once. Otherwise inferences,
     *  metadata and configurations wait for it. */
    struct mr_resolver resolver;
    uint32_t max_resolving; /* requests that wait for it, 0 = 4096 */

    /** registry NULL, the default: no mesh. Otherwise models.control becomes explicit, and requests for models that are not ready
     *  here are answered by other servers or wait for a load here; resolver is the mesh's. */
    struct mr_mesh_options mesh;
    /** "127.0.0.1:0": where the others reach this server. Without mesh_tls on loopback, or "unix:/path". */
    const char *mesh_address;
    struct mr_serve_tls mesh_tls; /* off; mutual is the only kind */

    bool allow_http;          /* true */
    const char *http_address; /* "127.0.0.1"; or "unix:/path" */
    uint16_t http_port;       /* 8000, 0 = any */
    bool reuse_http_port;
    bool allow_grpc;
    const char *grpc_address;
    uint16_t grpc_port; /* 8001 */
    bool reuse_grpc_port;
    bool allow_metrics;
    const char *metrics_address;  /* as http_address when NULL */
    uint16_t metrics_port;        /* 8002 */
    struct mr_serve_tls http_tls; /* off */
    struct mr_serve_tls grpc_tls; /* off */
    bool metrics_use_tls;         /* false; true: as HTTP */
    enum { MR_SERVE_TLS_12, MR_SERVE_TLS_13 } tls_min_version;
    uint32_t loop_threads; /* 0 = one per CPU, at most 64 */

    uint64_t http_max_input_bytes;    /* 64 MiB */
    uint64_t grpc_max_message_bytes;  /* INT32_MAX */
    uint32_t max_decompression_ratio; /* 100; 0: any */
    int32_t json_max_depth;           /* 100 */
    struct mr_http_options http;      /* connections, headers, timeouts, HTTP/2 */
    uint64_t memory_budget_bytes;     /* bulk memory of requests in flight, 0 = a quarter of RAM */
    uint32_t max_queue_size;          /* per model, when its config says none; 0 = 4096 */
    int64_t busy_poll_ns;             /* mr_loop_set_busy_poll; 0 */
    /** Longest expected execution that runs on the network thread; 100 us; 0 = never. */
    int64_t inline_threshold_ns;
    enum { MR_SERVE_DELAY_ADAPTIVE, MR_SERVE_DELAY_EXACT } batching_delay;
    int64_t default_warmup_ns;  /* most time for generated requests; 1 s; 0 = none */
    int64_t start_warmup_ns;    /* generated requests of all versions of the start; 50 ms */
    int64_t recorded_warmup_ns; /* recorded requests at most; 30 s; 0: they are checked only */
    enum {
        MR_SERVE_COMPRESS_NONE,
        MR_SERVE_COMPRESS_LOW,
        MR_SERVE_COMPRESS_MEDIUM,
        MR_SERVE_COMPRESS_HIGH
    } grpc_compression;
    /** HTTP and gRPC: headers in whose name it is found become parameters; NULL = none. Borrowed until
     *  mr_server_free. */
    const regex_t *header_forward;

    struct mr_restrictions http_restricted; /* all open */
    struct mr_restrictions grpc_restricted;
    /** False: with a mesh or models.placed, calls that change models are refused unless they come over TLS, a socket file, or from
     *  this machine. */
    bool allow_remote_management;

    bool exit_on_error;       /* true: a model that fails at start ends the process (mode none) */
    bool strict_readiness;    /* true */
    bool empty_health_bodies; /* false; true: health answers have a status alone, as Triton's */
    /** False; true: errors that no model makes have the form and text of MLServer's: unknown models, paths and methods. */
    bool mlserver_errors;
    /** With models.placed: what a ModelMesh allows a load. 90 s. */
    int64_t model_runtime_timeout_ns;
    int64_t exit_timeout_ns; /* 30 s */
};
void mr_server_options_init(struct mr_server_options *o);
/** Where metrics are: metrics_address, or http_address unless that is a socket file. Borrowed from *o, or static. */
const char *mr_server_metrics_address(const struct mr_server_options *o);
/** Whether the options of TLS have the files that they need; reads none. mr_server_start does it as well. Errors: MR_E_INVALID, names
 *  the options. Thread: any. */
int mr_server_tls_check(const struct mr_server_options *o, struct mr_err *err);

/** Bind, load models, start serving; returns when ready (or not, see exit_on_error). Thread: boot. */
int mr_server_start(struct mr_server **out, const struct mr_server_options *o, struct mr_err *err);
/** Where it listens; 0 for what is off. Valid after start. */
uint16_t mr_server_http_port(const struct mr_server *s);
uint16_t mr_server_grpc_port(const struct mr_server *s);
uint16_t mr_server_metrics_port(const struct mr_server *s);
uint16_t mr_server_mesh_port(const struct mr_server *s);
/** "host:port" with the port that was bound, or "unix:/path"; empty without a mesh. */
const char *mr_server_mesh_address(const struct mr_server *s);
struct mr_models *mr_server_models(struct mr_server *s);
/** Reads certificates and keys again, soon. Does nothing without TLS. Thread: any, between start and stop. */
void mr_server_reload_tls(struct mr_server *s);
/** Reads the file of endpoints again, soon. Does nothing without one. Thread: any, between start and stop. */
void mr_server_reload_endpoints(struct mr_server *s);
/** Drain and stop: readiness false, no new connections, in-flight requests finish within exit_timeout, models
 *  unload. Returns MR_OK, or MR_E_DEADLINE when something was cut off. Thread: boot. */
int mr_server_stop(struct mr_server *s);
/** Frees it, but for what a model that has not come back still uses. */
void mr_server_free(struct mr_server **s);

#endif
