/* GET /v2/models/{model}/versions, an answer of Millrace's own: every load of the model's versions that goes on
 * or has lately ended, with its phases. Made on the administration thread, as it needs the manager's lock. */
#include "rest_versions.h"

#include "admin.h"
#include "codec/json.h"
#include "serve/state/reply.h"
#include "serve/state/state.h"

struct versions_job {
    struct admin_job job;
    struct mr_server *server;
    struct mr_call *call;
    mr_str model; /* in the call's arena */
    struct mr_buf body;
    struct mr_err err;
    int rc;
};

static void put_text(struct mr_buf *b, const char *key, mr_str text)
{
    if (text.len == 0) {
        return;
    }
    mr_buf_printf(b, ",\"%s\":", key);
    mr_json_put_string(b, text);
}

/* {"LOADING":...} of the states that the version has been in */
static void put_states(struct mr_buf *b, const struct mr_load_view *l, bool is_time)
{
    const char *comma = "";
    char text[32];

    for (int i = 0; i < MR_VERSION_STATES; i++) {
        if (l->entered_wall_ns[i] == 0) {
            continue;
        }
        mr_buf_printf(b, "%s\"%s\":", comma, mr_version_state_name((enum mr_version_state)i));
        if (is_time) {
            mr_buf_printf(b, "\"%s\"", mr_wall_text(l->entered_wall_ns[i], text));
        } else {
            mr_buf_printf(b, "%lld", (long long)l->spent_ns[i]);
        }
        comma = ",";
    }
}

/* Which of the loads of a version the labels are on: the one that is ready. */
static void put_labels(struct mr_buf *b, const struct mr_model_view *view,
                       const struct mr_load_view *l)
{
    const char *comma = "";

    MR_BUF_LIT(b, ",\"labels\":[");
    for (size_t i = 0; i < view->label_count; i++) {
        if (l->state != MR_VERSION_READY || view->labels[i].version != l->version) {
            continue;
        }
        mr_buf_c(b, comma);
        mr_json_put_string(b, view->labels[i].name);
        comma = ",";
    }
    mr_buf_char(b, ']');
}

static void put_number(struct mr_buf *b, const char *key, int64_t n)
{
    mr_buf_printf(b, "%s\"%s\":%lld", b->ptr[b->len - 1] == '{' ? "" : ",", key, (long long)n);
}

static void put_progress(struct mr_buf *b, const struct mr_progress_view *p)
{
    MR_BUF_LIT(b, ",\"progress\":{\"step\":");
    mr_json_put_string(b, mr_str_c(p->step));
    put_number(b, "done_bytes", (int64_t)p->done_bytes);
    put_number(b, "total_bytes", (int64_t)p->total_bytes);
    if (p->left_ns >= 0) {
        put_number(b, "bytes_per_second", (int64_t)p->bytes_per_second);
        put_number(b, "left_ns", p->left_ns);
    }
    mr_buf_char(b, '}');
}

static void put_memory(struct mr_buf *b, const struct mr_memory_view *m)
{
    MR_BUF_LIT(b, ",\"memory\":{");
    if (m->is_known) {
        mr_buf_printf(b, "\"parameters\":\"%s\"", m->is_apart ? "pool" : "plain");
    }
    if (m->is_apart) {
        put_number(b, "mapped_bytes", (int64_t)m->mapped_bytes);
        put_number(b, "kept_bytes", (int64_t)m->kept_bytes);
        put_number(b, "pool_bytes", (int64_t)m->pool_bytes);
        put_number(b, "heap_bytes", (int64_t)m->heap_bytes);
        put_number(b, "resident_bytes", (int64_t)m->resident_bytes);
    }
    put_text(b, "reason", m->reason);
    if (m->grown_bytes != MR_MEMORY_UNKNOWN) {
        put_number(b, "grown_bytes", m->grown_bytes);
    }
    if (m->released_bytes != MR_MEMORY_UNKNOWN) {
        put_number(b, "released_bytes", m->released_bytes);
    }
    mr_buf_char(b, '}');
}

static void put_life(struct mr_buf *b, const struct mr_model_view *view,
                     const struct mr_load_view *l)
{
    mr_buf_printf(b, "{\"version\":\"%lld\",\"state\":\"%s\"", (long long)l->version,
                  mr_version_state_name(l->state));
    put_text(b, "reason", l->reason);
    put_labels(b, view, l);
    MR_BUF_LIT(b, ",\"entered\":{");
    put_states(b, l, true);
    MR_BUF_LIT(b, "},\"spent_ns\":{");
    put_states(b, l, false);
    mr_buf_printf(b, "},\"file_bytes\":%llu", (unsigned long long)l->file_bytes);
    if (l->model_bytes) {
        mr_buf_printf(b, ",\"model_bytes\":%llu", (unsigned long long)l->model_bytes);
    }
    if (l->release_ns) {
        put_number(b, "release_ns", l->release_ns);
    }
    if (l->progress.step) {
        put_progress(b, &l->progress);
    }
    if (l->entered_wall_ns[MR_VERSION_READY] != 0) {
        put_memory(b, &l->memory);
    }
    mr_buf_char(b, '}');
}

static void put_model(void *ctx, const struct mr_model_view *view)
{
    struct versions_job *j = ctx;
    struct mr_buf *b = &j->body;

    MR_BUF_LIT(b, "{\"model_name\":");
    mr_json_put_string(b, view->name);
    put_text(b, "error", view->error);
    if (view->default_version) {
        mr_buf_printf(b, ",\"default_version\":\"%lld\"", (long long)view->default_version);
    }
    if (view->pinned) {
        mr_buf_printf(b, ",\"rolled_back_to\":\"%lld\"", (long long)view->pinned);
    }
    MR_BUF_LIT(b, ",\"versions\":[");
    for (size_t i = 0; i < view->load_count; i++) {
        if (i) {
            mr_buf_char(b, ',');
        }
        put_life(b, view, &view->loads[i]);
    }
    MR_BUF_LIT(b, "]}");
}

static void versions_run(struct admin_job *job)
{
    struct versions_job *j = MR_CONTAINER_OF(job, struct versions_job, job);

    j->rc = mr_models_versions(j->server->models, j->model, put_model, j, &j->err);
}

static void versions_done(struct admin_job *job)
{
    struct versions_job *j = MR_CONTAINER_OF(job, struct versions_job, job);

    if (j->rc < 0) {
        reply_error(j->call, &j->err);
    } else if (j->body.failed) {
        reply_error_text(j->call, MR_E_EXHAUSTED, "the report is larger than the server allows");
    } else {
        reply_json(j->call, 200, mr_buf_view(&j->body));
    }
    mr_buf_fini(&j->body);
    mr_free(j);
}

void rest_versions(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    struct versions_job *j = MR_NEW(struct versions_job);

    j->server = s;
    j->call = call;
    j->model = path->model;
    j->job.run = versions_run;
    j->job.done = versions_done;
    mr_buf_init(&j->body, 16u << 20);
    admin_submit(s, &j->job);
}
