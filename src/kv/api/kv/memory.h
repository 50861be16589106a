/* A registry in the memory of one process, for tests, simulations, and servers that share nothing. It has no clock
 * and no thread of its own: who steps it says what time it is. Connections to it can be slow, and can be cut.
 *
 * One thread for the store and all connections to it. */
#ifndef MR_KV_MEMORY_H
#define MR_KV_MEMORY_H

#include "kv/kv.h"

struct mr_kv_memory;

/** All-zero means defaults. */
struct mr_kv_memory_options {
    int64_t now_ns; /* the time at first */
    /** Changes that are kept for watches; default 65536; older ones are compacted. */
    size_t history_events;
    size_t history_bytes; /* what they may take; default 32 MiB */
};

struct mr_kv_memory *mr_kv_memory_new(const struct mr_kv_memory_options *options);
/** Its connections must have been freed. */
void mr_kv_memory_free(struct mr_kv_memory **m);
/** Another connection. Its first step reports MR_KV_READY. */
struct mr_kv *mr_kv_memory_open(struct mr_kv_memory *m, const struct mr_kv_options *options);

/** When the next step has something to do: a time, now_ns or earlier if it is due, INT64_MAX for never. */
int64_t mr_kv_memory_next_ns(const struct mr_kv_memory *m);
/** It is `now_ns`, which never goes back: ends leases, answers calls, and calls back what is due, in the order in
 *  which it became due. What callbacks start is due at the next step at the earliest. Not from within a callback.
 *  Returns how many callbacks it made. */
size_t mr_kv_memory_step(struct mr_kv_memory *m, int64_t now_ns);

/** Faults of one connection after this call: each request, answer and event takes that long on its way. */
void mr_kv_memory_set_delay(struct mr_kv *kv, int64_t delay_ns);
/** No request arrives, and no answer; what is on its way is lost (requests are not carried out, answers are).
 *  Reported as MR_KV_LOST; false: connects again. */
void mr_kv_memory_cut(struct mr_kv *kv, bool is_cut);
/** The store drops the history up to that revision. */
void mr_kv_memory_compact(struct mr_kv_memory *m, int64_t revision);
/** The store loses all keys and leases, and begins at revision 1 again, as an etcd whose disk was replaced. */
void mr_kv_memory_erase(struct mr_kv_memory *m);

#endif
