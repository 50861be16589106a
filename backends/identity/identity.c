/* The identity backend: every output is a copy of an input. For measuring the server without a model,
 * for tests, and as the shortest example of a backend.
 *
 * The config rules what there is. An output named OUTPUT<x> is paired with the input INPUT<x>,
 * otherwise with the input of its own name, otherwise with the input at its position; data types must
 * agree. Parameter `execute_delay_ms` makes every execution take that much longer (as Triton's backend
 * of this name does).
 *
 * Instances hold nothing, so an instance is the model. Thread: any. */
#include <stdlib.h>
#include <time.h>

#include "millrace/backend_util.h"

static const struct mr_host *host;

struct model {
    struct mr_signature signature;
    int64_t delay_ms;
    uint32_t *pairs;     /* [output_count] input of each output */
    const char **inputs; /* [input_count] names, for messages; the host's memory */
    uint32_t output_count;
};

static int model_open(void *backend, const struct mr_model_desc *desc, void **out_model,
                      struct mr_err *err)
{
    (void)backend;
    struct model *m = calloc(1, sizeof *m);
    if (!m) {
        return mr_backend_fail(err, MR_E_NOMEM, "out of memory");
    }
    int rc = mr_setting_i64(desc->settings, desc->setting_count, "execute_delay_ms", 0, 3600000,
                            &m->delay_ms, err);
    if (rc < 0) {
        free(m);
        return rc;
    }
    m->signature.size = sizeof m->signature;
    m->signature.from_config = 1;
    m->signature.batchable = -1;
    m->signature.flags = m->delay_ms > 0 ? MR_BACKEND_NO_INLINE | MR_BACKEND_NO_WARMUP : 0;
    *out_model = m;
    return MR_OK;
}

static void model_close(void *model)
{
    struct model *m = model;
    free(m->pairs);
    free(m->inputs);
    free(m);
}

static int model_signature(void *model, const struct mr_signature **out, struct mr_err *err)
{
    (void)err;
    *out = &((struct model *)model)->signature;
    return MR_OK;
}

static int input_named(const struct mr_signature *s, const char *prefix, const char *name,
                       uint32_t *out)
{
    size_t len = strlen(prefix);
    for (uint32_t i = 0; i < s->input_count; i++) {
        if (strncmp(s->inputs[i].name, prefix, len) == 0 &&
            strcmp(s->inputs[i].name + len, name) == 0) {
            *out = i;
            return 1;
        }
    }
    return 0;
}

static int pair_find(const struct mr_signature *s, uint32_t output, uint32_t *out,
                     struct mr_err *err)
{
    const struct mr_io_desc *o = &s->outputs[output];
    *out = output;
    if (!(strncmp(o->name, "OUTPUT", 6) == 0 && input_named(s, "INPUT", o->name + 6, out)) &&
        !input_named(s, "", o->name, out) && output >= s->input_count) {
        return mr_backend_fail(
            err, MR_E_INVALID,
            "output '%s' has no input to copy: none is called INPUT… or '%s' like "
            "it, nor stands at position %u",
            o->name, o->name, output);
    }
    if (s->inputs[*out].dtype != o->dtype) {
        return mr_backend_fail(err, MR_E_INVALID,
                               "output '%s' and input '%s', of which it is a copy, have different "
                               "data types",
                               o->name, s->inputs[*out].name);
    }
    return MR_OK;
}

static int model_configure(void *model, const struct mr_signature *s, struct mr_err *err)
{
    struct model *m = model;
    m->pairs = calloc((size_t)s->output_count + 1, sizeof *m->pairs);
    m->inputs = calloc((size_t)s->input_count + 1, sizeof *m->inputs);
    if (!m->pairs || !m->inputs) {
        return mr_backend_fail(err, MR_E_NOMEM, "out of memory");
    }
    for (uint32_t i = 0; i < s->output_count; i++) {
        int rc = pair_find(s, i, &m->pairs[i], err);
        if (rc < 0) {
            return rc;
        }
    }
    for (uint32_t i = 0; i < s->input_count; i++) {
        m->inputs[i] = s->inputs[i].name;
    }
    m->output_count = s->output_count;
    return MR_OK;
}

static void sleep_ms(int64_t ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

static int execute(void *instance, struct mr_exec *exec, struct mr_err *err)
{
    struct model *m = instance;
    if (m->delay_ms > 0) {
        sleep_ms(m->delay_ms);
    }
    for (uint32_t i = 0; i < m->output_count; i++) {
        const struct mr_tensor *in = &exec->inputs[m->pairs[i]];
        void *data = NULL;
        if (!exec->output_wanted[i]) {
            continue;
        }
        if (in->dtype == MR_DTYPE_INVALID) {
            return mr_backend_fail(err, MR_E_INVALID,
                                   "input '%s' was not sent, but an output is a copy of it",
                                   m->inputs[m->pairs[i]]);
        }
        int rc = host->output(exec, i, in->dtype, in->rank, in->shape, in->bytes, &data, err);
        if (rc < 0) {
            return rc;
        }
        if (in->bytes > 0) {
            memcpy(data, in->data, in->bytes);
        }
    }
    return MR_OK;
}

static const struct mr_backend table = {
    .size = sizeof(struct mr_backend),
    .abi_minor = MR_BACKEND_ABI_MINOR,
    .flags = MR_BACKEND_CHEAP_INSTANCES | MR_BACKEND_DETERMINISTIC,
    .name = "identity",
    .version = MR_VERSION,
    .model_open = model_open,
    .model_close = model_close,
    .model_signature = model_signature,
    .model_configure = model_configure,
    .execute = execute,
};

int mr_backend_entry_v1(const struct mr_host *h, const struct mr_backend **out, struct mr_err *err)
{
    (void)err;
    host = h;
    *out = &table;
    return MR_OK;
}
