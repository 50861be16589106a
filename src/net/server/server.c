/* The server object: shared limits, and one part per loop that owns that loop's connections.
 *
 * Parts and listeners are made on the boot thread; from then on only its loop uses each of them. Requests of other
 * threads (drain, close) are posted to every part. The object is freed when its owner and all parts have dropped
 * their references; a part does so when it and its last handle are closed.
 *
 * Shared between loops: the count of connections (one atomic add per connection, none per request).
 */
#include "server.h"

#define SERVER_NAME_MAX 128

void mr_http_options_init(struct mr_http_options *o)
{
    *o = (struct mr_http_options){
        .max_header_bytes = 65536,
        .max_headers = 100,
        .max_body_bytes = INT64_C(64) * 1024 * 1024,
        .max_arena_bytes = INT64_C(64) * 1024 * 1024,
        .header_timeout_ns = 10 * MR_NS_PER_S,
        .body_timeout_ns = 30 * MR_NS_PER_S,
        .write_timeout_ns = 30 * MR_NS_PER_S,
        .min_rate = 1024,
        .max_output_backlog = INT64_C(4) * 1024 * 1024,
        .h2_max_streams = 256,
        .h2_window_bytes = 1u << 20,
        .h2_max_resets = 1000,
    };
}

static int options_check(const struct mr_http_options *o, struct mr_err *err)
{
    if (o->max_connections < 0 || o->max_header_bytes < 256 ||
        o->max_header_bytes > INT64_C(16) * 1024 * 1024 || o->max_headers < 1 ||
        o->max_headers > 10000 || o->max_arena_bytes < 65536) {
        return MR_FAIL(err, MR_E_INVALID, "http options: limit out of range");
    }
    if (o->h2_max_streams < 1 || o->h2_max_streams > 100000 || o->h2_window_bytes < 65535 ||
        o->h2_window_bytes > 0x7fffffffu / 16) {
        return MR_FAIL(err, MR_E_INVALID,
                       "http options: HTTP/2 needs 1..100000 streams, window 64 KiB..128 MiB");
    }
    if (o->server_name && (strlen(o->server_name) > SERVER_NAME_MAX ||
                           !mr_http1_is_value(mr_str_c(o->server_name)))) {
        return MR_FAIL(err, MR_E_INVALID, "http options: bad server name");
    }
    return MR_OK;
}

int mr_http_server_new(struct mr_http_server **out, const struct mr_http_options *options,
                       const struct mr_http_handler *handler, struct mr_err *err)
{
    int rc = options_check(options, err);

    if (rc < 0) {
        return rc;
    }
    struct mr_origin_rules origins;
    rc = mr_origin_rules_init(&origins, options, err);
    if (rc < 0) {
        return rc;
    }
    struct mr_http_server *s = MR_NEW(struct mr_http_server);
    s->origins = origins;
    s->options = *options;
    s->handler = *handler;
    if (options->server_name) {
        s->server_name = mr_strndup(options->server_name, strlen(options->server_name));
        s->options.server_name = s->server_name;
    }
    atomic_init(&s->refs, 1);
    *out = s;
    return MR_OK;
}

static void server_unref(struct mr_http_server *s)
{
    /* acq_rel: the thread that frees sees the others' writes. */
    if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    mr_listeners_free(s);
    while (s->parts) {
        struct mr_server_part *part = s->parts;
        s->parts = part->next;
        mr_free(part);
    }
    mr_free(s->server_name);
    mr_origin_rules_fini(&s->origins);
    mr_free(s);
}

void mr_http_server_free(struct mr_http_server **io_s)
{
    struct mr_http_server *s = *io_s;

    *io_s = NULL;
    if (s) {
        server_unref(s);
    }
}

int64_t mr_http_server_connections(const struct mr_http_server *s)
{
    return atomic_load_explicit((_Atomic int64_t *)&s->connections, memory_order_relaxed);
}

bool mr_http_server_listens(const struct mr_http_server *s)
{
    /* acquire: pairs with the release in part_drain */
    return atomic_load_explicit(&s->parts_listening, memory_order_acquire) > 0;
}

bool mr_server_admit(struct mr_http_server *s)
{
    /* Relaxed: a count, nothing is ordered by it. */
    int64_t before = atomic_fetch_add_explicit(&s->connections, 1, memory_order_relaxed);

    if (s->options.max_connections > 0 && before >= s->options.max_connections) {
        atomic_fetch_sub_explicit(&s->connections, 1, memory_order_relaxed);
        return false;
    }
    return true;
}

/* ---- parts ---------------------------------------------------------------------------------- */

void mr_part_let_go(struct mr_server_part *part)
{
    struct mr_http_server *s = part->server;

    part->live--;
    if (!part->closing || part->live > 0) {
        return;
    }
    mr_deadline_clear(part->loop, &part->retry);
    /* acq_rel: the last part's `done` sees the others' writes. */
    if (atomic_fetch_sub_explicit(&s->parts_open, 1, memory_order_acq_rel) == 1 && s->on_closed) {
        s->on_closed(s->on_closed_ctx);
    }
    server_unref(s);
}

void mr_server_forget(struct mr_server_part *part)
{
    atomic_fetch_sub_explicit(&part->server->connections, 1, memory_order_relaxed);
    mr_part_let_go(part);
}

static void part_drain(struct mr_mail *mail)
{
    struct mr_server_part *part = MR_CONTAINER_OF(mail, struct mr_server_part, drain_mail);
    struct mr_conn *c;

    part->draining = true;
    mr_listeners_stop(part);
    for (c = LIST_FIRST(&part->conns); c;) {
        struct mr_conn *next = LIST_NEXT(c, link);
        c->proto->drain(c);
        c = next;
    }
    /* release: who sees it counts the connections that were accepted before */
    atomic_fetch_sub_explicit(&part->server->parts_listening, 1, memory_order_release);
}

static void part_close(struct mr_mail *mail)
{
    struct mr_server_part *part = MR_CONTAINER_OF(mail, struct mr_server_part, close_mail);

    /* An extra reference, so that the end runs once, here or later. */
    part->live++;
    part->draining = part->closing = true;
    mr_listeners_stop(part);
    while (!LIST_EMPTY(&part->conns)) {
        mr_conn_close(LIST_FIRST(&part->conns));
    }
    mr_part_let_go(part);
}

void mr_http_server_drain(struct mr_http_server *s)
{
    if (atomic_exchange_explicit(&s->draining, true, memory_order_relaxed)) {
        return;
    }
    mr_listeners_unlink(s);
    for (struct mr_server_part *part = s->parts; part; part = part->next) {
        part->drain_mail.run = part_drain;
        mr_loop_post(part->loop, &part->drain_mail);
    }
}

void mr_http_server_close(struct mr_http_server *s, void (*done)(void *ctx), void *ctx)
{
    if (atomic_exchange_explicit(&s->closing, true, memory_order_relaxed)) {
        return;
    }
    mr_listeners_unlink(s);
    s->on_closed = done;
    s->on_closed_ctx = ctx;
    if (!s->parts) {
        if (done) {
            done(ctx);
        }
        return;
    }
    struct mr_server_part *next;
    for (struct mr_server_part *part = s->parts; part; part = next) {
        /* The last part may free the server as soon as the mail is posted. */
        next = part->next;
        part->close_mail.run = part_close;
        mr_loop_post(part->loop, &part->close_mail);
    }
}
