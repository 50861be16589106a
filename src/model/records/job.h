/* One load or unload: what it is to do, whether it is still wanted, and its place among those that run. */
#ifndef MR_MODEL_JOB_H
#define MR_MODEL_JOB_H

#include "state.h"

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
    uint64_t publishes;          /* that of the manager when it began */
    uint32_t asks;               /* loads of other models that it waits for; guarded by lock */
    bool has_place;              /* counted in loads_running; guarded by lock */
    _Atomic bool is_cancelled;   /* by a newer request for the model */
    uint64_t folder_fingerprint; /* of the folder that it read, 0 = none yet; guarded by lock */
    uint64_t checks_id;          /* MR_JOB_CHECK: id of the load in progress */
    char *checks_name;           /* MR_JOB_CHECK */
    bool is_hopeless;            /* it would fail again */
    bool is_retry;               /* it was taken from the list of retries, as it was due */
    bool is_early;     /* MR_JOB_SYNC: left to the retry that it replaces; guarded by lock */
    int64_t due_ns;    /* of a retry */
    char *path, *type; /* of mr_models_place; NULL: where it is */
    bool is_rollback;
    bool is_remote;  /* of mr_models_remote: the configuration and the files are the server's own */
    bool dependents; /* MR_JOB_UNLOAD: with the models that only it asks */
    bool is_deferred; /* waits for loads of others; guarded by lock */
    unsigned asked;   /* times that it has asked for its members to be loaded */
    /* Not for loads of others, but until no ensemble that goes with the model serves; guarded by lock. */
    bool waits_for_users;
    /* Nor for those, but until no graph that asks the model is being opened; guarded by lock. */
    bool waits_for_graphs;
    /* A load of a graph: its members are there, and stay until it is opened; guarded by lock. */
    bool is_opening;
    bool waits_no_more;  /* whatever they do */
    bool is_for_member;  /* MR_JOB_UNLOAD: of an ensemble, because of what it asks */
    bool has_ended_load; /* and a load of it was under way, which is done again */
    /* MR_JOB_LOAD: of an ensemble that was unloaded so; waits until something that it asks is ready. */
    bool is_return;
    int64_t back_to; /* a rollback's version, 0 = the one before */
    int answer;
    struct mr_err err;
    mr_models_done_fn *done;
    void *ctx;
};

struct mr_job *mr_job_new(enum mr_job_kind kind, mr_models_done_fn *done, void *ctx);
/** True if the job was cancelled by a newer request, or the server stops. Thread: any. */
bool mr_job_is_unwanted(const struct mr_models *m, const struct mr_job *job);
/** Lock held: each open job waits for another one. */
bool mr_jobs_are_stuck(const struct mr_models *m);
/** Lock held: loads that may run at once. */
size_t mr_load_places(const struct mr_models *m);
/** Both with the lock held: a load that waits leaves its place to other loads, and takes one again. */
void mr_load_place_leave(struct mr_models *m, struct mr_job *job);
void mr_load_place_take(struct mr_models *m, struct mr_job *job);
/** MR_OK in mode explicit, in which clients may load and unload. Otherwise the error begins with `what`, names mode and
 *  option, and ends with `instead`, the alternative in mode poll (NULL: none). Errors: MR_E_UNAVAILABLE. */
int mr_control_check(const struct mr_models *m, const char *what, const char *instead,
                     struct mr_err *err);

#endif
