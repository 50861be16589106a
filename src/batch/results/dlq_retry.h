/* Dead letters once more. */
#ifndef MR_BATCH_DLQ_RETRY_H
#define MR_BATCH_DLQ_RETRY_H

#include "base/err.h"
#include "batch/manifest/ranges.h"

struct results;
struct open_part;

struct dlq_retry;
/** All dead letters of the job. Errors: MR_E_IO (a file of them is damaged; names the line). */
int dlq_retry_new(struct dlq_retry **out, const struct results *rs, struct mr_err *err);
void dlq_retry_free(struct dlq_retry **r);
/** How many there are. */
uint64_t dlq_retry_rows(const struct dlq_retry *r);
/** All rows of a file but theirs, into an empty set. */
int dlq_retry_others(const struct dlq_retry *r, uint32_t file, struct mr_ranges *out,
                     struct mr_err *err);
/** What was tried before with a row. */
uint32_t dlq_retry_attempts(const struct dlq_retry *r, uint32_t file, uint64_t row);
/** Replaces the dead letters of the rows by their outcomes. The part is complete except for dead letters of other rows.
 * Errors: as mr_manifest_replace. */
int dlq_retry_commit(struct results *rs, struct open_part *p, struct mr_err *err);

#endif
