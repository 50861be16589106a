/* What a version runs before it is ready, on each of its instances:
 *
 *   warmup_config.c    the samples of model_warmup
 *   warmup_recorded.c  recorded requests, a file in the version's folder
 *   warmup_default.c   made-up requests, where there is neither
 *
 * and what these have in common (warmup.c). Nothing of it is counted in statistics. On loader threads. */
#ifndef MR_SCHED_WARMUP_H
#define MR_SCHED_WARMUP_H

#include "sched_priv.h"

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

/* Says in the debug log what was not warmed up. */
void warmup_tell_none(const struct mr_sched *s, const char *reason);

/* Random numbers, always the same: fractions in [0, 1), whole numbers from 0 to `most`. Not for BYTES. */
void warmup_fill(struct mr_tensor *t, uint64_t elements, unsigned most);

/* Of one version. */
struct warmup {
    struct mr_sched *s;
    bool is_default;          /* made-up requests are wanted */
    bool has_failed;          /* one of them did, and that was told */
    bool one_ran;             /* one of a single row did run */
    bool has_run;             /* a request of this version did, whatever came of it */
    int64_t row_ns;           /* what a row took, when it last ran */
    unsigned records;         /* in the file of recorded requests, once it was read */
    int64_t left_ns;          /* for made-up requests on all instances that are still to come */
    int64_t recorded_left_ns; /* for recorded ones */
};
void warmup_begin(struct warmup *w, struct mr_sched *s);
/* With `instances` to come, this one included. */
int warmup_run(struct warmup *w, void *instance, uint32_t instances, struct mr_err *err);

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

/* Its share of the time is spent at most, with `instances` to come, this one included. Errors: MR_E_CANCELLED
 * only. */
int warmup_default_run(struct warmup *w, void *instance, uint32_t instances, struct mr_err *err);

/* warmup_recorded.c */

#define WARMUP_FILE_BYTES_MAX (UINT64_C(256) << 20)

/* A file of records that is being read. */
struct warmup_records {
    int fd;
    int error;      /* errno of what failed, 0 = the file ended */
    unsigned count; /* records begun */
    uint64_t size;
    uint64_t at;
};
int warmup_records_open(struct warmup_records *f, const char *path, struct mr_err *err);
/* The next one; *out NULL: there is no more. Errors: MR_E_INVALID, MR_E_TOO_LARGE, MR_E_IO, MR_E_EXHAUSTED. */
int warmup_records_next(struct warmup_records *f, struct mr_block **out, uint64_t *out_bytes,
                        struct mr_err *err);
void warmup_records_close(struct warmup_records *f);

/* Errors name the file and the record. */
int warmup_recorded_run(struct warmup *w, void *instance, uint32_t instances, struct mr_err *err);

#endif
