/* Landlock by its system calls: the C library has no functions for it. */
#include "process/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"
#include "syscalls.h"

#define FILES_MAX 1024u

static int failed(const char *what, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_INTERNAL, "cannot confine the process (%s): %s", what,
                   strerror(errno));
}

/* ---- limits ---- */

static int limit(int resource, uint64_t value, struct mr_err *err)
{
    struct rlimit now;

    if (getrlimit((__rlimit_resource_t)resource, &now) < 0) {
        return failed("getrlimit", err);
    }
    now.rlim_cur = now.rlim_max = MR_MIN((rlim_t)value, now.rlim_max);
    return setrlimit((__rlimit_resource_t)resource, &now) < 0 ? failed("setrlimit", err) : MR_OK;
}

static int limits_set(const struct mr_confine *c, struct mr_err *err)
{
    int rc;

    MR_TRY(limit(RLIMIT_CORE, 0, err));
    MR_TRY(limit(RLIMIT_NOFILE, FILES_MAX, err));
    if (c->memory_bytes > 0) {
        MR_TRY(limit(RLIMIT_DATA, c->memory_bytes, err));
    }
out:
    return rc;
}

/* ---- landlock ---- */

/* The kernel's interface: older headers lack it. Of its first version, and from the third on FS_TRUNCATE: before, truncate()
 * shortens any file that the user may write. */
struct ruleset_attr {
    uint64_t handled_access_fs;
};
struct path_rule {
    uint64_t allowed_access;
    int32_t parent_fd;
} __attribute__((packed));
enum { RULE_PATH = 1, VERSION_FLAG = 1 };
enum {
    FS_EXECUTE = 1 << 0,
    FS_WRITE_FILE = 1 << 1,
    FS_READ_FILE = 1 << 2,
    FS_READ_DIR = 1 << 3,
    FS_ALL = (1 << 13) - 1, /* of the first version: also to make and remove entries */
    FS_TRUNCATE = 1 << 14,
    FS_READ = FS_EXECUTE | FS_READ_FILE | FS_READ_DIR
};
#ifndef SYS_landlock_create_ruleset
#    define SYS_landlock_create_ruleset 444
#    define SYS_landlock_add_rule       445
#    define SYS_landlock_restrict_self  446
#endif

/* What libraries and run-times read: ONNX Runtime asks which CPU and which devices there are. */
static const char *const system_dirs[] = {"/usr",
                                          "/lib",
                                          "/lib64",
                                          "/etc",
                                          "/proc/self",
                                          "/proc/cpuinfo",
                                          "/sys/devices/system",
                                          "/sys/class",
                                          "/sys/fs/cgroup",
                                          NULL};
static const char *const devices[] = {"/dev/null", "/dev/zero", "/dev/urandom", "/dev/random",
                                      NULL};

/* Below 1: there is none. */
static long landlock_version(void)
{
    return syscall(SYS_landlock_create_ruleset, NULL, 0, VERSION_FLAG);
}

static int allow(int ruleset, const char *const *paths, uint64_t access, struct mr_err *err)
{
    for (size_t i = 0; paths && paths[i]; i++) {
        struct path_rule rule = {access, open(paths[i], O_PATH | O_CLOEXEC)};
        struct stat st;
        if (rule.parent_fd < 0) {
            continue;
        }
        if (fstat(rule.parent_fd, &st) == 0 && !S_ISDIR(st.st_mode)) {
            rule.allowed_access &= FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | FS_TRUNCATE;
        }
        const long rc = syscall(SYS_landlock_add_rule, ruleset, RULE_PATH, &rule, 0);
        const int reason = errno;
        close(rule.parent_fd);
        if (rc < 0) {
            errno = reason;
            return failed(paths[i], err);
        }
    }
    return MR_OK;
}

static int landlock_set(const struct mr_confine *c, struct mr_err *err)
{
    const uint64_t all = FS_ALL | (landlock_version() >= 3 ? FS_TRUNCATE : 0);
    const struct ruleset_attr attr = {all};
    const int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0);
    int rc;

    if (ruleset < 0) {
        return failed("landlock", err);
    }
    MR_TRY(allow(ruleset, system_dirs, FS_READ, err));
    MR_TRY(allow(ruleset, devices, FS_READ_FILE | FS_WRITE_FILE, err));
    MR_TRY(allow(ruleset, c->read_dirs, FS_READ, err));
    MR_TRY(allow(ruleset, c->write_dirs, all, err));
    if (syscall(SYS_landlock_restrict_self, ruleset, 0) < 0) {
        rc = failed("landlock", err);
    }
out:
    close(ruleset);
    return rc;
}

/* ---- the whole ---- */

uint32_t mr_confine_probe(void)
{
    uint32_t steps = MR_CONFINE_LIMITS;

    steps |= landlock_version() >= 1 ? MR_CONFINE_LANDLOCK : 0;
    steps |= syscalls_can_refuse() ? MR_CONFINE_SECCOMP : 0;
    return steps;
}

int mr_confine_self(const struct mr_confine *c, uint32_t *out_steps, struct mr_err *err)
{
    const uint32_t steps = c->steps & mr_confine_probe();
    int rc = MR_OK;

    if (steps && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) {
        return failed("no_new_privs", err);
    }
    if (steps & MR_CONFINE_LIMITS) {
        MR_TRY(limits_set(c, err));
    }
    if (steps & MR_CONFINE_LANDLOCK) {
        MR_TRY(landlock_set(c, err));
    }
    if (steps & MR_CONFINE_SECCOMP) {
        MR_TRY(syscalls_refuse(err));
    }
    *out_steps = steps;
out:
    return rc;
}

int mr_confine_parse(const char *text, uint32_t *out_steps, struct mr_err *err)
{
    static const struct {
        const char *name;
        uint32_t steps;
    } known[] = {{"all", MR_CONFINE_ALL},
                 {"none", 0},
                 {"limits", MR_CONFINE_LIMITS},
                 {"landlock", MR_CONFINE_LANDLOCK},
                 {"seccomp", MR_CONFINE_SECCOMP}};
    uint32_t steps = 0;

    for (const char *at = text;;) {
        const size_t len = strcspn(at, ",");
        size_t i = 0;
        while (i < sizeof known / sizeof *known && !mr_str_eq_c(mr_str_n(at, len), known[i].name)) {
            i++;
        }
        if (i == sizeof known / sizeof *known) {
            return MR_FAIL(
                err, MR_E_INVALID,
                "'%.64s': a list of limits, landlock and seccomp is needed, or all, or none", text);
        }
        steps |= known[i].steps;
        if (at[len] == '\0') {
            break;
        }
        at += len + 1;
    }
    *out_steps = steps;
    return MR_OK;
}
