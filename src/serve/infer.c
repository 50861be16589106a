/* One inference, whatever the protocol: find and pin the version, check, submit, and bring the outcome to the
 * protocol's reply function, at once or later. On the network thread of the call.
 *
 * `reply` runs exactly once. It builds the answer, calls infer_end and then ends the call, whose arena holds all
 * of this. */
#include <stdio.h>

#include "serve_private.h"

/* Errors about a request carry its id, as Triton's do; those about names that the model does not have begin
 * with their own words there. */
static void add_request_id(struct serve_infer *si)
{
    struct mr_err *err = &si->infer.err;
    char text[sizeof err->msg];

    if (mr_str_starts(mr_str_c(err->msg), MR_STR("unexpected inference ")))
        return;
    mr_str id = si->request.id.len ? mr_str_sub(si->request.id, 0, 100) : MR_STR("<id_unknown>");

    snprintf(text, sizeof text, "[request id: %.*s] %.300s", MR_STR_ARG(id), err->msg);
    memcpy(err->msg, text, sizeof text);
}

static void finish_waiting(struct serve_infer *si)
{
    mr_timer_stop(&si->timer);
    if (si->infer.status < 0)
        add_request_id(si);
    si->reply(si);
}

static void on_done(struct mr_infer *r)
{
    finish_waiting(r->user);
}

static void start_timer(struct serve_infer *si);

static void on_timer(struct mr_timer *t)
{
    struct serve_infer *si = MR_CONTAINER_OF(t, struct serve_infer, timer);

    if (mr_sched_expire(&si->infer))
        finish_waiting(si);
    else
        start_timer(si);
}

/* Requests that wait with a time limit are looked at when it ends; running ones are left alone. */
static void start_timer(struct serve_infer *si)
{
    int64_t at = si->infer.expire_ns;

    if (at == 0)
        return;
    /* Also when it is past by now: all instances may be busy for long, so nobody else would look. */
    mr_timer_start(si->loop->loop, &si->timer, MR_MAX(0, at - mr_now_ns()), 0, on_timer);
}

void infer_init(struct serve_infer *si, struct mr_call *call, struct mr_arena *arena,
                enum mr_infer_protocol protocol)
{
    si->loop = serve_here();
    si->call = call;
    si->infer.arena = arena;
    si->infer.home = &si->loop->home;
    si->infer.protocol = protocol;
    si->infer.on_done = on_done;
    si->infer.user = si;
    si->infer.times.received = call->recv_start_ns;
    si->infer.round_ns = mr_loop_now_ns(call->loop);
}

static int find_version(struct serve_infer *si, mr_str model, mr_str version)
{
    struct mr_version *v;
    int rc = mr_models_find(si->loop->server->models, model, version, &v, &si->infer.err);

    if (rc < 0)
        return rc;
    mr_version_pin(v, si->loop->reader);
    si->infer.version = v;
    si->is_pinned = true;
    return MR_OK;
}

static int refuse_missing_features(const struct mr_oip_request *q, struct mr_err *err)
{
    for (size_t i = 0; i < q->input_count; i++)
        if (q->inputs[i].shm.region.ptr)
            return MR_FAIL(
                err, MR_E_UNSUPPORTED,
                "input '%.*s' is in shared memory: the shared-memory extension is not available in "
                "this version",
                MR_STR_ARG(q->inputs[i].name));
    for (size_t i = 0; i < q->output_count; i++)
        if (q->outputs[i].shm.region.ptr)
            return MR_FAIL(
                err, MR_E_UNSUPPORTED,
                "output '%.*s' is asked for in shared memory: the shared-memory extension is not "
                "available in this version",
                MR_STR_ARG(q->outputs[i].name));
    return MR_OK;
}

void infer_run(struct serve_infer *si, mr_str model, mr_str version)
{
    struct mr_infer *r = &si->infer;
    int rc;

    if (r->deadline_ns && mr_now_ns() >= r->deadline_ns) {
        rc = MR_FAIL(&r->err, MR_E_DEADLINE,
                     "Deadline Exceeded: the request arrived after its deadline");
        goto out;
    }
    MR_TRY(find_version(si, model, version));
    MR_TRY(refuse_missing_features(&si->request, &r->err));
    MR_TRY(mr_infer_bind(r, &si->request, &r->err));
    rc = mr_sched_submit(r);
    if (rc == MR_OK) {
        si->call->user = si->grpc && si->call->streaming ? si->call->user : &si->pending;
        start_timer(si);
        return;
    }
    if (rc == MR_SCHED_DONE)
        rc = r->status;
out:
    if (rc < 0 && si->is_pinned)
        add_request_id(si);
    r->status = rc;
    si->reply(si);
}

/* Outputs of a finished inference as the message to encode. */
int infer_response(struct serve_infer *si, struct mr_oip_response *out, struct mr_err *err)
{
    const struct mr_infer *r = &si->infer;
    const struct mr_version *v = r->version;
    const struct mr_oip_request *q = &si->request;
    size_t max = q->output_count ? q->output_count : v->output_count, n = 0;
    struct mr_oip_tensor *t = MR_ARENA_ARRAY(r->arena, struct mr_oip_tensor, max);

    if (!t)
        return MR_FAIL(err, MR_E_EXHAUSTED, "the answer needs more memory than a request may use");
    for (size_t k = 0; k < max; k++) {
        const struct mr_oip_requested_output *asked = q->output_count ? &q->outputs[k] : NULL;
        uint32_t i = 0;
        while (asked ? i < v->output_count && !mr_str_eq(v->outputs[i].name, asked->name) : i < k)
            i++;
        t[n] = (struct mr_oip_tensor){.name = v->outputs[i].name,
                                      .tensor = r->outputs[i].tensor,
                                      .block = r->outputs[i].block,
                                      .labels = v->outputs[i].labels,
                                      .label_count = v->outputs[i].label_count,
                                      .batched = v->max_batch_size > 0};
        t[n].binary = asked && asked->binary_data >= 0 ? asked->binary_data
                                                       : q->binary_data_output || q->raw_binary;
        t[n].classification = asked ? asked->classification : 0;
        n++;
    }
    *out = (struct mr_oip_response){.model_name = v->model_name,
                                    .model_version = v->number_text,
                                    .id = q->id,
                                    .outputs = t,
                                    .output_count = n};
    return MR_OK;
}

void infer_log_failure(const struct serve_infer *si)
{
    const struct mr_infer *r = &si->infer;
    int status = r->status;

    if (status == MR_E_INTERNAL || status == MR_E_IO || status == MR_E_NOMEM)
        mr_log(MR_LOG_WARN, "request.failed", "req=%s model=%s status=%s %s",
               MR_LOG_STR(si->request.id), r->version ? MR_LOG_STR(r->version->model_name) : "",
               mr_status_name(status), r->err.msg);
    else if (mr_log_verbose() > 0)
        mr_log(MR_LOG_INFO, "request.refused", "req=%s status=%s %s", MR_LOG_STR(si->request.id),
               mr_status_name(status), r->err.msg);
}

static void log_success(const struct serve_infer *si, int64_t now_ns)
{
    const struct mr_infer_times *t = &si->infer.times;

    mr_log(MR_LOG_INFO, "request.done",
           "req=%s model=%s version=%lld rows=%lld queue_us=%lld compute_us=%lld total_us=%lld",
           MR_LOG_STR(si->request.id), MR_LOG_STR(si->infer.version->model_name),
           (long long)si->infer.version->number, (long long)si->infer.rows,
           (long long)(t->start - t->queued) / 1000, (long long)(t->end - t->start) / 1000,
           (long long)(now_ns - t->received) / 1000);
}

/* The answer is built: count, let go of outputs and version. */
void infer_end(struct serve_infer *si)
{
    int64_t now = mr_now_ns();

    if (!si->is_pinned)
        return;
    if (si->infer.status == MR_OK && mr_log_verbose() > 0)
        log_success(si, now);
    si->is_pinned = false;
    mr_infer_finish(&si->infer, si->encode_start_ns ? now - si->encode_start_ns : 0);
}

void infer_cancel(struct serve_infer *si)
{
    if (mr_sched_cancel(&si->infer))
        finish_waiting(si);
}

/* Headers that match the pattern become string parameters of the request. */
int infer_forward_headers(struct serve_infer *si, struct mr_err *err)
{
    const struct mr_server *s = si->loop->server;
    struct mr_oip_request *q = &si->request;
    struct mr_arena *a = si->infer.arena;
    struct mr_oip_param *p;
    size_t n = q->param_count;

    if (!s->has_forward)
        return MR_OK;
    p = MR_ARENA_ARRAY(a, struct mr_oip_param, q->param_count + si->call->header_count);
    if (!p)
        return MR_FAIL(err, MR_E_EXHAUSTED, "the request needs more memory than it may use");
    if (n)
        memcpy(p, q->params, n * sizeof *p);
    for (size_t i = 0; i < si->call->header_count; i++) {
        const struct mr_header *h = &si->call->headers[i];
        mr_str name = mr_arena_str(a, h->name);
        regmatch_t m;
        if (serve_is_secret_header(s, h->name))
            continue;
        if (!name.ptr)
            return MR_FAIL(err, MR_E_EXHAUSTED, "the request needs more memory than it may use");
        if (regexec(&s->forward, name.ptr, 1, &m, 0) != 0 || m.rm_so != 0 ||
            (size_t)m.rm_eo != name.len)
            continue;
        if (mr_str_starts(name, MR_STR("triton_")))
            return MR_FAIL(err, MR_E_INVALID,
                           "header '%s' is forwarded as a parameter, but names that begin with "
                           "'triton_' are reserved",
                           name.ptr);
        p[n++] = (struct mr_oip_param){.key = name, .kind = MR_OIP_STRING, .s = h->value};
    }
    q->params = p;
    q->param_count = n;
    return MR_OK;
}
