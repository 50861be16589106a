/* Several inference requests as one: their tensors joined along the first dimension, and the answer cut apart again.
 * Private. Thread: any. */
#ifndef MR_BATCH_JOIN_H
#define MR_BATCH_JOIN_H

#include "oip/oip.h"

/** Rows of a request: the first dimension, if it is the same in all inputs; -1: it cannot be joined with others. */
int64_t join_rows(const struct mr_oip_request *r);
/** Two requests that differ in nothing but id, rows and data. */
bool join_fits(const struct mr_oip_request *a, const struct mr_oip_request *b);
/** One request of `count` that fit with each other, without an id. What it needs is in the arena or the requests, but for
 *  large data, which goes with the arena. Errors: MR_E_EXHAUSTED. */
int join_requests(const struct mr_oip_request *const *requests, size_t count,
                  struct mr_arena *arena, struct mr_oip_request *out, struct mr_err *err);
/** What an answer has of rows [first, first + rows) of `all`: outputs without parameters of the encoding, all as JSON. Data
 *  stays where it is. Errors: MR_E_INVALID (an output has not `all` rows), MR_E_EXHAUSTED. */
int join_cut(const struct mr_oip_response *answer, int64_t all, int64_t first, int64_t rows,
             struct mr_arena *arena, struct mr_oip_response *out, struct mr_err *err);

#endif
