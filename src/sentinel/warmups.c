#include "warmups.h"

#include <string.h>

#include "ipc/message.h"

void warmups_keep(struct warmups *w, struct mr_shm *p, const struct mr_exec *exec)
{
    struct mr_block *block;
    uint64_t offset, bytes;

    if (w->count == WARMUPS_MAX || mr_ipc_exec_keep(p, exec, &block, &offset, &bytes, NULL) < 0) {
        return;
    }
    bool is_known = w->bytes + bytes > WARMUPS_BYTES_MAX;
    for (uint32_t i = 0; !is_known && i < w->count; i++) {
        is_known = w->at[i].bytes == bytes && memcmp(w->at[i].block->data, block->data, bytes) == 0;
    }
    if (is_known) {
        mr_block_unref(&block);
        return;
    }
    w->at[w->count].block = block;
    w->at[w->count].offset = offset;
    w->at[w->count++].bytes = bytes;
    w->bytes += bytes;
}

void warmups_drop(struct warmups *w)
{
    for (uint32_t i = 0; i < w->count; i++) {
        mr_block_unref(&w->at[i].block);
    }
    *w = (struct warmups){0};
}
