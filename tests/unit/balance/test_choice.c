/* One call at a time to the best host: several independent clients with a steady load, in simulated time. The
 * 99th percentile of the time from a request's arrival to its answer, against that of the usual choice, which is
 * the less loaded of two hosts drawn at random. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "balance/balance.h"
#include "base/clock.h"
#include "base/mem.h"
#include "events.h"

#define REQUESTS 40000
#define SERVERS  16
#define CLIENTS  4
#define SLOTS    4
#define SERVICE  MS(10)
#define MS(n)    ((int64_t)(n)*MR_NS_PER_MS)

enum kind { ARRIVES, SERVED, REDRAW };

struct request {
    int64_t at_ns;
    uint64_t ticket;
    uint32_t client, server;
};

struct queue {
    MR_VEC(uint32_t) at;
    size_t head;
};

struct world {
    uint32_t servers;
    bool is_route; /* else two at random */
    double speed[SERVERS];
    /* a random quarter of the servers runs at 0.4, drawn again every half second */
    bool antagonist;
    double load;
    /* running */
    struct mr_rng rng;
    struct events events;
    int64_t now;
    uint32_t busy[SERVERS];
    struct queue queue[SERVERS];
    struct mr_balance *balance[CLIENTS];
    uint32_t host[CLIENTS][SERVERS];
    uint32_t in_flight[CLIENTS][SERVERS];
    struct queue waiting[CLIENTS]; /* no host had room */
    struct request request[REQUESTS];
    float took_ms[REQUESTS];
    uint32_t answered;
};

static void serve(struct world *w, uint32_t server)
{
    struct queue *q = &w->queue[server];

    while (w->busy[server] < SLOTS && q->head < q->at.len) {
        double ns = (double)SERVICE * log_normal(&w->rng, 0.5) / w->speed[server];
        w->busy[server]++;
        events_add(&w->events, (struct event){.at_ns = w->now + (int64_t)ns,
                                              .kind = SERVED,
                                              .index = q->at.at[q->head++]});
    }
}

static bool choose(struct world *w, struct request *q)
{
    const struct mr_balance_ask ask = {.rows = 1};
    struct mr_balance_call call;

    if (!w->is_route) {
        uint32_t a = (uint32_t)(mr_rng_u64(&w->rng) % w->servers);
        uint32_t b = (a + 1 + (uint32_t)(mr_rng_u64(&w->rng) % (w->servers - 1))) % w->servers;
        const uint32_t *n = w->in_flight[q->client];
        q->server = n[a] <= n[b] ? a : b;
        return true;
    }
    if (!mr_balance_pick(w->balance[q->client], w->now, &ask, &call)) {
        return false;
    }
    q->ticket = call.ticket;
    q->server = 0;
    while (w->host[q->client][q->server] != call.host) {
        q->server++;
    }
    return true;
}

static void start_waiting(struct world *w, uint32_t client)
{
    struct queue *q = &w->waiting[client];

    while (q->head < q->at.len && choose(w, &w->request[q->at.at[q->head]])) {
        uint32_t index = q->at.at[q->head++], server = w->request[index].server;
        w->in_flight[client][server]++;
        MR_VEC_PUSH(&w->queue[server].at, index);
        serve(w, server);
    }
}

static void happens(struct world *w, const struct event *e)
{
    struct request *q = &w->request[e->index];

    switch ((enum kind)e->kind) {
    case ARRIVES:
        MR_VEC_PUSH(&w->waiting[q->client].at, e->index);
        start_waiting(w, q->client);
        break;
    case SERVED:
        w->busy[q->server]--;
        w->in_flight[q->client][q->server]--;
        w->took_ms[w->answered++] = (float)(w->now - q->at_ns) / (float)MR_NS_PER_MS;
        mr_balance_done(w->balance[q->client], w->now, q->ticket, MR_BALANCE_OK, 0);
        serve(w, q->server);
        start_waiting(w, q->client);
        break;
    case REDRAW:
        for (uint32_t i = 0; i < w->servers; i++) {
            w->speed[i] = 1;
        }
        for (uint32_t i = 0; i < w->servers / 4; i++) {
            w->speed[mr_rng_u64(&w->rng) % w->servers] = 0.4;
        }
        events_add(&w->events, (struct event){.at_ns = w->now + MS(500), .kind = REDRAW});
        break;
    }
}

static int order(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

static void world_open(struct world *w, uint64_t seed)
{
    double capacity = 0, t = 0;

    mr_rng_seed(&w->rng, seed);
    for (uint32_t i = 0; i < w->servers; i++) {
        capacity += w->speed[i] * SLOTS / (double)SERVICE;
    }
    if (w->antagonist) {
        capacity *= 1 - 0.6 / 4;
        events_add(&w->events, (struct event){.kind = REDRAW});
    }
    for (uint32_t c = 0; c < CLIENTS; c++) {
        struct mr_balance_options o = {.seed = seed + c};
        w->balance[c] = mr_balance_new(&o, 0);
        for (uint32_t i = 0; i < w->servers; i++) {
            w->host[c][i] = mr_balance_add(w->balance[c], 0);
        }
    }
    for (uint32_t i = 0; i < REQUESTS; i++) {
        t -= log(1 - mr_rng_unit(&w->rng)) / (capacity * w->load);
        w->request[i].at_ns = (int64_t)t;
        w->request[i].client = i % CLIENTS;
        events_add(&w->events, (struct event){.at_ns = (int64_t)t, .kind = ARRIVES, .index = i});
    }
}

/* The 99th percentile in ms. */
static double run(const struct world *like, bool is_route, uint64_t seed)
{
    struct world *w = MR_NEW(struct world);
    double p99;

    *w = *like;
    w->is_route = is_route;
    world_open(w, seed);
    while (w->answered < REQUESTS) {
        struct event e = events_next(&w->events);
        w->now = e.at_ns;
        happens(w, &e);
    }
    qsort(w->took_ms, REQUESTS, sizeof w->took_ms[0], order);
    p99 = (double)w->took_ms[REQUESTS * 99 / 100];
    for (uint32_t i = 0; i < w->servers; i++) {
        MR_VEC_FINI(&w->queue[i].at);
    }
    for (uint32_t c = 0; c < CLIENTS; c++) {
        MR_VEC_FINI(&w->waiting[c].at);
        mr_balance_free(&w->balance[c]);
    }
    MR_VEC_FINI(&w->events.heap);
    mr_free(w);
    return p99;
}

/* In terms of two at random, at most `most`. */
static void check(const char *name, const struct world *w, double most)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        double usual = run(w, false, seed), ours = run(w, true, seed);
        print_message("%-28s p99 %5.1f ms, two at random %6.1f ms, ratio %.2f\n", name, ours, usual,
                      ours / usual);
        assert_true(ours <= most * usual);
    }
}

static struct world *world_new(uint32_t servers, double load)
{
    struct world *w = MR_NEW(struct world);

    w->servers = servers;
    w->load = load;
    for (uint32_t i = 0; i < servers; i++) {
        w->speed[i] = 1;
    }
    return w;
}

static void equal_servers(void **state)
{
    struct world *w = world_new(4, 0.7);
    (void)state;

    check("4 equal, load 0.7", w, 1.05);
    mr_free(w);
}

static void one_slow_server(void **state)
{
    struct world *w = world_new(4, 0.7);
    (void)state;

    w->speed[0] = 0.25;
    check("4, one 4 times slower, 0.7", w, 0.7);
    mr_free(w);
}

static void two_very_slow_servers(void **state)
{
    struct world *w = world_new(16, 0.75);
    (void)state;

    w->speed[0] = w->speed[1] = 1.0 / 16;
    check("16, two 16 times slower, 0.75", w, 0.7);
    mr_free(w);
}

static void speeds_that_change(void **state)
{
    struct world *w = world_new(4, 0.7);
    (void)state;

    w->antagonist = true;
    check("4, a quarter at 0.4, 0.7", w, 0.85);
    mr_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_servers),
        cmocka_unit_test(one_slow_server),
        cmocka_unit_test(two_very_slow_servers),
        cmocka_unit_test(speeds_that_change),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
