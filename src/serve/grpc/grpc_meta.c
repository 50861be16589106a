/* The unary methods of inference.GRPCInferenceService besides ModelInfer. Same facts, same errors as REST. */
#include <stdio.h>

#include "methods_priv.h"
#include "serve/admin/admin.h"
#include "serve/admin/stats.h"
#include "serve/mesh/fleet_ready.h"
#include "serve/plane/ids.h"
#include "serve/state/grpc_reply.h"
#include "serve/state/loops.h"
#include "serve/state/meta.h"
#include "serve/state/state.h"
#include "tensor/tensor.h"

static void out_of_arena(struct mr_grpc_call *g)
{
    mr_grpc_fail(g, MR_GRPC_RESOURCE_EXHAUSTED,
                 MR_STR("the call needs more memory than it may use"));
}

void grpc_server_live(struct mr_server *s, struct mr_grpc_call *g)
{
    Inference__ServerLiveResponse r = INFERENCE__SERVER_LIVE_RESPONSE__INIT;

    if (!grpc_request(g, &inference__server_live_request__descriptor)) {
        return;
    }
    r.live = !serve_is_exiting(s);
    grpc_reply_message(g, &r.base);
}

void grpc_server_ready(struct mr_server *s, struct mr_grpc_call *g)
{
    Inference__ServerReadyResponse r = INFERENCE__SERVER_READY_RESPONSE__INIT;

    if (!grpc_request(g, &inference__server_ready_request__descriptor)) {
        return;
    }
    r.ready = serve_is_ready(s);
    grpc_reply_message(g, &r.base);
}

void grpc_server_metadata(struct mr_server *s, struct mr_grpc_call *g)
{
    Inference__ServerMetadataResponse r = INFERENCE__SERVER_METADATA_RESPONSE__INIT;

    if (!grpc_request(g, &inference__server_metadata_request__descriptor)) {
        return;
    }
    r.name = (char *)(uintptr_t)s->options.id;
    r.version = (char *)(uintptr_t)MR_VERSION;
    r.n_extensions = serve_extension_count;
    r.extensions = (char **)(uintptr_t)serve_extensions;
    grpc_reply_message(g, &r.base);
}

static void reply_model_ready(struct mr_grpc_call *g, bool is_ready)
{
    Inference__ModelReadyResponse r = INFERENCE__MODEL_READY_RESPONSE__INIT;

    r.ready = is_ready;
    grpc_reply_message(g, &r.base);
}

/* In a mesh: a model that is not ready here. In the call's arena. */
struct ready_elsewhere {
    struct fleet_ready fleet;
    struct mr_grpc_call *g;
};

static void fleet_said(struct fleet_ready *q, bool is_ready)
{
    reply_model_ready(MR_CONTAINER_OF(q, struct ready_elsewhere, fleet)->g, is_ready);
}

/* In a mesh, metadata may name the model, or a vmodel. */
static int ready_name(struct mr_server *s, const struct mr_grpc_call *g, mr_str *io_name,
                      bool *out_is_vmodel, struct mr_err *err)
{
    struct plane_ids ids = {0};
    int rc = MR_OK;

    if (s->mesh) {
        MR_TRY(plane_ids_read(g->call, &ids, err));
    }
    if (ids.count > 1) {
        return MR_FAIL(err, MR_E_INVALID, "ModelReady asks for one model, %zu are named",
                       ids.count);
    }
    *io_name = ids.count ? ids.at[0] : *io_name;
    *out_is_vmodel = ids.is_vmodel;
    if (s->mesh && !io_name->len) {
        return MR_FAIL(err, MR_E_INVALID, GRPC_NO_MODEL);
    }
out:
    return rc;
}

void grpc_model_ready(struct mr_server *s, struct mr_grpc_call *g)
{
    Inference__ModelReadyRequest *q = grpc_request(g, &inference__model_ready_request__descriptor);
    struct ready_elsewhere *e = NULL;
    struct mr_version *v;
    struct mr_err err = {0};
    bool is_vmodel = false;

    if (!q) {
        return;
    }
    mr_str name = mr_str_c(q->name), version = mr_str_c(q->version);
    if (version.len && serve_has_runtime(s)) { /* who has the model knows its versions */
        grpc_pass(s, g);
        return;
    }
    int rc = ready_name(s, g, &name, &is_vmodel, &err);
    if (rc == MR_OK) {
        rc = is_vmodel ? MR_E_NOT_FOUND : meta_find(s, name, version, &v, &err);
    }
    if (rc == MR_E_INVALID) {
        grpc_fail_err(g, &err);
        return;
    }
    if (rc < 0 && s->mesh && !version.len) {
        e = MR_ARENA_NEW(g->call->arena, struct ready_elsewhere);
    }
    if (e) {
        e->fleet.done = fleet_said;
        e->fleet.name = name;
        e->fleet.is_vmodel = is_vmodel;
        e->g = g;
        fleet_ready_ask(s, &e->fleet);
        return;
    }
    reply_model_ready(g, rc == MR_OK && meta_is_ready(s, name, version, v));
}

typedef Inference__ModelMetadataResponse__TensorMetadata tensor_metadata;

static tensor_metadata **tensors(struct mr_arena *a, const struct mr_version *v,
                                 const struct mr_model_io *io, uint32_t count)
{
    tensor_metadata **list = MR_ARENA_ARRAY(a, tensor_metadata *, count);
    tensor_metadata *t = MR_ARENA_ARRAY(a, tensor_metadata, count);
    int64_t *shapes = MR_ARENA_ARRAY(a, int64_t, (size_t)count * (MR_MAX_RANK + 1));

    if (!list || !t || !shapes) {
        return NULL;
    }
    for (uint32_t i = 0; i < count; i++) {
        inference__model_metadata_response__tensor_metadata__init(&t[i]);
        t[i].name = (char *)(uintptr_t)io[i].name.ptr;
        t[i].datatype = (char *)(uintptr_t)mr_dtype_name(io[i].dtype);
        t[i].shape = shapes + (size_t)i * (MR_MAX_RANK + 1);
        t[i].n_shape = meta_shape(v, &io[i], t[i].shape);
        list[i] = &t[i];
    }
    return list;
}

void grpc_model_metadata(struct mr_server *s, struct mr_grpc_call *g)
{
    Inference__ModelMetadataRequest *q =
        grpc_request(g, &inference__model_metadata_request__descriptor);
    Inference__ModelMetadataResponse r = INFERENCE__MODEL_METADATA_RESPONSE__INIT;
    mr_str versions[META_VERSIONS_MAX];
    struct mr_arena *a;
    struct mr_version *v;
    struct mr_err err = {0};

    if (!q) {
        return; /* and the call is gone */
    }
    a = g->call->arena;
    if (meta_find(s, mr_str_c(q->name), mr_str_c(q->version), &v, &err) < 0) {
        grpc_fail_err(g, &err);
        return;
    }
    if (v->has_messages) {
        grpc_ask(g, mr_str_c(q->name), mr_str_c(q->version), "grpc_metadata");
        return;
    }
    r.name = q->name;
    r.platform = (char *)(uintptr_t)meta_platform(v);
    r.n_versions = meta_versions(s, v, mr_str_c(q->name), mr_str_c(q->version), versions);
    r.versions = MR_ARENA_ARRAY(a, char *, r.n_versions);
    r.inputs = tensors(a, v, v->inputs, v->input_count);
    r.outputs = tensors(a, v, v->outputs, v->output_count);
    if (!r.versions || !r.inputs || !r.outputs) {
        out_of_arena(g);
        return;
    }
    for (size_t i = 0; i < r.n_versions; i++) {
        r.versions[i] = (char *)(uintptr_t)versions[i].ptr;
    }
    r.n_inputs = v->input_count;
    r.n_outputs = v->output_count;
    grpc_reply_message(g, &r.base);
}

void grpc_model_config(struct mr_server *s, struct mr_grpc_call *g)
{
    Inference__ModelConfigRequest *q =
        grpc_request(g, &inference__model_config_request__descriptor);
    Inference__ModelConfigResponse r = INFERENCE__MODEL_CONFIG_RESPONSE__INIT;
    struct mr_version *v;
    struct mr_err err = {0};

    if (!q) {
        return;
    }
    if (meta_find(s, mr_str_c(q->name), mr_str_c(q->version), &v, &err) < 0) {
        grpc_fail_err(g, &err);
        return;
    }
    r.config = (Inference__ModelConfig *)(uintptr_t)v->config;
    grpc_reply_message(g, &r.base);
}

/* ---- reports, made on the administration thread ---- */

struct report {
    struct admin_job job;
    struct mr_server *server;
    struct mr_grpc_call *g;
    struct mr_buf message;
    bool ready_only;
};

static void report_done(struct admin_job *job)
{
    struct report *r = MR_CONTAINER_OF(job, struct report, job);
    struct mr_piece piece = {r->message.ptr, r->message.len, NULL};

    if (r->message.failed) {
        mr_grpc_fail(r->g, MR_GRPC_RESOURCE_EXHAUSTED,
                     MR_STR("the report is larger than the server allows"));
    } else {
        mr_grpc_reply(r->g, &piece, piece.len ? 1 : 0, MR_GRPC_IDENTITY);
    }
    mr_buf_fini(&r->message);
    mr_free(r);
}

static void report_start(struct mr_server *s, struct mr_grpc_call *g,
                         void (*run)(struct admin_job *), bool ready_only)
{
    struct report *r = MR_NEW(struct report);

    r->server = s;
    r->g = g;
    r->ready_only = ready_only;
    r->job.run = run;
    r->job.done = report_done;
    mr_buf_init(&r->message, 256u << 20);
    admin_submit(s, &r->job);
}

static void pack_into(struct mr_buf *b, const ProtobufCMessage *m)
{
    size_t n = protobuf_c_message_get_packed_size(m);
    char *to = mr_buf_reserve(b, n ? n : 1);

    if (!to) {
        return;
    }
    protobuf_c_message_pack(m, (uint8_t *)to);
    b->len += n;
}

static void stats_run(struct admin_job *job)
{
    struct report *r = MR_CONTAINER_OF(job, struct report, job);
    struct stats_set set;

    stats_set_init(&set);
    stats_set_add_all(&set, r->server->models);
    pack_into(&r->message, &set.response.base);
    r->message.failed |= set.failed;
    stats_set_fini(&set);
}

void grpc_model_statistics(struct mr_server *s, struct mr_grpc_call *g)
{
    Inference__ModelStatisticsRequest *q =
        grpc_request(g, &inference__model_statistics_request__descriptor);
    struct mr_err err = {0};
    struct stats_set set;

    if (!q) {
        return;
    }
    if (!q->name[0]) {
        report_start(s, g, stats_run, false);
        return;
    }
    stats_set_init(&set);
    if (stats_set_add_model(&set, s->models, mr_str_c(q->name), mr_str_c(q->version), &err) < 0) {
        grpc_fail_err(g, &err);
    } else {
        grpc_reply_message(g, &set.response.base);
    }
    stats_set_fini(&set);
}

/* What the index says of it besides its name; texts as the report has them. */
static void index_fields(const struct report *r, const struct mr_model_report *m, char number[24],
                         mr_str *out_reason, Inference__RepositoryIndexResponse__ModelIndex *row)
{
    const bool is_of_mlserver = r->server->options.mlserver_errors;

    *out_reason = MR_STR("");
    if (m->never_loaded && !is_of_mlserver) {
        return;
    }
    snprintf(number, 24, "%lld", (long long)m->version);
    row->version = m->version > 0 ? number : row->version;
    if (is_of_mlserver) {
        row->version = m->given.ptr ? (char *)(uintptr_t)m->given.ptr : row->version;
        row->state = (char *)(uintptr_t)meta_mlserver_state(m, out_reason);
    } else {
        row->state = (char *)(uintptr_t)mr_version_state_triton(m->state);
        *out_reason = m->reason;
    }
}

static void index_row(void *ctx, const struct mr_model_report *m)
{
    struct report *r = ctx;
    Inference__RepositoryIndexResponse__ModelIndex row =
        INFERENCE__REPOSITORY_INDEX_RESPONSE__MODEL_INDEX__INIT;
    Inference__RepositoryIndexResponse__ModelIndex *list[1] = {&row};
    Inference__RepositoryIndexResponse one = INFERENCE__REPOSITORY_INDEX_RESPONSE__INIT;
    char number[24], *name = mr_strndup(m->name.ptr, m->name.len), *reason;
    mr_str text;

    if (!r->ready_only || m->state == MR_VERSION_READY) {
        row.name = name;
        index_fields(r, m, number, &text, &row);
        row.reason = reason = mr_strndup(text.ptr, text.len);
        /* Messages of one repeated field, one after the other, are the message with all of them. */
        one.n_models = 1;
        one.models = list;
        pack_into(&r->message, &one.base);
        mr_free(reason);
    }
    mr_free(name);
}

static void index_run(struct admin_job *job)
{
    struct report *r = MR_CONTAINER_OF(job, struct report, job);

    mr_models_report(r->server->models, index_row, r);
}

#define NO_REPOSITORY_NAME "'repository_name' specification is not supported"

void grpc_repository_index(struct mr_server *s, struct mr_grpc_call *g)
{
    Inference__RepositoryIndexRequest *q =
        grpc_request(g, &inference__repository_index_request__descriptor);

    if (q && q->repository_name[0]) {
        mr_grpc_fail(g, MR_GRPC_UNIMPLEMENTED, MR_STR(NO_REPOSITORY_NAME));
    } else if (q) {
        report_start(s, g, index_run, q->ready);
    }
}

/* ---- load and unload ---- */

static void control_reply(struct mr_mail *mail)
{
    struct grpc_control *c = MR_CONTAINER_OF(mail, struct grpc_control, mail);

    c->err.status = c->rc;
    if (c->rc < 0) {
        grpc_fail_err(c->g, &c->err);
    } else {
        mr_grpc_reply(c->g, NULL, 0, MR_GRPC_IDENTITY);
    }
}

/* On a loader thread. */
void grpc_control_done(void *ctx, int rc, const struct mr_err *err)
{
    struct grpc_control *c = ctx;

    c->rc = rc;
    if (rc < 0 && err) {
        c->err = *err;
    }
    c->mail.run = control_reply;
    mr_loop_post(c->loop->loop, &c->mail);
}

struct grpc_control *grpc_control_new(struct mr_grpc_call *g, const char *repository)
{
    struct grpc_control *c = MR_ARENA_NEW(g->call->arena, struct grpc_control);

    if (repository[0]) {
        mr_grpc_fail(g, MR_GRPC_UNIMPLEMENTED, MR_STR(NO_REPOSITORY_NAME));
        return NULL;
    }
    if (!c) {
        out_of_arena(g);
        return NULL;
    }
    c->loop = serve_here();
    c->g = g;
    return c;
}

void grpc_model_unload(struct mr_server *s, struct mr_grpc_call *g)
{
    Inference__RepositoryModelUnloadRequest *q =
        grpc_request(g, &inference__repository_model_unload_request__descriptor);
    struct grpc_control *c;
    bool dependents = false;

    if (!q) {
        return;
    }
    for (size_t i = 0; i < q->n_parameters; i++) {
        const Inference__ModelRepositoryParameter *v = q->parameters[i]->value;
        if (strcmp(q->parameters[i]->key, "unload_dependents") != 0) {
            continue;
        }
        if (!v || v->parameter_choice_case !=
                      INFERENCE__MODEL_REPOSITORY_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM) {
            mr_grpc_fail(g, MR_GRPC_INVALID_ARGUMENT,
                         MR_STR("invalid value type for 'unload_dependents' parameter, expected "
                                "bool_param."));
            return;
        }
        dependents = v->bool_param;
    }
    c = grpc_control_new(g, q->repository_name);
    if (!c) {
        return;
    }
    mr_models_unload(s->models, mr_str_c(q->model_name), dependents, grpc_control_done, c);
}

/* ---- log settings ---- */

typedef Inference__LogSettingsRequest__SettingValue setting_value;

static int change_from(const Inference__LogSettingsRequest *q, struct log_change *c,
                       struct mr_err *err)
{
    for (size_t i = 0; i < q->n_settings; i++) {
        const char *key = q->settings[i]->key;
        const setting_value *v = q->settings[i]->value;
        int kind = v ? (int)v->parameter_choice_case : 0;
        bool is_bool =
            kind == INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE_BOOL_PARAM;
        if (strcmp(key, "log_file") == 0) {
            c->has_file = true;
        } else if (
            strcmp(key, "log_format") == 0 &&
            kind == INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE_STRING_PARAM) {
            c->format = mr_str_c(v->string_param);
        } else if (
            strcmp(key, "log_verbose_level") == 0 &&
            kind == INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE_UINT32_PARAM) {
            c->has_verbose = true;
            c->verbose = v->uint32_param;
        } else if (strcmp(key, "log_info") == 0 && is_bool) {
            c->info = v->bool_param;
        } else if (strcmp(key, "log_warning") == 0 && is_bool) {
            c->warning = v->bool_param;
        } else if (strcmp(key, "log_error") == 0 && is_bool) {
            c->error = v->bool_param;
        } else {
            return MR_FAIL(err, MR_E_INVALID,
                           "unknown log setting '%.100s', or its value has the wrong type", key);
        }
    }
    return MR_OK;
}

#define LOG_SETTINGS 6
typedef Inference__LogSettingsResponse__SettingValue setting_out;
typedef Inference__LogSettingsResponse__SettingsEntry entry_out;

static void set_bool(setting_out *v, bool b)
{
    v->parameter_choice_case =
        INFERENCE__LOG_SETTINGS_RESPONSE__SETTING_VALUE__PARAMETER_CHOICE_BOOL_PARAM;
    v->bool_param = b;
}

static void set_string(setting_out *v, const char *text)
{
    v->parameter_choice_case =
        INFERENCE__LOG_SETTINGS_RESPONSE__SETTING_VALUE__PARAMETER_CHOICE_STRING_PARAM;
    v->string_param = (char *)(uintptr_t)text;
}

static void reply_settings(struct mr_grpc_call *g)
{
    static const char *const keys[LOG_SETTINGS] = {"log_file",  "log_info",          "log_warning",
                                                   "log_error", "log_verbose_level", "log_format"};
    Inference__LogSettingsResponse r = INFERENCE__LOG_SETTINGS_RESPONSE__INIT;
    setting_out values[LOG_SETTINGS];
    entry_out entries[LOG_SETTINGS], *list[LOG_SETTINGS];

    for (int i = 0; i < LOG_SETTINGS; i++) {
        inference__log_settings_response__setting_value__init(&values[i]);
        inference__log_settings_response__settings_entry__init(&entries[i]);
        entries[i].key = (char *)(uintptr_t)keys[i];
        entries[i].value = &values[i];
        list[i] = &entries[i];
    }
    set_string(&values[0], mr_log_file());
    set_bool(&values[1], mr_log_enabled(MR_LOG_INFO));
    set_bool(&values[2], mr_log_enabled(MR_LOG_WARN));
    set_bool(&values[3], mr_log_enabled(MR_LOG_ERROR));
    values[4].parameter_choice_case =
        INFERENCE__LOG_SETTINGS_RESPONSE__SETTING_VALUE__PARAMETER_CHOICE_UINT32_PARAM;
    values[4].uint32_param = mr_log_verbose();
    set_string(&values[5], mr_log_format_name(mr_log_get_format()));
    r.n_settings = LOG_SETTINGS;
    r.settings = list;
    grpc_reply_message(g, &r.base);
}

void grpc_log_settings(struct mr_server *s, struct mr_grpc_call *g)
{
    Inference__LogSettingsRequest *q =
        grpc_request(g, &inference__log_settings_request__descriptor);
    struct log_change change;
    struct mr_err err = {0};

    (void)s;
    if (!q) {
        return;
    }
    meta_log_change_init(&change);
    if (change_from(q, &change, &err) < 0 ||
        (q->n_settings > 0 && meta_log_change_apply(&change, &err) < 0)) {
        grpc_fail_err(g, &err);
    } else {
        reply_settings(g);
    }
}

/* ---- what is not there ---- */

/* No region is there: all of them are the empty message, one of them is an error. */
static void shm_status(struct mr_grpc_call *g, const char *kind, const char *region)
{
    mr_str text = mr_arena_printf(g->call->arena,
                                  "Unable to find %s shared memory region: '%.200s'", kind, region);

    if (region[0]) {
        mr_grpc_fail(g, MR_GRPC_NOT_FOUND,
                     text.ptr ? text : MR_STR("Unable to find the shared memory region"));
    } else {
        mr_grpc_reply(g, NULL, 0, MR_GRPC_IDENTITY);
    }
}

void grpc_system_shm_status(struct mr_server *s, struct mr_grpc_call *g)
{
    Inference__SystemSharedMemoryStatusRequest *q =
        grpc_request(g, &inference__system_shared_memory_status_request__descriptor);

    (void)s;
    if (q) {
        shm_status(g, "system", q->name);
    }
}

void grpc_cuda_shm_status(struct mr_server *s, struct mr_grpc_call *g)
{
    Inference__CudaSharedMemoryStatusRequest *q =
        grpc_request(g, &inference__cuda_shared_memory_status_request__descriptor);

    (void)s;
    if (q) {
        shm_status(g, "cuda", q->name);
    }
}

void grpc_no_shm(struct mr_server *s, struct mr_grpc_call *g)
{
    (void)s;
    mr_grpc_fail(
        g, MR_GRPC_UNIMPLEMENTED,
        MR_STR("Client shared memory is disabled: the shared-memory extension is not available in "
               "this version"));
}

void grpc_no_trace(struct mr_server *s, struct mr_grpc_call *g)
{
    (void)s;
    mr_grpc_fail(g, MR_GRPC_UNIMPLEMENTED,
                 MR_STR("the trace extension is not available in this version"));
}
