/* The requests that `millrace perf` sends. Inputs that were not given by -i are generated: zeros, or random values
 * from the seed. All requests are encoded before the first is sent. */
#include "base/rng.h"
#include "codec/json.h"
#include "perf.h"

#define VARIANTS_DEFAULT 16
#define BODIES_BYTES_MAX ((uint64_t)1 << 30)
#define STRING_DIGITS    8

/* ---- values ---- */

/* Whole numbers small enough for every type and for an index into a table of 128; fractions in [0, 1). */
static void put_random(int dtype, struct mr_rng *rng, char *at)
{
    double unit = mr_rng_unit(rng);
    uint64_t small = (uint64_t)(unit * 128);
    uint16_t half;
    float f = (float)(unit < 0.9999999 ? unit : 0.9999999);

    switch (dtype) {
    case MR_DTYPE_BOOL: *at = unit < 0.5; break;
    case MR_DTYPE_FP16:
        half = mr_fp16_from_float(f);
        memcpy(at, &half, sizeof half);
        break;
    case MR_DTYPE_BF16:
        half = mr_bf16_from_float(f);
        memcpy(at, &half, sizeof half);
        break;
    case MR_DTYPE_FP32: memcpy(at, &f, sizeof f); break;
    case MR_DTYPE_FP64: memcpy(at, &unit, sizeof unit); break;
    default: memcpy(at, &small, mr_dtype_size(dtype)); break; /* little-endian */
    }
}

static void fill_strings(struct mr_array *a, int data, struct mr_rng *rng, uint64_t count)
{
    char digits[STRING_DIGITS];

    for (uint64_t i = 0; i < count; i++) {
        for (size_t k = 0; k < sizeof digits; k++) {
            digits[k] = (char)('0' + (int)(mr_rng_unit(rng) * 10));
        }
        mr_array_add_bytes(a, digits, data == PERF_ZEROS ? 0 : sizeof digits);
    }
}

int perf_fill(struct mr_array *a, int data, struct mr_rng *rng, struct mr_err *err)
{
    size_t size = mr_dtype_size(a->dtype);
    uint64_t count;
    int rc = mr_shape_elements(a->shape, a->rank, &count, err);

    if (rc < 0) {
        return rc;
    }
    if (count > BODIES_BYTES_MAX / MR_MAX(size, (size_t)1 + STRING_DIGITS)) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "more than 1 GiB");
    }
    mr_buf_reset(&a->data);
    if (a->dtype == MR_DTYPE_BYTES) {
        fill_strings(a, data, rng, count);
        return MR_OK;
    }
    char *at = mr_buf_reserve(&a->data, count * size + 1);
    if (!at) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "no memory for %llu elements",
                       (unsigned long long)count);
    }
    memset(at, 0, count * size);
    for (uint64_t i = 0; data == PERF_RANDOM && i < count; i++) {
        put_random(a->dtype, rng, at + i * size);
    }
    a->data.len = count * size;
    return MR_OK;
}

/* ---- shapes ---- */

/* The dims that --shape gives for an input; false when it gives none. */
static bool find_shape(const struct perf_options *o, mr_str name, mr_str *out)
{
    for (size_t i = 0; i < o->shapes.len; i++) {
        mr_str text = mr_str_c(o->shapes.at[i]);
        if (text.len > name.len && mr_str_starts(text, name) && text.ptr[name.len] == ':') {
            *out = mr_str_sub(text, name.len + 1, text.len);
            return true;
        }
    }
    return false;
}

static int parse_dims(mr_str text, int64_t *dims, int *out_count, struct mr_err *err)
{
    mr_str rest = text;
    mr_str item;
    int n = 0;

    while (mr_str_split(&rest, ',', &item)) {
        if (n == MR_MAX_RANK || !mr_str_to_i64(mr_str_trim(item), &dims[n]) || dims[n] < 0) {
            return MR_FAIL(err, MR_E_INVALID,
                           "--shape '%.*s': expected at most %d whole numbers from 0 on, "
                           "separated by commas",
                           MR_STR_ARG(text), MR_MAX_RANK);
        }
        n++;
    }
    *out_count = n;
    return MR_OK;
}

/* --shape may omit the first dimension if the model leaves it open: --batch is then used. */
static int set_shape(const struct perf_options *o, const struct mr_oip_io *io, struct mr_array *a,
                     struct mr_err *err)
{
    int64_t dims[MR_MAX_RANK];
    int count = 0;
    mr_str text = {NULL, 0};
    bool is_open = io->rank > 0 && io->shape[0] == -1;
    char wanted[128];

    a->rank = io->rank;
    memcpy(a->shape, io->shape, sizeof a->shape);
    if (is_open) {
        a->shape[0] = o->batch;
    }
    if (find_shape(o, io->name, &text)) {
        int rc = parse_dims(text, dims, &count, err);
        if (rc < 0) {
            return rc;
        }
        if (count != io->rank && !(is_open && count == io->rank - 1)) {
            return MR_FAIL(err, MR_E_INVALID, "--shape %.*s: the model wants %s", MR_STR_ARG(text),
                           mr_shape_text(io->shape, io->rank, wanted, sizeof wanted));
        }
        memcpy(a->shape + (io->rank - count), dims, (size_t)count * sizeof *dims);
    }
    for (int d = 0; d < a->rank; d++) {
        if (a->shape[d] < 0) {
            return MR_FAIL(err, MR_E_INVALID, "its shape is %s: say --shape %.*s:DIM,DIM,...",
                           mr_shape_text(io->shape, io->rank, wanted, sizeof wanted),
                           MR_STR_ARG(io->name));
        }
    }
    return MR_OK;
}

/* ---- requests ---- */

static bool has_input(const struct mr_oip_request *r, mr_str name)
{
    for (size_t i = 0; i < r->input_count; i++) {
        if (mr_str_eq(r->inputs[i].name, name)) {
            return true;
        }
    }
    return false;
}

static int check_shape_names(const struct perf *p, struct mr_err *err)
{
    for (size_t i = 0; i < p->opt.shapes.len; i++) {
        mr_str text = mr_str_c(p->opt.shapes.at[i]);
        ptrdiff_t colon = mr_str_find(text, ':');
        mr_str name = mr_str_sub(text, 0, colon < 0 ? text.len : (size_t)colon);
        if (colon < 0 || !mr_oip_find_input(&p->infer.meta, name) ||
            has_input(&p->infer.request, name)) {
            return MR_FAIL(err, MR_E_INVALID,
                           "--shape '%.*s': expected INPUT:DIM,DIM,... for an input of the model "
                           "that -i does not give",
                           MR_STR_ARG(mr_str_sub(text, 0, 100)));
        }
    }
    return MR_OK;
}

/* An array for each input that was not given. Returns how many in *out_made. */
static int add_made_up(struct perf *p, size_t *out_made, struct mr_err *err)
{
    struct infer *x = &p->infer;
    struct mr_rng rng;
    int rc = MR_OK;

    *out_made = 0;
    mr_rng_seed(&rng, p->opt.seed);
    for (size_t i = 0; i < x->meta.input_count && rc == MR_OK; i++) {
        const struct mr_oip_io *io = &x->meta.inputs[i];
        if (has_input(&x->request, io->name)) {
            continue;
        }
        struct mr_array *a = infer_new_array(x);
        a->dtype = io->dtype;
        if (io->dtype == MR_DTYPE_INVALID) {
            rc = MR_FAIL(err, MR_E_UNSUPPORTED, "a type that is not known here");
        }
        rc = rc < 0 ? rc : set_shape(&p->opt, io, a, err);
        rc = rc < 0 ? rc : perf_fill(a, p->opt.data, &rng, err);
        rc = rc < 0 ? rc : infer_add_input(x, io, a, err);
        if (rc < 0) {
            return MR_WRAP(err, rc, "input %.*s", MR_STR_ARG(io->name));
        }
        (*out_made)++;
    }
    return rc;
}

/* Puts new values into the generated arrays, which are the last ones. */
static int refill(struct perf *p, size_t made, uint64_t seed, struct mr_err *err)
{
    struct infer *x = &p->infer;
    struct mr_rng rng;
    int rc = MR_OK;

    mr_rng_seed(&rng, seed);
    for (size_t i = x->request.input_count - made; i < x->request.input_count && rc == MR_OK; i++) {
        struct mr_array *a = x->arrays.at[i];
        rc = perf_fill(a, p->opt.data, &rng, err);
        x->request.inputs[i].tensor.data = a->data.ptr;
        x->request.inputs[i].tensor.bytes = a->data.len;
    }
    return rc;
}

/* ---- rows of given inputs ---- */

/* The given inputs come first, arrays.at[i] is inputs[i]. Sets their shapes to those of one request, and *out_count
 * to the number of requests; cursors[i] points to the rows of the next one. */
static int rows_begin(struct perf *p, size_t given, char **cursors, size_t *out_count,
                      struct mr_err *err)
{
    struct infer *x = &p->infer;
    int64_t rows = given > 0 ? x->arrays.at[0]->shape[0] : 0;

    if (given == 0) {
        return MR_FAIL(err, MR_E_INVALID, "--rows: no input is given by -i");
    }
    for (size_t i = 0; i < given; i++) {
        mr_str name = x->request.inputs[i].name;
        const struct mr_oip_io *io = mr_oip_find_input(&x->meta, name);
        struct mr_array *a = x->arrays.at[i];
        if (io->rank == 0 || io->shape[0] != -1) {
            return MR_FAIL(err, MR_E_INVALID,
                           "--rows: the first dimension of input %.*s is not open",
                           MR_STR_ARG(name));
        }
        if (a->shape[0] != rows || rows < p->opt.batch) {
            return MR_FAIL(err, MR_E_INVALID, "--rows: input %.*s has %lld rows, expected %s%lld",
                           MR_STR_ARG(name), (long long)a->shape[0],
                           a->shape[0] != rows ? "" : "at least ",
                           a->shape[0] != rows ? (long long)rows : (long long)p->opt.batch);
        }
        a->shape[0] = p->opt.batch;
        cursors[i] = a->data.ptr;
    }
    *out_count = (size_t)(rows / p->opt.batch);
    return MR_OK;
}

static char *elements_end(const struct mr_array *a, char *at)
{
    uint64_t count = mr_array_count(a);
    uint32_t len;

    if (a->dtype != MR_DTYPE_BYTES) {
        return at + count * mr_dtype_size(a->dtype);
    }
    for (uint64_t i = 0; i < count; i++) {
        memcpy(&len, at, sizeof len); /* little-endian, as each element was added */
        at += sizeof len + len;
    }
    return at;
}

static void rows_take(struct perf *p, size_t given, char **cursors)
{
    for (size_t i = 0; i < given; i++) {
        struct mr_tensor *t = &p->infer.request.inputs[i].tensor;
        t->data = cursors[i];
        cursors[i] = elements_end(p->infer.arrays.at[i], cursors[i]);
        t->bytes = (uint64_t)(cursors[i] - (char *)t->data);
    }
}

/* ---- encoding ---- */

static int encode_body(struct perf *p, struct mr_perf_body *out, struct mr_err *err)
{
    struct mr_arena arena;
    struct mr_buf buf;
    struct mr_oip_encoded e;
    int rc;

    mr_arena_init(&arena, 4096, (size_t)1 << 30);
    mr_buf_init(&buf, (size_t)8 << 30);
    MR_TRY(p->target.grpc ? mr_oip_pb_encode_request(&p->infer.request, &buf, &arena, &e, err)
                          : mr_oip_rest_encode_request(&p->infer.request, &buf, &arena, &e, err));
    out->block = mr_block_new(e.bytes + 1);
    out->len = 0;
    out->header_length = e.header_length;
    for (size_t i = 0; i < e.piece_count; i++) {
        if (out->block) {
            memcpy(out->block->data + out->len, e.pieces[i].ptr, e.pieces[i].len);
            out->len += e.pieces[i].len;
        }
        mr_block_unref(&e.pieces[i].block);
    }
    if (!out->block) {
        rc = MR_FAIL(err, MR_E_EXHAUSTED, "no memory for a request of %llu bytes",
                     (unsigned long long)e.bytes);
    }
out:
    mr_buf_fini(&buf);
    mr_arena_fini(&arena);
    return rc;
}

/* The number of different requests. */
static int count_bodies(struct perf *p, size_t made, char **cursors, size_t *out_count,
                        struct mr_err *err)
{
    size_t wanted = p->opt.variants ? p->opt.variants : VARIANTS_DEFAULT;

    if (p->opt.rows) {
        return rows_begin(p, p->infer.request.input_count - made, cursors, out_count, err);
    }
    *out_count = made > 0 && p->opt.data == PERF_RANDOM ? wanted : 1;
    return MR_OK;
}

int perf_make_bodies(struct perf *p, struct mr_err *err)
{
    char **cursors = NULL;
    uint64_t total = 0;
    size_t count = 0;
    size_t made;
    int rc;

    MR_TRY(infer_build(&p->infer, false, err));
    p->infer.request.enable_empty_final_response = p->target.streams;
    MR_TRY(check_shape_names(p, err));
    MR_TRY(add_made_up(p, &made, err));
    cursors = MR_NEW_ARRAY(char *, p->infer.request.input_count + 1);
    MR_TRY(count_bodies(p, made, cursors, &count, err));
    p->bodies = MR_NEW_ARRAY(struct mr_perf_body, count);
    while (p->body_count < count) {
        if (p->opt.rows) {
            rows_take(p, p->infer.request.input_count - made, cursors);
        }
        if (p->body_count > 0) {
            MR_TRY(refill(p, made, p->opt.seed + p->body_count, err));
        }
        MR_TRY(encode_body(p, &p->bodies[p->body_count], err));
        total += p->bodies[p->body_count++].len;
        if (total > BODIES_BYTES_MAX && p->body_count < count) {
            if (p->opt.variants || p->opt.rows) {
                rc = MR_FAIL(err, MR_E_TOO_LARGE,
                             "more than 1 GiB of requests: the first %zu of %zu fit", p->body_count,
                             count);
            }
            break;
        }
    }
out:
    mr_free(cursors);
    return rc;
}

void perf_free_bodies(struct perf *p)
{
    for (size_t i = 0; i < p->body_count; i++) {
        mr_block_unref(&p->bodies[i].block);
    }
    mr_freep(&p->bodies);
    p->body_count = 0;
}
