/* Going to sleep and being woken is Dekker's pattern: the home says that it sleeps, then looks at what is done; a
 * worker says what is done, then looks whether the home sleeps. Both in sequentially consistent order, so that at
 * least one of them sees the other. */
#include "shm/homes.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "shm_priv.h"

struct mr_shm_homes {
    struct shm_segment segment;
    struct shm_home *list; /* in the segment */
    uint32_t count;
    int fds[];
};

int mr_shm_homes_new(struct mr_shm_homes **out, uint32_t count, struct mr_err *err)
{
    MR_ASSERT(count >= 1 && count <= SHM_HOMES_MAX);
    struct mr_shm_homes *h = mr_alloc(sizeof *h + count * sizeof h->fds[0]);
    int rc = MR_OK;

    h->segment.fd = -1;
    MR_TRY(shm_segment_new(&h->segment, "millrace:homes", count * sizeof *h->list, SHM_READ_ONLY,
                           err));
    h->list = (struct shm_home *)(void *)h->segment.data;
    for (; h->count < count; h->count++) {
        h->fds[h->count] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (h->fds[h->count] < 0) {
            rc = MR_FAIL(err, MR_E_EXHAUSTED, "no eventfd: %s", strerror(errno));
            goto out;
        }
    }
    *out = h;
    return MR_OK;
out:
    mr_shm_homes_free(&h);
    return rc;
}

void mr_shm_homes_free(struct mr_shm_homes **h)
{
    if (*h) {
        for (uint32_t i = 0; i < (*h)->count; i++) {
            close((*h)->fds[i]);
        }
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
    return h->fds[home];
}

void mr_shm_home_sleep(struct mr_shm_homes *h, uint32_t home)
{
    atomic_store(&h->list[home].is_sleeping, 1);
}

void mr_shm_home_wake(struct mr_shm_homes *h, uint32_t home)
{
    uint64_t rings;

    atomic_store_explicit(&h->list[home].is_sleeping, 0, memory_order_relaxed);
    while (read(h->fds[home], &rings, sizeof rings) < 0 && errno == EINTR) {
    }
}

void mr_shm_home_ring(struct mr_shm_homes *h, uint32_t home)
{
    const uint64_t one = 1;

    if (atomic_load(&h->list[home].is_sleeping)) {
        while (write(h->fds[home], &one, sizeof one) < 0 && errno == EINTR) {
        }
    }
}
