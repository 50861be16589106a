/* The end of a filter: extents to one descriptor, in the order of their rows or as they come.
 *
 * In order, an extent that is ready before its turn waits here and keeps its credit, so the budget is what bounds the
 * window: the reader stops when it is used up, and goes on when the first row's extent has gone out. Rows are held back
 * to be written together only as long as there are more extents at hand; those of Arrow, whose readers pay for each
 * batch, for a moment longer.
 *
 * Runs on the committer's thread, in the place of committer_run. */
#include "filter.h"

#include <poll.h>

#include "base/clock.h"
#include "batch/common/credits.h"
#include "batch/common/extent.h"
#include "batch/protocols/oip/answer.h"
#include "committer.h"
#include "order.h"
#include "results.h"

#define BATCH_NS (20 * MR_NS_PER_MS) /* that rows of Arrow wait for others */

struct sink {
    struct results *results;
    struct mr_writer *writer;
    struct order order;
    bool is_dirty;  /* the writer holds rows … */
    int64_t due_ns; /* … until then, if others come */
};

/* ---- one extent ---- */

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
    const struct mr_batch_filter *f = s->results->o->filter;
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
    MR_TRY(batch_answer_none(s->results->model->outputs, e->rows, d->row, d->cause, &none, err));
    rc = rows_put(s, none, err);
    mr_rows_unref(&none);
out:
    return rc;
}

static int extent_put(struct sink *s, struct extent *e, struct mr_err *err)
{
    struct committer *c = s->results->committer;
    size_t answers = 0;
    size_t dead = 0;
    int rc = MR_OK;

    order_extent_sort(e);
    if (!s->is_dirty && s->results->o->results.writer.format == MR_TABLE_ARROW) {
        s->due_ns = mr_ns_after(mr_now_ns(), BATCH_NS);
    }
    s->is_dirty = true;
    while (rc == MR_OK && answers + dead < e->answers.len + e->dead.len) {
        if (dead < e->dead.len &&
            (answers == e->answers.len || e->dead.at[dead].row < e->answers.at[answers].first)) {
            rc = dead_put(s, e, &e->dead.at[dead++], err);
        } else {
            rc = rows_put(s, e->answers.at[answers++].rows, err);
        }
    }
    atomic_fetch_add_explicit(&c->rows, e->rows->count - e->dead.len, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->dead, e->dead.len, memory_order_relaxed);
    return rc;
}

/* ---- who reads ---- */

int filter_check(const struct mr_batch_filter *filter, struct mr_err *err)
{
    struct pollfd out = {filter->fd, 0, 0};

    return poll(&out, 1, 0) == 1 && (out.revents & POLLERR)
               ? MR_FAIL(err, MR_E_IO, "'stdout': its reader is gone")
               : MR_OK;
}

/* ---- the thread ---- */

static int extents_put(struct sink *s, struct mr_err *err)
{
    struct extent *e;
    int rc = MR_OK;

    while (rc == MR_OK && (e = order_take(&s->order))) {
        rc = extent_put(s, e, err);
        credits_give(s->results->credits, e->credit);
        extent_free(&e);
    }
    return rc;
}

void *filter_run(void *arg)
{
    struct committer *c = arg;
    struct results *rs = c->results;
    struct sink s = {.results = rs, .order.is_free = rs->o->filter->is_unordered};
    bool is_over = false;

    int rc = mr_writer_new(&s.writer, rs->o->filter->fd, batch_outputs_schema(rs->model->outputs),
                           &rs->o->results.writer, &c->err);
    if (rc < 0) {
        mr_err_wrap(&c->err, rc, "'stdout'");
    }
    while (!is_over) {
        if (rc < 0) {
            committer_fail(c);
            order_drop(&s.order, rs->credits);
        }
        struct extent *e =
            committer_next(c, rc == MR_OK && s.is_dirty ? s.due_ns : INT64_MAX, &is_over);
        if (e) {
            order_put(&s.order, e);
        }
        if (rc == MR_OK) {
            rc = e ? extents_put(&s, &c->err) : flush(&s, &c->err);
        }
    }
    order_drop(&s.order, rs->credits);
    if (rc == MR_OK) {
        rc = mr_writer_finish(s.writer, &c->err);
    }
    if (rc < 0) {
        committer_fail(c);
    }
    mr_writer_free(&s.writer);
    return NULL;
}
