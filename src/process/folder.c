#include "process/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "process/user.h"

#define OPEN_MOST 16 /* descriptors of a walk */
#define LOCKED    "millrace-workers-"
#define TRIES     16

static int failed(const char *path, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_IO, "cannot make the folder %.300s: %s", path, strerror(errno));
}

static const char *temporary(void)
{
    const char *parent = getenv("TMPDIR");

    return parent && parent[0] ? parent : "/tmp";
}

static int folder_new(const char *prefix, char **out, struct mr_err *err)
{
    const char *parent = temporary();
    char path[4096];

    if (snprintf(path, sizeof path, "%s/%sXXXXXX", parent, prefix) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return failed(parent, err);
    }
    if (!mkdtemp(path) || chmod(path, 0711) < 0) {
        return failed(path, err);
    }
    *out = mr_strndup(path, strlen(path));
    return MR_OK;
}

int mr_folder_new(char **out, struct mr_err *err)
{
    return folder_new("millrace-", out, err);
}

/* The lock of a folder of this user, which is there. Negative: it has none to give. */
static int folder_lock(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd < 0) {
        return -1;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0 || fstat(fd, &st) < 0 || st.st_nlink == 0 ||
        st.st_uid != geteuid()) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Removes the locked folders of processes that have ended, and of one that is just making its own: that one makes
 * another. */
static void left_remove(const char *parent)
{
    DIR *entries = opendir(parent);
    char path[4096];

    for (const struct dirent *e; entries && (e = readdir(entries));) {
        if (strncmp(e->d_name, LOCKED, strlen(LOCKED)) != 0 ||
            snprintf(path, sizeof path, "%s/%s", parent, e->d_name) >= (int)sizeof path) {
            continue;
        }
        const int lock = folder_lock(path);
        if (lock >= 0) {
            mr_folder_remove(path);
            close(lock);
        }
    }
    if (entries) {
        closedir(entries);
    }
}

int mr_folder_new_locked(char **out, int *out_lock, struct mr_err *err)
{
    left_remove(temporary());
    for (int i = 0; i < TRIES; i++) {
        char *path = NULL;
        const int rc = folder_new(LOCKED, &path, err);
        if (rc < 0) {
            return rc;
        }
        *out_lock = folder_lock(path);
        if (*out_lock >= 0) {
            *out = path;
            return MR_OK;
        }
        rmdir(path);
        mr_free(path);
    }
    return MR_FAIL(err, MR_E_IO, "cannot lock a folder in %.300s", temporary());
}

int mr_folder_make(const char *path, const char *user, struct mr_err *err)
{
    if (mkdir(path, 0700) < 0) {
        return errno == EEXIST ? MR_OK : failed(path, err);
    }
    if (user) {
        return mr_process_user_give(path, user, err);
    }
    return chmod(path, 0711) < 0 ? failed(path, err) : MR_OK;
}

static int entry_remove(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st;
    (void)kind;
    if (where->level > 0) {
        (void)remove(path);
    }
    return 0;
}

void mr_folder_empty(const char *path)
{
    nftw(path, entry_remove, OPEN_MOST, FTW_DEPTH | FTW_PHYS);
}

void mr_folder_remove(const char *path)
{
    mr_folder_empty(path);
    rmdir(path);
}
