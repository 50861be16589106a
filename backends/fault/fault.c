/* The fault backend: an identity backend that misbehaves on request, to test the server's reactions. Never installed.
 *
 * The table in plan.h lists the faults. The parameters of the model set them for every execution; custom parameters
 * of the first request of an execution that has any, by the same names, change them for that one. Output i is a copy of
 * input i. A model with the parameter `trace` appends a line to that file for each execution: instance, rows, and the
 * first bytes of input 0 in hexadecimal digits.
 *
 * It looks at the host as well: a second call of `execute` at once, and an execution more than may be pending, fail.
 *
 * Thread: any; the only shared state of a model is a counter of executions. Executions that end later have threads of
 * their own (later.c). */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "fault.h"

const struct mr_host *fault_host;

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

/* Simulates a load that reads a kilobyte per millisecond. */
static int open_delay(const struct plan *p, struct mr_loading *loading, struct mr_err *err)
{
    for (int64_t ms = 0; ms < p->open_delay_ms || is_held(p->open_hold_file); ms++) {
        int64_t end = ms < p->open_delay_ms ? p->open_delay_ms : ms + 1;
        fault_host->load_progress(loading, "sleep", (uint64_t)ms << 10, (uint64_t)end << 10);
        if (!p->deaf && fault_host->load_is_unwanted(loading)) {
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
    m->signature.flags = (m->plan.warmup ? 0 : MR_BACKEND_NO_WARMUP) |
                         (m->plan.may_inline ? 0 : MR_BACKEND_NO_INLINE);
    m->signature.max_pending = (uint32_t)m->plan.max_pending;
    m->signature.size = sizeof m->signature;
    m->signature.from_config = 1;
    m->signature.batchable = -1;
    fault_host->log(fault_host, 3, "fault model opened");
    *out_model = m;
    return MR_OK;
}

static void model_close(void *model)
{
    struct model *m = model;
    if (atomic_load_explicit(&m->given, memory_order_relaxed) != 0) {
        fault_host->log(fault_host, 0,
                        "fault model closed while outputs that it gave are still out");
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

static int instance_open(void *model, const struct mr_instance_desc *desc, void **out_instance,
                         struct mr_err *err)
{
    struct model *m = model;
    if (m->plan.fail_instance == (int64_t)desc->index) {
        return fail(&m->plan, err);
    }
    struct instance *i = calloc(1, sizeof *i);
    if (!i) {
        return mr_backend_fail(err, MR_E_NOMEM, "out of memory");
    }
    i->model = m;
    i->index = desc->index;
    pthread_mutex_init(&i->mutex, NULL);
    pthread_cond_init(&i->cancelled, NULL);
    *out_instance = i;
    return MR_OK;
}

static void instance_close(void *instance)
{
    struct instance *i = instance;
    later_end(i);
    pthread_cond_destroy(&i->cancelled);
    pthread_mutex_destroy(&i->mutex);
    free(i);
}

static void cancel(void *instance, struct mr_exec *exec)
{
    later_cancel(instance, exec);
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
        fault_host->log(fault_host, 0, "the trace cannot be written");
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

/* Faults of the process or the thread. */
static void disturb(const struct plan *p, int64_t rows)
{
    if (p->delay_ms > 0) {
        sleep_ms(p->delay_ms);
    }
    if (p->hold_file[0] && p->hold_after == 0) {
        hold(p);
    }
    if (p->spin_ms > 0) {
        spin_ms(p->spin_ms);
    }
    while (p->hang) {
        pause();
    }
    if (p->exit >= 0 && rows > p->exit_rows) {
        _exit((int)p->exit);
    }
    if (p->abort) {
        abort();
    }
    if (p->segv) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGSEGV);
        signal(SIGSEGV, SIG_DFL); /* of a sanitizer as well */
        pthread_sigmask(SIG_UNBLOCK, &set, NULL);
        raise(SIGSEGV);
    }
}

static void given_release(void *ctx, void *data)
{
    struct model *m = ctx;
    free(data);
    atomic_fetch_sub_explicit(&m->given, 1, memory_order_relaxed);
}

static int output_give(struct model *m, const struct plan *p, struct mr_exec *exec, uint32_t index,
                       const struct mr_tensor *in, struct mr_err *err)
{
    struct mr_tensor t = *in;
    t.memory_kind = p->on_device ? MR_MEMORY_DEVICE : MR_MEMORY_HOST;
    t.data = malloc(in->bytes + 1);
    if (!t.data) {
        return mr_backend_fail(err, MR_E_NOMEM, "out of memory");
    }
    if (in->bytes > 0) {
        memcpy(t.data, in->data, in->bytes);
    }
    atomic_fetch_add_explicit(&m->given, 1, memory_order_relaxed);
    return fault_host->output_give(exec, index, &t, given_release, m, err);
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
    int rc = fault_host->output(exec, index, dtype, rank, shape, bytes, &data, err);
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
        int rc = p->give || p->on_device ? output_give(m, p, exec, i, in, err)
                                         : output_copy(p, exec, i, in, is_first, err);
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

/* Makes an answer from rows of the inputs. */
static int answer(const struct model *m, struct mr_exec *exec, uint32_t request, uint32_t flags,
                  struct mr_err *err)
{
    const struct mr_exec_request *q = mr_exec_request_at(exec, request);
    struct mr_response *response = NULL;
    int rc = fault_host->response_new(exec, request, &response, err);
    for (uint32_t i = 0; i < m->output_count && rc == MR_OK; i++) {
        int64_t shape[MR_MAX_RANK];
        const struct mr_tensor t =
            mr_tensor_rows(&exec->inputs[i], q->row_begin, q->row_count, shape);
        void *data = NULL;
        rc =
            fault_host->response_output(response, i, t.dtype, t.rank, t.shape, t.bytes, &data, err);
        if (rc == MR_OK && t.bytes > 0) {
            memcpy(data, t.data, t.bytes);
        }
    }
    if (rc < 0) {
        fault_host->response_drop(&response);
        return rc;
    }
    return fault_host->respond(exec, request, &response, flags, err);
}

static void fail_requests(const struct plan *p, struct mr_exec *exec)
{
    const int64_t last = p->fail_request;
    if (last < 0 || last >= exec->request_count) {
        return;
    }
    for (int64_t r = p->fail_times > 0 ? 0 : last; r <= last; r++) {
        for (int64_t n = 0; n < (p->fail_times > 0 ? p->fail_times : 1); n++) {
            fault_host->fail_request(exec, (uint32_t)r,
                                     p->fail_status != MR_OK ? p->fail_status : MR_E_INTERNAL,
                                     p->fail_message);
        }
    }
}

static int answers_make(const struct model *m, const struct plan *p, struct mr_exec *exec,
                        struct mr_err *err)
{
    int rc = MR_OK;
    for (uint32_t r = 0; r < exec->request_count && rc == MR_OK; r++) {
        for (int64_t n = 1; n <= p->responses && rc == MR_OK; n++) {
            const bool is_final = n == p->responses && !p->no_final;
            rc = answer(m, exec, r, is_final ? MR_RESPONSE_FINAL : 0, err);
            if (rc == MR_E_INVALID && p->fail_request >= 0) {
                rc = MR_OK; /* the host refuses answers to a request that has failed */
            }
            if (rc == MR_OK && p->hold_file[0] && n == p->hold_after) {
                hold(p);
            }
        }
        if (rc == MR_OK && p->after_final) {
            rc = answer(m, exec, r, 0, err);
        }
    }
    if (p->fail_last) {
        fail_requests(p, exec);
    }
    return rc;
}

static struct sum *sum_of(struct instance *inst, const struct mr_exec_request *q)
{
    uint32_t i = 0;
    while (i < inst->sum_count && inst->sums[i].id != q->correlation_id) {
        i++;
    }
    if (i == inst->sum_count && i < FAULT_SUMS && (q->sequence_flags & MR_SEQUENCE_START)) {
        inst->sums[inst->sum_count++] = (struct sum){.id = q->correlation_id};
    }
    return i < inst->sum_count ? &inst->sums[i] : NULL;
}

/* What a sequence had before is known to this instance only. */
static int sums_make(struct instance *inst, struct mr_exec *exec, struct mr_err *err)
{
    const struct mr_tensor *in = &exec->inputs[0];
    const int32_t *from = in->data;
    int32_t *to = NULL;
    int rc = fault_host->output(exec, 0, MR_DTYPE_INT32, in->rank, in->shape, in->bytes,
                                (void **)&to, err);
    if (rc < 0) {
        return rc;
    }
    memset(to, 0, in->bytes);
    for (uint32_t i = 0; i < exec->request_count; i++) {
        const struct mr_exec_request *q = mr_exec_request_at(exec, i);
        struct sum *sum = sum_of(inst, q);
        if (!sum) {
            return mr_backend_fail(err, MR_E_INVALID, "sequence %llu is not known here",
                                   (unsigned long long)q->correlation_id);
        }
        sum->value = from[q->row_begin] + (q->sequence_flags & MR_SEQUENCE_START ? 0 : sum->value);
        to[q->row_begin] = sum->value;
        if (q->sequence_flags & MR_SEQUENCE_END) {
            *sum = inst->sums[--inst->sum_count];
        }
    }
    return MR_OK;
}

static int execution_begin(struct instance *inst, struct mr_exec *exec, struct mr_err *err)
{
    const struct mr_exec_request *first = mr_exec_request_at(exec, 0);
    for (uint32_t i = 1; i < exec->request_count && first->parameter_count == 0; i++) {
        first = mr_exec_request_at(exec, i);
    }
    struct plan p = inst->model->plan;
    if (inst->model->trace >= 0) {
        trace(inst, exec);
    }
    int rc = plan_read(&p, first->parameters, first->parameter_count, err);
    if (rc < 0) {
        return rc;
    }
    const uint64_t begun =
        1 + atomic_fetch_add_explicit(&inst->model->begun, 1, memory_order_relaxed);
    if (p.stuck_first > 0 && begun > (uint64_t)p.stuck_first) {
        p.hold_file[0] = '\0';
        p.until_cancelled = 0;
    }
    if (p.attempt[0]) {
        return fault_attempt(p.attempt, err);
    }
    if (p.async == 1) {
        return later_start(inst, &p, exec, err);
    }
    rc = fault_run(inst, &p, exec, err);
    if (p.async == 0) {
        return rc;
    }
    fault_host->complete(exec, rc, err);
    return MR_PENDING;
}

static int execute(void *instance, struct mr_exec *exec, struct mr_err *err)
{
    struct instance *inst = instance;
    if (atomic_exchange_explicit(&inst->is_called, true, memory_order_relaxed)) {
        return mr_backend_fail(err, MR_E_INTERNAL, "the host calls execute twice at once");
    }
    const int rc = execution_begin(inst, exec, err);
    atomic_store_explicit(&inst->is_called, false, memory_order_relaxed);
    return rc;
}

int fault_run(struct instance *inst, const struct plan *p, struct mr_exec *exec, struct mr_err *err)
{
    struct model *m = inst->model;
    void *data = NULL;
    uint64_t n = atomic_fetch_add_explicit(&m->executions, 1, memory_order_relaxed) + 1;
    disturb(p, exec->row_count > 1 ? exec->row_count : 1);
    if (p->fail_status != MR_OK && p->fail_request < 0 &&
        (p->fail_every == 0 || n % (uint64_t)p->fail_every == 0)) {
        return fail(p, err);
    }
    if (!p->fail_last) {
        fail_requests(p, exec);
    }
    if (p->apart && exec->request_count > 1) {
        const int rc = mr_backend_fail(err, MR_E_INVALID, "the outputs do not fit together");
        err->flags |= MR_ERR_APART;
        return rc;
    }
    if (exec->flags & MR_EXEC_DECOUPLED) {
        return answers_make(m, p, exec, err);
    }
    if (p->bad_index) {
        return fault_host->output(exec, exec->output_count, MR_DTYPE_INT8, 0, NULL, 1, &data, err);
    }
    return p->sums ? sums_make(inst, exec, err) : outputs_make(m, p, exec, err);
}

static const struct mr_backend table = {
    .size = sizeof(struct mr_backend),
    .abi_minor = MR_BACKEND_ABI_MINOR,
    .flags = MR_BACKEND_CHEAP_INSTANCES | MR_BACKEND_DECOUPLED,
    .name = "fault",
    .version = MR_VERSION,
    .model_open = model_open,
    .model_close = model_close,
    .model_signature = model_signature,
    .model_configure = model_configure,
    .instance_open = instance_open,
    .instance_close = instance_close,
    .execute = execute,
    .cancel = cancel,
};

int mr_backend_entry_v2(const struct mr_host *h, const struct mr_backend **out, struct mr_err *err)
{
    (void)err;
    fault_host = h;
    *out = &table;
    return MR_OK;
}
