/* Shared by tables in databases: their names, and rows built value by value. */
#include "database.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/mem.h"
#include "pg.h"
#include "table/rows/formats.h"
#include "table/values/values.h"

enum mr_database_kind mr_database_kind_of(const char *name)
{
    const mr_str text = mr_str_c(name);

    if (mr_str_starts(text, MR_STR(MR_DATABASE_SQLITE))) {
        return MR_DATABASE_IS_SQLITE;
    }
    return mr_str_starts(text, MR_STR(MR_DATABASE_POSTGRESQL)) ||
                   mr_str_starts(text, MR_STR(MR_DATABASE_POSTGRES))
               ? MR_DATABASE_IS_POSTGRESQL
               : MR_DATABASE_IS_NONE;
}

void mr_database_read_waits(bool *io_has_waited, const struct mr_err *err)
{
    if (!*io_has_waited) {
        mr_log(MR_LOG_WARN, "table.read_waits",
               "reason=%s; reading rows of a table failed, and is retried",
               MR_LOG_STR(mr_str_c(err->msg)));
    }
    *io_has_waited = true;
}

int mr_database_label(const char *database, const char *table, struct mr_buf *out,
                      struct mr_err *err)
{
    int rc = MR_OK;

    if (mr_database_kind_of(database) == MR_DATABASE_IS_POSTGRESQL) {
        rc = mr_pg_label(database, out, err);
    } else {
        mr_buf_c(out, database);
    }
    mr_buf_printf(out, "#%s", table);
    return rc;
}

void mr_database_quote(struct mr_buf *b, mr_str name)
{
    mr_buf_char(b, '"');
    for (size_t i = 0; i < name.len; i++) {
        mr_buf_c(b, name.ptr[i] == '"' ? "\"" : "");
        mr_buf_char(b, name.ptr[i]);
    }
    mr_buf_char(b, '"');
}

bool mr_database_has_order(const char *query)
{
    for (const char *at = query; (at = strcasestr(at, "order")); at += strlen("order")) {
        const char *by = at + strlen("order");
        const size_t space = strspn(by, " \t\r\n");
        if (space > 0 && strncasecmp(by + space, "by", 2) == 0) {
            return true;
        }
    }
    return false;
}

int mr_database_no_order(struct mr_err *err)
{
    return MR_FAIL(err, MR_E_INVALID,
                   "the query has no ORDER BY: without one its rows may come in another order when "
                   "the job goes on");
}

/* ---- values ---- */

bool mr_database_may_become(enum mr_column_type found, const struct mr_field *wanted)
{
    const bool is_list = wanted->item != NULL;
    const bool is_number = wanted->type <= MR_COLUMN_F64;
    const bool stays = wanted->is_kept && wanted->type != MR_COLUMN_BOOL;

    switch (found) {
    case MR_COLUMN_NONE: return true;
    case MR_COLUMN_STRING: return is_list || is_number || wanted->type == MR_COLUMN_STRING;
    case MR_COLUMN_BINARY:
        return is_list && !wanted->item->item && wanted->item->type <= MR_COLUMN_F64;
    default: return found <= MR_COLUMN_F64 && is_number && !stays;
    }
}

const char *mr_database_add_raw(struct mr_column_builder *b, mr_str raw)
{
    const size_t bytes = mr_column_type_bytes(b->item->field->type);
    const uint64_t count = bytes ? raw.len / bytes : 0;

    if (!bytes || b->item->field->type > MR_COLUMN_F64) {
        return "bytes are no such list";
    }
    if (raw.len % bytes || (b->field->type == MR_COLUMN_FIXED_LIST && count != b->field->width)) {
        return "there are more or fewer bytes than such a list has";
    }
    void *room = mr_column_room(b->item, count);
    if (room) {
        if (count > 0) {
            memcpy(room, raw.ptr, raw.len);
        }
        mr_column_took(b->item, count);
    }
    mr_column_end_list(b);
    return NULL;
}

/* ---- rows ---- */

int mr_database_rows_init(struct mr_database_rows *d, const struct mr_schema *schema,
                          uint64_t max_cell_bytes, struct mr_err *err)
{
    for (size_t i = 0; i < schema->count; i++) {
        const struct mr_field *item = schema->fields[i].item;
        /* Lists of dates are not read from text. */
        const bool may_be_text =
            item && (item->item || mr_database_may_become(MR_COLUMN_STRING, item));
        int rc = may_be_text ? mr_cell_check(&schema->fields[i], max_cell_bytes, err) : MR_OK;
        if (rc < 0) {
            return rc;
        }
    }
    d->schema = schema;
    d->builders = MR_NEW_ARRAY(struct mr_column_builder, schema->count);
    for (size_t i = 0; i < schema->count; i++) {
        mr_column_builder_init(&d->builders[i], &schema->fields[i]);
    }
    return MR_OK;
}

void mr_database_rows_fini(struct mr_database_rows *d)
{
    mr_rows_unref(&d->rows);
    for (size_t i = 0; d->schema && i < d->schema->count; i++) {
        mr_column_builder_fini(&d->builders[i]);
    }
    mr_freep(&d->builders);
    d->schema = NULL;
}

int mr_database_rows_begin(struct mr_database_rows *d, struct mr_err *err)
{
    d->rows = mr_rows_new(d->schema);
    return d->rows ? MR_OK : MR_FAIL(err, MR_E_EXHAUSTED, "no memory for rows");
}

static int row_fault(struct mr_database_rows *d, size_t column, const char *why, struct mr_err *err)
{
    const struct mr_field *f = &d->schema->fields[column];
    char type[64];
    char text[640];

    for (size_t i = 0; i < d->schema->count; i++) {
        mr_column_cut(&d->builders[i], d->rows->count);
        mr_column_add_null(&d->builders[i]);
    }
    snprintf(text, sizeof text, "column '%.100s' (%s): %s", f->name,
             mr_field_text(f, type, sizeof type), why);
    if (!mr_rows_fault(d->rows, d->rows->count, text)) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for what is wrong with a row");
    }
    return MR_OK;
}

int mr_database_row_end(struct mr_database_rows *d, size_t column, const char *wrong,
                        const struct mr_err *why, const char *path, uint64_t row,
                        struct mr_err *err)
{
    int rc = MR_OK;

    if (wrong && why->status == MR_E_EXHAUSTED) {
        rc = MR_FAIL(err, MR_E_EXHAUSTED, "'%s': row %" PRIu64 ": %s", path, row, why->msg);
    } else if (wrong) {
        rc = row_fault(d, column, wrong, err);
    }
    d->rows->count += rc == MR_OK;
    return rc;
}

uint64_t mr_database_rows_bytes(const struct mr_database_rows *d)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < d->schema->count; i++) {
        bytes += mr_column_builder_bytes(&d->builders[i]);
    }
    return bytes;
}

int mr_database_rows_end(struct mr_database_rows *d, struct mr_rows **out, struct mr_err *err)
{
    for (size_t i = 0; d->rows->count > 0 && i < d->schema->count; i++) {
        int rc = mr_column_builder_finish(&d->builders[i], d->rows, i, err);
        if (rc < 0) {
            mr_database_rows_drop(d);
            return rc;
        }
    }
    if (d->rows->count == 0) {
        mr_rows_unref(&d->rows);
    }
    *out = d->rows;
    d->rows = NULL;
    return MR_OK;
}

void mr_database_rows_drop(struct mr_database_rows *d)
{
    for (size_t i = 0; d->rows && i < d->schema->count; i++) {
        mr_column_builder_reset(&d->builders[i]);
    }
    mr_rows_unref(&d->rows);
}
