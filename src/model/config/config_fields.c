/* The treatment of each setting of ModelConfig: honoured, without effect on this server, or refused.
 *
 * One table says it for the check, for the documentation and for the test that holds the table
 * against the message's descriptor. A path covers itself and everything below; the longest path
 * that covers a field decides. Thread: any; read-only. */
#include "config_priv.h"

/* Reasons that several fields share. */
#define ON_CPU          "this server runs models on CPUs"
#define NO_RAGGED       "ragged batching"
#define NO_SHAPE_TENSOR "shape tensors"

static const struct mr_config_field fields[] = {
    {"name", MR_CONFIG_HONOURED, "must be empty or the name of the folder"},
    {"platform", MR_CONFIG_HONOURED, "stands for a backend"},
    {"backend", MR_CONFIG_HONOURED, "library libmillrace_<backend>.so"},
    {"runtime", MR_CONFIG_NO_EFFECT, "a backend is one library here"},
    {"version_policy", MR_CONFIG_HONOURED, "latest, all, specific"},
    {"max_batch_size", MR_CONFIG_HONOURED, "found out from the model when not given"},

    {"input.name", MR_CONFIG_HONOURED, ""},
    {"input.data_type", MR_CONFIG_HONOURED, ""},
    {"input.format", MR_CONFIG_HONOURED, "only checked: image formats have 3 dims"},
    {"input.dims", MR_CONFIG_HONOURED, ""},
    {"input.reshape", MR_CONFIG_HONOURED, ""},
    {"input.is_shape_tensor", MR_CONFIG_REFUSED, NO_SHAPE_TENSOR},
    {"input.allow_ragged_batch", MR_CONFIG_REFUSED, NO_RAGGED},
    {"input.optional", MR_CONFIG_HONOURED, ""},
    {"input.is_non_linear_format_io", MR_CONFIG_REFUSED, "non-linear tensor formats"},
    {"output.name", MR_CONFIG_HONOURED, ""},
    {"output.data_type", MR_CONFIG_HONOURED, ""},
    {"output.dims", MR_CONFIG_HONOURED, ""},
    {"output.label_filename", MR_CONFIG_HONOURED, "for the classification extension"},
    {"output.reshape", MR_CONFIG_HONOURED, ""},
    {"output.is_shape_tensor", MR_CONFIG_REFUSED, NO_SHAPE_TENSOR},
    {"output.is_non_linear_format_io", MR_CONFIG_REFUSED, "non-linear tensor formats"},
    {"batch_input", MR_CONFIG_REFUSED, NO_RAGGED},
    {"batch_output", MR_CONFIG_REFUSED, NO_RAGGED},

    {"instance_group.name", MR_CONFIG_HONOURED, "shown"},
    {"instance_group.count", MR_CONFIG_HONOURED, ""},
    {"instance_group.kind", MR_CONFIG_HONOURED, "KIND_GPU is refused, KIND_AUTO means KIND_CPU"},
    {"instance_group.gpus", MR_CONFIG_NO_EFFECT, ON_CPU},
    {"instance_group.profile", MR_CONFIG_NO_EFFECT, "optimization profiles belong to TensorRT"},
    {"instance_group.rate_limiter", MR_CONFIG_NO_EFFECT, "there is no rate limiter"},
    {"instance_group.passive", MR_CONFIG_REFUSED, "passive instances"},
    {"instance_group.secondary_devices", MR_CONFIG_NO_EFFECT, ON_CPU},
    {"instance_group.host_policy", MR_CONFIG_NO_EFFECT, "there are no host policies"},

    {"default_model_filename", MR_CONFIG_HONOURED, ""},
    {"cc_model_filenames", MR_CONFIG_NO_EFFECT, ON_CPU},
    {"metric_tags", MR_CONFIG_HONOURED, "labels of the model's metrics"},
    {"parameters", MR_CONFIG_HONOURED, "handed to the backend"},
    {"model_warmup", MR_CONFIG_HONOURED, ""},

    {"dynamic_batching", MR_CONFIG_HONOURED, ""},
    {"sequence_batching", MR_CONFIG_HONOURED, "direct and oldest, implicit state"},
    {"sequence_batching.state.use_same_buffer_for_input_output", MR_CONFIG_NO_EFFECT,
     "a state that comes in is never written"},
    {"sequence_batching.state.use_growable_memory", MR_CONFIG_NO_EFFECT,
     "it is for memory of GPUs"},
    {"sequence_batching.iterative_sequence", MR_CONFIG_HONOURED,
     "of models in Python, without control_input, state, direct and oldest"},
    {"ensemble_scheduling", MR_CONFIG_HONOURED, "the steps of an ensemble"},
    {"ensemble_scheduling.max_inflight_requests", MR_CONFIG_HONOURED,
     "any limit holds: a step has one request for each of the ensemble"},
    {"ensemble_scheduling.step.model_namespace", MR_CONFIG_NO_EFFECT,
     "all models of a server have one name space"},
    {"workflow_scheduling", MR_CONFIG_HONOURED, "the nodes of a workflow"},

    {"optimization.graph", MR_CONFIG_HONOURED, "handed to the backend"},
    {"optimization.priority", MR_CONFIG_NO_EFFECT, "it is a priority of GPU streams"},
    {"optimization.cuda", MR_CONFIG_NO_EFFECT, ON_CPU},
    {"optimization.execution_accelerators.gpu_execution_accelerator", MR_CONFIG_NO_EFFECT, ON_CPU},
    {"optimization.execution_accelerators.cpu_execution_accelerator", MR_CONFIG_REFUSED,
     "CPU execution accelerators"},
    /* Normalising sets these two to Triton's default, so that they look like given
     * ones. */
    {"optimization.input_pinned_memory", MR_CONFIG_HONOURED, "shown; all memory is of one kind"},
    {"optimization.output_pinned_memory", MR_CONFIG_HONOURED, "shown; all memory is of one kind"},
    {"optimization.gather_kernel_buffer_threshold", MR_CONFIG_NO_EFFECT, ON_CPU},
    {"optimization.eager_batching", MR_CONFIG_NO_EFFECT, "batches are gathered when they run"},

    {"model_operations.op_library_filename", MR_CONFIG_REFUSED, "libraries of custom operators"},
    {"model_transaction_policy.decoupled", MR_CONFIG_HONOURED, "several answers to a request"},
    {"model_repository_agents.agents", MR_CONFIG_REFUSED, "repository agents"},
    {"response_cache.enable", MR_CONFIG_REFUSED, "the response cache"},
    {"model_metrics", MR_CONFIG_NO_EFFECT, "histogram buckets are fixed"},
};

#define FIELD_COUNT (sizeof fields / sizeof *fields)

const struct mr_config_field *mr_config_fields(size_t *out_count)
{
    *out_count = FIELD_COUNT;
    return fields;
}

static bool covers(mr_str outer, mr_str path)
{
    return mr_str_starts(path, outer) && (path.len == outer.len || path.ptr[outer.len] == '.');
}

const struct mr_config_field *mr_config_field_find(mr_str path)
{
    const struct mr_config_field *best = NULL;

    for (size_t i = 0; i < FIELD_COUNT; i++) {
        mr_str outer = mr_str_c(fields[i].path);
        if (covers(outer, path) && (!best || outer.len > strlen(best->path))) {
            best = &fields[i];
        }
    }
    return best;
}
