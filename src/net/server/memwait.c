/* Connections that wait for memory. When little of the byte budget is left, a body that would need a block of its
 * own is not read: its connection stands here, its peer is stopped by TCP, and it goes on when memory has come
 * back, oldest first. What has its block already may use what is left, so that it can be finished and the memory
 * comes back; a body that waits longer than the body timeout is refused.
 *
 * Memory is given back on any thread, so that nobody tells: while somebody waits, this looks every few
 * milliseconds. Thread: loop. */
#include "server.h"

#define LOOK_NS (5 * MR_NS_PER_MS)

static void look(struct mr_timer *t)
{
    struct mr_server_part *part = MR_CONTAINER_OF(t, struct mr_server_part, memory_timer);
    struct mr_conn *last = TAILQ_LAST(&part->waits_memory, mr_memwait);
    struct mr_conn *c;

    /* Those that stand in line again do so behind `last`. */
    while ((c = TAILQ_FIRST(&part->waits_memory)) && !mr_block_is_scarce()) {
        bool is_last = c == last;
        mr_memwait_remove(c);
        c->proto->memory_back(c);
        mr_conn_run(c);
        if (is_last) {
            break;
        }
    }
}

void mr_memwait_add(struct mr_conn *c)
{
    struct mr_server_part *part = c->part;

    if (c->waits_memory) {
        return;
    }
    c->waits_memory = true;
    if (TAILQ_EMPTY(&part->waits_memory)) {
        mr_timer_start(part->loop, &part->memory_timer, LOOK_NS, LOOK_NS, look);
    }
    TAILQ_INSERT_TAIL(&part->waits_memory, c, memory_link);
}

void mr_memwait_remove(struct mr_conn *c)
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
