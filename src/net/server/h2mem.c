/* Memory for nghttp2: allocations at a session's start come from its region (h2region.c), later ones from size
 * classes on free lists of the loop, so that a running session takes nothing from the heap. Four classes per power of
 * two, as some pieces are kept for long. A header before each piece outside of the region holds its class. Thread:
 * loop. */
#include "http2.h"

#define SMALLEST_SHIFT 5               /* 32 bytes */
#define HEAP           UINT32_MAX      /* larger than any class */
#define ZEROS_BYTES    ((size_t)4096)  /* larger zeroed pieces may stay unused for long */
#define FRAME_BYTES    ((size_t)16384) /* the frame buffer is larger */
#define LATE_BYTES     ((size_t)2000)
#define LATE_PIECE     ((size_t)128)

struct piece {
    _Alignas(16) uint32_t size_class;
    size_t bytes; /* usable */
};

static uint32_t class_of(size_t bytes)
{
    if (bytes <= (size_t)1 << SMALLEST_SHIFT) {
        return 0;
    }
    unsigned top = 63u - (unsigned)__builtin_clzll(bytes - 1);
    unsigned quarter = (unsigned)((bytes - 1) >> (top - 2)) & 3;
    uint32_t c = (top - SMALLEST_SHIFT) * 4 + quarter + 1;
    return c < MR_H2MEM_CLASSES ? c : HEAP;
}

static size_t class_bytes(uint32_t c)
{
    if (c == 0) {
        return (size_t)1 << SMALLEST_SHIFT;
    }
    unsigned top = SMALLEST_SHIFT + (c - 1) / 4;
    return ((size_t)1 << top) + (((size_t)(c - 1) % 4 + 1) << (top - 2));
}

void mr_h2mem_init(struct mr_loop *loop)
{
    for (uint32_t c = 0; c < MR_H2MEM_CLASSES; c++) {
        size_t bytes = class_bytes(c) + sizeof(struct piece);
        /* At most half a megabyte of each class, and enough pieces of the small ones. */
        mr_free_list_init(&loop->h2mem[c], bytes,
                          (uint32_t)MR_MIN((size_t)4096, (512u << 10) / bytes));
    }
}

void mr_h2mem_fini(struct mr_loop *loop)
{
    for (uint32_t c = 0; c < MR_H2MEM_CLASSES; c++) {
        mr_free_list_fini(&loop->h2mem[c]);
    }
    mr_h2regions_fini(&loop->h2regions);
}

/* Leaves room in the frame buffer's first page for the header table's entries: those of the first calls mostly stay
 * as long as the connection. */
static void leave_late_room(struct mr_h2region *r)
{
    r->late = r->front;
    r->front += LATE_BYTES;
    r->late_end = r->front;
}

static void *late_piece(struct mr_h2region *r, size_t bytes)
{
    size_t total = (bytes + 15) / 16 * 16;
    char *p = r->late;

    if (bytes > LATE_PIECE || total > (size_t)(r->late_end - r->late)) {
        return NULL;
    }
    r->late += total;
    return p;
}

static void *region_piece(struct mr_h2region *r, size_t bytes, bool at_back)
{
    size_t room = (size_t)(r->back - r->front);
    size_t total = (bytes + 15) / 16 * 16;

    if (bytes > room || total > room) {
        return r->front ? NULL : late_piece(r, bytes);
    }
    if (bytes > FRAME_BYTES && !at_back && room - total >= LATE_BYTES) {
        leave_late_room(r);
    }
    char *p = at_back ? r->back - total : r->front;
    r->back -= at_back ? total : 0;
    r->front += at_back ? 0 : total;
    return p;
}

/* Bytes from p to the end of the region, 0 if p is not in it. */
static size_t region_rest(const struct mr_h2region *r, const void *p)
{
    uintptr_t at = (uintptr_t)p - (uintptr_t)r->base;

    return r->base && at < MR_H2REGION_BYTES ? MR_H2REGION_BYTES - at : 0;
}

static void *piece_new(size_t bytes, void *user)
{
    struct mr_h2mem *mem = user;
    uint32_t c = class_of(bytes);
    size_t total;

    void *in_region = region_piece(&mem->region, bytes, false);
    if (in_region || !mr_size_add(bytes, sizeof(struct piece), &total)) {
        return in_region;
    }
    struct piece *p =
        c == HEAP ? mr_try_alloc(total) : mr_free_list_take(&mem->loop->h2mem[c], NULL);
    if (!p) {
        return NULL;
    }
    p->size_class = c;
    p->bytes = c == HEAP ? bytes : class_bytes(c);
    return p + 1;
}

static void piece_free(void *ptr, void *user)
{
    struct mr_h2mem *mem = user;

    if (!ptr || region_rest(&mem->region, ptr) > 0) {
        return;
    }
    struct piece *p = (struct piece *)ptr - 1;
    if (p->size_class == HEAP || !mr_free_list_put(&mem->loop->h2mem[p->size_class], p)) {
        mr_free(p);
    }
}

static void *piece_zeroed(size_t count, size_t size, void *user)
{
    struct mr_h2mem *mem = user;
    size_t bytes;

    if (!mr_size_mul(count, size, &bytes)) {
        return NULL;
    }
    void *zeros = bytes >= ZEROS_BYTES ? region_piece(&mem->region, bytes, true) : NULL;
    if (zeros && mem->region.is_clean) {
        return zeros;
    }
    void *p = zeros ? zeros : piece_new(bytes, user);
    return p ? memset(p, 0, bytes) : NULL;
}

static void *piece_resize(void *ptr, size_t bytes, void *user)
{
    struct mr_h2mem *mem = user;
    size_t rest = ptr ? region_rest(&mem->region, ptr) : 0;
    size_t had = rest ? 0 : ptr ? ((struct piece *)ptr - 1)->bytes : 0;

    if (ptr && bytes <= had) {
        return ptr;
    }
    void *to = piece_new(bytes, user);
    if (to && ptr) {
        /* The size of a piece of the region is not stored; the rest of the region is an upper bound. */
        memcpy(to, ptr, rest ? MR_MIN(bytes, rest) : had);
        piece_free(ptr, user);
    }
    return to;
}

struct mr_h2 *mr_h2_new(struct mr_loop *loop)
{
    struct mr_h2mem mem = {.loop = loop};

    mr_h2region_take(loop, &mem.region);
    struct mr_h2 *h = piece_new(sizeof *h, &mem);
    if (!h) {
        mr_h2region_give(loop, &mem.region);
        return NULL;
    }
    memset(h, 0, sizeof *h);
    h->mem = mem;
    TAILQ_INIT(&h->waiting);
    TAILQ_INIT(&h->readers);
    return h;
}

int mr_h2_open_session(struct mr_h2 *h)
{
    nghttp2_mem mem = {.mem_user_data = &h->mem,
                       .malloc = piece_new,
                       .free = piece_free,
                       .calloc = piece_zeroed,
                       .realloc = piece_resize};
    int rc = mr_h2_session_new(h, &mem);

    /* Later allocations are freed again, and a region cannot reuse memory. */
    h->mem.region.front = h->mem.region.back = NULL;
    return rc;
}

void mr_h2_free(struct mr_h2 *h)
{
    struct mr_h2mem mem = h->mem;

    nghttp2_session_del(h->session);
    piece_free(h, &mem);
    mr_h2region_give(mem.loop, &mem.region);
}
