/* Memory for nghttp2: size classes on free lists of the loop, so that a session in its stride takes
 * nothing from the heap. Four classes per power of two: an idle session is some fifteen allocations
 * that live for long, so rounding up is paid for by every connection. Each piece carries its class
 * in front. Thread: loop. */
#include "http2.h"

#define SMALLEST_SHIFT 5          /* 32 bytes */
#define HEAP           UINT32_MAX /* larger than any class */

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
        /* Half a megabyte of each class at most, and enough of the small ones. */
        mr_cache_init(&loop->h2mem[c], bytes, (uint32_t)MR_MIN((size_t)4096, (512u << 10) / bytes));
    }
}

static void *piece_new(size_t bytes, void *user)
{
    struct mr_loop *loop = user;
    uint32_t c = class_of(bytes);
    size_t total;

    if (!mr_size_add(bytes, sizeof(struct piece), &total)) {
        return NULL;
    }
    struct piece *p = c == HEAP ? mr_try_alloc(total) : mr_cache_take(&loop->h2mem[c], NULL);
    if (!p) {
        return NULL;
    }
    p->size_class = c;
    p->bytes = c == HEAP ? bytes : class_bytes(c);
    return p + 1;
}

static void piece_free(void *ptr, void *user)
{
    struct mr_loop *loop = user;
    struct piece *p = ptr ? (struct piece *)ptr - 1 : NULL;

    if (p && (p->size_class == HEAP || !mr_cache_put(&loop->h2mem[p->size_class], p))) {
        mr_free(p);
    }
}

static void *piece_zeroed(size_t count, size_t size, void *user)
{
    size_t bytes;
    void *p = mr_size_mul(count, size, &bytes) ? piece_new(bytes, user) : NULL;

    return p ? memset(p, 0, bytes) : NULL;
}

static void *piece_resize(void *ptr, size_t bytes, void *user)
{
    struct piece *p = ptr ? (struct piece *)ptr - 1 : NULL;

    if (p && bytes <= p->bytes) {
        return ptr;
    }
    void *to = piece_new(bytes, user);
    if (to && p) {
        memcpy(to, ptr, p->bytes);
        piece_free(ptr, user);
    }
    return to;
}

nghttp2_mem mr_h2mem(struct mr_loop *loop)
{
    return (nghttp2_mem){.mem_user_data = loop,
                         .malloc = piece_new,
                         .free = piece_free,
                         .calloc = piece_zeroed,
                         .realloc = piece_resize};
}
