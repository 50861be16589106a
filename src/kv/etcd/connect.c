/* Which endpoint is used, and whether it works.
 *
 * The end of a connection shows at once in a stream that is open as long as the connection. An endpoint is used when
 * it has answered a request for its status and has a leader. It is given up when a call or a stream ends for reasons
 * of the connection, or when it does not answer in the time limit of calls: a request for the status asks for that
 * once per time limit in which nothing else came.
 *
 * Attempts that fail count, and connections that break within ten seconds. After each endpoint had its turn,
 * attempts are 0.1 s apart, then twice as long each time, up to 5 s, less a random part, so that the processes of a
 * fleet do not come back at once. Of a file: 20 ms, up to 1.3 s. */
#include <stdio.h>

#include "base/clock.h"
#include "etcd.h"
#include "kv/wire/fields.h"
#include "kv/wire/request_write.h"

#define BACKOFF_FIRST_NS (100 * MR_NS_PER_MS)
#define BACKOFF_MAX_NS   (5 * MR_NS_PER_S)
#define BACKOFF_LOCAL_NS (20 * MR_NS_PER_MS)
#define STABLE_NS        (10 * MR_NS_PER_S)

struct etcd_probe {
    struct kv_etcd *etcd; /* NULL: given up */
    struct mr_client_call *call;
};

struct etcd_line {
    struct kv_etcd *etcd; /* NULL: given up */
    struct mr_client_stream *stream;
};

bool etcd_is_broken_by(int rc, int grpc_status)
{
    if (grpc_status == MR_GRPC_UNAVAILABLE || rc == MR_E_CLOSED || rc == MR_E_DEADLINE) {
        return true;
    }
    /* A server that breaks the protocol, and one that cannot be reached. */
    return grpc_status < 0 && (rc == MR_E_UNAVAILABLE || rc == MR_E_INVALID || rc == MR_E_INTERNAL);
}

bool etcd_is_token_refused(int rc, const struct mr_err *err, int grpc_status)
{
    return grpc_status == MR_GRPC_UNAUTHENTICATED ||
           (rc == MR_E_INVALID && err && strstr(err->msg, "auth: revision in header is old"));
}

size_t etcd_metadata(const struct kv_etcd *e, struct mr_header out[1])
{
    if (!e->token) {
        return 0;
    }
    out[0] = (struct mr_header){MR_STR("token"), mr_str_c(e->token)};
    return 1;
}

static void attempt(struct mr_timer *t);
static void probe_again(struct mr_timer *t);

static int64_t backoff_ns(struct kv_etcd *e)
{
    unsigned rounds = (e->failures ? e->failures - 1 : 0) / (unsigned)e->config.endpoints.len;
    if (rounds == 0) {
        return 0;
    }
    if (e->config.is_local) {
        return BACKOFF_LOCAL_NS << MR_MIN(rounds - 1, 6u);
    }
    int64_t most = rounds > 8 ? BACKOFF_MAX_NS : BACKOFF_FIRST_NS << (rounds - 1);
    return (int64_t)((double)MR_MIN(most, BACKOFF_MAX_NS) * (0.5 + 0.5 * mr_rng_unit(&e->rng)));
}

static void drop_probe(struct kv_etcd *e)
{
    struct etcd_probe *p = e->probe;
    if (p) {
        p->etcd = NULL;
        e->probe = NULL;
        mr_client_cancel(p->call);
    }
}

static void drop_line(struct kv_etcd *e)
{
    struct etcd_line *l = e->line;
    if (l) {
        l->etcd = NULL;
        e->line = NULL;
        mr_client_stream_cancel(l->stream);
    }
}

void etcd_connect_end(struct kv_etcd *e)
{
    drop_probe(e);
    drop_line(e);
    mr_client_free(&e->client);
}

/** Not within a callback of the client. */
static void lose(struct mr_timer *t)
{
    struct kv_etcd *e = MR_CONTAINER_OF(t, struct kv_etcd, timer);

    etcd_watches_lose(e);
    etcd_calls_lose(e);
    etcd_connect_end(e);
    e->endpoint = (e->endpoint + 1) % e->config.endpoints.len;
    e->phase = ETCD_DOWN;
    mr_timer_start(e->loop, &e->timer, backoff_ns(e), 0, attempt);
    kv_conn_set_state(&e->base, MR_KV_LOST, &e->why);
}

void etcd_connect_broken(struct kv_etcd *e, const struct mr_err *why)
{
    if (e->phase == ETCD_UP || e->phase == ETCD_JOINING) {
        bool was_stable = e->phase == ETCD_UP && mr_now_ns() - e->up_ns > STABLE_NS;
        e->failures = was_stable ? 1 : e->failures + 1;
        e->why = *why;
        e->phase = ETCD_BROKEN;
        mr_timer_start(e->loop, &e->timer, 0, 0, lose);
    }
}

/** Sends a request whose end decides about the connection. */
static void send_probe(struct kv_etcd *e, const char *path, struct mr_buf *message,
                       mr_client_done_fn *done)
{
    struct etcd_probe *p = MR_NEW(struct etcd_probe);
    struct mr_header token[1];
    struct mr_piece piece = {message ? message->ptr : "", message ? message->len : 0, NULL};
    struct mr_client_grpc_request request = {
        .path = path,
        .metadata = token,
        .metadata_count = etcd_metadata(e, token),
        .pieces = &piece,
        .piece_count = 1,
        .timeout_ns = e->base.options.timeout_ns,
    };

    p->etcd = e;
    e->probe = p;
    p->call = mr_client_grpc(e->client, &request, done, p);
}

/** The probe has ended; NULL: its result is not needed. */
static struct kv_etcd *end_probe(void *ctx)
{
    struct etcd_probe *p = ctx;
    struct kv_etcd *e = p->etcd;

    mr_free(p);
    if (e) {
        e->probe = NULL;
    }
    return e;
}

/** The cluster is the one that watches know, unless it has another id or an earlier term. */
static void recognise(struct kv_etcd *e, const struct kv_wire_header *header)
{
    struct mr_err why;
    bool is_other = e->cluster && (header->cluster != e->cluster || header->term < e->term);

    e->cluster = header->cluster;
    e->term = header->term;
    if (is_other) {
        MR_FAIL(&why, MR_E_NOT_FOUND, "%s has lost its data", e->base.name);
        etcd_watches_resync(e, &why);
    }
}

static void on_line_message(void *ctx, mr_bytes message)
{
    (void)ctx; /* nothing was asked for */
    (void)message;
}

static void on_line_end(void *ctx, int rc, const struct mr_err *err,
                        const struct mr_client_response *response)
{
    struct etcd_line *l = ctx;
    struct kv_etcd *e = l->etcd;
    struct mr_err own;

    (void)response;
    mr_free(l);
    if (!e) {
        return;
    }
    e->line = NULL;
    if (rc == MR_OK) {
        MR_FAIL(&own, MR_E_CLOSED, "%s has closed the connection", e->base.name);
        err = &own;
    }
    etcd_connect_broken(e, err);
}

static void open_line(struct kv_etcd *e)
{
    static const struct mr_client_stream_events events = {on_line_message, on_line_end};
    struct etcd_line *l = MR_NEW(struct etcd_line);
    struct mr_header token[1];
    struct mr_client_grpc_request request = {
        .path = ETCD_WATCH, .metadata = token, .metadata_count = etcd_metadata(e, token)};

    l->etcd = e;
    e->line = l;
    l->stream = mr_client_grpc_stream(e->client, &request, &events, l);
}

static int read_status(const struct mr_client_response *response, struct kv_wire_status *out,
                       struct mr_err *err)
{
    int rc = kv_wire_status(response->body, out, err);
    if (rc == MR_OK && out->leader == 0) {
        rc = MR_FAIL(err, MR_E_UNAVAILABLE, "etcd has no leader");
    }
    return rc;
}

static void on_status(void *ctx, int rc, const struct mr_err *err,
                      const struct mr_client_response *response)
{
    struct kv_etcd *e = end_probe(ctx);
    struct kv_wire_status status;
    struct mr_err own;

    if (!e) {
        return;
    }
    if (rc == MR_OK) {
        err = &own;
        rc = read_status(response, &status, &own);
    }
    if (rc < 0) {
        etcd_connect_broken(e, err);
        return;
    }
    e->phase = ETCD_UP;
    e->up_ns = mr_now_ns();
    e->heard = true;
    open_line(e);
    mr_timer_start(e->loop, &e->timer, e->base.options.timeout_ns, 0, probe_again);
    recognise(e, &status.header);
    etcd_calls_send(e);
    etcd_watches_open(e);
    kv_conn_set_state(&e->base, MR_KV_READY, NULL);
}

static void on_status_again(void *ctx, int rc, const struct mr_err *err,
                            const struct mr_client_response *response)
{
    struct kv_etcd *e = end_probe(ctx);
    struct kv_wire_status status;
    struct mr_err own;

    if (e && rc == MR_OK) {
        err = &own;
        rc = read_status(response, &status, &own);
    }
    if (e && rc < 0) {
        etcd_connect_broken(e, err);
    }
}

static void probe_again(struct mr_timer *t)
{
    struct kv_etcd *e = MR_CONTAINER_OF(t, struct kv_etcd, timer);

    if (!e->heard && !e->probe) {
        send_probe(e, ETCD_STATUS, NULL, on_status_again);
    }
    e->heard = false;
    mr_timer_start(e->loop, &e->timer, e->base.options.timeout_ns, 0, probe_again);
}

static void on_token(void *ctx, int rc, const struct mr_err *err,
                     const struct mr_client_response *response)
{
    struct kv_etcd *e = end_probe(ctx);
    struct mr_err own;
    mr_str token;

    if (!e) {
        return;
    }
    if (rc == MR_OK) {
        err = &own;
        rc = kv_wire_token(response->body, &token, &own);
    } else if (!etcd_is_broken_by(rc, response ? response->grpc_status : -1)) {
        MR_FAIL(&own, MR_E_FORBIDDEN, "%.400s", err->msg);
        err = &own;
        etcd_calls_refuse(e, err);
    }
    if (rc < 0) {
        etcd_connect_broken(e, err);
        return;
    }
    mr_free(e->token);
    e->token = mr_strndup(token.ptr, token.len);
    send_probe(e, ETCD_STATUS, NULL, on_status);
}

static void authenticate(struct kv_etcd *e)
{
    struct mr_buf b;

    mr_freep(&e->token);
    mr_buf_init(&b, 0);
    kv_wire_authenticate(&b, mr_str_c(e->config.user), mr_str_c(e->config.password));
    send_probe(e, ETCD_AUTHENTICATE, &b, on_token);
    explicit_bzero(b.ptr, b.cap);
    mr_buf_fini(&b);
}

static int make_client(struct kv_etcd *e, struct mr_err *err)
{
    char host[300];
    const char *headers[] = {host};
    struct mr_client_options options = {
        .http2 = true,
        .tls = e->tls,
        .connect_timeout_ns = e->base.options.timeout_ns,
        .max_response_bytes = KV_ETCD_MESSAGE_MAX,
        .never_repeat = true,
        .headers = headers,
        .header_count = e->config.authority ? 1 : 0,
    };

    snprintf(host, sizeof host, "host: %.280s", e->config.authority ? e->config.authority : "");
    return mr_client_new(&e->client, e->loop, e->config.endpoints.at[e->endpoint], &options, err);
}

static void attempt(struct mr_timer *t)
{
    struct kv_etcd *e = MR_CONTAINER_OF(t, struct kv_etcd, timer);

    e->phase = ETCD_JOINING;
    if (e->config.prepare) {
        e->config.prepare(e, e->config.ctx);
    } else {
        kv_etcd_prepared(e, MR_OK, NULL);
    }
}

void kv_etcd_prepared(struct kv_etcd *e, int rc, const struct mr_err *err)
{
    struct mr_err own;

    if (rc == MR_OK) {
        err = &own;
        rc = make_client(e, &own);
    }
    if (rc < 0) {
        etcd_connect_broken(e, err);
    } else if (e->config.user) {
        authenticate(e);
    } else {
        send_probe(e, ETCD_STATUS, NULL, on_status);
    }
}

void etcd_connect_start(struct kv_etcd *e)
{
    mr_timer_start(e->loop, &e->timer, 0, 0, attempt);
}
