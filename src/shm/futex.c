/* The two system calls with which the server and workers wake each other. */
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
