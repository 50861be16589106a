/* The machine: processor, memory, kernel and limits, from /proc, /sys and a few system calls. Values that cannot be
 * read are left out, as containers hide many of them. */
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/machine.h"
#include "base/thread.h"
#include "cli/common/term.h"
#include "doctor.h"
#include "process/cgroup.h"
#include "process/confine.h"

#define FILES_WANTED   4096
#define MEMORY_LOW     (UINT64_C(512) << 20)
#define BACKLOG_WANTED 1024
#define WATCHES_WANTED 8192

/* A small file's text, trimmed; "" if missing. */
static mr_str read_small(const char *path, char *buf, size_t size)
{
    return mr_str_trim(mr_machine_read(path, buf, size));
}

/* The value after "NAME ...:" in the text of a /proc file, from its first line. */
static mr_str find_field(mr_str text, const char *name)
{
    mr_str line;

    while (mr_str_split(&text, '\n', &line)) {
        ptrdiff_t colon = mr_str_find(line, ':');
        if (colon > 0 && mr_str_eq_c(mr_str_trim(mr_str_sub(line, 0, (size_t)colon)), name)) {
            return mr_str_trim(mr_str_sub(line, (size_t)colon + 1, line.len));
        }
    }
    return (mr_str){"", 0};
}

static bool has_word(mr_str words, const char *word)
{
    mr_str w;

    while (mr_str_split(&words, ' ', &w)) {
        if (mr_str_eq_c(w, word)) {
            return true;
        }
    }
    return false;
}

/* ---- processor ---- */

static void say_features(struct doctor *d, mr_str flags)
{
    static const char *const wanted[] = {
        "sse4_2",   "avx",      "avx2",     "fma",   "f16c",    "avx512f", "avx512_vnni",
        "avx_vnni", "amx_int8", "amx_bf16", "asimd", "asimddp", "sve",     NULL};
    struct mr_buf have;

    mr_buf_init(&have, 4096);
    for (size_t i = 0; wanted[i]; i++) {
        if (has_word(flags, wanted[i])) {
            mr_buf_printf(&have, "%s%s", have.len ? " " : "", wanted[i]);
        }
    }
    bool wide = has_word(flags, "avx2") || has_word(flags, "asimd");
    doctor_say(d, wide ? FINDING_OK : FINDING_WARN, "instructions",
               wide ? NULL : "without AVX2 models run several times slower", "%s",
               have.len ? mr_buf_cstr(&have) : "no vector instructions worth naming");
    mr_buf_fini(&have);
}

static void say_cpu(struct doctor *d)
{
    static char text[65536];
    mr_str info = read_small("/proc/cpuinfo", text, sizeof text);
    mr_str name = find_field(info, "model name");
    mr_str flags = find_field(info, "flags");
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned usable = mr_cpu_count();

    if (flags.len == 0) {
        flags = find_field(info, "Features"); /* the name on ARM */
    }
    doctor_say(d, FINDING_INFO, "processor", NULL, "%.*s%s%u of %ld CPUs usable", MR_STR_ARG(name),
               name.len ? ", " : "", usable, online);
    if (flags.len) {
        say_features(d, flags);
    }
}

static void say_clock(struct doctor *d)
{
    char text[64];
    mr_str source = read_small("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                               text, sizeof text);
    bool slow = mr_str_eq_c(source, "hpet") || mr_str_eq_c(source, "acpi_pm");

    if (source.len) {
        doctor_say(d, slow ? FINDING_WARN : FINDING_OK, "clock",
                   slow ? "reading the clock is a slow system call with this source" : NULL, "%.*s",
                   MR_STR_ARG(source));
    }
}

/* ---- memory ---- */

static uint64_t kib_field(mr_str text, const char *name)
{
    mr_str value = find_field(text, name);
    mr_str number;
    uint64_t kib = 0;

    if (mr_str_split(&value, ' ', &number)) {
        mr_str_to_u64(number, &kib);
    }
    return kib << 10;
}

static void say_memory(struct doctor *d)
{
    char text[8192];
    char total[32];
    char available[32];
    mr_str info = read_small("/proc/meminfo", text, sizeof text);
    uint64_t free_bytes = kib_field(info, "MemAvailable");
    uint64_t limit = mr_machine_memory();

    if (info.len == 0) {
        return;
    }
    uint64_t machine_bytes = kib_field(info, "MemTotal");
    mr_text_bytes(total, machine_bytes);
    mr_text_bytes(available, free_bytes);
    bool low = free_bytes < MEMORY_LOW;
    doctor_say(d, low ? FINDING_WARN : FINDING_OK, "memory",
               low ? "little room for models: see --memory-budget" : NULL, "%s, %s available",
               total, available);
    if (limit < machine_bytes) {
        mr_text_bytes(total, limit);
        doctor_say(d, FINDING_INFO, "memory limit", NULL, "%s for this container (cgroup)", total);
    }
}

static void say_huge_pages(struct doctor *d)
{
    char text[128];
    mr_str mode = read_small("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text);
    ptrdiff_t open = mr_str_find(mode, '[');
    ptrdiff_t close = mr_str_find(mode, ']');

    if (open >= 0 && close > open) {
        doctor_say(d, FINDING_INFO, "huge pages", NULL, "transparent: %.*s",
                   MR_STR_ARG(mr_str_sub(mode, (size_t)open + 1, (size_t)close)));
    }
}

/* ---- kernel and limits ---- */

static bool has_call(long number, long arg)
{
    /* Invalid arguments on purpose: the kernel distinguishes "no such call" from "bad argument". */
    return syscall(number, arg, ~0u) >= 0 || errno != ENOSYS;
}

static void say_kernel(struct doctor *d)
{
    struct utsname u;
    struct mr_buf lacks;
    int fd = (int)syscall(SYS_memfd_create, "millrace-doctor", MFD_ALLOW_SEALING | MFD_CLOEXEC);

    mr_buf_init(&lacks, 1024);
    if (fd < 0) {
        MR_BUF_LIT(&lacks, " memfd_create");
    } else {
        close(fd);
    }
#ifdef SYS_pidfd_open
    if (!has_call(SYS_pidfd_open, -1)) {
        MR_BUF_LIT(&lacks, " pidfd_open");
    }
#endif
    if (uname(&u) == 0) {
        doctor_say(d, lacks.len ? FINDING_WARN : FINDING_OK, "kernel",
                   lacks.len ? "worker processes will need them" : NULL, "%s %s %s%s%s", u.sysname,
                   u.release, u.machine, lacks.len ? ", lacks" : "", mr_buf_cstr(&lacks));
    }
    mr_buf_fini(&lacks);
}

static void say_files(struct doctor *d)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return;
    }
    bool low = limit.rlim_cur < FILES_WANTED;
    doctor_say(d, low ? FINDING_WARN : FINDING_OK, "open files",
               low ? "each connection takes one: raise it with ulimit -n or LimitNOFILE=" : NULL,
               "%llu, may be raised to %llu", (unsigned long long)limit.rlim_cur,
               (unsigned long long)limit.rlim_max);
}

static void say_number(struct doctor *d, const char *path, const char *name, uint64_t wanted,
                       const char *unit, const char *advice)
{
    char text[64];
    uint64_t value;

    if (mr_str_to_u64(read_small(path, text, sizeof text), &value)) {
        bool low = value < wanted;
        doctor_say(d, low ? FINDING_WARN : FINDING_OK, name, low ? advice : NULL, "%llu %s",
                   (unsigned long long)value, unit);
    }
}

static void say_confinement(struct doctor *d)
{
    const uint32_t steps = mr_confine_probe();
    const bool is_whole = steps == MR_CONFINE_ALL;

    doctor_say(d, is_whole ? FINDING_OK : FINDING_WARN, "workers",
               is_whole ? NULL
                        : "worker processes are confined by what there is; the rest needs another "
                          "kernel, or a container that allows it",
               "worker processes can be confined by limits%s%s%s",
               steps & MR_CONFINE_LANDLOCK ? ", landlock" : "",
               steps & MR_CONFINE_SECCOMP ? ", seccomp" : "",
               is_whole ? "" : ", not by all that millrace has");
}

static void say_cgroup(struct doctor *d)
{
    char own[MR_CGROUP_PATH_BYTES], controllers[256];

    if (!mr_cgroup_own(own, controllers, sizeof controllers)) {
        doctor_say(d, FINDING_INFO, "cgroup", NULL,
                   "no cgroup v2: --worker-cgroup has nothing to limit worker processes with");
        return;
    }
    controllers[strcspn(controllers, "\n")] = '\0';
    doctor_say(d, FINDING_INFO, "cgroup", NULL,
               "cgroup v2, %.200s %s; controllers here: %s; see --worker-cgroup", own,
               access(own, W_OK) == 0 ? "may be written" : "is not delegated to this user",
               controllers[0] ? controllers : "none");
}

void doctor_machine(struct doctor *d)
{
    say_cpu(d);
    say_clock(d);
    say_memory(d);
    say_huge_pages(d);
    say_kernel(d);
    say_files(d);
    say_number(d, "/proc/sys/net/core/somaxconn", "backlog", BACKLOG_WANTED,
               "connections may wait to be accepted",
               "bursts of new connections are refused past it: sysctl net.core.somaxconn");
    say_number(
        d, "/proc/sys/fs/inotify/max_user_watches", "watches", WATCHES_WANTED,
        "folders may be watched",
        "--model-control-mode=poll needs one per folder: sysctl fs.inotify.max_user_watches");
    say_confinement(d);
    say_cgroup(d);
}
