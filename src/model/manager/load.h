/* One load: from a folder to its configuration and its versions. Thread: loader. */
#ifndef MR_MODEL_LOAD_H
#define MR_MODEL_LOAD_H

#include "model/records/job.h"
#include "model/records/load_history.h"

/* A version that this load makes. */
struct mr_fresh {
    const struct mr_folder_version *from;
    uint64_t fingerprint;
    struct mr_version_private *made;
    struct mr_load_entry *entry;
    int64_t began_ns;
    int64_t grown_bytes; /* growth of the process while it was made */
    char *reason;        /* why it failed */
};

struct mr_load {
    struct mr_models *m;
    struct mr_job *job;
    struct mr_model *model;
    struct mr_err *err;
    struct mr_folder folder;
    struct mr_temp_dir *temp;
    /* JSON of this load request or of an earlier one, owned by the job or `kept`; NULL = the folder's configuration
     * holds. */
    const char *config_json;
    size_t config_len;
    char *kept;
    Inference__ModelConfig *config;
    bool has_max_batch;
    uint64_t config_fingerprint;
    bool *is_wanted;          /* [folder.versions.len] */
    size_t latest;            /* number of newest versions in the policy, SIZE_MAX = others */
    bool labels_are_new;      /* the configuration's labels have changed */
    const char *labels_given; /* their text, NULL = none */
    struct mr_label_list labels;
    int64_t pin; /* version of a rollback, 0 = no rollback */
    MR_VEC(struct mr_fresh) fresh;
};

/** Fingerprint of all files of the model without recorded requests; never 0. */
uint64_t mr_load_files_fingerprint(const struct mr_load *l);
/** Fingerprint of a model's folder in all repositories, never 0. Thread: any; blocks. */
uint64_t mr_load_folder_fingerprint(struct mr_models *m, mr_str name);
/** The configuration or the files came with a client's request: it does not choose which hosts this server connects to. */
bool mr_load_is_requested(const struct mr_load *l);
int mr_load_run(struct mr_models *m, struct mr_job *job, struct mr_err *err);

#endif
