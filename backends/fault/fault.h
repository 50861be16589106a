/* Shared by the files of the fault backend. */
#ifndef MR_FAULT_FAULT_H
#define MR_FAULT_FAULT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "plan.h"

extern const struct mr_host *fault_host;

struct model {
    struct mr_signature signature;
    struct plan plan;
    uint32_t output_count;
    int trace;                   /* descriptor, -1 = none */
    _Atomic uint64_t executions; /* relaxed: only a count */
    _Atomic uint64_t begun;      /* executions; relaxed: only a count */
    _Atomic uint64_t given;      /* outputs given and not released; relaxed, checked at the end */
};

/* An execution that ends later. */
struct job {
    struct instance *instance;
    struct plan plan;
    struct mr_exec *exec;
    pthread_t thread;
    struct job *next;
    bool is_cancelled;
    bool is_ending;
    _Atomic bool is_over;
};

#define FAULT_SUMS 64

/* A sequence, as an instance knows it. */
struct sum {
    uint64_t id;
    int32_t value;
};

struct instance {
    struct model *model;
    struct sum sums[FAULT_SUMS];
    uint32_t sum_count;
    uint32_t index;
    _Atomic bool is_called; /* `execute` runs */
    pthread_mutex_t mutex;  /* guards what follows, and the marks of the jobs */
    pthread_cond_t cancelled;
    struct job *jobs;
    int64_t pending; /* of the jobs */
};

/* fault.c: runs an execution. */
int fault_run(struct instance *inst, const struct plan *p, struct mr_exec *exec,
              struct mr_err *err);

/* later.c. MR_PENDING, or a failure. */
int later_start(struct instance *inst, const struct plan *p, struct mr_exec *exec,
                struct mr_err *err);
void later_cancel(struct instance *inst, const struct mr_exec *exec);
/* Waits for all of them. */
void later_end(struct instance *inst);

/* attempt.c: tries it, and returns a failure that says "possible" or "refused: why". */
int fault_attempt(const char *what, struct mr_err *err);

#endif
