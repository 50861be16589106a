/* Where the hosts of a cluster come from: the configuration itself, files that are read again when they change, names that are
 * looked up again and again. Private. Thread: the loop's. */
#ifndef MR_SDK_DISCOVER_H
#define MR_SDK_DISCOVER_H

#include "base/err.h"

struct cluster;
struct discover;

/** Reads the lists of the cluster; names are looked up later. *out is NULL if no list can change. Errors: those of cluster_set,
 *  MR_E_NOT_FOUND, MR_E_IO (a file). */
int discover_new(struct discover **out, struct cluster *c, struct mr_err *err);
/** NULL is allowed. */
void discover_free(struct discover **d);
/** Whether a name has not been looked up yet. NULL is allowed. */
bool discover_is_unresolved(const struct discover *d);
/** Why the last look-up of a name gave no hosts; NULL: none has failed. NULL is allowed. */
const char *discover_error(const struct discover *d);

#endif
