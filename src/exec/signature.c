/* The checked copy of a model's signature: its inputs and outputs.
 *
 * Everything that comes from the backend (or, for a from_config signature, from the config) is read here once,
 * checked, and copied into one block; no other code reads the original. Bounds keep a broken backend from causing
 * unbounded loops or allocations. Thread: any. */
#include "base/map.h"
#include "exec/exec.h"
#include "tensor/tensor.h"

#define IO_MAX              8192 /* inputs or outputs of one model */
#define NAME_MAX_LEN        1024
#define SIGNATURE_MIN_BYTES sizeof(struct mr_signature)

/* What is checked, and how a broken rule is reported. */
struct judge {
    const char *who;
    int status;
    struct mr_err *err;
};

static int dims_check(const struct judge *j, const struct mr_io_desc *io, const char *kind)
{
    if (io->rank < -1 || io->rank > MR_MAX_RANK) {
        return MR_FAIL(j->err, j->status, "%s: %s '%s' has rank %d, allowed are 0..%d", j->who,
                       kind, io->name, io->rank, MR_MAX_RANK);
    }
    if (io->rank > 0 && !io->dims) {
        return MR_FAIL(j->err, j->status, "%s: %s '%s' has no dims", j->who, kind, io->name);
    }
    for (int d = 0; d < io->rank; d++) {
        if (io->dims[d] < -1) {
            return MR_FAIL(j->err, j->status, "%s: %s '%s': dimension %d is %lld", j->who, kind,
                           io->name, d, (long long)io->dims[d]);
        }
    }
    return MR_OK;
}

static int io_check(const struct judge *j, const struct mr_io_desc *io, const char *kind,
                    struct mr_map *seen)
{
    size_t len = io->name ? strnlen(io->name, NAME_MAX_LEN + 1) : 0;
    if (len == 0 || len > NAME_MAX_LEN || !mr_utf8_valid(mr_str_n(io->name, len))) {
        return MR_FAIL(j->err, j->status, "%s: %s name is empty, longer than %d or not UTF-8",
                       j->who, kind, NAME_MAX_LEN);
    }
    if (mr_map_find(seen, mr_str_n(io->name, len))) {
        return MR_FAIL(j->err, j->status, "%s: two %ss are named '%s'", j->who, kind, io->name);
    }
    mr_map_put(seen, mr_str_n(io->name, len), seen);
    if (io->dtype <= MR_DTYPE_INVALID || io->dtype >= MR_DTYPE_COUNT) {
        return MR_FAIL(j->err, j->status, "%s: %s '%s' has no known data type (%d)", j->who, kind,
                       io->name, io->dtype);
    }
    return dims_check(j, io, kind);
}

/* Checks one list and adds what its copy needs to *io_dims (count) and *io_chars. */
static int list_check(const struct judge *j, const struct mr_io_desc *list, uint32_t count,
                      const char *kind, int32_t batchable, size_t *io_dims, size_t *io_chars)
{
    struct mr_map seen = {0};
    int rc = MR_OK;
    if (count > IO_MAX) {
        return MR_FAIL(j->err, j->status, "%s: %u %ss, allowed are at most %d", j->who, count, kind,
                       IO_MAX);
    }
    if (count > 0 && !list) {
        return MR_FAIL(j->err, j->status, "%s: %u %ss, and no list of them", j->who, count, kind);
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct mr_io_desc *io = &list[i];
        MR_TRY(io_check(j, io, kind, &seen));
        if (batchable == 1 && io->rank != -1 && (io->rank == 0 || io->dims[0] != -1)) {
            rc = MR_FAIL(
                j->err, j->status,
                "%s: calls itself batchable, but the first dimension of %s '%s' is not free",
                j->who, kind, io->name);
            goto out;
        }
        *io_dims += io->rank > 0 ? (size_t)io->rank : 0;
        *io_chars += strlen(io->name) + 1;
    }
out:
    mr_map_fini(&seen);
    return rc;
}

/* Where the next piece of the one block goes. */
struct cursor {
    struct mr_io_desc *io;
    int64_t *dims;
    char *chars;
};

static const struct mr_io_desc *list_copy(struct cursor *c, const struct mr_io_desc *list,
                                          uint32_t count)
{
    const struct mr_io_desc *first = c->io;
    for (uint32_t i = 0; i < count; i++) {
        size_t rank = list[i].rank > 0 ? (size_t)list[i].rank : 0;
        size_t len = strlen(list[i].name) + 1;
        *c->io = list[i];
        c->io->dims = c->dims;
        c->io->name = c->chars;
        if (rank > 0) {
            memcpy(c->dims, list[i].dims, rank * sizeof *c->dims);
        }
        memcpy(c->chars, list[i].name, len);
        c->io++;
        c->dims += rank;
        c->chars += len;
    }
    return first;
}

static int head_check(const struct judge *j, const struct mr_signature *s)
{
    if (!s || s->size < SIGNATURE_MIN_BYTES) {
        return MR_FAIL(j->err, j->status, "%s: its signature has %u bytes, needed are %zu", j->who,
                       s ? s->size : 0, SIGNATURE_MIN_BYTES);
    }
    if (s->from_config > 1 || (s->from_config == 1 && (s->input_count || s->output_count))) {
        return MR_FAIL(j->err, j->status,
                       "%s: a signature from_config has no inputs and outputs of its own", j->who);
    }
    if (s->batchable < -1 || s->batchable > 1) {
        return MR_FAIL(j->err, j->status, "%s: batchable is %d, allowed are -1, 0, 1", j->who,
                       s->batchable);
    }
    if (s->max_batch_size > INT32_MAX || (s->max_batch_size > 0 && s->batchable == 0)) {
        return MR_FAIL(j->err, j->status,
                       "%s: max_batch_size is %u, allowed are 0 to %d, and 0 without batching",
                       j->who, s->max_batch_size, INT32_MAX);
    }
    return MR_OK;
}

int mr_signature_copy(struct mr_signature **out, const struct mr_signature *s, uint32_t flags,
                      int status, const char *who, struct mr_err *err)
{
    const struct judge j = {.who = who, .status = status, .err = err};
    size_t dims = 0;
    size_t chars = 0;
    int rc;
    MR_TRY(head_check(&j, s));
    MR_TRY(list_check(&j, s->inputs, s->input_count, "input", s->batchable, &dims, &chars));
    MR_TRY(list_check(&j, s->outputs, s->output_count, "output", s->batchable, &dims, &chars));

    size_t io_count = (size_t)s->input_count + s->output_count;
    char *block =
        mr_alloc(sizeof *s + io_count * sizeof(struct mr_io_desc) + dims * sizeof(int64_t) + chars);
    struct mr_signature *copy = (struct mr_signature *)block;
    struct cursor c;
    c.io = (struct mr_io_desc *)(block + sizeof *s);
    c.dims = (int64_t *)(c.io + io_count);
    c.chars = (char *)(c.dims + dims);
    memcpy(copy, s, MR_MIN((size_t)s->size, sizeof *copy));
    copy->size = sizeof *copy;
    copy->inputs = list_copy(&c, s->inputs, s->input_count);
    copy->outputs = list_copy(&c, s->outputs, s->output_count);
    copy->flags |= flags;
    *out = copy;
    rc = MR_OK;
out:
    return rc;
}
