/* Cuts the text of an expression into tokens. The text is valid UTF-8 without control characters (parse.c). */
#include "lex.h"

#include <stdio.h>

#include "codec/json.h"
#include "program.h"

int expr_fail_at(mr_str text, size_t at, struct mr_err *err, const char *fmt, ...)
{
    char msg[400];
    va_list args;

    va_start(args, fmt);
    vsnprintf(msg, sizeof msg, fmt, args);
    va_end(args);
    return MR_FAIL(err, MR_E_INVALID, "column %u: %s", expr_column(text, at), msg);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_name_char(char c, bool is_first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (!is_first && (is_digit(c) || c == '.'));
}

static char char_at(const struct expr_lex *l, size_t pos)
{
    return pos < l->text.len ? l->text.ptr[pos] : '\0';
}

static int lex_number(struct expr_lex *l, struct expr_token *out, struct mr_err *err)
{
    size_t p = l->pos;
    bool is_float = false;
    uint64_t whole = 0;

    for (;; p++) {
        char c = char_at(l, p);
        bool is_sign =
            (c == '+' || c == '-') && (char_at(l, p - 1) == 'e' || char_at(l, p - 1) == 'E');
        if (!is_digit(c) && c != '.' && c != 'e' && c != 'E' && !is_sign) {
            break;
        }
        is_float |= !is_digit(c);
    }
    out->text = mr_str_sub(l->text, l->pos, p);
    out->kind = is_float ? EXPR_T_FLOAT : EXPR_T_INT;
    l->pos = p;
    if (is_name_char(char_at(l, p), true)) {
        return expr_fail_at(l->text, out->at, err, "'%.*s' is followed by a letter",
                            MR_STR_ARG(out->text));
    }
    bool is_number = is_float ? mr_text_double(out->text, &out->f)
                              : mr_str_to_u64(out->text, &whole) && whole <= (uint64_t)1 << 63;
    if (!is_number) {
        return expr_fail_at(l->text, out->at, err, "'%.*s' is no number%s", MR_STR_ARG(out->text),
                            is_float ? "" : " of 64 bits");
    }
    out->i = (int64_t)whole;
    return MR_OK;
}

static int lex_name(struct expr_lex *l, struct expr_token *out)
{
    static const struct {
        const char *word;
        int kind;
    } words[] = {{"and", EXPR_T_AND},   {"or", EXPR_T_OR},      {"not", EXPR_T_NOT},
                 {"in", EXPR_T_IN},     {"true", EXPR_T_TRUE},  {"false", EXPR_T_FALSE},
                 {"True", EXPR_T_TRUE}, {"False", EXPR_T_FALSE}};
    size_t p = l->pos;

    while (is_name_char(char_at(l, p), false)) {
        p++;
    }
    out->text = mr_str_sub(l->text, l->pos, p);
    out->kind = EXPR_T_NAME;
    l->pos = p;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (mr_str_eq_c(out->text, words[i].word)) {
            out->kind = words[i].kind;
        }
    }
    return MR_OK;
}

/* The character that a backslash and `c` stand for, 0 if none. */
static char unescaped(char c)
{
    switch (c) {
    case 'n': return '\n';
    case 't': return '\t';
    case '\\':
    case '"':
    case '\'': return c;
    default: return '\0';
    }
}

/* Between the quotes at l->pos and `end`; `escapes` of its bytes are backslashes to drop. */
static int lex_unescape(struct expr_lex *l, size_t end, struct expr_token *out, struct mr_err *err)
{
    char *to = mr_arena_try(l->arena, end - l->pos, 1);
    size_t n = 0;

    if (!to) {
        return MR_FAIL(err, MR_E_NOMEM, "no memory for an expression");
    }
    for (size_t p = l->pos + 1; p < end; p++) {
        char c = l->text.ptr[p];
        if (c == '\\') {
            c = unescaped(l->text.ptr[++p]);
            if (!c) {
                return expr_fail_at(l->text, p - 1, err,
                                    "unknown escape (there are \\n \\t \\\\ \\\" \\')");
            }
        }
        to[n++] = c;
    }
    out->text = mr_str_n(to, n);
    return MR_OK;
}

/* "…", '…' or, for names, `…`. */
static int lex_quoted(struct expr_lex *l, struct expr_token *out, struct mr_err *err)
{
    char quote = l->text.ptr[l->pos];
    size_t end = l->pos + 1;
    bool has_escape = false;
    int rc = MR_OK;

    while (end < l->text.len && l->text.ptr[end] != quote) {
        bool is_escape = quote != '`' && l->text.ptr[end] == '\\';
        has_escape |= is_escape;
        end += is_escape ? 2 : 1;
    }
    if (end >= l->text.len) {
        return expr_fail_at(l->text, out->at, err, "%c without its end", quote);
    }
    out->kind = quote == '`' ? EXPR_T_NAME : EXPR_T_STRING;
    out->is_quoted = true;
    out->text = mr_str_sub(l->text, l->pos + 1, end);
    if (has_escape) {
        rc = lex_unescape(l, end, out, err);
    }
    l->pos = end + 1;
    return rc;
}

static int lex_sign(struct expr_lex *l, struct expr_token *out, struct mr_err *err)
{
    static const struct {
        char text[3];
        int kind;
    } pairs[] = {{"==", EXPR_T_EQ}, {"!=", EXPR_T_NE},  {"<=", EXPR_T_LE},
                 {">=", EXPR_T_GE}, {"&&", EXPR_T_AND}, {"||", EXPR_T_OR}};
    char c = l->text.ptr[l->pos];

    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        if (c == pairs[i].text[0] && char_at(l, l->pos + 1) == pairs[i].text[1]) {
            out->kind = pairs[i].kind;
            out->text = mr_str_sub(l->text, l->pos, l->pos + 2);
            l->pos += 2;
            return MR_OK;
        }
    }
    if (!strchr("()[],<>+-*/%!", c)) {
        return expr_fail_at(l->text, out->at, err, "unexpected '%c'%s", c,
                            c == '=' ? " (a comparison is ==)" : "");
    }
    out->kind = c == '!' ? (int)EXPR_T_NOT : c;
    out->text = mr_str_sub(l->text, l->pos, l->pos + 1);
    l->pos++;
    return MR_OK;
}

int expr_lex_next(struct expr_lex *l, struct expr_token *out, struct mr_err *err)
{
    while (l->pos < l->text.len && strchr(" \t\r\n", l->text.ptr[l->pos])) {
        l->pos++;
    }
    *out = (struct expr_token){.at = l->pos, .text = MR_STR("the end")};
    char c = char_at(l, l->pos);
    if (l->pos >= l->text.len) {
        return MR_OK;
    }
    if (is_digit(c) || (c == '.' && is_digit(char_at(l, l->pos + 1)))) {
        return lex_number(l, out, err);
    }
    if (is_name_char(c, true)) {
        return lex_name(l, out);
    }
    if (c == '"' || c == '\'' || c == '`') {
        return lex_quoted(l, out, err);
    }
    if ((unsigned char)c >= 0x80) {
        return expr_fail_at(
            l->text, out->at, err,
            "a character outside of a string (a name with it is written in `backquotes`)");
    }
    return lex_sign(l, out, err);
}
