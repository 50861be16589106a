/* Opening and closing a model version: one session from a file path, so that external data next to the file is found.
 * All instances share it, as runs of a session are thread safe.
 *
 * A model whose file holds all weights is tiny up to 8 KiB: options.c then chooses defaults that keep
 * the session small. Up to 1 MiB it is small, and probe.c decides whether it uses the thread pool; a larger one
 * always does. The reported size is the growth of the process while the session was made, if no other model was
 * opened at that time, and at least the file's size. */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "onnxruntime/weights/parameters.h"

#define TINY_BYTES    8192
#define SMALL_BYTES   (1 << 20)
#define SESSION_BYTES 32768 /* the least that a session keeps */

/* Opens in progress and started so far; relaxed, they only decide whether a measurement is valid. */
static _Atomic uint64_t opens_running;
static _Atomic uint64_t opens_begun;

/* The file to load: the path itself, or model.onnx inside when it is a folder. */
static int file_find(const struct mr_model_desc *desc, char *path, size_t path_bytes,
                     uint64_t *out_bytes, struct mr_err *err)
{
    struct stat st;
    snprintf(path, path_bytes, "%s", desc->model_file);
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        snprintf(path, path_bytes, "%s/model.onnx", desc->model_file);
    }
    if (stat(path, &st) != 0) {
        return mr_backend_fail(err, errno == ENOENT ? MR_E_NOT_FOUND : MR_E_IO,
                               "cannot open the model file '%s': %s", path, strerror(errno));
    }
    if (!S_ISREG(st.st_mode)) {
        return mr_backend_fail(err, MR_E_INVALID, "the model file '%s' is no file", path);
    }
    if (access(path, R_OK) != 0) {
        return mr_backend_fail(err, MR_E_IO, "cannot read the model file '%s': %s", path,
                               strerror(errno));
    }
    if (st.st_size == 0) {
        return mr_backend_fail(err, MR_E_INVALID, "the model file '%s' is empty", path);
    }
    *out_bytes = (uint64_t)st.st_size;
    return MR_OK;
}

/* True if the weights are in the file, so that its size indicates the model's. */
static int file_is_whole(const char *path, uint64_t bytes)
{
    char *content = bytes <= SMALL_BYTES ? malloc(bytes) : NULL;
    FILE *f = content ? fopen(path, "rb") : NULL;
    int whole = 0;
    if (f) {
        size_t n = fread(content, 1, bytes, f);
        fclose(f);
        /* a tensor with external data has an entry with this key */
        whole = memmem(content, n, "location", 8) == NULL;
    }
    free(content);
    return whole;
}

static uint64_t resident_bytes(void)
{
    unsigned long size = 0;
    unsigned long resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) {
        return 0;
    }
    int n = fscanf(f, "%lu %lu", &size, &resident);
    fclose(f);
    return n == 2 ? (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

struct file {
    const char *path;
    uint64_t bytes;
    uint32_t external; /* references to other files */
    int is_kept;       /* what an earlier process left is to be used, and nothing else */
};

/* Makes the session with mapped parameters; m->session stays NULL if that is not possible or fails: loading in the
 * plain way then shows whether the model is the cause. */
static int session_make_apart(struct onnx_model *m, const struct mr_model_desc *desc,
                              const struct file *file, const struct onnx_defaults *defaults,
                              struct mr_err *err)
{
    OrtSessionOptions *options = NULL;
    int rc = defaults->is_ort ? MR_OK
                              : onnx_parameters_find(m, desc, file->path, file->bytes,
                                                     file->external, &m->parameters, err);
    if (rc < 0 || !m->parameters ||
        (rc = onnx_options_make(m, desc, defaults, &options, err)) < 0) {
        return rc;
    }
    rc = onnx_parameters_session(m->parameters, m, desc, options, err);
    onnx_api->ReleaseSessionOptions(options);
    if (rc == MR_E_CANCELLED) {
        return rc;
    }
    if (rc < 0) {
        onnx_parameters_free(&m->parameters);
        onnx_parameters_plain(m, desc, file->bytes, err);
    }
    return MR_OK;
}

static int session_make_plain(struct onnx_model *m, const struct mr_model_desc *desc,
                              const struct file *file, const struct onnx_defaults *defaults,
                              struct mr_err *err)
{
    OrtSessionOptions *options = NULL;
    int rc = onnx_options_make(m, desc, defaults, &options, err);
    if (rc < 0) {
        return rc;
    }
    struct onnx_pace pace = {.loading = onnx_loading(desc)};
    onnx_pace_plan(&pace, "open", file->bytes);
    const struct onnx_source source = {.path = file->path};
    rc = onnx_session_create(m->backend, &source, options,
                             file->bytes > SMALL_BYTES || file->external > 0 ? pace.loading : NULL,
                             &m->session, err);
    onnx_pace_done(&pace, file->bytes);
    onnx_api->ReleaseSessionOptions(options);
    if (rc < 0) {
        onnx_versions_explain(m->backend, file->path, file->bytes, err);
        rc = err->status;
    }
    if (rc == MR_E_INTERNAL) { /* ONNX Runtime's status for most errors in a file */
        rc = MR_E_INVALID;
        err->status = rc;
    }
    return rc;
}

/* Makes the session; m->bytes becomes what it keeps. */
static int session_make(struct onnx_model *m, const struct mr_model_desc *desc,
                        const struct file *file, const struct onnx_defaults *defaults,
                        struct mr_err *err)
{
    uint64_t begun = atomic_fetch_add_explicit(&opens_begun, 1, memory_order_relaxed) + 1;
    int is_alone = atomic_fetch_add_explicit(&opens_running, 1, memory_order_relaxed) == 0;
    uint64_t before = resident_bytes();
    int rc = session_make_apart(m, desc, file, defaults, err);
    if (rc == MR_OK && !m->session && !file->is_kept) {
        rc = session_make_plain(m, desc, file, defaults, err);
    }
    uint64_t after = resident_bytes();
    is_alone = is_alone && atomic_load_explicit(&opens_begun, memory_order_relaxed) == begun;
    atomic_fetch_sub_explicit(&opens_running, 1, memory_order_relaxed);
    const uint64_t shared = m->parameters ? onnx_parameters_shared(m->parameters) : 0;
    before += shared; /* the host counts them */
    const uint64_t held = m->memory.kept_bytes + m->memory.packed_bytes;
    m->bytes = !m->parameters ? file->bytes : held > shared ? held - shared : 0; /* shared: pages */
    m->bytes += SESSION_BYTES;
    if (is_alone && after > before && after - before > m->bytes) {
        m->bytes = after - before;
    }
    return rc;
}

static void session_drop(struct onnx_model *m)
{
    if (m->session) {
        onnx_api->ReleaseSession(m->session);
        m->session = NULL;
    }
    onnx_parameters_free(&m->parameters);
}

/* The model that an earlier process has left. m->session stays NULL if there is none, or if it cannot be used. */
static int kept_open(struct onnx_model *m, const struct mr_model_desc *desc, struct mr_err *err)
{
    const struct mr_model_kept *kept = onnx_kept(desc);
    const struct file file = {.path = desc->model_file, .is_kept = 1};
    const struct onnx_defaults defaults = {0};

    if (!kept || kept->count == 0) {
        return MR_OK;
    }
    int rc = session_make(m, desc, &file, &defaults, err);
    return rc < 0 || !m->session ? rc : onnx_signature_read(m, desc, err);
}

static int session_open(struct onnx_model *m, const struct mr_model_desc *desc, struct mr_err *err)
{
    char path[4096];
    struct file file = {.path = path};
    struct onnx_contents contents;
    int rc = kept_open(m, desc, err);
    if (rc < 0 || m->session) {
        return rc;
    }
    rc = file_find(desc, path, sizeof path, &file.bytes, err);
    if (rc < 0 || (rc = onnx_files_check(desc, path, file.bytes, &contents, err)) < 0) {
        return rc;
    }
    file.external = contents.external;
    m->has_loop = contents.has_loop;
    const int is_small = file_is_whole(path, file.bytes);
    struct onnx_defaults defaults = {
        .is_tiny = is_small && file.bytes <= TINY_BYTES,
        .caller_only = is_small && onnx_options_may_choose(m->backend, desc),
        .is_ort = onnx_is_ort_name(path),
    };
    if ((rc = session_make(m, desc, &file, &defaults, err)) < 0 ||
        (rc = onnx_signature_read(m, desc, err)) < 0 || !defaults.caller_only ||
        !onnx_model_wants_pool(m, desc)) {
        return rc;
    }
    defaults.caller_only = 0;
    onnx_signature_free(m);
    session_drop(m);
    rc = session_make(m, desc, &file, &defaults, err);
    return rc < 0 ? rc : onnx_signature_read(m, desc, err);
}

static int model_make(struct onnx_backend *b, const struct mr_model_desc *desc,
                      struct onnx_model **out, struct mr_err *err)
{
    int rc;
    struct onnx_model *m = calloc(1, sizeof *m);
    if (!m) {
        return mr_backend_fail(err, MR_E_NOMEM, "out of memory");
    }
    m->backend = b;
    m->memory = (struct mr_model_memory){.size = sizeof m->memory, .reason = m->memory_reason};
    m->name = strdup(desc->name);
    rc = m->name ? session_open(m, desc, err) : mr_backend_fail(err, MR_E_NOMEM, "out of memory");
    if (rc < 0) {
        onnx_model_close(m);
        return rc;
    }
    *out = m;
    return MR_OK;
}

/* A model loaded in a thread of low priority. */
struct making {
    struct onnx_backend *backend;
    const struct mr_model_desc *desc;
    struct onnx_model *made;
    struct mr_err *err;
};

static int making_run(void *ctx)
{
    struct making *x = ctx;
    return model_make(x->backend, x->desc, &x->made, x->err);
}

/* True if the model is large enough for a thread. */
static int is_large(const struct mr_model_desc *desc)
{
    char path[4096];
    struct mr_err ignored;
    uint64_t bytes;

    return file_find(desc, path, sizeof path, &bytes, &ignored) == MR_OK &&
           (bytes > SMALL_BYTES || !file_is_whole(path, bytes));
}

static void restart_log(const struct mr_model_desc *desc, int64_t seconds)
{
    char line[400];
    snprintf(line, sizeof line,
             "model=%.200s version=%lld others leave its load no time: begun again after %lld s, "
             "with an "
             "ordinary priority",
             desc->name, (long long)desc->version, (long long)seconds);
    onnx_host->log(onnx_host, 1, line);
}

int onnx_model_open(void *backend, const struct mr_model_desc *desc, void **out_model,
                    struct mr_err *err)
{
    struct onnx_backend *b = backend;
    struct making x = {.backend = b, .desc = desc, .err = err};
    const int64_t patience_ns = b->parameters->yield_s * 1000000000;
    int gave_up = 0;
    int rc;
    if (!onnx_in_background(desc) || patience_ns == 0 || !is_large(desc)) {
        rc = making_run(&x);
    } else {
        rc = onnx_low_run(making_run, &x, patience_ns, &gave_up);
    }
    if (gave_up && !onnx_host->load_is_unwanted(onnx_loading(desc))) {
        restart_log(desc, b->parameters->yield_s);
        rc = making_run(&x);
    }
    if (rc == MR_OK) {
        *out_model = x.made;
    }
    return rc;
}

void onnx_model_close(void *model)
{
    struct onnx_model *m = model;
    session_drop(m);
    onnx_signature_free(m);
    free(m->shrink_arena);
    free(m->name);
    free(m);
}

int onnx_model_signature(void *model, const struct mr_signature **out, struct mr_err *err)
{
    (void)err;
    *out = &((struct onnx_model *)model)->signature;
    return MR_OK;
}

const struct mr_model_memory *onnx_model_memory(void *model)
{
    return &((struct onnx_model *)model)->memory;
}

uint64_t onnx_model_bytes(void *model)
{
    return ((struct onnx_model *)model)->bytes;
}
