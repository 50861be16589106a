/* The number of CPUs that the process may use: the affinity mask, limited by the quota of its cgroup (version 2) and
 * of its parents. With 64 threads on a machine of 64 CPUs and a quota of two, a container would be throttled for most
 * of every period, which ruins tail latency. */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/thread.h"
#include "base_priv.h"

#define CPUS_MOST  (1 << 16)
#define PATH_BYTES 1024
#define FILE_BYTES 4096

unsigned mr_cpu_quota_parse(mr_str text)
{
    mr_str rest = mr_str_trim(text);
    mr_str quota_text = {0};
    mr_str period_text = {0};
    uint64_t quota;
    uint64_t period;

    mr_str_split(&rest, ' ', &quota_text);
    mr_str_split(&rest, ' ', &period_text);
    if (!mr_str_to_u64(quota_text, &quota) || !mr_str_to_u64(period_text, &period)) {
        return 0;
    }
    if (quota == 0 || period == 0) {
        return 0;
    }
    uint64_t cpus = quota / period + (quota % period != 0);
    return (unsigned)MR_MIN(cpus, (uint64_t)CPUS_MOST);
}

/* The beginning of a small file; len 0 when there is none. */
static mr_str read_small(const char *path, char *buf, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, buf, size);

    if (fd >= 0) {
        close(fd);
    }
    return mr_str_n(buf, n > 0 ? (size_t)n : 0);
}

unsigned mr_cpu_quota_below(const char *root, mr_str path)
{
    char file[PATH_BYTES];
    char text[64];
    unsigned least = 0;

    for (;;) {
        while (path.len > 0 && path.ptr[path.len - 1] == '/') {
            path.len--;
        }
        int n = snprintf(file, sizeof file, "%s%.*s/cpu.max", root, MR_STR_ARG(path));
        if (n > 0 && (size_t)n < sizeof file) {
            unsigned cpus = mr_cpu_quota_parse(read_small(file, text, sizeof text));
            least = cpus && (!least || cpus < least) ? cpus : least;
        }
        if (path.len == 0) {
            return least;
        }
        while (path.len > 0 && path.ptr[path.len - 1] != '/') {
            path.len--;
        }
    }
}

static unsigned quota_cpus(void)
{
    char text[FILE_BYTES];
    mr_str rest = read_small("/proc/self/cgroup", text, sizeof text);
    mr_str line;

    while (mr_str_split(&rest, '\n', &line)) {
        if (mr_str_starts(line, MR_STR("0::"))) {
            return mr_cpu_quota_below("/sys/fs/cgroup", mr_str_sub(line, 3, line.len));
        }
    }
    return 0;
}

static unsigned affinity_cpus(void)
{
    /* The kernel refuses a set smaller than its own, and does not say how large that is. */
    for (int cpus = 1024; cpus <= CPUS_MOST; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        size_t bytes = CPU_ALLOC_SIZE((size_t)cpus);
        int count = 0;
        if (set && sched_getaffinity(0, bytes, set) == 0) {
            count = CPU_COUNT_S(bytes, set);
        }
        CPU_FREE(set);
        if (count > 0) {
            return (unsigned)count;
        }
    }
    return 1;
}

unsigned mr_cpu_count(void)
{
    unsigned cpus = affinity_cpus();
    unsigned quota = quota_cpus();

    return quota && quota < cpus ? quota : cpus;
}
