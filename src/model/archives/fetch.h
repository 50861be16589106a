/* Archives that are elsewhere, into the cache. Blocks. Thread: one at a time. */
#ifndef MR_MODEL_ARCHIVES_FETCH_H
#define MR_MODEL_ARCHIVES_FETCH_H

#include <stdatomic.h>

#include "archive/cache.h"
#include "url.h"

struct fetcher;
/** max_bytes: of an archive, and of its files, 0 = no limit. is_unwanted: NULL, or what ends a fetch as is_stopping does. All
 *  borrowed. */
struct fetcher *fetch_new(struct mr_cache *cache, uint64_t max_bytes,
                          const _Atomic bool *is_stopping, const _Atomic bool *is_unwanted);
void fetch_free(struct fetcher **f); /* accepts NULL in it */
/** What changes with the archive: of S3 the ETag, otherwise the checksum. Errors: those of mr_s3_head. */
int fetch_identity(struct fetcher *f, const struct archive_url *u, uint64_t *out,
                   struct mr_err *err);
/** Its unpacked files, which are in the cache if they have been before: with a checksum nothing is asked for then. Errors, with
 *  the address: those of mr_archive_unpack; MR_E_INVALID (another checksum), MR_E_NOT_FOUND, MR_E_FORBIDDEN, MR_E_UNAVAILABLE,
 *  MR_E_CANCELLED. */
int fetch_archive(struct fetcher *f, const struct archive_url *u, struct mr_cache_ref **out,
                  struct mr_err *err);

#endif
