/* The cache on the disk. All that processes and threads say to each other is in locks of files (flock) and names of
 * folders; a descriptor of its own for each user makes threads of one process as foreign to each other as processes.
 *
 * A lock file may be removed with its folder while another opens it: whoever has got the lock looks whether the file still
 * has that name, and begins again otherwise. */
#include "archive/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/map.h"
#include "base/vec.h"

#define KEY_MOST  200
#define PAUSE_NS  20000000 /* between tries to get a lock that another maker has */
#define LOCK      ".lock"
#define PART      ".part"
#define MEMO_MOST 4096
#define PATH_ROOM PATH_MAX

struct mr_cache {
    char *dir; /* NULL: none is named */
    uint64_t max_bytes;
    pthread_mutex_t memo_lock;
    struct mr_map memo; /* what a file is -> its SHA-256, so that it is not read again */
};

struct mr_cache_ref {
    _Atomic unsigned refs;
    int fd; /* with a shared lock */
    char *path;
};

static int fail_errno(struct mr_err *err, const char *path)
{
    char text[128];
    const int error = errno;

    return MR_FAIL(err, error == ENOENT ? MR_E_NOT_FOUND : MR_E_IO, "%.300s: %s", path,
                   strerror_r(error, text, sizeof text));
}

/* ---- the cache's folder ---- */

static char *dir_default(void)
{
    const char *service = getenv("CACHE_DIRECTORY"); /* systemd's CacheDirectory= */
    const char *user = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    char out[PATH_ROOM];
    int n = -1;

    if (service && service[0] == '/') {
        n = snprintf(out, sizeof out, "%.*s/unpacked", (int)strcspn(service, ":"), service);
    } else if (user && user[0] == '/') {
        n = snprintf(out, sizeof out, "%s/millrace/unpacked", user);
    } else if (home && home[0] == '/') {
        n = snprintf(out, sizeof out, "%s/.cache/millrace/unpacked", home);
    }
    return n > 0 && (size_t)n < sizeof out ? mr_strndup(out, (size_t)n) : NULL;
}

struct mr_cache *mr_cache_new(const char *dir, uint64_t max_bytes)
{
    struct mr_cache *c = MR_NEW(struct mr_cache);

    c->dir = dir && dir[0] ? mr_strndup(dir, strlen(dir)) : dir_default();
    c->max_bytes = max_bytes ? max_bytes : UINT64_MAX;
    pthread_mutex_init(&c->memo_lock, NULL);
    return c;
}

static void memo_clear(struct mr_cache *c)
{
    struct mr_map_slot *slot;

    for (size_t i = 0; (slot = mr_map_next(&c->memo, &i));) {
        mr_free(slot->value);
    }
    mr_map_fini(&c->memo);
    c->memo = (struct mr_map){0};
}

void mr_cache_free(struct mr_cache **cache)
{
    struct mr_cache *c = *cache;

    if (c) {
        memo_clear(c);
        pthread_mutex_destroy(&c->memo_lock);
        mr_free(c->dir);
        mr_freep(cache);
    }
}

/* Makes the folder and those above it. What others may write to is not used: they would choose what runs here. */
static int dir_make(const struct mr_cache *c, struct mr_err *err)
{
    char path[PATH_ROOM];
    struct stat st;

    if (!c->dir) {
        return MR_FAIL(err, MR_E_INVALID,
                       "there is no folder for what is unpacked: --archive-cache names one");
    }
    if ((size_t)snprintf(path, sizeof path, "%s", c->dir) >= sizeof path) {
        errno = ENAMETOOLONG;
        return fail_errno(err, c->dir);
    }
    for (char *p = path + 1;; p++) {
        const char was = *p;
        if (was == '/' || was == '\0') {
            *p = '\0';
            if (mkdir(path, 0755) != 0 && errno != EEXIST) {
                return fail_errno(err, path);
            }
            *p = was;
        }
        if (was == '\0') {
            break;
        }
    }
    if (stat(c->dir, &st) != 0) {
        return fail_errno(err, c->dir);
    }
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022)) {
        return MR_FAIL(err, MR_E_FORBIDDEN,
                       "%.300s is not used as the cache: it must be a folder of this user that no "
                       "other may write to; --archive-cache names another",
                       c->dir);
    }
    return MR_OK;
}

/* ---- locks ---- */

/* The paths of one folder of the cache. */
struct place {
    char path[PATH_ROOM];
    char part[PATH_ROOM];
    char lock[PATH_ROOM];
};

static int place_set(struct place *p, const struct mr_cache *c, const char *kind, const char *key,
                     struct mr_err *err)
{
    const size_t len = strlen(key);
    int n = snprintf(p->path, sizeof p->path, "%s/%s-%s", c->dir, kind, key);

    if (len == 0 || len > KEY_MOST || n < 0 || (size_t)n + sizeof LOCK > sizeof p->path) {
        return MR_FAIL(err, MR_E_INVALID, "%.200s: too long a name in the cache", key);
    }
    memcpy(stpcpy(p->part, p->path), PART, sizeof PART);
    memcpy(stpcpy(p->lock, p->path), LOCK, sizeof LOCK);
    return MR_OK;
}

static bool is_there(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

/* Whether the locked file still has its name. */
static bool is_named(int fd, const char *path)
{
    struct stat mine, named;

    return fstat(fd, &mine) == 0 && stat(path, &named) == 0 && mine.st_ino == named.st_ino &&
           mine.st_dev == named.st_dev;
}

/* The lock file, locked; -1 with *err MR_OK: another holds it. */
static int lock_take(const char *path, int how, struct mr_err *err)
{
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);

    mr_err_clear(err);
    if (fd < 0) {
        fail_errno(err, path);
        return -1;
    }
    if (flock(fd, how | LOCK_NB) == 0) {
        if (is_named(fd, path)) {
            return fd;
        }
    } else if (errno != EWOULDBLOCK && errno != EINTR) {
        fail_errno(err, path);
    }
    close(fd);
    return -1;
}

/* ---- references ---- */

struct mr_cache_ref *mr_cache_ref(struct mr_cache_ref *r)
{
    if (r) {
        /* Relaxed: the caller has a reference, so the count cannot fall to zero. */
        atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
    }
    return r;
}

void mr_cache_unref(struct mr_cache_ref **ref)
{
    struct mr_cache_ref *r = *ref;

    *ref = NULL;
    /* Acquire and release: the lock goes after all that other threads did in the folder. */
    if (r && atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) == 1) {
        close(r->fd);
        mr_free(r->path);
        mr_free(r);
    }
}

const char *mr_cache_path(const struct mr_cache_ref *r)
{
    return r->path;
}

/* Takes the descriptor. */
static struct mr_cache_ref *ref_new(int fd, const char *path)
{
    struct mr_cache_ref *r = MR_NEW(struct mr_cache_ref);

    atomic_init(&r->refs, 1);
    r->fd = fd;
    r->path = mr_strndup(path, strlen(path));
    (void)futimens(fd, NULL); /* the last use; a cache that cannot be written is used as it is */
    return r;
}

/* ---- what is too much ---- */

struct kept {
    char *name; /* without LOCK */
    uint64_t bytes;
    struct timespec used;
};
typedef MR_VEC(struct kept) kept_vec;

static int by_use(const void *a, const void *b)
{
    const struct timespec *x = &((const struct kept *)a)->used;
    const struct timespec *y = &((const struct kept *)b)->used;

    return x->tv_sec != y->tv_sec     ? (x->tv_sec > y->tv_sec) - (x->tv_sec < y->tv_sec)
           : x->tv_nsec != y->tv_nsec ? (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec)
                                      : 0;
}

static uint64_t size_read(const char *lock)
{
    char text[32] = "";
    const int fd = open(lock, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    uint64_t bytes = 0;

    if (fd >= 0) {
        const ssize_t n = read(fd, text, sizeof text - 1);
        if (n <= 0 || !mr_str_to_u64(mr_str_n(text, (size_t)n), &bytes)) {
            bytes = 0;
        }
        close(fd);
    }
    return bytes;
}

static void kept_read(const struct mr_cache *c, kept_vec *all)
{
    char path[PATH_ROOM];
    struct dirent *e;
    struct stat st;
    DIR *d = opendir(c->dir);

    while (d && (e = readdir(d))) {
        const mr_str name = mr_str_c(e->d_name);
        if (!mr_str_ends(name, MR_STR(LOCK)) ||
            (size_t)snprintf(path, sizeof path, "%s/%s", c->dir, e->d_name) >= sizeof path ||
            lstat(path, &st) != 0) {
            continue;
        }
        MR_VEC_PUSH(all, ((struct kept){mr_strndup(name.ptr, name.len - strlen(LOCK)),
                                        size_read(path), st.st_mtim}));
    }
    if (d) {
        closedir(d);
    }
}

/* True: it was not in use, and it is gone. A folder that is being removed has no name that counts. */
static bool place_remove(const struct mr_cache *c, const char *name)
{
    char path[PATH_ROOM], part[PATH_ROOM], lock[PATH_ROOM];
    struct mr_err err;

    if ((size_t)snprintf(lock, sizeof lock, "%s/%s" LOCK, c->dir, name) >= sizeof lock) {
        return false;
    }
    snprintf(path, sizeof path, "%s/%s", c->dir, name);
    snprintf(part, sizeof part, "%s/%s" PART, c->dir, name);
    const int fd = lock_take(lock, LOCK_EX, &err);
    if (fd < 0) {
        return false;
    }
    bool is_gone = mr_tree_remove(part, &err) == MR_OK &&
                   (rename(path, part) == 0 || errno == ENOENT) &&
                   mr_tree_remove(part, &err) == MR_OK;
    if (is_gone) {
        unlink(lock);
        mr_log(MR_LOG_INFO, "cache.removed", "path=%s was not used for longest",
               MR_LOG_STR(mr_str_c(path)));
    }
    close(fd);
    return is_gone;
}

static void excess_remove(const struct mr_cache *c)
{
    kept_vec all = {0};
    uint64_t total = 0;

    kept_read(c, &all);
    for (size_t i = 0; i < all.len; i++) {
        total += all.at[i].bytes;
    }
    if (total > c->max_bytes) {
        qsort(all.at, all.len, sizeof *all.at, by_use);
    }
    for (size_t i = 0; i < all.len && total > c->max_bytes; i++) {
        total -= place_remove(c, all.at[i].name) ? all.at[i].bytes : 0;
    }
    for (size_t i = 0; i < all.len; i++) {
        mr_free(all.at[i].name);
    }
    MR_VEC_FINI(&all);
}

/* ---- making ---- */

static int folder_sync(const char *path, bool is_all, struct mr_err *err)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = MR_OK;

    if (fd < 0 || (is_all ? syncfs(fd) : fsync(fd)) != 0) {
        rc = fail_errno(err, path);
    }
    if (fd >= 0) {
        close(fd);
    }
    return rc;
}

/* Makes the folder; the lock is held exclusively. */
static int place_make(const struct mr_cache *c, const struct place *p, int lock,
                      const struct mr_cache_maker *maker, struct mr_err *err)
{
    struct mr_err ignored;
    char text[32];
    int rc;

    MR_TRY(mr_tree_remove(p->part, err));
    if (mkdir(p->part, 0755) != 0) {
        return fail_errno(err, p->part);
    }
    MR_TRY(maker->make(maker->ctx, p->part, p->path, err));
    MR_TRY(folder_sync(p->part, true, err));
    const int n = snprintf(text, sizeof text, "%llu", (unsigned long long)mr_tree_bytes(p->part));
    if (ftruncate(lock, 0) != 0 || pwrite(lock, text, (size_t)n, 0) != n ||
        rename(p->part, p->path) != 0) {
        rc = fail_errno(err, p->path);
        goto out;
    }
    MR_TRY(folder_sync(c->dir, false, err));
out:
    if (rc < 0) {
        mr_tree_remove(p->part, &ignored);
    }
    return rc;
}

/* The lock of a folder that is there, shared. -1: it is not, or it is being made or removed. */
static int place_use(const struct place *p, struct mr_err *err)
{
    int fd = is_there(p->path) ? lock_take(p->lock, LOCK_SH, err) : -1;

    if (fd >= 0 && !is_there(p->path)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Makes the folder, if no one else does; *out: its lock, or -1. */
static int place_try(const struct mr_cache *c, const struct place *p,
                     const struct mr_cache_maker *maker, int *out, struct mr_err *err)
{
    const int fd = lock_take(p->lock, LOCK_EX, err);
    int rc = fd < 0 ? err->status : MR_OK;

    *out = -1;
    if (fd < 0) {
        return rc;
    }
    rc = is_there(p->path) ? MR_OK : place_make(c, p, fd, maker, err);
    /* An exclusive lock becomes a shared one in two steps: another process may remove the folder in between. */
    if (rc == MR_OK && flock(fd, LOCK_SH | LOCK_NB) == 0 && is_named(fd, p->lock) &&
        is_there(p->path)) {
        *out = fd;
        excess_remove(c);
        return rc;
    }
    if (rc < 0 && !is_there(p->path) && !is_there(p->part)) {
        unlink(p->lock);
    }
    close(fd);
    return rc;
}

int mr_cache_get(struct mr_cache *c, const char *kind, const char *key,
                 const struct mr_cache_maker *maker, struct mr_cache_ref **out, struct mr_err *err)
{
    const struct timespec pause = {0, PAUSE_NS};
    struct mr_err why = {0};
    struct place p;
    int rc, fd;

    MR_TRY(dir_make(c, err));
    MR_TRY(place_set(&p, c, kind, key, err));
    while ((fd = place_use(&p, &why)) < 0) {
        rc = why.status < 0 ? why.status : place_try(c, &p, maker, &fd, &why);
        if (rc < 0) {
            rc = MR_FAIL(err, rc, "%s", why.msg);
            goto out;
        }
        if (fd >= 0) {
            break;
        }
        if (maker->is_unwanted && maker->is_unwanted(maker->ctx)) {
            rc = MR_FAIL(err, MR_E_CANCELLED, "%.300s: no longer wanted", p.path);
            goto out;
        }
        nanosleep(&pause, NULL);
    }
    *out = ref_new(fd, p.path);
    rc = MR_OK;
out:
    return rc;
}

/* ---- archives ---- */

struct unpacking {
    const struct mr_cache *cache;
    const struct mr_cache_archive_args *args;
    int fd;
    uint64_t total;
};

static bool unpacking_on_progress(void *ctx, uint64_t done)
{
    const struct unpacking *u = ctx;

    return !u->args->on_progress || u->args->on_progress(u->args->ctx, done, u->total);
}

static bool unpacking_is_unwanted(void *ctx)
{
    return !unpacking_on_progress(ctx, 0);
}

static int unpacking_make(void *ctx, const char *dir, const char *path, struct mr_err *err)
{
    const struct unpacking *u = ctx;
    struct mr_archive_rules rules = {.limits = MR_ARCHIVE_LIMITS,
                                     .flags = u->args->flags,
                                     .on_progress = unpacking_on_progress,
                                     .ctx = ctx};
    char into[PATH_ROOM];

    (void)path;
    rules.limits.bytes = MR_MIN(rules.limits.bytes, u->cache->max_bytes);
    if ((size_t)snprintf(into, sizeof into, "%s/%s", dir, u->args->into ? u->args->into : "") >=
            sizeof into ||
        (u->args->into && mkdir(into, 0755) != 0) || lseek(u->fd, 0, SEEK_SET) != 0) {
        return fail_errno(err, dir);
    }
    return mr_archive_unpack(u->fd, u->args->path, into, &rules, err);
}

/* What says that a file is the same as before, on the heap. */
static char *identity(const char *path, const struct stat *st)
{
    const size_t room = strlen(path) + 128;
    char *out = mr_alloc(room);

    snprintf(out, room, "%llu:%llu:%lld:%lld.%09ld:%s", (unsigned long long)st->st_dev,
             (unsigned long long)st->st_ino, (long long)st->st_size, (long long)st->st_ctim.tv_sec,
             st->st_ctim.tv_nsec, path);
    return out;
}

static bool memo_find(struct mr_cache *c, const char *id, char out[MR_SHA256_TEXT])
{
    pthread_mutex_lock(&c->memo_lock);
    const char *sum = mr_map_find(&c->memo, mr_str_c(id));
    if (sum) {
        memcpy(out, sum, MR_SHA256_TEXT);
    }
    pthread_mutex_unlock(&c->memo_lock);
    return sum != NULL;
}

static void memo_put(struct mr_cache *c, const char *id, const char *sum)
{
    pthread_mutex_lock(&c->memo_lock);
    if (c->memo.len >= MEMO_MOST) {
        memo_clear(c);
    }
    mr_free(mr_map_put(&c->memo, mr_str_c(id), mr_strndup(sum, strlen(sum))));
    pthread_mutex_unlock(&c->memo_lock);
}

/* The file's SHA-256. A file that changes while it is read would have its content by another's name. */
static int sum_of(struct mr_cache *c, const char *path, int fd, const struct stat *st,
                  char out[MR_SHA256_TEXT], struct mr_err *err)
{
    char *before = identity(path, st), *after = NULL;
    struct stat now;
    int rc = MR_OK;

    if (!memo_find(c, before, out)) {
        MR_TRY(mr_sha256_fd(fd, path, out, err));
        after = fstat(fd, &now) == 0 ? identity(path, &now) : NULL;
        if (!after || strcmp(before, after) != 0) {
            rc = MR_FAIL(err, MR_E_INVALID, "%.300s changes while it is read", path);
            goto out;
        }
        memo_put(c, before, out);
    }
out:
    mr_free(before);
    mr_free(after);
    return rc;
}

int mr_cache_archive(struct mr_cache *c, const struct mr_cache_archive_args *args,
                     struct mr_cache_ref **out, struct mr_err *err)
{
    struct unpacking u = {.cache = c, .args = args};
    const struct mr_cache_maker maker = {unpacking_make, unpacking_is_unwanted, &u};
    const bool is_environment = (args->flags & MR_ARCHIVE_ENVIRONMENT) != 0;
    struct mr_sha256 *name = NULL;
    char sum[MR_SHA256_TEXT], key[MR_SHA256_TEXT];
    struct stat st;
    int rc;

    /* O_NONBLOCK: a FIFO in the place of a file must not stop a loader. */
    u.fd = open(args->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (u.fd < 0 || fstat(u.fd, &st) != 0) {
        rc = fail_errno(err, args->path);
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        rc = MR_FAIL(err, MR_E_INVALID, "%.300s is not a regular file", args->path);
        goto out;
    }
    u.total = (uint64_t)st.st_size;
    MR_TRY(sum_of(c, args->path, u.fd, &st, sum, err));
    memcpy(key, sum, sizeof key);
    if (args->into) { /* another result of the same file */
        name = mr_sha256_new();
        mr_sha256_add(name, mr_str_c(sum));
        mr_sha256_add(name, mr_str_c(args->into));
        mr_sha256_end(&name, key);
    }
    MR_TRY(mr_cache_get(c, is_environment ? "packed" : "archive", key, &maker, out, err));
out:
    if (u.fd >= 0) {
        close(u.fd);
    }
    return rc;
}
