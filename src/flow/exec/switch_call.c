/* Switches per row. Each row goes to the first branch whose condition holds for it, and each branch that has rows is a fan of calls.
 * When all rows take one branch, inputs and outputs are handed on as they are. Otherwise a branch with consecutive rows gets views,
 * others get copies, and what the branches give is copied together in the order of the rows.
 *
 * A row without a branch, or whose branch lacks an input, has the workflow's default of each tensor: the plan proves that there
 * is one. Such rows are a part of their own, after those of the branches. What a branch's policy gives when it fails takes the place of its
 * rows; without one, the first branch that fails fails the switch, and the others are cancelled as far as they wait.
 *
 * Conditions of many rows, and copies of many bytes, get turns of the reply loop, if there is one, so that it serves others in
 * between.
 *
 * Thread: that of the walk. */
#include "fan.h"

#include "base/mem.h"
#include "base/turn.h"
#include "flow/plan/rows_node.h"
#include "tensor/rows.h"
#include "tensor/tensor.h"

#define NAME(s) MR_STR_ARG(mr_str_sub((s), 0, 80))

struct branch {
    struct fan fan;
    struct mr_rows_part part;
    struct mr_block **copies; /* [input_count] of inputs */
    uint32_t node;            /* that runs: the branch, or its fallback */
    const int64_t *lead;      /* with `foreach`: the first dimensions of its part */
    bool is_pending;
    bool is_defaulted; /* it has failed, and its rows have defaults */
};

/* More rows times cases, or bytes, are long work. */
#define LONG_CASES 2048u
#define LONG_BYTES 32768u

struct rows_switch {
    struct call call; /* first: the walk frees it with its calls */
    struct mr_turn turn;
    int (*stage)(struct rows_switch *s,
                 struct mr_err *err); /* of the work: rows_divide, outputs_merge */
    struct walk *walk;
    const struct plan_node *n;
    uint32_t node;
    uint64_t rows;
    uint16_t *choice;        /* [rows] branch of each, branch_count: none */
    struct branch *branches; /* [branch_count] */
    uint32_t pending;        /* branches */
    uint64_t without;        /* rows that have no branch */
    bool is_starting;
    int status;
    struct mr_err err;
};

static const struct plan_node *branch_node(const struct rows_switch *s, uint32_t k)
{
    return &s->walk->run.plan->nodes[s->branches[k].node];
}

static const struct run_value *value_of(const struct rows_switch *s, const struct plan_port *port)
{
    return &s->walk->run.values[port->tensor];
}

static mr_str tensor_name(const struct rows_switch *s, uint32_t tensor)
{
    return mr_str_sub(s->walk->run.plan->tensors[tensor].name, 0, 80);
}

/* ---- which branch a row takes ---- */

static int rows_count(struct rows_switch *s, struct mr_err *err)
{
    for (uint32_t i = 0; i < s->n->input_count; i++) {
        const struct mr_tensor *t = &value_of(s, &s->n->inputs[i])->tensor;
        const uint64_t rows = t->rank ? (uint64_t)t->shape[0] : 0;
        if (t->rank == 0 || rows > PLAN_SWITCH_ROWS_MAX) {
            return MR_FAIL(err, MR_E_INVALID,
                           "node '%.*s': tensor '%.*s' has %llu rows, a switch divides up to %u",
                           NAME(s->n->name), MR_STR_ARG(tensor_name(s, s->n->inputs[i].tensor)),
                           (unsigned long long)rows, PLAN_SWITCH_ROWS_MAX);
        }
        if (i > 0 && rows != s->rows) {
            return MR_FAIL(err, MR_E_INVALID,
                           "node '%.*s': tensor '%.*s' has %llu rows, others have %llu",
                           NAME(s->n->name), MR_STR_ARG(tensor_name(s, s->n->inputs[i].tensor)),
                           (unsigned long long)rows, (unsigned long long)s->rows);
        }
        s->rows = rows;
    }
    return MR_OK;
}

static bool lacks_input(const struct rows_switch *s, uint32_t k)
{
    const struct plan_node *n = branch_node(s, k);

    for (uint32_t i = 0; i < n->input_count; i++) {
        if (!n->inputs[i].is_optional && value_of(s, &n->inputs[i])->state != RUN_VALUE) {
            return true;
        }
    }
    return false;
}

/* Rows without a branch whose condition holds, or all of them if it is the last one, take branch k. */
static int branch_choose(struct rows_switch *s, uint32_t k, uint8_t *mask, struct mr_err *err)
{
    const bool is_else = s->n->has_else && k + 1 == s->n->branch_count;
    const uint16_t none = (uint16_t)s->n->branch_count;

    if (is_else) {
        memset(mask, 1, s->rows);
    } else {
        const int rc = flow_when_rows(&s->walk->run, s->n->branches[k], s->rows, mask, err);
        if (rc < 0) {
            return rc;
        }
    }
    for (uint64_t i = 0; i < s->rows; i++) {
        s->choice[i] = s->choice[i] == none && mask[i] ? (uint16_t)k : s->choice[i];
    }
    return MR_OK;
}

static int rows_choose(struct rows_switch *s, struct mr_err *err)
{
    const uint16_t none = (uint16_t)s->n->branch_count;
    uint8_t *mask = mr_try_alloc(s->rows + 1);
    int rc = MR_OK;

    s->choice = mr_try_alloc((s->rows + 1) * sizeof *s->choice);
    if (!mask || !s->choice) {
        rc = MR_FAIL(err, MR_E_EXHAUSTED, "node '%.*s': no memory for its rows", NAME(s->n->name));
    }
    for (uint64_t i = 0; i < s->rows && rc == MR_OK; i++) {
        s->choice[i] = none;
    }
    for (uint32_t k = 0; k < s->n->branch_count && rc == MR_OK; k++) {
        rc = branch_choose(s, k, mask, err);
    }
    mr_free(mask);
    return rc;
}

/* The rows of a branch that cannot run have none. */
static void parts_find(struct rows_switch *s)
{
    const uint16_t none = (uint16_t)s->n->branch_count;
    struct mr_rows_part part;

    for (uint32_t k = 0; k < s->n->branch_count; k++) {
        struct branch *b = &s->branches[k];
        mr_rows_part_of(s->choice, s->rows, (uint16_t)k, &b->part);
        if (b->part.count == 0 || !lacks_input(s, k)) {
            continue;
        }
        b->part.count = 0;
        for (uint64_t i = 0; i < s->rows; i++) {
            s->choice[i] = s->choice[i] == k ? none : s->choice[i];
        }
    }
    mr_rows_part_of(s->choice, s->rows, none, &part);
    s->without = part.count;
}

/* ---- branches ---- */

/* The rows of a tensor that belong to the branch. */
static int part_make(struct rows_switch *s, uint32_t k, uint32_t i, struct mr_tensor *out,
                     struct mr_err *err)
{
    struct branch *b = &s->branches[k];
    const struct mr_tensor *t = &value_of(s, &branch_node(s, k)->inputs[i])->tensor;
    int64_t *shape = MR_ARENA_ARRAY(&s->walk->arena, int64_t, (size_t)t->rank + 1);
    int rc;

    if (!shape) {
        return MR_ARENA_FAIL(err);
    }
    if (b->part.count == s->rows) {
        *out = *t;
        return MR_OK;
    }
    if (b->part.is_run) {
        return mr_rows_view(t, b->part.first, b->part.count, shape, out, err);
    }
    memcpy(shape, t->shape, (size_t)t->rank * sizeof *shape);
    shape[0] = (int64_t)b->part.count;
    *out = *t;
    out->shape = shape;
    MR_TRY(mr_rows_part_bytes(t, s->choice, (uint16_t)k, &out->bytes, err));
    b->copies[i] = mr_block_new(MR_MAX(out->bytes, (uint64_t)1));
    if (!b->copies[i]) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for its rows");
    }
    out->data = b->copies[i]->data;
    rc = mr_rows_part_copy(t, s->choice, (uint16_t)k, out->data, err);
out:
    return rc;
}

static int branch_input(struct rows_switch *s, uint32_t k, uint32_t i, struct mr_err *err)
{
    const struct plan_node *n = branch_node(s, k);
    struct mr_tensor t = value_of(s, &n->inputs[i])->tensor;
    char text[256];
    int rc = MR_OK;

    if (value_of(s, &n->inputs[i])->state != RUN_VALUE) {
        return MR_OK;
    }
    if (n->rows->divided[i] && t.rank != n->rows->ranks[i]) {
        rc = MR_FAIL(err, MR_E_INVALID, "its shape is %s, and the rows need %d dimensions",
                     mr_shape_text(t.shape, t.rank, text, sizeof text), n->rows->ranks[i]);
    } else if (n->rows->divided[i]) {
        rc = part_make(s, k, i, &t, err);
    }
    if (rc == MR_OK && n->rows->divided[i] && n->rows->is_foreach) {
        MR_TRY(flow_foreach_input(s->walk, s->branches[k].node, i, &s->branches[k].fan.rows, &t,
                                  &s->branches[k].lead, err));
    }
    if (rc < 0) {
        return MR_WRAP(err, rc, "node '%.*s': rows of tensor '%.*s'", NAME(n->name),
                       MR_STR_ARG(tensor_name(s, n->inputs[i].tensor)));
    }
    struct mr_block *copy = s->branches[k].copies[i];
    fan_input(&s->branches[k].fan, i, &t, copy ? copy : value_of(s, &n->inputs[i])->block);
out:
    return rc;
}

static void branch_done(struct fan *f);

static int branch_make(struct rows_switch *s, uint32_t k, struct mr_err *err)
{
    struct branch *b = &s->branches[k];
    const struct plan_node *n = branch_node(s, k);
    int rc;

    b->copies = MR_ARENA_ARRAY(&s->walk->arena, struct mr_block *, n->input_count + 1u);
    if (!b->copies) {
        return MR_ARENA_FAIL(err);
    }
    MR_TRY(
        fan_init(&b->fan, s->walk, b->node, n->rows->is_foreach ? UINT64_MAX : b->part.count, err));
    b->fan.done = branch_done;
    b->fan.user = s;
    for (uint32_t i = 0; i < n->input_count; i++) {
        MR_TRY(branch_input(s, k, i, err));
    }
out:
    return rc;
}

/* Lists without any item need no call. */
static int branch_start(struct rows_switch *s, uint32_t k, struct mr_err *err)
{
    struct branch *b = &s->branches[k];
    const int rc = flow_foreach_max(s->walk, b->node, b->fan.rows, err);

    return rc < 0 || b->fan.rows == 0 ? rc : fan_start(&b->fan, err);
}

/* Chooses branches, and makes their inputs. */
static int rows_divide(struct rows_switch *s, struct mr_err *err)
{
    int rc;

    MR_TRY(rows_choose(s, err));
    parts_find(s);
    for (uint32_t k = 0; k < s->n->branch_count; k++) {
        if (s->branches[k].part.count > 0) {
            MR_TRY(branch_make(s, k, err));
        }
    }
out:
    return rc;
}

/* ---- together again ---- */

static const struct plan_value *value_find(const struct plan_value *list, uint32_t count,
                                           uint32_t tensor)
{
    for (uint32_t i = 0; i < count; i++) {
        if (list[i].tensor == tensor) {
            return &list[i];
        }
    }
    return NULL;
}

/* How long dimension i is of a tensor whose rows the plan knows. A list in each row is as long as those of the first input. */
static int64_t made_length(const struct rows_switch *s, uint32_t output, int32_t i)
{
    const struct plan *p = s->walk->run.plan;
    const struct mr_tensor *first = &value_of(s, &s->n->inputs[0])->tensor;
    const uint32_t branch = s->n->branches[0];

    if (i <= (int32_t)p->nodes[branch].rows->dim) {
        return i < first->rank ? first->shape[i] : 1;
    }
    return flow_foreach_length(p, branch, output, i);
}

/* The default of the tensor for `count` rows, of a branch that has failed or (NULL) of none, with rows as `like`, or as the plan has
 * them. Without any row, a tensor without rows. */
static int default_make(struct rows_switch *s, uint32_t output, const struct plan_node *branch,
                        uint64_t count, const struct mr_tensor *like, struct mr_tensor *out,
                        struct mr_block **out_block, struct mr_err *err)
{
    const struct plan *p = s->walk->run.plan;
    const struct plan_rows *rows = p->nodes[s->n->branches[0]].rows;
    const struct plan_type *row = &rows->made[output];
    const uint32_t tensor = s->n->outputs[output].tensor;
    const struct plan_value *v =
        branch ? value_find(branch->defaults, branch->default_count, tensor) : NULL;
    const int32_t rank = like ? like->rank : row->rank + (int32_t)rows->dim + 1;
    int64_t *shape = MR_ARENA_ARRAY(&s->walk->arena, int64_t, (size_t)rank + 1);

    if (!shape) {
        return MR_ARENA_FAIL(err);
    }
    v = v ? v : value_find(p->defaults, p->default_count, tensor);
    for (int32_t i = 1; i < rank; i++) {
        shape[i] = like ? like->shape[i] : made_length(s, output, i);
    }
    shape[0] = (int64_t)count;
    *out =
        (struct mr_tensor){.dtype = like ? like->dtype : row->dtype, .rank = rank, .shape = shape};
    if (s->rows == 0) {
        return MR_OK;
    }
    return v ? flow_value_fill(s->walk, v, out, out_block, err)
             : MR_FAIL(err, MR_E_INTERNAL, "tensor '%.*s' has no default",
                       MR_STR_ARG(tensor_name(s, tensor)));
}

static uint32_t output_index(const struct plan_node *n, uint32_t tensor)
{
    uint32_t i = 0;

    while (i < n->output_count && n->outputs[i].tensor != tensor) {
        i++;
    }
    return i;
}

struct merging {
    const struct mr_tensor **parts; /* [branch_count + 1] */
    struct mr_tensor *tensors;      /* of them */
    struct mr_block **blocks;       /* of them, borrowed but for defaults */
    const struct mr_tensor *like;   /* one of them */
};

/* What branch k made of a tensor: 0 if that is nothing, 1, or an error. */
static int part_take(struct rows_switch *s, uint32_t k, uint32_t tensor, struct merging *m,
                     struct mr_err *err)
{
    const struct branch *b = &s->branches[k];
    const struct plan_node *n = branch_node(s, k);
    const uint32_t output = output_index(n, tensor);
    int rc = MR_OK;

    m->blocks[k] = NULL;
    if (b->fan.rows == 0) {
        rc = flow_foreach_made(s->walk, b->node, output, b->lead, &m->tensors[k], err);
    } else if (!fan_output_of(&b->fan, output, &m->tensors[k], &m->blocks[k])) {
        return 0;
    } else if (n->rows->is_foreach) {
        rc = flow_foreach_whole(s->walk, b->lead, n->rows->dim, &m->tensors[k], err);
    }
    return rc < 0 ? rc : 1;
}

/* The branches' parts of an output. A branch that gave nothing leaves no value: 0, otherwise 1 or an error. */
static int parts_take(struct rows_switch *s, uint32_t tensor, struct merging *m, struct mr_err *err)
{
    int found = 1;

    for (uint32_t k = 0; k < s->n->branch_count && found > 0; k++) {
        m->parts[k] = NULL;
        if (s->branches[k].part.count == 0 || s->branches[k].is_defaulted) {
            continue;
        }
        found = part_take(s, k, tensor, m, err);
        m->parts[k] = m->like = &m->tensors[k];
    }
    return found;
}

/* All rows are of one part. */
static bool whole_take(struct rows_switch *s, uint32_t tensor, const struct merging *m)
{
    for (uint32_t k = 0; k <= s->n->branch_count; k++) {
        const uint64_t count = k < s->n->branch_count ? s->branches[k].part.count : s->without;
        if (count == s->rows && m->parts[k]) {
            run_set(&s->walk->run, tensor, m->parts[k], m->blocks[k]);
            return true;
        }
    }
    return false;
}

static int parts_join(struct rows_switch *s, uint32_t tensor, const struct merging *m,
                      struct mr_err *err)
{
    int64_t *shape = MR_ARENA_ARRAY(&s->walk->arena, int64_t, MR_MAX_RANK);
    const uint32_t count = s->n->branch_count + (s->without > 0 ? 1 : 0);
    struct mr_tensor t;
    int rc;

    if (!shape) {
        return MR_ARENA_FAIL(err);
    }
    MR_TRY(mr_rows_merge_shape(m->parts, count, s->choice, s->rows, shape, &t, err));
    struct mr_block *block = mr_block_new(MR_MAX(t.bytes, (uint64_t)1));
    if (!block) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for %llu bytes",
                       (unsigned long long)t.bytes);
    }
    t.data = block->data;
    rc = mr_rows_merge_copy(m->parts, count, s->choice, s->rows, t.data, err);
    if (rc == MR_OK) {
        run_set(&s->walk->run, tensor, &t, block);
    }
    mr_block_unref(&block);
out:
    return rc;
}

/* Rows of branches that have failed, and of none. */
static int defaults_make(struct rows_switch *s, uint32_t output, struct merging *m,
                         struct mr_err *err)
{
    const uint32_t last = s->n->branch_count;
    int rc = MR_OK;

    for (uint32_t k = 0; k <= last && rc == MR_OK; k++) {
        const struct branch *b = k < last ? &s->branches[k] : NULL;
        if (b ? !b->is_defaulted : s->without == 0 && s->rows > 0) {
            continue;
        }
        m->blocks[k] = NULL;
        rc = default_make(s, output, b ? branch_node(s, k) : NULL, b ? b->part.count : s->without,
                          m->like, &m->tensors[k], &m->blocks[k], err);
        m->parts[k] = rc < 0 ? NULL : &m->tensors[k];
    }
    return rc;
}

static void defaults_drop(const struct rows_switch *s, struct merging *m)
{
    for (uint32_t k = 0; k <= s->n->branch_count; k++) {
        if (m->parts[k] && (k == s->n->branch_count || s->branches[k].is_defaulted)) {
            mr_block_unref(&m->blocks[k]);
        }
    }
}

static int output_merge(struct rows_switch *s, uint32_t output, struct merging *m,
                        struct mr_err *err)
{
    const uint32_t last = s->n->branch_count, tensor = s->n->outputs[output].tensor;
    m->like = NULL;
    m->parts[last] = NULL;
    int rc = parts_take(s, tensor, m, err);
    if (rc > 0) {
        rc = defaults_make(s, output, m, err);
        if (rc == MR_OK && !whole_take(s, tensor, m)) {
            rc = parts_join(s, tensor, m, err);
        }
        defaults_drop(s, m);
    }
    return rc < 0 ? MR_WRAP(err, rc, "node '%.*s': rows of tensor '%.*s'", NAME(s->n->name),
                            MR_STR_ARG(tensor_name(s, tensor)))
                  : MR_OK;
}

static int outputs_merge(struct rows_switch *s, struct mr_err *err)
{
    struct mr_arena *a = &s->walk->arena;
    const size_t count = s->n->branch_count + (size_t)1;
    struct merging m = {.parts = MR_ARENA_ARRAY(a, const struct mr_tensor *, count),
                        .tensors = MR_ARENA_ARRAY(a, struct mr_tensor, count),
                        .blocks = MR_ARENA_ARRAY(a, struct mr_block *, count)};
    int rc = m.parts && m.tensors && m.blocks ? MR_OK : MR_ARENA_FAIL(err);

    for (uint32_t i = 0; i < s->n->output_count && rc == MR_OK; i++) {
        rc = output_merge(s, i, &m, err);
    }
    return rc;
}

/* ---- the end ---- */

static void branch_drop(struct rows_switch *s, uint32_t k)
{
    struct branch *b = &s->branches[k];

    for (uint32_t i = 0; b->copies && i < branch_node(s, k)->input_count; i++) {
        mr_block_unref(&b->copies[i]);
    }
    b->copies = NULL; /* a fallback may have another number */
    if (b->fan.outputs) {
        fan_fini(&b->fan);
    }
}

static void switch_free(struct rows_switch *s)
{
    for (uint32_t k = 0; k < s->n->branch_count; k++) {
        branch_drop(s, k);
    }
    mr_free(s->choice);
    s->choice = NULL;
}

static int switch_end(struct rows_switch *s, struct mr_err *err)
{
    const int rc = s->status;

    if (rc < 0) {
        *err = s->err;
    }
    switch_free(s);
    return rc;
}

/* One has failed: the others are not needed. */
static void others_cancel(struct rows_switch *s)
{
    const bool was_starting = s->is_starting;

    s->is_starting = true;
    for (uint32_t k = 0; k < s->n->branch_count; k++) {
        if (s->branches[k].is_pending) {
            fan_cancel(&s->branches[k].fan);
        }
    }
    s->is_starting = was_starting;
}

static void status_note(struct rows_switch *s, int rc, const struct mr_err *err)
{
    if (s->status == MR_OK && rc < 0) {
        s->status = rc;
        s->err = *err;
        others_cancel(s);
    }
}

/* A branch has failed. MR_OK: its rows have defaults; MR_PENDING: its fallback runs; or the failure of the switch. */
static int branch_failed(struct rows_switch *s, uint32_t k, int rc, struct mr_err *err)
{
    struct run *r = &s->walk->run;
    struct branch *b = &s->branches[k];
    const struct plan_node *n = branch_node(s, k);
    const bool is_final = run_has_no_policy(r) || r->status < 0 || s->status < 0;

    if (is_final || n->on_error == PLAN_FAIL) {
        r->nodes[b->node].outcome = RUN_FAILED; /* for a trace */
        return rc;
    }
    branch_drop(s, k);
    if (n->on_error != PLAN_FALLBACK) {
        run_note(r, b->node, n->on_error == PLAN_SKIP ? RUN_FAILED : RUN_DEFAULTED);
        b->is_defaulted = true;
        return MR_OK;
    }
    run_note(r, b->node, RUN_FELL_BACK);
    r->nodes[n->fallback].for_node = b->node + 1;
    b->node = n->fallback;
    if (lacks_input(s, k)) {
        run_note(r, b->node, RUN_SKIPPED);
        b->is_defaulted = true;
        return MR_OK;
    }
    mr_err_clear(err);
    MR_TRY(branch_make(s, k, err));
    rc = branch_start(s, k, err);
out:
    return rc < 0 ? branch_failed(s, k, rc, err) : rc;
}

/* ---- stages ---- */

static void stage_run(struct rows_switch *s)
{
    struct mr_err err;

    mr_err_clear(&err);
    status_note(s, s->stage(s, &err), &err);
}

static void turn_work(struct mr_turn *t)
{
    stage_run(MR_CONTAINER_OF(t, struct rows_switch, turn));
}

static void turn_done(struct mr_turn *t)
{
    struct rows_switch *s = MR_CONTAINER_OF(t, struct rows_switch, turn);
    struct mr_err err;

    if (t->status < 0) {
        mr_err_clear(&err);
        status_note(s,
                    MR_FAIL(&err, t->status, "node '%.*s' was ended (%s)", NAME(s->n->name),
                            mr_status_text(t->status)),
                    &err);
    }
    flow_walk_signal(s->walk, &s->call);
}

/* Runs a stage, now or, if it is long, in a turn: MR_PENDING, and its end is the call's. */
static int stage_begin(struct rows_switch *s, bool is_long,
                       int (*stage)(struct rows_switch *s, struct mr_err *err))
{
    const struct mr_reply_loop *loop = s->walk->asked->reply_loop;

    s->stage = stage;
    if (!is_long || !loop || !loop->turns || mr_turn_now) {
        stage_run(s);
        return MR_OK;
    }
    memset(&s->turn, 0, sizeof s->turn);
    s->turn.work = turn_work;
    s->turn.done = turn_done;
    s->call.is_pending = true;
    mr_turns_add(loop->turns, &s->turn); /* may end it at once */
    return MR_PENDING;
}

static bool is_long_choice(const struct rows_switch *s)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < s->n->input_count; i++) {
        bytes += value_of(s, &s->n->inputs[i])->tensor.bytes;
    }
    return bytes > LONG_BYTES || s->rows * s->n->branch_count > LONG_CASES;
}

/* Outputs of several parts are copied. */
static bool is_long_merge(const struct rows_switch *s)
{
    struct mr_block *block;
    struct mr_tensor t;
    uint64_t bytes = 0;

    for (uint32_t k = 0; k < s->n->branch_count; k++) {
        const struct branch *b = &s->branches[k];
        for (uint32_t i = 0; b->part.count > 0 && b->part.count < s->rows && i < s->n->output_count;
             i++) {
            bytes += fan_output_of(&b->fan, i, &t, &block) ? t.bytes : 0;
        }
    }
    return bytes > LONG_BYTES;
}

/* The branches have ended. */
static int after_branches(struct rows_switch *s, struct mr_err *err)
{
    if (s->status == MR_OK && stage_begin(s, is_long_merge(s), outputs_merge) == MR_PENDING) {
        return MR_PENDING;
    }
    return switch_end(s, err);
}

static void branches_start(struct rows_switch *s)
{
    struct mr_err err;

    s->is_starting = true;
    for (uint32_t k = 0; k < s->n->branch_count && s->status == MR_OK; k++) {
        if (s->branches[k].part.count == 0) {
            continue;
        }
        mr_err_clear(&err);
        int rc = branch_start(s, k, &err);
        rc = rc < 0 ? branch_failed(s, k, rc, &err) : rc;
        if (rc == MR_PENDING) {
            s->branches[k].is_pending = true;
            s->pending++;
        } else {
            status_note(s, rc, &err);
        }
    }
    s->is_starting = false;
}

/* The rows are divided. */
static int after_division(struct rows_switch *s, struct mr_err *err)
{
    if (s->walk->run.status < 0) {
        status_note(s, MR_FAIL(err, MR_E_CANCELLED, "the request has failed"), err);
    }
    if (s->status == MR_OK) {
        branches_start(s);
    }
    return s->pending > 0 ? MR_PENDING : after_branches(s, err);
}

static void ended(struct rows_switch *s, int rc, const struct mr_err *err)
{
    if (rc == MR_PENDING) {
        return;
    }
    if (s->walk->trace) {
        flow_trace_end(s->walk, s->node);
    }
    run_ended(&s->walk->run, s->node, rc, err);
}

static void branch_done(struct fan *f)
{
    struct rows_switch *s = f->user;
    struct branch *b = MR_CONTAINER_OF(f, struct branch, fan);
    struct mr_err err = f->err;
    int rc = f->status;

    rc = rc < 0 ? branch_failed(s, (uint32_t)(b - s->branches), rc, &err) : rc;
    if (rc == MR_PENDING) {
        return;
    }
    b->is_pending = false;
    s->pending--;
    status_note(s, rc, &err);
    if (s->pending == 0 && !s->is_starting) {
        mr_err_clear(&err);
        ended(s, after_branches(s, &err), &err);
    }
}

/* A turn has ended. */
static void stage_take(struct call *c)
{
    struct rows_switch *s = MR_CONTAINER_OF(c, struct rows_switch, call);
    struct mr_err err;

    mr_err_clear(&err);
    ended(s, s->stage == rows_divide ? after_division(s, &err) : switch_end(s, &err), &err);
}

static struct rows_switch *switch_new(struct walk *w, uint32_t node)
{
    struct rows_switch *s = MR_NEW(struct rows_switch);

    s->walk = w;
    s->node = node;
    s->n = &w->run.plan->nodes[node];
    s->call.walk = w;
    s->call.node = node;
    s->call.take = stage_take;
    s->call.next = w->calls;
    w->calls = &s->call;
    mr_arena_init(&s->call.arena, 0, 0);
    return s;
}

int flow_switch_start(struct walk *w, uint32_t node, struct mr_err *err)
{
    struct rows_switch *s = switch_new(w, node);
    int rc;

    s->branches = MR_ARENA_ARRAY(&w->arena, struct branch, s->n->branch_count);
    if (!s->branches) {
        return MR_ARENA_FAIL(err);
    }
    for (uint32_t k = 0; k < s->n->branch_count; k++) {
        s->branches[k].node = s->n->branches[k];
    }
    MR_TRY(rows_count(s, err));
    rc = stage_begin(s, is_long_choice(s), rows_divide);
    rc = rc == MR_PENDING ? rc : after_division(s, err);
out:
    return rc;
}
