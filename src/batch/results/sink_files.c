/* Results as files in the job's folder, which the manifest brings to disk and gives their names. What has been written is
 * sent on its way to the disk already while a file grows, so that little is left to wait for when it is committed. */
#include <fcntl.h>

#include "batch/common/extent.h"
#include "batch/protocols/oip/answer.h"
#include "committer.h"
#include "disk.h"
#include "results.h"
#include "sink.h"

#define SEND_BYTES (UINT64_C(8) << 20)

static int files_begin(struct results *rs, struct open_part *p, const struct extent *e,
                       struct mr_err *err)
{
    struct mr_writer_options writer = rs->o->results.writer;
    int rc;

    do {
        rc = rs->o->results.order == MR_BATCH_UNORDERED
                 ? mr_manifest_part_begin(rs->manifest, MR_MANIFEST_RESULTS, rs->o->results.suffix,
                                          &p->results, err)
                 : mr_manifest_part_begin_at(rs->manifest, e->file, e->first, rs->o->results.suffix,
                                             &p->results, err);
    } while (rc < 0 && disk_wait(rs->committer, err));
    if (rc < 0) {
        return rc;
    }
    p->has_results = true;
    writer.on_no_room = (struct mr_no_room){disk_wait_fn, rs->committer};
    return mr_writer_new(&p->writer, p->results.fd, batch_outputs_schema(rs->model->outputs),
                         &writer, err);
}

static int files_put(struct results *rs, struct open_part *p, const struct extent *e,
                     const struct extent_answer *a, struct mr_err *err)
{
    int rc = mr_writer_put(p->writer, a->rows, 0, a->rows->count, err);

    (void)rs;
    (void)e;
    if (rc == MR_OK && mr_writer_bytes(p->writer) >= p->sent_bytes + SEND_BYTES) {
        p->sent_bytes = mr_writer_bytes(p->writer);
        /* The sync that commits the file reports failures. */
        sync_file_range(p->results.fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    }
    return rc;
}

static uint64_t files_bytes(const struct open_part *p)
{
    return p->writer ? mr_writer_bytes(p->writer) : 0;
}

static uint64_t files_most_bytes(const struct results *rs)
{
    return rs->o->results.part_bytes;
}

static int files_finish(struct results *rs, struct open_part *p, struct mr_err *err)
{
    (void)rs;
    int rc = mr_writer_finish(p->writer, err);
    if (rc == MR_OK) {
        mr_writer_free(&p->writer);
    }
    return rc;
}

static void files_drop(struct open_part *p)
{
    mr_writer_free(&p->writer);
}

const struct sink_ops sink_files = {
    .begin = files_begin,
    .put = files_put,
    .bytes = files_bytes,
    .most_bytes = files_most_bytes,
    .finish = files_finish,
    .drop = files_drop,
    .is_in_folder = true,
};
