/* How often a job commits and how many rows go through it together, from how fast it is: a crash costs what is not
 * committed and what is under way, and both should be little beside what is done already. */
#ifndef MR_BATCH_CADENCE_H
#define MR_BATCH_CADENCE_H

#include <stdint.h>

/** How old a file of results may become that is begun when the job has run for age_ns: a thirtieth of that, 2 to 60 s. */
int64_t cadence_commit_ns(int64_t age_ns);
/** The rows of the next extent, from the results of the last half second: as many, 64 to `most`. */
uint64_t cadence_extent_rows(uint64_t recent, uint64_t most);

#endif
