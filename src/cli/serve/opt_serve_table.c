/* The option table of `millrace serve`: Triton's names and defaults for features that exist here, Millrace's own
 * options, and the names of options for missing features, so that a command line for Triton gets a clear error
 * instead of "unknown option". The defaults must equal those of mr_server_options_init; tests/unit/cli/test_serve.c
 * compares them. */
#include "base/clock.h"
#include "opt_serve.h"

#define AT(member) MR_OPTION_AT(struct mr_serve_options, member)
#define GROUP(title, remark)                                                                       \
    {                                                                                              \
        .name = title, .kind = MR_OPTION_GROUP, .help = remark                                     \
    }
#define FLAG(n, m, def, text)                                                                      \
    {                                                                                              \
        .name = n, .kind = MR_OPTION_BOOL, AT(m), .fallback = def, .help = text                    \
    }
#define OLD_FLAG(n, m, def, text)                                                                  \
    {                                                                                              \
        .name = n, .kind = MR_OPTION_BOOL, .flags = MR_OPTION_OLD, AT(m), .fallback = def,         \
        .help = text                                                                               \
    }
#define TEXT(n, m, def, v, text)                                                                   \
    {                                                                                              \
        .name = n, .kind = MR_OPTION_STRING, AT(m), .fallback = def, .value = v, .help = text      \
    }
#define LIST(n, m, v, text)                                                                        \
    {                                                                                              \
        .name = n, .kind = MR_OPTION_LIST, AT(m), .value = v, .help = text                         \
    }
#define SECRET(n, m, v, text)                                                                      \
    {                                                                                              \
        .name = n, .kind = MR_OPTION_LIST, .flags = MR_OPTION_SECRET, AT(m), .value = v,           \
        .help = text                                                                               \
    }
#define CHOICE(n, m, def, list, v, text)                                                           \
    {                                                                                              \
        .name = n, .kind = MR_OPTION_CHOICE, AT(m), .fallback = def, .choices = list, .value = v,  \
        .help = text                                                                               \
    }
#define NUMBER(n, m, def, lo, hi, v, text)                                                         \
    {                                                                                              \
        .name = n, .kind = MR_OPTION_INT, AT(m), .fallback = def, .min = lo, .max = hi,            \
        .value = v, .help = text                                                                   \
    }
#define BYTES(n, m, def, lo, hi, text)                                                             \
    {                                                                                              \
        .name = n, .kind = MR_OPTION_BYTES, AT(m), .fallback = def, .min = lo, .max = hi,          \
        .value = "BYTES", .help = text                                                             \
    }
#define TIME(n, m, def, lo, hi, unit, text)                                                        \
    {                                                                                              \
        .name = n, .kind = MR_OPTION_DURATION, AT(m), .fallback = def, .min = lo, .max = hi,       \
        .scale = unit, .value = "TIME", .help = text                                               \
    }
#define IDLE(n, text)                                                                              \
    {                                                                                              \
        .name = n, .kind = MR_OPTION_STRING, .flags = MR_OPTION_IGNORED, .help = text              \
    }
#define IDLE_FLAG(n, text)                                                                         \
    {                                                                                              \
        .name = n, .kind = MR_OPTION_BOOL, .flags = MR_OPTION_IGNORED, .help = text                \
    }
#define NOT_HERE(n, unless, text)                                                                  \
    {                                                                                              \
        .name = n, .kind = MR_OPTION_LIST, .flags = MR_OPTION_REFUSED, .fallback = unless,         \
        .help = text                                                                               \
    }
#define NOT_HERE_FLAG(n, text)                                                                     \
    {                                                                                              \
        .name = n, .kind = MR_OPTION_BOOL, .flags = MR_OPTION_REFUSED, .fallback = "false",        \
        .help = text                                                                               \
    }

#define GIB       (INT64_C(1) << 30)
#define DAY_S     86400
#define NO_GPU    "nothing here is kept in GPU or pinned memory"
#define ONE_LOOP  "the network threads serve HTTP and gRPC alike; see --loop-threads"
#define NO_POOL   "memory of requests is recycled without pools to be sized; see --memory-budget"
#define GRPC_PING "keep-alive pings of clients are answered as they come"
#define NO_TRACE  "there is no request tracing; see --trace-config"
#define NO_CLOUD  "there is no endpoint for it"
#define ON_DEMAND "metrics are gathered when they are asked for"

static const char *const control_modes[] = {"none", "poll", "explicit", NULL};
static const char *const overrides[] = {"all", "config", "none", NULL};
static const char *const switch_policies[] = {"availability", "resource", NULL};
static const char *const compressions[] = {"none", "low", "medium", "high", NULL};
static const char *const log_levels[] = {"error", "warning", "info", "debug", NULL};
/* In the order of enum mr_log_format. */
static const char *const log_formats[] = {"text", "json", "default", "ISO8601", NULL};
static const char *const delays[] = {"adaptive", "exact", NULL};
static const char *const port_forms[] = {"none", "json", NULL};
static const char *const tls_versions[] = {"1.2", "1.3", NULL};

static int check_not_empty(mr_str value, struct mr_err *err)
{
    return value.len ? MR_OK : MR_FAIL(err, MR_E_INVALID, "must not be empty");
}

/* So that a host or bucket is not one whose name begins with another's. */
static int check_model_url(mr_str value, struct mr_err *err)
{
    static const char *const schemes[] = {"s3://", "https://", "http://", "file:///", "file:/"};
    const mr_str end = mr_str_sub(value, value.len ? value.len - 1 : 0, value.len);

    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        const mr_str rest = mr_str_sub(value, strlen(schemes[i]), value.len);
        if (mr_str_starts(value, mr_str_c(schemes[i])) && mr_str_eq_c(end, "/") && rest.len > 1 &&
            rest.ptr[0] != '/' && mr_str_find(rest, '@') < 0) {
            return MR_OK;
        }
    }
    return MR_FAIL(err, MR_E_INVALID,
                   "must begin with s3://, https://, http:// or file:/ and a name, and end with "
                   "'/'");
}

#define NAME(n, m, v, text)                                                                        \
    {                                                                                              \
        .name = n, .kind = MR_OPTION_LIST, AT(m), .value = v, .help = text,                        \
        .check = check_not_empty                                                                   \
    }

const struct mr_option mr_serve_table[] = {
    GROUP("Models", NULL),
    NAME("model-repository", repositories, "DIR",
         "a folder of models, or the address of an archive"),
    NAME("model-store", stores, "DIR", "the same by an older name"),
    NAME("paddle-service", paddle_services, "FILE",
         "infer_service.prototxt of a Paddle Serving server: its services, workflows and engines "
         "are "
         "served, from ONNX files"),
    TEXT("archive-cache", server.models.archive_cache, NULL, "DIR",
         "the folder for unpacked archives and Python environments, by default `unpacked` in the "
         "first of $CACHE_DIRECTORY, $XDG_CACHE_HOME/millrace, $HOME/.cache/millrace"),
    BYTES("archive-cache-size", server.models.archive_cache_bytes, "64G", 0, 64 * 1024 * GIB,
          "of these together, beyond which the least recently used go; 0 no limit"),
    NAME("allow-links-to", link_dirs, "DIR",
         "links in the repositories may lead to this folder and below"),
    CHOICE(
        "model-control-mode", server.models.control, "none", control_modes, "MODE",
        "none loads all models at start; poll follows changes of the folders; explicit loads what "
        "--load-model says and what clients ask for"),
    TEXT("endpoints", server.endpoints, NULL, "FILE",
         "names whose requests are shared among variants by weights; read again when it changes, "
         "and at SIGHUP"),
    TEXT("model-runtime", model_runtime, NULL, "DIR",
         "be the runtime of a ModelMesh: serve mmesh.ModelRuntime over gRPC, whose caller loads "
         "models "
         "by paths in this folder; implies mode explicit"),
    TIME("model-runtime-timeout", server.model_runtime_timeout_ns, "90s", 1, DAY_S, MR_NS_PER_S,
         "how long the mesh waits for a load"),
    NAME("load-model", load_models, "NAME", "with mode explicit: load this model at start, * all"),
    {.name = "allow-model-url",
     .kind = MR_OPTION_LIST,
     AT(model_urls),
     .value = "URL",
     .help = "load requests, or registrations of a mesh, may name archives below this address, "
             "which ends with '/': s3://BUCKET/FOLDER/, https://HOST/, file:/FOLDER/",
     .check = check_model_url},
    CHOICE(
        "load-overrides", server.models.overrides, "all", overrides, "WHAT",
        "with mode explicit: load requests may bring a config and files, a config, none of them"),
    CHOICE("switch-policy", server.models.switch_policy, "availability", switch_policies, "WHAT",
           "load a new version and then retire the old one, or retire it first and load then"),
    TIME("repository-poll-secs", server.models.poll_ns, "15", 1, DAY_S, MR_NS_PER_S,
         "with mode poll: how often the folders are scanned"),
    TEXT("model-config-name", server.models.config_name, NULL, "NAME",
         "take configs/NAME.pbtxt of a model instead of config.pbtxt where it exists"),
    FLAG("disable-auto-complete-config", disable_auto_complete, "false",
         "do not fill in what a config leaves out from the model"),
    OLD_FLAG("strict-model-config", strict_model_config, "false",
             "the older name of --disable-auto-complete-config"),
    FLAG("exit-on-error", server.exit_on_error, "true", "end when a model does not load at start"),
    FLAG("strict-readiness", server.strict_readiness, "true",
         "be ready only when every model that should serve has a version that does"),
    FLAG("strict-version-readiness", server.models.strict_versions, "false",
         "and when no version that should serve has failed, though another of its model serves"),
    NUMBER("model-load-thread-count", server.models.load_threads, "4", 1, 64, "N",
           "models loaded at once at start"),
    NUMBER("model-update-thread-count", server.models.update_threads, "1", 1, 64, "N",
           "models loaded at once after the start, --model-load-thread-count at most"),
    BYTES("model-memory-budget", server.models.memory_budget, "0", 0, 1024 * 1024 * GIB,
          "memory of all models; a load that would need more is refused; 0 is no budget"),
    FLAG("model-memory-check", server.models.memory_check, "true",
         "refuse a load that needs more memory than the machine or container has left"),
    TIME("default-warmup-time", server.default_warmup_ns, "1s", 0, 3600, MR_NS_PER_S,
         "time limit of made-up requests before a version without model_warmup is ready; "
         "0 none"),
    TIME("start-warmup-time", server.start_warmup_ns, "50ms", 0, 3600, MR_NS_PER_S,
         "time limit of the made-up requests of all models together at start, one request of each "
         "and "
         "cheap ones aside"),
    TIME("recorded-warmup-time", server.recorded_warmup_ns, "30s", 0, DAY_S, MR_NS_PER_S,
         "time limit of recorded requests before a version is ready; 0 only checks them"),
    NUMBER("model-load-retry-count", server.models.load_retries, "0", 0, 100, "N",
           "further attempts to load a model that failed"),
    TIME("model-load-retry-pause", server.models.retry_pause_ns, "5s", 0, DAY_S, MR_NS_PER_S,
         "before a load that no client asked for is tried again, doubling each time; 0 never"),

    GROUP("Mesh: servers that share a registry are one cache of models", NULL),
    TEXT("mesh", server.mesh.registry, NULL, "REGISTRY",
         "local for servers of one user on one machine, file:PATH, etcd://HOST:PORT[,…][/PREFIX], "
         "or memory: for tests; models are loaded when they are asked for, and requests go to a "
         "server that has the model"),
    TEXT("mesh-prefix", server.mesh.prefix, NULL, "PREFIX",
         "the mesh's keys are below it in an etcd, after the prefix that --mesh has; servers with "
         "another one are another mesh"),
    TEXT("mesh-id", server.mesh.id, NULL, "NAME",
         "of this server, unique in the mesh; by default its host's name and its process's number"),
    TEXT("mesh-address", server.mesh_address, "127.0.0.1:0", "ADDRESS",
         "where the other servers reach this one; loopback or unix:PATH, unless they use TLS"),
    TEXT("mesh-tls-cert", server.mesh_tls.cert, NULL, "FILE",
         "certificate of this server for the others, which name it by its --mesh-address"),
    TEXT("mesh-tls-key", server.mesh_tls.key, NULL, "FILE", "its key, without passphrase"),
    TEXT("mesh-tls-ca", server.mesh_tls.ca, NULL, "FILE",
         "authorities that the certificates of the others must come from"),
    TEXT("mesh-models", server.mesh.models, NULL, "DIR",
         "models are registered by paths in this folder, and links in it stay there"),
    TEXT("mesh-journal", server.mesh.journal, NULL, "FILE",
         "registrations and changes of vmodels that come while the registry is away are kept in "
         "it, and made when it is back; of this server alone"),
    TEXT("mesh-zone", server.mesh.zone, NULL, "NAME", "copies of a model are spread over zones"),
    NAME("mesh-label", mesh_labels, "NAME", "of this server, for rules about types of models"),
    TEXT("mesh-constraints", server.mesh.constraints, NULL, "JSON|FILE",
         "rules for types of models: {\"TYPE\": {\"required\": [\"LABEL\"], \"preferred\": "
         "[\"LABEL\"]}}, "
         "_default for types without one"),
    TEXT("mesh-runtime", server.mesh.runtime, NULL, "ADDRESS",
         "unix:PATH or loopback HOST:PORT of a runtime of ModelMesh that has this server's models: "
         "it is asked to load models, and gets all calls for them"),
    TEXT("mesh-runtime-inference", server.mesh.runtime_inference, NULL, "ADDRESS",
         "unix:PATH or loopback HOST:PORT of the model server that --mesh-runtime is the adapter "
         "of: it gets the calls for models; --mesh-runtime if not given"),
    TEXT("mesh-dataplane-config", server.mesh.dataplane, NULL, "JSON|FILE",
         "which gRPC methods name their model where: {\"rpcConfigs\": {\"package.Service/Method\": "
         "{\"idExtractionPath\": [1], \"vModelId\": true}}, \"allowOtherRpcs\": true}; a file is "
         "read again when it changes"),
    NUMBER("mesh-min-copies", server.mesh.min_copies, "0", 0, 255, "N",
           "of a model of the repositories that are kept loaded, if its configuration does not "
           "say it"),
    NUMBER("mesh-max-copies", server.mesh.max_copies, "0", 0, 255, "N",
           "of a model of the repositories, if its configuration does not say it; 0 no limit"),
    NUMBER("mesh-scale-up-rate", server.mesh.scale_up_rate, "2000", 10, 1000000000, "N",
           "requests of a copy in a minute, above which the model gets another copy"),
    TEXT("mesh-vmodel-owner", server.mesh.vmodel_owner, NULL, "NAME",
         "owner of the vmodels that calls without an owner make here"),
    TIME("mesh-start-timeout", server.mesh.start_timeout_ns, "5s", 0, DAY_S, MR_NS_PER_S,
         "a registry that was not reached by then ends the start; 0 waits for it"),
    BYTES("mesh-capacity", server.mesh.capacity_bytes, "0", 0, 64 * 1024 * GIB,
          "of the models that are loaded here; 0 a quarter of the machine's memory or its "
          "container's"),
    BYTES("mesh-device-capacity", server.mesh.device_bytes, "0", 0, 64 * 1024 * GIB,
          "device memory of the models that are loaded here; 0 it is not looked at"),
    NUMBER("mesh-loaders", server.mesh.loaders, "4", 1, 256, "N", "models that load at once"),
    GROUP("Backends", NULL),
    NAME("backend-directory", backend_dirs, "DIR",
         "where backends are searched, before the default places"),
    NAME("op-directory", op_dirs, "DIR",
         "where libraries with operators of workflows are, libmillrace_op_*.so"),
    LIST("backend-config", backend_configs, "NAME,KEY=VALUE",
         "a setting of a backend; without NAME of all: default-max-batch-size=4"),
    NAME(
        "allow-backend", allowed_backends, "NAME",
        "load requests may choose this backend, though no model of the repositories uses it and no "
        "--backend-config names it"),
    LIST("backend-placement", backend_placements, "NAME=PLACEMENT",
         "where models of a backend run: thread (of the server) or process; their configuration "
         "may say otherwise"),
    TEXT("worker-program", server.models.worker_program, NULL, "PATH",
         "the program of worker processes, by default millrace-worker beside this one"),
    TEXT("worker-confinement", worker_confinement, NULL, "STEPS",
         "what worker processes give up: all (by default), none, or a list of limits, landlock "
         "(files) and seccomp (network, other processes); Python models by default limits only"),
    TEXT("python", server.models.python, NULL, "PATH",
         "the interpreter of Python models, by default python3 of PATH"),
    LIST("worker-directory", worker_dirs, "DIR",
         "a folder that worker processes may read and write, besides reading their model's"),
    BYTES("worker-memory", server.models.worker_memory, "0", 0, 64 * 1024 * GIB,
          "memory of its own that a worker process may have; 0 no limit"),
    TEXT(
        "worker-cgroup", server.models.worker_cgroup, NULL, "DIR",
        "a delegated cgroup v2 folder without processes, where worker processes have their limits; "
        "auto: the folder above the server's own"),
    TEXT("worker-cpus", worker_cpus, NULL, "NUMBER",
         "CPU time that a worker process may take, 1.5: of one and a half CPUs; needs "
         "--worker-cgroup"),
    TEXT("worker-user", server.models.worker_user, NULL, "NAME",
         "the user that worker processes run as, if the server runs as root; by default its own"),
    TIME("worker-hang-timeout", server.models.worker_hang_ns, "10s", 1, DAY_S, MR_NS_PER_S,
         "a worker process whose execution takes longer is replaced; one that stands still "
         "earlier, once it is known what executions of its model take"),

    GROUP(
        "HTTP",
        "Loopback unless an address is given: there is no password, and encryption only with TLS."),
    FLAG("allow-http", server.allow_http, "true", "serve HTTP"),
    TEXT("http-address", server.http_address, "127.0.0.1", "ADDRESS",
         "address to listen on; 0.0.0.0 or :: for every interface, unix:/PATH for a socket file"),
    NUMBER("http-port", server.http_port, "8000", 0, 65535, "PORT", "0 takes any free port"),
    FLAG("reuse-http-port", server.reuse_http_port, "false", "share the port with other servers"),
    BYTES("http-max-input-size", server.http_max_input_bytes, "64MiB", 1, 64 * GIB,
          "largest JSON text and largest tensor of a request"),
    FLAG("http-shared-memory", server.http.takes_memory, "false",
         "clients of a socket file (unix:/PATH) may hand over tensors in memory that they share"),
    FLAG("empty-health-bodies", server.empty_health_bodies, "false",
         "answer health checks with a status alone, as Triton, instead of JSON"),
    FLAG("mlserver-errors", server.mlserver_errors, "false",
         "report the index, unknown models, paths and methods as MLServer does"),
    TEXT("http-header-forward-pattern", http_forward, NULL, "REGEX",
         "request headers that models get as parameters (POSIX extended, any part of the name)"),
    SECRET("http-restricted-api", http_restricted, "APIS:KEY=VALUE",
           "answer these APIs only to callers whose header KEY has this value"),

    GROUP("gRPC", NULL),
    FLAG("allow-grpc", server.allow_grpc, "true", "serve gRPC"),
    TEXT("grpc-address", server.grpc_address, "127.0.0.1", "ADDRESS", "as --http-address"),
    NUMBER("grpc-port", server.grpc_port, "8001", 0, 65535, "PORT", "0 takes any free port"),
    FLAG("reuse-grpc-port", server.reuse_grpc_port, "false", "share the port with other servers"),
    BYTES("grpc-max-message-size", server.grpc_max_message_bytes, "2147483647", 1, 2147483647,
          "largest message of a client"),
    CHOICE("grpc-infer-response-compression-level", server.grpc_compression, "none", compressions,
           "LEVEL", "compress answers for clients that can read it"),
    TEXT("grpc-header-forward-pattern", grpc_forward, NULL, "REGEX",
         "as --http-header-forward-pattern; one pattern serves both"),
    SECRET("grpc-restricted-protocol", grpc_restricted, "APIS:KEY=VALUE",
           "the same for gRPC; the header is triton-grpc-protocol-KEY"),

    GROUP("Management", NULL),
    FLAG("allow-remote-management", server.allow_remote_management, "false",
         "with --mesh or --model-runtime: calls that change models may come from other machines "
         "without TLS"),

    GROUP("Metrics", NULL),
    FLAG("allow-metrics", server.allow_metrics, "true", "serve GET /metrics"),
    TEXT("metrics-address", server.metrics_address, NULL, "ADDRESS", "--http-address if not given"),
    NUMBER("metrics-port", server.metrics_port, "8002", 0, 65535, "PORT", "0 takes any free port"),

    GROUP("Web pages", "Browsers let any page send requests to this machine; these say which may."),
    {.name = "allowed-host",
     .kind = MR_OPTION_LIST,
     AT(allowed_hosts),
     .value = "NAME",
     .check = mr_http_check_host,
     .help = "a name that clients reach this server by, beside addresses and localhost; * any"},
    {.name = "allowed-origin",
     .kind = MR_OPTION_LIST,
     AT(allowed_origins),
     .value = "ORIGIN",
     .check = mr_http_check_origin,
     .help = "web pages of this origin may ask, as https://app.example.org; null, * any"},

    GROUP("TLS", "Files are PEM; when they change, or at SIGHUP, new connections get what is new."),
    FLAG("http-use-ssl", server.http_tls.on, "false", "encrypt the port of HTTP"),
    FLAG("http-use-ssl-mutual", server.http_tls.mutual, "false",
         "the same, and clients need a certificate of --http-root-cert"),
    TEXT("http-server-cert", server.http_tls.cert, NULL, "FILE",
         "the certificate, and those that lead to its authority"),
    TEXT("http-server-key", server.http_tls.key, NULL, "FILE", "its key, without passphrase"),
    TEXT("http-root-cert", server.http_tls.ca, NULL, "FILE",
         "authorities of clients' certificates"),
    FLAG("grpc-use-ssl", server.grpc_tls.on, "false", "as --http-use-ssl"),
    FLAG("grpc-use-ssl-mutual", server.grpc_tls.mutual, "false", "as --http-use-ssl-mutual"),
    TEXT("grpc-server-cert", server.grpc_tls.cert, NULL, "FILE", "as --http-server-cert"),
    TEXT("grpc-server-key", server.grpc_tls.key, NULL, "FILE", "as --http-server-key"),
    TEXT("grpc-root-cert", server.grpc_tls.ca, NULL, "FILE", "as --http-root-cert"),
    FLAG("metrics-use-ssl", server.metrics_use_tls, "false",
         "encrypt the port of metrics as that of HTTP"),
    CHOICE("tls-min-version", server.tls_min_version, "1.2", tls_versions, "VERSION",
           "the oldest version of TLS to speak"),

    GROUP("Limits", "Every size and every wait has one; the error names the option."),
    BYTES("memory-budget", server.memory_budget_bytes, "0", 0, 1024 * 1024 * GIB,
          "memory of requests and answers in flight; 0 is a quarter of what the machine, or its "
          "container, has"),
    NUMBER("max-queue-size", server.max_queue_size, "0", 0, 16777216, "N",
           "requests waiting per model whose config does not say; 0 is 4096"),
    NUMBER("max-connections", server.http.max_connections, "0", 0, 10000000, "N",
           "open connections; 0 is no limit"),
    BYTES("max-header-bytes", server.http.max_header_bytes, "64KiB", 1024, 16777216,
          "all headers of a request together"),
    NUMBER("max-headers", server.http.max_headers, "100", 10, 10000, "N", "headers of a request"),
    NUMBER("max-decompression-ratio", server.max_decompression_ratio, "100", 0, 1000000, "N",
           "how many times its size a compressed request larger than 8 MiB when unpacked may be; "
           "0 is any"),
    NUMBER("json-max-depth", server.json_max_depth, "100", 4, 1000, "N", "nesting of JSON"),
    TIME("header-timeout", server.http.header_timeout_ns, "10s", 0, DAY_S, MR_NS_PER_S,
         "from the first byte of a request to the end of its headers; 0 is no limit"),
    TIME("body-timeout", server.http.body_timeout_ns, "30s", 0, DAY_S, MR_NS_PER_S,
         "without one byte of a body that is due"),
    TIME("idle-timeout", server.http.idle_timeout_ns, "0", 0, DAY_S, MR_NS_PER_S,
         "of a connection without request; 0 is no limit"),
    TIME("write-timeout", server.http.write_timeout_ns, "30s", 0, DAY_S, MR_NS_PER_S,
         "of a client that does not read its answer"),
    BYTES("min-transfer-rate", server.http.min_rate, "1KiB", 0, GIB,
          "bytes a second that a body must come with, and an answer be taken with; 0 any"),
    BYTES("max-output-backlog", server.http.max_output_backlog, "4MiB", 65536, GIB,
          "memory of answers waiting for a slow client before nothing more is taken from it"),
    NUMBER("h2-max-streams", server.http.h2_max_streams, "256", 1, 100000, "N",
           "requests at once on an HTTP/2 connection"),
    BYTES("h2-window", server.http.h2_window_bytes, "1MiB", 65535, 67108864,
          "bytes a client may send ahead on an HTTP/2 stream; 16 times that per connection"),
    NUMBER("h2-max-resets", server.http.h2_max_resets, "1000", 10, 100000000, "N",
           "requests a client may cancel in 30 s before its connection is closed"),
    {.name = "grpc-keepalive-time",
     .kind = MR_OPTION_DURATION,
     AT(server.http.h2_ping_interval_ns),
     .fallback = "0",
     .min = 0,
     .max = INT64_C(2147483647),
     .scale = MR_NS_PER_MS,
     .value = "MS",
     .help = "ping idle HTTP/2 clients this often; 0 never"},

    GROUP("Process", NULL),
    TEXT("id", server.id, "triton", "NAME", "the server's name in its metadata"),
    NUMBER("loop-threads", server.loop_threads, "0", 0, 64, "N",
           "network threads; 0 is one per CPU"),
    TIME("busy-poll-us", server.busy_poll_ns, "0", 0, 10000, MR_NS_PER_US,
         "how long a network thread looks for more work before it sleeps: less latency for CPU "
         "time"),
    TIME("inline-threshold-us", server.inline_threshold_ns, "100", 0, 1000000, MR_NS_PER_US,
         "a model that answers faster than this runs on the network thread; 0 never"),
    CHOICE(
        "batching-delay", server.batching_delay, "adaptive", delays, "HOW",
        "adaptive: a batch goes before max_queue_delay_microseconds is over when nothing more is "
        "expected; exact: it waits, as in Triton"),
    TIME("exit-timeout-secs", server.exit_timeout_ns, "30", 0, DAY_S, MR_NS_PER_S,
         "how long requests in flight may take after the first SIGTERM or SIGINT"),
    {.name = "config",
     .kind = MR_OPTION_LIST,
     .flags = MR_OPTION_CONFIG,
     AT(configs),
     .value = "FILE",
     .help = "read options from a file of 'name = value' lines"},
    {.name = "dump-options",
     .kind = MR_OPTION_BOOL,
     .flags = MR_OPTION_CLI_ONLY,
     AT(dump_options),
     .help = "print all options in force and where they come from, and end"},
    CHOICE(
        "print-ports", print_ports, "none", port_forms, "FORM",
        "json: when ready, one line of JSON with the ports on standard output, and nothing else"),

    GROUP("Log", "One line per event, on standard error unless --log-file says otherwise."),
    CHOICE("log-level", log_level, "info", log_levels, "LEVEL",
           "the least important lines to write"),
    NUMBER("log-verbose", log_verbose, "0", 0, 1000000, "N", "above 0: debug lines too"),
    FLAG("log-error", log_error, "true", "write errors"),
    FLAG("log-warning", log_warning, "true", "write warnings"),
    FLAG("log-info", log_info, "true", "write information"),
    TEXT("log-file", log_file, NULL, "FILE", "append to this file; SIGHUP reopens it"),
    CHOICE("log-format", log_format, "text", log_formats, "FORMAT",
           "text, json, or Triton's: default, ISO8601"),

    IDLE("pinned-memory-pool-byte-size", NO_GPU),
    IDLE("cuda-memory-pool-byte-size", NO_GPU),
    IDLE_FLAG("enable-peer-access", NO_GPU),
    IDLE_FLAG("allow-gpu-metrics", NO_GPU),
    IDLE("cuda-virtual-address-size", NO_GPU),
    IDLE("min-supported-compute-capability", NO_GPU),
    IDLE("model-load-gpu-limit", NO_GPU),
    IDLE("buffer-manager-thread-count", "inputs are placed by the thread that runs the model"),
    IDLE("http-thread-count", ONE_LOOP),
    IDLE("grpc-infer-thread-count", ONE_LOOP),
    IDLE("grpc-infer-allocation-pool-size", NO_POOL),
    IDLE("grpc-max-response-pool-size", NO_POOL),
    IDLE("grpc-keepalive-timeout", GRPC_PING),
    IDLE_FLAG("grpc-keepalive-permit-without-calls", GRPC_PING),
    IDLE("grpc-http2-max-pings-without-data", GRPC_PING),
    IDLE("grpc-http2-min-recv-ping-interval-without-data", GRPC_PING),
    IDLE("grpc-http2-max-ping-strikes", GRPC_PING),
    IDLE_FLAG("allow-cpu-metrics",
              "metrics of the process's own CPU and memory use are always there"),
    IDLE("metrics-interval-ms", ON_DEMAND),
    IDLE("trace-rate", NO_TRACE),
    IDLE("trace-count", NO_TRACE),
    IDLE("trace-log-frequency", NO_TRACE),
    IDLE("sagemaker-port", NO_CLOUD),
    IDLE("sagemaker-safe-port-range", NO_CLOUD),
    IDLE("sagemaker-thread-count", NO_CLOUD),
    IDLE("vertex-ai-port", NO_CLOUD),
    IDLE("vertex-ai-thread-count", NO_CLOUD),
    IDLE("vertex-ai-default-model", NO_CLOUD),

    NOT_HERE("cache-config", NULL, "the response cache is"),
    NOT_HERE("cache-directory", NULL, "the response cache is"),
    NOT_HERE("response-cache-byte-size", "0", "the response cache is"),
    NOT_HERE("trace-config", NULL, "request tracing is"),
    NOT_HERE("trace-file", NULL, "request tracing is"),
    NOT_HERE("trace-level", "OFF", "request tracing is"),
    NOT_HERE("rate-limit", "off", "rate limiting is"),
    NOT_HERE("rate-limit-resource", NULL, "rate limiting is"),
    NOT_HERE("repoagent-directory", NULL, "loading of repository agents is"),
    NOT_HERE("host-policy", NULL, "placement by host policies is"),
    NOT_HERE("metrics-config", NULL, "a choice of metric kinds (histograms are always on) is"),
    NOT_HERE("grpc-max-connection-age", NULL, "an age limit of connections is"),
    NOT_HERE("grpc-max-connection-age-grace", NULL, "an age limit of connections is"),
    NOT_HERE_FLAG("allow-client-shm", "shared memory with clients is"),
    NOT_HERE_FLAG("model-namespacing", "the same model name in several repositories is"),
    NOT_HERE_FLAG("allow-sagemaker", "the SageMaker endpoint is"),
    NOT_HERE_FLAG("allow-vertex-ai", "the Vertex AI endpoint is"),
};
const size_t mr_serve_table_len = sizeof mr_serve_table / sizeof *mr_serve_table;
