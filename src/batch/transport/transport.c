/* Source: the Open Inference Protocol's REST and gRPC forms, Triton's binary extension; gRPC status codes as
 * grpc/statuscodes says. A host that is busy answers 429, 503, RESOURCE_EXHAUSTED or UNAVAILABLE. */
#include "transport.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "client/endpoint.h"
#include "client/url.h"

#define GRPC_CONNECTIONS 4 /* hosts take some 100 streams on each */
#define PROOF_LEAST      16u
#define PROOF_MOST       4096u
#define REST_CONNECTIONS 1024
#define PREFIX_MAX       127 /* bytes, of paths */

/* What a call goes to. */
static struct mr_endpoint endpoint_of(const struct transport *w)
{
    return (struct mr_endpoint){.client = w->client,
                                .is_grpc = w->protocol == MR_BATCH_GRPC,
                                .model = w->o->model.name,
                                .version = w->o->model.version};
}

/* ---- addresses ---- */

int transport_default_port(const struct mr_batch_options *o, enum mr_batch_protocol protocol,
                           bool is_tls)
{
    if (o->openai && is_tls) {
        return 443;
    }
    return protocol == MR_BATCH_GRPC ? 8001 : 8000;
}

int transport_parse(const char *url, const struct mr_batch_options *o, enum mr_batch_protocol *out,
                    bool *out_is_tls, const char **out_rest, struct mr_err *err)
{
    struct mr_url parts;

    *out_rest = mr_url_scheme(url, &parts);
    *out_is_tls = parts.is_tls;
    *out = parts.is_grpc                                            ? MR_BATCH_GRPC
           : parts.has_scheme && o->hosts.protocol == MR_BATCH_GRPC ? MR_BATCH_BINARY
                                                                    : o->hosts.protocol;
    if (o->openai && *out == MR_BATCH_GRPC) {
        return MR_FAIL(err, MR_E_UNSUPPORTED, "host '%.100s': the API is spoken by http and https",
                       url);
    }
    return strstr(*out_rest, "://") ? mr_url_parse(url, &parts, err) : MR_OK;
}

int transport_open(struct transport *w, struct mr_loop *loop, const struct mr_batch_options *o,
                   const char *url, const char *tls_name, struct mr_err *err)
{
    struct mr_client_options options = {
        .never_repeat = true, .headers = o->hosts.headers, .header_count = o->hosts.header_count};
    struct mr_tls_client_options tls = o->hosts.tls;
    struct mr_url parts;
    const char *rest;
    bool is_tls;
    int rc;

    w->o = o;
    w->local = NULL;
    w->form = (struct transport_form){0};
    MR_TRY(transport_parse(url, o, &w->protocol, &is_tls, &rest, err));
    const struct mr_endpoint e = endpoint_of(w);
    if (!o->openai) { /* whose paths do not have the name */
        MR_TRY(mr_endpoint_names_check(&e, err));
    }
    MR_TRY(mr_url_parse(url, &parts, err));
    if (parts.path[0] && (!o->openai || strlen(parts.path) > PREFIX_MAX)) {
        MR_TRY(MR_FAIL(err, MR_E_INVALID, "'%.100s' is not the address of a host", url));
    }
    MR_TRY(mr_url_default_port(&parts, transport_default_port(o, w->protocol, is_tls), err));
    snprintf(w->prefix, sizeof w->prefix, "%s", parts.path[0] ? parts.path : "/v1");
    snprintf(w->address, sizeof w->address, "%s", parts.address);
    options.http2 = w->protocol == MR_BATCH_GRPC;
    /* As many as there are calls, whose bound in balance can change during a job. */
    options.max_connections = options.http2 ? GRPC_CONNECTIONS : REST_CONNECTIONS;
    if (is_tls && !w->tls) {
        tls.server_name = tls.server_name ? tls.server_name : tls_name;
        MR_TRY(mr_tls_client_new(&w->tls, &tls, err));
    }
    options.tls = w->tls;
    MR_TRY(mr_client_new(&w->client, loop, w->address, &options, err));
out:
    return rc;
}

void transport_bound(struct transport *w, int64_t bytes)
{
    if (w->client) {
        mr_client_set_response_max(w->client, bytes);
    }
}

void transport_open_local(struct transport *w, const struct mr_batch_options *o,
                          struct local *local)
{
    *w = (struct transport){.o = o, .protocol = MR_BATCH_LOCAL, .local = local};
    snprintf(w->address, sizeof w->address, "local");
}

void transport_close(struct transport *w)
{
    if (w->client) {
        mr_client_free(&w->client);
    }
}

void transport_fini(struct transport *w)
{
    mr_tls_client_free(&w->tls);
}

/* ---- metadata ---- */

void transport_ask(struct transport *w, int64_t timeout_ns, mr_client_done_fn *done, void *ctx)
{
    const struct mr_endpoint e = endpoint_of(w);

    mr_endpoint_metadata(&e, timeout_ns, done, ctx);
}

bool transport_status_lasts(int status)
{
    return status >= 400 && status < 500 && status != 408 && status != 425 && status != 429;
}

int transport_metadata(const struct transport *w, int rc, const struct mr_err *cause,
                       const struct mr_client_response *response, struct mr_arena *arena,
                       struct mr_oip_metadata *out, struct mr_err *err)
{
    if (rc < 0) {
        *err = *cause;
        /* A server that says so is there, and may work soon. */
        err->status = rc == MR_E_UNAVAILABLE && response ? MR_E_UNKNOWN : rc;
        return err->status;
    }
    if (response->status != 200) {
        return MR_FAIL(
            err, transport_status_lasts(response->status) ? MR_E_NOT_FOUND : MR_E_UNKNOWN,
            "metadata: HTTP status %d: %.*s", response->status,
            (int)MR_MIN(response->body.len, (size_t)80), (const char *)response->body.ptr);
    }
    const struct mr_endpoint e = endpoint_of(w);
    return mr_endpoint_metadata_decode(&e, response->body, arena, out, err);
}

/* ---- inference ---- */

static void on_response(void *ctx, int rc, const struct mr_err *err,
                        const struct mr_client_response *response)
{
    const struct transport_call *c = ctx;
    c->done(c->ctx, &(struct transport_reply){.rc = rc, .err = err, .response = response});
}

static void on_local(void *ctx, const struct mr_infer *infer)
{
    const struct transport_call *c = ctx;
    c->done(c->ctx,
            &(struct transport_reply){.rc = infer->status, .err = &infer->err, .infer = infer});
}

/* Is the next call one with bytes? One is, in between, when JSON did well and bytes did not: had the host only failed for a
 * while, or because of some rows, all calls would cost more from then on. */
static void form_choose(struct transport *w, struct transport_call *c)
{
    struct transport_form *f = &w->form;

    c->is_binary = w->protocol == MR_BATCH_BINARY && !f->json_next;
    c->is_proof = c->is_binary && f->json_ok;
    f->json_next = f->json_next || c->is_proof;
}

bool transport_form_note(struct transport *w, const struct transport_call *c,
                         enum mr_balance_outcome outcome)
{
    struct transport_form *f = &w->form;
    const bool is_ok = outcome == MR_BALANCE_OK;

    if (w->protocol != MR_BATCH_BINARY || f->binary_ok || outcome == MR_BALANCE_THROTTLED ||
        outcome == MR_BALANCE_CANCELLED) {
        return false;
    }
    if (is_ok && c->is_binary) {
        *f = (struct transport_form){.binary_ok = true};
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
    return !is_ok && c->is_binary && (c->is_proof || outcome == MR_BALANCE_REJECTED);
}

static int send_remote(struct transport *w, struct transport_call *c, struct mr_oip_request *r,
                       struct mr_buf *buf, struct mr_arena *arena, int64_t timeout_ns,
                       struct mr_err *err)
{
    const struct mr_endpoint e = endpoint_of(w);
    const struct mr_endpoint_infer infer = {.request = r, .timeout_ns = timeout_ns};

    if (w->protocol != MR_BATCH_GRPC) {
        form_choose(w, c);
        for (size_t i = 0; i < r->input_count; i++) {
            r->inputs[i].binary = c->is_binary;
        }
        for (size_t i = 0; i < r->output_count; i++) {
            r->outputs[i].binary_data = c->is_binary;
        }
        r->binary_data_output = c->is_binary && r->output_count == 0;
        r->may_spill = true;
    }
    c->call = mr_endpoint_infer(&e, &infer, buf, arena, &c->text_bytes, on_response, c, err);
    return c->call ? MR_OK : err->status;
}

int transport_send(struct transport *w, struct transport_call *c, struct mr_oip_request *r,
                   struct mr_buf *buf, struct mr_arena *arena, int64_t timeout_ns,
                   struct mr_err *err)
{
    if (w->protocol == MR_BATCH_LOCAL) {
        local_send(w->local, r, on_local, c);
        return MR_OK;
    }
    return send_remote(w, c, r, buf, arena, timeout_ns, err);
}

void transport_post(struct transport *w, struct transport_call *c,
                    const struct mr_client_request *request)
{
    c->call = mr_client_send(w->client, request, on_response, c);
}

void transport_cancel(const struct transport_call *c)
{
    if (c->call) {
        mr_client_cancel(c->call);
    }
}

/* ---- answers ---- */

static void judge_http(const struct mr_client_response *r, struct transport_answer *a)
{
    const int status = r->status;

    snprintf(a->cause, sizeof a->cause, "HTTP status %d: %.*s", status,
             (int)MR_MIN(r->body.len, (size_t)180), (const char *)r->body.ptr);
    if (status == 429 || status == 503) {
        a->outcome = MR_BALANCE_THROTTLED;
        a->retry_after_ns = mr_client_retry_after_ns(r);
    } else if (status == 401 || status == 403 || status == 404 || status == 405) {
        a->outcome = MR_BALANCE_FAILED;
        a->is_for_good = true;
    } else {
        a->outcome = status >= 400 && status < 500 && status != 408 ? MR_BALANCE_REJECTED
                                                                    : MR_BALANCE_FAILED;
    }
}

/* The host's own status, or that of HTTP, as of a proxy. */
static void judge_grpc(const struct mr_client_response *r, struct transport_answer *a)
{
    static const struct {
        int code;
        enum mr_balance_outcome outcome;
        bool is_for_good;
    } codes[] = {
        {MR_GRPC_INVALID_ARGUMENT, MR_BALANCE_REJECTED, false},
        {MR_GRPC_DEADLINE_EXCEEDED, MR_BALANCE_TIMED_OUT, false},
        {MR_GRPC_NOT_FOUND, MR_BALANCE_FAILED, true},
        {MR_GRPC_PERMISSION_DENIED, MR_BALANCE_FAILED, true},
        {MR_GRPC_RESOURCE_EXHAUSTED, MR_BALANCE_THROTTLED, false},
        {MR_GRPC_FAILED_PRECONDITION, MR_BALANCE_REJECTED, false},
        {MR_GRPC_OUT_OF_RANGE, MR_BALANCE_REJECTED, false},
        {MR_GRPC_UNIMPLEMENTED, MR_BALANCE_FAILED, true},
        {MR_GRPC_UNAVAILABLE, MR_BALANCE_THROTTLED, false},
        {MR_GRPC_UNAUTHENTICATED, MR_BALANCE_FAILED, true},
    };
    const int code = r->grpc_status;

    if (code < 0 && r->status != 200) {
        judge_http(r, a);
        if (a->outcome ==
            MR_BALANCE_REJECTED) { /* by what stands before the host: it has not seen the rows */
            a->outcome = MR_BALANCE_FAILED;
        }
        return;
    }
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (codes[i].code == code) {
            a->outcome = codes[i].outcome;
            a->is_for_good = codes[i].is_for_good;
        }
    }
    /* Servers say RESOURCE_EXHAUSTED of messages that are too large, too: smaller ones will do. */
    if (code == MR_GRPC_RESOURCE_EXHAUSTED && strstr(a->cause, "larger than max")) {
        a->outcome = MR_BALANCE_REJECTED;
    }
    if (a->outcome == MR_BALANCE_THROTTLED) {
        a->retry_after_ns = mr_client_retry_after_ns(r);
    }
}

/* What the scheduler says of a request is what a server would. */
static void judge_local(const struct transport_reply *reply, struct transport_answer *a)
{
    struct mr_err err;

    if (reply->rc < 0) {
        a->outcome = reply->rc == MR_E_INVALID       ? MR_BALANCE_REJECTED
                     : reply->rc == MR_E_UNAVAILABLE ? MR_BALANCE_THROTTLED
                                                     : MR_BALANCE_FAILED;
        snprintf(a->cause, sizeof a->cause, "%s", reply->err->msg);
    } else if (local_response(reply->infer, &a->response, &err) < 0) {
        a->outcome = MR_BALANCE_FAILED;
        snprintf(a->cause, sizeof a->cause, "%s", err.msg);
    }
}

bool transport_judge_status(const struct transport_reply *reply, struct transport_answer *a)
{
    *a = (struct transport_answer){.outcome = MR_BALANCE_OK};
    if (reply->rc < 0) {
        a->outcome = reply->rc == MR_E_DEADLINE ? MR_BALANCE_TIMED_OUT : MR_BALANCE_FAILED;
        snprintf(a->cause, sizeof a->cause, "%s", reply->err->msg);
        return false;
    }
    if (reply->response->status != 200) {
        judge_http(reply->response, a);
        return false;
    }
    return true;
}

void transport_judge(const struct transport *w, const struct transport_reply *reply,
                     struct mr_arena *arena, struct transport_answer *a)
{
    const struct mr_client_response *response = reply->response;
    struct mr_err err;

    if (w->protocol == MR_BATCH_LOCAL) {
        *a = (struct transport_answer){.outcome = MR_BALANCE_OK};
        judge_local(reply, a);
        return;
    }
    if (!transport_judge_status(reply, a)) {
        if (reply->rc < 0 && response) {
            judge_grpc(response, a);
        }
        return;
    }
    mr_arena_reset(arena);
    const struct mr_endpoint e = endpoint_of(w);
    int rc = mr_endpoint_decode(&e, response, NULL, arena, &a->response, &err);
    a->body = response->body_block;
    if (rc < 0) {
        a->outcome = MR_BALANCE_FAILED;
        snprintf(a->cause, sizeof a->cause, "wrong answer: %s", err.msg);
    }
}
