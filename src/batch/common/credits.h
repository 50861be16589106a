/* Bytes of rows and answers under way, which the reader takes before it reads. Any thread. */
#ifndef MR_BATCH_CREDITS_H
#define MR_BATCH_CREDITS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct credits {
    pthread_mutex_t lock; /* guards what follows; held for a few instructions */
    pthread_cond_t more;
    uint64_t most;
    uint64_t limit; /* what of it is for extents */
    uint64_t taken;
    bool is_waited_for;
    bool is_held;
    bool is_closed;
};
void credits_init(struct credits *c, uint64_t most);
void credits_fini(struct credits *c);
/** Waits until `bytes` are free, or none are taken: an extent larger than the budget runs alone. False: closed. */
bool credits_take(struct credits *c, uint64_t bytes);
/** Corrects an estimate, without waiting. */
void credits_move(struct credits *c, uint64_t from, uint64_t to);
void credits_give(struct credits *c, uint64_t bytes);
/** True if credits_take waits because too few are free. */
bool credits_are_wanted(struct credits *c);
/** Reserves bytes for other uses and takes them from those for extents, at most half of them. */
void credits_reserve(struct credits *c, uint64_t bytes);
/** What is for extents. */
uint64_t credits_limit(struct credits *c);
/** While is_held, credits_take waits however many are free. */
void credits_hold(struct credits *c, bool is_held);
/** True if taken credits exceed the limit. */
bool credits_are_short(struct credits *c);
/** credits_take returns false afterwards. */
void credits_close(struct credits *c);

#endif
