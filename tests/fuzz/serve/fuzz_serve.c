/* The whole server in this process, with a model of the identity backend: bodies of every endpoint, REST
 * and gRPC, over Unix sockets. Each request gets one answer, an error has a text, and the server keeps serving.
 *
 *   byte 0   which endpoint (see `endpoints`)
 *   byte 1   for inference: length of the JSON part, 255 = no such header
 *   rest     the body; for endpoint 0, a path */
#include "fuzz.h"

#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include "base/log.h"
#include "net/client.h"
#include "serve/server.h"

#define MODEL   "/v2/models/m"
#define SERVICE "/inference.GRPCInferenceService/"

struct endpoint {
    const char *method; /* "gRPC", or of HTTP */
    const char *path;   /* NULL: the body of the input */
};

static const struct endpoint endpoints[] = {
    {"GET", NULL},
    {"POST", MODEL "/infer"},
    {"POST", "/v2/models/b/versions/1/infer"},
    {"POST", "/v2/repository/index"},
    {"POST", "/v2/repository/models/x/load"},
    {"POST", "/v2/repository/models/x/unload"},
    {"POST", "/v2/logging"},
    {"POST", "/v2/systemsharedmemory/region/r/register"},
    {"gRPC", SERVICE "ModelInfer"},
    {"gRPC", SERVICE "ModelReady"},
    {"gRPC", SERVICE "ModelMetadata"},
    {"gRPC", SERVICE "ModelConfig"},
    {"gRPC", SERVICE "ModelStatistics"},
    {"gRPC", SERVICE "RepositoryIndex"},
    {"gRPC", SERVICE "RepositoryModelLoad"},
    {"gRPC", SERVICE "RepositoryModelUnload"},
    {"gRPC", SERVICE "LogSettings"},
    {"gRPC", SERVICE "TraceSetting"},
    {"gRPC", SERVICE "SystemSharedMemoryStatus"},
    {"gRPC", SERVICE "CudaSharedMemoryRegister"},
    {"gRPC", SERVICE "ModelStreamInfer"},
    {"gRPC", "/grpc.health.v1.Health/Check"},
    {"gRPC", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"},
};

static struct {
    struct mr_server *server;
    struct mr_loop *loop;
    struct mr_client *http;
    struct mr_client *grpc;
    char folder[32];
} f;

/* ---- the server ----------------------------------------------------------------------------- */

static void put_model(const char *name, const char *config)
{
    char path[128];

    snprintf(path, sizeof path, "%s/models/%s", f.folder, name);
    REQUIRE(mkdir(path, 0700) == 0);
    snprintf(path, sizeof path, "%s/models/%s/1", f.folder, name);
    REQUIRE(mkdir(path, 0700) == 0);
    snprintf(path, sizeof path, "%s/models/%s/config.pbtxt", f.folder, name);
    FILE *file = fopen(path, "w");
    REQUIRE(file && fputs(config, file) >= 0 && fclose(file) == 0);
}

static void put_files(void)
{
    char path[128];

    snprintf(f.folder, sizeof f.folder, "/tmp/millrace-fuzz-XXXXXX");
    REQUIRE(mkdtemp(f.folder) != NULL);
    snprintf(path, sizeof path, "%s/models", f.folder);
    REQUIRE(mkdir(path, 0700) == 0);
    /* This backend only: what others make of a damaged model file is theirs. */
    snprintf(path, sizeof path, "%s/libmillrace_identity.so", f.folder);
    REQUIRE(symlink(MR_FUZZ_BACKENDS "/libmillrace_identity.so", path) == 0);
    put_model("m", "backend: 'identity' input { name: 'X' data_type: TYPE_INT32 dims: -1 } "
                   "output { name: 'Y' data_type: TYPE_INT32 dims: -1 }");
    put_model("b", "backend: 'identity' max_batch_size: 4 "
                   "input { name: 'X' data_type: TYPE_STRING dims: 2 } "
                   "output { name: 'Y' data_type: TYPE_STRING dims: 2 } dynamic_batching { }");
    put_model("x", "backend: 'identity' input { name: 'X' data_type: TYPE_FP32 dims: 1 } "
                   "output { name: 'Y' data_type: TYPE_FP32 dims: 1 }");
}

static void quiet(void)
{
    mr_log_set_enabled(MR_LOG_INFO, false);
    mr_log_set_enabled(MR_LOG_WARN, false);
    mr_log_set_enabled(MR_LOG_ERROR, false);
    mr_log_set_verbose(0);
}

static void clean_up(void)
{
    char command[64];

    mr_client_free(&f.http);
    mr_client_free(&f.grpc);
    mr_loop_free(&f.loop);
    mr_server_stop(f.server);
    mr_server_free(&f.server);
    snprintf(command, sizeof command, "rm -rf %s", f.folder);
    REQUIRE(system(command) == 0);
}

static void set_up(void)
{
    static char models[64], http[64], grpc[64];
    static const char *repositories[] = {models}, *backends[] = {f.folder}, *all[] = {"*"};
    struct mr_client_options h2 = {.http2 = true};
    struct mr_server_options o;
    struct mr_err err = {0};

    quiet();
    put_files();
    snprintf(models, sizeof models, "%s/models", f.folder);
    snprintf(http, sizeof http, "unix:%s/http", f.folder);
    snprintf(grpc, sizeof grpc, "unix:%s/grpc", f.folder);
    mr_server_options_init(&o);
    o.models.repositories = repositories;
    o.models.backend_dirs = backends;
    o.models.load_models = all;
    o.models.repository_count = o.models.backend_dir_count = o.models.load_model_count = 1;
    o.models.control = MR_MODEL_CONTROL_EXPLICIT;
    o.http_address = http;
    o.grpc_address = grpc;
    o.allow_metrics = false;
    o.loop_threads = 1;
    if (mr_server_start(&f.server, &o, &err) < 0) {
        fprintf(stderr, "%s\n", err.msg);
        abort();
    }
    REQUIRE(mr_loop_new(&f.loop, NULL, NULL) == MR_OK);
    REQUIRE(mr_client_new(&f.http, f.loop, http, NULL, NULL) == MR_OK);
    REQUIRE(mr_client_new(&f.grpc, f.loop, grpc, &h2, NULL) == MR_OK);
    atexit(clean_up);
}

/* ---- the client ----------------------------------------------------------------------------- */

struct asked {
    bool done;
    int rc;
    int status;
    bool is_error_text; /* the body is {"error":"…"} */
};

static void on_done(void *ctx, int rc, const struct mr_err *err,
                    const struct mr_client_response *response)
{
    struct asked *a = ctx;
    mr_str start = MR_STR("{\"error\":\"");

    a->done = true;
    a->rc = rc;
    REQUIRE(rc == MR_OK || err->msg[0]);
    if (response) {
        a->status = response->status;
        a->is_error_text =
            mr_str_starts(mr_str_n((const char *)response->body.ptr, response->body.len), start);
    }
    mr_loop_stop(f.loop);
}

static struct asked rest(const char *method, mr_str path, const struct mr_header *headers,
                         size_t header_count, mr_bytes body)
{
    struct asked a = {0};
    struct mr_piece piece = {body.ptr, body.len, NULL};
    struct mr_client_request r = {.method = method,
                                  .path = path,
                                  .headers = headers,
                                  .header_count = header_count,
                                  .pieces = &piece,
                                  .piece_count = body.len ? 1 : 0};

    mr_client_send(f.http, &r, on_done, &a);
    while (!a.done) {
        mr_loop_run(f.loop);
    }
    return a;
}

static void ask_rest(const struct endpoint *e, unsigned length, mr_bytes body)
{
    char number[16];
    int n = snprintf(number, sizeof number, "%u", length);
    struct mr_header header = {MR_STR("inference-header-content-length"),
                               mr_str_n(number, (size_t)n)};
    mr_str text = mr_str_n((const char *)body.ptr, body.len);

    if (!e->path) {
        struct asked a = rest(e->method, text, NULL, 0, (mr_bytes){NULL, 0});
        /* What is no path is refused by the client, or by the server before it has one. */
        REQUIRE(a.rc == MR_OK || a.rc == MR_E_INVALID || a.rc == MR_E_TOO_LARGE);
        return;
    }
    struct asked a = rest(e->method, mr_str_c(e->path), &header, length == 255 ? 0 : 1, body);
    REQUIRE(a.rc == MR_OK);
    REQUIRE(a.status == 200 || a.status == 400 || a.status == 404 || a.status == 500 ||
            a.status == 501 || a.status == 503);
    REQUIRE(a.status == 200 || a.is_error_text);
}

static void ask_grpc(const struct endpoint *e, mr_bytes body)
{
    struct asked a = {0};
    struct mr_piece piece = {body.ptr, body.len, NULL};

    mr_client_grpc(f.grpc,
                   &(struct mr_client_grpc_request){
                       .path = e->path, .pieces = &piece, .piece_count = body.len ? 1 : 0},
                   on_done, &a);
    while (!a.done) {
        mr_loop_run(f.loop);
    }
    REQUIRE(a.rc != MR_E_UNAVAILABLE || e->path[1] == 'i');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    if (!f.server) {
        set_up();
    }
    const struct endpoint *e = &endpoints[data[0] % (sizeof endpoints / sizeof *endpoints)];
    mr_bytes body = {data + 2, size - 2};
    if (strcmp(e->method, "gRPC") == 0) {
        ask_grpc(e, body);
    } else {
        ask_rest(e, data[1], body);
    }
    quiet();
    struct asked a = rest("GET", MR_STR("/v2/health/live"), NULL, 0, (mr_bytes){NULL, 0});
    REQUIRE(a.rc == MR_OK && a.status == 200);
    return 0;
}
