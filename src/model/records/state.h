/* The state of the manager: its models, their versions and jobs. Its functions are in the headers beside it, in model/version and
 * in model/manager.
 *
 * Locks. `lock` guards everything below its line in struct mr_models and everything marked so in
 * struct mr_model. It is held for list operations, the callbacks of a report and what looks at the sequences of a version
 * (mr_models_visit_others, the hooks `holds` and `hasten`), never over file access, another hook, or a call into a backend.
 * `backends_lock` guards the list of libraries.
 * Neither is taken while the other is held. Requests take none. */
#ifndef MR_MODEL_STATE_H
#define MR_MODEL_STATE_H

#include <pthread.h>

#include "base/arena.h"
#include "base/vec.h"
#include "measure.h"
#include "model/folder/folder.h"
#include "model/model.h"
#include "version_labels.h"

struct mr_job;
struct mr_load_entry;
struct mr_model_backend;
struct mr_model_change;
struct mr_model_table;
struct mr_version_set;

/** Limit of names in one server, against a client that loads ever new ones. */
#define MR_MODELS_MAX ((size_t)1 << 20)
/** Retries of a failed load that has no caller. */
#define MR_RETRIES_MAX 10u

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

struct mr_model {
    mr_str name; /* NUL-terminated */
    uint64_t hash;
    _Atomic(const struct mr_version_set *) set;
    _Atomic uint32_t ready_count;              /* of the set, for threads that may not read it */
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
    uint32_t tries;               /* failed ones in a row; above 0 while another one is planned */
    int64_t retry_ns;             /* when that is due */
    struct mr_job *waiting_first; /* jobs after the current one */
    struct mr_job *waiting_last;
    size_t draining; /* retired versions not yet closed */
    bool is_in_table;
    bool is_desired;     /* its load was requested, and no unload since */
    bool is_in_folder;   /* had a folder at the last scan */
    bool counts_unready; /* is in mr_models.unready */
    /* Of a graph: the models that it asks, by the configuration that was read last, which need not be the one that serves. */
    MR_VEC(char *) members;
    bool is_graph;      /* it is counted in mr_models.graph_count */
    bool is_unload_due; /* a client has unloaded it, and a graph that serves asks it */
};

/** What freeing a version's resources has taken and given back, in parts. */
struct mr_release {
    int64_t ns;
    int64_t bytes; /* or MR_MEMORY_UNKNOWN */
    /* of the part that goes on */
    int64_t begin_ns;
    struct mr_measure measure;
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
    bool is_served;                     /* hooks.serve was called, and hooks.unserve was not */
    bool is_held;                       /* in the model's list of held ones; guarded by lock */
    bool is_ending;                     /* nothing is asked of it any more. Thread: reaper */
    bool was_shown;                     /* a record showed it when that began. Thread: reaper */
    struct mr_release release;          /* so far. Thread: reaper */
    _Atomic(struct mr_version_private *) held_next;
    struct mr_version_private *next; /* list of retired ones */
};

/** Memory that readers may still see. */
struct mr_model_retired {
    struct mr_model_retired *next;
    void *ptr;
    void (*release)(void *ptr);
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
    /* of archives among the repositories of the options, which have them no more */
    const char *const *urls;
    size_t url_count;
    /* ---- read by requests ---- */
    _Atomic(struct mr_model_table *) table;
    _Atomic int64_t unready; /* models that keep the server unready */
    /* [o.repository_count] Repositories that are missing since the start. */
    _Atomic bool *is_missing;
    _Atomic size_t missing_count;
    _Atomic bool has_mlserver; /* some version had mr_version.has_messages or reads_matrix */
    /* some version of these has handlers of its own (mr_models_find_route) */
    _Atomic bool has_routes;
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
    uint64_t jobs_made;
    uint64_t publishes; /* loads that have ended well */
    int64_t trim_ns;    /* when to return free pages of the heap; INT64_MAX: no job since */
    bool is_started;
    bool is_submitting;      /* the loads of the start are being queued */
    struct mr_job *deferred; /* loads of graphs that wait for others; see members.c */
    size_t deferred_count;
    size_t graph_count;    /* models that are a graph, or were */
    size_t jobs_open;      /* queued, waiting or running */
    size_t jobs_waiting;   /* of these, those that come after another one of their model */
    size_t jobs_asking;    /* of these, loads that wait for loads which they have asked for */
    size_t asks_beginning; /* loads that are being asked for, and are not among these yet */
    pthread_cond_t idle;   /* jobs_open or draining went down */
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

#endif
