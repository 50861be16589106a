/* S3 as a job uses it. */
#include "storage.h"

#include "base/clock.h"
#include "base/log.h"
#include "batch/batch.h"
#include "job_state.h"

#define BLOCKS_BESIDE (UINT64_C(32) << 20)

static void on_trouble(void *ctx, const char *text)
{
    (void)ctx;
    mr_log(MR_LOG_WARN, "batch.storage", "%s; tried again", text);
}

bool batch_has_stop(void *state)
{
    const struct job_state *s = state;

    /* Relaxed: it orders nothing. */
    return atomic_load_explicit(s->stops, memory_order_relaxed) > 0;
}

uint64_t storage_bytes(const struct mr_batch_options *o)
{
    bool reads = false;

    for (size_t i = 0; i < o->source.path_count; i++) {
        reads |= mr_s3_is_uri(o->source.paths[i]);
    }
    return (reads ? BLOCKS_BESIDE : 0) + (o->results.objects ? BLOCKS_BESIDE : 0);
}

struct mr_s3_options storage_options(const struct mr_batch_options *o, struct job_state *s)
{
    struct mr_s3_options s3 = o->s3;

    s3.patience_ns = s->is_plan ? MR_MIN(JOB_PLAN_NS, o->limits.outage_ns) : o->limits.outage_ns;
    s3.on_trouble = on_trouble;
    s3.is_stopped = batch_has_stop;
    s3.ctx = s;
    return s3;
}
