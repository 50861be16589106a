#include "hang.h"

#include "base/clock.h"
#include "base/mem.h"

#define LEAST_NS (250 * MR_NS_PER_MS)
#define TIMES    4 /* what is usual may be exceeded so many times */
#define IDLE_NS  (250 * MR_NS_PER_MS)

/* What it may take. A worker that has nothing says every 20 ms that it lives. */
static int64_t limit_of(const struct hang_look *l)
{
    if (!l->is_running) {
        return IDLE_NS;
    }
    return l->typical_ns > 0 ? MR_MAX(LEAST_NS, TIMES * l->typical_ns) : l->most_ns;
}

bool hang_judge(struct hang *h, const struct hang_look *l)
{
    if (!l->has_work || !h->is_judged || l->progress != h->progress) {
        *h = (struct hang){.progress = l->progress,
                           .since_ns = l->now_ns,
                           .cpu_ns = l->cpu_ns,
                           .delay_ns = l->delay_ns,
                           .looked_ns = l->now_ns,
                           .is_judged = l->has_work};
        return false;
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
    return l->now_ns - h->since_ns - h->excused_ns > limit_of(l);
}
