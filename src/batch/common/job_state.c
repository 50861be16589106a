/* What every part of a job may do to it: end it with a reason. */
#include "job_state.h"

#include <stdio.h>

#include "base/log.h"
#include "net/loop.h"

void job_fail(struct job_state *s, int rc, const struct mr_err *err)
{
    if (s->rc == MR_OK) {
        s->rc = rc;
        s->err = *err;
    }
    job_end(s);
}

/* It is a note of the manifest, too, for those who look at the folder. */
void job_stop(struct job_state *s, const struct mr_err *err)
{
    if (s->pauses) {
        s->is_paused = true;
        snprintf(s->pause_reason, sizeof s->pause_reason, "%s", err->msg);
        mr_log(MR_LOG_WARN, "batch.paused", "reason=%s", MR_LOG_STR(mr_str_c(err->msg)));
        return;
    }
    s->is_stopped |= s->rc == MR_OK;
    job_fail(s, err->status, err);
}

/* The loop is left once. Mails that come later, when it is taken down, still find the job. */
void job_end(struct job_state *s)
{
    if (s->phase != JOB_ENDING) {
        s->phase = JOB_ENDING;
        mr_loop_stop(s->loop);
    }
}

void job_advance(struct job_state *s)
{
    s->advance(s);
}
