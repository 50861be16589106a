/* The cache of models with separate weights.
 *
 * Mapping weights inside an ONNX file is not useful: they are not aligned, and the user may truncate the file while
 * it is served. So a large model is rewritten once: its graph into a small ONNX file, its tensors into another file,
 * each at the start of a page. Such a pair is an entry; its folder is named by a hash of the model's bytes, so that
 * equal files share an entry.
 *
 * The hash only finds an entry. Before use every byte is compared with the model: an entry that is damaged,
 * incomplete after a crash, or of another model with the same hash, is replaced. So nothing needs to be synced, which
 * would take longer than the rest of a load. If neither the model's file nor the entry has changed since the last
 * comparison, it is skipped (seen.c). Entries are written under another name and renamed, so that several servers may
 * share a folder.
 *
 * The folder holds at most `limit` bytes: after a new entry, the least recently used ones are removed. A user of an
 * entry holds a lock on its weights, which prevents its removal.
 *
 * Thread: loaders. A model works without the cache: after a failure the caller loads the original file. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "parameters.h"

#define CHUNK       (128 << 10)
#define GRAPH_MOST  (UINT64_C(64) << 20) /* limit of the graph without its tensors */
#define KEY_LETTERS 32
#define STALE_S     (24 * 3600) /* an unfinished entry of this age is abandoned */
#define MODEL_NAME  "model.onnx"
#define DATA_NAME   "weights.bin"
#define NEW_PREFIX  ".new-"

#define UNWANTED_TEXT "the model is not wanted any more"

/* ---- the folder ---- */

static int folder_default(char *out, size_t room)
{
    const char *service = getenv("CACHE_DIRECTORY"); /* systemd's CacheDirectory= */
    const char *user = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    int n = -1;

    if (service && service[0] == '/') {
        n = snprintf(out, room, "%.*s/parameters", (int)strcspn(service, ":"), service);
    } else if (user && user[0] == '/') {
        n = snprintf(out, room, "%s/millrace/parameters", user);
    } else if (home && home[0] == '/') {
        n = snprintf(out, room, "%s/.cache/millrace/parameters", home);
    }
    return n > 0 && (size_t)n < room;
}

int onnx_cache_init(struct onnx_cache *c, const struct mr_setting *settings, uint32_t count,
                    struct mr_err *err)
{
    const char *given = mr_setting_find(settings, count, "parameter_cache");
    char path[PATH_MAX];

    c->folder = NULL;
    c->limit = INT64_C(16) << 30;
    int rc = mr_setting_i64(settings, count, "parameter_cache_bytes", 0, INT64_MAX, &c->limit, err);
    if (rc < 0) {
        return rc;
    }
    if (given && given[0] != '/') {
        return mr_backend_fail(err, MR_E_INVALID,
                               "parameter 'parameter_cache' is '%s', expected an absolute path",
                               given);
    }
    if (!given && !folder_default(path, sizeof path)) {
        return MR_OK;
    }
    c->folder = strdup(given ? given : path);
    return c->folder ? MR_OK : mr_backend_fail(err, MR_E_NOMEM, "out of memory");
}

void onnx_cache_fini(struct onnx_cache *c)
{
    free(c->folder);
}

static int disk_fail(struct mr_err *err, const char *what, const char *path)
{
    if (errno == ECANCELED) {
        return mr_backend_fail(err, MR_E_CANCELLED, UNWANTED_TEXT);
    }
    const int full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
    return mr_backend_fail(err, full ? MR_E_EXHAUSTED : MR_E_IO, "cannot %s '%.300s': %s", what,
                           path, strerror(errno));
}

/* Creates the folder and its parents; other users must not be able to write there. */
static int folder_open(const struct onnx_cache *c, int *out_fd, struct mr_err *err)
{
    char path[PATH_MAX];
    struct stat st;

    snprintf(path, sizeof path, "%s", c->folder);
    for (char *p = path + 1; *p; p++) {
        if (*p == '/') {
            *p = '\0';
            mkdir(path, 0700);
            *p = '/';
        }
    }
    if (mkdir(path, 0700) != 0 && errno != EEXIST) {
        return disk_fail(err, "make the cache folder", path);
    }
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        disk_fail(err, "open the cache folder", path);
    } else if (st.st_uid != geteuid() || (st.st_mode & 022)) {
        mr_backend_fail(err, MR_E_FORBIDDEN,
                        "the cache folder '%.300s' must belong to the server's user, and no one "
                        "else may write to it",
                        path);
    } else {
        *out_fd = fd;
        return MR_OK;
    }
    if (fd >= 0) {
        close(fd);
    }
    return err->status;
}

/* ---- the key ---- */

static uint64_t mix(uint64_t a, uint64_t b)
{
    const __uint128_t m = (__uint128_t)a * b;
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

int onnx_pace_read(struct onnx_pace *p, int fd, uint64_t bytes, struct mr_err *err)
{
    uint8_t *chunk = malloc(CHUNK);
    int rc = MR_OK;

    if (!chunk) {
        return mr_backend_fail(err, MR_E_NOMEM, "out of memory");
    }
    for (uint64_t at = 0; at < bytes && rc == MR_OK; at += CHUNK) {
        const uint64_t n = bytes - at < CHUNK ? bytes - at : CHUNK;
        if (!onnx_read_all(fd, chunk, n, at)) {
            rc = mr_backend_fail(err, MR_E_IO, "the file of the weights became shorter");
        } else if (!onnx_pace_step(p, n, n)) {
            rc = mr_backend_fail(err, MR_E_CANCELLED, UNWANTED_TEXT);
        }
    }
    free(chunk);
    return rc;
}

/* A hash of the file's content and of the tensors taken out of it. */
static int key_make(int fd, uint64_t bytes, uint64_t tensor_bytes, struct onnx_pace *pace,
                    uint8_t *chunk, char *out_key, struct mr_err *err)
{
    /* arbitrary odd numbers, as those below */
    uint64_t h1 = UINT64_C(0x9e3779b97f4a7c15) ^ bytes;
    uint64_t h2 = UINT64_C(0xd1b54a32d192ed03) ^ tensor_bytes;

    for (uint64_t at = 0; at < bytes; at += CHUNK) {
        const uint64_t n = bytes - at < CHUNK ? bytes - at : CHUNK;
        if (!onnx_read_all(fd, chunk, n, at)) {
            return mr_backend_fail(err, MR_E_IO, "the model file became shorter while it was read");
        }
        memset(chunk + n, 0, 16);
        for (uint64_t i = 0; i < n; i += 16) {
            uint64_t v[2];
            memcpy(v, chunk + i, sizeof v);
            h1 = mix(h1 ^ v[0], v[1] ^ UINT64_C(0xa0761d6478bd642f)) + v[0];
            h2 = mix(h2 ^ v[1], v[0] ^ UINT64_C(0xe7037ed1a0b428db)) + v[1];
        }
        if (!onnx_pace_step(pace, n, n)) {
            return mr_backend_fail(err, MR_E_CANCELLED, UNWANTED_TEXT);
        }
    }
    snprintf(out_key, KEY_LETTERS + 1, "%016llx%016llx", (unsigned long long)h1,
             (unsigned long long)h2);
    return MR_OK;
}

/* ---- one entry ---- */

struct entry {
    const struct onnx_tensors *tensors;
    struct onnx_bytes model;
    uint64_t data_bytes;
    struct onnx_pace *pace;
    uint8_t *chunks; /* two of CHUNK bytes and some */
    int source;      /* the original model */
    int folder;      /* of the cache */
    struct onnx_seen seen;
    int is_seen; /* `seen` also has the entry's files */
    char key[KEY_LETTERS + 1];
};

static int data_copy(const struct entry *e, int to)
{
    uint64_t offset = 0;

    if (posix_fallocate(to, 0, (off_t)e->data_bytes) == ENOSPC) {
        errno = ENOSPC;
        return 0;
    }
    for (size_t i = 0; i < e->tensors->count; i++) {
        const struct onnx_tensor *t = &e->tensors->at[i];
        for (uint64_t at = 0; at < t->bytes; at += CHUNK) {
            const uint64_t n = t->bytes - at < CHUNK ? t->bytes - at : CHUNK;
            errno = EIO; /* the file has become shorter */
            if (!onnx_read_all(e->source, e->chunks, n, t->offset + at) ||
                !onnx_write_all(to, e->chunks, n, offset + at)) {
                return 0;
            }
            if (!onnx_pace_step(e->pace, n, n)) {
                errno = ECANCELED;
                return 0;
            }
        }
        offset = onnx_tensor_next(offset, t);
    }
    return 1;
}

/* Writes both files of an entry into an empty folder. */
static int files_write(const struct entry *e, int dir)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    int data = openat(dir, DATA_NAME, flags, 0600);
    int model = openat(dir, MODEL_NAME, flags, 0600);
    int ok = data >= 0 && model >= 0 && data_copy(e, data) &&
             onnx_write_all(model, e->model.at, e->model.len, 0);
    const int why = errno;

    if (data >= 0) {
        close(data);
    }
    if (model >= 0) {
        close(model);
    }
    errno = why;
    return ok;
}

/* Removes a complete or unfinished entry. Only names that are made here are removed. */
static void entry_remove(int folder, const char *name)
{
    int dir = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (dir >= 0) {
        unlinkat(dir, MODEL_NAME, 0);
        unlinkat(dir, DATA_NAME, 0);
        onnx_seen_remove(dir);
        close(dir);
        unlinkat(folder, name, AT_REMOVEDIR);
    }
}

static int entry_make(const struct onnx_cache *c, const struct entry *e, int *out_is_ours,
                      struct mr_err *err)
{
    static _Atomic unsigned turn;
    struct timespec now;
    char name[96];
    int rc = MR_OK;

    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(name, sizeof name, NEW_PREFIX "%d-%u-%llx-%lx", (int)getpid(), turn++,
             (unsigned long long)now.tv_sec, now.tv_nsec);
    if (mkdirat(e->folder, name, 0700) != 0) {
        return disk_fail(err, "write to the cache folder", c->folder);
    }
    int dir = openat(e->folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || !files_write(e, dir)) {
        rc = disk_fail(err, "write to the cache folder", c->folder);
    } else if (renameat(e->folder, name, e->folder, e->key) == 0) {
        *out_is_ours = 1;
    } else if (errno != EEXIST && errno != ENOTEMPTY) { /* otherwise another server was faster */
        rc = disk_fail(err, "write to the cache folder", c->folder);
    }
    if (dir >= 0) {
        close(dir);
    }
    entry_remove(e->folder, name);
    return rc;
}

/* ---- using one ---- */

static int size_is(int fd, uint64_t bytes)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == bytes;
}

static int model_equals(const struct entry *e, int fd)
{
    for (uint64_t at = 0; at < e->model.len; at += CHUNK) {
        const uint64_t n = e->model.len - at < CHUNK ? e->model.len - at : CHUNK;
        if (!onnx_read_all(fd, e->chunks, n, at) || memcmp(e->chunks, e->model.at + at, n) != 0) {
            return 0;
        }
    }
    return 1;
}

/* MR_OK, MR_E_INVALID: they differ, MR_E_CANCELLED. */
static int data_equals(const struct entry *e, int fd)
{
    uint8_t *mine = e->chunks;
    uint8_t *theirs = e->chunks + CHUNK;
    uint64_t offset = 0;

    for (size_t i = 0; i < e->tensors->count; i++) {
        const struct onnx_tensor *t = &e->tensors->at[i];
        for (uint64_t at = 0; at < t->bytes; at += CHUNK) {
            const uint64_t n = t->bytes - at < CHUNK ? t->bytes - at : CHUNK;
            if (!onnx_read_all(e->source, mine, n, t->offset + at) ||
                !onnx_read_all(fd, theirs, n, offset + at) || memcmp(mine, theirs, n) != 0) {
                return MR_E_INVALID;
            }
            if (!onnx_pace_step(e->pace, 2 * n, n)) {
                return MR_E_CANCELLED;
            }
        }
        offset = onnx_tensor_next(offset, t);
    }
    return MR_OK;
}

static int is_as_seen(const struct entry *e, int model, int data)
{
    return e->is_seen && onnx_identity_is(model, &e->seen.model) &&
           onnx_identity_is(data, &e->seen.data);
}

static int entry_check(const struct entry *e, int is_ours, int model, int data)
{
    if (model < 0 || data < 0 || flock(data, LOCK_SH | LOCK_NB) != 0 ||
        !size_is(model, e->model.len) || !size_is(data, e->data_bytes)) {
        return MR_E_INVALID;
    }
    if (is_ours) {
        return MR_OK;
    }
    if (is_as_seen(e, model, data)) {
        /* Data that is not in memory is read at the limited rate. */
        struct mr_err err;
        onnx_pace_plan(e->pace, "read", e->data_bytes);
        return onnx_pace_read(e->pace, data, e->data_bytes, &err);
    }
    onnx_pace_plan(e->pace, "compare", 2 * e->tensors->bytes);
    return !model_equals(e, model) ? MR_E_INVALID : data_equals(e, data);
}

/* Writes a note if the model's file has not changed while it was compared or copied. */
static void entry_note(struct entry *e, int dir, int model, int data)
{
    if (!is_as_seen(e, model, data) && onnx_identity_is(e->source, &e->seen.source) &&
        onnx_identity_read(model, &e->seen.model) && onnx_identity_read(data, &e->seen.data)) {
        onnx_seen_write(dir, &e->seen);
    }
}

/* Opens the entry if it exists and is right; *out_data is its weights, locked. Removes a wrong one. An entry that
 * this thread has just written is not compared. Returns MR_OK, MR_E_NOT_FOUND, MR_E_INVALID, MR_E_CANCELLED. */
static int entry_open(struct entry *e, int is_ours, int *out_data)
{
    int dir = openat(e->folder, e->key, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (dir < 0) {
        return MR_E_NOT_FOUND;
    }
    int model = openat(dir, MODEL_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    int data = openat(dir, DATA_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    int rc = entry_check(e, is_ours, model, data);
    if (rc == MR_OK) {
        entry_note(e, dir, model, data);
        futimens(dir, NULL); /* updates the time of its last use */
        *out_data = data;
    } else if (data >= 0) {
        close(data);
    }
    if (model >= 0) {
        close(model);
    }
    if (rc == MR_E_INVALID) {
        entry_remove(e->folder, e->key);
    }
    close(dir);
    return rc;
}

/* ---- the limit ---- */

static int is_key(const char *name)
{
    return strlen(name) == KEY_LETTERS && strspn(name, "0123456789abcdef") == KEY_LETTERS;
}

/* An entry by its last use. */
struct used {
    int64_t ns;
    char key[KEY_LETTERS + 1];
};

static int is_before(const struct used *a, const struct used *b)
{
    return a->ns != b->ns ? a->ns < b->ns : strcmp(a->key, b->key) < 0;
}

/* Size and last use of an entry; -1 = none. */
static int64_t entry_bytes(int folder, const char *name, struct used *out)
{
    char path[KEY_LETTERS + sizeof "/" DATA_NAME];
    struct stat st;
    struct stat data;

    snprintf(path, sizeof path, "%.*s/" DATA_NAME, KEY_LETTERS, name);
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(st.st_mode) ||
        fstatat(folder, path, &data, AT_SYMLINK_NOFOLLOW) != 0) {
        return -1;
    }
    out->ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    memcpy(out->key, name, sizeof out->key);
    return data.st_size;
}

/* Removes an entry unless its weights are open. */
static void unused_remove(int folder, const char *name)
{
    char path[KEY_LETTERS + sizeof "/" DATA_NAME];

    snprintf(path, sizeof path, "%.*s/" DATA_NAME, KEY_LETTERS, name);
    int fd = openat(folder, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
        entry_remove(folder, name);
    }
    if (fd >= 0) {
        close(fd);
    }
}

/* Scans the folder: the total size of the entries, and the least recently used one after `after`; "": none. */
static int64_t folder_scan(DIR *d, int folder, const struct used *after, struct used *oldest)
{
    int64_t sum = 0;

    *oldest = (struct used){.ns = INT64_MAX};
    rewinddir(d);
    for (struct dirent *it; (it = readdir(d));) {
        struct used used;
        int64_t bytes = is_key(it->d_name) ? entry_bytes(folder, it->d_name, &used) : -1;
        struct stat st;
        if (bytes >= 0) {
            sum += bytes;
            if (is_before(after, &used) && is_before(&used, oldest)) {
                *oldest = used;
            }
        } else if (strncmp(it->d_name, NEW_PREFIX, strlen(NEW_PREFIX)) == 0 &&
                   fstatat(folder, it->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                   st.st_mtime + STALE_S < time(NULL)) {
            entry_remove(folder, it->d_name);
        }
    }
    return sum;
}

/* Removes least recently used entries until `more` bytes fit. True if they do. */
static int room_make(const struct onnx_cache *c, int folder, uint64_t more)
{
    struct used oldest;
    struct used after = {
        .ns = INT64_MIN}; /* each is tried once: it may be in use, or not be removable */
    if (more > (uint64_t)c->limit) {
        return 0;
    }
    int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
    int fits = 0;

    if (!d) {
        if (copy >= 0) {
            close(copy);
        }
        return 0;
    }
    for (;;) {
        int64_t sum = folder_scan(d, folder, &after, &oldest);
        fits = sum <= c->limit - (int64_t)more;
        if (fits || !oldest.key[0]) {
            break;
        }
        unused_remove(folder, oldest.key);
        after = oldest;
    }
    closedir(d);
    return fits;
}

/* ---- the whole ---- */

static int entry_get(const struct onnx_cache *c, struct entry *e, int *out_data, struct mr_err *err)
{
    int is_ours = 0;
    int rc = entry_open(e, 0, out_data);
    if (rc == MR_OK) {
        return rc;
    }
    if (rc == MR_E_CANCELLED) {
        return mr_backend_fail(err, rc, UNWANTED_TEXT);
    }
    onnx_pace_plan(e->pace, "copy", 2 * e->tensors->bytes);
    if (!room_make(c, e->folder, e->data_bytes + e->model.len)) {
        return mr_backend_fail(err, MR_E_EXHAUSTED,
                               "the cache folder '%.300s' has no room for %llu bytes within "
                               "parameter_cache_bytes",
                               c->folder, (unsigned long long)e->data_bytes);
    }
    rc = entry_make(c, e, &is_ours, err);
    if (rc == MR_OK && entry_open(e, is_ours, out_data) < 0) {
        rc = mr_backend_fail(err, MR_E_IO,
                             "the model file or its copy in the cache folder '%.300s' changed "
                             "while it was read",
                             c->folder);
    }
    return rc;
}

int onnx_cache_get(const struct onnx_cache *c, int fd, uint64_t file_bytes, struct onnx_tensors *t,
                   struct onnx_pace *pace, char *out_path, size_t room, int *out_weights,
                   struct mr_err *err)
{
    struct entry e = {.tensors = t, .pace = pace, .source = fd, .folder = -1};
    int rc;

    if (!c->folder) {
        return mr_backend_fail(err, MR_E_NOT_FOUND,
                               "there is no cache folder: set parameter_cache, HOME or "
                               "CACHE_DIRECTORY");
    }
    if (file_bytes - t->bytes > GRAPH_MOST) {
        return mr_backend_fail(err, MR_E_UNSUPPORTED,
                               "%llu bytes of the file are not in tensors that can be mapped",
                               (unsigned long long)(file_bytes - t->bytes));
    }
    if ((rc = folder_open(c, &e.folder, err)) < 0) {
        return rc;
    }
    if (!onnx_identity_read(fd, &e.seen.source)) {
        close(e.folder);
        return mr_backend_fail(err, MR_E_IO, "cannot read the model file");
    }
    e.seen.tensor_bytes = t->bytes;
    e.is_seen = onnx_seen_find(e.folder, &e.seen, e.key, sizeof e.key);
    onnx_pace_plan(pace, "read", file_bytes + 2 * t->bytes);
    e.chunks = malloc(2 * CHUNK + 16);
    e.model = onnx_compose(fd, file_bytes, t, DATA_NAME, &e.data_bytes);
    if (!e.chunks || e.model.is_bad) {
        rc = mr_backend_fail(err, MR_E_NOMEM, "no memory, or the model file became shorter");
    } else if ((rc = e.is_seen ? MR_OK
                               : key_make(fd, file_bytes, t->bytes, pace, e.chunks, e.key, err)) ==
                   MR_OK &&
               (rc = entry_get(c, &e, out_weights, err)) == MR_OK) {
        snprintf(out_path, room, "%s/%s/" MODEL_NAME, c->folder, e.key);
    }
    free(e.model.at);
    free(e.chunks);
    close(e.folder);
    return rc;
}
