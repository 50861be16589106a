/* The order of the input, kept by holding back what is ready before its turn. Private.
 *
 * Memory is not bounded here: what is held keeps its credit, so that the reader stops when the budget is used up. What the
 * turn waits for was read before all that waits for it, and needs no more credit, so this ends.
 *
 * Thread: one. */
#ifndef MR_BATCH_ORDER_H
#define MR_BATCH_ORDER_H

#include "batch/common/credits.h"
#include "batch/common/extent.h"

struct order {
    bool is_free;        /* whatever is here has its turn, as it came */
    uint64_t next;       /* number of the extent whose turn it is */
    struct extent *held; /* that wait for it, by their numbers, linked by `next` */
    struct extent *last;
    struct extent *late; /* that were passed over, the same */
    uint64_t bytes;      /* of credit, of both */
    int64_t since_ns;    /* something is here all the time since then */
};

/** Takes the extent. */
void order_put(struct order *o, struct extent *e);
/** The one whose turn it is, the caller's; NULL: it has not come. */
struct extent *order_take(struct order *o);
/** The turn goes to the first one that is here; those before it are late. False: there is none. */
bool order_pass(struct order *o);
/** The first one that came after it was passed over, the caller's; NULL: none. */
struct extent *order_late(struct order *o);
/** Frees all that is here; it is done again another time. */
void order_drop(struct order *o, struct credits *credits);

/** What became of the rows of an extent, by their numbers. */
void order_extent_sort(struct extent *e);

#endif
