/* The CPUs and the memory that the process may use: those of the machine, limited by its cgroup (version 2) and the parents of
 * that. With 64 threads on a machine of 64 CPUs and a quota of two, a container would be throttled for most of every period,
 * which ruins tail latency; a share of a large machine's memory is more than all that a container on it may have. */
#include "base/machine.h"

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

/* ---- cgroups ---- */

mr_str mr_machine_read(const char *path, char *buf, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, buf, size);

    if (fd >= 0) {
        close(fd);
    }
    return mr_str_n(buf, n > 0 ? (size_t)n : 0);
}

void mr_cgroups_below(const char *root, mr_str path, mr_cgroup_look_fn *look, void *ctx)
{
    char dir[PATH_BYTES];

    for (;;) {
        while (path.len > 0 && path.ptr[path.len - 1] == '/') {
            path.len--;
        }
        int n = snprintf(dir, sizeof dir, "%s%.*s", root, MR_STR_ARG(path));
        if (n > 0 && (size_t)n < sizeof dir) {
            look(ctx, dir);
        }
        if (path.len == 0) {
            return;
        }
        while (path.len > 0 && path.ptr[path.len - 1] != '/') {
            path.len--;
        }
    }
}

void mr_machine_cgroups(mr_cgroup_look_fn *look, void *ctx)
{
    char text[FILE_BYTES];
    mr_str rest = mr_machine_read("/proc/self/cgroup", text, sizeof text);
    mr_str line;

    while (mr_str_split(&rest, '\n', &line)) {
        if (mr_str_starts(line, MR_STR("0::"))) {
            mr_cgroups_below("/sys/fs/cgroup", mr_str_sub(line, 3, line.len), look, ctx);
            return;
        }
    }
}

static mr_str cgroup_read(const char *dir, const char *file, char *buf, size_t size)
{
    char path[PATH_BYTES + 32];

    snprintf(path, sizeof path, "%s/%s", dir, file);
    return mr_str_trim(mr_machine_read(path, buf, size));
}

bool mr_cgroup_number(const char *dir, const char *file, uint64_t *out)
{
    char text[64];

    return mr_str_to_u64(cgroup_read(dir, file, text, sizeof text), out);
}

/* ---- memory ---- */

void mr_memory_look(void *ctx, const char *dir)
{
    uint64_t *least = ctx;
    uint64_t limit;

    if (mr_cgroup_number(dir, "memory.max", &limit)) {
        *least = MR_MIN(*least, limit);
    }
}

uint64_t mr_machine_memory(void)
{
    uint64_t bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

    mr_machine_cgroups(mr_memory_look, &bytes);
    return bytes;
}

/* ---- CPUs ---- */

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

void mr_cpu_quota_look(void *ctx, const char *dir)
{
    unsigned *least = ctx;
    char text[64];
    unsigned cpus = mr_cpu_quota_parse(cgroup_read(dir, "cpu.max", text, sizeof text));

    *least = cpus && (!*least || cpus < *least) ? cpus : *least;
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
    unsigned quota = 0;

    mr_machine_cgroups(mr_cpu_quota_look, &quota);
    return quota && quota < cpus ? quota : cpus;
}
