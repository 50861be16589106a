/* Requests of a load run: sending, and their results. All on the worker's thread.
 *
 * A flight is a place on a connection. In a closed loop each one sends its next request when its answer arrives. In
 * an open loop slots are due by the schedule, and the flight that has been idle longest takes the next; a slot
 * without a free flight waits, with its original time, and so do all later ones. */
#include <stdio.h>

#include "base/clock.h"
#include "worker.h"

#define LATE_NS MR_NS_PER_MS
/* Slots sent before the loop handles answers again. */
#define BURST 64

void perf_flight_idle(struct perf_worker *w, struct perf_flight *f)
{
    f->is_active = false;
    f->next = NULL;
    if (w->idle_last) {
        w->idle_last->next = f;
    } else {
        w->idle_first = f;
    }
    w->idle_last = f;
}

static struct perf_flight *take_idle(struct perf_worker *w)
{
    struct perf_flight *f = w->idle_first;

    if (f) {
        w->idle_first = f->next;
        w->idle_last = f->next ? w->idle_last : NULL;
    }
    return f;
}

/* ---- answers ---- */

static void keep_sample(struct perf_worker *w, const struct perf_flight *f, int64_t now,
                        bool is_failed, bool is_latency)
{
    struct mr_perf_sample sample = {.due_ns = f->due_ns,
                                    .took_ns = (uint64_t)MR_MAX(now - f->due_ns, INT64_C(0)),
                                    .is_failed = is_failed,
                                    .is_latency = is_latency,
                                    .is_late = f->is_late};

    if (w->run->load->keeps_samples) {
        MR_VEC_PUSH(&w->window->samples, sample);
    }
}

static void count_failure(struct perf_worker *w, const struct perf_flight *f, int status, int http,
                          mr_str text, int64_t now)
{
    perf_errors_add(&w->errors, status, http, text, 1);
    if (!f->is_measured) {
        w->warmup_failed++;
        return;
    }
    /* Over gRPC the request carries the limit, and the server may end it a little earlier. */
    bool gave_up = status == MR_E_DEADLINE && http == 0;
    w->window->failed++;
    keep_sample(w, f, now, true, gave_up);
    if (gave_up) {
        w->window->gave_up++;
        mr_hdr_add(&w->window->latency, (uint64_t)MR_MAX(now - f->due_ns, INT64_C(0)));
    }
}

static void count_answer(struct perf_worker *w, const struct perf_flight *f, int64_t now)
{
    struct perf_run *run = w->run;

    if (now >= run->begin_ns && now < atomic_load_explicit(&run->end_ns, memory_order_relaxed)) {
        w->window->completed++;
    }
    if (f->is_measured) {
        w->window->answered++;
        mr_hdr_add(&w->window->latency, (uint64_t)MR_MAX(now - f->due_ns, INT64_C(0)));
        keep_sample(w, f, now, false, true);
    }
}

/* Records the result of a request. */
static void judge(struct perf_worker *w, const struct perf_flight *f,
                  const struct mr_client_response *response, int64_t now)
{
    const struct mr_perf_target *t = w->run->target;

    if (!t->grpc && response->status != 200) {
        mr_str text = {(const char *)response->body.ptr, response->body.len};
        count_failure(w, f, MR_E_UNKNOWN, response->status, text, now);
    } else if (f->why[0]) {
        count_failure(w, f, MR_E_UNKNOWN, MR_PERF_WRONG, mr_str_c(f->why), now);
    } else {
        count_answer(w, f, now);
    }
}

static void closed_next(struct perf_worker *w, struct perf_flight *f);

void perf_flight_check(struct perf_flight *f, const struct mr_client_response *response)
{
    const struct mr_perf_target *t = f->conn->w->run->target;
    char why[sizeof f->why];

    if (t->check && !t->check(t->check_ctx, f->body, response, why)) {
        memcpy(f->why, why, sizeof why);
    }
}

void perf_flight_done(void *ctx, int rc, const struct mr_err *err,
                      const struct mr_client_response *response)
{
    struct perf_flight *f = ctx;
    struct perf_worker *w = f->conn->w;
    int64_t now = mr_now_ns();

    if (w->is_over) {
        return;
    }
    if (rc < 0) {
        count_failure(w, f, rc, 0, mr_str_c(err->msg), now);
    } else {
        if (!w->run->target->streams && (w->run->target->grpc || response->status == 200)) {
            perf_flight_check(f, response);
        }
        judge(w, f, response, now);
    }
    w->last_done_ns = f->is_measured ? now : w->last_done_ns;
    w->in_flight--;
    if (w->run->load->concurrency) {
        closed_next(w, f);
    } else {
        perf_flight_idle(w, f);
        if (w->is_blocked) {
            perf_flights_pump(w);
        }
    }
    if (w->has_ended && w->in_flight == 0) {
        perf_worker_finished(w);
    }
}

/* ---- sending ---- */

static void send_flight(struct perf_worker *w, struct perf_flight *f, int64_t due_ns,
                        bool is_measured)
{
    const struct mr_perf_target *t = w->run->target;
    size_t which = w->next_body;
    const struct mr_perf_body *body = &t->bodies[which];
    struct mr_piece piece = {.ptr = body->block ? body->block->data : NULL,
                             .len = body->len,
                             .block = body->block ? mr_block_ref(body->block) : NULL};

    w->next_body = which + 1 == t->body_count ? 0 : which + 1;
    f->due_ns = due_ns;
    f->body = which;
    f->is_measured = is_measured;
    f->is_active = true;
    f->why[0] = '\0';
    w->in_flight++;
    if (is_measured) {
        w->window->sent++;
    } else {
        w->warmup_sent++;
    }
    if (t->streams) {
        perf_stream_send(f, &piece);
        return;
    }
    if (t->grpc) {
        const struct mr_client_grpc_request call = {
            .path = t->path, .pieces = &piece, .piece_count = 1, .timeout_ns = t->timeout_ns};
        mr_client_grpc(f->conn->client, &call, perf_flight_done, f);
        return;
    }
    struct mr_client_request request = {.method = "POST",
                                        .path = mr_str_c(t->path),
                                        .headers = w->heads[which].headers,
                                        .header_count = w->heads[which].count,
                                        .pieces = &piece,
                                        .piece_count = 1,
                                        .timeout_ns = t->timeout_ns};
    mr_client_send(f->conn->client, &request, perf_flight_done, f);
}

/* True if the run is over by then. */
static bool is_after_end(struct perf_run *run, int64_t due_ns)
{
    return due_ns >= atomic_load_explicit(&run->end_ns, memory_order_relaxed);
}

/* True if one more measured request is wanted; counts it. */
static bool claim(struct perf_run *run, int64_t due_ns)
{
    return !is_after_end(run, due_ns) &&
           (run->load->requests == 0 ||
            atomic_fetch_add_explicit(&run->issued, 1, memory_order_relaxed) < run->load->requests);
}

static void closed_next(struct perf_worker *w, struct perf_flight *f)
{
    int64_t now = mr_now_ns();
    bool is_measured = now >= w->run->begin_ns;

    if (is_after_end(w->run, now) || (is_measured && !claim(w->run, now))) {
        w->has_ended = true;
        f->is_active = false;
        return;
    }
    send_flight(w, f, now, is_measured);
}

static struct perf_flight *find_place(struct perf_worker *w)
{
    struct perf_flight *f = take_idle(w);

    if (!f && w->conns.len < w->max_connections && perf_worker_connect(w, NULL) == MR_OK) {
        w->grown++;
        f = take_idle(w);
    }
    return f;
}

static void on_timer(struct mr_timer *t)
{
    perf_flights_pump(MR_CONTAINER_OF(t, struct perf_worker, timer));
}

/* Sends the due slot: false if it has to wait for a connection, or was the last. */
static bool send_slot(struct perf_worker *w, int64_t now)
{
    struct perf_window *win = w->window;
    bool is_measured = w->slot_ns >= w->run->begin_ns;
    struct perf_flight *f = find_place(w);

    if (!f) {
        win->waited += is_measured && !w->is_blocked;
        w->is_blocked = true;
        return false;
    }
    if (is_measured && !claim(w->run, w->slot_ns)) {
        perf_flight_idle(w, f);
        w->has_ended = true;
        return false;
    }
    if (w->is_blocked) {
        w->freed_ns = now;
    }
    /* Waiting for busy connections does not count as the client's delay. */
    f->is_late = now - MR_MAX(w->slot_ns, w->freed_ns) > LATE_NS;
    win->late += is_measured && f->is_late;
    send_flight(w, f, w->slot_ns, is_measured);
    w->is_blocked = false;
    w->has_slot = false;
    return true;
}

void perf_flights_pump(struct perf_worker *w)
{
    int64_t now = mr_now_ns();

    for (int i = 0; !w->has_ended; i++) {
        if (!w->has_slot) {
            w->slot_ns = perf_schedule_next(&w->schedule);
            w->has_slot = true;
        }
        if (is_after_end(w->run, w->slot_ns)) {
            w->has_ended = true;
        } else if (w->slot_ns > now && w->slot_ns > (now = mr_now_ns())) {
            /* The timer counts from the loop's own time, which may be slightly old. */
            mr_timer_start(w->loop, &w->timer, w->slot_ns - mr_loop_now_ns(w->loop), 0, on_timer);
            return;
        } else if (i == BURST) {
            mr_timer_start(w->loop, &w->timer, 0, 0, on_timer);
            return;
        } else if (!send_slot(w, mr_now_ns())) {
            break;
        }
    }
    if (w->has_ended && w->in_flight == 0) {
        perf_worker_finished(w);
    }
}

void perf_flights_start(struct perf_worker *w)
{
    struct perf_flight *f;

    if (w->run->load->concurrency == 0) {
        perf_flights_pump(w);
        return;
    }
    while ((f = take_idle(w))) {
        closed_next(w, f);
    }
    if (w->in_flight == 0) {
        perf_worker_finished(w);
    }
}

/* ---- the end ---- */

static void give_up(struct perf_worker *w, const struct perf_flight *f, int64_t now,
                    const char *why)
{
    perf_errors_add(&w->errors, MR_E_CANCELLED, 0, mr_str_c(why), 1);
    w->window->failed++;
    w->window->gave_up++;
    mr_hdr_add(&w->window->latency, (uint64_t)MR_MAX(now - f->due_ns, INT64_C(0)));
    keep_sample(w, f, now, true, true);
}

void perf_flights_give_up(struct perf_worker *w)
{
    int64_t now = mr_now_ns();

    w->is_over = true;
    for (size_t i = 0; i < w->flights.len; i++) {
        const struct perf_flight *f = w->flights.at[i];
        if (f->is_active && f->is_measured) {
            give_up(w, f, now, "not answered when the run was over");
        }
    }
    while (w->run->load->concurrency == 0 && !w->has_ended && w->has_started) {
        if (!w->has_slot) {
            w->slot_ns = perf_schedule_next(&w->schedule);
        }
        w->has_slot = false;
        w->has_ended = w->slot_ns > now || !claim(w->run, w->slot_ns);
        if (!w->has_ended && w->slot_ns >= w->run->begin_ns) {
            const struct perf_flight unsent = {.due_ns = w->slot_ns};
            w->window->sent++;
            give_up(w, &unsent, now, "not sent when the run was over: all connections were busy");
        }
    }
}
