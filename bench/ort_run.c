/* What one execution of a model costs below the server: time, allocations and context switches per
 * call, through the plugin host (as the server runs it) and, for comparison, by ONNX Runtime's C
 * interface alone in the plainest way and in the leanest one.
 *
 *   ort_run [--repository DIR] [--model NAME] [--rows N] [--count N | --seconds N]
 *           [--way host|plain|bound] [--setting key=value]
 *   ort_run --open N [--model NAME]      what N opened models keep in memory, and how long a load takes
 *
 * Models are those of DIR (tests/models/repo) whose inputs are numbers of known shape but for the
 * batch (MR_SOURCE_DIR, MR_BUILD_DIR as for the tests). Without --way all ways are measured. With
 * --count the best mean of five turns is printed, with --seconds the mean over that time. For
 * counted instructions run it under callgrind:
 *
 *   valgrind --tool=callgrind --toggle-collect=measured ort_run --way host --count 2000
 *
 * Allocations are counted by wrapping malloc; operator new ends there too. */
#include <getopt.h>
#include <limits.h>
#include <onnxruntime_c_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "base/clock.h"
#include "plugin/plugin.h"
#include "tensor/tensor.h"

#define IO_MAX 8

static uint64_t allocations;

void *__libc_malloc(size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);
void *malloc(size_t bytes);
int posix_memalign(void **out, size_t align, size_t bytes);
void *aligned_alloc(size_t align, size_t bytes);

__attribute__((visibility("default"))) void *malloc(size_t bytes)
{
    allocations++;
    return __libc_malloc(bytes);
}

__attribute__((visibility("default"))) int posix_memalign(void **out, size_t align, size_t bytes)
{
    allocations++;
    *out = __libc_memalign(align, bytes);
    return *out ? 0 : 12;
}

__attribute__((visibility("default"))) void *aligned_alloc(size_t align, size_t bytes)
{
    allocations++;
    return __libc_memalign(align, bytes);
}

struct bench {
    const char *repository; /* NULL: the tests' */
    const char *model;
    int64_t rows;
    int64_t count;
    int64_t seconds; /* if not 0, instead of count */
    struct mr_setting settings[8];
    uint32_t setting_count;
    struct mr_plugin *plugin;
    struct mr_executor *opened;
    const struct mr_signature *signature;
    struct mr_tensor in[IO_MAX];
    int64_t in_shapes[IO_MAX][MR_MAX_RANK];
    struct mr_tensor out[IO_MAX]; /* of the first execution, data copied */
    int64_t out_shapes[IO_MAX][MR_MAX_RANK];
    void (*one)(struct bench *b); /* what is measured */
    struct mr_execution x;
    struct mr_arena arena;
    struct mr_exec_output outputs[IO_MAX];
    uint8_t wanted[IO_MAX];
    struct mr_exec_request request;
    /* ONNX Runtime alone */
    const OrtApi *api;
    OrtSession *session;
    OrtMemoryInfo *cpu;
    OrtIoBinding *binding;
    const char *in_names[IO_MAX];
    const char *out_names[IO_MAX];
};

static void die(const char *what)
{
    fprintf(stderr, "ort_run: %s\n", what);
    exit(1);
}

static void check(struct bench *b, OrtStatus *s)
{
    if (s) {
        die(b->api->GetErrorMessage(s));
    }
}

static const char *repository_of(const struct bench *b)
{
    static char path[PATH_MAX / 2];
    const char *source = getenv("MR_SOURCE_DIR");
    const char *root = source ? source : ".";
    const int n = b->repository ? snprintf(path, sizeof path, "%s", b->repository)
                                : snprintf(path, sizeof path, "%s/tests/models/repo", root);
    if (n < 0 || (size_t)n >= sizeof path) {
        die("the path of the repository is too long");
    }
    return path;
}

static const char *file_of(const struct bench *b)
{
    static char path[PATH_MAX];
    const int n = snprintf(path, sizeof path, "%s/%s/1/model.onnx", repository_of(b), b->model);
    if (n < 0 || (size_t)n >= sizeof path) {
        die("the path of the model is too long");
    }
    return path;
}

/* ---- through the host ---- */

static void host_one(struct bench *b)
{
    struct mr_err err;
    if (mr_executor_execute(b->opened, &b->x, &err) < 0) {
        die(err.msg);
    }
    for (uint32_t i = 0; i < b->signature->output_count; i++) {
        mr_block_unref(&b->outputs[i].block);
        b->outputs[i].is_set = false;
    }
    mr_arena_reset(&b->arena);
}

static void inputs_make(struct bench *b)
{
    for (uint32_t i = 0; i < b->signature->input_count; i++) {
        const struct mr_io_desc *io = &b->signature->inputs[i];
        uint64_t bytes = 0;
        for (int d = 0; d < io->rank; d++) {
            b->in_shapes[i][d] = io->dims[d] < 0 ? b->rows : io->dims[d];
        }
        if (mr_shape_bytes(io->dtype, b->in_shapes[i], io->rank, &bytes, NULL) < 0) {
            die("inputs must be numbers of known shape");
        }
        b->in[i] = (struct mr_tensor){.dtype = io->dtype,
                                      .rank = io->rank,
                                      .shape = b->in_shapes[i],
                                      .data = mr_alloc(bytes + 1),
                                      .bytes = bytes};
        b->in_names[i] = io->name;
    }
}

/* The first execution also tells the shapes of the outputs. */
static void outputs_note(struct bench *b)
{
    struct mr_err err;
    if (mr_executor_execute(b->opened, &b->x, &err) < 0) {
        die(err.msg);
    }
    for (uint32_t i = 0; i < b->signature->output_count; i++) {
        struct mr_tensor *t = &b->outputs[i].tensor;
        memcpy(b->out_shapes[i], t->shape, (size_t)t->rank * sizeof(int64_t));
        b->out[i] = *t;
        b->out[i].shape = b->out_shapes[i];
        b->out[i].data = mr_alloc(t->bytes + 1);
        b->out_names[i] = b->signature->outputs[i].name;
        mr_block_unref(&b->outputs[i].block);
        b->outputs[i].is_set = false;
    }
    mr_arena_reset(&b->arena);
}

static void host_open(struct bench *b)
{
    char dir[PATH_MAX];
    const char *dirs[] = {dir};
    const char *build = getenv("MR_BUILD_DIR");
    struct mr_err err;
    snprintf(dir, sizeof dir, "%s/lib/millrace", build ? build : "build/release");
    const struct mr_model_desc desc = {.size = sizeof desc,
                                       .setting_count = b->setting_count,
                                       .name = b->model,
                                       .version = 1,
                                       .model_dir = repository_of(b),
                                       .version_dir = "",
                                       .model_file = file_of(b),
                                       .config_json = "{}",
                                       .settings = b->settings,
                                       .max_batch_size = -1};
    const struct mr_instance_desc instance = {.size = sizeof instance, .name = ""};
    if ((!b->plugin &&
         mr_plugin_open(&b->plugin, MR_STR("onnxruntime"), dirs, 1, NULL, 0, &err) < 0) ||
        mr_plugin_model_open(&b->opened, b->plugin, &desc, &err) < 0 ||
        b->opened->ops->instance_open(b->opened, &instance, &b->x.instance, &err) < 0) {
        die(err.msg);
    }
    b->signature = b->opened->signature;
    if (b->signature->input_count > IO_MAX || b->signature->output_count > IO_MAX) {
        die("too many inputs or outputs");
    }
    inputs_make(b);
    memset(b->wanted, 1, sizeof b->wanted);
    b->request = (struct mr_exec_request){.id = "", .row_count = b->rows};
    b->x.exec = (struct mr_exec){.input_count = b->signature->input_count,
                                 .output_count = b->signature->output_count,
                                 .request_count = 1,
                                 .inputs = b->in,
                                 .output_wanted = b->wanted,
                                 .requests = &b->request,
                                 .row_count = b->signature->batchable == 1 ? b->rows : 0};
    b->x.outputs.list = b->outputs;
    b->x.outputs.arena = &b->arena;
    if (b->arena.limit == 0) {
        mr_arena_init(&b->arena, 65536, 1 << 20);
    }
    outputs_note(b);
}

/* ---- ONNX Runtime alone ---- */

static ONNXTensorElementDataType type_of(int dtype)
{
    static const ONNXTensorElementDataType types[MR_DTYPE_COUNT] = {
        [MR_DTYPE_BOOL] = ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL,
        [MR_DTYPE_INT8] = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8,
        [MR_DTYPE_INT32] = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,
        [MR_DTYPE_INT64] = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,
        [MR_DTYPE_FP32] = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
        [MR_DTYPE_FP64] = ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE,
    };
    return types[dtype];
}

static OrtValue *value_over(struct bench *b, const struct mr_tensor *t)
{
    OrtValue *v = NULL;
    check(b, b->api->CreateTensorWithDataAsOrtValue(b->cpu, t->data, t->bytes, t->shape,
                                                    (size_t)t->rank, type_of(t->dtype), &v));
    return v;
}

static void plain_one(struct bench *b)
{
    OrtValue *in[IO_MAX];
    OrtValue *out[IO_MAX] = {0};
    for (uint32_t i = 0; i < b->signature->input_count; i++) {
        in[i] = value_over(b, &b->in[i]);
    }
    check(b, b->api->Run(b->session, NULL, b->in_names, (const OrtValue *const *)in,
                         b->signature->input_count, b->out_names, b->signature->output_count, out));
    for (uint32_t i = 0; i < b->signature->output_count; i++) {
        void *data;
        check(b, b->api->GetTensorMutableData(out[i], &data));
        memcpy(b->out[i].data, data, b->out[i].bytes);
        b->api->ReleaseValue(out[i]);
    }
    for (uint32_t i = 0; i < b->signature->input_count; i++) {
        b->api->ReleaseValue(in[i]);
    }
}

static void bound_one(struct bench *b)
{
    check(b, b->api->RunWithBinding(b->session, NULL, b->binding));
}

static void alone_open(struct bench *b)
{
    OrtEnv *env = NULL;
    OrtSessionOptions *options = NULL;
    b->api = OrtGetApiBase()->GetApi(21);
    check(b, b->api->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "bench", &env)); /* the backend's own */
    check(b, b->api->CreateSessionOptions(&options));
    check(b, b->api->SetIntraOpNumThreads(options, 1));
    check(b, b->api->CreateSession(env, file_of(b), options, &b->session));
    check(b, b->api->CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &b->cpu));
    check(b, b->api->CreateIoBinding(b->session, &b->binding));
    for (uint32_t i = 0; i < b->signature->input_count; i++) {
        check(b, b->api->BindInput(b->binding, b->in_names[i], value_over(b, &b->in[i])));
    }
    for (uint32_t i = 0; i < b->signature->output_count; i++) {
        check(b, b->api->BindOutput(b->binding, b->out_names[i], value_over(b, &b->out[i])));
    }
}

/* ---- measuring ---- */

/* Not inlined, so that callgrind can be told to look at it alone. */
__attribute__((noinline)) void measured(struct bench *b);
void measured(struct bench *b)
{
    for (int64_t i = 0; i < b->count; i++) {
        b->one(b);
    }
}

static void measure_for_seconds(struct bench *b, const char *name)
{
    const int64_t begin = mr_now_ns();
    const int64_t end = begin + b->seconds * 1000000000;
    const clock_t cpu = clock();
    int64_t done = 0;
    int64_t now = begin;
    while (now < end) {
        b->one(b);
        done++;
        now = mr_now_ns();
    }
    printf("%-8s %s rows %lld: %8.0f ns, %.0f ns of CPU\n", name, b->model, (long long)b->rows,
           (double)(now - begin) / (double)done,
           1e9 * (double)(clock() - cpu) / CLOCKS_PER_SEC / (double)done);
}

static void measure(struct bench *b, const char *name, void (*one)(struct bench *b))
{
    struct rusage before;
    struct rusage after;
    double best = 1e18;
    uint64_t counted = 0;
    b->one = one;
    for (int i = 0; i < 100; i++) {
        one(b);
    }
    if (b->seconds > 0) {
        measure_for_seconds(b, name);
        return;
    }
    getrusage(RUSAGE_SELF, &before);
    for (int round = 0; round < 5; round++) {
        const uint64_t a = allocations;
        const int64_t t = mr_now_ns();
        measured(b);
        const double ns = (double)(mr_now_ns() - t) / (double)b->count;
        best = ns < best ? ns : best;
        counted = allocations - a;
    }
    getrusage(RUSAGE_SELF, &after);
    printf("%-8s %s rows %lld: %8.0f ns, %5.1f allocations, %.4f voluntary switches\n", name,
           b->model, (long long)b->rows, best, (double)counted / (double)b->count,
           (double)(after.ru_nvcsw - before.ru_nvcsw) / (5.0 * (double)b->count));
}

static double resident_kb(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%*d %ld", &pages) != 1) {
        die("cannot read /proc/self/statm");
    }
    fclose(f);
    return (double)pages * 4096 / 1024;
}

/* Opens the model again and again, each with an instance that ran once. */
static void open_many(struct bench *b, int64_t count)
{
    const double before = resident_kb();
    const int64_t begin = mr_now_ns();
    for (int64_t i = 0; i < count; i++) {
        host_open(b);
    }
    printf("%-8s %s: %.2f ms a load, %.1f KiB kept by each\n", "open", b->model,
           (double)(mr_now_ns() - begin) / 1e6 / (double)count,
           (resident_kb() - before) / (double)count);
}

static void usage(void)
{
    die("usage: [--open N] [--repository DIR] [--model NAME] [--rows N] [--count N | --seconds N] "
        "[--way host|plain|bound] [--setting key=value]");
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"model", 1, NULL, 'm'},   {"repository", 1, NULL, 'd'}, {"seconds", 1, NULL, 't'},
        {"rows", 1, NULL, 'r'},    {"count", 1, NULL, 'c'},      {"way", 1, NULL, 'w'},
        {"setting", 1, NULL, 's'}, {"open", 1, NULL, 'o'},       {0}};
    static struct bench b = {.model = "simple", .rows = 1, .count = 20000};
    const char *way = NULL;
    int64_t open_count = 0;
    int o;
    while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
        char *equals = optarg ? strchr(optarg, '=') : NULL;
        switch (o) {
        case 'm': b.model = optarg; break;
        case 'r': b.rows = atoll(optarg); break;
        case 'c': b.count = atoll(optarg); break;
        case 'w': way = optarg; break;
        case 'd': b.repository = optarg; break;
        case 't': b.seconds = atoll(optarg); break;
        case 'o': open_count = atoll(optarg); break;
        case 's':
            if (!equals || b.setting_count == 8) {
                usage();
            }
            *equals = '\0';
            b.settings[b.setting_count++] = (struct mr_setting){optarg, equals + 1};
            break;
        default: usage();
        }
    }
    host_open(&b);
    if (open_count > 0) {
        open_many(&b, open_count);
        return 0;
    }
    alone_open(&b);
    if (!way || strcmp(way, "host") == 0) {
        measure(&b, "host", host_one);
    }
    if (!way || strcmp(way, "plain") == 0) {
        measure(&b, "plain", plain_one);
    }
    if (!way || strcmp(way, "bound") == 0) {
        measure(&b, "bound", bound_one);
    }
    return 0;
}
