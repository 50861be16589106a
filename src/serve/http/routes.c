/* The table of the REST endpoints: Triton's, and our own. A test holds openapi.json against it. */
#include "rest_docs.h"
#include "rest_generate.h"
#include "rest_infer.h"
#include "rest_mesh_watch.h"
#include "rest_meta.h"
#include "routes_priv.h"
#include "serve/admin/record.h"
#include "serve/admin/rest_endpoints.h"
#include "serve/admin/rest_mesh.h"
#include "serve/admin/rest_repo.h"
#include "serve/admin/rest_settings.h"
#include "serve/admin/rest_versions.h"
#include "serve/admin/rest_workers.h"
#include "serve/state/reply.h"
#include "serve/state/state.h"

#define MODEL      "/v2/models/{model}[/versions/{version}]"
#define REPOSITORY "/v2/repository[/{repository}]"
#define ENDPOINT   "/v2/endpoints/{model}"
#define MESH_MODEL "/v2/mesh/models/{model}"
#define VMODEL     "/v2/mesh/vmodels/{model}"
#define SYSTEM_SHM "/v2/systemsharedmemory[/region/{region}]"
#define CUDA_SHM   "/v2/cudasharedmemory[/region/{region}]"

static void no_region(struct mr_call *call, const char *kind, mr_str region)
{
    if (region.len) {
        reply_error_text(call, MR_E_NOT_FOUND, "Unable to find %s shared memory region: '%.*s'",
                         kind, MR_STR_ARG(mr_str_sub(region, 0, 200)));
    } else {
        reply_json(call, 200, MR_STR("[]"));
    }
}

static void system_shm_status(struct mr_server *s, struct mr_call *call,
                              const struct mr_oip_path *path)
{
    (void)s;
    no_region(call, "system", path->region);
}

static void cuda_shm_status(struct mr_server *s, struct mr_call *call,
                            const struct mr_oip_path *path)
{
    (void)s;
    no_region(call, "cuda", path->region);
}

static void shm_change(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    (void)s, (void)path;
    reply_error_text(call, MR_E_UNSUPPORTED,
                     "Client shared memory is disabled: the shared-memory extension is not "
                     "available in this version");
}

static void trace_setting(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    (void)s, (void)path;
    reply_error_text(call, MR_E_UNSUPPORTED,
                     "the trace extension is not available in this version");
}

/* The first row that fits counts: what is asked most stands first, and /v2/models/stats before a model of that name. */
static const struct rest_route routes[] = {
    {MODEL "/infer", REST_POST, REST_DATA, MR_API_INFERENCE, rest_infer},
    {"/v2/health/live", REST_GET, REST_SMALL, MR_API_HEALTH, rest_live},
    {"/v2/health/ready", REST_GET, REST_SMALL, MR_API_HEALTH, rest_ready},
    {MODEL "/generate", REST_POST, REST_DATA, MR_API_INFERENCE, rest_generate},
    {MODEL "/generate_stream", REST_POST, REST_DATA, MR_API_INFERENCE, rest_generate_stream},
    {MODEL "/infer_stream", REST_POST, REST_DATA, MR_API_INFERENCE, rest_infer_stream},
    {MODEL "/ready", REST_GET, REST_SMALL, MR_API_HEALTH, rest_model_ready},
    {MODEL "/config", REST_GET, REST_SMALL, MR_API_MODEL_CONFIG, rest_model_config},
    {MODEL "/stats", REST_GET, REST_SMALL, MR_API_STATISTICS, rest_stats},
    {MODEL "/workers", REST_GET, REST_SMALL, MR_API_STATISTICS, rest_workers},
    {"/v2/models/stats", REST_GET, REST_SMALL, MR_API_STATISTICS, rest_stats},
    {MODEL, REST_GET, REST_SMALL, MR_API_METADATA, rest_model_metadata},
    {"/v2/models/{model}/versions", REST_GET, REST_SMALL, MR_API_MODEL_REPOSITORY, rest_versions},
    {"/v2/models/{model}/trace/setting", REST_GET | REST_POST, REST_SMALL, MR_API_TRACE,
     trace_setting},
    {"/v2", REST_GET, REST_SMALL, MR_API_METADATA, rest_server_metadata},
    {"/v2/docs", REST_GET, REST_SMALL, MR_API_METADATA, rest_docs},
    {"/v2/docs/openapi.json", REST_GET, REST_SMALL, MR_API_METADATA, rest_openapi},
    {"/v2/logging", REST_GET | REST_POST, REST_SMALL, MR_API_LOGGING, rest_logging},
    {"/v2/trace/setting", REST_GET | REST_POST, REST_SMALL, MR_API_TRACE, trace_setting},
    {REPOSITORY "/index", REST_POST, REST_SMALL, MR_API_MODEL_REPOSITORY, rest_index},
    {REPOSITORY "/models/{model}/load", REST_POST, REST_DATA, MR_API_MODEL_REPOSITORY, rest_load},
    {REPOSITORY "/models/{model}/unload", REST_POST, REST_SMALL, MR_API_MODEL_REPOSITORY,
     rest_unload},
    {REPOSITORY "/models/{model}/label", REST_POST, REST_SMALL, MR_API_MODEL_REPOSITORY,
     rest_label},
    {REPOSITORY "/models/{model}/rollback", REST_POST, REST_SMALL, MR_API_MODEL_REPOSITORY,
     rest_rollback},
    {REPOSITORY "/models/{model}/record-warmup", REST_GET | REST_POST, REST_SMALL,
     MR_API_MODEL_REPOSITORY, record_rest},
    {"/v2/endpoints[/{model}]", REST_GET, REST_SMALL, MR_API_MODEL_REPOSITORY, rest_endpoints},
    {ENDPOINT "/weights", REST_POST, REST_SMALL, MR_API_MODEL_REPOSITORY, rest_endpoint_weights},
    {ENDPOINT "/promote", REST_POST, REST_SMALL, MR_API_MODEL_REPOSITORY, rest_endpoint_promote},
    {ENDPOINT "/rollback", REST_POST, REST_SMALL, MR_API_MODEL_REPOSITORY, rest_endpoint_rollback},
    {ENDPOINT "/resume", REST_POST, REST_SMALL, MR_API_MODEL_REPOSITORY, rest_endpoint_resume},
    {"/v2/mesh", REST_GET, REST_SMALL, MR_API_MODEL_REPOSITORY, rest_mesh},
    {"/v2/mesh/drain", REST_POST, REST_SMALL, MR_API_MODEL_REPOSITORY, rest_mesh_drain},
    {"/v2/mesh/watch", REST_GET, REST_SMALL, MR_API_MODEL_REPOSITORY, rest_mesh_watch},
    {"/v2/mesh/page", REST_GET, REST_SMALL, MR_API_METADATA, rest_mesh_page},
    {"/v2/mesh/models", REST_GET, REST_SMALL, MR_API_MODEL_REPOSITORY, rest_mesh_models},
    {MESH_MODEL, REST_GET, REST_SMALL, MR_API_MODEL_REPOSITORY, rest_mesh_model},
    {MESH_MODEL "/register", REST_POST, REST_SMALL, MR_API_MODEL_REPOSITORY, rest_mesh_register},
    {MESH_MODEL "/unregister", REST_POST, REST_SMALL, MR_API_MODEL_REPOSITORY,
     rest_mesh_unregister},
    {MESH_MODEL "/load", REST_POST, REST_SMALL, MR_API_MODEL_REPOSITORY, rest_mesh_load},
    {"/v2/mesh/vmodels", REST_GET, REST_SMALL, MR_API_MODEL_REPOSITORY, rest_mesh_vmodels},
    {VMODEL, REST_GET, REST_SMALL, MR_API_MODEL_REPOSITORY, rest_mesh_vmodel},
    {VMODEL "/set", REST_POST, REST_SMALL, MR_API_MODEL_REPOSITORY, rest_mesh_vmodel_set},
    {VMODEL "/delete", REST_POST, REST_SMALL, MR_API_MODEL_REPOSITORY, rest_mesh_vmodel_delete},
    {SYSTEM_SHM "/status", REST_GET, REST_SMALL, MR_API_SHARED_MEMORY, system_shm_status},
    {SYSTEM_SHM "/register", REST_POST, REST_SMALL, MR_API_SHARED_MEMORY, shm_change},
    {SYSTEM_SHM "/unregister", REST_POST, REST_SMALL, MR_API_SHARED_MEMORY, shm_change},
    {CUDA_SHM "/status", REST_GET, REST_SMALL, MR_API_SHARED_MEMORY, cuda_shm_status},
    {CUDA_SHM "/register", REST_POST, REST_SMALL, MR_API_SHARED_MEMORY, shm_change},
    {CUDA_SHM "/unregister", REST_POST, REST_SMALL, MR_API_SHARED_MEMORY, shm_change},
};

const struct rest_route *route_find(mr_str path, struct mr_oip_path *out)
{
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (mr_oip_path_match(routes[i].pattern, path, out)) {
            return &routes[i];
        }
    }
    return NULL;
}

bool route_is_stream(const struct rest_route *route)
{
    return route->handle == rest_generate_stream || route->handle == rest_infer_stream;
}

bool route_allows(const struct rest_route *route, mr_str method)
{
    if (mr_str_eq_c(method, "GET") || mr_str_eq_c(method, "HEAD")) {
        return route->methods & REST_GET;
    }
    return mr_str_eq_c(method, "POST") && (route->methods & REST_POST);
}

void route_refuse_method(const struct mr_server *s, struct mr_call *call,
                         const struct rest_route *route)
{
    static const mr_str allowed[] = {
        [REST_GET] = MR_STR_INIT("GET, HEAD"),
        [REST_POST] = MR_STR_INIT("POST"),
        [REST_GET | REST_POST] = MR_STR_INIT("GET, HEAD, POST"),
    };

    reply_method(call, allowed[route->methods],
                 s->options.mlserver_errors ? MR_STR("{\"detail\":\"Method Not Allowed\"}")
                                            : MR_STR("{\"error\":\"Method Not Allowed\"}"));
}
