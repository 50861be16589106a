/* Archives into a folder: whatever their bytes are, nothing is made outside of it, and no link leads out. */
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/archive.h"
#include "fuzz.h"

static char top[PATH_MAX]; /* holds `out`, and nothing else */
static char out[PATH_MAX];

static void top_remove(void)
{
    mr_tree_remove(top, NULL);
}

static void top_make(void)
{
    char name[] = "/tmp/fuzz_archive_XXXXXX";

    REQUIRE(mkdtemp(name) && realpath(name, top));
    REQUIRE((size_t)snprintf(out, sizeof out, "%.4000s/out", top) < sizeof out);
    atexit(top_remove);
}

static int entry_check(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    char real[PATH_MAX];

    (void)where;
    REQUIRE(kind == FTW_F || kind == FTW_D || kind == FTW_SL);
    REQUIRE(kind == FTW_SL || !(st->st_mode & (S_ISUID | S_ISGID | 022)));
    if (kind == FTW_SL) {
        REQUIRE(realpath(path, real) && strncmp(real, out, strlen(out)) == 0);
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct mr_archive_rules rules = {
        .limits = {.bytes = 1 << 20, .files = 100, .depth = 8, .ratio = 500}};
    struct stat st;
    struct mr_err err;

    if (!top[0]) {
        top_make();
    }
    const int fd = memfd_create("archive", MFD_CLOEXEC);
    REQUIRE(fd >= 0 && write(fd, data, size) == (ssize_t)size && lseek(fd, 0, SEEK_SET) == 0);
    REQUIRE(mkdir(out, 0755) == 0);
    if (mr_archive_unpack(fd, "fuzz", out, &rules, &err) == MR_OK) {
        REQUIRE(nftw(out, entry_check, 16, FTW_PHYS) == 0);
    }
    close(fd);
    REQUIRE(stat(top, &st) == 0 && st.st_nlink == 3); /* one folder in it */
    REQUIRE(mr_tree_remove(out, &err) == MR_OK);
    return 0;
}
