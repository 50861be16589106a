/* What all stores have in common: a connection, its calls and watches, and the functions that a store provides. */
#ifndef MR_KV_CORE_CONN_H
#define MR_KV_CORE_CONN_H

#include "kv/kv.h"

enum kv_ask {
    KV_ASK_RANGE,
    KV_ASK_PUT,
    KV_ASK_DELETE,
    KV_ASK_TXN,
    KV_ASK_GRANT,
    KV_ASK_KEEP,
    KV_ASK_REVOKE,
};

/** What is asked for: the members that belong to `ask`. */
struct kv_request {
    enum kv_ask ask;
    struct mr_kv_range range;
    struct mr_kv_op op; /* put and delete */
    struct mr_kv_txn txn;
    int64_t lease; /* grant: its id, 0 = the store's choice */
    int64_t ttl_s;
};
/** Whether it can be sent twice. */
static inline bool kv_request_is_repeatable(const struct kv_request *r)
{
    return r->ask == KV_ASK_RANGE || r->ask == KV_ASK_KEEP;
}

struct kv_store {
    /** Starts a call. refused: (may be NULL) why it is to fail at once; the request is not valid then. */
    struct mr_kv_call *(*start)(struct mr_kv *kv, const struct kv_request *request,
                                const struct mr_err *refused, mr_kv_done_fn *done, void *ctx);
    void (*cancel)(struct mr_kv_call *call);
    struct mr_kv_watch *(*watch)(struct mr_kv *kv, mr_str prefix, int64_t from,
                                 const struct mr_kv_watch_events *events, void *ctx);
    void (*watch_stop)(struct mr_kv_watch *watch);
    void (*free)(struct mr_kv *kv);
};

/* The first members of each store's own structs. */
struct mr_kv {
    const struct kv_store *store;
    struct mr_kv_options options;
    enum mr_kv_state state;
    char *name;
};
struct mr_kv_call {
    struct mr_kv *kv;
    mr_kv_done_fn *done;
    void *ctx;
};
struct mr_kv_watch {
    struct mr_kv *kv;
    struct mr_kv_watch_events events;
    void *ctx;
    char *prefix_text;
    mr_str prefix;
};

/** Defaults; name is copied. */
void kv_conn_init(struct mr_kv *kv, const struct kv_store *store,
                  const struct mr_kv_options *options, const char *name);
void kv_conn_fini(struct mr_kv *kv);
/** Reports a state that is another one. */
void kv_conn_set_state(struct mr_kv *kv, enum mr_kv_state state, const struct mr_err *why);
void kv_watch_init(struct mr_kv_watch *w, struct mr_kv *kv, mr_str prefix,
                   const struct mr_kv_watch_events *events, void *ctx);
void kv_watch_fini(struct mr_kv_watch *w);

#endif
