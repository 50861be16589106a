#include "cadence.h"

#include "base/clock.h"
#include "base/mem.h"

#define COMMIT_PART     30
#define COMMIT_NS_LEAST (2 * MR_NS_PER_S)
#define COMMIT_NS_MOST  (60 * MR_NS_PER_S)
#define ROWS_LEAST      UINT64_C(64)

int64_t cadence_commit_ns(int64_t age_ns)
{
    return MR_MIN(MR_MAX(age_ns / COMMIT_PART, COMMIT_NS_LEAST), COMMIT_NS_MOST);
}

uint64_t cadence_extent_rows(uint64_t recent, uint64_t most)
{
    return MR_MIN(MR_MAX(recent, ROWS_LEAST), most);
}
