/* Small tools for the generated ModelConfig structs, shared by the config_*.c files.
 *
 * The structs are protobuf-c's: strings and arrays are heap blocks that the runtime frees, which is
 * why everything put into them comes from mr_alloc (plain malloc memory). */
#ifndef MR_MODEL_CONFIG_PRIV_H
#define MR_MODEL_CONFIG_PRIV_H

#include "model/config.h"

/** Largest configuration text. */
#define MR_CONFIG_MAX_BYTES ((size_t)1 << 20)

/** Replace a string field. */
void mr_config_set_string(char **field, const char *value);
/** Replace a repeated int64 or int32 field by a copy. */
void mr_config_set_i64s(int64_t **field, size_t *count, const int64_t *values, size_t n);
void mr_config_set_i32s(int32_t **field, size_t *count, const int32_t *values, size_t n);
/** Append an initialised message of the type to a repeated field. */
Inference__ModelInput *mr_config_add_input(Inference__ModelConfig *c);
Inference__ModelOutput *mr_config_add_output(Inference__ModelConfig *c);
Inference__ModelInstanceGroup *mr_config_add_group(Inference__ModelConfig *c);
/** Set the scheduling choice to an empty dynamic_batching; the choice must be free. */
void mr_config_add_dynamic_batching(Inference__ModelConfig *c);

/** What inputs and outputs have in common. `reshape` NULL = none. */
struct mr_config_io {
    const char *kind; /* "input", "output" */
    const char *name;
    Inference__DataType *data_type;
    size_t *n_dims;
    int64_t **dims;
    Inference__ModelTensorReshape **reshape;
};
struct mr_config_io mr_config_input_io(Inference__ModelInput *in);
struct mr_config_io mr_config_output_io(Inference__ModelOutput *out);

/** Sets the model's name in the config. Errors: it has another. */
int mr_config_name(Inference__ModelConfig *c, mr_str model_name, struct mr_err *err);
/** True if the config alone determines the backend. */
bool mr_config_says_backend(const Inference__ModelConfig *c);

/** True if dims: [ 1 ] stands for a scalar: the only form for a model without batching, as
 *  Triton refuses an empty reshape there. `rank` is the model's. */
static inline bool mr_config_is_scalar(const struct mr_config_io *io, int32_t max_batch_size,
                                       int rank)
{
    return rank == 0 && max_batch_size == 0 && !*io->reshape && *io->n_dims == 1 &&
           (*io->dims)[0] == 1;
}

/** The part of mr_config_check that needs no complete config: refused features and warnings. */
int mr_config_check_features(const Inference__ModelConfig *c, struct mr_config_warning *warnings,
                             size_t max_warnings, size_t *out_warning_count, struct mr_err *err);

/** iterative_sequence (config_sequence.c): what is not there of it. Its sequences are the backend's, not the scheduler's. Errors:
 *  MR_E_UNSUPPORTED. */
int mr_config_check_iterative(const Inference__ModelConfig *c, struct mr_err *err);
/** sequence_batching (config_sequence.c): ranges and contradictions, defaults, and its tensors against the model's. */
int mr_config_check_sequence(const Inference__ModelConfig *c, bool is_complete, struct mr_err *err);
void mr_config_normalize_sequence(Inference__ModelConfig *c);
int mr_config_join_sequence(const Inference__ModelConfig *c, const struct mr_signature *s,
                            struct mr_err *err);
/** Whether an input or output of the model is one that sequence_batching adds. */
bool mr_config_is_sequence_io(const Inference__ModelConfig *c, const char *name, bool is_input);

/** Whether the content of a version's folder, or the name of a file in one, says a backend; of names only those that are known (config_basics.c). */
bool mr_config_folder_says(const char *version_dir);
bool mr_config_file_says(const char *file);

/** Ensembles and workflows (config_graph.c). Platform of one; it has no backend. */
int mr_config_graph_basics(Inference__ModelConfig *c, struct mr_err *err);
/** What must hold of the graph whatever the models in it are. MR_OK for other models. Before mr_config_normalize. */
int mr_config_graph_check(const Inference__ModelConfig *c, struct mr_err *err);

static inline bool mr_config_has_dynamic_batching(const Inference__ModelConfig *c)
{
    return c->scheduling_choice_case == INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING;
}

#endif
