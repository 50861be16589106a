/* GET /v2/models/{model}[/versions/{version}]/workers, an answer of Millrace's own: the worker processes of a version.
 * Made on the administration thread, as it reads files of /proc. */
#include "rest_workers.h"

#include "admin.h"
#include "base/clock.h"
#include "codec/json.h"
#include "sentinel/sentinel.h"
#include "serve/state/reply.h"
#include "serve/state/state.h"

struct workers_job {
    struct admin_job job;
    struct mr_server *server;
    struct mr_call *call;
    mr_str model, version; /* in the call's arena */
    struct mr_buf body;
    struct mr_err err;
    int rc;
};

static void put_worker(struct mr_buf *b, const struct mr_worker_report *w)
{
    const char *comma = "";

    mr_buf_printf(b,
                  "{\"worker\":%u,\"pid\":%d,\"state\":\"%s\",\"age_ns\":%lld,"
                  "\"resident_bytes\":%llu,\"cpu_ns\":%lld,\"restarts\":{",
                  w->index, w->pid, mr_worker_state_name(w->state),
                  (long long)(mr_now_ns() - w->since_ns), (unsigned long long)w->resident_bytes,
                  (long long)w->cpu_ns);
    for (int f = 0; f < MR_WORKER_FAULTS; f++) {
        mr_buf_printf(b, "%s\"%s\":%llu", comma, mr_worker_fault_name((enum mr_worker_fault)f),
                      (unsigned long long)w->restarts[f]);
        comma = ",";
    }
    MR_BUF_LIT(b, "},\"last_fault\":");
    mr_json_put_string(b, mr_str_c(w->last_fault));
    mr_buf_char(b, '}');
}

/* Of each reason that had any. */
static void put_times(struct mr_buf *b, const char *name, const struct mr_worker_times *times)
{
    const char *comma = "";

    mr_buf_printf(b, "\"%s\":{", name);
    for (int f = 0; f < MR_WORKER_FAULTS; f++) {
        const struct mr_worker_times *t = &times[f];
        if (t->count > 0) {
            mr_buf_printf(b, "%s\"%s\":{\"count\":%llu,\"mean_ns\":%llu,\"max_ns\":%llu}", comma,
                          mr_worker_fault_name((enum mr_worker_fault)f),
                          (unsigned long long)t->count, (unsigned long long)(t->sum_ns / t->count),
                          (unsigned long long)t->max_ns);
            comma = ",";
        }
    }
    MR_BUF_LIT(b, "},");
}

static void put_version(struct mr_buf *b, const struct mr_version *v)
{
    struct mr_worker_report list[MR_WORKERS_MAX];
    const bool is_process = mr_sentinel_is_executor(v->executor);
    const uint32_t count = is_process ? mr_sentinel_report(v->executor, list, MR_WORKERS_MAX) : 0;
    const struct mr_quarantine_stats q = mr_sched_quarantine(v);
    struct mr_workers_report sum = {0};

    MR_BUF_LIT(b, "{\"model_name\":");
    mr_json_put_string(b, v->model_name);
    MR_BUF_LIT(b, ",\"model_version\":");
    mr_json_put_string(b, v->number_text);
    mr_buf_printf(b, ",\"placement\":\"%s\",\"quarantine\":{\"held\":%u,\"refused\":%llu},",
                  is_process ? "process" : "thread", q.held, (unsigned long long)q.refused);
    if (is_process) {
        mr_sentinel_sum(v->executor, &sum);
    }
    put_times(b, "detection", sum.detection);
    put_times(b, "replacement", sum.replacement);
    MR_BUF_LIT(b, "\"workers\":[");
    for (uint32_t i = 0; i < count && i < MR_WORKERS_MAX; i++) {
        if (i) {
            mr_buf_char(b, ',');
        }
        put_worker(b, &list[i]);
    }
    MR_BUF_LIT(b, "]}");
}

static void workers_run(struct admin_job *job)
{
    struct workers_job *j = MR_CONTAINER_OF(job, struct workers_job, job);
    struct mr_version *v;

    j->rc = mr_models_acquire(j->server->models, j->model, j->version, &v, &j->err);
    if (j->rc == MR_OK) {
        put_version(&j->body, v);
        mr_version_unpin(v, MR_EPOCH_SLOT_NONE);
    }
}

static void workers_done(struct admin_job *job)
{
    struct workers_job *j = MR_CONTAINER_OF(job, struct workers_job, job);

    if (j->rc < 0) {
        reply_error(j->call, &j->err);
    } else {
        reply_json(j->call, 200, mr_buf_view(&j->body));
    }
    mr_buf_fini(&j->body);
    mr_free(j);
}

void rest_workers(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    struct workers_job *j = MR_NEW(struct workers_job);

    j->server = s;
    j->call = call;
    j->model = path->model;
    j->version = path->version;
    j->job.run = workers_run;
    j->job.done = workers_done;
    mr_buf_init(&j->body, 1u << 20);
    admin_submit(s, &j->job);
}
