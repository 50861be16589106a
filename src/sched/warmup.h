/* What a version runs before it is ready, on each of its instances:
 *
 *   warmup_config.c    the samples of model_warmup
 *   warmup_default.c   made-up requests, where there are none
 *
 * and what these have in common (warmup.c). Nothing of it is counted in statistics. On loader threads. */
#ifndef MR_SCHED_WARMUP_H
#define MR_SCHED_WARMUP_H

#include "sched_private.h"

/* One request of ours. */
struct warmup_sample {
    struct mr_infer infer;
    struct mr_arena arena;   /* the inputs */
    struct mr_arena scratch; /* of one run */
    struct mr_block **blocks;
    size_t block_count;
};

void warmup_sample_init(struct warmup_sample *sm, struct mr_version *v);
void warmup_sample_fini(struct warmup_sample *sm);
/* Room for the inputs, all of them not sent yet; every output is wanted. */
int warmup_sample_begin(struct warmup_sample *sm, int64_t rows, struct mr_err *err);
/* `bytes` for an input, which live as long as the sample; NULL without memory. Once per input. */
void *warmup_sample_block(struct warmup_sample *sm, uint64_t bytes);
/* Run it once; what it took is in sm->infer.times. Errors: MR_E_CANCELLED, the load is not wanted any more; what
 * the execution says. */
int warmup_sample_run(struct warmup_sample *sm, struct mr_sched *s, void *instance,
                      struct mr_err *err);

/* Random numbers, always the same: fractions in [0, 1), whole numbers from 0 to `most`. Not for BYTES. */
void warmup_fill(struct mr_tensor *t, uint64_t elements, unsigned most);

/* warmup_config.c */
int warmup_config_run(struct mr_sched *s, void *instance, struct mr_err *err);

/* warmup_default.c */

/* Batch sizes that are tried at most, and runs of each of them. */
#define WARMUP_SIZES_MAX 8
#define WARMUP_RUNS_MAX  10
/* The rows to try, in the order in which to try them: 1, the maximum, preferred sizes from the largest on; 0 for a
 * model without batching. Returns how many. */
size_t warmup_sizes(const struct mr_sched *s, int64_t out[WARMUP_SIZES_MAX]);
/* Two runs in a row took the same time, so that there is no more to be had by a third. */
bool warmup_is_steady(int64_t one_ns, int64_t other_ns);

struct warmup {
    struct mr_sched *s;
    bool is_wanted;
    bool has_failed; /* that was told */
    int64_t left_ns; /* for all instances that are still to come */
};
/* Is there anything to do by default? */
void warmup_default_begin(struct warmup *w, struct mr_sched *s);
/* Its share of the time is spent at most, with `instances` to come, this one included. Errors: MR_E_CANCELLED
 * only. */
int warmup_default_run(struct warmup *w, void *instance, uint32_t instances, struct mr_err *err);

#endif
