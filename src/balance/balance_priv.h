/* What the files of this module share, and every constant of the policy. */
#ifndef MR_BALANCE_PRIV_H
#define MR_BALANCE_PRIV_H

#include "balance/balance.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/vec.h"

/* Limit. */
#define LIMIT_START      2.0
#define LIMIT_MAX        256
#define WINDOW_MIN       8    /* answers; or the limit, if that is more */
#define START_WINDOW_MIN 3    /* in slow start; or the limit */
#define START_DOUBT      16   /* answers before slow start believes that calls wait */
#define QUEUE_GROW       0.10 /* share of the limit that waits at the host: below it grows */
#define QUEUE_SHRINK     0.30
#define QUEUE_HALVE      0.60
#define BASE_DECAY       1.002 /* per window */
#define BASE_SMOOTHING   0.25  /* of window medians, before they may lower the base */
#define BASE_PROBE_EVERY                                                                           \
    64 /* windows; then one with a lower limit shows what an empty host takes */
#define BASE_PROBE_SHARE  0.6
#define BASE_PROBE_WEIGHT 0.5
#define BASE_PROBE_MIN    16 /* answers in it */
#define SAMPLES           128
#define BUCKETS           16 /* powers of two of rows */

/* Failures. */
#define HOLD_DOUBLINGS      6
#define HOLD_DOUBLINGS_GOOD 2 /* while most answers are good: a row of failures may be chance */
#define RATE_GOOD           0.5
#define HOLD_MAX_NS         (30 * MR_NS_PER_S)
#define HOLD_ALONE_NS       (10 * MR_NS_PER_S) /* at most, while no host is ready */
#define SUSPECT_ROUNDS      3
#define EJECT_ROUNDS        10
#define EJECT_REFUSED       10
#define EJECT_RATE          0.2
#define RATE_WEIGHT         0.02 /* of an answer; more while there are few */
#define RATE_PRIOR          6    /* answers that a new host is given in advance */
#define RATE_READMITTED     0.5
#define RATE_RECOVERED      0.9 /* ejections do not count any more */
#define EJECT_NS            (30 * MR_NS_PER_S)
#define EJECT_MAX_NS        (300 * MR_NS_PER_S)
#define STALL_MIN_NS        (MR_NS_PER_S / 2)
#define STALL_MAX_NS        (10 * MR_NS_PER_S)
#define JITTER              0.2

/* Throttling. */
#define THROTTLE_CUT    0.7
#define THROTTLE_MIN_NS (100 * MR_NS_PER_MS)
#define THROTTLE_MAX_NS (30 * MR_NS_PER_S) /* where the host asked for nothing */
#define RETRY_AFTER_MAX (300 * MR_NS_PER_S)
#define THROTTLE_SHARE  8 /* wait an eighth of the time that it has been going on */
#define CEILING_SHARE   0.9
#define CEILING_NS      (30 * MR_NS_PER_S)

/* Budgets. */
#define RETRY_SHARE    0.2
#define RETRY_PER_S    10.0
#define RETRY_KEEP_S   10.0
#define BACKOFF_NS     (100 * MR_NS_PER_MS)
#define BACKOFF_MAX_NS (30 * MR_NS_PER_S)
#define HEDGE_SHARE    0.05
#define HEDGE_KEEP     256.0
#define HEDGE_WORTH    2.0 /* what remains of the original, in expected times of the copy */

/* Time-outs. */
#define TIMEOUT_FACTOR   10.0
#define TIMEOUT_MIN_NS   (5 * MR_NS_PER_S)
#define TIMEOUT_MAX_NS   (3600 * MR_NS_PER_S)
#define TIMEOUT_FIRST_NS (60 * MR_NS_PER_S) /* while nothing is known about any host */
#define PATIENCE_MAX     64
#define PATIENCE_TRIAL   4 /* of a half-open host: an outage must not last longer than it does */

/* Choice. */
#define SCAN_ALL       64
#define SCAN_SOME      8
#define SCAN_TWO       2
#define PEAK_TAU_NS    (2.0 * (double)MR_NS_PER_S)
#define PEAK_FLOOR     0.5 /* times a typical host: an idle slow host does not look free */
#define LATENCY_WEIGHT (1.0 / 16)

struct balance_sample {
    float raw_ns;
    float row_ns;
    uint8_t bucket;
    uint8_t window; /* number of the window that it counts in; 0: none */
};

struct balance_host {
    uint32_t id;
    enum mr_balance_state state;
    int64_t since_ns;
    char reason[96];
    uint32_t in_flight; /* without held ones */
    uint32_t held;
    uint64_t weight; /* of calls in flight */
    double share;
    uint64_t identity;
    double turn; /* strategies in turn: the least has the next call */
    uint64_t ok, failed, throttled;

    /* limit.c */
    double limit;
    bool is_slow_start;
    bool is_base_probe;
    bool was_full;     /* in this window */
    uint8_t window;    /* 1..255 */
    uint32_t grown;    /* windows in a row that let it grow */
    uint32_t windows;  /* since the last probe of the base */
    uint32_t window_n; /* answers in this window */
    int64_t window_from_ns;
    double ceiling;
    int64_t ceiling_until_ns;
    uint32_t sample_n, sample_at;
    struct balance_sample samples[SAMPLES];
    double base_ns[BUCKETS];   /* per row, of a host that we do not make wait; 0 = not known */
    double smooth_ns[BUCKETS]; /* window medians, smoothed */

    /* latency, for choice, holds and time-outs */
    double row_ns[BUCKETS]; /* per row, smoothed; 0 = not known */
    double pace;            /* latency in terms of all hosts' at that size, smoothed */
    double peak;            /* the same, rising at once */
    int64_t peak_ns;        /* when */
    uint32_t patience;      /* factor of time-outs */

    /* health */
    double rate;
    uint32_t rated;   /* answers in it */
    uint32_t rounds;  /* of failures, no success since */
    int64_t round_ns; /* calls that began before do not make a new one */
    uint32_t refused; /* in a row */
    uint32_t ejections;
    int64_t ejected_until_ns;
    uint32_t trials;           /* half-open: calls out, 0 or 1 */
    int64_t throttled_from_ns; /* 0 = no */
    int64_t cut_ns;            /* calls that began before do not cut the limit again */
    int64_t paused_until_ns;
};

enum call_state { CALL_FREE, CALL_FLYING, CALL_HELD };

struct balance_flight {
    struct balance_host *host;
    int64_t start_ns;
    int64_t rows;
    uint64_t weight;
    uint32_t generation;
    uint32_t next_free;
    uint8_t state;
    bool is_trial;
    bool is_hedged; /* has a copy or is one */
    bool is_heard;  /* mr_balance_answers */
};

struct balance_hold {
    int64_t until_ns;
    uint32_t index;
};

struct mr_balance {
    int64_t now_ns;
    struct mr_rng rng;
    uint32_t max_limit;
    int64_t min_timeout_ns, max_timeout_ns;
    uint64_t max_weight;
    bool is_limit_fixed;
    enum mr_balance_strategy strategy;
    double turn; /* of the latest call */

    MR_VEC(struct balance_host *) slots; /* NULL = free */
    uint32_t host_count;
    uint32_t serial;
    uint32_t state_count[MR_BALANCE_STATE_DRAINING + 1];

    MR_VEC(struct balance_flight) flights;
    uint32_t free_flight;              /* index + 1 */
    MR_VEC(struct balance_hold) holds; /* binary heap, earliest first */

    double row_ns[BUCKETS]; /* of all hosts, smoothed */

    int64_t last_ok_ns;
    bool is_stalled; /* no host is ready or suspect */
    int64_t stall_try_ns;
    int64_t stall_step_ns;

    double retry_share, retry_floor; /* tokens */
    int64_t retry_ns;
    double hedge_tokens;
};

/* balance.c */
void balance_tick(struct mr_balance *r, int64_t now_ns); /* time goes on: holds that ended */
struct balance_host *balance_host_find(const struct mr_balance *r, uint32_t id);

/* host.c: states */
void host_set(struct mr_balance *r, struct balance_host *h, enum mr_balance_state s,
              const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/** Ejected hosts whose time has come become half-open. */
void host_refresh(struct mr_balance *r, struct balance_host *h);
void host_eject(struct mr_balance *r, struct balance_host *h, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void host_drop_if_done(struct mr_balance *r, struct balance_host *h);
int64_t host_jittered(struct mr_balance *r, int64_t ns, double low, double high);

/* limit.c */
void limit_restart(struct mr_balance *r, struct balance_host *h, double limit);
void limit_answer(struct mr_balance *r, struct balance_host *h, const struct balance_flight *f);
void limit_throttled(struct mr_balance *r, struct balance_host *h);
void limit_forgive(struct mr_balance *r, struct balance_host *h);
uint32_t limit_usable(const struct balance_host *h);
/** Median of the first n values, which are put in another order. n > 0. */
float limit_median(float *v, uint32_t n);

/* strategy.c */
/** What the strategy compares: the least gets the call. */
double strategy_cost(struct mr_balance *r, const struct mr_balance_ask *ask,
                     const struct balance_host *h);
/** The host gets a call. */
void strategy_taken(struct mr_balance *r, struct balance_host *h);

/* pick.c */
/** Latency, rising at once and falling slowly, times the calls that the host has and one more. */
double pick_expected(const struct mr_balance *r, const struct balance_host *h);
/** A host with room that need not be avoided; NULL: none now. */
struct balance_host *pick_other(struct mr_balance *r, const struct mr_balance_ask *ask);
unsigned pick_rows_bucket(int64_t rows);
bool pick_host_has_room(const struct mr_balance *r, const struct balance_host *h, uint64_t weight);
void pick_take(struct mr_balance *r, struct balance_host *h, int64_t rows, uint64_t weight,
               struct mr_balance_call *out_call);

/* budget.c: time-outs, latency figures, retries */
double budget_expected_ns(const struct mr_balance *r, const struct balance_host *h, int64_t rows);
/** The host's peak, as much of it as is left by now. */
double budget_peak_now(const struct mr_balance *r, const struct balance_host *h);
int64_t budget_timeout_ns(const struct mr_balance *r, const struct balance_host *h, int64_t rows);
void budget_latency_add(struct mr_balance *r, struct balance_host *h, int64_t rows, int64_t ns);
void budget_latency_at_least(struct mr_balance *r, struct balance_host *h, int64_t rows,
                             int64_t ns);
void budget_earn(struct mr_balance *r);

/* calls.c: calls in flight and held slots */
uint32_t call_flight_new(struct mr_balance *r);
struct balance_flight *call_flight_find(struct mr_balance *r, uint64_t ticket);
uint64_t call_flight_ticket(const struct mr_balance *r, uint32_t index);
void call_flight_free(struct mr_balance *r, uint32_t index);
void call_hold_add(struct mr_balance *r, uint32_t index, int64_t until_ns);
void call_holds_expire(struct mr_balance *r);
/** Of one host; all of its holds end now. */
void call_holds_drop(struct mr_balance *r, struct balance_host *h);

#endif
