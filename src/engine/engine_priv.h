/* What the files of this module share. */
#ifndef MR_ENGINE_PRIV_H
#define MR_ENGINE_PRIV_H

#include <pthread.h>
#include <sys/queue.h>

#include "deadlock.h"
#include "engine/engine.h"
#include "op/op.h"
#include "sentinel/sentinel.h"

LIST_HEAD(engine_waits, mr_engine_wait);

struct mr_shadow;

/** The thread that starts the jobs of idle shadows: a workflow computes its operators where it is started. It lives from the
 *  first job to the end of the engine. */
struct engine_shadows {
    pthread_mutex_t mutex; /* guards what follows; taken within that of a shadow */
    pthread_cond_t change;
    STAILQ_HEAD(, mr_shadow) ready;
    pthread_t thread;
    bool has_thread;
    bool is_ending;
};

struct mr_engine {
    struct mr_engine_options options;
    struct mr_models *models;
    struct mr_ops *ops;
    struct mr_warmup_budget start_warmup;
    struct mr_worker_caller caller;
    struct deadlock deadlock;
    struct mr_reply_loop no_loop; /* stands for the reply loop of requests without one */
    struct engine_shadows shadows;

    /* Guards what is below, mr_engine_wait, mr_resolve.wait and mr_infer.resolving. Held for a few stores. */
    pthread_mutex_t mutex;
    struct engine_waits waits; /* that have a request */
    uint32_t wait_count;
    bool is_draining;
};

/* Answers all waits and refuses later ones. */
void resolve_drain(struct mr_engine *e);
/* As mr_engine_resolve_cancel, holding the mutex. */
bool resolve_detach(struct mr_engine *e, struct mr_resolve *q);

/* part.c: begins a request that is a node's (mr_infer.is_part) on behalf of a call. Errors: MR_E_INVALID (it would wait for
 * ever), MR_E_EXHAUSTED. */
int engine_part_begin(struct mr_engine *e, struct mr_infer *r, mr_str model);
/* It has ended or was refused. Without effect on others, and when it was called before. */
void engine_part_end(struct mr_infer *r);

/* shadow.c */
void engine_shadows_begin(struct engine_shadows *all);
/* Waits for what the thread has. */
void engine_shadows_end(struct engine_shadows *all);

/* calls.c: runs what models in worker processes ask other models. */
struct mr_worker_caller engine_caller(struct mr_engine *e);
/* control.c: answers a control request, perhaps later. */
void engine_control(struct mr_engine *e, struct mr_worker_call *c);
/* feed.c: whether the call asks for the next message of a stream; the others are for those that do. */
bool engine_is_feed(const struct mr_worker_call *c);
void engine_feed_start(struct mr_worker_call *c);
/* Thread: the watching one, as `later`. */
void engine_feed_answer(struct mr_worker_call *c);
void engine_feed_cancel(struct mr_worker_call *c);

#endif
