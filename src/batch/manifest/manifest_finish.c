/* The end of a job: files for those who read its results. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "batch/files/file.h"
#include "manifest_priv.h"

int mr_manifest_unfinish(struct mr_manifest *m, struct mr_err *err)
{
    if (!m->is_finished) {
        return MR_OK;
    }
    if (unlinkat(m->dir, MR_MANIFEST_SUCCESS, 0) < 0 && errno != ENOENT) {
        return batch_file_fail(err, "remove", MR_MANIFEST_SUCCESS);
    }
    const int rc = batch_file_sync(m->dir, m->folder, err);
    if (rc == MR_OK) {
        m->is_finished = false;
    }
    return rc;
}

static int items_in_order(const void *a, const void *b)
{
    const struct mr_manifest_extent *x = (*(struct mr_manifest_item *const *)a)->extents;
    const struct mr_manifest_extent *y = (*(struct mr_manifest_item *const *)b)->extents;

    if (x->file != y->file) {
        return x->file < y->file ? -1 : 1;
    }
    return x->first < y->first ? -1 : x->first > y->first;
}

static void put_manifest(const struct mr_manifest *m, struct mr_buf *b)
{
    struct mr_manifest_item **items = MR_NEW_ARRAY(struct mr_manifest_item *, m->items.len);

    for (size_t i = 0; i < m->items.len; i++) {
        items[i] = m->items.at[i];
    }
    qsort(items, m->items.len, sizeof *items, items_in_order);
    mr_buf_printf(
        b,
        "{\"format\":%d,\"rows\":%" PRIu64 ",\"dead\":%" PRIu64 ",\"bytes\":%" PRIu64
        ",\"in_order\":%s,\"items\":[",
        MR_MANIFEST_FORMAT, m->totals.rows, m->totals.dead, m->totals.bytes,
        mr_manifest_is_in_order((const struct mr_manifest_item *const *)items, m->items.len)
            ? "true"
            : "false");
    for (size_t i = 0; i < m->items.len; i++) {
        mr_buf_c(b, i ? ",\n" : "\n");
        mr_record_item(b, items[i]);
    }
    MR_BUF_LIT(b, "\n]}\n");
    mr_free(items);
}

int mr_manifest_finish(struct mr_manifest *m, mr_str report_json, struct mr_err *err)
{
    struct mr_buf b;
    int rc;

    mr_buf_init(&b, MR_MANIFEST_LOG_MOST);
    MR_TRY(mr_journal_check(m, err));
    MR_TRY(mr_manifest_unfinish(m, err));
    MR_TRY(
        mr_manifest_sweep(m, m->epoch, err)); /* readers of a finished job go by what lies there */
    put_manifest(m, &b);
    if (b.failed) {
        rc = MR_FAIL(err, MR_E_NOMEM, "no memory for manifest.json");
        goto out;
    }
    MR_TRY(batch_file_put(m->dir, "manifest.json", mr_buf_view(&b), err));
    MR_TRY(batch_file_put(m->dir, "report.json", report_json, err));
    MR_TRY(mr_journal_check(m, err));
    MR_TRY(batch_file_put(m->dir, MR_MANIFEST_SUCCESS, MR_STR(""), err));
    m->is_finished = true;
out:
    mr_buf_fini(&b);
    return rc;
}
