#include "shm/excess.h"

#include <sys/stat.h>

#include "base/mem.h"
#include "shm/heap.h"

#define BLOCK_BYTES 512u /* the unit of st_blocks */

uint64_t mr_shm_excess(struct mr_shm *p)
{
    struct mr_shm_heap *outputs = mr_shm_outputs(p);
    const struct mr_shm_heap_stats s = mr_shm_heap_get_stats(outputs);
    const uint64_t due = outputs->offset + s.used_bytes + s.warm_bytes;
    struct stat st;

    if (fstat(mr_shm_get_fds(p).output, &st) < 0) {
        return 0;
    }
    const uint64_t there = (uint64_t)st.st_blocks * BLOCK_BYTES;
    return there > due ? there - due : 0;
}

void mr_shm_excess_drop(struct mr_shm *p)
{
    mr_shm_heap_trim(mr_shm_outputs(p));
}
