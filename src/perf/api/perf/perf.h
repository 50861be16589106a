/* A load generator: sends prepared requests to a server in a closed or an open loop, and measures their latency.
 *
 * Closed loop: a fixed number of requests is pending at any time. Open loop: each request has a slot, a time that
 * does not depend on any answer, and its latency counts from there, whatever delayed its sending. No slot is left
 * out.
 *
 * No request is repeated or dropped: each counts as answered or as an error; a request that was given up counts in
 * the latencies with the time it had waited. Thread: one run at a time. */
#ifndef MR_PERF_PERF_H
#define MR_PERF_PERF_H

#include <stdatomic.h>

#include "base/hdr_histogram.h"
#include "base/hist.h"
#include "base/str.h"
#include "base/vec.h"
#include "net/client.h"
#include "net/tls.h"

/** A request, ready to be sent. */
struct mr_perf_body {
    struct mr_block *block; /* NULL: empty */
    size_t len;
    int64_t header_length; /* REST with binary data: bytes of JSON; -1: all is JSON */
};

/** Returns true if the answer to body number `body` is correct. If not, *why has the error, and it counts as a
 *  failure. Thread: any sending thread. */
typedef bool(mr_perf_check_fn)(void *ctx, size_t body, const struct mr_client_response *response,
                               char why[160]);

/** The server and the requests. Borrowed for the run. */
struct mr_perf_target {
    const char *address; /* as for mr_client_new */
    bool grpc;
    bool streams; /* gRPC: path is a method with streams of ModelInferRequest, one per connection */
    bool http2;
    const struct mr_tls_client_options *tls; /* NULL: none */
    const char *const *headers; /* "Name: value", of each request; see mr_client_options */
    size_t header_count;
    const char *path;                  /* REST: POST to; gRPC: "/service/method" */
    const struct mr_perf_body *bodies; /* sent in turn */
    size_t body_count;
    int64_t timeout_ns;      /* per request, > 0 */
    mr_perf_check_fn *check; /* may be NULL: all answers without an error are correct */
    void *check_ctx;
};

struct mr_perf_load {
    uint32_t concurrency; /* closed loop; 0: open loop */
    double rate;          /* open loop: slots per second, > 0 */
    /* open loop: the rate changes linearly to this during the measurement; 0: constant */
    double rate_to;
    bool poisson; /* open loop: exponential gaps instead of equal ones */
    uint64_t seed;
    int64_t warmup_ns;        /* the same load before the measurement */
    int64_t duration_ns;      /* > 0; ignored if requests > 0 */
    uint64_t requests;        /* measure exactly this number; 0: for the duration */
    uint32_t threads;         /* >= 1 */
    uint32_t connections;     /* at the start, >= 1 */
    uint32_t max_connections; /* open loop: more are opened while all are busy */
    uint32_t streams;         /* concurrent requests on one connection; 1 without HTTP/2 */
    bool keeps_samples;       /* every measured request is in the result's `samples` */
};

/** A measured request. */
struct mr_perf_sample {
    int64_t due_ns;        /* mr_now_ns() when it was to be sent */
    uint64_t took_ns : 56; /* from due_ns until its answer, or until it was given up */
    uint64_t is_failed : 1;
    uint64_t is_latency : 1; /* counts in the latencies: answered or given up */
    uint64_t is_late : 1;    /* sent late because of the client */
};
#define MR_PERF_SAMPLES_MAX ((size_t)30000000)

#define MR_PERF_ERRORS_MAX 16
#define MR_PERF_WRONG      (-1)

/** Failures of one kind. */
struct mr_perf_error {
    int status; /* enum mr_status */
    int http;   /* HTTP status other than 200, MR_PERF_WRONG for a wrong answer, 0 otherwise */
    uint64_t count;
    char text[160]; /* of the first one, printable */
};

struct mr_perf_errors {
    struct mr_perf_error kinds[MR_PERF_ERRORS_MAX]; /* the last one collects all further kinds */
    size_t count;
};

/** About one second of a run: the requests that ended in it. */
struct mr_perf_second {
    double begin_s; /* since the measurement began */
    double length_s;
    uint64_t answered;
    uint64_t failed;
    double mean_ns;
    uint64_t p50_ns;
    uint64_t p99_ns;
    uint64_t max_ns;
};

#define MR_PERF_PARTS 128

/** A part of a run: one second, or in long runs several. */
struct mr_perf_part {
    uint64_t total;
    uint32_t count[MR_HIST_BUCKETS]; /* as of base/hist.h */
};

struct mr_perf_result {
    struct mr_hdr_histogram latency; /* ns, of requests answered or given up */
    uint64_t sent;                   /* measured requests */
    uint64_t answered;
    uint64_t failed;
    uint64_t gave_up;     /* of these: no answer in time, or not sent before the end of the run */
    uint64_t warmup_sent; /* before the measurement */
    uint64_t warmup_failed;
    double seconds; /* length of the measurement */
    double rate;    /* answers per second in it */
    /* open loop: sent more than a millisecond after their slots although a connection was free */
    uint64_t late;
    uint64_t waited;      /* requests that found every connection busy and no more allowed */
    uint32_t connections; /* at the start */
    uint32_t grown;       /* opened later, because all were busy */
    double cpu;           /* share of a CPU of the busiest sending thread */
    double cpu_wait;      /* share of time in which it was runnable without a CPU */
    struct mr_perf_errors errors;
    MR_VEC(struct mr_perf_second) windows;
    struct mr_perf_part *parts; /* up to MR_PERF_PARTS; the last may be incomplete */
    size_t part_count;
    size_t part_seconds;                   /* seconds in each; doubled when the table is full */
    size_t part_filled;                    /* in the last */
    MR_VEC(struct mr_perf_sample) samples; /* up to MR_PERF_SAMPLES_MAX, in no order */
    uint64_t samples_lost;                 /* beyond that */
};

/** Called about once a second, on the calling thread, while the measurement runs. */
typedef void(mr_perf_progress_fn)(void *ctx, const struct mr_perf_second *second);

struct mr_perf_hooks {
    mr_perf_progress_fn *progress; /* may be NULL */
    void *ctx;
    /* may be NULL; true ends the run early, with a report so far */
    const atomic_bool *stop;
};

/** Runs the load. *out is zeroed memory, large; release with mr_perf_result_fini.
 *  Errors: no connection can be made (MR_E_UNAVAILABLE), MR_E_INVALID (address), and those of TLS. Failed requests
 *  are a result, not an error. */
int mr_perf_run(const struct mr_perf_target *target, const struct mr_perf_load *load,
                const struct mr_perf_hooks *hooks, struct mr_perf_result *out, struct mr_err *err);
void mr_perf_result_fini(struct mr_perf_result *r);

/** The 95 % confidence interval of a percentile. */
struct mr_perf_interval {
    uint64_t low_ns;  /* 0: no bound from the samples */
    uint64_t high_ns; /* UINT64_MAX: no bound from the samples */
    /* fewer than five seconds: taken as if requests were independent of each other */
    bool is_rough;
};
/** Computed by ranks, so that no shape of the distribution is assumed. Requests near each other in time are
 *  correlated, and so count less than independent ones; the differences between seconds give the factor. */
void mr_perf_get_interval(const struct mr_perf_result *r, double q, struct mr_perf_interval *out);

/** "HTTP 503", "UNAVAILABLE", "wrong answer". */
void mr_perf_error_name(const struct mr_perf_error *e, char out[32]);

/** Above this share of a CPU the client may be the bottleneck. */
#define MR_PERF_BUSY 0.85
/** A sentence that says why the figures may be caused by the client; NULL if there is no reason. */
const char *mr_perf_doubt(const struct mr_perf_result *r, const struct mr_perf_load *load,
                          char *out, size_t size);

#endif
