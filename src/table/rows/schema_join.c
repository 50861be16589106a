/* Joining the columns of a set of files.
 *
 * Most files of a set have the same columns, so equal schemas are stored once: a shape. Files are compared column by
 * column with the majority, so that one odd file is found even if it is the first. */
#include "schema_join.h"

#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/vec.h"

struct shape {
    struct mr_schema schema;
    size_t first; /* file */
    size_t files;
    char *wrong; /* the error of files of this shape; NULL: none */
};

/* The files' votes on the type of a needed column. */
struct tally {
    struct mr_field field; /* holds the values of all of them */
    size_t shape;          /* the first shape with this field, or else the first one */
    size_t files;
};

struct join {
    const struct mr_source_ops *ops;
    const struct mr_source_setup *setup;
    MR_VEC(struct shape) shapes;
    size_t *shape_of;     /* each file's; SIZE_MAX: none */
    struct mr_map found;  /* text of a schema -> index of its shape + 1 */
    struct mr_map needed; /* name -> index of the majority's field + 1 */
    MR_VEC(struct tally) tallies;
    int status; /* of a file that could not be read, of an undamaged one if there is any */
};

static bool is_damage(int status)
{
    return status == MR_E_INVALID || status == MR_E_UNSUPPORTED || status == MR_E_TOO_LARGE;
}

bool mr_is_fault_of_file(int status)
{
    return is_damage(status) || status == MR_E_IO || status == MR_E_NOT_FOUND;
}

int mr_damage_check(const struct mr_source_file *f, int rc, struct mr_err *err)
{
    struct stat st;

    if (rc != MR_E_INVALID || f->etag || f->mtime_ns == 0 ||
        (stat(f->path, &st) == 0 && (uint64_t)st.st_size == f->bytes &&
         st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec == f->mtime_ns)) {
        return rc;
    }
    return MR_FAIL(err, MR_E_IO, "'%s' has changed since it was opened", f->path);
}

size_t mr_first_good_file(const struct mr_source_setup *setup)
{
    size_t i = 0;

    while (i + 1 < setup->file_count && setup->files[i].bad) {
        i++;
    }
    return i;
}

static bool picks_columns(const struct mr_source_options *o)
{
    return o->column_count > 0 || o->reads_wanted_only;
}

/* True if the caller names the column as one that it needs. */
static bool is_picked(const struct mr_source_options *o, const char *name)
{
    for (size_t i = 0; i < o->column_count; i++) {
        if (strcmp(o->columns[i], name) == 0) {
            return true;
        }
    }
    return o->column_count == 0 && o->reads_wanted_only &&
           mr_schema_find(o->wanted, mr_str_c(name)) >= 0;
}

static bool is_needed(const struct join *j, const char *name)
{
    return !picks_columns(j->setup->options) || is_picked(j->setup->options, name);
}

/* True if a file with the columns `found` may lack this one: its rows have nulls. */
static bool may_lack(const struct join *j, const struct mr_schema *found, const char *name)
{
    const bool names_all = j->ops->names_columns && found->count > 0;

    return j->ops->is_guessed && !(names_all && is_picked(j->setup->options, name));
}

/* The type that the caller requires, regardless of the files. */
static const struct mr_field *wanted_of(const struct join *j, const char *name)
{
    const struct mr_schema *wanted = j->setup->options->wanted;
    const int i = wanted ? mr_schema_find(wanted, mr_str_c(name)) : -1;

    return i < 0 || wanted->fields[i].type == MR_COLUMN_NONE ? NULL : &wanted->fields[i];
}

/* ---- compatible types ---- */

static bool is_real(enum mr_column_type t)
{
    return t >= MR_COLUMN_F16 && t <= MR_COLUMN_F64;
}

/* The narrowest integer type that holds all values of both, or NONE. */
static enum mr_column_type integers_join(enum mr_column_type a, enum mr_column_type b)
{
    const bool is_unsigned[] = {a >= MR_COLUMN_U8, b >= MR_COLUMN_U8};

    if (is_unsigned[0] == is_unsigned[1]) {
        return MR_MAX(a, b);
    }
    const enum mr_column_type u = is_unsigned[0] ? a : b;
    const enum mr_column_type s = is_unsigned[0] ? b : a;
    const enum mr_column_type above = MR_COLUMN_I16 + (u - MR_COLUMN_U8);
    return u == MR_COLUMN_U64 ? MR_COLUMN_NONE : MR_MAX(s, above);
}

static bool is_guessed_number(enum mr_column_type t)
{
    return t == MR_COLUMN_I64 || t == MR_COLUMN_F64;
}

/* The type of both; -1: not compatible. */
static int leaves_join(const struct mr_field *a, const struct mr_field *b, bool is_guessed)
{
    if (is_guessed) {
        return a->type == MR_COLUMN_NONE                                  ? (int)b->type
               : b->type == MR_COLUMN_NONE || a->type == b->type          ? (int)a->type
               : is_guessed_number(a->type) && is_guessed_number(b->type) ? MR_COLUMN_F64
                                                                          : -1;
    }
    if (a->type == b->type) {
        return a->precision == b->precision && a->scale == b->scale ? (int)a->type : -1;
    }
    if (mr_column_is_integer(a->type) && mr_column_is_integer(b->type)) {
        const enum mr_column_type t = integers_join(a->type, b->type);
        return t == MR_COLUMN_NONE ? -1 : (int)t;
    }
    return is_real(a->type) && is_real(b->type) ? (int)MR_MAX(a->type, b->type) : -1;
}

/* True for a guess from nulls only, perhaps within a list. */
static bool is_open(const struct mr_field *f, bool is_guessed)
{
    return is_guessed && f->type == MR_COLUMN_NONE && !f->item;
}

static bool fields_fit(const struct mr_field *a, const struct mr_field *b, bool is_guessed)
{
    if (is_open(a, is_guessed) || is_open(b, is_guessed)) {
        return true;
    }
    if (!a->item != !b->item) {
        return false;
    }
    return a->item ? a->type == b->type && a->width == b->width &&
                         fields_fit(a->item, b->item, is_guessed)
                   : leaves_join(a, b, is_guessed) >= 0;
}

/* Joins compatible fields. */
static void field_join(struct mr_field *to, const struct mr_field *from, bool is_guessed)
{
    const bool is_nullable = to->is_nullable || from->is_nullable;

    if (is_open(to, is_guessed) && from->type != MR_COLUMN_NONE) {
        char *name = to->name;
        to->name = NULL;
        mr_field_fini(to);
        mr_field_copy(to, from);
        mr_free(to->name);
        to->name = name;
    } else if (to->item && from->item) {
        field_join(to->item, from->item, is_guessed);
    } else if (!to->item && !from->item) {
        const bool is_unknown = to->type == MR_COLUMN_NONE;
        to->is_json = from->is_json && (to->is_json || is_unknown);
        to->has_long |= from->has_long;
        to->type = (enum mr_column_type)leaves_join(to, from, is_guessed);
    }
    to->is_nullable = is_nullable;
}

static const struct mr_field *leaf_of(const struct mr_field *f)
{
    while (f->item) {
        f = f->item;
    }
    return f;
}

/* ---- shapes ---- */

static void bad_note(struct mr_source_file *f, const char *why)
{
    if (!f->bad) {
        f->bad = mr_strndup(why, strlen(why));
    }
}

static int names_check(const char *path, const struct mr_schema *found, struct mr_err *err)
{
    struct mr_map seen = {0};
    int rc = MR_OK;

    for (size_t i = 0; rc == MR_OK && i < found->count; i++) {
        if (mr_map_put(&seen, mr_str_c(found->fields[i].name), &seen)) {
            rc = MR_FAIL(err, MR_E_INVALID, "'%s': two columns are named '%s'", path,
                         found->fields[i].name);
        }
    }
    mr_map_fini(&seen);
    return rc;
}

static void field_spell(struct mr_buf *b, const struct mr_field *f)
{
    for (; f; f = f->item) {
        mr_buf_printf(b, "%d:%d:%d:%d:%d:%d:%llu ", (int)f->type, f->is_nullable, f->is_json,
                      f->has_long, f->precision, f->scale, (unsigned long long)f->width);
    }
}

static void shape_put(struct join *j, size_t file, struct mr_schema *found)
{
    struct mr_buf text;

    mr_buf_init(&text, 0);
    for (size_t i = 0; i < found->count; i++) {
        mr_buf_printf(&text, "%zu %s ", strlen(found->fields[i].name), found->fields[i].name);
        field_spell(&text, &found->fields[i]);
    }
    MR_BUF_LIT(&text, "."); /* keys of a map must not be empty */
    uintptr_t at = (uintptr_t)mr_map_find(&j->found, mr_buf_view(&text));
    if (at) {
        mr_schema_fini(found);
    } else {
        MR_VEC_PUSH(&j->shapes, ((struct shape){.schema = *found, .first = file}));
        *found = (struct mr_schema){0};
        at = j->shapes.len;
        mr_map_put(&j->found, mr_buf_view(&text), (void *)at); /* NOLINT: a number */
    }
    j->shape_of[file] = at - 1;
    j->shapes.at[at - 1].files++;
    mr_buf_fini(&text);
}

static int shapes_read(struct join *j, void *state, struct mr_err *err)
{
    for (size_t i = 0; i < j->setup->file_count; i++) {
        struct mr_schema found = {0};
        struct mr_err why;
        int rc = j->ops->schema(state, i, &found, &why);
        rc = rc < 0 ? rc : names_check(j->setup->files[i].path, &found, &why);
        rc = mr_damage_check(&j->setup->files[i], rc, &why);
        j->shape_of[i] = SIZE_MAX;
        if (rc == MR_OK) {
            shape_put(j, i, &found);
        } else if (mr_is_fault_of_file(rc)) {
            bad_note(&j->setup->files[i], why.msg);
            j->status = j->status < 0 && is_damage(rc) ? j->status : rc;
        } else {
            *err = why;
        }
        mr_schema_fini(&found);
        if (rc < 0 && !mr_is_fault_of_file(rc)) {
            return rc;
        }
    }
    return MR_OK;
}

/* ---- finding bad shapes ---- */

/* Compatible types are one vote. U32 is compatible with I64 and with U64, but these two are not: so the next file is
 * compared with the joined type of all files so far. */
static void vote(struct join *j, size_t shape, const struct mr_field *f)
{
    const bool is_guessed = j->ops->is_guessed;

    for (size_t i = 0; i < j->tallies.len; i++) {
        struct tally *t = &j->tallies.at[i];
        if (strcmp(t->field.name, f->name) == 0 && fields_fit(&t->field, f, is_guessed)) {
            const enum mr_column_type before = leaf_of(&t->field)->type;
            field_join(&t->field, f, is_guessed);
            const enum mr_column_type after = leaf_of(&t->field)->type;
            t->shape = after != before && after == leaf_of(f)->type ? shape : t->shape;
            t->files += j->shapes.at[shape].files;
            return;
        }
    }
    MR_VEC_PUSH(&j->tallies, ((struct tally){.shape = shape, .files = j->shapes.at[shape].files}));
    mr_field_copy(&j->tallies.at[j->tallies.len - 1].field, f);
}

static void votes_count(struct join *j)
{
    for (size_t s = 0; s < j->shapes.len; s++) {
        const struct mr_schema *schema = &j->shapes.at[s].schema;
        for (size_t i = 0; i < schema->count; i++) {
            if (is_needed(j, schema->fields[i].name)) {
                vote(j, s, &schema->fields[i]);
            }
        }
    }
    for (size_t i = 0; i < j->tallies.len; i++) {
        const mr_str name = mr_str_c(j->tallies.at[i].field.name);
        const uintptr_t best = (uintptr_t)mr_map_find(&j->needed, name);
        if (!best || j->tallies.at[i].files > j->tallies.at[best - 1].files) {
            mr_map_put(&j->needed, name, (void *)(i + 1)); /* NOLINT: a number */
        }
    }
}

static const char *path_of(const struct join *j, size_t shape)
{
    return j->setup->files[j->shapes.at[shape].first].path;
}

/* The error for the first file of the shape; the path of each file is put before it. */
static void shape_judge(struct join *j, struct shape *s, const struct tally *t)
{
    const int at = mr_schema_find(&s->schema, mr_str_c(t->field.name));
    char types[2][64];
    struct mr_buf b;

    mr_buf_init(&b, 0);
    if (at < 0 && !may_lack(j, &s->schema, t->field.name)) {
        mr_buf_printf(&b, "column '%s' of '%s' is missing", t->field.name, path_of(j, t->shape));
    } else if (at >= 0 && !fields_fit(&t->field, &s->schema.fields[at], j->ops->is_guessed) &&
               !(j->ops->is_guessed && wanted_of(j, t->field.name))) {
        mr_buf_printf(&b, "column '%s' is %s, and %s in '%s'", t->field.name,
                      mr_field_text(&s->schema.fields[at], types[0], sizeof types[0]),
                      mr_field_text(&t->field, types[1], sizeof types[1]), path_of(j, t->shape));
    }
    if (b.len > 0) {
        s->wrong = mr_strndup(mr_buf_cstr(&b), b.len);
    }
    mr_buf_fini(&b);
}

static void shapes_judge(struct join *j)
{
    struct mr_map_slot *slot;

    votes_count(j);
    for (size_t s = 0; s < j->shapes.len; s++) {
        for (size_t at = 0; !j->shapes.at[s].wrong && (slot = mr_map_next(&j->needed, &at));) {
            shape_judge(j, &j->shapes.at[s], &j->tallies.at[(uintptr_t)slot->value - 1]);
        }
    }
}

/* ---- the columns of the table ---- */

static void column_lose(struct mr_schema *all, size_t i)
{
    mr_field_fini(&all->fields[i]);
    memmove(&all->fields[i], &all->fields[i + 1], (all->count - i - 1) * sizeof *all->fields);
    all->count--;
}

/* Joins the shape with columns that are in `all`. */
static void shape_join(struct join *j, struct mr_schema *all, const struct mr_schema *schema,
                       struct mr_map *lost)
{
    const bool is_guessed = j->ops->is_guessed;

    for (size_t i = all->count; i-- > 0;) {
        struct mr_field *f = &all->fields[i];
        const int at = mr_schema_find(schema, mr_str_c(f->name));
        if (at >= 0 && fields_fit(f, &schema->fields[at], is_guessed)) {
            field_join(f, &schema->fields[at], is_guessed);
        } else if ((at < 0 && !is_guessed) || (at >= 0 && !wanted_of(j, f->name))) {
            mr_map_put(lost, mr_str_c(f->name), lost);
            column_lose(all, i);
        }
    }
}

/* Adds columns that no earlier file had; only if files may lack some. */
static void new_join(struct mr_schema *all, struct mr_map *known, const struct mr_schema *schema)
{
    for (size_t i = 0; i < schema->count; i++) {
        if (!mr_map_put(known, mr_str_c(schema->fields[i].name), known)) {
            mr_schema_add(all, &schema->fields[i]);
        }
    }
}

static void columns_join(struct join *j, struct mr_schema *all)
{
    struct mr_map known = {0};
    bool is_first = true;

    for (size_t s = 0; s < j->shapes.len; s++) {
        const struct mr_schema *schema = &j->shapes.at[s].schema;
        if (j->shapes.at[s].wrong) {
            continue;
        }
        shape_join(j, all, schema, &known);
        if (is_first || j->ops->is_guessed) {
            new_join(all, &known, schema);
        }
        is_first = false;
    }
    mr_map_fini(&known);
}

/* A column with only nulls is text, and so is one whose numbers would lose digits. Items of a list may be null, but not lists in it. */
static void guess_end(struct mr_field *f)
{
    f->type = f->type == MR_COLUMN_NONE || (f->type == MR_COLUMN_F64 && f->has_long)
                  ? MR_COLUMN_STRING
                  : f->type;
    f->is_nullable = true;
    if (f->item) {
        guess_end(f->item);
        f->item->is_nullable = !f->item->item;
    }
}

/* True for nested lists where one list is wanted; they are read as nested. */
static bool is_deeper(const struct mr_field *found, const struct mr_field *wanted)
{
    return wanted->item && mr_field_levels(found) > mr_field_levels(wanted);
}

static void guesses_end(const struct join *j, struct mr_schema *all)
{
    for (size_t i = 0; j->ops->is_guessed && i < all->count; i++) {
        const struct mr_field *wanted = wanted_of(j, all->fields[i].name);
        if (wanted && !is_deeper(&all->fields[i], wanted)) {
            mr_field_fini(&all->fields[i]);
            mr_field_copy(&all->fields[i], wanted);
            all->fields[i].is_nullable = true;
            /* Only JSON lines can contain JSON values. */
            all->fields[i].is_json &= j->setup->options->format == MR_TABLE_JSONL;
        } else {
            guess_end(&all->fields[i]);
            all->fields[i].is_guessed = true;
        }
    }
}

/* ---- the end ---- */

static size_t bad_spread(struct join *j)
{
    size_t bad = 0;

    for (size_t i = 0; i < j->setup->file_count; i++) {
        struct mr_source_file *f = &j->setup->files[i];
        const char *wrong =
            j->shape_of[i] < j->shapes.len ? j->shapes.at[j->shape_of[i]].wrong : NULL;
        if (wrong) {
            struct mr_buf b;
            mr_buf_init(&b, 0);
            mr_buf_printf(&b, "'%s': %s", f->path, wrong);
            bad_note(f, mr_buf_cstr(&b));
            mr_buf_fini(&b);
        }
        bad += f->bad != NULL;
    }
    return bad;
}

/* Reports the bad files, and skips them if the options say so and each is damaged or differs. */
static int bad_end(struct join *j, struct mr_err *err)
{
    const size_t bad = bad_spread(j);
    const size_t count = j->setup->file_count;
    const bool may_skip = bad < count && (j->status == MR_OK || is_damage(j->status));
    const bool are_skipped = may_skip && j->setup->options->skips_bad_files;
    const char *hint = may_skip ? "; --skip-bad-files leaves such files out" : "";
    const struct mr_source_file *first = NULL;

    for (size_t i = 0; bad > 0 && i < count; i++) {
        struct mr_source_file *f = &j->setup->files[i];
        if (!f->bad) {
            continue;
        }
        first = first ? first : f;
        if (are_skipped || bad > 1) {
            mr_log(are_skipped ? MR_LOG_WARN : MR_LOG_ERROR, "table.bad_file", "reason=%s%s",
                   MR_LOG_STR(mr_str_c(f->bad)), are_skipped ? "; the file is left out" : "");
        }
        f->rows = 0;
    }
    if (bad == 0 || are_skipped) {
        return MR_OK;
    }
    if (bad == 1) {
        return MR_FAIL(err, j->status < 0 ? j->status : MR_E_INVALID, "%s%s", first->bad, hint);
    }
    return MR_FAIL(err, MR_E_INVALID,
                   "%zu of %zu files cannot be used, each is named above; the first one: %s%s", bad,
                   count, first->bad, hint);
}

int mr_schemas_join(const struct mr_source_ops *ops, void *state,
                    const struct mr_source_setup *setup, struct mr_schema *out, struct mr_err *err)
{
    struct join j = {
        .ops = ops, .setup = setup, .shape_of = MR_NEW_ARRAY(size_t, setup->file_count + 1)};
    int rc;

    MR_TRY(shapes_read(&j, state, err));
    shapes_judge(&j);
    MR_TRY(bad_end(&j, err));
    columns_join(&j, out);
    guesses_end(&j, out);
out:
    for (size_t i = 0; i < j.shapes.len; i++) {
        mr_schema_fini(&j.shapes.at[i].schema);
        mr_free(j.shapes.at[i].wrong);
    }
    MR_VEC_FINI(&j.shapes);
    for (size_t i = 0; i < j.tallies.len; i++) {
        mr_field_fini(&j.tallies.at[i].field);
    }
    MR_VEC_FINI(&j.tallies);
    mr_map_fini(&j.found);
    mr_map_fini(&j.needed);
    mr_free(j.shape_of);
    return rc;
}
