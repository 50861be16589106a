/* Blocks in one memfd, one after the other, for tests. Space is reused when the last block is freed. */
#ifndef MR_TEST_MEMFD_PROVIDER_H
#define MR_TEST_MEMFD_PROVIDER_H

#include <sys/mman.h>
#include <unistd.h>

#include "base/pool.h"

struct memfd_provider {
    struct mr_block_provider provider; /* first */
    int fd;
    uint8_t *data;
    size_t bytes, used;
    size_t newest; /* extent */
    bool grows;    /* the newest extent does so in place */
    _Atomic int takes, growths, out;
};

static inline size_t memfd_pages(size_t bytes)
{
    return (bytes + 4095) & ~(size_t)4095;
}

static inline bool memfd_take(const struct mr_block_provider *p, size_t bytes, size_t most,
                              struct mr_block_extent *out)
{
    struct memfd_provider *m = (struct memfd_provider *)(uintptr_t)p;
    size_t cap = memfd_pages(bytes), reserved = memfd_pages(most);

    if (reserved > m->bytes - m->used || (reserved > cap && !m->grows)) {
        return false;
    }
    *out = (struct mr_block_extent){m->data + m->used, cap, m->fd, m->used};
    m->newest = m->used;
    m->used += reserved;
    m->takes++;
    m->out++;
    return true;
}

static inline bool memfd_grow(const struct mr_block_provider *p, size_t bytes,
                              struct mr_block_extent *io)
{
    struct memfd_provider *m = (struct memfd_provider *)(uintptr_t)p;

    if (!m->grows || io->fd_offset != m->newest || bytes > m->bytes - io->fd_offset) {
        return false;
    }
    io->cap = memfd_pages(bytes);
    m->used = m->used > io->fd_offset + io->cap ? m->used : io->fd_offset + io->cap;
    m->growths++;
    return true;
}

static inline void memfd_give(const struct mr_block_provider *p, const struct mr_block_extent *e)
{
    struct memfd_provider *m = (struct memfd_provider *)(uintptr_t)p;

    (void)e;
    if (--m->out == 0) {
        m->used = 0;
    }
}

/* False without memory. bytes: a multiple of 4096. */
static inline bool memfd_open(struct memfd_provider *m, size_t bytes, bool grows)
{
    *m = (struct memfd_provider){
        .provider = {memfd_take, memfd_grow, memfd_give}, .bytes = bytes, .grows = grows};
    m->fd = memfd_create("blocks", MFD_CLOEXEC);
    if (m->fd < 0 || ftruncate(m->fd, (off_t)bytes) < 0) {
        return false;
    }
    m->data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
    return m->data != MAP_FAILED;
}

static inline void memfd_close(struct memfd_provider *m)
{
    munmap(m->data, m->bytes);
    close(m->fd);
}

#endif
