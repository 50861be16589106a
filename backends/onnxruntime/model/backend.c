/* The ONNX Runtime backend: entry, settings, and the one environment of the process.
 *
 * Threads: by default all sessions share one pool of as many threads as the process has CPUs (the calling thread is
 * one of them), without spinning, so that an idle server uses no CPU and an update takes no time from requests. ONNX
 * Runtime uses the pool only for operators that are large enough; a small model runs on the caller alone.
 *
 * Telemetry is switched off by the environment before the first call of ONNX Runtime; a call to its API would come
 * too late (it starts a thread and writes files when the environment is made).
 *
 * The environment is made by init and released by fini; the library itself stays mapped (see
 * CMakeLists.txt). init sets an environment variable and so must not race getenv in other threads. */
#include "onnxruntime/session/message.h"
#include "onnxruntime/weights/parameters.h"

static char version_text[64];

static void ORT_API_CALL log_line(void *param, OrtLoggingLevel severity, const char *category,
                                  const char *id, const char *where, const char *message)
{
    /* verbose, info, warning, error, fatal. Its errors are mostly requests that a model could not answer, which are
     * also reported to the client. */
    static const int levels[] = {3, 3, 1, 1, 0};
    char text[900];
    char line[1024];
    (void)param;
    (void)category;
    (void)where;
    onnx_message_clean(message, text, sizeof text);
    snprintf(line, sizeof line, "%.100s%s%s", id && id[0] ? id : "", id && id[0] ? ": " : "", text);
    onnx_host->log(onnx_host, (unsigned)severity < 5 ? levels[severity] : 2, line);
}

static int settings_read(struct onnx_backend *b, const struct mr_setting *settings, uint32_t count,
                         struct mr_err *err)
{
    /* default-max-batch-size is used by the host, which completes configs, and is passed here too */
    static const char *const known[] = {
        "intra_op_thread_count",    "inter_op_thread_count",  "allow_spinning",
        "enable-global-threadpool", "default-max-batch-size", "parameter_memory",
        "parameter_pool_min_bytes", "parameter_cache",        "parameter_cache_bytes",
        "load_bytes_per_second",    "load_yield_seconds"};
    for (uint32_t i = 0; i < count; i++) {
        size_t k = 0;
        while (k < sizeof known / sizeof *known && strcmp(settings[i].key, known[k]) != 0) {
            k++;
        }
        if (k == sizeof known / sizeof *known) {
            return mr_backend_fail(err, MR_E_INVALID,
                                   "backend 'onnxruntime' has no setting '%s'; it has "
                                   "intra_op_thread_count, inter_op_thread_count, allow_spinning, "
                                   "enable-global-threadpool, default-max-batch-size, "
                                   "parameter_memory, parameter_pool_min_bytes, parameter_cache, "
                                   "parameter_cache_bytes, load_bytes_per_second and "
                                   "load_yield_seconds",
                                   settings[i].key);
        }
    }
    int rc = mr_setting_i64(settings, count, known[0], 0, 1024, &b->intra_threads, err);
    if (rc == MR_OK) {
        rc = mr_setting_i64(settings, count, known[1], 0, 1024, &b->inter_threads, err);
    }
    if (rc == MR_OK) {
        rc = mr_setting_bool(settings, count, known[2], &b->allow_spinning, err);
    }
    if (rc == MR_OK) {
        rc = mr_setting_bool(settings, count, known[3], &b->use_global_pool, err);
    }
    b->intra_threads = b->intra_threads > 0 ? b->intra_threads : onnx_cpu_count();
    b->inter_threads = b->inter_threads > 0 ? b->inter_threads : 1;
    return rc;
}

static int env_make(struct onnx_backend *b, struct mr_err *err)
{
    OrtThreadingOptions *threading = NULL;
    int rc;
    if (!b->use_global_pool) {
        return onnx_check(onnx_api->CreateEnvWithCustomLogger(
                              log_line, NULL, ORT_LOGGING_LEVEL_WARNING, "", &b->env),
                          err);
    }
    ONNX_TRY(CreateThreadingOptions(&threading));
    ONNX_TRY(SetGlobalIntraOpNumThreads(threading, (int)b->intra_threads));
    ONNX_TRY(SetGlobalInterOpNumThreads(threading, (int)b->inter_threads));
    ONNX_TRY(SetGlobalSpinControl(threading, b->allow_spinning));
    ONNX_TRY(SetGlobalCustomCreateThreadFn(threading, onnx_thread_start));
    ONNX_TRY(SetGlobalCustomJoinThreadFn(threading, onnx_thread_join));
    ONNX_TRY(CreateEnvWithCustomLoggerAndGlobalThreadPools(
        log_line, NULL, ORT_LOGGING_LEVEL_WARNING, "", threading, &b->env));
out:
    if (threading) {
        onnx_api->ReleaseThreadingOptions(threading);
    }
    return rc;
}

static void backend_fini(void *backend)
{
    struct onnx_backend *b = backend;
    if (b->cpu) {
        onnx_api->ReleaseMemoryInfo(b->cpu);
    }
    if (b->env) {
        onnx_api->ReleaseEnv(b->env);
    }
    if (b->parameters) {
        onnx_parameters_host_free(b->parameters);
    }
    free(b);
}

static int backend_init(const struct mr_setting *settings, uint32_t setting_count,
                        void **out_backend, struct mr_err *err)
{
    int minor = 0;
    int rc;
    struct onnx_backend *b = calloc(1, sizeof *b);
    if (!b) {
        return mr_backend_fail(err, MR_E_NOMEM, "out of memory");
    }
    setenv("ORT_DISABLE_TELEMETRY", "1", 1);
    setenv("ORT_LOAD_CONFIG_FROM_MODEL", "0",
           1); /* a model file could set options that options.c refuses */
    b->use_global_pool = 1;
    if (sscanf(OrtGetApiBase()->GetVersionString(), "1.%d.", &minor) == 1) {
        b->can_cancel_load = minor >= 22;
        b->can_tell_shape = minor >= 24;
        b->has_read_only_memory = minor >= 23;
    }
    b->parameters = onnx_parameters_host_new(settings, setting_count, err);
    if (!b->parameters) {
        rc = err->status;
        goto out;
    }
    if ((rc = settings_read(b, settings, setting_count, err)) < 0 || (rc = env_make(b, err)) < 0) {
        goto out;
    }
    ONNX_TRY(CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &b->cpu));
    ONNX_TRY(GetAllocatorWithDefaultOptions(&b->allocator));
    *out_backend = b;
    return MR_OK;
out:
    backend_fini(b);
    return rc;
}

static const struct mr_backend table = {
    .size = sizeof(struct mr_backend),
    .abi_minor = MR_BACKEND_ABI_MINOR,
    .flags = MR_BACKEND_CHEAP_INSTANCES,
    .name = "onnxruntime",
    .version = version_text,
    .init = backend_init,
    .fini = backend_fini,
    .model_open = onnx_model_open,
    .model_close = onnx_model_close,
    .model_signature = onnx_model_signature,
    .model_bytes = onnx_model_bytes,
    .instance_open = onnx_instance_open,
    .instance_close = onnx_instance_close,
    .execute = onnx_execute,
    .model_memory = onnx_model_memory,
};

int mr_backend_entry_v2(const struct mr_host *h, const struct mr_backend **out, struct mr_err *err)
{
    const OrtApiBase *base = OrtGetApiBase();
    onnx_host = h;
    onnx_api = base->GetApi(ONNX_API_VERSION);
    if (!onnx_api) {
        return mr_backend_fail(err, MR_E_UNSUPPORTED,
                               "ONNX Runtime %s is too old, needed is 1.%d or newer",
                               base->GetVersionString(), ONNX_API_VERSION);
    }
    snprintf(version_text, sizeof version_text, MR_VERSION " (ONNX Runtime %s)",
             base->GetVersionString());
    *out = &table;
    return MR_OK;
}
