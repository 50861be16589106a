/* Operators in walks: at once and in turns, in place, with inputs that are not there, with errors. */
#include "flow_test.h"

#include "base/turn.h"
#include "flow/exec/exec.h"

enum { FLOATS = 16384 };

static const struct run_ops run_with = {.start = flow_call_start};
static struct mr_ops *ops;
static float input[FLOATS];
static const int64_t shape[] = {FLOATS};

/* A walk over IN -> a -> T -> b -> OUT, both scale; b may write. */
struct fixture {
    struct plan *plan;
    struct walk walk;
    struct flow flow;
    struct flow_op_runs runs[2];
    struct mr_infer asked;
    struct mr_reply_loop loop;
    struct mr_turns turns;
};

static void op_open(struct plan *p, uint32_t node, struct plan_type *types)
{
    static const struct mr_setting twice[] = {{"multiply", "2"}};
    static char *const reads[] = {(char *)(uintptr_t) "x"};
    const struct plan_op_desc d = {.op = MR_STR("scale"),
                                   .parameters = twice,
                                   .parameter_count = 1,
                                   .read_write = reads,
                                   .read_write_count = node};

    assert_int_equal(plan_op_open(p, node, ops, &d, types, NULL), MR_OK);
}

static void fixture_init(struct fixture *f, bool has_turns, const struct mr_tensor *in)
{
    static const struct node_text nodes[] = {{"a", {"x=IN"}, {"x=T"}}, {"b", {"x=T"}, {"x=OUT"}}};
    struct plan_type types[8] = {{0}};

    memset(f, 0, sizeof *f);
    f->plan = plan_make(nodes, 2);
    types[tensor_of(f->plan, "IN")] = (struct plan_type){MR_DTYPE_FP32, 1, shape};
    op_open(f->plan, 0, types);
    op_open(f->plan, 1, types);
    mr_turns_init(&f->turns, 1);
    f->loop.turns = has_turns ? &f->turns : NULL;
    f->asked.reply_loop = &f->loop;
    f->walk.asked = &f->asked;
    f->walk.flow = &f->flow;
    f->flow.op_runs = f->runs;
    atomic_init(&f->walk.signals, 1); /* as while the walk goes on, so that no signal ends it */
    mr_arena_init(&f->walk.arena, 0, 1 << 20);
    assert_int_equal(run_begin(&f->walk.run, f->plan, NULL, &run_with, &f->walk.arena, NULL),
                     MR_OK);
    run_set(&f->walk.run, f->plan->inputs[0], in, NULL);
}

static void fixture_fini(struct fixture *f)
{
    struct call *c;

    run_fini(&f->walk.run);
    while ((c = f->walk.calls) != NULL) {
        f->walk.calls = c->next;
        flow_call_free(c);
    }
    mr_arena_fini(&f->walk.arena);
    mr_turns_fini(&f->turns);
    plan_free(&f->plan);
}

/* What walk_go does. */
static void walk_on(struct fixture *f)
{
    for (int i = 0; i < 100000 && !run_is_over(&f->walk.run); i++) {
        struct call *c = atomic_exchange(&f->walk.ended, NULL);
        if (c) {
            flow_call_take(c);
        }
        run_go(&f->walk.run);
        mr_turns_run(&f->turns);
    }
    assert_true(run_is_over(&f->walk.run));
}

static struct mr_tensor input_make(void)
{
    for (int i = 0; i < FLOATS; i++) {
        input[i] = (float)i;
    }
    return (struct mr_tensor){
        .dtype = MR_DTYPE_FP32, .rank = 1, .shape = shape, .data = input, .bytes = sizeof input};
}

/* `has_turns`: 64 KiB of input are long work. The input stays, and the second operator takes the memory of the first. */
static void chain(void **state)
{
    (void)state;
    for (int has_turns = 0; has_turns < 2; has_turns++) {
        const struct mr_tensor in = input_make();
        struct fixture f;
        fixture_init(&f, has_turns, &in);
        run_go(&f.walk.run);
        assert_int_equal(f.walk.run.pending > 0 || f.walk.ended != NULL, has_turns);
        walk_on(&f);
        assert_int_equal(f.walk.run.status, MR_OK);
        const struct run_value *t = &f.walk.run.values[tensor_of(f.plan, "T")];
        const struct run_value *out = &f.walk.run.values[tensor_of(f.plan, "OUT")];
        assert_true(out->state == RUN_VALUE && out->tensor.bytes == sizeof input);
        assert_ptr_equal(out->block, t->block);
        assert_true(((const float *)out->tensor.data)[3] == 12 && input[3] == 3);
        fixture_fini(&f);
    }
}

/* Someone else refers to the memory: it is copied. */
static void shared_memory_is_copied(void **state)
{
    (void)state;
    const struct mr_tensor in = input_make();
    struct fixture f;
    struct mr_err err;

    fixture_init(&f, false, &in);
    mr_err_clear(&err);
    assert_int_equal(flow_call_start(&f.walk.run, 0, &err), MR_OK);
    const struct run_value *t = &f.walk.run.values[tensor_of(f.plan, "T")];
    struct mr_block *other = mr_block_ref(t->block);
    assert_int_equal(flow_call_start(&f.walk.run, 1, &err), MR_OK);
    const struct run_value *out = &f.walk.run.values[tensor_of(f.plan, "OUT")];
    assert_ptr_not_equal(out->block, t->block);
    assert_true(((const float *)t->tensor.data)[3] == 6);
    assert_true(((const float *)out->tensor.data)[3] == 12);
    mr_block_unref(&other);
    fixture_fini(&f);
}

static void without_input(void **state)
{
    (void)state;
    struct fixture f;

    fixture_init(&f, true, NULL);
    walk_on(&f);
    assert_int_equal(f.walk.run.status, MR_OK);
    assert_int_equal(f.walk.run.values[tensor_of(f.plan, "OUT")].state, RUN_NULL);
    fixture_fini(&f);
}

static void cancelled(void **state)
{
    (void)state;
    for (int has_turns = 0; has_turns < 2; has_turns++) {
        const struct mr_tensor in = input_make();
        struct fixture f;
        fixture_init(&f, has_turns, &in);
        atomic_store(&f.walk.is_cancelled, true);
        walk_on(&f);
        assert_int_equal(f.walk.run.status, MR_E_CANCELLED);
        assert_string_equal(f.walk.run.err.msg, "node 'a': op 'scale': cancelled");
        fixture_fini(&f);
    }
}

/* The loop ends while an operator waits for its turn. */
static void turns_end(void **state)
{
    (void)state;
    const struct mr_tensor in = input_make();
    struct fixture f;

    fixture_init(&f, true, &in);
    run_go(&f.walk.run);
    mr_turns_end(&f.turns);
    f.loop.turns = NULL;
    walk_on(&f);
    assert_true(f.walk.run.status < 0);
    assert_int_equal(f.walk.run.values[tensor_of(f.plan, "OUT")].state, RUN_OPEN);
    fixture_fini(&f);
}

static int setup(void **state)
{
    (void)state;
    return mr_ops_open(NULL, 0, &ops, NULL);
}

static int teardown(void **state)
{
    (void)state;
    mr_ops_close(&ops);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chain),         cmocka_unit_test(shared_memory_is_copied),
        cmocka_unit_test(without_input), cmocka_unit_test(cancelled),
        cmocka_unit_test(turns_end),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
