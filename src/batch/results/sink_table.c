/* Results in a table of a database.
 *
 * A part is one transaction there: its rows, and a note of which ones they are under the part's name. Rows are kept until
 * then, so that the transaction can be made again when the connection is lost. It is over before the manifest has the
 * item; a crash in between leaves a commit that only the database knows of, and the next start adds it to the manifest.
 * The note has no dead letters, as these may have got lost with the crash: such rows are done again. */
#include <inttypes.h>

#include "base/clock.h"
#include "base/map.h"
#include "batch/common/extent.h"
#include "batch/common/storage.h"
#include "batch/protocols/oip/answer.h"
#include "codec/json.h"
#include "committer.h"
#include "disk.h"
#include "dlq_retry.h"
#include "results.h"
#include "sink.h"
#include "table/store.h"

#define NOTE_MOST   (64u << 20)
#define STOP_NS     (10 * MR_NS_PER_S) /* for the last commit, when the job is to end */
#define PART_SUFFIX ".table"

/* ---- what the database has and the manifest has not ---- */

struct lost {
    char *name;
    uint64_t rows;
    MR_VEC(struct mr_manifest_extent) extents;
};

struct reconcile {
    struct results *results;
    struct mr_map known; /* names of the manifest that the database has as well */
    MR_VEC(struct lost) lost;
};

static int note_read(mr_str note, struct lost *out, struct mr_err *err)
{
    struct mr_arena arena;
    struct mr_json j;
    bool is_first = true;
    uint64_t rows = 0;

    mr_arena_init(&arena, 0, 65536);
    mr_json_init(&j, note, &arena, 0, err);
    mr_json_enter_array(&j);
    while (mr_json_next_item(&j, &is_first)) {
        uint64_t numbers[3] = {0};
        bool is_first_number = true;
        size_t n = 0;
        mr_json_enter_array(&j);
        while (mr_json_next_item(&j, &is_first_number) && n < 3) {
            mr_json_u64(&j, &numbers[n++]);
        }
        if (j.status == MR_OK && (n != 3 || numbers[0] >= MR_MANIFEST_FILES_MOST)) {
            mr_json_fail(&j, MR_E_INVALID, "rows are [file, first, count]");
        }
        rows += numbers[2];
        MR_VEC_PUSH(&out->extents,
                    ((struct mr_manifest_extent){(uint32_t)numbers[0], numbers[1], numbers[2]}));
    }
    int rc = mr_json_finish(&j);
    if (rc == MR_OK && rows != out->rows) {
        rc =
            MR_FAIL(err, MR_E_INVALID, "%" PRIu64 " rows, the note says %" PRIu64, out->rows, rows);
    }
    mr_arena_fini(&arena);
    return rc;
}

static int commit_seen(void *ctx, mr_str name, uint64_t rows, mr_str note, struct mr_err *err)
{
    struct reconcile *r = ctx;
    const struct mr_manifest *m = r->results->manifest;
    struct lost lost = {.rows = rows};

    if (mr_manifest_find(m, name)) {
        mr_map_put(&r->known, name, r);
        return MR_OK;
    }
    lost.name = mr_strndup(name.ptr, name.len);
    int rc = note_read(note, &lost, err);
    MR_VEC_PUSH(&r->lost, lost);
    return rc < 0 ? MR_WRAP(err, rc, "the database, commit '%.*s' of the job", MR_STR_ARG(name))
                  : MR_OK;
}

/* A database that was set back has fewer commits than the manifest. */
static int known_check(const struct reconcile *r, struct mr_err *err)
{
    const struct mr_manifest *m = r->results->manifest;

    for (size_t i = 0; i < mr_manifest_item_count(m); i++) {
        const struct mr_manifest_item *item = mr_manifest_item(m, i);
        if (item->is_elsewhere && !mr_map_find(&r->known, mr_str_c(item->part))) {
            return MR_FAIL(err, MR_E_INVALID,
                           "the database does not know of %s, with %" PRIu64
                           " rows that the job has committed to it: was it set back, or is it "
                           "another one?",
                           item->part, item->rows);
        }
    }
    return MR_OK;
}

static bool are_done(const struct results *rs, const struct lost *l)
{
    const struct mr_manifest_extent *e = &l->extents.at[0];

    return l->extents.len > 0 &&
           mr_ranges_contains(mr_manifest_done(rs->manifest, e->file), e->first, e->first + 1);
}

/* Either rows that had no outcome, or dead letters that were tried again. */
static int lost_add(struct results *rs, struct lost *l, struct mr_err *err)
{
    struct open_part part = {.rows = l->rows, .has_results = true};
    struct dlq_retry *retry = rs->dlq_retry;
    int rc;

    MR_TRY(mr_manifest_part_find_elsewhere(rs->manifest, mr_str_c(l->name), &part.results, err));
    const struct mr_manifest_add add = {.part = &part.results,
                                        .rows = l->rows,
                                        .extents = l->extents.at,
                                        .extent_count = l->extents.len};
    if (!are_done(rs, l)) {
        rc = mr_manifest_commit(rs->manifest, &add, 1, err);
        goto out;
    }
    mr_buf_init(&part.lines, 0);
    for (size_t i = 0; i < l->extents.len; i++) {
        MR_VEC_PUSH(&part.extents, l->extents.at[i]);
    }
    MR_TRY(dlq_retry_new(&rs->dlq_retry, rs, err));
    rc = dlq_retry_commit(rs, &part, err);
    dlq_retry_free(&rs->dlq_retry);
    rs->dlq_retry = retry;
out:
    if (part.has_dead) {
        mr_manifest_part_drop(rs->manifest, &part.dead);
    }
    mr_buf_fini(&part.lines);
    MR_VEC_FINI(&part.extents);
    return rc < 0 ? MR_WRAP(err, rc, "taking %s, which the database has", l->name) : MR_OK;
}

static int reconcile(struct results *rs, struct mr_err *err)
{
    struct reconcile r = {.results = rs};
    int rc;

    MR_TRY(mr_store_commits(rs->store, commit_seen, &r, err));
    MR_TRY(known_check(&r, err));
    for (size_t i = 0; i < r.lost.len; i++) {
        MR_TRY(lost_add(rs, &r.lost.at[i], err));
    }
out:
    for (size_t i = 0; i < r.lost.len; i++) {
        mr_free(r.lost.at[i].name);
        MR_VEC_FINI(&r.lost.at[i].extents);
    }
    MR_VEC_FINI(&r.lost);
    mr_map_fini(&r.known);
    return rc;
}

/* ---- the sink ---- */

static int table_open(struct results *rs, struct mr_err *err)
{
    const struct mr_store_options options = {
        .database = rs->o->results.database,
        .table = rs->o->results.table,
        .schema = batch_outputs_schema(rs->model->outputs),
        .job = mr_manifest_id(rs->manifest),
        .epoch = mr_manifest_epoch(rs->manifest),
        .has_rows = mr_manifest_totals(rs->manifest).parts > 0,
        .outage_ns = rs->o->limits.outage_ns,
        .is_stopped = batch_has_stop,
        .ctx = rs->state,
    };
    int rc = mr_store_open(&rs->store, &options, err);

    return rc < 0 ? rc : reconcile(rs, err);
}

static void table_close(struct results *rs)
{
    mr_store_close(&rs->store);
}

static int table_begin(struct results *rs, struct open_part *p, const struct extent *e,
                       struct mr_err *err)
{
    int rc = mr_manifest_part_begin_elsewhere(rs->manifest, PART_SUFFIX, &p->results, err);

    (void)e;
    p->has_results = rc == MR_OK;
    return rc;
}

static int table_put(struct results *rs, struct open_part *p, const struct extent *e,
                     const struct extent_answer *a, struct mr_err *err)
{
    const struct mr_manifest_extent rows = {e->file, e->first + a->first, a->rows->count};
    struct mr_manifest_extent *last =
        p->held_rows.len > 0 ? &p->held_rows.at[p->held_rows.len - 1] : NULL;

    /* The rows themselves keep all of their input and of the answer in memory. */
    struct mr_rows *copy = mr_rows_copy(a->rows, 0, a->rows->count);

    (void)rs;
    if (!copy) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for %" PRIu64 " rows of results",
                       a->rows->count);
    }
    MR_VEC_PUSH(&p->held, copy);
    p->results.bytes += copy->bytes;
    if (last && last->file == rows.file && last->first + last->count == rows.first) {
        last->count += rows.count;
    } else {
        MR_VEC_PUSH(&p->held_rows, rows);
    }
    return MR_OK;
}

static uint64_t table_bytes(const struct open_part *p)
{
    return p->results.bytes;
}

/* They are held in memory, which others need as well. */
static uint64_t table_most_bytes(const struct results *rs)
{
    return MR_MIN(rs->o->results.part_bytes, rs->o->memory_bytes / 8);
}

static int table_finish(struct results *rs, struct open_part *p, struct mr_err *err)
{
    struct mr_buf note;
    int rc;

    mr_buf_init(&note, NOTE_MOST);
    mr_buf_char(&note, '[');
    for (size_t i = 0; i < p->held_rows.len; i++) {
        const struct mr_manifest_extent *e = &p->held_rows.at[i];
        mr_buf_printf(&note, "%s[%u,%" PRIu64 ",%" PRIu64 "]", i ? "," : "", e->file, e->first,
                      e->count);
    }
    mr_buf_char(&note, ']');
    do { /* a full disk of the database is waited for as one of the folder's */
        rc = note.failed
                 ? MR_FAIL(err, MR_E_NOMEM, "no memory for a note")
                 : mr_store_commit(rs->store, mr_str_c(p->results.name), mr_buf_view(&note),
                                   (const struct mr_rows *const *)p->held.at, p->held.len, err);
    } while (rc < 0 && disk_wait(rs->committer, err));
    mr_buf_fini(&note);
    return rc;
}

static void table_drop(struct open_part *p)
{
    for (size_t i = 0; i < p->held.len; i++) {
        mr_rows_unref(&p->held.at[i]);
    }
    MR_VEC_FINI(&p->held);
    MR_VEC_FINI(&p->held_rows);
}

static void table_stop(struct results *rs)
{
    if (rs->store) {
        mr_store_stop(rs->store, mr_ns_after(mr_now_ns(), STOP_NS));
    }
}

const struct sink_ops sink_table = {
    .open = table_open,
    .close = table_close,
    .begin = table_begin,
    .put = table_put,
    .bytes = table_bytes,
    .most_bytes = table_most_bytes,
    .finish = table_finish,
    .drop = table_drop,
    .stop = table_stop,
    .holds_rows = true,
};
