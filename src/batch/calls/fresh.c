/* Rows that are in no call yet: cut into calls, from the oldest extent on, over the borders of extents where they fit. Rows
 * that cannot be sent die here. */
#include "fresh.h"

#include <stdio.h>

#include "base/clock.h"
#include "batch/common/credits.h"
#include "batch/common/extent.h"
#include "batch/common/figures.h"
#include "batch/common/work.h"
#include "batch/policy/grow.h"
#include "calls.h"

#define TAIL_NS     (5 * MR_NS_PER_MS)
#define JOINED_PART 16 /* of the memory a call may take that has rows of several extents */

void fresh_row_dies(struct calls *c, struct extent *e, struct dead_row d, const char *cause)
{
    d.cause = mr_strndup(cause, strlen(cause));
    figures_dead(&c->figures, d.kind, cause);
    if (d.host) {
        hosts_count_dead(c->hosts, d.host);
    }
    credits_move(c->credits, 0, d.answer.len);
    e->credit += d.answer.len;
    MR_VEC_PUSH(&e->dead, d);
    e->settled++;
    c->dead_rows++;
}

void fresh_extent_pass_on(struct calls *c, struct extent *e)
{
    if (e->settled == e->rows->count) {
        c->events.settled(c->events.ctx, e);
    }
}

/* The row's own fault, if it has one: what the source says, or what the inputs do not take. */
static bool row_is_bad(const struct calls *c, const struct extent *e, uint64_t row, char *why)
{
    const char *fault = e->rows->fault_count > 0 ? mr_rows_fault_of(e->rows, row) : NULL;

    if (fault) {
        snprintf(why, 256, "%s", fault);
        return true;
    }
    return !e->is_checked && c->model->dialect->is_bad(c->model, e->rows, row, why);
}

/* Rows of an extent that may go together, from the first one on that is in no call; those that are bad die. */
static struct row_range range_cut(struct calls *c, struct extent *e, uint64_t most)
{
    const bool may_be_bad = !e->is_checked || e->rows->fault_count > 0;
    const uint64_t begin = e->cut;
    char why[256];

    while (may_be_bad && e->cut < e->rows->count && row_is_bad(c, e, e->cut, why)) {
        fresh_row_dies(c, e, (struct dead_row){.row = e->cut++, .kind = "row"}, why);
    }
    c->waiting -= e->cut - begin;
    most = MR_MIN(most, e->rows->count - e->cut);
    uint64_t n = MR_MIN(most, (uint64_t)1);
    while (may_be_bad && n < most && !row_is_bad(c, e, e->cut + n, why)) {
        n++;
    }
    n = n == 0 ? 0 : c->model->dialect->together(c->model, e->rows, e->cut, may_be_bad ? n : most);
    return (struct row_range){e, e->cut, n};
}

/* May calls have rows of several places? What was a dead letter and is tried again is not: it may fail those beside it. */
static bool may_join(const struct calls *c)
{
    return c->model->dialect->joins && !c->o->start.retries_dead;
}

/* True if the range may be in one call with those before it, which take this many bytes with it. */
static bool range_joins(const struct calls *c, const struct row_range *first,
                        const struct row_range *s, uint64_t bytes)
{
    return may_join(c) && bytes <= c->credits->most / JOINED_PART &&
           c->model->dialect->joins(c->model, first->extent->rows, first->first, s->extent->rows,
                                    s->first);
}

/* At the end calls do not stay large: one would still run when all others are answered. */
static uint64_t tail_rows(const struct calls *c)
{
    return c->o->calls.grows && c->is_read
               ? MR_MAX(c->waiting / (c->in_flight_count + 1), (uint64_t)GROW_FIRST)
               : UINT64_MAX;
}

/* The next rows that may go together, of the oldest extents; NULL: there are none. */
static struct work *work_cut(struct calls *c)
{
    struct row_range ranges[RANGES_MOST];
    const uint64_t most = MR_MIN(call_rows_next(&c->rows), tail_rows(c));
    size_t count = 0;
    uint64_t rows = 0;
    uint64_t bytes = 0;

    while (c->extents.len > 0 && rows < most && count < RANGES_MOST) {
        struct extent *e = c->extents.at[0];
        const struct row_range s = range_cut(c, e, most - rows);
        bytes += s.count * (e->credit / e->rows->count);
        if (count > 0 && s.count > 0 && !range_joins(c, &ranges[0], &s, bytes)) {
            break;
        }
        if (s.count > 0) {
            ranges[count++] = s;
        }
        rows += s.count;
        e->cut += s.count;
        c->waiting -= s.count;
        if (e->cut == e->rows->count) {
            c->waiting_bytes -= e->rows->bytes;
            memmove(c->extents.at, c->extents.at + 1, --c->extents.len * sizeof *c->extents.at);
            fresh_extent_pass_on(c, e);
        }
    }
    if (count == 0) {
        return NULL;
    }
    struct work *w = work_new(ranges, count);
    w->is_trial = call_rows_cut(&c->rows, w->count);
    return w;
}

bool fresh_may_come(const struct calls *c)
{
    return !c->is_read && !c->o->filter && !credits_are_wanted(c->credits);
}

/* More rows may come soon that fill the call. */
static bool tail_waits(struct calls *c, int64_t now_ns, int64_t *io_wake_ns)
{
    if (c->waiting == 0 || c->waiting >= c->rows.now || c->state->is_plan || !may_join(c) ||
        !c->model->dialect->takes_rows(c->model) || !fresh_may_come(c)) {
        c->waiting_ns = 0;
        return false;
    }
    c->waiting_ns = c->waiting_ns ? c->waiting_ns : now_ns;
    const int64_t until_ns = mr_ns_after(c->waiting_ns, TAIL_NS);
    if (now_ns >= until_ns) {
        return false;
    }
    *io_wake_ns = MR_MIN(*io_wake_ns, until_ns);
    return true;
}

bool fresh_take(struct calls *c, int64_t now_ns, int64_t *io_wake_ns)
{
    if (!c->fresh && !tail_waits(c, now_ns, io_wake_ns)) {
        c->fresh = work_cut(c);
    }
    return c->fresh;
}
