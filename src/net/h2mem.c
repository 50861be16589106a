/* Memory for nghttp2: power-of-two classes on free lists of the loop, so that a session in its stride
 * takes nothing from the heap. Each piece carries its class in front. Thread: loop. */
#include "http2.h"

#define SMALLEST ((size_t)32)
#define HEAP     UINT32_MAX /* larger than any class */

struct piece {
    _Alignas(16) uint32_t size_class;
    size_t bytes; /* usable */
};

static uint32_t class_of(size_t bytes)
{
    if (bytes <= SMALLEST) {
        return 0;
    }
    uint32_t c = (uint32_t)(64 - __builtin_clzll(bytes - 1)) - 5;
    return c < MR_H2MEM_CLASSES ? c : HEAP;
}

static void *piece_new(size_t bytes, void *user)
{
    struct mr_loop *loop = user;
    size_t total;

    if (!mr_size_add(bytes, sizeof(struct piece), &total)) {
        return NULL;
    }
    uint32_t c = class_of(total);
    struct piece *p = c == HEAP ? mr_try_alloc(total) : mr_cache_take(&loop->h2mem[c], NULL);
    if (!p) {
        return NULL;
    }
    p->size_class = c;
    p->bytes = (c == HEAP ? total : SMALLEST << c) - sizeof *p;
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
