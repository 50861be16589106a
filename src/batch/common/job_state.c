/* What every part of a job may do to it: end it with a reason. */
#include <stdio.h>

#include "base/log.h"
#include "job.h"

void job_fail(struct job *j, int rc, const struct mr_err *err)
{
    if (j->rc == MR_OK) {
        j->rc = rc;
        j->err = *err;
    }
    job_end(j);
}

/* It is a note of the manifest, too, for those who look at the folder. */
void job_stop(struct job *j, const struct mr_err *err)
{
    if (j->o->limits.pauses) {
        j->is_paused = true;
        snprintf(j->pause_reason, sizeof j->pause_reason, "%s", err->msg);
        mr_log(MR_LOG_WARN, "batch.paused", "reason=%s", MR_LOG_STR(mr_str_c(err->msg)));
        return;
    }
    j->batch->is_stopped |= j->rc == MR_OK;
    job_fail(j, err->status, err);
}

/* The loop is left once. Mails that come later, when it is taken down, still find the job. */
void job_end(struct job *j)
{
    if (j->phase != JOB_ENDING) {
        j->phase = JOB_ENDING;
        mr_loop_stop(j->loop);
    }
}
