/* Large bodies are read in large pieces: while much of one is missing, the kernel wakes the loop when a good part of it
 * has come (SO_RCVLOWAT) and not for each packet. What is asked for is never more than what the peer may send now, as
 * the protocol knows it (mr_proto.coming).
 *
 * The peer may stop in the middle all the same, and frames of other streams come behind what is waited for, so each
 * piece has a time after which whatever has come is read. A piece that did not come in that time halves the next ones,
 * down to where there is no waiting; reads that give as much as a piece double them again. So a slow peer is served as
 * its bytes come, and a fast one with some wake-ups for a megabyte.
 *
 * The timer is not stopped when a piece has come but looks at the time again when it fires: it costs one wake-up in
 * GATHER_NS at most.
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
        /* Where it fails, more wake-ups are all that comes of it. */
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
            return; /* there is more to be read at once */
        }
        g->since_ns = c->loop->now_ns;
    }
    ask(c, bytes);
    if (!g->timer.active) {
        mr_timer_start(c->loop, &g->timer, GATHER_NS, 0, on_time);
    }
}
