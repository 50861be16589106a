/* Source: the Open Inference Protocol's REST and gRPC forms, Triton's binary extension; gRPC status codes as
 * grpc/statuscodes says. A host that is busy answers 429, 503, RESOURCE_EXHAUSTED or UNAVAILABLE. */
#include "wire.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "codec/pb.h"

#define GRPC_CONNECTIONS 4 /* hosts take some 100 streams on each */
#define PROOF_LEAST      16u
#define PROOF_MOST       4096u
#define REST_CONNECTIONS 1024

/* ---- addresses ---- */

static const struct {
    const char *text;
    bool is_grpc;
    bool is_tls;
} schemes[] = {{"http://", false, false},
               {"https://", false, true},
               {"grpc://", true, false},
               {"grpcs://", true, true}};

int wire_default_port(const struct mr_batch_options *o, enum mr_batch_protocol protocol,
                      bool is_tls)
{
    if (o->openai && is_tls) {
        return 443;
    }
    return protocol == MR_BATCH_GRPC ? 8001 : 8000;
}

int wire_parse(const char *url, const struct mr_batch_options *o, enum mr_batch_protocol *out,
               bool *out_is_tls, const char **out_rest, struct mr_err *err)
{
    *out = o->protocol;
    *out_is_tls = false;
    *out_rest = url;
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        const size_t len = strlen(schemes[i].text);
        if (strncmp(url, schemes[i].text, len) == 0) {
            *out_rest = url + len;
            *out_is_tls = schemes[i].is_tls;
            *out = schemes[i].is_grpc             ? MR_BATCH_GRPC
                   : o->protocol == MR_BATCH_GRPC ? MR_BATCH_BINARY
                                                  : o->protocol;
        }
    }
    if (o->openai && *out == MR_BATCH_GRPC) {
        return MR_FAIL(err, MR_E_UNSUPPORTED, "host '%.100s': the API is spoken by http and https",
                       url);
    }
    if (strstr(*out_rest, "://")) {
        return MR_FAIL(err, MR_E_UNSUPPORTED,
                       "host '%.100s': http://, https://, grpc:// and grpcs:// are what jobs speak",
                       url);
    }
    return MR_OK;
}

/* What is behind the address is a prefix of paths. */
static int prefix_take(struct wire *w, const char *rest, size_t *io_len, struct mr_err *err)
{
    const size_t host = MR_MIN(strcspn(rest, "/"), *io_len);
    const size_t n = *io_len - host;

    if (!w->o->openai || strncmp(rest, "unix:", 5) == 0) {
        snprintf(w->prefix, sizeof w->prefix, "/v1");
        return MR_OK;
    }
    if (n >= sizeof w->prefix || strpbrk(rest, "?# ")) {
        return MR_FAIL(err, MR_E_INVALID, "'%.100s' is not the address of a host", rest);
    }
    snprintf(w->prefix, sizeof w->prefix, "%.*s", n > 0 ? (int)n : 3, n > 0 ? rest + host : "/v1");
    *io_len = host;
    return MR_OK;
}

int wire_open(struct wire *w, struct mr_loop *loop, const struct mr_batch_options *o,
              const char *url, const char *tls_name, struct mr_err *err)
{
    struct mr_client_options options = {
        .never_repeat = true, .headers = o->headers, .header_count = o->header_count};
    struct mr_tls_client_options tls = o->tls;
    const char *rest;
    bool is_tls;
    int rc;

    w->o = o;
    w->local = NULL;
    w->form = (struct wire_form){0};
    MR_TRY(wire_parse(url, o, &w->protocol, &is_tls, &rest, err));
    options.http2 = w->protocol == MR_BATCH_GRPC;
    /* As many as there are calls, whose number the route bounds and a running job may be told. */
    options.max_connections = options.http2 ? GRPC_CONNECTIONS : REST_CONNECTIONS;
    size_t len = strlen(rest) - (strlen(rest) > 1 && rest[strlen(rest) - 1] == '/');
    MR_TRY(prefix_take(w, rest, &len, err));
    const char *bracket = memchr(rest, ']', len);
    const char *last = bracket ? bracket : rest;
    const bool has_port =
        memchr(last, ':', len - (size_t)(last - rest)) || strncmp(rest, "unix:", 5) == 0;
    int n = has_port ? snprintf(w->address, sizeof w->address, "%.*s", (int)len, rest)
                     : snprintf(w->address, sizeof w->address, "%.*s:%d", (int)len, rest,
                                wire_default_port(o, w->protocol, is_tls));
    if (len == 0 || n <= 0 || (size_t)n >= sizeof w->address) {
        MR_TRY(MR_FAIL(err, MR_E_INVALID, "'%.100s' is not the address of a host", url));
    }
    if (is_tls && !w->tls) {
        tls.server_name = tls.server_name ? tls.server_name : tls_name;
        MR_TRY(mr_tls_client_new(&w->tls, &tls, err));
    }
    options.tls = w->tls;
    MR_TRY(mr_client_new(&w->client, loop, w->address, &options, err));
out:
    return rc;
}

void wire_bound(struct wire *w, int64_t bytes)
{
    if (w->client) {
        mr_client_set_response_max(w->client, bytes);
    }
}

void wire_open_local(struct wire *w, const struct mr_batch_options *o, struct local *local)
{
    *w = (struct wire){.o = o, .protocol = MR_BATCH_LOCAL, .local = local};
    snprintf(w->address, sizeof w->address, "local");
}

void wire_close(struct wire *w)
{
    if (w->client) {
        mr_client_free(&w->client);
    }
}

void wire_fini(struct wire *w)
{
    mr_tls_client_free(&w->tls);
}

/* ---- metadata ---- */

void wire_ask(struct wire *w, int64_t timeout_ns, mr_client_done_fn *done, void *ctx)
{
    const struct mr_batch_options *o = w->o;

    if (w->protocol == MR_BATCH_GRPC) {
        struct mr_buf message;
        mr_buf_init(&message, 0);
        mr_pb_put_str(&message, 1, mr_str_c(o->model));
        mr_pb_put_str(&message, 2, mr_str_c(o->version ? o->version : ""));
        const struct mr_piece piece = {.ptr = message.ptr, .len = message.len};
        const struct mr_client_grpc_request call = {
            .path = "/inference.GRPCInferenceService/ModelMetadata",
            .pieces = &piece,
            .piece_count = 1,
            .timeout_ns = timeout_ns};
        mr_client_grpc(w->client, &call, done, ctx);
        mr_buf_fini(&message);
        return;
    }
    char path[600];
    const int n =
        o->version ? snprintf(path, sizeof path, "/v2/models/%s/versions/%s", o->model, o->version)
                   : snprintf(path, sizeof path, "/v2/models/%s", o->model);
    const struct mr_client_request request = {
        .method = "GET", .path = {path, (size_t)n}, .timeout_ns = timeout_ns};
    mr_client_send(w->client, &request, done, ctx);
}

bool wire_status_lasts(int status)
{
    return status >= 400 && status < 500 && status != 408 && status != 425 && status != 429;
}

int wire_metadata(const struct wire *w, int rc, const struct mr_err *told,
                  const struct mr_client_response *response, struct mr_arena *arena,
                  struct mr_oip_metadata *out, struct mr_err *err)
{
    if (rc < 0) {
        *err = *told;
        /* A server that says so is there, and may be well soon. */
        err->status = rc == MR_E_UNAVAILABLE && response ? MR_E_UNKNOWN : rc;
        return err->status;
    }
    if (w->protocol == MR_BATCH_GRPC) {
        return mr_oip_pb_decode_metadata(response->body, arena, out, err);
    }
    if (response->status != 200) {
        return MR_FAIL(err, wire_status_lasts(response->status) ? MR_E_NOT_FOUND : MR_E_UNKNOWN,
                       "metadata: HTTP status %d: %.*s", response->status,
                       (int)MR_MIN(response->body.len, (size_t)80),
                       (const char *)response->body.ptr);
    }
    return mr_oip_rest_decode_metadata(response->body, arena, out, err);
}

/* ---- inference ---- */

static void on_response(void *ctx, int rc, const struct mr_err *err,
                        const struct mr_client_response *response)
{
    const struct wire_call *c = ctx;
    c->done(c->ctx, &(struct wire_reply){.rc = rc, .err = err, .response = response});
}

static void on_local(void *ctx, const struct mr_infer *infer)
{
    const struct wire_call *c = ctx;
    c->done(c->ctx, &(struct wire_reply){.rc = infer->status, .err = &infer->err, .infer = infer});
}

static int send_grpc(struct wire *w, struct wire_call *c, struct mr_oip_request *r,
                     struct mr_buf *buf, struct mr_arena *arena, int64_t timeout_ns,
                     struct mr_err *err)
{
    struct mr_oip_encoded body;

    r->model_name = mr_str_c(w->o->model);
    r->model_version = mr_str_c(w->o->version ? w->o->version : "");
    int rc = mr_oip_pb_encode_request(r, buf, arena, &body, err);
    if (rc == MR_OK) {
        const struct mr_client_grpc_request call = {
            .path = "/inference.GRPCInferenceService/ModelInfer",
            .pieces = body.pieces,
            .piece_count = body.piece_count,
            .timeout_ns = timeout_ns};
        c->call = mr_client_grpc(w->client, &call, on_response, c);
    }
    return rc;
}

/* Is the next call one with bytes? One is, in between, when JSON did well and bytes did not: had the host only failed for a
 * while, or because of some rows, all calls would cost more from then on. */
static void form_choose(struct wire *w, struct wire_call *c)
{
    struct wire_form *f = &w->form;

    c->is_binary = w->protocol == MR_BATCH_BINARY && !f->json_next;
    c->is_proof = c->is_binary && f->json_ok;
    f->json_next = f->json_next || c->is_proof;
}

bool wire_form_told(struct wire *w, const struct wire_call *c, enum mr_route_outcome outcome)
{
    struct wire_form *f = &w->form;
    const bool is_ok = outcome == MR_ROUTE_OK;

    if (w->protocol != MR_BATCH_BINARY || f->binary_ok || outcome == MR_ROUTE_THROTTLED ||
        outcome == MR_ROUTE_CANCELLED) {
        return false;
    }
    if (is_ok && c->is_binary) {
        *f = (struct wire_form){.binary_ok = true};
    } else if (is_ok) {
        f->json_ok = true;
        if (++f->json_count > f->json_most) {
            f->json_next = false;
            f->json_count = 0;
            f->json_most = MR_MAX(f->json_most, PROOF_LEAST);
        }
    } else if (!f->json_ok) {
        f->json_next = c->is_binary;
    } else if (c->is_proof) {
        if (!f->is_json) {
            mr_log(MR_LOG_INFO, "batch.json_only",
                   "host=%s; takes no tensors as bytes, and gets JSON", w->address);
        }
        f->is_json = true;
        f->json_most = MR_MIN(2 * f->json_most, PROOF_MOST);
    }
    return !is_ok && c->is_binary && (c->is_proof || outcome == MR_ROUTE_REJECTED);
}

static int send_rest(struct wire *w, struct wire_call *c, struct mr_oip_request *r,
                     struct mr_buf *buf, struct mr_arena *arena, int64_t timeout_ns,
                     struct mr_err *err)
{
    const struct mr_batch_options *o = w->o;
    form_choose(w, c);
    const bool is_binary = c->is_binary;
    struct mr_header headers[2] = {{MR_STR("content-type"), MR_STR("application/json")},
                                   {MR_STR("inference-header-content-length"), {NULL, 0}}};
    struct mr_oip_encoded body;

    for (size_t i = 0; i < r->input_count; i++) {
        r->inputs[i].binary = is_binary;
    }
    for (size_t i = 0; i < r->output_count; i++) {
        r->outputs[i].binary_data = is_binary;
    }
    r->binary_data_output = is_binary && r->output_count == 0;
    r->may_spill = true;
    int rc = mr_oip_rest_encode_request(r, buf, arena, &body, err);
    if (rc < 0) {
        return rc;
    }
    const bool has_header = body.header_length >= 0;
    c->text_bytes = has_header ? (uint64_t)body.header_length : body.bytes;
    if (has_header) {
        headers[0].value = MR_STR("application/octet-stream");
        headers[1].value = mr_arena_printf(arena, "%lld", (long long)body.header_length);
    }
    const mr_str path =
        o->version ? mr_arena_printf(arena, "/v2/models/%s/versions/%s/infer", o->model, o->version)
                   : mr_arena_printf(arena, "/v2/models/%s/infer", o->model);
    const struct mr_client_request request = {.method = "POST",
                                              .path = path,
                                              .headers = headers,
                                              .header_count = 1 + (size_t)has_header,
                                              .pieces = body.pieces,
                                              .piece_count = body.piece_count,
                                              .timeout_ns = timeout_ns};
    c->call = mr_client_send(w->client, &request, on_response, c);
    return MR_OK;
}

int wire_send(struct wire *w, struct wire_call *c, struct mr_oip_request *r, struct mr_buf *buf,
              struct mr_arena *arena, int64_t timeout_ns, struct mr_err *err)
{
    switch (w->protocol) {
    case MR_BATCH_LOCAL: local_send(w->local, r, on_local, c); return MR_OK;
    case MR_BATCH_GRPC: return send_grpc(w, c, r, buf, arena, timeout_ns, err);
    default: return send_rest(w, c, r, buf, arena, timeout_ns, err);
    }
}

void wire_post(struct wire *w, struct wire_call *c, const struct mr_client_request *request)
{
    c->call = mr_client_send(w->client, request, on_response, c);
}

void wire_cancel(const struct wire_call *c)
{
    if (c->call) {
        mr_client_cancel(c->call);
    }
}

/* ---- answers ---- */

static int64_t number_in(const struct mr_header *headers, size_t count, const char *name)
{
    int64_t n;

    for (size_t i = 0; i < count; i++) {
        if (mr_str_eq_c(headers[i].name, name) && mr_str_to_i64(headers[i].value, &n)) {
            return n;
        }
    }
    return -1;
}

static void judge_http(const struct mr_client_response *r, struct wire_answer *a)
{
    const int status = r->status;

    snprintf(a->cause, sizeof a->cause, "HTTP status %d: %.*s", status,
             (int)MR_MIN(r->body.len, (size_t)180), (const char *)r->body.ptr);
    if (status == 429 || status == 503) {
        const int64_t seconds = number_in(r->headers, r->header_count, "retry-after");
        a->outcome = MR_ROUTE_THROTTLED;
        a->retry_after_ns = MR_MIN(MR_MAX(seconds, INT64_C(0)), INT64_C(86400)) * MR_NS_PER_S;
    } else if (status == 401 || status == 403 || status == 404 || status == 405) {
        a->outcome = MR_ROUTE_FAILED;
        a->is_for_good = true;
    } else {
        a->outcome =
            status >= 400 && status < 500 && status != 408 ? MR_ROUTE_REJECTED : MR_ROUTE_FAILED;
    }
}

/* The host's own status, if it has told one. */
static void judge_grpc(const struct mr_client_response *r, struct wire_answer *a)
{
    static const struct {
        int code;
        enum mr_route_outcome outcome;
        bool is_for_good;
    } codes[] = {
        {3, MR_ROUTE_REJECTED, false},   /* INVALID_ARGUMENT */
        {4, MR_ROUTE_TIMED_OUT, false},  /* DEADLINE_EXCEEDED */
        {5, MR_ROUTE_FAILED, true},      /* NOT_FOUND */
        {7, MR_ROUTE_FAILED, true},      /* PERMISSION_DENIED */
        {8, MR_ROUTE_THROTTLED, false},  /* RESOURCE_EXHAUSTED */
        {9, MR_ROUTE_REJECTED, false},   /* FAILED_PRECONDITION */
        {11, MR_ROUTE_REJECTED, false},  /* OUT_OF_RANGE */
        {12, MR_ROUTE_FAILED, true},     /* UNIMPLEMENTED */
        {14, MR_ROUTE_THROTTLED, false}, /* UNAVAILABLE */
        {16, MR_ROUTE_FAILED, true},     /* UNAUTHENTICATED */
    };
    const int code = r->grpc_status;

    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (codes[i].code == code) {
            a->outcome = codes[i].outcome;
            a->is_for_good = codes[i].is_for_good;
        }
    }
    /* Servers say RESOURCE_EXHAUSTED of messages that are too large, too: smaller ones will do. */
    if (code == 8 && strstr(a->cause, "larger than max")) {
        a->outcome = MR_ROUTE_REJECTED;
    }
}

/* What the scheduler says of a request is what a server would. */
static void judge_local(const struct wire_reply *reply, struct wire_answer *a)
{
    struct mr_err err;

    if (reply->rc < 0) {
        a->outcome = reply->rc == MR_E_INVALID       ? MR_ROUTE_REJECTED
                     : reply->rc == MR_E_UNAVAILABLE ? MR_ROUTE_THROTTLED
                                                     : MR_ROUTE_FAILED;
        snprintf(a->cause, sizeof a->cause, "%s", reply->err->msg);
    } else if (local_response(reply->infer, &a->response, &err) < 0) {
        a->outcome = MR_ROUTE_FAILED;
        snprintf(a->cause, sizeof a->cause, "%s", err.msg);
    }
}

bool wire_judge_status(const struct wire_reply *reply, struct wire_answer *a)
{
    *a = (struct wire_answer){.outcome = MR_ROUTE_OK};
    if (reply->rc < 0) {
        a->outcome = reply->rc == MR_E_DEADLINE ? MR_ROUTE_TIMED_OUT : MR_ROUTE_FAILED;
        snprintf(a->cause, sizeof a->cause, "%s", reply->err->msg);
        return false;
    }
    if (reply->response->status != 200) {
        judge_http(reply->response, a);
        return false;
    }
    return true;
}

void wire_judge(const struct wire *w, const struct wire_reply *reply, struct mr_arena *arena,
                struct wire_answer *a)
{
    const struct mr_client_response *response = reply->response;
    struct mr_err err;

    if (w->protocol == MR_BATCH_LOCAL) {
        *a = (struct wire_answer){.outcome = MR_ROUTE_OK};
        judge_local(reply, a);
        return;
    }
    if (!wire_judge_status(reply, a)) {
        if (reply->rc < 0 && response) {
            judge_grpc(response, a);
        }
        return;
    }
    mr_arena_reset(arena);
    const int64_t length =
        number_in(response->headers, response->header_count, "inference-header-content-length");
    int rc =
        w->protocol == MR_BATCH_GRPC
            ? mr_oip_pb_decode_response(response->body, NULL, arena, &a->response, &err)
            : mr_oip_rest_decode_response(response->body, length, NULL, arena, &a->response, &err);
    a->body = response->body_block;
    if (rc < 0) {
        a->outcome = MR_ROUTE_FAILED;
        snprintf(a->cause, sizeof a->cause, "wrong answer: %s", err.msg);
    }
}
