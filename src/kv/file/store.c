/* The lock on PATH.lock, which the kernel takes back when a process dies, says who serves the file. Before each
 * attempt to connect the lock is tried: who gets it serves, and connects to itself like all others. */
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/un.h>
#include <unistd.h>

#include "host.h"
#include "kv/etcd/etcd.h"

#define PATH_MAX_BYTES (sizeof((struct sockaddr_un *)NULL)->sun_path - sizeof ".sock")

struct kv_file {
    struct mr_loop *loop;
    char *path;
    char *lock_path;
    struct kv_host *host; /* NULL: another process serves */
    struct kv_etcd *etcd;
};

static void on_ready(void *ctx, int rc, const struct mr_err *err)
{
    struct kv_file *f = ctx;
    if (rc < 0) {
        kv_host_free(&f->host);
    }
    kv_etcd_prepared(f->etcd, rc, err);
}

static void on_failed(void *ctx, const struct mr_err *why)
{
    struct kv_file *f = ctx;

    kv_host_free(&f->host);
    etcd_connect_broken(f->etcd, why);
}

/** *out_fd: of the lock, -1: another process has it. */
static int try_lock(const struct kv_file *f, int *out_fd, struct mr_err *err)
{
    int fd = open(f->lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    if (fd < 0) {
        return MR_FAIL(err, MR_E_IO, "%s: %s", f->lock_path, strerror(errno));
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        *out_fd = fd;
        return MR_OK;
    }
    int e = errno;
    close(fd);
    *out_fd = -1;
    return e == EWOULDBLOCK ? MR_OK : MR_FAIL(err, MR_E_IO, "%s: %s", f->lock_path, strerror(e));
}

static void prepare(struct kv_etcd *e, void *ctx)
{
    struct kv_file *f = ctx;
    struct kv_host_events events = {on_ready, on_failed, f};
    struct mr_err err;
    int fd = -1;

    f->etcd = e;
    if (f->host) { /* it serves: a host that is not ready has no attempt beside it */
        kv_etcd_prepared(e, MR_OK, NULL);
        return;
    }
    int rc = try_lock(f, &fd, &err);
    if (rc == MR_OK && fd >= 0) {
        rc = kv_host_new(&f->host, f->loop, f->path, fd, &events, &err);
        if (rc == MR_OK) {
            return;
        }
        close(fd);
    }
    kv_etcd_prepared(e, rc, &err);
}

static void release(void *ctx)
{
    struct kv_file *f = ctx;

    kv_host_free(&f->host);
    mr_free(f->path);
    mr_free(f->lock_path);
    mr_free(f);
}

int kv_file_check(mr_str path, struct mr_err *err)
{
    if (path.len < 1 || path.len > PATH_MAX_BYTES || memchr(path.ptr, '\0', path.len)) {
        return MR_FAIL(err, MR_E_INVALID,
                       "file: '%.*s' has %zu bytes, must have 1 to %zu, as a socket is beside it",
                       MR_STR_ARG(mr_str_sub(path, 0, 300)), path.len, PATH_MAX_BYTES);
    }
    if (path.ptr[path.len - 1] == '/') {
        return MR_FAIL(err, MR_E_INVALID, "file: '%.*s' is a folder, must be a file's path",
                       MR_STR_ARG(path));
    }
    return MR_OK;
}

static char *text_of(const char *before, mr_str path, const char *after)
{
    size_t size = strlen(before) + path.len + strlen(after) + 1;
    char *text = mr_alloc(size);
    snprintf(text, size, "%s%.*s%s", before, MR_STR_ARG(path), after);
    return text;
}

int kv_file_open(struct mr_kv **out, struct mr_loop *loop, mr_str path,
                 const struct mr_kv_options *options, struct mr_err *err)
{
    int rc = kv_file_check(path, err);
    if (rc < 0) {
        return rc;
    }
    struct kv_file *f = MR_NEW(struct kv_file);
    struct kv_etcd_config config = {.root = text_of("", MR_STR(""), ""),
                                    .name = text_of("file:", path, ""),
                                    .is_local = true,
                                    .prepare = prepare,
                                    .release = release,
                                    .ctx = f};
    f->loop = loop;
    f->path = text_of("", path, "");
    f->lock_path = text_of("", path, ".lock");
    MR_VEC_PUSH(&config.endpoints, text_of("unix:", path, ".sock"));
    return kv_etcd_open(out, loop, &config, options, err);
}
