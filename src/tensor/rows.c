/* Rows of tensors. Rows of BYTES have no fixed size: each walk goes forward from the first row, once. */
#include "tensor/rows.h"

#include "base/mem.h"
#include "base/turn.h"
#include "tensor/tensor.h"

/* Goes through the rows of a tensor. */
struct walk {
    const struct mr_tensor *t;
    uint64_t rows, per_row; /* elements of a row */
    uint64_t row_bytes;     /* 0: BYTES */
    uint64_t at;            /* byte of the next row */
};

static int walk_init(struct walk *w, const struct mr_tensor *t, struct mr_err *err)
{
    uint64_t elements;
    int rc = mr_shape_elements(t->shape, t->rank, &elements, err);

    if (rc < 0) {
        return rc;
    }
    if (t->rank == 0) {
        return MR_FAIL(err, MR_E_INVALID, "a tensor without dimensions has no rows");
    }
    *w = (struct walk){.t = t, .rows = (uint64_t)t->shape[0]};
    rc = mr_shape_elements(t->shape + 1, t->rank - 1, &w->per_row, err);
    if (rc == MR_OK && t->dtype != MR_DTYPE_BYTES) {
        size_t size = mr_dtype_size(t->dtype);
        w->row_bytes = w->per_row * size;
        if (size == 0 || elements > UINT64_MAX / size || elements * size != t->bytes) {
            return MR_FAIL(err, MR_E_INVALID, "%llu bytes, which the shape does not have",
                           (unsigned long long)t->bytes);
        }
    }
    return rc;
}

/* Bytes of the next row, which begins at w->at. */
static int walk_row(struct walk *w, uint64_t *out, struct mr_err *err)
{
    mr_bytes rest = {(const uint8_t *)w->t->data + w->at, w->t->bytes - w->at};
    size_t before = rest.len;
    mr_str element;

    if (w->t->dtype != MR_DTYPE_BYTES) {
        *out = w->row_bytes;
        w->at += w->row_bytes;
        return MR_OK;
    }
    for (uint64_t i = 0; i < w->per_row; i++) {
        if (!mr_bytes_tensor_next(&rest, &element)) {
            return MR_FAIL(err, MR_E_INVALID, "a BYTES tensor with less elements than its shape");
        }
    }
    *out = before - rest.len;
    w->at += *out;
    return mr_turn_spend(w->per_row * 4) ? MR_OK : MR_FAIL(err, MR_E_CANCELLED, "cancelled");
}

static int walk_skip(struct walk *w, uint64_t rows, struct mr_err *err)
{
    uint64_t bytes;
    int rc = MR_OK;

    if (w->t->dtype != MR_DTYPE_BYTES) {
        w->at += rows * w->row_bytes;
        return MR_OK;
    }
    for (uint64_t i = 0; i < rows && rc == MR_OK; i++) {
        rc = walk_row(w, &bytes, err);
    }
    return rc;
}

int mr_rows_view(const struct mr_tensor *t, uint64_t begin, uint64_t count, int64_t *shape,
                 struct mr_tensor *out, struct mr_err *err)
{
    struct walk w;
    int rc = walk_init(&w, t, err);

    if (rc < 0) {
        return rc;
    }
    if (begin > w.rows || count > w.rows - begin) {
        return MR_FAIL(err, MR_E_INVALID, "rows %llu to %llu of %llu", (unsigned long long)begin,
                       (unsigned long long)(begin + count), (unsigned long long)w.rows);
    }
    MR_TRY(walk_skip(&w, begin, err));
    const uint64_t from = w.at;
    MR_TRY(walk_skip(&w, count, err));
    memcpy(shape, t->shape, (size_t)t->rank * sizeof *shape);
    shape[0] = (int64_t)count;
    *out = *t;
    out->shape = shape;
    out->bytes = w.at - from;
    out->data = out->bytes > 0 ? (uint8_t *)t->data + from : t->data;
out:
    return rc;
}

/* ---- branches ---- */

void mr_rows_part_of(const uint16_t *choice, uint64_t rows, uint16_t branch,
                     struct mr_rows_part *out)
{
    struct mr_rows_part p = {.first = rows, .is_run = true};

    for (uint64_t i = 0; i < rows; i++) {
        if (choice[i] != branch) {
            continue;
        }
        p.first = p.count == 0 ? i : p.first;
        p.is_run = p.is_run && i == p.first + p.count;
        p.count++;
    }
    *out = p;
}

int mr_rows_part_bytes(const struct mr_tensor *t, const uint16_t *choice, uint16_t branch,
                       uint64_t *out, struct mr_err *err)
{
    uint64_t sum = 0, bytes;
    struct walk w;
    int rc = walk_init(&w, t, err);

    for (uint64_t i = 0; rc == MR_OK && i < w.rows; i++) {
        rc = walk_row(&w, &bytes, err);
        sum += rc == MR_OK && choice[i] == branch ? bytes : 0;
    }
    *out = sum;
    return rc;
}

static int copy_row(struct walk *w, char **to, uint64_t bytes, struct mr_err *err)
{
    if (bytes > 0) {
        memcpy(*to, (const char *)w->t->data + w->at - bytes, bytes);
    }
    *to += bytes;
    return mr_turn_spend(1 + bytes / 8) ? MR_OK : MR_FAIL(err, MR_E_CANCELLED, "cancelled");
}

int mr_rows_part_copy(const struct mr_tensor *t, const uint16_t *choice, uint16_t branch, void *to,
                      struct mr_err *err)
{
    char *p = to;
    uint64_t bytes;
    struct walk w;
    int rc = walk_init(&w, t, err);

    for (uint64_t i = 0; rc == MR_OK && i < w.rows; i++) {
        rc = walk_row(&w, &bytes, err);
        if (rc == MR_OK && choice[i] == branch) {
            rc = copy_row(&w, &p, bytes, err);
        }
    }
    return rc;
}

/* ---- together again ---- */

static uint64_t rows_of(const uint16_t *choice, uint64_t rows, uint32_t branch)
{
    struct mr_rows_part part;

    mr_rows_part_of(choice, rows, (uint16_t)branch, &part);
    return part.count;
}

static int check_part(const struct mr_tensor *first, uint32_t first_index,
                      const struct mr_tensor *t, uint32_t index, uint64_t rows, struct mr_err *err)
{
    char a[128], b[128];

    if (t->rank == 0 || (uint64_t)t->shape[0] != rows) {
        return MR_FAIL(err, MR_E_INVALID, "branch %u gave %lld rows for %llu", index,
                       t->rank ? (long long)t->shape[0] : 0, (unsigned long long)rows);
    }
    if (t->dtype != first->dtype) {
        return MR_FAIL(err, MR_E_INVALID, "branch %u gave %s, branch %u %s", index,
                       mr_dtype_name(t->dtype), first_index, mr_dtype_name(first->dtype));
    }
    if (t->rank != first->rank ||
        memcmp(t->shape + 1, first->shape + 1, (size_t)(t->rank - 1) * sizeof *t->shape) != 0) {
        return MR_FAIL(err, MR_E_INVALID, "branch %u gave rows of %s, branch %u of %s", index,
                       mr_shape_text(t->shape + 1, t->rank - 1, a, sizeof a), first_index,
                       mr_shape_text(first->shape + 1, first->rank - 1, b, sizeof b));
    }
    return MR_OK;
}

int mr_rows_merge_shape(const struct mr_tensor *const *parts, uint32_t count,
                        const uint16_t *choice, uint64_t rows, int64_t *shape,
                        struct mr_tensor *out, struct mr_err *err)
{
    const struct mr_tensor *first = NULL;
    uint32_t first_index = 0;
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < count; i++) {
        uint64_t own = rows_of(choice, rows, i);
        if (!parts[i] && own > 0) {
            return MR_FAIL(err, MR_E_INVALID, "branch %u gave nothing for %llu rows", i,
                           (unsigned long long)own);
        }
        if (!parts[i]) {
            continue;
        }
        first_index = first ? first_index : i;
        first = first ? first : parts[i];
        int rc = check_part(first, first_index, parts[i], i, own, err);
        if (rc < 0) {
            return rc;
        }
        bytes += parts[i]->bytes;
    }
    if (!first) {
        return MR_FAIL(err, MR_E_INVALID, "no branch gave anything");
    }
    memcpy(shape, first->shape, (size_t)first->rank * sizeof *shape);
    shape[0] = (int64_t)rows;
    *out = (struct mr_tensor){
        .dtype = first->dtype, .rank = first->rank, .shape = shape, .bytes = bytes};
    return MR_OK;
}

static int merge(struct walk *walks, const uint16_t *choice, uint32_t count, uint64_t rows,
                 char *to, struct mr_err *err)
{
    uint64_t bytes;

    for (uint64_t i = 0; i < rows; i++) {
        struct walk *w = choice[i] < count ? &walks[choice[i]] : NULL;
        if (!w || !w->t) {
            return MR_FAIL(err, MR_E_INVALID, "row %llu has no branch", (unsigned long long)i);
        }
        int rc = walk_row(w, &bytes, err);
        if (rc == MR_OK) {
            rc = copy_row(w, &to, bytes, err);
        }
        if (rc < 0) {
            return rc;
        }
    }
    return MR_OK;
}

int mr_rows_merge_copy(const struct mr_tensor *const *parts, uint32_t count, const uint16_t *choice,
                       uint64_t rows, void *to, struct mr_err *err)
{
    struct walk *walks = mr_try_alloc((count + 1) * sizeof *walks);
    int rc = walks ? MR_OK : MR_FAIL(err, MR_E_NOMEM, "no memory to join rows");

    for (uint32_t i = 0; i < count && rc == MR_OK; i++) {
        walks[i].t = NULL;
        if (parts[i]) {
            rc = walk_init(&walks[i], parts[i], err);
        }
    }
    if (rc == MR_OK) {
        rc = merge(walks, choice, count, rows, to, err);
    }
    mr_free(walks);
    return rc;
}
