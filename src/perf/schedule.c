/* Slots of an open loop. Equal gaps are multiplied, not added up, so that no rounding drifts. */
#include "schedule.h"

#include <math.h>

#include "base/clock.h"

void perf_schedule_init(struct perf_schedule *s, double rate, bool poisson, uint64_t seed,
                        int64_t begin_ns, uint32_t index, uint32_t count)
{
    double gap = (double)MR_NS_PER_S / rate;

    *s = (struct perf_schedule){
        .begin_ns = begin_ns, .gap_ns = gap * count, .first_ns = gap * index, .poisson = poisson};
    mr_rng_seed(&s->rng, seed + index);
}

int64_t perf_schedule_next(struct perf_schedule *s)
{
    if (s->poisson) {
        s->at_ns += -log1p(-mr_rng_unit(&s->rng)) * s->gap_ns;
        return s->begin_ns + (int64_t)s->at_ns;
    }
    return s->begin_ns + (int64_t)(s->first_ns + (double)s->n++ * s->gap_ns);
}
