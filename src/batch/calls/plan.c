/* A plan: what a job would take, by a probe of its first rows.
 *
 * The probe goes the way of a job, from the source over the hosts to a writer, but in small extents, and what it writes
 * is counted and goes nowhere. Nothing is created in the job's folder, and none of the rows counts as done. The second
 * half of it gives the rate: in the first one connections are made and the limits of hosts are found.
 *
 * Rows of Parquet are counted by the files themselves. Lines of text are estimated from samples, unless the probe came to
 * their end. What is packed cannot be estimated without unpacking it. */
#include "plan.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "batch/common/credits.h"
#include "batch/common/extent.h"
#include "batch/protocols/oip/answer.h"
#include "batch/results/results.h"
#include "calls.h"

#define SAMPLE_BYTES (256 << 10)
#define SAMPLE_FILES 64

int plan_begin(struct plan *p, struct calls *calls, const struct results *results,
               struct mr_err *err)
{
    p->calls = calls;
    p->results = results;
    p->begin_ns = mr_now_ns();
    p->fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (p->fd < 0) {
        return MR_FAIL(err, MR_E_IO, "cannot open /dev/null");
    }
    return mr_writer_new(&p->writer, p->fd, batch_outputs_schema(results->model->outputs),
                         &results->o->results.writer, err);
}

int plan_put(struct plan *p, struct extent *e, struct mr_err *err)
{
    int rc = MR_OK;

    p->last_ns = mr_now_ns();
    p->tried += e->rows->count;
    for (size_t i = 0; i < e->answers.len && rc == MR_OK; i++) {
        const struct mr_rows *rows = e->answers.at[i].rows;
        p->written += rows->count;
        rc = mr_writer_put(p->writer, rows, 0, rows->count, err);
    }
    p->memory += e->credit;
    if (!p->half_ns && p->tried >= PLAN_ROWS / 2) {
        p->half_ns = p->last_ns;
        p->half_rows = p->tried;
    }
    credits_give(p->calls->credits, e->credit);
    extent_free(&e);
    return rc;
}

bool plan_is_over(const struct job_state *s, int64_t now_ns)
{
    return now_ns - s->begin_ns >= JOB_PLAN_NS;
}

void plan_drop(struct plan *p)
{
    mr_writer_free(&p->writer);
    if (p->fd >= 0) {
        close(p->fd);
        p->fd = -1;
    }
}

/* ---- rows of text ---- */

struct sample {
    uint64_t bytes;
    uint64_t lines;
    bool is_packed;
};

static bool is_packed(const uint8_t *bytes, size_t n)
{
    return (n >= 2 && memcmp(bytes, "\x1f\x8b", 2) == 0) ||
           (n >= 4 && memcmp(bytes, "\x28\xb5\x2f\xfd", 4) == 0);
}

/* From the start, the middle and the end of the file, or all of a small one; unreadable parts give no sample. */
static void file_sample(const struct results *rs, size_t file, uint8_t *room, struct sample *s)
{
    const uint64_t bytes = mr_source_file(rs->input->source, file).bytes;
    const uint64_t last = bytes > SAMPLE_BYTES ? bytes - SAMPLE_BYTES : 0;
    const uint64_t places[] = {0, last / 2, last};
    const size_t count = last >= 2 * (uint64_t)SAMPLE_BYTES ? 3 : last > 0 ? 2 : 1;

    for (size_t i = 0; i < count; i++) {
        const uint64_t at = count == 2 && i == 1 ? last : places[i];
        size_t n = 0;
        if (mr_source_peek(rs->input->source, file, at, room, SAMPLE_BYTES, &n, NULL) < 0) {
            return;
        }
        s->is_packed = s->is_packed || (at == 0 && is_packed(room, n));
        for (const uint8_t *p = room, *end = room + n;
             p < end && (p = memchr(p, '\n', (size_t)(end - p))); p++) {
            s->lines++;
        }
        s->bytes += n;
    }
}

static int64_t rows_estimate(const struct results *rs, uint64_t bytes)
{
    const size_t files = mr_source_file_count(rs->input->source);
    const size_t step = (files + SAMPLE_FILES - 1) / SAMPLE_FILES;
    const bool is_csv =
        rs->o->source.format == MR_TABLE_CSV ||
        mr_table_format_of(mr_str_c(mr_source_file(rs->input->source, 0).path)) == MR_TABLE_CSV;
    uint8_t *room = MR_NEW_ARRAY(uint8_t, SAMPLE_BYTES);
    struct sample s = {0};

    for (size_t i = 0; i < files; i += step) {
        file_sample(rs, i, room, &s);
    }
    mr_free(room);
    if (s.is_packed || s.bytes == 0) {
        return -1;
    }
    const double lines = (double)s.lines * (double)bytes / (double)s.bytes;
    const double heads = is_csv && !rs->o->source.has_no_header ? (double)files : 0;
    return (int64_t)MR_MAX(lines - heads, 0.0);
}

/* ---- what it comes to ---- */

static void input_describe(const struct results *rs, struct mr_batch_plan *out)
{
    out->files = mr_source_file_count(rs->input->source);
    for (size_t i = 0; i < out->files; i++) {
        const struct mr_source_file f = mr_source_file(rs->input->source, i);
        out->bytes += f.bytes;
    }
    out->rows = shard_rows(&rs->input->shard, rs->input->source);
    out->rows_are_counted = out->rows >= 0;
    if (out->rows < 0) {
        out->rows = rows_estimate(rs, out->bytes);
        out->rows /= out->rows > 0 && rs->input->shard.count > 0 ? rs->input->shard.count : 1;
    }
}

/* What earlier starts have done, if there is a job. */
static uint64_t rows_done(const struct results *rs)
{
    struct mr_manifest_totals totals;
    bool is_finished;
    uint32_t epoch;
    int64_t pid;

    return mr_manifest_summary(rs->folder, &totals, &is_finished, &epoch, &pid, NULL, NULL) == MR_OK
               ? totals.rows + totals.dead
               : 0;
}

static double rate_of(const struct plan *p)
{
    const bool has_second_half = p->half_ns && p->tried > p->half_rows && p->last_ns > p->half_ns;
    const int64_t since_ns = has_second_half ? p->half_ns : p->begin_ns;
    const uint64_t rows = p->tried - (has_second_half ? p->half_rows : 0);

    return rows > 0 ? (double)rows * 1e9 / (double)MR_MAX(p->last_ns - since_ns, INT64_C(1)) : 0;
}

static int64_t times(double per_row, int64_t rows)
{
    return per_row > 0 && rows >= 0 && per_row * (double)rows < 9e18
               ? (int64_t)(per_row * (double)rows)
               : -1;
}

int plan_end(struct plan *p, struct mr_err *err)
{
    struct mr_batch_plan *out = p->out;
    int rc = mr_writer_finish(p->writer, err);

    if (rc < 0) {
        return rc;
    }
    input_describe(p->results, out);
    out->done_rows = rows_done(p->results);
    const int64_t left = out->rows < 0 ? -1
                         : (uint64_t)out->rows > out->done_rows
                             ? out->rows - (int64_t)out->done_rows
                             : 0;
    for (size_t i = 0; i < p->calls->hosts->list.len; i++) {
        out->working_hosts += p->calls->hosts->list.at[i]->rows > 0;
    }
    out->hosts = p->calls->hosts->list.len;
    out->probed_rows = p->tried;
    out->probed_dead = p->tried - p->written;
    out->probed_ns = p->tried > 0 ? p->last_ns - p->begin_ns : 0;
    out->rows_per_s = rate_of(p);
    out->call_rows =
        p->calls->model->dialect->takes_rows(p->calls->model) ? p->calls->rows.most : 1;
    out->calls = left < 0 ? -1 : (int64_t)(((uint64_t)left + out->call_rows - 1) / out->call_rows);
    const double share = p->tried > 0 ? (double)p->written / (double)p->tried : 0;
    const double result =
        p->written > 0 ? (double)mr_writer_bytes(p->writer) / (double)p->written : 0;
    out->result_bytes = times(result * share, left);
    out->row_bytes = p->tried > 0 ? p->memory / p->tried : 0;
    const int64_t whole = times((double)out->row_bytes, left);
    out->memory_bytes =
        whole >= 0 ? MR_MIN((uint64_t)whole, p->calls->o->memory_bytes) : p->calls->o->memory_bytes;
    out->run_ns = left == 0 ? 0 : times(out->rows_per_s > 0 ? 1e9 / out->rows_per_s : 0, left);
    return MR_OK;
}
