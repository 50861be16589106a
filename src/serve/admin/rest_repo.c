/* Repository and statistics over REST: index, load, unload, stats. */
#include "rest_repo.h"

#include "admin.h"
#include "codec/json.h"
#include "codec/pbtext.h"
#include "serve/endpoints/route.h"
#include "serve/state/infer.h"
#include "serve/state/loops.h"
#include "serve/state/memory.h"
#include "serve/state/meta.h"
#include "serve/state/reply.h"
#include "serve/state/state.h"
#include "stats.h"

/* ---- reports, made on the administration thread ---- */

struct report_job {
    struct admin_job job;
    struct mr_server *server;
    struct mr_call *call;
    struct mr_buf body;
    bool ready_only;
    bool has_details;
    bool is_first;
};

static void report_done(struct admin_job *job)
{
    struct report_job *r = MR_CONTAINER_OF(job, struct report_job, job);
    struct mr_call *call = r->call;

    if (r->body.failed) {
        reply_error_text(call, MR_E_EXHAUSTED, "the report is larger than the server allows");
    } else {
        reply_json(call, 200, mr_buf_view(&r->body));
    }
    mr_buf_fini(&r->body);
    mr_free(r);
}

static void report_start(struct mr_server *s, struct mr_call *call, void (*run)(struct admin_job *),
                         bool ready_only, bool has_details)
{
    struct report_job *r = MR_NEW(struct report_job);

    r->server = s;
    r->call = call;
    r->ready_only = ready_only;
    r->has_details = has_details;
    r->job.run = run;
    r->job.done = report_done;
    mr_buf_init(&r->body, 256u << 20);
    admin_submit(s, &r->job);
}

static void index_details(struct mr_buf *b, const struct mr_model_report *m)
{
    char text[32];

    if (m->since_wall_ns) {
        mr_buf_printf(b, ",\"since\":\"%s\"", mr_wall_text(m->since_wall_ns, text));
    }
    if (m->load_ns) {
        mr_buf_printf(b, ",\"load_ns\":%lld", (long long)m->load_ns);
    }
    if (m->version > 0) {
        mr_buf_printf(b, ",\"file_bytes\":%llu", (unsigned long long)m->file_bytes);
    }
    if (m->warning.len) {
        MR_BUF_LIT(b, ",\"warning\":");
        mr_json_put_string(b, m->warning);
    }
}

/* As MLServer has it: the version that the file names, states of all models, reasons always. */
static void index_row_of_mlserver(struct mr_buf *b, const struct mr_model_report *m)
{
    mr_str reason;
    const char *state = meta_mlserver_state(m, &reason);

    if (m->given.len > 0) {
        MR_BUF_LIT(b, ",\"version\":");
        mr_json_put_string(b, m->given);
    } else if (!m->given.ptr && m->version > 0) {
        mr_buf_printf(b, ",\"version\":\"%lld\"", (long long)m->version);
    }
    mr_buf_printf(b, ",\"state\":\"%s\",\"reason\":", state);
    mr_json_put_string(b, reason);
}

static void index_row_of_triton(struct mr_buf *b, const struct mr_model_report *m)
{
    if (m->never_loaded) {
        return;
    }
    if (m->version > 0) {
        mr_buf_printf(b, ",\"version\":\"%lld\"", (long long)m->version);
    }
    mr_buf_printf(b, ",\"state\":\"%s\"", mr_version_state_triton(m->state));
    if (m->reason.len) {
        MR_BUF_LIT(b, ",\"reason\":");
        mr_json_put_string(b, m->reason);
    }
}

static void index_row(void *ctx, const struct mr_model_report *m)
{
    struct report_job *r = ctx;
    struct mr_buf *b = &r->body;

    if (r->ready_only && m->state != MR_VERSION_READY) {
        return;
    }
    if (!r->is_first) {
        mr_buf_char(b, ',');
    }
    r->is_first = false;
    MR_BUF_LIT(b, "{\"name\":");
    mr_json_put_string(b, m->name);
    if (r->server->options.mlserver_errors) {
        index_row_of_mlserver(b, m);
    } else {
        index_row_of_triton(b, m);
    }
    if (r->has_details && !m->never_loaded) {
        index_details(b, m);
    }
    mr_buf_char(b, '}');
}

static void index_run(struct admin_job *job)
{
    struct report_job *r = MR_CONTAINER_OF(job, struct report_job, job);

    r->is_first = true;
    mr_buf_char(&r->body, '[');
    mr_models_report(r->server->models, index_row, r);
    mr_buf_char(&r->body, ']');
}

bool rest_begin_body(struct mr_call *call, struct mr_json *out, struct mr_err *err)
{
    mr_str text = {(const char *)call->body.ptr, call->body.len};

    mr_json_init(out, text, call->arena, 0, err);
    if (mr_json_peek(out) == MR_JSON_END && out->pos == out->end && mr_turn_spend(0)) {
        return false; /* blanks to the end, and not because the work was ended */
    }
    mr_json_enter_object(out);
    return true;
}

/* `details` is ours: Triton ignores what it does not know here. */
static int parse_index_body(struct mr_call *call, bool *out_ready, bool *out_details,
                            struct mr_err *err)
{
    struct mr_json j;
    bool first = true;
    mr_str key;

    *out_ready = *out_details = false;
    if (!rest_begin_body(call, &j, err)) {
        return MR_OK;
    }
    while (mr_json_next_key(&j, &first, &key)) {
        bool *to = mr_str_eq_c(key, "ready")     ? out_ready
                   : mr_str_eq_c(key, "details") ? out_details
                                                 : NULL;
        if (!to) {
            mr_json_skip(&j, NULL);
        } else if (mr_json_bool(&j, to) < 0) {
            return MR_WRAP(err, j.status, "Invalid value for '%s': expected a boolean",
                           to == out_ready ? "ready" : "details");
        }
    }
    return mr_json_finish(&j);
}

void rest_index(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    struct mr_err err = {0};
    bool ready, details;

    (void)path;
    if (parse_index_body(call, &ready, &details, &err) < 0) {
        reply_error(call, &err);
    } else {
        report_start(s, call, index_run, ready, details);
    }
}

static void stats_run(struct admin_job *job)
{
    struct report_job *r = MR_CONTAINER_OF(job, struct report_job, job);
    struct stats_set set;

    stats_set_init(&set);
    stats_set_add_all(&set, r->server->models);
    mr_pbjson_print(&set.response.base, true, &r->body);
    r->body.failed |= set.failed;
    stats_set_fini(&set);
}

void rest_stats(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    struct mr_buf *b = mr_loop_scratch(call->loop);
    struct mr_err err = {0};
    struct stats_set set;

    if (path->model.len == 0) {
        report_start(s, call, stats_run, false, false);
        return;
    }
    stats_set_init(&set);
    if (stats_set_add_model(&set, s->models, path->model, path->version, &err) < 0) {
        reply_error(call, &err);
    } else {
        mr_buf_reset(b);
        mr_pbjson_print(&set.response.base, true, b);
        reply_buf(call, 200, b);
    }
    stats_set_fini(&set);
}

/* ---- load and unload ---- */

struct control_job {
    struct serve_loop *loop;
    struct mr_call *call;
    struct mr_mail mail;
    struct mr_err err;
    int rc;
};

static void control_reply(struct mr_mail *mail)
{
    struct control_job *j = MR_CONTAINER_OF(mail, struct control_job, mail);

    if (j->rc < 0) {
        struct mr_err err = j->err;
        err.status = j->rc;
        reply_error(j->call, &err);
    } else {
        reply_empty(j->call, 200);
    }
}

/* On a loader thread. */
static void control_done(void *ctx, int rc, const struct mr_err *err)
{
    struct control_job *j = ctx;

    j->rc = rc;
    if (rc < 0 && err) {
        j->err = *err;
    }
    j->mail.run = control_reply;
    mr_loop_post(j->loop->loop, &j->mail);
}

struct control_body {
    struct mr_load_request load;
    struct mr_load_file *files; /* of load */
    size_t file_cap;
    bool unload_dependents;
};

static int add_file(struct mr_json *j, mr_str key, struct control_body *q, struct mr_err *err)
{
    mr_str text;

    if (mr_json_string(j, &text) < 0) {
        return j->status;
    }
    if (q->load.file_count == SERVE_LOAD_FILES) {
        return MR_FAIL(err, MR_E_INVALID, "more than %d files in one load request",
                       SERVE_LOAD_FILES);
    }
    if (q->load.file_count == q->file_cap) {
        size_t cap = q->file_cap ? q->file_cap * 2 : 8;
        struct mr_load_file *files = MR_ARENA_ARRAY(j->arena, struct mr_load_file, cap);
        if (!files) {
            return MR_ARENA_FAIL(err);
        }
        if (q->load.file_count) {
            memcpy(files, q->files, q->load.file_count * sizeof *files);
        }
        q->load.files = q->files = files;
        q->file_cap = cap;
    }
    struct mr_load_file *f = &q->files[q->load.file_count];
    uint8_t *data = memory_try(j->arena, text.len / 4 * 3 + 3);
    if (!data) {
        return MR_FAIL(err, MR_E_EXHAUSTED,
                       "no memory for the files of the load request (--memory-budget)");
    }
    if (!mr_base64_decode(text, data, &f->data.len)) {
        return MR_FAIL(err, MR_E_INVALID, "parameter '%.*s' is not base64",
                       MR_STR_ARG(mr_str_sub(key, 0, 100)));
    }
    f->data.ptr = data;
    f->path = mr_str_sub(key, 5, key.len);
    q->load.file_count++;
    return MR_OK;
}

static int parse_parameter(struct mr_json *j, mr_str key, bool is_load, struct control_body *q,
                           struct mr_err *err)
{
    mr_str *text = mr_str_eq_c(key, "config")   ? &q->load.config_json
                   : mr_str_eq_c(key, "url")    ? &q->load.url
                   : mr_str_eq_c(key, "sha256") ? &q->load.sha256
                                                : NULL;
    if (is_load && text) {
        return mr_json_string(j, text);
    }
    if (is_load && mr_str_starts(key, MR_STR("file:"))) {
        return add_file(j, key, q, err);
    }
    if (!is_load && mr_str_eq_c(key, "unload_dependents")) {
        return mr_json_bool(j, &q->unload_dependents);
    }
    if (!is_load) {
        return mr_json_skip(j, NULL);
    }
    return MR_FAIL(err, MR_E_INVALID,
                   "unexpected error on creating Triton parameter: '%.*s' is no parameter of a "
                   "load request",
                   MR_STR_ARG(mr_str_sub(key, 0, 100)));
}

static int parse_control_body(struct mr_call *call, bool is_load, struct control_body *q,
                              struct mr_err *err)
{
    struct mr_json j;
    bool first = true, first_parameter = true;
    mr_str key;
    int rc = MR_OK;

    if (!rest_begin_body(call, &j, err)) {
        return MR_OK;
    }
    while (rc == MR_OK && mr_json_next_key(&j, &first, &key)) {
        if (!mr_str_eq_c(key, "parameters")) {
            rc = mr_json_skip(&j, NULL);
            continue;
        }
        rc = mr_json_enter_object(&j);
        while (rc == MR_OK && mr_json_next_key(&j, &first_parameter, &key)) {
            rc = parse_parameter(&j, key, is_load, q, err);
        }
    }
    return rc < 0 ? rc : mr_json_finish(&j);
}

/* rc: what became of the body. NULL: the call was answered. */
static struct control_job *control_new(struct mr_call *call, const struct mr_oip_path *path, int rc,
                                       struct mr_err *err)
{
    struct control_job *j = MR_ARENA_NEW(call->arena, struct control_job);

    if (path->repository.len) {
        reply_error_text(call, MR_E_UNSUPPORTED,
                         "'repository_name' specification is not supported");
        return NULL;
    }
    if (rc < 0 || !j) {
        err->status = rc < 0 ? rc : MR_E_EXHAUSTED;
        reply_error(call, err);
        return NULL;
    }
    j->loop = serve_here();
    j->call = call;
    return j;
}

/* A load is read and copied in turns: its files may have gigabytes. */
struct load_call {
    struct serve_pending pending;
    struct mr_turn turn;
    struct mr_server *server;
    struct control_job *job;
    mr_str model;
    struct mr_err err;
    bool is_submitted; /* the loader answers */
};

static void load_work(struct mr_turn *t)
{
    struct load_call *l = MR_CONTAINER_OF(t, struct load_call, turn);
    struct control_body q = {0};

    l->err.status = parse_control_body(l->job->call, true, &q, &l->err);
    if (l->err.status < 0) {
        return;
    }
    if (route_is_taken(l->server->endpoints, l->model)) {
        route_refuse_model(l->model, &l->err);
        return;
    }
    mr_models_load(l->server->models, l->model, &q.load, control_done, l->job);
    l->is_submitted = true;
}

static void load_done(struct mr_turn *t)
{
    struct load_call *l = MR_CONTAINER_OF(t, struct load_call, turn);

    l->job->call->user = NULL;
    if (l->is_submitted) {
        return;
    }
    if (t->status < 0) {
        serve_turn_error(t, &l->err);
    }
    reply_error(l->job->call, &l->err);
}

static void load_cancel(struct serve_pending *p)
{
    mr_turn_end(&MR_CONTAINER_OF(p, struct load_call, pending)->turn, MR_E_CANCELLED);
}

void rest_load(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    struct load_call *l = MR_ARENA_NEW(call->arena, struct load_call);
    struct mr_err err = {0};
    struct control_job *job = control_new(call, path, l ? MR_OK : MR_E_EXHAUSTED, &err);

    if (!job) {
        return;
    }
    *l = (struct load_call){
        .pending.cancel = load_cancel,
        .turn = {.work = load_work, .done = load_done, .may_refuse = true},
        .server = s,
        .job = job,
        .model = path->model,
    };
    call->user = &l->pending;
    mr_turns_add(mr_loop_turns(call->loop), &l->turn);
}

void rest_unload(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    struct control_body q = {0};
    struct mr_err err = {0};
    int rc = parse_control_body(call, false, &q, &err);
    struct mr_version *v;

    if (rc == MR_OK && s->options.mlserver_errors) { /* for others it is no error */
        rc = mr_models_find(s->models, path->model, MR_STR(""), &v, &err);
    }
    struct control_job *j = control_new(call, path, rc, &err);

    if (j) {
        mr_models_unload(s->models, path->model, q.unload_dependents, control_done, j);
    }
}

/* ---- labels and rollback, which are ours ---- */

struct version_request {
    mr_str label;
    mr_str version;
};

int rest_parse_version(struct mr_json *j, mr_str *out)
{
    uint64_t number;

    if (mr_json_peek(j) == MR_JSON_STRING) {
        return mr_json_string(j, out);
    }
    int rc = mr_json_u64(j, &number);
    if (rc == MR_OK) {
        *out = mr_arena_printf(j->arena, "%llu", (unsigned long long)number);
    }
    return rc;
}

static int parse_version_body(struct mr_call *call, bool has_label, struct version_request *q,
                              struct mr_err *err)
{
    struct mr_json j;
    bool first = true;
    mr_str key;
    int rc = MR_OK;

    if (!rest_begin_body(call, &j, err)) {
        return MR_OK;
    }
    while (rc == MR_OK && mr_json_next_key(&j, &first, &key)) {
        if (mr_str_eq_c(key, "version")) {
            rc = rest_parse_version(&j, &q->version);
        } else if (has_label && mr_str_eq_c(key, "label")) {
            rc = mr_json_string(&j, &q->label);
        } else {
            rc = MR_FAIL(err, MR_E_INVALID, "'%.*s' is no member of this request",
                         MR_STR_ARG(mr_str_sub(key, 0, 100)));
        }
    }
    return rc < 0 ? rc : mr_json_finish(&j);
}

void rest_label(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    struct version_request q = {MR_STR(""), MR_STR("")};
    struct mr_err err = {0};
    int rc = parse_version_body(call, true, &q, &err);

    if (control_new(call, path, rc, &err) == NULL) {
        return;
    }
    err.status = mr_models_label(s->models, path->model, q.label, q.version, &err);
    if (err.status < 0) {
        reply_error(call, &err);
    } else {
        reply_empty(call, 200);
    }
}

void rest_rollback(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    struct version_request q = {MR_STR(""), MR_STR("")};
    struct mr_err err = {0};
    int rc = parse_version_body(call, false, &q, &err);
    struct control_job *j = control_new(call, path, rc, &err);

    if (j) {
        mr_models_rollback(s->models, path->model, q.version, control_done, j);
    }
}
