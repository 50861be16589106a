/* The Parquet writer: row groups, and their pages in memory.
 *
 * The pages of a leaf follow each other in a row group, so only one leaf can be written to the file while rows
 * arrive. That is the one with the most bytes; pages of the others are held until the row group ends, which it does
 * when they exceed PARQUET_HELD_BYTES. Rows so large that a single one would exceed it make a row group of their own,
 * for which nothing is held: all their values are in memory, and leaf after leaf is written from them.
 *
 * Thread: one at a time. Not here: syncing and reading. */
#include <zstd.h>

#include "base/mem.h"
#include "parquet.h"

#define GROUP_BYTES (64u << 20)

/* ---- row groups ---- */

static uint64_t held_bytes(const struct parquet_writer *w)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < w->leaf_count; i++) {
        const struct parquet_leaf *l = &w->leaves[i];
        bytes += l == w->streamed ? 0 : l->held_bytes + parquet_page_bytes(l);
    }
    return bytes;
}

static int leaf_finish(struct parquet_writer *w, struct parquet_leaf *l, struct mr_err *err)
{
    int rc = MR_OK;

    if (l != w->streamed) {
        l->chunk_at = w->at;
        rc = parquet_held_write(w, l, err);
        w->streamed = l; /* its last page follows them directly */
    }
    return rc == MR_OK ? parquet_page_end(w, l, err) : rc;
}

static int group_end(struct parquet_writer *w, struct mr_err *err)
{
    int rc = MR_OK;

    if (w->group_rows == 0) {
        return MR_OK;
    }
    if (w->streamed) {
        rc = leaf_finish(w, w->streamed, err);
    }
    const struct parquet_leaf *done = w->streamed;
    for (size_t i = 0; i < w->leaf_count && rc == MR_OK; i++) {
        if (&w->leaves[i] != done) {
            rc = leaf_finish(w, &w->leaves[i], err);
        }
    }
    if (rc == MR_OK) {
        rc = parquet_group_describe(w, err);
    }
    w->rows += w->group_rows;
    w->group_count++;
    w->group_rows = w->group_bytes = 0;
    w->streamed = NULL;
    return rc;
}

static int begin(struct parquet_writer *w, struct mr_err *err)
{
    return w->at == 0 ? parquet_write(w, "PAR1", 4, err) : MR_OK;
}

/* Starts a row group: the leaf with the most bytes in these rows is streamed. */
static int group_begin(struct parquet_writer *w, const struct mr_rows *rows, uint64_t first,
                       uint64_t count, struct mr_err *err)
{
    uint64_t most = 0;
    int rc = begin(w, err);

    for (size_t i = 0; i < w->leaf_count; i++) {
        const uint64_t bytes = parquet_leaf_weight(&w->leaves[i], rows, first, count);
        if (!w->streamed || bytes > most) {
            most = bytes;
            w->streamed = &w->leaves[i];
        }
    }
    w->group_at = w->at;
    w->streamed->chunk_at = w->at;
    return rc;
}

/* ---- rows ---- */

/* Bytes that rows add to the row group, and to its held pages. */
struct weight {
    uint64_t all;
    uint64_t held;
};

static struct weight rows_weight(const struct parquet_writer *w, const struct mr_rows *rows,
                                 uint64_t first, uint64_t count)
{
    struct weight sum = {0, 0};

    for (size_t i = 0; i < w->leaf_count; i++) {
        const uint64_t bytes = parquet_leaf_weight(&w->leaves[i], rows, first, count);
        sum.all += bytes;
        sum.held += &w->leaves[i] == w->streamed ? 0 : bytes;
    }
    return sum;
}

/* The number of rows of `count` that keep row group and held bytes within their bounds; may be 0. */
static uint64_t rows_fitting(const struct parquet_writer *w, const struct mr_rows *rows,
                             uint64_t first, uint64_t count, uint64_t all, uint64_t held)
{
    uint64_t low = 0;

    for (uint64_t high = count + 1; high - low > 1;) {
        const uint64_t middle = high == count + 1 ? count : low + (high - low) / 2;
        const struct weight sum = rows_weight(w, rows, first, middle);
        if (sum.all <= all && sum.held <= held) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Writes a row group of these rows alone, leaf by leaf. */
static int group_whole(struct parquet_writer *w, const struct mr_rows *rows, uint64_t first,
                       uint64_t count, struct mr_err *err)
{
    int rc = MR_OK;

    w->group_rows = count;
    for (size_t i = 0; i < w->leaf_count && rc == MR_OK; i++) {
        struct parquet_leaf *l = w->streamed = &w->leaves[i];
        l->chunk_at = w->at;
        rc = parquet_leaf_put(w, l, rows, first, count, err);
        if (rc == MR_OK) {
            rc = parquet_page_end(w, l, err);
        }
    }
    if (rc == MR_OK) {
        rc = parquet_group_describe(w, err);
    }
    w->rows += count;
    w->group_count++;
    w->group_rows = 0;
    w->streamed = NULL;
    return rc;
}

static int rows_take(struct parquet_writer *w, const struct mr_rows *rows, uint64_t first,
                     uint64_t count, struct mr_err *err)
{
    int rc = MR_OK;

    w->group_bytes += rows_weight(w, rows, first, count).all;
    w->group_rows += count;
    for (size_t i = 0; i < w->leaf_count && rc == MR_OK; i++) {
        rc = parquet_leaf_put(w, &w->leaves[i], rows, first, count, err);
    }
    return rc;
}

static int writer_put(void *writer, const struct mr_rows *rows, uint64_t first, uint64_t count,
                      struct mr_err *err)
{
    struct parquet_writer *w = writer;
    int rc = MR_OK;

    while (count > 0 && rc == MR_OK) {
        if (w->group_rows == 0 && (rc = group_begin(w, rows, first, count, err)) < 0) {
            break;
        }
        const uint64_t held = held_bytes(w);
        const uint64_t all_room = w->group_most - MR_MIN(w->group_bytes, w->group_most);
        const uint64_t held_room = PARQUET_HELD_BYTES - MR_MIN(held, PARQUET_HELD_BYTES);
        uint64_t n = rows_fitting(w, rows, first, count, all_room, held_room);
        if (n > 0) {
            rc = rows_take(w, rows, first, n, err);
        } else if (w->group_rows > 0) {
            rc = group_end(w, err);
        } else if (rows_weight(w, rows, first, 1).held <= PARQUET_HELD_BYTES) {
            rc = rows_take(w, rows, first, n = 1, err);
        } else {
            n = MR_MAX(rows_fitting(w, rows, first, count, w->group_most, UINT64_MAX), (uint64_t)1);
            rc = group_whole(w, rows, first, n, err);
        }
        first += n;
        count -= n;
    }
    return rc;
}

/* ---- the whole ---- */

/* Notes which columns are lists of one width, which Parquet's own schema cannot express. */
static void widths_note(struct parquet_writer *w)
{
    for (size_t i = 0; i < w->leaf_count; i++) {
        const struct parquet_leaf *l = &w->leaves[i];
        bool is_fixed = false;
        for (unsigned k = 0; k < l->depth; k++) {
            is_fixed |= l->path[k]->type == MR_COLUMN_FIXED_LIST;
        }
        if (is_fixed) {
            struct mr_buf key;
            char type[512];
            mr_buf_init(&key, 0);
            MR_BUF_LIT(&key, "millrace.type:");
            mr_buf_c(&key, l->path[0]->name);
            parquet_note(w, mr_buf_cstr(&key), mr_field_text(l->path[0], type, sizeof type));
            w->notes.failed |= key.failed;
            mr_buf_fini(&key);
        }
    }
}

static void writer_free(void *writer)
{
    struct parquet_writer *w = writer;

    parquet_leaves_free(w);
    mr_buf_fini(&w->groups);
    mr_buf_fini(&w->notes);
    mr_buf_fini(&w->head);
    mr_buf_fini(&w->packed);
    ZSTD_freeCCtx(w->zstd);
    mr_free(w);
}

static int writer_open(void **out, int fd, const struct mr_schema *schema,
                       const struct mr_writer_options *options, struct mr_err *err)
{
    if (options->compression != MR_COMPRESSION_NONE &&
        options->compression != MR_COMPRESSION_ZSTD) {
        return MR_FAIL(err, MR_E_UNSUPPORTED,
                       "pages of a Parquet file are compressed by zstd or not at all");
    }
    if (schema->count == 0) {
        return MR_FAIL(err, MR_E_UNSUPPORTED, "a Parquet file has one column at least");
    }
    struct parquet_writer *w = MR_NEW(struct parquet_writer);
    w->fd = fd;
    w->no_room = options->on_no_room;
    w->schema = schema;
    w->is_zstd = options->compression == MR_COMPRESSION_ZSTD;
    w->group_most = options->row_group_bytes > 0 ? options->row_group_bytes : GROUP_BYTES;
    mr_buf_init(&w->groups, UINT32_MAX / 2);
    mr_buf_init(&w->notes, UINT32_MAX / 4);
    mr_buf_init(&w->head, INT32_MAX);
    mr_buf_init(&w->packed, UINT32_MAX);
    int rc = parquet_leaves_new(w, err);
    if (rc < 0) {
        writer_free(w);
        return rc;
    }
    for (size_t i = 0; i < options->note_count; i++) {
        parquet_note(w, options->notes[2 * i], options->notes[2 * i + 1]);
    }
    widths_note(w);
    *out = w;
    return MR_OK;
}

static uint64_t writer_bytes(const void *writer)
{
    const struct parquet_writer *w = writer;
    uint64_t bytes = w->at + held_bytes(w);

    return w->streamed ? bytes + parquet_page_bytes(w->streamed) : bytes;
}

static int writer_finish(void *writer, struct mr_err *err)
{
    struct parquet_writer *w = writer;
    int rc = begin(w, err);

    if (rc == MR_OK) {
        rc = group_end(w, err);
    }
    return rc == MR_OK ? parquet_footer_write(w, err) : rc;
}

const struct mr_writer_ops mr_parquet_writer_ops = {
    .open = writer_open,
    .put = writer_put,
    .bytes = writer_bytes,
    .finish = writer_finish,
    .free = writer_free,
};
