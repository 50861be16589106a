/* The outcome of each load, with times. The lock is held unless said otherwise. */
#ifndef MR_MODEL_LOAD_HISTORY_H
#define MR_MODEL_LOAD_HISTORY_H

#include "state.h"

/** One load of one version number, from its beginning to its end. */
struct mr_load_entry {
    struct mr_loading loading; /* written by the backend without a lock */
    const struct mr_models *m;
    struct mr_job *job; /* its load, NULL = the load has ended */
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

struct mr_load_entry *mr_load_entry_begin(struct mr_models *m, struct mr_model *model,
                                          struct mr_job *job, int64_t number, uint64_t file_bytes);
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

#endif
