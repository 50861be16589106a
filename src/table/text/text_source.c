/* Sources of text: reads rows one after another through a window of a file into columns.
 *
 * One cursor: an open file, and the number of its next row. Reading on costs one pass; a later row is found by
 * skipping the rows before it; going back opens the file again. An error in a row is a fault of that row, as long as
 * the next one can be found. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "table/io/io.h"
#include "table/rows/schema_join.h"
#include "table/values/values.h"
#include "text.h"

#define GUESS_ROWS        1000
#define GUESS_BYTES       ((uint64_t)1 << 20)
#define GUESS_BYTES_OTHER ((uint64_t)64 << 10) /* of each file but the first */
#define ROWS_MOST         1000000              /* of a read, as each may be a fault */

static void file_close(struct mr_text_source *s)
{
    mr_input_close(&s->in);
    s->row = s->lines = 0;
}

static int file_open(struct mr_text_source *s, size_t file, struct mr_schema *out,
                     struct mr_err *err)
{
    int rc;

    file_close(s);
    s->is_sound = s->is_sound && s->file == file;
    s->file = file;
    const struct mr_source_stream *stream = s->setup->options->stream;
    s->patience_ns = INT64_MAX;
    MR_TRY(stream ? mr_input_open_stream(&s->in, &s->setup->files[file], stream,
                                         s->setup->cancel_fd, err)
                  : mr_input_open(&s->in, &s->setup->files[file], s->setup->s3, err));
    MR_TRY(mr_input_skip_mark(&s->in, err));
    rc = s->ops->head ? s->ops->head(s, out, err) : MR_OK;
out:
    if (rc < 0) {
        file_close(s);
    }
    return rc;
}

/* The first bad row of a compressed file may be caused by damage, which gzip reports only at the end: then the file
 * cannot be read from here on, and its rows are not dead letters. */
static int damage_check(struct mr_text_source *s, struct mr_err *err)
{
    if (!s->in.unpacker || s->is_sound) {
        return MR_OK;
    }
    const int rc = mr_input_check(&s->setup->files[s->file], s->setup->s3, &s->is_cancelled, err);
    s->is_sound = rc == MR_OK;
    return rc;
}

/* ---- guessing the columns ---- */

static int row_guess(struct mr_text_source *s, const struct mr_text_row *row, struct mr_schema *io,
                     struct mr_err *err)
{
    int rc = row->is_wrong ? MR_FAIL(err, MR_E_INVALID, "%s", row->why)
                           : s->ops->guess(s, row->text, io, err);

    mr_arena_reset(&s->scratch);
    return rc;
}

static int rows_guess(struct mr_text_source *s, struct mr_schema *io, struct mr_err *err)
{
    const uint64_t most = s->file == 0 ? GUESS_BYTES : GUESS_BYTES_OTHER;
    struct mr_err first = {0};
    struct mr_text_row row;
    uint64_t bytes = 0;
    uint64_t good = 0;

    for (s->row = 0; s->row < GUESS_ROWS && bytes < most; s->row++, bytes += row.text.len) {
        struct mr_err bad = {0};
        int rc = s->ops->next(s, &row, err);
        if (rc == MR_E_INVALID && good > 0) {
            break; /* damage, which the read will report */
        }
        if (rc < 0) {
            return rc;
        }
        if (row.is_end) {
            break;
        }
        rc = row_guess(s, &row, io, &bad);
        if (rc == MR_E_EXHAUSTED || rc == MR_E_UNSUPPORTED) {
            return MR_FAIL(err, rc, "'%s': row %llu: %s", s->in.file->path,
                           (unsigned long long)s->row, bad.msg);
        }
        first = s->row == 0 ? bad : first;
        good += rc == MR_OK;
    }
    if (s->row == 0 || good > 0) {
        return MR_OK;
    }
    const int rc = damage_check(s, err);
    return rc < 0 ? rc
                  : MR_FAIL(err, MR_E_INVALID,
                            "'%s' is no table of %s: its first %llu rows are all wrong; row 0: %s",
                            s->in.file->path, s->ops->name, (unsigned long long)s->row, first.msg);
}

int mr_text_source_schema(struct mr_text_source *s, size_t file, struct mr_schema *out,
                          struct mr_err *err)
{
    int rc;

    MR_TRY(file_open(s, file, out, err));
    rc = rows_guess(s, out, err);
out:
    file_close(s);
    if (rc < 0) {
        mr_schema_fini(out);
    }
    return rc;
}

/* ---- rows ---- */

static int row_fault(struct mr_text_source *s, struct mr_rows *rows, const char *text,
                     struct mr_err *err)
{
    char located[640];
    const int rc = damage_check(s, err);

    if (rc < 0) {
        return rc;
    }
    for (size_t i = 0; i < s->schema->count; i++) {
        mr_column_cut(&s->builders[i], rows->count);
        mr_column_add_null(&s->builders[i]);
    }
    if (s->in.is_stream &&
        s->lines > 0) { /* a row of a stream cannot be read again by its number */
        snprintf(located, sizeof located, "line %llu: %s", (unsigned long long)s->lines, text);
        text = located;
    }
    return mr_rows_fault(rows, rows->count, text)
               ? MR_OK
               : MR_FAIL(err, MR_E_EXHAUSTED, "no memory for what is wrong with a row");
}

static int row_read(struct mr_text_source *s, mr_str text, struct mr_rows *rows, struct mr_err *err)
{
    struct mr_err why;
    char type[64];
    char fault[sizeof why.msg + 200];
    int column = -1;

    mr_err_clear(&why);
    int rc = s->ops->parse(s, text, &column, &why);
    if (s->scratch.chunks) {
        mr_arena_reset(&s->scratch);
    }
    if (rc == MR_OK) {
        return MR_OK;
    }
    if (rc == MR_E_EXHAUSTED) {
        return MR_FAIL(err, rc, "'%s': row %llu: %s", s->in.file->path, (unsigned long long)s->row,
                       why.msg);
    }
    if (column < 0) {
        snprintf(fault, sizeof fault, "not a row of %s: %s", s->ops->name, why.msg);
    } else {
        const struct mr_field *f = &s->schema->fields[column];
        snprintf(fault, sizeof fault, "column '%.100s' (%s): %s", f->name,
                 mr_field_text(f, type, sizeof type), why.msg);
    }
    return row_fault(s, rows, fault, err);
}

/* True if the builders hold about `most`; checked only after some more text was read. */
static bool is_full(const struct mr_text_source *s, uint64_t *io_unseen, uint64_t most)
{
    uint64_t bytes = 0;

    if (*io_unseen < most / 32) {
        return false;
    }
    *io_unseen = 0;
    for (size_t i = 0; i < s->schema->count; i++) {
        bytes += mr_column_builder_bytes(&s->builders[i]);
    }
    return bytes >= most;
}

int mr_text_source_more(struct mr_text_source *s, struct mr_text_row *out, struct mr_err *err)
{
    bool is_there = true;
    int rc = s->in.is_stream && s->patience_ns != INT64_MAX
                 ? mr_input_wait(&s->in, s->patience_ns, &is_there, err)
                 : MR_OK;

    out->is_idle = !is_there;
    return rc < 0 || !is_there ? rc : mr_input_more(&s->in, err);
}

static int rows_read(struct mr_text_source *s, uint64_t max_rows, uint64_t max_bytes,
                     struct mr_rows *rows, struct mr_err *err)
{
    struct mr_text_row row;
    uint64_t unseen = 0;
    int rc;

    s->patience_ns = INT64_MAX;
    while (rows->count < max_rows) {
        rc = s->ops->next(s, &row, err);
        if (rc < 0) {
            return rc;
        }
        if (row.is_idle) {
            break;
        }
        if (row.is_end) {
            s->setup->files[s->file].rows = (int64_t)s->row;
            break;
        }
        rc = row.is_wrong ? row_fault(s, rows, row.why, err) : row_read(s, row.text, rows, err);
        if (rc < 0) {
            return rc;
        }
        rows->count++;
        s->row++;
        s->row_text = MR_MAX((uint64_t)row.text.len, s->row_text - s->row_text / 16);
        if (s->in.is_stream && rows->count == 1) {
            s->patience_ns = mr_ns_after(mr_now_ns(), s->setup->options->stream->linger_ns);
        }
        unseen += row.text.len + s->row_least;
        if (is_full(s, &unseen, max_bytes)) {
            break;
        }
    }
    return MR_OK;
}

static int rows_finish(struct mr_text_source *s, struct mr_rows *rows, struct mr_err *err)
{
    int rc = MR_OK;

    for (size_t i = 0; rc == MR_OK && rows->count > 0 && i < s->schema->count; i++) {
        mr_column_cut(&s->builders[i], rows->count);
        rc = mr_column_builder_finish(&s->builders[i], rows, i, err);
    }
    return rc;
}

/* Moves to a row of a file; *out_is_there: the row exists. */
static int row_seek(struct mr_text_source *s, size_t file, uint64_t row, bool *out_is_there,
                    struct mr_err *err)
{
    struct mr_text_row passed = {0};
    int rc = MR_OK;

    if (!s->in.file || s->file != file || s->row > row) {
        rc = file_open(s, file, NULL, err);
    }
    while (rc == MR_OK && s->row < row && !passed.is_end) {
        rc = s->ops->next(s, &passed, err);
        s->row += rc == MR_OK && !passed.is_end;
    }
    if (rc == MR_OK && passed.is_end) {
        s->setup->files[file].rows = (int64_t)s->row;
    }
    *out_is_there = !passed.is_end;
    return rc;
}

int mr_text_source_read(struct mr_text_source *s, size_t file, uint64_t first, uint64_t max_rows,
                        uint64_t max_bytes, struct mr_rows **out, struct mr_err *err)
{
    struct mr_rows *rows = NULL;
    bool is_there;
    int rc;

    MR_TRY(row_seek(s, file, first, &is_there, err));
    if (is_there) {
        rows = mr_rows_new(s->schema);
        rc = rows ? rows_read(s, MR_MIN(max_rows, (uint64_t)ROWS_MOST), max_bytes, rows, err)
                  : MR_FAIL(err, MR_E_EXHAUSTED, "no memory for rows");
        if (mr_is_fault_of_file(rc) && rows->count > 0 && !s->in.is_stream) {
            /* The next read begins at the bad row, and reports it, unless the file has changed. */
            rc = file_open(s, file, NULL, err);
        }
        rc = rc < 0 ? rc : rows_finish(s, rows, err);
    }
out:
    if (rc < 0) {
        for (size_t i = 0; i < s->schema->count; i++) {
            mr_column_builder_reset(&s->builders[i]);
        }
        file_close(s);
        mr_rows_unref(&rows);
        return rc;
    }
    if (rows && rows->count == 0) {
        mr_rows_unref(&rows);
    }
    mr_input_trim(&s->in);
    *out = rows;
    return MR_OK;
}

/* Long rows are usually followed by long ones: the window will grow to that length again. */
uint64_t mr_text_source_bytes(const void *source)
{
    const struct mr_text_source *s = source;

    return s->row_text > MR_WINDOW_BIG ? s->row_text : 0;
}

/* Relaxed: it orders nothing. */
void mr_text_source_cancel(void *source)
{
    struct mr_text_source *s = source;

    atomic_store_explicit(&s->is_cancelled, true, memory_order_relaxed);
}

/* ---- life ---- */

void mr_text_source_init(struct mr_text_source *s, const struct mr_text_ops *ops,
                         const struct mr_source_setup *setup)
{
    const size_t half = (size_t)MR_MIN(setup->options->memory_bytes / 2, (uint64_t)SIZE_MAX / 4);

    *s = (struct mr_text_source){.ops = ops, .setup = setup, .window_most = half};
    /* Texts with escapes are at most as long as their row, plus the arena's overhead. */
    mr_arena_init(&s->scratch, 16384, half * 2 + 65536);
}

/* Approximate bytes of a null. The product is checked against the cell's limit. */
static uint64_t field_least(const struct mr_field *f)
{
    return f->type == MR_COLUMN_FIXED_LIST ? f->width * field_least(f->item)
                                           : MR_MAX(mr_column_type_bytes(f->type), (size_t)1);
}

int mr_text_source_begin(struct mr_text_source *s, const struct mr_schema *schema,
                         struct mr_err *err)
{
    for (size_t i = 0; i < schema->count; i++) {
        int rc = mr_cell_check(&schema->fields[i], s->setup->options->max_cell_bytes, err);
        if (rc < 0) {
            return rc;
        }
    }
    s->schema = schema;
    s->builders = MR_NEW_ARRAY(struct mr_column_builder, schema->count);
    for (size_t i = 0; i < schema->count; i++) {
        mr_column_builder_init(&s->builders[i], &schema->fields[i]);
        s->row_least += field_least(&schema->fields[i]);
        mr_map_put(&s->columns, mr_str_c(schema->fields[i].name), (void *)(i + 1)); /* NOLINT */
    }
    return MR_OK;
}

void mr_text_source_fini(struct mr_text_source *s)
{
    file_close(s);
    for (size_t i = 0; s->schema && i < s->schema->count; i++) {
        mr_column_builder_fini(&s->builders[i]);
    }
    mr_free(s->builders);
    mr_map_fini(&s->columns);
    mr_arena_fini(&s->scratch);
}
