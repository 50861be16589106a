/* Requests wait with their sequences, and instance threads take them.
 *
 * A sequence stays with its instance, so each instance thread waits for work of its own. The thread of an instance
 * with sequences does not end: it also ends the sequences of any instance that have been idle for too long.
 *
 * A request that leaves without having run would leave a hole in its sequence, whose state would silently be wrong from
 * there on: it ends the sequence, and its waiting requests fail. */
#include "sequences.h"

#include <stdio.h>

#include "base/log.h"
#include "base/thread.h"

/* While sequences wait for a place: no event says that the state of an instance, and with it its sequences, is lost. */
#define LIFE_CHECK_NS (50 * MR_NS_PER_MS)

static void wake(struct mr_sched *s, uint32_t instance)
{
    if (instance != SEQ_NONE) {
        pthread_cond_signal(&s->sequences->wake[instance]);
    }
}

/* After each change of the set. */
static void publish_count(struct mr_sched *s)
{
    /* relaxed: a gauge */
    atomic_store_explicit(&s->sequences->count, sequence_count(s->sequences->set),
                          memory_order_relaxed);
}

void sequences_wake_all(struct mr_sched *s)
{
    for (uint32_t i = 0; i < s->instance_count; i++) {
        wake(s, i);
    }
}

static void reap(struct mr_sched *s, int64_t now_ns)
{
    uint32_t instance;

    while ((instance = sequence_reap(s->sequences->set, now_ns)) != SEQ_NONE) {
        publish_count(s);
        wake(s, instance);
    }
}

/* ---- in ---- */

/* The key of a sequence: what it is, then the text or the number. */
static mr_str key_of(const struct mr_sequence_ref *ref, char buf[1 + MR_SEQUENCE_TEXT_MAX])
{
    size_t len = ref->text.len ? ref->text.len : sizeof ref->number;

    buf[0] = ref->text.len ? 't' : 'n';
    memcpy(buf + 1, ref->text.len ? (const void *)ref->text.ptr : &ref->number, len);
    return mr_str_n(buf, 1 + len);
}

static int refuse(struct mr_infer *r, const char *text)
{
    sched_fail(r, MR_E_INVALID, "inference request to model '%.*s' must specify %s",
               MR_STR_ARG(r->version->model_name), text);
    return MR_E_INVALID;
}

static int refuse_no_start(struct mr_infer *r)
{
    const struct mr_sequence_ref *ref = r->sequence;
    char number[24];

    snprintf(number, sizeof number, "%llu", (unsigned long long)ref->number);
    sched_fail(r, MR_E_INVALID,
               "inference request for sequence %.*s to model '%.*s' must specify the START flag on "
               "the first request of the sequence",
               ref->text.len ? (int)ref->text.len : (int)strlen(number),
               ref->text.len ? ref->text.ptr : number, MR_STR_ARG(r->version->model_name));
    return MR_E_INVALID;
}

static bool has_number_control(const struct sequences *q)
{
    for (uint32_t i = 0; i < q->control_count; i++) {
        if (q->controls[i].kind ==
                INFERENCE__MODEL_SEQUENCE_BATCHING__CONTROL__KIND__CONTROL_SEQUENCE_CORRID &&
            q->controls[i].dtype != MR_DTYPE_BYTES) {
            return true;
        }
    }
    return false;
}

/* No further request joins that sequence. */
static void leave(struct mr_sched *s, mr_str key)
{
    wake(s, sequence_leave(s->sequences->set, key));
    publish_count(s);
}

/* Checks a request, and makes its item. */
static int prepare(struct mr_sched *s, struct mr_infer *r)
{
    const struct mr_sequence_ref *ref = r->sequence;
    char buf[1 + MR_SEQUENCE_TEXT_MAX];

    if (r->rows > 1) {
        return refuse(r, "batch-size 1 due to requirements of sequence batcher");
    }
    if (!ref || (ref->number == 0 && ref->text.len == 0)) {
        return refuse(r, "a non-zero or non-empty correlation ID");
    }
    if (ref->text.len && has_number_control(s->sequences)) {
        return refuse(r, "a correlation ID that is a number, as the model takes it as one");
    }
    int rc = queue_check_room(r, s->queued, s->options.max_queue_size, "--max-queue-size");
    if (rc == MR_OK && !(r->item = MR_ARENA_NEW(r->arena, struct sequence_item))) {
        sched_fail(r, MR_E_EXHAUSTED, "the request needs more memory than it may use");
        rc = MR_E_EXHAUSTED;
    }
    if (rc < 0 && (ref->flags & MR_SEQUENCE_START)) {
        leave(s, key_of(ref, buf)); /* those after it, on a stream, are not of the one before it */
    }
    return rc;
}

/* When the request expires, if it is still waiting then. Its own timeout counts while its sequence waits for a place. */
static int64_t expiry(const struct mr_infer *r)
{
    int64_t at = r->start_by_ns;

    if (!sequence_is_placed(&r->item->request) && r->timeout_us > 0 &&
        r->timeout_us <= INT64_MAX / MR_NS_PER_US) {
        int64_t own = mr_ns_after(r->times.queued, (int64_t)r->timeout_us * MR_NS_PER_US);
        at = at == 0 || own < at ? own : at;
    }
    return at;
}

/* The thread of its instance runs it. */
static int wake_for(struct mr_sched *s, struct mr_infer *r, uint32_t instance)
{
    struct sched_instance *in = &s->instances[instance];
    struct mr_err err;
    int rc = in->is_running ? MR_OK : instance_start(in, &err);

    wake(s, instance);
    if (rc == MR_OK) {
        return MR_OK;
    }
    mr_log(MR_LOG_ERROR, "sched.thread", "model=%s %s", MR_LOG_STR(s->version->model_name),
           err.msg);
    /** It is the only one: without a thread no request was admitted before. */
    sequences_withdraw(s, r);
    sched_fail(r, MR_E_UNAVAILABLE, "no thread to run the model on: %s", err.msg);
    r->err.flags = MR_ERR_RETRYABLE;
    return MR_E_UNAVAILABLE;
}

int sequences_push(struct mr_sched *s, struct mr_infer *r, int64_t now_ns)
{
    struct sequence_item *item;
    char buf[1 + MR_SEQUENCE_TEXT_MAX];
    uint32_t instance = SEQ_NONE;
    enum seq_admitted admitted;
    int rc = prepare(s, r);

    if (rc < 0) {
        return rc;
    }
    reap(s, now_ns);
    item = r->item;
    item->infer = r;
    item->request.is_start = (r->sequence->flags & MR_SEQUENCE_START) != 0;
    item->request.is_end = (r->sequence->flags & MR_SEQUENCE_END) != 0;
    item->request.is_named = r->names_version;
    admitted = sequence_admit(s->sequences->set, key_of(r->sequence, buf), &item->request, now_ns,
                              &instance);
    if (admitted == SEQ_NO_START) {
        return refuse_no_start(r);
    }
    publish_count(s);
    queue_count_in(s, r, now_ns);
    r->start_by_ns = queue_last_start(s, r);
    r->due_ns = r->expire_ns = item->request.due_ns = expiry(r);
    if (s->options.hold_until_queued > 0 && !instance_is_held(s)) {
        sequences_wake_all(s);
    }
    if (admitted == SEQ_BACKLOG) {
        reap(s, now_ns); /* those that end because it waits */
    }
    if (admitted == SEQ_BACKLOG && s->instances[0].life != 0) {
        sequences_wake_all(s); /* all places may be of sequences that were lost */
    }
    if (admitted == SEQ_BACKLOG && !r->reply_loop->set_timer && r->due_ns > 0 &&
        r->due_ns < s->sequences->due_ns) {
        s->sequences->due_ns = r->due_ns;
        sequences_wake_all(s); /* no timer of its own: one of them sees to it */
    }
    return admitted == SEQ_PLACED ? wake_for(s, r, instance) : MR_OK;
}

/* ---- out, without having run ---- */

/* What the set has given back, as a chain, but for one of them. */
static struct mr_infer *given_back(struct mr_sched *s, const struct seq_requests *out,
                                   const struct mr_infer *but)
{
    struct mr_infer *first = NULL, **tail = &first;
    struct seq_request *q;

    publish_count(s);
    TAILQ_FOREACH (q, out, link) {
        struct mr_infer *r = MR_CONTAINER_OF(q, struct sequence_item, request)->infer;
        queue_count_out(s, r);
        s->inflight_rows -= rows_of(r);
        r->next = NULL;
        if (r != but) {
            *tail = r;
            tail = &r->next;
        }
    }
    return first;
}

struct mr_infer *sequences_withdraw(struct mr_sched *s, struct mr_infer *r)
{
    struct seq_requests out = TAILQ_HEAD_INITIALIZER(out);

    wake(s, sequence_end(s->sequences->set, &r->item->request, &out));
    return given_back(s, &out, r);
}

bool sequences_expire_one(struct mr_sched *s, struct mr_infer *r, int64_t now_ns,
                          struct mr_infer **out_others)
{
    r->due_ns = expiry(r);
    if (r->due_ns == 0 || now_ns < r->due_ns) {
        return false;
    }
    bool by_client = r->start_by_ns && now_ns >= r->start_by_ns;
    *out_others = sequences_withdraw(s, r);
    for (struct mr_infer *o = *out_others; o; o = o->next) {
        sched_fail(o, MR_E_UNAVAILABLE, "timeout of the corresponding sequence has been expired");
    }
    if (by_client) {
        sched_fail(r, MR_E_DEADLINE,
                   "Deadline Exceeded: the request waited in the queue until it was too late");
    } else {
        sched_fail(r, MR_E_UNAVAILABLE, "timeout of the corresponding sequence has been expired");
    }
    return true;
}

/* One that has waited for a place for too long, and those that fail with it; NULL: there is none. */
static struct mr_infer *expire(struct mr_sched *s, int64_t now_ns)
{
    struct sequences *q = s->sequences;
    struct mr_infer *others;
    struct seq_request *r;

    if (now_ns < q->due_ns || (r = sequence_overdue(q->set, now_ns, &q->due_ns)) == NULL) {
        return NULL;
    }
    struct mr_infer *first = MR_CONTAINER_OF(r, struct sequence_item, request)->infer;
    if (!sequences_expire_one(s, first, now_ns, &others)) {
        return NULL;
    }
    first->next = others;
    return first;
}

/* If the process that kept what the instance knows of its sequences has died since the last check: they end. Returns
 * requests that have failed by that. */
static struct mr_infer *lose(struct sched_instance *in)
{
    struct mr_sched *s = in->sched;
    const struct mr_executor *e = s->version->executor;
    const uint64_t life = e->ops->life ? e->ops->life(e, in->instance) : in->life;
    struct seq_requests out = TAILQ_HEAD_INITIALIZER(out);

    if (life == in->life) {
        return NULL;
    }
    in->life = life;
    sequence_lose(s->sequences->set, in->index, &out);
    struct mr_infer *lost = given_back(s, &out, NULL);
    for (struct mr_infer *r = lost; r; r = r->next) {
        sched_fail(r, MR_E_UNAVAILABLE,
                   "the worker process of model '%.*s' that kept the state of the sequence ended; "
                   "start the sequence again",
                   MR_STR_ARG(s->version->model_name));
    }
    return lost;
}

/* ---- out, to run ---- */

/* A sequence that starts again does so without its state, even if the start fails. */
static void state_forget(struct seq_request *q)
{
    void **data = sequence_data(q);

    sequence_drop(NULL, *data);
    *data = NULL;
}

/* Chooses a batch and takes it into `items`; false: there is none now, and plan->wait_until_ns is set. */
static bool take(struct sched_instance *in, int64_t now_ns, struct mr_infer **items,
                 struct batch_plan *plan)
{
    struct mr_sched *s = in->sched;
    struct seq_request **taken = s->sequences->taken;
    struct seq_plan p;
    int64_t row = 0;

    sequence_form(s->sequences->set, in->index, (uint32_t)MR_MAX(instance_rows_max(s), 1), now_ns,
                  taken, &p);
    plan->wait_until_ns = p.wait_until_ns;
    if (p.count == 0) {
        return false;
    }
    plan->count = p.count;
    plan->rows = s->version->max_batch_size > 0 ? p.rows : 0;
    if (plan->rows > 0 && s->version->cannot_batch) {
        plan->rows = 1; /* of a place by itself, without those before it */
    }
    plan->reason = s->version->max_batch_size > 0 ? p.reason : MR_CLOSE_SINGLE;
    for (uint32_t i = 0; i < p.count; i++) {
        struct seq_request *q = taken[i];
        struct mr_infer *r = MR_CONTAINER_OF(q, struct sequence_item, request)->infer;
        items[i] = r;
        if (q->is_start) {
            state_forget(q);
        }
        r->gap_rows = s->version->cannot_batch ? 0 : (int64_t)q->row - row;
        row = (int64_t)q->row + 1;
        r->dispatch = s->next_dispatch++;
        queue_count_out(s, r);
    }
    return true;
}

uint32_t sequences_next(struct sched_instance *in, struct mr_infer **items, struct batch_plan *plan)
{
    struct mr_sched *s = in->sched;
    struct sequences *q = s->sequences;
    int64_t idle_until = mr_now_ns() + INSTANCE_IDLE_NS;
    struct mr_infer *lost;

    for (;;) {
        int64_t now = mr_now_ns(), until;
        if ((lost = lose(in)) != NULL || (lost = expire(s, now)) != NULL) {
            pthread_mutex_unlock(&s->mutex);
            sched_deliver_all(lost);
            pthread_mutex_lock(&s->mutex);
            continue;
        }
        reap(s, now);
        if (s->queued == 0 && s->is_stopping) {
            return 0;
        }
        plan->wait_until_ns = INT64_MAX;
        if (in->executions < q->max_executions && !instance_is_held(s) &&
            take(in, now, items, plan)) {
            return plan->count;
        }
        bool is_used = sequence_is_used(q->set, in->index) || in->executions > 0;
        if (!is_used && now >= idle_until) {
            return 0;
        }
        until = MR_MIN(plan->wait_until_ns, sequence_next_idle_ns(q->set));
        until = MR_MIN(until, q->due_ns);
        if (!is_used) {
            until = MR_MIN(until, idle_until);
        }
        if (in->life != 0 && sequence_has_backlog(q->set)) {
            until = MR_MIN(until, now + LIFE_CHECK_NS);
        }
        instance_wait(s, &q->wake[in->index], until);
        if (is_used) {
            idle_until = mr_now_ns() + INSTANCE_IDLE_NS;
        }
    }
}

struct mr_infer *sequences_done(struct sched_instance *in, struct mr_infer **items, uint32_t count)
{
    struct mr_sched *s = in->sched;
    struct seq_requests out = TAILQ_HEAD_INITIALIZER(out);
    int64_t now = mr_now_ns();

    for (uint32_t i = 0; i < count; i++) {
        if (items[i]->status < 0 && (items[i]->err.flags & MR_ERR_NOT_RUN)) {
            sequence_end(s->sequences->set, &items[i]->item->request, &out);
        }
        sequence_done(s->sequences->set, &items[i]->item->request, now);
    }
    wake(s, in->index);
    struct mr_infer *lost = given_back(s, &out, NULL);
    for (struct mr_infer *r = lost; r; r = r->next) {
        sched_fail(r, MR_E_UNAVAILABLE,
                   "an earlier request of the sequence ended without having run; start the "
                   "sequence again");
    }
    return lost;
}

void sequences_leave(struct mr_sched *s, struct mr_infer *r)
{
    sequence_done(s->sequences->set, &r->item->request, mr_now_ns());
    publish_count(s);
    sequences_wake_all(s);
}

/* ---- for those who choose and end the version ---- */

void mr_sched_hasten(struct mr_version *v)
{
    struct mr_sched *s = v->sched;

    if (!s || !s->sequences) {
        return;
    }
    pthread_mutex_lock(&s->mutex);
    sequence_hasten(s->sequences->set);
    reap(s, mr_now_ns());
    pthread_mutex_unlock(&s->mutex);
}

uint32_t mr_sched_sequences(const struct mr_version *v)
{
    const struct mr_sched *s = v->sched;

    /* relaxed: a gauge */
    return s && s->sequences ? atomic_load_explicit(&s->sequences->count, memory_order_relaxed) : 0;
}

/* The set of a version with the mutex held, and the key of an id; NULL: it cannot have the sequence. */
static struct seq_set *set_enter(const struct mr_version *v, uint64_t number, mr_str text,
                                 char buf[1 + MR_SEQUENCE_TEXT_MAX], mr_str *out_key)
{
    const struct mr_sequence_ref ref = {.number = text.ptr ? 0 : number, .text = text};
    struct mr_sched *s = v->sched;

    if (!s || !s->sequences || text.len > MR_SEQUENCE_TEXT_MAX) {
        return NULL;
    }
    *out_key = key_of(&ref, buf);
    pthread_mutex_lock(&s->mutex);
    return s->sequences->set;
}

bool mr_sched_has_sequence(const struct mr_version *v, uint64_t number, mr_str text, bool unnamed)
{
    struct mr_sched *s = v->sched;
    char buf[1 + MR_SEQUENCE_TEXT_MAX];
    mr_str key;
    struct seq_set *set = set_enter(v, number, text, buf, &key);

    if (!set) {
        return false;
    }
    bool has = sequence_is_known(set, key) && !(unnamed && sequence_is_named(set, key));
    pthread_mutex_unlock(&s->mutex);
    return has;
}

void mr_sched_leave_sequence(struct mr_version *v, uint64_t number, mr_str text)
{
    struct mr_sched *s = v->sched;
    char buf[1 + MR_SEQUENCE_TEXT_MAX];
    mr_str key;

    if (!set_enter(v, number, text, buf, &key)) {
        return;
    }
    leave(s, key);
    pthread_mutex_unlock(&s->mutex);
}
