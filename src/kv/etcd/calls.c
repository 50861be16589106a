/* Calls. One is encoded when it starts and kept until it is answered, as it may have to wait for a connection, or to
 * be sent again. Its timer is its deadline; a call that ends without an answer sets it to now. */
#include "base/clock.h"
#include "etcd.h"
#include "kv/wire/request_write.h"

static struct kv_etcd *etcd_of(const struct etcd_call *call)
{
    return (struct kv_etcd *)call->base.kv;
}

/** Gives up what is sent of it. */
static void detach(struct etcd_call *call)
{
    struct etcd_sent *sent = call->sent;

    call->sent = NULL;
    if (!sent) {
        return;
    }
    sent->call = NULL;
    if (sent->unary) {
        mr_client_cancel(sent->unary);
    } else {
        mr_client_stream_cancel(sent->stream);
    }
}

/** The end of a call. */
static void finish(struct etcd_call *call, int rc, const struct mr_err *err,
                   const struct mr_kv_reply *reply)
{
    struct kv_etcd *e = etcd_of(call);
    struct mr_kv_call base = call->base;

    detach(call);
    mr_timer_stop(&call->timer);
    TAILQ_REMOVE(&e->calls, call, link);
    e->call_count--;
    base.done(base.ctx, rc, rc < 0 ? err : NULL, rc < 0 ? NULL : reply);
    mr_buf_fini(&call->message);
    mr_arena_fini(&call->arena);
    mr_free(call);
}

static void on_timer(struct mr_timer *t)
{
    struct etcd_call *call = MR_CONTAINER_OF(t, struct etcd_call, timer);
    struct kv_etcd *e = etcd_of(call);

    if (call->rc < 0) {
        finish(call, call->rc, &call->err, NULL);
        return;
    }
    bool was_sent = call->sent;
    /* One that first waited for the connection says nothing about it. */
    bool is_silent =
        was_sent && mr_loop_now_ns(e->loop) - call->sent->sent_ns >= e->base.options.timeout_ns;
    int rc = MR_FAIL(&call->err, MR_E_DEADLINE, "%s has not answered in time%s%.250s", e->base.name,
                     was_sent || !e->why.msg[0] ? "" : ": ", was_sent ? "" : e->why.msg);
    struct mr_err err = call->err;
    finish(call, rc, &err, NULL);
    if (is_silent) {
        etcd_connect_broken(e, &err);
    }
}

/** Ends a call soon. */
static void end_soon(struct etcd_call *call, int rc, const char *text)
{
    detach(call);
    call->rc = MR_FAIL(&call->err, rc, "%s", text);
    mr_timer_start(etcd_of(call)->loop, &call->timer, 0, 0, on_timer);
}

/* ---- answers ---- */

static void on_failure(struct etcd_call *call, int rc, const struct mr_err *err, int grpc_status)
{
    struct kv_etcd *e = etcd_of(call);
    bool is_refused = etcd_is_token_refused(rc, err, grpc_status);
    bool is_broken = etcd_is_broken_by(rc, grpc_status);

    if (is_refused || is_broken) {
        etcd_connect_broken(e, err);
    }
    if (is_refused || (is_broken && kv_request_is_repeatable(&call->request))) {
        return; /* it waits for the next connection */
    }
    finish(call, is_broken ? MR_E_UNAVAILABLE : rc, err, NULL);
}

static void on_message(struct etcd_call *call, mr_bytes message)
{
    struct kv_etcd *e = etcd_of(call);
    struct kv_wire_header header;
    struct mr_kv_reply reply;
    struct mr_arena arena;
    struct mr_err err;

    mr_arena_init(&arena, 0, KV_ETCD_MESSAGE_MAX);
    int rc = kv_wire_reply(message, etcd_root(e), &call->request, &arena, &header, &reply, &err);
    if (rc == MR_E_INVALID) {
        rc = MR_FAIL(&err, MR_E_INTERNAL, "%s: %s", e->base.name, err.msg);
    }
    e->heard = true;
    finish(call, rc, &err, &reply);
    mr_arena_fini(&arena);
}

static void on_unary(void *ctx, int rc, const struct mr_err *err,
                     const struct mr_client_response *response)
{
    struct etcd_sent *sent = ctx;
    struct etcd_call *call = sent->call;

    mr_free(sent);
    if (!call) {
        return;
    }
    call->sent = NULL;
    if (rc == MR_OK) {
        on_message(call, response->body);
    } else {
        on_failure(call, rc, err, response ? response->grpc_status : -1);
    }
}

static void on_stream_message(void *ctx, mr_bytes message)
{
    struct etcd_sent *sent = ctx;
    if (sent->call) {
        on_message(sent->call, message); /* and gives the stream up */
    }
}

static void on_stream_end(void *ctx, int rc, const struct mr_err *err,
                          const struct mr_client_response *response)
{
    struct etcd_sent *sent = ctx;
    struct etcd_call *call = sent->call;
    struct mr_err own;

    (void)response;
    mr_free(sent);
    if (!call) {
        return;
    }
    call->sent = NULL;
    if (rc == MR_OK) {
        rc = MR_FAIL(&own, MR_E_CLOSED, "%s has ended a stream", call->base.kv->name);
        err = &own;
    }
    on_failure(call, rc, err, -1);
}

/* ---- sending ---- */

static void send_stream(struct kv_etcd *e, struct etcd_sent *sent,
                        const struct mr_client_grpc_request *request)
{
    static const struct mr_client_stream_events events = {on_stream_message, on_stream_end};

    sent->stream = mr_client_grpc_stream(e->client, request, &events, sent);
    mr_client_stream_send(sent->stream, request->pieces, request->piece_count, NULL);
}

static void send_call(struct etcd_call *call)
{
    struct kv_etcd *e = etcd_of(call);
    struct etcd_sent *sent = MR_NEW(struct etcd_sent);
    struct mr_header token[1];
    struct mr_piece piece = {call->message.ptr ? call->message.ptr : "", call->message.len, NULL};
    struct mr_client_grpc_request request = {
        .path = kv_wire_method(call->request.ask),
        .metadata = token,
        .metadata_count = etcd_metadata(e, token),
        .pieces = &piece,
        .piece_count = 1,
    };

    sent->call = call;
    sent->sent_ns = mr_loop_now_ns(e->loop);
    call->sent = sent;
    if (call->request.ask == KV_ASK_KEEP) {
        send_stream(e, sent, &request);
    } else {
        sent->unary = mr_client_grpc(e->client, &request, on_unary, sent);
    }
}

static bool is_waiting(const struct etcd_call *call)
{
    return !call->sent && call->rc == MR_OK;
}

void etcd_calls_send(struct kv_etcd *e)
{
    struct etcd_call *call;
    TAILQ_FOREACH (call, &e->calls, link) {
        if (is_waiting(call)) {
            send_call(call);
        }
    }
}

void etcd_calls_lose(struct kv_etcd *e)
{
    struct etcd_call *call;
    TAILQ_FOREACH (call, &e->calls, link) {
        if (!call->sent) {
            continue;
        }
        detach(call);
        if (!kv_request_is_repeatable(&call->request)) {
            end_soon(call, MR_E_UNAVAILABLE, e->why.msg);
        }
    }
}

void etcd_calls_refuse(struct kv_etcd *e, const struct mr_err *why)
{
    struct etcd_call *call;
    TAILQ_FOREACH (call, &e->calls, link) {
        if (is_waiting(call)) {
            end_soon(call, why->status, why->msg);
        }
    }
}

void etcd_calls_fini(struct kv_etcd *e)
{
    struct etcd_call *call;
    struct mr_err err;
    int rc = MR_FAIL(&err, MR_E_CANCELLED, "the connection to the registry was closed");

    while ((call = TAILQ_FIRST(&e->calls))) {
        finish(call, rc, &err, NULL);
    }
}

void etcd_call_cancel(struct mr_kv_call *base)
{
    end_soon((struct etcd_call *)base, MR_E_CANCELLED, "the call was cancelled");
}

/** Keeps what is needed to read the answer. */
static bool keep_ops(struct etcd_call *call, const struct mr_kv_op **io, size_t count)
{
    struct mr_kv_op *copy = MR_ARENA_ARRAY(&call->arena, struct mr_kv_op, count + 1);
    for (size_t i = 0; copy && i < count; i++) {
        copy[i].kind = (*io)[i].kind;
        copy[i].is_prefix = (*io)[i].is_prefix;
    }
    *io = copy;
    return copy;
}

static bool keep_request(struct etcd_call *call, const struct kv_request *request)
{
    struct kv_request *r = &call->request;

    *r = *request;
    r->range.key = r->range.after = (mr_str){0};
    r->op = (struct mr_kv_op){0};
    r->txn.compares = NULL;
    return request->ask != KV_ASK_TXN ||
           (keep_ops(call, &r->txn.then, r->txn.then_count) &&
            keep_ops(call, &r->txn.otherwise, r->txn.otherwise_count));
}

struct mr_kv_call *etcd_call_start(struct mr_kv *kv, const struct kv_request *request,
                                   const struct mr_err *refused, mr_kv_done_fn *done, void *ctx)
{
    struct kv_etcd *e = (struct kv_etcd *)kv;
    struct etcd_call *call = MR_NEW(struct etcd_call);

    call->base = (struct mr_kv_call){kv, done, ctx};
    mr_arena_init(&call->arena, 0, 1024 * 1024);
    mr_buf_init(&call->message, 0);
    TAILQ_INSERT_TAIL(&e->calls, call, link);
    mr_timer_start(e->loop, &call->timer, kv->options.timeout_ns, 0, on_timer);
    if (++e->call_count > MR_KV_CALLS_MAX) {
        end_soon(call, MR_E_EXHAUSTED, "too many calls to the registry are under way");
        return &call->base;
    }
    if (refused) {
        end_soon(call, refused->status, refused->msg);
        return &call->base;
    }
    kv_wire_request(&call->message, etcd_root(e), request);
    if (!keep_request(call, request) || call->message.failed) {
        end_soon(call, MR_E_NOMEM, "no memory for a request to the registry");
    } else if (e->phase == ETCD_UP) {
        send_call(call);
    }
    return &call->base;
}
