/* Models that the runtime has loaded, as network threads see them: a count of the requests that run and a bit that closes it, in one word, so
 * that a request either begins before the unload, which then waits for it, or sees that it must ask the mesh. */
#include "live.h"

#define CLOSED 0x80000000u /* of `state`; the rest counts requests */

struct mr_mesh_copy {
    _Atomic uint32_t refs;
    _Atomic uint32_t state;
    _Atomic uint64_t uses;
    struct mr_mesh *mesh;
    struct mr_mail mail; /* the last request has ended */
    void (*idle)(void *ctx);
    void *ctx;
};

struct mr_mesh_copy *live_copy_new(struct mr_mesh *m)
{
    struct mr_mesh_copy *c = MR_NEW(struct mr_mesh_copy);

    c->refs = 1;
    c->mesh = m;
    return c;
}

struct mr_mesh_copy *mr_mesh_copy_ref(struct mr_mesh_copy *c)
{
    if (c) {
        atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
    }
    return c;
}

void mr_mesh_copy_unref(struct mr_mesh_copy **io_c)
{
    struct mr_mesh_copy *c = *io_c;

    *io_c = NULL;
    /* acq_rel: what others did with it happened before it is freed */
    if (c && atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) == 1) {
        mr_free(c);
    }
}

bool mr_mesh_copy_use(struct mr_mesh_copy *c)
{
    uint32_t now = atomic_load_explicit(&c->state, memory_order_relaxed);

    /* acquire: pairs with the release of the close before */
    while (!(now & CLOSED)) {
        if (atomic_compare_exchange_weak_explicit(&c->state, &now, now + 1, memory_order_acquire,
                                                  memory_order_relaxed)) {
            atomic_fetch_add_explicit(&c->uses, 1, memory_order_relaxed);
            return true;
        }
    }
    return false;
}

static void run_idle(struct mr_mail *mail)
{
    struct mr_mesh_copy *c = MR_CONTAINER_OF(mail, struct mr_mesh_copy, mail);

    c->idle(c->ctx);
    mr_mesh_copy_unref(&c);
}

void mr_mesh_copy_unuse(struct mr_mesh_copy *c)
{
    /* acq_rel: the last one sees `idle`, which was set before the close */
    if (atomic_fetch_sub_explicit(&c->state, 1, memory_order_acq_rel) == (CLOSED | 1) && c->idle) {
        c->mail.run = run_idle;
        mr_loop_post(c->mesh->loop, &c->mail);
    }
}

bool live_copy_close(struct mr_mesh_copy *c, void (*idle)(void *ctx), void *ctx)
{
    c->idle = idle;
    c->ctx = ctx;
    mr_mesh_copy_ref(c); /* of the mail */
    bool is_idle = atomic_fetch_or_explicit(&c->state, CLOSED, memory_order_acq_rel) == 0;
    if (is_idle || !idle) {
        mr_mesh_copy_unref(&(struct mr_mesh_copy *){c});
    }
    return is_idle;
}

uint64_t live_copy_uses(const struct mr_mesh_copy *c, uint32_t *out_running)
{
    *out_running = atomic_load_explicit(&c->state, memory_order_relaxed) & ~CLOSED;
    return atomic_load_explicit(&c->uses, memory_order_relaxed);
}
