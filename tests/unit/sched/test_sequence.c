/* The state machine of sequences, under a clock of its own: places, backlog, idle time, and what runs when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "base/mem.h"
#include "base/rng.h"
#include "sched/sequence/sequence.h"

#define MS   INT64_C(1000000)
#define ROWS 64

static const struct seq_options usual = {
    .instances = 1, .places = 2, .max_rows = 2, .max_idle_ns = 100 * MS};

/* A request of the tests; requests of equal `shape` can run together. */
struct ask {
    struct seq_request request;
    int shape;
};

static bool same_shape(void *ctx, const struct seq_request *a, const struct seq_request *b)
{
    (void)ctx;
    return MR_CONTAINER_OF(a, struct ask, request)->shape ==
           MR_CONTAINER_OF(b, struct ask, request)->shape;
}

static int dropped;

static void drop(void *ctx, void *data)
{
    (void)ctx;
    (void)data;
    dropped++;
}

static struct seq_set *set_new(struct seq_options o)
{
    o.can_join = same_shape;
    o.drop = drop;
    dropped = 0;
    return sequence_set_new(&o);
}

/* 'S' start, 'E' end. */
static struct ask *ask(const char *marks)
{
    struct ask *a = MR_NEW(struct ask);

    a->request.is_start = strchr(marks, 'S') != NULL;
    a->request.is_end = strchr(marks, 'E') != NULL;
    return a;
}

static enum seq_admitted admit(struct seq_set *s, const char *key, struct ask *a, int64_t now_ns)
{
    uint32_t instance = SEQ_NONE;

    return sequence_admit(s, mr_str_c(key), &a->request, now_ns, &instance);
}

static struct seq_plan form(struct seq_set *s, uint32_t instance, int64_t now_ns,
                            struct seq_request **out)
{
    struct seq_plan plan;

    sequence_form(s, instance, ROWS, now_ns, out, &plan);
    return plan;
}

/* Run what there is of instance 0 until there is no more; how many requests that was. */
static uint32_t run_all(struct seq_set *s, int64_t now_ns)
{
    struct seq_request *out[ROWS];
    uint32_t total = 0;

    for (struct seq_plan p; (p = form(s, 0, now_ns, out)).count > 0; total += p.count) {
        for (uint32_t i = 0; i < p.count; i++) {
            sequence_done(s, out[i], now_ns);
        }
    }
    return total;
}

static void begins_goes_on_ends(void **state)
{
    struct seq_set *s = set_new(usual);
    struct ask *a[] = {ask(""), ask("S"), ask(""), ask("E"), ask("")};
    (void)state;

    assert_int_equal(admit(s, "k", a[0], 0), SEQ_NO_START);
    assert_int_equal(admit(s, "k", a[1], 0), SEQ_PLACED);
    assert_true(sequence_is_known(s, mr_str_c("k")) && sequence_is_used(s, 0));
    assert_int_equal(run_all(s, 0), 1);

    assert_int_equal(admit(s, "k", a[2], 1), SEQ_PLACED);
    assert_int_equal(admit(s, "k", a[3], 2), SEQ_PLACED);
    assert_false(sequence_is_known(s, mr_str_c("k"))); /* its end is admitted, so its key is free */
    assert_int_equal(admit(s, "k", a[4], 3), SEQ_NO_START);
    assert_int_equal(sequence_count(s), 1);
    assert_int_equal(run_all(s, 3), 2);
    assert_int_equal(sequence_count(s), 0);
    assert_false(sequence_is_used(s, 0));
    for (int i = 0; i < 5; i++) {
        mr_free(a[i]);
    }
    sequence_set_free(&s);
    assert_null(s);
}

/* One request of a sequence runs at a time, in order. */
static void one_at_a_time(void **state)
{
    struct seq_set *s = set_new(usual);
    struct ask *a[] = {ask("S"), ask(""), ask("E")};
    struct seq_request *out[ROWS];
    (void)state;

    for (int i = 0; i < 3; i++) {
        admit(s, "k", a[i], i);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(form(s, 0, 10, out).count, 1);
        assert_ptr_equal(out[0], &a[i]->request);
        struct seq_plan none = form(s, 0, 10, out + 1);
        assert_int_equal(none.count, 0);
        assert_true(none.wait_until_ns == INT64_MAX);
        sequence_done(s, out[0], 10);
        mr_free(a[i]);
    }
    assert_int_equal(sequence_count(s), 0);
    sequence_set_free(&s);
}

/* Places are taken lowest first over all instances, and the backlog gets them in its order. */
static void places_and_backlog(void **state)
{
    struct seq_options o = usual;
    struct seq_request *out[ROWS];
    struct ask *a[6];
    uint32_t at[6];
    char key[2] = "a";
    (void)state;

    o.instances = 2;
    o.is_direct = true;
    struct seq_set *s = set_new(o);
    for (int i = 0; i < 6; i++, key[0]++) {
        a[i] = ask("SE");
        at[i] = SEQ_NONE;
        assert_int_equal(sequence_admit(s, mr_str_c(key), &a[i]->request, i, &at[i]),
                         i < 4 ? SEQ_PLACED : SEQ_BACKLOG);
        assert_int_equal(sequence_is_placed(&a[i]->request), i < 4);
    }
    const uint32_t expected[] = {0, 1, 0, 1, SEQ_NONE, SEQ_NONE};
    assert_memory_equal(at, expected, sizeof at);
    assert_int_equal(form(s, 1, 10, out).count, 2);
    assert_ptr_equal(out[0], &a[1]->request);
    assert_ptr_equal(out[1], &a[3]->request);
    sequence_done(s, out[1], 10); /* place 1 of instance 1 goes to the fifth */
    assert_true(sequence_is_placed(&a[4]->request));
    assert_false(sequence_is_placed(&a[5]->request));
    sequence_done(s, out[0], 11);
    struct seq_plan p = form(s, 1, 12, out);
    assert_int_equal(p.count, 2);
    assert_ptr_equal(out[0], &a[5]->request);
    assert_ptr_equal(out[1], &a[4]->request);
    assert_true(out[0]->row == 0 && out[1]->row == 1);
    sequence_done(s, out[0], 12);
    sequence_done(s, out[1], 12);
    assert_int_equal(run_all(s, 12), 2);
    assert_int_equal(sequence_count(s), 0);
    for (int i = 0; i < 6; i++) {
        mr_free(a[i]);
    }
    sequence_set_free(&s);
}

/* Direct: the row is the place, rows between are empty, and a batch ends with the last row that has a request. */
static void direct_rows(void **state)
{
    struct seq_options o = usual;
    struct seq_request *out[ROWS];
    struct ask *start[4], *next[4];
    char key[2] = "a";
    (void)state;

    o.is_direct = true;
    o.places = o.max_rows = 4;
    struct seq_set *s = set_new(o);
    for (int i = 0; i < 4; i++) {
        key[0] = (char)('a' + i);
        start[i] = ask("S");
        next[i] = ask("");
        admit(s, key, start[i], 0);
    }
    struct seq_plan p = form(s, 0, 0, out);
    assert_true(p.count == 4 && p.rows == 4 && p.reason == MR_CLOSE_FULL);
    for (int i = 0; i < 4; i++) {
        sequence_done(s, out[i], 1);
    }
    admit(s, "c", next[2], 2);
    p = form(s, 0, 2, out);
    assert_true(p.count == 1 && p.rows == 3 && out[0]->row == 2);
    admit(s, "b", next[1], 3); /* comes while that runs */
    admit(s, "d", next[3], 3);
    sequence_done(s, out[0], 4);
    p = form(s, 0, 4, out);
    assert_true(p.count == 2 && p.rows == 4 && out[0]->row == 1 && out[1]->row == 3);
    sequence_done(s, out[0], 5);
    sequence_done(s, out[1], 5);
    for (int i = 0; i < 4; i++) {
        mr_free(start[i]);
        mr_free(next[i]);
    }
    sequence_set_free(&s);
}

/* Direct: what cannot join the oldest leaves its row empty, and runs next. */
static void direct_shapes(void **state)
{
    struct seq_options o = usual;
    struct seq_request *out[ROWS];
    struct ask *a[] = {ask("S"), ask("S"), ask("S")};
    (void)state;

    o.is_direct = true;
    o.places = o.max_rows = 3;
    struct seq_set *s = set_new(o);
    a[1]->shape = 1;
    for (int i = 0; i < 3; i++) {
        admit(s, (const char *[]){"a", "b", "c"}[i], a[i], i);
    }
    struct seq_plan p = form(s, 0, 5, out);
    assert_true(p.count == 2 && p.rows == 3 && p.reason == MR_CLOSE_SHAPE);
    assert_true(out[0]->row == 0 && out[1]->row == 2);
    struct seq_request *rest[ROWS];
    struct seq_plan then = form(s, 0, 5, rest);
    assert_true(then.count == 1 && then.rows == 2 && rest[0] == &a[1]->request);
    sequence_done(s, out[0], 6);
    sequence_done(s, out[1], 6);
    sequence_done(s, rest[0], 6);
    for (int i = 0; i < 3; i++) {
        mr_free(a[i]);
    }
    sequence_set_free(&s);
}

/* Direct: with a minimum a batch waits, until that many slots have a request or the delay is over. */
static void direct_utilization(void **state)
{
    struct seq_options o = usual;
    struct seq_request *out[ROWS];
    struct ask *a[] = {ask("S"), ask("S"), ask("")};
    (void)state;

    o.is_direct = true;
    o.places = o.max_rows = 4;
    o.max_delay_ns = 10 * MS;
    o.min_utilization = 0.5f;
    struct seq_set *s = set_new(o);
    admit(s, "a", a[0], 5 * MS);
    struct seq_plan p = form(s, 0, 6 * MS, out);
    assert_true(p.count == 0 && p.wait_until_ns == 15 * MS);
    admit(s, "b", a[1], 7 * MS);
    p = form(s, 0, 7 * MS, out);
    assert_true(p.count == 2 && p.reason == MR_CLOSE_PREFERRED);
    sequence_done(s, out[0], 8 * MS);
    sequence_done(s, out[1], 8 * MS);
    admit(s, "b", a[2], 9 * MS);
    assert_int_equal(form(s, 0, 19 * MS - 1, out).count, 0);
    p = form(s, 0, 19 * MS, out);
    assert_true(p.count == 1 && p.rows == 2 && p.reason == MR_CLOSE_DELAY);
    sequence_done(s, out[0], 19 * MS);
    for (int i = 0; i < 3; i++) {
        mr_free(a[i]);
    }
    sequence_set_free(&s);
}

/* Oldest: by the arrival of the first waiting request, without empty rows, as many as fit. */
static void oldest_first(void **state)
{
    struct seq_options o = usual;
    struct seq_request *out[ROWS];
    struct ask *a[] = {ask("S"), ask("S"), ask("S"), ask("")};
    (void)state;

    o.places = 4;
    struct seq_set *s = set_new(o);
    admit(s, "a", a[0], 1);
    admit(s, "b", a[1], 2);
    admit(s, "c", a[2], 3);
    admit(s, "a", a[3], 4);
    struct seq_plan p = form(s, 0, 5, out);
    assert_true(p.count == 2 && p.rows == 2 && p.reason == MR_CLOSE_FULL);
    assert_true(out[0] == &a[0]->request && out[1] == &a[1]->request && out[1]->row == 1);
    sequence_done(s, out[0], 6);
    sequence_done(s, out[1], 6);
    p = form(s, 0, 6, out); /* c came before the second of a */
    assert_true(p.count == 2 && out[0] == &a[2]->request && out[1] == &a[3]->request);
    sequence_done(s, out[0], 6);
    sequence_done(s, out[1], 6);
    for (int i = 0; i < 4; i++) {
        mr_free(a[i]);
    }
    sequence_set_free(&s);
}

/* A batch may have to be smaller than usual, and is full then. */
static void oldest_with_a_limit(void **state)
{
    struct seq_options o = usual;
    struct seq_request *out[ROWS];
    struct seq_plan p;
    struct ask *a[] = {ask("S"), ask("S"), ask("S")};
    (void)state;

    o.places = o.max_rows = 4;
    o.max_delay_ns = 10 * MS;
    struct seq_set *s = set_new(o);
    admit(s, "a", a[0], 0);
    admit(s, "b", a[1], 0);
    admit(s, "c", a[2], 0);
    sequence_form(s, 0, 2, 0, out, &p);
    assert_true(p.count == 2 && p.rows == 2 && p.reason == MR_CLOSE_FULL);
    sequence_form(s, 0, 1, 0, out + 2, &p);
    assert_true(p.count == 1 && p.reason == MR_CLOSE_FULL);
    for (int i = 0; i < 3; i++) {
        sequence_done(s, out[i], 0);
        mr_free(a[i]);
    }
    sequence_set_free(&s);
}

static void oldest_delay_and_preferred(void **state)
{
    static const int32_t preferred[] = {2, 4};
    struct seq_options o = usual;
    struct seq_request *out[ROWS];
    struct ask *a[] = {ask("S"), ask("S"), ask("S"), ask("")};
    (void)state;

    o.places = 8;
    o.max_rows = 6;
    o.max_delay_ns = 10 * MS;
    o.preferred = preferred;
    o.preferred_count = 2;
    struct seq_set *s = set_new(o);
    admit(s, "a", a[0], 0);
    struct seq_plan p = form(s, 0, MS, out);
    assert_true(p.count == 0 && p.wait_until_ns == 10 * MS);
    admit(s, "b", a[1], 2 * MS);
    admit(s, "c", a[2], 2 * MS);
    p = form(s, 0, 2 * MS, out);
    assert_true(p.count == 2 && p.reason == MR_CLOSE_PREFERRED);
    assert_int_equal(form(s, 0, 12 * MS - 1, out + 2).count, 0);
    p = form(s, 0, 12 * MS, out + 2);
    assert_true(p.count == 1 && p.reason == MR_CLOSE_DELAY);
    for (int i = 0; i < 3; i++) {
        sequence_done(s, out[i], 12 * MS);
    }
    for (int i = 0; i < 4; i++) {
        mr_free(a[i]);
    }
    sequence_set_free(&s);
}

/* Without an empty slot no other request can come: waiting would be useless. */
static void oldest_does_not_wait_in_vain(void **state)
{
    struct seq_options o = usual;
    struct seq_request *out[ROWS];
    struct ask *a[] = {ask("S"), ask("S")};
    (void)state;

    o.max_rows = 8;
    o.max_delay_ns = 10 * MS;
    struct seq_set *s = set_new(o);
    admit(s, "a", a[0], 0);
    assert_int_equal(form(s, 0, 0, out).count, 0);
    admit(s, "b", a[1], 0);
    struct seq_plan p = form(s, 0, 0, out);
    assert_true(p.count == 2 && p.reason == MR_CLOSE_NO_COMPANY);
    sequence_done(s, out[0], 0);
    sequence_done(s, out[1], 0);
    mr_free(a[0]);
    mr_free(a[1]);
    sequence_set_free(&s);
}

/* Idle time counts from the end of the last request; running and waiting ones are not idle. */
static void idle(void **state)
{
    struct seq_options o = usual;
    struct seq_request *out[ROWS];
    struct ask *a[] = {ask("S"), ask("S"), ask("S")};
    (void)state;

    o.places = o.max_rows = 1;
    struct seq_set *s = set_new(o);
    assert_true(sequence_next_idle_ns(s) == INT64_MAX);
    admit(s, "a", a[0], 0);
    admit(s, "b", a[1], 0);
    form(s, 0, 0, out);
    *sequence_data(out[0]) = &dropped;
    assert_int_equal(sequence_reap(s, INT64_MAX), SEQ_NONE);
    sequence_done(s, out[0], 50 * MS);
    assert_true(sequence_next_idle_ns(s) == 150 * MS);
    assert_int_equal(sequence_reap(s, 150 * MS - 1), SEQ_NONE);
    assert_false(sequence_is_placed(&a[1]->request));
    assert_int_equal(sequence_reap(s, 150 * MS), 0);
    assert_int_equal(dropped, 1);
    assert_true(sequence_is_placed(&a[1]->request));              /* the backlog moves up */
    assert_int_equal(admit(s, "a", a[2], 151 * MS), SEQ_BACKLOG); /* a new sequence */
    assert_int_equal(sequence_reap(s, INT64_MAX), SEQ_NONE);      /* what waits is not idle */
    assert_int_equal(run_all(s, 200 * MS), 1);
    assert_int_equal(sequence_reap(s, 300 * MS), 0);
    assert_int_equal(run_all(s, 300 * MS), 1);
    for (int i = 0; i < 3; i++) {
        mr_free(a[i]);
    }
    sequence_set_free(&s);
}

/* A start of a running sequence takes its place in the queue. */
static void starts_anew(void **state)
{
    struct seq_set *s = set_new(usual);
    struct seq_request *out[ROWS];
    struct ask *a[] = {ask("S"), ask("S"), ask("E")};
    (void)state;

    for (int i = 0; i < 3; i++) {
        assert_int_equal(admit(s, "k", a[i], i), SEQ_PLACED);
    }
    assert_int_equal(sequence_count(s), 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(form(s, 0, 9, out).count, 1);
        assert_ptr_equal(out[0], &a[i]->request);
        sequence_done(s, out[0], 9);
        mr_free(a[i]);
    }
    assert_int_equal(sequence_count(s), 0);
    sequence_set_free(&s);
}

/* What ends early gives back all that waits, and its place when nothing of it runs. */
static void ends_early(void **state)
{
    struct seq_options o = usual;
    struct seq_requests out = TAILQ_HEAD_INITIALIZER(out);
    struct seq_request *running[ROWS];
    struct ask *a[] = {ask("S"), ask(""), ask(""), ask("S"), ask("S")};
    (void)state;

    o.places = o.max_rows = 1;
    struct seq_set *s = set_new(o);
    for (int i = 0; i < 3; i++) {
        admit(s, "a", a[i], i);
    }
    admit(s, "b", a[3], 3);
    form(s, 0, 4, running);
    assert_int_equal(sequence_end(s, &a[2]->request, &out), 0);
    assert_ptr_equal(TAILQ_FIRST(&out), &a[1]->request);
    assert_ptr_equal(TAILQ_NEXT(&a[1]->request, link), &a[2]->request);
    assert_null(a[1]->request.seq);
    assert_false(sequence_is_known(s, mr_str_c("a")));
    assert_false(sequence_is_placed(&a[3]->request)); /* the first still runs */
    sequence_done(s, running[0], 5);
    assert_true(sequence_is_placed(&a[3]->request));
    /* from the backlog: it had no place to give */
    assert_int_equal(admit(s, "c", a[4], 6), SEQ_BACKLOG);
    TAILQ_INIT(&out);
    assert_int_equal(sequence_end(s, &a[4]->request, &out), SEQ_NONE);
    assert_ptr_equal(TAILQ_FIRST(&out), &a[4]->request);
    assert_int_equal(sequence_count(s), 1);
    TAILQ_INIT(&out);
    assert_int_equal(sequence_end(s, &a[3]->request, &out), 0); /* ready, nothing runs */
    assert_int_equal(sequence_count(s), 0);
    assert_int_equal(form(s, 0, 7, running).count, 0);
    for (int i = 0; i < 5; i++) {
        mr_free(a[i]);
    }
    sequence_set_free(&s);
}

/* Of several starts of one key only the sequence of the request ends: the earlier and the later one go on. */
static void ends_between_starts(void **state)
{
    static const char *const marks[] = {"S", "", "S", "", "S", ""};
    (void)state;

    for (int gone = 0; gone < 6; gone++) {
        for (int is_backlog = 0; is_backlog < 2; is_backlog++) {
            struct seq_options o = usual;
            struct seq_requests out = TAILQ_HEAD_INITIALIZER(out);
            struct seq_request *run[ROWS];
            struct ask *other = ask("SE"), *a[6];
            o.places = o.max_rows = 1;
            struct seq_set *s = set_new(o);
            if (is_backlog) {
                admit(s, "other", other, 0);
            }
            for (int i = 0; i < 6; i++) {
                a[i] = ask(marks[i]);
                admit(s, "k", a[i], i);
            }
            sequence_end(s, &a[gone]->request, &out);
            for (int i = 0; i < 6; i++) {
                assert_int_equal(a[i]->request.seq == NULL, i / 2 == gone / 2);
            }
            assert_ptr_equal(TAILQ_FIRST(&out), &a[gone / 2 * 2]->request);
            assert_int_equal(sequence_is_known(s, mr_str_c("k")), gone < 4);
            for (int i = is_backlog ? -1 : 0; i < 6; i++) {
                if (i >= 0 && i / 2 == gone / 2) {
                    continue;
                }
                assert_int_equal(form(s, 0, 9, run).count, 1);
                assert_ptr_equal(run[0], i < 0 ? &other->request : &a[i]->request);
                sequence_done(s, run[0], 9);
            }
            assert_int_equal(sequence_count(s), gone < 4);
            for (int i = 0; i < 6; i++) {
                mr_free(a[i]);
            }
            mr_free(other);
            sequence_set_free(&s);
        }
    }
}

/* Of what runs: it is done as usual, and what follows it is given back. */
static void ends_while_it_runs(void **state)
{
    (void)state;

    for (int starts_anew = 0; starts_anew < 2; starts_anew++) {
        struct seq_set *s = set_new(usual);
        struct seq_requests out = TAILQ_HEAD_INITIALIZER(out);
        struct seq_request *run[ROWS];
        struct ask *a[] = {ask("S"), ask(""), ask(starts_anew ? "S" : "")};
        for (int i = 0; i < 3; i++) {
            admit(s, "k", a[i], i);
        }
        assert_int_equal(form(s, 0, 4, run).count, 1);
        assert_int_equal(sequence_end(s, run[0], &out), 0);
        assert_ptr_equal(TAILQ_FIRST(&out), &a[1]->request);
        assert_true(TAILQ_LAST(&out, seq_requests) == &a[starts_anew ? 1 : 2]->request);
        assert_int_equal(sequence_is_known(s, mr_str_c("k")), starts_anew);
        sequence_done(s, run[0], 5);
        assert_int_equal(sequence_count(s), starts_anew);
        assert_int_equal(run_all(s, 6), starts_anew);
        for (int i = 0; i < 3; i++) {
            mr_free(a[i]);
        }
        sequence_set_free(&s);
    }
}

/* Sets are freed with sequences that go on. */
static void freed_while_they_go_on(void **state)
{
    struct seq_set *s = set_new(usual);
    struct seq_request *out[ROWS];
    struct ask *a = ask("S");
    (void)state;

    admit(s, "k", a, 0);
    form(s, 0, 0, out);
    *sequence_data(out[0]) = &dropped;
    sequence_done(s, out[0], 0);
    sequence_set_free(&s);
    assert_int_equal(dropped, 1);
    mr_free(a);
}

/* ---- a simulation: random clients, and what must hold whatever they do ---- */

#define KEYS 12

struct client {
    struct ask *waiting[8]; /* of its sequence, in order; the first may run */
    int count;
    bool is_open; /* its sequence continues as far as the client knows */
    bool runs;
};

static struct client clients[KEYS];

static int key_of(const struct seq_request *r)
{
    for (int k = 0; k < KEYS; k++) {
        for (int i = 0; i < clients[k].count; i++) {
            if (&clients[k].waiting[i]->request == r) {
                return k;
            }
        }
    }
    fail_msg("a request that nobody sent");
    return -1;
}

static void forget_first(struct client *c)
{
    mr_free(c->waiting[0]);
    memmove(c->waiting, c->waiting + 1, (size_t)--c->count * sizeof c->waiting[0]);
}

/* The state of a simulation. */
struct world {
    const struct seq_options *o;
    struct seq_set *set;
    struct mr_rng rng;
    int64_t now;
    struct seq_request *running[4][ROWS];
    uint32_t counts[4];
};

static int draw(struct world *w, int sides)
{
    return (int)(mr_rng_unit(&w->rng) * sides);
}

static void sends(struct world *w, int k, bool is_last)
{
    struct client *c = &clients[k];
    struct ask *a = ask(!c->is_open ? "S" : is_last ? "E" : "");
    char key[16];

    snprintf(key, sizeof key, "%d", k);
    bool was_known = sequence_is_known(w->set, mr_str_c(key));
    a->shape = k % 2;
    if (admit(w->set, key, a, w->now) == SEQ_NO_START) {
        assert_true(!was_known && !a->request.is_start);
        mr_free(a); /* it was idle for too long */
        c->is_open = false;
        return;
    }
    c->is_open = !a->request.is_end;
    c->waiting[c->count++] = a;
}

static void runs(struct world *w, uint32_t in)
{
    struct seq_plan p = form(w->set, in, w->now, w->running[in]);

    assert_true(p.rows <= w->o->max_rows && p.count <= p.rows);
    for (uint32_t i = 0; i < p.count; i++) {
        struct seq_request *r = w->running[in][i];
        struct client *of = &clients[key_of(r)];
        assert_ptr_equal(&of->waiting[0]->request, r); /* in order */
        assert_false(of->runs);                        /* one at a time */
        assert_true(i == 0 || r->row > w->running[in][i - 1]->row);
        of->runs = true;
    }
    w->counts[in] = p.count;
}

static void finishes(struct world *w, uint32_t in)
{
    for (uint32_t i = 0; i < w->counts[in]; i++) {
        struct client *of = &clients[key_of(w->running[in][i])];
        sequence_done(w->set, w->running[in][i], w->now);
        of->runs = false;
        forget_first(of);
    }
    w->counts[in] = 0;
}

static void leaves(struct world *w, struct client *c)
{
    struct seq_requests out = TAILQ_HEAD_INITIALIZER(out);
    struct seq_request *q;
    int n = 0;

    sequence_end(w->set, &c->waiting[c->count - 1]->request, &out);
    TAILQ_FOREACH (q, &out, link) {
        n++;
    }
    assert_int_equal(n, c->count - c->runs);
    while (c->count > c->runs) {
        mr_free(c->waiting[--c->count]);
    }
    c->is_open = false;
}

static void reap_all(struct world *w)
{
    while (sequence_reap(w->set, w->now) != SEQ_NONE) {
        ;
    }
}

static void step(struct world *w, int nth)
{
    int k = draw(w, KEYS), what = draw(w, 8);
    uint32_t in = (uint32_t)draw(w, (int)w->o->instances);
    struct client *c = &clients[k];

    if (what < 3 && c->count < 8 && (c->is_open || c->count == 0)) {
        sends(w, k, what == 0);
    } else if (what < 6 && w->counts[in] == 0) {
        runs(w, in);
    } else if (what == 6) {
        finishes(w, in);
    } else if (what == 7 && c->count > c->runs && nth % 5 == 0) {
        leaves(w, c);
    }
    reap_all(w);
}

static void simulate(const struct seq_options *o, uint64_t seed)
{
    struct world w = {.o = o, .set = set_new(*o)};

    mr_rng_seed(&w.rng, seed);
    memset(clients, 0, sizeof clients);
    for (int nth = 0; nth < 20000; nth++, w.now += draw(&w, 2 * (int)MS)) {
        step(&w, nth);
    }
    for (uint32_t in = 0; in < o->instances; in++) {
        finishes(&w, in);
    }
    for (int round = 0; sequence_count(w.set) > 0; round++) { /* all of it ends */
        assert_true(round < 1000);
        w.now += 1000 * MS;
        for (uint32_t in = 0; in < o->instances; in++) {
            runs(&w, in);
            finishes(&w, in);
        }
        reap_all(&w);
    }
    for (int k = 0; k < KEYS; k++) {
        assert_int_equal(clients[k].count, 0);
    }
    for (uint32_t in = 0; in < o->instances; in++) {
        assert_false(sequence_is_used(w.set, in));
    }
    sequence_set_free(&w.set);
}

/* Running sequences of the instance end; waiting ones with their start stay, and others are not affected. */
static void state_is_lost(void **state)
{
    struct seq_options o = usual;
    struct ask *a[] = {ask("S"), ask("S"), ask("S"), ask(""), ask("S"), ask("")};
    struct seq_requests out = TAILQ_HEAD_INITIALIZER(out);
    struct seq_request *run[ROWS];
    (void)state;

    o.instances = 2;
    struct seq_set *s = set_new(o);
    admit(s, "idle", a[0], 0);      /* instance 0 */
    admit(s, "elsewhere", a[1], 0); /* 1 */
    admit(s, "anew", a[2], 0);      /* 0 */
    assert_int_equal(form(s, 0, 0, run).count, 2);
    sequence_done(s, run[0], 0);
    sequence_done(s, run[1], 0);
    assert_int_equal(form(s, 1, 0, run).count, 1);
    sequence_done(s, run[0], 0);
    admit(s, "anew", a[3], 1);
    admit(s, "anew", a[4], 2);
    admit(s, "anew", a[5], 3);
    sequence_lose(s, 0, &out);
    assert_ptr_equal(TAILQ_FIRST(&out), &a[3]->request);
    assert_null(TAILQ_NEXT(TAILQ_FIRST(&out), link));
    assert_null(a[3]->request.seq);
    assert_false(sequence_is_known(s, mr_str_c("idle")));
    assert_true(sequence_is_known(s, mr_str_c("anew")));
    assert_true(sequence_is_known(s, mr_str_c("elsewhere")));
    TAILQ_INIT(&out);
    sequence_lose(s, 0, &out); /* nothing has started since */
    assert_true(TAILQ_EMPTY(&out) && sequence_count(s) == 2);
    assert_int_equal(run_all(s, 4), 2);
    sequence_lose(s, 0, &out);
    sequence_lose(s, 1, &out);
    assert_true(TAILQ_EMPTY(&out) && sequence_count(s) == 0);
    for (int i = 0; i < 6; i++) {
        mr_free(a[i]);
    }
    sequence_set_free(&s);
}

static void lost_while_one_runs(void **state)
{
    struct seq_set *s = set_new(usual);
    struct ask *a[] = {ask("S"), ask(""), ask("S")};
    struct seq_requests out = TAILQ_HEAD_INITIALIZER(out);
    struct seq_request *run[ROWS];
    (void)state;

    admit(s, "k", a[0], 0);
    assert_int_equal(form(s, 0, 0, run).count, 1);
    admit(s, "k", a[1], 1);
    sequence_lose(s, 0, &out);
    assert_ptr_equal(TAILQ_FIRST(&out), &a[1]->request);
    assert_int_equal(sequence_count(s), 1);
    assert_int_equal(admit(s, "k", a[2], 2), SEQ_PLACED); /* another sequence of that key */
    sequence_done(s, run[0], 2);
    assert_int_equal(sequence_count(s), 1);
    assert_int_equal(run_all(s, 3), 1);
    for (int i = 0; i < 3; i++) {
        mr_free(a[i]);
    }
    sequence_set_free(&s);
}

/* The key is free at once; what waits and runs is answered, and the place is free after that. */
static void left(void **state)
{
    struct seq_options o = usual;
    o.places = 1;
    struct seq_set *s = set_new(o);
    struct ask *a[] = {ask("S"), ask(""), ask("S"), ask("S")};
    struct seq_request *run[ROWS];
    (void)state;

    assert_int_equal(sequence_leave(s, mr_str_c("k")), SEQ_NONE);
    admit(s, "k", a[0], 0);
    assert_int_equal(form(s, 0, 0, run).count, 1);
    admit(s, "k", a[1], 0);
    admit(s, "backlog", a[2], 0);
    assert_int_equal(sequence_leave(s, mr_str_c("k")), 0);
    assert_int_equal(sequence_leave(s, mr_str_c("backlog")), SEQ_NONE);
    assert_int_equal(sequence_leave(s, mr_str_c("k")), SEQ_NONE);
    assert_false(sequence_is_known(s, mr_str_c("k")) || sequence_is_known(s, mr_str_c("backlog")));
    assert_int_equal(sequence_count(s), 2);
    sequence_done(s, run[0], 1);
    assert_int_equal(run_all(s, 1), 2);
    assert_int_equal(sequence_count(s), 0);
    admit(s, "idle", a[3], 2);
    assert_int_equal(run_all(s, 2), 1);
    assert_int_equal(sequence_leave(s, mr_str_c("idle")), 0);
    assert_int_equal(sequence_count(s), 0);
    for (int i = 0; i < 4; i++) {
        mr_free(a[i]);
    }
    sequence_set_free(&s);
}

/* Whatever is idle makes room for what waits, and nothing else. */
static void hastened(void **state)
{
    struct seq_set *s = set_new(usual);
    struct ask *a[] = {ask("S"), ask("S"), ask("S"), ask("S"), ask("")};
    struct seq_request *run[ROWS];
    (void)state;

    admit(s, "a", a[0], 0);
    assert_int_equal(run_all(s, 0), 1);
    sequence_hasten(s);
    assert_int_equal(sequence_next_idle_ns(s), 100 * MS);
    assert_int_equal(sequence_reap(s, 1), SEQ_NONE);
    admit(s, "b", a[1], 1);
    assert_int_equal(form(s, 0, 1, run).count, 1);
    assert_int_equal(admit(s, "c", a[2], 1), SEQ_BACKLOG);
    assert_int_equal(admit(s, "d", a[3], 1), SEQ_BACKLOG);
    assert_true(sequence_next_idle_ns(s) <= 1);
    assert_int_equal(sequence_reap(s, 1), 0);
    assert_int_equal(sequence_reap(s, 1), SEQ_NONE); /* b runs */
    assert_false(sequence_is_known(s, mr_str_c("a")));
    assert_true(sequence_is_placed(&a[2]->request) && !sequence_is_placed(&a[3]->request));
    sequence_done(s, run[0], 2);
    assert_int_equal(sequence_reap(s, 2), 0);
    assert_int_equal(run_all(s, 2), 2);
    assert_int_equal(sequence_reap(s, 3), SEQ_NONE);
    assert_int_equal(admit(s, "d", a[4], 3), SEQ_PLACED); /* nothing waits: it goes on */
    assert_int_equal(run_all(s, 3), 1);
    assert_int_equal(sequence_count(s), 2);
    for (int i = 0; i < 5; i++) {
        mr_free(a[i]);
    }
    sequence_set_free(&s);
}

static void simulations(void **state)
{
    static const int32_t preferred[] = {2};
    (void)state;

    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct seq_options o = usual;
        o.instances = 1 + seed % 3;
        o.places = 1 + seed % 4;
        o.is_direct = seed % 2;
        o.max_rows = o.is_direct ? o.places : 2;
        o.max_delay_ns = seed % 4 < 2 ? 0 : 5 * MS;
        o.min_utilization = 0.6f;
        o.preferred = preferred;
        o.preferred_count = 1;
        simulate(&o, seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(begins_goes_on_ends),
        cmocka_unit_test(one_at_a_time),
        cmocka_unit_test(places_and_backlog),
        cmocka_unit_test(direct_rows),
        cmocka_unit_test(direct_shapes),
        cmocka_unit_test(direct_utilization),
        cmocka_unit_test(oldest_first),
        cmocka_unit_test(oldest_with_a_limit),
        cmocka_unit_test(oldest_delay_and_preferred),
        cmocka_unit_test(oldest_does_not_wait_in_vain),
        cmocka_unit_test(idle),
        cmocka_unit_test(starts_anew),
        cmocka_unit_test(ends_early),
        cmocka_unit_test(ends_between_starts),
        cmocka_unit_test(ends_while_it_runs),
        cmocka_unit_test(state_is_lost),
        cmocka_unit_test(lost_while_one_runs),
        cmocka_unit_test(freed_while_they_go_on),
        cmocka_unit_test(left),
        cmocka_unit_test(hastened),
        cmocka_unit_test(simulations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
