/* Writes MR_WARMUP_REQUESTS. On threads that may wait for a disk. */
#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "codec/pb.h"

static int cannot(const char *what, struct mr_err *err)
{
    int status = errno == EACCES || errno == EPERM || errno == EROFS ? MR_E_FORBIDDEN
                 : errno == ENOSPC || errno == EDQUOT                ? MR_E_EXHAUSTED
                                                                     : MR_E_IO;

    return MR_FAIL(err, status, "cannot %s " MR_WARMUP_REQUESTS ": %s", what, strerror(errno));
}

int record_file_open(struct record_file *f, const struct mr_version *v, struct mr_err *err)
{
    /* A version that is loaded again may still be recorded while the new one is. */
    static _Atomic unsigned made;
    char *path = NULL;
    int rc;

    *f = (struct record_file){.dir = -1, .fd = -1};
    rc = mr_version_file(v, v->number_text, &path, err);
    if (rc < 0) {
        return rc;
    }
    /* For this user only: it is data of clients. Hidden, so that a scan of the folder does not take it for a part of
     * the version. */
    snprintf(f->name, sizeof f->name, "." MR_WARMUP_REQUESTS ".%ld.%u", (long)getpid(),
             atomic_fetch_add_explicit(&made, 1, memory_order_relaxed));
    f->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->dir >= 0) {
        f->fd =
            openat(f->dir, f->name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    }
    if (f->fd < 0) {
        rc = cannot("write", err);
        record_file_close(f);
    }
    mr_free(path);
    return rc;
}

static int write_all(struct record_file *f, const void *from, uint64_t bytes, struct mr_err *err)
{
    const uint8_t *at = from;

    while (bytes > 0) {
        ssize_t n = write(f->fd, at, bytes);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return cannot("write", err);
        }
        at += n;
        bytes -= (uint64_t)n;
    }
    return MR_OK;
}

int record_file_add(struct record_file *f, const void *record, uint64_t bytes, struct mr_err *err)
{
    struct mr_buf head;
    int rc;

    mr_buf_init(&head, 64);
    mr_pb_put_varint(&head, bytes);
    rc = head.failed ? MR_FAIL(err, MR_E_NOMEM, "no memory for a record")
                     : write_all(f, head.ptr, head.len, err);
    mr_buf_fini(&head);
    return rc < 0 ? rc : write_all(f, record, bytes, err);
}

int record_file_publish(struct record_file *f, struct mr_err *err)
{
    if (fsync(f->fd) < 0) {
        return cannot("write", err);
    }
    if (renameat(f->dir, f->name, f->dir, MR_WARMUP_REQUESTS) < 0) {
        return cannot("replace", err);
    }
    f->name[0] = '\0';
    return fsync(f->dir) < 0 ? cannot("keep", err) : MR_OK;
}

void record_file_close(struct record_file *f)
{
    if (f->fd >= 0 && f->name[0]) {
        unlinkat(f->dir, f->name, 0);
    }
    if (f->fd >= 0) {
        close(f->fd);
    }
    if (f->dir >= 0) {
        close(f->dir);
    }
    f->fd = f->dir = -1;
}
