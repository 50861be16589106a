/* Joining the inputs of several requests along dimension 0, and splitting the outputs again.
 *
 * Joining copies: the backend needs one contiguous tensor. Cutting does not, for outputs that have a block:
 * each request gets a view and a reference. Small outputs live in scratch memory and are copied into
 * the request's arena. */
#include "sched_priv.h"

uint64_t batch_gap_bytes(const struct mr_tensor *t, int64_t rows)
{
    uint64_t unit = t->dtype == MR_DTYPE_BYTES ? 4 : mr_dtype_size(t->dtype), elements = 0;

    if (rows <= 0 || mr_shape_elements(t->shape + 1, t->rank - 1, &elements, NULL) < 0) {
        return 0; /* the shape of a request, which was checked */
    }
    return elements * unit * (uint64_t)rows;
}

uint8_t *batch_room(const struct mr_executor *e, struct mr_arena *arena, uint64_t bytes,
                    struct mr_block **out_block)
{
    uint8_t *to = NULL;

    *out_block = e->inputs ? mr_block_new_in(e->inputs, MR_MAX(bytes, 1)) : NULL;
    if (!*out_block && bytes <= 8192) {
        to = mr_arena_try(arena, MR_MAX(bytes, 1), 64);
    }
    if (!*out_block && !to) {
        *out_block = mr_block_new(bytes);
    }
    return *out_block ? (*out_block)->data : to;
}

int batch_gather(struct mr_infer **items, uint32_t count, uint32_t input, int64_t rows,
                 struct mr_arena *arena, struct mr_tensor *out, struct mr_block **out_block,
                 struct mr_err *err)
{
    const struct mr_tensor *first = &items[0]->inputs[input];
    int64_t *shape = MR_ARENA_ARRAY(arena, int64_t, (size_t)first->rank);
    uint64_t bytes = 0;
    uint8_t *to;

    for (uint32_t i = 0; i < count; i++) {
        bytes += items[i]->inputs[input].bytes;
        if (items[i]->gap_rows > 0) {
            bytes += batch_gap_bytes(first, items[i]->gap_rows);
        }
    }
    to = batch_room(items[0]->version->executor, arena, bytes, out_block);
    if (!shape || !to) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory to join a batch of %u requests (%llu bytes)",
                       count, (unsigned long long)bytes);
    }
    memcpy(shape, first->shape, (size_t)first->rank * sizeof *shape);
    shape[0] = rows;
    *out = (struct mr_tensor){
        .dtype = first->dtype, .rank = first->rank, .shape = shape, .data = to, .bytes = bytes};
    for (uint32_t i = 0; i < count; i++) {
        const struct mr_tensor *t = &items[i]->inputs[input];
        if (items[i]->gap_rows > 0) {
            uint64_t gap = batch_gap_bytes(first, items[i]->gap_rows);
            memset(to, 0, gap);
            to += gap;
        }
        if (t->bytes) {
            memcpy(to, t->data, t->bytes);
        }
        to += t->bytes;
    }
    return MR_OK;
}

/* Where rows [begin, begin + count) of a tensor are. BYTES has to be walked; its encoding was checked. */
int batch_row_range(const struct mr_tensor *t, int64_t begin, int64_t count, uint64_t *out_at,
                    uint64_t *out_bytes, struct mr_err *err)
{
    int64_t rows = t->shape[0];

    if (t->dtype != MR_DTYPE_BYTES) {
        uint64_t row_bytes = rows > 0 ? t->bytes / (uint64_t)rows : 0;
        *out_at = (uint64_t)begin * row_bytes;
        *out_bytes = (uint64_t)count * row_bytes;
        return MR_OK;
    }
    uint64_t per_row;
    int rc = mr_shape_elements(t->shape + 1, t->rank - 1, &per_row, err);
    if (rc < 0) {
        return rc;
    }
    mr_bytes rest = {t->data, t->bytes};
    mr_str element;
    for (uint64_t i = 0; i < (uint64_t)begin * per_row; i++) {
        mr_bytes_tensor_next(&rest, &element);
    }
    *out_at = t->bytes - rest.len;
    for (uint64_t i = 0; i < (uint64_t)count * per_row; i++) {
        mr_bytes_tensor_next(&rest, &element);
    }
    *out_bytes = t->bytes - rest.len - *out_at;
    return MR_OK;
}

int batch_slice(const struct mr_exec_output *from, int64_t row_begin, int64_t row_count,
                struct mr_infer *r, struct mr_exec_output *out, struct mr_err *err)
{
    const struct mr_tensor *t = &from->tensor;
    int64_t *shape = MR_ARENA_ARRAY(r->arena, int64_t, (size_t)t->rank);
    uint64_t at, bytes;
    int rc = batch_row_range(t, row_begin, row_count, &at, &bytes, err);
    uint8_t *data = t->data;

    if (rc < 0) {
        return rc;
    }
    if (!shape) {
        return MR_ARENA_FAIL(err);
    }
    memcpy(shape, t->shape, (size_t)t->rank * sizeof *shape);
    shape[0] = row_count;
    if (from->block) {
        out->block = mr_block_ref(from->block);
        data += at;
    } else if (bytes > 0) {
        uint8_t *copy = mr_arena_try(r->arena, bytes, 64);
        if (!copy) {
            return MR_ARENA_FAIL(err);
        }
        memcpy(copy, data + at, bytes);
        data = copy;
    }
    out->tensor = (struct mr_tensor){
        .dtype = t->dtype, .rank = t->rank, .shape = shape, .data = data, .bytes = bytes};
    out->is_set = true;
    return MR_OK;
}
