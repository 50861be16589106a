/* Large bodies are read in large pieces: while much of one is missing, the kernel wakes the loop when a large part
 * has arrived (SO_RCVLOWAT) and not for each packet. The threshold never exceeds what the protocol lets the peer send
 * now (mr_proto.coming).
 *
 * The peer may stop in the middle, and frames of other streams may follow the awaited data, so each piece has a
 * timeout after which the bytes received so far are read. A piece that misses it halves the next ones, down to no
 * waiting; reads that return a whole piece double them again. So a slow peer is served as its bytes arrive, and a
 * fast one with a few wake-ups per megabyte.
 *
 * The timer is not stopped when a piece has arrived but checks the time when it fires: at most one wake-up per
 * GATHER_NS.
 *
 * Thread: loop. */
#include <sys/socket.h>

#include "conn.h"

#define GATHER_LEAST ((size_t)64 * 1024) /* smaller pieces are not worth the calls */
#define GATHER_MOST  ((size_t)256 * 1024)
#define GATHER_NS    MR_NS_PER_MS

void mr_gather_init(struct mr_gather *g)
{
    *g = (struct mr_gather){.bytes = 1, .most = GATHER_MOST};
}

static void ask(struct mr_conn *c, size_t bytes)
{
    int n = (int)bytes;

    if (c->gather.bytes != bytes) {
        c->gather.bytes = bytes;
        /* A failure only causes more wake-ups. */
        (void)setsockopt(c->fd, SOL_SOCKET, SO_RCVLOWAT, &n, sizeof n);
    }
}

static void on_time(struct mr_timer *t)
{
    struct mr_conn *c = MR_CONTAINER_OF(t, struct mr_conn, gather.timer);
    struct mr_gather *g = &c->gather;
    int64_t left_ns = mr_ns_after(g->since_ns, GATHER_NS) - c->loop->now_ns;

    if (g->bytes <= 1) {
        return;
    }
    if (left_ns > 0) {
        mr_timer_start(c->loop, t, left_ns, 0, on_time);
        return;
    }
    g->most = MR_MAX(g->most / 2, GATHER_LEAST / 2);
    ask(c, 1);
}

void mr_gather_note(struct mr_conn *c, size_t wanted, size_t got)
{
    struct mr_gather *g = &c->gather;

    g->since_ns = c->loop->now_ns;
    g->is_drained = got < wanted;
    if (got >= g->most) {
        g->most = MR_MIN(g->most * 2, GATHER_MOST);
    }
}

void mr_gather_settle(struct mr_conn *c, size_t coming)
{
    struct mr_gather *g = &c->gather;
    size_t bytes = MR_MIN(coming, g->most);

    if (bytes < GATHER_LEAST) {
        ask(c, 1);
        return;
    }
    if (g->bytes <= 1) {
        if (!g->is_drained) {
            return; /* more can be read at once */
        }
        g->since_ns = c->loop->now_ns;
    }
    ask(c, bytes);
    if (!g->timer.active) {
        mr_timer_start(c->loop, &g->timer, GATHER_NS, 0, on_time);
    }
}
