/* The committer: extents into files of results and dead letters, and these into the manifest.
 *
 * A file is closed when it is large enough or old enough. Until then nothing of it counts: whatever happens, its rows are
 * done again at the next start. The memory of an extent is given back when its rows have been written, the rows of the
 * file when it is committed. Where they are written to is a sink's (sink.h).
 *
 * In the order of the input, extents wait for their turn (order.h), and a file holds rows between which no other file has
 * any: its name contains its first row, so names sort as rows do, in all starts. When an extent is late, PHYSICAL
 * waits, so that files always are a prefix of the results. LOGICAL waits until the commit is due or a quarter of
 * the budget is held back; then the others continue without it, and it becomes a file of its own. */
#include "committer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "batch/common/credits.h"
#include "batch/common/extent.h"
#include "batch/common/waits.h"
#include "batch/manifest/provenance.h"
#include "batch/policy/cadence.h"
#include "compaction.h"
#include "dead_letter.h"
#include "disk.h"
#include "dlq_retry.h"
#include "filter.h"
#include "order.h"
#include "results.h"
#include "sink.h"

#define LINES_HELD ((size_t)1 << 20) /* bytes of dead letters */

static void part_drop(struct results *rs, struct open_part *p)
{
    rs->sink->drop(p);
    credits_give(rs->credits, p->credit);
    if (p->has_results) {
        mr_manifest_part_drop(rs->manifest, &p->results);
    }
    if (p->has_dead) {
        mr_manifest_part_drop(rs->manifest, &p->dead);
    }
    mr_buf_fini(&p->lines);
    provenance_fini(&p->provenance);
    MR_VEC_FINI(&p->extents);
    *p = (struct open_part){0};
}

int committer_part_lines_write(struct results *rs, struct open_part *p, struct mr_err *err)
{
    const char *from = p->lines.ptr;
    size_t left = p->lines.len;
    struct mr_err why;

    if (p->lines.failed) {
        return MR_FAIL(err, MR_E_NOMEM, "no memory for dead letters");
    }
    while (left > 0) {
        const ssize_t n = write(p->dead.fd, from, left);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            const int rc =
                MR_FAIL(&why, errno == ENOSPC || errno == EDQUOT ? MR_E_EXHAUSTED : MR_E_IO,
                        "cannot write dead letters: %s", strerror(errno));
            if (disk_wait(rs->committer, &why)) {
                continue;
            }
            *err = why;
            return rc;
        }
        from += n;
        left -= (size_t)n;
    }
    mr_buf_reset(&p->lines);
    return MR_OK;
}

/* The manifest undoes what it had begun, unless a sync failed. */
static bool may_commit_again(const struct results *rs, const struct open_part *p)
{
    bool may_reopen;

    return !rs->dlq_retry && !(p->has_results && p->results.is_lost) &&
           !(p->has_dead && p->dead.is_lost) && mr_manifest_is_sound(rs->manifest, &may_reopen);
}

static int part_replace(struct results *rs, struct open_part *p, struct mr_err *err)
{
    const struct mr_manifest_add add = {.part = p->has_results ? &p->results : NULL,
                                        .dlq = p->has_dead ? &p->dead : NULL,
                                        .rows = p->rows,
                                        .dead = p->dead_rows,
                                        .extents = p->extents.at,
                                        .extent_count = p->extents.len,
                                        .hosts = p->hosts};
    int rc;

    do {
        rc = rs->dlq_retry ? dlq_retry_commit(rs, p, err)
                           : mr_manifest_commit(rs->manifest, &add, 1, err);
    } while (rc < 0 && may_commit_again(rs, p) && disk_wait(rs->committer, err));
    return rc;
}

static int part_commit(struct committer *c, struct open_part *p, struct mr_err *err)
{
    struct results *rs = c->results;
    struct mr_buf hosts;
    uint64_t bytes = 0;
    int rc = MR_OK;

    if (p->extents.len == 0) {
        return MR_OK;
    }
    mr_buf_init(&hosts, 0);
    provenance_version(&p->provenance, rs->model->metadata.version);
    p->hosts = provenance_json(&p->provenance, &hosts);
    if (p->has_results) {
        bytes = rs->sink->bytes(p);
        MR_TRY(rs->sink->finish(rs, p, err));
    }
    MR_TRY(committer_part_lines_write(rs, p, err));
    MR_TRY(part_replace(rs, p, err));
    disk_is_well(c);
    atomic_fetch_add_explicit(&c->rows, p->rows, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->dead, p->dead_rows, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->files, p->has_results, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->bytes, bytes, memory_order_relaxed);
    p->has_results = p->has_dead = false;
out:
    mr_buf_fini(&hosts);
    part_drop(rs, p);
    return rc;
}

/* ---- writing ---- */

static int results_put(struct results *rs, struct open_part *p, const struct extent *e,
                       const struct extent_answer *a, struct mr_err *err)
{
    int rc = p->has_results ? MR_OK : rs->sink->begin(rs, p, e, err);

    if (rc == MR_OK) {
        rc = rs->sink->put(rs, p, e, a, err);
    }
    p->rows += rc == MR_OK ? a->rows->count : 0;
    return rc;
}

static int dead_open(struct results *rs, struct open_part *p, struct mr_err *err)
{
    if (p->has_dead) {
        return MR_OK;
    }
    int rc;

    do {
        rc =
            mr_manifest_part_begin(rs->manifest, MR_MANIFEST_DEAD_LETTERS, ".jsonl", &p->dead, err);
    } while (rc < 0 && disk_wait(rs->committer, err));
    p->has_dead = rc == MR_OK;
    return rc;
}

int committer_part_dead_letter(struct results *rs, struct open_part *p, mr_str line,
                               struct mr_err *err)
{
    int rc = dead_open(rs, p, err);

    if (rc == MR_OK) {
        mr_buf_str(&p->lines, line);
        rc = p->lines.len > LINES_HELD || p->lines.failed ? committer_part_lines_write(rs, p, err)
                                                          : MR_OK;
    }
    return rc;
}

static int dead_write(struct results *rs, struct open_part *p, const struct extent *e,
                      struct dead_row d, struct mr_err *err)
{
    int rc = dead_open(rs, p, err);

    if (rc < 0) {
        return rc;
    }
    d.attempts += rs->dlq_retry ? dlq_retry_attempts(rs->dlq_retry, e->file, e->first + d.row) : 0;
    struct mr_rows *whole = dead_letter_full_row(&rs->committer->full, rs, e, d.row);
    dead_letter_put(&p->lines, mr_source_path(rs->input->source, e->file), e, &d, whole);
    mr_rows_unref(&whole);
    p->dead_rows++;
    return p->lines.len > LINES_HELD || p->lines.failed ? committer_part_lines_write(rs, p, err)
                                                        : MR_OK;
}

static int extent_write(struct committer *c, struct open_part *p, struct extent *e,
                        struct mr_err *err)
{
    struct results *rs = c->results;
    int rc = MR_OK;

    if (rs->o->results.order != MR_BATCH_UNORDERED || rs->sink->holds_rows || e->dead.len > 1) {
        order_extent_sort(e);
    }
    if (p->extents.len == 0) {
        p->since_ns = mr_now_ns();
        mr_buf_init(&p->lines, 0);
    }
    for (size_t i = 0; i < e->answers.len; i++) {
        MR_TRY(results_put(rs, p, e, &e->answers.at[i], err));
        provenance_add(&p->provenance, e->answers.at[i].host, e->answers.at[i].rows->count);
    }
    for (size_t i = 0; i < e->dead.len; i++) {
        MR_TRY(dead_write(rs, p, e, e->dead.at[i], err));
    }
    MR_VEC_PUSH(&p->extents, ((struct mr_manifest_extent){e->file, e->first, e->rows->count}));
    p->number = e->number;
    disk_goes_on(rs->committer);
out:
    return rc;
}

/* ---- the thread ---- */

static void committing_failed(struct mr_mail *mail)
{
    struct committer *c = MR_CONTAINER_OF(mail, struct committer, failed);
    c->results->state->may_go_on = c->results->state->rc == MR_OK && c->may_go_on;
    job_fail(c->results->state, c->err.status, &c->err);
}

static void committing_ended(struct mr_mail *mail)
{
    job_end(MR_CONTAINER_OF(mail, struct committer, ended)->results->state);
}

void committer_fail(struct committer *c)
{
    pthread_mutex_lock(&c->lock);
    const bool is_first = !c->has_failed;
    c->has_failed = true;
    pthread_mutex_unlock(&c->lock);
    if (is_first) {
        c->failed.run = committing_failed;
        mr_loop_post(c->results->state->loop, &c->failed);
    }
}

struct extent *committer_next(struct committer *c, int64_t until_ns, bool *out_is_over)
{
    const struct timespec until = {until_ns / MR_NS_PER_S, until_ns % MR_NS_PER_S};
    int waited = 0;

    waits_begin(&c->waits);
    pthread_mutex_lock(&c->lock);
    while (!c->first && !c->is_ending && !c->has_news && waited != ETIMEDOUT) {
        waited = until_ns == INT64_MAX ? pthread_cond_wait(&c->more, &c->lock)
                                       : pthread_cond_timedwait(&c->more, &c->lock, &until);
    }
    struct extent *e = c->first;
    if (e) {
        c->first = e->next;
        c->last = c->first ? c->last : NULL;
    }
    *out_is_over = !e && c->is_ending;
    c->has_news = false;
    pthread_mutex_unlock(&c->lock);
    waits_end(&c->waits);
    return e;
}

/* Was it the disk? Then all that is not committed can be done again, unless another process does it. */
static bool may_begin_again(struct committer *c)
{
    pthread_mutex_lock(&c->lock);
    const bool is_hurried = c->is_hurried;
    pthread_mutex_unlock(&c->lock);
    return !is_hurried && disk_may_begin_again(c->results->manifest, &c->err);
}

/* ---- what its thread does ---- */

struct commit {
    struct committer *c;
    struct open_part part;
    struct order order;
    int rc;
    bool has_failed;
};

static void part_close(struct commit *m)
{
    const int64_t begin_ns = mr_now_ns();
    const bool has_rows = m->part.extents.len > 0;

    if (m->rc == MR_OK) {
        m->rc = part_commit(m->c, &m->part, &m->c->err);
        if (m->rc == MR_OK && has_rows) {
            compaction_poll(m->c->compaction);
        }
        atomic_fetch_add_explicit(&m->c->commit_ns, mr_now_ns() - begin_ns, memory_order_relaxed);
    }
}

static bool is_any_done(const struct results *rs, uint32_t file, uint64_t from)
{
    struct mr_range gap;

    return !mr_ranges_gap(mr_manifest_done(rs->manifest, file), from, UINT64_MAX, &gap) ||
           gap.first != from || gap.end != UINT64_MAX;
}

/* No row that is in another file, or will be, lies between the extent and those before it in the part. Dead letters that
 * are tried again are between those of others anyway. */
static bool part_goes_on(const struct results *rs, const struct open_part *p,
                         const struct extent *e)
{
    const struct mr_manifest_extent *last = &p->extents.at[p->extents.len - 1];
    uint64_t end = last->first + last->count;

    if (e->number != p->number + 1 || rs->dlq_retry) {
        return e->number == p->number + 1;
    }
    if (e->file == last->file) {
        return e->first == end;
    }
    if (rs->input->shard.count > 0) {
        return false; /* rows in between may be another's */
    }
    for (uint32_t file = last->file; file < e->file; file++, end = 0) {
        if (is_any_done(rs, file, end)) {
            return false;
        }
    }
    return e->first == 0;
}

/* What the sink holds of it has credit until the part is over. */
static void extent_release(struct results *rs, struct open_part *p, struct extent **extent)
{
    const uint64_t held =
        rs->sink->holds_rows && p->has_results ? rs->sink->bytes(p) - p->credit : 0;

    credits_move(rs->credits, (*extent)->credit, held);
    p->credit += held;
    extent_free(extent);
}

/* An extent whose turn it is. */
static void extent_take(struct commit *m, struct extent *e)
{
    struct results *rs = m->c->results;
    struct open_part *p = &m->part;

    if (rs->o->results.order != MR_BATCH_UNORDERED && p->extents.len > 0 &&
        !part_goes_on(rs, p, e)) {
        part_close(m);
    }
    const int64_t begin_ns = mr_now_ns();
    if (m->rc == MR_OK) {
        m->rc = extent_write(m->c, p, e, &m->c->err);
    }
    extent_release(rs, p, &e);
    atomic_fetch_add_explicit(&m->c->write_ns, mr_now_ns() - begin_ns, memory_order_relaxed);
    if (p->has_results && rs->sink->bytes(p) >= rs->sink->most_bytes(rs)) {
        part_close(m);
    }
}

static void turns_take(struct commit *m)
{
    struct extent *e;

    while ((e = order_take(&m->order))) {
        extent_take(m, e);
    }
}

/* LOGICAL: what is here goes on without what is late, and what came late goes now. */
static void late_take(struct commit *m)
{
    struct extent *e;

    part_close(m);
    while ((e = order_late(&m->order))) {
        extent_take(m, e);
    }
    while (order_pass(&m->order)) {
        turns_take(m);
    }
}

static bool is_wanted(struct committer *c)
{
    pthread_mutex_lock(&c->lock);
    const bool is = c->is_wanted;
    pthread_mutex_unlock(&c->lock);
    return is;
}

/* When the results here must be committed: the part, or rows that wait for a late one. */
static int64_t commit_due(const struct commit *m)
{
    const struct mr_batch_options *o = m->c->results->o;
    int64_t since_ns = INT64_MAX;

    if (m->part.credit > 0 && is_wanted(m->c)) {
        return m->part.since_ns;
    }
    if (m->part.extents.len > 0) {
        since_ns = m->part.since_ns;
    }
    if (o->results.order == MR_BATCH_LOGICAL && (m->order.held || m->order.late)) {
        since_ns = MR_MIN(since_ns, m->order.since_ns);
    }
    return mr_ns_after(since_ns,
                       o->results.commit_ns
                           ? o->results.commit_ns
                           : cadence_commit_ns(since_ns - m->c->results->state->begin_ns));
}

static bool is_dropped(struct committer *c)
{
    pthread_mutex_lock(&c->lock);
    const bool is = c->is_dropped;
    pthread_mutex_unlock(&c->lock);
    return is;
}

/* A job without results has a result file as well, which contains the columns. */
static int empty_commit(struct commit *m)
{
    struct results *rs = m->c->results;
    const struct extent none = {0};
    struct open_part p = {0};
    int rc;

    MR_TRY(rs->sink->begin(rs, &p, &none, &m->c->err));
    MR_TRY(rs->sink->finish(rs, &p, &m->c->err));
    MR_TRY(part_replace(rs, &p, &m->c->err));
    atomic_fetch_add_explicit(&m->c->files, 1, memory_order_relaxed);
    p.has_results = false;
out:
    part_drop(rs, &p);
    return rc;
}

static bool lacks_results(struct committer *c)
{
    pthread_mutex_lock(&c->lock);
    const bool is_hurried = c->is_hurried;
    pthread_mutex_unlock(&c->lock);
    return !is_hurried && !c->results->o->results.database && !c->results->dlq_retry &&
           mr_manifest_totals(c->results->manifest).parts == 0;
}

static void *committer_run(void *arg)
{
    struct commit m = {.c = arg};
    struct results *rs = m.c->results;
    const enum mr_batch_order order = rs->o->results.order;
    bool is_over = false;

    m.order.is_free = order == MR_BATCH_UNORDERED;
    while (!is_over) {
        const int64_t due_ns = commit_due(&m);
        struct extent *e = committer_next(m.c, due_ns, &is_over);
        if (e) {
            order_put(&m.order, e);
        }
        if (m.rc == MR_OK && is_dropped(m.c)) {
            m.rc = MR_FAIL(&m.c->err, MR_E_CANCELLED, "dropped, to be done again");
        }
        turns_take(&m);
        const bool is_due = is_over || mr_now_ns() >= due_ns;
        if (order == MR_BATCH_LOGICAL &&
            (is_due || m.order.bytes > credits_limit(rs->credits) / 4)) {
            late_take(&m);
        } else if (is_due) {
            part_close(&m);
        }
        if (is_over) {
            part_close(&m);
        }
        if (is_over && m.rc == MR_OK && lacks_results(m.c)) {
            m.rc = empty_commit(&m);
        }
        if (m.rc < 0) {
            part_drop(rs, &m.part);
            if (!m.has_failed) { /* read by the loop after the notification */
                m.has_failed = true;
                m.c->may_go_on = may_begin_again(m.c);
                committer_fail(m.c);
            }
        }
    }
    compaction_end(&m.c->compaction, m.rc == MR_OK);
    dead_letter_full_rows_close(&m.c->full);
    order_drop(&m.order, rs->credits);
    m.c->ended.run = committing_ended;
    mr_loop_post(rs->state->loop, &m.c->ended);
    return NULL;
}

int committer_start(struct committer *c, struct results *rs, struct mr_err *err)
{
    pthread_condattr_t attr;

    c->results = rs;
    c->begin_ns = mr_now_ns();
    c->hold = (struct disk_hold){.since_ns = rs->hold->since_ns, .tries = rs->hold->tries};
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->more, &attr);
    pthread_condattr_destroy(&attr);
    c->compaction = compaction_new(rs);
    int rc = mr_thread_start(&c->thread, "committer", rs->o->filter ? filter_run : committer_run, c,
                             err);
    c->is_started = rc == MR_OK;
    if (rc < 0) {
        compaction_end(&c->compaction, false);
    }
    return rc;
}

void committer_put(struct committer *c, struct extent *e)
{
    e->next = NULL;
    pthread_mutex_lock(&c->lock);
    if (c->last) {
        c->last->next = e;
    } else {
        c->first = e;
    }
    c->last = e;
    pthread_cond_signal(&c->more);
    pthread_mutex_unlock(&c->lock);
}

void committer_finish(struct committer *c)
{
    pthread_mutex_lock(&c->lock);
    c->is_ending = true;
    pthread_cond_signal(&c->more);
    pthread_mutex_unlock(&c->lock);
}

void committer_drop(struct committer *c)
{
    if (c->is_started) {
        pthread_mutex_lock(&c->lock);
        c->is_dropped = true;
        pthread_mutex_unlock(&c->lock);
    }
}

void committer_try(struct committer *c)
{
    if (c->is_started) {
        pthread_mutex_lock(&c->lock);
        c->tries_now = true;
        pthread_cond_signal(&c->more);
        pthread_mutex_unlock(&c->lock);
    }
}

void committer_want(struct committer *c, bool is_wanted)
{
    pthread_mutex_lock(&c->lock);
    c->is_wanted = c->has_news = is_wanted && c->results->sink->holds_rows;
    pthread_cond_signal(&c->more);
    pthread_mutex_unlock(&c->lock);
}

int committer_end(struct committer *c, struct mr_err *err)
{
    if (!c->is_started) {
        return MR_OK;
    }
    if (c->results->sink && c->results->sink->stop) {
        c->results->sink->stop(c->results);
    }
    pthread_mutex_lock(&c->lock);
    c->is_ending = c->is_hurried = true;
    pthread_cond_signal(&c->more);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    c->is_started = false;
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->more);
    if (c->has_failed) {
        *err = c->err;
        return c->err.status;
    }
    return MR_OK;
}
