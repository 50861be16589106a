/* Slots of an open loop. Each has a number in the sequence of all threads' slots, and the pace gives its time.
 * Numbers are counted instead of adding gaps, so that rounding errors do not accumulate. */
#include "schedule.h"

#include <math.h>

#include "base/clock.h"

void perf_schedule_init(struct perf_schedule *s, const struct perf_pace *pace, bool poisson,
                        uint64_t seed, int64_t begin_ns, uint32_t index, uint32_t count)
{
    *s = (struct perf_schedule){
        .pace = *pace, .begin_ns = begin_ns, .poisson = poisson, .index = index, .count = count};
    mr_rng_seed(&s->rng, seed + index);
}

/* Seconds from the start until `place` slots are due: the inverse of the pace's integral. */
static double due_s(const struct perf_pace *p, double place)
{
    const double flat_s = (double)p->flat_ns / (double)MR_NS_PER_S;
    const double ramp_s = (double)p->ramp_ns / (double)MR_NS_PER_S;
    const double rest = place - p->from * flat_s;

    if (p->ramp_ns == 0 || rest <= 0) {
        return place / p->from;
    }
    const double in_ramp = (p->from + p->to) / 2 * ramp_s;
    if (rest >= in_ramp) {
        return flat_s + ramp_s + (rest - in_ramp) / p->to;
    }
    /* The root of from * t + slope / 2 * t^2 = rest, in a form that does not divide by a slope of 0. */
    const double slope = (p->to - p->from) / ramp_s;
    return flat_s + 2 * rest / (p->from + sqrt(p->from * p->from + 2 * slope * rest));
}

int64_t perf_schedule_next(struct perf_schedule *s)
{
    if (s->poisson) {
        s->place += -log1p(-mr_rng_unit(&s->rng)) * s->count;
    } else {
        s->place = (double)s->n++ * s->count + s->index;
    }
    return s->begin_ns + (int64_t)(due_s(&s->pace, s->place) * (double)MR_NS_PER_S);
}
