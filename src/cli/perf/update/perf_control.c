/* Loads and unloads over REST or gRPC. Only Triton's calls are needed; the phases of loads are queried if the server
 * reports them. */
#include "perf_control.h"

#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "codec/json.h"
#include "codec/pbtext.h"
#include "inference.pb-c.h"
#include "models.pb-c.h"

#define PATIENCE_NS (600 * MR_NS_PER_S)
#define CONFIG_MAX  ((size_t)64 << 20)

static const char *const state_names[PERF_STATES] = {"START",    "LOADING",  "WARMING", "READY",
                                                     "DRAINING", "UNLOADED", "FAILED"};

static int find_state(mr_str name)
{
    for (int i = 0; i < PERF_STATES; i++) {
        if (mr_str_eq_c(name, state_names[i])) {
            return i;
        }
    }
    return -1;
}

int perf_control_open(struct perf_control *c, const char *url, bool grpc, const char *model,
                      const struct mr_remote_access *access, struct mr_err *err)
{
    const struct mr_endpoint e = {.is_grpc = grpc, .model = model};
    const int rc = mr_endpoint_names_check(&e, err);

    c->grpc = grpc;
    c->model = model;
    return rc < 0 ? rc
                  : mr_remote_open(&c->remote, url, grpc ? 8001 : 8000, grpc, PATIENCE_NS, access,
                                   err);
}

void perf_control_close(struct perf_control *c)
{
    mr_remote_close(&c->remote);
}

/* ---- calls ---- */

static int call_grpc(struct perf_control *c, const char *path, const ProtobufCMessage *message,
                     struct mr_remote_reply *out, struct mr_err *err)
{
    struct mr_buf text;

    mr_buf_init(&text, 0);
    char *p = mr_buf_reserve(&text, protobuf_c_message_get_packed_size(message) + 1);
    text.len = p ? protobuf_c_message_pack(message, (uint8_t *)p) : 0;
    struct mr_piece piece = {.ptr = text.ptr, .len = text.len};
    int rc = p ? mr_remote_grpc(&c->remote, path, &piece, 1, out, err)
               : MR_FAIL(err, MR_E_TOO_LARGE, "the request is too large");
    mr_buf_fini(&text);
    return rc;
}

/* BEFORE/MODEL/VERB; a GET when body is NULL. */
static int call_rest(struct perf_control *c, const char *before, const char *verb,
                     const struct mr_buf *body, struct mr_remote_reply *out, struct mr_err *err)
{
    char path[700];

    snprintf(path, sizeof path, "%s/%.500s/%s", before, c->model, verb);
    return mr_remote_text(&c->remote, path, body, out, err);
}

static int load_rest(struct perf_control *c, mr_str config, struct mr_remote_reply *out,
                     struct mr_err *err)
{
    struct mr_buf body;

    mr_buf_init(&body, 2 * CONFIG_MAX);
    MR_BUF_LIT(&body, "{");
    if (config.len) {
        MR_BUF_LIT(&body, "\"parameters\":{\"config\":");
        mr_json_put_string(&body, config);
        MR_BUF_LIT(&body, "}");
    }
    MR_BUF_LIT(&body, "}");
    int rc = body.failed ? MR_FAIL(err, MR_E_TOO_LARGE, "the configuration is too large")
                         : call_rest(c, "/v2/repository/models", "load", &body, out, err);
    mr_buf_fini(&body);
    return rc;
}

/* protobuf-c's structs have char *, but do not modify it. */
static char *text_of(const char *s)
{
    return (char *)(uintptr_t)s;
}

static int load_grpc(struct perf_control *c, mr_str config, struct mr_remote_reply *out,
                     struct mr_err *err)
{
    Inference__RepositoryModelLoadRequest ask = INFERENCE__REPOSITORY_MODEL_LOAD_REQUEST__INIT;
    Inference__RepositoryModelLoadRequest__ParametersEntry entry =
        INFERENCE__REPOSITORY_MODEL_LOAD_REQUEST__PARAMETERS_ENTRY__INIT;
    Inference__RepositoryModelLoadRequest__ParametersEntry *entries[] = {&entry};
    Inference__ModelRepositoryParameter value = INFERENCE__MODEL_REPOSITORY_PARAMETER__INIT;
    char *copy = mr_strndup(config.ptr, config.len);

    ask.model_name = text_of(c->model);
    if (config.len) {
        entry.key = text_of("config");
        entry.value = &value;
        value.parameter_choice_case =
            INFERENCE__MODEL_REPOSITORY_PARAMETER__PARAMETER_CHOICE_STRING_PARAM;
        value.string_param = copy;
        ask.parameters = entries;
        ask.n_parameters = 1;
    }
    int rc =
        call_grpc(c, "/inference.GRPCInferenceService/RepositoryModelLoad", &ask.base, out, err);
    mr_free(copy);
    return rc;
}

int perf_control_load(struct perf_control *c, mr_str config, struct mr_err *err)
{
    struct mr_remote_reply reply;
    int rc = c->grpc ? load_grpc(c, config, &reply, err) : load_rest(c, config, &reply, err);

    if (rc == MR_OK) {
        mr_remote_reply_fini(&reply);
    }
    return rc;
}

int perf_control_unload(struct perf_control *c, struct mr_err *err)
{
    Inference__RepositoryModelUnloadRequest ask = INFERENCE__REPOSITORY_MODEL_UNLOAD_REQUEST__INIT;
    struct mr_remote_reply reply;
    struct mr_buf body;
    int rc;

    mr_buf_init(&body, 0);
    MR_BUF_LIT(&body, "{}");
    ask.model_name = text_of(c->model);
    rc = c->grpc ? call_grpc(c, "/inference.GRPCInferenceService/RepositoryModelUnload", &ask.base,
                             &reply, err)
                 : call_rest(c, "/v2/repository/models", "unload", &body, &reply, err);
    if (rc == MR_OK) {
        mr_remote_reply_fini(&reply);
    }
    mr_buf_fini(&body);
    return rc;
}

/* ---- configuration ---- */

static int config_of_message(mr_bytes message, struct mr_buf *out, struct mr_err *err)
{
    Inference__ModelConfigResponse *m =
        inference__model_config_response__unpack(NULL, message.len, message.ptr);

    if (!m || !m->config) {
        inference__model_config_response__free_unpacked(m, NULL);
        return MR_FAIL(err, MR_E_INVALID, "the model's configuration cannot be read");
    }
    mr_pbjson_print(&m->config->base, false, out);
    inference__model_config_response__free_unpacked(m, NULL);
    return MR_OK;
}

int perf_control_config(struct perf_control *c, struct mr_buf *out, struct mr_err *err)
{
    Inference__ModelConfigRequest ask = INFERENCE__MODEL_CONFIG_REQUEST__INIT;
    struct mr_remote_reply reply;

    ask.name = text_of(c->model);
    int rc = c->grpc ? call_grpc(c, "/inference.GRPCInferenceService/ModelConfig", &ask.base,
                                 &reply, err)
                     : call_rest(c, "/v2/models", "config", NULL, &reply, err);
    if (rc < 0) {
        return rc;
    }
    if (c->grpc) {
        rc = config_of_message(reply.body, out, err);
    } else {
        mr_buf_append(out, reply.body.ptr, reply.body.len);
    }
    mr_remote_reply_fini(&reply);
    return rc;
}

int perf_config_of_version(mr_str config, int64_t version, struct mr_buf *out, struct mr_err *err)
{
    struct mr_arena arena;
    struct mr_json j;
    bool first = true;
    mr_str key;
    mr_str value;

    mr_arena_init(&arena, 4096, CONFIG_MAX);
    mr_json_init(&j, config, &arena, 0, err);
    int rc = mr_json_enter_object(&j);
    MR_BUF_LIT(out, "{");
    while (rc == MR_OK && mr_json_next_key(&j, &first, &key)) {
        rc = mr_json_skip(&j, &value);
        if (rc == MR_OK && !mr_str_eq_c(key, "version_policy") &&
            !mr_str_eq_c(key, "versionPolicy")) {
            mr_json_put_string(out, key);
            mr_buf_char(out, ':');
            mr_buf_str(out, value);
            mr_buf_char(out, ',');
        }
    }
    rc = rc < 0 ? rc : j.status;
    mr_buf_printf(out, "\"version_policy\":{\"specific\":{\"versions\":[%lld]}}}",
                  (long long)version);
    mr_arena_fini(&arena);
    return rc < 0 ? MR_WRAP(err, rc, "the model's configuration") : MR_OK;
}

/* ---- load history ---- */

bool perf_wall_parse(mr_str text, int64_t *out_ns)
{
    static const char form[] = "0000-00-00T00:00:00";
    char copy[sizeof form];
    struct tm tm = {0};
    int64_t fraction = 0;
    int64_t unit = MR_NS_PER_S;

    if (text.len < sizeof form || text.ptr[text.len - 1] != 'Z') {
        return false;
    }
    memcpy(copy, text.ptr, sizeof form - 1);
    copy[sizeof form - 1] = '\0';
    for (size_t i = 0; i + 1 < sizeof form; i++) {
        bool is_digit = copy[i] >= '0' && copy[i] <= '9';
        if (form[i] == '0' ? !is_digit : copy[i] != form[i]) {
            return false;
        }
    }
    if (!strptime(copy, "%Y-%m-%dT%H:%M:%S", &tm)) {
        return false;
    }
    size_t i = sizeof form - 1;
    if (text.ptr[i] == '.') {
        for (i++; i < text.len && text.ptr[i] >= '0' && text.ptr[i] <= '9'; i++) {
            unit /= 10;
            fraction += (text.ptr[i] - '0') * unit;
        }
    }
    *out_ns = (int64_t)timegm(&tm) * MR_NS_PER_S + fraction;
    return i == text.len - 1;
}

static int parse_entered(struct mr_json *j, struct perf_load *load)
{
    bool first = true;
    mr_str key;
    mr_str at;
    int64_t ns;
    int rc = mr_json_enter_object(j);

    while (rc == MR_OK && mr_json_next_key(j, &first, &key)) {
        int state = find_state(key);
        rc = mr_json_string(j, &at);
        if (rc == MR_OK && !perf_wall_parse(at, &ns)) {
            rc = mr_json_fail(j, MR_E_INVALID, "expected a time");
        } else if (rc == MR_OK && state >= 0) {
            load->entered_wall_ns[state] = ns;
        }
    }
    return rc < 0 ? rc : j->status;
}

static int parse_load(struct mr_json *j, void *history)
{
    struct perf_load_history *out = history;
    struct perf_load load = {.state = -1};
    bool first = true;
    mr_str key;
    mr_str state;
    int rc = mr_json_enter_object(j);

    while (rc == MR_OK && mr_json_next_key(j, &first, &key)) {
        if (mr_str_eq_c(key, "state")) {
            rc = mr_json_string(j, &state);
            load.state = rc == MR_OK ? find_state(state) : -1;
        } else if (mr_str_eq_c(key, "entered")) {
            rc = parse_entered(j, &load);
        } else if (mr_str_eq_c(key, "release_ns")) {
            rc = mr_json_i64(j, &load.release_ns);
        } else {
            rc = mr_json_skip(j, NULL);
        }
    }
    rc = rc < 0 ? rc : j->status;
    if (rc == MR_OK) {
        MR_VEC_PUSH(out, load);
    }
    return rc;
}

int perf_load_history_parse(mr_bytes body, struct perf_load_history *out, struct mr_err *err)
{
    struct mr_arena arena;

    mr_arena_init(&arena, 4096, (size_t)1 << 26);
    int rc = mr_remote_versions(body, &arena, NULL, parse_load, out, err);
    mr_arena_fini(&arena);
    return rc < 0 ? MR_WRAP(err, rc, "the versions of the model") : MR_OK;
}

static int history_of_message(mr_bytes message, struct perf_load_history *out, struct mr_err *err)
{
    Millrace__ModelVersionsResponse *m =
        millrace__model_versions_response__unpack(NULL, message.len, message.ptr);

    if (!m) {
        return MR_FAIL(err, MR_E_INVALID, "the versions of the model cannot be read");
    }
    for (size_t i = 0; i < m->n_loads; i++) {
        const Millrace__ModelVersionsResponse__Load *load = m->loads[i];
        struct perf_load one = {.state = find_state(mr_str_c(load->state)),
                                .release_ns = load->release_ns};
        for (size_t k = 0; k < load->n_phases; k++) {
            int state = find_state(mr_str_c(load->phases[k]->state));
            if (state >= 0) {
                one.entered_wall_ns[state] = load->phases[k]->entered_unix_ns;
            }
        }
        MR_VEC_PUSH(out, one);
    }
    millrace__model_versions_response__free_unpacked(m, NULL);
    return MR_OK;
}

int perf_control_load_history(struct perf_control *c, struct perf_load_history *out,
                              struct mr_err *err)
{
    Millrace__ModelVersionsRequest ask = MILLRACE__MODEL_VERSIONS_REQUEST__INIT;
    struct mr_remote_reply reply;

    *out = (struct perf_load_history){0};
    ask.model_name = text_of(c->model);
    int rc = c->grpc ? call_grpc(c, "/millrace.ModelControl/ModelVersions", &ask.base, &reply, err)
                     : call_rest(c, "/v2/models", "versions", NULL, &reply, err);
    if (rc < 0) {
        return rc;
    }
    rc = c->grpc ? history_of_message(reply.body, out, err)
                 : perf_load_history_parse(reply.body, out, err);
    mr_remote_reply_fini(&reply);
    if (rc < 0) {
        MR_VEC_FINI(out);
    }
    return rc;
}
