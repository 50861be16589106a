/* The memory of one HTTP/2 session, so that an idle one costs two pages instead of four.
 *
 * At its start nghttp2 takes about 5 KB that it writes, a frame buffer of 16 KB of which a quiet session uses the
 * first hundred bytes, and a table of streams of 4 KB that stays zero until the first stream. On the heap each of
 * these occupies pages of its own. In a region all written pieces are adjacent at the front, zeroed ones at the back,
 * and the pages between are never used.
 *
 * Regions are cut from mapped chunks, where a page exists only once it is written. A returned region is soon taken
 * again, so a few keep their pages; the others return them to the system and are zero again. Under AddressSanitizer
 * there are none: the heap detects errors that regions would hide.
 *
 * Thread: loop. */
#include <sys/mman.h>

#include "http2.h"

#define PAGE_BYTES    4096
#define CHUNK_REGIONS 32
#define CHUNK_BYTES   (MR_H2REGION_BYTES * CHUNK_REGIONS)

static bool chunk_map(struct mr_h2regions *r)
{
    char *p = mmap(NULL, CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED) {
        return false;
    }
    MR_VEC_PUSH(&r->chunks, p);
    for (size_t i = 0; i < CHUNK_REGIONS; i++) {
        MR_VEC_PUSH(&r->clean, p + i * MR_H2REGION_BYTES);
    }
    return true;
}

void mr_h2region_take(struct mr_loop *loop, struct mr_h2region *out)
{
    struct mr_h2regions *r = &loop->h2regions;

    *out = (struct mr_h2region){0};
    if (!MR_CACHE_NOTHING && r->warm_count > 0) {
        out->base = r->warm[--r->warm_count];
    } else if (!MR_CACHE_NOTHING && (r->clean.len > 0 || chunk_map(r))) {
        out->base = r->clean.at[--r->clean.len];
        out->is_clean = true;
    }
    out->front = out->base;
    out->back = out->base ? out->base + MR_H2REGION_BYTES : NULL;
}

void mr_h2region_give(struct mr_loop *loop, struct mr_h2region *region)
{
    struct mr_h2regions *r = &loop->h2regions;
    char *base = region->base;

    *region = (struct mr_h2region){0};
    if (!base) {
        return;
    }
    if (r->warm_count < MR_H2REGIONS_WARM) {
        r->warm[r->warm_count++] = base;
    } else {
        madvise(base, MR_H2REGION_BYTES, MADV_DONTNEED);
        MR_VEC_PUSH(&r->clean, base);
    }
}

/* The last page holds the table of streams, which is zero again when there are none. The content is checked and not
 * assumed, so returning the page has no visible effect. */
void mr_h2region_tidy(const struct mr_h2region *region)
{
    static const char zeros[PAGE_BYTES];
    char *page = region->base ? region->base + MR_H2REGION_BYTES - PAGE_BYTES : NULL;

    if (page && memcmp(page, zeros, PAGE_BYTES) == 0) {
        madvise(page, PAGE_BYTES, MADV_DONTNEED);
    }
}

void mr_h2regions_fini(struct mr_h2regions *r)
{
    for (size_t i = 0; i < r->chunks.len; i++) {
        munmap(r->chunks.at[i], CHUNK_BYTES);
    }
    MR_VEC_FINI(&r->chunks);
    MR_VEC_FINI(&r->clean);
}
