#include "growth.h"

#include "base/clock.h"
#include "base/mem.h"
#include "batch/common/extent.h"
#include "batch/hosts/hosts.h"
#include "batch/policy/grow.h"
#include "calls.h"

#define GROWN_PART 64 /* of the memory, that a call may take */
#define POLL_NS    (10 * MR_NS_PER_MS)

/* Rows of a call that take a small part of the memory, by those that are next. */
static uint64_t rows_afforded(const struct calls *c)
{
    const struct extent *e = c->extents.len > 0 ? c->extents.at[0] : NULL;
    const uint64_t each = e ? MR_MAX(e->credit / e->rows->count, (uint64_t)1) : UINT64_MAX;

    return c->credits->most / GROWN_PART / each;
}

void growth_tick(struct calls *c, int64_t now_ns)
{
    struct grow_now now = {.ns = now_ns,
                           .calls = c->policy.ok,
                           .taken = c->rows.now,
                           .most = c->rows.most,
                           .affords = rows_afforded(c),
                           .waits = c->waiting >= 2 * c->rows.now && !c->retries.first &&
                                    !c->state->is_paused};

    if (c->grow.phase == GROW_OFF || now_ns - c->grow.looked_ns < POLL_NS) {
        return;
    }
    c->grow.looked_ns = now_ns;
    for (size_t i = 0; i < c->hosts->list.len; i++) {
        now.done += c->hosts->list.at[i]->rows;
    }
    const uint64_t most = grow_evaluate(&c->grow, &now);
    if (most > c->rows.most && c->grow.phase == GROW_TRY) {
        call_rows_raise(&c->rows, most);
        hosts_bound(c->hosts, c->rows.most);
    } else if (most < c->rows.most) {
        call_rows_limit(&c->rows, most);
    }
}
