/* Calls for rows: how many there are at once, what is copied and what is not, and what models must not do. */
#include "flow_test.h"

#include "base/turn.h"
#include "flow/exec/fan.h"
#include "flow/plan/rows_node.h"

enum { ROWS = 100, MANY = 8192 };

static int64_t input[MANY];

/* What the model of the fixture gives instead of its rows. */
enum fault { NONE, ROW_MORE, OTHER_SHAPE, OTHER_TYPE, NOTHING, FAILS };

/* A walk over IN -> a -> OUT, with rows; or over a switch of IN with the branches a and b. */
struct fixture {
    struct plan *plan;
    struct plan_rows rows[2];
    uint32_t branches[2];
    struct flow flow;
    struct walk walk;
    struct mr_infer asked;
    struct mr_reply_loop loop;
    struct mr_turns turns;
    bool waits, repeats;
    enum fault fault;
    uint64_t fault_row;
    struct call *late[ROWS];
    uint32_t late_count, call_count;
    const void *seen, *given; /* data of the last call's input and output */
    uint64_t seen_rows;
};

static struct fixture *fixture_of(const struct call *c)
{
    return (struct fixture *)((char *)(uintptr_t)c->walk - offsetof(struct fixture, walk));
}

/* The model adds 1. */
static int finish(struct call *c, struct mr_err *err)
{
    struct fixture *f = fixture_of(c);
    const struct mr_tensor *in = &c->inputs[0].tensor;
    const enum fault fault = c->row == f->fault_row ? f->fault : NONE;
    int64_t *dims = MR_ARENA_ARRAY(&c->arena, int64_t, 2);
    struct mr_block *block = mr_block_new((c->rows + 1) * 16);

    for (uint64_t i = 0; i < c->rows; i++) {
        ((int64_t *)(void *)block->data)[i] = ((const int64_t *)in->data)[i] + 1;
    }
    f->seen = in->data;
    f->seen_rows = c->rows;
    f->given = block->data;
    dims[0] = (int64_t)c->rows + (fault == ROW_MORE);
    dims[1] = 2;
    const struct mr_tensor t = {.dtype = fault == OTHER_TYPE ? MR_DTYPE_UINT64 : MR_DTYPE_INT64,
                                .rank = fault == OTHER_SHAPE ? 2 : 1,
                                .shape = dims,
                                .data = block->data,
                                .bytes = (uint64_t)dims[0] * (fault == OTHER_SHAPE ? 16 : 8)};
    const int rc = fault == FAILS     ? MR_FAIL(err, MR_E_UNAVAILABLE, "no luck")
                   : fault == NOTHING ? MR_OK
                                      : flow_call_output(c, 0, &t, block, err);
    mr_block_unref(&block);
    return rc;
}

/* As call.c does it after a failure. */
static struct call *again(struct call *c)
{
    struct call *other = fan_call_new(c->fan);

    other->attempt = c->attempt + 1;
    other->inputs = c->inputs;
    other->input_count = c->input_count;
    other->fan = c->fan;
    other->row = c->row;
    other->rows = c->rows;
    other->repeats = c;
    c->again = other;
    return other;
}

static int ask(struct call *c, struct mr_err *err)
{
    struct fixture *f = fixture_of(c);

    assert_int_equal(fan_call_inputs(c, err), MR_OK);
    f->call_count++;
    c = f->repeats ? again(again(c)) : c;
    if (f->waits) {
        assert_true(f->late_count < FAN_CALLS_MAX);
        f->late[f->late_count++] = c;
        return MR_PENDING;
    }
    return finish(c, err);
}

static void rows_init(struct fixture *f, uint32_t node, uint32_t per_call, bool is_foreach)
{
    static const bool divided[] = {true};
    static const uint8_t forms[] = {PLAN_ROWS};
    static const int32_t ranks[] = {1};
    static const struct plan_type made[] = {{MR_DTYPE_INT64, 0, NULL}};

    f->rows[node] = (struct plan_rows){.is_foreach = is_foreach,
                                       .divided = divided,
                                       .max = PLAN_SWITCH_ROWS_MAX,
                                       .inputs = forms,
                                       .outputs = forms,
                                       .ranks = ranks,
                                       .per_call = per_call,
                                       .made = made};
    f->plan->nodes[node].rows = &f->rows[node];
}

static void walk_init(struct fixture *f, uint64_t rows)
{
    static const struct run_ops ops = {flow_call_start, flow_when, flow_value, NULL};
    static int64_t dims[1];

    for (int64_t i = 0; i < MANY; i++) {
        input[i] = i;
    }
    dims[0] = (int64_t)rows;
    const struct mr_tensor in = {
        .dtype = MR_DTYPE_INT64, .rank = 1, .shape = dims, .data = input, .bytes = rows * 8};
    f->flow.plan = f->plan;
    f->flow.ask = ask;
    f->walk.flow = &f->flow;
    f->walk.asked = &f->asked;
    atomic_init(&f->walk.signals, 1); /* as while the walk goes on, so that no signal ends it */
    mr_arena_init(&f->walk.arena, 0, 1 << 20);
    assert_int_equal(run_begin(&f->walk.run, f->plan, NULL, &ops, &f->walk.arena, NULL), MR_OK);
    run_set(&f->walk.run, f->plan->inputs[0], &in, NULL);
    run_go(&f->walk.run);
}

static void foreach_init_with(struct fixture *f, uint64_t rows, uint32_t per_call, bool waits,
                              bool repeats)
{
    static const struct node_text nodes[] = {{"a", {"x=IN"}, {"y=OUT"}}};

    memset(f, 0, sizeof *f);
    f->plan = plan_make(nodes, 1);
    rows_init(f, 0, per_call, true);
    f->waits = waits;
    f->repeats = repeats;
    f->fault_row = UINT64_MAX;
    walk_init(f, rows);
}

static void foreach_init(struct fixture *f, uint64_t rows, uint32_t per_call, bool waits)
{
    foreach_init_with(f, rows, per_call, waits, false);
}

static int name_resolve(void *ctx, enum mr_expr_form form, mr_str name, struct mr_expr_symbol *out,
                        struct mr_err *err)
{
    const struct fixture *f = ctx;
    (void)form;
    (void)name;
    (void)err;
    *out = (struct mr_expr_symbol){
        .is_tensor = true, .dtype = MR_DTYPE_INT64, .rank = -1, .id = f->plan->inputs[0]};
    return MR_OK;
}

static void switch_init(struct fixture *f, const char *when, bool waits, uint64_t rows,
                        bool has_turns)
{
    static const struct node_text nodes[] = {
        {"a", {"x=IN"}, {"y=OUT"}}, {"b", {"x=IN"}, {"y=OUT"}}, {"s", {"x=IN"}, {"y=OUT"}}};
    static const struct mr_expr_options options = {.want_bool = true, .by_row = true};
    const struct mr_expr_names names = {name_resolve, f};

    memset(f, 0, sizeof *f);
    f->plan = plan_make(nodes, 3); /* the last one is the writer of OUT */
    rows_init(f, 0, MANY, false);
    rows_init(f, 1, MANY, false);
    f->branches[0] = 0;
    f->branches[1] = 1;
    f->plan->nodes[0].is_spare = f->plan->nodes[1].is_spare = true;
    f->plan->nodes[2].is_by_row = f->plan->nodes[2].has_else = true;
    f->plan->nodes[2].branches = f->branches;
    f->plan->nodes[2].branch_count = 2;
    assert_int_equal(
        mr_expr_compile(mr_str_c(when), &options, &names, &f->plan->nodes[0].when, NULL), MR_OK);
    f->waits = waits;
    f->fault_row = UINT64_MAX;
    mr_turns_init(&f->turns, 1);
    f->loop.turns = &f->turns;
    f->asked.reply_loop = has_turns ? &f->loop : NULL;
    walk_init(f, rows);
}

static void late_end(struct fixture *f, uint32_t k)
{
    struct call *c = f->late[k];
    struct mr_err err = {0};

    f->late[k] = f->late[--f->late_count];
    const int rc = finish(c, &err);
    flow_call_ended(c, rc, &err);
    run_go(&f->walk.run);
}

static const struct run_value *out_of(const struct fixture *f)
{
    return &f->walk.run.values[f->plan->outputs[0]];
}

static void all_is_right(const struct fixture *f, int64_t rows)
{
    const struct mr_tensor *t = &out_of(f)->tensor;

    assert_true(run_is_over(&f->walk.run));
    if (f->walk.run.status < 0) {
        fail_msg("%s", f->walk.run.err.msg);
    }
    assert_true(t->rank == 1 && t->shape[0] == rows && t->bytes == (uint64_t)rows * 8);
    for (int64_t i = 0; i < rows; i++) {
        assert_int_equal(((const int64_t *)t->data)[i], i + 1);
    }
}

static uint32_t fixture_fini(struct fixture *f)
{
    uint32_t calls = 0;
    struct call *c;

    run_fini(&f->walk.run);
    for (; (c = f->walk.calls) != NULL; calls++) {
        f->walk.calls = c->next;
        flow_call_free(c);
    }
    mr_arena_fini(&f->walk.arena);
    plan_free(&f->plan);
    return calls;
}

static void as_many_calls_as_needed(void **state)
{
    static const struct {
        uint64_t rows;
        uint32_t per_call, calls;
    } rows[] = {{100, 1, 100}, {100, 3, 34}, {100, 100, 1},     {7, 8, 1},
                {1, 1, 1},     {0, 4, 0},    {9, UINT32_MAX, 1}};
    (void)state;

    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct fixture f;
        foreach_init(&f, rows[i].rows, rows[i].per_call, false);
        all_is_right(&f, (int64_t)rows[i].rows);
        assert_int_equal(f.call_count, rows[i].calls);
        assert_true(fixture_fini(&f) <= 1); /* one is used again and again */
    }
}

static void calls_at_once(void **state)
{
    struct fixture f;
    uint32_t most = 0;
    (void)state;

    foreach_init(&f, ROWS, 1, true);
    while (f.late_count > 0) {
        most = MR_MAX(most, f.late_count);
        late_end(&f, f.late_count / 2);
    }
    all_is_right(&f, ROWS);
    assert_int_equal(most, FAN_CALLS_MAX);
    assert_int_equal(fixture_fini(&f), FAN_CALLS_MAX);
}

/* The memory of all attempts serves the next calls. */
static void calls_that_are_repeated(void **state)
{
    (void)state;
    for (int waits = 0; waits < 2; waits++) {
        struct fixture f;
        foreach_init_with(&f, ROWS, 1, waits, true);
        while (f.late_count > 0) {
            late_end(&f, 0);
        }
        all_is_right(&f, ROWS);
        assert_int_equal(fixture_fini(&f), waits ? 3 * FAN_CALLS_MAX : 3);
    }
}

/* A single call's inputs and outputs are not copied. */
static void one_call_for_all(void **state)
{
    struct fixture f;
    (void)state;

    foreach_init(&f, ROWS, ROWS, false);
    assert_ptr_equal(f.seen, input);
    assert_ptr_equal(out_of(&f)->tensor.data, f.given);
    fixture_fini(&f);
}

static void what_models_must_not_do(void **state)
{
    static const struct {
        enum fault fault;
        const char *words;
    } rows[] = {
        {ROW_MORE, "node 'a': tensor 'OUT': the model gave 5 rows for 4"},
        {OTHER_SHAPE, "node 'a': tensor 'OUT': row 8 has the shape [2], others have []"},
        {OTHER_TYPE, "node 'a': tensor 'OUT': row 8 is UINT64, others are INT64"},
        {NOTHING, "node 'a': tensor 'OUT': the model gave it for some rows only"},
        {FAILS, "no luck"},
    };
    (void)state;

    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct fixture f;
        foreach_init(&f, ROWS, 4, true);
        f.fault = rows[i].fault;
        f.fault_row = 8;
        while (f.late_count > 0) {
            late_end(&f, 0);
        }
        assert_true(run_is_over(&f.walk.run) && f.walk.run.status < 0);
        if (!strstr(f.walk.run.err.msg, rows[i].words)) {
            fail_msg("'%s', expected '%s'", f.walk.run.err.msg, rows[i].words);
        }
        fixture_fini(&f);
    }
}

/* No call begins after a failure, of the node or elsewhere. */
static void failures_end_it(void **state)
{
    (void)state;
    for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
        struct mr_err err = {0};
        struct fixture f;
        foreach_init(&f, ROWS, 1, true);
        if (elsewhere) {
            run_fail(&f.walk.run, MR_FAIL(&err, MR_E_CANCELLED, "gone"), &err);
        } else {
            f.fault = FAILS;
            f.fault_row = 3;
            late_end(&f, 3);
        }
        const uint32_t begun = f.call_count;
        while (f.late_count > 0) {
            assert_false(run_is_over(&f.walk.run));
            late_end(&f, 0);
        }
        assert_int_equal(f.call_count, begun);
        assert_true(run_is_over(&f.walk.run));
        assert_int_equal(f.walk.run.status, elsewhere ? MR_E_CANCELLED : MR_E_UNAVAILABLE);
        fixture_fini(&f);
    }
}

/* ---- switches ---- */

static void rows_that_are_not_copied(void **state)
{
    static const struct {
        const char *when;
        uint64_t seen, rows; /* of the last branch that runs: its first row, and how many */
        bool is_view, is_whole;
    } rows[] = {
        {"x >= 0", 0, ROWS, true, true},        /* all take the first branch */
        {"x < 0", 0, ROWS, true, true},         /* or the second */
        {"x < 30", 30, ROWS - 30, true, false}, /* consecutive rows: views */
        {"x % 2 == 0", 0, ROWS / 2, false, false},
    };
    (void)state;

    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct fixture f;
        switch_init(&f, rows[i].when, false, ROWS, false);
        all_is_right(&f, ROWS);
        assert_int_equal(f.seen_rows, rows[i].rows);
        assert_int_equal(f.seen == input + rows[i].seen, rows[i].is_view);
        assert_int_equal(out_of(&f)->tensor.data == f.given, rows[i].is_whole);
        fixture_fini(&f);
    }
}

/* One branch fails while the other one runs: the switch ends when both have. */
static void a_branch_fails(void **state)
{
    struct fixture f;
    (void)state;

    switch_init(&f, "x % 2 == 0", true, ROWS, false);
    assert_int_equal(f.late_count, 2);
    f.fault = FAILS;
    f.fault_row = 0;
    late_end(&f, 0);
    assert_false(run_is_over(&f.walk.run));
    f.fault = NONE;
    late_end(&f, 0);
    assert_true(run_is_over(&f.walk.run));
    assert_int_equal(f.walk.run.status, MR_E_UNAVAILABLE);
    fixture_fini(&f);
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
        while (f->late_count > 0) {
            late_end(f, 0);
        }
    }
}

/* Conditions of many rows, and what many branches give, are work for turns. */
static void long_work(void **state)
{
    (void)state;
    for (int waits = 0; waits < 2; waits++) {
        struct fixture f;
        switch_init(&f, "x % 2 == 0", waits, MANY, true);
        assert_false(run_is_over(&f.walk.run));
        assert_int_equal(f.call_count, 0);
        walk_on(&f);
        all_is_right(&f, MANY);
        assert_int_equal(f.call_count, 2);
        mr_turns_fini(&f.turns);
        fixture_fini(&f);
    }
}

/* The request is cancelled, or the loop ends, while rows are divided. */
static void long_work_ends(void **state)
{
    (void)state;
    for (int ends = 0; ends < 2; ends++) {
        struct mr_err err = {0};
        struct fixture f;
        switch_init(&f, "x % 2 == 0", true, MANY, true);
        if (ends) {
            mr_turns_end(&f.turns);
        } else {
            run_fail(&f.walk.run, MR_FAIL(&err, MR_E_CANCELLED, "gone"), &err);
        }
        walk_on(&f);
        assert_true(run_is_over(&f.walk.run) && f.walk.run.status < 0);
        assert_int_equal(f.call_count, 0);
        assert_int_equal(out_of(&f)->state, RUN_OPEN);
        mr_turns_fini(&f.turns);
        fixture_fini(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_calls_as_needed),
        cmocka_unit_test(calls_at_once),
        cmocka_unit_test(calls_that_are_repeated),
        cmocka_unit_test(one_call_for_all),
        cmocka_unit_test(what_models_must_not_do),
        cmocka_unit_test(failures_end_it),
        cmocka_unit_test(rows_that_are_not_copied),
        cmocka_unit_test(a_branch_fails),
        cmocka_unit_test(long_work),
        cmocka_unit_test(long_work_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
