/* The whole server in this process, with plain sockets as clients: start and its refusals, requests from many
 * connections while models come and go, drain. Runs under TSan: this is where all threads meet. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "serve/server.h"

static char repository[] = "/tmp/millrace-test-XXXXXX";
static char backends[4096];
static const char *const backend_dirs[] = {backends};
static const char *const repositories[] = {repository};

static void put_model(const char *name, const char *backend, const char *extra)
{
    char path[512];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", repository, name);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s/1", repository, name);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s/config.pbtxt", repository, name);
    f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f,
            "backend: '%s' max_batch_size: 8 input { name: 'X' data_type: TYPE_INT32 dims: 2 } "
            "output { name: 'Y' data_type: TYPE_INT32 dims: 2 } %s",
            backend, extra);
    fclose(f);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    (void)st;
    (void)type;
    (void)walk;
    return remove(path);
}

static int set_up(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    assert_non_null(getenv("MR_BUILD_DIR"));
    snprintf(backends, sizeof backends, "%s/lib/millrace", getenv("MR_BUILD_DIR"));
    assert_non_null(mkdtemp(repository));
    put_model("plain", "identity", "");
    put_model("batched", "identity",
              "dynamic_batching { max_queue_delay_microseconds: 200 } instance_group { count: 2 }");
    put_model("slow", "fault", "parameters { key: 'delay_ms' value { string_value: '200' } }");
    put_model("slower", "fault", "parameters { key: 'delay_ms' value { string_value: '900' } }");
    mr_log_set_enabled(MR_LOG_INFO, false);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return nftw(repository, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void options(struct mr_server_options *o)
{
    static const char *const all[] = {"*"};

    mr_server_options_init(o);
    o->models.repositories = repositories;
    o->models.repository_count = 1;
    o->models.backend_dirs = backend_dirs;
    o->models.backend_dir_count = 1;
    o->models.control = MR_MODEL_CONTROL_EXPLICIT;
    o->models.load_models = all;
    o->models.load_model_count = 1;
    o->http_port = o->grpc_port = o->metrics_port = 0;
    o->loop_threads = 2;
}

static struct mr_server *start(void)
{
    struct mr_server_options o;
    struct mr_server *s = NULL;
    struct mr_err err = {0};

    options(&o);
    if (mr_server_start(&s, &o, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    return s;
}

/* ---- a client ---- */

static int dial(uint16_t port)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (connect(fd, (struct sockaddr *)&a, sizeof a) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Send one request and read its answer; the status, or -1 when the connection ended. */
static int ask(int fd, const char *method, const char *path, const char *body, char *answer,
               size_t size)
{
    char request[1024];
    size_t n = 0, need = SIZE_MAX;
    int status = -1,
        len = snprintf(request, sizeof request,
                       "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s", method,
                       path, strlen(body), body);

    if (write(fd, request, (size_t)len) != len) {
        return -1;
    }
    while (n < need && n + 1 < size) {
        ssize_t got = read(fd, answer + n, size - n - 1);
        if (got <= 0) {
            return -1;
        }
        n += (size_t)got;
        answer[n] = 0;
        char *end = strstr(answer, "\r\n\r\n"), *length = strstr(answer, "content-length: ");
        if (end && length && need == SIZE_MAX) {
            status = atoi(answer + 9);
            need = (size_t)(end + 4 - answer) + strtoul(length + 16, NULL, 10);
        }
    }
    return status;
}

static const char infer_body[] =
    "{\"inputs\":[{\"name\":\"X\",\"shape\":[1,2],\"datatype\":\"INT32\",\"data\":[7,-9]}]}";

static void answers(void **state)
{
    struct mr_server *s = start();
    char text[65536];
    int fd = dial(mr_server_http_port(s)), metrics = dial(mr_server_metrics_port(s));
    (void)state;

    assert_int_equal(ask(fd, "GET", "/v2/health/ready", "", text, sizeof text), 200);
    assert_int_equal(ask(fd, "POST", "/v2/models/plain/infer", infer_body, text, sizeof text), 200);
    assert_non_null(strstr(text, "\"data\":[7,-9]"));
    assert_int_equal(ask(fd, "POST", "/v2/models/absent/infer", infer_body, text, sizeof text),
                     404);
    assert_non_null(strstr(text, "Request for unknown model: 'absent' is not found"));
    assert_int_equal(ask(fd, "PUT", "/v2/models/plain/infer", "", text, sizeof text), 405);
    assert_int_equal(ask(fd, "GET", "/v2/trace/setting", "", text, sizeof text), 501);
    assert_int_equal(ask(fd, "GET", "/v2/models/stats", "", text, sizeof text), 200);
    assert_int_equal(ask(fd, "POST", "/v2/repository/index", "", text, sizeof text), 200);
    assert_int_equal(ask(metrics, "GET", "/metrics", "", text, sizeof text), 200);
    assert_non_null(
        strstr(text, "nv_inference_request_success{model=\"plain\",version=\"1\"} 1\n"));
    assert_int_equal(ask(metrics, "GET", "/v2", "", text, sizeof text), 404);
    close(fd);
    close(metrics);
    assert_int_equal(mr_server_stop(s), MR_OK);
    mr_server_free(&s);
}

static void expect_refusal(struct mr_server_options *o, const char *text)
{
    struct mr_server *s = NULL;
    struct mr_err err = {0};

    assert_true(mr_server_start(&s, o, &err) < 0);
    assert_null(s);
    if (!strstr(err.msg, text)) {
        fail_msg("'%s' does not contain '%s'", err.msg, text);
    }
}

static void refuses_to_start(void **state)
{
    struct mr_server *s = start();
    struct mr_server_options o;
    static const char *const nowhere[] = {"/nonexistent/folder"}, *const absent[] = {"absent"};
    (void)state;

    options(&o);
    o.http_port = mr_server_http_port(s);
    expect_refusal(&o, "cannot listen on 127.0.0.1:");
    options(&o);
    o.models.repositories = nowhere;
    expect_refusal(&o, "/nonexistent/folder");
    options(&o);
    o.models.load_models = absent;
    expect_refusal(&o, "failed to load");
    assert_int_equal(mr_server_stop(s), MR_OK);
    mr_server_free(&s);
}

/* ---- everything at once ---- */

struct worker {
    pthread_t thread;
    struct mr_server *server;
    const char *method, *path, *body;
    int count;
    int allowed; /* besides 200 */
    int failed;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    char text[65536];
    int fd = dial(mr_server_http_port(w->server));

    for (int i = 0; i < w->count; i++) {
        int status = ask(fd, w->method, w->path, w->body, text, sizeof text);
        if (status != 200 && status != w->allowed) {
            w->failed++;
        }
    }
    close(fd);
    return NULL;
}

static void many_threads(void **state)
{
    struct mr_server *s = start();
    struct worker w[] = {
        {.method = "POST", .path = "/v2/models/plain/infer", .body = infer_body, .count = 300},
        {.method = "POST", .path = "/v2/models/plain/infer", .body = infer_body, .count = 300},
        {.method = "POST",
         .path = "/v2/models/batched/infer",
         .body = infer_body,
         .count = 300,
         .allowed = 404},
        {.method = "POST",
         .path = "/v2/models/batched/infer",
         .body = infer_body,
         .count = 300,
         .allowed = 404},
        {.method = "POST",
         .path = "/v2/repository/models/batched/load",
         .body = "",
         .count = 40,
         .allowed = 400}, /* ended by the unload in between */
        {.method = "POST", .path = "/v2/repository/models/batched/unload", .body = "", .count = 40},
        {.method = "GET", .path = "/v2/models/stats", .body = "", .count = 100},
        {.method = "POST", .path = "/v2/repository/index", .body = "", .count = 100},
    };
    enum { COUNT = sizeof w / sizeof *w };
    (void)state;

    for (int i = 0; i < COUNT; i++) {
        w[i].server = s;
        assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    }
    for (int i = 0; i < COUNT; i++) {
        pthread_join(w[i].thread, NULL);
    }
    for (int i = 0; i < COUNT; i++) {
        if (w[i].failed) {
            fail_msg("%d of %s %s failed", w[i].failed, w[i].method, w[i].path);
        }
    }
    assert_int_equal(mr_server_stop(s), MR_OK);
    mr_server_free(&s);
}

/* ---- endpoints ---- */

static void put_endpoints(const char *path, const char *more)
{
    char part[512];
    FILE *f;

    snprintf(part, sizeof part, "%s.part", path);
    f = fopen(part, "w");
    assert_non_null(f);
    fprintf(
        f,
        "endpoint { name: 'e' variant { tag: 'a' model: 'plain' weight: 1 } variant { tag: 'b' "
        "model: 'batched' weight: 1 } shadow { model: 'plain' percent: 50 compare: 'equal' } } "
        "endpoint { name: 'f' sticky { key: 'header:x' } variant { tag: 'a' model: 'plain' weight: "
        "1 %s } }",
        more);
    fclose(f);
    assert_int_equal(rename(part, path), 0);
}

struct rewriter {
    struct mr_server *server;
    const char *path;
    pthread_t thread;
};

/* The second endpoint is another one each time. */
static void *rewrite(void *arg)
{
    struct rewriter *w = arg;
    char text[65536];
    int fd = dial(mr_server_metrics_port(w->server));

    for (int i = 0; i < 20; i++) {
        put_endpoints(w->path, i & 1 ? "" : "version: 1");
        mr_server_reload_endpoints(w->server);
        assert_int_equal(ask(fd, "GET", "/metrics", "", text, sizeof text), 200);
    }
    close(fd);
    return NULL;
}

static struct mr_server *start_endpoints(char path[512])
{
    struct mr_server_options o;
    struct mr_server *s = NULL;
    struct mr_err err = {0};

    snprintf(path, 512, "%s/endpoints", repository);
    put_endpoints(path, "");
    options(&o);
    o.endpoints = path;
    if (mr_server_start(&s, &o, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    return s;
}

/* Requests of an endpoint while its weights change, its report is made, and its file is read again. */
static void endpoints_change(void **state)
{
    char path[512];
    struct mr_server *s = start_endpoints(path);
    struct rewriter r = {.server = s, .path = path};
    struct worker w[] = {
        {.method = "POST", .path = "/v2/models/e/infer", .body = infer_body, .count = 200},
        {.method = "POST", .path = "/v2/models/e/infer", .body = infer_body, .count = 200},
        {.method = "POST", .path = "/v2/models/f/infer", .body = infer_body, .count = 200},
        {.method = "POST",
         .path = "/v2/endpoints/e/weights",
         .body = "{\"weights\":{\"a\":3}}",
         .count = 40},
        {.method = "POST",
         .path = "/v2/endpoints/e/rollback",
         .body = "",
         .count = 40,
         .allowed = 400},
        {.method = "GET", .path = "/v2/endpoints", .body = "", .count = 40},
        {.method = "GET", .path = "/v2/models/e/ready", .body = "", .count = 100},
    };
    enum { COUNT = sizeof w / sizeof *w };
    (void)state;

    for (int i = 0; i < COUNT; i++) {
        w[i].server = s;
        assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    }
    assert_int_equal(pthread_create(&r.thread, NULL, rewrite, &r), 0);
    for (int i = 0; i < COUNT; i++) {
        pthread_join(w[i].thread, NULL);
        if (w[i].failed) {
            fail_msg("%d of %s %s failed", w[i].failed, w[i].method, w[i].path);
        }
    }
    pthread_join(r.thread, NULL);
    assert_int_equal(mr_server_stop(s), MR_OK);
    mr_server_free(&s);
}

/* Until the server has begun with a request beside the ones that ask for it here: a new server. */
static void wait_begun(struct mr_server *s)
{
    static const char name[] = "\nmillrace_requests_total ";
    char text[65536];
    int fd = dial(mr_server_metrics_port(s));
    const char *at;
    int asked = 0;

    do {
        assert_int_equal(ask(fd, "GET", "/metrics", "", text, sizeof text), 200);
        asked++;
        at = strstr(text, name);
        assert_non_null(at);
    } while (atoi(at + strlen(name)) <= asked);
    close(fd);
}

/* A stop while a request runs: it is answered, and readiness had gone before. */
static void drains(void **state)
{
    struct mr_server *s = start();
    struct worker w = {.server = s,
                       .method = "POST",
                       .path = "/v2/models/slow/infer",
                       .body = infer_body,
                       .count = 1};
    (void)state;

    assert_int_equal(pthread_create(&w.thread, NULL, work, &w), 0);
    wait_begun(s);
    assert_int_equal(mr_server_stop(s), MR_OK);
    pthread_join(w.thread, NULL);
    assert_int_equal(w.failed, 0);
    mr_server_free(&s);
}

/* An execution that outlasts the exit timeout, and the server's memory: it ends without harm. */
static void cut_off(void **state)
{
    struct mr_server_options o;
    struct mr_server *s = NULL;
    struct mr_err err = {0};
    struct worker w = {
        .method = "POST", .path = "/v2/models/slower/infer", .body = infer_body, .count = 1};
    struct timespec rest = {0, 900 * MR_NS_PER_MS};
    (void)state;

    options(&o);
    o.exit_timeout_ns = 10 * MR_NS_PER_MS;
    if (mr_server_start(&s, &o, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    w.server = s;
    assert_int_equal(pthread_create(&w.thread, NULL, work, &w), 0);
    wait_begun(s);
    assert_int_equal(mr_server_stop(s), MR_E_DEADLINE);
    pthread_join(w.thread, NULL);
    assert_int_equal(w.failed, 1);
    mr_server_free(&s);
    assert_null(s);
    nanosleep(&rest, NULL);
}

/* Clients that disconnect with requests queued: those do not run, and nothing leaks. */
static void vanishing_clients(void **state)
{
    struct mr_server *s = start();
    char text[65536];
    int metrics = dial(mr_server_metrics_port(s));
    (void)state;

    for (int i = 0; i < 20; i++) {
        int fd = dial(mr_server_http_port(s));
        char request[1024];
        int n = snprintf(request, sizeof request,
                         "POST /v2/models/slow/infer HTTP/1.1\r\nHost: "
                         "localhost\r\nContent-Length: %zu\r\n\r\n%s",
                         strlen(infer_body), infer_body);
        assert_int_equal(write(fd, request, (size_t)n), n);
        close(fd);
    }
    do {
        assert_int_equal(ask(metrics, "GET", "/metrics", "", text, sizeof text), 200);
    } while (!strstr(text, "millrace_connections 1\n"));
    assert_null(strstr(text, "reason=\"CANCELED\",version=\"1\"} "
                             "0\nnv_inference_request_failure{model=\"slow\",reason=\"BACKEND\""));
    close(metrics);
    assert_int_equal(mr_server_stop(s), MR_OK);
    mr_server_free(&s);
}

/* ---- models that a resolver loads ---- */

/* Loads the models of the repository when they are asked for; "stuck" never comes, "full" and "absent" are refused. */
struct loader {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct mr_models *models;
    struct mr_engine_wait *stuck;
    unsigned asked;
};

static void loaded(void *ctx, int rc, const struct mr_err *err)
{
    struct mr_engine_wait *wait = ctx;

    mr_engine_resolved(&wait, rc, err);
}

static int load_cold(void *ctx, mr_str model, mr_str version, struct mr_engine_wait *wait,
                     struct mr_err *err)
{
    struct loader *l = ctx;
    (void)version;

    pthread_mutex_lock(&l->mutex);
    l->asked++;
    if (mr_str_eq_c(model, "stuck")) {
        l->stuck = wait;
    }
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->mutex);
    if (mr_str_eq_c(model, "full")) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no room for 'full', try later");
    }
    if (mr_str_eq_c(model, "absent")) {
        return MR_FAIL(err, MR_E_NOT_FOUND, "no such model");
    }
    if (!mr_str_eq_c(model, "stuck")) {
        mr_models_load(l->models, model, NULL, loaded, wait);
    }
    return MR_PENDING;
}

static void wait_stuck(struct loader *l)
{
    pthread_mutex_lock(&l->mutex);
    while (!l->stuck) {
        pthread_cond_wait(&l->changed, &l->mutex);
    }
    pthread_mutex_unlock(&l->mutex);
}

static struct mr_server *start_cold(struct loader *l)
{
    struct mr_server_options o;
    struct mr_server *s = NULL;
    struct mr_err err = {0};

    options(&o);
    o.models.load_model_count = 0;
    o.resolver = (struct mr_resolver){load_cold, l};
    if (mr_server_start(&s, &o, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    l->models = mr_server_models(s);
    return s;
}

/* Infer, metadata and configuration wait for a model that is not ready; readiness and statistics do not. */
static void cold_models(void **state)
{
    struct loader l = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct mr_server *s = start_cold(&l);
    char text[65536];
    int fd = dial(mr_server_http_port(s));
    (void)state;

    assert_int_equal(ask(fd, "GET", "/v2/models/plain/ready", "", text, sizeof text), 400);
    assert_int_equal(ask(fd, "GET", "/v2/models/plain/stats", "", text, sizeof text), 400);
    assert_int_equal(l.asked, 0);
    assert_int_equal(ask(fd, "POST", "/v2/models/plain/infer", infer_body, text, sizeof text), 200);
    assert_non_null(strstr(text, "\"data\":[7,-9]"));
    assert_int_equal(ask(fd, "POST", "/v2/models/plain/infer", infer_body, text, sizeof text), 200);
    assert_int_equal(l.asked, 1); /* the second found it */
    assert_int_equal(ask(fd, "GET", "/v2/models/batched", "", text, sizeof text), 200);
    assert_int_equal(ask(fd, "GET", "/v2/models/slow/config", "", text, sizeof text), 200);
    assert_int_equal(l.asked, 3);
    assert_int_equal(ask(fd, "POST", "/v2/models/absent/infer", infer_body, text, sizeof text),
                     404);
    assert_int_equal(ask(fd, "POST", "/v2/models/full/infer", infer_body, text, sizeof text), 503);
    assert_non_null(strstr(text, "no room for 'full', try later"));
    close(fd);
    assert_int_equal(mr_server_stop(s), MR_OK);
    mr_server_free(&s);
}

/* A client that goes while its request waits, and a server that exits. */
static void cold_model_that_never_comes(void **state)
{
    struct loader l = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct mr_server *s = start_cold(&l);
    const char request[] = "GET /v2/models/stuck HTTP/1.1\r\nHost: localhost\r\n\r\n";
    char text[1024] = "";
    int fd = dial(mr_server_http_port(s));
    struct mr_engine_wait *first;
    (void)state;

    assert_int_equal(write(fd, request, sizeof request - 1), sizeof request - 1);
    wait_stuck(&l);
    close(fd);
    first = l.stuck;
    l.stuck = NULL;
    fd = dial(mr_server_http_port(s));
    assert_int_equal(write(fd, request, sizeof request - 1), sizeof request - 1);
    wait_stuck(&l);
    assert_int_equal(mr_server_stop(s), MR_OK);
    assert_true(read(fd, text, sizeof text - 1) > 0);
    assert_non_null(strstr(text, "503"));
    assert_non_null(strstr(text, "the server is exiting, and the model is not loaded"));
    close(fd);
    mr_engine_resolved(&first, MR_OK, NULL);
    mr_engine_resolved(&l.stuck, MR_OK, NULL);
    mr_server_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers),           cmocka_unit_test(refuses_to_start),
        cmocka_unit_test(many_threads),      cmocka_unit_test(drains),
        cmocka_unit_test(vanishing_clients), cmocka_unit_test(endpoints_change),
        cmocka_unit_test(cold_models),       cmocka_unit_test(cold_model_that_never_comes),
        cmocka_unit_test(cut_off), /* the last one: it leaves a thread in the backend */
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
