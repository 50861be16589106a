/* Nodes of graphs that run for a call. A graph has no instances that its callers could wait for, but its nodes' models
 * have: each such request counts as a call by the graph's execution (deadlock.h), so that a model which asks a graph
 * that asks the model again is refused when it would wait for itself, and not when a free instance answers. The
 * request gets a chain of its own, whose address is its identity.
 *
 * It ends where the answer is known, before its caller learns of it: until then the caller has not gone on, and the call
 * would look like one that waits. */
#include "engine_priv.h"

struct engine_part {
    struct mr_call_chain chain;
    struct deadlock_call waits;
    struct mr_engine *engine;
    void (*on_done)(struct mr_infer *r);
};

void engine_part_end(struct mr_infer *r)
{
    struct engine_part *p = r->part;

    if (p) {
        r->part = NULL;
        r->on_done = p->on_done;
        deadlock_leave(&p->engine->deadlock, &p->waits);
    }
}

static void part_done(struct mr_infer *r)
{
    engine_part_end(r);
    r->on_done(r);
}

int engine_part_begin(struct mr_engine *e, struct mr_infer *r, mr_str model)
{
    struct engine_part *p = MR_ARENA_NEW(r->arena, struct engine_part);

    if (!p) {
        return MR_ARENA_FAIL(&r->err);
    }
    *p = (struct engine_part){.chain = *r->chain, .engine = e, .on_done = r->on_done};
    p->waits = (struct deadlock_call){.caller = DEADLOCK_GRAPH,
                                      .target = mr_hash(model),
                                      .execution = p,
                                      .runs = r->chain,
                                      .identity = &p->chain};
    if (!deadlock_enter(&e->deadlock, &p->waits)) {
        return MR_FAIL(&r->err, MR_E_INVALID,
                       "model '%.*s' would wait for itself: all its instances wait for calls that "
                       "need one of them",
                       MR_STR_ARG(model));
    }
    r->chain = &p->chain;
    r->part = p;
    r->on_done = part_done;
    return MR_OK;
}
