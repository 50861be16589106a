/* The tensors that the scheduler adds to the requests of sequences: control inputs, made for each execution, and
 * implicit state, as the sequence's last request left it.
 *
 * A request without a sequence here is a warm-up: all of its rows are sequences that begin. Rows without a request have
 * false in every control and zeros in every state. */
#include "sequences.h"

#include <stdio.h>

/* ---- what a sequence keeps ---- */

struct kept {
    int64_t *dims; /* without the batch dimension */
    uint8_t *data;
    uint64_t bytes;
    struct mr_block *block; /* owner of data */
};

struct sequence_memory {
    uint32_t count;
    struct kept states[];
};

/* One row of a state. */
struct row {
    const int64_t *dims;
    uint8_t *data;
    uint64_t bytes;
};

static struct sequence_memory *memory_new(const struct sequences *q)
{
    size_t head = sizeof(struct sequence_memory) + q->state_count * sizeof(struct kept), ranks = 0;
    struct sequence_memory *m;

    for (uint32_t i = 0; i < q->state_count; i++) {
        ranks += (size_t)q->states[i].io.rank;
    }
    m = mr_try_alloc(head + ranks * sizeof(int64_t));
    if (!m) {
        return NULL;
    }
    memset(m, 0, head);
    int64_t *dims = (int64_t *)(void *)((char *)m + head);
    m->count = q->state_count;
    for (uint32_t i = 0; i < q->state_count; i++) {
        m->states[i].dims = dims;
        dims += q->states[i].io.rank;
    }
    return m;
}

static void memory_free(struct sequence_memory *m)
{
    for (uint32_t i = 0; m && i < m->count; i++) {
        mr_block_unref(&m->states[i].block);
    }
    mr_free(m);
}

void sequence_drop(void *ctx, void *data)
{
    (void)ctx;
    memory_free(data);
}

/* State i as it comes in to a request. */
static struct row state_row(const struct sequences *q, uint32_t i, const struct mr_infer *r)
{
    const struct sequence_memory *m =
        r->item && !r->item->request.is_start ? *sequence_data(&r->item->request) : NULL;
    const struct sequence_state *st = &q->states[i];

    if (m) {
        return (struct row){m->states[i].dims, m->states[i].data, m->states[i].bytes};
    }
    return (struct row){st->initial_dims, st->initial, st->initial_bytes};
}

bool sequence_can_join(const struct sequences *q, struct mr_infer *first, struct mr_infer *r)
{
    for (uint32_t i = 0; i < q->state_count; i++) {
        struct row a = state_row(q, i, first), b = state_row(q, i, r);
        if (memcmp(a.dims, b.dims, (size_t)q->states[i].io.rank * sizeof *a.dims) != 0) {
            return false;
        }
    }
    return true;
}

/* ---- in ---- */

static int no_memory(struct mr_err *err)
{
    int rc = MR_FAIL(err, MR_E_EXHAUSTED,
                     "no memory now for the state of a sequence (--memory-budget), try later");

    if (err) {
        err->flags |= MR_ERR_RETRYABLE;
    }
    return rc;
}

static int64_t gap_of(const struct exec_run *run, uint32_t i)
{
    return run->is_apart ? 0 : run->items[i]->gap_rows;
}

static bool truth_of(int kind, const struct mr_infer *r)
{
    const struct mr_sequence_ref *ref = r->item ? r->sequence : NULL;

    switch (kind) {
    case INFERENCE__MODEL_SEQUENCE_BATCHING__CONTROL__KIND__CONTROL_SEQUENCE_START:
        return !ref || (ref->flags & MR_SEQUENCE_START);
    case INFERENCE__MODEL_SEQUENCE_BATCHING__CONTROL__KIND__CONTROL_SEQUENCE_END:
        return ref && (ref->flags & MR_SEQUENCE_END);
    default: return true; /* READY */
    }
}

/* A correlation id as a number; larger values are truncated, as in Triton. */
static void put_number(uint8_t *to, const struct sequence_control *k, const struct mr_infer *r)
{
    uint64_t number = r->item ? r->sequence->number : 0;

    memcpy(to, &number, mr_dtype_size(k->dtype));
}

static mr_str text_of(const struct mr_infer *r, char number[24])
{
    const struct mr_sequence_ref *ref = r->item ? r->sequence : NULL;

    if (!ref) {
        return MR_STR("");
    }
    if (ref->text.len) {
        return ref->text;
    }
    int n = snprintf(number, 24, "%llu", (unsigned long long)ref->number);
    return mr_str_n(number, (size_t)n);
}

static uint8_t *put_text(uint8_t *to, mr_str text)
{
    uint32_t len = (uint32_t)text.len;

    memcpy(to, &len, 4);
    memcpy(to + 4, text.ptr, len);
    return to + 4 + len;
}

/* The bytes of a control tensor at most. */
static uint64_t control_bytes(const struct exec_run *run, const struct sequence_control *k)
{
    uint64_t rows = (uint64_t)MR_MAX(1, run->rows);

    if (k->dtype != MR_DTYPE_BYTES) {
        return rows * mr_dtype_size(k->dtype);
    }
    return rows * 4 + run->count * (uint64_t)MR_SEQUENCE_TEXT_MAX;
}

static uint8_t *put_rows(uint8_t *to, const struct sequence_control *k, const struct mr_infer *r)
{
    bool is_id =
        k->kind == INFERENCE__MODEL_SEQUENCE_BATCHING__CONTROL__KIND__CONTROL_SEQUENCE_CORRID;
    char number[24];

    for (int64_t n = rows_of(r); n > 0; n--) {
        if (k->dtype == MR_DTYPE_BYTES) {
            to = put_text(to, text_of(r, number));
            continue;
        }
        if (is_id) {
            put_number(to, k, r);
        } else {
            memcpy(to, k->value[truth_of(k->kind, r)], mr_dtype_size(k->dtype));
        }
        to += mr_dtype_size(k->dtype);
    }
    return to;
}

/* Rows of no request. An id of them is 0, a text "". */
static uint8_t *put_gap(uint8_t *to, const struct sequence_control *k, int64_t rows)
{
    for (; rows > 0; rows--) {
        if (k->dtype == MR_DTYPE_BYTES) {
            to = put_text(to, MR_STR(""));
            continue;
        }
        memset(to, 0, mr_dtype_size(k->dtype));
        if (k->kind != INFERENCE__MODEL_SEQUENCE_BATCHING__CONTROL__KIND__CONTROL_SEQUENCE_CORRID) {
            memcpy(to, k->value[0], mr_dtype_size(k->dtype));
        }
        to += mr_dtype_size(k->dtype);
    }
    return to;
}

static int place_control(struct exec_run *run, const struct sequence_control *k,
                         struct mr_tensor *out, struct mr_err *err)
{
    int rank = run->s->version->max_batch_size > 0 ? 2 : 1;
    int64_t *shape = MR_ARENA_ARRAY(run->arena, int64_t, 2);
    uint8_t *data = mr_arena_try(run->arena, control_bytes(run, k), 64), *to = data;

    if (!shape || !data) {
        return no_memory(err);
    }
    shape[0] = rank == 2 ? run->rows : 1;
    shape[1] = 1;
    for (uint32_t i = 0; i < run->count; i++) {
        to = put_gap(to, k, gap_of(run, i));
        to = put_rows(to, k, run->items[i]);
    }
    *out = (struct mr_tensor){.dtype = k->dtype,
                              .rank = rank,
                              .shape = shape,
                              .data = data,
                              .bytes = (uint64_t)(to - data)};
    return MR_OK;
}

/* The rows of a state in sequence. */
static int join_state(struct exec_run *run, uint32_t i, struct mr_tensor *out, struct mr_err *err)
{
    const struct sequences *q = run->s->sequences;
    struct mr_block **block = &run->gathered[run->s->version->input_count + i];
    uint64_t bytes = 0;
    uint8_t *to;

    for (uint32_t k = 0; k < run->count; k++) {
        bytes += batch_gap_bytes(out, gap_of(run, k)) +
                 state_row(q, i, run->items[k]).bytes * (uint64_t)rows_of(run->items[k]);
    }
    out->data = to = batch_room(run->s->version->executor, run->arena, bytes, block);
    if (!to) {
        return no_memory(err);
    }
    for (uint32_t k = 0; k < run->count; k++) {
        uint64_t gap = batch_gap_bytes(out, gap_of(run, k));
        struct row row = state_row(q, i, run->items[k]);
        memset(to, 0, gap);
        to += gap;
        for (int64_t n = rows_of(run->items[k]); n > 0; n--) {
            memcpy(to, row.data, row.bytes);
            to += row.bytes;
        }
    }
    out->bytes = bytes;
    return MR_OK;
}

static int place_state(struct exec_run *run, uint32_t i, struct mr_tensor *out, struct mr_err *err)
{
    const struct sequences *q = run->s->sequences;
    const struct sequence_state *st = &q->states[i];
    struct row first = state_row(q, i, run->items[0]);
    int lead = run->s->version->max_batch_size > 0 ? 1 : 0;
    int64_t *shape = MR_ARENA_ARRAY(run->arena, int64_t, (size_t)(st->io.rank + 1));

    if (!shape) {
        return no_memory(err);
    }
    shape[0] = run->rows;
    memcpy(shape + lead, first.dims, (size_t)st->io.rank * sizeof *shape);
    *out = (struct mr_tensor){.dtype = st->io.dtype,
                              .rank = st->io.rank + lead,
                              .shape = shape,
                              .data = first.data,
                              .bytes = first.bytes};
    bool is_one = run->count == 1 && gap_of(run, 0) == 0 && rows_of(run->items[0]) == 1;
    return is_one ? MR_OK : join_state(run, i, out, err);
}

int sequence_place(struct exec_run *run, struct mr_tensor *inputs, struct mr_err *err)
{
    const struct sequences *q = run->s->sequences;
    int rc = MR_OK;

    for (uint32_t i = 0; i < q->control_count; i++) {
        MR_TRY(place_control(run, &q->controls[i], &inputs[q->controls[i].input], err));
    }
    for (uint32_t i = 0; i < q->state_count; i++) {
        MR_TRY(place_state(run, i, &inputs[q->states[i].input], err));
    }
out:
    return rc;
}

/* ---- out ---- */

void sequence_want(const struct mr_sched *s, uint8_t *wanted)
{
    for (uint32_t i = 0; i < s->sequences->state_count; i++) {
        wanted[s->sequences->states[i].output] = 1;
    }
}

/* A block that holds little more than the row is kept, otherwise the row is copied: a sequence must keep alive neither a batch nor
 * what a worker process has for all outputs of one, which that may also write. */
static int keep_row(const struct sequence_state *st, const struct mr_exec_output *o, int64_t row,
                    bool is_whole, struct kept *to, struct mr_err *err)
{
    int lead = o->tensor.rank - st->io.rank, fd;
    uint64_t at = 0, bytes = o->tensor.bytes, offset;
    int rc = lead ? batch_row_range(&o->tensor, row, 1, &at, &bytes, err) : MR_OK;

    if (rc < 0) {
        return rc;
    }
    memcpy(to->dims, o->tensor.shape + lead, (size_t)st->io.rank * sizeof *to->dims);
    to->bytes = bytes;
    if (is_whole && o->block && o->block->cap / 2 <= bytes &&
        !mr_block_in_file(o->block, o->tensor.data, &fd, &offset)) {
        to->block = mr_block_ref(o->block);
        to->data = o->tensor.data;
        return MR_OK;
    }
    to->block = mr_block_new(MR_MAX(bytes, 1));
    if (!to->block) {
        return no_memory(err);
    }
    to->data = to->block->data;
    if (bytes) {
        memcpy(to->data, (uint8_t *)o->tensor.data + at, bytes);
    }
    return MR_OK;
}

static int keep_states(struct exec_run *run, struct mr_infer *r, int64_t row, struct mr_err *err)
{
    const struct sequences *q = run->s->sequences;
    struct sequence_memory *m = memory_new(q);
    void **data = sequence_data(&r->item->request);
    int rc = m ? MR_OK : no_memory(err);

    for (uint32_t i = 0; rc == MR_OK && i < q->state_count; i++) {
        struct mr_exec_output *o = &run->x.outputs.list[q->states[i].output];
        rc = keep_row(&q->states[i], o, row, run->count == 1 && run->rows <= 1, &m->states[i], err);
    }
    if (rc < 0) {
        memory_free(m);
        return rc;
    }
    memory_free(*data);
    *data = m;
    return MR_OK;
}

void sequence_keep(struct exec_run *run)
{
    const struct sequences *q = run->s->sequences;
    struct mr_err err;
    int rc = MR_OK;
    int64_t row = 0;

    mr_err_clear(&err);
    for (uint32_t i = 0; rc == MR_OK && i < q->state_count; i++) {
        rc = exec_check_output(run->s->version, &q->states[i].io,
                               &run->x.outputs.list[q->states[i].output].tensor, &err);
    }
    for (uint32_t i = 0; i < run->count; i++) {
        struct mr_infer *r = run->items[i];
        row += r->gap_rows;
        if (rc < 0 && r->status == MR_OK) {
            r->status = rc;
            r->err = err;
        } else if (r->status == MR_OK && r->item && !r->item->request.is_end && q->state_count) {
            r->status = keep_states(run, r, row, &r->err);
        }
        row += rows_of(r);
    }
}
