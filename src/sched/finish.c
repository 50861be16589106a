/* The end of a request: failing it, refusing it, posting it to its reply loop, counting it. */
#include <stdarg.h>
#include <stdio.h>

#include "exec/quarantine.h"
#include "sched_priv.h"

void sched_fail(struct mr_infer *r, int status, const char *fmt, ...)
{
    va_list ap;

    r->status = status;
    r->err.status = status;
    r->err.flags = 0;
    r->err.where[0] = 0;
    va_start(ap, fmt);
    vsnprintf(r->err.msg, sizeof r->err.msg, fmt, ap);
    va_end(ap);
    mr_err_tidy(&r->err);
}

static void run_on_done(struct mr_mail *mail)
{
    struct mr_infer *r = MR_CONTAINER_OF(mail, struct mr_infer, mail);
    r->on_done(r);
}

void sched_deliver(struct mr_infer *r)
{
    if (!r->reply_loop->post) {
        r->on_done(r);
        return;
    }
    r->mail.run = run_on_done;
    r->reply_loop->post(r->reply_loop->ctx, &r->mail);
}

static enum mr_fail_reason fail_reason(const struct mr_infer *r)
{
    if (r->status == MR_E_CANCELLED) {
        return MR_FAIL_CANCELED;
    }
    if (r->is_executed) {
        return MR_FAIL_BACKEND;
    }
    switch (r->status) {
    case MR_E_UNAVAILABLE:
    case MR_E_EXHAUSTED:
    case MR_E_DEADLINE: return MR_FAIL_REJECTED;
    default: return MR_FAIL_OTHER;
    }
}

static void latency_add(struct mr_latency *l, int64_t ns)
{
    uint64_t us = ns > 0 ? ((uint64_t)ns + 999) / 1000 : 0;
    unsigned k = us <= 1 ? 0 : 64u - (unsigned)__builtin_clzll(us - 1);

    mr_count_add(&l->bucket[k < MR_LATENCY_BUCKETS ? k : MR_LATENCY_BUCKETS - 1], 1);
    mr_count_add(&l->sum_ns, ns > 0 ? (uint64_t)ns : 0);
}

static void count_success(struct mr_sched_stats *st, const struct mr_infer *r, int64_t encode_ns)
{
    const struct mr_infer_times *t = &r->times;
    const int64_t answered = t->answered ? t->answered : t->end;

    stats_duration_add(&st->success, t->end - t->queued);
    stats_duration_add(&st->queue, t->start - t->queued);
    stats_duration_add(&st->compute_input, t->infer_start - t->start);
    stats_duration_add(&st->compute_infer, t->infer_end - t->infer_start);
    stats_duration_add(&st->compute_output, t->end - t->infer_end);
    mr_count_add(&st->inference_count, (uint64_t)rows_of(r));
    latency_add(&st->latency_queue[r->protocol], t->start - t->queued);
    latency_add(&st->latency_compute[r->protocol], t->end - t->start);
    latency_add(&st->latency_encode[r->protocol], encode_ns);
    latency_add(&st->latency_total[r->protocol],
                answered - (t->received ? t->received : t->queued));
}

static void count_finished(struct mr_sched_stats *st, struct mr_infer *r, int64_t encode_ns)
{
    if (r->status == MR_OK) {
        count_success(st, r, encode_ns);
    } else {
        stats_duration_add(&st->fail, r->times.queued ? mr_now_ns() - r->times.queued : 0);
        mr_count_add(&st->failed[fail_reason(r)], 1);
    }
    if (r->is_executed) {
        atomic_store_explicit(&st->last_wall_ns, mr_wall_coarse_ns(), memory_order_relaxed);
    }
}

void mr_infer_finish(struct mr_infer *r, int64_t encode_ns)
{
    struct mr_sched *s = r->version->sched;

    if (s) {
        if (r->reply_loop->epoch_slot == MR_EPOCH_SLOT_NONE) {
            pthread_mutex_lock(&s->mutex);
            count_finished(&s->shared->stats, r, encode_ns);
            pthread_mutex_unlock(&s->mutex);
        } else {
            count_finished(&stats_slot_get(s, r->reply_loop->epoch_slot)->stats, r, encode_ns);
        }
        /* relaxed: it does not matter whether a request that arrives as recording begins is recorded */
        if (__builtin_expect(atomic_load_explicit(&s->recording, memory_order_relaxed) != NULL,
                             0)) {
            record_maybe(s, r);
        }
    }
    if (r->outputs) {
        for (uint32_t i = 0; i < r->version->backend_output_count; i++) {
            mr_block_unref(&r->outputs[i].block);
        }
    }
    mr_version_unpin(r->version, r->reply_loop->epoch_slot);
    r->version = NULL;
}

/* ---- quarantined requests: without any, a request costs one load ---- */

static struct mr_quarantine *quarantine_of(const struct mr_sched *s)
{
    /* acquire: what was made before it was published */
    return atomic_load_explicit(&s->quarantine, memory_order_acquire);
}

static struct mr_quarantine_key key_of(const struct mr_infer *r)
{
    return (struct mr_quarantine_key){.inputs = r->inputs,
                                      .input_count = r->version->input_count,
                                      .parameters = r->parameters,
                                      .parameter_count = r->parameter_count};
}

void sched_quarantine_add(struct mr_sched *s, const struct mr_infer *r)
{
    const struct mr_quarantine_key key = key_of(r);

    if (s->sequences) {
        return; /* its result depends on earlier requests */
    }
    pthread_mutex_lock(&s->mutex);
    struct mr_quarantine *q = quarantine_of(s);
    if (!q) {
        q = MR_NEW(struct mr_quarantine);
        mr_quarantine_init(q);
        atomic_store_explicit(&s->quarantine, q, memory_order_release);
    }
    pthread_mutex_unlock(&s->mutex);
    mr_quarantine_add(q, &key, mr_now_ns());
}

int sched_quarantine_check(struct mr_sched *s, const struct mr_infer *r, struct mr_err *err)
{
    struct mr_quarantine *q = quarantine_of(s);

    if (__builtin_expect(q == NULL, 1)) {
        return MR_OK;
    }
    const struct mr_quarantine_key key = key_of(r);
    if (!mr_quarantine_refuses(q, &key, mr_now_ns())) {
        return MR_OK;
    }
    return MR_FAIL(
        err, MR_E_INTERNAL,
        "model '%.*s': worker processes ended while they ran this request; it is refused "
        "for %lld seconds after that",
        MR_STR_ARG(s->version->model_name), (long long)(MR_QUARANTINE_NS / MR_NS_PER_S));
}

void sched_quarantine_free(struct mr_sched *s)
{
    struct mr_quarantine *q = quarantine_of(s);

    if (q) {
        mr_quarantine_fini(q);
        mr_free(q);
    }
}

struct mr_quarantine_stats mr_sched_quarantine(const struct mr_version *v)
{
    struct mr_quarantine *q = v->sched ? quarantine_of(v->sched) : NULL;
    struct mr_quarantine_stats stats = {0};

    if (q) {
        stats.held = mr_quarantine_count(q, mr_now_ns());
        stats.refused = mr_count_get(&q->refused);
    }
    return stats;
}
