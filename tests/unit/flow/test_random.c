/* Random graphs: what a walk over the plan gives, and what it says of its nodes, is what a plain interpreter gives, whatever order
 * nodes end in. A node with several answers gives what the interpreter gives for each of them, and what does not follow it runs
 * once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/rng.h"
#include "flow/run/run.h"

#define GRAPHS    100000
#define NODES_MAX 9
#define WIDTH     3 /* inputs of a node at most, and outputs */
#define TENSORS   (2 + NODES_MAX * WIDTH)

/* A graph, and what its nodes do. */
struct world {
    struct mr_rng rng;
    struct plan plan;
    struct plan_node nodes[NODES_MAX];
    struct plan_tensor tensors[TENSORS];
    struct plan_port in[NODES_MAX][WIDTH], out[NODES_MAX][WIDTH];
    struct plan_value defaults[NODES_MAX][WIDTH], of_outputs[TENSORS];
    uint32_t after[NODES_MAX][1];
    uint32_t inputs[2], outputs[TENSORS];
    bool fails[NODES_MAX], is_late[NODES_MAX], holds[NODES_MAX];
    uint8_t wanted[TENSORS];
    bool has_input[2];
    bool is_strict;
    uint32_t stream, answers; /* a node with several answers; NODES_MAX: none */
    /* the walk */
    uint32_t answer;
    bool is_streaming;
    uint8_t marks[NODES_MAX];
    struct run run;
    uint32_t late[NODES_MAX];
    uint32_t late_count;
    uint32_t starts[NODES_MAX];
    /* the interpreter */
    bool is_null[TENSORS], is_known[TENSORS], has_ended[NODES_MAX], is_failed;
    uint8_t outcomes[NODES_MAX];
    uint32_t odd_count;
    int64_t values[TENSORS];
};

static struct world *world_of(struct run *r)
{
    return (struct world *)((char *)r - offsetof(struct world, run));
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

static void node_make(struct world *w, uint32_t n, uint32_t tensors_before, const uint32_t *order)
{
    struct plan_node *node = &w->nodes[order[n]];

    *node = (struct plan_node){.name = MR_STR("n"),
                               .fallback = PLAN_NO_NODE,
                               .attempts = 1,
                               .inputs = w->in[order[n]],
                               .outputs = w->out[order[n]],
                               .defaults = w->defaults[order[n]],
                               .after = w->after[order[n]],
                               .on_error = (enum plan_error)pick(w, 3)};
    node->input_count = pick(w, WIDTH + 1);
    for (uint32_t i = 0; i < node->input_count; i++) {
        w->in[order[n]][i] = (struct plan_port){
            .name = MR_STR("i"), .tensor = pick(w, tensors_before), .is_optional = maybe(w, 30)};
    }
    node->output_count = 1 + pick(w, WIDTH);
    for (uint32_t i = 0; i < node->output_count; i++) {
        const uint32_t t = tensors_before + i;
        w->tensors[t] = (struct plan_tensor){.name = MR_STR("t"), .writer = order[n]};
        w->out[order[n]][i] = (struct plan_port){.name = MR_STR("o"), .tensor = t};
        if (maybe(w, 60)) {
            w->defaults[order[n]][node->default_count++] = (struct plan_value){.tensor = t};
        }
    }
    if (n > 0 && maybe(w, 25)) {
        w->after[order[n]][node->after_count++] = order[pick(w, n)];
    }
    w->fails[order[n]] = maybe(w, 20);
    w->is_late[order[n]] = maybe(w, 50);
    w->holds[order[n]] = maybe(w, 80);
    node->when = maybe(w, 40) ? (struct mr_expr *)w : NULL; /* not looked into */
}

static void world_make(struct world *w)
{
    uint32_t order[NODES_MAX];
    const uint32_t count = 1 + pick(w, NODES_MAX);
    uint32_t tensors = 2;

    w->plan = (struct plan){.is_workflow = true,
                            .name = MR_STR("random"),
                            .nodes = w->nodes,
                            .tensors = w->tensors,
                            .inputs = w->inputs,
                            .outputs = w->outputs,
                            .node_count = count,
                            .input_count = 2};
    mr_arena_init(&w->plan.arena, 4096, 1 << 20);
    for (uint32_t i = 0; i < 2; i++) {
        w->inputs[i] = i;
        w->tensors[i] = (struct plan_tensor){.name = MR_STR("x"), .writer = PLAN_CLIENT};
        w->has_input[i] = maybe(w, 85);
    }
    for (uint32_t i = 0; i < count; i++) { /* the order of the nodes is not that of the list */
        const uint32_t k = pick(w, i + 1);
        order[i] = order[k];
        order[k] = i;
    }
    for (uint32_t n = 0; n < count; n++) {
        node_make(w, n, tensors, order);
        tensors += w->nodes[order[n]].output_count;
    }
    w->plan.tensor_count = tensors;
    for (uint32_t t = 0; t < tensors; t++) {
        w->outputs[t] = t;
        w->of_outputs[t].tensor = t;
        w->wanted[t] = maybe(w, 30);
    }
    w->plan.output_count = w->plan.default_count = tensors;
    w->plan.defaults = w->of_outputs;
    w->is_strict = maybe(w, 20);
    w->stream = maybe(w, 40) ? pick(w, count) : NODES_MAX;
    w->answers = pick(w, 4);
    assert_int_equal(plan_link(&w->plan, NULL), MR_OK);
}

/* ---- what a node computes ---- */

static int64_t mix(int64_t sum, int64_t value)
{
    return (int64_t)((uint64_t)sum * 31 + (uint64_t)value);
}

#define DEFAULT_OF(t) (1000 + (int64_t)(t))

static void give(struct run *r, uint32_t tensor, int64_t value)
{
    /* the value itself stands for the address of the data, which nothing reads */
    const struct mr_tensor t = {.data = (void *)(intptr_t)value};

    run_set(r, tensor, &t, NULL);
}

static int64_t sum_of(const struct world *w, uint32_t n)
{
    return n == w->stream ? mix(n, w->answer) : n;
}

static int finish(struct run *r, uint32_t n)
{
    struct world *w = world_of(r);
    const struct plan_node *node = &w->nodes[n];
    int64_t sum = sum_of(w, n);

    if (w->fails[n]) {
        return MR_E_INTERNAL;
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
        const struct run_value *v = &r->values[node->inputs[i].tensor];
        sum = mix(sum, v->state == RUN_VALUE ? (int64_t)(intptr_t)v->tensor.data : -1);
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        give(r, node->outputs[i].tensor, mix(sum, i));
    }
    return MR_OK;
}

static int start(struct run *r, uint32_t n, struct mr_err *err)
{
    struct world *w = world_of(r);

    w->starts[n]++;
    if (n == w->stream && !w->fails[n]) {
        w->is_streaming = true;
        return MR_PENDING;
    }
    if (w->is_late[n]) {
        w->late[w->late_count++] = n;
        return MR_PENDING;
    }
    const int rc = finish(r, n);
    return rc < 0 ? MR_FAIL(err, rc, "fails") : rc;
}

static int when(struct run *r, uint32_t n, struct mr_err *err)
{
    (void)err;
    return world_of(r)->holds[n];
}

static int value(struct run *r, const struct plan_value *v, struct mr_err *err)
{
    (void)err;
    give(r, v->tensor, DEFAULT_OF(v->tensor));
    return MR_OK;
}

static const struct run_ops ops = {start, when, value, NULL};

static void late_end(struct world *w)
{
    while (w->late_count > 0) { /* in any order */
        const uint32_t k = pick(w, w->late_count), n = w->late[k];
        struct mr_err err = {0};
        w->late[k] = w->late[--w->late_count];
        const int rc = finish(&w->run, n);
        if (rc < 0) {
            MR_FAIL(&err, rc, "fails");
        }
        run_ended(&w->run, n, rc, &err);
        run_go(&w->run);
    }
    assert_int_equal(w->run.pending, w->is_streaming);
}

static void walk(struct world *w, struct mr_arena *arena)
{
    assert_int_equal(run_begin(&w->run, &w->plan, w->wanted, &ops, arena, NULL), MR_OK);
    w->run.is_strict = w->is_strict;
    for (uint32_t i = 0; i < 2; i++) {
        if (w->has_input[i]) {
            give(&w->run, i, 7 + i);
        } else {
            run_set(&w->run, i, NULL, NULL);
        }
    }
    run_go(&w->run);
    late_end(w);
}

static void answer_begin(struct world *w)
{
    if (w->run.status == MR_OK) {
        assert_int_equal(finish(&w->run, w->stream), MR_OK);
        run_answered(&w->run, w->stream);
        run_go(&w->run);
        late_end(w);
    }
}

static void answer_forget(struct world *w)
{
    run_marks(&w->run, w->stream, w->marks);
    run_rewind(&w->run, w->stream, w->marks);
    for (uint32_t n = 0; n < w->plan.node_count; n++) {
        w->starts[n] -= w->marks[n] && w->starts[n] > 0;
    }
    w->answer++;
}

/* ---- the plain interpreter ---- */

static void node_want(struct world *w, uint32_t n);

static void tensor_want(struct world *w, uint32_t t)
{
    if (w->tensors[t].writer < w->plan.node_count) {
        node_want(w, w->tensors[t].writer);
    }
}

static void outputs_lose(struct world *w, const struct plan_node *node)
{
    for (uint32_t i = 0; i < node->output_count; i++) {
        w->is_null[node->outputs[i].tensor] = true;
    }
}

static void defaults_take(struct world *w, const struct plan_node *node)
{
    outputs_lose(w, node);
    for (uint32_t i = 0; i < node->default_count; i++) {
        w->is_null[node->defaults[i].tensor] = false;
        w->values[node->defaults[i].tensor] = DEFAULT_OF(node->defaults[i].tensor);
    }
}

static void odd_note(struct world *w, uint32_t n, enum run_outcome outcome)
{
    w->outcomes[n] = (uint8_t)outcome;
    w->odd_count++;
}

static void node_want(struct world *w, uint32_t n)
{
    const struct plan_node *node = &w->nodes[n];
    const bool is_soft = w->fails[n] && !w->is_strict;
    int64_t sum = sum_of(w, n);
    bool lacks = false;

    if (w->has_ended[n]) {
        return;
    }
    w->has_ended[n] = true;
    for (uint32_t i = 0; i < node->after_count; i++) {
        node_want(w, node->after[i]);
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
        const uint32_t t = node->inputs[i].tensor;
        tensor_want(w, t);
        lacks |= w->is_null[t] && !node->inputs[i].is_optional;
        sum = mix(sum, w->is_null[t] ? -1 : w->values[t]);
    }
    if (lacks || (node->when && !w->holds[n])) {
        odd_note(w, n, RUN_SKIPPED);
        outputs_lose(w, node);
    } else if (is_soft && node->on_error == PLAN_SKIP) {
        odd_note(w, n, RUN_FAILED);
        outputs_lose(w, node);
    } else if (is_soft && node->on_error == PLAN_DEFAULT) {
        odd_note(w, n, RUN_DEFAULTED);
        defaults_take(w, node);
    } else if (w->fails[n]) {
        w->is_failed = true;
        outputs_lose(w, node);
    } else {
        for (uint32_t i = 0; i < node->output_count; i++) {
            w->values[node->outputs[i].tensor] = mix(sum, i);
        }
    }
}

static void interpret(struct world *w)
{
    memset(w->is_null, 0, sizeof w->is_null);
    memset(w->has_ended, 0, sizeof w->has_ended);
    memset(w->outcomes, 0, sizeof w->outcomes);
    w->odd_count = 0;
    w->is_failed = false;
    for (uint32_t i = 0; i < 2; i++) {
        w->is_null[i] = !w->has_input[i];
        w->values[i] = 7 + i;
    }
    for (uint32_t t = 0; t < w->plan.tensor_count; t++) {
        if (w->wanted[t]) {
            tensor_want(w, t);
        }
    }
}

static void compare(const struct world *w, int graph)
{
    if (w->is_failed != (w->run.status < 0)) {
        fail_msg("graph %d: failed %d, walked %d", graph, w->is_failed, w->run.status);
    }
    for (uint32_t n = 0; n < w->plan.node_count; n++) {
        if (w->starts[n] > 1 || (w->starts[n] && !w->has_ended[n] && !w->is_failed)) {
            fail_msg("graph %d: node %u ran %u times", graph, n, w->starts[n]);
        }
    }
    if (!w->is_failed && w->odd_count != w->run.odd_count) {
        fail_msg("graph %d: %u nodes did not simply run, counted were %u", graph, w->odd_count,
                 w->run.odd_count);
    }
    for (uint32_t n = 0; n < w->plan.node_count && !w->is_failed; n++) {
        if (w->outcomes[n] != w->run.nodes[n].outcome) {
            fail_msg("graph %d: node %u has outcome %u, not %u", graph, n, w->run.nodes[n].outcome,
                     w->outcomes[n]);
        }
    }
    for (uint32_t t = 0; t < w->plan.tensor_count && !w->is_failed; t++) {
        const struct run_value *v = &w->run.values[t];
        const bool is_right = w->is_null[t] ? v->state == RUN_NULL || v->state == RUN_FILLED
                                            : v->state == RUN_VALUE &&
                                                  (int64_t)(intptr_t)v->tensor.data == w->values[t];
        if (w->wanted[t] && !is_right) {
            fail_msg("graph %d: tensor %u differs", graph, t);
        }
    }
}

/* Each answer of the stream. */
static void stream_check(struct world *w, int graph)
{
    for (; w->answer < w->answers && w->run.status == MR_OK; answer_forget(w)) {
        answer_begin(w);
        interpret(w);
        compare(w, graph);
        run_defaults(&w->run, NULL); /* for the answer: nodes of the next one do not see them */
    }
    run_over(&w->run, w->stream, MR_OK, NULL);
}

static void test_random_graphs(void **state)
{
    struct world *w = MR_NEW(struct world);
    struct mr_arena arena;
    size_t failed = 0, streams = 0;
    (void)state;

    mr_arena_init(&arena, 16384, 1 << 20);
    for (int i = 0; i < GRAPHS; i++) {
        memset(w, 0, sizeof *w);
        mr_rng_seed(&w->rng, (uint64_t)i);
        world_make(w);
        walk(w, &arena);
        if (w->is_streaming) {
            stream_check(w, i);
        } else {
            interpret(w);
            compare(w, i);
        }
        assert_true(run_is_over(&w->run));
        failed += w->is_failed;
        streams += w->answer > 1;
        run_fini(&w->run);
        mr_arena_fini(&w->plan.arena);
        mr_arena_reset(&arena);
    }
    /* all kinds are there */
    assert_true(failed > GRAPHS / 100 && failed < GRAPHS / 2 && streams > GRAPHS / 50);
    mr_arena_fini(&arena);
    mr_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_graphs)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
