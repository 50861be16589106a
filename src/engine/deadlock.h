/* Calls of models that wait for each other for ever. */
#ifndef MR_ENGINE_DEADLOCK_H
#define MR_ENGINE_DEADLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#define DEADLOCK_GRAPH 0 /* caller: an execution that takes no instance, such as a graph's */
/** A call whose last answer has not come. The caller's memory, from deadlock_enter to deadlock_leave. */
struct deadlock_call {
    uint64_t caller, target;     /* models: mr_hash of their names, or DEADLOCK_GRAPH */
    uint32_t caller_instances;   /* executions of the calling model that run at once */
    const void *execution;       /* that makes the call */
    const void *runs, *identity; /* the call that this execution runs, NULL: a client's; this one */
    /* ---- private ---- */
    LIST_ENTRY(deadlock_call) link;
    bool is_listed, moves;
};
LIST_HEAD(deadlock_calls, deadlock_call);
struct deadlock {
    pthread_mutex_t lock;
    struct deadlock_calls calls;
};

void deadlock_init(struct deadlock *d);
void deadlock_fini(struct deadlock *d);
/** Adds a call, unless it would wait for ever: false. Thread: any. */
bool deadlock_enter(struct deadlock *d, struct deadlock_call *c);
/** The call has ended. Without effect if it was not entered. Thread: any. */
void deadlock_leave(struct deadlock *d, struct deadlock_call *c);

#endif
