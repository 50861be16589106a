#include "signature.h"

#include <limits.h>
#include <stdio.h>

#include "base/file.h"
#include "base/mem.h"
#include "codec/pbtext.h"
#include "model_config.pb-c.h"

#define FILE_MAX_BYTES (16 << 20)

int import_read_file(const char *path, struct mr_arena *arena, mr_str *out, struct mr_err *err)
{
    char *text = NULL;
    size_t len;
    int rc;

    MR_TRY(mr_file_read(path, FILE_MAX_BYTES, &text, &len, err));
    *out = mr_arena_str(arena, mr_str_n(text, len));
    rc = out->ptr ? MR_OK : MR_FAIL(err, MR_E_TOO_LARGE, "%.300s is too large", path);
out:
    mr_free(text);
    return rc;
}

static bool add(struct flow_tensor **list, const char *name, int32_t dtype, size_t rank,
                const int64_t *dims, struct mr_arena *arena)
{
    struct flow_tensor t = {.dtype = dtype, .rank = (uint32_t)MR_MIN(rank, MR_MAX_RANK)};
    const mr_str copy = mr_arena_str(arena, mr_str_c(name));

    for (uint32_t i = 0; i < t.rank; i++) {
        t.dims[i] = dims[i];
    }
    return copy.ptr && flow_tensor_add(list, &t, copy, arena);
}

static int from_config(const Inference__ModelConfig *c, struct mr_arena *arena,
                       struct signature *out, struct mr_err *err)
{
    bool has_room = true;

    out->max_batch_size = c->max_batch_size;
    for (size_t i = 0; i < c->n_input; i++) {
        has_room &= add(&out->inputs, c->input[i]->name, c->input[i]->data_type,
                        c->input[i]->n_dims, c->input[i]->dims, arena);
    }
    for (size_t i = 0; i < c->n_output; i++) {
        has_room &= add(&out->outputs, c->output[i]->name, c->output[i]->data_type,
                        c->output[i]->n_dims, c->output[i]->dims, arena);
    }
    out->is_known = out->inputs && out->outputs;
    return has_room ? MR_OK : MR_FAIL(err, MR_E_EXHAUSTED, "no memory");
}

static int read_config(const char *repository, mr_str model, struct mr_arena *arena,
                       struct signature *out, struct mr_err *err)
{
    char path[PATH_MAX];
    mr_str text;
    ProtobufCMessage *message;

    if ((size_t)snprintf(path, sizeof path, "%s/%.*s/config.pbtxt", repository,
                         MR_STR_ARG(model)) >= sizeof path) {
        return MR_FAIL(err, MR_E_INVALID, "%.300s: too long a name", repository);
    }
    int rc = import_read_file(path, arena, &text, err);
    if (rc == MR_E_NOT_FOUND) {
        mr_err_clear(err);
        return MR_OK;
    }
    if (rc < 0) {
        return rc;
    }
    rc = mr_pbtext_parse(&inference__model_config__descriptor, text, &message, err);
    if (rc < 0) {
        return MR_WRAP(err, rc, "%s", path);
    }
    rc = from_config((const Inference__ModelConfig *)(const void *)message, arena, out, err);
    protobuf_c_message_free_unpacked(message, NULL);
    return rc;
}

int signature_of(const char *repository, mr_str model, struct mr_arena *arena,
                 struct signature *out, struct mr_err *err)
{
    const int64_t any[] = {-1};
    struct signature s = {.is_known = false};

    if (model.len == 0 || mr_str_eq_c(model, ".") || mr_str_eq_c(model, "..") ||
        mr_str_find(model, '/') >= 0) {
        return MR_FAIL(err, MR_E_INVALID, "'%.64s' is no name of a model", model.ptr);
    }
    int rc = repository ? read_config(repository, model, arena, &s, err) : MR_OK;
    if (rc < 0) {
        return rc;
    }
    if (!s.is_known) {
        s = (struct signature){.is_known = false};
        if (!add(&s.inputs, "INPUT", MR_DTYPE_FP32, 1, any, arena) ||
            !add(&s.outputs, "OUTPUT", MR_DTYPE_FP32, 1, any, arena)) {
            return MR_FAIL(err, MR_E_EXHAUSTED, "no memory");
        }
    }
    *out = s;
    return MR_OK;
}
