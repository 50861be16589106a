/* Instance threads: take requests from the queue, form a batch, run it, return the answers.
 *
 * A thread starts when a request finds none idle, up to the instance group's count, and ends after ten idle seconds,
 * so a server with thousands of models has threads for the busy ones only. The loader starts the first thread of an
 * update. If the system refuses a thread, the running ones do its work; if none runs, the request is refused.
 *
 * Forming a batch. A batch closes when it is full, at a preferred size, at the end of the delay, or when the next
 * request cannot join. The delay is an upper bound: it is spent only while more rows are likely. `expected_rows` is
 * the number of rows that were lately in flight at once (queued or running). A batch that has that many runs at
 * once, and a wait without an arrival lowers the number. It starts at the maximum, so a fresh model waits as
 * configured, and is reset after a quiet second, until three waits in a row were empty. */
#include <stdio.h>

#include "base/log.h"
#include "base/thread.h"
#include "sequences.h"

static bool same_shape(const struct mr_tensor *a, const struct mr_tensor *b)
{
    if (a->dtype != b->dtype) {
        return false;
    }
    if (a->dtype == MR_DTYPE_INVALID) {
        return true;
    }
    if (a->rank != b->rank) {
        return false;
    }
    for (int i = 1; i < a->rank; i++) {
        if (a->shape[i] != b->shape[i]) {
            return false;
        }
    }
    return true;
}

static bool runs_alone(const struct mr_sched *s, const struct mr_infer *r)
{
    return r->is_lone ||
           (s->version->executor->lone_parameters && (r->parameter_count > 0 || r->sequence));
}

bool instance_can_join(const struct mr_sched *s, const struct mr_infer *first,
                       const struct mr_infer *r)
{
    if (runs_alone(s, first) || runs_alone(s, r)) {
        return false;
    }
    if (s->version->backend_flags & MR_BACKEND_PER_REQUEST) {
        return true;
    }
    for (uint32_t i = 0; i < s->version->input_count; i++) {
        if (!same_shape(&first->inputs[i], &r->inputs[i])) {
            return false;
        }
    }
    return true;
}

static bool is_preferred(const struct mr_sched *s, int64_t rows)
{
    for (size_t i = 0; i < s->preferred_count; i++) {
        if (s->preferred[i] == rows) {
            return true;
        }
    }
    return false;
}

/* Further results of the walk over the queue. */
struct walk {
    struct batch_plan preferred; /* the last preferred size passed; count 0: none was */
    int64_t oldest_ns;           /* with priorities the first in line need not be the oldest */
    int64_t wait_limit_ns;       /* the earliest, INT64_MAX = none */
};

int64_t instance_rows_max(const struct mr_sched *s)
{
    const int64_t most = s->version->max_batch_size;
    const int64_t now = atomic_load_explicit(&s->version->executor->rows_max, memory_order_relaxed);

    return now > 0 ? MR_MIN(now, most) : most;
}

int64_t instance_wait_limit(const struct mr_sched *s, const struct mr_infer *r)
{
    if (r->start_by_ns == 0) {
        return INT64_MAX;
    }
    return r->start_by_ns < r->deadline_ns ? r->start_by_ns - s->max_delay_ns : 0;
}

/* Walks the queue from the front while requests fit together. One that is larger than what a batch may have now goes
 * alone. */
static void collect(struct mr_sched *s, struct batch_plan *plan, struct walk *walk)
{
    struct mr_infer *first = queue_front(s);
    const int64_t max = instance_rows_max(s);

    for (struct mr_infer *r = first; r; r = queue_after(s, r)) {
        if (r != first && !instance_can_join(s, first, r)) {
            plan->reason = MR_CLOSE_SHAPE;
            plan->is_ready = true;
            return;
        }
        if (plan->count > 0 && plan->rows + r->rows > max) {
            plan->reason = MR_CLOSE_FULL;
            plan->is_ready = true;
            return;
        }
        plan->count++;
        plan->rows += r->rows;
        walk->oldest_ns = MR_MIN(walk->oldest_ns, r->times.queued);
        walk->wait_limit_ns = MR_MIN(walk->wait_limit_ns, instance_wait_limit(s, r));
        if (is_preferred(s, plan->rows)) {
            walk->preferred = *plan;
        }
        if (plan->rows >= max) {
            plan->reason = MR_CLOSE_FULL;
            plan->is_ready = true;
            return;
        }
    }
}

/* How long after the last arrival a batch still waits for more rows: a few mean gaps. */
static int64_t patience_ns(const struct mr_sched *s)
{
    return MR_MAX(s->gap_ns * 4, 20 * MR_NS_PER_US);
}

/* Waiting would only move away from the largest preferred size. */
static bool is_past_preferred(const struct mr_sched *s, int64_t rows)
{
    return s->preferred_count > 0 && rows >= s->preferred[s->preferred_count - 1];
}

static void decide_wait(struct mr_sched *s, int64_t now_ns, const struct walk *walk,
                        struct batch_plan *plan)
{
    int64_t limit = mr_ns_after(walk->oldest_ns, s->max_delay_ns);
    int64_t running = s->inflight_rows - s->queued_rows;

    plan->is_ready = true;
    if (now_ns >= limit) {
        plan->reason = s->max_delay_ns > 0 ? MR_CLOSE_DELAY : MR_CLOSE_NO_COMPANY;
    } else if (is_past_preferred(s, plan->rows)) {
        plan->reason = MR_CLOSE_PREFERRED;
    } else if (s->options.has_exact_delay) {
        plan->is_ready = false;
        plan->wait_until_ns = limit;
    } else if ((double)(plan->rows + running) >= s->expected_rows - 0.5) {
        plan->reason = MR_CLOSE_NO_COMPANY;
    } else if (now_ns >= walk->wait_limit_ns) {
        plan->reason = MR_CLOSE_DEADLINE;
    } else if (s->gap_ns > 0 && now_ns - s->last_arrival_ns > patience_ns(s)) {
        plan->reason = MR_CLOSE_NO_COMPANY;
    } else {
        plan->is_ready = false;
        plan->wait_until_ns = MR_MIN(limit, walk->wait_limit_ns);
        if (s->gap_ns > 0) {
            plan->wait_until_ns =
                MR_MIN(plan->wait_until_ns, s->last_arrival_ns + patience_ns(s) + 1);
        }
    }
}

static bool is_exactly_full(const struct mr_sched *s, const struct batch_plan *plan)
{
    return plan->rows == s->version->max_batch_size && is_preferred(s, plan->rows);
}

void instance_form_batch(struct mr_sched *s, int64_t now_ns, struct batch_plan *plan)
{
    struct walk walk = {.oldest_ns = INT64_MAX, .wait_limit_ns = INT64_MAX};
    const struct mr_infer *r = queue_front(s);

    memset(plan, 0, sizeof *plan);
    if (!s->is_batching || (r && runs_alone(s, r))) {
        *plan = (struct batch_plan){.count = r ? 1 : 0,
                                    .rows = r ? r->rows : 0,
                                    .reason = MR_CLOSE_SINGLE,
                                    .is_ready = r != NULL,
                                    .wait_until_ns = INT64_MAX};
        return;
    }
    if (!r) {
        return;
    }
    collect(s, plan, &walk);
    if (!plan->is_ready) {
        decide_wait(s, now_ns, &walk, plan);
    }
    /* A preferred size runs at once and leaves the rest for the next batch, unless a request's time is over. */
    if (walk.preferred.count > 0 && plan->reason != MR_CLOSE_DELAY &&
        plan->reason != MR_CLOSE_DEADLINE && !is_exactly_full(s, plan)) {
        plan->count = walk.preferred.count;
        plan->rows = walk.preferred.rows;
        plan->reason = MR_CLOSE_PREFERRED;
        plan->is_ready = true;
    }
}

/* By the rows in flight when a batch closes: rises at once, falls by a sixteenth of the difference a batch, and to the
 * rows in flight after an empty wait. */
static void learn_expected_rows(struct mr_sched *s, const struct batch_plan *plan,
                                int64_t rows_before_wait)
{
    double around = (double)s->inflight_rows;

    if (rows_before_wait > 0) {
        s->empty_waits = plan->rows > rows_before_wait ? 0 : s->empty_waits + 1;
    }
    if (around >= s->expected_rows) {
        s->expected_rows = around;
    } else if (rows_before_wait > 0 && plan->rows == rows_before_wait) {
        s->expected_rows = around;
    } else {
        s->expected_rows -= (s->expected_rows - around) / 16;
    }
}

static void take(struct mr_sched *s, uint32_t count, struct mr_infer **items)
{
    for (uint32_t i = 0; i < count; i++) {
        items[i] = queue_front(s);
        queue_remove(s, items[i]);
        items[i]->dispatch = s->next_dispatch++;
    }
}

/* The number of queued rows at which a batch that now has `rows` may run early. */
static int64_t rows_to_wake_at(const struct mr_sched *s, int64_t rows)
{
    int64_t expected = s->options.has_exact_delay
                           ? INT64_MAX
                           : (int64_t)s->expected_rows - (s->inflight_rows - s->queued_rows);
    int64_t at = MR_MIN(instance_rows_max(s), MR_MAX(expected, rows + 1));

    for (size_t i = 0; i < s->preferred_count; i++) {
        if (s->preferred[i] > rows) {
            return MR_MIN(at, (int64_t)s->preferred[i]);
        }
    }
    return at;
}

void instance_wait(struct mr_sched *s, pthread_cond_t *cond, int64_t until_ns)
{
    struct timespec ts = {.tv_sec = until_ns / MR_NS_PER_S, .tv_nsec = until_ns % MR_NS_PER_S};

    pthread_cond_timedwait(cond, &s->mutex, &ts);
}

bool instance_is_held(struct mr_sched *s)
{
    if (!s->is_released && s->queued >= s->options.hold_until_queued) {
        s->is_released = true;
    }
    return !s->is_released && !s->is_stopping;
}

void sched_deliver_all(struct mr_infer *r)
{
    while (r) {
        struct mr_infer *next = r->next;
        sched_deliver(r);
        r = next;
    }
}

/* Posts those that have a thread to go to. Returns the others. Mutex held. */
static struct mr_infer *post_list(struct mr_infer *r)
{
    struct mr_infer *others = NULL, **tail = &others;

    while (r) {
        struct mr_infer *next = r->next;
        if (r->reply_loop->post) {
            sched_deliver(r);
        } else {
            *tail = r;
            tail = &r->next;
        }
        r = next;
    }
    *tail = NULL;
    return others;
}

int instance_start(struct sched_instance *in, struct mr_err *err)
{
    struct mr_sched *s = in->sched;
    char name[16];

    if (in->is_started) {
        pthread_join(in->thread, NULL); /* it has left its loop */
    }
    in->is_started = false;
    snprintf(name, sizeof name, "run:%.11s", s->version->model_name.ptr);
    int rc = mr_thread_start(&in->thread, name, instance_main, in, err);
    in->is_started = in->is_running = rc == MR_OK;
    return rc;
}

int instance_wake(struct mr_sched *s, struct mr_err *err)
{
    struct sched_instance *resting = NULL;
    bool is_any_running = false;

    if (s->idle_threads > 0) {
        pthread_cond_signal(&s->work);
        return MR_OK;
    }
    for (uint32_t i = 0; i < s->instance_count; i++) {
        if (s->instances[i].is_running) {
            is_any_running = true;
        } else if (!resting) {
            resting = &s->instances[i];
        }
    }
    int rc = resting ? instance_start(resting, err) : MR_OK;
    if (rc < 0) {
        mr_log(MR_LOG_ERROR, "sched.thread", "model=%s %s", MR_LOG_STR(s->version->model_name),
               err->msg);
    }
    return is_any_running ? MR_OK : rc;
}

void instance_start_early(struct mr_sched *s)
{
    struct mr_err err;

    pthread_mutex_lock(&s->mutex);
    if (s->instance_count > 0) {
        instance_start(&s->instances[0], &err); /* if not, the first request tries again */
    }
    pthread_mutex_unlock(&s->mutex);
}

/* Waits for a batch and takes it. 0 items: the thread should end, or run what is in `again`. Called with the mutex held,
 * which it releases while it waits and while it returns expired requests. */
static uint32_t next_batch(struct sched_instance *in, struct mr_infer **items,
                           struct batch_plan *plan)
{
    struct mr_sched *s = in->sched;
    int64_t idle_until = mr_now_ns() + INSTANCE_IDLE_NS, rows_before_wait = 0;
    struct mr_infer *rejects;
    struct mr_err err;

    for (;;) {
        int64_t now = mr_now_ns();
        if ((rejects = queue_reject(s, now))) {
            pthread_mutex_unlock(&s->mutex);
            sched_deliver_all(rejects);
            pthread_mutex_lock(&s->mutex);
            continue;
        }
        if (s->queued == 0 && s->is_stopping) {
            return 0;
        }
        if (in->executions > 0) {
            idle_until = now + INSTANCE_IDLE_NS; /* parts of it may be run again, by this thread */
        }
        if (in->executions >= s->max_pending) {
            pthread_cond_wait(&s->freed, &s->mutex);
            idle_until = mr_now_ns() + INSTANCE_IDLE_NS;
            continue;
        }
        if (in->again) {
            return 0;
        }
        if ((s->queued == 0 || s->is_forming) && now >= idle_until) {
            return 0; /* the thread that forms the batch wakes others for the rest */
        }
        if (s->queued > 0 && !instance_is_held(s) && !s->is_forming) {
            instance_form_batch(s, now, plan);
            if (plan->is_ready) {
                break;
            }
            /* One thread waits for the batch to fill; the others leave the queue to it. */
            if (rows_before_wait == 0) {
                rows_before_wait = plan->rows;
            }
            s->is_forming = true;
            s->forming_until_ns = plan->wait_until_ns;
            s->wake_at_rows = rows_to_wake_at(s, plan->rows);
            instance_wait(s, &s->filled, plan->wait_until_ns);
            s->is_forming = false;
            continue;
        }
        s->idle_threads++;
        instance_wait(s, &s->work, MR_MAX(idle_until, now + MR_NS_PER_MS));
        s->idle_threads--;
    }
    if (s->is_batching) {
        learn_expected_rows(s, plan, rows_before_wait);
    }
    take(s, plan->count, items);
    /* Several requests may have come while one idle thread was on its way: other threads take the rest. */
    if (s->queued > 0) {
        instance_wake(s, &err);
    }
    return plan->count;
}

/* With preserve_ordering, answers leave in the order of arrival. Mutex held. */
static struct mr_infer *in_order(struct mr_sched *s, struct mr_infer **items, uint32_t count)
{
    struct mr_infer *ready = NULL, **tail = &ready;

    for (uint32_t i = 0; i < count; i++) {
        struct mr_infer **at = &s->undelivered;
        while (*at && (*at)->dispatch < items[i]->dispatch) {
            at = &(*at)->next;
        }
        items[i]->next = *at;
        *at = items[i];
    }
    while (s->undelivered && s->undelivered->dispatch == s->next_delivery) {
        *tail = s->undelivered;
        s->undelivered = s->undelivered->next;
        tail = &(*tail)->next;
        s->next_delivery++;
    }
    *tail = NULL;
    return ready;
}

/* An execution counts if it answered any request, as in Triton. */
static void account(struct mr_sched *s, const struct exec_run *run, const struct batch_plan *plan)
{
    const struct mr_infer_times *t = &run->items[0]->times;

    for (uint32_t i = 0; i < run->count; i++) {
        s->inflight_rows -= rows_of(run->items[i]);
    }
    if (run->has_success) {
        stats_count_execution(s->shared, run->items[0], plan->rows, plan->reason, false);
        cost_add_queued(s, run->input_bytes, t->end - t->start);
        s->run_ns += (t->infer_end - t->infer_start - s->run_ns) / 8;
    }
}

/* One execution of an instance, with its memory; reused afterwards. */
struct exec_batch {
    struct exec_run run;
    struct sched_instance *in;
    struct exec_batch *next;
    struct mr_arena arena;
    struct batch_plan plan;
    struct mr_infer *items[];
};

static struct exec_batch *batch_new(struct sched_instance *in)
{
    size_t max = (size_t)MR_MAX(1, in->sched->version->max_batch_size);
    struct exec_batch *b = in->idle;

    if (b) {
        in->idle = b->next;
        return b;
    }
    b = mr_alloc(sizeof *b + max * sizeof(struct mr_infer *));
    b->in = in;
    mr_arena_init(&b->arena, 4096, 16u << 20);
    return b;
}

static void batch_keep(struct exec_batch *b)
{
    b->next = b->in->idle;
    b->in->idle = b;
}

void instance_fini(struct sched_instance *in)
{
    struct exec_batch *b;

    while ((b = in->idle) != NULL) {
        in->idle = b->next;
        mr_arena_fini(&b->arena);
        mr_free(b);
    }
}

static struct mr_infer *chain(struct mr_infer **items, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        items[i]->next = i + 1 < count ? items[i + 1] : NULL;
    }
    return items[0];
}

static void ahead_count(const struct sched_instance *in)
{
    struct mr_sched *s = in->sched;

    if (s->is_direct) {
        const uint32_t open = s->instance_count * s->max_pending;
        s->ahead = in->executions > open ? in->executions - open : 0;
        queue_publish(s);
    }
}

/* Counts it, releases its memory, then posts its answers: the receiver of the last one may close the scheduler. */
static void batch_end(struct exec_batch *b, bool was_pending)
{
    struct sched_instance *in = b->in;
    struct mr_sched *s = in->sched;
    struct mr_infer **items = b->run.items, *over = NULL, *lost = NULL;
    const uint32_t count = b->run.count;

    mr_arena_reset(&b->arena);
    pthread_mutex_lock(&s->mutex);
    account(s, &b->run, &b->plan);
    if (s->sequences) {
        lost = sequences_done(in, items, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        items[i]->run = NULL;
    }
    if (in->executions-- >= s->max_pending) {
        pthread_cond_broadcast(&s->freed);
    }
    ahead_count(in);
    /* To keep the order, no other thread may post in between: under the mutex. The next requests of a sequence
     * run on the instance's thread, which is another one if this execution was pending. */
    over = s->preserve_order ? in_order(s, items, count) : chain(items, count);
    if (s->preserve_order || (s->sequences && was_pending)) {
        over = post_list(over);
    }
    batch_keep(b);
    pthread_mutex_unlock(&s->mutex);
    sched_deliver_all(over);
    sched_deliver_all(lost);
}

static void batch_done(struct exec_run *run);
static void batch_over(struct exec_batch *b, bool was_pending);

/* Runs requests of a batch again. Mutex held. */
static void batch_again(struct exec_batch *b, uint32_t first, uint32_t count)
{
    const int64_t start = b->run.start;
    const bool is_suspect = b->run.is_suspect;

    memmove(b->items, b->items + first, count * sizeof *b->items);
    b->plan.count = count;
    b->plan.rows = 0;
    for (uint32_t i = 0; i < count; i++) {
        b->plan.rows += b->items[i]->rows;
    }
    b->run = (struct exec_run){.s = b->in->sched,
                               .items = b->items,
                               .count = count,
                               .rows = b->plan.rows,
                               .arena = count == 1 ? b->items[0]->arena : &b->arena,
                               .start = start,
                               .done = batch_done,
                               .is_suspect = is_suspect};
    for (uint32_t i = 0; i < count; i++) {
        b->items[i]->run = &b->run;
    }
}

/* The thread of the instance runs the halves, before what is queued and one after the other: the execution may have ended
 * on another thread, and the instance has one call at a time and max_pending executions. Mutex held. */
static void halves_keep(struct exec_batch *b, struct exec_batch *other)
{
    struct sched_instance *in = b->in;
    struct mr_sched *s = in->sched;

    other->next = in->again;
    b->next = other;
    in->again = b;
    in->executions--;
    /* wherever it waits */
    pthread_cond_broadcast(&s->freed);
    pthread_cond_broadcast(&s->filled);
    pthread_cond_broadcast(&s->work);
}

/* A process died with the batch, and so did the next one, or the outputs of its requests do not fit together: each half
 * runs separately, until the request that kills the process, or is unlike the others, is alone. */
static void batch_split(struct exec_batch *b)
{
    struct sched_instance *in = b->in;
    struct mr_sched *s = in->sched;
    const uint32_t count = b->run.count, half = count / 2;
    struct exec_batch *other;

    mr_arena_reset(&b->arena);
    pthread_mutex_lock(&s->mutex);
    other = batch_new(in);
    other->plan = b->plan;
    other->run.start = b->run.start;
    b->run.is_suspect |= (b->run.torn & MR_ERR_LOST) != 0;
    other->run.is_suspect = b->run.is_suspect;
    memcpy(other->items, b->items, count * sizeof *b->items);
    batch_again(b, 0, half);
    batch_again(other, half, count - half);
    if (!s->is_direct) {
        halves_keep(b, other);
        pthread_mutex_unlock(&s->mutex);
        return;
    }
    in->executions++;
    pthread_mutex_unlock(&s->mutex);
    if (exec_run(&b->run, in->instance)) {
        batch_over(b, false);
    }
    if (exec_run(&other->run, in->instance)) {
        batch_over(other, false);
    }
}

/* An execution has ended, while exec_run was called or later. */
static void batch_over(struct exec_batch *b, bool was_pending)
{
    if (b->run.torn && b->run.count > 1 && !b->in->sched->sequences) {
        batch_split(b);
    } else {
        batch_end(b, was_pending);
    }
}

static void batch_done(struct exec_run *run)
{
    struct mr_sched *s = run->s;
    instance_ending_begin(s);
    batch_over(MR_CONTAINER_OF(run, struct exec_batch, run), true);
    if (s->is_direct) {
        pthread_mutex_lock(&s->mutex);
        instance_run_direct(s);
        pthread_mutex_unlock(&s->mutex);
    }
    instance_ending_end(s);
}

void instance_ending_begin(struct mr_sched *s)
{
    atomic_fetch_add_explicit(&s->endings, 1, memory_order_relaxed);
}

void instance_ending_end(struct mr_sched *s)
{
    /* release: what was done with the scheduler comes before its end (acquire in mr_sched_close) */
    atomic_fetch_sub_explicit(&s->endings, 1, memory_order_release);
}

/* Mutex held. */
static void batch_begin(struct exec_batch *b, uint32_t count)
{
    struct mr_sched *s = b->in->sched;

    b->run = (struct exec_run){.s = s,
                               .items = b->items,
                               .count = count,
                               .rows = b->plan.rows,
                               .arena = count == 1 ? b->items[0]->arena : &b->arena,
                               .done = batch_done,
                               .life = b->in->life};
    for (uint32_t i = 0; i < count; i++) {
        b->items[i]->run = &b->run;
    }
    b->in->executions++;
    ahead_count(b->in);
}

/* ---- executions that are handed over ----
 *
 * The thread that submits a request, or ends an execution, hands over the executions that are ready. A thread of the
 * model only waits for batches to fill and makes long copies. */

/* Inputs are copied by the thread that hands the execution over; copies of more than this by a thread of the model,
 * so that no network thread is held up. */
#define DIRECT_BYTES ((uint64_t)256 << 10)
/* Short executions are handed over before an instance is free, so that the next one is there when one ends: as many as
 * take about AHEAD_NS, at least one and at most AHEAD_MAX for each instance, and no more than HANDED_MAX with those that
 * run, for which executors have room. Their place in the line is fixed from then
 * on, so that none is handed over early whose wait would be noticed. A batch is formed when an instance is free, as more
 * may join it until then. */
#define AHEAD_NS      (50 * MR_NS_PER_US)
#define AHEAD_LAST_NS MR_NS_PER_MS
#define AHEAD_MAX     15
#define HANDED_MAX    128u

static uint32_t direct_max(const struct mr_sched *s)
{
    const uint32_t open = s->instance_count * s->max_pending;

    if (s->is_batching || s->run_ns <= 0 || s->run_ns > AHEAD_LAST_NS || s->max_pending > 1) {
        return open;
    }
    const int64_t ahead = MR_MAX(1, MR_MIN(AHEAD_NS / s->run_ns, AHEAD_MAX));

    return MR_MAX(open, MR_MIN(open * (uint32_t)(1 + ahead), HANDED_MAX));
}

/* Of a request that runs by itself: without what lies where the executor reads it. */
static uint64_t copied_bytes(const struct mr_infer *r)
{
    const struct mr_executor *e = r->version->executor;
    uint64_t bytes = r->input_bytes;

    for (uint32_t i = 0; bytes > DIRECT_BYTES && i < r->version->input_count; i++) {
        const struct mr_tensor *t = &r->inputs[i];
        if (t->dtype != MR_DTYPE_INVALID && e->ops->has_place && e->ops->has_place(e, t)) {
            bytes -= MR_MIN(bytes, t->bytes);
        }
    }
    return bytes;
}

static bool is_long_copy(const struct mr_sched *s, uint32_t count)
{
    const struct mr_infer *r = queue_front(s);
    uint64_t bytes = count == 1 ? copied_bytes(r) : 0;

    for (uint32_t i = 0; count > 1 && i < count; i++, r = queue_after(s, r)) {
        bytes += r->input_bytes; /* joined */
    }
    return bytes > DIRECT_BYTES;
}

/* A thread of the model has to see to what waits: to its time, or its length. False: there is none, and none can be
 * started. Mutex held. */
static bool direct_leave(struct mr_sched *s, const struct batch_plan *plan)
{
    struct mr_err err;

    if (!s->is_forming) {
        return instance_wake(s, &err) == MR_OK;
    }
    if (plan->is_ready || plan->wait_until_ns < s->forming_until_ns) {
        pthread_cond_signal(&s->filled);
    } else {
        s->wake_at_rows = rows_to_wake_at(s, plan->rows);
    }
    return true;
}

static void direct_begin(struct mr_sched *s, const struct batch_plan *plan, int64_t now_ns)
{
    struct sched_instance *in = &s->instances[0];
    struct exec_batch *b = batch_new(in);

    if (s->is_batching) {
        learn_expected_rows(s, plan, s->rows_before_wait);
        s->rows_before_wait = 0;
    }
    b->plan = *plan;
    take(s, plan->count, b->items);
    batch_begin(b, plan->count);
    pthread_mutex_unlock(&s->mutex);
    b->run.start = now_ns;
    if (exec_run(&b->run, in->instance)) {
        batch_over(b, false);
    }
    pthread_mutex_lock(&s->mutex);
}

/* Hands over what is ready, as far as there is room. Returns until when a thread of the model is to wait for the batch
 * in `plan` to fill, 0: for whatever comes. */
static int64_t direct_run(struct mr_sched *s, bool is_thread, struct batch_plan *plan)
{
    struct mr_infer *rejects;

    while (s->instances[0].executions < direct_max(s)) {
        const int64_t now = mr_now_ns();
        if ((rejects = queue_reject(s, now))) {
            pthread_mutex_unlock(&s->mutex);
            sched_deliver_all(rejects);
            pthread_mutex_lock(&s->mutex);
            continue;
        }
        if (s->queued == 0) {
            break;
        }
        instance_form_batch(s, now, plan);
        if (!plan->is_ready && s->rows_before_wait == 0) {
            s->rows_before_wait = plan->rows;
        }
        if (!plan->is_ready && is_thread) {
            return plan->wait_until_ns;
        }
        if (!is_thread && (!plan->is_ready || is_long_copy(s, plan->count)) &&
            direct_leave(s, plan)) {
            break;
        }
        direct_begin(s, plan, now);
    }
    return 0;
}

void instance_run_direct(struct mr_sched *s)
{
    struct batch_plan plan;

    direct_run(s, false, &plan);
}

/* The thread of a model whose executions are handed over. Mutex held. */
static void direct_main(struct mr_sched *s)
{
    int64_t idle_until = mr_now_ns() + INSTANCE_IDLE_NS;
    struct batch_plan plan;

    while (s->queued > 0 || !s->is_stopping) {
        const int64_t until = s->is_forming ? 0 : direct_run(s, true, &plan);
        const int64_t now = mr_now_ns();
        if (until > 0) {
            s->is_forming = true;
            s->forming_until_ns = until;
            s->wake_at_rows = rows_to_wake_at(s, plan.rows);
            instance_wait(s, &s->filled, until);
            s->is_forming = false;
            idle_until = mr_now_ns() + INSTANCE_IDLE_NS;
        } else if (now >= idle_until) {
            return;
        } else {
            s->idle_threads++;
            instance_wait(s, &s->work, idle_until);
            s->idle_threads--;
        }
    }
}

/* Begins the next execution of the instance's thread. NULL: the thread should end. Mutex held, and released while it
 * waits. */
static struct exec_batch *batch_next(struct sched_instance *in)
{
    struct mr_sched *s = in->sched;
    struct exec_batch *b = batch_new(in);
    struct mr_err err;
    uint32_t count =
        s->sequences ? sequences_next(in, b->items, &b->plan) : next_batch(in, b->items, &b->plan);

    if (count > 0) {
        batch_begin(b, count);
        b->run.start = mr_now_ns();
        return b;
    }
    batch_keep(b);
    b = in->again;
    if (b) {
        in->again = b->next;
        in->executions++;
        if (s->queued > 0) {
            instance_wake(s, &err); /* this thread may have been the one to form a batch of them */
        }
    }
    return b;
}

void *instance_main(void *arg)
{
    struct sched_instance *in = arg;
    struct mr_sched *s = in->sched;
    struct exec_batch *b;

    pthread_mutex_lock(&s->mutex);
    if (s->is_direct) {
        direct_main(s);
    }
    while (!s->is_direct && (b = batch_next(in)) != NULL) {
        pthread_mutex_unlock(&s->mutex);
        if (exec_run(&b->run, in->instance)) {
            batch_over(b, false);
        }
        pthread_mutex_lock(&s->mutex);
    }
    in->is_running = false;
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}
