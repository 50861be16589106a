/* The table of the gRPC methods: Triton's, health, reflection, and our own. A test holds it against the services' own
 * descriptions. */
#include "methods_priv.h"
#include "serve/admin/record.h"
#include "serve/state/state.h"

#define TRITON(name, ...)                                                                          \
    {                                                                                              \
        MR_STR_INIT("/inference.GRPCInferenceService/" name), __VA_ARGS__                          \
    }
#define CONTROL(name, ...)                                                                         \
    {                                                                                              \
        MR_STR_INIT("/millrace.ModelControl/" name), __VA_ARGS__                                   \
    }
#define ENDPOINT(name, ...)                                                                        \
    {                                                                                              \
        MR_STR_INIT("/millrace.EndpointControl/" name), __VA_ARGS__                                \
    }
#define RUNTIME(name, handle)                                                                      \
    {                                                                                              \
        MR_STR_INIT("/mmesh.ModelRuntime/" name), MR_API_MODEL_REPOSITORY, GRPC_SMALL, handle      \
    }
#define MESH(name, handle)                                                                         \
    {                                                                                              \
        MR_STR_INIT("/mmesh.ModelMesh/" name), MR_API_MODEL_REPOSITORY, GRPC_SMALL, handle         \
    }
/* The names that ModelMesh had before. */
#define TAS(name, handle)                                                                          \
    {                                                                                              \
        MR_STR_INIT("/com.ibm.watson.tas.proto.TasRuntime/" name), MR_API_MODEL_REPOSITORY,        \
            GRPC_SMALL, handle                                                                     \
    }
#define HEALTH(name, ...)                                                                          \
    {                                                                                              \
        MR_STR_INIT("/grpc.health.v1.Health/" name), __VA_ARGS__                                   \
    }
#define REFLECTION(v)                                                                              \
    {                                                                                              \
        MR_STR_INIT("/grpc.reflection." v ".ServerReflection/ServerReflectionInfo"),               \
            MR_API_REFLECTION, GRPC_STREAM, grpc_reflect                                           \
    }

/* What is asked most stands first. */
static const struct grpc_method methods[] = {
    TRITON("ModelInfer", MR_API_INFERENCE, GRPC_INFER, grpc_model_infer),
    TRITON("ModelStreamInfer", MR_API_INFERENCE, GRPC_TENSORS, grpc_model_stream_infer),
    TRITON("ServerLive", MR_API_HEALTH, GRPC_SMALL, grpc_server_live),
    TRITON("ServerReady", MR_API_HEALTH, GRPC_SMALL, grpc_server_ready),
    TRITON("ModelReady", MR_API_HEALTH, GRPC_SMALL, grpc_model_ready),
    TRITON("ServerMetadata", MR_API_METADATA, GRPC_SMALL, grpc_server_metadata),
    TRITON("ModelMetadata", MR_API_METADATA, GRPC_SMALL, grpc_model_metadata),
    TRITON("ModelConfig", MR_API_MODEL_CONFIG, GRPC_SMALL, grpc_model_config),
    TRITON("ModelStatistics", MR_API_STATISTICS, GRPC_SMALL, grpc_model_statistics),
    TRITON("RepositoryIndex", MR_API_MODEL_REPOSITORY, GRPC_SMALL, grpc_repository_index),
    TRITON("RepositoryModelLoad", MR_API_MODEL_REPOSITORY, GRPC_DATA, grpc_model_load),
    TRITON("RepositoryModelUnload", MR_API_MODEL_REPOSITORY, GRPC_SMALL, grpc_model_unload),
    TRITON("SystemSharedMemoryStatus", MR_API_SHARED_MEMORY, GRPC_SMALL, grpc_system_shm_status),
    TRITON("SystemSharedMemoryRegister", MR_API_SHARED_MEMORY, GRPC_SMALL, grpc_no_shm),
    TRITON("SystemSharedMemoryUnregister", MR_API_SHARED_MEMORY, GRPC_SMALL, grpc_no_shm),
    TRITON("CudaSharedMemoryStatus", MR_API_SHARED_MEMORY, GRPC_SMALL, grpc_cuda_shm_status),
    TRITON("CudaSharedMemoryRegister", MR_API_SHARED_MEMORY, GRPC_SMALL, grpc_no_shm),
    TRITON("CudaSharedMemoryUnregister", MR_API_SHARED_MEMORY, GRPC_SMALL, grpc_no_shm),
    TRITON("TraceSetting", MR_API_TRACE, GRPC_SMALL, grpc_no_trace),
    TRITON("LogSettings", MR_API_LOGGING, GRPC_SMALL, grpc_log_settings),
    HEALTH("Check", MR_API_HEALTH, GRPC_SMALL, grpc_health_check),
    HEALTH("Watch", MR_API_HEALTH, GRPC_SMALL, grpc_health_watch),
    CONTROL("ModelVersions", MR_API_MODEL_REPOSITORY, GRPC_SMALL, grpc_model_versions),
    CONTROL("ModelLabel", MR_API_MODEL_REPOSITORY, GRPC_SMALL, grpc_model_label),
    CONTROL("ModelRollback", MR_API_MODEL_REPOSITORY, GRPC_SMALL, grpc_model_rollback),
    CONTROL("ModelRecordWarmup", MR_API_MODEL_REPOSITORY, GRPC_SMALL, record_grpc),
    ENDPOINT("Endpoints", MR_API_MODEL_REPOSITORY, GRPC_SMALL, grpc_endpoints),
    ENDPOINT("EndpointChange", MR_API_MODEL_REPOSITORY, GRPC_SMALL, grpc_endpoint_change),
    MESH("registerModel", grpc_mesh_register),
    MESH("unregisterModel", grpc_mesh_unregister),
    MESH("getModelStatus", grpc_mesh_status),
    MESH("ensureLoaded", grpc_mesh_ensure),
    MESH("setVModel", grpc_mesh_set_vmodel),
    MESH("deleteVModel", grpc_mesh_delete_vmodel),
    MESH("getVModelStatus", grpc_mesh_vmodel_status),
    MESH("addModel", grpc_mesh_register),
    MESH("deleteModel", grpc_mesh_unregister),
    TAS("addModel", grpc_mesh_register),
    TAS("registerModel", grpc_mesh_register),
    TAS("deleteModel", grpc_mesh_unregister),
    TAS("unregisterModel", grpc_mesh_unregister),
    TAS("getModelStatus", grpc_mesh_status),
    TAS("ensureLoaded", grpc_mesh_ensure),
    TAS("setVModel", grpc_mesh_set_vmodel),
    TAS("deleteVModel", grpc_mesh_delete_vmodel),
    TAS("getVModelStatus", grpc_mesh_vmodel_status),
    RUNTIME("loadModel", grpc_runtime_load),
    RUNTIME("unloadModel", grpc_runtime_unload),
    RUNTIME("predictModelSize", grpc_runtime_predict),
    RUNTIME("modelSize", grpc_runtime_size),
    RUNTIME("runtimeStatus", grpc_runtime_state),
    REFLECTION("v1"),
    REFLECTION("v1alpha"),
};

const struct grpc_method *grpc_method_find(mr_str path)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        if (mr_str_eq(path, methods[i].path)) {
            return &methods[i];
        }
    }
    return NULL;
}

static const struct grpc_method passed = {MR_STR_INIT(""), MR_API_INFERENCE, GRPC_PASSED,
                                          grpc_pass};

const struct grpc_method *grpc_method_for(const struct mr_server *s, mr_str path)
{
    const struct grpc_method *m = grpc_method_find(path);
    bool is_of_fleet = m && (m->api == MR_API_STATISTICS || m->handle == grpc_model_ready);
    bool is_of_model =
        mr_str_starts(path, MR_STR("/inference.GRPCInferenceService/Model")) && !is_of_fleet;
    bool is_of_mesh = mr_str_starts(path, MR_STR("/mmesh.ModelMesh/")) ||
                      mr_str_starts(path, MR_STR("/mmesh.ModelRuntime/"));

    return serve_has_runtime(s) && (is_of_model || (!m && !is_of_mesh)) ? &passed : m;
}

bool grpc_is_change(const struct grpc_method *m)
{
    return m->handle != grpc_repository_index && m->handle != grpc_model_versions &&
           m->handle != grpc_endpoints && m->handle != grpc_mesh_status &&
           m->handle != grpc_mesh_vmodel_status;
}

bool grpc_is_stream(const struct grpc_method *m)
{
    return m && (m->kind == GRPC_STREAM || m->kind == GRPC_TENSORS);
}

uint64_t grpc_message_limit(const struct mr_server *s, const struct grpc_method *m,
                            const char **out_why)
{
    uint64_t most = s->options.grpc_max_message_bytes;
    bool has_data = m && m->kind != GRPC_SMALL && m->kind != GRPC_STREAM;
    bool is_small = !has_data && most > SERVE_SMALL_BODY;

    *out_why = is_small ? "the most that this method takes" : "--grpc-max-message-size";
    return is_small ? SERVE_SMALL_BODY : most;
}
