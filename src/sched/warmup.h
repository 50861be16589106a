/* The requests that a version runs on each of its instances before it is ready:
 *
 *   warmup_config.c    the samples of model_warmup
 *   warmup_recorded.c  recorded requests, a file in the version's folder
 *   warmup_default.c   generated requests, if there is neither
 *
 * and their common part (warmup.c). They are not counted in statistics. On loader threads. */
#ifndef MR_SCHED_WARMUP_H
#define MR_SCHED_WARMUP_H

#include "sched_priv.h"

/* One warm-up request. */
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
/* Memory of `bytes` for an input, as long as the sample; NULL without memory. Once per input. */
void *warmup_sample_block(struct warmup_sample *sm, uint64_t bytes);
/* Runs it once; its times are in sm->infer.times. Errors: MR_E_CANCELLED if the load is no longer wanted; those of
 * the execution. */
int warmup_sample_run(struct warmup_sample *sm, struct mr_sched *s, void *instance,
                      struct mr_err *err);

/* Logs what was not warmed up, at debug level. */
void warmup_tell_none(const struct mr_sched *s, const char *reason);

/* Random numbers, always the same: fractions in [0, 1), whole numbers from 0 to `most`. Not for BYTES. */
void warmup_fill(struct mr_tensor *t, uint64_t elements, unsigned most);

/* Of one version. */
struct warmup {
    struct mr_sched *s;
    bool is_default;          /* generated requests are used */
    bool has_failed;          /* one of them failed, which was logged */
    bool one_ran;             /* one of a single row succeeded */
    bool has_run;             /* a request of this version ran, successfully or not */
    int64_t row_ns;           /* last duration of a row */
    unsigned records;         /* in the file of recorded requests, after it was read */
    int64_t left_ns;          /* for generated requests on all remaining instances */
    int64_t recorded_left_ns; /* for recorded ones */
};
void warmup_begin(struct warmup *w, struct mr_sched *s);
/* `instances` remain, this one included. */
int warmup_run(struct warmup *w, void *instance, uint32_t instances, struct mr_err *err);

/* warmup_config.c */
int warmup_config_run(struct mr_sched *s, void *instance, struct mr_err *err);

/* warmup_default.c */

/* Most batch sizes that are tried, and most runs of each. */
#define WARMUP_SIZES_MAX 8
#define WARMUP_RUNS_MAX  10
/* The rows to try, in the order in which to try them: 1, the maximum, preferred sizes from the largest on; 0 for a
 * model without batching. Returns how many. */
size_t warmup_sizes(const struct mr_sched *s, int64_t out[WARMUP_SIZES_MAX]);
/* True if two runs in a row took the same time, so that a third would gain nothing. */
bool warmup_is_steady(int64_t one_ns, int64_t other_ns);

/* Takes at most its share of the time; `instances` remain, this one included. Errors: MR_E_CANCELLED
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
/* The next record; *out NULL: the end. Errors: MR_E_INVALID, MR_E_TOO_LARGE, MR_E_IO, MR_E_EXHAUSTED. */
int warmup_records_next(struct warmup_records *f, struct mr_block **out, uint64_t *out_bytes,
                        struct mr_err *err);
void warmup_records_close(struct warmup_records *f);

/* Errors name the file and the record. */
int warmup_recorded_run(struct warmup *w, void *instance, uint32_t instances, struct mr_err *err);

#endif
