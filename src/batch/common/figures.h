/* What is counted of calls and rows, for metrics and the report. On the loop's thread. */
#ifndef MR_BATCH_FIGURES_H
#define MR_BATCH_FIGURES_H

#include <stdint.h>

#include "balance/balance.h"
#include "base/hist.h"

struct call;
struct host;

/** Of the calls to a host. */
struct host_figures {
    uint64_t outcomes[MR_BALANCE_CANCELLED + 1];
    uint64_t retries;       /* calls with rows that had failed before */
    uint64_t dead;          /* rows whose last attempt was there */
    uint64_t prompt_tokens; /* as hosts count them; language models only */
    uint64_t completion_tokens;
    int64_t encode_ns;         /* rows into requests */
    int64_t judge_ns;          /* answers into rows */
    struct mr_hist *answer_ns; /* from the request to a good answer; NULL: none yet */
};

/** Dead letters with one cause. */
#define DEAD_CAUSES_MOST 32
struct dead_cause {
    const char *kind;
    char text[160];
    uint64_t count;
};

/** What is wrong with calls, said once for each host and cause. */
#define CAUSES_MOST 16
struct call_cause {
    const struct host *host;
    char text[200];
    uint64_t count;
    int64_t last_ns;
};

/** Of this start. */
struct figures {
    struct dead_cause dead[DEAD_CAUSES_MOST];
    size_t dead_count;
    uint64_t dead_other; /* with further causes */
    struct call_cause causes[CAUSES_MOST];
};

void figures_sent(struct call *k);
void figures_answered(struct call *k, enum mr_balance_outcome outcome, int64_t came_ns);
void figures_dead(struct figures *f, const char *kind, const char *cause);
void figures_add(struct host_figures *to, const struct host_figures *from);
void figures_fini(struct host_figures *f);
/** A call failed. */
void figures_failed(struct figures *f, const struct host *h, const char *text, int64_t now_ns);
/** NULL: none has failed. */
const struct call_cause *figures_last_failure(const struct figures *f);

#endif
