/* The `split` of a workflow's node: which of its variants a request gets, what became of it, and its ramp. What an endpoint is
 * to a server, without a name, a file and a thread of its own: requests drive the ramp, since without any there is nothing to
 * judge. */
#ifndef MR_VARIANT_SPLIT_H
#define MR_VARIANT_SPLIT_H

#include "variant/config.h"
#include "workflow.pb-c.h"

struct mr_split;

/** Reads and checks a split; its texts are copied. Errors: MR_E_INVALID, with the variant. */
int mr_split_new(struct mr_split **out, const Millrace__WorkflowScheduling__Split *c,
                 struct mr_rollout_time t, struct mr_err *err);
void mr_split_free(struct mr_split **s);

size_t mr_split_count(const struct mr_split *s);
mr_str mr_split_tag(const struct mr_split *s, unsigned variant);
/** Where a request has its key; MR_STICKY_NONE: requests are spread. */
enum mr_sticky_kind mr_split_key(const struct mr_split *s, mr_str *out_name);
/** Splits of a common salt and key are asked for one bucket: a request that meets several is with all of them in one cohort. */
mr_str mr_split_salt(const struct mr_split *s);

/** The bucket of a request: of its key, or without one (ptr NULL) the next one. To be asked once for each request and salt.
 *  Thread: any. */
unsigned mr_split_bucket(struct mr_split *s, mr_str key);
/** The variant that has the bucket now. Thread: any. */
unsigned mr_split_choose(const struct mr_split *s, unsigned bucket);
/** The node has ended: counts it, and at most twice a second looks at the ramp. True: that has changed the weights, or the
 *  state of the ramp. Thread: any; one of several at the same time looks, and none waits. */
bool mr_split_end(struct mr_split *s, unsigned variant, int status, int64_t latency_ns,
                  struct mr_rollout_time t);

#endif
