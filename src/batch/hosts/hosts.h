/* Hosts: which there are, and whether they serve the job's model. On the loop's thread. */
#ifndef MR_BATCH_HOSTS_H
#define MR_BATCH_HOSTS_H

#include "batch/common/host.h"

/** Replaces the hosts of a list by these. tls_name: see transport_open. Errors: those of transport_open, MR_E_EXHAUSTED (too
 *  many); the list is as it was then. */
int hosts_set(struct job *j, size_t list, const char *const *urls, size_t count,
              const char *tls_name, struct mr_err *err);
/** Loads the model in this process as a host, whose metadata come first. Errors: those of the load. */
int hosts_add_local(struct job *j, struct mr_err *err);
/** Sets how large answers can be, which follows from the rows of a call: again when these may be more. */
void hosts_bound(struct job *j, uint64_t call_rows);
/** Asks whose turn it is whether they serve the model, closes those that left. */
void hosts_tick(struct job *j, int64_t now_ns);
void hosts_close(struct job *j);
/** After the loop is gone. */
void hosts_free(struct job *j);
struct host *host_of(struct job *j, uint32_t id);
/** Is an answer of the version of the model that all others were of? The first one that tells its version decides.
 *  Errors: MR_E_INVALID. */
int hosts_version_check(struct job *j, mr_str version, struct mr_err *err);
/** It said something that will hardly be different soon: no such model, no such server. */
void host_lasts(struct host *h, const char *why);
/** Is there no host that could serve the job, and none to be expected? MR_OK, or MR_E_UNAVAILABLE with what they say. */
int hosts_check(struct job *j, int64_t now_ns, struct mr_err *err);
/** The host gets no more calls until its metadata equal those of the first host. */
void host_cordon(struct host *h, const char *why, int64_t now_ns);
size_t hosts_listed(const struct job *j);

#endif
