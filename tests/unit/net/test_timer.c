/* Timers against a sorted model, and the wheel of deadlines. The test sets the time: nothing sleeps.
 */
#include "base/rng.h"
#include "net/loop/loop_priv.h"
#include "net_test.h"

#define TIMERS 500

struct fired {
    struct mr_timer timer;
    int64_t due_ns;
    int count;
};

static int64_t last_due_ns;

static void on_timer(struct mr_timer *t)
{
    struct fired *f = MR_CONTAINER_OF(t, struct fired, timer);

    assert_true(f->due_ns <= t->loop->now_ns);
    assert_true(f->due_ns >= last_due_ns);
    last_due_ns = f->due_ns;
    f->count++;
}

static struct mr_loop *new_loop(int64_t now_ns)
{
    struct mr_loop *loop;

    assert_int_equal(mr_loop_new(&loop, NULL, NULL), MR_OK);
    loop->now_ns = now_ns;
    return loop;
}

static void test_order(void **state)
{
    struct mr_loop *loop = new_loop(1000);
    struct fired *f = calloc(TIMERS, sizeof *f);
    struct mr_rng r;

    (void)state;
    mr_rng_seed(&r, 3);
    for (int round = 0; round < 50; round++) {
        int started = 0;
        int stopped = 0;
        for (int i = 0; i < TIMERS; i++) {
            int64_t delay_ns = (int64_t)(mr_rng_u64(&r) % 1000);
            f[i].count = 0;
            f[i].due_ns = loop->now_ns + delay_ns;
            mr_timer_start(loop, &f[i].timer, delay_ns, 0, on_timer);
            started++;
            if (mr_rng_u64(&r) % 3 == 0) {
                int victim = (int)(mr_rng_u64(&r) % (uint64_t)(i + 1));
                stopped += f[victim].timer.active;
                mr_timer_stop(&f[victim].timer);
            }
        }
        int64_t end_ns = loop->now_ns + 1000;
        last_due_ns = 0;
        while (loop->now_ns <= end_ns) {
            int64_t next_ns = mr_timers_run(loop);
            assert_true(next_ns == 0 || next_ns > loop->now_ns);
            loop->now_ns += (int64_t)(mr_rng_u64(&r) % 100);
        }
        mr_timers_run(loop);
        int fired = 0;
        for (int i = 0; i < TIMERS; i++) {
            fired += f[i].count;
            assert_false(f[i].timer.active);
        }
        assert_int_equal(fired, started - stopped);
        assert_null(loop->timers);
    }
    free(f);
    mr_loop_free(&loop);
}

static void on_again(struct mr_timer *t)
{
    struct fired *f = MR_CONTAINER_OF(t, struct fired, timer);

    f->count++;
    mr_timer_start(t->loop, t, 0, 0, on_again);
}

static void on_repeat(struct mr_timer *t)
{
    struct fired *f = MR_CONTAINER_OF(t, struct fired, timer);

    if (++f->count == 3) {
        mr_timer_stop(t);
    }
}

static void test_again_and_repeat(void **state)
{
    struct mr_loop *loop = new_loop(1000);
    struct fired f = {0};

    (void)state;
    /* A timer that restarts itself without delay waits for the next round. */
    mr_timer_start(loop, &f.timer, 0, 0, on_again);
    mr_timers_run(loop);
    assert_int_equal(f.count, 1);
    mr_timers_run(loop);
    assert_int_equal(f.count, 2);
    mr_timer_stop(&f.timer);
    mr_timer_stop(&f.timer);
    /* Missed ticks are not made up for. */
    f.count = 0;
    mr_timer_start(loop, &f.timer, 10, 10, on_repeat);
    loop->now_ns += 1000;
    mr_timers_run(loop);
    assert_int_equal(f.count, 1);
    assert_true(loop->timers->at_ns > loop->now_ns);
    loop->now_ns += 10;
    mr_timers_run(loop);
    loop->now_ns += 10;
    assert_int_equal(mr_timers_run(loop), 0);
    assert_int_equal(f.count, 3);
    mr_loop_free(&loop);
}

struct expiring {
    struct mr_deadline d;
    int64_t due_ns;
    int count;
};

static struct mr_loop *wheel_loop;

static void on_deadline(struct mr_deadline *d)
{
    struct expiring *e = MR_CONTAINER_OF(d, struct expiring, d);

    assert_true(e->due_ns <= wheel_loop->now_ns);
    assert_true(e->due_ns + 2 * MR_WHEEL_TICK_NS >= wheel_loop->now_ns);
    assert_int_equal(d->at_ns, 0);
    e->count++;
}

static void test_wheel(void **state)
{
    struct mr_loop *loop = new_loop(7 * MR_NS_PER_S + 12345);
    struct expiring *e = calloc(TIMERS, sizeof *e);
    struct mr_rng r;
    int expected = 0;
    int count = 0;

    (void)state;
    wheel_loop = loop;
    mr_rng_seed(&r, 4);
    for (int i = 0; i < TIMERS; i++) {
        e[i].d.fn = on_deadline;
    }
    for (int step = 0; step < 4000; step++) {
        struct expiring *x = &e[mr_rng_u64(&r) % TIMERS];
        /* Most are moved later, as those of busy connections are; some are far beyond the wheel. */
        int64_t delay_ns = (int64_t)(mr_rng_u64(&r) % 10) * MR_NS_PER_S / 4;
        if (mr_rng_u64(&r) % 50 == 0) {
            delay_ns = 100 * MR_NS_PER_S;
        }
        switch (mr_rng_u64(&r) % 8) {
        case 0: mr_deadline_set(loop, &x->d, 0); break;
        case 1: mr_deadline_clear(loop, &x->d); break;
        default: x->due_ns = loop->now_ns + delay_ns; mr_deadline_set(loop, &x->d, x->due_ns);
        }
        loop->now_ns += MR_NS_PER_MS * 20;
        mr_timers_run(loop);
    }
    for (int i = 0; i < TIMERS; i++) {
        expected += e[i].d.at_ns != 0;
        e[i].count = 0;
    }
    assert_true(expected > 0);
    for (int step = 0; step < 1000; step++) {
        loop->now_ns += MR_WHEEL_TICK_NS / 2;
        mr_timers_run(loop);
    }
    for (int i = 0; i < TIMERS; i++) {
        count += e[i].count;
    }
    assert_int_equal(count, expected);
    assert_int_equal(loop->wheel.count, 0);
    assert_null(loop->timers); /* an empty wheel does not tick */
    free(e);
    mr_loop_free(&loop);
}

static void on_stalled(struct mr_deadline *d)
{
    MR_CONTAINER_OF(d, struct expiring, d)->count++;
}

static void test_wheel_stall(void **state)
{
    struct mr_loop *loop = new_loop(MR_NS_PER_S);
    struct expiring e[3] = {0};

    (void)state;
    for (int i = 0; i < 3; i++) {
        e[i].d.fn = on_stalled;
        mr_deadline_set(loop, &e[i].d, loop->now_ns + (i + 1) * 10 * MR_NS_PER_S);
    }
    loop->now_ns += 1000 * MR_NS_PER_S;
    mr_timers_run(loop);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(e[i].count, 1);
    }
    mr_loop_free(&loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_again_and_repeat),
        cmocka_unit_test(test_wheel),
        cmocka_unit_test(test_wheel_stall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
