/* The compiled form of an expression: steps of a stack machine, its constants and operands. */
#ifndef MR_EXPR_PROGRAM_H
#define MR_EXPR_PROGRAM_H

#include "base/arena.h"
#include "base/vec.h"
#include "expr/expr.h"

/* What a step does to the stack: pops → pushes. `n`, `operand` and `constant` are members of the step. */
enum expr_op {
    EXPR_CONST, /* → constants[constant] */
    EXPR_VALUE, /* → the value of `operand`, converted to `type`; constants[constant] if it is absent */
    EXPR_ELEMENT,   /* n indices → an element of tensor `operand` */
    EXPR_ROWS,      /* → dim 0 of tensor `operand` */
    EXPR_SIZE,      /* → its elements, by_row those of a row */
    EXPR_AGGREGATE, /* → enum expr_aggregate `n` of its elements */
    EXPR_PRESENT,   /* → whether `operand` is there */
    EXPR_NOT,
    EXPR_NEGATE,
    EXPR_ABS,
    EXPR_TO_FLOAT,       /* the top */
    EXPR_TO_FLOAT_UNDER, /* what is below the top */
    EXPR_ADD,            /* two → one, of `type`; so are those that follow */
    EXPR_SUBTRACT,
    EXPR_MULTIPLY,
    EXPR_DIVIDE,
    EXPR_MODULO,
    EXPR_EQ, /* of two of `type` */
    EXPR_NE,
    EXPR_LT,
    EXPR_LE,
    EXPR_GT,
    EXPR_GE,
    EXPR_IN,     /* one of `type` → whether it is among constants[constant .. constant + n) */
    EXPR_PREFIX, /* two strings */
    EXPR_SUFFIX,
    EXPR_JUMP_IF_FALSE, /* to step `constant`, keeps the top */
    EXPR_JUMP_IF_TRUE,
    EXPR_AND,
    EXPR_OR
};

/* Most values on the stack of a program. */
#define EXPR_STACK_MAX 64

enum expr_aggregate { EXPR_MIN, EXPR_MAX, EXPR_SUM, EXPR_ANY, EXPR_ALL };

struct expr_step {
    uint8_t op;   /* enum expr_op */
    uint8_t type; /* enum mr_expr_type */
    uint16_t at;  /* offset in the text, for errors */
    uint16_t operand;
    uint16_t n;
    uint32_t constant;
};

struct mr_expr {
    struct mr_arena arena; /* text, names, strings */
    mr_str text;
    bool by_row;
    enum mr_expr_type type;
    MR_VEC(struct expr_step) steps;
    MR_VEC(struct mr_expr_value) constants;
    MR_VEC(struct mr_expr_operand) operands;
};

/** Column, counted in characters from 1, of offset `at`. */
unsigned expr_column(mr_str text, size_t at);
/** The type of elements of a tensor. */
enum mr_expr_type expr_type_of_dtype(int dtype);

#endif
