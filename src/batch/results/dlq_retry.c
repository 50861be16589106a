/* Retries of dead letters: the rows of a job without a result go through the pipeline again, and their outcomes replace
 * their dead letters.
 *
 * Until then each dead letter stays in its place. A commit replaces, in one record of the manifest, the items that the rows
 * belong to: their results stay, and dead letters of rows that were not tried yet are copied to the new file of dead
 * letters. So each row has one outcome at any time, and any number of rows may be committed together.
 *
 * Read at the start on the loop's thread; then nothing is changed, and commits are the committer's. */
#include "dlq_retry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/map.h"
#include "batch/files/file.h"
#include "codec/json.h"
#include "committer.h"
#include "results.h"

#define LINE_MOST  ((size_t)256 << 20)
#define CHUNK      ((size_t)256 << 10)
#define LINE_ARENA (LINE_MOST / 4)

/* ---- rows of several files ---- */

struct row_set {
    MR_VEC(struct mr_ranges) files;
};

static struct mr_ranges *set_file(struct row_set *s, uint32_t file)
{
    while (s->files.len <= file) {
        MR_VEC_PUSH(&s->files, (struct mr_ranges){0});
    }
    return &s->files.at[file];
}

static int set_add(struct row_set *s, const struct mr_manifest_extent *e, struct mr_err *err)
{
    return mr_ranges_add(set_file(s, e->file), e->first, e->first + e->count, err);
}

static bool set_has(const struct row_set *s, uint32_t file, uint64_t row)
{
    return file < s->files.len && mr_ranges_contains(&s->files.at[file], row, row + 1);
}

static bool set_touches(const struct row_set *s, const struct mr_manifest_item *item)
{
    struct mr_range gap;

    for (size_t i = 0; i < item->extent_count; i++) {
        const struct mr_manifest_extent *e = &item->extents[i];
        if (e->file >= s->files.len || s->files.at[e->file].len == 0) {
            continue;
        }
        if (!mr_ranges_gap(&s->files.at[e->file], e->first, e->first + e->count, &gap) ||
            gap.first != e->first || gap.end != e->first + e->count) {
            return true;
        }
    }
    return false;
}

static void set_fini(struct row_set *s)
{
    for (size_t i = 0; i < s->files.len; i++) {
        mr_ranges_fini(&s->files.at[i]);
    }
    MR_VEC_FINI(&s->files);
}

typedef MR_VEC(struct mr_manifest_extent) extent_vec;

static void set_extents(const struct row_set *s, extent_vec *out)
{
    for (size_t i = 0; i < s->files.len; i++) {
        for (size_t k = 0; k < s->files.at[i].len; k++) {
            const struct mr_range r = s->files.at[i].at[k];
            MR_VEC_PUSH(out, ((struct mr_manifest_extent){(uint32_t)i, r.first, r.end - r.first}));
        }
    }
}

/* ---- dead letters ---- */

struct dead_letter {
    uint32_t file;
    uint32_t attempts;
    uint64_t row;
};

struct dlq_retry {
    struct mr_map paths; /* of the source, by all names that are known -> number + 1 */
    MR_VEC(struct dead_letter) dead_letters; /* by file and row */
};

/* Number + 1 of a file that an earlier start may have named in another way; 0: there is none. */
static uintptr_t file_find(const struct dlq_retry *r, mr_str path)
{
    uintptr_t file = (uintptr_t)mr_map_find(&r->paths, path);

    if (!file) {
        char *name = mr_strndup(path.ptr, path.len);
        char *place = batch_file_real(name);
        file = (uintptr_t)mr_map_find(&r->paths, mr_str_c(place));
        mr_free(place);
        mr_free(name);
    }
    return file;
}

static int dead_letter_read(const struct dlq_retry *r, mr_str line, struct dead_letter *out,
                            struct mr_err *err)
{
    struct mr_arena arena;
    struct mr_json j;
    bool is_first = true;
    bool has_row = false;
    uintptr_t file = 0;
    uint64_t attempts = 0;
    mr_str text;

    mr_arena_init(&arena, 0, LINE_ARENA);
    mr_json_init(&j, line, &arena, 0, err);
    mr_json_enter_object(&j);
    while (mr_json_next_key(&j, &is_first, &text)) {
        if (mr_str_eq_c(text, "file") && mr_json_string(&j, &text) == MR_OK) {
            file = file_find(r, text);
        } else if (mr_str_eq_c(text, "row")) {
            has_row = mr_json_u64(&j, &out->row) == MR_OK;
        } else if (mr_str_eq_c(text, "attempts")) {
            mr_json_u64(&j, &attempts);
        } else {
            mr_json_skip(&j, NULL);
        }
    }
    int rc = mr_json_finish(&j);
    if (rc == MR_OK && (!file || !has_row)) {
        rc = MR_FAIL(err, MR_E_IO, "it names no row of the input");
    }
    mr_arena_fini(&arena);
    out->file = (uint32_t)(file - 1);
    out->attempts = (uint32_t)MR_MIN(attempts, (uint64_t)UINT32_MAX / 2);
    return rc;
}

typedef int(dead_letter_fn)(void *ctx, const struct dead_letter *l, mr_str line,
                            struct mr_err *err);

/* Each line that is complete; what is left goes to the front. */
static int lines_take(const struct dlq_retry *r, struct mr_buf *text, dead_letter_fn *fn, void *ctx,
                      uint64_t *io_count, struct mr_err *err)
{
    mr_str rest = mr_buf_view(text);
    struct dead_letter l = {0};
    const char *end;
    int rc = MR_OK;

    while (rest.len > 0 && (end = memchr(rest.ptr, '\n', rest.len))) {
        const mr_str line = mr_str_n(rest.ptr, (size_t)(end - rest.ptr) + 1);
        MR_TRY(dead_letter_read(r, line, &l, err));
        MR_TRY(fn(ctx, &l, line, err));
        rest = mr_str_sub(rest, line.len, rest.len);
        ++*io_count;
    }
    mr_buf_consume(text, text->len - rest.len);
out:
    return rc;
}

/* Calls fn for each dead letter of an item. */
static int dead_letters_read(const struct dlq_retry *r, const struct mr_manifest *m,
                             const struct mr_manifest_item *item, dead_letter_fn *fn, void *ctx,
                             struct mr_err *err)
{
    uint64_t count = 0;
    struct mr_buf text;
    ssize_t n = 0;
    int rc;
    const int fd = mr_manifest_file_open(m, MR_MANIFEST_DEAD_LETTERS, item->dlq, err);

    if (fd < 0) {
        return fd;
    }
    mr_buf_init(&text, LINE_MOST);
    do {
        char *room = mr_buf_reserve(&text, CHUNK);
        n = room ? read(fd, room, CHUNK) : 0;
        if (!room || n < 0) {
            rc = room ? batch_file_fail(err, "read", item->dlq)
                      : MR_FAIL(err, MR_E_IO, "a line of more than %zu bytes", LINE_MOST);
            goto out;
        }
        text.len += (size_t)n;
        MR_TRY(lines_take(r, &text, fn, ctx, &count, err));
    } while (n > 0);
    if (text.len > 0 || count != item->dead) {
        rc = MR_FAIL(err, MR_E_IO, "%llu lines, %llu were written", (unsigned long long)count,
                     (unsigned long long)item->dead);
    }
out:
    close(fd);
    mr_buf_fini(&text);
    return rc < 0
               ? MR_WRAP(err, rc, "dlq/%s, after line %llu", item->dlq, (unsigned long long)count)
               : MR_OK;
}

/* ---- the start ---- */

static int dead_letter_collect(void *ctx, const struct dead_letter *l, mr_str line,
                               struct mr_err *err)
{
    struct dlq_retry *r = ctx;

    (void)line;
    (void)err;
    MR_VEC_PUSH(&r->dead_letters, *l);
    return MR_OK;
}

static int dead_letters_in_order(const void *a, const void *b)
{
    const struct dead_letter *x = a;
    const struct dead_letter *y = b;

    if (x->file != y->file) {
        return x->file < y->file ? -1 : 1;
    }
    return x->row < y->row ? -1 : x->row > y->row;
}

/* Files as the job's first start named them, perhaps in another folder. */
static int first_names_put(struct dlq_retry *r, const struct mr_manifest *m, struct mr_err *err)
{
    struct mr_arena arena;
    struct mr_buf names;
    struct mr_buf others;
    struct mr_json j;
    bool is_first = true;
    uintptr_t file = 0;
    mr_str name;

    mr_arena_init(&arena, 0, LINE_ARENA);
    mr_buf_init(&names, 0);
    mr_buf_init(&others, 0);
    int rc = mr_manifest_identity_put(m, "inputs", &names, &others, err);
    mr_json_init(&j, mr_buf_view(&names), &arena, 0, err);
    if (rc == MR_OK && names.len > 0) {
        mr_json_enter_array(&j);
        while (mr_json_next_item(&j, &is_first) && mr_json_string(&j, &name) == MR_OK) {
            mr_map_put(&r->paths, name, (void *)++file); /* NOLINT */
        }
        rc = mr_json_finish(&j);
    }
    mr_buf_fini(&names);
    mr_buf_fini(&others);
    mr_arena_fini(&arena);
    return rc;
}

/* All names of the files that are known; those of now count most. */
static int names_put(struct dlq_retry *r, const struct results *rs, struct mr_err *err)
{
    const int rc = first_names_put(r, rs->manifest, err);

    for (size_t i = mr_source_file_count(rs->input->source); i > 0; i--) {
        const char *path = mr_source_path(rs->input->source, i - 1);
        char *place = batch_file_real(path);
        mr_map_put(&r->paths, mr_str_c(place), (void *)(uintptr_t)i);
        mr_map_put(&r->paths, mr_str_c(path), (void *)(uintptr_t)i);
        mr_free(place);
    }
    return rc;
}

int dlq_retry_new(struct dlq_retry **out, const struct results *rs, struct mr_err *err)
{
    struct dlq_retry *r = MR_NEW(struct dlq_retry);
    int rc = names_put(r, rs, err);

    for (size_t i = 0; i < mr_manifest_item_count(rs->manifest) && rc == MR_OK; i++) {
        const struct mr_manifest_item *item = mr_manifest_item(rs->manifest, i);
        rc = item->dlq ? dead_letters_read(r, rs->manifest, item, dead_letter_collect, r, err)
                       : MR_OK;
    }
    if (rc < 0) {
        dlq_retry_free(&r);
        return rc;
    }
    if (r->dead_letters.len > 0) {
        qsort(r->dead_letters.at, r->dead_letters.len, sizeof *r->dead_letters.at,
              dead_letters_in_order);
    }
    *out = r;
    return MR_OK;
}

void dlq_retry_free(struct dlq_retry **r)
{
    if (*r) {
        mr_map_fini(&(*r)->paths);
        MR_VEC_FINI(&(*r)->dead_letters);
        mr_freep(r);
    }
}

uint64_t dlq_retry_rows(const struct dlq_retry *r)
{
    return r->dead_letters.len;
}

int dlq_retry_others(const struct dlq_retry *r, uint32_t file, struct mr_ranges *out,
                     struct mr_err *err)
{
    size_t low = 0;
    uint64_t at = 0;
    int rc = MR_OK;

    for (size_t high = r->dead_letters.len; low < high;) {
        const size_t middle = low + (high - low) / 2;
        if (r->dead_letters.at[middle].file < file) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (; low < r->dead_letters.len && r->dead_letters.at[low].file == file && rc == MR_OK;
         low++) {
        const uint64_t row = r->dead_letters.at[low].row;
        rc = row > at ? mr_ranges_add(out, at, row, err) : MR_OK;
        at = row + 1;
    }
    return rc < 0 ? rc : mr_ranges_add(out, at, UINT64_MAX, err);
}

uint32_t dlq_retry_attempts(const struct dlq_retry *r, uint32_t file, uint64_t row)
{
    const struct dead_letter key = {.file = file, .row = row};
    const struct dead_letter *l = r->dead_letters.len > 0
                                      ? bsearch(&key, r->dead_letters.at, r->dead_letters.len,
                                                sizeof key, dead_letters_in_order)
                                      : NULL;
    return l ? l->attempts : 0;
}

/* ---- commits ---- */

struct change {
    struct results *results;
    struct open_part *part;
    struct row_set tried; /* with their outcomes in the part */
    struct row_set added; /* rows of the new item: tried ones, and dead letters that were copied */
    struct row_set rest;  /* rows of the item at hand that stay in its file of results */
    uint64_t copied;
    MR_VEC(struct mr_manifest_add) adds;
    MR_VEC(const struct mr_manifest_item *) removes;
};

static void change_fini(struct change *c)
{
    for (size_t i = 0; i < c->adds.len; i++) {
        mr_free((void *)(uintptr_t)c->adds.at[i].extents);
    }
    MR_VEC_FINI(&c->adds);
    MR_VEC_FINI(&c->removes);
    set_fini(&c->tried);
    set_fini(&c->added);
    set_fini(&c->rest);
}

static void change_add(struct change *c, struct mr_manifest_add add, const struct row_set *rows)
{
    extent_vec extents = {0};

    set_extents(rows, &extents);
    add.extents = extents.at;
    add.extent_count = extents.len;
    MR_VEC_PUSH(&c->adds, add);
}

/* A dead letter of an item that goes: it stays one, unless its row was tried. */
static int dead_letter_move(void *ctx, const struct dead_letter *l, mr_str line, struct mr_err *err)
{
    struct change *c = ctx;
    const struct mr_manifest_extent row = {l->file, l->row, 1};
    int rc;

    MR_TRY(mr_ranges_remove(set_file(&c->rest, l->file), l->row, l->row + 1, err));
    if (!set_has(&c->tried, l->file, l->row)) {
        MR_TRY(set_add(&c->added, &row, err));
        MR_TRY(committer_part_dead_letter(c->results, c->part, line, err));
        c->copied++;
    }
out:
    return rc;
}

static int item_take_apart(struct change *c, const struct mr_manifest_item *item,
                           struct mr_err *err)
{
    int rc = MR_OK;

    set_fini(&c->rest);
    for (size_t i = 0; i < item->extent_count; i++) {
        MR_TRY(set_add(&c->rest, &item->extents[i], err));
    }
    MR_TRY(dead_letters_read(c->results->dlq_retry, c->results->manifest, item, dead_letter_move, c,
                             err));
    if (item->part) {
        change_add(c,
                   (struct mr_manifest_add){
                       .keep_part = item->part, .rows = item->rows, .hosts = item->hosts},
                   &c->rest);
    }
    MR_VEC_PUSH(&c->removes, item);
out:
    return rc;
}

int dlq_retry_commit(struct results *rs, struct open_part *p, struct mr_err *err)
{
    struct change c = {.results = rs, .part = p};
    int rc = MR_OK;

    for (size_t i = 0; i < p->extents.len; i++) {
        MR_TRY(set_add(&c.tried, &p->extents.at[i], err));
        MR_TRY(set_add(&c.added, &p->extents.at[i], err));
    }
    for (size_t i = 0; i < mr_manifest_item_count(rs->manifest); i++) {
        const struct mr_manifest_item *item = mr_manifest_item(rs->manifest, i);
        if (item->dlq && set_touches(&c.tried, item)) {
            MR_TRY(item_take_apart(&c, item, err));
        }
    }
    MR_TRY(committer_part_lines_write(rs, p, err));
    change_add(&c,
               (struct mr_manifest_add){.part = p->has_results ? &p->results : NULL,
                                        .dlq = p->has_dead ? &p->dead : NULL,
                                        .rows = p->rows,
                                        .dead = p->dead_rows + c.copied,
                                        .hosts = p->hosts},
               &c.added);
    rc = mr_manifest_replace(rs->manifest, c.adds.at, c.adds.len, c.removes.at, c.removes.len, err);
out:
    change_fini(&c);
    return rc;
}
