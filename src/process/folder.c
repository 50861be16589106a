#include "process/folder.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "process/user.h"

#define OPEN_MOST 16 /* descriptors of a walk */

static int failed(const char *path, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_IO, "cannot make the folder %.300s: %s", path, strerror(errno));
}

int mr_folder_new(char **out, struct mr_err *err)
{
    const char *parent = getenv("TMPDIR");
    char path[4096];

    if (!parent || !parent[0]) {
        parent = "/tmp";
    }
    if (snprintf(path, sizeof path, "%s/millrace-XXXXXX", parent) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return failed(parent, err);
    }
    if (!mkdtemp(path) || chmod(path, 0711) < 0) {
        return failed(path, err);
    }
    *out = mr_strndup(path, strlen(path));
    return MR_OK;
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
