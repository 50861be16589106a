/* A sending thread: its loop, connections and the mails of the run.
 *
 * Each connection is a client of its own with at most one connection, so that the connection of each request is known
 * and finding a free one has a constant cost. Before the measurement every connection is opened by a call that any
 * server can answer. */
#include "worker.h"

#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread.h"
#include "client/endpoint.h"

/* Connections opened at a time: fewer than a listening socket's queue holds. */
#define GREETING_MAX 64

/* ---- CPU time ---- */

static int64_t thread_cpu_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (int64_t)ts.tv_sec * MR_NS_PER_S + ts.tv_nsec;
}

/* Time in which this thread was runnable without a CPU; 0 if the kernel does not report it. */
static int64_t thread_wait_ns(void)
{
    FILE *f = fopen("/proc/thread-self/schedstat", "re");
    long long ran = 0;
    long long waited = 0;

    if (f) {
        if (fscanf(f, "%lld %lld", &ran, &waited) != 2) {
            waited = 0;
        }
        fclose(f);
    }
    return waited;
}

void perf_worker_finished(struct perf_worker *w)
{
    if (w->ran_ns) {
        return;
    }
    w->ran_ns = MR_MAX(mr_now_ns() - w->run->start_ns, INT64_C(1));
    w->cpu_ns = thread_cpu_ns() - w->cpu_ns;
    w->cpu_wait_ns = thread_wait_ns() - w->cpu_wait_ns;
    pthread_mutex_lock(&w->run->lock);
    w->run->finished++;
    pthread_cond_signal(&w->run->changed);
    pthread_mutex_unlock(&w->run->lock);
}

/* ---- connections ---- */

static void add_flight(struct perf_worker *w, struct perf_conn *conn)
{
    struct perf_flight *f = MR_NEW(struct perf_flight);

    f->conn = conn;
    f->index = w->flights.len;
    MR_VEC_PUSH(&w->flights, f);
    perf_flight_idle(w, f);
}

int perf_worker_connect(struct perf_worker *w, struct mr_err *err)
{
    const struct mr_perf_load *load = w->run->load;
    struct mr_client_options options = {.http2 = w->run->target->http2,
                                        .tls = w->run->tls,
                                        .max_connections = 1,
                                        .headers = w->run->target->headers,
                                        .header_count = w->run->target->header_count,
                                        .never_repeat = true};
    struct perf_conn *conn = MR_NEW(struct perf_conn);
    int rc = mr_client_new(&conn->client, w->loop, w->run->target->address, &options, err);

    if (rc < 0) {
        mr_free(conn);
        return rc;
    }
    conn->w = w;
    MR_VEC_PUSH(&w->conns, conn);
    for (uint32_t i = 0; i < load->streams && (!load->concurrency || i == 0); i++) {
        add_flight(w, conn);
    }
    return MR_OK;
}

/* Closed loop: distributes one flight per pending request evenly over the connections. */
static void deal_flights(struct perf_worker *w)
{
    for (size_t i = w->flights.len; i < w->concurrency; i++) {
        add_flight(w, w->conns.at[i % w->conns.len]);
    }
}

static void report_connected(struct perf_worker *w, int rc, const struct mr_err *err)
{
    struct perf_run *run = w->run;

    pthread_mutex_lock(&run->lock);
    run->connected++;
    if (rc < 0 && run->rc == MR_OK) {
        run->rc = rc;
        run->err = *err;
    }
    pthread_cond_signal(&run->changed);
    pthread_mutex_unlock(&run->lock);
}

static void greet(struct perf_worker *w);

static void on_greeted(void *ctx, int rc, const struct mr_err *err,
                       const struct mr_client_response *response)
{
    struct perf_worker *w = ctx;

    w->greeting--;
    if (w->is_over) {
        return;
    }
    if (rc < 0 && !response) {
        w->is_over = true;
        report_connected(w, rc, err);
    } else if (w->greeting == 0 && w->greeted == w->conns.len) {
        report_connected(w, MR_OK, NULL);
    } else {
        greet(w);
    }
}

static void greet(struct perf_worker *w)
{
    const struct mr_perf_target *t = w->run->target;

    while (w->greeted < w->conns.len && w->greeting < GREETING_MAX) {
        w->greeting++;
        const struct mr_endpoint e = {.client = w->conns.at[w->greeted++]->client,
                                      .is_grpc = t->grpc};
        mr_endpoint_live(&e, t->timeout_ns, on_greeted, w);
    }
}

/* ---- mails ---- */

static void on_start(struct mr_mail *mail)
{
    struct perf_worker *w = MR_CONTAINER_OF(mail, struct perf_worker, start_mail);
    const struct mr_perf_load *load = w->run->load;

    w->cpu_ns = thread_cpu_ns();
    w->cpu_wait_ns = thread_wait_ns();
    w->has_started = true;
    if (load->concurrency == 0) {
        const struct perf_pace pace = {.from = load->rate,
                                       .to = load->rate_to,
                                       .flat_ns = load->warmup_ns,
                                       .ramp_ns = load->rate_to > 0 ? load->duration_ns : 0};
        perf_schedule_init(&w->schedule, &pace, load->poisson, load->seed, w->run->start_ns,
                           w->index, load->threads);
    }
    perf_flights_start(w);
}

static void on_swap(struct mr_mail *mail)
{
    struct perf_worker *w = MR_CONTAINER_OF(mail, struct perf_worker, swap_mail);
    struct perf_window *full = w->window;

    pthread_mutex_lock(&w->run->lock);
    w->window = w->spare;
    w->spare = full;
    w->run->swapped++;
    pthread_cond_signal(&w->run->changed);
    pthread_mutex_unlock(&w->run->lock);
}

/* The end was moved: checks if it has passed. */
static void on_nudge(struct mr_mail *mail)
{
    struct perf_worker *w = MR_CONTAINER_OF(mail, struct perf_worker, nudge_mail);

    if (w->run->load->concurrency == 0 && !w->is_blocked) {
        perf_flights_pump(w);
    }
}

static void on_stop(struct mr_mail *mail)
{
    struct perf_worker *w = MR_CONTAINER_OF(mail, struct perf_worker, stop_mail);

    perf_worker_finished(w);
    mr_timer_stop(&w->timer);
    perf_flights_give_up(w);
    for (size_t i = 0; i < w->flights.len; i++) {
        mr_timer_stop(&w->flights.at[i]->timer);
    }
    for (size_t i = 0; i < w->conns.len; i++) {
        mr_client_free(&w->conns.at[i]->client);
    }
    mr_loop_stop(w->loop);
}

/* ---- the thread ---- */

void *perf_worker_main(void *arg)
{
    struct perf_worker *w = arg;

    greet(w);
    mr_loop_run(w->loop);
    return NULL;
}

static void make_heads(struct perf_worker *w)
{
    const struct mr_perf_target *t = w->run->target;

    w->heads = MR_NEW_ARRAY(struct perf_head, t->body_count);
    for (size_t i = 0; i < t->body_count; i++) {
        struct perf_head *h = &w->heads[i];
        const struct mr_oip_encoded body = {.header_length = t->bodies[i].header_length};
        h->count = mr_endpoint_headers(&body, h->length, h->headers);
    }
}

/* This thread's share of a number. */
static uint32_t share(uint32_t all, uint32_t index, uint32_t count)
{
    return all / count + (index < all % count);
}

int perf_worker_init(struct perf_worker *w, struct perf_run *run, uint32_t index,
                     struct mr_err *err)
{
    const struct mr_perf_load *load = run->load;
    int rc;

    memset(w, 0, sizeof *w);
    w->run = run;
    w->index = index;
    w->next_body = index % run->target->body_count;
    w->start_mail.run = on_start;
    w->swap_mail.run = on_swap;
    w->nudge_mail.run = on_nudge;
    w->stop_mail.run = on_stop;
    w->window = MR_NEW(struct perf_window);
    w->spare = MR_NEW(struct perf_window);
    w->concurrency = share(load->concurrency, index, load->threads);
    w->connections = MR_MAX(share(load->connections, index, load->threads), 1u);
    w->max_connections = MR_MAX(share(load->max_connections, index, load->threads), w->connections);
    make_heads(w);
    MR_TRY(mr_loop_new(&w->loop, NULL, err));
    for (uint32_t i = 0; i < w->connections; i++) {
        MR_TRY(perf_worker_connect(w, err));
    }
    deal_flights(w);
out:
    return rc;
}

static void perf_window_free(struct perf_window **io_w)
{
    if (*io_w) {
        MR_VEC_FINI(&(*io_w)->samples);
        mr_freep(io_w);
    }
}

void perf_worker_fini(struct perf_worker *w)
{
    w->is_over = true;
    for (size_t i = 0; i < w->conns.len; i++) {
        mr_client_free(&w->conns.at[i]->client);
        /* Its callbacks may run until the loop is freed. */
    }
    mr_loop_free(&w->loop);
    for (size_t i = 0; i < w->conns.len; i++) {
        mr_free(w->conns.at[i]);
    }
    for (size_t i = 0; i < w->flights.len; i++) {
        mr_free(w->flights.at[i]);
    }
    MR_VEC_FINI(&w->conns);
    MR_VEC_FINI(&w->flights);
    mr_free(w->heads);
    perf_window_free(&w->window);
    perf_window_free(&w->spare);
}
