/* Copies a Parquet object into a sparse file: first its end with the footer, then the chunks of the columns, with
 * several concurrent requests.
 *
 * A chunk is fetched only once. Other parts, such as page indexes and bloom filters, are holes; DuckDB reads neither
 * without a filter on a column, and the queries here have none. */
#include "spool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "parquet_chunks.h"
#include "s3/s3.h"

#define END_BYTES   ((uint64_t)64 << 10) /* footers are rarely larger */
#define PIECE_BYTES ((uint64_t)4 << 20)
#define GAP_BYTES   ((uint64_t)256 << 10) /* smaller gaps are cheaper to read than to skip */
#define PIECES_OUT  8

struct mr_spool {
    const struct mr_source_setup *setup;
    char *folder;        /* private */
    MR_VEC(char *) made; /* folders below it and the link, in order of creation */
    size_t file;
    int fd;          /* -1: none */
    uint64_t end_at; /* the object is complete from here on */
    struct mr_buf footer;
    uint64_t data_end; /* where the footer begins */
    bool is_whole;
    uint64_t filled_from; /* row; UINT64_MAX: nothing was filled */
};

static const struct mr_source_file *file_of(const struct mr_spool *s)
{
    return &s->setup->files[s->file];
}

static int io_fail(const struct mr_spool *s, const char *what, struct mr_err *err)
{
    const int why = errno;

    return MR_FAIL(err, why == ENOSPC || why == EDQUOT ? MR_E_EXHAUSTED : MR_E_IO,
                   "cannot %s '%s', which bytes of objects go to: %s", what, s->folder,
                   strerror(why));
}

/* ---- the folder ---- */

int mr_spool_new(struct mr_spool **out, const struct mr_source_setup *setup, struct mr_err *err)
{
    const char *given = setup->options->spool;
    const char *usual = getenv("TMPDIR");
    const char *in = given ? given : usual && usual[0] ? usual : "/var/tmp";
    const size_t room = strlen(in) + 32;
    struct mr_spool *s = MR_NEW(struct mr_spool);

    s->setup = setup;
    s->fd = -1;
    mr_buf_init(&s->footer, 0);
    s->folder = mr_alloc(room);
    snprintf(s->folder, room, "%s/millrace-XXXXXX", in);
    if (!mkdtemp(s->folder)) {
        snprintf(s->folder, room, "%s", in);
        const int rc = io_fail(s, "make a folder in", err);
        mr_freep(&s->folder);
        mr_spool_free(&s);
        return rc;
    }
    *out = s;
    return MR_OK;
}

static void file_close(struct mr_spool *s)
{
    if (s->fd >= 0) {
        close(s->fd);
        s->fd = -1;
    }
    while (s->made.len > 0) {
        char *path = s->made.at[--s->made.len];
        if (unlink(path) < 0) {
            rmdir(path);
        }
        mr_free(path);
    }
    mr_buf_reset(&s->footer);
}

void mr_spool_free(struct mr_spool **spool)
{
    struct mr_spool *s = *spool;

    *spool = NULL;
    if (!s) {
        return;
    }
    file_close(s);
    if (s->folder) {
        rmdir(s->folder);
    }
    MR_VEC_FINI(&s->made);
    mr_buf_fini(&s->footer);
    mr_free(s->folder);
    mr_free(s);
}

const char *mr_spool_path(const struct mr_spool *s)
{
    return s->made.at[s->made.len - 1];
}

/* Makes the folders of the key that name columns, and a link to the unlinked file. */
static int link_make(struct mr_spool *s, struct mr_err *err)
{
    mr_str rest = mr_str_c(file_of(s)->path);
    mr_str part;
    char target[64];
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s", s->folder);

    while (mr_str_split(&rest, '/', &part)) {
        if (!rest.ptr || mr_str_find(part, '=') <= 0) {
            continue;
        }
        n += snprintf(path + n, sizeof path - (size_t)n, "/%.*s", MR_STR_ARG(part));
        if ((size_t)n >= sizeof path - 32 || mkdir(path, 0700) < 0) {
            return io_fail(s, "make a folder in", err);
        }
        MR_VEC_PUSH(&s->made, mr_strndup(path, (size_t)n));
    }
    snprintf(target, sizeof target, "/proc/self/fd/%d", s->fd);
    n += snprintf(path + n, sizeof path - (size_t)n, "/data-%zu.parquet", s->file);
    if (symlink(target, path) < 0) {
        return io_fail(s, "make a link in", err);
    }
    MR_VEC_PUSH(&s->made, mr_strndup(path, (size_t)n));
    return MR_OK;
}

static int file_make(struct mr_spool *s, struct mr_err *err)
{
    const size_t room = strlen(s->folder) + 16;
    char *path = mr_alloc(room);

    snprintf(path, room, "%s/data-XXXXXX", s->folder);
    s->fd = mkostemp(path, O_CLOEXEC);
    int rc = s->fd < 0 ? io_fail(s, "make a file in", err) : MR_OK;
    if (rc == MR_OK) {
        unlink(path);
        rc = ftruncate(s->fd, (off_t)file_of(s)->bytes) < 0 ? io_fail(s, "write to", err)
                                                            : link_make(s, err);
    }
    mr_free(path);
    return rc;
}

/* ---- bytes ---- */

struct piece {
    struct mr_s3_fetch *fetch;
    uint64_t first;
};

static int bytes_write(struct mr_spool *s, uint64_t at, mr_bytes data, struct mr_err *err)
{
    while (data.len > 0) {
        const ssize_t n = pwrite(s->fd, data.ptr, data.len, (off_t)at);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return io_fail(s, "write to", err);
        }
        data.ptr += n;
        data.len -= (size_t)n;
        at += (uint64_t)n;
    }
    return MR_OK;
}

static int piece_end(struct mr_spool *s, struct piece *p, struct mr_err *err)
{
    struct mr_block *block = NULL;
    mr_bytes data;
    int rc = mr_s3_fetch_end(&p->fetch, &block, &data, err);

    if (rc == MR_OK) {
        rc = bytes_write(s, p->first, data, err);
        mr_block_unref(&block);
    }
    return rc;
}

static int ranges_get(struct mr_spool *s, const struct parquet_range *ranges, size_t count,
                      struct mr_err *err)
{
    struct mr_s3_place at;
    struct piece out[PIECES_OUT];
    size_t begun = 0;
    size_t ended = 0;
    int rc = mr_s3_uri_parse(file_of(s)->path, &at.bucket, &at.key, err);

    for (size_t i = 0; i < count && rc == MR_OK; i++) {
        for (uint64_t first = ranges[i].first; first < ranges[i].end && rc == MR_OK;) {
            const uint64_t n = MR_MIN(ranges[i].end - first, PIECE_BYTES);
            if (begun - ended == PIECES_OUT) {
                rc = piece_end(s, &out[ended++ % PIECES_OUT], err);
            }
            out[begun++ % PIECES_OUT] = (struct piece){
                mr_s3_fetch_begin(s->setup->s3, at, file_of(s)->etag, first, (size_t)n), first};
            first += n;
        }
    }
    for (; ended < begun; ended++) {
        struct piece *p = &out[ended % PIECES_OUT];
        if (rc == MR_OK) {
            rc = piece_end(s, p, err);
        } else {
            mr_s3_fetch_drop(&p->fetch);
        }
    }
    return rc;
}

static int range_get(struct mr_spool *s, uint64_t first, uint64_t end, struct mr_err *err)
{
    const struct parquet_range range = {first, end};

    return ranges_get(s, &range, 1, err);
}

/* ---- footers ---- */

/* Reads the footer from the fetched end. */
static int footer_read(struct mr_spool *s, struct mr_err *err)
{
    const uint64_t bytes = file_of(s)->bytes;
    uint8_t tail[PARQUET_TAIL_BYTES];

    if (pread(s->fd, tail, sizeof tail, (off_t)(bytes - sizeof tail)) != sizeof tail) {
        return io_fail(s, "read", err);
    }
    const uint32_t len = parquet_footer_bytes(tail);
    if (len == 0 || len > bytes - PARQUET_HEAD_BYTES - PARQUET_TAIL_BYTES) {
        return MR_OK; /* the reader of the file will report the error */
    }
    s->data_end = bytes - PARQUET_TAIL_BYTES - len;
    if (s->data_end < s->end_at) {
        int rc = range_get(s, s->data_end, s->end_at, err);
        if (rc < 0) {
            return rc;
        }
        s->end_at = s->data_end;
    }
    char *room = mr_buf_reserve(&s->footer, len);
    if (!room) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the footer of '%s'", file_of(s)->path);
    }
    if (pread(s->fd, room, len, (off_t)s->data_end) != (ssize_t)len) {
        return io_fail(s, "read", err);
    }
    s->footer.len = len;
    return MR_OK;
}

int mr_spool_open(struct mr_spool *s, size_t file, struct mr_err *err)
{
    int rc;

    if (s->fd >= 0 && s->file == file) {
        return MR_OK;
    }
    file_close(s);
    s->file = file;
    s->is_whole = false;
    s->filled_from = UINT64_MAX;
    const uint64_t bytes = file_of(s)->bytes;
    if (bytes < PARQUET_HEAD_BYTES + PARQUET_TAIL_BYTES) {
        return MR_FAIL(err, MR_E_INVALID, "'%s' is too small to be a Parquet file",
                       file_of(s)->path);
    }
    MR_TRY(file_make(s, err));
    s->end_at = bytes - MR_MIN(bytes, END_BYTES);
    /* Every Parquet file begins with this; readers check it. */
    MR_TRY(bytes_write(s, 0, (mr_bytes){(const uint8_t *)"PAR1", PARQUET_HEAD_BYTES}, err));
    MR_TRY(range_get(s, s->end_at, bytes, err));
    rc = footer_read(s, err);
out:
    if (rc < 0) {
        file_close(s);
    }
    return rc;
}

bool mr_path_has_column(const char *path, const char *column)
{
    mr_str rest = mr_str_c(path);
    const size_t len = strlen(column);
    mr_str part;

    while (mr_str_split(&rest, '/', &part) && rest.ptr) { /* not the file's name */
        if (part.len > len && part.ptr[len] == '=' &&
            mr_str_ieq(mr_str_sub(part, 0, len), mr_str_n(column, len))) {
            return true;
        }
    }
    return false;
}

int mr_spool_fill(struct mr_spool *s, const struct mr_schema *columns, uint64_t first_row,
                  struct mr_err *err)
{
    struct parquet_ranges ranges = {0};
    const char **names = MR_NEW_ARRAY(const char *, columns->count + 1);
    const mr_bytes footer = {(const uint8_t *)s->footer.ptr, s->footer.len};
    size_t count = 0;
    int rc = MR_OK;

    for (size_t i = 0; i < columns->count; i++) {
        const char *name = columns->fields[i].name;
        /* A column that the file has too is fetched: it is the one that counts. */
        if (!mr_path_has_column(file_of(s)->path, name) ||
            parquet_chunks_find(footer, s->data_end, &name, 1, first_row, GAP_BYTES, &ranges)) {
            names[count++] = name;
        }
        ranges.at.len = 0;
    }
    if (s->is_whole || first_row >= s->filled_from) {
        goto out;
    }
    if (parquet_chunks_find(footer, s->data_end, names, count, first_row, GAP_BYTES, &ranges)) {
        rc = ranges_get(s, ranges.at.at, ranges.at.len, err);
        s->filled_from = rc == MR_OK ? first_row : s->filled_from;
    } else {
        rc = range_get(s, 0, s->end_at, err);
        s->is_whole = rc == MR_OK;
    }
out:
    MR_VEC_FINI(&ranges.at);
    mr_free(names);
    return rc;
}
