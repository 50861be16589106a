/* Hosts of a model that have a given speed and given faults, to see what a client makes of them.
 *
 *   cmake --build build/release --target bench_fault_hosts
 *   build/release/bench/bench_fault_hosts HOST ...
 *
 * HOST is NAME=NUMBER,…:
 *
 *   slots=8          calls that are worked on at a time; others wait, first come first served
 *   service_us=20000 that a call takes, whatever is in it
 *   slow=10          factor of that, for calls whose work begins within the time of the fault
 *   fails=0.33       share of calls that fail; at once, or with `slowly=1` after their time
 *   throttles=1      share that is answered 503
 *   hangs=1          share that is never answered
 *   from_ms, to_ms   time of the fault, from the first inference on; always if not given
 *   takes=64         values of a row of the input; one, in a dimension less, if not given
 *   gives=10         the same of the output
 *
 * With service_us=0 a call is answered at once, by what is the least that a host can do.
 *
 * The first line of output has the ports. At the end of its input it writes for each {"requests":…,"good":…,"ms":…}, the
 * last being the time from the first inference on any host to its last good answer, and ends. One loop.
 *
 * Slots are kept by reckoning: a call's end follows from the ends of those before it, so late timers and a busy machine
 * cost answers some latency, but no host any of its speed, as long as calls wait for it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"
#include "net/http.h"

#define HOSTS_MOST 16
#define SLOTS_MOST 256
#define ROWS_MOST  4096
#define GIVES_MOST 16

struct host {
    double slots, service_us, slow, fails, slowly, throttles, hangs, from_ms, to_ms, takes, gives;
    int64_t free_ns[SLOTS_MOST]; /* when each slot has done what it was given */
    uint64_t requests;
    uint64_t good;
    double last_ms;
};

static const struct {
    const char *name;
    size_t offset;
} fields[] = {
#define FIELD(name)                                                                                \
    {                                                                                              \
#        name, offsetof(struct host, name)                                                         \
    }
    FIELD(slots), FIELD(service_us), FIELD(slow),  FIELD(fails), FIELD(slowly), FIELD(throttles),
    FIELD(hangs), FIELD(from_ms),    FIELD(to_ms), FIELD(takes), FIELD(gives),
#undef FIELD
};

static struct host hosts[HOSTS_MOST];
static size_t host_count;
static struct mr_loop *loop;
static struct mr_rng rng;
static int64_t begin_ns; /* the first inference; 0: there was none */

static int host_read(struct host *h, char *text, struct mr_err *err)
{
    *h = (struct host){.slots = 8, .service_us = 20000, .slow = 1, .to_ms = 1e12};
    for (char *part = strtok(text, ","); part; part = strtok(NULL, ",")) {
        char *equals = strchr(part, '=');
        double *to = NULL;
        for (size_t i = 0; equals && i < sizeof fields / sizeof *fields; i++) {
            if (mr_str_eq_c(mr_str_n(part, (size_t)(equals - part)), fields[i].name)) {
                to = (double *)(void *)((char *)h + fields[i].offset);
            }
        }
        if (!to) {
            return MR_FAIL(err, MR_E_INVALID, "'%s' is no NAME=NUMBER of a host", part);
        }
        *to = atof(equals + 1);
    }
    return h->slots >= 1 && h->slots <= SLOTS_MOST && h->gives >= 0 && h->gives <= GIVES_MOST
               ? MR_OK
               : MR_FAIL(err, MR_E_INVALID, "a host has 1 to %d slots and gives 0 to %d values",
                         SLOTS_MOST, GIVES_MOST);
}

/* ---- answers ---- */

struct pending {
    struct mr_timer timer;
    struct mr_call *call;
    struct host *host;
    int status;
    uint64_t rows;
};

static void reply_text(struct mr_call *call, int status, const char *text)
{
    static const struct mr_header type = {MR_STR_INIT("content-type"),
                                          MR_STR_INIT("application/json")};
    const struct mr_piece piece = {text, strlen(text), NULL};

    mr_call_reply(call, &(struct mr_reply){.status = status,
                                           .headers = &type,
                                           .header_count = 1,
                                           .pieces = &piece,
                                           .piece_count = 1});
}

/* "[-1,64]", or of no values "[-1]". */
static const char *shape_text(long long rows, double values, char out[48])
{
    if (values > 0) {
        snprintf(out, 48, "[%lld,%.0f]", rows, values);
    } else {
        snprintf(out, 48, "[%lld]", rows);
    }
    return out;
}

static void reply_rows(struct mr_call *call, const struct host *h, uint64_t rows)
{
    static const float zeros[ROWS_MOST * GIVES_MOST];
    const size_t bytes = (size_t)rows * (size_t)MR_MAX(h->gives, 1.0) * sizeof *zeros;
    char head[256];
    char length[16];
    char shape[48];
    const int n =
        snprintf(head, sizeof head,
                 "{\"model_name\":\"m\",\"outputs\":[{\"name\":\"y\",\"datatype\":\"FP32\","
                 "\"shape\":%s,\"parameters\":{\"binary_data_size\":%zu}}]}",
                 shape_text((long long)rows, h->gives, shape), bytes);

    snprintf(length, sizeof length, "%d", n);
    const struct mr_header headers[] = {
        {MR_STR("content-type"), MR_STR("application/octet-stream")},
        {MR_STR("inference-header-content-length"), mr_str_c(length)}};
    const struct mr_piece pieces[] = {{head, (size_t)n, NULL}, {zeros, bytes, NULL}};
    mr_call_reply(call, &(struct mr_reply){.status = 200,
                                           .headers = headers,
                                           .header_count = 2,
                                           .pieces = pieces,
                                           .piece_count = 2});
}

static void answer(struct mr_call *call, struct host *h, int status, uint64_t rows)
{
    if (status == 200) {
        h->good++;
        h->last_ms = (double)(mr_now_ns() - begin_ns) / 1e6;
        reply_rows(call, h, rows);
    } else {
        reply_text(call, status, "{\"error\":\"a fault that was asked for\"}");
    }
}

static void on_served(struct mr_timer *t)
{
    struct pending *p = MR_CONTAINER_OF(t, struct pending, timer);

    answer(p->call, p->host, p->status, p->rows);
    mr_free(p);
}

/* ---- calls ---- */

/* When the work on a call that comes now ends. */
static int64_t slot_take(struct host *h, int64_t now_ns)
{
    int64_t *slot = h->free_ns;

    for (size_t i = 1; i < (size_t)h->slots; i++) {
        slot = h->free_ns[i] < *slot ? &h->free_ns[i] : slot;
    }
    const int64_t start_ns = MR_MAX(*slot, now_ns);
    const double at_ms = (double)(start_ns - begin_ns) / 1e6;
    const bool is_slow = at_ms >= h->from_ms && at_ms < h->to_ms;
    *slot = start_ns + (int64_t)(h->service_us * (is_slow ? h->slow : 1) * 1000);
    return *slot;
}

/* Of the request's first tensor. */
static uint64_t rows_in(const struct mr_call *call)
{
    static const char shape[] = "\"shape\":";
    const char *at = memmem(call->body.ptr, call->body.len, shape, sizeof shape - 1);

    /* Some clients write a space before the dimensions. */
    at = at ? memchr(at, '[', call->body.len - (size_t)(at - (const char *)call->body.ptr)) : NULL;
    return at ? MR_MIN(strtoull(at + 1, NULL, 10), (unsigned long long)ROWS_MOST) : 1;
}

static void on_inference(struct mr_call *call, struct host *h)
{
    const int64_t now_ns = mr_now_ns();

    begin_ns = begin_ns ? begin_ns : now_ns;
    h->requests++;
    const double at_ms = (double)(now_ns - begin_ns) / 1e6;
    const bool is_faulty = at_ms >= h->from_ms && at_ms < h->to_ms;
    const double draw = is_faulty ? mr_rng_unit(&rng) : 2;
    if (draw < h->hangs) {
        return; /* until the client gives up, see on_cancel */
    }
    const bool fails = draw < h->fails;
    if (draw < h->throttles || (fails && h->slowly == 0)) {
        answer(call, h, fails ? 500 : 503, 0);
        return;
    }
    if (h->service_us <= 0) {
        answer(call, h, fails ? 500 : 200, rows_in(call));
        return;
    }
    struct pending *p = MR_NEW(struct pending);
    *p = (struct pending){
        .call = call, .host = h, .status = fails ? 500 : 200, .rows = rows_in(call)};
    call->user = p;
    mr_timer_start(loop, &p->timer, slot_take(h, now_ns) - now_ns, 0, on_served);
}

static void on_head(void *ctx, struct mr_call *call)
{
    (void)ctx;
    call->body_limit = 64 << 20;
    call->user = NULL;
}

static void on_body(void *ctx, struct mr_call *call)
{
    const struct host *h = ctx;
    char text[512];
    char in[48];
    char out[48];

    if (mr_str_eq_c(call->method, "POST")) {
        on_inference(call, ctx);
        return;
    }
    snprintf(text, sizeof text,
             "{\"name\":\"m\",\"versions\":[\"1\"],\"platform\":\"\","
             "\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":%s}],"
             "\"outputs\":[{\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":%s}]}",
             shape_text(-1, h->takes, in), shape_text(-1, h->gives, out));
    reply_text(call, 200, text);
}

/* Who waits for its time is answered then, to nobody. */
static void on_cancel(void *ctx, struct mr_call *call)
{
    (void)ctx;
    if (!call->user) {
        reply_text(call, 500, "{}");
    }
}

static void on_body_refused(void *ctx, struct mr_call *call, int status)
{
    (void)ctx;
    (void)status;
    reply_text(call, 413, "{}");
}

/* ---- the process ---- */

static void *input_wait(void *arg)
{
    char c;

    (void)arg;
    while (read(STDIN_FILENO, &c, 1) > 0) {
    }
    mr_loop_stop(loop);
    return NULL;
}

/* A server of its own for each host. */
static int host_listen(struct host *h, uint16_t *out_port, struct mr_err *err)
{
    const struct mr_http_handler handler = {.on_head = on_head,
                                            .on_body = on_body,
                                            .on_cancel = on_cancel,
                                            .on_body_refused = on_body_refused,
                                            .ctx = h};
    struct mr_http_server *server;
    struct mr_http_options options;
    int rc;

    mr_http_options_init(&options);
    MR_TRY(mr_http_server_new(&server, &options, &handler, err));
    MR_TRY(mr_http_listen(server, &loop, 1, "127.0.0.1:0", 0, false, out_port, err));
out:
    return rc;
}

static int hosts_listen(int argc, char **argv, struct mr_err *err)
{
    int rc;

    MR_TRY(mr_loop_new(&loop, NULL, err));
    for (; host_count + 1 < (size_t)argc && host_count < HOSTS_MOST; host_count++) {
        uint16_t port = 0;
        MR_TRY(host_read(&hosts[host_count], argv[host_count + 1], err));
        MR_TRY(host_listen(&hosts[host_count], &port, err));
        printf("%s%u", host_count ? " " : "", port);
    }
    printf("\n");
    fflush(stdout);
out:
    return rc;
}

int main(int argc, char **argv)
{
    struct mr_err err;
    pthread_t thread;

    mr_rng_seed(&rng, 1);
    if (hosts_listen(argc, argv, &err) < 0 ||
        mr_thread_start(&thread, "input", input_wait, NULL, &err) < 0) {
        fprintf(stderr, "fault_hosts: %s\n", err.msg);
        return 1;
    }
    mr_loop_run(loop);
    for (size_t i = 0; i < host_count; i++) {
        const struct host *h = &hosts[i];
        printf("{\"requests\":%llu,\"good\":%llu,\"ms\":%.1f}\n", (unsigned long long)h->requests,
               (unsigned long long)h->good, h->last_ms);
    }
    fflush(stdout);
    _exit(0); /* calls that hang, and timers, go with the process */
}
