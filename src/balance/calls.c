/* The table of calls in flight and of slots that failures keep, and the heap of when those end. Entries are
 * reused; a ticket carries the generation of its entry, so that one that is reported twice finds nothing. */
#include "balance_priv.h"

uint32_t call_flight_new(struct mr_balance *r)
{
    if (r->free_flight == 0) {
        struct balance_flight none = {.state = CALL_FREE};
        MR_VEC_PUSH(&r->flights, none);
        r->free_flight = (uint32_t)r->flights.len;
    }
    uint32_t index = r->free_flight - 1;
    struct balance_flight *f = &r->flights.at[index];
    uint32_t generation = f->generation + 1;

    r->free_flight = f->next_free;
    *f = (struct balance_flight){.state = CALL_FLYING, .generation = generation};
    return index;
}

uint64_t call_flight_ticket(const struct mr_balance *r, uint32_t index)
{
    return (uint64_t)r->flights.at[index].generation << 32 | (index + 1);
}

struct balance_flight *call_flight_find(struct mr_balance *r, uint64_t ticket)
{
    uint32_t index = (uint32_t)ticket - 1; /* ticket 0 gives one that is out of range */
    struct balance_flight *f;

    if (index >= r->flights.len) {
        return NULL;
    }
    f = &r->flights.at[index];
    return f->state == CALL_FLYING && f->generation == ticket >> 32 ? f : NULL;
}

void call_flight_free(struct mr_balance *r, uint32_t index)
{
    struct balance_flight *f = &r->flights.at[index];

    f->state = CALL_FREE;
    f->host = NULL;
    f->next_free = r->free_flight;
    r->free_flight = index + 1;
}

static void heap_swap(struct mr_balance *r, size_t a, size_t b)
{
    struct balance_hold x = r->holds.at[a];

    r->holds.at[a] = r->holds.at[b];
    r->holds.at[b] = x;
}

static void heap_sink(struct mr_balance *r, size_t at)
{
    for (;;) {
        size_t child = 2 * at + 1;

        if (child >= r->holds.len) {
            return;
        }
        if (child + 1 < r->holds.len &&
            r->holds.at[child + 1].until_ns < r->holds.at[child].until_ns) {
            child++;
        }
        if (r->holds.at[at].until_ns <= r->holds.at[child].until_ns) {
            return;
        }
        heap_swap(r, at, child);
        at = child;
    }
}

void call_hold_add(struct mr_balance *r, uint32_t index, int64_t until_ns)
{
    struct balance_hold hold = {until_ns, index};
    struct balance_flight *f = &r->flights.at[index];
    size_t at = r->holds.len;

    f->state = CALL_HELD;
    f->host->held++;
    MR_VEC_PUSH(&r->holds, hold);
    while (at > 0 && r->holds.at[(at - 1) / 2].until_ns > until_ns) {
        heap_swap(r, at, (at - 1) / 2);
        at = (at - 1) / 2;
    }
}

static void hold_end(struct mr_balance *r, uint32_t index)
{
    r->flights.at[index].host->held--;
    call_flight_free(r, index);
}

void call_holds_expire(struct mr_balance *r)
{
    while (r->holds.len > 0 && r->holds.at[0].until_ns <= r->now_ns) {
        hold_end(r, r->holds.at[0].index);
        r->holds.at[0] = r->holds.at[--r->holds.len];
        heap_sink(r, 0);
    }
}

void call_holds_drop(struct mr_balance *r, struct balance_host *h)
{
    size_t kept = 0;

    if (h->held == 0) {
        return;
    }
    for (size_t i = 0; i < r->holds.len; i++) {
        if (r->flights.at[r->holds.at[i].index].host == h) {
            hold_end(r, r->holds.at[i].index);
        } else {
            r->holds.at[kept++] = r->holds.at[i];
        }
    }
    r->holds.len = kept;
    for (size_t i = kept / 2; i-- > 0;) {
        heap_sink(r, i);
    }
}
