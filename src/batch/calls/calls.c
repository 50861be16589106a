/* Calls: rows cut into calls, sent to hosts, judged, and sent again.
 *
 * A call is filled with rows of as many extents as it needs; each extent records the outcomes of its own rows. Rows that
 * do not fill a call wait up to TAIL_NS for more, unless none can come: the reader is at the end, or waits for memory.
 *
 * Hosts with room (balance) take work: first rows that failed before, then fresh ones. A reply is one of
 *
 *   an answer to all rows, checked      rows of the result
 *   the host is busy (429, 503)         the same again, elsewhere or later; not counted as a failure
 *   it has another model, or none       the same again, elsewhere; the host gets no more
 *   the request is wrong (4xx), and the host has never taken tensors as bytes
 *                                       the same again, as JSON
 *   the request is wrong (4xx), or the host failed (5xx, no or a wrong answer)
 *                                       by retry_policy.h: sent again, bisected, or a dead letter
 *
 * Rows that failed while others succeeded are sent again at once: they replace fresh rows, so the load of hosts stays
 * within their limits, and waiting rows would hold memory. The retry budget counts only while nothing succeeds.
 *
 * call_rows.h sets the rows of a call; work with more rows is divided when it is sent again.
 *
 * An outage of any length makes no dead letters: as long as nothing succeeds, no failure counts against a row. When no
 * other row is left to succeed, and none comes, a known-good row is sent once more, as a probe of hosts. */
#include "calls.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/pool.h"
#include "batch/common/call.h"
#include "batch/common/credits.h"
#include "batch/common/extent.h"
#include "batch/common/figures.h"
#include "batch/common/work.h"
#include "batch/hosts/discover.h"
#include "batch/hosts/hosts.h"
#include "batch/protocols/openai/openai.h"
#include "batch/protocols/openai/openai_tokens.h"
#include "fresh.h"
#include "growth.h"

#define ANSWER_KEPT     4096 /* bytes of an answer in a dead letter */
#define KNOWN_GOOD_PART 4    /* of the memory a row may take that is kept */

static void work_dies(struct calls *c, struct work *w, const char *kind)
{
    struct extent *e = w->ranges[0].extent;

    const struct dead_row d = {.row = w->ranges[0].first,
                               .kind = kind,
                               .host = w->last_host,
                               .attempts = retry_work_attempts(&w->tried),
                               .answer = w->answer};
    w->answer = (struct raw_answer){0};
    fresh_row_dies(c, e, d, w->cause);
    w->is_settled = true;
    fresh_extent_pass_on(c, e);
}

/* Holds the reader, or lets it go on. */
static void readahead_check(struct calls *c)
{
    const bool was_held = c->readahead.is_held;

    if (readahead_holds(&c->readahead, c->waiting, c->waiting_bytes, c->rows.most) != was_held) {
        credits_hold(c->credits, !was_held);
    }
}

void calls_add(struct calls *c, struct extent *e)
{
    if (c->is_dropped) {
        credits_give(c->credits, e->credit);
        extent_free(&e);
        return;
    }
    MR_VEC_PUSH(&c->open, e);
    c->read_rows += e->rows->count;
    e->is_checked = c->model->dialect->are_good(c->model, e->rows);
    MR_VEC_PUSH(&c->extents, e);
    c->waiting += e->rows->count;
    c->waiting_bytes += e->rows->bytes;
    calls_pump(c);
    readahead_check(c);
}

/* ---- sending ---- */

static void on_answer(void *ctx, const struct transport_reply *reply);

static void call_free(struct call *k)
{
    mr_arena_fini(&k->arena);
    mr_buf_fini(&k->head);
    mr_free(k);
}

/* What requests take of late, for a row. */
static void request_see(const struct call *k)
{
    _Atomic uint64_t *seen = &k->calls->request_bytes;
    const uint64_t before = atomic_load_explicit(seen, memory_order_relaxed);
    /* What stands in `head` is copied once more to be sent. */
    const uint64_t each = (k->made_bytes + 2 * k->head.len) / k->work->count;

    atomic_store_explicit(seen, MR_MAX(each, before - before / 64), memory_order_relaxed);
}

static int call_send(struct calls *c, struct work *w, const struct mr_balance_call *to,
                     struct mr_err *err)
{
    struct call *k = MR_NEW(struct call);

    *k = (struct call){.calls = c,
                       .model = c->model,
                       .work = w,
                       .host = host_of(c->hosts, to->host),
                       .ticket = to->ticket,
                       .index = to->index,
                       .sent_ns = mr_now_ns()};
    mr_arena_init(&k->arena, 4096, SIZE_MAX);
    mr_buf_init(&k->head, 0);
    k->transport = (struct transport_call){.done = on_answer, .ctx = k};
    int rc = c->model->dialect->send(k, to->timeout_ns, err);
    if (rc < 0) {
        mr_balance_done(c->hosts->balance, k->sent_ns, to->ticket, MR_BALANCE_CANCELLED, 0);
        call_free(k);
        return rc;
    }
    request_see(k);
    w->in_flight++;
    retry_policy_sent(&c->policy, &w->tried, !w->is_retry, k->sent_ns);
    c->in_flight_count++;
    c->sent++;
    k->host->calls++;
    k->host->in_flight++;
    figures_sent(k);
    while (c->in_flight.len <= to->index) {
        MR_VEC_PUSH(&c->in_flight, NULL);
    }
    c->in_flight.at[to->index] = k;
    return MR_OK;
}

/* ---- choosing ---- */

/* False: there is no memory for it until calls under way give some back, or the job fails. */
static bool call_try(struct calls *c, struct work *w, const struct mr_balance_call *to)
{
    struct mr_err err;
    const int rc = call_send(c, w, to, &err);

    if (rc < 0 && !(rc == MR_E_EXHAUSTED && c->in_flight_count > 0)) {
        job_fail(c->state, rc, &err);
    }
    return rc == MR_OK;
}

/* For one host alone; when that is away there is nothing to wait for. */
static bool cross_check_send(struct calls *c, struct work *w, int64_t now_ns)
{
    const struct host *h = w->only;
    struct mr_balance_call to;

    if (!h->id || !h->is_listed || h->is_cordoned) {
        c->events.absent(c->events.ctx, w);
        work_drop(&w);
        return true;
    }
    return mr_balance_pick_host(c->hosts->balance, now_ns, h->id, &to) && call_try(c, w, &to);
}

void calls_ask(struct calls *c, struct extent *row, struct host *h, uint32_t trial, uint32_t ballot)
{
    struct work *w = work_new(&(struct row_range){row, 0, 1}, 1);

    w->only = h;
    w->trial = trial;
    w->ballot = ballot;
    w->is_granted = true;
    work_queue_push_front(&c->retries, w);
}

/* It is divided: a trial is then inconclusive. */
static void trial_end(struct calls *c, const struct work *w)
{
    if (w->is_trial) {
        call_rows_untried(&c->rows);
    }
}

/* Keeps its first rows and returns the others. No failure of the whole is one of theirs. */
static struct work *work_divide(struct calls *c, struct work **io_work, uint64_t count)
{
    struct work *w = *io_work;
    struct work *parts[2] = {work_part(w, 0, count), work_part(w, count, w->count - count)};

    for (int i = 0; i < 2; i++) {
        parts[i]->is_granted = true;
        parts[i]->is_retry = w->is_retry;
        retry_work_part(&parts[i]->tried, &w->tried, RETRY_PART_CUT);
    }
    trial_end(c, w);
    work_drop(io_work);
    *io_work = parts[0];
    return parts[1];
}

/* A host for the work. One that has said no to it is asked again when there is no other. */
static bool host_pick(struct calls *c, struct work *w, uint64_t size, uint64_t weight,
                      int64_t now_ns, struct mr_balance_call *out)
{
    uint32_t avoid[RETRY_AVOID];
    uint32_t refusers;
    const uint32_t count = retry_work_avoid(&w->tried, avoid, &refusers);
    struct mr_balance_ask ask = {.rows = (int64_t)size,
                                 .weight = weight,
                                 .avoid = avoid,
                                 .avoid_count = count,
                                 .is_retry = w->is_retry};

    for (;;) {
        if (!mr_balance_pick(c->hosts->balance, now_ns, &ask, out)) {
            return false;
        }
        if (retry_policy_may_ask(&c->policy, &w->tried, &host_of(c->hosts, out->host)->retry,
                                 now_ns)) {
            return true;
        }
        mr_balance_done(c->hosts->balance, now_ns, out->ticket, MR_BALANCE_CANCELLED, 0);
        if (ask.avoid_count == refusers) {
            return false;
        }
        ask.avoid_count = refusers; /* rather one that failed with it */
    }
}

/* What is too large for a call now, or for the host, is divided when that takes its first rows: *out_rest is what is left,
 * NULL: nothing. False: it was not sent. */
static bool work_send(struct calls *c, struct work **io_work, int64_t now_ns,
                      struct work **out_rest)
{
    struct work *w = *io_work;
    struct call_rows *rows = &c->rows;
    const uint64_t most =
        w->count > (w->is_trial ? 2 * rows->now : rows->now) ? rows->now : w->count;

    *out_rest = NULL;
    if (w->only) {
        return cross_check_send(c, w, now_ns);
    }
    uint64_t weight = 0;
    uint64_t size =
        c->model->dialect->size ? c->model->dialect->size(c->model, w, &weight) : w->count;
    if (most < w->count) {
        size = MR_MAX(size * most / w->count, (uint64_t)1);
        weight = weight * most / w->count;
    }
    struct mr_balance_call to;

    if (!host_pick(c, w, size, weight, now_ns, &to)) {
        return false;
    }
    const uint64_t count = retry_host_rows(&host_of(c->hosts, to.host)->retry, most);
    if (count < w->count) {
        *out_rest = work_divide(c, io_work, count);
        w = *io_work;
    }
    if (!call_try(c, w, &to)) {
        return false;
    }
    w->is_granted = false;
    return true;
}

/* What the policy has to know of the hosts as they are now. */
static void policy_refresh(struct calls *c, int64_t now_ns)
{
    struct retry_policy *p = &c->policy;

    p->hosts.len = 0;
    for (size_t i = 0; i < c->hosts->list.len; i++) {
        struct host *h = c->hosts->list.at[i];
        h->retry.id = h->id;
        h->retry.is_usable = h->is_listed && !h->is_quarantined;
        h->retry.is_working = mr_balance_is_working(c->hosts->balance, h->id);
        h->retry.heard_ns = h->heard_ns;
        MR_VEC_PUSH(&p->hosts, &h->retry);
    }
    p->may_get_hosts = discover_is_pending(c->hosts, now_ns);
}

/* What failed before and may go again. */
static void retries_send(struct calls *c, int64_t now_ns, int64_t *io_wake_ns)
{
    struct work *before = NULL;

    if (c->retries.first) {
        policy_refresh(c, now_ns);
    }
    for (struct work *w = c->retries.first; w;) {
        struct work *next = w->next, *rest = NULL;
        int64_t again_ns = w->not_before_ns;
        if (now_ns >= w->not_before_ns && retry_policy_is_dead(&c->policy, &w->tried, w->count)) {
            work_queue_unlink(&c->retries, before, w); /* measured by calls that ended since then */
            work_dies(c, w, "failed");
            work_drop(&w);
            w = next;
            continue;
        }
        if (now_ns >= w->not_before_ns) {
            w->is_granted =
                w->is_granted || mr_balance_may_retry(c->hosts->balance, now_ns, &again_ns);
            if (w->is_granted) {
                work_queue_unlink(&c->retries, before, w);
                const bool is_sent = work_send(c, &w, now_ns, &rest);
                if (rest) {
                    work_queue_link(&c->retries, before, rest, next);
                    next = rest;
                }
                if (is_sent) {
                    w = next;
                    continue;
                }
                work_queue_link(&c->retries, before, w, next);
                again_ns = INT64_MAX;
            }
        }
        *io_wake_ns = MR_MIN(*io_wake_ns, again_ns);
        before = w;
        w = next;
    }
}

/* Nothing is left to start: what takes long is started a second time elsewhere. */
static void tail_hedge(struct calls *c, int64_t now_ns, int64_t *io_wake_ns)
{
    struct mr_balance_call to;
    uint64_t original;
    int64_t again_ns = INT64_MAX;

    while (mr_balance_hedge(c->hosts->balance, now_ns, &original, &to, &again_ns)) {
        struct work *w = NULL;
        for (size_t i = 0; i < c->in_flight.len; i++) {
            if (c->in_flight.at[i] && c->in_flight.at[i]->ticket == original) {
                w = c->in_flight.at[i]->work;
            }
        }
        if (!w || w->is_settled || w->only) {
            mr_balance_done(c->hosts->balance, now_ns, to.ticket, MR_BALANCE_CANCELLED, 0);
            continue;
        }
        if (!call_try(c, w, &to)) {
            break; /* the first one is under way */
        }
        c->hedged++;
    }
    *io_wake_ns = MR_MIN(*io_wake_ns, again_ns);
}

static void on_wake(struct mr_timer *t)
{
    calls_pump(MR_CONTAINER_OF(t, struct calls, wake));
}

/* Answers that are larger than those before take more than was reckoned with: then there is one call at a time until
 * some of them have been written. */
static bool has_room(struct calls *c)
{
    return c->in_flight_count == 0 || !(credits_are_short(c->credits) || mr_block_is_scarce());
}

/* What is under way is waited for, as it is paid for. */
static void spent_check(struct calls *c)
{
    struct mr_err err;

    if (c->in_flight_count == 0 && c->open.len > 0) {
        mr_err_set(&err, MR_E_EXHAUSTED, MR_HERE,
                   "%llu tokens were used, --max-total-tokens is %llu; run again, the job goes on",
                   (unsigned long long)c->model->openai->tokens.used,
                   (unsigned long long)c->o->openai->max_total_tokens);
        job_fail(c->state, MR_E_EXHAUSTED, &err);
    }
}

/* Sends new work, at most so many calls. Returns how many they were. */
static size_t fresh_send(struct calls *c, int64_t now_ns, size_t most, int64_t *io_wake_ns)
{
    size_t sent = 0;

    while (sent < most && !c->is_dropped && has_room(c) && fresh_take(c, now_ns, io_wake_ns)) {
        struct work *rest;
        if (!work_send(c, &c->fresh, now_ns, &rest)) {
            if (rest) {
                work_queue_push_front(&c->retries, rest);
            }
            break;
        }
        c->fresh = rest;
        sent++;
    }
    return sent;
}

void calls_pump(struct calls *c)
{
    const int64_t now_ns = mr_now_ns();
    int64_t wake_ns = INT64_MAX;

    if (c->is_dropped || c->state->is_paused) {
        return;
    }
    if (openai_is_spent(c->model)) {
        spent_check(c);
        return;
    }
    c->events.before_calls(c->events.ctx);
    if (c->retries_yield && fresh_send(c, now_ns, 1, &wake_ns) > 0) {
        c->retries_yield = false;
    }
    retries_send(c, now_ns, &wake_ns);
    fresh_send(c, now_ns, SIZE_MAX, &wake_ns);
    if (c->is_dropped) {
        return;
    }
    readahead_check(c);
    if (c->is_read && !c->fresh && !c->retries.first && c->in_flight_count > 0) {
        tail_hedge(c, now_ns, &wake_ns);
    }
    wake_ns = MR_MIN(wake_ns, mr_balance_next_wake(c->hosts->balance));
    if (wake_ns != INT64_MAX) {
        mr_timer_start(c->state->loop, &c->wake, MR_MAX(wake_ns - now_ns, MR_NS_PER_MS), 0,
                       on_wake);
    }
}

/* ---- judging ---- */

/* What came for a row alone is kept until its next call: it goes with its dead letter. */
static void answer_keep(struct work *w, const struct mr_client_response *r)
{
    mr_free(w->answer.text);
    w->answer = (struct raw_answer){0};
    if (r) {
        const size_t len = MR_MIN(r->body.len, (size_t)ANSWER_KEPT);
        w->answer = (struct raw_answer){r->status, r->body.len,
                                        mr_strndup((const char *)r->body.ptr, len), len};
    }
}

/* The first row that succeeds, and is not too large, may be needed again, for as long as the job runs. Without memory for
 * it there is none. */
static void known_good_keep(struct calls *c, const struct work *w)
{
    const struct extent *e = w->ranges[0].extent;
    const bool fits = e->rows->bytes / e->rows->count <= c->o->memory_bytes / KNOWN_GOOD_PART;
    struct mr_rows *row = fits ? mr_rows_copy(e->rows, w->ranges[0].first, 1) : NULL;

    if (row) {
        atomic_store_explicit(&c->known_good_bytes, row->bytes, memory_order_relaxed);
        c->known_good = MR_NEW(struct extent);
        *c->known_good = (struct extent){.calls = c, .rows = row};
    }
}

static void known_good_ask(struct calls *c)
{
    struct work *w = work_new(&(struct row_range){c->known_good, 0, 1}, 1);

    w->is_probe = w->is_granted = c->is_asking = true;
    work_queue_push_front(&c->retries, w);
}

/* Takes the results of rows from `first` on. */
static void rows_succeed(struct calls *c, struct extent *e, uint64_t first, struct mr_rows *rows,
                         const char *host)
{
    const uint64_t estimate = rows->count * e->per_row;
    const uint64_t each = rows->bytes / rows->count;
    const uint64_t before = atomic_load_explicit(&c->answer_bytes, memory_order_relaxed);

    atomic_store_explicit(&c->answer_bytes, MR_MAX(each, before - before / 64),
                          memory_order_relaxed);
    atomic_fetch_add_explicit(&c->recent_rows, rows->count, memory_order_relaxed);
    credits_move(c->credits, estimate, rows->bytes);
    e->credit = e->credit - estimate + rows->bytes;
    MR_VEC_PUSH(&e->answers, ((struct extent_answer){first, rows, host}));
    e->settled += rows->count;
}

/* Again, for the missing part of the answer. Neither the row nor the host has failed. */
static void row_asks(struct calls *c, const struct work *w, const struct row_fault *f)
{
    struct work *again = work_part(w, f->row, 1);

    again->is_granted = true;
    again->tried.ok_before = w->tried.ok_before;
    again->asks = w->asks + 1;
    again->doublings = f->doublings;
    again->note = f->note ? mr_strndup(f->note, strlen(f->note)) : NULL;
    work_queue_push_front(&c->retries, again);
}

static void row_faults(struct call *k, const struct row_fault *f)
{
    const struct work *w = k->work;
    const struct row_range of = work_range(w, f->row, 1);
    struct dead_row d = {.row = of.first,
                         .kind = f->kind,
                         .host = k->host->transport.address,
                         .attempts = w->tried.failures + w->asks + 1};

    if (f->may_ask) {
        row_asks(k->calls, w, f);
        return;
    }
    d.answer.status = 200;
    d.answer.bytes = f->raw.len;
    d.answer.len = MR_MIN(f->raw.len, (size_t)ANSWER_KEPT);
    d.answer.text = mr_strndup(f->raw.ptr, d.answer.len);
    fresh_row_dies(k->calls, of.extent, d, f->cause);
}

/* The results of rows [at, end) of the call, extent by extent. */
static int range_results(struct call *k, const struct transport_answer *a, uint64_t at,
                         uint64_t end, struct mr_err *err)
{
    while (at < end) {
        const struct row_range of = work_range(k->work, at, end - at);
        struct mr_rows *rows = NULL;
        int rc = k->model->dialect->rows(k, a, at, &of, &rows, err);
        if (rc < 0) {
            return rc;
        }
        k->host->rows += rows->count;
        k->calls->events.answered(k->calls->events.ctx, k, &of, rows);
        rows_succeed(k->calls, of.extent, of.first, rows, k->host->transport.address);
        at += of.count;
    }
    return MR_OK;
}

/* The extents of a work that has settled, each once: it may be gone then. */
static void work_pass_on(struct calls *c, const struct work *w)
{
    for (size_t i = 0; i < w->range_count; i++) {
        struct extent *e = w->ranges[i].extent;
        if (i + 1 == w->range_count || w->ranges[i + 1].extent != e) {
            fresh_extent_pass_on(c, e);
        }
    }
}

/* The rows settle one way or the other; the work goes with its last call. Errors: no memory for the results, and then
 * only some rows have settled. */
static int work_succeeds(struct call *k, const struct transport_answer *a, struct mr_err *err)
{
    struct calls *c = k->calls;
    struct work *w = k->work;
    uint64_t at = 0;

    w->is_settled = true;
    for (size_t i = 0; i <= a->fault_count; i++) {
        const uint64_t end = i < a->fault_count ? a->faults[i].row : w->count;
        int rc = range_results(k, a, at, end, err);
        if (rc < 0) {
            return rc;
        }
        if (i < a->fault_count) {
            row_faults(k, &a->faults[i]);
        }
        at = end + 1;
    }
    if (!c->known_good) {
        known_good_keep(c, w);
    }
    if (w->bisect && ++w->bisect->taken == 2) {
        call_rows_limit(&c->rows, w->bisect->rows);
    }
    work_pass_on(c, w);
    return MR_OK;
}

/* In two, which go next. What failed with the whole may be the fault of either; a refusal of the whole is of neither. */
static void work_split(struct calls *c, struct work *w, const struct retry_decision *d)
{
    struct bisect *bisect = d->is_refused ? MR_NEW(struct bisect) : NULL;
    const uint64_t at = d->split;
    struct work *parts[2] = {work_part(w, 0, at), work_part(w, at, w->count - at)};

    for (int i = 1; i >= 0; i--) {
        parts[i]->is_granted = true;
        parts[i]->bisect = bisect;
        retry_work_part(&parts[i]->tried, &w->tried,
                        d->is_refused ? RETRY_PART_REFUSED : RETRY_PART_FAILED);
        work_queue_push_front(&c->retries, parts[i]);
    }
    if (bisect) {
        *bisect = (struct bisect){.rows = w->count - at, .holders = 2};
    }
    trial_end(c, w);
    w->is_settled = true;
}

/* Nothing else is left that could succeed, and nothing comes. */
static bool is_alone(const struct calls *c)
{
    return c->extents.len == 0 && !c->fresh && !fresh_may_come(c);
}

/* It is sent again when a host may be called, or works again. */
static void work_waits(struct calls *c, struct work *w, uint32_t tries, int64_t now_ns)
{
    if (is_alone(c) && c->known_good && !c->is_asking) {
        known_good_ask(c);
    }
    w->not_before_ns = mr_ns_after(now_ns, mr_balance_backoff_ns(c->hosts->balance, tries));
    work_queue_push(&c->retries, w);
}

/* What the policy found out about hosts. */
static void doubts_report(struct calls *c, const struct work *w, const struct retry_decision *d,
                          const char *cause, int64_t now_ns)
{
    for (size_t i = 0; i < d->refuted_count; i++) {
        struct host *h = MR_CONTAINER_OF(d->refuted[i], struct host, retry);
        if (d->is_first[i]) {
            mr_log(
                MR_LOG_WARN, "batch.host_refuses",
                "host=%s reason=%s; another host answered the same row, so it is no dead letter, "
                "and the host gets less work",
                MR_LOG_STR(mr_str_c(h->transport.address)), MR_LOG_STR(mr_str_c(w->cause)));
        }
        mr_balance_refuted(c->hosts->balance, now_ns, h->id,
                           d->refuses_all
                               ? MR_STR("it refuses all, and no other host works that would agree")
                               : MR_STR("refuses what others answer"));
        if (d->refuses_all) {
            host_lasts(h, cause);
        }
    }
}

static void work_goes_on(struct calls *c, struct work *w, const struct retry_decision *d,
                         int64_t now_ns)
{
    w->is_granted = d->is_granted;
    switch (d->action) {
    case RETRY_NONE:
    case RETRY_DONE: break;
    case RETRY_FIRST: work_queue_push_front(&c->retries, w); break;
    case RETRY_LAST:
        work_queue_push(&c->retries, w);
        c->retries_yield = true;
        break;
    case RETRY_LATER: work_waits(c, w, d->tries, now_ns); break;
    case RETRY_SPLIT: work_split(c, w, d); break;
    case RETRY_DEAD: work_dies(c, w, d->is_refused ? "rejected" : "failed"); break;
    }
}

/* It may be that calls are too large. */
static void rows_fail(struct calls *c, uint64_t rows)
{
    if (call_rows_failed(&c->rows, rows, !mr_balance_is_ready(c->hosts->balance))) {
        mr_log(MR_LOG_INFO, "batch.small_calls",
               "rows=1; no host works, so calls begin with one row and grow as they succeed");
    }
}

/* Reports to the policy and carries out its decisions about hosts. */
static struct retry_decision call_decide(struct call *k, const struct transport_answer *v,
                                         int64_t now_ns)
{
    struct calls *c = k->calls;
    struct work *w = k->work;
    const struct retry_event e = {.outcome = v->outcome,
                                  .host = &k->host->retry,
                                  .rows = w->count,
                                  .sent_ns = k->sent_ns,
                                  .now_ns = now_ns,
                                  .is_settled = w->is_settled,
                                  .has_copy = w->in_flight > 0,
                                  .is_answered = w->is_answered,
                                  .is_for_good = v->is_for_good,
                                  .is_for_form = v->is_for_form};

    if (v->outcome == MR_BALANCE_OK) {
        c->state->has_answers = true;
    } else {
        policy_refresh(c, now_ns);
    }
    const struct retry_decision d = retry_policy_ended(&c->policy, &w->tried, &e);
    doubts_report(c, w, &d, v->cause, now_ns);
    return d;
}

static void call_fails(struct call *k, const struct transport_answer *v, int64_t now_ns)
{
    struct calls *c = k->calls;
    struct work *w = k->work;

    k->host->failures += v->outcome != MR_BALANCE_THROTTLED;
    figures_failed(&c->figures, k->host, v->cause, now_ns);
    if (v->outcome == MR_BALANCE_FAILED || v->outcome == MR_BALANCE_TIMED_OUT) {
        rows_fail(c, w->count);
        w->is_trial = false;
    }
    const struct retry_decision d = call_decide(k, v, now_ns);
    if (d.action != RETRY_NONE) {
        snprintf(w->cause, sizeof w->cause, "%s", v->cause);
        w->last_host = k->host->transport.address;
        work_goes_on(c, w, &d, now_ns);
    }
}

static void call_ends(struct call *k, const struct transport_answer *v)
{
    struct calls *c = k->calls;
    struct work *w = k->work;
    const int64_t now_ns = mr_now_ns();
    struct mr_err err;

    if (w->only) {
        if (!w->is_settled) {
            c->events.asked(c->events.ctx, k, v);
        }
        w->is_settled = true;
    } else if (w->is_probe) {
        if (v->outcome == MR_BALANCE_OK) {
            call_decide(k, v, now_ns);
        }
        c->is_asking = w->in_flight > 0;
        w->is_settled = true;
    } else if (v->outcome == MR_BALANCE_OK) {
        call_rows_ok(&c->rows, w->count);
        const struct retry_decision d = call_decide(k, v, now_ns);
        int rc = d.action == RETRY_DONE ? work_succeeds(k, v, &err) : MR_OK;
        if (rc < 0) {
            job_fail(c->state, rc, &err);
        }
    } else if (v->outcome != MR_BALANCE_CANCELLED || !w->is_settled) {
        call_fails(k, v, now_ns); /* unless the other copy was first, and this one was cancelled */
    }
}

/* A row that fails alone is about to become a dead letter, perhaps: what the host said goes into it. */
static void keep_for_dead_letter(struct calls *c, struct work *w,
                                 const struct transport_reply *reply)
{
    answer_keep(w, reply->rc < 0 ? NULL : reply->response);
    if (c->model->openai && w->answer.text) {
        openai_hide(c->model->openai, w->answer.text, w->answer.len);
    }
}

/* The other copies of rows that are settled: their hosts need not go on. */
static void losers_cancel(struct calls *c, const struct work *w)
{
    uint32_t left = w->in_flight;

    for (size_t i = 0; left > 0 && i < c->in_flight.len; i++) {
        const struct call *k = c->in_flight.at[i];
        if (k && k->work == w) {
            transport_cancel(&k->transport);
            left--;
        }
    }
}

/* An answer that a host has made itself. */
static bool host_is_heard(enum mr_balance_outcome outcome)
{
    return outcome == MR_BALANCE_OK || outcome == MR_BALANCE_REJECTED ||
           outcome == MR_BALANCE_THROTTLED;
}

static void on_answer(void *ctx, const struct transport_reply *reply)
{
    struct call *k = ctx;
    struct calls *c = k->calls;
    struct work *w = k->work;
    struct transport_answer v;
    const int64_t now_ns = mr_now_ns();

    c->in_flight.at[k->index] = NULL;
    w->in_flight--;
    k->host->in_flight--;
    c->in_flight_count--;
    if (c->is_dropped) {
        if (w->in_flight == 0) {
            work_drop(&w);
        }
        call_free(k);
        return;
    }
    if (reply->rc == MR_E_CANCELLED && w->is_settled) {
        v = (struct transport_answer){.outcome = MR_BALANCE_CANCELLED};
    } else {
        c->model->dialect->judge(k, reply, &v);
    }
    if (reply->rc == MR_E_EXHAUSTED && c->in_flight_count > 0) {
        v.outcome = MR_BALANCE_THROTTLED; /* no memory for it, while others have some */
    }
    if (host_is_heard(v.outcome)) {
        k->host->heard_ns = now_ns;
    }
    w->is_answered = reply->response || reply->infer;
    if (v.outcome != MR_BALANCE_OK && w->count == 1 && !w->is_settled) {
        keep_for_dead_letter(c, w, reply);
    }
    const enum mr_balance_outcome outcome = w->is_settled ? MR_BALANCE_CANCELLED : v.outcome;
    figures_answered(k, outcome, now_ns);
    if (outcome == MR_BALANCE_OK) {
        /* A host may have been given fewer than it was chosen for. */
        mr_balance_done_sized(c->hosts->balance, now_ns, k->ticket,
                              (int64_t)(v.size > 0 ? v.size : w->count));
    } else {
        mr_balance_done(c->hosts->balance, now_ns, k->ticket, outcome, v.retry_after_ns);
    }
    if (v.is_for_good) {
        host_lasts(k->host, v.cause);
        if (k->host->id) {
            host_cordon(k->host, v.cause, now_ns);
        }
    }
    call_ends(k, &v);
    if (w->is_settled && w->in_flight == 0) {
        work_drop(&w);
    } else if (w->is_settled) {
        losers_cancel(c, w);
    }
    call_free(k);
    growth_tick(c, now_ns);
    job_advance(c->state);
    calls_pump(c);
}

void calls_tick(struct calls *c)
{
    _Atomic uint64_t *recent = &c->recent_rows; /* one writer */

    atomic_store_explicit(recent, atomic_load_explicit(recent, memory_order_relaxed) / 2,
                          memory_order_relaxed);
}

void calls_drop(struct calls *c)
{
    c->is_dropped = true;
    mr_timer_stop(&c->wake);
    while (c->retries.first) {
        struct work *w = c->retries.first;
        c->retries.first = w->next;
        work_drop(&w);
    }
    c->retries.last = NULL;
    work_drop(&c->fresh);
}

void calls_fini(struct calls *c)
{
    for (size_t i = 0; i < c->open.len; i++) {
        extent_free(&c->open.at[i]);
    }
    MR_VEC_FINI(&c->open);
    MR_VEC_FINI(&c->extents);
    MR_VEC_FINI(&c->policy.hosts);
    if (c->known_good) {
        extent_free(&c->known_good);
    }
    MR_VEC_FINI(&c->in_flight);
}
