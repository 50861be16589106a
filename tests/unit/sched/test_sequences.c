/* Requests of sequences through a scheduler with threads: all are answered, in order, by the right instance's thread, whichever
 * clients disconnect in between. The rules themselves are test_sequence.c's. */
#include "harness.h"
#include "sched/sequences.h"

#define SEQUENCES 24
#define LENGTH    5

struct setup {
    struct harness h;
    Inference__ModelSequenceBatching batching;
    Inference__ModelSequenceBatching__StrategyOldest oldest;
};

static void open_as(struct setup *t, bool is_decoupled, bool is_direct, int max_batch,
                    const char *backend, const struct mr_setting *settings, uint32_t count)
{
    struct harness *h = &t->h;

    harness_init(h);
    h->version.is_decoupled = is_decoupled;
    inference__model_sequence_batching__init(&t->batching);
    inference__model_sequence_batching__strategy_oldest__init(&t->oldest);
    t->batching.max_sequence_idle_microseconds = 3600000000u;
    t->oldest.max_candidate_sequences = 6;
    if (!is_direct) {
        t->batching.strategy_choice_case =
            INFERENCE__MODEL_SEQUENCE_BATCHING__STRATEGY_CHOICE_OLDEST;
        t->batching.oldest = &t->oldest;
    }
    h->version.max_batch_size = h->config.max_batch_size = max_batch;
    h->group.count = 2;
    h->config.scheduling_choice_case = INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING;
    h->config.sequence_batching = &t->batching;
    harness_open(h, backend, settings, count);
}

static void open_with(struct setup *t, bool is_direct, int max_batch, const char *backend,
                      const struct mr_setting *settings, uint32_t count)
{
    open_as(t, false, is_direct, max_batch, backend, settings, count);
}

static void response_end(struct mr_infer *r, struct mr_response *q)
{
    mr_infer_response_end(r, &q);
}

struct step {
    struct ask ask;
    struct mr_sequence_ref ref;
};

static void step_init(struct step *st, struct harness *h, uint64_t id, int n)
{
    ask_init(&st->ask, h, 1, (int32_t)(id * 100) + n);
    st->ref = (struct mr_sequence_ref){.number = id,
                                       .flags = (n == 0 ? MR_SEQUENCE_START : 0) |
                                                (n == LENGTH - 1 ? MR_SEQUENCE_END : 0)};
    st->ask.infer.sequence = &st->ref;
}

static void all_are_answered(void **state)
{
    static const struct mr_setting later[] = {
        {"async", "1"}, {"max_pending", "3"}, {"responses", "2"}};
    static struct step steps[LENGTH][SEQUENCES];
    (void)state;

    for (int mode = 0; mode < 16; mode++) {
        struct setup t;
        struct mr_sched_stats st;
        bool is_later = (mode & 2) != 0, is_decoupled = (mode & 8) != 0;
        open_as(&t, is_decoupled, mode & 1, mode & 4 ? 4 : 0, is_later ? "fault" : "identity",
                later, is_later ? 3 : 0);
        for (int n = 0; n < LENGTH; n++) {
            for (int k = 0; k < SEQUENCES; k++) {
                step_init(&steps[n][k], &t.h, (uint64_t)k + 1, n);
                steps[n][k].ask.infer.on_response = response_end;
                assert_int_equal(ask_submit(&steps[n][k].ask), MR_OK);
            }
        }
        for (int n = 0; n < LENGTH; n++) {
            for (int k = 0; k < SEQUENCES; k++) {
                ask_wait(&t.h, &steps[n][k].ask);
                assert_int_equal(steps[n][k].ask.infer.status, MR_OK);
                if (!is_decoupled) {
                    ask_check(&steps[n][k].ask, 1);
                }
                if (n > 0) {
                    assert_true(steps[n][k].ask.order > steps[n - 1][k].ask.order);
                }
            }
        }
        for (int n = 0; n < LENGTH; n++) {
            for (int k = 0; k < SEQUENCES; k++) {
                ask_fini(&steps[n][k].ask);
            }
        }
        mr_sched_stats_sum(&t.h.version, &st);
        assert_int_equal(st.success.count, LENGTH * SEQUENCES);
        assert_int_equal(st.inference_count, LENGTH * SEQUENCES);
        struct mr_sched *s = t.h.version.sched;
        assert_int_equal(sequence_count(s->sequences->set), 0);
        assert_int_equal(s->queued, 0);
        assert_int_equal(s->inflight_rows, 0);
        harness_close(&t.h);
    }
}

/* Clients leave as they please: every request ends once, and nothing is left of a sequence. */
static void some_are_cancelled(void **state)
{
    static struct step steps[LENGTH][SEQUENCES];
    (void)state;

    for (int mode = 0; mode < 4; mode++) {
        struct setup t;
        bool was_refused[LENGTH][SEQUENCES] = {0};
        int answered = 0, cancelled = 0, refused = 0;
        open_with(&t, mode & 1, mode & 2 ? 4 : 0, "identity", NULL, 0);
        for (int n = 0; n < LENGTH; n++) {
            for (int k = 0; k < SEQUENCES; k++) {
                step_init(&steps[n][k], &t.h, (uint64_t)k + 1, n);
                was_refused[n][k] = ask_submit(&steps[n][k].ask) != MR_OK;
                if (k % 3 == 0 && n == k % LENGTH && mr_sched_cancel(&steps[n][k].ask.infer)) {
                    ask_done(&steps[n][k].ask.infer);
                }
            }
        }
        for (int n = 0; n < LENGTH; n++) {
            for (int k = 0; k < SEQUENCES; k++) {
                ask_wait(&t.h, &steps[n][k].ask);
                int status = steps[n][k].ask.infer.status;
                answered += status == MR_OK;
                cancelled += status == MR_E_CANCELLED;
                refused += status == MR_E_INVALID;
                assert_true((status == MR_E_INVALID) == was_refused[n][k]);
            }
        }
        assert_int_equal(answered + cancelled + refused, LENGTH * SEQUENCES);
        assert_true(answered >= SEQUENCES - SEQUENCES / 3);
        for (int n = 0; n < LENGTH; n++) {
            for (int k = 0; k < SEQUENCES; k++) {
                ask_fini(&steps[n][k].ask);
            }
        }
        assert_int_equal(((struct mr_sched *)t.h.version.sched)->inflight_rows, 0);
        harness_close(&t.h);
    }
}

/* A scheduler ends with sequences that go on. */
static void closed_while_they_go_on(void **state)
{
    struct setup t;
    struct step st[3];
    (void)state;

    open_with(&t, true, 4, "identity", NULL, 0);
    for (int k = 0; k < 3; k++) {
        step_init(&st[k], &t.h, (uint64_t)k + 1, 0);
        assert_int_equal(ask_submit(&st[k].ask), MR_OK);
        ask_wait(&t.h, &st[k].ask);
        ask_check(&st[k].ask, 1);
        ask_fini(&st[k].ask);
    }
    harness_close(&t.h);
}

/* Sequences without an end keep all places; the others are answered since the scheduler is to end, those that come later
 * too, and a sequence that is left ends as well. */
static void answered_before_the_end(void **state)
{
    static struct step steps[2][SEQUENCES];
    (void)state;

    for (int mode = 0; mode < 4; mode++) {
        struct setup t;
        open_with(&t, mode & 1, mode & 2 ? 4 : 0, "identity", NULL, 0);
        for (int n = 0; n < 2; n++) {
            for (int k = 0; k < SEQUENCES; k++) {
                step_init(&steps[n][k], &t.h, (uint64_t)(n * SEQUENCES + k) + 1, 0);
                assert_int_equal(ask_submit(&steps[n][k].ask), MR_OK);
                if (n == 0 && k == SEQUENCES / 2) {
                    mr_sched_hasten(&t.h.version);
                }
            }
        }
        for (int n = 0; n < 2; n++) {
            for (int k = 0; k < SEQUENCES; k++) {
                ask_wait(&t.h, &steps[n][k].ask);
                ask_check(&steps[n][k].ask, 1);
                ask_fini(&steps[n][k].ask);
            }
        }
        for (uint64_t id = 1; id <= 2 * SEQUENCES; id++) {
            mr_sched_leave_sequence(&t.h.version, id, (mr_str){NULL, 0});
            assert_false(mr_sched_has_sequence(&t.h.version, id, (mr_str){NULL, 0}, false));
        }
        assert_int_equal(mr_sched_sequences(&t.h.version), 0);
        harness_close(&t.h);
    }
}

/* Its caller has no timers, and all places stay taken. */
static void waits_too_long_for_a_place(void **state)
{
    struct setup t;
    struct step st[4];
    bool is_late =
        false; /* the third one's time was over before the fourth was submitted, which then begins nothing */
    (void)state;

    open_with(&t, true, 0, "identity", NULL, 0);
    for (int i = 0; i < 4; i++) {
        step_init(&st[i], &t.h, MR_MIN((uint64_t)i, 2) + 1, i == 3);
        st[i].ask.infer.timeout_us = i == 2 ? 1000 : 0;
        is_late = ask_submit(&st[i].ask) != MR_OK;
        assert_false(is_late && i < 3);
    }
    for (int i = 0; i < 4; i++) {
        if (i < 3 || !is_late) {
            ask_wait(&t.h, &st[i].ask);
            assert_int_equal(st[i].ask.infer.status, i < 2 ? MR_OK : MR_E_UNAVAILABLE);
        }
        ask_fini(&st[i].ask);
    }
    assert_int_equal(mr_sched_sequences(&t.h.version), 2);
    harness_close(&t.h);
}

static int execute_none(struct mr_executor *e, struct mr_execution *x, struct mr_err *err)
{
    (void)e, (void)x;
    MR_FAIL(err, MR_E_UNAVAILABLE, "no process");
    err->flags |= MR_ERR_NOT_RUN;
    return err->status;
}

/* The first request ends in the line of a process, which never has it: the next one does not go on from there. */
static void one_does_not_run(void **state)
{
    struct setup t;
    struct step st[3];
    (void)state;

    for (int at = 1; at < 3; at++) { /* where the sequence starts again, if it does */
        open_with(&t, true, 4, "identity", NULL, 0);
        struct mr_executor_ops none = *t.h.model->ops;
        const struct mr_executor_ops *all = t.h.model->ops;
        struct mr_sched *s = t.h.version.sched;
        none.execute = execute_none;
        t.h.model->ops = &none;
        pthread_mutex_lock(&s->mutex);
        s->options.hold_until_queued = 3;
        s->is_released = false;
        pthread_mutex_unlock(&s->mutex);
        for (int i = 0; i < 3; i++) {
            step_init(&st[i], &t.h, 7, i == at ? 0 : i);
            assert_int_equal(ask_submit(&st[i].ask), MR_OK);
        }
        for (int i = 0; i < 3; i++) {
            ask_wait(&t.h, &st[i].ask);
            assert_int_equal(st[i].ask.infer.status, MR_E_UNAVAILABLE);
            assert_int_equal(st[i].ask.infer.is_executed, i == 0 || i == at);
            ask_fini(&st[i].ask);
        }
        assert_false(mr_sched_has_sequence(&t.h.version, 7, (mr_str){NULL, 0}, false));
        assert_int_equal(mr_sched_sequences(&t.h.version), 0);
        assert_int_equal(s->inflight_rows, 0);
        t.h.model->ops = all;
        harness_close(&t.h);
    }
}

/* What follows a start that finds no room, or no memory, does not join the sequence that it was to start again. */
static void a_start_without_room(void **state)
{
    static const struct {
        uint64_t id;
        int n;
        uint32_t max_queued;
        int rc;
    } rows[] = {{8, 0, 1, MR_OK}, {7, 0, 1, MR_E_UNAVAILABLE}, {7, 1, 9, MR_E_INVALID},
                {7, 0, 9, MR_OK}, {7, 0, 9, MR_E_EXHAUSTED},   {7, 1, 9, MR_E_INVALID}};
    enum { ROWS = sizeof rows / sizeof rows[0] };
    struct setup t;
    struct step st[ROWS + 1];
    (void)state;

    open_with(&t, true, 4, "identity", NULL, 0);
    struct mr_sched *s = t.h.version.sched;
    step_init(&st[ROWS], &t.h, 7, 0);
    assert_int_equal(ask_submit(&st[ROWS].ask), MR_OK);
    ask_wait(&t.h, &st[ROWS].ask);
    pthread_mutex_lock(&s->mutex);
    s->options.hold_until_queued = 2;
    s->is_released = false;
    pthread_mutex_unlock(&s->mutex);
    for (int i = 0; i < ROWS; i++) {
        pthread_mutex_lock(&s->mutex);
        s->options.max_queue_size = rows[i].max_queued;
        pthread_mutex_unlock(&s->mutex);
        step_init(&st[i], &t.h, rows[i].id, rows[i].n);
        while (rows[i].rc == MR_E_EXHAUSTED && mr_arena_try(st[i].ask.infer.arena, 8, 8)) {
        }
        assert_int_equal(ask_submit(&st[i].ask), rows[i].rc);
    }
    for (int i = 0; i <= ROWS; i++) {
        ask_wait(&t.h, &st[i].ask);
        ask_fini(&st[i].ask);
    }
    harness_close(&t.h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_answered),           cmocka_unit_test(some_are_cancelled),
        cmocka_unit_test(closed_while_they_go_on),    cmocka_unit_test(answered_before_the_end),
        cmocka_unit_test(waits_too_long_for_a_place), cmocka_unit_test(one_does_not_run),
        cmocka_unit_test(a_start_without_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
