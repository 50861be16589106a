/* Shared by the files that implement model/model.h: the manager, its models, records and jobs.
 *
 *   table.c     names -> models -> ready versions, read by requests without locks
 *   records.c   the record of each version; state changes, the readiness count, the hook's queue
 *   load_history.c  the outcome of each load, with times
 *   jobs.c      the queue of loads and unloads, one at a time per model, and the loader threads
 *   measure.c   growth of the process's memory by loads and unloads
 *   admit.c     refusal of versions for which there is no memory
 *   retry.c     failed loads that are tried again later
 *   load.c      one load: folder -> config -> versions
 *   publish.c   its end: published or taken back; unloads
 *   version_labels.c  names for versions
 *   version.c   one version: backend, signature, complete config, inputs and outputs
 *   reap.c      the thread that closes retired versions once they are unused
 *   watch.c     poll mode: which folders have changed and have come to rest
 *   backends.c  libraries, opened once
 *   backend_choice.c  the libraries that a load request may choose
 *   names.c     names of the folders, for the index
 *   report.c    the index
 *   models.c    start and stop
 *
 * Locks. `lock` guards everything below its line in struct mr_models and everything marked so in
 * struct mr_model. It is held for list operations and for the callbacks of a report, never over
 * file access, a hook, or a call into a backend. `backends_lock` guards the list of libraries.
 * Neither is taken while the other is held. Requests take none. */
#ifndef MR_MODEL_MANAGER_H
#define MR_MODEL_MANAGER_H

#include <pthread.h>

#include "base/arena.h"
#include "base/vec.h"
#include "model/folder/folder.h"
#include "model/model.h"

/** Limit of names in one server, against a client that loads ever new ones. */
#define MR_MODELS_MAX ((size_t)1 << 20)
/** Retries of a failed load that has no caller. */
#define MR_RETRIES_MAX 10u

struct mr_job;
struct mr_model_table;

/** A label as requests see it. */
struct mr_set_label {
    mr_str name;
    int64_t number;
};

/** The versions of a model as requests see them. Immutable; replaced as a whole. */
struct mr_version_set {
    uint32_t ready_count;
    uint32_t known_count;
    uint32_t label_count;
    struct mr_version *default_version; /* for requests without version, NULL = none is ready */
    const int64_t *known;               /* ascending: numbers that exist, but are not ready */
    const struct mr_set_label *labels;
    struct mr_version *ready[]; /* ascending by number */
};

/** The record of one version number. */
struct mr_version_record {
    int64_t number;
    enum mr_version_state state;
    char *given;   /* as mr_model_report.given, NULL = by its number */
    char *reason;  /* NULL = none */
    char *warning; /* NULL = none: why the last reload failed while the version goes on */
    int64_t since_wall_ns;
    int64_t load_ns;
    uint64_t file_bytes;
    uint64_t model_bytes;
    uint64_t failed_fingerprint; /* of files that failed to load, recorded requests too; 0 = none */
    char *config_json; /* of the load request that it serves with, NULL = the repository's */
    size_t config_len;
    struct mr_version *v; /* READY, or DRAINING and not taken apart yet */
    bool is_wanted;       /* should be ready */
    bool has_failed;      /* its last load that has ended did */
};

struct mr_version_label {
    char *name;
    int64_t number;
};
struct mr_label_list {
    struct mr_version_label *at;
    size_t len;
    size_t cap;
};

/** One load of one version number, from its beginning to its end. */
struct mr_load_entry {
    struct mr_loading loading; /* written by the backend without a lock */
    const struct mr_models *m;
    const struct mr_job *job; /* its load, NULL = the load has ended */
    int64_t number;
    enum mr_version_state state;
    char *reason;       /* NULL = none */
    int64_t entered_ns; /* when it entered its state */
    int64_t entered_wall_ns[MR_VERSION_STATES];
    int64_t spent_ns[MR_VERSION_STATES]; /* in the states that it has left */
    uint64_t file_bytes;
    uint64_t model_bytes;
    int64_t release_ns;
    struct mr_memory_view memory; /* from READY on */
    char *memory_reason;          /* NULL = none */
};

struct mr_model {
    mr_str name; /* NUL-terminated */
    uint64_t hash;
    _Atomic(const struct mr_version_set *) set;
    _Atomic(struct mr_version_private *) held; /* replaced, and still with sequences; see held.c */
    /* ---- guarded by lock ---- */
    MR_VEC(struct mr_version_record) records;    /* ascending by number */
    MR_VEC(struct mr_load_entry *) load_history; /* as they began */
    struct mr_label_list labels;
    char *labels_given; /* labels of the configuration that was applied last, NULL = none */
    int64_t pinned;     /* default version by a rollback, 0 = none: the newest is */
    /* Of the files for which a load request's config holds, 0 = none. */
    uint64_t override_fingerprint;
    char *error; /* why the model as a whole did not load, NULL = it did, or was not asked to */
    int64_t error_wall_ns;
    struct mr_job *current;       /* queued or running, NULL = none */
    struct mr_job *retry;         /* a failed load that will be tried again */
    struct mr_job *waiting_first; /* jobs after the current one */
    struct mr_job *waiting_last;
    size_t draining; /* retired versions not yet closed */
    bool is_in_table;
    bool is_desired;     /* its load was requested, and no unload since */
    bool is_in_folder;   /* had a folder at the last scan */
    bool counts_unready; /* is in mr_models.unready */
    /* Of a graph: the models that it asks, by the configuration that was read last. */
    MR_VEC(char *) members;
    bool is_unload_due; /* a client has unloaded it, and a graph that serves asks it */
};

/** A version with what only this module needs of it. */
struct mr_version_private {
    struct mr_version v;
    struct mr_arena arena; /* all small memory of the version */
    Inference__ModelConfig *config;
    struct mr_temp_dir *temp; /* files of a load request, NULL = those of the repository */
    struct archive_repository *archive; /* with its files, NULL = none */
    struct mr_cache_ref *environment;   /* of its interpreter, NULL = none of the cache */
    uint64_t fingerprint;               /* of files and config that it was made from */
    struct mr_load_entry *entry;        /* guarded by lock, except mr_load_entry_is_unwanted */
    bool is_served;
    bool is_held; /* in the model's list of held ones; guarded by lock */
    _Atomic(struct mr_version_private *) held_next;
    struct mr_version_private *next; /* list of retired ones */
};

/** Memory that readers may still see. */
struct mr_model_retired {
    struct mr_model_retired *next;
    void *ptr;
    void (*release)(void *ptr);
};

/** One state change on its way to hooks.changed. */
struct mr_model_change {
    struct mr_model_change *next;
    char *name;
    char *reason;
    struct mr_version_change reported; /* without its texts */
};

struct mr_model_backend {
    struct mr_model_backend *next;
    char *name;
    struct mr_plugin *plugin; /* NULL while one thread opens it */
};

struct mr_job_queue {
    struct mr_job *first;
    struct mr_job *last;
};

struct mr_models {
    /* ---- constant after mr_models_new ---- */
    struct mr_models_options o; /* deep copy in `memory` */
    struct mr_arena memory;
    struct mr_model_hooks hooks;
    struct mr_epoch epoch;
    struct mr_cache *cache;
    struct archives *archives;
    const char *const
        *urls; /* of archives among the repositories of the options, which have them no more */
    size_t url_count;
    /* ---- read by requests ---- */
    _Atomic(struct mr_model_table *) table;
    _Atomic int64_t unready; /* models that keep the server unready */
    /* [o.repository_count] Repositories that are missing since the start. */
    _Atomic bool *is_missing;
    _Atomic size_t missing_count;
    _Atomic bool has_mlserver; /* some version had mr_version.has_messages or reads_matrix */
    _Atomic bool
        has_routes; /* some version of these has handlers of its own (mr_models_find_route) */
    _Atomic bool is_stopping;
    /* ---- guarded by backends_lock ---- */
    pthread_mutex_t backends_lock;
    pthread_cond_t backend_opened;
    struct mr_model_backend *backends;
    /* NULL until a model runs in processes; read without the lock */
    _Atomic(struct mr_sentinel *) sentinel;
    /* ---- guarded by lock ---- */
    pthread_mutex_t lock;
    struct mr_map models; /* name -> struct mr_model; more than the table has */
    size_t table_live;    /* models in the table */
    size_t table_used;    /* its slots that are not empty */

    pthread_cond_t work;       /* loaders: a job, a free place, or quit */
    struct mr_job_queue loads; /* loads and syncs: a limited number at once */
    struct mr_job_queue quick; /* all other jobs: at once */
    struct mr_job *retries;    /* by due_ns */
    size_t loads_running;      /* without those that have left their place */
    size_t loads_held;         /* threads that have a load */
    size_t loads_asking;       /* of these, those that wait for loads of other models */
    uint64_t jobs_made;
    int64_t trim_ns; /* when to return free pages of the heap; INT64_MAX: no job since */
    bool is_started;
    bool is_submitting;      /* the loads of the start are being queued */
    struct mr_job *deferred; /* loads of graphs that wait for others; see members.c */
    size_t deferred_count;
    size_t graph_count;  /* models with members */
    size_t jobs_open;    /* queued, waiting or running */
    pthread_cond_t idle; /* jobs_open or draining went down */
    bool quit;

    pthread_cond_t reap; /* reaper: something retired */
    struct mr_model_retired *retired;
    struct mr_version_private *retired_versions;
    size_t draining;

    pthread_cond_t reported; /* changes_reported went up */
    struct mr_model_change *changes_first;
    struct mr_model_change *changes_last;
    uint64_t changes_queued;
    uint64_t changes_reported;
    bool is_telling;

    struct mr_load_totals totals;
    size_t measures_running;
    uint64_t measures_begun;
    uint64_t reserved_bytes;   /* for versions that are being opened */
    struct mr_name_list names; /* folders, sorted */
    int64_t names_ns;          /* when they were read, 0 = never */

    /* ---- threads ---- */
    pthread_t *loaders;
    size_t loader_count;
    pthread_t reaper;
    bool has_reaper;
    struct mr_model_watch *watch;
};

static inline struct mr_version_private *mr_version_private_of(struct mr_version *v)
{
    return v->load_private;
}

/* ---- table.c ---- */
void mr_table_init(struct mr_models *m);
void mr_table_fini(struct mr_models *m);
/** Thread: online reader, or any that holds lock. */
struct mr_model *mr_table_find(const struct mr_models *m, mr_str name);
/** Lock held. */
void mr_table_add(struct mr_models *m, struct mr_model *model);
void mr_table_remove(struct mr_models *m, struct mr_model *model);
/** Lock held: publishes a set of versions that is equal to the model's records. */
void mr_table_publish(struct mr_models *m, struct mr_model *model);
/** Lock held: frees `ptr` once no reader can hold it. */
void mr_retire_memory(struct mr_models *m, void *ptr, void (*release)(void *ptr));

/* ---- records.c (lock held unless said otherwise) ---- */
/** The model of that name, made if there is none. NULL: there are MR_MODELS_MAX. */
struct mr_model *mr_model_get(struct mr_models *m, mr_str name);
/** Forgets a model without records, jobs and draining versions. */
void mr_model_forget_if_empty(struct mr_models *m, struct mr_model *model);
/** No lock: frees a model that is in no table any more. */
void mr_model_free(void *model);
struct mr_version_record *mr_record_find(struct mr_model *model, int64_t number);
struct mr_version_record *mr_record_get(struct mr_model *model, int64_t number);
void mr_record_remove(struct mr_model *model, size_t index);
/** Sets state and reason ("" = none) and queues the change for the hook. */
void mr_record_set(struct mr_models *m, struct mr_model *model, struct mr_version_record *r,
                   enum mr_version_state state, const char *reason);
/** Records a failed reload of a version that serves. */
void mr_record_warn(struct mr_models *m, struct mr_model *model, struct mr_version_record *r,
                    const char *warning);
/** Sets the failure of the model as a whole. NULL: it did not fail; its versions have their own reasons. */
void mr_model_set_error(struct mr_models *m, struct mr_model *model, const char *reason);
/** Clears the failure of a model that was unloaded. */
void mr_model_clear_error(struct mr_models *m, struct mr_model *model);
/** To be called after any change of records: adjusts m->unready. */
void mr_model_count_unready(struct mr_models *m, struct mr_model *model);
/* ---- load_history.c (lock held) ---- */
struct mr_load_entry *mr_load_entry_begin(struct mr_models *m, struct mr_model *model,
                                          const struct mr_job *job, int64_t number,
                                          uint64_t file_bytes);
/** Sets the memory of a version that was made, by its backend and by measurement. */
void mr_load_entry_memory(struct mr_load_entry *l, const struct mr_executor *executor,
                          int64_t grown_bytes);
/** No lock: true if the load was cancelled. */
bool mr_load_entry_is_unwanted(const struct mr_load_entry *l);
/** Enters another state. After UNLOADED and FAILED the entry is no longer the caller's. */
void mr_load_entry_set(struct mr_models *m, struct mr_model *model, struct mr_load_entry *l,
                       enum mr_version_state state, const char *reason);
/** The last entry to begin, NULL = none is known. */
const struct mr_load_entry *mr_load_entry_latest(const struct mr_model *model, int64_t number);
/** Time in each state, until now. */
void mr_load_entry_spent(const struct mr_load_entry *l, int64_t out_ns[MR_VERSION_STATES]);
void mr_load_history_free(struct mr_model *model);

/** Lock not held: calls the hook for each change queued so far, in order, and returns when all are
 *  reported. */
void mr_changes_report(struct mr_models *m);

/* ---- jobs.c ---- */
enum mr_job_kind {
    MR_JOB_LOAD, /* load or reload; retries what failed before */
    MR_JOB_SYNC, /* poll mode: follow the folder; skips versions that failed and did not change */
    MR_JOB_UNLOAD,
    MR_JOB_CHECK, /* compares the folder with what the load in progress has read */
    MR_JOB_ANSWER /* only calls done */
};

/** A version folder that watch.c found at rest. */
struct mr_settled_version {
    int64_t number;
    uint64_t sum;
};

struct mr_job_file {
    char *path;
    uint8_t *data;
    size_t len;
};

struct mr_job {
    struct mr_job *next;
    struct mr_model *model; /* NULL with MR_JOB_ANSWER only */
    enum mr_job_kind kind;
    char *config_json; /* NULL = the repository's */
    size_t config_len;
    struct mr_job_file *files;
    size_t file_count;
    struct mr_settled_version *settled; /* MR_JOB_SYNC */
    size_t settled_count;
    uint64_t settled_shared;           /* fingerprint of the rest of the folder */
    struct mr_settled_version *making; /* running MR_JOB_SYNC: what it makes; guarded by lock */
    size_t making_count;
    size_t latest;               /* number of newest versions that are wanted, SIZE_MAX = others */
    bool is_first;               /* part of the start */
    uint64_t id;                 /* unique */
    bool is_running;             /* guarded by lock */
    bool has_place;              /* counted in loads_running */
    _Atomic bool is_cancelled;   /* by a newer request for the model */
    uint64_t folder_fingerprint; /* of the folder that it read, 0 = none yet; guarded by lock */
    uint64_t checks_id;          /* MR_JOB_CHECK: id of the load in progress */
    char *checks_name;           /* MR_JOB_CHECK */
    bool is_hopeless;            /* it would fail again */
    uint32_t tries;              /* failures before */
    int64_t due_ns;              /* of a retry */
    char *path, *type;           /* of mr_models_place; NULL: where it is */
    bool is_rollback;
    bool is_remote;  /* of mr_models_remote: the configuration and the files are the server's own */
    bool dependents; /* MR_JOB_UNLOAD: with the models that only it asks */
    bool is_deferred;   /* waits for loads of others; guarded by lock */
    bool has_asked;     /* for its members to be loaded */
    bool waits_no_more; /* whatever its members do */
    int64_t back_to;    /* a rollback's version, 0 = the one before */
    int answer;
    struct mr_err err;
    mr_models_done_fn *done;
    void *ctx;
};

int mr_jobs_start(struct mr_models *m, struct mr_err *err);
/** Whether the loads of the start are being queued: those of graphs wait until all are. Thread: boot. */
void mr_jobs_submitting(struct mr_models *m, bool is_on);
/** Threads end when the queue is empty. */
void mr_jobs_join(struct mr_models *m);
struct mr_job *mr_job_new(enum mr_job_kind kind, mr_models_done_fn *done, void *ctx);
/** Queues a job for the model of that name; takes the job. Thread: any. */
void mr_job_submit(struct mr_models *m, struct mr_job *job, mr_str name);
/** True if the job was cancelled by a newer request, or the server stops. Thread: any. */
bool mr_job_is_unwanted(const struct mr_models *m, const struct mr_job *job);
/** Both with the lock held: a load that waits leaves its place to other loads, and takes one again. */
void mr_load_place_leave(struct mr_models *m);
void mr_load_place_take(struct mr_models *m, const struct mr_job *job);
/** MR_OK in mode explicit, in which clients may load and unload. Otherwise the error begins with `what`, names mode and
 *  option, and ends with `instead`, the alternative in mode poll (NULL: none). Errors: MR_E_UNAVAILABLE. */
int mr_control_check(const struct mr_models *m, const char *what, const char *instead,
                     struct mr_err *err);
/** Waits until no job is open, or until the deadline (monotonic). False: the deadline has passed. */
bool mr_jobs_wait(struct mr_models *m, int64_t deadline_ns);

/* ---- placed.c (Thread: loader) ---- */
/** Whether a load request may name this address. Errors: MR_E_FORBIDDEN, MR_E_INVALID. Thread: any. */
int mr_url_check(const struct mr_models *m, mr_str url, struct mr_err *err);
/** Makes the model of a job with a path, and loads it. Errors: those of mr_models_place. */
int mr_place_run(struct mr_models *m, struct mr_job *job, struct mr_err *err);
/** Takes a placed model away; does nothing if there is none. */
void mr_displace(struct mr_models *m, mr_str name);

/* ---- measure.c (Thread: loader, reaper; takes the lock) ---- */
struct mr_measure {
    uint64_t before;
    uint64_t begun;
    bool is_alone;
};
void mr_measure_begin(struct mr_models *m, struct mr_measure *x);
/** Growth of the process since mr_measure_begin, or MR_MEMORY_UNKNOWN. */
int64_t mr_measure_end(struct mr_models *m, const struct mr_measure *x);

/* ---- admit.c (Thread: loader) ---- */
/** Reserves memory for a version whose files have file_bytes. *out_reserved is to be passed to mr_admit_end when the version
 *  is open or has failed. Errors: MR_E_EXHAUSTED, with figures. */
int mr_admit(struct mr_models *m, const struct mr_model *model, uint64_t file_bytes,
             uint64_t *out_reserved, struct mr_err *err);
void mr_admit_end(struct mr_models *m, uint64_t reserved);

/* ---- retry.c (lock held) ---- */
/** True: the failed job was kept for a retry, and is no longer the caller's. */
bool mr_retry_keep(struct mr_models *m, struct mr_job *job);
/** The next job that is due; NULL = none. *out_next_ns: when the next one is due. */
struct mr_job *mr_retry_due(struct mr_models *m, int64_t *out_next_ns);
/** Takes the retry of a model that is loaded or unloaded again. NULL: it has none. */
struct mr_job *mr_retry_drop(struct mr_models *m, struct mr_model *model);

/** A retry of this model is due now. */
void mr_retry_now(struct mr_models *m, struct mr_model *model);

/* ---- members.c ---- */
struct mr_load;
/** Notes the models that a graph asks, and asks for those to be loaded where the mode wants that. True: its load has to wait
 *  for others, and ends with MR_PENDING. Thread: loader. */
bool mr_members_wait(struct mr_load *l);
/** Lock held: keeps a load that waits. */
void mr_members_defer(struct mr_models *m, struct mr_job *job);
/** Lock held: takes it out. */
void mr_members_take(struct mr_models *m, struct mr_job *job);
/** Lock held: takes one out that waits no longer; NULL: there is none. */
struct mr_job *mr_members_next(struct mr_models *m);
/** Lock held: a model is ready, and failed loads of graphs that ask it are worth another try. */
void mr_members_hasten(struct mr_models *m, const struct mr_model *ready);
/** Lock held. */
void mr_members_clear(struct mr_model *model);
/** Errors: MR_E_INTERNAL, a graph that serves asks the model. Thread: loader. */
int mr_members_check_unload(struct mr_models *m, struct mr_model *model, struct mr_err *err);
/** A graph was unloaded: unloads what it asked and no other graph asks, if that was wanted. Takes job->done if so. Thread:
 *  loader. */
void mr_members_unload(struct mr_models *m, struct mr_job *job);

/* ---- load.c and publish.c (Thread: loader) ---- */
/** Fingerprint of a model's folder in all repositories, never 0. Thread: any; blocks. */
uint64_t mr_load_folder_fingerprint(struct mr_models *m, mr_str name);
int mr_load_run(struct mr_models *m, struct mr_job *job, struct mr_err *err);
int mr_unload_run(struct mr_models *m, struct mr_model *model, struct mr_err *err);
/** Lock held: takes a version out of service; the reaper closes it. The caller publishes afterwards. */
void mr_version_retire(struct mr_models *m, struct mr_model *model, struct mr_version *v);

/* ---- version.c (Thread: loader, reaper) ---- */
struct mr_version_source {
    struct mr_model *model;
    const struct mr_folder *folder;
    const struct mr_folder_version *version;
    const Inference__ModelConfig *config; /* as parsed */
    bool has_max_batch;                   /* the config gives max_batch_size */
    bool is_requested;                    /* the config or the files came with a load request */
    bool warn;                            /* log settings without effect */
    struct mr_temp_dir *temp;             /* NULL = none */
    uint64_t fingerprint;
    struct mr_load_entry *entry;
    bool in_background; /* other versions serve during the load */
};
/** Opens the model and prepares it for hooks.serve. Blocks as long as the backend does. */
int mr_version_open(struct mr_models *m, const struct mr_version_source *s,
                    struct mr_version_private **out, struct mr_err *err);
/** Makes the version again with max_batch_size 0 instead of the completed one, unless the config's dims do not
 *  allow that. It must not be served. */
int mr_version_unbatch(struct mr_models *m, const struct mr_version_source *s,
                       struct mr_version_private *p, struct mr_err *err);
/** Calls hooks.unserve if it was served, closes the model and frees it. No other reference may exist. */
void mr_version_close(struct mr_models *m, struct mr_version_private **p);

/* ---- held.c ---- */
/** Lock held: v retires because another takes its place. */
void mr_held_add(struct mr_models *m, struct mr_model *model, struct mr_version *v);
enum mr_held {
    MR_HELD_NOT,
    MR_HELD_UNTIL_NOW, /* readers may have found it until now, but find it no more */
    MR_HELD_STILL
};
/** Whether a retired version has to stay; lets go of it when it need not. Thread: reaper. */
enum mr_held mr_held_check(struct mr_models *m, struct mr_version_private *p);

/* ---- version_labels.c ---- */
/** True for a letter or '_', followed by letters, digits and "_-.". */
bool mr_label_is_name(mr_str s);
/** "stable=3,canary=4" */
int mr_label_list_parse(mr_str text, struct mr_label_list *out, struct mr_err *err);
void mr_label_list_fini(struct mr_label_list *list);
/** Lock held, as for those below: true if that version has a label and keeps it when `next` is the configuration's list.
 *  NULL: the list does not change. */
bool mr_labels_keep(const struct mr_model *model, const struct mr_label_list *next, int64_t number);
/** True if the labels of a configuration, by their text (NULL: none), differ from those that were applied last. */
bool mr_labels_are_new(const struct mr_model *model, const char *given);
/** Applies the labels of `list`, and removes those that only the previous configuration had. All or none: not before
 *  all versions that they name are ready. given: the text of `list`, NULL = none. */
void mr_labels_take(struct mr_model *model, const struct mr_label_list *list, const char *given);
/** Removes the labels of a version that is gone. */
void mr_labels_drop(struct mr_model *model, int64_t number);
void mr_labels_clear(struct mr_model *model);

/* ---- labels.c ---- */
int mr_labels_read(struct mr_arena *arena, const char *path, const mr_str **out, size_t *out_count,
                   struct mr_err *err);

/* ---- placement.c ---- */
enum mr_placement { MR_PLACEMENT_THREAD, MR_PLACEMENT_PROCESS };
/** Errors: MR_E_INVALID (no such placement). */
int mr_placement_of(const struct mr_models *m, const Inference__ModelConfig *c,
                    enum mr_placement *out, struct mr_err *err);
/** Errors: MR_E_INVALID (an option). */
int mr_placements_check(const struct mr_models_options *o, struct mr_err *err);
/** The one that starts worker processes; made at the first use. Errors: MR_E_EXHAUSTED, MR_E_NOMEM. */
int mr_models_sentinel(struct mr_models *m, struct mr_sentinel **out, struct mr_err *err);

/* ---- backends.c ---- */
/** Opens a model in its backend, here or in a worker process, as the version's executor. Blocks. Errors: those of mr_plugin_model_open and
 *  mr_sentinel_model_open. */
int mr_backend_model_open(struct mr_models *m, const Inference__ModelConfig *c,
                          enum mr_placement placement, const struct mr_model_desc *desc,
                          struct mr_version_private *p, struct mr_err *err);
/** Checks that all backends that options name exist; a missing one of Triton's is only a warning. Errors:
 *  MR_E_INVALID. Thread: boot. */
int mr_backends_check(const struct mr_models_options *o, struct mr_err *err);
bool mr_backend_is_open(struct mr_models *m, const char *name);
void mr_backends_close(struct mr_models *m);

/* ---- backend_choice.c (Thread: loader) ---- */
/** MR_OK if a load request may choose this backend by its configuration or files. Errors: MR_E_FORBIDDEN. */
int mr_backend_may_choose(struct mr_models *m, const char *name, struct mr_err *err);

/* ---- reap.c ---- */
int mr_reaper_start(struct mr_models *m, struct mr_err *err);
void mr_reaper_join(struct mr_models *m);
void mr_retired_free(struct mr_model_retired *list);

/* ---- names.c ---- */
/** A repository, or an archive in one, which stands beside it. */
struct mr_repository {
    const char *path;                   /* NULL: an archive that cannot be used */
    const char *const *links;           /* where its links may lead */
    struct archive_repository *archive; /* NULL = none */
};
/** All repositories that count, with their archives. */
struct mr_repository_list {
    struct mr_repository *at;
    size_t len;
    struct archive_list archives; /* that `at` refers to */
};
void mr_repositories_get(struct mr_models *m, struct mr_repository_list *out);
void mr_repositories_fini(struct mr_repository_list *list);
/** Reads a model's folder of one of them. Errors: as mr_folder_read, and those of the archive for the model that has its
 *  name. */
int mr_repository_read(struct mr_folder *f, const struct mr_models *m,
                       const struct mr_repository *r, mr_str name, mr_folder_visit_fn *visit,
                       void *ctx, struct mr_err *err);
/** Whether the repository counts: false while it has been missing ever since the start; checked
 *  each time, but in mode none. Thread: any; blocks when it is missing. */
bool mr_repository_counts(struct mr_models *m, size_t i);
/** Reads the folder names again, unless they were read less than max_age_ns ago. Thread: any;
 *  blocks. */
int mr_names_refresh(struct mr_models *m, int64_t max_age_ns, struct mr_err *err);

/* ---- watch.c ---- */
/** Poll mode's first load: queue a job with `done` for each model, after the folders have come to
 *  rest. Errors: MR_E_IO, a repository that cannot be read. */
int mr_watch_first(struct mr_models *m, mr_models_done_fn *done, void *ctx, struct mr_err *err);
/** From now on by itself. */
int mr_watch_start(struct mr_models *m, struct mr_err *err);
void mr_watch_stop(struct mr_models *m);

#endif
