/* ModelConfig: from text, JSON or nothing at all to a complete, checked configuration.
 *
 * The steps, in order, for one model:
 *   parse      config.pbtxt (or configs/<name>.pbtxt, or the JSON of a load request); none: empty
 *   basics     name, backend, platform and file name from the folder's content
 *   complete   inputs, outputs, max_batch_size from the opened model's signature
 *   normalise  Triton's defaults: version policy, instance group, preferred sizes, ...
 *   check      ranges, contradictions with the signature, features that this server does not have
 * Before these steps a copy is normalised and checked as it was given, so that its errors
 * are reported whatever the folder and the model contain.
 * Each error names the model, the field and the allowed range. */
#ifndef MR_MODEL_CONFIG_H
#define MR_MODEL_CONFIG_H

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "millrace/backend.h"
#include "model_config.pb-c.h"

struct mr_config_warning {
    char text[240];
};

/** How a setting is treated. */
enum mr_config_field_kind {
    MR_CONFIG_HONOURED,
    MR_CONFIG_NO_EFFECT, /* warned about once at load */
    MR_CONFIG_REFUSED    /* the model does not load */
};
struct mr_config_field {
    const char *path; /* "input.dims"; covers everything below that has no entry of its own */
    enum mr_config_field_kind kind;
    const char *note; /* honoured: how; no effect: why; refused: name of the feature */
};
/** The whole table: every setting of ModelConfig is in it. Static. For the documentation. */
const struct mr_config_field *mr_config_fields(size_t *out_count);
/** The entry for a field (named as by mr_pb_walk_set_fields); NULL: a message without an entry of its
 *  own. */
const struct mr_config_field *mr_config_field_find(mr_str path);

/** Parses text format. `file` is for error texts. Free with mr_config_free. */
int mr_config_parse_text(mr_str text, const char *file, Inference__ModelConfig **out,
                         struct mr_err *err);
/** Parse the JSON form (load request). Unknown fields are errors. */
int mr_config_parse_json(mr_str text, Inference__ModelConfig **out, struct mr_err *err);
/** True if the text has this top-level field, also as 0 or "", which the parsed message does not
 *  show. The text must be one that parsed. JSON: also in lowerCamelCase; null counts as absent. */
bool mr_config_text_has(mr_str text, mr_str field);
bool mr_config_json_has(mr_str text, mr_str field);
/** The value of an entry of `parameters`, NULL = there is none. */
const char *mr_config_parameter(const Inference__ModelConfig *c, const char *key);
void mr_config_free(Inference__ModelConfig **c);
/** An empty config, all fields at their proto defaults. */
Inference__ModelConfig *mr_config_new(void);
int mr_config_copy(const Inference__ModelConfig *c, Inference__ModelConfig **out,
                   struct mr_err *err);

/** Completes name, backend, platform and default_model_filename, from files such as
 *  `<version>/model.onnx` where the config has none. Errors: name differs from the
 *  folder, backend not derivable. */
int mr_config_basics(Inference__ModelConfig *c, mr_str model_name, const char *version_dir,
                     struct mr_err *err);

/** Fills absent fields of the config from the model's signature; fields that both have must agree (names, types,
 *  dims where both are fixed, batch dimension). auto_complete false: nothing is filled, missing
 *  inputs or outputs are an error. default_max_batch: for a batchable model whose config does not
 *  give max_batch_size (4). */
int mr_config_complete(Inference__ModelConfig *c, const struct mr_signature *s, bool auto_complete,
                       bool max_batch_given, int default_max_batch, struct mr_err *err);

/** True for a model of MLServer (mr_version.has_messages). Needs the basics. */
bool mr_config_has_messages(const Inference__ModelConfig *c);

/** The parameter of boosted trees by which they answer as MLServer's runtimes, and its value. */
#define MR_CONFIG_INTERFACE "interface"
#define MR_CONFIG_MLSERVER  "mlserver"
/** The configuration with which a model of MLServer runs without Python, by a backend of the server. *out NULL: it does
 *  not. Otherwise free it with mr_config_free. Needs the basics. Blocks on the file system. */
void mr_config_without_python(const Inference__ModelConfig *c, const char *version_dir,
                              Inference__ModelConfig **out);
/** True for boosted trees with that parameter (mr_version.reads_matrix). */
bool mr_config_reads_matrix(const Inference__ModelConfig *c);

/** Platforms of models that have no backend: graphs of others, and models of other servers (remote.h). */
#define MR_CONFIG_ENSEMBLE "ensemble"
#define MR_CONFIG_WORKFLOW "workflow"
#define MR_CONFIG_REMOTE   "remote"
bool mr_config_is_ensemble(const Inference__ModelConfig *c);
bool mr_config_is_workflow(const Inference__ModelConfig *c);
bool mr_config_is_remote(const Inference__ModelConfig *c);
/** One of them, by its platform or its scheduling. */
bool mr_config_is_graph(const Inference__ModelConfig *c);
/** Calls `each` for the models that the graph asks, by their names in this server, in their order, perhaps several times for one. */
void mr_config_members(const Inference__ModelConfig *c, void (*each)(void *ctx, const char *name),
                       void *ctx);

int mr_config_normalize(Inference__ModelConfig *c, struct mr_err *err);

/** Checks ranges and contradictions, then features. MR_E_UNSUPPORTED with a text that names the feature
 *  for features that do not exist here (ensembles, iterative sequences, response cache, repository
 *  agents, ragged batching, ...). Fields that have no effect on a CPU server are listed in
 *  *warnings (caller's array). is_complete false: fields that the model completes may be absent. */
int mr_config_check(const Inference__ModelConfig *c, bool is_complete,
                    struct mr_config_warning *warnings, size_t max_warnings,
                    size_t *out_warning_count, struct mr_err *err);

/** dynamic_batching, NULL = the model has none. */
const Inference__ModelDynamicBatching *mr_config_dynamic_batching(const Inference__ModelConfig *c);
/** sequence_batching, NULL = the model has none, or an iterative one, which is the backend's. */
const Inference__ModelSequenceBatching *mr_config_sequences(const Inference__ModelConfig *c);
/** How many sequences an instance has at once. */
int64_t mr_config_sequence_places(const Inference__ModelConfig *c);
/** A tensor of the model that the scheduler makes or keeps: a control input, or a state. */
struct mr_config_sequence_io {
    const char *name;
    const char *what; /* for messages */
    int32_t dtype;
    const int64_t *dims; /* without the batch dimension; -1 = any size */
    size_t rank;
};
/** Input i (output i) beside those of clients: control inputs, then states (states), in the order of the config. False:
 *  there are no more. */
bool mr_config_sequence_input(const Inference__ModelConfig *c, size_t i,
                              struct mr_config_sequence_io *out);
bool mr_config_sequence_output(const Inference__ModelConfig *c, size_t i,
                               struct mr_config_sequence_io *out);
/** The data type of a control input. */
int32_t mr_config_control_dtype(const Inference__ModelSequenceBatching__Control *k);

/** Checks the entries of `parameters` for the server: those whose keys begin with "millrace.". Errors:
 *  MR_E_INVALID, an unknown key or a value out of range. */
int mr_config_check_own(const Inference__ModelConfig *c, struct mr_err *err);

/** The JSON of GET .../config: with all default scalars, int64 as numbers. */
void mr_config_json(const Inference__ModelConfig *c, struct mr_buf *out);

#endif
