/* The kinds of nodes of a compiled guard, which parser and evaluation share. */
#ifndef VARIANT_GUARD_OPS_H
#define VARIANT_GUARD_OPS_H

enum guard_op {
    /* numbers */
    GUARD_NUMBER,
    GUARD_ERR,
    GUARD_SERVER_ERR,
    GUARD_COUNT,
    GUARD_MEAN_MS,
    GUARD_QUANTILE_MS,
    GUARD_NEG,
    GUARD_ADD,
    GUARD_SUB,
    GUARD_MUL,
    GUARD_DIV,
    /* conditions */
    GUARD_LT,
    GUARD_LE,
    GUARD_GT,
    GUARD_GE,
    GUARD_EQ,
    GUARD_NE,
    GUARD_NOT,
    GUARD_AND,
    GUARD_OR,
};

#endif
