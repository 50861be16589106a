/* Load on a server, and what it answers to it: requests that were made beforehand are sent in a closed or
 * an open loop, and their latency is measured.
 *
 * Closed loop: so many requests are on their way at any time. Open loop: each request has a slot, a moment
 * that does not depend on any answer, and its latency counts from there, whatever kept it from being sent
 * in time. No slot is left out.
 *
 * Nothing is repeated and nothing is dropped: an answer is counted as answered or as an error, a request
 * that was given up counts in the latencies with the time it had waited. Thread: one run at a time. */
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

/** Is this answer to body number `body` right? If not, *why says what is wrong with it, and it counts as a
 *  failure. Thread: any of the sending ones. */
typedef bool(mr_perf_check_fn)(void *ctx, size_t body, const struct mr_client_response *response,
                               char why[160]);

/** Whom to ask, and what. Borrowed for the run. */
struct mr_perf_target {
    const char *address; /* as mr_client_new takes it */
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
    mr_perf_check_fn *check; /* may be NULL: whatever is no error is right */
    void *check_ctx;
};

struct mr_perf_load {
    uint32_t concurrency; /* closed loop; 0: open loop */
    double rate;          /* open loop: slots per second, > 0 */
    double rate_to;       /* open loop: the rate goes there evenly while it measures; 0: it stays */
    bool poisson;         /* open loop: exponential gaps instead of equal ones */
    uint64_t seed;
    int64_t warmup_ns;        /* the same load before, not measured */
    int64_t duration_ns;      /* > 0; not looked at when requests > 0 */
    uint64_t requests;        /* measure exactly so many; 0: for the duration */
    uint32_t threads;         /* >= 1 */
    uint32_t connections;     /* at the start, >= 1 */
    uint32_t max_connections; /* open loop: more are made while all are busy */
    uint32_t streams;         /* requests at a time on one connection; 1 without HTTP/2 */
    bool keeps_samples;       /* every measured request is in the result's `samples` */
};

/** A measured request. */
struct mr_perf_sample {
    int64_t due_ns;        /* mr_now_ns() when it was to be sent */
    uint64_t took_ns : 56; /* from then to its answer, or to when it was given up */
    uint64_t is_failed : 1;
    uint64_t is_latency : 1; /* counts in the latencies: answered or given up */
    uint64_t is_late : 1;    /* sent too late by the client's fault */
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
    struct mr_perf_error kinds[MR_PERF_ERRORS_MAX]; /* the last one takes whatever has no room */
    size_t count;
};

/** About one second of a run; what ended in it. */
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

/** A stretch of a run: one second, or in long runs several. */
struct mr_perf_part {
    uint64_t total;
    uint32_t count[MR_HIST_BUCKETS]; /* as of base/hist.h */
};

struct mr_perf_result {
    struct mr_hdr_histogram latency; /* ns: what was answered or given up */
    uint64_t sent;                   /* measured requests */
    uint64_t answered;
    uint64_t failed;
    uint64_t gave_up;     /* of these: no answer in time, or not even sent when the run was over */
    uint64_t warmup_sent; /* before the measurement */
    uint64_t warmup_failed;
    double seconds; /* length of the measurement */
    double rate;    /* answers per second in it */
    uint64_t late;  /* open loop: sent more than a millisecond after their slots by the client's own
                              * fault, with a connection at hand */
    uint64_t waited;      /* requests that found every connection busy and no more allowed */
    uint32_t connections; /* at the start */
    uint32_t grown;       /* made later, because all were busy */
    double cpu;           /* share of a CPU of the busiest sending thread */
    double cpu_wait;      /* share of time that it was ready to run and had no CPU */
    struct mr_perf_errors errors;
    MR_VEC(struct mr_perf_second) windows;
    struct mr_perf_part *parts; /* up to MR_PERF_PARTS; the last may be incomplete */
    size_t part_count;
    size_t part_seconds;                   /* in each; doubled when there is no room */
    size_t part_filled;                    /* in the last */
    MR_VEC(struct mr_perf_sample) samples; /* up to MR_PERF_SAMPLES_MAX, in no order */
    uint64_t samples_lost;                 /* beyond that */
};

/** Called about once a second, on the calling thread, while the measurement runs. */
typedef void(mr_perf_progress_fn)(void *ctx, const struct mr_perf_second *second);

struct mr_perf_hooks {
    mr_perf_progress_fn *progress; /* may be NULL */
    void *ctx;
    const atomic_bool
        *stop; /* may be NULL; once true the run ends early and is reported as it is */
};

/** Runs the load. *out is zeroed memory, large; release with mr_perf_result_fini.
 *  Errors: no connection can be made (MR_E_UNAVAILABLE), MR_E_INVALID (address), and those of TLS. That
 *  requests fail is a result, no error. */
int mr_perf_run(const struct mr_perf_target *target, const struct mr_perf_load *load,
                const struct mr_perf_hooks *hooks, struct mr_perf_result *out, struct mr_err *err);
void mr_perf_result_fini(struct mr_perf_result *r);

/** Where a percentile may lie, with 95 % confidence. */
struct mr_perf_interval {
    uint64_t low_ns;  /* 0: the samples do not say */
    uint64_t high_ns; /* UINT64_MAX: the samples do not say */
    bool
        is_rough; /* fewer than five seconds: taken as if requests were independent of each other */
};
/** By ranks, so that no shape of the distribution is assumed. Requests that are near each other in time fare
 *  alike, which makes them worth less than as many independent ones: how much less is taken from how much the
 *  seconds differ. */
void mr_perf_get_interval(const struct mr_perf_result *r, double q, struct mr_perf_interval *out);

/** "HTTP 503", "UNAVAILABLE", "wrong answer". */
void mr_perf_error_name(const struct mr_perf_error *e, char out[32]);

/** More than this share of a CPU, and the figures may be the client's own. */
#define MR_PERF_BUSY 0.85
/** Why the figures may not be the server's, as a sentence; NULL when nothing is suspicious. */
const char *mr_perf_doubt(const struct mr_perf_result *r, const struct mr_perf_load *load,
                          char *out, size_t size);

#endif
