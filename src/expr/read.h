/* A run of a program: the operands that it has fetched, and the elements of their tensors. */
#ifndef MR_EXPR_READ_H
#define MR_EXPR_READ_H

#include "program.h"

/* An operand in a run. */
struct expr_operand_state {
    bool is_fetched;
    const struct mr_tensor *tensor; /* NULL: null */
    struct mr_expr_value value;     /* of what is no tensor */
    uint64_t elements;              /* of the tensor */
    /* of them that belong to a row; all of them if the rows share it, or without rows */
    uint64_t stride;
    bool is_shared;
    uint64_t cursor_element; /* BYTES: an element, and where it begins */
    size_t cursor_byte;
};

struct expr_run {
    const struct mr_expr *x;
    const struct mr_expr_source *source;
    struct mr_err *err;
    bool by_row;
    uint64_t rows, row;
    uint64_t spent; /* of EXPR_BUDGET */
    const struct expr_step *step;
    struct expr_operand_state operands[MR_EXPR_OPERANDS_MAX];
};

/* Most steps and bytes of a run: bounds what many rows times a large shared tensor cost. */
#define EXPR_BUDGET (UINT64_C(1) << 27)

/** All return MR_OK or an error that names column and row. */

int expr_run_fail(struct expr_run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/** Counts work. */
int expr_spend(struct expr_run *r, uint64_t units);
/** Fetches the operand of the current step. */
int expr_fetch(struct expr_run *r, struct expr_operand_state **out);
/** The element at `index` of the tensor, in the current row if there are rows. */
int expr_element(struct expr_run *r, struct expr_operand_state *o, uint64_t index,
                 struct mr_expr_value *out);
/** min, max, sum, any, all of the elements, in the current row if there are rows. */
int expr_aggregate(struct expr_run *r, struct expr_operand_state *o, struct mr_expr_value *out);

#endif
