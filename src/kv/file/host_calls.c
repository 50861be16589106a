/* Requests of etcd's API. */
#include "base/clock.h"
#include "host.h"
#include "kv/wire/fields.h"
#include "kv/wire/reply_write.h"
#include "kv/wire/request_read.h"

#define REQUEST_BYTES_MAX (16 * 1024 * 1024)

static const struct {
    const char *path;
    enum kv_ask ask;
} methods[] = {
    {ETCD_RANGE, KV_ASK_RANGE}, {ETCD_PUT, KV_ASK_PUT},     {ETCD_DELETE, KV_ASK_DELETE},
    {ETCD_TXN, KV_ASK_TXN},     {ETCD_GRANT, KV_ASK_GRANT}, {ETCD_REVOKE, KV_ASK_REVOKE},
};

static bool is_path(const struct mr_call *call, const char *path)
{
    return mr_str_eq_c(call->path, path);
}

/** What a client gets for an error: as etcd has it where there is a choice. */
static int status_of(int rc)
{
    return rc == MR_E_IO ? MR_GRPC_UNAVAILABLE : mr_status_grpc(rc);
}

static void fail(struct mr_grpc_call *g, int rc, const char *text)
{
    mr_grpc_fail(g, status_of(rc), mr_str_c(text));
}

/* ---- unary calls ---- */

static void answer(struct host_call *c)
{
    struct mr_buf b = c->answer;
    struct mr_piece piece = {b.ptr ? b.ptr : "", b.len, NULL};

    if (b.failed) {
        fail(&c->g, MR_E_NOMEM, "no memory for the answer");
    } else {
        mr_grpc_reply(&c->g, &piece, 1, MR_GRPC_IDENTITY);
    }
    mr_buf_fini(&b);
}

/** Now, or when what was seen and changed is on the disk. */
static void answer_when_durable(struct kv_host *h, struct host_call *c)
{
    c->position = h->appended;
    if (c->position <= h->durable) {
        answer(c);
        return;
    }
    c->g.call->user = c;
    TAILQ_INSERT_TAIL(&h->held, c, link);
}

void host_release(struct kv_host *h)
{
    struct host_call *c;
    while ((c = TAILQ_FIRST(&h->held)) && c->position <= h->durable) {
        TAILQ_REMOVE(&h->held, c, link);
        answer(c);
    }
}

/** Carries a request out, and writes its answer. Changes are on their way to the disk when it returns. */
static int apply(struct kv_host *h, const struct kv_request *request, struct mr_arena *arena,
                 struct mr_buf *out, struct mr_err *err)
{
    size_t before = h->state.history.end;
    struct mr_kv_reply reply;
    int rc = kv_apply(&h->state, request, mr_now_ns(), &h->rng, arena, &reply, err);
    struct kv_lease *granted = NULL;
    int64_t ended = 0;

    if (rc == MR_OK && request->ask == KV_ASK_GRANT) {
        granted = kv_leases_find(&h->state.leases, reply.lease);
    } else if (rc == MR_OK && request->ask == KV_ASK_REVOKE) {
        ended = request->lease;
    }
    if (rc == MR_OK) {
        struct kv_wire_header header = host_header(h, reply.revision);
        kv_wire_put_reply(out, &header, request, &reply);
    }
    host_commit(h, before, granted, ended);
    host_arm(h);
    return rc;
}

static int carry_out(struct kv_host *h, struct host_call *c, enum kv_ask ask, mr_bytes message,
                     struct mr_err *err)
{
    struct kv_request request;
    struct mr_arena arena;

    mr_arena_init(&arena, 0, (size_t)1 << 30);
    int rc = kv_wire_read_request(message, ask, &arena, &request, err);
    if (rc == MR_OK) {
        rc = apply(h, &request, &arena, &c->answer, err);
    }
    mr_arena_fini(&arena);
    return rc;
}

static int compact(struct kv_host *h, mr_bytes message, struct mr_err *err)
{
    int64_t revision;
    int rc = kv_wire_read_compact(message, &revision, err);
    if (rc == MR_OK) {
        kv_history_compact(&h->state.history, MR_MIN(revision, h->durable_revision));
    }
    return rc;
}

static int dispatch(struct kv_host *h, struct host_call *c, mr_bytes message, struct mr_err *err)
{
    const struct mr_call *call = c->g.call;
    struct kv_wire_header header = host_header(h, h->durable_revision);

    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        if (is_path(call, methods[i].path)) {
            return carry_out(h, c, methods[i].ask, message, err);
        }
    }
    if (is_path(call, ETCD_STATUS)) {
        kv_wire_put_status(&c->answer, &header);
        return MR_OK;
    }
    if (is_path(call, ETCD_COMPACT)) {
        return compact(h, message, err);
    }
    return MR_FAIL(err, MR_E_UNSUPPORTED, "the registry of a file has no method %.*s",
                   MR_STR_ARG(mr_str_sub(call->path, 0, 200)));
}

void host_on_body(void *ctx, struct mr_call *call)
{
    struct kv_host *h = ctx;
    struct host_call *c = MR_ARENA_NEW(call->arena, struct host_call);
    struct mr_grpc_call g;
    mr_bytes message;
    struct mr_err err;

    if (mr_grpc_begin(&g, call, REQUEST_BYTES_MAX) < 0) {
        return;
    }
    if (!c || h->is_over) {
        fail(&g, MR_E_UNAVAILABLE, "the registry's process gives it up");
        return;
    }
    c->g = g;
    mr_buf_init(&c->answer, 0);
    int rc = mr_grpc_message(&c->g, &message, &err);
    if (rc == MR_OK) {
        rc = dispatch(h, c, message, &err);
    }
    if (rc == MR_OK) {
        answer_when_durable(h, c);
    } else {
        mr_buf_fini(&c->answer);
        fail(&c->g, rc, err.msg);
    }
}

void host_on_refused(void *ctx, struct mr_call *call, int status)
{
    struct mr_grpc_call g;

    (void)ctx;
    if (mr_grpc_begin(&g, call, REQUEST_BYTES_MAX) == MR_OK) {
        fail(&g, status, "the request is too large for the registry");
    }
}

/* ---- streams ---- */

void host_on_head(void *ctx, struct mr_call *call)
{
    struct kv_host *h = ctx;
    bool is_watch = is_path(call, ETCD_WATCH);

    call->body_limit = REQUEST_BYTES_MAX;
    if (!is_watch && !is_path(call, ETCD_KEEP)) {
        return;
    }
    struct host_stream *s = MR_ARENA_NEW(call->arena, struct host_stream);
    struct mr_grpc_call g;

    if (mr_grpc_begin(&g, call, REQUEST_BYTES_MAX) < 0) {
        return;
    }
    if (!s || h->is_over) {
        fail(&g, MR_E_UNAVAILABLE, "the registry's process gives it up");
        return;
    }
    s->is_stream = true;
    s->is_watch = is_watch;
    s->host = h;
    s->g = g;
    call->streaming = true;
    call->user = s;
    TAILQ_INSERT_TAIL(&h->streams, s, link);
}

void host_stream_end(struct host_stream *s, int grpc_status, const char *text)
{
    struct mr_grpc_call g = s->g;

    TAILQ_REMOVE(&s->host->streams, s, link);
    mr_grpc_finish(&g, grpc_status, mr_str_c(text));
}

/** Keeps a lease alive. One that is not there has no time to live left, which is no error in etcd's API. */
static void keep(struct host_stream *s, mr_bytes message)
{
    struct kv_host *h = s->host;
    struct mr_kv_reply none = {.revision = h->durable_revision};
    struct kv_wire_header header = host_header(h, h->durable_revision);
    struct kv_request request;
    struct mr_arena arena;
    struct mr_err err;
    struct mr_buf b;

    mr_arena_init(&arena, 0, 4096);
    mr_buf_init(&b, 0);
    int rc = kv_wire_read_request(message, KV_ASK_KEEP, &arena, &request, &err);
    if (rc == MR_OK && apply(h, &request, &arena, &b, &err) < 0) {
        none.lease = request.lease;
        kv_wire_put_reply(&b, &header, &request, &none);
    }
    mr_arena_fini(&arena);
    if (rc == MR_OK) {
        mr_grpc_send(&s->g, &(struct mr_piece){b.ptr, b.len, NULL}, 1, MR_GRPC_IDENTITY);
    } else {
        host_stream_end(s, status_of(rc), err.msg);
    }
    mr_buf_fini(&b);
}

static void on_message(void *ctx, mr_bytes message, struct mr_block *block)
{
    struct host_stream *s = ctx;

    (void)block;
    if (s->is_watch) {
        host_watch_message(s, message);
    } else {
        keep(s, message);
    }
}

void host_on_data(void *ctx, struct mr_call *call, mr_bytes data, bool last)
{
    struct host_stream *s = call->user;
    struct mr_err err;

    (void)ctx;
    int rc = mr_grpc_feed(&s->g, data, on_message, s, &err);
    if (rc == MR_E_CLOSED) {
        return;
    }
    if (rc < 0) {
        host_stream_end(s, status_of(rc), err.msg);
    } else if (last) {
        host_stream_end(s, MR_GRPC_OK, "");
    }
}

/* ---- ends ---- */

/** Why a host that is over does not answer. */
static const char *end_text(const struct kv_host *h)
{
    return h->job_rc < 0 ? h->job_err.msg : "the registry's process gives it up";
}

static void cancel_call(struct kv_host *h, struct host_call *c)
{
    TAILQ_REMOVE(&h->held, c, link);
    mr_buf_fini(&c->answer);
    fail(&c->g, h->is_over ? MR_E_UNAVAILABLE : MR_E_CANCELLED, end_text(h));
}

void host_on_cancel(void *ctx, struct mr_call *call)
{
    const bool *is_stream = call->user;

    if (!is_stream) { /* its request is not complete */
        mr_call_reply(call, &(struct mr_reply){.status = 400});
    } else if (*is_stream) {
        host_stream_end(call->user, MR_GRPC_CANCELLED, "");
    } else {
        cancel_call(ctx, call->user);
    }
}

void host_drop(struct kv_host *h)
{
    struct host_stream *s;
    struct host_call *c;

    while ((c = TAILQ_FIRST(&h->held))) {
        cancel_call(h, c);
    }
    while ((s = TAILQ_FIRST(&h->streams))) {
        host_stream_end(s, MR_GRPC_UNAVAILABLE, end_text(h));
    }
}
