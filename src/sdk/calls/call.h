/* A call to one of the hosts of a cluster, an inference or a question: attempts, again elsewhere, a second copy, deadline. Private. Thread: the loop's. */
#ifndef MR_SDK_CALL_H
#define MR_SDK_CALL_H

#include "base/mailbox.h"
#include "client/ask.h"
#include "judge.h"
#include "memory.h"
#include "oip/oip.h"
#include "sdk/hosts/cluster.h"

#define CALL_HEADERS_MAX 6

struct call;
struct shards;

struct call_attempt {
    struct call *call;
    struct host *host; /* NULL: not under way */
    struct mr_balance_call ticket;
    struct mr_client_call *net;
    bool has_places;
    int64_t start_ns;
};

/** In the caller's memory, zeroed; what stands above `done` is the caller's to set, and stays until `freed` was called. */
struct call {
    struct cluster *cluster;
    struct mr_arena *arena; /* also of the answer */
    const char *model;
    const char *version; /* NULL: the server's choice */
    struct mr_oip_request request;
    struct mr_header headers[CALL_HEADERS_MAX];
    size_t header_count;
    const bool *packed;  /* of each input: its rows may be divided among hosts. NULL: none is */
    int64_t pack_rows;   /* of those inputs; 0: none */
    uint64_t key;        /* of strategy hash, and of a sequence; 0: none */
    int64_t deadline_ns; /* monotonic */
    struct mr_sdk_memory *memory;      /* where some tensors are; NULL: none */
    const struct memory_place *places; /* of each output that is asked for; NULL: none */
    bool is_once;                      /* not to be made twice: one attempt, no copy */
    bool fails_fast;                   /* it waits for no host that is busy */
    bool is_question;                  /* `ask`, in place of the request */
    enum mr_ask ask;

    /** The answer is there, or will not be: exactly once, never from within call_start. What the request refers to is not needed
     *  any more. The call may be read until `freed`. */
    void (*done)(struct call *c);
    /** Nothing refers to the call any more: the last thing that happens. */
    void (*freed)(struct call *c);

    /* the answer, from `done` on */
    int rc;
    struct mr_err err;
    struct mr_oip_response response; /* in the arena and the body */
    struct mr_block *body;           /* a reference of the call; NULL: none */
    bool is_yes;                     /* of a question */
    mr_str text;                     /* of a question, a C string in the arena; ptr NULL: none */
    const char *host;                /* that gave the answer; in the arena, NULL: none */
    uint32_t attempts;

    struct shards *shards; /* its parts; NULL: it is sent whole */
    /* of call.c */
    struct call_attempt at[2];
    uint32_t avoid[CONFIG_ATTEMPTS_MAX + 1];
    uint32_t avoid_count;
    uint32_t failures;
    uint32_t borrowed; /* blocks around the caller's tensors that are not released yet */
    struct cluster_wait wait;
    struct mr_timer deadline, hedge, again;
    struct mr_mail mail;
    bool is_retry;
    bool was_placed; /* an attempt has had the places: no other one gets them */
    bool is_over;    /* the answer is there */
    bool is_reported;
    bool is_posted;
};

void call_start(struct call *c);
/** The call ends as cancelled, unless it is over already. */
void call_cancel(struct call *c);

#endif
