/* Queries and changes of a running job: HTTP on the job's own loop, over a socket in its folder and, by an option, over
 * TCP.
 *
 *   GET  /status           the state of the job, as JSON
 *   GET  /metrics          as Prometheus text
 *   GET  /, /figures       as a page, and the part of it that changes
 *   POST /pause, /resume   stops new calls, and allows them again; running ones end and are committed. A wait for a disk
 *                          ends at once
 *   POST /set              {"batch_rows": N, "max_in_flight_per_host": N, "hosts": [HOST, …]}, all of it or nothing
 *
 * The socket is for processes that may write to it, which are those of the job's user. Clients over TCP may query, and may
 * change the job only by an option; pages in a browser never may, as they can be anyone's. All answers are given at once,
 * on the loop's thread; changes last until the next one or the end of the job. */
#include "control.h"

#include <stdio.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "batch/calls/calls.h"
#include "batch/files/file.h"
#include "batch/hosts/hosts.h"
#include "batch/report/metrics.h"
#include "batch/report/page.h"
#include "batch/report/status.h"
#include "batch/report/view.h"
#include "batch/results/committer.h"
#include "batch/results/results.h"
#include "codec/json.h"

#define BODY_MOST        65536
#define CONNECTIONS_MOST 64
#define IDLE_NS          (60 * MR_NS_PER_S)
#define BATCH_ROWS_MOST  (1u << 20)
#define IN_FLIGHT_MOST   65535u
#define HOSTS_MOST       1024

/* ---- answers ---- */

static void say(struct mr_call *call, int status, const char *type, mr_str text)
{
    /* The page fetches nothing from elsewhere, and no text in it can make it. */
    const struct mr_header headers[] = {
        {MR_STR("content-type"), mr_str_c(type)},
        {MR_STR("cache-control"), MR_STR("no-store")},
        {MR_STR("content-security-policy"),
         MR_STR("default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                "connect-src 'self'; frame-ancestors 'none'")}};
    const struct mr_piece piece = {text.ptr, text.len, NULL};
    const struct mr_reply reply = {.status = status,
                                   .headers = headers,
                                   .header_count = sizeof headers / sizeof *headers,
                                   .pieces = &piece,
                                   .piece_count = 1};
    mr_call_reply(call, &reply);
}

static void say_error(struct mr_call *call, int status, const char *text)
{
    struct mr_buf *b = mr_loop_scratch(call->loop);

    mr_buf_reset(b);
    MR_BUF_LIT(b, "{\"error\":");
    mr_json_put_string(b, mr_str_c(text));
    MR_BUF_LIT(b, "}\n");
    say(call, status, "application/json", mr_buf_view(b));
}

typedef void(put_fn)(struct mr_buf *b, const struct job_parts *parts,
                     const struct mr_batch_view *v);

static void say_view(struct job_parts *parts, struct mr_call *call, const char *type, put_fn *put)
{
    struct mr_buf *b = mr_loop_scratch(call->loop);
    struct mr_batch_view *v = view_new(parts);

    mr_buf_reset(b);
    put(b, parts, v);
    view_free(&v);
    if (b->failed) {
        say_error(call, 503, "the answer is too long");
    } else {
        say(call, 200, type, mr_buf_view(b));
    }
}

static void say_status(struct job_parts *parts, struct mr_call *call)
{
    say_view(parts, call, "application/json", status_put);
}

static void say_metrics(struct job_parts *parts, struct mr_call *call)
{
    say_view(parts, call, "text/plain; version=0.0.4; charset=utf-8", metrics_put);
}

static void say_page(struct job_parts *parts, struct mr_call *call)
{
    say_view(parts, call, "text/html; charset=utf-8", page_put);
}

static void say_figures(struct job_parts *parts, struct mr_call *call)
{
    say_view(parts, call, "text/html; charset=utf-8", page_figures);
}

/* ---- changes ---- */

static void pause_calls(struct job_parts *parts, struct mr_call *call)
{
    parts->calls->state->is_paused = true;
    say_status(parts, call);
}

static void resume_calls(struct job_parts *parts, struct mr_call *call)
{
    if (parts->calls->state->is_paused) {
        parts->calls->state->is_paused = false;
        parts->calls->state->pause_reason[0] = '\0';
        parts->calls->state->resumed_ns = mr_now_ns();
        calls_pump(parts->calls);
    }
    committer_try(parts->results->committer);
    parts->results->hold->until_ns = 0;
    job_advance(parts->calls->state);
    say_status(parts, call);
}

/* What is asked for; 0: not. */
struct change {
    uint32_t batch_rows;
    uint32_t max_in_flight;
    const char *hosts[HOSTS_MOST];
    size_t host_count;
};

static int number_read(struct mr_json *json, const char *name, uint32_t most, uint32_t *out,
                       struct mr_err *err)
{
    mr_str text;
    uint64_t n;

    if (mr_json_skip(json, &text) < 0) {
        return json->status;
    }
    if (!mr_str_to_u64(text, &n) || n < 1 || n > most) {
        return MR_FAIL(err, MR_E_INVALID, "%s %.*s: expected a whole number from 1 to %u", name,
                       MR_STR_ARG(mr_str_sub(text, 0, 64)), most);
    }
    *out = (uint32_t)n;
    return MR_OK;
}

/* Those that the command line named one by one; lists of files and names are not touched. */
static int hosts_read(struct mr_json *json, const struct job_parts *parts, struct mr_arena *arena,
                      struct change *out, struct mr_err *err)
{
    enum mr_batch_protocol protocol;
    const char *rest;
    bool first = true;
    bool is_tls;
    mr_str text;
    int rc = mr_json_enter_array(json);

    out->host_count = 0;
    while (rc == MR_OK && mr_json_next_item(json, &first)) {
        rc = mr_json_string(json, &text);
        if (rc < 0) {
            break;
        }
        const char *url = mr_arena_str(arena, text).ptr;
        if (out->host_count == HOSTS_MOST || !url) {
            return MR_FAIL(err, MR_E_TOO_LARGE, "hosts: expected %d at most", HOSTS_MOST);
        }
        if (memchr(text.ptr, '\0', text.len) || url[0] == '@' || strncmp(url, "dns:", 4) == 0 ||
            strpbrk(url, " ,\t\n")) {
            return MR_FAIL(err, MR_E_INVALID, "hosts: '%.100s' is no host", url);
        }
        rc = transport_parse(url, parts->calls->o, &protocol, &is_tls, &rest, err);
        if (rc == MR_OK && (!rest[0] || strlen(rest) > 240)) {
            rc = MR_FAIL(err, MR_E_INVALID, "hosts: '%.100s' is not the address of a host", url);
        }
        out->hosts[out->host_count++] = url;
    }
    rc = rc < 0 ? rc : json->status;
    return rc == MR_OK && out->host_count == 0
               ? MR_FAIL(err, MR_E_INVALID, "hosts: expected one at least")
               : rc;
}

static int change_read(const struct job_parts *parts, struct mr_call *call, struct change *out,
                       struct mr_err *err)
{
    struct mr_json json;
    bool first = true;
    mr_str key;
    int rc = MR_OK;

    mr_json_init(&json, (mr_str){(const char *)call->body.ptr, call->body.len}, call->arena, 0,
                 err);
    mr_json_enter_object(&json);
    while (rc == MR_OK && mr_json_next_key(&json, &first, &key)) {
        if (mr_str_eq_c(key, "batch_rows")) {
            rc = number_read(&json, "batch_rows", BATCH_ROWS_MOST, &out->batch_rows, err);
        } else if (mr_str_eq_c(key, "max_in_flight_per_host")) {
            rc = number_read(&json, "max_in_flight_per_host", IN_FLIGHT_MOST, &out->max_in_flight,
                             err);
        } else if (mr_str_eq_c(key, "hosts")) {
            rc = hosts_read(&json, parts, call->arena, out, err);
        } else {
            rc = MR_FAIL(
                err, MR_E_INVALID,
                "'%.*s' cannot be set: expected batch_rows, max_in_flight_per_host or hosts",
                MR_STR_ARG(mr_str_sub(key, 0, 64)));
        }
    }
    rc = rc < 0 ? rc : mr_json_finish(&json);
    if (rc == MR_OK && !out->batch_rows && !out->max_in_flight && out->host_count == 0) {
        rc = MR_FAIL(err, MR_E_INVALID,
                     "set what? expected batch_rows, max_in_flight_per_host or hosts");
    }
    return rc;
}

static void set(struct job_parts *parts, struct mr_call *call)
{
    struct change change = {0};
    struct mr_err err;

    if (change_read(parts, call, &change, &err) < 0 ||
        (change.host_count > 0 &&
         hosts_set(parts->calls->hosts, 0, change.hosts, change.host_count, NULL, &err) < 0)) {
        say_error(call, 400, err.msg);
        return;
    }
    if (change.batch_rows) {
        /* Where hosts took fewer, that is found out again. */
        atomic_store_explicit(&parts->calls->batch_rows, change.batch_rows, memory_order_relaxed);
        call_rows_set(&parts->calls->rows, change.batch_rows);
        parts->calls->grow.phase = GROW_OFF;
        if (parts->calls->state->phase == JOB_RUNNING) {
            hosts_bound(parts->calls->hosts, parts->calls->rows.most);
        }
    }
    if (change.max_in_flight) {
        parts->calls->hosts->max_in_flight = change.max_in_flight;
        mr_balance_set_max_limit(parts->calls->hosts->balance, change.max_in_flight);
        calls_pump(parts->calls);
    }
    if (change.host_count > 0) {
        hosts_tick(parts->calls->hosts, mr_now_ns());
    }
    say_status(parts, call);
}

/* ---- calls ---- */

static const struct {
    const char *path;
    bool is_change;
    void (*run)(struct job_parts *parts, struct mr_call *call);
} routes[] = {
    {"/", false, say_page},
    {"/figures", false, say_figures},
    {"/status", false, say_status},
    {"/metrics", false, say_metrics},
    {"/pause", true, pause_calls},
    {"/resume", true, resume_calls},
    {"/set", true, set},
};

/* NULL: yes. */
static const char *why_not_change(const struct job_parts *parts, const struct mr_call *call)
{
    if (mr_call_header(call, "origin").ptr) {
        return "pages in a browser may not change the job";
    }
    return call->over_unix || parts->calls->o->control.may_change
               ? NULL
               : "the job may be changed over the socket in its folder; over TCP only if it was "
                 "started with --listen-control";
}

static void on_head(void *ctx, struct mr_call *call)
{
    (void)ctx;
    call->body_limit = BODY_MOST;
}

static void on_body(void *ctx, struct mr_call *call)
{
    struct job_parts *parts = ((struct control *)ctx)->parts;
    const bool is_get = mr_str_eq_c(call->method, "GET") || mr_str_eq_c(call->method, "HEAD");

    if (!parts) {
        say_error(call, 503, "the job is about to end or to be begun again");
        return;
    }
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (!mr_str_eq_c(call->path, routes[i].path)) {
            continue;
        }
        const char *why_not = routes[i].is_change ? why_not_change(parts, call) : NULL;
        if (routes[i].is_change ? !mr_str_eq_c(call->method, "POST") : !is_get) {
            say_error(call, 405, routes[i].is_change ? "expected POST" : "expected GET");
        } else if (why_not) {
            say_error(call, 403, why_not);
        } else {
            routes[i].run(parts, call);
        }
        return;
    }
    say_error(call, 404,
              "there is no such page: expected /, /status, /metrics, /pause, /resume or /set");
}

/* Its body will not come. The answer goes nowhere, and ends the call. */
static void on_cancel(void *ctx, struct mr_call *call)
{
    (void)ctx;
    say_error(call, 400, "cancelled");
}

static void on_body_refused(void *ctx, struct mr_call *call, int status)
{
    (void)ctx;
    (void)status;
    say_error(call, 413, "the request is longer than 64 KiB");
}

/* ---- from another process ---- */

int mr_batch_control_address(const char *folder, char *out, size_t size, struct mr_err *err)
{
    const struct sockaddr_un *un = NULL;
    const size_t most = sizeof un->sun_path - 1;
    const size_t bytes = strlen(folder) + sizeof "/" MR_MANIFEST_CONTROL - 1;

    if (bytes > most) {
        return MR_FAIL(
            err, MR_E_INVALID,
            "the path of a socket has %zu bytes at most, this has %zu: %.200s/" MR_MANIFEST_CONTROL,
            most, bytes, folder);
    }
    const int n = snprintf(out, size, "unix:%s/" MR_MANIFEST_CONTROL, folder);
    return n < 0 || (size_t)n >= size ? MR_FAIL(err, MR_E_INVALID, "no room for an address")
                                      : MR_OK;
}

/* ---- listening ---- */

static int socket_open(struct control *c, const struct results *rs, struct mr_err *err)
{
    char address[256];
    int dir;
    int rc;

    MR_TRY(mr_batch_control_address(rs->folder, address, sizeof address, err));
    MR_TRY(dir = batch_file_make_folders(rs->folder, err));
    close(dir);
    /* For the job's user only, from the first moment. No other thread makes files yet. */
    const mode_t mask = umask(0177);
    rc = mr_http_listen(c->server, &rs->state->loop, 1, address, 0, false, NULL, err);
    umask(mask);
out:
    return rc;
}

static int tcp_open(struct control *c, const struct results *rs, struct mr_err *err)
{
    const char *listen = rs->o->control.listen;
    const char *colon = strrchr(listen, ':');
    uint16_t port;

    if (strncmp(listen, "unix:", 5) == 0 || strlen(listen) > 256) {
        return MR_FAIL(err, MR_E_INVALID, "'%.100s' is not an address: expected host:port", listen);
    }
    int rc = mr_http_listen(c->server, &rs->state->loop, 1, listen, 1, false, &port, err);
    if (rc == MR_OK) {
        snprintf(c->address, sizeof c->address, "%.*s:%u", colon ? (int)(colon - listen) : 0,
                 listen, port);
        mr_log(MR_LOG_INFO, "batch.listening", "address=%s may_change=%d",
               MR_LOG_STR(mr_str_c(c->address)), rs->o->control.may_change);
    }
    return rc;
}

int control_open(struct control *c, struct job_parts *parts, struct mr_err *err)
{
    const struct results *rs = parts->results;
    const struct mr_http_handler handler = {.on_head = on_head,
                                            .on_body = on_body,
                                            .on_cancel = on_cancel,
                                            .on_body_refused = on_body_refused,
                                            .ctx = c};
    struct mr_http_options options;
    struct mr_err why;
    int rc = MR_OK;

    c->parts = parts;
    if (c->server) {
        return MR_OK;
    }
    mr_http_options_init(&options);
    options.refuse_foreign = true;
    options.max_connections = CONNECTIONS_MOST;
    options.max_header_bytes = 16384;
    options.idle_timeout_ns = IDLE_NS;
    MR_TRY(mr_http_server_new(&c->server, &options, &handler, err));
    if (socket_open(c, rs, &why) < 0) {
        snprintf(c->trouble, sizeof c->trouble, "%s", why.msg);
    }
    if (rs->o->control.listen) {
        rc = tcp_open(c, rs, err);
    }
out:
    return rc;
}

void control_report(struct control *c)
{
    if (c->trouble[0]) {
        mr_log(MR_LOG_WARN, "batch.no_control",
               "reason=%s; the job runs, and cannot be asked or changed through its folder",
               MR_LOG_STR(mr_str_c(c->trouble)));
        c->trouble[0] = '\0';
    }
}

void control_close(struct control *c)
{
    if (c->server) {
        mr_http_server_close(c->server, NULL, NULL);
        mr_http_server_free(&c->server);
    }
}
