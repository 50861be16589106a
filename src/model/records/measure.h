/* Growth of the process's memory by loads and unloads. Thread: loader, reaper; takes the lock. */
#ifndef MR_MODEL_MEASURE_H
#define MR_MODEL_MEASURE_H

#include "model/model.h"

struct mr_measure {
    uint64_t before;
    uint64_t begun;
    bool is_alone;
};
void mr_measure_begin(struct mr_models *m, struct mr_measure *x);
/** Growth of the process since mr_measure_begin, or MR_MEMORY_UNKNOWN. */
int64_t mr_measure_end(struct mr_models *m, const struct mr_measure *x);

#endif
