/* Work: rows that go together, and the queue of what goes again. On the loop's thread. */
#ifndef MR_BATCH_WORK_H
#define MR_BATCH_WORK_H

#include <stddef.h>

#include "batch/policy/retry_policy.h"
#include "extent.h"

struct host;

/** The two parts of work that a host refused. If both are taken, it was too large, and nothing else was wrong. */
struct bisect {
    uint64_t rows;    /* of the larger one */
    uint32_t taken;   /* that succeeded */
    uint32_t holders; /* parts that are left */
};

/** Rows of an extent that follow each other. */
struct row_range {
    struct extent *extent;
    uint64_t first;
    uint64_t count;
};

/** Of a work. What takes more is several calls. */
#define RANGES_MOST 256

/** Some rows that go together, and what was tried with them. */
struct work {
    struct work *next;
    struct bisect *bisect; /* NULL: not part of refused work */
    uint64_t count;        /* of rows */
    struct retry_work tried;
    int64_t not_before_ns;
    uint32_t in_flight; /* one, or two when hedged */
    bool is_settled;
    bool is_answered; /* the last call was, whatever the answer is */
    bool is_retry;
    bool is_trial;      /* of more rows than calls have, until it failed */
    bool is_granted;    /* it needs no permission of the retry budget */
    bool is_probe;      /* a row that has an outcome: its answer only shows that hosts work */
    uint32_t asks;      /* answers that were not what was asked for */
    uint32_t doublings; /* see row_fault */
    char *note;         /* the same; NULL: none */
    struct host *only;  /* a cross-check of this host alone; NULL: it is none */
    uint32_t trial;
    uint32_t ballot;
    char cause[560];
    const char *last_host;
    struct raw_answer answer; /* to the last call with this row alone */
    size_t range_count;       /* more than one where extents or dead rows between them end */
    struct row_range ranges[];
};

/** Copies the ranges. */
struct work *work_new(const struct row_range *ranges, size_t count);
/** NULL is allowed. */
void work_drop(struct work **w);
/** The first range of rows [at, at + count) of the work. */
struct row_range work_range(const struct work *w, uint64_t at, uint64_t count);
/** Its rows [at, at + count), as a work of their own. */
struct work *work_part(const struct work *w, uint64_t at, uint64_t count);

/** Work that is sent again, linked by `next`. */
struct work_queue {
    struct work *first;
    struct work *last;
};
void work_queue_push(struct work_queue *q, struct work *w);
void work_queue_push_front(struct work_queue *q, struct work *w);
/** Between two neighbours; NULL for before the first or after the last. */
void work_queue_link(struct work_queue *q, struct work *before, struct work *w, struct work *next);
/** `before` is the one in front of it, NULL: it is the first. */
void work_queue_unlink(struct work_queue *q, struct work *before, struct work *w);

#endif
