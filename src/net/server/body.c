/* Collecting a body: bytes are written once, to their final place.
 *
 * Small ones go to the call's arena. Larger ones get a block, sized by the expected length and placed so that the
 * requested offset is 64-byte aligned. A declared length is allocated at once up to 8 MiB while most of the byte
 * budget is free, and beyond that only up to eight times the bytes received, so that a claim alone cannot take the
 * budget from others. Blocks for unknown lengths double. Growth does not copy large bodies (mr_block_grow), as others
 * wait for the thread.
 *
 * Thread: loop. */
#include "call.h"
#include "server.h"

#define ALIGN        ((size_t)64)
#define STAGE_BYTES  ((size_t)4096)
#define ASK_BYTES    ((size_t)64 * 1024) /* for larger bodies body_place is called */
#define BELIEF_BYTES ((size_t)8 * 1024 * 1024)
#define FIRST_GROWTH ((size_t)32 * 1024)

static uint8_t *aligned_base(uint8_t *at, int64_t align_at)
{
    uintptr_t p = (uintptr_t)at;
    uintptr_t offset = align_at > 0 ? (uintptr_t)align_at : 0;

    return at + ((size_t)(0 - (p + offset)) & (ALIGN - 1));
}

/* The capacity for at least `need` bytes. */
static size_t next_cap(const struct mr_body *b, size_t need, size_t limit)
{
    size_t cap;

    if (b->expect >= 0 && (size_t)b->expect >= need) {
        size_t belief = need > SIZE_MAX / 8 ? SIZE_MAX : need * 8;
        belief = MR_MAX(belief, mr_block_is_used() ? FIRST_GROWTH : BELIEF_BYTES);
        cap = MR_MIN((size_t)b->expect, belief);
    } else {
        cap = b->cap > SIZE_MAX / 2 ? SIZE_MAX : b->cap * 2;
        cap = MR_MAX(cap, FIRST_GROWTH);
    }
    return MR_MAX(MR_MIN(cap, limit), need);
}

static void ask_place(struct mr_call_impl *call, mr_bytes have, size_t need)
{
    const struct mr_http_handler *h = call->conn->part->handler;
    struct mr_body *b = &call->body;
    bool is_large = need > ASK_BYTES || (b->expect > 0 && (size_t)b->expect > ASK_BYTES);

    if (h->body_place && !b->asked_place && is_large && have.len > 0) {
        b->asked_place = true;
        h->body_place(h->ctx, &call->pub, have);
    }
    b->align_at = call->pub.body_align_at;
}

/* The first block. One of a provider has room for all of the body, so that it is not copied as it grows. */
static struct mr_block *first_block(struct mr_call_impl *call, size_t bytes)
{
    const struct mr_block_provider *p = call->pub.body_provider;
    const int64_t expect = call->body.expect;
    struct mr_block *block = NULL;

    call->pub.body_provider = NULL;
    if (p && expect >= 0) {
        block = mr_block_new_growing(p, bytes, MR_MAX(bytes, (size_t)expect + 1 + ALIGN));
    }
    return block ? block : mr_block_new(bytes);
}

/* Moves the body to a block of at least `need` bytes. `coming`: the data appended next. */
static int grow_block(struct mr_call_impl *call, size_t need, mr_bytes coming)
{
    struct mr_body *b = &call->body;
    size_t limit = (size_t)call->pub.body_limit;
    mr_bytes have = b->len > 0 ? (mr_bytes){b->base, b->len} : coming;

    ask_place(call, have, need);
    size_t offset = b->block ? (size_t)(b->base - b->block->data) : 0;
    size_t used = b->block ? offset + b->len : 0;
    size_t bytes;
    if (!mr_size_add(next_cap(b, need, limit), ALIGN, &bytes)) {
        return MR_E_EXHAUSTED;
    }
    if (!b->block) {
        b->block = first_block(call, bytes);
    } else if (!mr_block_grow(&b->block, used, MR_MAX(bytes, used))) {
        return MR_E_EXHAUSTED;
    }
    if (!b->block) {
        return MR_E_EXHAUSTED;
    }
    const uint8_t *from = used ? b->block->data + offset : b->base;
    uint8_t *base = aligned_base(b->block->data, b->align_at);
    if (b->len > 0 && base != from) {
        memmove(base, from, b->len); /* only for the first block, as blocks are aligned */
    }
    b->base = base;
    b->cap = b->block->cap - (size_t)(base - b->block->data);
    return MR_OK;
}

/* Puts the first bytes of a small body, or of one of unknown size, into the arena. */
static bool stage_in_arena(struct mr_call_impl *call, size_t need)
{
    struct mr_body *b = &call->body;
    size_t cap = b->expect >= 0 ? MR_MAX((size_t)b->expect, need) : STAGE_BYTES;

    cap = MR_MIN(cap, STAGE_BYTES);
    uint8_t *room = mr_arena_try(&call->arena, cap + ALIGN, ALIGN);
    if (!room) {
        return false;
    }
    b->align_at = call->pub.body_align_at;
    b->base = aligned_base(room, b->align_at);
    b->cap = cap;
    return true;
}

/* Makes room for `need` bytes in total. */
static int ensure(struct mr_call_impl *call, size_t need, mr_bytes coming)
{
    struct mr_body *b = &call->body;

    if (call->pub.body_limit >= 0 && need > (size_t)call->pub.body_limit) {
        return MR_E_TOO_LARGE; /* a block may be larger than the limit */
    }
    if (need <= b->cap) {
        return MR_OK;
    }
    /* A body known to be large stays in the arena only until body_place can be called. */
    bool is_small =
        need <= STAGE_BYTES && (b->expect <= (int64_t)STAGE_BYTES ||
                                (call->pub.body_align_at < 0 && coming.len < STAGE_BYTES / 4 &&
                                 call->conn->part->handler->body_place));
    if (!b->base && is_small && stage_in_arena(call, need)) {
        return MR_OK;
    }
    return grow_block(call, need, coming);
}

bool mr_body_should_wait(const struct mr_call_impl *call, size_t more)
{
    const struct mr_body *b = &call->body;
    bool is_small = b->expect <= (int64_t)STAGE_BYTES && b->len + more <= STAGE_BYTES;

    return !b->block && !is_small && mr_block_is_scarce();
}

int mr_body_append(struct mr_call_impl *call, const void *data, size_t n)
{
    struct mr_body *b = &call->body;
    size_t need;

    if (n == 0) {
        return MR_OK;
    }
    if (!mr_size_add(b->len, n, &need)) {
        return MR_E_TOO_LARGE;
    }
    if (!b->block && n > b->cap - b->len) {
        /* body_place sees what is staged: as much as there is room for. */
        const size_t part = b->cap - b->len;
        if (part > 0) {
            memcpy(b->base + b->len, data, part);
        }
        b->len += part;
        data = (const uint8_t *)data + part;
        n -= part;
    }
    int rc = ensure(call, need, (mr_bytes){data, n});
    if (rc < 0) {
        return rc;
    }
    /* Bytes read straight into the block are in place already. */
    if (data != b->base + b->len) {
        memcpy(b->base + b->len, data, n);
    }
    b->len = need;
    return MR_OK;
}

uint8_t *mr_body_room(struct mr_call_impl *call, size_t *out_room)
{
    struct mr_body *b = &call->body;

    if (!b->block) {
        return NULL;
    }
    if (ensure(call, b->len + 1, (mr_bytes){0}) < 0) {
        return NULL; /* the next bytes are appended, and refused */
    }
    size_t limit = (size_t)call->pub.body_limit; /* negative: none */
    *out_room = MR_MIN(b->cap, limit) - b->len;
    return b->base + b->len;
}

void mr_body_publish(struct mr_call_impl *call)
{
    call->pub.body = (mr_bytes){call->body.base, call->body.len};
    call->pub.body_block = call->body.block;
}

int mr_body_in_place(struct mr_call_impl *call, mr_bytes data)
{
    int64_t at = call->pub.body_align_at;

    if (at >= 0 && at < (int64_t)data.len && ((uintptr_t)data.ptr + (uintptr_t)at) % ALIGN != 0) {
        call->body.expect = (int64_t)data.len;
        int rc = mr_body_append(call, data.ptr, data.len);
        if (rc == MR_OK) {
            mr_body_publish(call);
        }
        return rc;
    }
    call->pub.body = data;
    return MR_OK;
}
