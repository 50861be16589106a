/* The hosts of a variant, and which of them gets a call. Private. Thread: the loop's. */
#ifndef MR_SDK_CLUSTER_H
#define MR_SDK_CLUSTER_H

#include <sys/queue.h>

#include "balance/balance.h"
#include "base/vec.h"
#include "net/client.h"
#include "net/tls.h"
#include "sdk/config/config.h"

struct discover;

/** What is common to all hosts of a client. */
struct cluster_options {
    struct mr_loop *loop;
    struct mr_tls_client_options tls;
    const char *const *headers; /* "Name: value", with every request that has none of that name */
    size_t header_count;
};

struct host {
    uint32_t id; /* of balance */
    struct mr_client *client;
    struct mr_tls_client *tls; /* NULL: none */
    bool is_grpc;
    bool shares_memory; /* it is on this host, and descriptors can be passed to it */
    bool is_leaving;    /* not listed any more; freed after its last attempt */
    uint32_t attempts;  /* that it has now */
    size_t list;        /* of the lists of the cluster */
    char *url;
    char prefix[256]; /* of paths */
};

/** A call that waits for a host. `wake` is called when there may be one, the call being in no list, and returns true if there is
 *  none, which puts it back. */
struct cluster_wait {
    TAILQ_ENTRY(cluster_wait) link;
    bool is_queued;
    /** It cannot use every host: those after it in the line are not held up by it. */
    bool is_picky;
    bool (*wake)(struct cluster_wait *w);
};

TAILQ_HEAD(cluster_waits, cluster_wait);

struct cluster {
    const struct cluster_options *o;
    struct config_policy policy;
    const struct config_host *lists;
    size_t list_count;
    MR_VEC(struct host *) hosts; /* also those that are leaving */
    struct mr_balance *balance;
    struct discover *discover; /* NULL: all hosts are named by the configuration */
    struct cluster_waits waiting, picky;
    struct mr_timer timer;
    bool is_waking;
    bool is_closed;
};

/** Hosts are connected to by their first call. The configuration must outlive it. Errors: MR_E_INVALID (an address, a header), those
 *  of mr_tls_client_new, MR_E_NOT_FOUND and MR_E_IO (a file of hosts). */
int cluster_new(struct cluster **out, const struct cluster_options *o,
                const struct config_variant *v, struct mr_err *err);
/** Attempts that are under way end as cancelled, now. */
void cluster_close(struct cluster *c);
/** Closed, and the loop has run out, or is about to be freed. */
void cluster_free(struct cluster **c);

/** Replaces the hosts of a list. tls_name: the name that their certificates must have, NULL: that of the address. Errors: as cluster_new; the
 *  list is as it was then. */
int cluster_set(struct cluster *c, size_t list, const struct config_host *hosts, size_t count,
                const char *tls_name, struct mr_err *err);

/** The list may have other hosts, or will have none, or a host works again: calls that wait are tried again. */
void cluster_hosts_changed(struct cluster *c);

/** False: none has room now. *out gets an attempt then (cluster_ended). */
bool cluster_pick(struct cluster *c, const struct mr_balance_ask *ask,
                  struct mr_balance_call *out_call, struct host **out);
/** The same for a second copy of the call with that ticket. */
bool cluster_hedge(struct cluster *c, uint64_t original, const struct mr_balance_ask *ask,
                   struct mr_balance_call *out_call, struct host **out);
/** An attempt has ended: what became of it, and calls that wait may have the host. */
void cluster_ended(struct cluster *c, struct host *h, uint64_t ticket,
                   enum mr_balance_outcome outcome, int64_t retry_after_ns);
/** Until the next change. */
void cluster_wait(struct cluster *c, struct cluster_wait *w);
void cluster_wait_end(struct cluster *c, struct cluster_wait *w);
/** Whether a host works, or lists may give one soon. False: *err says why, MR_E_UNAVAILABLE. */
bool cluster_has_hope(struct cluster *c, struct mr_err *err);

#endif
