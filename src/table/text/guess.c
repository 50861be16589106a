/* Guesses the types of columns from the values of text tables.
 *
 * Whole numbers and fractions are joined as F64; any other mix of types in a column makes it text. A number that
 * would lose digits, or its leading zeros, is text: it may be a key. In the end an F64 column
 * that has_long becomes text, too (guess_end). */
#include <string.h>

#include "base/mem.h"
#include "table/values/values.h"
#include "text.h"

static void guess_is(struct mr_field *f, enum mr_column_type type)
{
    if (f->type == type) {
        return;
    }
    if (f->type == MR_COLUMN_NONE) {
        f->type = type;
        return;
    }
    const bool are_numbers = (type == MR_COLUMN_I64 && f->type == MR_COLUMN_F64) ||
                             (type == MR_COLUMN_F64 && f->type == MR_COLUMN_I64);
    f->type = are_numbers ? MR_COLUMN_F64 : MR_COLUMN_STRING;
    if (f->item) {
        mr_field_fini(f->item);
        mr_freep(&f->item);
    }
}

static void guess_number(struct mr_field *f, mr_str text)
{
    int64_t v;

    guess_is(f, !mr_number_is_whole(text) ? MR_COLUMN_F64
                : mr_str_to_i64(text, &v) ? MR_COLUMN_I64
                                          : MR_COLUMN_STRING);
    f->has_long |= !mr_number_is_f64(text);
}

static void guess_value(struct mr_json *j, struct mr_field *f, int depth)
{
    const enum mr_json_type type = mr_json_peek(j);
    bool is_first = true;
    mr_str text;

    if (type == MR_JSON_ARRAY && depth < MR_FIELD_DEPTH &&
        (f->type == MR_COLUMN_NONE || f->type == MR_COLUMN_LIST)) {
        f->type = MR_COLUMN_LIST;
        if (!f->item) {
            f->item = MR_NEW(struct mr_field);
            f->item->name = mr_strndup("element", 7);
        }
        mr_json_enter_array(j);
        while (mr_json_next_item(j, &is_first)) {
            guess_value(j, f->item, depth + 1);
        }
        return;
    }
    if (mr_json_skip(j, &text) < 0 || type == MR_JSON_NULL) {
        return;
    }
    if (type == MR_JSON_NUMBER) {
        guess_number(f, text);
        f->is_json = false;
    } else {
        /* A column of only objects stays JSON; mixed with other values they are texts. */
        const bool was_json = f->type == MR_COLUMN_NONE || f->is_json;
        guess_is(f, type == MR_JSON_BOOL ? MR_COLUMN_BOOL : MR_COLUMN_STRING);
        f->is_json = was_json && type == MR_JSON_OBJECT;
    }
}

bool mr_guess_json(struct mr_json *j, struct mr_field *io)
{
    guess_value(j, io, 0);
    return j->status == MR_OK;
}

/* True if the text is a JSON array. */
static bool is_list(mr_str text, struct mr_arena *scratch)
{
    struct mr_json j;

    if (text.len == 0 || text.ptr[0] != '[') {
        return false;
    }
    mr_json_init(&j, text, scratch, 0, NULL);
    return mr_json_skip(&j, NULL) == MR_OK && mr_json_finish(&j) == MR_OK;
}

static bool is_number(mr_str text)
{
    double v;

    return mr_text_double(text, &v) && !mr_number_has_zeros(text);
}

void mr_guess_text(mr_str text, struct mr_field *io, struct mr_arena *scratch)
{
    const mr_str bare = mr_str_trim(text);
    struct mr_json j;

    if (is_list(bare, scratch)) {
        mr_json_init(&j, bare, scratch, 0, NULL);
        guess_value(&j, io, 0);
    } else if (is_number(bare)) {
        guess_number(io, bare);
    } else {
        guess_is(io, mr_str_ieq(bare, MR_STR("true")) || mr_str_ieq(bare, MR_STR("false"))
                         ? MR_COLUMN_BOOL
                         : MR_COLUMN_STRING);
    }
}
