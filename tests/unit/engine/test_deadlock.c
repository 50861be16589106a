/* Which calls between models wait for ever, by the calls alone: no model runs here. Models are letters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "deadlock.h"

#define CALLS 32

static struct deadlock d;
static struct deadlock_call calls[CALLS];
static size_t count;
static char executions[CALLS];

static int setup(void **state)
{
    (void)state;
    count = 0;
    deadlock_init(&d);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (size_t i = 0; i < count; i++) {
        deadlock_leave(&d, &calls[i]);
    }
    deadlock_fini(&d);
    return 0;
}

/* Execution `execution` of model `caller`, which has so many instances, calls `target`. It runs `of`, NULL: a client's
 * request. *out: the call. */
static bool call(char caller, uint32_t instances, int execution, char target,
                 const struct deadlock_call *of, struct deadlock_call **out)
{
    struct deadlock_call *c = &calls[count++];

    *c = (struct deadlock_call){.caller = (uint64_t)caller,
                                .target = (uint64_t)target,
                                .caller_instances = instances,
                                .execution = &executions[execution],
                                .runs = of ? of->identity : NULL,
                                .identity = c};
    if (out) {
        *out = c;
    }
    return deadlock_enter(&d, c);
}

/* A node of a graph, which runs for the call `of`, asks `target`. */
static bool node(char target, const struct deadlock_call *of, struct deadlock_call **out)
{
    struct deadlock_call *c = &calls[count++];

    *c = (struct deadlock_call){.caller = DEADLOCK_GRAPH,
                                .target = (uint64_t)target,
                                .execution = c,
                                .runs = of ? of->identity : NULL,
                                .identity = c};
    if (out) {
        *out = c;
    }
    return deadlock_enter(&d, c);
}

static void test_itself(void **state)
{
    struct deadlock_call *first;

    (void)state;
    assert_false(call('a', 1, 0, 'a', NULL, NULL));
    assert_true(call('a', 2, 1, 'a', NULL, &first)); /* the other instance answers */
    assert_false(call('a', 2, 2, 'a', first, NULL));
}

static void test_two_that_wait_for_each_other(void **state)
{
    struct deadlock_call *first;

    (void)state;
    assert_true(call('a', 1, 0, 'b', NULL, &first));
    assert_false(call('b', 1, 1, 'a', first, NULL));
    /* a request of a client's to b makes no circle by itself, but a's only instance waits for b's */
    assert_false(call('b', 1, 2, 'a', NULL, NULL));
    deadlock_leave(&d, first);
    assert_true(call('b', 1, 2, 'a', NULL, NULL));
}

static void test_a_refused_call_waits_for_nothing(void **state)
{
    struct deadlock_call *refused;

    (void)state;
    assert_false(call('a', 1, 0, 'a', NULL, &refused));
    assert_true(call('a', 1, 0, 'b', NULL, NULL));
    deadlock_leave(&d, refused); /* without effect */
    deadlock_leave(&d, refused);
    assert_false(call('b', 1, 1, 'a', NULL, NULL));
}

static void test_chains_of_other_requests(void **state)
{
    (void)state;
    assert_true(call('a', 1, 0, 'b', NULL, NULL));
    assert_true(call('b', 1, 1, 'c', NULL, NULL));
    assert_true(call('c', 1, 2, 'd', NULL, NULL));
    assert_false(call('d', 1, 3, 'a', NULL, NULL)); /* four requests, one circle */
    assert_true(call('d', 1, 3, 'e', NULL, NULL));
}

static void test_an_instance_that_moves_is_enough(void **state)
{
    (void)state;
    assert_true(call('b', 2, 0, 'c', NULL, NULL)); /* c does not wait: this one goes on */
    assert_true(call('a', 1, 1, 'b', NULL, NULL));
    assert_true(call('b', 2, 2, 'a', NULL, NULL)); /* a waits for the first of b's instances */
}

static void test_calls_of_one_execution_count_once(void **state)
{
    struct deadlock_call *one, *two;

    (void)state;
    assert_true(call('a', 2, 0, 'b', NULL, &one));
    assert_true(call('a', 2, 0, 'b', NULL, &two)); /* of the same execution */
    assert_true(call('b', 2, 1, 'a', one, NULL));  /* a's other instance is free */
    assert_true(call('b', 2, 2, 'a', two, NULL));
}

static void test_a_graph_that_asks_its_caller(void **state)
{
    struct deadlock_call *outer, *free_one;

    (void)state;
    assert_true(call('m', 1, 0, 'G', NULL, &outer)); /* m asks the graph G */
    assert_true(node('x', outer, &free_one));        /* whose first node asks x */
    deadlock_leave(&d, free_one);
    assert_false(node('m', outer, NULL)); /* and whose second asks m */
    deadlock_leave(&d, outer);

    assert_true(call('m', 2, 1, 'G', NULL, &outer));
    assert_true(node('m', outer, NULL)); /* the other instance answers */
}

static void test_graphs_within_graphs(void **state)
{
    struct deadlock_call *outer, *within, *inner;

    (void)state;
    assert_true(call('m', 1, 0, 'G', NULL, &outer));
    assert_true(node('H', outer, &within)); /* a node of G is the graph H */
    assert_true(node('x', within, &inner)); /* whose node asks x */
    assert_false(call('x', 1, 1, 'm', inner, NULL));
    assert_false(call('x', 1, 1, 'G', inner, NULL) && node('m', &calls[count - 1], NULL));
}

static void test_a_call_waits_for_all_nodes(void **state)
{
    struct deadlock_call *outer, *one, *two;

    (void)state;
    assert_true(call('m', 1, 0, 'G', NULL, &outer));
    assert_true(node('x', outer, &one)); /* side by side */
    assert_true(node('y', outer, &two));
    assert_false(call('y', 1, 1, 'm', two, NULL)); /* m goes on when both have answered */
    deadlock_leave(&d, one);
    assert_false(call('y', 1, 1, 'm', two, NULL));
    assert_true(call('y', 1, 1, 'x', two, NULL));
}

static void test_graphs_of_clients(void **state)
{
    struct deadlock_call *outer;

    (void)state;
    /* a client's request to G runs m, which asks G again: its node needs the instance that waits */
    assert_true(call('m', 1, 0, 'G', NULL, &outer));
    assert_false(node('m', outer, NULL));
    /* another client's request to m waits for the instance as well, and says nothing about the circle */
    assert_true(call('n', 1, 1, 'm', NULL, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_itself, setup, teardown),
        cmocka_unit_test_setup_teardown(test_two_that_wait_for_each_other, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_refused_call_waits_for_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_chains_of_other_requests, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_instance_that_moves_is_enough, setup, teardown),
        cmocka_unit_test_setup_teardown(test_calls_of_one_execution_count_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_graph_that_asks_its_caller, setup, teardown),
        cmocka_unit_test_setup_teardown(test_graphs_within_graphs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_call_waits_for_all_nodes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_graphs_of_clients, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
