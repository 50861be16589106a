/* Folders as a whole. */
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>

#include "archive/archive.h"

#define OPEN_MOST 16

static int entry_remove(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st;
    (void)kind;
    (void)where;
    return remove(path);
}

int mr_tree_remove(const char *path, struct mr_err *err)
{
    char buf[128];

    if (nftw(path, entry_remove, OPEN_MOST, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT) {
        return MR_FAIL(err, MR_E_IO, "%.300s could not be removed: %s", path,
                       strerror_r(errno, buf, sizeof buf));
    }
    return MR_OK;
}

/* nftw hands nothing through. */
static _Thread_local uint64_t bytes_found;

static int entry_count(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)path;
    (void)where;
    bytes_found += kind == FTW_NS ? 0 : (uint64_t)st->st_blocks * 512;
    return 0;
}

uint64_t mr_tree_bytes(const char *path)
{
    bytes_found = 0;
    nftw(path, entry_count, OPEN_MOST, FTW_PHYS);
    return bytes_found;
}
