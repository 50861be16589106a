/* See shard.h. Folders: all that says into how many shards a job is divided is the names of their folders. A start makes
 * its own and then looks at the others, so of two that disagree at least one sees it. */
#include "shard.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "batch/batch.h"
#include "batch/files/file.h"
#include "batch/manifest/manifest_priv.h"

#define STRETCH         UINT64_C(4096)
#define FILES_PER_SHARD 8
#define NAME_FORMAT     "shard-%05u-of-%05u"

/* ---- rows ---- */

/* Begin of the part `index` of `rows`, of `count` equal ones. */
static uint64_t part_begin(uint64_t rows, uint32_t index, uint32_t count)
{
    return rows / count * index + rows % count * index / count;
}

/* The intersection of two ranges, counted from the start of the first. */
static struct mr_range range_within(uint64_t begin, uint64_t count, struct mr_range part)
{
    const uint64_t first = MR_MAX(part.first, begin);
    const uint64_t end = MR_MIN(part.end, begin + count);

    return first < end ? (struct mr_range){first - begin, end - begin} : (struct mr_range){0, 0};
}

/* Files without a number of rows, which are dealt out. Those that are left out are among them. */
static size_t rows_count(struct shard *s, const int64_t *file_rows, size_t files)
{
    size_t uncounted = 0;

    for (size_t i = 0; i < files; i++) {
        uncounted += file_rows[i] < 0;
        s->counted_rows += (uint64_t)MR_MAX(file_rows[i], INT64_C(0));
    }
    return uncounted;
}

void shard_begin(struct shard *s, uint32_t index, uint32_t count, const int64_t *file_rows,
                 size_t files)
{
    uint64_t begin = 0;
    uint32_t turn = 0;

    *s = (struct shard){.index = index, .count = count};
    if (count == 0) {
        return;
    }
    const bool is_dealt = rows_count(s, file_rows, files) / count < FILES_PER_SHARD;
    const struct mr_range part = {part_begin(s->counted_rows, index, count),
                                  part_begin(s->counted_rows, index + 1, count)};
    s->files = MR_NEW_ARRAY(struct shard_file, files + 1);
    for (size_t i = 0; i < files; i++) {
        struct shard_file *f = &s->files[i];
        if (file_rows[i] >= 0) {
            f->rows = range_within(begin, (uint64_t)file_rows[i], part);
            begin += (uint64_t)file_rows[i];
        } else {
            f->turn = turn++ % count;
            f->is_dealt = is_dealt;
            f->rows.end = is_dealt || f->turn == index ? UINT64_MAX : 0;
        }
    }
}

void shard_fini(struct shard *s)
{
    mr_freep(&s->files);
}

/* Cuts a range to the first rows of it that are the shard's. */
static bool range_clip(const struct shard *s, const struct shard_file *f, struct mr_range *io)
{
    struct mr_range own = f->rows;

    if (f->is_dealt) {
        const uint64_t stretch = io->first / STRETCH;
        const uint64_t holder = (f->turn + stretch % s->count) % s->count;
        own.first = (stretch + (s->index + s->count - holder) % s->count) * STRETCH;
        own.end = own.first + STRETCH;
    }
    io->first = MR_MAX(io->first, own.first);
    io->end = MR_MIN(io->end, own.end);
    return io->first < io->end;
}

bool shard_gap(const struct shard *s, uint32_t file, const struct mr_ranges *done, uint64_t from,
               struct mr_range *out)
{
    struct mr_range gap;

    while (mr_ranges_gap(done, from, INT64_MAX, &gap)) {
        struct mr_range own = gap;
        if (s->count == 0 || range_clip(s, &s->files[file], &own)) {
            *out = own;
            return true;
        }
        from = gap.end;
    }
    return false;
}

int64_t shard_rows(const struct shard *s, const struct mr_source *source)
{
    uint64_t rows = 0;

    for (size_t i = 0; i < mr_source_file_count(source); i++) {
        const int64_t all = mr_source_file(source, i).rows;
        const struct mr_range own =
            s->count > 0 ? s->files[i].rows : (struct mr_range){0, UINT64_MAX};
        const bool is_dealt = s->count > 0 && s->files[i].is_dealt;
        if (own.end > 0 && (all < 0 || (is_dealt && all > 0))) {
            return -1;
        }
        rows += MR_MIN(own.end, (uint64_t)all) - own.first;
    }
    return (int64_t)rows;
}

/* ---- folders ---- */

static uint32_t count_of_name(const char *name)
{
    unsigned index;
    unsigned count;
    char again[64];

    if (sscanf(name, "shard-%5u-of-%5u", &index, &count) != 2 || index >= count) {
        return 0;
    }
    snprintf(again, sizeof again, NAME_FORMAT, index, count);
    return strcmp(again, name) == 0 ? count : 0;
}

struct found {
    uint32_t count;    /* of shards, 0: there are none */
    uint32_t unlike;   /* another count */
    bool is_whole_job; /* there is a job that is not divided */
};

static void name_see(void *ctx, const char *name)
{
    struct found *found = ctx;
    const uint32_t count = count_of_name(name);

    if (count > 0 && found->count > 0 && count != found->count) {
        found->unlike = count;
    } else if (count > 0) {
        found->count = count;
    }
    found->is_whole_job = found->is_whole_job || strcmp(name, MR_MANIFEST_JOB) == 0;
}

static int folder_scan(const char *job, struct found *out, struct mr_err *err)
{
    const int dir = openat(AT_FDCWD, job, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);

    if (dir < 0) {
        return batch_file_fail(err, "open the folder", job);
    }
    *out = (struct found){0};
    const int rc = batch_file_each(dir, job, name_see, out, err);
    close(dir);
    return rc;
}

/* The folder is made, and empty, when it was not there before. */
static int division_check(const char *job, uint32_t index, uint32_t count, struct mr_err *err)
{
    struct found found;
    int rc = folder_scan(job, &found, err);

    if (rc == MR_OK && found.unlike) {
        rc = MR_FAIL(err, MR_E_INVALID,
                     "the job in %s is divided into %u shards, so --shard %u/%u is none of them",
                     job, found.unlike == count ? found.count : found.unlike, index, count);
    } else if (rc == MR_OK && found.is_whole_job) {
        rc = MR_FAIL(err, MR_E_INVALID, "the job in %s is not divided into shards", job);
    }
    return rc;
}

int shard_folder(char **out, const char *job, uint32_t index, uint32_t count, bool make,
                 struct mr_err *err)
{
    char name[64];
    struct mr_buf path;
    int rc = MR_OK;

    snprintf(name, sizeof name, NAME_FORMAT, index, count);
    mr_buf_init(&path, 0);
    mr_buf_printf(&path, "%s/%s", job, name);
    if (make) {
        const int dir = batch_file_make_folders(mr_buf_cstr(&path), err);
        rc = dir < 0 ? dir : division_check(job, index, count, err);
        if (dir >= 0) {
            close(dir);
        }
        if (dir >= 0 && rc < 0) {
            rmdir(mr_buf_cstr(&path)); /* if there is nothing in it */
        }
    }
    if (rc == MR_OK) {
        *out = mr_strndup(mr_buf_cstr(&path), path.len);
    }
    mr_buf_fini(&path);
    return rc;
}

/* ---- from another process ---- */

static int shard_summary(const char *job, uint32_t index, uint32_t count,
                         struct mr_batch_shard *out, struct mr_err *err)
{
    int rc = shard_folder(&out->folder, job, index, count, false, err);

    if (rc == MR_OK) {
        rc = mr_batch_summary(out->folder, &out->summary, err);
        out->is_begun = rc == MR_OK;
    }
    return rc == MR_E_NOT_FOUND ? MR_OK : rc;
}

int mr_batch_shard_summaries(const char *folder, struct mr_batch_shard **out, size_t *out_count,
                             struct mr_err *err)
{
    struct found found;
    int rc = folder_scan(folder, &found, err);

    if (rc == MR_OK && found.unlike) {
        rc = MR_FAIL(err, MR_E_INVALID, "%s holds shards of %u and of %u", folder, found.count,
                     found.unlike);
    }
    if (rc < 0) {
        return rc;
    }
    struct mr_batch_shard *shards = MR_NEW_ARRAY(struct mr_batch_shard, found.count + 1);
    for (uint32_t i = 0; i < found.count && rc == MR_OK; i++) {
        rc = shard_summary(folder, i, found.count, &shards[i], err);
    }
    if (rc < 0) {
        mr_batch_shards_free(&shards, found.count);
        return rc;
    }
    *out = shards;
    *out_count = found.count;
    return MR_OK;
}

void mr_batch_shards_free(struct mr_batch_shard **shards, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        mr_free((*shards)[i].folder);
    }
    mr_freep(shards);
}
