/* Models of other servers: an execution is a call of the client library, which has the connections, chooses among several hosts
 * and tries others.
 *
 * execute runs on the thread that submits, and only starts the call; the call ends on the client's own thread, of which a model
 * has one, and completes the execution there. Inputs are sent from where they lie, outputs stay where they were received.
 *
 * Not here: sequences by a text, and models of several answers. */
#include "remote.h"

#include <pthread.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/vec.h"
#include "codec/json.h"
#include "millrace/backend_util.h"
#include "millrace/client.h"
#include "sched/sched.h"
#include "signature.h"

#define PENDING_MAX                                                                                \
    (1u << 20) /* requests under way: their number is limited where they come from */
#define OPEN_MS        10000
#define TIMEOUT_MS     600000   /* of a request without a deadline */
#define TIMEOUT_MAX_MS 86400000 /* the client's own limit */

struct remote {
    struct mr_executor executor;
    struct mr_signature *signature;
    struct mr_sdk *client;
    char *name;  /* of the model here */
    char *model; /* there */
    char *version;
    char *hosts;
};

/* One execution. In its arena, so that a cancel finds it for as long as the execution is there. */
struct asking {
    pthread_mutex_t lock; /* guards `call`, which a cancel may use when the call ends */
    struct mr_sdk_call *call;
    struct mr_execution *x;
    struct remote *remote;
};

/* ---- answers ---- */

static void result_release(void *result, void *data)
{
    struct mr_sdk_result *r = result;

    (void)data;
    mr_sdk_result_free(&r);
}

static int output_take(struct mr_exec_outputs *o, uint32_t index, const char *name,
                       const struct mr_sdk_result *result, struct mr_block *block,
                       struct mr_err *err)
{
    const int32_t at = mr_sdk_result_find(result, name);
    struct mr_sdk_tensor from = {.size = sizeof from};
    int rc;

    if (at < 0) {
        return MR_FAIL(err, MR_E_INVALID, "the answer has no output '%.128s'", name);
    }
    MR_TRY(mr_sdk_result_output(result, (uint32_t)at, &from));
    const struct mr_tensor t = {.dtype = from.dtype,
                                .rank = from.rank,
                                .shape = from.shape,
                                .data = (void *)(uintptr_t)from.data,
                                .bytes = from.bytes};
    MR_TRY(mr_exec_output_check(o, index, &t, err));
    mr_block_ref(block);
    rc = mr_exec_output_set(o, index, &t, block, err);
    if (rc < 0) {
        mr_block_unref(&block);
    }
out:
    return rc;
}

/* Takes the result. */
static int outputs_take(struct asking *a, struct mr_sdk_result *result, struct mr_err *err)
{
    const struct mr_signature *s = a->remote->signature;
    struct mr_block *block = mr_block_wrap(NULL, 0, result_release, result);
    int rc = MR_OK;

    if (!block) {
        mr_sdk_result_free(&result);
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for a request, try later");
    }
    for (uint32_t i = 0; i < s->output_count && rc == MR_OK; i++) {
        if (a->x->exec.output_wanted[i]) {
            rc = output_take(&a->x->outputs, i, s->outputs[i].name, result, block, err);
        }
    }
    mr_block_unref(&block);
    return rc;
}

/* That a model is not there, or its server wants another key, is no fault of the request. */
static int status_here(int status)
{
    return status == MR_E_NOT_FOUND || status == MR_E_FORBIDDEN ? MR_E_UNAVAILABLE : status;
}

static void on_done(void *ctx, int status, const struct mr_err *why, struct mr_sdk_result *result)
{
    struct asking *a = ctx;
    const struct remote *r = a->remote;
    struct mr_err err;

    pthread_mutex_lock(&a->lock);
    mr_sdk_call_free(&a->call);
    pthread_mutex_unlock(&a->lock);
    mr_err_clear(&err);
    int rc = status < 0 ? MR_FAIL(&err, status_here(status), "%s", why->msg)
                        : outputs_take(a, result, &err);
    if (rc < 0) {
        MR_WRAP(&err, rc, "model '%.128s' of %.200s", r->model, r->hosts);
    }
    mr_execution_complete(a->x, rc, &err);
}

/* ---- requests ---- */

static int inputs_make(const struct asking *a, struct mr_sdk_request *to, struct mr_err *err)
{
    const struct mr_signature *s = a->remote->signature;
    struct mr_sdk_tensor *list =
        MR_ARENA_ARRAY(a->x->outputs.arena, struct mr_sdk_tensor, s->input_count + 1u);

    if (!list) {
        return MR_ARENA_FAIL(err);
    }
    to->inputs = list;
    for (uint32_t i = 0; i < s->input_count; i++) {
        const struct mr_tensor *t = &a->x->exec.inputs[i];
        if (t->dtype != MR_DTYPE_INVALID) {
            list[to->input_count++] = (struct mr_sdk_tensor){.size = sizeof *list,
                                                             .dtype = t->dtype,
                                                             .name = s->inputs[i].name,
                                                             .shape = t->shape,
                                                             .rank = t->rank,
                                                             .data = t->data,
                                                             .bytes = t->bytes};
        }
    }
    return MR_OK;
}

static int outputs_make(const struct asking *a, struct mr_sdk_request *to, struct mr_err *err)
{
    const struct mr_signature *s = a->remote->signature;
    const char **list = MR_ARENA_ARRAY(a->x->outputs.arena, const char *, s->output_count + 1u);

    if (!list) {
        return MR_ARENA_FAIL(err);
    }
    to->outputs = list;
    for (uint32_t i = 0; i < s->output_count; i++) {
        if (a->x->exec.output_wanted[i]) {
            list[to->output_count++] = s->outputs[i].name;
        }
    }
    return MR_OK;
}

static struct mr_sdk_param parameter_of(const struct mr_exec_request *q, uint32_t i)
{
    const struct mr_setting *p = &q->parameters[i];
    const uint8_t kind = q->parameter_kinds ? q->parameter_kinds[i] : MR_PARAMETER_TEXT;
    struct mr_sdk_param out = {
        .size = sizeof out, .kind = MR_SDK_PARAM_STRING, .name = p->key, .s = p->value};
    bool is_on;

    if (kind == MR_PARAMETER_INT && mr_str_to_i64(mr_str_c(p->value), &out.i)) {
        out.kind = MR_SDK_PARAM_INT;
    } else if (kind == MR_PARAMETER_BOOL && mr_str_to_bool(mr_str_c(p->value), &is_on)) {
        out.kind = MR_SDK_PARAM_BOOL;
        out.i = is_on;
    } else if (kind == MR_PARAMETER_DOUBLE && mr_text_double(mr_str_c(p->value), &out.d)) {
        out.kind = MR_SDK_PARAM_DOUBLE;
    }
    return out;
}

/* What a request has besides its tensors. Of a batch of several there are at most ids and priorities, which are left out. */
static int rest_make(const struct asking *a, struct mr_sdk_request *to, struct mr_err *err)
{
    const struct mr_exec_request *q = mr_exec_request_at(&a->x->exec, 0);
    const struct mr_infer *asked = a->x->infers[0];
    const uint32_t count = q->parameter_count;
    struct mr_sdk_param *list =
        MR_ARENA_ARRAY(a->x->outputs.arena, struct mr_sdk_param, count + 1u);

    if (!list) {
        return MR_ARENA_FAIL(err);
    }
    if (asked->sequence && asked->sequence->text.len) {
        return MR_FAIL(err, MR_E_UNSUPPORTED,
                       "a sequence whose id is a text cannot go to another server");
    }
    for (uint32_t i = 0; i < count; i++) {
        list[i] = parameter_of(q, i);
    }
    to->params = list;
    to->param_count = count;
    to->id = q->id;
    to->priority = asked->priority;
    if (asked->sequence) {
        to->sequence_id = asked->sequence->number;
        to->flags |= asked->sequence->flags;
    }
    return MR_OK;
}

/* The longest of the requests' times, as far as a client has it. */
static int64_t timeout_of(const struct mr_execution *x)
{
    int64_t at = 0;

    for (uint32_t i = 0; i < x->exec.request_count; i++) {
        if (!x->infers[i]->deadline_ns) {
            return 0;
        }
        at = MR_MAX(at, x->infers[i]->deadline_ns);
    }
    return MR_MIN(MR_MAX((at - mr_now_ns()) / MR_NS_PER_MS, 1), TIMEOUT_MAX_MS);
}

static int request_make(const struct asking *a, struct mr_sdk_request *to, struct mr_err *err)
{
    int rc;

    /* What to do when the other server is busy is said by the node, or by who asks. */
    *to = (struct mr_sdk_request){.size = sizeof *to,
                                  .flags = MR_SDK_FAIL_FAST,
                                  .model = a->remote->model,
                                  .version = a->remote->version,
                                  .timeout_ms = timeout_of(a->x)};
    MR_TRY(inputs_make(a, to, err));
    MR_TRY(outputs_make(a, to, err));
    MR_TRY(a->x->exec.request_count == 1 ? rest_make(a, to, err) : MR_OK);
out:
    return rc;
}

static int remote_execute(struct mr_executor *e, struct mr_execution *x, struct mr_err *err)
{
    struct remote *r = MR_CONTAINER_OF(e, struct remote, executor);
    struct asking *a = MR_ARENA_NEW(x->outputs.arena, struct asking);
    struct mr_sdk_request request;
    int rc;

    if (!a) {
        return MR_ARENA_FAIL(err);
    }
    *a = (struct asking){.x = x, .remote = r};
    MR_TRY(request_make(a, &request, err));
    pthread_mutex_init(&a->lock, NULL);
    /* release: a cancel finds it whole */
    atomic_store_explicit(&x->handle, a, memory_order_release);
    pthread_mutex_lock(&a->lock); /* the call may end at once, on the client's thread */
    rc = mr_sdk_infer_start(r->client, &request, on_done, a, &a->call, err);
    pthread_mutex_unlock(&a->lock);
    rc = rc < 0 ? rc : MR_PENDING;
out:
    return rc;
}

static void remote_cancel(struct mr_executor *e, struct mr_execution *x)
{
    struct asking *a = atomic_load_explicit(&x->handle, memory_order_acquire);

    (void)e;
    if (a) {
        pthread_mutex_lock(&a->lock);
        if (a->call) {
            mr_sdk_call_cancel(a->call);
        }
        pthread_mutex_unlock(&a->lock);
    }
}

/* ---- the model ---- */

static void remote_close(struct mr_executor *e)
{
    struct remote *r = MR_CONTAINER_OF(e, struct remote, executor);

    mr_sdk_free(&r->client);
    mr_free(r->signature);
    mr_free(r->name);
    mr_free(r->model);
    mr_free(r->version);
    mr_free(r->hosts);
    mr_free(r);
}

static int remote_configure(struct mr_executor *e, const struct mr_signature *s, struct mr_err *err)
{
    (void)s;
    return MR_FAIL(err, MR_E_INVALID, "the server of model '%s' says its inputs and outputs",
                   e->model);
}

static uint64_t remote_bytes(const struct mr_executor *e)
{
    (void)e;
    return 0;
}

static struct mr_model_memory remote_memory(const struct mr_executor *e)
{
    (void)e;
    return (struct mr_model_memory){.reason = ""};
}

static int remote_instance_open(struct mr_executor *e, const struct mr_instance_desc *desc,
                                void **out, struct mr_err *err)
{
    (void)desc;
    (void)err;
    *out = e; /* it keeps nothing */
    return MR_OK;
}

static void remote_instance_close(struct mr_executor *e, void *instance)
{
    (void)e;
    (void)instance;
}

static bool remote_has_place(const struct mr_executor *e, const struct mr_tensor *input)
{
    (void)e;
    (void)input;
    return true;
}

static const struct mr_executor_ops remote_ops = {.close = remote_close,
                                                  .configure = remote_configure,
                                                  .bytes = remote_bytes,
                                                  .memory = remote_memory,
                                                  .instance_open = remote_instance_open,
                                                  .instance_close = remote_instance_close,
                                                  .execute = remote_execute,
                                                  .cancel = remote_cancel,
                                                  .has_place = remote_has_place};

static const char *setting(const struct mr_model_desc *desc, const char *key)
{
    const char *text = mr_setting_find(desc->settings, desc->setting_count, key);

    return text ? text : "";
}

static int timeout_read(const struct mr_model_desc *desc, int64_t *out, struct mr_err *err)
{
    const char *text = setting(desc, "timeout_ms");

    *out = TIMEOUT_MS;
    return !text[0] || (mr_str_to_i64(mr_str_c(text), out) && *out > 0 && *out <= TIMEOUT_MAX_MS)
               ? MR_OK
               : MR_FAIL(err, MR_E_INVALID,
                         "parameter 'timeout_ms' is '%.64s', allowed are 1 to %d", text,
                         TIMEOUT_MAX_MS);
}

/* hosts: a copy, which is cut into addresses. */
static int client_make(struct remote *r, char *hosts, int64_t timeout_ms, struct mr_err *err)
{
    MR_VEC(const char *) urls = {0};
    struct mr_sdk_options o = {.size = sizeof o, .timeout_ms = timeout_ms};
    char *rest = hosts;

    for (char *one; (one = strsep(&rest, ";")) != NULL;) {
        if (one[0]) {
            MR_VEC_PUSH(&urls, one);
        }
    }
    o.urls = urls.at;
    o.url_count = (uint32_t)urls.len;
    if (urls.len == 1) { /* there is no other host to try instead */
        o.attempt_timeout_ms = timeout_ms;
    }
    int rc = urls.len > 0 ? mr_sdk_create(&r->client, &o, err)
                          : MR_FAIL(err, MR_E_INVALID, "parameter 'remote' has to give an address");
    MR_VEC_FINI(&urls);
    return rc;
}

static int open_as(struct remote *r, const struct mr_model_desc *desc, struct mr_err *err)
{
    char *hosts = mr_strndup(r->hosts, strlen(r->hosts));
    int64_t timeout_ms;
    int rc;

    MR_TRY(timeout_read(desc, &timeout_ms, err));
    MR_TRY(client_make(r, hosts, timeout_ms, err));
    rc =
        remote_signature(r->client, r->model, r->version, OPEN_MS, PENDING_MAX, &r->signature, err);
    MR_TRY(rc < 0 ? MR_WRAP(err, rc, "model '%.128s' of %.200s", r->model, r->hosts) : MR_OK);
    r->executor.signature = r->signature;
out:
    mr_free(hosts);
    return rc;
}

static char *copy(const char *text)
{
    return mr_strndup(text, strlen(text));
}

int remote_open(const struct mr_model_desc *desc, struct mr_executor **out, struct mr_err *err)
{
    struct remote *r = MR_NEW(struct remote);
    const char *model = setting(desc, "model");

    r->name = copy(desc->name);
    r->model = copy(model[0] ? model : desc->name);
    r->version = copy(setting(desc, "version"));
    r->hosts = copy(setting(desc, "remote"));
    r->executor = (struct mr_executor){.ops = &remote_ops,
                                       .backend = "remote",
                                       .model = r->name,
                                       .hands_over = true,
                                       .lone_parameters = true};
    const int rc = open_as(r, desc, err);
    if (rc < 0) {
        remote_close(&r->executor);
        return rc;
    }
    *out = &r->executor;
    return MR_OK;
}
