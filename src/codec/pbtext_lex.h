/* Tokens of the protobuf text format. Private. */
#ifndef MR_CODEC_PBTEXT_LEX_H
#define MR_CODEC_PBTEXT_LEX_H

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

enum pbtext_token_kind {
    PBTEXT_END,    /* of the text, or after an error */
    PBTEXT_IDENT,  /* letters, digits and '_', not beginning with a digit */
    PBTEXT_NUMBER, /* begins with a digit, or '.' and a digit; includes following letters */
    PBTEXT_STRING, /* quotes included, escapes not yet decoded */
    PBTEXT_SYMBOL  /* one character */
};

struct pbtext_lex {
    const char *pos;
    const char *end;
    const char *line_begin; /* of the line of pos */
    long line;
    struct mr_err *err;
    int status; /* the first error; the token is then PBTEXT_END */

    /* The next token. */
    enum pbtext_token_kind kind;
    mr_str text;
    long text_line;
    long text_column;
};

void mr_pbtext_lex_init(struct pbtext_lex *l, mr_str text, struct mr_err *err);
/** Go to the next token. */
void mr_pbtext_lex_next(struct pbtext_lex *l);
/** Set an error at the current token: "line L column C: ...". Returns the first error's status. */
int mr_pbtext_lex_fail(struct pbtext_lex *l, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4), cold));
/** "expected <what>, found <token>". */
int mr_pbtext_lex_expected(struct pbtext_lex *l, const char *what) __attribute__((cold));
/** Whether the current token is the symbol c. */
static inline bool pbtext_at(const struct pbtext_lex *l, char c)
{
    return l->kind == PBTEXT_SYMBOL && l->text.ptr[0] == c;
}
/** If the current token is the symbol c, go past it. */
bool mr_pbtext_lex_take(struct pbtext_lex *l, char c);
/** Appends the value of the current token, a string, and goes past it. */
int mr_pbtext_lex_string(struct pbtext_lex *l, struct mr_buf *out);

#endif
