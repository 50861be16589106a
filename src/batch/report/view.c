/* How a job is doing, for those who look at it: progress, status, metrics. On the loop's thread. */
#include "view.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "batch/calls/calls.h"
#include "batch/calls/reader.h"
#include "batch/common/credits.h"
#include "batch/common/job.h"
#include "batch/common/waits.h"
#include "batch/results/committer.h"
#include "batch/results/disk.h"

#define MARK_NS MR_NS_PER_S

/* ---- what went wrong lately ---- */

static int newer(const void *a, const void *b)
{
    const struct mr_batch_failure_view *x = a;
    const struct mr_batch_failure_view *y = b;
    return (x->ago_ns > y->ago_ns) - (x->ago_ns < y->ago_ns);
}

static size_t failures_view(const struct job *j, int64_t now_ns, struct mr_batch_failure_view *out)
{
    size_t n = 0;

    for (size_t i = 0; i < CAUSES_MOST; i++) {
        const struct call_cause *c = &j->causes[i];
        if (c->count > 0) {
            out[n++] = (struct mr_batch_failure_view){c->host->transport.address, c->text, c->count,
                                                      MR_MAX(now_ns - c->last_ns, INT64_C(0))};
        }
    }
    qsort(out, n, sizeof *out, newer);
    return n;
}

/* ---- hosts ---- */

static void host_view(const struct host *h, const struct mr_balance_view *views, uint32_t count,
                      struct mr_batch_host_view *out)
{
    *out = (struct mr_batch_host_view){.address = h->transport.address,
                                       .state = !h->is_listed    ? "removed"
                                                : h->is_cordoned ? "fenced"
                                                                 : "no answer yet",
                                       .reason = h->trouble,
                                       .version = h->version,
                                       .rows = h->rows,
                                       .calls = h->calls,
                                       .failures = h->failures,
                                       .retries = h->figures.retries};
    for (uint32_t i = 0; i < count; i++) {
        if (h->id && views[i].host == h->id) {
            out->state = mr_balance_state_name(views[i].state);
            out->reason = views[i].reason[0] ? views[i].reason : h->trouble;
            out->in_flight = views[i].in_flight;
            out->limit = views[i].limit;
            out->p50_ns = views[i].p50_ns;
            out->p95_ns = views[i].p95_ns;
        }
    }
    if (h->job->phase == JOB_ENDING && h->figures.answer_ns) {
        out->p50_ns = (int64_t)mr_hist_quantile(h->figures.answer_ns, 0.5);
        out->p95_ns = (int64_t)mr_hist_quantile(h->figures.answer_ns, 0.95);
    }
}

/* ---- the whole ---- */

static double rate_of(const struct job *j)
{
    const uint64_t marks = sizeof j->marks / sizeof *j->marks;

    if (j->mark_count < 2) {
        return 0;
    }
    const uint64_t last = j->mark_count - 1;
    const uint64_t first = j->mark_count > marks ? j->mark_count - marks : 0;
    const int64_t ns = j->marks[last % marks].at_ns - j->marks[first % marks].at_ns;
    return ns > 0 ? (double)(j->marks[last % marks].rows - j->marks[first % marks].rows) * 1e9 /
                        (double)ns
                  : 0;
}

static uint64_t rows_settled(const struct job *j)
{
    uint64_t rows = j->dead_rows;

    for (size_t i = 0; i < j->hosts.len; i++) {
        rows += j->hosts.at[i]->rows;
    }
    return rows;
}

static const char *bottleneck_of(const struct job *j)
{
    const int64_t now_ns = mr_now_ns();
    const int64_t ran_ns = MR_MAX(now_ns - j->begin_ns, INT64_C(1));
    const int64_t writer_ns = j->committer->begin_ns > 0 ? now_ns - j->committer->begin_ns : 0;

    if (writer_ns < 10 * MR_NS_PER_MS) {
        return "hosts"; /* that are asked for the model, or about to be asked for rows */
    }
    if (waits_ns(&j->committer->waits) < writer_ns / 5) {
        return "writer";
    }
    const bool has_read =
        j->is_read && atomic_load_explicit(&j->reader->read_ns, memory_order_relaxed) < ran_ns / 2;
    return has_read || waits_ns(&j->reader->waits) > ran_ns / 5 || j->calls->extents.len > 2
               ? "hosts"
               : "reader";
}

static const char *reader_of(struct job *j)
{
    return j->is_read                        ? "has ended"
           : credits_are_wanted(&j->credits) ? "waits for memory"
           : j->calls->readahead.is_held     ? "waits for hosts"
                                             : "reads";
}

bool view_mark(struct job *j, int64_t now_ns)
{
    const uint64_t marks = sizeof j->marks / sizeof *j->marks;

    if (j->mark_count > 0 && now_ns - j->marks[(j->mark_count - 1) % marks].at_ns < MARK_NS) {
        return false;
    }
    j->marks[j->mark_count % marks].at_ns = now_ns;
    j->marks[j->mark_count++ % marks].rows = rows_settled(j);
    return true;
}

/* With the arrays that it points to. */
struct whole_view {
    struct mr_batch_view view;
    struct mr_batch_failure_view failures[CAUSES_MOST];
    struct mr_batch_dead_view dead_causes[DEAD_CAUSES_MOST];
    struct mr_batch_host_view *hosts;
    struct mr_balance_view *balanced; /* their reasons */
    struct disk_hold hold;            /* its reason */
};

static struct disk_hold hold_view(struct job *j)
{
    struct disk_hold h = *j->hold;

    if (j->committer->is_started) {
        pthread_mutex_lock(&j->committer->lock);
        h = j->committer->hold;
        pthread_mutex_unlock(&j->committer->lock);
    } else if (j->phase != JOB_ASKING) {
        h.reason[0] = '\0';
    }
    return h;
}

struct mr_batch_view *view_new(struct job *j)
{
    static const char *const phases[] = {"asking", "running", "ending"};
    struct whole_view *w = MR_NEW(struct whole_view);
    const int64_t now_ns = mr_now_ns();
    const uint32_t count = mr_balance_views(j->balance, now_ns, NULL, 0);

    w->balanced = MR_NEW_ARRAY(struct mr_balance_view, count + 1);
    mr_balance_views(j->balance, now_ns, w->balanced, count);
    w->hosts = MR_NEW_ARRAY(struct mr_batch_host_view, j->hosts.len + 1);
    for (size_t i = 0; i < j->hosts.len; i++) {
        host_view(j->hosts.at[i], w->balanced, count, &w->hosts[i]);
    }
    const uint64_t rows = atomic_load_explicit(&j->committer->rows, memory_order_relaxed);
    const uint64_t dead = atomic_load_explicit(&j->committer->dead, memory_order_relaxed);
    pthread_mutex_lock(&j->credits.lock);
    const uint64_t taken = j->credits.taken;
    pthread_mutex_unlock(&j->credits.lock);
    w->hold = hold_view(j);
    w->view = (struct mr_batch_view){
        .total_rows = j->total_rows,
        .rows = j->before.rows + rows,
        .dead = j->before.dead + dead,
        .rows_before = j->before.rows + j->before.dead,
        .under_way = j->read_rows - rows - dead,
        .settled = rows_settled(j),
        .is_refused = j->is_refused,
        .memory_bytes = taken,
        .reader = reader_of(j),
        .files = j->before.parts +
                 atomic_load_explicit(&j->committer->files, memory_order_relaxed) -
                 atomic_load_explicit(&j->committer->merged, memory_order_relaxed),
        .ran_ns = now_ns - j->begin_ns,
        .rows_per_s = rate_of(j),
        .has_tokens = j->openai != NULL,
        .bottleneck = bottleneck_of(j),
        .phase = phases[j->phase],
        .is_paused = j->is_paused,
        .held = j->pause_reason[0] ? j->pause_reason : w->hold.reason,
        .batch_rows = atomic_load_explicit(&j->batch_rows, memory_order_relaxed),
        .most_rows = (uint32_t)j->calls->rows.now,
        .max_in_flight = j->max_in_flight,
        .failures = w->failures,
        .failure_count = failures_view(j, now_ns, w->failures),
        .hosts = w->hosts,
        .host_count = j->hosts.len,
        .dead_causes = w->dead_causes,
        .dead_cause_count = j->figures.dead_count,
        .dead_others = j->figures.dead_other,
        .read_ns = atomic_load_explicit(&j->reader->read_ns, memory_order_relaxed),
        .reader_waited_ns = waits_ns(&j->reader->waits),
        .write_ns = atomic_load_explicit(&j->committer->write_ns, memory_order_relaxed),
        .commit_ns = atomic_load_explicit(&j->committer->commit_ns, memory_order_relaxed),
        .writer_waited_ns = waits_ns(&j->committer->waits)};
    for (size_t i = 0; i < j->figures.dead_count; i++) {
        const struct dead_cause *d = &j->figures.dead[i];
        w->dead_causes[i] = (struct mr_batch_dead_view){d->kind, d->text, d->count};
    }
    for (size_t i = 0; i < j->hosts.len; i++) {
        w->view.prompt_tokens += j->hosts.at[i]->figures.prompt_tokens;
        w->view.completion_tokens += j->hosts.at[i]->figures.completion_tokens;
    }
    return &w->view;
}

void view_free(struct mr_batch_view **v)
{
    struct whole_view *w = *v ? MR_CONTAINER_OF(*v, struct whole_view, view) : NULL;

    if (w) {
        mr_free(w->hosts);
        mr_free(w->balanced);
        mr_free(w);
        *v = NULL;
    }
}

void view_tell(struct job *j)
{
    if (j->batch->on_view) {
        struct mr_batch_view *v = view_new(j);
        j->batch->on_view(j->batch->view_ctx, v);
        view_free(&v);
    }
}
