/* The identity backend: every output is a copy of an input. For measuring the server without a model,
 * for tests, and as the shortest example of a backend.
 *
 * The config defines inputs and outputs. An output named OUTPUT<x> is paired with the input INPUT<x>, otherwise with
 * the input of its own name, otherwise with the input at its position; data types must agree. Parameter
 * `execute_delay_ms` delays every execution by that time (as in Triton's backend of this name).
 *
 * For a decoupled model, the parameter `repeat` of the request, or of the model, is the number of answers (1), each
 * `repeat_delay_ms` after the previous one.
 *
 * Instances hold nothing, so an instance is the model. Thread: any. */
#include <stdlib.h>
#include <time.h>

#include "millrace/backend_util.h"

static const struct mr_host *host;

struct model {
    struct mr_signature signature;
    int64_t delay_ms;
    int64_t repeat;
    int64_t repeat_delay_ms;
    uint32_t *pairs;     /* [output_count] input of each output */
    const char **inputs; /* [input_count] names, for messages; the host's memory */
    uint32_t output_count;
};

static int repeat_read(const struct mr_setting *settings, uint32_t count, int64_t *repeat,
                       int64_t *delay_ms, struct mr_err *err)
{
    int rc = mr_setting_i64(settings, count, "repeat", 0, 1000000000, repeat, err);
    return rc < 0 ? rc
                  : mr_setting_i64(settings, count, "repeat_delay_ms", 0, 3600000, delay_ms, err);
}

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
    m->repeat = 1;
    rc = rc < 0 ? rc
                : repeat_read(desc->settings, desc->setting_count, &m->repeat, &m->repeat_delay_ms,
                              err);
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

/* Finds the input for output `i`. */
static int source_find(const struct model *m, const struct mr_tensor *inputs, uint32_t i,
                       const struct mr_tensor **out, struct mr_err *err)
{
    *out = &inputs[m->pairs[i]];
    if ((*out)->dtype == MR_DTYPE_INVALID) {
        return mr_backend_fail(err, MR_E_INVALID,
                               "input '%s' was not sent, but an output is a copy of it",
                               m->inputs[m->pairs[i]]);
    }
    return MR_OK;
}

static int answer_one(const struct model *m, struct mr_exec *exec, uint32_t request, uint32_t flags,
                      struct mr_err *err)
{
    const struct mr_exec_request *q = mr_exec_request_at(exec, request);
    struct mr_response *response = NULL;
    int rc = host->response_new(exec, request, &response, err);
    for (uint32_t i = 0; i < m->output_count && rc == MR_OK; i++) {
        const struct mr_tensor *in = NULL;
        int64_t shape[MR_MAX_RANK];
        void *data = NULL;
        if (!exec->output_wanted[i]) {
            continue;
        }
        rc = source_find(m, exec->inputs, i, &in, err);
        if (rc < 0) {
            break;
        }
        const struct mr_tensor rows = mr_tensor_rows(in, q->row_begin, q->row_count, shape);
        rc = host->response_output(response, i, rows.dtype, rows.rank, rows.shape, rows.bytes,
                                   &data, err);
        if (rc == MR_OK && rows.bytes > 0) {
            memcpy(data, rows.data, rows.bytes);
        }
    }
    if (rc < 0) {
        host->response_drop(&response);
        return rc;
    }
    return host->respond(exec, request, &response, flags, err);
}

/* Sends all answers to one request. A failure fails this request only. */
static void answer_all(const struct model *m, struct mr_exec *exec, uint32_t request)
{
    const struct mr_exec_request *q = mr_exec_request_at(exec, request);
    struct mr_err err = {0};
    int64_t repeat = m->repeat;
    int64_t delay_ms = m->repeat_delay_ms;
    int rc = repeat_read(q->parameters, q->parameter_count, &repeat, &delay_ms, &err);
    if (rc == MR_OK && repeat == 0) {
        rc = host->respond(exec, request, NULL, MR_RESPONSE_FINAL, &err);
    }
    for (int64_t n = 0; n < repeat && rc == MR_OK; n++) {
        if (n > 0 && delay_ms > 0) {
            sleep_ms(delay_ms);
        }
        rc = answer_one(m, exec, request, n + 1 == repeat ? MR_RESPONSE_FINAL : 0, &err);
    }
    if (rc < 0) {
        host->fail_request(exec, request, rc, err.msg);
    }
}

static int execute(void *instance, struct mr_exec *exec, struct mr_err *err)
{
    struct model *m = instance;
    if (m->delay_ms > 0) {
        sleep_ms(m->delay_ms);
    }
    for (uint32_t i = 0; (exec->flags & MR_EXEC_DECOUPLED) && i < exec->request_count; i++) {
        answer_all(m, exec, i);
    }
    if (exec->flags & MR_EXEC_DECOUPLED) {
        return MR_OK;
    }
    for (uint32_t i = 0; i < m->output_count; i++) {
        const struct mr_tensor *in = NULL;
        void *data = NULL;
        if (!exec->output_wanted[i]) {
            continue;
        }
        int rc = source_find(m, exec->inputs, i, &in, err);
        if (rc < 0) {
            return rc;
        }
        rc = host->output(exec, i, in->dtype, in->rank, in->shape, in->bytes, &data, err);
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
    .flags = MR_BACKEND_CHEAP_INSTANCES | MR_BACKEND_DETERMINISTIC | MR_BACKEND_DECOUPLED,
    .name = "identity",
    .version = MR_VERSION,
    .model_open = model_open,
    .model_close = model_close,
    .model_signature = model_signature,
    .model_configure = model_configure,
    .execute = execute,
};

int mr_backend_entry_v2(const struct mr_host *h, const struct mr_backend **out, struct mr_err *err)
{
    (void)err;
    host = h;
    *out = &table;
    return MR_OK;
}
