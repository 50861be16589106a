/* The state of a compilation, which parse.c (operators) and call.c (operands and functions) share. */
#ifndef MR_EXPR_PARSE_H
#define MR_EXPR_PARSE_H

#include "lex.h"
#include "program.h"

struct expr_parse {
    struct mr_expr *x;
    struct expr_lex lex;
    struct expr_token token; /* the next one */
    const struct mr_expr_names *names;
    struct mr_err *err;
    int depth;       /* of brackets, functions and unary operators */
    uint32_t height; /* values on the stack after the steps so far */
};

/** All return MR_OK or an error with its column, as mr_expr_compile. */

/** Reads the next token. */
int expr_advance(struct expr_parse *p);
/** The next token must be `kind`, shown as `what`, and is consumed. */
int expr_expect(struct expr_parse *p, int kind, const char *what);
/** A whole expression; *out: its type. */
int expr_parse_or(struct expr_parse *p, enum mr_expr_type *out);
/** A number with an optional sign, a string, true or false. */
int expr_parse_literal(struct expr_parse *p, struct mr_expr_value *out);
/** A name, with what follows it: index, or the brackets of a function. */
int expr_parse_name(struct expr_parse *p, enum mr_expr_type *out);
/** Appends a step which takes `pops` values and leaves one. */
int expr_emit(struct expr_parse *p, struct expr_step step, uint32_t pops);
/** Appends a constant; *out: its index. */
void expr_constant(struct expr_parse *p, struct mr_expr_value value, uint32_t *out);
/** One level deeper; expr_leave ends it. */
int expr_enter(struct expr_parse *p);
static inline void expr_leave(struct expr_parse *p)
{
    p->depth--;
}

#endif
