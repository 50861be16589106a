/* Temporary model folders for load requests that bring their own files.
 *
 * The folder is private to this user (mkdtemp makes it 0700), and files are created new in it
 * (O_EXCL | O_NOFOLLOW), so nothing that another user put there is followed. It lives as long as a
 * version made from it, because backends may open parts of a model late. Thread: any; blocks. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "folder.h"

int mr_temp_new(struct mr_temp_dir **out, struct mr_err *err)
{
    const char *base = getenv("TMPDIR");
    char *path =
        mr_path_join(base && base[0] == '/' ? base : "/tmp", MR_STR("millrace-model-XXXXXX"));

    char *real = mkdtemp(path) ? realpath(path, NULL) : NULL; /* as errors will name it */

    if (!real) {
        int rc = mr_path_errno(path, errno, err);
        mr_free(path);
        return rc;
    }
    *out = MR_NEW(struct mr_temp_dir);
    (*out)->path = mr_strndup(real, strlen(real));
    free(real);
    mr_free(path);
    atomic_init(&(*out)->refs, 1);
    return MR_OK;
}

struct mr_temp_dir *mr_temp_ref(struct mr_temp_dir *t)
{
    if (t) {
        /* Relaxed: the caller has a reference, so the count cannot fall to zero. */
        atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
    }
    return t;
}

void mr_temp_unref(struct mr_temp_dir **t)
{
    struct mr_temp_dir *it = *t;

    *t = NULL;
    /* Acquire and release: the files are removed after all that other threads did with them. */
    if (!it || atomic_fetch_sub_explicit(&it->refs, 1, memory_order_acq_rel) > 1) {
        return;
    }
    if (mr_tree_remove(it->path, NULL) < 0) {
        mr_log(MR_LOG_WARN, "model.temp_left", "path=%s could not be removed",
               MR_LOG_STR(mr_str_c(it->path)));
    }
    mr_free(it->path);
    mr_free(it);
}

/* Makes every folder on the way to the file `path`, from position `from` on. */
static int folders_make(char *path, size_t from, struct mr_err *err)
{
    for (size_t i = from; path[i]; i++) {
        if (path[i] != '/') {
            continue;
        }
        path[i] = '\0';
        int rc =
            mkdir(path, 0700) == 0 || errno == EEXIST ? MR_OK : mr_path_errno(path, errno, err);
        path[i] = '/';
        if (rc < 0) {
            return rc;
        }
    }
    return MR_OK;
}

static int write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno != EINTR) {
            return errno;
        }
        if (n > 0) {
            data += n;
            len -= (size_t)n;
        }
    }
    return 0;
}

int mr_temp_write(struct mr_temp_dir *t, mr_str model, mr_str file, const void *data, size_t len,
                  struct mr_err *err)
{
    char *dir = mr_path_join(t->path, model);
    char *path = mr_path_join(dir, file);
    int fd = -1;
    int rc = folders_make(path, strlen(t->path) + 1, err);

    if (rc == MR_OK) {
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        rc = fd >= 0 ? MR_OK : mr_path_errno(path, errno, err);
    }
    if (rc == MR_OK) {
        int error = write_all(fd, data, len);
        rc = error ? mr_path_errno(path, error, err) : MR_OK;
    }
    if (fd >= 0) {
        close(fd);
    }
    mr_free(path);
    mr_free(dir);
    return rc;
}
