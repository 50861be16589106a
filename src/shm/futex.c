/* The system calls with which the server and workers wake each other. */
#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "shm_priv.h"

void shm_futex_wait(const _Atomic uint32_t *word, uint32_t seen, int64_t max_ns)
{
    const struct timespec ts = {max_ns / MR_NS_PER_S, max_ns % MR_NS_PER_S};

    syscall(SYS_futex, word, FUTEX_WAIT, seen, &ts, NULL, 0);
}

void shm_futex_wake(const _Atomic uint32_t *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);
}

/* A home never reads its descriptor (homes.h), so the counter could become full, if a hostile worker writes large numbers to
 * it. Then a writer empties it first. If it is full again at once, another thread has written since, which woke the home. */
void shm_event_write(int fd)
{
    uint64_t count = 1;

    while (write(fd, &count, sizeof count) < 0) {
        if (errno == EAGAIN) {
            (void)!read(fd, &count, sizeof count);
            count = 1;
            (void)!write(fd, &count, sizeof count);
            return;
        }
        if (errno != EINTR) {
            return;
        }
    }
}
