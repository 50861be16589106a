/* Requests of one model version that have killed worker processes. Each is refused for some time, so that a client
 * that repeats it costs no further worker.
 *
 * A request is recognised by keyed digests of its inputs and parameters, which are computed only while some request
 * is in quarantine. The caller passes the time. Thread: any. */
#ifndef MR_EXEC_QUARANTINE_H
#define MR_EXEC_QUARANTINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"
#include "millrace/backend.h"

#define MR_QUARANTINE_NS  (60 * MR_NS_PER_S)
#define MR_QUARANTINE_MAX 64u /* a new one replaces the oldest */

struct mr_quarantine_entry {
    uint64_t quick; /* digest of parts of the data */
    uint64_t whole;
    int64_t until_ns;
};

struct mr_quarantine {
    /** Of the last entry, 0 = there is none. Relaxed: a request that comes during a change may be accepted. */
    _Atomic int64_t until_ns;
    _Atomic uint64_t refused; /* requests; relaxed */
    pthread_mutex_t lock;     /* guards what follows; held for a look over the entries */
    struct mr_quarantine_entry entries[MR_QUARANTINE_MAX];
    uint32_t next;
};

void mr_quarantine_init(struct mr_quarantine *q);
void mr_quarantine_fini(struct mr_quarantine *q);

/** What identifies a request. Borrowed. */
struct mr_quarantine_key {
    const struct mr_tensor *inputs; /* dtype INVALID: not sent */
    uint32_t input_count;
    uint32_t parameter_count;
    const struct mr_setting *parameters;
};
/** Reads all data of the request. */
void mr_quarantine_add(struct mr_quarantine *q, const struct mr_quarantine_key *k, int64_t now_ns);
/** True if the request is in quarantine; counts it as refused. Reads up to 64 KiB of each input, all data only if
 *  that part matches an entry, and nothing while the quarantine is empty. */
bool mr_quarantine_refuses(struct mr_quarantine *q, const struct mr_quarantine_key *k,
                           int64_t now_ns);
/** Requests in quarantine. */
uint32_t mr_quarantine_count(struct mr_quarantine *q, int64_t now_ns);

#endif
