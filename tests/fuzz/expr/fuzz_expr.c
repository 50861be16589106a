/* Expressions: whatever the text, compilation ends with a program or an error that has words; whatever the tensors, a program ends
 * with a value of the type that the compiler promised. The first byte of the input says what the tensors hold. */
#include "fuzz.h"

#include "expr/expr.h"

struct world {
    uint8_t seed;
    struct mr_tensor tensors[MR_EXPR_OPERANDS_MAX];
    int count;
    int64_t shape[2];
    char data[64];
};

static const int dtypes[] = {MR_DTYPE_INT32, MR_DTYPE_FP32,  MR_DTYPE_BOOL,   MR_DTYPE_BYTES,
                             MR_DTYPE_FP16,  MR_DTYPE_INT64, MR_DTYPE_UINT64, MR_DTYPE_FP64};
static const int sizes[] = {4, 4, 1, 0, 2, 8, 8, 8};

/* The first letter of a name says which type its tensor has, the second its rank. */
static int type_of(mr_str name)
{
    return (unsigned char)name.ptr[0] % 8;
}

static int resolve(void *ctx, enum mr_expr_form form, mr_str name, struct mr_expr_symbol *out,
                   struct mr_err *err)
{
    (void)ctx;
    *out = (struct mr_expr_symbol){.type = MR_EXPR_STRING};
    if (name.len == 0 || name.ptr[0] == 'z') {
        return MR_FAIL(err, MR_E_NOT_FOUND, "there is no '%.*s'", MR_STR_ARG(name));
    }
    if (form == MR_EXPR_NAME) {
        *out =
            (struct mr_expr_symbol){.is_tensor = true, .dtype = dtypes[type_of(name)], .rank = -1};
    }
    return MR_OK;
}

static int tensor_of(void *ctx, const struct mr_expr_operand *operand, const struct mr_tensor **out,
                     struct mr_err *err)
{
    struct world *w = ctx;
    int type = type_of(operand->name);
    struct mr_tensor *t = &w->tensors[w->count++];

    (void)err;
    if (w->seed % 5 == 0) {
        *out = NULL;
        return MR_OK;
    }
    w->shape[0] = w->seed % 4;
    w->shape[1] = 2;
    *t = (struct mr_tensor){.dtype = dtypes[type],
                            .rank = (int)(operand->name.len % 3),
                            .shape = w->shape,
                            .data = w->data};
    uint64_t elements = t->rank == 0 ? 1 : (uint64_t)(w->shape[0] * (t->rank == 2 ? 2 : 1));
    t->bytes = sizes[type] ? elements * (uint64_t)sizes[type] : w->seed % sizeof w->data;
    *out = t;
    return MR_OK;
}

static int value_of(void *ctx, const struct mr_expr_operand *operand, struct mr_expr_value *out,
                    struct mr_err *err)
{
    const struct world *w = ctx;

    (void)err;
    *out = (struct mr_expr_value){.type = MR_EXPR_STRING, .s = operand->name};
    if (operand->form == MR_EXPR_PARAMETER && w->seed % 3 == 0) {
        *out = (struct mr_expr_value){.type = MR_EXPR_FLOAT, .f = w->seed * 1e300};
    }
    out->is_null = w->seed % 7 == 0;
    return MR_OK;
}

static void run(const struct mr_expr *x, bool by_row, struct world *w)
{
    struct mr_expr_source source = {.tensor = tensor_of, .value = value_of, .ctx = w};
    struct mr_expr_value v;
    struct mr_err err = {0};
    uint8_t mask[4];

    w->count = 0;
    if (by_row) {
        int rc = mr_expr_run_rows(x, &source, w->seed % 4, mask, &err);
        REQUIRE(rc == MR_OK || (rc == err.status && err.msg[0]));
        return;
    }
    int rc = mr_expr_run(x, &source, &v, &err);
    REQUIRE(rc == MR_OK ? v.type == mr_expr_result_type(x)
                        : rc == err.status && err.msg[0] != '\0');
    if (rc == MR_OK && !v.is_null && v.type == MR_EXPR_STRING && v.s.len > 0) {
        REQUIRE(v.s.ptr[0] == v.s.ptr[0] && v.s.ptr[v.s.len - 1] == v.s.ptr[v.s.len - 1]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct world w = {.seed = size > 0 ? data[0] : 0};
    mr_str text = mr_str_n((const char *)data + (size > 0), size - (size > 0));
    struct mr_expr_names names = {.resolve = resolve, .ctx = &w};

    for (size_t i = 0; i < sizeof w.data; i++) {
        w.data[i] = (char)(i % 5 ? 0 : w.seed * (i + 1));
    }
    for (int by_row = 0; by_row < 2; by_row++) {
        struct mr_expr_options options = {.by_row = by_row, .want_bool = by_row};
        struct mr_expr *x = NULL;
        struct mr_err err = {0};
        int rc = mr_expr_compile(text, &options, &names, &x, &err);
        REQUIRE(rc == MR_OK ? x != NULL : x == NULL && rc == err.status && err.msg[0] != '\0');
        if (x) {
            run(x, by_row, &w);
        }
        mr_expr_free(&x);
    }
    return 0;
}
