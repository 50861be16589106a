/* Long work in turns: when it gets them, fairness, and every way in which it ends. Counted, not timed: a queue with a slice
 * of 0 gives one check of the clock per turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/err.h"
#include "base/mailbox.h"
#include "base/mem.h"
#include "base/turn.h"

struct job {
    struct mr_turn turn;
    int steps;    /* to be done */
    int done_at;  /* count of others' steps when it was done; -1: not yet */
    int taken;    /* steps */
    int is_ended; /* its work saw that it was ended */
    int deep;     /* stack to use */
};

static int all_steps;
static int dones;

static int use_stack(int depth)
{
    volatile char room[1024];

    memset((char *)room, depth, sizeof room);
    return depth == 0 ? room[5] : use_stack(depth - 1) + room[7] - depth;
}

static void work(struct mr_turn *t)
{
    struct job *j = MR_CONTAINER_OF(t, struct job, turn);

    assert_ptr_equal(mr_turn_now, t);
    while (j->taken < j->steps) {
        j->taken++;
        all_steps++;
        assert_int_equal(use_stack(j->deep), 0);
        if (!mr_turn_spend(MR_TURN_STEP)) {
            j->is_ended++;
            return;
        }
    }
}

static void done(struct mr_turn *t)
{
    struct job *j = MR_CONTAINER_OF(t, struct job, turn);

    assert_null(mr_turn_now);
    assert_int_equal(j->done_at, -1);
    assert_false(mr_turn_is_open(t));
    j->done_at = all_steps;
    dones++;
}

static struct job job(int steps)
{
    return (struct job){.turn = {.work = work, .done = done}, .steps = steps, .done_at = -1};
}

static void open_line(struct mr_turns *line)
{
    all_steps = dones = 0;
    mr_turns_init(line, 0);
}

static void test_short_work_is_done_at_once(void **state)
{
    struct mr_turns line;
    struct job long_one = job(1 << 30);
    struct job j = job(10);

    (void)state;
    mr_turns_init(&line, INT64_C(1000000000000)); /* a slice that nothing uses up */
    all_steps = 0;
    mr_turns_add(&line, &j.turn);
    assert_int_equal(j.done_at, 10);
    assert_true(mr_turns_is_empty(&line));
    /* Nor does it wait while others are in the queue. */
    line.slice_ns = 0;
    mr_turns_add(&line, &long_one.turn);
    line.slice_ns = INT64_C(1000000000000);
    assert_int_equal(long_one.done_at, -1);
    j = job(3);
    mr_turns_add(&line, &j.turn);
    assert_int_equal(j.taken, 3);
    assert_true(j.done_at >= 0);
    mr_turns_end(&line);
    mr_turns_fini(&line);
}

static void test_turns_go_round(void **state)
{
    struct mr_turns line;
    struct job jobs[3] = {job(5), job(2), job(4)};

    (void)state;
    open_line(&line);
    for (int i = 0; i < 3; i++) {
        mr_turns_add(&line, &jobs[i].turn);
        assert_int_equal(jobs[i].taken, 0); /* no time in this round */
    }
    for (int round = 1; !mr_turns_is_empty(&line); round++) {
        int before = all_steps;
        mr_turns_run(&line);
        assert_in_range(all_steps - before, 0, 1); /* one slice, one look */
        for (int i = 0; i < 3; i++) {
            for (int k = 0; k < 3; k++) {
                bool both_go_on = jobs[i].done_at < 0 && jobs[k].done_at < 0;
                assert_true(!both_go_on || jobs[i].taken <= jobs[k].taken + 1);
            }
        }
    }
    assert_int_equal(dones, 3);
    assert_true(jobs[1].done_at < jobs[2].done_at && jobs[2].done_at <= jobs[0].done_at);
    assert_int_equal(all_steps, 11);
    assert_true(line.turns >= 11);
    mr_turns_fini(&line);
}

static void test_ended(void **state)
{
    struct mr_turns line;
    struct job begun = job(1000);
    struct job fresh = job(1000);
    struct job other = job(3);

    (void)state;
    open_line(&line);
    mr_turns_add(&line, &begun.turn);
    mr_turns_run(&line);
    assert_int_equal(begun.taken, 1);
    mr_turns_add(&line, &other.turn);
    mr_turns_add(&line, &fresh.turn);
    mr_turn_end(&begun.turn, MR_E_CANCELLED);
    mr_turn_end(&fresh.turn, MR_E_CANCELLED);
    mr_turn_end(&fresh.turn, MR_E_CLOSED); /* the first reason counts */
    assert_int_equal(dones, 0);
    /* They go first, as what they hold is wanted back. */
    mr_turns_run(&line);
    mr_turns_run(&line);
    assert_int_equal(dones, 2);
    assert_int_equal(begun.taken, 1);
    assert_int_equal(begun.is_ended, 1);
    assert_int_equal(begun.turn.status, MR_E_CANCELLED);
    assert_int_equal(fresh.taken, 0);
    assert_int_equal(fresh.turn.status, MR_E_CANCELLED);
    assert_int_equal(other.done_at, -1);
    while (!mr_turns_is_empty(&line)) {
        mr_turns_run(&line);
    }
    assert_int_equal(other.turn.status, MR_OK);
    assert_int_equal(other.taken, 3);
    mr_turn_end(&other.turn, MR_E_CANCELLED); /* not in a line any more */
    assert_int_equal(other.turn.status, MR_OK);
    mr_turns_fini(&line);
}

static void test_refused(void **state)
{
    struct mr_turns line;
    struct job in = job(100);
    struct job out = job(2);
    struct job late = job(100);

    (void)state;
    open_line(&line);
    in.turn.may_refuse = late.turn.may_refuse = true;
    mr_turns_add(&line, &in.turn);
    mr_turns_add(&line, &out.turn);
    mr_turns_run(&line);
    mr_turns_refuse(&line, MR_E_CLOSED);
    while (!mr_turns_is_empty(&line)) {
        mr_turns_run(&line);
    }
    assert_int_equal(in.turn.status, MR_E_CLOSED);
    assert_int_equal(in.taken, 1);
    assert_int_equal(out.turn.status, MR_OK);
    assert_int_equal(out.taken, 2);
    mr_turns_add(&line, &late.turn);
    assert_int_equal(late.turn.status, MR_E_CLOSED);
    assert_true(late.done_at >= 0 && late.taken == 0);
    mr_turns_fini(&line);
}

#define MANY 600 /* more than may have started at a time */

static void test_many(void **state)
{
    static struct job jobs[MANY];
    struct mr_turns line;

    (void)state;
    open_line(&line);
    for (int i = 0; i < MANY; i++) {
        jobs[i] = job(3);
        mr_turns_add(&line, &jobs[i].turn);
    }
    for (int i = 0; i < MANY / 2; i++) {
        mr_turns_run(&line);
    }
    mr_turn_end(&jobs[MANY - 1].turn, MR_E_CANCELLED); /* still waits for a place */
    mr_turns_run(&line);
    assert_int_equal(jobs[MANY - 1].turn.status, MR_E_CANCELLED);
    assert_true(jobs[MANY - 1].done_at >= 0);
    while (!mr_turns_is_empty(&line)) {
        mr_turns_run(&line);
    }
    assert_int_equal(dones, MANY);
    assert_int_equal(all_steps, 3 * (MANY - 1));
    assert_true(line.stack_count <= 4);
    mr_turns_fini(&line);
}

static void test_end_of_the_line(void **state)
{
    static struct job jobs[MANY];
    struct mr_turns line;

    (void)state;
    open_line(&line);
    for (int i = 0; i < MANY; i++) {
        jobs[i] = job(1 << 30);
        mr_turns_add(&line, &jobs[i].turn);
    }
    for (int i = 0; i < 100; i++) {
        mr_turns_run(&line);
    }
    mr_turns_end(&line);
    assert_int_equal(dones, MANY);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(jobs[i].turn.status, MR_E_CLOSED);
    }
    mr_turns_fini(&line);
}

static void test_deep_stack(void **state)
{
    struct mr_turns line;
    struct job j = job(20);

    (void)state;
    open_line(&line);
    j.deep = 24;
    mr_turns_add(&line, &j.turn);
    while (!mr_turns_is_empty(&line)) {
        mr_turns_run(&line);
    }
    assert_int_equal(j.taken, 20);
    mr_turns_fini(&line);
}

static void test_no_memory(void **state)
{
    struct mr_turns line;
    struct job j = job(20);

    (void)state;
    open_line(&line);
    mr_mem_fail_after(1);
    mr_turns_add(&line, &j.turn);
    mr_turns_run(&line);
    mr_mem_fail_after(0);
    assert_int_equal(j.turn.status, MR_E_EXHAUSTED);
    assert_true(j.done_at >= 0 && j.taken == 0);
    assert_true(mr_turns_is_empty(&line));
    mr_turns_fini(&line);
}

static char from[1 << 20], to[1 << 20];

static void copy(struct mr_turn *t)
{
    struct job *j = MR_CONTAINER_OF(t, struct job, turn);

    j->is_ended = !mr_turn_copy(to, from, sizeof from);
}

static void test_copy(void **state)
{
    struct mr_turns line;
    struct job j = job(0);

    (void)state;
    memset(from, 7, sizeof from);
    open_line(&line);
    j.turn.work = copy;
    mr_turns_add(&line, &j.turn);
    mr_turns_run(&line);
    assert_int_equal(to[0], 7);
    assert_int_equal(to[sizeof to - 1], 0); /* others come in between */
    while (!mr_turns_is_empty(&line)) {
        mr_turns_run(&line);
    }
    assert_memory_equal(to, from, sizeof from);
    j = job(0);
    j.turn.work = copy;
    mr_turns_add(&line, &j.turn);
    mr_turns_run(&line);
    mr_turns_end(&line);
    assert_true(j.is_ended);
    assert_true(mr_turn_copy(to, from, sizeof from)); /* and outside of a turn */
    mr_turns_fini(&line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short_work_is_done_at_once),
        cmocka_unit_test(test_turns_go_round),
        cmocka_unit_test(test_ended),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_end_of_the_line),
        cmocka_unit_test(test_deep_stack),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
