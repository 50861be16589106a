/* The results of a job: where they go, what is known of them, and what all those who write them need.
 *
 * Thread: the loop's until the committer begins, after which nothing here changes. The manifest, the sink and what is the
 * sink's are then the committer's; `state` is always the loop's. */
#ifndef MR_BATCH_RESULTS_H
#define MR_BATCH_RESULTS_H

#include "batch/batch.h"
#include "batch/common/credits.h"
#include "batch/common/dialect.h"
#include "batch/common/job_state.h"
#include "batch/common/shard.h"
#include "batch/manifest/manifest.h"

struct committer;
struct disk_hold;
struct dlq_retry;
struct objects;
struct sink_ops;

struct results {
    const struct mr_batch_options *o;
    struct job_state *state;
    const struct dialect_model *model;
    const struct job_input *input;
    struct credits *credits;
    struct committer *committer;
    struct disk_hold *hold; /* the reason of this start, and the end of the wait */
    char *folder;           /* of its own: that of the options, or one in it */
    const struct sink_ops *sink;
    struct mr_store *store;  /* of the sink, if it is a table */
    struct objects *objects; /* the same, if it is objects */
    struct mr_manifest *manifest;
    struct mr_manifest_totals before; /* zeros with `dlq_retry` */
    struct dlq_retry *dlq_retry;      /* NULL: rows without outcome are what is to be done */
    int64_t total_rows;               /* -1: not known */
};

#endif
