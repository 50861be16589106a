/* Which inputs of a node are divided into rows, and how its model takes them.
 *
 * A model with a batch dimension has them there, as many as it allows. One without has one row for each call: with dimension 0,
 * if the model has as many dimensions as the tensor, and without it, if it has one less. If the tensor's dimensions are not known, a
 * first dimension of 1 decides. In a switch, a model without batch dimension whose first dimension is open takes all rows at
 * once. So do operators, with any number of rows, in dimension 0.
 *
 * Thread: loader. */
#include "rows_node.h"

#include "tensor/tensor.h"
#include "variant/split.h"

#define FOREACH_MAX_DEFAULT 1024u

#define NAME(s) MR_STR_ARG(mr_str_sub((s), 0, 80))

/* Marks the inputs that read `tensor`. False: none does. */
static bool inputs_mark(const struct plan_node *node, uint32_t tensor, bool *divided)
{
    bool is_found = false;

    for (uint32_t i = 0; i < node->input_count; i++) {
        const bool is_it = node->inputs[i].tensor == tensor;
        divided[i] |= is_it;
        is_found |= is_it;
    }
    return is_found;
}

static struct plan_rows *rows_new(struct plan *p, const struct plan_node *node, bool **out_divided)
{
    struct plan_rows *rows = MR_ARENA_NEW(&p->arena, struct plan_rows);
    bool *divided = MR_ARENA_ARRAY(&p->arena, bool, node->input_count + 1u);

    if (!rows || !divided) {
        return NULL;
    }
    memset(rows, 0, sizeof *rows);
    memset(divided, 0, node->input_count + 1u);
    rows->divided = *out_divided = divided;
    return rows;
}

/* ---- foreach ---- */

int plan_foreach_read(struct plan_build *b, struct plan_node *node, const node_config *n)
{
    const Millrace__WorkflowScheduling__Foreach *f = n->foreach;
    bool *divided;

    if (!f) {
        return MR_OK;
    }
    if (f->n_over == 0 || f->max > PLAN_FOREACH_MAX || f->dim >= MR_MAX_RANK) {
        return PLAN_BAD(b,
                        "workflow '%.*s': foreach of node '%.*s' must specify 'over', a 'max' of "
                        "at most %u and a 'dim' below %d",
                        NAME(b->p->name), NAME(node->name), PLAN_FOREACH_MAX, MR_MAX_RANK);
    }
    struct plan_rows *rows = rows_new(b->p, node, &divided);
    if (!rows) {
        return plan_no_memory(b->p, b->err);
    }
    for (size_t i = 0; i < f->n_over; i++) {
        if (!inputs_mark(node, plan_build_tensor(b, f->over[i]), divided)) {
            return PLAN_BAD(b,
                            "workflow '%.*s': node '%.*s' has foreach over tensor '%.128s', which "
                            "it does not read",
                            NAME(b->p->name), NAME(node->name), f->over[i]);
        }
    }
    rows->is_foreach = true;
    rows->max = f->max ? f->max : FOREACH_MAX_DEFAULT;
    rows->dim = f->dim;
    rows->skips_empty = f->empty == MILLRACE__WORKFLOW_SCHEDULING__FOREACH__EMPTY__SKIP;
    node->rows = rows;
    return MR_OK;
}

/* ---- switches per row ---- */

/* A branch with `foreach`: what both divide is the same, so that what comes together is a row of the switch for each. */
static int foreach_branch(struct plan_build *b, const switch_config *s,
                          const struct plan_node *node, const bool *divided)
{
    if (node->rows->skips_empty) {
        return PLAN_BAD(
            b,
            "workflow '%.*s': node '%.*s' has foreach with 'empty: SKIP' and is a branch "
            "of switch '%.128s' per row, whose rows need a value",
            NAME(b->p->name), NAME(node->name), s->name);
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (divided[i] != node->rows->divided[i]) {
            return PLAN_BAD(b,
                            "workflow '%.*s': node '%.*s': tensor '%.*s' is in %s: of a branch, "
                            "foreach is over what 'input' of the switch divides",
                            NAME(b->p->name), NAME(node->name),
                            NAME(b->p->tensors[node->inputs[i].tensor].name),
                            divided[i] ? "'input' of its switch and not in 'over'"
                                       : "'over' and not in 'input' of its switch");
        }
    }
    return MR_OK;
}

static int branch_rows(struct plan_build *b, const switch_config *s, uint32_t branch)
{
    struct plan_node *node = &b->p->nodes[branch];
    bool *divided;
    bool is_any = false;
    struct plan_rows *rows = rows_new(b->p, node, &divided);

    if (!rows) {
        return plan_no_memory(b->p, b->err);
    }
    for (size_t i = 0; i < s->n_input; i++) {
        is_any |= inputs_mark(node, plan_build_tensor(b, s->input[i]), divided);
    }
    if (!is_any) {
        return PLAN_BAD(b,
                        "workflow '%.*s': node '%.*s' reads no tensor that 'input' of switch "
                        "'%.128s' names",
                        NAME(b->p->name), NAME(node->name), s->name);
    }
    if (node->rows) {
        return foreach_branch(b, s, node, divided);
    }
    rows->max = PLAN_SWITCH_ROWS_MAX;
    node->rows = rows;
    for (size_t v = 1; node->split && v < mr_split_count(node->split); v++) {
        b->p->nodes[node->variants + v - 1].rows = rows;
    }
    return MR_OK;
}

int plan_rows_branch(struct plan_build *b, const switch_config *s, uint32_t branch)
{
    const uint32_t spare = b->p->nodes[branch].fallback;
    const int rc = branch_rows(b, s, branch);

    return rc < 0 || spare >= b->p->node_count ? rc : branch_rows(b, s, spare);
}

int plan_rows_switch(struct plan_build *b, const switch_config *s, struct plan_node *node)
{
    struct plan_port *ports = MR_ARENA_ARRAY(&b->p->arena, struct plan_port, s->n_input + 1);
    int rc = ports ? MR_OK : plan_no_memory(b->p, b->err);

    for (size_t i = 0; i < s->n_input && rc == MR_OK; i++) {
        ports[i] = (struct plan_port){.name = mr_str_c(s->input[i])};
        rc = plan_tensor_of(b->p, s->input[i], &ports[i].tensor, b->err);
    }
    node->inputs = ports;
    node->input_count = (uint32_t)s->n_input;
    node->is_by_row = true;
    return rc < 0
               ? MR_WRAP(b->err, rc, "workflow '%.*s': switch '%.128s'", NAME(b->p->name), s->name)
               : rc;
}

/* ---- gather ---- */

static int gather_make(struct plan_build *b, const Millrace__WorkflowScheduling__Gather *g)
{
    struct plan *p = b->p;
    struct plan_port *ports = MR_ARENA_ARRAY(&p->arena, struct plan_port, 2);
    int rc;

    if (!ports) {
        return plan_no_memory(p, b->err);
    }
    if (!g->from[0] || !g->into[0] || g->axis >= MR_MAX_RANK) {
        return PLAN_BAD(b,
                        "workflow '%.*s': gather '%.128s' must specify 'from', 'into' and an "
                        "'axis' below %d",
                        NAME(p->name), g->name[0] ? g->name : g->into, MR_MAX_RANK);
    }
    MR_TRY(g->name[0] ? plan_build_name_take(b, "gather", g->name) : MR_OK);
    ports[0] = (struct plan_port){.name = MR_STR("from")};
    ports[1] = (struct plan_port){.name = MR_STR("into")};
    rc = plan_tensor_of(p, g->from, &ports[0].tensor, b->err);
    rc = rc < 0 ? rc : plan_tensor_of(p, g->into, &ports[1].tensor, b->err);
    if (rc < 0) {
        MR_WRAP(b->err, rc, "workflow '%.*s': gather '%.128s'", NAME(p->name),
                g->name[0] ? g->name : g->into);
        goto out;
    }
    p->nodes[p->node_count++] = (struct plan_node){.name = mr_str_c(g->name[0] ? g->name : g->into),
                                                   .version = MR_STR(""),
                                                   .inputs = ports,
                                                   .outputs = ports + 1,
                                                   .input_count = 1,
                                                   .output_count = 1,
                                                   .is_gather = true,
                                                   .axis = g->axis,
                                                   .fallback = PLAN_NO_NODE,
                                                   .attempts = 1};
out:
    return rc;
}

int plan_gathers_make(struct plan_build *b)
{
    int rc = MR_OK;

    for (size_t i = 0; i < b->w->n_gather && rc == MR_OK; i++) {
        rc = gather_make(b, b->w->gather[i]);
    }
    return rc;
}

/* ---- how models take rows ---- */

static const struct mr_model_io *io_of(const struct mr_model_io *list, uint32_t count, mr_str name)
{
    for (uint32_t i = 0; i < count; i++) {
        if (mr_str_eq(list[i].name, name)) {
            return &list[i];
        }
    }
    return NULL;
}

struct settling {
    struct plan *p;
    struct plan_node *node;
    struct plan_rows *rows;
    const struct mr_version *v; /* NULL: of an operator */
    uint8_t *inputs, *outputs;  /* those of `rows` */
    struct plan_type *made;
    int32_t *ranks;
    bool has_row; /* an input has rows without dimension 0 */
    struct mr_err *err;
};

#define ROWS_BAD(s, port, ...)                                                                     \
    MR_WRAP((s)->err, MR_FAIL((s)->err, MR_E_INVALID, __VA_ARGS__),                                \
            "workflow '%.*s': node '%.*s': rows of tensor '%.*s'", NAME((s)->p->name),             \
            NAME((s)->node->name), NAME((s)->p->tensors[(port)->tensor].name))

static bool has_lead(const struct settling *s, uint32_t tensor, const struct mr_model_io *io)
{
    const struct plan_type *made = &s->p->tensors[tensor].made;

    if (io->rank < 1) {
        return false;
    }
    if (made->dtype != MR_DTYPE_INVALID && made->rank >= 0) {
        return made->rank - (int32_t)s->rows->dim == io->rank;
    }
    return io->dims[0] == 1 || (!s->rows->is_foreach && io->dims[0] < 0);
}

/* Of a model without batch dimension. */
static int input_settle(struct settling *s, const struct plan_port *port,
                        const struct mr_model_io *io, uint8_t *out)
{
    if (!has_lead(s, port->tensor, io)) {
        *out = PLAN_ROW;
        s->rows->per_call = 1;
        s->has_row = true;
        return MR_OK;
    }
    *out = PLAN_ROWS;
    if (io->dims[0] > 1 || io->dims[0] == 0) {
        return ROWS_BAD(s, port, "model '%.*s' takes %lld at a time", NAME(s->v->model_name),
                        (long long)io->dims[0]);
    }
    s->rows->per_call = io->dims[0] == 1 || s->rows->is_foreach ? 1 : s->rows->per_call;
    return MR_OK;
}

static int inputs_settle(struct settling *s, uint8_t *forms, int32_t *ranks)
{
    const struct plan_node *node = s->node;
    int rc = MR_OK;

    for (uint32_t i = 0; i < node->input_count && rc == MR_OK; i++) {
        const struct plan_port *port = &node->inputs[i];
        const bool is_batching = s->v->max_batch_size > 0;
        forms[i] = s->rows->divided[i] ? PLAN_ROWS : PLAN_WHOLE;
        if (!s->rows->divided[i] && is_batching && !s->rows->is_foreach) {
            rc = ROWS_BAD(s, port,
                          "the model '%.*s' batches, and 'input' of the switch does not name it",
                          NAME(s->v->model_name));
        } else if (!s->rows->divided[i]) {
            s->rows->per_call = is_batching ? 1 : s->rows->per_call;
        } else if (!is_batching) {
            rc = input_settle(s, port, io_of(s->v->inputs, s->v->input_count, port->name),
                              &forms[i]);
        }
        ranks[i] = io_of(s->v->inputs, s->v->input_count, port->name)->rank +
                   (int32_t)s->rows->dim + (is_batching || forms[i] == PLAN_ROW ? 1 : 0);
    }
    return rc;
}

static int output_settle(struct settling *s, const struct plan_port *port,
                         const struct mr_model_io *io, uint8_t *out)
{
    const bool is_open = io->rank > 0 && io->dims[0] < 0;
    const bool is_one = io->rank > 0 && io->dims[0] == 1;

    *out = PLAN_ROWS;
    if (s->v->max_batch_size > 0 || (!s->has_row && is_open)) {
        return MR_OK;
    }
    if (s->rows->per_call == 1) {
        *out = !s->has_row && is_one ? PLAN_ROWS : PLAN_ROW;
        return MR_OK;
    }
    return ROWS_BAD(s, port,
                    "output '%.*s' of model '%.*s' does not have one for each that the model gets",
                    NAME(io->name), NAME(s->v->model_name));
}

/* The dimensions of a row, in the arena. */
static int row_made(struct settling *s, const struct mr_model_io *io, uint8_t form,
                    struct plan_type *out)
{
    const int32_t lead = form == PLAN_ROWS && s->v->max_batch_size == 0 ? 1 : 0;
    int64_t *dims = MR_ARENA_ARRAY(&s->p->arena, int64_t, (size_t)io->rank + 1);

    if (!dims) {
        return plan_no_memory(s->p, s->err);
    }
    memcpy(dims, io->dims + lead, (size_t)(io->rank - lead) * sizeof *dims);
    *out = (struct plan_type){io->dtype, io->rank - lead, dims};
    return MR_OK;
}

static int outputs_settle(struct settling *s, uint8_t *forms, struct plan_type *made)
{
    int rc = MR_OK;

    for (uint32_t i = 0; i < s->node->output_count && rc == MR_OK; i++) {
        const struct plan_port *port = &s->node->outputs[i];
        const struct mr_model_io *io = io_of(s->v->outputs, s->v->output_count, port->name);
        rc = output_settle(s, port, io, &forms[i]);
        rc = rc < 0 ? rc : row_made(s, io, forms[i], &made[i]);
    }
    return rc;
}

/* Room for what is settled; nodes with the same ports share what there is. */
static int settling_begin(struct settling *s)
{
    struct plan *p = s->p;
    const struct plan_node *node = s->node;

    s->rows = MR_ARENA_NEW(&p->arena, struct plan_rows);
    s->inputs =
        MR_ARENA_ARRAY(&p->arena, uint8_t, (size_t)node->input_count + node->output_count + 1);
    s->made = MR_ARENA_ARRAY(&p->arena, struct plan_type, node->output_count + 1u);
    s->ranks = MR_ARENA_ARRAY(&p->arena, int32_t, node->input_count + 1u);
    if (!s->rows || !s->inputs || !s->made || !s->ranks) {
        return plan_no_memory(p, s->err);
    }
    s->outputs = s->inputs + node->input_count;
    *s->rows = *node->rows;
    s->rows->inputs = s->inputs;
    s->rows->outputs = s->outputs;
    s->rows->made = s->made;
    s->rows->ranks = s->ranks;
    s->rows->per_call = UINT32_MAX;
    return MR_OK;
}

int plan_rows_settle(struct plan *p, uint32_t n, const struct mr_version *v, struct mr_err *err)
{
    struct plan_node *node = &p->nodes[n];
    struct settling s = {.p = p, .node = node, .v = v, .err = err};
    int rc;

    MR_TRY(settling_begin(&s));
    if (v->max_batch_size > 0) {
        s.rows->per_call = (uint32_t)v->max_batch_size;
    }
    MR_TRY(inputs_settle(&s, s.inputs, s.ranks));
    MR_TRY(outputs_settle(&s, s.outputs, s.made));
    node->rows = s.rows;
out:
    return rc;
}

/* ---- operators, which take all rows at once ---- */

/* dims: room for MR_MAX_RANK of them. The first `from` dimensions become `to` open ones. */
static struct plan_type leads_open(const struct plan_type *t, int32_t from, int32_t to,
                                   int64_t *dims)
{
    for (int32_t i = 0; i < to; i++) {
        dims[i] = -1;
    }
    memcpy(dims + to, t->dims + from, (size_t)(t->rank - from) * sizeof *dims);
    return (struct plan_type){t->dtype, t->rank - from + to, dims};
}

int plan_rows_op_inputs(struct plan *p, uint32_t n, struct plan_type *types, struct plan_type *kept,
                        struct mr_err *err)
{
    struct plan_node *node = &p->nodes[n];
    struct settling s = {.p = p, .node = node, .err = err};
    const int32_t lead = (int32_t)node->rows->dim + 1;

    for (uint32_t i = 0; i < node->input_count; i++) {
        kept[i] = types[node->inputs[i].tensor];
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
        int64_t *dims = MR_ARENA_ARRAY(&p->arena, int64_t, MR_MAX_RANK + 1);
        if (!dims) {
            return plan_no_memory(p, err);
        }
        if (node->rows->divided[i] && kept[i].rank < lead) {
            return ROWS_BAD(&s, &node->inputs[i], "its dimensions are not known, or less than %d",
                            lead);
        }
        if (node->rows->divided[i]) {
            types[node->inputs[i].tensor] = leads_open(&kept[i], lead, 1, dims);
        }
    }
    return MR_OK;
}

static int op_output_settle(struct settling *s, uint32_t i, struct plan_type *io)
{
    const int32_t lead = (int32_t)s->rows->dim + 1;
    int64_t *dims = MR_ARENA_ARRAY(&s->p->arena, int64_t, MR_MAX_RANK + 1);

    if (!dims) {
        return plan_no_memory(s->p, s->err);
    }
    if (io->rank < 1 || io->dims[0] >= 0 || io->rank - 1 + lead > MR_MAX_RANK) {
        return ROWS_BAD(s, &s->node->outputs[i],
                        "operator '%.*s' does not give one for each that it gets",
                        NAME(s->node->op_name));
    }
    s->outputs[i] = PLAN_ROWS;
    s->made[i] = (struct plan_type){io->dtype, io->rank - 1, io->dims + 1};
    *io = leads_open(io, 1, lead, dims);
    return MR_OK;
}

int plan_rows_op_outputs(struct plan *p, uint32_t n, struct plan_type *types,
                         const struct plan_type *kept, struct mr_err *err)
{
    struct plan_node *node = &p->nodes[n];
    struct settling s = {.p = p, .node = node, .err = err};
    int rc = settling_begin(&s);

    for (uint32_t i = 0; i < node->input_count && rc == MR_OK; i++) {
        types[node->inputs[i].tensor] = kept[i];
        s.inputs[i] = node->rows->divided[i] ? PLAN_ROWS : PLAN_WHOLE;
        s.ranks[i] = kept[i].rank;
    }
    for (uint32_t i = 0; i < node->output_count && rc == MR_OK; i++) {
        rc = op_output_settle(&s, i, &types[node->outputs[i].tensor]);
    }
    node->rows = rc < 0 ? node->rows : s.rows;
    return rc;
}

/* ---- splits ---- */

int plan_rows_settle_split(struct plan *p, uint32_t n, struct mr_err *err)
{
    const struct plan_node *node = &p->nodes[n];
    const uint32_t count = (uint32_t)mr_split_count(node->split);

    for (uint32_t v = 1; v < count; v++) {
        const struct plan_rows *other = p->nodes[node->variants + v - 1].rows;
        if (memcmp(other->inputs, node->rows->inputs, node->input_count) != 0 ||
            memcmp(other->outputs, node->rows->outputs, node->output_count) != 0) {
            return MR_FAIL(err, MR_E_INVALID,
                           "workflow '%.*s': the variants of node '%.*s' do not take rows alike",
                           NAME(p->name), NAME(node->name));
        }
        node->rows->per_call = MR_MIN(node->rows->per_call, other->per_call);
    }
    return MR_OK;
}

int plan_rows_dims(struct plan *p, const struct plan_node *node, bool is_output, uint32_t index,
                   bool *is_batching, const struct mr_model_io *io, int32_t *out_rank,
                   const int64_t **out_dims, struct mr_err *err)
{
    const struct plan_rows *rows = node->rows;
    const uint8_t form = is_output ? rows->outputs[index] : rows->inputs[index];
    const int32_t cut = form == PLAN_ROWS && !*is_batching ? 1 : 0;
    const int32_t lead = (int32_t)rows->dim + (form == PLAN_ROWS && *is_batching ? 0 : 1);

    *out_rank = io->rank;
    *out_dims = io->dims;
    if (form == PLAN_WHOLE) {
        return MR_OK;
    }
    int64_t *dims = MR_ARENA_ARRAY(&p->arena, int64_t, (size_t)(lead + io->rank) + 1);
    if (!dims) {
        return plan_no_memory(p, err);
    }
    if (lead + io->rank - cut > MR_MAX_RANK) {
        return MR_FAIL(
            err, MR_E_INVALID,
            "workflow '%.*s': node '%.*s': tensor '%.*s' has more than %d dimensions",
            NAME(p->name), NAME(node->name),
            NAME(p->tensors[(is_output ? node->outputs : node->inputs)[index].tensor].name),
            MR_MAX_RANK);
    }
    for (int32_t i = 0; i < lead; i++) {
        dims[i] = -1;
    }
    memcpy(dims + lead, io->dims + cut, (size_t)(io->rank - cut) * sizeof *dims);
    *out_rank = lead + io->rank - cut;
    *out_dims = dims;
    return MR_OK;
}
