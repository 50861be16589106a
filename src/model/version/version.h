/* One version: its backend, signature, complete configuration, inputs and outputs. Thread: loader, reaper. */
#ifndef MR_MODEL_VERSION_H
#define MR_MODEL_VERSION_H

#include "model/records/load_history.h"

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
/** Calls hooks.unserve if it is served. It gets no more requests and has no pins. */
void mr_version_unserve(struct mr_models *m, struct mr_version_private *p);
/** Unserves the version if it is served, closes the model and frees it. No other reference may exist. */
void mr_version_close(struct mr_models *m, struct mr_version_private **p);

#endif
