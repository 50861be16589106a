/* What the first process that loads a large model leaves to those that come after it (mr_model_kept): sealed files in
 * memory. They are the model without its tensors; the tensors, each at a page; and their packed forms (packed.c). The next
 * process maps them: it reads and copies nothing, and all processes of the model have these pages in common. They cannot
 * be changed any more.
 *
 * The model says that its tensors lie in /dev/null. ONNX Runtime wants that file to exist, and never reads it, since each
 * of the tensors is given to the session as an initializer over the mapping.
 *
 * Thread: loaders. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "parameters.h"

#define LOCATION   "null"
#define CHUNK      (128 << 10) /* stays in the caches of a processor */
#define GRAPH_MOST (UINT64_C(64) << 20)

/* The last one is there if its session could be made. */
enum { FILE_GRAPH, FILE_TENSORS, FILES, FILE_PACKED = FILES };

struct mr_model_kept *onnx_kept(const struct mr_model_desc *desc)
{
    return desc->size >= offsetof(struct mr_model_desc, kept) + sizeof desc->kept ? desc->kept
                                                                                  : NULL;
}

static int memory_fail(struct mr_err *err, const char *what)
{
    return mr_backend_fail(err, MR_E_EXHAUSTED, "cannot %s shared memory: %s", what,
                           strerror(errno));
}

/* Seals the memory: its bytes and its size cannot change any more. */
static int file_seal(int fd, struct mr_err *err)
{
    return fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0
               ? MR_OK
               : memory_fail(err, "seal");
}

static int graph_make(const struct onnx_bytes *graph, int *out_fd, struct mr_err *err)
{
    *out_fd = memfd_create("mr-graph", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*out_fd < 0) {
        return memory_fail(err, "make");
    }
    return onnx_write_all(*out_fd, graph->at, graph->len, 0) ? file_seal(*out_fd, err)
                                                             : memory_fail(err, "fill");
}

/* Written, not mapped: pages that are written whole need not be cleared before. */
static int tensor_copy(const struct onnx_tensor *t, int from, int to, uint64_t offset,
                       uint8_t *chunk, struct onnx_pace *pace, struct mr_err *err)
{
    for (uint64_t at = 0; at < t->bytes; at += CHUNK) {
        const uint64_t n = t->bytes - at < CHUNK ? t->bytes - at : CHUNK;
        if (!onnx_read_all(from, chunk, n, t->offset + at)) {
            return mr_backend_fail(err, MR_E_IO, "the file of the weights became shorter");
        }
        if (!onnx_write_all(to, chunk, n, offset + at)) {
            return memory_fail(err, "fill");
        }
        if (!onnx_pace_step(pace, n, n)) {
            return mr_backend_fail(err, MR_E_CANCELLED, "the model is not wanted any more");
        }
    }
    return MR_OK;
}

static int tensors_copy(const struct onnx_tensors *t, int from, int to, struct onnx_pace *pace,
                        struct mr_err *err)
{
    uint8_t *chunk = malloc(CHUNK);
    uint64_t offset = 0;
    int rc = chunk ? MR_OK : mr_backend_fail(err, MR_E_NOMEM, "out of memory");

    onnx_pace_plan(pace, "copy", 2 * t->bytes);
    for (size_t i = 0; i < t->count && rc == MR_OK; i++) {
        rc = tensor_copy(&t->at[i], from, to, offset, chunk, pace, err);
        offset = onnx_tensor_next(offset, &t->at[i]);
    }
    free(chunk);
    return rc;
}

static int tensors_make(const struct onnx_tensors *t, uint64_t bytes, int weights,
                        struct onnx_pace *pace, int *out_fd, struct mr_err *err)
{
    *out_fd = memfd_create("mr-weights", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*out_fd < 0 || ftruncate(*out_fd, (off_t)bytes) != 0) {
        return memory_fail(err, "make");
    }
    const int rc = tensors_copy(t, weights, *out_fd, pace, err);
    return rc < 0 ? rc : file_seal(*out_fd, err);
}

static int files_make(int model, uint64_t model_bytes, int weights, const struct onnx_tensors *t,
                      struct onnx_pace *pace, int files[FILES], struct mr_err *err)
{
    uint64_t bytes = 0;
    struct onnx_bytes graph = onnx_compose(model, model_bytes, t, LOCATION, &bytes);
    int rc = graph.is_bad
                 ? mr_backend_fail(err, MR_E_NOMEM, "no memory, or the model file became shorter")
                 : graph_make(&graph, &files[FILE_GRAPH], err);

    free(graph.at);
    return rc < 0 ? rc : tensors_make(t, bytes, weights, pace, &files[FILE_TENSORS], err);
}

int onnx_kept_make(int model, uint64_t model_bytes, int weights, const struct onnx_tensors *t,
                   struct onnx_pace *pace, struct mr_model_kept *out, struct mr_err *err)
{
    int files[FILES] = {-1, -1};

    if (weights == model && model_bytes - t->bytes > GRAPH_MOST) {
        return mr_backend_fail(err, MR_E_UNSUPPORTED,
                               "%llu bytes of the file are not in tensors that can be mapped",
                               (unsigned long long)(model_bytes - t->bytes));
    }
    const int rc = files_make(model, model_bytes, weights, t, pace, files, err);
    if (rc == MR_OK) {
        memcpy(out->fds, files, sizeof files);
        out->count = FILES;
        return rc;
    }
    for (int i = 0; i < FILES; i++) {
        if (files[i] >= 0) {
            close(files[i]);
        }
    }
    return rc;
}

int onnx_kept_packed(const struct mr_model_kept *kept)
{
    return kept->count > FILE_PACKED ? kept->fds[FILE_PACKED] : -1;
}

void onnx_kept_packed_add(struct mr_model_kept *kept, int file)
{
    kept->fds[FILE_PACKED] = file;
    kept->count = FILE_PACKED + 1;
}

int onnx_kept_open(const struct mr_model_kept *kept, struct onnx_bytes *out_graph,
                   struct onnx_tensors *out_tensors, int *out_weights, struct mr_err *err)
{
    struct stat st;

    if (kept->count < FILES || fstat(kept->fds[FILE_GRAPH], &st) != 0) {
        return mr_backend_fail(err, MR_E_INVALID, "what was kept of the model is of another kind");
    }
    const uint64_t bytes = (uint64_t)st.st_size;
    struct onnx_bytes graph = {.at = malloc(bytes + 1), .len = bytes};
    if (!graph.at || !onnx_read_all(kept->fds[FILE_GRAPH], graph.at, bytes, 0) ||
        !onnx_tensors_list(kept->fds[FILE_GRAPH], bytes, 1, 0, out_tensors)) {
        free(graph.at);
        return mr_backend_fail(err, MR_E_NOMEM, "no memory for the model");
    }
    const int weights = fcntl(kept->fds[FILE_TENSORS], F_DUPFD_CLOEXEC, 0);
    if (weights < 0) {
        free(graph.at);
        onnx_tensors_free(out_tensors);
        return mr_backend_fail(err, MR_E_EXHAUSTED, "no descriptor: %s", strerror(errno));
    }
    *out_graph = graph;
    *out_weights = weights;
    return MR_OK;
}

int onnx_kept_options(OrtSessionOptions *options, struct mr_err *err)
{
    return onnx_check(onnx_api->AddSessionConfigEntry(
                          options, "session.model_external_initializers_file_folder_path", "/dev"),
                      err);
}
