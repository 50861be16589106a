#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

int mr_path_errno(const char *path, int error, struct mr_err *err)
{
    char buf[128];
    int status = error == ENOENT || error == ENOTDIR       ? MR_E_NOT_FOUND
                 : error == EACCES || error == EPERM       ? MR_E_FORBIDDEN
                 : error == ELOOP || error == ENAMETOOLONG ? MR_E_INVALID
                 : error == ENOMEM                         ? MR_E_NOMEM
                                                           : MR_E_IO;

    return MR_FAIL(err, status, "%.300s: %s", path, strerror_r(error, buf, sizeof buf));
}

/* Reads until `len` bytes or the end; the file may change during the call. */
static int read_all(int fd, char *data, size_t len, size_t *out_len)
{
    size_t done = 0;

    while (done < len) {
        ssize_t n = read(fd, data + done, len - done);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return errno;
        }
        if (n == 0) {
            break;
        }
        done += (size_t)n;
    }
    *out_len = done;
    return 0;
}

int mr_file_read(const char *path, size_t max, char **out, size_t *out_len, struct mr_err *err)
{
    struct stat st;
    char *data = NULL;
    int rc = MR_OK;
    /* O_NONBLOCK: a FIFO in the place of a file must not stop a loader. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0) {
        return mr_path_errno(path, errno, err);
    }
    if (fstat(fd, &st) != 0) {
        rc = mr_path_errno(path, errno, err);
    } else if (!S_ISREG(st.st_mode)) {
        rc = MR_FAIL(err, MR_E_INVALID, "%.300s is not a regular file", path);
    } else if ((uint64_t)st.st_size > max) {
        rc = MR_FAIL(err, MR_E_TOO_LARGE, "%.300s has %lld bytes, allowed are %zu", path,
                     (long long)st.st_size, max);
    } else if (!(data = mr_try_alloc((size_t)st.st_size + 1))) {
        rc = MR_FAIL(err, MR_E_NOMEM, "no memory for the %lld bytes of %.300s",
                     (long long)st.st_size, path);
    } else {
        int error = read_all(fd, data, (size_t)st.st_size, out_len);
        rc = error ? mr_path_errno(path, error, err) : MR_OK;
    }
    close(fd);
    if (rc < 0) {
        mr_free(data);
        return rc;
    }
    data[*out_len] = '\0';
    *out = data;
    return MR_OK;
}
