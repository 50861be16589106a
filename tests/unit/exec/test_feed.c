/* Messages of a stream, on their way to the request that the first one was. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "exec/feed.h"

struct said {
    struct mr_feed_item item; /* first */
    int done;
};

static void on_done(struct mr_feed_item *i)
{
    ((struct said *)i)->done++;
}

static void on_ready(void *count)
{
    ++*(int *)count;
}

static struct said said_new(void)
{
    return (struct said){.item = {.done = on_done}};
}

/* In order; the side that takes a message ends it. */
static void test_order(void **state)
{
    struct mr_feed *f = mr_feed_new();
    struct said a = said_new(), b = said_new();
    struct mr_feed_item *i;
    struct mr_err err;
    int ready = 0;

    (void)state;
    mr_feed_ask(f, on_ready, &ready);
    assert_int_equal(ready, 0);
    mr_feed_put(f, &a.item);
    mr_feed_put(f, &b.item);
    assert_int_equal(ready, 1);
    assert_false(mr_feed_withdraw(f, &ready));
    assert_false(mr_feed_is_used(f));
    assert_int_equal(mr_feed_take(f, &i, &err), MR_OK);
    assert_ptr_equal(i, &a.item);
    assert_true(mr_feed_is_used(f));
    mr_feed_ask(f, on_ready, &ready);
    assert_int_equal(ready, 2);
    assert_int_equal(mr_feed_take(f, &i, &err), MR_OK);
    assert_ptr_equal(i, &b.item);
    assert_int_equal(mr_feed_take(f, &i, &err), MR_E_CANCELLED); /* there is none now */
    assert_int_equal(a.done + b.done, 0);
    mr_feed_unref(&f);
    assert_null(f);
}

/* Messages before the end are there; later ones are dropped. */
static void test_end(void **state)
{
    struct mr_feed *f = mr_feed_new(), *other = mr_feed_ref(f);
    struct said a = said_new(), b = said_new();
    struct mr_feed_item *i;
    struct mr_err err;
    int ready = 0;

    (void)state;
    mr_feed_put(f, &a.item);
    mr_feed_end(f);
    mr_feed_unref(&f);
    f = other;
    mr_feed_put(f, &b.item);
    assert_int_equal(b.done, 1);
    assert_int_equal(mr_feed_take(f, &i, &err), MR_OK);
    assert_ptr_equal(i, &a.item);
    for (int k = 1; k < 3; k++) {
        mr_feed_ask(f, on_ready, &ready);
        assert_int_equal(ready, k);
        assert_int_equal(mr_feed_take(f, &i, &err), MR_OK);
        assert_null(i);
    }
    mr_feed_unref(&f);
}

/* A close drops the messages that wait. A withdrawn ask is not called. */
static void test_close(void **state)
{
    struct mr_feed *f = mr_feed_new();
    struct said a = said_new();
    struct mr_feed_item *i;
    struct mr_err err;
    int ready = 0, other = 0;

    (void)state;
    mr_feed_ask(f, on_ready, &ready);
    assert_false(mr_feed_withdraw(f, &other));
    assert_true(mr_feed_withdraw(f, &ready));
    mr_feed_put(f, &a.item);
    mr_feed_close(f);
    assert_int_equal(a.done, 1);
    assert_int_equal(ready, 0);
    assert_false(mr_feed_is_used(f));
    mr_feed_end(f);
    assert_int_equal(mr_feed_take(f, &i, &err), MR_E_CANCELLED);
    mr_feed_unref(&f);
}

/* A second ask, as of a request that runs again in another process, calls `ready` of the first one. */
static void test_two_ask(void **state)
{
    struct mr_feed *f = mr_feed_new();
    int first = 0, second = 0;

    (void)state;
    mr_feed_ask(f, on_ready, &first);
    mr_feed_ask(f, on_ready, &second);
    assert_int_equal(first, 1);
    assert_int_equal(second, 0);
    mr_feed_close(f);
    assert_int_equal(first + second, 2);
    mr_feed_unref(&f);
    mr_feed_unref(&f); /* NULL */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_end),
        cmocka_unit_test(test_close),
        cmocka_unit_test(test_two_ask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
