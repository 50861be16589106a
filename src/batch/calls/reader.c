/* The reader: reads the rows that are not done yet, extent by extent, as far as the budget allows.
 *
 * It takes credit for the largest extent before it reads one, or for a row as large as earlier ones, and returns what the
 * rows, their requests and their answers will not need. An extent has about as many rows as hosts have answered recently,
 * as an extent that is partly done is done again after a crash. The size of answers is estimated by earlier ones. If there
 * is no estimate for the first one, a few rows go ahead, and all others wait for their outcome; until then the reader needs
 * all credit, including that of rows which wait for their commit.
 *
 * Only the reader uses the source. The manifest's ranges of earlier starts are copied before it starts, as commits of this
 * start change the manifest. When dead letters are tried again, all other rows count as done. After damage in a file it
 * continues after the damage if the format allows that, or with the next file. */
#include "reader.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "batch/common/credits.h"
#include "batch/common/extent.h"
#include "batch/common/waits.h"
#include "batch/policy/cadence.h"
#include "batch/results/committer.h"
#include "batch/results/dlq_retry.h"
#include "batch/results/results.h"
#include "calls.h"
#include "plan.h"

#define AHEAD_ROWS 16 /* while the size of an answer is unknown */

static bool is_in_the_dark(const struct calls *c)
{
    return !c->state->is_plan &&
           !(c->model->dialect->knows_bytes && c->model->dialect->knows_bytes(c->model)) &&
           atomic_load_explicit(&c->answer_bytes, memory_order_relaxed) == 0;
}

static uint64_t extent_rows(const struct reader *r)
{
    const struct calls *c = r->calls;
    const struct mr_batch_options *o = c->o;
    if (c->state->is_plan) {
        /* Small, so that each answer counts at once. */
        return MR_MIN((uint64_t)o->calls.rows, PLAN_ROWS - r->rows);
    }
    if (o->filter) {
        /* Small, as rows go out extent by extent, but many small calls are one. */
        return MR_MAX((uint32_t)256, o->calls.rows);
    }
    /* Relaxed: whether a change is seen one stretch earlier or later does not matter. */
    const uint32_t batch = atomic_load_explicit(&c->batch_rows, memory_order_relaxed);
    const uint64_t recent = atomic_load_explicit(&c->recent_rows, memory_order_relaxed);
    const uint64_t rows = cadence_extent_rows(recent, c->model->dialect->extent_rows(c->model));
    return o->extent_rows                            ? o->extent_rows
           : c->model->dialect->takes_rows(c->model) ? MR_MAX(rows, (uint64_t)batch)
                                                     : rows;
}

/* Waits for credit; `is_much`: also for what only a commit gives back. False: stopped. */
static bool take(struct reader *r, uint64_t bytes, bool is_much)
{
    struct calls *c = r->calls;

    waits_begin(&r->waits);
    if (is_much) {
        committer_want(r->results->committer, true);
    }
    const bool ok = credits_take(c->credits, bytes);
    if (is_much) {
        committer_want(r->results->committer, false);
    }
    waits_end(&r->waits);
    return ok;
}

/* All credit is free for a moment. False: stopped. */
static bool first_rows_ended(struct reader *r)
{
    const uint64_t all = credits_limit(r->calls->credits);
    const bool ok = take(r, all, true);

    if (ok) {
        credits_give(r->calls->credits, all);
    }
    return ok;
}

/* MR_OK, or what ends the reading; *out NULL: the file has no row there. */
static int extent_read(struct reader *r, uint32_t file, const struct mr_range *gap,
                       struct extent **out)
{
    struct calls *c = r->calls;
    /* Never all of them: what a table's rows hold until their commit would be waited for. */
    const uint64_t limit = credits_limit(c->credits);
    const uint64_t most = MR_MIN(MR_MAX(limit / 4, UINT64_C(1) << 20), limit / 2);
    struct mr_rows *got = NULL;

    if (r->is_ahead && !first_rows_ended(r)) {
        return MR_FAIL(&r->err, MR_E_CANCELLED, "stopped");
    }
    const bool is_ahead = is_in_the_dark(c);
    const uint64_t rows = MR_MIN(gap->end - gap->first, is_ahead ? AHEAD_ROWS : extent_rows(r));
    const uint64_t per_row = MR_MAX(c->model->dialect->answer_bytes(c->model),
                                    atomic_load_explicit(&c->answer_bytes, memory_order_relaxed)) +
                             atomic_load_explicit(&c->request_bytes, memory_order_relaxed);
    const uint64_t fair =
        MR_MAX(MR_MIN(most, rows * per_row + (UINT64_C(4) << 20)), r->row_bytes + per_row);
    if (!take(r, fair, fair > most)) {
        return MR_FAIL(&r->err, MR_E_CANCELLED, "stopped");
    }
    r->is_ahead = is_ahead;
    const int64_t begin_ns = mr_now_ns();
    const uint64_t max_rows = MR_MAX(MR_MIN(rows, most / per_row), (uint64_t)1);
    int rc = mr_source_read(r->results->input->source, file, gap->first, max_rows, most / 2, &got,
                            &r->err);
    atomic_fetch_add_explicit(&r->read_ns, mr_now_ns() - begin_ns, memory_order_relaxed);
    credits_reserve(c->credits,
                    mr_source_bytes(r->results->input->source) +
                        atomic_load_explicit(&c->known_good_bytes, memory_order_relaxed));
    if (rc < 0 || !got) {
        credits_give(c->credits, fair);
        return rc;
    }
    r->row_bytes = MR_MAX(got->bytes / got->count, r->row_bytes - r->row_bytes / 16);
    struct extent *e = MR_NEW(struct extent);
    *e = (struct extent){.calls = c, .file = file, .first = gap->first, .rows = got};
    e->per_row = per_row;
    e->credit = got->bytes + got->count * per_row;
    credits_move(c->credits, fair, e->credit);
    *out = e;
    return MR_OK;
}

static void extent_arrives(struct mr_mail *mail)
{
    struct extent *e = MR_CONTAINER_OF(mail, struct extent, mail);
    calls_add(e->calls, e);
}

bool reader_passes(const struct reader *r, int rc)
{
    return !r->calls->o->filter && !r->calls->state->is_plan &&
           (rc == MR_E_INVALID || rc == MR_E_IO);
}

/* The rows from `first` on cannot be read because of r->err; unless it is MR_E_INVALID (damage), a later start may read
 * them. Returns where to go on. */
static uint64_t bad_input(struct reader *r, uint32_t file, uint64_t first)
{
    const uint64_t after = mr_source_row_after(r->results->input->source, file, first);
    const uint64_t end = after > first ? after : UINT64_MAX;

    if (r->err.status != MR_E_INVALID && !r->unread) {
        r->unread = mr_strndup(r->err.msg, strlen(r->err.msg));
    }
    if (r->bad_count++ < BAD_INPUTS_MOST) {
        char *why = mr_strndup(r->err.msg, strlen(r->err.msg));
        MR_VEC_PUSH(&r->bad, ((struct bad_input){file, first, end, why}));
        mr_log(MR_LOG_WARN, "batch.bad_input", "first_row=%llu reason=%s; other rows are done",
               (unsigned long long)first, MR_LOG_STR(mr_str_c(why)));
    }
    return end;
}

static int file_read(struct reader *r, uint32_t file, const struct mr_ranges *done)
{
    struct mr_range gap;
    uint64_t at = 0;

    while (!atomic_load_explicit(&r->is_stopped, memory_order_relaxed) &&
           !(r->calls->state->is_plan && r->rows >= PLAN_ROWS) &&
           shard_gap(&r->results->input->shard, file, done, at, &gap)) {
        struct extent *e = NULL;
        int rc = extent_read(r, file, &gap, &e);
        if (rc < 0 && reader_passes(r, rc)) {
            at = bad_input(r, file, gap.first);
            continue;
        }
        if (rc < 0 || !e) {
            return rc;
        }
        at = gap.first + e->rows->count;
        r->rows += e->rows->count;
        e->number = r->extents++;
        e->mail.run = extent_arrives;
        mr_loop_post(r->calls->state->loop, &e->mail);
    }
    return MR_OK;
}

static void reading_ended(struct mr_mail *mail)
{
    struct reader *r = MR_CONTAINER_OF(mail, struct reader, ended);

    r->calls->is_read = true;
    /* A waiting source notices a stop of the job by itself, perhaps before the reader: then not all has been read. */
    if (r->rc < 0 && !atomic_load_explicit(&r->is_stopped, memory_order_relaxed)) {
        job_fail(r->calls->state, r->rc, &r->err);
    }
    calls_pump(r->calls); /* rows may wait for more */
    job_advance(r->calls->state);
}

struct task {
    struct reader *reader;
    struct mr_ranges *done; /* of each file */
    size_t count;
};

static void *reader_run(void *arg)
{
    struct task *t = arg;
    struct reader *r = t->reader;

    for (size_t i = 0; i < t->count; i++) {
        if (r->rc == MR_OK) {
            r->rc = file_read(r, (uint32_t)i, &t->done[i]);
        }
        mr_ranges_fini(&t->done[i]);
    }
    mr_free(t->done);
    mr_free(t);
    r->ended.run = reading_ended;
    mr_loop_post(r->calls->state->loop, &r->ended);
    return NULL;
}

int reader_start(struct reader *r, struct calls *calls, const struct results *rs,
                 struct mr_err *err)
{
    struct task *t = MR_NEW(struct task);
    int rc = MR_OK;

    r->calls = calls;
    r->results = rs;
    t->reader = r;
    t->count = mr_source_file_count(rs->input->source);
    t->done = MR_NEW_ARRAY(struct mr_ranges, t->count + 1);
    for (size_t i = 0; i < t->count && rc == MR_OK; i++) {
        const struct mr_ranges *done =
            rs->manifest && !rs->dlq_retry ? mr_manifest_done(rs->manifest, (uint32_t)i) : NULL;
        rc = rs->dlq_retry ? dlq_retry_others(rs->dlq_retry, (uint32_t)i, &t->done[i], err) : MR_OK;
        for (size_t k = 0; done && k < done->len && rc == MR_OK; k++) {
            rc = mr_ranges_add(&t->done[i], done->at[k].first, done->at[k].end, err);
        }
    }
    rc = rc < 0 ? rc : mr_thread_start(&r->thread, "reader", reader_run, t, err);
    r->is_started = rc == MR_OK;
    if (rc < 0) {
        for (size_t i = 0; i < t->count; i++) {
            mr_ranges_fini(&t->done[i]);
        }
        mr_free(t->done);
        mr_free(t);
    }
    return rc;
}

int reader_check(const struct reader *r, struct mr_err *err)
{
    if (r->unread) {
        return MR_FAIL(err, MR_E_IO,
                       "parts of the input could not be read, all else is done: %s. Run the job "
                       "again, with --accept-changed-input if the input is another one now",
                       r->unread);
    }
    if (r->bad_count == 0 || r->calls->o->source.skips_bad_files) {
        return MR_OK;
    }
    return MR_FAIL(
        err, MR_E_INVALID,
        "%llu part%s of the input cannot be read, all else is done: %s. Repair it and use "
        "--accept-changed-input, or leave it out with --skip-bad-files",
        (unsigned long long)r->bad_count, r->bad_count == 1 ? "" : "s", r->bad.at[0].why);
}

void reader_fini(struct reader *r)
{
    for (size_t i = 0; i < r->bad.len; i++) {
        mr_free(r->bad.at[i].why);
    }
    MR_VEC_FINI(&r->bad);
    mr_freep(&r->unread);
}

void reader_stop(struct reader *r)
{
    if (r->is_started) {
        atomic_store_explicit(&r->is_stopped, true, memory_order_relaxed);
        credits_close(r->calls->credits);
        if (!r->calls->is_read) { /* otherwise the source is needed: is all of it done? */
            mr_source_cancel(r->results->input->source);
        }
        pthread_join(r->thread, NULL);
        r->is_started = false;
    }
}
