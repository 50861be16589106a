/* Plans by hand, for the tests of operators in workflows. */
#ifndef MR_TEST_FLOW_TEST_H
#define MR_TEST_FLOW_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "flow/plan/op_node.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define PORTS_MAX       3

/* A node: "input=TENSOR" and "output=TENSOR", each up to PORTS_MAX. */
struct node_text {
    const char *name;
    const char *inputs[PORTS_MAX], *outputs[PORTS_MAX];
};

static inline struct plan_port port_of(struct plan *p, const char *text)
{
    const char *sign = strchr(text, '=');
    struct plan_port port = {0};

    port.name = mr_arena_str(&p->arena, mr_str_n(text, (size_t)(sign - text)));
    assert_int_equal(plan_tensor_of(p, sign + 1, &port.tensor, NULL), MR_OK);
    return port;
}

static inline void node_make(struct plan *p, uint32_t n, const struct node_text *text)
{
    struct plan_node *node = &p->nodes[n];
    struct plan_port *ports = MR_ARENA_ARRAY(&p->arena, struct plan_port, 2 * PORTS_MAX);

    node->name = mr_arena_str(&p->arena, mr_str_c(text->name));
    node->inputs = ports;
    node->outputs = ports + PORTS_MAX;
    for (; node->input_count < PORTS_MAX && text->inputs[node->input_count]; node->input_count++) {
        ports[node->input_count] = port_of(p, text->inputs[node->input_count]);
    }
    for (; node->output_count < PORTS_MAX && text->outputs[node->output_count];
         node->output_count++) {
        struct plan_port port = port_of(p, text->outputs[node->output_count]);
        ports[PORTS_MAX + node->output_count] = port;
        p->tensors[port.tensor].writer = n;
    }
}

/* A plan with input IN and output OUT. */
static inline struct plan *plan_make(const struct node_text *nodes, uint32_t count)
{
    Inference__ModelConfig c = INFERENCE__MODEL_CONFIG__INIT;
    Inference__ModelInput in = INFERENCE__MODEL_INPUT__INIT;
    Inference__ModelOutput out = INFERENCE__MODEL_OUTPUT__INIT;
    Inference__ModelInput *ins[] = {&in};
    Inference__ModelOutput *outs[] = {&out};
    struct plan *p = NULL;

    c.name = (char *)(uintptr_t) "flow";
    c.platform = (char *)(uintptr_t) "workflow";
    c.scheduling_choice_case = INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_WORKFLOW_SCHEDULING;
    in.name = (char *)(uintptr_t) "IN";
    out.name = (char *)(uintptr_t) "OUT";
    c.input = ins;
    c.output = outs;
    c.n_input = c.n_output = 1;
    assert_int_equal(plan_new(&p, &c, NULL), MR_OK);
    p->is_workflow = true;
    p->nodes = MR_ARENA_ARRAY(&p->arena, struct plan_node, count + 1);
    p->node_count = count;
    for (uint32_t n = 0; n < count; n++) {
        node_make(p, n, &nodes[n]);
    }
    assert_int_equal(plan_link(p, NULL), MR_OK);
    return p;
}

static inline uint32_t tensor_of(struct plan *p, const char *name)
{
    uint32_t t = 0;

    assert_int_equal(plan_tensor_of(p, name, &t, NULL), MR_OK);
    return t;
}

#endif
