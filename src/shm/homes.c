/* Sleep and wake-up follow Dekker's pattern: the home sets that it sleeps, then checks for completions; a worker sets a
 * completion, then checks whether the home sleeps. Both orders are sequentially consistent, so at least one of the two
 * sees the other. */
#include "shm/homes.h"

#include <poll.h>
#include <string.h>
#include <sys/uio.h>

#include "shm_priv.h"

struct mr_shm_homes {
    struct shm_segment segment;
    struct shm_home *list; /* in the segment */
    uint32_t count;
    struct mr_shm_door doors[];
};

int mr_shm_homes_new(struct mr_shm_homes **out, const struct mr_shm_door *doors,
                     uint32_t door_count, struct mr_err *err)
{
    MR_ASSERT(door_count >= 1 && door_count <= MR_SHM_HOMES_MAX);
    struct mr_shm_homes *h = mr_alloc(sizeof *h + door_count * sizeof h->doors[0]);
    int rc = MR_OK;

    h->segment.fd = -1;
    MR_TRY(shm_segment_new(&h->segment, "millrace:homes", door_count * sizeof *h->list,
                           SHM_READ_ONLY, err));
    h->list = (struct shm_home *)(void *)h->segment.data;
    h->count = door_count;
    memcpy(h->doors, doors, door_count * sizeof *doors);
    *out = h;
    return MR_OK;
out:
    mr_shm_homes_free(&h);
    return rc;
}

void mr_shm_homes_free(struct mr_shm_homes **h)
{
    if (*h) {
        shm_segment_close(&(*h)->segment);
        mr_freep(h);
    }
}

uint32_t mr_shm_homes_count(const struct mr_shm_homes *h)
{
    return h->count;
}

int mr_shm_homes_segment(const struct mr_shm_homes *h)
{
    return h->segment.fd;
}

int mr_shm_home_fd(const struct mr_shm_homes *h, uint32_t home)
{
    return h->doors[home].workers;
}

void mr_shm_home_sleep(struct mr_shm_homes *h, uint32_t home)
{
    atomic_store(&h->list[home].is_sleeping, 1);
}

void mr_shm_home_wake(struct mr_shm_homes *h, uint32_t home)
{
    atomic_store_explicit(&h->list[home].is_sleeping, 0, memory_order_relaxed);
}

void mr_shm_homes_relieve(struct mr_shm_homes *h)
{
    struct pollfd fds[MR_SHM_HOMES_MAX];
    uint64_t count;
    const struct iovec to = {&count, sizeof count};

    for (uint32_t i = 0; i < h->count; i++) {
        fds[i] = (struct pollfd){h->doors[i].workers, POLLOUT, 0};
    }
    if (poll(fds, h->count, 0) == (int)h->count) {
        return;
    }
    for (uint32_t i = 0; i < h->count; i++) {
        if (fds[i].revents == 0) {
            (void)!preadv2(fds[i].fd, &to, 1, -1, RWF_NOWAIT);
        }
    }
}

void mr_shm_home_ring(struct mr_shm_homes *h, uint32_t home)
{
    if (atomic_load(&h->list[home].is_sleeping)) {
        shm_event_write(h->doors[home].server);
    }
}
