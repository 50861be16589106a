/* How a job is doing, for those who look at it: progress, status, metrics. On the loop's thread. */
#include "view.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "batch/calls/calls.h"
#include "batch/calls/reader.h"
#include "batch/common/credits.h"
#include "batch/common/waits.h"
#include "batch/results/committer.h"
#include "batch/results/disk.h"
#include "batch/results/results.h"

#define MARK_NS MR_NS_PER_S

/* ---- what went wrong lately ---- */

static int newer(const void *a, const void *b)
{
    const struct mr_batch_failure_view *x = a;
    const struct mr_batch_failure_view *y = b;
    return (x->ago_ns > y->ago_ns) - (x->ago_ns < y->ago_ns);
}

static size_t failures_view(const struct job_parts *parts, int64_t now_ns,
                            struct mr_batch_failure_view *out)
{
    size_t n = 0;

    for (size_t i = 0; i < CAUSES_MOST; i++) {
        const struct call_cause *c = &parts->calls->figures.causes[i];
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
                                       .state = !h->is_listed       ? "removed"
                                                : h->is_quarantined ? "quarantined"
                                                : h->is_cordoned    ? "cordoned"
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
    if (h->hosts->state->phase == JOB_ENDING && h->figures.answer_ns) {
        out->p50_ns = (int64_t)mr_hist_quantile(h->figures.answer_ns, 0.5);
        out->p95_ns = (int64_t)mr_hist_quantile(h->figures.answer_ns, 0.95);
    }
}

/* ---- the whole ---- */

static double rate_of(const struct job_parts *parts)
{
    const uint64_t marks = sizeof parts->marks / sizeof *parts->marks;

    if (parts->mark_count < 2) {
        return 0;
    }
    const uint64_t last = parts->mark_count - 1;
    const uint64_t first = parts->mark_count > marks ? parts->mark_count - marks : 0;
    const int64_t ns = parts->marks[last % marks].at_ns - parts->marks[first % marks].at_ns;
    return ns > 0 ? (double)(parts->marks[last % marks].rows - parts->marks[first % marks].rows) *
                        1e9 / (double)ns
                  : 0;
}

static uint64_t rows_settled(const struct job_parts *parts)
{
    uint64_t rows = parts->calls->dead_rows;

    for (size_t i = 0; i < parts->calls->hosts->list.len; i++) {
        rows += parts->calls->hosts->list.at[i]->rows;
    }
    return rows;
}

static const char *bottleneck_of(const struct job_parts *parts)
{
    const int64_t now_ns = mr_now_ns();
    const int64_t ran_ns = MR_MAX(now_ns - parts->calls->state->begin_ns, INT64_C(1));
    const int64_t writer_ns =
        parts->results->committer->begin_ns > 0 ? now_ns - parts->results->committer->begin_ns : 0;

    if (writer_ns < 10 * MR_NS_PER_MS) {
        return "hosts"; /* that are asked for the model, or about to be asked for rows */
    }
    if (waits_ns(&parts->results->committer->waits) < writer_ns / 5) {
        return "writer";
    }
    const bool has_read =
        parts->calls->is_read &&
        atomic_load_explicit(&parts->reader->read_ns, memory_order_relaxed) < ran_ns / 2;
    return has_read || waits_ns(&parts->reader->waits) > ran_ns / 5 || parts->calls->extents.len > 2
               ? "hosts"
               : "reader";
}

static const char *reader_of(const struct job_parts *parts)
{
    return parts->calls->is_read                       ? "has ended"
           : credits_are_wanted(parts->calls->credits) ? "waits for memory"
           : parts->calls->readahead.is_held           ? "waits for hosts"
                                                       : "reads";
}

bool view_mark(struct job_parts *parts, int64_t now_ns)
{
    const uint64_t marks = sizeof parts->marks / sizeof *parts->marks;

    if (parts->mark_count > 0 &&
        now_ns - parts->marks[(parts->mark_count - 1) % marks].at_ns < MARK_NS) {
        return false;
    }
    parts->marks[parts->mark_count % marks].at_ns = now_ns;
    parts->marks[parts->mark_count++ % marks].rows = rows_settled(parts);
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

static struct disk_hold hold_view(const struct job_parts *parts)
{
    struct disk_hold h = *parts->results->hold;

    if (parts->results->committer->is_started) {
        pthread_mutex_lock(&parts->results->committer->lock);
        h = parts->results->committer->hold;
        pthread_mutex_unlock(&parts->results->committer->lock);
    } else if (parts->calls->state->phase != JOB_ASKING) {
        h.reason[0] = '\0';
    }
    return h;
}

struct mr_batch_view *view_new(const struct job_parts *parts)
{
    static const char *const phases[] = {"asking", "running", "ending"};
    struct whole_view *w = MR_NEW(struct whole_view);
    const int64_t now_ns = mr_now_ns();
    const uint32_t count = mr_balance_views(parts->calls->hosts->balance, now_ns, NULL, 0);

    w->balanced = MR_NEW_ARRAY(struct mr_balance_view, count + 1);
    mr_balance_views(parts->calls->hosts->balance, now_ns, w->balanced, count);
    w->hosts = MR_NEW_ARRAY(struct mr_batch_host_view, parts->calls->hosts->list.len + 1);
    for (size_t i = 0; i < parts->calls->hosts->list.len; i++) {
        host_view(parts->calls->hosts->list.at[i], w->balanced, count, &w->hosts[i]);
    }
    const uint64_t rows =
        atomic_load_explicit(&parts->results->committer->rows, memory_order_relaxed);
    const uint64_t dead =
        atomic_load_explicit(&parts->results->committer->dead, memory_order_relaxed);
    pthread_mutex_lock(&parts->calls->credits->lock);
    const uint64_t taken = parts->calls->credits->taken;
    pthread_mutex_unlock(&parts->calls->credits->lock);
    w->hold = hold_view(parts);
    w->view = (struct mr_batch_view){
        .total_rows = parts->results->total_rows,
        .rows = parts->results->before.rows + rows,
        .dead = parts->results->before.dead + dead,
        .rows_before = parts->results->before.rows + parts->results->before.dead,
        .under_way = parts->calls->read_rows - rows - dead,
        .settled = rows_settled(parts),
        .is_refused = parts->is_refused,
        .memory_bytes = taken,
        .reader = reader_of(parts),
        .files = parts->results->before.parts +
                 atomic_load_explicit(&parts->results->committer->files, memory_order_relaxed) -
                 atomic_load_explicit(&parts->results->committer->merged, memory_order_relaxed),
        .ran_ns = now_ns - parts->calls->state->begin_ns,
        .rows_per_s = rate_of(parts),
        .has_tokens = parts->calls->model->openai != NULL,
        .bottleneck = bottleneck_of(parts),
        .phase = phases[parts->calls->state->phase],
        .is_paused = parts->calls->state->is_paused,
        .held = parts->calls->state->pause_reason[0] ? parts->calls->state->pause_reason
                                                     : w->hold.reason,
        .batch_rows = atomic_load_explicit(&parts->calls->batch_rows, memory_order_relaxed),
        .most_rows = (uint32_t)parts->calls->rows.now,
        .max_in_flight = parts->calls->hosts->max_in_flight,
        .failures = w->failures,
        .failure_count = failures_view(parts, now_ns, w->failures),
        .hosts = w->hosts,
        .host_count = parts->calls->hosts->list.len,
        .dead_causes = w->dead_causes,
        .dead_cause_count = parts->calls->figures.dead_count,
        .dead_others = parts->calls->figures.dead_other,
        .read_ns = atomic_load_explicit(&parts->reader->read_ns, memory_order_relaxed),
        .reader_waited_ns = waits_ns(&parts->reader->waits),
        .write_ns =
            atomic_load_explicit(&parts->results->committer->write_ns, memory_order_relaxed),
        .commit_ns =
            atomic_load_explicit(&parts->results->committer->commit_ns, memory_order_relaxed),
        .writer_waited_ns = waits_ns(&parts->results->committer->waits)};
    for (size_t i = 0; i < parts->calls->figures.dead_count; i++) {
        const struct dead_cause *d = &parts->calls->figures.dead[i];
        w->dead_causes[i] = (struct mr_batch_dead_view){d->kind, d->text, d->count};
    }
    for (size_t i = 0; i < parts->calls->hosts->list.len; i++) {
        w->view.prompt_tokens += parts->calls->hosts->list.at[i]->figures.prompt_tokens;
        w->view.completion_tokens += parts->calls->hosts->list.at[i]->figures.completion_tokens;
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

void view_report(const struct job_parts *parts)
{
    if (parts->on_view) {
        struct mr_batch_view *v = view_new(parts);
        parts->on_view(parts->view_ctx, v);
        view_free(&v);
    }
}
