/* How a job is doing, by its folder: also of one that runs in another process, or has ended. */
#include <stdio.h>

#include "base/buf.h"
#include "batch/batch.h"
#include "batch/manifest/manifest.h"

int mr_batch_summary(const char *folder, struct mr_batch_summary *out, struct mr_err *err)
{
    struct mr_manifest_totals t;
    struct mr_batch_summary summary;
    struct mr_buf stop;
    int rc;

    mr_buf_init(&stop, 0);
    MR_TRY(mr_manifest_summary(folder, &t, &summary.is_finished, &summary.starts, &summary.pid,
                               &stop, err));
    snprintf(summary.stopped, sizeof summary.stopped, "%s", mr_buf_cstr(&stop));
    summary.rows = t.rows;
    summary.dead = t.dead;
    summary.files = t.parts;
    summary.bytes = t.bytes;
    *out = summary;
out:
    mr_buf_fini(&stop);
    return rc;
}
