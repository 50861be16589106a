/* The words of an expression's text. */
#ifndef MR_EXPR_LEX_H
#define MR_EXPR_LEX_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

/* Signs of one character are tokens by their code. */
enum expr_token_kind {
    EXPR_T_END = 0,
    EXPR_T_NAME = 256, /* text: without backquotes */
    EXPR_T_INT,
    EXPR_T_FLOAT,
    EXPR_T_STRING, /* text: unescaped, in the arena or the text */
    EXPR_T_TRUE,
    EXPR_T_FALSE,
    EXPR_T_AND,
    EXPR_T_OR,
    EXPR_T_NOT,
    EXPR_T_IN,
    EXPR_T_EQ,
    EXPR_T_NE,
    EXPR_T_LE,
    EXPR_T_GE
};

struct expr_token {
    int kind;
    size_t at; /* offset of its first byte */
    mr_str text;
    int64_t i; /* of 2^63, which is a number only after a minus: INT64_MIN */
    double f;
    bool is_quoted; /* a name in backquotes: never a function */
};

struct expr_lex {
    mr_str text;
    size_t pos;
    struct mr_arena *arena; /* for strings with escapes */
};

/** The next token. Errors: MR_E_INVALID "column N: …", MR_E_NOMEM. */
int expr_lex_next(struct expr_lex *l, struct expr_token *out, struct mr_err *err);
/** Fails with "column N: …". */
int expr_fail_at(mr_str text, size_t at, struct mr_err *err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
