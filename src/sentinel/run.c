/* Moves executions into slots and their results out of them.
 *
 * A run lives in the arena of its execution. The holder of its slot owns it: the caller of execute until it is submitted,
 * then the shared memory, then the thread that receives the outcome. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "ipc/call.h"
#include "ipc/message.h"
#include "ipc/reply.h"
#include "sentinel_priv.h"

/* How often an execution runs again in another worker. A batch or request with which two workers crashed is suspect; kills
 * of workers from outside do not count, and damage to the memory of a model may be the work of any of its workers. */
#define FAULTS_MAX  2u
#define DAMAGES_MAX 4u
#define KILLS_MAX   20u

struct slot_run {
    struct process_model *model;
    struct mr_execution *x;
    struct mr_block *block; /* of a long message */
    uint64_t nonce;
    struct mr_shm_slot *slot;
    size_t message_bytes;
    uint32_t faults, damages, kills; /* of workers that ran it */
    struct slot_run *next;           /* in mr_sentinel.late */
    /* of a decoupled execution */
    bool is_answered;           /* the server holds one of its answers, and the worker waits */
    bool has_sent;              /* an answer: it does not run again */
    bool *is_closed;            /* [requests]: the final one has come, or one was refused */
    struct mr_response *answer; /* waits until its client has read earlier ones */
};

/* The slot is given back before the execution ends, as the model may be closed as soon as it has ended. */
static void run_end(struct slot_run *r, struct mr_shm_slot *s, int status, const struct mr_err *err)
{
    struct mr_execution *x = r->x;

    mr_block_unref(&r->block);
    mr_shm_give(r->model->shm, s);
    mr_execution_complete(x, status, err);
}

static int64_t deadline_of(const struct mr_exec *exec)
{
    int64_t latest = 0;

    for (uint32_t i = 0; i < exec->request_count; i++) {
        const int64_t at = mr_exec_request_at(exec, i)->deadline_ns;
        if (at == 0) {
            return 0; /* a request without a deadline waits */
        }
        latest = MR_MAX(latest, at);
    }
    return latest;
}

/* The loop of the request, so that no other thread has to wake. */
static uint32_t home_of(const struct process_model *m, const struct mr_execution *x)
{
    return x->loop < m->sentinel->home_count - 1 ? x->loop + 1 : HOME_SENTINEL;
}

static void run_offer(struct mr_execution *x);
static void run_lost(struct slot_run *r, struct mr_shm_slot *s, bool is_damaged);

/* True if no worker that may take it runs or will run soon. */
static bool is_broken(const struct process_model *m, uint32_t bound)
{
    return atomic_load_explicit(&m->is_broken, memory_order_relaxed) ||
           (bound != MR_SHM_ANY &&
            atomic_load_explicit(&m->workers[bound].is_hopeless, memory_order_relaxed));
}

static int fail_lost_state(const struct process_model *m, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_INTERNAL,
                   "the worker process of model '%s' that kept the state of the sequence ended; "
                   "start the sequence again",
                   m->base.model);
}

/* True if its request has an error when a worker ends once more. Answers that come one by one take as long as there are
 * answers. */
static bool is_last_try(const struct slot_run *r)
{
    const struct mr_execution *x = r->x;

    return r->faults > 0 || r->model->keeps_state || (x->exec.flags & MR_EXEC_DECOUPLED) ||
           (x->is_suspect && x->exec.request_count == 1);
}

static struct slot_run *run_new(struct process_model *m, struct mr_execution *x)
{
    struct slot_run *r = MR_ARENA_NEW(x->outputs.arena, struct slot_run);
    bool *is_closed = MR_ARENA_ARRAY(x->outputs.arena, bool, x->exec.request_count);

    if (!r || !is_closed) {
        return NULL;
    }
    *r = (struct slot_run){.model = m, .x = x, .is_closed = is_closed};
    if (x->exec.flags & MR_EXEC_DECOUPLED) {
        x->on_room = run_offer;
    }
    return r;
}

int run_execute(struct mr_executor *e, struct mr_execution *x, struct mr_err *err)
{
    struct process_model *m = process_model_of(e);
    const uint64_t beyond = atomic_load_explicit(&m->output_bytes, memory_order_relaxed);
    struct mr_shm_slot *s = NULL;
    struct slot_run *r;

    const bool is_bound = m->keeps_state || (x->is_bound && m->has_bound);
    const uint32_t bound = is_bound ? ((const struct worker *)x->instance)->index : MR_SHM_ANY;

    if (is_broken(m, bound)) {
        MR_FAIL(err, MR_E_UNAVAILABLE, "model '%s' has no worker process that runs, try later",
                e->model);
        err->flags |= MR_ERR_NOT_RUN;
        return err->status;
    }
    r = run_new(m, x);
    s = r ? mr_shm_take(m->shm) : NULL;
    if (!s) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "model '%s': no %s for a request now, try later",
                       e->model, r ? "slot of shared memory" : "memory");
    }
    r->slot = s;
    r->nonce = atomic_fetch_add_explicit(&m->nonce, 1, memory_order_relaxed);
    s->user = r;
    s->rows = x->exec.row_count;
    s->is_last = is_last_try(r);
    s->bound = bound;
    s->life = m->keeps_state ? x->life : 0;
    const int64_t copied =
        mr_ipc_exec_write(m->shm, s, &x->exec, r->nonce, &r->message_bytes, &r->block, err);
    if (copied < 0) {
        mr_shm_give(m->shm, s);
        return (int)copied;
    }
    if (beyond > 0) {
        mr_shm_add_extent(m->shm, s, beyond); /* otherwise the worker asks when it knows the size */
    }
    /* release: the run, for a cancel. A cancel before the submission of the slot has no effect: the execution runs. */
    atomic_store_explicit(&x->handle, r, memory_order_release);
    atomic_fetch_add_explicit(&m->copied_bytes, (uint64_t)copied, memory_order_relaxed);
    if (!home_submit(m, s, r->message_bytes, home_of(m, x), false)) {
        atomic_store_explicit(&x->handle, NULL, memory_order_relaxed);
        mr_block_unref(&r->block);
        mr_shm_give(m->shm, s);
        return fail_lost_state(m, err);
    }
    return MR_PENDING;
}

/* relaxed maximum */
static void grow(_Atomic uint64_t *to, uint64_t value)
{
    uint64_t had = atomic_load_explicit(to, memory_order_relaxed);

    while (value > had && !atomic_compare_exchange_weak_explicit(
                              to, &had, value, memory_order_relaxed, memory_order_relaxed)) {
    }
}

/* The total size of the outputs, as an estimate for later executions. */
static uint64_t bytes_of(const struct mr_execution *x)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < x->exec.output_count; i++) {
        bytes += x->outputs.list[i].is_set ? x->outputs.list[i].tensor.bytes + 128 : 0;
    }
    return bytes;
}

static void rows_log(const struct process_model *m, const char *why)
{
    const uint32_t limit = atomic_load_explicit(&m->base.rows_max, memory_order_relaxed);

    mr_log(MR_LOG_WARN, "worker.rows", "model=%s rows=%u %s", MR_LOG_STR(mr_str_c(m->base.model)),
           limit, why);
}

/* One that has run is what later processes run before they are ready. The watching thread takes it, as it has no loop, and
 * holds the lock. */
static void warmup_note(struct process_model *m, const struct mr_execution *x)
{
    if (x->is_bound && !m->keeps_state && !(x->exec.flags & MR_EXEC_DECOUPLED)) {
        MR_ASSERT(home_is_here(HOME_SENTINEL));
        warmups_keep(&m->warmups, m->shm, &x->exec);
    }
}

/* An answer of a process that has ended may be read later: it is not its successor's. */
static void answered_note(struct process_model *m, const struct mr_shm_slot *s)
{
    struct worker *w = &m->workers[s->worker];

    /* Relaxed: a count. */
    if (s->process == atomic_load_explicit(&w->process_number, memory_order_relaxed)) {
        atomic_fetch_add_explicit(&w->answered, 1, memory_order_relaxed);
    }
}

static void run_done(struct slot_run *r, struct mr_shm_slot *s)
{
    struct process_model *m = r->model;
    uint64_t copied;
    int64_t ns;
    struct mr_err err;

    mr_err_clear(&err);
    answered_note(m, s);
    const int rc = mr_ipc_reply_read(m->shm, s, r->nonce, r->x, &copied, &ns, &err);
    if (rc == MR_OK) {
        const uint64_t bytes = bytes_of(r->x) + MR_IPC_REPLY_BYTES + 4096;
        if (bytes > s->room_bytes) {
            grow(&m->output_bytes, bytes);
        }
        times_note(&m->times, s->rows, ns);
        if (rows_worked(&m->rows, s->rows)) {
            rows_log(m, "batches may have this many rows again, 0: as many as the model can");
        }
        atomic_fetch_add_explicit(&m->copied_bytes, copied, memory_order_relaxed);
        warmup_note(m, r->x);
    }
    run_end(r, s, rc, &err);
}

static void run_cancelled(struct slot_run *r, uint32_t flags)
{
    struct mr_err err;

    mr_err_clear(&err);
    MR_FAIL(&err, MR_E_CANCELLED, "the request was cancelled");
    err.flags |= flags;
    run_end(r, r->slot, err.status, &err);
}

/* ---- several answers ---- */

/* A client of it has received answers, which another worker would give again, or sent messages, which it would not have. */
static bool is_halfway(const struct slot_run *r)
{
    return r->has_sent || (r->x->feed && mr_feed_is_used(r->x->feed));
}

static void run_lost_halfway(struct slot_run *r)
{
    struct mr_err err;

    mr_err_clear(&err);
    MR_FAIL(&err, MR_E_INTERNAL,
            "model '%s': the worker process ended while it was answering this request; it is not "
            "tried again, as %s",
            r->model->base.model,
            r->has_sent ? "answers have been sent" : "it has taken messages of its stream");
    run_end(r, r->slot, err.status, &err);
}

/* The worker continues, with the status of what it waits for; the run does not belong to the caller any more. */
static void run_went_on(struct slot_run *r, int status, const struct mr_err *err)
{
    struct mr_shm_slot *s = r->slot;

    if (!mr_shm_go_on(r->model->shm, s, status, err->msg)) {
        run_lost(r, s, false);
    }
}

/* What becomes of an answer that its worker does not wait for is its request's. Returns the status for a worker that
 * waits. */
static int answer_end(struct slot_run *r, uint32_t request, int status, const struct mr_err *err)
{
    r->has_sent |= status == MR_OK;
    if (status == MR_OK || !mr_shm_is_posted(r->slot)) {
        return status;
    }
    if (status != MR_E_CANCELLED && !r->is_closed[request]) {
        r->is_closed[request] = true;
        r->x->fail_request(r->x, request, status, err->msg);
    }
    return MR_OK;
}

/* Passes the answer to the scheduler. MR_PENDING: it stays here until the scheduler has room (on_room), on another thread
 * perhaps. */
static int answer_offer(struct slot_run *r, struct mr_err *err)
{
    const uint32_t request = r->answer->request;
    const bool is_final = r->answer->is_final;

    if (r->is_closed[request] && mr_shm_is_posted(r->slot)) {
        mr_response_free(&r->answer);
        return MR_OK;
    }
    const int rc =
        mr_execution_respond(r->x, request, &r->answer, is_final ? MR_RESPONSE_FINAL : 0, err);
    if (rc == MR_PENDING) {
        return rc;
    }
    r->is_closed[request] |= rc == MR_OK && is_final;
    return answer_end(r, request, rc, err);
}

static int letter_take(struct slot_run *r, struct mr_err *err)
{
    uint64_t copied;
    int rc;

    if (mr_ipc_is_call(r->slot, r->nonce)) {
        call_take(r->model, r->slot, r->x);
        return MR_OK;
    }
    rc = mr_ipc_answer_read(r->model->shm, r->slot, r->nonce, r->x, &r->answer, &copied, err);
    if (rc < 0) {
        return answer_end(r, 0, rc, err);
    }
    answered_note(r->model, r->slot);
    atomic_fetch_add_explicit(&r->model->copied_bytes, copied, memory_order_relaxed);
    return answer_offer(r, err);
}

/* Takes letters until one has to wait for room. rc, err: of the last one. */
static void run_letters(struct slot_run *r, int rc, struct mr_err *err)
{
    while (rc != MR_PENDING && mr_shm_next_letter(r->model->shm, r->slot)) {
        mr_err_clear(err);
        rc = letter_take(r, err);
    }
    if (rc != MR_PENDING) { /* otherwise it may be another thread's by now */
        run_went_on(r, rc, err);
    }
}

/* mr_execution.on_room */
static void run_offer(struct mr_execution *x)
{
    struct slot_run *r = atomic_load_explicit(&x->handle, memory_order_acquire);
    struct mr_err err;

    mr_err_clear(&err);
    const int rc = answer_offer(r, &err);
    run_letters(r, rc, &err);
}

static void run_answer(struct slot_run *r)
{
    struct mr_err err;

    mr_err_clear(&err);
    run_letters(r, MR_OK, &err);
}

/* ---- ends without an answer ---- */

/* Which of its counts a lost worker belongs to. */
static uint32_t *count_of(struct slot_run *r, const struct worker *w, bool is_damaged)
{
    if (is_damaged || w->was_damaged) {
        return &r->damages;
    }
    return w->was_killed ? &r->kills : &r->faults;
}

static bool may_run_again(const struct slot_run *r, bool is_hopeless)
{
    return r->kills < KILLS_MAX && r->damages < DAMAGES_MAX &&
           r->faults < (is_hopeless ? 1 : FAULTS_MAX);
}

static void run_lost(struct slot_run *r, struct mr_shm_slot *s, bool is_damaged)
{
    struct process_model *m = r->model;
    const struct worker *w = &m->workers[s->worker];
    struct mr_err err;

    if (r->x->is_cancelled && r->x->is_cancelled(r->x, MR_ALL_REQUESTS)) {
        run_cancelled(r, 0);
        return;
    }
    if (is_halfway(r)) {
        run_lost_halfway(r);
        return;
    }
    const bool was_short = !is_damaged && w->was_short;
    if (was_short && rows_short(&m->rows, s->rows)) {
        rows_log(m, "a worker process ran out of memory: batches have at most this many rows now");
    }
    if (m->keeps_state) {
        mr_err_clear(&err);
        run_end(r, s, fail_lost_state(m, &err), &err);
        return;
    }
    uint32_t *count = count_of(r, w, is_damaged);
    ++*count;
    /* A batch that takes too much memory runs again in halves at once. */
    const bool is_hopeless = r->x->is_suspect || (was_short && r->x->exec.request_count > 1);
    if (may_run_again(r, is_hopeless)) {
        atomic_fetch_add_explicit(&m->requeued, 1, memory_order_relaxed);
        s->is_last = is_last_try(r);
        home_submit(m, s, r->message_bytes, HOME_SENTINEL, true);
        return;
    }
    if (r->x->exec.request_count == 1) {
        atomic_fetch_add_explicit(&m->quarantined, 1, memory_order_relaxed);
    }
    mr_err_clear(&err);
    MR_FAIL(&err, MR_E_INTERNAL,
            "model '%s': the worker process ended while it ran this request (%s); it is not tried "
            "again",
            m->base.model, is_damaged ? "a worker wrote where it must not" : w->last_fault);
    err.flags |= MR_ERR_LOST;
    if (r->x->exec.request_count == 1 && count == &r->faults &&
        m->base.signature->max_pending == 1) { /* otherwise others ran beside it */
        err.flags |= MR_ERR_POISON;
    }
    run_end(r, s, err.status, &err);
}

static bool is_expired(const struct slot_run *r)
{
    const int64_t deadline = deadline_of(&r->x->exec);

    return deadline != 0 && mr_now_ns() >= deadline;
}

/* No worker has it. The lock of the slots is held. */
static void run_waits(struct process_model *m, struct mr_shm_slot *s)
{
    s->is_unwanted = is_broken(m, s->bound) || is_expired(s->user);
}

/* No worker has taken it, and none will. */
static void run_withdrawn(struct process_model *m, struct mr_shm_slot *s)
{
    struct slot_run *r = s->user;
    struct mr_err err;

    mr_err_clear(&err);
    if (is_expired(r)) {
        MR_FAIL(&err, MR_E_DEADLINE, "the request timed out before a worker process took it");
    } else {
        MR_FAIL(&err, MR_E_UNAVAILABLE, "model '%s' has no worker process that runs, try later",
                m->base.model);
    }
    err.flags |= MR_ERR_NOT_RUN;
    run_end(r, s, err.status, &err);
}

/* Strings are checked and copied one by one: many of them must not hold a network thread. */
static bool is_long(const struct process_model *m, const struct mr_shm_slot *s)
{
    return m->has_strings && mr_shm_has_extents(s) && !home_is_here(HOME_SENTINEL);
}

static void run_take(struct slot_run *r)
{
    if (r->is_answered) {
        run_answer(r);
    } else {
        run_done(r, r->slot);
    }
}

static void run_take_later(struct slot_run *r)
{
    struct mr_sentinel *s = r->model->sentinel;
    struct slot_run *first = atomic_load_explicit(&s->late, memory_order_relaxed);

    do {
        r->next = first;
    } while (!atomic_compare_exchange_weak_explicit(&s->late, &first, r, memory_order_release,
                                                    memory_order_relaxed));
    sentinel_wake(s);
}

void run_late(struct mr_sentinel *s)
{
    struct slot_run *r = atomic_exchange_explicit(&s->late, NULL, memory_order_acquire);

    while (r) {
        struct slot_run *next = r->next;
        run_take(r);
        r = next;
    }
}

void run_outcome(void *model, struct mr_shm_slot *s, enum mr_shm_outcome outcome)
{
    struct process_model *m = model;

    switch (outcome) {
    case MR_SHM_DONE:
    case MR_SHM_ANSWER:
        ((struct slot_run *)s->user)->is_answered = outcome == MR_SHM_ANSWER;
        if (is_long(m, s)) {
            run_take_later(s->user);
        } else {
            run_take(s->user);
        }
        break;
    case MR_SHM_WAITING: run_waits(m, s); break;
    case MR_SHM_WITHDRAWN: run_withdrawn(m, s); break;
    case MR_SHM_LOST: run_lost(s->user, s, false); break;
    case MR_SHM_DAMAGED: run_lost(s->user, s, true); break;
    }
}

/* An execution that no worker has taken ends at once; a backend that runs it is notified, and can also poll. */
void run_cancel(struct mr_executor *e, struct mr_execution *x)
{
    struct process_model *m = process_model_of(e);
    struct slot_run *r = atomic_load_explicit(&x->handle, memory_order_acquire);

    /* The slot may belong to another run by now. The run lives as long as x, which the caller holds. */
    if (r && mr_shm_cancel_of(m->shm, r->slot, r)) {
        run_cancelled(r, MR_ERR_NOT_RUN);
    } else if (r && m->opened.has_cancel) {
        /* release: the mark of the slot */
        atomic_store_explicit(&m->has_cancelled, true, memory_order_release);
        sentinel_wake(m->sentinel);
    }
}

const char *run_ids(const struct mr_shm_slot *s, char *out, size_t size)
{
    const struct slot_run *r = s->user;
    size_t used = 0;

    out[0] = '\0';
    for (uint32_t i = 0; i < r->x->exec.request_count && used + 1 < size; i++) {
        const char *id = mr_exec_request_at(&r->x->exec, i)->id;
        const int n =
            snprintf(out + used, size - used, "%s%s", i > 0 ? "," : "", id && id[0] ? id : "?");
        used += n > 0 ? MR_MIN((size_t)n, size - used - 1) : 0;
    }
    return out;
}
