#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "process/spawn.h"

/* The beginning of a file of /proc, as text. */
static bool file_read(const char *path, char *text, size_t size)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        return false;
    }
    const ssize_t n = read(fd, text, size - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

void mr_process_get_usage(const struct mr_process *p, uint32_t thread, struct mr_process_usage *out)
{
    char path[64], text[256];

    *out = (struct mr_process_usage){0};
    snprintf(path, sizeof path, "/proc/%d/statm", (int)p->pid);
    uint64_t resident;
    if (file_read(path, text, sizeof text) && sscanf(text, "%*s %" SCNu64, &resident) == 1) {
        out->resident_bytes = resident * (uint64_t)sysconf(_SC_PAGESIZE);
    }
    snprintf(path, sizeof path, "/proc/%d/stat", (int)p->pid);
    const char *end = file_read(path, text, sizeof text) ? strrchr(text, ')') : NULL;
    long user, system;
    if (end &&
        sscanf(end, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld", &user, &system) == 2) {
        out->cpu_ns = (int64_t)(user + system) * (MR_NS_PER_S / sysconf(_SC_CLK_TCK));
    }
    if (thread > 0) {
        snprintf(path, sizeof path, "/proc/%d/task/%u/schedstat", (int)p->pid, thread);
        if (file_read(path, text, sizeof text)) {
            (void)sscanf(text, "%" SCNd64 " %" SCNd64, &out->thread_cpu_ns, &out->thread_delay_ns);
        }
        snprintf(path, sizeof path, "/proc/%d/task/%u/stat", (int)p->pid, thread);
        end = file_read(path, text, sizeof text) ? strrchr(text, ')') : NULL;
        if (end && end[1] == ' ') {
            out->thread_state = end[2]; /* after the name, which may contain anything */
        }
    }
}
