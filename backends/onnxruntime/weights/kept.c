/* What the first process that loads a large model leaves to those that come after it (mr_model_kept): two sealed files in
 * memory, the model without its tensors, and the tensors, each at a page. The next process maps them: it reads and copies
 * nothing, and all processes of the model have these pages in common. They cannot be changed any more.
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
#define CHUNK      (1 << 20)
#define GRAPH_MOST (UINT64_C(64) << 20)

enum { FILE_GRAPH, FILE_TENSORS, FILES };

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

/* A file in memory of that size, mapped to be filled. */
static int file_make(const char *name, uint64_t bytes, int *out_fd, uint8_t **out,
                     struct mr_err *err)
{
    const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0) {
        return memory_fail(err, "make");
    }
    *out_fd = fd;
    if (ftruncate(fd, (off_t)bytes) != 0) {
        return memory_fail(err, "size");
    }
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        return memory_fail(err, "map");
    }
    *out = at;
    return MR_OK;
}

/* Seals the memory: its bytes and its size cannot change any more. */
static int file_seal(int fd, uint8_t *at, uint64_t bytes, struct mr_err *err)
{
    munmap(at, bytes);
    return fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0
               ? MR_OK
               : memory_fail(err, "seal");
}

static int tensors_copy(const struct onnx_tensors *t, int from, uint8_t *to, struct onnx_pace *pace,
                        struct mr_err *err)
{
    uint64_t offset = 0;

    onnx_pace_plan(pace, "copy", 2 * t->bytes);
    for (size_t i = 0; i < t->count; i++) {
        const struct onnx_tensor *it = &t->at[i];
        for (uint64_t at = 0; at < it->bytes; at += CHUNK) {
            const uint64_t n = it->bytes - at < CHUNK ? it->bytes - at : CHUNK;
            if (!onnx_read_all(from, to + offset + at, n, it->offset + at)) {
                return mr_backend_fail(err, MR_E_IO, "the file of the weights became shorter");
            }
            if (!onnx_pace_step(pace, n, n)) {
                return mr_backend_fail(err, MR_E_CANCELLED, "the model is not wanted any more");
            }
        }
        offset = onnx_tensor_next(offset, it);
    }
    return MR_OK;
}

static int files_make(int model, uint64_t model_bytes, int weights, const struct onnx_tensors *t,
                      struct onnx_pace *pace, int files[FILES], struct mr_err *err)
{
    uint8_t *at = NULL;
    uint64_t bytes = 0;
    struct onnx_bytes graph = onnx_compose(model, model_bytes, t, LOCATION, &bytes);
    int rc = graph.is_bad
                 ? mr_backend_fail(err, MR_E_NOMEM, "no memory, or the model file became shorter")
                 : file_make("mr-graph", graph.len, &files[FILE_GRAPH], &at, err);

    if (rc == MR_OK) {
        memcpy(at, graph.at, graph.len);
        rc = file_seal(files[FILE_GRAPH], at, graph.len, err);
    }
    free(graph.at);
    if (rc < 0 || (rc = file_make("mr-weights", bytes, &files[FILE_TENSORS], &at, err)) < 0) {
        return rc;
    }
    rc = tensors_copy(t, weights, at, pace, err);
    const int sealed = file_seal(files[FILE_TENSORS], at, bytes, err);
    return rc < 0 ? rc : sealed;
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

int onnx_kept_open(const struct mr_model_kept *kept, struct onnx_bytes *out_graph,
                   struct onnx_tensors *out_tensors, int *out_weights, struct mr_err *err)
{
    struct stat st;

    if (kept->count != FILES || fstat(kept->fds[FILE_GRAPH], &st) != 0) {
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
