/* The end of a filter: extents to one descriptor, in the order of their rows or as they come.
 *
 * In order, an extent that is ready before its turn waits here and keeps its credit, so the budget is what bounds the
 * window: the reader stops when it is used up, and goes on when the first row's extent has gone out. Rows are held back
 * to be written together only as long as there are more extents at hand.
 *
 * Runs on the committer's thread, in the place of committer_run. */
#include <stdlib.h>

#include "base/clock.h"
#include "job.h"

struct sink {
    struct job *job;
    struct mr_writer *writer;
    struct extent *held; /* by their first rows, ascending */
    uint64_t next;       /* the row whose turn it is */
    bool is_dirty;       /* the writer holds rows */
};

/* ---- one extent ---- */

/* A piece of an extent: rows with an answer, or a dead one. */
struct piece {
    uint64_t first;
    const struct mr_rows *rows;
    const struct dead_row *dead;
};

static int piece_compare(const void *a, const void *b)
{
    const uint64_t x = ((const struct piece *)a)->first;
    const uint64_t y = ((const struct piece *)b)->first;

    return x < y ? -1 : x > y;
}

static int flush(struct sink *s, struct mr_err *err)
{
    s->is_dirty = false;
    int rc = mr_writer_flush(s->writer, err);
    return rc < 0 ? MR_WRAP(err, rc, "'stdout'") : rc;
}

static int rows_put(struct sink *s, const struct mr_rows *rows, struct mr_err *err)
{
    int rc = mr_writer_put(s->writer, rows, 0, rows->count, err);
    return rc < 0 ? MR_WRAP(err, rc, "'stdout'") : rc;
}

static int dead_put(struct sink *s, const struct extent *e, const struct dead_row *d,
                    struct mr_err *err)
{
    const struct mr_batch_filter *f = s->job->o->filter;
    const uint64_t row = e->first + d->row;
    struct mr_rows *none = NULL;
    int rc;

    if (f->dead == MR_BATCH_DEAD_FAIL) {
        MR_TRY(flush(s, err)); /* what came before it */
        return MR_FAIL(err, MR_E_INVALID, "row %llu (%s): %s", (unsigned long long)row, d->kind,
                       d->cause);
    }
    f->on_dead(f->ctx, row, d->kind, d->cause);
    if (f->dead == MR_BATCH_DEAD_SKIP) {
        return MR_OK;
    }
    MR_TRY(batch_answer_none(s->job->outputs, e->rows, d->row, d->cause, &none, err));
    rc = rows_put(s, none, err);
    mr_rows_unref(&none);
out:
    return rc;
}

static int extent_put(struct sink *s, const struct extent *e, struct mr_err *err)
{
    struct committer *c = &s->job->committer;
    const size_t count = e->answers.len + e->dead.len;
    struct piece *pieces = MR_NEW_ARRAY(struct piece, count + 1);
    int rc = MR_OK;

    for (size_t i = 0; i < e->answers.len; i++) {
        pieces[i] = (struct piece){e->answer_first.at[i], e->answers.at[i], NULL};
    }
    for (size_t i = 0; i < e->dead.len; i++) {
        pieces[e->answers.len + i] = (struct piece){e->dead.at[i].row, NULL, &e->dead.at[i]};
    }
    qsort(pieces, count, sizeof *pieces, piece_compare);
    s->is_dirty = true;
    for (size_t i = 0; i < count && rc == MR_OK; i++) {
        const struct piece *p = &pieces[i];
        rc = p->rows ? rows_put(s, p->rows, err) : dead_put(s, e, p->dead, err);
    }
    mr_free(pieces);
    atomic_fetch_add_explicit(&c->rows, e->rows->count - e->dead.len, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->dead, e->dead.len, memory_order_relaxed);
    return rc;
}

static void extent_drop(struct sink *s, struct extent *e)
{
    credits_give(&s->job->credits, e->credit);
    extent_free(&e);
}

/* ---- their order ---- */

static void hold(struct sink *s, struct extent *e)
{
    struct extent **at = &s->held;

    while (*at && (*at)->first < e->first) {
        at = &(*at)->next;
    }
    e->next = *at;
    *at = e;
}

/* The next one whose turn it is; NULL: it has not come. */
static struct extent *turn_take(struct sink *s)
{
    struct extent *e = s->held;

    if (!e || (e->first != s->next && !s->job->o->filter->is_unordered)) {
        return NULL;
    }
    s->held = e->next;
    s->next = e->first + e->rows->count;
    return e;
}

/* ---- the thread ---- */

static void held_drop(struct sink *s)
{
    while (s->held) {
        struct extent *e = s->held;
        s->held = e->next;
        extent_drop(s, e);
    }
}

static int extents_put(struct sink *s, struct mr_err *err)
{
    struct extent *e;
    int rc = MR_OK;

    while (rc == MR_OK && (e = turn_take(s))) {
        rc = extent_put(s, e, err);
        extent_drop(s, e);
    }
    return rc;
}

void *filter_run(void *arg)
{
    struct committer *c = arg;
    struct job *j = c->job;
    struct sink s = {.job = j};
    bool is_over = false;

    int rc = mr_writer_new(&s.writer, j->o->filter->fd, batch_outputs_schema(j->outputs),
                           &j->o->writer, &c->err);
    while (!is_over) {
        if (rc < 0) {
            committer_fail(c);
            held_drop(&s);
        }
        struct extent *e = committer_next(c, rc == MR_OK && s.is_dirty ? 0 : INT64_MAX, &is_over);
        if (e) {
            hold(&s, e);
        }
        if (rc == MR_OK) {
            rc = e ? extents_put(&s, &c->err) : flush(&s, &c->err);
        }
    }
    held_drop(&s);
    if (rc == MR_OK) {
        rc = mr_writer_finish(s.writer, &c->err);
    }
    if (rc < 0) {
        committer_fail(c);
    }
    mr_writer_free(&s.writer);
    return NULL;
}
