/* System calls with their errors in words. Whatever a job's folder goes through is in here and in the
 * files of the manifest, as direct calls of the C library: tests put themselves between (tests/unit/batch). */
#include "file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"

#define READ_BYTES (256u << 10)

int batch_file_fail(struct mr_err *err, const char *verb, const char *name)
{
    const int status = errno == EACCES || errno == EPERM                      ? MR_E_FORBIDDEN
                       : errno == ENOSPC || errno == EDQUOT || errno == EFBIG ? MR_E_EXHAUSTED
                       : errno == ENOENT                                      ? MR_E_NOT_FOUND
                                                                              : MR_E_IO;

    return MR_FAIL(err, status, "cannot %s %s: %s", verb, name, strerror(errno));
}

int batch_file_write(int fd, const void *data, size_t bytes, uint64_t offset, const char *name,
                     struct mr_err *err)
{
    const char *from = data;

    while (bytes > 0) {
        const ssize_t n = pwrite(fd, from, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            errno = n == 0 ? EIO : errno;
            return batch_file_fail(err, "write", name);
        }
        from += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return MR_OK;
}

int batch_file_sync(int fd, const char *name, struct mr_err *err)
{
    return fsync(fd) < 0 ? batch_file_fail(err, "bring to disk", name) : MR_OK;
}

/* One piece into buf, which has room for READ_BYTES; 0 at the end. */
static ssize_t read_piece(int fd, char *buf, uint64_t offset)
{
    ssize_t n;

    do {
        n = pread(fd, buf, READ_BYTES, (off_t)offset);
    } while (n < 0 && errno == EINTR);
    return n;
}

int batch_file_read(int dir, const char *name, struct mr_buf *out, struct mr_err *err)
{
    const int fd = openat(dir, name, O_RDONLY | O_CLOEXEC, 0);
    ssize_t n = -1;
    int rc = MR_OK;

    if (fd < 0) {
        return batch_file_fail(err, "open", name);
    }
    for (uint64_t offset = 0; n != 0 && rc == MR_OK; offset += (uint64_t)n) {
        char *to = mr_buf_reserve(out, READ_BYTES);
        if (!to) {
            rc = MR_FAIL(err, MR_E_NOMEM, "no memory to read %s", name);
            break;
        }
        n = read_piece(fd, to, offset);
        if (n < 0) {
            rc = batch_file_fail(err, "read", name);
            break;
        }
        out->len += (size_t)n;
    }
    close(fd);
    return rc;
}

int batch_file_checksum(int fd, const char *name, uint64_t *out_bytes, uint32_t *out_crc,
                        struct mr_err *err)
{
    char *buf = mr_alloc(READ_BYTES);
    uint64_t bytes = 0;
    uint32_t crc = 0;
    ssize_t n;

    while ((n = read_piece(fd, buf, bytes)) > 0) {
        crc = mr_crc32c(crc, buf, (size_t)n);
        bytes += (uint64_t)n;
    }
    const int rc = n < 0 ? batch_file_fail(err, "read", name) : MR_OK;
    mr_free(buf);
    if (rc == MR_OK) {
        *out_bytes = bytes;
        *out_crc = crc;
    }
    return rc;
}

static const char *tmp_of(const char *name, char out[64])
{
    snprintf(out, 64, MR_FILE_TMP "%s", name);
    return out;
}

int batch_file_prepare(int dir, const char *name, mr_str content, struct mr_err *err)
{
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
    char tmp[64];
    int rc;
    int fd = openat(dir, tmp_of(name, tmp), flags, 0666);

    if (fd < 0 && errno == EEXIST) {
        /* Of a process that ended, or of one that lost its lock and may still write to it. */
        unlinkat(dir, tmp, 0);
        fd = openat(dir, tmp, flags, 0666);
    }
    if (fd < 0) {
        return batch_file_fail(err, "make", tmp);
    }
    MR_TRY(batch_file_write(fd, content.ptr, content.len, 0, tmp, err));
    MR_TRY(batch_file_sync(fd, tmp, err));
    return fd;
out:
    close(fd);
    unlinkat(dir, tmp, 0);
    return rc;
}

int batch_file_place(int dir, const char *name, struct mr_err *err)
{
    char tmp[64];

    if (renameat(dir, tmp_of(name, tmp), dir, name) < 0) {
        return batch_file_fail(err, "put in its place", name);
    }
    return batch_file_sync(dir, "the folder", err);
}

int batch_file_put(int dir, const char *name, mr_str content, struct mr_err *err)
{
    const int fd = batch_file_prepare(dir, name, content, err);

    if (fd < 0) {
        return fd;
    }
    close(fd);
    return batch_file_place(dir, name, err);
}

char *batch_file_real(const char *path)
{
    char *real = realpath(path, NULL);
    char *out = mr_strndup(real ? real : path, strlen(real ? real : path));

    free(real); /* NOLINT: the library's */
    return out;
}

int batch_file_exists(int dir, const char *name, bool *out, struct mr_err *err)
{
    struct stat st;
    const int rc = fstatat(dir, name, &st, 0);

    if (rc < 0 && errno != ENOENT) {
        return batch_file_fail(err, "look at", name);
    }
    *out = rc == 0;
    return MR_OK;
}

int batch_file_each(int dir, const char *name, batch_file_fn *fn, void *ctx, struct mr_err *err)
{
    const int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    if (!list) {
        const int rc = batch_file_fail(err, "read the folder", name);
        if (fd >= 0) {
            close(fd);
        }
        return rc;
    }
    errno = 0;
    while ((entry = readdir(list))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            fn(ctx, entry->d_name);
        }
        errno = 0;
    }
    const int rc = errno ? batch_file_fail(err, "read the folder", name) : MR_OK;
    closedir(list);
    return rc;
}

/* Its name is in the folder above and on disk, also when another process had made it a moment ago. */
static int make_folder(const char *path, struct mr_err *err)
{
    char above[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int rc;

    if (mkdirat(AT_FDCWD, path, 0777) < 0) {
        return errno == EEXIST ? MR_OK : batch_file_fail(err, "make the folder", path);
    }
    snprintf(above, sizeof above, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    const int fd = openat(AT_FDCWD, above, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0) {
        return batch_file_fail(err, "open the folder", above);
    }
    rc = batch_file_sync(fd, above, err);
    close(fd);
    return rc;
}

int batch_file_make_folders(const char *path, struct mr_err *err)
{
    char each[PATH_MAX];
    const size_t len = strlen(path);
    int rc = MR_OK;

    if (len == 0 || len >= sizeof each) {
        return MR_FAIL(err, MR_E_INVALID, "a folder's name of %zu bytes", len);
    }
    for (size_t i = 1; i <= len && rc == MR_OK; i++) {
        if ((path[i] == '/' || path[i] == '\0') && path[i - 1] != '/') {
            memcpy(each, path, i);
            each[i] = '\0';
            rc = make_folder(each, err);
        }
    }
    if (rc < 0) {
        return rc;
    }
    const int fd = openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    return fd < 0 ? batch_file_fail(err, "open the folder", path) : fd;
}

size_t batch_file_folders_there(const char *path)
{
    char each[PATH_MAX];
    const size_t len = strlen(path);

    for (size_t i = len; i > 0 && len < sizeof each; i--) {
        if ((path[i] == '/' || path[i] == '\0') && path[i - 1] != '/') {
            memcpy(each, path, i);
            each[i] = '\0';
            if (faccessat(AT_FDCWD, each, F_OK, 0) == 0) {
                return i;
            }
        }
    }
    return 0;
}

void batch_file_remove_folders(const char *path, size_t keep)
{
    char each[PATH_MAX];
    const size_t len = strlen(path);
    bool is_gone = len < sizeof each;

    for (size_t i = len; i > keep && is_gone; i--) {
        if ((path[i] == '/' || path[i] == '\0') && path[i - 1] != '/') {
            memcpy(each, path, i);
            each[i] = '\0';
            is_gone = rmdir(each) == 0 || errno == ENOENT;
        }
    }
}
