/* How a job is doing, by its folder: also of one that runs in another process, or has ended. */
#include <stdio.h>

#include "base/buf.h"
#include "batch/batch.h"
#include "batch/manifest/manifest.h"

int mr_batch_look(const char *folder, struct mr_batch_look *out, struct mr_err *err)
{
    struct mr_manifest_totals t;
    struct mr_batch_look look;
    struct mr_buf stop;
    int rc;

    mr_buf_init(&stop, 0);
    MR_TRY(mr_manifest_look(folder, &t, &look.is_finished, &look.starts, &look.pid, &stop, err));
    snprintf(look.stopped, sizeof look.stopped, "%s", mr_buf_cstr(&stop));
    look.rows = t.rows;
    look.dead = t.dead;
    look.files = t.parts;
    look.bytes = t.bytes;
    *out = look;
out:
    mr_buf_fini(&stop);
    return rc;
}
