/* A load under way: what load.c finds and makes, and publish.c ends. */
#ifndef MR_MODEL_LOAD_H
#define MR_MODEL_LOAD_H

#include "manager.h"

/* A version that this load makes. */
struct mr_fresh {
    const struct mr_folder_version *from;
    uint64_t fingerprint;
    struct mr_version_private *made;
    struct mr_load_entry *entry;
    int64_t began_ns;
    int64_t grown_bytes; /* the process, while it was made */
    char *reason;        /* why it failed */
};

struct mr_load {
    struct mr_models *m;
    struct mr_job *job;
    struct mr_model *model;
    struct mr_err *err;
    struct mr_folder folder;
    struct mr_temp_dir *temp;
    /* JSON of a load request, this or an earlier one, NULL = the folder's configuration holds; the
     * job's, or `kept`. */
    const char *config_json;
    size_t config_len;
    char *kept;
    Inference__ModelConfig *config;
    bool has_max_batch;
    uint64_t config_fingerprint;
    bool *is_wanted;          /* [folder.versions.len] */
    size_t latest;            /* so many of the newest does the policy name, SIZE_MAX = others */
    bool labels_are_new;      /* the configuration says something else of labels than before: … */
    const char *labels_given; /* … this, NULL = nothing, … */
    struct mr_label_list labels; /* … which means these */
    int64_t pin;                 /* what a rollback goes back to, 0 = no rollback */
    MR_VEC(struct mr_fresh) fresh;
};

/** All files of the model, without recorded requests, in one number; never 0. */
uint64_t mr_load_files_fingerprint(const struct mr_load *l);
/** Switch policy `resource`: what the load replaces or leaves out ends before anything is made.
 *  Errors: MR_E_DEADLINE (its requests do not end), MR_E_UNAVAILABLE. */
int mr_load_retire_first(struct mr_load *l, struct mr_err *err);
/** Everything was made: show it to requests, all at once, and retire what it replaces. False: nobody
 *  wants it any more; nothing was done. */
bool mr_load_publish(struct mr_load *l);
/** Some version failed: what this load made is taken back, what served goes on. */
void mr_load_take_back(struct mr_load *l);
/** The load failed before it came to versions. */
void mr_load_fail(struct mr_load *l, const char *reason);
/** Requests find the model, also when it has no version: it has no available versions then. */
void mr_load_show(struct mr_load *l);

#endif
