/* Models and their versions: repositories, life cycle, and the table that requests look names up
 * in.
 *
 * `struct mr_models` owns everything. Its loader threads read repositories, open models through
 * `plugin` and make versions; a version becomes visible to requests by one atomic store and is
 * taken away by another; request threads never wait for any of it.
 *
 * Readers. A request thread is a reader with a number (0..reader_count-1). It is online in `epoch`
 * while it may hold what it found in the table, and quiesces once per loop iteration
 * (base/thread.h). Within one iteration mr_models_find results stay valid; to keep a version longer
 * a request pins it.
 *
 * A version's states: START, LOADING, WARMING, READY, DRAINING, UNLOADED, FAILED. Pins exist in
 * READY and DRAINING only. Memory goes when a retired version has no pins and all readers have
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
/** The state as the repository index says it: UNKNOWN, READY, UNAVAILABLE, LOADING, UNLOADING. */
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

struct mr_pin_slot {
    _Alignas(MR_CACHE_LINE) _Atomic int64_t count; /* written by its reader only */
};

/** A version that is, was or may become ready. Fields above the line are constant once READY. */
struct mr_version {
    struct mr_model *model;
    mr_str model_name;
    int64_t number;
    mr_str number_text;
    const Inference__ModelConfig *config;
    struct mr_executor *executor;
    uint32_t backend_flags; /* MR_BACKEND_* */
    int32_t max_batch_size; /* 0 = no batching */
    bool is_decoupled;      /* a request may get any number of answers */
    struct mr_model_io *inputs;
    uint32_t input_count;
    uint32_t required_input_count;
    struct mr_model_io *outputs;
    uint32_t output_count;
    uint32_t backend_input_count; /* size of mr_exec.inputs */
    uint32_t backend_output_count;
    const char *model_dir; /* where config and labels came from */
    const char
        *repository_dir; /* resolved; no file of the model lies outside of it and of link_dirs */
    const char *const *link_dirs; /* resolved, ends with NULL; NULL: none; of the manager */
    void *sched;                  /* the scheduler's, set by its hook */
    uint64_t file_bytes;
    bool has_requests; /* MR_WARMUP_REQUESTS was in its folder when it was made */
    bool cannot_batch; /* set by hooks.serve: one row runs, several fail */
    /* ---- life cycle ---- */
    struct mr_pin_slot *pins; /* [reader_count] */
    _Atomic int state;        /* enum mr_version_state */
    _Atomic bool retiring;    /* taken out of the table */
    int64_t loaded_wall_ns;
    int64_t load_ns; /* how long load and warm-up took */
    bool is_first;   /* mr_models_start waits for it */
    bool is_update;  /* another version of the model served when this one was made */
    void *load_private;
};

/** A change of state, as hooks.changed hears of it. */
struct mr_version_change {
    mr_str model;
    int64_t version; /* 0: the model as a whole */
    enum mr_version_state state;
    mr_str reason;                       /* "" = none */
    int64_t spent_ns[MR_VERSION_STATES]; /* of this load of the version, so far */
    uint64_t file_bytes;
};

/** What the layer above does with a version. Called on loader threads. */
struct mr_model_hooks {
    /** Make the scheduler and its instances, run warm-up, set v->sched. Failure fails the load. With
     *  cannot_batch and a max_batch_size that the config did not give, the version is made without and comes again. */
    int (*serve)(void *ctx, struct mr_version *v, struct mr_err *err);
    /** No request will come any more, none is pinned: stop and free the scheduler. */
    void (*unserve)(void *ctx, struct mr_version *v);
    /** A state changed: for logs, metrics, health watchers. One call at a time, in order, without
     *  any lock of this module; a load's or unload's `done` comes after all changes that it made.
     *  What is told is what the index shows: version 0 is the model as a whole (FAILED: it did not
     *  come to versions). A reload in place tells READY again; one that failed tells READY with the
     *  reason, as the previous version goes on. May be NULL, as the others. */
    void (*changed)(void *ctx, const struct mr_version_change *change);
    void *ctx;
};

/** Recorded requests, a file in a version's folder. It may come and go without making the version another one. */
#define MR_WARMUP_REQUESTS "warmup_requests.pb"

/** What a load request may bring along, MR_LOAD_OVERRIDES_ALL by default. */
enum mr_load_overrides { MR_LOAD_OVERRIDES_ALL, MR_LOAD_OVERRIDES_CONFIG, MR_LOAD_OVERRIDES_NONE };
/** What comes first when a version takes the place of another. */
enum mr_switch_policy {
    MR_SWITCH_AVAILABILITY, /* load, then retire: something serves all the time */
    MR_SWITCH_RESOURCE      /* retire, then load: never two in memory, nothing serves in between */
};
enum mr_model_control { MR_MODEL_CONTROL_NONE, MR_MODEL_CONTROL_POLL, MR_MODEL_CONTROL_EXPLICIT };

struct mr_models_options {
    /* Folders; the same one twice counts once. */
    const char *const *repositories;
    size_t repository_count;
    bool may_miss_repositories; /* one that is not there is looked for again instead of an error */
    enum mr_model_control control;
    int64_t poll_ns;              /* rescan interval of poll mode, default 15 s */
    int64_t settle_ns;            /* poll mode: how long a folder must stay the same before it is
                                          taken, default 1 s */
    const char *const *link_dirs; /* folders that links of the repositories may lead to */
    size_t link_dir_count;
    const char *const *load_models; /* explicit mode: what to load at start, "*" = all */
    size_t load_model_count;
    const char *config_name; /* --model-config-name, NULL = none */
    enum mr_load_overrides overrides;
    enum mr_switch_policy switch_policy; /* of models whose config does not say */
    int64_t
        drain_wait_ns;  /* MR_SWITCH_RESOURCE: how long requests may hold up a load, default 60 s */
    bool auto_complete; /* default true */
    bool strict_readiness;   /* default true */
    bool strict_versions;    /* default false: see mr_models_ready */
    uint32_t load_threads;   /* models that load at once at start, default 4 */
    uint32_t update_threads; /* and later, default 1; not more than load_threads count */
    int64_t
        retry_pause_ns; /* before a load that nobody waits for is tried again, doubling each time;
                                  0 = it is not; default 5 s */
    uint64_t memory_budget;    /* that all versions together may use, by estimate; 0 = any */
    bool memory_check;         /* ask the machine and the cgroup before a load, default true */
    uint32_t load_retries;     /* default 0 */
    int32_t default_max_batch; /* 4 */
    uint32_t reader_count;
    const char *const *backend_dirs;
    size_t backend_dir_count;
    const struct mr_setting *const *backend_settings; /* per name below */
    const size_t *backend_setting_counts;
    const char *const *backend_setting_names;
    size_t backend_setting_name_count;
    /** Backends that load requests may choose, beside those with settings above and those of models in the
     *  repositories. */
    const char *const *allowed_backends;
    size_t allowed_backend_count;
};
void mr_models_options_init(struct mr_models_options *o);

/** Strings and arrays of options are copied. Errors: MR_E_INVALID (no such folder...). Thread:
 *  boot. */
int mr_models_new(struct mr_models **out, const struct mr_models_options *options,
                  const struct mr_model_hooks *hooks, struct mr_err *err);
/** Load what the control mode says, and wait for it. *out_failed: models that did not load (their
 *  reasons are in the index); then *err is that of the one which failed first, with its name. Starts watching in poll mode. Errors: only what keeps the whole from
 *  starting. */
int mr_models_start(struct mr_models *m, size_t *out_failed, struct mr_err *err);
/** Loads and unloads are answered MR_E_UNAVAILABLE from now on; a load that runs ends at its next step.
 *  What is loaded stays. */
void mr_models_loads_end(struct mr_models *m);
/** Retire everything, wait for pins up to `timeout_ns`, unload. Requests must have no way in any
 *  more or get "not ready"; loads are ended as above. Returns the number
 *  of versions still pinned (and of loads that still run) at the end. Thread: not a reader. */
size_t mr_models_stop(struct mr_models *m, int64_t timeout_ns);
/** Stops if that was not done. What is still in use is left alone, memory and threads: the process
 *  is about to end. Thread: not a reader; no reader may call in any more. */
void mr_models_free(struct mr_models **m);

struct mr_epoch *mr_models_epoch(struct mr_models *m);

/* ---- requests (Thread: online reader) ---- */

/** Version by name and version text: a number, a label, or "": the newest ready one, or the one that a
 *  rollback went back to. Valid for this loop iteration.
 *  Errors with Triton's texts: MR_E_NOT_FOUND, MR_E_UNAVAILABLE (not ready), MR_E_INVALID (version
 *  not a number). */
int mr_models_find(struct mr_models *m, mr_str name, mr_str version, struct mr_version **out,
                   struct mr_err *err);
/** Keep / give back. Both on the reader's own thread. Not atomic read-modify-write: each reader has
 *  its slot. */
void mr_version_pin(struct mr_version *v, unsigned reader);
void mr_version_unpin(struct mr_version *v, unsigned reader);
/** The version's files are those of a repository, not of a load request. */
bool mr_version_is_stored(const struct mr_version *v);
/** While a version is made: nobody wants it any more; what takes long may end. Thread: loader. */
bool mr_version_is_unwanted(const struct mr_version *v);
/** The resolved path of a file that a config names, relative to the model's folder; *out on the heap. Blocks.
 *  Errors: MR_E_INVALID (no such path may be named), MR_E_NOT_FOUND, MR_E_FORBIDDEN (leads out of the
 *  repository). */
int mr_version_file(const struct mr_version *v, mr_str file, char **out, struct mr_err *err);
/** Text of all READY versions of a model, ascending; count. Valid for this iteration. */
size_t mr_models_ready_versions(struct mr_models *m, mr_str name, const struct mr_version **out,
                                size_t max);

/* ---- control (Thread: any, after mr_models_start; never blocks; done is called once, on a loader
 * thread, before the model's next load or unload begins) ---- */

struct mr_load_file {
    mr_str path; /* "1/model.onnx": <version>/<path> */
    mr_bytes data;
};
typedef void(mr_models_done_fn)(void *ctx, int rc, const struct mr_err *err);

/** A request for a model ends what goes on for the same model when that would not be what is asked for
 *  now: a load whose folder has changed since, or that is followed by an unload, a rollback, or a load
 *  with a config. Its `done` hears MR_E_CANCELLED at once. */

/** Load or reload. config_json ptr NULL: from the repository; files need it. Everything is copied;
 *  with files it may be the work of a turn (base/turn.h).
 *  Errors through done, with Triton's texts and statuses (triton.md 1.5 Load). */
void mr_models_load(struct mr_models *m, mr_str name, mr_str config_json,
                    const struct mr_load_file *files, size_t file_count, mr_models_done_fn *done,
                    void *ctx);
/** done as soon as the model is out of the table; memory follows when its requests end. */
void mr_models_unload(struct mr_models *m, mr_str name, bool dependents, mr_models_done_fn *done,
                      void *ctx);

/** Load `version` ("" = the one before the one that requests without version get) and make it the one
 *  that they get; newer versions without a label retire. Lasts until the model's next load or unload.
 *  Errors through done: those of a load, MR_E_NOT_FOUND (no such version). */
void mr_models_rollback(struct mr_models *m, mr_str name, mr_str version, mr_models_done_fn *done,
                        void *ctx);
/** Put a label on a version, from wherever it is now; version "" takes it away. At once, while loads of
 *  the model go on, too. Errors: MR_E_UNAVAILABLE (wrong mode; the version is not ready),
 *  MR_E_NOT_FOUND, MR_E_INVALID, MR_E_EXHAUSTED (too many labels). Thread: any; takes the manager's
 *  lock for a moment. */
int mr_models_label(struct mr_models *m, mr_str name, mr_str label, mr_str version,
                    struct mr_err *err);

/* ---- reports (Thread: any; takes the manager's lock, not for the request path) ---- */

struct mr_model_report {
    mr_str name;
    int64_t version; /* 0: the model has never had a version */
    enum mr_version_state state;
    bool never_loaded; /* known from the folder only: the index has just the name */
    mr_str reason;
    mr_str warning; /* "" or why the last reload failed while this version goes on */
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
/** As mr_models_report, for what is or was loaded, in no order, and without a look at folders. The lock is left every
 *  fifth of a millisecond, and the CPU offered to others, so that no one waits for thousands of models: what a model
 *  says is of one moment, all of them together are not. */
void mr_models_visit(struct mr_models *m, void (*each)(void *ctx, const struct mr_model_report *r),
                     void *ctx);
#define MR_MEMORY_UNKNOWN INT64_MIN
/** Where a version has its parameters, and what it did to the memory of the process. */
struct mr_memory_view {
    bool is_told;  /* the backend says where its parameters are: the members up to `reason` */
    bool is_apart; /* mapped from a file and packed into a pool; otherwise on the heap */
    uint64_t mapped_bytes; /* as in mr_model_memory */
    uint64_t kept_bytes;
    uint64_t pool_bytes;
    uint64_t heap_bytes;
    uint64_t resident_bytes;
    mr_str reason;          /* why they are on the heap, "" = nothing to say */
    int64_t grown_bytes;    /* while it was made, warm-up included; or MR_MEMORY_UNKNOWN */
    int64_t released_bytes; /* when it ended; or MR_MEMORY_UNKNOWN */
};
/** How far its backend is with a load. */
struct mr_progress_view {
    const char *step; /* NULL = it says nothing; lives as long as the process */
    uint64_t done_bytes;
    uint64_t total_bytes;      /* to go through, all steps together */
    uint64_t bytes_per_second; /* since it began, 0 = not known yet */
    int64_t left_ns;           /* at that rate; -1 = not known yet */
};
/** One load of one version: what became of it, and when. */
struct mr_load_view {
    int64_t version;
    enum mr_version_state state;
    mr_str reason;                              /* "" = none */
    int64_t entered_wall_ns[MR_VERSION_STATES]; /* 0 = it was never in that state */
    int64_t spent_ns[MR_VERSION_STATES];        /* in that state, until now */
    uint64_t file_bytes;
    uint64_t model_bytes;             /* what the backend reports, 0 = nothing (yet) */
    int64_t release_ns;               /* the end of DRAINING: until what it held was given back */
    struct mr_progress_view progress; /* LOADING only */
    struct mr_memory_view memory;     /* from READY on */
};
struct mr_label_view {
    mr_str name;
    int64_t version;
};
struct mr_model_view {
    mr_str name;
    int64_t default_version; /* the version that requests without version get, 0 = none */
    int64_t pinned;          /* by a rollback, 0 = none */
    const struct mr_label_view *labels;
    size_t label_count;
    mr_str error;                     /* why the model as a whole did not load, "" = it did */
    const struct mr_load_view *loads; /* in the order in which they began */
    size_t load_count;
};
typedef void(mr_model_view_fn)(void *ctx, const struct mr_model_view *view);
/** The loads of a model's versions: all that go on, and the last sixteen that have ended. `see` is
 *  called once, under the manager's lock, as the callbacks of mr_models_report are. Errors:
 *  MR_E_NOT_FOUND. */
int mr_models_versions(struct mr_models *m, mr_str name, mr_model_view_fn *see, void *ctx,
                       struct mr_err *err);

/** Since the start, over all models. */
struct mr_load_totals {
    uint64_t ready; /* loads of versions by their end */
    uint64_t failed;
    uint64_t cancelled;
    struct {
        uint64_t count; /* versions that have left this state */
        uint64_t ns;    /* that they spent in it, all together */
    } spent[MR_VERSION_STATES];
};
void mr_models_totals(struct mr_models *m, struct mr_load_totals *out);

/** Every model that should serve has a version that does; a model whose first version is loading or failed makes it
 *  false. With strict_versions a version that failed, beside one that serves, does so too, until it loads or is given
 *  up. Without strict_readiness always true. Thread: any; one load. */
bool mr_models_ready(struct mr_models *m);
/** Whether a model of that name was ever asked to load and is not forgotten since, serving or not. Thread: online
 *  reader. */
bool mr_models_is_known(const struct mr_models *m, mr_str name);
enum mr_model_control mr_models_control(const struct mr_models *m);

#endif
