/* What a registry of many models costs a peer of a mesh: registers them by one peer, lets a second one read them all, and looks them
 * up there. Both peers and the store are in this process, so that its memory is not that of one of them: the figures of the view are counted.
 *
 *   bench_mesh_registry REGISTRY MODELS      REGISTRY: an empty one, file:PATH or etcd://…
 *
 * Prints: registrations a second (the second half of them), the time from a peer's start until it has read everything, the view's bytes for
 * each model, and CPU nanoseconds of a look-up. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/vec.h"
#include "kv/open.h"
#include "mesh/core/core.h"
#include "mesh/registry/registry.h"
#include "mesh/view/view.h"
#include "net/loop.h"

#define IN_FLIGHT 512u
#define LOOK_UPS  2000000u

struct peer {
    struct mr_loop *loop;
    struct mr_kv *kv;
    struct mesh_core *core;
    struct registry *registry;
    struct mr_timer tick;
    unsigned models;     /* to be registered by it; 0: it only reads */
    unsigned sent, done; /* registrations */
    unsigned failed;
    int64_t half_ns, end_ns;
    bool is_acting;
};

static int64_t now(void *ctx)
{
    (void)ctx;
    return mr_now_ns();
}

static void id_of(char out[40], unsigned model)
{
    snprintf(out, 40, "isvc-%08u__predictor-1a2b3c4d5e", model);
}

static void send_registrations(struct peer *p)
{
    char id[40], path[64];

    while (p->sent < p->models && p->sent - p->done < IN_FLIGHT) {
        id_of(id, p->sent);
        snprintf(path, sizeof path, "models/sklearn/%u/model.joblib", p->sent);
        struct mesh_call call = {.kind = MESH_CALL_REGISTER,
                                 .id = mr_str_c(id),
                                 .def = {.type = MR_STR("rt:mlserver"), .path = mr_str_c(path)}};
        p->sent++;
        mesh_core_call(p->core, &call, mr_now_ns());
    }
}

static void on_answer(struct peer *p, const struct mesh_action *a)
{
    p->failed += a->status < 0;
    p->done++;
    if (p->done == p->models / 2) {
        p->half_ns = mr_now_ns();
    } else if (p->done == p->models) {
        p->end_ns = mr_now_ns();
    }
}

static void on_tick(struct mr_timer *t);

static void acted(void *ctx)
{
    struct peer *p = ctx;
    struct mesh_action a;

    if (p->is_acting) {
        return;
    }
    p->is_acting = true;
    for (bool more = true; more;) {
        more = false;
        while (mesh_core_take(p->core, &a)) {
            if (a.kind == MESH_ACT_TXN || a.kind == MESH_ACT_GET) {
                registry_act(p->registry, &a);
            } else if (a.kind == MESH_ACT_ANSWER) {
                on_answer(p, &a);
            }
        }
        if (registry_is_read(p->registry) && p->sent < p->models && p->sent - p->done < IN_FLIGHT) {
            send_registrations(p);
            more = true;
        }
    }
    p->is_acting = false;
    int64_t next = MR_MIN(mesh_core_next(p->core), registry_next(p->registry));
    if (next != INT64_MAX) {
        mr_timer_start(p->loop, &p->tick, MR_MAX(next - mr_now_ns(), 0), 0, on_tick);
    }
}

static void on_tick(struct mr_timer *t)
{
    struct peer *p = MR_CONTAINER_OF(t, struct peer, tick);

    registry_tick(p->registry, mr_now_ns());
    mesh_core_tick(p->core, mr_now_ns());
    acted(p);
}

static void on_state(void *ctx, enum mr_kv_state state, const struct mr_err *why)
{
    struct peer *p = ctx;

    (void)why;
    registry_on_state(p->registry, state);
}

static void start(struct peer *p, struct mr_loop *loop, const char *id, const char *text)
{
    struct mesh_core_options o = {.id = mr_str_c(id),
                                  .self = {.address = MR_STR("127.0.0.1:1"),
                                           .capacity_bytes = UINT64_C(1) << 40,
                                           .loaders = 4}};
    struct mr_err err = {0};

    p->loop = loop;
    if (mesh_core_new(&p->core, &o, mr_now_ns(), &err) == MR_OK) {
        p->registry =
            registry_new(p->core, &(struct registry_options){.now = now, .acted = acted, .ctx = p});
    }
    if (!p->registry ||
        mr_kv_open(&p->kv, loop, mr_str_c(text),
                   &(struct mr_kv_options){.on_state = on_state, .ctx = p}, &err) < 0) {
        fprintf(stderr, "bench_mesh_registry: %s\n", err.msg);
        exit(1);
    }
    registry_start(p->registry, p->kv, NULL);
    acted(p);
}

static void end(struct peer *p)
{
    mr_timer_stop(&p->tick);
    registry_free(&p->registry);
    mr_kv_free(&p->kv);
    mesh_core_free(&p->core);
}

static int64_t cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * MR_NS_PER_S + t.tv_nsec;
}

/* CPU nanoseconds of one, in random order. */
static double look_up(const struct mesh_view *v, unsigned models)
{
    struct mr_rng rng;
    unsigned found = 0;
    char id[40];
    int64_t names = 0, begin = cpu_ns();

    mr_rng_seed(&rng, 1);
    for (unsigned i = 0; i < LOOK_UPS; i++) { /* the names alone */
        id_of(id, (unsigned)(mr_rng_u64(&rng) % models));
        found += id[0] == 'i';
    }
    names = cpu_ns() - begin;
    begin = cpu_ns();
    for (unsigned i = 0; i < LOOK_UPS; i++) {
        id_of(id, (unsigned)(mr_rng_u64(&rng) % models));
        found += view_find(v, mr_str_c(id)) != NULL;
    }
    if (found != 2 * LOOK_UPS) {
        fprintf(stderr, "bench_mesh_registry: %u of %u models are not there\n",
                2 * LOOK_UPS - found, LOOK_UPS);
        exit(1);
    }
    return (double)(cpu_ns() - begin - names) / LOOK_UPS;
}

int main(int argc, char **argv)
{
    unsigned models = argc == 3 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
    struct peer writer = {.models = models}, reader = {0};
    struct mr_loop *loop = NULL;
    struct mr_err err = {0};

    if (models < 2 || mr_loop_new(&loop, NULL, &err) < 0) {
        fprintf(stderr, "usage: bench_mesh_registry REGISTRY MODELS (2 at least)\n");
        return 2;
    }
    start(&writer, loop, "writer", argv[1]);
    while (writer.done < models) {
        mr_loop_step(loop, NULL);
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("registrations  %.0f/s (%u failed)\n",
           (models - models / 2) / ((double)(writer.end_ns - writer.half_ns) / 1e9), writer.failed);

    int64_t begin = mr_now_ns();
    start(&reader, loop, "reader", argv[1]);
    while (!registry_is_read(reader.registry)) {
        mr_loop_step(loop, NULL);
    }
    const struct mesh_view *v = mesh_core_view(reader.core);
    printf("read           %.2f s (%zu models)\n", (double)(mr_now_ns() - begin) / 1e9, v->count);
    printf("view           %.0f bytes a model, %.1f MB\n", (double)v->bytes / models,
           (double)v->bytes / 1e6);
    printf("look-up        %.0f ns\n", look_up(v, models));
    end(&reader);
    end(&writer);
    mr_loop_free(&loop);
    return 0;
}
