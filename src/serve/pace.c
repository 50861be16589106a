/* The pace of a stream: a client that does not read its answers is not read from.
 *
 * net says how many bytes wait, but not when they have gone; while they are too many this looks again every few
 * milliseconds. On the stream's network thread. */
#include "serve_private.h"

#define BACKLOG_MAX (8u << 20)
#define LOOK_NS     (5 * MR_NS_PER_MS)

static void look_again(struct mr_timer *t)
{
    struct serve_pace *p = MR_CONTAINER_OF(t, struct serve_pace, timer);

    pace_set(p, p->is_busy);
}

void pace_set(struct serve_pace *p, bool is_busy)
{
    bool is_behind = mr_call_backlog(p->call) > BACKLOG_MAX;

    p->is_busy = is_busy;
    if (is_behind && !p->timer.active)
        mr_timer_start(p->call->loop, &p->timer, LOOK_NS, 0, look_again);
    if ((is_busy || is_behind) == p->is_paused)
        return;
    p->is_paused = !p->is_paused;
    mr_call_pause(p->call, p->is_paused);
}

void pace_end(struct serve_pace *p)
{
    mr_timer_stop(&p->timer);
}
