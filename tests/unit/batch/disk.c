/* See disk.h. Changes are kept as a list of operations in the order in which they were made: data of a file
 * (a node), or a name in a folder (also a node). What is on disk is a subset of the list, replayed. */
#include "disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/vec.h"

#define FDS_MOST 1024
#define SECTOR   512
#define NAME     80

int __real_openat(int dir, const char *path, int flags, mode_t mode);
int __real_mkdirat(int dir, const char *path, mode_t mode);
int __real_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __real_unlinkat(int dir, const char *path, int flags);
int __real_close(int fd);
int __real_fsync(int fd);
int __real_fdatasync(int fd);
int __real_ftruncate(int fd, off_t size);
int __real_flock(int fd, int how);
ssize_t __real_pread(int fd, void *to, size_t bytes, off_t offset);
ssize_t __real_pwrite(int fd, const void *from, size_t bytes, off_t offset);
int __real_fstat(int fd, struct stat *out);
int __real_fstatat(int dir, const char *path, struct stat *out, int flags);

int __wrap_openat(int dir, const char *path, int flags, mode_t mode);
int __wrap_mkdirat(int dir, const char *path, mode_t mode);
int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __wrap_unlinkat(int dir, const char *path, int flags);
int __wrap_close(int fd);
int __wrap_fsync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_ftruncate(int fd, off_t size);
int __wrap_flock(int fd, int how);
ssize_t __wrap_pread(int fd, void *to, size_t bytes, off_t offset);
ssize_t __wrap___pread_chk(int fd, void *to, size_t bytes, off_t offset, size_t room);
ssize_t __wrap_pwrite(int fd, const void *from, size_t bytes, off_t offset);
int __wrap_fstat(int fd, struct stat *out);
int __wrap_fstatat(int dir, const char *path, struct stat *out, int flags);

enum change {
    WRITES, /* bytes of `node` at `at` */
    SIZES,  /* `node` has `at` bytes */
    NAMES,  /* `name` in folder `node` is `target`, whatever it was before */
    UNNAMES
};

enum fate { PENDING, ON_DISK, LOST };

struct op {
    enum change change;
    enum fate fate;
    int node;
    int target;
    uint64_t at;
    size_t bytes;
    char *data;
    char name[NAME];
};

static struct {
    struct disk_orders orders;
    bool is_on;
    bool is_log_put; /* the call is the renaming of a new manifest.log */
    uint64_t calls;
    uint64_t failed;
    int nodes; /* 0 is the base */
    MR_VEC(bool) is_folder;
    int node_of_fd[FDS_MOST]; /* -1: not below base */
    MR_VEC(struct op) ops;
} disk;

/* ---- the list ---- */

static int new_node(bool is_folder)
{
    MR_VEC_PUSH(&disk.is_folder, is_folder);
    return disk.nodes++;
}

static void add_op(enum change change, int node, const char *name, int target)
{
    struct op op = {.change = change, .node = node, .target = target};

    snprintf(op.name, sizeof op.name, "%s", name);
    MR_VEC_PUSH(&disk.ops, op);
}

static void add_data(enum change change, int node, uint64_t at, const void *data, size_t bytes)
{
    struct op op = {.change = change, .node = node, .at = at, .bytes = bytes};

    op.data = bytes ? mr_strndup(data, bytes) : NULL;
    MR_VEC_PUSH(&disk.ops, op);
}

/* The node that a name leads to now, or -1. */
static int find(int folder, const char *name)
{
    for (size_t i = disk.ops.len; i-- > 0;) {
        const struct op *op = &disk.ops.at[i];
        if (op->node == folder && op->change >= NAMES && strcmp(op->name, name) == 0) {
            return op->change == NAMES ? op->target : -1;
        }
    }
    return -1;
}

/* Folder and last name of a path; false when it does not lie below base. */
static bool resolve(int dir, const char *path, int *out_folder, const char **out_name)
{
    const size_t base = strlen(disk.orders.base);
    int folder = dir >= 0 && dir < FDS_MOST ? disk.node_of_fd[dir] : -1;
    const char *slash;
    char name[NAME];

    if (path[0] == '/') {
        if (strncmp(path, disk.orders.base, base) != 0 || path[base] != '/') {
            return false;
        }
        folder = 0;
        path += base + 1;
    }
    while (folder >= 0 && (slash = strchr(path, '/'))) {
        snprintf(name, sizeof name, "%.*s", (int)(slash - path), path);
        folder = find(folder, name);
        path = slash + 1;
    }
    *out_folder = folder;
    *out_name = path;
    return disk.is_on && folder >= 0;
}

static int node_of(int fd)
{
    return disk.is_on && fd >= 0 && fd < FDS_MOST ? disk.node_of_fd[fd] : -1;
}

static void settle(int node, enum fate fate)
{
    for (size_t i = 0; i < disk.ops.len; i++) {
        struct op *op = &disk.ops.at[i];
        const bool is_name = op->change >= NAMES;
        /* A failed sync of a folder leaves its names as they are: file systems keep those in a journal. */
        if (op->node == node && op->fate == PENDING && !(is_name && fate == LOST)) {
            op->fate = fate;
        }
    }
}

/* ---- what is left when the power fails ---- */

static void put_on_disk(const struct op *op, struct mr_rng *rng, char **data, size_t *size)
{
    const size_t end = op->change == WRITES ? op->at + op->bytes : op->at;

    if (op->change == SIZES || end > *size) {
        *data = mr_realloc_array(*data, end + 1, 1);
        if (end > *size) {
            memset(*data + *size, 0, end - *size);
        }
        *size = end;
    }
    for (size_t from = 0; op->change == WRITES && from < op->bytes; from += SECTOR) {
        const size_t n = MR_MIN((size_t)SECTOR, op->bytes - from);
        if (op->fate == ON_DISK || mr_rng_u64(rng) % 4 != 0) {
            memcpy(*data + op->at + from, op->data + from, n);
        }
    }
}

static void leave_file(int node, const bool *counts, struct mr_rng *rng, const char *path)
{
    char *data = NULL;
    size_t size = 0;

    for (size_t i = 0; i < disk.ops.len; i++) {
        const struct op *op = &disk.ops.at[i];
        if (counts[i] && op->node == node && op->change < NAMES) {
            put_on_disk(op, rng, &data, &size);
        }
    }
    const int fd = __real_openat(AT_FDCWD, path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (fd < 0 || __real_pwrite(fd, data, size, 0) != (ssize_t)size) {
        perror(path);
        _exit(1);
    }
    __real_close(fd);
    mr_free(data);
}

static void leave_folder(int node, const bool *counts, struct mr_rng *rng, const char *path)
{
    char below[PATH_MAX];

    if (__real_mkdirat(AT_FDCWD, path, 0777) < 0) {
        perror(path);
        _exit(1);
    }
    for (size_t i = 0; i < disk.ops.len; i++) {
        const struct op *op = &disk.ops.at[i];
        bool is_last = counts[i] && op->node == node && op->change == NAMES;
        for (size_t k = i + 1; k < disk.ops.len && is_last; k++) {
            const struct op *later = &disk.ops.at[k];
            is_last = !(counts[k] && later->node == node && later->change >= NAMES &&
                        strcmp(later->name, op->name) == 0);
        }
        if (is_last) {
            snprintf(below, sizeof below, "%s/%s", path, op->name);
            (disk.is_folder.at[op->target] ? leave_folder : leave_file)(op->target, counts, rng,
                                                                        below);
        }
    }
}

static void leave(unsigned variant)
{
    bool *counts = MR_NEW_ARRAY(bool, disk.ops.len);
    struct mr_rng rng;
    char path[80];

    mr_rng_seed(&rng, disk.orders.seed * 1000 + disk.orders.crash_at * 10 + variant);
    const uint64_t often = variant % 2 ? 2 : 4; /* one in two is on disk, or three in four */
    for (size_t i = 0; i < disk.ops.len; i++) {
        const enum fate fate = disk.ops.at[i].fate;
        counts[i] =
            fate == ON_DISK || (fate == PENDING && variant > 0 && mr_rng_u64(&rng) % often != 0);
    }
    snprintf(path, sizeof path, "%s.%u", disk.orders.base, variant);
    leave_folder(0, counts, &rng, path);
    mr_free(counts);
}

static _Noreturn void crash(void)
{
    for (unsigned i = 0; disk.orders.power_fails && i < disk.orders.variants; i++) {
        leave(i);
    }
    _exit(DISK_CRASHED);
}

/* ---- the calls ---- */

enum answer { GO_ON, FAIL, HALF };

/* What the next call to be counted is. */
static void trace(char kind)
{
    const uint64_t next = disk.calls + 1;

    if (disk.orders.trace && next < DISK_TRACE_MOST) {
        disk.orders.trace[next] = kind;
    }
}

/* One more call. is_loud: its caller must report a failure of it. */
static enum answer count_call(bool is_write, bool is_loud)
{
    const struct disk_orders *o = &disk.orders;
    const uint64_t n = ++disk.calls;

    if (o->visit_at == n && !disk.is_log_put) {
        disk.is_on = false;
        o->visit();
        disk.is_on = true;
    }
    if (o->crash_at && n >= o->crash_at) {
        if (is_write && o->crash_tears) {
            return HALF;
        }
        crash();
    }
    if (o->fail_from && n >= o->fail_from && n < o->fail_from + o->fail_count) {
        if (is_write && o->fail_tears && n == o->fail_from) {
            return HALF;
        }
        disk.failed += is_loud;
        errno = o->fail_errno;
        return FAIL;
    }
    return GO_ON;
}

int __wrap_openat(int dir, const char *path, int flags, mode_t mode)
{
    const char *name = path;
    int folder;
    const bool is_ours = resolve(dir, path, &folder, &name);

    if (is_ours && count_call(false, true) == FAIL) {
        return -1;
    }
    const int fd = __real_openat(dir, path, flags, mode);
    if (fd < 0 || fd >= FDS_MOST) {
        return fd;
    }
    disk.node_of_fd[fd] = -1;
    if (is_ours) {
        int node = strcmp(name, ".") == 0 || !name[0] ? folder : find(folder, name);
        if (node < 0) {
            node = new_node(false);
            add_op(NAMES, folder, name, node);
        } else if (flags & O_TRUNC) {
            add_data(SIZES, node, 0, NULL, 0);
        }
        disk.node_of_fd[fd] = node;
    } else if (disk.is_on && strcmp(path, disk.orders.base) == 0) {
        disk.node_of_fd[fd] = 0;
    }
    return fd;
}

int __wrap_mkdirat(int dir, const char *path, mode_t mode)
{
    const char *name;
    int folder;
    const bool is_ours = resolve(dir, path, &folder, &name);

    if (is_ours && count_call(false, true) == FAIL) {
        return -1;
    }
    const int rc = __real_mkdirat(dir, path, mode);
    if (rc == 0 && is_ours) {
        add_op(NAMES, folder, name, new_node(true));
    }
    return rc;
}

int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    const char *from_name;
    const char *to_name;
    int from_folder;
    int to_folder;
    const bool is_ours = resolve(from_dir, from, &from_folder, &from_name) &&
                         resolve(to_dir, to, &to_folder, &to_name);

    disk.is_log_put = is_ours && strcmp(to_name, "manifest.log") == 0;
    if (is_ours && count_call(false, true) == FAIL) {
        return -1;
    }
    disk.is_log_put = false;
    const int rc = __real_renameat(from_dir, from, to_dir, to);
    if (rc == 0 && is_ours) {
        add_op(NAMES, to_folder, to_name, find(from_folder, from_name));
        add_op(UNNAMES, from_folder, from_name, -1);
    }
    return rc;
}

int __wrap_unlinkat(int dir, const char *path, int flags)
{
    const char *name;
    int folder;
    const bool is_ours = resolve(dir, path, &folder, &name);

    /* Leftover files are not a loss; the job must not be reported as finished wrongly. */
    if (is_ours && count_call(false, strcmp(path, "_SUCCESS") == 0) == FAIL) {
        return -1;
    }
    const int rc = __real_unlinkat(dir, path, flags);
    if (rc == 0 && is_ours) {
        add_op(UNNAMES, folder, name, -1);
    }
    return rc;
}

int __wrap_close(int fd)
{
    const int node = node_of(fd);
    const bool fails = node >= 0 && count_call(false, false) == FAIL;

    if (node >= 0) {
        disk.node_of_fd[fd] = -1;
    }
    const int rc = __real_close(fd); /* the descriptor is closed also on failure */
    if (fails) {
        errno = disk.orders.fail_errno;
        return -1;
    }
    return rc;
}

static int sync_fd(int fd, int (*sync)(int fd))
{
    const int node = node_of(fd);

    if (node < 0) {
        return sync(fd);
    }
    trace('s');
    if (count_call(false, true) == FAIL) {
        if ((disk.calls + disk.orders.seed) % 3 > 0) {
            settle(node, LOST);
        }
        return -1;
    }
    settle(node, ON_DISK);
    return 0;
}

int __wrap_fsync(int fd)
{
    return sync_fd(fd, __real_fsync);
}

int __wrap_fdatasync(int fd)
{
    return sync_fd(fd, __real_fdatasync);
}

int __wrap_ftruncate(int fd, off_t size)
{
    const int node = node_of(fd);

    if (node >= 0) {
        trace('w');
    }
    if (node >= 0 && count_call(false, true) == FAIL) {
        return -1;
    }
    const int rc = __real_ftruncate(fd, size);
    if (rc == 0 && node >= 0) {
        add_data(SIZES, node, (uint64_t)size, NULL, 0);
    }
    return rc;
}

int __wrap_flock(int fd, int how)
{
    return node_of(fd) >= 0 && count_call(false, true) == FAIL ? -1 : __real_flock(fd, how);
}

ssize_t __wrap_pread(int fd, void *to, size_t bytes, off_t offset)
{
    return node_of(fd) >= 0 && count_call(false, true) == FAIL
               ? -1
               : __real_pread(fd, to, bytes, offset);
}

/* What _FORTIFY_SOURCE makes of it. */
ssize_t __wrap___pread_chk(int fd, void *to, size_t bytes, off_t offset, size_t room)
{
    return __wrap_pread(fd, to, MR_MIN(bytes, room), offset);
}

/* The pid in LOCK is for people and may be missing. */
static bool is_lock(int node)
{
    const int job = find(0, "job");

    return job >= 0 && find(job, "LOCK") == node;
}

ssize_t __wrap_pwrite(int fd, const void *from, size_t bytes, off_t offset)
{
    const int node = node_of(fd);
    enum answer answer = GO_ON;

    if (node >= 0) {
        trace('w');
        answer = count_call(true, !is_lock(node));
    }
    if (answer == FAIL) {
        return -1;
    }
    const ssize_t n = __real_pwrite(fd, from, answer == HALF ? (bytes + 1) / 2 : bytes, offset);
    if (n > 0 && node >= 0) {
        add_data(WRITES, node, (uint64_t)offset, from, (size_t)n);
    }
    if (answer == HALF && disk.orders.crash_at) {
        crash();
    }
    return n;
}

int __wrap_fstat(int fd, struct stat *out)
{
    return node_of(fd) >= 0 && count_call(false, true) == FAIL ? -1 : __real_fstat(fd, out);
}

int __wrap_fstatat(int dir, const char *path, struct stat *out, int flags)
{
    const char *name;
    int folder;

    return resolve(dir, path, &folder, &name) && count_call(false, true) == FAIL
               ? -1
               : __real_fstatat(dir, path, out, flags);
}

/* ---- orders ---- */

static void take_file(int node, const char *path)
{
    char piece[4096];
    const int fd = __real_openat(AT_FDCWD, path, O_RDONLY, 0);
    uint64_t at = 0;
    ssize_t n;

    while ((n = __real_pread(fd, piece, sizeof piece, (off_t)at)) > 0) {
        add_data(WRITES, node, at, piece, (size_t)n);
        at += (uint64_t)n;
    }
    __real_close(fd);
}

static void take_folder(int node, const char *path)
{
    DIR *list = opendir(path);
    struct dirent *entry;
    char below[PATH_MAX];

    while (list && (entry = readdir(list))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
        const int child = new_node(entry->d_type == DT_DIR);
        add_op(NAMES, node, entry->d_name, child);
        (entry->d_type == DT_DIR ? take_folder : take_file)(child, below);
    }
    if (list) {
        closedir(list);
    }
}

void disk_begin(const struct disk_orders *orders)
{
    disk.orders = *orders;
    disk.calls = disk.failed = 0;
    for (int fd = 0; fd < FDS_MOST; fd++) {
        disk.node_of_fd[fd] = -1;
    }
    take_folder(new_node(true), orders->base);
    for (size_t i = 0; i < disk.ops.len; i++) {
        disk.ops.at[i].fate = ON_DISK;
    }
    disk.is_on = true;
}

uint64_t disk_calls(void)
{
    return disk.calls;
}

uint64_t disk_failed(void)
{
    return disk.failed;
}

void disk_calm(void)
{
    disk.orders.crash_at = disk.orders.fail_from = 0;
}
