#include "template.h"

#include <string.h>

#include "base/vec.h"

#define NUMBER_BYTES 8 /* of a value that is no text */

/* Some text, and the column after it. */
struct piece {
    mr_str text; /* in `source` */
    char *name;  /* NULL: the end */
    int column;
};

struct template
{
    char *source;
    MR_VEC(struct piece) pieces;
};

void template_free(struct template **template)
{
    struct template *t = *template;

    if (t) {
        for (size_t i = 0; i < t->pieces.len; i++) {
            mr_free(t->pieces.at[i].name);
        }
        MR_VEC_FINI(&t->pieces);
        mr_free(t->source);
        mr_freep(template);
    }
}

/* The text up to a column or the end; the text after an escape is a separate piece. */
static int piece_take(struct template *t, mr_str *rest, struct mr_err *err)
{
    const ptrdiff_t open = mr_str_find_str(*rest, MR_STR("{{"));
    struct piece p = {.text = *rest, .column = -1};

    if (open < 0) {
        MR_VEC_PUSH(&t->pieces, p);
        rest->len = 0;
        return MR_OK;
    }
    const size_t at = (size_t)open;
    if (at > 0 && rest->ptr[at - 1] == '\\') {
        p.text = mr_str_sub(*rest, 0, at - 1);
        MR_VEC_PUSH(&t->pieces, p);
        p.text = mr_str_sub(*rest, at, at + 2);
        MR_VEC_PUSH(&t->pieces, p);
        *rest = mr_str_sub(*rest, at + 2, rest->len);
        return MR_OK;
    }
    const mr_str inside = mr_str_sub(*rest, at + 2, rest->len);
    const ptrdiff_t close = mr_str_find_str(inside, MR_STR("}}"));
    const mr_str name = mr_str_trim(mr_str_sub(inside, 0, close < 0 ? 0 : (size_t)close));
    if (close < 0 || name.len == 0) {
        return MR_FAIL(err, MR_E_INVALID, "'%.40s' %s (\\{{ stands for {{ itself)", rest->ptr + at,
                       close < 0 ? "has no }}" : "names no column");
    }
    p.text = mr_str_sub(*rest, 0, at);
    p.name = mr_strndup(name.ptr, name.len);
    MR_VEC_PUSH(&t->pieces, p);
    *rest = mr_str_sub(inside, (size_t)close + 2, inside.len);
    return MR_OK;
}

int template_new(struct template **out, const char *text, struct mr_err *err)
{
    struct template *t = MR_NEW(struct template);
    int rc = MR_OK;

    t->source = mr_strndup(text, strlen(text));
    for (mr_str rest = mr_str_c(t->source); rest.len > 0 && rc == MR_OK;) {
        rc = piece_take(t, &rest, err);
    }
    if (rc < 0) {
        template_free(&t);
        return rc;
    }
    *out = t;
    return MR_OK;
}

void template_want(const struct template *t, struct mr_schema *io)
{
    for (size_t i = 0; i < t->pieces.len; i++) {
        char *name = t->pieces.at[i].name;
        if (name && mr_schema_find(io, mr_str_c(name)) < 0) {
            mr_schema_add(io, &(struct mr_field){.name = name, .type = MR_COLUMN_NONE});
        }
    }
}

static int column_missing(const char *name, const struct mr_schema *table, struct mr_err *err)
{
    char hint[300];

    return MR_FAIL(err, MR_E_INVALID, "{{%.100s}}: the table has no such column; %s", name,
                   mr_schema_hint(table, hint, sizeof hint));
}

int template_bind(struct template *t, const struct mr_schema *schema, const struct mr_schema *table,
                  struct mr_err *err)
{
    for (size_t i = 0; i < t->pieces.len; i++) {
        struct piece *p = &t->pieces.at[i];
        p->column = p->name ? mr_schema_find(schema, mr_str_c(p->name)) : -1;
        if (p->name && p->column < 0) {
            return column_missing(p->name, table, err);
        }
    }
    return MR_OK;
}

const char *template_null_in(const struct template *t, const struct mr_rows *rows, uint64_t row)
{
    for (size_t i = 0; i < t->pieces.len; i++) {
        const struct piece *p = &t->pieces.at[i];
        if (p->name && mr_column_is_null(&rows->columns[p->column], row)) {
            return p->name;
        }
    }
    return NULL;
}

bool template_has_all(const struct template *t, const struct mr_rows *rows)
{
    for (size_t i = 0; i < t->pieces.len; i++) {
        const struct piece *p = &t->pieces.at[i];
        if (p->name && rows->columns[p->column].nulls > 0) {
            return false;
        }
    }
    return true;
}

uint64_t template_bytes(const struct template *t, const struct mr_rows *rows, uint64_t row)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < t->pieces.len; i++) {
        const struct piece *p = &t->pieces.at[i];
        const struct mr_column *c = p->name ? &rows->columns[p->column] : NULL;
        const bool is_text = c && rows->schema->fields[p->column].type == MR_COLUMN_STRING;
        bytes += p->text.len;
        bytes += is_text ? mr_column_bytes(c, row).len : c ? NUMBER_BYTES : 0;
    }
    return bytes;
}

void template_put(const struct template *t, struct mr_buf *b, const struct mr_rows *rows,
                  uint64_t row, mr_str null_text)
{
    for (size_t i = 0; i < t->pieces.len; i++) {
        const struct piece *p = &t->pieces.at[i];
        mr_buf_str(b, p->text);
        if (p->name && mr_column_is_null(&rows->columns[p->column], row)) {
            mr_buf_str(b, null_text);
        } else if (p->name) {
            mr_value_put_text(b, &rows->schema->fields[p->column], &rows->columns[p->column], row);
        }
    }
}
