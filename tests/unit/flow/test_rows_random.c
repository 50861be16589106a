/* Random graphs with nodes that run for rows: foreach and switches per row, with foreach in their branches or not, beside plain nodes. What a walk gives is what a plain
 * interpreter gives, which goes through the rows one by one; whatever number of rows the calls have and in whatever order they
 * end. Models are functions of rows here, and fail for some. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "flow/exec/fan.h"
#include "tensor/tensor.h"

#if defined(__SANITIZE_ADDRESS__)
#    define GRAPHS 25000
#else
#    define GRAPHS 100000
#endif
#define STEPS_MAX    6 /* nodes that are no branches */
#define BRANCHES_MAX 3
#define NODES_MAX    (STEPS_MAX * (1 + 2 * BRANCHES_MAX)) /* a branch may have a fallback */
#define WIDTH        2 /* inputs of a node at most, and outputs */
#define TENSORS      (2 + STEPS_MAX * WIDTH)
#define ROWS_MAX     40
#define LATE_MAX     (NODES_MAX * ROWS_MAX)

struct world {
    struct mr_rng rng;
    uint32_t rows;
    struct plan plan;
    struct plan_node nodes[NODES_MAX];
    struct plan_rows by_rows[NODES_MAX];
    struct plan_type made[NODES_MAX][WIDTH];
    bool divided[NODES_MAX][WIDTH];
    uint8_t forms[NODES_MAX][2][WIDTH];
    int32_t ranks[NODES_MAX][WIDTH];
    struct plan_tensor tensors[TENSORS];
    struct plan_port in[NODES_MAX][WIDTH], out[NODES_MAX][WIDTH];
    struct plan_value defaults[TENSORS];
    struct plan_value own_defaults[NODES_MAX][WIDTH];
    Millrace__WorkflowValue values[TENSORS], branch_values[TENSORS];
    uint32_t after[NODES_MAX][24], branches[NODES_MAX][BRANCHES_MAX];
    uint32_t inputs[2], outputs[TENSORS];
    uint8_t wanted[TENSORS];
    bool has_input[2];
    uint32_t cases[NODES_MAX][2]; /* of a condition: the tensor, and what its element is modulo 3 */
    struct mr_arena arena;        /* of inputs */
    /* the walk */
    struct flow flow;
    struct walk walk;
    struct mr_execution x;
    struct mr_infer asked;
    struct call *late[LATE_MAX];
    uint32_t late_count, waited;
    /* the interpreter */
    int64_t given[TENSORS][ROWS_MAX];
    bool is_null[TENSORS], has_ended[NODES_MAX], is_failed;
    uint32_t branches_failed;
};

static struct world *world_of(const struct call *c)
{
    return (struct world *)((char *)(uintptr_t)c->walk - offsetof(struct world, walk));
}

static uint32_t pick(struct world *w, uint32_t n)
{
    return (uint32_t)(mr_rng_u64(&w->rng) % n);
}

static bool maybe(struct world *w, uint32_t percent)
{
    return pick(w, 100) < percent;
}

/* ---- making one ---- */

static void ports_make(struct world *w, uint32_t n, uint32_t tensors_before)
{
    struct plan_node *node = &w->nodes[n];
    static const mr_str names[] = {MR_STR("0"), MR_STR("1")};

    *node = (struct plan_node){.name = MR_STR("n"),
                               .model = MR_STR("m"),
                               .fallback = PLAN_NO_NODE,
                               .attempts = 1,
                               .inputs = w->in[n],
                               .outputs = w->out[n],
                               .after = w->after[n]};
    node->input_count = 1 + pick(w, WIDTH);
    for (uint32_t i = 0; i < node->input_count; i++) {
        w->in[n][i] = (struct plan_port){
            .name = names[i], .tensor = pick(w, tensors_before), .is_optional = maybe(w, 30)};
    }
}

static void outputs_make(struct world *w, uint32_t n, uint32_t tensors_before)
{
    struct plan_node *node = &w->nodes[n];

    node->output_count = 1 + pick(w, WIDTH);
    for (uint32_t i = 0; i < node->output_count; i++) {
        const uint32_t t = tensors_before + i;
        w->tensors[t] =
            (struct plan_tensor){.name = MR_STR("t"),
                                 .writer = n,
                                 .dtype = maybe(w, 30) ? MR_DTYPE_BYTES : MR_DTYPE_INT64};
        w->out[n][i] = (struct plan_port){.name = MR_STR("o"), .tensor = t};
    }
}

/* Some of the inputs, the first one in any case, come row by row. */
static void rows_make(struct world *w, uint32_t n, bool is_foreach)
{
    struct plan_node *node = &w->nodes[n];
    const bool is_batching = maybe(w, 60);

    w->by_rows[n] = (struct plan_rows){.is_foreach = is_foreach,
                                       .divided = w->divided[n],
                                       .max = is_foreach && maybe(w, 5) ? 2 : ROWS_MAX,
                                       .skips_empty = is_foreach && maybe(w, 50),
                                       .inputs = w->forms[n][0],
                                       .outputs = w->forms[n][1],
                                       .ranks = w->ranks[n],
                                       .per_call = is_batching ? 1 + pick(w, 5) : 1,
                                       .made = w->made[n]};
    for (uint32_t i = 0; i < node->input_count; i++) {
        w->divided[n][i] = i == 0 || maybe(w, 70);
        w->in[n][i].is_optional &= !w->divided[n][i];
        w->ranks[n][i] = 1;
        w->forms[n][0][i] = !w->divided[n][i]                             ? PLAN_WHOLE
                            : w->by_rows[n].per_call == 1 && maybe(w, 50) ? PLAN_ROW
                                                                          : PLAN_ROWS;
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        w->forms[n][1][i] = w->by_rows[n].per_call == 1 && maybe(w, 50) ? PLAN_ROW : PLAN_ROWS;
        w->made[n][i] = (struct plan_type){w->tensors[w->out[n][i].tensor].dtype, 0, NULL};
    }
    node->rows = &w->by_rows[n];
}

static void foreach_make(struct world *w, uint32_t n)
{
    struct plan_node *node = &w->nodes[n];

    rows_make(w, n, true);
    node->on_error = (enum plan_error)pick(w, 3);
    node->defaults = w->own_defaults[n];
    for (uint32_t i = 0; i < node->output_count; i++) {
        if (maybe(w, 60)) {
            w->own_defaults[n][node->default_count++] = w->defaults[w->out[n][i].tensor];
        }
    }
}

static int when_resolve(void *ctx, enum mr_expr_form form, mr_str name, struct mr_expr_symbol *out,
                        struct mr_err *err)
{
    const struct world *w = ctx;
    uint64_t t = 0;
    (void)form;
    (void)err;

    assert_true(mr_str_to_u64(mr_str_sub(name, 1, name.len), &t));
    *out = (struct mr_expr_symbol){
        .is_tensor = true, .dtype = w->tensors[t].dtype, .rank = -1, .id = (uint32_t)t};
    return MR_OK;
}

/* Of INT64 tensors the element modulo 3, of BYTES whether it begins with a digit. */
static void case_make(struct world *w, uint32_t branch, uint32_t tensors_before)
{
    static const struct mr_expr_options options = {.want_bool = true, .by_row = true};
    const struct mr_expr_names names = {when_resolve, w};
    const uint32_t t = pick(w, tensors_before), k = pick(w, 3);
    char text[64];

    w->cases[branch][0] = t;
    w->cases[branch][1] = k;
    snprintf(text, sizeof text,
             w->tensors[t].dtype == MR_DTYPE_BYTES ? "prefix(t%u, \"%u\")" : "abs(t%u) %% 3 == %u",
             t, k);
    assert_int_equal(
        mr_expr_compile(mr_str_c(text), &options, &names, &w->nodes[branch].when, NULL), MR_OK);
}

static void wait_for(struct world *w, uint32_t n, uint32_t tensor)
{
    w->after[n][w->nodes[n].after_count++] = w->tensors[tensor].writer;
}

/* Of some of its outputs a branch has defaults of its own. */
static void branch_policy_make(struct world *w, uint32_t branch)
{
    struct plan_node *node = &w->nodes[branch];

    node->on_error = (enum plan_error)pick(w, 3);
    node->defaults = w->own_defaults[branch];
    for (uint32_t i = 0; i < node->output_count && node->on_error == PLAN_DEFAULT; i++) {
        const uint32_t t = node->outputs[i].tensor;
        if (maybe(w, 50)) {
            w->own_defaults[branch][node->default_count++] =
                (struct plan_value){.tensor = t, .value = &w->branch_values[t]};
        }
    }
}

/* A branch of switch n, or the fallback of one, as node `branch`. All but the first write its outputs in
 * another order. */
static void branch_make(struct world *w, uint32_t n, uint32_t branch, uint32_t tensors_before)
{
    const uint32_t k = branch - n - 1;
    struct plan_node *node = &w->nodes[branch];
    const uint32_t count = w->nodes[n].output_count;

    ports_make(w, branch, tensors_before);
    w->in[branch][0].tensor = w->in[n][0].tensor;
    node->is_spare = true;
    node->output_count = count;
    for (uint32_t i = 0; i < count; i++) {
        w->out[branch][i] = w->out[n][k % 2 ? count - 1 - i : i];
    }
    rows_make(w, branch, maybe(w, 40));
    w->by_rows[branch].skips_empty = false;
    for (uint32_t i = 0; i < node->input_count; i++) {
        wait_for(w, n, w->in[branch][i].tensor);
    }
}

/* Returns the number of nodes: the switch, its branches, their fallbacks. */
static uint32_t switch_make(struct world *w, uint32_t n, uint32_t tensors_before)
{
    struct plan_node *node = &w->nodes[n];

    node->model = (mr_str){0};
    node->is_by_row = true;
    node->input_count = 1;
    w->in[n][0].is_optional = false;
    node->branches = w->branches[n];
    node->branch_count = 1 + pick(w, BRANCHES_MAX);
    node->has_else = maybe(w, 50);
    for (uint32_t k = 0; k < node->branch_count; k++) {
        branch_make(w, n, n + 1 + k, tensors_before);
        branch_policy_make(w, n + 1 + k);
        w->branches[n][k] = n + 1 + k;
        if (!node->has_else || k + 1 < node->branch_count) {
            case_make(w, n + 1 + k, tensors_before);
            wait_for(w, n, w->cases[n + 1 + k][0]);
        }
    }
    uint32_t count = 1 + node->branch_count;
    for (uint32_t k = 0; k < node->branch_count; k++) {
        if (maybe(w, 30)) {
            branch_make(w, n, n + count, tensors_before);
            w->nodes[n + 1 + k].on_error = PLAN_FALLBACK;
            w->nodes[n + 1 + k].fallback = n + count++;
        }
    }
    return count;
}

static void tensors_close(struct world *w, uint32_t tensors)
{
    w->plan.tensor_count = w->plan.output_count = w->plan.default_count = tensors;
    for (uint32_t t = 0; t < tensors; t++) {
        w->outputs[t] = t;
        w->wanted[t] = maybe(w, 40);
    }
}

static void world_make(struct world *w)
{
    const uint32_t steps = 1 + pick(w, STEPS_MAX);
    uint32_t tensors = 2, n = 0;

    w->rows = maybe(w, 10) ? pick(w, ROWS_MAX + 1) : pick(w, 7);
    w->plan = (struct plan){.is_workflow = true,
                            .max_batch_size = 64,
                            .name = MR_STR("random"),
                            .nodes = w->nodes,
                            .tensors = w->tensors,
                            .inputs = w->inputs,
                            .outputs = w->outputs,
                            .defaults = w->defaults,
                            .input_count = 2};
    mr_arena_init(&w->plan.arena, 4096, 1 << 20);
    for (uint32_t t = 0; t < TENSORS; t++) {
        w->values[t] = (Millrace__WorkflowValue)MILLRACE__WORKFLOW_VALUE__INIT;
        w->values[t].value_case = MILLRACE__WORKFLOW_VALUE__VALUE_INT64;
        w->values[t].int64 = 1000 + t;
        w->defaults[t] = (struct plan_value){.tensor = t, .value = &w->values[t]};
        w->branch_values[t] = w->values[t];
        w->branch_values[t].int64 = 2000 + t;
    }
    for (uint32_t i = 0; i < 2; i++) {
        w->inputs[i] = i;
        w->tensors[i] = (struct plan_tensor){
            .name = MR_STR("x"), .writer = PLAN_CLIENT, .dtype = MR_DTYPE_INT64};
        w->has_input[i] = maybe(w, 90);
    }
    for (uint32_t i = 0; i < steps; i++) {
        ports_make(w, n, tensors);
        outputs_make(w, n, tensors);
        const uint32_t kind = pick(w, 3), made = w->nodes[n].output_count;
        if (kind == 0) {
            foreach_make(w, n);
        }
        n += kind == 1 ? switch_make(w, n, tensors) : 1;
        tensors += made;
    }
    w->plan.node_count = n;
    tensors_close(w, tensors);
    assert_int_equal(plan_link(&w->plan, NULL), MR_OK);
}

/* ---- what a model computes ---- */

static int64_t mix(int64_t sum, int64_t value)
{
    return (int64_t)(((uint64_t)sum * 31 + (uint64_t)value) % 1000003);
}

/* A row of a node: the values of its inputs; the outputs are mix(result, output tensor). */
static int64_t row_value(uint32_t n, const int64_t *inputs, uint32_t count)
{
    int64_t sum = n + 7;

    for (uint32_t i = 0; i < count; i++) {
        sum = mix(sum, inputs[i]);
    }
    return sum;
}

static bool row_fails(int64_t value)
{
    return value % 97 == 0;
}

static int64_t output_value(int64_t row, uint32_t tensor)
{
    return mix(row, tensor);
}

/* BYTES have the number as text, so that elements differ in length. A default has the value's string, which is empty: 0. */
static struct mr_tensor encode(struct mr_arena *a, int32_t dtype, const int64_t *rows,
                               uint32_t count, bool is_row)
{
    int64_t *shape = MR_ARENA_ARRAY(a, int64_t, 1);
    char *data = mr_arena_try(a, count * 32 + 1, 8);
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (dtype == MR_DTYPE_BYTES) {
            const uint32_t len =
                (uint32_t)snprintf(data + bytes + 4, 24, "%lld", (long long)rows[i]);
            memcpy(data + bytes, &len, 4);
            bytes += 4 + len;
        } else {
            memcpy(data + bytes, &rows[i], 8);
            bytes += 8;
        }
    }
    shape[0] = count;
    return (struct mr_tensor){
        .dtype = dtype, .rank = is_row ? 0 : 1, .shape = shape, .data = data, .bytes = bytes};
}

/* Returns the number of elements. */
static uint32_t decode(const struct mr_tensor *t, int64_t *rows)
{
    mr_bytes rest = {t->data, t->bytes};
    uint32_t count = 0;
    mr_str text;

    assert_true(t->rank <= 1);
    if (t->dtype == MR_DTYPE_INT64 && t->bytes > 0) {
        memcpy(rows, t->data, t->bytes);
        count = (uint32_t)(t->bytes / 8);
    }
    while (t->dtype == MR_DTYPE_BYTES && mr_bytes_tensor_next(&rest, &text)) {
        char copy[32];
        assert_true(text.len < sizeof copy);
        memcpy(copy, text.ptr, text.len);
        copy[text.len] = '\0';
        rows[count++] = strtoll(copy, NULL, 10);
    }
    assert_true(t->rank == 0 ? count == 1 : count == (uint32_t)t->shape[0]);
    return count;
}

static int64_t total(const int64_t *rows, uint32_t count)
{
    int64_t sum = 5;

    for (uint32_t i = 0; i < count; i++) {
        sum = mix(sum, rows[i]);
    }
    return sum;
}

/* The inputs of a call as columns; what has no value is -1, and what is not divided is one number for all rows. */
static void columns_read(struct call *c, uint32_t rows, int64_t columns[WIDTH][ROWS_MAX])
{
    struct world *w = world_of(c);
    const struct plan_node *node = &w->nodes[c->node];

    for (uint32_t i = 0; i < node->input_count; i++) {
        const struct run_value *v = &w->walk.run.values[node->inputs[i].tensor];
        const struct mr_tensor *t = v->state == RUN_VALUE ? &v->tensor : NULL;
        int64_t read[ROWS_MAX];
        for (uint32_t k = 0; c->fan && k < c->input_count; k++) {
            t = mr_str_eq(c->inputs[k].name, node->inputs[i].name) ? &c->inputs[k].tensor : t;
        }
        const bool is_whole = c->fan && !node->rows->divided[i];
        const uint32_t count = t ? decode(t, read) : 0;
        assert_true(!t || count == (is_whole ? w->rows : rows));
        if (t && c->fan) {
            assert_int_equal(t->rank, node->rows->inputs[i] == PLAN_ROW ? 0 : 1);
        }
        for (uint32_t r = 0; r < rows; r++) {
            columns[i][r] = !t ? -1 : is_whole ? total(read, count) : read[r];
        }
    }
}

static int finish(struct call *c, struct mr_err *err)
{
    struct world *w = world_of(c);
    const struct plan_node *node = &w->nodes[c->node];
    const uint32_t rows = c->fan ? (uint32_t)c->rows : w->rows;
    int64_t columns[WIDTH][ROWS_MAX], made[ROWS_MAX], values[ROWS_MAX];
    int rc = MR_OK;

    columns_read(c, rows, columns);
    for (uint32_t r = 0; r < rows; r++) {
        const int64_t inputs[WIDTH] = {columns[0][r], columns[1][r]};
        made[r] = row_value(c->node, inputs, node->input_count);
        if (row_fails(made[r])) {
            return MR_FAIL(err, MR_E_INTERNAL, "fails");
        }
    }
    for (uint32_t i = 0; i < node->output_count && rc == MR_OK; i++) {
        const uint32_t tensor = node->outputs[i].tensor;
        struct mr_block *block = maybe(w, 50) ? mr_block_new(ROWS_MAX * 32) : NULL;
        for (uint32_t r = 0; r < rows; r++) {
            values[r] = output_value(made[r], tensor);
        }
        struct mr_tensor t = encode(&c->arena, w->tensors[tensor].dtype, values, rows,
                                    c->fan && node->rows->outputs[i] == PLAN_ROW);
        if (block) {
            memcpy(block->data, t.data, t.bytes);
            t.data = block->data;
        }
        rc = flow_call_output(c, i, &t, block, err);
        mr_block_unref(&block);
    }
    return rc;
}

static int ask(struct call *c, struct mr_err *err)
{
    struct world *w = world_of(c);
    const int rc = c->fan ? fan_call_inputs(c, err) : MR_OK;

    if (rc < 0) {
        return rc;
    }
    if (maybe(w, 50)) {
        assert_true(!c->fan || c->fan->pending < FAN_CALLS_MAX);
        w->late[w->late_count++] = c;
        w->waited++;
        return MR_PENDING;
    }
    return finish(c, err);
}

/* ---- the walk ---- */

static void walk_init(struct world *w)
{
    static const struct run_ops ops = {flow_call_start, flow_when, flow_value, NULL};
    int64_t rows[ROWS_MAX];

    w->flow.plan = &w->plan;
    w->flow.ask = ask;
    w->walk.flow = &w->flow;
    w->walk.x = &w->x;
    w->walk.asked = &w->asked;
    w->x.exec.row_count = w->rows;
    mr_arena_init(&w->walk.arena, 4096, 16 << 20);
    assert_int_equal(run_begin(&w->walk.run, &w->plan, w->wanted, &ops, &w->walk.arena, NULL),
                     MR_OK);
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t r = 0; r < w->rows; r++) {
            rows[r] = w->given[i][r] = (int64_t)pick(w, 1000);
        }
        const struct mr_tensor t = encode(&w->arena, MR_DTYPE_INT64, rows, w->rows, false);
        run_set(&w->walk.run, i, w->has_input[i] ? &t : NULL, NULL);
    }
}

static void walk(struct world *w)
{
    run_go(&w->walk.run);
    while (w->late_count > 0) { /* in any order */
        const uint32_t k = pick(w, w->late_count);
        struct call *c = w->late[k];
        struct mr_err err;
        w->late[k] = w->late[--w->late_count];
        mr_err_clear(&err);
        const int rc = finish(c, &err);
        flow_call_ended(c, rc, &err);
        run_go(&w->walk.run);
    }
    assert_true(run_is_over(&w->walk.run));
}

static void walk_fini(struct world *w)
{
    struct call *c;

    run_fini(&w->walk.run);
    while ((c = w->walk.calls) != NULL) {
        w->walk.calls = c->next;
        flow_call_free(c);
    }
    mr_arena_fini(&w->walk.arena);
    for (uint32_t n = 0; n < w->plan.node_count; n++) {
        mr_expr_free(&w->nodes[n].when);
    }
    mr_arena_fini(&w->plan.arena);
}

/* ---- the plain interpreter ---- */

static void node_want(struct world *w, uint32_t n);

static void tensor_want(struct world *w, uint32_t t)
{
    if (w->tensors[t].writer < w->plan.node_count) {
        node_want(w, w->tensors[t].writer);
    }
}

static void inputs_want(struct world *w, const struct plan_node *node)
{
    for (uint32_t i = 0; i < node->input_count; i++) {
        tensor_want(w, node->inputs[i].tensor);
    }
}

static bool lacks_input(const struct world *w, const struct plan_node *node)
{
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (w->is_null[node->inputs[i].tensor] && !node->inputs[i].is_optional) {
            return true;
        }
    }
    return false;
}

static void outputs_lose(struct world *w, const struct plan_node *node)
{
    for (uint32_t i = 0; i < node->output_count; i++) {
        w->is_null[node->outputs[i].tensor] = true;
    }
}

static int64_t default_of(const struct world *w, uint32_t t)
{
    return w->tensors[t].dtype == MR_DTYPE_BYTES ? 0 : 1000 + (int64_t)t;
}

static void default_take(struct world *w, uint32_t t)
{
    w->is_null[t] = false;
    for (uint32_t r = 0; r < w->rows; r++) {
        w->given[t][r] = default_of(w, t);
    }
}

/* Computes row r of node n into its outputs. False: the model fails. */
static bool row_run(struct world *w, uint32_t n, uint32_t r)
{
    const struct plan_node *node = &w->nodes[n];
    int64_t inputs[WIDTH];

    for (uint32_t i = 0; i < node->input_count; i++) {
        const uint32_t t = node->inputs[i].tensor;
        const bool is_whole = node->rows && !node->rows->divided[i];
        inputs[i] = w->is_null[t] ? -1 : is_whole ? total(w->given[t], w->rows) : w->given[t][r];
    }
    const int64_t made = row_value(n, inputs, node->input_count);
    for (uint32_t i = 0; i < node->output_count; i++) {
        w->given[node->outputs[i].tensor][r] = output_value(made, node->outputs[i].tensor);
    }
    return !row_fails(made);
}

static bool case_holds(const struct world *w, uint32_t branch, uint32_t r)
{
    const uint32_t t = w->cases[branch][0], k = w->cases[branch][1];
    char text[32];

    if (w->is_null[t]) {
        return false;
    }
    if (w->tensors[t].dtype != MR_DTYPE_BYTES) {
        return w->given[t][r] % 3 == (int64_t)k;
    }
    /* a default is the empty text */
    snprintf(text, sizeof text, "%lld", (long long)w->given[t][r]);
    return text[0] == (char)('0' + k) && w->given[t][r] != 0;
}

static uint32_t branch_of(const struct world *w, const struct plan_node *node, uint32_t r)
{
    uint32_t k = 0;

    while (k < node->branch_count && !(node->has_else && k + 1 == node->branch_count) &&
           !case_holds(w, node->branches[k], r)) {
        k++;
    }
    return k;
}

static bool rows_run(struct world *w, uint32_t n, const uint32_t *taken, uint32_t k)
{
    bool is_good = true;
    uint32_t count = 0;

    for (uint32_t r = 0; r < w->rows; r++) {
        is_good &= taken[r] != k || row_run(w, n, r);
        count += taken[r] == k;
    }
    return is_good && count <= w->nodes[n].rows->max;
}

/* The node's own defaults, where it has some, otherwise the workflow's. */
static void row_default(struct world *w, const struct plan_node *node, uint32_t r)
{
    for (uint32_t i = 0; i < node->output_count; i++) {
        w->given[node->outputs[i].tensor][r] = default_of(w, node->outputs[i].tensor);
    }
    for (uint32_t i = 0; i < node->default_count; i++) {
        const uint32_t t = node->defaults[i].tensor;
        w->given[t][r] = w->tensors[t].dtype == MR_DTYPE_BYTES ? 0 : 2000 + (int64_t)t;
    }
}

/* The rows of branch k, and what its policy says if one fails. */
static void branch_run(struct world *w, uint32_t branch, const uint32_t *taken, uint32_t k)
{
    const struct plan_node *node = &w->nodes[branch];

    if (rows_run(w, branch, taken, k)) {
        return;
    }
    w->branches_failed++;
    if (node->on_error == PLAN_FALLBACK && !lacks_input(w, &w->nodes[node->fallback])) {
        w->is_failed |= !rows_run(w, node->fallback, taken, k);
        return;
    }
    w->is_failed |= node->on_error == PLAN_FAIL;
    for (uint32_t r = 0; r < w->rows; r++) {
        if (taken[r] == k) {
            row_default(w, node->on_error == PLAN_FALLBACK ? &w->nodes[node->fallback] : node, r);
        }
    }
}

static void switch_run(struct world *w, const struct plan_node *node)
{
    for (uint32_t i = 0; i < node->after_count; i++) {
        if (node->after[i] < w->plan.node_count) {
            node_want(w, node->after[i]);
        }
    }
    if (lacks_input(w, node)) {
        outputs_lose(w, node);
        return;
    }
    uint32_t taken[ROWS_MAX];
    for (uint32_t r = 0; r < w->rows; r++) {
        taken[r] = branch_of(w, node, r);
        if (taken[r] == node->branch_count || lacks_input(w, &w->nodes[node->branches[taken[r]]])) {
            taken[r] = BRANCHES_MAX;
            row_default(w, node, r);
        }
    }
    for (uint32_t k = 0; k < node->branch_count; k++) {
        branch_run(w, node->branches[k], taken, k);
    }
}

/* The node has failed. */
static void policy_take(struct world *w, const struct plan_node *node, bool is_too_much)
{
    outputs_lose(w, node);
    w->is_failed |= node->on_error == PLAN_FAIL;
    for (uint32_t i = 0; i < node->default_count && node->on_error == PLAN_DEFAULT; i++) {
        w->is_failed |= is_too_much; /* the default would be as much */
        default_take(w, node->defaults[i].tensor);
    }
}

static void node_want(struct world *w, uint32_t n)
{
    const struct plan_node *node = &w->nodes[n];
    bool is_good = true;

    if (w->has_ended[n]) {
        return;
    }
    w->has_ended[n] = true;
    inputs_want(w, node);
    if (node->is_by_row) {
        switch_run(w, node);
        return;
    }
    if (lacks_input(w, node) || (node->rows && node->rows->skips_empty && w->rows == 0)) {
        outputs_lose(w, node);
        return;
    }
    const bool is_too_much = node->rows && w->rows > node->rows->max;
    for (uint32_t r = 0; r < w->rows && !is_too_much; r++) {
        is_good &= row_run(w, n, r);
    }
    if (!is_good || is_too_much) {
        policy_take(w, node, is_too_much);
    }
}

static void interpret(struct world *w)
{
    for (uint32_t i = 0; i < 2; i++) {
        w->is_null[i] = !w->has_input[i];
    }
    for (uint32_t t = 0; t < w->plan.tensor_count; t++) {
        if (w->wanted[t]) {
            tensor_want(w, t);
        }
    }
}

static bool is_same(const struct world *w, uint32_t t, const struct run_value *v)
{
    int64_t rows[ROWS_MAX];

    if (w->is_null[t]) {
        return v->state == RUN_NULL;
    }
    return v->state == RUN_VALUE && decode(&v->tensor, rows) == w->rows &&
           memcmp(rows, w->given[t], w->rows * sizeof *rows) == 0;
}

static void compare(const struct world *w, int graph)
{
    if (w->is_failed != (w->walk.run.status < 0)) {
        fail_msg("graph %d: failed %d, walked %d: %s", graph, w->is_failed, w->walk.run.status,
                 w->walk.run.err.msg);
    }
    for (uint32_t t = 0; t < w->plan.tensor_count && !w->is_failed; t++) {
        if (w->wanted[t] && !is_same(w, t, &w->walk.run.values[t])) {
            fail_msg("graph %d: tensor %u of node %u differs", graph, t, w->tensors[t].writer);
        }
    }
}

static void test_random_graphs(void **state)
{
    struct world *w = MR_NEW(struct world);
    size_t failed = 0, waited = 0, branches = 0;
    struct mr_arena arena;
    (void)state;

    mr_arena_init(&arena, 16384, 1 << 20);
    for (int i = 0; i < GRAPHS; i++) {
        memset(w, 0, sizeof *w);
        w->arena = arena;
        mr_rng_seed(&w->rng, (uint64_t)i);
        world_make(w);
        walk_init(w);
        walk(w);
        interpret(w);
        compare(w, i);
        failed += w->is_failed;
        waited += w->waited;
        branches += w->branches_failed > 0 && !w->is_failed;
        walk_fini(w);
        arena = w->arena;
        mr_arena_reset(&arena);
    }
    assert_true(failed > GRAPHS / 50 && failed < GRAPHS / 2 && waited > GRAPHS &&
                branches > GRAPHS / 500); /* all kinds are there */
    mr_arena_fini(&arena);
    mr_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_graphs)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
