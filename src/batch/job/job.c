/* A job from begin to end, on the loop's thread.
 *
 *   asking    until a host has reported the model's metadata; without them neither columns nor files can be checked
 *   running   the reader brings extents, hosts answer, the committer writes
 *   ending    everything is read and settled, or the job was stopped or failed: what is settled is committed
 *
 * A job that failed for its disk is begun again in the same process, and waits in `asking` (disk.h).
 *
 * Setting up between the first two phases blocks the loop; nothing else is going on then. */
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
#include "batch/common/job.h"
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

static bool is_dead_too_often(struct job *j, struct mr_err *err)
{
    const struct mr_batch_options *o = j->o;
    const uint64_t dead = j->before.dead + j->dead_rows;
    const uint64_t rows = j->before.rows + j->before.dead + j->read_rows;

    if (j->dlq_retry) {
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

static void job_settled(struct job *j, struct extent *e)
{
    struct mr_err err;

    for (size_t i = 0; i < j->open.len; i++) {
        if (j->open.at[i] == e) {
            j->open.at[i] = j->open.at[--j->open.len];
            break;
        }
    }
    if (j->plan) {
        int rc = plan_put(j, e, &err);
        if (rc < 0) {
            job_fail(j, rc, &err);
        }
        return;
    }
    committer_put(j->committer, e);
    if (!j->is_accepted && is_dead_too_often(j, &err)) {
        j->is_accepted = j->o->limits.pauses; /* a resume means that it was seen */
        job_stop(j, &err);
    }
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
    const size_t files = mr_source_file_count(j->source);
    int64_t *rows = MR_NEW_ARRAY(int64_t, files + 1);

    for (size_t i = 0; i < files; i++) {
        rows[i] = mr_source_file(j->source, i).rows;
    }
    shard_begin(&j->shard, j->o->shard, j->o->shard_count, rows, files);
    mr_free(rows);
}

/* Wanted are the columns of the model and, as they are, those to keep. */
static void carried_want(struct job *j)
{
    for (size_t i = 0; i < j->o->results.carried_count; i++) {
        const char *name = j->o->results.carried[i];
        if (mr_schema_find(&j->wanted, mr_str_c(name)) < 0) {
            mr_schema_add(&j->wanted, &(struct mr_field){.name = (char *)(uintptr_t)name,
                                                         .type = MR_COLUMN_NONE});
        }
    }
}

/* Where nothing tells the columns, there are no rows: they are as the model takes them, and texts. */
static const struct mr_schema *columns_of(struct job *j)
{
    if (j->o->filter || mr_source_schema(j->source)->count > 0) {
        return mr_source_schema(j->source);
    }
    for (size_t i = 0; i < j->wanted.count; i++) {
        struct mr_field *f = &j->wanted.fields[i];
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
static void set_up_tell(const struct job *j)
{
    control_tell(j->batch);
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
    const int rc = j->sink->open ? j->sink->open(j, err) : MR_OK;

    if (rc == MR_E_INVALID || rc == MR_E_UNSUPPORTED || rc == MR_E_FORBIDDEN ||
        rc == MR_E_NOT_FOUND || rc == MR_E_EXISTS) {
        mr_manifest_forget(&j->manifest);
    }
    return rc;
}

static int job_set_up(struct job *j, struct mr_err *err)
{
    const struct mr_batch_options *o = j->o;
    struct mr_source_options source = o->source;
    int rc;

    MR_TRY(j->dialect->want(j, err));
    carried_want(j);
    source.wanted = &j->wanted;
    source.reads_wanted_only = true;
    source.memory_bytes = o->filter ? o->memory_bytes : MR_MAX(READING_LEAST, o->memory_bytes / 2);
    source.outage_ns = o->limits.outage_ns;
    source.sink = o->results.database;
    source.is_stopped = batch_has_stop;
    source.ctx = j->batch;
    const struct mr_s3_options s3 = storage_options(j);
    source.s3 = &s3;
    MR_TRY(mr_source_open(&j->source, &source, err));
    shard_take(j);
    MR_TRY(j->dialect->bind(j, columns_of(j), err));
    hosts_bound(j, j->calls->rows.most);
    if (o->calls.grows && j->dialect->grows_calls && j->dialect->takes_rows(j) && !j->plan &&
        !o->start.retries_dead) {
        grow_begin(&j->calls->grow);
    }
    if (j->plan) {
        MR_TRY(plan_begin(j, err));
        return reader_start(j->reader, j, err);
    }
    if (o->filter) {
        MR_TRY(committer_start(j->committer, j, err));
        return reader_start(j->reader, j, err);
    }
    MR_TRY(o->results.database ? output_check(o, err) : MR_OK);
    MR_TRY(identity_open(j, err));
    MR_TRY(mr_manifest_stop(j->manifest, NULL, err));
    MR_TRY(quarantine_recompute(j, true, err));
    cross_check_new(j);
    j->was_finished = mr_manifest_is_finished(j->manifest);
    MR_TRY(sink_open(j, err));
    if (o->start.retries_dead) {
        MR_TRY(dlq_retry_new(&j->dlq_retry, j, err));
        j->calls->policy.counts_answers = true;
        j->total_rows = (int64_t)dlq_retry_rows(j->dlq_retry);
    } else {
        j->before = mr_manifest_totals(j->manifest);
        j->total_rows = shard_rows(&j->shard, j->source);
    }
    MR_TRY(committer_start(j->committer, j, err));
    MR_TRY(reader_start(j->reader, j, err));
    set_up_tell(j);
out:
    return rc;
}

/* ---- what is going on ---- */

static int outage_check(struct job *j, int64_t now_ns, struct mr_err *err)
{
    int64_t since_ns = j->begin_ns;
    const struct host *h = NULL;

    if (j->is_paused || j->is_finishing || j->hold->until_ns > now_ns ||
        (j->phase == JOB_RUNNING && !mr_balance_is_stalled(j->balance, &since_ns))) {
        return MR_OK;
    }
    since_ns = MR_MAX(since_ns, j->resumed_ns);
    if (now_ns - since_ns <
        (j->plan ? MR_MIN(PLAN_NS, j->o->limits.outage_ns) : j->o->limits.outage_ns)) {
        return MR_OK;
    }
    for (size_t i = 0; i < j->hosts.len; i++) {
        h = h && h->trouble[0] ? h : j->hosts.at[i];
    }
    const struct call_cause *last = h && h->trouble[0] ? NULL : figures_last_failure(j);
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

    if (atomic_load_explicit(&j->batch->stops, memory_order_relaxed) > 0) {
        mr_err_set(&err, MR_E_CANCELLED, MR_HERE, "stopped");
        job_fail(j, MR_E_CANCELLED, &err);
        return;
    }
    discover_tick(j, now_ns);
    hosts_tick(j, now_ns);
    if (j->plan && j->phase == JOB_RUNNING && plan_is_over(j, now_ns)) {
        job_end(j);
        return;
    }
    int rc = outage_check(j, now_ns, &err);
    if (rc == MR_OK && !j->is_paused && !j->is_finishing && j->hold->until_ns <= now_ns) {
        rc = hosts_check(j, now_ns, &err);
    }
    if (rc == MR_OK && j->o->filter) {
        rc = filter_check(j, &err);
    }
    if (rc < 0) {
        job_fail(j, rc, &err);
        return;
    }
    cross_check_tick(j, now_ns);
    calls_tick(j);
    if (view_mark(j, now_ns)) {
        mr_block_age();
        view_tell(j);
    }
    calls_pump(j);
    j->events->advance(j);
}

static void job_advance(struct job *j)
{
    struct mr_err err;

    if (j->phase == JOB_ASKING && j->has_metadata && mr_now_ns() >= j->hold->until_ns) {
        int rc = job_set_up(j, &err);
        j->phase = JOB_RUNNING;
        if (rc < 0) {
            j->may_go_on = j->hold->since_ns > 0 && disk_is_at_fault(&err);
            j->is_refused = !j->may_go_on;
            job_fail(j, rc, &err);
            return;
        }
    }
    if (j->phase == JOB_RUNNING && j->is_read && j->open.len == 0 && !j->is_finishing &&
        !cross_check_is_asking(j) && !j->pause_reason[0]) {
        j->is_finishing = true;
        cross_check_end(j);
        if (j->manifest) {
            committer_finish(j->committer); /* which ends it, and may have to wait for a disk */
        } else {
            job_end(j);
        }
    }
}

/* ---- the end ---- */

/* Has each row of the input an outcome? Whoever has read all of it knows; otherwise the first row without one is looked
 * for. Behind the reader, whose source it is. */
static int job_is_whole(struct job *j, bool *out, struct mr_err *err)
{
    bool is_whole = j->dlq_retry || j->reader->rc == MR_OK;
    int rc = MR_OK;

    const size_t files = j->dlq_retry && !j->was_finished ? mr_source_file_count(j->source) : 0;
    for (uint32_t i = 0; i < files && is_whole; i++) {
        struct mr_rows *rows = NULL;
        struct mr_range gap;
        if (shard_gap(&j->shard, i, mr_manifest_done(j->manifest, i), 0, &gap)) {
            rc = mr_source_read(j->source, i, gap.first, 1, 1, &rows, err);
            if (j->o->source.skips_bad_files && reader_passes(j, rc)) {
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
    if (quarantine_is_left(j, err)) {
        j->batch->is_stopped = true;
        mr_manifest_stop(j->manifest, err->msg, NULL);
        return err->status;
    }
    if (j->dlq_retry && j->batch->has_taken_back) {
        j->batch->is_stopped = true;
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
    int rc = j->rc == MR_OK ? job_is_whole(j, &is_whole, err) : MR_OK;

    mr_buf_init(&report, REPORT_BYTES);
    report_put(j, &report);
    const bool has_changed = j->dlq_retry || !mr_manifest_is_finished(j->manifest);
    if (rc == MR_OK && j->rc == MR_OK) {
        rc = stop_for_wrong_rows(j, err);
    }
    if (rc == MR_OK && is_whole && has_changed && j->sink->publish) {
        rc = j->sink->publish(j, err);
    }
    if (rc == MR_OK && is_whole && !mr_manifest_is_finished(j->manifest)) {
        bool may_reopen;
        rc = mr_manifest_finish(j->manifest, mr_buf_view(&report), err);
        j->may_go_on =
            rc < 0 &&
            (mr_manifest_is_sound(j->manifest, &may_reopen) ? disk_is_at_fault(err) : may_reopen);
    }
    if (out_report && !j->may_go_on && !j->begins_again) {
        mr_buf_str(out_report, mr_buf_view(&report));
    }
    mr_buf_fini(&report);
    return rc;
}

static void job_free(struct job *j)
{
    j->batch->job = NULL;
    calls_drop(j);
    mr_timer_stop(&j->tick);
    discover_stop(j);
    if (j->local) {
        local_close(j->local);
    }
    hosts_close(j);
    mr_loop_settle(j->loop); /* mails to this job */
    local_free(&j->local);
    for (size_t i = 0; i < j->open.len; i++) {
        extent_free(&j->open.at[i]);
    }
    MR_VEC_FINI(&j->open);
    MR_VEC_FINI(&j->calls->extents);
    MR_VEC_FINI(&j->calls->policy.hosts);
    if (j->calls->known_good) {
        extent_free(&j->calls->known_good);
    }
    cross_check_free(&j->cross_check);
    MR_VEC_FINI(&j->calls->in_flight);
    hosts_free(j);
    mr_balance_free(&j->balance);
    dlq_retry_free(&j->dlq_retry);
    if (j->sink && j->sink->close) {
        j->sink->close(j);
    }
    mr_manifest_close(&j->manifest);
    if (j->plan) {
        plan_drop(j->plan);
    }
    if (j->dialect && j->dialect->free) {
        j->dialect->free(j);
    }
    reader_fini(j->reader);
    batch_outputs_free(&j->outputs);
    batch_bind_free(&j->bind);
    if (j->source) {
        mr_source_close(&j->source);
    }
    shard_fini(&j->shard);
    mr_freep(&j->folder);
    mr_schema_fini(&j->wanted);
    mr_schema_fini(&j->columns);
    mr_arena_fini(&j->arena);
    credits_fini(&j->credits);
}

static int folder_find(struct job *j, struct mr_err *err)
{
    const struct mr_batch_options *o = j->o;
    const bool make = !j->plan && !o->start.retries_dead;

    if (o->shard_count) {
        return shard_folder(&j->folder, o->folder, o->shard, o->shard_count, make, err);
    }
    j->folder = o->folder ? mr_strndup(o->folder, strlen(o->folder)) : NULL;
    return MR_OK;
}

static int job_is_there(const struct job *j, struct mr_err *err)
{
    struct mr_manifest_totals totals;
    bool is_finished;
    uint32_t epoch;
    int64_t pid;

    return mr_manifest_summary(j->folder, &totals, &is_finished, &epoch, &pid, NULL, err);
}

static const struct job_events events = {
    .advance = job_advance,
    .settled = job_settled,
    .before_calls = cross_check_evaluate,
    .answered = cross_check_see,
    .asked = cross_check_told,
    .absent = cross_check_absent,
};

static struct job *job_new(struct mr_batch *b, struct disk_hold *hold)
{
    struct job *j = MR_NEW(struct job);

    *j = (struct job){.batch = b,
                      .o = b->o,
                      .loop = b->loop,
                      .hold = hold,
                      .events = &events,
                      .reader = MR_NEW(struct reader),
                      .committer = MR_NEW(struct committer),
                      .calls = MR_NEW(struct calls)};
    return j;
}

static void job_drop(struct job **j)
{
    mr_free((*j)->reader);
    mr_free((*j)->committer);
    mr_free((*j)->calls);
    mr_freep(j);
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

    j->begin_ns = mr_now_ns();
    j->total_rows = -1;
    call_rows_set(&j->calls->rows, j->o->calls.rows);
    j->calls->policy.max_attempts = j->o->calls.max_attempts;
    atomic_init(&j->batch_rows, j->o->calls.rows);
    j->max_in_flight = j->o->calls.max_in_flight;
    j->dialect = !j->o->openai                            ? &dialect_oip
                 : j->o->openai->api == MR_BATCH_API_FILE ? &openai_file_dialect
                                                          : &openai_dialect;
    j->sink = j->o->results.database  ? &sink_table
              : j->o->results.objects ? &sink_objects
                                      : &sink_files;
    credits_init(&j->credits, j->o->memory_bytes);
    /* Answers that are on their way are not in the credits before they are whole: hosts whose answers have no end must not
     * take more than this. Calls end there as if hosts were busy, and no new ones begin from three quarters of it on. */
    mr_block_set_budget(j->o->memory_bytes + j->o->memory_bytes / 3 + BLOCKS_BESIDE,
                        MR_MIN(j->o->memory_bytes / 8, (uint64_t)BLOCKS_KEPT));
    mr_arena_init(&j->arena, 4096, 64 << 20);
    j->balance = mr_balance_new(&balance, j->begin_ns);
}

/* Folder, hosts and the socket: from here on others see the job. */
static int job_open(struct job *j, struct mr_err *err)
{
    int rc = MR_OK;

    MR_TRY(j->o->openai ? openai_new(&j->openai, j->o, err) : MR_OK);
    if (j->o->folder && !j->batch->folder) {
        j->batch->folder_there = batch_file_folders_there(j->o->folder);
    }
    MR_TRY(folder_find(j, err));
    if (j->folder && !j->plan && !j->batch->folder) {
        j->batch->folder = mr_strndup(j->folder, strlen(j->folder));
    }
    MR_TRY(j->o->start.retries_dead ? job_is_there(j, err) : MR_OK);
    MR_TRY(j->o->hosts.repository ? hosts_add_local(j, err) : MR_OK);
    MR_TRY(discover_start(j, err));
    if (!j->plan && !j->o->filter) {
        MR_TRY(control_open(j, err));
    }
out:
    return rc;
}

/* Ends the parts, and with them what they have still to say of the job. */
static void parts_end(struct job *j)
{
    struct mr_err late;

    calls_drop(j);
    reader_stop(j->reader);
    int rc = committer_end(j->committer, &late);
    if (j->rc == MR_OK && rc < 0) {
        j->rc = rc;
        j->err = late;
        j->may_go_on = j->committer->may_go_on;
    }
    if (j->rc == MR_OK) {
        j->rc = reader_check(j->reader, &j->err);
    }
    if (j->manifest && j->batch->quarantined.len > 0 && j->rc < 0 && !j->may_go_on) {
        quarantine_recompute(j, false,
                             NULL); /* at once, as another process would know of nothing */
    }
    if (j->batch->is_stopped && j->manifest) {
        mr_manifest_stop(j->manifest, j->err.msg, NULL); /* the exit status says it, too */
    }
}

static int job_run(struct job *j, struct mr_buf *out_report, struct mr_err *err)
{
    int rc;

    job_init(j);
    MR_TRY(job_open(j, err));
    hosts_tick(j, j->begin_ns);
    job_advance(j);
    mr_timer_start(j->loop, &j->tick, TICK_NS, TICK_NS, on_tick);
    mr_loop_run(j->loop);
    if (!j->may_go_on && !j->begins_again) {
        control_close(j->batch);
    }
    parts_end(j);
    if (!j->may_go_on && !j->begins_again) {
        view_tell(j);
    }
    rc = j->manifest ? job_finish(j, out_report, err) : MR_OK;
    rc = rc == MR_OK && j->rc == MR_OK && j->plan ? plan_end(j, err) : rc;
    if (j->rc < 0) {
        rc = j->rc;
        *err = j->err;
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
         "there is no input"},
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
        {!o->filter && (!o->folder || !o->folder[0]), "there is no folder for the job"},
        {o->shard_count > 0 && o->shard >= o->shard_count, "there is no such shard"},
        {!has_model_name(o), "the model has no name, or one of more than 256 bytes"},
        {o->model.version && (!o->model.version[0] || strlen(o->model.version) > 32),
         "the version is empty or longer than 32 bytes"},
        {o->hosts.count == 0 && !o->hosts.repository, "there are no hosts"},
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
    if (!j->may_go_on || atomic_load_explicit(&j->batch->stops, memory_order_relaxed) > 0) {
        return false;
    }
    *io = j->committer->job ? j->committer->hold : *io; /* none, if hosts worked in between */
    disk_fails(io, j, err);
    return !disk_is_lost(io, j);
}

int mr_batch_run(struct mr_batch *b, struct mr_buf *out_report, struct mr_err *err)
{
    struct disk_hold hold = {0};
    char pause_reason[sizeof((struct job *)NULL)->pause_reason] = "";
    bool is_paused = false;
    bool is_accepted = false;
    bool is_over = false;
    int rc;

    MR_TRY(mr_loop_new(&b->loop, NULL, err));
    while (!is_over) {
        struct disk_hold before = hold;
        struct job *j = b->job = job_new(b, &before);
        j->is_paused = is_paused;
        j->is_accepted = is_accepted;
        memcpy(j->pause_reason, pause_reason, sizeof pause_reason);
        rc = job_run(j, out_report, err);
        is_paused = j->is_paused;
        is_accepted = j->is_accepted;
        memcpy(pause_reason, j->pause_reason, sizeof pause_reason);
        if (rc == MR_OK || j->begins_again) {
            is_over = rc == MR_OK || atomic_load(&b->stops) > 0;
        } else {
            is_over = !may_begin_again(j, err, &hold);
        }
        job_drop(&j);
    }
    control_close(b);
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
    struct job *j = b->job = job_new(b, &hold);
    j->plan = &plan;
    rc = job_run(j, NULL, err);
    job_drop(&j);
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
        quarantine_free(*b);
        mr_free((*b)->folder);
    }
    mr_freep(b);
}
