/* The Arrow IPC writer: rows gathered to record batches, as a stream or as a file.
 *
 * Rows are copied to columns of the batch until there are enough of them or until a flush, as readers pay per batch.
 * A batch is built in memory, its buffers one after the other, then written at once. */
#include <string.h>
#include <zstd.h>

#include "arrow.h"
#include "base/mem.h"
#include "base/vec.h"
#include "table/io/io.h"

#define BATCH_ROWS  65536
#define BATCH_BYTES ((uint64_t)8 << 20)
#define STEP_BYTES  (BATCH_BYTES / 16) /* rows are copied in steps of about this size */
#define BLOCKS_MOST (INT32_MAX / 64)

struct writer {
    int fd;
    struct mr_no_room no_room;
    const struct mr_schema *schema;
    bool is_stream;
    bool is_zstd;
    struct mr_column_builder *columns;
    uint64_t rows; /* in the columns */
    uint64_t at;   /* bytes written */
    MR_VEC(struct arrow_footer_block) blocks;
    /* the batch being made */
    MR_VEC(struct arrow_pair) nodes;
    MR_VEC(struct arrow_pair) buffers;
    struct mr_buf body;
    struct mr_buf scratch;
    struct mr_buf metadata;
};

/* ---- messages ---- */

static int bytes_write(const struct writer *w, const void *data, size_t bytes, struct mr_err *err)
{
    return mr_fd_writev(w->fd, &(struct iovec){(void *)(uintptr_t)data, bytes}, 1, &w->no_room,
                        err);
}

static int metadata_write(const struct writer *w, const struct mr_buf *body, struct mr_err *err)
{
    const struct mr_buf *metadata = &w->metadata;
    const int32_t head[2] = {-1, (int32_t)metadata->len};
    struct iovec pieces[] = {{(void *)(uintptr_t)head, sizeof head},
                             {metadata->ptr, metadata->len},
                             {body ? body->ptr : NULL, body ? body->len : 0}};

    if (metadata->failed || (body && body->failed)) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory to write a batch of rows");
    }
    return mr_fd_writev(w->fd, pieces, 3, &w->no_room, err);
}

int arrow_end_write(int fd, const struct mr_schema *schema, const struct arrow_footer_block *blocks,
                    size_t count, const struct mr_no_room *no_room, uint64_t *out_bytes,
                    struct mr_err *err)
{
    static const int32_t end[2] = {-1, 0};
    struct mr_buf footer;

    if (count > BLOCKS_MOST) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "a file of Arrow holds %d batches of rows",
                       BLOCKS_MOST);
    }
    mr_buf_init(&footer, INT32_MAX);
    arrow_put_footer(&footer, schema, blocks, (uint32_t)count);
    int32_t bytes = (int32_t)footer.len;
    struct iovec pieces[] = {{(void *)(uintptr_t)end, sizeof end},
                             {footer.ptr, footer.len},
                             {&bytes, sizeof bytes},
                             {(void *)(uintptr_t)ARROW_MAGIC, 6}};
    *out_bytes = sizeof end + footer.len + sizeof bytes + 6;
    int rc = footer.failed ? MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the footer")
                           : mr_fd_writev(fd, pieces, 4, no_room, err);
    mr_buf_fini(&footer);
    return rc;
}

/* ---- buffers ---- */

static int packed_put(struct writer *w, const void *data, size_t bytes, struct mr_err *err)
{
    const size_t room = ZSTD_compressBound(bytes);
    int64_t plain = (int64_t)bytes;
    char *to = mr_buf_reserve(&w->body, sizeof plain + room);

    if (!to) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory to write a batch of rows");
    }
    size_t n = ZSTD_compress(to + sizeof plain, room, data, bytes, 1);
    if (ZSTD_isError(n)) {
        return MR_FAIL(err, MR_E_INTERNAL, "zstd: %s", ZSTD_getErrorName(n));
    }
    if (n >= bytes) {
        memcpy(to + sizeof plain, data, bytes);
        n = bytes;
        plain = -1;
    }
    memcpy(to, &plain, sizeof plain);
    w->body.len += sizeof plain + n;
    return MR_OK;
}

/* Puts a buffer into the body. */
static int buffer_put(struct writer *w, const void *data, size_t bytes, struct mr_err *err)
{
    const size_t at = w->body.len;
    int rc = MR_OK;

    if (bytes > 0 && w->is_zstd) {
        rc = packed_put(w, data, bytes, err);
    } else if (bytes > 0) {
        mr_buf_append(&w->body, data, bytes);
    }
    MR_VEC_PUSH(&w->buffers, ((struct arrow_pair){(int64_t)at, (int64_t)(w->body.len - at)}));
    flat_pad(&w->body, 8);
    return rc;
}

static int valid_put(struct writer *w, const struct mr_column_builder *b, struct mr_err *err)
{
    return buffer_put(w, b->valid, b->nulls > 0 ? (size_t)(b->count / 8 + (b->count % 8 > 0)) : 0,
                      err);
}

static int offsets_put(struct writer *w, const struct mr_column_builder *b, struct mr_err *err)
{
    const uint64_t end = b->begin ? b->begin[b->count] : 0;

    if (end > INT32_MAX) {
        return MR_FAIL(
            err, MR_E_TOO_LARGE,
            "column '%s' has a row of more than %d bytes or items, which Arrow's offsets "
            "cannot hold",
            b->field->name, INT32_MAX);
    }
    mr_buf_reset(&w->scratch);
    char *to = mr_buf_reserve(&w->scratch, (size_t)(b->count + 1) * sizeof(int32_t));
    if (!to) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory to write a batch of rows");
    }
    for (uint64_t i = 0; i <= b->count; i++) {
        const int32_t offset = b->begin ? (int32_t)b->begin[i] : 0;
        memcpy(to + i * sizeof offset, &offset, sizeof offset);
    }
    return buffer_put(w, to, (size_t)(b->count + 1) * sizeof(int32_t), err);
}

static int bits_put(struct writer *w, const struct mr_column_builder *b, struct mr_err *err)
{
    const size_t bytes = (size_t)(b->count / 8 + (b->count % 8 > 0));

    mr_buf_reset(&w->scratch);
    char *to = mr_buf_reserve(&w->scratch, bytes);
    if (!to) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory to write a batch of rows");
    }
    memset(to, 0, bytes);
    for (uint64_t i = 0; i < b->count; i++) {
        to[i / 8] = (char)(to[i / 8] | (b->values[i] != 0) << i % 8);
    }
    return buffer_put(w, to, bytes, err);
}

static int column_put(struct writer *w, const struct mr_column_builder *b, struct mr_err *err)
{
    const enum mr_column_type type = b->field->type;
    int rc;

    MR_VEC_PUSH(&w->nodes, ((struct arrow_pair){(int64_t)b->count, (int64_t)b->nulls}));
    MR_TRY(valid_put(w, b, err));
    if (type == MR_COLUMN_BOOL) {
        return bits_put(w, b, err);
    }
    if (type == MR_COLUMN_STRING || type == MR_COLUMN_BINARY || type == MR_COLUMN_LIST) {
        MR_TRY(offsets_put(w, b, err));
    }
    rc = b->item ? column_put(w, b->item, err)
                 : buffer_put(w, b->values, (size_t)b->value_bytes, err);
out:
    return rc;
}

/* ---- batches ---- */

static uint64_t held_bytes(const struct writer *w)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < w->schema->count; i++) {
        bytes += mr_column_builder_bytes(&w->columns[i]);
    }
    return bytes;
}

static int batch_write(struct writer *w, struct mr_err *err)
{
    int rc = MR_OK;

    w->nodes.len = w->buffers.len = 0;
    mr_buf_reset(&w->body);
    for (size_t i = 0; i < w->schema->count; i++) {
        if (w->columns[i].has_failed) {
            return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the rows of column '%s'",
                           w->schema->fields[i].name);
        }
        MR_TRY(column_put(w, &w->columns[i], err));
        mr_column_builder_reset(&w->columns[i]);
    }
    arrow_put_batch(&w->metadata, w->rows, w->nodes.at, (uint32_t)w->nodes.len, w->buffers.at,
                    (uint32_t)w->buffers.len, w->is_zstd, w->body.len);
    MR_TRY(metadata_write(w, &w->body, err));
    const struct arrow_footer_block block = {(int64_t)w->at, (int32_t)w->metadata.len + 8, 0,
                                             (int64_t)w->body.len};
    if (!w->is_stream) {
        MR_VEC_PUSH(&w->blocks, block);
    }
    w->at += (uint64_t)block.metadata_bytes + w->body.len;
    w->rows = 0;
out:
    return rc;
}

static int writer_put(void *writer, const struct mr_rows *rows, uint64_t first, uint64_t count,
                      struct mr_err *err)
{
    struct writer *w = writer;
    uint64_t step = 1;
    uint64_t before = held_bytes(w);
    int rc = MR_OK;

    while (count > 0 && rc == MR_OK) {
        const uint64_t n = MR_MIN(MR_MIN(step, count), BATCH_ROWS - w->rows);
        for (size_t i = 0; i < w->schema->count; i++) {
            mr_column_add_rows(&w->columns[i], &rows->columns[i], first, n);
        }
        w->rows += n;
        first += n;
        count -= n;
        const uint64_t now = held_bytes(w);
        step = now - before < STEP_BYTES / 2 ? 2 * step : 1;
        before = now;
        if (w->rows == BATCH_ROWS || now >= BATCH_BYTES) {
            rc = batch_write(w, err);
            before = 0;
        }
    }
    return rc;
}

static int writer_flush(void *writer, struct mr_err *err)
{
    struct writer *w = writer;

    return w->rows > 0 ? batch_write(w, err) : MR_OK;
}

/* ---- the whole ---- */

static void writer_free(void *writer)
{
    struct writer *w = writer;

    for (size_t i = 0; i < w->schema->count; i++) {
        mr_column_builder_fini(&w->columns[i]);
    }
    mr_free(w->columns);
    MR_VEC_FINI(&w->blocks);
    MR_VEC_FINI(&w->nodes);
    MR_VEC_FINI(&w->buffers);
    mr_buf_fini(&w->body);
    mr_buf_fini(&w->scratch);
    mr_buf_fini(&w->metadata);
    mr_free(w);
}

static int field_check(const struct mr_field *f, struct mr_err *err)
{
    if (f->type == MR_COLUMN_FIXED_LIST && f->width > INT32_MAX) {
        return MR_FAIL(err, MR_E_UNSUPPORTED, "column '%s': Arrow's lists have %d items at most",
                       f->name, INT32_MAX);
    }
    return f->item ? field_check(f->item, err) : MR_OK;
}

/* Writes the schema at once, so that readers of a stream can begin. */
static int begin_write(struct writer *w, struct mr_err *err)
{
    int rc = w->is_stream ? MR_OK : bytes_write(w, ARROW_MAGIC, ARROW_MAGIC_BYTES, err);

    if (rc == MR_OK) {
        arrow_put_schema(&w->metadata, w->schema);
        rc = metadata_write(w, NULL, err);
    }
    w->at = (w->is_stream ? 0 : ARROW_MAGIC_BYTES) + 8 + w->metadata.len;
    return rc;
}

static int writer_open(void **out, int fd, const struct mr_schema *schema,
                       const struct mr_writer_options *options, struct mr_err *err)
{
    struct writer *w = MR_NEW(struct writer);
    int rc = options->compression == MR_COMPRESSION_GZIP
                 ? MR_FAIL(err, MR_E_UNSUPPORTED,
                           "batches of Arrow are compressed by zstd or not at all")
                 : MR_OK;

    w->fd = fd;
    w->no_room = options->on_no_room;
    w->schema = schema;
    w->is_stream = options->is_stream;
    w->is_zstd = options->compression == MR_COMPRESSION_ZSTD;
    w->columns = MR_NEW_ARRAY(struct mr_column_builder, schema->count + 1);
    mr_buf_init(&w->body, SIZE_MAX / 2);
    mr_buf_init(&w->scratch, SIZE_MAX / 2);
    mr_buf_init(&w->metadata, INT32_MAX);
    for (size_t i = 0; i < schema->count; i++) {
        mr_column_builder_init(&w->columns[i], &schema->fields[i]);
        rc = rc < 0 ? rc : field_check(&schema->fields[i], err);
    }
    rc = rc < 0 ? rc : begin_write(w, err);
    if (rc < 0) {
        writer_free(w);
        return rc;
    }
    *out = w;
    return MR_OK;
}

static uint64_t writer_bytes(const void *writer)
{
    const struct writer *w = writer;

    return w->at + (w->rows > 0 ? held_bytes(w) : 0);
}

static int writer_finish(void *writer, struct mr_err *err)
{
    static const int32_t end[2] = {-1, 0};
    struct writer *w = writer;
    uint64_t bytes = sizeof end;
    int rc = writer_flush(w, err);

    if (rc < 0) {
        return rc;
    }
    rc = w->is_stream ? bytes_write(w, end, sizeof end, err)
                      : arrow_end_write(w->fd, w->schema, w->blocks.at, w->blocks.len, &w->no_room,
                                        &bytes, err);
    w->at += bytes;
    return rc;
}

const struct mr_writer_ops mr_arrow_writer_ops = {
    .open = writer_open,
    .put = writer_put,
    .flush = writer_flush,
    .bytes = writer_bytes,
    .finish = writer_finish,
    .free = writer_free,
};
