#include "grow.h"

#include "base/clock.h"
#include "base/mem.h"

#define MEASURE_NS    (150 * MR_NS_PER_MS)
#define SETTLE_NS     (50 * MR_NS_PER_MS)
#define MEASURE_CALLS 24
#define TRY_CALLS     64   /* that are answered without one of more rows among them */
#define ALIKE         0.15 /* two measurements differ by less */

void grow_begin(struct grow *g)
{
    *g = (struct grow){.phase = GROW_WARM, .rows = GROW_FIRST};
}

static void measure_begin(struct grow *g, const struct grow_now *now)
{
    g->from_ns = now->ns;
    g->from_done = now->done;
    g->from_calls = now->calls;
}

static void phase_set(struct grow *g, enum grow_phase phase, const struct grow_now *now)
{
    g->phase = phase;
    measure_begin(g, now);
}

/* True: it has come to its end, and there is a rate. Hosts that had to wait for rows begin it again. */
static bool measure_ends(struct grow *g, const struct grow_now *now, double *out_rate)
{
    if (g->from_ns == 0 || !now->waits) {
        measure_begin(g, now);
        return false;
    }
    const int64_t ns = now->ns - g->from_ns;
    if (ns < (g->phase == GROW_SETTLE ? SETTLE_NS : MEASURE_NS) ||
        now->calls - g->from_calls < MEASURE_CALLS) {
        return false;
    }
    *out_rate = (double)(now->done - g->from_done) * (double)MR_NS_PER_S / (double)ns;
    measure_begin(g, now);
    return true;
}

static void try_begin(struct grow *g, const struct grow_now *now)
{
    const uint64_t most = MR_MIN((uint64_t)GROW_MOST, now->affords);

    phase_set(g, 2 * g->rows <= most ? GROW_TRY : GROW_OFF, now);
}

static void warm_evaluate(struct grow *g, const struct grow_now *now)
{
    double rate = 0;

    if (!measure_ends(g, now, &rate)) {
        return;
    }
    const bool is_alike = rate < g->rate * (1 + ALIKE) && rate > g->rate * (1 - ALIKE);
    g->rate = rate;
    if (is_alike) {
        try_begin(g, now);
    }
}

static void try_evaluate(struct grow *g, const struct grow_now *now)
{
    if (now->taken >= 2 * g->rows) {
        phase_set(g, GROW_SETTLE, now);
    } else if (now->most < 2 * g->rows || now->calls - g->from_calls >= TRY_CALLS) {
        phase_set(g, GROW_OFF, now);
    }
}

static void measure_evaluate(struct grow *g, const struct grow_now *now)
{
    double rate = 0;

    if (!measure_ends(g, now, &rate)) {
        return;
    }
    if (g->phase == GROW_SETTLE) {
        g->phase = GROW_MEASURE;
    } else if (rate < g->rate * GROW_PAYS) {
        g->phase = GROW_OFF;
    } else {
        g->rows *= 2;
        g->rate = rate;
        try_begin(g, now);
    }
}

uint64_t grow_evaluate(struct grow *g, const struct grow_now *now)
{
    switch (g->phase) {
    case GROW_WARM: warm_evaluate(g, now); break;
    case GROW_TRY: try_evaluate(g, now); break;
    case GROW_SETTLE:
    case GROW_MEASURE:
        if (now->most < 2 * g->rows || now->taken < 2 * g->rows) {
            g->phase = GROW_OFF; /* hosts refuse it, or fail */
        }
        break;
    case GROW_OFF: break;
    }
    if (g->phase == GROW_SETTLE || g->phase == GROW_MEASURE) {
        measure_evaluate(g, now);
    }
    return g->phase == GROW_OFF || g->phase == GROW_WARM ? g->rows : 2 * g->rows;
}
