/* A process could be born in its folder by clone3, which posix_spawn does not use, and a copy of the server's page tables costs too
 * much. The server could move it, but that waits for all CPUs, some 20 ms, for which the caller's lock is held. So the
 * process moves itself. */
#include "process/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <mntent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/vec.h"
#include "cgroup_priv.h"
#include "cgroup_text.h"

#define REMOVE_TRIES    500
#define REMOVE_PAUSE_US 10000
#define NAME_BYTES      64

struct mr_cgroups {
    int dir;
    char *path;
    struct cgroup_setting settings[CGROUP_SETTINGS]; /* of each folder, without those it lacks */
    char lacks[64];
    uint64_t last;         /* number */
    MR_VEC(uint64_t) left; /* folders of ended processes that something still runs in */
};

/* Returns 0 or an errno. O_CREAT makes nothing in a cgroup file system, but in the folders of tests. */
static int text_write(int dir, const char *path, const char *text)
{
    const int fd = openat(dir, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    int reason = fd < 0 ? errno : 0;

    if (fd >= 0) {
        reason = write(fd, text, strlen(text)) < 0 ? errno : 0;
        close(fd);
    }
    return reason;
}

/* The beginning of the file. */
static bool text_read(int dir, const char *path, char *text, size_t size)
{
    const int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

    if (fd >= 0) {
        close(fd);
    }
    text[MR_MAX(n, 0)] = '\0';
    return n >= 0;
}

/* ---- the folder above ---- */

static int refuse(const char *dir, const char *why, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_INVALID, "%.300s cannot hold cgroups: %s", dir, why);
}

static int controller_enable(struct mr_cgroups *g, const char *available, const char *name,
                             struct mr_err *err)
{
    char text[32];

    if (!cgroup_has_word(available, name)) {
        const size_t len = strlen(g->lacks);
        snprintf(g->lacks + len, sizeof g->lacks - len, "%s%s", len ? " " : "", name);
        return MR_OK;
    }
    snprintf(text, sizeof text, "+%s", name);
    const int reason = text_write(g->dir, "cgroup.subtree_control", text);
    if (reason == EBUSY) {
        return refuse(g->path, "it has processes of its own, which cgroup v2 allows only in leaves",
                      err);
    }
    return reason ? refuse(g->path, strerror(reason), err) : MR_OK;
}

static int controllers_enable(struct mr_cgroups *g, struct mr_err *err)
{
    char available[512];
    int rc = MR_OK;

    if (!text_read(g->dir, "cgroup.controllers", available, sizeof available)) {
        return refuse(g->path, "it has no cgroup.controllers", err);
    }
    for (size_t i = 0; i < CGROUP_SETTINGS; i++) {
        struct cgroup_setting *s = &g->settings[i];
        if (s->text[0] && !cgroup_has_word(g->lacks, s->controller)) {
            MR_TRY(controller_enable(g, available, s->controller, err));
        }
        if (cgroup_has_word(g->lacks, s->controller)) {
            s->text[0] = '\0';
        }
    }
out:
    return rc;
}

/* Ends what runs in the folder. False: it is not gone yet. */
static bool folder_remove(int dir, const char *name)
{
    char path[NAME_BYTES + 32];

    if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT) {
        return true;
    }
    snprintf(path, sizeof path, "%s/cgroup.kill", name);
    text_write(dir, path, "1"); /* before Linux 5.14 what left the process's session goes on */
    return unlinkat(dir, name, AT_REMOVEDIR) == 0;
}

static const char *name_of(uint64_t number, char out[NAME_BYTES])
{
    snprintf(out, NAME_BYTES, "millrace-%d-%" PRIu64, (int)getpid(), number);
    return out;
}

static bool is_gone(pid_t pid)
{
    return pid == getpid() || (kill(pid, 0) < 0 && errno == ESRCH);
}

/* Folders of servers that are gone: so are their workers, but perhaps not all that these have forked. */
static void leftovers_remove(const struct mr_cgroups *g)
{
    const int fd = openat(g->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *e;
    pid_t pid;

    while (list && (e = readdir(list))) {
        const bool is_left = cgroup_name_parse(e->d_name, &pid) && is_gone(pid);
        for (int i = 0; is_left && !folder_remove(g->dir, e->d_name) && i < REMOVE_TRIES; i++) {
            usleep(REMOVE_PAUSE_US);
        }
    }
    if (list) {
        closedir(list);
    }
}

int cgroup_open_any(struct mr_cgroups **out, const char *dir, const struct mr_cgroup_limits *limits,
                    struct mr_err *err)
{
    struct mr_cgroups *g = MR_NEW(struct mr_cgroups);
    int rc;

    g->path = mr_strndup(dir, strlen(dir));
    g->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cgroup_settings(limits, g->settings);
    if (g->dir < 0 || faccessat(g->dir, ".", W_OK, AT_EACCESS) < 0 ||
        faccessat(g->dir, "cgroup.procs", W_OK, AT_EACCESS) < 0) {
        rc = refuse(dir, strerror(errno), err);
        goto out;
    }
    MR_TRY(controllers_enable(g, err));
    leftovers_remove(g);
    *out = g;
    return MR_OK;
out:
    mr_cgroups_close(&g);
    return rc;
}

bool mr_cgroup_own(char out[MR_CGROUP_PATH_BYTES], char *controllers, size_t size)
{
    char text[8192], path[MR_CGROUP_PATH_BYTES], entry[MR_CGROUP_PATH_BYTES];
    FILE *mounts = setmntent("/proc/self/mounts", "re");
    struct mntent m;
    bool found = false;

    while (mounts && !found && getmntent_r(mounts, &m, entry, sizeof entry)) {
        found = strcmp(m.mnt_type, "cgroup2") == 0;
    }
    if (mounts) {
        endmntent(mounts);
    }
    if (!found || !text_read(AT_FDCWD, "/proc/self/cgroup", text, sizeof text) ||
        !cgroup_path(text, path, sizeof path) ||
        snprintf(out, MR_CGROUP_PATH_BYTES, "%s%s", m.mnt_dir, strcmp(path, "/") ? path : "") >=
            MR_CGROUP_PATH_BYTES ||
        snprintf(text, sizeof text, "%s/cgroup.controllers", out) >= (int)sizeof text) {
        return false;
    }
    return text_read(AT_FDCWD, text, controllers, size);
}

int mr_cgroups_open(struct mr_cgroups **out, const char *dir, const struct mr_cgroup_limits *limits,
                    struct mr_err *err)
{
    char own[MR_CGROUP_PATH_BYTES], ignored[8];
    struct statfs fs;

    if (strcmp(dir, "auto") == 0) {
        if (!mr_cgroup_own(own, ignored, sizeof ignored)) {
            return MR_FAIL(err, MR_E_INVALID, "auto: the system has no cgroup v2");
        }
        *strrchr(own, '/') = '\0';
        dir = own;
    }
    if (statfs(dir, &fs) < 0) {
        return refuse(dir, strerror(errno), err);
    }
    return fs.f_type == CGROUP2_SUPER_MAGIC
               ? cgroup_open_any(out, dir, limits, err)
               : refuse(dir, "it is not a folder of a cgroup v2 file system", err);
}

static void left_remove(struct mr_cgroups *g)
{
    char name[NAME_BYTES];

    for (size_t i = 0; i < g->left.len;) {
        if (folder_remove(g->dir, name_of(g->left.at[i], name))) {
            g->left.at[i] = g->left.at[--g->left.len];
        } else {
            i++;
        }
    }
}

void mr_cgroups_close(struct mr_cgroups **io)
{
    struct mr_cgroups *g = *io;

    if (!g) {
        return;
    }
    left_remove(g);
    for (int i = 0; g->left.len > 0 && i < REMOVE_TRIES; i++) {
        usleep(REMOVE_PAUSE_US);
        left_remove(g);
    }
    if (g->dir >= 0) {
        close(g->dir);
    }
    MR_VEC_FINI(&g->left);
    mr_free(g->path);
    mr_freep(io);
}

const char *mr_cgroups_lacks(const struct mr_cgroups *g)
{
    return g->lacks;
}

/* ---- the folder of a process ---- */

int mr_cgroup_new(struct mr_cgroups *g, uint64_t *out, char entry[MR_CGROUP_PATH_BYTES],
                  struct mr_err *err)
{
    char name[NAME_BYTES], file[NAME_BYTES + 32];
    int reason = 0;

    left_remove(g);
    name_of(++g->last, name);
    if (mkdirat(g->dir, name, 0755) < 0) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "cannot make a cgroup in %.300s: %s", g->path,
                       strerror(errno));
    }
    for (size_t i = 0; i < CGROUP_SETTINGS && reason == 0; i++) {
        snprintf(file, sizeof file, "%s/%s", name, g->settings[i].file);
        reason = g->settings[i].text[0] ? text_write(g->dir, file, g->settings[i].text) : 0;
    }
    if (reason == 0 && snprintf(entry, MR_CGROUP_PATH_BYTES, "%s/%s/cgroup.procs", g->path, name) >=
                           MR_CGROUP_PATH_BYTES) {
        reason = ENAMETOOLONG;
    }
    if (reason != 0) {
        mr_cgroup_end(g, g->last);
        return MR_FAIL(err, MR_E_EXHAUSTED, "cannot set %s in %.300s: %s", file, g->path,
                       strerror(reason));
    }
    *out = g->last;
    return MR_OK;
}

int mr_cgroup_enter(const char *entry, struct mr_err *err)
{
    const int reason = text_write(AT_FDCWD, entry, "0");

    return reason ? MR_FAIL(err, MR_E_EXHAUSTED, "cannot enter the cgroup %.300s: %s", entry,
                            strerror(reason))
                  : MR_OK;
}

bool mr_cgroup_end(struct mr_cgroups *g, uint64_t number)
{
    char name[NAME_BYTES], file[NAME_BYTES + 32], text[512];

    snprintf(file, sizeof file, "%s/memory.events", name_of(number, name));
    const bool is_oom = text_read(g->dir, file, text, sizeof text) && cgroup_is_oom(text);
    if (!folder_remove(g->dir, name)) {
        MR_VEC_PUSH(&g->left, number);
    }
    return is_oom;
}
