/* A sending thread of a load run. Private.
 *
 *   run.c     the run: threads, phases, seconds, the sum of it all
 *   worker.c  a thread: its loop, connections and mails
 *   flight.c  requests: sending, and their results
 *   stream.c  requests on gRPC streams */
#ifndef MR_PERF_WORKER_H
#define MR_PERF_WORKER_H

#include <pthread.h>

#include "errors.h"
#include "schedule.h"

/** The counts of a thread between two collections. */
struct perf_window {
    struct mr_hdr_histogram latency;
    uint64_t late;
    uint64_t waited;
    uint64_t sent;
    uint64_t answered;
    uint64_t failed;
    uint64_t gave_up;
    /* answers that arrived during the measurement, whenever they were requested */
    uint64_t completed;
    MR_VEC(struct mr_perf_sample) samples; /* if kept */
};

/** Shared by the threads of a run. */
struct perf_run {
    const struct mr_perf_target *target;
    const struct mr_perf_load *load;
    struct mr_tls_client *tls;
    int64_t start_ns; /* of the warm-up */
    int64_t begin_ns; /* of the measurement */
    _Atomic int64_t end_ns;
    _Atomic uint64_t issued; /* measured requests, when their number is given */
    pthread_mutex_t lock;    /* of the following */
    pthread_cond_t changed;
    uint32_t connected; /* threads whose connections are open, or failed */
    uint32_t swapped;
    uint32_t finished;
    int rc;
    struct mr_err err; /* first of a connection */
};

struct perf_worker;

struct perf_conn {
    struct perf_worker *w;
    struct mr_client *client;
    struct mr_client_stream *stream; /* NULL: none, or not open */
    uint64_t stream_number;          /* how many there were */
};

/** A place for one pending request on a connection. */
struct perf_flight {
    struct perf_flight *next; /* idle ones */
    struct perf_conn *conn;
    int64_t due_ns;
    size_t body;
    bool is_active;
    bool is_measured;
    bool is_late;
    char why[160]; /* the error of a wrong answer */
    /* on a stream */
    size_t index;  /* in the worker's list */
    uint64_t turn; /* requests that it has ended */
    uint64_t stream_number;
    struct mr_timer timer;
};

/** Headers of a body. */
struct perf_head {
    struct mr_header headers[2];
    size_t count;
    char length[24];
};

struct perf_worker {
    struct perf_run *run;
    uint32_t index;
    uint32_t concurrency; /* this thread's share */
    uint32_t connections;
    uint32_t max_connections;
    pthread_t thread;
    struct mr_loop *loop;
    struct mr_mail start_mail;
    struct mr_mail swap_mail;
    struct mr_mail nudge_mail;
    struct mr_mail stop_mail;
    MR_VEC(struct perf_conn *) conns;
    MR_VEC(struct perf_flight *) flights;
    struct perf_flight *idle_first;
    struct perf_flight *idle_last;
    struct perf_head *heads; /* one per body */
    size_t next_body;
    size_t greeted;  /* connections that have sent hello */
    size_t greeting; /* of these: without an answer yet */
    struct perf_schedule schedule;
    struct mr_timer timer;
    int64_t slot_ns;
    bool has_slot;
    bool is_blocked;  /* the slot is due and every connection busy */
    int64_t freed_ns; /* when that last ended */
    bool has_started; /* has started to send */
    bool has_ended;   /* sends no more */
    bool is_over;     /* requests that end now are ignored */
    uint64_t in_flight;
    struct perf_window *window; /* being filled */
    struct perf_window *spare;  /* handed over */
    int64_t cpu_ns;             /* at the start; after the end, of the whole run */
    int64_t cpu_wait_ns;
    int64_t ran_ns;
    int64_t last_done_ns;
    uint64_t warmup_sent;
    uint64_t warmup_failed;
    uint32_t grown;
    struct mr_perf_errors errors;
};

/* ---- worker.c ---- */

/** Makes the loop; perf_worker_main runs it. */
int perf_worker_init(struct perf_worker *w, struct perf_run *run, uint32_t index,
                     struct mr_err *err);
void *perf_worker_main(void *arg);
void perf_worker_fini(struct perf_worker *w);
/** Opens one more connection, with its flights. Errors: MR_E_INVALID (address). */
int perf_worker_connect(struct perf_worker *w, struct mr_err *err);
/** Reports to the run, once, that everything was sent and answered, or is about to be given up. */
void perf_worker_finished(struct perf_worker *w);

/* ---- flight.c ---- */

void perf_flights_start(struct perf_worker *w);
/** Open loop: sends the requests that are due. */
void perf_flights_pump(struct perf_worker *w);
/** The run is over: pending and due requests count as given up. */
void perf_flights_give_up(struct perf_worker *w);
/** An mr_client_done_fn: the request of flight `ctx` has ended. */
void perf_flight_done(void *ctx, int rc, const struct mr_err *err,
                      const struct mr_client_response *response);
/** Checks the answer. If it is wrong, sets f->why, and the request counts as failed when it ends. */
void perf_flight_check(struct perf_flight *f, const struct mr_client_response *response);

/* ---- stream.c ---- */

/** Sends a request of a flight on its connection's stream; perf_flight_done comes later. Takes the piece's reference. */
void perf_stream_send(struct perf_flight *f, const struct mr_piece *body);

void perf_flight_idle(struct perf_worker *w, struct perf_flight *f);

#endif
