/* The queue of a model version: priority levels, each first-in first-out, each with its policy for
 * time-outs and length (Triton's queue policies). Requests that exceed their time under policy DELAY go
 * after the others of their level. Everything here runs under the scheduler's mutex and is list work only. */
#include "sched_priv.h"

/* Of a deadline, for the way to the client; a quarter of short ones. */
#define RESERVE_NS (20 * MR_NS_PER_MS)

void queue_publish(struct mr_sched *s)
{
    /* relaxed: a gauge */
    atomic_store_explicit(&s->pending, s->queued + s->ahead, memory_order_relaxed);
}

/* The request's own timeout counts when the policy lets it, and only to shorten a default if there is one. */
static int64_t policy_timeout_us(const struct queue_level *l, const struct mr_infer *r)
{
    int64_t us = l->timeout_us;

    if (l->allow_override && r->timeout_us > 0 && r->timeout_us <= INT64_MAX / 1000 &&
        (us == 0 || (int64_t)r->timeout_us < us)) {
        us = (int64_t)r->timeout_us;
    }
    return us;
}

/* Input bytes of the batch that the request would be part of now: with what waits, as far as there is room. A lone one
 * counts by itself, however long batches were; with others of other shapes the batch may become smaller. */
static uint64_t batch_bytes(const struct mr_sched *s, const struct mr_infer *r)
{
    if (!s->is_batching || !instance_can_join(s, r, r)) {
        return r->input_bytes;
    }
    const int64_t rows = MR_MAX(r->rows, MR_MIN(s->queued_rows, instance_rows_max(s)));

    return r->input_bytes / (uint64_t)rows_of(r) * (uint64_t)rows;
}

/* Until when an execution has to begin for its answer to come before the client's deadline. Under overload all
 * that run have waited until nearly then, so an estimate that is a little short means that all run in vain: an
 * execution may take a quarter more than it lately did, and the client's clock has begun earlier than ours, at
 * its sending, and ends at its reading. */
int64_t queue_last_start(struct mr_sched *s, const struct mr_infer *r)
{
    if (r->deadline_ns == 0) {
        return 0;
    }
    int64_t cost = cost_of_queued(s, r->input_bytes, batch_bytes(s, r));
    int64_t reserve = MR_MIN((r->deadline_ns - r->times.queued) / 4, RESERVE_NS);
    int64_t at = r->deadline_ns - cost - MR_MAX(cost / 4, reserve);
    /* one that is late from the start may still be lucky */
    return at > r->times.queued ? at : r->deadline_ns;
}

static int64_t expiry(const struct queue_level *l, const struct mr_infer *r)
{
    int64_t us = policy_timeout_us(l, r), at = 0;

    if (us > 0 && !r->delayed) {
        int64_t ns;
        if (__builtin_mul_overflow(us, MR_NS_PER_US, &ns)) {
            ns = INT64_MAX;
        }
        at = mr_ns_after(r->times.queued, ns);
    }
    if (r->start_by_ns && (at == 0 || r->start_by_ns < at)) {
        at = r->start_by_ns;
    }
    return at;
}

int queue_check_room(struct mr_infer *r, uint32_t size, uint32_t max, const char *limit)
{
    if (size < max || max == 0) {
        return MR_OK;
    }
    sched_fail(r, MR_E_UNAVAILABLE, "Exceeds maximum queue size (%u: %s)", max, limit);
    r->err.flags = MR_ERR_RETRYABLE;
    return MR_E_UNAVAILABLE;
}

void queue_count_in(struct mr_sched *s, struct mr_infer *r, int64_t now_ns)
{
    r->place = INFER_QUEUED;
    r->times.queued = now_ns;
    s->queued++;
    s->queued_rows += rows_of(r);
    s->inflight_rows += rows_of(r);
    queue_publish(s);
}

void queue_count_out(struct mr_sched *s, struct mr_infer *r)
{
    r->place = INFER_RUNNING; /* its taker owns it now */
    s->queued--;
    s->queued_rows -= rows_of(r);
    queue_publish(s);
}

int queue_push(struct mr_sched *s, struct mr_infer *r, int64_t now_ns)
{
    uint32_t level =
        r->priority == 0 || r->priority > s->level_count ? s->default_level : (uint32_t)r->priority;
    struct queue_level *l = &s->levels[level];
    int rc = l->max_size ? queue_check_room(r, l->size + s->ahead, l->max_size,
                                            "max_queue_size of the model")
                         : queue_check_room(r, s->queued + s->ahead, s->options.max_queue_size,
                                            "--max-queue-size");

    if (rc < 0) {
        return rc;
    }
    r->level = level;
    r->delayed = false;
    queue_count_in(s, r, now_ns);
    r->start_by_ns = queue_last_start(s, r);
    r->due_ns = r->expire_ns = expiry(l, r);
    if (r->due_ns && r->due_ns < s->next_expire_ns) {
        s->next_expire_ns = r->due_ns;
    }
    TAILQ_INSERT_TAIL(&l->ready, r, in_queue);
    l->size++;
    return MR_OK;
}

void queue_remove(struct mr_sched *s, struct mr_infer *r)
{
    struct queue_level *l = &s->levels[r->level];

    TAILQ_REMOVE(r->delayed ? &l->delayed : &l->ready, r, in_queue);
    l->size--;
    queue_count_out(s, r);
}

void queue_withdraw(struct mr_sched *s, struct mr_infer *r)
{
    queue_remove(s, r);
    s->inflight_rows -= rows_of(r);
}

/* The first of that level and those after it. */
static struct mr_infer *first_from(const struct mr_sched *s, uint32_t level)
{
    for (; level <= s->level_count; level++) {
        if (!TAILQ_EMPTY(&s->levels[level].ready)) {
            return TAILQ_FIRST(&s->levels[level].ready);
        }
        if (!TAILQ_EMPTY(&s->levels[level].delayed)) {
            return TAILQ_FIRST(&s->levels[level].delayed);
        }
    }
    return NULL;
}

struct mr_infer *queue_front(const struct mr_sched *s)
{
    if (s->queued == 0) {
        return NULL;
    }
    return first_from(s, 1);
}

struct mr_infer *queue_after(const struct mr_sched *s, const struct mr_infer *r)
{
    struct mr_infer *next = TAILQ_NEXT(r, in_queue);

    if (!next && !r->delayed) {
        next = TAILQ_FIRST(&s->levels[r->level].delayed);
    }
    return next ? next : first_from(s, r->level + 1);
}

bool queue_expire_one(struct mr_sched *s, struct mr_infer *r, int64_t now_ns)
{
    struct queue_level *l = &s->levels[r->level];
    if (r->due_ns == 0 || now_ns < r->due_ns) {
        return false;
    }
    bool by_client = r->start_by_ns && now_ns >= r->start_by_ns;
    if (!by_client && l->delay_on_timeout) {
        TAILQ_REMOVE(&l->ready, r, in_queue);
        r->delayed = true;
        TAILQ_INSERT_TAIL(&l->delayed, r, in_queue);
        r->due_ns = r->start_by_ns;
        return false;
    }
    queue_withdraw(s, r);
    if (by_client) {
        sched_fail(r, MR_E_DEADLINE,
                   "Deadline Exceeded: the request waited in the queue until it was too late");
    } else {
        sched_fail(r, MR_E_UNAVAILABLE, "Request timeout expired");
    }
    return true;
}

static struct mr_infer *take_expired(struct mr_sched *s, int64_t now_ns)
{
    struct mr_infer *rejects = NULL, **tail = &rejects, *r, *next;

    if (now_ns < s->next_expire_ns) {
        return NULL;
    }
    s->next_expire_ns = INT64_MAX;
    for (r = queue_front(s); r; r = next) {
        next = queue_after(s, r);
        if (queue_expire_one(s, r, now_ns)) {
            *tail = r;
            r->next = NULL;
            tail = &r->next;
        } else if (r->due_ns && r->due_ns < s->next_expire_ns) {
            s->next_expire_ns = r->due_ns;
        }
    }
    return rejects;
}

static struct mr_infer *take_unread(struct mr_sched *s)
{
    struct mr_infer *r = queue_front(s);

    /* relaxed: a hint */
    if (!r || !r->is_unread || !atomic_load_explicit(r->is_unread, memory_order_relaxed)) {
        return NULL;
    }
    queue_withdraw(s, r);
    r->status = MR_SCHED_UNREAD;
    r->next = NULL;
    return r;
}

struct mr_infer *queue_reject(struct mr_sched *s, int64_t now_ns)
{
    struct mr_infer *expired = take_expired(s, now_ns);

    return expired ? expired : take_unread(s);
}
