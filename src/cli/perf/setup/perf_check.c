/* Checks answers: each is decoded and its outputs are compared, bit by bit, with those of the first answer to the
 * same request, or with --expect. Runs on the sending threads; the first answers are published once and never change. */
#include <stdatomic.h>

#include "perf.h"

struct reference {
    struct mr_arena arena;
    struct mr_block *block; /* memory of the tensors */
    struct mr_oip_response response;
};

struct perf_checker {
    bool grpc;
    bool is_expected; /* only the outputs named in it are compared */
    size_t count;
    _Atomic(struct reference *) at[]; /* one per request */
};

#define WHY_BYTES 160

/* ---- comparing ---- */

static const struct mr_oip_tensor *find_output(const struct mr_oip_response *r, mr_str name)
{
    for (size_t i = 0; i < r->output_count; i++) {
        if (mr_str_eq(r->outputs[i].name, name)) {
            return &r->outputs[i];
        }
    }
    return NULL;
}

static bool is_same_shape(const struct mr_tensor *a, const struct mr_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           (a->rank == 0 || memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) == 0);
}

static bool same_tensor(mr_str name, const struct mr_tensor *wanted, const struct mr_tensor *got,
                        char why[WHY_BYTES])
{
    char shapes[2][48];
    size_t size = MR_MAX(mr_dtype_size(got->dtype), (size_t)1);
    const char *a = wanted->data;
    const char *b = got->data;

    if (!is_same_shape(wanted, got)) {
        snprintf(why, WHY_BYTES, "output %.*s is %s %s, expected %s %s",
                 MR_STR_ARG(mr_str_sub(name, 0, 40)), mr_dtype_name(got->dtype),
                 mr_shape_text(got->shape, got->rank, shapes[0], sizeof shapes[0]),
                 mr_dtype_name(wanted->dtype),
                 mr_shape_text(wanted->shape, wanted->rank, shapes[1], sizeof shapes[1]));
        return false;
    }
    if (wanted->bytes == got->bytes && (got->bytes == 0 || memcmp(a, b, got->bytes) == 0)) {
        return true;
    }
    uint64_t at = 0;
    while (at < wanted->bytes && at < got->bytes && a[at] == b[at]) {
        at++;
    }
    snprintf(why, WHY_BYTES, "output %.*s differs, first at %s %llu",
             MR_STR_ARG(mr_str_sub(name, 0, 40)), size > 1 ? "element" : "byte",
             (unsigned long long)(at / size));
    return false;
}

static bool same(const struct perf_checker *c, const struct mr_oip_response *wanted,
                 const struct mr_oip_response *got, char why[WHY_BYTES])
{
    if (!c->is_expected && wanted->output_count != got->output_count) {
        snprintf(why, WHY_BYTES, "%zu outputs, expected %zu", got->output_count,
                 wanted->output_count);
        return false;
    }
    for (size_t i = 0; i < wanted->output_count; i++) {
        const struct mr_oip_tensor *w = &wanted->outputs[i];
        const struct mr_oip_tensor *g = find_output(got, w->name);
        if (!g) {
            snprintf(why, WHY_BYTES, "no output %.*s", MR_STR_ARG(mr_str_sub(w->name, 0, 40)));
            return false;
        }
        if (!same_tensor(w->name, &w->tensor, &g->tensor, why)) {
            return false;
        }
    }
    return true;
}

/* ---- answers ---- */

static void reference_free(struct reference *r)
{
    if (r) {
        mr_arena_fini(&r->arena);
        mr_block_unref(&r->block);
        mr_free(r);
    }
}

static int decode(const struct perf_checker *c, const struct mr_client_response *response,
                  struct mr_arena *arena, struct mr_oip_response *out, struct mr_err *err)
{
    static const struct mr_oip_limits limits = {.max_tensors = 65536, .size_option = "4 GiB"};
    const struct mr_endpoint e = {.is_grpc = c->grpc};

    return mr_endpoint_decode(&e, response, &limits, arena, out, err);
}

static bool check_answer(void *ctx, size_t body, const struct mr_client_response *response,
                         char why[WHY_BYTES])
{
    struct perf_checker *c = ctx;
    struct reference *now = MR_NEW(struct reference);
    struct reference *first = NULL;
    struct mr_err err;
    bool fine = true;

    mr_arena_init(&now->arena, 4096, (size_t)1 << 30);
    now->block = response->body_block ? mr_block_ref(response->body_block) : NULL;
    if (decode(c, response, &now->arena, &now->response, &err) < 0) {
        snprintf(why, WHY_BYTES, "%.150s", err.msg);
        fine = false;
    } else if (atomic_compare_exchange_strong(&c->at[body], &first, now)) {
        return true;
    } else {
        fine = same(c, &first->response, &now->response, why);
    }
    reference_free(now);
    return fine;
}

/* ---- what is expected ---- */

static const struct mr_oip_io *find_meta(const struct mr_oip_metadata *m, mr_str name)
{
    for (size_t i = 0; i < m->output_count; i++) {
        if (mr_str_eq(m->outputs[i].name, name)) {
            return &m->outputs[i];
        }
    }
    return NULL;
}

static int add_expected(struct perf *p, const char *text, struct mr_oip_tensor *out,
                        struct mr_err *err)
{
    const char *equals = strchr(text, '=');
    mr_str name = mr_str_n(text, equals ? (size_t)(equals - text) : 0);
    const struct mr_oip_io *io = find_meta(&p->infer.meta, name);

    if (!io) {
        return MR_FAIL(err, MR_E_INVALID,
                       "--expect '%.60s': expected OUTPUT=VALUE with an output of the model", text);
    }
    struct mr_array *a = infer_new_array(&p->infer);
    int rc = infer_read_value(io, equals + 1, a, err);
    if (rc == MR_OK) {
        rc = mr_array_fit(a, io->shape, io->rank, err);
    }
    if (rc < 0) {
        return MR_WRAP(err, rc, "--expect %.*s", MR_STR_ARG(name));
    }
    out->name = io->name;
    out->tensor = (struct mr_tensor){.dtype = a->dtype,
                                     .rank = a->rank,
                                     .shape = a->shape,
                                     .data = a->data.ptr,
                                     .bytes = a->data.len};
    return MR_OK;
}

static int take_expected(struct perf *p, struct perf_checker *c, struct mr_err *err)
{
    const struct mr_option_list *list = &p->opt.expect;
    struct reference *r;

    if (c->count > 1) {
        return MR_FAIL(
            err, MR_E_INVALID,
            "--expect needs one request whose answer is known: give all inputs by -i, or "
            "--data zeros, or --variants 1");
    }
    r = MR_NEW(struct reference);
    mr_arena_init(&r->arena, 0, (size_t)1 << 20);
    r->response.outputs = MR_ARENA_ARRAY(&r->arena, struct mr_oip_tensor, list->len);
    atomic_store(&c->at[0], r);
    c->is_expected = true;
    if (!r->response.outputs) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "--expect: too many outputs");
    }
    for (size_t i = 0; i < list->len; i++) {
        int rc = add_expected(p, list->at[i], &r->response.outputs[i], err);
        if (rc < 0) {
            return rc;
        }
        r->response.output_count++;
    }
    return MR_OK;
}

int perf_checker_new(struct perf *p, struct mr_err *err)
{
    struct perf_checker *c =
        mr_alloc(sizeof *c + p->body_count * sizeof(_Atomic(struct reference *)));

    p->checker = c;
    c->grpc = p->target.grpc;
    c->count = p->body_count;
    p->target.check = check_answer;
    p->target.check_ctx = c;
    return p->opt.expect.len ? take_expected(p, c, err) : MR_OK;
}

void perf_checker_free(struct perf_checker **io_c)
{
    struct perf_checker *c = *io_c;

    *io_c = NULL;
    for (size_t i = 0; c && i < c->count; i++) {
        reference_free(atomic_load(&c->at[i]));
    }
    mr_free(c);
}
