/* The probe of a plan: a job whose results are measured and dropped. Thread: the loop's. */
#ifndef MR_BATCH_PLAN_H
#define MR_BATCH_PLAN_H

#include "batch/common/extent.h"

struct calls;
struct job_state;
struct mr_batch_plan;
struct mr_writer;
struct results;

/** Rows that a probe reads at most. */
#define PLAN_ROWS 20000

struct plan {
    struct mr_batch_plan *out;
    struct calls *calls;
    const struct results *results;
    struct mr_writer *writer; /* into nothing */
    int fd;
    uint64_t written; /* rows */
    uint64_t memory;  /* that these and their answers took */
    uint64_t tried;   /* rows that have an outcome */
    int64_t begin_ns; /* of reading */
    int64_t half_ns;  /* when half of the rows had an answer; 0: not yet */
    uint64_t half_rows;
    int64_t last_ns; /* of the last answer */
};

/** The model's outputs are known. */
int plan_begin(struct plan *p, struct calls *calls, const struct results *results,
               struct mr_err *err);
/** Takes an extent all of whose rows have an outcome. */
int plan_put(struct plan *p, struct extent *e, struct mr_err *err);
/** The time of the probe is over. */
bool plan_is_over(const struct job_state *s, int64_t now_ns);
/** Sets the figures that the probe has measured, after the reader's end. */
int plan_end(struct plan *p, struct mr_err *err);
/** Before the outputs of the job. */
void plan_drop(struct plan *p);

#endif
