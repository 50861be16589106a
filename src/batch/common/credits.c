/* The budget of bytes under way. Only the reader takes from it, so no thread that gives back ever waits for it. */
#include "credits.h"
#include "base/mem.h"

void credits_init(struct credits *c, uint64_t most)
{
    *c = (struct credits){.most = most, .limit = most};
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->more, NULL);
}

void credits_fini(struct credits *c)
{
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->more);
}

static bool are_there(const struct credits *c, uint64_t bytes)
{
    return c->taken == 0 || (c->taken <= c->limit && bytes <= c->limit - c->taken);
}

bool credits_take(struct credits *c, uint64_t bytes)
{
    pthread_mutex_lock(&c->lock);
    while (!c->is_closed && (c->is_held || !are_there(c, bytes))) {
        c->is_waited_for = !are_there(c, bytes);
        pthread_cond_wait(&c->more, &c->lock);
    }
    c->is_waited_for = false;
    const bool ok = !c->is_closed;
    c->taken += ok ? bytes : 0;
    pthread_mutex_unlock(&c->lock);
    return ok;
}

void credits_move(struct credits *c, uint64_t from, uint64_t to)
{
    pthread_mutex_lock(&c->lock);
    c->taken = c->taken - from + to;
    pthread_cond_signal(&c->more);
    pthread_mutex_unlock(&c->lock);
}

void credits_give(struct credits *c, uint64_t bytes)
{
    credits_move(c, bytes, 0);
}

void credits_reserve(struct credits *c, uint64_t bytes)
{
    pthread_mutex_lock(&c->lock);
    c->limit = c->most - MR_MIN(bytes, c->most / 2);
    pthread_mutex_unlock(&c->lock);
}

uint64_t credits_limit(struct credits *c)
{
    pthread_mutex_lock(&c->lock);
    const uint64_t limit = c->limit;
    pthread_mutex_unlock(&c->lock);
    return limit;
}

bool credits_are_short(struct credits *c)
{
    pthread_mutex_lock(&c->lock);
    const bool are_short = c->taken > c->limit;
    pthread_mutex_unlock(&c->lock);
    return are_short;
}

bool credits_are_wanted(struct credits *c)
{
    pthread_mutex_lock(&c->lock);
    const bool are_wanted = c->is_waited_for;
    pthread_mutex_unlock(&c->lock);
    return are_wanted;
}

void credits_hold(struct credits *c, bool is_held)
{
    pthread_mutex_lock(&c->lock);
    c->is_held = is_held;
    pthread_cond_signal(&c->more);
    pthread_mutex_unlock(&c->lock);
}

void credits_close(struct credits *c)
{
    pthread_mutex_lock(&c->lock);
    c->is_closed = true;
    pthread_cond_signal(&c->more);
    pthread_mutex_unlock(&c->lock);
}
