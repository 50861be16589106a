/* Recording requests for the warm-up of later loads: POST and GET /v2/repository/models/{model}/record-warmup, and
 * millrace.ModelControl/ModelRecordWarmup.
 *
 * The version is found and pinned on the network thread; the rest is done on the administration thread, as it starts
 * threads and opens files. */
#include "record.h"

#include "admin.h"
#include "codec/json.h"
#include "models.pb-c.h"
#include "rest_repo.h"
#include "serve/state/grpc_reply.h"
#include "serve/state/loops.h"
#include "serve/state/reply.h"
#include "serve/state/state.h"

#define REQUESTS_DEFAULT 100
#define SECONDS_DEFAULT  600
#define SECONDS_MAX      86400

enum record_action { RECORD_START, RECORD_STOP, RECORD_STATUS };

struct record_request {
    enum record_action action;
    mr_str version;
    uint64_t requests;
    uint64_t every;
    uint64_t seconds;
};

struct record_job {
    struct admin_job job;
    struct mr_version *version; /* pinned */
    enum record_action action;
    struct mr_record_options options;
    struct mr_record_view view;
    struct mr_call *call;   /* REST */
    struct mr_grpc_call *g; /* gRPC */
    struct mr_err err;
    int rc;
};

static void record_run(struct admin_job *job)
{
    struct record_job *j = MR_CONTAINER_OF(job, struct record_job, job);

    if (j->action == RECORD_START) {
        j->rc = mr_sched_record_start(j->version, &j->options, &j->err);
    } else if (j->action == RECORD_STOP) {
        j->rc = mr_sched_record_stop(j->version, &j->err);
    }
    if (j->rc == MR_OK) {
        mr_sched_record_view(j->version, &j->view);
    }
}

static int64_t seconds_left(const struct mr_record_view *v)
{
    return (v->left_ns + MR_NS_PER_S - 1) / MR_NS_PER_S;
}

static void reply_rest(struct record_job *j)
{
    struct mr_buf *b = mr_loop_scratch(j->call->loop);
    const struct mr_record_view *v = &j->view;

    mr_buf_reset(b);
    MR_BUF_LIT(b, "{\"model_name\":");
    mr_json_put_string(b, j->version->model_name);
    MR_BUF_LIT(b, ",\"version\":");
    mr_json_put_string(b, j->version->number_text);
    mr_buf_printf(b, ",\"state\":\"%s\"", mr_record_state_name(v->state));
    if (v->state != MR_RECORD_NONE) {
        mr_buf_printf(b,
                      ",\"requests\":%u,\"every\":%u,\"seen\":%llu,\"recorded\":%u,\"bytes\":%llu",
                      v->requests, v->every, (unsigned long long)v->seen, v->recorded,
                      (unsigned long long)v->bytes);
    }
    if (v->state == MR_RECORD_RECORDING) {
        mr_buf_printf(b, ",\"seconds_left\":%lld", (long long)seconds_left(v));
    }
    if (v->reason[0]) {
        MR_BUF_LIT(b, ",\"reason\":");
        mr_json_put_string(b, mr_str_c(v->reason));
    }
    mr_buf_char(b, '}');
    reply_buf(j->call, 200, b);
}

static void reply_grpc(struct record_job *j)
{
    Millrace__ModelRecordWarmupResponse r = MILLRACE__MODEL_RECORD_WARMUP_RESPONSE__INIT;
    const struct mr_record_view *v = &j->view;

    r.model_name = (char *)(uintptr_t)j->version->model_name.ptr;
    r.version = (char *)(uintptr_t)j->version->number_text.ptr;
    r.state = (char *)(uintptr_t)mr_record_state_name(v->state);
    r.requests = v->requests;
    r.every = v->every;
    r.seen = v->seen;
    r.recorded = v->recorded;
    r.bytes = v->bytes;
    r.seconds_left = (uint32_t)seconds_left(v);
    r.reason = (char *)(uintptr_t)v->reason;
    grpc_reply_message(j->g, &r.base);
}

static void record_done(struct admin_job *job)
{
    struct record_job *j = MR_CONTAINER_OF(job, struct record_job, job);

    j->err.status = j->rc;
    if (j->rc == MR_OK && j->g) {
        reply_grpc(j);
    } else if (j->rc == MR_OK) {
        reply_rest(j);
    } else if (j->g) {
        grpc_fail_err(j->g, &j->err);
    } else {
        reply_error(j->call, &j->err);
    }
    mr_version_unpin(j->version, serve_here()->epoch_slot);
    mr_free(j);
}

/* One of call and g. Returns an error for the caller to send; otherwise the job sends the answer. */
static int record_submit(struct mr_server *s, mr_str model, const struct record_request *q,
                         struct mr_call *call, struct mr_grpc_call *g, struct mr_err *err)
{
    struct mr_version *v;
    int rc;

    if (q->action != RECORD_STATUS && mr_models_control(s->models) != MR_MODEL_CONTROL_EXPLICIT) {
        return MR_FAIL(err, MR_E_UNAVAILABLE,
                       "requests are recorded with --model-control-mode=explicit only");
    }
    if (q->requests > MR_RECORDS_MAX || q->every > UINT32_MAX || q->seconds > SECONDS_MAX) {
        return MR_FAIL(
            err, MR_E_INVALID,
            "'requests' may be up to %d, 'every' up to 4294967295 and 'seconds' up to %d",
            MR_RECORDS_MAX, SECONDS_MAX);
    }
    rc = mr_models_find(s->models, model, q->version, &v, err);
    if (rc < 0) {
        return rc;
    }
    struct record_job *j = MR_NEW(struct record_job);
    mr_version_pin(v, serve_here()->epoch_slot);
    j->version = v;
    j->action = q->action;
    j->options = (struct mr_record_options){.requests = (uint32_t)q->requests,
                                            .every = (uint32_t)q->every,
                                            .time_ns = (int64_t)q->seconds * MR_NS_PER_S};
    j->call = call;
    j->g = g;
    j->job.run = record_run;
    j->job.done = record_done;
    admin_submit(s, &j->job);
    return MR_OK;
}

/* ---- REST ---- */

static int parse_action(struct mr_json *j, enum record_action *out, struct mr_err *err)
{
    mr_str text;
    int rc = mr_json_string(j, &text);

    if (rc < 0) {
        return rc;
    }
    if (mr_str_eq_c(text, "start")) {
        *out = RECORD_START;
    } else if (mr_str_eq_c(text, "stop")) {
        *out = RECORD_STOP;
    } else if (mr_str_eq_c(text, "status")) {
        *out = RECORD_STATUS;
    } else {
        return MR_FAIL(err, MR_E_INVALID, "'action' is start, stop or status");
    }
    return MR_OK;
}

static int parse_body(struct mr_call *call, struct record_request *q, struct mr_err *err)
{
    struct mr_json j;
    bool first = true;
    mr_str key;
    int rc = MR_OK;

    if (!rest_begin_body(call, &j, err)) {
        return MR_OK;
    }
    while (rc == MR_OK && mr_json_next_key(&j, &first, &key)) {
        uint64_t *number = mr_str_eq_c(key, "requests")  ? &q->requests
                           : mr_str_eq_c(key, "every")   ? &q->every
                           : mr_str_eq_c(key, "seconds") ? &q->seconds
                                                         : NULL;
        if (number) {
            rc = mr_json_u64(&j, number);
        } else if (mr_str_eq_c(key, "version")) {
            rc = rest_parse_version(&j, &q->version);
        } else if (mr_str_eq_c(key, "action")) {
            rc = parse_action(&j, &q->action, err);
        } else {
            rc = MR_FAIL(err, MR_E_INVALID, "'%.*s' is no member of this request",
                         MR_STR_ARG(mr_str_sub(key, 0, 100)));
        }
    }
    return rc < 0 ? rc : mr_json_finish(&j);
}

void record_rest(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    struct record_request q = {.action = RECORD_STATUS, .version = MR_STR(""), .every = 1};
    struct mr_err err = {0};
    int rc = MR_OK;

    q.requests = REQUESTS_DEFAULT;
    q.seconds = SECONDS_DEFAULT;
    if (path->repository.len) {
        rc = MR_FAIL(&err, MR_E_UNSUPPORTED, "'repository_name' specification is not supported");
    }
    if (rc == MR_OK && mr_str_eq_c(call->method, "POST")) {
        q.action = RECORD_START;
        rc = parse_body(call, &q, &err);
    }
    if (rc == MR_OK) {
        rc = record_submit(s, path->model, &q, call, NULL, &err);
    }
    if (rc < 0) {
        err.status = rc;
        reply_error(call, &err);
    }
}

/* ---- gRPC ---- */

void record_grpc(struct mr_server *s, struct mr_grpc_call *g)
{
    Millrace__ModelRecordWarmupRequest *m =
        grpc_request(g, &millrace__model_record_warmup_request__descriptor);
    struct mr_err err = {0};

    if (!m) {
        return;
    }
    struct record_request q = {.action = (enum record_action)m->action,
                               .version = mr_str_c(m->version),
                               .requests = m->requests ? m->requests : REQUESTS_DEFAULT,
                               .every = m->every ? m->every : 1,
                               .seconds = m->seconds ? m->seconds : SECONDS_DEFAULT};
    err.status = (unsigned)m->action > MILLRACE__MODEL_RECORD_WARMUP_REQUEST__ACTION__STATUS
                     ? MR_FAIL(&err, MR_E_INVALID, "there is no action %d", (int)m->action)
                     : record_submit(s, mr_str_c(m->model_name), &q, NULL, g, &err);
    if (err.status < 0) {
        grpc_fail_err(g, &err);
    }
}
