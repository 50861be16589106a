/* The state of a job in memory: items, the rows that they stand for, sums. No I/O here but reading a
 * committed file. The log is replayed through the same functions that a commit goes through, so that what a
 * restart sees is checked as what was written. */
#include "manifest.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "batch/files/file.h"
#include "manifest_priv.h"

void mr_manifest_item_free(struct mr_manifest_item **item)
{
    if (*item) {
        mr_free((*item)->part);
        mr_free((*item)->dlq);
        mr_free((*item)->extents);
        mr_free((*item)->hosts);
        mr_freep(item);
    }
}

static struct mr_ranges *rows_of(struct mr_manifest *m, uint32_t file)
{
    while (m->done.len <= file) {
        MR_VEC_PUSH(&m->done, (struct mr_ranges){0});
    }
    return &m->done.at[file];
}

/* Takes back the first n extents of an item that were marked. */
static void unmark(struct mr_manifest *m, const struct mr_manifest_item *item, size_t n)
{
    while (n-- > 0) {
        const struct mr_manifest_extent *e = &item->extents[n];
        const int rc = mr_ranges_remove(rows_of(m, e->file), e->first, e->first + e->count, NULL);
        MR_ASSERT(rc == MR_OK);
    }
}

static int mark(struct mr_manifest *m, const struct mr_manifest_item *item, struct mr_err *err)
{
    for (size_t i = 0; i < item->extent_count; i++) {
        const struct mr_manifest_extent *e = &item->extents[i];
        const int rc = mr_ranges_add(rows_of(m, e->file), e->first, e->first + e->count, err);
        if (rc < 0) {
            unmark(m, item, i);
            return MR_WRAP(err, rc, "input %u", e->file);
        }
    }
    return MR_OK;
}

static uint64_t rows_in(const struct mr_manifest_item *item)
{
    return item->rows + item->dead;
}

/* A replace stands for the same rows as before, or for none. Called when the rows of `remove` are not
 * marked and those of `add` are: then those of `remove` must be exactly these. */
static int check_replaced(struct mr_manifest *m, struct mr_manifest_item *const *add,
                          size_t add_count, const struct mr_manifest_item *const *remove,
                          size_t remove_count, struct mr_err *err)
{
    uint64_t more = 0;
    uint64_t less = 0;
    bool same = true;

    if (add_count == 0 || remove_count == 0) {
        return MR_OK;
    }
    for (size_t i = 0; i < add_count; i++) {
        more += rows_in(add[i]);
    }
    for (size_t i = 0; i < remove_count; i++) {
        less += rows_in(remove[i]);
        for (size_t k = 0; k < remove[i]->extent_count; k++) {
            const struct mr_manifest_extent *e = &remove[i]->extents[k];
            same = same && mr_ranges_contains(rows_of(m, e->file), e->first, e->first + e->count);
        }
    }
    if (!same || more != less) {
        return MR_FAIL(err, MR_E_INVALID,
                       "what replaces items stands for other rows than they did");
    }
    return MR_OK;
}

int mr_manifest_reserve(struct mr_manifest *m, struct mr_manifest_item *const *add,
                        size_t add_count, const struct mr_manifest_item *const *remove,
                        size_t remove_count, struct mr_err *err)
{
    size_t marked = 0;
    int rc = MR_OK;

    for (size_t i = 0; i < remove_count; i++) {
        unmark(m, remove[i], remove[i]->extent_count);
    }
    for (; marked < add_count && rc == MR_OK; marked += rc == MR_OK) {
        rc = mark(m, add[marked], err);
    }
    if (rc == MR_OK) {
        rc = check_replaced(m, add, add_count, remove, remove_count, err);
    }
    if (rc < 0) {
        mr_manifest_unreserve(m, add, marked, remove, remove_count);
    }
    return rc;
}

void mr_manifest_unreserve(struct mr_manifest *m, struct mr_manifest_item *const *add,
                           size_t add_count, const struct mr_manifest_item *const *remove,
                           size_t remove_count)
{
    for (size_t i = 0; i < add_count; i++) {
        unmark(m, add[i], add[i]->extent_count);
    }
    for (size_t i = 0; i < remove_count; i++) {
        const int rc = mark(m, remove[i], NULL);
        MR_ASSERT(rc == MR_OK);
    }
}

static void forget(struct mr_manifest *m, struct mr_manifest_item *item)
{
    m->totals.rows -= item->rows;
    m->totals.dead -= item->dead;
    m->totals.parts -= item->part != NULL;
    m->totals.bytes -= item->part_bytes;
    /* A file that stays has its new item in the map already. */
    if (item->part && mr_map_find(&m->by_name, mr_str_c(item->part)) == item) {
        mr_map_remove(&m->by_name, mr_str_c(item->part));
    }
    if (item->dlq && mr_map_find(&m->by_name, mr_str_c(item->dlq)) == item) {
        mr_map_remove(&m->by_name, mr_str_c(item->dlq));
    }
    mr_manifest_item_free(&item);
}

static bool is_among(const struct mr_manifest_item *item,
                     const struct mr_manifest_item *const *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (items[i] == item) {
            return true;
        }
    }
    return false;
}

void mr_manifest_apply(struct mr_manifest *m, struct mr_manifest_item *const *add, size_t add_count,
                       const struct mr_manifest_item *const *remove, size_t remove_count)
{
    const size_t before = m->items.len;
    size_t kept = 0;

    for (size_t i = 0; i < add_count; i++) {
        struct mr_manifest_item *item = add[i];
        MR_VEC_PUSH(&m->items, item);
        m->totals.rows += item->rows;
        m->totals.dead += item->dead;
        m->totals.parts += item->part != NULL;
        m->totals.bytes += item->part_bytes;
        if (item->part) {
            mr_map_put(&m->by_name, mr_str_c(item->part), item);
        }
        if (item->dlq) {
            mr_map_put(&m->by_name, mr_str_c(item->dlq), item);
        }
    }
    if (remove_count == 0) {
        return;
    }
    for (size_t i = 0; i < m->items.len; i++) {
        struct mr_manifest_item *item = m->items.at[i];
        if (i < before && is_among(item, remove, remove_count)) {
            forget(m, item);
        } else {
            m->items.at[kept++] = item;
        }
    }
    m->items.len = kept;
}

void mr_manifest_keep_note(struct mr_manifest *m, mr_str json)
{
    if (m->notes.len == MR_MANIFEST_NOTES) {
        mr_free(m->notes.at[0]);
        m->notes.len--;
        memmove(&m->notes.at[0], &m->notes.at[1], m->notes.len * sizeof m->notes.at[0]);
    }
    MR_VEC_PUSH(&m->notes, mr_strndup(json.ptr, json.len));
}

int mr_manifest_check_json(const char *what, mr_str json, struct mr_buf *out, struct mr_err *err)
{
    struct mr_arena arena;
    struct mr_json j;
    int rc;

    if (json.len > MR_MANIFEST_NOTE_BYTES_MOST) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "%s of %zu bytes, %u allowed", what, json.len,
                       MR_MANIFEST_NOTE_BYTES_MOST);
    }
    mr_arena_init(&arena, 0, 4 * MR_MANIFEST_NOTE_BYTES_MOST);
    mr_json_init(&j, json, &arena, 0, err);
    MR_TRY(mr_json_skip(&j, NULL));
    MR_TRY(mr_json_finish(&j));
    for (size_t i = 0; i < json.len; i++) {
        const char c = json.ptr[i];
        mr_buf_char(out, c == '\n' || c == '\r' ? ' ' : c); /* within strings they are escaped */
    }
out:
    mr_arena_fini(&arena);
    return rc < 0 ? MR_WRAP(err, rc, "%s", what) : MR_OK;
}

/* Numbers of at least six digits with a line between them, then the suffix: how many there are. */
static size_t name_numbers(mr_str name, uint64_t numbers[5])
{
    size_t count = 0;
    size_t i = 1;

    while (count < 5 && i < name.len && name.ptr[i] == '-') {
        const size_t begin = ++i;
        while (i < name.len && name.ptr[i] >= '0' && name.ptr[i] <= '9') {
            i++;
        }
        if (i - begin < 6 || !mr_str_to_u64(mr_str_sub(name, begin, i), &numbers[count])) {
            return 0;
        }
        count++;
    }
    for (; i < name.len; i++) {
        if (name.ptr[i] == '/' || name.ptr[i] == '\0') {
            return 0;
        }
    }
    return count;
}

uint32_t mr_manifest_name_epoch(enum mr_manifest_kind kind, mr_str name)
{
    uint64_t numbers[5] = {0};
    const bool is_result = kind == MR_MANIFEST_RESULTS;

    if (name.len >= MR_MANIFEST_NAME_BYTES ||
        !mr_str_starts(name, is_result ? MR_STR("p-") : MR_STR("d-"))) {
        return 0;
    }
    const size_t count = name_numbers(name, numbers);
    const uint64_t epoch = count == 2 ? numbers[0] : count == 4 && is_result ? numbers[2] : 0;
    return epoch <= UINT32_MAX ? (uint32_t)epoch : 0;
}

bool mr_manifest_name_is_ours(enum mr_manifest_kind kind, mr_str name)
{
    return mr_manifest_name_epoch(kind, name) > 0;
}

bool mr_manifest_name_is_placed(const char *name)
{
    uint64_t numbers[5];

    return name_numbers(mr_str_c(name), numbers) == 4;
}

bool mr_manifest_is_in_order(const struct mr_manifest_item *const *items, size_t count)
{
    const struct mr_manifest_extent *last = NULL;

    for (size_t i = 0; i < count; i++) {
        if (!items[i]->part || items[i]->extent_count == 0) {
            continue;
        }
        const struct mr_manifest_extent *first = items[i]->extents;
        if (!mr_manifest_name_is_placed(items[i]->part) ||
            (last && (first->file < last->file ||
                      (first->file == last->file && first->first < last->first + last->count)))) {
            return false;
        }
        last = &items[i]->extents[items[i]->extent_count - 1];
    }
    return true;
}

bool mr_manifest_is_sound(const struct mr_manifest *m, bool *out_may_reopen)
{
    *out_may_reopen = m->may_reopen;
    return m->broken.status == MR_OK;
}

bool mr_manifest_is_finished(const struct mr_manifest *m)
{
    return m->is_finished;
}

const char *mr_manifest_id(const struct mr_manifest *m)
{
    return m->id;
}

uint32_t mr_manifest_epoch(const struct mr_manifest *m)
{
    return m->epoch;
}

const struct mr_ranges *mr_manifest_done(const struct mr_manifest *m, uint32_t file)
{
    static const struct mr_ranges none;

    return file < m->done.len ? &m->done.at[file] : &none;
}

struct mr_manifest_totals mr_manifest_totals(const struct mr_manifest *m)
{
    return m->totals;
}

size_t mr_manifest_item_count(const struct mr_manifest *m)
{
    return m->items.len;
}

const struct mr_manifest_item *mr_manifest_item(const struct mr_manifest *m, size_t i)
{
    return m->items.at[i];
}

const struct mr_manifest_item *mr_manifest_find(const struct mr_manifest *m, mr_str name)
{
    return mr_map_find(&m->by_name, name);
}

int mr_manifest_file_open(const struct mr_manifest *m, enum mr_manifest_kind kind, const char *name,
                          struct mr_err *err)
{
    const int fd = openat(kind == MR_MANIFEST_RESULTS ? m->parts : m->dlq, name,
                          O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0);

    return fd < 0 ? batch_file_fail(err, "open", name) : fd;
}
