/* Names, models and ready versions as requests see them, without locks. */
#ifndef MR_MODEL_TABLE_H
#define MR_MODEL_TABLE_H

#include "state.h"

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

#endif
