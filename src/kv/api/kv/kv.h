/* A registry: keys with values, ordered by key, that several processes share. The model is etcd's: each change has a
 * revision, changes of one transaction share it, and who watches a prefix sees the changes in the order of their
 * revisions.
 *
 * `struct mr_kv` is one connection to a registry. Which store there is at its other end (memory, a file of this
 * machine, an etcd cluster) is the choice of who opens it (kv/open.h, kv/memory.h); the semantics are the same. All
 * of it belongs to one thread: that of the loop it was opened on, or the one that steps the memory store.
 *
 * Calls are asynchronous. `done` is called exactly once, never from within the function that starts the call. While
 * there is no connection, calls wait for one, up to the time limit of options. A read is tried again while that
 * lasts; what changes something is sent once.
 *
 * Errors of all calls, beside their own: MR_E_DEADLINE, MR_E_UNAVAILABLE (a change may have been carried out all the
 * same: who has to know compares revisions), MR_E_CANCELLED, MR_E_FORBIDDEN (credentials, rights), MR_E_INVALID
 * (beyond the limits below), MR_E_EXHAUSTED (too many calls wait, or the store has no room), MR_E_TOO_LARGE, MR_E_IO
 * (the store's disk). */
#ifndef MR_KV_KV_H
#define MR_KV_KV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

#define MR_KV_KEY_MAX   4096          /* bytes of a key, 1 at least; any bytes */
#define MR_KV_VALUE_MAX (1024 * 1024) /* bytes of a value */
#define MR_KV_OPS_MAX   128        /* compares, and operations of each branch, of a transaction */
#define MR_KV_PAGE_MAX  10000      /* keys of a page */
#define MR_KV_TTL_MAX_S 9000000000 /* of a lease, etcd's limit; at least 1 */
#define MR_KV_CALLS_MAX 65536      /* calls of one connection under way */

struct mr_kv;
struct mr_kv_call; /* a call under way, valid until its `done` is called */
struct mr_kv_watch;

/** One key as stored. */
struct mr_kv_item {
    mr_str key;
    mr_bytes value;          /* empty: without one, or not asked for, or deleted */
    int64_t create_revision; /* of the put that made the key */
    int64_t mod_revision;    /* of its last change; what compares look at */
    int64_t version;         /* puts since it was made, 1 = one */
    int64_t lease;           /* that it lives as long as; 0 = none */
};

/** Result of one operation. */
struct mr_kv_result {
    const struct mr_kv_item *items; /* of a read, by key */
    size_t count;                   /* of a read: items; of a delete: keys deleted */
    bool more;                      /* of a read: the prefix has more keys than this page */
};

/** What a call was answered. All of it is valid until `done` returns. */
struct mr_kv_reply {
    int64_t revision; /* of the store at that time; of a change, the change's own */
    bool succeeded;   /* of a transaction: its compares held */
    /** One for each operation; of a call that is no transaction, one. */
    const struct mr_kv_result *results;
    size_t result_count;
    int64_t lease; /* of mr_kv_lease_grant and _keep */
    int64_t ttl_s; /* of the lease, from now */
};

/** rc: MR_OK, or an error, whose detail is in *err; reply NULL then. May start calls, cancel others, and stop
 *  watches; does not free the kv. */
typedef void(mr_kv_done_fn)(void *ctx, int rc, const struct mr_err *err,
                            const struct mr_kv_reply *reply);

enum mr_kv_read {
    MR_KV_LINEARIZABLE, /* sees every change that was answered before the call began, whoever made it */
    MR_KV_LOCAL         /* of the server at hand, which may be out of date: cheaper */
};

/** Reads one key, or the keys of a prefix in pages. Pages are no snapshot: each shows the keys as they are when it
 *  is read. Who wants a whole copy reads the pages and then watches from the revision of the first page + 1; an item
 *  that the watch brings is newer if its mod_revision is larger. */
struct mr_kv_range {
    mr_str key; /* the key, or the prefix; an empty prefix is all keys */
    bool is_prefix;
    mr_str after; /* of a prefix: keys greater than this one only; empty: from the first */
    /** Items of the page, up to MR_KV_PAGE_MAX, which 0 means; a page may have fewer, and `more` set. etcd has no limit of
     *  bytes: a page of more than 256 MiB is MR_E_TOO_LARGE. */
    uint32_t limit;
    bool keys_only; /* values are left out */
    enum mr_kv_read read;
};

enum mr_kv_op_kind { MR_KV_GET, MR_KV_PUT, MR_KV_DELETE };

/** An operation of a transaction. */
struct mr_kv_op {
    enum mr_kv_op_kind kind;
    mr_str key;     /* put: the key; get and delete: a key, or a prefix that is not empty */
    bool is_prefix; /* get and delete; a get of a prefix returns MR_KV_PAGE_MAX items at most */
    mr_bytes value; /* put */
    int64_t lease;  /* put: deleted when this lease ends; 0 = stays */
};

/** Holds if the key's last change has that revision; 0: there is no such key. */
struct mr_kv_compare {
    mr_str key;
    int64_t mod_revision;
};

/** If all compares hold, the operations of `then` are carried out in their order, otherwise those of `otherwise`, in
 *  either case at once: no other change lies between. A key is put or deleted once at most. */
struct mr_kv_txn {
    const struct mr_kv_compare *compares;
    size_t compare_count;
    const struct mr_kv_op *then;
    size_t then_count;
    const struct mr_kv_op *otherwise;
    size_t otherwise_count;
};

/** The calls. What their arguments point to is not needed any more when they return. */
struct mr_kv_call *mr_kv_range(struct mr_kv *kv, const struct mr_kv_range *range,
                               mr_kv_done_fn *done, void *ctx);
/** One key; the result has one item, or none. */
struct mr_kv_call *mr_kv_get(struct mr_kv *kv, mr_str key, enum mr_kv_read read,
                             mr_kv_done_fn *done, void *ctx);
/** Errors: MR_E_NOT_FOUND (no such lease). */
struct mr_kv_call *mr_kv_put(struct mr_kv *kv, mr_str key, mr_bytes value, int64_t lease,
                             mr_kv_done_fn *done, void *ctx);
/** A key, or all keys of a prefix that is not empty. None: no error, and no new revision. */
struct mr_kv_call *mr_kv_delete(struct mr_kv *kv, mr_str key, bool is_prefix, mr_kv_done_fn *done,
                                void *ctx);
/** Errors: MR_E_NOT_FOUND (no such lease), MR_E_INVALID (a key is changed twice, too many operations). */
struct mr_kv_call *mr_kv_txn(struct mr_kv *kv, const struct mr_kv_txn *txn, mr_kv_done_fn *done,
                             void *ctx);

/** A lease ends when it has not been kept alive for its time to live, and its keys are deleted with it, as one
 *  change. The store may round the time up (reply.ttl_s). Keeping it alive is the caller's: a third of the time is a
 *  good interval. */
struct mr_kv_call *mr_kv_lease_grant(struct mr_kv *kv, int64_t ttl_s, mr_kv_done_fn *done,
                                     void *ctx);
/** Errors: MR_E_NOT_FOUND (it has ended). */
struct mr_kv_call *mr_kv_lease_keep(struct mr_kv *kv, int64_t lease, mr_kv_done_fn *done,
                                    void *ctx);
/** Ends it now. Errors: MR_E_NOT_FOUND (it has ended). */
struct mr_kv_call *mr_kv_lease_revoke(struct mr_kv *kv, int64_t lease, mr_kv_done_fn *done,
                                      void *ctx);

/** Gives the answer up: `done` gets MR_E_CANCELLED, after this has returned. What was sent may be carried out. */
void mr_kv_cancel(struct mr_kv_call *call);

struct mr_kv_change {
    bool is_delete;         /* item has key and mod_revision only */
    struct mr_kv_item item; /* as it is after the change */
};

struct mr_kv_watch_events {
    /** Changes in the order of their revisions, those of one revision together; every change up to `revision` has
     *  been given by now. Without changes it is a report of progress: the next watch may begin after that revision.
     *  Valid until it returns. May do what `done` may. */
    void (*on_changes)(void *ctx, int64_t revision, const struct mr_kv_change *changes,
                       size_t count);
    /** The watch has ended, and is gone when this returns, because changes cannot be given in full: the store has
     *  dropped them (compaction), it has lost its data, or it refuses the watch (why->status is MR_E_FORBIDDEN). The
     *  caller reads the keys again and watches from there. Called at most once. */
    void (*on_resync)(void *ctx, const struct mr_err *why);
};

/** Watches a prefix (empty: all keys) for changes with revisions of `from` and later; 0: of those after this call. Lost
 *  connections are made again, and the watch goes on where it was. Never calls back from within. Returns NULL if the
 *  prefix is too long or `from` negative. */
struct mr_kv_watch *mr_kv_watch(struct mr_kv *kv, mr_str prefix, int64_t from,
                                const struct mr_kv_watch_events *events, void *ctx);
/** No events after that. Not after on_resync. */
void mr_kv_watch_stop(struct mr_kv_watch **watch);

enum mr_kv_state {
    MR_KV_CONNECTING, /* at first */
    MR_KV_READY,
    MR_KV_LOST /* was ready, or cannot be reached; connects again by itself */
};

/** Of a connection. All-zero means defaults. */
struct mr_kv_options {
    /** (may be NULL) The state has changed; `why` (LOST only, otherwise NULL) says the reason. With a store of other
     *  processes LOST comes once, READY after it; attempts in between are not reported. May do what `done` may. */
    void (*on_state)(void *ctx, enum mr_kv_state state, const struct mr_err *why);
    void *ctx;
    int64_t timeout_ns; /* of each call, waiting for a connection included; default 5 s */
    /** Of etcd: all keys are below it, after the prefix that the text or its file has; empty: none. */
    mr_str prefix;
};
enum mr_kv_state mr_kv_state(const struct mr_kv *kv);
/** What it is connected to, for logs and reports, without secrets: "etcd://10.0.0.1:2379/prefix". Valid as long as
 *  kv. */
const char *mr_kv_name(const struct mr_kv *kv);

/** Fails what is pending with MR_E_CANCELLED, now; watches end without an event. Leases live on. The loop has to run
 *  for a while before it is freed, or mr_loop_free does what is left. */
void mr_kv_free(struct mr_kv **kv);

#endif
