/* The memory store: its state, its connections, and what is on its way between the two.
 *
 *   transit.c   parcels and the queues that they travel in
 *   server.c    what happens when a parcel arrives at the store
 *   calls.c     calls, and how each ends
 *   watches.c   watches, on the side of the connection
 *   memory.c    the store and its connections; steps
 *   on_loop.c   a store that a loop steps */
#ifndef MR_KV_MEMORY_STORE_H
#define MR_KV_MEMORY_STORE_H

#include <sys/queue.h>

#include "base/vec.h"
#include "kv/core/apply.h"
#include "kv/memory.h"

enum parcel_kind {
    PARCEL_REQUEST, /* up: of a call */
    PARCEL_WATCH,   /* up: a watch begins */
    PARCEL_ANSWER,  /* down: of a call */
    PARCEL_CHANGES, /* down: for a watch */
    PARCEL_RESYNC,  /* down: for a watch */
    PARCEL_RESULT,  /* local: a call ends without the store's answer */
    PARCEL_STATE,   /* local: state of the connection */
};

struct parcel {
    TAILQ_ENTRY(parcel) link;
    enum parcel_kind kind;
    int64_t due_ns;
    uint64_t seq; /* order among those that are due at the same time */
    /** Number of the step in which the user caused it, 0: no step; it waits for the next one. */
    uint64_t of_step;
    struct memory_call *call;   /* NULL: given up */
    struct memory_watch *watch; /* NULL: stopped */
    struct mr_arena arena;
    struct kv_request request;
    struct mr_kv_reply reply;
    int rc;
    struct mr_err err;
    MR_VEC(struct kv_record *) records; /* each one reference */
    int64_t revision;
    enum mr_kv_state state;
};
TAILQ_HEAD(parcels, parcel);

struct memory_call {
    struct mr_kv_call base;
    TAILQ_ENTRY(memory_call) link; /* of all calls of the connection, oldest first */
    int64_t deadline_ns;           /* INT64_MAX: it ends already */
    struct parcel *parcel;         /* where it is; waiting, or in one of the queues */
    bool is_waiting;               /* for the connection */
};

struct memory_watch {
    struct mr_kv_watch base;
    TAILQ_ENTRY(memory_watch) link;
    int64_t seen;   /* revision up to which the user has all; -1: what changes after the start */
    int64_t next;   /* revision that the store sends next */
    bool is_active; /* at the store */
    bool is_over;   /* a resync is on its way */
    uint64_t incarnation;
};

struct memory_conn {
    struct mr_kv base;
    struct mr_kv_memory *memory;
    TAILQ_ENTRY(memory_conn) link;
    TAILQ_HEAD(, memory_call) calls;
    TAILQ_HEAD(, memory_watch) watches;
    struct parcels up;
    struct parcels down;
    struct parcels local;
    int64_t delay_ns;
    bool is_cut;
    uint32_t call_count;
};

struct mr_kv_memory {
    struct kv_state state;
    struct kv_state_options options;
    struct mr_rng rng;
    int64_t now_ns;
    uint64_t seq;
    uint64_t step;        /* number of the step under way, 0: none */
    uint64_t steps;       /* how many there were */
    uint64_t incarnation; /* times that it lost its data */
    TAILQ_HEAD(, memory_conn) conns;
    void (*wake)(void *ctx);     /* (may be NULL) the next step may be due earlier than it was */
    int64_t (*clock)(void *ctx); /* (may be NULL) the time between steps */
    void *wake_ctx;
};

/* ---- transit.c ---- */

struct parcel *memory_parcel_new(struct memory_conn *c, enum parcel_kind kind);
void memory_parcel_free(struct parcel *p);
/** One that the user causes: in a callback it waits for the next step. */
struct parcel *memory_user_parcel(struct memory_conn *c, enum parcel_kind kind);
/** The time for what the user does now. */
int64_t memory_time(struct mr_kv_memory *m);
/** Sends it: it is due when what is before it in its queue is, and no earlier than after the delay. at_ns: when it
 *  leaves. */
void memory_send(struct memory_conn *c, struct parcels *queue, struct parcel *p, int64_t at_ns);
/** Takes the parcel that is due first, of those that this step may take; NULL: none is due by `until`. */
struct parcel *memory_take(struct mr_kv_memory *m, int64_t until, struct memory_conn **out_conn);
/** When the first one is due, whichever step may take it. */
int64_t memory_due(const struct mr_kv_memory *m);

/* ---- server.c ---- */

/** A request or a watch has arrived; frees or sends the parcel on. */
void memory_arrive(struct memory_conn *c, struct parcel *p, int64_t at_ns);
/** Ends the leases that end by then. */
void memory_expire(struct mr_kv_memory *m, int64_t at_ns);
/** Sends the changes that watches have not been sent. */
void memory_feed(struct mr_kv_memory *m, int64_t at_ns);

/* ---- calls.c ---- */

struct mr_kv_call *memory_call_start(struct mr_kv *kv, const struct kv_request *request,
                                     const struct mr_err *refused, mr_kv_done_fn *done, void *ctx);
void memory_call_cancel(struct mr_kv_call *base);
/** Ends the call with that error, soon; its request goes on without it. */
void memory_call_end(struct memory_call *call, int rc, const char *text);
/** Sends it, or has it wait while the connection is cut. */
void memory_call_send(struct memory_call *call);
/** Gives the call that the parcel belongs to its answer, and ends it. */
void memory_call_answer(struct memory_conn *c, struct parcel *p);
/** The call that ends first by its deadline, or NULL. */
struct memory_call *memory_first_deadline(const struct memory_conn *c);
/** Ends the calls whose deadline is over. */
void memory_end_overdue(struct mr_kv_memory *m);

/* ---- watches.c ---- */

struct mr_kv_watch *memory_watch_start(struct mr_kv *kv, mr_str prefix, int64_t from,
                                       const struct mr_kv_watch_events *events, void *ctx);
void memory_watch_stop(struct mr_kv_watch *base);
/** Asks the store for what the user has not seen, unless the connection is cut. */
void memory_watch_send(struct memory_watch *w);
/** Gives the parcel's changes to the user. */
void memory_watch_changes(struct memory_watch *w, const struct parcel *p);
/** Ends it. */
void memory_watch_resync(struct memory_watch *w, const struct parcel *p);

/* ---- on_loop.c ---- */

struct mr_loop;
/** A store of its own, stepped by the loop, and freed with its only connection. */
struct mr_kv *kv_memory_open_on(struct mr_loop *loop, const struct mr_kv_options *options);

#endif
