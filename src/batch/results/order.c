/* Lists of extents by their numbers. Most come in order or nearly so, hence the short cut to the end. */
#include "order.h"

#include <stdlib.h>

#include "base/clock.h"
#include "batch/common/credits.h"
#include "batch/common/extent.h"

static void insert(struct extent **at, struct extent *e)
{
    while (*at && (*at)->number < e->number) {
        at = &(*at)->next;
    }
    e->next = *at;
    *at = e;
}

static struct extent *first_take(struct order *o, struct extent **list)
{
    struct extent *e = *list;

    if (e) {
        *list = e->next;
        o->last = o->held ? o->last : NULL;
        o->bytes -= e->credit;
    }
    return e;
}

void order_put(struct order *o, struct extent *e)
{
    o->since_ns = o->held || o->late ? o->since_ns : mr_now_ns();
    o->bytes += e->credit;
    if (!o->is_free && e->number < o->next) {
        insert(&o->late, e);
    } else if (o->last && (o->is_free || o->last->number < e->number)) {
        e->next = NULL;
        o->last = o->last->next = e;
    } else {
        insert(&o->held, e);
        o->last = e->next ? o->last : e;
    }
}

struct extent *order_take(struct order *o)
{
    struct extent *e =
        o->held && (o->is_free || o->held->number == o->next) ? first_take(o, &o->held) : NULL;

    o->next = e ? e->number + 1 : o->next;
    return e;
}

bool order_pass(struct order *o)
{
    o->next = o->held ? o->held->number : o->next;
    return o->held;
}

struct extent *order_late(struct order *o)
{
    return first_take(o, &o->late);
}

void order_drop(struct order *o, struct credits *credits)
{
    struct extent *e;

    while ((e = first_take(o, o->held ? &o->held : &o->late))) {
        credits_give(credits, e->credit);
        extent_free(&e);
    }
}

static int answers_compare(const void *a, const void *b)
{
    const uint64_t x = ((const struct extent_answer *)a)->first;
    const uint64_t y = ((const struct extent_answer *)b)->first;

    return x < y ? -1 : x > y;
}

static int dead_compare(const void *a, const void *b)
{
    const uint64_t x = ((const struct dead_row *)a)->row;
    const uint64_t y = ((const struct dead_row *)b)->row;

    return x < y ? -1 : x > y;
}

void order_extent_sort(struct extent *e)
{
    if (e->answers.len > 1) {
        qsort(e->answers.at, e->answers.len, sizeof *e->answers.at, answers_compare);
    }
    if (e->dead.len > 1) {
        qsort(e->dead.at, e->dead.len, sizeof *e->dead.at, dead_compare);
    }
}
