/* Choosing a host for a call, among several that should answer alike. Policy only: no socket, thread or clock
 * is touched. The caller says what time it is and what became of its calls; equal events and an equal seed
 * give equal decisions.
 *
 *   pick    a host with room, or none now; a pull worker picks for as long as it has work and gets a host,
 *           a client picks once per request and gets the host where it should be answered first
 *   done    what became of the call: it moves the host's limit, health and latency figures
 *   wake    when to ask again if nothing happens until then
 *
 * Rules, with their constants in balance_priv.h:
 *
 *   limit     calls at a time per host, governed by the latency of successes and nothing else (limit.c)
 *   hold      a failed call keeps its slot for as long as an answer takes, so that failing fast does not attract
 *             work; doubled with each further round of failures, twice at most while most answers are good. So does
 *             one that was rejected by a host without a good answer, ever or since its last failure
 *   suspect   three rounds of failures without a success: one call at a time
 *   ejected   success rate below 20 %, 10 refused connections in a row or 10 rounds of failures: no call for
 *             30 s times the number of ejections, then half-open
 *   half-open one call; its success makes the host ready with limit 1, its failure ejects it again
 *   stalled   no host is ready: one call to one of them after 0.5 s, then 1 s ... 10 s, until one succeeds
 *   throttled 429 and 503: no call for Retry-After, then one at a time until one succeeds; no failure.
 *             The limit is cut, unless a call that is alone is refused as well
 *
 * Thread: one at a time; nothing in here locks. Memory: about 2.3 KiB per host and 64 bytes per call in flight,
 * of which a host has at most max_limit. Times: monotonic ns; a time that runs backwards counts as standing. */
#ifndef MR_BALANCE_BALANCE_H
#define MR_BALANCE_BALANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

struct mr_balance;

#define MR_BALANCE_HOSTS_MAX 65535

/** Which of the hosts that have room gets a call. Half-open hosts come first in all of them but HASH. */
enum mr_balance_strategy {
    MR_BALANCE_PEAK_EWMA,       /* the least expected time; the default */
    MR_BALANCE_P2C,             /* of two at random the one of the least expected time */
    MR_BALANCE_LEAST_REQUEST,   /* the fewest calls in flight, by share */
    MR_BALANCE_ROUND_ROBIN,     /* in turn */
    MR_BALANCE_WEIGHTED_ROBIN,  /* in turn, as often as the share says */
    MR_BALANCE_RANDOM,          /* */
    MR_BALANCE_WEIGHTED_RANDOM, /* by share */
    MR_BALANCE_HASH, /* by the call's key: a host that comes or goes moves only the keys that are its own */
    MR_BALANCE_STRATEGIES
};
/** "peak_ewma", "p2c", "least_request", "round_robin", "weighted_round_robin", "random", "weighted_random", "hash", and brpc's
 *  names: rr, wrr, wr, la, c_murmurhash, c_md5. False: there is none of that name. */
bool mr_balance_strategy_parse(mr_str name, enum mr_balance_strategy *out);

struct mr_balance_options {
    uint32_t max_limit;  /* calls at a time per host; 0 = 256 */
    bool is_limit_fixed; /* the limit is max_limit, whatever latencies are */
    enum mr_balance_strategy strategy;
    int64_t min_timeout_ns; /* of a call; 0 = 5 s */
    int64_t max_timeout_ns; /* 0 = 1 h */
    uint64_t max_weight;    /* of a host's calls together, a single one aside; 0 = any */
    uint64_t seed;          /* of jitter and of choice between equals */
};

/** Never fails. */
struct mr_balance *mr_balance_new(const struct mr_balance_options *o, int64_t now_ns);
/** NULL is allowed. */
void mr_balance_free(struct mr_balance **r);
/** Takes effect for calls that follow. 1 ... 65535, clipped. */
void mr_balance_set_max_limit(struct mr_balance *r, uint32_t max_limit);

/* ---- hosts ---- */

/** A new host, ready, limit 2. Its id is not 0 and not that of a host before; 0 when there are too many. */
uint32_t mr_balance_add(struct mr_balance *r, int64_t now_ns);
/** What strategies by share and HASH go by; 1 and the host's id at first. share > 0. identity: equal in all processes that
 *  are to agree, such as mr_balance_hash of the address. */
void mr_balance_set_share(struct mr_balance *r, uint32_t host, double share, uint64_t identity);
/** A hash that is the same in each process and release: FNV-1a with a final mix. */
uint64_t mr_balance_hash(mr_str s);
/** No new call; the host is gone as soon as its last call is done. An unknown id is ignored, here and below. */
void mr_balance_remove(struct mr_balance *r, int64_t now_ns, uint32_t host);
/** No new call until mr_balance_uncordon: the caller found that the host must not be used, for instance because it
 *  has another version of the model. The reason is cut at 95 bytes. */
void mr_balance_cordon(struct mr_balance *r, int64_t now_ns, uint32_t host, mr_str reason);
/** The host begins again, half-open. */
void mr_balance_uncordon(struct mr_balance *r, int64_t now_ns, uint32_t host);

/* ---- calls ---- */

struct mr_balance_ask {
    int64_t rows;          /* >= 1; what latency is divided by */
    const uint32_t *avoid; /* hosts that this work has failed on, or that have it already */
    uint32_t avoid_count;
    const uint32_t *never; /* hosts that cannot take this work, whatever becomes of the others */
    uint32_t never_count;
    bool is_retry; /* mr_balance_may_retry said yes; earns no budget */
    /* if no other host has room, one that has asked to be left alone gets the call all the same */
    bool takes_throttled;
    /** The call's part of a host's max_weight, such as tokens, which does not follow from the rows. */
    uint64_t weight;
    /** HASH, or is_sticky: mr_balance_hash of the key; 0: none, the call goes anywhere. */
    uint64_t key;
    bool is_sticky; /* the key decides as with HASH, whatever the strategy is */
};

struct mr_balance_call {
    uint64_t ticket; /* not 0; for mr_balance_done, exactly once */
    uint32_t host;
    uint32_t index;     /* small number, no other call in flight has it */
    int64_t timeout_ns; /* then the caller gives up and says MR_BALANCE_TIMED_OUT */
};

/** The host that the strategy chooses among those with room. PEAK_EWMA: the least expected time (latency times calls in
 *  flight); all are compared up to 64 hosts, above that 8 drawn at random, and all when these have no room. A host to avoid
 *  is taken only when no other could take the work even later: all others are out.
 *  False: none now; ask again after a mr_balance_done or at mr_balance_next_wake. Other work, with less to avoid,
 *  may still get a host. */
bool mr_balance_pick(struct mr_balance *r, int64_t now_ns, const struct mr_balance_ask *ask,
                     struct mr_balance_call *out_call);

/** A call of one row to this host and no other, to learn about it, also when it has as many calls as its limit allows; never
 *  more than max_limit. It earns no budget. False: not now; the host is throttled, or neither ready nor suspect. */
bool mr_balance_pick_host(struct mr_balance *r, int64_t now_ns, uint32_t host,
                          struct mr_balance_call *out_call);

enum mr_balance_outcome {
    MR_BALANCE_OK,
    MR_BALANCE_THROTTLED, /* 429, 503, RESOURCE_EXHAUSTED: not a failure */
    MR_BALANCE_REFUSED,   /* no connection */
    MR_BALANCE_TIMED_OUT, /* a failure; the host is given longer the next time */
    MR_BALANCE_FAILED,    /* reset, 5xx, a malformed or wrong answer */
    MR_BALANCE_REJECTED,  /* 4xx: the request's fault, counts neither way */
    MR_BALANCE_CANCELLED, /* given up, e.g. as the other copy was first; counts neither way */
};

/** retry_after_ns: with THROTTLED what the host asked for, 0 = nothing. A ticket that is not in flight is
 *  ignored. */
void mr_balance_done(struct mr_balance *r, int64_t now_ns, uint64_t ticket,
                     enum mr_balance_outcome outcome, int64_t retry_after_ns);

/** The same for an answer that is OK and reports the size of its call: latency is divided by `rows` instead. */
void mr_balance_done_sized(struct mr_balance *r, int64_t now_ns, uint64_t ticket, int64_t rows);

/** The call, which goes on or will end as REJECTED, has had a good answer: its host works, whatever was known of it. Says nothing of
 *  how long calls take. False: it is not the first of the call, or the ticket is not in flight; nothing has changed. */
bool mr_balance_answers(struct mr_balance *r, int64_t now_ns, uint64_t ticket);

/** What a host REJECTED was the host's fault, not that of the request: another host has answered it. A failure, and a
 *  round of its own; the reason is cut at 95 bytes. */
void mr_balance_refuted(struct mr_balance *r, int64_t now_ns, uint32_t host, mr_str reason);

/** May one more call be made for work that failed? True takes it from the budget, which is 20 % of the first
 *  attempts and 10 per second, kept for 10 s. False: *out_again_ns (may be NULL) is when to ask again. Work
 *  that was throttled needs no leave. */
bool mr_balance_may_retry(struct mr_balance *r, int64_t now_ns, int64_t *out_again_ns);
/** How long work that has failed `tries` times on the only host waits: at random between 0 and
 *  100 ms * 2^(tries - 1), at most 30 s. On another host it need not wait. */
int64_t mr_balance_backoff_ns(struct mr_balance *r, uint32_t tries);

/** For a caller that has nothing left to start: a second copy of a call in flight that will probably end later
 *  than the copy, on another host. True: send the work of *out_original again as *out_call, take the first
 *  good answer, end the other one as CANCELLED. At most 5 % of the first attempts (and one), each call once.
 *  False: *out_again_ns is when it may be worth it, if nothing happens until then. */
bool mr_balance_hedge(struct mr_balance *r, int64_t now_ns, uint64_t *out_original,
                      struct mr_balance_call *out_call, int64_t *out_again_ns);

/** The same for one call that has taken longer than the caller waits. ask->avoid has the original's host as well. False: the budget is spent, the call has a copy, or no other host has room. */
bool mr_balance_hedge_call(struct mr_balance *r, int64_t now_ns, uint64_t original,
                           const struct mr_balance_ask *ask, struct mr_balance_call *out_call);

/** The next time after the latest now_ns at which something changes by itself: a slot or a host comes free.
 *  INT64_MAX: never. */
int64_t mr_balance_next_wake(const struct mr_balance *r);

/* ---- display ---- */

enum mr_balance_state {
    MR_BALANCE_STATE_READY,
    MR_BALANCE_STATE_SUSPECT,
    MR_BALANCE_STATE_EJECTED,
    MR_BALANCE_STATE_HALF_OPEN,
    MR_BALANCE_STATE_CORDONED,
    MR_BALANCE_STATE_DRAINING,
};
/** "ready", "suspect", ...; any value is safe. */
const char *mr_balance_state_name(enum mr_balance_state s);

struct mr_balance_view {
    uint32_t host;
    enum mr_balance_state state;
    int64_t since_ns; /* in this state */
    char reason[96];  /* why; "" when ready and never anything else */
    uint32_t limit;   /* calls allowed now */
    uint32_t in_flight;
    uint32_t held;                  /* slots that failures keep */
    uint64_t ok, failed, throttled; /* answers since the host was added */
    double success_rate;            /* smoothed, 1 at first */
    int64_t throttled_until_ns;     /* 0 = not throttled */
    int64_t p50_ns, p95_ns;         /* of the last 128 successes at most; 0 = none */
    int64_t row_p50_ns, row_p95_ns; /* divided by rows */
};

/** Fill up to `cap` views (out may be NULL when cap is 0); returns the number of hosts. */
uint32_t mr_balance_views(struct mr_balance *r, int64_t now_ns, struct mr_balance_view *out,
                          uint32_t cap);
/** One host is ready, at least. */
bool mr_balance_is_ready(const struct mr_balance *r);
/** The host is ready or suspect: it takes calls without being tried first. */
bool mr_balance_is_working(const struct mr_balance *r, uint32_t host);
/** No host works: each is ejected, half-open or throttled, or there is none. *out_since_ns (may be NULL) is the
 *  time of the last success, or that of mr_balance_new. */
bool mr_balance_is_stalled(const struct mr_balance *r, int64_t *out_since_ns);

#endif
