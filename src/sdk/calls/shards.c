/* A request is divided along the first dimension of the inputs that are marked; the others are sent with each part. Parts are calls
 * of their own, with their own choice of a host and their own attempts. The first one that fails ends the others, and its error is that
 * of the request. The outputs of all parts are joined in the order of the rows.
 *
 * An answer is kept by its part until all are there: the network's memory by a reference, the rest in the part's arena. */
#include "shards.h"

#include <stdio.h>

#define ARENA_FIRST ((size_t)4096)
#define ARENA_MAX   ((size_t)64 << 20)
#define ALIGN       ((uint64_t)64)

struct shard {
    struct shards *of;
    struct call call;
    struct mr_arena arena;
    struct mr_block *body;
    int64_t first, rows;
};

struct shards {
    struct call *whole;
    uint32_t count;
    uint32_t open; /* not done */
    uint32_t held; /* not freed */
    bool has_failed;
    struct shard at[];
};

/* ---- rows ---- */

uint32_t shards_count(const struct call *c)
{
    const struct config_policy *p = &c->cluster->policy;
    const uint64_t most = MR_MIN((uint64_t)p->max_shards, (uint64_t)c->cluster->hosts.len);

    if (c->pack_rows <= 0 || c->request.has_sequence_id || most < 2) {
        return 1;
    }
    const uint64_t rows = (uint64_t)c->pack_rows;
    const uint64_t parts = rows / p->shard_rows + (rows % p->shard_rows != 0);
    return (uint32_t)MR_MIN(parts, most);
}

/* The bytes of rows of elements that have their length before them, from `at` on. The tensor was checked. */
static uint64_t text_bytes(const uint8_t *at, uint64_t elements)
{
    uint64_t bytes = 0;
    uint32_t length;

    for (uint64_t i = 0; i < elements; i++) {
        memcpy(&length, at + bytes, sizeof length);
        bytes += sizeof length + length;
    }
    return bytes;
}

/* io_offset: where the rows of this part begin; moved to those of the next one. False: no memory. */
static bool input_slice(struct shard *s, const struct mr_oip_tensor *whole, uint64_t *io_offset,
                        struct mr_oip_tensor *out)
{
    const struct mr_tensor *t = &whole->tensor;
    int64_t *shape = MR_ARENA_ARRAY(&s->arena, int64_t, (size_t)t->rank);
    uint64_t per_row = 1;

    if (!shape) {
        return false;
    }
    memcpy(shape, t->shape, (size_t)t->rank * sizeof *shape);
    for (int32_t d = 1; d < t->rank; d++) {
        per_row *= (uint64_t)shape[d]; /* the product of all dimensions was checked */
    }
    shape[0] = s->rows;
    *out = *whole;
    out->tensor.shape = shape;
    out->tensor.data = (uint8_t *)t->data + *io_offset;
    out->tensor.bytes = t->dtype == MR_DTYPE_BYTES
                            ? text_bytes(out->tensor.data, per_row * (uint64_t)s->rows)
                            : t->bytes / (uint64_t)s->of->whole->pack_rows * (uint64_t)s->rows;
    *io_offset += out->tensor.bytes;
    return true;
}

/* offsets: of each input, where this part begins. */
static bool inputs_slice(struct shard *s, uint64_t *offsets)
{
    const struct call *whole = s->of->whole;
    const size_t count = whole->request.input_count;
    struct mr_oip_tensor *list = MR_ARENA_ARRAY(&s->arena, struct mr_oip_tensor, count + 1);

    for (size_t i = 0; list && i < count; i++) {
        const struct mr_oip_tensor *in = &whole->request.inputs[i];
        if (!whole->packed[i]) {
            list[i] = *in;
        } else if (!input_slice(s, in, &offsets[i], &list[i])) {
            return false;
        }
    }
    s->call.request.inputs = list;
    return list != NULL;
}

/* ---- answers ---- */

static int output_differs(const struct shard *s, const struct mr_oip_tensor *first,
                          struct mr_err *err)
{
    return MR_FAIL(err, MR_E_INTERNAL,
                   "output '%.*s' of rows %lld to %lld does not fit that of the first rows: it has "
                   "another type, other dimensions than the first, or is not there",
                   MR_STR_ARG(first->name), (long long)s->first,
                   (long long)(s->first + s->rows - 1));
}

static const struct mr_oip_tensor *output_find(const struct shard *s, mr_str name)
{
    for (size_t i = 0; i < s->call.response.output_count; i++) {
        if (mr_str_eq(s->call.response.outputs[i].name, name)) {
            return &s->call.response.outputs[i];
        }
    }
    return NULL;
}

static bool fits(const struct mr_tensor *a, const struct mr_tensor *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank || a->rank == 0) {
        return false;
    }
    for (int32_t d = 1; d < a->rank; d++) {
        if (a->shape[d] != b->shape[d]) {
            return false;
        }
    }
    return true;
}

/* The shape and size of an output of all parts. */
static int output_measure(const struct shards *g, struct mr_oip_tensor *out, struct mr_err *err)
{
    int64_t *shape = MR_ARENA_ARRAY(g->whole->arena, int64_t, (size_t)out->tensor.rank + 1);
    const struct mr_oip_tensor first = *out;

    if (!shape) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the answer");
    }
    if (first.tensor.rank > 0) {
        memcpy(shape, first.tensor.shape, (size_t)first.tensor.rank * sizeof *shape);
    }
    for (uint32_t i = 0; i < g->count; i++) {
        const struct mr_oip_tensor *part = output_find(&g->at[i], first.name);
        if (!part || !fits(&first.tensor, &part->tensor) ||
            (i > 0 && (part->tensor.shape[0] > INT64_MAX - shape[0] ||
                       part->tensor.bytes > UINT64_MAX / 2 - out->tensor.bytes))) {
            return output_differs(&g->at[i], &first, err);
        }
        shape[0] += i > 0 ? part->tensor.shape[0] : 0;
        out->tensor.bytes += i > 0 ? part->tensor.bytes : 0;
    }
    out->tensor.shape = shape;
    return MR_OK;
}

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static void output_copy(const struct shards *g, struct mr_oip_tensor *out, uint8_t *to)
{
    out->tensor.data = to;
    for (uint32_t i = 0; i < g->count; i++) {
        const struct mr_tensor *t = &output_find(&g->at[i], out->name)->tensor;
        if (t->bytes > 0) {
            memcpy(to, t->data, (size_t)t->bytes);
        }
        to += t->bytes;
    }
}

static int join(struct shards *g, struct mr_err *err)
{
    struct call *c = g->whole;
    const struct mr_oip_response *first = &g->at[0].call.response;
    struct mr_oip_tensor *list =
        MR_ARENA_ARRAY(c->arena, struct mr_oip_tensor, first->output_count + 1);
    uint64_t bytes = 1, at = 0;
    int rc = MR_OK;

    if (!list) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the answer");
    }
    for (size_t i = 0; i < first->output_count; i++) {
        list[i] = first->outputs[i];
        list[i].block = NULL;
        list[i].params = NULL;
        list[i].param_count = 0;
        MR_TRY(output_measure(g, &list[i], err));
        if (list[i].tensor.bytes > UINT64_MAX / 4 - bytes) {
            MR_TRY(MR_FAIL(err, MR_E_TOO_LARGE, "the answer is too large"));
        }
        bytes += aligned(list[i].tensor.bytes);
    }
    c->body = mr_block_new((size_t)bytes);
    if (!c->body) {
        MR_TRY(MR_FAIL(err, MR_E_EXHAUSTED, "no memory for an answer of %llu bytes",
                       (unsigned long long)bytes));
    }
    for (size_t i = 0; i < first->output_count; i++) {
        output_copy(g, &list[i], c->body->data + at);
        list[i].name = mr_arena_str(c->arena, list[i].name);
        at += aligned(list[i].tensor.bytes);
    }
    c->response =
        (struct mr_oip_response){.model_name = mr_arena_str(c->arena, first->model_name),
                                 .model_version = mr_arena_str(c->arena, first->model_version),
                                 .id = mr_arena_str(c->arena, first->id),
                                 .outputs = list,
                                 .output_count = first->output_count};
out:
    return rc;
}

/* ---- parts ---- */

/* Also when all have been called off. */
static void whole_done(struct shards *g)
{
    struct call *c = g->whole;

    for (uint32_t i = 0; i < g->count; i++) {
        c->attempts += g->at[i].call.attempts;
    }
    c->host = g->at[0].call.host ? mr_arena_str(c->arena, mr_str_c(g->at[0].call.host)).ptr : NULL;
    if (!g->has_failed) {
        c->rc = join(g, &c->err);
    }
    c->is_over = c->is_reported = true;
    c->done(c);
}

static void others_cancel(struct shards *g)
{
    for (uint32_t i = 0; i < g->count; i++) {
        call_cancel(&g->at[i].call); /* those that are over stay so */
    }
}

static void part_failed(struct shard *s)
{
    struct shards *g = s->of;
    struct call *c = g->whole;

    if (g->has_failed) {
        return;
    }
    g->has_failed = true;
    c->rc = s->call.rc;
    c->err = s->call.err;
    MR_WRAP(&c->err, c->rc, "rows %lld to %lld, part %u of %u", (long long)s->first,
            (long long)(s->first + s->rows - 1), (unsigned)(s - g->at) + 1, g->count);
    c->err.status = c->rc;
    others_cancel(g);
}

static void on_part_done(struct call *call)
{
    struct shard *s = MR_CONTAINER_OF(call, struct shard, call);
    struct shards *g = s->of;

    s->body = call->body;
    call->body = NULL;
    if (call->rc < 0) {
        part_failed(s);
    }
    if (--g->open == 0) {
        whole_done(g);
    }
}

static void shards_free(struct shards *g)
{
    for (uint32_t i = 0; i < g->count; i++) {
        mr_block_unref(&g->at[i].body);
        mr_arena_fini(&g->at[i].arena);
    }
    mr_free(g);
}

static void on_part_freed(struct call *call)
{
    struct shards *g = MR_CONTAINER_OF(call, struct shard, call)->of;
    struct call *c = g->whole;

    if (--g->held > 0) {
        return;
    }
    c->shards = NULL;
    shards_free(g);
    mr_block_unref(&c->body);
    c->freed(c);
}

/* ---- the beginning ---- */

static bool part_make(struct shards *g, uint32_t i, uint64_t *offsets)
{
    const struct call *c = g->whole;
    struct shard *s = &g->at[i];
    const int64_t all = c->pack_rows, count = g->count;

    s->of = g;
    s->first = all / count * i + MR_MIN((int64_t)i, all % count);
    s->rows = all / count + (i < all % count);
    mr_arena_init(&s->arena, ARENA_FIRST, ARENA_MAX);
    s->call = (struct call){.cluster = c->cluster,
                            .arena = &s->arena,
                            .model = c->model,
                            .version = c->version,
                            .request = c->request,
                            .header_count = c->header_count,
                            .key = c->key,
                            .deadline_ns = c->deadline_ns,
                            .is_once = c->is_once,
                            .fails_fast = c->fails_fast,
                            .done = on_part_done,
                            .freed = on_part_freed};
    memcpy(s->call.headers, c->headers, sizeof c->headers);
    return inputs_slice(s, offsets);
}

bool shards_start(struct call *c, uint32_t count)
{
    struct shards *g = mr_try_alloc(sizeof *g + count * sizeof *g->at);
    uint64_t *offsets = MR_ARENA_ARRAY(c->arena, uint64_t, c->request.input_count + 1);
    bool is_made = g && offsets;

    if (g) {
        memset(g, 0, sizeof *g + count * sizeof *g->at);
        *g = (struct shards){.whole = c, .count = count, .open = count, .held = count};
    }
    if (offsets) {
        memset(offsets, 0, c->request.input_count * sizeof *offsets);
    }
    for (uint32_t i = 0; is_made && i < count; i++) {
        is_made = part_make(g, i, offsets);
    }
    if (!is_made) {
        MR_FAIL(&c->err, MR_E_EXHAUSTED, "no memory to divide the request");
        if (g) {
            shards_free(g);
        }
        return false;
    }
    c->shards = g;
    for (uint32_t i = 0; i < count; i++) {
        call_start(&g->at[i].call);
    }
    return true;
}

void shards_cancel(struct call *c)
{
    struct shards *g = c->shards;

    if (!g->has_failed && g->open > 0) {
        g->has_failed = true;
        c->rc = MR_FAIL(&c->err, MR_E_CANCELLED, "the call was cancelled");
        others_cancel(g);
    }
}
