/* Mailboxes: order, when a post wakes, and many posters at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <semaphore.h>

#include "base/mailbox.h"
#include "base/mem.h"
#include "base/thread.h"

struct note {
    struct mr_mail mail;
    unsigned from;
    unsigned number;
};

static unsigned seen[64];
static unsigned seen_count;
static unsigned wakes;

static void count_wake(void *ctx)
{
    (*(unsigned *)ctx)++;
}

static void record(struct mr_mail *mail)
{
    seen[seen_count++] = MR_CONTAINER_OF(mail, struct note, mail)->number;
}

static struct note note(unsigned number)
{
    return (struct note){.mail.run = record, .number = number};
}

static void oldest_first_and_one_wake(void **state)
{
    struct mr_mailbox box;
    struct note notes[10];

    (void)state;
    wakes = seen_count = 0;
    mr_mailbox_init(&box, count_wake, &wakes);
    assert_int_equal(mr_mailbox_drain(&box), 0);
    for (int round = 0; round < 2; round++) {
        for (unsigned i = 0; i < 10; i++) {
            notes[i] = note(i);
            mr_mailbox_post(&box, &notes[i].mail);
        }
        assert_int_equal(mr_mailbox_drain(&box), 10);
    }
    assert_int_equal(wakes, 2);
    assert_int_equal(seen_count, 20);
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(seen[i], i % 10);
    }
}

static void several_wake_once(void **state)
{
    struct mr_mailbox box;
    struct note n[6];

    (void)state;
    wakes = seen_count = 0;
    mr_mailbox_init(&box, count_wake, &wakes);
    for (unsigned i = 0; i < 6; i++) {
        n[i] = note(i);
    }
    for (unsigned i = 0; i < 6; i++) {
        mr_mailbox_post(&box, &n[i].mail);
    }
    assert_int_equal(mr_mailbox_drain(&box), 6);
    assert_int_equal(wakes, 1);
    for (unsigned i = 0; i < 6; i++) {
        assert_int_equal(seen[i], i);
    }
}

static struct mr_mailbox own_box;

static void post_again(struct mr_mail *mail)
{
    struct note *n = MR_CONTAINER_OF(mail, struct note, mail);

    if (n->number-- > 0) {
        mr_mailbox_post(&own_box, mail);
    }
}

static void a_mail_may_post_itself(void **state)
{
    struct note n = {.mail.run = post_again, .number = 3};
    unsigned drains = 0;

    (void)state;
    wakes = 0;
    mr_mailbox_init(&own_box, count_wake, &wakes);
    mr_mailbox_post(&own_box, &n.mail);
    while (mr_mailbox_drain(&own_box)) {
        drains++;
    }
    assert_int_equal(drains, 4);
    assert_int_equal(wakes, 4);
}

#define POSTERS 3
#define POSTS   3000

static struct mr_mailbox shared_box;
static sem_t bell;
static unsigned next_number[POSTERS];
static unsigned received;

static void ring(void *ctx)
{
    sem_post(ctx);
}

static void receive(struct mr_mail *mail)
{
    struct note *n = MR_CONTAINER_OF(mail, struct note, mail);

    /* Those of one poster come in its order. */
    assert_int_equal(n->number, next_number[n->from]);
    next_number[n->from]++;
    received++;
    mr_free(n);
}

static void *post_many(void *arg)
{
    unsigned from = (unsigned)(uintptr_t)arg;

    for (unsigned i = 0; i < POSTS; i++) {
        struct note *n = MR_NEW(struct note);
        *n = (struct note){.mail.run = receive, .from = from, .number = i};
        mr_mailbox_post(&shared_box, &n->mail);
    }
    return NULL;
}

static void many_posters_lose_nothing(void **state)
{
    pthread_t threads[POSTERS];
    unsigned rings = 0;

    (void)state;
    sem_init(&bell, 0, 0);
    mr_mailbox_init(&shared_box, ring, &bell);
    for (uintptr_t i = 0; i < POSTERS; i++) {
        assert_int_equal(mr_thread_start(&threads[i], "poster", post_many, (void *)i, NULL), MR_OK);
    }
    /* A missing wake would hang here, and the test's time limit would show it. */
    while (received < POSTERS * POSTS) {
        while (sem_wait(&bell) != 0 && errno == EINTR) {
        }
        rings++;
        mr_mailbox_drain(&shared_box);
    }
    for (unsigned i = 0; i < POSTERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(next_number[i], POSTS);
    }
    assert_true(rings <= POSTERS * POSTS);
    sem_destroy(&bell);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oldest_first_and_one_wake),
        cmocka_unit_test(several_wake_once),
        cmocka_unit_test(a_mail_may_post_itself),
        cmocka_unit_test(many_posters_lose_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
