/* The server with fault injection: calls of our code that the linker redirects here (--wrap) fail as the file of
 * MR_FAULTS specifies. A test maps that file too and changes it while the server runs.
 *
 * Only our own calls are redirected: libraries call the C library as always. Of the allocations, the try_ forms fail,
 * which serve every size that a peer can influence; mr_alloc and its variants end the process by contract. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* As in tests/integration/lib/faults.py. */
struct faults {
    _Atomic uint64_t memory_every;  /* each Nth allocation fails; 0 = none */
    _Atomic uint64_t memory_least;  /* of allocations of at least that many bytes */
    _Atomic uint64_t memory_asked;  /* allocations of that size */
    _Atomic uint64_t memory_failed; /* of them */
    _Atomic uint64_t threads_fail;  /* 1: no thread can be made */
    _Atomic uint64_t threads_failed;
    _Atomic int64_t wall_offset_ns; /* added to CLOCK_REALTIME */
    /* Calls that change what lies below the folder MR_FAULTS_FOLDER, from 1 on: */
    _Atomic uint64_t disk_calls;
    _Atomic uint64_t disk_first; /* the first one to fail; 0 = none */
    _Atomic uint64_t disk_count; /* how many fail */
    _Atomic uint64_t disk_error; /* errno */
    _Atomic uint64_t disk_failed;
    _Atomic int64_t steady_offset_ns; /* added to CLOCK_MONOTONIC */
};

static struct faults none;
static struct faults *faults = &none;

__attribute__((constructor)) static void open_orders(void)
{
    const char *path = getenv("MR_FAULTS");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *shared = MAP_FAILED;

    if (fd >= 0) {
        shared = mmap(NULL, sizeof *faults, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
    }
    if (shared == MAP_FAILED) {
        fprintf(stderr, "millrace-faults: MR_FAULTS must name a file of %zu bytes\n",
                sizeof *faults);
        _exit(2);
    }
    faults = shared;
}

static bool memory_fails(size_t bytes)
{
    uint64_t every = atomic_load(&faults->memory_every);

    if (every == 0 || bytes < atomic_load(&faults->memory_least) ||
        (atomic_fetch_add(&faults->memory_asked, 1) + 1) % every != 0) {
        return false;
    }
    atomic_fetch_add(&faults->memory_failed, 1);
    return true;
}

void *__real_mr_try_alloc(size_t bytes);
void *__wrap_mr_try_alloc(size_t bytes);
void *__real_mr_try_realloc(void *ptr, size_t bytes);
void *__wrap_mr_try_realloc(void *ptr, size_t bytes);
void *__real_mr_mem_try_aligned(size_t align, size_t bytes);
void *__wrap_mr_mem_try_aligned(size_t align, size_t bytes);
bool __real_mr_mem_must_fail(void);
bool __wrap_mr_mem_must_fail(void);

void *__wrap_mr_try_alloc(size_t bytes)
{
    return memory_fails(bytes) ? NULL : __real_mr_try_alloc(bytes);
}

void *__wrap_mr_try_realloc(void *ptr, size_t bytes)
{
    return memory_fails(bytes) ? NULL : __real_mr_try_realloc(ptr, bytes);
}

void *__wrap_mr_mem_try_aligned(size_t align, size_t bytes)
{
    return memory_fails(bytes) ? NULL : __real_mr_mem_try_aligned(align, bytes);
}

/* Asked before a mapping of bulk memory, which is larger than any limit that a test sets. */
bool __wrap_mr_mem_must_fail(void)
{
    return memory_fails(SIZE_MAX);
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                          void *arg);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                          void *arg)
{
    if (atomic_load(&faults->threads_fail)) {
        atomic_fetch_add(&faults->threads_failed, 1);
        return EAGAIN;
    }
    return __real_pthread_create(thread, attr, fn, arg);
}

/* Not before the clock's beginning, which would be an error. */
static struct timespec moved(const struct timespec *at, int64_t offset_ns)
{
    int64_t ns = (int64_t)at->tv_sec * 1000000000 + at->tv_nsec + offset_ns;

    ns = ns > 0 ? ns : 1;
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

int __real_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);

int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    int rc = __real_clock_gettime(clock, out);
    int64_t offset = clock == CLOCK_REALTIME    ? atomic_load(&faults->wall_offset_ns)
                     : clock == CLOCK_MONOTONIC ? atomic_load(&faults->steady_offset_ns)
                                                : 0;

    if (rc == 0 && offset != 0) {
        *out = moved(out, offset);
    }
    return rc;
}

/* ---- waiting until a time of the moved clock ---- */

int __real_timerfd_settime(int fd, int flags, const struct itimerspec *new_value,
                           struct itimerspec *old_value);
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *new_value,
                           struct itimerspec *old_value);
int __real_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
                                  const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
                                  const struct timespec *until);

int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *new_value,
                           struct itimerspec *old_value)
{
    int64_t offset = atomic_load(&faults->steady_offset_ns);
    struct itimerspec spec = *new_value;

    if ((flags & TFD_TIMER_ABSTIME) && offset != 0) {
        spec.it_value = moved(&spec.it_value, -offset);
    }
    return __real_timerfd_settime(fd, flags, &spec, old_value);
}

/* All of ours wait by CLOCK_MONOTONIC. */
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
                                  const struct timespec *until)
{
    struct timespec real = moved(until, -atomic_load(&faults->steady_offset_ns));

    return __real_pthread_cond_timedwait(cond, lock, &real);
}

/* ---- disk ---- */

static bool is_below_folder(int fd)
{
    const char *folder = getenv("MR_FAULTS_FOLDER");
    char link[64];
    char path[4096];

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = folder && fd >= 0 ? readlink(link, path, sizeof path) : -1;
    return n > 0 && (size_t)n >= strlen(folder) && strncmp(path, folder, strlen(folder)) == 0;
}

static bool disk_fails(int fd)
{
    if (!is_below_folder(fd)) {
        return false;
    }
    const uint64_t number = atomic_fetch_add(&faults->disk_calls, 1) + 1;
    const uint64_t first = atomic_load(&faults->disk_first);
    if (first == 0 || number < first || number - first >= atomic_load(&faults->disk_count)) {
        return false;
    }
    atomic_fetch_add(&faults->disk_failed, 1);
    errno = (int)atomic_load(&faults->disk_error);
    return true;
}

#define DISK_CALL(type, name, parameters, arguments, fd)                                           \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        return disk_fails(fd) ? -1 : __real_##name arguments;                                      \
    }

DISK_CALL(ssize_t, write, (int fd, const void *data, size_t bytes), (fd, data, bytes), fd)
DISK_CALL(ssize_t, writev, (int fd, const struct iovec *at, int n), (fd, at, n), fd)
DISK_CALL(ssize_t, pwrite, (int fd, const void *data, size_t bytes, off_t offset),
          (fd, data, bytes, offset), fd)
DISK_CALL(int, fsync, (int fd), (fd), fd)
DISK_CALL(int, fdatasync, (int fd), (fd), fd)
DISK_CALL(int, ftruncate, (int fd, off_t bytes), (fd, bytes), fd)
DISK_CALL(int, renameat, (int from, const char *old, int to, const char *name),
          (from, old, to, name), from)
DISK_CALL(int, unlinkat, (int fd, const char *name, int flags), (fd, name, flags), fd)

int __real_openat(int fd, const char *name, int flags, ...);
int __wrap_openat(int fd, const char *name, int flags, mode_t mode);

int __wrap_openat(int fd, const char *name, int flags, mode_t mode)
{
    return (flags & O_CREAT) && disk_fails(fd) ? -1 : __real_openat(fd, name, flags, mode);
}
