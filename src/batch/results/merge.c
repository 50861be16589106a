/* The results of a finished job in fewer files: into one beside the job, or in the job's own folder. Of a job that is
 * divided into shards, all are merged into one file, or each on its own.
 *
 * Files go in the order of their first rows in the input. In the folder a merge is a change like any other: the new file
 * is on disk before one record of the manifest puts it, and the dead letters that go with it, into the place of the old
 * ones. The job is locked during the merge. Blocks on the disk; nothing else of the job runs at the same time. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "batch/batch.h"
#include "batch/common/shard.h"
#include "batch/files/file.h"
#include "batch/manifest/manifest_priv.h"
#include "batch/manifest/merge_group.h"
#include "table/merge.h"

typedef const struct mr_manifest_item *item_ref;

typedef MR_VEC(struct piece) piece_vec;

/* ---- one file beside the job ---- */

static int output_put(const struct piece *pieces, size_t count, const char *path,
                      struct mr_err *err)
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
    unlinkat(dir, tmp, 0); /* of a start that was killed: in a container each has the same number */
    fd = openat(dir, tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        rc = batch_file_fail(err, "make", tmp);
        goto out;
    }
    rc = merge_join(MR_MANIFEST_RESULTS, pieces, count, fd, err);
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

static int group_replace(struct mr_manifest *m, const struct piece *pieces, size_t count,
                         struct mr_err *err)
{
    MR_VEC(item_ref) items = {0};
    struct merge_group g = {0};
    int rc;

    for (size_t i = 0; i < count; i++) {
        MR_VEC_PUSH(&items, pieces[i].item);
    }
    merge_group_begin(&g, m, items.at, count);
    MR_TRY(merge_group_join(&g, err));
    MR_TRY(merge_group_commit(&g, err));
out:
    merge_group_end(&g);
    MR_VEC_FINI(&items);
    return rc;
}

/* Merging a group does not change the items after it. */
static int groups_replace(struct mr_manifest *m, const struct piece *pieces, size_t count,
                          uint64_t max_bytes, struct mr_err *err)
{
    int rc = MR_OK;

    for (size_t i = 0, n; i < count && rc == MR_OK; i += n) {
        uint64_t bytes = pieces[i].item->part_bytes;
        for (n = 1; i + n < count && bytes + pieces[i + n].item->part_bytes <= max_bytes; n++) {
            bytes += pieces[i + n].item->part_bytes;
        }
        rc = n > 1 ? group_replace(m, pieces + i, n, err) : MR_OK;
    }
    return rc;
}

/* ---- the whole ---- */

static int pieces_in_order(const void *a, const void *b)
{
    const struct mr_manifest_extent *x = ((const struct piece *)a)->item->extents;
    const struct mr_manifest_extent *y = ((const struct piece *)b)->item->extents;

    if (x->file != y->file) {
        return x->file < y->file ? -1 : 1;
    }
    return x->first < y->first ? -1 : x->first > y->first;
}

static int open_finished(const char *folder, struct mr_manifest **out, struct mr_err *err)
{
    const struct mr_manifest_options options = {.takes_any_job = true};
    struct mr_batch_summary summary;
    int rc = mr_batch_summary(folder, &summary, err);

    if (rc == MR_OK && !summary.is_finished) {
        rc = MR_FAIL(err, MR_E_INVALID,
                     "the job in %s is not finished: run it again first, with its own command",
                     folder);
    }
    rc = rc < 0 ? rc : mr_manifest_open(out, folder, NULL, 0, &options, err);
    for (size_t i = 0; rc == MR_OK && i < mr_manifest_item_count(*out); i++) {
        if (mr_manifest_item(*out, i)->is_elsewhere) {
            mr_manifest_close(out);
            return MR_FAIL(
                err, MR_E_UNSUPPORTED,
                "the results of the job in %s are not in its folder: there are no files to "
                "merge",
                folder);
        }
    }
    return rc;
}

/* The job in a folder, or all of its shards. */
struct jobs {
    MR_VEC(struct mr_manifest *) at;
    struct mr_buf identity; /* of the first shard */
};

static void jobs_close(struct jobs *jobs)
{
    for (size_t i = 0; i < jobs->at.len; i++) {
        mr_manifest_close(&jobs->at.at[i]);
    }
    MR_VEC_FINI(&jobs->at);
    mr_buf_fini(&jobs->identity);
}

/* It is the shard that its folder's name says, and was begun with the same model, inputs, division and so on as the others. */
static int shard_check(struct jobs *jobs, const struct mr_manifest *m, const char *name,
                       struct mr_err *err)
{
    const bool is_first = jobs->at.len == 1;
    struct mr_buf identity;
    struct mr_buf *whole = is_first ? &jobs->identity : &identity;
    struct mr_buf field;
    int rc;

    mr_buf_init(&identity, 0);
    mr_buf_init(&field, 0);
    MR_TRY(mr_manifest_identity_put(m, MR_SHARD_FIELD, &field, whole, err));
    const ptrdiff_t at = mr_str_find_str(mr_buf_view(&field), mr_str_c(name));
    if (at < 0) {
        rc = MR_FAIL(err, MR_E_INVALID, "%s holds the work of another shard", m->folder);
        goto out;
    }
    /* The rest of the field is the same for all shards. */
    mr_buf_str(whole, mr_str_sub(mr_buf_view(&field), (size_t)at + strlen(name), field.len));
    if (!is_first && !mr_str_eq(mr_buf_view(&identity), mr_buf_view(&jobs->identity))) {
        rc = MR_FAIL(err, MR_E_INVALID,
                     "%s was begun with another model, inputs or columns than %s: compare job.json "
                     "of both",
                     m->folder, jobs->at.at[0]->folder);
    }
out:
    mr_buf_fini(&identity);
    mr_buf_fini(&field);
    return rc;
}

static int shards_check(const char *folder, const struct mr_batch_shard *shards, size_t count,
                        struct mr_err *err)
{
    enum { NAMED = 8 };
    struct mr_buf names;
    size_t missing = 0;
    int rc = MR_OK;

    mr_buf_init(&names, 0);
    for (size_t i = 0; i < count; i++) {
        if (!shards[i].summary.is_finished && missing++ < NAMED) {
            mr_buf_printf(&names, "%s%zu (%s)", missing > 1 ? ", " : "", i,
                          !shards[i].is_begun     ? "not begun"
                          : shards[i].summary.pid ? "running"
                                                  : "stopped");
        }
    }
    if (missing > 0) {
        rc = MR_FAIL(err, MR_E_INVALID, "%zu of %zu shards of the job in %s are not finished: %s%s",
                     missing, count, folder, mr_buf_cstr(&names), missing > NAMED ? ", …" : "");
    }
    mr_buf_fini(&names);
    return rc;
}

/* Each job takes five descriptors. */
static void descriptors_raise(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int jobs_open(const char *folder, struct jobs *jobs, struct mr_err *err)
{
    struct mr_batch_shard *shards;
    struct mr_manifest *m;
    size_t count;
    int rc = mr_batch_shard_summaries(folder, &shards, &count, err);

    if (rc < 0) {
        return rc;
    }
    if (count == 0) {
        MR_TRY(open_finished(folder, &m, err));
        MR_VEC_PUSH(&jobs->at, m);
    }
    MR_TRY(shards_check(folder, shards, count, err));
    descriptors_raise();
    for (size_t i = 0; i < count; i++) {
        char name[64];
        MR_TRY(open_finished(shards[i].folder, &m, err));
        MR_VEC_PUSH(&jobs->at, m);
        snprintf(name, sizeof name, MR_SHARD_NAME_FORMAT, i, count);
        MR_TRY(shard_check(jobs, m, name, err));
    }
out:
    mr_batch_shards_free(&shards, count);
    return rc;
}

/* Only the numbers of files change in the report. */
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

static void pieces_add(const struct mr_manifest *m, piece_vec *to)
{
    for (size_t i = 0; i < mr_manifest_item_count(m); i++) {
        if (mr_manifest_item(m, i)->part) {
            MR_VEC_PUSH(to, ((struct piece){m, mr_manifest_item(m, i)}));
        }
    }
    if (to->len > 0) {
        qsort(to->at, to->len, sizeof *to->at, pieces_in_order);
    }
}

static bool are_in_order(const piece_vec *pieces)
{
    MR_VEC(item_ref) items = {0};

    for (size_t i = 0; i < pieces->len; i++) {
        MR_VEC_PUSH(&items, pieces->at[i].item);
    }
    const bool is_in_order = mr_manifest_is_in_order(items.at, items.len);
    MR_VEC_FINI(&items);
    return is_in_order;
}

static int job_shrink(struct mr_manifest *m, uint64_t max_bytes, struct mr_err *err)
{
    piece_vec pieces = {0};

    pieces_add(m, &pieces);
    int rc = groups_replace(m, pieces.at, pieces.len, max_bytes, err);
    MR_VEC_FINI(&pieces);
    return rc < 0 ? rc : finish_again(m, err);
}

int mr_batch_merge(const struct mr_batch_merge_options *o, struct mr_batch_merged *out,
                   struct mr_err *err)
{
    struct jobs jobs = {0};
    piece_vec pieces = {0};
    struct mr_batch_merged merged = {0};
    int rc;

    mr_buf_init(&jobs.identity, 0);
    MR_TRY(jobs_open(o->folder, &jobs, err));
    for (size_t i = 0; i < jobs.at.len; i++) {
        const struct mr_manifest_totals totals = mr_manifest_totals(jobs.at.at[i]);
        merged.rows += totals.rows;
        merged.bytes += totals.bytes;
        merged.files_before += totals.parts;
    }
    if (merged.files_before == 0) {
        rc = MR_FAIL(err, MR_E_NOT_FOUND, "the job in %s has no results", o->folder);
        goto out;
    }
    for (size_t i = 0; i < jobs.at.len; i++) {
        pieces_add(jobs.at.at[i], &pieces);
    }
    merged.is_in_order = are_in_order(&pieces);
    for (size_t i = 0; i < jobs.at.len && !o->output; i++) {
        MR_TRY(job_shrink(jobs.at.at[i], o->max_bytes, err));
        merged.files += mr_manifest_totals(jobs.at.at[i]).parts;
    }
    if (o->output) {
        merged.files = 1;
        rc = output_put(pieces.at, pieces.len, o->output, err);
    }
    if (rc == MR_OK) {
        *out = merged;
    }
out:
    MR_VEC_FINI(&pieces);
    jobs_close(&jobs);
    return rc;
}
