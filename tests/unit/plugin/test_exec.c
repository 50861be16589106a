/* One execution through the host's services: what is accepted, what is refused, who frees what. The
 * backend is a function in this file; each test puts its own there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "millrace/backend_util.h"
#include "plugin_priv.h"

#define OUTPUTS 3

static int64_t dims[] = {-1, -1};
static const struct mr_io_desc outputs[OUTPUTS] = {
    {.name = "A", .dims = dims, .dtype = MR_DTYPE_INT32, .rank = 2},
    {.name = "B", .dims = dims, .dtype = MR_DTYPE_BYTES, .rank = 2},
    {.name = "C", .dims = dims, .dtype = MR_DTYPE_INT8, .rank = 2},
};
static struct mr_signature signature = {
    .size = sizeof signature, .output_count = OUTPUTS, .outputs = outputs};
static struct mr_plugin plugin = {.name = (char *)(uintptr_t) "test"};
static const struct mr_executor_ops ops = {.execute = mr_plugin_execute};
static struct mr_plugin_model model = {
    .base = {.ops = &ops, .backend = "test", .model = "m", .signature = &signature},
    .plugin = &plugin};

struct fixture {
    struct mr_arena arena;
    struct mr_exec_output out[OUTPUTS];
    uint8_t wanted[OUTPUTS];
    struct mr_exec_request requests[2];
    struct mr_execution x;
    struct mr_err err;
};

static int setup(void **state)
{
    struct fixture *f = mr_alloc(sizeof *f);
    mr_arena_init(&f->arena, 16384, 1 << 20);
    f->x.exec.output_count = OUTPUTS;
    f->x.exec.output_wanted = f->wanted;
    f->x.exec.requests = f->requests;
    f->x.exec.request_count = 2;
    f->x.err = &f->err;
    f->x.outputs.list = f->out;
    f->x.outputs.arena = &f->arena;
    *state = f;
    return 0;
}

static void drop(struct fixture *f)
{
    for (int i = 0; i < OUTPUTS; i++) {
        mr_block_unref(&f->out[i].block);
        f->out[i] = (struct mr_exec_output){0};
    }
    mr_arena_reset(&f->arena);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    drop(f);
    mr_arena_fini(&f->arena);
    mr_free(f);
    return 0;
}

static int run(struct fixture *f, int (*execute)(void *, struct mr_exec *, struct mr_err *))
{
    plugin.table.execute = execute;
    f->err = (struct mr_err){0};
    f->x.instance = f;
    return mr_executor_execute(&model.base, &f->x, &f->err);
}

static void assert_clean(const struct fixture *f)
{
    for (int i = 0; i < OUTPUTS; i++) {
        assert_false(f->out[i].is_set);
        assert_null(f->out[i].block);
    }
}

/* ---- outputs in the host's memory ---- */

static int64_t big_rows;

static int exec_plain(void *instance, struct mr_exec *exec, struct mr_err *err)
{
    const int64_t small[] = {2, 3};
    const int64_t big[] = {big_rows, 4096};
    void *data = NULL;
    (void)instance;
    assert_int_equal(mr_plugin_exec_output(exec, 0, MR_DTYPE_INT32, 2, small, 24, &data, err),
                     MR_OK);
    assert_int_equal((uintptr_t)data % 64, 0);
    memset(data, 1, 24);
    assert_int_equal(
        mr_plugin_exec_output(exec, 1, MR_DTYPE_BYTES, 2, (int64_t[]){1, 2}, 9, &data, err), MR_OK);
    memcpy(data, "\1\0\0\0x\0\0\0\0", 9);
    assert_int_equal(mr_plugin_exec_output(exec, 2, MR_DTYPE_INT8, 2, big, 0, &data, err), MR_OK);
    assert_int_equal((uintptr_t)data % 64, 0);
    assert_non_null(data);
    memset(data, 2, (size_t)big_rows * 4096);
    return MR_OK;
}

static void places(void **state)
{
    struct fixture *f = *state;
    for (big_rows = 0; big_rows < 4; big_rows++) {
        memset(f->wanted, 1, OUTPUTS);
        assert_int_equal(run(f, exec_plain), MR_OK);
        assert_true(f->out[0].is_set && f->out[1].is_set && f->out[2].is_set);
        assert_int_equal(f->out[0].tensor.bytes, 24);
        assert_int_equal(f->out[0].tensor.shape[1], 3);
        assert_null(f->out[0].block);
        assert_int_equal(f->out[2].tensor.bytes, (size_t)big_rows * 4096);
        assert_int_equal(f->out[2].block != NULL, big_rows > 2);
        drop(f);
    }
}

/* ---- broken contracts ---- */

static struct {
    uint32_t index;
    int32_t dtype;
    int32_t rank;
    int64_t shape[2];
    uint64_t bytes;
    bool twice;
} ask;

static int exec_ask(void *instance, struct mr_exec *exec, struct mr_err *err)
{
    void *data = NULL;
    (void)instance;
    int rc = mr_plugin_exec_output(exec, ask.index, ask.dtype, ask.rank, ask.shape, ask.bytes,
                                   &data, err);
    if (rc == MR_OK && ask.dtype == MR_DTYPE_BYTES) {
        memset(data, 0xff, ask.bytes);
    }
    if (rc == MR_OK && ask.twice) {
        rc = mr_plugin_exec_output(exec, ask.index, ask.dtype, ask.rank, ask.shape, ask.bytes,
                                   &data, err);
    }
    return rc;
}

static void refused(void **state)
{
    struct fixture *f = *state;
    static const struct {
        uint32_t index;
        int32_t dtype;
        int32_t rank;
        int64_t shape[2];
        uint64_t bytes;
        bool twice;
        int64_t rows;
        const char *says;
    } rows[] = {
        {3, MR_DTYPE_INT32, 2, {1, 1}, 4, false, 0, "output 3 of only 3"},
        {0, MR_DTYPE_FP32, 2, {1, 1}, 4, false, 0, "'A': came as FP32, declared is INT32"},
        {0, 99, 2, {1, 1}, 4, false, 0, "declared is INT32"},
        {0, MR_DTYPE_INT32, -1, {1, 1}, 4, false, 0, "rank -1"},
        {0, MR_DTYPE_INT32, 33, {1, 1}, 4, false, 0, "rank 33"},
        {0, MR_DTYPE_INT32, 2, {1, -1}, 4, false, 0, "'A'"},
        {0, MR_DTYPE_INT32, 2, {INT64_MAX, 8}, 0, false, 0, "'A'"},
        {0, MR_DTYPE_INT32, 2, {INT64_MAX, 1}, 0, false, 0, "'A'"},
        {0, MR_DTYPE_INT32, 2, {1, 2}, 4, false, 0, "4 bytes, but INT32[1,2] has 8"},
        {0, MR_DTYPE_INT32, 2, {1, 2}, 8, false, 2, "1 rows for a batch of 2"},
        {0, MR_DTYPE_INT32, 0, {0, 0}, 4, false, 2, "0 rows for a batch of 2"},
        {0, MR_DTYPE_INT32, 2, {1, 2}, 8, true, 0, "set twice"},
        {0, MR_DTYPE_INT32, 2, {1, 2}, 8, false, 0, "'B': was not produced"},
        {1, MR_DTYPE_BYTES, 2, {1, 4}, 15, false, 0, "15 bytes for 4 strings"},
        {1, MR_DTYPE_BYTES, 2, {1, 1}, 8, false, 0, "'B'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        memset(f->wanted, 0, OUTPUTS);
        f->wanted[1] = 1;
        ask.index = rows[i].index;
        ask.dtype = rows[i].dtype;
        ask.rank = rows[i].rank;
        memcpy(ask.shape, rows[i].shape, sizeof ask.shape);
        ask.bytes = rows[i].bytes;
        ask.twice = rows[i].twice;
        f->x.exec.row_count = rows[i].rows;
        int rc = run(f, exec_ask);
        if (rc != MR_E_INTERNAL || !strstr(f->err.msg, rows[i].says)) {
            fail_msg("row %zu: %d %s", i, rc, f->err.msg);
        }
        assert_clean(f);
    }
}

static void no_memory(void **state)
{
    struct fixture *f = *state;
    struct mr_block_stats before = mr_block_get_stats();
    memset(f->wanted, 0, OUTPUTS);
    ask.index = 2;
    ask.dtype = MR_DTYPE_INT8;
    ask.rank = 2;
    ask.shape[0] = 1 << 20;
    ask.shape[1] = 1 << 20;
    ask.bytes = 0;
    ask.twice = false;
    mr_block_set_budget(1 << 20, 0);
    assert_int_equal(run(f, exec_ask), MR_E_EXHAUSTED);
    assert_true(f->err.flags & MR_ERR_RETRYABLE);
    assert_clean(f);
    mr_block_set_budget(before.budget_bytes, 0);
}

/* ---- given outputs ---- */

static int released;
static uint8_t given[65 * 1024];

static void release(void *ctx, void *data)
{
    (void)ctx;
    assert_ptr_equal(data, given);
    released++;
}

static struct mr_tensor give;
static bool give_with_release;
static int give_then;

static int exec_give(void *instance, struct mr_exec *exec, struct mr_err *err)
{
    (void)instance;
    int rc = mr_plugin_exec_give(exec, 0, &give, give_with_release ? release : NULL, NULL, err);
    return rc == MR_OK ? give_then : rc;
}

static void gives(void **state)
{
    struct fixture *f = *state;
    const int64_t shape[] = {1, 2};
    memset(f->wanted, 0, OUTPUTS);
    give = (struct mr_tensor){
        .dtype = MR_DTYPE_INT32, .rank = 2, .shape = shape, .data = given, .bytes = 8};
    released = 0;
    give_then = MR_OK;

    give_with_release = true;
    assert_int_equal(run(f, exec_give), MR_OK);
    assert_ptr_equal(f->out[0].tensor.data, given);
    assert_ptr_not_equal(f->out[0].tensor.shape, shape);
    assert_int_equal(released, 0);
    drop(f);
    assert_int_equal(released, 1);

    give_with_release = false;
    assert_int_equal(run(f, exec_give), MR_OK);
    assert_null(f->out[0].block);
    drop(f);
    assert_int_equal(released, 1);

    give_with_release = true; /* a failure afterwards */
    give_then = MR_E_INTERNAL;
    assert_int_equal(run(f, exec_give), MR_E_INTERNAL);
    assert_non_null(strstr(f->err.msg, "without saying why"));
    assert_int_equal(released, 2);
    assert_clean(f);

    give_then = MR_OK; /* a tensor that is refused */
    give.bytes = 4;
    assert_int_equal(run(f, exec_give), MR_E_INTERNAL);
    assert_int_equal(released, 3);
    assert_clean(f);
    give.bytes = 0; /* 0 means "compute it" only where the host allocates */
    assert_int_equal(run(f, exec_give), MR_E_INTERNAL);
    assert_int_equal(released, 4);
    give.bytes = 8;
    give.memory_kind = 9;
    assert_int_equal(run(f, exec_give), MR_E_INTERNAL);
    assert_non_null(strstr(f->err.msg, "unknown kind (9)"));
    assert_int_equal(released, 5);
}

/* A model that has given much does not run while more than the budget is used; what it has given stays. */
static void gives_within_the_budget(void **state)
{
    struct fixture *f = *state;
    const int64_t shape[] = {1, sizeof given / 4};
    memset(f->wanted, 0, OUTPUTS);
    give = (struct mr_tensor){
        .dtype = MR_DTYPE_INT32, .rank = 2, .shape = shape, .data = given, .bytes = sizeof given};
    give_with_release = true;
    give_then = MR_OK;
    released = 0;

    assert_int_equal(run(f, exec_give), MR_OK);
    assert_int_equal(mr_block_get_stats().out_bytes, sizeof given);
    struct mr_block *kept = mr_block_ref(f->out[0].block);
    drop(f);
    mr_block_set_budget(sizeof given - 1, 0);
    assert_int_equal(run(f, exec_give), MR_E_EXHAUSTED);
    assert_non_null(strstr(f->err.msg, "--memory-budget"));
    assert_true(f->err.flags & MR_ERR_RETRYABLE);
    mr_block_unref(&kept);
    assert_int_equal(released, 1);
    assert_int_equal(run(f, exec_give), MR_OK);
    drop(f);
    assert_int_equal(mr_block_get_stats().out_bytes, 0);
    mr_block_set_budget(0, 0);
}

/* ---- the rest ---- */

static int noted_request = -1;
static int noted_status;

static void note_failure(struct mr_execution *x, uint32_t request, int status, const char *message)
{
    assert_non_null(x);
    assert_string_equal(message, "bad row");
    noted_request = (int)request;
    noted_status = status;
}

static bool say_cancelled(const struct mr_execution *x, uint32_t request)
{
    assert_int_equal(request, MR_ALL_REQUESTS);
    return x->user != NULL;
}

static int exec_services(void *instance, struct mr_exec *exec, struct mr_err *err)
{
    struct fixture *f = instance;
    (void)err;
    assert_int_equal(mr_plugin_exec_fail_request(exec, 1, MR_E_INVALID, "bad row"), MR_OK);
    assert_int_equal(mr_plugin_exec_fail_request(exec, 2, MR_E_INVALID, "bad row"), MR_E_INVALID);
    assert_int_equal(mr_plugin_exec_fail_request(exec, 0, MR_OK, "bad row"), MR_E_INVALID);
    assert_int_equal(mr_plugin_exec_is_cancelled(exec, MR_ALL_REQUESTS), f->x.user != NULL);
    exec->infer_start_ns = 5;
    return MR_OK;
}

static int exec_of_several_answers(void *instance, struct mr_exec *exec, struct mr_err *err)
{
    const int64_t shape[] = {1, 2};
    const struct mr_tensor t = {
        .dtype = MR_DTYPE_INT32, .rank = 2, .shape = shape, .data = given, .bytes = 8};
    void *out = NULL;

    (void)instance;
    assert_int_equal(mr_plugin_exec_output(exec, 0, MR_DTYPE_INT32, 2, shape, 0, &out, err),
                     MR_E_INTERNAL);
    assert_non_null(strstr(err->msg, "decoupled"));
    released = 0;
    assert_int_equal(mr_plugin_exec_give(exec, 0, &t, release, NULL, err), MR_E_INTERNAL);
    assert_int_equal(released, 1);
    return MR_OK;
}

static void output_without_an_answer(void **state)
{
    struct fixture *f = *state;

    f->x.exec.flags |= MR_EXEC_DECOUPLED;
    assert_int_equal(run(f, exec_of_several_answers), MR_OK);
}

static void services(void **state)
{
    struct fixture *f = *state;
    memset(f->wanted, 0, OUTPUTS);
    f->x.fail_request = note_failure;
    f->x.is_cancelled = say_cancelled;
    assert_int_equal(run(f, exec_services), MR_OK);
    assert_int_equal(noted_request, 1);
    assert_int_equal(noted_status, MR_E_INVALID);
    assert_int_equal(f->x.exec.infer_start_ns, 5);
    f->x.user = f;
    assert_int_equal(run(f, exec_services), MR_OK);
}

static int exec_positive(void *instance, struct mr_exec *exec, struct mr_err *err)
{
    (void)instance;
    (void)exec;
    (void)err;
    return 3;
}

static int exec_unterminated(void *instance, struct mr_exec *exec, struct mr_err *err)
{
    (void)instance;
    (void)exec;
    memset(err->msg, 'x', sizeof err->msg);
    memset(err->where, 'x', sizeof err->where);
    return MR_E_NOT_FOUND;
}

static void odd_results(void **state)
{
    struct fixture *f = *state;
    memset(f->wanted, 0, OUTPUTS);
    assert_int_equal(run(f, exec_positive), MR_E_INTERNAL);
    assert_non_null(strstr(f->err.msg, "returned 3"));
    assert_int_equal(run(f, exec_unterminated), MR_E_NOT_FOUND);
    assert_int_equal(strlen(f->err.msg), sizeof f->err.msg - 1);
    f->x.exec.output_count = 1;
    assert_int_equal(run(f, exec_positive), MR_E_INTERNAL);
    assert_non_null(strstr(f->err.msg, "declared"));
}

/* The helper for authors; an optional input may be absent. */
static void rows_of_an_input(void **state)
{
    static const int64_t shape[] = {3, 2};
    static int8_t data[] = {0, 1, 2, 3, 4, 5};
    const struct mr_tensor all = {
        .dtype = MR_DTYPE_INT8, .rank = 2, .shape = shape, .data = data, .bytes = sizeof data};
    const struct mr_tensor absent = {.dtype = MR_DTYPE_INVALID};
    int64_t room[MR_MAX_RANK];

    (void)state;
    struct mr_tensor rows = mr_tensor_rows(&all, 1, 2, room);
    assert_int_equal(rows.shape[0], 2);
    assert_ptr_equal(rows.data, data + 2);
    assert_int_equal(rows.bytes, 4);
    rows = mr_tensor_rows(&absent, 1, 2, room);
    assert_int_equal(rows.dtype, MR_DTYPE_INVALID);
    assert_null(rows.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(places, setup, teardown),
        cmocka_unit_test_setup_teardown(refused, setup, teardown),
        cmocka_unit_test_setup_teardown(no_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(gives, setup, teardown),
        cmocka_unit_test_setup_teardown(gives_within_the_budget, setup, teardown),
        cmocka_unit_test_setup_teardown(odd_results, setup, teardown),
        cmocka_unit_test_setup_teardown(services, setup, teardown),
        cmocka_unit_test_setup_teardown(output_without_an_answer, setup, teardown),
        cmocka_unit_test(rows_of_an_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
