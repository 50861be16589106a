/* The fault backend: each fault is detected and named, and leaks nothing. */
#include "harness.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct mr_setting *settings_of(const char *key, const char *value)
{
    static struct mr_setting s[2];
    s[0] = (struct mr_setting){key, value};
    s[1] = (struct mr_setting){"fail_message", "as ordered"};
    return s;
}

/* Runs one execution of [2,4] with a setting of the model, or of the request. */
static void expect(int dtype, const char *key, const char *value, bool of_request, int status,
                   const char *says)
{
    const struct mr_setting *s = settings_of(key, value);
    struct loaded l = {0};
    struct mr_err err;
    struct call c;
    uint64_t bytes;
    uint8_t *data = sample(dtype, 8, &bytes);
    if (model_try("fault", s, of_request ? 0 : 2, identity_signature(dtype), &l, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    call_init(&c, &l);
    call_input(&c, 0, dtype, data, bytes, 2, DIMS(2, 4));
    c.x.exec.row_count = 2;
    if (of_request) {
        c.request.parameters = s;
        c.request.parameter_count = 2;
    }
    call_must_fail(&c, &l, status, says);
    c.request.parameter_count = 0;
    if (of_request) {
        call_must(&c, &l); /* the next one works again */
        assert_output(&c, 0, dtype, data, bytes, 2, DIMS(2, 4));
    }
    call_fini(&c);
    mr_free(data);
    model_drop(&l);
}

static void broken_answers(void **state)
{
    static const struct {
        const char *key;
        int dtype;
        const char *says;
    } rows[] = {
        {"wrong_size", MR_DTYPE_FP32, "33 bytes"},
        {"wrong_dtype", MR_DTYPE_FP32, "declared is FP32"},
        {"wrong_rank", MR_DTYPE_FP32, "rank 99"},
        {"wrong_rows", MR_DTYPE_FP32, "3 rows for a batch of 2"},
        {"negative_dim", MR_DTYPE_FP32, "-5 rows"},
        {"missing_output", MR_DTYPE_FP32, "not produced"},
        {"twice", MR_DTYPE_FP32, "set twice"},
        {"bad_index", MR_DTYPE_FP32, "output 1 of only 1"},
        {"bad_strings", MR_DTYPE_BYTES, "'OUTPUT0'"},
        {"on_device", MR_DTYPE_FP32, "memory of device 0"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        expect(rows[i].dtype, rows[i].key, "true", false, MR_E_INTERNAL, rows[i].says);
        expect(rows[i].dtype, rows[i].key, "1", true, MR_E_INTERNAL, rows[i].says);
    }
}

static void failures(void **state)
{
    (void)state;
    expect(MR_DTYPE_FP32, "fail_status", "UNAVAILABLE", false, MR_E_UNAVAILABLE, "as ordered");
    expect(MR_DTYPE_FP32, "fail_status", "-3", true, MR_E_NOT_FOUND, "as ordered");
}

static void open_failures(void **state)
{
    static const struct {
        const char *key;
        const char *value;
        int status;
        const char *says;
    } rows[] = {
        {"fail_open", "true", MR_E_INTERNAL, "as ordered"},
        {"fail_instance", "0", MR_E_INTERNAL, "as ordered"},
        {"fail_status", "BAD", MR_E_INVALID, "'BAD'"},
        {"delay_ms", "-1", MR_E_INVALID, "delay_ms"},
        {"abort", "maybe", MR_E_INVALID, "'abort'"},
    };
    struct loaded l;
    struct mr_err err;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int rc = model_try("fault", settings_of(rows[i].key, rows[i].value), 2,
                           identity_signature(MR_DTYPE_FP32), &l, &err);
        if (rc != rows[i].status || !strstr(err.msg, rows[i].says)) {
            fail_msg("%s: %d %s", rows[i].key, rc, err.msg);
        }
    }
}

static void every_third(void **state)
{
    const struct mr_setting s[] = {{"fail_every", "3"}, {"fail_status", "INTERNAL"}};
    struct loaded l;
    struct mr_err err;
    struct call c;
    const float v = 1;
    int failed = 0;

    (void)state;
    assert_int_equal(model_try("fault", s, 2, identity_signature(MR_DTYPE_FP32), &l, &err), MR_OK);
    call_init(&c, &l);
    call_input(&c, 0, MR_DTYPE_FP32, &v, 4, 2, DIMS(1, 1));
    for (int i = 0; i < 9; i++) {
        failed += call_run(&c, &l) < 0;
    }
    assert_int_equal(failed, 3);
    call_fini(&c);
    model_drop(&l);
}

static uint32_t failed_request;

static void note(struct mr_execution *x, uint32_t request, int status, const char *message)
{
    (void)x;
    failed_request = request;
    assert_int_equal(status, MR_E_DEADLINE);
    assert_string_equal(message, "as ordered");
}

static void one_request(void **state)
{
    const struct mr_setting s[] = {
        {"fail_request", "1"}, {"fail_status", "DEADLINE"}, {"fail_message", "as ordered"}};
    const struct mr_exec_request requests[2] = {{.id = "a", .row_count = 1},
                                                {.id = "b", .row_begin = 1, .row_count = 1}};
    const float v[] = {1, 2};
    struct loaded l;
    struct mr_err err;
    struct call c;

    (void)state;
    assert_int_equal(model_try("fault", s, 3, identity_signature(MR_DTYPE_FP32), &l, &err), MR_OK);
    call_init(&c, &l);
    call_input(&c, 0, MR_DTYPE_FP32, v, 8, 2, DIMS(2, 1));
    c.x.exec.requests = requests;
    c.x.exec.request_count = 2;
    c.x.exec.row_count = 2;
    c.x.fail_request = note;
    failed_request = 99;
    call_must(&c, &l);
    assert_int_equal(failed_request, 1);
    assert_output(&c, 0, MR_DTYPE_FP32, v, 8, 2, DIMS(2, 1));
    call_fini(&c);
    model_drop(&l);
}

/* The backend aborts in model_close unless each output that it gave was released exactly once. */
static void given(void **state)
{
    const struct mr_setting s[] = {{"give", "on"}};
    struct loaded l;
    struct mr_err err;
    struct call c;
    const float v[] = {1, 2, 3, 4};

    (void)state;
    assert_int_equal(model_try("fault", s, 1, identity_signature(MR_DTYPE_FP32), &l, &err), MR_OK);
    call_init(&c, &l);
    call_input(&c, 0, MR_DTYPE_FP32, v, 16, 2, DIMS(2, 2));
    for (int i = 0; i < 10; i++) {
        c.x.exec.row_count = i % 3; /* 1 is refused after the memory was given */
        int rc = call_run(&c, &l);
        assert_int_equal(rc, i % 3 == 1 ? MR_E_INTERNAL : MR_OK);
        if (rc == MR_OK) {
            assert_output(&c, 0, MR_DTYPE_FP32, v, 16, 2, DIMS(2, 2));
        }
    }
    call_fini(&c);
    model_drop(&l);
}

/* Executions that end on another thread, or before execute has returned that they will. */
static void ends_later(void **state)
{
    static const char *const modes[] = {"1", "2"};
    const float v[] = {1, 2, 3};
    (void)state;
    for (size_t m = 0; m < 2; m++) {
        const struct mr_setting good[] = {{"async", modes[m]}};
        const struct mr_setting bad[] = {{"async", modes[m]}, {"missing_output", "true"}};
        const struct mr_setting fails[] = {
            {"async", modes[m]}, {"fail_status", "IO"}, {"fail_message", "late"}};
        struct loaded l;
        struct mr_err err;
        struct call c;
        assert_int_equal(model_try("fault", good, 1, identity_signature(MR_DTYPE_FP32), &l, &err),
                         MR_OK);
        call_init(&c, &l);
        call_input(&c, 0, MR_DTYPE_FP32, v, 12, 2, DIMS(3, 1));
        for (int i = 0; i < 50; i++) {
            call_must(&c, &l);
            assert_output(&c, 0, MR_DTYPE_FP32, v, 12, 2, DIMS(3, 1));
        }
        model_drop(&l);
        assert_int_equal(model_try("fault", bad, 2, identity_signature(MR_DTYPE_FP32), &l, &err),
                         MR_OK);
        call_must_fail(&c, &l, MR_E_INTERNAL, "was not produced");
        model_drop(&l);
        assert_int_equal(model_try("fault", fails, 3, identity_signature(MR_DTYPE_FP32), &l, &err),
                         MR_OK);
        call_must_fail(&c, &l, MR_E_IO, "late");
        call_fini(&c);
        model_drop(&l);
    }
}

static int answers;
static int finals;

static int count_answer(struct mr_execution *x, struct mr_response *r, struct mr_err *err)
{
    (void)err;
    assert_ptr_equal(r->outputs.executor, x->outputs.executor);
    assert_int_equal(r->outputs.list[0].tensor.bytes, 4);
    assert_memory_equal(r->outputs.list[0].tensor.data,
                        (const float *)x->exec.inputs[0].data + r->request, 4);
    answers++;
    finals += r->is_final;
    mr_response_free(&r);
    return MR_OK;
}

static void several_answers(void **state)
{
    const struct mr_setting s[] = {{"responses", "4"}};
    const struct mr_exec_request requests[2] = {{.id = "a", .row_count = 1},
                                                {.id = "b", .row_begin = 1, .row_count = 1}};
    const float v[] = {1, 2};
    struct loaded l;
    struct mr_err err;
    struct call c;

    (void)state;
    assert_int_equal(model_try("fault", s, 1, identity_signature(MR_DTYPE_FP32), &l, &err), MR_OK);
    call_init(&c, &l);
    call_input(&c, 0, MR_DTYPE_FP32, v, 8, 2, DIMS(2, 1));
    c.x.exec.requests = requests;
    c.x.exec.request_count = 2;
    c.x.exec.row_count = 2;
    c.x.exec.flags = MR_EXEC_DECOUPLED;
    c.x.respond = count_answer;
    call_must(&c, &l);
    assert_int_equal(answers, 8);
    assert_int_equal(finals, 2);
    call_fini(&c);
    model_drop(&l);
}

/* Correlation ids and flags of each request reach the instance, which keeps what belongs to its sequences. */
static void sequences(void **state)
{
    const struct mr_setting s[] = {{"sums", "true"}};
    struct mr_exec_request requests[2] = {
        {.id = "a", .row_count = 1, .correlation_id = 7, .sequence_flags = MR_SEQUENCE_START},
        {.id = "b",
         .row_begin = 1,
         .row_count = 1,
         .correlation_id = 9,
         .sequence_flags = MR_SEQUENCE_START}};
    const int32_t v[] = {1, 20}, twice[] = {2, 40};
    struct loaded l;
    struct mr_err err;
    struct call c;

    (void)state;
    assert_int_equal(model_try("fault", s, 1, identity_signature(MR_DTYPE_INT32), &l, &err), MR_OK);
    call_init(&c, &l);
    call_input(&c, 0, MR_DTYPE_INT32, v, 8, 2, DIMS(2, 1));
    c.x.exec.requests = requests;
    c.x.exec.request_count = 2;
    c.x.exec.row_count = 2;
    call_must(&c, &l);
    assert_output(&c, 0, MR_DTYPE_INT32, v, 8, 2, DIMS(2, 1));
    requests[0].sequence_flags = requests[1].sequence_flags = MR_SEQUENCE_END;
    call_must(&c, &l);
    assert_output(&c, 0, MR_DTYPE_INT32, twice, 8, 2, DIMS(2, 1));
    call_must_fail(&c, &l, MR_E_INVALID, "sequence 7 is not known here");
    call_fini(&c);
    model_drop(&l);
}

static _Atomic bool is_unwanted;

static bool ask_unwanted(const struct mr_execution *x, uint32_t request)
{
    (void)x;
    (void)request;
    return is_unwanted;
}

static void *cancel_main(void *arg)
{
    struct mr_execution *x = arg;

    while (!mr_execution_hold(x)) { /* not yet begun */
        sched_yield();
    }
    is_unwanted = true; /* first: the backend may come to know the execution later, and asks */
    mr_execution_cancel(x);
    return NULL;
}

/* An execution that would go on for ever. */
static void cancelled(void **state)
{
    const struct mr_setting s[] = {{"async", "1"}, {"until_cancelled", "true"}};
    const float v[] = {1, 2, 3};
    struct loaded l;
    struct mr_err err;
    struct call c;

    (void)state;
    assert_int_equal(model_try("fault", s, 2, identity_signature(MR_DTYPE_FP32), &l, &err), MR_OK);
    call_init(&c, &l);
    call_input(&c, 0, MR_DTYPE_FP32, v, 12, 2, DIMS(3, 1));
    c.x.is_cancelled = ask_unwanted;
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        is_unwanted = false;
        assert_int_equal(pthread_create(&thread, NULL, cancel_main, &c.x), 0);
        call_must_fail(&c, &l, MR_E_CANCELLED, "ended early");
        pthread_join(thread, NULL);
    }
    call_fini(&c);
    model_drop(&l);
}

/* What ends the process, in a process of its own. */
static void deaths(void **state)
{
    static const struct {
        const char *key;
        const char *value;
        int code;
    } rows[] = {{"exit", "42", 42}, {"exit", "0", 0}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int status = -1;
        pid_t pid = fork();
        if (pid == 0) {
            expect(MR_DTYPE_FP32, rows[i].key, rows[i].value, false, 0, "");
            _exit(99);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), rows[i].code);
    }
}

const struct CMUnitTest fault_cases[] = {
    cmocka_unit_test(broken_answers),  cmocka_unit_test(failures),
    cmocka_unit_test(open_failures),   cmocka_unit_test(every_third),
    cmocka_unit_test(one_request),     cmocka_unit_test(given),
    cmocka_unit_test(deaths),          cmocka_unit_test(ends_later),
    cmocka_unit_test(several_answers), cmocka_unit_test(sequences),
    cmocka_unit_test(cancelled),
};
const size_t fault_case_count = sizeof fault_cases / sizeof *fault_cases;
