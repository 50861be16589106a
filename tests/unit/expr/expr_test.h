/* Tensors and values that the tests of expressions see, and a source that hands them over. */
#ifndef MR_TEST_EXPR_TEST_H
#define MR_TEST_EXPR_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "expr/expr.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define CHECK_ROW(cond, row, ...)                                                                  \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            print_error("row %zu: ", (size_t)(row));                                               \
            print_error(__VA_ARGS__);                                                              \
            print_error("\n");                                                                     \
            fail_msg("%s", #cond);                                                                 \
        }                                                                                          \
    } while (0)

struct test_tensor {
    const char *name;
    bool is_null;
    struct mr_tensor t;
};

#define TENSOR(name_, dtype_, rank_, shape_, data_)                                                \
    {                                                                                              \
        .name = (name_), .t = {                                                                    \
            .dtype = MR_DTYPE_##dtype_,                                                            \
            .rank = (rank_),                                                                       \
            .shape = (shape_),                                                                     \
            .data = (void *)(uintptr_t)(data_),                                                    \
            .bytes = sizeof(data_)                                                                 \
        }                                                                                          \
    }
#define BYTES_TENSOR(name_, rank_, shape_, text_)                                                  \
    {                                                                                              \
        .name = (name_), .t = {                                                                    \
            .dtype = MR_DTYPE_BYTES,                                                               \
            .rank = (rank_),                                                                       \
            .shape = (shape_),                                                                     \
            .data = (void *)(uintptr_t)(text_),                                                    \
            .bytes = sizeof(text_) - 1                                                             \
        }                                                                                          \
    }

/* What a test program may name. `hides_shape`: the compiler gets the rank only. */
struct test_world {
    const struct test_tensor *tensors;
    size_t count;
    bool hides_shape;
    int fetches; /* of tensors */
};

static inline const struct test_tensor *test_find(const struct test_world *w, mr_str name)
{
    for (size_t i = 0; i < w->count; i++) {
        if (mr_str_eq_c(name, w->tensors[i].name)) {
            return &w->tensors[i];
        }
    }
    return NULL;
}

static inline int test_resolve(void *ctx, enum mr_expr_form form, mr_str name,
                               struct mr_expr_symbol *out, struct mr_err *err)
{
    const struct test_world *w = ctx;
    const struct test_tensor *t = test_find(w, name);

    if (form == MR_EXPR_STATUS || form == MR_EXPR_VARIANT) {
        *out = (struct mr_expr_symbol){.type = MR_EXPR_STRING, .id = 7};
        return mr_str_eq(name, MR_STR("det"))
                   ? MR_OK
                   : MR_FAIL(err, MR_E_INVALID, "there is no node '%.*s'", MR_STR_ARG(name));
    }
    if (mr_str_eq(name, MR_STR("stable.p99_ms"))) {
        *out = (struct mr_expr_symbol){.type = MR_EXPR_FLOAT, .id = 3};
        return MR_OK;
    }
    if (!t) {
        return MR_FAIL(err, MR_E_INVALID, "there is no tensor '%.*s'", MR_STR_ARG(name));
    }
    *out = (struct mr_expr_symbol){.is_tensor = true,
                                   .dtype = t->t.dtype,
                                   .rank = t->t.rank,
                                   .shape = w->hides_shape ? NULL : t->t.shape,
                                   .id = (uint32_t)(t - w->tensors)};
    return MR_OK;
}

static inline int test_tensor(void *ctx, const struct mr_expr_operand *operand,
                              const struct mr_tensor **out, struct mr_err *err)
{
    struct test_world *w = ctx;

    (void)err;
    w->fetches++;
    *out = w->tensors[operand->id].is_null ? NULL : &w->tensors[operand->id].t;
    return MR_OK;
}

static inline int test_value(void *ctx, const struct mr_expr_operand *operand,
                             struct mr_expr_value *out, struct mr_err *err)
{
    static const struct {
        enum mr_expr_form form;
        const char *name;
        struct mr_expr_value value;
    } values[] = {
        {MR_EXPR_PARAMETER, "lang", {.type = MR_EXPR_STRING, .s = MR_STR_INIT("en-GB")}},
        {MR_EXPR_PARAMETER, "top", {.type = MR_EXPR_INT, .i = 5}},
        {MR_EXPR_PARAMETER, "share", {.type = MR_EXPR_FLOAT, .f = 0.25}},
        {MR_EXPR_PARAMETER, "debug", {.type = MR_EXPR_BOOL, .b = true}},
        {MR_EXPR_HEADER, "x-user", {.type = MR_EXPR_STRING, .s = MR_STR_INIT("17")}},
        {MR_EXPR_STATUS, "det", {.type = MR_EXPR_STRING, .s = MR_STR_INIT("OK")}},
        {MR_EXPR_VARIANT, "det", {.type = MR_EXPR_STRING, .s = MR_STR_INIT("stable")}},
        {MR_EXPR_NAME, "stable.p99_ms", {.type = MR_EXPR_FLOAT, .f = 12.5}},
    };

    (void)ctx;
    if (mr_str_eq(operand->name, MR_STR("broken"))) {
        return MR_FAIL(err, MR_E_UNAVAILABLE, "broken");
    }
    *out = (struct mr_expr_value){.is_null = true};
    for (size_t i = 0; i < COUNT_OF(values); i++) {
        if (values[i].form == operand->form && mr_str_eq_c(operand->name, values[i].name)) {
            *out = values[i].value;
        }
    }
    return MR_OK;
}

static inline int test_compile(struct test_world *w, const char *text,
                               const struct mr_expr_options *options, struct mr_expr **out,
                               struct mr_err *err)
{
    struct mr_expr_names names = {.resolve = test_resolve, .ctx = w};

    return mr_expr_compile(mr_str_c(text), options, &names, out, err);
}

#endif
