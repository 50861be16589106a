#include "room.h"

#include "base/mem.h"
#include "ipc/reply.h"

#define ALIGN_BYTES   64
#define EXACT_EXTENTS 3 /* these are as large as their first output */

static bool cut(struct worker_room *r, size_t bytes, struct mr_block_extent *out)
{
    const uint64_t cap = (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;

    if (cap < bytes || cap > r->range.bytes) {
        return false;
    }
    /* A block with a file, as the reply refers to outputs by offsets in the segment. */
    *out = (struct mr_block_extent){r->range.data, cap, 0, r->range.offset};
    r->range.data += cap;
    r->range.offset += cap;
    r->range.bytes -= cap;
    r->given += cap;
    return true;
}

static bool take(const struct mr_block_provider *p, size_t bytes, size_t most,
                 struct mr_block_extent *out)
{
    (void)most;
    struct worker_room *r = (struct worker_room *)(uintptr_t)p;

    if (!r->view) {
        return cut(r, bytes, out);
    }
    if (!mr_shm_task_settle(r->view, r->task)) {
        return false;
    }
    if (cut(r, bytes, out)) {
        return true;
    }
    while (mr_shm_task_extent(r->view, r->task, r->next, &r->range)) {
        r->next++;
        if (cut(r, bytes, out)) {
            return true;
        }
    }
    /* There are only so many extents: the later ones have room for several more outputs of the size of all so far. */
    const uint64_t least = bytes + ALIGN_BYTES;
    const uint64_t ask = r->next < EXACT_EXTENTS ? least : MR_MAX(least, 4 * r->given);
    if (!mr_shm_task_need(r->view, r->task, ask, &r->range) &&
        !mr_shm_task_need(r->view, r->task, least, &r->range)) {
        r->range.bytes = 0;
        return false;
    }
    r->next++;
    return cut(r, bytes, out);
}

static void give(const struct mr_block_provider *p, const struct mr_block_extent *extent)
{
    (void)p;
    (void)extent;
}

void worker_room_letter(struct worker_room *r, struct mr_shm_task *at,
                        const struct mr_shm_range *letter)
{
    const uint64_t head = MR_MIN(letter->bytes, MR_IPC_REPLY_BYTES);

    at->room = letter->data;
    at->room_bytes = letter->bytes;
    at->room_offset = letter->offset;
    *r = (struct worker_room){
        .provider = {.take = take, .give = give},
        .range = {letter->data + head, letter->offset + head, letter->bytes - head}};
}

void worker_room_begin(struct worker_room *r, struct mr_shm_view *v, struct mr_shm_task *t)
{
    *r = (struct worker_room){.provider = {.take = take, .give = give},
                              .view = v,
                              .task = t,
                              .range = {t->room + MR_IPC_REPLY_BYTES,
                                        t->room_offset + MR_IPC_REPLY_BYTES,
                                        t->room_bytes - MR_IPC_REPLY_BYTES}};
}
