/* Memory of the output segment that the server has not given out: a worker can write anywhere in it, and each page that it
 * writes to becomes memory, which would stay until the model is unloaded. */
#ifndef MR_SHM_EXCESS_H
#define MR_SHM_EXCESS_H

#include "shm/plane.h"

/** Bytes in memory beyond what blocks use and what waits for the next ones. Thread: any; one system call. */
uint64_t mr_shm_excess(struct mr_shm *p);
/** Returns what no block uses to the system. Thread: any; allocations of large outputs wait for it. */
void mr_shm_excess_drop(struct mr_shm *p);

#endif
