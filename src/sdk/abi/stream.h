/* A stream of the C interface. Private.
 *
 * Its network side belongs to the loop (stream_net.c); callers meet it in two queues under one lock: requests that the loop has not
 * given to the network, and answers that are not read (stream.c). Both are bounded in bytes. */
#ifndef MR_SDK_STREAM_H
#define MR_SDK_STREAM_H

#include <pthread.h>

#include "abi.h"

/** A request in protobuf. It is counted until the network has taken it, and kept for another host until the first answer. */
struct stream_request {
    STAILQ_ENTRY(stream_request) link; /* of `out`, later of `kept` */
    struct mr_sdk_stream *stream;
    uint32_t refs; /* of the network or `out`, of `kept` */
    bool is_once;  /* not to be sent twice */
    size_t bytes;
    uint8_t data[];
};
STAILQ_HEAD(stream_requests, stream_request);

struct mr_sdk_stream {
    LIST_ENTRY(mr_sdk_stream) link;
    struct mr_sdk *client;
    struct mr_sdk_call
        *head;         /* the model, variant, headers and deadline of the stream, as of a call */
    const char *model; /* as the caller names it */
    _Atomic uint32_t refs; /* of the caller's handle, of the loop, of the delivery */
    size_t max_unread, max_unsent;

    /* thread: the loop's */
    struct mr_client_stream *net; /* NULL: no host yet, or over */
    struct host *host;            /* NULL: none */
    struct mr_balance_call ticket;
    struct cluster_wait wait;
    struct mr_timer deadline;
    bool is_started;
    bool is_bound; /* it stays with its host, whatever becomes of that */
    struct stream_requests kept;
    size_t kept_bytes;
    uint32_t left[CONFIG_ATTEMPTS_MAX]; /* hosts that have failed */
    uint32_t left_count;
    bool has_done; /* the host knows that no request comes any more */

    struct mr_mail poke; /* to the loop: there is something new */
    struct mr_mail tell; /* MR_SDK_PROCESS */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under the lock */
    struct stream_requests out;
    size_t unsent; /* bytes of requests, those that the network has included */
    STAILQ_HEAD(, mr_sdk_result) unread;
    size_t unread_bytes;
    uint32_t uses; /* what the loop still has of it: the poke, the network's stream, requests */
    mr_sdk_stream_fn *notify;
    void *ctx;
    pthread_t notifier; /* while is_notifying */
    bool is_notifying;
    bool wants_answer; /* a read found none: notify */
    bool wants_room;   /* a request was refused: notify */
    bool is_poked;
    bool is_told;
    bool is_paused; /* the host may not send */
    bool is_done;   /* no more requests */
    bool is_cancelled;
    bool is_over;
    int rc;
    struct mr_err err;
    const char *host_url; /* NULL: none yet */
};

/* stream.c */
void stream_unref(struct mr_sdk_stream *s);
/** Has `notify` run where callbacks run. Thread: the loop's, without the lock. */
void stream_notify(struct mr_sdk_stream *s);

/* stream_net.c */
/** Runs on the loop when something was put into the stream. */
void stream_on_poke(struct mr_mail *mail);
#endif
