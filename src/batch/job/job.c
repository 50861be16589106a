/* A job from start to end, on the loop's thread.
 *
 *   asking    until a host has reported the model's metadata; without them neither columns nor files can be checked
 *   running   the reader brings extents, hosts answer, the committer writes
 *   ending    everything is read and settled, or the job was stopped or failed: what is settled is committed
 *
 * A job that failed because of its disk starts again in the same process, and waits in `asking` (disk.h).
 *
 * The setup between the first two phases blocks the loop; nothing else runs then. */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/pool.h"
#include "batch/audit/cross_check.h"
#include "batch/calls/calls.h"
#include "batch/calls/plan.h"
#include "batch/calls/reader.h"
#include "batch/common/credits.h"
#include "batch/common/extent.h"
#include "batch/common/figures.h"
#include "batch/common/job_state.h"
#include "batch/common/shard.h"
#include "batch/common/storage.h"
#include "batch/files/file.h"
#include "batch/hosts/discover.h"
#include "batch/hosts/hosts.h"
#include "batch/hosts/quarantine.h"
#include "batch/policy/grow.h"
#include "batch/protocols/oip/answer.h"
#include "batch/protocols/oip/bind.h"
#include "batch/protocols/oip/declared.h"
#include "batch/protocols/openai/openai.h"
#include "batch/report/report.h"
#include "batch/report/view.h"
#include "batch/results/committer.h"
#include "batch/results/disk.h"
#include "batch/results/dlq_retry.h"
#include "batch/results/filter.h"
#include "batch/results/results.h"
#include "batch/results/sink.h"
#include "control.h"
#include "identity.h"
#include "table/store.h"

#define ANSWER_LEAST_NS (300 * MR_NS_PER_S) /* language models queue, and may say a lot */
#define TICK_NS         (MR_NS_PER_S / 5)
#define SHARE_FROM      10000 /* rows before the share of dead ones is looked at */
#define REPORT_BYTES    (64 << 20)
#define READING_LEAST   (UINT64_C(256) << 20) /* that a library may take for decoding and queries */
#define BLOCKS_KEPT     (16 << 20)            /* for the next answers; beside the budget */
#define BLOCKS_BESIDE   (20 << 20)

struct mr_batch {
    const struct mr_batch_options *o;
    void (*on_view)(void *ctx, const struct mr_batch_view *view);
    void *view_ctx;
    _Atomic int stops;
    struct mr_loop *loop; /* this and the members below are kept when the job starts again */
    struct control control;
    struct quarantine quarantine;
    bool is_stopped;     /* by a problem that needs attention */
    bool has_begun;      /* a start was set up: for later ones a disk that fails is waited for */
    char *folder;        /* the job's; NULL: it has none, or none yet */
    size_t folder_there; /* bytes of its path that named a folder before this start */
};

/* Three threads: the loop (hosts, calls, judgement of answers), the reader (source) and the committer (files, disk). An
 * extent of rows moves from one to the next and belongs to one at a time; only credits and the two queues are shared. */
struct job {
    struct mr_batch *batch;
    const struct mr_batch_options *o;
    struct job_state state;
    struct dialect_model model;
    struct job_input input;
    struct credits credits;
    struct hosts hosts;
    struct calls calls;
    struct reader reader;
    struct committer committer;
    struct results results;
    struct job_parts parts;
    struct cross_check *cross_check; /* NULL: hosts are not compared */
    struct plan *plan;               /* NULL: a run */
    struct mr_timer tick;
    struct mr_schema columns; /* if the input has none; otherwise empty */
    bool was_finished;
    bool is_finishing; /* all is with the committer */
    bool is_accepted;  /* thresholds do not count any more */
};

static bool is_dead_too_often(struct job *j, struct mr_err *err)
{
    const struct mr_batch_options *o = j->o;
    const uint64_t dead = j->results.before.dead + j->calls.dead_rows;
    const uint64_t rows = j->results.before.rows + j->results.before.dead + j->calls.read_rows;

    if (j->results.dlq_retry) {
        return false; /* there is none that was not there */
    }
    if (dead > o->limits.dead_rows) {
        mr_err_set(err, MR_E_EXHAUSTED, MR_HERE,
                   "%llu dead letters of %llu rows, more than --max-dead %llu",
                   (unsigned long long)dead, (unsigned long long)rows,
                   (unsigned long long)o->limits.dead_rows);
        return true;
    }
    if (rows >= SHARE_FROM && (double)dead > o->limits.dead_share * (double)rows) {
        mr_err_set(err, MR_E_EXHAUSTED, MR_HERE,
                   "%llu dead letters of %llu rows, more than --max-dead-percent %g",
                   (unsigned long long)dead, (unsigned long long)rows, 100 * o->limits.dead_share);
        return true;
    }
    return false;
}

static void dead_check(struct job *j)
{
    struct mr_err err;

    if (!j->is_accepted && is_dead_too_often(j, &err)) {
        j->is_accepted = j->o->limits.pauses; /* a resume means that it was seen */
        job_stop(&j->state, &err);
    }
}

static void job_settled(struct job *j, struct extent *e)
{
    struct mr_err err;

    for (size_t i = 0; i < j->calls.open.len; i++) {
        if (j->calls.open.at[i] == e) {
            j->calls.open.at[i] = j->calls.open.at[--j->calls.open.len];
            break;
        }
    }
    if (j->plan) {
        int rc = plan_put(j->plan, e, &err);
        if (rc < 0) {
            job_fail(&j->state, rc, &err);
        }
        return;
    }
    committer_put(&j->committer, e);
    dead_check(j);
}

/* ---- setting up ---- */

/* Checks that the table of results has a name that can be printed. */
static int output_check(const struct mr_batch_options *o, struct mr_err *err)
{
    struct mr_buf name;

    mr_buf_init(&name, 0);
    int rc = mr_store_name(o->results.database, o->results.table, &name, err);
    mr_buf_fini(&name);
    return rc;
}

static void shard_take(struct job *j)
{
    const size_t files = mr_source_file_count(j->input.source);
    int64_t *rows = MR_NEW_ARRAY(int64_t, files + 1);

    for (size_t i = 0; i < files; i++) {
        const struct mr_source_file f = mr_source_file(j->input.source, i);
        rows[i] = f.bad ? -1 : f.rows;
    }
    shard_begin(&j->input.shard, j->o->shard, j->o->shard_count, rows, files);
    mr_free(rows);
}

/* Wanted are the columns of the model, and those to keep, whose numbers are not converted. */
static void carried_want(struct job *j)
{
    for (size_t i = 0; i < j->o->results.carried_count; i++) {
        const char *name = j->o->results.carried[i];
        const int at = mr_schema_find(&j->model.wanted, mr_str_c(name));
        if (at >= 0) {
            j->model.wanted.fields[at].is_kept = true;
        } else {
            mr_schema_add(&j->model.wanted, &(struct mr_field){.name = (char *)(uintptr_t)name,
                                                               .type = MR_COLUMN_NONE});
        }
    }
}

/* Without rows nothing defines the columns: they are those that the model takes, or texts. */
static const struct mr_schema *columns_of(struct job *j)
{
    if (j->o->filter || mr_source_schema(j->input.source)->count > 0) {
        return mr_source_schema(j->input.source);
    }
    for (size_t i = 0; i < j->model.wanted.count; i++) {
        struct mr_field *f = &j->model.wanted.fields[i];
        if (!batch_outputs_has_place(f->name)) {
            mr_schema_add(&j->columns, f);
            f = &j->columns.fields[j->columns.count - 1];
            f->type = f->type == MR_COLUMN_NONE ? MR_COLUMN_STRING : f->type;
            f->is_nullable = true;
        }
    }
    return &j->columns;
}

/* What there is to warn of, once nothing keeps the job from running. */
static void set_up_report(const struct job *j)
{
    control_report(&j->batch->control);
    if (j->o->results.has_default_key) {
        mr_log(MR_LOG_WARN, "batch.no_keep",
               "reason=results have only the place of a row in the input as its key (%s%s); --keep "
               "COLUMN takes columns of the input along, --keep '' none",
               j->o->results.carried[0],
               j->o->results.carried_count > 1 ? ", file_row_number" : "");
    }
}

/* A job that never ran must not keep its folder from the next one, which has other options. */
static int sink_open(struct job *j, struct mr_err *err)
{
    const int rc = j->results.sink->open ? j->results.sink->open(&j->results, err) : MR_OK;

    if (rc == MR_E_INVALID || rc == MR_E_UNSUPPORTED || rc == MR_E_FORBIDDEN ||
        rc == MR_E_NOT_FOUND || rc == MR_E_EXISTS) {
        mr_manifest_forget(&j->results.manifest);
    }
    return rc;
}

static int job_set_up(struct job *j, struct mr_err *err)
{
    const struct mr_batch_options *o = j->o;
    struct mr_source_options source = o->source;
    int rc;

    MR_TRY(j->model.dialect->want(&j->model, err));
    carried_want(j);
    source.wanted = &j->model.wanted;
    source.reads_wanted_only = true;
    source.memory_bytes = o->filter ? o->memory_bytes : MR_MAX(READING_LEAST, o->memory_bytes / 2);
    source.outage_ns = o->limits.outage_ns;
    source.sink = o->results.database;
    source.not_in = o->folder;
    source.is_stopped = batch_has_stop;
    source.ctx = &j->state;
    const struct mr_s3_options s3 = storage_options(o, &j->state);
    source.s3 = &s3;
    MR_TRY(mr_source_open(&j->input.source, &source, err));
    shard_take(j);
    MR_TRY(
        j->model.dialect->bind(&j->model, columns_of(j), mr_source_columns(j->input.source), err));
    hosts_bound(&j->hosts, j->calls.rows.most);
    if (o->calls.grows && j->model.dialect->grows_calls &&
        j->model.dialect->takes_rows(&j->model) && !j->plan && !o->start.retries_dead) {
        grow_begin(&j->calls.grow);
    }
    if (j->plan) {
        MR_TRY(plan_begin(j->plan, &j->calls, &j->results, err));
        return reader_start(&j->reader, &j->calls, &j->results, err);
    }
    if (o->filter) {
        MR_TRY(committer_start(&j->committer, &j->results, err));
        return reader_start(&j->reader, &j->calls, &j->results, err);
    }
    MR_TRY(o->results.database ? output_check(o, err) : MR_OK);
    MR_TRY(identity_open(&j->results, err));
    MR_TRY(mr_manifest_stop(j->results.manifest, NULL, err));
    MR_TRY(quarantine_recompute(&j->hosts, &j->results, true, err));
    j->cross_check = cross_check_new(&j->calls, &j->results);
    j->was_finished = mr_manifest_is_finished(j->results.manifest);
    MR_TRY(sink_open(j, err));
    if (o->start.retries_dead) {
        MR_TRY(dlq_retry_new(&j->results.dlq_retry, &j->results, err));
        j->calls.policy.counts_answers = true;
        j->results.total_rows = (int64_t)dlq_retry_rows(j->results.dlq_retry);
    } else {
        j->results.before = mr_manifest_totals(j->results.manifest);
        j->results.total_rows = shard_rows(&j->input.shard, j->input.source);
    }
    MR_TRY(committer_start(&j->committer, &j->results, err));
    MR_TRY(reader_start(&j->reader, &j->calls, &j->results, err));
    set_up_report(j);
out:
    return rc;
}

/* ---- what is going on ---- */

static int outage_check(struct job *j, int64_t now_ns, struct mr_err *err)
{
    int64_t since_ns = j->state.begin_ns;
    const struct host *h = NULL;

    if (j->state.is_paused || j->is_finishing || j->results.hold->until_ns > now_ns ||
        (j->state.phase == JOB_RUNNING && !mr_balance_is_stalled(j->hosts.balance, &since_ns))) {
        return MR_OK;
    }
    since_ns = MR_MAX(since_ns, j->state.resumed_ns);
    if (now_ns - since_ns <
        (j->plan ? MR_MIN(JOB_PLAN_NS, j->o->limits.outage_ns) : j->o->limits.outage_ns)) {
        return MR_OK;
    }
    for (size_t i = 0; i < j->hosts.list.len; i++) {
        h = h && h->trouble[0] ? h : j->hosts.list.at[i];
    }
    const struct call_cause *last =
        h && h->trouble[0] ? NULL : figures_last_failure(&j->calls.figures);
    h = last ? last->host : h;
    const char *why = last ? last->text : h ? h->trouble : "";
    return MR_FAIL(err, MR_E_UNAVAILABLE, "no host has worked for %lld s%s%s%s%s",
                   (long long)((now_ns - since_ns) / MR_NS_PER_S), h ? "; " : "",
                   h ? h->transport.address : "", why[0] ? ": " : "", why);
}

static void on_tick(struct mr_timer *t)
{
    struct job *j = MR_CONTAINER_OF(t, struct job, tick);
    const int64_t now_ns = mr_now_ns();
    struct mr_err err;

    if (batch_has_stop(&j->state)) {
        mr_err_set(&err, MR_E_CANCELLED, MR_HERE, "stopped");
        job_fail(&j->state, MR_E_CANCELLED, &err);
        return;
    }
    discover_tick(&j->hosts, now_ns);
    hosts_tick(&j->hosts, now_ns);
    if (j->plan && j->state.phase == JOB_RUNNING && plan_is_over(&j->state, now_ns)) {
        job_end(&j->state);
        return;
    }
    int rc = outage_check(j, now_ns, &err);
    if (rc == MR_OK && !j->state.is_paused && !j->is_finishing &&
        j->results.hold->until_ns <= now_ns) {
        rc = hosts_check(&j->hosts, now_ns, &err);
    }
    if (rc == MR_OK && j->o->filter) {
        rc = filter_check(j->o->filter, &err);
    }
    if (rc < 0) {
        job_fail(&j->state, rc, &err);
        return;
    }
    cross_check_tick(j->cross_check, now_ns);
    calls_tick(&j->calls);
    if (view_mark(&j->parts, now_ns)) {
        mr_block_age();
        view_report(&j->parts);
    }
    calls_pump(&j->calls);
    job_advance(&j->state);
}

static void job_next(struct job *j)
{
    struct mr_err err;

    if (j->state.phase == JOB_ASKING && j->model.has_metadata &&
        mr_now_ns() >= j->results.hold->until_ns) {
        int rc = job_set_up(j, &err);
        j->state.phase = JOB_RUNNING;
        j->batch->has_begun |= rc == MR_OK;
        if (rc < 0) {
            j->state.may_go_on =
                j->batch->has_begun && disk_may_begin_again(j->results.manifest, &err);
            j->parts.is_refused = !j->state.may_go_on;
            job_fail(&j->state, rc, &err);
            return;
        }
        if (!j->was_finished) {
            dead_check(j); /* of earlier starts, whose rows may be all there are */
        }
    }
    if (j->state.phase == JOB_RUNNING && j->calls.is_read && j->calls.open.len == 0 &&
        !j->is_finishing && !cross_check_is_asking(j->cross_check) && !j->state.pause_reason[0]) {
        j->is_finishing = true;
        cross_check_end(j->cross_check);
        if (j->results.manifest) {
            committer_finish(&j->committer); /* which ends it, and may have to wait for a disk */
        } else {
            job_end(&j->state);
        }
    }
}

/* ---- the end ---- */

/* True if each row of the input has an outcome. A reader that has read all of it knows; otherwise this searches the first
 * row without one. After the end of the reader, to which the source belongs. */
static int job_is_whole(struct job *j, bool *out, struct mr_err *err)
{
    bool is_whole = j->results.dlq_retry || j->reader.rc == MR_OK;
    int rc = MR_OK;

    const size_t files =
        j->results.dlq_retry && !j->was_finished ? mr_source_file_count(j->input.source) : 0;
    for (uint32_t i = 0; i < files && is_whole; i++) {
        struct mr_rows *rows = NULL;
        struct mr_range gap;
        if (shard_gap(&j->input.shard, i, mr_manifest_done(j->results.manifest, i), 0, &gap)) {
            rc = mr_source_read(j->input.source, i, gap.first, 1, 1, &rows, err);
            if (j->o->source.skips_bad_files && rc == MR_E_INVALID) {
                continue;
            }
            MR_TRY(rc);
            is_whole = !rows;
            mr_rows_unref(&rows);
        }
    }
    *out = is_whole;
out:
    return rc;
}

/* Rows that a wrong host answered have no outcome here: the job stops, and may not call itself finished. */
static int stop_for_wrong_rows(struct job *j, struct mr_err *err)
{
    if (quarantine_is_left(&j->batch->quarantine, &j->results, err)) {
        j->state.is_stopped = true;
        mr_manifest_stop(j->results.manifest, err->msg, NULL);
        return err->status;
    }
    if (j->results.dlq_retry && j->batch->quarantine.has_taken_back) {
        j->state.is_stopped = true;
        return MR_FAIL(err, MR_E_INVALID,
                       "results of a host that answered wrongly were taken back; batch run does "
                       "their rows again");
    }
    return MR_OK;
}

static int job_finish(struct job *j, struct mr_buf *out_report, struct mr_err *err)
{
    struct mr_buf report;
    bool is_whole = false;
    int rc = j->state.rc == MR_OK ? job_is_whole(j, &is_whole, err) : MR_OK;

    mr_buf_init(&report, REPORT_BYTES);
    report_put(&j->parts, &report);
    const bool has_changed = j->results.dlq_retry || !mr_manifest_is_finished(j->results.manifest);
    if (rc == MR_OK && j->state.rc == MR_OK) {
        rc = stop_for_wrong_rows(j, err);
    }
    if (rc == MR_OK && is_whole && has_changed && j->results.sink->publish) {
        rc = j->results.sink->publish(&j->results, err);
    }
    if (rc == MR_OK && is_whole && !mr_manifest_is_finished(j->results.manifest)) {
        rc = mr_manifest_finish(j->results.manifest, mr_buf_view(&report), err);
        j->state.may_go_on = rc < 0 && disk_may_begin_again(j->results.manifest, err);
    }
    if (out_report && !j->state.may_go_on && !j->state.begins_again) {
        mr_buf_str(out_report, mr_buf_view(&report));
    }
    mr_buf_fini(&report);
    return rc;
}

static void job_free(struct job *j)
{
    j->batch->control.parts = NULL;
    calls_drop(&j->calls);
    mr_timer_stop(&j->tick);
    discover_stop(&j->hosts);
    if (j->hosts.local) {
        local_close(j->hosts.local);
    }
    hosts_close(&j->hosts);
    mr_loop_settle(j->state.loop); /* mails to this job */
    local_free(&j->hosts.local);
    calls_fini(&j->calls);
    cross_check_free(&j->cross_check);
    hosts_free(&j->hosts);
    mr_balance_free(&j->hosts.balance);
    dlq_retry_free(&j->results.dlq_retry);
    if (j->results.sink && j->results.sink->close) {
        j->results.sink->close(&j->results);
    }
    mr_manifest_close(&j->results.manifest);
    if (j->plan) {
        plan_drop(j->plan);
    }
    if (j->model.dialect && j->model.dialect->free) {
        j->model.dialect->free(&j->model);
    }
    reader_fini(&j->reader);
    batch_outputs_free(&j->model.outputs);
    batch_bind_free(&j->model.bind);
    if (j->input.source) {
        mr_source_close(&j->input.source);
    }
    shard_fini(&j->input.shard);
    mr_freep(&j->results.folder);
    mr_schema_fini(&j->model.wanted);
    mr_schema_fini(&j->columns);
    mr_arena_fini(&j->model.arena);
    credits_fini(&j->credits);
}

static int folder_find(struct job *j, struct mr_err *err)
{
    const struct mr_batch_options *o = j->o;
    const bool make = !j->plan && !o->start.retries_dead;

    if (o->shard_count) {
        return shard_folder(&j->results.folder, o->folder, o->shard, o->shard_count, make, err);
    }
    j->results.folder = o->folder ? mr_strndup(o->folder, strlen(o->folder)) : NULL;
    return MR_OK;
}

static int job_is_there(const struct job *j, struct mr_err *err)
{
    struct mr_manifest_totals totals;
    bool is_finished;
    uint32_t epoch;
    int64_t pid;

    return mr_manifest_summary(j->results.folder, &totals, &is_finished, &epoch, &pid, NULL, err);
}

static void on_advance(struct job_state *s)
{
    job_next(MR_CONTAINER_OF(s, struct job, state));
}

static void on_settled(void *ctx, struct extent *e)
{
    job_settled(ctx, e);
}

static void on_before_calls(void *ctx)
{
    cross_check_evaluate(((struct job *)ctx)->cross_check);
}

static void on_answered(void *ctx, struct call *k, const struct row_range *of,
                        const struct mr_rows *rows)
{
    cross_check_see(((struct job *)ctx)->cross_check, k, of, rows);
}

static void on_asked(void *ctx, struct call *k, const struct transport_answer *a)
{
    cross_check_answered(((struct job *)ctx)->cross_check, k, a);
}

static void on_absent(void *ctx, const struct work *w)
{
    cross_check_absent(((struct job *)ctx)->cross_check, w);
}

/* Each part with the others that it works with. */
static void parts_join(struct job *j)
{
    const struct mr_batch_options *o = j->o;

    j->model.o = o;
    j->hosts.o = o;
    j->hosts.state = &j->state;
    j->hosts.model = &j->model;
    j->hosts.quarantine = &j->batch->quarantine;
    j->calls.o = o;
    j->calls.state = &j->state;
    j->calls.model = &j->model;
    j->calls.hosts = &j->hosts;
    j->calls.credits = &j->credits;
    j->calls.events = (struct calls_events){.ctx = j,
                                            .settled = on_settled,
                                            .before_calls = on_before_calls,
                                            .answered = on_answered,
                                            .asked = on_asked,
                                            .absent = on_absent};
    j->results.o = o;
    j->results.state = &j->state;
    j->results.model = &j->model;
    j->results.input = &j->input;
    j->results.credits = &j->credits;
    j->results.committer = &j->committer;
    j->parts.calls = &j->calls;
    j->parts.reader = &j->reader;
    j->parts.results = &j->results;
    j->parts.listen = j->batch->control.address;
    j->parts.on_view = j->batch->on_view;
    j->parts.view_ctx = j->batch->view_ctx;
}

static struct job *job_new(struct mr_batch *b, struct disk_hold *hold)
{
    struct job *j = MR_NEW(struct job);

    j->batch = b;
    j->o = b->o;
    j->state.advance = on_advance;
    j->state.loop = b->loop;
    j->state.stops = &b->stops;
    j->state.pauses = b->o->limits.pauses;
    parts_join(j);
    j->results.hold = hold;
    return j;
}

/* What the job works with, before it touches anything outside. */
static void job_init(struct job *j)
{
    const struct mr_balance_options balance = {
        .max_limit = j->o->calls.max_in_flight,
        .max_timeout_ns = j->o->calls.max_timeout_ns,
        .min_timeout_ns = j->o->openai ? ANSWER_LEAST_NS : 0,
        .max_weight = j->o->openai ? j->o->openai->max_tokens_in_flight : 0,
        .seed = (uint64_t)mr_wall_ns()};

    j->state.begin_ns = mr_now_ns();
    j->results.total_rows = -1;
    call_rows_set(&j->calls.rows, j->o->calls.rows);
    j->calls.policy.max_attempts = j->o->calls.max_attempts;
    atomic_init(&j->calls.batch_rows, j->o->calls.rows);
    j->hosts.max_in_flight = j->o->calls.max_in_flight;
    j->model.dialect = !j->o->openai                            ? &dialect_oip
                       : j->o->openai->api == MR_BATCH_API_FILE ? &openai_file_dialect
                                                                : &openai_dialect;
    j->results.sink = j->o->results.database  ? &sink_table
                      : j->o->results.objects ? &sink_objects
                                              : &sink_files;
    credits_init(&j->credits, j->o->memory_bytes);
    /* Answers that are on their way are not in the credits before they are whole: hosts whose answers have no end must not
     * take more than this. Calls end there as if hosts were busy, and no new ones begin from three quarters of it on. */
    mr_block_set_budget(j->o->memory_bytes + j->o->memory_bytes / 3 + BLOCKS_BESIDE +
                            storage_bytes(j->o),
                        MR_MIN(j->o->memory_bytes / 8, (uint64_t)BLOCKS_KEPT));
    mr_arena_init(&j->model.arena, 4096, 64 << 20);
    j->hosts.balance = mr_balance_new(&balance, j->state.begin_ns);
}

/* Folder, hosts and the socket: from here on others see the job. */
static int job_open(struct job *j, struct mr_err *err)
{
    int rc = MR_OK;

    MR_TRY(j->o->openai ? openai_new(&j->model.openai, j->o, err) : MR_OK);
    if (j->o->folder && !j->batch->folder) {
        j->batch->folder_there = batch_file_folders_there(j->o->folder);
    }
    MR_TRY(folder_find(j, err));
    j->hosts.folder = j->results.folder;
    if (j->results.folder && !j->plan && !j->batch->folder) {
        j->batch->folder = mr_strndup(j->results.folder, strlen(j->results.folder));
    }
    MR_TRY(j->o->start.retries_dead ? job_is_there(j, err) : MR_OK);
    MR_TRY(j->o->hosts.repository ? hosts_add_local(&j->hosts, err) : MR_OK);
    MR_TRY(discover_start(&j->hosts, err));
    if (!j->plan && !j->o->filter) {
        MR_TRY(control_open(&j->batch->control, &j->parts, err));
    }
out:
    return rc;
}

/* Ends the parts, and with them what they have still to say of the job. */
static void parts_end(struct job *j)
{
    struct mr_err late;

    calls_drop(&j->calls);
    reader_stop(&j->reader);
    int rc = committer_end(&j->committer, &late);
    if (j->state.rc == MR_OK && rc < 0) {
        j->state.rc = rc;
        j->state.err = late;
        j->state.may_go_on = j->committer.may_go_on;
    }
    if (j->state.rc == MR_OK) {
        j->state.rc = reader_check(&j->reader, &j->state.err);
    }
    if (j->results.manifest && j->batch->quarantine.hosts.len > 0 && j->state.rc < 0 &&
        !j->state.may_go_on) {
        /* At once, as another process would not know of it. If this fails, the next start of this process tries again. */
        quarantine_recompute(&j->hosts, &j->results, false, NULL);
    }
    if (j->state.is_stopped && j->results.manifest) {
        mr_manifest_stop(j->results.manifest, j->state.err.msg,
                         NULL); /* the exit status says it, too */
    }
}

static int job_run(struct job *j, struct mr_buf *out_report, struct mr_err *err)
{
    int rc;

    job_init(j);
    MR_TRY(job_open(j, err));
    hosts_tick(&j->hosts, j->state.begin_ns);
    job_next(j);
    mr_timer_start(j->state.loop, &j->tick, TICK_NS, TICK_NS, on_tick);
    mr_loop_run(j->state.loop);
    if (!j->state.may_go_on && !j->state.begins_again) {
        control_close(&j->batch->control);
    }
    parts_end(j);
    if (!j->state.may_go_on && !j->state.begins_again) {
        view_report(&j->parts);
    }
    rc = j->results.manifest ? job_finish(j, out_report, err) : MR_OK;
    rc = rc == MR_OK && j->state.rc == MR_OK && j->plan ? plan_end(j->plan, err) : rc;
    if (j->state.rc < 0) {
        rc = j->state.rc;
        *err = j->state.err;
    }
out:
    job_free(j);
    return rc;
}

/* ---- from outside ---- */

static bool has_model_name(const struct mr_batch_options *o)
{
    if (!o->model.name) {
        return o->openai && o->openai->api == MR_BATCH_API_FILE;
    }
    return o->model.name[0] && strlen(o->model.name) <= 256;
}

static bool has_two_inputs(const struct mr_batch_options *o)
{
    return o->source.query && o->source.path_count > 0 &&
           mr_database_kind_of(o->source.paths[0]) == MR_DATABASE_IS_NONE;
}

int mr_batch_new(struct mr_batch **out, const struct mr_batch_options *o, struct mr_err *err)
{
    const struct {
        bool is_wrong;
        const char *text;
    } checks[] = {
        {o->filter ? !o->source.stream : o->source.path_count == 0 && !o->source.query,
         "no input: give --input"},
        {has_two_inputs(o), "the input is a query or files, and both were given"},
        {!o->results.database != !o->results.table,
         "results go to a table of a database, and only one of the two was named"},
        {o->results.database && mr_database_kind_of(o->results.database) == MR_DATABASE_IS_NONE,
         "results go to a database: sqlite:FILE or postgresql://..."},
        {o->results.database && o->results.objects,
         "results go to a table or to objects, and both were named"},
        {o->results.objects && !mr_s3_is_uri(o->results.objects),
         "objects for results are s3://bucket/prefix/"},
        {o->results.database && o->results.order != MR_BATCH_UNORDERED,
         "a table has no order: the order of the results is for files"},
        {!o->filter && (!o->folder || !o->folder[0]), "no folder for the job: give --output"},
        {o->shard_count > 0 && o->shard >= o->shard_count, "there is no such shard"},
        {!has_model_name(o), "no model: give --model with a name of 1 to 256 bytes"},
        {o->model.version && (!o->model.version[0] || strlen(o->model.version) > 32),
         "the version is empty or longer than 32 bytes"},
        {o->hosts.count == 0 && !o->hosts.repository, "no hosts: give --hosts, or --local"},
        {o->calls.rows == 0, "a call takes at least one row"},
        {o->calls.max_attempts == 0, "a row gets at least one attempt"},
        {o->calls.max_in_flight == 0, "a host gets at least one call"},
        {o->memory_bytes < (1 << 20), "the memory must be 1 MiB at least"},
    };
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        if (checks[i].is_wrong) {
            return MR_FAIL(err, MR_E_INVALID, "%s", checks[i].text);
        }
    }
    struct mr_oip_metadata declared = {0};
    struct mr_arena arena;
    mr_arena_init(&arena, 4096, 1 << 20);
    int rc = declared_fill(o, &arena, &declared, err);
    mr_arena_fini(&arena);
    if (rc < 0) {
        return rc;
    }
    *out = MR_NEW(struct mr_batch);
    (*out)->o = o;
    return MR_OK;
}

void mr_batch_on_view(struct mr_batch *b, void (*fn)(void *ctx, const struct mr_batch_view *view),
                      void *ctx)
{
    b->on_view = fn;
    b->view_ctx = ctx;
}

/* It failed for the disk: what a further start, which waits first, has to know. */
static bool may_begin_again(struct job *j, const struct mr_err *err, struct disk_hold *io)
{
    if (!j->state.may_go_on) {
        return false;
    }
    disk_fails(io, &j->results, err);
    return !disk_is_lost(io, &j->results);
}

/* Copies the members that are kept when a job starts again. */
static void state_keep(struct job_state *s, const struct job_state *before)
{
    s->is_paused = before->is_paused;
    s->is_stopped = before->is_stopped;
    s->has_answers = before->has_answers;
    memcpy(s->pause_reason, before->pause_reason, sizeof s->pause_reason);
}

int mr_batch_run(struct mr_batch *b, struct mr_buf *out_report, struct mr_err *err)
{
    struct disk_hold hold = {0};
    struct job_state last = {0};
    bool is_accepted = false;
    bool is_over = false;
    int rc;

    MR_TRY(mr_loop_new(&b->loop, NULL, err));
    while (!is_over) {
        struct disk_hold before = hold;
        struct job *j = job_new(b, &before);
        state_keep(&j->state, &last);
        j->is_accepted = is_accepted;
        rc = job_run(j, out_report, err);
        state_keep(&last, &j->state);
        is_accepted = j->is_accepted;
        /* None, if the disk worked in between. */
        hold = j->committer.results ? j->committer.hold : hold;
        if (rc == MR_OK || j->state.begins_again) {
            is_over = rc == MR_OK || atomic_load(&b->stops) > 0;
        } else if (j->state.may_go_on &&
                   batch_has_stop(&j->state)) { /* in a try, not while it waits */
            rc = MR_FAIL(err, MR_E_CANCELLED, "stopped");
            is_over = true;
        } else {
            is_over = !may_begin_again(j, err, &hold);
        }
        mr_free(j);
    }
    b->is_stopped = last.is_stopped;
    quarantine_report(&b->quarantine);
    control_close(&b->control);
    mr_loop_free(&b->loop);
    if (b->folder) { /* nothing is removed of a job that has begun */
        batch_file_remove_folders(b->folder, b->folder_there);
    }
out:
    return rc;
}

int mr_batch_plan(struct mr_batch *b, struct mr_batch_plan *out, struct mr_err *err)
{
    struct mr_batch_plan found = {0};
    struct plan plan = {.out = &found, .fd = -1};
    struct disk_hold hold = {0};
    int rc;

    MR_TRY(mr_loop_new(&b->loop, NULL, err));
    struct job *j = job_new(b, &hold);
    j->plan = &plan;
    j->state.is_plan = true;
    rc = job_run(j, NULL, err);
    mr_free(j);
    mr_loop_free(&b->loop);
    if (rc == MR_OK) {
        *out = found;
    }
out:
    return rc;
}

void mr_batch_stop(struct mr_batch *b)
{
    atomic_fetch_add_explicit(&b->stops, 1, memory_order_relaxed);
}

bool mr_batch_is_stopped(const struct mr_batch *b)
{
    return b->is_stopped;
}

void mr_batch_free(struct mr_batch **b)
{
    if (*b) {
        quarantine_fini(&(*b)->quarantine);
        mr_free((*b)->folder);
    }
    mr_freep(b);
}
