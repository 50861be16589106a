/* Triton's model_warmup: every sample is run on every instance before the version becomes ready; a sample
 * that cannot be made or that fails fails the load. On loader threads. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "warmup.h"

/* A sample's tensors are allocated here, so their size is bounded like a request's. */
#define WARMUP_BYTES_MAX (UINT64_C(1) << 31)
#define RANDOM_MOST      99

static int read_file(const struct mr_version *v, const char *file, uint8_t *to, uint64_t bytes,
                     uint64_t *out_bytes, struct mr_err *err)
{
    char name[600], *path; /* too long a name stays too long */
    struct stat st;
    int rc, fd;

    snprintf(name, sizeof name, "warmup/%s", file);
    rc = mr_version_file(v, mr_str_c(name), &path, err);
    if (rc < 0) {
        return MR_WRAP(err, rc, "input_data_file '%.100s'", file);
    }
    /* O_NONBLOCK: a FIFO in the place of a file must not stop a loader */
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    mr_free(path);
    if (fd < 0) {
        return MR_FAIL(err, MR_E_NOT_FOUND, "cannot open warmup/%s: %s", file, strerror(errno));
    }
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        rc = MR_FAIL(err, MR_E_INVALID, "warmup/%s is not a regular file", file);
        goto out;
    }
    if ((uint64_t)st.st_size > bytes) {
        rc = MR_FAIL(err, MR_E_INVALID, "warmup/%s has %lld bytes, the tensor has %llu", file,
                     (long long)st.st_size, (unsigned long long)bytes);
        goto out;
    }
    *out_bytes = 0;
    while (*out_bytes < (uint64_t)st.st_size) {
        ssize_t n = read(fd, to + *out_bytes, (size_t)st.st_size - *out_bytes);
        if (n <= 0) {
            rc = MR_FAIL(err, MR_E_IO, "cannot read warmup/%s: %s", file, strerror(errno));
            goto out;
        }
        *out_bytes += (uint64_t)n;
    }
out:
    close(fd);
    return rc;
}

static int make_shape(struct warmup_sample *sm, const struct mr_model_io *io,
                      const Inference__ModelWarmup__Input *in, int64_t rows, struct mr_tensor *t,
                      struct mr_err *err)
{
    int lead = rows > 0 ? 1 : 0;
    int64_t *shape;

    if ((int)in->n_dims != io->rank) {
        return MR_FAIL(err, MR_E_INVALID, "input '%.*s' has %zu dims, the model expects %d",
                       MR_STR_ARG(io->name), in->n_dims, io->rank);
    }
    shape = MR_ARENA_ARRAY(&sm->arena, int64_t, in->n_dims + 1);
    if (!shape) {
        return MR_FAIL(err, MR_E_NOMEM, "no memory for a warm-up sample");
    }
    if (lead) {
        shape[0] = rows;
    }
    for (size_t i = 0; i < in->n_dims; i++) {
        shape[i + (size_t)lead] = in->dims[i];
        if (in->dims[i] < 0 || (io->dims[i] >= 0 && io->dims[i] != in->dims[i])) {
            return MR_FAIL(err, MR_E_INVALID,
                           "dim %zu of input '%.*s' is %lld, the model expects %lld", i,
                           MR_STR_ARG(io->name), (long long)in->dims[i], (long long)io->dims[i]);
        }
    }
    t->shape = shape;
    t->rank = io->rank + lead;
    t->dtype = (int32_t)in->data_type;
    if (t->dtype != io->dtype) {
        return MR_FAIL(err, MR_E_INVALID, "input '%.*s' has data_type %s, the model expects %s",
                       MR_STR_ARG(io->name), mr_dtype_config_name(t->dtype),
                       mr_dtype_config_name(io->dtype));
    }
    return MR_OK;
}

static int make_input(struct warmup_sample *sm, const struct mr_model_io *io,
                      const Inference__ModelWarmup__Input *in, int64_t rows, struct mr_tensor *t,
                      struct mr_err *err)
{
    uint64_t elements;
    int rc;

    MR_TRY(make_shape(sm, io, in, rows, t, err));
    MR_TRY(mr_shape_elements(t->shape, t->rank, &elements, err));
    size_t unit = t->dtype == MR_DTYPE_BYTES ? 4 : mr_dtype_size(t->dtype);
    if (elements > WARMUP_BYTES_MAX / unit) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "input '%.*s' of the sample is larger than 2 GiB",
                       MR_STR_ARG(io->name));
    }
    t->bytes = elements * unit;
    bool is_file =
        in->input_data_type_case == INFERENCE__MODEL_WARMUP__INPUT__INPUT_DATA_TYPE_INPUT_DATA_FILE;
    uint64_t room =
        is_file && t->dtype == MR_DTYPE_BYTES ? MR_MAX(t->bytes, UINT64_C(1) << 20) : t->bytes;
    t->data = warmup_sample_block(sm, room);
    if (!t->data) {
        return MR_FAIL(err, MR_E_NOMEM, "no memory for a warm-up sample");
    }
    if (!is_file) {
        /* Elements of BYTES are empty strings in either case. */
        memset(t->data, 0, t->bytes);
        if (t->dtype != MR_DTYPE_BYTES &&
            in->input_data_type_case ==
                INFERENCE__MODEL_WARMUP__INPUT__INPUT_DATA_TYPE_RANDOM_DATA) {
            warmup_fill(t, elements, RANDOM_MOST);
        }
        return MR_OK;
    }
    uint64_t got = 0;
    MR_TRY(read_file(sm->infer.version, in->input_data_file, t->data, room, &got, err));
    if (t->dtype == MR_DTYPE_BYTES) {
        t->bytes = got;
        return mr_bytes_tensor_check((mr_bytes){t->data, got}, elements, err);
    }
    if (got != t->bytes) {
        return MR_FAIL(err, MR_E_INVALID, "warmup/%s has %llu bytes, the tensor has %llu",
                       in->input_data_file, (unsigned long long)got, (unsigned long long)t->bytes);
    }
out:
    return rc;
}

static const Inference__ModelWarmup__Input *find_input(const Inference__ModelWarmup *w, mr_str name)
{
    for (size_t i = 0; i < w->n_inputs; i++) {
        if (mr_str_eq_c(name, w->inputs[i]->key)) {
            return w->inputs[i]->value;
        }
    }
    return NULL;
}

static int make_sample(struct warmup_sample *sm, const Inference__ModelWarmup *w,
                       struct mr_err *err)
{
    struct mr_infer *r = &sm->infer;
    const struct mr_version *v = r->version;
    int rc;

    if (v->max_batch_size > 0 ? w->batch_size < 1 || w->batch_size > (uint32_t)v->max_batch_size
                              : w->batch_size > 1) {
        return MR_FAIL(err, MR_E_INVALID, "batch_size %u is outside 1..%d", w->batch_size,
                       MR_MAX(1, v->max_batch_size));
    }
    MR_TRY(warmup_sample_begin(sm, v->max_batch_size > 0 ? w->batch_size : 0, err));
    for (uint32_t i = 0; i < v->input_count; i++) {
        const Inference__ModelWarmup__Input *in = find_input(w, v->inputs[i].name);
        if (in) {
            MR_TRY(make_input(sm, &v->inputs[i], in, r->rows, &r->inputs[i], err));
        } else if (!v->inputs[i].optional) {
            return MR_FAIL(err, MR_E_INVALID, "input '%.*s' is missing",
                           MR_STR_ARG(v->inputs[i].name));
        }
    }
out:
    return rc;
}

static int run_sample(struct mr_sched *s, void *instance, const Inference__ModelWarmup *w,
                      struct mr_err *err)
{
    struct warmup_sample sm;
    int rc;

    warmup_sample_init(&sm, s->version);
    MR_TRY(make_sample(&sm, w, err));
    for (uint32_t i = 0; i < MR_MAX(1u, w->count); i++) {
        MR_TRY(warmup_sample_run(&sm, s, instance, err));
    }
out:
    warmup_sample_fini(&sm);
    return rc;
}

int warmup_config_run(struct mr_sched *s, void *instance, struct mr_err *err)
{
    const Inference__ModelConfig *c = s->version->config;

    for (size_t i = 0; i < c->n_model_warmup; i++) {
        int rc = run_sample(s, instance, c->model_warmup[i], err);
        if (rc < 0) {
            return MR_WRAP(err, rc, "model_warmup sample '%s'", c->model_warmup[i]->name);
        }
    }
    return MR_OK;
}
