/* Arrow IPC as a source: files with random access, and streams from a pipe.
 *
 * A read takes rows of the current batch and, if these are too few, of the next ones, and makes columns of all of
 * them at once. Of an uncompressed file only the bytes of these rows are read, so a batch may be larger than memory.
 * Dictionaries are applied in the order of the file; rows before and after a change of one are separate reads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrow.h"
#include "base/clock.h"
#include "base/mem.h"
#include "table/rows/schema_join.h"

#define ROWS_MOST UINT64_C(1000000) /* of a read: the limit of faults */

struct source {
    const struct mr_source_setup *setup;
    const struct mr_schema *schema;    /* from `begin` on */
    const struct arrow_field **fields; /* the schema's fields in the open file */
    struct arrow_dictionaries dictionaries;
    struct arrow_batch *batch; /* NULL: none */
    uint64_t used;             /* rows of it */
    uint64_t row;              /* the next one */
    /* a file */
    struct arrow_file open;
    size_t file;
    size_t block; /* of the batch; all earlier blocks have been applied */
    struct mr_buf metadata;
    /* or a pipe */
    struct arrow_pipe *pipe;
    struct arrow_schema pipe_schema;
    const struct arrow_message *pending; /* received, and has to wait */
    bool is_at_end;
    /* gathered by a read */
    struct arrow_slices slices;
    struct arrow_batch *held; /* batches of the slices that are used up */
    uint64_t held_bytes;
};

static const char *name_of(const struct source *s)
{
    return s->setup->files[s->file].path;
}

static uint64_t memory_of(const struct source *s)
{
    return s->setup->options->memory_bytes;
}

static const struct arrow_schema *schema_of(const struct source *s)
{
    return s->pipe ? &s->pipe_schema : &s->open.schema;
}

/* ---- life ---- */

static void held_drop(struct source *s)
{
    while (s->held) {
        struct arrow_batch *b = s->held;
        s->held = b->next;
        arrow_batch_free(&b);
    }
    s->held_bytes = 0;
    s->slices.len = 0;
}

static void file_close(struct source *s)
{
    held_drop(s);
    arrow_batch_free(&s->batch);
    arrow_dictionaries_fini(&s->dictionaries);
    arrow_file_close(&s->open);
    s->used = s->row = 0;
    s->block = 0;
}

static void close_source(void *state)
{
    struct source *s = state;

    file_close(s);
    arrow_pipe_free(&s->pipe);
    arrow_schema_fini(&s->pipe_schema);
    mr_buf_fini(&s->metadata);
    mr_free(s->slices.at);
    mr_free(s->fields);
    mr_free(s);
}

static int open_source(void **out, const struct mr_source_setup *setup, struct mr_err *err)
{
    struct source *s = MR_NEW(struct source);

    (void)err;
    s->setup = setup;
    s->dictionaries.bytes_most = setup->options->memory_bytes / 2;
    mr_buf_init(&s->metadata, SIZE_MAX / 2);
    if (setup->options->stream) {
        arrow_pipe_new(&s->pipe, setup);
    }
    *out = s;
    return MR_OK;
}

/* ---- schema ---- */

static int pipe_schema_read(struct source *s, struct mr_err *err)
{
    const struct arrow_message *m;
    enum arrow_pipe_state state;
    int rc = arrow_pipe_next(s->pipe, INT64_MAX, &state, &m, err);

    if (rc < 0) {
        return rc;
    }
    if (state != ARROW_PIPE_MESSAGE || m->kind != ARROW_SCHEMA) {
        return MR_FAIL(err, MR_E_INVALID,
                       "'%s' is no stream of Arrow: it does not begin with a schema", name_of(s));
    }
    rc = arrow_schema_parse(&s->pipe_schema, &m->header, m->version, err);
    return rc < 0 ? MR_WRAP(err, rc, "'%s'", name_of(s)) : rc;
}

static int schema(void *state, size_t file, struct mr_schema *out, struct mr_err *err)
{
    struct source *s = state;
    int rc;

    if (s->pipe) {
        rc = pipe_schema_read(s, err);
    } else {
        file_close(s);
        s->file = file;
        rc = arrow_file_open(&s->open, &s->setup->files[file], memory_of(s), err);
        s->setup->files[file].rows = rc < 0 ? -1 : (int64_t)s->open.rows;
    }
    const struct arrow_schema *found = schema_of(s);
    for (uint32_t i = 0; rc == MR_OK && i < found->count; i++) {
        struct mr_field f;
        arrow_field_column(&found->fields[i], &f);
        mr_schema_add(out, &f);
        mr_field_fini(&f);
    }
    return rc;
}

/* Finds the fields of the open file, in the order of the schema. */
static int fields_find(struct source *s, struct mr_err *err)
{
    const struct arrow_schema *found = schema_of(s);

    for (size_t i = 0; i < s->schema->count; i++) {
        const struct mr_field *f = &s->schema->fields[i];
        const struct mr_field *leaf = f;
        const struct arrow_field *at = NULL;
        for (uint32_t k = 0; k < found->count && !at; k++) {
            at = strcmp(found->fields[k].name, f->name) == 0 ? &found->fields[k] : NULL;
        }
        for (; leaf->item; leaf = leaf->item) {
        }
        if (!at) {
            return MR_FAIL(err, MR_E_INVALID, "'%s' has no column '%s'", name_of(s), f->name);
        }
        if (leaf->type == MR_COLUMN_NONE) {
            return MR_FAIL(err, MR_E_UNSUPPORTED,
                           "'%s': column '%s' is of type %s, which cannot be read", name_of(s),
                           f->name, arrow_type_name(at));
        }
        int rc = arrow_dictionaries_add(&s->dictionaries, at, err);
        if (rc < 0) {
            return MR_WRAP(err, rc, "'%s'", name_of(s));
        }
        s->fields[i] = at;
    }
    return MR_OK;
}

static int begin(void *state, const struct mr_schema *picked, struct mr_err *err)
{
    struct source *s = state;

    s->schema = picked;
    s->fields = MR_NEW_ARRAY(const struct arrow_field *, picked->count + 1);
    if (s->pipe) {
        return fields_find(s, err); /* fails with the name of an unsupported type */
    }
    file_close(s);
    s->file = mr_first_good_file(s->setup);
    int rc = arrow_file_open(&s->open, &s->setup->files[s->file], memory_of(s), err);
    rc = rc < 0 ? rc : fields_find(s, err);
    file_close(s);
    return rc;
}

/* ---- batches ---- */

static int batch_make(struct source *s, const struct arrow_message *m, struct arrow_batch **out,
                      struct mr_err *err)
{
    const struct arrow_schema *found = schema_of(s);
    int rc = arrow_batch_new(out, &m->header, found->fields, found->count, found->nodes,
                             m->body_bytes, err);

    if (rc == MR_OK) {
        (*out)->held_most = memory_of(s);
        s->used = 0;
    }
    return rc < 0 ? MR_WRAP(err, rc, "'%s'", name_of(s)) : rc;
}

/* Reads the message of a block; *out_where gets the place of its body. */
static int block_read(struct source *s, size_t block, struct arrow_message *out,
                      struct arrow_batch *out_where, struct mr_err *err)
{
    uint64_t body_at = 0;
    bool is_end;
    int rc = arrow_file_message(&s->open, s->open.blocks[block].at, &s->metadata, out, &body_at,
                                &is_end, err);

    if (rc == MR_OK && is_end) {
        rc = MR_FAIL(err, MR_E_INVALID, "'%s' has changed since it was opened", name_of(s));
    }
    *out_where =
        (struct arrow_batch){.fd = s->open.fd, .body_at = body_at, .held_most = memory_of(s)};
    return rc;
}

static int dictionary_apply(struct source *s, const struct arrow_message *m,
                            const struct arrow_batch *where, struct mr_err *err)
{
    int rc = arrow_dictionary_take(&s->dictionaries, m, where, err);
    return rc < 0 ? MR_WRAP(err, rc, "'%s'", name_of(s)) : rc;
}

/* Advances to a block of rows; applies dictionaries on the way. */
static int block_load(struct source *s, size_t block, struct mr_err *err)
{
    struct arrow_message m;
    struct arrow_batch where;
    int rc = MR_OK;

    if (block < s->block) {
        arrow_dictionaries_reset(&s->dictionaries);
        s->block = 0;
    }
    for (; s->block < block && rc == MR_OK; s->block++) {
        if (s->dictionaries.count > 0 && s->open.blocks[s->block].is_dictionary) {
            rc = block_read(s, s->block, &m, &where, err);
            if (rc == MR_OK && m.kind == ARROW_DICTIONARY &&
                arrow_dictionary_is_needed(&s->dictionaries, &m)) {
                rc = dictionary_apply(s, &m, &where, err);
            }
        }
    }
    rc = rc < 0 ? rc : block_read(s, block, &m, &where, err);
    rc = rc < 0 ? rc : batch_make(s, &m, &s->batch, err);
    if (rc < 0) {
        return rc;
    }
    s->batch->fd = where.fd;
    s->batch->body_at = where.body_at;
    return s->batch->rows == s->open.blocks[block].rows
               ? MR_OK
               : MR_FAIL(err, MR_E_INVALID, "'%s' has changed since it was opened", name_of(s));
}

/* The next batch with rows; none if a dictionary comes first and earlier rows are pending. */
static int file_next(struct source *s, bool has_rows, struct mr_err *err)
{
    size_t block = s->block + 1;

    for (; block < s->open.count && s->open.blocks[block].rows == 0; block++) {
        if (has_rows && s->dictionaries.count > 0 && s->open.blocks[block].is_dictionary) {
            return MR_OK;
        }
    }
    return block < s->open.count ? block_load(s, block, err) : MR_OK;
}

static int pipe_message_take(struct source *s, const struct arrow_message *m, struct mr_err *err)
{
    struct arrow_batch where = {.fd = -1, .held_most = memory_of(s)};
    int rc = MR_OK;

    if (m->kind == ARROW_BATCH) {
        rc = batch_make(s, m, &s->batch, err);
        if (rc == MR_OK) {
            s->batch->body = arrow_pipe_body(s->pipe);
            s->batch->held = m->body_bytes;
        }
    } else if (m->kind == ARROW_DICTIONARY && arrow_dictionary_is_needed(&s->dictionaries, m)) {
        where.body = arrow_pipe_body(s->pipe);
        where.held = m->body_bytes;
        rc = dictionary_apply(s, m, &where, err);
        mr_free(where.body);
    } else if (m->kind == ARROW_SCHEMA) {
        rc = MR_FAIL(err, MR_E_INVALID, "'%s' has a second schema", name_of(s));
    }
    return rc;
}

/* The next batch with rows, if it arrives in time. */
static int pipe_next(struct source *s, bool has_rows, int64_t until_ns, struct mr_err *err)
{
    int rc = MR_OK;

    while (rc == MR_OK && !s->batch && !s->is_at_end) {
        const struct arrow_message *m = s->pending;
        enum arrow_pipe_state state = ARROW_PIPE_MESSAGE;
        s->pending = NULL;
        rc = m ? MR_OK : arrow_pipe_next(s->pipe, until_ns, &state, &m, err);
        if (rc < 0 || state == ARROW_PIPE_IDLE) {
            return rc;
        }
        s->is_at_end = state == ARROW_PIPE_END;
        if (!s->is_at_end && has_rows && m->kind == ARROW_DICTIONARY) {
            s->pending = m;
            return MR_OK;
        }
        rc = s->is_at_end ? MR_OK : pipe_message_take(s, m, err);
        if (rc == MR_OK && s->batch && s->batch->rows == 0) {
            arrow_batch_free(&s->batch);
        }
    }
    return rc;
}

/* ---- to a row ---- */

static size_t block_find(const struct arrow_file *f, uint64_t row)
{
    size_t low = 0;

    for (size_t high = f->count; high - low > 1;) {
        const size_t middle = low + (high - low) / 2;
        if (f->blocks[middle].first_row <= row) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low; /* the last block that begins at or before the row */
}

static int file_seek(struct source *s, size_t file, uint64_t row, struct mr_err *err)
{
    int rc = MR_OK;

    if (!s->open.file || s->file != file) {
        file_close(s);
        s->file = file;
        rc = arrow_file_open(&s->open, &s->setup->files[file], memory_of(s), err);
        rc = rc < 0 ? rc : fields_find(s, err);
    } else if (s->row == row) {
        return MR_OK; /* continues after the last read */
    }
    arrow_batch_free(&s->batch);
    s->row = row;
    if (rc < 0 || row >= s->open.rows) {
        return rc;
    }
    const size_t block = block_find(&s->open, row);
    rc = block_load(s, block, err);
    s->used = row - s->open.blocks[block].first_row;
    return rc;
}

/* ---- reading ---- */

static int column_failed(const struct source *s, size_t column, int rc, struct mr_err *err)
{
    return MR_WRAP(err, rc, "'%s': column '%s'", name_of(s), s->schema->fields[column].name);
}

static int weight(const struct source *s, uint64_t count, uint64_t *out, struct mr_err *err)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < s->schema->count; i++) {
        uint64_t bytes = 0;
        int rc =
            arrow_weight(&s->dictionaries, s->fields[i], s->batch, s->used, count, &bytes, err);
        if (rc < 0) {
            return column_failed(s, i, rc, err);
        }
        sum = sum > UINT64_MAX - bytes ? UINT64_MAX : sum + bytes;
    }
    *out = sum;
    return MR_OK;
}

/* The number of rows of `count` that fit, and their bytes; may be 0. */
static int rows_fitting(const struct source *s, uint64_t count, uint64_t room, uint64_t *out,
                        uint64_t *out_bytes, struct mr_err *err)
{
    uint64_t low = 0;

    *out_bytes = 0;
    for (uint64_t high = count + 1; high - low > 1;) {
        const uint64_t middle = high == count + 1 ? count : low + (high - low) / 2;
        uint64_t bytes = 0;
        int rc = weight(s, middle, &bytes, err);
        if (rc < 0) {
            return rc;
        }
        if (bytes <= room) {
            low = middle;
            *out_bytes = bytes;
        } else {
            high = middle;
        }
    }
    *out = low;
    return MR_OK;
}

static void batch_hold(struct source *s)
{
    s->held_bytes += s->batch->held;
    s->batch->next = s->held;
    s->held = s->batch;
    s->batch = NULL;
}

/* Gets a batch with unused rows, unless there is none, or none yet. */
static int batch_get(struct source *s, uint64_t rows, int64_t until_ns, struct mr_err *err)
{
    if (s->batch && s->used < s->batch->rows) {
        return MR_OK;
    }
    if (s->batch && rows > 0) {
        batch_hold(s);
    }
    arrow_batch_free(&s->batch); /* this read has no row of it */
    if (s->held_bytes > memory_of(s) / 4) {
        return MR_OK;
    }
    return s->pipe ? pipe_next(s, rows > 0, until_ns, err) : file_next(s, rows > 0, err);
}

/* Gathers rows for a read into the slices. After an error they hold the rows before it. */
static int gather(struct source *s, uint64_t max_rows, uint64_t room, struct mr_err *err)
{
    int64_t until_ns = INT64_MAX;
    uint64_t rows = 0;

    while (rows < max_rows) {
        uint64_t n = 0;
        uint64_t bytes = 0;
        int rc = batch_get(s, rows, until_ns, err);
        if (rc < 0) {
            return rc;
        }
        if (!s->batch) {
            break;
        }
        rc = rows_fitting(s, MR_MIN(max_rows - rows, s->batch->rows - s->used), room, &n, &bytes,
                          err);
        if (rc < 0) {
            return rc;
        }
        if (n == 0 && rows > 0) {
            break;
        }
        n = MR_MAX(n, UINT64_C(1)); /* a single row larger than the limit */
        if (!arrow_slices_add(&s->slices, s->batch, s->used, n)) {
            return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for rows");
        }
        if (rows == 0 && s->pipe) {
            until_ns = mr_ns_after(mr_now_ns(), s->setup->options->stream->linger_ns);
        }
        room -= MR_MIN(room, bytes);
        rows += n;
        s->used += n;
        s->row += n;
    }
    return MR_OK;
}

/* ---- faulty rows ---- */

struct fault {
    uint64_t row;
    size_t column;
    const char *why;
};

struct faults {
    struct fault *at;
    size_t len;
    size_t cap;
};

static bool fault_add(struct faults *f, struct fault fault)
{
    if (f->len == f->cap) {
        const size_t cap = f->cap ? 2 * f->cap : 8;
        struct fault *more = mr_try_realloc(f->at, cap * sizeof *more);
        if (!more) {
            return false;
        }
        f->at = more;
        f->cap = cap;
    }
    f->at[f->len++] = fault;
    return true;
}

static int fault_compare(const void *a, const void *b)
{
    const struct fault *x = a;
    const struct fault *y = b;

    return x->row != y->row ? (x->row < y->row ? -1 : 1)
                            : (x->column > y->column) - (x->column < y->column);
}

/* Sorts by row, and keeps the fault of the first column of each. */
static void faults_sort(struct faults *f)
{
    size_t kept = 0;

    if (f->len > 0) {
        qsort(f->at, f->len, sizeof *f->at, fault_compare);
    }
    for (size_t i = 0; i < f->len; i++) {
        if (kept == 0 || f->at[kept - 1].row != f->at[i].row) {
            f->at[kept++] = f->at[i];
        }
    }
    f->len = kept;
}

static const char too_large[] = "it has too many bytes";

/* Finds cells that are too large; checks them one by one only if their total is too large. */
static int large_find(const struct source *s, size_t column, struct faults *out, struct mr_err *err)
{
    const uint64_t most = s->setup->options->max_cell_bytes;
    uint64_t base = 0;
    uint64_t bytes = 0;
    int rc = MR_OK;

    for (size_t i = 0; i < s->slices.len && rc == MR_OK; i++) {
        const struct arrow_slice *slice = &s->slices.at[i];
        rc = arrow_weight(&s->dictionaries, s->fields[column], slice->batch, slice->first,
                          slice->count, &bytes, err);
        for (uint64_t k = 0; rc == MR_OK && bytes > most && k < slice->count; k++) {
            uint64_t cell = 0;
            rc = arrow_weight(&s->dictionaries, s->fields[column], slice->batch, slice->first + k,
                              1, &cell, err);
            if (rc == MR_OK && cell > most &&
                !fault_add(out, (struct fault){base + k, column, too_large})) {
                rc = MR_FAIL(err, MR_E_EXHAUSTED, "no memory for faults of rows");
            }
        }
        base += slice->count;
    }
    return rc;
}

/* Removes the faulty rows from the slices. */
static bool slices_cut(const struct source *s, const struct faults *faults,
                       struct arrow_slices *out)
{
    size_t fault = 0;
    uint64_t base = 0;
    bool ok = true;

    out->len = 0;
    for (size_t i = 0; i < s->slices.len && ok; i++) {
        const struct arrow_slice *slice = &s->slices.at[i];
        for (uint64_t done = 0; done < slice->count && ok;) {
            uint64_t end = slice->count;
            if (fault < faults->len && faults->at[fault].row < base + slice->count) {
                end = faults->at[fault].row - base;
            }
            if (end > done) {
                ok = arrow_slices_add(out, slice->batch, slice->first + done, end - done);
                done = end;
            } else {
                ok = arrow_slices_add(out, NULL, 0, 1);
                done++;
                fault++;
            }
        }
        base += slice->count;
    }
    return ok;
}

/* Reads the columns of the rows; adds rows that cannot be read to *io_faults. */
static int columns_read(const struct source *s, struct mr_rows *rows, struct faults *io_faults,
                        struct mr_err *err)
{
    struct arrow_slices slices = {0};
    struct arrow_reading x = {.rows = rows, .dictionaries = &s->dictionaries, .err = err};
    int rc = slices_cut(s, io_faults, &slices) ? MR_OK
                                               : MR_FAIL(err, MR_E_EXHAUSTED, "no memory for rows");

    for (size_t i = 0; i < s->schema->count && rc == MR_OK; i++) {
        x.bads.len = 0;
        rc = arrow_column_read(&x, s->fields[i], &s->schema->fields[i], &slices, &rows->columns[i]);
        rc = rc < 0
                 ? rc
                 : arrow_column_widen(&x, s->fields[i], &s->schema->fields[i], &rows->columns[i]);
        if (rc < 0) {
            column_failed(s, i, rc, err);
        }
        for (size_t k = 0; k < x.bads.len && rc == MR_OK; k++) {
            const struct fault fault = {x.bads.at[k].row, i, x.bads.at[k].why};
            rc = fault_add(io_faults, fault)
                     ? MR_OK
                     : MR_FAIL(err, MR_E_EXHAUSTED, "no memory for faults of rows");
        }
    }
    mr_free(slices.at);
    mr_free(x.bads.at);
    return rc;
}

static bool faults_report(const struct source *s, const struct faults *faults, struct mr_rows *rows)
{
    for (size_t i = 0; i < faults->len; i++) {
        const struct mr_field *f = &s->schema->fields[faults->at[i].column];
        char type[64];
        char text[256];
        snprintf(text, sizeof text, "column '%.100s' (%s): %s", f->name,
                 mr_field_text(f, type, sizeof type), faults->at[i].why);
        if (!mr_rows_fault(rows, faults->at[i].row, text)) {
            return false;
        }
    }
    return true;
}

/* Makes the rows, and if some turn out to be bad, makes them again without these. */
static int rows_make(const struct source *s, uint64_t count, struct mr_rows **out,
                     struct mr_err *err)
{
    struct mr_rows *rows = NULL;
    struct faults faults = {0};
    size_t known;
    int rc = MR_OK;

    for (size_t i = 0; i < s->schema->count; i++) {
        MR_TRY(large_find(s, i, &faults, err));
    }
    do {
        faults_sort(&faults);
        known = faults.len;
        mr_rows_unref(&rows);
        rows = mr_rows_new(s->schema);
        if (!rows) {
            rc = MR_FAIL(err, MR_E_EXHAUSTED, "no memory for rows");
            goto out;
        }
        rows->count = count;
        MR_TRY(columns_read(s, rows, &faults, err));
    } while (faults.len > known);
    if (!faults_report(s, &faults, rows)) {
        rc = MR_FAIL(err, MR_E_EXHAUSTED, "no memory for faults of rows");
    }
out:
    mr_free(faults.at);
    if (rc < 0) {
        mr_rows_unref(&rows);
        return rc;
    }
    *out = rows;
    return MR_OK;
}

/* Makes the rows of the slices; fewer if there is damage in later ones. */
static int sound_rows_make(struct source *s, struct mr_rows **out, struct mr_err *err)
{
    int rc;

    do {
        uint64_t count = 0;
        for (size_t i = 0; i < s->slices.len; i++) {
            count += s->slices.at[i].count;
        }
        rc = rows_make(s, count, out, err);
        s->slices.len /= 2;
    } while (mr_is_fault_of_file(rc) && !s->pipe && s->slices.len > 0);
    return rc;
}

static int read_rows(void *state, size_t file, uint64_t first, uint64_t max_rows,
                     uint64_t max_bytes, struct mr_rows **out, struct mr_err *err)
{
    struct source *s = state;
    bool is_cut = false;
    int rc = !s->pipe          ? file_seek(s, file, first, err)
             : first == s->row ? MR_OK
                               : MR_FAIL(err, MR_E_INVALID, "'%s' is read once", name_of(s));

    *out = NULL;
    if (rc == MR_OK && (s->pipe || first < s->open.rows)) {
        rc = gather(s, MR_MIN(max_rows, ROWS_MOST), max_bytes, err);
        is_cut = mr_is_fault_of_file(rc) && s->slices.len > 0 && !s->pipe;
        rc = is_cut ? MR_OK : rc; /* the next read, which begins there, reports it */
    }
    if (rc == MR_OK && s->slices.len > 0) {
        rc = sound_rows_make(s, out, err);
    } else if (rc == MR_OK && !s->pipe && first < s->open.rows) {
        rc = MR_FAIL(err, MR_E_INVALID, "'%s' has changed since it was opened", name_of(s));
    }
    held_drop(s);
    if ((rc < 0 && !s->pipe) || is_cut) {
        file_close(s);
    }
    return rc;
}

const struct mr_source_ops mr_arrow_source_ops = {
    .open = open_source,
    .schema = schema,
    .begin = begin,
    .read = read_rows,
    .close = close_source,
};
