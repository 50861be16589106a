#include "hang.h"

#include "base/clock.h"
#include "base/mem.h"

#define LEAST_NS (250 * MR_NS_PER_MS)
#define TIMES    4 /* the limit is the usual time multiplied by this */
#define IDLE_NS  (250 * MR_NS_PER_MS)

/* The limit of the time that counts. Every sweep wakes idle workers while executions wait. A thread that uses its CPU may
 * have more to compute than ever before: the caller says how long it has at least. */
static int64_t limit_of(const struct hang *h, const struct hang_sample *l)
{
    const int64_t usual = MR_MAX(LEAST_NS, TIMES * l->typical_ns);

    if (!l->is_running) {
        return l->is_starting ? l->most_ns : IDLE_NS;
    }
    if (l->typical_ns == 0) {
        return l->most_ns;
    }
    if (h->is_computing) {
        return MR_MAX(usual, l->compute_ns);
    }
    return l->may_wait ? MR_MAX(usual, l->most_ns) : usual;
}

int64_t hang_judge(struct hang *h, const struct hang_sample *l)
{
    if (!l->has_work || !h->is_judged || l->progress != h->progress ||
        l->is_running != h->is_running) {
        *h = (struct hang){.progress = l->progress,
                           .since_ns = l->now_ns,
                           .first_cpu_ns = l->cpu_ns,
                           .cpu_ns = l->cpu_ns,
                           .delay_ns = l->delay_ns,
                           .looked_ns = l->now_ns,
                           .is_judged = l->has_work,
                           .is_running = l->is_running};
        return 0;
    }
    h->excused_ns += l->gap_ns;
    if (l->delay_ns > h->delay_ns) {
        h->excused_ns += l->delay_ns - h->delay_ns;
    } else if (l->is_runnable && l->cpu_ns == h->cpu_ns) {
        h->excused_ns += l->now_ns - h->looked_ns; /* it still waits for a CPU */
    }
    h->cpu_ns = l->cpu_ns;
    h->delay_ns = l->delay_ns;
    h->looked_ns = l->now_ns;
    const int64_t counted = l->now_ns - h->since_ns - h->excused_ns;
    h->is_computing = l->is_running && l->cpu_ns - h->first_cpu_ns > counted / 4;
    const int64_t limit = limit_of(h, l);
    return counted > limit ? limit : 0;
}
