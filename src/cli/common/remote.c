/* Blocking calls through the asynchronous client: each runs the loop on this thread until the answer arrives. */
#include "remote.h"

#include <stdio.h>

#include "base/clock.h"
#include "codec/json.h"

/* ---- addresses ---- */

bool mr_remote_is_grpc(const char *url)
{
    struct mr_url parts;

    mr_url_scheme(url, &parts);
    return parts.is_grpc;
}

int mr_remote_protocol(const char *url, int *io, struct mr_err *err)
{
    enum { REST, BINARY, GRPC };

    if (mr_remote_is_grpc(url) && *io == BINARY) {
        return MR_FAIL(err, MR_E_INVALID, "--url %.100s asks for gRPC, --protocol binary is REST",
                       url);
    }
    if (mr_remote_is_grpc(url) && *io == REST) {
        *io = GRPC;
    }
    return MR_OK;
}

int mr_remote_url(const char *url, int default_port, struct mr_url *out, struct mr_err *err)
{
    int rc = mr_url_parse(url, out, err);

    if (rc == MR_OK && out->path[0]) {
        rc = MR_FAIL(err, MR_E_INVALID, "'%.100s' is not the address of a host", url);
    }
    return rc < 0 ? rc : mr_url_default_port(out, default_port, err);
}

int mr_remote_open(struct mr_remote *r, const char *url, int default_port, bool http2,
                   int64_t timeout_ns, const struct mr_remote_access *access, struct mr_err *err)
{
    static const struct mr_remote_access open = {.headers.len = 0};
    const struct mr_remote_access *a = access ? access : &open;
    struct mr_client_options options = {.http2 = http2,
                                        .max_response_bytes = INT64_C(4) << 30,
                                        .headers = a->headers.at,
                                        .header_count = a->headers.len};
    struct mr_url parts;
    int rc;

    memset(r, 0, sizeof *r);
    r->timeout_ns = timeout_ns;
    MR_TRY(mr_remote_url(url, default_port, &parts, err));
    snprintf(r->address, sizeof r->address, "%s", parts.address);
    if (parts.is_tls) {
        MR_TRY(mr_tls_client_new(&r->tls, &a->tls, err));
        options.tls = r->tls;
    }
    MR_TRY(mr_loop_new(&r->loop, NULL, err));
    MR_TRY(mr_client_new(&r->client, r->loop, r->address, &options, err));
out:
    if (rc < 0) {
        mr_remote_close(r);
    }
    return rc;
}

void mr_remote_close(struct mr_remote *r)
{
    mr_client_free(&r->client);
    mr_loop_free(&r->loop);
    mr_tls_client_free(&r->tls);
}

void mr_remote_reply_fini(struct mr_remote_reply *reply)
{
    mr_block_unref(&reply->block);
    reply->body = (mr_bytes){NULL, 0};
}

/* ---- calls ---- */

struct wait {
    struct mr_loop *loop;
    struct mr_remote_reply *reply;
    int rc;
    struct mr_err err;
};

/* Metadata of a gRPC call that has failed. An answer without a message has only headers. */
static void trace_keep(const struct mr_client_response *response, struct mr_remote_reply *out)
{
    static const mr_str name = MR_STR_INIT("workflow.trace-bin");
    mr_str text = mr_header_find(response->trailers, response->trailer_count, name);

    text = text.ptr ? text : mr_header_find(response->headers, response->header_count, name);
    size_t len = text.len;
    out->block = text.ptr ? mr_block_new(len + 1) : NULL;
    if (out->block && mr_base64_decode(text, out->block->data, &len)) {
        out->body = (mr_bytes){out->block->data, len};
    }
}

static void on_done(void *ctx, int rc, const struct mr_err *err,
                    const struct mr_client_response *response)
{
    struct wait *w = ctx;

    w->rc = rc;
    w->err = *err;
    if (rc == MR_OK) {
        w->reply->status = response->status;
        w->reply->body = response->body;
        w->reply->block = response->body_block ? mr_block_ref(response->body_block) : NULL;
        w->reply->header_length = mr_endpoint_header_length(response);
    } else if (response) {
        trace_keep(response, w->reply);
    }
    mr_loop_stop(w->loop);
}

int mr_remote_error(const struct mr_remote *r, int http_status, mr_bytes body, struct mr_err *err)
{
    static const struct {
        int http;
        int status;
    } map[] = {{404, MR_E_NOT_FOUND}, {501, MR_E_UNSUPPORTED}, {503, MR_E_UNAVAILABLE},
               {504, MR_E_DEADLINE},  {403, MR_E_FORBIDDEN},   {400, MR_E_INVALID}};
    struct mr_arena arena;
    struct mr_json j;
    mr_str text = {(const char *)body.ptr, body.len};
    mr_str key;
    mr_str message = {NULL, 0};
    bool first = true;
    int status = MR_E_INTERNAL;

    for (size_t i = 0; i < sizeof map / sizeof *map; i++) {
        status = http_status == map[i].http ? map[i].status : status;
    }
    mr_arena_init(&arena, 4096, 1 << 20);
    mr_json_init(&j, text, &arena, 0, NULL);
    if (mr_json_peek(&j) == MR_JSON_OBJECT) {
        mr_json_enter_object(&j);
        while (mr_json_next_key(&j, &first, &key)) {
            if (!mr_str_eq_c(key, "error") || mr_json_string(&j, &message) < 0) {
                mr_json_skip(&j, NULL);
            }
        }
    }
    /* What comes with a status below 400 is not said of an error. */
    const bool is_told = message.len > 0 && http_status >= 400;
    int rc = is_told ? MR_FAIL(err, status, "%.*s", MR_STR_ARG(message))
                     : MR_FAIL(err, status, "%s answers with HTTP status %d %.*s", r->address,
                               http_status, MR_STR_ARG(mr_str_sub(text, 0, 200)));
    mr_arena_fini(&arena);
    return rc;
}

static int wait_for(struct mr_remote *r, struct wait *w, int64_t begin_ns, struct mr_err *err)
{
    mr_loop_run(r->loop);
    w->reply->took_ns = mr_now_ns() - begin_ns;
    if (w->rc < 0 && err) {
        *err = w->err;
    }
    return w->rc;
}

static bool is_done(int http_status)
{
    return http_status >= 200 && http_status < 300;
}

/* An answer of HTTP that is an error has the server's text. */
static int http_answer(struct mr_remote *r, int rc, struct mr_remote_reply *out, struct mr_err *err)
{
    if (rc == MR_OK && !is_done(out->status)) {
        rc = mr_remote_error(r, out->status, out->body, err);
        mr_remote_reply_fini(out);
    }
    return rc;
}

int mr_remote_http(struct mr_remote *r, const struct mr_client_request *request,
                   struct mr_remote_reply *out, struct mr_err *err)
{
    struct wait w = {.loop = r->loop, .reply = out};
    struct mr_client_request timed = *request;
    int64_t begin = mr_now_ns();

    memset(out, 0, sizeof *out);
    timed.timeout_ns = r->timeout_ns;
    mr_client_send(r->client, &timed, on_done, &w);
    return http_answer(r, wait_for(r, &w, begin, err), out, err);
}

int mr_remote_infer(struct mr_remote *r, const struct mr_endpoint *e,
                    struct mr_oip_request *request, struct mr_buf *buf, struct mr_arena *arena,
                    struct mr_remote_reply *out, struct mr_err *err)
{
    struct wait w = {.loop = r->loop, .reply = out};
    struct mr_endpoint to = *e;
    const struct mr_endpoint_infer infer = {.request = request, .timeout_ns = r->timeout_ns};
    const int64_t begin = mr_now_ns();

    memset(out, 0, sizeof *out);
    to.client = r->client;
    if (!mr_endpoint_infer(&to, &infer, buf, arena, NULL, on_done, &w, err)) {
        return err->status;
    }
    const int rc = wait_for(r, &w, begin, err);
    return rc == MR_OK && !is_done(out->status) ? mr_remote_error(r, out->status, out->body, err)
                                                : rc;
}

int mr_remote_metadata(struct mr_remote *r, const struct mr_endpoint *e, struct mr_arena *arena,
                       struct mr_oip_metadata *out, struct mr_err *err)
{
    struct mr_remote_reply reply = {0};
    struct wait w = {.loop = r->loop, .reply = &reply};
    struct mr_endpoint to = *e;

    to.client = r->client;
    mr_endpoint_metadata(&to, r->timeout_ns, on_done, &w);
    int rc = http_answer(r, wait_for(r, &w, mr_now_ns(), err), &reply, err);
    if (rc == MR_OK) {
        rc = mr_endpoint_metadata_decode(e, reply.body, arena, out, err);
    }
    mr_remote_reply_fini(&reply);
    return rc;
}

int mr_remote_text(struct mr_remote *r, const char *path, const struct mr_buf *body,
                   struct mr_remote_reply *out, struct mr_err *err)
{
    struct mr_header type = {MR_STR("content-type"), MR_STR("application/json")};
    struct mr_piece piece = {.ptr = body ? body->ptr : NULL, .len = body ? body->len : 0};
    struct mr_client_request request = {.method = body ? "POST" : "GET",
                                        .path = mr_str_c(path),
                                        .headers = &type,
                                        .header_count = body != NULL,
                                        .pieces = &piece,
                                        .piece_count = body != NULL};

    return mr_remote_http(r, &request, out, err);
}

int mr_remote_grpc(struct mr_remote *r, const char *path, const struct mr_piece *pieces,
                   size_t piece_count, struct mr_remote_reply *out, struct mr_err *err)
{
    struct wait w = {.loop = r->loop, .reply = out};
    int64_t begin = mr_now_ns();

    memset(out, 0, sizeof *out);
    const struct mr_client_grpc_request request = {
        .path = path, .pieces = pieces, .piece_count = piece_count, .timeout_ns = r->timeout_ns};
    mr_client_grpc(r->client, &request, on_done, &w);
    return wait_for(r, &w, begin, err);
}

/* ---- answers ---- */

int mr_remote_versions(mr_bytes body, struct mr_arena *arena, mr_str *out_error,
                       int (*row)(struct mr_json *j, void *ctx), void *ctx, struct mr_err *err)
{
    struct mr_json j;
    bool first_key = true;
    mr_str key;

    mr_json_init(&j, mr_str_n((const char *)body.ptr, body.len), arena, 0, err);
    int rc = mr_json_enter_object(&j);
    while (rc == MR_OK && mr_json_next_key(&j, &first_key, &key)) {
        bool first = true;
        if (out_error && mr_str_eq_c(key, "error")) {
            rc = mr_json_string(&j, out_error);
        } else if (!mr_str_eq_c(key, "versions")) {
            rc = mr_json_skip(&j, NULL);
        } else {
            rc = mr_json_enter_array(&j);
            while (rc == MR_OK && mr_json_next_item(&j, &first)) {
                rc = row(&j, ctx);
            }
        }
    }
    return rc < 0 ? rc : j.status;
}
