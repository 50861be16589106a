/* Packed weights that the processes of a model share.
 *
 * ONNX Runtime packs matrices for each session that it makes, and takes no packed ones instead. So the first process lets
 * it pack them into a file in memory, which is then sealed and left to later processes. Those let it pack each large block
 * into pages that are used again for the next one, compare the block with what the file has at that place, and map the
 * file there if every byte is equal. No other memory is needed, and the file, which another process has made, cannot give
 * a session anything but what it would have packed itself.
 *
 * A block that differs keeps pages of its own: it may not be complete yet, so it is compared again, or it was packed in
 * another order. The file is mapped privately: what ONNX Runtime should write to a shared block later goes to pages of
 * this process.
 *
 * Small blocks lie between the large ones, in pages of the process.
 *
 * Thread: loaders. ONNX Runtime requests a block and writes to it on the thread that makes the session; helpers of that
 * thread end before it requests another block. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "parameters.h"

#define LARGE        (UINT64_C(256) << 10)
#define PENDING_MOST 8
#define SEALS        (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

struct block {
    uint8_t *at;
    uint64_t bytes;
    uint64_t room; /* its pages; no other block has a part of them */
};

struct onnx_packed {
    struct onnx_range range;
    pthread_mutex_t lock;  /* guards the members below, and writes of range.used */
    int file;              /* to be filled, or that of an earlier process; -1: neither */
    int is_found;          /* the latter */
    uint64_t shared_bytes; /* where the file is mapped */
    uint32_t count;
    struct block pending[PENDING_MOST]; /* large ones with pages of this process, to be compared */
};

static uint64_t page_up(uint64_t n)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    return (n + page - 1) / page * page;
}

static int memory_fail(struct mr_err *err, const char *what)
{
    return mr_backend_fail(err, MR_E_EXHAUSTED, "cannot %s memory for packed weights: %s", what,
                           strerror(errno));
}

/* ---- sharing ---- */

/* Maps the place of the block in the file. NULL: it has none. */
static uint8_t *found_map(const struct onnx_packed *p, const struct block *b)
{
    const uint64_t offset = (uint64_t)(b->at - p->range.base);
    struct stat st;

    if (fstat(p->file, &st) != 0 || offset + b->room > (uint64_t)st.st_size) {
        return NULL;
    }
    void *at = mmap(NULL, b->room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, p->file,
                    (off_t)offset);
    return at == MAP_FAILED ? NULL : at;
}

/* Gives the pages of `b` to `to`, as far as they go. If that fails, `to` has none yet. */
static void pages_pass(const struct block *b, const struct block *to)
{
    const uint64_t n = b->room < to->room ? b->room : to->room;

    (void)mremap(b->at, n, n, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to->at);
}

/* Maps the file for the block if it has the same bytes; its pages go to `next`, if that is not NULL. */
static int block_share(struct onnx_packed *p, const struct block *b, const struct block *next)
{
    uint8_t *found = found_map(p, b);

    if (!found) {
        return 0;
    }
    if (memcmp(found, b->at, b->bytes) != 0) {
        munmap(found, b->room);
        return 0;
    }
    if (next) {
        pages_pass(b, next);
    }
    if (mremap(found, b->room, b->room, MREMAP_MAYMOVE | MREMAP_FIXED, b->at) == MAP_FAILED) {
        memcpy(b->at, found, b->bytes); /* too many mappings */
        munmap(found, b->room);
        return 1;
    }
    p->shared_bytes += b->room;
    return 1;
}

/* Compares the blocks that were requested before `next`. Lock held. */
static void pending_settle(struct onnx_packed *p, const struct block *next)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < p->count; i++) {
        if (block_share(p, &p->pending[i], next)) {
            next = NULL;
        } else {
            p->pending[left++] = p->pending[i];
        }
    }
    p->count = left;
}

/* If there are too many, the oldest one keeps its pages. Lock held. */
static void pending_add(struct onnx_packed *p, const struct block *b)
{
    if (p->count == PENDING_MOST) {
        memmove(p->pending, p->pending + 1, (PENDING_MOST - 1) * sizeof *b);
        p->count--;
    }
    p->pending[p->count++] = *b;
}

/* ---- blocks ---- */

/* A large block begins at a page, and the next one after it does, too. Lock held. */
static void *large_alloc(struct onnx_packed *p, uint64_t bytes)
{
    struct onnx_range *r = &p->range;

    r->used = page_up(r->used);
    const uint64_t offset = r->used;
    uint8_t *at = onnx_range_alloc(r, bytes);
    if (!at) {
        return NULL;
    }
    r->used = page_up(r->used);
    if (p->is_found) {
        const struct block b = {.at = at, .bytes = bytes, .room = r->used - offset};
        pending_settle(p, &b);
        pending_add(p, &b);
    }
    return at;
}

void *onnx_packed_alloc(struct onnx_packed *p, uint64_t bytes)
{
    pthread_mutex_lock(&p->lock);
    void *at = bytes < LARGE ? onnx_range_alloc(&p->range, bytes) : large_alloc(p, bytes);
    pthread_mutex_unlock(&p->lock);
    return at;
}

/* ---- life ---- */

static int file_open(struct onnx_packed *p, int found, struct mr_err *err)
{
    p->is_found = found >= 0;
    p->file = p->is_found ? fcntl(found, F_DUPFD_CLOEXEC, 0)
                          : memfd_create("mr-packed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (p->file < 0 || (!p->is_found && ftruncate(p->file, (off_t)p->range.bytes) != 0)) {
        return memory_fail(err, "make");
    }
    return MR_OK;
}

static int range_map(struct onnx_packed *p, struct mr_err *err)
{
    const int flags = p->is_found ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
    void *at =
        mmap(NULL, p->range.bytes, PROT_READ | PROT_WRITE, flags, p->is_found ? -1 : p->file, 0);

    if (at == MAP_FAILED) {
        return memory_fail(err, "map");
    }
    p->range.base = at;
    return MR_OK;
}

struct onnx_packed *onnx_packed_new(int found, uint64_t bytes, struct mr_err *err)
{
    struct onnx_packed *p = calloc(1, sizeof *p);

    if (!p) {
        mr_backend_fail(err, MR_E_NOMEM, "out of memory");
        return NULL;
    }
    pthread_mutex_init(&p->lock, NULL);
    p->range.bytes = page_up(bytes);
    if (file_open(p, found, err) < 0 || range_map(p, err) < 0) {
        onnx_packed_free(&p);
    }
    return p;
}

struct onnx_range *onnx_packed_range(struct onnx_packed *p)
{
    return &p->range;
}

uint64_t onnx_packed_shared(const struct onnx_packed *p)
{
    return p->shared_bytes;
}

/* Ends the writing to the file by this process, as the seals require. */
static int file_seal(struct onnx_packed *p)
{
    const uint64_t bytes = page_up(p->range.used);

    if (bytes == 0 || ftruncate(p->file, (off_t)bytes) != 0) {
        return 0;
    }
    if (bytes < p->range.bytes) {
        munmap(p->range.base + bytes, p->range.bytes - bytes);
        p->range.bytes = bytes;
    }
    return mmap(p->range.base, bytes, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, p->file, 0) != MAP_FAILED &&
           fcntl(p->file, F_ADD_SEALS, SEALS) == 0;
}

int onnx_packed_finish(struct onnx_packed *p)
{
    int made = -1;

    pthread_mutex_lock(&p->lock);
    if (p->is_found) {
        pending_settle(p, NULL);
        close(p->file);
    } else if (file_seal(p)) {
        p->shared_bytes = page_up(p->range.used);
        made = p->file;
    } else {
        close(p->file);
    }
    p->file = -1;
    pthread_mutex_unlock(&p->lock);
    return made;
}

void onnx_packed_free(struct onnx_packed **packed)
{
    struct onnx_packed *p = *packed;

    if (!p) {
        return;
    }
    if (p->range.base) {
        munmap(p->range.base, p->range.bytes);
    }
    if (p->file >= 0) {
        close(p->file);
    }
    pthread_mutex_destroy(&p->lock);
    free(p);
    *packed = NULL;
}
