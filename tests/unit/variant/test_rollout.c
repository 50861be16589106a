/* Ramps over virtual days: steps, breaches, too few requests, changes by hand. */
#include "variant/rollout.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"

#define S(n) ((int64_t)(n)*MR_NS_PER_S)

struct bench {
    struct mr_ramp ramp;
    struct mr_rollout r;
    struct mr_variant_table table;
    struct mr_variant_cell cells[3];
    struct mr_variant_sums sums[3];
    uint64_t spread;
    int64_t now;
    unsigned requests[3];
};

static const mr_str tags[] = {MR_STR_INIT("stable"), MR_STR_INIT("cand"), MR_STR_INIT("other")};
static const double weights[] = {80, 5, 15};

static struct mr_rollout_time now_of(const struct bench *b)
{
    return (struct mr_rollout_time){b->now, b->now + S(1000000)};
}

static void sum_up(struct bench *b)
{
    for (int i = 0; i < 3; i++) {
        b->sums[i] = (struct mr_variant_sums){0};
        mr_variant_sums_add(&b->sums[i], &b->cells[i]);
    }
}

static void begin(struct bench *b, const char *guard, enum mr_ramp_breach on_breach)
{
    struct mr_err err = {0};

    *b = (struct bench){.ramp = {.variant = 1,
                                 .to = 50,
                                 .step = 5,
                                 .every_ns = S(600),
                                 .min_samples = 100,
                                 .on_breach = on_breach,
                                 .has_guard = guard != NULL},
                        .now = S(5)};
    if (guard) {
        assert_int_equal(mr_guard_parse(&b->ramp.guard, mr_str_c(guard), tags, 3, 1, &err), MR_OK);
    }
    assert_int_equal(mr_ramp_check(&b->ramp, weights, 3, &err), MR_OK);
    mr_rollout_init(&b->r, weights, 3, &b->ramp, now_of(b), b->sums);
    mr_variant_table_set(&b->table, b->r.weights, 3);
}

/* Seconds of traffic, `rate` requests each. Variant i answers after ms[i]; every bad[i]-th of its requests fails. */
static void run(struct bench *b, int seconds, int rate, const double *ms, const unsigned *bad)
{
    for (int s = 0; s < seconds; s++) {
        for (int k = 0; k < rate; k++) {
            const unsigned v = mr_variant_of(&b->table, mr_variant_spread(&b->spread));
            const bool fails = bad && bad[v] && ++b->requests[v] % bad[v] == 0;
            mr_variant_cell_add(&b->cells[v], fails ? MR_E_INTERNAL : MR_OK,
                                (int64_t)(ms[v] * 1e6));
        }
        b->now += S(1);
        sum_up(b);
        if (mr_rollout_tick(&b->r, now_of(b), b->sums)) {
            mr_variant_table_set(&b->table, b->r.weights, 3);
        }
    }
}

static void assert_weights(const struct bench *b, double a, double c, double o)
{
    const double want[] = {a, c, o};

    for (int i = 0; i < 3; i++) {
        assert_true(fabs(b->r.weights[i] - want[i]) < 1e-9);
    }
}

static void a_ramp_goes_up_and_stays(void **state)
{
    static const double ms[] = {10, 11, 10};
    struct bench b;
    (void)state;

    begin(&b, "err < 0.002 && p99_ms < 1.3*stable.p99_ms", MR_RAMP_ROLLBACK);
    run(&b, 599, 50, ms, NULL);
    assert_weights(&b, 80, 5, 15);
    run(&b, 1, 50, ms, NULL);
    assert_weights(&b, 80.0 / 95 * 90, 10, 15.0 / 95 * 90);
    run(&b, 600 * 7, 50, ms, NULL);
    assert_int_equal(b.r.state, MR_RAMP_RUNNING);
    run(&b, 600, 50, ms, NULL);
    assert_int_equal(b.r.state, MR_RAMP_DONE);
    assert_weights(&b, 80.0 / 95 * 50, 50, 15.0 / 95 * 50);
    run(&b, 5000, 50, ms, NULL);
    assert_weights(&b, 80.0 / 95 * 50, 50, 15.0 / 95 * 50);
    assert_int_equal(b.r.event_count, 10); /* start, 8 steps, done */
    assert_int_equal(mr_rollout_last(&b.r)->kind, MR_ROLLOUT_DONE);
    assert_true(mr_rollout_is_active(&b.r));
    mr_rollout_fini(&b.r);
}

static void a_guard_that_breaks_takes_the_share_back(void **state)
{
    static const double ms[] = {10, 11, 10};
    static const unsigned bad[] = {0, 100, 0};
    struct bench b;
    (void)state;

    begin(&b, "err < 0.002 && p99_ms < 1.3*stable.p99_ms", MR_RAMP_ROLLBACK);
    run(&b, 1300, 50, ms, NULL);
    assert_weights(&b, 80.0 / 95 * 85, 15, 15.0 / 95 * 85);
    run(&b, 60, 50, ms, bad);
    assert_int_equal(b.r.state, MR_RAMP_ROLLED_BACK);
    assert_weights(&b, 80.0 / 95 * 100, 0, 15.0 / 95 * 100);
    assert_false(mr_variant_is_used(&b.table, 1));
    const struct mr_rollout_event *e = mr_rollout_last(&b.r);
    assert_int_equal(e->kind, MR_ROLLOUT_ROLLBACK);
    assert_false(e->by_hand);
    assert_non_null(strstr(e->reason, "err < 0.002 does not hold: left 0.00"));
    run(&b, 2000, 50, ms, NULL);
    assert_false(mr_rollout_is_active(&b.r));
    assert_true(b.r.weights[1] <= 0);
    mr_rollout_fini(&b.r);
}

static void it_is_guarded_at_the_end_as_well(void **state)
{
    static const double fine[] = {10, 10, 10}, slow[] = {10, 14, 10};
    struct bench b;
    (void)state;

    begin(&b, "p99_ms < 1.2*stable.p99_ms", MR_RAMP_ROLLBACK);
    run(&b, 9000, 20, fine, NULL);
    assert_int_equal(b.r.state, MR_RAMP_DONE);
    run(&b, 601, 20, slow, NULL);
    assert_int_equal(b.r.state, MR_RAMP_ROLLED_BACK);
    assert_non_null(strstr(mr_rollout_last(&b.r)->reason, "p99_ms < 1.2*stable.p99_ms does not"));
    mr_rollout_fini(&b.r);
}

/* The variant that it is compared with has no requests any more. */
static void a_ramp_to_all_is_judged_by_the_last_window(void **state)
{
    static const double fine[] = {10, 10, 10}, slow[] = {10, 14, 10};
    struct bench b;
    (void)state;

    begin(&b, "p99_ms < 1.2*stable.p99_ms", MR_RAMP_ROLLBACK);
    b.ramp.to = 100;
    run(&b, 600 * 19, 20, fine, NULL);
    assert_int_equal(b.r.state, MR_RAMP_DONE);
    assert_weights(&b, 0, 100, 0);
    run(&b, 3000, 20, fine, NULL);
    assert_weights(&b, 0, 100, 0);
    run(&b, 601, 20, slow, NULL);
    assert_int_equal(b.r.state, MR_RAMP_ROLLED_BACK);
    assert_non_null(strstr(mr_rollout_last(&b.r)->reason, "p99_ms < 1.2*stable.p99_ms does not"));
    assert_weights(&b, 80.0 / 95 * 100, 0, 15.0 / 95 * 100);
    mr_rollout_fini(&b.r);
}

static void hold_keeps_the_weight(void **state)
{
    static const double ms[] = {10, 30, 10};
    struct mr_err err = {0};
    struct bench b;
    (void)state;

    begin(&b, "mean_ms < 2*stable.mean_ms", MR_RAMP_HOLD);
    run(&b, 100, 50, ms, NULL);
    assert_int_equal(b.r.state, MR_RAMP_HELD);
    assert_weights(&b, 80, 5, 15);
    assert_int_equal(mr_rollout_last(&b.r)->kind, MR_ROLLOUT_HOLD);
    assert_int_equal(mr_rollout_resume(&b.r, weights, now_of(&b), b.sums, &err), MR_OK);
    assert_int_equal(b.r.state, MR_RAMP_RUNNING);
    run(&b, 601, 50, (double[]){10, 10, 10}, NULL); /* the old window is forgotten */
    assert_weights(&b, 80.0 / 95 * 90, 10, 15.0 / 95 * 90);
    assert_int_equal(mr_rollout_resume(&b.r, weights, now_of(&b), b.sums, &err), MR_E_INVALID);
    assert_string_equal(err.msg, "there is no ramp that could go on: its state is 'running'");
    mr_rollout_fini(&b.r);
}

static void too_few_requests_judge_nothing(void **state)
{
    static const double ms[] = {10, 10, 10};
    static const unsigned bad[] = {0, 1, 0};
    struct bench b;
    (void)state;

    begin(&b, "err < 0.5", MR_RAMP_ROLLBACK);
    run(&b, 1000, 1, ms, bad); /* 50 of the variant */
    assert_in_range(b.sums[1].count, 45, 55);
    assert_weights(&b, 80, 5, 15);
    assert_int_equal(b.r.state, MR_RAMP_RUNNING);
    run(&b, 1200, 1, ms, bad);
    assert_int_equal(b.r.state, MR_RAMP_ROLLED_BACK);
    mr_rollout_fini(&b.r);
}

static void without_a_guard_time_alone_decides(void **state)
{
    struct bench b;
    (void)state;

    begin(&b, NULL, MR_RAMP_ROLLBACK);
    run(&b, 600 * 9, 0, NULL, NULL);
    assert_int_equal(b.r.state, MR_RAMP_DONE);
    assert_weights(&b, 80.0 / 95 * 50, 50, 15.0 / 95 * 50);
    assert_false(mr_rollout_is_active(&b.r));
    mr_rollout_fini(&b.r);
}

static void by_hand(void **state)
{
    struct mr_err err = {0};
    struct bench b;
    (void)state;

    begin(&b, NULL, MR_RAMP_ROLLBACK);
    assert_int_equal(mr_rollout_set(&b.r, (double[]){0, 0, 0}, NULL, now_of(&b), &err),
                     MR_E_INVALID);
    assert_int_equal(b.r.state, MR_RAMP_RUNNING);
    assert_int_equal(mr_rollout_set(&b.r, (double[]){1, 2, 3}, NULL, now_of(&b), &err), MR_OK);
    assert_int_equal(b.r.state, MR_RAMP_STOPPED);
    run(&b, 1000, 0, NULL, NULL);
    assert_weights(&b, 1, 2, 3);
    assert_int_equal(mr_rollout_promote(&b.r, 1, now_of(&b), &err), MR_OK);
    assert_weights(&b, 0, 6, 0);
    assert_int_equal(b.r.state, MR_RAMP_PROMOTED);
    assert_int_equal(mr_rollout_promote(&b.r, 3, now_of(&b), &err), MR_E_INVALID);
    assert_int_equal(mr_rollout_back(&b.r, now_of(&b), &err), MR_OK);
    assert_weights(&b, 1.5, 0, 4.5);
    assert_true(mr_rollout_last(&b.r)->by_hand);
    assert_int_equal(mr_rollout_resume(&b.r, weights, now_of(&b), NULL, &err), MR_OK);
    assert_weights(&b, 80, 5, 15);
    mr_rollout_fini(&b.r);
}

/* Weights set by hand may have a sum below ramp.to, where the others' share would be negative. */
static void resume_needs_room_for_the_ramp(void **state)
{
    struct mr_err err = {0};
    struct bench b;
    (void)state;

    begin(&b, NULL, MR_RAMP_ROLLBACK);
    assert_int_equal(mr_rollout_set(&b.r, (double[]){8, 1, 1}, NULL, now_of(&b), &err), MR_OK);
    assert_int_equal(mr_rollout_resume(&b.r, weights, now_of(&b), NULL, &err), MR_OK);
    run(&b, 600 * 9, 0, NULL, NULL);
    assert_int_equal(b.r.state, MR_RAMP_DONE);
    assert_weights(&b, 80.0 / 95 * 50, 50, 15.0 / 95 * 50);
    mr_rollout_fini(&b.r);
}

/* A variant that was taken out by hand does not come back with the share of the canary. */
static void back_keeps_who_is_out(void **state)
{
    struct mr_err err = {0};
    struct bench b;
    (void)state;

    begin(&b, NULL, MR_RAMP_ROLLBACK);
    assert_int_equal(mr_rollout_set(&b.r, (double[]){0, 5, 15}, NULL, now_of(&b), &err), MR_OK);
    assert_int_equal(mr_rollout_back(&b.r, now_of(&b), &err), MR_OK);
    assert_weights(&b, 0, 0, 20);
    mr_rollout_fini(&b.r);
}

static void without_a_ramp_back_undoes(void **state)
{
    struct mr_err err = {0};
    struct bench b = {0};
    (void)state;

    mr_rollout_init(&b.r, weights, 3, NULL, now_of(&b), NULL);
    assert_null(mr_rollout_last(&b.r));
    assert_int_equal(mr_rollout_back(&b.r, now_of(&b), &err), MR_E_INVALID);
    assert_string_equal(err.msg,
                        "there is nothing to go back to: the weights have not been changed");
    assert_int_equal(mr_rollout_set(&b.r, (double[]){1, 2, 3}, NULL, now_of(&b), &err), MR_OK);
    assert_int_equal(mr_rollout_back(&b.r, now_of(&b), &err), MR_OK);
    assert_weights(&b, 80, 5, 15);
    assert_int_equal(mr_rollout_back(&b.r, now_of(&b), &err), MR_OK);
    assert_weights(&b, 1, 2, 3);
    assert_int_equal(b.r.event_count, 3);
    /* the same once more is no change */
    assert_int_equal(mr_rollout_set(&b.r, (double[]){1, 2, 3}, NULL, now_of(&b), &err), MR_OK);
    assert_int_equal(mr_rollout_back(&b.r, now_of(&b), &err), MR_OK);
    assert_weights(&b, 80, 5, 15);
    mr_rollout_fini(&b.r);
}

/* The sum of the weights may be more than one of them: it does not stand in the way of others. */
static void weights_after_a_promotion(void **state)
{
    static const double large[] = {800000, 800000, 0};
    struct mr_err err = {0};
    struct bench b = {0};
    (void)state;

    mr_rollout_init(&b.r, large, 3, NULL, now_of(&b), NULL);
    assert_int_equal(mr_rollout_promote(&b.r, 0, now_of(&b), &err), MR_OK);
    assert_int_equal(mr_rollout_set(&b.r, (double[]){1600000, 7, 0}, tags, now_of(&b), &err),
                     MR_OK);
    assert_weights(&b, 1600000, 7, 0);
    assert_int_equal(mr_rollout_set(&b.r, (double[]){1600001, 7, 0}, tags, now_of(&b), &err),
                     MR_E_INVALID);
    assert_string_equal(err.msg, "variant 1 'stable' has weight 1600001, possible is 0 to 1000000");
    mr_rollout_fini(&b.r);
}

static void the_history_is_bounded(void **state)
{
    struct mr_err err = {0};
    struct bench b = {0};
    (void)state;

    mr_rollout_init(&b.r, weights, 3, NULL, now_of(&b), NULL);
    for (int i = 1; i <= 1000; i++) {
        assert_int_equal(mr_rollout_set(&b.r, (double[]){i, 2, 3}, NULL, now_of(&b), &err), MR_OK);
    }
    assert_int_equal(b.r.event_count, 1000);
    assert_true(fabs(mr_rollout_last(&b.r)->weights[0] - 1000) < 1e-9);
    mr_rollout_fini(&b.r);
}

static void bad_ramps_are_refused(void **state)
{
    static const struct {
        struct mr_ramp ramp;
        const char *error;
    } bad[] = {
        {{.variant = 1, .to = 4, .step = 1, .every_ns = S(1)},
         "ramp.to is 4, possible is 5 (the weight of the variant) to 100 (the sum of all weights)"},
        {{.variant = 1, .to = 101, .step = 1, .every_ns = S(1)},
         "ramp.to is 101, possible is 5 (the weight of the variant) to 100 (the sum of all "
         "weights)"},
        {{.variant = 1, .to = 50, .step = 0, .every_ns = S(1)},
         "ramp.step is 0, possible is above 0 to 1000000"},
        {{.variant = 1, .to = 50, .step = 1, .every_ns = 0}, "ramp.every_s has to be 1 or more"},
    };
    struct mr_err err;
    (void)state;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(mr_ramp_check(&bad[i].ramp, weights, 3, &err), MR_E_INVALID);
        assert_string_equal(err.msg, bad[i].error);
    }
    assert_int_equal(mr_ramp_check(&bad[0].ramp, (double[]){0, 5}, 2, &err), MR_E_INVALID);
    assert_string_equal(
        err.msg, "a ramp needs another variant whose weight is above 0, which it takes from");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ramp_goes_up_and_stays),
        cmocka_unit_test(a_guard_that_breaks_takes_the_share_back),
        cmocka_unit_test(it_is_guarded_at_the_end_as_well),
        cmocka_unit_test(a_ramp_to_all_is_judged_by_the_last_window),
        cmocka_unit_test(hold_keeps_the_weight),
        cmocka_unit_test(too_few_requests_judge_nothing),
        cmocka_unit_test(without_a_guard_time_alone_decides),
        cmocka_unit_test(by_hand),
        cmocka_unit_test(resume_needs_room_for_the_ramp),
        cmocka_unit_test(back_keeps_who_is_out),
        cmocka_unit_test(without_a_ramp_back_undoes),
        cmocka_unit_test(weights_after_a_promotion),
        cmocka_unit_test(the_history_is_bounded),
        cmocka_unit_test(bad_ramps_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
