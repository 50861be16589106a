/* Serialization between processes of the same build: numbers of eight bytes, texts and bytes with their length. The
 * reader trusts nothing: past the end, and for unterminated texts, it sets `failed` and returns zeros. */
#ifndef MR_IPC_PACK_H
#define MR_IPC_PACK_H

#include "base/arena.h"
#include "base/buf.h"
#include "millrace/backend.h"

void mr_pack_u64(struct mr_buf *b, uint64_t v);
static inline void mr_pack_i64(struct mr_buf *b, int64_t v)
{
    mr_pack_u64(b, (uint64_t)v);
}
void mr_pack_bytes(struct mr_buf *b, const void *data, size_t len);
/** NULL and "" are distinct. */
void mr_pack_text(struct mr_buf *b, const char *text);
void mr_pack_settings(struct mr_buf *b, const struct mr_setting *list, uint32_t count);

struct mr_unpack {
    const uint8_t *at, *end;
    struct mr_arena *arena; /* for texts and arrays; its limit bounds them */
    bool failed;
};

static inline struct mr_unpack mr_unpack_begin(mr_bytes data, struct mr_arena *arena)
{
    return (struct mr_unpack){.at = data.ptr, .end = data.ptr + data.len, .arena = arena};
}
uint64_t mr_unpack_u64(struct mr_unpack *u);
static inline int64_t mr_unpack_i64(struct mr_unpack *u)
{
    return (int64_t)mr_unpack_u64(u);
}
/** A number of at most `max`. */
uint32_t mr_unpack_u32(struct mr_unpack *u, uint32_t max);
int32_t mr_unpack_i32(struct mr_unpack *u);
/** A count of elements, each of which takes at least eight of the bytes that follow. */
uint32_t mr_unpack_count(struct mr_unpack *u);
/** Borrowed from the input. */
mr_bytes mr_unpack_bytes(struct mr_unpack *u);
/** A copy in the arena; NULL for NULL and on failure. */
const char *mr_unpack_text(struct mr_unpack *u);
/** A text that cannot be NULL; "" on failure. */
const char *mr_unpack_name(struct mr_unpack *u);
/** A zeroed array in the arena. NULL with `failed` set: no memory. */
void *mr_unpack_array(struct mr_unpack *u, size_t count, size_t size);
const struct mr_setting *mr_unpack_settings(struct mr_unpack *u, uint32_t *out_count);

#endif
