/* A memory store that a loop steps: a timer is due when the store has something to do. The time is the clock's, not
 * that of the loop's iteration, which is old when calls are started between iterations and 0 before the first. */
#include "base/clock.h"
#include "net/loop.h"
#include "store.h"

struct on_loop {
    struct mr_kv_memory *memory;
    struct mr_loop *loop;
    struct mr_timer timer;
    struct kv_store store; /* the memory store's, but for its end */
    void (*free)(struct mr_kv *kv);
};

static void arm(struct on_loop *o);

static void tick(struct mr_timer *t)
{
    struct on_loop *o = MR_CONTAINER_OF(t, struct on_loop, timer);
    mr_kv_memory_step(o->memory, mr_now_ns());
    arm(o);
}

static void arm(struct on_loop *o)
{
    int64_t next_ns = mr_kv_memory_next_ns(o->memory);

    if (next_ns == INT64_MAX) {
        mr_timer_stop(&o->timer);
        return;
    }
    mr_timer_start(o->loop, &o->timer, MR_MAX(next_ns - mr_now_ns(), 0), 0, tick);
}

static void wake(void *ctx)
{
    struct on_loop *o = ctx;
    if (!o->memory->step) {
        arm(o);
    }
}

static int64_t clock_of(void *ctx)
{
    (void)ctx;
    return mr_now_ns();
}

static void on_loop_free(struct mr_kv *kv)
{
    struct on_loop *o = ((struct memory_conn *)kv)->memory->wake_ctx;

    mr_timer_stop(&o->timer);
    o->memory->wake = NULL;
    o->free(kv);
    mr_kv_memory_free(&o->memory);
    mr_free(o);
}

struct mr_kv *kv_memory_open_on(struct mr_loop *loop, const struct mr_kv_options *options)
{
    struct on_loop *o = MR_NEW(struct on_loop);

    o->loop = loop;
    o->memory = mr_kv_memory_new(&(struct mr_kv_memory_options){.now_ns = mr_now_ns()});
    o->memory->wake = wake;
    o->memory->clock = clock_of;
    o->memory->wake_ctx = o;
    struct mr_kv *kv = mr_kv_memory_open(o->memory, options);
    o->store = *kv->store;
    o->free = kv->store->free;
    o->store.free = on_loop_free;
    kv->store = &o->store;
    return kv;
}
