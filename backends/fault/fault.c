/* The fault backend: an identity backend that misbehaves as it is told, to show what the server does
 * about it. Never installed.
 *
 * What it may do wrong is the table in plan.h. The parameters of the model set it for every
 * execution; custom parameters of the first request of an execution, by the same names, change it for
 * that one. Output i is a copy of input i. A model with the parameter `trace` appends a line to that file for
 * each execution: instance, rows, and the first bytes of input 0 in hexadecimal digits.
 *
 * Thread: any; the only shared state is a counter of executions. */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "plan.h"

static const struct mr_host *host;

struct model {
    struct mr_signature signature;
    struct plan plan;
    uint32_t output_count;
    int trace;                   /* descriptor, -1 = none */
    _Atomic uint64_t executions; /* relaxed: only a count */
    _Atomic uint64_t given; /* outputs given and not released; relaxed, checked when all is over */
};

struct instance {
    struct model *model;
    uint32_t index;
};

static void sleep_ms(int64_t ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

static void spin_ms(int64_t ms)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    int64_t end = t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000 + ms;
    do {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    } while (t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000 < end);
}

static int fail(const struct plan *p, struct mr_err *err)
{
    int status = p->fail_status != MR_OK ? p->fail_status : MR_E_INTERNAL;
    return mr_backend_fail(err, status, "%s", p->no_message ? "" : p->fail_message);
}

static int is_held(const char *file)
{
    return file[0] && access(file, F_OK) == 0;
}

/* As if it read a kilobyte in each millisecond. */
static int open_delay(const struct plan *p, struct mr_loading *loading, struct mr_err *err)
{
    if (p->deaf) {
        sleep_ms(p->open_delay_ms);
        return MR_OK;
    }
    for (int64_t ms = 0; ms < p->open_delay_ms || is_held(p->open_hold_file); ms++) {
        int64_t end = ms < p->open_delay_ms ? p->open_delay_ms : ms + 1;
        host->load_progress(loading, "sleep", (uint64_t)ms << 10, (uint64_t)end << 10);
        if (host->load_is_unwanted(loading)) {
            return mr_backend_fail(err, MR_E_CANCELLED, "not wanted any more");
        }
        sleep_ms(1);
    }
    return MR_OK;
}

static int model_open(void *backend, const struct mr_model_desc *desc, void **out_model,
                      struct mr_err *err)
{
    (void)backend;
    struct model *m = calloc(1, sizeof *m);
    if (!m) {
        return mr_backend_fail(err, MR_E_NOMEM, "out of memory");
    }
    plan_init(&m->plan);
    const char *trace = mr_setting_find(desc->settings, desc->setting_count, "trace");
    m->trace = trace ? open(trace, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    int rc = plan_read(&m->plan, desc->settings, desc->setting_count, err);
    if (rc == MR_OK) {
        rc = open_delay(&m->plan, desc->loading, err);
    }
    if (rc == MR_OK && m->plan.fail_open) {
        rc = fail(&m->plan, err);
    }
    if (rc < 0) {
        if (m->trace >= 0) {
            close(m->trace);
        }
        free(m);
        return rc;
    }
    m->signature.flags = m->plan.warmup ? 0 : MR_BACKEND_NO_WARMUP;
    m->signature.size = sizeof m->signature;
    m->signature.from_config = 1;
    m->signature.batchable = -1;
    host->log(host, 3, "fault model opened");
    *out_model = m;
    return MR_OK;
}

static void model_close(void *model)
{
    struct model *m = model;
    if (atomic_load_explicit(&m->given, memory_order_relaxed) != 0) {
        host->log(host, 0, "fault model closed while outputs that it gave are still out");
        abort();
    }
    if (m->trace >= 0) {
        close(m->trace);
    }
    free(m);
}

static int model_signature(void *model, const struct mr_signature **out, struct mr_err *err)
{
    (void)err;
    *out = &((struct model *)model)->signature;
    return MR_OK;
}

static int model_configure(void *model, const struct mr_signature *s, struct mr_err *err)
{
    struct model *m = model;
    if (s->output_count > s->input_count) {
        return mr_backend_fail(err, MR_E_INVALID, "%u outputs need as many inputs, there are %u",
                               s->output_count, s->input_count);
    }
    m->output_count = s->output_count;
    return MR_OK;
}

static int instance_open(void *model, uint32_t index, void **out_instance, struct mr_err *err)
{
    struct model *m = model;
    if (m->plan.fail_instance == (int64_t)index) {
        return fail(&m->plan, err);
    }
    struct instance *i = calloc(1, sizeof *i);
    if (!i) {
        return mr_backend_fail(err, MR_E_NOMEM, "out of memory");
    }
    i->model = m;
    i->index = index;
    *out_instance = i;
    return MR_OK;
}

static void instance_close(void *instance)
{
    free(instance);
}

static void trace(const struct instance *inst, const struct mr_exec *exec)
{
    const struct mr_tensor *in = exec->input_count > 0 ? exec->inputs : NULL;
    char line[128];
    int n = snprintf(line, sizeof line, "%u %lld ", inst->index, (long long)exec->row_count);
    for (uint64_t i = 0; in && i < in->bytes && i < 32; i++) {
        n += snprintf(line + n, sizeof line - (size_t)n, "%02x", ((const uint8_t *)in->data)[i]);
    }
    line[n++] = '\n';
    if (write(inst->model->trace, line, (size_t)n) != n) {
        host->log(host, 0, "the trace cannot be written");
    }
}

static void hold(const struct plan *p)
{
    char held[sizeof p->hold_file + sizeof ".held"];
    snprintf(held, sizeof held, "%s.held", p->hold_file);
    int fd = open(held, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) {
        close(fd);
    }
    while (is_held(p->hold_file)) {
        sleep_ms(1);
    }
}

/* What happens to the process or the thread rather than to an output. */
static void disturb(const struct plan *p)
{
    if (p->delay_ms > 0) {
        sleep_ms(p->delay_ms);
    }
    if (p->hold_file[0]) {
        hold(p);
    }
    if (p->spin_ms > 0) {
        spin_ms(p->spin_ms);
    }
    while (p->hang) {
        pause();
    }
    if (p->exit >= 0) {
        _exit((int)p->exit);
    }
    if (p->abort) {
        abort();
    }
    if (p->segv) {
        raise(SIGSEGV);
    }
}

static void given_release(void *ctx, void *data)
{
    struct model *m = ctx;
    free(data);
    atomic_fetch_sub_explicit(&m->given, 1, memory_order_relaxed);
}

static int output_give(struct model *m, struct mr_exec *exec, uint32_t index,
                       const struct mr_tensor *in, struct mr_err *err)
{
    struct mr_tensor t = *in;
    t.data = malloc(in->bytes + 1);
    if (!t.data) {
        return mr_backend_fail(err, MR_E_NOMEM, "out of memory");
    }
    if (in->bytes > 0) {
        memcpy(t.data, in->data, in->bytes);
    }
    atomic_fetch_add_explicit(&m->given, 1, memory_order_relaxed);
    return host->output_give(exec, index, &t, given_release, m, err);
}

static int output_copy(const struct plan *p, struct mr_exec *exec, uint32_t index,
                       const struct mr_tensor *in, int is_first, struct mr_err *err)
{
    int64_t shape[MR_MAX_RANK];
    uint64_t bytes = in->bytes;
    int32_t dtype = in->dtype;
    int32_t rank = in->rank;
    void *data = NULL;
    if (rank > 0) {
        memcpy(shape, in->shape, (size_t)rank * sizeof *shape);
    }
    if (is_first) {
        bytes += p->wrong_size ? 1 : 0;
        dtype = p->wrong_dtype ? (dtype == MR_DTYPE_INT8 ? MR_DTYPE_BOOL : MR_DTYPE_INT8) : dtype;
        if (rank > 0 && (p->wrong_rows || p->negative_dim)) {
            shape[0] = p->negative_dim ? -5 : shape[0] + 1;
            bytes = 0;
        }
        rank = p->wrong_rank ? 99 : rank;
    }
    int rc = host->output(exec, index, dtype, rank, shape, bytes, &data, err);
    if (rc == MR_OK && p->bad_strings && dtype == MR_DTYPE_BYTES) {
        memset(data, 0xff, bytes);
    } else if (rc == MR_OK && in->bytes > 0) {
        memcpy(data, in->data, in->bytes < bytes ? in->bytes : bytes);
    }
    return rc;
}

static int outputs_make(struct model *m, const struct plan *p, struct mr_exec *exec,
                        struct mr_err *err)
{
    uint32_t last = m->output_count;
    int is_first = 1;
    for (uint32_t i = 0; i < m->output_count; i++) {
        last = exec->output_wanted[i] ? i : last;
    }
    for (uint32_t i = 0; i < m->output_count; i++) {
        const struct mr_tensor *in = &exec->inputs[i];
        if (!exec->output_wanted[i] || (p->missing_output && i == last)) {
            continue;
        }
        if (in->dtype == MR_DTYPE_INVALID) {
            return mr_backend_fail(err, MR_E_INVALID, "input %u was not sent", i);
        }
        int rc =
            p->give ? output_give(m, exec, i, in, err) : output_copy(p, exec, i, in, is_first, err);
        if (rc == MR_OK && is_first && p->twice) {
            rc = output_copy(p, exec, i, in, is_first, err);
        }
        if (rc < 0) {
            return rc;
        }
        is_first = 0;
    }
    return MR_OK;
}

static int execute(void *instance, struct mr_exec *exec, struct mr_err *err)
{
    struct model *m = ((struct instance *)instance)->model;
    struct plan p = m->plan;
    void *data = NULL;
    if (m->trace >= 0) {
        trace(instance, exec);
    }
    int rc = plan_read(&p, exec->requests[0].parameters, exec->requests[0].parameter_count, err);
    if (rc < 0) {
        return rc;
    }
    uint64_t n = atomic_fetch_add_explicit(&m->executions, 1, memory_order_relaxed) + 1;
    disturb(&p);
    if (p.fail_status != MR_OK && p.fail_request < 0 &&
        (p.fail_every == 0 || n % (uint64_t)p.fail_every == 0)) {
        return fail(&p, err);
    }
    if (p.fail_request >= 0 && p.fail_request < exec->request_count) {
        host->fail_request(exec, (uint32_t)p.fail_request,
                           p.fail_status != MR_OK ? p.fail_status : MR_E_INTERNAL, p.fail_message);
    }
    if (p.bad_index) {
        return host->output(exec, exec->output_count, MR_DTYPE_INT8, 0, NULL, 1, &data, err);
    }
    return outputs_make(m, &p, exec, err);
}

static const struct mr_backend table = {
    .size = sizeof(struct mr_backend),
    .abi_minor = MR_BACKEND_ABI_MINOR,
    .flags = MR_BACKEND_CHEAP_INSTANCES | MR_BACKEND_NO_INLINE,
    .name = "fault",
    .version = MR_VERSION,
    .model_open = model_open,
    .model_close = model_close,
    .model_signature = model_signature,
    .model_configure = model_configure,
    .instance_open = instance_open,
    .instance_close = instance_close,
    .execute = execute,
};

int mr_backend_entry_v1(const struct mr_host *h, const struct mr_backend **out, struct mr_err *err)
{
    (void)err;
    host = h;
    *out = &table;
    return MR_OK;
}
