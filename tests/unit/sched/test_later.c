/* Executions that end later, and decoupled models: completion from another thread, early completion, cancellation,
 * several pending executions, several answers, and answers that are not taken. */
#include "harness.h"
#include "sched/sched_priv.h"

static void open_with(struct harness *h, const struct mr_setting *settings, uint32_t count)
{
    harness_init(h);
    harness_open(h, "fault", settings, count);
}

static void ends_later(void **state)
{
    static const struct mr_setting modes[][1] = {{{"async", "1"}}, {{"async", "2"}}};
    (void)state;

    for (size_t m = 0; m < 2; m++) {
        struct harness h;
        struct mr_sched_stats st;
        struct ask a[20];
        open_with(&h, modes[m], 1);
        for (int i = 0; i < 20; i++) {
            ask_init(&a[i], &h, 1, i * 10);
            assert_int_equal(ask_submit(&a[i]), MR_OK);
        }
        for (int i = 0; i < 20; i++) {
            ask_wait(&h, &a[i]);
            ask_check(&a[i], 1);
            assert_true(a[i].infer.times.start <= a[i].infer.times.end);
            ask_fini(&a[i]);
        }
        mr_sched_stats_sum(&h.version, &st);
        assert_int_equal(st.execution_count, 20);
        assert_int_equal(st.success.count, 20);
        harness_close(&h);
    }
}

static void batches_end_later(void **state)
{
    const struct mr_setting settings[] = {{"async", "1"}, {"max_pending", "3"}};
    struct harness h;
    struct ask a[30];
    (void)state;

    for (int in_order = 0; in_order < 2; in_order++) {
        harness_init(&h);
        harness_batching(&h, 4, 100);
        h.batching.preserve_ordering = in_order;
        harness_open(&h, "fault", settings, 2);
        for (int i = 0; i < 30; i++) {
            ask_init(&a[i], &h, 1 + i % 3, i * 10);
            assert_int_equal(ask_submit(&a[i]), MR_OK);
        }
        for (int i = 0; i < 30; i++) {
            ask_wait(&h, &a[i]);
            ask_check(&a[i], 1 + i % 3);
            if (in_order && i > 0) {
                assert_true(a[i].order > a[i - 1].order);
            }
        }
        for (int i = 0; i < 30; i++) {
            ask_fini(&a[i]);
        }
        harness_close(&h);
    }
}

/* The backend cannot answer several requests together: each runs alone, whenever the failures come. It refuses calls at
 * once, and more pending executions than it has asked for. */
static void outputs_that_do_not_fit_together(void **state)
{
    static const struct mr_setting modes[][3] = {
        {{"apart", "true"}, {"async", "0"}, {"max_pending", "0"}},
        {{"apart", "true"}, {"async", "1"}, {"max_pending", "0"}},
        {{"apart", "true"}, {"async", "1"}, {"max_pending", "3"}},
        {{"apart", "true"}, {"async", "2"}, {"max_pending", "0"}}};
    (void)state;

    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
        struct harness h;
        struct mr_sched_stats st;
        struct ask a[16];
        harness_init(&h);
        harness_batching(&h, 8, 1000000);
        harness_open(&h, "fault", modes[m], 3);
        for (int i = 0; i < 16; i++) {
            ask_init(&a[i], &h, 1, i * 10);
            assert_int_equal(ask_submit(&a[i]), MR_OK);
        }
        for (int i = 0; i < 16; i++) {
            ask_wait(&h, &a[i]);
            ask_check(&a[i], 1);
            ask_fini(&a[i]);
        }
        mr_sched_stats_sum(&h.version, &st);
        assert_int_equal(st.execution_count, 16);
        assert_int_equal(st.success.count, 16);
        harness_close(&h);
    }
}

/* All requests, or one of them; with a text that is not UTF-8. */
static void fails_later(void **state)
{
    static const char *const requests[] = {"-1", "0"};
    (void)state;

    for (int i = 0; i < 2; i++) {
        const struct mr_setting settings[] = {{"async", "1"},
                                              {"fail_status", "UNAVAILABLE"},
                                              {"fail_message", "gone: caf\xE9!"},
                                              {"fail_request", requests[i]}};
        struct harness h;
        struct ask a;
        open_with(&h, settings, 4);
        ask_init(&a, &h, 1, 1);
        assert_int_equal(ask_submit(&a), MR_OK);
        ask_wait(&h, &a);
        assert_int_equal(a.infer.status, MR_E_UNAVAILABLE);
        assert_string_equal(a.infer.err.msg, "gone: caf\xEF\xBF\xBD!");
        ask_fini(&a);
        harness_close(&h);
    }
}

static uint32_t executions(struct harness *h)
{
    struct mr_sched *s = h->version.sched;

    pthread_mutex_lock(&s->mutex);
    uint32_t n = s->instances[0].executions;
    pthread_mutex_unlock(&s->mutex);
    return n;
}

/* Those in the queue and on the instance of the model's thread: not inline. */
static uint32_t left_to_threads(struct harness *h)
{
    struct mr_sched *s = h->version.sched;

    pthread_mutex_lock(&s->mutex);
    uint32_t n = s->queued + s->instances[0].executions;
    pthread_mutex_unlock(&s->mutex);
    return n;
}

static void cancel_and_wait(struct harness *h, struct ask *a)
{
    if (mr_sched_cancel(&a->infer)) {
        ask_done(&a->infer);
    }
    ask_wait(h, a);
    assert_int_equal(a->infer.status, MR_E_CANCELLED);
    ask_fini(a);
}

/* Of the instance of a network thread, too, no more executions are pending than it may have. */
static void inline_executions_that_end_later(void **state)
{
    const struct mr_setting settings[] = {
        {"async", "1"}, {"until_cancelled", "true"}, {"max_pending", "2"}};
    struct harness h;
    struct ask a[4];
    (void)state;

    harness_init(&h);
    h.options.inline_threshold_ns = 3600 * MR_NS_PER_S;
    harness_open(&h, "fault", settings, 3);
    cost_add_queued(h.version.sched, 8, 1000);
    for (int i = 0; i < 3; i++) {
        ask_init(&a[i], &h, 1, i);
        assert_int_equal(ask_submit(&a[i]), MR_OK);
        assert_int_equal(left_to_threads(&h), i == 2);
    }
    cancel_and_wait(&h, &a[0]);
    ask_init(&a[3], &h, 1, 3);
    assert_int_equal(ask_submit(&a[3]), MR_OK);
    assert_int_equal(left_to_threads(&h), 1);
    for (int i = 1; i < 4; i++) {
        cancel_and_wait(&h, &a[i]);
    }
    harness_close(&h);
}

/* Executions that only a cancel ends: as many as may be pending are, and the others wait in the queue. */
static void cancel_reaches(void **state)
{
    const struct mr_setting settings[] = {
        {"async", "1"}, {"until_cancelled", "true"}, {"max_pending", "2"}};
    struct harness h;
    struct ask a[4];
    (void)state;

    open_with(&h, settings, 3);
    for (int i = 0; i < 4; i++) {
        ask_init(&a[i], &h, 1, i);
        assert_int_equal(ask_submit(&a[i]), MR_OK);
    }
    while (executions(&h) < 2) {
        sched_yield();
    }
    assert_int_equal(mr_sched_pending(&h.version), 2);
    for (int i = 0; i < 4; i++) {
        while (i < 2 ? false : executions(&h) < 2 && mr_sched_pending(&h.version) > 0) {
            sched_yield();
        }
        if (mr_sched_cancel(&a[i].infer)) {
            ask_done(&a[i].infer);
        }
        ask_wait(&h, &a[i]);
        assert_int_equal(a[i].infer.status, MR_E_CANCELLED);
        mr_sched_cancel(&a[i].infer); /* nothing any more */
    }
    for (int i = 0; i < 4; i++) {
        ask_fini(&a[i]);
    }
    harness_close(&h);
}

/* ---- several answers ---- */

struct stream {
    struct ask ask;
    struct mr_response *kept;
    bool keeps; /* answers are not given back */
    int count;
    int final;
    int empty;
};

static void on_response(struct mr_infer *r, struct mr_response *q)
{
    struct stream *st = MR_CONTAINER_OF(r, struct stream, ask.infer);

    assert_false(st->ask.is_done);
    assert_int_equal(st->final, 0);
    st->count++;
    st->final += q->is_final;
    st->empty += q->outputs.list == NULL;
    if (q->outputs.list) {
        assert_int_equal(q->outputs.list[0].tensor.bytes, 8);
        assert_memory_equal(q->outputs.list[0].tensor.data, st->ask.data, 8);
    }
    if (st->keeps) {
        q->next = st->kept;
        st->kept = q;
    } else {
        mr_infer_response_end(r, &q);
    }
}

/* Of one element. */
static void on_scalar(struct mr_infer *r, struct mr_response *q)
{
    struct stream *st = MR_CONTAINER_OF(r, struct stream, ask.infer);

    assert_int_equal(q->outputs.list[0].tensor.rank, 1);
    assert_int_equal(q->outputs.list[0].tensor.shape[0], 1);
    st->count++;
    st->final += q->is_final;
    q->next = st->kept;
    st->kept = q;
}

static void stream_init(struct stream *st, struct harness *h, int first)
{
    *st = (struct stream){0};
    ask_init(&st->ask, h, 1, first);
    st->ask.infer.on_response = on_response;
}

static void stream_fini(struct stream *st)
{
    while (st->kept) {
        struct mr_response *q = st->kept;
        st->kept = q->next;
        mr_infer_response_end(&st->ask.infer, &q);
    }
    ask_fini(&st->ask);
}

static void several_answers(void **state)
{
    static const struct {
        const char *backend;
        struct mr_setting settings[3];
        int answers, final, empty, status;
    } rows[] = {
        {"identity", {{"repeat", "5"}}, 5, 1, 0, MR_OK},
        {"identity", {{"repeat", "0"}}, 1, 1, 1, MR_OK},
        {"identity", {{"repeat", "1000"}}, 1000, 1, 0, MR_OK},
        {"fault", {{"responses", "7"}}, 7, 1, 0, MR_OK},
        {"fault", {{"responses", "7"}, {"async", "1"}}, 7, 1, 0, MR_OK},
        {"fault", {{"responses", "7"}, {"async", "2"}}, 7, 1, 0, MR_OK},
        {"fault", {{"responses", "3"}, {"no_final", "1"}}, 3, 0, 0, MR_OK},
        {"fault", {{"responses", "0"}}, 0, 0, 0, MR_OK},
        /* a request that has its answers does not fail with what its execution does afterwards */
        {"fault", {{"responses", "2"}, {"after_final", "1"}}, 2, 1, 0, MR_OK},
        {"fault", {{"fail_status", "IO"}, {"responses", "2"}}, 0, 0, 0, MR_E_IO},
    };
    (void)state;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct harness h;
        struct stream st;
        uint32_t settings = 0;
        while (settings < 3 && rows[i].settings[settings].key) {
            settings++;
        }
        harness_init(&h);
        h.version.is_decoupled = true;
        harness_open(&h, rows[i].backend, rows[i].settings, settings);
        stream_init(&st, &h, 3);
        assert_int_equal(ask_submit(&st.ask), MR_OK);
        ask_wait(&h, &st.ask);
        assert_int_equal(st.ask.infer.status, rows[i].status);
        assert_int_equal(st.count, rows[i].answers);
        assert_int_equal(st.final, rows[i].final);
        assert_int_equal(st.empty, rows[i].empty);
        stream_fini(&st);
        harness_close(&h);
    }
}

static void batches_of_several(void **state)
{
    const struct mr_setting settings[] = {{"repeat", "3"}};
    struct harness h;
    struct stream st[8];
    (void)state;

    harness_init(&h);
    harness_batching(&h, 4, 1000);
    h.version.is_decoupled = true;
    harness_open(&h, "identity", settings, 1);
    for (int i = 0; i < 8; i++) {
        stream_init(&st[i], &h, i);
        assert_int_equal(ask_submit(&st[i].ask), MR_OK);
    }
    for (int i = 0; i < 8; i++) {
        ask_wait(&h, &st[i].ask);
        assert_int_equal(st[i].count, 3);
        stream_fini(&st[i]);
    }
    harness_close(&h);
}

/* Of two requests that run together, the first one is over with its last answer, or its error, and its memory is gone,
 * while the client of the second one does not read. */
static void each_ends_by_itself(void **state)
{
    static const struct {
        const char *backend;
        struct mr_setting settings[3];
        int answers, status;
    } rows[] = {
        {"identity", {{"repeat", "100"}}, 100, MR_OK},
        {"fault", {{"responses", "100"}}, 100, MR_OK},
        {"fault", {{"responses", "100"}, {"async", "1"}}, 100, MR_OK},
        {"fault",
         {{"responses", "100"}, {"fail_request", "0"}, {"fail_status", "NOT_FOUND"}},
         0,
         MR_E_NOT_FOUND},
    };
    (void)state;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct harness h;
        struct mr_sched_stats sums;
        struct stream first, second;
        uint32_t settings = 0;
        while (settings < 3 && rows[i].settings[settings].key) {
            settings++;
        }
        harness_init(&h);
        harness_batching(&h, 2, 1000000);
        h.version.is_decoupled = true;
        harness_open(&h, rows[i].backend, rows[i].settings, settings);
        stream_init(&first, &h, 1);
        stream_init(&second, &h, 5);
        second.keeps = true;
        assert_int_equal(ask_submit(&first.ask), MR_OK);
        assert_int_equal(ask_submit(&second.ask), MR_OK);
        while (second.count < 64) {
            sched_yield();
            mr_mailbox_drain(&h.box);
        }
        assert_true(first.ask.is_done);
        assert_int_equal(first.ask.infer.status, rows[i].status);
        assert_int_equal(first.count, rows[i].answers);
        assert_true(first.ask.infer.times.queued <= first.ask.infer.times.start);
        assert_true(first.ask.infer.times.infer_start <= first.ask.infer.times.end);
        assert_false(mr_sched_cancel(&first.ask.infer)); /* too late: the second one goes on */
        stream_fini(&first);
        memset(&first, 0xff, sizeof first);
        assert_false(second.ask.is_done);
        second.keeps = false;
        while (second.kept) {
            struct mr_response *q = second.kept;
            second.kept = q->next;
            mr_infer_response_end(&second.ask.infer, &q);
        }
        ask_wait(&h, &second.ask);
        assert_int_equal(second.ask.infer.status, MR_OK);
        assert_int_equal(second.count, 100);
        stream_fini(&second);
        mr_sched_stats_sum(&h.version, &sums);
        assert_int_equal(sums.execution_count, 1);
        assert_int_equal(sums.success.count, 1 + (rows[i].status == MR_OK));
        assert_int_equal(sums.fail.count, rows[i].status < 0);
        harness_close(&h);
    }
}

/* The cancel of all that has not ended ends an execution. */
static void cancel_of_the_rest(void **state)
{
    const struct mr_setting settings[] = {{"repeat", "1000000000"}};
    const struct mr_setting once[] = {{"repeat", "1"}};
    struct harness h;
    struct stream first, second;
    (void)state;

    harness_init(&h);
    harness_batching(&h, 2, 1000000);
    h.version.is_decoupled = true;
    harness_open(&h, "identity", settings, 1);
    stream_init(&first, &h, 1);
    first.ask.infer.parameters = once;
    first.ask.infer.parameter_count = 1;
    stream_init(&second, &h, 5);
    assert_int_equal(ask_submit(&first.ask), MR_OK);
    assert_int_equal(ask_submit(&second.ask), MR_OK);
    while (second.count == 0) {
        harness_wait(&h);
    }
    assert_true(first.ask.is_done);
    stream_fini(&first);
    assert_false(mr_sched_cancel(&second.ask.infer));
    ask_wait(&h, &second.ask);
    assert_int_equal(second.ask.infer.status, MR_E_CANCELLED);
    stream_fini(&second);
    harness_close(&h);
}

/* Callbacks of requests without a thread of their own come in the same order, on the thread that has the answer. */
static void ends_on_the_thread_that_answers(void **state)
{
    struct harness h;
    struct mr_err err;
    struct stream st[2] = {0};
    struct mr_infer *items[] = {&st[0].ask.infer, &st[1].ask.infer};
    (void)state;

    harness_init(&h);
    harness_batching(&h, 2, 0);
    h.version.is_decoupled = true;
    harness_open(&h, "identity", NULL, 0);
    h.reply_loop.post = NULL;
    struct exec_run run = {
        .s = h.version.sched, .items = items, .count = 2, .ends_apart = true, .open = 2};
    struct mr_execution x = {.exec = {.flags = MR_EXEC_DECOUPLED, .request_count = 2},
                             .outputs = {.executor = h.model},
                             .respond = sched_respond,
                             .user = &run};
    for (int i = 0; i < 2; i++) {
        stream_init(&st[i], &h, i);
    }
    assert_int_equal(mr_execution_respond(&x, 1, NULL, MR_RESPONSE_FINAL, &err), MR_OK);
    assert_true(st[1].ask.is_done);
    assert_int_equal(st[1].final, 1);
    assert_null(items[1]);
    assert_int_equal(mr_execution_respond(&x, 1, NULL, MR_RESPONSE_FINAL, &err), MR_E_INVALID);
    assert_int_equal(mr_execution_respond(&x, 0, NULL, MR_RESPONSE_FINAL, &err), MR_OK);
    assert_int_equal(st[0].final, 1);
    assert_false(st[0].ask.is_done); /* the last one ends with the execution */
    assert_ptr_equal(items[0], &st[0].ask.infer);
    for (int i = 0; i < 2; i++) {
        stream_fini(&st[i]);
    }
    harness_close(&h);
}

static bool has_waiting_responder(struct harness *h)
{
    struct mr_sched *s = h->version.sched;

    pthread_mutex_lock(&s->mutex);
    bool is_there = s->waiting_responders > 0;
    pthread_mutex_unlock(&s->mutex);
    return is_there;
}

/* A model with endless answers pauses while they are not read; a cancel ends it. */
static void unread_answers_are_bounded(void **state)
{
    const struct mr_setting settings[] = {{"repeat", "1000000000"}};
    struct harness h;
    struct stream st;
    (void)state;

    harness_init(&h);
    h.version.is_decoupled = true;
    harness_open(&h, "identity", settings, 1);
    stream_init(&st, &h, 5);
    st.keeps = true;
    assert_int_equal(ask_submit(&st.ask), MR_OK);
    while (!has_waiting_responder(&h)) {
        sched_yield();
    }
    mr_mailbox_drain(&h.box);
    int bound = st.count;
    assert_true(bound > 0 && bound <= 64);
    struct mr_response *one = st.kept;
    st.kept = one->next;
    mr_infer_response_end(&st.ask.infer, &one);
    while (st.count == bound) {
        harness_wait(&h);
    }
    assert_int_equal(st.count, bound + 1);
    while (!has_waiting_responder(&h)) {
        sched_yield();
    }
    assert_false(mr_sched_cancel(&st.ask.infer));
    ask_wait(&h, &st.ask);
    assert_int_equal(st.ask.infer.status, MR_E_CANCELLED);
    stream_fini(&st);
    harness_close(&h);
}

static void room_found(struct mr_execution *x)
{
    x->handle = x; /* seen */
}

/* An executor that cannot wait offers an answer again when there is room: it was checked, and has the shape of `dims`. */
static void offered_again(void **state)
{
    static const int64_t dims[] = {1}, reshape[] = {0};
    struct harness h;
    struct mr_err err;
    struct stream st = {0};
    struct mr_infer *items[] = {&st.ask.infer};
    struct mr_response *q;
    void *data;
    (void)state;

    harness_init(&h);
    h.version.is_decoupled = true;
    harness_io(&h.inputs[0], "X", MR_DTYPE_INT32, NULL, 0, 0);
    harness_io(&h.outputs[0], "Y", MR_DTYPE_INT32, dims, 1, 0);
    h.outputs[0].reshape = reshape; /* to no dimension */
    harness_open(&h, "identity", NULL, 0);
    st.ask.infer = (struct mr_infer){
        .version = &h.version, .reply_loop = &h.reply_loop, .on_response = on_scalar};
    struct exec_run run = {.s = h.version.sched, .items = items, .count = 1};
    struct mr_execution x = {.exec = {.flags = MR_EXEC_DECOUPLED, .request_count = 1},
                             .outputs = {.executor = h.model},
                             .respond = sched_respond,
                             .on_room = room_found,
                             .user = &run};
    for (int rc = MR_OK; rc != MR_PENDING;) {
        assert_int_equal(mr_response_new(&x, 0, &q, &err), MR_OK);
        assert_int_equal(
            mr_exec_output_place(&q->outputs, 0, MR_DTYPE_INT32, 0, NULL, 4, &data, &err), MR_OK);
        rc = mr_execution_respond(&x, 0, &q, 0, &err);
        assert_true(rc == MR_OK || rc == MR_PENDING);
    }
    mr_mailbox_drain(&h.box);
    const int before = st.count;
    struct mr_response *read = st.kept;
    st.kept = read->next;
    mr_infer_response_end(&st.ask.infer, &read);
    assert_ptr_equal(x.handle, &x);
    assert_int_equal(mr_execution_respond(&x, 0, &q, MR_RESPONSE_FINAL, &err), MR_OK);
    mr_mailbox_drain(&h.box);
    assert_int_equal(st.count, before + 1);
    assert_int_equal(st.final, 1);
    while (st.kept) {
        q = st.kept;
        st.kept = q->next;
        mr_infer_response_end(&st.ask.infer, &q);
    }
    harness_close(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_later),
        cmocka_unit_test(batches_end_later),
        cmocka_unit_test(outputs_that_do_not_fit_together),
        cmocka_unit_test(fails_later),
        cmocka_unit_test(inline_executions_that_end_later),
        cmocka_unit_test(cancel_reaches),
        cmocka_unit_test(several_answers),
        cmocka_unit_test(batches_of_several),
        cmocka_unit_test(each_ends_by_itself),
        cmocka_unit_test(cancel_of_the_rest),
        cmocka_unit_test(ends_on_the_thread_that_answers),
        cmocka_unit_test(unread_answers_are_bounded),
        cmocka_unit_test(offered_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
