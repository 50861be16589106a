/* Back-pressure by memory. While little of the memory budget is left, a body that needs a block of its own is not read:
 * its connection waits in a queue, TCP stops its peer, and it is read again, oldest first, once memory has been
 * given back. A body that already has its block may use the rest of the budget, so that it ends and its memory
 * is given back. A body that waits longer than the body timeout is refused.
 *
 * Memory is given back on any thread without a notification, so this looks every few milliseconds while a connection
 * waits. Thread: loop. */
#include "server.h"

#define POLL_NS (5 * MR_NS_PER_MS)

static void memory_poll(struct mr_timer *t)
{
    struct mr_server_part *part = MR_CONTAINER_OF(t, struct mr_server_part, memory_timer);
    struct mr_conn *last = TAILQ_LAST(&part->waits_memory, mr_memory_backpressure);
    struct mr_conn *c;

    /* Connections that have to wait again are queued after `last`. */
    while ((c = TAILQ_FIRST(&part->waits_memory)) && !mr_block_is_scarce()) {
        bool is_last = c == last;
        mr_memory_backpressure_remove(c);
        c->proto->memory_back(c);
        mr_conn_run(c);
        if (is_last) {
            break;
        }
    }
}

void mr_memory_backpressure_add(struct mr_conn *c)
{
    struct mr_server_part *part = c->part;

    if (c->waits_memory) {
        return;
    }
    c->waits_memory = true;
    if (TAILQ_EMPTY(&part->waits_memory)) {
        mr_timer_start(part->loop, &part->memory_timer, POLL_NS, POLL_NS, memory_poll);
    }
    TAILQ_INSERT_TAIL(&part->waits_memory, c, memory_link);
}

void mr_memory_backpressure_remove(struct mr_conn *c)
{
    struct mr_server_part *part = c->part;

    if (!c->waits_memory) {
        return;
    }
    c->waits_memory = false;
    TAILQ_REMOVE(&part->waits_memory, c, memory_link);
    if (TAILQ_EMPTY(&part->waits_memory)) {
        mr_timer_stop(&part->memory_timer);
    }
}
