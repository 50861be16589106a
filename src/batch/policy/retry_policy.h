/* The decision about rows whose call has ended: they are done, are sent again, are split, or become a dead letter. Pure: no
 * clock, no I/O, no log. The caller reports events, keeps the queue, and carries out decisions.
 *
 * A failure (5xx, timeout, wrong answer) counts against rows only while other calls do well: if one that was sent between
 * the failure before and this one succeeded. So an outage makes no dead letters, neither at its beginning nor at its end. As
 * those other calls may end later, failures that do not count yet are kept.
 *
 *   several rows    are split when two failures count, after four failures in any case, and at once where hosts hardly
 *                   ever fail
 *   a single row    is a dead letter when max_attempts failures count, one of a call with this row alone at least, on two
 *                   hosts if two work
 *   anything else   goes again: on another host at once, then after a back-off
 *
 * A refusal (4xx) is the word of one host. It counts when a second host agrees, at least one of the two being credible,
 * which is that it answers other calls; when all hosts agree that can be asked; or when there is only one host. What was
 * refused is split down to the row, which becomes a dead letter. A host that refuses what another one answers is refuted: it
 * gets smaller calls first, as it may have been their size, and then it is for the balancer to stop using it.
 *
 * A busy host (429, 503), one without the model, and one that may take the same rows in another form count against
 * neither row nor host.
 *
 * Thread: one. */
#ifndef MR_BATCH_RETRY_POLICY_H
#define MR_BATCH_RETRY_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "balance/balance.h"
#include "base/vec.h"

#define RETRY_UNPROVEN 8 /* failures that are kept until it is known whether they count */
#define RETRY_REFUSERS 3
#define RETRY_TRIED    8
#define RETRY_TIMES    4096
#define RETRY_AVOID    (RETRY_REFUSERS + RETRY_TRIED)

/** A host takes no calls of more rows, as it refused some that others answered. */
struct retry_cap {
    uint64_t rows;  /* 0: any number */
    uint32_t good;  /* calls of as many that it answered since */
    uint32_t every; /* after this many it gets twice as many rows again */
    bool was_raised;
};

/** What the policy knows of a host. */
struct retry_host {
    /* the caller's: as it is whenever the policy is asked */
    uint32_t id;      /* in the balancer; 0: none yet */
    bool is_usable;   /* it is listed and trusted: calls may go there some day */
    bool is_working;  /* calls go there now */
    int64_t heard_ns; /* it last answered anything of use then */
    /* the policy's */
    uint64_t ok;         /* good answers */
    uint64_t ok_refuted; /* `ok` when it was refuted last */
    bool is_refuted;     /* once at least, and not for the size of a call */
    struct retry_cap cap;
};

/** When calls were sent that were answered well, the last ones. */
struct retry_times {
    int64_t at[RETRY_TIMES];
    uint64_t count;
};

struct retry_policy {
    /* the caller's */
    uint32_t max_attempts;                   /* >= 1 */
    bool counts_answers;                     /* an answer that is a failure counts by itself */
    bool may_get_hosts;                      /* more of them may be listed soon */
    MR_VEC(const struct retry_host *) hosts; /* all that there are */
    /* the policy's */
    uint64_t ok;     /* calls that were answered well */
    uint64_t failed; /* calls that failed */
    struct retry_times times;
};

/** What was tried with some rows that go together. All zeros: nothing. */
struct retry_work {
    uint32_t failures;           /* of calls with all of the rows */
    uint32_t failures_in_outage; /* the last ones, since another call succeeded */
    uint32_t failures_before;    /* those of the work that this is a part of */
    uint32_t form_refusals;      /* that may have been for the form of a call */
    uint32_t refusals;
    uint32_t attempts;        /* failures that count, also of larger calls with these rows */
    uint32_t attempts_before; /* those of larger calls alone */
    uint64_t ok_before;       /* retry_policy.ok when this was sent first, or failed last */
    int64_t since_ns;         /* the last failure, or when it was sent first */
    struct {
        int64_t from_ns;
        int64_t to_ns;
        bool is_whole;          /* of a larger call */
    } unproven[RETRY_UNPROVEN]; /* oldest first */
    size_t unproven_count;
    struct retry_host *refusers[RETRY_REFUSERS];
    size_t refuser_count;
    uint64_t refuser_ok;         /* good answers of the first one then */
    bool is_agreed;              /* part of what more than one host refused */
    uint32_t tried[RETRY_TRIED]; /* hosts that failed with it, by their id */
    uint32_t tried_count;
};

/** How a call with a work ended. */
struct retry_event {
    enum mr_balance_outcome outcome;
    struct retry_host *host;
    uint64_t rows; /* of the work */
    int64_t sent_ns;
    int64_t now_ns;
    bool is_settled;  /* another copy of the call was answered before */
    bool has_copy;    /* one is still under way */
    bool is_answered; /* the host sent an answer, of whatever kind */
    bool is_for_good; /* the host cannot serve the model at all */
    bool is_for_form; /* the host may take the same rows in another form */
};

enum retry_action {
    RETRY_NONE,  /* nothing: another copy was answered, or may be */
    RETRY_DONE,  /* the rows have been answered */
    RETRY_FIRST, /* again, at once and before all other work */
    RETRY_LAST,  /* again, after the other work that waits */
    /** The same, after a back-off for `tries`. If no other work is left, only a row that is known to be good can show
     *  whether hosts work. */
    RETRY_LATER,
    RETRY_SPLIT, /* two parts of `split` rows and the others, see retry_work_part; they go first */
    RETRY_DEAD,  /* one row: a dead letter */
};

struct retry_decision {
    enum retry_action action;
    bool is_granted; /* it needs no permission of the retry budget */
    bool is_refused; /* SPLIT, DEAD: by hosts that agree; otherwise it failed */
    uint64_t split;
    uint32_t tries; /* >= 1 */
    /* Hosts that were wrong to refuse, whatever the action is: each is a failure of that host. */
    struct retry_host *refuted[RETRY_REFUSERS];
    size_t refuted_count;
    bool is_first[RETRY_REFUSERS]; /* refuted[i] was never refuted before */
    /** `refuted[0]` refuses everything and no other host works; none has answered what it refused. */
    bool refuses_all;
};

/** A call with the work was sent. is_first: it was never sent before. */
void retry_policy_sent(const struct retry_policy *p, struct retry_work *w, bool is_first,
                       int64_t now_ns);
/** A call with the work ended; what is to be done with it. */
struct retry_decision retry_policy_ended(struct retry_policy *p, struct retry_work *w,
                                         const struct retry_event *e);
/** True if calls that ended since the work failed show that it is a dead letter, so that it need not be sent again. */
bool retry_policy_is_dead(const struct retry_policy *p, struct retry_work *w, uint64_t rows);
/** False if the host refused the work, and there are others that did not and may answer it. */
bool retry_policy_may_ask(const struct retry_policy *p, const struct retry_work *w,
                          const struct retry_host *h, int64_t now_ns);

enum retry_part {
    RETRY_PART_CUT, /* the whole was too large for a call: what failed says nothing of its parts */
    RETRY_PART_FAILED,  /* the whole failed, and each part with it */
    RETRY_PART_REFUSED, /* the whole was refused */
};
/** What is known of a part, which was never sent by itself: *part is set. */
void retry_work_part(struct retry_work *part, const struct retry_work *whole, enum retry_part why);
/** Ids of hosts that should not get the work, first those that refused it; how many.
 *  *out_refusers: how many of them refused. */
uint32_t retry_work_avoid(const struct retry_work *w, uint32_t out[RETRY_AVOID],
                          uint32_t *out_refusers);
/** How often a row was tried, >= 1: for its dead letter. */
uint32_t retry_work_attempts(const struct retry_work *w);
/** The most rows of a call to the host, `rows` or fewer. */
uint64_t retry_host_rows(const struct retry_host *h, uint64_t rows);

#endif
