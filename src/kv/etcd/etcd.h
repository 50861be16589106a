/* A connection to an etcd cluster, on a loop.
 *
 *   config.c    which cluster, from a text
 *   connect.c   endpoints, authentication, probes: when the connection is ready, and when it is lost
 *   calls.c     calls and their answers
 *   watches.c   watches, each a stream of its own
 *   etcd.c      begin and end
 *
 * Phases: DOWN (waits to connect) → JOINING (authenticates, then asks the endpoint for its status) → UP → BROKEN
 * (its connection is dropped in the loop's next turn, since a client may not be freed in its own callback) → JOINING
 * with the next endpoint. */
#ifndef MR_KV_ETCD_ETCD_H
#define MR_KV_ETCD_ETCD_H

#include <sys/queue.h>

#include "base/rng.h"
#include "config.h"
#include "kv/core/conn.h"
#include "kv/wire/reply_read.h"
#include "net/client.h"
#include "net/loop.h"
#include "net/tls.h"

#define KV_ETCD_MESSAGE_MAX (256 * 1024 * 1024)

struct etcd_call {
    struct mr_kv_call base;
    TAILQ_ENTRY(etcd_call) link;
    struct mr_timer timer;     /* its deadline, or its end by `rc` */
    struct kv_request request; /* how its answer is to be read: without keys and values */
    struct mr_arena arena;     /* the operations of request */
    struct mr_buf message;
    struct etcd_sent *sent; /* NULL: waits for the connection, or ends */
    int rc;                 /* < 0: it ends with that */
    struct mr_err err;
};

/** A request on its way: outlives a call that is given up. */
struct etcd_sent {
    struct etcd_call *call; /* NULL: given up */
    int64_t sent_ns;        /* by the loop's time */
    struct mr_client_call *unary;
    struct mr_client_stream *stream;
};

struct etcd_watch {
    struct mr_kv_watch base;
    TAILQ_ENTRY(etcd_watch) link;
    int64_t seen; /* revision up to which the user has all; -1: what changes after the start */
    bool is_over; /* its changes are lost */
    struct etcd_stream *stream; /* NULL: none */
    struct mr_kv_call *check;   /* asks for the revision of the cluster; NULL: none does */
};

/** The stream of a watch: outlives a watch that is stopped. */
struct etcd_stream {
    struct etcd_watch *watch; /* NULL: stopped */
    struct mr_client_stream *stream;
};

enum etcd_phase { ETCD_DOWN, ETCD_JOINING, ETCD_UP, ETCD_BROKEN };

struct kv_etcd {
    struct mr_kv base;
    struct mr_loop *loop;
    struct kv_etcd_config config;
    struct mr_tls_client *tls;
    struct mr_client *client;
    enum etcd_phase phase;
    size_t endpoint;   /* of the client, or the one to try next */
    unsigned failures; /* in a row: attempts to connect, and connections that did not last */
    int64_t up_ns;     /* when it was last up */
    char *token;       /* of the authenticated user */
    /** Of the phase: back-off, the next probe, the drop of a broken connection. */
    struct mr_timer timer;
    /** A stream without watches, which ends when the connection does; NULL: none. */
    struct etcd_line *line;
    struct etcd_probe *probe; /* the request that decides about the connection; NULL: none */
    bool heard;               /* an answer came since the last probe */
    struct mr_err why;        /* it is not up */
    uint64_t cluster;         /* 0: not known yet */
    uint64_t term;
    struct mr_rng rng;
    TAILQ_HEAD(, etcd_call) calls;
    TAILQ_HEAD(, etcd_watch) watches;
    uint32_t call_count;
};

static inline mr_str etcd_root(const struct kv_etcd *e)
{
    return mr_str_c(e->config.root);
}

/* ---- connect.c ---- */

/** See kv_etcd_config.prepare. rc < 0: the attempt fails. */
void kv_etcd_prepared(struct kv_etcd *e, int rc, const struct mr_err *err);

/** Begins to connect, soon. */
void etcd_connect_start(struct kv_etcd *e);
/** Frees the client: what it has under way must have been given up. */
void etcd_connect_end(struct kv_etcd *e);
/** The connection, or its token, does not work: it is made anew. */
void etcd_connect_broken(struct kv_etcd *e, const struct mr_err *why);
/** The metadata of each request; returns how many there are. */
size_t etcd_metadata(const struct kv_etcd *e, struct mr_header out[1]);
/** What an error of a request says about the connection: true: it is to be made anew. */
bool etcd_is_broken_by(int rc, int grpc_status);
/** True: the token is not valid any more, and the request was not carried out. */
bool etcd_is_token_refused(int rc, const struct mr_err *err, int grpc_status);

/* ---- calls.c ---- */

struct mr_kv_call *etcd_call_start(struct mr_kv *kv, const struct kv_request *request,
                                   const struct mr_err *refused, mr_kv_done_fn *done, void *ctx);
void etcd_call_cancel(struct mr_kv_call *call);
/** Sends the calls that wait. */
void etcd_calls_send(struct kv_etcd *e);
/** The connection is lost: what can be sent again waits, the rest fails. */
void etcd_calls_lose(struct kv_etcd *e);
/** Ends the calls that wait, with that error. */
void etcd_calls_refuse(struct kv_etcd *e, const struct mr_err *why);
/** Ends all calls at once. */
void etcd_calls_fini(struct kv_etcd *e);

/* ---- watches.c ---- */

struct mr_kv_watch *etcd_watch_start(struct mr_kv *kv, mr_str prefix, int64_t from,
                                     const struct mr_kv_watch_events *events, void *ctx);
void etcd_watch_stop(struct mr_kv_watch *watch);
/** Opens the streams of the watches that have none. */
void etcd_watches_open(struct kv_etcd *e);
void etcd_watches_lose(struct kv_etcd *e);
/** Ends all watches that have seen something: the cluster is not the one they know. */
void etcd_watches_resync(struct kv_etcd *e, const struct mr_err *why);
void etcd_watches_fini(struct kv_etcd *e);

/* ---- etcd.c ---- */

/** Takes the configuration. name: for reports. Errors: those of mr_tls_client_new. */
int kv_etcd_open(struct mr_kv **out, struct mr_loop *loop, struct kv_etcd_config *config,
                 const struct mr_kv_options *options, struct mr_err *err);

#endif
