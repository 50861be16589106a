/* Statistics: one slot per reader thread, written by that thread only, and one for the instance threads, written
 * under the queue's mutex. Readers add them up; each number is exact, but the sum is no snapshot. A slot is
 * allocated at a thread's first request, so that ten thousand idle models cost little. */
#include "sched_priv.h"

struct sched_slot *stats_slot_new(const struct mr_sched *s)
{
    size_t bytes = sizeof(struct sched_slot) + s->batch_stat_count * sizeof(struct mr_batch_stat);
    struct sched_slot *slot = mr_alloc_aligned(bytes);

    slot->batch_stat_count = s->batch_stat_count;
    return slot;
}

struct sched_slot *stats_slot_get(struct mr_sched *s, unsigned epoch_slot)
{
    /* relaxed: only this thread stores it */
    struct sched_slot *slot = atomic_load_explicit(&s->slots[epoch_slot], memory_order_relaxed);

    if (__builtin_expect(slot == NULL, 0)) {
        slot = stats_slot_new(s);
        /* release: readers of statistics on other threads must see a zeroed slot (acquire in slot_at) */
        atomic_store_explicit(&s->slots[epoch_slot], slot, memory_order_release);
    }
    return slot;
}

void stats_duration_add(struct mr_duration *d, int64_t ns)
{
    mr_count_add(&d->count, 1);
    mr_count_add(&d->ns, ns > 0 ? (uint64_t)ns : 0);
}

void stats_count_execution(struct sched_slot *slot, const struct mr_infer *first, int64_t rows,
                           enum mr_close_reason reason, bool is_inline)
{
    const struct mr_infer_times *t = &first->times;
    uint32_t size = rows < 1 ? 1 : (uint32_t)MR_MIN(rows, (int64_t)slot->batch_stat_count);
    struct mr_batch_stat *b = &slot->batches[size - 1];

    mr_count_add(&slot->stats.execution_count, 1);
    if (is_inline) {
        mr_count_add(&slot->stats.inline_count, 1);
    }
    mr_count_add(&slot->stats.closed[reason], 1);
    stats_duration_add(&b->compute_input, t->infer_start - t->start);
    stats_duration_add(&b->compute_infer, t->infer_end - t->infer_start);
    stats_duration_add(&b->compute_output, t->end - t->infer_end);
}

/* Slot i of reader_count + 1: the readers', then the instance threads'. NULL when there is none. */
static const struct sched_slot *slot_at(const struct mr_sched *s, uint32_t i)
{
    if (i == s->options.reader_count) {
        return s->shared;
    }
    return atomic_load_explicit(&s->slots[i], memory_order_acquire);
}

/* Every counter of the statistics is a 64-bit atomic, so they are added as arrays. */
_Static_assert(sizeof(struct mr_sched_stats) % sizeof(uint64_t) == 0, "summed as an array");
_Static_assert(sizeof(struct mr_batch_stat) % sizeof(uint64_t) == 0, "summed as an array");

static void add_counters(void *into, const void *from, size_t bytes)
{
    _Atomic uint64_t *to = into;
    const _Atomic uint64_t *src = from;

    for (size_t i = 0; i < bytes / sizeof(uint64_t); i++) {
        mr_count_add(&to[i], mr_count_get(&src[i]));
    }
}

void mr_sched_stats_sum(const struct mr_version *v, struct mr_sched_stats *out)
{
    const struct mr_sched *s = v->sched;
    int64_t last = 0;

    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; s && i <= s->options.reader_count; i++) {
        const struct sched_slot *slot = slot_at(s, i);
        if (!slot) {
            continue;
        }
        add_counters(out, &slot->stats, sizeof *out);
        last = MR_MAX(last, atomic_load_explicit(&slot->stats.last_wall_ns, memory_order_relaxed));
    }
    atomic_store_explicit(&out->last_wall_ns, last, memory_order_relaxed);
}

bool mr_sched_batch_stat(const struct mr_version *v, uint32_t batch_size, struct mr_batch_stat *out)
{
    const struct mr_sched *s = v->sched;

    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; s && i <= s->options.reader_count; i++) {
        const struct sched_slot *slot = slot_at(s, i);
        if (slot && batch_size >= 1 && batch_size <= slot->batch_stat_count) {
            add_counters(out, &slot->batches[batch_size - 1], sizeof *out);
        }
    }
    return mr_count_get(&out->compute_infer.count) > 0;
}

uint32_t mr_sched_batch_max(const struct mr_version *v)
{
    const struct mr_sched *s = v->sched;
    return s ? s->batch_stat_count : 0;
}

uint64_t mr_sched_pending(const struct mr_version *v)
{
    const struct mr_sched *s = v->sched;
    return s ? mr_count_get(&s->pending) : 0;
}

const char *mr_close_reason_name(enum mr_close_reason r)
{
    static const char *const names[MR_CLOSE_REASONS] = {
        "single", "full", "preferred", "delay", "no_company", "shape", "deadline",
    };
    return (unsigned)r < MR_CLOSE_REASONS ? names[r] : "unknown";
}
