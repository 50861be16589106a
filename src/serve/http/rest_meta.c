/* Health, server and model metadata, model configuration over REST. Health answers carry the Open Inference
 * Protocol's JSON besides Triton's status, which is all that Triton's clients look at. */
#include "rest_meta.h"

#include "codec/json.h"
#include "rest_infer.h"
#include "serve/mesh/fleet_ready.h"
#include "serve/state/meta.h"
#include "serve/state/reply.h"
#include "serve/state/state.h"
#include "tensor/tensor.h"

static struct mr_buf *scratch(struct mr_call *call)
{
    struct mr_buf *b = mr_loop_scratch(call->loop);

    mr_buf_reset(b);
    return b;
}

/* How much of an answer a health check gets. */
static void reply_health(struct mr_server *s, struct mr_call *call, int status, mr_str body)
{
    if (s->options.empty_health_bodies) {
        reply_empty(call, status);
    } else {
        reply_json(call, status, body);
    }
}

static int health_status(const struct mr_server *s, bool is_good)
{
    return is_good ? 200 : serve_is_exiting(s) ? 503 : 400;
}

void rest_live(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    bool live = !serve_is_exiting(s);

    (void)path;
    reply_health(s, call, health_status(s, live),
                 live ? MR_STR("{\"live\":true}") : MR_STR("{\"live\":false}"));
}

void rest_ready(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    bool ready = serve_is_ready(s);

    (void)path;
    /* The protocol's text names the key "ready" in one place and "live" in another; "live" is what /v2/health/live
     * says. */
    reply_health(s, call, health_status(s, ready),
                 ready                 ? MR_STR("{\"ready\":true,\"live\":true}")
                 : serve_is_exiting(s) ? MR_STR("{\"ready\":false,\"live\":false}")
                                       : MR_STR("{\"ready\":false,\"live\":true}"));
}

void rest_server_metadata(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    struct mr_buf *b = scratch(call);

    (void)path;
    MR_BUF_LIT(b, "{\"name\":");
    mr_json_put_string(b, mr_str_c(s->options.id));
    MR_BUF_LIT(b, ",\"version\":\"" MR_VERSION "\",\"extensions\":[");
    for (size_t i = 0; i < serve_extension_count; i++) {
        if (i) {
            mr_buf_char(b, ',');
        }
        mr_json_put_string(b, mr_str_c(serve_extensions[i]));
    }
    MR_BUF_LIT(b, "]}");
    reply_buf(call, 200, b);
}

static void put_io(struct mr_buf *b, const struct mr_version *v, const struct mr_model_io *io,
                   uint32_t count)
{
    int64_t shape[MR_MAX_RANK + 1];

    for (uint32_t i = 0; i < count; i++) {
        size_t rank = meta_shape(v, &io[i], shape);
        if (i) {
            mr_buf_char(b, ',');
        }
        MR_BUF_LIT(b, "{\"name\":");
        mr_json_put_string(b, io[i].name);
        mr_buf_printf(b, ",\"datatype\":\"%s\",\"shape\":[", mr_dtype_name(io[i].dtype));
        for (size_t k = 0; k < rank; k++) {
            if (k) {
                mr_buf_char(b, ',');
            }
            mr_buf_i64(b, shape[k]);
        }
        MR_BUF_LIT(b, "]}");
    }
}

void rest_model_metadata(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    mr_str versions[META_VERSIONS_MAX];
    struct mr_version *v;
    struct mr_err err = {0};
    struct mr_buf *b;
    size_t n;

    if (meta_find(s, path->model, path->version, &v, &err) < 0) {
        reply_error(call, &err);
        return;
    }
    if (v->has_messages) {
        rest_ask(call, path, "metadata");
        return;
    }
    b = scratch(call);
    MR_BUF_LIT(b, "{\"name\":");
    mr_json_put_string(b, path->model);
    MR_BUF_LIT(b, ",\"versions\":[");
    n = meta_versions(s, v, path->model, path->version, versions);
    for (size_t i = 0; i < n; i++) {
        if (i) {
            mr_buf_char(b, ',');
        }
        mr_json_put_string(b, versions[i]);
    }
    MR_BUF_LIT(b, "],\"platform\":");
    mr_json_put_string(b, mr_str_c(meta_platform(v)));
    MR_BUF_LIT(b, ",\"inputs\":[");
    put_io(b, v, v->inputs, v->input_count);
    MR_BUF_LIT(b, "],\"outputs\":[");
    put_io(b, v, v->outputs, v->output_count);
    MR_BUF_LIT(b, "]}");
    reply_buf(call, 200, b);
}

static void reply_model_ready(struct mr_server *s, struct mr_call *call, mr_str name)
{
    if (s->options.empty_health_bodies) {
        reply_empty(call, 200);
        return;
    }
    struct mr_buf *b = scratch(call);
    MR_BUF_LIT(b, "{\"name\":");
    mr_json_put_string(b, name);
    MR_BUF_LIT(b, ",\"ready\":true}");
    reply_buf(call, 200, b);
}

static void reply_model_not_ready(struct mr_server *s, struct mr_call *call,
                                  const struct mr_err *why)
{
    if (why->status == MR_E_NOT_FOUND && s->options.mlserver_errors) {
        reply_error(call, why);
    } else {
        reply_status_text(call, 400, "Model version not ready");
    }
}

/* In a mesh: a model that is not ready here. In the call's arena. */
struct ready_elsewhere {
    struct fleet_ready fleet;
    struct mr_server *server;
    struct mr_call *call;
    struct mr_err err; /* why it is not ready here */
};

static void fleet_said(struct fleet_ready *q, bool is_ready)
{
    struct ready_elsewhere *e = MR_CONTAINER_OF(q, struct ready_elsewhere, fleet);

    if (is_ready) {
        reply_model_ready(e->server, e->call, q->name);
    } else {
        const struct mr_mesh_admin *a = &q->admin;
        reply_model_not_ready(e->server, e->call, a->status < 0 ? &a->err : &e->err);
    }
}

/* False: there is no memory, or no fleet that knows whether such a version is ready. */
static bool ask_fleet(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path,
                      const struct mr_err *err)
{
    struct ready_elsewhere *e = NULL;

    if (s->mesh && !path->version.len) {
        e = MR_ARENA_NEW(call->arena, struct ready_elsewhere);
    }
    if (e) {
        *e = (struct ready_elsewhere){.fleet = {.done = fleet_said, .name = path->model},
                                      .server = s,
                                      .call = call,
                                      .err = *err};
        fleet_ready_ask(s, &e->fleet);
    }
    return e != NULL;
}

void rest_model_ready(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    struct mr_version *v;
    struct mr_err err = {0};
    int rc = meta_find(s, path->model, path->version, &v, &err);

    if (rc == MR_E_INVALID) {
        reply_error(call, &err);
    } else if (rc < 0) {
        if (!ask_fleet(s, call, path, &err)) {
            reply_model_not_ready(s, call, &err);
        }
    } else if (!meta_is_ready(s, path->model, path->version, v)) {
        reply_model_not_ready(s, call, &err);
    } else if (v->has_messages) {
        reply_empty(call, 200);
    } else {
        reply_model_ready(s, call, path->model);
    }
}

void rest_model_config(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    struct mr_version *v;
    struct mr_err err = {0};

    if (meta_find(s, path->model, path->version, &v, &err) < 0) {
        reply_error(call, &err);
        return;
    }
    struct mr_buf *b = scratch(call);
    mr_config_json(v->config, b);
    reply_buf(call, 200, b);
}
