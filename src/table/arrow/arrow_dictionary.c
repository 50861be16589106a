/* Dictionaries: values that batches refer to by index. Each is kept as a column. */
#include "arrow.h"
#include "base/mem.h"

struct arrow_dictionary *arrow_dictionary_find(const struct arrow_dictionaries *d, int64_t id)
{
    for (size_t i = 0; i < d->count; i++) {
        if (d->at[i].id == id) {
            return &d->at[i];
        }
    }
    return NULL;
}

static int one_add(struct arrow_dictionaries *d, const struct arrow_field *f, struct mr_err *err)
{
    struct arrow_field plain = *f;
    const struct arrow_dictionary *there = arrow_dictionary_find(d, f->dictionary);

    if (f->item_count > 0) {
        return MR_FAIL(err, MR_E_UNSUPPORTED, "column '%s': a dictionary of %s cannot be read",
                       f->name, arrow_type_name(f));
    }
    if (there) {
        return there->plain.type == f->type && there->plain.column == f->column &&
                       there->plain.bits == f->bits && there->plain.width == f->width &&
                       there->plain.time_factor == f->time_factor
                   ? MR_OK
                   : MR_FAIL(err, MR_E_INVALID, "column '%s': its dictionary has another type",
                             f->name);
    }
    plain.is_dictionary = false;
    plain.node = 0;
    d->at = mr_realloc_array(d->at, d->count + 1, sizeof *d->at);
    for (size_t i = 0; i < d->count; i++) {
        d->at[i].values.field = &d->at[i].field; /* they have moved */
    }
    struct arrow_dictionary *new = &d->at[d->count++];
    *new = (struct arrow_dictionary){.id = f->dictionary, .plain = plain};
    arrow_field_column(&plain, &new->field);
    mr_column_builder_init(&new->values, &new->field);
    return MR_OK;
}

int arrow_dictionaries_add(struct arrow_dictionaries *d, const struct arrow_field *f,
                           struct mr_err *err)
{
    if (f->is_dictionary) {
        return one_add(d, f, err);
    }
    for (uint32_t i = 0; i < f->item_count; i++) {
        int rc = arrow_dictionaries_add(d, &f->items[i], err);
        if (rc < 0) {
            return rc;
        }
    }
    return MR_OK;
}

void arrow_dictionaries_fini(struct arrow_dictionaries *d)
{
    for (size_t i = 0; i < d->count; i++) {
        mr_column_builder_fini(&d->at[i].values);
        mr_field_fini(&d->at[i].field);
    }
    mr_free(d->at);
    *d = (struct arrow_dictionaries){.bytes_most = d->bytes_most};
}

void arrow_dictionaries_reset(struct arrow_dictionaries *d)
{
    for (size_t i = 0; i < d->count; i++) {
        mr_column_builder_reset(&d->at[i].values);
    }
}

bool arrow_dictionary_is_needed(const struct arrow_dictionaries *d, const struct arrow_message *m)
{
    return arrow_dictionary_find(d, flat_int(&m->header, 0, 8, 0));
}

static int values_take(struct arrow_dictionaries *d, struct arrow_dictionary *dictionary,
                       struct arrow_batch *b, struct mr_err *err)
{
    const struct mr_schema schema = {&dictionary->field, 1};
    const struct arrow_slice all = {b, 0, b->rows};
    const struct arrow_slices slices = {(struct arrow_slice *)(uintptr_t)&all, b->rows > 0, 0};
    struct mr_rows *rows = mr_rows_new(&schema);
    struct arrow_reading x = {.rows = rows, .dictionaries = d, .err = err};
    uint64_t bytes = 0;
    int rc = MR_OK;

    if (!rows) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for a dictionary");
    }
    MR_TRY(arrow_weight(d, &dictionary->plain, b, 0, b->rows, &bytes, err));
    if (bytes >
        d->bytes_most - MR_MIN(mr_column_builder_bytes(&dictionary->values), d->bytes_most)) {
        rc = MR_FAIL(err, MR_E_EXHAUSTED, "a dictionary has more than %llu bytes",
                     (unsigned long long)d->bytes_most);
        goto out;
    }
    MR_TRY(arrow_column_read(&x, &dictionary->plain, &dictionary->field, &slices, rows->columns));
    if (x.bads.len > 0) {
        rc = MR_FAIL(err, MR_E_INVALID, "value %llu of a dictionary is %s",
                     (unsigned long long)x.bads.at[0].row, x.bads.at[0].why);
        goto out;
    }
    mr_column_add_rows(&dictionary->values, rows->columns, 0, rows->columns->count);
    rc = dictionary->values.has_failed ? MR_FAIL(err, MR_E_EXHAUSTED, "no memory for a dictionary")
                                       : MR_OK;
out:
    mr_free(x.bads.at);
    mr_rows_unref(&rows);
    return rc;
}

int arrow_dictionary_take(struct arrow_dictionaries *d, const struct arrow_message *m,
                          const struct arrow_batch *where, struct mr_err *err)
{
    struct arrow_dictionary *dictionary = arrow_dictionary_find(d, flat_int(&m->header, 0, 8, 0));
    const struct flat_table header = flat_child(&m->header, 1);
    struct arrow_batch *b;
    int rc = arrow_batch_new(&b, &header, &dictionary->plain, 1, 1, m->body_bytes, err);

    if (rc < 0) {
        return rc;
    }
    b->fd = where->fd;
    b->body_at = where->body_at;
    b->body = where->body;
    b->held = where->held;
    b->held_most = where->held_most;
    if (!flat_int(&m->header, 2, 1, 0)) {
        mr_column_builder_reset(&dictionary->values);
    }
    rc = values_take(d, dictionary, b, err);
    b->body = NULL; /* owned by the caller */
    arrow_batch_free(&b);
    return rc;
}
