/* Loaded into a server by LD_PRELOAD (lib/counts/counting.py): counts calls of the C library's heap and mutexes in
 * memory that the test maps too. A call counts when counting is on; calls that ONNX Runtime or the C++ library
 * makes are counted apart. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    ON,
    ALLOCATIONS,
    LOCKS,
    FOREIGN_ALLOCATIONS,
    FOREIGN_LOCKS,
    WORDS
}; /* lib/counts/counting.py */

static _Atomic int64_t none[WORDS];
static _Atomic int64_t *words = none;
static _Thread_local int inside; /* dladdr may come back here */

__attribute__((constructor)) static void map_words(void)
{
    const char *path = getenv("MR_TEST_COUNTS");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *at =
        fd < 0 ? MAP_FAILED : mmap(NULL, sizeof none, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (at == MAP_FAILED) {
        _exit(99);
    }
    close(fd);
    words = at;
}

static void count(int own, int foreign, const void *caller)
{
    Dl_info info;

    if (!words[ON] || inside) {
        return;
    }
    inside = 1;
    int is_foreign =
        dladdr(caller, &info) && info.dli_fname &&
        (strstr(info.dli_fname, "libonnxruntime.") || strstr(info.dli_fname, "libstdc++."));
    atomic_fetch_add(&words[is_foreign ? foreign : own], 1);
    inside = 0;
}

#define COUNT_ALLOCATION() count(ALLOCATIONS, FOREIGN_ALLOCATIONS, __builtin_return_address(0))

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t count, size_t n);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);

void *malloc(size_t n)
{
    COUNT_ALLOCATION();
    return __libc_malloc(n);
}

void *calloc(size_t items, size_t n)
{
    COUNT_ALLOCATION();
    return __libc_calloc(items, n);
}

void *realloc(void *p, size_t n)
{
    COUNT_ALLOCATION();
    return __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    COUNT_ALLOCATION();
    return __libc_memalign(align, n);
}

int posix_memalign(void **out, size_t align, size_t n)
{
    COUNT_ALLOCATION();
    *out = __libc_memalign(align, n);
    return *out ? 0 : 12; /* ENOMEM */
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    static int (*next)(pthread_mutex_t *);

    if (!next) {
        next = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock");
    }
    count(LOCKS, FOREIGN_LOCKS, __builtin_return_address(0));
    return next(mutex);
}

int pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    static int (*next)(pthread_mutex_t *);

    if (!next) {
        next = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_trylock");
    }
    count(LOCKS, FOREIGN_LOCKS, __builtin_return_address(0));
    return next(mutex);
}
