/* Timers and coarse deadlines of a loop.
 *
 * Exact timers are a pairing heap over the caller's structs: starting is O(1), stopping and firing
 * O(log n) amortised, nothing is allocated. loop.c arms one timerfd for the earliest (see there).
 *
 * Deadlines of connections are many and hardly ever expire, so they are kept in a wheel of 250 ms slots and moved
 * lazily: setting one later than before is a store. The wheel ticks only while it is not empty.
 *
 * Thread: loop. */
#include "loop_priv.h"

/* heap_node: [0] first child, [1] next sibling, [2] previous sibling, or parent of a first child.
 */
#define CHILD   0
#define SIBLING 1
#define BACK    2

static struct mr_timer *node(const struct mr_timer *t, int which)
{
    return t->heap_node[which];
}

static bool is_before(const struct mr_timer *a, const struct mr_timer *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->seq < b->seq;
}

/* Merge two heaps whose roots have no siblings. */
static struct mr_timer *merge(struct mr_timer *a, struct mr_timer *b)
{
    if (!a || !b) {
        return a ? a : b;
    }
    if (is_before(b, a)) {
        struct mr_timer *t = a;
        a = b;
        b = t;
    }
    struct mr_timer *child = node(a, CHILD);
    b->heap_node[SIBLING] = child;
    b->heap_node[BACK] = a;
    if (child) {
        child->heap_node[BACK] = b;
    }
    a->heap_node[CHILD] = b;
    return a;
}

/* Two passes over a list of siblings: merge pairs left to right, then all right to left. */
static struct mr_timer *merge_siblings(struct mr_timer *first)
{
    struct mr_timer *pairs = NULL;

    while (first) {
        struct mr_timer *a = first;
        struct mr_timer *b = node(a, SIBLING);
        first = b ? node(b, SIBLING) : NULL;
        a->heap_node[SIBLING] = a->heap_node[BACK] = NULL;
        if (b) {
            b->heap_node[SIBLING] = b->heap_node[BACK] = NULL;
        }
        a = merge(a, b);
        a->heap_node[SIBLING] = pairs;
        pairs = a;
    }
    struct mr_timer *root = NULL;
    while (pairs) {
        struct mr_timer *next = node(pairs, SIBLING);
        pairs->heap_node[SIBLING] = NULL;
        root = merge(root, pairs);
        pairs = next;
    }
    return root;
}

static void heap_remove(struct mr_loop *loop, struct mr_timer *t)
{
    struct mr_timer *below = merge_siblings(node(t, CHILD));

    if (loop->timers == t) {
        loop->timers = below;
    } else {
        struct mr_timer *back = node(t, BACK);
        struct mr_timer *next = node(t, SIBLING);
        if (node(back, CHILD) == t) {
            back->heap_node[CHILD] = next;
        } else {
            back->heap_node[SIBLING] = next;
        }
        if (next) {
            next->heap_node[BACK] = back;
        }
        loop->timers = merge(loop->timers, below);
    }
    t->heap_node[CHILD] = t->heap_node[SIBLING] = t->heap_node[BACK] = NULL;
}

static void heap_insert(struct mr_loop *loop, struct mr_timer *t, int64_t at_ns)
{
    t->at_ns = at_ns;
    t->seq = ++loop->timer_seq;
    t->active = true;
    loop->timers = merge(loop->timers, t);
}

void mr_timer_start(struct mr_loop *loop, struct mr_timer *t, int64_t delay_ns, int64_t repeat_ns,
                    void (*fn)(struct mr_timer *t))
{
    if (t->active) {
        mr_timer_stop(t);
    }
    *t = (struct mr_timer){.loop = loop, .fn = fn, .repeat_ns = repeat_ns};
    heap_insert(loop, t, mr_ns_after(loop->now_ns ? loop->now_ns : mr_now_ns(), delay_ns));
}

void mr_timer_stop(struct mr_timer *t)
{
    if (t->active) {
        t->active = false;
        heap_remove(t->loop, t);
    }
}

int64_t mr_timers_run(struct mr_loop *loop)
{
    /* Timers started by callbacks that run now wait for the next round, however short they are. */
    int64_t last_seq = loop->timer_seq;
    struct mr_timer *t;

    while ((t = loop->timers) && t->at_ns <= loop->now_ns && t->seq <= last_seq) {
        heap_remove(loop, t);
        t->active = false;
        if (t->repeat_ns > 0) {
            /* Missed ticks are skipped. */
            int64_t at = mr_ns_after(t->at_ns, t->repeat_ns);
            heap_insert(loop, t, at > loop->now_ns ? at : mr_ns_after(loop->now_ns, t->repeat_ns));
        }
        t->fn(t);
    }
    return loop->timers ? loop->timers->at_ns : 0;
}

/* ---- the wheel ------------------------------------------------------------------------------ */

static void slot_unlink(struct mr_loop *loop, struct mr_deadline *d)
{
    d->prev->next = d->next;
    d->next->prev = d->prev;
    d->next = d->prev = NULL;
    loop->wheel.count--;
}

static void wheel_tick(struct mr_timer *t);

static void slot_link(struct mr_loop *loop, struct mr_deadline *d)
{
    struct mr_wheel *w = &loop->wheel;

    if (!w->timer.active) {
        w->tick = loop->now_ns / MR_WHEEL_TICK_NS;
        mr_timer_start(loop, &w->timer, MR_WHEEL_TICK_NS, MR_WHEEL_TICK_NS, wheel_tick);
    }
    int64_t tick = d->at_ns / MR_WHEEL_TICK_NS + 1;
    tick = MR_MAX(tick, w->tick + 1);
    tick = MR_MIN(tick, w->tick + MR_WHEEL_SLOTS - 1);
    struct mr_deadline *head = &w->slots[tick % MR_WHEEL_SLOTS];
    d->slot_ns = tick * MR_WHEEL_TICK_NS;
    d->next = head;
    d->prev = head->prev;
    head->prev->next = d;
    head->prev = d;
    w->count++;
}

static void slot_run(struct mr_loop *loop, struct mr_deadline *head)
{
    /* Removed from the wheel first: a callback may set deadlines, also in this slot. */
    struct mr_deadline todo = *head;

    if (head->next == head) {
        return;
    }
    todo.next->prev = todo.prev->next = &todo;
    head->next = head->prev = head;
    while (todo.next != &todo) {
        struct mr_deadline *d = todo.next;
        slot_unlink(loop, d);
        if (d->at_ns == 0) {
            continue;
        }
        if (d->at_ns > loop->now_ns) {
            slot_link(loop, d);
        } else {
            d->at_ns = 0;
            d->fn(d);
        }
    }
}

static void wheel_tick(struct mr_timer *t)
{
    struct mr_loop *loop = t->loop;
    struct mr_wheel *w = &loop->wheel;
    int64_t now_tick = loop->now_ns / MR_WHEEL_TICK_NS;
    /* After a long stall one round checks every slot. */
    int64_t from = MR_MAX(w->tick + 1, now_tick - MR_WHEEL_SLOTS + 1);

    w->tick = now_tick;
    for (int64_t i = from; i <= now_tick; i++) {
        slot_run(loop, &w->slots[i % MR_WHEEL_SLOTS]);
    }
    if (w->count == 0) {
        mr_timer_stop(t);
    }
}

void mr_deadline_set(struct mr_loop *loop, struct mr_deadline *d, int64_t at_ns)
{
    d->at_ns = at_ns;
    if (at_ns == 0 || (d->prev && at_ns >= d->slot_ns - MR_WHEEL_TICK_NS)) {
        return;
    }
    if (d->prev) {
        slot_unlink(loop, d);
    }
    slot_link(loop, d);
}

void mr_deadline_clear(struct mr_loop *loop, struct mr_deadline *d)
{
    d->at_ns = 0;
    if (d->prev) {
        slot_unlink(loop, d);
    }
}

void mr_wheel_init(struct mr_loop *loop)
{
    for (size_t i = 0; i < MR_WHEEL_SLOTS; i++) {
        struct mr_deadline *head = &loop->wheel.slots[i];
        head->next = head->prev = head;
    }
}
