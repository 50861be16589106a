/* The server's threads that take completed slots from workers.
 *
 * A home sleeps in epoll, which has its eventfd with EPOLLET, and does not read it: each write makes epoll report it once
 * more, whatever the counter is, and a write that comes before the sleep ends the sleep at once.
 *
 * A worker writes to the descriptor of a home only while the home has set that it sleeps: a busy thread polls by itself
 * (mr_shm_poll). One set of homes serves all models. */
#ifndef MR_SHM_HOMES_H
#define MR_SHM_HOMES_H

#include <stdint.h>

#include "base/err.h"

struct mr_shm_homes;

#define MR_SHM_HOMES_MAX 256u

/** The eventfds of a home, not blocking, both with EPOLLET in its epoll. A hostile worker can make a write to the one that
 *  workers have wait, so the server has another one. */
struct mr_shm_door {
    int workers, server;
};

/** A home for each of the doors (1..MR_SHM_HOMES_MAX), which are borrowed. Errors: MR_E_NOMEM, MR_E_EXHAUSTED
 *  (descriptors). */
int mr_shm_homes_new(struct mr_shm_homes **out, const struct mr_shm_door *doors,
                     uint32_t door_count, struct mr_err *err);
/** All workers have ended. */
void mr_shm_homes_free(struct mr_shm_homes **h);
uint32_t mr_shm_homes_count(const struct mr_shm_homes *h);
/** The segment of the flags, and the eventfd of a home that is the workers': both are passed to them. Borrowed. */
int mr_shm_homes_segment(const struct mr_shm_homes *h);
int mr_shm_home_fd(const struct mr_shm_homes *h, uint32_t home);
/** Sets that the home is about to sleep. It polls once more between this and its sleep. Thread: the home. */
void mr_shm_home_sleep(struct mr_shm_homes *h, uint32_t home);
/** Sets that the home is awake. Thread: the home. */
void mr_shm_home_wake(struct mr_shm_homes *h, uint32_t home);
/** Empties eventfds of workers that one of them has filled: with O_NONBLOCK cleared, which it can do as well, the others would
 *  wait in their writes. Called now and then while slots are submitted; never waits. Thread: any. */
void mr_shm_homes_relieve(struct mr_shm_homes *h);
/** Wakes the home if it sleeps. Thread: any. */
void mr_shm_home_ring(struct mr_shm_homes *h, uint32_t home);

#endif
