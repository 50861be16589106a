/* Files that are being written, and their commit.
 *
 * The order is what makes it safe: content to disk, name to disk, record to disk. A crash in between leaves
 * files that no record names; the next start removes them. Rows are marked as done before anything is
 * written, so that a commit that would do a row twice leaves no trace, and unmarked if it fails. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "batch/files/file.h"
#include "manifest_priv.h"

#define TMP_NAME_BYTES (sizeof MR_FILE_TMP + MR_MANIFEST_NAME_BYTES)

static int folder_of(const struct mr_manifest *m, enum mr_manifest_kind kind)
{
    return kind == MR_MANIFEST_RESULTS ? m->parts : m->dlq;
}

static const char *tmp_name(const struct mr_manifest_part *part, char out[TMP_NAME_BYTES])
{
    snprintf(out, TMP_NAME_BYTES, MR_FILE_TMP "%s", part->name);
    return out;
}

/* `place` is what names sort by before all else, "" or with a line at its end. */
static int part_name(struct mr_manifest *m, enum mr_manifest_kind kind, const char *place,
                     const char *suffix, struct mr_manifest_part *out, struct mr_err *err)
{
    if (strlen(suffix) > MR_MANIFEST_SUFFIX_MOST || strchr(suffix, '/') ||
        (suffix[0] && suffix[0] != '.')) {
        return MR_FAIL(err, MR_E_INVALID, "'%s' is no suffix for a file", suffix);
    }
    const uint64_t number = atomic_fetch_add_explicit(&m->next_number, 1, memory_order_relaxed);
    *out = (struct mr_manifest_part){.kind = kind, .fd = -1};
    snprintf(out->name, sizeof out->name, "%c-%s%06u-%06" PRIu64 "%s",
             kind == MR_MANIFEST_RESULTS ? 'p' : 'd', place, m->epoch, number, suffix);
    return MR_OK;
}

static int part_begin(struct mr_manifest *m, enum mr_manifest_kind kind, const char *place,
                      const char *suffix, struct mr_manifest_part *out, struct mr_err *err)
{
    struct mr_manifest_part part;
    char tmp[TMP_NAME_BYTES];
    int rc = part_name(m, kind, place, suffix, &part, err);

    if (rc < 0) {
        return rc;
    }
    part.fd = openat(m->dir, tmp_name(&part, tmp), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (part.fd < 0) {
        return batch_file_fail(err, "make", tmp);
    }
    *out = part;
    return MR_OK;
}

int mr_manifest_part_begin(struct mr_manifest *m, enum mr_manifest_kind kind, const char *suffix,
                           struct mr_manifest_part *out, struct mr_err *err)
{
    return part_begin(m, kind, "", suffix, out, err);
}

static const char *place_of(uint32_t file, uint64_t first, char out[40])
{
    snprintf(out, 40, "%07u-%012" PRIu64 "-", file, first);
    return out;
}

int mr_manifest_part_begin_at(struct mr_manifest *m, uint32_t file, uint64_t first,
                              const char *suffix, struct mr_manifest_part *out, struct mr_err *err)
{
    char place[40];

    return part_begin(m, MR_MANIFEST_RESULTS, place_of(file, first, place), suffix, out, err);
}

int mr_manifest_part_begin_elsewhere(struct mr_manifest *m, const char *suffix,
                                     struct mr_manifest_part *out, struct mr_err *err)
{
    int rc = part_name(m, MR_MANIFEST_RESULTS, "", suffix, out, err);

    out->is_elsewhere = rc == MR_OK;
    return rc;
}

int mr_manifest_part_begin_elsewhere_at(struct mr_manifest *m, uint32_t file, uint64_t first,
                                        const char *suffix, struct mr_manifest_part *out,
                                        struct mr_err *err)
{
    char place[40];
    int rc = part_name(m, MR_MANIFEST_RESULTS, place_of(file, first, place), suffix, out, err);

    out->is_elsewhere = rc == MR_OK;
    return rc;
}

int mr_manifest_part_find_elsewhere(const struct mr_manifest *m, mr_str name,
                                    struct mr_manifest_part *out, struct mr_err *err)
{
    const uint32_t epoch = mr_manifest_name_epoch(MR_MANIFEST_RESULTS, name);

    if (epoch == 0 || epoch >= m->epoch || name.len >= sizeof out->name) {
        return MR_FAIL(err, MR_E_INVALID, "'%.*s' is no name of an earlier start's",
                       MR_STR_ARG(name));
    }
    *out = (struct mr_manifest_part){.kind = MR_MANIFEST_RESULTS, .fd = -1, .is_elsewhere = true};
    memcpy(out->name, name.ptr, name.len);
    return MR_OK;
}

int mr_manifest_part_seal(struct mr_manifest *m, struct mr_manifest_part *part, struct mr_err *err)
{
    int rc = MR_OK;

    (void)m;
    if (part->is_lost) {
        return MR_FAIL(err, MR_E_IO, "%s could not be brought to disk before", part->name);
    }
    if (!part->is_sealed) {
        rc = batch_file_checksum(part->fd, part->name, &part->bytes, &part->crc, err);
        if (rc == MR_OK) {
            rc = batch_file_sync(part->fd, part->name, err);
        }
        part->is_sealed = rc == MR_OK;
        part->is_lost = rc < 0;
    }
    return rc;
}

void mr_manifest_part_drop(struct mr_manifest *m, struct mr_manifest_part *part)
{
    char tmp[TMP_NAME_BYTES];

    if (part->fd < 0) {
        return;
    }
    if (!part->is_renamed) {
        unlinkat(m->dir, tmp_name(part, tmp), 0);
    } else if (m->broken.status == MR_OK) {
        /* Otherwise a record that names it may be on disk, and the next start decides. */
        unlinkat(folder_of(m, part->kind), part->name, 0);
    }
    close(part->fd);
    part->fd = -1;
}

/* ---- what an add becomes ---- */

static int extents_in_order(const void *a, const void *b)
{
    const struct mr_manifest_extent *x = a;
    const struct mr_manifest_extent *y = b;

    if (x->file != y->file) {
        return x->file < y->file ? -1 : 1;
    }
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Sorted, and joined where they touch; overlaps are left for the ranges to find. */
static int take_extents(struct mr_manifest_item *item, const struct mr_manifest_add *add,
                        uint64_t *out_rows, struct mr_err *err)
{
    uint64_t rows = 0;
    size_t n = 0;

    /* One more: where items are sorted, one without rows is at the very front. */
    item->extents = MR_NEW_ARRAY(struct mr_manifest_extent, add->extent_count + 1);
    if (add->extent_count > 0) {
        memcpy(item->extents, add->extents, add->extent_count * sizeof *add->extents);
        qsort(item->extents, add->extent_count, sizeof *item->extents, extents_in_order);
    }
    for (size_t i = 0; i < add->extent_count; i++) {
        const struct mr_manifest_extent e = item->extents[i];
        struct mr_manifest_extent *last = n ? &item->extents[n - 1] : NULL;
        uint64_t end;
        if (e.file >= MR_MANIFEST_FILES_MOST || e.count == 0 ||
            __builtin_add_overflow(e.first, e.count, &end) ||
            __builtin_add_overflow(rows, e.count, &rows)) {
            return MR_FAIL(err, MR_E_INVALID,
                           "an extent of input %u: %" PRIu64 " rows from %" PRIu64, e.file, e.count,
                           e.first);
        }
        if (last && last->file == e.file && last->first + last->count == e.first) {
            last->count += e.count;
        } else {
            item->extents[n++] = e;
        }
    }
    item->extent_count = n;
    *out_rows = rows;
    return MR_OK;
}

/* A file that stays, of one of the items that go. */
static int take_kept(const struct mr_manifest *m, struct mr_manifest_item *item,
                     const struct mr_manifest_add *add,
                     const struct mr_manifest_item *const *remove, size_t remove_count,
                     struct mr_err *err)
{
    const char *names[2] = {add->keep_part, add->keep_dlq};

    for (int k = 0; k < 2; k++) {
        const struct mr_manifest_item *from =
            names[k] ? mr_map_find(&m->by_name, mr_str_c(names[k])) : NULL;
        bool goes = false;
        for (size_t i = 0; i < remove_count; i++) {
            goes = goes || (from && remove[i] == from);
        }
        if (names[k] && (!goes || (k == 0 ? add->part || names[k][0] != 'p'
                                          : add->dlq || names[k][0] != 'd'))) {
            return MR_FAIL(err, MR_E_INVALID, "'%s' is in no item that is replaced", names[k]);
        }
        if (names[k] && k == 0) {
            item->part = mr_strndup(names[k], strlen(names[k]));
            item->part_bytes = from->part_bytes;
            item->part_crc = from->part_crc;
            item->is_elsewhere = from->is_elsewhere;
        } else if (names[k]) {
            item->dlq = mr_strndup(names[k], strlen(names[k]));
            item->dlq_bytes = from->dlq_bytes;
            item->dlq_crc = from->dlq_crc;
        }
    }
    return MR_OK;
}

static bool is_open_part(const struct mr_manifest_part *part, enum mr_manifest_kind kind)
{
    return !part || (part->kind == kind && (part->fd >= 0 || part->is_elsewhere));
}

static int make_item(struct mr_manifest_item **out, const struct mr_manifest *m,
                     const struct mr_manifest_add *add,
                     const struct mr_manifest_item *const *remove, size_t remove_count,
                     struct mr_err *err)
{
    struct mr_manifest_item *item = MR_NEW(struct mr_manifest_item);
    const bool has_part = add->part || add->keep_part;
    const bool has_dlq = add->dlq || add->keep_dlq;
    struct mr_buf hosts;
    uint64_t rows = 0;
    int rc;

    mr_buf_init(&hosts, 0);
    item->rows = add->rows;
    item->dead = add->dead;
    MR_TRY(take_extents(item, add, &rows, err));
    const bool is_empty = rows == 0 && add->part && !has_dlq;
    if (rows != add->rows + add->dead || (!is_empty && has_part != (add->rows > 0)) ||
        (rows == 0 && !is_empty) || has_dlq != (add->dead > 0) ||
        !is_open_part(add->part, MR_MANIFEST_RESULTS) ||
        !is_open_part(add->dlq, MR_MANIFEST_DEAD_LETTERS)) {
        rc = MR_FAIL(err, MR_E_INVALID,
                     "%" PRIu64 " results and %" PRIu64 " dead letters for %" PRIu64 " rows, or "
                     "without a file for them",
                     add->rows, add->dead, rows);
        goto out;
    }
    MR_TRY(take_kept(m, item, add, remove, remove_count, err));
    if (add->hosts) {
        MR_TRY(mr_manifest_check_json("hosts", mr_str_c(add->hosts), &hosts, err));
        item->hosts = mr_strndup(hosts.ptr, hosts.len);
    }
    *out = item;
    item = NULL;
out:
    mr_buf_fini(&hosts);
    mr_manifest_item_free(&item);
    return rc;
}

/* ---- commit ---- */

/* Its content is on disk; now its name in the folder, which is synced by the caller. */
static int place(struct mr_manifest *m, struct mr_manifest_part *part, struct mr_err *err)
{
    char tmp[TMP_NAME_BYTES];

    if (!part->is_renamed) {
        if (renameat(m->dir, tmp_name(part, tmp), folder_of(m, part->kind), part->name) < 0) {
            return batch_file_fail(err, "put in its place", part->name);
        }
        part->is_renamed = true;
    }
    return MR_OK;
}

static int place_all(struct mr_manifest *m, const struct mr_manifest_add *adds, size_t count,
                     struct mr_err *err)
{
    bool moved[2] = {false, false};

    for (size_t i = 0; i < count; i++) {
        struct mr_manifest_part *parts[2] = {adds[i].part, adds[i].dlq};
        for (int k = 0; k < 2; k++) {
            const bool is_file = parts[k] && !parts[k]->is_elsewhere;
            const int rc = is_file ? place(m, parts[k], err) : MR_OK;
            if (rc < 0) {
                return rc;
            }
            moved[k] = moved[k] || is_file;
        }
    }
    for (int k = 0; k < 2; k++) {
        const int rc =
            moved[k] ? batch_file_sync(k ? m->dlq : m->parts, k ? "dlq" : "parts", err) : MR_OK;
        if (rc < 0) {
            /* The names may or may not be on disk, and a second sync does not show it. */
            for (size_t i = 0; i < count; i++) {
                struct mr_manifest_part *part = k ? adds[i].dlq : adds[i].part;
                if (part) {
                    part->is_lost = true;
                }
            }
            return rc;
        }
    }
    return MR_OK;
}

static int seal_all(struct mr_manifest *m, const struct mr_manifest_add *adds,
                    struct mr_manifest_item **items, size_t count, struct mr_err *err)
{
    for (size_t i = 0; i < count; i++) {
        struct mr_manifest_part *part = adds[i].part;
        struct mr_manifest_part *dlq = adds[i].dlq;
        int rc = part && !part->is_elsewhere ? mr_manifest_part_seal(m, part, err) : MR_OK;
        if (rc == MR_OK && dlq) {
            rc = mr_manifest_part_seal(m, dlq, err);
        }
        if (rc < 0) {
            return rc;
        }
        if (part) {
            items[i]->part = mr_strndup(part->name, strlen(part->name));
            items[i]->part_bytes = part->bytes;
            items[i]->part_crc = part->crc;
            items[i]->is_elsewhere = part->is_elsewhere;
        }
        if (dlq) {
            items[i]->dlq = mr_strndup(dlq->name, strlen(dlq->name));
            items[i]->dlq_bytes = dlq->bytes;
            items[i]->dlq_crc = dlq->crc;
        }
    }
    return MR_OK;
}

static int write_change(struct mr_manifest *m, const struct mr_manifest_add *adds,
                        struct mr_manifest_item **items, size_t count,
                        const struct mr_manifest_item *const *removes, size_t remove_count,
                        struct mr_err *err)
{
    struct mr_buf record;
    int rc;

    mr_buf_init(&record, MR_MANIFEST_LOG_MOST);
    MR_TRY(mr_journal_check(m, err)); /* before a name is put where others look */
    MR_TRY(mr_manifest_unfinish(m, err));
    MR_TRY(seal_all(m, adds, items, count, err));
    MR_TRY(place_all(m, adds, count, err));
    mr_record_change(&record, items, count, removes, remove_count);
    if (record.failed) {
        rc = MR_FAIL(err, MR_E_NOMEM, "no memory for a record");
        goto out;
    }
    MR_TRY(mr_journal_append(m, mr_buf_view(&record), err));
out:
    mr_buf_fini(&record);
    return rc;
}

static void close_part(struct mr_manifest_part *part)
{
    if (part && part->fd >= 0) {
        close(part->fd);
        part->fd = -1;
    }
}

/* The files of a removed item that no new one has kept. That they stay after a failure or a crash does no
 * harm: the end of the job removes them, or the next start. */
static void unlink_left_over(struct mr_manifest *m, struct mr_manifest_item *const *items,
                             size_t count, const struct mr_manifest_item *removed)
{
    bool keeps_part = false;
    bool keeps_dlq = false;

    for (size_t i = 0; i < count; i++) {
        keeps_part = keeps_part ||
                     (removed->part && items[i]->part && !strcmp(removed->part, items[i]->part));
        keeps_dlq =
            keeps_dlq || (removed->dlq && items[i]->dlq && !strcmp(removed->dlq, items[i]->dlq));
    }
    if (removed->part && !keeps_part && !removed->is_elsewhere) {
        unlinkat(m->parts, removed->part, 0);
    }
    if (removed->dlq && !keeps_dlq) {
        unlinkat(m->dlq, removed->dlq, 0);
    }
}

/* Removed items are history in the log. When there is much of it, the log is rewritten. A failure of the rewrite does not
 * fail the change, which is on disk; the rewrite is tried again when there is more history. */
static void compact(struct mr_manifest *m)
{
    const uint64_t needed = 1 + m->items.len + m->notes.len;

    if (m->log_lines > needed + m->history_most && mr_journal_rewrite(m, NULL) < 0) {
        m->history_most += MR_MANIFEST_HISTORY_MOST;
    }
}

static int change(struct mr_manifest *m, const struct mr_manifest_add *adds, size_t add_count,
                  const struct mr_manifest_item *const *removes, size_t remove_count,
                  struct mr_err *err)
{
    struct mr_manifest_item **items = MR_NEW_ARRAY(struct mr_manifest_item *, add_count);
    int rc = MR_OK;

    for (size_t i = 0; i < add_count; i++) {
        MR_TRY(make_item(&items[i], m, &adds[i], removes, remove_count, err));
    }
    MR_TRY(mr_manifest_reserve(m, items, add_count, removes, remove_count, err));
    rc = write_change(m, adds, items, add_count, removes, remove_count, err);
    if (rc < 0) {
        mr_manifest_unreserve(m, items, add_count, removes, remove_count);
        goto out;
    }
    for (size_t i = 0; i < add_count; i++) {
        close_part(adds[i].part);
        close_part(adds[i].dlq);
    }
    for (size_t i = 0; i < remove_count; i++) {
        unlink_left_over(m, items, add_count, removes[i]);
    }
    mr_manifest_apply(m, items, add_count, removes, remove_count);
    memset(items, 0, add_count * sizeof *items);
    compact(m);
out:
    for (size_t i = 0; i < add_count; i++) {
        mr_manifest_item_free(&items[i]);
    }
    mr_free(items);
    return rc;
}

int mr_manifest_commit(struct mr_manifest *m, const struct mr_manifest_add *adds, size_t add_count,
                       struct mr_err *err)
{
    if (add_count == 0) {
        return MR_OK;
    }
    return change(m, adds, add_count, NULL, 0, err);
}

int mr_manifest_replace(struct mr_manifest *m, const struct mr_manifest_add *adds, size_t add_count,
                        const struct mr_manifest_item *const *removes, size_t remove_count,
                        struct mr_err *err)
{
    if (remove_count == 0) {
        return MR_FAIL(err, MR_E_INVALID, "nothing to replace");
    }
    return change(m, adds, add_count, removes, remove_count, err);
}

int mr_manifest_note(struct mr_manifest *m, mr_str json, struct mr_err *err)
{
    struct mr_buf note;
    struct mr_buf record;
    int rc;

    mr_buf_init(&note, 0);
    mr_buf_init(&record, 0);
    MR_TRY(mr_manifest_check_json("a note", json, &note, err));
    mr_record_note(&record, mr_buf_view(&note));
    MR_TRY(mr_journal_append(m, mr_buf_view(&record), err));
    mr_manifest_keep_note(m, mr_buf_view(&note));
    compact(m);
out:
    mr_buf_fini(&note);
    mr_buf_fini(&record);
    return rc;
}
