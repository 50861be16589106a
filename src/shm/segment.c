/* The seal of a read-only segment leaves the existing mapping writable, and prevents further writable ones. */
#include "segment.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#    define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define SEALS (F_SEAL_GROW | F_SEAL_SHRINK)

int shm_segment_new(struct shm_segment *out, const char *name, size_t bytes, enum shm_rights rights,
                    struct mr_err *err)
{
    struct shm_segment s = {.bytes = bytes, .data = MAP_FAILED};
    int rc = MR_OK;

    s.fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (s.fd < 0 || ftruncate(s.fd, (off_t)bytes) < 0) {
        rc = MR_FAIL(err, MR_E_NOMEM, "no shared memory of %zu bytes: %s", bytes, strerror(errno));
        goto out;
    }
    s.data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s.fd, 0);
    if (s.data == MAP_FAILED) {
        rc = MR_FAIL(err, MR_E_NOMEM, "cannot map %zu bytes of shared memory: %s", bytes,
                     strerror(errno));
        goto out;
    }
    madvise(s.data, bytes, MADV_DONTFORK);
    const int seals = SEALS | (rights == SHM_READ_ONLY ? F_SEAL_FUTURE_WRITE : 0) | F_SEAL_SEAL;
    if (fcntl(s.fd, F_ADD_SEALS, seals) < 0) {
        rc = MR_FAIL(err, MR_E_UNSUPPORTED,
                     "cannot seal shared memory: %s (needed is Linux 5.1 or newer)",
                     strerror(errno));
        goto out;
    }
    *out = s;
    return MR_OK;
out:
    if (s.data != MAP_FAILED) {
        munmap(s.data, bytes);
    }
    if (s.fd >= 0) {
        close(s.fd);
    }
    return rc;
}

int shm_segment_map(struct shm_segment *out, int fd, enum shm_rights rights, struct mr_err *err)
{
    const int protection = rights == SHM_SHARED ? PROT_READ | PROT_WRITE : PROT_READ;
    const int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;

    if (seals < 0 || (seals & SEALS) != SEALS) {
        return MR_FAIL(err, MR_E_INVALID, "descriptor %d is no sealed shared memory", fd);
    }
    if (fstat(fd, &st) < 0 || st.st_size <= 0) {
        return MR_FAIL(err, MR_E_IO, "descriptor %d: no size", fd);
    }
    void *data = mmap(NULL, (size_t)st.st_size, protection, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
        return MR_FAIL(err, MR_E_IO, "cannot map descriptor %d: %s", fd, strerror(errno));
    }
    *out = (struct shm_segment){fd, data, (size_t)st.st_size};
    return MR_OK;
}

void shm_segment_unmap(struct shm_segment *s)
{
    if (s->data) {
        munmap(s->data, s->bytes);
    }
    *s = (struct shm_segment){.fd = -1};
}

void shm_segment_close(struct shm_segment *s)
{
    const int fd = s->data ? s->fd : -1;

    shm_segment_unmap(s);
    if (fd >= 0) {
        close(fd);
    }
}

void shm_discard(int fd, uint64_t offset, uint64_t bytes)
{
    (void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes);
}
