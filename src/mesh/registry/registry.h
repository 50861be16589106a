/* A core's connection to the registry: its lease, the first reading, the watch, transactions and reads. On the kv's thread. It has no timer:
 * the driver calls registry_tick when registry_next is due. */
#ifndef MESH_REGISTRY_REGISTRY_H
#define MESH_REGISTRY_REGISTRY_H

#include "kv/kv.h"
#include "mesh/core/core.h"

struct registry;

struct registry_options {
    /** Of this instance; borrowed. Nothing is read before the registry has no record of the id with another address: one that is there
     *  belongs to an instance that lives, or lived a lease ago, unless is_gone says otherwise. One that comes later is an error in the
     *  log. */
    mr_str id, address;
    int64_t lease_s;           /* 0: 20 */
    int64_t retry_ns;          /* after a failed reading or lease; 0: 500 ms */
    uint32_t page;             /* keys of a page; 0: 5000 */
    int64_t (*now)(void *ctx); /* monotonic */
    void (*acted)(void *ctx);  /* the core may have actions */
    /** (may be NULL) The core has learnt that this key changed. Empty: it has read all of them again, any may have. */
    void (*changed)(void *ctx, mr_str key);
    /** (may be NULL) The instance at that address is certainly no more. */
    bool (*is_gone)(void *ctx, mr_str address);
    void *ctx;
};

struct registry *registry_new(struct mesh_core *core, const struct registry_options *options);
/** Calls of the kv that are under way are given up. The kv is freed after this. */
void registry_free(struct registry **r);
/** Begins. Borrows kv, and journal, a store of this instance alone for changes that are made while the registry is away; NULL: there is
 *  none. */
void registry_start(struct registry *r, struct mr_kv *kv, struct mr_kv *journal);
/** mr_kv_options.on_state. */
void registry_on_state(struct registry *r, enum mr_kv_state state);
/** The same of the journal. */
void registry_on_journal_state(struct registry *r, enum mr_kv_state state);
int64_t registry_next(const struct registry *r);
void registry_tick(struct registry *r, int64_t now);
/** Carries out MESH_ACT_TXN and MESH_ACT_GET. */
void registry_act(struct registry *r, const struct mesh_action *a);
/** The registry has been read once, and is known again when it is seen. */
bool registry_is_read(const struct registry *r);
/** Whether the watch may still have to bring what an answer of that revision has. */
bool registry_is_behind(const struct registry *r, int64_t revision);
/** Takes the records of such an answer, which has values, before the watch brings them. Nothing if it is not behind: what the core lacks
 *  then has been deleted since. */
void registry_learn(struct registry *r, int64_t revision, const struct mr_kv_result *page);
/** Gives the lease back, so that others see at once that this instance is gone. done may be NULL. */
void registry_leave(struct registry *r, void (*done)(void *ctx));

#endif
