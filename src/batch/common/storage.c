/* S3 as a job uses it. */
#include "storage.h"

#include "base/clock.h"
#include "base/log.h"
#include "job.h"

static void on_trouble(void *ctx, const char *text)
{
    (void)ctx;
    mr_log(MR_LOG_WARN, "batch.storage", "%s; tried again", text);
}

bool batch_has_stop(void *batch)
{
    const struct mr_batch *b = batch;

    /* Relaxed: it orders nothing. */
    return atomic_load_explicit(&b->stops, memory_order_relaxed) > 0;
}

struct mr_s3_options storage_options(struct job *j)
{
    struct mr_s3_options o = j->o->s3;

    o.patience_ns = j->plan ? MR_MIN(PLAN_NS, j->o->limits.outage_ns) : j->o->limits.outage_ns;
    o.on_trouble = on_trouble;
    o.is_stopped = batch_has_stop;
    o.ctx = j->batch;
    return o;
}
