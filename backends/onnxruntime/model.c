/* Opening and closing a model version: one session from a file path, so that external data beside the
 * file is found. All instances share it; a run of a session is thread safe.
 *
 * A model is tiny when its file is at most 8 KiB and names no external data; options.c then chooses
 * defaults that keep the session small. The size that is reported is what the process grew by while
 * the session was made, if no other model was opened meanwhile, and never less than the file. */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "onnx.h"

#define TINY_BYTES    8192
#define SESSION_BYTES 32768 /* the least that a session keeps */

/* Opens under way and ever begun; relaxed, they only say whether a measurement is worth anything. */
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
    if (!S_ISREG(st.st_mode) || access(path, R_OK) != 0) {
        return mr_backend_fail(err, MR_E_IO, "the model file '%s' is not a readable file", path);
    }
    if (st.st_size == 0) {
        return mr_backend_fail(err, MR_E_INVALID, "the model file '%s' is empty", path);
    }
    *out_bytes = (uint64_t)st.st_size;
    return MR_OK;
}

static int file_is_tiny(const char *path, uint64_t bytes)
{
    char content[TINY_BYTES];
    FILE *f = bytes <= sizeof content ? fopen(path, "rb") : NULL;
    if (!f) {
        return 0;
    }
    size_t n = fread(content, 1, sizeof content, f);
    fclose(f);
    /* a tensor with external data has an entry with this key */
    return memmem(content, n, "location", 8) == NULL;
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

static int session_make(struct onnx_model *m, const struct mr_model_desc *desc, struct mr_err *err)
{
    char path[4096];
    OrtSessionOptions *options = NULL;
    uint64_t file_bytes = 0;
    int rc = file_find(desc, path, sizeof path, &file_bytes, err);
    if (rc < 0) {
        return rc;
    }
    rc = onnx_options_make(m, desc, file_is_tiny(path, file_bytes), &options, err);
    if (rc < 0) {
        return rc;
    }
    uint64_t begun = atomic_fetch_add_explicit(&opens_begun, 1, memory_order_relaxed) + 1;
    int is_alone = atomic_fetch_add_explicit(&opens_running, 1, memory_order_relaxed) == 0;
    uint64_t before = resident_bytes();
    rc = onnx_check_in(onnx_api->CreateSession(m->backend->env, path, options, &m->session), err,
                       "ONNX Runtime");
    if (rc == MR_E_INTERNAL) { /* ONNX Runtime's word for most of what can be wrong with a file */
        rc = MR_E_INVALID;
        err->status = rc;
    }
    uint64_t after = resident_bytes();
    is_alone = is_alone && atomic_load_explicit(&opens_begun, memory_order_relaxed) == begun;
    atomic_fetch_sub_explicit(&opens_running, 1, memory_order_relaxed);
    onnx_api->ReleaseSessionOptions(options);
    m->bytes = file_bytes + SESSION_BYTES;
    if (is_alone && after > before && after - before > m->bytes) {
        m->bytes = after - before;
    }
    return rc;
}

int onnx_model_open(void *backend, const struct mr_model_desc *desc, void **out_model,
                    struct mr_err *err)
{
    int rc;
    struct onnx_model *m = calloc(1, sizeof *m);
    if (!m) {
        return mr_backend_fail(err, MR_E_NOMEM, "out of memory");
    }
    m->backend = backend;
    m->name = strdup(desc->name);
    rc = m->name ? session_make(m, desc, err) : mr_backend_fail(err, MR_E_NOMEM, "out of memory");
    if (rc == MR_OK) {
        rc = onnx_signature_read(m, desc, err);
    }
    if (rc < 0) {
        onnx_model_close(m);
        return rc;
    }
    *out_model = m;
    return MR_OK;
}

void onnx_model_close(void *model)
{
    struct onnx_model *m = model;
    if (m->session) {
        onnx_api->ReleaseSession(m->session);
    }
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

uint64_t onnx_model_bytes(void *model)
{
    return ((struct onnx_model *)model)->bytes;
}
