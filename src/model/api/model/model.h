/* Models and their versions: repositories, life cycle, and the table in which requests look up
 * names.
 *
 * `struct mr_models` owns everything. Its loader threads read repositories, open models through
 * executors and make versions. One atomic store publishes a version to requests and another one removes
 * it; request threads never wait for a load.
 *
 * Readers. A request thread is a reader and has an epoch slot (0..reader_count-1), the index of its pins. It is online
 * in `epoch` while it may hold pointers from the table, and quiesces once per loop iteration
 * (base/thread.h). Results of mr_models_find are valid within one iteration; a request pins a version to keep it
 * longer. Other threads find and pin in one step (mr_models_acquire); their pins are counted together.
 *
 * A version's states: START, LOADING, WARMING, READY, DRAINING, UNLOADED, FAILED. Pins exist in
 * READY and DRAINING only. A retired version is freed when it has no pins and all readers have
 * quiesced. */
#ifndef MR_MODEL_MODEL_H
#define MR_MODEL_MODEL_H

#include <stdatomic.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/map.h"
#include "base/thread.h"
#include "exec/exec.h"
#include "model/config.h"

struct mr_models;
struct mr_model;
struct mr_version;

enum mr_version_state {
    MR_VERSION_START = 0,
    MR_VERSION_LOADING,
    MR_VERSION_WARMING,
    MR_VERSION_READY,
    MR_VERSION_DRAINING,
    MR_VERSION_UNLOADED,
    MR_VERSION_FAILED
};
#define MR_VERSION_STATES (MR_VERSION_FAILED + 1)
/** "READY", ... */
const char *mr_version_state_name(enum mr_version_state s);
/** The state's name in the repository index: UNKNOWN, READY, UNAVAILABLE, LOADING, UNLOADING. */
const char *mr_version_state_triton(enum mr_version_state s);

/** One input or output of a loaded version, in config order. dims are the config's (no batch
 *  dimension). */
struct mr_model_io {
    mr_str name;
    int32_t dtype;
    int32_t rank;
    const int64_t *dims;    /* -1 = any size */
    const int64_t *reshape; /* what the backend sees instead of dims, NULL = the same */
    int32_t reshape_rank;
    int32_t backend_index; /* position in the backend's signature */
    bool optional;
    const mr_str *labels; /* outputs with label_filename */
    size_t label_count;
};

/** The epoch slot of a thread that is no reader. */
#define MR_EPOCH_SLOT_NONE UINT32_MAX

struct mr_pin_slot {
    _Alignas(MR_CACHE_LINE) _Atomic int64_t count; /* written by its reader only */
};

/** A version of a model. Fields above the line are constant once it is READY. */
struct mr_version {
    struct mr_model *model;
    mr_str model_name;
    int64_t number;
    mr_str number_text;
    const Inference__ModelConfig *config;
    struct mr_executor *executor;
    uint32_t backend_flags; /* MR_BACKEND_* */
    int32_t max_batch_size; /* 0 = no batching */
    bool is_decoupled;      /* a request may have any number of responses */
    /** A model of MLServer. Its input `request` is a message as it came, its output `response` the message of the answer:
     *  what they hold is between the client and the model. Further inputs are never given: their names, as "POST /path", say
     *  for which paths the model has handlers. */
    bool has_messages;
    /** A model of one matrix that is asked as MLServer's are: the input's name does not matter, nor the type of its
     *  numbers, null is NaN, and without a choice of outputs the first one is meant. */
    bool reads_matrix;
    mr_str label; /* of such a model: what answers call its version; ptr NULL = by its number */
    struct mr_model_io *inputs;
    uint32_t input_count;
    uint32_t required_input_count;
    struct mr_model_io *outputs;
    uint32_t output_count;
    uint32_t backend_input_count; /* size of mr_exec.inputs */
    uint32_t backend_output_count;
    const char *model_dir;      /* where config and labels came from */
    const char *repository_dir; /* resolved; all files of the model lie in it or in link_dirs */
    /** Resolved, NULL-terminated; NULL: none; borrowed from the manager. */
    const char *const *link_dirs;
    void *sched; /* the scheduler's, set by its hook */
    uint64_t file_bytes;
    bool has_requests; /* its folder had MR_WARMUP_REQUESTS when it was made */
    bool cannot_batch; /* set by hooks.serve: requests of one row succeed, of several fail */
    /* ---- life cycle ---- */
    struct mr_pin_slot *pins;   /* [reader_count] */
    _Atomic int64_t other_pins; /* of threads that are no readers */
    _Atomic int state;          /* enum mr_version_state */
    _Atomic bool retiring;      /* removed from the table */
    int64_t load_ns;            /* how long load and warm-up took */
    bool is_first;              /* mr_models_start waits for it */
    bool is_update;             /* another version of the model served when this one was made */
    void *load_private;
};

/** A change of state, as reported to hooks.changed. */
struct mr_version_change {
    mr_str model;
    int64_t version; /* 0: the model as a whole */
    enum mr_version_state state;
    mr_str reason; /* "" = none */
    /** Time that this load of the version has spent in each state. */
    int64_t spent_ns[MR_VERSION_STATES];
    uint64_t file_bytes;
};

/** What the layer above does with a version. Called on loader threads. */
struct mr_model_hooks {
    /** Makes the scheduler and its instances, runs the warm-up, sets v->sched. An error fails the load. If it sets
     *  cannot_batch and the config does not give max_batch_size, the version is made again with max_batch_size 0 and
     *  passed again. */
    int (*serve)(void *ctx, struct mr_version *v, struct mr_err *err);
    /** Stops and frees the scheduler. The version gets no more requests and has no pins. */
    void (*unserve)(void *ctx, struct mr_version *v);
    /** Reports a change of state, for logs, metrics and health watchers. One call at a time, in order, without
     *  any lock of this module; `done` of a load or unload is called after all of its changes are reported.
     *  States are those of the index. Version 0 is the model as a whole (FAILED: the load failed before any
     *  version). A reload in place reports READY again; one that failed reports READY with the
     *  reason, as the previous version serves. Each hook may be NULL. */
    void (*changed)(void *ctx, const struct mr_version_change *change);
    /** A model may have lost its last worker process, or have one again (mr_executor_is_ready). Must not block. Thread: any, with
     *  locks held: no call of this module. */
    void (*ready_changed)(void *ctx);
    /** True while a version that was replaced has sequences, which keep it. Called under the manager's lock. */
    bool (*holds)(void *ctx, const struct mr_version *v);
    /** The version, of an unloaded model, or of a manager that stops, or retired to make room, is to end as soon as its
     *  requests are answered: none of them should wait for requests that may never come. Perhaps called again. Called under the
     *  manager's lock. */
    void (*hasten)(void *ctx, struct mr_version *v);
    void *ctx;
};

/** A model of MLServer: this file in its folder. */
#define MR_MODEL_SETTINGS "model-settings.json"

/** Recorded requests, a file in a version's folder. Its presence and content are no part of the version's identity. */
#define MR_WARMUP_REQUESTS "warmup_requests.pb"

/** What a load request may override, MR_LOAD_OVERRIDES_ALL by default. */
enum mr_load_overrides { MR_LOAD_OVERRIDES_ALL, MR_LOAD_OVERRIDES_CONFIG, MR_LOAD_OVERRIDES_NONE };
/** What happens first when a version replaces another. */
enum mr_switch_policy {
    MR_SWITCH_AVAILABILITY, /* load, then retire: a version serves at any time */
    MR_SWITCH_RESOURCE      /* retire, then load: never two in memory, none serves in between */
};
enum mr_model_control { MR_MODEL_CONTROL_NONE, MR_MODEL_CONTROL_POLL, MR_MODEL_CONTROL_EXPLICIT };

struct mr_worker_caller;
struct mr_shm_door;

/** Opens the executors of models that no backend runs: ensembles and workflows. */
struct mr_model_maker {
    /** `c` has passed the checks of config.h that need no other model; what the graph says of the model itself, that it is
     *  decoupled, is set in it. desc: as for a backend. *out is from_config. The models that it asks are ready, as far as
     *  they can be. NULL: there are no such models. Errors: MR_E_INVALID, MR_E_UNSUPPORTED. Thread: loader; blocks. */
    int (*open)(void *ctx, Inference__ModelConfig *c, const struct mr_model_desc *desc,
                struct mr_executor **out, struct mr_err *err);
    void *ctx;
};

struct mr_models_options {
    /* Folders; the same one twice counts once. Or archives elsewhere: file:/folder/name.tar.gz, s3://bucket/name.zip,
     * https://host/name.tar.gz#sha256=… */
    const char *const *repositories;
    size_t repository_count;
    /* Graphs serve on when a model that they ask is unloaded: their requests bring it back. */
    bool graphs_stay;
    bool mlserver_errors;       /* models that are not there are reported with MLServer's texts */
    bool may_miss_repositories; /* a missing repository is no error, and is looked for again */
    enum mr_model_control control;
    int64_t poll_ns; /* rescan interval of poll mode, default 15 s */
    /* Poll mode: how long a folder must be unchanged before it is loaded, default 1 s. */
    int64_t settle_ns;
    const char *const *link_dirs; /* folders that links of the repositories may lead to */
    size_t link_dir_count;
    /** Explicit mode: a folder of the caller's, below which mr_models_place makes models, whose configurations may have another
     *  name; NULL: it makes none. */
    const char *placed;
    /** What addresses of archives and models have to begin with; each ends with '/'. Of one with file:, its folder is
     *  among link_dirs. */
    const char *const *allowed_urls;
    size_t allowed_url_count;
    /* load requests may name such addresses, not mr_models_place alone; needs placed */
    bool loads_urls;
    const char *const *load_models; /* explicit mode: what to load at start, "*" = all */
    size_t load_model_count;
    const char *config_name; /* --model-config-name, NULL = none */
    enum mr_load_overrides overrides;
    enum mr_switch_policy switch_policy; /* of models whose config has none */
    /* MR_SWITCH_RESOURCE: how long requests may delay a load, default 60 s. */
    int64_t drain_wait_ns;
    bool auto_complete;      /* default true */
    bool strict_readiness;   /* default true */
    bool strict_versions;    /* default false: see mr_models_ready */
    uint32_t load_threads;   /* models that load at once at start, default 4 */
    uint32_t update_threads; /* and later, default 1; at most load_threads */
    /* Pause before the retry of a failed load that has no caller; doubles each time. 0 = no retry; default 5 s. */
    int64_t retry_pause_ns;
    uint64_t memory_budget; /* of all versions together, by estimate; 0 = no limit */
    bool memory_check;      /* compare with the memory left in machine and cgroup, default true */
    uint32_t load_retries;  /* default 0 */
    int32_t default_max_batch; /* 4 */
    uint32_t reader_count;
    const char *const *backend_dirs;
    size_t backend_dir_count;
    const struct mr_setting *const *backend_settings; /* per name below */
    const size_t *backend_setting_counts;
    const char *const *backend_setting_names;
    size_t backend_setting_name_count;
    /** Backends that load requests may choose besides those with settings above and those of models in the
     *  repositories. */
    const char *const *allowed_backends;
    size_t allowed_backend_count;
    /** "NAME=thread", "NAME=process": where models of a backend run whose configuration does not say it. */
    const char *const *backend_placements;
    size_t backend_placement_count;
    const char *worker_program; /* path of millrace-worker; NULL: all models run in threads */
    int64_t worker_hang_ns;     /* sentinel/sentinel.h, as what follows */
    uint32_t worker_confine;
    bool worker_confine_is_chosen; /* false: Python models do with MR_CONFINE_LIMITS */
    const char *python;            /* the interpreter of Python models; NULL: python3 of PATH */
    /** Of unpacked archives and Python environments (archive/cache.h); NULL: the usual place. */
    const char *archive_cache;
    uint64_t archive_cache_bytes; /* default 64 GiB; 0 = no limit */
    uint64_t worker_memory;
    uint32_t worker_cpu_hundredths;
    const char *worker_cgroup; /* NULL: none */
    const char *worker_user;   /* NULL: the server's own */
    const char *const *worker_dirs;
    size_t worker_dir_count;
    const struct mr_worker_caller *worker_caller; /* borrowed; NULL: workers ask no other models */
    struct mr_model_maker maker;
    /** [reader_count], as sentinel/sentinel.h's; borrowed. NULL: none */
    const struct mr_shm_door *reader_doors;
};
void mr_models_options_init(struct mr_models_options *o);

/** Strings and arrays of options are copied. Errors: MR_E_INVALID (no such folder...). Thread:
 *  boot. */
int mr_models_new(struct mr_models **out, const struct mr_models_options *options,
                  const struct mr_model_hooks *hooks, struct mr_err *err);
/** Loads the models that the control mode selects, waits for them, and starts the watch in poll mode. *out_failed: number
 *  of models that did not load (their reasons are in the index); if not 0, *err is the error of the first of them, with its
 *  name. Errors: those that prevent the start as a whole. */
int mr_models_start(struct mr_models *m, size_t *out_failed, struct mr_err *err);
/** Later loads and unloads fail with MR_E_UNAVAILABLE; running loads end at their next step.
 *  Loaded versions stay (hooks.hasten). */
void mr_models_loads_end(struct mr_models *m);
/** Retires all versions, waits for pins up to `timeout_ns`, and unloads. New requests get "not ready", if the
 *  caller still accepts any; loads end as above. Returns the number
 *  of versions that are still pinned and of loads that still run. Thread: not a reader. */
size_t mr_models_stop(struct mr_models *m, int64_t timeout_ns);
/** Stops, if mr_models_stop was not called, and frees. Memory and threads still in use are left as they are: the process
 *  is about to end. Thread: not a reader, after the last call of a reader. */
void mr_models_free(struct mr_models **m);

struct mr_epoch *mr_models_epoch(struct mr_models *m);

/* ---- requests (Thread: online reader) ---- */

/** Finds a version by name and version text: a number, a label, or "" for the default version (the newest ready one,
 *  or that of a rollback). Valid for this loop iteration.
 *  Errors with Triton's texts: MR_E_NOT_FOUND, MR_E_UNAVAILABLE (not ready), MR_E_INVALID (version
 *  not a number). */
int mr_models_find(struct mr_models *m, mr_str name, mr_str version, struct mr_version **out,
                   struct mr_err *err);
/** mr_models_find and a pin of MR_EPOCH_SLOT_NONE, for threads that are no readers. Takes the manager's lock for the
 *  look-up. Errors: as mr_models_find. Thread: any. */
int mr_models_acquire(struct mr_models *m, mr_str name, mr_str version, struct mr_version **out,
                      struct mr_err *err);
/** Pin and unpin, both on the reader's own thread. A plain store, as each reader has a slot of its own. With
 *  MR_EPOCH_SLOT_NONE, on any thread: pin adds one to a pin that the caller has, unpin releases that, or the one of
 *  mr_models_acquire. */
void mr_version_pin(struct mr_version *v, unsigned epoch_slot);
void mr_version_unpin(struct mr_version *v, unsigned epoch_slot);
/** Takes the results of worker processes for the reader's requests, and says whether more are pending: see
 *  mr_sentinel_take, mr_sentinel_awake and mr_sentinel_has_pending. Thread: the reader. */
size_t mr_models_take(struct mr_models *m, unsigned epoch_slot, bool *out_is_pending);
void mr_models_awake(struct mr_models *m, unsigned epoch_slot);
/** Appends the metrics that models define, in Prometheus' text format. Thread: any. */
void mr_models_metrics_print(struct mr_models *m, struct mr_buf *b);
/** The versions of v's model that were replaced and are kept for their sequences: the one after `after`, the first if that is
 *  NULL; NULL at the end. Valid for this iteration. */
struct mr_version *mr_version_held(const struct mr_version *v, const struct mr_version *after);
/** False: v's model has no other version that may have sequences, ready or held. Stays of v: by a pin, or for this
 *  iteration. Thread: any. */
bool mr_version_has_others(const struct mr_version *v);
/** Calls `visit` for these versions, never for v, until it returns true for one, and returns that, pinned with the epoch
 *  slot; NULL: for none. v as above. `visit` must not call this module: with MR_EPOCH_SLOT_NONE the
 *  manager's lock is held, if there are such versions. Thread: the slot's reader; any with MR_EPOCH_SLOT_NONE. */
struct mr_version *mr_models_visit_others(struct mr_models *m, const struct mr_version *v,
                                          unsigned epoch_slot,
                                          bool (*visit)(void *ctx, struct mr_version *other),
                                          void *ctx);
/** True if the version's files are in a folder of a repository, and neither from a load request nor in an archive. */
bool mr_version_is_stored(const struct mr_version *v);
/** True if the load that makes this version was cancelled, so that long steps may end early. Thread: loader. */
bool mr_version_is_unwanted(const struct mr_version *v);
/** Resolves the path of a file that a config names, relative to the model's folder; *out is on the heap. Blocks.
 *  Errors: MR_E_INVALID (such a path is not allowed), MR_E_NOT_FOUND, MR_E_FORBIDDEN (leads out of the
 *  repository). */
int mr_version_file(const struct mr_version *v, mr_str file, char **out, struct mr_err *err);
/** True if requests for the version that mr_models_find would return are messages as they came (has_messages). False
 *  also if there is no such version. Thread: as mr_models_find. */
bool mr_models_takes_messages(struct mr_models *m, mr_str name, mr_str version);
/** The model with a handler for a path that is none of the server's: the one of MLServer's whose default version has the
 *  input "METHOD /path"; among several the first by name. *out_model is valid for this iteration. Takes time with the number of
 *  models, if there are such. Thread: as mr_models_find. */
bool mr_models_find_route(struct mr_models *m, mr_str method, mr_str path, mr_str *out_model);
/** mr_models_takes_messages, but of reads_matrix. */
bool mr_models_reads_matrix(struct mr_models *m, mr_str name, mr_str version);
/** All READY versions of a model, ascending; returns their number. Valid for this iteration. */
size_t mr_models_ready_versions(struct mr_models *m, mr_str name, const struct mr_version **out,
                                size_t max);

/* ---- control (Thread: any, after mr_models_start; never blocks; done is called once, on a loader
 * thread, before the model's next load or unload begins) ---- */

struct mr_load_file {
    mr_str path; /* "1/model.onnx": <version>/<path> */
    mr_bytes data;
};
typedef void(mr_models_done_fn)(void *ctx, int rc, const struct mr_err *err);

/** A request for a model cancels the load of the same model in progress, if its result is no longer wanted: its
 *  folder has changed since, or the request is an unload, a rollback, or a load with a config. `done` of the cancelled
 *  load gets MR_E_CANCELLED at once. */

/** What a load request brings along. Zeroed: nothing. */
struct mr_load_request {
    mr_str config_json; /* ptr NULL: the repository's; files need it */
    const struct mr_load_file *files;
    size_t file_count;
    /** ptr NULL: what has the model's name. Otherwise the address of an archive as those among the repositories, or
     *  with file: of what mr_models_place takes, below one of allowed_urls. Not with files. */
    mr_str url;
    mr_str sha256; /* of the archive, 64 hexadecimal digits; ptr NULL: none, or it is in the url */
};
/** Load or reload. q NULL: from the repository. Everything is copied; with files it may be the work of a turn
 *  (base/turn.h). Errors through done, with Triton's texts and statuses; with an address those of mr_models_place. */
void mr_models_load(struct mr_models *m, mr_str name, const struct mr_load_request *q,
                    mr_models_done_fn *done, void *ctx);
/** As mr_models_load, of what is at `path`, with that type (model/place.h): an absolute path to one of link_dirs, or below one of
 *  them; or the address of an archive as those among the repositories, below one of allowed_urls. An archive (docs/archives.md) is one
 *  model. What the model had before stays until this is there. Needs o.placed. Further errors: MR_E_FORBIDDEN (the path leads
 *  elsewhere), MR_E_NOT_FOUND, MR_E_INVALID (another checksum; a repository has a model of that name), those of the download. */
void mr_models_place(struct mr_models *m, mr_str name, mr_str path, mr_str type,
                     mr_models_done_fn *done, void *ctx);
/** Whether it is an address in the place of a path: file:, http:, https:, s3:. */
bool mr_models_is_address(mr_str path);
/** Unloads, and takes a placed model away. done is called once the model is out of the table; its memory is freed when its requests have ended. */
void mr_models_unload(struct mr_models *m, mr_str name, bool dependents, mr_models_done_fn *done,
                      void *ctx);

/** The load of the model `name` asks to load or unload another one, and waits for that: others have its place among the
 *  loads that run at once until mr_models_ask_end with *out_id. mr_models_asked follows when the request is made. What it asks
 *  for is refused (MR_E_UNAVAILABLE) if that waits for this load. Errors: MR_E_UNAVAILABLE (before mr_models_start has
 *  returned; all other loads wait likewise). Thread: any. */
int mr_models_ask_begin(struct mr_models *m, mr_str name, uint64_t *out_id, struct mr_err *err);
void mr_models_asked(struct mr_models *m);
void mr_models_ask_end(struct mr_models *m, mr_str name, uint64_t id);

/** Loads `version` ("" = the one before the default version) and makes it the default version;
 *  newer versions without a label retire. Lasts until the model's next load or unload.
 *  Errors through done: those of a load, MR_E_NOT_FOUND (no such version). */
void mr_models_rollback(struct mr_models *m, mr_str name, mr_str version, mr_models_done_fn *done,
                        void *ctx);
/** Moves a label to a version; version "" removes it. Takes effect at once, also while
 *  the model loads. Errors: MR_E_UNAVAILABLE (wrong mode; the version is not ready),
 *  MR_E_NOT_FOUND, MR_E_INVALID, MR_E_EXHAUSTED (too many labels). Thread: any; takes the manager's
 *  lock for a moment. */
int mr_models_label(struct mr_models *m, mr_str name, mr_str label, mr_str version,
                    struct mr_err *err);

/* ---- reports (Thread: any; takes the manager's lock, not for the request path) ---- */

struct mr_model_report {
    mr_str name;
    int64_t version; /* 0: the model has never had a version */
    /* the version as a file of MLServer's has it, "" where it has none; ptr NULL: its number */
    mr_str given;
    enum mr_version_state state;
    bool never_loaded; /* has a folder only: the index has just the name */
    mr_str reason;
    mr_str warning; /* why the last reload failed while this version serves, "" = it did not */
    int64_t since_wall_ns;
    int64_t load_ns;
    uint64_t file_bytes;
    uint64_t model_bytes;
    struct mr_version *v; /* valid during the callback, NULL unless READY or DRAINING */
};
/** One call per version, sorted by name then number. The callbacks run under the manager's lock:
 *  they must be quick and may not call into this module. Re-reads folder names (explicit and none:
 *  at most once per second), so that models never loaded are listed. */
void mr_models_report(struct mr_models *m, void (*each)(void *ctx, const struct mr_model_report *r),
                      void *ctx);
/** The path of a model's folder in the repositories, not of one that is placed; free with mr_free. False: it has none. Thread: any. */
bool mr_models_folder(struct mr_models *m, mr_str name, char **out);
/** The configuration file of a model in the repositories as it is now, whether it was ever loaded or not; neither completed nor checked.
 *  Free with mr_config_free. Reads files. Errors: MR_E_NOT_FOUND (no folder, or none with a config.pbtxt), those of parsing.
 *  Thread: any. */
int mr_models_folder_config(struct mr_models *m, mr_str name, Inference__ModelConfig **out,
                            struct mr_err *err);
/** As mr_models_report, for models that are or were loaded, in no order, without reading folders. Every fifth of a
 *  millisecond it releases the lock and yields the CPU, so that others do not wait for thousands of models: the report
 *  of one model is consistent, that of all models together is not. */
void mr_models_visit(struct mr_models *m, void (*each)(void *ctx, const struct mr_model_report *r),
                     void *ctx);
#define MR_MEMORY_UNKNOWN INT64_MIN
/** Where a version has its parameters, and what it did to the memory of the process. */
struct mr_memory_view {
    bool is_known;         /* the backend reports its parameters: the members up to `reason` */
    bool is_apart;         /* mapped from a file and packed into a pool; otherwise on the heap */
    uint64_t mapped_bytes; /* as in mr_model_memory */
    uint64_t kept_bytes;
    uint64_t pool_bytes;
    uint64_t heap_bytes;
    uint64_t resident_bytes;
    mr_str reason;          /* why they are on the heap, "" = none */
    int64_t grown_bytes;    /* while it was made, warm-up included; or MR_MEMORY_UNKNOWN */
    int64_t released_bytes; /* when it ended; or MR_MEMORY_UNKNOWN */
};
/** Progress of a load, as its backend reports it. */
struct mr_progress_view {
    const char *step; /* NULL = none reported; static */
    uint64_t done_bytes;
    uint64_t total_bytes;      /* of all steps together */
    uint64_t bytes_per_second; /* since it began, 0 = not known yet */
    int64_t left_ns;           /* at that rate; -1 = not known yet */
};
/** One load of one version: its states, times and sizes. */
struct mr_load_view {
    int64_t version;
    enum mr_version_state state;
    mr_str reason;                              /* "" = none */
    int64_t entered_wall_ns[MR_VERSION_STATES]; /* 0 = it was never in that state */
    int64_t spent_ns[MR_VERSION_STATES];        /* in that state, until now */
    uint64_t file_bytes;
    uint64_t model_bytes; /* what the backend reports, 0 = nothing (yet) */
    int64_t release_ns;   /* at the end of DRAINING: how long it took to free its resources */
    struct mr_progress_view progress; /* LOADING only */
    struct mr_memory_view memory;     /* from READY on */
};
struct mr_label_view {
    mr_str name;
    int64_t version;
};
struct mr_model_view {
    mr_str name;
    int64_t default_version; /* of requests without version, 0 = none */
    int64_t pinned;          /* by a rollback, 0 = none */
    const struct mr_label_view *labels;
    size_t label_count;
    mr_str error;                     /* why the model as a whole failed to load, "" = it did not */
    const struct mr_load_view *loads; /* in the order in which they began */
    size_t load_count;
};
typedef void(mr_model_view_fn)(void *ctx, const struct mr_model_view *view);
/** Bytes of the model's ready versions together: of each what its backend reports, or its files if they are more; 0: not
 *  known. False: none is ready. */
bool mr_models_size(struct mr_models *m, mr_str name, uint64_t *out);
/** Whether a load without more makes again what is ready: it is the folder's, without a configuration or files of a load request,
 *  and without a rollback. */
bool mr_models_is_as_folder(struct mr_models *m, mr_str name);
/** Whether a ready version of the ensemble or workflow `by` asks `name`, itself or through others; also if they are the same. */
bool mr_models_is_asked_by(struct mr_models *m, mr_str name, mr_str by);
/** Whether a ready version has sequence_batching. */
bool mr_models_has_sequences(struct mr_models *m, mr_str name);
/** The loads of a model's versions: all in progress, and the last sixteen that have ended. `see` is
 *  called once, under the manager's lock, as the callbacks of mr_models_report are. Errors:
 *  MR_E_NOT_FOUND. */
int mr_models_versions(struct mr_models *m, mr_str name, mr_model_view_fn *see, void *ctx,
                       struct mr_err *err);

/** Since the start, over all models. */
struct mr_load_totals {
    uint64_t ready; /* loads of versions by their outcome */
    uint64_t failed;
    uint64_t cancelled;
    struct {
        uint64_t count; /* versions that have left this state */
        uint64_t ns;    /* their time in it, summed up */
    } spent[MR_VERSION_STATES];
};
void mr_models_totals(struct mr_models *m, struct mr_load_totals *out);

/** True if every model that should serve has a version that does; a model whose first version is loading or failed makes
 *  it false. With strict_versions, so does a failed version beside one that serves, until it loads or is given
 *  up. Without strict_readiness always true. Thread: any; one load. */
bool mr_models_ready(struct mr_models *m);
/** True if a load of that name was requested and its record still exists, serving or not. Thread: online
 *  reader. */
bool mr_models_is_known(const struct mr_models *m, mr_str name);
enum mr_model_control mr_models_control(const struct mr_models *m);

#endif
