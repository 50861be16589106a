/* Hosts: which there are, and whether they serve the job's model. On the loop's thread. */
#ifndef MR_BATCH_HOSTS_H
#define MR_BATCH_HOSTS_H

#include "base/vec.h"
#include "batch/batch.h"
#include "batch/common/dialect.h"
#include "batch/common/host.h"
#include "batch/common/job_state.h"

struct discover;
struct quarantine;

struct hosts {
    const struct mr_batch_options *o;
    struct job_state *state;
    struct dialect_model *model;
    struct quarantine *quarantine;
    const char *folder; /* the job's; NULL: it has none */
    MR_VEC(struct host *) list;
    struct mr_balance *balance;
    struct local *local; /* NULL: the model is on hosts only */
    struct discover *discover;
    uint32_t max_in_flight; /* calls at a host */
    int64_t answer_most;    /* bytes; more is no answer */
};

/** Replaces the hosts of a list by these. tls_name: see transport_open. Errors: those of transport_open, MR_E_EXHAUSTED (too
 *  many); the list is as it was then. */
int hosts_set(struct hosts *hs, size_t list, const char *const *urls, size_t count,
              const char *tls_name, struct mr_err *err);
/** Loads the model in this process as a host, whose metadata come first. Errors: those of the load. */
int hosts_add_local(struct hosts *hs, struct mr_err *err);
/** Sets how large answers can be, which follows from the rows of a call: again when these may be more. */
void hosts_bound(struct hosts *hs, uint64_t call_rows);
/** Asks hosts that are due for their model, and closes those that have left. */
void hosts_tick(struct hosts *hs, int64_t now_ns);
void hosts_close(struct hosts *hs);
/** After the loop is gone. */
void hosts_free(struct hosts *hs);
struct host *host_of(struct hosts *hs, uint32_t id);
/** It said something that will hardly be different soon: no such model, no such server. */
void host_lasts(struct host *h, const char *why);
/** Is there no host that could serve the job, and none to be expected? MR_OK, or MR_E_UNAVAILABLE with what they say. */
int hosts_check(struct hosts *hs, int64_t now_ns, struct mr_err *err);
/** The host gets no more calls until its metadata equal those of the first host. */
void host_cordon(struct host *h, const char *why, int64_t now_ns);
size_t hosts_listed(const struct hosts *hs);
/** Counts a dead letter for the host of the address. */
void hosts_count_dead(struct hosts *hs, const char *address);

#endif
