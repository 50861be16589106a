/* A run: its threads, its phases, the collection of each second, and the sum.
 *
 * The calling thread only waits and adds up. Once a second it collects the counts of each worker: the worker
 * continues with an empty window and hands over the full one, so that adding up costs it nothing. */
#include <stddef.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/thread.h"
#include "interval.h"
#include "worker.h"

#define POLL_NS  (100 * MR_NS_PER_MS)
#define GRACE_NS MR_NS_PER_S

struct team {
    struct perf_run run;
    struct perf_worker *workers;
    uint32_t started; /* threads */
    const struct mr_perf_hooks *hooks;
    struct mr_perf_result *out;
    struct perf_window *sum; /* of a second */
    int64_t second_ns;       /* when it began */
    bool was_stopped;
};

/* ---- waiting ---- */

static void lock_init(struct perf_run *run)
{
    pthread_condattr_t attr;

    pthread_mutex_init(&run->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&run->changed, &attr);
    pthread_condattr_destroy(&attr);
}

/* Waits until *counter reaches `count` or until the time; true if it has reached it. */
static bool wait_count(struct perf_run *run, const uint32_t *counter, uint32_t count, int64_t until)
{
    struct timespec ts = {.tv_sec = until / MR_NS_PER_S, .tv_nsec = until % MR_NS_PER_S};
    int rc = 0;

    pthread_mutex_lock(&run->lock);
    while (*counter < count && rc == 0) {
        rc = pthread_cond_timedwait(&run->changed, &run->lock, &ts);
    }
    bool reached = *counter >= count;
    pthread_mutex_unlock(&run->lock);
    return reached;
}

/* ---- adding up ---- */

static void take_samples(struct mr_perf_result *out, struct perf_window *w)
{
    size_t room = MR_PERF_SAMPLES_MAX - out->samples.len;
    size_t n = MR_MIN(w->samples.len, room);

    for (size_t i = 0; i < n; i++) {
        MR_VEC_PUSH(&out->samples, w->samples.at[i]);
    }
    out->samples_lost += w->samples.len - n;
    w->samples.len = 0;
}

static void take_window(struct team *t, struct perf_window *w)
{
    struct mr_perf_result *out = t->out;

    mr_hdr_merge(&t->sum->latency, &w->latency);
    t->sum->answered += w->answered;
    t->sum->failed += w->failed;
    t->sum->completed += w->completed;
    out->late += w->late;
    out->waited += w->waited;
    out->sent += w->sent;
    out->gave_up += w->gave_up;
    take_samples(out, w);
    memset(w, 0, offsetof(struct perf_window, samples));
}

static void end_second(struct team *t, int64_t now)
{
    struct perf_window *s = t->sum;
    struct mr_perf_result *out = t->out;
    struct mr_perf_second second = {
        .begin_s = (double)(t->second_ns - t->run.begin_ns) / 1e9,
        .length_s = (double)(now - t->second_ns) / 1e9,
        .answered = s->answered,
        .failed = s->failed,
        .mean_ns = mr_hdr_mean(&s->latency),
        .p50_ns = mr_hdr_quantile(&s->latency, 0.5),
        .p99_ns = mr_hdr_quantile(&s->latency, 0.99),
        .max_ns = s->latency.max,
    };

    t->second_ns = now;
    out->answered += s->answered;
    out->failed += s->failed;
    out->rate += (double)s->completed; /* divided when the time is known */
    mr_hdr_merge(&out->latency, &s->latency);
    perf_parts_add(out, &s->latency);
    MR_VEC_PUSH(&out->windows, second);
    if (t->hooks && t->hooks->progress) {
        t->hooks->progress(t->hooks->ctx, &second);
    }
    memset(s, 0, offsetof(struct perf_window, samples));
}

static void collect(struct team *t)
{
    uint32_t count = t->started;

    t->run.swapped = 0;
    for (uint32_t i = 0; i < count; i++) {
        mr_loop_post(t->workers[i].loop, &t->workers[i].swap_mail);
    }
    int64_t now = mr_now_ns();
    wait_count(&t->run, &t->run.swapped, count, INT64_MAX);
    for (uint32_t i = 0; i < count; i++) {
        take_window(t, t->workers[i].spare);
    }
    end_second(t, now);
}

/* ---- phases ---- */

static int start_threads(struct team *t, struct mr_err *err)
{
    uint32_t count = t->run.load->threads;

    for (uint32_t i = 0; i < count; i++) {
        char name[16];
        struct perf_worker *w = &t->workers[i];
        int rc = perf_worker_init(w, &t->run, i, err);
        snprintf(name, sizeof name, "perf-%u", i % 1000u);
        if (rc == MR_OK) {
            rc = mr_thread_start(&w->thread, name, perf_worker_main, w, err);
        }
        if (rc < 0) {
            perf_worker_fini(w);
            return rc;
        }
        t->started++;
    }
    wait_count(&t->run, &t->run.connected, count, INT64_MAX);
    if (t->run.rc < 0) {
        *err = t->run.err;
    }
    return t->run.rc;
}

static void begin(struct team *t)
{
    const struct mr_perf_load *load = t->run.load;
    struct perf_run *run = &t->run;

    run->start_ns = mr_now_ns();
    run->begin_ns = run->start_ns + load->warmup_ns;
    run->end_ns = load->requests ? INT64_MAX : run->begin_ns + load->duration_ns;
    t->second_ns = run->begin_ns;
    for (uint32_t i = 0; i < t->started; i++) {
        mr_loop_post(t->workers[i].loop, &t->workers[i].start_mail);
    }
}

static void stop_early(struct team *t, int64_t now)
{
    const atomic_bool *stop = t->hooks ? t->hooks->stop : NULL;

    if (t->was_stopped || !stop || !atomic_load(stop)) {
        return;
    }
    t->was_stopped = true;
    if (now < t->run.end_ns) {
        t->run.end_ns = now;
    }
    for (uint32_t i = 0; i < t->started; i++) {
        mr_loop_post(t->workers[i].loop, &t->workers[i].nudge_mail);
    }
}

static void watch(struct team *t)
{
    int64_t patience = t->run.target->timeout_ns + GRACE_NS;
    int64_t now;

    do {
        now = mr_now_ns();
        if (now >= t->second_ns + MR_NS_PER_S) {
            collect(t);
        }
        stop_early(t, now);
    } while (!wait_count(&t->run, &t->run.finished, t->started,
                         MR_MIN(now + POLL_NS, t->second_ns + MR_NS_PER_S)) &&
             now < mr_ns_after(t->run.end_ns, patience));
}

static void stop_threads(struct team *t)
{
    for (uint32_t i = 0; i < t->started; i++) {
        mr_loop_post(t->workers[i].loop, &t->workers[i].stop_mail);
    }
    for (uint32_t i = 0; i < t->started; i++) {
        pthread_join(t->workers[i].thread, NULL);
    }
}

static void sum_up(struct team *t)
{
    struct mr_perf_result *out = t->out;
    int64_t end = t->run.end_ns;
    int64_t last = t->run.begin_ns;

    for (uint32_t i = 0; i < t->started; i++) {
        struct perf_worker *w = &t->workers[i];
        double ran = (double)MR_MAX(w->ran_ns, INT64_C(1));
        take_window(t, w->window);
        perf_errors_merge(&out->errors, &w->errors);
        out->warmup_sent += w->warmup_sent;
        out->warmup_failed += w->warmup_failed;
        out->connections += w->connections;
        out->grown += w->grown;
        out->cpu = MR_MAX(out->cpu, (double)w->cpu_ns / ran);
        out->cpu_wait = MR_MAX(out->cpu_wait, (double)w->cpu_wait_ns / ran);
        last = MR_MAX(last, w->last_done_ns);
    }
    if (t->sum->latency.total || t->sum->failed || t->sum->answered) {
        end_second(t, MR_MAX(last, t->second_ns));
    }
    bool counted = end == INT64_MAX;
    out->seconds = (double)MR_MAX((counted ? last : end) - t->run.begin_ns, INT64_C(0)) / 1e9;
    double done = counted ? (double)out->answered : out->rate;
    out->rate = out->seconds > 0 ? done / out->seconds : 0;
}

int mr_perf_run(const struct mr_perf_target *target, const struct mr_perf_load *load,
                const struct mr_perf_hooks *hooks, struct mr_perf_result *out, struct mr_err *err)
{
    struct team t = {.run = {.target = target, .load = load}, .hooks = hooks, .out = out};
    struct mr_err own;
    int rc = MR_OK;

    err = err ? err : &own;
    lock_init(&t.run);
    t.workers = MR_NEW_ARRAY(struct perf_worker, load->threads);
    t.sum = MR_NEW(struct perf_window);
    if (target->tls) {
        MR_TRY(mr_tls_client_new(&t.run.tls, target->tls, err));
    }
    MR_TRY(start_threads(&t, err));
    begin(&t);
    watch(&t);
out:
    stop_threads(&t);
    if (rc == MR_OK) {
        sum_up(&t);
    }
    for (uint32_t i = 0; i < t.started; i++) {
        perf_worker_fini(&t.workers[i]);
    }
    mr_tls_client_free(&t.run.tls);
    mr_free(t.workers);
    mr_free(t.sum);
    pthread_cond_destroy(&t.run.changed);
    pthread_mutex_destroy(&t.run.lock);
    return rc;
}

void mr_perf_result_fini(struct mr_perf_result *r)
{
    MR_VEC_FINI(&r->windows);
    MR_VEC_FINI(&r->samples);
    mr_freep(&r->parts);
}

const char *mr_perf_doubt(const struct mr_perf_result *r, const struct mr_perf_load *load,
                          char *out, size_t size)
{
    double busy = r->cpu + r->cpu_wait;

    if (busy > MR_PERF_BUSY) {
        snprintf(out, size,
                 "the client is the bottleneck: a sending thread used %.0f %% of a CPU and waited "
                 "%.0f %% of the time for one; use more --threads, or another machine",
                 100 * r->cpu, 100 * r->cpu_wait);
        return out;
    }
    if (!load->concurrency && r->sent && (double)r->late > 0.01 * (double)r->sent) {
        snprintf(
            out, size,
            "the client was late: %.1f %% of the requests left more than 1 ms after their time, "
            "which counts in their latency",
            100 * (double)r->late / (double)r->sent);
        return out;
    }
    if (r->waited) {
        snprintf(out, size,
                 "%llu requests had to wait for one of the connections, which counts in their "
                 "latency; --max-connections allows more",
                 (unsigned long long)r->waited);
        return out;
    }
    return NULL;
}
