/* What is asked of a compiled expression. */
#include "program.h"

const char *mr_expr_type_name(enum mr_expr_type type)
{
    static const char *const names[] = {"bool", "int", "float", "string"};
    return names[type];
}

enum mr_expr_type expr_type_of_dtype(int dtype)
{
    switch (dtype) {
    case MR_DTYPE_BOOL: return MR_EXPR_BOOL;
    case MR_DTYPE_BYTES: return MR_EXPR_STRING;
    case MR_DTYPE_FP16:
    case MR_DTYPE_BF16:
    case MR_DTYPE_FP32:
    case MR_DTYPE_FP64: return MR_EXPR_FLOAT;
    default: return MR_EXPR_INT;
    }
}

unsigned expr_column(mr_str text, size_t at)
{
    unsigned column = 1;

    for (size_t i = 0; i < at && i < text.len; i++) {
        column += ((unsigned char)text.ptr[i] & 0xC0) != 0x80;
    }
    return column;
}

void mr_expr_free(struct mr_expr **expr)
{
    struct mr_expr *x = *expr;

    *expr = NULL;
    if (!x) {
        return;
    }
    MR_VEC_FINI(&x->steps);
    MR_VEC_FINI(&x->constants);
    MR_VEC_FINI(&x->operands);
    mr_arena_fini(&x->arena);
    mr_free(x);
}

enum mr_expr_type mr_expr_result_type(const struct mr_expr *expr)
{
    return expr->type;
}

const struct mr_expr_operand *mr_expr_operands(const struct mr_expr *expr, size_t *out_count)
{
    *out_count = expr->operands.len;
    return expr->operands.at;
}
