/* The results of a finished job in fewer files: into one beside the job, or in the job's own folder.
 *
 * Files go in the order of their first rows in the input. In the folder a merge is a change like any other: the new file
 * is on disk before one record of the manifest puts it, and the dead letters that go with it, into the place of the old
 * ones. The job is locked meanwhile. Blocks on the disk; nothing here runs beside it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "batch/batch.h"
#include "file.h"
#include "manifest_priv.h"
#include "table/merge.h"

typedef const struct mr_manifest_item *item_ref;

static int join(const struct mr_manifest *m, enum mr_manifest_kind kind, const item_ref *items,
                size_t count, int fd, struct mr_err *err)
{
    const bool is_results = kind == MR_MANIFEST_RESULTS;
    MR_VEC(struct mr_merge_part) parts = {0};

    for (size_t i = 0; i < count; i++) {
        const char *name = is_results ? items[i]->part : items[i]->dlq;
        if (name) {
            MR_VEC_PUSH(&parts, ((struct mr_merge_part){is_results ? m->parts : m->dlq, name}));
        }
    }
    int rc = mr_table_merge(parts.at, parts.len, fd, err);
    MR_VEC_FINI(&parts);
    return rc;
}

/* ---- one file beside the job ---- */

static int output_put(const struct mr_manifest *m, const item_ref *items, size_t count,
                      const char *path, struct mr_err *err)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    char *folder = slash ? mr_strndup(path, (size_t)(slash - path) + 1) : mr_strndup("./", 2);
    char tmp[512];
    int fd = -1;
    int rc = MR_OK;
    const int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);

    snprintf(tmp, sizeof tmp, MR_FILE_TMP "%ld-%.400s", (long)getpid(), name);
    if (dir < 0) {
        rc = batch_file_fail(err, "open the folder", folder);
        goto out;
    }
    fd = openat(dir, tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        rc = batch_file_fail(err, "make", tmp);
        goto out;
    }
    rc = join(m, MR_MANIFEST_RESULTS, items, count, fd, err);
    rc = rc < 0 ? rc : batch_file_sync(fd, tmp, err);
    if (rc == MR_OK && renameat(dir, tmp, dir, name) < 0) {
        rc = batch_file_fail(err, "put in its place", name);
    }
    if (rc < 0) {
        unlinkat(dir, tmp, 0);
        goto out;
    }
    rc = batch_file_sync(dir, folder, err);
out:
    if (fd >= 0) {
        close(fd);
    }
    if (dir >= 0) {
        close(dir);
    }
    mr_free(folder);
    return rc;
}

/* ---- in the folder ---- */

/* Where the rows are in the order of the input, the name says so. */
static int part_begin(struct mr_manifest *m, const item_ref *items, size_t count,
                      struct mr_manifest_part *out, struct mr_err *err)
{
    const char *suffix = strchr(items[0]->part, '.');
    const struct mr_manifest_extent *at = items[0]->extents;

    return mr_manifest_is_in_order(items, count)
               ? mr_manifest_part_begin_at(m, at->file, at->first, suffix, out, err)
               : mr_manifest_part_begin(m, MR_MANIFEST_RESULTS, suffix, out, err);
}

static int group_replace(struct mr_manifest *m, const item_ref *items, size_t count,
                         struct mr_err *err)
{
    MR_VEC(struct mr_manifest_extent) extents = {0};
    struct mr_manifest_part part = {.fd = -1};
    struct mr_manifest_part dlq = {.fd = -1};
    struct mr_manifest_add add = {.part = &part};
    int rc;

    for (size_t i = 0; i < count; i++) {
        add.rows += items[i]->rows;
        add.dead += items[i]->dead;
        for (size_t k = 0; k < items[i]->extent_count; k++) {
            MR_VEC_PUSH(&extents, items[i]->extents[k]);
        }
    }
    add.extents = extents.at;
    add.extent_count = extents.len;
    MR_TRY(part_begin(m, items, count, &part, err));
    MR_TRY(join(m, MR_MANIFEST_RESULTS, items, count, part.fd, err));
    if (add.dead > 0) {
        add.dlq = &dlq;
        MR_TRY(mr_manifest_part_begin(m, MR_MANIFEST_DEAD_LETTERS, ".jsonl", &dlq, err));
        MR_TRY(join(m, MR_MANIFEST_DEAD_LETTERS, items, count, dlq.fd, err));
    }
    rc = mr_manifest_replace(m, &add, 1, items, count, err);
out:
    mr_manifest_part_drop(m, &part);
    mr_manifest_part_drop(m, &dlq);
    MR_VEC_FINI(&extents);
    return rc;
}

/* What is merged does not change the items behind it. */
static int groups_replace(struct mr_manifest *m, const item_ref *items, size_t count,
                          uint64_t max_bytes, struct mr_err *err)
{
    int rc = MR_OK;

    for (size_t i = 0, n; i < count && rc == MR_OK; i += n) {
        uint64_t bytes = items[i]->part_bytes;
        for (n = 1; i + n < count && bytes + items[i + n]->part_bytes <= max_bytes; n++) {
            bytes += items[i + n]->part_bytes;
        }
        rc = n > 1 ? group_replace(m, items + i, n, err) : MR_OK;
    }
    return rc;
}

/* ---- the whole ---- */

static int items_in_order(const void *a, const void *b)
{
    const struct mr_manifest_extent *x = (*(const item_ref *)a)->extents;
    const struct mr_manifest_extent *y = (*(const item_ref *)b)->extents;

    if (x->file != y->file) {
        return x->file < y->file ? -1 : 1;
    }
    return x->first < y->first ? -1 : x->first > y->first;
}

static int open_finished(const char *folder, struct mr_manifest **out, struct mr_err *err)
{
    const struct mr_manifest_options options = {.takes_any_job = true};
    struct mr_manifest_totals totals;
    bool is_finished;
    uint32_t epoch;
    int64_t pid;
    int rc = mr_manifest_look(folder, &totals, &is_finished, &epoch, &pid, err);

    if (rc == MR_OK && !is_finished) {
        rc = MR_FAIL(err, MR_E_INVALID,
                     "the job in %s is not finished: run it again first, with its own command",
                     folder);
    }
    return rc < 0 ? rc : mr_manifest_open(out, folder, NULL, 0, &options, err);
}

/* Numbers of files changed, nothing else that the report tells. */
static int finish_again(struct mr_manifest *m, struct mr_err *err)
{
    struct mr_buf report;
    int rc = MR_OK;

    if (mr_manifest_is_finished(m)) {
        return MR_OK;
    }
    mr_buf_init(&report, 0);
    rc = batch_file_read(m->dir, "report.json", &report, err);
    rc = rc < 0 ? rc : mr_manifest_finish(m, mr_buf_view(&report), err);
    mr_buf_fini(&report);
    return rc;
}

int mr_batch_merge(const struct mr_batch_merge_options *o, struct mr_batch_merged *out,
                   struct mr_err *err)
{
    struct mr_manifest *m = NULL;
    MR_VEC(item_ref) items = {0};
    struct mr_batch_merged merged = {0};
    int rc;

    MR_TRY(open_finished(o->folder, &m, err));
    for (size_t i = 0; i < mr_manifest_item_count(m); i++) {
        if (mr_manifest_item(m, i)->part) {
            MR_VEC_PUSH(&items, mr_manifest_item(m, i));
        }
    }
    merged.rows = mr_manifest_totals(m).rows;
    merged.bytes = mr_manifest_totals(m).bytes;
    merged.files_before = items.len;
    if (items.len == 0) {
        rc = MR_FAIL(err, MR_E_NOT_FOUND, "the job in %s has no results", o->folder);
        goto out;
    }
    qsort(items.at, items.len, sizeof *items.at, items_in_order);
    merged.is_in_order = mr_manifest_is_in_order(items.at, items.len);
    if (o->output) {
        merged.files = 1;
        rc = output_put(m, items.at, items.len, o->output, err);
    } else {
        MR_TRY(groups_replace(m, items.at, items.len, o->max_bytes, err));
        merged.files = mr_manifest_totals(m).parts;
        rc = finish_again(m, err);
    }
    if (rc == MR_OK) {
        *out = merged;
    }
out:
    MR_VEC_FINI(&items);
    mr_manifest_close(&m);
    return rc;
}
