/* What the policy achieves, in simulated time: total time and attempts per row against the best possible. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim.h"

#define ROWS    30000
#define SLOTS   8
#define SERVICE 0.4

static struct sim *hosts_new(uint32_t n)
{
    struct sim *s = MR_NEW(struct sim);

    s->rows = ROWS;
    s->host_count = n;
    for (uint32_t i = 0; i < n; i++) {
        s->hosts[i].slots = SLOTS;
        s->hosts[i].service_s = SERVICE;
    }
    return s;
}

static void fault(struct sim_host *h, enum sim_fault f, double share)
{
    h->fault = f;
    h->fault_share = share;
}

/* Seconds that `rows` take with that many slots. */
static double at_slots(double rows, double slots)
{
    return rows * SERVICE / slots;
}

static struct sim *all_well(double *out_best)
{
    *out_best = at_slots(ROWS, 32);
    return hosts_new(4);
}

static struct sim *third_fast(double *out_best)
{
    struct sim *s = hosts_new(4);

    fault(&s->hosts[0], SIM_FAILS_FAST, 1.0 / 3);
    *out_best = at_slots(ROWS, 32); /* a fast error costs the host nothing */
    return s;
}

static struct sim *third_slow(double *out_best)
{
    struct sim *s = hosts_new(4);

    fault(&s->hosts[0], SIM_FAILS_SLOWLY, 1.0 / 3);
    *out_best = at_slots(ROWS, 24 + 8 * 2.0 / 3);
    return s;
}

static struct sim *two_third_fast(double *out_best)
{
    struct sim *s = third_fast(out_best);

    fault(&s->hosts[1], SIM_FAILS_FAST, 1.0 / 3);
    return s;
}

static struct sim *dead(double *out_best)
{
    struct sim *s = hosts_new(4);

    fault(&s->hosts[0], SIM_FAILS_FAST, 1);
    *out_best = at_slots(ROWS, 24);
    return s;
}

static struct sim *refusing(double *out_best)
{
    struct sim *s = dead(out_best);

    fault(&s->hosts[0], SIM_REFUSES, 1);
    return s;
}

#define SLOW_FROM 30.0
static struct sim *slows(double *out_best)
{
    struct sim *s = hosts_new(4);

    s->hosts[0].slow_factor = 10;
    s->hosts[0].slow_from_s = SLOW_FROM;
    *out_best = SLOW_FROM + at_slots(ROWS - SLOW_FROM * 32 / SERVICE, 24.8);
    return s;
}

static struct sim *unlike(double *out_best)
{
    static const uint32_t slots[] = {2, 8, 32, 64};
    struct sim *s = hosts_new(4);

    for (uint32_t i = 0; i < 4; i++) {
        s->hosts[i].slots = slots[i];
    }
    *out_best = at_slots(ROWS, 106);
    return s;
}

static struct sim *hung(double *out_best)
{
    struct sim *s = hosts_new(3);

    fault(&s->hosts[0], SIM_HANGS, 1);
    *out_best = at_slots(ROWS, 16);
    return s;
}

static struct sim *hangs_in_mid_run(double *out_best)
{
    struct sim *s = hosts_new(3);

    fault(&s->hosts[0], SIM_HANGS, 1);
    s->hosts[0].fault_from_s = 100;
    s->hosts[0].fault_to_s = 1e9;
    *out_best = 100 + at_slots(ROWS - 100 * 24 / SERVICE, 16);
    return s;
}

static struct sim *come_and_go(double *out_best)
{
    struct sim *s = hosts_new(6);

    s->hosts[0].leaves_s = 100;
    s->hosts[1].leaves_s = 200;
    s->hosts[4].joins_s = 100;
    s->hosts[5].joins_s = 150;
    /* 32 slots, 40 from 150, 32 from 200 */
    *out_best = at_slots(ROWS - 50 * 8 / SERVICE, 32);
    return s;
}

static struct sim *many(double *out_best)
{
    struct sim *s = hosts_new(200);

    s->rows = 8 * ROWS;
    *out_best = at_slots(8 * ROWS, 1600);
    return s;
}

struct scenario {
    const char *name;
    struct sim *(*make)(double *out_best);
    double attempts; /* per row, at most */
    uint64_t seeds;
};

static const struct scenario scenarios[] = {
    {"all well", all_well, 1.01, 3},
    {"1 of 4: a third fails fast", third_fast, 1.16, 3},
    {"1 of 4: a third fails slowly", third_slow, 1.16, 3},
    {"2 of 4: a third fails fast", two_third_fast, 1.30, 3},
    {"1 of 4 dead, fails in 5 ms", dead, 1.05, 3},
    {"1 of 4 refuses connections", refusing, 1.05, 3},
    {"1 of 4 becomes 10 times slower", slows, 1.05, 3},
    {"slots 2, 8, 32, 64", unlike, 1.01, 3},
    {"1 of 3 hung", hung, 1.05, 3},
    {"1 of 3 hangs in mid-run", hangs_in_mid_run, 1.05, 3},
    {"hosts come and go", come_and_go, 1.01, 3},
    {"200 hosts", many, 1.01, 1},
};
#define SCENARIOS (sizeof scenarios / sizeof scenarios[0])

/* Prints the worst of seeds 1 ... n. */
static int check(const struct scenario *sc, double noise, uint64_t seeds, double most)
{
    double time = 0, attempts = 0, best = 0;
    bool is_done = true, ok;

    for (uint64_t seed = 1; seed <= seeds; seed++) {
        struct sim *s = sc->make(&best);
        s->noise = noise;
        s->seed = seed;
        is_done = sim_run(s) && is_done;
        time = fmax(time, s->seconds / best);
        attempts = fmax(attempts, (double)s->attempts / s->rows);
        sim_free(&s);
    }
    ok = is_done && time <= most && attempts <= sc->attempts;
    print_message(
        "%-30s times +-%2.0f %%: best %5.1f s, took %.3f of it, %.4f attempts per row%s\n",
        sc->name, noise * 100, best, time, attempts, ok ? "" : "  <- FAILED");
    return ok ? 0 : 1;
}

static void within_5_percent(void **state)
{
    int failed = 0;

    (void)state;
    for (size_t i = 0; i < SCENARIOS; i++) {
        failed += check(&scenarios[i], 0.2, scenarios[i].seeds, 1.05);
    }
    assert_int_equal(failed, 0);
}

/* Times that vary more make congestion harder to see. */
static void within_30_percent_where_times_vary_by_a_half(void **state)
{
    int failed = 0;

    (void)state;
    for (size_t i = 0; i < SCENARIOS; i++) {
        failed += check(&scenarios[i], 0.5, 1, 1.3);
    }
    assert_int_equal(failed, 0);
}

/* Seconds for 6,000 rows on 4 hosts, if they answer 503 from second 20 to second `until`. */
static double outage(uint64_t seed, double until, int64_t retry_after_ns, double *out_attempts)
{
    struct sim *s = hosts_new(4);
    double seconds;

    s->rows = 6000;
    s->noise = 0.2;
    s->seed = seed;
    for (uint32_t n = 0; until > 20 && n < 4; n++) {
        fault(&s->hosts[n], SIM_THROTTLES, 1);
        s->hosts[n].fault_from_s = 20;
        s->hosts[n].fault_to_s = until;
        s->hosts[n].retry_after_ns = retry_after_ns;
    }
    assert_true(sim_run(s));
    seconds = s->seconds;
    *out_attempts = (double)s->attempts / s->rows;
    sim_free(&s);
    return seconds;
}

static void outage_of_5_s_costs_7(void **state)
{
    double attempts;

    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        double plain = outage(seed, 0, 0, &attempts);
        for (int64_t after = 0; after < 2; after++) {
            double more = outage(seed, 25, after * MR_NS_PER_S, &attempts) - plain;
            print_message(
                "all answer 503 for 5 s, Retry-After %d: +%.2f s, %.4f attempts per row\n",
                (int)after, more, attempts);
            assert_true(more <= 7);
            assert_true(attempts <= 1.05);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(within_5_percent),
        cmocka_unit_test(within_30_percent_where_times_vary_by_a_half),
        cmocka_unit_test(outage_of_5_s_costs_7),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
