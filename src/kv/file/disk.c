#include "disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"

#define PART_BYTES   (256 * 1024)
#define PART_RECORDS 1000

void kv_disk_init(struct kv_disk *d, const char *path)
{
    *d = (struct kv_disk){.path = mr_strndup(path, strlen(path)), .fd = -1};
}

void kv_disk_fini(struct kv_disk *d)
{
    if (d->fd >= 0) {
        close(d->fd);
    }
    mr_free(d->path);
    *d = (struct kv_disk){.fd = -1};
}

static int disk_fails(const struct kv_disk *d, const char *what, struct mr_err *err)
{
    int e = errno;
    return MR_FAIL(err, e == ENOSPC || e == EDQUOT ? MR_E_EXHAUSTED : MR_E_IO, "%s: cannot %s: %s",
                   d->path, what, strerror(e));
}

/** PATH with an ending; the caller frees it. */
static char *path_with(const struct kv_disk *d, const char *ending)
{
    size_t size = strlen(d->path) + strlen(ending) + 1;
    char *path = mr_alloc(size);
    snprintf(path, size, "%s%s", d->path, ending);
    return path;
}

static bool write_all(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t done = write(fd, p, n);
        if (done < 0 && errno != EINTR) {
            return false;
        }
        if (done > 0) {
            p += done;
            n -= (size_t)done;
        }
    }
    return true;
}

/** The folder's entry of the file is on the disk. */
static bool sync_folder(const struct kv_disk *d)
{
    const char *slash = strrchr(d->path, '/');
    char *folder = slash ? mr_strndup(d->path, (size_t)(slash - d->path + 1)) : mr_strndup(".", 1);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool is_done = fd >= 0 && fsync(fd) == 0;

    if (fd >= 0) {
        close(fd);
    }
    mr_free(folder);
    return is_done;
}

/* ---- the whole file ---- */

static bool put_part(int fd, struct mr_buf *b, uint64_t *io_bytes)
{
    bool is_done = !b->failed && write_all(fd, b->ptr, b->len);
    *io_bytes += b->len;
    mr_buf_reset(b);
    return is_done;
}

static bool put_whole(int fd, uint64_t id, const struct kv_disk_whole *w, uint64_t *out_bytes)
{
    struct kv_log_entry entry = {.revision = w->revision, .is_old = true};
    struct mr_buf b;
    bool is_done = true;

    *out_bytes = 0;
    mr_buf_init(&b, 0);
    kv_log_put_header(&b, id);
    for (size_t i = 0; i < w->lease_count; i++) {
        entry.granted = &w->leases[i];
        kv_log_put(&b, &entry);
    }
    entry.granted = NULL;
    kv_log_put(&b, &entry);
    for (size_t i = 0; is_done && i < w->record_count;) {
        size_t n = 0, bytes = 0;
        while (i + n < w->record_count && n < PART_RECORDS && bytes < PART_BYTES) {
            bytes += kv_record_size(w->records[i + n++]);
        }
        entry.records = w->records + i;
        entry.record_count = n;
        kv_log_put(&b, &entry);
        is_done = put_part(fd, &b, out_bytes);
        i += n;
    }
    is_done = is_done && put_part(fd, &b, out_bytes);
    mr_buf_fini(&b);
    return is_done;
}

/** The new file takes the old one's place. */
static int replace(struct kv_disk *d, const char *path, int fd, uint64_t bytes, struct mr_err *err)
{
    if (rename(path, d->path) < 0) {
        return disk_fails(d, "write it anew", err);
    }
    if (d->fd >= 0) {
        close(d->fd);
    }
    d->fd = fd;
    d->bytes = d->base = bytes;
    d->is_replaced = true;
    return sync_folder(d) ? MR_OK : disk_fails(d, "keep its name", err);
}

int kv_disk_rewrite(struct kv_disk *d, const struct kv_disk_whole *whole, struct mr_err *err)
{
    char *path = path_with(d, ".new");
    uint64_t bytes = 0;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), rc;

    d->is_replaced = false;
    if (fd < 0 || !put_whole(fd, d->id, whole, &bytes) || fsync(fd) < 0) {
        rc = disk_fails(d, "write it anew", err);
    } else {
        rc = replace(d, path, fd, bytes, err);
    }
    if (!d->is_replaced && fd >= 0) {
        close(fd);
        unlink(path);
    }
    mr_free(path);
    return rc;
}

/* ---- appending ---- */

int kv_disk_append(struct kv_disk *d, mr_str entries, struct mr_err *err)
{
    if (write_all(d->fd, entries.ptr, entries.len) && fdatasync(d->fd) == 0) {
        d->bytes += entries.len;
        return MR_OK;
    }
    int rc = disk_fails(d, "write to it", err);
    if (ftruncate(d->fd, (off_t)d->bytes) == 0) {
        lseek(d->fd, (off_t)d->bytes, SEEK_SET);
    }
    return rc;
}

/* ---- loading ---- */

static int read_all(struct kv_disk *d, struct mr_buf *out, struct mr_err *err)
{
    struct stat st;

    if (fstat(d->fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        return MR_FAIL(err, MR_E_INVALID, "%s: is no file", d->path);
    }
    mr_buf_init(out, (size_t)st.st_size + PART_BYTES);
    if (!mr_buf_reserve(out, (size_t)st.st_size + 1)) {
        return MR_FAIL(err, MR_E_NOMEM, "%s: no memory to read %lld bytes", d->path,
                       (long long)st.st_size);
    }
    for (;;) {
        char *at = mr_buf_reserve(out, 4096);
        if (!at) {
            return MR_FAIL(err, MR_E_INVALID, "%s: grows while it is read", d->path);
        }
        ssize_t n = read(d->fd, at, out->cap - out->len);
        if (n < 0 && errno != EINTR) {
            return disk_fails(d, "read it", err);
        }
        if (n == 0) {
            return MR_OK;
        }
        out->len += n > 0 ? (size_t)n : 0;
    }
}

/** Cuts off an end that is not a whole entry, and appends it to PATH.cut, in case it is damaged and not just incomplete. */
static int cut(struct kv_disk *d, mr_str rest, struct mr_err *err)
{
    char *path = path_with(d, ".cut");
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    off_t before = fd >= 0 ? lseek(fd, 0, SEEK_END) : -1;
    bool is_kept = before >= 0 && write_all(fd, rest.ptr, rest.len);
    int rc = is_kept ? MR_OK : disk_fails(d, "keep its incomplete end", err);

    bool is_cut = rc == MR_OK && ftruncate(d->fd, (off_t)d->bytes) == 0;
    if (rc == MR_OK && !is_cut) {
        rc = disk_fails(d, "cut its incomplete end off", err);
    }
    if (is_cut) {
        mr_log(MR_LOG_WARN, "kv.file",
               "%s ended with %zu bytes that begin with no whole entry; they were moved to %s",
               d->path, rest.len, path);
    } else if (before >= 0 && ftruncate(fd, before) < 0) {
        mr_log(MR_LOG_WARN, "kv.file",
               "%s has a copy of an end that is still in %s; the next start adds it again", path,
               d->path);
    }
    if (fd >= 0) {
        close(fd);
    }
    mr_free(path);
    return rc;
}

static int load(struct kv_disk *d, int64_t now_ns, struct kv_state *io_state,
                struct mr_buf *content, struct mr_err *err)
{
    struct kv_log_found found;
    int rc = read_all(d, content, err);

    if (rc < 0) {
        return rc;
    }
    mr_bytes file = {(const uint8_t *)content->ptr, content->len};
    rc = kv_log_read(file, now_ns, io_state, &found, err);
    if (rc < 0) {
        return MR_WRAP(err, rc, "%s", d->path);
    }
    d->id = found.id;
    d->bytes = found.bytes;
    d->base = found.base;
    if (found.bytes < file.len) {
        rc = cut(d, mr_str_sub(mr_buf_view(content), found.bytes, file.len), err);
    }
    if (rc == MR_OK && lseek(d->fd, (off_t)d->bytes, SEEK_SET) < 0) {
        rc = disk_fails(d, "write to it", err);
    }
    /* Who wrote it may have died before that. */
    if (rc == MR_OK && (fsync(d->fd) < 0 || !sync_folder(d))) {
        rc = disk_fails(d, "keep what it has", err);
    }
    return rc;
}

int kv_disk_load(struct kv_disk *d, uint64_t id, int64_t now_ns, struct kv_state *io_state,
                 struct mr_err *err)
{
    struct mr_buf content;

    d->fd = open(d->path, O_RDWR | O_CLOEXEC);
    if (d->fd < 0 && errno == ENOENT) {
        struct kv_disk_whole nothing = {.revision = io_state->revision};
        d->id = id;
        return kv_disk_rewrite(d, &nothing, err);
    }
    if (d->fd < 0) {
        return disk_fails(d, "open it", err);
    }
    mr_buf_init(&content, 0);
    int rc = load(d, now_ns, io_state, &content, err);
    mr_buf_fini(&content);
    return rc;
}
